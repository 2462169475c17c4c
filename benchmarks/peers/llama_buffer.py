"""LlamaIndex's ChatMemoryBuffer: put one message, get those that fit; it never lets go of what it was given."""

from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any

import workloads
from peers.interface import NOTHING, PeerSizes, Settings

_BYTES_PER_TOKEN = 4


def _tokens(text: str) -> range:
    """Something whose length is the tokens of a text: as cheap as a counter can be that has to see the text."""
    return range(len(text) // _BYTES_PER_TOKEN)


class Peer:
    """A buffer whose budget holds about 115 messages."""

    settings = Settings(NOTHING, "in RAM; characters/4 as its counter, over the text of all messages")

    def __init__(self) -> None:
        memory: Any = import_module("llama_index.core.memory")
        llms: Any = import_module("llama_index.core.base.llms.types")
        texts = workloads.texts()
        budget = workloads.WINDOW_MESSAGES * sum(len(text.content) for text in texts) // len(texts) // _BYTES_PER_TOKEN
        self._buffer = memory.ChatMemoryBuffer.from_defaults(token_limit=budget, tokenizer_fn=_tokens)
        self._arriving = cycle([llms.ChatMessage(role="user", content=text.content) for text in texts])
        for _ in range(2 * workloads.WINDOW_MESSAGES):
            self._buffer.put(next(self._arriving))

    def step(self) -> int:
        self._buffer.put(next(self._arriving))
        return len(self._buffer.get())

    def close(self) -> None:
        """Need nothing."""


def open_peer(_directory: Path, _sizes: PeerSizes) -> Peer:
    """Fill a buffer."""
    return Peer()
