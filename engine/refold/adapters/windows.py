"""The messages of a window that adapters send to a framework."""

from collections.abc import Iterable, Sequence
from typing import Final

from refold import Message

UNBOUNDED_TOKENS: Final = 2**40
"""The budget of a window that shows every message."""


def call_ids(messages: Iterable[Message]) -> set[str]:
    """Return the ids of the calls that messages make."""
    return {call["id"] for message in messages for call in message.tool_calls or ()}


def acceptable_messages(messages: Sequence[Message]) -> list[Message]:
    """Return the messages that a model accepts: of erased ones, only the results of calls that remain."""
    calls = call_ids(messages)
    return [
        message
        for message in messages
        if (message.tool_call_id in calls if message.tool_call_id else not message.erased)
    ]
