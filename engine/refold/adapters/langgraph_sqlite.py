"""Migration of LangGraph's SQLite data into a memory: threads, checkpoints, writes, and the items of its store."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from refold import InvalidInput, Memory
from refold.adapters.extras import import_extra
from refold.adapters.langgraph import RefoldSaver
from refold.adapters.langgraph_store import RefoldStore

with import_extra("langgraph"):
    import ormsgpack
    from langgraph.checkpoint.base import Checkpoint
    from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
    from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT, EXT_NUMPY_ARRAY, JsonPlusSerializer

FORMAT: Final = "langgraph-sqlite"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SERDE: Final = JsonPlusSerializer(allowed_msgpack_modules=None)
"""Instantiates only LangGraph's safe classes: an untrusted file could name any function on this machine."""
_CHECKPOINTS: Final = """
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints
    ORDER BY thread_id, checkpoint_ns, checkpoint_id
"""
_WRITES: Final = """
    SELECT task_id, {path}, channel, type, value FROM writes
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx
"""
_ITEMS: Final = "SELECT prefix, key, value, created_at, updated_at, {ttl} FROM {store} ORDER BY updated_at"
_UNEXPIRED: Final = "(SELECT * FROM store WHERE expires_at IS NULL OR expires_at >= CURRENT_TIMESTAMP)"

Progress = Callable[[int, int], None] | None


class MigrationResult(Struct, frozen=True):
    """The result of a migration: the counts of what was taken, and of the checkpoints and items that were known."""

    file: str
    threads: int
    checkpoints: int
    items: int
    known: int

    format: str = FORMAT
    repeated: bool = False
    conflicts: tuple[str, ...] = ()
    """The items that were changed both in the file and here since they were taken, and stay as they are here."""


class _ImportedEntry(NamedTuple):
    """A checkpoint or an item of the file, and what became of it."""

    kind: Literal["checkpoint", "item", "known", "conflict"]
    name: str
    """The thread of a checkpoint, or the name of an item."""


def migrate(
    memory: Memory,
    path: "str | Path",
    *,
    prefix: str = "langgraph/",
    store_prefix: str = "langgraph-store",
    progress: Progress = None,
) -> MigrationResult:
    """Copy the data of ``SqliteSaver`` and ``SqliteStore`` from a file into a memory, and return the counts.

    The threads then belong to ``RefoldSaver(memory, prefix=prefix)``, with their messages as conversations, and the
    items to ``RefoldStore(memory, prefix=store_prefix)``; vectors are left out, and computed when an item is put again.
    Only values of LangGraph's safe classes are instantiated here. Other values stay packed and are instantiated when a
    checkpoint is read, so read the checkpoints of an untrusted file with ``LANGGRAPH_STRICT_MSGPACK=true``. A message
    that contains such a value stays packed too; the conversation of its thread is then created by the next write to it.
    The file is only read. A later migration takes what is new and the items whose values have changed since, but none
    that was put here meanwhile; so an interrupted migration continues where it stopped. What was deleted in the file
    since stays here, and what was deleted here comes again. Items that have expired are left out. Raises
    ``InvalidInput`` for a file that contains neither.
    """
    file = Path(path)
    if file.exists() and not file.is_file():  # SQLite would wait for a pipe.
        raise InvalidInput(f"{path} is no file; give the file of a SqliteSaver")
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        try:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.DatabaseError as error:
            raise InvalidInput(f"{path} is no SQLite database ({error}); give the file of a SqliteSaver") from error
        if not tables & {"checkpoints", "store"}:
            raise InvalidInput(
                f"{path} holds neither checkpoints nor a store of LangGraph; give the file of a SqliteSaver"
            )
        columns = {row[1] for row in connection.execute("PRAGMA table_info(store)")}
        items = _UNEXPIRED if "expires_at" in columns else "store"
        counted = [
            connection.execute(f"SELECT count(*) FROM {rows}").fetchone()[0] if table in tables else 0  # noqa: S608
            for table, rows in (("checkpoints", "checkpoints"), ("store", items))
        ]
        taken = chain(
            _checkpoints(connection, RefoldSaver(memory, prefix=prefix)) if "checkpoints" in tables else (),
            _items(connection, items, RefoldStore(memory, prefix=store_prefix)) if "store" in tables else (),
        )
        threads, conflicts, counts = set[str](), list[str](), Counter[str]()
        for done, entry in enumerate(taken, 1):
            counts[entry.kind] += 1
            if entry.kind == "checkpoint":
                threads.add(entry.name)
            elif entry.kind == "conflict":
                conflicts.append(entry.name)
            if progress is not None:
                progress(done, sum(counted))
    return MigrationResult(
        str(path),
        len(threads),
        counts["checkpoint"],
        counts["item"],
        counts["known"],
        repeated=counts["known"] == sum(counted) > 0,
        conflicts=tuple(conflicts),
    )


def _checkpoints(connection: sqlite3.Connection, saver: RefoldSaver) -> Iterator[_ImportedEntry]:
    """Copy the checkpoints, each thread's in order."""
    serde = JsonPlusSerializer(__unpack_ext_hook__=_value)
    has_path = any(row[1] == "task_path" for row in connection.execute("PRAGMA table_info(writes)"))
    writes = _WRITES.format(path="task_path" if has_path else "''")
    for _, rows in groupby(connection.execute(_CHECKPOINTS), key=itemgetter(0, 1)):
        versions: dict[str, dict[str, Any]] = {}
        for thread, ns, checkpoint_id, parent, kind, packed, metadata in rows:
            place = {"thread_id": thread, "checkpoint_ns": ns}
            config: Any = {"configurable": place | {"checkpoint_id": checkpoint_id}}
            checkpoint: Checkpoint = serde.loads_typed((kind, packed))
            before = versions.get(parent or "", {})
            versions[checkpoint_id] = dict(checkpoint["channel_versions"])
            is_new = not saver.has_checkpoint(config)
            if is_new:
                fresh: Any = {
                    channel: version
                    for channel, version in checkpoint["channel_versions"].items()
                    if before.get(channel) != version
                }
                origin: Any = {"configurable": place | ({"checkpoint_id": parent} if parent else {})}
                saver.put(origin, checkpoint, json.loads(metadata) if metadata else {}, fresh)
                found = connection.execute(writes, (thread, ns, checkpoint_id)).fetchall()
                for (task, path), group in groupby(found, key=itemgetter(0, 1)):
                    saver.put_writes(
                        config, [(row[2], serde.loads_typed((row[3], row[4]))) for row in group], task, path
                    )
            yield _ImportedEntry("checkpoint" if is_new else "known", thread)


def _value(code: int, data: bytes) -> Any:
    """Return a value of one of LangGraph's safe classes, such as a message; any other value stays packed."""
    packed = ormsgpack.Ext(code, data)
    return _SERDE.loads_typed(("msgpack", ormsgpack.packb(packed))) if _is_safe(code, data) else packed


def _is_safe(code: int, data: bytes) -> bool:
    """Return whether a packed value, and every value packed in it, is of one of LangGraph's safe classes."""
    waiting = [(code, data)]

    def note(code: int, data: bytes) -> None:
        waiting.append((code, data))

    while waiting:
        code, data = waiting.pop()
        try:
            held: Any = ormsgpack.unpackb(data, ext_hook=note, option=ormsgpack.OPT_NON_STR_KEYS)
            # A channel snapshot is its value, an array its numbers; all other types are module, name and arguments.
            if code not in {EXT_DELTA_SNAPSHOT, EXT_NUMPY_ARRAY} and (held[0], held[1]) not in SAFE_MSGPACK_TYPES:
                return False
        except (ValueError, LookupError, TypeError):
            return False
    return True


def _items(connection: sqlite3.Connection, items: str, store: RefoldStore) -> Iterator[_ImportedEntry]:
    """Copy the items of a store."""
    has_ttl = any(row[1] == "ttl_minutes" for row in connection.execute("PRAGMA table_info(store)"))
    rows = connection.execute(_ITEMS.format(ttl="ttl_minutes" if has_ttl else "NULL", store=items))
    for prefix, key, value, created, updated, ttl in rows:
        times = {"created_ns": _moment_ns(created), "updated_ns": _moment_ns(updated)}
        result = store.import_item(tuple(prefix.split(".")), key, json.loads(value), **times, ttl=ttl)
        yield _ImportedEntry("item" if result == "taken" else result, f"{prefix}/{key}")


def _moment_ns(text: str) -> int:
    """Return an SQLite time as nanoseconds since 1970; a time without a zone means UTC."""
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1) * 1_000
