"""Reads: everything that an engine knows of its log, and the state of any stream of any branch, live or at a seq.

States change only when events are folded, under the state lock, once the log has reported them as durable. Reads take
only the state lock, so they never wait for a disk.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from refold import fold
from refold.engine.cache import CheckpointPacker, Digests, FrozenStates, LazyIndex, StreamEviction
from refold.engine.loader import Lens, Loader
from refold.engine.observer import Observer
from refold.engine.packed import packed_rows_key, terms_key
from refold.engine.streams import (
    STORE_STREAM,
    CheckpointGaps,
    Checkpoints,
    Ids,
    Names,
    Stream,
    Streams,
    covered_seq,
    kind_of,
    number_key,
    records_of,
    records_through,
    reports_damage,
)
from refold.entry import changed_ids
from refold.errors import Closed, InvalidInput, ReadOnly, RefoldError, logger
from refold.event import FLAG_OCCURRED, Erased, Event, Forked, Recorded, Restored
from refold.limits import (
    CHANGED_EVENTS_COUNT,
    CLOCK_BEHIND_NS,
    EVICTED_COUNT_MIN,
    FROZEN_PARTS_COUNT,
    KEYED_HASH_BYTES,
    PAGE_EVENTS,
    SETTLE_COUNT_MAX,
    TIME_NS_MAX,
)
from refold.log.protocol import Log, Row
from refold.log.record import BRANCH, MARK_COMMAND, NO_LINK, SEQ, Record, keyed_hash
from refold.threads import forkable_lock
from refold.views.facts import FACTS
from refold.views.store import SETTINGS, Branch

if TYPE_CHECKING:
    from refold.index.index import Indexes
    from refold.index.messages import KnownMessages
    from refold.index.packed import PackedArrays

T = TypeVar("T")

# Times to seqs and back: every event of a record has the time of its commit.


def check_time(time_ns: int) -> int:
    """Return the time of a clock; raise ``InvalidInput`` if a record cannot hold it."""
    if not -TIME_NS_MAX <= time_ns <= TIME_NS_MAX:
        raise InvalidInput(
            f"clock_ns returned {time_ns}, beyond the 64 bits of a time in nanoseconds; give another clock"
        )
    return time_ns


def seq_at_time(log: Log, head: int, time_ns: int) -> int:
    """Return the last seq that was acknowledged at or before a time, or 0 if there is none, by bisection."""
    low, high = 0, head
    while low < high:
        record = record_at(log, (low + high + 1) // 2)
        if record.time_ns <= time_ns:
            low = record.last_seq
        else:
            high = record.first_seq - 1
    return min(low, head)


def clock_at_seq(log: Log, seq: int) -> int:
    """Return what the clock showed when ``seq`` was written, as ``clock_of`` says, or 0 for seq 0."""
    if not seq:
        return 0
    record = record_at(log, seq)
    place = seq - record.first_seq
    return record.time_ns if record.flags[place] & FLAG_OCCURRED else record.occurred_ns[place]


_HOURS_SHOWN: Final = 48  # From here on in days.


def warning_of_clock(newest_ns: int, clock_ns: int) -> str:
    """Return what it means that the newest event is ahead of the clock; empty unless it is far ahead."""
    ahead_ns = newest_ns - clock_ns
    if ahead_ns <= CLOCK_BEHIND_NS:
        return ""
    hours = ahead_ns // (3_600 * 10**9)
    span = f"{hours} h" if hours < _HOURS_SHOWN else f"{hours // 24:,} days"
    return (
        f"the newest event is {span} ahead of this machine's clock: either this clock is wrong, or the one that dated "
        f"the event was. Until this clock has caught up, new events happen when it says, and at(datetime) finds them "
        f"only at the time of that event; if this clock is wrong, set it"
    )


def end_of_command(log: Log, seq: int) -> int:
    """Return the last seq of the command that wrote ``seq``."""
    head = log.head()
    while True:
        record = record_at(log, seq)
        for place, mark in enumerate(record.marks):
            if mark & MARK_COMMAND and record.first_seq + place > seq:
                return record.first_seq + place - 1
        if record.last_seq >= head or record_at(log, record.last_seq + 1).marks[0] & MARK_COMMAND:
            return record.last_seq
        seq = record.last_seq + 1


@reports_damage
def record_at(log: Log, seq: int) -> Record:
    """Return the record that holds an event."""
    return records_of(log, seq - 1, seq)[0]


class Request(NamedTuple):
    """A caller's request id and the content of the request, both as keyed hashes."""

    id_hash: bytes
    content_hash: bytes
    """The hash of the verb, ``VERB_BYTES`` long, followed by that of the whole request."""
    elders: tuple[tuple[bytes, int], ...] = ()
    """In a branch: the hashes of the id in its ancestors, each with the seq up to which answers there count."""

    def fits(self, row: bytes) -> bool:
        """Return whether a row answers this request; one that lost its content hash answers any request of its verb."""
        return row[:KEYED_HASH_BYTES] in (self.content_hash, self.content_hash[:VERB_BYTES] + FORGOTTEN)


def answer_of(row: bytes) -> tuple[int, int]:
    """Return the first and the last seq of a request's answer, or 0 and the head at that time if nothing changed."""
    first, last = (SEQ.unpack_from(row, KEYED_HASH_BYTES + offset)[0] for offset in (0, SEQ.size))
    return first, last


class RequestTaken(InvalidInput):
    """A request id was used for another request."""


def request_taken_error() -> RequestTaken:
    """Return the error for a request id that is taken."""
    return RequestTaken("this request_id was used for another request; give each request an id of its own")


VERB_BYTES: Final = 4
FORGOTTEN: Final = bytes(KEYED_HASH_BYTES - VERB_BYTES)
"""The zeros that replace the content hash of a request once one of its events is erased."""

STORE_ID_KEY: Final = b"store_id"
HASH_KEY: Final = b"hash_key"
TAGS_KEY: Final = b"tags"
MOVED_KEY: Final = b"moved"
"""The key of the row that says where this memory was moved to; a moved memory takes no more writes."""
UNSWEPT_KEY: Final = b"unswept"
"""The key of the row that marks erased bytes that a server may still hold; its value is the last erasure's seq."""


class Reader:
    """Everything that the memory knows of one log, and every read of it."""

    def __init__(
        self,
        log: Log,
        *,
        clock_ns: Callable[[], int],
        random_bytes: Callable[[int], bytes],
        memory_bytes: int,
        lens: Lens | None = None,
    ) -> None:
        self.log = log
        self.lens = lens
        """In a scenario, gives the events to fold in place of those in the log."""
        self.memory_bytes = memory_bytes
        self.clock_ns = clock_ns
        self.random_bytes = random_bytes
        self.state_lock = forkable_lock()
        self.index = LazyIndex(self._new_index)
        self._warned_of_clock = False
        self.closed = ""
        """Why the memory can no longer be used, with the next step; follows "this memory". Empty while it can."""
        self.new_id = Ids(random_bytes).new
        self.is_writing = False
        """Whether this process is between the start of its turn at the log and the fold of what it wrote."""
        self.ring: Callable[[], None] | None = None
        """Called after a commit of this process was folded; ``None`` without subscribers."""
        self.follow: Callable[[Iterable[Stream], int], None] | None = None
        """Called with the streams and the first seq of each such commit; ``None`` if nothing follows commits."""
        self.observer: Observer | None = None
        self.more_rows: Callable[[], list[Row]] = list
        """Called for rows of caches that wait in the layers above; the caller holds the state lock."""
        self.restart()

    @reports_damage
    def restart(self, uncovered: CheckpointGaps | None = None) -> None:
        """Read the end of the log: last commit, tail, keys; ``uncovered`` has the events an erasure left uncovered."""
        self.is_torn, self.is_writable = True, False
        """Whether a change of RAM was interrupted: RAM then holds no valid state, and the next call reads it again."""
        last_commit = self.log.last_commit()
        self.head = self.log.head()
        self.checkpoints = Checkpoints(self.log)
        self.streams = Streams(self.log, self.checkpoints)
        # The seqs and versions in rows are the same in every scenario; the states in them are valid in none.
        rows = self.checkpoints if self.lens is None else Checkpoints(None)
        self.loader = Loader(self.log, self.streams, rows, self.lens, self.observer)
        self.packer = CheckpointPacker(self.log, self.streams, self.checkpoints, self.loader)
        self.frozen = FrozenStates(self.loader, self.memory_bytes // FROZEN_PARTS_COUNT)
        self.eviction = StreamEviction(self.log, self.streams, self.packer, self.index, self.memory_bytes, self.frozen)
        self.streams.reach = self._reach
        if uncovered is None:
            uncovered = CheckpointGaps(covered_seq(self.log), {})
        self.streams.scan_tail(uncovered, self.head)
        self.store_id = self.log.row("meta", STORE_ID_KEY) or b""
        self._hash_key = self.log.row("meta", HASH_KEY) or b""
        self._looked_at: dict[tuple[int, int, int, str], fold.State] = {}
        """The base that a thread read last, by thread, stream, seq and kind; only that thread folds events onto it."""
        self.head_digests = Digests(self.log, self.streams, self.loader)
        self.index.forget()
        self._read_marks()
        self.last_commit = last_commit
        """The number of the last commit known here; any other in the log was made by another process."""
        self.is_torn = False

    def _read_marks(self) -> None:
        """Read what moves with the log's head: its last record, the next number of a stream, the tags it holds."""
        self.link, self.time_ns = NO_LINK, 0
        if self.head:
            last = record_at(self.log, self.head)
            self.link, self.time_ns = last.link, last.time_ns
        self.streams.renumber()
        self.tags: set[int] = set(msgspec.msgpack.decode(self.log.row("meta", TAGS_KEY) or b"\x90", type=list[int]))
        self.types_written = {fold.EVENT_TYPES[tag] for tag in self.tags if fold.is_known(tag)}
        """The event types whose tags are in the store's list of tags."""
        self.unknown_tags = sorted(tag for tag in self.tags if not fold.is_known(tag))
        self.moved = (self.log.row("meta", MOVED_KEY) or b"").decode()
        """Where this memory was moved to; empty if it was not moved."""
        self.is_writable = not (self.closed or self.log.readonly or self.unknown_tags or self.moved)
        """Whether events can be appended; ``check_writable`` says why not."""

    # The sources of nondeterminism.

    def now_ns(self) -> int:
        """Return the time at which an event appended now would happen: that of the clock, if it is far behind."""
        clock_ns = check_time(self.clock_ns())
        if self.time_ns - clock_ns > CLOCK_BEHIND_NS:
            self.warn_of_clock(clock_ns)
            return clock_ns
        return max(clock_ns, self.time_ns)

    def warn_of_clock(self, clock_ns: int) -> None:
        """Log once that the newest event is far ahead of the clock."""
        if not (self._warned_of_clock or self.log.readonly):
            self._warned_of_clock = True
            logger().warning(warning_of_clock(self.time_ns, clock_ns))

    def keyed_hash(self, content: bytes) -> bytes:
        """Return a hash that reveals nothing outside this store."""
        return keyed_hash(self._hash_key, content)

    # Reads.

    @property
    def is_closed(self) -> bool:
        """Whether this engine can no longer be used."""
        return bool(self.closed)

    def check_open(self) -> None:
        """Raise ``Closed`` after ``close``; if RAM holds no valid state, read the log again."""
        if self.closed:
            raise Closed(f"this memory {self.closed}")
        if self.is_torn or self.streams.is_torn:
            with self.state_lock:
                if self.is_torn or self.streams.is_torn:
                    self.restart()

    def check_writable(self) -> None:
        """Raise ``Closed`` or ``ReadOnly`` unless events can be appended."""
        self.check_open()
        if self.log.readonly:
            raise ReadOnly("this memory is read-only; open the store without readonly=True to change it")
        if self.moved:
            raise ReadOnly(f"this memory was moved to {self.moved}; open it there to change it")
        if self.unknown_tags:
            raise ReadOnly(
                f"the store holds events of tags {self.unknown_tags} that this refold does not know; upgrade it"
            )

    def read(self, name: str, query: Callable[[fold.State], T], at: int | None = None) -> T:
        """Apply ``query`` to a stream's state, live or at a seq, and return the result, which must be a copy."""
        if self.is_writing:
            self._await_fold()
        with self.state_lock:
            self.check_open()
            self.notice()
            file = self.log.file
            try:
                stream = self.streams.find(name)
                if stream is None:
                    return query(fold.empty(kind_of(name)))
                stream.is_used = True
                answer = query(self.live(stream) if at is None or at >= stream.seq else self._frozen_state(stream, at))
            except RefoldError:
                if self.log.file == file:
                    raise
            else:
                if self.log.file == file:
                    self._evict_streams()
                    return answer
            self.is_torn = True  # As in `from_one_file`.
            return self.read(name, query, at)

    def from_one_file(self, use: Callable[[], T]) -> T:
        """Return the result of ``use``, whose reads must all be from one file; otherwise call it again.

        Another handle of this process has a state lock of its own, and an erasure through it replaces the file.
        """
        if self.is_writing:
            self._await_fold()
        with self.state_lock:
            while True:
                self.check_open()
                self.notice()
                file = self.log.file
                try:
                    result = use()
                except RefoldError:
                    if self.log.file == file:
                        raise
                else:
                    if self.log.file == file:
                        return result
                self.is_torn = True

    def _evict_streams(self) -> None:
        """Evict streams if too many are in RAM; not while a commit may be writing to one of them."""
        try:
            if self.eviction.is_over and not self.is_writing:
                self.eviction.trim(EVICTED_COUNT_MIN)
            self.eviction.release_pages()
        except BaseException:
            self.is_torn = True
            raise

    def find(self, name: str) -> Stream | None:
        """Return a stream as it is known here, or ``None`` if there is none."""
        stream = self.streams.peek(name)
        if stream is None:
            with self.state_lock:
                self.check_open()
                stream = self.streams.find(name)
        return stream

    def live(self, stream: Stream) -> fold.State:
        """Return the live state of a stream, loading it if it is not in RAM."""
        state = stream.state
        if state is None:
            with self.state_lock:
                state = self.loader.live(stream)
        return state

    def _frozen_state(self, stream: Stream, at: int) -> fold.State:
        place = self.streams.place(stream, at)
        if not place[1]:
            return fold.empty(stream.kind)
        return self.frozen.at(self.streams.at_number(place[0]), place[1])

    def _new_index(self) -> "Indexes":
        from refold.index.index import Indexes, IndexSource  # noqa: PLC0415 - loaded only for a search

        return Indexes(
            IndexSource(
                name=self.store_id.hex(),
                readonly=self.log.readonly,
                memory_bytes=self.memory_bytes,
                state_lock=self.state_lock,
                load_vectors=self.loader.vectors,
                stream=self._peek_stream,
                place=self._place,
                graph=self._graph,
                store_graph=self._store_graph,
                rows=self._packed_rows,
                changed=self._changed_ids,
            )
        )

    def _peek_stream(self, key: str) -> Stream | None:
        return self.streams.peek(key)

    def _graph(self, number: int) -> bytes | None:
        return self.log.row("graphs", number_key(number))

    def _store_graph(self, number: int, blob: bytes) -> None:
        self.checkpoints.keep(("graphs", number_key(number), blob))

    def _packed_rows(self, number: int) -> "PackedArrays | None":
        from refold.index.packed import unpack  # noqa: PLC0415 - as above

        return self.log.read_row("graphs", packed_rows_key(number), unpack)

    def known_messages(self, page: int) -> "KnownMessages | None":
        """Return the stored terms of the messages on a page of the log, or ``None`` if none can be read."""
        from refold.index.messages import KnownMessages  # noqa: PLC0415 - as above
        from refold.index.packed import UnfitRows  # noqa: PLC0415 - as above

        try:
            return self.log.read_row("graphs", terms_key(page), KnownMessages)
        except (UnfitRows, LookupError, ValueError):
            return None

    def _changed_ids(self, number: int, after: int, until: int) -> list[str] | None:
        """Return the ids of memories changed by a stream's events between two seqs; ``None`` if too many or unknown."""
        with self.state_lock:
            between = self.loader.seqs_between(self.streams.at_number(number), after, until)
            seqs = list(islice(between, CHANGED_EVENTS_COUNT + 1))
        if after > until or len(seqs) > CHANGED_EVENTS_COUNT:
            return None
        ids: dict[str, None] = {}
        for event in self.loader.events(seqs):
            changed = changed_ids(event) if type(event) in FACTS.handlers else ()
            if changed is None or type(event) in fold.BASE_TYPES:
                return None
            ids |= dict.fromkeys(changed)
        return list(ids)

    def _place(self, key: str, seq: int) -> tuple[int, int]:
        stream = self.streams.peek(key)
        assert stream is not None, key
        return self.streams.place(stream, seq)

    @property
    def indexes(self) -> "Indexes":
        """The indexes of all projects."""
        return self.index.indexes

    def _await_fold(self) -> None:
        """Wait for this process's own commit to be folded if another process has already committed after it.

        Otherwise a read could miss events that the other process has acknowledged. The wait takes microseconds. It is
        bounded because the caller may hold the state lock, which the fold has to wait for.
        """
        tries = SETTLE_COUNT_MAX
        while self.is_writing and tries and self.log.last_commit() != self.last_commit:
            time.sleep(0)
            tries -= 1

    def notice(self) -> None:
        """Fold the events that other processes have written since the last call.

        Does nothing while this process writes: no other process can then, and the committing thread folds what it
        writes.
        """
        with self.state_lock:
            if not self.is_writing and self.log.last_commit() != self.last_commit:
                self.catch_up()

    @reports_damage
    def catch_up(self) -> None:
        """Fold the events after the head known here, all at once, so that no read sees half of a commit."""
        try:
            self.checkpoints.is_shared = True
            last_commit = self.log.last_commit()
            head = self.log.head()
            if self.head < head:
                while self.head < head:
                    self.loader.bytes_read = 0
                    page = self.loader.numbered_events(self.head, head)
                    if any(isinstance(event, Erased) for _, event, _ in page):
                        self.restart()  # Nothing that was erased is kept.
                        return
                    event_bytes = self.loader.bytes_read // len(page)
                    for number, event, stamp in page:
                        self.streams.fold_foreign(number, event, stamp, event_bytes)
                    self.head = page[-1][2].seq
                self._read_marks()
            elif self.moved or self.log.row("meta", MOVED_KEY) is not None:
                self._read_marks()
            self.last_commit = last_commit
        except BaseException:
            self.is_torn = True
            raise

    def _reach(self, seq: int) -> None:
        """Catch up with the process that stored a row for a seq not known here yet."""
        if seq > self.head:
            self.catch_up()

    def stream(self, name: str) -> Stream | None:
        """Return a stream with everything that other processes wrote so far, or ``None`` if there is none."""
        if self.is_writing:
            self._await_fold()
        with self.state_lock:
            self.check_open()
            self.notice()
            return self.streams.find(name)

    def version(self, name: str) -> int:
        """Return the version of a stream, or 0 if there is none."""
        stream = self.stream(name)
        return 0 if stream is None else stream.version

    def last_seq(self, name: str, at: int | None) -> int:
        """Return the seq of a stream's last event at or before ``at``, or 0 if there is none."""
        with self.state_lock:
            stream = self.stream(name)
            if stream is None:
                return 0
            last = stream.seq if at is None else self.loader.last_seq(stream, at)
            if self.lens is not None and not self.lens.has(stream.name):
                last = 0
            self._evict_streams()
            return last

    def events(
        self, name: str, after: int, until: int | None = None, *, first_page: int = PAGE_EVENTS
    ) -> Iterator[Recorded]:
        """Return the events of a stream with ``after < seq <= until``; without ``until``, up to the current head.

        They are read in pages, and a small first page suits a caller that wants only a few.
        """
        return self._events(name, after, self.current_head() if until is None else until, first_page)

    def _events(self, name: str, after: int, until: int, count: int) -> Iterator[Recorded]:
        while True:
            with self.state_lock:
                stream = self.stream(name)
                if stream is None:
                    return
                between = self.loader.seqs_between(stream, after, min(until, stream.seq))
                page = self.loader.recorded_events(list(islice(between, count)))
            if not page:
                return
            yield from page
            after, count = page[-1].stamp.seq, min(4 * count, PAGE_EVENTS)

    def events_back(self, name: str, after: int, until: int) -> Iterator[Recorded]:
        """Return the events of a stream with ``after < seq <= until``, last one first."""
        with self.state_lock:
            stream = self.stream(name)
            seqs = [] if stream is None else list(self.loader.seqs_between(stream, after, min(until, stream.seq)))
        while seqs:
            with self.state_lock:
                self.check_open()
                page = self.loader.recorded_events(seqs[-PAGE_EVENTS:])
            del seqs[-PAGE_EVENTS:]
            yield from reversed(page)

    def all_events(self, after: int, until: int | None, branch: int = 0) -> Iterator[Recorded]:
        """Return all events of a branch with ``after < seq <= until``; without ``until``, up to the current head."""
        return self._all_events(after, self.current_head() if until is None else until, branch)

    def _all_events(self, after: int, until: int, branch: int) -> Iterator[Recorded]:
        while after < until:
            page, after = self.page(after, until, branch)
            yield from page

    def bounds(self, branch: int, until: int) -> dict[int, int] | None:
        """Return, by branch, the seq up to which its events count in ``branch``; ``None`` if nothing was forked."""
        with self.state_lock:
            self.check_open()
            return self.streams.bounds(branch, until) if branch or self.loader.branches() else None

    def digests_of(self, name: str, at: int | None) -> list[tuple[str, bytes]]:
        """Return the digests of a stream's views, live or at a seq; empty if there is no stream."""
        with self.state_lock:
            stream = self.stream(name)
            if stream is None:
                return []
            if at is not None and at < stream.seq:
                digests = fold.digests(self._frozen_state(stream, at))
            else:
                digests = self.head_digests.of(stream)
            self._evict_streams()
            return digests

    def page(self, after: int, until: int, branch: int = 0) -> tuple[list[Recorded], int]:
        """Return the first page of a branch's events with ``after < seq <= until``, and the seq that it reaches."""
        with self.state_lock:
            self.check_open()
            return self.loader.page(after, until, self.bounds(branch, until))

    def current_head(self) -> int:
        """Return the seq of the last event, including those of other processes."""
        if self.is_writing:
            self._await_fold()
        with self.state_lock:
            self.check_open()
            self.notice()
            return self.head

    def stored_head(self) -> int:
        """Return the seq of the last event, including those of other processes, without folding anything.

        For a closed memory, this is the last seq that was known.
        """
        if self.closed or self.log.last_commit() == self.last_commit:
            return self.head
        return max(self.head, self.log.head())

    # Lookups for a commit.

    def find_answer(self, request: Request) -> Recorded | None:
        """Return the last event of an answered request, ``None`` if nothing changed; ``LookupError`` if unanswered."""
        first, last = self._answer_seqs(request)
        return self.loader.recorded_events([last])[0] if first else None

    def answer_events(self, request: Request) -> list[Event]:
        """Return all events of a request that was answered before."""
        first, last = self._answer_seqs(request)
        return [event for event, _ in self.loader.recorded_events(range(first, last + 1))] if first else []

    def unchanged_seq(self, request: Request) -> int:
        """Return the seq at which an answered request changed nothing."""
        return self._answer_seqs(request)[1]

    def is_answered(self, request: Request) -> bool:
        """Return whether a request was answered before."""
        try:
            self._answer_seqs(request)
        except LookupError:
            return False
        return True

    def _answer_seqs(self, request: Request) -> tuple[int, int]:
        row = self.log.row("requests", request.id_hash) or self._inherited_answer(request)
        if row is None:
            raise LookupError
        if not request.fits(row):
            raise request_taken_error()
        return answer_of(row)

    def _inherited_answer(self, request: Request) -> bytes | None:
        """Return the row of a request that was answered before the branch was forked."""
        for id_hash, until in request.elders:
            row = self.log.row("requests", id_hash)
            if row is not None and answer_of(row)[1] <= until:
                return row
        return None

    def base_state(self, event: Forked | Restored, kind: str) -> fold.State:
        """Return the state that a fork or a restore starts from: the one looked at last, or a newly built one."""
        place = (threading.get_ident(), event.base_stream, event.base_seq, kind)
        with self.state_lock:
            return self._looked_at.pop(place, None) or self.loader.base_state(event, kind)

    def look_at_base(self, event: Forked | Restored, kind: str) -> fold.State:
        """Return the state that a fork or a restore would start from, and keep it for the commit that follows."""
        with self.state_lock:
            state = self.base_state(event, kind)
            self._looked_at = {(threading.get_ident(), event.base_stream, event.base_seq, kind): state}
            return state

    # Branches.

    def branches_at(self, at: int | None) -> list[Branch]:
        """Return the branches that existed at a seq, in the order in which they were forked."""
        return self.read(STORE_STREAM, lambda state: list(state.part(SETTINGS).branches), at)

    def branch_name(self, branch: int) -> str:
        """Return the name of a branch, empty for the main line."""
        return self.read(STORE_STREAM, lambda state: state.part(SETTINGS).branches[branch - 1].name) if branch else ""

    def names(self) -> Names:
        """Return the lookups from numbers in events to names."""
        branches = ["", *(branch.name for branch in self.branches_at(None))]
        return Names(self.streams.name_of, branches.__getitem__, self.streams.branch_of, self.loader.actors)

    @reports_damage
    def differing_streams(self, a: "Side", b: "Side") -> set[str]:
        """Return the names of the streams that have events on one side only, except the store's own."""
        with self.state_lock:
            bounds = [self.streams.bounds(side.branch, side.seq) for side in (a, b)]
            spans = {
                branch: sorted(bound.get(branch, self.streams.branch(branch).seq if branch else 0) for bound in bounds)
                for branch in {*bounds[0], *bounds[1]}
            }
        changed = [(low, high) for low, high in spans.values() if low < high]
        after, until = min((low for low, _ in changed), default=0), max((high for _, high in changed), default=0)
        numbers: set[int] = set()
        for record in records_through(self.log, after, until):
            branches = {head.number: head.branch for head in record.heads}
            for seq, number in enumerate(record.numbers, record.first_seq):
                low, high = spans.get(branches[number], (0, 0))
                if low < seq <= high:
                    numbers.add(number)
        return {self.streams.name_of(number) for number in numbers} - {STORE_STREAM}


class Side(NamedTuple):
    """A state to compare: of a whole branch at a seq, or of one of its streams."""

    branch: int
    seq: int
    stream: str | None = None


def request_prefix(branch: int) -> bytes:
    """Return the prefix that is hashed with a request's id, so that the same id is another request in each branch."""
    return b"branch" + BRANCH.pack(branch) if branch else b"id"


def descends(branches: Sequence[Branch], branch: int, elder: int) -> bool:
    """Return whether a branch was forked from another one, directly or indirectly."""
    while branch:
        branch = branches[branch - 1].parent
        if branch == elder:
            return True
    return False


def depth_of(branches: Sequence[Branch], branch: int) -> int:
    """Return how many forks lie between a branch and the main line."""
    depth = 0
    while branch:
        branch, depth = branches[branch - 1].parent, depth + 1
    return depth
