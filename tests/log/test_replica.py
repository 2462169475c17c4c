"""A copy of a shared log: what is overtaken, lost on its way, erased elsewhere, or not what the server has."""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from refold import InvalidInput, Memory, ReadOnly, StoreBusy, StoreCorrupt, StoreFull, StoreUnreachable, WrongVersion
from refold.engine import transfer, writer
from refold.engine.reader import MOVED_KEY
from refold.limits import PAGE_EVENTS, TURNS_COUNT_MIN
from refold.log import clean_copy, replica
from refold.log.commits import AppendConflict, CommitBytes, Replacement, link_of, pack
from refold.log.memory_log import RamLog
from refold.log.protocol import Row, TurnLost, write
from refold.log.record import Sealed
from refold.log.replica import ReplicaLog
from tests.support.commits import RamCommits
from tests.support.memories import assert_sound
from tests.support.records import sealed
from tests.support.seams import engine_of

Shared = list[bytes]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Shared:
    """Commits that every memory at ``postgresql://`` in this process has."""
    commits: Shared = []

    def connected(address: str, *, readonly: bool) -> RamCommits:
        assert (address, type(readonly)) == ("postgresql://shared", bool)
        return RamCommits(commits)

    monkeypatch.setattr(replica, "connect", connected)
    return commits


@pytest.fixture
def machine(shared: Shared, tmp_path: Path) -> Iterator[Callable[..., Memory]]:
    """A function that opens the memory as another machine does, with a copy of its own."""
    opened = list[Memory]()

    def open_one(name: str = "", **options: object) -> Memory:
        assert shared is not None
        opened.append(Memory("postgresql://shared", cache=tmp_path / (name or str(len(opened))), **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for memory in opened:
        memory.close()


def unreachable(*_: object) -> None:
    raise StoreUnreachable("it does not answer")


def secret_files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]


def hear_nothing(_: RamCommits, seconds: float) -> int:
    time.sleep(seconds)
    return 0


def log_of(memory: Memory) -> ReplicaLog:
    log = memory._core.engine.reader.log
    assert isinstance(log, ReplicaLog)
    return log


def commits_of(memory: Memory) -> RamCommits:
    found = log_of(memory).commits
    assert isinstance(found, RamCommits)
    return found


class TestTwoMachines:
    def test_see_what_each_other_writes(self, machine: Callable[..., Memory]) -> None:
        one, other = machine(), machine()
        for turn in range(6):
            for memory in (one, other):
                memory.conversation("c").append("user", f"{turn}")
        one.refresh()
        other.refresh()
        assert one.state_hash() == other.state_hash()
        assert [message.content for message in one.conversation("c").window()] == [f"{n // 2}" for n in range(12)]
        assert_sound(one)
        assert_sound(other)

    def test_are_told_without_asking(self, machine: Callable[..., Memory]) -> None:
        one, other = machine(), machine()
        heard = list[int]()
        other.subscribe(lambda recorded: heard.append(recorded.stamp.seq), after=0)
        seq = one.conversation("c").append("user", "hello").seq
        until = time.monotonic() + 20
        while seq not in heard and time.monotonic() < until:
            time.sleep(0.01)
        assert heard == list(range(1, seq + 1))

    def test_decide_on_what_the_other_wrote(self, machine: Callable[..., Memory]) -> None:
        one, other = machine(), machine()

        def count(memory: Memory) -> None:
            state = memory.conversation("c").state
            for _ in range(20):
                memory.transact(lambda: state.set("n", state.get("n", 0) + 1))

        threads = [threading.Thread(target=count, args=(memory,)) for memory in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        one.refresh()
        assert one.conversation("c").state["n"] == 40
        assert commits_of(one).queued + commits_of(other).queued > 0

    def test_name_as_a_source_what_the_other_wrote(
        self, machine: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(RamCommits, "wait", hear_nothing)
        one, other = machine(), machine()
        seq = one.conversation("c").append("user", "hello").seq
        other.conversation("d").append("assistant", "hi", sources=[seq])
        assert list(other.events())[-1].event.sources == (seq,)
        seq = one.conversation("c").append("user", "hello again").seq
        with other.acting("tool:search", cause=seq):
            assert other.conversation("d").append("assistant", "hi again").stamp.cause == seq
        with pytest.raises(InvalidInput, match=f"runs from 1 to {other.head}"):
            other.conversation("d").append("assistant", "hi", sources=[other.head + 1])

    def test_fork_and_drop_a_conversation_with_the_board_that_the_other_has_begun(
        self, machine: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(RamCommits, "wait", hear_nothing)
        one, other = machine(), machine()

        def begin(name: str) -> None:
            with one.batch():
                one.conversation(name).append("user", "hello")
                one.board(session=name).set_last_user_message("hello")

        one.conversation("forked").append("user", "before")
        one.conversation("dropped").append("user", "before")
        other.refresh()
        begin("forked")
        begin("dropped")
        fork = other.conversation("forked").fork("fork")
        assert [message.content for message in fork.window()] == ["before", "hello"]
        assert other.board(session="fork").get("last_user_message") == "hello"
        other.conversation("dropped").drop()
        assert not other.board(session="dropped").get("last_user_message")

    def test_restore_a_conversation_while_the_other_writes_to_it(
        self, machine: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = machine(), machine()
        chat = one.conversation("c")
        chat.append("user", "hello")
        one.board(session="c").set_last_user_message("hello")
        before, append, left = chat.snapshot(), RamCommits.append, [1, 2, 3]
        chat.append("user", "forget it")

        def overtaken(self: RamCommits, expected: int, packed: bytes, before: bytes | None = None) -> int:
            if self is commits_of(one) and left:
                other.conversation("c").append("user", f"{left.pop()} meanwhile")
            return append(self, expected, packed, before)

        monkeypatch.setattr(RamCommits, "append", overtaken)
        chat.restore(before)
        assert not left
        assert [message.content for message in chat.window()] == ["hello"]
        with pytest.raises(WrongVersion):
            chat.restore(before, expected=1)

    def test_answer_a_request_once(self, machine: Callable[..., Memory]) -> None:
        one, other = machine(), machine()
        first = one.conversation("c").append("user", "hello", request_id="r")
        again = other.conversation("c").append("user", "hello", request_id="r")
        assert first.seq == again.seq
        assert len(other.conversation("c").window()) == 1


class TestAnErasure:
    def test_reaches_the_server_and_every_copy(
        self, machine: Callable[..., Memory], shared: Shared, tmp_path: Path
    ) -> None:
        one, other = machine("one"), machine("other")
        chat = one.conversation("a secret name")
        chat.append("user", "a secret text that nobody may find")
        chat.append("user", "what stays")
        one.profile().set("kept", "value", request_id="r")
        other.refresh()
        other.conversation("a secret name").window()
        other.flush()
        receipt = one.conversation("a secret name").erase()
        assert receipt.occurrences == 0
        assert "backups" in receipt.beyond_reach[-1]
        other.refresh()
        assert one.state_hash() == other.state_hash()
        assert_sound(other)
        assert not any(b"secret" in packed for packed in shared)
        one.close()
        other.close()
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert files
        assert [path for path in files if b"secret" in path.read_bytes()] == []
        new = machine("new")
        assert new.state_hash() == machine("one").state_hash() == machine("other").state_hash()
        assert_sound(new)

    def test_leaves_nothing_in_rows_that_were_made_before_it_was_known(
        self, machine: Callable[..., Memory], tmp_path: Path
    ) -> None:
        one, other = machine("one"), machine("other")
        with one.batch():
            for number in range(200):
                one.add(f"memory {number} with words of its own")
        secret = one.add("the passphrase is quetzalcoatl")
        other.refresh()
        assert other.search("quetzalcoatl")
        one.erase([secret])
        log_of(other).refresh()
        other.flush()
        other.close()
        found = [path for path in (tmp_path / "other").rglob("*") if path.is_file()]
        assert [path for path in found if b"quetzalcoatl" in path.read_bytes()] == []

    @pytest.mark.parametrize("is_in_ram", [False, True])
    def test_is_seen_whole_or_not_at_all(
        self,
        machine: Callable[..., Memory],
        shared: Shared,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        is_in_ram: bool,
    ) -> None:
        """By a read that is under way, too, which takes a page of events after the other."""
        monkeypatch.setattr(replica, "FOLLOW_SECONDS", 0.01)
        one = machine("one")
        with one.batch():
            messages = [one.conversation("c").append("user", f"a secret, part {number}") for number in range(1000)]

        def left(memory: Memory) -> int:
            return sum("secret" in (message.content or "") for message in memory.conversation("c").window())

        with Memory("postgresql://shared", cache=":memory:" if is_in_ram else tmp_path / "other") as other:
            log, is_erased = log_of(other), False
            read = log.read

            def erased_meanwhile(after: int, until: int) -> list[Sealed]:
                nonlocal is_erased
                if after > len(messages) // 2 and not is_erased:
                    is_erased = True
                    one.erase(messages)
                    deadline = time.monotonic() + 0.5
                    while log.position < len(shared) and time.monotonic() < deadline:
                        time.sleep(0.01)
                return read(after, until)

            with monkeypatch.context() as cut:
                cut.setattr(log, "read", erased_meanwhile)
                found = left(other)
            assert is_erased
            assert found in (0, len(messages))
            other.refresh()
            assert left(other) == 0
            assert_sound(other)

    def test_is_taken_in_once_there_is_room_for_a_clean_copy(
        self, machine: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shared: Shared
    ) -> None:
        monkeypatch.setattr(replica, "FOLLOW_SECONDS", 0.01)
        one, other = machine("one"), machine("other")
        message = one.conversation("c").append("user", "a secret text that nobody may find")
        other.refresh()

        def full(*_: object) -> None:
            raise StoreFull("there is no room")

        with monkeypatch.context() as cut:
            cut.setattr(clean_copy, "copy", full)
            with pytest.raises(StoreFull, match=r"has the erasure, and the copy of it here .*: there is no room"):
                one.erase([message])
            for memory in (one, other):
                with pytest.raises(StoreFull, match="cannot be erased from the copy of it here: there is no room"):
                    memory.refresh()
                assert memory.conversation("c").window()[0].content == message.content
        other.conversation("c").append("user", "and on")
        one.refresh()
        assert [each.content for each in one.conversation("c").window()] == [None, "and on"]
        assert one.erase([message]).occurrences == 0
        for memory in (one, other):
            assert_sound(memory)
            memory.close()
        assert not any(b"secret" in packed for packed in shared)
        assert not any(b"secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    def test_does_not_keep_a_machine_from_closing(
        self, machine: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(replica, "FOLLOW_SECONDS", 0.01)
        one, other = machine(), machine()
        message = one.conversation("c").append("user", "a secret text that nobody may find")
        other.refresh()
        with engine_of(other).exclusive():  # For which the thread that follows waits, as `close` does on its way.
            one.erase([message])
            until = time.monotonic() + 20
            while log_of(other).known == log_of(other).position and time.monotonic() < until:
                time.sleep(0.01)
            assert log_of(other).known > log_of(other).position
            closing = threading.Thread(target=other.close)
            closing.start()
        closing.join(20)
        assert not closing.is_alive()

    def test_reaches_the_copies_of_processes_that_have_ended(
        self, machine: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(RamCommits, "wait", hear_nothing)
        eraser, *workers = (machine("home") for _ in range(4))
        message = workers[0].conversation("c").append("user", "a secret text that nobody may find")
        for worker in workers:
            worker.refresh()
        for worker in workers[:2]:
            worker.close()
        receipt = eraser.erase([message])
        copies = [place for place in receipt.beyond_reach if place.startswith("the copy in")]
        assert len(copies) == 1
        assert copies[0].startswith(f"the copy in {log_of(workers[2]).local.files.path},")  # type: ignore[union-attr]
        workers[2].refresh()
        assert secret_files(tmp_path) == []
        assert machine("home").state_hash() == machine("home").state_hash() == eraser.state_hash()
        assert not any("the copy in" in place for place in eraser.erase([message]).beyond_reach)

    def test_reaches_copies_beside_one_that_takes_it_in(
        self, machine: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(RamCommits, "wait", hear_nothing)
        one, other, ended = machine("away"), machine("home"), machine("home")
        message = one.conversation("c").append("user", "a secret text that nobody may find")
        for memory in (other, ended):
            memory.refresh()
        ended.close()
        one.erase([message])
        assert len(secret_files(tmp_path / "home")) == 2
        other.refresh()
        assert secret_files(tmp_path) == []

    def test_reaches_the_copy_of_a_process_that_was_killed_before_with_the_next_opening(
        self, machine: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(RamCommits, "wait", hear_nothing)
        one, other = machine("home"), machine("home")
        message = one.conversation("c").append("user", "a secret text that nobody may find")
        other.refresh()
        one.erase([message])
        other.close()  # Without a look at what others wrote.
        one.close()
        assert len(secret_files(tmp_path)) == 1
        machine("home")
        assert secret_files(tmp_path) == []

    def test_leaves_the_copies_that_have_taken_it_in(self, machine: Callable[..., Memory], tmp_path: Path) -> None:
        one, other = machine("home"), machine("home")
        message = one.conversation("c").append("user", "a secret text that nobody may find")
        one.erase([message])
        other.refresh()
        other.close()
        data = [path.stat().st_ino for path in tmp_path.rglob("data.mdb")]
        assert len(data) == 2
        one.conversation("c").append("user", "more")
        with machine("home"):
            assert sorted(path.stat().st_ino for path in tmp_path.rglob("data.mdb")) == sorted(data)

    @pytest.mark.parametrize("is_reserved", [False, True])
    def test_passes_a_copy_that_is_not_made_yet(
        self, machine: Callable[..., Memory], tmp_path: Path, *, is_reserved: bool
    ) -> None:
        one = machine("home")
        message = one.conversation("c").append("user", "a secret text that nobody may find")
        begun = Path(log_of(one).local.files.path).with_name("7")  # type: ignore[union-attr]
        begun.mkdir()
        with Path(f"{begun}.lock").open("w", encoding="utf-8") as lock:
            if is_reserved:
                fcntl.flock(lock, fcntl.LOCK_EX)
            one.erase([message])
        assert secret_files(tmp_path) == []
        assert begun.exists() == is_reserved

    def test_is_finished_by_the_next_one_where_it_was_cut_off(
        self, machine: Callable[..., Memory], shared: Shared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = machine("one")
        message = one.conversation("c").append("user", "a secret text that nobody may find")
        with monkeypatch.context() as cut:
            cut.setattr(RamCommits, "replace", unreachable)
            with pytest.raises(StoreUnreachable, match="the events are erased, but"):
                one.erase([message])
        assert any(b"secret" in packed for packed in shared)
        one.close()
        other = machine("other")
        assert not any(b"secret" in packed for packed in shared)
        assert_sound(other)

    def test_puts_nothing_back_that_another_machine_erased_meanwhile(
        self, machine: Callable[..., Memory], shared: Shared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = machine(), machine()
        with one.batch():  # In one record, of which each erases another event.
            messages = [one.conversation("c").append("user", f"a secret text, part {number}") for number in range(2)]
        other.refresh()
        replace, left = RamCommits.replace, [messages[1]]

        def overtaken(self: RamCommits, commits: Sequence[Replacement]) -> bool:
            if self is commits_of(one) and left:
                other.erase([left.pop()])
            return replace(self, commits)

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(RamCommits, "replace", overtaken)
            assert one.erase([messages[0]]).occurrences == 0
        assert not left
        assert not any(b"secret" in packed for packed in shared)
        for memory in (one, other):
            memory.refresh()
            assert_sound(memory)

    def test_that_was_cut_off_beside_the_end_of_another_is_finished_too(
        self, machine: Callable[..., Memory], shared: Shared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = machine(), machine()
        messages = [one.conversation("c").append("user", f"a secret text, part {number}") for number in range(2)]
        other.refresh()

        def cut_off(self: RamCommits) -> None:
            if self is commits_of(one):
                with monkeypatch.context() as cut:
                    cut.setattr(RamCommits, "replace", unreachable)
                    with pytest.raises(StoreUnreachable, match="the events are erased, but"):
                        other.erase([messages[1]])

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(RamCommits, "sweep", cut_off)
            one.erase([messages[0]])
        assert any(b"part 1" in packed for packed in shared)
        machine()
        assert not any(b"secret" in packed for packed in shared)

    def test_by_text_or_prefix_finds_what_another_machine_was_answered_for(
        self, machine: Callable[..., Memory], shared: Shared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(RamCommits, "wait", hear_nothing)
        one, other = machine(), machine()
        message = one.conversation("c").append("user", "a secret text that nobody may find")
        put = one.table("t").put(("keys", "k"), "another secret text")
        assert other.erase(text="secret text that").seqs == (message.seq,)
        assert other.table("t").erase(("keys",)).seqs == (put.seq,)
        assert not any(b"secret" in packed for packed in shared)

    def test_is_refused_once_the_memory_was_moved(
        self, machine: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = machine(), machine()
        message = one.conversation("c").append("user", "a secret text that nobody may find")
        other.refresh()
        append, marks = RamCommits.append, [b"elsewhere"]

        def overtaken(self: RamCommits, expected: int, packed: bytes, before: bytes | None = None) -> int:
            if self is commits_of(other) and marks:
                write(log_of(one), (), [("meta", MOVED_KEY, marks.pop())])
            return append(self, expected, packed, before)

        monkeypatch.setattr(RamCommits, "append", overtaken)
        with pytest.raises(ReadOnly, match="was moved to elsewhere"):
            other.erase([message])
        write(log_of(one), (), [("meta", MOVED_KEY, None)])
        other.refresh()
        assert other.erase([message]).occurrences == 0

    def test_that_was_overtaken_is_planned_again(
        self, machine: Callable[..., Memory], shared: Shared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = machine(), machine()
        message = one.conversation("c").append("user", "a secret text that nobody may find")
        append, count = RamCommits.append, 0

        def overtaken(self: RamCommits, expected: int, packed: bytes, before: bytes | None = None) -> int:
            nonlocal count
            if self is commits_of(one) and count < 3:
                count += 1
                theirs = pack((), [("meta", b"other", b"%d" % count)], before=link_of(self.commits[-1]))
                append(self, len(self.commits), theirs)
            return append(self, expected, packed, before)

        monkeypatch.setattr(RamCommits, "append", overtaken)
        assert one.erase([message]).occurrences == 0
        assert count == 3
        other.refresh()
        assert_sound(other)
        assert not any(b"secret" in packed for packed in shared)

    def test_is_planned_on_what_others_write_until_its_turn(
        self, machine: Callable[..., Memory], shared: Shared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = machine(), machine()
        messages = [one.conversation("c").append("user", f"a secret text, part {number}") for number in range(4)]
        monkeypatch.setattr(RamCommits, "wait", hear_nothing)
        other.conversation("d").append("user", "so that turns are queued for")
        one.conversation("c").append("user", "from here on")
        queue, written = RamCommits.queue, 0

        def written_meanwhile(self: RamCommits) -> None:
            nonlocal written
            queue(self)
            if self is commits_of(one):
                written += 1
                other.conversation("d").append("user", f"message {written}")

        monkeypatch.setattr(RamCommits, "queue", written_meanwhile)
        for message in messages:
            assert one.erase([message]).occurrences == 0
            one.conversation("c").append("user", "and on")
        assert written > 3 * len(messages)
        monkeypatch.undo()
        for memory in (one, other):
            memory.refresh()
            assert len(memory.conversation("d").window()) == written + 1
            assert_sound(memory)
        assert not any(b"secret" in packed for packed in shared)


class TestAnAppend:
    @pytest.mark.parametrize(
        "how", [["after"], ["before"], ["before", "before", "after"], ["after", "before"]], ids=str
    )
    def test_is_there_once_though_the_connection_was_lost(self, how: list[str]) -> None:
        commits = RamCommits()
        log = ReplicaLog(commits, RamLog(), readonly=False)
        commits.lost = list(how)
        write(log, sealed(1, [b"one"]))
        write(log, sealed(2, [b"two"]))
        assert len(commits.commits) == 2
        assert log.read(0, 9) == [*sealed(1, [b"one"]), *sealed(2, [b"two"])]

    @pytest.mark.parametrize("machines", [1, 2])
    def test_takes_in_the_callers_of_the_one_before_it(
        self, shared: Shared, monkeypatch: pytest.MonkeyPatch, machines: int
    ) -> None:
        append, threads, turns = RamCommits.append, 16, 20

        def append_slowly(commits: RamCommits, expected: int, packed: bytes, before: bytes | None = None) -> int:
            time.sleep(0.02)
            return append(commits, expected, packed, before)

        monkeypatch.setattr(RamCommits, "append", append_slowly)
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(machines * threads))
            memories = [stack.enter_context(Memory("postgresql://shared", cache=":memory:")) for _ in range(machines)]

            def write(place: int) -> None:
                for turn in range(turns):
                    memories[place % machines].conversation(f"c{place}").append("user", f"{turn}")

            list(pool.map(write, range(machines * threads)))
        # Where one leads alone while the others come back, it is two for each turn.
        assert len(shared) < 1.8 * turns * machines

    def test_that_a_stopped_server_took_the_time_of_is_tried_again(
        self, machine: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only where many turns were lost is it the others who write too much."""
        monkeypatch.setattr(writer, "TURN_SECONDS_MAX", 0)
        memory, lost = machine(), iter(range(TURNS_COUNT_MIN - 1))
        append = RamCommits.append

        def overtaken(commits: RamCommits, expected: int, packed: bytes, before: bytes | None = None) -> int:
            if next(lost, None) is not None:
                raise AppendConflict
            return append(commits, expected, packed, before)

        monkeypatch.setattr(RamCommits, "append", overtaken)
        memory.profile().set("theme", "dark")
        lost = iter(range(TURNS_COUNT_MIN))
        with pytest.raises(TurnLost):
            memory.profile().set("theme", "light")
        memory.profile().set("theme", "green")
        assert memory.profile().get("theme") == "green"

    def test_that_another_machine_overtook_meanwhile_is_lost(self) -> None:
        commits = RamCommits()
        log = ReplicaLog(commits, RamLog(), readonly=False)
        commits.append(0, pack(sealed(1, [b"theirs"]), ()))
        commits.lost = ["before"]
        with pytest.raises(TurnLost, match="another machine wrote"):
            log.in_turn(lambda turn: turn.write(sealed(1, [b"ours"])))
        assert log.refresh()
        assert log.read(0, 9) == sealed(1, [b"theirs"])

    def test_whose_outcome_stays_unknown_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(replica, "RECONNECT_SECONDS_MAX", 0.05)
        commits = RamCommits()
        log = ReplicaLog(commits, RamLog(), readonly=False)
        commits.lost = ["before"] * 100
        with pytest.raises(StoreUnreachable, match="request_id"):
            write(log, sealed(1, [b"one"]))
        commits.lost = []
        write(log, sealed(1, [b"one"]))
        assert log.head() == 1

    def test_that_was_cut_off_before_it_was_here_is_read_from_the_server(
        self, machine: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        memory = machine()
        chat = memory.conversation("c")
        chat.append("user", "one")
        append = RamCommits.append

        def interrupted(self: RamCommits, expected: int, packed: bytes, before: bytes | None = None) -> int:
            append(self, expected, packed, before)
            raise KeyboardInterrupt

        with monkeypatch.context() as cut:
            cut.setattr(RamCommits, "append", interrupted)
            with pytest.raises(KeyboardInterrupt):
                chat.append("user", "two")
        chat.append("user", "three")
        assert [message.content for message in chat.window()] == ["one", "two", "three"]
        assert_sound(memory)


class TestACopy:
    def test_is_a_cache(self, machine: Callable[..., Memory]) -> None:
        one = machine("one")
        for number in range(30):
            one.conversation("c").append("user", f"{number}")
        one.snapshot("named")
        hashed = one.state_hash()
        one.close()
        again = machine("one")
        assert again.state_hash() == machine("two").state_hash() == hashed
        assert machine("two", readonly=True).state_hash() == hashed
        with Memory("postgresql://shared", cache=":memory:") as in_ram:
            assert assert_sound(in_ram) == hashed

    def test_is_of_one_process_and_used_again(self, machine: Callable[..., Memory], tmp_path: Path) -> None:
        one, other = machine("same"), machine("same")
        one.conversation("c").append("user", "hello")
        other.refresh()
        assert other.state_hash() == one.state_hash()
        one.close()
        other.close()
        machine("same").close()
        assert len(list(tmp_path.rglob("data.mdb"))) == 2

    def test_that_is_damaged_is_made_anew(self, machine: Callable[..., Memory], tmp_path: Path) -> None:
        one = machine("one")
        one.conversation("c").append("user", "hello")
        hashed = one.state_hash()
        one.close()
        (data,) = tmp_path.rglob("data.mdb")
        data.write_bytes(b"nothing of the kind")
        assert assert_sound(machine("one")) == hashed

    def test_is_no_store_of_its_own_and_its_backup_is(self, machine: Callable[..., Memory], tmp_path: Path) -> None:
        one = machine("one")
        one.conversation("c").append("user", "hello")
        hashed = one.state_hash()
        one.backup(tmp_path / "backup")
        one.close()
        (data,) = (path for path in tmp_path.rglob("data.mdb") if "backup" not in str(path))
        with pytest.raises(InvalidInput, match="local copy"):
            Memory(data.parent)
        with Memory(data.parent, readonly=True) as read:
            assert read.state_hash() == hashed
        with Memory(tmp_path / "backup", readonly=True) as backup:
            assert assert_sound(backup) == hashed

    def test_that_knows_more_than_the_server_is_refused(self, machine: Callable[..., Memory], shared: Shared) -> None:
        one = machine("one")
        for number in range(5):
            one.conversation("c").append("user", f"{number}")
        one.close()
        lost = shared.pop()
        with pytest.raises(StoreCorrupt, match="has lost commits"):
            machine("one")
        machine("other").conversation("c").append("user", "another end")
        with pytest.raises(StoreCorrupt, match="has lost commits"):
            machine("one")
        assert lost not in shared

    def test_that_is_open_while_the_server_is_set_back_says_so(
        self, machine: Callable[..., Memory], shared: Shared, tmp_path: Path
    ) -> None:
        one = machine("one")
        for number in range(5):
            one.conversation("c").append("user", f"{number}")
        lost = shared[-2:]
        del shared[-2:]
        for ask in (one.refresh, lambda: one.conversation("c").append("user", "more")):
            with pytest.raises(StoreCorrupt, match=f"has lost commits.* remove {tmp_path}/one/[0-9a-f]+ and open"):
                ask()
        assert len(one.conversation("c").window()) == 5
        assert one.health().problem == "unreadable"
        shared += lost
        one.conversation("c").append("user", "more")
        assert one.health().ok
        assert_sound(one)

    @pytest.mark.parametrize("count", [1, 2, 3])
    @pytest.mark.parametrize("ask", ["append", "refresh", "request"])
    def test_that_is_open_while_others_go_on_with_a_log_that_was_set_back_takes_up_neither(
        self, machine: Callable[..., Memory], shared: Shared, monkeypatch: pytest.MonkeyPatch, ask: str, count: int
    ) -> None:
        """Whether they have written less than it has, as much or more."""
        monkeypatch.setattr(RamCommits, "wait", hear_nothing)
        one = machine("one")
        chat = one.conversation("c")
        chat.append("user", "kept", request_id="kept")
        backup = list(shared)
        chat.append("user", "lost")
        chat.append("user", "lost too")
        shared[:] = backup
        other = machine("other")
        for number in range(count):
            other.conversation("c").append("user", f"new {number}")
        after = list(shared)
        commits_of(one).connections += 1  # A server that is set back ends its connections.

        def repeat() -> None:
            chat.append("user", "kept", request_id="kept")

        calls: dict[str, Callable[[], object]] = {
            "append": lambda: chat.append("user", "on"),
            "refresh": one.refresh,
            "request": repeat,
        }
        with pytest.raises(StoreCorrupt, match="has lost commits"):
            calls[ask]()
        assert shared == after
        assert one.health().problem == "unreadable"
        assert [message.content for message in chat.window()] == ["kept", "lost", "lost too"]
        one.close()
        with pytest.raises(StoreCorrupt, match="has lost commits"):
            machine("one")
        assert other.verify().ok

    def test_whose_last_commit_was_replaced_goes_on(
        self, machine: Callable[..., Memory], shared: Shared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Although a server may not know the link of a commit that was replaced."""
        one, append, refused = machine("one"), RamCommits.append, list[bytes]()
        one.conversation("c").append("user", "hello")

        def forgetful(self: RamCommits, expected: int, packed: bytes, before: bytes | None = None) -> int:
            if before is not None and not refused:
                refused.append(before)
                raise AppendConflict
            return append(self, expected, packed, before)

        monkeypatch.setattr(RamCommits, "append", forgetful)
        one.conversation("c").append("user", "and on")
        assert refused == [link_of(shared[1])]
        assert_sound(one)

    def test_names_a_commit_that_does_not_follow_the_one_before(
        self, machine: Callable[..., Memory], shared: Shared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(RamCommits, "wait", hear_nothing)
        one, other = machine(), machine()
        for number in range(3):
            other.conversation("c").append("user", f"{number}")
        del shared[1]
        with pytest.raises(StoreCorrupt, match="commit 2 of ram://commits does not follow commit 1"):
            one.refresh()

    def test_that_cannot_go_on_says_so_in_the_log_of_the_program(
        self, machine: Callable[..., Memory], shared: Shared, caplog: pytest.LogCaptureFixture
    ) -> None:
        one = machine("one")
        one.conversation("c").append("user", "one")
        commits_of(one).append(len(shared), pack(sealed(9, [b"nine"]), (), before=link_of(shared[-1])))
        until = time.monotonic() + 20
        while "goes on at seq 9" not in caplog.text and time.monotonic() < until:
            time.sleep(0.01)
        assert caplog.text.count("goes on at seq 9") == 1
        assert len(one.conversation("c").window()) == 1

    def test_says_where_the_server_has_something_else(self, machine: Callable[..., Memory], shared: Shared) -> None:
        one = machine("one")
        for number in range(5):
            one.conversation("c").append("user", f"number {number}")
        assert one.verify().ok
        shared[3] = shared[3].replace(b"number 2", b"number 9")
        report = one.verify()
        assert [str(finding) for finding in report.findings if "commit 4" in str(finding)]

    def test_is_not_called_damaged_while_another_machine_erases(
        self, machine: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = machine(), machine()
        messages = [one.conversation("c").append("user", f"a secret text, part {number}") for number in range(9)]
        other.refresh()
        read, position = RamCommits.read, log_of(other).position

        def erased_meanwhile(self: RamCommits, after: int) -> list[CommitBytes]:
            if self is commits_of(other) and not after and messages:
                one.erase([messages.pop(), messages.pop(0)])
            return read(self, after)

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(RamCommits, "read", erased_meanwhile)
            assert other.verify().ok
            assert (log_of(other).position, len(messages)) == (position, 7)
        shared_commits = commits_of(other).commits
        shared_commits[4] = shared_commits[4].replace(b"part 3", b"part 9")
        assert not other.verify().ok

    def test_is_not_called_damaged_where_the_server_does_not_answer(
        self, machine: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        memory = machine()
        memory.conversation("c").append("user", "hello")
        monkeypatch.setattr(RamCommits, "read", unreachable)
        with pytest.raises(StoreUnreachable, match="it does not answer"):
            memory.verify()

    def test_that_misses_a_commit_says_so(self, shared: Shared, machine: Callable[..., Memory]) -> None:
        one, other = machine(), machine()
        other.conversation("c").append("user", "one")
        del shared[1]
        commits_of(other).append(len(shared), pack(sealed(3, [b"three"]), (), before=link_of(shared[0])))
        with pytest.raises(StoreCorrupt, match="goes on at seq 3"):
            one.refresh()


@pytest.mark.parametrize("is_joined", [False, True], ids=["into an empty log", "beside others"])
def test_an_export_is_loaded_once_or_refused_whatever_another_machine_does_meanwhile(
    machine: Callable[..., Memory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_joined: bool
) -> None:
    monkeypatch.setattr(transfer, "_LOAD_EVENTS", PAGE_EVENTS)
    path, events = str(tmp_path / "export.jsonl"), 3 * PAGE_EVENTS
    with Memory() as memory:
        for page in range(3):  # A command is loaded whole.
            with memory.batch():
                for number in range(PAGE_EVENTS):
                    memory.conversation("loaded").append("user", f"{page * PAGE_EVENTS + number}")
        memory.export(path)
    one, other = machine(), machine()
    if is_joined:
        one.conversation("c").append("user", "hello")
        other.refresh()

    def meanwhile(_done: int, _all: int) -> None:
        if is_joined:
            other.refresh()
            assert other.load(path).events < events
        else:
            other.conversation("c").append("user", "hello")
        one.refresh()
        assert one.head

    with pytest.raises(StoreBusy, match="loads the same file" if is_joined else "another process wrote"):
        one.load(path, progress=meanwhile)
    for each in (one, other):
        each.refresh()
        assert_sound(each)
    if is_joined:
        assert one.load(path).events == 0
        assert len(one.conversation("loaded").history()) == events


def test_commits_are_applied_once_however_they_come() -> None:
    commits = RamCommits()
    log = ReplicaLog(commits, RamLog(), readonly=False)
    link = b""
    for number in range(1, 8):
        rows: list[Row] = [("names", b"n", b"%d" % number)]
        commits.append(number - 1, pack(sealed(number, [b"event %d" % number]), rows, before=link))
        link = link_of(commits.commits[-1])
    before = log.last_commit()
    assert log.refresh()
    assert not log.refresh()
    assert log.last_commit() > before
    assert (log.head(), log.row("names", b"n"), log.position) == (7, b"7", 7)
    with pytest.raises(AppendConflict):
        commits.append(2, b"")
    assert commits.read(6) == [CommitBytes(7, commits.commits[6])]


def test_a_copy_may_lie_below_a_relative_path(shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shared == []
    monkeypatch.chdir(tmp_path)
    with Memory("postgresql://shared", cache="not/there/yet") as memory:
        memory.profile().set("theme", "dark")
    assert list((tmp_path / "not/there/yet").iterdir())


def test_a_copy_is_its_owners_whatever_the_umask(machine: Callable[..., Memory], tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        machine("home/.cache/refold").profile().set("theme", "dark")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "home", *(tmp_path / "home").rglob("*"))}
    assert {name for name, mode in modes.items() if mode & 0o077} == set()
