"""What our own hooks, tools and faces make of a conversation goes with it: no byte of it stays in any file.

Each of them is told the same words in a conversation and keeps them in its way. Then the conversation is erased, or
only the messages that say the words, and the words are looked for in all that is left.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from mcp import Client

from refold import Board, Conversation, InvalidInput, Memory
from refold.agent import (
    AgentLoop,
    Call,
    CallableProvider,
    FunctionTool,
    Reply,
    ToolContext,
    UserMessageResult,
    default_hooks,
    defaults,
    extract_idle,
    files_tool,
)
from refold.cli import commands  # noqa: F401 - it adds the verbs
from refold.cli.root import cli
from refold.limits import SOURCES_COUNT_MAX
from refold.mcp.resources import Binding
from refold.mcp.server import PROMPTS, MemoryServer, registry_of
from refold.message import MessageAppended
from refold.skills import SkillRoots
from refold.skills.restriction import SKILL_USE
from refold.skills.skills import skill_tool
from refold.views.store import ContextHashed
from tests.agent.test_loop import Script
from tests.engine.test_erasure import occurrences
from tests.support.command import running
from tests.support.memories import assert_sound

ID = "conversation-of-ottokar"
WORDS = "passport number QX-4711-0815"
SKILL = "passport-desk"

Arguments = dict[str, Any] | Callable[[Memory], dict[str, Any]]


def newest(memory: Memory) -> dict[str, str]:
    return {"id": memory.project().list()[-1].id}


CALLS: dict[str, list[tuple[str, Arguments]]] = {
    "memory_write": [
        ("memory_write", {"action": "set", "key": WORDS, "value": WORDS}),
        ("memory_write", {"action": "note", "value": WORDS}),
        ("memory_write", {"action": "delete", "key": WORDS}),
        ("memory_write", {"action": "clear"}),
    ],
    "memory_read": [("memory_read", {"key": WORDS})],
    "working_memory_read": [("working_memory_read", {})],
    "memory_set": [("memory_set", {"key": "passport", "value": WORDS})],
    "memory_delete": [("memory_set", {"key": WORDS, "value": "valid"}), ("memory_delete", {"key": WORDS})],
    "memory_add": [("memory_add", {"content": f"The {WORDS} is Ottokar's.", "keywords": [WORDS]})],
    "memory_search": [("memory_search", {"query": WORDS})],
    "conversation_search": [("conversation_search", {"query": WORDS})],
    "memory_update": [("memory_update", lambda memory: newest(memory) | {"content": WORDS})],
    "memory_forget": [("memory_add", {"content": WORDS}), ("memory_forget", newest)],
    "journal_append": [("journal_append", {"text": WORDS})],
    "journal_read": [("journal_append", {"text": WORDS}), ("journal_read", {})],
    "memory": [
        ("memory", {"command": "create", "path": "/memories/note.txt", "file_text": f"{WORDS}\n"}),
        ("memory", {"command": "view", "path": "/memories/note.txt"}),
        ("memory", {"command": "insert", "path": "/memories/note.txt", "insert_line": 1, "insert_text": f"is {WORDS}"}),
        (
            "memory",
            {"command": "str_replace", "path": "/memories/note.txt", "old_str": "is", "new_str": f"was {WORDS}"},
        ),
        ("memory", {"command": "rename", "old_path": "/memories/note.txt", "new_path": f"/memories/{WORDS}"}),
        ("memory", {"command": "create", "path": "/memories/gone.txt", "file_text": WORDS}),
        ("memory", {"command": "delete", "path": "/memories/gone.txt"}),
    ],
    SKILL_USE: [(SKILL_USE, {"name": SKILL})],
}
"""What a model calls of each tool, so that it keeps the words, or the name of the conversation."""

INSIDE = {"memory_write", "memory_read", "conversation_search", "working_memory_read"}
"""They write into the conversation alone."""


class Caller:
    """A model that makes one call after the other, with arguments that it looks up where they depend on the memory."""

    def __init__(self, memory: Memory, calls: Sequence[tuple[str, Arguments]]) -> None:
        self.memory, self.calls = memory, iter(calls)

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:
        assert messages
        assert tools
        for name, arguments in self.calls:
            given = arguments(self.memory) if callable(arguments) else arguments
            return Reply(None, (Call("c", name, json.dumps(given)),))
        return Reply("Very well.")


class Told:
    """A memory in which somebody says the words, and what is there beside that."""

    def __init__(self, path: Path, tmp_path: Path) -> None:
        self.path = path
        self.memory = Memory(path)
        self.memory.project().add("The sky is blue over the harbour.")
        self.memory.conversation("another").append("user", "Is the sky blue?")
        skill = tmp_path / f".skills/{SKILL}/SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(f"---\nname: {SKILL}\ndescription: Ask for a passport number.\n---\nAsk.\n", encoding="utf-8")
        self.skills = self.memory.skills.with_roots(SkillRoots(project=str(tmp_path)))
        self.memory.tools.register(files_tool())
        tool = skill_tool(self.skills)
        assert tool is not None
        self.memory.tools.register(tool)
        self.chat = self.memory.conversation(ID)

    def turn(self, said: str, *calls: tuple[str, Arguments]) -> None:
        """One message of the user, answered by a model that makes the calls one after the other."""

        assert AgentLoop(self.memory, self.chat, Caller(self.memory, calls)).run(said).text == "Very well."
        results = [message.content for message in self.chat.window() if message.role == "tool"]
        assert not [result for result in results if str(result).startswith("Error")]

    def holders(self, *needles: str) -> set[str]:
        """The streams with an event that holds one of the texts."""
        events = ((repr(event), stamp.stream) for event, stamp in self.memory.events())
        return {stream for shown, stream in events if any(needle in shown for needle in needles)}

    def sayings(self) -> list[int]:
        """The seqs of the messages that say the words."""
        messages = ((event, stamp) for event, stamp in self.chat.events() if isinstance(event, MessageAppended))
        return [stamp.seq for event, stamp in messages if WORDS in repr(event)]

    def assert_gone(self, *needles: str) -> None:
        """Nothing that the memory holds, shows or finds says it, now and after it was opened again, and no file."""
        for _ in range(2):
            assert_sound(self.memory)
            shown = repr(self.memory.diff(0, self.memory.head)) + repr(list(self.memory.events()))
            shown += self.memory.context(self.memory.conversation("later"), query=WORDS).text
            shown += repr([hit.entry for hit in self.memory.project().search(WORDS)])
            self.memory.flush()
            for needle in needles:
                assert needle not in shown
                assert occurrences(self.path, needle) == 0
            self.memory.close()
            self.memory = Memory(self.path)


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    told = Told(tmp_path / "store", tmp_path)
    yield told
    told.memory.close()


def erase_conversation(told: Told) -> None:
    told.memory.conversation(ID).erase()
    told.assert_gone(WORDS, ID)


def erase_messages(told: Told) -> None:
    sayings = told.sayings()
    assert sayings
    told.memory.erase(sayings)
    told.assert_gone(WORDS)


Erase = Callable[[Told], None]
ERASURES = pytest.mark.parametrize("erase", [erase_conversation, erase_messages])


# Tools.


def test_every_tool_is_in_the_table(told: Told) -> None:
    assert set(CALLS) == set(told.memory.tools.names())
    assert set(CALLS) == set(registry_of(Binding(told.memory)).names())


@ERASURES
@pytest.mark.parametrize("tool", CALLS)
def test_what_a_tool_kept_goes_with_the_conversation(told: Told, tool: str, erase: Erase) -> None:
    told.turn(f"My {WORDS} is on file.", *CALLS[tool])
    assert (told.holders(ID if tool == SKILL_USE else WORDS) == {f"conversation/{ID}"}) is (tool in INSIDE)
    erase(told)


@pytest.mark.parametrize("tool", CALLS)
def test_what_a_tool_kept_for_a_client_goes_with_the_conversation(told: Told, tool: str) -> None:
    """Nobody said anything there: all that is known is which conversation the calls were made for."""

    async def use() -> None:
        server = MemoryServer(Binding(told.memory, conversation=ID))
        async with asyncio.timeout(60), Client(server.low_level) as client:
            for name, arguments in CALLS[tool]:
                result: Any = await client.call_tool(name, arguments(told.memory) if callable(arguments) else arguments)
                assert not result.is_error, result

    asyncio.run(use())
    told.memory.conversation(ID).erase()
    told.assert_gone(WORDS, ID)


@pytest.mark.parametrize("tool", sorted(CALLS.keys() - INSIDE))
def test_what_a_tool_kept_for_a_fork_goes_with_that_alone(told: Told, tool: str) -> None:
    told.chat.append("user", "Is the sky blue?")
    fork = told.chat.fork("a-fork-of-the-conversation")
    context = told.memory.tools.context(fork)
    for name, arguments in CALLS[tool]:
        given = arguments(told.memory) if callable(arguments) else arguments
        assert not told.memory.tools.execute(name, given, context).is_error
    fork.erase()
    told.assert_gone(WORDS, fork.id)
    assert told.memory.conversation(ID).window()[0].content == "Is the sky blue?"


def test_a_tool_of_a_host_knows_what_to_cite(told: Told) -> None:
    said = told.chat.append("user", "hello")
    assert told.memory.tools.context(told.chat).sources() == (said,)
    assert told.memory.tools.context().sources() == ()
    asked = told.chat.append("assistant", None, tool_calls=[{"id": "c", "function": {"name": "f", "arguments": "{}"}}])
    assert ToolContext(told.memory, told.chat).sources() == (asked, said)
    with told.memory.batch():
        new = told.memory.conversation("new")
        told.memory.profile().set("passport", WORDS, sources=told.memory.tools.context(new).sources())
    new.erase()
    assert told.memory.profile().items() == []


# Hooks.


def provider(content: str) -> CallableProvider:
    """A model that learns what it reads, be that a memory or a skill."""
    memory = {"content": content, "category": "fact"}
    skill = {"name": "ask-it", "description": content, "tags": [content], "body": content}

    def answer(messages: list[dict[str, Any]], *_: object) -> dict[str, Any]:
        return {"memories": [memory] if content in messages[-1]["content"] else [], **skill}

    return CallableProvider(answer, id="scripted")


def obeys(told: Told) -> None:
    told.turn(f"Remember that my {WORDS} is Ottokar's.")
    assert [WORDS in entry.content for entry in told.memory.project().list()] == [False, True]


def forgets(told: Told) -> None:
    told.turn(f"Remember that my {WORDS} is Ottokar's.")
    told.turn(f"Forget that my {WORDS} is Ottokar's.")
    assert told.memory.project().count() == 1


def injects(told: Told) -> None:
    told.turn(f"{SKILL}: ask for a {WORDS}")
    selection = told.skills.last_selection(ID)
    assert selection is not None
    assert WORDS in selection.query


def generates(told: Told) -> None:
    told.memory.settings.set("memory_auto_extract", value=False)
    told.memory.settings.set("skills_auto_generate", value=True)
    told.turn(WORDS, *[("memory_read", {"key": WORDS})] * 3)
    AgentLoop(told.memory, told.chat, Script()).end()
    assert [skill.body for skill in told.memory.skills.library.list()] == [WORDS]


def extracts(told: Told) -> None:
    told.chat.session.describe_task("Renew it.")
    told.turn(f"It is {WORDS}.")
    AgentLoop(told.memory, told.chat, Script()).end()
    assert told.memory.project().list()[-1].content == WORDS


def extracts_evicted(told: Told) -> None:
    told.chat = told.memory.conversation(ID, window_tokens=50)
    told.turn(f"It is {WORDS}, " + "or so " * 15)
    told.turn("And the rest of it " + "is long " * 20)
    assert told.memory.project().list()[-1].content == WORDS


def ends(told: Told) -> None:
    told.turn(f"Renew {WORDS}.")
    AgentLoop(told.memory, told.chat, Script()).end()
    assert [WORDS in hit.entry.task for hit in told.memory.project().search_episodes("")] == [True]


def only_reads(told: Told) -> None:
    told.turn(f"It is {WORDS}.")


HOOKS: dict[str, tuple[Callable[[Told], None], ...]] = {
    "load_memories": (only_reads,),
    "obey_command": (obeys, forgets),
    "Skills.inject": (injects,),
    "Skills._refuse": (only_reads,),
    "Skills.register_hooks.<locals>.generate_at_end": (generates,),
    "Skills.register_hooks.<locals>.refresh_files": (only_reads,),
    "record_session": (ends,),
    "decay_memories": (only_reads,),
    "_register_extraction.<locals>.extract_at_end": (extracts,),
    "_register_extraction.<locals>.extract_evicted": (extracts_evicted,),
}
"""The default hooks by their names, and what makes each of them write."""


def test_every_default_hook_is_in_the_table(told: Told) -> None:
    hooks = default_hooks(told.memory, told.skills, provider(WORDS))
    assert {hook.__qualname__ for registered in hooks._hooks.values() for hook in registered} == set(HOOKS)


@ERASURES
@pytest.mark.parametrize("way", [way for ways in HOOKS.values() for way in ways if way is not only_reads])
def test_what_a_hook_kept_goes_with_the_conversation(told: Told, way: Callable[[Told], None], erase: Erase) -> None:
    default_hooks(told.memory, told.skills, provider(WORDS))
    way(told)
    assert told.holders(WORDS) > {f"conversation/{ID}"}
    erase(told)


def test_a_command_that_a_host_stored_first_goes_with_its_message(told: Told) -> None:
    hooks = default_hooks(told.memory)
    said = told.chat.append("user", f"Remember that my {WORDS} is Ottokar's.")
    hooks.fire_user_message(hooks.context(told.chat), f"Remember that my {WORDS} is Ottokar's.")
    assert told.memory.project().count() == 2
    told.memory.erase([said])
    told.assert_gone(WORDS)


def test_a_command_that_nobody_stored_goes_with_the_name_of_the_conversation(told: Told) -> None:
    hooks = default_hooks(told.memory)
    hooks.register("user_message", lambda *_: None)
    hooks.fire_user_message(hooks.context(told.chat), f"Remember that my {WORDS} is Ottokar's.")
    assert told.chat.version == 0
    assert len(told.chat.erase().derived) == 1
    told.assert_gone(WORDS, ID)


def test_a_command_whose_message_another_hook_stopped_goes_with_the_name_of_the_conversation(told: Told) -> None:
    hooks = default_hooks(told.memory)
    hooks.register("user_message", lambda *_: UserMessageResult(stop_reason="not now"))
    turn = AgentLoop(told.memory, told.chat, Script()).run(f"Remember that my {WORDS} is Ottokar's.")
    assert (turn.stop_reason, told.chat.version, told.memory.project().count()) == ("not now", 0, 2)
    told.chat.erase()
    told.assert_gone(WORDS, ID)


def test_a_write_that_fails_behind_the_message_stops_no_turn(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise ValueError(WORDS)

    told.memory.hooks.register("user_message", lambda context, text: context.write(text, fail))
    told.turn("Is the sky blue?")
    assert "fail raised" in caplog.text


# Faces, and what hosts call of ours by themselves.


def asks_prompt(told: Told) -> None:
    async def use() -> None:
        server = MemoryServer(Binding(told.memory, conversation=ID))
        async with asyncio.timeout(60), Client(server.low_level) as client:
            await client.get_prompt("recall", {"query": WORDS})
            for name in PROMPTS.keys() - {"recall"}:
                await client.get_prompt(name)

    told.chat.append("user", WORDS)
    asyncio.run(use())


def adds_on_the_command_line(told: Told) -> None:
    (said,) = [told.chat.append("user", WORDS)]
    told.memory.close()
    with pytest.MonkeyPatch.context() as patch:
        run = running(patch, _Silent())  # type: ignore[arg-type]
        assert run("add", WORDS, "--source", ID, "--db", told.path).code == 0
        assert run("add", f"{WORDS}, it says", "--source", said.seq, "--db", told.path).code == 0
    told.memory = Memory(told.path)
    told.chat = told.memory.conversation(ID)


class _Silent:
    def readouterr(self) -> tuple[str, str]:
        return "", ""


def hydrates(told: Told) -> None:
    told.chat.append("user", WORDS)
    assert told.memory.board(session=ID).hydrate() == 1
    assert told.memory.board(project="p", node="n").hydrate(told.chat) == 1
    told.memory.board(session=ID).set_node_context({"name": "of this session"})


def shows(told: Told) -> None:
    told.chat.append("user", WORDS)
    told.memory.show(told.memory.context(told.chat, query=WORDS))


def extracts_when_idle(told: Told) -> None:
    told.chat.append("user", WORDS)
    assert ID in extract_idle(told.memory, provider(WORDS), idle_seconds=0)


def merges(told: Told) -> None:
    told.turn(WORDS, ("memory_add", {"content": f"The sky is blue over the harbour, {WORDS}"}))
    assert told.memory.project().compact(0.1).merged == 1


def merges_at_once(told: Told) -> None:
    told.chat.append("user", WORDS)
    upserted = told.memory.project().upsert(f"The sky is blue over it, {WORDS}", source=ID, threshold=0.1)
    assert upserted.outcome == "merged"
    assert upserted.seq is not None
    told.memory.project().unmerge(upserted.seq)


FACES = {
    "recall": asks_prompt,
    "add": adds_on_the_command_line,
    "hydrate": hydrates,
    "show": shows,
    "extract_idle": extracts_when_idle,
    "compact": merges,
    "upsert": merges_at_once,
}
READING_PROMPTS = {"extract_memories", "session_context"}
OTHER_COMMANDS = {
    *("board", "diff", "doctor", "history", "list", "log", "memories", "replay", "search", "show", "stats", "verify"),
    *("blame", "influence", "why", "what-if"),
    *("bench", "bisect", "demo", "decay", "prune", "reembed", "mcp", "web", "skills", "erase"),
    *("import", "export", "backup", "recover", "move", "snapshot", "fork", "restore", "mirror"),
    *("clear", "delete", "files", "journal", "profile", "review", "settings", "table", "update"),
}
"""They read, keep no text of a conversation, or carry the log itself."""


def test_every_prompt_and_every_command_is_in_a_table() -> None:
    assert set(PROMPTS) == READING_PROMPTS | {"recall"}
    assert set(cli.list_commands(click.Context(cli))) == OTHER_COMMANDS | {"add", "compact"}


@pytest.mark.parametrize("face", FACES)
def test_what_a_face_kept_goes_with_the_conversation(told: Told, face: str) -> None:
    FACES[face](told)
    assert told.holders(WORDS, ID) > {f"conversation/{ID}"}
    erase_conversation(told)
    assert [entry.content for entry in told.memory.project().list()] == ["The sky is blue over the harbour."]


# Names.


def test_the_name_of_the_conversation_goes_from_boards_sources_and_counts_of_use(told: Told) -> None:
    """Under another conversation, whose name is longer, everything stays."""
    for name in (ID, f"{ID}-the-second"):
        chat: Conversation = told.memory.conversation(name)
        chat.append("user", "Is the sky blue?")
        told.memory.show(told.memory.context(chat))
        told.memory.board(session=name).set_working_history("looked up")
        told.memory.project().add(f"Asked about the sky by {len(name)}.", source=name)
        told.memory.project().record_episode("success", session=name, task=f"Look up {len(name)}.", outcome="blue")
        told.memory.settings.count_usage("memory_extracted", 2, conversation=name)
        told.skills.library.use(SKILL, conversation=name)
    second = told.memory.conversation(f"{ID}-the-second")
    receipt = told.memory.conversation(ID).erase()
    assert len(receipt.streams) == 2
    assert told.memory.stats().usage["memory_extracted"] == 4
    assert told.holders(ID) == told.holders(second.id)
    assert ID not in repr([event for event, _ in told.memory.events()]).replace(second.id, "")
    assert told.memory.board(session=second.id).get("working_history") == "looked up"
    assert [entry.source for entry in told.memory.project().list()][1:] == [second.id]
    second.erase()
    told.assert_gone(ID)


def test_what_is_to_be_kept_is_kept_with_its_names(told: Told) -> None:
    told.turn(f"My {WORDS} is on file.", *CALLS["memory_add"])
    told.memory.board(session=ID).hydrate()
    receipt = told.chat.erase(derived="keep")
    assert receipt.derived == ()
    assert receipt.occurrences > 0
    assert told.memory.project().list()[-1].source == ID
    assert len(told.memory.board(session=ID).get("messages")) == 3


def test_a_conversation_of_a_fork_of_the_memory_leaves_its_namesake_alone(told: Told) -> None:
    told.memory.project().recall("Is the sky blue?", conversation=told.memory.conversation("another"))
    fork = told.memory.fork("fork")
    for memory in (told.memory, fork):
        memory.conversation(ID).append("user", "Is the sky blue?")
        memory.project().add(f"Asked in a memory of {memory.head} events.", source=ID)
    assert len(fork.conversation(ID).erase().derived) == 1
    assert [entry.source for entry in told.memory.project().list()] == [None, ID]
    assert [entry.source for entry in fork.project().list()] == [None]


def test_forks_that_go_along_take_what_names_them(told: Told) -> None:
    told.chat.append("user", "Is the sky blue?")
    fork = told.chat.fork("a-fork-of-the-conversation")
    told.memory.project().add(WORDS, source=fork.id)
    inherited = told.memory.fork("fork")
    inherited.project().add(f"{WORDS} in the fork", source=ID)
    told.chat.erase(forks="erase")
    told.assert_gone(WORDS, ID, "a-fork-of-the-conversation")


def test_an_episode_goes_with_what_its_task_is_taken_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "SOURCES_COUNT_MAX", 2)  # As in a session of thousands of messages.
    for number, way in enumerate(("described", "said", "inherited")):
        with Memory(tmp_path / str(number)) as memory:
            default_hooks(memory)
            chat = memory.conversation(ID)
            chat.append("system", "You are careful.")
            if way == "described":
                chat.session.describe_task(f"Renew {WORDS}.")
            else:
                chat.append("user", f"Renew {WORDS}.")
            told = memory.head
            chat = chat.fork("fork") if way == "inherited" else chat
            loop = AgentLoop(memory, chat, Script(Reply("Very well."), Reply("Done.")))
            loop.run("Please begin.")
            loop.run("Go on.")
            loop.end()
            assert [hit.entry.task for hit in memory.project().search_episodes("")] == [f"Renew {WORDS}."]
            memory.erase([told])
        assert occurrences(tmp_path / str(number), WORDS) == 0, way


def test_skills_of_a_context_go_with_the_message_that_brought_them(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation(ID)
        said = chat.append("user", "Hello.", metadata={"refold_injected": {"skills": [["desk", WORDS, 1.0]]}})
        memory.show(memory.context(chat, tools=()))
        memory.erase([said])
    assert occurrences(tmp_path / "store", WORDS) == 0


# Hashes of contexts: whoever has the file could test a guess of what was erased against them.


def in_the_profile(told: Told) -> None:
    told.memory.profile().set("passport", WORDS)


def in_a_note(told: Told) -> None:
    told.memory.journal().append(WORDS)


def in_a_memory(told: Told) -> None:
    told.memory.project().add(f"The {WORDS} is Ottokar's.")


def in_a_state_of_the_project(told: Told) -> None:
    told.memory.conversation("another-of-it", project="default").state["project:passport"] = WORDS


def in_an_episode(told: Told) -> None:
    told.memory.project().record_episode("success", task=f"Renew the {WORDS}.")


def in_a_message(told: Told) -> None:
    told.chat.append("user", WORDS)


def in_the_system_prompt(told: Told) -> None:
    told.chat.append("system", WORDS)


def in_the_scratchpad(told: Told) -> None:
    told.chat.scratchpad.set("passport", WORDS)


def in_a_finding(told: Told) -> None:
    told.chat.session.note_finding(WORDS)


def in_a_message_of_the_board(told: Told) -> None:
    told.memory.board(session=ID).append_message({"role": "user", "content": WORDS})


def in_another_conversation(told: Told) -> None:
    earlier = told.memory.conversation("earlier", project="default")
    earlier.append("user", f"It is the {WORDS}, as it stands in the old passport.")


def in_a_conversation_that_was_forked(told: Told) -> None:
    told.chat.append("user", WORDS)
    told.chat = told.chat.fork("a-fork-of-the-conversation")


def in_a_conversation_that_was_restored(told: Told) -> None:
    snapshot = told.memory.conversation("another").snapshot("then")
    told.memory.conversation("another").append("user", WORDS)
    told.chat.restore(told.memory.conversation("another").snapshot("now"))
    told.memory.conversation("another").restore(snapshot)


def under_the_board(told: Told) -> None:
    told.memory.board(session=ID).set_session({"project_id": "p", "active_node_id": "n"})
    told.memory.board(project="p", node="n").set("working_history", WORDS)


HELD: tuple[Callable[[Told], None], ...] = (
    *(in_the_profile, in_a_note, in_a_memory, in_a_state_of_the_project, in_an_episode, in_a_message),
    *(in_the_system_prompt, in_the_scratchpad, in_a_finding, in_a_message_of_the_board, in_another_conversation),
    *(in_a_conversation_that_was_forked, in_a_conversation_that_was_restored, under_the_board),
)


def hashes_in(told: Told) -> set[bytes]:
    """The hashes of all contexts, as the log has them."""
    hashed = [event.digests for event, _ in told.memory.events() if isinstance(event, ContextHashed)]
    return {digest for digests in hashed for digest in digests}


@pytest.mark.parametrize("hold", HELD)
def test_no_hash_of_a_context_is_left_to_test_a_guess_against(told: Told, hold: Callable[[Told], None]) -> None:
    aside = told.memory.conversation("aside", project="aside")
    aside.append("user", "Is the sky blue?")
    untouched = told.memory.show(told.memory.context(aside, profile="aside", journal="aside"))
    before = told.memory.show(told.memory.context(told.memory.conversation("before")))
    first = told.memory.head
    hold(told)
    said = [stamp.seq for event, stamp in told.memory.events(after=first) if WORDS in repr(event)]
    assert said
    told.chat.append("user", "go on")
    context = told.memory.context(told.chat, query="What is the passport number?")
    shown = told.memory.show(context)
    hashes = {bytes.fromhex(part.digest) for part in context.parts if WORDS in part.text}
    window = [message for message in context.window if WORDS in str(message.content)]
    assert hashes or window, "the context shows it"
    assert hashes <= hashes_in(told)
    rest = hashes_in(told)
    assert told.memory.rebuild(shown).matches
    told.memory.erase(said)
    assert not hashes & hashes_in(told)
    left = hashes_in(told)
    assert left < rest
    told.memory.close()
    files = b"".join(path.read_bytes() for path in told.path.rglob("*") if path.is_file())
    assert not [digest for digest in rest - left if digest in files]
    told.memory = Memory(told.path)
    assert told.memory.rebuild(untouched).matches
    assert told.memory.rebuild(before).matches
    assert_sound(told.memory)


def test_hashes_of_others_stay(told: Told) -> None:
    """What two users of one project share is the memory alone: that one had it shown is no part of it."""
    told.memory.project().add("The office is in Bern.")
    told.turn("Where is the office?", ("memory_search", {"query": "office"}))
    told.memory.show(told.memory.context(told.chat, query="Where is the office?"))
    other = told.memory.conversation("other", project="default")
    other.append("user", "Where is the office?")
    shown = told.memory.show(told.memory.context(other, query="office", profile="other", journal="other"))
    told.memory.erase([told.chat.window()[0]])
    assert told.memory.rebuild(shown).matches
    told.memory.conversation(ID).erase()
    assert told.memory.rebuild(shown).matches


def test_a_context_that_was_erased_before_keeps_no_hashes(told: Told) -> None:
    in_the_profile(told)
    said = told.memory.head
    shown = told.memory.show(told.memory.context(told.chat))
    told.memory.erase([shown], derived="keep")
    assert hashes_in(told)
    told.memory.erase([said])
    assert not hashes_in(told)


def test_hashes_that_came_with_a_load_under_another_name_go_too(told: Told, tmp_path: Path) -> None:
    in_the_profile(told)
    told.memory.show(told.memory.context(told.chat))
    told.memory.export(tmp_path / "export")
    with Memory() as other:
        other.profile("another").set("something", "else first")
        other.load(tmp_path / "export", rename={"profile/default": "profile/old"})
        (said,) = [stamp.seq for event, stamp in other.events() if WORDS in repr(event)]
        (shown,) = [stamp.seq for event, stamp in other.events() if type(event).__name__ == "ContextShown"]
        assert other.rebuild(shown).matches
        other.erase([said])
        assert other.rebuild(shown).matches is None


@pytest.mark.parametrize("sources", ["[]", "[1,2]", "[1]"])
def test_hashes_of_what_is_no_context_do_no_harm(told: Told, tmp_path: Path, sources: str) -> None:
    in_the_profile(told)
    told.memory.show(told.memory.context(told.chat))
    told.memory.export(tmp_path / "export")
    lines = (tmp_path / "export").read_text("utf-8").splitlines(keepends=True)
    (number,) = [number for number, line in enumerate(lines) if "context_hashed" in line]
    shown = json.loads(lines[number])["seq"] - 1
    assert f'"sources":[{shown}]' in lines[number]
    lines[number] = lines[number].replace(f'"sources":[{shown}]', f'"sources":{sources}')
    (tmp_path / "export").write_text("".join(lines[:-1]), "utf-8")
    with Memory() as other:
        if sources != "[1]":
            with pytest.raises(InvalidInput, match="hashes of a context have"):
                other.load(tmp_path / "export")
            return
        other.load(tmp_path / "export")
        other.erase([seq for seq in range(1, shown) if WORDS in repr(next(other.events(after=seq - 1)))])
        assert_sound(other)


def test_a_context_is_not_built_inside_of_a_batch(told: Told) -> None:
    """Nothing could build it again, nor tell what it held."""
    with told.memory.batch():
        in_the_profile(told)
        with pytest.raises(InvalidInput, match="a context inside a batch is refused"):
            told.memory.context(told.chat)


# What a tool shows: the record of its call and its message go with what they show.


def learns(told: Told) -> None:
    told.memory.skills.library.learn("passport", "The passport.", f"Say {WORDS}.", status="active")
    tool = skill_tool(told.skills)
    assert tool is not None
    told.memory.tools.unregister(SKILL_USE)
    told.memory.tools.register(tool)


def has_a_file(told: Told) -> None:
    told.memory.files().create("/memories/a/note.txt", f"The number\nis {WORDS}.\n")
    told.memory.files().insert("/memories/a/note.txt", 0, "About passports")


def has_a_file_named_by_it(told: Told) -> None:
    told.memory.files().create(f"/memories/a/{WORDS}", "Renew it.\n")


def has_a_board(told: Told) -> None:
    told.memory.board(session=ID).set("working_history", WORDS)


def notes_in_the_scratchpad(told: Told) -> None:
    told.chat.scratchpad.note(WORDS)


def changes_a_memory(told: Told) -> None:
    entry = told.memory.project().add("The passport is in the drawer.")
    told.memory.project().update(entry.id, content=f"The {WORDS} is that of the passport.")


def works_on_a_node(told: Told, board: Board) -> None:
    told.memory.board(session=ID).set_session({"project_id": "p", "active_node_id": "n"})
    board.set("working_history", WORDS)


def has_a_board_under_it(told: Told) -> None:
    works_on_a_node(told, told.memory.board(project="p", node="n"))


def has_a_board_at_a_node(told: Told) -> None:
    works_on_a_node(told, told.memory.board(session=ID))


def has_a_file_that_was_moved(told: Told) -> None:
    told.memory.files().create("/memories/a.txt", "Renew it.\n")
    told.memory.files().rename("/memories/a.txt", f"/memories/{WORDS}/a.txt")


def replaces_a_message(told: Told) -> None:
    message = told.chat.append("user", "The passport number is valid.")
    told.chat.replace(message.id, f"The {WORDS} is valid.")


def in_the_journal(told: Told) -> None:
    told.memory.journal().append(f"Renewed the {WORDS}.")


VIEW = {"command": "view", "path": "/memories/a/note.txt"}
SHOWING: list[tuple[str, Callable[[Told], None], dict[str, Any]]] = [
    ("memory_search", in_a_memory, {"query": "the passport number"}),
    ("memory_search", changes_a_memory, {"query": "the passport number"}),
    ("conversation_search", in_a_message, {"query": "passport number"}),
    ("journal_read", in_the_journal, {}),
    ("memory_read", in_the_scratchpad, {"key": "passport"}),
    ("memory_read", in_the_scratchpad, {}),
    ("memory_read", notes_in_the_scratchpad, {}),
    ("working_memory_read", in_a_message_of_the_board, {}),
    ("working_memory_read", in_a_message_of_the_board, {"part": "messages"}),
    ("working_memory_read", has_a_board, {"part": "working_history"}),
    ("memory", has_a_file, VIEW),
    ("memory", has_a_file, VIEW | {"view_range": [3, 3]}),
    ("memory", has_a_file, VIEW | {"command": "str_replace", "old_str": "The number", "new_str": "It"}),
    ("memory", has_a_file_named_by_it, {"command": "view", "path": "/memories"}),
    ("memory", has_a_file_that_was_moved, {"command": "view", "path": "/memories"}),
    ("working_memory_read", has_a_board_under_it, {}),
    ("working_memory_read", has_a_board_under_it, {"part": "working_history"}),
    ("working_memory_read", has_a_board_at_a_node, {"part": "working_history"}),
    ("working_memory_read", in_a_message_of_the_board, {"part": "last_user_message"}),
    ("working_memory_read", in_a_message_of_the_board, {"part": "messages_meta"}),
    ("conversation_search", replaces_a_message, {"query": "passport number"}),
    (SKILL_USE, learns, {"name": "passport"}),
]
"""A tool that only shows the words, where they are before, and what a model calls it with."""

SHOWS_NOTHING = {
    *("memory_write", "memory_set", "memory_delete", "memory_add", "memory_update", "memory_forget", "journal_append"),
}
"""They give back but what they were called with."""


def test_every_tool_shows_something_or_nothing(told: Told) -> None:
    assert {tool for tool, _, _ in SHOWING} | SHOWS_NOTHING == set(told.memory.tools.names())


@pytest.mark.parametrize(("tool", "hold", "arguments"), SHOWING)
def test_what_a_tool_showed_goes_with_what_it_is_of(
    told: Told, tool: str, hold: Callable[[Told], None], arguments: dict[str, Any]
) -> None:
    hold(told)
    said = [stamp.seq for event, stamp in told.memory.events() if WORDS in repr(event)]
    head = told.memory.head
    told.turn("go on", (tool, arguments))
    (output,) = [message for message in told.chat.window() if message.role == "tool"]
    assert WORDS in str(output.content)
    told.memory.erase(said)
    told.assert_gone(WORDS)
    kept = [stamp.seq for event, stamp in told.memory.events(after=head) if not stamp.erased]
    assert kept, "the rest of the turn is there"


def test_what_a_command_recalled_goes_with_the_memory(told: Told) -> None:
    default_hooks(told.memory, told.skills, provider("nothing"))
    in_a_memory(told)
    said = [stamp.seq for event, stamp in told.memory.events() if WORDS in repr(event)]
    told.turn("What do you remember about the passport number?")
    (shown,) = [stamp.seq for event, stamp in told.memory.events() if type(event).__name__ == "ContextShown"]
    assert WORDS in told.memory.rebuild(shown).context.part("injected").text
    told.memory.erase(said)
    told.assert_gone(WORDS)
    assert not any(message.erased for message in told.memory.conversation(ID).window())
    assert told.memory.rebuild(shown).matches is None


def hides_a_file(told: Told) -> None:
    told.memory.files().create("/memories/.hidden", WORDS)
    told.memory.files().create("/memories/a/b/c/deep.txt", "Renew it.\n")
    told.memory.files().str_replace("/memories/a/b/c/deep.txt", "it", WORDS)


def works_on_another_node(told: Told) -> None:
    has_a_board_at_a_node(told)
    told.memory.board(session=ID).set_session({"active_node_id": "m"})


@pytest.mark.parametrize(
    ("tool", "hold", "arguments"),
    [
        ("memory", hides_a_file, {"command": "view", "path": "/memories"}),
        ("working_memory_read", works_on_another_node, {}),
        ("working_memory_read", in_a_message_of_the_board, {"part": "config"}),
        ("memory_read", in_the_scratchpad, {"key": "another"}),
    ],
)
def test_what_a_tool_did_not_show_leaves_its_result(
    told: Told, tool: str, hold: Callable[[Told], None], arguments: dict[str, Any]
) -> None:
    hold(told)
    said = [stamp.seq for event, stamp in told.memory.events() if WORDS in repr(event)]
    told.turn("go on", (tool, arguments))
    (output,) = [message for message in told.chat.window() if message.role == "tool"]
    assert WORDS not in str(output.content)
    told.memory.erase(said)
    assert output.id in [message.id for message in told.chat.window() if not message.erased]


@pytest.mark.parametrize(("tool", "hold", "arguments"), SHOWING)
def test_what_a_tool_showed_of_an_open_batch_goes_too(
    told: Told, tool: str, hold: Callable[[Told], None], arguments: dict[str, Any]
) -> None:
    head = told.memory.head
    with told.memory.batch():
        hold(told)
        context = told.memory.tools.context(told.chat)
        result = told.memory.tools.execute(tool, arguments, context, record=True)
        told.chat.append("assistant", result.text, sources=result.sources)
    assert WORDS in result.text
    said = [stamp.seq for event, stamp in told.memory.events(after=head) if WORDS in repr(event)]
    told.memory.erase(said[:-2])
    told.assert_gone(WORDS)


def test_an_output_that_finds_the_message_that_asked_goes_with_it(told: Told) -> None:
    said = told.chat.append("user", f"Is {WORDS} mine?")
    call = {"id": "c", "type": "function", "function": {"name": "conversation_search", "arguments": "{}"}}
    told.chat.append("assistant", None, tool_calls=[call])
    context = told.memory.tools.context(told.chat)
    told.memory.tools.execute("conversation_search", {"query": "passport"}, context, record=True, call_id="c")
    AgentLoop(told.memory, told.chat, Script(Reply("Very well."))).resume()
    told.memory.erase([said])
    told.assert_gone(WORDS)


def test_an_output_that_was_cut_off_goes_with_what_it_shows(told: Told) -> None:
    in_a_memory(told)
    said = [stamp.seq for event, stamp in told.memory.events() if WORDS in repr(event)]
    told.chat.append("user", "go on")
    call = {"id": "c", "type": "function", "function": {"name": "memory_search", "arguments": '{"query": "passport"}'}}
    asked = told.chat.append("assistant", None, tool_calls=[call])
    told.memory.tools.execute(
        "memory_search", {"query": "passport"}, told.memory.tools.context(told.chat), record=True, call_id="c"
    )
    turn = AgentLoop(told.memory, told.chat, Script(Reply("Very well."))).resume()
    assert turn.text == "Very well."
    (output,) = [message for message in told.chat.window() if message.role == "tool"]
    assert WORDS in str(output.content)
    assert asked.seq not in output.event.sources
    told.memory.erase(said)
    told.assert_gone(WORDS)
    assert not told.memory.conversation(ID).window()[0].erased


def test_a_tool_of_a_host_cites_what_it_shows(told: Told) -> None:
    entry = told.memory.project().add(WORDS)

    def say(_: dict[str, Any], context: ToolContext) -> str:
        context.cite([entry])
        return entry.content

    told.memory.tools.register(FunctionTool("newest", "Say the newest memory.", {"type": "object"}, say))
    context = told.memory.tools.context(told.chat)
    told.chat.append("user", "Say it.")
    result = told.memory.tools.execute("newest", {}, context)
    assert (result.text, result.sources) == (WORDS, (entry.seq,))
    result = told.memory.tools.execute("newest", {}, context, record=True)
    assert result.sources == (told.memory.head,), "the record, which cites the memory"
    told.chat.append("assistant", result.text, sources=result.sources)
    told.memory.erase([entry])
    told.assert_gone(WORDS)


def test_what_is_cited_must_be_there_and_is_bounded(told: Told) -> None:
    context = told.memory.tools.context(told.chat)
    context.cite([1])  # Outside of a call nothing becomes of it.
    assert context.shown is None
    for wrong in ([99], [-1], [-(10**30)]):
        with pytest.raises(InvalidInput, match="is not a seq of this log"):
            context.cite(wrong)
    strangers: list[Any] = [None, 1, b"\x01", "1", {1: 2}, told.chat.append("user", "x")]
    for stranger in strangers:
        with pytest.raises(InvalidInput, match="cite takes a list of seqs or results"):
            context.cite(stranger)

    def say(_: dict[str, Any], context: ToolContext) -> str:
        context.cite([2] * SOURCES_COUNT_MAX)
        context.cite([3, *[1] * SOURCES_COUNT_MAX])
        return ""

    told.memory.tools.register(FunctionTool("all", "Say it all.", {"type": "object"}, say))
    result = told.memory.tools.execute("all", {}, context)
    assert (result.outcome, result.sources) == ("ok", (2, 1))
    with told.memory.batch():
        for _ in range(SOURCES_COUNT_MAX):
            told.memory.journal().append("A day like any other.")
    seqs = range(1, SOURCES_COUNT_MAX + 3)

    def tell(_: dict[str, Any], context: ToolContext) -> str:
        context.cite(seqs[:9])
        context.cite(seqs)
        return ""

    told.memory.tools.register(FunctionTool("more", "Say more.", {"type": "object"}, tell))
    assert told.memory.tools.execute("more", {}, context).sources == tuple(seqs[2:])
    told.turn("go on", ("more", {}))
