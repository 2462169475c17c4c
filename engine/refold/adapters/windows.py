"""The windows of conversations that adapters write to, and the messages of one that they send to a framework."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from refold import Conversation, InvalidInput, Memory, Message, checks

UNBOUNDED_TOKENS: Final = 2**40
"""The budget of a window that shows every message."""


def opening(
    memory: Memory, conversation_id: str, *, window_tokens: int | None = None, project: str | None = None
) -> dict[str, Any]:
    """Return the options to take a conversation with: a new one gets the budget, or shows every message without one.

    A conversation that was opened before keeps its budget.
    """
    budget = UNBOUNDED_TOKENS if window_tokens is None else checks.window_tokens(window_tokens)
    options: dict[str, Any] = {"window_tokens": budget, "project": project}
    try:
        memory.conversation(conversation_id, **options)
    except InvalidInput:  # Raised again by whoever takes the conversation, unless the budget was the reason.
        del options["window_tokens"]
    return options


def other_budget(chat: Conversation, window_tokens: int | None) -> int | None:
    """Return the budget that an adapter was given, ``None`` if it is the conversation's own or there is none."""
    return None if window_tokens == chat.window_tokens else window_tokens


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
