"""SQLite from the standard library: one table of messages in WAL mode, flushed at each commit."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import workloads
from peers.interface import PeerSizes, Settings, sqlite_settings


class Peer:
    """One table."""

    def __init__(self, directory: Path) -> None:
        self._connection = sqlite3.connect(directory / "messages.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE messages (seq INTEGER PRIMARY KEY, role TEXT, content TEXT, tokens INT)")

    @property
    def settings(self) -> Settings:
        return sqlite_settings(self._connection)

    def append(self, text: workloads.Text) -> None:
        self._insert([text])

    def append_many(self, texts: Sequence[workloads.Text]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._insert(texts)
        self._connection.execute("COMMIT")

    def _insert(self, texts: Sequence[workloads.Text]) -> None:
        self._connection.executemany("INSERT INTO messages (role, content, tokens) VALUES ('user', ?, ?)", texts)

    def last(self, count: int) -> Sequence[Any]:
        command = "SELECT role, content, tokens FROM messages ORDER BY seq DESC LIMIT ?"
        return self._connection.execute(command, (count,)).fetchall()[::-1]

    def close(self) -> None:
        self._connection.close()


def open_peer(directory: Path, _sizes: PeerSizes) -> Peer:
    """Open it in a directory."""
    return Peer(directory)
