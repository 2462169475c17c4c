"""Measuring on a machine that does other things too: alternating, rotated rounds, and ratios of their medians.

Every job of a group runs once in each round, and the order moves on by one from round to round, so that a slow second
of the machine, a full disk cache or a hot core falls on all of them alike. A figure is only ever compared with figures
of the same rounds.
"""

import ctypes
import gc
import platform
import statistics
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

Samples: TypeAlias = dict[str, list[float]]
"""Nanoseconds per operation, one per round, by the name of the job."""

Result = TypeVar("Result")
Sense: TypeAlias = Literal["at most", "at least"]
MINIMUM_ROUNDS = 3

_SCHED_SETATTR_NUMBERS = {"aarch64": 274, "x86_64": 314}
_SLICE_NS = 100_000


def _nothing() -> None:
    """Prepare nothing."""


class Job(NamedTuple):
    """What one round does: ``run``, which stands for so many operations, between two that are outside the clock."""

    run: Callable[[], object]
    operations: int = 1
    prepare: Callable[[], object] = _nothing
    settle: Callable[[], object] = _nothing
    """Ends what the job has begun and left to others, so that the next job is not charged for it."""


Measure: TypeAlias = Callable[[Job], object]
"""Runs a job for some rounds and returns its last result: what pytest-benchmark is asked for."""


class Target(NamedTuple):
    """What is to be reached.

    ``at most`` bounds our time in times of the floor's time; ``at least`` bounds our rate in times of the floor's rate.
    """

    sense: Sense
    bound: float

    def is_met(self, figure: float) -> bool:
        """Return whether a figure is on the right side of the bound."""
        return figure <= self.bound if self.sense == "at most" else figure >= self.bound


class Ratio(NamedTuple):
    """A ratio of medians, and the quartiles of the ratios of the single rounds."""

    value: float
    low: float
    high: float


def short_slices() -> bool:
    """Ask Linux for scheduler slices of 0.1 ms and return whether it granted them.

    Where every core is busy, a thread that waited for its disk is let in again after the running slice only, and each
    durable commit then costs a scheduler tick of 4 ms instead of the disk's 0.2. The share of the processor stays fair.
    """
    number = _SCHED_SETATTR_NUMBERS.get(platform.machine()) if platform.system() == "Linux" else None
    if number is None:
        return False
    # struct sched_attr: size, policy, flags, nice, priority, then runtime (the slice), deadline and period.
    attributes = struct.pack("IIQiIQQQ", 48, 0, 0, 0, 0, _SLICE_NS, 0, 0)
    granted: int = ctypes.CDLL(None).syscall(number, 0, attributes, 0)
    return granted == 0


def in_short_slices(function: Callable[..., Result], *arguments: Any) -> Result:
    """Do something in a new thread with short slices, and return what it returns.

    The slices work for threads that are begun behind them. What a thread of its own does, be it a peer's, would else
    be let in sooner than what is done in the thread that has run all along.
    """
    short_slices()
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is waited for
            done.set_exception(error)

    # Nobody waits for it when the program is interrupted.
    Thread(target=run, daemon=True).start()
    return done.result()


class Spent(dict[str, list[float]]):
    """The clock's time per operation by the name of the job, and the processor's beside it."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__({name: [] for name in names})
        self.processor: Samples = {name: [] for name in names}
        """Of all threads of the process; not of its children."""


def alternate(jobs: dict[str, Job], rounds: int, *, warm_up: int = 1) -> Spent:
    """Run every job once per round in rotated order; the rounds of the warm-up are not kept.

    What lives before the rounds is moved out of the collector's sight, so that it is not walked again and again at a
    job's expense; the collector itself stays on, as it is for those who use the library.
    """
    names = list(jobs)
    samples = Spent(names)
    gc.collect()
    gc.freeze()
    try:
        for place in range(-warm_up, rounds):
            shift = place % len(names)
            for name in names[shift:] + names[:shift]:
                nanoseconds, processor = _timed(jobs[name])
                if place >= 0:
                    samples[name].append(nanoseconds)
                    samples.processor[name].append(processor)
    finally:
        gc.unfreeze()
    return samples


def _timed(job: Job) -> tuple[float, float]:
    job.prepare()
    run = job.run
    worked = time.process_time_ns()
    begin = time.perf_counter_ns()
    result = run()
    nanoseconds = time.perf_counter_ns() - begin
    worked = time.process_time_ns() - worked
    # What a job returns is released outside the clock.
    del result
    job.settle()
    return nanoseconds / job.operations, worked / job.operations


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def quantile(values: Sequence[float], tenths: int) -> float:
    """Return the value below which so many tenths of the values lie."""
    return percentile(values, 10 * tenths)


def percentile(values: Sequence[float], hundredths: int) -> float:
    """Return the value below which so many hundredths of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) * hundredths // 100, len(ordered) - 1)]


def ratio_of(
    ours: Sequence[float], floor: Sequence[float], sense: Sense, *, pick: Callable[[Sequence[float]], float] = median
) -> Ratio:
    """Return our time over the floor's for ``at most``, our rate over the floor's for ``at least``.

    ``pick`` makes one figure of the rounds on each side. The quartiles are those of the ratios round by round.
    """
    above, below = (ours, floor) if sense == "at most" else (floor, ours)
    single = [one / other for one, other in zip(above, below, strict=False)]
    low, _, high = statistics.quantiles(single, n=4) if len(single) > 1 else (single[0],) * 3
    return Ratio(pick(above) / pick(below), low, high)
