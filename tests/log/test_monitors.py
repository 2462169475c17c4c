"""Replicas of a log on NATS: one whose disk lost messages in silence is named, and readers do without it."""

import logging
import shutil
import signal
import time
from collections.abc import Callable
from http.client import BadStatusLine
from pathlib import Path

import pytest

from refold import InvalidInput, Memory
from refold.cli.cluster import NatsServers
from refold.cli.cluster import open_cluster as opened_soon
from refold.log import monitors
from refold.log.commits import Check
from refold.log.jetstream import stream_of
from refold.log.monitors import Replica, compare, look
from tests.support.command import running
from tests.support.nats_servers import nats_servers

SAME = Replica("n0", last=60_000, missing=2, leads=True, syncs=True)
REPLICAS: dict[str, tuple[list[Replica | Exception | None], list[tuple[str, str]]]] = {
    "all alike": ([SAME, SAME._replace(server="n1", leads=False)], [("ok", "2 servers have the same 59,998 messages")]),
    "one that lost messages": (
        [SAME, SAME._replace(server="n1", missing=11_938)],
        [("bad", "n1 has lost 11,936 messages that the others have")],
    ),
    "one behind": ([SAME, SAME._replace(server="n2", last=59_000)], [("warn", "n2 is 1,000 messages behind")]),
    "one that does not sync": (
        [SAME, SAME._replace(syncs=False)],
        [("warn", "n0 acknowledges writes before they are on disk")],
    ),
    "none": ([None], [("bad", "none of these servers has a copy of the log")]),
    "one that speaks no HTTP": (
        [SAME, BadStatusLine("INFO")],
        [("bad", "http://1 does not answer: INFO"), ("ok", "1 servers have the same 59,998 messages")],
    ),
    "one that is away": (
        [SAME, OSError("refused")],
        [("bad", "http://1 does not answer: refused"), ("ok", "1 servers have the same 59,998 messages")],
    ),
}


def test_a_copy_that_should_be_there_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitors, "look", lambda monitor, _: None if monitor[-1] == "2" else SAME)
    (check,) = compare([f"http://{place}" for place in range(3)], "REFOLD_test", copies=3)
    assert (check.state, check.message) == ("warn", "2 of 3 servers have a copy of the log")


@pytest.mark.parametrize("name", REPLICAS)
def test_what_follows_from_the_replicas(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas, expected = REPLICAS[name]

    def answer(monitor: str, _: str) -> Replica | None:
        found = replicas[int(monitor[-1])]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(monitors, "look", answer)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    checks = compare([f"http://{place}" for place in range(len(replicas))], "REFOLD_test")
    assert [(check.state, check.message) for check in checks] == expected
    assert all(check.next_step for check in checks if check.state != "ok")


def test_a_monitor_is_an_address_of_http() -> None:
    with pytest.raises(InvalidInput, match=r"a monitor is 'file:///etc/passwd'; give .* http://host:8222"):
        look("file:///etc/passwd", "REFOLD_test")


def test_a_store_in_a_directory_has_no_monitors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    refold = running(monkeypatch, capfd)
    ended = refold("doctor", "--db", tmp_path / "store", "--monitor", "http://127.0.0.1:8222")
    assert ended.code != 0
    assert "has no monitors; leave --monitor out" in ended.err


@pytest.mark.timeout(180)
def test_readers_do_without_a_replica_that_lost_messages_and_the_doctor_names_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    refold = running(monkeypatch, capfd)
    with nats_servers(3) as servers:
        address = servers.address("test")
        options = [part for monitor in servers.monitors for part in ("--monitor", monitor)]
        with opened_soon(address) as memory:
            chat = memory.conversation("chat")
            for number in range(110):
                chat.append("user", f"{number} " * 30_000)
            state_hash = memory.state_hash()
        assert refold("doctor", "--db", address, *options).code == 0

        damaged = next(place for place in range(3) if not replica_of(servers, place).leads)
        change_byte_on_disk(servers, damaged)
        awaited(lambda: replica_of(servers, damaged).missing > 0)
        ended = refold("doctor", "--db", address, *options)
        assert ended.code == 1
        assert f"n{damaged} has lost " in ended.out
        with caplog.at_level(logging.WARNING, "refold"):

            def is_read_around_it() -> bool:  # Each newcomer asks whichever replica is the first to answer.
                with Memory(address, cache=":memory:") as newcomer:
                    assert newcomer.state_hash() == state_hash
                    assert newcomer.verify().ok
                return "was missing in a replica; run `refold doctor` with --monitor" in caplog.text

            awaited(is_read_around_it)

        # The next step that the doctor gave.
        servers.signal(damaged, signal.SIGTERM)
        (copy,) = servers.file(damaged, "data").glob("**/REFOLD_test")
        shutil.rmtree(copy)
        servers.start(damaged)
        healthy = [Check("copies", "ok", "3 servers have the same 111 messages")]
        awaited(lambda: compare(servers.monitors, stream_of(address)) == healthy)


def awaited(is_so: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if is_so():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError("it did not come to be so")


def replica_of(servers: NatsServers, place: int) -> Replica:
    found = look(servers.monitors[place], "REFOLD_test")
    assert found is not None
    return found


def change_byte_on_disk(servers: NatsServers, place: int) -> None:
    """Change one byte of the first block of a server's copy, and let it read all its blocks anew."""
    servers.signal(place, signal.SIGTERM)
    (block,) = servers.file(place, "data").glob("**/REFOLD_test/msgs/1.blk")
    (block.parent / "index.db").unlink()
    content = bytearray(block.read_bytes())
    content[len(content) // 3] ^= 1
    block.write_bytes(content)
    servers.start(place)
