"""Two loops in one conversation at once: no request is worked on twice, and every call has one answer, the true one."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any, Self

import pytest

from refold import Conversation, Memory, StoreBusy
from refold.agent import AgentLoop, Call, FunctionTool, HookContext, Reply, rerun
from tests.agent.test_loop import Script, call, described, ids
from tests.support.memories import Child, Clock, assert_sound

SECONDS_MAX = 60
INTERRUPTED = "Error: the session was interrupted before this call came back"
CANCELLED = "the turn was cancelled; resume() goes on with it"
ANSWERED = "the message was answered or taken back elsewhere meanwhile; the reply of this turn was not recorded"


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let loops know as little of each other's turns as in two processes."""
    monkeypatch.setattr("refold.agent.loop.run_alone", lambda _chat, _texts, _is_cancelled, work: work())


class Paying:
    """A loop on a thread of its own, whose tool waits until it may return."""

    def __init__(self, memory: Memory, model: Any, result: Callable[[], Any] = lambda: "paid 100") -> None:
        self.inside, self.may_return = Event(), Event()
        memory.tools.register(FunctionTool("pay", "d", {}, lambda *_: self._pay(result)))
        self.loop = AgentLoop(memory, memory.conversation("c", window_tokens=400), model)
        self.turns: list[Any] = []
        self._thread = Thread(target=lambda: self.turns.append(self.loop.run("Pay the bill.")))

    def _pay(self, result: Callable[[], Any]) -> Any:
        self.inside.set()
        assert self.may_return.wait(SECONDS_MAX)
        return result()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self.inside.wait(SECONDS_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        self.may_return.set()
        self._thread.join()


def answers(chat: Conversation) -> list[tuple[str | None, Any]]:
    return [(message.tool_call_id, message.content) for message in chat.window() if message.role == "tool"]


def said(chat: Conversation) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in chat.window()]


@pytest.mark.usefixtures("apart")
def test_the_result_takes_the_place_of_the_answer_that_another_loop_gave(memory: Memory) -> None:
    chat, model = memory.conversation("c", window_tokens=400), Script(call("pay"), Reply("Paid."))
    with Paying(memory, model) as paying:
        turn = AgentLoop(memory, chat, Script(Reply("Hello!"))).run("And hello.")
        assert turn.text == "Hello!"
        assert answers(chat) == [("c1", INTERRUPTED)]
    assert [turn.stop_reason for turn in paying.turns] == [ANSWERED]
    assert len(model.asked) == 1, "the other loop has answered both"
    assert said(chat) == [
        ("user", "Pay the bill."),
        ("assistant", None),
        ("tool", "paid 100"),
        ("user", "And hello."),
        ("assistant", "Hello!"),
    ]
    (record,) = [stamp for event, stamp in chat.events() if type(event).__name__ == "ToolExecuted"]
    (message,) = [message for message in chat.window() if message.role == "tool"]
    memory.erase([record.seq])
    assert "paid 100" not in repr(said(chat)), "the answer cites the record of the call"
    assert message.tool_call_id == "c1"
    assert_sound(memory)


@pytest.mark.usefixtures("apart")
def test_an_answer_that_another_loop_took_from_the_record_stays(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, append = memory.conversation("c"), AgentLoop._append_output
    memory.tools.register(FunctionTool("pay", "d", {}, lambda *_: "paid 100"))
    others: list[str] = []

    def slowly(self: AgentLoop, *arguments: Any) -> None:
        if not others:
            others.append("running")
            others.append(AgentLoop(memory, chat, Script(Reply("It is paid."))).resume().text)
        append(self, *arguments)

    monkeypatch.setattr(AgentLoop, "_append_output", slowly)
    turn = AgentLoop(memory, chat, Script(call("pay"), Reply("Paid."))).run("Pay.")
    assert (turn.text, turn.stop_reason) == ("", ANSWERED)
    assert others == ["running", "It is paid."]
    assert said(chat)[1:] == [
        ("assistant", None),
        ("tool", "paid 100"),
        ("assistant", "It is paid."),
    ]


@pytest.mark.usefixtures("apart")
def test_a_result_that_is_too_long_takes_that_place_as_an_error(memory: Memory) -> None:
    chat = memory.conversation("c", window_tokens=400)
    with Paying(memory, Script(call("pay"), Reply("Paid.")), lambda: "x" * 9_000):
        AgentLoop(memory, chat, Script(Reply("Hello!"))).run("And hello.")
    ((_, answer),) = answers(chat)
    assert "which do not fit the window; ask for less" in answer
    assert ("user", "Pay the bill.") in said(chat)


@pytest.mark.usefixtures("apart")
def test_what_an_answer_evicts_by_growing_is_told_to_the_hooks(memory: Memory) -> None:
    chat, evicted = memory.conversation("c", window_tokens=400), list[Any]()
    chat.append("assistant", "word " * 250)
    memory.hooks.register("compaction", lambda _, messages: evicted.extend(message.content for message in messages))
    with Paying(memory, Script(call("pay"), Reply("Paid.")), lambda: "sum " * 220):
        AgentLoop(memory, chat, Script(Reply("Hello!"))).run("And hello.")
        assert evicted == []
    assert evicted[0] == "word " * 250
    assert answers(chat) == [("c1", "sum " * 220)]


@pytest.mark.usefixtures("apart")
def test_calls_of_two_loops_under_one_id_each_get_their_own_result(memory: Memory) -> None:
    chat = memory.conversation("c", window_tokens=400)
    memory.tools.register(FunctionTool("look", "d", {}, lambda *_: "seen"))
    with Paying(memory, Script(call("pay", "call_0"), Reply("Paid."))):
        AgentLoop(memory, chat, Script(call("look", "call_0"), Reply("Seen."))).run("Look.")
    assert answers(chat) == [("call_0", "paid 100"), ("call_0-2", "seen")]
    assert_sound(memory)


def test_calls_of_one_reply_under_one_id_each_get_their_own_result(memory: Memory) -> None:
    memory.tools.register(FunctionTool("add", "d", {}, lambda given, _: given["a"] + 1))
    calls = tuple(Call("", "add", json.dumps({"a": number})) for number in range(3))
    model = Script(Reply(None, calls), Reply(None, calls[:1]), Reply("Done."))
    chat = memory.conversation("c")
    assert AgentLoop(memory, chat, model).run("Add.").text == "Done."
    assert answers(chat) == [("", "1"), ("-2", "2"), ("-3", "3"), ("", "1")]
    made = [[made["id"] for made in message.tool_calls or ()] for message in chat.window() if message.tool_calls]
    assert made == [["", "-2", "-3"], [""]]


@pytest.mark.usefixtures("apart")
def test_a_conversation_of_two_loops_runs_again_event_for_event() -> None:
    with Memory(clock_ns=Clock(), random_bytes=ids()) as live, Memory(clock_ns=Clock(), random_bytes=ids()) as other:
        with Paying(live, Script(call("pay"), Reply("Paid."))):
            AgentLoop(live, live.conversation("c"), Script(call("pay_not"), Reply("Hello!"))).run("And hello.")
        chat = live.conversation("c")
        assert answers(chat)[0] == ("c1", "paid 100")
        assert described(rerun(chat, other)) == described(chat)
        assert other.state_hash() == live.state_hash()


OTHER = """
import sys
from refold import Memory
from refold.agent import AgentLoop, Reply
from tests.agent.test_loop import Script
with Memory(sys.argv[1]) as memory:
    print(AgentLoop(memory, memory.conversation("c"), Script(Reply("Hello!"))).run("And hello.").text, flush=True)
"""


def test_a_loop_in_another_process_leaves_no_second_answer(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("c")
        with Paying(memory, Script(call("pay"), Reply("Paid."))), Child(OTHER, str(tmp_path / "store")) as child:
            assert child.read() == "Hello!"
            assert answers(chat) == [("c1", INTERRUPTED)]
        assert answers(chat) == [("c1", "paid 100")]
        assert [content for role, content in said(chat) if role == "assistant"] == [None, "Hello!"]
        assert_sound(memory)


class Slow:
    """A model that answers when it may; it says when it was asked."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self.asked, self.may_reply, self.count = Event(), Event(), 0
        self._replies = list(replies)

    def reply(self, *_: Any) -> Reply:
        self.count += 1
        self.asked.set()
        assert self.may_reply.wait(SECONDS_MAX)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


class Waiting:
    """A loop that says when it waits for the turn of another one."""

    def __init__(self, memory: Memory, model: Any) -> None:
        self._waits = Event()
        self.loop = AgentLoop(memory, memory.conversation("c"), model, is_cancelled=self._say_so)

    def _say_so(self) -> bool:
        self._waits.set()
        return False

    def wait(self) -> None:
        assert self._waits.wait(SECONDS_MAX)


def test_a_request_that_is_repeated_while_it_is_worked_on_gets_the_same_answer(memory: Memory) -> None:
    model, booked = Slow(call("book"), Reply("Booked.")), list[str]()
    memory.tools.register(FunctionTool("book", "d", {}, lambda *_: booked.append("a table")))
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(AgentLoop(memory, memory.conversation("c"), model).run, "Book a table.")
        assert model.asked.wait(SECONDS_MAX)
        loops = [Waiting(memory, model), Waiting(memory, model)]
        again, resumed = pool.submit(loops[0].loop.run, "Book a table."), pool.submit(loops[1].loop.resume)
        for loop in loops:
            loop.wait()
        with pytest.raises(StoreBusy, match=r"'c' is answering another message \('Book a table.'\); call again when"):
            AgentLoop(memory, memory.conversation("c"), model).run("And a taxi.")
        assert not again.done()
        model.may_reply.set()
        assert first.result(SECONDS_MAX) == again.result(SECONDS_MAX) == resumed.result(SECONDS_MAX)
    assert (model.count, booked) == (2, ["a table"])
    assert [role for role, _ in said(memory.conversation("c"))] == ["user", "assistant", "tool", "assistant"]
    other = Script(Reply("Elsewhere."))
    assert AgentLoop(memory, memory.conversation("d"), other).run("Book a table.").text == "Elsewhere."


def test_a_repeated_request_goes_on_with_a_turn_that_failed(memory: Memory) -> None:
    model = Slow(RuntimeError("504"), Reply("Hello!"))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(AgentLoop(memory, memory.conversation("c"), model).run, "Hi.")
        assert model.asked.wait(SECONDS_MAX)
        waiting = Waiting(memory, model)
        again = pool.submit(waiting.loop.run, "Hi.")
        waiting.wait()
        model.may_reply.set()
        with pytest.raises(RuntimeError, match="504"):
            first.result(SECONDS_MAX)
        assert again.result(SECONDS_MAX).text == "Hello!"
    assert said(memory.conversation("c")) == [("user", "Hi."), ("assistant", "Hello!")]


def test_a_cancelled_turn_calls_no_more_tools_and_records_no_reply(memory: Memory) -> None:
    model, gone, paid = Slow(call("pay"), Reply("Hello!")), Event(), list[str]()
    memory.tools.register(FunctionTool("pay", "d", {}, lambda *_: paid.append("100")))
    chat = memory.conversation("c")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(AgentLoop(memory, chat, model, is_cancelled=gone.is_set).run, "Pay.")
        assert model.asked.wait(SECONDS_MAX)
        gone.set()
        waiting = Waiting(memory, Script(Reply("Sure.")))
        other = pool.submit(waiting.loop.run, "Do not pay.")
        waiting.wait()
        assert AgentLoop(memory, chat, model, is_cancelled=gone.is_set).run("Pay.").stop_reason == CANCELLED
        model.may_reply.set()
        assert first.result(SECONDS_MAX).stop_reason == CANCELLED
        assert other.result(SECONDS_MAX).text == "Sure."
    assert paid == []
    assert said(chat) == [("user", "Pay."), ("user", "Do not pay."), ("assistant", "Sure.")]


def test_a_turn_is_cancelled_between_two_calls_and_resumed_without_the_first(memory: Memory) -> None:
    paid, chat = list[str](), memory.conversation("c")
    memory.tools.register(FunctionTool("pay", "d", {}, lambda given, _: paid.append(given["to"])))
    calls = tuple(Call(name, "pay", json.dumps({"to": name})) for name in ("a", "b"))
    loop = AgentLoop(memory, chat, Script(Reply(None, calls)), is_cancelled=lambda: bool(paid))
    assert loop.run("Pay both.").stop_reason == CANCELLED
    assert AgentLoop(memory, chat, Script(Reply("One is paid."))).resume().text == "One is paid."
    assert (paid, answers(chat)) == (["a"], [("a", "null"), ("b", INTERRUPTED)])


def test_a_tool_that_asks_for_a_turn_of_its_own_conversation_is_told_why_it_cannot(memory: Memory) -> None:
    chat = memory.conversation("c")
    memory.tools.register(FunctionTool("ask", "d", {}, lambda *_: AgentLoop(memory, chat, Script()).resume().text))
    assert AgentLoop(memory, chat, Script(call("ask"), Reply("No."))).run("Ask yourself.").text == "No."
    ((_, answer),) = answers(chat)
    assert "asks for another turn in 'c', which would wait for itself" in answer


def test_a_repeated_request_gets_the_answer_of_a_turn_that_was_cancelled_after_it(memory: Memory) -> None:
    chat, inside, gone = memory.conversation("c", window_tokens=1_000), Event(), Event()
    for number in range(40):
        chat.append("user", f"{number} " + "word " * 20)

    def extract(context: HookContext, _: object) -> None:
        if context.conversation.window(last=1)[0].role == "assistant":
            inside.set()
            assert gone.wait(SECONDS_MAX)

    memory.hooks.register("compaction", extract)
    with ThreadPoolExecutor(2) as pool:
        order = AgentLoop(memory, chat, Script(Reply("Ordered. " + "Thanks. " * 100)), is_cancelled=gone.is_set)
        first = pool.submit(order.run, "Order a pizza.")
        assert inside.wait(SECONDS_MAX)
        waiting = Waiting(memory, Script(Reply("Ordered again.")))
        again = pool.submit(waiting.loop.run, "Order a pizza.")
        waiting.wait()
        gone.set()
        assert first.result(SECONDS_MAX).stop_reason is None
        assert again.result(SECONDS_MAX) == first.result(SECONDS_MAX)
    assert [role for role, _ in said(chat)[-2:]] == ["user", "assistant"]
    assert [message.content for message in chat.history()].count("Order a pizza.") == 1


def test_what_two_users_say_in_the_same_words_is_two_messages(memory: Memory) -> None:
    model, chat = Slow(Reply("One vote."), Reply("Two votes.")), memory.conversation("c")
    alice, bob = (AgentLoop(memory, chat, model, user_name=name) for name in ("alice", "bob"))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(alice.run, "yes")
        assert model.asked.wait(SECONDS_MAX)
        with pytest.raises(StoreBusy, match=r"'c' is answering another message \('yes' of 'alice'\); call again when"):
            bob.run("yes")
        model.may_reply.set()
        assert first.result(SECONDS_MAX).text == "One vote."
    assert bob.run("yes").text == "Two votes."
    failing = Slow(RuntimeError("504"))
    failing.may_reply.set()
    with pytest.raises(RuntimeError, match="504"):
        AgentLoop(memory, chat, failing, user_name="alice").run("again?")
    turn = AgentLoop(memory, chat, Script(Reply("Yes.")), user_name="bob").run("again?")
    assert "('again?') has no answer" in turn.notices[0]
    asked = [(message.name, message.content) for message in chat.window() if message.role == "user"]
    assert asked == [("alice", "yes"), ("bob", "yes"), ("alice", "again?"), ("bob", "again?")]


def test_agents_that_are_tools_of_each_other_do_not_wait_for_each_other(memory: Memory) -> None:
    names, both, loops = ("mailer", "planner"), Barrier(2), dict[str, AgentLoop]()

    def ask(name: str) -> str:
        both.wait(SECONDS_MAX)
        try:
            return loops[name].run("What is due?").text
        finally:
            both.wait(SECONDS_MAX)  # Neither turn ends before both have asked.

    memory.tools.register(FunctionTool("ask_mailer", "d", {}, lambda *_: ask("mailer")))
    memory.tools.register(FunctionTool("ask_planner", "d", {}, lambda *_: ask("planner")))
    for name, other in (names, names[::-1]):
        model = Script(call(f"ask_{other}"), Reply("Nothing."))
        loops[name] = AgentLoop(memory, memory.conversation(name), model)
    with ThreadPoolExecutor(2) as pool:
        turns = [pool.submit(loops[name].run, "What is due?") for name in names]
        assert [turn.result(SECONDS_MAX).text for turn in turns] == ["Nothing."] * 2
    for name in names:
        ((_, answer),) = answers(memory.conversation(name))
        assert "a tool or a hook of the turn that answers 'What is due?' cannot wait for that" in answer


def test_a_tool_on_a_thread_of_a_pool_does_not_wait_for_ever_for_its_own_turn(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.agent.turn_lock.LOOP_WAIT_SECONDS_MAX", 0.1)
    chat = memory.conversation("c")
    with ThreadPoolExecutor(1) as pool:
        inner = AgentLoop(memory, chat, Script())
        memory.tools.register(FunctionTool("ask", "d", {}, lambda *_: pool.submit(inner.run, "Hi.").result().text))
        assert AgentLoop(memory, chat, Script(call("ask"), Reply("Hello!"))).run("Hi.").text == "Hello!"
    ((_, answer),) = answers(chat)
    assert "waited LOOP_WAIT_SECONDS_MAX = 0.1 seconds for the turn that answers 'Hi.' in 'c'; call again" in answer


def test_what_a_turn_started_may_wait_once_the_turn_has_ended(memory: Memory) -> None:
    model, chat, contexts = Slow(Reply("Later.")), memory.conversation("c"), list[Context]()
    memory.tools.register(FunctionTool("keep", "d", {}, lambda *_: contexts.append(copy_context())))
    AgentLoop(memory, memory.conversation("d"), Script(call("keep"), Reply("Kept."))).run("Go.")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(AgentLoop(memory, chat, model).run, "When?")
        assert model.asked.wait(SECONDS_MAX)
        waiting = Waiting(memory, model)
        again = pool.submit(contexts[0].run, waiting.loop.run, "When?")
        waiting.wait()
        model.may_reply.set()
        assert first.result(SECONDS_MAX) == again.result(SECONDS_MAX)


@pytest.mark.usefixtures("apart")
def test_a_model_is_shown_no_call_of_another_loop_without_an_output(memory: Memory) -> None:
    chat = memory.conversation("c")

    def look(*_: Any) -> str:
        chat.append("assistant", None, tool_calls=[request])
        return "found"

    request = {"id": "other", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    memory.tools.register(FunctionTool("look", "d", {}, look))
    model = Script(call("look"), Reply("Found it."))
    assert AgentLoop(memory, chat, model).run("Look for my lamp.").text == "Found it."
    results = [(each["tool_call_id"], each["content"]) for each in model.asked[1] if each["role"] == "tool"]
    assert [content for _, content in results] == ["found", INTERRUPTED]
    assert results[1][0] == "other"
    assert_sound(memory)


@pytest.mark.usefixtures("apart")
def test_a_message_that_another_process_has_answered_gets_no_second_answer(memory: Memory) -> None:
    chat, paid = memory.conversation("c"), list[str]()

    class Asking(Script):
        def reply(self, messages: Any, tools: Any) -> Reply:
            assert AgentLoop(memory, chat, Script(Reply("Hello there!"))).resume().text == "Hello there!"
            return super().reply(messages, tools)

    memory.tools.register(FunctionTool("pay", "d", {}, lambda *_: paid.append("100")))
    for model in (Asking(Reply("Hello!")), Asking(call("pay"))):
        turn = AgentLoop(memory, chat, model).run("Hi.")
        assert (turn.text, turn.steps, turn.stop_reason) == ("", 1, ANSWERED)
    assert paid == []
    assert said(chat) == [("user", "Hi."), ("assistant", "Hello there!")] * 2
