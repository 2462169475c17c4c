"""The floors: bare LMDB, bare msgspec and bare deques, doing no more than the job itself needs.

A floor is what the libraries beneath refold take when they are called directly, on the same bytes, by the simplest
code that is right. It has no stamps, no hashes, no checks and no promises; what refold adds to it is what it costs.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple, Protocol

import lmdb
import numpy as np
from numpy.typing import NDArray

KEY = Struct(">Q")
MAP_BYTES = 16 * 1024**3


class Counted(Protocol):
    """An event that says how many tokens it takes."""

    @property
    def tokens(self) -> int:
        """The tokens."""
        ...


class BareLog:
    """An LMDB table whose keys are sequence numbers, as refold's log is, and nothing beside it."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self._environment = lmdb.open(str(path), map_size=MAP_BYTES, max_dbs=1, max_spare_txns=1)
        self._table = self._environment.open_db(b"log")
        self._next = 1
        self.items: list[tuple[bytes, bytes]] = []
        """The rows of the next transaction, with their keys."""
        self._ahead: Iterator[tuple[bytes, bytes]] = iter(())
        """Those of the rows that are put one by one, by whoever has the lock."""

    def prepare(self, rows: Sequence[bytes]) -> None:
        """Give the rows their keys."""
        keys = map(KEY.pack, range(self._next, self._next + len(rows)))
        self.items = list(zip(keys, rows, strict=True))
        self._next += len(rows)
        self._ahead = iter(self.items)

    def put_some(self, count: int) -> None:
        """Put so many of the rows, each in a durable transaction of its own; any number of threads may do it."""
        for _ in range(count):
            with self._environment.begin(write=True) as transaction:
                # Taken under the lock, so that the keys arrive in their order.
                transaction.put(*next(self._ahead), db=self._table, append=True)

    def put_one(self) -> None:
        """Put one row in one durable transaction."""
        with self._environment.begin(write=True) as transaction:
            transaction.put(*self.items[0], db=self._table, append=True)

    def put(self) -> None:
        """Put every row with a call of its own, in one durable transaction."""
        with self._environment.begin(write=True, db=self._table) as transaction:
            put = transaction.put
            for key, value in self.items:
                put(key, value, append=True)

    def put_multi(self) -> None:
        """Put all rows with one call, in one durable transaction."""
        with self._environment.begin(write=True, db=self._table) as transaction:
            transaction.cursor().putmulti(self.items, append=True)

    def values(self) -> Iterator[bytes]:
        """Return every row in order, from one cursor in one transaction."""
        with self._environment.begin(db=self._table) as transaction:
            yield from transaction.cursor().iternext(keys=False)

    def fold(self, decode: Callable[[bytes], Any], owners: Iterable["BareWindow"], window_tokens: int) -> None:
        """Decode every row and fold it into its owner's window: cursor, decode, fold, and nothing else.

        Which row belongs to whom is given, so that no header is read.
        """
        with self._environment.begin(db=self._table) as transaction:
            events = map(decode, transaction.cursor().iternext(keys=False))
            for window, event in zip(owners, events, strict=True):
                messages = window.messages
                messages.append(event)
                tokens = window.tokens + event.tokens
                while tokens > window_tokens:
                    tokens -= messages.popleft().tokens
                window.tokens = tokens

    def count(self) -> int:
        """Return the number of rows."""
        with self._environment.begin(db=self._table) as transaction:
            return int(transaction.stat(self._table)["entries"])

    def close(self) -> None:
        """Release the environment."""
        self._environment.close()


class BareTicks:
    """A bare log for the tasks of an event loop: what they ask for until they all wait is one durable commit.

    All of them wait on the one future of their commit, which another thread writes: no call has a future of its own.
    """

    def __init__(self, path: Path) -> None:
        self._log = BareLog(path)
        self._thread = ThreadPoolExecutor(1)
        self._rows: list[bytes] = []
        self._done: asyncio.Future[None] | None = None
        self._writer: asyncio.Task[None] | None = None

    async def append(self, row: bytes) -> None:
        """Put a row, and return when it is durable."""
        if self._done is None:
            self._done = asyncio.get_running_loop().create_future()
            if self._writer is None:
                self._writer = asyncio.create_task(self._write())
        self._rows.append(row)
        await self._done

    async def _write(self) -> None:
        while (done := self._done) is not None:
            await asyncio.sleep(0)
            rows, self._rows, self._done = self._rows, [], None
            await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, rows)
            done.set_result(None)
        self._writer = None

    def _commit(self, rows: list[bytes]) -> None:
        self._log.prepare(rows)
        self._log.put_multi()

    def values(self) -> Iterator[bytes]:
        """Return every row in order."""
        return self._log.values()

    def close(self) -> None:
        """End the thread and release the log."""
        self._thread.shutdown()
        self._log.close()


class BareWindow:
    """A deque and the sum of its tokens."""

    __slots__ = ("messages", "tokens")

    def __init__(self) -> None:
        self.messages: deque[Any] = deque()
        self.tokens = 0


class Weighed(NamedTuple):
    """An object that a window returns, and its tokens at hand."""

    message: Any
    tokens: int


def slide(messages: deque[Any], weights: deque[int], arriving: Sequence[Weighed], window_tokens: int) -> int:
    """Append each object, evict what no longer fits, and read the whole window; return how many were read at last.

    The deque holds the very objects that a reader gets, so that a read is one copy of references.
    """
    total = sum(weights)
    read: list[Any] = []
    for message, tokens in arriving:
        messages.append(message)
        weights.append(tokens)
        total += tokens
        while total > window_tokens:
            messages.popleft()
            total -= weights.popleft()
        read = list(messages)
    return len(read)


class BareProduct:
    """All vectors multiplied with one query, into memory that is there: what no exact search can do without."""

    def __init__(self, matrix: NDArray[Any], query: NDArray[Any]) -> None:
        self.matrix = matrix
        self.query = (query / np.linalg.norm(query)).astype(np.float32)
        self.out = np.empty(len(matrix), np.float32)

    def multiply(self) -> None:
        """Multiply."""
        np.dot(self.matrix, self.query, out=self.out)


class BareGraph:
    """hnswlib's index with the settings that refold has, built and asked by one thread."""

    def __init__(self, matrix: NDArray[Any], breadth: int) -> None:
        import hnswlib  # noqa: PLC0415 - an extra

        self.breadth = breadth
        self._index = hnswlib.Index(space="ip", dim=matrix.shape[1])
        self._index.init_index(len(matrix), M=16, ef_construction=100, random_seed=100)
        self._index.add_items(matrix, num_threads=1)
        self._index.set_ef(breadth)

    def nearest(self, query: NDArray[Any], top_k: int) -> Any:
        """Return labels and distances of the nearest."""
        return self._index.knn_query(query, k=top_k, num_threads=1)
