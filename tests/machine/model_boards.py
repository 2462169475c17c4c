"""What the plain model says of boards: the fold of their events, and what a board shows over the one beneath it."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from refold import Board
from refold.views.board import MESSAGES_KEPT
from tests.machine.model import Model
from tests.machine.model_states import EMPTY, FOLD, Entry, Held

GRAPHS = ("project_graph", "elements_graph")
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("session.project_id", "session.active_node_id", "session.timestamp"), ""),
    **{name: {"nodes": [], "edges": []} for name in GRAPHS},
    "node_context": {},
    "fetched_context": {},
    "working_history": "",
    "messages_meta": {},
    "last_user_message": "",
    "config.history_length": 20,
    "config.include_project_structure": True,
    "config.include_context": True,
    "config.include_working_history": True,
    "config.auto_refresh_interval": 0,
}
HIDDEN = {
    "include_project_structure": GRAPHS,
    "include_context": ("node_context", "fetched_context"),
    "include_working_history": ("working_history",),
}


@dataclass(frozen=True)
class Row:
    """A message on a board; one without content was erased."""

    id: str
    created_ns: int | None
    said: Any
    seq: int = 0
    place: int = 0

    @property
    def key(self) -> Any:
        """What messages are ordered by; all ids that are drawn have one digit, or are texts."""
        number = int(self.id[0]) if self.id[:1].isdecimal() and not self.id[1:2].isdecimal() else None
        known = (self.created_ns is not None, self.created_ns or 0)
        return *known, number is None, number or 0, self.id


@dataclass
class Pinned:
    """The state of a board."""

    fields: dict[str, Held] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    total: int | None = None
    changed: tuple[int, int] = (0, 0)
    """Seq and time of the last change."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing stands on it."""
        return not self.fields and self.total is None

    def has(self, part: str) -> bool:
        """Whether anything of a part was set here."""
        if part == "messages":
            return self.total is not None
        return any(name == part or name.startswith(f"{part}.") for name in self.fields)

    def hashed(self) -> Any:
        """What a hash tells apart."""
        fields = sorted((name, json.dumps(value), seq) for name, (value, seq) in self.fields.items())
        return None if self.is_empty else (fields, self.rows, self.total, self.changed[1])

    def plain(self) -> Any:
        """What a person compares."""
        fields = {name: json.dumps(value) for name, (value, _) in self.fields.items()}
        return fields, [row.said for row in self.rows], self.total

    def keep(self, rows: list[Row]) -> None:
        """Hold the latest of the messages."""
        self.rows = sorted(rows, key=lambda row: row.key)[-MESSAGES_KEPT:]


class Whose(NamedTuple):
    """What a handle on a board names."""

    session: str | None = None
    project: str | None = None
    node: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """What ``memory.board`` is given."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    @property
    def stream(self) -> str:
        """The stream of the board."""
        return f"board/session/{self.session}" if self.session else f"board/node/{self.project}/{self.node}"

    def ids(self, own: Pinned) -> dict[str, str]:
        """Whose the board is."""
        recorded = {name: value[0] for name, value in own.fields.items() if name.startswith("session.")}
        project = self.project or recorded.get("session.project_id", "")
        return {
            "session_id": self.session or "",
            "project_id": project,
            "active_node_id": self.node or recorded.get("session.active_node_id", ""),
        }

    def beneath(self, own: Pinned) -> str | None:
        """The stream of the board beneath."""
        ids = self.ids(own)
        if not self.session or not ids["project_id"] or not ids["active_node_id"]:
            return None
        return f"board/node/{ids['project_id']}/{ids['active_node_id']}"


BOARDS = (
    Whose("s"),
    Whose("s", "p", "n"),
    Whose("a"),
    Whose(None, "p", "n"),
    Whose(None, "q", "n"),
)
"""The handles that are driven and read."""


class Both:
    """A board and the one beneath it."""

    def __init__(self, model: Model, whose: Whose, at: int | None = None) -> None:
        self.model, self.whose = model, whose
        self.own: Pinned = model.state(whose.stream, at)
        self.stream = whose.beneath(self.own)
        self.beneath: Pinned = model.state(self.stream, at) if self.stream else Pinned()

    def layer(self, part: str) -> Pinned:
        """The board that a part is read from."""
        return self.own if self.own.has(part) else self.beneath

    def value(self, name: str) -> Any:
        """The value of a field, hidden or not."""
        default = DEFAULTS[name]
        return self.layer(name.partition(".")[0]).fields.get(name, (default, 0))[0]

    def shown(self) -> dict[str, Any]:
        """All that the board shows."""
        config = {name.partition(".")[2]: self.value(name) for name in DEFAULTS if name.startswith("config.")}
        hidden = {name for toggle, names in HIDDEN.items() if not config[toggle] for name in names}
        values = {name: DEFAULTS[name] if name in hidden else self.value(name) for name in DEFAULTS}
        rows = self.layer("messages").rows[-config["history_length"] :]
        messages = [row.said for row in rows if row.said is not None]
        said = [row["content"] for row in messages if row["role"] == "user" and row["content"]]
        last = values["last_user_message"] or (said[-1] if said else "")
        total = self.layer("messages").total or 0
        meta = {
            "total_count": total,
            "filtered_count": len(messages),
            "has_more": total > len(rows),
            "next_cursor": (rows[0].id or None) if rows and total > len(rows) else None,
            "last_user_message": last,
        }
        return {
            "session": self.whose.ids(self.own) | {"timestamp": values["session.timestamp"] or self._changed()},
            "project_structure": {name: values[name] for name in GRAPHS},
            **{name: values[name] for name in ("node_context", "fetched_context", "working_history")},
            "messages": messages,
            "last_user_message": last,
            "config": config,
            "messages_meta": meta | values["messages_meta"],
        }

    def _changed(self) -> str:
        """When the board changed last, empty for what an open batch has changed."""
        boards = [board for board in (self.own, self.beneath) if not board.is_empty]
        times = [board.changed[1] for board in boards if board.changed[0] <= self.model.committed]
        return iso(max(times)) if times else ""


def iso(time_ns: int) -> str:
    """A time as text."""
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_ns // 1_000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def check_board(board: Board, model: Model, whose: Whose, at: int | None = None) -> None:
    """Reads a board in every way and compares."""
    both = Both(model, whose, at)
    shown = both.shown()
    assert board.to_dict() | {"messages_meta": board.get("messages_meta")} == shown
    assert json.loads(board.to_json()) == board.to_dict()
    assert board.get_settings() == shown["config"]
    assert board.bundle()["messages"] == shown["messages"]
    assert (board.session, board.project, board.node) == whose
    entries = model.entries(whose.stream, model.committed if at is None else at)
    assert [stamp.seq for _, stamp in board.events()] == [entry.seq for entry in entries]
    assert board.version == len(model.entries(whose.stream, at))
    assert board.place == (whose.stream, model.committed if at is None else at)
    if model.batch is None or at is not None:
        assert board.at(board.place[1]).to_dict() == board.to_dict()


# The fold.


def _changed(board: Pinned, entry: Entry) -> None:
    values, names = entry.data
    for name in names:
        if entry.erased or name not in values:
            board.fields.pop(name, None)
            if name == "messages":
                board.rows, board.total = [], None
        elif name == "messages":
            board.total = len(values[name])
            board.keep([Row(row.id, row.created_ns, row.said, entry.seq, n) for n, row in enumerate(values[name])])
        else:
            board.fields[name] = (values[name], entry.seq)
    board.changed = (entry.seq, entry.time_ns)


def _posted(board: Pinned, entry: Entry) -> None:
    row: Row = entry.data
    left = [held for held in board.rows if not row.id or held.id != row.id]
    board.total = (board.total or 0) + 1 - (len(board.rows) - len(left))
    board.keep([*left, Row(row.id, row.created_ns, None if entry.erased else row.said, entry.seq)])
    board.changed = (entry.seq, entry.time_ns)


EMPTY["board"] = Pinned  # type: ignore[assignment]
FOLD |= {"board_changed": _changed, "posted": _posted}
