"""refold's window alone: its fold of an append, its eviction, and the whole window read; no log beneath."""

from pathlib import Path

from peers.interface import NOTHING, PeerSizes, Settings
from rows.window import Windows


class Peer:
    """A full window of 115 messages."""

    settings = Settings(NOTHING, "in RAM; exact tokens, calls and answers stay together")

    def __init__(self) -> None:
        self._windows = Windows(1)

    def step(self) -> int:
        self._windows.prepare()
        self._windows.fold()
        return len(self._windows.read)

    def close(self) -> None:
        """Need nothing."""


def open_peer(_directory: Path, _sizes: PeerSizes) -> Peer:
    """Fill a window."""
    return Peer()
