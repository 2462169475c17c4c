"""A question that goes on with the one before it finds what that one asked for, and what its own words ask for."""

from collections.abc import Sequence

import pytest

from refold import Context, Conversation, Memory

pytestmark = pytest.mark.usefixtures("ranked")

SAID = (
    "The candidates for the deputy post are Marek Zielinski and Olivia Brandt.",
    "Olivia Brandt wants a salary of 78k, and Marek a salary of 71k.",
    "The old router is in the attic, and the new router is in the hallway cupboard.",
    "The museum opens at nine, and on Sunday the museum opens at eleven.",
    "Ein Handtuch heisst une serviette.",
)


@pytest.fixture
def history(memory: Memory) -> Memory:
    chat = memory.conversation("then", project="acme")
    for text in SAID:
        chat.append("user", text)
        chat.append("assistant", "I see.")
    for number in range(40):
        chat.append("user", f"Chapter {number} of the novel is about a keeper who counts the boats in the harbour.")
        chat.append("assistant", "A calm scene.")
    return memory


def asked(memory: Memory, *questions: str) -> tuple[Conversation, Context]:
    """The context of the last of some questions, the others of which were answered."""
    chat = memory.conversation("now", project="acme")
    for question in questions[:-1]:
        chat.append("user", question)
        chat.append("assistant", "Let me see.")
    chat.append("user", questions[-1])
    return chat, memory.context(chat, query=questions[-1])


def lines(context: Context) -> str:
    part = context.part("messages")
    return "" if part is None else part.text


SALARY, ROUTER = "What salary does Olivia Brandt want?", "Where is the old router?"


@pytest.mark.parametrize(
    ("questions", "answer"),
    [
        ((SALARY, "And the other one?"), "71k"),
        ((SALARY, "And Marek?"), "71k"),
        ((SALARY, "why?"), "78k"),
        ((SALARY, "And Marek?", "And the other one?"), "71k"),
        ((SALARY, "Thanks!", "Are you sure?"), "78k"),
        ((SALARY, "And Marek?", "And Zoltan?"), "78k"),
        ((ROUTER, "And the new one?"), "hallway"),
        (("When does the museum open?", "and on Sunday?"), "eleven"),
        ((SALARY, "Und Handtuch?"), "serviette"),
    ],
)
def test_it_finds_what_the_question_before_asked_for(history: Memory, questions: Sequence[str], answer: str) -> None:
    chat, context = asked(history, *questions)
    assert answer in lines(context)
    seq = history.show(context)
    assert history.rebuild(seq).matches
    assert lines(history.context(chat)) == lines(context)


@pytest.mark.parametrize(
    "questions",
    [
        ("And the other one?",),
        (SALARY, "Thanks!"),
        (SALARY, "How are you?"),
        (SALARY, "Tell me a joke!"),
        (SALARY, "Where is the lighthouse of my aunt Henrietta?"),
        ("Good morning!", "Are you sure?"),
    ],
)
def test_what_goes_on_with_nothing_finds_nothing_of_it(history: Memory, questions: Sequence[str]) -> None:
    assert "71k" not in lines(asked(history, *questions)[1])


def test_a_query_of_the_host_is_searched_alone(history: Memory) -> None:
    chat, _ = asked(history, SALARY, "And the other one?")
    assert "71k" not in lines(history.context(chat, query="What about it?"))


def test_what_neither_question_finds_is_said_of_both(history: Memory) -> None:
    _, context = asked(history, SALARY, "And Marek?")
    seq = history.show(context)
    said = history.conversation("then").history()
    assert "shows it in its part messages" in history.why(said[2], missing_from=seq).steps[-1].text
    reason = history.why(said[-2], missing_from=seq).steps[-1].text
    assert f"{SALARY} And Marek?" in reason
    assert "of the words of 'And Marek?' marek count" in reason
