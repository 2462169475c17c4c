"""SQLite from the standard library: one table of records, as durable as refold's log."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock


class SqliteLog:
    """A table in WAL mode with synchronous=FULL, so that every commit survives a power cut."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._lock = Lock()
        """Threads wait here: SQLite's own lock is polled with sleeps of up to 100 ms."""
        self._rows: list[tuple[bytes]] = []
        self._ahead: Iterator[tuple[bytes]] = iter(())
        self.settings = (self._pragma("journal_mode", "WAL"), self._pragma("synchronous", "FULL"))
        self._connection.execute("CREATE TABLE log (seq INTEGER PRIMARY KEY, record BLOB NOT NULL)")

    def _pragma(self, name: str, value: str) -> object:
        """Set a pragma and return what SQLite says that it is now."""
        self._connection.execute(f"PRAGMA {name}={value}")
        return self._connection.execute(f"PRAGMA {name}").fetchone()[0]

    def prepare(self, rows: Sequence[bytes]) -> None:
        """Take the rows of the next transactions."""
        self._rows = [(row,) for row in rows]
        self._ahead = iter(self._rows)

    def put_some(self, count: int) -> None:
        """Insert so many of the rows, each in a durable transaction of its own; any number of threads may do it."""
        for _ in range(count):
            with self._lock:
                self._connection.execute("INSERT INTO log (record) VALUES (?)", next(self._ahead))

    def put_multi(self) -> None:
        """Insert all rows in one durable transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO log (record) VALUES (?)", self._rows)
        self._connection.execute("COMMIT")

    def values(self) -> list[bytes]:
        """Return every row in order."""
        return [row for (row,) in self._connection.execute("SELECT record FROM log ORDER BY seq")]

    def close(self) -> None:
        """Release the database."""
        self._connection.close()
