"""Each face of a memory says who writes through it, and what led to it."""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, types

from refold import Memory
from refold.agent import (
    AgentLoop,
    BeforeToolResult,
    Call,
    CallableProvider,
    FunctionTool,
    Reply,
    ToolContext,
    default_hooks,
    extract,
    rerun,
)
from refold.agent.tools import actor_of
from refold.importers import import_file, import_memories
from refold.limits import ACTOR_BYTES_MAX
from refold.mcp.resources import Binding
from refold.mcp.server import MemoryServer
from tests.support.command import Run, running


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return running(monkeypatch, capfd)


def rows(memory: Memory) -> list[tuple[str, int, str]]:
    """Return event, cause and actor, without what opens a stream or names an actor."""
    silent = {"ActorNamed", "ConversationOpened"}
    return [
        (type(event).__name__, stamp.cause, stamp.actor)
        for event, stamp in memory.events()
        if type(event).__name__ not in silent
    ]


def seq_of(memory: Memory, kind: str, role: str | None = None) -> int:
    """Return the seq of the first event of a kind, and of a role."""
    found = (
        stamp.seq
        for event, stamp in memory.events()
        if type(event).__name__ == kind and role in (None, getattr(event, "role", None))
    )
    return next(found)


def noting(name: str, text: str = "noted") -> FunctionTool:
    """Make a tool that writes into the journal."""

    def execute(_: dict[str, Any], context: ToolContext) -> str:
        context.memory.journal().append(text)
        return text

    return FunctionTool(name, "Take a note.", {"type": "object"}, execute)


class Script:
    """A model with its replies."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = deque(replies)

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:
        assert messages
        assert tools
        return self.replies.popleft()


class TestTools:
    def test_a_call_is_written_by_its_tool(self) -> None:
        memory = Memory()
        memory.tools.register(noting("jot"))
        memory.tools.execute("jot")
        memory.tools.execute("memory_set", {"key": "a", "value": "b"})
        assert rows(memory) == [("JournalAppended", 0, "tool:jot"), ("ProfileSet", 0, "tool:memory_set")]

    @pytest.mark.parametrize("call_id", ["c2", ""])
    def test_its_cause_is_the_message_that_asked_for_it(self, call_id: str) -> None:
        memory = Memory()
        memory.tools.register(noting("jot"))
        chat = memory.conversation("a")
        chat.append("user", "Note this, twice.")
        for number in ("c1", "c2"):
            chat.append("assistant", None, tool_calls=[{"id": number, "function": {"name": "jot"}}])
        memory.tools.execute("jot", {}, memory.tools.context(chat), record=True, call_id=call_id)
        asked = chat.window()[-1].seq
        assert rows(memory)[-2:] == [("JournalAppended", asked, "tool:jot"), ("ToolExecuted", asked, "tool:jot")]

    def test_a_call_that_nobody_asked_for_keeps_the_cause_around_it(self) -> None:
        memory = Memory()
        chat = memory.conversation("a")
        asked = chat.append("user", "Hello!")
        with memory.acting("host", cause=asked):
            memory.tools.execute("memory_set", {"key": "a", "value": "b"}, memory.tools.context(chat))
        assert rows(memory)[-1] == ("ProfileSet", asked.seq, "tool:memory_set")

    def test_asynchronous_calls_do_not_mix(self) -> None:
        memory = Memory()

        async def slowly(_: dict[str, Any], context: ToolContext) -> str:
            await asyncio.sleep(0.01)
            await context.memory.aio.journal().append("slow")
            return "done"

        memory.tools.register(FunctionTool("slow", "Wait.", {"type": "object"}, slowly))
        memory.tools.register(noting("quick", "quick"))

        async def main() -> None:
            calls = [memory.tools.execute_async(name) for name in ("slow", "quick", "slow")]
            await asyncio.gather(*calls, memory.aio.journal().append("none"))

        asyncio.run(main())
        found = sorted(
            (getattr(event, "text", ""), stamp.actor)
            for event, stamp in memory.events()
            if stamp.stream != "store/main"
        )
        assert found == [("none", "host"), ("quick", "tool:quick"), ("slow", "tool:slow"), ("slow", "tool:slow")]

    def test_a_name_that_a_model_made_up_names_nobody(self) -> None:
        memory = Memory()
        chat = memory.conversation("a")
        chat.append("user", "Hello!")
        memory.tools.execute("made_up", {}, memory.tools.context(chat), record=True)
        assert rows(memory)[-1] == ("ToolExecuted", 0, "tool")

    @pytest.mark.parametrize(
        ("name", "actor"), [("", "mcp"), ("a\nb", "mcp:ab"), ("é" * 400, None), (None, "mcp:None")]
    )
    def test_strangers_are_named_by_what_can_be_shown(self, name: Any, actor: str | None) -> None:
        made = actor_of("mcp", name)
        assert actor in (None, made)
        assert len(made.encode()) <= ACTOR_BYTES_MAX
        with Memory().acting(made):
            pass


class TestTheLoop:
    def session(self, memory: Memory) -> None:
        memory.tools.register(noting("jot"))
        replies = (Reply(None, (Call("c1", "jot", json.dumps({})),)), Reply("Done."))
        AgentLoop(memory, memory.conversation("a"), Script(*replies)).run("Note this.")

    def test_a_turn_goes_from_the_user_to_the_model_to_the_tools(self) -> None:
        memory = Memory()
        self.session(memory)
        asked = seq_of(memory, "MessageAppended", "user")
        called = seq_of(memory, "MessageAppended", "assistant")
        first, second = (stamp.seq for event, stamp in memory.events() if type(event).__name__ == "ContextShown")
        assert rows(memory) == [
            ("MessageAppended", 0, "user"),
            ("ContextShown", asked, "assistant"),
            ("ContextHashed", asked, "assistant"),
            ("MessageAppended", first, "assistant"),
            ("JournalAppended", called, "tool:jot"),
            ("ToolExecuted", called, "tool:jot"),
            ("MessageAppended", called, "tool:jot"),
            ("ContextShown", asked, "assistant"),
            ("ContextHashed", asked, "assistant"),
            ("MessageAppended", second, "assistant"),
        ]

    def test_what_the_host_says_counts_for_the_message_of_the_user(self) -> None:
        memory = Memory()
        with memory.acting("cli"):
            self.session(memory)
            memory.journal().append("after")
        assert {(actor, kind) for kind, _, actor in rows(memory)} >= {
            ("cli", "MessageAppended"),
            ("cli", "JournalAppended"),
        }
        assert ("ContextShown", seq_of(memory, "MessageAppended", "user"), "assistant") in rows(memory)

    def test_a_session_that_runs_again_has_the_same_actors(self) -> None:
        memory, again = Memory(), Memory()
        again.tools.register(noting("jot"))
        self.session(memory)
        rerun(memory.conversation("a"), again)
        both = ([(kind, actor) for kind, _, actor in rows(each)] for each in (memory, again))
        first, second = ([row for row in each if row[0] != "JournalAppended"] for each in both)
        assert first == second


class TestHooks:
    def test_a_hook_writes_under_its_name_and_the_cause_of_its_point(self) -> None:
        memory = Memory()

        def jot(context: Any, *_: object) -> None:
            context.memory.journal().append("hooked")

        for point in ("session_start", "before_llm", "after_llm", "before_tool", "after_tool"):
            memory.hooks.register(point, jot)
        TestTheLoop().session(memory)
        asked = seq_of(memory, "MessageAppended", "user")
        called = seq_of(memory, "MessageAppended", "assistant")
        causes = [cause for kind, cause, actor in rows(memory) if actor == "hook:jot"]
        assert causes == [0, asked, asked, called, called, asked, asked]

    def test_a_write_that_waits_for_the_message_has_it_as_its_cause(self) -> None:
        memory = Memory()
        default_hooks(memory)
        AgentLoop(memory, memory.conversation("a"), Script(Reply("I will."))).run("Remember that I use pnpm.")
        asked = seq_of(memory, "MessageAppended", "user")
        assert ("MemoryAdded", asked, "hook:obey_command") in rows(memory)

    def test_a_hook_on_compaction_is_caused_by_what_evicted(self) -> None:
        memory = Memory()
        chat = memory.conversation("a", window_tokens=10)
        memory.hooks.register("compaction", lambda context, _: context.memory.journal().append("full"))
        chat.append("user", "x", tokens=6)
        last = chat.append("user", "y", tokens=6)
        memory.hooks.compacted(memory.hooks.context(chat), last.seq)
        assert rows(memory)[-1] == ("JournalAppended", last.seq, "hook:<lambda>")

    def test_a_call_that_a_hook_skips_is_that_of_its_tool(self) -> None:
        memory = Memory()
        memory.hooks.register("before_tool", lambda *_: BeforeToolResult(skip=True, output="no"))
        TestTheLoop().session(memory)
        called = seq_of(memory, "MessageAppended", "assistant")
        assert ("ToolExecuted", called, "tool:jot") in rows(memory)


def imported_sessions(memory: Memory, folder: Path) -> None:
    (folder / "chat.jsonl").write_text('{"messages": [{"role": "user", "content": "Hello!"}]}\n', encoding="utf-8")
    import_file(memory, folder / "chat.jsonl")


def imported_memories(memory: Memory, folder: Path) -> None:
    (folder / "memories.json").write_text('[{"content": "The port is 5432."}]', encoding="utf-8")
    import_memories(memory, folder / "memories.json")


def mirrored(memory: Memory, folder: Path) -> None:
    with memory.mirror(folder / "mirror") as mirror:
        (folder / "mirror" / "profile.json").write_text('{"theme": "dark"}', encoding="utf-8")
        mirror.sync()


def extracted(memory: Memory, _: Path) -> None:
    chat = memory.conversation("a")
    chat.append("user", "Use pnpm.")
    lesson = {"category": "preference", "content": "Use pnpm, not npm.", "keywords": ["pnpm"], "importance": 0.9}
    extract(chat, CallableProvider(lambda *_, **__: [lesson]), memory=memory)


@pytest.mark.parametrize(
    ("write", "actors"),
    [
        (imported_sessions, {"import:openai"}),
        (imported_memories, {"import:memories"}),
        (extracted, {"user", "extraction"}),
        (mirrored, {"mirror"}),
    ],
)
def test_other_faces_say_who_they_are(tmp_path: Path, write: Callable[[Memory, Path], None], actors: set[str]) -> None:
    memory = Memory()
    write(memory, tmp_path)
    assert {actor for _, _, actor in rows(memory)} == actors


def test_what_is_extracted_is_caused_by_the_last_message_that_was_read(tmp_path: Path) -> None:
    memory = Memory()
    extracted(memory, tmp_path)
    read = seq_of(memory, "MessageAppended")
    assert {cause for kind, cause, actor in rows(memory) if actor == "extraction"} == {read}


def test_the_command_line_says_who_it_is_and_shows_it(tmp_path: Path, run: Run) -> None:
    store = tmp_path / "store"
    with Memory(store) as memory:
        memory.add("The port is 5432.")
        with memory.acting("tool:search", cause=1):
            memory.conversation("a").append("user", "Hello!")
    assert run("snapshot", "a", "now", "--db", store).code == 0
    with Memory(store) as memory:
        assert rows(memory)[-1][1:] == (0, "cli")
    assert "by tool:search  after 1" in run("log", "--db", store).out
    assert "by tool:search  after 1" in run("replay", "a", "--db", store).out
    line = next(line for line in run("log", "--db", store, "--json").json_lines if line["kind"] == "message_appended")
    assert (line["cause"], line["actor"]) == (1, "tool:search")


def test_a_client_of_the_protocol_is_named_by_what_it_says_of_itself() -> None:
    memory = Memory()
    memory.tools.register(noting("jot"))

    async def use() -> None:
        server = MemoryServer(Binding(memory, conversation="a"))
        about = types.Implementation(name="my\neditor", version="1")
        async with asyncio.timeout(60), Client(server.low_level, client_info=about) as client:
            await client.call_tool("memory_set", {"key": "a", "value": "b"})
            await client.call_tool("jot", {})

    asyncio.run(use())
    assert [actor for _, _, actor in rows(memory)] == ["mcp:myeditor", "mcp:myeditor"]
