"""LangChain messages as messages of a conversation, and message lists from which an erasure removed some."""

import json
import marshal
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard, cast

from refold import Conversation, InvalidInput, Message
from refold.adapters.extras import import_extra
from refold.adapters.media import data_block, label, media_block, readable_block

with import_extra("langgraph"):
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        FunctionMessage,
        HumanMessage,
        RemoveMessage,
        SystemMessage,
        ToolMessage,
    )

Find: TypeAlias = Callable[[str], BaseMessage | None]

_ROLES: Final[tuple[tuple[type[BaseMessage], str], ...]] = (
    (HumanMessage, "user"),
    (SystemMessage, "system"),
    (ToolMessage, "tool"),
    (FunctionMessage, "function"),
)
_MARK: Final = "digest"  # The metadata key that identifies a message in a window.
_SEEN_COUNT_MAX: Final = 8_192  # The most messages to cache, each within the bytes below.
_SEEN_BYTES_MAX: Final = 4_096
_LISTS_BYTES_MAX: Final = 2**25  # The most bytes of lists to cache.
_LIST_HEAD_BYTES: Final = 5  # The header that `marshal` writes before the items of a list.
_NO_LIST: Final[tuple[list[type], bytes, list[str]]] = ([], b"", [])
_set: Final = object.__setattr__  # A message's own `__setattr__` is slower.


class Fields(NamedTuple):
    """The fields of a message as bytes: equal for equal messages, and unaffected by later changes to the message."""

    kind: type[BaseMessage]
    packed: bytes

    def message(self) -> BaseMessage:
        """Return a new message, in a quarter of the time it takes to load it."""
        message = self.kind.__new__(self.kind)
        fields, extra, names = marshal.loads(self.packed)  # noqa: S302 - bytes made by this process
        _set(message, "__dict__", fields)
        _set(message, "__pydantic_extra__", extra)
        _set(message, "__pydantic_fields_set__", names)
        _set(message, "__pydantic_private__", None)
        return message


def _fields_of(messages: Sequence[BaseMessage]) -> bytes:
    """Return the fields of messages, concatenated; empty if some are not plain values."""
    if any(message.__pydantic_extra__ for message in messages):
        return b""
    try:
        return marshal.dumps([message.__dict__ for message in messages], 2)[_LIST_HEAD_BYTES:]
    except ValueError:
        return b""


class SeenMessages:
    """Recently seen messages: digests by fields, and fields by digest."""

    def __init__(self) -> None:
        self._digests: dict[tuple[type, bytes], str] = {}
        self._fields: dict[str, Fields] = {}
        self._lists: dict[object, tuple[list[type], bytes, list[str]]] = {}
        self._lists_bytes = 0

    def digests(self, place: object, messages: Sequence[BaseMessage], make: Callable[[BaseMessage], str]) -> list[str]:
        """Return the digests of a list of messages; if it extends the last one seen at `place`, only new ones are made.

        Whether it does is decided by comparing the fields of all messages, in a third of the time that their digests
        take.
        """
        kinds, before, known = self._lists.get(place, _NO_LIST)
        packed, own = _fields_of(messages), [*map(type, messages)]
        if not (packed.startswith(before) and own[: len(known)] == kinds):
            known = []
        found = known + [self.digest(message, make) for message in messages[len(known) :]]
        if packed:
            self._lists_bytes += len(packed) - len(before)
            if self._lists_bytes > _LISTS_BYTES_MAX:
                self._lists, self._lists_bytes = {}, len(packed)
            self._lists[place] = own, packed, found
        return found

    def digest(self, message: BaseMessage, make: Callable[[BaseMessage], str]) -> str:
        """Return the digest of a message, computed only if no equal message was seen."""
        try:
            plain: Any = message.__dict__, message.__pydantic_extra__
            seen = type(message), marshal.dumps(plain, 2)
        except ValueError:  # It contains something that is not a plain value.
            return make(message)
        digest = self._digests.get(seen)
        if digest is None:
            digest = make(message)
            if len(seen[1]) <= _SEEN_BYTES_MAX:
                if len(self._digests) >= _SEEN_COUNT_MAX:
                    self._digests = {}
                self._digests[seen] = digest
        return digest

    def fields(self, digest: str) -> Fields | None:
        """Return the fields of the message with a digest, or ``None`` if it was not seen."""
        return self._fields.get(digest)

    def add(self, digest: str, message: object) -> Fields | None:
        """Cache a message that was just loaded; return its fields, or ``None`` if they are not plain values."""
        if not isinstance(message, BaseMessage):  # Of a class that the serializer does not load.
            return None
        try:
            plain: Any = message.__dict__, message.__pydantic_extra__, message.__pydantic_fields_set__
            fields = Fields(type(message), marshal.dumps(plain, 2))
        except ValueError:
            return None
        if len(fields.packed) > _SEEN_BYTES_MAX or message.__pydantic_private__ is not None:
            return None
        if len(self._fields) >= _SEEN_COUNT_MAX:
            self._fields = {}
        self._fields[digest] = fields
        return fields


def are_messages(value: object) -> TypeGuard[list[BaseMessage]]:
    """Return whether a value is a list of messages."""
    if type(value) is not list or not value:
        return False
    kinds = set(map(type, cast("list[object]", value)))
    return all(issubclass(kind, BaseMessage) and not issubclass(kind, RemoveMessage) for kind in kinds)


def show(chat: Conversation, before: Sequence[str], after: Sequence[str], find: Find) -> dict[str, Message]:
    """Change a window from the messages of ``before`` to those of ``after``, both digests; return the new messages.

    A message that keeps its place among the others is left alone, and an edited message keeps its place; a message that
    a budget evicted does not come back.
    """
    stored: dict[str, Message] = {}
    kept: Sequence[str] = list(before)
    if kept != after[: len(kept)]:
        kept = _edit_window(chat, before, after, find, stored)
    for digest in after[len(kept) :]:
        message = find(digest)
        if message is not None:
            role = next((role for kind, role in _ROLES if isinstance(message, kind)), "assistant")
            stored[digest] = _write_message(partial(chat.append, role), digest, message)
    return stored


def _edit_window(
    chat: Conversation, before: Sequence[str], after: Sequence[str], find: Find, stored: dict[str, Message]
) -> Sequence[str]:
    """Edit messages and remove misplaced ones from the window; return the kept digests, a prefix of ``after``."""
    there = _window_ids(chat, before)
    earlier = set(before)
    kept: list[str | None] = []  # The ids of messages in the window; None for a message that was evicted.
    gone: list[str | None] = []
    for place, digest in enumerate(before):
        wanted = after[len(kept)] if len(kept) < len(after) else ""
        message_id = there.get(place)
        if digest != wanted:
            message = find(wanted) if wanted and wanted not in earlier else None
            if message is None or not _is_edit(find(digest), message):
                gone.append(message_id)
                continue
            if message_id is not None:
                stored[wanted] = _write_message(partial(chat.replace, message_id), wanted, message)
        kept.append(message_id)
    live = shown = {message.id for message in chat.window()}
    while True:
        for message_id in gone:
            if message_id in live:
                chat.remove(message_id)
        # A result leaves with its call, and a call with its results: those to be kept are stored again.
        live = {message.id for message in chat.window()}
        lost = next((place for place, each in enumerate(kept) if each in shown and each not in live), None)
        if lost is None:
            return after[: len(kept)]
        kept, gone = kept[:lost], kept[lost:]


def _is_edit(old: BaseMessage | None, new: BaseMessage) -> bool:
    """Return whether a message is an edit of another: the same message with other content."""
    return (
        (old is not None and old.id is not None)
        and (type(old), old.id) == (type(new), new.id)
        and getattr(old, "tool_call_id", None) == getattr(new, "tool_call_id", None)
    )


def _window_ids(chat: Conversation, digests: Sequence[str]) -> dict[int, str]:
    """Return the ids of the messages in a window, keyed by their place in a list of digests.

    Equal messages are told apart by the order, from the end, because a budget evicts from the beginning.
    """
    places: dict[str, list[int]] = {}
    for place, digest in enumerate(digests):
        places.setdefault(digest, []).append(place)
    ids: dict[int, str] = {}
    end = len(digests)
    for message in reversed(chat.window()):
        equal = places.get((message.metadata or {}).get(_MARK, ""))
        if equal:
            at = bisect_left(equal, end) - 1  # -1, the last one, if the window has another order.
            end = equal[at] if at >= 0 else end
            ids[equal.pop(at)] = message.id
    return ids


def _write_message(verb: Callable[..., Message], digest: str, message: BaseMessage) -> Message:
    """Append a message, or put it in the place of another."""
    fields: dict[str, Any] = {"metadata": {"id": message.id, _MARK: digest}, "name": message.name or None}
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
        calls = {call["id"] for call in fields.get("tool_calls", ())}
        parts = [{"type": "text", "text": part} if isinstance(part, str) else _block(part, calls) for part in content]
        try:
            return verb(content=[part for part in parts if part is not None] or "", **fields)
        except InvalidInput:  # Provider-specific blocks that contain bytes or other objects.
            content = str(message.text)
    return verb(content=content, **fields)


_MEDIA_TYPES: Final = {
    "image": "image/png",
    "audio": "audio/wav",
    "video": "video/mp4",
    "file": "application/pdf",
    "text-plain": "text/plain",
}
"""LangChain's standard blocks of media, and the media type of one that names none."""


def _block(part: dict[str, Any], calls: set[str]) -> dict[str, Any] | None:
    """Return a block of a message, LangChain's own as others know them; `None` for one that says nothing of its own.

    The latter are calls that are also among the message's calls, and the results of tools that a provider runs.
    """
    match part:
        case {"type": "tool_use" | "tool_call", "id": str(call)} if call in calls:
            return None
        case {"type": "server_tool_result" | "server_tool_call_chunk" | "tool_call_chunk"}:
            return None
        case {"type": "server_tool_call", "name": name}:
            return label(name)
        case {"type": "text-plain", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": str(kind), "url": str(url)} if kind in _MEDIA_TYPES:
            return media_block(url, part.get("mime_type") or _MEDIA_TYPES[kind])
        case {"type": str(kind), "base64": str(data)} | {"type": str(kind), "data": str(data)} if kind in _MEDIA_TYPES:
            return data_block(data, part.get("mime_type") or _MEDIA_TYPES[kind])
        case _:
            return readable_block(part)


def drop_erased(messages: Sequence[BaseMessage | None]) -> list[BaseMessage]:
    """Return messages without the erased ones, given as ``None``, in a form that a model accepts.

    The results of an erased tool call are left out too; an erased result is empty.
    """
    present = [each for each in messages if each is not None]
    if len(present) == len(messages):
        return present
    calls = {call["id"] for each in messages if isinstance(each, AIMessage) for call in each.tool_calls}
    answered = {each.tool_call_id for each in messages if isinstance(each, ToolMessage)}
    accepted: list[BaseMessage] = []
    missing: list[str] = []
    for each in messages:
        if each is None:
            if missing:
                accepted.append(ToolMessage("", tool_call_id=missing.pop(0)))
        elif not isinstance(each, ToolMessage) or each.tool_call_id in calls:
            accepted.append(each)
            if isinstance(each, AIMessage):
                missing = [call["id"] or "" for call in each.tool_calls if call["id"] not in answered]
    return accepted
