"""Turns that are longer than the window: whatever was evicted, the model is shown what it was asked."""

import json
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold import Conversation, InvalidInput, LimitExceeded, Memory, NotFound
from refold.agent import (
    AfterToolResult,
    AgentLoop,
    Call,
    FunctionTool,
    Reply,
    UserMessageResult,
    default_hooks,
    rerun,
)
from refold.agent.loop import TOO_LONG, UNSEEN, unanswered_message
from refold.memory.wires import FORMATS
from refold.message import messages_of
from refold.views.session import ContextShown
from refold.views.window import POLICIES
from tests.agent.test_loop import Script, call, described, ids
from tests.skills.test_sessions import skills_below
from tests.support.memories import Clock, assert_sound

TASK = "Please fetch the pages one to eight, and tell me which one names Zanzibar."
PAGE = "lorem ipsum dolor " * 90


class Fetching:
    """A model that fetches page after page, and fails at one of its replies."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.asked: list[list[dict[str, Any]]] = []
        self.fails_at = fails_at

    def reply(self, messages: list[dict[str, Any]], _: object) -> Reply:
        self.asked.append(messages)
        number = len(self.asked)
        if number == self.fails_at:
            raise ConnectionError("the model is away")
        return call("fetch", f"c{number}", n=number) if number < 9 else Reply("Page seven.")


def fetching(memory: Memory, model: Any, **options: Any) -> AgentLoop:
    memory.tools.register(FunctionTool("fetch", "d", {}, lambda given, _: f"page {given['n']} {PAGE}"))
    chat = memory.conversation("c", project="p", window_tokens=2_000, **options)
    return AgentLoop(memory, chat, model, steps_count_max=100)


def shown_seqs(chat: Conversation) -> list[int]:
    return [stamp.seq for event, stamp in chat.events() if isinstance(event, ContextShown)]


@pytest.mark.parametrize("eviction", POLICIES)
def test_every_context_of_a_long_turn_shows_the_question_in_every_form(memory: Memory, eviction: str) -> None:
    model = Fetching()
    loop = fetching(memory, model, eviction=eviction)
    assert loop.run(TASK).text == "Page seven."
    assert TASK not in [message.content for message in loop.chat.window()], "the turn is longer than the window"
    for messages in model.asked:
        assert [message["content"] for message in messages if message["role"] == "user"] == [TASK]
        assert "Zanzibar" not in messages[0]["content"]
    for seq in shown_seqs(loop.chat):
        rebuilt = memory.rebuild(seq)
        assert rebuilt.matches
        for form in FORMATS:
            messages = rebuilt.context.messages(form)
            first = next(message for message in messages if message.get("role") != "system")
            assert first["role"] == "user"
            assert json.dumps(messages).count("Zanzibar") == 1


def test_each_step_of_a_long_turn_reads_only_what_is_new(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, read = list[int](), messages_of
    looks = 0

    def counted(recorded: Any) -> Any:
        nonlocal looks
        looks += 1
        return read(recorded)

    class Looking:
        def reply(self, _: object, __: object) -> Reply:
            counts.append(looks)
            return call("fetch", f"c{len(counts)}", n=len(counts)) if len(counts) < 91 else Reply("Page seven.")

    monkeypatch.setattr("refold.memory.turns.messages_of", counted)
    assert fetching(memory, Looking()).run(TASK).text == "Page seven."
    assert counts[-1] > 90, "the question has left the window"
    assert counts[-1] - counts[-31] <= 1.2 * (counts[-31] - counts[-61])


@pytest.mark.parametrize("again", ["resume", "run"])
def test_a_long_turn_that_failed_goes_on_with_its_question(memory: Memory, again: str) -> None:
    model = Fetching(fails_at=8)
    loop = fetching(memory, model)
    with pytest.raises(ConnectionError):
        loop.run(TASK)
    other = AgentLoop(memory, loop.chat, model)
    assert (other.resume() if again == "resume" else other.run(TASK)).text == "Page seven."
    assert [message.content for message in loop.chat.history() if message.role == "user"] == [TASK]
    with pytest.raises(InvalidInput, match="waits for no answer"):
        other.resume()


def test_a_long_turn_that_stays_without_an_answer_is_named_by_the_next(memory: Memory) -> None:
    loop = fetching(memory, Fetching(fails_at=8))
    with pytest.raises(ConnectionError):
        loop.run(TASK)
    turn = AgentLoop(memory, loop.chat, Script(Reply("Hello!"))).run("Hello?")
    assert f"({TASK[:20]}" in turn.notices[0].replace("'", "")
    assert "has no answer" in turn.notices[0]


def test_a_long_turn_runs_again_event_for_event() -> None:
    with Memory(clock_ns=Clock(), random_bytes=ids()) as live, Memory(clock_ns=Clock(), random_bytes=ids()) as other:
        loop = fetching(live, Fetching(fails_at=8))
        with pytest.raises(ConnectionError):
            loop.run(TASK)
        loop.resume()
        assert described(rerun(loop.chat, other)) == described(loop.chat)
        assert other.state_hash() == live.state_hash()


def test_what_hooks_attached_to_the_question_is_shown_as_long_as_the_question(memory: Memory) -> None:
    attached = UserMessageResult(injected_context="The user is in a hurry.", skills=(("reader", "Skim.", 5.0),))
    memory.hooks.register("user_message", lambda *_: attached)
    model = Fetching()
    fetching(memory, model).run(TASK)
    for asked in model.asked:
        assert str(asked).count("The user is in a hurry.") == 1
        assert asked[0]["content"].count("[skill:reader]") == 1


def test_the_skills_of_the_question_restrict_the_tools_of_another_loop_late_in_the_turn(tmp_path: Path) -> None:
    text = "---\nname: deploy\ndescription: About deploy.\nallowed-tools: fetch\n---\nBody\n"
    wiped: list[int] = []
    with Memory() as memory:
        default_hooks(memory, skills_below(memory, tmp_path, deploy=text))
        memory.tools.register(FunctionTool("Wipe", "d", {}, lambda *_: wiped.append(1)))
        loop = fetching(memory, Fetching(fails_at=8))
        with pytest.raises(ConnectionError):
            loop.run("deploy it")
        AgentLoop(memory, loop.chat, Script(call("Wipe"), Reply("Well."))).resume()
        assert "forbidden: the active skills allow" in str(loop.chat.window()[-2].content)
        assert wiped == []


def test_erasing_the_question_reaches_what_a_tool_wrote_late_in_the_turn(memory: Memory) -> None:
    replies = [call("fetch", f"c{number}", n=number) for number in range(8)]
    model = Script(*replies, call("memory_add", content="The user likes Zanzibar."), Reply("Noted."))
    loop = fetching(memory, model)
    loop.run(TASK)
    assert [entry.content for entry in memory.project("p").list()] == ["The user likes Zanzibar."]
    shown = shown_seqs(loop.chat)
    (question,) = [message for message in loop.chat.history() if message.role == "user"]
    memory.erase([question])
    assert memory.project("p").list() == []
    for seq in shown:
        with pytest.raises(NotFound, match="was erased"):
            memory.rebuild(seq)
    assert_sound(memory)


def test_a_context_that_shows_an_evicted_question_is_one_of_those_that_showed_it(memory: Memory) -> None:
    loop = fetching(memory, Fetching())
    loop.run(TASK)
    (question,) = [message for message in loop.chat.history() if message.role == "user"]
    last = shown_seqs(loop.chat)[-1]
    assert [turn.seen for turn in memory.influence(question).turns if turn.seen][-1] == last
    reasons = [str(reason) for reason in memory.why(question, missing_from=last).of("shown")]
    assert any(f"the context at seq {last} shows it in its part window" in reason for reason in reasons)


def test_a_result_that_leaves_no_room_for_the_question_is_an_error_to_the_model(memory: Memory) -> None:
    question = "word " * 500
    memory.tools.register(FunctionTool("fetch", "d", {}, lambda *_: "page " * 700))
    chat = memory.conversation("c", window_tokens=1_000)
    model = Script(call("fetch"), Reply("Too much."))
    assert AgentLoop(memory, chat, model, budget=1_100).run(question).text == "Too much."
    assert "which do not fit the window; ask for less" in model.asked[-1][-1]["content"]
    assert [message["content"] for message in model.asked[-1] if message["role"] == "user"] == [question]


@pytest.mark.parametrize("request_id", [None, "r1"])
def test_calls_that_do_not_fit_the_window_are_not_made(memory: Memory, request_id: str | None) -> None:
    sent: list[Any] = []

    def send(given: dict[str, Any], _: Any) -> str:
        sent.append(given)
        return "sent"

    memory.tools.register(FunctionTool("send", "d", {}, send))
    long = call("send", body="x " * 2_000)
    chat = memory.conversation("c", window_tokens=300)
    loop = AgentLoop(memory, chat, Script(long, long, long, Reply("Sent.")))
    for _ in range(2):
        turn = loop.run("Send the x.", request_id=request_id)
        assert (turn.text, turn.steps, turn.stop_reason, sent) == ("", 1, TOO_LONG, [])
        assert [message.role for message in chat.history()] == ["user"]
    chat.set_window_tokens(5_000)
    assert loop.resume().text == "Sent."
    assert len(sent) == 1
    assert_sound(memory)


@pytest.mark.parametrize("eviction", ["fifo", "least-recalled", "least-important", "fifo-recall", "summary"])
def test_calls_of_one_reply_keep_room_for_all_their_results(memory: Memory, eviction: str) -> None:
    made: list[Any] = []

    def dump(given: dict[str, Any], _: Any) -> str:
        made.append(given)
        return "word " * 120

    memory.tools.register(FunctionTool("dump", "d", {}, dump))
    calls = tuple(Call(f"k{number}", "dump", json.dumps({"a": number})) for number in range(6))
    chat = memory.conversation("c", window_tokens=400 if eviction == "fifo-recall" else 200, eviction=eviction)
    model = Script(Reply(None, calls), Reply("Done."))
    assert AgentLoop(memory, chat, model).run("Dump all.").text == "Done."
    assert [message.get("tool_call_id") for message in model.asked[-1][-6:]] == [each.id for each in calls]
    assert len(made) == 6
    assert_sound(memory)


@pytest.mark.parametrize("request_id", [None, "r1"])
def test_calls_that_left_the_window_are_not_made_again(memory: Memory, request_id: str | None) -> None:
    chat, made = memory.conversation("c", window_tokens=1_000), list[Any]()

    def shrink(given: dict[str, Any], _: Any) -> str:
        made.append(given)
        chat.set_window_tokens(50)
        return "done"

    memory.tools.register(FunctionTool("shrink", "d", {}, shrink))
    loop = AgentLoop(memory, chat, Script(call("shrink", body="x " * 300), Reply("Done.")))
    for steps in (1, 0, 0):
        turn = loop.run("Shrink it.", request_id=request_id)
        assert (turn.text, turn.steps, turn.stop_reason) == ("", steps, UNSEEN)
    assert len(made) == 1


def test_calls_that_the_host_took_out_are_made_again(memory: Memory) -> None:
    chat = memory.conversation("c")
    memory.tools.register(FunctionTool("look", "d", {}, lambda *_: "seen"))
    memory.hooks.register("after_tool", lambda *_: AfterToolResult(block_reason="not now"))
    assert AgentLoop(memory, chat, Script(call("look"))).run("Look.").stop_reason == "not now"
    chat.remove(chat.window()[1])
    assert AgentLoop(memory, chat, Script(Reply("Seen."))).resume().text == "Seen."


def test_an_answer_that_does_not_fit_the_window_leaves_no_open_question(memory: Memory) -> None:
    chat, model = memory.conversation("c", window_tokens=200), Script(Reply("word " * 500), Reply("Fine."))
    loop = AgentLoop(memory, chat, model)
    chat.append("user", "Hi.")
    chat.append("assistant", "Hello.")
    answer = loop.run("Tell me all.", request_id="r1")
    assert loop.run("Tell me all.", request_id="r1").text == answer.text == "word " * 500
    assert unanswered_message(chat) is None
    assert chat.window() == []
    assert loop.run("And how are you?").text == "Fine."
    assert not any("Tell me all." in message["content"] for message in model.asked[-1] if message["role"] == "user")
    chat.append("user", "Again?")
    chat.append("assistant", "word " * 500)
    assert unanswered_message(chat) is None
    assert_sound(memory)


# What a question is, in random conversations.


class Said(NamedTuple):
    """A message as the model of a conversation knows it."""

    id: str
    kind: str
    text: str


SAYING = ("question", "answer", "call", "system")
EDITING = ("pin", "unpin", "remove", "pop", "edit", "clear", "resize", "take", "restore", "import", "fork", "recall")
WORK = st.tuples(st.just("call"), st.just(0), st.integers(1, 6))
STEP = st.tuples(st.sampled_from((*SAYING, *EDITING)), st.integers(0, 9), st.integers(1, 6))
STEPS = st.lists(st.one_of(WORK, STEP), min_size=8, max_size=30)


def asked(said: list[Said]) -> Said | None:
    last = next((each for each in reversed(said) if each.kind in ("question", "answer")), None)
    return last if last is not None and last.kind == "question" else None


class Talk:
    """Random steps in a conversation, and in a list that nothing is evicted from."""

    def __init__(self, eviction: str) -> None:
        self.memories: list[Memory] = []
        self.chat = self.begin().conversation("c0", window_tokens=12, eviction=eviction)
        self.said: list[Said] = []
        self.taken: list[tuple[Memory, Any, list[Said]]] = [(self.memory, self.chat.snapshot(), [])]
        self.count = 0

    def begin(self) -> Memory:
        """Return another memory, which the snapshots of the others are imported into."""
        self.memories.append(Memory(clock_ns=Clock(), random_bytes=Random(len(self.memories)).randbytes))
        return self.memory

    @property
    def memory(self) -> Memory:
        return self.memories[-1]

    def close(self) -> None:
        for memory in self.memories:
            memory.close()

    def do(self, step: str, which: int, tokens: int) -> None:
        self.count += 1
        window = self.chat.window()
        message = window[which % len(window)] if window else None
        if step in SAYING:
            self.say(step, tokens)
        elif step == "clear":
            self.chat.clear_window()
            self.said = [] if window else self.said  # Clearing an empty window changes nothing.
        elif step == "resize":
            self.chat.set_window_tokens(6 + 2 * which)
        elif step == "take":
            self.taken.append((self.memory, self.chat.snapshot(), [*self.said]))
        elif step == "restore":
            self.restore(*self.taken[which % len(self.taken)])
        elif step == "import":
            self.chat = self.begin().conversation(f"c{self.count}", window_tokens=12)
            self.said = []
            self.restore(*self.taken[which % len(self.taken)])
        elif step == "fork":
            self.chat = self.chat.fork(f"c{self.count}")
        elif step == "recall":
            self.chat.recall(f"question {which}")
        elif message is not None:
            self.change(step, message, which)

    def say(self, kind: str, tokens: int) -> None:
        text, call_id = f"{kind} {self.count}", f"call {self.count}"
        role = {"question": "user", "system": "system"}.get(kind, "assistant")
        calls = [{"id": call_id, "function": {"name": "f", "arguments": "{}"}}] if kind == "call" else None
        message = self.chat.append(role, text, tokens=tokens, tool_calls=calls, pinned=False)
        self.said.append(Said(message.id, kind, text))
        if kind == "call":
            result = self.chat.append("tool", "result", tokens=tokens, tool_call_id=call_id)
            self.said.append(Said(result.id, "result", "result"))

    def restore(self, memory: Memory, snapshot: Any, said: list[Said]) -> None:
        live, version = {each.id for each in snapshot.messages}, self.chat.version
        self.chat.restore(snapshot)
        if self.chat.version != version:  # Otherwise it is in that state already.
            self.said = [each for each in said if memory is self.memory or each.id in live]

    def change(self, step: str, message: Any, which: int) -> None:
        if step == "unpin" or (step == "pin" and not any(each.pinned for each in self.chat.window())):
            (self.chat.pin if step == "pin" else self.chat.unpin)(message)
        elif step in ("remove", "pop"):
            gone = message if step == "remove" else self.chat.window()[-1]
            assert self.chat.remove(message) if step == "remove" else self.chat.pop()
            self.said = [each for each in self.said if each.id != gone.id]
        elif step == "edit" and not message.pinned and message.role in ("user", "assistant"):
            text, calls = f"edited {self.count}", None
            kind = "question"
            if message.role == "assistant":
                kind = "call" if which % 2 else "answer"
                calls = [{"id": f"call {self.count}"}] if which % 2 else None
            self.chat.replace(message, text, tokens=message.tokens, tool_calls=calls)
            self.said = [Said(message.id, kind, text) if each.id == message.id else each for each in self.said]

    def check(self) -> None:
        places = {each.id: place for place, each in enumerate(self.said)}
        context = self.memory.context(self.chat, tools=())
        live = [message.id for message in self.chat.window() if message.role != "system"]
        question = asked(self.said)
        expected = {*live} | ({question.id} if question is not None else set())
        assert [each.id for each in context.window] == sorted(expected, key=places.__getitem__)
        if question is not None:
            shown = next(each for each in context.window if each.id == question.id)
            assert shown.content == question.text


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(POLICIES)), STEPS)
def test_a_context_shows_the_window_and_the_question_that_has_no_answer(eviction: str, steps: Any) -> None:
    talk = Talk(eviction)
    with ExitStack() as stack:
        stack.callback(talk.close)
        talk.say("question", 3)
        for step in steps:
            with suppress(LimitExceeded):  # What is pinned can leave no room.
                talk.do(*step)
            talk.check()
        context = talk.memory.context(talk.chat, tools=())
        rebuilt = talk.memory.rebuild(talk.memory.show(context))
        assert (rebuilt.matches, rebuilt.context.window) == (True, context.window)
        with pytest.raises(InvalidInput if asked(talk.said) is None else IndexError):
            AgentLoop(talk.memory, talk.chat, Script()).resume()
