"""A LangGraph checkpointer: each thread is a table, and its messages are a conversation."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar, cast

from refold import EXISTS, Conversation, Memory, Message, NotFound, Snapshot, WrongVersion
from refold.adapters.erasure import Receipts, erase
from refold.adapters.extras import import_extra
from refold.adapters.keys import part
from refold.adapters.langchain_messages import SeenMessages, are_messages, show
from refold.adapters.langgraph_items import (
    CHECKPOINT,
    DIGEST_BYTES,
    LIST,
    LIST_COUNT,
    MESSAGE,
    REGULAR,
    SHOWN,
    THREAD,
    VALUE,
    WRITES,
    CheckpointPage,
    CheckpointStep,
    DigestLists,
    Key,
    Move,
    Names,
    Record,
    StoredCheckpoint,
    Values,
    are_equal,
    checkpoint_key,
    config_of,
    configurable_of,
    digest_of,
    is_plain,
    key_part,
    load_messages,
    metadata_key,
    newest_key,
    pack_digests,
    pack_list,
    place_of,
    put_rows,
    split_metadata,
    sweep,
    value_key,
    writes_of,
)
from refold.memory import Table, TableItem

with import_extra("langgraph"):
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

T = TypeVar("T")
Writes: TypeAlias = list[PendingWrite]
_Described: TypeAlias = tuple[Mapping[str, Any], Key | None]
"""The metadata of a checkpoint, and the key of the item that holds the rest of them."""

_ACTOR: Final = "langgraph"
_CHANNEL: Final = "messages"
_NAME_BYTES_MAX: Final = 400  # The limit of a table name.
_PAGE_COUNT: Final = 500
_LISTED_COUNT_MIN: Final = 4  # How many checkpoints a listing reads at once: initially,
_LISTED_COUNT_MAX: Final = 32  # at most,
_SIFTED_COUNT_MAX: Final = 512  # and at most with a filter.
_HELD_COUNT_MAX: Final = 256  # The most checkpoints to cache.
_VALUES_COUNT_MAX: Final = 4_096  # The most values to cache, each within the bytes below.
_VALUES_BYTES_MAX: Final = 4_096


class RefoldSaver(BaseCheckpointSaver[str]):
    """LangGraph's checkpointer in a memory: `builder.compile(checkpointer=RefoldSaver(memory))`.

    A thread is the table `langgraph/THREAD_ID`, which stores each message and each version of a channel once, except
    numbers, booleans and `None`, however many checkpoints contain it. The `messages` channel of the outer graph is also
    the window of the conversation `langgraph/THREAD_ID`, so that policies, searches, `why`, erasure and `refold web`
    work on it; a run that continues from an earlier checkpoint takes the conversation back there. `project_messages`
    names another channel, or is `False`. With a serializer other than LangGraph's `JsonPlusSerializer`, such as one
    that encrypts, values are stored whole, and no conversation shows them.

    A value is at most 16 MiB; if the memory rejects it, the memory's error is raised. Erased data is left out, except a
    tool result, which comes back empty because no model accepts a call without a result. Erasing a message of the
    conversation takes it out of every checkpoint's messages, and not out of the inputs and the writes of tasks that it
    came from: erase it by its text, or the whole thread with ``erase_thread``.

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
        self._projected = _CHANNEL if project_messages is True else project_messages or None
        self._seen = SeenMessages()
        self._lists = DigestLists()
        self._held: dict[int, StoredCheckpoint] = {}  # By seq.
        self._described: dict[int, _Described] = {}  # By the seqs of checkpoints.
        self._known: dict[int, Values] = {}  # By the seqs of their items.

    @classmethod
    @contextmanager
    def from_path(cls, path: str | Path, **options: Any) -> Generator[Self]:
        """Open a memory for a block; `options` are those of the saver."""
        with Memory(path) as memory:
            yield cls(memory, **options)

    # Depends on the current serializer: an encrypting one can be set after the saver was created.

    @property
    def _can_split(self) -> bool:
        return isinstance(self.serde, JsonPlusSerializer)

    # Reading.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that `config` names, or the newest one of its thread and namespace."""
        thread, ns = place_of(config)
        table = self._table(thread)
        while (held := self._find(table, ns, get_checkpoint_id(config))) is not None:
            for found in self._tuples(thread, table, [held]):
                return found
        return None

    def has_checkpoint(self, config: RunnableConfig) -> bool:
        """Return whether the checkpoint that `config` names exists."""
        thread, ns = place_of(config)
        return self._find(self._table(thread), ns, get_checkpoint_id(config)) is not None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of a thread, or of all threads, newest first."""
        configurable = configurable_of(config)
        ns, only = configurable.get("checkpoint_ns"), configurable.get("checkpoint_id")
        end = get_checkpoint_id(before) if before else None
        within = (CHECKPOINT,) if ns is None else (CHECKPOINT, key_part(ns))
        found = [
            (key[2], thread, key)
            for thread in ([str(configurable["thread_id"])] if "thread_id" in configurable else self._threads())
            for key in self._table(thread).keys(within)
            if not (only and key[2] != key_part(only)) and not (end and key[2] >= key_part(end))
        ]
        found.sort(reverse=True)
        left = len(found) if limit is None else limit
        at_most = _SIFTED_COUNT_MAX if filter else _LISTED_COUNT_MAX
        begin, count = 0, _LISTED_COUNT_MIN if limit is None or filter else min(left, at_most)
        while begin < len(found) and left > 0:
            for thread, places in groupby(found[begin : begin + count], itemgetter(1)):
                table, keys = self._table(thread), [key for *_, key in places]
                items = table.get_many(self._matching_keys(table, keys, filter) if filter else keys)
                for found_tuple in self._tuples(thread, table, [self._read(table, item) for item in items]):
                    yield found_tuple
                    left -= 1
                    if left <= 0:
                        return
            begin, count = begin + count, min(2 * count, at_most)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what the ancestors of a checkpoint wrote to channels, back to the newest one that holds the value."""
        thread, ns = place_of(config)
        table = self._table(thread)
        histories: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
        missing = set(channels)
        held = self._find(table, ns, get_checkpoint_id(config)) if missing else None
        while missing and held is not None and (parent := held.record["parent"]):
            held = self._find(table, ns, parent)
            if held is None:
                break
            for write in reversed(self._writes(table.scan((WRITES, *held.key[1:])))):
                if write[1] in missing:
                    histories[write[1]]["writes"].append(write)
            seeds = self._page(table, [held]).values(held, missing)
            for channel, value in seeds.items():
                histories[channel]["seed"] = value
            missing -= set(seeds)
        for entry in histories.values():
            entry["writes"].reverse()
        return histories

    get_next_version = InMemorySaver.get_next_version

    # Writing.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Write a checkpoint with its new values, and bring the conversation to its messages."""
        while True:
            step = self._step(config, checkpoint, metadata, new_versions)
            try:
                return self._finish_step(step, self._transact(partial(self._put, step)))
            except WrongVersion:  # Another writer changed the conversation since it was read.
                continue

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote to channels; existing writes to regular channels are kept."""
        rows = self._rows(config, writes, task_id, task_path)
        put = partial(put_rows, self._table(place_of(config)[0]), rows)
        try:
            with self.memory.acting(_ACTOR):
                put(is_new=True) if len(rows) == 1 else self.memory.transact(partial(put, is_new=True))
        except WrongVersion:
            self._transact(put)

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread and drop its conversation; the log keeps both until they are erased."""
        table, chat = self._table(thread_id), self._chat(thread_id)

        def drop() -> None:
            table.delete_prefix(())
            if self._projected is not None:
                chat.drop()

        self._transact(drop)

    def erase_thread(self, thread_id: str, *, forks: str = "refuse") -> Receipts:
        """Erase the bytes of a thread, deleted or not, and of its conversation, with their names.

        A thread that was copied is refused, unless ``forks="erase"`` takes what the copies have of it along.
        """
        name = self._name(thread_id)
        return erase(self.memory, _ACTOR, chats=[name], forks=forks, table=name)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, and their writes."""
        wanted = set(run_ids)
        for thread in self._threads() if wanted else ():
            self._drop(thread, lambda _, items: [each for each in items if self._run_id(each) not in wanted])

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints of threads except those that the newest ones need, or with `"delete"` all of them."""
        for thread in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread)
            else:
                self._drop(thread, self._needed_checkpoints)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Replace a thread with a copy of another's committed state, and its conversation likewise."""
        if source_thread_id == target_thread_id:
            return
        target, chat = self._table(target_thread_id), self._chat(target_thread_id)
        then, name = self.memory.at(self.memory.head), self._name(source_thread_id)  # Both as of the same seq.
        now = then.conversation(name).snapshot()

        def copy() -> None:
            target.restore(then.table(name))
            target.delete(THREAD)
            self._name_thread(target, target_thread_id)
            if self._projected is not None and then.conversation(name).version:
                chat.restore(now)
            elif self._projected is not None:
                chat.drop()

        self._transact(copy)

    # For asyncio: reads run on threads; writes are committed together with those of all tasks of the loop.

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the same as `get_tuple`."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield the same as `list`."""
        listed = self.list(config, filter=filter, before=before, limit=limit)
        while (found := await asyncio.to_thread(next, listed, None)) is not None:
            yield found

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the same as `get_delta_channel_history`."""
        return await asyncio.to_thread(self.get_delta_channel_history, config=config, channels=channels)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Write a checkpoint, like `put`."""
        while True:
            step = await asyncio.to_thread(self._step, config, checkpoint, metadata, new_versions)
            try:
                return self._finish_step(step, await self._atransact(partial(self._put, step)))
            except WrongVersion:
                continue

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task, like `put_writes`."""
        rows = await asyncio.to_thread(self._rows, config, writes, task_id, task_path)
        put = partial(put_rows, self._table(place_of(config)[0]), rows)
        try:
            await self._atransact(partial(put, is_new=True))
        except WrongVersion:
            await self._atransact(put)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread, like `delete_thread`."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def aerase_thread(self, thread_id: str, *, forks: str = "refuse") -> Receipts:
        """Erase a thread, like `erase_thread`."""
        return await asyncio.to_thread(self.erase_thread, thread_id, forks=forks)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, like `delete_for_runs`."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints, like `prune`."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, like `copy_thread`."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    # Names.

    def _name(self, thread: object) -> str:
        return self.prefix + key_part(str(thread), _NAME_BYTES_MAX - len(self.prefix.encode()))

    def _table(self, thread: str) -> Table:
        return self.memory.table(self._name(thread))

    def _chat(self, thread: str) -> Conversation:
        return self.memory.conversation(self._name(thread))

    def _name_thread(self, table: Table, thread: str) -> None:
        """Store the id of a thread if the name of its table does not contain it."""
        if table.name != self.prefix + thread and table.get(THREAD) is None:
            table.put(THREAD, thread)

    def _threads(self) -> Names:
        """Return the ids of all threads."""
        threads: list[str] = []
        after = None
        while page := self.memory.tables(prefix=self.prefix, after=after, limit=_PAGE_COUNT):
            after = page[-1]
            for name in page:
                rest = name.removeprefix(self.prefix)
                thread = rest if part(rest) == rest else self.memory.table(name).get(THREAD)
                threads += [] if thread is None else [thread]
        return threads

    # Transactions.

    def _transact(self, function: Callable[[], T]) -> T:
        with self.memory.acting(_ACTOR):
            return self.memory.transact(function)

    async def _atransact(self, function: Callable[[], T]) -> T:
        async def write() -> T:
            return function()

        with self.memory.acting(_ACTOR):
            return await self.memory.aio.transact(write)

    # Values.

    def _dump(self, value: Any) -> Values:
        return [*self.serde.dumps_typed(value)]

    def _load(self, held: Sequence[Any]) -> Any:
        return self.serde.loads_typed((held[0], held[1]))

    def _run_id(self, item: TableItem) -> Any:
        return self._load(item.value["metadata"]).get("run_id")

    def _metadata(self, table: Table, item: TableItem) -> CheckpointMetadata:
        record: Record = item.value
        more = table.get(metadata_key(record)) if record["more"] else None
        return cast("CheckpointMetadata", self._load(record["metadata"]) | (self._load(more) if more else {}))

    def _matching_keys(self, table: Table, keys: Sequence[Key], wanted: Mapping[str, Any]) -> Sequence[Key]:
        """Return the keys of the checkpoints whose metadata has the wanted values."""
        seqs = dict(zip(keys, table.seqs(keys), strict=True))
        described = {seq: self._described[seq] for seq in seqs.values() if seq in self._described}
        rests = {rest for _, rest in described.values() if rest is not None}
        erased = {rest for rest, seq in zip(rests, table.seqs(rests), strict=True) if not seq}
        described = {seq: each for seq, each in described.items() if each[1] not in erased}
        for item in table.get_many([key for key, seq in seqs.items() if seq and seq not in described]):
            rest = metadata_key(item.value) if item.value["more"] else None
            metadata = cast("Mapping[str, Any]", self._metadata(table, item))
            described[item.seq] = metadata, None if rest in erased else rest
        if len(self._described) + len(described) > _VALUES_COUNT_MAX:
            self._described = {}
        self._described.update((seq, each) for seq, each in described.items() if seq > 0)
        fitting = {
            seq
            for seq, (held, _) in described.items()
            if all(are_equal(held.get(name), each) for name, each in wanted.items())
        }
        return [key for key, seq in seqs.items() if seq in fitting]

    def _tuples(self, thread: str, table: Table, held: Sequence[StoredCheckpoint]) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, skipping those that were deleted while their values were read."""
        writes = writes_of(table, [cast("tuple[str, ...]", each.key) for each in held])
        page = self._page(table, held)
        for each in held:
            if each.key not in page.there:
                continue
            record = each.record
            checkpoint: Checkpoint = self._load(record["checkpoint"])
            checkpoint["channel_values"] = page.values(each, each.versions)
            yield CheckpointTuple(
                config_of(thread, record["ns"], checkpoint["id"]),
                checkpoint,
                self._load(record["metadata"]) | page.metadata(each),
                config_of(thread, record["ns"], record["parent"]) if record["parent"] else None,
                self._writes(writes.get(each.key, ())),
            )

    def _page(self, table: Table, held: Sequence[StoredCheckpoint]) -> "CheckpointPage":
        """Read the values of several checkpoints as of one moment."""
        places = [each.key for each in held]
        keys = dict.fromkeys(
            value_key(each.record["ns"], channel, version)
            for each in held
            for channel, version in each.versions.items()
            if channel not in each.record["plain"] and channel not in each.digests
        )
        keys |= dict.fromkeys(metadata_key(each.record) for each in held if each.record["more"])
        wanted = dict.fromkeys(digest for each in held for digests in each.digests.values() for digest in digests)
        seqs = iter(table.seqs([*places, *keys, *((MESSAGE, digest) for digest in wanted)]))
        there = {key for key, seq in zip(places, seqs, strict=False) if seq}
        values: dict[Key, Any] = {key: self._known.get(seq) for key, seq in zip(keys, seqs, strict=False) if seq}
        messages: dict[str, Any] = {
            digest: self._seen.fields(digest) for digest, seq in zip(wanted, seqs, strict=True) if seq
        }
        unread: list[Key] = [key for key, value in values.items() if value is None]
        unread += [(MESSAGE, digest) for digest, fields in messages.items() if fields is None]
        if unread:
            items = table.get_many(unread)
            new = {item.key[1]: item.value for item in items if item.key[0] == MESSAGE}
            for digest, message in zip(new, load_messages(self._load, [*new.values()]), strict=True):
                messages[digest] = self._seen.add(digest, message) or new[digest]
            for item in items:
                if item.key[0] == VALUE:
                    values[item.key] = self._cache_value(item)
            if len(items) < len(unread):  # An item was erased or deleted since the lookup.
                there &= {key for key, seq in zip(places, table.seqs(places), strict=True) if seq}
        return CheckpointPage(self._load, there, values, messages)

    def _cache_value(self, item: TableItem) -> Values:
        """Return the value of an item, and cache it."""
        value: Values = item.value
        if len(item.packed) <= _VALUES_BYTES_MAX and item.seq > 0:
            if len(self._known) >= _VALUES_COUNT_MAX:
                self._known = {}
            self._known[item.seq] = value
        return value

    def _writes(self, items: Iterable[TableItem]) -> Writes:
        rows = [
            (writes_sort_key(path, task, place), channel, packed)
            for item in items
            for task, path, place, channel, *packed in item.value
        ]
        rows.sort(key=lambda row: row[0])
        return [(order[1], channel, self._load(packed)) for order, channel, packed in rows]

    def _rows(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> dict[Key, Values]:
        """Return the writes of a task, keyed by slot."""
        _, ns = place_of(config)
        rows: dict[Key, Values] = {}
        for number, (channel, value) in enumerate(writes):
            place = WRITES_IDX_MAP.get(channel, number)
            slot = REGULAR if place >= 0 else str(place)
            key = (WRITES, key_part(ns), key_part(configurable_of(config)["checkpoint_id"]), key_part(task_id), slot)
            rows.setdefault(key, []).append([task_id, task_path, place, channel, *self._dump(value)])
        return rows

    # Messages.

    def _digest(self, value: Any) -> str:
        """Return the digest of the serialized form of a message or other value."""
        kind, data = self._dump(value)
        return blake2b(kind.encode() + b"\0" + data, digest_size=DIGEST_BYTES).hexdigest()

    def _find(self, table: Table, ns: str, cid: str | None) -> StoredCheckpoint | None:
        """Return a checkpoint by its id, or else the newest one; ``None`` if there is none."""
        if cid:
            return self._checkpoint_at(table, checkpoint_key(ns, cid))
        while (key := newest_key(table, ns)) is not None:
            found = self._checkpoint_at(table, key)
            if found is not None:  # Otherwise it was deleted since the lookup.
                return found
        return None

    def _checkpoint_at(self, table: Table, key: Key) -> StoredCheckpoint | None:
        """Return the checkpoint of a key, or ``None`` if there is none."""
        cached = self._held.get(table.seqs([key])[0])
        item = None if cached is not None else table.item(key)
        return cached if item is None else self._cache_checkpoint(self._read(table, item))

    def _read(self, table: Table, item: TableItem) -> StoredCheckpoint:
        """Return the checkpoint of an item."""
        record: Record = item.value
        lists: dict[str, Any] = record["lists"]
        digests = dict(zip(lists, self._lists.digests(table, [*lists.values()]), strict=True))
        return StoredCheckpoint(
            item.seq, item.key, record, self._load(record["checkpoint"])["channel_versions"], digests, ()
        )

    def _cache_checkpoint(self, held: StoredCheckpoint) -> StoredCheckpoint:
        """Cache a checkpoint, unless it belongs to an open batch; return it."""
        if held.seq > 0:
            if len(self._held) >= _HELD_COUNT_MAX:
                self._held = {}
            self._held[held.seq] = held
        return held

    def _finish_step(self, step: CheckpointStep, stamp: Any) -> RunnableConfig:
        """Cache a checkpoint for the next one, replacing its predecessor."""
        if step.base is not None:
            self._held.pop(step.base.seq, None)
        self._cache_checkpoint(step.made._replace(seq=stamp.seq))
        return step.config

    def _step(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> CheckpointStep:
        """Return the changes that a checkpoint makes to the current state of its thread."""
        thread, ns = place_of(config)
        table, parent = self._table(thread), configurable_of(config).get("checkpoint_id")
        base = self._find(table, ns, parent) if parent else None
        before: Record = {"plain": {}, "lists": {}} if base is None else base.record
        given, versions = checkpoint["channel_values"], {**checkpoint["channel_versions"], **new_versions}
        plain: dict[str, Any] = {}
        digests: dict[str, Names] = {}
        lists: dict[str, dict[str, bytes]] = {}
        messages: dict[str, BaseMessage] = {}
        others: dict[Key, str] = {}  # The channels of values that can be items of their own,
        kept: set[str] = set()  # and channels that the previous checkpoint already stored.
        for channel, version in versions.items():
            is_old = base is not None and channel not in new_versions and base.versions.get(channel) == version
            if is_old and base is not None and channel in before["lists"]:
                lists[channel], digests[channel] = before["lists"][channel], base.digests[channel]
            elif is_old and channel in before["plain"]:
                plain[channel] = before["plain"][channel]
            elif is_old and base is not None and channel in base.others:
                kept.add(channel)
            elif channel not in given:
                others |= {value_key(ns, channel, version): channel} if channel in new_versions else {}
            elif self._can_split and is_plain(given[channel]):
                plain[channel] = given[channel]
            elif self._can_split and are_messages(listed_messages := given[channel]):
                own = digests[channel] = self._seen.digests((thread, ns, channel), listed_messages, self._digest)
                lists[channel] = pack_list(own)
                messages |= zip(own, listed_messages, strict=True)
            else:
                others[value_key(ns, channel, version)] = channel
        values: dict[Key, Any] = {}
        for (key, channel), seq in zip(others.items(), table.seqs(others) if others else (), strict=True):
            if channel not in given:
                values |= {key: None} if seq else {}
            elif channel in new_versions or not seq:
                values[key] = self._dump(given[channel])
        described, more = split_metadata(get_checkpoint_metadata(config, metadata), splits=self._can_split)
        record: Record = {
            "ns": ns,
            "parent": parent,
            "checkpoint": self._dump({key: value for key, value in checkpoint.items() if key != "channel_values"}),
            "metadata": self._dump(described),
            "more": "",
            "plain": plain,
            "lists": lists,
        }
        if more:
            record["more"] = self._digest(more)
            values |= {} if table.seqs([metadata_key(record)])[0] else {metadata_key(record): self._dump(more)}
        move: Move | None = None
        chat = self._chat(thread)
        # Values that are not split are not shown; they replace what the conversation has shown so far.
        if self._projected is not None and not ns and (self._can_split or chat.version):
            move = self._move(chat, table, base, checkpoint_key(ns, checkpoint["id"]), digests.get(self._projected, []))
            record |= {"hidden": True} if move is None else {}
        kept |= {channel for channel in others.values() if channel in given}
        made = StoredCheckpoint(0, checkpoint_key(ns, checkpoint["id"]), record, versions, digests, kept)
        return CheckpointStep(config_of(thread, ns, checkpoint["id"]), thread, base, made, values, messages, move)

    def _move(
        self, chat: Conversation, table: Table, base: StoredCheckpoint | None, made: Key, after: Names
    ) -> Move | None:
        """Return how to bring a conversation to the messages of a new checkpoint; ``None`` if another one is newer.

        The newest one is that of the highest id; runs that go on at once put theirs in any order.
        """
        version, seq, newest = chat.version, table.seqs([SHOWN])[0], newest_key(table, "")
        if newest is not None and newest[2] > made[2]:
            return None
        shown = (*checkpoint_key("", "")[:2], table.get(SHOWN)) if seq else newest
        back: Snapshot | None = None
        if base is None or base.key != shown:
            if base is None or shown is None or base.record.get("hidden") or self._is_copied(table, base):
                base = None if shown is None else self._checkpoint_at(table, shown) or self._find(table, "", None)
            elif version:
                back = chat.at(base.seq).snapshot()
        if base is None:
            return Move(version, seq, None, None, [], after)
        return Move(version, seq, base.key, back, self._shown_digests(base), after)

    def _is_copied(self, table: Table, base: StoredCheckpoint) -> bool:
        """Return whether a checkpoint belongs to another thread or fork, so this conversation did not show it then."""
        with suppress(NotFound):  # Otherwise, a restore of the memory brought it here.
            return base.seq > 0 and self.memory.event(base.seq).stamp.stream != f"table/{table.name}"
        return True

    def _shown_digests(self, base: StoredCheckpoint) -> Names:
        """Return the digests of the messages that a conversation shows at a checkpoint."""
        return base.digests.get(self._projected or "", [])

    def _put(self, step: CheckpointStep) -> Any:
        """Write a step within the open batch, and return the stamp of its checkpoint."""
        table, chat = self._table(step.thread), self._chat(step.thread)
        base, move = step.base, step.move
        uncited: dict[str, Message] = {}
        record = step.made.record
        rest = metadata_key(record) if record["more"] else None
        needed = {None if base is None else base.key, None if move is None else move.base, rest} - {None, *step.values}
        if not all(table.seqs(cast("set[Key]", needed))):
            text = f"a checkpoint of {table.name} that another one goes on from has gone, or metadata; look again"
            raise WrongVersion(text, expected=EXISTS, actual=0)
        if move is not None:
            uncited = self._show(chat, table, move, step.messages)
            table.put(SHOWN, step.made.key[2])
        earlier: Mapping[str, Names] = {} if base is None else base.digests
        there = set(() if move is None else move.before).union(*earlier.values())
        for channel, digests in step.made.digests.items():
            before = earlier.get(channel, [])
            if digests is before:
                continue
            full = len(digests) // LIST_COUNT * LIST_COUNT
            for begin in range(0, full, LIST_COUNT):
                piece = digests[begin : begin + LIST_COUNT]
                if piece != before[begin : begin + LIST_COUNT]:
                    table.put((LIST, digest_of(piece)), pack_digests(piece))
            for digest in digests:
                message = uncited.pop(digest, None)
                if digest not in there:
                    there.add(digest)
                    dumped = self._dump(step.messages[digest])
                    table.put((MESSAGE, digest), dumped, sources=[] if message is None else [message])
                    self._seen.add(digest, self._load(dumped))  # The next read of the checkpoint will need it.
                elif message is not None:  # It was stored before it was shown.
                    for held in table.get_many([(MESSAGE, digest)]):
                        table.put(held.key, held.value, sources=[held, message])
        for key, value in step.values.items():
            if value is None:
                table.delete(key)
            else:
                table.put(key, value)
        self._name_thread(table, step.thread)
        return table.put(step.made.key, step.made.record)

    def _show(
        self, chat: Conversation, table: Table, move: Move, messages: Mapping[str, BaseMessage]
    ) -> dict[str, Message]:
        """Bring a conversation to the messages of a checkpoint; return the new ones by their digests."""
        for what, expected, actual in (
            (chat.id, move.version, chat.version),
            (f"what it shows of {table.name}", move.shown, table.seqs([SHOWN])[0]),
        ):
            if actual != expected:
                text = f"{what} is at version {actual}, not at {expected}; look again"
                raise WrongVersion(text, expected=expected, actual=actual)
        if move.back is not None:
            chat.restore(move.back, keep_budget=True)

        def find(digest: str) -> BaseMessage | None:
            if digest in messages:
                return messages[digest]
            held = table.get((MESSAGE, digest))
            message: BaseMessage | None = None if held is None else self._load(held)
            return message

        return show(chat, move.before, move.after, find)

    # Deleting.

    def _drop(self, thread: str, choose: Callable[[Table, Values], Values]) -> None:
        """Delete all but the chosen checkpoints, with their writes and everything that is no longer referenced."""
        table, chat = self._table(thread), self._chat(thread)

        def drop() -> None:
            items = table.scan((CHECKPOINT,))
            kept = choose(table, items)
            gone = {item.key for item in items} - {item.key for item in kept}
            if not gone:
                return
            before = self._newest_digests(table)
            for key in gone:
                table.delete(key)
                table.delete_prefix((WRITES, *key[1:]))
            if self._projected is not None:
                shown, newest = table.seqs([SHOWN])[0], newest_key(table, "")
                after = self._newest_digests(table)
                self._show(chat, table, Move(chat.version, shown, None, None, before, after), {})
                if newest is not None:
                    table.put(SHOWN, newest[2])
            sweep(table, kept, self._load, self._lists)

        self._transact(drop)

    def _newest_digests(self, table: Table) -> Names:
        newest = self._find(table, "", None)
        return [] if newest is None else self._shown_digests(newest)

    def _needed_checkpoints(self, table: Table, items: Values) -> Values:
        """Return the newest checkpoint of each namespace, with the ancestors that its delta channels are built from."""
        by_key = {item.key: item for item in items}
        kept: dict[Key, Any] = {}
        for newest in {item.key[1]: item for item in items}.values():
            missing = set(self._metadata(table, newest).get("counters_since_delta_snapshot", ()))
            item: TableItem | None = newest
            while item is not None:
                kept[item.key] = item
                record = item.value
                versions: Mapping[str, Any] = self._load(record["checkpoint"])["channel_versions"] if missing else {}
                missing = {
                    channel
                    for channel in missing
                    if channel not in record["plain"]
                    and channel not in record["lists"]
                    and (channel not in versions or not table.keys(value_key(record["ns"], channel, versions[channel])))
                }
                item = by_key.get((*newest.key[:2], key_part(record["parent"] or ""))) if missing else None
        return [*kept.values()]
