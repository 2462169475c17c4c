"""What one walk over the log has seen: what the rows beside the log are held against."""

from array import array
from collections.abc import Sequence
from typing import TypeAlias

from refold.event import Event
from refold.limits import RECENT_EVENTS_COUNT
from refold.store.protocol import Log
from refold.store.record import ARRAY_BEGIN, HEADER_BYTES, NO_SALT, SEQ, header_of

Mark: TypeAlias = bytes | tuple[int, str]
"""What two events have in common only where they are one: a commitment, or a stream with an id drawn for one event."""


class Seen:
    """Where streams stand, which bodies are gone, which rows have to be there; all of it from records alone."""

    def __init__(self) -> None:
        self.heads: dict[int, tuple[int, int]] = {}
        """Number of a stream -> version and seq of its last event."""
        self.begins: dict[int, tuple[int, int, int]] = {}
        """Number of a branch's stream -> seq of its first event, and version and seq that it says it goes on from."""
        self.branches: dict[int, int] = {}
        """Number of a stream -> branch of its events."""
        self.marked: set[int] = set()
        """Seqs of the events whose headers say that the body was erased."""
        self.erased: set[int] = set()
        """Seqs that ``Erased`` events name."""
        self.derived: set[bytes] = set()
        """The keys that the index of sources has to hold."""
        self.tags: set[int] = set()
        self.commands = array("Q")
        """For each event the first seq of the command that it belongs to."""
        self._marks: dict[Mark, int] = {}
        """The marks of the last events, with their seqs."""
        self._elder_marks: dict[Mark, int] = {}
        """Those of the events before; both together reach back at least ``RECENT_EVENTS_COUNT`` events."""

    def derive(self, seq: int, sources: tuple[int, ...]) -> None:
        """Take note of what an event was derived from."""
        self.derived.update(SEQ.pack(source) + SEQ.pack(seq) for source in sources)

    def repeats(
        self,
        log: Log,
        seqs: Sequence[int],
        numbers: Sequence[int],
        commitments: Sequence[bytes],
        events: Sequence[Event],
    ) -> dict[int, int]:
        """Take note of events; return those that are one of the last before them once more: seq -> seq of that one."""
        marks: list[Mark] = list(commitments)
        places = list(seqs)
        for seq, number, event in zip(seqs, numbers, events, strict=True):
            if event.has_own_id:
                marks.append((number, getattr(event, "id")))  # noqa: B009 - those that have one
                places.append(seq)
        fresh = dict(zip(marks, places, strict=True))
        found: dict[int, int] = {}
        # Views, of which the shorter one is gone through; a dict would be gone through whole.
        is_new = fresh.keys().isdisjoint(self._marks.keys()) and fresh.keys().isdisjoint(self._elder_marks.keys())
        if len(fresh) < len(marks) or not is_new:
            known = (self._marks, self._elder_marks)
            firsts = {mark: each[mark] for each in known for mark in fresh.keys() & each.keys()}
            for mark, seq in zip(marks, places, strict=True):
                first = firsts.setdefault(mark, seq)
                if first != seq and _is_same(log, first, seq):
                    found[seq] = first
        self._marks |= fresh
        if len(self._marks) > 2 * RECENT_EVENTS_COUNT:
            self._marks, self._elder_marks = {}, self._marks
        return found


def _is_same(log: Log, first: int, seq: int) -> bool:
    """Return whether two records of a stream hold one event, byte for byte; salts of zeros tell nothing."""
    elder, record = log.read_at([first, seq])
    if header_of(elder).stream != header_of(record).stream or elder[ARRAY_BEGIN:] != record[ARRAY_BEGIN:]:
        return False
    return NO_SALT not in (elder[HEADER_BYTES:ARRAY_BEGIN], record[HEADER_BYTES:ARRAY_BEGIN])
