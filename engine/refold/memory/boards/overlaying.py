"""What a board shows: its own parts over those of the node beneath it, with what the settings hide left out."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from refold import checks
from refold.engine.keys import session_board
from refold.event import unpack_json
from refold.limits import NAME_BYTES_MAX
from refold.memory.boards.parts import SETTINGS, JsonObject, iso
from refold.views.board import FIELDS, MESSAGES, Board, Posted

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
