"""Turns with a request id: the question is asked once, its answer comes again, and no recorded call is made twice."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from refold import Conversation, InvalidInput, Memory, StoreBusy, WrongVersion
from refold.agent import (
    AfterLlmResult,
    AgentLoop,
    BeforeLlmResult,
    Call,
    FunctionTool,
    Reply,
    Turn,
    Usage,
    UserMessageResult,
    rerun,
)
from refold.log import replica
from refold.views.session import ToolExecuted
from tests.agent.test_loop import Script, call, described, ids
from tests.agent.test_turns import Failing
from tests.agent.test_two_loops import SECONDS_MAX, Slow, said
from tests.support.commits import RamCommits
from tests.support.memories import Child, Clock, assert_sound

ERASED = "the message or its answer was erased, or its conversation dropped; ask again with another request_id"
PASSED = (
    "the message has no answer, and was taken back, answered elsewhere, or followed by another message; ask again with "
    "another request_id"
)
TWO_CALLS = Reply(None, tuple(Call(name, "pay", json.dumps({"to": name})) for name in ("a", "b")))


@pytest.fixture
def paid(memory: Memory) -> list[str]:
    """What a tool has paid, in order."""
    payments: list[str] = []
    memory.tools.register(FunctionTool("pay", "d", {}, lambda given, _: payments.append(given["to"])))
    return payments


def script() -> Script:
    return Script(TWO_CALLS, call("pay", "c", to="c"), Reply("All is paid."))


def asked(chat: Conversation) -> list[Any]:
    return [message.content for message in chat.history() if message.role == "user"]


def recorded_calls(chat: Conversation, until: int) -> list[str]:
    events = [event for event, stamp in chat.events() if stamp.seq <= until]
    return [event.call_id for event in events if isinstance(event, ToolExecuted)]


class Rest:
    """A model that makes the calls which no answer is there for yet, then answers."""

    def __init__(self) -> None:
        self.count = 0

    def reply(self, messages: list[dict[str, Any]], _: Any) -> Reply:
        self.count += 1
        called = {made["id"] for message in messages for made in message.get("tool_calls") or ()}
        if "a" not in called:
            return TWO_CALLS
        return Reply("All is paid.") if "c" in called else call("pay", "c", to="c")


# A crash at each step.


def test_a_turn_that_ended_after_any_event_goes_on_there_and_repeats_no_recorded_call(
    memory: Memory, paid: list[str]
) -> None:
    chat = memory.conversation("c")
    first = AgentLoop(memory, chat, script()).run("Pay all.", request_id="r")
    assert (first.text, first.steps, paid) == ("All is paid.", 3, ["a", "b", "c"])
    begin = next(message.seq for message in chat.history() if message.role == "user")
    for seq in range(begin - 1, memory.head + 1):
        paid.clear()
        done = recorded_calls(chat, seq)
        branch = memory.fork(f"until-{seq}", at=seq)
        branch.tools.register(FunctionTool("pay", "d", {}, lambda given, _: paid.append(given["to"])))
        loop = AgentLoop(branch, branch.conversation("c"), Rest())
        assert loop.run("Pay all.", request_id="r").text == "All is paid.", seq
        assert not set(paid) & set(done), seq
        assert len(paid) == len(set(paid)), seq
        assert asked(branch.conversation("c")) == ["Pay all."], seq
        again = AgentLoop(branch, branch.conversation("c"), Script()).run("Pay all.", request_id="r")
        assert again.text == "All is paid."  # A script without replies raises if it is asked.
    assert_sound(memory)


CRASHES = """
import os, sys
from refold import Memory
from refold.agent import AgentLoop, FunctionTool, Reply
from tests.agent.test_loop import Script
from tests.agent.test_repeated_turns import Rest
path, log, step = sys.argv[1], sys.argv[2], int(sys.argv[3])
class Dying(Rest):
    def reply(self, *given):
        if self.count == step:
            os._exit(9)
        return super().reply(*given)
def pay(given, _):
    with open(log, "a") as file:
        file.write(given["to"])
    return "paid"
with Memory(path) as memory:
    memory.tools.register(FunctionTool("pay", "d", {}, pay))
    turn = AgentLoop(memory, memory.conversation("c"), Dying()).run("Pay all.", request_id="r")
    print(turn.text, turn.stop_reason, flush=True)
"""


def test_a_process_that_dies_in_a_turn_leaves_it_to_the_next_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for step in (1, 9):
        with Child(CRASHES, str(tmp_path / "store"), str(log), str(step)) as child:
            assert child.read() == ("" if step < 9 else "All is paid. None")
    assert log.read_text() == "abc"
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("c")
        assert AgentLoop(memory, chat, Script()).run("Pay all.", request_id="r").text == "All is paid."
        assert asked(chat) == ["Pay all."]
        assert_sound(memory)


@pytest.mark.parametrize("failures", [1, 2])
def test_a_request_goes_on_with_a_turn_whose_model_failed(memory: Memory, paid: list[str], failures: int) -> None:
    model, heard = Failing(TWO_CALLS, Reply("Paid."), failures=failures), list[str]()
    memory.hooks.register("user_message", lambda _, text: heard.append(text))
    for _ in range(2 * failures):
        with pytest.raises(ConnectionError):
            AgentLoop(memory, memory.conversation("c"), model).run("Pay.", request_id="r")
    assert AgentLoop(memory, memory.conversation("c"), model).run("Pay.", request_id="r").text == "Paid."
    assert (paid, heard) == (["a", "b"], ["Pay."])


def test_a_turn_that_a_guard_blocked_goes_on(memory: Memory) -> None:
    hook = memory.hooks.register("before_llm", lambda *_: BeforeLlmResult(block_reason="quota"))
    loop = AgentLoop(memory, memory.conversation("c"), Script(Reply("Hi.")))
    assert loop.run("Hello!", request_id="r").stop_reason == "quota"
    memory.hooks.unregister("before_llm", hook)
    assert loop.run("Hello!", request_id="r").text == "Hi."
    assert said(memory.conversation("c")) == [("user", "Hello!"), ("assistant", "Hi.")]


# Many at once.


def test_of_eight_threads_with_one_request_one_asks_the_model(memory: Memory) -> None:
    model, booked = Slow(call("book"), Reply("Booked.")), list[str]()
    memory.tools.register(FunctionTool("book", "d", {}, lambda *_: booked.append("a table")))

    def run(_: int) -> Turn:
        return AgentLoop(memory, memory.conversation("c"), model).run("Book a table.", request_id="r")

    with ThreadPoolExecutor(8) as pool:
        turns = [pool.submit(run, number) for number in range(8)]
        assert model.asked.wait(SECONDS_MAX)
        model.may_reply.set()
        assert {(turn.result(SECONDS_MAX).text, turn.result().steps) for turn in turns} == {("Booked.", 2)}
    assert (model.count, booked) == (2, ["a table"])
    assert asked(memory.conversation("c")) == ["Book a table."]
    assert_sound(memory)


def test_the_same_words_under_another_id_are_another_question(memory: Memory) -> None:
    model, chat = Slow(Reply("One."), Reply("Two.")), memory.conversation("c")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(AgentLoop(memory, chat, model).run, "More!", request_id="r1")
        assert model.asked.wait(SECONDS_MAX)
        with pytest.raises(StoreBusy, match="is answering another message"):
            AgentLoop(memory, chat, model).run("More!", request_id="r2")
        model.may_reply.set()
        assert first.result(SECONDS_MAX).text == "One."
    assert AgentLoop(memory, chat, model).run("More!", request_id="r2").text == "Two."
    assert AgentLoop(memory, chat, model).run("More!", request_id="r1").text == "One."
    assert asked(chat) == ["More!", "More!"]


def test_an_answered_request_does_not_wait_for_the_turn_that_runs(memory: Memory) -> None:
    chat, model = memory.conversation("c"), Slow(Reply("Later."))
    AgentLoop(memory, chat, Script(Reply("Now."))).run("First.", request_id="r1")
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(AgentLoop(memory, chat, model).run, "Second.", request_id="r2")
        assert model.asked.wait(SECONDS_MAX)
        assert AgentLoop(memory, chat, Script()).run("First.", request_id="r1").text == "Now."
        model.may_reply.set()
        assert second.result(SECONDS_MAX).text == "Later."


OTHER = """
import sys
from refold import Memory
from refold.agent import AgentLoop, FunctionTool
from tests.agent.test_repeated_turns import Rest
with Memory(sys.argv[1]) as memory:
    def pay(given, _):
        print("pays", given["to"], flush=True)
        sys.stdin.readline()
    memory.tools.register(FunctionTool("pay", "d", {}, pay))
    print(AgentLoop(memory, memory.conversation("c"), Rest()).run("Pay all.", request_id="r").text, flush=True)
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    """Another process, which is paying `a`."""
    with Child(OTHER, str(tmp_path / "store")) as child:
        assert child.read() == "pays a"
        yield child


def test_a_request_waits_for_the_turn_of_another_process_and_gets_its_result(tmp_path: Path, child: Child) -> None:
    waits = Event()

    def is_cancelled() -> bool:
        waits.set()
        return False

    with Memory(tmp_path / "store") as memory, ThreadPoolExecutor(1) as pool:
        loop = AgentLoop(memory, memory.conversation("c"), Script(), is_cancelled=is_cancelled)
        turn = pool.submit(loop.run, "Pay all.", request_id="r")
        assert waits.wait(SECONDS_MAX)
        for line in ("pays b", "pays c", "All is paid."):
            child.write("go")
            assert child.read() == line
        assert turn.result(SECONDS_MAX).text == "All is paid."
        assert asked(memory.conversation("c")) == ["Pay all."]
        assert list((tmp_path / "store" / "reservations").iterdir()) == []


def test_a_request_takes_over_the_turn_of_a_process_that_died(tmp_path: Path, child: Child) -> None:
    child.write("go")
    assert child.read() == "pays b"
    child.kill()
    paid: list[str] = []
    with Memory(tmp_path / "store") as memory:
        memory.tools.register(FunctionTool("pay", "d", {}, lambda given, _: paid.append(given["to"])))
        assert (
            AgentLoop(memory, memory.conversation("c"), Rest()).run("Pay all.", request_id="r").text == "All is paid."
        )
        assert paid == ["c"], "a has its result; b began, and its answer says that it was interrupted"


@pytest.mark.usefixtures("child")
def test_a_wait_for_another_process_is_bounded_and_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(tmp_path / "store") as memory:
        chat, gone = memory.conversation("c"), Event()
        monkeypatch.setattr("refold.agent.turn_lock.LOOP_WAIT_SECONDS_MAX", 0.1)
        with pytest.raises(StoreBusy, match="another process is answering a message in 'c', for longer than LOOP_WAIT"):
            AgentLoop(memory, chat, Script()).run("Pay all.", request_id="r")
        gone.set()
        loop = AgentLoop(memory, chat, Script(), is_cancelled=gone.is_set)
        assert loop.run("Pay all.", request_id="r").stop_reason == "the turn was cancelled; resume() goes on with it"
        with pytest.raises(StoreBusy, match="another process is answering"):
            AgentLoop(memory, chat, Script()).run("Something else.", request_id="s")
        inner = AgentLoop(memory, chat, Script())
        memory.tools.register(FunctionTool("ask", "d", {}, lambda *_: inner.run("Hi.", request_id="t").text))
        AgentLoop(memory, memory.conversation("d"), Script(call("ask"), Reply("No."))).run("Ask.")
        (answer,) = [content for role, content in said(memory.conversation("d")) if role == "tool"]
        assert "and a tool or a hook cannot wait for that; call again when that turn has ended" in answer


@pytest.mark.parametrize("moment", ["user_message", "before_llm", "model"])
def test_of_two_machines_with_one_request_both_get_the_answer_that_was_first(
    monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    commits: list[bytes] = []
    monkeypatch.setattr(replica, "connect", lambda *_, **__: RamCommits(commits))
    texts: list[str] = []
    with (
        Memory("postgresql://shared", cache=":memory:") as one,
        Memory("postgresql://shared", cache=":memory:") as other,
    ):

        def answer_first(*_: object) -> None:
            loop = AgentLoop(other, other.conversation("c"), Script(Reply("First!")))
            texts.append(loop.run("Hi.", request_id="r").text)

        class Late(Script):
            def reply(self, messages: Any, tools: Any) -> Reply:
                if moment == "model":
                    answer_first()
                return super().reply(messages, tools)

        if moment != "model":
            one.hooks.register(moment, answer_first)
        loop = AgentLoop(one, one.conversation("c"), Late(Reply("Second.")))
        assert loop.run("Hi.", request_id="r").text == "First!"
        assert texts == ["First!"]
        assert said(one.conversation("c")) == [("user", "Hi."), ("assistant", "First!")]
        assert_sound(one)


# What comes again.


def test_an_answer_comes_again_without_model_tools_and_hooks(tmp_path: Path) -> None:
    reply = Reply("Hello!", usage=Usage(7, 3))
    with Memory(tmp_path / "store") as memory:
        loop = AgentLoop(memory, memory.conversation("c"), Script(reply))
        first = loop.run("Hi.", request_id="r")
        head, version = memory.head, memory.conversation("c").version
        calls: list[str] = []
        for point in ("session_start", "user_message", "before_llm", "after_llm"):
            memory.hooks.register(point, lambda *_, point=point: calls.append(point))
        assert loop.run("Hi.", request_id="r") == Turn(first.text, first.steps)
        assert (calls, memory.head) == ([], head)
        memory.conversation("c").append("user", "And?", expected=version)
        with pytest.raises(WrongVersion):
            memory.conversation("c").append("user", "And?", expected=version)
    with Memory(tmp_path / "store") as memory:
        assert AgentLoop(memory, memory.conversation("c"), Script()).run("Hi.", request_id="r").text == "Hello!"


@pytest.mark.parametrize("again", ["Hi!", "text", "user", "chat", "verb"])
def test_one_id_is_for_one_question(memory: Memory, again: str) -> None:
    chat = memory.conversation("c")
    AgentLoop(memory, chat, Script(Reply("Hello!"))).run("Hi.", request_id="r")
    before = memory.head
    others: dict[str, Callable[[], object]] = {
        "user": lambda: AgentLoop(memory, chat, Script(), user_name="ada").run("Hi.", request_id="r"),
        "chat": lambda: AgentLoop(memory, memory.conversation("d"), Script()).run("Hi.", request_id="r"),
        "verb": lambda: chat.append("user", "Hi.", request_id="r"),
    }
    with pytest.raises(InvalidInput, match="this request_id was used for another request"):
        others.get(again, lambda: AgentLoop(memory, chat, Script()).run(again, request_id="r"))()
    with pytest.raises(InvalidInput, match="request_id is empty"):
        AgentLoop(memory, chat, Script()).run("Hi.", request_id="")
    assert memory.head == before


def test_what_a_hook_made_of_the_question_is_not_compared(memory: Memory) -> None:
    memory.hooks.register("user_message", lambda _, text: UserMessageResult(text.upper(), injected_context="x"))
    chat = memory.conversation("c")
    loop = AgentLoop(memory, chat, Script(Reply("Hello!")))
    assert [loop.run("hi", request_id="r").text for _ in range(2)] == ["Hello!"] * 2
    assert asked(chat) == ["HI"]


def test_a_message_that_a_hook_stops_is_no_answer(memory: Memory) -> None:
    hook = memory.hooks.register("user_message", lambda *_: UserMessageResult(stop_reason="not now"))
    loop = AgentLoop(memory, memory.conversation("c"), Script(Reply("Hello!")))
    assert loop.run("hi", request_id="r").stop_reason == "not now"
    memory.hooks.unregister("user_message", hook)
    assert loop.run("hi", request_id="r").text == "Hello!"


def test_why_a_hook_blocked_an_answer_comes_again_and_in_a_rerun() -> None:
    with Memory(clock_ns=Clock(), random_bytes=ids()) as live, Memory(clock_ns=Clock(), random_bytes=ids()) as other:
        live.hooks.register("after_llm", lambda *_: AfterLlmResult("Sorry.", block_reason="unsafe"))
        chat = live.conversation("c")
        loop = AgentLoop(live, chat, Script(Reply("Secret.")))
        turns = [loop.run("hi", request_id="r") for _ in range(2)]
        assert turns == [Turn("Sorry.", 1, "unsafe")] * 2
        assert described(rerun(chat, other)) == described(chat)


def test_a_plain_run_is_a_new_question_and_takes_up_one_with_an_id(memory: Memory) -> None:
    model, chat = Failing(Reply("Hello!")), memory.conversation("c")
    with pytest.raises(ConnectionError):
        AgentLoop(memory, chat, model).run("Hi.", request_id="r")
    assert AgentLoop(memory, chat, model).run("Hi.").text == "Hello!"
    assert AgentLoop(memory, chat, Script()).run("Hi.", request_id="r").text == "Hello!"
    assert AgentLoop(memory, chat, Script(Reply("Again."))).run("Hi.").text == "Again."
    assert asked(chat) == ["Hi.", "Hi."]


# Where the question is no longer the newest.


@pytest.mark.parametrize("what", ["followed", "answered", "taken back", "cleared"])
def test_a_question_that_was_passed_over_is_not_asked_again(memory: Memory, what: str) -> None:
    chat = memory.conversation("c")
    with pytest.raises(ConnectionError):
        AgentLoop(memory, chat, Failing()).run("Hi.", request_id="r")
    question = chat.window()[-1]
    if what == "followed":
        AgentLoop(memory, chat, Script(Reply("Fine."))).run("How are you?", request_id="s")
    elif what == "answered":
        chat.append("assistant", "Hello from a person!")
    elif what == "taken back":
        chat.remove(question)
    else:
        chat.clear_window()
    head = memory.head
    assert AgentLoop(memory, chat, Script()).run("Hi.", request_id="r") == Turn("", 0, PASSED)
    assert memory.head == head


def test_a_restored_conversation_keeps_its_answers(memory: Memory) -> None:
    chat = memory.conversation("c")
    chat.append("system", "Be kind.")
    before = chat.snapshot()
    AgentLoop(memory, chat, Script(Reply("Hello!"))).run("Hi.", request_id="r")
    with pytest.raises(ConnectionError):
        AgentLoop(memory, chat, Failing()).run("And?", request_id="s")
    chat.restore(before)
    assert AgentLoop(memory, chat, Script()).run("Hi.", request_id="r").text == "Hello!"
    assert AgentLoop(memory, chat, Script()).run("And?", request_id="s").stop_reason == PASSED
    assert [role for role, _ in said(chat)] == ["system"]


def test_a_fork_of_the_memory_knows_the_answers_before_it_and_not_those_after(memory: Memory) -> None:
    chat = memory.conversation("c")
    AgentLoop(memory, chat, Script(Reply("Hello!"))).run("Hi.", request_id="r")
    branch = memory.fork("b")
    AgentLoop(memory, chat, Script(Reply("Main."))).run("And?", request_id="s")
    loop = AgentLoop(branch, branch.conversation("c"), Script(Reply("Branch.")))
    assert loop.run("Hi.", request_id="r").text == "Hello!"
    assert [loop.run("And?", request_id="s").text for _ in range(2)] == ["Branch."] * 2
    assert AgentLoop(memory, chat, Script()).run("And?", request_id="s").text == "Main."
    fork = chat.fork("f")
    with pytest.raises(InvalidInput, match="used for another request"):
        AgentLoop(memory, fork, Script()).run("Hi.", request_id="r")


@pytest.mark.parametrize("what", ["question", "answer", "conversation", "open question"])
def test_of_an_erased_turn_comes_what_is_left_of_it(memory: Memory, what: str) -> None:
    chat = memory.conversation("c")
    model = Failing(Reply("Never.")) if what == "open question" else Script(call("none"), Reply("Hello, Ada!"))
    try:
        AgentLoop(memory, chat, model).run("I am Ada.", request_id="r")
    except ConnectionError:
        assert what == "open question"
    messages = chat.window()
    if what == "conversation":
        chat.erase()
    else:
        memory.erase([messages[-1 if what == "answer" else 0].seq])
    head = memory.head
    turn = AgentLoop(memory, memory.conversation("c"), Script()).run("I am Ada.", request_id="r")
    if what == "question":
        assert turn == Turn("Hello, Ada!", 2)
    else:
        assert (turn.text, turn.stop_reason) == ("", ERASED)
    assert memory.head == head
    assert_sound(memory)


def test_a_dropped_conversation_asks_no_question_of_before(memory: Memory) -> None:
    memory.conversation("c").append("user", "Hello!")
    fork = memory.conversation("c").fork("f")
    with pytest.raises(ConnectionError):
        AgentLoop(memory, fork, Failing()).run("Hi.", request_id="r")
    fork.close(drop=True)
    turn = AgentLoop(memory, memory.conversation("f"), Script()).run("Hi.", request_id="r")
    assert turn == Turn("", 0, ERASED)
