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
from tests.differential.log import STORE, Change, Log, Options, Row
from tests.differential.tables import Tables

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


class Listed(NamedTuple):
    """The messages of a place, how many there ever were, and whether they came as a list."""

    posts: list[Post]
    total: int
    is_whole: bool


@dataclass
class Pinned(State):
    """The state of a board; ``changed`` are the seq and the time of the last change."""

    fields: Values = field(default_factory=dict)
    lists: dict[str, Listed] = field(default_factory=dict)
    moves: list[tuple[int, str]] = field(default_factory=list)
    changed: tuple[int, int] = (0, 0)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was set."""
        return not self.fields and not self.lists

    def hashed(self) -> Any:
        fields = sorted((name, json.dumps(value), seq) for name, (value, seq) in self.fields.items())
        return None if self.is_empty else (fields, sorted(self.lists.items()), self.moves, self.changed[1])

    def plain(self) -> Any:
        fields = {name: json.dumps(value) for name, (value, _) in self.fields.items()}
        return fields, {name: ([post.said for post in held.posts], held.total) for name, held in self.lists.items()}

    def drop(self, name: str) -> None:
        """Hold a field no longer."""
        self.fields.pop(name, None)
        self.lists.pop(name, None)

    def move(self, seq: int) -> None:
        """Remember where the session works from here on."""
        ids = [self.fields.get(f"session.{name}", ("", 0))[0] for name in ("project_id", "active_node_id")]
        here = "/".join(ids) if ids[1] else ids[0]
        if here != (self.moves[-1][1] if self.moves else ""):
            self.moves = [*self.moves, (seq, here)][-64:]


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

    def __init__(self, model: Log, whose: Whose, at: int | None = None, own: Pinned | None = None) -> None:
        self.whose, self.committed = whose, model.committed
        self.own: Pinned = model.state(whose.stream, at) if own is None else own
        self.ids, self.stream = whose.ids(self.own), ""
        project, node = self.ids["project_id"], self.ids["active_node_id"]
        if whose.session and project and node:
            self.stream = f"board/node/{project}/{node}"
        self.beneath: Pinned = model.state(self.stream or "board", at)
        self.here = "" if not whose.session else f"{project}/{node}" if node else project

    def name(self, field_name: str) -> str:
        """What a field is called at this place."""
        if "." in field_name or not self.whose.session:
            return field_name
        place = self.ids["project_id"] if field_name in GRAPHS else self.here
        return f"{field_name}@{place}" if place else field_name

    def found(self, name: str) -> tuple[Any, int]:
        """The value of a field, hidden or not, and the seq that set it."""
        return self.own.fields.get(self.name(name)) or self.beneath.fields.get(name) or (DEFAULTS[name], 0)

    def value(self, name: str) -> Any:
        """The value of a field, hidden or not."""
        return self.found(name)[0]

    @property
    def listed(self) -> Listed:
        """The messages of this place, over those of the node."""
        mine = self.own.lists.get(self.name("messages"), Listed([], 0, is_whole=False))
        theirs = self.beneath.lists.get("messages", Listed([], 0, is_whole=False))
        if mine.is_whole or not theirs.total:
            return mine
        ids = {post.id for post in mine.posts} - {""}
        others = [post for post in theirs.posts if post.id not in ids]
        posts = sorted([*mine.posts, *others], key=lambda post: post.key)[-KEPT:]
        return Listed(posts, mine.total + theirs.total - len(theirs.posts) + len(others), is_whole=False)

    def shown(self) -> dict[str, Any]:
        """All that the board shows."""
        config = {name.partition(".")[2]: self.value(name) for name in DEFAULTS if name.startswith("config.")}
        hidden = {name for toggle, names in HIDDEN.items() if not config[toggle] for name in names}
        values = {name: DEFAULTS[name] if name in hidden else self.value(name) for name in DEFAULTS}
        node, (every, total, _) = self.ids["active_node_id"], self.listed
        near = [post for post in every if not node or not post.said or post.said["node_id"] in {None, node}]
        posts = near[-config["history_length"] :]
        users = [post for post in near if post.said and post.said["role"] == "user" and post.said["content"]]
        last = (users[-1].seq, users[-1].said["content"]) if users else (0, "")
        given = self.found("last_user_message")
        last = (given[1], given[0]) if given[0] and given[1] >= last[0] else last
        meta, meta_seq = self.found("messages_meta")
        newest = meta["last_user_message"] if "last_user_message" in meta and meta_seq >= last[0] else last[1]
        counted: dict[str, Any] = {
            "total_count": total,
            "filtered_count": sum(post.said is not None for post in posts),
            "has_more": total - len(every) + len(near) > len(posts),
        }
        counted["next_cursor"] = (posts[0].id or None) if posts and counted["has_more"] else None
        return {
            "session": self.ids | {"timestamp": values["session.timestamp"] or self._changed()},
            "project_structure": {name: values[name] for name in GRAPHS},
            **{name: values[name] for name in ("node_context", "fetched_context", "working_history")},
            "messages": [post.said for post in posts if post.said is not None],
            "last_user_message": last[1],
            "config": config,
            "messages_meta": counted | meta | {"last_user_message": newest},
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


def pinning(values: dict[str, Any]) -> Change:
    """Fields get values, or lose them to an erasure."""

    def effect(board: Pinned, row: Row) -> None:
        for name, value in values.items():
            if row.erased:
                board.drop(name)
            elif name.partition("@")[0] == "messages":
                posts = [replace(post, seq=row.seq, place=place) for place, post in enumerate(value)]
                board.lists[name] = Listed(sorted(posts, key=lambda post: post.key)[-KEPT:], len(posts), is_whole=True)
            else:
                board.fields[name] = (value, row.seq)
        if {"session.project_id", "session.active_node_id"} & values.keys():
            board.move(row.seq)
        board.changed = (row.seq, row.time_ns)

    return Change(effect, ("pinned",))


def posting(post: Post, name: str, total: int = 0) -> Change:
    """A message comes to a board, in the place of one of the same id."""

    def effect(board: Pinned, row: Row) -> None:
        held = board.lists.get(name, Listed([], 0, is_whole=False))
        own = row.id_of(post.id)
        left = [other for other in held.posts if not own or other.id != own]
        count = held.total + 1 - (len(held.posts) - len(left))
        left.append(replace(post, id=own, said=None if row.erased else post.said, seq=row.seq, place=0))
        kept = sorted(left, key=lambda post: post.key)[-KEPT:]
        board.lists[name] = Listed(kept, max(count, total), held.is_whole)
        board.changed = (row.seq, row.time_ns)

    return Change(effect, ("posted", post.id))


def emptied(board: Pinned, _: Row) -> None:
    """Hold nothing."""
    board.fields, board.lists, board.moves = {}, {}, []


def post_of(given: dict[str, Any], created: str, created_ns: int | None) -> Post:
    """The message that a board gets."""
    rest = {"session_id": "", "node_id": None, "message_type": "", "created_at": created}
    return Post(given["id"], created_ns, {name: given[name] for name in ("id", "role", "content")} | rest)


class Boards(Tables):
    """The verbs of a board, and those of its conversation that move it."""

    EMPTY: ClassVar = Tables.EMPTY | {"board": Pinned}

    def _pin(self, whose: Whose, asked: Any, decide: Callable[[Both], list[Any]], options: Any) -> Row | None:
        given = Options(**options)

        def write() -> list[Row]:
            self.compare(whose.stream, len(self.stream_rows(whose.stream)), given.expected)
            planned = [(change, (*sources, *given.sources)) for change, sources in decide(Both(self, whose))]
            return [self.append(whose.stream, change, sources) for change, sources in planned]

        return self.answer(whose.stream, asked, given, write)

    def board_set(self, whose: Whose, part: str, given: Any, **options: Any) -> bool:
        part = part.strip().lower()
        values = {part: given}
        if part in {"session", "config"}:
            values = {f"{part}.{name}": value for name, value in given.items()}
        elif part == "project_structure":
            values = {name: given[name] for name in GRAPHS if name in given}
        parts = tuple(values) if part == "project_structure" else (part,)
        now_ns = self.now_ns()

        def decide(both: Both) -> list[Any]:
            changed = {n: value for n, value in values.items() if repr(both.value(n)) != repr(value)}
            planned = [(pinning({both.name(n): value for n, value in changed.items()}), ())] if changed else []
            chat = f"conversation/{whose.session}"
            if not planned or part != "session" or not whose.session or not self.stream_rows(chat):
                return planned
            own = replace(both.own, fields=both.own.fields | {n: (value, 0) for n, value in values.items()})
            own.move(self.head + 10**9)
            there = Both(self, whose, own=own)
            moved = there.here != both.here or not both.own.moves
            return [*planned, *self._posts(there, str(whose.session), now_ns)] if moved else planned

        asked = (f"set {parts[0]}", part, repr(sorted(values.items(), key=repr)))
        return self._pin(whose, asked, decide, options) is not None

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
            held = [post.said for post in both.listed.posts if post.said is not None]
            is_same = held == [post.said for post in sorted(made, key=lambda post: post.key)]
            if is_same and (held or both.listed.is_whole):
                return []
            return [(pinning({both.name("messages"): made}), ())]

        asked = ("messages", repr([sorted(said.items(), key=repr) for said in given]))
        return self._pin(whose, asked, decide, options) is not None

    def board_append_message(self, whose: Whose, given: dict[str, Any], **options: Any) -> bool:
        now_ns, created = self.now_ns(), given["created_at"]

        def decide(both: Both) -> list[Any]:
            same = [post for post in both.listed.posts if post.said and post.id == given["id"]]
            held = same[0] if same and given["id"] else None
            post = post_of(given, created, TIMES.get(created))
            if created is None:
                known = (held.said["created_at"], held.created_ns) if held else (iso(now_ns), now_ns)
                post = post_of(given, *known)
            return [] if held and held.said == post.said else [(posting(post, both.name("messages")), ())]

        return self._pin(whose, ("append", repr(sorted(given.items(), key=repr))), decide, options) is not None

    def board_hydrate(self, whose: Whose, name: str, **options: Any) -> Any:
        if not self.stream_rows(f"conversation/{name}"):
            raise NotFound(name)
        now_ns = self.now_ns()
        self._pin(whose, ("hydrate", name), lambda both: self._posts(both, name, now_ns), options)
        return ... if self.is_repeated else len(self.written)

    def _posts(self, both: Both, name: str, now_ns: int) -> list[Any]:
        """What brings the messages of a conversation that were written at this place."""
        held, node = both.listed.posts, both.ids["active_node_id"] or None
        taken = {post.created_ns // 1_000 for post in held if post.created_ns is not None}
        known, made, ids = {post.id for post in held}, list[Any](), list[str]()
        for line in self.state(f"conversation/{name}").lines:
            parts = line.content if isinstance(line.content, list) else [{"text": line.content or ""}]
            text = "\n".join(part["text"] for part in parts if "text" in part)
            moves = both.own.moves
            earlier = [place for seq, place in moves if seq < line.seq]
            is_here = not moves or (earlier[-1] if earlier else moves[0][1]) == both.here
            if not text or not is_here:
                continue
            ids.append(line.id)
            if line.id not in known:
                known.add(line.id)
                when_ns = line.occurred_ns if line.seq <= self.committed and line.occurred_ns else now_ns
                free = next(number for number in count(when_ns // 1_000) if number not in taken)
                taken.add(free)
                said = post_of({"id": line.id, "role": line.role, "content": text}, iso(free * 1_000), free * 1_000)
                made.append((replace(said, said=said.said | {"session_id": name, "node_id": node}), line.seq))
        mine = both.own.lists.get(both.name("messages"), Listed([], 0, is_whole=False))
        total = max(mine.total + len(made), len(ids) + sum(post.id not in ids for post in mine.posts))
        totals = [0] * (len(made) - 1) + [total]
        field_name = both.name("messages")
        return [(posting(post, field_name, all_), (seq,)) for (post, seq), all_ in zip(made, totals, strict=False)]

    # With its conversation.

    def conversation_restore(self, where: Any, target: Any, *, views: Any = None, **options: Any) -> None:
        """Bring the board along, as it was when the snapshot was taken, unless only some views come back."""
        mine, stream = f"board/session/{where[0]}", f"conversation/{where[0]}"

        def restore() -> None:
            super(Boards, self).conversation_restore(where, target, views=views, **options)

        if views is not None:
            restore()
            return
        if isinstance(target, str):
            self.named(stream, target)
            base = (self.branch, mine, self.state(STORE).cuts[stream, target])
        elif self.is_foreign(target):
            restore()
            return
        else:
            branch = self.branch if target.carried else target.branch
            base = (branch, f"board/session/{target.stream.partition('/')[2]}", target.cut)
        then = self.state_in(*base)

        def bring() -> None:
            if then.hashed() != self.state(mine).hashed():
                self.append(mine, Change(then.returned(self.state(mine)), base=base))

        self._jointly(restore, bring, options)

    def conversation_fork(self, where: Any, twin: str, *, at: int | None = None, **options: Any) -> None:
        self.refuse_in_batch()
        base = (self.branch, f"board/session/{where[0]}", self.head if at is None else at)

        def bring() -> None:
            if self.stream_rows(base[1], base[2]):
                self.append(f"board/session/{twin}", Change(self.state_in(*base).returned(Pinned()), base=base))

        self._jointly(lambda: self.fork_of(where, twin, at, options), bring, options)

    def conversation_close(self, where: Any, *, drop: bool = False, **options: Any) -> None:
        self._drop(
            where, lambda: super(Boards, self).conversation_close(where, drop=drop, **options), options, drops=drop
        )

    def conversation_drop(self, where: Any, **options: Any) -> None:
        self._drop(where, lambda: super(Boards, self).conversation_drop(where, **options), options)

    def _drop(self, where: Any, act: Callable[[], None], options: Any, *, drops: bool = True) -> None:
        mine = f"board/session/{where[0]}"

        def bring() -> None:
            if drops and not self.state(mine).is_empty:
                self.append(mine, Change(emptied))

        self._jointly(act, bring, options)

    def _jointly(self, act: Callable[[], None], bring: Callable[[], None], options: Any) -> None:
        """Do both in one commit; what was answered before is not done again."""
        if self._known(options.get("request_id")) is not None:
            act()
            return
        alone = self.batch is None
        if alone:
            self.begin()
        try:
            act()
            bring()
        except Exception:
            if alone:
                self.discard()
            raise
        if alone:
            self.commit()
