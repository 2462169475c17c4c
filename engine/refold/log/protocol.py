"""The interface of a log: records in order and tables of rows, all of them bytes without a meaning."""

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
    """One writer's turn: while it is open its thread may use the log's reads, which do not see what it will write.

    No other writer commits until it ends; a log that takes no lock raises ``TurnLost`` in ``write`` if one did. Ending
    it without ``write`` changes nothing.
    """

    @property
    def last_commit(self) -> int:
        """The number of the last commit before this turn: another one than its reader knows is another writer's."""
        ...

    def is_current(self) -> bool:
        """Return whether the log is as it was when the turn began: a decision not to write relies on that.

        It always is in a log on this machine.
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
        """Append records and put the rows, in one transaction; return the number of the last commit then.

        At most once: it gives the turn back. ``erased`` records take the place of those with the same keys in the same
        transaction, which then is durable in any case. With ``is_clean`` nothing stays on this machine of what this
        replaces or deletes. Raises ``TurnLost`` where nothing was written, another
        writer committed, and another turn will do.
        """
        ...


class Durability(Protocol):
    """What a loss of power leaves of a log, and what becomes of writing after an error of the disk."""

    def durable_until(self, seq: int) -> int:
        """Return up to where events are durable, ``seq`` at most: that is all of them, unless writes are delayed."""
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

    def check_place(self) -> None:
        """Raise ``Displaced`` where the file at the log's path is another one than was opened, or none."""
        ...


class AlwaysDurable:
    """The durability of a log whose writes are durable on return, and whose disk is not this process's to mend."""

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
        """Do nothing: nobody looks for it at a path."""


class Files(Protocol):
    """The upkeep of what a log keeps, on disk or elsewhere: what is not durable yet is not in it."""

    @property
    def keeps_erased(self) -> bool:
        """Whether a server keeps what was erased until ``sweep``."""
        ...

    def alone(self, use: Callable[[], T]) -> T:
        """Call ``use``, which may write several times, while no other handle of any process writes.

        A log on a server just calls it: a turn in it is lost where another machine writes.
        """
        ...

    def sweep(self) -> None:
        """Leave nothing on a server of what was erased; the caller is ``alone``. Without a server that is nothing."""
        ...

    def search(self, markers: Collection[bytes]) -> Found:
        """Return how often byte strings, of ``MARKER_BYTES_MIN`` bytes at least, stand in what the log keeps."""
        ...

    def relieve(self) -> None:
        """Let go of what is held in RAM only because it was read once; nothing, where nothing is."""
        ...

    def size_bytes(self) -> int:
        """Return the bytes that the log takes."""
        ...

    def copy(self, into: str) -> None:
        """Write the log to a new file in a directory, while others go on writing.

        Nothing that the log has replaced or deleted is in the file. ``InvalidInput`` of a log that has no file.
        """
        ...

    def verify(self) -> list[str]:
        """Verify the file by the storage engine's own means, and return what is wrong; nothing, without a file."""
        ...


class Log(Protocol):
    """An append-only sequence of records, each under the seq of its last event, and tables of rows.

    A turn's ``write`` is atomic, and durable when it returns, unless the log delays its writes. Every read is short: no
    transaction outlives the call.
    """

    @property
    def readonly(self) -> bool:
        """Whether this log refuses to write."""
        ...

    @property
    def file(self) -> int:
        """The number of the file that is read: another one once it was seen that an erasure has replaced it."""
        ...

    @property
    def durability(self) -> Durability:
        """What is durable, and what becomes of writing after an error of the disk."""
        ...

    @property
    def files(self) -> Files:
        """The upkeep of what the log keeps."""
        ...

    def head(self) -> int:
        """Return the seq of the last event, 0 in an empty log."""
        ...

    def last_commit(self) -> int:
        """Return the number of the last commit, whoever made it; cheap enough for every read.

        It grows with every commit, and with nothing else. A log that nobody else can write to may say 0 for ever.
        """
        ...

    def read(self, after: int, until: int) -> list[Sealed]:
        """Return the records with the events behind ``after`` up to ``until``, in order, whole and with their keys."""
        ...

    def events_at(self, seqs: Sequence[int]) -> list[EventBytes]:
        """Return the events at the given seqs, in the given order; ``StoreCorrupt`` if one is missing."""
        ...

    def row_read(self, table: Table, key: bytes, read: Callable[[Any], T]) -> T | None:
        """Call ``read`` with the value of a row, which it must not keep, and return its result; without one, ``None``.

        The value is bytes or a buffer of them that goes with the call: a large one is not copied first.
        """
        ...

    def row(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of a row, ``None`` where there is none."""
        ...

    def rows(self, table: Table, first: bytes, limit: int, *, backwards: bool = False) -> list[tuple[bytes, bytes]]:
        """Return up to ``limit`` rows with keys from ``first`` on, in order; ``backwards``, from ``first`` down."""
        ...

    def in_turn(self, use: Callable[[LogTurn], T]) -> T:
        """Call ``use`` with a turn at writing, after the turns of all others, and return its result.

        A call and not a context manager: a signal may split a ``with`` statement from the Python function that ends
        it, and the locks of the turn would be held for good.
        """
        ...

    def in_snapshot(self, use: Callable[[], T]) -> T:
        """Call ``use``, which writes nothing and whose reads on this thread see the log as it is now.

        What is written is durable then. It waits for no other process, and none waits for it; the caller keeps threads
        of this one from writing.
        """
        ...

    def close(self) -> None:
        """Release everything; a second call does nothing."""
        ...


def write(log: Log, records: Sequence[Sealed], rows: Sequence[Row] = ()) -> int:
    """Append records and put rows in a turn of their own, whoever wrote before; return the number of the commit."""

    def take() -> int:
        log.last_commit()  # Where the file was replaced by another process, that opens the new one.
        return log.in_turn(lambda turn: turn.write(records, rows))

    return until_kept(take)


def until_kept(take: Callable[[], T]) -> T:
    """Call a function that takes a turn, again where the turn was lost, for ``TURN_SECONDS_MAX``; return its result."""
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
