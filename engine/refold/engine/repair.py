"""Repair: a log written anew into an empty store, up to a seq and in order, with its checkpoints rebuilt.

Records are copied byte for byte as long as they are in order. From the first place at which a faulty writer counted or
linked wrongly, each event is written once, in the order of the log and after the last one of its stream, and the links
are computed anew; bodies never change. Nothing needs to be deleted: no byte of a later event is ever in the new file.
Data that is only a cache is not copied.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from refold import fold
from refold.engine import transfer, vectors
from refold.engine.cache import CheckpointPacker, StreamEviction
from refold.engine.engine import Engine
from refold.engine.jsonl import Positions
from refold.engine.loader import Loader, events_of
from refold.engine.reader import HASH_KEY, STORE_ID_KEY, TAGS_KEY, answer_of, end_of_command, record_at
from refold.engine.streams import (
    NEXT_NUMBER_KEY,
    Checkpoints,
    Stream,
    Streams,
    key_of,
    name_of,
    parse_name_key,
    parse_stream_row,
    records_through,
    rows_of,
    split_key,
)
from refold.engine.walk import Marks, WalkState
from refold.errors import InvalidInput, StoreCorrupt, StoreVersion
from refold.event import FLAG_BASE, FLAG_ERASED, FLAG_OCCURRED, BranchForked, Erased, Event, Stamp, move_actor
from refold.limits import (
    CHECKPOINT_EVENTS,
    CHECKPOINT_ROWS_MAX,
    CUT_BYTES,
    CUT_ROWS,
    EVICTED_COUNT_MIN,
    KEYED_HASH_BYTES,
    PACKED_COUNT_MIN,
    PAGE_EVENTS,
    TIME_NS_MAX,
)
from refold.log.protocol import TABLES, Log, Row, Table, scan, write
from refold.log.record import (
    MARK_COMMAND,
    NO_LINK,
    SEQ,
    Columns,
    Head,
    Record,
    Sealed,
    StreamHead,
    digest_of,
    encode,
    keyed_hash,
    link_after,
)
from refold.views.store import Branch

# The seqs and streams of a log that is written anew, where they differ from the old one.


class Seqs:
    """The seqs in the new log by those in the old one: lower by one after each event that is left out."""

    def __init__(self) -> None:
        self._left_out: list[int] = []
        self._first: dict[int, int] = {}
        """Seq of an event that is left out -> seq of the event that it repeats."""

    def __bool__(self) -> bool:
        """Return whether any seq differs."""
        return bool(self._left_out)

    def leave_out(self, seq: int, first: int) -> None:
        """Record an event that repeats an earlier one."""
        self._left_out.append(seq)
        self._first[seq] = self._first.get(first, first)

    def of(self, seq: int) -> int:
        """Return the new seq of an event, or of the one that it repeats if it is left out; 0 means none."""
        seq = self._first.get(seq, seq)
        return seq - bisect_left(self._left_out, seq)

    def until(self, seq: int) -> int:
        """Return the new seq of the last event at or before an old seq."""
        return seq - bisect_right(self._left_out, seq)


class NewStream(NamedTuple):
    """A stream of the new log."""

    number: int
    branch: int
    name: str


class StreamNumbers:
    """The stream of each event: that of its number, unless a faulty writer gave two streams the same number.

    In that case each stream continues from its own events, and the one that began later gets another number.
    """

    def __init__(self, log: Log) -> None:
        self._keys = _keys(log)
        self._known: dict[tuple[int, int], NewStream] = {}
        """By number in the old log and place among the streams of that number."""
        self._shared: dict[int, tuple[list[int], list[int]]] = {}
        """Number shared by two streams -> the seqs of its events, and the place of the stream of each."""
        given = int.from_bytes(log.row("meta", NEXT_NUMBER_KEY) or b"", "big")
        self._next_number = max(given, 1, *(number + 1 for number in self._keys))
        for number, count in _count_begins(
            log, {number for number, keys in self._keys.items() if len(keys) > 1}
        ).items():
            if count == 1:
                del self._keys[number][:-1]  # Names under which no stream ever began.
            elif len(self._keys[number]) == 2:  # noqa: PLR2004 - with more, it is unknown which began when
                self._shared[number] = ([], [])
            else:
                names = ", ".join(map(name_of, self._keys[number]))
                raise StoreCorrupt(
                    f"stream number {number} is that of {names}; recover to a seq before the second of them began"
                )

    def __bool__(self) -> bool:
        """Return whether any two streams share a number."""
        return bool(self._shared)

    def of(self, seqs: Sequence[int], head: StreamHead) -> NewStream:
        """Return the stream of the events at the seqs, which share a head in one record; call it in their order."""
        if head.number not in self._shared:
            return self._stream(head.number, 0)
        known, places = self._shared[head.number]
        before = bisect_left(known, head.seq)
        is_of_one = before < len(known) and known[before] == head.seq
        place = places[before] if is_of_one else int(bool(known))
        known += seqs
        places += [place] * len(seqs)
        return self._stream(head.number, place)

    def number(self, number: int, seq: int) -> int:
        """Return the new number of the stream that had a number at a seq."""
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
        return rows_of([Stream(number, name, branch) for number, branch, name in self._known.values()])

    def repairs(self) -> Iterator[str]:
        """Yield a message for each stream that gets another number."""
        for (number, place), stream in self._known.items():
            if place:
                other = self._known[number, 0].name
                yield f"{stream.name} had the number of {other}, {number}, and has {stream.number} now"


def _keys(log: Log) -> dict[int, list[str]]:
    """Return the keys of the streams of each number; the stream that got the number last comes last."""
    keys: dict[int, list[str]] = {}
    for number, packed in scan(log, "streams", b"", PAGE_EVENTS):
        try:
            name, branch = parse_stream_row(packed)
        except StoreCorrupt:
            continue  # The row of its name then gives the key.
        keys[int.from_bytes(number, "big")] = [key_of(branch, name)]
    known = {own for (own,) in keys.values()}
    for packed, number in scan(log, "names", b"", PAGE_EVENTS):
        key = parse_name_key(packed)
        if key not in known:
            keys.setdefault(int.from_bytes(number, "big"), []).insert(0, key)
    return keys


def _count_begins(log: Log, numbers: set[int]) -> Counter[int]:
    """Return, by stream number, how often events continue from none of the events before them."""
    begun = Counter[int]()
    seqs: dict[int, set[int]] = {number: set() for number in numbers}
    for record in records_through(log, 0, log.head() if numbers else 0):
        for stream in record.heads:
            if stream.number in numbers:
                begun[stream.number] += stream.seq not in seqs[stream.number]
        for seq, number in enumerate(record.numbers, record.first_seq):
            if number in numbers:
                seqs[number].add(seq)
    return begun


# Folding a log that has no checkpoint rows, and storing the rows that its writers would have stored.


class Rebuild:
    """One fold of a whole log, page by page; it evicts streams on the way, as a store does while it is written."""

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
        """Store every row and reload the engine; do nothing if the log has events that this program does not know."""
        if self._engine.reader.unknown_tags:
            return
        head, seq = self._log.head(), 0
        while seq < head:
            self._loader.bytes_read = 0
            page = self._loader.numbered_events(seq, head)
            event_bytes = self._loader.bytes_read // len(page)
            for number, event, stamp in page:
                self._fold(number, event, stamp, event_bytes)
            seq = page[-1][2].seq
            self._tidy_up(seq, len(page))
        for rows in self._packer.remaining_rows(head, []):
            write(self._log, (), rows)
        self._engine.reload()

    def _fold(self, number: int, event: Event, stamp: Stamp, event_bytes: int) -> None:
        stream = self._streams.at_number(number)
        if not stream.seq and stream.base is not None:
            stream.seq = stream.base[1]  # The first event of a branch's stream continues what it inherited.
        is_base = stamp.flags & FLAG_BASE
        stream.state = self._loader.base_state(event, stream.kind) if is_base else self._loader.live(stream)
        fold.fold(stream.state, stamp, event)
        self._streams.advance(stream, (stamp,), event_bytes)
        if len(stream.seqs) >= (stream.due or CHECKPOINT_EVENTS):
            self._packer.keep(stream)
        if is_base:
            self._packer.keep_base(stream)

    def _tidy_up(self, seq: int, count: int) -> None:
        """Keep RAM within its bound, and store waiting rows."""
        if self._eviction.is_over:
            self._eviction.trim(max(EVICTED_COUNT_MIN, 2 * count))
            self._eviction.release_pages()
        self._packer.proceed(count)
        if seq > self._packer.tail_due:
            self._packer.shorten_tail(seq, max(PACKED_COUNT_MIN, 2 * count))
        waiting = self._checkpoints.waiting
        if len(waiting) >= CHECKPOINT_ROWS_MAX:
            write(self._log, (), [*waiting, self._packer.applied_seq_row(seq)])
            self._checkpoints.clear_waiting()


_SEED_KEYS: Final = (STORE_ID_KEY, HASH_KEY)
_CACHES: Final[frozenset[Table]] = frozenset(("checkpoints", "digests", "graphs"))
_WRITTEN: Final[frozenset[Table]] = frozenset(("derived", "meta", "names", "requests", "streams", "vectors"))


def check_end(log: Log, seq: int) -> None:
    """Raise ``InvalidInput`` unless a command ends at a seq: a command is kept whole or not at all."""
    if not 0 < seq < log.head():
        return
    last = end_of_command(log, seq)
    if last != seq:
        record = record_at(log, seq)
        first = record.commands[seq - record.first_seq]
        raise InvalidInput(
            f"seq {seq} is inside the command of seqs {first} to {last}, which is kept whole or not at all; "
            f"recover to {first - 1} or to {last}"
        )


def seeds(log: Log) -> dict[bytes, bytes]:
    """Return the rows of ``meta`` that are drawn when a store is made; the new store is the same one."""
    return {key: log.row("meta", key) or b"" for key in _SEED_KEYS}


class Repair:
    """One pass over a log that does not change meanwhile; ``into`` is the log of the new store, which is empty."""

    def __init__(self, log: Log, into: Log, seq: int) -> None:
        self._log, self._into, self._until = log, into, seq
        self._streams = StreamNumbers(log)
        self._positions = Positions()
        self._seen, self._marks_seen = WalkState(), Marks()
        self._seqs = Seqs()
        self.head = 0
        """The seq of the last event in the new log."""
        self._link, self._time_ns = NO_LINK, -TIME_NS_MAX
        self._commands: dict[int, int] = {}
        """Seq at which the last command began in the old log -> seq at which it begins in the new one."""
        self._copied: set[int] = set()
        """Records with erased bodies that were copied unchanged, by the seqs of their last events."""
        self._tags: set[int] = set()
        self._bare: set[int] = set()
        """The seqs, in the new log, of events whose bodies are gone."""
        self._erased: set[int] = set()
        """Seqs that ``Erased`` events name."""
        self._recounted: dict[str, list[int]] = {}
        """Key of a stream -> seq, old and new version from which it is recounted, and the number of its events."""
        self._left_out: dict[str, list[int]] = {}
        """Key of a stream -> seqs of its events that are left out."""
        self._relinked = self._redated = 0
        """The first seqs from which links and times differ from the old log."""
        self._records: list[Sealed] = []
        self._bytes = 0
        self._rows: list[Row] = []

    def run(self) -> Erased | None:
        """Write everything; return the event that accounts for bodies erased after the end, or ``None``."""
        for record in records_through(self._log, 0, self._until):
            self._record(record, min(record.count, self._until - record.first_seq + 1))
        self._rows += [*self._streams.rows(), *self._requests(), *self._meta_rows()]
        for row in self._vectors():
            self._rows.append(row)
            if len(self._rows) >= CHECKPOINT_ROWS_MAX:
                self._write()
        self._write()
        missing, unproved = self._bare - self._erased, set(self._seen.unproved_seqs())
        if not missing and not unproved:
            return None
        erased, digests = self._later_erasures()
        for last in unproved:
            if digests.get(last) != self._seen.left[last]:
                raise StoreCorrupt(
                    f"the record that ends at seq {last} was erased from, and is not what the erasure left; "
                    f"run `refold verify`, and recover another backup"
                )
        left = {last: digest for last, digest in self._seen.left.items() if last in unproved & self._copied}
        found = Erased((), tuple(sorted(missing & erased)), tuple(sorted(left.items())))
        return found if found.seqs or found.digests else None

    def repairs(self) -> tuple[str, ...]:
        """Return a message for each change, with the seqs and versions of the old log."""
        changes = list(self._streams.repairs())
        for key, (seq, old, new, count) in self._recounted.items():
            changes.append(f"{name_of(key)}: version {old} at seq {seq} is version {new}, and so on: {count} events")
        for key, seqs in self._left_out.items():
            changes.append(
                f"{name_of(key)}: {len(seqs)} events that were there twice are there once; the first was seq {seqs[0]}"
            )
        if self._redated:
            changes.append(f"no event from seq {self._redated} on is dated before the one in front of it")
        if self._relinked:
            changes.append(f"the links of the chain from seq {self._relinked} on are new")
        return tuple(changes)

    # The log.

    def _record(self, record: Record, count: int) -> None:
        """Write a record's first ``count`` events, byte for byte if nothing about them changes."""
        events, columns = events_of(record)[:count], record.to_columns()
        repeats = self._marks_seen.repeats(self._log, record, events)
        self._seen.note(record, events)
        time_ns = max(record.time_ns, self._time_ns)
        if time_ns != record.time_ns:
            self._redated = self._redated or record.first_seq
        first, was_moved = self.head + 1, bool(self._seqs or self._streams)
        heads = self._heads(record, repeats, count)
        kept = [place for place in range(count) if record.first_seq + place not in repeats]
        if not kept:
            self._relinked = self._relinked or record.first_seq
            return
        before = self._commands
        marks = self._marks_of(record, kept)
        is_whole = len(kept) == record.count and [*heads.values()] == columns.streams
        if is_whole and not was_moved and time_ns == record.time_ns:
            content, covered = record.content, record.covered_digest()
            if record.has_origin:
                self._copied.add(record.last_seq)
        else:
            owners = {owner: place for place, owner in enumerate(heads)}
            causes, actors, flags = record.causes, record.actors, record.flags
            occurred = [
                when if flags[place] & FLAG_OCCURRED or when != record.time_ns else time_ns
                for place, when in enumerate(record.occurred_ns)
            ]
            part = Columns(
                list(heads.values()),
                [owners[columns.owners[place]] for place in kept],
                marks,
                [move_actor(actors[place], self._seqs.of) for place in kept],
                [self._seqs.of(causes[place]) for place in kept],
                [occurred[place] for place in kept] if columns.occurred else (),
                [self._array(columns.arrays[place], events[place]) for place in kept],
            )
            # The old content that the chain covered is gone with this change, so the link covers the new content.
            command = first if marks[0] & MARK_COMMAND else before[record.commands[kept[0]]]
            # A different salt: under the same one, events left out here could be guessed once they are erased there.
            content = encode(Head(first, time_ns, command, keyed_hash(record.salt, SEQ.pack(first))), part)
            covered = digest_of(content)
        self._note(first, [events[place] for place in kept], marks)
        self._time_ns, self._link = time_ns, link_after(self._link, covered)
        self._put(self._link + content)
        if self._link != record.link:
            self._relinked = self._relinked or record.first_seq

    def _heads(self, record: Record, repeats: Mapping[int, int], count: int) -> dict[int, StreamHead]:
        """Return the head of each stream before a record, by the stream's place in it, as the new log has it.

        Also records the heads after the record and the events that are left out, and advances the head of the new log.
        """
        seqs_of: dict[int, list[int]] = {}
        heads: dict[int, StreamHead] = {}
        streams: dict[int, NewStream] = {}
        for seq, owner in enumerate(record.owners[:count], record.first_seq):
            seqs_of.setdefault(owner, []).append(seq)
        for owner, seqs in sorted(seqs_of.items()):
            old = record.heads[owner]
            stream = streams[owner] = self._streams.of(seqs, old)
            key = key_of(stream.branch, stream.name)
            left_out = [seq for seq in seqs if seq in repeats]
            if left_out:
                self._left_out.setdefault(key, []).extend(left_out)
            if len(left_out) == len(seqs):
                continue
            version, last = self._positions.at(stream.branch, stream.name)
            if (old.version, self._seqs.of(old.seq)) != (version, last):
                self._recounted.setdefault(key, [seqs[0], old.version + 1, version + 1, 0])[-1] += len(seqs)
            heads[owner] = StreamHead(stream.number, version, last, stream.branch)
        for seq, owner in enumerate(record.owners[:count], record.first_seq):
            if seq in repeats:
                self._seqs.leave_out(seq, repeats[seq])
            else:
                self.head += 1
                self._positions.note(streams[owner].branch, streams[owner].name, self.head)
        return heads

    def _marks_of(self, record: Record, kept: Sequence[int]) -> list[int]:
        """Return the marks of the kept events; a command begins with the first of its events that is kept."""
        marks: list[int] = []
        commands, flags = record.commands, record.flags
        for seq, place in enumerate(kept, self.head + 1 - len(kept)):
            command = commands[place]
            if command not in self._commands:
                self._commands = {command: seq}
            marks.append(flags[place] | (MARK_COMMAND if self._commands[command] == seq else 0))
        return marks

    def _array(self, packed: bytes, event: Event) -> bytes:
        """Return an event's array with the seqs and streams that it names replaced by those of the new log."""
        if not (self._seqs or self._streams):
            return packed
        if isinstance(event, fold.Unknown):
            raise StoreVersion(
                f"an event of tag {event.tag} may name seqs that are others now, and is not known; upgrade refold"
            )
        moved = msgspec.structs.replace(event, **self._map_fields(event))
        return packed[:1] + fold.encode(moved)[1 : fold.body_begin(moved)] + packed[fold.body_begin(event) :]

    def _note(self, first: int, events: Sequence[Event], marks: Sequence[int]) -> None:
        """Collect the data of events that other rows record."""
        for seq, (event, mark) in enumerate(zip(events, marks, strict=True), first):
            if mark & FLAG_ERASED:
                self._bare.add(seq)
            if isinstance(event, fold.Unknown):
                self._tags.add(event.tag)
                continue
            self._tags.add(fold.TAGS[type(event)])
            sources = tuple(map(self._seqs.of, event.sources))
            self._rows.extend(("derived", SEQ.pack(source) + SEQ.pack(seq), b"") for source in sources)
            if isinstance(event, Erased):
                self._erased.update(map(self._seqs.of, event.seqs))
            if isinstance(event, BranchForked):
                self._positions.forks.append(Branch(event.name, event.base_branch, self._seqs.until(event.base_seq)))

    def _map_fields(self, event: Event) -> dict[str, Any]:
        """Return the fields of an event that name seqs or a stream, with their values in the new log."""
        found: dict[str, Any] = {}
        for field in event.__struct_fields__:
            value = getattr(event, field)
            if field in fold.SCALAR_SEQS:
                found[field] = self._seqs.of(value)
            elif field in fold.SEQ_LISTS:
                found[field] = tuple(map(self._seqs.of, value))
            elif field == "base_stream":
                found[field] = self._streams.number(value, getattr(event, "base_seq"))  # noqa: B009 - both or neither
            elif field == "base_seq":
                found[field] = self._seqs.until(value)
        return found

    def _put(self, record: bytes) -> None:
        self._records.append((self.head, record))
        self._bytes += len(record)
        if len(self._records) >= CUT_ROWS or self._bytes >= CUT_BYTES:
            self._write()

    def _write(self) -> None:
        """Write the waiting records and rows; callers call this often enough to keep transactions short."""
        write(self._into, self._records, self._rows)
        self._records, self._rows, self._bytes = [], [], 0

    # The rows beside the log.

    def _requests(self) -> Iterator[Row]:
        """Return the requests that were answered by the end."""
        for key, row in scan(self._log, "requests", b"", PAGE_EVENTS):
            first, last = answer_of(row)
            if last <= self._until:
                last = self._seqs.of(last) if first else self._seqs.until(last)
                yield "requests", key, row[:KEYED_HASH_BYTES] + SEQ.pack(self._seqs.of(first)) + SEQ.pack(last)

    def _vectors(self) -> Iterator[Row]:
        """Yield the vectors of the kept messages, so that no embedding is paid for twice."""
        for key, value in scan(self._log, "vectors", b"", PAGE_EVENTS):
            vector = vectors.unpack_row(key, value)
            seq = self._seqs.of(int.from_bytes(key[: SEQ.size], "big"))
            if vector is not None and 0 < seq <= self.head and seq not in self._bare:
                yield vectors.move_row(key, seq, vector)

    def _meta_rows(self) -> Iterator[Row]:
        """Yield the rows about the store itself; an interrupted load does not resume if seqs have changed."""
        yield "meta", TAGS_KEY, msgspec.msgpack.encode(sorted(self._tags)) if self._tags else None
        if not self._seqs:
            yield transfer.seq_maps_row(self._log, self._until)
            yield transfer.load_marker_row(self._log, self._until)

    def _later_erasures(self) -> tuple[set[int], dict[int, bytes]]:
        """Return the seqs of bodies that events after the end erased, and the digests that they give of records."""
        seqs, digests = set[int](), dict[int, bytes]()
        for record in records_through(self._log, self._until, self._log.head()):
            for seq, packed in enumerate(record.arrays, record.first_seq):
                event = fold.decode(packed) if fold.tag_of(packed) == fold.TAGS[Erased] else None
                if isinstance(event, Erased) and seq > self._until:
                    seqs.update(map(self._seqs.of, event.seqs))
                    digests.update(event.digests)
        return seqs, digests


assert set(TABLES) == _CACHES | _WRITTEN, "a table that a repair would leave out"
