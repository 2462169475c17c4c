"""The shared logs, on PostgreSQL and on JetStream, keep the promises of their protocol alike."""

import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from refold import InvalidInput, Memory, NotFound, StoreUnreachable
from refold.log import postgres
from refold.log.commits import (
    LINK_BYTES,
    AppendConflict,
    CommitBytes,
    CommitLog,
    CommitsLost,
    Replacement,
    hide_password,
    link_of,
    pack,
)
from refold.log.jetstream import JetStreamCommits
from refold.log.postgres import PostgresCommits
from tests.support.command import COMMAND
from tests.support.commits import Logs, everything, opened, running
from tests.support.postgres_server import PostgresServer

Opened = Callable[[], CommitLog]


@pytest.fixture(scope="module", params=["postgres", "nats"])
def logs(request: pytest.FixtureRequest) -> Iterator[Logs]:
    with running(request.param) as found:
        yield found


@pytest.fixture
def open_again(logs: Logs) -> Iterator[Opened]:
    """Return a function that opens one new log, each time as another machine does."""
    address, machines = logs.address(), list[CommitLog]()

    def connect() -> CommitLog:
        machines.append(opened(address))
        return machines[-1]

    yield connect
    for each in machines:
        each.close()


def test_commits_come_back_in_order_with_growing_numbers(open_again: Opened) -> None:
    commits = open_again()
    assert (commits.head(), commits.read(0)) == (0, [])
    written, last = list[CommitBytes](), 0
    for place in range(40):
        last = commits.append(last, b"commit %d" % place)
        written.append(CommitBytes(last, b"commit %d" % place))
    assert [number for number, _ in written] == sorted({number for number, _ in written})
    assert everything(commits) == everything(open_again()) == written
    assert commits.head() == last
    assert commits.read(written[10].number)[0] == written[11]
    assert commits.size_bytes() >= sum(len(packed) for _, packed in written)


def test_who_was_overtaken_appends_nothing(open_again: Opened) -> None:
    one, other = open_again(), open_again()
    first = one.append(0, b"one")
    for expected in (0, first + 7):
        with pytest.raises(AppendConflict):
            other.append(expected, b"other")
    other.append(first, b"other")
    assert [packed for _, packed in everything(one)] == [b"one", b"other"]


@pytest.mark.parametrize("size", [20, 3_000_000])
def test_who_expects_another_link_than_the_last_one_appends_nothing(open_again: Opened, size: int) -> None:
    commits, links = open_again(), [b""]
    numbers, packed = [0], [b""]
    for place in range(3):
        packed.append(pack((), [("meta", b"place", bytes([place]) * size)], before=links[-1]))
        numbers.append(commits.append(numbers[-1], packed[-1], links[-1]))
        links.append(link_of(packed[-1]))
    for wrong in (links[1], links[2], bytes(LINK_BYTES)):
        with pytest.raises(AppendConflict):
            open_again().append(numbers[-1], b"other", wrong)
    assert [found.packed for found in everything(commits)] == packed[1:]
    rest = packed[-1][-LINK_BYTES:].rjust(40, b"r")
    assert commits.replace([Replacement(numbers[-1], packed[-1], rest)])
    with pytest.raises(AppendConflict):
        commits.append(numbers[-1], b"other", links[1])
    last = commits.append(numbers[-1], b"on")
    assert everything(open_again())[2:] == [
        CommitBytes(numbers[-1], rest),
        CommitBytes(last, b"on"),
    ]


def test_who_asks_for_commits_behind_the_last_one_learns_that_it_is_not_there(open_again: Opened) -> None:
    commits = open_again()
    last = commits.append(commits.append(0, b"one"), b"two")
    assert commits.read(last) == []
    with pytest.raises(CommitsLost):
        commits.read(last + 1)


def test_of_many_at_once_one_is_first(open_again: Opened) -> None:
    machines = [open_again() for _ in range(6)]
    appended = list[bytes]()

    def write(place: int) -> None:
        commits, last = machines[place], 0
        for turn in range(10):
            packed = b"%d of %d" % (turn, place)
            while True:
                commits.queue()
                try:
                    last = commits.append(commits.head(), packed)
                except AppendConflict:
                    continue
                finally:
                    commits.leave()
                break
            appended.append(packed)
        assert last

    threads = [threading.Thread(target=write, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [packed for _, packed in everything(machines[0])]
    assert sorted(found) == sorted(appended)
    for place in range(6):
        own = [packed for packed in found if packed.endswith(b"of %d" % place)]
        assert own == [b"%d of %d" % (turn, place) for turn in range(10)]


@pytest.mark.parametrize("size", [0, 1, 1_000_000, 5_000_000, 30_000_000])
def test_commits_of_any_size(open_again: Opened, size: int) -> None:
    commits = open_again()
    last = commits.append(commits.append(0, b"before"), b"x" * size)
    commits.append(last, b"after")
    assert [packed for _, packed in everything(open_again())] == [b"before", b"x" * size, b"after"]


def test_pages_are_bounded(open_again: Opened) -> None:
    commits, last = open_again(), 0
    for place in range(12):
        last = commits.append(last, bytes([place]) * 900_000)
    assert 1 <= len(commits.read(0)) < 12
    assert [packed[:1] for _, packed in everything(commits)] == [bytes([place]) for place in range(12)]


@pytest.mark.parametrize("size", [1, 3_000_000])
@pytest.mark.parametrize("new", [1, 2_500_000])
def test_a_commit_is_replaced_in_its_place(open_again: Opened, size: int, new: int) -> None:
    commits, other, numbers = open_again(), open_again(), [0]
    for place in range(5):
        numbers.append(commits.append(numbers[-1], bytes([97 + place]) * size))
    was = [b"b" * size, b"e" * size]
    for fill in (b"R", b"S"):
        will_be = [fill * new, fill]
        replacements = [Replacement(numbers[place], *each) for place, *each in zip((2, 5), was, will_be, strict=True)]
        assert other.replace(replacements)
        assert not commits.replace([replacements[0]._replace(after=b"what another machine made of it")])
        was = will_be
        expected = [b"a" * size, fill * new, b"c" * size, b"d" * size, fill]
        for each in (commits, other, open_again()):
            assert [packed for _, packed in everything(each)] == expected
            assert [number for number, _ in everything(each)] == numbers[1:]
            assert each.read(numbers[4]) == [CommitBytes(numbers[5], fill)]
    commits.sweep()
    last = other.append(numbers[5], b"on")
    assert commits.read(numbers[5]) == [CommitBytes(last, b"on")]


def test_who_waits_is_told_of_a_commit(open_again: Opened) -> None:
    one, other = open_again(), open_again()
    while other.wait(0.1) is not None:
        pass
    told = list[int | None]()
    waiter = threading.Thread(target=lambda: told.append(other.wait(30)))
    waiter.start()
    time.sleep(0.2)
    number = one.append(0, b"commit")
    waiter.join(20)
    assert told == [number]
    assert other.wait(0.05) is None


def test_turns_are_taken_one_after_the_other(open_again: Opened) -> None:
    one, other = open_again(), open_again()
    one.leave()
    one.queue()
    one.leave()
    other.queue()
    other.leave()
    other.leave()


def test_a_machine_that_stands_still_in_its_turn_keeps_nobody_from_writing(open_again: Opened) -> None:
    one, other = open_again(), open_again()
    one.queue()
    other.queue()
    number = other.append(0, b"other")
    other.leave()
    one.leave()
    assert one.read(0) == [CommitBytes(number, b"other")]
    other.queue()
    other.leave()


def test_a_server_that_stands_still_is_given_up(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes say so, reads go on, and closing ends; without bounds each would wait for the server, maybe for ever."""
    monkeypatch.setattr("refold.log.postgres._PostgresConnection.seconds", 1.0)
    monkeypatch.setitem(postgres._DEFAULTS, "connect_timeout", "2")  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr("refold.log.jetstream._SECONDS", 1.0)
    monkeypatch.setattr("refold.log.replica.RECONNECT_SECONDS_MAX", 1)
    memory = Memory(address := logs.address(), cache=":memory:")
    try:
        memory.conversation("chat").append("user", "before")
        logs.servers.signal(0, signal.SIGSTOP)
        with pytest.raises(StoreUnreachable):
            memory.conversation("chat").append("user", "meanwhile", request_id="once")
        assert [message.content for message in memory.conversation("chat").window()] == ["before"]
        with suppress(StoreUnreachable):
            memory.close()
    finally:
        logs.servers.signal(0, signal.SIGCONT)
        memory.close()
    with Memory(address, cache=":memory:") as memory:
        memory.conversation("chat").append("user", "meanwhile", request_id="once")
        assert [message.content for message in memory.conversation("chat").window()] == ["before", "meanwhile"]


def test_who_waits_for_a_caller_that_waits_for_the_server_is_told_so(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.engine.writer.COMMIT_WAIT_SECONDS_MAX", 1)
    with Memory(logs.address(), cache=":memory:") as memory, ThreadPoolExecutor(2) as threads:
        memory.profile().set("place", "here")
        logs.servers.signal(0, signal.SIGSTOP)
        time.sleep(0.1)  # On a busy machine a thread of the server can answer once more.
        try:
            calls = [threads.submit(memory.profile(name).set, "place", "there") for name in ("one", "other")]
            with pytest.raises(StoreUnreachable, match="does not answer: nothing was committed for"):
                next(as_completed(calls)).result()
        finally:
            logs.servers.signal(0, signal.SIGCONT)
        wait(calls)
        assert sorted(call.exception() is None for call in calls) == [False, True]


@pytest.mark.parametrize("replaced", [b"", b"other"])
def test_what_a_replica_does_not_catch_up_with_the_leader_tells(
    monkeypatch: pytest.MonkeyPatch, replaced: bytes
) -> None:
    with running("nats") as logs, closing(opened(address := logs.address())) as writer:
        number = writer.append(0, b"commit")
        if replaced:
            assert writer.replace([Replacement(number, b"commit", replaced)])
        with closing(JetStreamCommits(address, readonly=True)) as reader:
            monkeypatch.setattr("refold.log.jetstream._SECONDS", 0.5)
            monkeypatch.setattr(reader, "_messages", _of_a_replica_that_is_behind)
            assert reader.read(0) == [CommitBytes(number, replaced or b"commit")]


def test_what_a_replacement_that_was_cut_off_has_left_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cut_off(*_: object) -> None:
        pass

    with running("nats") as logs, closing(JetStreamCommits(logs.address(), readonly=False)) as commits:
        number = commits.append(0, b"a secret")
        with monkeypatch.context() as cut:
            cut.setattr(commits, "_erase", cut_off)
            assert commits.replace([Replacement(number, b"a secret", b"another secret")])
            large = b"another secret" * 200_000  # Of three messages, of which one is replaced.
            assert commits.replace([Replacement(number, b"another secret", large)])
            assert commits.replace([Replacement(number, large, b"what is left")])
        assert not commits.replace([Replacement(number, b"a secret", b"what is left")])  # As it would be read.
        assert commits.read(0) == [CommitBytes(number, b"what is left")]
        commits.sweep()
        jetstream = commits._jetstream
        names = (commits._stream, commits._replaced)
        infos = [commits._call(lambda name=name: jetstream.stream_info(name)) for name in names]  # type: ignore[misc]
        assert [info.state.messages for info in infos] == [0, 1]


async def _of_a_replica_that_is_behind(_first: int) -> list[object]:
    return []


def test_a_sweep_at_a_server_that_is_gone_says_so() -> None:
    with running("postgres") as logs, closing(opened(logs.address())) as commits:
        commits.append(0, b"commit")
        logs.servers.stop()
        with pytest.raises(StoreUnreachable):
            commits.sweep()


@pytest.mark.parametrize("place", range(12))
def test_many_make_a_new_log_at_once(logs: Logs, place: int) -> None:
    address = logs.address()
    if isinstance(logs.servers, PostgresServer):  # Only in a new database are there tables to be made.
        with psycopg.connect(logs.servers.address, autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(f"new{place}")))
        address = address.replace("/postgres?", f"/new{place}?")
    together = threading.Barrier(6)

    def make(_: int) -> int:
        together.wait()
        with closing(opened(address)) as commits:
            return commits.head()

    with ThreadPoolExecutor(6) as machines:
        assert list(machines.map(make, range(6))) == [0] * 6


def test_closing_twice_is_closing_once(open_again: Opened) -> None:
    commits = open_again()
    commits.close()
    commits.close()


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        (PostgresCommits, "postgresql://me:secret@127.0.0.1:1/db"),
        (JetStreamCommits, "nats://me:secret@127.0.0.1:1/log"),
    ],
)
def test_a_server_that_is_not_there_is_said_without_the_password(kind: Callable[..., CommitLog], address: str) -> None:
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1:1") as raised:
        kind(address, readonly=False)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        (PostgresCommits, "postgresql://h/db?log=a&log=b"),
        (PostgresCommits, "postgresql://h/db?log="),
        (JetStreamCommits, "nats://h/a.b"),
        (JetStreamCommits, "nats://h/a?replicas=2"),
        (JetStreamCommits, "nats://h/a?replica=3"),
    ],
)
def test_an_address_that_says_nothing_is_refused(kind: Callable[..., CommitLog], address: str) -> None:
    with pytest.raises(InvalidInput):
        kind(address, readonly=False)


@pytest.mark.parametrize("kind", [PostgresCommits, JetStreamCommits])
@pytest.mark.parametrize(
    "rest",
    ["u:se/cret@h/x", "u:se?cret@h/x", "u:se#cret@h/x", "u:se@cret@h/x", "u:p@h,u:secret@h2/x", "[::1/x", "h:x/x"],
)
def test_an_address_that_is_not_what_it_seems_is_refused_without_it(kind: Callable[..., CommitLog], rest: str) -> None:
    with pytest.raises(InvalidInput, match="write % @") as raised:
        kind(f"{'nats' if kind is JetStreamCommits else 'postgresql'}://{rest}", readonly=False)
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize("option", ["nonsense=1", "host"])
def test_what_libpq_cannot_read_is_refused_without_the_password(option: str) -> None:
    for password in ("secret", "se%zzcret"):
        with pytest.raises(InvalidInput, match="libpq cannot read") as raised:
            PostgresCommits(f"postgresql://u:{password}@h/db?{option}&log=a", readonly=False)
        assert "cret" not in "".join(traceback.format_exception(raised.value)).partition("Error")[2]


@pytest.mark.parametrize("logs", ["postgres"], indirect=True)
def test_libpq_gets_the_rest_of_the_address_as_it_is(logs: Logs) -> None:
    assert isinstance(logs.servers, PostgresServer)
    host = logs.servers.directory
    with closing(PostgresCommits(f"postgresql:///postgres?log=a%2Bb&host={host}&user=refold", readonly=False)) as one:
        one.append(0, b"commit")
    address = f"postgresql://refold@/postgres?host={host}&application_name=a+b&connect_timeout=7&log=a%2Bb"
    with closing(PostgresCommits(address, readonly=False)) as other:
        assert other.head() == 1
        with psycopg.connect(logs.servers.address) as connection:
            names = connection.execute("SELECT application_name FROM pg_stat_activity").fetchall()
    assert ("a+b",) in names


@pytest.mark.parametrize("logs", ["postgres", "nats"], indirect=True)
def test_a_server_without_any_log_has_none_to_open_read_only(logs: Logs) -> None:
    with pytest.raises(NotFound, match="to open read-only; open it once without readonly=True"):
        Memory(logs.address(), readonly=True)


@pytest.mark.parametrize("logs", ["postgres"], indirect=True)
def test_sessions_are_imported_into_a_log_on_a_server(logs: Logs, tmp_path: Path) -> None:
    file, address = tmp_path / "session.jsonl", logs.address()
    file.write_text('{"messages": [{"role": "user", "content": "hello"}]}\n')
    called = subprocess.run([*COMMAND, "import", file, "--db", address], capture_output=True, check=False, timeout=60)
    assert (called.returncode, called.stderr) == (0, b"")
    with Memory(address, readonly=True) as memory:
        (chat,) = memory.conversations()
        assert [message.content for message in memory.conversation(chat).window()] == ["hello"]


def test_what_an_operator_should_know_is_told(open_again: Opened) -> None:
    commits = open_again()
    commits.append(0, b"commit")
    found = {check.name: check for check in commits.checks()}
    assert {"server", "commits"} < set(found)
    assert found["commits"].state == "ok"
    assert [check for check in found.values() if check.state != "ok" and not check.next_step] == []


def test_an_address_is_shown_without_its_password() -> None:
    for address, shown in (
        ("postgresql://me:secret@h/db", "postgresql://me:***@h/db"),
        ("postgresql:///db?user=me&password=secret&log=a", "postgresql:///db?user=me&password=***&log=a"),
        ("nats://me:se%40cret@h:1,g:2/log", "nats://me:***@h:1,g:2/log"),
        ("nats://h:4222/log", "nats://h:4222/log"),
        ("nats://u:p@h1,u:p2@h2/log", "nats://u:***@h2/log"),
        ("postgresql://pw:ge@heim@h/db", "postgresql://pw:***@h/db"),
        ("postgresql://pw:ge/heim@h/db", "postgresql://pw:***@h/db"),
        ("postgresql://h/db?sslpassword=secret&log=a", "postgresql://h/db?sslpassword=***&log=a"),
        ("a/a:b@c", "a/a:b@c"),
    ):
        assert hide_password(address) == shown
