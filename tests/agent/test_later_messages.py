"""Messages that come while a model thinks: the answer is not theirs, and each of them gets one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import Conversation, InvalidInput, Memory
from refold.agent import AgentLoop, FunctionTool, Reply, rerun
from refold.agent.loop import UNSHOWN, unanswered_message
from tests.agent.test_loop import Script, call
from tests.support.memories import Child, assert_sound

GRAZ, LINZ, WIEN = "Ship my lamp to Graz.", "Stop, ship it to Linz!", "No, to Wien."


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let loops know as little of each other's turns as in two processes."""
    monkeypatch.setattr("refold.agent.loop.run_alone", lambda _chat, _texts, _is_cancelled, work: work())


class Interrupted(Script):
    """A model that something happens to while it thinks, at each call but those after the last of them."""

    def __init__(self, meanwhile: list[Callable[[], object]], *replies: Reply) -> None:
        super().__init__(*replies)
        self.meanwhile = meanwhile

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return super().reply(messages, tools)


def ship(*_: Any) -> str:
    return "shipped " * 10


def said(chat: Conversation) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in chat.window()]


def heard(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """What a model was told, without parts of the context."""
    texts = [(each["role"], each["content"] or "") for each in messages if each["role"] != "system"]
    return [(role, text.rpartition("\n")[2]) for role, text in texts]


def interrupted(memory: Memory, later: str = LINZ, **opening: Any) -> Conversation:
    """A conversation that got a message while the model answered the one before."""
    chat = memory.conversation("c", **opening)
    model = Interrupted([lambda: chat.append("user", later)], Reply("It goes to Graz."))
    turn = AgentLoop(memory, chat, model).run(GRAZ)
    assert turn.text == "It goes to Graz."
    assert turn.notices == (f"message {chat.window()[-2].seq} ({later!r}) came meanwhile; resume() goes on with it",)
    return chat


def rebuilt(memory: Memory) -> None:
    shown = [stamp.seq for event, stamp in memory.events() if type(event).__name__ == "ContextShown"]
    assert shown
    assert all(memory.rebuild(seq).matches for seq in shown)


def test_a_message_that_came_while_the_model_thought_waits_for_its_own_answer(memory: Memory) -> None:
    chat = interrupted(memory)
    message = unanswered_message(chat)
    assert message is not None
    assert message.content == LINZ
    model = Script(Reply("It goes to Linz."))
    assert AgentLoop(memory, chat, model).resume().text == "It goes to Linz."
    assert heard(model.asked[0]) == [("user", GRAZ), ("assistant", "It goes to Graz."), ("user", LINZ)]
    assert unanswered_message(chat) is None
    with pytest.raises(InvalidInput, match="waits for no answer"):
        AgentLoop(memory, chat, model).resume()
    model = Script(Reply("Welcome."))
    AgentLoop(memory, chat, model).run("Thanks.")
    assert heard(model.asked[0])[1:4] == [
        ("assistant", "It goes to Graz."),
        ("user", LINZ),
        ("assistant", "It goes to Linz."),
    ], "the order stays"
    rebuilt(memory)
    assert_sound(memory)


@pytest.mark.usefixtures("apart")
def test_two_messages_at_once_get_one_answer_each(memory: Memory) -> None:
    chat = memory.conversation("c")
    later: list[Any] = []
    first = Interrupted([], Reply("It goes to Graz."))
    second = Interrupted([], Reply("It goes to Linz."))

    def write_again() -> None:
        later.append(AgentLoop(memory, chat, second).run(LINZ))

    first.meanwhile.append(write_again)
    turn = AgentLoop(memory, chat, first).run(GRAZ)
    assert (turn.text, turn.stop_reason) == ("It goes to Graz.", None)
    assert (later[0].text, later[0].stop_reason) == ("It goes to Linz.", None)
    assert unanswered_message(chat) is None
    AgentLoop(memory, chat, last := Script(Reply("Yes."))).run("Both?")
    assert [text for _, text in heard(last.asked[0])] == [GRAZ, "It goes to Graz.", LINZ, "It goes to Linz.", "Both?"]
    rebuilt(memory)


def answer_both(memory: Memory, chat: Conversation) -> None:
    """Append a message, and let another loop answer it and the one before."""
    chat.append("user", LINZ)
    assert AgentLoop(memory, chat, Script(Reply("To Linz, not to Graz."))).resume().text == "To Linz, not to Graz."


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("has_more", [True, False])
def test_a_model_is_not_asked_again_once_another_loop_has_answered(memory: Memory, has_more: bool) -> None:
    chat = memory.conversation("c")

    def answer(*_: Any) -> str:
        answer_both(memory, chat)
        if has_more:
            chat.append("user", WIEN)
        return "shipped"

    memory.tools.register(FunctionTool("ship", "d", {}, answer))
    model = Script(call("ship"), Reply("It goes to Graz."))
    turn = AgentLoop(memory, chat, model).run(GRAZ)
    assert turn.stop_reason is not None
    assert turn.stop_reason.startswith("the message was answered")
    assert len(model.asked) == 1
    assert [content for role, content in said(chat) if role == "assistant"] == [None, "To Linz, not to Graz."]
    later = unanswered_message(chat)
    assert (later is not None and later.content == WIEN) is has_more
    for form in ("anthropic", "gemini", "openai", "ollama"):
        last = memory.context(chat).messages(form)[-1]["role"]
        assert not has_more or last == "user"
    rebuilt(memory)
    assert_sound(memory)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("saw_both", [True, False])
def test_a_reply_is_no_second_answer_to_what_its_model_saw(memory: Memory, saw_both: bool) -> None:
    chat = memory.conversation("c")
    other = Script(Reply("To Linz, not to Graz."))

    def append(*_: Any) -> str:
        chat.append("user", LINZ)
        return "shipped"

    def answer() -> None:
        if not saw_both:
            append()
        assert AgentLoop(memory, chat, other).resume().text == "To Linz, not to Graz."

    memory.tools.register(FunctionTool("ship", "d", {}, append))
    first = [call("ship")] if saw_both else []
    model = Interrupted([*([lambda: None] if saw_both else []), answer], *first, Reply("It goes to Graz."))
    turn = AgentLoop(memory, chat, model).run(GRAZ)
    assert (turn.stop_reason is not None) is saw_both
    answers = [content for role, content in said(chat) if role == "assistant" and content]
    assert answers == ["To Linz, not to Graz.", *([] if saw_both else ["It goes to Graz."])]
    assert unanswered_message(chat) is None
    shown = [text for role, text in heard(memory.context(chat).messages()) if role in ("user", "assistant") and text]
    answer_of_both = [GRAZ, LINZ, "To Linz, not to Graz."]
    assert shown == (answer_of_both if saw_both else [GRAZ, "It goes to Graz.", LINZ, "To Linz, not to Graz."])
    rebuilt(memory)


@pytest.mark.usefixtures("apart")
def test_the_first_answer_does_not_end_the_turn_of_the_second_message(memory: Memory) -> None:
    chat = memory.conversation("c")
    first = AgentLoop(memory, chat, Interrupted([lambda: chat.append("user", LINZ)], Reply("It goes to Graz.")))
    second = AgentLoop(memory, chat, Interrupted([lambda: first.run(GRAZ)], Reply("It goes to Linz.")))
    chat.append("user", GRAZ)
    # The second loop has the first question, too, and its model has not seen the later message either.
    assert second.resume().stop_reason is not None
    model = Script(Reply("It goes to Linz."))
    assert AgentLoop(memory, chat, model).resume().text == "It goes to Linz."
    assert said(chat)[-1] == ("assistant", "It goes to Linz.")
    assert unanswered_message(chat) is None


TYPES_LINZ = """
import sys
from refold import Memory
from refold.agent import AgentLoop, Reply

class Waiting:
    def reply(self, messages, tools):
        print("asked", flush=True)
        sys.stdin.readline()
        return Reply("It goes to Linz.")

with Memory(sys.argv[1]) as memory:
    turn = AgentLoop(memory, memory.conversation("c"), Waiting()).run("Stop, ship it to Linz!")
    print(turn.text, turn.stop_reason, flush=True)
"""


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("is_late", [True, False])
def test_a_reply_answers_what_its_own_model_saw_whatever_other_loops_show(memory: Memory, is_late: bool) -> None:
    chat = memory.conversation("c")

    def stop(*_: Any) -> str:
        chat.append("user", LINZ)
        if not is_late:
            raise KeyboardInterrupt
        return "shipped"

    def resume() -> None:
        """Call a tool for the first message, and die: in the tool, or when the second step has shown the later one."""
        end = Interrupted([lambda: None, lambda: end.asked[9]], call("ship"))
        with pytest.raises((KeyboardInterrupt, IndexError)):
            AgentLoop(memory, chat, end).resume()

    memory.tools.register(FunctionTool("ship", "d", {}, stop))
    model = Interrupted([resume], Reply("It goes to Graz."))
    turn = AgentLoop(memory, chat, model).run(GRAZ)
    later = unanswered_message(chat)
    assert later is not None
    assert later.content == LINZ
    assert turn.notices == (f"message {later.seq} ({LINZ!r}) came meanwhile; resume() goes on with it",)
    answer = next(message for message in chat.window() if message.content == "It goes to Graz.")
    own = memory.rebuild(answer.seq)
    assert own.matches
    assert [message.content for message in own.context.window] == [GRAZ]
    assert [step.seq for step in memory.why(answer).of("source")][:1] == [own.seq]
    assert [step.seq for step in memory.why(answer).of("cause")] == [chat.window()[0].seq]
    assert answer.seq not in [each.answer for each in memory.influence(later).turns]
    assert answer.seq in [each.answer for each in memory.influence(chat.window()[0]).turns]
    last = Script(Reply("It goes to Linz."))
    assert AgentLoop(memory, chat, last).resume().text == "It goes to Linz."
    roles = [role for role, _ in heard(last.asked[0])]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert unanswered_message(chat) is None
    rebuilt(memory)
    assert_sound(memory)


def test_two_processes_answer_one_message_each(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("c")
        children: list[Child] = []

        def write_again() -> None:
            children.append(Child(TYPES_LINZ, str(tmp_path / "store")).__enter__())
            assert children[0].read() == "asked"

        turn = AgentLoop(memory, chat, Interrupted([write_again], Reply("It goes to Graz."))).run(GRAZ)
        assert (turn.text, turn.stop_reason) == ("It goes to Graz.", None)
        children[0].write("go")
        assert children[0].read() == "It goes to Linz. None"
        children[0].__exit__(None, None, None)
        assert [role for role, _ in said(chat)] == ["user", "user", "assistant", "assistant"]
        assert unanswered_message(chat) is None
        rebuilt(memory)


def test_what_a_later_step_of_the_turn_showed_is_answered(memory: Memory) -> None:
    chat = memory.conversation("c")
    memory.tools.register(FunctionTool("ship", "d", {}, ship))
    model = Interrupted([lambda: chat.append("user", LINZ)], call("ship"), Reply("It goes to Linz."))
    assert AgentLoop(memory, chat, model).run(GRAZ).text == "It goes to Linz."
    assert ("user", LINZ) in heard(model.asked[1])
    assert unanswered_message(chat) is None


def test_an_answer_that_the_host_appends_answers_all_before_it(memory: Memory) -> None:
    chat = interrupted(memory)
    chat.append("assistant", "Both noted.")
    assert unanswered_message(chat) is None
    other = memory.conversation("d")
    other.append("user", GRAZ)
    memory.show(memory.context(other))
    other.append("user", LINZ)
    other.append("assistant", "Both noted.")
    assert unanswered_message(other) is None


def test_an_answer_of_the_host_can_say_which_context_its_model_was_shown(memory: Memory) -> None:
    chat = memory.conversation("c")
    chat.append("user", GRAZ)
    shown = memory.show(memory.context(chat))
    later = chat.append("user", LINZ)
    with memory.acting("assistant", cause=shown):
        chat.append("assistant", "It goes to Graz.")
    assert unanswered_message(chat) == later
    assert [text for _, text in heard(memory.context(chat).messages())] == [GRAZ, "It goes to Graz.", LINZ]


LOG = "GET /parcels 200 OK in 12 ms. " * 400


def test_a_long_message_takes_no_room_from_the_turn_that_it_came_in(memory: Memory) -> None:
    chat, results = memory.conversation("c"), [LOG[:6_000], "Linz"]
    chat.append("user", "What do we ship?")
    chat.append("assistant", "Lamps. " * 200)

    def look(*_: Any) -> str:
        if len(results) == 1:
            chat.append("user", f"A log: {LOG}")
        return results.pop(0)

    memory.tools.register(FunctionTool("look", "d", {}, look))
    model = Script(call("look"), call("look"), Reply("To Linz."))
    turn = AgentLoop(memory, chat, model, budget=5_000).run(LINZ)
    assert [text[:6] for _, text in heard(model.asked[2])] == [LINZ[:6], "", "Linz", "A log:"]
    assert turn.notices == ()
    rebuilt(memory)


def test_a_model_is_not_asked_when_its_last_calls_have_no_room(memory: Memory) -> None:
    chat = memory.conversation("c")

    def read(*_: Any) -> str:
        chat.append("user", f"A log: {LOG}")
        return LOG

    memory.tools.register(FunctionTool("ship", "d", {}, read))
    model = Script(call("ship"), Reply("To Linz."))
    turn = AgentLoop(memory, chat, model, budget=6_500).run(LINZ)
    assert (turn.text, turn.stop_reason) == ("", UNSHOWN)
    assert len(model.asked) == 1
    assert AgentLoop(memory, chat, model, budget=15_000).resume().text == "To Linz."
    assert LOG in str(model.asked[1])


def test_a_turn_names_the_messages_that_its_context_had_no_room_for(memory: Memory) -> None:
    chat = memory.conversation("c")
    logs = [f"{LINZ} Here is the log: {LOG}", f"And the other one: {LOG}"]
    first = Interrupted([lambda: [chat.append("user", log) for log in logs]], Reply("It goes to Graz."))
    AgentLoop(memory, chat, first, budget=6_000).run(GRAZ)
    turn = AgentLoop(memory, chat, model := Script(Reply("I have read it.")), budget=6_000).resume()
    left_out, shown = [message for message in chat.window() if message.content in logs]
    assert [text for role, text in heard(model.asked[0]) if role == "user"][-1] == shown.content
    assert turn.notices == (
        f"message {left_out.seq} ({logs[0][:57] + '...'!r}) did not fit the context of this answer; raise the budget",
    )
    rebuilt(memory)


def test_a_third_message_answers_for_the_open_one_and_says_so(memory: Memory) -> None:
    chat = interrupted(memory)
    model = Script(Reply("It goes to Wien."))
    turn = AgentLoop(memory, chat, model).run(WIEN)
    message = chat.window()[1]
    assert turn.notices == (f"message {message.seq} ({LINZ!r}) has no answer; resume() would have gone on with it",)
    assert [text for _, text in heard(model.asked[0])] == [GRAZ, "It goes to Graz.", LINZ, WIEN]
    assert unanswered_message(chat) is None


def test_the_same_text_again_goes_on_with_the_open_message(memory: Memory) -> None:
    chat = interrupted(memory)
    assert AgentLoop(memory, chat, Script(Reply("It goes to Linz."))).run(LINZ).text == "It goes to Linz."
    assert [text for role, text in said(chat) if role == "user"] == [GRAZ, LINZ]


def test_the_same_words_twice_are_two_messages(memory: Memory) -> None:
    chat = interrupted(memory, GRAZ)
    message = unanswered_message(chat)
    assert message is not None
    assert message.seq == chat.window()[1].seq


def test_calls_for_the_later_message_stay_behind_it(memory: Memory) -> None:
    chat = interrupted(memory)
    memory.tools.register(FunctionTool("ship", "d", {}, ship))
    model = Script(call("ship"), Reply("It goes to Linz."))
    AgentLoop(memory, chat, model).resume()
    assert [role for role, _ in heard(model.asked[1])] == ["user", "assistant", "user", "assistant", "tool"]
    rebuilt(memory)


def test_a_session_ends_with_the_later_message_open(memory: Memory) -> None:
    chat = interrupted(memory)
    summary = AgentLoop(memory, chat, Script()).end()
    assert not summary.success
    assert summary.stop_reason == "the user's last message has no answer"


@pytest.mark.parametrize("is_taken_back", [True, False])
def test_a_later_message_that_is_gone_is_not_open(memory: Memory, is_taken_back: bool) -> None:
    chat = interrupted(memory)
    message = chat.window()[1]
    if is_taken_back:
        chat.remove(message)
    else:
        memory.erase([message.seq])
    assert unanswered_message(chat) is None


def test_the_later_message_stays_open_when_what_was_said_before_is_erased(memory: Memory) -> None:
    chat = interrupted(memory)
    question, later, answer = chat.window()
    memory.erase([question.seq, answer.seq])
    message = unanswered_message(chat)
    assert message is not None
    assert message.id == later.id


def test_the_later_message_is_open_in_forks_and_branches_and_after_a_restore(memory: Memory) -> None:
    chat = interrupted(memory)
    head, later = memory.head, chat.window()[1]
    places = [chat.fork("d"), memory.fork("b").conversation("c"), chat.at(head)]
    AgentLoop(memory, chat, Script(Reply("It goes to Linz."))).resume()
    places.append(chat.fork("e", at=head))
    chat.restore(chat.at(head).snapshot())
    for place in (*places, chat):
        message = unanswered_message(place)
        assert message is not None
        assert message.id == later.id
    model = Script(Reply("It goes to Linz."))
    assert AgentLoop(memory, places[0], model).resume().text == "It goes to Linz."
    assert [role for role, _ in heard(model.asked[0])] == ["user", "assistant", "user"]
    assert unanswered_message(places[0]) is None
    branch = memory.fork("b")
    AgentLoop(branch, branch.conversation("c"), model := Script(Reply("It goes to Linz."))).resume()
    assert [role for role, _ in heard(model.asked[0])] == ["user", "assistant", "user"]
    assert unanswered_message(branch.conversation("c")) is None
    rebuilt(memory)


@pytest.mark.parametrize("opening", [{}, {"window_tokens": 60}, {"window_tokens": 24}])
@pytest.mark.parametrize("pinned", [True, False])
def test_the_later_message_is_open_after_it_left_the_window(
    memory: Memory,
    opening: dict[str, Any],
    pinned: bool,
) -> None:
    chat = memory.conversation("c", **opening)
    if pinned:
        chat.unpin(chat.append("user", "Hi.", pinned=True))
        chat.append("assistant", "Hi!")
    longer = Reply("It goes to Graz, and " + "as soon as we can " * 3)
    AgentLoop(memory, chat, Interrupted([lambda: chat.append("user", LINZ)], longer)).run(GRAZ)
    message = unanswered_message(chat)
    assert message is not None
    assert message.content == LINZ
    model = Script(Reply("It goes to Linz."))
    assert AgentLoop(memory, chat, model).resume().text == "It goes to Linz."
    assert heard(model.asked[0])[-1] == ("user", LINZ)
    assert unanswered_message(chat) is None
    rebuilt(memory)


def test_a_window_of_nothing_but_the_end_of_an_answered_turn_waits_for_nothing(memory: Memory) -> None:
    chat = memory.conversation("c", window_tokens=60)
    memory.tools.register(FunctionTool("ship", "d", {}, ship))
    steps = [call("ship", f"c{number}") for number in range(6)]
    AgentLoop(memory, chat, Script(*steps, Reply("It goes to Graz."))).run(GRAZ)
    assert all(message.role != "user" for message in chat.window())
    assert unanswered_message(chat) is None
    chat.append("tool", "late", tool_call_id="c9")
    assert unanswered_message(chat) is None


def test_providers_get_a_message_of_the_user_last(memory: Memory) -> None:
    context = memory.context(interrupted(memory))
    for form, roles in {
        "anthropic": ["user", "assistant", "user"],
        "gemini": ["user", "model", "user"],
        "openai": ["user", "assistant", "user"],
        "ollama": ["user", "assistant", "user"],
    }.items():
        rendered = context.messages(form)
        assert [each["role"] for each in rendered if each["role"] != "system"] == roles


def test_a_rerun_answers_the_later_message_again(memory: Memory) -> None:
    chat = interrupted(memory)
    AgentLoop(memory, chat, Script(Reply("It goes to Linz."))).resume()
    again = rerun(chat, Memory())
    assert said(again) == said(chat)
    assert unanswered_message(again) is None
    assert_sound(memory)


def test_a_loaded_export_has_the_later_message_open(memory: Memory, tmp_path: Path) -> None:
    for number in range(3):
        memory.conversation("other").append("user", f"Filler {number}.")
    chat = interrupted(memory)
    memory.export(tmp_path / "export.jsonl")
    with Memory() as other:
        other.conversation("before").append("user", "Hello.")
        other.load(tmp_path / "export.jsonl")
        message = unanswered_message(other.conversation("c"))
        assert message is not None
        assert message.content == chat.window()[1].content
        rebuilt(other)
