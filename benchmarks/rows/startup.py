"""Beginnings: importing in a fresh process, and opening a store whose last process was killed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import workloads
from rounds import Job, Samples, Target, alternate, median
from rows.table import Options, Row, compared, limited

PYTHON = "python -c pass"
FLOOR = "import msgspec, lmdb"
IMPORTS = {
    PYTHON: "pass",
    FLOOR: "import msgspec, lmdb",
    "import refold": "import refold",
    "from refold import Memory": "from refold import Memory",
}
TARGETS = {"import refold": Target("at most", 0.6), "from refold import Memory": Target("at most", 1.5)}
HERE = Path(__file__).resolve().parent.parent

_FILL = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import workloads
memory = workloads.fill(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
os.kill(os.getpid(), signal.SIGKILL)
"""
_OPEN = """
import os, sys
from time import perf_counter_ns
from refold import Memory
begin = perf_counter_ns()
memory = Memory(sys.argv[1])
opened = perf_counter_ns()
read = len(memory.conversation("chat-0000").window())
print(opened - begin, perf_counter_ns() - opened, memory.head, read, flush=True)
os._exit(0)
"""


def run_python(code: str, bytecode: Path) -> None:
    """Run a line of Python in a fresh process, which keeps the bytecode of what it imports in a directory.

    So nothing is compiled after the first run, whatever the machine says of writing bytecode.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode), "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def import_samples(processes: int, bytecode: Path) -> Samples:
    """Return the time of whole processes, from their start to their end, python's own start included."""
    jobs = {name: Job(lambda code=code: run_python(code, bytecode)) for name, code in IMPORTS.items()}  # type: ignore[misc]
    return alternate(jobs, processes)


def import_rows(options: Options) -> Iterator[Row]:
    """Measure imports: the best of some fresh processes, nothing subtracted."""
    samples = import_samples(options.sizes.processes, options.directory / "bytecode")
    floor = samples[FLOOR]
    note = f"(best of {len(floor)} whole processes; python alone {min(samples[PYTHON]) / 1_000_000:.1f} ms)"
    for name, target in TARGETS.items():
        yield compared(name, samples[name], FLOOR, floor, target, pick=min, note=note)


def killed_store(path: Path, events: int, conversations: int) -> None:
    """Fill a store in a process that then kills itself."""
    arguments = [str(HERE), str(path), str(events), str(conversations)]
    done = subprocess.run([sys.executable, "-c", _FILL, *arguments], check=False)
    assert done.returncode < 0, f"the process that fills a store should die by a signal, not return {done.returncode}"


class Opened(NamedTuple):
    """What a fresh process saw."""

    open_ns: int
    read_ns: int
    head: int
    messages: int


def open_killed(path: Path) -> Opened:
    """Open a store in a fresh process, which leaves it as it was by dying without closing it."""
    done = subprocess.run([sys.executable, "-c", _OPEN, str(path)], check=True, capture_output=True, text=True)
    return Opened._make(map(int, done.stdout.split()))


def open_rows(options: Options) -> Iterator[Row]:
    """Measure opening after a kill."""
    path = options.directory / "killed"
    killed_store(path, options.sizes.log_events, workloads.WIDE)
    opened = [open_killed(path) for _ in range(options.sizes.processes)]
    note = f"(median of {len(opened)} fresh processes, warm cache)"
    events = f"{options.sizes.log_events:,} events"
    yield limited(f"open after kill -9, {events}", median([times.open_ns for times in opened]), 50_000_000.0, note)
    yield limited("  and the first read of a window", median([times.read_ns for times in opened]), None, note)
