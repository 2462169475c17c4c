"""Keeping checkpoints: when a stream gets a row, and how the tail of the log stays short."""

from collections.abc import Iterator
from itertools import islice

from refold import fold
from refold.engine.checkpoints import APPLIED_KEY, Checkpoint, Checkpoints
from refold.engine.loader import Loader
from refold.engine.slots import Slot
from refold.engine.streams import Streams
from refold.limits import CHECKPOINT_EVENTS, CHECKPOINT_ROWS_MAX, TAIL_EVENTS_MAX
from refold.store.protocol import Log, Row
from refold.store.record import SEQ


class Keeper:
    """Packs states into checkpoint rows; what it packs waits in ``Checkpoints`` for the next commit."""

    def __init__(self, log: Log, streams: Streams, checkpoints: Checkpoints, loader: Loader) -> None:
        self._log = log
        self._streams = streams
        self._checkpoints = checkpoints
        self._loader = loader
        self.tail_due = 0
        """The seq up to which the tail is within its bound for certain."""

    def folded(self, slot: Slot) -> None:
        """Take note that an event of the stream was folded; pack a kept row where one is due."""
        dirty = self._streams.dirty
        if slot.number not in dirty:
            dirty[slot.number] = slot.seq
        if len(slot.seqs) >= (slot.due or CHECKPOINT_EVENTS):
            self._pack(slot, kept=True)

    def rebased(self, slot: Slot) -> None:
        """Pack a kept row where a stream went on from another place: no later read has to walk there again.

        That of a fork waits for the first event that is its own: making a fork builds no state.
        """
        if slot.state is None:
            slot.due = len(slot.seqs) + 1
        else:
            self._pack(slot, kept=True)

    def settle(self, slot: Slot) -> None:
        """Pack a row for a stream that is about to leave RAM."""
        self._pack(slot, kept=False)

    def shorten_tail(self, head: int, count: int) -> None:
        """Pack up to ``count`` streams, those that have waited longest, once the tail is over its bound.

        A slice with each commit: who writes never waits for the whole tail.
        """
        self.tail_due = self._streams.applied_seq(head) + TAIL_EVENTS_MAX
        if head > self.tail_due:
            for number in list(islice(self._streams.dirty, count)):
                self._pack(self._streams.at_number(number), kept=False)

    def _pack(self, slot: Slot, *, kept: bool) -> None:
        self._streams.dirty.pop(slot.number, None)
        if not slot.seqs:
            return  # A kept row stands at the stream's last event; the tail, scanned after a crash, could not know it.
        inline, pointed = fold.pack(self._loader.live(slot))
        row = Checkpoint(slot.seq, slot.version, kept, inline, pointed, list(slot.seqs))
        self._checkpoints.put(slot.number, row, replaces=slot.floating)
        slot.floating = 0 if kept else slot.seq
        if kept:
            slot.seqs, slot.due = [], row.due
            self._streams.bytes += slot.weigh(len(inline), len(pointed))

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
