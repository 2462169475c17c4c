"""Export and load: the whole log as JSONL, and back into an empty store with every stamp as it was.

A load is checked to its last line before the first event is written. It is written in large transactions; one that is
cut off leaves a marker, and loading the same file again goes on where it stopped.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from refold import fold
from refold.engine import branches, joining
from refold.engine.core import Engine
from refold.engine.damage import guarded
from refold.engine.jsonl import (
    JSONL_FORMAT,
    Head,
    Line,
    Numbers,
    event_from_json,
    event_to_json,
    head_of,
    line_of,
)
from refold.engine.keys import Names, key_of
from refold.engine.reading import TAGS_KEY
from refold.engine.slots import Slot
from refold.engine.streams import name_key, number_key
from refold.engine.trail import Trail
from refold.engine.vetting import Vetting
from refold.errors import InvalidInput, NotFound, StoreBusy, StoreCorrupt, StoreError
from refold.event import FLAG_BASE, FLAG_ERASED, FLAG_OCCURRED, Event
from refold.limits import PAGE_EVENTS, SALT_BYTES
from refold.results import Loaded
from refold.store.protocol import Log, Row, Turn
from refold.store.record import (
    ARRAY_BEGIN,
    COMMIT,
    FORMAT,
    HEADER,
    SCHEMA,
    SEQ,
    blanked,
    commit_to,
    covered,
    header_of,
    is_intact,
    link_after,
)

_LOAD_KEY: Final = b"loaded"
_LOAD_EVENTS: Final = 10_000
_READ_BYTES: Final = 1 << 20
_DIGEST_BYTES: Final = 32


def export(engine: Engine, path: str, at: int | None) -> int:
    """Write the events up to ``at`` to a file, which appears whole or not at all; return how many there were."""
    until = engine.current_head() if at is None else at
    target = Path(path)
    try:
        with tempfile.NamedTemporaryFile("wb", dir=target.parent, prefix=".refold-export-", delete=False) as file:
            written = Path(file.name)
            try:
                file.writelines(lines(engine, until))
                file.flush()
                os.fsync(file.fileno())
                written.replace(target)
            except BaseException:
                written.unlink(missing_ok=True)
                raise
    except OSError as error:
        message = f"exporting to {path}: {error}; give a path in a directory that is writable and has space"
        raise StoreError(message) from error
    return until


def lines(engine: Engine, until: int) -> Iterator[bytes]:
    """Return the export's lines: its head, then every event up to ``until``, read in short pages."""
    yield msgspec.json.encode(Head(JSONL_FORMAT, engine.store_id.hex(), until)) + b"\n"
    names = branches.names(engine)
    seq = 1
    while seq <= until:
        with engine.state_lock:
            engine.check_open()
            records = engine.log.read_at(range(seq, min(seq + PAGE_EVENTS, until + 1)))
            page = [_line(names, place, record) for place, record in enumerate(records, seq)]
        yield from page
        seq += len(page)


@guarded
def _line(names: Names, seq: int, record: bytes) -> bytes:
    header = header_of(record)
    if not is_intact(record, header):
        message = f"the body of seq {seq} is not what its header commits to; run `refold verify`, and restore a backup"
        raise StoreCorrupt(message)
    event = fold.decode(record[ARRAY_BEGIN:], header.tag)
    if isinstance(event, fold.Unknown):
        message = f"seq {seq} is of tag {header.tag}, which this refold does not know; upgrade it before exporting"
        raise StoreCorrupt(message)
    erased = bool(header.flags & FLAG_ERASED)
    line = Line(
        seq,
        names.stream(header.stream),
        header.version,
        header.time_ns,
        header.command,
        fold.NAMES[type(event)],
        event_to_json(event, names, erased=erased),
        header.occurred_ns if header.flags & FLAG_OCCURRED else None,
        header.cause,
        header.actor,
        erased,
        names.branch(header.branch),
    )
    return msgspec.json.encode(line) + b"\n"


class _Ready(NamedTuple):
    """A line that was checked, with its event."""

    line: Line
    event: Event
    branch: int
    prev_seq: int


def load(
    engine: Engine, path: str, progress: Callable[[int, int], None] | None, rename: Mapping[str, str] | None = None
) -> Loaded:
    """Load an export into an empty store, or go on with a load of the same file that was cut off.

    Into a store with events, or under other names, its events come as new ones: ``joining`` says how.
    """
    with engine.exclusive():
        engine.check_writable()
        digest, count, streams = _checked(path)
        head = engine.current_head()
        marker = engine.log.row("meta", _LOAD_KEY)
        if marker == b"done" + digest and not rename:
            return Loaded(0, streams, repeated=True)
        if rename or (head and marker != _part(digest, head)):
            return joining.join(engine, digest, lambda: _read(path), rename or {}, progress)
        try:
            with Path(path).open("rb") as file:
                trail = Trail()
                ready = islice(_lines_of(file, trail), engine.head, None)
                _load_lines(_Loading(engine, digest, trail.branches), ready, count, progress)
            engine.log.write_rows([("meta", _LOAD_KEY, b"done" + digest)])
        finally:
            engine.reload()
    return Loaded(count, streams)


def _part(digest: bytes, head: int) -> bytes:
    """Return the marker of a load that was cut off; it goes on only where nothing was appended since."""
    return b"part" + digest + SEQ.pack(head)


def loaded_until(log: Log, seq: int) -> Row:
    """Return the marker of a load into an empty store, for a log that is cut off at a seq: it may go on from there.

    Where the file had fewer events, going on finds nothing left of it.
    """
    marker = log.row("meta", _LOAD_KEY)
    if seq >= log.head():
        return "meta", _LOAD_KEY, marker
    return "meta", _LOAD_KEY, _part(marker[len(b"done") :][:_DIGEST_BYTES], seq) if marker and seq else None


def _read(path: str) -> Iterator[joining.Ready]:
    with Path(path).open("rb") as file:
        yield from ((ready.line, ready.event) for ready in _lines_of(file, Trail()))


def _lines_of(file: BinaryIO, trail: Trail) -> Iterator[_Ready]:
    """Return the checked lines of an export behind its head; each is on the trail when the next one is asked for."""
    head_of(file.readline())
    numbers = Numbers(trail.number, trail.branches)
    for number, raw in enumerate(file, 2):
        if raw.strip():
            line = line_of(raw, number)
            if line.branch not in trail.branches:
                message = (
                    f"seq {line.seq}: {line.branch!r} was not forked before it; export again, the file was changed"
                )
                raise InvalidInput(message)
            trail.number(line.branch, line.stream)
            event = event_from_json(line, numbers)
            prev_seq = trail.stand(line.branch, line.stream).seq
            yield _Ready(line, event, trail.branches[line.branch], prev_seq)
            trail.note(line, event)


def _checked(path: str) -> tuple[bytes, int, int]:
    """Read the whole file once: return its digest, its events and its streams; ``InvalidInput`` for a bad line."""
    try:
        with Path(path).open("rb") as file:
            head = head_of(file.readline())
            trail = Trail()
            vetting = Vetting(trail)
            file.seek(0)
            for ready in _lines_of(file, trail):
                vetting.vet(ready.line, ready.event)
            file.seek(0)
            digest = sha256()
            while block := file.read(_READ_BYTES):
                digest.update(block)
    except FileNotFoundError as error:
        message = f"there is no file {path} to load; give the path of an export"
        raise NotFound(message) from error
    except OSError as error:
        message = f"reading {path}: {error}; give the path of an export"
        raise InvalidInput(message) from error
    if vetting.events != head.head:
        message = f"{path} says {head.head} events and has {vetting.events}; export again, the file was cut off"
        raise InvalidInput(message)
    return digest.digest(), vetting.events, trail.streams


def _load_lines(
    loading: "_Loading", ready: Iterable[_Ready], count: int, progress: Callable[[int, int], None] | None
) -> None:
    iterator = iter(ready)
    while page := list(islice(iterator, _LOAD_EVENTS)):
        loading.write(page)
        if progress is not None:
            progress(loading.seq, count)


class _Loading:
    """The state of a load between its transactions."""

    def __init__(self, engine: Engine, digest: bytes, branches: Mapping[str, int]) -> None:
        self._engine = engine
        self._branches = branches
        self._digest = digest
        self._streams = engine.streams
        self._numbers: dict[str, int] = {}
        self.seq = engine.head
        last = engine.log.commit_at(engine.head) if engine.head else None
        self._link = COMMIT.unpack(last)[3] if last else bytes(32)
        self._tags: set[int] = set(engine.tags)

    def write(self, page: Sequence[_Ready]) -> None:
        """Write a page of events in one transaction, with the commit rows of the commits they came in."""
        first_seq = self.seq + 1
        salts = self._engine.random_bytes(SALT_BYTES * len(page))
        rows: list[Row] = []
        records = [
            self._record(ready, salts[place * SALT_BYTES :][:SALT_BYTES], rows) for place, ready in enumerate(page)
        ]
        commits = list(self._commits(page, records, first_seq))
        rows.append(("meta", TAGS_KEY, msgspec.msgpack.encode(sorted(self._tags))))
        rows.append(("meta", _LOAD_KEY, _part(self._digest, self.seq)))

        def use(turn: Turn) -> None:
            if turn.moved:
                message = "another process wrote to the store while an export was loaded into it; load it again"
                raise StoreBusy(message)
            turn.write(first_seq, records, commits, rows)

        self._engine.log.in_turn(use)

    def _number(self, branch: int, name: str, rows: list[Row]) -> int:
        key = key_of(branch, name)
        number = self._numbers.get(key)
        if number is None:
            packed = self._engine.log.row("names", name_key(branch, name))
            if packed is None:
                slot = Slot(self._streams.next_number, name, branch)
                rows.extend(self._streams.rows_of([slot]))
                self._streams.next_number += 1
                packed = number_key(slot.number)
            number = self._numbers[key] = int.from_bytes(packed, "big")
        return number

    def _record(self, ready: _Ready, salt: bytes, rows: list[Row]) -> bytes:
        line, event, branch, prev_seq = ready
        number = self._number(branch, line.stream, rows)
        if type(event) in fold.REFERRING and line.event.get("base_stream"):
            elder = self._branches[line.event.get("base_branch", "")]
            event = msgspec.structs.replace(event, base_stream=self._number(elder, line.event["base_stream"], rows))
        self.seq += 1
        tag = fold.TAGS[type(event)]
        self._tags.add(tag)
        rows.extend(("derived", SEQ.pack(source) + SEQ.pack(self.seq), b"") for source in event.sources)
        occurred_ns = line.time_ns if line.occurred_ns is None else line.occurred_ns
        flags = (FLAG_OCCURRED if line.occurred_ns is not None else 0) | (
            FLAG_BASE if type(event) in fold.BASE_TYPES else 0
        )
        array, begin = fold.encode(event), fold.body_begin(event)
        header = HEADER.pack(
            *(number, line.version, line.time_ns, occurred_ns, line.cause, line.actor, flags, tag, prev_seq),
            *(line.command, branch, 0, begin, 0, 1, SCHEMA, FORMAT, commit_to(salt, array[begin:])),
        )
        record = header + salt + array
        return blanked(record, 1 + len(fold.STRUCTURAL[type(event)])) if line.erased else record

    def _commits(self, page: Sequence[_Ready], records: Sequence[bytes], first_seq: int) -> Iterator[bytes]:
        """Return a commit row for each run of events of one command: what was one commit stays one."""
        begin = 0
        for place in range(1, len(page) + 1):
            if place < len(page) and page[place].line.command == page[begin].line.command:
                continue
            first, after, time_ns = first_seq + begin, first_seq + place, page[place - 1].line.time_ns
            parts = [COMMIT.pack(first, after, time_ns, bytes(32))]
            for record in records[begin:place]:
                parts.extend(covered(record))
            self._link = link_after(self._link, parts)
            yield COMMIT.pack(first, after, time_ns, self._link)
            begin = place
