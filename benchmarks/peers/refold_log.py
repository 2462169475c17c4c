"""refold as the others are measured: a conversation on the disk, by its public verbs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import workloads
from peers.interface import POWER, PeerSizes, Settings

from refold import Memory


class Peer:
    """One conversation with a window of 4,000 tokens."""

    settings = Settings(POWER, "LMDB, durable")

    def __init__(self, directory: Path) -> None:
        self._memory = Memory(directory / "refold", window_tokens=workloads.WINDOW_TOKENS)
        self._chat = self._memory.conversation("chat")

    def append(self, text: workloads.Text) -> None:
        self._chat.append("user", text.content, tokens=text.tokens)

    def append_many(self, texts: Sequence[workloads.Text]) -> None:
        workloads.append_batch(self._memory, [self._chat], texts)

    def last(self, count: int) -> Sequence[Any]:
        return self._chat.window(count)

    def close(self) -> None:
        self._memory.close()


def open_peer(directory: Path, _sizes: PeerSizes) -> Peer:
    """Open it in a directory."""
    return Peer(directory)
