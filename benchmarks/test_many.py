"""More than fits in RAM, and a large store that is kept: tiny here, whatever the other benchmarks measure with."""

from pathlib import Path

import pytest
import workloads
from children import peak_bytes
from rounds import MINIMUM_ROUNDS
from rows import large, many, spread, travel
from rows.table import Options, Stores

from refold import Memory


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """Return what makes a whole group run once and quickly."""
    return Options(workloads.TINY, MINIMUM_ROUNDS, tmp_path, tmp_path, Stores(tmp_path, workloads.TINY))


def test_many_conversations_are_written_and_read_in_processes(tmp_path: Path) -> None:
    path = tmp_path / "many"
    filled = many.filled(path, 5)
    assert filled.events == 5 * (many.MESSAGES + 1)
    read = many.read(path, 5, 4)
    assert len(read.read_ns) == 4
    assert read.messages == 4 * many.MESSAGES
    assert 0 < read.peak_bytes < many.MEMORY_BYTES + many.BESIDE_BYTES


def test_a_peak_is_that_of_the_process_alone(tmp_path: Path) -> None:
    ballast = bytearray(2 * (many.MEMORY_BYTES + many.BESIDE_BYTES))
    ballast[::4_096] = b"\1" * len(ballast[::4_096])
    assert peak_bytes() > len(ballast)
    assert many.filled(tmp_path / "many", 5).peak_bytes < len(ballast) // 2


def test_many_has_its_rows(options: Options) -> None:
    written, read, opened, median, slowest = many.rows(options)
    assert [row.is_met for row in (written, read)] == [True, True]
    assert all(row.target.startswith("at most 128 MiB") for row in (written, read))
    assert all(row.ours_ns for row in (opened, median, slowest))


def test_large_needs_a_place(options: Options) -> None:
    (row,) = large.rows(options)
    assert (row.ours_ns, row.is_met) == (None, None)
    assert "--large DIRECTORY" in row.note


def test_large_has_its_rows_and_keeps_its_store(options: Options, tmp_path: Path) -> None:
    place = tmp_path / "kept"
    rows = list(large.rows(options._replace(large=place)))
    events = options.sizes.large_events
    assert rows[0].job == f"open after kill -9, {events + workloads.WIDE:,} events"
    timed = rows if hasattr(Memory, "fork") else rows[:-1]
    assert all(row.ours_ns for row in timed)
    assert [bool(row.target) for row in timed] == [True, False, True, True, True, True, False, True][: len(timed)]
    (path,) = place.iterdir()
    log = path / "data.mdb"
    before = log.stat()
    assert large.kept(place, events) == path
    assert (log.stat().st_ino, log.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns), "it is not built again"
    with Memory(path, readonly=True) as memory:
        assert memory.head == events + workloads.WIDE, "forks are made in a copy"


def test_an_unfinished_large_store_is_built_again(tmp_path: Path) -> None:
    unfinished = tmp_path / f"killed-60-events-{workloads.WIDE}-conversations.unfinished"
    unfinished.mkdir()
    (unfinished / "data.mdb").write_bytes(b"half")
    path = large.kept(tmp_path, 60)
    assert not unfinished.exists()
    with Memory(path, readonly=True) as memory:
        assert memory.verify().ok


class Forking:
    """Counts the forks of a memory that can be forked."""

    head = 1_000

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.made: list[int] = []

    def fork(self, name: str, *, at: int) -> "Fork":
        """Remember the fork."""
        self.open.add(name)
        self.made.append(at)
        return Fork(self, name)


class Fork:
    """A fork that is to be closed."""

    def __init__(self, memory: Forking, name: str) -> None:
        self._memory = memory
        self._name = name

    def close(self) -> None:
        """Forget the fork; a second call fails."""
        self._memory.open.remove(self._name)


def test_forks_of_the_whole_memory_are_timed_and_closed() -> None:
    memory = Forking()
    (row,) = large.memory_fork_rows(memory)
    assert row.ours_ns is not None
    assert row.target == "at most 500 us"
    assert len(memory.made) == travel.PASSES * large.FORKED_MEMORIES_COUNT
    assert all(memory.head // 2 <= seq <= memory.head for seq in memory.made)
    assert not memory.open


def test_many_projects_are_written_and_searched_in_processes(options: Options) -> None:
    written, searched, *cold, warm, half, slow, longest = spread.rows(options)
    assert [row.is_met for row in (written, searched)] == [True, True]
    assert len(cold) == 2
    assert all(row.ours_ns for row in (*cold, warm, half, slow, longest))
    assert spread.searched(options.directory / "spread", 4).found == 10 * (4 + 100)
