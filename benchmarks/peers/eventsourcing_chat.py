"""The library eventsourcing as the others are measured: one aggregate, which is got from its repository."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import workloads
from peers.eventsourcing_log import Log
from peers.interface import PeerSizes, Settings, sqlite_settings


class Peer:
    """One conversation; its window is read by `repository.get`, the library's way to the current state."""

    def __init__(self, directory: Path) -> None:
        self._log = Log(directory / "eventsourcing", 1, workloads.WINDOW_TOKENS)
        # The library opens connections of its own with SQLite's defaults; one opened so tells what those are.
        with sqlite3.connect(directory / "eventsourcing" / "events.db") as connection:
            self.settings: Settings = sqlite_settings(connection)
        connection.close()

    def append(self, text: workloads.Text) -> None:
        self._log.append_each(0, [text])

    def append_many(self, texts: Sequence[workloads.Text]) -> None:
        self._log.append(texts)

    def last(self, count: int) -> Sequence[Any]:
        return list(self._log.replayed()[0].messages)[-count:]

    def close(self) -> None:
        self._log.close()


def open_peer(directory: Path, _sizes: PeerSizes) -> Peer:
    """Open it in a directory."""
    return Peer(directory)
