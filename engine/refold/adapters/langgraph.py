"""A checkpointer of LangGraph: threads are tables, and their messages a conversation."""

import asyncio
import marshal
from collections.abc import AsyncIterator, Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeGuard, cast

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from refold import Conversation, Memory, Message, Snapshot, WrongVersion
from refold.adapters.keys import part
from refold.adapters.langchain_messages import are_messages, show, without_gaps
from refold.memory import Table, TableItem

Key: TypeAlias = str | tuple[str, ...]
Names: TypeAlias = list[str]
Values: TypeAlias = list[Any]
Writes: TypeAlias = list[PendingWrite]
Messages: TypeAlias = list[BaseMessage | None]

_ACTOR: Final = "langgraph"
_CHANNEL: Final = "messages"
_NAME_BYTES_MAX: Final = 400  # What a name of a table holds,
_PART_BYTES_MAX: Final = 600  # and a part of a key: five of them are one.
_DIGEST_BYTES: Final = 16
_LIST_COUNT: Final = 64  # Digests of one list: all checkpoints share those that are full.
_KNOWN_COUNT_MAX: Final = 8_192  # Messages whose digests are remembered, each of so many bytes at most.
_KNOWN_BYTES_MAX: Final = 4_096
_PAGE_COUNT: Final = 500

# The kinds of items: the first parts of their keys, and what the others are.
_CHECKPOINT: Final = "c"  # Namespace, id.
_WRITES: Final = "w"  # Namespace, id, task, and the slot: a special channel has one of its own.
_VALUE: Final = "v"  # Namespace, channel, version.
_LIST: Final = "l"  # Digest of the digests of messages.
_MESSAGE: Final = "m"  # Digest.
_THREAD: Final = "t"  # None. The id of the thread, where the name of its table is not made of it alone.
_CUT: Final = "\x01-"  # What no part holds that is a whole text.
_REGULAR: Final = "r"  # The slot of the writes of all other channels.


class _Move(NamedTuple):
    """How a conversation comes to show the messages of a checkpoint, from the version where it is."""

    version: int
    base: Key | None
    """The key of the checkpoint whose messages it shows then."""
    back: Snapshot | None
    """Where it goes back to first."""
    before: Names
    after: Names
    """The digests of what it shows then, and of what it has to show."""


class _Step(NamedTuple):
    """What a checkpoint adds to its thread."""

    config: RunnableConfig
    thread: str
    key: Key
    record: dict[str, Any]
    values: dict[Key, Any]
    lists: Values
    """The digests that values consist of."""
    messages: dict[str, BaseMessage]
    move: _Move | None
    """``None`` for one that is not shown."""


class RefoldSaver(BaseCheckpointSaver[str]):
    """The checkpointer of LangGraph, in a memory: `builder.compile(checkpointer=RefoldSaver(memory))`.

    A thread is the table `langgraph/THREAD_ID`, which keeps each version of a channel and each message once, however
    many checkpoints hold it. What the channel `messages` of the outer graph holds is also the window of the
    conversation `langgraph/THREAD_ID`, so that policies, searches, `why`, erasure and `refold web` work on it; a run
    that goes on from an earlier checkpoint takes the conversation back there. `project_messages` names another channel,
    or is `False`. With a serializer that is not LangGraph's `JsonPlusSerializer`, one that encrypts for example, values
    are kept whole, and no conversation shows them.

    A value has at most 16 MiB; what the memory refuses is raised as its error. What was erased is left out, but for a
    result of a tool, which is empty: no model takes a call without one.

    >>> from langgraph.graph import START, MessagesState, StateGraph
    >>> memory = Memory()
    >>> builder = StateGraph(MessagesState).add_node("answer", lambda _: {"messages": [("ai", "Yes.")]})
    >>> graph = builder.add_edge(START, "answer").compile(checkpointer=RefoldSaver(memory))
    >>> _ = graph.invoke({"messages": [("human", "Anyone there?")]}, {"configurable": {"thread_id": "trip"}})
    >>> [message.content for message in memory.conversation("langgraph/trip").window()]
    ['Anyone there?', 'Yes.']
    """

    def __init__(
        self,
        memory: Memory,
        *,
        prefix: str = "langgraph/",
        serde: SerializerProtocol | None = None,
        project_messages: bool | str = True,
    ) -> None:
        super().__init__(serde=serde)
        self.memory = memory
        self.prefix = prefix
        self._splits = isinstance(self.serde, JsonPlusSerializer)
        channel = _CHANNEL if project_messages is True else project_messages
        self._channel = channel if channel and self._splits else None
        self._known: dict[tuple[type, bytes], str] = {}

    @classmethod
    @contextmanager
    def from_path(cls, path: str | Path, **options: Any) -> Generator[Self]:
        """Open a memory for a block; `options` are those of the saver."""
        with Memory(path) as memory:
            yield cls(memory, **options)

    # Reading.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that `config` names, or the newest one of its thread and namespace."""
        thread, ns = _place(config)
        table = self._table(thread)
        while (item := _find(table, ns, get_checkpoint_id(config))) is not None:
            found = self._tuple(thread, table, item)
            if found is not None:
                return found
        return None

    def holds(self, config: RunnableConfig) -> bool:
        """Return whether the checkpoint that `config` names is there."""
        thread, ns = _place(config)
        return _find(self._table(thread), ns, get_checkpoint_id(config)) is not None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - as LangGraph names it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of a thread, or of all, the newest first."""
        asked = _asked(config)
        ns, only = asked.get("checkpoint_ns"), asked.get("checkpoint_id")
        end = get_checkpoint_id(before) if before else None
        within = (_CHECKPOINT,) if ns is None else (_CHECKPOINT, _bounded(ns))
        found = [
            (key[2], thread, key)
            for thread in ([str(asked["thread_id"])] if "thread_id" in asked else self._threads())
            for key in self._table(thread).keys(within)
            if not (only and key[2] != _bounded(only)) and not (end and key[2] >= _bounded(end))
        ]
        found.sort(reverse=True)
        left = len(found) if limit is None else limit
        for _, thread, key in found:
            if left <= 0:
                return
            table = self._table(thread)
            item = table.item(key)
            if item is None or not self._fits(item, filter or {}):
                continue
            listed = self._tuple(thread, table, item)
            if listed is not None:
                left -= 1
                yield listed

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what the ancestors of a checkpoint wrote to channels, back to the newest that holds the value."""
        thread, ns = _place(config)
        table = self._table(thread)
        found: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
        left = set(channels)
        item = _find(table, ns, get_checkpoint_id(config)) if left else None
        while left and item is not None and (parent := item.value["parent"]):
            item = _find(table, ns, parent)
            if item is None:
                break
            for write in reversed(self._writes(table, item.key)):
                if write[1] in left:
                    found[write[1]]["writes"].append(write)
            seeds = self._values(table, item, self._load(item.value["checkpoint"]), left)
            for channel, value in seeds.items():
                found[channel]["seed"] = value
            left -= set(seeds)
        for entry in found.values():
            entry["writes"].reverse()
        return found

    get_next_version = InMemorySaver.get_next_version

    # Writing.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Write a checkpoint with the values that are new in it, and lead the conversation to its messages."""
        while True:
            step = self._step(config, checkpoint, metadata, new_versions)
            try:
                self._transact(partial(self._put, step))
            except WrongVersion:  # Somebody else moved the conversation since it was looked at.
                continue
            return step.config

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Write what a task wrote to channels; of regular channels what is there already stays."""
        rows = self._rows(config, writes, task_id, task_path)
        self._transact(partial(_put_rows, self._table(_place(config)[0]), rows))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread, and drop its conversation; the log keeps both until they are erased."""
        table, chat = self._table(thread_id), self._chat(thread_id)

        def drop() -> None:
            table.delete_prefix(())
            if self._channel is not None:
                chat.drop()

        self._transact(drop)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, and their writes."""
        wanted = set(run_ids)
        for thread in self._threads() if wanted else ():
            self._drop(
                thread, lambda _, items: [item for item in items if self._metadata(item).get("run_id") not in wanted]
            )

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints of threads but those that their newest ones need, or with `"delete"` all."""
        for thread in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread)
            else:
                self._drop(thread, self._needed)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread in the place of another; the conversation of that goes on from where the source's is now."""
        if source_thread_id == target_thread_id:
            return
        source, target = self._table(source_thread_id), self._table(target_thread_id)
        said, chat = self._chat(source_thread_id), self._chat(target_thread_id)
        now = said.snapshot()

        def copy() -> None:
            target.delete_prefix(())
            for item in source.scan():
                if item.key != _THREAD:
                    mark = {"copied": True} if item.key[0] == _CHECKPOINT else {}
                    target.put(item.key, item.value | mark if mark else item.value, sources=[item.seq])
            self._name_thread(target_thread_id)
            if self._channel is not None and said.version:
                chat.restore(now)

        self._transact(copy)

    # For asyncio: reads on threads; writes travel with those of all tasks of the loop.

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return what `get_tuple` does."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - as LangGraph names it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield what `list` does."""
        listed = self.list(config, filter=filter, before=before, limit=limit)
        while (found := await asyncio.to_thread(next, listed, None)) is not None:
            yield found

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what `get_delta_channel_history` does."""
        return await asyncio.to_thread(self.get_delta_channel_history, config=config, channels=channels)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Do what `put` does."""
        while True:
            step = await asyncio.to_thread(self._step, config, checkpoint, metadata, new_versions)
            try:
                await self._atransact(partial(self._put, step))
            except WrongVersion:
                continue
            return step.config

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Do what `put_writes` does."""
        rows = await asyncio.to_thread(self._rows, config, writes, task_id, task_path)
        await self._atransact(partial(_put_rows, self._table(_place(config)[0]), rows))

    async def adelete_thread(self, thread_id: str) -> None:
        """Do what `delete_thread` does."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Do what `delete_for_runs` does."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Do what `prune` does."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Do what `copy_thread` does."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    # Names.

    def _name(self, thread: object) -> str:
        return self.prefix + _bounded(str(thread), _NAME_BYTES_MAX - len(self.prefix.encode()))

    def _table(self, thread: str) -> Table:
        return self.memory.table(self._name(thread))

    def _chat(self, thread: str) -> Conversation:
        return self.memory.conversation(self._name(thread))

    def _name_thread(self, thread: str) -> None:
        """Keep the id of a thread that the name of its table does not say."""
        table = self._table(thread)
        if table.name != self.prefix + thread and table.get(_THREAD) is None:
            table.put(_THREAD, thread)

    def _threads(self) -> Names:
        """Return the ids of all threads."""
        found: list[str] = []
        after = None
        while page := self.memory.tables(prefix=self.prefix, after=after, limit=_PAGE_COUNT):
            after = page[-1]
            for name in page:
                rest = name.removeprefix(self.prefix)
                thread = rest if part(rest) == rest else self.memory.table(name).get(_THREAD)
                found += [] if thread is None else [thread]
        return found

    # Transactions.

    def _transact(self, function: Callable[[], None]) -> None:
        with self.memory.acting(_ACTOR):
            self.memory.transact(function)

    async def _atransact(self, function: Callable[[], None]) -> None:
        async def write() -> None:
            function()

        with self.memory.acting(_ACTOR):
            await self.memory.aio.transact(write)

    # Values.

    def _dump(self, value: Any) -> Values:
        return [*self.serde.dumps_typed(value)]

    def _load(self, held: Sequence[Any]) -> Any:
        return self.serde.loads_typed((held[0], held[1]))

    def _metadata(self, item: TableItem) -> CheckpointMetadata:
        return cast("CheckpointMetadata", self._load(item.value["metadata"]))

    def _fits(self, item: TableItem, wanted: Mapping[str, Any]) -> bool:
        metadata: Mapping[str, Any] = cast("Mapping[str, Any]", self._metadata(item)) if wanted else {}
        return all(metadata.get(key) == value for key, value in wanted.items())

    def _tuple(self, thread: str, table: Table, item: TableItem) -> CheckpointTuple | None:
        """Return a checkpoint; ``None`` where it was deleted while its values were read."""
        record = item.value
        checkpoint: Checkpoint = self._load(record["checkpoint"])
        checkpoint["channel_values"] = self._values(table, item, checkpoint, checkpoint["channel_versions"])
        ns, parent = record["ns"], record["parent"]
        found = CheckpointTuple(
            _config(thread, ns, checkpoint["id"]),
            checkpoint,
            self._metadata(item),
            _config(thread, ns, parent) if parent else None,
            self._writes(table, item.key),
        )
        return found if table.keys(item.key) else None

    def _values(self, table: Table, item: TableItem, checkpoint: Checkpoint, channels: Iterable[str]) -> dict[str, Any]:
        """Return the values of those channels that have one at a checkpoint."""
        values: dict[str, Any] = {}
        versions = checkpoint["channel_versions"]
        keys = {
            _value_key(item.value["ns"], channel, versions[channel]): channel
            for channel in channels
            if channel in versions
        }
        for found in table.get_many(keys):
            held, channel = found.value, keys[found.key]
            is_list = _is_list(held)
            values[channel] = (
                without_gaps(self._messages(table, _digests(table, held))) if is_list else self._load(held)
            )
        return values

    def _writes(self, table: Table, key: Key) -> Writes:
        rows = [
            (writes_sort_key(path, task, place), channel, held)
            for item in table.scan((_WRITES, *key[1:]))
            for task, path, place, channel, *held in item.value
        ]
        rows.sort(key=lambda row: row[0])
        return [(order[1], channel, self._load(held)) for order, channel, held in rows]

    def _rows(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> dict[Key, Values]:
        """Return the writes of a task by the keys of their slots."""
        _, ns = _place(config)
        rows: dict[Key, Values] = {}
        for number, (channel, value) in enumerate(writes):
            place = WRITES_IDX_MAP.get(channel, number)
            slot = _REGULAR if place >= 0 else str(place)
            key = (_WRITES, _bounded(ns), _bounded(_asked(config)["checkpoint_id"]), _bounded(task_id), slot)
            rows.setdefault(key, []).append([task_id, task_path, place, channel, *self._dump(value)])
        return rows

    # Messages.

    def _digest(self, message: BaseMessage) -> str:
        """Return the digest of what a message is dumped to."""
        try:
            fields: Any = message.__dict__, message.__pydantic_extra__
            seen = type(message), marshal.dumps(fields, 2)
        except ValueError:  # Something in it is no plain value.
            seen = None
        if seen is not None and seen in self._known:
            return self._known[seen]
        kind, data = self._dump(message)
        digest = blake2b(kind.encode() + b"\0" + data, digest_size=_DIGEST_BYTES).hexdigest()
        if seen is not None and len(seen[1]) <= _KNOWN_BYTES_MAX:
            if len(self._known) >= _KNOWN_COUNT_MAX:
                self._known = {}
            self._known[seen] = digest
        return digest

    def _messages(self, table: Table, digests: Sequence[str]) -> Messages:
        """Return the messages of digests, ``None`` for one that was erased."""
        found = table.get_many((_MESSAGE, digest) for digest in dict.fromkeys(digests))
        items: dict[str, Any] = {item.key[1]: item.value for item in found}
        held = [items.get(digest) for digest in digests]
        there = [each for each in held if each is not None]
        if all(kind == "msgpack" for kind, _ in there):
            # Behind a head, what was packed one by one is a list: it is unpacked at once, in a quarter of the time.
            packed = b"\xdd" + len(there).to_bytes(4, "big") + b"".join(data for _, data in there)
            loaded = iter(self._load(("msgpack", packed)))
        else:
            loaded = map(self._load, there)
        return [None if each is None else next(loaded) for each in held]

    def _step(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> _Step:
        """Return what a checkpoint adds to its thread as that is now."""
        thread, ns = _place(config)
        table = self._table(thread)
        given, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        values: dict[Key, Any] = {}
        lists: dict[str, Names] = {}
        messages: dict[str, BaseMessage] = {}
        for channel, version in {**versions, **new_versions}.items():
            key, value = _value_key(ns, channel, version), given.get(channel)
            if channel not in new_versions and (channel not in given or table.keys(key)):
                continue
            if channel not in given:
                values[key] = None
            elif self._splits and are_messages(value):
                lists[channel] = [self._digest(message) for message in value]
                messages |= zip(lists[channel], value, strict=True)
                values[key] = _listed(lists[channel])
            else:
                values[key] = self._dump(value)
        parent = _asked(config).get("checkpoint_id")
        record: dict[str, Any] = {
            "ns": ns,
            "parent": parent,
            "checkpoint": self._dump({key: value for key, value in checkpoint.items() if key != "channel_values"}),
            "metadata": self._dump(get_checkpoint_metadata(config, metadata)),
        }
        move: _Move | None = None
        if self._channel is not None and not ns:
            record["shown"] = str(versions[self._channel]) if self._channel in versions else None
            shown = lists.get(self._channel, [] if self._channel in new_versions else self._shown(table, record))
            move = self._move(self._chat(thread), table, parent, shown)
        place = (_CHECKPOINT, _bounded(ns), _bounded(checkpoint["id"]))
        made = _config(thread, ns, checkpoint["id"])
        return _Step(made, thread, place, record, values, [*lists.values()], messages, move)

    def _move(self, chat: Conversation, table: Table, parent: str | None, after: Names) -> _Move:
        """Return how a conversation comes to show the messages of a new checkpoint."""
        version, newest = chat.version, _find(table, "", None)
        base = _find(table, "", parent) if parent else None
        back: Snapshot | None = None
        # What was copied shows nothing of its own: its conversation begins with the copy.
        if base is None or newest is None or base.seq == newest.seq or "copied" in base.value:
            base = newest
        elif version:
            back = chat.at(base.seq).snapshot()
        before = [] if base is None else self._shown(table, base.value)
        return _Move(version, None if base is None else base.key, back, before, after)

    def _shown(self, table: Table, record: Mapping[str, Any]) -> Names:
        """Return the digests of the messages that a conversation shows at a checkpoint."""
        held = table.get(_value_key("", str(self._channel), record["shown"])) if record.get("shown") else None
        return _digests(table, held) if _is_list(held) else []

    def _put(self, step: _Step) -> None:
        """Write a step within the open batch."""
        table, chat = self._table(step.thread), self._chat(step.thread)
        said: Mapping[str, Message] = {}
        before: Names = []
        if step.move is not None:
            said, before = self._show(chat, table, step.move, step.messages), step.move.before
        there = set(before)  # The checkpoint before holds them, so the table does.
        for digests in step.lists:
            full = len(digests) // _LIST_COUNT * _LIST_COUNT
            for begin in range(0, full, _LIST_COUNT):
                piece = digests[begin : begin + _LIST_COUNT]
                key = (_LIST, _digest_of(piece))
                if piece != before[begin : begin + _LIST_COUNT] and table.get(key) is None:
                    self._keep(table, piece, there, step.messages, said)
                    table.put(key, _packed(piece))
            self._keep(table, digests[full:], there, step.messages, said)
        for place, value in step.values.items():
            if value is None:
                table.delete(place)
            else:
                table.put(place, value)
        table.put(step.key, step.record)
        self._name_thread(step.thread)

    def _show(
        self, chat: Conversation, table: Table, move: _Move, messages: Mapping[str, BaseMessage]
    ) -> Mapping[str, Message]:
        """Lead a conversation to the messages of a checkpoint; return by their digests those that are new there."""
        actual = chat.version
        if actual != move.version or (move.base is not None and table.get(move.base) is None):
            text = f"{chat.id} is at version {actual}, not at {move.version}, or its checkpoint has gone; look again"
            raise WrongVersion(text, expected=move.version, actual=actual)
        if move.back is not None:
            chat.restore(move.back, keep_budget=True)

        def find(digest: str) -> BaseMessage | None:
            return messages[digest] if digest in messages else self._messages(table, [digest])[0]

        return show(chat, move.before, move.after, find)

    def _keep(
        self,
        table: Table,
        digests: Sequence[str],
        there: Container[str],
        messages: Mapping[str, BaseMessage],
        said: Mapping[str, Message],
    ) -> None:
        """Put the messages that the table lacks."""
        for digest in digests:
            if digest not in there and table.get((_MESSAGE, digest)) is None:
                sources = [said[digest]] if digest in said else []
                table.put((_MESSAGE, digest), self._dump(messages[digest]), sources=sources)

    # What goes.

    def _drop(self, thread: str, choose: Callable[[Table, Values], Values]) -> None:
        """Delete all checkpoints but the chosen ones, with their writes, and what nothing refers to any more."""
        table, chat = self._table(thread), self._chat(thread)

        def drop() -> None:
            items = table.scan((_CHECKPOINT,))
            kept = choose(table, items)
            gone = {item.key for item in items} - {item.key for item in kept}
            if not gone:
                return
            before = self._newest_shown(table)
            for key in gone:
                table.delete(key)
                table.delete_prefix((_WRITES, *key[1:]))
            if self._channel is not None:
                self._show(chat, table, _Move(chat.version, None, None, before, self._newest_shown(table)), {})
            self._sweep(table, kept)

        self._transact(drop)

    def _newest_shown(self, table: Table) -> Names:
        newest = _find(table, "", None)
        return [] if newest is None else self._shown(table, newest.value)

    def _sweep(self, table: Table, kept: Iterable[TableItem]) -> None:
        """Delete values that no checkpoint refers to, and the messages of none of the others."""
        used: set[Key] = set()
        for item in kept:
            versions = self._load(item.value["checkpoint"])["channel_versions"]
            used |= {_value_key(item.value["ns"], channel, version) for channel, version in versions.items()}
        for item in table.scan((_VALUE,)):
            if item.key in used and _is_list(held := item.value):
                used |= {(_LIST, digest) for digest in _unpacked(held["lists"])}
                used |= {(_MESSAGE, digest) for digest in _digests(table, held)}
        for kind in (_VALUE, _LIST, _MESSAGE):
            for key in table.keys((kind,)):
                if key not in used:
                    table.delete(key)

    def _needed(self, table: Table, items: Values) -> Values:
        """Return the newest checkpoint of each namespace, with the ancestors that its delta channels are made of."""
        by_key = {item.key: item for item in items}
        kept: dict[Key, Any] = {}
        for newest in {item.key[1]: item for item in items}.values():
            missing = set(self._metadata(newest).get("counters_since_delta_snapshot", ()))
            item: TableItem | None = newest
            while item is not None:
                kept[item.key] = item
                record = item.value
                versions: Mapping[str, Any] = self._load(record["checkpoint"])["channel_versions"] if missing else {}
                missing = {
                    channel
                    for channel in missing
                    if channel not in versions or not table.keys(_value_key(record["ns"], channel, versions[channel]))
                }
                parent = record["parent"]
                item = by_key.get((*newest.key[:2], _bounded(parent))) if missing and parent else None
        return [*kept.values()]


def _bounded(text: str, bytes_max: int = _PART_BYTES_MAX) -> str:
    """Return the part of a key for a text; of one that is too long the beginning and a digest."""
    whole = part(text).encode()
    if len(whole) <= bytes_max:
        return whole.decode()
    digest = blake2b(whole, digest_size=_DIGEST_BYTES).hexdigest()
    return f"{whole[: bytes_max - len(_CUT) - len(digest)].decode(errors='ignore')}{_CUT}{digest}"


def _asked(config: RunnableConfig | None) -> dict[str, Any]:
    return config.get("configurable", {}) if config else {}


def _place(config: RunnableConfig) -> tuple[str, str]:
    """Return thread and namespace."""
    asked = _asked(config)
    return str(asked["thread_id"]), asked.get("checkpoint_ns", "")


def _config(thread: str, ns: str, cid: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": cid}}


def _find(table: Table, ns: str, cid: str | None) -> TableItem | None:
    """Return the item of a checkpoint, or of the newest one."""
    if cid:
        return table.item((_CHECKPOINT, _bounded(ns), _bounded(cid)))
    return next(iter(table.scan((_CHECKPOINT, _bounded(ns)), reverse=True, limit=1)), None)


def _value_key(ns: str, channel: str, version: object) -> Key:
    return _VALUE, _bounded(ns), _bounded(channel), _bounded(str(version))


def _put_rows(table: Table, rows: Mapping[Key, Values]) -> None:
    """Write what a task wrote, within the open batch."""
    for key, new in rows.items():
        if key[-1] != _REGULAR:
            table.put(key, new[-1:])
            continue
        held: list[list[Any]] = table.get(key, [])
        known = {row[2] for row in held}
        more = [row for row in new if row[2] not in known]
        if more:
            table.put(key, held + more)


def _packed(digests: Sequence[str]) -> bytes:
    return bytes.fromhex("".join(digests))


def _unpacked(packed: bytes) -> list[str]:
    return [packed[begin : begin + _DIGEST_BYTES].hex() for begin in range(0, len(packed), _DIGEST_BYTES)]


def _digest_of(digests: Sequence[str]) -> str:
    return blake2b(_packed(digests), digest_size=_DIGEST_BYTES).hexdigest()


def _is_list(held: object) -> TypeGuard[dict[str, bytes]]:
    """Return whether a value is a list of messages, as `_listed` has made it."""
    return isinstance(held, dict)


def _listed(digests: Sequence[str]) -> dict[str, Any]:
    """Return the value of a list of messages: which lists it begins with, and what is behind them."""
    full = len(digests) // _LIST_COUNT * _LIST_COUNT
    lists = [_digest_of(digests[begin : begin + _LIST_COUNT]) for begin in range(0, full, _LIST_COUNT)]
    return {"lists": _packed(lists), "rest": _packed(digests[full:])}


def _digests(table: Table, held: Mapping[str, bytes]) -> list[str]:
    """Return the digests of the messages of a value."""
    lists = [item.value for item in table.get_many((_LIST, digest) for digest in _unpacked(held["lists"]))]
    return [digest for packed in (*lists, held["rest"]) for digest in _unpacked(packed)]
