"""What the machine draws: operations as plain data, which are done to a memory and to the model alike."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st

from refold import Entry, Episode, Hits, Message, Snapshot, Upserted
from refold.views.skills import LearnedSkill
from tests.differential.boards import GRAPHS, TIMES, Whose
from tests.differential.model import Model

CONFIGURED = {"a": (None, None), "b/\u00e9": ("p", None), "c": ("p", 60)}
"""Conversations with their project and budget; any other one is a fork."""

FORKS = ("f0", "f1", "f2", "f3")
BRANCHES = ("x", "y/\u00e9", "z", "erased")
SUBSETS = (("window",), ("scratchpad",), ("window", "state"), ("scratchpad", "state"))
"""Views that a conversation is restored in, in their order."""
BOARDS = (Whose("s"), Whose("s", "p", "n"), Whose("a"), Whose(None, "p", "n"), Whose(None, "q", "n"))


class Pick(NamedTuple):
    """Something that is there when the operation is done: a message, a memory, a merge, a seq."""

    kind: str
    place: int


@dataclass
class Kept:
    """A snapshot that was taken; ``carried`` is what its bytes hold, if it went through bytes."""

    snapshot: Snapshot
    stream: str
    seq: int
    branch: int = 0
    carried: Any = None
    cut: int = 0
    foreign: bool = False


@dataclass(frozen=True)
class Operation:
    """A public verb, the name of its handle, and what it is given; the last are the options of every mutation."""

    verb: str
    where: Any = None
    args: tuple[Any, ...] = ()
    given: Any = None
    options: Any = None

    def resolved(self, model: Model, kept: list[Kept]) -> "Operation":
        """The operation with all that it picks, as of now."""

        def found(value: Any) -> Any:
            return picked(model, self, value, kept) if isinstance(value, Pick) else value

        kind, where = self.verb.partition(".")[0], self.where
        if isinstance(where, Pick):
            return replace(self, where=found(where)).resolved(model, kept)
        if kind in OF_A_CHAT:
            where = (where, *CONFIGURED.get(where, (None, None)))
        op = replace(
            self.unclaimed(model, where),
            args=tuple(map(found, self.args)),
            given={name: found(value) for name, value in (self.given or {}).items()},
        )
        return replace(op, options=chosen(model, op, self.options or {}))

    def unclaimed(self, model: Model, where: Any = None) -> "Operation":
        """The operation, without values for opening a conversation that is open: they may have changed since."""
        where = self.where if where is None else where
        if self.verb.partition(".")[0] in OF_A_CHAT and model.state(f"conversation/{where[0]}").opened:
            where = (where[0], None, None)
        return replace(self, where=where)

    def do(self, memory: Any) -> Any:
        """Do it to a memory."""
        kind, _, name = self.verb.partition(".")
        spread = {k: v for group in ("fields", "draft") for k, v in self.given.get(group, {}).items()}
        given = spread | {k: v for k, v in self.given.items() if k not in {"fields", "draft"}}
        args = [arg.snapshot if isinstance(arg, Kept) else arg for arg in self.args]
        if self.verb == "Table.restore":
            at = given.pop("at")
            args = [handle(memory if at is None else memory.at(at), kind, args[0])]
        return getattr(handle(memory, kind, self.where), name)(*args, **given, **self.options)

    def follow(self, model: Model, new_ids: list[str]) -> Any:
        """Do it to the model, which takes random ids from the engine; return what the result should be."""
        kind, _, name = self.verb.partition(".")
        model.new_ids = new_ids
        verb = getattr(model, f"{kind}_{name}".lower())
        if kind == "Memory":
            args = [(arg.branch, arg.seq) if isinstance(arg, Kept) else arg for arg in self.args]
            return verb(*args, **self.given, **self.options)
        return verb(self.where, *self.args, **self.given, **self.options)


OF_A_CHAT = {"Conversation": "", "Scratchpad": "scratchpad", "ScopedState": "state", "SessionMemory": "session"}
OF_ALL = {"Settings": "store/main", "SkillLibrary": "skills/default"}


def handle(memory: Any, kind: str, where: Any) -> Any:
    """The handle of a kind and a name."""
    if kind in OF_A_CHAT:
        given = {"project": where[1], "window_tokens": where[2]}
        chat = memory.conversation(where[0], **{k: v for k, v in given.items() if v is not None})
        return getattr(chat, OF_A_CHAT[kind]) if OF_A_CHAT[kind] else chat
    if kind in {"Memory", "Settings", "SkillLibrary"}:
        return {"Memory": lambda: memory, "Settings": lambda: memory.settings}.get(
            kind, lambda: memory.skills.library
        )()
    if isinstance(where, Whose):
        return memory.board(**where.options)
    return getattr(memory, kind.lower())(where)


def stream_of(op: Operation) -> str:
    """The stream whose version an operation expects; the new one of a fork."""
    kind = op.verb.partition(".")[0]
    if op.verb == "Conversation.fork":
        return f"conversation/{op.args[0]}"
    if kind in OF_A_CHAT:
        return f"conversation/{op.where[0]}"
    return op.where.stream if isinstance(op.where, Whose) else OF_ALL.get(kind, f"{kind.lower()}/{op.where}")


def chosen(model: Model, op: Operation, drawn: dict[str, Any]) -> dict[str, Any]:
    """The options as they are given: a version instead of a distance, seqs instead of places in the log."""
    options = dict(drawn)
    if isinstance(options.get("expected"), int):
        actual = model.committed if op.verb.startswith("Memory.") else len(model.stream_rows(stream_of(op)))
        if op.verb in ("Table.put", "Table.set_expires", "Table.delete"):  # Of these it is the key's.
            actual = model.state(stream_of(op)).items.get(op.args[0], (None, 0))[1]
        options["expected"] = max(actual + options["expected"], 0)
    if "sources" in options:
        head = model.committed
        options["sources"] = tuple(dict.fromkeys(1 + place % head for place in options["sources"] if head))
    return options


def picked(model: Model, op: Operation, pick: Pick, kept: list[Kept]) -> Any:
    """What a pick stands for."""
    head, place = model.committed, pick.place
    if pick.kind == "message":
        lines = model.state(f"conversation/{op.where}").lines
        return lines[place % len(lines)].id if lines else "none"
    if pick.kind == "memory":
        state = model.state(f"project/{op.where}")
        ids = [*state.memories, *state.memories, *state.memories, *state.gone, "none"]
        return ids[place % len(ids)]
    if pick.kind == "merge":
        rows = model.stream_rows(f"project/{op.where}", head)
        merges = [row.seq for row in rows if row.about and row.about[0] == "merge"]
        seqs = [*merges, *merges, 1 + place % (head + 1)]
        return seqs[place % len(seqs)]
    if pick.kind == "file":
        nodes = sorted(model.state("files/work").nodes) or ["/memories/none"]
        return nodes[place % len(nodes)]
    if pick.kind == "seq":
        return 1 + place % head if head else None
    if pick.kind == "at":
        own = [row.seq for row in model.stream_rows(f"conversation/{op.where}", head)]
        seqs = own if own and place % 4 else list(range(head + 1))
        return seqs[place % len(seqs)]
    if pick.kind == "chat":
        forks = [name for name in FORKS if model.stream_rows(f"conversation/{name}", head)]
        known = ["a", "a", "a", *CONFIGURED, *forks, *forks]
        return known[place % len(known)]
    if pick.kind == "fork":
        free = [name for name in FORKS if not model.stream_rows(f"conversation/{name}")]
        return (free or FORKS)[place % len(free or FORKS)] if place % 5 else FORKS[place % len(FORKS)]
    assert pick.kind == "kept", pick
    return kept[place % len(kept)]


def ids_of(result: Any) -> list[str]:
    """The random ids in a result."""
    if isinstance(result, Upserted):
        return [result.entry.id] if result.outcome == "inserted" and result.entry else []
    if isinstance(result, Hits):
        return [hit.entry.id for hit in result]
    return [result.id] if isinstance(result, (Message, Entry, Episode, LearnedSkill)) else []


def agrees(result: Any, expected: Any) -> bool:
    """Whether a result is what the model says."""
    if isinstance(expected, dict):
        return {name: getattr(result, name) for name in expected} == expected
    if isinstance(result, Upserted):
        return bool(result.outcome == expected)
    if isinstance(result, Hits):
        return bool(tuple(hit.entry.id for hit in result) == expected)
    if isinstance(expected, list):
        return [entry.id for entry in result] == expected
    if isinstance(expected, tuple):
        return bool((result.day, result.text) == expected)
    return expected is None or expected is ... or bool(type(result) is type(expected) and result == expected)


# Strategies.

places = st.integers(0, 1_000)
names = st.sampled_from(["a", "a", "a", *CONFIGURED, *FORKS])


def pick(kind: str) -> st.SearchStrategy[Pick]:
    """Something that will be there."""
    return st.builds(Pick, st.just(kind), places)


chats = pick("chat")
"""A conversation that is there, or may begin."""

keys = st.sampled_from(["k", "k", "k", "\u00e9", "temp:k", "x" * 300])
texts = st.sampled_from(["", "one", "two \U0001f600", "long " * 60, "nul \0"])
values = st.sampled_from([None, True, 7, 1.5, -0.0, "text", [1, {"z": 1, "a": []}], "long " * 60])
moments = st.sampled_from([None, None, 5, -7_000])
calls = st.lists(st.sampled_from(["c1", "c2"]), min_size=1, max_size=2, unique=True)
tokens = st.sampled_from([10, 10, 20, 30, 0, 7, 101])
"""Mostly such that a sum meets a budget exactly."""

options: st.SearchStrategy[Any] = st.one_of(
    st.just({}),
    st.just({}),
    st.fixed_dictionaries(
        {"sources": st.lists(st.integers(0, 50), max_size=2)},
        optional={
            "expected": st.sampled_from([0, 0, 1, "no stream", "exists"]),
            "request_id": st.sampled_from(["r1", "r2", "r3", "r4"]),
        },
    ),
)


def _any(value: Any) -> Any:
    return value


@st.composite
def messages(draw: st.DrawFn) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Role and content, and the rest: plain text, calls and answers in either form, and everything optional."""
    form = draw(st.sampled_from(["text", "text", "calls", "answer", "answer", "blocks", "result"]))
    role, content, fields = draw(st.sampled_from(["user", "assistant", "system"])), _any(draw(texts)), dict[str, Any]()
    if form == "calls":
        made = [{"id": name, "function": {"name": "look", "arguments": "{}"}} for name in draw(calls)]
        role, content, fields = "assistant", None, {"tool_calls": made}
    elif form == "answer":
        role = draw(st.sampled_from(["tool", "function"]))
        fields = {"tool_call_id": draw(st.sampled_from(["c1", "c2", "c3", None]))}
    elif form == "blocks":
        role, content = "assistant", [{"type": "tool_use", "id": name} for name in draw(calls)]
    elif form == "result":
        role, content = "user", [{"type": "tool_result", "tool_use_id": draw(calls)[0], "content": "x"}]
    is_counted = isinstance(content, str) and draw(st.sampled_from([False, False, False, True]))
    fields |= {"tokens": None if is_counted else draw(tokens)}
    fields |= {"pinned": draw(st.sampled_from([False] * 5 + [None, None, True]))}
    fields |= {"name": draw(st.sampled_from([None, "n"])), "metadata": draw(st.sampled_from([None, {"m": [1]}]))}
    return (role, content), fields


blocks = st.one_of(
    calls.map(lambda names: [{"type": "tool_use", "id": name} for name in names]),
    calls.map(lambda names: [{"type": "tool_result", "tool_use_id": names[0], "content": "x"}]),
)
contents = st.fixed_dictionaries({"tokens": tokens}, optional={"name": st.just("m"), "metadata": st.just({"m": [2]})})


@st.composite
def appends(draw: st.DrawFn) -> Operation:
    """An append."""
    args, fields = draw(messages())
    given = {"fields": fields, "occurred": draw(moments)}
    return Operation("Conversation.append", draw(chats), args, given, draw(options))


def operation(verb: str, where: Any, *args: Any, **given: Any) -> st.SearchStrategy[Operation]:
    """Operations with a verb: what it is given is drawn from strategies, or is as it is."""

    def drawn(value: Any) -> Any:
        return value if isinstance(value, st.SearchStrategy) else st.just(value)

    taken = {name: drawn(value) for name, value in given.items()}
    return st.builds(
        Operation, st.just(verb), drawn(where), st.tuples(*map(drawn, args)), st.fixed_dictionaries(taken), options
    )


CONTENTS = st.sampled_from(
    ["tea", "tea!", "tea milk", "Tea,  Milk.", "tea tea milk", "teas", "port", "port red", "red \u00e9", "milk " * 60]
)
drafts = st.fixed_dictionaries(
    {
        "category": st.sampled_from(["fact", "preference"]),
        "keywords": st.sampled_from([None, None, ["Hot", "drink"], []]),
        "importance": st.sampled_from([0.05, 0.5, 0.9]),
        "metadata": st.sampled_from([None, {"m": [1]}]),
        "status": st.sampled_from(["active", "active", "active", "pending_review"]),
        "vector": st.sampled_from([None, None, None, [1.0, 2.0, 0.0, 0.0, 0.5], [0.0, 0.0, 3.0, 0.0, 0.0]]),
        "occurred": moments,
    }
)
updates = st.fixed_dictionaries(
    {},
    optional={
        "content": CONTENTS,
        "category": st.sampled_from(["fact", "pattern"]),
        "keywords": st.just(["cold"]),
        "importance": st.sampled_from([0.05, 0.7]),
        "metadata": st.just({"n": None}),
        "occurred": moments,
    },
)
projects = st.sampled_from(["p", "p", "default"])
scopes = st.sampled_from(["k", "\u00e9", "temp:k", "session:k", "project:k"])
labels = st.sampled_from(["one", "two"])
memory_ids = pick("memory")
sources = st.one_of(st.none(), st.just("s"), pick("seq"))

whose = st.sampled_from(BOARDS)
graphs = st.sampled_from(
    [
        {"nodes": [], "edges": []},
        {"nodes": [{"id": "1", "label": "", "type": "t", "builder": "t"}], "edges": []},
        {"nodes": [], "edges": [{"from": "1", "to": "2", "type": "LINKS_TO"}]},
    ]
)


def posts(*times: str | None) -> st.SearchStrategy[dict[str, Any]]:
    """Messages of a board."""
    given = {"id": ["", "1", "2", "b"], "role": ["user", "assistant"], "created_at": times}
    return st.fixed_dictionaries({name: st.sampled_from(each) for name, each in given.items()} | {"content": texts})


paths = st.sampled_from(["a", "b", "d/a", "d/a", "d/e/a", "f/b", "d", "d/e", "f"]).map("/memories/{}".format)
places_in_files = st.one_of(pick("file"), pick("file"), paths)
pieces = st.sampled_from(["one", "two", "long", "x\ny", ""])
skills = st.sampled_from(["write-notes", "open-port"])

SETTERS: dict[str, st.SearchStrategy[Any]] = {
    "set_session": st.sampled_from(
        [{"project_id": "p", "active_node_id": "n"}, {"project_id": "p"}, {"timestamp": "then"}, {"timestamp": ""}]
    ),
    **{f"set_{name}": graphs for name in GRAPHS},
    "set_project_structure": st.fixed_dictionaries({}, optional=dict.fromkeys(GRAPHS, graphs)).filter(bool),
    "set_node_context": st.sampled_from([{}, {"id": "n", "label": "N", "type": "", "meta": {"notes": "x"}}]),
    "set_fetched_context": st.sampled_from([{}, {"a": [1, {"z": None}]}]),
    "set_working_history": texts,
    "set_messages_meta": st.sampled_from([{}, {"total_count": 50}]),
    "set_last_user_message": st.sampled_from(["", "said"]),
    "update_settings": st.sampled_from(
        [
            {"history_length": 2},
            {"history_length": 20, "include_context": False},
            {"include_project_structure": False},
            {"include_working_history": False, "include_context": True},
            {"auto_refresh_interval": 600},
        ]
    ),
}
"""What the setters of a board are given."""

parts = st.sampled_from([name for name in SETTERS if name.startswith("set_")]).flatmap(
    lambda name: st.tuples(st.just(f" {name[4:].upper()}"), SETTERS[name])
)


def of_a_board(op: Operation) -> Operation:
    """The operation with what the handle allows: only the board of a session says whose it is."""
    given = op.args[-1]
    if isinstance(given, dict) and not op.where.session and {"project_id", "active_node_id"} & given.keys():
        return replace(op, args=(*op.args[:-1], {"timestamp": "then"}))
    return op


tables = st.sampled_from(["work", "work", "spare"])
items = st.sampled_from(["k", "k", "kk", "\u00e9", ("k", "a"), ("k", "a"), ("k", "b"), ("\u00e9", "a", "b")])
prefixes = st.sampled_from(["", (), "k", "kk", ("k",), ("k", "a"), ("\u00e9",)])
item_values = st.one_of(values, st.sampled_from([b"", b"\x00\xff", {"b": [b"raw", "text"]}, {"$bytes": "AA=="}]))
slacks = st.sampled_from([None, timedelta(), timedelta(hours=1)])
ends = st.sampled_from([None, None, None, timedelta(seconds=2), timedelta(seconds=-1), timedelta(hours=30)])

OPERATIONS: dict[str, st.SearchStrategy[Operation]] = {
    "Conversation.append": appends(),
    "Conversation.set_window_tokens": operation(
        "Conversation.set_window_tokens", chats, st.sampled_from([1, 30, 60, 150])
    ),
    "Conversation.set_embed": operation("Conversation.set_embed", chats, st.booleans()),
    "Conversation.clear_window": operation("Conversation.clear_window", chats),
    "Conversation.remove": operation("Conversation.remove", chats, pick("message")),
    "Conversation.pop": operation("Conversation.pop", chats),
    "Conversation.replace": operation(
        "Conversation.replace", chats, pick("message"), st.one_of(texts, texts, blocks), fields=contents
    ),
    "Conversation.pin": operation("Conversation.pin", chats, pick("message")),
    "Conversation.unpin": operation("Conversation.unpin", chats, pick("message")),
    "Conversation.end_round": operation("Conversation.end_round", chats),
    "Conversation.end": operation("Conversation.end", chats),
    "Conversation.snapshot": operation("Conversation.snapshot", chats, labels).map(lambda op: replace(op, options={})),
    "Conversation.restore": operation(
        "Conversation.restore",
        chats,
        st.one_of(pick("kept"), pick("kept"), labels),
        keep_budget=st.booleans(),
        views=st.one_of(st.none(), st.sampled_from(SUBSETS)),
    ),
    "Conversation.fork": operation(
        "Conversation.fork",
        st.sampled_from(["a", *CONFIGURED, *FORKS]),
        pick("fork"),
        at=st.one_of(st.none(), pick("at")),
    ),
    "Conversation.drop": operation("Conversation.drop", chats),
    "Conversation.close": operation("Conversation.close", chats, drop=st.sampled_from([True, True, False])),
    "Scratchpad.set": operation("Scratchpad.set", chats, keys, texts),
    "Scratchpad.delete": operation("Scratchpad.delete", chats, keys),
    "Scratchpad.note": operation("Scratchpad.note", chats, texts),
    "Scratchpad.clear": operation("Scratchpad.clear", chats),
    "ScopedState.set": operation("ScopedState.set", chats, scopes, values),
    "ScopedState.delete": operation("ScopedState.delete", chats, scopes),
    "Profile.set": operation("Profile.set", "default", keys, texts),
    "Profile.delete": operation("Profile.delete", "default", keys),
    "Journal.append": operation(
        "Journal.append", "work", texts, day=st.sampled_from([None, "2026-11-21", "1999-12-31"]), occurred=moments
    ),
    "Table.put": operation("Table.put", tables, items, item_values, expires=ends),
    "Table.set_expires": operation("Table.set_expires", tables, items, ends, slack=slacks),
    "Table.delete": operation("Table.delete", tables, items),
    "Table.delete_prefix": operation("Table.delete_prefix", tables, prefixes),
    "Table.expire": operation("Table.expire", tables),
    "Table.restore": operation("Table.restore", tables, tables, at=st.one_of(st.none(), pick("seq"))),
    "Settings.set": st.one_of(
        operation("Settings.set", None, "memory_enabled", st.booleans()),
        operation("Settings.set", None, "memory_max_injected", st.sampled_from([0, 7, 200])),
    ),
    "Settings.count_usage": operation("Settings.count_usage", None, "skill_used", st.integers(0, 2)),
    "Project.add": operation("Project.add", projects, CONTENTS, draft=drafts, source=sources),
    "Project.upsert": operation(
        "Project.upsert", projects, CONTENTS, draft=drafts, threshold=st.sampled_from([None, None, 0.5])
    ),
    "Project.update": operation("Project.update", projects, memory_ids, fields=updates),
    "Project.delete": operation("Project.delete", projects, memory_ids),
    "Project.clear": operation("Project.clear", projects),
    "Project.review": operation("Project.review", projects, memory_ids, st.sampled_from(["archived", "active"])),
    "Project.approve": operation("Project.approve", projects, memory_ids),
    "Project.reject": operation("Project.reject", projects, memory_ids),
    "Project.archive": operation("Project.archive", projects, memory_ids),
    "Project.decay": operation("Project.decay", projects, dry_run=st.sampled_from([False, False, True])),
    "Project.prune": operation("Project.prune", projects, st.sampled_from([0.1, 0.6])),
    "Project.compact": operation("Project.compact", projects, st.sampled_from([None, 0.7])),
    "Project.unmerge": operation("Project.unmerge", projects, pick("merge")),
    "Project.recall": operation(
        "Project.recall",
        projects,
        st.sampled_from(["tea milk", "red", ""]),
        top_k=2,
        conversation=st.sampled_from([None, "a"]),
    ),
    "Project.record_episode": operation(
        "Project.record_episode", projects, "failure", task=st.sampled_from(["tea", "port"]), outcome="no"
    ),
    "SessionMemory.describe_task": operation("SessionMemory.describe_task", chats, labels),
    "SessionMemory.note_file": operation("SessionMemory.note_file", chats, keys, lines=st.integers(0, 2)),
    "SessionMemory.note_finding": operation("SessionMemory.note_finding", chats, labels),
    "SessionMemory.record_call": operation("SessionMemory.record_call", chats, labels, {"x": 1}, "text"),
    "SessionMemory.record_extraction": operation(
        "SessionMemory.record_extraction", chats, "provider", (), (), seq=pick("at")
    ),
    "SkillLibrary.learn": operation(
        "SkillLibrary.learn", None, skills, "How it is done.", labels, status=st.sampled_from(["active", "archived"])
    ),
    "SkillLibrary.refine": operation("SkillLibrary.refine", None, skills, body=texts),
    "SkillLibrary.review": operation("SkillLibrary.review", None, skills, st.sampled_from(["active", "archived"])),
    "SkillLibrary.approve": operation("SkillLibrary.approve", None, skills),
    "SkillLibrary.reject": operation("SkillLibrary.reject", None, skills),
    "SkillLibrary.delete": operation("SkillLibrary.delete", None, skills),
    "SkillLibrary.toggle": operation("SkillLibrary.toggle", None, skills, enabled=st.booleans()),
    "SkillLibrary.note": operation("SkillLibrary.note", None, skills, st.sampled_from(["", "Ask.", "long " * 60])),
    "SkillLibrary.use": operation("SkillLibrary.use", None, skills, succeeded=st.sampled_from([None, True, False])),
    "SkillLibrary.record": operation("SkillLibrary.record", None, (), query=labels, conversation=labels),
    "Files.create": operation(
        "Files.create",
        "work",
        paths,
        st.sampled_from(["", "one\ntwo\n", "one", "\u00e9\ntwo\nthree", "long\n" * 60]),
    ),
    "Files.str_replace": operation("Files.str_replace", "work", places_in_files, pieces, pieces),
    "Files.insert": operation("Files.insert", "work", places_in_files, st.integers(0, 3), pieces),
    "Files.delete": operation("Files.delete", "work", paths),
    "Files.rename": operation("Files.rename", "work", paths, paths),
    **{f"Board.{name}": operation(f"Board.{name}", whose, given).map(of_a_board) for name, given in SETTERS.items()},
    "Board.set": parts.flatmap(lambda part: operation("Board.set", whose, *part)).map(of_a_board),
    "Board.initialise": operation(
        "Board.initialise",
        Whose("s"),
        fields=st.sampled_from([{"project_id": "p", "active_node_id": "n"}, {"project_id": "p"}]),
    ),
    "Board.set_messages": operation("Board.set_messages", whose, st.lists(posts(*TIMES), max_size=4)),
    "Board.append_message": operation("Board.append_message", whose, posts(None, *filter(None, TIMES))),
    "Board.hydrate": operation("Board.hydrate", whose, chats),
    "Memory.snapshot": operation("Memory.snapshot", None, labels),
    "Memory.restore": operation("Memory.restore", None, labels),
}
"""Operations by their verb."""

WEIGHTS = {
    **{f"Conversation.{name}": 4 for name in ("append", "restore", "fork", "close")},
    **{f"Scratchpad.{name}": 2 for name in ("set", "delete", "note")},
    **{f"Project.{name}": 3 for name in ("add", "upsert", "update", "unmerge", "decay")},
    **dict.fromkeys(
        (
            "Conversation.set_window_tokens",
            "ScopedState.set",
            "Project.compact",
            "Board.append_message",
            "Board.hydrate",
        ),
        2,
    ),
    "Files.str_replace": 2,
}

VERBS = [verb for verb in OPERATIONS for _ in range(WEIGHTS.get(verb, 1))]


@st.composite
def drawn(draw: st.DrawFn, kinds: tuple[str, ...] = ("",)) -> Operation:
    """An operation of one of the kinds of handles."""
    return draw(OPERATIONS[draw(st.sampled_from([verb for verb in VERBS if verb.startswith(kinds)]))])


@st.composite
def conversations(draw: st.DrawFn) -> list[Operation]:
    """A stretch of one conversation, so that windows fill and groups are evicted; half of them have no groups."""
    name, size, is_plain, ops = (
        draw(chats),
        draw(st.sampled_from([10, 20, None])),
        draw(st.booleans()),
        draw(st.lists(appends(), min_size=4, max_size=12)),
    )
    if is_plain:
        plain = {"tokens": 10, "pinned": False}
        ops = [replace(op, args=("user", "one"), given=op.given | {"fields": plain}) for op in ops]
    if size is not None:  # So that the budget is met exactly.
        ops = [replace(op, given=op.given | {"fields": op.given["fields"] | {"tokens": size}}) for op in ops]
    return [replace(op, where=name, options={}) for op in ops]


@st.composite
def rewrites(draw: st.DrawFn) -> list[Operation]:
    """One key that is set again and again, so that there are values that were replaced."""
    op = draw(drawn(("Scratchpad.set", "ScopedState.set", "Profile.set")))
    return [replace(op, args=(*op.args[:-1], value), options={}) for value in draw(st.permutations(["1", "2", "3"]))]


@st.composite
def lessons(draw: st.DrawFn) -> list[Operation]:
    """Several memories of one project, so that there is something to merge and to find."""
    project, verbs = draw(projects), ("Project.add", "Project.upsert")
    return [replace(draw(drawn(verbs)), where=project, options={}) for _ in range(draw(st.integers(2, 6)))]


@st.composite
def boards(draw: st.DrawFn) -> list[Operation]:
    """Several parts of boards, as when somebody begins to work."""
    return [replace(draw(drawn(("Board.",))), options={}) for _ in range(draw(st.integers(6, 12)))]


def mixed(*kinds: str) -> st.SearchStrategy[list[Operation]]:
    """Any operations of some kinds of handles, which have more to do with each other than those of all."""
    return st.lists(drawn(kinds), min_size=8, max_size=20)


chatting = mixed("Conversation.", "Scratchpad.", "ScopedState.", "Memory.")
learning = mixed("Project.", "Memory.")
keeping = mixed("Files.", "SkillLibrary.", "Profile.", "Journal.", "Settings.", "SessionMemory.", "Memory.")
bursts = st.one_of(conversations(), rewrites(), chatting, chatting, mixed(""), lessons(), learning, keeping, boards())
