"""Parts of a board: what callers give brought into form, and what a board shows over the one beneath."""

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
    PARTS,
    REFRESH_SECONDS_MAX,
    Board,
    Posted,
    order_of,
)

# What callers give a board, brought into the form that its events hold.
#
# What a graph, a context or a message says too much of is left out, and what it lacks is filled in; what is of
# another kind altogether is refused.

JsonObject = dict[str, Any]

ALIASES: Final = {"last_message": "last_user_message"}
"""Names of parts that mean another one."""

SETTINGS: Final[dict[str, bool | int]] = {
    "history_length": HISTORY_MESSAGES_DEFAULT,
    "include_project_structure": True,
    "include_context": True,
    "include_working_history": True,
    "auto_refresh_interval": 0,
}
"""Every setting of a board with the value that it has until somebody changes it."""

assert tuple(f"config.{name}" for name in SETTINGS) == FIELDS["config"], "every setting is a field"

_BOUNDS: Final = {"history_length": (1, HISTORY_MESSAGES_MAX), "auto_refresh_interval": (0, REFRESH_SECONDS_MAX)}
_SESSION: Final = ("session_id", "project_id", "active_node_id", "timestamp")
_EDGE_TYPE: Final = "LINKS_TO"
_ROLE: Final = "user"
_INTEGER: Final = re.compile(r"\s*([+-]?[0-9]{1,18})")
_EPOCH: Final = dates.datetime(1970, 1, 1, tzinfo=dates.UTC)
_MICROSECOND: Final = dates.timedelta(microseconds=1)


class Given(NamedTuple):
    """A message as a caller gave it: what it says, and when it was made; ``None`` where nobody knows."""

    said: JsonObject
    created_ns: int | None


def part_of(name: object) -> str:
    """Return the part that a name means, in whatever case and with whatever space around it."""
    wanted = checks.text(name, "part").strip().lower()
    found = ALIASES.get(wanted, wanted)
    if found not in PARTS:
        checks.invalid(f"Unknown working memory part {checks.shown(name)}; give one of {', '.join(PARTS)}")
    return found


# Graphs.


def graph(value: object, what: str) -> JsonObject:
    """Return a graph with nodes of id, label, type and builder, and edges of from, to and type; no others."""
    given = _object(value, what)
    nodes = [_node(node) for node in _objects(given.get("nodes"), f"{what}.nodes")]
    edges = [_edge(edge) for edge in _objects(given.get("edges"), f"{what}.edges")]
    return {
        "nodes": [node for node in nodes if node["id"]],
        "edges": [edge for edge in edges if edge["from"] and edge["to"]],
    }


def _node(node: JsonObject) -> JsonObject:
    kind = _text(node.get("type"), "a node's type")
    label = _text(node.get("label"), "a node's label") or _text(node.get("title"), "a node's title")
    return {
        "id": _id(node.get("id")),
        "label": label,
        "type": kind,
        "builder": _text(node.get("builder"), "a node's builder") or kind,
    }


def _edge(edge: JsonObject) -> JsonObject:
    kind = _text(edge.get("type"), "an edge's type") or _EDGE_TYPE
    return {"from": _id(edge.get("from")), "to": _id(edge.get("to")), "type": kind}


def structure(value: object) -> dict[str, JsonObject]:
    """Return the graphs of a project's structure that were given; a bare graph is the project's, nothing is none."""
    given, names = _object(value, "project_structure"), FIELDS["project_structure"]
    if given and not given.keys() & set(names):
        return {names[0]: graph(given, "project_structure")}
    return {name: graph(given.get(name), name) for name in names if name in given or not given}


# Contexts and history.


def node_context(value: object) -> JsonObject:
    """Return what is known of a node: id, label, type, and everything else that a caller knows of it in ``meta``."""
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
        "label": _text(given.get("label"), "label") or _text(given.get("title"), "title"),
        "type": _text(given.get("type"), "type") or _text(given.get("builder"), "builder"),
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
            "label": _text(row.get("label"), "an element's label") or _id(row.get("id")),
            "type": _text(row.get("type"), "an element's type"),
        }
        for row in _objects(value, "linked_elements")
    ]
    return [row for row in rows if row["id"]]


_META: Final[dict[str, Callable[[object], Any]]] = {
    "notes": _notes,
    "customFields": _custom_fields,
    "linked_elements": _linked_elements,
}
"""What of a node's ``meta`` has a form, and may as well stand beside it."""


def fetched_context(value: object) -> JsonObject:
    """Return what was fetched, as it is."""
    return _object(value, "fetched_context")


def working_history(value: object) -> str:
    """Return a history as text: a text, an object with a ``text``, or any other JSON value, which is written out."""
    if isinstance(value, dict):
        inner = cast("dict[str, object]", value).get("text")
        value = inner if isinstance(inner, str) else cast("object", value)
    return _text(value, "working_history")


def last_user_message(value: object) -> str:
    """Return a text as it is; a blank one stands for none."""
    text = "" if value is None else checks.text(value, "last_user_message")
    return text if text.strip() else ""


# Messages.


def message(value: object, what: str = "message") -> Given:
    """Return a message with all of its fields, and no others."""
    given = dict(_mapping(value, what))
    created, created_ns = _created(given.pop("created_at", None))
    _object(given, what)
    said = {
        "id": checks.text(_id(given.get("id")), "the id of a message", KEY_BYTES_MAX, "KEY_BYTES_MAX"),
        "session_id": _id(given.get("session_id")),
        "node_id": _id(given.get("node_id")) or None,
        "role": _text(given.get("role"), "role") or _ROLE,
        "message_type": _text(given.get("message_type"), "message_type"),
        "content": _text(given.get("content"), "content"),
        "created_at": created,
    }
    return Given(said, created_ns)


def messages(value: object) -> JsonObject:
    """Return how many messages were given, and the latest ones of them, sorted before they are cut."""
    given = [message(row, f"messages[{place}]") for place, row in enumerate(_list(value, MESSAGES))]
    rows = sorted(given, key=lambda row: order_of(Posted(0, 0, row.said["id"], row.created_ns, b"")))
    return {"total": len(given), "rows": [[row.created_ns, row.said] for row in rows[-MESSAGES_KEPT:]]}


def messages_meta(value: object) -> JsonObject:
    """Return what a caller knows of the messages that the board has not: counts, and where older ones begin."""
    given = _object(value, "messages_meta")
    counts = {name: _whole(given.get(name)) for name in ("total_count", "filtered_count")}
    known: JsonObject = {name: count for name, count in counts.items() if count is not None and count >= 0}
    if given.get("has_more") is not None:
        known["has_more"] = checks.flag(given["has_more"], "has_more")
    cursor = _text(given.get("next_cursor"), "next_cursor") or _text(given.get("cursor"), "cursor")
    texts = {name: _text(given.get(name), name) for name in ("last_user_message", "last_synced_at")}
    return known | {name: text for name, text in ({"next_cursor": cursor} | texts).items() if text.strip()}


def _created(value: object) -> tuple[str, int | None]:
    """Return when a message was made as text, and in nanoseconds; ``None`` for a text that says no time."""
    if isinstance(value, dates.datetime):
        when_ns = nanoseconds(value, "created_at")
        return iso(when_ns), when_ns
    text = _text(value, "created_at")
    try:
        moment = dates.datetime.fromisoformat(text)
    except ValueError:
        return text, None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dates.UTC)
    when_ns = (moment - _EPOCH) // _MICROSECOND * 1_000
    return text, max(-TIME_NS_MAX, min(when_ns, TIME_NS_MAX))


def iso(time_ns: int) -> str:
    """Return a time as text in UTC."""
    moment = _EPOCH + dates.timedelta(microseconds=time_ns // 1_000)
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


# Session and settings.


def session(value: object) -> dict[str, str]:
    """Return the fields of a session that were given."""
    given = _mapping(value, "session")
    _refuse_unknown(given, _SESSION, "session")
    return {name: checks.text(_id(text), name, NAME_BYTES_MAX, "NAME_BYTES_MAX") for name, text in given.items()}


def settings(value: object) -> dict[str, bool | int]:
    """Return the settings that were given: numbers within their bounds, what is no number as the default."""
    given = _mapping(value, "settings")
    _refuse_unknown(given, tuple(SETTINGS), "settings")
    return {name: _setting(name, held) for name, held in given.items() if held is not None}


def _setting(name: str, value: object) -> bool | int:
    if name not in _BOUNDS:
        return checks.flag(value, name)
    least, most = _BOUNDS[name]
    number = _whole(value)
    return SETTINGS[name] if number is None else max(least, min(number, most))


def _whole(value: object) -> int | None:
    """Return the whole number that a value is or begins with, ``None`` where there is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if not isinstance(value, str):
        return int(value) if isfinite(value) else None
    found = _INTEGER.match(value)
    return int(found[1]) if found else None


# What all of them share.


def _refuse_unknown(given: JsonObject, known: tuple[str, ...], what: str) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        checks.invalid(f"{what} has no field {checks.shown(unknown[0])}; it has {', '.join(known)}")


def _mapping(value: object, what: str) -> JsonObject:
    if not isinstance(value, dict):
        _refuse(value, what, "a dict")
    return cast("JsonObject", value)


def _object(value: object, what: str) -> JsonObject:
    """Return a fresh JSON object; none at all is an empty one."""
    found = {} if value is None else _mapping(value, what)
    fresh: JsonObject = msgspec.msgpack.decode(checks.packed_json(found, what))
    return fresh


def _list(value: object, what: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        _refuse(value, what, "a list")
    return list(cast("list[object]", value))


def _objects(value: object, what: str) -> list[JsonObject]:
    return [_mapping(row, f"{what}[{place}]") for place, row in enumerate(_list(value, what))]


def _refuse(value: object, what: str, kind: str) -> NoReturn:
    raise InvalidInput(
        f"{what} must be {kind}, not {type(value).__name__} ({checks.shown(value)}); give one, or None for nothing"
    )


def _text(value: object, what: str) -> str:
    """Return a text: as it is, empty for nothing, and anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return checks.text(value, what)
    checks.packed_json(value, what)
    return msgspec.json.encode(value).decode()


def _id(value: object) -> str:
    """Return an id as text; what holds other values is none."""
    return "" if isinstance(value, (dict, list)) else _text(value, "an id")


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
"""The sections of a board as JSON, in their order."""

BUNDLE: Final = (MESSAGES, "messages_meta", "working_history", "last_user_message")
"""What a board knows of a conversation."""

_HIDDEN_BY: Final = {
    "project_graph": "include_project_structure",
    "elements_graph": "include_project_structure",
    "project_structure": "include_project_structure",
    "node_context": "include_context",
    "fetched_context": "include_context",
    "working_history": "include_working_history",
}
"""The setting that hides a part where it is off."""


class Scope(NamedTuple):
    """Whose board a handle is on: a session's, or that of a node of a project."""

    session: str | None
    project: str | None
    node: str | None

    @property
    def stream(self) -> str:
        """The stream of the board."""
        if self.session is None:
            return _stream_of_node(self.project or "", self.node or "")
        return session_board(self.session)

    def ids(self, own: Board) -> dict[str, str]:
        """Return the session, the project and the node of a board: the handle's, else those that were recorded."""
        return {
            "session_id": self.session or "",
            "project_id": self.project or _recorded(own, "session.project_id"),
            "active_node_id": self.node or _recorded(own, "session.active_node_id"),
        }

    def beneath(self, own: Board) -> str | None:
        """Return the stream of the node whose board lies beneath a session's, ``None`` where there is none."""
        if self.session is None:
            return None
        ids = self.ids(own)
        project, node = ids["project_id"], ids["active_node_id"]
        stream = _stream_of_node(project, node) if project and node else None
        return stream if stream is None or len(_id_of(stream).encode()) <= NAME_BYTES_MAX else None


def scoped(session: object, project: object, node: object) -> Scope:
    """Return the scope that a caller means; ``InvalidInput`` where neither a session nor a node is named."""
    if session is None and (project is None or node is None):
        checks.invalid(
            "project and node are required when session is missing; give session=..., or project=... and node=..."
        )
    given = {"session": session, "project": project, "node": node}
    scope = Scope(*(None if value is None else checks.name(value, name) for name, value in given.items()))
    checks.name(_id_of(scope.stream), "the name of the board")
    return scope


def _id_of(stream: str) -> str:
    return stream.partition("/")[2]


def _stream_of_node(project: str, node: str) -> str:
    """Return the stream of a node's board; only the project is escaped, so that the first slash behind it ends it."""
    return f"board/node/{project.replace('%', '%25').replace('/', '%2F')}/{node}"


def _recorded(own: Board, field: str) -> str:
    packed = own.entries.values.get(field)
    return "" if packed is None else unpack_json(packed)


class Layers(NamedTuple):
    """A board and the one beneath it, as they were at one moment."""

    scope: Scope
    own: Board
    beneath: Board

    def layer(self, part: str) -> Board:
        """Return the board that a part is read from."""
        return self.own if self.own.has(part) else self.beneath

    def held(self, field: str) -> bytes | None:
        """Return the packed value of a field, ``None`` where nobody set it."""
        return self.layer(field.partition(".")[0]).entries.values.get(field)

    def value(self, field: str, default: Any) -> Any:
        """Return the value of a field, hidden or not."""
        packed = self.held(field)
        return default if packed is None else unpack_json(packed)

    # What a board shows, part by part.

    def shown(self, part: str) -> Any:
        """Return a part as the board shows it, empty where the settings hide it."""
        hiding = _HIDDEN_BY.get(part)
        is_hidden = hiding is not None and not self.config()[hiding]
        return _EMPTY[part]() if is_hidden else _SHOWN[part](self)

    def config(self) -> dict[str, Any]:
        """Return all settings."""
        return {name: self.value(f"config.{name}", default) for name, default in SETTINGS.items()}

    def session(self) -> dict[str, str]:
        """Return whose board it is, and when it last changed, unless somebody said another time."""
        changed_ns = max(0 if board.is_empty else board.changed_ns for board in (self.own, self.beneath))
        when = iso(changed_ns) if changed_ns else ""
        return self.scope.ids(self.own) | {"timestamp": self.value("session.timestamp", "") or when}

    def structure(self) -> JsonObject:
        """Return both graphs."""
        return {name: self.value(name, _empty_graph()) for name in FIELDS["project_structure"]}

    def recent(self) -> list[Posted]:
        """Return the messages that the settings let a board show, erased ones included: they take their places."""
        return self.layer(MESSAGES).messages[-self.config()["history_length"] :]

    def messages(self) -> list[JsonObject]:
        """Return the latest messages."""
        return [unpack_json(posted.packed) for posted in self.recent() if posted.packed]

    def last_user_message(self) -> str:
        """Return what was given as the last message of the user, else the last one that is shown."""
        given = self.value("last_user_message", "")
        if given:
            return str(given)
        said = (row["content"] for row in reversed(self.messages()) if row["role"] == "user" and row["content"])
        return next(said, "")

    def messages_meta(self) -> JsonObject:
        """Return the counts of the messages, and where older ones begin; what a caller said of them goes first."""
        recent, total = self.recent(), self.layer(MESSAGES).total or 0
        has_more = total > len(recent)
        counted = {
            "total_count": total,
            "filtered_count": sum(bool(posted.packed) for posted in recent),
            "has_more": has_more,
            "next_cursor": (recent[0].id or None) if has_more and recent else None,
            "last_user_message": self.last_user_message(),
        }
        given: JsonObject = self.value("messages_meta", {})
        return counted | given


def _empty_graph() -> JsonObject:
    return {"nodes": [], "edges": []}


_EMPTY: Final[dict[str, Callable[[], Any]]] = {
    "project_graph": _empty_graph,
    "elements_graph": _empty_graph,
    "project_structure": lambda: {name: _empty_graph() for name in FIELDS["project_structure"]},
    "node_context": dict,
    "fetched_context": dict,
    "working_history": str,
}
assert _EMPTY.keys() == _HIDDEN_BY.keys(), "what can be hidden can be empty"

_SHOWN: Final[dict[str, Callable[[Layers], Any]]] = {
    "session": Layers.session,
    "project_graph": lambda layers: layers.value("project_graph", _empty_graph()),
    "elements_graph": lambda layers: layers.value("elements_graph", _empty_graph()),
    "project_structure": Layers.structure,
    "node_context": lambda layers: layers.value("node_context", {}),
    "fetched_context": lambda layers: layers.value("fetched_context", {}),
    "working_history": lambda layers: layers.value("working_history", ""),
    MESSAGES: Layers.messages,
    "messages_meta": Layers.messages_meta,
    "last_user_message": Layers.last_user_message,
    "config": Layers.config,
}
