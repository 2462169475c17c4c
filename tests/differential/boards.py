"""What the contract says of boards: what was set on each, and what one shows over the one beneath it."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partialmethod
from itertools import count
from typing import Any, ClassVar, NamedTuple

from refold import NotFound
from tests.differential.chats import State, Values
from tests.differential.log import Change, Log, Options, Row
from tests.differential.shelves import Shelves

KEPT = 200
"""The messages that a board holds."""

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
TIMES = {"no date": None, "": None, "2026-11-21": 1_795_219_200 * 10**9, "1969-12-31T23:59:59Z": -(10**9)}
"""The times that are driven."""


@dataclass(frozen=True)
class Post:
    """A message on a board; one that says nothing was erased."""

    id: str
    created_ns: int | None
    said: Any
    seq: int = 0
    place: int = 0

    @property
    def key(self) -> Any:
        """What messages are ordered by: time, the number that the id begins with, and the id."""
        number = re.match("[0-9]+", self.id)
        return self.created_ns is not None, self.created_ns or 0, not number, int(number[0]) if number else 0, self.id


@dataclass
class Pinned(State):
    """The state of a board; ``changed`` are the seq and the time of the last change."""

    fields: Values = field(default_factory=dict)
    posts: list[Post] = field(default_factory=list)
    total: int | None = None
    changed: tuple[int, int] = (0, 0)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was set."""
        return not self.fields and self.total is None

    def has(self, part: str) -> bool:
        """Whether anything of a part was set here."""
        if part == "messages":
            return self.total is not None
        return any(name == part or name.startswith(f"{part}.") for name in self.fields)

    def hashed(self) -> Any:
        fields = sorted((name, json.dumps(value), seq) for name, (value, seq) in self.fields.items())
        return None if self.is_empty else (fields, self.posts, self.total, self.changed[1])

    def plain(self) -> Any:
        fields = {name: json.dumps(value) for name, (value, _) in self.fields.items()}
        return fields, [post.said for post in self.posts], self.total

    def keep(self, posts: list[Post]) -> None:
        """Hold the latest of the messages."""
        self.posts = sorted(posts, key=lambda post: post.key)[-KEPT:]


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
        recorded = {name: value for name, (value, _) in own.fields.items()}
        return {
            "session_id": self.session or "",
            "project_id": self.project or recorded.get("session.project_id", ""),
            "active_node_id": self.node or recorded.get("session.active_node_id", ""),
        }


class Both:
    """A board and the one beneath it."""

    def __init__(self, model: Log, whose: Whose, at: int | None = None) -> None:
        self.whose, self.committed = whose, model.committed
        self.own: Pinned = model.state(whose.stream, at)
        self.ids, self.stream = whose.ids(self.own), ""
        if whose.session and self.ids["project_id"] and self.ids["active_node_id"]:
            self.stream = f"board/node/{self.ids['project_id']}/{self.ids['active_node_id']}"
        self.beneath: Pinned = model.state(self.stream or "board", at)

    def layer(self, part: str) -> Pinned:
        """The board that a part is read from."""
        return self.own if self.own.has(part) else self.beneath

    def value(self, name: str) -> Any:
        """The value of a field, hidden or not."""
        return self.layer(name.partition(".")[0]).fields.get(name, (DEFAULTS[name], 0))[0]

    def shown(self) -> dict[str, Any]:
        """All that the board shows."""
        config = {name.partition(".")[2]: self.value(name) for name in DEFAULTS if name.startswith("config.")}
        hidden = {name for toggle, names in HIDDEN.items() if not config[toggle] for name in names}
        values = {name: DEFAULTS[name] if name in hidden else self.value(name) for name in DEFAULTS}
        posts, total = self.layer("messages").posts[-config["history_length"] :], self.layer("messages").total or 0
        messages = [post.said for post in posts if post.said is not None]
        said = [post["content"] for post in messages if post["role"] == "user" and post["content"]]
        last = values["last_user_message"] or (said[-1] if said else "")
        meta = {
            "total_count": total,
            "filtered_count": len(messages),
            "has_more": total > len(posts),
            "next_cursor": (posts[0].id or None) if posts and total > len(posts) else None,
            "last_user_message": last,
        }
        return {
            "session": self.ids | {"timestamp": values["session.timestamp"] or self._changed()},
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
        times = [board.changed[1] for board in boards if board.changed[0] <= self.committed]
        return iso(max(times)) if times else ""


def iso(time_ns: int) -> str:
    """A time as text."""
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_ns // 1_000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def pinning(values: dict[str, Any], names: list[str]) -> Change:
    """Fields get values, or lose them."""

    def effect(board: Pinned, row: Row) -> None:
        for name in names:
            if row.erased or name not in values:
                board.fields.pop(name, None)
                if name == "messages":
                    board.posts, board.total = [], None
            elif name == "messages":
                board.total = len(values[name])
                board.keep([replace(post, seq=row.seq, place=place) for place, post in enumerate(values[name])])
            else:
                board.fields[name] = (values[name], row.seq)
        board.changed = (row.seq, row.time_ns)

    return Change(effect, ("pinned", names))


def posting(post: Post) -> Change:
    """A message comes to a board, in the place of one of the same id."""

    def effect(board: Pinned, row: Row) -> None:
        left = [held for held in board.posts if not post.id or held.id != post.id]
        board.total = (board.total or 0) + 1 - (len(board.posts) - len(left))
        board.keep([*left, replace(post, said=None if row.erased else post.said, seq=row.seq, place=0)])
        board.changed = (row.seq, row.time_ns)

    return Change(effect, ("posted", post.id))


def post_of(given: dict[str, Any], created: str, created_ns: int | None) -> Post:
    """The message that a board gets."""
    rest = {"session_id": "", "node_id": None, "message_type": "", "created_at": created}
    return Post(given["id"], created_ns, {name: given[name] for name in ("id", "role", "content")} | rest)


class Boards(Shelves):
    """The verbs of a board; the first change of a part brings along what the board beneath shows of it."""

    EMPTY: ClassVar = Shelves.EMPTY | {"board": Pinned}

    def _pin(
        self, whose: Whose, parts: tuple[str, ...], asked: Any, decide: Callable[[Both], list[Any]], options: Any
    ) -> Row | None:
        given = Options(**options)

        def write() -> list[Row]:
            self.compare(whose.stream, len(self.stream_rows(whose.stream)), given.expected)
            both = Both(self, whose)
            planned = [(change, (*sources, *given.sources)) for change, sources in decide(both)]
            if not planned:
                return []
            brought = _brought(both, parts, [change.about for change, _ in planned])
            rows = [self.append(whose.stream, change, sources) for change, sources in [*brought, *planned]]
            leaving = [name for name in both.beneath.fields if name in parts or name.partition(".")[0] in parts]
            leaving += ["messages"] * ("messages" in parts and both.beneath.has("messages"))
            return [*rows, self.append(both.stream, pinning({}, leaving))] if leaving else rows

        return self.answer(whose.stream, asked, given, write)

    def board_set(self, whose: Whose, part: str, given: Any, **options: Any) -> bool:
        part = part.strip().lower()
        values = {part: given}
        if part in {"session", "config"}:
            values = {f"{part}.{name}": value for name, value in given.items()}
        elif part == "project_structure":
            values = {name: given[name] for name in GRAPHS if name in given}
        parts = tuple(values) if part == "project_structure" else (part,)

        def decide(both: Both) -> list[Any]:
            changed = {name: value for name, value in values.items() if repr(both.value(name)) != repr(value)}
            return [(pinning(changed, list(changed)), ())] if changed else []

        return (
            self._pin(whose, parts, (f"set {parts[0]}", part, repr(sorted(values.items(), key=repr))), decide, options)
            is not None
        )

    def _set(self, part: str, whose: Whose, given: Any, **options: Any) -> bool:
        return self.board_set(whose, part, given, **options)

    board_set_session = partialmethod(_set, "session")
    board_set_project_graph = partialmethod(_set, "project_graph")
    board_set_elements_graph = partialmethod(_set, "elements_graph")
    board_set_project_structure = partialmethod(_set, "project_structure")
    board_set_node_context = partialmethod(_set, "node_context")
    board_set_fetched_context = partialmethod(_set, "fetched_context")
    board_set_working_history = partialmethod(_set, "working_history")
    board_set_messages_meta = partialmethod(_set, "messages_meta")
    board_set_last_user_message = partialmethod(_set, "last_user_message")
    board_update_settings = partialmethod(_set, "config")

    def board_initialise(self, whose: Whose, *, fields: dict[str, str], **options: Any) -> bool:
        return self._set("session", whose, fields, **options)

    def board_set_messages(self, whose: Whose, given: list[dict[str, Any]], **options: Any) -> bool:
        made = [post_of(said, said["created_at"], TIMES[said["created_at"]]) for said in given]

        def decide(both: Both) -> list[Any]:
            held = [post.said for post in both.layer("messages").posts if post.said is not None]
            is_same = held == [post.said for post in sorted(made, key=lambda post: post.key)]
            return [] if is_same else [(pinning({"messages": made}, ["messages"]), ())]

        return self._pin(whose, ("messages",), ("messages", repr(given)), decide, options) is not None

    def board_append_message(self, whose: Whose, given: dict[str, Any], **options: Any) -> bool:
        now_ns, created = self.now_ns(), given["created_at"]

        def decide(both: Both) -> list[Any]:
            same = [post for post in both.layer("messages").posts if post.said and post.id == given["id"]]
            held = same[0] if same and given["id"] else None
            post = post_of(given, created, TIMES.get(created))
            if created is None:
                known = (held.said["created_at"], held.created_ns) if held else (iso(now_ns), now_ns)
                post = post_of(given, *known)
            return [] if held and held.said == post.said else [(posting(post), ())]

        return self._pin(whose, ("messages",), ("append", repr(given)), decide, options) is not None

    def board_hydrate(self, whose: Whose, name: str, **options: Any) -> Any:
        if not self.stream_rows(f"conversation/{name}"):
            raise NotFound(name)
        now_ns = self.now_ns()

        def decide(both: Both) -> list[Any]:
            held, node = both.layer("messages").posts, both.ids["active_node_id"] or None
            taken = {post.created_ns // 1_000 for post in held if post.created_ns is not None}
            known, planned = {post.id for post in held}, list[Any]()
            for line in self.state(f"conversation/{name}").lines:
                parts = line.content if isinstance(line.content, list) else [{"text": line.content or ""}]
                text = "\n".join(part["text"] for part in parts if "text" in part)
                if text and line.id not in known:
                    known.add(line.id)
                    when_ns = line.occurred_ns if line.seq <= self.committed and line.occurred_ns else now_ns
                    free = next(number for number in count(when_ns // 1_000) if number not in taken)
                    taken.add(free)
                    said = post_of({"id": line.id, "role": line.role, "content": text}, iso(free * 1_000), free * 1_000)
                    post = replace(said, said=said.said | {"session_id": name, "node_id": node})
                    planned.append((posting(post), (line.seq,)))
            return planned

        self._pin(whose, ("messages",), ("hydrate", name), decide, options)
        return ... if self.is_repeated else sum(row.about[0] == "posted" for row in self.written)


def _brought(both: Both, parts: tuple[str, ...], planned: list[Any]) -> list[Any]:
    replaced = {name for kind, names in planned if kind == "pinned" for name in names}
    brought: list[Any] = []
    for part in {"session", "config"}.intersection(parts):
        held = {} if both.own.has(part) else both.beneath.fields
        order = [name for name in DEFAULTS if name.startswith(f"{part}.") and name in held and name not in replaced]
        brought += [(pinning({name: held[name][0]}, [name]), (held[name][1],)) for name in order]
    if "messages" in parts and "messages" not in replaced:
        known = {post.id for post in both.own.posts} | {post_id for kind, post_id in planned if kind == "posted"}
        left = [post for post in both.beneath.posts if post.said is not None and (not post.id or post.id not in known)]
        brought += [(posting(post), (post.seq,)) for post in left]
    return brought
