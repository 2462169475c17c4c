"""Space, and a real import: bytes per event, and recorded agent sessions going into the log."""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns

import workloads
from rounds import median
from rows.table import Options, Row, limited, skipped

from refold import Memory
from refold.importers import import_file

SESSIONS = "tau-bench"
BYTES_MAX = 300
"""What an event of 210 bytes of text may take of the file."""


def size_rows(options: Options) -> Iterator[Row]:
    """Measure the file, and what an event takes of a record."""
    for conversations in (1, workloads.WIDE):
        memory = options.stores.filled(conversations)
        memory.flush()
        job = f"bytes per event, {conversations} conversation{'s' if conversations > 1 else ''}"
        whole, said = _sizes(memory)
        yield Row(job, None, "-", target=f"at most {BYTES_MAX} B", is_met=whole <= BYTES_MAX, note=said)


def _sizes(memory: Memory) -> tuple[float, str]:
    events = memory.head
    found = workloads.log_of(memory).read(0, events)
    record = sum(len(packed) for _, packed in found) / events
    whole = workloads.log_of(memory).files.size_bytes() / events
    text = sum(len(text.content) for text in workloads.texts()) / workloads.TEXTS
    return whole, f"{whole:.0f} B, of them in the record {record:.0f}, of the text {text:.0f}"


def files(data: Path) -> list[Path]:
    """Return the files of recorded sessions in a directory; none where there is none."""
    return sorted(data.glob("*.jsonl"))


def imported(memory: Memory, paths: list[Path]) -> int:
    """Import every file as `refold import` does, one commit per session, tokens counted; return the messages."""
    return sum(import_file(memory, path).messages for path in paths)


def session_rows(options: Options) -> Iterator[Row]:
    """Measure recorded sessions going in."""
    job = "import of recorded sessions, per message"
    paths = files(options.data / SESSIONS)
    if not paths:
        yield skipped(job, "-", f"no *.jsonl in {SESSIONS} under --data")
        return
    passes = [_pass(options.directory / f"sessions-{turn}", paths) for turn in range(max(options.rounds // 20, 1))]
    per_message = median([nanoseconds for nanoseconds, _ in passes])
    yield limited(job, per_message, None, f"({passes[-1][1]}, {1_000_000_000 / per_message:,.0f} messages/s)")


def _pass(directory: Path, paths: list[Path]) -> tuple[float, str]:
    """Return the nanoseconds per message of one import into a new store, and what came of it."""
    with Memory(directory) as memory:
        begin = perf_counter_ns()
        messages = imported(memory, paths)
        nanoseconds = (perf_counter_ns() - begin) / messages
        bytes_per_event = workloads.log_of(memory).files.size_bytes() / memory.head
        sessions = len(memory.conversations())
    return nanoseconds, f"{sessions} sessions, {messages} messages, {bytes_per_event:.0f} bytes per event"
