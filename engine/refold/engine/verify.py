"""Verification: every promise of the log checked against its bytes, and every cache against the fold."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from refold import fold
from refold.engine import history, streams, vectors
from refold.engine.cache import digests_of
from refold.engine.engine import Engine
from refold.engine.loader import Loader, events_of
from refold.engine.reader import HASH_KEY, STORE_ID_KEY, TAGS_KEY, answer_of
from refold.engine.streams import (
    APPLIED_KEY,
    NEXT_NUMBER_KEY,
    Checkpoint,
    Stream,
    Streams,
    checkpoint_of,
    covered_seq,
    key_named,
    key_of,
    number_key,
    number_of,
    place_in,
    records_through,
)
from refold.engine.walk import Page, Seen, Walk
from refold.errors import RefoldError, StoreCorrupt, StoreError
from refold.event import FLAG_BASE, Event, Recorded, Stamp
from refold.limits import (
    EVENT_OVERHEAD_BYTES,
    GRAPHS_READ_COUNT,
    HASH_KEY_BYTES,
    KEYED_HASH_BYTES,
    PAGE_EVENTS,
    STORE_ID_BYTES,
    STREAM_OVERHEAD_BYTES,
    VERIFY_PARTS_COUNT,
)
from refold.log.directory import WRITER_LOCK, directory_at, holds_store
from refold.log.lmdb_file import DATA_FILE, problems
from refold.log.lmdb_log import LmdbLog
from refold.log.protocol import Log, scan
from refold.log.record import SEQ, StreamHead
from refold.results import CACHE, DAMAGE, WRITER, Finding, Report

# The rows beside the log, held against what a walk over it has seen: names, erasures, sources, requests, meta.

_REQUEST_BYTES: Final = KEYED_HASH_BYTES + 2 * SEQ.size
_SIZES: Final = ((STORE_ID_KEY, STORE_ID_BYTES), (HASH_KEY, HASH_KEY_BYTES))
_TAGS: Final = msgspec.msgpack.Decoder(list[int])


def check_names(log: Log, seen: Seen) -> Iterator[Finding]:
    """Check that every stream has one number and every number one name."""
    numbers = {key_named(key): int.from_bytes(number, "big") for key, number in scan(log, "names", b"", PAGE_EVENTS)}
    given = Counter(numbers.values())
    named: dict[int, str] = {}
    for key, packed in scan(log, "streams", b"", PAGE_EVENTS):
        number = int.from_bytes(key, "big")
        try:
            name, branch = place_in(packed)
        except StoreCorrupt as error:
            yield Finding("names", 0, str(error), CACHE if number in given else DAMAGE)
            continue
        named[number] = key_of(branch, name)
        if number in seen.heads and seen.heads[number].branch != branch:
            problem = f"stream number {number} is of branch {branch}, its events are of another"
            yield Finding("names", 0, problem, WRITER if given[number] > 1 else DAMAGE)
    for number in sorted(seen.heads.keys() - named.keys()):
        problem = f"stream number {number} has events and no name"
        yield Finding("names", seen.heads[number].seq, problem, CACHE if number in given else DAMAGE)
    for number in sorted(named.keys() - seen.heads.keys()):
        yield Finding("names", 0, f"stream number {number} is named {named[number]!r}, and has no event", CACHE)
    for number, name in sorted(named.items()):
        if numbers.pop(name, None) != number:
            problem = f"stream number {number} is named {name!r}, which is that of another number"
            yield Finding("names", 0, problem, CACHE)
    for name, number in sorted(numbers.items()):
        yield Finding("names", 0, f"{name!r} has stream number {number}, which has another name", CACHE)
    following = int.from_bytes(log.row("meta", NEXT_NUMBER_KEY) or b"", "big")
    if named and following <= max(named):
        yield Finding("names", 0, f"the next stream would get the number {following} again", CACHE)


def check_erasures(_: Log, seen: Seen) -> Iterator[Finding]:
    """Check that the bodies that are gone are those that an event says were erased."""
    for seq in sorted(seen.marked - seen.erased):
        yield Finding("erasure", seq, "the body is gone, and no event says that it was erased")
    for seq in sorted(seen.erased - seen.marked):
        yield Finding("erasure", seq, "an event says that the body was erased, and it is still there")


def check_derived(log: Log, seen: Seen) -> Iterator[Finding]:
    """Check that the index of sources is that of the events."""
    stored = {key for key, _ in scan(log, "derived", b"", PAGE_EVENTS)}
    for key in sorted(stored ^ seen.derived):
        source, seq = SEQ.unpack(key[:8])[0], SEQ.unpack(key[8:])[0]
        problem = f"the index row from source {source} is missing or of no event"
        yield Finding("derived", seq, problem, CACHE)


def check_requests(log: Log, seen: Seen) -> Iterator[Finding]:
    """Check that each answered request names events of one command, or none."""
    head = len(seen.commands)
    for key, row in scan(log, "requests", b"", PAGE_EVENTS):
        if len(row) != _REQUEST_BYTES or len(key) != KEYED_HASH_BYTES:
            yield Finding("requests", 0, f"the request row {key.hex()} has {len(key)} and {len(row)} bytes")
            continue
        first, last = answer_of(row)
        problem = f"the request row {key.hex()} is answered by seqs {first} to {last}"
        if not first:
            if last > head:
                problem = f"the request row {key.hex()} says that nothing changed at seq {last}"
                yield Finding("requests", head, f"{problem}, and the log goes from 1 to {head}")
        elif not 0 < first <= last <= head:
            yield Finding("requests", min(first, head), f"{problem}, and the log goes from 1 to {head}")
        elif seen.commands[first - 1] != seen.commands[last - 1]:
            yield Finding("requests", first, f"{problem}, which are of several commands")


def check_meta(log: Log, seen: Seen) -> Iterator[Finding]:
    """Check what the store says of itself: its id, the key of its hashes, the tags that an older program must know."""
    for key, size in _SIZES:
        found = log.row("meta", key)
        if found is None or len(found) != size:
            held = "nothing" if found is None else f"{len(found)} bytes"
            yield Finding("meta", 0, f"the row {key.decode()} holds {held}, and should hold {size} bytes")
    tags = set(_TAGS.decode(log.row("meta", TAGS_KEY) or b"\x90"))
    for tag in sorted(seen.tags ^ tags):
        here, there = ("log", "list of tags") if tag in seen.tags else ("list of tags", "log")
        yield Finding("meta", 0, f"tag {tag} is in the {here}, and not in the {there}", CACHE)


def check_graphs(log: Log, seen: Seen) -> Iterator[Finding]:
    """Check that each stored graph is of a stream that has events, and is what was stored."""
    for key, blob in scan(log, "graphs", b"", GRAPHS_READ_COUNT):
        from refold.index.hnsw import is_intact  # noqa: PLC0415 - loads numpy, where a project has a graph

        number = int.from_bytes(key, "big")
        if number not in seen.heads:
            yield Finding("graphs", 0, f"a graph is stored for stream number {number}, which has no event", CACHE)
        elif not is_intact(blob):
            yield Finding("graphs", seen.heads[number].seq, f"the graph of stream number {number} is damaged", CACHE)


def check_vectors(log: Log, seen: Seen) -> Iterator[Finding]:
    """Check that each stored vector is of an event that has a body, and is what was stored."""
    head = len(seen.commands)
    for key, value in scan(log, "vectors", b"", PAGE_EVENTS):
        seq = int.from_bytes(key[: SEQ.size], "big")
        if not 0 < seq <= head or seq in seen.marked:
            problem = "erased" if seq in seen.marked else f"not there: the log goes from 1 to {head}"
            yield Finding("vectors", min(seq, head), f"a vector is stored for seq {seq}, which is {problem}", CACHE)
        elif vectors.opened(key, value) is None:
            yield Finding("vectors", seq, "the vector of the message is damaged", CACHE)


ROW_CHECKS: Final = (
    ("names", check_names, DAMAGE),
    ("erasure", check_erasures, DAMAGE),
    ("derived", check_derived, CACHE),
    ("meta", check_meta, CACHE),
    ("graphs", check_graphs, CACHE),
    ("vectors", check_vectors, CACHE),
)
"""The checks of any log, by the name of the finding for a row that cannot be read, and its fault."""


# Folding the whole log anew beside the walk, and holding every cache against it: checkpoints, digests, live states.
#
# A stream whose last event has a checkpoint row leaves RAM there. States of streams that do not fit into their part
# of ``memory_bytes`` together are left to another pass over the log.


UNREADABLE: Final = (RefoldError, *streams.UNREADABLE)


class _Stream:
    """One stream as folded so far."""

    __slots__ = ("digests", "events", "name", "row", "rows", "seqs", "state")

    def __init__(self, name: str, state: fold.State, rows: int) -> None:
        self.name = name
        self.state = state
        self.rows = rows
        """How many checkpoint rows are still to come."""
        self.row = 0
        """The seq of the last checkpoint row."""
        self.events: dict[int, tuple[Event, Stamp]] | None = {} if rows == 1 else None
        """The events before the only checkpoint row, by their seqs: streams of few events are most in many stores."""
        self.seqs: list[int] = []
        """The seqs of the events since the last kept row."""
        self.digests: tuple[int, list[tuple[str, bytes]]] = (0, [])
        """The digests of the views at a seq, if they were asked for."""

    def digests_at(self, seq: int) -> list[tuple[str, bytes]]:
        """Return the digests of the views at the event that was folded last."""
        if self.digests[0] != seq:
            self.digests = (seq, fold.digests(self.state))
        return self.digests[1]


class FoldCheck:
    """One fold of the whole log; takes the pages of a walk, and then what was left out in passes of its own."""

    def __init__(self, engine: Engine, zero: Callable[[], tuple[Streams, Loader]]) -> None:
        self._engine = engine
        self._from_zero = zero
        self._memory_bytes = engine.reader.memory_bytes // VERIFY_PARTS_COUNT
        self._streams: dict[int, _Stream] = {}
        self._weight = self._folded = self._folded_bytes = 0
        self._postponed: set[int] = set()
        self._wanted: set[int] | None = None
        """The streams of this pass, ``None``: all but those postponed."""
        self._rows: dict[int, int] = {}
        """Number of a stream -> how many checkpoint rows it has."""
        self._due: dict[int, int] = {}
        """Seq of a checkpoint row -> number of its stream."""
        self._held: set[int] = set()
        """The seqs of the checkpoint rows that are what they should be."""
        self._doubtful: set[int] = set()
        """Numbers of streams with two checkpoint rows where one can be."""
        self._digests_due: dict[int, int] = {}
        self._stops: set[int] = set()
        """The seqs at which something is cached."""
        self._applied = 0
        """Up to which seq checkpoint rows are said to cover every event."""
        self._findings: list[Finding] = []
        self.hashed: dict[int, list[tuple[str, bytes]]] = {}
        """Number of a stream -> the digests of its views at its last event."""
        self._left: dict[int, tuple[int, int]] = {}
        """Number of a stream -> version and seq at which it left RAM, because it should end there."""
        self._schedule()

    @cached_property
    def zero(self) -> tuple[Streams, Loader]:
        """Streams and loader that read the log without checkpoint rows; a base pointer or a doubtful row needs them."""
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
                self._findings.append(_stray(seq, number))
            self._digests_due[seq] = number
        self._stops = self._due.keys() | self._digests_due.keys()

    def take(self, page: Page) -> None:
        """Fold a page, and hold what is cached at its seqs against the states."""
        streams, stops, actors = self._streams, self._stops, self._engine.reader.loader.actors
        apply = fold.fold
        for (seq, number, version, time_ns, occurred_ns, cause, actor, flags), event in zip(
            page.rows, page.events, strict=True
        ):
            stream = streams.get(number) or self._begin(number)
            if stream is None:
                continue
            if flags & FLAG_BASE:
                stream.state = self.zero[1].base_state(event, stream.state.kind.name)
            stamp = Stamp(seq, stream.name, version, time_ns, occurred_ns, cause, actors[actor], flags)
            apply(stream.state, stamp, event)
            if stream.events is not None:
                stream.events[seq] = (event, stamp)
            stream.seqs.append(seq)
            if seq in stops:
                self._compare(number, stream, seq, version)
        page_bytes = page.nbytes + EVENT_OVERHEAD_BYTES * len(page.events)
        self._folded += len(page.events)
        self._folded_bytes += page_bytes
        self._weight += page_bytes
        if self._weight > self._memory_bytes:
            self._shed()

    def _begin(self, number: int) -> _Stream | None:
        """Return a stream as it is before its first event; ``None`` if it is not one of this pass."""
        if number in self._postponed if self._wanted is None else number not in self._wanted:
            return None
        if number in self._left:
            return None  # It goes on behind its head; ``finish`` says so.
        streams = self._engine.reader.streams
        name, state = streams.name_of(number), None
        if streams.branch_of(number):
            slot = self.zero[0].at_number(number)
            if slot.base is not None:
                state = self.zero[1].state_at(self.zero[0].at_number(slot.base[0]), slot.base[1])
        state = fold.empty(name.partition("/")[0]) if state is None else state
        self._streams[number] = found = _Stream(name, state, self._rows.get(number, 0))
        self._weight += STREAM_OVERHEAD_BYTES
        return found

    def _compare(self, number: int, stream: _Stream, seq: int, version: int) -> None:
        """Hold what is cached at the seq that was folded last against the state."""
        if self._due.get(seq) == number:
            self._compare_row(number, stream, seq, version)
        if self._digests_due.get(seq) == number:
            self._compare_digests(number, stream, seq)
        if not stream.rows and self._engine.reader.streams.at_number(number).seq == seq:
            self._findings += self._against_live(number, stream, (version, seq))
            self._left[number] = (version, seq)
            del self._streams[number]

    def _compare_row(self, number: int, stream: _Stream, seq: int, version: int) -> None:
        """Take note of a checkpoint row that is the state at its seq, and names the events since the last."""
        stream.rows -= 1
        stream.row = seq
        key = number_key(number) + SEQ.pack(seq)
        try:
            row = checkpoint_of(key, self._engine.reader.log.row("checkpoints", key) or b"")
            if (row.version, row.since) == (version, stream.seqs) and self._holds(stream, row):
                self._held.add(seq)
        except UNREADABLE:
            return  # Whoever looks at it closely says what it is.
        finally:
            stream.events = None
        if row.kept:
            stream.seqs = []

    def _holds(self, stream: _Stream, row: Checkpoint) -> bool:
        """Return whether a row holds the state: if it has the same bytes, it does.

        The last row of a stream, from which it is opened, is read as an opening reads it, whatever its bytes are.
        """
        if stream.rows and (row.inline, row.pointed) == fold.pack(stream.state):
            return True
        found = stream.events
        if found is None or not found.keys() >= set(row.pointed):
            located = self._engine.reader.loader.recorded(row.pointed)
        else:
            located = [Recorded(*found[seq]) for seq in row.pointed]
        cached = fold.unpack(stream.state.kind.name, row.inline, located)
        return fold.contents(cached) == fold.contents(stream.state)

    def _compare_digests(self, number: int, stream: _Stream, seq: int) -> None:
        del self._digests_due[seq]
        packed = self._engine.reader.log.row("digests", number_key(number)) or b""
        if digests_of(packed)[1] != stream.digests_at(seq):
            problem = f"the stored digests of {stream.name} are not those of the fold of its events"
            self._findings.append(Finding("digests", seq, problem, CACHE))

    # Memory.

    def _shed(self) -> None:
        """Weigh what is held; where it is too much, leave the streams that came last to another pass."""
        event_bytes = self._folded_bytes // self._folded
        weights = {number: _weight(stream, event_bytes) for number, stream in self._streams.items()}
        self._weight = sum(weights.values())
        while self._weight > self._memory_bytes // 2 and len(weights) > 1:
            number, weight = weights.popitem()
            self._weight -= weight
            del self._streams[number]
            self._postponed.add(number)
        # What a single stream takes, it takes.
        self._weight = min(self._weight, self._memory_bytes // 2)

    def finish(self, heads: Mapping[int, StreamHead]) -> Iterator[Finding]:
        """Yield the flaws of the caches: of the streams folded so far, and then of those left out."""
        yield from self._rest(heads)
        while self._postponed:
            self._wanted, self._postponed = self._postponed, set()
            self._weight = 0
            self._again(self._wanted)
            yield from self._rest(heads)
        for number, left in self._left.items():
            if heads[number][1:3] != left:
                yield _other_head(self._engine.reader.streams.at_number(number), heads[number][1:3])
        yield from self._findings
        for seq, number in sorted(self._digests_due.items()):
            yield _stray(seq, number)
        for number in sorted(self._doubtful.union(self._due[seq] for seq in self._due.keys() - self._held)):
            yield from self._closely(number)

    def _again(self, wanted: set[int]) -> None:
        """Take the events of the wanted streams once more."""
        for record in records_through(self._engine.reader.log, 0, self._engine.reader.head):
            if any(head.number in wanted for head in record.heads):
                pairs = zip(record.rows(), events_of(record), strict=True)
                found = [(row, event) for row, event in pairs if row[1] in wanted]
                nbytes = len(record.packed) * len(found) // record.count
                self.take(Page([row for row, _ in found], [event for _, event in found], nbytes))
                wanted -= self._postponed

    def _rest(self, heads: Mapping[int, StreamHead]) -> Iterator[Finding]:
        """Hold the streams that are still here against their live states, and let go of them."""
        for number, stream in self._streams.items():
            yield from self._against_live(number, stream, heads[number][1:3])
        self._streams = {}

    def _against_live(self, number: int, stream: _Stream, head: tuple[int, int]) -> Iterator[Finding]:
        self.hashed[number] = digests = stream.digests_at(head[1])
        live = self._engine.reader.streams.at_number(number)
        if (live.version, live.seq) != head:
            yield _other_head(live, head)
        elif uncovered := next((seq for seq in stream.seqs if stream.row < seq <= self._applied), 0):
            problem = f"no checkpoint row of {live.name} covers it, though they are said to reach up to {self._applied}"
            yield Finding("checkpoint", uncovered, problem, CACHE)
        elif live.state is not None and not _is_same(live.state, stream.state, digests):
            problem = f"the live state of {live.name} is not the replay of its events"
            yield Finding("replay", live.seq, problem, CACHE)

    def _closely(self, number: int) -> Iterator[Finding]:
        """Look closely at the checkpoint rows of a stream, one of which is not what it should be at first sight."""
        rows = list(scan(self._engine.reader.log, "checkpoints", number_key(number), PAGE_EVENTS))
        streams, loader = self.zero
        try:
            yield from _stream_rows(loader, streams.at_number(number), rows)
        except UNREADABLE as error:
            problem = f"what is stored cannot be read: {type(error).__name__}: {error}"
            yield Finding("checkpoint", SEQ.unpack(rows[0][0][4:])[0], problem, CACHE)


def _other_head(live: Stream, head: tuple[int, int]) -> Finding:
    return Finding("head", live.seq, f"{live.name} is at version {live.version}, its log at {head[0]}", CACHE)


def _stray(seq: int, number: int) -> Finding:
    problem = f"the digests of stream number {number} are of a seq that is no event of it"
    return Finding("digests", seq, problem, CACHE)


def _weight(stream: _Stream, event_bytes: int) -> int:
    """Return roughly the bytes of a stream in RAM: those of its checkpoint, and the events it points at."""
    inline, pointed = fold.pack(stream.state)
    return STREAM_OVERHEAD_BYTES + len(inline) + event_bytes * max(len(pointed), len(stream.events or ()))


def _is_same(live: fold.State, replayed: fold.State, digests: list[tuple[str, bytes]]) -> bool:
    return fold.contents(live) == fold.contents(replayed) or fold.digests(live) == digests


def _stream_rows(loader: Loader, slot: Stream, rows: list[tuple[bytes, bytes]]) -> Iterator[Finding]:
    """Fold a stream from its first event and compare at each checkpoint row."""
    checkpoints = [checkpoint_of(key, packed) for key, packed in rows]
    assert all(a.seq < b.seq for a, b in pairwise(checkpoints)), f"checkpoints of {slot.name} out of order"
    state, at = fold.empty(slot.kind), 0
    kept = slot.base[1] if slot.base is not None else 0
    for checkpoint in checkpoints:
        state = _advance(loader, slot, state, at, checkpoint.seq)
        at = checkpoint.seq
        cached = fold.unpack(slot.kind, checkpoint.inline, loader.recorded(checkpoint.pointed))
        if fold.digests(cached) != fold.digests(state):
            yield Finding("checkpoint", at, f"the checkpoint of {slot.name} is not the fold of its events", CACHE)
        # A row of a process that did not know of another's may reach back further; it must leave no gap.
        begin = min(kept, checkpoint.since[0] - 1) if checkpoint.since else kept
        since = list(loader.seqs_between(slot, begin, at))
        version = loader.recorded([at])[0].stamp.version
        if (checkpoint.version, checkpoint.since) != (version, since):
            problem = f"the checkpoint of {slot.name} names other events than those before it"
            yield Finding("checkpoint", at, problem, CACHE)
        kept = at if checkpoint.kept else kept


def _advance(loader: Loader, slot: Stream, state: fold.State, after: int, until: int) -> fold.State:
    seqs = list(loader.seqs_between(slot, after, until))
    for begin in range(0, len(seqs), PAGE_EVENTS):
        for event, stamp in loader.recorded(seqs[begin : begin + PAGE_EVENTS]):
            if type(event) in fold.BASE_TYPES:
                state = loader.base_state(event, slot.kind)
            fold.fold(state, stamp, event)
    return state


# Verification: every promise of the log checked against its bytes, and every cache against the fold.


class Inspection:
    """One walk over a log and its rows; ``findings`` says what is wrong."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._refold = partial(FoldCheck, engine, lambda: history.from_zero(engine, engine.reader.head))
        self._fold_check: FoldCheck | None = None
        self._failure: Finding | None = None
        """The error that kept the log from being folded anew."""
        self._seen = Seen()

    @property
    def streams(self) -> int:
        """How many streams have events, those of all branches together."""
        return len(self._seen.heads)

    @property
    def digests(self) -> dict[int, list[tuple[str, bytes]]]:
        """Number of a stream -> the digests of its views at its last event, as folded anew."""
        return {} if self._fold_check is None else self._fold_check.hashed

    def findings(self, progress: Callable[[int, int], None]) -> Iterator[Finding]:
        """Yield the flaws of the file, the chain and the records; without any, those of rows and states."""
        broken = False
        for finding in self._file_and_log(progress):
            broken = True
            yield finding
        if not broken:
            yield from readable("replay", self._states())

    def _file_and_log(self, progress: Callable[[int, int], None]) -> Iterator[Finding]:
        log, head = self._engine.reader.log, self._engine.reader.head
        problems = log.files.verify()
        if problems:
            # LMDB would follow the pointers of a damaged file, and take the process with it.
            yield from (Finding("file", 0, problem) for problem in problems)
            return
        try:
            self._fold_check = self._refold()
        except UNREADABLE as error:
            self._failure = unreadable("checkpoint", error, CACHE)
        walk = Walk(log, head, self._take)
        self._seen = walk.seen
        yield from readable("chain", walk.findings(progress))
        for check, findings, fault in ROW_CHECKS:
            yield from readable(check, findings(log, walk.seen), fault)

    def _take(self, page: Page) -> None:
        if self._failure is not None or self._fold_check is None:
            return
        try:
            self._fold_check.take(page)
        except UNREADABLE as error:
            self._failure = unreadable("replay", error)

    def _states(self) -> Iterator[Finding]:
        """Yield the flaws of the caches; the log itself is sound."""
        if self._failure is not None:
            yield self._failure
            return
        assert self._fold_check is not None, "nothing was folded, and nothing says why"
        yield from readable("requests", check_requests(self._engine.reader.log, self._seen))
        yield from readable("order", self._inherited(self._fold_check))
        yield from readable("checkpoint", self._applied(), CACHE)
        yield from self._fold_check.finish(self._seen.heads)

    def _inherited(self, check: FoldCheck) -> Iterator[Finding]:
        """Check that each stream of a branch goes on from the last event that it inherited."""
        for number, (seq, version, last) in self._seen.begins.items():
            streams, loader = check.zero
            base = streams.at_number(number).base
            inherited = (loader.recorded([base[1]])[0].stamp.version, base[1]) if base else (0, 0)
            if (version, last) != inherited:
                found = f"goes on from version {version} at seq {last}, and inherited version {inherited[0]}"
                yield Finding("order", seq, f"stream {number} {found} at seq {inherited[1]}", WRITER)

    def _applied(self) -> Iterator[Finding]:
        """Check that what says how far the checkpoint rows reach does not reach behind the head."""
        applied = covered_seq(self._engine.reader.log)
        if applied > self._engine.reader.head:
            problem = (
                f"checkpoint rows are said to reach up to seq {applied}, and the log ends at {self._engine.reader.head}"
            )
            yield Finding("checkpoint", self._engine.reader.head, problem, CACHE)


def readable(check: str, findings: Iterator[Finding], fault: str = DAMAGE) -> Iterator[Finding]:
    """Return the findings; damaged bytes fail to be read in many ways, and each of them is a finding too."""
    try:
        yield from findings
    except UNREADABLE as error:
        yield unreadable(check, error, fault)


def unreadable(check: str, error: Exception, fault: str = DAMAGE) -> Finding:
    """Return an error that reading damaged bytes has raised as a finding."""
    return Finding(check, 0, f"what is stored cannot be read: {type(error).__name__}: {error}", fault)


def verify(
    engine: Engine, branch: int, progress: Callable[[int, int], None] | None = None, witness: str | None = None
) -> Report:
    """Check the log, its rows and the live states, and return the report; writers of this process wait meanwhile.

    All branches are looked at, whichever one's hash is in the report. The log is held against the ``witness``, or
    against that of the engine.
    """
    with engine.exclusive(), engine.reader.state_lock:
        engine.reader.check_open()
        return engine.reader.log.in_snapshot(partial(_verified, engine, branch, progress or _silent, witness))


def _verified(engine: Engine, branch: int, progress: Callable[[int, int], None], witness: str | None) -> Report:
    engine.reader.notice()
    inspection = Inspection(engine)
    findings = (*_witnessed(engine, witness), *inspection.findings(progress))
    hashed = "" if findings else _state_hash(engine, branch, inspection.digests)
    return Report.of(findings, events=engine.reader.head, streams=inspection.streams, state_hash=hashed)


def _state_hash(engine: Engine, branch: int, digests: Mapping[int, list[tuple[str, bytes]]]) -> str:
    """Return the state hash of a branch whose streams were folded anew; a fork inherits some of them."""
    if branch:
        return history.state_hash(engine, branch, None)
    streams = engine.reader.streams
    return history.hash_of(
        (streams.name_of(number), digests[number]) for number in digests if not streams.branch_of(number)
    )


def _witnessed(engine: Engine, path: str | None) -> Sequence[Finding]:
    """Compare the log with a witness, the given one or the engine's own, and return the findings."""
    if path is None and engine.witness is not None:
        path = engine.witness.path
    if path is None:
        return ()
    from refold.engine import witness  # noqa: PLC0415 - loaded only by those who ask

    return witness.findings(engine.reader, path)


def report_of(path: str, reason: StoreError, progress: Callable[[int, int], None] | None = None) -> Report:
    """Return the report on a store whose opening has raised ``reason``, the first finding; it is never sound.

    States are not looked at: those are held against a log that is sound. Raises the reason where that is no damage:
    there never was a store, or it is of a newer format.
    """
    if not (isinstance(reason, StoreCorrupt) or was_store(path)):
        raise reason
    found: list[Finding] = []
    events = streams = 0
    try:
        log = LmdbLog(directory_at(path, readonly=True, seed={}))
    except StoreError:
        # It is the file itself that LMDB must not be let near.
        found += readable("file", _file_findings(path))
        if not found and not isinstance(reason, StoreCorrupt):
            raise reason from None
    else:
        try:
            walk = Walk(log, 0)
            found += log.in_snapshot(lambda: list(readable("chain", _log_findings(log, walk, progress or _silent))))
            events, streams = walk.head, len(walk.seen.heads)
        finally:
            log.close()
    # Where the log is sound and still cannot be opened, what is kept beside it is at fault.
    concluded = Report.of(found, events=events, streams=streams, state_hash="")
    opening = Finding("opening", 0, str(reason), concluded.fault or (CACHE if streams else DAMAGE))
    return Report.of([opening, *found], events=events, streams=streams, state_hash="")


MANIFEST_FILE: Final = "backup.json"
"""The file of a backup with its description."""


def was_store(path: str) -> bool:
    """Return whether a store was at a path, whatever its file holds now: somebody wrote to it, or it is a backup."""
    return any(Path(path, name).exists() for name in (WRITER_LOCK, MANIFEST_FILE))


def _file_findings(path: str) -> Iterator[Finding]:
    if not holds_store(path):
        yield Finding("file", 0, f"{DATA_FILE} is gone")
        return
    for problem in problems(path):
        yield Finding("file", 0, problem)


def _log_findings(log: LmdbLog, walk: Walk, progress: Callable[[int, int], None]) -> Iterator[Finding]:
    structure = log.files.verify()
    if structure:
        yield from (Finding("file", 0, problem) for problem in structure)
        return
    walk.head = log.head()
    yield from walk.findings(progress)
    for check, findings, fault in ROW_CHECKS:
        yield from readable(check, findings(log, walk.seen), fault)


def _silent(_done: int, _whole: int) -> None:
    """Report no progress."""
