"""Commits beside a thread that computes: how long they wait for the interpreter, and how long the bare floor does."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import workloads
from crews import Neighbour, switch_interval
from rounds import Job, Samples, alternate, percentile
from rows import append
from rows.table import Options, Row, bounded

EVENTS = 64
SHORT_INTERVAL_SECONDS = 0.000_5
ROUNDS_FACTOR = 4
"""A 95th percentile needs more rounds than a median."""

ALONE = "alone"
BESIDE = "beside a busy thread"
SHORT = f"beside a busy thread, switch interval {SHORT_INTERVAL_SECONDS * 1_000:g} ms"
FLOOR = "bare LMDB beside the same thread, one durable transaction"
ONE_EVENT = "commit of one event"

KINDS = {
    f"commit of {EVENTS} events of 0.2 KB": (0, 10_000_000.0),
    f"commit of {EVENTS} events of 2 KB": (1_880, 10_000_000.0),
    f"commit of {EVENTS} events of 4 KB": (4_096, 20_000_000.0),
}
"""Bytes of a text (0: the usual ones), and what the 95th percentile may take. With its header an event of 1,880 bytes
of text is just below 2 KB."""


def told(text_bytes: int) -> list[workloads.Text]:
    """Return the texts of a commit."""
    return workloads.sized(text_bytes, EVENTS) if text_bytes else workloads.share(0, EVENTS)


def short_turns(job: Job) -> Job:
    """Return the job with the interpreter taking shorter turns while it runs, and its own ones before and after."""

    def run() -> object:
        with switch_interval(SHORT_INTERVAL_SECONDS):
            return job.run()

    return job._replace(run=run)


def _variants(name: str, ours: Job, floor: Job, neighbour: Neighbour) -> dict[tuple[str, str], Job]:
    """Return our job alone, beside the neighbour and beside it in shorter turns, and the floor's beside it."""
    return {
        (name, ALONE): ours,
        (name, BESIDE): neighbour.beside(ours),
        (name, SHORT): neighbour.beside(short_turns(ours)),
        (name, FLOOR): neighbour.beside(floor),
    }


def commit_jobs(stack: ExitStack, directory: Path, neighbour: Neighbour) -> dict[tuple[str, str], Job]:
    """Return the jobs of all kinds of commits; one operation is a commit, whatever it holds."""
    single = directory / "single-beside"
    single.mkdir()
    one = stack.enter_context(append.one_writer(single)).jobs()
    jobs = _variants(ONE_EVENT, one[append.REFOLD], one[append.PUT_ONE], neighbour)
    for name, (text_bytes, _) in KINDS.items():
        home = directory / f"texts-of-{text_bytes}"
        home.mkdir()
        batch = stack.enter_context(append.batches(home, 1, EVENTS, told(text_bytes)))
        both = batch.jobs() | batch.other_jobs()
        ours, floor = (both[key]._replace(operations=1) for key in (append.REFOLD, append.PUT_MULTI))
        jobs.update(_variants(name, ours, floor, neighbour))
    return jobs


def measured(directory: Path, rounds: int) -> dict[tuple[str, str], list[float]]:
    """Return the samples of every commit, alone and beside a neighbour."""
    with ExitStack() as stack:
        neighbour = stack.enter_context(Neighbour())
        jobs = commit_jobs(stack, directory, neighbour)
        samples: Samples = alternate({" / ".join(key): job for key, job in jobs.items()}, rounds, warm_up=2)
    return {key: samples[" / ".join(key)] for key in jobs}


def rows(options: Options) -> Iterator[Row]:
    """Measure commits beside a busy thread, at the interpreter's own switch interval and at a shorter one."""
    samples = measured(options.directory, options.rounds * ROUNDS_FACTOR)
    limits: dict[str, float | None] = {ONE_EVENT: None, **{name: limit for name, (_, limit) in KINDS.items()}}
    for name, limit_ns in limits.items():
        ours, floor = samples[name, BESIDE], samples[name, FLOOR]
        note = f"({len(ours)} commits; the interpreter's own switch interval, {sys.getswitchinterval() * 1_000:g} ms)"
        for hundredths, bound in ((50, None), (95, limit_ns)):
            pick = partial(percentile, hundredths=hundredths)
            yield bounded(f"{name} {BESIDE}, p{hundredths}", ours, FLOOR, floor, bound, pick=pick, note=note)
        yield from _others(name, samples)


def _others(name: str, samples: dict[tuple[str, str], list[float]]) -> Iterator[Row]:
    """Return what the same commit takes in shorter turns and alone, as 95th percentiles; nothing is promised of them.

    ``alone`` says what the neighbour costs; the shorter turns are for a host that may set them.
    """
    pick = partial(percentile, hundredths=95)
    for variant in (SHORT, ALONE):
        yield bounded(
            f"{name} {variant}, p95", samples[name, variant], f"refold {BESIDE}", samples[name, BESIDE], None, pick=pick
        )
