"""LlamaIndex's ChatMemoryBuffer: put one message, get those that fit.

It never lets go of what it was given, and looks at all of it each time. So its caller sets it to what fitted, which is
cheap: else a step would take the longer the more rounds there were, and a ratio would say how many those were.
"""

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

    settings = Settings(
        NOTHING, "in RAM; characters/4 as its counter, over the text of all messages; set to what fits after each"
    )

    def __init__(self) -> None:
        memory: Any = import_module("llama_index.core.memory")
        llms: Any = import_module("llama_index.core.base.llms.types")
        texts = workloads.texts()
        budget = workloads.WINDOW_MESSAGES * sum(len(text.content) for text in texts) // len(texts) // _BYTES_PER_TOKEN
        self._buffer = memory.ChatMemoryBuffer.from_defaults(token_limit=budget, tokenizer_fn=_tokens)
        self._arriving = cycle([llms.ChatMessage(role="user", content=text.content) for text in texts])
        for _ in range(2 * workloads.WINDOW_MESSAGES):
            self.step()

    def step(self) -> int:
        self._buffer.put(next(self._arriving))
        found = self._buffer.get()
        self._buffer.set(found)
        return len(found)

    def close(self) -> None:
        """Need nothing."""


def open_peer(_directory: Path, _sizes: PeerSizes) -> Peer:
    """Fill a buffer."""
    return Peer()
