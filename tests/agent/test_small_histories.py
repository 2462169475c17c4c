"""While users have said little, a question in other words than its answer brings all of it."""

import pytest

from refold import Memory
from tests.support.memories import assert_sound

SESSIONS = {
    "move": (
        "Hi, I'm Jonas and I just moved to Utrecht.",
        "I start at the city library next month, as an archivist.",
        "My partner Mira is expecting a baby in June.",
        "By the way I can't stand coriander.",
    ),
    "week": (
        "We bought a used Skoda last weekend for 7,400 euros.",
        "I play the cello in an amateur orchestra on Wednesdays.",
        "The plumber comes between 8 and 10.",
        "I have a cat named Pixel who needs insulin twice a day.",
    ),
}
ANSWERS = {
    "In which town is our home?": "Utrecht",
    "When is the kid due?": "June",
    "Which herb should you leave out of my food?": "coriander",
    "Plan a dinner without things I dislike.": "coriander",
    "What car do we have?": "Skoda",
    "What instrument do I practise?": "cello",
    "When does the craftsman arrive for the pipes?": "plumber",
    "Which medicine does my pet get?": "insulin",
}
EVERYDAY = (
    *("Who is on call?", "Who's on call this week?", "When do we go live?", "When does it start?", "When does it end?"),
    *("What time do we meet?", "When is she coming home?", "How many do I take a day?", "How many do we have?"),
    *("Where did I leave them?", "What did he say?", "Did he say yes?", "Who is the new guy?", "Will she call back?"),
    *(
        "Did I get it?",
        "Did I get the job?",
        "Who said yes?",
        "What time is it at?",
        "Who called?",
        "When is the call?",
    ),
    *("What day do we go?", "What is new?", "What do I take every day?", "Who is coming?", "What's on today?"),
    *("How long does it last?", "What's the time of the call?", "How often do I take it?", "Is the new guy good?"),
    *("What's up with the call?", "When does my day start?", "Who's on?", "Where am I?", "Did I tell you when we go?"),
    *("Do you know who called?", "Which day was it?", "who is on call", "Is anyone on call this week?"),
)
ABOUT_THE_USER = (
    "What do you know about me?",
    "Who am I?",
    "What did I tell you?",
    "Do you remember me?",
    "What did I tell you last time?",
    "Tell me something about myself.",
    "Was wei\u00dft du \u00fcber mich?",
    "Que sais-tu de moi ?",
    "\u00bfQu\u00e9 sabes de m\u00ed?",
    "Cosa sai di me?",
    "O que voc\u00ea sabe sobre mim?",
    "Wat weet je over mij?",
    "\u4f60\u8fd8\u8bb0\u5f97\u6211\u5417\uff1f",
    "\u79c1\u306e\u3053\u3068\u3092\u4f55\u3092\u899a\u3048\u3066\u3044\u307e\u3059\u304b\uff1f",
)
ABOUT_THE_PAST = (
    "What did we talk about last time?",
    "Summarize our previous conversations.",
    "Wor\u00fcber haben wir letztes Mal gesprochen?",
)
TALK = (
    "Hi again!",
    "Thanks!",
    "How are you?",
    "Tell me more",
    "What do you think?",
    "Great, let's do that.",
    "Tell me a joke",
    "Haha cool",
    "Why?",
    "Really?",
    "What a day!",
    "Who are you?",
    "Can you help me with this?",
    "Does that work?",
    "That's hilarious!",
    "Danke sch\u00f6n!",
    "Wie geht's?",
    "Merci beaucoup !",
    "Bonjour, \u00e7a va ?",
    "Muchas gracias",
    "Come stai?",
    "Tudo bem?",
    "Dank je wel!",
    "Erz\u00e4hl mir einen Witz",
    "\u0421\u043f\u0430\u0441\u0438\u0431\u043e!",
)


@pytest.fixture
def told(memory: Memory) -> Memory:
    for name, texts in SESSIONS.items():
        chat = memory.conversation(name, project="home")
        for text in texts:
            chat.append("user", text)
            chat.append("assistant", "Good to know, as that matters most.")
        chat.append("user", "Which of these did I ask about?")
    return memory


def earlier(memory: Memory, query: str) -> str:
    part = memory.context(memory.conversation("now", project="home"), query=query).part("messages")
    return "" if part is None else part.text


def test_a_question_in_other_words_brings_all_that_users_said(told: Memory) -> None:
    for question, answer in ANSWERS.items():
        text = earlier(told, question)
        assert answer in text, question
        assert "matters most" not in text
        assert "did I ask about" not in text
    assert_sound(told)


@pytest.mark.parametrize("question", EVERYDAY)
def test_a_question_of_everyday_words_alone_brings_all_that_users_said(told: Memory, question: str) -> None:
    text = earlier(told, question)
    assert all(said in text for texts in SESSIONS.values() for said in texts)


def test_small_talk_brings_nothing(told: Memory) -> None:
    assert [earlier(told, text) for text in TALK] == [""] * len(TALK)
    for text in ("Which joke did I tell you?", "Tell me a story about my cat", "Danke, was isst Mira?"):
        assert "coriander" in earlier(told, text)


@pytest.mark.parametrize("question", [*ABOUT_THE_USER, *ABOUT_THE_PAST])
def test_a_question_about_oneself_or_the_past_brings_all_that_users_said(told: Memory, question: str) -> None:
    text = earlier(told, question)
    assert all(said in text for texts in SESSIONS.values() for said in texts)
    assert_sound(told)


@pytest.mark.parametrize("question", ABOUT_THE_USER)
def test_in_a_large_history_a_question_about_oneself_brings_the_newest_that_users_said(question: str) -> None:
    with Memory() as memory:
        chat = memory.conversation("told", project="home", window_tokens=None)
        for number in range(200):
            chat.append("user", f"Today I repaired boat number {number} with some tar.")
            chat.append("assistant", "Good work.")
        text = earlier(memory, question)
        assert "boat number 199 " in text
        assert 20 < text.count("- user: ") < 100
        assert "boat number 0 " not in text
        assert [earlier(memory, talk) for talk in TALK] == [""] * len(TALK)
        seq = memory.show(memory.context(memory.conversation("now", project="home"), query=question))
        assert memory.rebuild(seq).matches
        hidden = memory.why(chat.window()[0], missing_from=seq).steps[-1].text
        assert hidden.endswith("asks about the user as a whole, and the newest of what users said is shown")


def test_what_users_asked_comes_with_the_answers(memory: Memory) -> None:
    chat = memory.conversation("kitchen", project="home")
    for question, answer in {
        "Which flour should I buy for baguettes?": "Take T65 from Shipton Mill.",
        "How many cups of sugar for the brioche?": "Three cups.",
        "How long does a letter to a mill take?": "Well. " + "It depends on the post of the country. " * 60,
    }.items():
        chat.append("user", question)
        chat.append("assistant", answer)
    expected = [
        "- user: Which flour should I buy for baguettes?",
        "- assistant: Take T65 from Shipton Mill.",
        "- user: How many cups of sugar for the brioche?",
        "- assistant: Three cups.",
    ]
    for question in ("Which herb should you leave out?", *ABOUT_THE_USER):
        assert earlier(memory, question).splitlines()[4:] == expected, question
    for question in ABOUT_THE_PAST:
        lines = earlier(memory, question).splitlines()[4:]
        assert lines[:-1] == [*expected, "- user: How long does a letter to a mill take?"], question
        assert lines[-1].startswith("- assistant: Well. It depends on the post")


def test_what_answers_the_question_comes_first_where_not_all_has_room(memory: Memory) -> None:
    chat = memory.conversation("told", project="home")
    chat.append("user", "We sail on Tuesday.")
    chat.append("user", "Run the tests, will you?")
    chat.append("assistant", "The whole suite takes 4 minutes and 12 seconds.")
    for number in range(60):
        chat.append("user", f"Is boat number {number} in the harbour already?")
        chat.append("assistant", f"Boat {number} came home at noon with some fish on board.")
    context = memory.context(memory.conversation("now", project="home"), query="How long does the suite run?")
    part = context.part("messages")
    assert part is not None
    assert "4 minutes" in part.text
    shown = part.text.count("\n- ")
    assert 20 < shown < 100
    assert context.left_out == {"messages": 123 - shown}
    assert memory.rebuild(memory.show(context)).matches


def test_what_is_shown_for_its_words_is_not_counted_as_left_out(memory: Memory) -> None:
    chat = memory.conversation("told", project="home")
    chat.append("user", "We sail on Tuesday.")
    for number in range(60):
        chat.append("user", f"Is boat number {number} in the harbour already?")
        chat.append("assistant", f"Boat {number} came home at noon with some fish on board.")
    context = memory.context(memory.conversation("now", project="home"), query="Is any boat in the harbour?")
    part = context.part("messages")
    assert part is not None
    assert part.text.count("\n- ") + context.left_out["messages"] == 121


def test_a_question_that_a_message_answers_brings_the_rest_too(told: Memory) -> None:
    text = earlier(told, "How much was the used Skoda?")
    assert "7,400" in text
    assert "coriander" in text


@pytest.mark.parametrize(
    ("answer", "other", "question"),
    [
        ("You can reach me at 0176 22334455.", "The vet's phone number is 0341 555.", "What is my phone number?"),
        ("Hi! I'm Katharina.", "We adopted a beagle named Bello.", "What is my name?"),
        ("I'm a radiologist at the hospital.", "Good job on that summary!", "What is my job?"),
    ],
)
def test_a_message_that_shares_a_word_does_not_hide_the_one_that_answers(
    memory: Memory, answer: str, other: str, question: str
) -> None:
    for number, text in enumerate((answer, other)):
        chat = memory.conversation(f"day {number}", project="home")
        chat.append("user", text)
        chat.append("assistant", "Okay.")
    assert answer in earlier(memory, question)
    assert other in earlier(memory, question)


def test_a_question_that_was_asked_before_brings_all_again(told: Memory) -> None:
    question = "Which herb should you leave out of my food?"
    chat = told.conversation("before", project="home")
    chat.append("user", question)
    chat.append("assistant", "I do not know which herb you leave out of your food.")
    assert "coriander" in earlier(told, question)
    assert "coriander" in earlier(told, "What herb do I leave out of food?")


def test_it_ends_with_the_room(told: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Skoda" in earlier(told, "What car do we have?")
    monkeypatch.setattr("refold.memory.user_messages._WHOLE_WORDS_MAX", 30)
    assert earlier(told, "What car do we have?") == ""


@pytest.mark.parametrize("query", ["What is the cheapest purchase?", ABOUT_THE_USER[0]])
def test_all_of_many_short_messages_is_shown(memory: Memory, query: str) -> None:
    chat = memory.conversation("told", project="home")
    for number in range(120):
        chat.append("user", f"Thing {number}: {number} kroner.")
    context = memory.context(memory.conversation("now", project="home"), query=query)
    part = context.part("messages")
    assert part is not None
    assert (part.text.count("- user: "), part.left_out, context.left_out) == (120, 0, {})
    assert memory.rebuild(memory.show(context)).matches


def test_a_bound_of_few_messages_shows_the_newest_and_counts_the_others(told: Memory) -> None:
    count = sum(map(len, SESSIONS.values()))
    told.settings.set("messages_max_injected", 3)
    context = told.context(told.conversation("now", project="home"), query="Which herb should you leave out?")
    part = context.part("messages")
    assert part is not None
    assert part.text.count("- user: ") == 3
    assert part.text.endswith(f"\n({count - 3} less relevant messages left out)")
    assert context.left_out == {"messages": count - 3}
    seq = told.show(context)
    assert told.rebuild(seq).matches
    hidden = told.why(told.conversation("move").window()[0], missing_from=seq).steps[-1].text
    assert hidden.endswith("the newest of what users said is shown, 3 messages at most")


def test_a_question_about_oneself_counts_the_older_messages(memory: Memory) -> None:
    chat = memory.conversation("told", project="home", window_tokens=None)
    for number in range(200):
        chat.append("user", f"Today I repaired boat number {number} with some tar.")
    context = memory.context(memory.conversation("now", project="home"), query=ABOUT_THE_USER[0])
    part = context.part("messages")
    assert part is not None
    assert part.left_out == context.left_out["messages"] == 200 - part.text.count("- user: ") > 100


def test_what_was_taken_back_and_other_projects_stay_out(told: Memory) -> None:
    told.conversation("work", project="office").append("user", "Our van is a blue Ford.")
    told.erase([told.conversation("week").window()[0]])
    text = earlier(told, "What car do we have?")
    assert "cello" in text
    assert "Ford" not in text
    assert "Skoda" not in text


def test_why_says_so_of_what_it_leaves_out(told: Memory) -> None:
    reply = told.conversation("week").window()[1]
    seq = told.show(told.context(told.conversation("now", project="home"), query="What car do we have?"))
    shown = told.conversation("week").window()[0]
    assert "shows it in its part messages" in told.why(shown, missing_from=seq).steps[-1].text
    hidden = told.why(reply, missing_from=seq).steps[-1].text
    assert hidden.endswith("besides messages with its words, all that users said is shown while that is little")
