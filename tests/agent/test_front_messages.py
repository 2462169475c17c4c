"""Messages that a front end appends: the hooks get each of them once, as they get those of `run`."""

from pathlib import Path
from typing import Any

import pytest

from refold import Conversation, Memory
from refold.agent import AgentLoop, FunctionTool, HookContext, Hooks, Reply, UserMessageResult, default_hooks, rerun
from refold.agent.loop import unanswered_message
from refold.message import is_withheld
from refold.views.session import ContextShown
from tests.agent.test_loop import Script, call
from tests.agent.test_turns import Failing
from tests.support.memories import Child, assert_sound

REMEMBER, FORGET = "Remember that I love mushrooms.", "Forget that my gate code is 5512."


def kept(memory: Memory, name: str = "shop") -> list[str]:
    return [entry.content for entry in memory.project(name).list()]


def opened(memory: Memory, content: Any = REMEMBER, **fields: Any) -> Conversation:
    memory.project("shop").add("My gate code is 5512.")
    chat = memory.conversation("c", project="shop")
    chat.append("user", content, **fields)
    return chat


def counted(memory: Memory) -> list[str]:
    texts: list[str] = []
    memory.hooks.register("user_message", lambda _, text: texts.append(text))
    return texts


@pytest.mark.parametrize("how", ["resume", "run"])
@pytest.mark.parametrize("name", [None, "z"])
def test_requests_to_the_memory_in_an_appended_message_are_obeyed(memory: Memory, how: str, name: str | None) -> None:
    chat = opened(memory, name=name)
    hooks = default_hooks(memory)
    for text in (REMEMBER, FORGET):
        if text == FORGET:
            chat.append("user", text, name=name)
        loop = AgentLoop(memory, chat, Script(Reply("Ok.")), hooks=hooks, profile="z")
        turn = loop.resume() if how == "resume" else loop.run(text)
        assert turn.text == "Ok."
        assert turn.notices
    assert kept(memory) == ["I love mushrooms"]
    assert [message.role for message in chat.window()] == ["user", "assistant"] * 2
    assert [message.name for message in chat.window() if message.role == "user"] == ["z", "z"]
    (entry,) = memory.project("shop").list()
    assert entry.speaker == "z"
    assert_sound(memory)


def test_the_model_is_told_what_the_hooks_did_and_the_context_is_rebuilt(memory: Memory) -> None:
    chat, model = opened(memory), Script(Reply("Ok."))
    AgentLoop(memory, chat, model, hooks=default_hooks(memory)).resume()
    assert "The memory has stored what the user asks to remember." in repr(model.asked[0])
    (seq,) = [stamp.seq for event, stamp in chat.events() if type(event).__name__ == "ContextShown"]
    assert memory.rebuild(seq).matches
    assert [each.content for each in rerun(chat, Memory()).window()] == [REMEMBER, "Ok."]


def test_hooks_get_an_appended_message_once(memory: Memory) -> None:
    chat, texts = opened(memory, "Hello!"), counted(memory)
    loop = AgentLoop(memory, chat, Failing(Reply("Hi."), failures=2))
    for _ in range(2):
        with pytest.raises(ConnectionError):
            loop.resume()
    assert AgentLoop(memory, chat, Script(Reply("Hi."))).resume().text == "Hi."
    assert texts == ["Hello!"]


@pytest.mark.parametrize("has_hooks", [True, False])
def test_hooks_get_a_message_of_run_once_though_no_context_was_shown(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, has_hooks: bool
) -> None:
    chat, texts = memory.conversation("c"), counted(memory)
    loop = AgentLoop(memory, chat, Script(), hooks=None if has_hooks else Hooks(memory))

    def fail(*_: Any, **__: Any) -> Any:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(Memory, "context", fail)
        with pytest.raises(ConnectionError):
            loop.run("Hello!")
    assert AgentLoop(memory, chat, Script(Reply("Hi."))).resume().text == "Hi."
    assert texts == ["Hello!"]


def test_hooks_that_were_cut_off_get_the_message_again(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(BaseException):
        """The end of a process."""

    def end(*_: Any, **__: Any) -> Any:
        raise Ended

    chat = opened(memory)
    loop = AgentLoop(memory, chat, Script(Reply("Ok.")), hooks=default_hooks(memory))
    with monkeypatch.context() as patch:
        patch.setattr(Conversation, "replace", end)
        with pytest.raises(Ended):
            loop.resume()
    assert loop.resume().text == "Ok."
    assert kept(memory) == ["My gate code is 5512.", "I love mushrooms"]


ANSWERS = """
import sys
from refold import Memory
from refold.agent import AgentLoop, FunctionTool, Reply
from tests.agent.test_loop import Script
with Memory(sys.argv[1]) as memory:
    def hear(context, text):
        with open(sys.argv[2], "a") as file:
            file.write("heard\\n")
    memory.hooks.register("user_message", hear)
    print("ready", flush=True)
    sys.stdin.readline()
    print(AgentLoop(memory, memory.conversation("c"), Script(Reply("Ok."))).resume().stop_reason, flush=True)
"""


def test_the_hooks_of_one_process_get_a_message_that_two_answer(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.conversation("c").append("user", "Hello!")
        arguments = str(tmp_path / "store"), str(tmp_path / "heard")
        with Child(ANSWERS, *arguments) as first, Child(ANSWERS, *arguments) as second:
            for child in (first, second):
                assert child.read() == "ready"
            for child in (first, second):
                child.write("go")
            for child in (first, second):
                child.read()
        assert (tmp_path / "heard").read_text() == "heard\n"
        assert memory.conversation("c").window()[-1].content == "Ok."


def test_what_an_appended_message_asks_not_to_remember_is_withheld(memory: Memory) -> None:
    chat = opened(memory, "Keep this out of your memory: I am pregnant.")
    loop = AgentLoop(memory, chat, Script(Reply("Ok.")), hooks=default_hooks(memory))
    loop.resume()
    assert all(is_withheld(message) for message in chat.window())
    assert "pregnant" not in repr(chat.session.summary())
    loop.end()
    other = memory.conversation("d", project="shop")
    question = "Am I pregnant? What did we talk about last time?"
    other.append("user", question)
    assert "am pregnant" not in repr(memory.context(other, query=question).messages())


@pytest.mark.parametrize("result", [UserMessageResult(stop_reason="no insults"), UserMessageResult(" ")])
def test_an_appended_message_that_a_hook_stops_is_never_shown(memory: Memory, result: UserMessageResult) -> None:
    chat = opened(memory, "You fool!")
    memory.hooks.register("user_message", lambda _, text: result if "fool" in text else None)
    turn = AgentLoop(memory, chat, Script()).resume()
    assert turn.stop_reason == (result.stop_reason or "a hook left nothing of the message")
    assert chat.window() == []
    model = Script(Reply("Hi."))
    assert AgentLoop(memory, chat, model).run("Hello!").text == "Hi."
    assert "fool" not in repr(model.asked)


@pytest.mark.parametrize("is_in_blocks", [True, False])
def test_a_hook_changes_an_appended_message(memory: Memory, is_in_blocks: bool) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    chat = opened(memory, [{"type": "text", "text": "My pin is 77."}, image] if is_in_blocks else "My pin is 77.")
    memory.hooks.register("user_message", lambda _, text: text.replace("77", "[pin]"))
    model = Script(Reply("Ok."))
    AgentLoop(memory, chat, model).resume()
    assert "My pin is [pin]." in repr(model.asked[0])
    assert "77" not in repr(model.asked[0])
    question = chat.window()[0]
    assert (question.metadata or {})["original"] == "My pin is 77."
    assert isinstance(question.content, list) is is_in_blocks
    assert not is_in_blocks or question.content[1] == image  # type: ignore[index]


def test_a_message_that_a_host_has_shown_to_the_hooks_itself_does_not_go_to_them_again(memory: Memory) -> None:
    texts = counted(memory)
    chat = opened(memory, "Hello!", metadata={"refold_injected": {"text": "It is May."}})
    AgentLoop(memory, chat, Script(Reply("Hi."))).resume()
    assert texts == []


def test_without_hooks_an_appended_message_stays_as_it_is(memory: Memory) -> None:
    chat = opened(memory, "Hello!")
    AgentLoop(memory, chat, Script(Reply("Hi."))).resume()
    AgentLoop(memory, chat, Script(Reply("Hi."))).run("Hello again!")
    assert [message.metadata for message in chat.window()] == [None] * 4
    assert all(type(event).__name__ != "MessageReplaced" for event, _ in chat.events())


def test_the_same_words_of_another_user_are_another_message(memory: Memory) -> None:
    chat = opened(memory, "Hello!", name="ann")
    AgentLoop(memory, chat, Script(Reply("Hi.")), user_name="ben").run("Hello!")
    assert [message.name for message in chat.window()] == ["ann", "ben", None]


def test_the_first_context_of_an_erased_message_is_not_made(memory: Memory) -> None:
    chat = opened(memory, "Hello!")

    def erase(_: HookContext, text: str) -> str:
        memory.erase([chat.window()[0].seq])
        return text.upper()

    memory.hooks.register("user_message", erase)
    turn = AgentLoop(memory, chat, Script()).resume()
    assert turn.stop_reason is not None
    assert [message.content for message in chat.window()] == [None]


@pytest.mark.parametrize("how", ["resume", "run", "run another"])
def test_every_message_without_an_answer_goes_to_the_hooks(memory: Memory, how: str) -> None:
    chat, texts = opened(memory), counted(memory)
    chat.append("user", FORGET)
    chat.append("user", "And hello!")
    hooks = default_hooks(memory)
    loop = AgentLoop(memory, chat, Script(Reply("Ok.")), hooks=hooks)
    turn = loop.resume() if how == "resume" else loop.run("And hello!" if how == "run" else "Anybody?")
    assert turn.text == "Ok."
    assert kept(memory) == ["I love mushrooms"]
    assert texts == [REMEMBER, FORGET, "And hello!", *(["Anybody?"] if how == "run another" else [])]


def test_another_message_comes_after_one_that_a_hook_stops(memory: Memory) -> None:
    chat, model = opened(memory, "You fool!"), Script(Reply("Hi."))
    stop = UserMessageResult(stop_reason="no insults")
    memory.hooks.register("user_message", lambda _, text: stop if "fool" in text else None)
    turn = AgentLoop(memory, chat, model).run("Hello!")
    assert (turn.text, turn.notices) == ("Hi.", ())
    assert "fool" not in repr(model.asked)


def appending(memory: Memory, chat: Conversation, *texts: str) -> None:
    """Register a tool while which a front end appends messages."""

    def look(*_: Any) -> str:
        for text in texts:
            chat.append("user", text)
        return "in stock"

    memory.tools.register(FunctionTool("look", "d", {}, look))


def test_the_hooks_get_a_message_that_came_while_a_tool_ran_before_the_next_step_shows_it(memory: Memory) -> None:
    memory.project("shop").add("My gate code is 5512.")
    chat, texts = memory.conversation("c", project="shop"), counted(memory)
    hooks, model = default_hooks(memory), Script(call("look"), call("look", "c2"), Reply("In stock. Noted."))
    appending(memory, chat, REMEMBER, FORGET)
    turn = AgentLoop(memory, chat, model, hooks=hooks).run("Is the lamp in stock?")
    assert turn.text == "In stock. Noted."
    assert len(turn.notices) == 4
    assert texts == ["Is the lamp in stock?", *[REMEMBER, FORGET] * 2]
    assert kept(memory) == ["I love mushrooms"]
    assert "As the user asks, the memory has forgotten 1 memory." in repr(model.asked[1])
    assert AgentLoop(memory, chat, Script(Reply("Bye.")), hooks=hooks).run("Thanks.").text == "Bye."
    assert texts[5:] == ["Thanks."]
    assert all(memory.rebuild(each.seq).matches for event, each in chat.events() if type(event) is ContextShown)
    assert_sound(memory)


def test_a_reply_to_a_message_that_is_not_to_be_remembered_is_withheld_in_any_turn(memory: Memory) -> None:
    chat = memory.conversation("c", project="shop")
    hooks = default_hooks(memory)
    appending(memory, chat, "Keep this out of your memory: I am pregnant.")
    model = Script(call("look"), Reply("Congratulations on being pregnant!"))
    AgentLoop(memory, chat, model, hooks=hooks).run("Is the lamp in stock?")
    about = [message for message in chat.window() if "pregnant" in str(message.content)]
    assert [(message.role, is_withheld(message)) for message in about] == [("user", True), ("assistant", True)]


def test_a_step_does_not_show_what_a_hook_stops(memory: Memory) -> None:
    chat, model = memory.conversation("c"), Script(call("look"), Reply("In stock."))
    stop = UserMessageResult(stop_reason="no insults")
    memory.hooks.register("user_message", lambda _, text: stop if "fool" in text else None)
    appending(memory, chat, "You fool!")
    assert AgentLoop(memory, chat, model).run("Is the lamp in stock?").text == "In stock."
    assert "fool" not in repr(model.asked)
    assert unanswered_message(chat) is None


@pytest.mark.parametrize("verb", ["context", "show"])
@pytest.mark.parametrize("has_hooks", [True, False])
def test_a_message_that_comes_while_a_context_is_made_is_heard_and_shown(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, verb: str, has_hooks: bool
) -> None:
    chat, texts = memory.conversation("c"), counted(memory)
    make, later = getattr(Memory, verb), ["Hello?", "Anybody?"]

    def append(self: Memory, *arguments: Any, **options: Any) -> Any:
        if later:
            chat.append("user", later.pop(0))
        return make(self, *arguments, **options)

    model = Script(Reply("Hi."))
    with monkeypatch.context() as patch:
        patch.setattr(Memory, verb, append)
        AgentLoop(memory, chat, model, hooks=None if has_hooks else Hooks(memory)).run("Hello!")
    assert texts == (["Hello!", "Hello?", "Anybody?"] if has_hooks else [])
    assert all(text in repr(model.asked[0]) for text in ("Hello!", "Hello?", "Anybody?"))
    assert unanswered_message(chat) is None
    assert [message.role for message in chat.window()] == ["user"] * 3 + ["assistant"]
