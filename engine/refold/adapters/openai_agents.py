"""A session of the OpenAI Agents SDK whose items are messages of a conversation."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias, cast

from refold import Memory, Message, ReadOnly, WrongVersion
from refold.adapters.media import estimate_tokens, readable_block
from refold.adapters.windows import acceptable_messages, call_ids, opening, other_budget
from refold.memory.core import core_of
from refold.memory.turns import newest_group
from refold.text import countable_texts

Item: TypeAlias = dict[str, Any]

_ACTOR: Final = "openai-agents"
_ROLES: Final = frozenset(("assistant", "developer", "system", "user"))
# Keys of metadata: an item that no message can represent, several items of one message, and data that a message has no
# field for.
_ITEM: Final = "item"
_ITEMS: Final = "items"
_REST: Final = "rest"


class RefoldSession:
    """The `Session` of the OpenAI Agents SDK, in a memory: pass it to `Runner.run(agent, text, session=...)`.

    Every item comes back as it was given, unless it was erased. An erased item is left out, and with a call its result
    too; an erased result comes back empty, because no model accepts a call without a result, or is left out with its
    call if that is not of a function. Texts, calls and their results are messages of the conversation `session_id`, so
    that `why`, `chat.search`, `erase` and `refold web` work on them. Reasoning and what the model said or called after
    it are one message, because no model accepts one without the other. Other items are messages without text that carry
    the item.

    With `window_tokens`, the model is sent the newest items that fit, a call of any kind, its result and the reasoning
    before it together; the others stay in the log. Without it, every item of a new session is sent, as with the SDK's
    own sessions, and an earlier one keeps its budget. A session that had another budget gets this one with the next
    call. `project` is the project of the conversation. `session_settings` are the SDK's, or a dict; their `limit`
    counts the newest items. The SDK itself is not imported.

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
        items = _items_of(_sendable(self._chat.window()))
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
            if newest and newest[0].tool_call_id is None and not newest[0].erased and len(_items_of(newest)) == 1:
                with suppress(WrongVersion):
                    await self._async_chat.pop(expected=version)
                    return _items_of(newest)[0]
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
        shown = _sendable(messages)
        if not shown:
            return None
        # A result is removed together with its call, so everything since the first call affected is appended again,
        # without the newest item.
        begin = len(shown) - 1
        while begin and not _answered_ids(shown[begin:]) <= call_ids(shown[begin:]):
            begin -= 1
        for message in reversed(messages[messages.index(shown[begin]) :]):
            await self._async_chat.remove(message)
        *left, last = _items_of(shown[begin:])
        await self._append(left, is_again=True)
        return last

    async def _append(self, items: Sequence[Item], *, is_again: bool = False) -> None:
        calls = call_ids(self._chat.window()) if any(map(_is_call_item, items)) else set[str]()
        for run in _runs(items):
            made: list[Item] = []
            for item in run:
                answered = _answered_id(item)
                if answered is None or answered in calls or is_again or not self._has_left(answered):
                    made.append(_fields_of(item, calls))
                else:
                    made.append(_fields_of(item, {answered}))
                calls |= {call["id"] for call in made[-1].get("tool_calls", ())}
            await self._async_chat.append(**(made[0] if len(run) == 1 else self._join_fields(run, made)))

    def _has_left(self, call: str) -> bool:
        """Return whether a call that is not in the window was evicted or erased, so that its result is not shown."""
        return bool(newest_group(self._chat.events(), lambda event, _: call in event.call_ids))

    def _join_fields(self, run: list[Item], made: Sequence[Item]) -> Item:
        """Return the fields of the one message for items that a model made together, given with the fields of each."""
        blocks: list[Item] = []
        for content in [fields["content"] for fields in made if fields["content"]]:
            blocks += [{"type": "output_text", "text": content}] if isinstance(content, str) else content
        calls = [call for fields in made for call in fields.get("tool_calls", ())]
        fields = {
            "role": "assistant",
            "content": blocks or None,
            "tool_calls": calls or None,
            "metadata": {_ITEMS: run},
        }
        # What no field of the message holds counts by its length, and the rest as in messages of its own.
        counter = core_of(self._chat)[0].counter
        known = [each for each in made if "tokens" not in each]
        texts = [text for each in known for text in countable_texts(each["content"], each.get("tool_calls"))]
        tokens = sum(map(counter.count, texts)) + sum(each.get("tokens", 0) for each in made)
        return fields | {"tokens": tokens}


def _runs(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield each item alone, but a reasoning item with what the model made directly after it."""
    run: list[Item] = []
    for item in items:
        is_from_model = item.get("role", "assistant") == "assistant" and _answered_id(item) is None
        if run and not is_from_model:
            yield run
            run = []
        if run or item.get("type") == "reasoning":
            run.append(item)
        else:
            yield [item]
    if run:
        yield run


def _call_id(item: Item) -> str | None:
    """Return the id of the call that an item makes."""
    match item:
        case {"type": "mcp_approval_request", "id": str(call)}:
            return call
        case {"type": str(kind), "call_id": str(call)} if not kind.endswith("_output"):
            return call
        case _:
            return None


def _answered_id(item: Item) -> str | None:
    """Return the id of the call that an item is the result of."""
    match item:
        case {"type": "mcp_approval_response", "approval_request_id": str(call)}:
            return call
        case {"type": str(kind), "call_id": str(call)} if kind.endswith("_output"):
            return call
        case {"type": "local_shell_call_output", "id": str(call)}:
            return call
        case _:
            return None


def _is_call_item(item: Item) -> bool:
    return _call_id(item) is not None or _answered_id(item) is not None


def _sendable(messages: Sequence[Message]) -> list[Message]:
    """Return the messages that a model accepts; only the result of a function can be empty, as an erased one is."""
    shown = acceptable_messages(messages)
    erased = {message.tool_call_id for message in shown if message.erased}
    return acceptable_messages([each for each in shown if not (erased & call_ids([each]) and _has_own_call(each))])


def _has_own_call(message: Message) -> bool:
    """Return whether a message makes a call that is not of a function."""
    return any(_call_id(item) is not None and item["type"] != "function_call" for item in _items_of([message]))


def _answered_ids(messages: Sequence[Message]) -> set[str]:
    return {message.tool_call_id for message in messages if message.tool_call_id is not None}


def _fields_of(item: Item, known: set[str]) -> dict[str, Any]:
    """Return the fields of the message to append for an item; data without a field goes into the metadata.

    A window shows a result only with its one call. Therefore a result whose call is not `known`, neither in the window
    nor as one that has left, and a second call with a known id, are treated like any other item.
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
        case {
            "type": "function_call_output" | "custom_tool_call_output" as kind,
            "call_id": str(call),
            "output": (str() | [_, *_]) as output,
            **rest,
        } if call in known and (isinstance(output, str) or all(map(_is_block, output))):
            fields = {"role": "tool", "content": output, "tool_call_id": call}
            rest |= {"type": kind} if kind != "function_call_output" else {}
        case _:
            return _own_fields(item, known) | {"metadata": {_ITEM: item}, "tokens": estimate_tokens(item)}
    return fields | {"metadata": {_REST: rest}} if rest else fields


def _is_block(value: object) -> bool:
    return isinstance(value, dict) and readable_block(cast("Item", value)) is value


def _own_fields(item: Item, known: set[str]) -> dict[str, Any]:
    """Return the fields of the message for an item of the API's own, which are only shown: a call and its result."""
    call, answered = _call_id(item), _answered_id(item)
    said = {name: value for name, value in item.items() if name not in ("type", "id", "call_id", "status")}
    text = json.dumps(said, ensure_ascii=False, default=str)
    text = f"({item['type']})" if ";base64," in text else text
    if call is not None and call not in known:
        function = {"name": item["type"], "arguments": text}
        calls = [{"id": call, "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}
    if answered is not None and answered in known:
        return {"role": "tool", "content": text, "tool_call_id": answered}
    return {"role": "assistant", "content": None}


def _items_of(messages: Iterable[Message]) -> list[Item]:
    """Return the items that messages were made from."""
    return [dict(item) for message in messages for item in _items_in(message)]


def _items_in(message: Message) -> Sequence[Item]:
    metadata: dict[str, Any] = message.metadata or {}
    if _ITEMS in metadata:
        return cast("list[Item]", metadata[_ITEMS])
    if _ITEM in metadata:
        return [metadata[_ITEM]]
    item: Item
    if message.tool_calls:
        call = message.tool_calls[0]
        item = {"type": "function_call", "call_id": call["id"], **call["function"]}
    elif message.tool_call_id is not None:
        item = {"type": "function_call_output", "call_id": message.tool_call_id, "output": message.content or ""}
    else:
        item = {"role": message.role, "content": message.content}
    return [{**item, **metadata.get(_REST, {})}]
