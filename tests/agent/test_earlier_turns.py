"""Earlier questions and answers: which are shown together, and what keeps them from being misread."""

from itertools import pairwise

import pytest

from refold import Memory
from refold.agent import ContextBudget
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


# What was said next, which a message can be wrong without.


@pytest.mark.parametrize(
    ("turns", "query"),
    [
        (
            [("The house number of the summer house is 4471.", "Noted."), ("Sorry, 4417.", "OK.")],
            "What is the house number of the summer house?",
        ),
        ([("The party of the orchestra is on the 12th.", "Great!"), ("No, the 14th.", "OK.")], "When's the party?"),
        (
            [("The passport office is open until 15:00.", "OK."), ("But closed on Wednesdays.", "OK.")],
            "passport office?",
        ),
        (
            [("The bookings need a limit of their rate.", "I'd take a bucket in Redis."), ("Redis it is.", "Good.")],
            "What limits the rate of the bookings?",
        ),
        (
            [("The pytest run hangs on my Mac.", "It waits for port 5000, which the AirPlay Receiver occupies.")],
            "Why did pytest hang on my Mac?",
        ),
    ],
)
def test_a_message_comes_with_what_was_said_next(memory: Memory, turns: list[tuple[str, str]], query: str) -> None:
    chat_about_other_matters(memory)
    tell(memory, "then", *turns)
    said = [line for said, answer in turns for line in (f"- user: {said}", f"- assistant: {answer}")]
    assert lines(memory, query) == [line for line in said if line.count(" ") > 4 or line.startswith("- user")]
    assert_sound(memory)


@pytest.mark.parametrize(
    "turn",
    [
        ("Thanks, great!", "You are welcome."),
        ("Which boat?", "The red one."),
        ("Now to the harbour, which we rowed to with all of our neighbours last Sunday.", "OK."),
    ],
)
def test_thanks_another_question_and_another_matter_do_not_come_with_a_message(
    memory: Memory, turn: tuple[str, str]
) -> None:
    chat_about_other_matters(memory)
    tell(memory, "then", ("The house number of the summer house is 4471.", "Noted."), turn)
    assert lines(memory, "What is the house number?") == ["- user: The house number of the summer house is 4471."]


def test_what_was_said_next_stands_below_the_newest_content_and_takes_no_room_of_better_messages(
    memory: Memory,
) -> None:
    chat_about_other_matters(memory)
    chat = memory.conversation("then", project="home")
    code = chat.append("user", "The house number is 4471.")
    chat.append("assistant", "It opens the door of the summer house, too.")
    change = chat.append("user", "Sorry, 4417.")
    chat.replace(code, "The house number of our house is 4471.")
    chat.replace(change, "Sorry, 4418.")
    assert lines(memory, "What is the house number?") == [
        "- user: The house number of our house is 4471.",
        "- assistant: It opens the door of the summer house, too.",
        "- user: Sorry, 4418.",
    ]
    few = memory.context(
        memory.conversation("few"),
        query="What is the house number?",
        project="home",
        budget=ContextBudget(messages_count=2),
    ).part("messages")
    assert few is not None
    assert [word for word in ("4471", "4418", "summer") if word in few.text] == ["4471", "4418"]


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


@pytest.mark.parametrize(
    "query",
    [
        "Where were we with the dinner?",
        "OK, let's continue with the dinner.",
        "How far did we get with the dinner?",
        "What's left to do for the dinner?",
    ],
)
def test_to_go_on_with_something_brings_the_turns_from_where_it_was_spoken_of_last(memory: Memory, query: str) -> None:
    tell(memory, "long ago", *LONG_AGO, ("The dinner for granny is on Sunday.", "OK."), ("I am off.", "Bye!"))
    tell(memory, "other", ("My bike is broken.", "Bring it to the shop."))
    tell(
        memory,
        "last time",
        ("Good morning!", "Hello."),
        ("The dinner needs a dessert.", "I'll think of one."),
        ("She eats no eggs.", FILLER),
        ("Something with plums would suit her.", "Then I write down a crumble, with oats."),
    )
    tell(memory, "another", ("Repair boat number 100, please.", "Done."))
    assert lines(memory, query) == [
        "- user: The dinner for granny is on Sunday.",
        "- user: The dinner needs a dessert.",
        "- assistant: I'll think of one.",
        "- user: She eats no eggs.",
        f"- assistant: {FILLER.strip()}",
        "- user: Something with plums would suit her.",
        "- assistant: Then I write down a crumble, with oats.",
    ]
    assert_sound(memory)


def test_of_many_turns_since_something_was_spoken_of_the_newest_are_shown(memory: Memory) -> None:
    tell(memory, "last time", ("We plan a dinner.", "Good idea."), *LONG_AGO)
    shown = lines(memory, "Where were we with the dinner?")
    assert shown[:2] == ["- user: We plan a dinner.", "- assistant: Good idea."]
    assert [shown[place].split()[5] for place in (2, -2)] == ["76", "99"]


def test_within_a_conversation_to_go_on_is_about_itself(memory: Memory) -> None:
    tell(memory, "last time", *LONG_AGO)
    tell(memory, "now", ("Which module is the worst?", "The importer."))
    assert lines(memory, "Let's continue.") == []
    assert lines(memory, "What did you do yesterday?") != []
    chat = memory.conversation("last time")
    seq = memory.show(memory.context(memory.conversation("fresh", project="home"), query="Let's continue."))
    hidden = memory.why(chat.history()[0], missing_from=seq).steps[-1].text
    assert hidden.endswith("asks about earlier conversations as a whole, and the newest turns are shown")


def test_turns_after_a_mere_mention_leave_room_for_what_was_said_of_the_topic(memory: Memory) -> None:
    facts = [
        "For the kitchen renovation we chose oak fronts from Huber.",
        "The kitchen renovation budget is 14,000 euros, 5,000 are paid.",
        "Kitchen renovation: the plumber comes on 3 June.",
        "The kitchen renovation still lacks a permit for the gas pipe.",
    ]
    told = memory.conversation("told", project="home", window_tokens=None)
    for text in (*facts, *(f"Filler {number}: the weather in town {number} was mild." * 4 for number in range(30))):
        told.append("user", text)
        told.append("assistant", "OK, done.")
    later = memory.conversation("later", project="home", window_tokens=None)
    for text in ("I am back from the kitchen renovation shop.", *(f"Rename variable v{n} please." for n in range(60))):
        later.append("user", text)
        later.append("assistant", "OK, done.")
    shown = lines(memory, "Where were we with the kitchen renovation?")
    assert {f"- user: {fact}" for fact in facts} <= set(shown)
    assert sum("Rename" in line for line in shown) > 10
