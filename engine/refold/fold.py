"""The one fold: the event codec, the dispatch to the views, and the results derived from a folded state.

Live writes, reopening, ``at``, replay, fork and restore all go through ``fold``. Pure: it may import only the views and
the layers below them. It has no access to a disk, and no store has access to it.
"""

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, Union, cast

import msgspec

from refold import checks
from refold.errors import LimitExceeded, StoreCorrupt
from refold.event import (
    ConversationOpened,
    Cut,
    Event,
    ForkDropped,
    Forked,
    Handler,
    ImportedMessage,
    LazyEvents,
    Located,
    Restored,
    RunHandler,
    Stamp,
    StateImported,
    View,
    ViewState,
)
from refold.limits import EVENT_BYTES_MAX
from refold.text import sha256
from refold.views import VIEWS
from refold.views.session import SESSION

S = TypeVar("S", bound=ViewState)


class Unknown(Event, frozen=True):
    """An event whose tag this program does not know: preserved, but not folded."""

    tag: int
    array: bytes


class Kind(NamedTuple):
    """The fold of a kind of stream: its views, and for each event type the places and handlers that take part."""

    name: str
    views: tuple[View[Any], ...]
    handlers: dict[type[Event], tuple[tuple[int, Handler], ...]]
    lone: dict[type[Event], tuple[int, Handler]]
    """The events that only one view folds, which are most: found with one lookup and no loop."""
    runs: dict[type[Event], tuple[int, RunHandler]]
    """Those of ``lone`` that the view folds in runs."""


class State:
    """The folded state of one stream: one part for each of its kind's views."""

    __slots__ = ("kind", "lone", "parts")

    def __init__(self, kind: Kind, parts: list[Any]) -> None:
        self.kind = kind
        self.lone = kind.lone
        self.parts = parts

    def part(self, view: View[S]) -> S:
        """Return the part that a view holds; only a handler may change it."""
        part: S = self.parts[self.kind.views.index(view)]
        return part


def _kinds() -> dict[str, Kind]:
    names = sorted({kind for view in VIEWS for kind in view.kinds})
    return {name: _kind(name, tuple(view for view in VIEWS if name in view.kinds)) for name in names}


def _kind(name: str, views: tuple[View[Any], ...]) -> Kind:
    handlers: dict[type[Event], tuple[tuple[int, Handler], ...]] = {}
    for place, view in enumerate(views):
        for event_type, handler in view.handlers.items():
            handlers[event_type] = (*handlers.get(event_type, ()), (place, handler))
    lone = {event_type: own[0] for event_type, own in handlers.items() if len(own) == 1}
    runs = {kind: (place, views[place].runs[kind]) for kind, (place, _) in lone.items() if kind in views[place].runs}
    return Kind(name, views, handlers, lone, runs)


def _event_types() -> dict[int, type[Event]]:
    types = {event_type for view in VIEWS for event_type in view.handlers}
    return {event_type.__struct_config__.tag: event_type for event_type in sorted(types, key=_tag)}  # type: ignore[misc]


def _tag(event_type: type[Event]) -> int:
    tag = event_type.__struct_config__.tag
    assert isinstance(tag, int), f"{event_type.__name__} needs an explicit number as its tag"
    return tag


KINDS: Final = _kinds()
_SESSION: Final = KINDS["conversation"].views.index(SESSION)
EVENT_TYPES: Final = _event_types()
TAGS: Final = {event_type: tag for tag, event_type in EVENT_TYPES.items()}
VIEWS_OF: Final = {
    event_type: frozenset(view.name for view in VIEWS if event_type in view.handlers) for event_type in TAGS
}
"""The names of the views that fold each event type."""

NAMES: Final = {
    event_type: "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in event_type.__name__).lstrip(
        "_"
    )
    for event_type in TAGS
}
"""The public name of each event type, the snake case of its class: shown in JSONL and on the command line."""

TYPES_BY_NAME: Final = {name: event_type for event_type, name in NAMES.items()}
BASE_TYPES: Final = frozenset((Forked, Restored))
"""Events that start from another state, which the engine loads first."""

OPENING: Final = (ConversationOpened, Forked, Restored, StateImported)
"""Events that can begin a conversation."""

CLOSING: Final = frozenset((ForkDropped, Restored, StateImported))
"""Events after which a conversation can be closed, so that its next mutation opens it again."""

REFERRING: Final = frozenset(event_type for event_type in TAGS if "base_stream" in event_type.__struct_fields__)
"""Events that refer to another stream by its number."""

SCALAR_SEQS: Final = ("prior", "origin", "kept_vector")
"""The fields, other than those of bases, that hold one seq: a batch resolves them and a load renumbers them."""

SEQ_LISTS: Final = ("sources", "seqs")
"""The fields that hold several seqs."""

_SCALAR_SEQS: Final[dict[type[Event], tuple[str, ...]]] = {
    event_type: tuple(field for field in SCALAR_SEQS if field in event_type.__struct_fields__) for event_type in TAGS
}

_SEQ_LISTS: Final[dict[type[Event], tuple[str, ...]]] = {
    event_type: tuple(field for field in SEQ_LISTS if field in event_type.__struct_fields__) for event_type in TAGS
}


def _structural_fields(event_type: type[Event]) -> tuple[str, ...]:
    """Return the fields without a default, which come first and which erasure keeps."""
    fields, defaults = event_type.__struct_fields__, event_type.__struct_defaults__
    assert msgspec.NODEFAULT not in defaults, f"{event_type.__name__}: structural fields first"
    return fields[: len(fields) - len(defaults)]


STRUCTURAL: Final = {event_type: _structural_fields(event_type) for event_type in TAGS}


def _values_of(event_type: type[Event]) -> Callable[[Event], tuple[Any, ...]]:
    """Return a function from an event to its structural values."""
    fields = STRUCTURAL[event_type]
    getter = attrgetter(*fields)
    return getter if len(fields) > 1 else lambda event: (getter(event),)


_VALUES: Final = {event_type: _values_of(event_type) for event_type in TAGS}
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_ENCODE_SORTED: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_DECODER: Final = msgspec.msgpack.Decoder(Union[tuple(TAGS)])  # noqa: UP007 - built at run time
_TAG_BYTES: Final = 1

_TAG_MAX: Final = 128
assert max(EVENT_TYPES) < _TAG_MAX, "a tag below 128 is one byte of msgpack"

assert all(len(event_type.__struct_fields__) < 15 for event_type in TAGS), "an event has at most 14 fields"  # noqa: PLR2004

decode_known: Final[Callable[[bytes], list[Event]]] = msgspec.msgpack.Decoder(list[Union[tuple(TAGS)]]).decode  # type: ignore[misc]  # noqa: UP007
"""Decode an array of events whose tags are all known, as a record holds them, in one pass."""


_DECODE: Final = msgspec.msgpack.Decoder().decode
_DECODE_PARTS: Final = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, int]]).decode
_NOTHING: Final[tuple[bytes, list[int]]] = (_ENCODE(None), [])
"""The packed form of a view with nothing to pack, which is left out at the end of a row."""

encode: Final = _ENCODE
"""Return an event's msgpack array: its tag, its structural fields, its body."""


def _is_listing(event_type: type[Event]) -> bool:
    # Uses the annotations as they are: `msgspec.structs.fields` evaluates them again, which takes a tenth of the import
    # time.
    annotations = ChainMap(*(vars(base).get("__annotations__", {}) for base in event_type.__mro__))
    body = event_type.__struct_fields__[len(STRUCTURAL[event_type]) :]
    return any("tuple" in str(annotations[field]) for field in body)


LISTING: Final = frozenset(filter(_is_listing, TAGS))
"""The events whose size must be checked, because their bodies hold lists: each value is bounded, but not their
number."""


def check_size(event: Event) -> None:
    """Raise ``LimitExceeded`` for an event that is too large, before encoding, which takes as much memory again."""
    size = _size(event)
    if size > EVENT_BYTES_MAX:
        raise LimitExceeded(
            f"{NAMES[type(event)]} is {size:,} bytes, over EVENT_BYTES_MAX = {EVENT_BYTES_MAX:,}; give fewer or "
            f"shorter values, or keep them in a file and store the file's name"
        )


def _size(value: object) -> int:
    """Return the bytes of the texts and bytes in a value."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, tuple):
        return sum(map(_size, cast("tuple[object, ...]", value)))
    return _size(msgspec.structs.astuple(value)) if isinstance(value, msgspec.Struct) else 1


def body_begin(event: Event) -> int:
    """Return the offset at which the body begins in an event's array: after prefix, tag and structural values.

    The structural values are encoded again to learn their size. That takes a quarter of a microsecond, and avoids a
    second place that knows how msgpack writes numbers.
    """
    return _TAG_BYTES + len(_ENCODE(_VALUES[type(event)](event)))


def tag_of(array: bytes) -> int:
    """Return the tag of an event's array; that of an event of a later program can take several bytes."""
    first = array[_TAG_BYTES]
    return first if first < _TAG_MAX else int(msgspec.msgpack.decode(array)[0])


def strip_body(array: bytes, new_ids: Mapping[str, str] | None = None) -> bytes:
    """Return an event's array without its body: truncated after the tag and the structural values.

    Each id that the caller chose and that is among ``new_ids`` becomes the one that it stands for there.
    """
    event = decode(array)
    if new_ids:
        event = _with_new_ids(event, new_ids)
        array = encode(event)
    structural = array[_TAG_BYTES : body_begin(event)]
    return bytes([0x90 | (1 + len(STRUCTURAL[type(event)]))]) + structural


def given_ids(event: Event) -> Iterator[str]:
    """Yield the ids in the structural values of an event that its caller chose."""
    for field in event.given_ids:
        yield from _ids_in(getattr(event, field))


def _ids_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for each in cast("tuple[object, ...]", value):
            yield from _ids_in(each)
    elif isinstance(value, ImportedMessage):
        for field in value.given_ids:
            yield from _ids_in(getattr(value, field))


def _with_new_ids(value: Any, new_ids: Mapping[str, str]) -> Any:
    """Return a value with its caller's ids replaced by those that they stand for."""
    if isinstance(value, str):
        return new_ids.get(value, value)
    if isinstance(value, tuple):
        return tuple(_with_new_ids(each, new_ids) for each in cast("tuple[object, ...]", value))
    if isinstance(value, (Event, ImportedMessage)):
        changed = {field: _with_new_ids(getattr(value, field), new_ids) for field in value.given_ids}
        return msgspec.structs.replace(value, **changed)
    return value


def decode(array: bytes) -> Event:
    """Return the event of an array; one with an unknown tag is preserved as ``Unknown``."""
    try:
        tag = tag_of(array)
    except (*checks.UNDECODABLE, IndexError, TypeError, ValueError) as error:
        raise StoreCorrupt(
            f"an event of {len(array)} bytes cannot be decoded ({error}); run `refold verify` and restore a backup"
        ) from error
    if tag not in EVENT_TYPES:
        return Unknown((), tag, array)
    try:
        event: Event = _DECODER.decode(array)
    except checks.UNDECODABLE as error:
        raise StoreCorrupt(
            f"an event of tag {tag} cannot be decoded ({error}); run `refold verify` and restore a backup"
        ) from error
    return event


def decode_all(arrays: Sequence[bytes]) -> list[Event]:
    """Return the events of arrays: in one pass, or one by one if a tag is unknown or bytes are damaged."""
    try:
        events: list[Event] = decode_known(b"\xdd" + len(arrays).to_bytes(4, "big") + b"".join(arrays))
    except checks.UNDECODABLE:
        return list(map(decode, arrays))
    return events


def is_known(tag: int) -> bool:
    """Return whether this program folds events of a tag."""
    return tag in EVENT_TYPES


def empty(kind: str) -> State:
    """Return the empty state of a kind of stream."""
    state_kind = KINDS[kind]
    return State(state_kind, [view.empty() for view in state_kind.views])


def empty_part(view: View[Any], kind: str) -> State:
    """Return an empty state of a kind of stream with only one view; the same fold applies to it."""
    return State(_part_kind(view, kind), [view.empty()])


@cache
def _part_kind(view: View[Any], kind: str) -> Kind:
    return _kind(kind, (view,))


def fold(state: State, stamp: Stamp, event: Event) -> None:
    """Apply one event to a state; the only place where states change."""
    lone = state.lone.get(type(event))
    if lone is not None:
        lone[1](state.parts[lone[0]], stamp, event)
        return
    for place, handler in state.kind.handlers.get(type(event), ()):
        handler(state.parts[place], stamp, event)


def fold_run(state: State, stamps: Sequence[Stamp], events: Sequence[Event]) -> None:
    """Apply events to a state, in order: several of one type at once, if their view supports that."""
    run = state.kind.runs.get(type(events[0]))
    if run is not None and (len(events) == 1 or len(set(map(type, events))) == 1):
        run[1](state.parts[run[0]], stamps, events)
        return
    for stamp, event in zip(stamps, events, strict=True):
        fold(state, stamp, event)


class Packing:
    """The packing of a state into a checkpoint row, step by step, as the state was when the packing began."""

    def __init__(self, state: State) -> None:
        packed = [view.pack(part) for view, part in _pairs(state)]
        # Encoded immediately, because a view may return objects that the next event changes in place.
        self._parts = [part if isinstance(part, Cut) else (_ENCODE(part[0]), list(part[1])) for part in packed]
        if not self.is_done:
            self.step()

    @property
    def _cut(self) -> Cut[Any] | None:
        """The first part that is not fully encoded."""
        return next((part for part in self._parts if isinstance(part, Cut) and not part.is_done), None)

    @property
    def is_done(self) -> bool:
        """Whether everything is packed."""
        return self._cut is None

    def step(self) -> None:
        """Pack the next slice."""
        cut = self._cut
        assert cut is not None, "nothing is left to pack"
        cut.step()

    def result(self) -> tuple[bytes, list[int]]:
        """Return the packed state as of the time when the packing began; requires ``is_done``."""
        parts = [part.result() if isinstance(part, Cut) else part for part in self._parts]
        while parts and parts[-1] == _NOTHING:
            parts.pop()
        inline = [(msgspec.Raw(packed), len(pointed)) for packed, pointed in parts]
        return _ENCODE(inline), list(chain.from_iterable(pointed for _, pointed in parts))


def pack(state: State) -> tuple[bytes, list[int]]:
    """Return a state as stored in a checkpoint: small values inline, and the seqs of the events that hold the rest."""
    packing = Packing(state)
    while not packing.is_done:
        packing.step()
    return packing.result()


def unpack(kind: str, inline: bytes, events: Located) -> State:
    """Return the state that ``pack`` packed, given the events at the seqs that it returned, in the same order."""
    return _unpack_parts(kind, inline, lambda view, packed, begin, end: view.unpack(_DECODE(packed), events[begin:end]))


def is_read_later(kind: str) -> bool:
    """Return whether a view of a kind of stream reads most of its state on demand."""
    return any(view.unpack_later is not None for view in KINDS[kind].views)


def unpack_later(kind: str, inline: bytes, events: LazyEvents, read: Callable[[int, int], Located]) -> State:
    """Return the state that ``pack`` packed, reading most of ``events`` on demand and the rest now, with ``read``."""

    def unpack_part(view: View[Any], packed: msgspec.Raw, begin: int, end: int) -> Any:
        if view.unpack_later is None:
            return view.unpack(_DECODE(packed), read(begin, end) if begin < end else ())
        return view.unpack_later(packed, events.part(begin, end))

    return _unpack_parts(kind, inline, unpack_part)


def _unpack_parts(kind: str, inline: bytes, unpacked: Callable[[View[Any], msgspec.Raw, int, int], Any]) -> State:
    state_kind, rows = KINDS[kind], _DECODE_PARTS(inline)
    views = state_kind.views
    if len(rows) > len(views):
        raise ValueError(f"{len(rows)} views of a {kind}, which has {len(views)}")
    parts: list[Any] = []
    begin = 0
    for view, (packed, count) in zip(views, rows, strict=False):
        parts.append(unpacked(view, packed, begin, begin + count))
        begin += count
    # The last views had nothing to pack, or did not exist when the row was written; then none of their events did
    # either.
    parts += [view.empty() for view in views[len(rows) :]]
    return State(state_kind, parts)


def copy_state(state: State) -> State | None:
    """Return an independent copy of a state, ``None`` if a view cannot copy its part."""
    copies = [None if view.copy is None else view.copy(part) for view, part in _pairs(state)]
    return None if None in copies else State(state.kind, copies)


def part_of(state: State, view: View[Any]) -> State:
    """Return an independent state of one view alone."""
    assert view.copy is not None, f"{view.name} has no copy"
    return State(_part_kind(view, state.kind.name), [view.copy(state.part(view))])


def _pairs(state: State) -> list[tuple[View[Any], Any]]:
    return list(zip(state.kind.views, state.parts, strict=True))


def is_open(state: State) -> bool:
    """Return whether a conversation was opened and not dropped since, or whether another stream holds anything."""
    if state.kind.name != "conversation":
        return any(view.logical(part) is not None for view, part in _pairs(state))
    return bool(state.parts[_SESSION].opened)


def digests(state: State) -> list[tuple[str, bytes]]:
    """Return the SHA-256 of the logical content of each view that is not empty."""
    logicals = ((view.name, view.logical(part)) for view, part in _pairs(state))
    return [(name, digest_of(logical)) for name, logical in logicals if logical is not None]


def digest_of(logical: Any) -> bytes:
    """Return the SHA-256 of the logical content of a view."""
    return sha256(_ENCODE_SORTED(logical))


def contents(state: State) -> list[Any]:
    """Return values that are equal only if the digests of two states are equal, at less cost."""
    return [view.content(part) for view, part in _pairs(state)]


def plain(state: State, *, without: str = "") -> dict[str, dict[str, Any]]:
    """Return the readable content of each view, by view name; ``without`` leaves one view out."""
    return {view.name: view.plain(part) for view, part in _pairs(state) if view.name != without}


def resolve(event: Event, seq_of: Mapping[int, int]) -> Event:
    """Return the event with provisional seqs (negative, from inside a batch) replaced by the final ones."""
    changed: dict[str, Any] = {}
    for field in _SEQ_LISTS[type(event)]:
        if any(seq < 0 for seq in getattr(event, field)):
            changed[field] = tuple(seq_of.get(seq, seq) for seq in getattr(event, field))
    for field in _SCALAR_SEQS[type(event)]:
        if getattr(event, field) < 0:
            changed[field] = seq_of[getattr(event, field)]
    return msgspec.structs.replace(event, **changed) if changed else event


def is_provisional(event: Event) -> bool:
    """Return whether the event names a seq of its own batch, which is not known before the commit."""
    if any(seq < 0 for field in _SEQ_LISTS[type(event)] for seq in getattr(event, field)):
        return True
    return any(getattr(event, field) < 0 for field in _SCALAR_SEQS[type(event)])
