"""langchain's trim_messages as the others are measured, on a history that its caller keeps trimmed."""

from pathlib import Path

import workloads
from peers.interface import NOTHING, PeerSizes, Settings
from peers.langchain_window import Trimmed


class Peer:
    """A full history of 115 messages."""

    settings = Settings(NOTHING, "in RAM; a counter that only multiplies")

    def __init__(self) -> None:
        budget = workloads.WINDOW_MESSAGES * workloads.MESSAGE_TOKENS
        self._trimmed = Trimmed(budget, workloads.MESSAGE_TOKENS)
        for _ in range(2 * workloads.WINDOW_MESSAGES):
            self._trimmed.step()

    def step(self) -> int:
        self._trimmed.step()
        return len(self._trimmed.history)

    def close(self) -> None:
        """Need nothing."""


def open_peer(_directory: Path, _sizes: PeerSizes) -> Peer:
    """Fill a history."""
    return Peer()
