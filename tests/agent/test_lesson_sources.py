"""The messages that a learned memory cites: an erased one takes along what comes from it, and nothing of others."""

from typing import Any

import pytest

from refold import Memory
from refold.agent import CallableProvider, extract
from refold.agent.providers import JsonResult
from refold.message import Message

NUTS, BADGE, OPENS = "I am allergic to nuts.", "My badge has the number 4711.", "Badge 4711 opens the cellar."


class Learner:
    """A model that learns contents from the messages that it names."""

    id = "fake:1"

    def __init__(self, **lessons: Any) -> None:
        self.lessons, self.asked = lessons, ""
        self.schema: dict[str, Any] = {}

    def complete_json(self, messages: Any, *arguments: Any, **_: Any) -> JsonResult:
        schema = arguments[1]
        self.asked, self.schema = messages[0]["content"], schema["properties"]["memories"]["items"]
        fields = {"category": "fact", "keywords": ["it"], "importance": 0.9}
        items = [
            {"content": content.replace("_", " "), **fields, **({} if numbers is None else {"messages": numbers})}
            for content, numbers in self.lessons.items()
        ]
        return JsonResult({"memories": items})


def talk(memory: Memory, *lines: tuple[str | None, str]) -> list[Message]:
    """Append what users said; what has no name is an answer."""
    room = memory.conversation("room", project="acme")
    return [room.append("user" if name else "assistant", text, name=name) for name, text in lines]


def learn(memory: Memory, **lessons: Any) -> Learner:
    learner = Learner(**lessons)
    room = memory.conversation("room")
    assert len(extract(room, learner, memory=memory, summary=room.session.summary()).ids) == len(lessons)
    return learner


def cited(memory: Memory, said: list[Message]) -> dict[str, list[int]]:
    """Return, by content, the numbers of the messages that a memory cites."""
    numbers = {message.seq: number for number, message in enumerate(said, 1)}
    rows: list[Any] = [memory.event(entry.seq).event for entry in memory.project("acme").list() if entry.seq]
    return {str(row.content): [numbers.get(seq, 0) for seq in row.sources] for row in rows}


def contents(memory: Memory) -> list[str]:
    return [entry.content for entry in memory.project("acme").list()]


def test_an_erased_message_of_one_user_leaves_what_another_one_said(memory: Memory) -> None:
    said = talk(memory, ("ann", NUTS), (None, "Noted."), ("bob", BADGE), (None, OPENS))
    learner = learn(memory, ann_is_allergic_to_nuts=[1], bob_has_badge_4711=[3, 4])
    assert "[1] user (ann): I am allergic" in learner.asked
    assert "[4] assistant: Badge 4711" in learner.asked
    assert "messages" in learner.schema["required"]
    assert cited(memory, said) == {"ann is allergic to nuts": [1], "bob has badge 4711": [3, 4]}
    memory.erase([said[2]])
    assert contents(memory) == ["ann is allergic to nuts"]
    memory.erase([said[0]])
    assert contents(memory) == []


@pytest.mark.parametrize("text", ["4711", "cellar"])
def test_the_text_of_one_user_is_erased_with_their_memory_alone(memory: Memory, text: str) -> None:
    talk(memory, ("ann", NUTS), (None, "Noted."), ("bob", BADGE), (None, OPENS))
    learn(memory, ann_is_allergic_to_nuts=[1], bob_has_badge_4711=[3, 4])
    memory.erase(text=text)
    assert contents(memory) == ["ann is allergic to nuts"]


@pytest.mark.parametrize("numbers", [None, [], [0], [9], [-1], ["x"], "nonsense", [True], [2], {"1": 1}, [1, 9]])
def test_without_numbers_a_memory_cites_the_turns_of_its_user(memory: Memory, numbers: Any) -> None:
    said = talk(memory, ("ann", NUTS), (None, "Noted."), ("bob", BADGE), (None, OPENS))
    learn(memory, ann_is_allergic_to_nuts=numbers)
    assert cited(memory, said) == {"ann is allergic to nuts": [1, 2]}


def test_one_number_may_come_alone_and_as_text(memory: Memory) -> None:
    said = talk(memory, ("ann", NUTS), (None, "Noted."), ("ann", "My cat is called Tom."))
    learn(memory, ann_is_allergic_to_nuts="1", ann_has_a_cat_called_Tom=3)
    assert cited(memory, said) == {"ann is allergic to nuts": [1], "ann has a cat called Tom": [3]}


def test_a_memory_that_has_words_of_another_user_goes_with_these(memory: Memory) -> None:
    said = talk(
        memory, ("ann", NUTS), (None, "Noted."), ("bob", BADGE), ("ann", "Which badge opens it?"), (None, OPENS)
    )
    learn(
        memory,
        nuts_and_badge_4711_matter_to_ann=[1],
        the_badge_4711_opens_the_cellar=[5],
        the_badge_opens_it=[4],
        bob_dislikes_nuts=[1],
    )
    assert cited(memory, said) == {
        "nuts and badge 4711 matter to ann": [1, 3, 4, 5],
        "the badge 4711 opens the cellar": [3, 4, 5],
        "the badge opens it": [4],
        "bob dislikes nuts": [1, 3],
    }


def test_an_answer_is_cited_with_what_it_answers(memory: Memory) -> None:
    said = talk(memory, ("bob", "I had 180 cells."), ("ann", "And I 900."), (None, "One of you has a weak immunity."))
    learn(memory, bobs_immunity_is_weak=[3])
    assert cited(memory, said) == {"bobs immunity is weak": [1, 2, 3]}
    memory.erase([said[0]])
    assert contents(memory) == []


def test_a_memory_with_no_words_of_its_page_cites_all_of_it(memory: Memory) -> None:
    said = talk(memory, ("ann", NUTS), (None, "Noted."), ("bob", BADGE))
    learn(memory, somebody_should_see_a_doctor=[1])
    assert cited(memory, said) == {"somebody should see a doctor": [1, 2, 3]}


@pytest.mark.parametrize(
    ("first", "last", "content"),
    [
        (
            "Ich bin gegen Erdn\u00fcsse allergisch, sagt Dr. Weber.",
            "Wann hat Dr. Weber auf?",
            "Dr. Weber found that the user is allergic to peanuts",
        ),
        (
            "My wife is expecting in March.",
            "We need a bigger car for March.",
            "The user's partner is pregnant; baby due in March",
        ),
    ],
)
def test_a_memory_in_words_that_nobody_said_goes_with_each_message_of_its_user(
    memory: Memory, first: str, last: str, content: str
) -> None:
    said = talk(memory, ("ann", first), (None, "Noted."), ("ann", last), ("bob", BADGE))
    learn(memory, **{content: [3]})
    assert cited(memory, said) == {content: [1, 2, 3]}
    memory.erase([said[0]])
    assert contents(memory) == []


@pytest.mark.parametrize("is_profile", [True, False])
def test_a_memory_that_repeats_a_known_fact_goes_with_the_message_that_gave_it(
    memory: Memory, *, is_profile: bool
) -> None:
    first = memory.conversation("first", project="acme").append("user", "I am allergic to walnuts.")
    if is_profile:
        memory.profile().set("diet", "allergic to walnuts", sources=[first])
    else:
        memory.project("acme").add("The user is allergic to walnuts", sources=[first])
    talk(memory, ("ann", "Plan my birthday party on May 3, please."), ("ann", "At the lake."))
    learn(memory, the_birthday_party_on_May_3_is_without_walnuts=[1], the_party_is_at_the_lake=[2])
    memory.erase([first])
    assert contents(memory) == ["the party is at the lake"]


def test_the_profile_of_one_user_is_not_known_of_another_one(memory: Memory) -> None:
    memory.profile("ann").set("diet", "allergic to nuts")
    chat = memory.conversation("room", project="acme")
    learner = Learner(The_user_is_allergic_to_nuts=[1])
    chat.append("user", NUTS, name="ann")
    alone = extract(chat, learner, memory=memory, profile="ann")
    assert (alone.ids, alone.dropped) == ((), ("item 1: the profile (diet) says it already",))
    chat.append("user", "So am I.", name="bob")
    chat.append("user", "Allergic to nuts.", name="bob")
    assert len(extract(chat, learner, memory=memory, profile="ann").ids) == 1


def test_a_memory_cites_the_notes_that_have_its_words(memory: Memory) -> None:
    said = talk(memory, ("bob", BADGE), (None, OPENS), ("ann", NUTS), ("ann", "Use pnpm."))
    session = memory.conversation("room").session
    session.describe_task("Give bob badge 4711.", sources=[said[0]])
    session.note_finding("The lock file is of pnpm.")
    learn(memory, ann_is_allergic_to_nuts=[3], the_lock_file_is_of_pnpm=[4])
    assert cited(memory, said) == {"ann is allergic to nuts": [3], "the lock file is of pnpm": [0, 4]}
    memory.erase([said[0]])
    assert contents(memory) == ["ann is allergic to nuts", "the lock file is of pnpm"]


def test_a_memory_from_the_task_goes_with_the_message_that_gave_it(memory: Memory) -> None:
    said = talk(memory, ("bob", BADGE), (None, "Noted."))
    learn(memory)
    said += talk(memory, ("ann", NUTS), (None, "Noted, too."))
    assert "4711" in learn(memory, bob_has_badge_4711=[1], ann_is_allergic_to_nuts=[1]).asked
    assert cited(memory, said) == {"bob has badge 4711": [1, 3, 4], "ann is allergic to nuts": [3]}
    memory.erase([said[0]])
    assert contents(memory) == ["ann is allergic to nuts"]


def test_the_same_words_of_two_users_are_a_memory_of_each(memory: Memory) -> None:
    said = talk(memory, ("ann", "I like tea."), (None, "Noted."), ("bob", "I like tea."))
    learn(memory, ann_likes_tea=[1], bob_likes_tea=[3])
    assert [entry.speaker for entry in memory.project("acme").list()] == ["ann", "bob"]
    assert cited(memory, said) == {"ann likes tea": [1], "bob likes tea": [3]}
    memory.erase([said[2]])
    assert contents(memory) == ["ann likes tea"]


def test_a_merged_memory_goes_with_each_message_that_it_comes_from(memory: Memory) -> None:
    said = talk(memory, ("ann", "Deploys happen on Fridays at noon."), (None, "Noted."), ("ann", "Fridays at noon!"))
    project = memory.project("acme")
    extract(
        memory.conversation("room"),
        Learner(Deploys_happen_on_Fridays_at_noon=[1], **{"Deploys_happen_on_Fridays_at_noon, always": [3]}),
        memory=memory,
    )
    assert project.count() == 1
    memory.erase([said[0]])
    assert contents(memory) == []


def test_an_answer_to_an_erased_question_and_messages_of_a_base_are_cited(memory: Memory) -> None:
    said = talk(memory, ("bob", "What opens the cellar?"), (None, OPENS), ("ann", NUTS))
    memory.erase([said[0]])
    learn(memory, badge_4711_opens_the_cellar=[1])
    assert set(cited(memory, said)["badge 4711 opens the cellar"]) >= {2}
    fork = memory.conversation("room").fork("fork")
    fork.append("user", "Nuts are fine for me.", name="bob")
    learner = Learner(bob_likes_nuts=[1])
    assert len(extract(fork, learner, memory=memory).ids) == 1
    assert memory.project("acme").list()[-1].speaker == "bob"


def test_a_fact_in_another_language_is_quoted_from_the_message_that_the_model_names(memory: Memory) -> None:
    chat = memory.conversation("a", project="home")
    said = [
        chat.append("user", text)
        for text in (
            "えびや蟹にアレルギーがあります。",
            "毎週水曜日の夜7時に稽古があります。",
            "ゴミの日は月曜と木曜です",
        )
    ]
    items = [
        {"content": "Is allergic to shellfish", "messages": [1]},
        {"content": "Takes part in training every Wednesday", "messages": [2]},
        {"content": "Plays chess", "messages": [9]},
    ]
    prompts: list[str] = []

    def answer(messages: Any, *_: object) -> Any:
        prompts.append(messages[0]["content"])
        return items

    provider = CallableProvider(answer)
    extract(chat, provider, memory=memory)
    assert "- language: write content and keywords in the language of the conversation\n" in prompts[0]
    quotes = [entry.source_context for entry in memory.project("home").list()]
    assert quotes == [f"user: {said[number].content}" for number in (0, 1, 2)], "the newest if the model names none"
    assert len(memory.project("home").list()) == 3
    memory.erase([said[2]])
    assert memory.project("home").list() == [], "in doubt a memory cites more"
