"""The loop: what a session records, and the same session again without its model and its tools."""

import asyncio
import json
import re
import socket
from collections import deque
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from refold import Conversation, InvalidInput, Memory
from refold.agent import (
    AfterLlmResult,
    AfterToolResult,
    AgentLoop,
    BeforeLlmResult,
    BeforeToolResult,
    Call,
    FunctionTool,
    Reply,
    UserMessageResult,
    files_tool,
    rerun,
)
from tests.support.memories import Clock, assert_sound
from tests.support.paths import DATA

AIRLINE = DATA / "tau-bench" / "gpt4o_airline_dev.jsonl"


class Script:
    """A model that says what it was given, and keeps what it was asked."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = deque(replies)
        self.asked: list[list[dict[str, Any]]] = []

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:
        assert tools
        self.asked.append(messages)
        return self.replies.popleft()


def call(name: str, call_id: str = "c1", **arguments: Any) -> Reply:
    return Reply(None, (Call(call_id, name, json.dumps(arguments)),))


def ids() -> Any:
    return Random(7).randbytes


def described(chat: Conversation) -> list[Any]:
    """The events of a conversation without their seqs and times."""
    return [
        (type(event).__name__, {field: getattr(event, field) for field in event.__struct_fields__})
        for event, _ in chat.events()
    ]


class Awaited:
    """A model that is to be awaited."""

    async def reply(self, *_: Any) -> Reply:
        return Reply("hi")


WRONG: list[tuple[int, Any, str]] = [
    (0, "zz", "AgentLoop takes a Memory, not str ('zz'); make one with Memory() or Memory(path)"),
    (1, "zz", "AgentLoop takes a Conversation, not str ('zz'); make one with memory.conversation('chat-42')"),
    (2, "zz", "AgentLoop takes a model with a method reply(messages, tools), not str; give an object of yours "),
    (2, object(), "AgentLoop takes a model with a method reply(messages, tools), not object; give an object of yours "),
    (2, SimpleNamespace(reply=5), "AgentLoop takes a model with a method reply(messages, tools), not SimpleNamespace;"),
    (2, Awaited(), "the model's reply is asynchronous, and AgentLoop calls it without await; make it a plain method"),
]


@pytest.mark.parametrize(("place", "wrong", "says"), WRONG)
def test_a_loop_of_something_else_is_refused_at_once_by_its_name(
    memory: Memory, place: int, wrong: Any, says: str
) -> None:
    given: list[Any] = [memory, memory.conversation("c"), Script()]
    given[place] = wrong
    with pytest.raises(InvalidInput, match=f"^{re.escape(says)}"):
        AgentLoop(*given)
    assert memory.head == 0


def test_a_conversation_of_another_memory_is_refused_before_anything_is_written(memory: Memory) -> None:
    memory.add("One fact.")
    head = memory.head
    with Memory() as other, memory.fork("branch") as branch:
        for wrong in (other, branch):
            with pytest.raises(InvalidInput, match="'c' belongs to another memory, or to a fork"):
                AgentLoop(memory, wrong.conversation("c"), Script())
            with pytest.raises(InvalidInput, match="'c' belongs to another memory, or to a fork"):
                memory.tools.context(wrong.conversation("c"))
    assert memory.head == head + 1  # The fork.


def test_a_model_that_turns_out_to_be_awaited_is_refused_with_the_way_on(memory: Memory) -> None:
    chat = memory.conversation("c")
    loop = AgentLoop(memory, chat, SimpleNamespace(reply=lambda *given: Awaited().reply(*given)))
    with pytest.raises(
        InvalidInput, match=r"the model's reply is asynchronous, .* asyncio.to_thread\(loop.run, text\)"
    ):
        loop.run("Hello!")
    assert [message.content for message in chat.window()] == ["Hello!"]


def test_on_an_event_loop_an_asynchronous_tool_is_the_hosts_mistake_and_a_thread_is_the_way(memory: Memory) -> None:
    async def wait(number: int) -> str:
        """Wait."""
        await asyncio.sleep(0)
        return f"waited {number}"

    memory.tools.tool(wait)
    model = Script(call("wait", number=1), Reply("Sorry."), call("wait", number=2), Reply("Done."))
    loop = AgentLoop(memory, memory.conversation("c"), model)

    async def work() -> None:
        with pytest.raises(InvalidInput, match=r"'wait' is asynchronous, .* await asyncio.to_thread\(loop.run, text\)"):
            loop.run("Wait.")
        assert len(model.asked) == 1, "the model hears nothing of it"
        assert (await asyncio.to_thread(loop.resume)).text == "Sorry."
        assert (await asyncio.to_thread(loop.run, "Wait again.")).text == "Done."

    asyncio.run(work())
    outputs = [message.content for message in loop.chat.window() if message.role == "tool"]
    assert outputs == ["Error: the session was interrupted before this call came back", "waited 2"]


OWN = (
    call("memory_set", key="diagnosis", value="asthma"),
    call("journal_append", "c2", text="saw a doctor"),
    call("memory", "c3", command="create", path="/memories/pills.txt", file_text="two a day"),
)


def test_users_of_one_store_see_only_their_own_profile_journal_and_files() -> None:
    with Memory(clock_ns=Clock(), random_bytes=ids()) as memory, Memory(clock_ns=Clock(), random_bytes=ids()) as other:
        for each in (memory, other):
            each.tools.register(files_tool())
        chat = memory.conversation("monday", project="shop/ada")
        names: dict[str, Any] = {"profile": "ada", "journal": "ada", "files": "ada"}
        AgentLoop(memory, chat, Script(*OWN, Reply("noted")), **names).run("Remember my asthma.")
        view = call("memory", command="view", path="/memories")
        for user, sees in (("ada", True), ("bob", False)):
            names = dict.fromkeys(names, user)
            model = Script(view, Reply("ok"))
            AgentLoop(memory, memory.conversation(user, project=f"shop/{user}"), model, **names).run("Hello!")
            shown = json.dumps(model.asked)
            assert [word in shown for word in ("asthma", "saw a doctor", "pills.txt")] == [sees] * 3
        assert [memory.profile().items(), memory.journal().recent(9), memory.files().list()] == [[], [], []]
        assert described(rerun(chat, other, files="ada")) == described(chat)
        assert other.profile("ada").items() == memory.profile("ada").items() == [("diagnosis", "asthma")]
        for kept in (memory.profile("ada"), memory.journal("ada"), memory.files("ada")):
            kept.erase()
        assert memory.profile("ada").items() == [] == memory.files("ada").list()
        assert memory.journal("ada").recent(9) == []
        memory.conversation("ada").erase()
        assert chat.erase().occurrences == 0
        assert_sound(memory)


@pytest.mark.parametrize("blank", ["", "  ", "\n\t"])
def test_a_blank_text_is_refused_before_anything_is_written(memory: Memory, blank: str) -> None:
    loop = AgentLoop(memory, memory.conversation("c"), Script(Reply("Hello!")))
    with pytest.raises(InvalidInput, match=r"text is '.*', which asks nothing; give what the user says"):
        loop.run(blank)
    assert memory.head == 0
    loop.run("hello")
    head = memory.head
    with pytest.raises(InvalidInput, match="text is"):
        loop.run(blank)
    assert memory.head == head


def test_a_message_of_which_a_hook_leaves_nothing_does_not_reach_the_model(memory: Memory) -> None:
    memory.hooks.register("user_message", lambda *_: " ")
    chat = memory.conversation("c")
    turn = AgentLoop(memory, chat, Script()).run("hello")
    assert (turn.text, turn.steps, turn.stop_reason) == ("", 0, "a hook left nothing of the message")
    assert list(chat.window()) == []


def test_what_hooks_of_the_sessions_begin_say_is_among_the_notices_of_its_first_turn(memory: Memory) -> None:
    def fail(context: Any) -> None:
        context.notify("Good morning!")
        raise RuntimeError("no")

    memory.hooks.register("session_start", fail)
    loop = AgentLoop(memory, memory.conversation("c"), Script(Reply("Hello!"), Reply("Bye!")))
    first = loop.run("hello").notices
    assert first[0] == "Good morning!"
    assert len(first) == 2
    assert "RuntimeError" in first[1]
    assert loop.run("bye").notices == ()
    assert loop.notices == first


def test_a_loop_has_no_attributes_but_its_own(memory: Memory) -> None:
    loop: Any = AgentLoop(memory, memory.conversation("c"), SimpleNamespace(reply=lambda *_: Reply("hi")))
    with pytest.raises(AttributeError):
        loop.model = Script()
    assert loop.run("hi").text == "hi"


def test_a_turn_calls_tools_until_the_model_answers(memory: Memory) -> None:
    chat = memory.conversation("s1", project="acme")
    model = Script(
        call("memory_write", action="set", key="name", value="Alice"), call("memory_read", "c2"), Reply("Hi Alice!")
    )
    turn = AgentLoop(memory, chat, model).run("I am Alice.")
    assert (turn.text, turn.steps, turn.stop_reason) == ("Hi Alice!", 3, None)
    assert [message.role for message in chat.window()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert chat.window()[4].content == '{"entries":{"name":"Alice"},"notes":[]}'
    assert chat.session.calls() == {"memory_read": 1, "memory_write": 1}
    assert "[Working Memory]" not in str(model.asked[0])
    assert [message["role"] for message in model.asked[1]] == ["system", "user", "assistant", "tool"]
    assert model.asked[1][1]["content"].endswith("  name: Alice\n\n[Message]\nI am Alice.")
    assert_sound(memory)


def test_a_prompt_cache_keeps_the_conversation_before_the_question(memory: Memory) -> None:
    chat = memory.conversation("s1", project="acme")
    for number in range(20):
        chat.append("user", f"Question {number}?")
        chat.append("assistant", f"Answer {number}.")
    calls = (call("memory_write", f"c{number}", action="note", value=f"note {number}") for number in range(5))
    model = Script(*calls, Reply("Noted."), Reply("Yes."))
    loop = AgentLoop(memory, chat, model)
    loop.run("Take notes.")
    loop.run("Is that all?")
    first, last = model.asked[0], model.asked[-1]
    assert first[41] == {"role": "user", "content": "Take notes."}
    for asked in model.asked[1:]:
        assert asked[:41] == first[:41], "no step changes what comes before the question"
    assert last[41] == first[41]


def test_every_context_that_the_model_saw_can_be_built_again(memory: Memory) -> None:
    chat = memory.conversation("s1")
    model = Script(call("memory_write", action="note", value="n"), Reply("done"))
    AgentLoop(memory, chat, model).run("hello")
    seqs = [found.stamp.seq for found in chat.events() if type(found.event).__name__ == "ContextShown"]
    rebuilt = [memory.rebuild(seq) for seq in seqs]
    assert all(one.matches for one in rebuilt)
    assert [one.context.messages() for one in rebuilt] == model.asked


def test_unknown_tools_and_nonsense_go_back_to_the_model(memory: Memory) -> None:
    chat = memory.conversation("s1")
    model = Script(call("launch"), Reply(None, (Call("c", "memory_write", "{nonsense"),)), Reply("sorry"))
    assert AgentLoop(memory, chat, model).run("go").text == "sorry"
    outputs = [str(message.content) for message in chat.window() if message.role == "tool"]
    assert outputs[0] == "Error: unknown tool 'launch'"
    assert outputs[1].startswith("Error: invalid input: arguments are no JSON: Expecting property name")


def test_a_model_that_never_stops_is_stopped(memory: Memory) -> None:
    chat = memory.conversation("s1")
    turn = AgentLoop(memory, chat, Script(*[call("memory_read")] * 9), steps_count_max=3).run("go")
    assert (turn.steps, turn.stop_reason) == (3, "the model called tools in each of 3 steps")


def test_a_provider_that_raises_leaves_what_was_said(memory: Memory) -> None:
    chat = memory.conversation("s1")
    with pytest.raises(IndexError):
        AgentLoop(memory, chat, Script()).run("go")
    assert [message.content for message in chat.window()] == ["go"]
    assert AgentLoop(memory, chat, Script(Reply("here"))).run("again").text == "here"


def test_hooks_take_part_at_every_point(memory: Memory) -> None:
    chat = memory.conversation("s1", window_tokens=40)
    hooks, seen = memory.hooks, list[str]()
    for point in ("session_start", "session_end", "compaction"):
        hooks.register(point, lambda *_, point=point: seen.append(point))
    hooks.register("user_message", lambda _, text: UserMessageResult(f"{text}!"))
    hooks.register("before_llm", lambda _, given: BeforeLlmResult([*given, {"role": "system", "content": "be brief"}]))
    hooks.register("after_llm", lambda _, text: AfterLlmResult(text.upper()) if text else None)
    hooks.register("before_tool", lambda _, __, given: BeforeToolResult(modified_arguments=given | {"value": "safe"}))
    hooks.register("after_tool", lambda *_: AfterToolResult(injected_context="(checked)"))
    model = Script(call("memory_write", action="note", value="unsafe"), Reply("done " * 30))
    loop = AgentLoop(memory, chat, model)
    assert loop.run("hello").text == "DONE " * 30
    assert model.asked[0][-1]["content"] == "be brief"
    assert chat.scratchpad.notes() == ["safe"]
    said = [found.event for found in chat.events() if type(found.event).__name__ == "MessageAppended"]
    first: Any = said[0]
    assert (first.content, first.metadata) == ("hello!", {"original": "hello"})
    output: Any = said[2]
    assert output.content == '{"status":"ok","action":"note"}\n(checked)'
    assert loop.end().tool_usage == {"memory_write": 1}
    assert chat.scratchpad.notes() == []
    assert seen[0] == "session_start"
    assert seen[-1] == "session_end"
    assert "compaction" in seen


def test_a_hook_can_stop_a_message_a_reply_and_a_call(memory: Memory) -> None:
    chat, hooks = memory.conversation("s1"), memory.hooks
    stop = hooks.register("user_message", lambda _, __: UserMessageResult(stop_reason="no"))
    assert AgentLoop(memory, chat, Script()).run("x").stop_reason == "no"
    assert chat.window() == []
    hooks.unregister("user_message", stop)
    skip = hooks.register("before_tool", lambda *_: BeforeToolResult(skip=True, skip_reason="not allowed"))
    AgentLoop(memory, chat, Script(call("memory_write", action="note", value="n"), Reply("ok"))).run("x")
    assert chat.window()[2].content == "Error: not allowed"
    assert chat.scratchpad.notes() == []
    hooks.unregister("before_tool", skip)
    hooks.register("after_llm", lambda *_: AfterLlmResult(block_reason="blocked"))
    assert AgentLoop(memory, chat, Script(call("memory_read"))).run("x").stop_reason == "blocked"
    assert chat.window()[-1].tool_calls is None


# Again, without model and tools.


def disconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a replay talked to somebody")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


def test_a_session_runs_again_without_model_tools_and_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(clock_ns=Clock(), random_bytes=ids()) as live, Memory(clock_ns=Clock(), random_bytes=ids()) as other:
        live.tools.register(FunctionTool("weather", "d", {}, lambda given, _: {"rain": given["city"] == "Oslo"}))
        live.hooks.register("user_message", lambda _, text: f"{text}?")
        live.hooks.register("before_tool", lambda _, name, __: BeforeToolResult(skip=True) if name == "Bash" else None)
        chat = live.conversation("s1", project="acme")
        model = Script(
            call("weather", city="Oslo"),
            call("memory_add", "c2", content="It rains in Oslo."),
            call("Bash", "c3", command="rm"),
            call("nonsense", "c4"),
            Reply("It rains."),
            call("weather", "c5", city="Rome"),
            call("weather", "c6", city="Rome"),
        )
        loop = AgentLoop(live, chat, model, steps_count_max=6)
        loop.run("Rain")
        AgentLoop(live, chat, model, steps_count_max=2).run("Rome")
        loop.end()
        disconnect(monkeypatch)
        again = rerun(chat, other, ended=True)
        assert described(again) == described(chat)
        assert [entry.content for entry in other.project("acme").list()] == ["It rains in Oslo."]
        with pytest.raises(InvalidInput, match="already"):
            rerun(chat, other)
        assert_sound(other)


@pytest.mark.skipif(not AIRLINE.is_file(), reason="the tau-bench trajectories are not on this machine")
def test_recorded_conversations_run_through_the_real_registry_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = AIRLINE.read_text(encoding="utf-8").splitlines()[:40]
    with Memory(clock_ns=Clock(), random_bytes=ids()) as live, Memory(clock_ns=Clock(), random_bytes=ids()) as other:
        for number, line in enumerate(lines):
            play(live, f"s{number}", json.loads(line)["traj"])
        disconnect(monkeypatch)
        for number in range(len(lines)):
            rerun(live.conversation(f"s{number}"), other)
        for name in live.conversations():
            assert described(other.conversation(name)) == described(live.conversation(name))
        assert other.state_hash() == live.state_hash()


def play(memory: Memory, name: str, said: list[dict[str, Any]]) -> None:
    """Plays a trajectory: its assistant is the model, its tool messages are what the tools return."""
    outputs = deque(message["content"] for message in said if message["role"] == "tool")
    calls = {made["function"]["name"] for message in said for made in message.get("tool_calls") or ()}
    for tool in sorted(calls):
        memory.tools.unregister(tool)
        memory.tools.register(FunctionTool(tool, "d", {}, lambda _, __: outputs.popleft()))
    replies = [
        Reply(
            message.get("content"),
            tuple(
                Call(made["id"], made["function"]["name"], made["function"]["arguments"])
                for made in message.get("tool_calls") or ()
            ),
        )
        for message in said
        if message["role"] == "assistant"
    ]
    chat, model = memory.conversation(name), Script(*replies)
    users = [place for place, message in enumerate(said) if message["role"] == "user"]
    for place, after in zip(users, [*users[1:], len(said)], strict=True):
        steps = sum(message["role"] == "assistant" for message in said[place:after])
        if steps:  # The last word of a trajectory is its user's.
            AgentLoop(memory, chat, model, steps_count_max=steps).run(said[place]["content"])
    assert not model.replies
    assert not outputs
    texts = [message["content"] for message in said if message["role"] == "tool"]
    kept = [found.event for found in chat.events() if type(found.event).__name__ == "ToolExecuted"]
    assert [msgspec.json.decode(event.result) for event in kept if hasattr(event, "result")] == texts


def test_a_call_that_fails_again_and_again_ends_the_turn(memory: Memory) -> None:
    chat = memory.conversation("c")
    turn = AgentLoop(memory, chat, Script(*[call("launch", f"c{number}", pad=1) for number in range(20)])).run("Go!")
    assert (turn.steps, turn.stop_reason) == (
        3,
        "the model called 'launch' 3 times with the same arguments: Error: unknown tool 'launch'",
    )
    assert [message.role for message in chat.window()] == ["user", *["assistant", "tool"] * 3]


def test_calls_that_differ_or_work_in_between_go_on(memory: Memory) -> None:
    outcomes = [0, 0, 1, 0, 0]

    def flaky(*_: Any) -> int:
        if outcomes.pop(0):
            return 7
        raise RuntimeError("away")

    memory.tools.register(FunctionTool("flaky", "d", {}, flaky))
    same = [call("flaky", f"c{number}") for number in range(5)]
    others = [call("launch", f"d{number}", pad=number) for number in range(5)]
    turn = AgentLoop(memory, memory.conversation("c"), Script(*same, *others, Reply("Done."))).run("Go!")
    assert (turn.text, turn.stop_reason) == ("Done.", None)
