"""Watches: functions called with the departures of messages from windows, until they are closed."""

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

from msgspec import Struct

from refold.message import Message


class Departure(Struct, frozen=True):
    """A message that leaves a conversation's window; ``seq`` is that of the event, or ``None`` before it is written."""

    conversation: str
    message: Message
    seq: int | None


Predicate: TypeAlias = Callable[[Message], object]


class Watch:
    """A function that is called with the departures of messages, until the watch is closed.

    >>> from refold import Memory
    >>> memory = Memory()
    >>> chat = memory.conversation("chat-42", window_tokens=8)
    >>> message = chat.append("user", "I am allergic to nuts.", tokens=5)
    >>> def keep(departure):
    ...     memory.profile().set("allergy", departure.message.content)
    >>> with memory.watch(lambda message: "allergic" in message.content, keep):
    ...     _ = chat.append("user", "What can I eat?", tokens=5)
    >>> memory.profile().get("allergy")
    'I am allergic to nuts.'
    """

    __slots__ = ("_close", "function", "predicate")

    def __init__(self, predicate: Predicate, function: Callable[[Departure], Any]) -> None:
        self.predicate = predicate
        self.function = function
        self._close: Callable[[], None] = lambda: None

    def on_close(self, close: Callable[[], None]) -> None:
        """Set the function that ends the watch."""
        self._close = close

    def close(self) -> None:
        """End the watch."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, stream: str, messages: Sequence[Message], seq: int | None) -> None:
        """Call the function with the departure of each message that matches the predicate."""
        conversation = stream.partition("/")[2]
        for message in messages:
            if self.predicate(message):
                self.function(Departure(conversation, message, seq))
