"""The window: what leaves it and when, what stays together, what is pinned, and how it is handed to a provider."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from refold import Conversation, InvalidInput, LimitExceeded, Memory, Message, NotFound, Snapshot
from tests.support.memories import refused, remembering

CALL = {"type": "function", "function": {"name": "look", "arguments": "{}"}}


def openai_call(chat: Conversation, name: str, tokens: int, ids: list[str], pinned: bool) -> Message:
    calls = [{**CALL, "id": call_id} for call_id in ids]
    return chat.append("assistant", None, name=name, tokens=tokens, tool_calls=calls, pinned=pinned)


def openai_answer(chat: Conversation, name: str, tokens: int, ids: list[str], pinned: bool) -> Message:
    return chat.append("tool", "found", name=name, tokens=tokens, tool_call_id=ids[0], pinned=pinned)


def anthropic_call(chat: Conversation, name: str, tokens: int, ids: list[str], pinned: bool) -> Message:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "let me look"}]
    blocks += [{"type": "tool_use", "id": call_id, "name": "look", "input": {}} for call_id in ids]
    return chat.append("assistant", blocks, name=name, tokens=tokens, pinned=pinned)


def anthropic_answer(chat: Conversation, name: str, tokens: int, ids: list[str], pinned: bool) -> Message:
    blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": "found"} for call_id in ids]
    return chat.append("user", blocks, name=name, tokens=tokens, pinned=pinned)


FORMS = {"openai": (openai_call, openai_answer), "anthropic": (anthropic_call, anthropic_answer)}


def play(chat: Conversation, steps: str, form: str) -> None:
    """Do the steps: ``a10`` says a with 10 tokens, ``A10:x,y`` calls x and y, ``a10:x`` answers x, ``!`` pins.

    ``budget=50`` changes the budget, ``clear`` empties the window.
    """
    call, answer = FORMS[form]
    for step in steps.split():
        if step == "clear":
            chat.clear_window()
        elif step.startswith("budget="):
            chat.set_window_tokens(int(step.removeprefix("budget=")))
        else:
            said, _, ids = step.partition(":")
            pinned = said.endswith("!")
            name, tokens = said[0], int(said.rstrip("!")[1:])
            if not ids:
                chat.append("user", "hello", name=name, tokens=tokens, pinned=pinned)
            elif name.isupper():
                call(chat, name, tokens, ids.split(","), pinned)
            else:
                answer(chat, name, tokens, ids.split(","), pinned)


def names(chat: Conversation) -> str:
    return "".join(message.name or "?" for message in chat.window())


EVICTIONS: dict[str, tuple[int, str, str]] = {
    "all fit": (100, "a40 b60", "ab"),
    "the first leaves": (100, "a40 b60 c1", "bc"),
    "no more than needed leaves": (100, "a10 b10 c10 d80", "bcd"),
    "several leave": (100, "a30 b30 c30 d90", "d"),
    "one of exactly the budget stays alone": (100, "a30 b100", "b"),
    "one over the budget takes all with it": (100, "a30 b101", ""),
    "after that the next one enters": (100, "a30 b101 c5", "c"),
    "zero tokens do not evict": (100, "a100 b0 c0", "abc"),
    "zero tokens leave in their turn": (100, "a0 b100 c1", "c"),
    "a call and its answer leave together": (100, "A10:x b10:x c80 d1", "cd"),
    "a call with many answers leaves whole": (100, "A10:x,y,z b10:x c10:y d10:z e60 f1", "ef"),
    "a group leaves though part of it would do": (100, "A5:x b60:x c30 d10", "cd"),
    "an answer far behind leaves with its call": (100, "A10:x b30 c30 d20:x e20", "bce"),
    "a group stands where its first member stands": (100, "a10 B10:x c10 d10:x e81", "ce"),
    "what stands before a group leaves first": (100, "a40 B20:x c20:x d40", "Bcd"),
    "two groups leave one after the other": (100, "A10:x b10:x C10:y d10:y e70", "Cde"),
    "interleaved groups keep apart": (100, "A10:x B10:y c10:x d10:y e70", "Bde"),
    "an answer whose call has left stays out": (100, "A60:x b50 c10:x d1", "bd"),
    "an answer whose call never was stays out": (100, "a10 b10:x c10", "ac"),
    "an answer before its call stays out": (100, "a10:x B10:x c10", "Bc"),
    "an answer larger than the budget takes its group": (100, "a10 B10:x c200:x d5", "d"),
    "a call larger than the budget stays out with its answers": (100, "A200:x b10:x c10", "c"),
    "a second answer to one call joins too": (100, "A10:x b10:x c10:x d71", "d"),
    "a repeated id belongs to the newest call": (100, "A10:x b10:x C10:x d10:x e70", "Cde"),
    "an id free again after its group left": (100, "A60:x b50 C10:x d10:x e10", "bCde"),
    "an unanswered call leaves alone": (100, "A50:x b50 c10", "bc"),
    "a pin stays": (100, "a10! b50 c50", "ac"),
    "a pin in the middle stays": (100, "a10 b10! c50 d50", "bd"),
    "pins stay in order": (100, "a10! b20 c10! d20 e70", "ace"),
    "a pin fills the whole budget": (100, "a100! b10 c0", "ac"),
    "a pinned call pins its answers": (100, "A10!:x b10:x c50 d50", "Abd"),
    "a pinned answer pins its call": (100, "A10:x b10!:x c50 d50", "Abd"),
    "a pinned answer pins later answers": (100, "A10:x,y b10!:x c50 d10:y e50", "Abde"),
    "a message too large passes over pins": (100, "a10! b30 c200", "a"),
    "a smaller budget evicts": (100, "a30 b30 c30 budget=60", "bc"),
    "a smaller budget evicts whole groups": (100, "A30:x b30:x c30 budget=60", "c"),
    "a smaller budget passes over pins": (100, "a30! b30 c30 budget=60", "ac"),
    "a larger budget brings nothing back": (100, "a60 b60 budget=200 c60", "bc"),
    "a larger budget holds more": (100, "a60 budget=200 b60 c60", "abc"),
    "a budget of one": (100, "a1 b1 budget=1 c1", "c"),
    "clear takes pins too": (100, "a10! b10 clear c10", "c"),
    "after a clear an answer's call is gone": (100, "A10:x clear b10:x c10", "c"),
    "after a clear pins count no more": (100, "a100! clear b100!", "b"),
    "an evicted pinned budget is free again": (100, "a60! clear b60! c40 d1", "bd"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", EVICTIONS)
def test_eviction(what: str, form: str) -> None:
    budget, steps, left = EVICTIONS[what]
    with remembering(window_tokens=budget) as memory:
        chat = memory.conversation("chat")
        play(chat, steps, form)
        assert names(chat) == left
        assert chat.token_count() == sum(message.tokens for message in chat.window())
        assert chat.token_count() <= chat.window_tokens
        for recorded in chat.events():
            frozen = chat.at(recorded.stamp.seq)
            assert frozen.token_count() == sum(message.tokens for message in frozen.window())


@pytest.mark.parametrize("what", EVICTIONS)
def test_eviction_is_the_same_after_every_reopening(tmp_path: Path, what: str) -> None:
    budget, steps, left = EVICTIONS[what]
    for step in steps.split():
        with Memory(tmp_path / "store", window_tokens=budget) as memory:
            play(memory.conversation("chat"), step, "openai")
    with remembering(tmp_path / "store", window_tokens=7) as memory:
        assert names(memory.conversation("chat")) == left


@pytest.mark.parametrize("what", EVICTIONS)
def test_eviction_is_the_same_in_one_batch(what: str) -> None:
    budget, steps, left = EVICTIONS[what]
    with remembering(window_tokens=budget) as memory:
        chat = memory.conversation("chat")
        with memory.batch():
            play(chat, steps, "openai")
            assert names(chat) == left
        assert names(chat) == left


@pytest.mark.parametrize("what", EVICTIONS)
def test_every_message_is_recorded_whether_it_stays_or_not(what: str) -> None:
    budget, steps, _ = EVICTIONS[what]
    memory = Memory(window_tokens=budget)
    play(memory.conversation("chat"), steps, "openai")
    said = [getattr(event, "name", "") for event, _ in memory.conversation("chat").events()]
    assert "".join(said) == "".join(
        step[0] for step in steps.split() if step != "clear" and not step.startswith("budget")
    )


class TestAnswers:
    def test_a_tool_message_without_an_id_is_its_own_group(self) -> None:
        with remembering(window_tokens=100) as memory:
            chat = memory.conversation("chat")
            openai_call(chat, "A", 50, ["x"], pinned=False)
            chat.append("tool", "found", name="b", tokens=50)
            chat.append("user", "next", name="c", tokens=10)
            assert names(chat) == "bc"

    def test_a_function_message_may_answer_too(self) -> None:
        with remembering(window_tokens=100) as memory:
            chat = memory.conversation("chat")
            openai_call(chat, "A", 50, ["x"], pinned=False)
            chat.append("function", "found", name="b", tokens=50, tool_call_id="x")
            chat.append("user", "next", name="c", tokens=10)
            assert names(chat) == "c"

    def test_an_answer_that_stays_out_is_returned_all_the_same(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            message = chat.append("tool", "found", tokens=5, tool_call_id="never")
            assert (message.seq, message.tool_call_id, chat.window()) == (memory.head, "never", [])

    def test_both_forms_of_call_in_one_message_are_one_group(self) -> None:
        with remembering(window_tokens=100) as memory:
            chat = memory.conversation("chat")
            blocks = [{"type": "tool_use", "id": "x", "name": "look", "input": {}}]
            chat.append("assistant", blocks, tool_calls=[{**CALL, "id": "y"}], name="A", tokens=10)
            openai_answer(chat, "b", 10, ["y"], pinned=False)
            anthropic_answer(chat, "c", 10, ["x"], pinned=False)
            chat.append("user", "next", name="d", tokens=71)
            assert names(chat) == "d"

    def test_one_message_with_all_results_answers_the_whole_call(self) -> None:
        with remembering(window_tokens=100) as memory:
            chat = memory.conversation("chat")
            anthropic_call(chat, "A", 10, ["x", "y"], pinned=False)
            anthropic_answer(chat, "b", 10, ["x", "y"], pinned=False)
            chat.append("user", "next", name="c", tokens=81)
            assert names(chat) == "c"

    @pytest.mark.parametrize("call_id", [None, 5, ["x"], {}], ids=repr)
    def test_calls_without_a_text_as_id_are_kept_and_answered_by_nothing(self, call_id: object) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            calls = [{**CALL, "id": call_id}]
            message = chat.append("assistant", None, tool_calls=calls, tokens=1)
            assert message.tool_calls == calls
            chat.append("tool", "found", tool_call_id="x", tokens=1)
            assert chat.window() == [message]


class TestPins:
    @pytest.mark.parametrize(
        ("steps", "more", "tokens"),
        [
            ("a60!", "b41!", 101),
            ("a60! b10", "c41!", 101),
            ("A60!:x", "b41:x", 101),
            ("a50! B30:x", "c30!:x", 110),
            ("", "a101!", 101),
            ("a1!", "b100!", 101),
        ],
    )
    def test_more_than_the_budget_is_refused_and_nothing_is_appended(self, steps: str, more: str, tokens: int) -> None:
        memory = Memory(window_tokens=100)
        chat = memory.conversation("chat")
        play(chat, steps, "openai")
        with refused(memory, LimitExceeded, f"would hold {tokens} tokens", "100", "clear_window"):
            play(chat, more, "openai")
        with memory.batch(), pytest.raises(LimitExceeded):
            play(chat, more, "openai")

    def test_a_budget_below_the_pins_is_refused(self) -> None:
        memory = Memory(window_tokens=100)
        chat = memory.conversation("chat")
        play(chat, "a40! b20 C10!:x d10:x", "openai")
        with refused(memory, LimitExceeded, "pinned messages hold 60 tokens", "59"):
            chat.set_window_tokens(59)
        chat.set_window_tokens(60)
        assert names(chat) == "aCd"

    def test_a_pinned_answer_without_its_call_is_no_pin(self) -> None:
        with remembering(window_tokens=100) as memory:
            chat = memory.conversation("chat")
            chat.append("tool", "found", tokens=500, tool_call_id="never", pinned=True)
            assert (chat.window(), chat.token_count()) == ([], 0)
            play(chat, "a100!", "openai")
            assert names(chat) == "a"

    def test_pins_survive_reopening_forking_and_restoring(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store", window_tokens=100) as memory:
            chat = memory.conversation("chat")
            play(chat, "A10:x b10!:x c50", "openai")
            snapshot = chat.snapshot("named")
            play(chat, "clear d10", "openai")
            chat.fork("fork", at=snapshot.seq)
            chat.restore("named")
        with remembering(tmp_path / "store") as memory:
            for conversation_id in ("chat", "fork"):
                chat = memory.conversation(conversation_id)
                play(chat, "e60", "openai")
                assert names(chat) == "Abe"
                with refused(memory, LimitExceeded):
                    play(chat, "f81!", "openai")


class TestTheBudget:
    def test_that_of_the_constructor_is_recorded_at_the_first_mutation(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store", window_tokens=100) as memory:
            play(memory.conversation("chat"), "a60", "openai")
        with remembering(tmp_path / "store", window_tokens=10) as memory:
            chat = memory.conversation("chat")
            play(chat, "b60", "openai")
            assert (names(chat), chat.window_tokens) == ("b", 100)
            assert memory.conversation("new").window_tokens == 10

    def test_that_of_the_handle_goes_before_that_of_the_constructor(self) -> None:
        with remembering(window_tokens=100) as memory:
            chat = memory.conversation("chat", window_tokens=50)
            play(chat, "a40 b20", "openai")
            assert names(chat) == "b"
            assert memory.conversation("chat").window_tokens == 50
            assert memory.conversation("chat", window_tokens=50).window_tokens == 50

    def test_another_one_for_an_opened_conversation_is_refused(self) -> None:
        memory = Memory()
        play(memory.conversation("chat", window_tokens=50), "a40", "openai")
        with refused(memory, InvalidInput, "a budget of 50 tokens, not 60", "set_window_tokens"):
            memory.conversation("chat", window_tokens=60)

    def test_setting_it_opens_a_conversation(self) -> None:
        with remembering(window_tokens=100) as memory:
            chat = memory.conversation("chat")
            chat.set_window_tokens(40)
            assert (chat.window_tokens, memory.conversations(), memory.head) == (40, ["chat"], 2)

    def test_setting_the_same_one_again_appends_nothing(self) -> None:
        with remembering(window_tokens=100) as memory:
            chat = memory.conversation("chat")
            chat.set_window_tokens(40)
            chat.set_window_tokens(40)
            assert memory.head == 2

    @pytest.mark.parametrize("budget", [0, -1, True, 1.5, "100", None, 2**40 + 1], ids=repr)
    def test_one_out_of_bounds_is_refused_wherever_it_is_given(self, budget: Any) -> None:
        memory = Memory()
        with refused(memory, (InvalidInput if budget != 2**40 + 1 else LimitExceeded), "window_tokens"):
            memory.conversation("chat").set_window_tokens(budget)
        with pytest.raises((InvalidInput, LimitExceeded), match="window_tokens"):
            Memory(window_tokens=budget)
        if budget is not None:
            with pytest.raises((InvalidInput, LimitExceeded), match="window_tokens"):
                memory.conversation("chat", window_tokens=budget)

    def test_the_largest_one_works(self) -> None:
        with remembering(window_tokens=2**40) as memory:
            chat = memory.conversation("chat")
            chat.append("user", "x", name="a", tokens=2**40)
            chat.append("user", "x", name="b", tokens=2**40)
            assert (names(chat), chat.token_count()) == ("b", 2**40)


class TestMessagesOpenAI:
    def test_absent_is_not_null(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            calls = [{**CALL, "id": "x"}]
            chat.append("system", "be kind", tokens=1)
            chat.append("user", "hello", tokens=1, name="Ann", metadata={"hidden": True})
            chat.append("assistant", None, tokens=1, tool_calls=calls)
            chat.append("tool", "found", tokens=1, tool_call_id="x")
            assert (
                chat.messages()
                == chat.messages(format="openai")
                == [
                    {"role": "system", "content": "be kind"},
                    {"role": "user", "content": "hello", "name": "Ann"},
                    {"role": "assistant", "content": None, "tool_calls": calls},
                    {"role": "tool", "content": "found", "tool_call_id": "x"},
                ]
            )

    def test_an_empty_window_is_an_empty_list(self) -> None:
        assert Memory().conversation("chat").messages() == []
        assert Memory().conversation("chat").messages(format="anthropic") == []

    @pytest.mark.parametrize("form", ["OpenAI", "", "bard", None, 5, ["openai"], {}], ids=repr)
    def test_an_unknown_format_is_refused(self, form: Any) -> None:
        memory = Memory()
        with refused(memory, InvalidInput, "anthropic, gemini, ollama, openai, openai-responses"):
            memory.conversation("chat").messages(format=form)


class TestMessagesAnthropic:
    def test_calls_and_results_become_blocks_and_neighbours_are_joined(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("system", "be kind", tokens=1)
            chat.append("developer", "be brief", tokens=1)
            chat.append("user", "two things", tokens=1)
            chat.append("user", "please", tokens=1)
            calls = [
                {"id": "x", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}},
                {"id": "y", "type": "function", "function": {"name": "wait", "arguments": ""}},
            ]
            chat.append("assistant", "looking", tokens=1, tool_calls=calls)
            chat.append("tool", "blue", tokens=1, tool_call_id="x")
            chat.append("tool", None, tokens=1, tool_call_id="y")
            chat.append("assistant", "It is blue.", tokens=1)
            assert chat.messages(format="anthropic") == [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "two things"}, {"type": "text", "text": "please"}],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "looking"},
                        {"type": "tool_use", "id": "x", "name": "look", "input": {"at": "sky"}},
                        {"type": "tool_use", "id": "y", "name": "wait", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "x", "content": "blue"},
                        {"type": "tool_result", "tool_use_id": "y", "content": ""},
                    ],
                },
                {"role": "assistant", "content": [{"type": "text", "text": "It is blue."}]},
            ]

    def test_its_own_blocks_pass_unchanged(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", "look", tokens=1)
            anthropic_call(chat, "A", 1, ["x"], pinned=False)
            anthropic_answer(chat, "b", 1, ["x"], pinned=False)
            _, call, answer = chat.messages(format="anthropic")
            assert call["content"] == chat.window()[1].content
            assert answer == {"role": "user", "content": chat.window()[2].content}

    @pytest.mark.parametrize(
        ("arguments", "shown"),
        [
            ('{"a": 1}', {"a": 1}),
            ("", {}),
            ("not json", {"arguments": "not json"}),
            ("[1]", {"arguments": [1]}),
            ('"text"', {"arguments": "text"}),
            ({"a": 1}, {"a": 1}),
            ("null", {}),
            (None, {}),
        ],
    )
    def test_arguments_of_any_kind_become_an_object(self, arguments: object, shown: object) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            call = {"id": "x", "function": {"name": "look", "arguments": arguments}}
            chat.append("assistant", None, tokens=1, tool_calls=[call])
            assert chat.messages(format="anthropic")[-1]["content"][0]["input"] == shown

    @pytest.mark.parametrize(
        "call", [{}, {"id": 5}, {"function": None}, {"function": "look"}, {"id": None, "function": []}], ids=repr
    )
    def test_a_call_of_another_shape_is_no_crash(self, call: dict[str, Any]) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("assistant", None, tokens=1, tool_calls=[call])
            (shown,) = chat.messages()[0]["tool_calls"]
            assert (shown["type"], shown["function"]["arguments"]) == ("function", "{}")
            assert chat.messages(format="anthropic")[-1]["role"] == "assistant"

    def test_a_message_without_content_takes_no_empty_place(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", "hello", tokens=1)
            chat.append("assistant", None, tokens=0)
            chat.append("assistant", "", tokens=0)
            chat.append("user", "hello?", tokens=1)
            shown = chat.messages(format="anthropic")
            assert all(message["content"] for message in shown)
            roles = [message["role"] for message in shown]
            assert all(one != two for one, two in pairwise(roles))


class TestOneMessage:
    """``remove``, ``pin`` and ``unpin`` of a message in the window."""

    def test_a_removed_message_leaves_the_window_and_stays_in_the_log(self, memory: Memory) -> None:
        chat = memory.conversation("chat", window_tokens=100)
        first, second = (chat.append("user", text, tokens=10) for text in ("one", "two"))
        assert chat.remove(first) is True
        assert chat.window() == [second]
        assert chat.token_count() == 10
        assert chat.at(second.seq).window() == [first, second]
        assert chat.remove(first) is False
        assert memory.head == 4

    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_a_call_leaves_with_its_answers(self, memory: Memory, place: int) -> None:
        chat = memory.conversation("chat", window_tokens=100)
        calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in "ab"]
        group = [chat.append("assistant", None, tool_calls=calls, tokens=10)]
        group += [chat.append("tool", "done", tool_call_id=name, tokens=10) for name in "ab"]
        after = chat.append("user", "go on", tokens=10)
        chat.remove(group[place])
        assert chat.window() == [after]
        assert chat.token_count() == 10

    def test_a_message_is_named_by_id_and_seq_too(self, memory: Memory) -> None:
        chat = memory.conversation("chat", window_tokens=100)
        one, two, three = (chat.append("user", text, tokens=10) for text in ("one", "two", "three"))
        assert chat.remove(one.id)
        assert chat.pin(two.seq)
        assert [message.pinned for message in chat.window()] == [True, False]
        assert chat.window()[1] == three

    def test_a_message_of_an_imported_state_is_named_by_its_id_alone(self, memory: Memory) -> None:
        other = Memory().conversation("other", window_tokens=100)
        for text in ("one", "two"):
            other.append("user", text, tokens=10)
        chat = memory.conversation("chat", window_tokens=100)
        chat.restore(Snapshot.from_bytes(other.snapshot().to_bytes()))
        first, second = chat.window()
        assert first.seq == second.seq
        assert chat.remove(first.seq) is False
        assert chat.remove(second) is True
        assert chat.window() == [first]

    def test_a_pinned_message_outlives_the_budget_until_it_is_unpinned(self, memory: Memory) -> None:
        chat = memory.conversation("chat", window_tokens=30)
        one, two = (chat.append("user", text, tokens=10) for text in ("one", "two"))
        assert chat.pin(one) is True
        assert chat.pin(one) is False
        for text in ("three", "four", "five"):
            chat.append("user", text, tokens=10)
        assert [message.content for message in chat.window()] == ["one", "four", "five"]
        assert chat.unpin(one) is True
        assert chat.unpin(one) is False
        chat.append("user", "six", tokens=10)
        assert [message.content for message in chat.window()] == ["four", "five", "six"]
        with refused(memory, NotFound, "not in the window", two.id):
            chat.pin(two)

    def test_unpinned_messages_keep_their_order_among_those_that_stay_pinned(self, memory: Memory) -> None:
        chat = memory.conversation("chat", window_tokens=40)
        said = [chat.append("user", text, tokens=10, pinned=True) for text in ("one", "two", "three")]
        chat.append("user", "four", tokens=10)
        chat.append("user", "five", tokens=10)
        chat.unpin(said[1])
        assert [message.content for message in chat.window()] == ["one", "two", "three", "five"]
        chat.append("user", "six", tokens=10)
        assert [message.content for message in chat.window()] == ["one", "three", "five", "six"]

    def test_pins_that_changed_come_back_from_a_checkpoint(self, memory: Memory, reopen: Callable[[], Memory]) -> None:
        chat = memory.conversation("chat", window_tokens=30)
        one = chat.append("user", "one", tokens=10)
        two = chat.append("user", "two", tokens=10, pinned=True)
        chat.pin(one)
        chat.unpin(two)
        memory.flush()
        again = reopen().conversation("chat")
        for text in ("three", "four", "five"):
            again.append("user", text, tokens=10)
        assert [(message.content, message.pinned) for message in again.window()] == [
            ("one", True),
            ("four", False),
            ("five", False),
        ]


def test_a_system_prompt_stays_unless_the_host_says_otherwise() -> None:
    with remembering() as memory:
        chat = memory.conversation("chat", window_tokens=100)
        prompt = chat.append("system", "You are Ada.", tokens=30)
        rules = chat.append("developer", "Be brief.", tokens=20)
        for number in range(10):
            chat.append("user", f"message {number}", tokens=20)
        later = chat.append("system", "It is late.", tokens=10)
        assert (prompt.pinned, rules.pinned, later.pinned) == (True, True, False)
        assert [message.content for message in chat.window()[:2]] == ["You are Ada.", "Be brief."]
        for number in range(3):
            chat.append("user", f"more {number}", tokens=20)
        assert later not in chat.window()
        assert chat.unpin(prompt)
        chat.append("user", "last", tokens=20)
        assert chat.window()[0].content == "Be brief."
        loose = memory.conversation("loose", window_tokens=40)
        loose.append("system", "You are Ada.", tokens=30, pinned=False)
        loose.append("user", "Hello!", tokens=20)
        assert [message.content for message in loose.window()] == ["Hello!"]


def test_a_prompt_that_does_not_fit_its_window_is_recorded_and_nothing_fails() -> None:
    with remembering() as memory:
        chat = memory.conversation("chat", window_tokens=25)
        assert chat.append("system", "first", tokens=20).pinned
        assert not chat.append("system", "second", tokens=10).pinned
        large = memory.conversation("large", window_tokens=25).append("system", "large", tokens=30)
        assert not large.pinned
        assert memory.conversation("large").window() == []
        repeated = chat.append("user", "Hello!", tokens=1, request_id="r")
        assert chat.append("user", "Hello!", tokens=1, request_id="r") == repeated
