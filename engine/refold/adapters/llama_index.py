"""A LlamaIndex chat store: messages by status in a table, and the active ones as windows of conversations."""

# Type checking runs without LlamaIndex installed: only its names are unknown there.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false, reportUnknownVariableType=false

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar

from refold import Conversation, Memory, Message, Receipt
from refold.adapters.erasure import erase
from refold.adapters.extras import import_extra
from refold.adapters.keys import part, text
from refold.adapters.windows import call_ids, opening
from refold.memory import TableItem

with import_extra("llama-index"):
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

T = TypeVar("T")

_ACTOR: Final = "llama-index"
_NUMBER: Final = "number"
"""The metadata key for the number of a message in its store."""

_FRAME: Final = "frame"
_MESSAGE: Final = "message"
"""The two items of a message: what remains once its texts are erased, and the whole message."""

_ERASED: Final = "(erased)"
_STATUSES: Final = (
    MessageStatus.ACTIVE,
    MessageStatus.ARCHIVED,
)  # A message only ever moves from the first to the second.
_ROLES: Final = frozenset(("system", "developer", "user", "assistant", "function", "tool"))
_ANSWERS: Final = frozenset(("function", "tool"))


class _StoredMessage(NamedTuple):
    """A stored message in LlamaIndex's JSON, and what remains of it once its texts are erased."""

    number: str
    frame: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    source: Message | TableItem | None = None
    """What the message is a copy of: a message of the conversation, or its item with another status."""

    def chat_message(self) -> ChatMessage:
        return ChatMessage.model_validate(self.message or self.frame)


class RefoldChatStore(AsyncDBChatStore):
    """LlamaIndex's ``AsyncDBChatStore`` in a memory: pass it to ``Memory.from_defaults(chat_store=...)``.

    The active messages of a key are the window of the conversation ``NAME/KEY``, so that ``why``, ``search``, budgets,
    ``erase`` and ``refold web`` work on them. Archived and deleted messages have left it, and an answer leaves together
    with its tool call. All of them stay in ``chat.history()``. The table ``name`` holds the active and archived
    messages. Each call is one commit. Erasing a message of the conversation erases the one of the store; it comes back
    as ``(erased)``, with its tool calls. ``erase`` erases a whole key.

    >>> import asyncio
    >>> from llama_index.core.llms import ChatMessage
    >>> memory = Memory()
    >>> store = RefoldChatStore(memory)
    >>> asyncio.run(store.add_message("trip", ChatMessage("Hello!")))
    >>> memory.conversation("llama-index/trip").window()[0].content
    'Hello!'
    """

    name: str = "llama-index"
    _memory: Memory = PrivateAttr()

    def __init__(self, memory: Memory, *, name: str = "llama-index") -> None:
        super().__init__(name=name)
        self._memory = memory

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex knows the class."""
        return "RefoldChatStore"

    # Reading.

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Return the messages of a key with the status, or any status, oldest first, skipping the first ``offset``."""
        table, found = self._memory.aio.table(self.name), dict[str, _StoredMessage]()
        for each in _statuses(status):
            found |= {held.number: held for held in _parse_messages(await table.scan((each.value, part(key))))}
        begin = offset or 0
        numbers = sorted(found)[begin : None if limit is None else begin + limit]
        return [found[number].chat_message() for number in numbers]

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        """Return the number of messages of a key with the status, or with any status."""
        table = self._memory.aio.table(self.name)
        return len({item[2] for each in _statuses(status) for item in await table.keys((each.value, part(key)))})

    async def get_keys(self) -> list[str]:
        """Return the keys that have messages, sorted."""
        return sorted({text(item[1]) for item in await self._memory.aio.table(self.name).keys()})

    # Writing.

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE) -> None:
        """Add a message after the others of a key."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Add messages after the others of a key, all or none."""
        await self._write(lambda: self._add(key, messages, status))

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Replace all messages of a key, whatever their status."""

        def change() -> None:
            for each in _STATUSES:
                self._remove(key, each, self._scan(key, each))
            self._add(key, messages, status)

        await self._write(change)

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete a message by its index among all messages of a key; return it, or ``None`` if there is none."""

        def change() -> ChatMessage | None:
            placed = sorted((held.number, each, held) for each in _STATUSES for held in self._scan(key, each))
            if not 0 <= idx < len(placed):
                return None
            _, status, held = placed[idx]
            self._remove(key, status, [held])
            return held.chat_message()

        return await self._write(change)

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Delete the messages of a key with the status, or with any status."""

        def change() -> None:
            for each in _statuses(status):
                self._remove(key, each, self._scan(key, each))

        await self._write(change)

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Delete the ``n`` oldest active messages of a key, and return them."""

        def change() -> list[ChatMessage]:
            oldest = self._scan(key, MessageStatus.ACTIVE)[: max(n, 0)]
            self._remove(key, MessageStatus.ACTIVE, oldest)
            return [held.chat_message() for held in oldest]

        return await self._write(change)

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the ``n`` oldest active messages of a key, and return them."""

        def change() -> list[ChatMessage]:
            oldest = self._scan(key, MessageStatus.ACTIVE)[: max(n, 0)]
            self._remove(key, MessageStatus.ACTIVE, oldest)
            for held in oldest:
                self._put(key, MessageStatus.ARCHIVED, held)
            return [held.chat_message() for held in oldest]

        return await self._write(change)

    async def erase(self, key: str, *, forks: str = "refuse") -> list[Receipt]:
        """Erase the bytes of all messages of a key, deleted or not, and of its conversation with its name.

        ``forks`` is that of ``chat.erase``.
        """
        chats, keys = [self._conversation_id(key)], [(status.value, part(key)) for status in _STATUSES]
        return await asyncio.to_thread(
            erase, self._memory, _ACTOR, chats=chats, forks=forks, table=self.name, keys=keys
        )

    async def _write(self, change: Callable[[], T]) -> T:
        """Apply a change in one commit, retrying it if a concurrent write changed what it read; return its result."""

        async def run() -> T:
            return change()

        with self._memory.acting(_ACTOR):
            return await self._memory.aio.transact(run)

    # Within a batch.

    def _scan(self, key: str, status: MessageStatus) -> list[_StoredMessage]:
        return _parse_messages(self._memory.table(self.name).scan((status.value, part(key))))

    def _put(self, key: str, status: MessageStatus, held: _StoredMessage) -> None:
        table, place = self._memory.table(self.name), (status.value, part(key), held.number)
        if held.frame is not None:
            table.put((*place, _FRAME), held.frame)
        if held.message is not None:
            table.put((*place, _MESSAGE), held.message, sources=[] if held.source is None else [held.source])

    def _remove(self, key: str, status: MessageStatus, messages: Sequence[_StoredMessage]) -> None:
        """Remove messages from those with the status, and from the window."""
        table, numbers = self._memory.table(self.name), {held.number for held in messages}
        for number in numbers:
            table.delete_prefix((status.value, part(key), number))
        if status is MessageStatus.ACTIVE and numbers:
            chat = self._chat(key)
            for message in reversed(chat.window()):
                if (message.metadata or {}).get(_NUMBER) in numbers:
                    chat.remove(message)

    def _add(self, key: str, messages: Iterable[ChatMessage], status: MessageStatus) -> None:
        table, chat = self._memory.table(self.name), self._chat(key)
        last = [table.keys((each.value, part(key)), reverse=True, limit=1) for each in _STATUSES]
        highest = max((int(keys[0][2]) for keys in last if keys), default=0)
        known = call_ids(chat.window())
        for number, message in enumerate(messages, highest + 1):
            dumped: dict[str, Any] = message.model_dump(mode="json")
            fields, own = _fields(dumped, known if status is MessageStatus.ACTIVE else None), f"{number:012}"
            shown = chat.append(**fields, metadata={_NUMBER: own})
            self._put(key, status, _StoredMessage(own, _frame(dumped), dumped, shown))
            if status is MessageStatus.ACTIVE:
                known |= call_ids([shown])
            else:
                chat.remove(shown)

    def _conversation_id(self, key: str) -> str:
        return f"{self.name}/{key}"

    def _chat(self, key: str) -> Conversation:
        conversation_id = self._conversation_id(key)
        return self._memory.conversation(conversation_id, **opening(self._memory, conversation_id))


def _statuses(status: MessageStatus | None) -> Sequence[MessageStatus]:
    return _STATUSES if status is None else (status,)


def _parse_messages(items: Iterable[TableItem]) -> list[_StoredMessage]:
    """Return the messages of the items of one status, in order."""
    found: list[_StoredMessage] = []
    for number, parts in groupby(items, key=lambda item: item.key[2]):
        own = {item.key[-1]: item for item in parts}
        values = {name: item.value for name, item in own.items()}
        found.append(_StoredMessage(number, **values, source=own.get(_MESSAGE)))
    return found


def _frame(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without its texts and call arguments, so that a model still accepts what follows it."""
    extra = message["additional_kwargs"]
    kept = {"tool_call_id": extra["tool_call_id"]} if "tool_call_id" in extra else {}
    calls = [{**block, "tool_kwargs": {}} for block in message["blocks"] if block["block_type"] == "tool_call"]
    if not calls and (named := _calls(message)):
        kept["tool_calls"] = [{**call, "function": {**call["function"], "arguments": "{}"}} for call in named]
    return {
        "role": message["role"],
        "additional_kwargs": kept,
        "blocks": [{"block_type": "text", "text": _ERASED}, *calls],
    }


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls of a message, in its blocks or, as in earlier versions, next to them."""
    blocks = [block for block in message["blocks"] if block["block_type"] == "tool_call"]
    return [
        {"id": block["tool_call_id"] or "", "type": "function", "function": _function(block)} for block in blocks
    ] or [call for call in message["additional_kwargs"].get("tool_calls") or () if "function" in call]


def _function(block: dict[str, Any]) -> dict[str, Any]:
    arguments = block["tool_kwargs"]
    return {
        "name": block["tool_name"],
        "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
    }


def _fields(message: dict[str, Any], known: set[str] | None) -> dict[str, Any]:
    """Return the fields of the message that shows a stored message.

    ``known`` contains the ids of the calls in the window: a call is shown as one only if its id is new, and an answer
    only if its id is known.
    """
    role = message["role"] if message["role"] in _ROLES else "assistant"
    shown = [block for block in message["blocks"] if block["block_type"] != "tool_call"]
    lines = [block["text"] if block["block_type"] == "text" else f"({block['block_type']})" for block in shown]
    fields: dict[str, Any] = {"role": role, "content": "\n".join(lines) or None}
    if known is None:
        return fields
    calls, answered = _calls(message), message["additional_kwargs"].get("tool_call_id")
    if role == "assistant" and calls and known.isdisjoint(call["id"] for call in calls):
        fields["tool_calls"] = calls
    if role in _ANSWERS and answered in known:
        fields["tool_call_id"] = answered
    return fields
