"""Folding a log that has no checkpoint rows, and storing those that its writers would have stored."""

from refold import fold
from refold.engine.checkpoints import Checkpoints
from refold.engine.core import Engine
from refold.engine.keeper import Keeper
from refold.engine.loader import Loader
from refold.engine.residents import Residents
from refold.engine.streams import Streams
from refold.event import FLAG_BASE, Event, Stamp
from refold.limits import CHECKPOINT_ROWS_MAX, EVENT_OVERHEAD_BYTES, EVICTED_COUNT_MIN, PACKED_COUNT_MIN, PAGE_EVENTS


class Rebuild:
    """One fold of a whole log, page by page; streams leave RAM on the way as they do while a store is written to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._log = engine.log
        self._checkpoints = Checkpoints(self._log)
        self._streams = Streams(self._log, self._checkpoints)
        self._loader = Loader(self._log, self._streams, self._checkpoints)
        self._keeper = Keeper(self._log, self._streams, self._checkpoints, self._loader)
        self._residents = Residents(self._log, self._streams, self._keeper, engine.kept, engine.memory_bytes)

    def run(self) -> None:
        """Store every row; the engine knows of them afterwards. A program that does not know all events stores none."""
        if self._engine.unknown_tags:
            return
        head, seq = self._log.head(), 0
        while seq < head:
            self._loader.bytes_read = 0
            page = self._loader.numbered(seq + 1, min(PAGE_EVENTS, head - seq))
            weight = self._loader.bytes_read // len(page) + EVENT_OVERHEAD_BYTES
            for number, event, stamp in page:
                self._fold(number, event, stamp, weight)
            seq += len(page)
            self._tidy_up(seq, len(page))
        for rows in self._keeper.rest(head, []):
            self._log.write_rows(rows)
        self._engine.reload()

    def _fold(self, number: int, event: Event, stamp: Stamp, weight: int) -> None:
        slot = self._streams.at_number(number)
        if not slot.seq and slot.base is not None:
            slot.stand(0, slot.base[1])  # The first event of a branch's stream goes on from what that inherited.
        is_base = stamp.flags & FLAG_BASE
        slot.state = self._loader.base_state(event, slot.kind) if is_base else self._loader.live(slot)
        fold.fold(slot.state, stamp, event)
        slot.stand(stamp.version, stamp.seq)
        slot.seqs.append(stamp.seq)
        slot.is_used = True
        slot.held += 1
        slot.weight += weight
        self._streams.bytes += weight
        self._keeper.folded(slot)
        if is_base:
            self._keeper.rebased(slot)

    def _tidy_up(self, seq: int, count: int) -> None:
        """Keep RAM within its bound, and store what waits."""
        if self._residents.is_over:
            self._residents.trim(max(EVICTED_COUNT_MIN, 2 * count))
            self._residents.relieve()
        self._keeper.proceed(count)
        if seq > self._keeper.tail_due:
            self._keeper.shorten_tail(seq, max(PACKED_COUNT_MIN, 2 * count))
        waiting = self._checkpoints.waiting()
        if len(waiting) >= CHECKPOINT_ROWS_MAX:
            self._log.write_rows([*waiting, self._keeper.applied(seq)])
            self._checkpoints.written()
