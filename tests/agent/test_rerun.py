"""Sessions that were anything but smooth, again: event for event, or with a word why not."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from refold import Conversation, InvalidInput, Memory
from refold.agent import (
    AfterToolResult,
    AgentLoop,
    Call,
    CallableProvider,
    FunctionTool,
    Reply,
    ToolContext,
    default_hooks,
    rerun,
)
from tests.agent.test_loop import Script, call, described, ids
from tests.support.memories import Clock, assert_sound


@contextmanager
def two() -> Iterator[tuple[Memory, Memory]]:
    """A memory in which a session happens, and one in which it is to happen again."""
    with Memory(clock_ns=Clock(), random_bytes=ids()) as live, Memory(clock_ns=Clock(), random_bytes=ids()) as other:
        yield live, other
        assert_sound(other)


def assert_same(chat: Conversation, other: Memory) -> Conversation:
    again = rerun(chat, other)
    assert described(again) == described(chat)
    return again


def test_a_turn_that_the_provider_broke_off_breaks_off_again() -> None:
    with two() as (live, other):
        chat = live.conversation("c")
        with pytest.raises(IndexError):
            AgentLoop(live, chat, Script()).run("go")
        with pytest.raises(IndexError):
            AgentLoop(live, chat, Script(call("memory_write", action="note", value="n"))).run("again")
        AgentLoop(live, chat, Script(Reply("ok"))).run("once more")
        assert_same(chat, other)
        assert other.state_hash() == live.state_hash()


def test_what_a_host_wrote_around_the_loop_is_written_again() -> None:
    with two() as (live, other):
        chat = live.conversation("c", project="acme", window_tokens=5_000)
        chat.append("system", "Be kind.", pinned=True, metadata={"a": [1]})
        chat.append("user", "an example", tokens=9)
        chat.append("assistant", "its answer", name="bot")
        chat.session.describe_task("Fix it.")
        chat.scratchpad.set("k", "v")
        chat.state.set("temp:x", {"a": 1})
        chat.state.set("y", 2)
        AgentLoop(live, chat, Script(call("memory_write", action="set", key="k", value="w"), Reply("ok"))).run("go")
        chat.scratchpad.delete("k")
        chat.scratchpad.note("n")
        chat.state.delete("y")
        chat.set_window_tokens(4_000)
        chat.clear_window()
        live.show(live.context(chat, query="x", skills=[("a", "b")], budget=500))
        AgentLoop(live, chat, Script(Reply("ok"))).run("go on")
        chat.scratchpad.clear()
        chat.session.note_finding("done")
        assert_same(chat, other)
        assert other.conversation("c").window_tokens == 4_000
        assert other.state_hash() == live.state_hash()


def test_what_tools_and_hooks_wrote_into_the_conversation_is_written_again() -> None:
    with two() as (live, other):

        def read(_: dict[str, Any], context: ToolContext) -> str:
            assert context.conversation is not None
            context.conversation.session.note_file("a.py", lines=3)
            context.conversation.scratchpad.note("read a.py")
            return "text"

        live.tools.register(FunctionTool("Read", "d", {}, read))
        live.hooks.register("after_tool", lambda context, *_: context.conversation.session.note_finding("a fact"))
        live.hooks.register("before_tool", lambda context, *_: context.conversation.scratchpad.note("careful"))
        provider = CallableProvider(lambda *_: [{"content": "Tests need Docker.", "category": "fact"}])
        default_hooks(live, None, provider)
        chat = live.conversation("c", window_tokens=60)
        model = Script(call("Read"), call("memory_write", "c2", action="note", value="mine"), Reply("ok " * 40))
        loop = AgentLoop(live, chat, model)
        loop.run("go")
        loop.end()
        again = rerun(chat, other)
        assert [name for name, _ in described(again)] == [name for name, _ in described(chat)]
        assert again.session.summary() == chat.session.summary()
        assert again.session.extracted_seq() > 0


def test_calls_that_a_hook_stopped_and_nonsense_of_the_model_come_again() -> None:
    with two() as (live, other):
        live.hooks.register("after_tool", lambda *_: AfterToolResult(block_reason="no"))
        chat = live.conversation("c")
        odd = (Call("", "memory_read"), Call("x" * 1_000, ""), Call("c", "memory_write", "{nonsense"))
        AgentLoop(live, chat, Script(Reply("a\ud800", odd))).run("go")
        AgentLoop(live, chat, Script(Reply(None, (Call("c", "y" * 5_000),)))).run("go")
        assert_same(chat, other)


def test_a_built_in_tool_under_its_name_but_of_the_host_answers_what_it_answered() -> None:
    with two() as (live, other):
        live.tools.unregister("memory_read")
        live.tools.register(FunctionTool("memory_read", "d", {}, lambda *_: "mine"))
        chat = live.conversation("c")
        AgentLoop(live, chat, Script(call("memory_read"), Reply("ok"))).run("go")
        assert_same(chat, other)


def test_a_call_that_a_process_left_open_is_answered_before_the_next_message() -> None:
    class Ended(BaseException):
        """The end of a process, as far as a loop can tell."""

    def end(*_: Any) -> None:
        raise Ended

    with two() as (live, other):
        live.tools.register(FunctionTool("end", "d", {}, end))
        chat = live.conversation("c")
        with pytest.raises(Ended):
            AgentLoop(live, chat, Script(Reply(None, (Call("c1", "memory_read"), Call("c2", "end"))))).run("go")
        model = Script(Reply("ok"))
        AgentLoop(live, chat, model).run("go on")
        outputs = [message for message in model.asked[0] if message["role"] == "tool"]
        assert [message["tool_call_id"] for message in outputs] == ["c1", "c2"]
        assert outputs[1]["content"] == "Error: the session was interrupted before this call came back"
        assert_same(chat, other)


@pytest.mark.parametrize("reply", [None, "hi", 5, Reply(5), Reply("x", None), Reply("x", ("call",))])  # type: ignore[arg-type]
def test_a_model_that_returns_no_reply_is_a_typed_error(memory: Memory, reply: Any) -> None:
    chat = memory.conversation("c")
    with pytest.raises(InvalidInput, match="must be a"):
        AgentLoop(memory, chat, Script(reply)).run("go")
    assert [message.content for message in chat.window()] == ["go"]


def test_nonsense_of_a_model_is_recorded_and_goes_back_to_it(memory: Memory) -> None:
    chat, nothing = memory.conversation("c"), Call(None, None, None)  # type: ignore[arg-type]
    given: Any = {"action": "note", "value": "as a dict"}
    calls = (nothing, Call("i" * 1_000, "n\ud800", "\ud800"), Call("c3", "memory_write", given))
    big = Call("c4", "memory_write", '{"action": "note", "value": "x", "n": 123456789012345678901234567890}')
    assert AgentLoop(memory, chat, Script(Reply("\ud800", (*calls, big)), Reply("ok"))).run("go").text == "ok"
    outputs = [str(message.content) for message in chat.window() if message.role == "tool"]
    assert outputs[:2] == ["Error: unknown tool ''", "Error: unknown tool 'n?'"]
    assert outputs[3].startswith("Error: invalid input: arguments['n'] is an integer beyond 64 bits")
    assert chat.scratchpad.notes() == ["as a dict"]
    assert sum(chat.session.calls().values()) == 4


def test_calls_that_another_host_wrote_may_lack_anything(memory: Memory) -> None:
    chat = memory.conversation("c")
    chat.append("assistant", None, tool_calls=[{"id": "c1"}, {"id": "c2", "function": {"name": "f"}}])
    AgentLoop(memory, chat, Script(Reply("ok"))).run("go")
    assert [message.tool_call_id for message in chat.window() if message.role == "tool"] == ["c1", "c2"]


def test_what_cannot_come_again_says_why() -> None:
    with two() as (live, other):
        chat = live.conversation("c")
        AgentLoop(live, chat, Script(call("memory_read"), Reply("ok"))).run("go")
        with pytest.raises(InvalidInput, match="no beginning of its own"):
            rerun(chat.fork("d"), other)
        with pytest.raises(InvalidInput, match="no beginning of its own"):
            rerun(live.conversation("nobody"), other)
        live.erase([chat.window()[0]])
        with pytest.raises(InvalidInput, match="was erased"):
            rerun(chat, other)
        assert other.head == 0


def test_what_was_refused_is_not_done() -> None:
    with two() as (live, other):
        live.tools.unregister("memory_set")
        model = Script(call("memory_set", key="a", value="b"), Reply("Well."))
        AgentLoop(live, live.conversation("c"), model).run("Go.")
        assert live.profile().items() == []
        rerun(live.conversation("c"), other)
        assert other.profile().items() == []
