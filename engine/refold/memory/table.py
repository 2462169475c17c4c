"""Tables: JSON values and bytes under keys, for programs that keep their own records in the log of a memory.

An item's key and the place of its value stay in RAM; values are read from the log on demand.
"""

import datetime as dates
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice, repeat, takewhile
from operator import itemgetter
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, Unpack, cast

from msgspec import Struct

from refold import checks, fold
from refold.engine import batch as batches
from refold.engine.conflicts import ANY, EXISTS, NO_STREAM
from refold.engine.keys import KeyDecision, KeyMap
from refold.engine.scan import EventFilter, seqs_with, starts_of
from refold.engine.streams import split_key as split_stream
from refold.engine.transaction import place_of
from refold.entry import SeqStamp
from refold.errors import WrongVersion
from refold.event import BranchForked, Event, Recorded, Restored, Stamp, unpack_json
from refold.fold import State
from refold.limits import KEY_BYTES_MAX, PAGE_EVENTS
from refold.memory import snapshot, store
from refold.memory.core import Core, Handle
from refold.memory.options import MutationOptions, mutation, nanoseconds, parse_options
from refold.results import Receipt
from refold.views.table import (
    SEPARATOR,
    TABLE,
    ItemDeleted,
    ItemEndSet,
    ItemPut,
    Items,
    ItemsDeleted,
    behind,
    check_key,
)

T = TypeVar("T")
Key: TypeAlias = str | tuple[str, ...]
Choose: TypeAlias = Callable[[Items], Iterable[str]]
"""A function that selects keys of a table."""


class _ItemPlace(NamedTuple):
    """The place of an item: its key, the seq of its value, and when it expires."""

    key: str
    seq: int
    expires_ns: int


ITEMS: Final[KeyMap[Any]] = KeyMap(TABLE)
_MICROSECOND: Final = dates.timedelta(microseconds=1)


class TableItem(Struct, frozen=True):
    """An item of a table: its key, the seq and time at which it was written, and when it expires (0: never).

    Items from ``history`` have the expiry time that they were put with.

    In an open batch, ``seq`` is below 0 and ``time_ns`` is 0.
    """

    key: Key
    packed: bytes
    """The value as msgpack."""
    seq: int
    time_ns: int
    expires_ns: int = 0

    @property
    def value(self) -> Any:
        """The value, a new object at each access."""
        return unpack_json(self.packed)

    @property
    def stamp(self) -> SeqStamp:
        """The stamp of the write, for ``sources`` and ``erase``."""
        return SeqStamp(self.seq)


class Table(Handle):
    """A handle on one table: JSON values and bytes under keys, in key order.

    A key is a text, or a tuple of texts, of at most ``KEY_BYTES_MAX`` = 4,096 bytes of UTF-8 in total, each without
    NUL; a tuple of one text is the same key as that text. A value is JSON that can contain bytes anywhere, of at most
    ``VALUE_BYTES_MAX`` = 16 MiB, and stays on disk; a key takes about 0.2 KB of RAM while its table is in use. Here,
    ``expected`` applies to the key: ``NO_STREAM`` while it has no item, ``EXISTS``, or the seq of the item.

    >>> from refold import Memory
    >>> table = Memory().table("jobs")
    >>> stamp = table.put(("mail", "7"), {"state": "sent", "body": b"raw"})
    >>> [(item.key, item.value["state"]) for item in table.scan(("mail",))]
    [(('mail', '7'), 'sent')]
    """

    __slots__ = ("name",)

    def __init__(self, core: Core, name: str, at: int | None) -> None:
        super().__init__(core, f"table/{name}", at)
        self.name = name

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self._core.counts(lambda: f'items={self.count()}')})"

    # Writing.

    @mutation
    def put(
        self,
        key: Key,
        value: Any,
        *,
        expires: "dates.datetime | dates.timedelta | None" = None,
        **options: Unpack[MutationOptions],
    ) -> Stamp:
        """Put an item under a key, replacing any item there, and return the stamp of the write.

        From ``expires`` on, an aware datetime or a timedelta from now, reads no longer show the item, and ``expire``
        deletes it. Raises ``WrongVersion`` if ``expected`` does not match.
        """
        joined, packed = join_key(key), checks.packed_value(value, "value")
        end_ns = self._expiry_ns(expires)
        cited, check = self._source_seqs(options), self._version_check(joined, options)

        def put(items: Any) -> Event:
            if check is not None:
                check(items)
            return ItemPut(cited, items.prior(joined)[0], end_ns, joined, packed)

        decide = KeyDecision(ITEMS, joined, put, is_blind=check is None)
        ends = None if expires is None else str(expires)
        recorded = self._write(decide, ("put", joined, packed, ends), _without_expected(options))
        assert recorded is not None, "an item that is put always appends"
        return recorded.stamp

    @mutation
    def set_expires(
        self,
        key: Key,
        expires: "dates.datetime | dates.timedelta | None",
        *,
        slack: dates.timedelta | None = None,
        **options: Unpack[MutationOptions],
    ) -> bool:
        """Change when an item expires, ``None`` for never; return whether that changed anything.

        Its value, seq and time stay. If there is no item, or it has expired, nothing is written, and ``False`` is
        returned. With ``slack``, an expiry time is only moved, and by no less than ``slack``: an item that never
        expires stays as it is.
        """
        joined, end_ns = join_key(key), self._expiry_ns(expires)
        if not isinstance(slack, (dates.timedelta, NoneType)):  # pyright: ignore[reportUnnecessaryIsInstance]
            checks.invalid(f"slack must be a timedelta or None, not {type(slack).__name__} ({checks.brief(slack)})")
        slack_ns = 0 if slack is None else slack // _MICROSECOND * 1_000
        cited, check = self._source_seqs(options), self._version_check(joined, options)

        def end(items: Any) -> Event | None:
            if check is not None:
                check(items)
            held_ns = items.expires.get(joined, 0)
            is_near = held_ns == end_ns
            if slack is not None and not is_near:
                is_near = not held_ns or (bool(end_ns) and abs(held_ns - end_ns) < slack_ns)
            is_there = next(self._live_keys(_single_key(joined), items), None) is not None
            return ItemEndSet(cited, items.prior(joined)[0], end_ns, joined) if is_there and not is_near else None

        call = ("set_expires", joined, None if expires is None else str(expires), None if slack is None else str(slack))
        return self._write(KeyDecision(ITEMS, joined, end), call, _without_expected(options)) is not None

    @mutation
    def delete(self, key: Key, **options: Unpack[MutationOptions]) -> bool:
        """Remove an item; return whether it was there."""
        joined = join_key(key)
        cited, check = self._source_seqs(options), self._version_check(joined, options)

        def delete(items: Any) -> Event | None:
            if check is not None:
                check(items)
            prior, _ = items.prior(joined)
            return ItemDeleted(cited, prior, joined) if prior else None

        return (
            self._write(KeyDecision(ITEMS, joined, delete), ("delete", joined), _without_expected(options)) is not None
        )

    @mutation
    def delete_prefix(self, prefix: Key, **options: Unpack[MutationOptions]) -> int:
        """Remove all items whose keys begin with a text or with the parts of a tuple, in one commit; return how many.

        An empty ``prefix`` means all items. ``expected`` is the version of the table.
        """
        bounds = _bounds(prefix, None, None)
        return self._delete_all(partial(_keys_between, bounds), ("delete_prefix", *bounds), options)

    @mutation
    def expire(self, **options: Unpack[MutationOptions]) -> int:
        """Remove the expired items, in one commit; return how many."""
        now_ns = self._core.engine.reader.now_ns()

        def expired_keys(items: Items) -> Iterable[str]:
            return sorted(key for key, end_ns in items.expires.items() if end_ns <= now_ns)

        return self._delete_all(expired_keys, ("expire",), options)

    def _delete_all(self, choose: Choose, call: tuple[Any, ...], options: MutationOptions) -> int:
        cited = self._source_seqs(options)

        def decide(state: State) -> Event | None:
            items = state.part(TABLE)
            keys = tuple(choose(items))
            return ItemsDeleted(cited, tuple(map(items.seqs.__getitem__, keys)), keys) if keys else None

        recorded = self._write(decide, call, options)
        return 0 if recorded is None else len(getattr(recorded.event, "seqs"))  # noqa: B009 - always the same type

    @mutation
    def restore(self, table: "Table", **options: Unpack[MutationOptions]) -> None:
        """Replace the items with those of another table of this memory, or of this one at an earlier seq.

        This is one event and copies nothing: the items remain those of the other table, so erasing them there removes
        them here. For a live handle, its committed items are used. ``expected`` is the version of the table.

        >>> from refold import Memory
        >>> memory = Memory()
        >>> stamp = memory.table("jobs").put("7", "sent")
        >>> memory.table("copy").restore(memory.table("jobs"))
        >>> memory.table("copy").get("7")
        'sent'
        """
        if not isinstance(table, Table):  # pyright: ignore[reportUnnecessaryIsInstance]
            checks.invalid(f"restore takes a Table, not {type(table).__name__} ({checks.brief(table)})")
        if table._core.engine is not self._core.engine:  # noqa: SLF001 - same class
            checks.invalid(f"{table!r} is of another store; put its items one by one, in a batch")
        cited, base = self._source_seqs(options), table._last_event()  # noqa: SLF001 - same class

        def decide(state: State) -> Event | None:
            event = Restored(cited, *base, 0)
            there = self._core.engine.reader.look_at_base(event, state.kind.name)
            return None if fold.digests(state) == fold.digests(there) else event

        self._write(decide, ("restore", table._key, table._at), options)  # noqa: SLF001 - same class

    def _last_event(self) -> tuple[int, int]:
        """Return stream number and seq of the last event of the table, zeros for none."""
        return snapshot.pointer(self._core, self._stream, self._at)

    def erase(self, prefix: Key | list[Key] = "", *, derived: str = "erase", forks: str = "refuse") -> Receipt:
        """Erase the bytes of everything ever put under keys that begin with ``prefix``, or of the whole table.

        ``prefix`` can be a list of prefixes.
        Events derived from it are erased too, unless ``derived="keep"``. With a prefix, items that a restore brought
        from another table, for example on another branch, are erased there as well. So are events of tables that
        continue from this one, if they say that its items were deleted or expire at another time. Without a prefix, all
        of these stay. ``forks`` applies only to a whole table: by default, it raises ``InvalidInput`` if live tables
        continue from this one, and ``forks="erase"`` also erases its forks.
        """
        if prefix in ("", ()):
            return store.erase_stream(self._core, self._stream, self._at, derived, forks)
        has_key = _key_test(prefix if isinstance(prefix, list) else [prefix])
        self._core.engine.refresh()  # So that everything acknowledged to other machines is examined too.
        seqs = {
            stamp.seq
            for event, stamp in self._events(EventFilter((), (*_KEYED, Restored)))
            if not stamp.erased and any(map(has_key, _keys_of(event)))
        }
        return store.erase(self._core, self._at, seqs.union(self._seqs_elsewhere(seqs)), None, derived, forks)

    def _seqs_elsewhere(self, seqs: AbstractSet[int]) -> Iterator[int]:
        """Yield the seqs of events, in all tables and branches, that only say what became of the items put at ``seqs``.

        An item that was put in the place of one is not included: it belongs to its own table.
        """
        reader = self._core.engine.reader
        if not seqs or reader.types_written.isdisjoint((Restored, BranchForked)):
            return
        found = seqs_with(reader, EventFilter((), _NAMING), after=min(seqs))
        for begin in range(0, len(found), PAGE_EVENTS):
            for event, stamp in self._read_events(found[begin : begin + PAGE_EVENTS]):
                if not stamp.erased and not seqs.isdisjoint(_put_seqs_of(event)):
                    yield stamp.seq

    # Reading.

    def get(self, key: Key, default: Any = None) -> Any:
        """Return the value under a key, a new object at each call, or ``default``."""
        item = self.item(key)
        return default if item is None else item.value

    def item(self, key: Key) -> TableItem | None:
        """Return the item under a key, or ``None`` if there is none."""
        joined = join_key(key)
        if self._at is None and batches.active_batch(self._core.engine) is not None:
            self._core.read_key(self._stream, ITEMS, joined, None)  # The batch registers a read of this key only.
            places = self._core.look(self._stream, TABLE, partial(self._places, _single_key(joined)), None)
            return next(iter(self._read_items(places)), None)
        return next(iter(self._items(_single_key(joined))), None)

    def get_many(self, keys: Iterable[Key]) -> list[TableItem]:
        """Return the items under several keys, in their order and from one state; keys without an item are left out."""
        joined = [join_key(key) for key in keys]
        return self._items(lambda items: [key for key in joined if key in items.seqs])

    def seqs(self, keys: Iterable[Key]) -> list[int]:
        """Return the seqs of the items under several keys, in their order and from one state; 0 for a missing item.

        No value is read. A seq always stands for the same item, so results computed from the item can be reused.
        """
        joined = list(map(join_key, keys))

        def read_seqs(items: Items) -> list[int]:
            there = map(items.seqs.get, joined, repeat(0))
            if not items.expires:
                return list(there)
            shown = set(self._live_keys(lambda _: joined, items))
            return [seq if key in shown else 0 for key, seq in zip(joined, there, strict=True)]

        if self._at is None and batches.active_batch(self._core.engine) is not None:
            for key in joined:
                self._core.read_key(self._stream, ITEMS, key, None)  # The batch registers reads of these keys only.
            return self._core.look(self._stream, TABLE, lambda state: read_seqs(state.part(TABLE)), None)
        return self._look(read_seqs)

    def scan(
        self,
        prefix: Key = "",
        *,
        after: Key | None = None,
        before: Key | None = None,
        reverse: bool = False,
        newest: bool = False,
        limit: int | None = None,
    ) -> list[TableItem]:
        """Return the items whose keys begin with ``prefix``, in key order, or last keys first with ``reverse``.

        With ``newest``, the items that were put last come first. ``prefix`` is the beginning of a text, or the first
        parts of tuples. ``after`` and ``before`` are exclusive bounds on the keys. All items come from one state.
        """
        count = None if limit is None else checks.count(limit, "limit")
        return self._items(_key_query(_bounds(prefix, after, before), reverse=reverse, newest=newest), count)

    def keys(
        self,
        prefix: Key = "",
        *,
        after: Key | None = None,
        before: Key | None = None,
        reverse: bool = False,
        newest: bool = False,
        limit: int | None = None,
    ) -> list[Key]:
        """Return the keys of the items that ``scan`` would return, without reading any value."""
        count = None if limit is None else checks.count(limit, "limit")
        choose = _key_query(_bounds(prefix, after, before), reverse=reverse, newest=newest)
        return self._look(lambda items: list(map(split_key, islice(self._live_keys(choose, items), count))))

    def count(self, prefix: Key = "") -> int:
        """Return the number of items whose keys begin with ``prefix``."""
        return len(self.keys(prefix))

    def history(self, key: Key) -> list[TableItem]:
        """Return every item ever put under a key up to now, oldest first, except erased ones.

        Items that a restore brought from another table, for example on another branch, are included; those of an open
        batch are not.
        """
        joined = join_key(key)
        found: dict[int, TableItem] = {}
        for event, stamp in self._events(EventFilter((joined.encode(),), (Restored,))):
            if isinstance(event, ItemPut) and event.key == joined and not stamp.erased:
                found[stamp.seq] = _item(joined, event, stamp, event.expires_ns)
        return [found[seq] for seq in sorted(found)]

    def _events(self, sought: EventFilter) -> Iterator[Recorded]:
        """Yield events of the table, and of the tables that it was restored from; some of them several times."""
        reader = self._core.engine.reader
        reached: dict[str, int] = {}
        waiting = [(self._key, reader.current_head() if self._at is None else self._at)]
        while waiting:
            stream_key, until = waiting.pop()
            if until <= reached.get(stream_key, 0):
                continue
            reached[stream_key] = until
            branch, stream = split_stream(stream_key)
            for recorded in self._core.with_branch(branch).events(sought, stream, until=until):
                waiting += [(base.key, base.base_seq) for base in starts_of(reader, recorded)]
                yield recorded

    def _look(self, query: Callable[[Items], T]) -> T:
        return self._read(lambda state: query(state.part(TABLE)))

    def _live_keys(self, choose: Choose, items: Items) -> Iterator[str]:
        """Return an iterator of the chosen keys whose items have not expired."""
        keys = choose(items)
        if not items.expires:
            return iter(keys)
        now_ns = self._core.now_ns(self._at)
        return (key for key in keys if items.expires.get(key, now_ns + 1) > now_ns)

    def _items(self, choose: Choose, limit: int | None = None) -> list[TableItem]:
        return self._read_items(self._read(partial(self._places, choose, limit=limit)))

    def _places(self, choose: Choose, state: State, *, limit: int | None = None) -> list[_ItemPlace]:
        items = state.part(TABLE)
        return [
            _ItemPlace(key, items.seqs[key], items.expires.get(key, 0))
            for key in islice(self._live_keys(choose, items), limit)
        ]

    def _read_items(self, places: Sequence[_ItemPlace]) -> list[TableItem]:
        found: list[TableItem] = []
        for begin in range(0, len(places), PAGE_EVENTS):
            page = places[begin : begin + PAGE_EVENTS]
            recorded = self._read_events([place.seq for place in page])
            # Items erased since the places were looked up are left out.
            found += [
                _item(place.key, *each, place.expires_ns)
                for place, each in zip(page, recorded, strict=True)
                if not each.stamp.erased
            ]
        return found

    def _read_events(self, seqs: Sequence[int]) -> list[Recorded]:
        """Return the events at seqs, which are provisional for events of the open batch."""
        loader, lock = self._core.engine.reader.loader, self._core.engine.reader.state_lock
        if all(seq > 0 for seq in seqs):
            with lock:
                return loader.recorded_events(seqs)
        batch = batches.active_batch(self._core.engine)
        assert batch is not None, "a provisional seq outside a batch"
        with lock:
            return [
                loader.recorded_events([seq])[0] if seq > 0 else batch.transaction.recorded_event(place_of(seq))
                for seq in seqs
            ]

    # Arguments.

    def _expiry_ns(self, expires: object) -> int:
        if expires is None:
            return 0
        if isinstance(expires, dates.timedelta):
            expires = self._core.engine.reader.now_ns() + expires // _MICROSECOND * 1_000
        end_ns = nanoseconds(expires, "expires")
        if end_ns <= 0:
            checks.invalid(f"expires is {checks.brief(expires)}; give a moment after 1970, or a span from now on")
        return end_ns

    def _version_check(self, joined: str, options: MutationOptions) -> Callable[[Items], None] | None:
        expected = parse_options(options).expected
        if expected == ANY:
            return None
        if expected not in (NO_STREAM, EXISTS):
            expected = checks.count(expected, "expected")

        def check(items: Items) -> None:
            actual = next(self._live_keys(_single_key(joined), items), None)
            seq = 0 if actual is None else items.seqs[actual]
            fits = not seq if expected == NO_STREAM else bool(seq) if expected == EXISTS else expected == seq
            if not fits:
                raise WrongVersion(
                    f"item {checks.brief(split_key(joined))} of {self._stream} is at seq {seq}, not at "
                    f"{checks.brief(expected)}; read it again and decide anew",
                    expected=expected,
                    actual=seq,
                )

        return check


def join_key(key: object, what: str = "key") -> str:
    """Return a key as one text; raise ``InvalidInput`` for a key with an empty part or a NUL."""
    given: object = (key,) if isinstance(key, str) else key
    if not isinstance(given, tuple) or not given:
        checks.invalid(f"{what} must be a str or a tuple of them, not {type(key).__name__} ({checks.brief(key)})")
    parts = cast("tuple[object, ...]", given)
    try:
        joined = SEPARATOR.join(cast("tuple[str, ...]", parts))
    except TypeError:
        joined = ""
    # A fast path with the same outcome as everything below, for ASCII texts, which nearly all keys consist of.
    is_short = joined.isascii() and 0 < len(joined) <= KEY_BYTES_MAX
    if is_short and "" not in parts and joined.count(SEPARATOR) == len(parts) - 1:
        return joined
    texts = [checks.text(part, what, KEY_BYTES_MAX, "KEY_BYTES_MAX") for part in parts]
    if any(SEPARATOR in text for text in texts):
        checks.invalid(f"{what} {checks.brief(key)} holds a NUL; leave it out")
    return check_key(SEPARATOR.join(texts))


def split_key(joined: str) -> Key:
    """Return the key from its joined text."""
    return tuple(joined.split(SEPARATOR)) if SEPARATOR in joined else joined


def _bounds(prefix: object, after: object, before: object) -> tuple[str, str | None]:
    """Return the lowest key of a scan, and the lowest key after the scan, or ``None`` for no end."""
    if prefix in ("", ()):
        first, end = "", None
    elif isinstance(prefix, str):
        first = checks.text(prefix, "prefix", KEY_BYTES_MAX, "KEY_BYTES_MAX")
        end = behind(first)
    else:
        # NUL is the lowest character: the key itself is followed by the keys that extend it, and then by all others.
        first = join_key(prefix, "prefix")
        end = first + chr(ord(SEPARATOR) + 1)
    if after is not None:
        first = max(first, join_key(after, "after") + SEPARATOR)
    if before is not None:
        last = join_key(before, "before")
        end = last if end is None else min(end, last)
    return first, end


def _key_test(prefixes: Sequence[object]) -> Callable[[str], bool]:
    """Return a function that tells whether a key begins with one of the prefixes."""
    firsts, ends = list[str](), list[str | None]()  # Of disjoint ranges.
    for first, end in sorted((_bounds(prefix, None, None) for prefix in prefixes), key=itemgetter(0)):
        last = ends[-1] if ends else ""
        if last is not None and first >= last:
            firsts.append(first)
            ends.append(end)
        elif last is not None:
            ends[-1] = None if end is None else max(last, end)

    def has_key(key: str) -> bool:
        end = ends[bisect_right(firsts, key) - 1] if firsts and key >= firsts[0] else ""
        return end is None or key < end

    return has_key


def _single_key(key: str) -> Choose:
    return lambda items: [key] if key in items.seqs else []


def _key_query(bounds: tuple[str, str | None], *, reverse: bool, newest: bool) -> Choose:
    if not checks.flag(newest, "newest"):
        return partial(_keys_between, bounds, reverse=checks.flag(reverse, "reverse"))
    if checks.flag(reverse, "reverse"):
        checks.invalid("reverse is of the order of keys, and newest is an order of its own; give one of them")
    return partial(_newest_keys, bounds)


def _keys_between(bounds: tuple[str, str | None], items: Items, *, reverse: bool = False) -> Iterable[str]:
    return items.between(*bounds, reverse=reverse)


def _newest_keys(bounds: tuple[str, str | None], items: Items) -> Iterable[str]:
    ordered = sorted(_keys_between(bounds, items), key=items.seqs.__getitem__, reverse=True)
    # Items that the open batch puts have seqs from -1 down.
    pending = list(takewhile(lambda key: items.seqs[key] < 0, reversed(ordered)))
    return pending + ordered[: len(ordered) - len(pending)]


_NAMING: Final = (ItemDeleted, ItemsDeleted, ItemEndSet)
_KEYED: Final = (ItemPut, *_NAMING)


def _keys_of(event: Event) -> tuple[str, ...]:
    """Return the keys that an event names."""
    if isinstance(event, (ItemPut, ItemDeleted, ItemEndSet)):
        return (event.key,)
    return event.keys if isinstance(event, ItemsDeleted) else ()


def _put_seqs_of(event: Event) -> tuple[int, ...]:
    """Return the seqs at which the items that an event deletes, or whose expiry it changes, were put."""
    if isinstance(event, (ItemDeleted, ItemEndSet)):
        return (event.prior,)
    return event.seqs if isinstance(event, ItemsDeleted) else ()


def _item(joined: str, event: Event, stamp: Stamp, expires_ns: int) -> TableItem:
    assert isinstance(event, ItemPut), f"{event!r} holds no item"
    return TableItem(split_key(joined), event.item, stamp.seq, stamp.time_ns, expires_ns)


def _without_expected(options: MutationOptions) -> MutationOptions:
    """Return the options without ``expected``, which applies to the key and not to the stream."""
    return {name: value for name, value in options.items() if name != "expected"}  # type: ignore[return-value]
