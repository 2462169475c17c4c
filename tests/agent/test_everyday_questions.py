"""What people ask about themselves is answered by what they said in another session, and small talk by nothing."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold import Memory
from tests.support.memories import assert_sound

pytestmark = pytest.mark.usefixtures("ranked")

ANSWERS = {
    "What is my name?": "My name is Alice.",
    "what is my name": "My name is Alice.",
    "And what's my name?": "My name is Alice.",
    "Whats my name?": "My name is Alice.",
    "Do you know my name?": "My name is Alice.",
    "Do you remember my name?": "My name is Alice.",
    "Can you tell me what my name is?": "My name is Alice.",
    "What\u2019s my last name?": "My last name is Larsen.",
    "What is my job?": "My job is nurse.",
    "What's my job again?": "My job is nurse.",
    "Where do I work?": "I work at Siemens.",
    "Where did I work last year?": "I worked at Bosch.",
    "What do I love?": "I love opera.",
    "What do I like?": "I like rowing.",
    "What don't I like?": "I do not like rain.",
    "What do I want?": "I want a sailing boat.",
    "What do we need to buy?": "We need milk.",
    "What did I buy?": "Yesterday I bought a tent.",
    "What do I enjoy most?": "I enjoy baking.",
    "How old am I?": "I am 34 years old.",
    "Who are my friends?": "My friends are Tom and Ida.",
    "Where is our home?": "Our home is near the harbour.",
    "What's her job?": "Her job is judge.",
    "Where do I live?": "I live in Bergen with my two kids.",
    "What's my dog's name?": "My dog is called Rex.",
    "What\u2019s my dog\u2019s name?": "My dog is called Rex.",
    "What is the name of my dog?": "My dog is called Rex.",
    "What do I call my dog?": "My dog is called Rex.",
    "Where does my wife work?": "My wife is a surgeon.",
    "What doesn't my wife eat?": "My wife is a vegetarian and eats no fish.",
    "What mustn't I eat?": "I mustn't eat nuts.",
    "What am I allergic to?": "I'm allergic to penicillin.",
    "When's my birthday?": "My birthday is on 3 May.",
    "Which car do we have?": "Our car is a red Volvo.",
    "Wie hei\u00dfe ich?": "Ich hei\u00dfe Alice.",
    "Wie hei\u00dft mein Hund?": "Mein Hund hei\u00dft Rex.",
    "Wo arbeite ich?": "Ich arbeite bei Siemens.",
    "Was ist mein Beruf?": "Mein Beruf ist Krankenschwester.",
    "Wo wohne ich?": "Ich wohne in Bergen.",
    "Was mag mein Sohn?": "Mein Sohn mag Autos.",
}
SMALL_TALK = [
    "How are you?",
    "Thanks!",
    "What do you think?",
    "Tell me more",
    "What is your name?",
    "What do you need?",
    "How does it work?",
    "Does it work now?",
    "Why doesn't it work?",
    "Did you like it?",
    "Do we need this?",
    "What time is it?",
    "What happened?",
    "How was your day?",
    "Why did you do that?",
    "Can you help me?",
    "Shall we go home?",
    "I'd love that, let's do it!",
    "My name is Alice.",
    "Don't you remember?",
    "Wie geht es dir?",
    "Danke!",
]


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    """A memory in which everything was said once, some words of it in questions and small talk, too."""
    with Memory() as memory:
        told = memory.conversation("told", project="home")
        for text in dict.fromkeys(ANSWERS.values()):
            told.append("user", text)
            told.append("assistant", "Good to know, thank you! Is there anything else?")
        talk = memory.conversation("talk", project="home")
        for number in range(20):
            talk.append("user", "Thanks, let's go on. What do you think, how does that work?")
            talk.append("assistant", f"I think that helps, let us talk about it tomorrow, as you said. {number}")
        yield memory
        assert_sound(memory)


def earlier(memory: Memory, question: str) -> str:
    """Ask a question in a session of its own; return the earlier messages that it brings."""
    chat = memory.conversation(question.replace("?", ""), project="home")
    part = memory.context(chat, query=question).part("messages")
    return "" if part is None else part.text


def earlier_among_chapters(text: str, question: str) -> str:
    """What a question brings from a conversation of which one message is the text and others are about a book."""
    with Memory() as memory:
        told = memory.conversation("told", project="home", window_tokens=None)
        for number in range(60):
            told.append("user", text if number == 30 else f"Today I read chapter {number} of the book on history.")
            told.append("assistant", f"That sounds like a long chapter {number}.")
        return earlier(memory, question)


@pytest.mark.parametrize("question", ANSWERS)
def test_a_question_brings_what_was_said_in_another_session(memory: Memory, question: str) -> None:
    assert ANSWERS[question] in earlier(memory, question)


@pytest.mark.parametrize(
    "text", ["Hi! I'm Lena, I work on the ferries.", "Call me Lena.", "Ich bin Lena.", "Je m'appelle Lena."]
)
def test_a_question_for_a_name_brings_who_the_user_said_to_be(text: str) -> None:
    with Memory() as memory:
        told = memory.conversation("told", project="home", window_tokens=None)
        for number in range(60):
            told.append("user", f"I'm reading chapter {number} of the book on history, and I am tired of its author.")
        told.append("user", text)
        memory.conversation("other", project="home").append("assistant", "I am Ava.")
        told.append("user", "My son's name is Elias.")
        for number in range(60):
            told.append("user", f"I'm reading chapter {number} of the book on boats, and I am fond of its author.")
        shown = earlier(memory, "What's my name?")
        assert [each in shown for each in (text, "Elias", "chapter", "Ava")] == [True, True, False, False]


@pytest.mark.parametrize("text", SMALL_TALK)
def test_small_talk_brings_nothing(memory: Memory, text: str) -> None:
    assert earlier(memory, text) == ""


def test_a_statement_comes_before_what_only_asks() -> None:
    with Memory() as memory:
        for number in range(12):
            memory.conversation(f"asked {number}", project="home").append("user", f"What is my name, take {number}?")
        memory.conversation("told", project="home").append("user", "My name is Alice.")
        chat = memory.conversation("now", project="home")
        memory.settings.set("messages_max_injected", 1)
        part = memory.context(chat, query="What is my name?").part("messages")
        assert part is not None
        assert "Alice" in part.text


def test_a_word_that_many_messages_have_brings_the_best_few() -> None:
    with Memory() as memory:
        told = memory.conversation("told", project="home", window_tokens=None)
        for number in range(11):
            told.append("user", f"Department {number} asked whether its budget is affected this time.")
        told.append("user", "The steering committee has cut our budget to 325k euro.")
        for number in range(300):
            told.append("user", f"Crate {number} went to the ramp, and the driver signed for it.")
        for question in ("What is our budget?", "How much is our total budget now?"):
            assert earlier(memory, question).count("budget") == 8
            assert "325k" in earlier(memory, question)
        assert earlier(memory, "Our budget!") == ""


@pytest.mark.parametrize("name", ["Mia", "Ben", "Dan", "June", "Emma"])
def test_a_person_whose_name_is_another_word_is_spoken_of(name: str) -> None:
    with Memory() as memory:
        told = memory.conversation("told", project="home", window_tokens=None)
        for number in range(100):
            told.append("user", f"Chapter {number} of my novel: the keeper counts the boats and writes to his sister.")
            told.append("user", f"{name} got a terrible rash from peanuts." if number == 30 else "A calm scene.")
        for question in (f"What do we know about {name}?", f"What's new with {name}?", f"And {name}?"):
            assert "peanuts" in earlier(memory, question)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Our guide in M\u00e1laga is Jos\u00e9.", "Is Jose our guide in Malaga?"),
        ("Frau M\u00fcller f\u00e4hrt nach K\u00f6ln.", "Fahrt Frau Muller nach Koln?"),
        ("Our hotel in \u0141\u00f3d\u017a has a sauna.", "Which hotel in Lodz has a sauna?"),
        (
            "\u0415\u0451 \u043a\u043e\u0442 \u0437\u043e\u0432\u0451\u0442\u0441\u044f \u0411\u0438\u043c.",
            "\u041a\u0430\u043a \u0437\u043e\u0432\u0435\u0442\u0441\u044f \u0435\u0435 \u043a\u043e\u0442?",
        ),
    ],
)
def test_accents_are_not_needed(text: str, question: str) -> None:
    with Memory() as memory:
        memory.conversation("told", project="home").append("user", text)
        for number in range(60):
            memory.conversation("told").append(
                "user", f"Today I cooked dish {number}, and it came out nicely with herbs."
            )
        assert text in earlier(memory, question)
        assert memory.search_messages(question, top_k=1)[0].entry.content == text


@pytest.mark.parametrize(
    "question",
    [
        "What about the mortgage?",
        "What did I say last week about the mortgage?",
        "When did I mention the mortgage?",
        "Remind me of the mortgage",
        "Tell me about the mortgage",
        "What was the rate of our mortgage in February 2023?",
    ],
)
def test_a_request_for_what_was_said_brings_it(question: str) -> None:
    with Memory() as memory:
        told = memory.conversation("told", project="home")
        for number in range(60):
            told.append("user", f"Today I cooked dish {number}, and it came out nicely with herbs.")
        told.append("user", "Our mortgage is fixed at 3.4 percent until 2033.")
        assert "3.4 percent" in earlier(memory, question)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Am Donnerstag um 15:30 hat Mila einen Zahnarzttermin.", "Wann ist der Termin beim Zahnarzt?"),
        ("Die M\u00fcllabfuhr kommt jeden zweiten Freitag.", "Wann wird der M\u00fcll abgeholt?"),
        ("Mein Autoschl\u00fcssel liegt in der blauen Schale.", "Wo liegen die Schl\u00fcssel vom Auto?"),
        ("Die Heizungswartung ist am 12. Mai.", "Wann wird die Heizung gewartet?"),
        ("Die Wartung der Heizung ist am 12. Mai.", "Wann ist die Heizungswartung?"),
        ("Unser Kinderarzt hei\u00dft Dr. Sommer.", "Wie hei\u00dft der Arzt der Kinder?"),
        ("De tandartsafspraak is op vrijdag.", "Wanneer is de afspraak bij de tandarts?"),
    ],
)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_word_is_found_in_compounds(tmp_path: Path, text: str, question: str, *, is_known: bool) -> None:
    with Memory(tmp_path / "store") as memory:
        told = memory.conversation("told", project="home", window_tokens=None)
        for number in range(300):
            said = "Heute habe ich lange gearbeitet und dann mit Freude gekocht, wie sonst auch."
            told.append("user", text if number == 30 else f"{number}: {said}")
        assert text in earlier(memory, question)
        memory.conversation("asked", project="home").append("user", question)
        assert text in earlier(memory, question), "what only asks does not say it"
    if is_known:
        with Memory(tmp_path / "store") as memory:
            assert text in earlier(memory, question)


def test_a_word_that_is_said_brings_no_compounds_of_it() -> None:
    with Memory() as memory:
        told = memory.conversation("told", project="home", window_tokens=None)
        told.append("user", "Our lighthouse is on the northern island.")
        told.append("user", "The light is broken.")
        for number in range(100):
            told.append("user", f"Dish {number} came out nicely with herbs.")
        assert "lighthouse" not in earlier(memory, "Is the light broken?")


def test_german_questions_bring_their_answers_and_little_else() -> None:
    with Memory() as memory:
        told = memory.conversation("told", project="home", window_tokens=None)
        for number in range(100):
            told.append("user", f"Heute habe ich im Laden die Ware Nummer {number} gesehen.")
        told.append("user", "Mein Geburtstag ist am 9. Juli.")
        told.append("user", "Die Miete betr\u00e4gt 950 Euro.")
        for question, answer in {
            "Wann habe ich Geburtstag?": "9. Juli",
            "Was kostet die Miete?": "950 Euro",
            "Was wei\u00dft du \u00fcber unsere Miete?": "950 Euro",
        }.items():
            assert answer in earlier(memory, question), question


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("I am allergic to peanuts.", "Can I eat peanuts?"),
        ("Soy al\u00e9rgica a los cacahuetes.", "\u00bfPuedo comer cacahuetes?"),
        ("Je suis allergique aux cacahu\u00e8tes.", "Puis-je manger des cacahu\u00e8tes ?"),
        ("Ich bin gegen Erdn\u00fcsse allergisch.", "Darf ich Erdn\u00fcsse essen?"),
        ("Sou al\u00e9rgica a amendoins.", "Eu posso comer amendoins?"),
        ("Sono allergica alle arachidi.", "Potrei mangiare le arachidi?"),
        ("Ik ben allergisch voor pinda's.", "Kunnen wij pinda's eten?"),
        (
            "\u0633\u064a\u0627\u0631\u062a\u064a \u062a\u0648\u064a\u0648\u062a\u0627 \u0632\u0631\u0642\u0627\u0621.",
            "\u0645\u0627 \u0644\u0648\u0646 \u0633\u064a\u0627\u0631\u062a\u064a\u061f",
        ),
        (
            "\u041c\u043e\u044f \u043c\u0430\u0448\u0438\u043d\u0430 \u0441\u0438\u043d\u044f\u044f.",
            "\u041a\u0430\u043a\u0430\u044f \u0443 \u043c\u0435\u043d\u044f \u043c\u0430\u0448\u0438\u043d\u0430?",
        ),
    ],
)
def test_question_words_and_modal_verbs_of_other_languages_are_no_subject(text: str, question: str) -> None:
    assert text in earlier_among_chapters(text, question)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("The forklift stands still at night.", "What did you suggest, advise or propose against the forklift?"),
        ("Mein Schreibteil hatte nur 55 Punkte.", "Was hat man mir zuletzt gegen den Schreibteil vorgeschlagen?"),
        ("Mon accent est encore fort.", "Qu'est-ce que tu m'as d\u00e9j\u00e0 conseill\u00e9 pour l'accent ?"),
        (
            "El acento me cuesta mucho.",
            "\u00bfQu\u00e9 me recomendaste tambi\u00e9n contra el acento, qu\u00e9 dijiste?",
        ),
        ("L'accento mi d\u00e0 problemi.", "Che cosa m'hai consigliato e suggerito per la forza dell'accento?"),
    ],
)
def test_what_was_proposed_is_found_by_what_it_was_for(text: str, question: str) -> None:
    assert text in earlier_among_chapters(text, question)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("The proposal must be in by Friday noon.", "When is the proposal due?"),
        ("The proposal must be in by Friday noon.", "Is our final proposal ready?"),
        ("The letter of recommendation is from Hahn.", "Who wrote my recommendation?"),
        ("We rent the van from Bolt.", "How much is the van per day?"),
        ("The die for the press is in drawer 14.", "In which drawer is the die, per the rules?"),
        ("My hat is from Stetson.", "Did I get the hat at hats.com or in LA?"),
    ],
)
def test_a_noun_that_is_also_a_verb_or_a_word_of_another_language_is_a_subject(text: str, question: str) -> None:
    assert text in earlier_among_chapters(text, question)


@pytest.mark.parametrize("sentences", [5, 60, 100])
def test_a_long_message_is_brought_back(sentences: int) -> None:
    generator = random.Random(2)
    words = "meeting budget report quarter team project results customers sales growth plan review".split()  # noqa: SIM905 - shorter

    def chatter(count: int) -> str:
        return " ".join(" ".join(generator.choices(words, k=10)).capitalize() + "." for _ in range(count))

    with Memory() as memory:
        text = f"{chatter(sentences // 2)} The Zurich warehouse lease expires in April. {chatter(sentences // 2)}"
        memory.conversation("mail", project="home").append("user", text)
        for number in range(30):
            memory.conversation(f"other {number}", project="home").append("user", chatter(2))
        assert "expires in April" in earlier(memory, "When does the Zurich warehouse lease expire?")
