"""Earlier questions and answers: which are shown together, and what keeps them from being misread."""

from itertools import pairwise

import pytest

from refold import Memory
from tests.support.memories import assert_sound

FILLER = "Let me think in detail. " * 40
ONBOARDING = (
    ("Hello!", "Welcome! Do you have any allergies?"),
    ("Peanuts.", "Noted. How many children do you have?"),
    ("Two.", "Shall I cancel the old contract 4711?"),
    ("Yes, please.", "Is the heating on gas?"),
    ("No.", "Thank you, that is all."),
)


def lines(memory: Memory, query: str, name: str = "now") -> list[str]:
    """Ask in a session of its own; return the lines of earlier messages, and check that they can be built again."""
    context = memory.context(memory.conversation(name, project="home"), query=query)
    assert memory.rebuild(memory.show(context)).matches
    part = context.part("messages")
    return [] if part is None else part.text.splitlines()[4:]


def tell(memory: Memory, name: str, *turns: tuple[str, str]) -> None:
    chat = memory.conversation(name, project="home", window_tokens=None)
    for said, answer in turns:
        chat.append("user", said)
        chat.append("assistant", answer)


def chat_about_other_matters(memory: Memory) -> None:
    for number in range(120):
        tell(memory, f"other {number}", (f"I walked along river {number} for hours with a neighbour of mine.", "Nice!"))


# Short answers, which say nothing without the question.


@pytest.mark.parametrize("query", ["Which food must the cook avoid?", "What do you know about me?"])
def test_a_short_answer_comes_with_its_question(memory: Memory, query: str) -> None:
    tell(memory, "onboarding", *ONBOARDING)
    assert lines(memory, query) == [
        "- user: Hello!",
        "- assistant: Welcome! Do you have any allergies?",
        "- user: Peanuts.",
        "- assistant: Noted. How many children do you have?",
        "- user: Two.",
        "- assistant: Shall I cancel the old contract 4711?",
        "- user: Yes, please.",
        "- assistant: Is the heating on gas?",
        "- user: No.",
    ]
    assert_sound(memory)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Do I have gas heating?", ["- assistant: Is the heating on gas?", "- user: No."]),
        ("Did I say peanuts?", ["- assistant: Welcome! Do you have any allergies?", "- user: Peanuts."]),
    ],
)
def test_a_question_of_the_model_and_its_short_answer_bring_each_other(
    memory: Memory, query: str, expected: list[str]
) -> None:
    tell(memory, "onboarding", *ONBOARDING)
    chat_about_other_matters(memory)
    assert lines(memory, query) == expected


def test_of_a_long_message_only_its_question_is_shown_with_the_answer(memory: Memory) -> None:
    tell(
        memory, "support", ("Hello!", f"{FILLER}That makes 40 euros. Shall I order it? Just say yes."), ("Yes.", "OK.")
    )
    shown = lines(memory, "What do you know about me?")
    assert shown[1].startswith("- assistant: ... Let me think")
    assert shown[1].endswith("That makes 40 euros. Shall I order it?")
    assert len(shown[1]) < 300
    assert shown[2] == "- user: Yes."


def test_a_short_answer_without_room_for_its_question_is_left_out(memory: Memory) -> None:
    chat = memory.conversation("onboarding", project="home", window_tokens=None)
    for number in range(100):
        chat.append("user", f"Yes {number}.")
        chat.append("assistant", f"And what do you eat on day {number} of the week of your festival?")
    context = memory.context(memory.conversation("now", project="home"), query="Is there a herb I hate?", budget=600)
    part = context.part("messages")
    assert part is not None
    lines = part.text.splitlines()[4:-1]
    bare = [line for above, line in pairwise(lines) if line[:7] == above[:7] == "- user:"]
    assert (len(lines) > 10, bare) == (True, [])
    assert context.left_out["messages"] == 199 - len(lines)
    assert memory.rebuild(memory.show(context)).matches


def test_a_short_answer_stands_below_its_question_when_two_are_answered_at_once(memory: Memory) -> None:
    one, two = (memory.conversation(name, project="home") for name in ("one", "two"))
    for chat, text in ((one, "Is the heating on gas?"), (two, "Do you have a garage?")):
        chat.append("assistant", text)
    for chat, text in ((two, "No."), (one, "Yes.")):
        chat.append("user", text)
    expected = [
        "- assistant: Is the heating on gas?",
        "- user: Yes.",
        "...",
        "- assistant: Do you have a garage?",
        "- user: No.",
    ]
    assert lines(memory, "What do you know about me?") == expected


def test_without_its_answer_a_question_that_was_taken_back_is_not_shown(memory: Memory) -> None:
    tell(memory, "onboarding", *ONBOARDING)
    memory.erase([memory.conversation("onboarding").history()[1]])
    assert lines(memory, "Which food must the cook avoid?")[:2] == ["- user: Hello!", "- user: Peanuts."]


# What could be misread.


def test_an_answer_to_something_else_stands_apart(memory: Memory) -> None:
    for number in range(100):
        tell(memory, f"other {number}", (f"Topic {number}: tell me how gardening subject {number} is done.", FILLER))
    tell(memory, "flat", ("My landlord wants to raise the rent of my flat by 12 percent.", FILLER))
    tell(memory, "shop", ("And the shop?", "No, a landlord of a shop may raise the rent; nothing limits the percent."))
    assert lines(memory, "By how many percent may the landlord raise the rent?") == [
        "- user: My landlord wants to raise the rent of my flat by 12 percent.",
        "...",
        "- assistant: No, a landlord of a shop may raise the rent; nothing limits the percent.",
    ]


def test_a_question_whose_answer_is_not_shown_is_marked(memory: Memory) -> None:
    chat_about_other_matters(memory)
    tell(memory, "flat", ("May my landlord raise the rent of the flat?", FILLER))
    memory.conversation("open", project="home").append("user", "Does the landlord pay the heating of the flat?")
    assert lines(memory, "What did I ask about the landlord of the flat?") == [
        "- user: May my landlord raise the rent of the flat? (answered)",
        "- user: Does the landlord pay the heating of the flat?",
    ]


# What was done last.


LONG_AGO = [(f"Repair boat number {number} with some tar and a brush, please.", "Done.") for number in range(100)]


@pytest.mark.parametrize("query", ["Continue where we left off.", "What did you do yesterday?", "What is left to do?"])
def test_a_question_for_what_was_done_brings_the_newest_turns(memory: Memory, query: str) -> None:
    tell(memory, "long ago", *LONG_AGO)
    tell(
        memory,
        "last time",
        ("Please clean up the utils module.", "I renamed utils.py to helpers.py; next I fix the importer."),
        ("We go with Postgres.", "OK, Postgres it is."),
    )
    shown = lines(memory, query)
    assert shown[-4:] == [
        "- user: Please clean up the utils module.",
        "- assistant: I renamed utils.py to helpers.py; next I fix the importer.",
        "- user: We go with Postgres.",
        "- assistant: OK, Postgres it is.",
    ]
    assert "- user: Repair boat number 99 with some tar and a brush, please." in shown
    assert "- user: Repair boat number 2 with some tar and a brush, please." not in shown


def test_an_answer_that_is_too_long_is_left_out_of_the_newest_turns(memory: Memory) -> None:
    tell(memory, "last time", ("Which module is the worst?", FILLER * 10), ("We go with Postgres.", "OK."))
    assert lines(memory, "Let's continue.") == [
        "- user: Which module is the worst? (answered)",
        "- user: We go with Postgres.",
        "- assistant: OK.",
    ]


def test_within_a_conversation_to_go_on_is_about_itself(memory: Memory) -> None:
    tell(memory, "last time", *LONG_AGO)
    tell(memory, "now", ("Which module is the worst?", "The importer."))
    assert lines(memory, "Let's continue.") == []
    assert lines(memory, "What did you do yesterday?") != []
    chat = memory.conversation("last time")
    seq = memory.show(memory.context(memory.conversation("fresh", project="home"), query="Let's continue."))
    hidden = memory.why(chat.history()[0], missing_from=seq).steps[-1].text
    assert hidden.endswith("asks about earlier conversations as a whole, and the newest turns are shown")
