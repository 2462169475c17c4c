"""Keeping checkpoints: when a stream gets a row, and how the tail of the log stays short."""

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from refold import fold
from refold.engine.checkpoints import APPLIED_KEY, Checkpoint, Checkpoints
from refold.engine.loader import Loader
from refold.engine.slots import Slot
from refold.engine.streams import Streams
from refold.limits import CHECKPOINT_EVENTS, CHECKPOINT_ROWS_MAX, PACKED_SLICE_COUNT, TAIL_EVENTS_MAX
from refold.store.protocol import Log, Row
from refold.store.record import SEQ


class _Underway(NamedTuple):
    """A row that is being packed: of which stream, and where that stood when it was begun."""

    slot: Slot
    seq: int
    version: int
    events_count: int
    """How many events it had since its last kept row."""
    kept: bool
    packing: fold.Packing


class Keeper:
    """Packs states into checkpoint rows; what it packs waits in ``Checkpoints`` for the next commit."""

    def __init__(self, log: Log, streams: Streams, checkpoints: Checkpoints, loader: Loader) -> None:
        self._log = log
        self._streams = streams
        self._checkpoints = checkpoints
        self._loader = loader
        self._underway: dict[int, _Underway] = {}
        """By number, the streams whose states are being packed, a slice with each commit."""
        self.tail_due = 0
        """The seq up to which the tail is within its bound for certain."""

    def folded(self, slot: Slot) -> None:
        """Take note that an event of the stream was folded; pack a kept row where one is due."""
        dirty = self._streams.dirty
        if slot.number not in dirty:
            dirty[slot.number] = slot.seq
        if len(slot.seqs) >= (slot.due or CHECKPOINT_EVENTS) and slot.number not in self._underway:
            self._begin(slot, kept=True)

    def rebased(self, slot: Slot) -> None:
        """Pack a kept row where a stream went on from another place: no later read has to walk there again.

        That of a fork waits for the first event that is its own: making a fork builds no state.
        """
        if slot.state is None:
            slot.due = len(slot.seqs) + 1
        else:
            self._begin(slot, kept=True)

    def settle(self, slot: Slot) -> None:
        """Pack a row for a stream, so that none of its events is without one."""
        self._pack(slot, kept=False)

    def settles(self, slot: Slot) -> bool:
        """Pack some of a row for a stream that is about to leave RAM; return whether it may."""
        if slot.number not in self._underway:
            self._begin(slot, kept=False)
        else:
            self._step(slot.number)
        return slot.number not in self._streams.dirty

    def proceed(self, count: int) -> None:
        """Go on packing the stream that has waited longest, now that a commit of so many events was folded.

        A slice with each commit: who writes never waits for the whole of a large state.
        """
        steps = 1 + 2 * count // PACKED_SLICE_COUNT
        while steps and self._underway:
            self._step(next(iter(self._underway)))
            steps -= 1

    def shorten_tail(self, head: int, count: int) -> None:
        """Pack up to ``count`` streams, those that have waited longest, once the tail is over its bound.

        A slice with each commit: who writes never waits for the whole tail.
        """
        self.tail_due = self._streams.applied_seq(head) + TAIL_EVENTS_MAX
        if head > self.tail_due:
            for number in list(islice(self._streams.dirty, count)):
                if number not in self._underway:
                    self._begin(self._streams.at_number(number), kept=False)

    def _pack(self, slot: Slot, *, kept: bool) -> None:
        """Pack a row at once."""
        self._begin(slot, kept=kept)
        while slot.number in self._underway:
            self._step(slot.number)

    def _begin(self, slot: Slot, *, kept: bool) -> None:
        """Pack a row of the state as it is now, the first slice at once; what was under way is not needed any more."""
        self._underway.pop(slot.number, None)
        if not slot.seqs:
            # A kept row stands at the stream's last event; the tail, scanned after a crash, could not know it.
            self._streams.dirty.pop(slot.number, None)
            return
        packing = fold.Packing(self._loader.live(slot))
        underway = _Underway(slot, slot.seq, slot.version, len(slot.seqs), kept, packing)
        if packing.is_done:
            self._put(underway)
        else:
            self._underway[slot.number] = underway

    def _step(self, number: int) -> None:
        """Pack a slice more of what is under way, and put the row once that was the last."""
        underway = self._underway[number]
        underway.packing.step()
        if underway.packing.is_done:
            self._put(self._underway.pop(number))

    def _put(self, packed: _Underway) -> None:
        slot, count = packed.slot, packed.events_count
        inline, pointed = packed.packing.result()
        row = Checkpoint(packed.seq, packed.version, packed.kept, inline, pointed, slot.seqs[:count])
        self._checkpoints.put(slot.number, row, replaces=slot.floating)
        slot.floating = 0 if packed.kept else packed.seq
        self._cover(slot.number, slot.seqs[count:])
        if packed.kept:
            slot.seqs, slot.due = slot.seqs[count:], row.due
            self._streams.bytes += slot.weigh(len(inline), len(pointed))

    def _cover(self, number: int, left: Sequence[int]) -> None:
        """Take note that a row covers a stream but for its last events, at the seqs in ``left``."""
        dirty = self._streams.dirty
        dirty.pop(number, None)
        if left:
            in_order = sorted([*dirty.items(), (number, left[0])], key=itemgetter(1))
            dirty.clear()
            dirty.update(in_order)

    def is_packing(self, slot: Slot) -> bool:
        """Return whether a row of a stream is under way."""
        return slot.number in self._underway

    def applied(self, head: int) -> Row:
        """Return the row that says up to which seq everything is covered once the waiting rows are stored."""
        return "checkpoints", APPLIED_KEY, SEQ.pack(self._streams.applied_seq(head))

    def rest(self, head: int, rows: list[Row]) -> Iterator[list[Row]]:
        """Return the rows to store, page by page, so that the next opening has no tail to scan.

        Every stream that is loaded and has events without a row gets one. The row that says so goes last: rows that
        were cut off before it only make the next opening slower.
        """
        for number in list(self._streams.dirty):
            slot = self._streams.loaded(number)
            if slot is not None:
                self._pack(slot, kept=False)
        rows += self._checkpoints.waiting()
        if rows:
            rows.append(self.applied(head))
        for begin in range(0, len(rows), CHECKPOINT_ROWS_MAX):
            yield rows[begin : begin + CHECKPOINT_ROWS_MAX]
        self._checkpoints.written()
