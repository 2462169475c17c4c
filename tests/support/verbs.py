"""Every public verb of every handle, with a call of it: what each property that all verbs share is tested with."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, Final

from refold import Board, Conversation, Journal, Memory, Profile, Project, Snapshot
from refold.limits import DELAY_MS_MAX
from refold.memory import Files, Scratchpad, SessionMemory, Settings, Table
from refold.memory.handles import ScopedState
from refold.skills import SkillLibrary, Skills
from refold.skills.library import SCHEMA
from refold.skills.sources import SkillRoots
from tests.support.worlds import Letters, Verb, World

_Calls = dict[str, Callable[[Any, World], Any]]


def _verbs(kind: type[Any], handle: Callable[[World], Any], calls: _Calls, **options: Any) -> dict[str, Verb]:
    return {f"{kind.__name__}.{name}": Verb(call, handle, kind, **options) for name, call in calls.items()}


def _plain(names: str) -> _Calls:
    """Return calls of verbs that take nothing; what is iterated over is, and a property is read."""

    def call(handle: Any, name: str) -> Any:
        found = getattr(handle, name)
        found = found() if callable(found) else found
        return list(found) if isinstance(found, Iterator) else found

    return {name: partial(lambda handle, _, name: call(handle, name), name=name) for name in names.split()}


def _transact(memory: Any, _: World) -> str:
    def work() -> str:
        memory.conversation("c").state.set("in", "a transaction")
        memory.profile().set("in", memory.profile().get("in", "") + "a transaction")
        return "done"

    done: str = memory.transact(work)
    return done


def _in_batch(memory: Any, _: World) -> None:
    with memory.batch():
        memory.conversation("c").append("user", "in a batch")
        memory.profile().set("in", "a batch")
        memory.project("p").add("what a batch adds is one commit")


def _acting(memory: Any, _: World) -> None:
    with memory.acting("tool"):
        memory.profile().set("found", "by a tool")


def _subscribe(memory: Any, world: World) -> None:
    world.things["subscription"] = memory.subscribe(world.things.setdefault("seen", []).append, after=0)


def _subscribed(world: World) -> None:
    _subscribe(world.memory, world)


def _wait_for_flush(memory: Any, _: World) -> None:
    memory.conversation("c").append("user", "flushed")
    time.sleep(2 * DELAY_MS_MAX / 1_000)


def _wait_for_events(memory: Any, _: World) -> None:
    """Subscribe, and wait until the last event is heard of or never will be."""
    seq = memory.conversation("c").append("user", "heard of").seq
    subscription = memory.subscribe(lambda _: None, after=0)
    while subscription.is_alive and subscription.position < seq:
        time.sleep(0.001)


def _export(world: World) -> None:
    """Write an export of another store, for this one to load."""
    world.things["export"] = world.new_path()
    with Memory() as other:
        for number in range(6):
            other.conversation("loaded").append("user", f"loaded {number}")
        other.export(world.things["export"])


def _skills(world: World) -> Skills:
    """Return skills with files of their own."""
    if "roots" not in world.things:
        world.things["roots"] = SkillRoots(project=str(world.new_path()))
    skills: Skills = world.memory.skills.with_roots(world.things["roots"])
    return skills


def _write_skill(world: World) -> None:
    _skills(world).create("deploy", "Deploy the service.", "Run it.\n")


def _answer(_messages: Any, schema: Any) -> dict[str, Any]:
    assert schema == SCHEMA
    return {"name": "open-a-port", "description": "How a port is opened.", "tags": ["port"], "body": "Ask.\n"}


def _summarize(chat: Any, _: World) -> Any:
    return chat.summarize(lambda previous, messages: f"{previous} of {len(messages)} that left")


_MEMORY: Final[_Calls] = {
    **_plain(
        "boards conversations events files flush forks head hooks journal journals profile profiles projects refresh "
        "replay_hash settings skills snapshots state_hash stats tables verify"
    ),
    "add": lambda memory, _: memory.add("added to the default project"),
    "at": lambda memory, _: memory.at(9).conversation("c").window(),
    "bisect": lambda memory, _: memory.bisect(lambda memory: bool(memory.conversations())),
    "blame": lambda memory, _: memory.blame("name"),
    "board": lambda memory, _: memory.board(session="c"),
    "context": lambda memory, _: memory.context(memory.conversation("c"), query="which port"),
    "conversations/dropped": lambda memory, _: memory.conversations(dropped=True),
    "conversation": lambda memory, _: memory.conversation("c", project="p", window_tokens=60, embed=False),
    "diff": lambda memory, _: memory.diff(3, memory),
    "event": lambda memory, _: memory.event(3),
    "export": lambda memory, world: memory.export(world.new_path()),
    "health": lambda memory, _: memory.health().ok,
    "fork": lambda memory, _: memory.fork("another").conversation("c").append("user", "in another fork"),
    "fork/alone": lambda memory, _: memory.fork("another"),
    "fork/read": lambda memory, _: memory.fork("fork").conversation("c").window(),
    "influence": lambda memory, world: memory.influence(world.known.messages[0]),
    "mirror": lambda memory, world: memory.mirror(world.new_path()).close(),
    "project": lambda memory, _: memory.project("p"),
    "recall": lambda memory, _: memory.recall("which port"),
    "at/occurred": lambda memory, _: memory.at(occurred=0).conversations(),
    "table": lambda memory, _: memory.table("t"),
    "sweep": lambda memory, _: memory.sweep([memory.what_if(window_tokens=20)])[0].regret(),
    "watch": lambda memory, _: memory.watch(lambda _: True, lambda _: None).close(),
    "what_if": lambda memory, _: memory.what_if(window_tokens=20, eviction="fifo").diff(),
    "restore": lambda memory, _: memory.restore("whole"),
    "search": lambda memory, _: memory.search("which port"),
    "search_messages": lambda memory, _: memory.search_messages("some words", roles=["user"]),
    "upsert": lambda memory, _: memory.upsert("what the default project holds"),
    "show": lambda memory, _: memory.rebuild(memory.show(memory.context(memory.conversation("c")))),
    "snapshot": lambda memory, _: memory.snapshot("another"),
    "why": lambda memory, world: memory.why(world.known.messages[0], missing_from="which port"),
    "tools": lambda memory, _: memory.tools.execute("memory_set", {"key": "tool", "value": "said"}),
}

_CONVERSATION: Final[_Calls] = {
    **_plain(
        "clear_window embed end end_round events eviction history messages place project replay scratchpad "
        "token_count version window window_tokens"
    ),
    "append": lambda chat, _: chat.append("user", "appended"),
    "append/request": lambda chat, _: chat.append("user", "appended", request_id="one", pinned=True, expected="any"),
    "at": lambda chat, _: chat.at(9).window(),
    "bisect": lambda chat, _: chat.bisect(lambda chat: bool(chat.window())),
    "fork": lambda chat, _: chat.fork("forked").append("user", "in the fork"),
    "fork/alone": lambda chat, _: chat.fork("forked"),
    "drop": lambda chat, _: chat.drop(),
    "fork/replace": lambda chat, _: chat.fork("fork", replace=True),
    "close": lambda chat, _: chat.fork("dropped").close(drop=True),
    "restore": lambda chat, _: chat.restore("part"),
    "restore/bytes": lambda chat, world: chat.restore(Snapshot.from_bytes(world.known.rendered)),
    "message": lambda chat, world: chat.message(world.known.messages[0]),
    "pin": lambda chat, world: chat.pin(world.known.messages[2]),
    "pop": lambda chat, _: chat.pop(),
    "replace": lambda chat, world: chat.replace(world.known.messages[2], "replaced", tokens=3),
    "rate": lambda chat, world: chat.rate(world.known.messages[2], 0.7),
    "recall": lambda chat, _: chat.recall("words that a recall looks for"),
    "remove": lambda chat, world: chat.remove(world.known.messages[2]),
    "search": lambda chat, _: chat.search("some words", explain=True),
    "summarize": _summarize,
    "set_embed": lambda chat, _: chat.set_embed(embed=True),
    "set_window_tokens": lambda chat, _: chat.set_window_tokens(40),
    "unpin": lambda chat, world: chat.unpin(world.known.messages[4]),
    "restore/budget": lambda chat, world: chat.restore(Snapshot.from_bytes(world.known.rendered), keep_budget=True),
    "restore/views": lambda chat, world: chat.restore(Snapshot.from_bytes(world.known.rendered), views=["window"]),
    "snapshot": lambda chat, _: chat.snapshot("another"),
    "snapshot/bytes": lambda chat, _: chat.snapshot().to_bytes(),
}

_SCRATCHPAD: Final[_Calls] = {
    **_plain("clear items keys notes to_dict to_json"),
    "blame": lambda handle, _: handle.blame("x"),
    "delete": lambda scratchpad, _: scratchpad.delete("key"),
    "get": lambda scratchpad, _: scratchpad.get("key"),
    "note": lambda scratchpad, _: scratchpad.note("another note"),
    "set": lambda scratchpad, _: scratchpad.set("key", "another"),
}

_STATE: Final[_Calls] = {
    **_plain("items keys values"),
    "blame": lambda handle, _: handle.blame("x"),
    "delete": lambda state, _: state.delete("x"),
    "get": lambda state, _: state.get("x"),
    "pop": lambda state, _: state.pop("x"),
    "set": lambda state, _: state.set("project:x", [1, 2]),
    "setdefault": lambda state, _: state.setdefault("temp:z", 3),
    "update": lambda state, _: state.update({"x": 2, "temp:y": 3, "project:z": 4}),
}

_SESSION: Final[_Calls] = {
    **_plain("calls extracted_seq files findings provenance summary task to_text"),
    "describe_task": lambda session, _: session.describe_task("a task"),
    "note_file": lambda session, _: session.note_file("a.txt", lines=1, size_bytes=2),
    "note_finding": lambda session, _: session.note_finding("found"),
    "record_call": lambda session, _: session.record_call("Read", {"path": "a.txt"}, "text"),
    "record_extraction": lambda session, _: session.record_extraction("provider", (), (), seq=3),
}

_PROFILE: Final[_Calls] = {
    **_plain("items"),
    "blame": lambda handle, _: handle.blame("name"),
    "delete": lambda profile, _: profile.delete("name"),
    "get": lambda profile, _: profile.get("name"),
    "set": lambda profile, _: profile.set("name", "another"),
}

_JOURNAL: Final[_Calls] = {
    "append": lambda journal, _: journal.append("another note"),
    "day": lambda journal, _: journal.day("2026-11-21"),
    "recent": lambda journal, _: journal.recent(3),
}

_FILES: Final[_Calls] = {
    **_plain("list"),
    "blame": lambda handle, _: handle.blame("/memories/a.txt"),
    "create": lambda files, _: files.create("/memories/b.txt", "text\n"),
    "delete": lambda files, _: files.delete("/memories/a.txt"),
    "insert": lambda files, _: files.insert("/memories/a.txt", 1, "between\n"),
    "read": lambda files, _: files.read("/memories/a.txt"),
    "rename": lambda files, _: files.rename("/memories/a.txt", "/memories/c.txt"),
    "str_replace": lambda files, _: files.str_replace("/memories/a.txt", "second", "last"),
    "seqs_shown": lambda files, _: files.seqs_shown("/memories/a.txt"),
    "view": lambda files, _: files.view("/memories/a.txt"),
}

_TABLE: Final[_Calls] = {
    **_plain("count expire keys scan"),
    "delete": lambda table, _: table.delete("one"),
    "delete_prefix": lambda table, _: table.delete_prefix(("two",)),
    "get": lambda table, _: table.get("one"),
    "get_many": lambda table, _: table.get_many(["one", ("two", "a")]),
    "history": lambda table, _: table.history("one"),
    "item": lambda table, _: table.item(("two", "a")),
    "put": lambda table, _: table.put("one", ["another", b"\x01"]),
    "put/new": lambda table, _: table.put(("two", "c"), None, expires=timedelta(hours=1_000_000)),
    "set_expires": lambda table, _: table.set_expires("one", timedelta(hours=1_000_000)),
    "restore": lambda table, world: table.restore(world.memory.at(1).table("t")),
    "seqs": lambda table, _: table.seqs(["one", ("two", "a"), "none"]),
    "scan/range": lambda table, _: table.scan(("two",), after=("two", "a"), reverse=True, limit=1),
}

_PROJECT: Final[_Calls] = {
    **_plain("clear count decay events list place stats"),
    "add": lambda project, _: project.add("the answer is forty-two"),
    "approve": lambda project, world: project.approve(world.known.entries[0]),
    "archive": lambda project, world: project.archive(world.known.entries[1]),
    "at": lambda project, _: project.at(15).list(),
    "compact": lambda project, _: project.compact(threshold=0.3),
    "delete": lambda project, world: project.delete(world.known.entries[1]),
    "get": lambda project, world: project.get(world.known.entries[1]),
    "history": lambda project, world: project.history(world.known.entries[1]),
    "prune": lambda project, _: project.prune(0.6),
    "recall": lambda project, _: project.recall("which port", conversation="c"),
    "record_episode": lambda project, _: project.record_episode("failure", task="close the port", outcome="open"),
    "reject": lambda project, world: project.reject(world.known.entries[1]),
    "review": lambda project, world: project.review(world.known.entries[1], "archived"),
    "search": lambda project, _: project.search("which port"),
    "search/hybrid": lambda project, _: project.search("which port", ranking="hybrid", explain=True),
    "search/at": lambda project, _: project.at(15).search("which port"),
    "search_episodes": lambda project, _: project.search_episodes("which port"),
    "search_many": lambda project, _: project.search_many(["which port", "what listens"]),
    "unmerge": lambda project, world: project.unmerge(world.known.merge),
    "update": lambda project, world: project.update(
        world.known.entries[1], content="the web is closed", importance=0.9, source_context="user: it is closed"
    ),
    "upsert": lambda project, _: project.upsert("the web listens on port 83 now", threshold=0.5),
    "upsert/new": lambda project, _: project.upsert("nothing of this was known before", threshold=0.99),
}

_GRAPH: Final = {"nodes": [{"id": "n", "label": "node"}], "edges": []}

_BOARD: Final[_Calls] = {
    **_plain("bundle events get_settings hydrate node place project seqs_shown session to_dict to_json version"),
    "blame": lambda handle, _: handle.blame("messages"),
    "append_message": lambda board, _: board.append_message({"role": "user", "content": "to the board"}),
    "at": lambda board, _: board.at(20).to_dict(),
    "get": lambda board, _: board.get("messages"),
    "initialise": lambda board, _: board.initialise(project_id="p", active_node_id="m"),
    "set": lambda board, _: board.set("working_history", "history"),
    "set_elements_graph": lambda board, _: board.set_elements_graph(_GRAPH),
    "set_fetched_context": lambda board, _: board.set_fetched_context({"fetched": 1}),
    "set_last_user_message": lambda board, _: board.set_last_user_message("last"),
    "set_messages": lambda board, _: board.set_messages([{"role": "user", "content": "one"}], meta={"total_count": 4}),
    "set_messages_meta": lambda board, _: board.set_messages_meta({"total_count": 5}),
    "set_node_context": lambda board, _: board.set_node_context({"id": "n", "meta": {"notes": "x"}}),
    "set_project_graph": lambda board, _: board.set_project_graph(_GRAPH),
    "set_project_structure": lambda board, _: board.set_project_structure(_GRAPH),
    "set_session": lambda board, _: board.set_session({"active_node_id": "m"}),
    "set_working_history": lambda board, _: board.set_working_history("history"),
    "subscribe": lambda board, _: board.subscribe(lambda _: None).close(),
    "subscribe_settings": lambda board, _: board.subscribe_settings(lambda _: None).close(),
    "update_settings": lambda board, _: board.update_settings({"history_length": 5}),
}

_SETTINGS: Final[_Calls] = {
    **_plain("items"),
    "blame": lambda handle, _: handle.blame("memory_enabled"),
    "count_usage": lambda settings, _: settings.count_usage("memory_injected", conversation="c"),
    "get": lambda settings, _: settings.get("memory_enabled"),
    "set": lambda settings, _: settings.set("memory_enabled", value=False),
}

_SKILLS: Final[_Calls] = {
    **_plain("catalog detect diagnostics index list overview refresh"),
    "activate": lambda skills, _: skills.activate("notes"),
    "allowed_tools": lambda skills, _: skills.allowed_tools(["notes"]),
    "with_roots": lambda skills, _: skills.with_roots(SkillRoots()),
    "choose": lambda skills, _: skills.choose("write the notes", conversation="c"),
    "create": lambda skills, _: skills.create("another", "Do another thing.", "Do it.\n"),
    "edit": lambda skills, _: skills.edit("deploy", body="Run it twice.\n"),
    "explain": lambda skills, _: skills.explain("notes", "write the notes"),
    "export": lambda skills, _: skills.export("notes"),
    "find": lambda skills, _: skills.find("notes"),
    "get": lambda skills, _: skills.get("deploy"),
    "maybe_generate": lambda skills, _: skills.maybe_generate(
        _answer, summary="opened a port", tool_calls=[("Read", "a"), ("Bash", "b"), ("Write", "c")]
    ),
    "read_resource": lambda skills, _: skills.read_resource("deploy", "SKILL.md") and None,
    "remove": lambda skills, _: skills.remove("notes"),
    "render": lambda skills, _: skills.render("deploy"),
    "resources": lambda skills, _: skills.resources("deploy"),
    "search": lambda skills, _: skills.search("notes"),
    "select": lambda skills, _: skills.select("write the notes"),
    "last_selection": lambda skills, _: skills.last_selection("c"),
}

_LIBRARY: Final[_Calls] = {
    **_plain("disabled_names list notes"),
    "approve": lambda library, _: library.approve("waiting"),
    "delete": lambda library, _: library.delete("notes"),
    "get": lambda library, _: library.get("notes"),
    "is_enabled": lambda library, _: library.is_enabled("notes"),
    "learn": lambda library, _: library.learn("learned", "Something that was learned.", "Do it.\n"),
    "note": lambda library, _: library.note("notes", "a note of the user"),
    "record": lambda library, _: library.record((), query="which skill", conversation="c"),
    "refine": lambda library, _: library.refine("notes", body="Read twice.\n"),
    "reject": lambda library, _: library.reject("waiting"),
    "review": lambda library, _: library.review("waiting", "active"),
    "last_selection": lambda library, _: library.last_selection("c"),
    "toggle": lambda library, _: library.toggle("notes", enabled=False),
    "usage": lambda library, _: library.usage("notes"),
    "use": lambda library, _: library.use("notes", succeeded=True),
}


def _nothing(_: World) -> None:
    """Make no handle before the call."""


def _opened(_: None, world: World) -> None:
    world.open()


VERBS: Final[dict[str, Verb]] = {
    "Memory": Verb(_opened, _nothing, opens="open", states=("cold", "tail", "beside")),
    "Memory/create": Verb(_opened, _nothing, opens="create", states=("warm",)),
    "Memory.acting": Verb(_acting),
    "Memory.batch": Verb(_in_batch),
    "Memory.transact": Verb(_transact),
    "Memory.close": Verb(lambda memory, _: memory.close(), closes=True),
    "Memory.close/subscribed": Verb(lambda memory, _: memory.close(), prepare=_subscribed, closes=True),
    "Memory.erase": Verb(lambda memory, world: memory.erase(world.known.messages[1:2])),
    "Memory.load": Verb(lambda memory, world: memory.load(world.things["export"]), prepare=_export),
    "Memory.backup": Verb(lambda memory, world: memory.backup(world.new_path()), stores=("durable", "delayed")),
    "Memory.reembed": Verb(lambda memory, _: memory.reembed(Letters()), is_alone=True, embedder=Letters),
    "Memory.subscribe": Verb(_subscribe),
    "Subscription.close": Verb(lambda _, world: world.things["subscription"].close(), _nothing, prepare=_subscribed),
    "Memory.flush/thread": Verb(_wait_for_flush, thread="refold-flusher", stores=("delayed",)),
    "Memory.subscribe/thread": Verb(_wait_for_events, thread="refold-subscriptions"),
    "Conversation.erase": Verb(lambda memory, _: memory.conversation("c").erase(forks="erase")),
    "Project.erase": Verb(lambda memory, _: memory.project("p").erase(forks="erase")),
    "Profile.erase": Verb(lambda memory, _: memory.profile().erase(forks="erase")),
    "Journal.erase": Verb(lambda memory, _: memory.journal().erase(forks="erase")),
    "Files.erase": Verb(lambda memory, _: memory.files().erase(forks="erase")),
    "Table.erase": Verb(lambda memory, _: memory.table("t").erase()),
    "Table.erase/prefix": Verb(lambda memory, _: memory.table("t").erase(("two",))),
    "Board.erase": Verb(lambda memory, _: memory.board(session="c").erase(forks="erase")),
    **_verbs(Memory, lambda world: world.memory, _MEMORY),
    **_verbs(Conversation, lambda world: world.memory.conversation("c"), _CONVERSATION),
    **_verbs(Scratchpad, lambda world: world.memory.conversation("c").scratchpad, _SCRATCHPAD),
    **_verbs(ScopedState, lambda world: world.memory.conversation("c").state, _STATE),
    **_verbs(SessionMemory, lambda world: world.memory.conversation("c").session, _SESSION),
    **_verbs(Profile, lambda world: world.memory.profile(), _PROFILE),
    **_verbs(Journal, lambda world: world.memory.journal(), _JOURNAL),
    **_verbs(Files, lambda world: world.memory.files(), _FILES),
    **_verbs(Table, lambda world: world.memory.table("t"), _TABLE),
    **_verbs(Project, lambda world: world.memory.project("p"), _PROJECT),
    **_verbs(Board, lambda world: world.memory.board(session="c"), _BOARD),
    **_verbs(Settings, lambda world: world.memory.settings, _SETTINGS),
    **_verbs(Skills, _skills, _SKILLS, prepare=_write_skill),
    **_verbs(SkillLibrary, lambda world: world.memory.skills.library, _LIBRARY),
}
"""By "Class.verb", with what is special of a call behind a slash."""


ELSEWHERE: Final = {
    "Memory.aio": "its verbs are the same ones, called on threads that no Ctrl-C reaches",
    "Memory.rebuild": "Memory.show calls it",
    "Conversation.session": "each verb of SessionMemory begins with it",
    "Conversation.state": "each verb of ScopedState begins with it",
    "SessionMemory.check_writable": "each mutation begins with it",
    "SessionMemory.now_ns": "it reads the clock",
    "SkillLibrary.check_writable": "each mutation begins with it",
    "Skills.inject": "a hook: Hooks calls it",
    "Skills.register_hooks": "it registers functions, and touches no store",
}
"""Public names without a call of their own, and why."""
