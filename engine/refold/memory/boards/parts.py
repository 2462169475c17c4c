"""What callers give a board, brought into the form that its events hold.

What a graph, a context or a message says too much of is left out, and what it lacks is filled in; what is of another
kind altogether is refused.
"""

import datetime as dates
import re
from collections.abc import Callable
from math import isfinite
from typing import Any, Final, NamedTuple, NoReturn, cast

import msgspec

from refold import checks
from refold.errors import InvalidInput
from refold.limits import KEY_BYTES_MAX, NAME_BYTES_MAX, TIME_NS_MAX
from refold.memory.moments import nanoseconds
from refold.views.board import (
    FIELDS,
    HISTORY_MESSAGES_DEFAULT,
    HISTORY_MESSAGES_MAX,
    MESSAGES,
    MESSAGES_KEPT,
    PARTS,
    REFRESH_SECONDS_MAX,
    Posted,
    order_of,
)

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
    message = (
        f"{what} must be {kind}, not {type(value).__name__} ({checks.shown(value)}); give one, or None for nothing"
    )
    raise InvalidInput(message)


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
