"""The board: the working memory of a session, or of a node of a project, part by part.

A part that has fields of its own is changed field by field; every other part is replaced whole. The latest
``MESSAGES_KEPT`` messages are in the order of their times and ids. On a session's board, the fields that belong to a
node or a project carry a digest of its name after an ``@``, so that each node has its own. The reader of a board
decides which parts are hidden and which board lies under it; the fold knows neither.
"""

import re
from bisect import insort
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct

from refold.event import Event, ForkDropped, Located, Stamp, View, pack_json, unpack_json
from refold.limits import KEY_BYTES_MAX
from refold.text import sha256
from refold.views.base import KeyedValues, copy_slots

MESSAGES_KEPT: Final = 200
"""The number of messages that a board holds, the latest ones; part of the fold, so it never changes."""

MOVES_KEPT: Final = 64
"""The number of changes of project or node that a board remembers, the latest ones; part of the fold, so it never
changes."""

HISTORY_MESSAGES_MAX: Final = 200
HISTORY_MESSAGES_DEFAULT: Final = 20
"""The number of messages that a board shows, unless its settings say otherwise."""

REFRESH_SECONDS_MAX: Final = 600

_PLACE_DIGITS: Final = 16
_PLACE: Final = re.compile(r"[0-9a-f]{16}")
_NUMBER_DIGITS_MAX: Final = 18  # Digits of an id that is compared as a number: they fit 64 bits.

assert 1 <= HISTORY_MESSAGES_DEFAULT <= HISTORY_MESSAGES_MAX <= MESSAGES_KEPT, "a board holds what it may show"

MESSAGES: Final = "messages"
PARTS: Final = (
    "session",
    "project_graph",
    "elements_graph",
    "project_structure",
    "node_context",
    "fetched_context",
    "working_history",
    MESSAGES,
    "messages_meta",
    "last_user_message",
    "config",
)
"""Every part of a board; ``project_structure`` consists of the two graphs and is not stored by itself."""

_SESSION: Final = ("session.project_id", "session.active_node_id", "session.timestamp")
_CONFIG: Final = (
    "config.history_length",
    "config.include_project_structure",
    "config.include_context",
    "config.include_working_history",
    "config.auto_refresh_interval",
)
_STRUCTURE: Final = ("project_graph", "elements_graph")
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    **{part: (part,) for part in PARTS},
    "session": _SESSION,
    "config": _CONFIG,
    "project_structure": _STRUCTURE,
}
"""The fields of each part, as events name them."""

PROJECT_ID: Final = "session.project_id"
NODE_ID: Final = "session.active_node_id"


def place_of(project: str, node: str) -> tuple[str, str]:
    """Return the places of a project and of a node: digests, which erasure keeps; empty if there is no name."""
    names = (project, f"{len(project)} {project}{node}" if node else project)
    graphs, rest = (sha256(name.encode()).hex()[:_PLACE_DIGITS] if name else "" for name in names)
    return graphs, rest


_OF_NODES: Final = "board/node/"


def node_board(project: str, node: str) -> str:
    """Return the stream of a node's board; only the project is escaped, so that the first slash after it ends it."""
    return f"{_OF_NODES}{project.replace('%', '%25').replace('/', '%2F')}/{node}"


def plain_name(stream: str) -> str:
    """Return the name of a stream; that of a node's board with the name of its project as it was given."""
    if not stream.startswith(_OF_NODES):
        return stream
    project, slash, node = stream.removeprefix(_OF_NODES).partition("/")
    return f"{_OF_NODES}{project.replace('%2F', '/').replace('%25', '%')}{slash}{node}"


def field_at(field: str, place: tuple[str, str]) -> str:
    """Return a field's name in a session board's events: graphs belong to its project, ids and settings to no place."""
    scope = "" if "." in field else place[0] if field in _STRUCTURE else place[1]
    return f"{field}@{scope}" if scope else field


def _form_of(field: str) -> Any:
    """Return the form of a field's value, ``None`` if there is no such field."""
    base, at, place = field.partition("@")
    return None if at and ("." in base or not _PLACE.fullmatch(place)) else _FORMS.get(base)


class BoardChanged(Event, frozen=True, tag=71):
    """Fields of a board got values: ``packed`` is a map of them as msgpack; a field without a value was removed."""

    sentence: ClassVar[str] = "fields of the board changed: {fields!s}"

    fields: tuple[str, ...]
    packed: bytes = b""

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased one has no values
        values = _values(self)
        unknown = [field for field in (*self.fields, *values) if _form_of(field) is None or field not in self.fields]
        if unknown:
            raise msgspec.ValidationError(f"a board has no field {unknown[0]!r} to change")
        for field, packed in values.items():
            msgspec.msgpack.decode(packed, type=_form_of(field))


class BoardMessageAppended(Event, frozen=True, tag=72):
    """A message was put on a board, replacing one with the same id; ``packed`` is the message as msgpack.

    ``total`` is the number of messages including this one, if that is more than the board was given.
    """

    sentence: ClassVar[str] = "a message was put on the board: {packed}"
    given_ids: ClassVar[tuple[str, ...]] = ("id",)

    id: str
    created_ns: int | None
    place: str
    total: int
    packed: bytes = b""

    @property
    def field(self) -> str:
        """The field of the messages that it joins."""
        return f"{MESSAGES}@{self.place}" if self.place else MESSAGES

    def mentions(self) -> tuple[str | None, ...]:
        return (unpack_json(self.packed).get("session_id"),) if self.packed else ()

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased one has no message
        if len(self.id) > KEY_BYTES_MAX:
            raise msgspec.ValidationError(
                f"its id has {len(self.id):,} characters, over KEY_BYTES_MAX = {KEY_BYTES_MAX:,}"
            )
        if self.place and not _PLACE.fullmatch(self.place):
            raise msgspec.ValidationError("its place is none of a board's")
        if self.packed and _MESSAGE.decode(self.packed).id != self.id:
            raise msgspec.ValidationError("its id is not that of its message")


class BoardRow(Struct, frozen=True, gc=False):
    """A message of a board: where it was set, its sort keys, and the whole message as msgpack, empty once erased."""

    seq: int
    place: int
    id: str
    created_ns: int | None
    packed: bytes


class BoardListing(NamedTuple):
    """The messages of a place in order, how many there ever were, and whether they were given as a whole list."""

    rows: list[BoardRow]
    total: int
    is_whole: bool


_NO_ROWS: Final = BoardListing([], 0, is_whole=False)


class BoardState:
    """The values by field, the messages by place, the last moves to another node, and the time of the last change."""

    __slots__ = ("changed_ns", "entries", "listings", "moves")

    def __init__(self) -> None:
        self.entries: KeyedValues[bytes] = KeyedValues()
        self.listings: dict[str, BoardListing] = {}
        """By the field of messages; a list that was given, even an empty one, has an entry."""
        self.moves: list[tuple[int, str]] = []
        """The seqs at which the session moved to another node, and the place of that node."""
        self.changed_ns = 0

    @property
    def is_empty(self) -> bool:
        return not self.entries.values and not self.listings

    copy = copy_slots

    def listing(self, field: str = MESSAGES) -> BoardListing:
        return self.listings.get(field, _NO_ROWS)

    def text(self, field: str) -> str:
        """Return the text of a field, empty if it was not set."""
        packed = self.entries.values.get(field)
        return "" if packed is None else unpack_json(packed)

    def post(self, posted: BoardRow, field: str = MESSAGES, total: int = 0) -> None:
        """Insert a message in order, and drop those with the same id, of which a given list can hold several."""
        rows, count, is_whole = self.listing(field)
        others = [row for row in rows if not posted.id or row.id != posted.id]
        count += 1 - (len(rows) - len(others))
        insort(others, posted, key=order_of)
        self.listings[field] = BoardListing(others[-MESSAGES_KEPT:], max(count, total), is_whole)

    def drop(self, field: str) -> None:
        self.entries.drop(field)
        self.listings.pop(field, None)

    def move(self, seq: int) -> None:
        """Record a move if the session now works on another node."""
        place = place_of(self.text(PROJECT_ID), self.text(NODE_ID))[1]
        if place != (self.moves[-1][1] if self.moves else ""):
            self.moves = [*self.moves, (seq, place)][-MOVES_KEPT:]

    def pack(self) -> tuple[Any, list[int]]:
        if self.is_empty:
            return None, []
        entries, pointed = self.entries.pack()
        listings: list[Any] = []
        for field, (rows, total, is_whole) in self.listings.items():
            packed = [[posted.seq, posted.place, posted.id, posted.created_ns, not posted.packed] for posted in rows]
            listings.append([field, packed, total, is_whole])
            pointed += [posted.seq for posted in rows if posted.packed]
        return [entries, listings, self.changed_ns, self.moves], pointed

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "BoardState":
        board = cls()
        if inline is None:
            return board
        entries, listings, board.changed_ns, board.moves = msgspec.convert(inline, _INLINE)
        located = iter(events)
        board.entries.unpack(entries, bytes, lambda field: _value_of(next(located)[0], field))
        for field, packed_rows, total, is_whole in listings:
            rows: list[BoardRow] = []
            for seq, place, id_, created_ns, is_blank in packed_rows:
                packed = b"" if is_blank else _message_bytes(*next(located), field, place)
                rows.append(BoardRow(seq, place, id_, created_ns, packed))
            board.listings[field] = BoardListing(rows, total, is_whole)
        return board

    def logical(self) -> Any:
        if self.is_empty:
            return None
        entries = self.entries
        listings = [
            [field, [[row.seq, row.place, row.id, row.created_ns, row.packed] for row in rows], total, is_whole]
            for field, (rows, total, is_whole) in sorted(self.listings.items())
        ]
        return [entries.rows(sorted(entries.values)), listings, self.changed_ns, self.moves]

    def plain(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for field, packed in sorted(self.entries.values.items()):
            part, _, name = field.partition(".")
            if name:
                values.setdefault(part, {})[name] = unpack_json(packed)
            else:
                values[part] = unpack_json(packed)
        for field, listing in self.listings.items():
            values[field] = [unpack_json(posted.packed) if posted.packed else None for posted in listing.rows]
            values[field.replace(MESSAGES, "messages_total")] = listing.total
        return values


def order_of(posted: BoardRow) -> tuple[bool, int, bool, int, str]:
    """Return the sort key of a message: time, unknown times first; the number at the start of its id; other ids."""
    number = _LEADING_NUMBER.match(posted.id)
    is_known = posted.created_ns is not None
    return is_known, posted.created_ns or 0, number is None, int(number[0]) if number else 0, posted.id


_LEADING_NUMBER: Final = re.compile(rf"[+-]?[0-9]{{1,{_NUMBER_DIGITS_MAX}}}(?![0-9])")


# The forms of the values in events, including events from outside.


class _NodeForm(Struct, forbid_unknown_fields=True):
    id: Annotated[str, Meta(min_length=1)]
    label: str
    type: str
    builder: str


class _EdgeForm(Struct, forbid_unknown_fields=True, rename={"source": "from", "target": "to"}):
    source: Annotated[str, Meta(min_length=1)]
    target: Annotated[str, Meta(min_length=1)]
    type: str


class _GraphForm(Struct, forbid_unknown_fields=True):
    nodes: list[_NodeForm]
    edges: list[_EdgeForm]


class _MessageForm(Struct, forbid_unknown_fields=True):
    id: Annotated[str, Meta(max_length=KEY_BYTES_MAX)]
    session_id: str
    node_id: str | None
    role: str
    message_type: str
    content: str
    created_at: str


class _MessagesForm(Struct, forbid_unknown_fields=True):
    total: Annotated[int, Meta(ge=0)]
    rows: Annotated[list[tuple[int | None, _MessageForm]], Meta(max_length=MESSAGES_KEPT)]


class _MetaForm(Struct, forbid_unknown_fields=True):
    total_count: Annotated[int, Meta(ge=0)] = 0
    filtered_count: Annotated[int, Meta(ge=0)] = 0
    has_more: bool = False
    next_cursor: str | None = None
    last_user_message: str = ""
    last_synced_at: str = ""


_FORMS: Final[dict[str, Any]] = {
    **dict.fromkeys((*_SESSION, "working_history", "last_user_message"), str),
    **dict.fromkeys(_STRUCTURE, _GraphForm),
    **dict.fromkeys(("node_context", "fetched_context"), dict[str, Any]),
    **dict.fromkeys(_CONFIG, bool),
    "config.history_length": Annotated[int, Meta(ge=1, le=HISTORY_MESSAGES_MAX)],
    "config.auto_refresh_interval": Annotated[int, Meta(ge=0, le=REFRESH_SECONDS_MAX)],
    MESSAGES: _MessagesForm,
    "messages_meta": _MetaForm,
}
assert _FORMS.keys() == {field for part in PARTS for field in FIELDS[part]}, "every field has a form"

_MESSAGE: Final = msgspec.msgpack.Decoder(_MessageForm)


# The parts of events that the fold reads.


class _RawMessages(Struct):
    total: int
    rows: list[tuple[int | None, Raw]]


class _MessageId(Struct):
    id: str


_VALUES: Final = msgspec.msgpack.Decoder(dict[str, Raw])
_LISTED: Final = msgspec.msgpack.Decoder(_RawMessages)
_IDENTIFIED: Final = msgspec.msgpack.Decoder(_MessageId)


def _values(event: BoardChanged) -> dict[str, bytes]:
    return {field: bytes(packed) for field, packed in _VALUES.decode(event.packed).items()} if event.packed else {}


def _read_messages(seq: int, packed: bytes) -> tuple[int, list[BoardRow]]:
    """Return the number of messages that an event gave to a board, and the messages that it holds, in order."""
    listed = _LISTED.decode(packed)
    rows = enumerate((created_ns, bytes(raw)) for created_ns, raw in listed.rows)
    return listed.total, [BoardRow(seq, place, _IDENTIFIED.decode(raw).id, ns, raw) for place, (ns, raw) in rows]


_Row = tuple[int, int, str, int | None, bool]
_INLINE: Final = tuple[list[Any], list[tuple[str, list[_Row], int, bool]], int, list[tuple[int, str]]]


def _value_of(event: Event, field: str) -> bytes:
    assert isinstance(event, BoardChanged), f"{event!r} was packed as a value of a board"
    return _values(event)[field]


def _message_bytes(event: Event, stamp: Stamp, field: str, place: int) -> bytes:
    if isinstance(event, BoardChanged):
        return _read_messages(stamp.seq, _values(event)[field])[1][place].packed
    assert isinstance(event, BoardMessageAppended), f"seq {stamp.seq} was packed as a message of a board"
    return event.packed


BOARD = View("board", kinds=("board",), state=BoardState)


@BOARD.on(BoardChanged)
def _board_changed(board: BoardState, stamp: Stamp, event: BoardChanged) -> None:
    board.changed_ns = stamp.time_ns
    values = {} if stamp.erased else _values(event)
    for field in event.fields:
        if field not in values:
            board.drop(field)
        elif field.partition("@")[0] == MESSAGES:
            total, rows = _read_messages(stamp.seq, values[field])
            board.listings[field] = BoardListing(sorted(rows, key=order_of)[-MESSAGES_KEPT:], total, is_whole=True)
        else:
            board.entries.put(stamp.seq, field, values[field])
    if PROJECT_ID in event.fields or NODE_ID in event.fields:
        board.move(stamp.seq)


@BOARD.on(BoardMessageAppended)
def _board_message_appended(board: BoardState, stamp: Stamp, event: BoardMessageAppended) -> None:
    """Insert the message; an erased one keeps its place, so that no message that was pushed out comes back."""
    board.changed_ns = stamp.time_ns
    packed = b"" if stamp.erased else event.packed
    board.post(BoardRow(stamp.seq, 0, event.id, event.created_ns, packed), event.field, event.total)


@BOARD.on(ForkDropped)
def _board_dropped(board: BoardState, stamp: Stamp, event: ForkDropped) -> None:
    for field in [*board.entries.values, *board.listings]:
        board.drop(field)
    board.moves = []


def board_change(sources: tuple[int, ...], values: dict[str, Any]) -> BoardChanged:
    """Return the event that sets fields."""
    return BoardChanged(sources, tuple(values), pack_json(values))
