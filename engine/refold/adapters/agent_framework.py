"""A history provider for Microsoft's Agent Framework, with a conversation for the messages of each session."""

# Type checking runs without the framework installed: only its names are unknown there.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false, reportUnknownVariableType=false

import asyncio
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from refold import Conversation, Memory, Message, ReadOnly, Receipt
from refold.adapters.extras import import_extra
from refold.adapters.media import label, media_block
from refold.adapters.windows import acceptable_messages, call_ids, opening, other_budget

with import_extra("agent-framework"):
    from agent_framework import HistoryProvider
    from agent_framework import Message as FrameworkMessage
    from agent_framework._sessions import filter_new_messages

Item: TypeAlias = dict[str, Any]

_ACTOR: Final = "agent-framework"
_DEFAULT_SESSION: Final = "default"  # The name that the framework's own provider gives to a session without an id.
_ROLES: Final = frozenset(("assistant", "developer", "system", "tool", "user"))
_EXCLUDED: Final = "_excluded"  # The framework's mark of a message that a compaction excluded.

# Keys of metadata: the fields of a framework message besides its role and contents, and the mark shared by the messages
# here that one framework message is split into.
_REST: Final = "rest"
_PART_OF: Final = "part_of"
# What a block does not hold of the content that it shows: its other fields, or all of one that has no block.
_BLOCKS: Final = "blocks"
# The fields of calls besides id, name and arguments, and the number of other contents before each call; the fields of a
# result besides its id and text.
_CALLS: Final = "calls"
_PLACES: Final = "places"
_RESULT: Final = "result"
_AS_JSON: Final = "as_json"  # Marks a call or result whose text stands for another value.


class RefoldHistoryProvider(HistoryProvider):
    """The `HistoryProvider` of Microsoft's Agent Framework, in a memory: `Agent(..., context_providers=[provider])`.

    The messages of a session are those of the conversation `NAME/SESSION_ID`, each once, so that policies, searches,
    `why`, erasure and `refold web` work on them; a function result is a message of its own. Messages come back as they
    were given, except for raw representations, which the framework stores nowhere, and erased messages. An erased
    message is left out, and with a call its result too; an erased result comes back empty, because no model accepts a
    call without a result.

    With `window_tokens`, the model is sent the newest messages that fit, a call and its result together; the others
    stay in the log. Without it, every message of a new session is sent, and an earlier one keeps its budget. A session
    that had another budget gets this one with the next call. Messages that a session already has are not stored again,
    as with the framework's own providers, and a save is one commit. `project` is the project of the conversations,
    `skip_excluded` leaves out messages that a compaction has marked, and `options` are those of `HistoryProvider`.

    >>> memory = Memory()
    >>> provider = RefoldHistoryProvider(memory, window_tokens=8_000)
    >>> asyncio.run(provider.save_messages("trip", [FrameworkMessage("user", ["Hello!"])]))
    >>> [message.text for message in asyncio.run(provider.get_messages("trip"))]
    ['Hello!']
    >>> memory.conversation("agent-framework/trip").window()[0].content
    'Hello!'
    """

    def __init__(
        self,
        memory: Memory,
        *,
        name: str = "agent-framework",
        source_id: str = "refold",
        window_tokens: int | None = None,
        project: str | None = None,
        skip_excluded: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(source_id, **options)
        self.memory, self.name, self.skip_excluded = memory, name, skip_excluded
        self._window_tokens, self._project = window_tokens, project
        self._locks: WeakValueDictionary[Any, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    @contextmanager
    def from_path(cls, path: str | Path, **options: Any) -> Generator[Self]:
        """Open a memory for a block; `options` are those of the provider."""
        with Memory(path) as memory:
            yield cls(memory, **options)

    # Methods that the framework calls.

    async def get_messages(
        self,
        session_id: str | None,
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002 - for providers that store messages in it
        **_: Any,
    ) -> list[FrameworkMessage]:
        """Return the messages of a session in order."""
        chat = self._chat(session_id)
        budget = other_budget(chat, self._window_tokens)
        if budget is not None:
            with self.memory.acting(_ACTOR), suppress(ReadOnly):  # A past state is shown with the budget that it had.
                await asyncio.to_thread(chat.set_window_tokens, budget)
        messages = _messages_of(chat.window())
        return [each for each in messages if not (self.skip_excluded and each.additional_properties.get(_EXCLUDED))]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[FrameworkMessage],
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002 - as above
        **_: Any,
    ) -> None:
        """Append the messages that the session does not already end with, all or none."""
        # Tasks that share a session take turns, so that their messages are stored in the order of their calls.
        lock = self._locks.setdefault((asyncio.get_running_loop(), session_id), asyncio.Lock())
        async with lock:
            with self.memory.acting(_ACTOR):
                await self.memory.aio.transact(partial(self._append, session_id, messages))

    # Sessions.

    async def sessions(self) -> list[str]:
        """Return the sorted ids of the sessions that have messages."""
        prefix = self._id("")
        names = await asyncio.to_thread(self.memory.conversations, prefix=prefix)
        return [name.removeprefix(prefix) for name in names]

    async def delete_session(self, session_id: str) -> None:
        """Delete a session; the log keeps its messages until `erase_session`."""
        with self.memory.acting(_ACTOR):
            await self.memory.aio.conversation(self._id(session_id)).drop()

    async def erase_session(self, session_id: str) -> Receipt:
        """Erase the bytes of a session, deleted or not, and its name; return what was reached."""
        return await self.memory.aio.conversation(self._id(session_id)).erase()

    def _id(self, session_id: str | None) -> str:
        return f"{self.name}/{_DEFAULT_SESSION if session_id is None else session_id}"

    def _chat(self, session_id: str | None) -> Conversation:
        own = self._id(session_id)
        options = opening(self.memory, own, window_tokens=self._window_tokens, project=self._project)
        return self.memory.conversation(own, **options)

    async def _append(self, session_id: str | None, messages: Sequence[FrameworkMessage]) -> None:
        chat = self._chat(session_id)
        budget = other_budget(chat, self._window_tokens)
        if budget is not None:
            chat.set_window_tokens(budget)
        window = chat.window()
        known = call_ids(window)
        for place, message in enumerate(filter_new_messages(_messages_of(window), messages)):
            mark = f"{chat.version}.{place}"
            fields = _fields_of(msgspec.to_builtins(message.to_dict()), known)
            for each in fields:
                shared = {_PART_OF: mark} if len(fields) > 1 else {}
                metadata = each.pop("metadata") | shared
                chat.append(**each, metadata=metadata or None)


# From the framework.


def _fields_of(message: Item, known: set[str]) -> list[Item]:
    """Return the fields of the messages that represent a framework message, and add its new calls' ids to ``known``.

    A window shows a result only with its one call. Therefore a result whose call is not known, and a second call with a
    known id, are treated like any other content block.
    """
    given: str = message.pop("role")
    role = given if given in _ROLES else "assistant"
    rest = {name: value for name, value in message.items() if name not in ("type", "contents") and value != {}}
    parts: list[Item] = []
    pending: list[tuple[Item, bool]] = []
    contents: list[Item] = message["contents"]
    for content in map(_plain, contents):
        call: Any = content.get("call_id")
        if content["type"] == "function_result" and call in known:
            parts += [_message(role, pending)] if pending else []
            parts.append(_result(content))
            pending = []
        else:
            is_call = role == "assistant" and content["type"] == "function_call" and call not in known
            is_call = is_call and isinstance(call, str) and isinstance(content.get("name"), str)
            pending.append((content, is_call))
            known.update([call] if is_call else ())
    parts += [_message(role, pending)] if pending or not parts else []
    if parts[0]["role"] != given:
        rest["role"] = given
    parts[0]["metadata"] |= {_REST: rest} if rest else {}
    return parts


def _plain(content: Item) -> Item:
    """Return a content without its default values."""
    return {
        name: value
        for name, value in content.items()
        if not (name == "additional_properties" and value == {}) and not (name == "hosted" and value is False)
    }


def _message(role: str, contents: Sequence[tuple[Item, bool]]) -> Item:
    """Return the fields for contents that are not results; each is given with whether it is a call."""
    blocks: list[Item] = []
    calls: list[Item] = []
    rests: list[Item] = []
    places: list[int] = []
    for content, is_call in contents:
        if is_call:
            rest = {
                name: value for name, value in content.items() if name not in ("type", "call_id", "name", "arguments")
            }
            text, as_json = _as_text(content.get("arguments"))
            function = {"name": content["name"], "arguments": text}
            calls.append({"id": content["call_id"], "type": "function", "function": function})
            rests.append(rest | as_json)
            places.append(len(blocks))
        else:
            blocks.append(content)
    split = [_split(content) for content in blocks]
    metadata: dict[str, Any] = {_CALLS: rests} if any(rests) else {}
    if any(rest for _, rest in split):
        metadata[_BLOCKS] = [rest for _, rest in split]
    if any(place < len(blocks) for place in places):
        metadata[_PLACES] = places
    shown = [block for block, _ in split]
    is_text = len(shown) == 1 and shown[0].get("type") == "text"
    fields: Item = {"role": role, "content": shown[0]["text"] if is_text else shown or None, "metadata": metadata}
    return fields | ({"tool_calls": calls} if calls else {})


def _split(content: Item) -> tuple[Item, Item]:
    """Return the block that shows a content, and what it does not hold of it."""
    match content:
        case {"type": "text", "text": str(text), **rest}:
            return {"type": "text", "text": text}, rest
        case {"type": "text_reasoning"}:
            return content, {}
        case {"type": "data" | "uri", "uri": str(uri), **rest}:
            block = media_block(uri, content.get("media_type"))
            rest["type"] = content["type"]
            return block, rest if _join(block, rest) == content else content
        case _:
            return label(content["type"]), content


def _join(block: Item, rest: Item) -> Item:
    """Return the content that was split into a block and a rest."""
    if "type" not in rest:
        return block | rest
    if rest["type"] not in ("data", "uri") or "uri" in rest:
        return rest
    match block:
        case {"inlineData": {"mimeType": media_type, "data": data}}:
            return rest | {"uri": f"data:{media_type};base64,{data}"}
        case {"fileData": {"fileUri": uri}} | {"image_url": uri}:
            return rest | {"uri": uri}
        case _:
            return rest


def _result(content: Item) -> Item:
    """Return the fields for the result of a call; media among its items are blocks behind its text."""
    rest = {name: value for name, value in content.items() if name not in ("type", "call_id", "result")}
    text, as_json = _as_text(content.get("result"))
    items = rest.pop("items", None)
    media: list[Item] = []
    if not _has_only_text(text, items):
        split: list[tuple[Item, Item]] = [_split(each) if _is_media(each) else ({}, each) for each in items or ()]
        media = [block for block, _ in split if block]
        rest["items"] = items and [kept for _, kept in split]
    rest |= as_json
    metadata: Item = {_RESULT: rest} if rest else {}
    shown = [{"type": "text", "text": text}, *media] if media else text
    return {"role": "tool", "content": shown, "tool_call_id": content["call_id"], "metadata": metadata}


def _is_media(content: Item) -> bool:
    return content["type"] in ("data", "uri")


def _as_text(value: Any) -> tuple[str, Item]:
    """Return the text that stands for a value, and a mark if the value is not a text."""
    return (value, {}) if isinstance(value, str) else (json.dumps(value, ensure_ascii=False), {_AS_JSON: True})


def _has_only_text(text: str, items: Any) -> bool:
    """Return whether the items of a result consist only of its text, which is their default."""
    return isinstance(items, list) and [_plain(each) for each in items] == [{"type": "text", "text": text}]


# To the framework.


def _messages_of(window: Sequence[Message]) -> list[FrameworkMessage]:
    """Return the framework's messages for those of a window, in a form that a model accepts even after erasures."""
    items: list[Item] = []
    last: str | None = None
    for message in acceptable_messages(window):
        metadata = message.metadata or {}
        mark = metadata.get(_PART_OF)
        if mark is None or mark != last:
            items.append({"role": message.role, "contents": [], **metadata.get(_REST, {})})
        items[-1]["contents"] += _contents_of(message, metadata)
        last = mark
    return [FrameworkMessage.from_dict(item) for item in items]


def _contents_of(message: Message, metadata: Item) -> list[Item]:
    """Return the contents that a message was made from."""
    content = message.content
    if message.tool_call_id is not None:
        rest = dict(metadata.get(_RESULT, {}))
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        text, media = str(blocks[0]["text"]), blocks[1:]
        value = _value(text, rest)
        items = rest.pop("items", [{"type": "text", "text": text}])
        left = iter(media)
        items = items and [_join(next(left), each) if media and _is_media(each) else each for each in items]
        return [{"type": "function_result", "call_id": message.tool_call_id, "result": value, "items": items, **rest}]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    contents = [_join(*pair) for pair in zip(blocks, metadata.get(_BLOCKS, [{}] * len(blocks)), strict=True)]
    calls = message.tool_calls or []
    rests: list[Item] = metadata.get(_CALLS, [{}] * len(calls))
    places: list[int] = metadata.get(_PLACES, [len(contents)] * len(calls))
    made = [_call(call, dict(rest)) for call, rest in zip(calls, rests, strict=True)]
    for place, call in reversed([*zip(places, made, strict=True)]):
        contents.insert(place, call)
    return contents


def _call(call: Item, rest: Item) -> Item:
    function = call["function"]
    arguments = _value(function["arguments"], rest)
    return {"type": "function_call", "call_id": call["id"], "name": function["name"], "arguments": arguments, **rest}


def _value(text: str, rest: Item) -> Any:
    """Return the value that a text stands for."""
    return json.loads(text) if rest.pop(_AS_JSON, False) else text
