"""Ctrl-C and shortages of memory at any point of any verb leave a store that goes on, and can be opened again."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import SystemRandom

import pytest

from tests.rigs.interrupts.breaks import BROKEN
from tests.rigs.interrupts.points import Interrupter
from tests.rigs.interrupts.rig import Case, Tally, cases_of, drawn, run
from tests.rigs.interrupts.signals import run_out, send
from tests.rigs.power.recording import scratch
from tests.support.sizes import sizes
from tests.support.verbs import VERBS
from tests.support.worlds import STATES

SEED = 1
"""What is drawn where a change is checked; the soak draws its seed, and prints it."""

SHARDS = 4
"""The cases are dealt to so many tests, which may run at the same time."""

shards = pytest.mark.parametrize("shard", range(SHARDS))
stores = pytest.mark.parametrize(("store", "is_beside"), [("durable", False), ("durable", True), ("delayed", False)])


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in RAM."""
    with scratch() as found:
        yield found


def tallied(cases: list[Case], place: Path) -> Tally:
    """Run the cases, and print what is found."""
    tally = Tally()
    for report in run(cases, place):
        tally.add(report)
        if report.findings:
            print(report)  # noqa: T201 - shown if the test fails
    print(tally)  # noqa: T201
    return tally


def drawn_seed() -> int:
    seed = SystemRandom().randrange(2**32)
    print("seed", seed)  # noqa: T201 - shown if the test fails
    return seed


def test_an_exception_lands_where_the_interpreter_looks_for_signals_and_nowhere_else() -> None:
    """A lock that is taken before a ``try`` can be leaked; one that a ``with`` takes cannot."""
    lock = threading.Lock()

    def acquired() -> None:
        lock.acquire()
        try:
            len("x")
        finally:
            lock.release()

    def entered() -> None:
        with lock:
            len("x")

    def leaks(call: Callable[[], None]) -> list[bool]:
        found = []
        for point in range(1, len(interrupter.call(call, 0, KeyboardInterrupt).points) + 1):
            if isinstance(interrupter.call(call, point, KeyboardInterrupt).raised, KeyboardInterrupt):
                found.append(lock.locked())
            if lock.locked():
                lock.release()
        return found

    with Interrupter() as interrupter:
        assert leaks(acquired).count(True) == 1
        assert leaks(entered).count(True) == 0
        assert leaks(entered).count(False) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "kind", "count"),
    [("careless batch", "writes", 20), ("second attempt", "log", 40), ("closed gate", "close hangs", 4)],
)
def test_what_an_interrupt_breaks_is_found(place: Path, broken: str, kind: str, count: int) -> None:
    every = list(run([Case(broken, "ram", "warm", errors=("interrupt",), patience=3, drawn=count)], place))
    assert every[0].findings == []
    assert kind in {finding.kind for report in every for finding in report.findings}


def test_everything_that_breaks_is_tried() -> None:
    assert set(BROKEN) == {"careless batch", "second attempt", "closed gate"}


@pytest.mark.slow
@shards
def test_an_interrupt_leaves_nothing_behind(place: Path, shard: int) -> None:
    tally = tallied(drawn(SEED, 3)[shard::SHARDS], place)
    assert tally.violations == []
    assert tally.landed > 150


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@shards
def test_an_interrupt_leaves_nothing_behind_anywhere(place: Path, shard: int) -> None:
    cases = cases_of(list(VERBS), list(STATES), STATES["durable"], drawn=36, seed=drawn_seed(), depth=2)
    tally = tallied(cases[shard::SHARDS], place)
    assert tally.violations == []
    assert tally.landed > 50_000 / SHARDS


@sizes("landed", slow=100, soak=2_000)
@stores
def test_ctrl_c_leaves_nothing_behind(place: Path, store: str, *, is_beside: bool, landed: int) -> None:
    seed = SEED if landed == 100 else drawn_seed()
    reports = list(send(place, store, seed, landed, is_beside=is_beside))
    assert [finding for report in reports for finding in report.findings] == []
    assert sum(report.landed for report in reports) >= landed


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not bound the address space")
@sizes("messages", slow=10_000, soak=45_000)
def test_a_first_read_that_runs_out_of_memory_loses_nothing(place: Path, messages: int) -> None:
    attempts = messages // 1_000
    found = list(run_out(place, messages, attempts))
    assert [wrong for _, wrong in found if wrong] == []
    assert sum(bool(failed) for failed, _ in found) > attempts / 2
