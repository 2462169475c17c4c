"""A store of LangGraph whose items are those of a table, and whose vectors are memories of projects."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

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

from refold import Memory
from refold.adapters.keys import part, text
from refold.index.ranking import Ranking
from refold.memory import Table, TableItem
from refold.threads import Bell

Namespace = tuple[str, ...]
Vector = Sequence[float]

_ACTOR: Final = "langgraph"
_COSINE: Final = Ranking(name="langgraph", cosine=1.0)
_SWEEP_MINUTES: Final = 5.0
_SEPARATOR: Final = "\x1f"
_NAME_BYTES_MAX: Final = 400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Place(NamedTuple):
    """Where an item is: its namespace and its key."""

    namespace: Namespace
    key: str


class _Write(NamedTuple):
    """An item to put, or to delete, with its texts and their vectors."""

    place: _Place
    op: PutOp
    texts: list[str]
    vectors: list[Vector]


class RefoldStore(BaseStore):
    """LangGraph's ``BaseStore`` in a memory: give it to ``graph.compile(store=...)``, or to an agent.

    Items are those of the table ``prefix`` under their namespace and key, so that ``at``, ``diff``, ``fork``,
    ``restore`` and ``erase`` reach them together with everything else of the memory. With ``index``, LangGraph's
    ``IndexConfig``, texts of the values are embedded and searched; ``ttl`` is LangGraph's ``TTLConfig``: what has ended
    is never shown, and ``sweep_ttl`` deletes it. Without a query, a search returns what was written last first.

    Values are JSON; where bytes are in them, they come back too. Several stores, threads and processes may write at
    once: a batch is one commit, and is done anew where it read what another one has changed.

    >>> from langgraph.store.base import Item
    >>> store = RefoldStore(Memory())
    >>> store.put(("users", "ann"), "likes", {"drink": "tea"})
    >>> store.get(("users", "ann"), "likes").value
    {'drink': 'tea'}
    """

    supports_ttl = True

    __slots__ = (
        "_bell",
        "_fields",
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
        self._bell = Bell()
        self._sweeper: threading.Thread | None = None

    @classmethod
    @contextmanager
    def from_path(cls, path: "str | Path", **options: Any) -> "Generator[RefoldStore]":
        """Open the memory of a path for a block, and give a store in it."""
        with Memory(path) as memory:
            store = cls(memory, **options)
            try:
                yield store
            finally:
                store.stop_ttl_sweeper()

    # Batches.

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do operations at once: reads see the state before them, and what is put or deleted is one commit."""
        operations = [*ops]
        writes, queries = self._writes(operations), _queries(operations)
        texts = [each for write in writes for each in write.texts]
        vectors: dict[str, Vector] = {}
        if self.embeddings is not None:
            vectors = {query: self.embeddings.embed_query(query) for query in queries}
            _embed(writes, self.embeddings.embed_documents(texts) if texts else [])
        return self._done(operations, writes, vectors)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do operations at once, as ``batch`` does; a thread reads and writes."""
        operations = [*ops]
        writes, queries = self._writes(operations), _queries(operations)
        texts = [each for write in writes for each in write.texts]
        vectors: dict[str, Vector] = {}
        if self.embeddings is not None:
            made = await asyncio.gather(*map(self.embeddings.aembed_query, queries))
            vectors = dict(zip(queries, made, strict=True))
            _embed(writes, await self.embeddings.aembed_documents(texts) if texts else [])
        return await asyncio.to_thread(self._done, operations, writes, vectors)

    def _writes(self, ops: Sequence[Op]) -> list[_Write]:
        """Return what is written: of several operations on one key, the last one."""
        last = {_Place(tuple(op.namespace), op.key): op for op in ops if isinstance(op, PutOp)}
        return [_Write(place, op, self._texts(op), []) for place, op in last.items()]

    def _texts(self, op: PutOp) -> list[str]:
        if self.embeddings is None or op.value is None or op.index is False:
            return []
        fields = self._fields if op.index is None else _paths(op.index)
        return [found for field in fields for found in get_text_at_path(op.value, field)]

    def _done(self, ops: Sequence[Op], writes: Sequence[_Write], vectors: dict[str, Vector]) -> list[Result]:
        results = [self._answer(op, vectors) for op in ops]
        if writes:
            with self.memory.acting(_ACTOR):
                self.memory.transact(partial(self._put_all, writes))
        return results

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
        place, op = write.place, write.op
        before = self._table.item(_key(place))
        project = self.memory.project(self._project(place.namespace))
        for held in before.value["entries"] if before is not None else ():
            project.delete(held)
        if op.value is None:
            self._table.delete(_key(place))
            return
        entries: list[str] = []
        for number, (words, vector) in enumerate(zip(write.texts, write.vectors, strict=True)):
            if any(vector):
                # One content is one memory, whatever its metadata: the key makes it another one.
                content = f"{place.key} {number}: {words}"
                entries.append(project.add(content, vector=list(vector), metadata={"key": place.key}).id)
        created = 0 if before is None else before.value["created"] or before.time_ns
        self._take(place, op.value, entries, created, op.ttl)

    def _take(
        self, place: _Place, value: Mapping[str, Any], entries: Sequence[str], created_ns: int, ttl: float | None
    ) -> None:
        row = {"value": dict(value), "created": created_ns, "ttl": ttl, "entries": list(entries)}
        self._table.put(_key(place), row, expires=_end(ttl))

    def take(
        self, namespace: Namespace, key: str, value: dict[str, Any], *, created_ns: int, ttl: float | None = None
    ) -> None:
        """Put an item that another store has had since ``created_ns``, without embedding it."""
        with self.memory.acting(_ACTOR):
            self._take(_Place(namespace, key), value, (), created_ns, ttl)

    # Reading.

    def _project(self, namespace: Namespace) -> str:
        """Return the project of a namespace; one whose name would be too long goes by its hash."""
        name = f"{self.prefix}/{_SEPARATOR.join(namespace)}"
        return name if len(name.encode()) <= _NAME_BYTES_MAX else f"{self.prefix}/{sha256(name.encode()).hexdigest()}"

    def _get(self, op: GetOp) -> Item | None:
        place = _Place(tuple(op.namespace), op.key)
        item = self._table.item(_key(place))
        if item is None:
            return None
        if op.refresh_ttl:
            self._refresh(item)
        return Item(**_fields(place, item))

    def _refresh(self, item: TableItem) -> None:
        """Let an item that ends live as long again from now on."""
        row = item.value
        if row["ttl"] is not None:
            with self.memory.acting(_ACTOR):
                self._table.put(item.key, row, expires=_end(row["ttl"]))

    def _search(self, op: SearchOp, vector: Vector | None) -> list[SearchItem]:
        prefix = tuple(op.namespace_prefix)
        found = {_place(item): item for item in self._table.scan(tuple(map(part, prefix)) if prefix else "")}
        # A key may begin with the parts of a namespace, and is none.
        held = {place: item for place, item in found.items() if place.namespace[: len(prefix)] == prefix}
        if op.filter:
            wanted = op.filter.items()
            held = {
                place: item
                for place, item in held.items()
                if all(_matches(item.value["value"].get(name), value) for name, value in wanted)
            }
        scores = {} if vector is None else self._scores(held, op.query or "", vector)
        newest = sorted(held, key=lambda place: -held[place].seq)
        order = sorted(scores, key=lambda place: -scores[place]) + [place for place in newest if place not in scores]
        page = order[op.offset : op.offset + op.limit]
        if op.refresh_ttl:
            for place in page:
                self._refresh(held[place])
        return [SearchItem(**_fields(place, held[place]), score=scores.get(place)) for place in page]

    def _scores(self, held: "dict[_Place, TableItem]", query: str, vector: Vector) -> "dict[_Place, float]":
        scores: dict[_Place, float] = {}
        for namespace in {place.namespace for place in held}:
            project = self.memory.project(self._project(namespace))
            count = project.count()
            if not count:
                continue
            hits = project.search(query, vector=list(vector), ranking=_COSINE, top_k=count, min_importance=0.0)
            for hit in hits:
                place = _Place(namespace, (hit.entry.metadata or {})["key"])
                if place in held:
                    scores[place] = max(hit.score, scores.get(place, hit.score))
        return scores

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        known = {_split(key).namespace for key in self._table.keys()}  # noqa: SIM118 - no mapping
        fitting = {
            namespace for namespace in known if all(_fits(each, namespace) for each in op.match_conditions or ())
        }
        if op.max_depth is not None:
            fitting = {namespace[: op.max_depth] for namespace in fitting}
        return sorted(fitting)[op.offset : op.offset + op.limit]

    # Time to live.

    def sweep_ttl(self) -> int:
        """Delete the items whose time is over, with what was embedded of them; return how many."""
        with self.memory.acting(_ACTOR):
            for namespace in {_split(key).namespace for key in self._table.keys()} if self.embeddings else ():  # noqa: SIM118
                project = self.memory.project(self._project(namespace))
                for entry in project.list():
                    if self._table.item(_key(_Place(namespace, (entry.metadata or {})["key"]))) is None:
                        project.delete(entry)
            return self._table.expire()

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> None:
        """Sweep every so many minutes on a thread of its own, until ``stop_ttl_sweeper``; one that runs goes on."""
        given = sweep_interval_minutes or (self.ttl_config or {}).get("sweep_interval_minutes")
        interval = 60 * float(given or _SWEEP_MINUTES)
        if self._sweeper is not None and self._sweeper.is_alive():
            return
        bell = self._bell = Bell()

        def sweep() -> None:
            while not bell.wait(interval):
                self.sweep_ttl()

        self._sweeper = threading.Thread(target=sweep, name="refold-langgraph-ttl", daemon=True)
        self._sweeper.start()

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop sweeping; return whether the thread has ended."""
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
    """Give each write the vectors of its texts."""
    left = iter(vectors)
    for write in writes:
        write.vectors.extend(next(left) for _ in write.texts)


def _end(ttl: float | None) -> timedelta | None:
    return None if ttl is None else timedelta(minutes=ttl)


def _key(place: _Place) -> tuple[str, ...]:
    return tuple(map(part, (*place.namespace, place.key)))


def _split(key: "str | tuple[str, ...]") -> _Place:
    *namespace, last = map(text, key if isinstance(key, tuple) else (key,))
    return _Place(tuple(namespace), last)


def _place(item: TableItem) -> _Place:
    return _split(item.key)


def _fields(place: _Place, item: TableItem) -> dict[str, Any]:
    row, updated = item.value, _moment(item.time_ns)
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


def _fits(condition: MatchCondition, namespace: Namespace) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    own = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, own, strict=True))


_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$eq": lambda held, value: held == value,
    "$ne": lambda held, value: held != value,
    "$gt": lambda held, value: float(held) > float(value),
    "$gte": lambda held, value: float(held) >= float(value),
    "$lt": lambda held, value: float(held) < float(value),
    "$lte": lambda held, value: float(held) <= float(value),
}


def _matches(held: Any, wanted: object) -> bool:
    """Return whether a value is the wanted one, or compares as the wanted operators say."""
    if isinstance(wanted, (list, tuple)):
        items = cast("Sequence[object]", wanted)
        own: object = held
        if not isinstance(own, list):
            return False
        values = cast("Sequence[Any]", own)
        return len(values) == len(items) and all(map(_matches, values, items))
    if not isinstance(wanted, dict):
        return bool(held == wanted)
    fields = cast("dict[str, object]", wanted)
    if not any(name.startswith("$") for name in fields):
        return isinstance(held, dict) and all(_matches(held.get(name), value) for name, value in fields.items())  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    unknown = [name for name in fields if name not in _COMPARED]
    if unknown:
        raise ValueError(f"Unsupported operator: {unknown[0]}")
    return all(
        (held is not None or name in ("$eq", "$ne")) and _COMPARED[name](held, value) for name, value in fields.items()
    )
