"""Verification by several processes: it finds what one finds, and leaves nothing behind."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from refold import InvalidInput, Memory, RefoldError, Report
from tests.engine.test_verify import DAMAGES, intact, report_of, store
from tests.support.mixed import fill
from tests.support.rows import Rows

__all__ = ("intact", "store")
JOBS = 3


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workers") / "store"
    with Memory(path) as memory:
        fill(memory, 3_000, Random(5))
        memory.state_hash()
    return path


def without_own_walk(memory: Memory, monkeypatch: pytest.MonkeyPatch, jobs: int) -> Report:
    """What workers alone report: this process cannot walk."""
    with monkeypatch.context() as patched:
        patched.setattr("refold.engine.verify.Walk", None)
        return memory.verify(jobs=jobs)


@pytest.mark.parametrize("jobs", [2, 5])
def test_a_sound_store_has_the_same_report(everything: Path, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(everything) as memory:
        alone = memory.verify()
        assert alone.ok
        assert without_own_walk(memory, monkeypatch, jobs) == alone
        memory.fork("other").profile().set("key", "in the branch")
        assert without_own_walk(memory.fork("other"), monkeypatch, jobs) == memory.fork("other").verify()


def test_progress_is_told_up_to_the_head(everything: Path) -> None:
    with Memory(everything, readonly=True) as memory:
        calls: list[tuple[int, int]] = []
        memory.verify(lambda done, whole: calls.append((done, whole)), jobs=JOBS)
        assert calls == sorted(calls)
        assert calls[-1] == (memory.head, memory.head)
        assert len(calls) > JOBS


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[] if place % 9 == 0 else pytest.mark.slow) for place, what in enumerate(DAMAGES)]
)
def test_each_damage_has_the_same_report(store: Path, what: str) -> None:
    rows = Rows(store)
    DAMAGES[what][0](rows)
    rows.close()
    report = report_of(store)
    assert report.findings
    assert report_of(store, JOBS) == report


def flip(rows: Rows, draw: Random, table: str) -> None:
    key, value = draw.choice([row for row in rows.all(table) if row[1]])
    changed = bytearray(value)
    changed[draw.randrange(len(value))] ^= 1 << draw.randrange(8)
    rows.put(table, key, bytes(changed))


def drop(rows: Rows, draw: Random, table: str) -> None:
    rows.put(table, draw.choice(rows.all(table))[0], None)


def exchange(rows: Rows, draw: Random, table: str) -> None:
    (a, first), (b, second) = draw.sample(rows.all(table), 2)
    rows.put(table, a, second)
    rows.put(table, b, first)


@pytest.mark.slow
@pytest.mark.parametrize("harm", [flip, drop, exchange])
@pytest.mark.parametrize("table", ["log", "checkpoints", "names", "streams", "digests"])
def test_harm_anywhere_has_the_same_report(
    everything: Path, tmp_path: Path, table: str, harm: Callable[[Rows, Random, str], None]
) -> None:
    for seed in range(3):
        path = Path(shutil.copytree(everything, tmp_path / str(seed)))
        rows = Rows(path)
        harm(rows, Random(f"{table} {seed}"), table)
        rows.close()
        try:
            report = report_of(path)
        except RefoldError:
            continue
        assert report_of(path, JOBS) == report


def test_a_live_state_that_is_not_the_replay_is_found(store: Path) -> None:
    with Memory(store) as memory:
        msgspec.structs.force_setattr(memory.conversation("chat").window()[0].event, "tokens", 2)
        report = memory.verify(jobs=JOBS)
        assert [finding.check for finding in report.findings] == ["replay"]
        assert report == memory.verify()


def test_stores_that_no_other_process_can_read_are_verified_by_one(tmp_path: Path) -> None:
    for memory in (Memory(), Memory(tmp_path / "delayed", durability="delayed"), Memory(tmp_path / "empty")):
        with memory:
            assert memory.verify(jobs=JOBS).ok
            memory.profile().set("key", "value")
            report = memory.verify(jobs=JOBS)
            assert report.ok
            assert report == memory.verify()


def children() -> set[str]:
    """The processes that this one has started, those among them that nobody waited for."""
    lists = Path("/proc/self/task").glob("*/children")
    return {child for found in lists for child in found.read_text().split()}


def test_an_interruption_leaves_no_process_behind(everything: Path) -> None:
    def interrupt(done: int, whole: int) -> None:
        raise KeyboardInterrupt(done, whole)

    with Memory(everything) as memory:
        before = children()
        with pytest.raises(KeyboardInterrupt):
            memory.verify(interrupt, jobs=JOBS)
        assert children() == before
        memory.profile().set("written", "behind it")
        assert memory.verify().ok


def test_workers_that_die_or_cannot_start(everything: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(everything, readonly=True) as memory:
        report = memory.verify()
        monkeypatch.setattr(sys, "executable", "/bin/false")
        assert memory.verify(jobs=JOBS) == report
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        with pytest.raises(RefoldError, match=r"cannot be started as a worker .*verify with jobs=1"):
            memory.verify(jobs=JOBS)


@pytest.mark.parametrize("jobs", [0, -1, True, 1.5, None])
def test_a_number_of_jobs_that_is_none(jobs: int) -> None:
    with pytest.raises(InvalidInput, match="jobs"):
        Memory().verify(jobs=jobs)
