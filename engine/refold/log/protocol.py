"""The interface of a log: ordered records and tables of rows, all of them opaque bytes."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from refold.errors import StoreBusy, StoreError
from refold.limits import TURN_SECONDS_MAX, TURNS_COUNT_MIN
from refold.log.record import EventBytes, Sealed

Table: TypeAlias = Literal[
    "checkpoints", "derived", "digests", "graphs", "meta", "names", "requests", "streams", "vectors"
]
TABLES: Final[tuple[Table, ...]] = (
    "checkpoints",
    "derived",
    "digests",
    "graphs",
    "meta",
    "names",
    "requests",
    "streams",
    "vectors",
)

T = TypeVar("T")

Row: TypeAlias = tuple[Table, bytes, bytes | None]
"""A row to put in a table; a value of ``None`` deletes it."""


class SearchCounts(NamedTuple):
    """The size of a search (files and bytes), and the number of occurrences of any of the strings."""

    files: int
    bytes: int
    occurrences: int


class TurnLost(StoreBusy):
    """The turn was lost to another writer, and nothing was written; take another turn.

    For example, another process committed while this one made room, another process replaced the file in an erasure,
    or another machine appended first.
    """


class StoreGone(StoreError):
    """The store is no longer at its path; nothing was written to it, or to whatever is there now."""


class LogTurn(Protocol):
    """One writer's turn: while it is open, its thread can read from the log, but does not see what it will write.

    No other writer commits until the turn ends. A log that takes no lock instead raises ``TurnLost`` from ``write`` if
    another writer has committed. Ending the turn without ``write`` changes nothing.
    """

    @property
    def last_commit(self) -> int:
        """The number of the last commit before this turn.

        If it is not the number that the reader knows, another writer committed.
        """
        ...

    def is_current(self) -> bool:
        """Return whether the log is still as it was when the turn began; a decision not to write relies on this.

        Always true for a log on this machine.
        """
        ...

    def write(
        self,
        records: Sequence[Sealed],
        rows: Sequence[Row] = (),
        erased: Sequence[Sealed] = (),
        *,
        is_clean: bool = False,
    ) -> int:
        """Append records and put rows in one transaction; return the number of the last commit after it.

        Can be called once, because it ends the turn. Each record in ``erased`` replaces the record with the same key,
        in the same transaction, which is then always durable on return. With ``is_clean``, nothing that this call
        replaces or deletes remains on this machine. Raises ``TurnLost`` if another writer committed first: nothing was
        written, and the caller can take another turn.
        """
        ...


class Durability(Protocol):
    """The durability of a log: which events survive a power loss, and how writing continues after a disk error."""

    def durable_until(self, seq: int) -> int:
        """Return the last durable seq, capped at ``seq``; always ``seq`` itself unless writes are delayed."""
        ...

    def flush(self) -> None:
        """Return once everything written before the call is durable."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether an I/O error has stopped writing; every turn is then refused, but reads still work."""
        ...

    @property
    def is_suspect(self) -> bool:
        """Whether an I/O error in this or another process has left the end of the log in doubt."""
        ...

    def resume(self) -> None:
        """Check the end of the log as it is on disk, and resume writing; raises ``StoreError`` if that is unsafe."""
        ...

    def check_place(self) -> None:
        """Raise ``StoreGone`` if the log's path no longer holds the file that was opened."""
        ...


class AlwaysDurable:
    """The durability of a log whose writes are durable on return, and that has no disk for this process to repair."""

    is_stopped = False
    is_suspect = False

    def durable_until(self, seq: int) -> int:
        """Return ``seq``."""
        return seq

    def flush(self) -> None:
        """Do nothing."""

    def resume(self) -> None:
        """Do nothing: writing never stops."""

    def check_place(self) -> None:
        """Do nothing: the log has no path."""


class LogFiles(Protocol):
    """Maintenance of a log's stored data, on disk or elsewhere; excludes anything that is not durable yet."""

    @property
    def keeps_erased(self) -> bool:
        """Whether a server keeps erased data until ``sweep``."""
        ...

    @property
    def directory(self) -> str | None:
        """The absolute path of the directory that all processes with this log share; ``None`` if there is none."""
        ...

    def alone(self, use: Callable[[], T]) -> T:
        """Call ``use``, which can write several times, while no other handle of any process writes; return its result.

        A log on a server does not keep other machines out: a turn inside ``use`` is lost if one of them writes.
        """
        ...

    def sweep(self) -> None:
        """Remove all erased data from the server, called within ``alone``; a no-op without a server."""
        ...

    def search(self, markers: Collection[bytes]) -> SearchCounts:
        """Count occurrences of byte strings, each of at least ``MARKER_BYTES_MIN`` bytes, in the stored data."""
        ...

    def release_memory(self) -> None:
        """Release memory that is held only because data was read once; a no-op if there is none."""
        ...

    def size_bytes(self) -> int:
        """Return the size of the log in bytes."""
        ...

    def copy(self, into: str) -> None:
        """Write the log to a new file in a directory, without stopping other writers.

        The file contains nothing that the log has replaced or deleted. Raises ``InvalidInput`` if the log has no file.
        """
        ...

    def verify(self) -> list[str]:
        """Verify the file with the storage engine's own verifier and return the problems; empty without a file."""
        ...


class Log(Protocol):
    """An append-only sequence of records, each keyed by the seq of its last event, and tables of rows.

    A turn's ``write`` is atomic, and is durable on return unless the log delays its writes. Every read is short: no
    transaction outlives the call.
    """

    @property
    def readonly(self) -> bool:
        """Whether this log refuses to write."""
        ...

    @property
    def file(self) -> int:
        """The number of the file being read; changes once this process has seen that an erasure replaced the file."""
        ...

    @property
    def durability(self) -> Durability:
        """The durability of the log, and how writing continues after a disk error."""
        ...

    @property
    def files(self) -> LogFiles:
        """The maintenance of the log's stored data."""
        ...

    def head(self) -> int:
        """Return the seq of the last event, 0 in an empty log."""
        ...

    def last_commit(self) -> int:
        """Return the number of the last commit by any writer; cheap enough to call on every read.

        It grows with every commit, and with nothing else. A log that no other process can write to may always return 0.
        """
        ...

    def read(self, after: int, until: int) -> list[Sealed]:
        """Return the whole records that hold the events after ``after`` up to ``until``, in order, with their keys."""
        ...

    def events_at(self, seqs: Sequence[int]) -> list[EventBytes]:
        """Return the events at the given seqs, in the given order; ``StoreCorrupt`` if one is missing."""
        ...

    def read_row(self, table: Table, key: bytes, read: Callable[[Any], T]) -> T | None:
        """Call ``read`` with the value of a row and return its result, or return ``None`` if there is no such row.

        The value is bytes, or a buffer that is valid only during the call, so that a large value is not copied first.
        ``read`` must not keep it.
        """
        ...

    def row(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of a row, or ``None`` if there is no such row."""
        ...

    def rows(self, table: Table, first: bytes, limit: int, *, backwards: bool = False) -> list[tuple[bytes, bytes]]:
        """Return up to ``limit`` rows in key order, starting at ``first``; with ``backwards``, in descending order."""
        ...

    def in_turn(self, use: Callable[[LogTurn], T]) -> T:
        """Wait for the turns of other writers, call ``use`` with a turn, and return its result.

        A call rather than a context manager: a signal can come between a ``with`` statement and the Python function
        that ends it, and the turn's locks would then be held forever.
        """
        ...

    def in_snapshot(self, use: Callable[[], T]) -> T:
        """Call ``use``, whose reads on this thread see the log as it is now, and return its result.

        ``use`` must not write, and the caller must keep other threads of this process from writing. Everything written
        so far is durable by then. The call neither waits for other processes nor makes them wait.
        """
        ...

    def close(self) -> None:
        """Release everything; a second call does nothing."""
        ...


def write(log: Log, records: Sequence[Sealed], rows: Sequence[Row] = ()) -> int:
    """Append records and put rows in a turn of their own, retried if it is lost; return the number of the commit."""

    def take() -> int:
        log.last_commit()  # If another process replaced the file, this opens the new one.
        return log.in_turn(lambda turn: turn.write(records, rows))

    return retry_turn(take)


def retry_turn(take: Callable[[], T]) -> T:
    """Call ``take``, which takes a turn, and repeat the call each time the turn is lost; return its result.

    Gives up after ``TURN_SECONDS_MAX``, but not before ``TURNS_COUNT_MIN`` attempts.
    """
    until: float | None = None
    lost_count = 0
    while True:
        try:
            return take()
        except TurnLost:
            now = time.monotonic()
            until = until or now + TURN_SECONDS_MAX
            lost_count += 1
            if now > until and lost_count >= TURNS_COUNT_MIN:
                raise


def scan(log: Log, table: Table, prefix: bytes, page: int, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a table whose keys begin with ``prefix``, from ``first`` on, read in pages of ``page`` rows."""
    first = first or prefix
    while True:
        rows = log.rows(table, first, page)
        for key, value in rows:
            if not key.startswith(prefix):
                return
            yield key, value
        if len(rows) < page:
            return
        first = rows[-1][0] + b"\0"
