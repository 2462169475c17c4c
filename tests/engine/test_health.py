"""Health: what a probe is told, at once, of a memory that works, and of one that cannot be read or written."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refold import Memory, StoreError, StoreUnreachable
from refold.log import replica
from tests.support.commits import RamCommits, running
from tests.support.seams import engine_of

Open = Callable[..., Memory]


@pytest.fixture
def open_shared(monkeypatch: pytest.MonkeyPatch) -> Open:
    """A function that opens a copy of one log on a server."""
    commits = list[bytes]()
    monkeypatch.setattr(replica, "connect", lambda *_, **__: RamCommits(commits))
    return lambda **options: Memory("postgresql://db/x", **{"cache": ":memory:", **options})


def unreachable(*_: object) -> None:
    raise StoreUnreachable("it does not answer")


def log_of(memory: Memory) -> replica.ReplicaLog:
    log = engine_of(memory).reader.log
    assert isinstance(log, replica.ReplicaLog)
    return log


class TestAMemory:
    def test_is_healthy_and_says_so_of_its_past_and_forks(self, memory: Memory) -> None:
        memory.conversation("c").append("user", "hello")
        fork = memory.fork("another")
        for handle in (memory, memory.at(1), fork):
            health = handle.health()
            assert (health.ok, health.problem, health.message) == (True, "", "")

    def test_of_a_directory_has_no_lag(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            assert (memory.health().lag_commits, memory.health().lag_seconds) == (None, None)

    def test_that_only_reads_is_healthy(self, tmp_path: Path) -> None:
        Memory(tmp_path / "store").close()
        with Memory(tmp_path / "store", readonly=True) as memory:
            assert memory.health().ok

    def test_that_was_closed_is_unreadable(self, tmp_path: Path) -> None:
        memory = Memory(tmp_path / "store")
        fork = memory.fork("another")
        fork.close()
        assert fork.health().problem == "unreadable"
        memory.close()
        health = memory.health()
        assert (health.ok, health.problem) == (False, "unreadable")
        assert "closed" in health.message

    @pytest.mark.parametrize("durability", ["durable", "delayed"])
    def test_whose_directory_is_gone_is_unreadable(self, tmp_path: Path, durability: str) -> None:
        with Memory(tmp_path / "store", durability=durability) as memory:
            memory.conversation("c").append("user", "hello")
            (tmp_path / "store").rename(tmp_path / "elsewhere")
            health = memory.health()
            assert (health.ok, health.problem) == (False, "unreadable")
            assert "moved, removed or replaced" in health.message
            (tmp_path / "elsewhere").rename(tmp_path / "store")
            assert memory.health().ok

    def test_that_another_one_has_replaced_is_unreadable(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            shutil.move(tmp_path / "store", tmp_path / "elsewhere")
            Memory(tmp_path / "store").close()
            assert memory.health().problem == "unreadable"

    def test_whose_directory_cannot_be_looked_at_is_unreadable(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            (tmp_path / "store").rename(tmp_path / "elsewhere")
            (tmp_path / "store").symlink_to(tmp_path / "store")
            assert memory.health().problem == "unreadable"
            with pytest.raises(StoreError, match="out of reach"):
                memory.conversation("c").append("user", "hello")
            (tmp_path / "store").unlink()
            (tmp_path / "elsewhere").rename(tmp_path / "store")
            assert memory.health().ok

    def test_whose_disk_failed_is_unwritable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with Memory(tmp_path / "store") as memory:
            with monkeypatch.context() as broken:
                broken.setattr(engine_of(memory).reader.log.durability, "stopped", "input/output error")
                health = memory.health()
                assert (health.ok, health.problem) == (False, "unwritable")
                assert "I/O error" in health.message
            assert memory.health().ok

    def test_that_was_moved_is_unwritable(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            engine_of(memory).reader.moved, engine_of(memory).reader.is_writable = "postgresql://db/x", False
            assert memory.health().problem == "unwritable"

    def test_is_asked_without_waiting_for_a_writer_or_a_reader(self, memory: Memory) -> None:
        engine, answers = engine_of(memory), list[bool]()
        with engine.exclusive(), engine.reader.state_lock:
            probe = threading.Thread(target=lambda: answers.append(memory.health().ok))
            probe.start()
            probe.join(20)
            assert answers == [True]

    @pytest.mark.parametrize("given", [-1, 1.5, "30", True])
    def test_refuses_a_bound_that_is_none(self, given: Any) -> None:
        with pytest.raises(ValueError, match="max_lag_seconds"):
            Memory().health(max_lag_seconds=given)


class TestACopy:
    def test_says_how_far_it_is_behind(self, open_shared: Open) -> None:
        with open_shared() as memory:
            memory.conversation("c").append("user", "hello")
            health = memory.health()
            assert health.ok
            assert health.lag_commits == 0
            assert health.lag_seconds is not None
            assert 0 <= health.lag_seconds < 30

    def test_that_could_not_follow_for_long_is_behind(self, open_shared: Open, monkeypatch: pytest.MonkeyPatch) -> None:
        with open_shared() as memory, monkeypatch.context() as broken:
            broken.setattr(log_of(memory).commits, "head", unreachable)
            broken.setattr(log_of(memory).commits, "read", unreachable)
            since = log_of(memory).whole_at
            broken.setattr(replica, "time", SimpleNamespace(monotonic=lambda: since + 29, sleep=lambda _: None))
            assert memory.health().ok
            assert memory.health(max_lag_seconds=10).problem == "behind"
            broken.setattr(replica, "time", SimpleNamespace(monotonic=lambda: since + 31, sleep=lambda _: None))
            health = memory.health()
            assert (health.ok, health.problem) == (False, "behind")
            assert "31.0 s ago, over 30 s" in health.message
            assert health.lag_seconds == pytest.approx(31)

    def test_whose_directory_is_gone_is_unreadable(self, open_shared: Open, tmp_path: Path) -> None:
        with open_shared(cache=tmp_path / "copy") as memory:
            assert memory.health().ok
            shutil.rmtree(tmp_path / "copy")
            assert memory.health().problem == "unreadable"

    def test_that_was_closed_has_no_lag(self, open_shared: Open) -> None:
        memory = open_shared()
        memory.close()
        assert (memory.health().lag_commits, memory.health().lag_seconds) == (None, None)

    def test_of_a_log_that_lost_commits_is_unreadable_until_they_are_back(
        self, open_shared: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(replica, "FOLLOW_SECONDS", 0.01)
        with open_shared() as memory:
            memory.profile().set("key", "value")
            commits = log_of(memory).commits
            assert isinstance(commits, RamCommits)
            lost = commits.commits.pop()
            assert _becomes(lambda: not memory.health().ok)
            health = memory.health()
            assert (health.problem, health.lag_commits) == ("unreadable", None)
            assert "has lost commits" in health.message
            commits.commits.append(lost)
            assert memory.refresh() == memory.head
            assert memory.health().ok


@pytest.mark.parametrize("kind", ["postgres", "nats"])
@pytest.mark.slow
def test_a_server_that_does_not_answer_is_noticed_and_one_that_does_again_too(kind: str, tmp_path: Path) -> None:
    with running(kind) as logs, Memory(logs.address(), cache=tmp_path / "one") as memory:
        memory.conversation("c").append("user", "hello")
        assert memory.health().ok
        logs.servers.stop()
        try:
            assert _becomes(lambda: memory.health(max_lag_seconds=3).problem == "behind")
            assert memory.conversation("c").window()[0].content == "hello"
            assert memory.health(max_lag_seconds=1_000).ok
        finally:
            logs.servers.start(*([0] if kind == "nats" else []))
        assert _becomes(lambda: memory.health(max_lag_seconds=3).ok)


def _becomes(condition: Callable[[], bool]) -> bool:
    return any(condition() or threading.Event().wait(0.1) for _ in range(600))
