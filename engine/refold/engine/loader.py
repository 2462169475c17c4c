"""Building the state of a stream at a seq: the nearest checkpoint, the events after it, and through base pointers.

The same ``fold`` runs here as on a live write. A fork or a restore starts from the state of another place; the chain
of such places is walked with a list, not by recursion, so that it may be of any length.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from operator import itemgetter
from struct import error as StructError  # noqa: N812 - struct names its exception in lower case
from typing import Final, NamedTuple

import msgspec

from refold import fold
from refold.engine.checkpoints import Checkpoint, Checkpoints
from refold.engine.streams import Slot, Streams
from refold.errors import StoreCorrupt
from refold.event import FLAG_BASE, Event, Forked, Restored, Stamp
from refold.limits import PAGE_EVENTS
from refold.store.protocol import Log
from refold.store.record import ARRAY_BEGIN, STAMP

_ARRAY: Final[Callable[[bytes], bytes]] = itemgetter(slice(ARRAY_BEGIN, None))
"""A record's array, cut out by C code."""


class Recorded(NamedTuple):
    """An event as it stands in the log."""

    event: Event
    stamp: Stamp


_STRETCH_EVENTS: Final = 32
"""Events that are read first when looking back for a base pointer."""


class _Segment(NamedTuple):
    """A stretch of one stream that is folded onto what came before it."""

    checkpoint: Checkpoint | None
    events: list[tuple[Event, Stamp]]


class Loader:
    """Reads events and builds states; it keeps nothing but what ``Streams`` keeps."""

    def __init__(self, log: Log, streams: Streams, checkpoints: Checkpoints) -> None:
        self._log = log
        self._streams = streams
        self._checkpoints = checkpoints
        self.bytes_read = self._events_read = 0
        """What was read since somebody set them to 0: what a state weighs that was built from it."""

    def recorded(self, seqs: Sequence[int]) -> list[Recorded]:
        """Return the events at the seqs, in the given order."""
        return list(starmap(Recorded, self._read(seqs, self._log.read_at(seqs))))

    def page(self, first_seq: int, limit: int = PAGE_EVENTS) -> list[Recorded]:
        """Return up to ``limit`` events of the whole log from ``first_seq`` on."""
        records = self._log.read(first_seq, limit)
        return list(starmap(Recorded, self._read(range(first_seq, first_seq + len(records)), records)))

    def _read(self, seqs: Sequence[int], records: list[bytes]) -> list[tuple[Event, Stamp]]:
        """Return the events of records with their stamps; plain pairs, because most are folded and forgotten."""
        heads = _heads(seqs, records)
        self.bytes_read += sum(map(len, records))
        self._events_read += len(records)
        names = self._streams.name_of
        stamps = [
            Stamp(seq, names(number), version, time_ns, occurred_ns, cause, actor, flags)
            for seq, (number, version, time_ns, occurred_ns, cause, actor, flags, _) in zip(seqs, heads, strict=True)
        ]
        return list(zip(decoded(records, heads), stamps, strict=True))

    def replayed(self, until: int) -> dict[int, fold.State]:
        """Return the state of every stream, by number, after folding the log from its first event to ``until``.

        One pass over the log in pages, each decoded in one sweep; no checkpoint takes part if this loader's streams
        have none. A fork or a restore starts from a state that is folded on the side, from the first event too.
        """
        states = _States(self._streams.name_of)
        apply = fold.fold
        seq = 0
        while seq < until:
            records = self._log.read(seq + 1, min(PAGE_EVENTS, until - seq))
            heads = _heads(range(seq + 1, seq + 1 + len(records)), records)
            names = states.names
            for (number, version, time_ns, occurred_ns, cause, actor, flags, _), event in zip(
                heads, decoded(records, heads), strict=True
            ):
                seq += 1
                if flags & FLAG_BASE:
                    states[number] = self.base_state(event, states[number].kind.name)
                state = states[number]
                apply(state, Stamp(seq, names[number], version, time_ns, occurred_ns, cause, actor, flags), event)
        return states

    def seqs_between(self, slot: Slot, after: int, until: int) -> Iterator[int]:
        """Return the seqs of a stream's events with ``after < seq <= until``, in order."""
        while after < until:
            row = self._checkpoints.after(slot.number, after)
            held = slot.seqs if row is None else row.since
            yield from (seq for seq in held if after < seq <= until)
            if row is None:
                return
            after = row.seq

    def last_seq(self, slot: Slot, seq: int) -> int:
        """Return the seq of the stream's last event at or before ``seq``, 0 where there is none."""
        if seq >= slot.seq:
            return slot.seq
        before = self._checkpoints.before(slot.number, seq)
        last = before.seq if before is not None else 0
        for found in self.seqs_between(slot, last, seq):
            last = found
        return last

    def base_state(self, base: Event, kind: str) -> fold.State:
        """Return the state that a fork or a restore starts from."""
        assert isinstance(base, (Forked, Restored)), base
        if not base.base_seq:
            return fold.empty(kind)
        return self.state_at(self._streams.at_number(base.base_stream), base.base_seq)

    def live(self, slot: Slot) -> fold.State:
        """Return the live state of a stream, loaded if it is not."""
        if slot.state is None:
            self.bytes_read = self._events_read = 0
            slot.state = self.state_at(slot, slot.seq)
            self._streams.loaded_from(slot, self.bytes_read, self._events_read)
        return slot.state

    def state_at(self, slot: Slot, seq: int) -> fold.State:
        """Return the state of a stream at a seq, built anew: changing it changes nothing else."""
        segments = self._segments(slot, seq)
        first = segments.pop()
        state = self._unpacked(slot.kind, first.checkpoint)
        self._fold(state, first.events)
        while segments:
            self._fold(state, segments.pop().events)
        return state

    def _segments(self, slot: Slot, seq: int) -> list[_Segment]:
        """Return the stretches to fold, last one first: each but the first begins with a base pointer."""
        segments: list[_Segment] = []
        while True:
            checkpoint = self._checkpoints.before(slot.number, seq)
            after = checkpoint.seq if checkpoint is not None else 0
            seqs = list(self.seqs_between(slot, after, seq))
            events = self._since_base(seqs)
            base = events[0][0] if events else None
            if not isinstance(base, (Forked, Restored)):
                segments.append(_Segment(checkpoint, events))
                return segments
            segments.append(_Segment(None, events))
            if not base.base_seq:
                segments.append(_Segment(None, []))
                return segments
            slot, seq = self._streams.at_number(base.base_stream), base.base_seq

    def _since_base(self, seqs: Sequence[int]) -> list[tuple[Event, Stamp]]:
        """Return the events from the last base pointer on, all of them if there is none.

        They are read from the end in stretches that double: in a chain of restores the base is near, and reading all
        events at every link of the chain would cost the cube of its length.
        """
        events: list[tuple[Event, Stamp]] = []
        end, size = len(seqs), _STRETCH_EVENTS
        while end:
            wanted = seqs[max(end - size, 0) : end]
            stretch = self._read(wanted, self._log.read_at(wanted))
            place = _last_base(stretch)
            if place is not None:
                return stretch[place:] + events
            events = stretch + events
            end, size = end - len(wanted), 2 * size
        return events

    def _unpacked(self, kind: str, checkpoint: Checkpoint | None) -> fold.State:
        if checkpoint is None:
            return fold.empty(kind)
        events = self.recorded(checkpoint.pointed)
        try:
            return fold.unpack(kind, checkpoint.inline, events)
        except (AssertionError, LookupError, StopIteration, TypeError, ValueError) as error:
            message = f"a checkpoint row at seq {checkpoint.seq} holds no state ({error}); run `refold verify`"
            raise StoreCorrupt(message) from error

    def _fold(self, state: fold.State, events: Sequence[tuple[Event, Stamp]]) -> None:
        for event, stamp in events:
            fold.fold(state, stamp, event)


class _States(dict[int, fold.State]):
    """States by stream number, empty at first sight; keeps each stream's name."""

    def __init__(self, name_of: Callable[[int], str]) -> None:
        super().__init__()
        self.names: dict[int, str] = {}
        self._name_of = name_of

    def __missing__(self, number: int) -> fold.State:
        name = self.names[number] = self._name_of(number)
        state = self[number] = fold.empty(name.partition("/")[0])
        return state


def _heads(seqs: Sequence[int], records: list[bytes]) -> list[tuple[int, ...]]:
    """Return the front of each record's header; ``StoreCorrupt`` where a record is too short to have one."""
    try:
        return list(map(STAMP.unpack_from, records))
    except StructError as error:
        message = f"a record at or behind seq {seqs[0]} is cut off; run `refold verify` and restore a backup"
        raise StoreCorrupt(message) from error


def decoded(records: Sequence[bytes], heads: Sequence[tuple[int, ...]]) -> list[Event]:
    """Return the events of records: all in one sweep, one by one only where a tag is unknown or bytes are damaged."""
    try:
        return list(map(fold.decode_known, map(_ARRAY, records)))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [fold.decode(_ARRAY(record), head[-1]) for record, head in zip(records, heads, strict=True)]


def _last_base(events: Sequence[tuple[Event, Stamp]]) -> int | None:
    for place in range(len(events) - 1, -1, -1):
        if events[place][1].flags & FLAG_BASE:
            return place
    return None
