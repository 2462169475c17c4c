"""Writers side by side and beside a busy thread: each writes what it should, and the rows have their shape."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import workloads
from crews import Crew, Neighbour
from peers.loader import load
from peers.sqlite_log import SqliteLog
from rounds import MINIMUM_ROUNDS, Job, Measure, Target, percentile
from rows import neighbour, throughput, together
from rows.table import Options, Row, Stores

from refold import Memory


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """Return what makes a whole group run once and quickly, whatever the other benchmarks measure with."""
    return Options(workloads.TINY, MINIMUM_ROUNDS, tmp_path, tmp_path, Stores(tmp_path, workloads.TINY))


def events_in(path: Path) -> dict[str, int]:
    """Return how many messages were ever appended to each conversation of a store; its opening is no message."""
    with Memory(path, readonly=True) as memory:
        assert memory.verify().ok
        return {name: memory.conversation(name).version - 1 for name in memory.conversations()}


WRITERS = {
    together.ONE: ("one", 1),
    together.THREADS: ("threads", together.THREADS_COUNT),
    together.TASKS: ("tasks", together.TASKS_COUNT),
    together.DELAYED: ("delayed", 1),
    **{name: (f"processes-{count}", count) for name, count in together.PROCESSES.items()},
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_writes(name: str, measure: Measure, sizes: workloads.Sizes, tmp_path: Path) -> None:
    directory, writers = WRITERS[name]
    with together.writers(tmp_path, sizes, (name,)) as jobs:
        job = jobs[name]
        measure(job)
    found = events_in(tmp_path / directory)
    assert len(found) == writers
    assert len(set(found.values())) == 1, "every conversation has its share"
    # A process writes one message before it is ready.
    extra = 1 if name in together.PROCESSES else 0
    assert (found["chat-0000"] - extra) % (job.operations // writers) == 0
    assert found["chat-0000"] > extra


def test_the_same_awaits_on_a_bare_log_put_every_record_in_few_commits(tmp_path: Path) -> None:
    tasks = together.BareTasks(tmp_path / "ticks", 3)
    job = tasks.job()
    for _ in range(2):
        job.run()
    said = [workloads.share(place, 3) for place in range(together.TASKS_COUNT)]
    records = [record for texts in said for record in workloads.records(texts)]
    assert sorted(tasks.log.values()) == sorted(2 * records)
    assert len(records) == job.operations
    tasks.close()


def test_together_has_a_row_for_every_way_to_write(options: Options) -> None:
    *rows, worked = together.rows(options)
    assert [row.job for row in rows] == [f"{name}, per event" for name in together.WANTED]
    check_compared(rows)
    assert [row.floor for row in rows] == [together.ONE, together.TICKS, *[together.ONE] * 3]
    assert [row.target for row in rows[:2]] == ["at least 4 x its rate", "at least 0.4 x its rate"]
    assert [row.is_met for row in rows[2:]] == [None] * 3
    assert worked.target == "at most 8 us"


def check_compared(rows: list[Row]) -> None:
    """Check that every row has both figures and their ratio, and a verdict where there is a target."""
    for row in rows:
        assert row.ours_ns is not None
        assert row.floor_ns is not None
        assert row.ratio is not None
        assert min(row.ours_ns, row.floor_ns, row.ratio.value) > 0
        assert row.ratio.low <= row.ratio.high
        assert (row.is_met is not None) == bool(row.target)


def test_neighbour_has_its_percentiles(options: Options) -> None:
    before = sys.getswitchinterval()
    rows = list(neighbour.rows(options))
    assert sys.getswitchinterval() == before
    check_compared(rows)
    kinds = (neighbour.ONE_EVENT, *neighbour.KINDS)
    ends = (
        f"{neighbour.BESIDE}, p50",
        f"{neighbour.BESIDE}, p95",
        f"{neighbour.SHORT}, p95",
        f"{neighbour.ALONE}, p95",
    )
    assert [row.job for row in rows] == [f"{kind} {end}" for kind in kinds for end in ends]
    assert [row.target for row in rows if row.target] == ["at most 10 ms", "at most 10 ms", "at most 20 ms"]


@pytest.mark.parametrize(("text_bytes", "event_bytes_max"), [(0, 1_024), (1_880, 2_048), (4_096, 4_352)])
def test_events_have_the_size_that_their_row_says(text_bytes: int, event_bytes_max: int) -> None:
    said = neighbour.told(text_bytes)
    assert len({text.content for text in said}) == len(said) == neighbour.EVENTS
    lengths = [len(record) for record in workloads.records(said)]
    assert max(lengths) <= event_bytes_max
    assert min(lengths) > text_bytes


def test_a_neighbour_computes_only_while_it_is_awake() -> None:
    seen: list[int] = []
    with Neighbour() as busy:
        job = busy.beside(Job(lambda: seen.append(busy.spins)))
        for _ in range(3):
            job.prepare()
            job.run()
            job.settle()
            rested = busy.spins
            assert rested >= seen[-1]
            assert busy.spins == rested
    assert seen == sorted(seen)
    assert busy.spins > 0


def test_short_turns_end_with_the_job() -> None:
    before = sys.getswitchinterval()
    seen: list[float] = []

    def fail() -> None:
        seen.append(sys.getswitchinterval())
        raise LookupError

    with pytest.raises(LookupError):
        neighbour.short_turns(Job(fail)).run()
    assert seen == [pytest.approx(neighbour.SHORT_INTERVAL_SECONDS)]
    assert sys.getswitchinterval() == before


def test_a_crew_has_a_thread_for_every_place_and_tells_what_failed() -> None:
    done: list[int] = []
    with Crew(4) as crew:
        job = crew.job(done.append, 10)
        job.prepare()
        assert not done, "they stand ready, and wait"
        job.run()
        assert (sorted(done), job.operations) == ([0, 1, 2, 3], 40)
        failing = crew.job([1, 2, 3].__getitem__, 1)
        failing.prepare()
        with pytest.raises(IndexError):
            failing.run()


def test_throughput_compares_with_everybody_alone_and_beside_a_thread(options: Options) -> None:
    rows = list(throughput.rows(options))
    jobs = [throughput.ONE, throughput.THREADS, f"{workloads.TINY.batch_events} in one commit"]
    ends = ["", ", beside a busy thread"]
    floors = [throughput.LMDB, throughput.SQLITE, throughput.PEER]
    expected = [(f"{job}{end}, per event", floor) for end in ends for job in jobs for floor in floors]
    assert [(row.job, row.floor) for row in rows] == expected
    reason = load("eventsourcing_log", "eventsourcing")[1]
    absent = [row for row in rows if reason and row.floor == throughput.PEER]
    assert all(row.note == f"skipped: {reason}" for row in absent)
    check_compared([row for row in rows if row not in absent])


def test_everybody_writes_the_same(tmp_path: Path) -> None:
    amounts = throughput.Amounts(2, 3, 5)
    with ExitStack() as stack:
        found: dict[str, Any] = dict(stack.enter_context(throughput.contestants(tmp_path)))
        crew = stack.enter_context(Crew(throughput.THREADS_COUNT))
        memory = found[throughput.REFOLD].memory
        before = memory.head
        for job in throughput.all_jobs(found, crew, amounts).values():
            job.prepare()
            job.run()
        written = memory.head - before
        assert written == sum(amounts) - 3 + 3 * throughput.THREADS_COUNT
        known = set(workloads.records(workloads.texts()))
        for other in (throughput.LMDB, throughput.SQLITE):
            values = list(found[other].values())
            assert len(values) == written
            assert set(values) <= known
        if throughput.PEER in found:
            check_replayed(found[throughput.PEER].log, written)


def check_replayed(log: Any, written: int) -> None:
    """Check that the peer's log has every event that was written."""
    versions = [chat.version for chat in log.replayed()]
    assert sum(versions) == written + len(versions)


def test_sqlite_is_as_durable_as_its_name_says(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.sqlite")
    full = 2
    assert log.settings == ("wal", full)
    log.prepare([b"a", b"b"])
    log.put_some(2)
    log.prepare([b"c", b"d"])
    log.put_multi()
    assert log.values() == [b"a", b"b", b"c", b"d"]
    log.close()


def test_percentile_and_target() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 50) == 51
    assert percentile(values, 95) == 96
    assert percentile([3.0], 99) == 3.0
    assert Target("at least", 40).is_met(40)
