"""A pydantic-ai conversation store: entries and records in a table, messages in conversations of the memory."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, cast

from refold import Conversation, Memory, Message, Receipt
from refold.adapters.erasure import erase
from refold.adapters.extras import import_extra
from refold.adapters.keys import part
from refold.adapters.media import data_block, label, media_block
from refold.memory import Table, TableItem

with import_extra("pydantic-ai"):
    from pydantic import TypeAdapter
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )

_ACTOR: Final = "pydantic-ai"
_ENTRY: Final = "entry"
"""The metadata key that names the entry of a message."""

_LINK: Final = "link"
_MESSAGE: Final = "message"
"""The two items of an entry: its link to the previous entry, which survives an erasure of its text, and its message."""

_WINDOW_HEAD: Final = "refold_window_head"
"""The key of a stored record for the head of the chain that the window shows, which a bounded window may not hold."""

_ERASED: Final = "(erased)"

_ENTRIES: Final = TypeAdapter(ConversationEntry)
_RECORDS: Final = TypeAdapter(ConversationRecord)


class RefoldConversationStore(ConversationStore):
    """pydantic-ai's ``ConversationStore`` in a memory: load, run and save as with the built-in store.

    Each message is an entry of the table ``name``. The current messages of a conversation are also the window of the
    conversation ``NAME/CONVERSATION_ID`` of the memory, part by part, so that ``why``, ``search``, budgets, ``erase``
    and ``refold web`` work on them; ``project_messages=False`` turns that off. A save is one commit. Erasing a message
    erases its entry, which comes back as ``(erased)``, and the messages that show it elsewhere; ``erase`` erases a
    whole conversation.

    >>> import asyncio
    >>> from pydantic_ai.conversation import Conversation
    >>> from pydantic_ai.messages import ModelRequest, UserPromptPart
    >>> memory = Memory()
    >>> store = RefoldConversationStore(memory)
    >>> trip = Conversation(conversation_id="trip", messages=[ModelRequest(parts=[UserPromptPart("Hello!")])])
    >>> _ = asyncio.run(store.save(trip))
    >>> memory.conversation("pydantic-ai/trip").window()[0].content
    'Hello!'
    """

    def __init__(self, memory: Memory, *, name: str = "pydantic-ai", project_messages: bool = True) -> None:
        self.memory, self.name, self.project_messages = memory, name, project_messages
        self._table = memory.table(name)
        self._async_table = memory.aio.table(name)

    # Reading.

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or `None` if there is none."""
        item = await self._async_table.item(_record_key(conversation_id))
        return None if item is None else _record(item)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records, the last saved first; with a `scope`, only records with that scope."""
        records = map(_record, await self._async_table.scan(("record",)))
        matching = [record for record in records if scope is None or record.scope == scope]
        return sorted(matching, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry by its id; raises `KeyError` if there is none."""
        parts = await self._async_table.scan(_entry_key(entry_id))
        if not parts:
            raise KeyError(entry_id)
        return _entry(entry_id, parts)

    # Writing.

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries atomically; see the base class for what counts as a conflict."""
        new = {entry.id: entry for entry in new_entries}
        with self.memory.acting(_ACTOR):
            await self.memory.aio.transact(partial(self._write, record, new, expected_revision))

    async def _write(
        self, record: ConversationRecord, new: dict[str, ConversationEntry], expected_revision: str | None
    ) -> None:
        key, head = _record_key(record.conversation_id), record.head_id
        item = self._table.item(key)
        if (None if item is None else _record(item).revision) != expected_revision:
            raise ConversationConflict(record.conversation_id)
        if head is not None and head not in new and self._table.item((*_entry_key(head), _LINK)) is None:
            raise ConversationConflict(record.conversation_id)
        shown = None if item is None else item.value.get(_WINDOW_HEAD)
        messages: dict[str, list[Message]] = {}
        if self.project_messages:
            messages = self._show(record, new, shown)
            shown = head
        for entry in new.values():
            message = _ENTRIES.dump_python(entry, mode="json")["message"]
            self._table.put((*_entry_key(entry.id), _LINK), [entry.parent_id, message["kind"]])
            self._table.put((*_entry_key(entry.id), _MESSAGE), message, sources=messages.get(entry.id, ()))
        # An earlier entry that is shown now is put again, because it has to cite the messages that show it.
        for entry_id in messages.keys() - new.keys():
            place = (*_entry_key(entry_id), _MESSAGE)
            for earlier in self._table.get_many([place]):
                self._table.put(place, earlier.value, sources=[earlier, *messages[entry_id]])
        self._table.put(key, {**_RECORDS.dump_python(record, mode="json"), _WINDOW_HEAD: shown})

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation, with the entries that no other conversation reaches."""
        with self.memory.acting(_ACTOR):
            await self.memory.aio.transact(partial(self._delete, conversation_id, expected_revision))

    async def _delete(self, conversation_id: str, expected_revision: str) -> None:
        items = {item.key: item for item in self._table.scan(("record",))}
        stored = items.pop(_record_key(conversation_id), None)
        if stored is None or _record(stored).revision != expected_revision:
            raise ConversationConflict(conversation_id)
        keys = self._table.keys(("entry",))
        reached = set(map(_entry_key, _reached_entries(self._table, items.values())))
        self._table.delete(_record_key(conversation_id))
        for key in keys:
            if key[:2] not in reached:
                self._table.delete(key)
        if self.project_messages:
            self._chat(conversation_id).clear_window()

    async def erase(self, conversation_id: str, *, forks: str = "refuse") -> list[Receipt]:
        """Erase the bytes of a conversation, deleted or not: its record, its entries, and what shows them.

        Other conversations that share an entry have it as ``(erased)``. ``forks`` is that of ``chat.erase``.
        """
        return await asyncio.to_thread(self._erase, conversation_id, forks)

    def _erase(self, conversation_id: str, forks: str) -> list[Receipt]:
        own, chat = _record_key(conversation_id), self._conversation_id(conversation_id)
        others = [item for item in self._table.scan(("record",)) if item.key != own]
        kept, entries = _reached_entries(self._table, others), set[str]()
        for record in self._table.history(own)[-1:]:  # Deleted with its entries, which are read as of then.
            entries = _reached_entries(self.memory.at(record.seq).table(self.name), [record])
        shown = [message.metadata or {} for message in self.memory.conversation(chat).history()]
        entries |= {metadata[_ENTRY] for metadata in shown if _ENTRY in metadata}
        keys = [_entry_key(each) if each not in kept else (*_entry_key(each), _MESSAGE) for each in entries]
        return erase(self.memory, _ACTOR, chats=[chat], forks=forks, table=self.name, keys=[own, *keys])

    # The messages shown by a conversation of the memory.

    def _conversation_id(self, conversation_id: str) -> str:
        return f"{self.name}/{conversation_id}"

    def _chat(self, conversation_id: str) -> Conversation:
        return self.memory.conversation(self._conversation_id(conversation_id))

    def _show(
        self, record: ConversationRecord, new: dict[str, ConversationEntry], shown: str | None
    ) -> dict[str, list[Message]]:
        """Make the window show the chain that ends with the head: remove what left the chain, append what is new.

        Return the new messages by the ids of their entries.

        New is what is behind the last entry that this chain shares with the one that ends with ``shown``: a message
        that the window's budget evicted was shown before.
        """
        chat = self._chat(record.conversation_id)
        missing: list[ConversationEntry] = []
        tip = record.head_id
        while tip is not None and tip in new:
            missing.append(new[tip])
            tip = missing[-1].parent_id
        before = [shown] if tip == shown else list(_chain(self._table, shown))
        while tip is not None and tip not in before:
            missing.append(_entry(tip, self._table.scan(_entry_key(tip))))
            tip = missing[-1].parent_id
        window = chat.window()
        held = {(message.metadata or {}).get(_ENTRY): place for place, message in enumerate(window)}
        if tip is not None and tip not in held:  # It was evicted: what is left of its chain is no part of what is gone.
            gone = {None, *before[: before.index(tip)]}
            tip = next((entry for entry in reversed(held) if entry not in gone), None)
        for message in reversed(window[0 if tip is None else held[tip] + 1 :]):
            chat.remove(message)
        messages: dict[str, list[Message]] = {}
        for entry in reversed(missing):
            sources = [] if entry.id in new else self._table.get_many([(*_entry_key(entry.id), _MESSAGE)])
            options: dict[str, Any] = {"metadata": {_ENTRY: entry.id}, "sources": sources}
            messages[entry.id] = [chat.append(**fields, **options) for fields in _messages(entry)]
        return messages


def _chain(table: Table, tip: str | None) -> Iterator[str]:
    """Yield the ids of a chain of entries, from its end to its beginning."""
    while tip is not None:
        yield tip
        tip = table.get((*_entry_key(tip), _LINK))[0]


def _reached_entries(table: Table, records: Iterable[TableItem]) -> set[str]:
    """Return the ids of the entries in the chains of records."""
    reached = set[str]()
    for item in records:
        record = _record(item)
        for tip in (record.head_id, *record.branches, item.value.get(_WINDOW_HEAD)):
            for entry_id in _chain(table, tip):
                if entry_id in reached:
                    break
                reached.add(entry_id)
    return reached


def _record_key(conversation_id: str) -> tuple[str, str]:
    return "record", part(conversation_id)


def _entry_key(entry_id: str) -> tuple[str, str]:
    return "entry", part(entry_id)


def _record(item: TableItem) -> ConversationRecord:
    return _RECORDS.validate_python(item.value)


def _entry(entry_id: str, items: Sequence[TableItem]) -> ConversationEntry:
    """Return the entry made of its link and its message; an erased message is replaced by a note."""
    values = {item.key[-1]: item.value for item in items}
    parent_id, kind = values[_LINK]
    part_kind = "text" if kind == "response" else "user-prompt"
    message = values.get(_MESSAGE, {"kind": kind, "parts": [{"part_kind": part_kind, "content": _ERASED}]})
    return _ENTRIES.validate_python({"id": entry_id, "parent_id": parent_id, "message": message})


_ROLES: Final = {
    "system-prompt": "system",
    "instruction-delta": "system",
    "user-prompt": "user",
    "tool-return": "tool",
    "retry-prompt": "user",
}


def _messages(entry: ConversationEntry) -> Iterator[dict[str, Any]]:
    """Yield the fields of the messages that show an entry: one per part, or one for a whole response with its calls.

    A part without content, such as a change of settings, has no message; what a provider's own tool does is only named.
    """
    message: dict[str, Any] = _ENTRIES.dump_python(entry, mode="json")["message"]
    parts: list[dict[str, Any]] = message["parts"]
    if message["kind"] == "response":
        calls = [
            {
                "id": part["tool_call_id"],
                "type": "function",
                "function": {"name": part["tool_name"], "arguments": _json_text(part["args"] or {})},
            }
            for part in parts
            if part["part_kind"] == "tool-call"
        ]
        blocks = [block for part in parts for block in _response_blocks(part)]
        is_text = all(block.get("type") == "text" for block in blocks)
        content = "\n".join(block["text"] for block in blocks) if is_text else blocks
        yield {"role": "assistant", "content": content or None, "tool_calls": calls or None}
        return
    for each in parts:
        value = each.get("transcript" if each["part_kind"] == "speech" else "content")
        if each.get("tool_name"):
            yield {"role": "tool", "content": _result(value), "tool_call_id": each["tool_call_id"]}
        elif value is not None:
            yield {"role": _ROLES.get(each["part_kind"], "user"), "content": _prompt(value)}


def _response_blocks(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the block for a part of a response; none for a thought, a call, or the result of a provider's tool."""
    kind = part["part_kind"]
    if kind == "builtin-tool-call":
        yield label(part["tool_name"])
    elif kind == "file":
        yield _block(part["content"])
    elif kind in ("text", "compaction", "speech"):
        text = part["transcript" if kind == "speech" else "content"]
        yield label(kind) if text is None else {"type": "text", "text": text}
    elif kind not in ("thinking", "tool-call", "builtin-tool-return"):
        yield label(kind)


_URLS: Final = ("image-url", "audio-url", "document-url", "video-url")


def _as_list(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [content]  # pyright: ignore[reportUnknownVariableType]


def _prompt(content: Any) -> "str | list[dict[str, Any]]":
    """Return what a prompt says: a text, or blocks for a list of texts and media."""
    if isinstance(content, str):
        return content
    items = _as_list(content)
    return [_block(each) for each in items if not _is_kind(each, "cache-point")]


def _result(content: Any) -> "str | list[dict[str, Any]]":
    """Return what a tool returned: a text, other data as JSON, or blocks if there are media among it."""
    items = _as_list(content)
    return [_block(each) for each in items] if any(map(_is_media, items)) else _json_text(content)


def _is_kind(value: Any, *kinds: str) -> bool:
    return isinstance(value, dict) and cast("dict[str, Any]", value).get("kind") in kinds


def _is_media(value: Any) -> bool:
    return _is_kind(value, "binary", "uploaded-file", *_URLS) and "media_type" in value


def _block(value: Any) -> dict[str, Any]:
    """Return one item of a prompt or a result as a block."""
    if _is_kind(value, "text-content"):
        return {"type": "text", "text": value["content"]}
    if not _is_media(value):
        return {"type": "text", "text": _json_text(value)}
    if "data" in value:
        return data_block(value["data"], value["media_type"])
    return media_block(value["url"], value["media_type"]) if "url" in value else label(value["kind"])


def _json_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
