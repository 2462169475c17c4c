"""Export and load: the whole log as JSONL, loaded into an empty store, or after the head of one with events.

A load checks the file to its last line before it writes the first event. It writes in large transactions. An
interrupted load leaves a marker, and loading the same file again resumes where it stopped.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import count, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias, cast

import msgspec

from refold import checks, fold
from refold.engine.engine import Engine
from refold.engine.jsonl import (
    JSONL_FORMAT,
    ExportCheck,
    ExportFoot,
    ExportHead,
    ExportLine,
    ExportState,
    Numbers,
    check_foot,
    event_from_json,
    event_to_json,
    head_of,
    is_foot,
    line_of,
)
from refold.engine.reader import TAGS_KEY, Reader, check_time
from refold.engine.scan import EventFilter, events_with
from refold.engine.streams import (
    STORE_STREAM,
    Names,
    Stream,
    key_of,
    name_key,
    number_key,
    records_of,
    reports_damage,
    rows_of,
)
from refold.engine.transaction import erased_count
from refold.errors import InvalidInput, LimitExceeded, NotFound, StoreBusy, StoreCorrupt
from refold.event import (
    FLAG_BASE,
    FLAG_ERASED,
    FLAG_OCCURRED,
    BranchForked,
    Erased,
    Event,
    SnapshotNamed,
    move_actor,
    pack_json,
)
from refold.limits import DOCUMENT_BYTES_MAX, PAGE_EVENTS, SEED_BYTES
from refold.log.disk import build_file, disk_error
from refold.log.protocol import Log, LogTurn, Row, retry_turn, write
from refold.log.record import (
    MARK_COMMAND,
    NO_LINK,
    SEQ,
    Columns,
    Record,
    Sealed,
    StreamHead,
    keyed_hash,
    link_after,
    pack,
)
from refold.results import Loaded
from refold.views.board import node_board, plain_name
from refold.views.store import DEFAULTS, SWITCHES, SettingChanged

# Loading an export into a store that has events: the same events, as new ones after the head.
#
# Each event gets a new seq and the time of the load, but keeps the time at which it happened. The seqs that it names
# are mapped to those here. Settings keep the values that they have here. Streams come in under their own or other
# names, and never into an existing stream, except for the store's own. An interrupted load leaves a row that says where
# its events went, and loading the same file in the same way resumes after them.


class CheckedLine(NamedTuple):
    """A checked line with its event, and the numbers of its actor and its branch; all are those of the file."""

    line: ExportLine
    event: Event
    actor: int
    branch: int
    prev_seq: int
    """The seq of the event before it in its stream."""


Progress: TypeAlias = Callable[[int, int], None]
"""Called after each transaction with the number of events so far, and of all."""

_JOINED_KEY: Final = b"joined"
_LOAD_EVENTS: Final = 10_000
"""Number of events to write in one transaction."""
_SHOWN_COUNT: Final = 10
_NAME_FIELDS: Final = {
    **{kind: kind for kind in ("project", "conversation", "profile", "journal")},
    "session": "conversation",
}
"""Fields that hold the name of a stream, with its kind; a session can have a name that no stream has."""

_SEQ_FIELDS: Final = (*fold.SCALAR_SEQS, "base_seq")


class SeqMap(msgspec.Struct, array_like=True):
    """The seqs here of a file's events: runs of (first seq in the file, first seq here), and the events so far."""

    events: int = 0
    runs: list[tuple[int, int]] = msgspec.field(default_factory=list[tuple[int, int]])

    def note(self, first_seq: int, count: int) -> None:
        """Record where the next events go."""
        first = self.events + 1
        if not self.runs or self.runs[-1][1] - self.runs[-1][0] != first_seq - first:
            self.runs.append((first, first_seq))
        self.events += count

    def seq(self, seq: int) -> int:
        """Return the seq here of an event in the file; 0 means none."""
        if not seq:
            return 0
        first, here = self.runs[bisect_right(self.runs, seq, key=itemgetter(0)) - 1]
        return seq - first + here

    def until(self, seq: int) -> "SeqMap":
        """Return the map of those events that are at or before a seq here."""
        runs = [run for run in self.runs if run[1] <= seq]
        if not runs:
            return SeqMap()
        first, here = runs[-1]
        following = self.runs[len(runs)][0] if len(runs) < len(self.runs) else self.events + 1
        return SeqMap(min(first + seq - here, following - 1), runs)


def join(
    engine: Engine,
    digest: bytes,
    read: Callable[[], Iterable[CheckedLine]],
    rename: Mapping[str, str],
    progress: Progress | None,
) -> Loaded:
    """Append the events of a checked file; the caller keeps other threads of this process from committing.

    Raises ``InvalidInput`` if streams of the file are in the store already, and names them.
    """
    count, streams = _count_events(_without_branches(read()))
    names = _map_names(streams, rename)
    key = sha256(digest + msgspec.msgpack.encode(sorted(names.items()))).digest()
    seq_map = _seq_maps(engine.reader.log).get(key, SeqMap())
    before = seq_map.events
    if before and before == count:
        return Loaded(0, len(streams), repeated=True)
    if not before:
        _check_names_free(engine.reader, names)
    target = _Join(engine.reader, names, seq_map, key)
    try:
        for page in _pages(checked for checked in read() if checked.line.seq > before):
            target.write(page)
            if progress is not None:
                progress(seq_map.events, count)
    except BaseException:
        # Whatever ended this, an interrupt included, the log alone tells which events are durable.
        engine.reload()
        raise
    return Loaded(count - before, len(streams))


def check_rename(rename: object) -> dict[str, str]:
    """Return the names that a caller gives to streams; each keeps the kind of its stream."""
    if rename is None:
        return {}
    if not isinstance(rename, Mapping):
        checks.invalid(f"rename must map names of streams to other names, not be a {type(rename).__name__}")
    renames = dict(cast("Mapping[object, object]", rename))
    for name, new in renames.items():
        if not isinstance(name, str) or not isinstance(new, str):
            checks.invalid(f"rename maps {checks.brief(name)} to {checks.brief(new)}; both must be names of streams")
        kind, _, rest = name.partition("/")
        if name == STORE_STREAM or kind not in fold.KINDS or new.partition("/")[0] != kind:
            checks.invalid(
                f"rename maps {checks.brief(name)} to {checks.brief(new)}; give names such as 'conversation/chat-42', "
                f"both of one kind, and not {STORE_STREAM}, which every store has"
            )
        checks.name(rest, "a name in rename")
        checks.name(new.partition("/")[2], "a new name in rename")
    return cast("dict[str, str]", renames)


def _without_branches(lines: Iterable[CheckedLine]) -> Iterator[CheckedLine]:
    """Yield the events; ``InvalidInput`` if one is about a whole memory, because this memory is a different one."""
    for checked in lines:
        line, event = checked.line, checked.event
        is_whole = isinstance(event, SnapshotNamed) and not event.base_stream
        if line.branch or is_whole or isinstance(event, BranchForked):
            checks.invalid(
                f"the export holds forks or snapshots of a whole memory (seq {line.seq}), and this one has "
                f"other events; load it into a new store"
            )
        yield checked


def _count_events(lines: Iterable[CheckedLine]) -> tuple[int, list[str]]:
    count, streams = 0, dict[str, None]()
    for checked in lines:
        count += 1
        streams[checked.line.stream] = None
    return count, list(streams)


def _map_names(streams: Sequence[str], rename: Mapping[str, str]) -> dict[str, str]:
    """Return the name here of each stream in the file; ``InvalidInput`` if two would get one, or one is not there."""
    missing = sorted(rename.keys() - set(streams))
    if missing:
        more = ", ..." if len(streams) > _SHOWN_COUNT else ""
        checks.invalid(
            f"rename has {checks.brief(missing[0])}, which the export has not; it has "
            f"{', '.join(sorted(streams)[:_SHOWN_COUNT])}{more}"
        )
    boards = tuple(node_board(name.partition("/")[2], "") for name in rename if name.startswith("project/"))
    for stream in streams:
        if stream.startswith(boards):
            checks.invalid(
                f"rename gives the project of {plain_name(stream)} another name, and the boards of its nodes name it "
                f"in many places; load the export into a new store"
            )
    names: dict[str, str] = {}
    owners: dict[str, str] = {}
    for stream in streams:
        names[stream] = new = rename.get(stream, stream)
        if owners.setdefault(new, stream) != stream:
            checks.invalid(f"{owners[new]} and {stream} would both be {new}; give each a name of its own in rename")
    return names


def _seq_maps(log: Log) -> dict[bytes, SeqMap]:
    """Return where the events of each file went that was loaded beside others, by a hash of the file and the names."""
    row = log.row("meta", _JOINED_KEY)
    return {} if row is None else msgspec.msgpack.decode(row, type=dict[bytes, SeqMap])


def seq_maps_row(log: Log, seq: int) -> Row:
    """Return the row that says where the events of loaded files went, for a log that ends at a seq."""
    maps = {key: seq_map.until(seq) for key, seq_map in _seq_maps(log).items()}
    maps = {key: seq_map for key, seq_map in maps.items() if seq_map.events}
    return "meta", _JOINED_KEY, msgspec.msgpack.encode(maps) if maps else None


def _check_names_free(reader: Reader, names: Mapping[str, str]) -> None:
    with reader.state_lock:
        taken = [new for new in names.values() if new != STORE_STREAM and reader.streams.find(new) is not None]
    if taken:
        shown = ", ".join(taken[:_SHOWN_COUNT])
        more = f" and {len(taken) - _SHOWN_COUNT} more" if len(taken) > _SHOWN_COUNT else ""
        example = f"rename={{{taken[0]!r}: {taken[0] + '-loaded'!r}}}"
        raise InvalidInput(
            f"streams of the export are in this store already: {shown}{more}; load them under other names with "
            f"{example}, or load into a new store"
        )


def _pages(lines: Iterable[CheckedLine]) -> Iterator[list[CheckedLine]]:
    """Yield the events in pages of whole commands, so that each command is written in one transaction."""
    page: list[CheckedLine] = []
    for _, command in groupby(lines, key=lambda checked: checked.line.command):
        page.extend(command)
        if len(page) >= _LOAD_EVENTS:
            yield page
            page = []
    if page:
        yield page


class _Join:
    """A load in progress; its events are folded like those of another process."""

    def __init__(self, reader: Reader, names: Mapping[str, str], seq_map: SeqMap, key: bytes) -> None:
        self._reader = reader
        self._names = names
        self._seqs = seq_map
        self._key = key

    def write(self, page: Sequence[CheckedLine]) -> None:
        """Write a page of events in one transaction, and fold it."""
        reader = self._reader
        now_ns = check_time(reader.clock_ns())

        def take() -> None:
            reader.notice()
            reader.log.in_turn(partial(self._take_turn, page, now_ns))

        retry_turn(take)
        with reader.state_lock:
            reader.catch_up()

    def _take_turn(self, page: Sequence[CheckedLine], now_ns: int, turn: LogTurn) -> None:
        reader = self._reader
        seed = reader.random_bytes(SEED_BYTES)
        seq_map = SeqMap(self._seqs.events, list(self._seqs.runs))
        with reader.state_lock:
            if turn.last_commit != reader.last_commit:
                reader.catch_up()
            reader.check_writable()
            stored = _seq_maps(reader.log).get(self._key, SeqMap())
            if stored.events != self._seqs.events:
                raise StoreBusy(
                    f"another process loads the same file, {stored.events:,} events of it so far; wait for that, and "
                    f"load it again, which finds what is left"
                )
            if not stored.events:
                _check_names_free(reader, self._names)
            seq_map.note(reader.head + 1, len(page))
            target = _JoinPage(reader, self._names, seq_map, max(now_ns, reader.time_ns), seed)
            store = reader.find(STORE_STREAM)
            if seq_map.runs[0][1] > 1:  # Not into an empty store, which has no settings to keep.
                target.keep_settings({} if store is None else reader.live(store).part(SWITCHES).values)
            for checked in page:
                target.add(checked)
        joined = msgspec.msgpack.encode(_seq_maps(reader.log) | {self._key: seq_map})
        rows: list[Row] = [*target.all_rows(), ("meta", _JOINED_KEY, joined)]
        turn.write(target.records.finish(), rows)
        self._seqs.events, self._seqs.runs = seq_map.events, seq_map.runs


class _JoinPage:
    """The records of one transaction, and the rows beside them."""

    def __init__(self, reader: Reader, names: Mapping[str, str], seq_map: SeqMap, time_ns: int, seed: bytes) -> None:
        self._reader = reader
        self._names = names
        self._seqs = seq_map
        self._time_ns = time_ns
        self._streams: dict[str, Stream] = {}
        """The streams here, by their names in the file."""
        self._new_streams: list[Stream] = []
        self._heads: dict[int, tuple[int, int]] = {}
        """Number of a stream -> version and seq of its last event, including those of this page."""
        self._tags = set(reader.tags)
        self._rows: list[Row] = []
        self._settings: dict[str, bytes] | None = None
        self.records = RecordPacker(reader.head + 1, reader.link, seed)

    def keep_settings(self, values: Mapping[str, bytes]) -> None:
        """Let changes of settings set the values here: a memory that was switched off stays off."""
        self._settings = {name: pack_json(default) for name, default in DEFAULTS.items()} | dict(values)

    def _stream(self, name: str) -> Stream:
        """Return the stream here for the name of one in the file; a new stream gets the next number."""
        stream = self._streams.get(name)
        if stream is None:
            streams, new_name = self._reader.streams, self._names[name]
            stream = streams.find(new_name)
            if stream is None:
                stream = Stream(streams.next_number + len(self._new_streams), new_name)
                self._new_streams.append(stream)
            self._streams[name] = stream
            self._heads[stream.number] = (stream.version, stream.seq)
        return stream

    def add(self, checked: CheckedLine) -> None:
        """Add an event under its new stamp."""
        line = checked.line
        number, seq = self._stream(line.stream).number, self._seqs.seq(line.seq)
        version, prev_seq = self._heads[number]
        self._heads[number] = (version + 1, seq)
        event = self._translate_event(line, checked.event)
        self._tags.add(fold.TAGS[type(event)])
        self._rows.extend(("derived", SEQ.pack(source) + SEQ.pack(seq), b"") for source in event.sources)
        self.records.add(
            event,
            StreamHead(number, version, prev_seq),
            time_ns=self._time_ns,
            # The time at which it happened is that of its line; only the time of writing is new.
            occurred_ns=line.happened_ns,
            is_given=True,
            command=self._seqs.seq(line.command),
            cause=self._seqs.seq(line.cause),
            actor=move_actor(checked.actor, self._seqs.seq),
            erased=line.erased,
        )

    def _translate_event(self, line: ExportLine, event: Event) -> Event:
        """Return the event with the seqs, the stream and the project that it names translated to those here."""
        if isinstance(event, SettingChanged) and not line.erased and self._settings is not None:
            event = msgspec.structs.replace(event, packed=self._settings[event.key])
        changed: dict[str, Any] = {}
        for field in event.__struct_fields__:
            value = getattr(event, field)
            if field in _SEQ_FIELDS:
                changed[field] = self._seqs.seq(value)
            elif field in fold.SEQ_LISTS:
                changed[field] = tuple(map(self._seqs.seq, value))
            elif field == "base_stream" and value:
                changed[field] = self._stream(line.event["base_stream"]).number
            elif field in _NAME_FIELDS and value is not None:
                stream = f"{_NAME_FIELDS[field]}/{value}"
                changed[field] = self._names.get(stream, stream).partition("/")[2]
        return msgspec.structs.replace(event, **changed)

    def all_rows(self) -> list[Row]:
        """Return the rows for everything that the page adds."""
        tags = msgspec.msgpack.encode(sorted(self._tags))
        return [*self._rows, *rows_of(self._new_streams), ("meta", TAGS_KEY, tags)]


class RecordPacker:
    """Events of an export that wait to be packed into records; those of the same time go together."""

    def __init__(self, first_seq: int, link: bytes, seed: bytes) -> None:
        self.link = link
        self._first_seq = first_seq
        self._seed = seed
        self._records: list[Sealed] = []
        self._time_ns = self._command = 0
        self._heads: dict[int, StreamHead] = {}
        """Number of a stream -> its head before the waiting events, in their order."""
        self._waiting: list[tuple[int, int, int, int, int, bytes]] = []
        """Number of the stream, mark, actor, cause, time and array of each event in the next record."""
        self._is_dated = False

    def add(
        self,
        event: Event,
        head: StreamHead,
        *,
        time_ns: int,
        occurred_ns: int,
        is_given: bool,
        command: int,
        cause: int,
        actor: int,
        erased: bool,
    ) -> None:
        """Add an event; ``head`` is its stream's head before it; ``is_given`` says who dated it: a caller."""
        if self._waiting and time_ns != self._time_ns:
            self._pack()
        if not self._waiting:
            self._time_ns, self._command = time_ns, command
        self._heads.setdefault(head.number, head)
        mark = FLAG_BASE if type(event) in fold.BASE_TYPES else 0
        if is_given:
            mark |= FLAG_OCCURRED
        self._is_dated |= is_given or occurred_ns != time_ns
        if command == self._first_seq + len(self._waiting):
            mark |= MARK_COMMAND
        array = fold.encode(event)
        if erased:
            mark, array = mark | FLAG_ERASED, fold.strip_body(array)
        self._waiting.append((head.number, mark, actor, cause, occurred_ns, array))

    def _pack(self) -> None:
        first_seq, places = self._first_seq, {number: place for place, number in enumerate(self._heads)}
        numbers, marks, actors, causes, occurred, arrays = zip(*self._waiting, strict=True)
        owners = [places[number] for number in numbers]
        heads = list(self._heads.values())
        columns = Columns(heads, owners, marks, actors, causes, occurred if self._is_dated else (), arrays)
        seed = keyed_hash(self._seed, SEQ.pack(first_seq))
        packed = pack(
            columns, first_seq=first_seq, time_ns=self._time_ns, command=self._command, seed=seed, link=self.link
        )
        self._records += packed.records
        self.link, self._first_seq = packed.link, first_seq + len(arrays)
        self._heads, self._waiting, self._is_dated = {}, [], False

    def finish(self) -> list[Sealed]:
        """Return the records of all events."""
        if self._waiting:
            self._pack()
        return self._records


_LOAD_KEY: Final = b"loaded"
_READ_BYTES: Final = 1 << 20
_DIGEST_BYTES: Final = 32


def export(engine: Engine, path: str, at: int | None, *, store_path: str | None, overwrite: bool) -> int:
    """Write the events up to ``at`` to a file, which appears whole or not at all, and return their number.

    Raises ``InvalidInput`` if the path lies in the store, or if there is a file at it and not ``overwrite``.
    """
    until = engine.reader.current_head() if at is None else at
    try:
        with build_file(path, "an export", outside=store_path, overwrite=overwrite) as file:
            file.writelines(lines(engine, until))
    except OSError as error:
        raise disk_error(error, f"exporting to {path}", "give a path in a directory that is writable") from error
    return until


def lines(engine: Engine, until: int) -> Iterator[bytes]:
    """Return the export's lines: its head, every event up to ``until``, read in short pages, and their digest."""
    digest = sha256()
    for line in _head_and_events(engine, until):
        digest.update(line)
        yield line
    yield msgspec.json.encode(ExportFoot(digest.hexdigest())) + b"\n"


def _head_and_events(engine: Engine, until: int) -> Iterator[bytes]:
    yield msgspec.json.encode(ExportHead(JSONL_FORMAT, engine.reader.store_id.hex(), until)) + b"\n"
    names, proofs = engine.reader.names(), _Proofs(engine.reader)
    link, after = NO_LINK, 0
    while after < until:
        with engine.reader.state_lock:
            engine.reader.check_open()
            page, link, after = _page_of_lines(engine.reader.log, names, proofs, link, after, until)
        yield from page


class _Proofs:
    """The digests that erasures left of records, by the seq of the record's last event; read again after another one.

    The erasures of a store share its stream with an event for each context shown, so one read serves all records.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._erased_count = 0
        self._digests: dict[int, bytes] = {}

    def of(self, seq: int) -> bytes | None:
        """Return the digest of the record that ends at a seq."""
        count = erased_count(self._reader)
        if count != self._erased_count:
            erasures = events_with(self._reader, EventFilter((), (Erased,)), stream=STORE_STREAM)
            self._digests = dict(proof for event, _ in erasures for proof in cast("Erased", event).digests)
            self._erased_count = count
        return self._digests.get(seq)


@reports_damage
def _page_of_lines(
    log: Log, names: Names, proofs: _Proofs, link: bytes, after: int, until: int
) -> tuple[list[bytes], bytes, int]:
    """Return the lines of some records, the link after them, and the seq that they reach."""
    page: list[bytes] = []
    for record in records_of(log, after, min(after + PAGE_EVENTS, until)):
        is_intact = link_after(link, record.covered_digest()) == record.link
        if record.has_origin:
            is_intact &= proofs.of(record.last_seq) == record.digest()
        if not is_intact:
            raise StoreCorrupt(
                f"the record that ends at seq {record.last_seq} is not what was written; run `refold verify`, and "
                f"restore a backup"
            )
        page += _record_lines(names, record, until)
        link, after = record.link, min(record.last_seq, until)
    return page, link, after


def _record_lines(names: Names, record: Record, until: int) -> Iterator[bytes]:
    branches = {head.number: head.branch for head in record.heads}
    for row, command, array in zip(record.rows(), record.commands, record.arrays, strict=True):
        seq, number, version, time_ns, occurred_ns, cause, actor, flags = row
        if seq > until:
            return
        event, erased, is_given = fold.decode(array), bool(flags & FLAG_ERASED), flags & FLAG_OCCURRED
        if isinstance(event, fold.Unknown):
            raise StoreCorrupt(
                f"seq {seq} is of tag {event.tag}, which this refold does not know; upgrade it before exporting"
            )
        line = ExportLine(
            seq,
            names.stream(number),
            version,
            time_ns,
            command,
            fold.NAMES[type(event)],
            event_to_json(event, names, erased=erased),
            occurred_ns if is_given else None,
            cause,
            names.actors[actor],
            erased,
            names.branch(branches[number]),
            None if is_given or occurred_ns == time_ns else occurred_ns,
        )
        yield msgspec.json.encode(line) + b"\n"


def load(engine: Engine, path: str, progress: Progress | None, rename: Mapping[str, str] | None = None) -> Loaded:
    """Load an export into an empty store, or resume an interrupted load of the same file.

    Into a store with events, or with renamed streams, the events are appended as new ones: see ``join``.
    """
    with engine.exclusive():
        engine.reader.check_writable()
        digest, count, streams = _check_file(path)
        head = engine.reader.current_head()
        marker = engine.reader.log.row("meta", _LOAD_KEY)
        if marker == b"done" + digest and not rename:
            return Loaded(0, streams, repeated=True)
        if rename or (head and marker != _part_marker(digest, head)):
            return join(engine, digest, lambda: _read(path), rename or {}, progress)
        try:
            with Path(path).open("rb") as file:
                state = ExportState()
                target = _FullLoad(engine.reader, digest, state.branches)
                lines = islice(_parse_lines(file, state), engine.reader.head, None)
                while page := list(islice(lines, _LOAD_EVENTS)):
                    target.write(page)
                    if progress is not None:
                        progress(target.seq, count)
            write(engine.reader.log, (), [("meta", _LOAD_KEY, b"done" + digest)])
            engine.reader.log.durability.flush()
        finally:
            engine.reload()
    return Loaded(count, streams)


def _part_marker(digest: bytes, head: int) -> bytes:
    """Return the marker of an interrupted load, which can resume only if nothing was appended since."""
    return b"part" + digest + SEQ.pack(head)


def load_marker_row(log: Log, seq: int) -> Row:
    """Return the marker of a load into an empty store for a log that ends at a seq, so that it can resume there.

    If the file had fewer events, resuming finds nothing left of it.
    """
    marker = log.row("meta", _LOAD_KEY)
    if seq >= log.head():
        return "meta", _LOAD_KEY, marker
    return "meta", _LOAD_KEY, _part_marker(marker[len(b"done") :][:_DIGEST_BYTES], seq) if marker and seq else None


def _read(path: str) -> Iterator[CheckedLine]:
    with Path(path).open("rb") as file:
        yield from _parse_lines(file, ExportState())


def _parse_lines(file: BinaryIO, state: ExportState, check: ExportCheck | None = None) -> Iterator[CheckedLine]:
    """Yield the lines of an export after its head; each is recorded in ``state`` before the next one.

    If the export has erased events but ends before the event of their erasure, the last line is such an event. Raises
    ``InvalidInput`` with the number of a line that is no event, or that ``check`` rejects.
    """
    raw = file.readline(DOCUMENT_BYTES_MAX)
    head_of(raw)
    digest = sha256(raw)
    numbers = Numbers(state.number, state.branches)
    last: ExportLine | None = None
    for number in count(2):
        raw = file.readline(DOCUMENT_BYTES_MAX + 1)
        if not raw or is_foot(raw):
            if raw:
                _check_end(file, raw, digest.hexdigest(), number)
            if last is not None and state.unexplained_seqs:
                yield _erasure_line(last, state)
            return
        digest.update(raw)
        if len(raw) > DOCUMENT_BYTES_MAX:
            raise LimitExceeded(
                f"line {number} is longer than DOCUMENT_BYTES_MAX = {DOCUMENT_BYTES_MAX:,} bytes; export again, no "
                f"event is as long"
            )
        if raw.strip():
            line = line_of(raw, number)
            try:
                checked = _check_line(line, state, numbers, check)
            except (InvalidInput, LimitExceeded) as error:
                raise InvalidInput(f"line {number}, {error}") from error
            yield checked
            state.note(line, checked.event)
            last = line


def _check_end(file: BinaryIO, foot: bytes, digest: str, number: int) -> None:
    check_foot(foot, digest, number)
    if file.read(1):
        raise InvalidInput(
            f"line {number + 1} is behind the digest with which an export ends; export again, the file was changed"
        )


def _erasure_line(last: ExportLine, state: ExportState) -> CheckedLine:
    seq, (version, prev_seq) = last.seq + 1, state.position("", STORE_STREAM)
    line = ExportLine(seq, STORE_STREAM, version + 1, last.time_ns, seq, fold.NAMES[Erased], {})
    return CheckedLine(line, Erased((), state.unexplained_seqs), state.actor(line), 0, prev_seq)


def _check_line(line: ExportLine, state: ExportState, numbers: Numbers, check: ExportCheck | None) -> CheckedLine:
    if line.branch not in state.branches:
        raise InvalidInput(
            f"seq {line.seq}: {line.branch!r} was not forked before it; export again, the file was changed"
        )
    state.number(line.branch, line.stream)
    event = event_from_json(line, numbers)
    prev_seq, actor = state.position(line.branch, line.stream).seq, state.actor(line)
    if check is not None:
        check.vet(line, event)
    return CheckedLine(line, event, actor, state.branches[line.branch], prev_seq)


def _check_file(path: str) -> tuple[bytes, int, int]:
    """Check a whole file; return its digest and its numbers of events and streams; ``InvalidInput`` for a bad line."""
    try:
        with Path(path).open("rb") as file:
            head = head_of(file.readline(DOCUMENT_BYTES_MAX))
            state = ExportState()
            check = ExportCheck(state)
            file.seek(0)
            for _ in _parse_lines(file, state, check):
                pass
            file.seek(0)
            digest = sha256()
            while block := file.read(_READ_BYTES):
                digest.update(block)
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path} to load; give the path of an export") from error
    except OSError as error:
        raise InvalidInput(f"reading {path}: {error}; give the path of an export") from error
    if check.events != head.head:
        raise InvalidInput(f"{path} says {head.head} events and has {check.events}; export again, the file was cut off")
    return digest.digest(), check.events + bool(state.unexplained_seqs), state.streams


class _FullLoad:
    """The state of a load between its transactions."""

    def __init__(self, reader: Reader, digest: bytes, branches: Mapping[str, int]) -> None:
        self._reader = reader
        self._branches = branches
        self._digest = digest
        self._streams = reader.streams
        self._numbers: dict[str, int] = {}
        self.seq = reader.head
        self._link = reader.link
        self._tags: set[int] = set(reader.tags)

    def write(self, page: Sequence[CheckedLine]) -> None:
        """Write a page of events in one transaction."""
        reader = self._reader
        rows: list[Row] = []
        head = self.seq
        packer = RecordPacker(head + 1, self._link, reader.random_bytes(SEED_BYTES))
        for checked in page:
            self._add(packer, checked, rows)
        records = packer.finish()
        self._link = packer.link
        rows.append(("meta", TAGS_KEY, msgspec.msgpack.encode(sorted(self._tags))))
        rows.append(("meta", _LOAD_KEY, _part_marker(self._digest, self.seq)))

        def use(turn: LogTurn) -> None:
            if turn.last_commit != reader.last_commit or reader.log.head() != head:
                raise StoreBusy("another process wrote to the store while an export was loaded into it; load it again")
            reader.last_commit = turn.write(records, rows)

        reader.log.in_turn(use)

    def _number(self, branch: int, name: str, rows: list[Row]) -> int:
        key = key_of(branch, name)
        number = self._numbers.get(key)
        if number is None:
            packed = self._reader.log.row("names", name_key(branch, name))
            if packed is None:
                stream = Stream(self._streams.next_number, name, branch)
                rows.extend(rows_of([stream]))
                self._streams.next_number += 1
                packed = number_key(stream.number)
            number = self._numbers[key] = int.from_bytes(packed, "big")
        return number

    def _add(self, packer: RecordPacker, checked: CheckedLine, rows: list[Row]) -> None:
        line, event, actor, branch, prev_seq = checked
        number = self._number(branch, line.stream, rows)
        if type(event) in fold.REFERRING and line.event.get("base_stream"):
            elder = self._branches[line.event.get("base_branch", "")]
            event = msgspec.structs.replace(event, base_stream=self._number(elder, line.event["base_stream"], rows))
        self.seq += 1
        self._tags.add(fold.TAGS[type(event)])
        rows.extend(("derived", SEQ.pack(source) + SEQ.pack(self.seq), b"") for source in event.sources)
        packer.add(
            event,
            StreamHead(number, line.version - 1, prev_seq, branch),
            time_ns=line.time_ns,
            occurred_ns=line.happened_ns,
            is_given=line.occurred_ns is not None,
            command=line.command,
            cause=line.cause,
            actor=actor,
            erased=line.erased,
        )
