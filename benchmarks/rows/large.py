"""A store of a million events: opening it after a kill, any state in it, and forks.

Filling takes minutes, so the store is built once and kept; every run measures a copy, because forks are written.
"""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import workloads
from rounds import median
from rows.startup import killed_store, open_killed
from rows.table import Options, Row, limited, skipped
from rows.travel import AT_NS, FORK_DEPTH, FORK_NS, FORKED_NS, PASSES, Forks, at_samples, fork_samples, judged, timed

from refold import Memory

OPEN_LIMIT_NS = 50_000_000.0
FORKED_MEMORIES_COUNT = 12
"""Forks of the whole memory in one pass."""


def kept(directory: Path, events: int) -> Path:
    """Return the store in a directory, which is built now if it is not there; its last writer was killed."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"killed-{events}-events-{workloads.WIDE}-conversations"
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        killed_store(unfinished, events, workloads.WIDE)
        unfinished.rename(path)
    return path


def rows(options: Options) -> Iterator[Row]:
    """Measure the large store, where it was said where to keep it."""
    events = options.sizes.large_events
    job = f"a store of {events:,} events"
    if options.large is None:
        yield skipped(job, "-", "give --large DIRECTORY, where it is built once and kept")
        return
    path = options.directory / "large"
    shutil.copytree(kept(options.large, events), path)
    yield from _open_rows(path, options.sizes)
    with Memory(path) as memory:
        yield from _state_rows(memory, options.sizes)
        yield from _fork_rows(memory, options.sizes)
        yield from memory_fork_rows(memory)


def _open_rows(path: Path, sizes: workloads.Sizes) -> Iterator[Row]:
    opened = [open_killed(path) for _ in range(sizes.processes)]
    note = f"(median of {len(opened)} fresh processes, warm cache)"
    job = f"open after kill -9, {opened[0].head:,} events"
    yield limited(job, median([times.open_ns for times in opened]), OPEN_LIMIT_NS, note)
    yield limited("  and the first read of a window", median([times.read_ns for times in opened]), None, note)


def _state_rows(memory: Memory, sizes: workloads.Sizes) -> Iterator[Row]:
    passes = [at_samples(memory, workloads.WIDE, sizes.targets, seed) for seed in range(PASSES)]
    yield from judged(f"window at a random seq of {memory.head:,} events", passes, AT_NS)


def _fork_rows(memory: Memory, sizes: workloads.Sizes) -> Iterator[Row]:
    head = memory.head
    passes = [fork_samples(memory, sizes.targets, f"fork-{seed}", seed) for seed in range(PASSES)]
    note = f"(median of {PASSES} passes over {len(passes[0])} seqs; one durable commit each)"
    job = f"fork of a conversation at a random seq of {head:,} events"
    yield limited(job, median([median(one) for one in passes]), FORK_NS, note)
    reads = [Forks(memory, sizes.fork_events, f"deep-{turn}").read_samples() for turn in range(PASSES)]
    deep = f"first read of a fork {FORK_DEPTH} deep, {sizes.fork_events} events each, of {head:,} events"
    yield from judged(deep, reads, FORKED_NS)


def memory_fork_rows(memory: Any) -> Iterator[Row]:
    """Measure forks of the whole memory, where the engine has them."""
    job = f"fork of the whole memory at a random seq of {memory.head:,} events"
    if not hasattr(memory, "fork"):
        yield skipped(job, "-", "this version of refold has no Memory.fork")
        return
    passes = [memory_fork_samples(memory, seed) for seed in range(PASSES)]
    note = f"(median of {PASSES} passes over {len(passes[0])} seqs; one durable commit each)"
    yield limited(job, median([median(one) for one in passes]), FORK_NS, note)


def memory_fork_samples(memory: Any, seed: int) -> list[float]:
    """Return how long it takes to fork the whole memory at each of some random seqs."""
    seqs = random.Random(seed).sample(range(memory.head // 2, memory.head + 1), FORKED_MEMORIES_COUNT)
    made: list[Any] = []
    samples = [timed(lambda seq=seq: made.append(memory.fork(f"whole-{seed}-{seq}", at=seq))) for seq in seqs]  # type: ignore[misc]
    for fork in made:
        fork.close()
    return samples
