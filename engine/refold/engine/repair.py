"""Repair: a log written anew into an empty store, up to a seq and in order, with the checkpoints that it had.

Records, commit rows and links come along byte for byte as long as they are in order. From the first place on at which a
faulty writer counted or linked wrongly, every event stands once, in the order of the log, behind the last one of its
stream, and the links are made anew; bodies, salts and commitments never change. Nothing is deleted: no byte of a later
event is ever in the new file. What is only a cache stays behind.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from refold import fold
from refold.engine import transfer
from refold.engine.cache import CheckpointPacker, StreamEviction
from refold.engine.engine import Engine
from refold.engine.jsonl import Positions
from refold.engine.loader import Loader
from refold.engine.reader import HASH_KEY, STORE_ID_KEY, TAGS_KEY
from refold.engine.streams import (
    NEXT_NUMBER_KEY,
    Checkpoints,
    Streams,
    key_of,
    name_key,
    name_of,
    number_key,
    place_in,
    split_key,
)
from refold.engine.walk import Seen
from refold.errors import InvalidInput, StoreCorrupt, StoreVersion
from refold.event import FLAG_BASE, FLAG_ERASED, FLAG_OCCURRED, BranchForked, Erased, Event, Stamp, moved_actor
from refold.limits import (
    CHECKPOINT_EVENTS,
    CHECKPOINT_ROWS_MAX,
    CUT_BYTES,
    CUT_ROWS,
    EVICTED_COUNT_MIN,
    KEYED_HASH_BYTES,
    PACKED_COUNT_MIN,
    PAGE_EVENTS,
)
from refold.log.protocol import TABLES, Log, Row, Table, scan
from refold.log.record import (
    ARRAY_BEGIN,
    BRANCH,
    COMMIT,
    HEADER,
    HEADER_BYTES,
    NO_LINK,
    PREFIX_BYTES,
    SEQ,
    CommitRow,
    Header,
    covered,
    header_of,
    link_after,
)
from refold.views.store import Branch

# The seqs and the streams of a log that is written anew, where they are not those of the old one.


class Seqs:
    """The seqs in the new log, by those in the old one: less by one behind each event that is left out."""

    def __init__(self) -> None:
        self._left_out: list[int] = []
        self._first: dict[int, int] = {}
        """The seq of an event that is left out -> the seq of the one that it repeats."""

    def __bool__(self) -> bool:
        """Return whether any is another one."""
        return bool(self._left_out)

    def leave_out(self, seq: int, first: int) -> None:
        """Take note of an event that is another one once more."""
        self._left_out.append(seq)
        self._first[seq] = self._first.get(first, first)

    def of(self, seq: int) -> int:
        """Return the seq of an event, of one that is left out that of the other; 0 stands for none."""
        seq = self._first.get(seq, seq)
        return seq - bisect_left(self._left_out, seq)

    def until(self, seq: int) -> int:
        """Return the seq of the last event at or before a seq."""
        return seq - bisect_right(self._left_out, seq)


class NewStream(NamedTuple):
    """A stream of the new log."""

    number: int
    branch: int
    name: str


class StreamNumbers:
    """Which stream an event is of: that of its number, where a faulty writer has not given two streams the same.

    Then each stream goes on from its own events, and the one that began later gets another number.
    """

    def __init__(self, log: Log) -> None:
        self._keys = _keys(log)
        self._known: dict[tuple[int, int], NewStream] = {}
        """By number in the old log, and place among the streams of that number."""
        self._shared: dict[int, tuple[list[int], list[int]]] = {}
        """Of a number that two streams have: the seqs of its events, and the place of the stream that each is of."""
        given = int.from_bytes(log.row("meta", NEXT_NUMBER_KEY) or b"", "big")
        self._next_number = max(given, 1, *(number + 1 for number in self._keys))
        for number, count in _begun(log, {number for number, keys in self._keys.items() if len(keys) > 1}).items():
            if count == 1:
                del self._keys[number][:-1]  # A name under which nothing ever began.
            elif len(self._keys[number]) == 2:  # noqa: PLR2004 - of more nobody can tell which began when
                self._shared[number] = ([], [])
            else:
                names = ", ".join(map(name_of, self._keys[number]))
                raise StoreCorrupt(
                    f"stream number {number} is that of {names}; recover to a seq before the second of them began"
                )

    def __bool__(self) -> bool:
        """Return whether two streams have one number anywhere."""
        return bool(self._shared)

    def of(self, seq: int, header: Header) -> NewStream:
        """Return the stream of the event at a seq, the events before which were asked for."""
        if header.stream not in self._shared:
            return self._stream(header.stream, 0)
        seqs, places = self._shared[header.stream]
        before = bisect_left(seqs, header.prev_seq)
        is_of_one = before < len(seqs) and seqs[before] == header.prev_seq
        places.append(places[before] if is_of_one else int(bool(seqs)))
        seqs.append(seq)
        return self._stream(header.stream, places[-1])

    def number(self, number: int, seq: int) -> int:
        """Return the number of the stream that had a number at a seq."""
        if number not in self._shared:
            return number
        seqs, places = self._shared[number]
        count = bisect_right(seqs, seq)
        return self._stream(number, places[count - 1] if count else 0).number

    def _stream(self, number: int, place: int) -> NewStream:
        found = self._known.get((number, place))
        if found is None:
            if number not in self._keys:
                raise StoreCorrupt(f"stream number {number} has events and no name; recover to a seq before them")
            new_number = self._next_number if place else number
            self._next_number += place
            found = self._known[number, place] = NewStream(new_number, *split_key(self._keys[number][place]))
        return found

    def rows(self) -> Iterator[Row]:
        """Return the rows of the streams that have events."""
        for number, branch, name in self._known.values():
            yield "names", name_key(branch, name), number_key(number)
            yield "streams", number_key(number), msgspec.msgpack.encode((name, branch))
        if self._known:
            yield "meta", NEXT_NUMBER_KEY, number_key(1 + max(stream.number for stream in self._known.values()))

    def repairs(self) -> Iterator[str]:
        """Say which streams have another number."""
        for (number, place), stream in self._known.items():
            if place:
                other = self._known[number, 0].name
                yield f"{stream.name} had the number of {other}, {number}, and has {stream.number} now"


def _keys(log: Log) -> dict[int, list[str]]:
    """Return the keys of the streams of each number, the one that was given it last at the end."""
    keys: dict[int, list[str]] = {}
    for number, packed in scan(log, "streams", b"", PAGE_EVENTS):
        try:
            name, branch = place_in(packed)
        except StoreCorrupt:
            continue  # Then the row of the name says it.
        keys[int.from_bytes(number, "big")] = [key_of(branch, name)]
    known = {own for (own,) in keys.values()}
    for packed, number in scan(log, "names", b"", PAGE_EVENTS):
        key = key_of(BRANCH.unpack_from(packed)[0], packed[BRANCH.size :].decode())
        if key not in known:
            keys.setdefault(int.from_bytes(number, "big"), []).insert(0, key)
    return keys


def _begun(log: Log, numbers: set[int]) -> Counter[int]:
    """Return how often events of streams with these numbers go on from none of the events before them."""
    begun = Counter[int]()
    seqs: dict[int, set[int]] = {number: set() for number in numbers}
    for begin in range(1, log.head() + 1 if numbers else 1, PAGE_EVENTS):
        for seq, record in enumerate(log.read(begin, PAGE_EVENTS), begin):
            header = header_of(record)
            if header.stream in numbers:
                begun[header.stream] += header.prev_seq not in seqs[header.stream]
                seqs[header.stream].add(seq)
    return begun


# Folding a log that has no checkpoint rows, and storing those that its writers would have stored.


class Rebuild:
    """One fold of a whole log, page by page; streams leave RAM on the way as they do while a store is written to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._log = engine.reader.log
        self._checkpoints = Checkpoints(self._log)
        self._streams = Streams(self._log, self._checkpoints)
        self._loader = Loader(self._log, self._streams, self._checkpoints)
        self._packer = CheckpointPacker(self._log, self._streams, self._checkpoints, self._loader)
        self._eviction = StreamEviction(
            self._log, self._streams, self._packer, engine.reader.index, engine.reader.memory_bytes
        )

    def run(self) -> None:
        """Store every row; the engine knows of them afterwards. A program that does not know all events stores none."""
        if self._engine.reader.unknown_tags:
            return
        head, seq = self._log.head(), 0
        while seq < head:
            self._loader.bytes_read = 0
            page = self._loader.numbered(seq + 1, min(PAGE_EVENTS, head - seq))
            record_bytes = self._loader.bytes_read // len(page)
            for number, event, stamp in page:
                self._fold(number, event, stamp, record_bytes)
            seq += len(page)
            self._tidy_up(seq, len(page))
        for rows in self._packer.rest(head, []):
            self._log.write_rows(rows)
        self._engine.reload()

    def _fold(self, number: int, event: Event, stamp: Stamp, record_bytes: int) -> None:
        slot = self._streams.at_number(number)
        if not slot.seq and slot.base is not None:
            slot.stand(0, slot.base[1])  # The first event of a branch's stream goes on from what that inherited.
        is_base = stamp.flags & FLAG_BASE
        slot.state = self._loader.base_state(event, slot.kind) if is_base else self._loader.live(slot)
        fold.fold(slot.state, stamp, event)
        self._streams.advance(slot, stamp, record_bytes)
        if len(slot.seqs) >= (slot.due or CHECKPOINT_EVENTS):
            self._packer.keep(slot)
        if is_base:
            self._packer.rebased(slot)

    def _tidy_up(self, seq: int, count: int) -> None:
        """Keep RAM within its bound, and store what waits."""
        if self._eviction.is_over:
            self._eviction.trim(max(EVICTED_COUNT_MIN, 2 * count))
            self._eviction.relieve()
        self._packer.proceed(count)
        if seq > self._packer.tail_due:
            self._packer.shorten_tail(seq, max(PACKED_COUNT_MIN, 2 * count))
        waiting = self._checkpoints.waiting
        if len(waiting) >= CHECKPOINT_ROWS_MAX:
            self._log.write_rows([*waiting, self._packer.applied(seq)])
            self._checkpoints.written()


_SEED_KEYS: Final = (STORE_ID_KEY, HASH_KEY)
_CACHES: Final[frozenset[Table]] = frozenset(("checkpoints", "digests", "graphs"))
_WRITTEN: Final[frozenset[Table]] = frozenset(("derived", "meta", "names", "requests", "streams"))


def check_end(log: Log, seq: int) -> None:
    """Raise ``InvalidInput`` unless a commit ends at a seq: what was written at once is there at once or not at all."""
    row = log.commit_at(seq) if seq else None
    commit = CommitRow._make(COMMIT.unpack(row)) if row else None
    if commit is not None and commit.next_seq != seq + 1:
        first, last = commit.first_seq, commit.next_seq - 1
        raise InvalidInput(
            f"seq {seq} stands inside the commit of seqs {first} to {last}, which is kept whole or not at all; "
            f"recover to {first - 1} or to {last}"
        )


def seeds(log: Log) -> dict[bytes, bytes]:
    """Return the rows of ``meta`` that are drawn when a store is made: the new one is the same store."""
    return {key: log.row("meta", key) or b"" for key in _SEED_KEYS}


class Repair:
    """One pass over a log in which nobody writes; ``into`` is the log of the new store, which is empty."""

    def __init__(self, log: Log, into: Log, seq: int) -> None:
        self._log, self._into, self._until = log, into, seq
        self._streams = StreamNumbers(log)
        self._positions = Positions()
        self._seen = Seen()
        self._seqs = Seqs()
        self.head = 0
        """The seq of the last event in the new log."""
        self._last = CommitRow(0, 1, 0, NO_LINK)
        self._tags: set[int] = set()
        self._bare: set[int] = set()
        """The seqs, in the new log, of events whose bodies are gone."""
        self._erased: set[int] = set()
        """Those that ``Erased`` events name."""
        self._recounted: dict[str, list[int]] = {}
        """By key of a stream: where it is counted anew from, by seq and versions, and how many events these are."""
        self._left_out: dict[str, list[int]] = {}
        """By key of a stream: the seqs of the events that are left out."""
        self._relinked = self._redated = 0
        """The first seqs of the commits from which on links and times are others."""
        self._records: list[bytes] = []
        self._bytes = 0
        self._commits: list[bytes] = []
        self._rows: list[Row] = []

    def run(self) -> list[int]:
        """Write everything; return the seqs of bodies that were erased by an event behind the end, sorted."""
        following = 1
        while following <= self._until:
            for row in self._log.commits(following - 1, PAGE_EVENTS):
                commit = CommitRow._make(COMMIT.unpack(row))
                assert commit.first_seq == following < commit.next_seq, f"no commit row covers seq {following}"
                self._commit(commit)
                following = commit.next_seq
                if following > self._until:
                    break
        self._rows += [*self._streams.rows(), *self._requests(), *self._marks()]
        self._write()
        missing = self._bare - self._erased
        return sorted(missing & self._erased_behind()) if missing else []

    def repairs(self) -> tuple[str, ...]:
        """Say what is other than it was; seqs and versions are those of the old log."""
        said = list(self._streams.repairs())
        for key, (seq, old, new, count) in self._recounted.items():
            said.append(f"{name_of(key)}: version {old} at seq {seq} is version {new}, and so on: {count} events")
        for key, seqs in self._left_out.items():
            said.append(f"{name_of(key)}: {len(seqs)} events that stood twice stand once; the first was seq {seqs[0]}")
        if self._redated:
            said.append(f"no event from seq {self._redated} on is dated before the one in front of it")
        if self._relinked:
            said.append(f"the links of the chain from seq {self._relinked} on are new")
        return tuple(said)

    # The log.

    def _commit(self, commit: CommitRow) -> None:
        """Write a commit; one of which no event is left is none."""
        first, time_ns = self.head + 1, max(commit.time_ns, self._last.time_ns)
        if time_ns != commit.time_ns:
            self._redated = self._redated or commit.first_seq
        parts = [b""]
        commands: dict[int, int] = {}
        for begin in range(commit.first_seq, commit.next_seq, PAGE_EVENTS):
            for record in self._page(range(begin, min(begin + PAGE_EVENTS, commit.next_seq)), time_ns, commands):
                parts += covered(record)
                self._put(record)
        if self.head >= first:
            blank = CommitRow(first, self.head + 1, time_ns, NO_LINK)
            parts[0] = COMMIT.pack(*blank)
            self._last = blank._replace(link=link_after(self._last.link, parts))
            self._commits.append(COMMIT.pack(*self._last))
        if self._last.link != commit.link:
            self._relinked = self._relinked or commit.first_seq

    def _page(self, seqs: range, time_ns: int, commands: dict[int, int]) -> Iterator[bytes]:
        """Return the new records of a page, one by one: the head moves on with each."""
        records = self._log.read_at(seqs)
        headers = list(map(header_of, records))
        events = [
            fold.decode(record[ARRAY_BEGIN:], header.tag) for record, header in zip(records, headers, strict=True)
        ]
        numbers = [header.stream for header in headers]
        repeats = self._seen.repeats(self._log, seqs, numbers, [header.commitment for header in headers], events)
        for seq, record, header, event in zip(seqs, records, headers, events, strict=True):
            stream = self._streams.of(seq, header)
            if seq in repeats:
                self._seqs.leave_out(seq, repeats[seq])
                self._left_out.setdefault(key_of(stream.branch, stream.name), []).append(seq)
                continue
            self.head += 1
            stamped = self._stamped(seq, header, stream)
            if header.time_ns < time_ns:
                occurred_ns = header.occurred_ns if header.flags & FLAG_OCCURRED else time_ns
                stamped = stamped._replace(time_ns=time_ns, occurred_ns=occurred_ns)
            if self._seqs:
                command = commands.setdefault(header.command, self.head)
                stamped = stamped._replace(
                    command=command,
                    cause=self._seqs.of(header.cause),
                    actor=moved_actor(header.actor, self._seqs.of),
                )
            yield self._record(record, header, stamped, event, stream)

    def _stamped(self, seq: int, header: Header, stream: NewStream) -> Header:
        """Return the header of an event behind the last one of its stream."""
        version, last = self._positions.at(stream.branch, stream.name)
        if (header.version, self._seqs.of(header.prev_seq)) != (version + 1, last):
            key = key_of(stream.branch, stream.name)
            self._recounted.setdefault(key, [seq, header.version, version + 1, 0])[-1] += 1
        self._positions.note(stream.branch, stream.name, self.head)
        return header._replace(stream=stream.number, version=version + 1, prev_seq=last, branch=stream.branch)

    def _record(self, record: bytes, header: Header, stamped: Header, event: Event, stream: NewStream) -> bytes:
        """Return a record under its new header; take note of what other rows have to say of it."""
        array = record[ARRAY_BEGIN:]
        if self._seqs or self._streams:
            if isinstance(event, fold.Unknown):
                raise StoreVersion(
                    f"an event of tag {event.tag} may name seqs that are others now, and is not known; upgrade refold"
                )
            event = msgspec.structs.replace(event, **self._named(event))
            begin = fold.body_begin(event)
            array = array[:PREFIX_BYTES] + fold.encode(event)[PREFIX_BYTES:begin] + array[header.body_begin :]
            stamped = stamped._replace(body_begin=begin)
        self._tags.add(header.tag)
        self._rows.extend(("derived", SEQ.pack(source) + SEQ.pack(self.head), b"") for source in event.sources)
        if header.flags & FLAG_ERASED:
            self._bare.add(self.head)
        if isinstance(event, Erased):
            self._erased.update(event.seqs)
        if isinstance(event, BranchForked):
            self._positions.forks.append(Branch(stream.name, event.base_branch, event.base_seq))
        return HEADER.pack(*stamped) + record[HEADER_BYTES:ARRAY_BEGIN] + array

    def _named(self, event: Event) -> dict[str, Any]:
        """Return the fields of an event that name seqs or a stream, as they are in the new log."""
        found: dict[str, Any] = {}
        for field in event.__struct_fields__:
            value = getattr(event, field)
            if field in fold.SCALAR_SEQS:
                found[field] = self._seqs.of(value)
            elif field in ("sources", "seqs"):
                found[field] = tuple(map(self._seqs.of, value))
            elif field == "base_stream":
                found[field] = self._streams.number(value, getattr(event, "base_seq"))  # noqa: B009 - both or neither
            elif field == "base_seq":
                found[field] = self._seqs.until(value)
        return found

    def _put(self, record: bytes) -> None:
        self._records.append(record)
        self._bytes += len(record)
        if len(self._records) >= CUT_ROWS or self._bytes >= CUT_BYTES:
            self._write()

    def _write(self) -> None:
        """Write what waits in transactions that are not too long."""
        first_seq = self.head + 1 - len(self._records)
        self._into.write(first_seq, self._records, self._commits, self._rows)
        self._records, self._commits, self._rows, self._bytes = [], [], [], 0

    # The rows beside it.

    def _requests(self) -> Iterator[Row]:
        """Return the requests that were answered by the end; when one was that changed nothing, nobody knows."""
        is_whole = self._until >= self._log.head()
        for key, row in scan(self._log, "requests", b"", PAGE_EVENTS):
            first, last = (SEQ.unpack_from(row, KEYED_HASH_BYTES + offset)[0] for offset in (0, SEQ.size))
            if 0 < last <= self._until:
                yield (
                    "requests",
                    key,
                    row[:KEYED_HASH_BYTES] + SEQ.pack(self._seqs.of(first)) + SEQ.pack(self._seqs.of(last)),
                )
            elif not last and is_whole:
                yield "requests", key, row

    def _marks(self) -> Iterator[Row]:
        """Return what the store says of itself; a load that was cut off does not go on where seqs are others."""
        yield "meta", TAGS_KEY, msgspec.msgpack.encode(sorted(self._tags)) if self._tags else None
        if not self._seqs:
            yield transfer.joined_until(self._log, self._until)
            yield transfer.loaded_until(self._log, self._until)

    def _erased_behind(self) -> set[int]:
        """Return the seqs of bodies that events behind the end erased."""
        found: set[int] = set()
        for begin in range(self._until + 1, self._log.head() + 1, PAGE_EVENTS):
            for record in self._log.read(begin, PAGE_EVENTS):
                header = header_of(record)
                event = fold.decode(record[ARRAY_BEGIN:], header.tag) if header.tag == fold.TAGS[Erased] else None
                if isinstance(event, Erased):
                    found.update(map(self._seqs.of, event.seqs))
        return found


assert set(TABLES) == _CACHES | _WRITTEN, "a table that a repair would leave out"
