"""The streams of a store: their numbers and names, and the head, state and checkpoints of each that was used.

A name is interned once, and the headers of the log carry numbers. Without reading its events, a stream is known by its
last checkpoint row plus the tail: the events after ``applied_seq``, whose headers were scanned at opening.
"""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from struct import error as StructError  # noqa: N812 - struct names its exception in lower case
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeVar

import msgspec

from refold import fold
from refold.errors import RefoldError, StoreCorrupt
from refold.event import Event, Stamp
from refold.limits import (
    CHECKPOINT_EVENT_BYTES,
    CHECKPOINT_EVENTS,
    EVENT_OVERHEAD_BYTES,
    ID_HEX_CHARS,
    PAGE_EVENTS,
    PLACES_COUNT_MAX,
    STREAM_OVERHEAD_BYTES,
)
from refold.log.protocol import Log, Row, scan
from refold.log.record import BRANCH, SEQ, Record
from refold.views.store import Branch

if TYPE_CHECKING:
    from refold.index.project import ProjectIndex


P = ParamSpec("P")
T = TypeVar("T")

UNREADABLE: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, StructError, TypeError, ValueError)
"""The errors that decoding, unpacking or folding damaged bytes raises; those of msgspec and UTF-8 are ``ValueError``.

``MemoryError`` is left out: a process that is short of memory must not report a damaged store.
"""


def reports_damage(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function to raise ``StoreCorrupt`` if the bytes that it reads make no sense."""

    @wraps(function)
    def wrapper(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except RefoldError:
            raise
        except UNREADABLE as error:
            what = f"{type(error).__name__}: {error}"
            raise StoreCorrupt(
                f"what is stored cannot be read ({what}); run `refold verify` and restore a backup"
            ) from error

    return wrapper


def records_of(log: Log, after: int, until: int) -> list[Record]:
    """Return the records of the events with ``after < seq <= until``; ``StoreCorrupt`` if one is missing."""
    records = [Record(packed) for _, packed in log.read(after, until)]
    reached = min(after, records[0].first_seq - 1) if records else after
    for record in records:
        if record.first_seq != reached + 1:
            break
        reached = record.last_seq
    if reached < until:
        raise StoreCorrupt(f"no record holds seq {reached + 1}; run `refold verify` and restore a backup")
    return records


def records_through(log: Log, after: int, until: int) -> Iterator[Record]:
    """Yield the records of the events with ``after < seq <= until``, read in pages."""
    while after < until:
        for record in records_of(log, after, min(after + PAGE_EVENTS, until)):
            yield record
            after = record.last_seq


# Random ids, drawn from the memory's random source in large pools: one draw serves two hundred ids.

_POOL_BYTES: Final = ID_HEX_CHARS // 2 * 200
_ID: Final = re.compile(f".{{{ID_HEX_CHARS}}}")


class Ids:
    """A source of ids of 20 hexadecimal digits.

    It has no lock, for which a signal handler that writes would wait forever if it met a refill. Taking an id out of
    the pool and adding some are atomic; two refills at once make it twice as large.
    """

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._pool: list[str] = []

    def new(self) -> str:
        """Return an id that was never returned before."""
        try:
            return self._pool.pop()
        except IndexError:
            return self._refill()

    def _refill(self) -> str:
        fresh: list[str] = _ID.findall(self._random_bytes(_POOL_BYTES).hex())
        self._pool += fresh[1:]
        return fresh[0]


# Keys: the engine knows a stream by its name and, in a fork of the memory, the number of the branch.
#
# In the main line, the key is the name itself. Names begin with the letters of their kind, so keys of other branches
# are recognized by their leading digits.


def key_of(branch: int, name: str) -> str:
    """Return the key of a stream in a branch."""
    return f"{branch}:{name}" if branch else name


def split_key(key: str) -> tuple[int, str]:
    """Return the branch and the name of a key."""
    if key[0] > "9":
        return 0, key
    branch, _, name = key.partition(":")
    return int(branch), name


def name_of(key: str) -> str:
    """Return the name of a key, as stamps, hashes and messages show it."""
    return key if key[0] > "9" else key.partition(":")[2]


def kind_of(key: str) -> str:
    """Return the kind of the stream of a key or a name."""
    return name_of(key).partition("/")[0]


def session_board(session: str) -> str:
    """Return the name of the stream of a session's board."""
    return f"board/session/{session}"


class Names(NamedTuple):
    """Lookups from the numbers in events to names."""

    stream: Callable[[int], str]
    branch: Callable[[int], str]
    branch_of: Callable[[int], int]
    """The branch of a stream, by the number of the stream."""
    actors: Mapping[int, str]


# Checkpoint rows: cached states of streams, as pointers and small values; no answer depends on them.
#
# A stream gets a *kept* row every 256 events, or less often if its last row was large, so that the cost of packing
# stays constant per event; ``at`` starts from it. A *floating* row is written when a store is closed or its tail has
# grown too long, and is replaced by the next row. Rows wait in RAM and are written with the next commit.
#
# Every row names the events since a kept one, not always the last: several processes write rows, each from what it
# knows. A kept row therefore stays forever, and a row in RAM that would replace it is not written.

_LAST_SEQ: Final = b"\xff" * 8
APPLIED_KEY: Final = bytes(12)
"""The key of no stream: the row is among the checkpoint rows that it describes, and shares their fate."""


def covered_seq(log: Log) -> int:
    """Return the seq up to which checkpoint rows cover every event, as the store records it."""
    row = log.row("checkpoints", APPLIED_KEY)
    return 0 if row is None else int(SEQ.unpack(row)[0])


class Checkpoint(NamedTuple):
    """A cached state: the stream's version at a seq, the result of ``fold.pack``, and seqs since the last kept row."""

    seq: int
    version: int
    kept: bool
    inline: bytes
    pointed: list[int]
    since: list[int]

    @property
    def due(self) -> int:
        """The number of events after which the next kept row is due."""
        return max(CHECKPOINT_EVENTS, len(self.pointed) // 2, len(self.inline) // CHECKPOINT_EVENT_BYTES)


class _CheckpointRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    version: int
    kept: bool
    inline: bytes
    pointed: list[int]
    since: list[int]


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE_CHECKPOINT: Final = msgspec.msgpack.Decoder(_CheckpointRow).decode


def _key(number: int, seq: int) -> bytes:
    return number.to_bytes(4, "big") + SEQ.pack(seq)


def number_of(key: bytes) -> int:
    """Return the number of the stream to which a checkpoint row's key belongs."""
    return int.from_bytes(key[:4], "big")


class Checkpoints:
    """The rows of all streams: those stored, if there is a log, and those waiting for the next commit."""

    def __init__(self, log: Log | None) -> None:
        self._log = log
        self.waiting: list[Row] = []
        """The rows that the next commit will carry."""
        self.is_shared = False
        """Whether other processes have written, so that what is known here of stored rows may be outdated."""
        self._fresh: dict[int, dict[int, Checkpoint]] = {}

    def put(self, number: int, row: Checkpoint, *, replaces: int) -> None:
        """Queue a row for the next commit; it replaces the floating row at ``replaces``."""
        self._fresh.setdefault(number, {})[row.seq] = row
        packed = _ENCODE(_CheckpointRow(row.version, row.kept, row.inline, row.pointed, row.since))
        self.waiting.append(("checkpoints", _key(number, row.seq), packed))
        if replaces and replaces != row.seq:
            # After its successor: rows may be written in several transactions, and a stream must never be without one.
            self.waiting.append(("checkpoints", _key(number, replaces), None))
            self._fresh[number].pop(replaces, None)

    def keep(self, row: Row) -> None:
        """Queue a row of another cache for the next commit."""
        self.waiting.append(row)

    def allowed_rows(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return the rows without those that would replace another process's kept row; call it in a turn."""
        return [row for row in rows if not self._replaces_kept(row)] if self.is_shared else rows

    def _replaces_kept(self, row: Row) -> bool:
        table, key, packed = row
        if self._log is None or table != "checkpoints" or key == APPLIED_KEY:
            return False
        if packed is not None and checkpoint_of(key, packed).kept:
            return False
        stored = self._log.row(table, key)
        return stored is not None and checkpoint_of(key, stored).kept

    def clear_waiting(self) -> None:
        """Forget the waiting rows, which are stored now."""
        self.waiting = []
        self._fresh = {}

    def last(self, number: int) -> Checkpoint | None:
        """Return the last row of a stream."""
        return self.before(number, int.from_bytes(_LAST_SEQ, "big"))

    def before(self, number: int, seq: int) -> Checkpoint | None:
        """Return the last row of a stream whose seq is at most ``seq``."""
        fresh = [row for at, row in self._fresh.get(number, {}).items() if at <= seq]
        last = max(fresh, key=lambda row: row.seq) if fresh else None
        if last is not None and not self.is_shared:
            return last
        stored = self._log.rows("checkpoints", _key(number, seq), 1, backwards=True) if self._log else ()
        row = _checkpoint_if_own(number, *stored[0]) if stored else None
        return last if row is None or (last is not None and last.seq > row.seq) else row

    def after(self, number: int, seq: int) -> Checkpoint | None:
        """Return the first row of a stream whose seq is greater than ``seq``."""
        stored = self._log.rows("checkpoints", _key(number, seq + 1), 1) if self._log else ()
        if stored and (row := _checkpoint_if_own(number, *stored[0])) is not None:
            return row
        fresh = [row for at, row in self._fresh.get(number, {}).items() if at > seq]
        return min(fresh, key=lambda row: row.seq) if fresh else None


def _checkpoint_if_own(number: int, key: bytes, packed: bytes) -> Checkpoint | None:
    return checkpoint_of(key, packed) if number_of(key) == number else None


def checkpoint_of(key: bytes, packed: bytes) -> Checkpoint:
    """Return the checkpoint of a stored row."""
    try:
        return Checkpoint(SEQ.unpack(key[4:])[0], *msgspec.structs.astuple(_DECODE_CHECKPOINT(packed)))
    except UNREADABLE as error:
        raise StoreCorrupt(
            f"the checkpoint row {key.hex()} cannot be read ({error}); run `refold verify` and restore a backup"
        ) from error


# One stream: its head, and its part in RAM.


class Stream:
    """One stream: its head, its folded state if loaded, and the events for its next checkpoint.

    A stream that a branch has only inherited has the number 0 until its first event there.
    """

    __slots__ = (
        "base",
        "branch",
        "digest",
        "due",
        "events_count",
        "floating",
        "index",
        "is_used",
        "key",
        "kind",
        "name",
        "number",
        "seq",
        "seqs",
        "state",
        "version",
        "weight",
    )

    def __init__(self, number: int, name: str, branch: int = 0) -> None:
        self.number = number
        self.name = name
        self.branch = branch
        self.key = key_of(branch, name)
        self.kind = kind_of(name)
        self.base: tuple[int, int] | None = None
        """The event that a branch's stream continues from: the number of the stream that holds it, and its seq."""
        self.version = 0
        self.seq = 0
        self.state: fold.State | None = None
        self.index: ProjectIndex | None = None
        """The index of the project, to which every event is applied; ``None`` until the first search."""
        self.seqs: list[int] = []
        """The seqs of the stream's events since its last kept checkpoint row."""
        self.due = 0
        """Number of events after which the next kept row is due; 0 means ``CHECKPOINT_EVENTS``."""
        self.floating = 0
        """The seq of the row that the next one replaces, or 0 if there is none."""
        self.digest: tuple[int, list[tuple[str, bytes]]] | None = None
        """The digests of the views at a seq, if they were computed."""
        self.is_used = True
        """Whether the stream was used since eviction last considered it."""
        self.events_count = 0
        """Number of events that the weight counts."""
        self.weight = STREAM_OVERHEAD_BYTES
        """The estimated size of the stream in RAM, in bytes."""

    def weigh(self, inline_bytes: int, events: int) -> int:
        """Count only ``events`` events from now on, and return the change in weight."""
        before, count = self.weight, self.events_count
        event_bytes = (before - STREAM_OVERHEAD_BYTES) // count if count else EVENT_OVERHEAD_BYTES
        self.weight, self.events_count = STREAM_OVERHEAD_BYTES + inline_bytes + event_bytes * events, events
        return self.weight - before

    def with_number(self, number: int) -> "Stream":
        """Return a stream with a number of its own that continues this inherited one."""
        stream = Stream(number, self.name, self.branch)
        stream.base, stream.state = self.base, self.state
        stream.weight, stream.events_count = self.weight, self.events_count
        stream.version, stream.seq = self.version, self.seq
        return stream


def update_index(stream: Stream, stamp: Stamp, event: Event) -> None:
    """Bring the index rows of a stream, if it has any, up to an event that was folded into its state.

    They are a cache, so an error there must not undo a commit. The rows are dropped, and the next search builds new
    ones or raises the error.
    """
    if stream.index is None:
        return
    try:
        assert stream.state is not None, stream.name
        stream.index.apply(stream.state, stamp, event)
    except Exception:
        import logging  # noqa: PLC0415 - needed only after a failure

        logger = logging.getLogger("refold")
        logger.exception("the rows of %s could not follow seq %d; they are filled anew", stream.name, stamp.seq)
        stream.index.is_torn = True
        stream.index.detach()


STORE_STREAM: Final = "store/main"
NUMBER_BYTES: Final = 4
NEXT_NUMBER_KEY: Final = b"next_stream"


def number_key(number: int) -> bytes:
    """Return the key of a stream's row."""
    return number.to_bytes(NUMBER_BYTES, "big")


def name_key(branch: int, name: str) -> bytes:
    """Return the key of the row that gives a name its number in a branch."""
    return BRANCH.pack(branch) + name.encode()


def parse_name_key(packed: bytes) -> str:
    """Return the key of the stream to which a row of names belongs."""
    return key_of(BRANCH.unpack_from(packed)[0], packed[BRANCH.size :].decode())


def parse_stream_row(packed: bytes) -> tuple[str, int]:
    """Return the name and the branch that a stream's row holds."""
    try:
        name, branch = msgspec.msgpack.decode(packed, type=tuple[str, int])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorrupt(
            f"the row of a stream cannot be read ({error}); run `refold verify` and restore a backup"
        ) from error
    if kind_of(name) not in fold.KINDS:
        raise StoreCorrupt(f"the stream {name!r} is of no known kind; upgrade refold, or restore a backup")
    return name, branch


def rows_of(streams: Sequence[Stream]) -> Iterator[Row]:
    """Yield the rows that give new streams their numbers."""
    for stream in streams:
        yield "names", name_key(stream.branch, stream.name), number_key(stream.number)
        yield "streams", number_key(stream.number), msgspec.msgpack.encode((stream.name, stream.branch))
    if streams:
        yield "meta", NEXT_NUMBER_KEY, number_key(1 + max(stream.number for stream in streams))


class CheckpointGaps(NamedTuple):
    """Events at or before ``applied_seq`` that no checkpoint row covers, as an erasure leaves them."""

    applied_seq: int
    tails: Mapping[int, tuple[int, list[int]]]
    """Number of a stream -> version at its last uncovered event, and the seqs of all of them; by the first seq."""


@reports_damage
def _name_in(key: bytes) -> str:
    """Return the name in the key of a row of names."""
    name = key[BRANCH.size :].decode()
    if kind_of(name) not in fold.KINDS:
        raise StoreCorrupt(f"a stream is named {name!r}, which is of no known kind; run `refold verify`")
    return name


def _no_op(_seq: int) -> None:
    """Do nothing: there is no other writer, so the known heads are complete."""


class _StreamNames(dict[int, str]):
    """The names of streams by number; an unknown one is read from the log."""

    def __init__(self, meet: Callable[[int], tuple[str, int]]) -> None:
        super().__init__()
        self._meet = meet

    def __missing__(self, number: int) -> str:
        return self._meet(number)[0]


class Streams:
    """All streams of a log, loaded as they are used."""

    def __init__(self, log: Log, checkpoints: Checkpoints) -> None:
        self._log = log
        self._checkpoints = checkpoints
        self._by_key: dict[str, Stream] = {}
        self._by_number: dict[int, Stream] = {}
        self._names = _StreamNames(self._load_name)
        self.name_of: Callable[[int], str] = self._names.__getitem__
        """Returns the name of a stream, given its number."""
        self._branch_of: dict[int, int] = {}
        self.reach: Callable[[int], None] = _no_op
        """Makes the events up to a seq known, in case other processes wrote them."""
        self.branches: Callable[[], Sequence[Branch]] = tuple
        """Returns the branches of the store; set by the loader, which can fold."""
        self._tail: dict[int, tuple[int, list[int]]] = {}
        """Number -> (version, seqs) of the events in the tail, for streams that are not loaded yet."""
        self.dirty: dict[int, int] = {}
        """Number -> seq of the first event that no checkpoint row covers, in the order of that seq."""
        self.bytes = 0
        """Total weight of the streams in RAM, in bytes."""
        self.traffic = 0
        """Number of times that a stream was loaded or evicted."""
        self.events_loaded = 0
        """Total number of events that loads have read."""
        self.queue: deque[Stream] = deque()
        """The streams in RAM, in the order in which eviction considers them."""
        self._places: dict[tuple[str, int], tuple[int, int]] = {}
        """Positions of streams at earlier seqs, those looked up last."""
        self.next_number = 1
        self.is_torn = False
        """Whether a change of RAM was interrupted: RAM then holds no valid state, and the log is read again."""
        self.renumber()

    def renumber(self) -> None:
        """Read the number that the next new stream gets: never one already assigned, whatever is stored.

        The stored number is read last, because other processes may write between the two reads.
        """
        last = self._log.rows("streams", b"\xff" * NUMBER_BYTES, 1, backwards=True)
        stored = self._log.row("meta", NEXT_NUMBER_KEY)
        last_number = int.from_bytes(last[0][0], "big") if last else 0
        self.next_number = max(int.from_bytes(stored or b"", "big"), last_number + 1)

    @reports_damage
    def scan_tail(self, gaps: CheckpointGaps, head: int) -> None:
        """Read which streams have events that no checkpoint row covers: in the gaps, and in the tail."""
        for number, (version, seqs) in gaps.tails.items():
            self._tail[number] = (version, seqs)
            self.dirty[number] = seqs[0]
        for record in records_through(self._log, gaps.applied_seq, head):
            columns = zip(record.numbers, record.versions, strict=True)
            for seq, (number, version) in enumerate(columns, record.first_seq):
                if gaps.applied_seq < seq <= head:
                    self._note_tail(number, version, seq)

    def _note_tail(self, number: int, version: int, seq: int) -> None:
        _, seqs = self._tail.get(number, (0, []))
        self._tail[number] = (version, seqs)
        self.dirty.setdefault(number, seq)
        seqs.append(seq)

    def peek(self, key: str) -> Stream | None:
        """Return a stream that is in RAM, with or without its state, or ``None``; needs no lock."""
        return self._by_key.get(key)

    def find(self, key: str) -> Stream | None:
        """Return the stream of a key, or ``None`` if no event was ever written under its name."""
        stream = self._by_key.get(key)
        if stream is None:
            branch, name = split_key(key)
            packed = self._log.row("names", name_key(branch, name))
            number = 0 if packed is None else int.from_bytes(packed, "big")
            # A number that is not assigned yet, as far as is known here, belongs to a commit that is durable but not
            # folded.
            if 0 < number < self.next_number:
                self._check_name(number, name, branch)
                stream = self._load(number, name, branch)
            elif branch:
                stream = self._inherit(name, branch)
        return stream

    def ready_stream(self, key: str) -> Stream | None:
        """Return a stream that can take events as it is, or ``None``; needs no lock."""
        stream = self._by_key.get(key)
        return stream if stream is not None and stream.number and stream.state is not None else None

    def loaded_stream(self, number: int) -> Stream | None:
        """Return a stream whose state is in RAM, ``None`` otherwise."""
        stream = self._by_number.get(number)
        return stream if stream is not None and stream.state is not None else None

    def at_number(self, number: int) -> Stream:
        """Return the stream of a number in a header or a base pointer."""
        return self._by_number.get(number) or self._load(number, self.name_of(number), self.branch_of(number))

    def branch_of(self, number: int) -> int:
        """Return the branch of a stream."""
        branch = self._branch_of.get(number)
        return self._load_name(number)[1] if branch is None else branch

    def _check_name(self, number: int, name: str, branch: int) -> None:
        """Raise ``StoreCorrupt`` unless a name and a number belong together."""
        if (self.name_of(number), self.branch_of(number)) != (name, branch):
            raise StoreCorrupt(f"{name!r} has stream number {number}, which has another name; run `refold verify`")

    @reports_damage
    def _load_name(self, number: int) -> tuple[str, int]:
        packed = self._log.row("streams", number_key(number))
        if packed is None:
            raise StoreCorrupt(f"stream number {number} has no name; run `refold verify` and restore a backup")
        self._names[number], self._branch_of[number] = parse_stream_row(packed)
        return self._names[number], self._branch_of[number]

    # Inheritance between branches.

    def branch(self, number: int) -> Branch:
        """Return a branch, with the point that it was forked from."""
        branches = self.branches()
        if not 0 < number <= len(branches) or not 0 <= branches[number - 1].parent < number:
            raise StoreCorrupt(f"branch {number} was never forked; run `refold verify` and restore a backup")
        return branches[number - 1]

    def bounds(self, branch: int, until: int) -> dict[int, int]:
        """Return, by branch, the seq up to which events count in a branch at a seq: its own and its ancestors'."""
        bounds: dict[int, int] = {}
        while branch:
            bounds[branch] = until
            fork = self.branch(branch)
            branch, until = fork.parent, min(until, fork.seq)
        bounds[0] = until
        return bounds

    @reports_damage
    def _inherit(self, name: str, branch: int) -> Stream | None:
        """Return a stream as it was when its branch was forked, or ``None`` if it did not exist then."""
        base = self._base_of(name, branch)
        if base is None:
            return None
        stream = Stream(0, name, branch)
        stream.base = base
        stream.version, stream.seq = self._log.events_at([base[1]])[0].version, base[1]
        try:
            self._enter(stream)
        except BaseException:
            self.is_torn = True
            raise
        return stream

    def _base_of(self, name: str, branch: int) -> tuple[int, int] | None:
        fork = self.branch(branch)
        elder = self.find(key_of(fork.parent, name))
        base = (0, 0) if elder is None else self.place(elder, fork.seq)
        return base if base[1] else None

    def holder(self, stream: Stream, seq: int) -> Stream:
        """Return the stream that would hold a seq among its own events: of the branch, or of an ancestor."""
        while stream.base is not None and seq <= stream.base[1]:
            stream = self.at_number(stream.base[0])
        return stream

    def place(self, stream: Stream, seq: int) -> tuple[int, int]:
        """Return a stream's last event at or before a seq: the number of the stream that holds it, and its seq or 0."""
        if seq >= stream.seq:
            return self._place(stream, seq)
        # History before the stream's last event never changes, and searching it reads rows that name thousands of seqs.
        place = self._places.get((stream.key, seq))
        if place is None:
            place = self._places[stream.key, seq] = self._place(stream, seq)
            if len(self._places) > PLACES_COUNT_MAX:
                del self._places[next(iter(self._places))]
        return place

    def _place(self, stream: Stream, seq: int) -> tuple[int, int]:
        stream = self.holder(stream, seq)
        last = self._last_own_seq(stream, seq)
        return stream.base if not last and stream.base is not None else (stream.number, last)

    def numbers(self, stream: Stream) -> Iterator[int]:
        """Yield the stream numbers that a stream's events have: its own, then those of the inherited streams."""
        while True:
            if stream.number:
                yield stream.number
            if stream.base is None:
                return
            stream = self.at_number(stream.base[0])

    def _last_own_seq(self, stream: Stream, seq: int) -> int:
        if seq >= stream.seq:
            return stream.seq if stream.base is None or stream.seq > stream.base[1] else 0
        before = self._checkpoints.before(stream.number, seq)
        last = before.seq if before is not None else 0
        row = self._checkpoints.after(stream.number, last)
        seqs = stream.seqs if row is None else row.since
        place = bisect_right(seqs, seq)
        return max(last, seqs[place - 1]) if place and stream.number else last

    def own_seqs(self, stream: Stream, after: int, until: int) -> Iterator[int]:
        """Return the seqs of a stream's own events with ``after < seq <= until``, in order."""
        while after < until and stream.number:
            row = self._checkpoints.after(stream.number, after)
            seqs = stream.seqs if row is None else row.since
            yield from seqs[bisect_right(seqs, after) : bisect_right(seqs, until)]
            if row is None:
                return
            after = row.seq

    @reports_damage
    def _load(self, number: int, name: str, branch: int) -> Stream:
        stream = Stream(number, name, branch)
        if branch:
            stream.base = self._base_of(name, branch)
        row = self._checkpoints.last(number)
        if row is not None:
            self.reach(row.seq)
            stream.seq, stream.version = row.seq, row.version
            if row.kept:
                stream.due = row.due
            else:
                stream.floating = row.seq
                stream.seqs = list(row.since)
        tail = self._tail.get(number)
        if tail is not None:
            stream.version = tail[0]
            stream.seqs.extend(seq for seq in tail[1] if seq > stream.seq)
            stream.seq = tail[1][-1]
        try:
            self._tail.pop(number, None)
            self.add(stream)
        except BaseException:
            self.is_torn = True
            raise
        return stream

    def add(self, stream: Stream) -> None:
        """Register a stream."""
        self._by_number[stream.number] = stream
        self._names[stream.number], self._branch_of[stream.number] = stream.name, stream.branch
        self._enter(stream)

    def _enter(self, stream: Stream) -> None:
        """Register a stream by its key, replacing one that was only inherited."""
        self._supersede(stream.key)
        self._by_key[stream.key] = stream
        self.bytes += stream.weight
        self.queue.append(stream)

    def _supersede(self, key: str) -> None:
        """Drop a stream that was only inherited; its entry in the queue weighs nothing."""
        stream = self._by_key.pop(key, None)
        if stream is not None:
            assert not stream.number, f"{stream.key} is in RAM twice"
            self.bytes -= stream.weight
            stream.weight, stream.state = 0, None

    def forget(self, stream: Stream) -> None:
        """Drop a stream from RAM; its rows and the tail bring it back."""
        assert stream.number not in self.dirty, f"{stream.name} leaves with events that no row covers"
        if self._by_key.get(stream.key) is stream:
            del self._by_key[stream.key]
        if stream.number:
            assert self._by_number[stream.number] is stream, f"{stream.name} is in RAM twice"
            del self._by_number[stream.number], self._names[stream.number], self._branch_of[stream.number]
        self.bytes -= stream.weight
        self.traffic += 1
        stream.state = None
        if stream.index is not None:
            stream.index.detach()

    def record_load(self, stream: Stream, record_bytes: int, events: int) -> None:
        """Record the size of the data that a stream's state was loaded from."""
        self.traffic += 1
        if self._by_key.get(stream.key) is not stream:
            return  # It was evicted while a caller held it; the state lives only with that caller.
        self.events_loaded += events
        before, stream.events_count = stream.weight, events
        stream.weight = STREAM_OVERHEAD_BYTES + record_bytes + events * EVENT_OVERHEAD_BYTES
        self.bytes += stream.weight - before

    def names(self, branch: int, prefix: str = "", after: str = "") -> Iterator[str]:
        """Yield the names of a branch's streams that begin with ``prefix`` and sort after ``after``, in order."""
        if not branch:
            yield from self._names_in(0, prefix, after)
            return
        last = ""
        from heapq import merge  # noqa: PLC0415 - loaded only to list names

        for name in merge(*(self._names_in(elder, prefix, after) for elder in self.bounds(branch, 0))):
            if name != last and self.find(key_of(branch, name)) is not None:
                yield name
            last = name

    def _names_in(self, branch: int, prefix: str, after: str) -> Iterator[str]:
        own = name_key(branch, prefix)
        first = max(own, name_key(branch, after) + b"\0") if after else own
        for key, _ in scan(self._log, "names", own, PAGE_EVENTS, first):
            yield _name_in(key)

    def applied_seq(self, head: int) -> int:
        """Return the seq up to which checkpoint rows cover every event."""
        return next(iter(self.dirty.values())) - 1 if self.dirty else head

    def advance(self, stream: Stream, stamps: Sequence[Stamp], record_bytes: int) -> None:
        """Move a stream to the last of some events that were folded into its state."""
        added_bytes = record_bytes + EVENT_OVERHEAD_BYTES * len(stamps)
        stream.version, stream.seq = stamps[-1].version, stamps[-1].seq
        stream.seqs += [stamp.seq for stamp in stamps]
        stream.weight += added_bytes
        self.bytes += added_bytes
        stream.events_count += len(stamps)
        stream.is_used = True
        self.dirty.setdefault(stream.number, stamps[0].seq)

    def fold_foreign(self, number: int, event: Event, stamp: Stamp, record_bytes: int) -> None:
        """Record an event that another process wrote, and fold it if its stream is loaded here."""
        stream = self._by_number.get(number)
        if stream is None:
            # A stream that a branch had only inherited is the branch's own from now on.
            self._supersede(key_of(self.branch_of(number), stamp.stream))
            self._note_tail(number, stamp.version, stamp.seq)
            return
        self.dirty.setdefault(stream.number, stamp.seq)
        stream.version, stream.seq = stamp.version, stamp.seq
        stream.seqs.append(stamp.seq)
        if type(event) in fold.BASE_TYPES:
            stream.state = None
            if stream.index is not None:
                stream.index.detach()
        elif stream.state is not None:
            fold.fold(stream.state, stamp, event)
            update_index(stream, stamp, event)
            stream.events_count += 1
            stream.weight += record_bytes + EVENT_OVERHEAD_BYTES
            self.bytes += record_bytes + EVENT_OVERHEAD_BYTES
