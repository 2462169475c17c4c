"""A million memories over many projects, more than fit in RAM, and what a writer waits for in a large one."""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

from rounds import median, percentile
from rows.many import BESIDE_BYTES, MEMORY_BYTES, MIB, ask
from rows.search import vectors
from rows.table import Options, Row, limited

from refold import Memory, Project

MEMORIES = 100
"""Memories of each project."""

TARGETS = 1_000
ADDITIONS = 2_000
BATCH = 1_000


class Remembered(NamedTuple):
    """What the process found that wrote the memories."""

    base_bytes: int
    peak_bytes: int
    fill_ns: int


class Searched(NamedTuple):
    """What the process found that searched some of the projects."""

    base_bytes: int
    peak_bytes: int
    cold_ns: list[int]
    warm_ns: list[int]
    found: int


def remembered(path: Path, projects: int) -> Remembered:
    """Write so many projects in a process of its own."""
    return Remembered(**ask("remember", path, projects, MEMORIES, MEMORY_BYTES))


def searched(path: Path, projects: int) -> Searched:
    """Search random projects in a process of its own, each for the first time, and one of them again and again."""
    return Searched(**ask("search", path, projects, min(projects, TARGETS), MEMORY_BYTES))


def _peak(job: str, base_bytes: int, peak_bytes: int, note: str) -> Row:
    """Return a row that holds what a process took, beside what it took empty, against what it may take."""
    limit = MEMORY_BYTES + BESIDE_BYTES
    said = f"at most {limit // MIB} MiB (memory_bytes + {BESIDE_BYTES // MIB} MiB)"
    taken = peak_bytes - base_bytes
    return Row(job, None, "-", None, None, said, taken <= limit, f"({taken / MIB:.0f} MiB; {note})")


def rows(options: Options) -> Iterator[Row]:
    """Measure the peaks, cold searches, and the pauses of a writer."""
    projects = options.sizes.spread_projects
    path = options.directory / "spread"
    said = f"{projects:,} projects of {MEMORIES} memories"
    written = remembered(path, projects)
    each_ns = written.fill_ns / projects / MEMORIES
    pace = f"{each_ns / 1_000:.0f} us a memory, {MEMORIES} to a commit"
    yield _peak(f"peak of the process that writes {said}", written.base_bytes, written.peak_bytes, pace)
    seen = searched(path, projects)
    job = f"peak of the process that searches {len(seen.cold_ns):,} of them"
    yield _peak(job, seen.base_bytes, seen.peak_bytes, "opened anew")
    cold = list(map(float, seen.cold_ns))
    yield limited("  and the first search of one, p50", median(cold), None, "(rows filled from the log, warm cache)")
    yield limited("  and the first search of one, p99", percentile(cold, 99), None, "(as above)")
    yield limited("  and a search of one that is in RAM, p50", median(list(map(float, seen.warm_ns))), None, "")
    yield from pause_rows(options)


def pause_rows(options: Options) -> Iterator[Row]:
    """Measure what single additions take to a large project, with the packing of a checkpoint row among them."""
    count = options.sizes.large_search_rows
    with Memory(options.directory / "pauses") as memory:
        project = memory.project("large")
        given = vectors(count + ADDITIONS, 1)
        for begin in range(0, count, BATCH):
            with memory.batch():
                for place in range(begin, min(begin + BATCH, count)):
                    project.add(f"memory {place}", vector=given[place])
        project.search("memory", ranking="seed", vector=given[0])
        slot = memory._core.engine.reader.find("project/large")
        assert slot is not None
        slot.due = len(slot.seqs) + ADDITIONS // 4
        added = [float(_added(project, place, given[place])) for place in range(count, count + ADDITIONS)]
        assert not slot.due or len(slot.seqs) < ADDITIONS, "no checkpoint row was packed"
    said = f"to a project of {count:,} memories that is searched, durable"
    yield limited(f"add {said}, p50", median(added), None, f"({ADDITIONS:,} single ones)")
    yield limited(f"add {said}, p99", percentile(added, 99), None, "(as above)")
    yield limited(f"add {said}, longest", max(added), None, "(a checkpoint row is packed and written meanwhile)")


def _added(project: Project, place: int, vector: object) -> int:
    begin = perf_counter_ns()
    project.add(f"memory {place}", vector=vector)  # type: ignore[arg-type]
    return perf_counter_ns() - begin
