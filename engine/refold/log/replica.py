"""A log on a server, with a local copy: reads are local, and a commit is durable once the server has it.

A turn appends its commit after the last one in the copy, or not at all; then it writes the commit to the copy, with the
number that the server assigned, in one transaction. Commits of other machines are applied by a thread that waits for
them, and by a writer that was overtaken. The copy is a cache: without it, the next opening reads the server's commits
from the first one. Checkpoints and other caches belong to the copy alone and never leave it.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from threading import RLock
from typing import Final, TypeVar

from refold.errors import (
    Closed,
    InvalidInput,
    NotFound,
    ReadOnly,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreUnreachable,
    logger,
)
from refold.event import FLAG_ERASED
from refold.limits import (
    FOLLOW_SECONDS,
    LMDB_KEY_BYTES_MAX,
    PAGE_EVENTS,
    RECONNECT_SECONDS_MAX,
    RETRIES_COUNT_MAX,
    SEQ_BYTES,
)
from refold.log.commits import (
    MOVING_KEY,
    POSITION_KEY,
    AppendConflict,
    Commit,
    CommitBytes,
    CommitLog,
    CommitsLost,
    ConnectionLost,
    CopyPosition,
    Lag,
    Replacement,
    link_of,
    pack,
    pack_rest,
    unpack,
)
from refold.log.copies import IN_RAM, CopyLog, cache_root, open_copy
from refold.log.lmdb_file import delete_rows
from refold.log.memory_log import RamLog
from refold.log.protocol import Durability, Log, LogTurn, Row, SearchCounts, Table, TurnLost, scan
from refold.log.record import Record, Sealed
from refold.threads import NO_THREAD, Bell, Worker

CACHES: Final[frozenset[Table]] = frozenset(("checkpoints", "digests", "graphs"))
"""Tables that can be computed from the log; each machine has its own."""

_ORIGINAL: Final[frozenset[Table]] = frozenset(("derived", "names", "requests", "streams", "vectors"))
"""Tables whose existing rows only an erasure changes."""

_UNCONTENDED_COUNT: Final = 64
"""The number of turns without another machine's commit after which turns are taken without queuing again."""

_UNNAMED: Final[tuple[Table, bytes]] = ("names", b"")
"""The table and key of a row that means: delete all names of the stream whose number is the value."""

T = TypeVar("T")


def is_local(row: Row) -> bool:
    """Return whether a row belongs to the copy alone."""
    return row[0] in CACHES or (row[0] == "meta" and row[1] == POSITION_KEY)


class ReplicaTurn:
    """A turn that writes to the copy, and that other machines can overtake."""

    __slots__ = ("_log", "_turn", "last_commit")

    def __init__(self, log: "ReplicaLog", turn: LogTurn) -> None:
        self._log = log
        self._turn = turn
        self.last_commit = log.applied + turn.last_commit

    def is_current(self) -> bool:
        """Return whether the last commit in the copy is the server's last one."""
        return self._log.is_current()

    def write(
        self,
        records: Sequence[Sealed],
        rows: Sequence[Row] = (),
        erased: Sequence[Sealed] = (),
        *,
        is_clean: bool = False,
    ) -> int:
        """Append a commit on the server, then write it to the copy; rows of the copy alone are only written there.

        With ``is_clean``, the server's remains of replaced data are left to ``sweep``.
        """
        log, shared = self._log, self._log.shared_rows(rows)
        if not (records or shared or erased):
            return log.applied + self._turn.write((), rows)
        log.check(records, rows)
        packed = pack(records, shared, erased, before=log.place.link)
        number = log.append(packed)
        place = log.place_after(number, packed, is_erasure=is_clean)
        # From here on the commit is durable: if this is cut off, it will be applied like a commit of another machine.
        try:
            last_commit = self._turn.write(records, [*rows, _position(place)], erased, is_clean=is_clean)
        except StoreError as error:
            if not is_clean:
                raise
            raise type(error)(
                f"{log.commits.name} has the erasure, and the copy of it here takes it in with a later call: "
                f"{error.__cause__ or error}"
            ) from error
        log.place, log.whole_at = place, time.monotonic()
        if is_clean:
            log.remove_stale_copies()
        return log.applied + last_commit


def _deletion(table: Table, key: bytes) -> Row:
    return table, key, None


def _position(place: CopyPosition) -> Row:
    return "meta", POSITION_KEY, place.pack()


class ReplicaLog:
    """A log whose commits are on a server; ``protocol.Log`` documents each method."""

    file = 0
    """Always 0, because no other process replaces the copy's file."""

    def __init__(self, commits: CommitLog, local: CopyLog | RamLog, *, readonly: bool) -> None:
        self.readonly = readonly
        self.durability: Durability = local.durability
        self.commits = commits
        self.local = local
        self.files = ReplicaFiles(self)
        self.turns = RLock()
        """Held for each append, and while commits of other machines are applied."""
        self.applied = 0
        """How many times other machines' commits were applied to a copy in RAM, which does not count commits itself."""
        self._contended = 0
        self._is_closed = False
        self._bell = Bell()
        self._follower: Worker | None = None
        self._undisturbed: Callable[[Callable[[], object]], None] = _call
        row = local.row("meta", POSITION_KEY)
        self.place = CopyPosition() if row is None else CopyPosition.unpack(row)
        """How far the copy is."""
        self.lost = ""
        """Why the copy cannot go on, while the server lacks commits that it has."""
        self._compared = 0, -1
        """The number of a commit whose link the server has, although it refused an append after it, and the connection.

        A server may no longer know the link of a commit that was replaced.
        """
        self._connections = commits.connections
        """The connection over which the last commit of the copy was compared with the server's."""
        self.known = 0
        """The highest number of a commit that was known to be on the server before it was in the copy."""
        self.whole_at = time.monotonic()
        """When the copy last had all commits of the server, on the monotonic clock."""
        # Reads go directly to the copy, without a call in between.
        self.head, self.read, self.events_at = local.head, local.read, local.events_at
        self.row, self.read_row, self.rows = local.row, local.read_row, local.rows

    @property
    def position(self) -> int:
        """The number of the last commit in the copy."""
        return self.place.number

    def place_after(self, number: int, packed: bytes, *, is_erasure: bool) -> CopyPosition:
        """Return how far the copy is once it has the next commit."""
        return CopyPosition(number, self.position, number if is_erasure else self.place.erasure, link_of(packed))

    def last_commit(self) -> int:
        """Return a number that grows with every commit in the copy."""
        return self.applied + self.local.last_commit()

    def in_snapshot(self, use: Callable[[], T]) -> T:
        """Call ``use`` while nothing is written to the copy."""
        with self.turns:
            return self.local.in_snapshot(use)

    # Writing.

    def in_turn(self, use: Callable[[ReplicaTurn], T]) -> T:
        """Call ``use`` with a turn and return its result.

        Once the server is followed, the calling thread must keep all other writers of this process out, because it may
        have to apply another machine's erasure first.
        """
        self._check_open()
        if self.readonly:
            raise ReadOnly(f"{self.commits.name} is open read-only; open it without readonly=True to write")
        with self.turns:
            if not self._contended:
                return self._turn(use)
            # Other machines write as well. Machines that queue for their turns do not lose them to each other.
            try:
                try:
                    self.commits.queue()
                    self._contended = _UNCONTENDED_COUNT if self.refresh() else self._contended - 1
                except (StoreUnreachable, StoreCorrupt) as error:
                    # Rows of a cache can still be written; `append` raises the error.
                    if isinstance(error, StoreCorrupt) and not self.lost:
                        raise
                return self._turn(use)
            finally:
                self.commits.leave()

    def _turn(self, use: Callable[[ReplicaTurn], T]) -> T:
        return self.local.in_turn(lambda turn: use(ReplicaTurn(self, turn)))

    def append(self, packed: bytes) -> int:
        """Append a commit after the last one in the copy and return its number; ``TurnLost`` if it was overtaken.

        Raises ``StoreCorrupt`` if the server does not have the last commit of the copy. If the connection is lost, the
        same commit is appended again. It can take effect only once, because both attempts require the same position.
        """
        before = None if self._compared == (self.position, self.commits.connections) else self.place.link
        is_again, until, pause = False, time.monotonic() + RECONNECT_SECONDS_MAX, 0.01
        while True:
            try:
                number = self.commits.append(self.position, packed, before)
            except AppendConflict:
                if is_again and (page := self._read(self.position)) and page[0].packed == packed:
                    return page[0].number
                if self.lost or self.commits.head() <= self.position:
                    self.check_last_commit()
                    self._compared = self.position, self.commits.connections
                self._contended = _UNCONTENDED_COUNT
                raise TurnLost(
                    f"another machine wrote to {self.commits.name}; nothing was written, call again"
                ) from None
            except ConnectionLost as error:
                if time.monotonic() > until:
                    raise StoreUnreachable(
                        f"{self.commits.name} was lost while a commit was written ({error}), so it may be written or "
                        f"not; call again with the same request_id, or look whether it is there"
                    ) from error
                is_again = True
            else:
                self.lost = ""  # The server has the commit before.
                return number
            time.sleep(pause)
            pause = min(2 * pause, 1.0)

    def shared_rows(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that other machines need, without deletions of rows that do not exist."""
        shared = list[Row]()
        for row in rows:
            table, key, value = row
            if is_local(row):
                continue
            if value is not None:
                shared.append(row)
            elif (before := self.local.row(table, key)) is not None:
                is_name = table == "names" and len(before) <= SEQ_BYTES
                # The row itself would leave the erased stream's name on the server.
                shared.append((*_UNNAMED, before) if is_name else row)
        return shared

    def check(self, records: Sequence[Sealed], rows: Sequence[Row]) -> None:
        """Raise if a commit cannot be written here: once on the server, it would block every machine."""
        _check_head(records, self.local.head(), "what is to be written", self.commits.name)
        if any(not 0 < len(key) <= LMDB_KEY_BYTES_MAX for _, key, _ in rows):
            raise StoreError(f"writing behind seq {self.local.head()}: a key has no byte, or over LMDB_KEY_BYTES_MAX")

    def is_current(self) -> bool:
        """Return whether the last commit in the copy is the server's last one; if not, expect contention."""
        head = self.commits.head()
        if head <= self.position or self.lost:
            self._check_again(is_behind=head < self.position)
        if head == self.position:
            return True
        self._contended = _UNCONTENDED_COUNT
        return False

    def _lost_commits_error(self) -> StoreCorrupt:
        """Return the error of a server that was set back, and remember it for ``health``."""
        copies = f"remove {self.local.place} and " if isinstance(self.local, CopyLog) else ""
        self.lost = (
            f"{self.commits.name} has lost commits that this machine has seen, up to {self.position}, or is another "
            f"log now; if it was restored from a backup on purpose, end the processes of this machine that have it "
            f"open, {copies}open it again"
        )
        return StoreCorrupt(self.lost)

    def check_lost(self) -> None:
        """Raise ``StoreCorrupt`` if the server was found to lack commits of the copy; asks nothing."""
        if self.lost:
            raise StoreCorrupt(self.lost)

    def check_last_commit(self) -> None:
        """Raise ``StoreCorrupt`` if the server does not have the last commit of the copy."""
        connections = self.commits.connections
        if self.position:
            page = [(numbered.number, link_of(numbered.packed)) for numbered in self._read(self.place.before)[:1]]
            if page != [(self.position, self.place.link)]:
                raise self._lost_commits_error()
        self._connections, self.lost = connections, ""

    def _check_again(self, *, is_behind: bool = False) -> None:
        """Check the last commit of the copy if the server may have been set back since the last check."""
        if is_behind or self.lost or self._connections != self.commits.connections:
            self.check_last_commit()

    def _read(self, after: int) -> list[CommitBytes]:
        try:
            return self.commits.read(after)
        except CommitsLost as error:
            raise self._lost_commits_error() from error

    # Commits of other machines.

    def refresh(self) -> bool:
        """Apply all commits of the server that are not in the copy yet; return whether there were any."""
        before = self.position
        if not self._apply_all(may_erase=False):
            # Otherwise a read that goes page by page would see half of the log before the erasure and half after it.
            self._undisturbed(partial(self._apply_all, may_erase=True))
        return self.position != before

    def _apply_all(self, *, may_erase: bool) -> bool:
        """Apply all commits of the server, or those before the next erasure; return whether all were applied."""
        with self.turns:
            since = time.monotonic()
            while page := self._read(self.position):
                self._check_open()
                self.known = max(self.known, page[-1].number)
                commits = [unpack(numbered, self.commits.name) for numbered in page]
                if not may_erase and any(map(_is_erasure, commits)):
                    return False
                self._apply(page, commits)
                since = time.monotonic()
            self._check_again()
            self.whole_at = since
        return True

    def lag(self) -> Lag:
        """Return how far the copy is behind the server, as far as it knows without asking the server."""
        return Lag(max(self.known - self.position, 0), max(time.monotonic() - self.whole_at, 0.0))

    def _apply(self, page: Sequence[CommitBytes], commits: Sequence[Commit]) -> None:
        """Write commits of the server to the copy, in one transaction."""
        name, head = self.commits.name, self.local.head()
        records, rows, erased = list[Sealed](), list[Row](), list[Sealed]()
        place = self.place
        for numbered, commit in zip(page, commits, strict=True):
            place = self._place_of(numbered, commit, place)
            head = _check_head(commit.records, head, f"commit {numbered.number}", name)
            records += commit.records
            for row in commit.rows:
                rows += self._name_deletions(row[2], rows) if row[:2] == _UNNAMED else (row,)
            erased += commit.erased
        is_clean = self._removes_data(records, rows, erased)
        if erased:
            # Only the machine that erased knows which cached rows hold erased data, so all of them are deleted.
            for table in CACHES:
                rows += (_deletion(table, key) for key, _ in scan(self.local, table, b"", PAGE_EVENTS))
        rows.append(_position(place))

        def write(turn: LogTurn) -> int:
            return turn.write(records, rows, erased, is_clean=is_clean)

        try:
            if is_clean:
                self.local.files.alone(lambda: self.local.in_turn(write))
            else:
                self.local.in_turn(write)
        except StoreError as error:
            if not is_clean:
                raise
            raise type(error)(
                f"what another machine has erased from {name} cannot be erased from the copy of it here: "
                f"{error.__cause__ or error}"
            ) from error
        before, self.place = self.place, place
        if isinstance(self.local, RamLog):
            self.applied += 1
        if place.erasure > before.erasure:
            self.remove_stale_copies()

    def _place_of(self, numbered: CommitBytes, commit: Commit, before: CopyPosition) -> CopyPosition:
        """Return the place of the commit that the server has after ``before``; ``StoreCorrupt`` if it is not the next.

        A server that was set back and has gone on has other commits under the numbers that the copy knows.
        """
        if commit.before != before.link:
            if before is self.place:
                self.check_last_commit()
            raise StoreCorrupt(
                f"commit {numbered.number} of {self.commits.name} does not follow commit {before.number}: one was lost "
                f"or altered; compare the server's replicas, and restore it from a backup"
            )
        erasure = numbered.number if _is_erasure(commit) else before.erasure
        return CopyPosition(numbered.number, before.number, erasure, link_of(numbered.packed))

    def remove_stale_copies(self) -> list[str]:
        """Remove the copies of ended processes that lack the last erasure; return those that processes still use."""
        if not self.place.erasure or isinstance(self.local, RamLog):
            return []
        return self.local.remove_stale(self.place.erasure)

    def _removes_data(self, records: Sequence[Sealed], rows: Sequence[Row], erased: Sequence[Sealed]) -> bool:
        """Return whether an erasure removes anything from the copy, or from what is written together with it."""
        new = dict(records)
        put = {row[:2] for row in rows if row[2] is not None}
        return any(
            packed != (new[last] if last in new else dict(self.local.read(last - 1, last)).get(last))
            for last, packed in erased
        ) or any(
            (table, key) in put or self.local.row(table, key) is not None
            for table, key, value in rows
            if value is None and table in _ORIGINAL
        )

    def _name_deletions(self, number: bytes | None, pending: Sequence[Row]) -> Iterator[Row]:
        """Yield the deletions of all names of a stream, including names that are about to be written."""
        stored = scan(self.local, "names", b"", PAGE_EVENTS)
        written = ((key, value) for table, key, value in pending if table == "names")
        yield from (_deletion("names", key) for key, value in (*stored, *written) if value == number)

    def follow(self, undisturbed: Callable[[Callable[[], object]], None]) -> None:
        """Start applying commits of other machines as soon as the server announces them.

        ``undisturbed`` calls its argument while no other thread reads or writes, because an erasure removes bytes.
        """
        self._undisturbed = undisturbed
        self._follower = Worker(self._follow, "refold-follower")
        self._follower.start()
        if not self._follower.wait_for_start():
            raise StoreError(f"{self.commits.name} cannot be followed: {NO_THREAD}")

    def _follow(self) -> None:
        reported = ""
        while not self._is_closed:
            try:
                number = self.commits.wait(FOLLOW_SECONDS)
                if not self._is_closed:
                    self._take_in(number)
            except Closed:
                return
            except StoreUnreachable:  # Servers come and go; a write or a refresh raises the error.
                self._bell.wait(FOLLOW_SECONDS)
            except Exception as error:  # noqa: BLE001 - reads still use the copy; a write or a refresh raises it
                if str(error) != reported:
                    reported = str(error)
                    logger().error("what other machines write cannot be taken in: %s", reported)
                self._bell.wait(FOLLOW_SECONDS)

    def _take_in(self, number: int | None) -> None:
        """Refresh the copy if it is behind a commit number, or behind the server's last commit if that is ``None``."""
        since = 0.0
        if number is None:  # Without holding `turns`: the server may take long to answer.
            known, since, number = self.position, time.monotonic(), self.commits.head()
            if number < known:
                raise self._lost_commits_error()
        with self.turns:  # A commit of this machine is in the copy once its turn is over.
            is_behind = number > self.position
            if is_behind:
                self.known = max(self.known, number)
            elif since and number == self.position:
                self.whole_at = max(self.whole_at, since)
        if is_behind or self.lost or self._connections != self.commits.connections:
            self.refresh()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed(f"{self.commits.name} is closed; open it again with Memory({self.commits.name!r})")

    def close(self) -> None:
        """Close the connections and release the copy; the follower thread may end later, see ``join``."""
        self._is_closed = True
        self._bell.ring()
        self.commits.close()
        with self.turns:
            self.local.close()

    def join(self) -> None:
        """Wait for the follower thread to end; must not be called under a lock of the engine that it may wait for."""
        if self._follower is not None:
            self._follower.join()


def replace_stale(commits: CommitLog, log: Log, until: int) -> bool:
    """Rewrite each commit up to number ``until`` that holds data the log no longer holds, from the log's own data.

    Returns whether no such commit is left. Some remain if another machine has erased more from them, or is replacing
    them at the same time.
    """
    after, is_whole = 0, True
    while after < until and (page := commits.read(after)):
        after = page[-1].number
        stale = list[Replacement]()
        for numbered in page:
            if numbered.number <= until:
                commit = unpack(numbered, commits.name)
                if any(_is_behind(log, *sealed) for sealed in (*commit.records, *commit.erased)):
                    is_whole = False
                elif (packed := _current_bytes(commit, log)) is not None:
                    stale.append(Replacement(*numbered, packed))
        if stale:
            is_whole &= commits.replace(stale)
    return is_whole


def _is_behind(log: Log, last: int, packed: bytes) -> bool:
    """Return whether a record of the server lacks the body of an event that is whole in the log."""
    here = log.read(last - 1, last)[0][1]
    if here == packed:
        return False
    marks = zip(Record(here).marks, Record(packed).marks, strict=False)
    return any(theirs & FLAG_ERASED and not own & FLAG_ERASED for own, theirs in marks)


def _current_bytes(commit: Commit, log: Log) -> bytes | None:
    """Return the bytes of a commit without data that the log no longer holds, ``None`` if nothing has to change."""
    records, erased = (
        tuple((last, log.read(last - 1, last)[0][1]) for last, _ in part) for part in (commit.records, commit.erased)
    )
    rows = list[Row]()
    for table, key, value in commit.rows:
        is_original = table in _ORIGINAL and value is not None and (table, key) != _UNNAMED
        now = log.row(table, key) if is_original else value
        if now is not None or value is None:  # The key of a deleted row could reveal erased data.
            rows.append((table, key, now))
    if (records, tuple(rows), erased) == (commit.records, commit.rows, commit.erased):
        return None
    return pack_rest(commit, records, rows, erased)


def _is_known(log: ReplicaLog, last: int, packed: bytes) -> bool:
    """Return whether a copy has a record, or its remains after an erasure that has not reached the server yet."""
    records = log.read(last - 1, last)
    if records == [(last, packed)]:
        return True
    remains = Record(records[0][1]) if records and records[0][0] == last else None
    return remains is not None and remains.has_origin and remains.link == Record(packed).link


def _is_erasure(commit: Commit) -> bool:
    """Return whether a commit removes anything other than caches."""
    return bool(commit.erased) or any(
        table in _ORIGINAL and (value is None or (table, key) == _UNNAMED) for table, key, value in commit.rows
    )


def _call(use: Callable[[], object]) -> None:
    use()


def _check_head(records: Sequence[Sealed], head: int, what: str, name: str) -> int:
    """Return the last seq of ``records``, ``head`` if there are none; ``StoreCorrupt`` if they do not continue it."""
    for last, record in records:
        first = Record(record).first_seq
        if first != head + 1:
            raise StoreCorrupt(
                f"{what} of {name} goes on at seq {first}, and the log before it ends at {head}: a commit was lost or "
                f"altered; compare the server's replicas, and restore it from a backup"
            )
        head = last
    return head


def open_replica(address: str, *, readonly: bool, seed: Mapping[bytes, bytes], cache: str | None) -> ReplicaLog:
    """Open the log at an address, with all commits of its server in the copy.

    An empty log begins with ``seed``, unless it is opened read-only. ``cache`` is the directory of the copies, or
    ``IN_RAM``; by default it is in the user's cache directory.
    """
    commits = connect(address, readonly=readonly)
    try:
        first = commits.read(0)[:1] or _begin_log(commits, seed, readonly=readonly)
        rows = unpack(first[0], commits.name).rows
        local: CopyLog | RamLog = RamLog() if cache == IN_RAM else open_copy(cache_root(cache), commits.name, rows)
        try:
            log = ReplicaLog(commits, local, readonly=readonly)
            log.check_last_commit()
            log.refresh()
            log.remove_stale_copies()
            if local.row("meta", MOVING_KEY) is not None:
                raise StoreBusy(  # noqa: TRY301 - what is open is closed below
                    f"a memory is being moved to {commits.name}; wait for that, or run the same move again"
                )
        except BaseException:
            local.close()
            raise
        else:
            return log
    except BaseException:
        commits.close()
        raise


def connect(address: str, *, readonly: bool) -> CommitLog:
    """Connect to the commit log at an address; ``InvalidInput`` if the extra with its client is not installed."""
    try:
        if address.startswith(("nats://", "tls://")):
            from refold.log.jetstream import JetStreamCommits  # noqa: PLC0415 - its client is an extra

            return JetStreamCommits(address, readonly=readonly)
        from refold.log.postgres import PostgresCommits  # noqa: PLC0415 - as above

        return PostgresCommits(address, readonly=readonly)
    except ImportError as error:
        extra = "nats" if address.startswith(("nats://", "tls://")) else "postgres"
        raise InvalidInput(f"a log on a server needs a client: {error}; pip install 'refold[{extra}]'") from error


def _begin_log(commits: CommitLog, seed: Mapping[bytes, bytes], *, readonly: bool) -> list[CommitBytes]:
    """Return the first commit of an empty log, written by this machine or by another one that was faster."""
    if readonly:
        raise NotFound(f"there is no log at {commits.name} to open read-only; open it once without readonly=True")
    try:
        commits.append(0, pack((), [("meta", key, value) for key, value in seed.items()]))
    except AppendConflict:
        pass
    except ConnectionLost as error:
        raise StoreUnreachable(f"{commits.name} was lost while it was created ({error}); call again") from error
    first = commits.read(0)[:1]
    if not first:
        raise StoreUnreachable(f"{commits.name} was created elsewhere, and cannot be read yet; call again")
    return first


class ReplicaFiles:
    """Maintenance of a copy and of the server's commits."""

    keeps_erased = True
    directory: str | None = None

    def __init__(self, log: ReplicaLog) -> None:
        self._log = log

    def alone(self, use: Callable[[], T]) -> T:
        """Call ``use`` once the copy has all commits of the server; its turn is lost if another machine writes."""
        self._log.refresh()
        return self._log.local.files.alone(use)

    def sweep(self) -> None:
        """Remove all erased data from the server, by replacing each commit that differs from the copy."""
        log = self._log
        for _ in range(RETRIES_COUNT_MAX):
            with log.turns:
                if replace_stale(log.commits, log.local, log.position):
                    log.commits.sweep()
                    return
            log.refresh()  # Other machines append their erasures before they sweep.
        raise StoreBusy(
            f"other machines sweep {log.commits.name} at the same time, or it holds less than it should; run `refold "
            f"verify`"
        )

    def search(self, markers: Collection[bytes]) -> SearchCounts:
        """Return how often the markers occur in the copy, and in the readable bytes of the server's commits."""
        local, after = self._log.local.files.search(markers), 0
        size = occurrences = 0
        with self._log.turns:
            while page := self._log.commits.read(after):
                after = page[-1].number
                size += sum(len(packed) for _, packed in page)
                occurrences += sum(packed.count(marker) for _, packed in page for marker in markers)
        return SearchCounts(local.files, local.bytes + size, local.occurrences + occurrences)

    def release_memory(self) -> None:
        """Release memory that is held only because data was read once."""
        self._log.local.files.release_memory()

    def size_bytes(self) -> int:
        """Return the size of the commits on the server, in bytes."""
        return self._log.commits.size_bytes()

    def copy(self, into: str) -> None:
        """Write the log to a new file in a directory; the file is a store of its own, and no longer a copy."""
        if isinstance(self._log.local, RamLog):
            raise InvalidInput(
                f"a copy of {self._log.commits.name} in RAM has no file to copy to {into}; give a directory with cache="
            )
        self._log.refresh()
        self._log.local.files.copy(into)
        delete_rows(into, "meta", [POSITION_KEY])

    def verify(self) -> list[str]:
        """Return the problems of the copy's file, and the commits of the server that differ from the copy.

        Raises ``StoreUnreachable`` if the server does not answer.
        """
        return [*self._log.local.files.verify(), *self._differing_commits()]

    def _differing_commits(self) -> list[str]:
        log, after, problems = self._log, 0, list[str]()
        differing, erased = dict[int, set[int]](), set[int]()
        try:
            while page := log.commits.read(after):
                for numbered in page:
                    after, commit = numbered.number, unpack(numbered, log.commits.name)
                    if after > log.position:
                        # Another machine erases: the server has less than this copy, which is not caught up here.
                        erased.update(last for last, _ in commit.erased)
                    elif unknown := {last for last, packed in commit.records if not _is_known(log, last, packed)}:
                        differing[after] = unknown
        except StoreUnreachable:
            raise  # It says nothing about the stored commits.
        except StoreError as error:
            problems.append(str(error))
        numbers = (number for number, lasts in differing.items() if not lasts <= erased)
        return [*(f"commit {number} of {log.commits.name} is not what this copy has" for number in numbers), *problems]
