"""The SQLiteSession of openai-agents; its coroutines run in one loop, as its users' do."""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import workloads
from peers.interface import PeerSizes, Settings, sqlite_settings


class Peer:
    """One session in a file."""

    def __init__(self, directory: Path) -> None:
        agents: Any = import_module("agents")
        self._session = agents.SQLiteSession("chat", directory / "session.db")
        self._loop = asyncio.new_event_loop()

    @property
    def settings(self) -> Settings:
        return sqlite_settings(self._session._get_connection())

    def append(self, text: workloads.Text) -> None:
        self.append_many([text])

    def append_many(self, texts: Sequence[workloads.Text]) -> None:
        items = [{"role": "user", "content": text.content} for text in texts]
        self._loop.run_until_complete(self._session.add_items(items))

    def last(self, count: int) -> Sequence[Any]:
        found: list[Any] = self._loop.run_until_complete(self._session.get_items(count))
        return found

    def close(self) -> None:
        self._session.close()
        self._loop.close()


def open_peer(directory: Path, _sizes: PeerSizes) -> Peer:
    """Open it in a directory."""
    return Peer(directory)
