"""Beginnings: importing in a fresh process, its first context, and opening a store whose last process was killed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import workloads
from rounds import Job, Samples, Target, alternate, median
from rows.table import Options, Row, compared, limited

from refold import Memory

PYTHON = "python -c pass"
FLOOR = "import msgspec, lmdb"
IMPORTS = {
    PYTHON: "pass",
    FLOOR: "import msgspec, lmdb",
    "import refold": "import refold",
    "from refold import Memory": "from refold import Memory",
}
TARGETS = {"import refold": Target("at most", 0.6), "from refold import Memory": Target("at most", 1.4)}
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
_CONTEXT = """
import sys
from time import perf_counter_ns
from refold import Memory
memory = Memory(sys.argv[1])
chat = memory.conversation(sys.argv[2])
begin = perf_counter_ns()
context = memory.context(chat, query="Which port does the service listen on?", project=sys.argv[3])
print(perf_counter_ns() - begin)
assert context.tokens
"""
_SEARCH = """
import sys
from time import perf_counter_ns
from refold import Memory
begin = perf_counter_ns()
memory = Memory(sys.argv[1])
opened = perf_counter_ns()
hits = memory.project("full").search("Which port does service 77 listen on?")
print(perf_counter_ns() - opened, opened - begin)
assert hits
"""
_FIRST_NS = 50_000_000.0
_CONTEXT_MEMORIES = 200


def run_python(code: str, bytecode: Path, *arguments: str) -> str:
    """Run a line of Python in a fresh process, which keeps the bytecode of what it imports in a directory.

    So nothing is compiled after the first run, whatever the machine says of writing bytecode. Returns what it printed.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout


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


def context_rows(options: Options) -> Iterator[Row]:
    """Measure the first context of fresh processes: with nothing to search, and with what only numpy finds."""
    path, bytecode = options.directory / "context", options.directory / "bytecode"
    with workloads.fill(path, options.sizes.batch_events, 1) as memory, memory.batch():
        memory.conversation("short").append("user", "Which port does the service listen on?")
        remember(memory, _CONTEXT_MEMORIES)
    cases = (
        (("short", "empty"), "nothing to search", ""),
        (("chat-0000", "empty"), "messages that left the window", ", loading numpy included"),
        (("chat-0000", "full"), f"and {_CONTEXT_MEMORIES} memories", ", as above"),
    )
    for names, what, more in cases:
        taken = [int(run_python(_CONTEXT, bytecode, str(path), *names)) for _ in range(options.sizes.processes + 1)]
        note = f"(median of {options.sizes.processes} fresh processes{more})"
        yield limited(f"first context of a process, {what}", median(taken[1:]), _FIRST_NS, note)


def remember(memory: Memory, count: int) -> None:
    """Add so many memories to a project, embedded by default."""
    for number in range(count):
        memory.project("full").add(f"Service {number} listens on port {8_000 + number}.")


def search_rows(options: Options) -> Iterator[Row]:
    """Measure the first search of fresh processes, in a project that another process filled and searched."""
    path, bytecode = options.directory / "session", options.directory / "bytecode"
    memories = options.sizes.session_memories
    with Memory(path) as memory:
        with memory.batch():
            remember(memory, memories)
        assert memory.project("full").search("Which port does service 77 listen on?")
    said = [run_python(_SEARCH, bytecode, str(path)).split() for _ in range(options.sizes.processes + 1)]
    taken, opened = ([int(figure) for figure in figures] for figures in zip(*said[1:], strict=True))
    note = f"(median of {len(taken)} fresh processes, which opened the store in {median(opened) / 1_000_000:.0f} ms)"
    yield limited(f"first search of a session, {memories:,} memories", median(taken), _FIRST_NS, note)


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
