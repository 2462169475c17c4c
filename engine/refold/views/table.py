"""Tables: items under keys; a state holds their positions in the log, and never the values.

A key is one text, or several joined by NUL, which sorts like the tuple of its parts. A state holds the seq of the event
that put an item, so that large values take no RAM.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct

from refold import checks
from refold.event import Event, Located, Stamp, View, decode_json
from refold.views.base import copy_slots

SEPARATOR: Final = "\0"
"""The separator of the parts of a key: the lowest character, so that joined keys sort like tuples of their parts."""

_LAST_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


class ItemPut(Event, frozen=True, tag=93):
    """A key of a table got a value, which expires at ``expires_ns`` unless that is 0."""

    sentence: ClassVar[str] = "item {key} was put into the table"
    subject: ClassVar[tuple[str, str]] = ("item", "key")

    prior: int
    expires_ns: int
    key: str = ""
    item: bytes = b"\xc0"
    """The value as msgpack: JSON, with bytes anywhere in it."""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            check_key(self.key)
            checks.packed_value(decode_json(self.item), "value")


class ItemDeleted(Event, frozen=True, tag=94):
    """An item was removed from a table."""

    sentence: ClassVar[str] = "item {key} of the table was deleted"
    subject: ClassVar[tuple[str, str]] = ("item", "key")

    prior: int
    key: str = ""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            check_key(self.key)

    def removes(self, key: str) -> bool:  # noqa: ARG002 - it names only one
        return True


class ItemsDeleted(Event, frozen=True, tag=95):
    """Several items were removed from a table at once, named by the seqs that put them and by their keys."""

    sentence: ClassVar[str] = "items {keys} of the table were deleted"

    seqs: tuple[int, ...]
    keys: tuple[str, ...] = ()

    def check(self, *, is_erased: bool) -> None:
        if is_erased:
            return
        for key in self.keys:
            check_key(key)
        if len(self.keys) != len(self.seqs):
            raise msgspec.ValidationError(f"{len(self.keys)} keys and {len(self.seqs)} seqs of items")


class ItemEndSet(Event, frozen=True, tag=96):
    """An item of a table, put at ``prior``, got another expiry time, 0 for none."""

    sentence: ClassVar[str] = "item {key} of the table got another end"
    subject: ClassVar[tuple[str, str]] = ("item", "key")

    prior: int
    expires_ns: int
    key: str = ""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            check_key(self.key)


def check_key(joined: str) -> str:
    """Return a joined key; raises ``InvalidInput`` for an empty part, ``LimitExceeded`` for a key that is too long."""
    checks.key(joined)
    if "" in joined.split(SEPARATOR):
        checks.invalid(f"key {checks.brief(joined)} has an empty part; give each part at least one character")
    return joined


class Pointer(Struct, frozen=True, gc=False):
    """The position of a value, and when its item expires (0: never); a ``diff`` shows the value itself."""

    seq: int
    expires_ns: int


class Items:
    """The seq of each item by key, and the expiry times of the items that expire."""

    __slots__ = ("_keys", "_order", "expires", "seqs")

    def __init__(self) -> None:
        self.seqs: dict[str, int] = {}
        self.expires: dict[str, int] = {}
        self._order: list[str] | None = None
        """The sorted keys, once they are needed."""
        self._keys: dict[int, str] | None = None
        """The keys by the seqs of their values, once they are needed."""

    copy = copy_slots

    @property
    def values(self) -> dict[str, int]:
        """The seqs by key, which stand for the values here."""
        return self.seqs

    @property
    def entries(self) -> "Items":
        """The items themselves, under the name by which decisions on a key read them."""
        return self

    def prior(self, key: str) -> tuple[int, int]:
        """Return the seq of a key's value and its expiry time, since a new expiry time is a change of the key, too."""
        return self.seqs.get(key, 0), self.expires.get(key, 0)

    def put(self, key: str, seq: int, expires_ns: int) -> None:
        before = self.seqs.get(key)
        if before is None and self._order is not None:
            insort(self._order, key)
        if self._keys is not None:
            self._keys.pop(before or 0, None)
            self._keys[seq] = key
        self.seqs[key] = seq
        self._set_expiry(key, expires_ns)

    def _set_expiry(self, key: str, expires_ns: int) -> None:
        if expires_ns:
            self.expires[key] = expires_ns
        else:
            self.expires.pop(key, None)

    def set_expiry_at(self, seq: int, expires_ns: int) -> None:
        """Set the expiry time of the item that was put at a seq, if it still exists; 0 for never."""
        key = self._key_at(seq)
        if key is not None:
            self._set_expiry(key, expires_ns)

    def drop(self, key: str) -> None:
        seq = self.seqs.pop(key, None)
        if seq is None:
            return
        if self._order is not None:
            del self._order[bisect_left(self._order, key)]
        if self._keys is not None:
            del self._keys[seq]
        self.expires.pop(key, None)

    def drop_at(self, seq: int) -> None:
        """Remove the item that was put at a seq, if it still exists."""
        key = self._key_at(seq)
        if key is not None:
            self.drop(key)

    def _key_at(self, seq: int) -> str | None:
        if self._keys is None:
            self._keys = {put: key for key, put in self.seqs.items()}
        return self._keys.get(seq)

    def between(self, first: str, end: str | None, *, reverse: bool) -> Iterator[str]:
        """Yield the keys from ``first`` up to ``end``, exclusive, in order or in reverse order."""
        if self._order is None:
            self._order = sorted(self.seqs)
        low = bisect_left(self._order, first)
        high = len(self._order) if end is None else bisect_left(self._order, end)
        return map(self._order.__getitem__, range(high - 1, low - 1, -1) if reverse else range(low, high))

    def pack(self) -> tuple[Any, list[int]]:
        return [list(self.seqs), list(self.seqs.values()), self.expires] if self.seqs else None, []

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Items":
        items = cls()
        if inline is not None:
            keys, seqs, items.expires = msgspec.convert(inline, tuple[list[str], list[int], dict[str, int]])
            items.seqs = dict(zip(keys, seqs, strict=True))
        return items

    def logical(self) -> Any:
        return [[key, seq, self.expires.get(key, 0)] for key, seq in sorted(self.seqs.items())] or None

    def content(self) -> Any:
        return self.seqs, self.expires

    def plain(self) -> dict[str, Any]:
        return {key: Pointer(seq, self.expires.get(key, 0)) for key, seq in sorted(self.seqs.items())}


def behind(prefix: str) -> str | None:
    """Return the least key after all keys with a prefix, ``None`` if there is none."""
    for place in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[place]) + 1
        if code <= _LAST_CHARACTER:
            return prefix[:place] + chr(_SURROGATES.stop if code in _SURROGATES else code)
    return None


TABLE: Final = View("table", kinds=("table",), state=Items)


@TABLE.on(ItemPut)
def _item_put(items: Items, stamp: Stamp, event: ItemPut) -> None:
    if stamp.erased:
        items.drop_at(event.prior)
    else:
        items.put(event.key, stamp.seq, event.expires_ns)


@TABLE.on(ItemDeleted)
def _item_deleted(items: Items, stamp: Stamp, event: ItemDeleted) -> None:
    if stamp.erased:
        items.drop_at(event.prior)
    else:
        items.drop(event.key)


@TABLE.on(ItemsDeleted)
def _items_deleted(items: Items, stamp: Stamp, event: ItemsDeleted) -> None:
    if stamp.erased:
        for seq in event.seqs:
            items.drop_at(seq)
    else:
        for key in event.keys:
            items.drop(key)


@TABLE.on(ItemEndSet)
def _item_end_set(items: Items, _: Stamp, event: ItemEndSet) -> None:
    items.set_expiry_at(event.prior, event.expires_ns)
