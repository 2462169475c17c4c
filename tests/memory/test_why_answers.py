"""Why, asked about an answer: the context that the model was given for it, and the results of tools in its turn."""

import json

import pytest

from refold import Memory, Message, NotFound
from refold.agent import AgentLoop, Call, FunctionTool, Reply
from tests.support.bounds import lowered
from tests.support.steps import steps_of


class Model:
    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)

    def reply(self, *_: object) -> Reply:
        return self._replies.pop(0)


def sources(memory: Memory, answer: Message) -> list[str]:
    return [step.text for step in memory.why(answer).of("source")]


@pytest.fixture
def answered(memory: Memory) -> Memory:
    """A turn of one step, and one in which the model asked a tool twice."""
    schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
    memory.tools.register(FunctionTool("refund", "Refund.", schema, lambda given, _: f"refunded {given['order']}"))
    calls = [Reply("", (Call(order, "refund", json.dumps({"order": order})),)) for order in ("A1", "B2")]
    loop = AgentLoop(memory, memory.conversation("c"), Model(Reply("Hello."), *calls, Reply("Done.")))
    for text in ("Hi!", "Refund A1 and B2."):
        loop.run(text)
    return memory


def test_an_answer_leads_to_its_context_and_to_the_results_of_its_turn(answered: Memory) -> None:
    chat = answered.conversation("c")
    contexts = [stamp.seq for event, stamp in chat.events() if type(event).__name__ == "ContextShown"]
    hello, first, second, done = (message for message in chat.window() if message.role == "assistant")
    given = [f"the context that it was given; memory.rebuild({seq}) shows it" for seq in contexts]
    assert sources(answered, hello) == [given[0]]
    assert sources(answered, first) == [given[1]]
    assert sources(answered, second) == [given[2], "tool wrote 'refunded A1'"]
    assert sources(answered, done) == [given[3], "tool wrote 'refunded A1'", "tool wrote 'refunded B2'"]
    assert sources(answered, chat.window()[0]) == []
    for answer, seq in zip((hello, first, second, done), contexts, strict=True):
        for rebuilt in (answered.rebuild(answer.seq), answered.at(answer.seq).rebuild(answer.seq)):
            assert (rebuilt.seq, rebuilt.matches) == (seq, True)


def test_of_very_many_results_only_the_newest_are_listed(answered: Memory) -> None:
    done = answered.conversation("c").window()[-1]
    answered.why(done)
    with lowered(_RESULTS_COUNT_MAX=1):
        assert sources(answered, done)[1:] == ["1 earlier result of tools in its turn", "tool wrote 'refunded B2'"]


def test_an_answer_without_a_context_has_none(memory: Memory) -> None:
    chat = memory.conversation("c")
    chat.append("user", "Hi!")
    memory.show(memory.context(chat))
    chat.append("assistant", "Hello.")
    chat.append("user", "And?")
    last = chat.append("assistant", "Nothing.")
    assert sources(memory, last) == []
    with pytest.raises(
        NotFound, match=f"no context was shown at seq {last.seq}, nor for the answer at seq {last.seq};"
    ):
        memory.rebuild(last.seq)


def test_an_erased_context_is_said_to_be_erased(answered: Memory) -> None:
    chat = answered.conversation("c")
    answer = next(message for message in chat.window() if message.role == "assistant")
    answered.erase([answered.rebuild(answer.seq).seq])
    (source,) = sources(answered, answer)
    assert source.endswith("what it said was erased")
    with pytest.raises(NotFound, match="was erased at seq"):
        answered.rebuild(answer.seq)


def test_results_in_the_messages_of_a_user_belong_to_their_turn(memory: Memory) -> None:
    """As Anthropic has them."""
    chat = memory.conversation("c")
    chat.append("user", "Which port?")
    chat.append("assistant", [{"type": "tool_use", "id": "t", "name": "port", "input": {}}])
    chat.append("user", [{"type": "tool_result", "tool_use_id": "t", "content": "5432"}])
    answer = chat.append("assistant", "It is 5432.")
    assert len(sources(memory, answer)) == 1


def test_looking_for_what_an_answer_was_made_from_stays_in_its_turn(memory: Memory) -> None:
    chat = memory.conversation("c")
    with memory.batch():
        for number in range(2_000):
            chat.append("user", f"question {number}")
            chat.append("assistant", f"answer {number}")
    middle, last = chat.history()[2_001], chat.history()[-1]
    assert steps_of(lambda: memory.why(last)) < 1.5 * steps_of(lambda: memory.why(middle))
