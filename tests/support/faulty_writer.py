"""What a faulty writer leaves in a store: events whose bytes are intact, counted or linked wrongly.

Each function does to a closed store what an interrupted read or write of an earlier refold did: digests and links are
computed as a writer computes them, and nothing but what the fault concerns is other than before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from refold import fold
from refold.engine.streams import records_of
from refold.event import Erased
from refold.log.directory import directory_at
from refold.log.lmdb_log import LmdbLog
from refold.log.record import (
    MARK_COMMAND,
    NO_LINK,
    SEQ,
    Columns,
    Head,
    Record,
    StreamHead,
    digest_of,
    encode,
    link_after,
)
from tests.support.rows import Rows


class Entry(msgspec.Struct):
    """One event as a record has it, and what is said of that record."""

    record: int
    """The place of the record that it was read from: its events are put into one again, as far as they fit."""
    salt: bytes
    origin: bytes
    number: int
    branch: int
    version: int
    prev_seq: int
    time_ns: int
    occurred_ns: int | None
    command: int
    cause: int
    actor: int
    flags: int
    array: bytes

    @property
    def tag(self) -> int:
        """The tag of the event."""
        return fold.tag_of(self.array)


class Log:
    """The events of a store, in order."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries

    def at(self, seq: int) -> Entry:
        """The event at a seq."""
        return self.entries[seq - 1]

    def put(self, seq: int, **fields: Any) -> None:
        """Give the event at a seq other fields."""
        self.entries[seq - 1] = msgspec.structs.replace(self.at(seq), **fields)

    def seqs(self, number: int) -> list[int]:
        """The seqs of a stream's events."""
        return [seq for seq, entry in enumerate(self.entries, 1) if entry.number == number]

    @property
    def records_count(self) -> int:
        """How many records they are in."""
        return len({entry.record for entry in self.entries})


def read(store: Path) -> Log:
    log = LmdbLog(directory_at(str(store), readonly=True, seed={}))
    try:
        records = records_of(log, 0, log.head()) if log.head() else []
        return Log([entry for place, record in enumerate(records) for entry in entries_of(record, place)])
    finally:
        log.close()


def entries_of(record: Record, place: int = 0) -> Iterator[Entry]:
    """The events of a record."""
    last = {head.number: head.seq for head in record.heads}
    branches = {head.number: head.branch for head in record.heads}
    for row, command, array in zip(record.rows(), record.commands, record.arrays, strict=True):
        seq, number, version, time_ns, occurred_ns, cause, actor, flags = row
        happened_ns = occurred_ns if record.to_columns().occurred else None
        yield Entry(
            *(place, record.salt, record.origin, number, branches[number], version, last[number], time_ns),
            *(happened_ns, command, cause, actor, flags, array),
        )
        last[number] = seq


def sealed(entries: list[Entry], stale: tuple[int, ...] = ()) -> list[tuple[int, bytes]]:
    """The records of events; those whose places are in ``stale`` go on from the link two records before."""
    links, digests, seq = [NO_LINK, NO_LINK], dict[int, bytes](), 1
    found: list[tuple[int, bytes]] = []
    for part in _parts(entries):
        for entry in part:
            event = fold.decode(entry.array)
            if isinstance(event, Erased) and event.digests:
                proofs = tuple((last, digests.get(last, digest)) for last, digest in event.digests)
                entry.array = fold.encode(msgspec.structs.replace(event, digests=proofs))
        salt, origin = part[0].salt, part[0].origin
        content = encode(Head(seq, part[0].time_ns, part[0].command, salt, origin), _columns(part, seq))
        last_seq = seq + len(part) - 1
        if origin:
            digests[last_seq] = digest_of(content)
        previous = links[-2] if len(found) in stale else links[-1]
        links.append(link_after(previous, origin or digest_of(content)))
        found.append((last_seq, links[-1] + content))
        seq = last_seq + 1
    return found


def _parts(entries: list[Entry]) -> Iterator[list[Entry]]:
    """The events of each record: those of one before, up to where a stream does not go on from its last event."""
    begin = 1
    for _, group in groupby(entries, key=lambda entry: entry.record):
        part, last = list[Entry](), dict[int, tuple[int, int]]()
        for seq, entry in enumerate(group, begin):
            expected = last.get(entry.number, (entry.version - 1, entry.prev_seq))
            if part and ((entry.version - 1, entry.prev_seq) != expected or entry.time_ns != part[0].time_ns):
                yield part
                part, last = [], {}
            part.append(entry)
            last[entry.number] = (entry.version, seq)
            begin = seq + 1
        yield part


def _columns(part: list[Entry], first_seq: int) -> Columns:
    heads = {entry.number: StreamHead(entry.number, 0, 0, 0) for entry in part}
    for entry in reversed(part):
        heads[entry.number] = StreamHead(entry.number, entry.version - 1, entry.prev_seq, entry.branch)
    places = {number: place for place, number in enumerate(heads)}
    return Columns(
        list(heads.values()),
        [places[entry.number] for entry in part],
        [entry.flags | (MARK_COMMAND if entry.command == seq else 0) for seq, entry in enumerate(part, first_seq)],
        [entry.actor for entry in part],
        [entry.cause for entry in part],
        [entry.time_ns if entry.occurred_ns is None else entry.occurred_ns for entry in part]
        if any(entry.occurred_ns is not None for entry in part)
        else (),
        [entry.array for entry in part],
    )


@contextmanager
def rewritten(store: Path, stale: tuple[int, ...] = ()) -> Iterator[Log]:
    """The log of a store, to be changed; then it is linked anew.

    Records whose places are in ``stale`` go on from the link two records before, as their writer knew no later one.
    """
    log = read(store)
    yield log
    rows = Rows(store)
    for key, _ in rows.all("log"):
        rows.put("log", key, None)
    for last, record in sealed(log.entries, stale):
        rows.put("log", SEQ.pack(last), record)
    rows.close()


def number_of(store: Path, name: str, branch: int = 0) -> int:
    rows = Rows(store)
    number = int.from_bytes(rows.get("names", branch.to_bytes(4, "big") + name.encode()), "big")
    rows.close()
    return number


def begun_anew(store: Path, name: str, places: slice, at: int = 0) -> None:
    """Some events of a stream follow one another from its event number ``at`` on, as if there was none behind it."""
    number = number_of(store, name)
    with rewritten(store) as log:
        seqs = log.seqs(number)
        version, last = (log.at(seqs[at - 1]).version, seqs[at - 1]) if at else (0, 0)
        for seq in seqs[places]:
            version += 1
            log.put(seq, version=version, prev_seq=last)
            last = seq


def twice(store: Path, pick: Callable[[Log], list[int]], *, salted: bool = False) -> None:
    """The events at some seqs are written once more at the end, as one command, under fresh salts if ``salted``."""
    with rewritten(store) as log:
        first = len(log.entries) + 1
        time_ns = log.entries[-1].time_ns
        for seq in pick(log):
            entry = log.at(seq)
            last = log.seqs(entry.number)[-1]
            again = msgspec.structs.replace(
                entry,
                record=log.records_count,
                salt=bytes(reversed(entry.salt)) if salted else entry.salt,
                version=log.at(last).version + 1,
                prev_seq=last,
                command=first,
                time_ns=time_ns,
            )
            log.entries.append(again)
    rows = Rows(store)
    for seq in range(first, len(log.entries) + 1):
        for source in msgspec.msgpack.decode(log.at(seq).array)[1]:
            rows.put("derived", SEQ.pack(source) + SEQ.pack(seq), b"")
    rows.close()


def shared(store: Path, name: str, other: str) -> None:
    """A stream that began later got the number of another one, and its row."""
    number, lost = number_of(store, name), number_of(store, other)
    with rewritten(store) as log:
        for seq in log.seqs(lost):
            log.put(seq, number=number)
    rows = Rows(store)
    rows.put("streams", number.to_bytes(4, "big"), rows.get("streams", lost.to_bytes(4, "big")))
    rows.put("streams", lost.to_bytes(4, "big"), None)
    rows.put("names", bytes(4) + other.encode(), number.to_bytes(4, "big"))
    rows.close()
