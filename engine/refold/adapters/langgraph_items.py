"""The items of a thread of LangGraph: their keys, what they hold, and lists of messages as the digests of these."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from hashlib import blake2b
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias, cast

from langchain_core.messages import BaseMessage

from refold import ANY, NO_STREAM, Snapshot
from refold.adapters.keys import part
from refold.adapters.langchain_messages import Fields, without_gaps
from refold.memory import Table, TableItem

Key: TypeAlias = str | tuple[str, ...]
Names: TypeAlias = list[str]
Values: TypeAlias = list[Any]
Messages: TypeAlias = list[BaseMessage | None]
Load: TypeAlias = Callable[[Sequence[Any]], Any]
"""Loads what was dumped: its kind and its bytes."""

Record: TypeAlias = dict[str, Any]
"""What the item of a checkpoint holds: it and its own metadata as they were dumped, the digest of the rest, the values
that are numbers, truths or nothing, and of those that are lists of messages the digests. All other values are items of
their own, so that an erasure of one leaves the others."""

# The kinds of items: the first parts of their keys, and what the others are.
CHECKPOINT: Final = "c"  # Namespace, id.
WRITES: Final = "w"  # Namespace, id, task, and the slot: a special channel has one of its own.
VALUE: Final = "v"  # Namespace, channel, version: a value that is neither in the checkpoint nor a list of messages.
LIST: Final = "l"  # Digest of the digests of messages.
MESSAGE: Final = "m"  # Digest.
THREAD: Final = "t"  # None. The id of the thread, where the name of its table is not made of it alone.
REGULAR: Final = "r"  # The slot of the writes of all other channels.
BEHIND: Final = "\x01"  # Behind a part that is a whole text, it is behind all that begins with that part.

_METADATA: Final = "__metadata__"  # In the place of a channel.
_OWN_METADATA: Final = frozenset(("source", "step", "parents", "run_id", "counters_since_delta_snapshot"))
"""The metadata that LangGraph itself gives to a checkpoint. What a host adds, the name of a user for example, is an
item of its own, so that an erasure of it leaves the checkpoint."""

DIGEST_BYTES: Final = 16
LIST_COUNT: Final = 64  # Digests of one list: all checkpoints share those that are full.
_LISTS_COUNT_MAX: Final = 1_024  # Lists that are remembered.
_PART_BYTES_MAX: Final = 600  # Of a part of a key: five of them are one.
_INTEGER_MAX: Final = 2**53
_CUT: Final = "\x01-"  # What no part holds that is a whole text.


def bounded(text: str, bytes_max: int = _PART_BYTES_MAX) -> str:
    """Return the part of a key for a text; of one that is too long the beginning and a digest."""
    whole = part(text)
    if len(whole) <= bytes_max and whole.isascii():
        return whole
    packed = whole.encode()
    if len(packed) <= bytes_max:
        return whole
    digest = blake2b(packed, digest_size=DIGEST_BYTES).hexdigest()
    begin = packed[: bytes_max - len(_CUT) - len(digest)].decode(errors="ignore")
    # An escape that is cut in two would make a text of what follows.
    return f"{begin.rstrip(_CUT[0])}{_CUT}{digest}"


def checkpoint_key(ns: str, checkpoint_id: str) -> tuple[str, str, str]:
    """Return the key of a checkpoint."""
    return CHECKPOINT, bounded(ns), bounded(checkpoint_id)


def value_key(ns: str, channel: str, version: object) -> Key:
    """Return the key of a value of a channel."""
    return VALUE, bounded(ns), bounded(channel), bounded(str(version))


def metadata_key(record: Record) -> Key:
    """Return the key of the rest of a checkpoint's metadata: all that have the same one share its item."""
    return value_key(record["ns"], _METADATA, record["more"])


def split_metadata(metadata: Mapping[str, Any], *, splits: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metadata that a checkpoint holds itself, and the rest of them; all, unless it splits."""
    own = {name: value for name, value in metadata.items() if name in _OWN_METADATA or not splits}
    return own, {name: value for name, value in metadata.items() if name not in own}


def packed(digests: Sequence[str]) -> bytes:
    """Return digests as bytes."""
    return bytes.fromhex("".join(digests))


def unpacked(held: bytes) -> Names:
    """Return digests of bytes."""
    text, step = held.hex(), 2 * DIGEST_BYTES
    return [text[begin : begin + step] for begin in range(0, len(text), step)]


def digest_of(digests: Sequence[str]) -> str:
    """Return the digest of digests."""
    return blake2b(packed(digests), digest_size=DIGEST_BYTES).hexdigest()


def listed(digests: Sequence[str]) -> dict[str, bytes]:
    """Return what is held of a list of messages: which lists it begins with, and what is behind them."""
    full = len(digests) // LIST_COUNT * LIST_COUNT
    lists = [digest_of(digests[begin : begin + LIST_COUNT]) for begin in range(0, full, LIST_COUNT)]
    return {"lists": packed(lists), "rest": packed(digests[full:])}


class Lists:
    """The lists of digests of a memory's threads; those that were read lately are remembered."""

    def __init__(self) -> None:
        self._known: dict[str, Names] = {}

    def digests(self, table: Table, held: Sequence[Mapping[str, bytes]]) -> list[Names]:
        """Return the digests of the messages of each of several lists."""
        heads = [unpacked(each["lists"]) for each in held]
        known = self._known
        new = {(LIST, name) for head in heads for name in head if name not in known}
        if new:
            read = {item.key[1]: unpacked(item.value) for item in table.get_many(new)}
            self._known = read if len(known) + len(read) > _LISTS_COUNT_MAX else known | read
            known = known | read
        return [
            [digest for name in head for digest in known.get(name, ())] + unpacked(each["rest"])
            for head, each in zip(heads, held, strict=True)
        ]


class Held(NamedTuple):
    """A checkpoint as its table holds it."""

    seq: int
    """Below 1 for one that is not committed."""
    key: Key
    record: Record
    versions: Mapping[str, Any]
    digests: Mapping[str, Names]
    """Those of the messages of each list, by its channel."""
    others: Container[str]
    """The channels whose values were items of their own when it was put; of one that was read, none."""


class Move(NamedTuple):
    """How a conversation comes to show the messages of a checkpoint, from the version where it is."""

    version: int
    base: Key | None
    """The key of the checkpoint whose messages it shows then."""
    back: Snapshot | None
    """Where it goes back to first."""
    before: Names
    after: Names
    """The digests of what it shows then, and of what it has to show."""


class Page:
    """What several checkpoints hold, read at once."""

    def __init__(
        self,
        load: Load,
        there: set[Key],
        values: Mapping[Key, Values],
        messages: Mapping[str, Fields | Values],
    ) -> None:
        self.there = there
        """The keys of the checkpoints that are still there."""
        self._load, self._values, self._messages = load, values, messages

    def values(self, held: Held, channels: Iterable[str]) -> dict[str, Any]:
        """Return the values of those channels that have one at a checkpoint, new ones at each call."""
        values: dict[str, Any] = {}
        plain = held.record["plain"]
        for channel in channels:
            if channel in plain:
                values[channel] = plain[channel]
            elif channel in held.digests:
                values[channel] = without_gaps(made(held.digests[channel], self._messages, self._load))
            elif channel in held.versions:
                value = self._values.get(value_key(held.record["ns"], channel, held.versions[channel]))
                if value is not None:
                    values[channel] = self._load(value)
        return values

    def metadata(self, held: Held) -> dict[str, Any]:
        """Return the rest of the metadata of a checkpoint, new ones at each call; none where they were erased."""
        more = self._values.get(metadata_key(held.record)) if held.record["more"] else None
        return {} if more is None else self._load(more)


def made(digests: Names, found: Mapping[str, Fields | Values], load: Load) -> Messages:
    """Return the messages of digests, ``None`` for one that was erased."""
    held = [found.get(digest) for digest in digests]
    dumped = iter(loaded(load, [each for each in held if isinstance(each, list)]))
    return [each.message() if isinstance(each, Fields) else None if each is None else next(dumped) for each in held]


def loaded(load: Load, dumped: Sequence[Values]) -> list[BaseMessage]:
    """Return messages as they were dumped."""
    if len(dumped) > 1 and all(kind == "msgpack" for kind, _ in dumped):
        # Behind a head, what was packed one by one is a list: it is unpacked at once, in a quarter of the time.
        whole = b"\xdd" + len(dumped).to_bytes(4, "big") + b"".join(data for _, data in dumped)
        return [*load(("msgpack", whole))]
    return [*map(load, dumped)]


def is_plain(value: object) -> bool:
    """Return whether a value is one that a record holds itself: it has no text that one might erase."""
    kind = type(value)
    if kind is int:
        return -_INTEGER_MAX <= cast("int", value) <= _INTEGER_MAX
    return value is None or kind is bool or (kind is float and isfinite(cast("float", value)))


def newest_key(table: Table, ns: str) -> Key | None:
    """Return the key of the newest checkpoint, ``None`` where there is none."""
    return next(iter(table.keys((CHECKPOINT, bounded(ns)), reverse=True, limit=1)), None)


def writes_of(table: Table, keys: Sequence[tuple[str, ...]]) -> dict[Key, list[TableItem]]:
    """Return the items of the writes of checkpoints that follow each other in their namespaces."""
    found: dict[Key, list[TableItem]] = {}
    for ns in dict.fromkeys(key[1] for key in keys):
        ids = [key[2] for key in keys if key[1] == ns]
        for item in table.scan((WRITES, ns), after=(WRITES, ns, min(ids)), before=(WRITES, ns, max(ids) + BEHIND)):
            found.setdefault((CHECKPOINT, ns, item.key[2]), []).append(item)
    return found


def put_rows(table: Table, rows: Mapping[Key, Values], *, is_new: bool = False) -> None:
    """Write what a task wrote, within the open batch; ``WrongVersion`` where it is not new."""
    for key, new in rows.items():
        if key[-1] != REGULAR:
            table.put(key, new[-1:])
            continue
        held: list[list[Any]] = [] if is_new else table.get(key, [])
        known = {row[2] for row in held}
        more = [row for row in new if row[2] not in known]
        if more:
            table.put(key, held + more, expected=NO_STREAM if is_new else ANY)
