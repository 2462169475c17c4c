"""The items of a LangGraph thread: their keys and contents, and lists of messages as lists of their digests."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from hashlib import blake2b
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias, cast

from refold import ANY, NO_STREAM, Snapshot
from refold.adapters.extras import import_extra
from refold.adapters.keys import part
from refold.adapters.langchain_messages import Fields, drop_erased
from refold.memory import Table, TableItem

with import_extra("langgraph"):
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig

Key: TypeAlias = str | tuple[str, ...]
Names: TypeAlias = list[str]
Values: TypeAlias = list[Any]
Messages: TypeAlias = list[BaseMessage | None]
Load: TypeAlias = Callable[[Sequence[Any]], Any]
"""Loads a dumped value, given its kind and its bytes."""

Record: TypeAlias = dict[str, Any]
"""The content of a checkpoint's item: the checkpoint and its own metadata as dumped, the digest of the remaining
metadata, the values that are numbers, booleans or None, and the digests of values that are lists of messages. All other
values are items of their own, so that erasing one leaves the others. "hidden" is in one that no conversation showed,
because a newer one was put before it."""

# The kinds of items: the first part of a key; each comment names the other parts.
CHECKPOINT: Final = "c"  # Namespace, id.
WRITES: Final = "w"  # Namespace, id, task, and slot; each special channel has its own slot.
VALUE: Final = "v"  # Namespace, channel, version: a value that is neither in the checkpoint nor a list of messages.
LIST: Final = "l"  # Digest of the digests of messages.
MESSAGE: Final = "m"  # Digest.
THREAD: Final = "t"  # No other parts. The id of the thread, if the name of its table is not made from it alone.
REGULAR: Final = "r"  # The slot for the writes to all other channels.
SHOWN: Final = "s"  # No other parts. The part of a key for the id of the checkpoint that the conversation shows.
BEHIND: Final = "\x01"  # A part with this appended sorts after all keys that have that part.

_METADATA: Final = "__metadata__"  # Takes the place of a channel.
_OWN_METADATA: Final = frozenset(("source", "step", "parents", "run_id", "counters_since_delta_snapshot"))
"""The metadata that LangGraph itself gives to a checkpoint. Metadata added by a host, such as the name of a user, is an
item of its own, so that erasing it leaves the checkpoint."""

DIGEST_BYTES: Final = 16
LIST_COUNT: Final = 64  # Digests per list; all checkpoints share the full lists.
_LISTS_COUNT_MAX: Final = 1_024  # The most lists to cache.
_PART_BYTES_MAX: Final = 600  # For one part of a key, which has up to five.
_INTEGER_MAX: Final = 2**53
_CUT: Final = "\x01-"  # Cannot occur in a part that is a whole text.


def key_part(text: str, bytes_max: int = _PART_BYTES_MAX) -> str:
    """Return a text as a part of a key; a text that is too long is cut and given a digest."""
    whole = part(text)
    if len(whole) <= bytes_max and whole.isascii():
        return whole
    packed = whole.encode()
    if len(packed) <= bytes_max:
        return whole
    digest = blake2b(packed, digest_size=DIGEST_BYTES).hexdigest()
    begin = packed[: bytes_max - len(_CUT) - len(digest)].decode(errors="ignore")
    # An escape cut in half would change the meaning of what follows.
    return f"{begin.rstrip(_CUT[0])}{_CUT}{digest}"


def checkpoint_key(ns: str, checkpoint_id: str) -> tuple[str, str, str]:
    """Return the key of a checkpoint."""
    return CHECKPOINT, key_part(ns), key_part(checkpoint_id)


def value_key(ns: str, channel: str, version: object) -> Key:
    """Return the key of a channel's value."""
    return VALUE, key_part(ns), key_part(channel), key_part(str(version))


def metadata_key(record: Record) -> Key:
    """Return the key of the rest of a checkpoint's metadata; checkpoints with the same rest share its item."""
    return value_key(record["ns"], _METADATA, record["more"])


def split_metadata(metadata: Mapping[str, Any], *, splits: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metadata that a checkpoint stores itself, and the rest; without `splits`, it stores all itself."""
    own = {name: value for name, value in metadata.items() if name in _OWN_METADATA or not splits}
    return own, {name: value for name, value in metadata.items() if name not in own}


def pack_digests(digests: Sequence[str]) -> bytes:
    """Return digests as bytes."""
    return bytes.fromhex("".join(digests))


def unpack_digests(held: bytes) -> Names:
    """Return the digests in packed bytes."""
    text, step = held.hex(), 2 * DIGEST_BYTES
    return [text[begin : begin + step] for begin in range(0, len(text), step)]


def digest_of(digests: Sequence[str]) -> str:
    """Return the digest of a list of digests."""
    return blake2b(pack_digests(digests), digest_size=DIGEST_BYTES).hexdigest()


def pack_list(digests: Sequence[str]) -> dict[str, bytes]:
    """Return the stored form of a list of messages: the full lists that it starts with, and the remaining digests."""
    full = len(digests) // LIST_COUNT * LIST_COUNT
    lists = [digest_of(digests[begin : begin + LIST_COUNT]) for begin in range(0, full, LIST_COUNT)]
    return {"lists": pack_digests(lists), "rest": pack_digests(digests[full:])}


class DigestLists:
    """The lists of digests in a memory's threads, with a cache of those read recently."""

    def __init__(self) -> None:
        self._known: dict[str, Names] = {}

    def digests(self, table: Table, held: Sequence[Mapping[str, bytes]]) -> list[Names]:
        """Return the digests of the messages in each of several lists."""
        heads = [unpack_digests(each["lists"]) for each in held]
        known = self._known
        new = {(LIST, name) for head in heads for name in head if name not in known}
        if new:
            read = {item.key[1]: unpack_digests(item.value) for item in table.get_many(new)}
            self._known = read if len(known) + len(read) > _LISTS_COUNT_MAX else known | read
            known = known | read
        return [
            [digest for name in head for digest in known.get(name, ())] + unpack_digests(each["rest"])
            for head, each in zip(heads, held, strict=True)
        ]


class StoredCheckpoint(NamedTuple):
    """A checkpoint as stored in its table."""

    seq: int
    """Below 1 if it is not committed."""
    key: Key
    record: Record
    versions: Mapping[str, Any]
    digests: Mapping[str, Names]
    """The digests of the messages of each list, by channel."""
    others: Container[str]
    """The channels whose values were items of their own when it was put; empty for a checkpoint that was read."""


class Move(NamedTuple):
    """How to bring a conversation, at a given version, to the messages of a checkpoint."""

    version: int
    shown: int
    """The seq of the item that says what the conversation shows; 0 if there is none."""
    base: Key | None
    """The key of the checkpoint whose messages it shows after going back."""
    back: Snapshot | None
    """The snapshot to go back to first."""
    before: Names
    after: Names
    """The digests of the messages that it shows then, and of those to show."""


class CheckpointStep(NamedTuple):
    """The changes that a checkpoint makes to its thread."""

    config: RunnableConfig
    thread: str
    base: StoredCheckpoint | None
    made: StoredCheckpoint
    """The checkpoint itself."""
    values: dict[Key, Any]
    """The values to put, or ``None`` to delete."""
    messages: dict[str, BaseMessage]
    move: Move | None
    """``None`` if the checkpoint is not shown."""


class CheckpointPage:
    """The contents of several checkpoints, read at once."""

    def __init__(
        self,
        load: Load,
        there: set[Key],
        values: Mapping[Key, Values],
        messages: Mapping[str, Fields | Values],
    ) -> None:
        self.there = there
        """The keys of the checkpoints that still exist."""
        self._load, self._values, self._messages = load, values, messages

    def values(self, held: StoredCheckpoint, channels: Iterable[str]) -> dict[str, Any]:
        """Return the values that the given channels have at a checkpoint, as new objects at each call."""
        values: dict[str, Any] = {}
        plain = held.record["plain"]
        for channel in channels:
            if channel in plain:
                values[channel] = plain[channel]
            elif channel in held.digests:
                values[channel] = drop_erased(make_messages(held.digests[channel], self._messages, self._load))
            elif channel in held.versions:
                value = self._values.get(value_key(held.record["ns"], channel, held.versions[channel]))
                if value is not None:
                    values[channel] = self._load(value)
        return values

    def metadata(self, held: StoredCheckpoint) -> dict[str, Any]:
        """Return the rest of a checkpoint's metadata, as new objects at each call; empty if erased."""
        more = self._values.get(metadata_key(held.record)) if held.record["more"] else None
        return {} if more is None else self._load(more)


def make_messages(digests: Names, stored: Mapping[str, Fields | Values], load: Load) -> Messages:
    """Return the messages with the given digests, with ``None`` for an erased one."""
    held = [stored.get(digest) for digest in digests]
    dumped = iter(load_messages(load, [each for each in held if isinstance(each, list)]))
    return [each.message() if isinstance(each, Fields) else None if each is None else next(dumped) for each in held]


def load_messages(load: Load, dumped: Sequence[Values]) -> list[BaseMessage]:
    """Load dumped messages."""
    if len(dumped) > 1 and all(kind == "msgpack" for kind, _ in dumped):
        # With a header in front, messages packed one by one form a list, which is unpacked in a quarter of the time.
        whole = b"\xdd" + len(dumped).to_bytes(4, "big") + b"".join(data for _, data in dumped)
        return [*load(("msgpack", whole))]
    return [*map(load, dumped)]


def is_plain(value: object) -> bool:
    """Return whether a record stores a value itself, because it contains no text that could be erased."""
    kind = type(value)
    if kind is int:
        return -_INTEGER_MAX <= cast("int", value) <= _INTEGER_MAX
    return value is None or kind is bool or (kind is float and isfinite(cast("float", value)))


def newest_key(table: Table, ns: str) -> Key | None:
    """Return the key of the newest checkpoint, or ``None`` if there is none."""
    return next(iter(table.keys((CHECKPOINT, key_part(ns)), reverse=True, limit=1)), None)


def writes_of(table: Table, keys: Sequence[tuple[str, ...]]) -> dict[Key, list[TableItem]]:
    """Return the items with the writes of checkpoints that follow each other in their namespaces."""
    items_of: dict[Key, list[TableItem]] = {}
    for ns in dict.fromkeys(key[1] for key in keys):
        ids = [key[2] for key in keys if key[1] == ns]
        for item in table.scan((WRITES, ns), after=(WRITES, ns, min(ids)), before=(WRITES, ns, max(ids) + BEHIND)):
            items_of.setdefault((CHECKPOINT, ns, item.key[2]), []).append(item)
    return items_of


def put_rows(table: Table, rows: Mapping[Key, Values], *, is_new: bool = False) -> None:
    """Store the writes of a task within the open batch; raises ``WrongVersion`` if `is_new` and any already exist."""
    for key, new in rows.items():
        if key[-1] != REGULAR:
            table.put(key, new[-1:])
            continue
        held: list[list[Any]] = [] if is_new else table.get(key, [])
        known = {row[2] for row in held}
        more = [row for row in new if row[2] not in known]
        if more:
            table.put(key, held + more, expected=NO_STREAM if is_new else ANY)


def are_equal(one: object, other: object) -> bool:
    """Return whether two values are equal in JSON, where, unlike in Python, true is not 1."""
    return _mark_flags(one) == _mark_flags(other)


def _mark_flags(value: object) -> object:
    if isinstance(value, dict):
        return {name: _mark_flags(each) for name, each in cast("dict[str, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [*map(_mark_flags, cast("Sequence[object]", value))]
    return (bool, value) if isinstance(value, bool) else value


def configurable_of(config: RunnableConfig | None) -> dict[str, Any]:
    """Return the fields of a config that name a thread, a namespace and a checkpoint."""
    return config.get("configurable", {}) if config else {}


def place_of(config: RunnableConfig) -> tuple[str, str]:
    """Return the thread and the namespace."""
    configurable = configurable_of(config)
    return str(configurable["thread_id"]), configurable.get("checkpoint_ns", "")


def config_of(thread: str, ns: str, cid: str) -> RunnableConfig:
    """Return the config that names a checkpoint."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": cid}}


def sweep(table: Table, kept: Iterable[TableItem], load: Load, known: DigestLists) -> None:
    """Delete values, lists and messages that no kept checkpoint refers to."""
    used, held = set[Key](), list[dict[str, bytes]]()
    for item in kept:
        record: Record = item.value
        versions = load(record["checkpoint"])["channel_versions"].items()
        used |= {value_key(record["ns"], *version) for version in versions}
        used |= {metadata_key(record)} if record["more"] else set()
        held += record["lists"].values()
    used |= {(LIST, digest) for each in held for digest in unpack_digests(each["lists"])}
    used |= {(MESSAGE, digest) for digests in known.digests(table, held) for digest in digests}
    for kind in (VALUE, LIST, MESSAGE):
        for key in table.keys((kind,)):
            if key not in used:
                table.delete(key)
