"""LangGraph's SqliteSaver: a checkpoint after each message, with the newest 50 messages in it."""

import sqlite3
from collections import deque
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import workloads
from peers.interface import PeerSizes, Settings, sqlite_settings

STATE_MESSAGES = 50
"""A graph that keeps all messages writes ever larger checkpoints; this is a kind case."""

_CONFIG = {"configurable": {"thread_id": "chat", "checkpoint_ns": ""}}


class Peer:
    """One thread, whose checkpoints are whole states."""

    def __init__(self, directory: Path) -> None:
        saver: Any = import_module("langgraph.checkpoint.sqlite")
        self._base: Any = import_module("langgraph.checkpoint.base")
        self._connection = sqlite3.connect(directory / "checkpoints.db", check_same_thread=False)
        self._saver = saver.SqliteSaver(self._connection)
        self._saver.setup()
        self._messages: deque[dict[str, Any]] = deque(maxlen=STATE_MESSAGES)
        self._config: Any = _CONFIG
        self._step = 0

    @property
    def settings(self) -> Settings:
        found = sqlite_settings(self._connection)
        return found._replace(said=f"{found.said}, {STATE_MESSAGES} messages in the state")

    def append(self, text: workloads.Text) -> None:
        self._step += 1
        self._messages.append({"role": "user", "content": text.content, "tokens": text.tokens})
        checkpoint = self._base.empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(self._messages)}
        metadata = {"source": "loop", "step": self._step, "parents": {}}
        self._config = self._saver.put(self._config, checkpoint, metadata, {})

    def append_many(self, texts: Sequence[workloads.Text]) -> None:
        for text in texts:
            self.append(text)

    def last(self, count: int) -> Sequence[Any]:
        found: list[Any] = self._saver.get_tuple(_CONFIG).checkpoint["channel_values"]["messages"]
        return found[-count:]

    def close(self) -> None:
        self._connection.close()


def open_peer(directory: Path, _sizes: PeerSizes) -> Peer:
    """Open it in a directory."""
    return Peer(directory)
