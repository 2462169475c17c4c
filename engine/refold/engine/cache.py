"""The cache of streams: checkpoint rows and digests on their way into the log, and the states that stay in RAM.

The weight of a stream in RAM is the size of the data read or written to bring it there, an estimate that ``Streams``
keeps as a running sum. Above the bound, streams that were not used recently are evicted at their checkpoint; they are
loaded again from rows and tail on demand. Which streams are in RAM changes no answer.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from refold import fold
from refold.engine.loader import Loader
from refold.engine.packed import packed_rows_key
from refold.engine.streams import APPLIED_KEY, Checkpoint, Checkpoints, Stream, Streams, number_key
from refold.errors import RefoldError, StoreCorrupt
from refold.limits import (
    CHECKPOINT_ROWS_MAX,
    EVENT_OVERHEAD_BYTES,
    FROZEN_STATES_MAX,
    LOADED_PARTS_COUNT,
    PACKED_SLICE_COUNT,
    RELIEVED_COUNT,
    STREAM_OVERHEAD_BYTES,
    TAIL_EVENTS_MAX,
)
from refold.log.protocol import Log, Row
from refold.log.record import SEQ
from refold.threads import enter_once, forkable_lock

if TYPE_CHECKING:
    from refold.index.index import Indexes

# Digests of the views of live streams: computed when a hash is requested, kept until the stream moves, and stored.
#
# A stored digest is a cache, like a checkpoint: with it, hashing a store loads only the streams that have moved since.

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE_DIGESTS: Final = msgspec.msgpack.Decoder(tuple[int, list[tuple[str, bytes]]]).decode


def digests_of(packed: bytes) -> tuple[int, list[tuple[str, bytes]]]:
    """Return the seq and the digests in a stored row."""
    try:
        return _DECODE_DIGESTS(packed)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorrupt(
            f"a row of digests cannot be read ({error}); run `refold verify` and restore a backup"
        ) from error


class Digests:
    """The digests of all streams: those stored, and those computed since the last flush."""

    def __init__(self, log: Log, streams: Streams, loader: Loader) -> None:
        self._log = log
        self._streams = streams
        self._loader = loader
        self._fresh: dict[int, Stream] = {}

    def of(self, stream: Stream) -> list[tuple[str, bytes]]:
        """Return the digests of a stream's views at its last event."""
        if stream.base is not None and not stream.number:
            elder = self._streams.at_number(stream.base[0])
            if elder.seq != stream.seq:
                return fold.digests(self._loader.live(stream))
            stream = elder
        if stream.digest is None:
            row = self._log.row("digests", number_key(stream.number))
            stream.digest = None if row is None else digests_of(row)
        if stream.digest is None or stream.digest[0] != stream.seq:
            stream.digest = (stream.seq, fold.digests(self._loader.live(stream)))
            self._fresh[stream.number] = stream
        return stream.digest[1]

    def take(self) -> list[Row]:
        """Return rows for the digests computed since the last call, if their streams have not moved since."""
        fresh, self._fresh = self._fresh, {}
        return [
            ("digests", number_key(stream.number), _ENCODE(stream.digest))
            for stream in fresh.values()
            if stream.digest is not None and stream.digest[0] == stream.seq
        ]


# Keeping checkpoints: when a stream gets a row, and how the tail of the log stays short.


class _PendingRow(NamedTuple):
    """A row that is being packed, with its stream and the stream's position when packing began."""

    stream: Stream
    seq: int
    version: int
    events_count: int
    """Number of events since the last kept row of the stream, when packing began."""
    kept: bool
    packing: fold.Packing


class CheckpointPacker:
    """Packs states into checkpoint rows, which wait in ``Checkpoints`` for the next commit."""

    def __init__(self, log: Log, streams: Streams, checkpoints: Checkpoints, loader: Loader) -> None:
        self._log = log
        self._streams = streams
        self._checkpoints = checkpoints
        self._loader = loader
        self.underway: dict[int, _PendingRow] = {}
        """Rows being packed, by stream number; each commit packs another slice."""
        self.tail_due = 0
        """The seq up to which the tail is certainly within its bound."""

    def keep(self, stream: Stream) -> None:
        """Start packing the kept row that is due for a stream."""
        if stream.number not in self.underway:
            self._begin(stream, kept=True)

    def keep_base(self, stream: Stream) -> None:
        """Start packing a kept row after a fork or a restore, so that no later read has to walk to its base again.

        The row of a fork waits for the first event of its own, because making a fork builds no state.
        """
        if stream.state is None:
            stream.due = len(stream.seqs) + 1
        else:
            self._begin(stream, kept=True)

    def settle(self, stream: Stream) -> None:
        """Pack a row for a stream at once, so that every event of it is covered."""
        self._pack(stream, kept=False)

    def settle_slice(self, stream: Stream) -> bool:
        """Pack a slice of a row for a stream that is about to be evicted; return whether eviction can go ahead."""
        if stream.number not in self.underway:
            self._begin(stream, kept=False)
        else:
            self._step(stream.number)
        return stream.number not in self._streams.dirty

    def proceed(self, count: int) -> None:
        """Continue packing the streams that have waited longest, after a commit of ``count`` events was folded.

        Each commit packs only slices, so that no writer waits for the whole of a large state.
        """
        steps = 1 + 2 * count // PACKED_SLICE_COUNT
        while steps and self.underway:
            self._step(next(iter(self.underway)))
            steps -= 1

    def shorten_tail(self, head: int, count: int) -> None:
        """Start packing up to ``count`` streams, longest waiting first, once the tail is over its bound.

        Each commit packs only some of them, so that no writer waits for the whole tail.
        """
        self.tail_due = self._streams.applied_seq(head) + TAIL_EVENTS_MAX
        if head > self.tail_due:
            for number in list(islice(self._streams.dirty, count)):
                if number not in self.underway:
                    self._begin(self._streams.at_number(number), kept=False)

    def _pack(self, stream: Stream, *, kept: bool) -> None:
        """Pack a row at once."""
        self._begin(stream, kept=kept)
        while stream.number in self.underway:
            self._step(stream.number)

    def _begin(self, stream: Stream, *, kept: bool) -> None:
        """Start packing a row of the current state, with the first slice at once; drop a row already underway."""
        self.underway.pop(stream.number, None)
        if not stream.seqs:
            # The last event has a kept row already; the tail, when scanned after a crash, could not know that.
            self._streams.dirty.pop(stream.number, None)
            return
        packing = fold.Packing(self._loader.live(stream))
        underway = _PendingRow(stream, stream.seq, stream.version, len(stream.seqs), kept, packing)
        if packing.is_done:
            self._put(underway)
        else:
            self.underway[stream.number] = underway

    def _step(self, number: int) -> None:
        """Pack the next slice of a row, and put the row once that was the last slice."""
        underway = self.underway[number]
        underway.packing.step()
        if underway.packing.is_done:
            self._put(self.underway.pop(number))

    def _put(self, packed: _PendingRow) -> None:
        stream, count = packed.stream, packed.events_count
        inline, pointed = packed.packing.result()
        row = Checkpoint(packed.seq, packed.version, packed.kept, inline, pointed, stream.seqs[:count])
        self._checkpoints.put(stream.number, row, replaces=stream.floating)
        stream.floating = 0 if packed.kept else packed.seq
        self._cover(stream.number, stream.seqs[count:])
        if packed.kept:
            stream.seqs, stream.due = stream.seqs[count:], row.due
            self._streams.bytes += stream.weigh(len(inline), len(pointed))

    def _cover(self, number: int, left: Sequence[int]) -> None:
        """Record that a row covers a stream except for its last events, at the seqs in ``left``."""
        dirty = self._streams.dirty
        dirty.pop(number, None)
        if left:
            dirty[number] = left[0]
            self.sort_dirty()

    def sort_dirty(self) -> None:
        """Sort the streams that have uncovered events by the first of these."""
        dirty = self._streams.dirty
        in_order = sorted(dirty.items(), key=itemgetter(1))
        dirty.clear()
        dirty.update(in_order)

    def is_packing(self, stream: Stream) -> bool:
        """Return whether a row of a stream is being packed."""
        return stream.number in self.underway

    def applied_seq_row(self, head: int) -> Row:
        """Return the row with the seq up to which every event is covered once the waiting rows are stored."""
        return "checkpoints", APPLIED_KEY, SEQ.pack(self._streams.applied_seq(head))

    def remaining_rows(self, head: int, rows: list[Row]) -> Iterator[list[Row]]:
        """Return the rows to store, page by page, so that the next opening has no tail to scan.

        Every loaded stream that has uncovered events gets a row. The row that says how far the rows reach goes last: if
        an interruption prevents it, the next opening is only slower.
        """
        for number in list(self._streams.dirty):
            stream = self._streams.loaded_stream(number)
            if stream is not None:
                self._pack(stream, kept=False)
        rows += self._checkpoints.waiting
        if rows:
            rows.append(self.applied_seq_row(head))
        for begin in range(0, len(rows), CHECKPOINT_ROWS_MAX):
            yield rows[begin : begin + CHECKPOINT_ROWS_MAX]
        self._checkpoints.clear_waiting()


T = TypeVar("T")


class LazyIndex:
    """The index of the memories' vectors and words, built at the first search, dropped when the log is read again."""

    def __init__(self, make: Callable[[], "Indexes"]) -> None:
        self._make = make
        self._lock = forkable_lock()
        self._indexes: Indexes | None = None
        self.is_torn = False
        """Whether a change to its rows was interrupted; they are then dropped before the next use."""

    @property
    def indexes(self) -> "Indexes":
        """The index, built if there is none."""
        if self.is_torn:
            self.forget()
        indexes = self._indexes
        if indexes is None:
            with enter_once(self._lock):
                indexes = self._indexes = self._indexes or self._make()
        return indexes

    def guard(self, use: Callable[[], T]) -> T:
        """Call `use`, which reads or changes rows, and return its result.

        Any exception except ``RefoldError`` marks the rows as torn.
        """
        try:
            return use()
        except RefoldError:
            raise
        except BaseException:
            self.is_torn = True
            raise

    @property
    def nbytes(self) -> int:
        """Size of the index in RAM, in bytes."""
        return 0 if self._indexes is None else self._indexes.nbytes

    def forget(self) -> None:
        """Drop everything and stop the threads of the index."""
        indexes, self._indexes = self._indexes, None
        self.is_torn = False
        if indexes is not None:
            indexes.close()

    def disown(self) -> None:
        """Drop everything in a forked child: the threads exist only in the parent."""
        self._indexes = None

    def graph_rows(self) -> list[Row]:
        """Return the graphs and packed rows that the store does not have yet; the caller holds the state lock."""
        if self._indexes is None:
            return []
        graphs: list[Row] = [("graphs", number_key(number), blob) for number, blob in self._indexes.new_graphs()]
        return graphs + [("graphs", packed_rows_key(number), block) for number, block in self._indexes.new_rows()]


class FrozenStates:
    """The most recently read states of streams at earlier seqs, within a share of the RAM that all states may use.

    The last one stays, however large it is, so that reading it again does not rebuild it.
    """

    def __init__(self, loader: Loader, bytes_max: int) -> None:
        self._loader = loader
        self._bytes_max = bytes_max
        self._states: OrderedDict[tuple[int, int], tuple[fold.State, int]] = OrderedDict()
        self.bytes = 0
        """Total weight of the states, in bytes."""

    def at(self, stream: Stream, seq: int) -> fold.State:
        """Return the state of a stream at one of its own seqs, building it if it is not cached.

        It is built from the state read before, if that is one of the same stream a little earlier: whoever follows a
        stream reads one state after the other.
        """
        place = (stream.number, seq)
        found = self._states.get(place)
        if found is not None:
            self._states.move_to_end(place)
            return found[0]
        loader = self._loader
        loader.bytes_read = loader.events_read = 0
        state, weight = None, STREAM_OVERHEAD_BYTES
        (number, after), (earlier, earlier_weight) = next(reversed(self._states.items()), ((0, 0), (None, 0)))
        if earlier is not None and number == stream.number and after < seq:
            state, weight = loader.state_after(stream, earlier, after, seq), earlier_weight
        if state is None:
            state, weight = loader.state_at(stream, seq), STREAM_OVERHEAD_BYTES
        weight += loader.bytes_read + loader.events_read * EVENT_OVERHEAD_BYTES
        self._states[place] = state, weight
        self.bytes += weight
        while len(self._states) > 1 and (self.bytes > self._bytes_max or len(self._states) > FROZEN_STATES_MAX):
            _, (_, weight) = self._states.popitem(last=False)
            self.bytes -= weight
        return state


class StreamEviction:
    """Eviction by a clock hand that cycles through the streams in RAM and evicts those not used since its last pass.

    This is second chance instead of an LRU list: a touch sets one attribute and takes no lock.

    One stream that takes most of the room is spared, so that it is not reloaded at every use, and the others keep a
    share of the room. It is evicted once loads have read more events since its last use than it holds: the others then
    need the room more.
    """

    def __init__(
        self,
        log: Log,
        streams: Streams,
        packer: CheckpointPacker,
        index: LazyIndex,
        bytes_max: int,
        frozen: FrozenStates | None = None,
    ) -> None:
        self._log = log
        self._frozen = frozen
        self._spared: Stream | None = None
        self._spared_at = 0
        """Number of events that all loads had read when the spared stream was last used."""
        self._relieved = 0
        """Number of loads and evictions of streams when the log last released the pages it had read."""
        self._streams = streams
        self._packer = packer
        self._index = index
        self._bytes_max = bytes_max
        self.share_bytes = bytes_max // LOADED_PARTS_COUNT
        """The bytes that streams can always take; below that, nothing is evicted."""

    @property
    def is_over(self) -> bool:
        """Whether streams should be evicted."""
        spared = self._spared
        least = self.share_bytes if spared is None else spared.weight + self.share_bytes
        return self._streams.bytes > least and self._streams.bytes > self._room

    @property
    def _room(self) -> int:
        """The bytes available to streams: the bound less the other caches in RAM, but never less than the share."""
        frozen_bytes = 0 if self._frozen is None else self._frozen.bytes
        return max(self._bytes_max - self._index.nbytes - frozen_bytes, self.share_bytes)

    def _spare(self, stream: Stream | None) -> None:
        """Spare a stream from now on, or none."""
        self._spared, self._spared_at = stream, self._streams.events_loaded

    def _is_spared(self, stream: Stream) -> bool:
        """Decide whether a stream is spared: a used one that takes most of the room is, unless another already is."""
        if stream.is_used and self._spared in (None, stream) and 2 * stream.weight > self._room:
            self._spare(stream)
        elif stream is self._spared and self._streams.events_loaded - self._spared_at > stream.events_count:
            self._spare(None)
        return stream is self._spared

    def trim(self, count: int) -> None:
        """Evict up to ``count`` streams; never while a commit is underway, because it may be writing to one of them."""
        queue = self._streams.queue
        passes = 2 * len(queue)
        while self.is_over and count and passes:
            stream = queue.popleft()
            passes -= 1
            if self._is_spared(stream) or stream.is_used:
                stream.is_used = False
                queue.append(stream)
            elif self._evict(stream):
                count -= 1
            elif self._packer.is_packing(stream):
                queue.appendleft(stream)
                return  # It is large and will be evicted soon, so no other has to be.
            else:
                queue.append(stream)

    def release_pages(self) -> None:
        """Occasionally make the log release the pages it has read: mapped pages count as memory of this process."""
        if self._streams.traffic - self._relieved >= RELIEVED_COUNT:
            self._relieved = self._streams.traffic
            self._log.files.release_memory()

    def _evict(self, stream: Stream) -> bool:
        """Evict a stream if a row covers its last event or can be packed to do so; return whether it was evicted."""
        if stream.number in self._streams.dirty:
            if stream.state is None:
                return False
            if not self._packer.settle_slice(stream):
                return False
        if stream is self._spared:
            self._spare(None)
        self._streams.forget(stream)
        return True
