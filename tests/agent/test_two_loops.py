"""Two loops in one conversation at once: whatever each answers, every call has one answer, and it is the true one."""

import json
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import pytest

from refold import Conversation, Memory
from refold.agent import AgentLoop, Call, FunctionTool, Reply, rerun
from tests.agent.test_loop import Script, call, described, ids
from tests.support.memories import Child, Clock, assert_sound

SECONDS_MAX = 60
INTERRUPTED = "Error: the session was interrupted before this call came back"


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


def test_the_result_takes_the_place_of_the_answer_that_another_loop_gave(memory: Memory) -> None:
    chat, model = memory.conversation("c", window_tokens=400), Script(call("pay"), Reply("Paid."))
    with Paying(memory, model) as paying:
        turn = AgentLoop(memory, chat, Script(Reply("Hello!"))).run("And hello.")
        assert turn.text == "Hello!"
        assert answers(chat) == [("c1", INTERRUPTED)]
    assert [turn.text for turn in paying.turns] == ["Paid."]
    assert said(chat) == [
        ("user", "Pay the bill."),
        ("assistant", None),
        ("tool", "paid 100"),
        ("user", "And hello."),
        ("assistant", "Hello!"),
        ("assistant", "Paid."),
    ]
    roles = [message["role"] for message in model.asked[1] if message["role"] != "system"]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]
    (record,) = [stamp for event, stamp in chat.events() if type(event).__name__ == "ToolExecuted"]
    (message,) = [message for message in chat.window() if message.role == "tool"]
    memory.erase([record.seq])
    assert "paid 100" not in repr(said(chat)), "the answer cites the record of the call"
    assert message.tool_call_id == "c1"
    assert_sound(memory)


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
    AgentLoop(memory, chat, Script(call("pay"), Reply("Paid."))).run("Pay.")
    assert others == ["running", "It is paid."]
    assert said(chat)[1:] == [
        ("assistant", None),
        ("tool", "paid 100"),
        ("assistant", "It is paid."),
        ("assistant", "Paid."),
    ]


def test_a_result_that_is_too_long_takes_that_place_as_an_error(memory: Memory) -> None:
    chat = memory.conversation("c", window_tokens=400)
    with Paying(memory, Script(call("pay"), Reply("Paid.")), lambda: "x" * 9_000):
        AgentLoop(memory, chat, Script(Reply("Hello!"))).run("And hello.")
    ((_, answer),) = answers(chat)
    assert "which do not fit the window; ask for less" in answer
    assert ("user", "Pay the bill.") in said(chat)


def test_what_an_answer_evicts_by_growing_is_told_to_the_hooks(memory: Memory) -> None:
    chat, evicted = memory.conversation("c", window_tokens=400), list[Any]()
    chat.append("assistant", "word " * 250)
    memory.hooks.register("compaction", lambda _, messages: evicted.extend(message.content for message in messages))
    with Paying(memory, Script(call("pay"), Reply("Paid.")), lambda: "sum " * 220):
        AgentLoop(memory, chat, Script(Reply("Hello!"))).run("And hello.")
        assert evicted == []
    assert evicted[0] == "word " * 250
    assert answers(chat) == [("c1", "sum " * 220)]


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
        assert [content for role, content in said(chat) if role == "assistant"] == [None, "Hello!", "Paid."]
        assert_sound(memory)
