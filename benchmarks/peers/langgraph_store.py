"""LangGraph's SqliteStore: an item for each message in the namespace of a conversation."""

import sqlite3
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import workloads
from peers.interface import PeerSizes, Settings, sqlite_settings

_NAMESPACE = ("chat",)


def _key(place: int) -> str:
    return f"{place:012d}"


class Peer:
    """One namespace, without an index of vectors."""

    def __init__(self, directory: Path) -> None:
        self._module: Any = import_module("langgraph.store.sqlite")
        self._base: Any = import_module("langgraph.store.base")
        path = directory / "store.db"
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._store = self._module.SqliteStore(self._connection)
        self._store.setup()
        self._place = 0

    @property
    def settings(self) -> Settings:
        return sqlite_settings(self._connection)

    def append(self, text: workloads.Text) -> None:
        self.append_many([text])

    def append_many(self, texts: Sequence[workloads.Text]) -> None:
        self._store.batch([self._put(text) for text in texts])

    def _put(self, text: workloads.Text) -> Any:
        self._place += 1
        value = {"role": "user", "content": text.content, "tokens": text.tokens}
        return self._base.PutOp(_NAMESPACE, _key(self._place), value)

    def last(self, count: int) -> Sequence[Any]:
        # Its search orders by times of whole seconds, so it cannot say which are the last; their keys can.
        places = range(self._place - count + 1, self._place + 1)
        found: list[Any] = self._store.batch([self._base.GetOp(_NAMESPACE, _key(place)) for place in places])
        return found

    def close(self) -> None:
        self._connection.close()


def open_peer(directory: Path, _sizes: PeerSizes) -> Peer:
    """Open it in a directory."""
    return Peer(directory)
