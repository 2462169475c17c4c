"""A session of the OpenAI Agents SDK whose items are messages of a conversation."""

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias, cast

from refold import Memory, Message, ReadOnly, WrongVersion
from refold.adapters.windows import acceptable_messages, call_ids, opening, other_budget

Item: TypeAlias = dict[str, Any]

_ACTOR: Final = "openai-agents"
_LETTERS_PER_TOKEN: Final = 4
_ROLES: Final = frozenset(("assistant", "developer", "system", "user"))
_CALL_TYPES: Final = ("function_call", "function_call_output")
_ITEM: Final = "item"  # The metadata key for an item that no message can represent,
_REST: Final = "rest"  # and the one for data that a message has no field for.


class RefoldSession:
    """The `Session` of the OpenAI Agents SDK, in a memory: pass it to `Runner.run(agent, text, session=...)`.

    Every item comes back as it was given, unless it was erased. An erased item is left out, and with a call its result
    too; an erased result comes back empty, because no model accepts a call without a result. Texts, calls and their
    results are messages of the conversation `session_id`, so that `why`, `chat.search`, `erase` and `refold web` work
    on them. Other items, such as reasoning, are messages without text that carry the item.

    With `window_tokens`, the model is sent the newest items that fit, a call and its result together; the others stay
    in the log. Without it, every item of a new session is sent, as with the SDK's own sessions, and an earlier one
    keeps its budget. A session that had another budget gets this one with the next call. `project` is the project of
    the conversation. `session_settings` are the SDK's, or a dict; their `limit` counts the newest items. The SDK itself
    is not imported.

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
        self._window_tokens = window_tokens
        options = opening(memory, session_id, window_tokens=window_tokens, project=project)
        self._chat = memory.conversation(session_id, **options)
        self._async_chat = memory.aio.conversation(session_id, **options)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items in order; with a `limit`, only the newest ones."""
        if limit is None:
            settings = self.session_settings
            is_plain = isinstance(settings, dict)
            limit = cast("Item", settings).get("limit") if is_plain else getattr(settings, "limit", None)
        with suppress(ReadOnly):  # A past state is shown with the budget that it had.
            await self._settle_budget()
        items = [*map(_item_of, acceptable_messages(self._chat.window()))]
        return items if limit is None else items[max(len(items) - max(limit, 0), 0) :]

    async def add_items(self, items: list[Any]) -> None:
        """Add items after the existing ones, all or none."""
        copies = [dict(item) for item in items]
        await self._settle_budget()
        with self.memory.acting(_ACTOR):
            if len(copies) == 1 and not _is_call_item(copies[0]):
                await self._append(copies)
            elif copies:
                await self.memory.aio.transact(partial(self._append, copies))

    async def pop_item(self) -> Any:
        """Remove the newest item and return it, or `None` if there is none; the log keeps the item."""
        version, newest = self._chat.version, self._chat.window(last=1)
        with self.memory.acting(_ACTOR):
            if newest and newest[0].tool_call_id is None and not newest[0].erased:
                with suppress(WrongVersion):
                    await self._async_chat.pop(expected=version)
                    return _item_of(newest[0])
            return await self.memory.aio.transact(self._pop)

    async def clear_session(self) -> None:
        """Remove all items; the log keeps them."""
        with self.memory.acting(_ACTOR):
            await self._async_chat.clear_window()

    async def _settle_budget(self) -> None:
        """Give a session that had another budget the one of this object."""
        budget = other_budget(self._chat, self._window_tokens)
        if budget is not None:
            with self.memory.acting(_ACTOR):
                await self._async_chat.set_window_tokens(budget)

    async def _pop(self) -> Item | None:
        messages = self._chat.window()
        shown = acceptable_messages(messages)
        if not shown:
            return None
        # A result is removed together with its call, so everything since the first call affected is appended again,
        # without the newest item.
        begin = len(shown) - 1
        while begin and not _answered_ids(shown[begin:]) <= call_ids(shown[begin:]):
            begin -= 1
        for message in reversed(messages[messages.index(shown[begin]) :]):
            await self._async_chat.remove(message)
        await self._append([_item_of(message) for message in shown[begin:-1]])
        return _item_of(shown[-1])

    async def _append(self, items: Sequence[Item]) -> None:
        calls = call_ids(self._chat.window()) if any(map(_is_call_item, items)) else set[str]()
        for item in items:
            fields = _fields_of(item, calls)
            calls |= {call["id"] for call in fields.get("tool_calls", ())}
            await self._async_chat.append(**fields)


def _is_call_item(item: Item) -> bool:
    return item.get("type") in _CALL_TYPES


def _answered_ids(messages: Sequence[Message]) -> set[str]:
    return {message.tool_call_id for message in messages if message.tool_call_id is not None}


def _fields_of(item: Item, known: set[str]) -> dict[str, Any]:
    """Return the fields of the message to append for an item; data without a field goes into the metadata.

    A window shows a result only with its one call. Therefore a result whose call is not `known`, and a second call with
    a known id, are treated like any other item.
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


def _item_of(message: Message) -> Item:
    """Return the item that a message was made from."""
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
