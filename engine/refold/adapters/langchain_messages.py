"""Messages of LangChain as messages of a conversation, and lists of them that lost some to an erasure."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeGuard, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from refold import Conversation, InvalidInput, Message

_ROLES: Final[tuple[tuple[type[BaseMessage], str], ...]] = (
    (HumanMessage, "user"),
    (SystemMessage, "system"),
    (ToolMessage, "tool"),
    (FunctionMessage, "function"),
)
_MARK: Final = "digest"  # The key of metadata by which a message of a window is found again.


def are_messages(value: object) -> TypeGuard[list[BaseMessage]]:
    """Return whether a value is a list of messages."""
    if type(value) is not list or not value:
        return False
    items = cast("list[object]", value)
    return all(isinstance(each, BaseMessage) and not isinstance(each, RemoveMessage) for each in items)


def show(
    chat: Conversation, before: Sequence[str], after: Sequence[str], find: Callable[[str], BaseMessage | None]
) -> dict[str, Message]:
    """Lead a window from the messages of ``before`` to those of ``after``, both digests; return what was appended.

    A message that stays where it was among the others is left alone; one that a budget evicted does not come back.
    """
    kept, rest = list(before), list(after[len(before) :])
    if kept != after[: len(kept)]:
        kept, rest = _keep(chat, before, after)
    found = ((digest, find(digest)) for digest in rest)
    return {digest: _append(chat, digest, message) for digest, message in found if message is not None}


def _keep(chat: Conversation, before: Sequence[str], after: Sequence[str]) -> tuple[list[str], list[str]]:
    """Remove from the window what is not at its place; return what stays, and what has to come behind it."""
    kept: list[str] = []
    gone: list[str] = []
    for digest in before:
        stays = len(kept) < len(after) and digest == after[len(kept)]
        (kept if stays else gone).append(digest)
    live = shown = _live(chat)
    while True:
        for digest in gone:
            if digest in live:
                chat.remove(live[digest])
        # An answer leaves with its call, and a call with its answers: those of them that stay are said again.
        live = _live(chat)
        lost = next((place for place, digest in enumerate(kept) if digest in shown and digest not in live), None)
        if lost is None:
            return kept, list(after[len(kept) :])
        kept, gone = kept[:lost], kept[lost:]


def _live(chat: Conversation) -> dict[str, str]:
    """Return the ids of the messages in a window by their digests."""
    return {mark: message.id for message in chat.window() if (mark := (message.metadata or {}).get(_MARK)) is not None}


def _append(chat: Conversation, digest: str, message: BaseMessage) -> Message:
    fields: dict[str, Any] = {
        "role": next((role for kind, role in _ROLES if isinstance(message, kind)), "assistant"),
        "metadata": {"id": message.id, _MARK: digest},
        "name": message.name or None,
    }
    if isinstance(message, AIMessage) and message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call["id"] or "",
                "type": "function",
                "function": {
                    "name": call["name"],
                    "arguments": json.dumps(call["args"], ensure_ascii=False, default=str),
                },
            }
            for call in message.tool_calls
        ]
    if isinstance(message, ToolMessage):
        fields["tool_call_id"] = message.tool_call_id
    content = cast("str | list[str | dict[str, Any]]", message.content)
    if isinstance(content, list):
        parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
        try:
            return chat.append(content=parts, **fields)
        except InvalidInput:  # Blocks of a provider's own, with bytes or other objects in them.
            content = str(message.text)
    return chat.append(content=content, **fields)


def without_gaps(messages: Sequence[BaseMessage | None]) -> list[BaseMessage]:
    """Return messages without the erased ones, ``None``, such that a model takes them.

    Of an erased call of a tool the results go, too; an erased result is empty.
    """
    there = [each for each in messages if each is not None]
    if len(there) == len(messages):
        return there
    calls = {call["id"] for each in messages if isinstance(each, AIMessage) for call in each.tool_calls}
    answered = {each.tool_call_id for each in messages if isinstance(each, ToolMessage)}
    whole: list[BaseMessage] = []
    missing: list[str] = []
    for each in messages:
        if each is None:
            if missing:
                whole.append(ToolMessage("", tool_call_id=missing.pop(0)))
        elif not isinstance(each, ToolMessage) or each.tool_call_id in calls:
            whole.append(each)
            if isinstance(each, AIMessage):
                missing = [call["id"] or "" for call in each.tool_calls if call["id"] not in answered]
    return whole
