"""Parts of a board: cleaners for the values that callers give, and the layered board that a reader sees."""

import datetime as dates
import re
from collections.abc import Callable
from math import isfinite
from typing import Any, Final, NamedTuple, NoReturn, cast

import msgspec

from refold import checks
from refold.engine.streams import session_board
from refold.errors import InvalidInput
from refold.event import unpack_json
from refold.limits import KEY_BYTES_MAX, NAME_BYTES_MAX, TIME_NS_MAX
from refold.memory.options import nanoseconds
from refold.views.board import (
    FIELDS,
    HISTORY_MESSAGES_DEFAULT,
    HISTORY_MESSAGES_MAX,
    MESSAGES,
    MESSAGES_KEPT,
    NODE_ID,
    PARTS,
    PROJECT_ID,
    REFRESH_SECONDS_MAX,
    BoardListing,
    BoardRow,
    BoardState,
    field_at,
    node_board,
    order_of,
    place_of,
)

JsonObject = dict[str, Any]

ALIASES: Final = {"last_message": "last_user_message"}
SETTINGS: Final[dict[str, bool | int]] = {
    "history_length": HISTORY_MESSAGES_DEFAULT,
    "include_project_structure": True,
    "include_context": True,
    "include_working_history": True,
    "auto_refresh_interval": 0,
}
"""The settings of a board and their defaults."""

assert tuple(f"config.{name}" for name in SETTINGS) == FIELDS["config"], "every setting is a field"

_BOUNDS: Final = {"history_length": (1, HISTORY_MESSAGES_MAX), "auto_refresh_interval": (0, REFRESH_SECONDS_MAX)}
_SESSION: Final = ("session_id", "project_id", "active_node_id", "timestamp")
_GRAPHS: Final = FIELDS["project_structure"]
_INTEGER: Final = re.compile(r"\s*([+-]?[0-9]{1,18})")
_EPOCH: Final = dates.datetime(1970, 1, 1, tzinfo=dates.UTC)
_MICROSECOND: Final = dates.timedelta(microseconds=1)


def part_of(name: object) -> str:
    """Return the part that a name stands for, ignoring case and surrounding spaces."""
    given = checks.text(name, "part").strip().lower()
    part = ALIASES.get(given, given)
    if part not in PARTS:
        checks.invalid(f"Unknown working memory part {checks.brief(name)}; give one of {', '.join(PARTS)}")
    return part


# Cleaners: each converts the value of a part to the form stored in its event. Unknown fields of a graph, a context or a
# message are left out, missing ones are filled in, members of another type are dropped, and a value of another type is
# refused.


def graph(value: object, what: str) -> JsonObject:
    """Return a graph with nodes of id, label, type and builder, and edges of from, to and type."""
    given = _object(value, what)
    if not given.keys() & {"nodes", "edges"}:
        _check_fields(given, what, ("nodes", "edges"))
    nodes = [
        {
            "id": _id(node.get("id")),
            "label": _id(node.get("label")) or _id(node.get("title")),
            "type": _id(node.get("type")),
            "builder": _id(node.get("builder")) or _id(node.get("type")),
        }
        for node in _objects(given.get("nodes"), f"{what}.nodes")
    ]
    edges = [
        {"from": _id(edge.get("from")), "to": _id(edge.get("to")), "type": _id(edge.get("type")) or "LINKS_TO"}
        for edge in _objects(given.get("edges"), f"{what}.edges")
    ]
    return {
        "nodes": [node for node in nodes if node["id"]],
        "edges": [edge for edge in edges if edge["from"] and edge["to"]],
    }


def structure(value: object) -> JsonObject:
    """Return the given graphs; a bare graph is the project's, and ``None`` empties both."""
    given = _object(value, "project_structure")
    if given.keys() & {"nodes", "edges"}:
        return {_GRAPHS[0]: graph(given, "project_structure")}
    _check_fields(given, "project_structure", _GRAPHS)
    return {name: graph(given.get(name), name) for name in _GRAPHS if name in given or not given}


def node_context(value: object) -> JsonObject:
    """Return the id, label and type of a node, and everything else known about it in ``meta``."""
    given = _object(value, "node_context")
    if not given:
        return {}
    meta = dict(_object(given.get("meta"), "node_context.meta"))
    meta |= {name: given[name] for name in _META if given.get(name)}
    for name, clean in _META.items():
        if name in meta:
            meta[name] = clean(meta[name])
            if not meta[name]:
                del meta[name]
    return {
        "id": _id(given.get("id")) or _id(given.get("node_id")),
        "label": _first(given, "", "label", "title"),
        "type": _first(given, "", "type", "builder"),
        "meta": meta,
    }


def _notes(value: object) -> str:
    notes = _text(value, "notes")
    return notes if notes.strip() else ""


def _custom_fields(value: object) -> list[JsonObject]:
    rows = [
        {"key": _text(row.get("key"), "a field's key").strip(), "value": _text(row.get("value"), "a field's value")}
        for row in _objects(value, "customFields")
    ]
    return [row for row in rows if row["key"] or row["value"]]


def _linked_elements(value: object) -> list[JsonObject]:
    rows = [
        {
            "id": _id(row.get("id")),
            "label": _first(row, "an element's ", "label") or _id(row.get("id")),
            "type": _first(row, "an element's ", "type"),
        }
        for row in _objects(value, "linked_elements")
    ]
    return [row for row in rows if row["id"]]


_META: Final[dict[str, Callable[[object], Any]]] = {
    "notes": _notes,
    "customFields": _custom_fields,
    "linked_elements": _linked_elements,
}
"""The fields of a node's ``meta`` that have a fixed form, and that can also be given outside ``meta``."""


def working_history(value: object) -> str:
    """Return a history as text, given as a text, an object with a ``text``, or any other JSON value."""
    if isinstance(value, dict):
        inner = cast("dict[str, object]", value).get("text")
        value = inner if isinstance(inner, str) else cast("object", value)
    return _text(value, "working_history")


def last_user_message(value: object) -> str:
    """Return a text unchanged, or an empty one if it is blank."""
    text = "" if value is None else checks.text(value, "last_user_message")
    return text if text.strip() else ""


class BoardMessage(NamedTuple):
    """A message with its fields cleaned, and the time it was created; ``None`` if that is unknown."""

    fields: JsonObject
    created_ns: int | None


def clean_message(value: object, what: str = "message") -> BoardMessage:
    """Return a message with exactly the fields of a message."""
    given = dict(_mapping(value, what))
    created_at, created_ns = _parse_created_at(given.pop("created_at", None))
    _object(given, what)
    fields = {
        "id": checks.text(_id(given.get("id")), "the id of a message", KEY_BYTES_MAX, "KEY_BYTES_MAX"),
        "session_id": _id(given.get("session_id")),
        "node_id": _id(given.get("node_id")) or None,
        "role": _first(given, "", "role") or "user",
        "message_type": _first(given, "", "message_type"),
        "content": _first(given, "", "content"),
        "created_at": created_at,
    }
    return BoardMessage(fields, created_ns)


def messages(value: object) -> JsonObject:
    """Return the number of given messages, and the latest of them, sorted."""
    given = [clean_message(row, f"messages[{place}]") for place, row in enumerate(_list(value, MESSAGES))]
    rows = sorted(given, key=lambda row: order_of(BoardRow(0, 0, row.fields["id"], row.created_ns, b"")))
    return {"total": len(given), "rows": [[row.created_ns, row.fields] for row in rows[-MESSAGES_KEPT:]]}


def messages_meta(value: object) -> JsonObject:
    """Return the counts of messages that the board does not hold, and the cursor at which older messages begin."""
    given = _object(value, "messages_meta")
    counts = {name: _leading_int(given.get(name)) for name in ("total_count", "filtered_count")}
    meta: JsonObject = {name: count for name, count in counts.items() if count is not None and count >= 0}
    if given.get("has_more") is not None:
        meta["has_more"] = checks.flag(given["has_more"], "has_more")
    texts = {"next_cursor": _first(given, "", "next_cursor", "cursor")}
    texts |= {name: _first(given, "", name) for name in ("last_user_message", "last_synced_at")}
    return meta | {name: text for name, text in texts.items() if text.strip()}


def _parse_created_at(value: object) -> tuple[str, int | None]:
    """Return the time of a message as text and in nanoseconds; the latter is ``None`` for a text that is not a time."""
    if isinstance(value, dates.datetime):
        time_ns = nanoseconds(value, "created_at")
        return iso(time_ns), time_ns
    text = _text(value, "created_at")
    try:
        moment = dates.datetime.fromisoformat(text)
    except ValueError:
        return text, None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dates.UTC)
    time_ns = (moment - _EPOCH) // _MICROSECOND * 1_000
    return text, max(-TIME_NS_MAX, min(time_ns, TIME_NS_MAX))


def iso(time_ns: int) -> str:
    """Return a time as text in UTC."""
    moment = _EPOCH + dates.timedelta(microseconds=time_ns // 1_000)
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def session(value: object) -> JsonObject:
    """Return the given fields of a session."""
    given = _check_fields(value, "session", _SESSION)
    return {name: checks.text(_id(text), name, NAME_BYTES_MAX, "NAME_BYTES_MAX") for name, text in given.items()}


def settings(value: object) -> JsonObject:
    """Return the given settings, with numbers clamped to their bounds and the default for a value that is no number."""
    given = _check_fields(value, "settings", tuple(SETTINGS))
    return {name: _setting(name, setting) for name, setting in given.items() if setting is not None}


def _setting(name: str, value: object) -> bool | int:
    if name not in _BOUNDS:
        return checks.flag(value, name)
    least, most = _BOUNDS[name]
    number = _leading_int(value)
    return SETTINGS[name] if number is None else max(least, min(number, most))


CLEANERS: Final[dict[str, Callable[[object], Any]]] = {
    "session": session,
    "project_graph": lambda value: graph(value, "project_graph"),
    "elements_graph": lambda value: graph(value, "elements_graph"),
    "project_structure": structure,
    "node_context": node_context,
    "fetched_context": lambda value: _object(value, "fetched_context"),
    "working_history": working_history,
    MESSAGES: lambda value: {MESSAGES: messages(value)},
    "messages_meta": messages_meta,
    "last_user_message": last_user_message,
    "config": settings,
}
"""The cleaner of each part; ``project_structure`` and ``messages`` return values of fields, the others one value."""


# Checks of JSON values.


def _check_fields(value: object, what: str, names: tuple[str, ...]) -> JsonObject:
    """Return a mapping, and refuse fields that are not in ``names``."""
    given = _mapping(value, what)
    unknown = [name for name in given if name not in names]
    if unknown:
        checks.invalid(f"{what} has no field {checks.brief(unknown[0])}; it has {', '.join(names)}")
    return given


def _mapping(value: object, what: str) -> JsonObject:
    if not isinstance(value, dict):
        _refuse(value, what, "a dict")
    return cast("JsonObject", value)


def _object(value: object, what: str) -> JsonObject:
    """Return a new JSON object, an empty one for ``None``."""
    given = {} if value is None else _mapping(value, what)
    fresh: JsonObject = msgspec.msgpack.decode(checks.packed_json(given, what))
    return fresh


def _list(value: object, what: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        _refuse(value, what, "a list")
    return list(cast("list[object]", value))


def _objects(value: object, what: str) -> list[JsonObject]:
    """Return the objects of a list, without its other members."""
    return [cast("JsonObject", row) for row in _list(value, what) if isinstance(row, dict)]


def _refuse(value: object, what: str, kind: str) -> NoReturn:
    raise InvalidInput(f"{what} must be {kind}, not {type(value).__name__} ({checks.brief(value)}); give one")


def _first(row: JsonObject, owner: str, *names: str) -> str:
    return next((text for name in names if (text := _text(row.get(name), f"{owner}{name}"))), "")


def _text(value: object, what: str) -> str:
    """Return a text unchanged, an empty one for ``None``, and any other value as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return checks.text(value, what)
    checks.packed_json(value, what)
    return msgspec.json.encode(value).decode()


def _id(value: object) -> str:
    """Return an id as text; an empty text for an object or a list."""
    return "" if isinstance(value, (dict, list)) else _text(value, "an id")


def _leading_int(value: object) -> int | None:
    """Return the whole number that a value is or begins with, or ``None``."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if isfinite(value) else None
    digits = _INTEGER.match(value)
    return int(digits[1]) if digits else None


# Streams of boards.


class BoardScope(NamedTuple):
    """The owner of a board: a session, or a node of a project."""

    session: str | None
    project: str | None
    node: str | None

    @property
    def stream(self) -> str:
        """The stream of the board."""
        if self.session is None:
            return node_board(self.project or "", self.node or "")
        return session_board(self.session)

    def ids(self, own: BoardState) -> dict[str, str]:
        """Return the ids of session, project and node: the handle's, or else the recorded ones."""
        return {
            "session_id": self.session or "",
            "project_id": self.project or own.text(PROJECT_ID),
            "active_node_id": self.node or own.text(NODE_ID),
        }

    def place(self, own: BoardState) -> tuple[str, str]:
        """Return the places of the project and node that a session works on; both are empty for a node's own board."""
        ids = self.ids(own)
        return ("", "") if self.session is None else place_of(ids["project_id"], ids["active_node_id"])

    def base(self, own: BoardState) -> str | None:
        """Return the stream of the node's board under a session's, or ``None``."""
        if self.session is None:
            return None
        ids = self.ids(own)
        project, node = ids["project_id"], ids["active_node_id"]
        stream = node_board(project, node) if project and node else None
        return stream if stream is None or len(_id_in(stream).encode()) <= NAME_BYTES_MAX else None


def parse_scope(session: object, project: object, node: object) -> BoardScope:
    """Return the scope of the given names; raise ``InvalidInput`` if they name neither a session nor a node."""
    if session is None and (project is None or node is None):
        checks.invalid(
            "project and node are required when session is missing; give session=..., or project=... and node=..."
        )
    given = {"session": session, "project": project, "node": node}
    scope = BoardScope(*(None if value is None else checks.name(value, name) for name, value in given.items()))
    checks.name(_id_in(scope.stream), "the name of the board")
    return scope


def scope_of(stream: str) -> BoardScope:
    """Return the scope of a board's stream."""
    _, kind, name = stream.split("/", 2)
    if kind == "session":
        return BoardScope(name, None, None)
    project, _, node = name.partition("/")
    return BoardScope(None, project.replace("%2F", "/").replace("%25", "%"), node)


def _id_in(stream: str) -> str:
    return stream.partition("/")[2]


# The board that a reader sees.

SECTIONS: Final = (
    "session",
    "project_structure",
    "node_context",
    "fetched_context",
    "working_history",
    MESSAGES,
    "last_user_message",
    "config",
)
"""The sections of a board as JSON, in order."""

BUNDLE: Final = (MESSAGES, "messages_meta", "working_history", "last_user_message")
"""The parts about a conversation."""


def default_of(field: str) -> Any:
    """Return the value of a field that was never set."""
    if field in _GRAPHS:
        return {"nodes": [], "edges": []}
    if field in ("node_context", "fetched_context", "messages_meta"):
        return {}
    part, _, name = field.partition(".")
    return SETTINGS[name] if part == "config" else ""


_TOGGLES: Final = {
    **dict.fromkeys((*_GRAPHS, "project_structure"), "include_project_structure"),
    **dict.fromkeys(("node_context", "fetched_context"), "include_context"),
    "working_history": "include_working_history",
}
"""The setting that hides each part while it is off."""


class Layers(NamedTuple):
    """A board and the one under it, as of the same moment."""

    scope: BoardScope
    own: BoardState
    base: BoardState

    @property
    def place(self) -> tuple[str, str]:
        """The places of the project and the node that are shown."""
        return self.scope.place(self.own)

    @property
    def messages_field(self) -> str:
        """The field of the session's own messages at this node."""
        return field_at(MESSAGES, self.place)

    def find(self, field: str) -> tuple[Any, int]:
        """Return the value of a field, hidden or not, and the seq of the event that set it, 0 if it was never set."""
        for entries, name in ((self.own.entries, field_at(field, self.place)), (self.base.entries, field)):
            if name in entries.values:
                return unpack_json(entries.values[name]), entries.seqs[name]
        return default_of(field), 0

    def value(self, field: str) -> Any:
        """Return the value of a field, hidden or not."""
        return self.find(field)[0]

    def show(self, part: str) -> Any:
        """Return a part as the board shows it, empty while the settings hide it."""
        toggle = _TOGGLES.get(part)
        if part == "project_structure":
            return {name: self.show(name) for name in _GRAPHS}
        if toggle is not None and not self.value(f"config.{toggle}"):
            return default_of(part)
        return _SHOWN[part](self) if part in _SHOWN else self.value(part)

    def seqs(self, part: str) -> list[int]:
        """Return the seqs of the events that ``shown(part)`` is made from."""
        if part == "project_structure":
            return [seq for name in _GRAPHS for seq in self.seqs(name)]
        toggle = _TOGGLES.get(part)
        if toggle is not None and not self.value(f"config.{toggle}"):
            return []
        if part == MESSAGES:
            return [row.seq for row, fields in self.recent() if fields]
        seqs = [] if part == "last_user_message" else [self.find(field)[1] for field in FIELDS[part]]
        if part in {"last_user_message", "messages_meta"}:
            seqs.append(self._latest_user_text()[0])
        return [seq for seq in seqs if seq]

    def config(self) -> JsonObject:
        """Return all settings."""
        return {name: self.value(f"config.{name}") for name in SETTINGS}

    def session(self) -> dict[str, str]:
        """Return the ids of the board's owner, and the time that was set, or else the time of the last change."""
        changed_ns = max(0 if board.is_empty else board.changed_ns for board in (self.own, self.base))
        changed_at = iso(changed_ns) if changed_ns else ""
        return self.scope.ids(self.own) | {"timestamp": self.value("session.timestamp") or changed_at}

    def listing(self) -> BoardListing:
        """Return the session's messages at this node, plus those of the node unless a whole list was set."""
        own, base = self.own.listing(self.messages_field), self.base.listing()
        if own.is_whole or not base.total:
            return own
        ids = {row.id for row in own.rows if row.id}
        others = [row for row in base.rows if row.id not in ids]
        total = own.total + base.total - (len(base.rows) - len(others))
        return BoardListing(sorted([*own.rows, *others], key=order_of)[-MESSAGES_KEPT:], total, is_whole=False)

    def node_messages(self) -> list[tuple[BoardRow, JsonObject]]:
        """Return the messages of this node and of no node, each with its fields, which are empty if it was erased."""
        node = self.scope.ids(self.own)["active_node_id"]
        rows: list[tuple[BoardRow, JsonObject]] = [
            (row, unpack_json(row.packed) if row.packed else {}) for row in self.listing().rows
        ]
        return [(row, fields) for row, fields in rows if not node or fields.get("node_id") in {None, node}]

    def recent(self) -> list[tuple[BoardRow, JsonObject]]:
        """Return the latest messages, as many as the settings allow; erased ones count too."""
        return self.node_messages()[-self.value("config.history_length") :]

    def messages(self) -> list[JsonObject]:
        """Return the latest messages that were not erased."""
        return [fields for _, fields in self.recent() if fields]

    def last_user_message(self) -> str:
        """Return the user's last text: a message, or the text that was set if it is newer."""
        return self._latest_user_text()[1]

    def _latest_user_text(self) -> tuple[int, str]:
        said = (row for row in reversed(self.node_messages()) if row[1].get("role") == "user" and row[1]["content"])
        last = next(((row.seq, str(fields["content"])) for row, fields in said), (0, ""))
        given, seq = self.find("last_user_message")
        return (seq, str(given)) if given and newness(seq) >= newness(last[0]) else last

    def messages_meta(self) -> JsonObject:
        """Return the counts of the messages, and where older ones begin; the caller's values override counted ones."""
        kept, recent, (rows, total, _) = self.node_messages(), self.recent(), self.listing()
        has_more = total - (len(rows) - len(kept)) > len(recent)
        given: JsonObject
        given, seq = self.find("messages_meta")
        said, last = self._latest_user_text()
        counted: JsonObject = {
            "total_count": total,
            "filtered_count": sum(bool(fields) for _, fields in recent),
            "has_more": has_more,
            "next_cursor": (recent[0][0].id or None) if has_more and recent else None,
        }
        is_newer = "last_user_message" in given and newness(seq) >= newness(said)
        return counted | given | {"last_user_message": given["last_user_message"] if is_newer else last}


def newness(seq: int) -> tuple[bool, int]:
    """Return the sort key of a seq; seqs of an open batch are below 0, and newer than all others."""
    return seq < 0, abs(seq)


_SHOWN: Final[dict[str, Callable[[Layers], Any]]] = {
    "session": Layers.session,
    MESSAGES: Layers.messages,
    "messages_meta": Layers.messages_meta,
    "last_user_message": Layers.last_user_message,
    "config": Layers.config,
}
"""How to compute the parts that are more than a single value."""
