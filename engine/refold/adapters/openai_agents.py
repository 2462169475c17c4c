"""A session of the OpenAI Agents SDK whose items are messages of a conversation."""

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import compress
from typing import Any, Final, TypeAlias, cast

from refold import Memory, Message, WrongVersion

Item: TypeAlias = dict[str, Any]

_ACTOR: Final = "openai-agents"
_UNBOUNDED_TOKENS: Final = 2**40
_LETTERS_PER_TOKEN: Final = 4
_ROLES: Final = frozenset(("assistant", "developer", "system", "user"))
_CALL_TYPES: Final = ("function_call", "function_call_output")
_ITEM: Final = "item"  # The key of metadata that holds an item that no message can hold,
_REST: Final = "rest"  # and the one for what a message has no field for.


class RefoldSession:
    """The `Session` of the OpenAI Agents SDK, in a memory: give it to `Runner.run(agent, text, session=...)`.

    Every item comes back as it was given, unless it was erased: then it is left out, and of a call its result, too; an
    erased result is empty, since no model takes a call without one. Texts, calls and their results are messages of the
    conversation `session_id`, so that `why`, `chat.search`, `erase` and `refold web` work on them; other items, such as
    reasoning, are messages without a text that carry the item.

    With `window_tokens` the model is sent the newest items that fit, a call and its result together; the others stay in
    the log. Without it, every item is sent, as with the SDK's own sessions. `project` is that of the conversation.
    `session_settings` are the SDK's, or a dict; their `limit` counts the newest items. The SDK itself is not imported.

    >>> import asyncio
    >>> session = RefoldSession("trip", Memory(), window_tokens=8_000)
    >>> asyncio.run(session.add_items([{"role": "user", "content": "Hello!"}]))
    >>> asyncio.run(session.get_items())
    [{'role': 'user', 'content': 'Hello!'}]
    """

    def __init__(
        self,
        session_id: str,
        memory: Memory,
        *,
        window_tokens: int | None = None,
        project: str | None = None,
        session_settings: Any = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings
        self.memory = memory
        budget = _UNBOUNDED_TOKENS if window_tokens is None else window_tokens
        self._chat = memory.conversation(session_id, window_tokens=budget, project=project)
        self._async_chat = memory.aio.conversation(session_id, window_tokens=budget, project=project)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items in their order; with a `limit`, the newest ones."""
        if limit is None:
            settings = self.session_settings
            is_plain = isinstance(settings, dict)
            limit = cast("Item", settings).get("limit") if is_plain else getattr(settings, "limit", None)
        items = [*map(_item_of, _shown(self._chat.window()))]
        return items if limit is None else items[max(len(items) - max(limit, 0), 0) :]

    async def add_items(self, items: list[Any]) -> None:
        """Add items behind the others, all of them or none."""
        given = [dict(item) for item in items]
        with self.memory.acting(_ACTOR):
            if len(given) == 1 and not _is_of_a_call(given[0]):
                await self._append(given)
            elif given:
                await self.memory.aio.transact(partial(self._append, given))

    async def pop_item(self) -> Any:
        """Take the newest item out and return it; the log keeps it. `None` where there is none."""
        version, newest = self._chat.version, self._chat.window(last=1)
        with self.memory.acting(_ACTOR):
            if newest and newest[0].tool_call_id is None and not newest[0].erased:
                with suppress(WrongVersion):
                    await self._async_chat.pop(expected=version)
                    return _item_of(newest[0])
            return await self.memory.aio.transact(self._pop)

    async def clear_session(self) -> None:
        """Take all items out; the log keeps them."""
        with self.memory.acting(_ACTOR):
            await self._async_chat.clear_window()

    async def _pop(self) -> Item | None:
        messages = self._chat.window()
        shown = _shown(messages)
        if not shown:
            return None
        # A result leaves together with its call, so all since the first call that leaves is appended again without it.
        begin = len(shown) - 1
        while begin and not _answered_by(shown[begin:]) <= _calls_of(shown[begin:]):
            begin -= 1
        for message in reversed(messages[messages.index(shown[begin]) :]):
            await self._async_chat.remove(message)
        await self._append([_item_of(message) for message in shown[begin:-1]])
        return _item_of(shown[-1])

    async def _append(self, items: Sequence[Item]) -> None:
        known = _calls_of(self._chat.window()) if any(map(_is_of_a_call, items)) else set[str]()
        for item in items:
            fields = _fields_of(item, known)
            known |= {call["id"] for call in fields.get("tool_calls", ())}
            await self._async_chat.append(**fields)


def _is_of_a_call(item: Item) -> bool:
    return item.get("type") in _CALL_TYPES


def _calls_of(messages: Sequence[Message]) -> set[str]:
    return {call["id"] for message in messages for call in message.tool_calls or ()}


def _answered_by(messages: Sequence[Message]) -> set[str]:
    return {message.tool_call_id for message in messages if message.tool_call_id is not None}


def _fields_of(item: Item, known: set[str]) -> dict[str, Any]:
    """Return what is appended for an item; what a message has no field for goes into its metadata.

    A window shows no result without its one call, so a result whose call is not `known`, and another call of a known
    id, are items like any other.
    """
    match item:
        case {"role": str(role), "content": (str() | [_, *_]) as content, **rest} if role in _ROLES:
            fields: dict[str, Any] = {"role": role, "content": content}
        case {
            "type": "function_call",
            "call_id": str(call),
            "name": str(name),
            "arguments": str(arguments),
            **rest,
        } if call not in known:
            function = {"name": name, "arguments": arguments}
            calls = [{"id": call, "type": "function", "function": function}]
            fields = {"role": "assistant", "content": None, "tool_calls": calls}
        case {"type": "function_call_output", "call_id": str(call), "output": str(output), **rest} if call in known:
            fields = {"role": "tool", "content": output, "tool_call_id": call}
        case _:
            tokens = len(json.dumps(item, ensure_ascii=False, default=str)) // _LETTERS_PER_TOKEN + 1
            return {"role": "assistant", "content": None, "metadata": {_ITEM: item}, "tokens": tokens}
    return fields | {"metadata": {_REST: rest}} if rest else fields


def _shown(messages: Sequence[Message]) -> list[Message]:
    """Return the messages that are items, such that a model takes them though some were erased."""
    known = _calls_of(messages)
    there = (message.tool_call_id in known if message.tool_call_id else not message.erased for message in messages)
    return [*compress(messages, there)]


def _item_of(message: Message) -> Item:
    """Return the item that a message was made of."""
    metadata = message.metadata or {}
    if _ITEM in metadata:
        return dict(metadata[_ITEM])
    item: Item
    if message.tool_calls:
        call = message.tool_calls[0]
        item = {"type": "function_call", "call_id": call["id"], **call["function"]}
    elif message.tool_call_id is not None:
        item = {"type": "function_call_output", "call_id": message.tool_call_id, "output": message.content or ""}
    else:
        item = {"role": message.role, "content": message.content}
    return {**item, **metadata.get(_REST, {})}
