"""The interface of a log: records in order and tables of rows, all of them bytes without a meaning."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from refold.errors import StoreBusy, StoreError
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
"""A row to put in a table; ``None`` as its value deletes it."""


class Found(NamedTuple):
    """The extent of a search, and how often it found one of the strings."""

    files: int
    bytes: int
    occurrences: int


class TurnLost(StoreBusy):
    """Another process wrote while a turn had to be given back for the map to grow; take another turn."""


class Displaced(StoreError):
    """The store is not at its path any more; nothing was written, to it or to what is there now."""


class LogTurn(Protocol):
    """One writer's turn among all processes: no other writer commits until it ends.

    While it is open its thread may use the log's ordinary reads; they do not see what the turn has not yet written.
    Ending it without ``write`` changes nothing.
    """

    @property
    def moved(self) -> bool:
        """Whether another process committed since the last ``saw``, or since this log last wrote."""
        ...

    def write(
        self,
        records: Sequence[Sealed],
        rows: Sequence[Row] = (),
        erased: Sequence[Sealed] = (),
    ) -> None:
        """Do what ``Log.write`` does and give the turn back; at most once.

        ``erased`` records take the place of those with the same keys in the same transaction, which then is durable in
        any case.
        Raises ``TurnLost`` in the rare case that nothing was written, the log moved, and another turn will do.
        """
        ...


class Log(Protocol):
    """An append-only sequence of records, each under the seq of its last event, and tables of rows.

    ``write`` is atomic, and durable when it returns, unless the log delays its writes: ``durable_head`` tells. Every
    read is short: no transaction outlives the call.
    """

    @property
    def readonly(self) -> bool:
        """Whether this log refuses to write."""
        ...

    def head(self) -> int:
        """Return the seq of the last event, 0 in an empty log."""
        ...

    def in_turn(self, use: Callable[[LogTurn], T]) -> T:
        """Call ``use`` with a turn at writing, after the turns of all others, and return its result.

        A call and not a context manager: a signal may split a ``with`` statement from the Python function that ends
        it, and the locks of the turn would be held for good.
        """
        ...

    def durable_head(self) -> int:
        """Return the seq of the last event that a crash leaves: that of ``head``, unless the log delays its writes."""
        ...

    def flush(self) -> None:
        """Return once everything that was written before is durable."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether an I/O error has stopped writing, so that every turn is refused; reads go on."""
        ...

    @property
    def is_suspect(self) -> bool:
        """Whether an I/O error, of this process or of another, has left the end of the log in doubt."""
        ...

    def resume(self) -> None:
        """Check the end of the log as the disk holds it, and let writing go on; raises ``StoreError`` if it may not."""
        ...

    def in_snapshot(self, use: Callable[[], T]) -> T:
        """Call ``use``, which writes nothing and whose reads on this thread see the log as it is now.

        It waits for no other process, and none waits for it; the caller keeps threads of this one from writing.
        """
        ...

    def write(self, records: Sequence[Sealed], rows: Sequence[Row] = ()) -> None:
        """Append records and put the rows, in one transaction."""
        ...

    def write_rows(self, rows: Sequence[Row]) -> None:
        """Put rows of tables in one transaction."""
        ...

    def read(self, after: int, until: int) -> list[Sealed]:
        """Return the records with the events behind ``after`` up to ``until``, in order, whole and with their keys."""
        ...

    def events_at(self, seqs: Sequence[int]) -> list[EventBytes]:
        """Return the events at the given seqs, in the given order; ``StoreCorrupt`` if one is missing."""
        ...

    def row(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of a row, ``None`` where there is none."""
        ...

    def rows(self, table: Table, first: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to ``limit`` rows with keys from ``first`` on, in order."""
        ...

    def row_before(self, table: Table, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the last row whose key is at most ``key``."""
        ...

    def alone(self, use: Callable[[], T]) -> T:
        """Call ``use`` while no other handle, of any process, has the log open; ``StoreBusy`` where one has."""
        ...

    def sweep(self) -> None:
        """Leave nothing of what was deleted or replaced in the files; the caller is ``alone``, without reads."""
        ...

    def search(self, markers: Collection[bytes]) -> Found:
        """Return how often byte strings, of ``MARKER_BYTES_MIN`` bytes at least, stand in what the log keeps."""
        ...

    def changed(self) -> bool:
        """Return whether others may have written since the last ``saw``; cheap enough for every read.

        What this log writes itself never hides a commit of others that came before it.
        """
        ...

    def mark(self) -> int:
        """Return a mark of what is committed now, for ``saw``."""
        ...

    def saw(self, mark: int) -> None:
        """Take note that the reader knows everything that was committed when it took the mark."""
        ...

    def passed(self) -> bool:
        """Return whether another process has committed since this one's last turn at writing began and committed."""
        ...

    def relieve(self) -> None:
        """Let go of what is held in RAM only because it was read once."""
        ...

    def size_bytes(self) -> int:
        """Return the bytes that the log takes on disk, or in RAM."""
        ...

    def copy(self, into: str) -> None:
        """Write everything that was acknowledged to a new file in a directory, while others go on writing.

        Nothing that the log has replaced or deleted is in the file. ``InvalidInput`` of a log that has no file.
        """
        ...

    def verify(self) -> list[str]:
        """Verify the file by the storage engine's own means, and return what is wrong."""
        ...

    def close(self) -> None:
        """Release everything; a second call does nothing."""
        ...


def scan(log: Log, table: Table, prefix: bytes, page: int, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Return the rows of a table whose keys begin with ``prefix``, from ``first`` on, read in pages."""
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
