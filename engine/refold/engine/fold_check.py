"""A fold of the whole log beside a walk over it, compared with every cache: checkpoints, digests, live states.

A stream whose last event has a checkpoint row is dropped from RAM there. If the states do not fit into their share of
``memory_bytes`` together, some streams are left to another pass over the log.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Final

from refold import fold
from refold.engine import streams
from refold.engine.cache import digests_of
from refold.engine.engine import Engine
from refold.engine.loader import Loader
from refold.engine.streams import (
    APPLIED_KEY,
    Checkpoint,
    Stream,
    Streams,
    checkpoint_of,
    covered_seq,
    number_key,
    number_of,
    records_through,
)
from refold.engine.walk import Page
from refold.errors import RefoldError, StoreCorrupt
from refold.event import FLAG_BASE, Event, Recorded, Stamp
from refold.limits import EVENT_OVERHEAD_BYTES, PAGE_EVENTS, STREAM_OVERHEAD_BYTES, VERIFY_PARTS_COUNT
from refold.log.protocol import scan
from refold.log.record import SEQ, Record
from refold.results import CACHE, Finding

UNREADABLE: Final = (RefoldError, *streams.UNREADABLE)


class _StreamFold:
    """One stream as folded so far."""

    __slots__ = ("digests", "events", "name", "row", "rows", "seqs", "state")

    def __init__(self, name: str, state: fold.State, rows: int) -> None:
        self.name = name
        self.state = state
        self.rows = rows
        """Number of checkpoint rows that are still to come."""
        self.row = 0
        """The seq of the last checkpoint row."""
        self.events: dict[int, tuple[Event, Stamp]] | None = {} if rows == 1 else None
        """The events up to the only checkpoint row, by seq; in many stores, most streams have few events."""
        self.seqs: list[int] = []
        """The seqs of the events since the last kept row."""
        self.digests: tuple[int, list[tuple[str, bytes]]] = (0, [])
        """The digests of the views at a seq, if they were needed."""

    def digests_at(self, seq: int) -> list[tuple[str, bytes]]:
        """Return the digests of the views at the event folded last."""
        if self.digests[0] != seq:
            self.digests = (seq, fold.digests(self.state))
        return self.digests[1]


class FoldCheck:
    """One fold of the whole log: it takes the pages of a walk, then reads the streams left out in passes of its own.

    With several ``parts``, each check folds and compares its own streams, by their numbers.
    """

    def __init__(
        self, engine: Engine, zero: Callable[[], tuple[Streams, Loader]], part: int = 0, parts: int = 1
    ) -> None:
        self._engine = engine
        self._from_zero = zero
        self._part, self._parts = part, parts
        self._memory_bytes = engine.reader.memory_bytes // VERIFY_PARTS_COUNT
        self._streams: dict[int, _StreamFold] = {}
        self._weight = self._folded = self._folded_bytes = 0
        self._postponed: set[int] = set()
        self._wanted: set[int] | None = None
        """The streams of this pass; ``None`` means all but those postponed."""
        self._rows: dict[int, int] = {}
        """Number of a stream -> number of its checkpoint rows."""
        self._due: dict[int, int] = {}
        """Seq of a checkpoint row -> number of its stream."""
        self._held: set[int] = set()
        """Seqs of the checkpoint rows that are correct."""
        self._doubtful: set[int] = set()
        """Numbers of streams that have checkpoint rows at the same seq, where there can be only one."""
        self._digests_due: dict[int, int] = {}
        self._stops: set[int] = set()
        """The seqs at which something is cached."""
        self._applied = 0
        """The seq up to which checkpoint rows are said to cover every event."""
        self._findings: list[Finding] = []
        self.hashed: dict[int, list[tuple[str, bytes]]] = {}
        """Number of a stream -> the digests of its views at its last event."""
        self._left: dict[int, tuple[int, int]] = {}
        """Number of a stream -> version and seq at which it was dropped from RAM, because it should end there."""
        self._schedule()

    @cached_property
    def zero(self) -> tuple[Streams, Loader]:
        """Streams and a loader that read the log without checkpoint rows, for base pointers and doubtful rows."""
        return self._from_zero()

    def _schedule(self) -> None:
        """Record the seqs of checkpoint rows and digests."""
        self._applied = covered_seq(self._engine.reader.log)
        for key, _ in scan(self._engine.reader.log, "checkpoints", b"", PAGE_EVENTS):
            if len(key) != len(APPLIED_KEY):
                self._findings.append(Finding("checkpoint", 0, f"{key.hex()} is no key of a checkpoint row", CACHE))
            elif key != APPLIED_KEY:
                number, seq = number_of(key), SEQ.unpack(key[4:])[0]
                self._doubtful |= {number, self._due[seq]} if seq in self._due else set()
                self._due[seq] = number
                self._rows[number] = self._rows.get(number, 0) + 1
        for key, packed in scan(self._engine.reader.log, "digests", b"", PAGE_EVENTS):
            try:
                number, seq = int.from_bytes(key, "big"), digests_of(packed)[0]
            except StoreCorrupt as error:
                self._findings.append(Finding("digests", 0, str(error), CACHE))
                continue
            if seq in self._digests_due:
                self._findings.append(_stray_finding(seq, number))
            self._digests_due[seq] = number
        self._due = {seq: number for seq, number in self._due.items() if self._is_own(number)}
        self._digests_due = {seq: number for seq, number in self._digests_due.items() if self._is_own(number)}
        self._doubtful = set(filter(self._is_own, self._doubtful))
        self._stops = self._due.keys() | self._digests_due.keys()

    def _is_own(self, number: int) -> bool:
        return number % self._parts == self._part

    def take_own(self, record: Record) -> dict[int, tuple[int, int]]:
        """Fold the own streams in a record that the walk leaves out; return the versions and seqs that they reach."""
        return self._take_some(record, {head.number for head in record.heads if self._is_own(head.number)})

    def _take_some(self, record: Record, wanted: Collection[int]) -> dict[int, tuple[int, int]]:
        numbers, stamps = record.numbers, self._stamps(record)
        places = [place for place, number in enumerate(numbers) if number in wanted]
        arrays = record.arrays
        found = [(numbers[place], stamps[place], fold.decode(arrays[place])) for place in places]
        self._fold(found, len(record.packed) * len(found) // record.count, len(found))
        return {number: (stamp.version, stamp.seq) for number, stamp, _ in found}

    def _stamps(self, record: Record) -> list[Stamp]:
        reader = self._engine.reader
        return reader.loader.stamps(record, reader.streams.name_of)

    def take(self, page: Page) -> None:
        """Fold a page, and compare everything cached at its seqs with the states."""
        record, events = page
        part, parts = self._part, self._parts
        found = zip(record.numbers, self._stamps(record), events, strict=True)
        own = found if parts == 1 else (each for each in found if each[0] % parts == part)
        self._fold(own, len(record.packed), len(events))

    def _fold(self, found: Iterable[tuple[int, Stamp, Event]], nbytes: int, count: int) -> None:
        streams, stops, apply = self._streams, self._stops, fold.fold
        for number, stamp, event in found:
            stream = streams.get(number) or self._begin(number)
            if stream is None:
                continue
            if stamp.flags & FLAG_BASE:
                stream.state = self.zero[1].base_state(event, stream.state.kind.name)
            apply(stream.state, stamp, event)
            seq = stamp.seq
            if stream.events is not None:
                stream.events[seq] = (event, stamp)
            stream.seqs.append(seq)
            if seq in stops:
                self._compare(number, stream, seq, stamp.version)
        page_bytes = nbytes + EVENT_OVERHEAD_BYTES * count
        self._folded += count
        self._folded_bytes += page_bytes
        self._weight += page_bytes
        if self._weight > self._memory_bytes:
            self._shed()

    def _begin(self, number: int) -> _StreamFold | None:
        """Return a stream as it is before its first event, or ``None`` if this pass leaves it out."""
        if number in self._postponed if self._wanted is None else number not in self._wanted:
            return None
        if number in self._left:
            return None  # It continues after its head; ``finish`` reports that.
        streams = self._engine.reader.streams
        name, state = streams.name_of(number), None
        if streams.branch_of(number):
            stream = self.zero[0].at_number(number)
            if stream.base is not None:
                state = self.zero[1].state_at(self.zero[0].at_number(stream.base[0]), stream.base[1])
        state = fold.empty(name.partition("/")[0]) if state is None else state
        self._streams[number] = found = _StreamFold(name, state, self._rows.get(number, 0))
        self._weight += STREAM_OVERHEAD_BYTES
        return found

    def _compare(self, number: int, stream: _StreamFold, seq: int, version: int) -> None:
        """Compare everything cached at the seq folded last with the state."""
        if self._due.get(seq) == number:
            self._compare_row(number, stream, seq, version)
        if self._digests_due.get(seq) == number:
            self._compare_digests(number, stream, seq)
        if not stream.rows and self._engine.reader.streams.at_number(number).seq == seq:
            self._findings += self._compare_live(number, stream, (version, seq))
            self._left[number] = (version, seq)
            del self._streams[number]

    def _compare_row(self, number: int, stream: _StreamFold, seq: int, version: int) -> None:
        """Record a row as correct if it holds the state at its seq and names the events since the last kept row."""
        stream.rows -= 1
        stream.row = seq
        key = number_key(number) + SEQ.pack(seq)
        try:
            row = checkpoint_of(key, self._engine.reader.log.row("checkpoints", key) or b"")
            if (row.version, row.since) == (version, stream.seqs) and self._holds(stream, row):
                self._held.add(seq)
        except UNREADABLE:
            return  # A closer check reports the problem.
        finally:
            stream.events = None
        if row.kept:
            stream.seqs = []

    def _holds(self, stream: _StreamFold, row: Checkpoint) -> bool:
        """Return whether a row holds the state, which is certain if it has the same bytes.

        The last row of a stream, from which it is opened, is read as an opening reads it, whatever its bytes are.
        """
        if stream.rows and (row.inline, row.pointed) == fold.pack(stream.state):
            return True
        found = stream.events
        if found is None or not found.keys() >= set(row.pointed):
            located = self._engine.reader.loader.recorded_events(row.pointed)
        else:
            located = [Recorded(*found[seq]) for seq in row.pointed]
        cached = fold.unpack(stream.state.kind.name, row.inline, located)
        return fold.contents(cached) == fold.contents(stream.state)

    def _compare_digests(self, number: int, stream: _StreamFold, seq: int) -> None:
        del self._digests_due[seq]
        packed = self._engine.reader.log.row("digests", number_key(number)) or b""
        if digests_of(packed)[1] != stream.digests_at(seq):
            problem = f"the stored digests of {stream.name} are not those of the fold of its events"
            self._findings.append(Finding("digests", seq, problem, CACHE))

    # Memory.

    def _shed(self) -> None:
        """Weigh the streams in RAM; if they are too large, leave those that came last to another pass."""
        event_bytes = self._folded_bytes // self._folded
        weights = {number: _weight(stream, event_bytes) for number, stream in self._streams.items()}
        self._weight = sum(weights.values())
        while self._weight > self._memory_bytes // 2 and len(weights) > 1:
            number, weight = weights.popitem()
            self._weight -= weight
            del self._streams[number]
            self._postponed.add(number)
        # A single stream can take as much as it needs.
        self._weight = min(self._weight, self._memory_bytes // 2)

    def finish(self, heads: Mapping[int, tuple[int, int]]) -> Iterator[Finding]:
        """Yield the flaws of the caches: of the streams folded so far, then of those left out."""
        yield from self._compare_rest(heads)
        while self._postponed:
            self._wanted, self._postponed = self._postponed, set()
            self._weight = 0
            self._refold(self._wanted)
            yield from self._compare_rest(heads)
        for number, left in self._left.items():
            if heads[number] != left:
                yield _head_finding(self._engine.reader.streams.at_number(number), heads[number])
        yield from self._findings
        for seq, number in sorted(self._digests_due.items()):
            yield _stray_finding(seq, number)
        for number in sorted(self._doubtful.union(self._due[seq] for seq in self._due.keys() - self._held)):
            yield from self._check_rows(number)

    def _refold(self, wanted: set[int]) -> None:
        """Read and fold the events of the wanted streams again."""
        for record in records_through(self._engine.reader.log, 0, self._engine.reader.head):
            if not wanted.isdisjoint(head.number for head in record.heads):
                self._take_some(record, wanted)
                wanted -= self._postponed

    def _compare_rest(self, heads: Mapping[int, tuple[int, int]]) -> Iterator[Finding]:
        """Compare the streams still in RAM with their live states, and drop them."""
        for number, stream in self._streams.items():
            yield from self._compare_live(number, stream, heads[number])
        self._streams = {}

    def _compare_live(self, number: int, stream: _StreamFold, head: tuple[int, int]) -> Iterator[Finding]:
        self.hashed[number] = digests = stream.digests_at(head[1])
        live = self._engine.reader.streams.at_number(number)
        if (live.version, live.seq) != head:
            yield _head_finding(live, head)
        elif uncovered := next((seq for seq in stream.seqs if stream.row < seq <= self._applied), 0):
            problem = f"no checkpoint row of {live.name} covers it, though they are said to reach up to {self._applied}"
            yield Finding("checkpoint", uncovered, problem, CACHE)
        elif live.state is not None and not _is_same(live.state, stream.state, digests):
            problem = f"the live state of {live.name} is not the replay of its events"
            yield Finding("replay", live.seq, problem, CACHE)

    def _check_rows(self, number: int) -> Iterator[Finding]:
        """Check the checkpoint rows of a stream closely, because one of them looked wrong."""
        rows = list(scan(self._engine.reader.log, "checkpoints", number_key(number), PAGE_EVENTS))
        streams, loader = self.zero
        try:
            yield from _row_findings(loader, streams.at_number(number), rows)
        except UNREADABLE as error:
            problem = f"what is stored cannot be read: {type(error).__name__}: {error}"
            yield Finding("checkpoint", SEQ.unpack(rows[0][0][4:])[0], problem, CACHE)


def _head_finding(live: Stream, head: tuple[int, int]) -> Finding:
    return Finding("head", live.seq, f"{live.name} is at version {live.version}, its log at {head[0]}", CACHE)


def _stray_finding(seq: int, number: int) -> Finding:
    problem = f"the digests of stream number {number} are of a seq that is no event of it"
    return Finding("digests", seq, problem, CACHE)


def _weight(stream: _StreamFold, event_bytes: int) -> int:
    """Return the approximate size of a stream in RAM: its checkpoint, and the events that it points at."""
    inline, pointed = fold.pack(stream.state)
    return STREAM_OVERHEAD_BYTES + len(inline) + event_bytes * max(len(pointed), len(stream.events or ()))


def _is_same(live: fold.State, replayed: fold.State, digests: list[tuple[str, bytes]]) -> bool:
    return fold.contents(live) == fold.contents(replayed) or fold.digests(live) == digests


def _row_findings(loader: Loader, stream: Stream, rows: list[tuple[bytes, bytes]]) -> Iterator[Finding]:
    """Fold a stream from its first event, and compare it with each checkpoint row."""
    checkpoints = [checkpoint_of(key, packed) for key, packed in rows]
    assert all(a.seq < b.seq for a, b in pairwise(checkpoints)), f"checkpoints of {stream.name} out of order"
    state, at = fold.empty(stream.kind), 0
    kept = stream.base[1] if stream.base is not None else 0
    for checkpoint in checkpoints:
        state = _advance(loader, stream, state, at, checkpoint.seq)
        at = checkpoint.seq
        cached = fold.unpack(stream.kind, checkpoint.inline, loader.recorded_events(checkpoint.pointed))
        if fold.digests(cached) != fold.digests(state):
            yield Finding("checkpoint", at, f"the checkpoint of {stream.name} is not the fold of its events", CACHE)
        # A row by a process that did not know another's may reach back further, but it must leave no gap.
        begin = min(kept, checkpoint.since[0] - 1) if checkpoint.since else kept
        since = list(loader.seqs_between(stream, begin, at))
        version = loader.recorded_events([at])[0].stamp.version
        if (checkpoint.version, checkpoint.since) != (version, since):
            problem = f"the checkpoint of {stream.name} names other events than those before it"
            yield Finding("checkpoint", at, problem, CACHE)
        kept = at if checkpoint.kept else kept


def _advance(loader: Loader, stream: Stream, state: fold.State, after: int, until: int) -> fold.State:
    seqs = list(loader.seqs_between(stream, after, until))
    for begin in range(0, len(seqs), PAGE_EVENTS):
        for event, stamp in loader.recorded_events(seqs[begin : begin + PAGE_EVENTS]):
            if type(event) in fold.BASE_TYPES:
                state = loader.base_state(event, stream.kind)
            fold.fold(state, stamp, event)
    return state
