"""Turns of the loop: what fails goes on where it stopped, nothing is said twice, and nothing is said for the user."""

import json
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from refold import Conversation, InvalidInput, LimitExceeded, Memory, Message
from refold.agent import (
    AfterLlmResult,
    AfterToolResult,
    AgentLoop,
    Call,
    FunctionTool,
    HookContext,
    Reply,
    Usage,
    UserMessageResult,
    default_hooks,
    rerun,
)
from refold.agent import loop as loops
from refold.agent.reply import render_calls
from refold.entry import MemoriesRecalled
from refold.message import MessageAppended
from tests.agent.test_loop import Script, call, described, ids
from tests.support.memories import Clock, assert_sound

GONE = "the message was erased, or its conversation dropped, while it was being answered; nothing more was recorded"
ANSWERED = "the message was answered or taken back elsewhere meanwhile; the reply of this turn was not recorded"


def said(memory: Memory, name: str = "c") -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in memory.conversation(name).window()]


class Failing(Script):
    """A model that fails so many times before each reply."""

    def __init__(self, *replies: Reply, failures: int = 1) -> None:
        super().__init__(*replies)
        self.failures = self.left = failures

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:
        if self.left:
            self.left -= 1
            raise ConnectionError("the model is away")
        self.left = self.failures
        return super().reply(messages, tools)


# Going on.


@pytest.mark.parametrize("again", ["resume", "run"])
def test_after_a_failure_of_the_model_the_users_message_is_there_once(memory: Memory, again: str) -> None:
    heard: list[str] = []
    memory.hooks.register("user_message", lambda _, text: heard.append(text))
    loop = AgentLoop(memory, memory.conversation("c"), Failing(Reply("Hi."), failures=2))
    for _ in range(2):
        with pytest.raises(ConnectionError):
            loop.run("Hello!")
    turn = loop.resume() if again == "resume" else loop.run("Hello!")
    assert turn.text == "Hi."
    assert said(memory) == [("user", "Hello!"), ("assistant", "Hi.")]
    assert heard == ["Hello!"]
    assert_sound(memory)


def test_a_turn_goes_on_behind_the_calls_that_were_made(memory: Memory) -> None:
    chat = memory.conversation("c")
    model = Failing(call("memory_write", action="note", value="n"), Reply("Noted."))
    loop = AgentLoop(memory, chat, model)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            loop.run("Note n.")
    assert AgentLoop(memory, chat, model).resume().text == "Noted.", "another loop, as after a restart"
    assert [role for role, _ in said(memory)] == ["user", "assistant", "tool", "assistant"]
    assert chat.scratchpad.notes() == ["n"]


def test_only_what_waits_for_an_answer_can_be_resumed(memory: Memory) -> None:
    chat = memory.conversation("c")
    loop = AgentLoop(memory, chat, Script(Reply("Hi."), Reply("Hi again.")))
    with pytest.raises(InvalidInput, match="waits for no answer of the model; call run"):
        loop.resume()
    loop.run("Hello!")
    with pytest.raises(InvalidInput, match="waits for no answer"):
        loop.resume()
    assert loop.run("Hello!").text == "Hi again.", "an answered message may come again"
    assert [content for _, content in said(memory)] == ["Hello!", "Hi.", "Hello!", "Hi again."]


def test_a_call_that_was_recorded_before_the_end_is_answered_with_its_result(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(BaseException):
        """The end of a process."""

    done: list[int] = []

    def pay(*_: Any) -> dict[str, int]:
        done.append(1)
        return {"paid": 7}

    memory.tools.register(FunctionTool("pay", "d", {}, pay))
    chat = memory.conversation("c")
    calls = (Call("c1", "pay"), Call("c2", "pay"), Call("c3", "memory_write", json.dumps({"action": "set"})))
    loop = AgentLoop(memory, chat, Script(Reply(None, calls)))

    def cut_off(*_: Any, **__: Any) -> Any:
        raise Ended

    with monkeypatch.context() as patch:
        patch.setattr(AgentLoop, "_append_output", cut_off)
        with pytest.raises(Ended):
            loop.run("Pay.")
    assert AgentLoop(memory, chat, Script(Reply("Paid."))).resume().text == "Paid."
    outputs = [content for role, content in said(memory) if role == "tool"]
    assert outputs == ['{"paid":7}'] + ["Error: the session was interrupted before this call came back"] * 2
    assert done == [1], "nothing is done twice"


def test_what_a_hook_makes_of_a_result_is_made_of_one_that_was_recorded_before_the_end(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(BaseException):
        """The end of a process."""

    memory.tools.register(FunctionTool("look", "d", {}, lambda *_: "sk-1234"))
    memory.hooks.register("after_tool", lambda *_: AfterToolResult(replacement_output="[redacted]"))
    chat = memory.conversation("c")

    def cut_off(*_: Any, **__: Any) -> Any:
        raise Ended

    with monkeypatch.context() as patch:
        patch.setattr(AgentLoop, "_append_output", cut_off)
        with pytest.raises(Ended):
            AgentLoop(memory, chat, Script(call("look"))).run("Look.")
    model = Script(Reply("Seen."))
    assert AgentLoop(memory, chat, model).resume().text == "Seen."
    assert [content for role, content in said(memory) if role == "tool"] == ["[redacted]"]
    assert "sk-1234" not in str(model.asked)


def test_a_session_that_was_resumed_runs_again() -> None:
    with Memory(clock_ns=Clock(), random_bytes=ids()) as live, Memory(clock_ns=Clock(), random_bytes=ids()) as other:
        chat = live.conversation("c", project="acme")
        model = Failing(call("memory_add", content="It rains in Oslo."), Reply("Noted."), Reply("Bye."), failures=2)
        loop = AgentLoop(live, chat, model)
        for text in ("Note the rain.", "Bye!"):
            for _ in range(10):
                try:
                    loop.run(text)
                    break
                except ConnectionError:
                    continue
        assert [role for role, _ in said(live)] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        assert described(rerun(chat, other)) == described(chat)
        assert [entry.content for entry in other.project("acme").list()] == ["It rains in Oslo."]
        assert other.state_hash() == live.state_hash()


def test_a_guard_that_blocks_the_model_ends_the_turn_which_can_be_resumed(memory: Memory) -> None:
    def guard(*_: Any) -> None:
        raise ZeroDivisionError

    memory.hooks.register("before_llm", guard)
    model = Script(Reply("Hi."))
    loop = AgentLoop(memory, memory.conversation("c"), model)
    turn = loop.run("Hello!")
    assert (turn.text, turn.steps) == ("", 1)
    assert "guard raised ZeroDivisionError, so the model was not asked" in str(turn.stop_reason)
    assert model.asked == []
    memory.hooks.unregister("before_llm", guard)
    assert loop.resume().text == "Hi."


def test_a_guard_that_fails_lets_no_tool_run(memory: Memory) -> None:
    done: list[int] = []
    memory.tools.register(FunctionTool("rm", "d", {}, lambda *_: done.append(1)))

    def guard(*_: Any) -> None:
        raise ZeroDivisionError

    memory.hooks.register("before_tool", guard)
    AgentLoop(memory, memory.conversation("c"), Script(call("rm"), Reply("No."))).run("Delete all.")
    assert done == []
    assert "raised ZeroDivisionError, so the call was not made" in str(said(memory)[2][1])


EMPTY = "the model's answer is empty; resume() asks again"


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_an_empty_reply_is_no_answer_and_the_question_can_be_asked_again(memory: Memory, text: str | None) -> None:
    chat = memory.conversation("c")
    model = Script(Reply(text), Reply(text), Reply("Hi."), Reply("Bye."))
    loop = AgentLoop(memory, chat, model)
    turn = loop.run("Hello!")
    assert (turn.text, turn.steps, turn.stop_reason) == (text or "", 1, EMPTY)
    assert said(memory) == [("user", "Hello!")]
    assert loop.run("Hello!").stop_reason == EMPTY
    assert (loop.resume().text, loop.run("Bye!").text) == ("Hi.", "Bye.")
    assert said(memory) == [("user", "Hello!"), ("assistant", "Hi."), ("user", "Bye!"), ("assistant", "Bye.")]


def test_an_empty_reply_after_calls_leaves_the_calls_and_their_results(memory: Memory) -> None:
    model = Script(call("memory_write", action="note", value="n"), Reply(""), Reply("Noted."))
    loop = AgentLoop(memory, memory.conversation("c"), model)
    turn = loop.run("Note n.")
    assert (turn.text, turn.steps, turn.stop_reason) == ("", 2, EMPTY)
    assert loop.resume().text == "Noted."
    assert [role for role, _ in said(memory)] == ["user", "assistant", "tool", "assistant"]


def test_what_a_hook_leaves_empty_is_not_recorded_and_what_it_fills_is(memory: Memory) -> None:
    texts = ["", "Filled."]
    memory.hooks.register("after_llm", lambda *_: AfterLlmResult(replacement_text=texts.pop(0)))
    loop = AgentLoop(memory, memory.conversation("c"), Script(Reply("Secret."), Reply(None)))
    assert loop.run("Hello!").stop_reason == EMPTY
    assert said(memory) == [("user", "Hello!")]
    assert loop.resume().text == "Filled."
    memory.hooks.register("after_llm", lambda *_: AfterLlmResult(block_reason="no"))
    texts.append("")
    assert AgentLoop(memory, memory.conversation("d"), Script(call("memory_read"))).run("Go.").stop_reason == "no"
    assert said(memory, "d") == [("user", "Go.")]


def test_a_session_with_empty_replies_runs_again() -> None:
    with Memory(clock_ns=Clock(), random_bytes=ids()) as live, Memory(clock_ns=Clock(), random_bytes=ids()) as other:
        chat = live.conversation("c")
        replies = (Reply(None), Reply(""), call("memory_read"), Reply(None), Reply("Hi."), Reply(""), Reply("Bye."))
        loop = AgentLoop(live, chat, Script(*replies))
        loop.run("Hello!")
        for _ in range(3):
            loop.resume()
        loop.run("Bye!")
        loop.run("Are you there?")
        assert described(rerun(chat, other)) == described(chat)
        assert other.state_hash() == live.state_hash()


# The beginning of a session.


@pytest.mark.parametrize("before", ["task", "system", "pinned"])
def test_a_session_starts_with_its_first_run_whatever_is_there_before(memory: Memory, before: str) -> None:
    started: list[str] = []
    memory.hooks.register("session_start", lambda context: started.append(context.session_id))
    chat = memory.conversation("c")
    if before == "task":
        chat.session.describe_task("Fix it.")
    else:
        chat.append("system", "You are Ada.", pinned=before == "pinned")
    loop = AgentLoop(memory, chat, Script(*[Reply("ok")] * 3))
    loop.run("a")
    loop.run("b")
    AgentLoop(memory, chat, Script(Reply("ok"))).run("c")
    assert started == ["c"]


# The user's words.


def test_a_skill_is_never_the_users_words_nor_the_query(memory: Memory) -> None:
    memory.add("The database listens on port 6543.")
    memory.add("Skill words, skill words: how skills are written, with many skill words.")
    text = "skill words " * 300

    def inject(_: HookContext, __: str) -> UserMessageResult:
        return UserMessageResult(skills=(("writer", text, 5.0),), injected_context="The user is in a hurry.")

    memory.hooks.register("user_message", inject)
    memory.settings.set("memory_max_injected", 1)
    chat = memory.conversation("c")
    model = Script(call("memory_read"), Reply("6543."), Reply("Yes."))
    loop = AgentLoop(memory, chat, model)
    loop.run("Which port does the database have?")
    first = model.asked[0]
    assert [message["role"] for message in first] == ["system", "user"]
    question = "Which port does the database have?"
    assert first[1]["content"] == f"[For This Message]\nThe user is in a hurry.\n\n[Message]\n{question}"
    assert "port 6543" in first[0]["content"], "the message finds memories, not what is beside it"
    for asked in model.asked:
        assert asked[0]["content"].count("[skill:writer]") == 1
        assert str(asked).count("The user is in a hurry.") == 1
    memory.hooks.register("user_message", lambda *_: None)
    loop.run("Thanks!")
    assert model.asked[-1][0]["content"].count("[skill:writer]") == 1, "not once for each turn"
    assert [content for role, content in said(memory) if role == "user"] == [
        "Which port does the database have?",
        "Thanks!",
    ]
    assert "skill words" not in repr([message.content for message in chat.window()])
    contexts = [found.stamp.seq for found in chat.events() if type(found.event).__name__ == "ContextShown"]
    assert all(memory.rebuild(seq).matches for seq in contexts)


def test_what_was_injected_comes_again_in_a_rerun() -> None:
    with Memory(clock_ns=Clock(), random_bytes=ids()) as live, Memory(clock_ns=Clock(), random_bytes=ids()) as other:
        live.hooks.register(
            "user_message",
            lambda *_: UserMessageResult("HELLO", injected_context="Hurry.", skills=(("s", "Do.", 2.0),)),
        )
        chat = live.conversation("c")
        AgentLoop(live, chat, Script(call("memory_read"), Reply("ok"))).run("Hello")
        assert described(rerun(chat, other)) == described(chat)
        (message,) = [
            event for event, _ in chat.events() if isinstance(event, MessageAppended) and event.role == "user"
        ]
        assert (message.text, (message.metadata or {})["original"]) == ("HELLO", "Hello")


# What hooks are told, and what is counted.


def test_hooks_see_the_calls_the_usage_and_who_answers(memory: Memory) -> None:
    seen: list[Any] = []

    def watch(context: HookContext, text: str) -> AfterLlmResult | None:
        seen.append((text, [made.name for made in context.calls], context.usage, context.provider_name))
        context.notify(f"{context.model_name} answered")
        return None

    memory.hooks.register("after_llm", watch)
    usage = Usage(10, 2)
    replies = (Reply("a", (Call("c1", "memory_read"),), usage), Reply("b", (), usage))
    loop = AgentLoop(memory, memory.conversation("c"), Script(*replies), provider_name="acme", model_name="tiny")
    turn = loop.run("go")
    assert seen == [("a", ["memory_read"], usage, "acme"), ("b", [], usage, "acme")]
    assert turn.usage == Usage(20, 4)
    assert turn.notices == ("tiny answered", "tiny answered") == loop.notices
    with pytest.raises(InvalidInput, match="usage must be a Usage"):
        AgentLoop(memory, memory.conversation("d"), Script(Reply("x", (), 5))).run("go")  # type: ignore[arg-type]


def test_a_memory_counts_once_for_a_session_and_not_for_each_call_of_the_model(memory: Memory) -> None:
    default_hooks(memory)
    entry = memory.add("The port is 5432.")
    model = Script(*[call("memory_read")] * 4, Reply("5432."))
    AgentLoop(memory, memory.conversation("c"), model).run("Which port?")
    assert memory.stats().usage == {"memory_injected": 1}
    found = memory.project().get(entry.id)
    assert found is not None
    assert found.access_count == 1
    assert sum(isinstance(event, MemoriesRecalled) for event, _ in memory.events()) == 1


def test_a_local_model_gets_shorter_parts_and_a_given_budget_counts_for_every_model(memory: Memory) -> None:
    for number in range(200):
        memory.profile().set(f"key {number}", "value " * 8)
        memory.journal().append("note " * 12)

    def asked(**options: Any) -> int:
        model = Script(Reply("ok"))
        AgentLoop(memory, memory.conversation(str(options)), model, **options).run("go")
        return len(model.asked[0][0]["content"])

    assert asked(provider_name="ollama") < asked(provider_name="openai") / 2
    assert asked(provider_name="ollama", budget=4_000) > asked(provider_name="ollama")


# What does not fit.


def test_a_text_that_does_not_fit_the_window_is_refused_and_takes_nothing_with_it(memory: Memory) -> None:
    chat = memory.conversation("c", window_tokens=100)
    loop = AgentLoop(memory, chat, Script(Reply("Noted."), Reply("Tom.")))
    loop.run("My cat is Tom.")
    head = memory.head
    with pytest.raises(LimitExceeded, match=r"a user message of \d+ tokens does not fit the window, which holds 100"):
        loop.run("word " * 500)
    assert memory.head == head
    assert loop.run("What is my cat called?").text == "Tom."
    assert said(memory)[0] == ("user", "My cat is Tom.")
    assert_sound(memory)


def test_a_result_that_does_not_fit_the_window_is_an_error_to_the_model(memory: Memory) -> None:
    chat = memory.conversation("c", window_tokens=200)
    memory.tools.register(FunctionTool("dump", "d", {}, lambda *_: "x" * 5_000))
    loop = AgentLoop(memory, chat, Script(call("dump"), Reply("Too much.")))
    assert loop.run("Show me everything.").text == "Too much."
    assert [role for role, _ in said(memory)] == ["user", "assistant", "tool", "assistant"]
    assert "which do not fit the window; ask for less" in said(memory)[2][1]
    assert_sound(memory)


def test_a_text_is_appended_though_others_write_to_the_conversation(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, window, texts = memory.conversation("c"), Conversation.window, ["first", "second", "third"]

    def meanwhile(self: Conversation, last: int | None = None) -> list[Message]:
        found = window(self, last)
        if texts:
            writer = Thread(target=chat.append, args=("assistant", texts.pop(0)))
            writer.start()
            writer.join()
        return found

    monkeypatch.setattr(Conversation, "window", meanwhile)
    assert AgentLoop(memory, chat, Script(Reply("ok"))).run("Hello!").text == "ok"
    assert [content for _, content in said(memory)] == ["first", "second", "third", "Hello!", "ok"]
    assert_sound(memory)


def test_a_turn_that_was_interrupted_is_named_by_the_error_and_by_the_next_run(memory: Memory) -> None:
    class Interrupted(Script):
        def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:
            if not self.replies:
                raise KeyboardInterrupt
            return super().reply(messages, tools)

    chat = memory.conversation("c")
    with pytest.raises(KeyboardInterrupt) as caught:
        AgentLoop(memory, chat, Interrupted()).run("First.")
    seq = chat.window()[0].seq
    assert caught.value.__notes__ == [f"message {seq} has no answer yet; AgentLoop.resume() goes on with it"]
    loop = AgentLoop(memory, chat, Script(Reply("Hi."), Reply("Bye.")))
    assert loop.run("Second.").notices == (
        f"message {seq} ('First.') has no answer; resume() would have gone on with it",
    )
    assert loop.run("Third.").notices == ()


def forget_account(memory: Memory, chat: Conversation) -> None:
    for handle in (chat, memory.project("u/z"), memory.profile("z"), memory.journal("z")):
        handle.erase()
    memory.erase(text="Zelda")


TAKEN_BACK: dict[str, tuple[Callable[[Memory, Conversation, Message], object], str]] = {
    "erased": (lambda memory, chat, _: forget_account(memory, chat), GONE),
    "erased message": (lambda memory, _, message: memory.erase([message.seq]), GONE),
    "dropped": (lambda memory, chat, _: memory.conversation(chat.id).drop(), GONE),
    "cleared": (lambda _, chat, __: chat.clear_window(), ANSWERED),
    "removed": (lambda _, chat, message: chat.remove(message), ANSWERED),
    "restored": (lambda _, chat, __: chat.restore("before"), ANSWERED),
}


@pytest.mark.parametrize("moment", ["model", "tool"])
@pytest.mark.parametrize("how", TAKEN_BACK)
def test_nothing_is_written_of_a_turn_whose_question_was_taken_back(how: str, moment: str, memory: Memory) -> None:
    take_back, reason = TAKEN_BACK[how]
    chat, heads, ran = memory.conversation("z/1", project="u/z"), list[int](), list[str]()
    chat.append("user", "Hello!")
    chat.append("assistant", "Hello!")
    chat.snapshot("before")
    memory.hooks.register("after_llm", lambda *_: ran.append("after_llm"))

    def act(at: str) -> str:
        if moment == at:
            take_back(memory, chat, chat.window(last=None)[2])
            heads.append(memory.head)
        return "Zelda"

    memory.tools.register(FunctionTool("look", "d", {}, lambda *_: act("tool")))

    class Asked(Script):
        def reply(self, messages: Any, tools: Any) -> Reply:
            act("model")
            return super().reply(messages, tools)

    write = call("memory_set", "c2", key="name", value="Zelda Qwertz").calls
    model = Asked(Reply("On it.", (*call("look").calls, *write)))
    turn = AgentLoop(memory, chat, model, profile="z", journal="z").run("I am Zelda Qwertz.")
    assert (turn.text, turn.steps, turn.stop_reason) == ("" if moment == "model" else "On it.", 1, reason)
    assert ran == ([] if moment == "model" else ["after_llm"])
    assert len(model.asked) == 1
    assert memory.profile("z").items() == []
    if reason == GONE or moment == "model":
        assert [memory.head] == heads
    assert ("z/1" in memory.conversations()) == (how not in ("erased", "dropped"))


def test_a_conversation_erased_while_a_reply_is_written_does_not_begin_anew(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = memory.conversation("z/1")

    def erase_first(*given: Any) -> Any:
        if chat.version:
            thread = Thread(target=chat.erase)
            thread.start()
            thread.join()
        return render_calls(*given)

    monkeypatch.setattr(loops, "render_calls", erase_first)
    turn = AgentLoop(memory, chat, Script(call("memory_set", key="name", value="Zelda"))).run("I am Zelda.")
    assert turn.stop_reason == GONE
    assert (memory.profile().items(), memory.conversations()) == ([], ["erased-1"])
