"""The function trim_messages of langchain, with the cheapest counter there is: tokens that are already known."""

from importlib import import_module
from typing import Any

import workloads

_messages: Any = import_module("langchain_core.messages")


class Trimmed:
    """A chat history that is trimmed after each message, as its users do it before each call of a model."""

    def __init__(self, window_tokens: int, message_tokens: int) -> None:
        self._window_tokens = window_tokens
        self._message_tokens = message_tokens
        self._arriving = [_messages.HumanMessage(text.content) for text in workloads.texts()]
        self._place = 0
        self.history: list[Any] = []

    def step(self) -> None:
        """Append a message, evict what no longer fits, and hold the whole window."""
        self._place += 1
        self.history.append(self._arriving[self._place % len(self._arriving)])
        self.history = _messages.trim_messages(
            self.history, max_tokens=self._window_tokens, strategy="last", token_counter=self._count
        )

    def _count(self, messages: list[Any]) -> int:
        return len(messages) * self._message_tokens
