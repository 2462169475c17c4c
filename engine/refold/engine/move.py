"""Moving a memory while it is written to: from a directory to a server, from there to a directory or another server.

Records go first, in the order of the log, and again while writers add more. Then the old side is marked, so that it
takes no more writes, and the rest follows. The new side can be opened once it is whole and has the state of the old
one. Running an interrupted move again resumes it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final

from refold import fold
from refold.engine.engine import Engine
from refold.engine.history import state_hash
from refold.engine.reader import HASH_KEY, MOVED_KEY, STORE_ID_KEY
from refold.errors import InvalidInput, StoreCorrupt, StoreError
from refold.event import Erased
from refold.limits import PAGE_EVENTS
from refold.log.commits import MOVING_KEY, AppendConflict, CommitLog, hide_password, is_address, link_of, pack, unpack
from refold.log.disk import build_directory
from refold.log.protocol import TABLES, Row, scan, write
from refold.log.record import Sealed
from refold.log.replica import CACHES, connect, is_local, replace_stale
from refold.results import Moved

_COMMIT_BYTES: Final = 512 * 1024
"""The approximate size of the records or rows in one commit."""
_REST_EVENTS: Final = 1_000
"""The number of events that can be left for the time without writes."""

Progress = Callable[[int, int], None]


def move(source: str, target: str, opened: Callable[..., AbstractContextManager[Engine]], progress: Progress) -> Moved:
    """Move a memory to an address or to a new directory, and return a summary; ``opened`` opens a side.

    Raises ``InvalidInput`` if the target holds something else, and ``StoreCorrupt`` if the new side does not have the
    state of the old one; the old side can then be written to as before.
    """
    with opened(source, readonly=False) as old:
        _carry(old, target, progress)
        with opened(target, readonly=True) as new:
            moved = _state(new)
        if moved != _state(old):
            _write_mark(old, None)
            raise StoreCorrupt(
                f"{hide_password(target)} has not the state of the old side, which can be written to again; run "
                f"`refold verify` on both, and remove the new one"
            )
    return moved


def _carry(source: Engine, target: str, progress: Progress) -> None:
    """Copy all of a memory to the new side, and keep the old one from taking more writes."""
    source.refresh()
    mark = source.reader.log.row("meta", MOVED_KEY)
    if mark is not None and mark.decode() != hide_password(target):
        raise InvalidInput(f"this memory was moved to {mark.decode()}; move it from there")
    if source.reader.unknown_tags:
        source.reader.check_writable()
    if is_address(target):
        _move_to_server(source, target, progress)
    else:
        _move_to_directory(source, target)


def _state(engine: Engine) -> Moved:
    branches = range(len(engine.reader.loader.branches()) + 1)
    hashes = [state_hash(engine, branch, None) for branch in branches]
    streams = sum(len(list(engine.reader.streams.names(branch))) for branch in branches)
    return Moved(engine.reader.current_head(), streams, hashes[0], tuple(hashes[1:]))


def _mark(source: Engine, target: str) -> None:
    """Mark the old side, so that it takes no more writes, and catch up with earlier ones."""
    _write_mark(source, hide_password(target).encode())
    source.refresh()
    with source.reader.state_lock:
        source.reader.restart()


def _write_mark(source: Engine, mark: bytes | None) -> None:
    with source.exclusive():
        write(source.reader.log, (), [("meta", MOVED_KEY, mark)])


def _move_to_directory(source: Engine, target: str) -> None:
    from refold.log.lmdb_file import delete_rows  # noqa: PLC0415 - a move to a server needs none of it

    is_marked = False
    try:
        with build_directory(target, "a store", may_be_empty=True) as made:
            is_marked = True
            _mark(source, target)
            source.reader.log.files.copy(made)
            delete_rows(made, "meta", [MOVED_KEY])
    except BaseException:
        if is_marked:
            _write_mark(source, None)
        raise


class _Push:
    """The new side of a move to a server, where only this process appends commits."""

    def __init__(self, commits: CommitLog, source: Engine) -> None:
        self._commits = commits
        self._source = source
        self._last, self._link = 0, b""
        self.seq = 0
        """The seq of the last event on the server."""
        self.is_whole = False

    def begin(self) -> None:
        """Start the log on the server, or find where an interrupted move stopped."""
        log, reader = self._source.reader.log, self._source.reader
        store = log.row("meta", STORE_ID_KEY)
        after, is_same = 0, False
        while page := self._commits.read(after):
            for numbered in page:
                after, self._link = numbered.number, link_of(numbered.packed)
                commit = unpack(numbered, self._commits.name)
                rows = {(table, key): value for table, key, value in commit.rows}
                is_same |= rows.get(("meta", MOVING_KEY)) == store == rows.get(("meta", STORE_ID_KEY))
                self.is_whole |= rows.get(("meta", MOVING_KEY), b"") is None
                self.seq = commit.records[-1][0] if commit.records else self.seq
            if not is_same or (self.is_whole and reader.log.row("meta", MOVED_KEY) is None):
                raise InvalidInput(f"{self._commits.name} holds a log already; give a name that no log has")
        self._last = after
        if not after:
            keys: list[Row] = [("meta", key, log.row("meta", key)) for key in (STORE_ID_KEY, HASH_KEY)]
            self._append((), [*keys, ("meta", MOVING_KEY, store)])

    def _append(self, records: "list[Sealed] | tuple[()]", rows: list[Row]) -> None:
        packed = pack(records, rows, before=self._link)
        try:
            self._last = self._commits.append(self._last, packed, self._link)
        except AppendConflict as error:
            raise InvalidInput(f"another process moves a memory to {self._commits.name}; let it finish") from error
        self._link = link_of(packed)

    def push_records(self, until: int, progress: Progress) -> None:
        """Append the records up to a seq."""
        log = self._source.reader.log
        while self.seq < until:
            waiting, size = list[Sealed](), 0
            for last, record in log.read(self.seq, min(self.seq + PAGE_EVENTS, until)):
                waiting.append((last, record))
                size += len(record)
                if size > _COMMIT_BYTES:
                    break
            self._append(waiting, [])
            self.seq = waiting[-1][0]
            progress(self.seq, max(until, self._source.reader.head))

    def push_rows(self) -> None:
        """Append all rows that the log has beside its records, and mark the new side as whole."""
        waiting, size = list[Row](), 0
        for row in self._all_rows():
            waiting.append(row)
            size += len(row[1]) + len(row[2] or b"")
            if size > _COMMIT_BYTES:
                self._append((), waiting)
                waiting, size = [], 0
        self._append((), [*waiting, ("meta", MOVING_KEY, None)])

    def _all_rows(self) -> Iterator[Row]:
        for table in TABLES:
            if table not in CACHES:
                for key, value in scan(self._source.reader.log, table, b"", PAGE_EVENTS):
                    row = (table, key, value)
                    if not is_local(row) and key not in (MOVED_KEY, MOVING_KEY):
                        yield row

    def replace_erased_records(self) -> None:
        """Replace records that were erased since they were appended with what is left of them."""
        if not replace_stale(self._commits, self._source.reader.log, self._last):
            raise StoreCorrupt(f"another process wrote to {self._commits.name} during the move; remove it, move again")


def _move_to_server(source: Engine, target: str, progress: Progress) -> None:
    commits = connect(target, readonly=False)
    try:
        push = _Push(commits, source)
        push.begin()
        if push.is_whole:
            return
        while source.reader.current_head() - push.seq > _REST_EVENTS:
            push.push_records(source.reader.head, progress)
        _mark(source, target)
        push.push_records(source.reader.head, progress)
        if fold.TAGS[Erased] in source.reader.tags:
            push.replace_erased_records()
        push.push_rows()
    except StoreError as error:
        raise type(error)(f"{error}; run the same move again, which goes on from there") from error
    finally:
        commits.close()
