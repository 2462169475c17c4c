"""More conversations than fit in RAM: the peak of the process that writes them, and what a cold read takes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from children import VISIT_MESSAGES, VISITS
from rounds import median, percentile
from rows.table import Options, Row, limited

MEMORY_BYTES = 64 * 1024**2
BESIDE_BYTES = 64 * 1024**2
"""What the interpreter, its modules, the pages of the log and a commit may take beside the loaded conversations."""

MESSAGES = VISITS * VISIT_MESSAGES
SEED = 11
CHILDREN = Path(__file__).resolve().parent.parent / "children.py"
MIB = 1024**2


class Filled(NamedTuple):
    """What the process found that wrote the conversations."""

    peak_bytes: int
    events: int
    fill_ns: int


class Read(NamedTuple):
    """What the process found that read some of them."""

    peak_bytes: int
    open_ns: int
    read_ns: list[int]
    messages: int


def ask(job: str, path: Path, *numbers: int) -> Any:
    """Return what a fresh process says of its job."""
    command = [sys.executable, str(CHILDREN), job, str(path), *map(str, numbers)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def filled(path: Path, conversations: int) -> Filled:
    """Write so many conversations in a process of its own."""
    return Filled(**ask("fill", path, conversations, MEMORY_BYTES))


def read(path: Path, conversations: int, targets: int) -> Read:
    """Read random conversations in a process of its own, each for the first time."""
    return Read(**ask("read", path, conversations, MEMORY_BYTES, targets, SEED))


def _peak(job: str, peak_bytes: int, note: str) -> Row:
    """Return a row that holds the peak of a process against what it may take."""
    limit = MEMORY_BYTES + BESIDE_BYTES
    said = f"at most {limit // MIB} MiB (memory_bytes + {BESIDE_BYTES // MIB} MiB)"
    return Row(job, None, "-", None, None, said, peak_bytes <= limit, f"({peak_bytes / MIB:.0f} MiB; {note})")


def rows(options: Options) -> Iterator[Row]:
    """Measure the peaks, the opening and cold reads."""
    path = options.directory / "many"
    conversations, targets = options.sizes.many_conversations, options.sizes.many_targets
    said = f"{conversations:,} conversations of {MESSAGES} messages"
    written = filled(path, conversations)
    pace = f"{written.events * 1_000_000_000 / written.fill_ns:,.0f} events/s in {VISITS} visits"
    yield _peak(f"peak of the process that writes {said}", written.peak_bytes, pace)
    seen = read(path, conversations, targets)
    yield _peak(
        f"peak of the process that reads {targets:,} of them", seen.peak_bytes, "the store is closed in between"
    )
    yield limited(f"open of {said}", float(seen.open_ns), None, "(one fresh process, warm cache)")
    samples = [float(nanoseconds) for nanoseconds in seen.read_ns]
    note = f"({len(samples):,} random conversations, each read once, warm cache)"
    yield limited("  and a cold read of one, p50", median(samples), None, note)
    yield limited("  and a cold read of one, p99", percentile(samples, 99), None, note)
