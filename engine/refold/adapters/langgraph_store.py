"""A LangGraph store whose items are stored in a table, and whose vectors are memories of projects."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

from msgspec import msgpack, to_builtins

from refold import ANY, NO_STREAM, InvalidInput, Memory, NotFound, ReadOnly, WrongVersion
from refold.adapters.erasure import Receipts, erase
from refold.adapters.extras import import_extra
from refold.adapters.keys import part, text
from refold.adapters.langgraph_items import are_equal
from refold.index.ranking import Ranking
from refold.memory import Table, TableItem
from refold.threads import Bell

with import_extra("langgraph"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        IndexConfig,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        ensure_embeddings,
        get_text_at_path,
        tokenize_path,
    )

Namespace = tuple[str, ...]
Key = str | tuple[str, ...]
Vector = Sequence[float]

_ACTOR: Final = "langgraph"
_COSINE: Final = Ranking(name="langgraph", cosine=1.0)
_SWEEP_MINUTES: Final = 5.0
_SEPARATOR: Final = "\x1f"
_KEY_SEPARATOR: Final = "\0"  # Between the parts of a table's key.
_NAME_BYTES_MAX: Final = 400
_PAGE_COUNTS: Final = (16, 512)  # How many items a search reads at once, initially and at most.
_KNOWN_COUNT_MAX: Final = 4_096  # The most items to cache, each within the bytes below.
_KNOWN_BYTES_MAX: Final = 1_024
_SLACK_PART: Final = 64  # A read extends an item's life once 1/64 of its time has passed since the last extension.
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _ItemKey(NamedTuple):
    """The location of an item: its namespace and its key."""

    namespace: Namespace
    key: str


class _Write(NamedTuple):
    """An item to put or delete, with its texts and their vectors."""

    place: _ItemKey
    op: PutOp
    texts: list[str]
    vectors: list[Vector]


class RefoldStore(BaseStore):
    """LangGraph's ``BaseStore`` in a memory: pass it to ``graph.compile(store=...)``, or to an agent.

    Items are stored in the table ``prefix`` under their namespace and key, so that ``at``, ``diff``, ``fork``,
    ``restore`` and ``erase`` reach them together with everything else in the memory; ``store.erase`` erases a
    namespace. With ``index``, LangGraph's ``IndexConfig``, texts of the values are embedded and searched. ``ttl`` is
    LangGraph's ``TTLConfig``: expired items are never shown, and ``sweep_ttl`` deletes them. Without a query, a search
    returns the last written items first.

    Values are JSON, and can also contain bytes, which come back as bytes. Several stores, threads and processes can
    write at once: a batch is one commit, and is retried if another one changed what it read.

    >>> from langgraph.store.base import Item
    >>> store = RefoldStore(Memory())
    >>> store.put(("users", "ann"), "likes", {"drink": "tea"})
    >>> store.get(("users", "ann"), "likes").value
    {'drink': 'tea'}
    """

    supports_ttl = True

    __slots__ = (
        "_bell",
        "_entries",
        "_fields",
        "_known",
        "_sweeper",
        "_table",
        "embeddings",
        "index_config",
        "memory",
        "prefix",
        "ttl_config",
    )

    def __init__(
        self,
        memory: Memory,
        *,
        prefix: str = "langgraph-store",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self.memory, self.prefix, self.ttl_config, self.index_config = memory, prefix, ttl, index
        self.embeddings = None if index is None else ensure_embeddings(index.get("embed"))
        self._fields = _paths((index or {}).get("fields") or ["$"])
        self._table: Table = memory.table(prefix)
        self._entries: Table = memory.table(f"{prefix}/vectors")  # The ids of the memories made from an item.
        self._known: dict[int, tuple[TableItem, dict[str, Any]]] = {}  # By the seqs of the items.
        self._bell = Bell()
        self._sweeper: threading.Thread | None = None

    @classmethod
    @contextmanager
    def from_path(cls, path: "str | Path", **options: Any) -> "Generator[RefoldStore]":
        """Open the memory at a path for a block, and yield a store in it."""
        with Memory(path) as memory:
            store = cls(memory, **options)
            try:
                yield store
            finally:
                store.stop_ttl_sweeper()

    # Batches.

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations at once: reads see the state before the batch, and all puts and deletes are one commit."""
        operations = [*ops]
        writes, queries = self._writes(operations), _queries(operations)
        texts = [each for write in writes for each in write.texts]
        vectors: dict[str, Vector] = {}
        if self.embeddings is not None:
            vectors = {query: self.embeddings.embed_query(query) for query in queries}
            _embed(writes, self.embeddings.embed_documents(texts) if texts else [])
        return self._execute(operations, writes, vectors)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations at once, like ``batch``; reads and writes run on a thread."""
        operations = [*ops]
        writes, queries = self._writes(operations), _queries(operations)
        texts = [each for write in writes for each in write.texts]
        vectors: dict[str, Vector] = {}
        if self.embeddings is not None:
            made = await asyncio.gather(*map(self.embeddings.aembed_query, queries))
            vectors = dict(zip(queries, made, strict=True))
            _embed(writes, await self.embeddings.aembed_documents(texts) if texts else [])
        return await asyncio.to_thread(self._execute, operations, writes, vectors)

    def _writes(self, ops: Sequence[Op]) -> list[_Write]:
        """Return the writes; of several operations on one key, only the last counts."""
        last = {_ItemKey(tuple(op.namespace), op.key): op for op in ops if isinstance(op, PutOp)}
        return [_Write(place, op, self._texts(op), []) for place, op in last.items()]

    def _texts(self, op: PutOp) -> list[str]:
        if self.embeddings is None or op.value is None or op.index is False:
            return []
        fields = self._fields if op.index is None else _paths(op.index)
        return [found for field in fields for found in get_text_at_path(op.value, field)]

    def _execute(self, ops: Sequence[Op], writes: Sequence[_Write], vectors: dict[str, Vector]) -> list[Result]:
        results = [self._answer(op, vectors) for op in ops]
        if writes:
            with self.memory.acting(_ACTOR):
                if len(writes) > 1 or not self._put_alone(writes[0]):
                    self.memory.transact(partial(self._put_all, writes))
        return results

    def _put_alone(self, write: _Write) -> bool:
        """Put an item without vectors as a single event; return whether that was possible."""
        key = _key(write.place)
        (seq,) = self._table.seqs([key])
        before = self._item(key, seq)
        if write.op.value is None or write.vectors or seq < 0 or any(self._entries.seqs([key])):
            return False
        try:
            self._put_row(write.place, write.op.value, _origin(before), write.op.ttl, expected=seq or NO_STREAM)
        except WrongVersion:
            return False
        return True

    def _put_all(self, writes: Sequence[_Write]) -> None:
        for write in writes:
            self._put(write)

    def _answer(self, op: Op, vectors: dict[str, Vector]) -> Result:
        if isinstance(op, GetOp):
            return self._get(op)
        if isinstance(op, SearchOp):
            return self._search(op, vectors.get(op.query or ""))
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        if isinstance(op, PutOp):  # pyright: ignore[reportUnnecessaryIsInstance]
            return None
        raise ValueError(f"Unknown operation type: {type(op)}")

    def _put(self, write: _Write) -> None:
        place, op, key = write.place, write.op, _key(write.place)
        before, project = self._table.item(key), self.memory.project(self._project(place.namespace))
        for held in self._entries.get(key, {"ids": ()})["ids"]:
            with suppress(NotFound):  # It was erased, or cleared with its project.
                project.delete(held)
        if op.value is None:
            self._table.delete(key)
            self._entries.delete(key)
            return
        stamp = self._put_row(place, op.value, _origin(before), op.ttl)
        entries: list[str] = []
        for number, (words, vector) in enumerate(zip(write.texts, write.vectors, strict=True)):
            if any(vector):
                # Equal contents are one memory, whatever the metadata, so the key is part of the content.
                content = f"{place.key} {number}: {words}"
                added = project.add(content, vector=list(vector), metadata={"key": place.key}, sources=[stamp])
                entries.append(added.id)
        if entries:
            self._entries.put(key, {"ids": entries}, sources=[stamp])
        else:
            self._entries.delete(key)

    def _put_row(
        self,
        place: _ItemKey,
        value: Mapping[str, Any],
        origin: dict[str, int],
        ttl: float | None,
        *,
        expected: Any = ANY,
    ) -> Any:
        """Put the row of an item, and return its stamp."""
        row = {"value": _plain(value), **origin, "ttl": ttl}
        return self._table.put(_key(place), row, expires=_expiry(ttl), expected=expected)

    def import_item(
        self,
        namespace: Namespace,
        key: str,
        value: dict[str, Any],
        *,
        created_ns: int,
        updated_ns: int,
        ttl: float | None = None,
    ) -> Literal["taken", "known", "conflict"]:
        """Put an item of another store, without embedding it, unless this version of it was taken before.

        An item that was put here since stays as it is: that is a conflict if the other one is newer than what was taken
        of it.
        """
        place = _ItemKey(namespace, key)
        held = self._table.item(_key(place))
        if held is not None:
            row = held.value
            is_own, is_same = "updated" not in row, are_equal(row["value"], _plain(value))
            taken_ns = row.get("imported", 0) if is_own else row["updated"]
            # SQLite's times are whole seconds, so two values can have one time.
            if updated_ns < taken_ns or (updated_ns == taken_ns and (is_own or is_same)):
                return "known"
            if is_own:
                return "known" if is_same else "conflict"
        origin = {"created": created_ns, "updated": updated_ns}
        with self.memory.acting(_ACTOR):
            self._put_row(place, value, origin, ttl, expected=NO_STREAM if held is None else held.seq)
        return "taken"

    def erase(self, namespace: Namespace) -> Receipts:
        """Erase the bytes of what was ever put in a namespace or below it, and of what was embedded of that."""
        # A tuple would be the key of the item with the same name, too, which is in the namespace above.
        keys = [_KEY_SEPARATOR.join((*map(part, namespace), ""))]
        own = self._project(namespace)
        below = own + _SEPARATOR if namespace else own
        projects = [name for name in self.memory.projects(prefix=own) if name == own or name.startswith(below)]
        receipts = erase(self.memory, _ACTOR, table=self.prefix, keys=keys)
        return receipts + erase(self.memory, _ACTOR, table=f"{self.prefix}/vectors", keys=keys, projects=projects)

    async def aerase(self, namespace: Namespace) -> Receipts:
        """Erase a namespace, like ``erase``."""
        return await asyncio.to_thread(self.erase, namespace)

    # Reading.

    def _project(self, namespace: Namespace) -> str:
        """Return the project of a namespace; a name that would be too long is replaced by its hash."""
        name = f"{self.prefix}/{_SEPARATOR.join(namespace)}"
        return name if len(name.encode()) <= _NAME_BYTES_MAX else f"{self.prefix}/{sha256(name.encode()).hexdigest()}"

    def _get(self, op: GetOp) -> Item | None:
        place = _ItemKey(tuple(op.namespace), op.key)
        key = _key(place)
        item = self._item(key, self._table.seqs([key])[0])
        if item is None:
            return None
        if op.refresh_ttl:
            self._refresh([item])
        return Item(**_fields(place, item))

    def _item(self, key: Key, seq: int) -> TableItem | None:
        """Return the item of a key whose seq has been looked up."""
        if (known := self._known.get(seq)) is not None:
            return known[0]
        item = self._table.item(key) if seq else None
        return None if item is None else self._remember(item)[0]

    def _refresh(self, items: Sequence[TableItem]) -> None:
        """Restart the time to live of expiring items, unless that was done very recently."""
        # An expiry without a time to live was set by other code.
        ending = [item for item in items if item.expires_ns and item.seq > 0 and item.value["ttl"] is not None]
        if not ending:
            return
        with self.memory.acting(_ACTOR), suppress(ReadOnly):  # A past state cannot be changed.
            prolong = partial(self._prolong, ending)
            prolong() if len(ending) == 1 else self.memory.transact(prolong)

    def _prolong(self, items: Iterable[TableItem]) -> None:
        for item in items:
            span = timedelta(minutes=item.value["ttl"])
            # An item that was replaced or deleted since the read has its own expiry, or none.
            with suppress(WrongVersion):
                self._table.set_expires(item.key, span, slack=span / _SLACK_PART, expected=item.seq)

    def _search(self, op: SearchOp, vector: Vector | None) -> list[SearchItem]:
        prefix = tuple(op.namespace_prefix)
        _check_page(op)
        # A key equal to the prefix is found too, but is not in the namespace: hence one more.
        count = op.offset + op.limit + 1 if vector is None and not op.filter else None
        keys = self._table.keys(tuple(map(part, prefix)) if prefix else "", newest=True, limit=count)
        keys = [key for key in keys if isinstance(key, tuple) and len(key) > len(prefix)]
        scores = {} if vector is None else self._scores(keys, op.query or "", vector)
        keys.sort(key=lambda key: -scores.get(key, -inf))
        page = [*islice(self._filter_items(keys, op.filter or {}), op.offset, op.offset + op.limit)]
        if op.refresh_ttl:
            self._refresh(page)
        return [SearchItem(**_fields(_place(item), item), score=scores.get(item.key)) for item in page]

    def _filter_items(self, keys: "Sequence[Key]", wanted: Mapping[str, Any]) -> "Iterator[TableItem]":
        """Yield the items of keys that have the wanted fields, in order."""
        begin, count = 0, _PAGE_COUNTS[0]
        while begin < len(keys):
            for item, value in self._read_items(keys[begin : begin + count]):
                if all(_matches(_field(value, name), field) for name, field in wanted.items()):
                    yield item
            begin, count = begin + count, min(2 * count, _PAGE_COUNTS[1])

    def _read_items(self, keys: "Sequence[Key]") -> "Iterable[tuple[TableItem, dict[str, Any]]]":
        """Return items with their values, which must not be changed; small items are cached by seq."""
        found = dict(zip(keys, map(self._known.get, self._table.seqs(keys)), strict=True))
        for item in self._table.get_many([key for key, known in found.items() if known is None]):
            found[item.key] = self._remember(item)
        return [each for each in found.values() if each is not None]

    def _remember(self, item: "TableItem") -> "tuple[TableItem, dict[str, Any]]":
        """Cache a small item, unless it belongs to an open batch; return it with its value."""
        valued = item, item.value["value"]
        if item.seq > 0 and len(item.packed) <= _KNOWN_BYTES_MAX:
            if len(self._known) >= _KNOWN_COUNT_MAX:
                self._known = {}
            self._known[item.seq] = valued
        return valued

    def _scores(self, keys: "Iterable[Key]", query: str, vector: Vector) -> "dict[Key, float]":
        """Return the scores of the items that were embedded."""
        held = {_split(key): key for key in keys}
        scores: dict[Key, float] = {}
        for namespace in {place.namespace for place in held}:
            project = self.memory.project(self._project(namespace))
            count = project.count()
            if not count:
                continue
            hits = project.search(query, vector=list(vector), ranking=_COSINE, top_k=count, min_importance=0.0)
            for hit in hits:
                key = held.get(_ItemKey(namespace, (hit.entry.metadata or {})["key"]))
                if key is not None:
                    scores[key] = max(hit.score, scores.get(key, hit.score))
        return scores

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        _check_page(op)
        known = {_split(key).namespace for key in self._table.keys()}  # noqa: SIM118 - not a mapping
        fitting = {
            namespace
            for namespace in known
            if all(_matches_condition(each, namespace) for each in op.match_conditions or ())
        }
        if op.max_depth is not None:
            fitting = {namespace[: op.max_depth] for namespace in fitting}
        return sorted(fitting)[op.offset : op.offset + op.limit]

    # Time to live.

    def sweep_ttl(self) -> int:
        """Delete expired items and their embeddings, and return the number of items."""
        with self.memory.acting(_ACTOR):
            for namespace in {_split(key).namespace for key in self._table.keys()} if self.embeddings else ():  # noqa: SIM118
                project = self.memory.project(self._project(namespace))
                for entry in project.list():
                    key = _key(_ItemKey(namespace, (entry.metadata or {})["key"]))
                    if self._table.item(key) is None:
                        project.delete(entry)
                        self._entries.delete(key)
            return self._table.expire()

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> None:
        """Sweep periodically on a separate thread until ``stop_ttl_sweeper``; a sweeper that already runs continues."""
        minutes = sweep_interval_minutes or (self.ttl_config or {}).get("sweep_interval_minutes")
        interval = 60 * float(minutes or _SWEEP_MINUTES)
        if self._sweeper is not None and self._sweeper.is_alive():
            return
        bell = self._bell = Bell()

        def sweep() -> None:
            while not bell.wait(interval):
                self.sweep_ttl()

        self._sweeper = threading.Thread(target=sweep, name="refold-langgraph-ttl", daemon=True)
        self._sweeper.start()

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop sweeping, and return whether the thread has ended."""
        self._bell.ring()
        if self._sweeper is None:
            return True
        self._sweeper.join(timeout)
        return not self._sweeper.is_alive()


def _paths(fields: Sequence[str]) -> list[Any]:
    return ["$" if field == "$" else tokenize_path(field) for field in fields]


def _queries(ops: Sequence[Op]) -> list[str]:
    return sorted({op.query for op in ops if isinstance(op, SearchOp) and op.query})


def _embed(writes: Sequence[_Write], vectors: Sequence[Vector]) -> None:
    """Assign to each write the vectors of its texts."""
    count = sum(len(write.texts) for write in writes)
    if len(vectors) != count:
        raise InvalidInput(f"the embedder gave {len(vectors)} vectors for {count} texts; it has to give one for each")
    left = iter(vectors)
    for write in writes:
        write.vectors.extend(next(left) for _ in write.texts)


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value with the JSON forms of tuples, datetimes and similar types, as stored by ``SqliteStore``."""
    try:
        plain: dict[str, Any] = msgpack.decode(msgpack.encode(to_builtins(dict(value), builtin_types=(bytes,))))
    except (TypeError, ValueError, OverflowError, RecursionError):  # The table reports which value cannot be stored.
        return dict(value)
    return plain


def _check_page(op: SearchOp | ListNamespacesOp) -> None:
    for name, count in (("limit", op.limit), ("offset", op.offset)):
        if count < 0:
            raise InvalidInput(f"{name} is {count}; it has to be at least 0")


def _expiry(ttl: float | None) -> timedelta | None:
    try:
        return None if ttl is None else timedelta(minutes=ttl)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"ttl is {ttl} minutes; give a smaller, finite number, or None to keep an item") from error


def _origin(before: TableItem | None) -> dict[str, int]:
    """Return the times that an item keeps from the one that it replaces.

    ``created`` is 0 for a new item. ``imported`` is the time of the version that was taken from another store; an item
    that is still that version has this time as ``updated``.
    """
    if before is None:
        return {"created": 0}
    row = before.value
    imported = row.get("updated", row.get("imported"))
    return {"created": row["created"] or before.time_ns} | ({} if imported is None else {"imported": imported})


def _key(place: _ItemKey) -> tuple[str, ...]:
    return tuple(map(part, (*place.namespace, place.key)))


def _split(key: "str | tuple[str, ...]") -> _ItemKey:
    *namespace, last = map(text, key if isinstance(key, tuple) else (key,))
    return _ItemKey(tuple(namespace), last)


def _place(item: TableItem) -> _ItemKey:
    return _split(item.key)


def _fields(place: _ItemKey, item: TableItem) -> dict[str, Any]:
    row = item.value
    updated = _moment(row.get("updated", item.time_ns))
    created = _moment(row["created"]) if row["created"] else updated
    return {
        "value": row["value"],
        "key": place.key,
        "namespace": place.namespace,
        "created_at": created,
        "updated_at": updated,
    }


def _moment(time_ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_ns // 1_000)


def _matches_condition(condition: MatchCondition, namespace: Namespace) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    own = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, own, strict=True))


def _compare(held: Any, wanted: Any) -> int:
    """Compare two values as numbers if both are numeric, else as strings; below 0 means less."""
    try:
        pair: tuple[Any, Any] = float(held), float(wanted)
    except (ValueError, TypeError):
        pair = str(held), str(wanted)
    return int(pair[0] > pair[1]) - int(pair[0] < pair[1])


_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$eq": are_equal,
    "$ne": lambda held, value: not are_equal(held, value),
    "$gt": lambda held, value: _compare(held, value) > 0,
    "$gte": lambda held, value: _compare(held, value) >= 0,
    "$lt": lambda held, value: _compare(held, value) < 0,
    "$lte": lambda held, value: _compare(held, value) <= 0,
}


def _field(value: dict[str, Any], name: str) -> Any:
    """Return a field of a value; if no field has the name, follow its dots into nested values, like ``SqliteStore``."""
    found: Any = value.get(name)
    if found is not None or "." not in name:
        return found
    found = value
    for each in name.split("."):
        found = cast("dict[str, Any]", found).get(each) if isinstance(found, dict) else None
    return found


def _matches(held: Any, wanted: object) -> bool:
    """Return whether a value equals the wanted one, or satisfies the wanted operators."""
    if isinstance(wanted, (list, tuple)):
        items = cast("Sequence[object]", wanted)
        own: object = held
        if not isinstance(own, list):
            return False
        values = cast("Sequence[Any]", own)
        return len(values) == len(items) and all(map(_matches, values, items))
    if not isinstance(wanted, dict):
        return are_equal(held, wanted)
    fields = cast("dict[str, object]", wanted)
    if not any(name.startswith("$") for name in fields):
        return isinstance(held, dict) and all(_matches(held.get(name), value) for name, value in fields.items())  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    unknown = [name for name in fields if name not in _COMPARED]
    if unknown:
        raise ValueError(f"Unsupported operator: {unknown[0]}")
    return all(
        (held is not None or name in ("$eq", "$ne")) and _COMPARED[name](held, value) for name, value in fields.items()
    )
