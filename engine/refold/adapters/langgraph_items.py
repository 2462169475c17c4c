"""The items of a thread of LangGraph: their keys, and lists of messages as the digests of these."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, TypeAlias

from refold.adapters.keys import part
from refold.memory import Table

Key: TypeAlias = str | tuple[str, ...]
Names: TypeAlias = list[str]

# The kinds of items: the first parts of their keys, and what the others are.
CHECKPOINT: Final = "c"  # Namespace, id.
WRITES: Final = "w"  # Namespace, id, task, and the slot: a special channel has one of its own.
VALUE: Final = "v"  # Namespace, channel, version: a value that is neither in the checkpoint nor a list of messages.
LIST: Final = "l"  # Digest of the digests of messages.
MESSAGE: Final = "m"  # Digest.
THREAD: Final = "t"  # None. The id of the thread, where the name of its table is not made of it alone.
REGULAR: Final = "r"  # The slot of the writes of all other channels.
BEHIND: Final = "\x01"  # Behind a part that is a whole text, it is behind all that begins with that part.

DIGEST_BYTES: Final = 16
LIST_COUNT: Final = 64  # Digests of one list: all checkpoints share those that are full.
_LISTS_COUNT_MAX: Final = 1_024  # Lists that are remembered.
_PART_BYTES_MAX: Final = 600  # Of a part of a key: five of them are one.
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
    return f"{packed[: bytes_max - len(_CUT) - len(digest)].decode(errors='ignore')}{_CUT}{digest}"


def checkpoint_key(ns: str, checkpoint_id: str) -> tuple[str, str, str]:
    """Return the key of a checkpoint."""
    return CHECKPOINT, bounded(ns), bounded(checkpoint_id)


def value_key(ns: str, channel: str, version: object) -> Key:
    """Return the key of a value of a channel."""
    return VALUE, bounded(ns), bounded(channel), bounded(str(version))


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
            known = self._known = read if len(known) + len(read) > _LISTS_COUNT_MAX else known | read
        return [
            [digest for name in head for digest in known.get(name, ())] + unpacked(each["rest"])
            for head, each in zip(heads, held, strict=True)
        ]
