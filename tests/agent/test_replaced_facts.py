"""An extraction that replaces what was known: the update, its history, and what it must not touch."""

from collections.abc import Callable
from typing import Any

import pytest

from refold import Memory
from refold.agent import CallableProvider, Extracted, default_hooks, extract
from refold.results import SessionSummary
from tests.support.memories import Clock, assert_sound

LEIPZIG = {"category": "fact", "content": "The user lives in Leipzig.", "keywords": ["Leipzig"], "importance": 0.4}


def said(memory: Memory, name: str, *texts: str) -> Any:
    chat = memory.conversation(name, project="acme")
    for text in texts:
        chat.append("user", text)
    return chat


def learn(memory: Memory, chat: Any, *items: Any, asked: list[str] | None = None) -> Extracted:
    def answer(messages: Any, *_: Any) -> Any:
        if asked is not None:
            asked.append(messages[-1]["content"])
        return list(items)

    return extract(chat, CallableProvider(answer), memory=memory)


def contents(memory: Memory) -> list[str]:
    return [entry.content for entry in memory.project("acme").list()]


def test_a_fact_that_replaces_a_known_one_is_an_update_of_it_that_history_and_erasure_know(memory: Memory) -> None:
    project, asked = memory.project("acme"), list[str]()
    first = said(memory, "monday", "I live in Hamburg.")
    learn(
        memory, first, LEIPZIG | {"content": "The user lives in Hamburg.", "keywords": ["Hamburg"], "importance": 0.7}
    )
    (old,) = project.list()
    second = said(memory, "tuesday", "We moved to Leipzig.", "Nice weather.")
    extracted = learn(memory, second, LEIPZIG | {"replaces": 1}, asked=asked)
    assert "\n1. [fact] The user lives in Hamburg.\n" in asked[0]
    (new,) = project.list()
    assert (extracted.ids, extracted.dropped) == ((old.id,), ())
    assert (new.id, new.content, new.importance) == (old.id, "The user lives in Leipzig.", 0.7)
    assert new.source_context == "user: We moved to Leipzig."
    added, updated = (event for event in project.history(old.id) if event.event.sources)
    assert set(updated.event.sources) == {*(message.seq for message in second.window()), added.stamp.seq}
    assert project.at(old.seq or 0).get(old.id) == old
    memory.erase([second.window()[0]])
    assert contents(memory) == []
    assert_sound(memory)


def test_a_later_removal_hides_only_the_message_that_said_it(memory: Memory) -> None:
    project = memory.project("acme")
    old = project.add("The user lives in Hamburg.")
    chat = said(memory, "a", "We moved to Leipzig last week.", "My sister Mia is called after a bridge in Prague.")
    learn(memory, chat, LEIPZIG | {"replaces": 1})
    project.delete(old.id)
    now = memory.conversation("now", project="acme")
    (sister,) = chat.window(last=1)
    for query in ("Where did we move last week, to Leipzig?", "Which bridge is my sister called after?"):
        assert memory.context(now, query=query).seqs == (sister.seq,), query


@pytest.mark.parametrize("number", [2, -1, 99, "two", "1.5", [1], {"id": 1}, True, 10**20, 1.0])
def test_a_number_of_no_known_memory_is_ignored_and_said(memory: Memory, number: Any) -> None:
    memory.project("acme").add("The user lives in Hamburg.")
    extracted = learn(memory, said(memory, "a", "We moved to Leipzig."), LEIPZIG | {"replaces": number})
    assert contents(memory) == ["The user lives in Hamburg.", "The user lives in Leipzig."]
    assert len(extracted.ids) == 1
    assert extracted.dropped == (
        "item 1: what it replaces is none of the known memories, or replaced already; it was added beside them",
    )


@pytest.mark.parametrize("number", [0, None, "", "0"])
def test_a_fact_that_replaces_nothing_is_added(memory: Memory, number: Any) -> None:
    memory.project("acme").add("The user lives in Hamburg.")
    extracted = learn(memory, said(memory, "a", "I work in Leipzig."), LEIPZIG | {"replaces": number})
    assert (len(contents(memory)), extracted.dropped) == (2, ())


def test_a_memory_is_replaced_once(memory: Memory) -> None:
    memory.project("acme").add("The user lives in Hamburg.")
    chat = said(memory, "a", "We moved to Leipzig.")
    extracted = learn(memory, chat, LEIPZIG | {"replaces": "#1"}, {"content": "They live in flat 7.", "replaces": 1})
    assert contents(memory) == ["The user lives in Leipzig.", "They live in flat 7."]
    assert len(extracted.dropped) == 1


OSAKA, TOKYO = (
    "\u30e6\u30fc\u30b6\u30fc\u306f\u5927\u962a\u306b\u4f4f\u3093\u3067\u3044\u308b",
    "\u30e6\u30fc\u30b6\u30fc\u306f\u6771\u4eac\u306b\u4f4f\u3093\u3067\u3044\u308b",
)
ALLERGY, DENTIST = "User is allergic to penicillin", "User's dentist is Dr. Brand"


@pytest.mark.parametrize(
    ("known", "content"),
    [
        ([ALLERGY, DENTIST], "User's dentist is Dr. Wolf"),
        (["User likes tea.", "User likes punk and jazz."], "User likes free jazz."),
        (["Der Benutzer ist allergisch gegen Penicillin", "Zahnarzt: Dr. Brand"], "Zahnarzt des Benutzers: Dr. Wolf"),
    ],
)
def test_a_memory_is_not_replaced_if_another_one_is_plainly_meant(
    memory: Memory, known: list[str], content: str
) -> None:
    for each in known:
        memory.project("acme").add(each)
    extracted = learn(memory, said(memory, "a", content), {"content": content, "replaces": 1})
    assert contents(memory) == [*known, content]
    assert (len(extracted.ids), extracted.replaced) == (1, ())
    assert extracted.dropped[0].endswith("it was added beside them")


@pytest.mark.parametrize(
    ("known", "content"),
    [
        (["User works at Acme.", ALLERGY], "User works at Globex."),
        (["The user's name is Max."], "The user's name is Maxine."),
        (["User has a dog.", "User drives a Fiat."], "User's dog died."),
        (["Ann bought a car."], "Ann buys no car."),
        ([TOKYO], OSAKA),
        (["User works at Siemens", "User's brother works at Bosch"], "User is employed by Bosch"),
        (["The user lives in Berlin.", "The user's office is in Munich."], "The user moved to Munich."),
        (["User is vegetarian", "User eats lunch at noon"], "User eats meat again"),
        (["\u7528\u6237\u4f4f\u5728\u5317\u4eac"], "\u7528\u6237\u642c\u5230\u4e86\u4e0a\u6d77"),
    ],
)
def test_a_memory_that_the_model_names_is_replaced_and_said(memory: Memory, known: list[str], content: str) -> None:
    for each in known:
        memory.project("acme").add(each)
    extracted = learn(memory, said(memory, "a", content), {"content": content, "replaces": 1})
    assert sorted(contents(memory)) == sorted([content, *known[1:]])
    assert (extracted.dropped, extracted.replaced) == ((), ((known[0], content),))


def test_a_correction_that_the_profile_has_already_replaces_the_memory(memory: Memory) -> None:
    memory.project("acme").add("The user's city is Rome")
    memory.profile().set("city", "Paris")
    chat = said(memory, "a", "My city is Paris now, no longer Rome.")
    extracted = learn(memory, chat, {"content": "The user's city is Paris", "replaces": 1})
    assert (extracted.dropped, contents(memory)) == ((), ["The user's city is Paris"])


def test_the_user_is_told_what_was_replaced(memory: Memory) -> None:
    memory.project("acme").add(DENTIST)
    item = {"content": "User's dentist is Dr. Wolf", "replaces": 1}
    hooks = default_hooks(memory, provider=CallableProvider(lambda *_: [item]))
    chat = said(memory, "a", "My new dentist is Dr. Wolf.")
    context = hooks.context(chat, project="acme")
    hooks.fire_session_end(context, SessionSummary(chat.id, "", (), (), {}, 1, success=True))
    assert context.notices == [
        "Learned 1 new fact about this project",
        f"Replaced: {DENTIST!r} by {item['content']!r}",
    ]


def test_what_replaces_a_fact_may_say_less(memory: Memory) -> None:
    project = memory.project("acme")
    pets = project.add("The user has a dog and a cat.")
    chat = said(memory, "a", "The cat died, so only the dog is left.")
    memory.show(memory.context(chat, query="pets"))
    extracted = learn(memory, chat, {"content": "The user has a dog.", "replaces": 1})
    assert (extracted.ids, contents(memory)) == ((pets.id,), ["The user has a dog."])


def test_a_fact_that_holds_again_removes_the_one_that_had_replaced_it(memory: Memory) -> None:
    project = memory.project("acme")
    project.add("The user lives in Hamburg.", importance=0.4)
    project.add("The user lives in Leipzig.", importance=0.9)
    chat = said(memory, "a", "We moved back to Hamburg.")
    memory.show(memory.context(chat, query="home"))
    extracted = learn(memory, chat, {"content": "The user lives in Hamburg.", "replaces": 1})
    assert (extracted.dropped, contents(memory)) == ((), ["The user lives in Hamburg."])


def change(memory: Memory) -> None:
    (entry,) = memory.project("acme").list()
    memory.project("acme").update(entry, content="The user lives in Bremen.")


def remove(memory: Memory) -> None:
    memory.project("acme").clear()


@pytest.mark.parametrize(("meanwhile", "left"), [(change, ["The user lives in Bremen."]), (remove, [])])
def test_a_memory_that_changed_while_the_model_read_is_not_replaced(
    memory: Memory, meanwhile: Callable[[Memory], None], left: list[str]
) -> None:
    memory.project("acme").add("The user lives in Hamburg.")

    def answer(*_: Any) -> Any:
        meanwhile(memory)
        return [LEIPZIG | {"replaces": 1}]

    extracted = extract(said(memory, "a", "We moved to Leipzig."), CallableProvider(answer), memory=memory)
    assert contents(memory) == [*left, "The user lives in Leipzig."]
    assert "has changed since" in extracted.dropped[0]


def test_a_newer_memory_is_not_replaced_by_what_was_said_before_it(memory: Memory) -> None:
    late = said(memory, "late", "We moved to Leipzig.")
    newer = said(memory, "newer", "We moved on to Bremen.")
    learn(memory, newer, LEIPZIG | {"content": "The user lives in Bremen."})
    extracted = learn(memory, late, LEIPZIG | {"replaces": 1})
    assert contents(memory) == ["The user lives in Bremen.", "The user lives in Leipzig."]
    assert "is newer than what was read" in extracted.dropped[0]


def test_what_waits_for_approval_replaces_only_what_waits_too(memory: Memory) -> None:
    project = memory.project("acme")
    memory.settings.set("memory_review_extracted", value=True)
    approved = project.add("The user lives in Hamburg.", importance=0.9)
    waiting = project.add("The user has one child.", status="pending_review")
    chat = said(memory, "a", "We moved to Leipzig, and we have two children now.")
    extracted = learn(memory, chat, LEIPZIG | {"replaces": 1}, {"content": "The user has two children.", "replaces": 2})
    by_id = {entry.id: (entry.content, entry.status) for entry in project.list()}
    assert by_id.pop(approved.id) == ("The user lives in Hamburg.", "active")
    assert by_id.pop(waiting.id) == ("The user has two children.", "pending_review")
    assert list(by_id.values()) == [("The user lives in Leipzig.", "pending_review")]
    assert "was approved" in extracted.dropped[0]


DAY_S = 86_400


def test_a_fact_stands_under_the_day_of_the_message_that_said_it() -> None:
    clock, asked = Clock(1_764_000_000_000_000_000), list[str]()
    with Memory(clock_ns=clock, timezone="Asia/Tokyo") as memory:
        chat = said(memory, "a", "I live in Hamburg, and see the dentist tomorrow.")
        clock.advance(16 * DAY_S)
        chat.append("user", "The weather is nice.")
        dentist = LEIPZIG | {"content": "The user sees the dentist on 2025-11-26.", "keywords": ["dentist"]}
        learn(memory, chat, dentist, LEIPZIG | {"content": "The user lives in Hamburg."}, asked=asked)
        assert "\nTue 2025-11-25:\n[1] user: I live in Hamburg" in asked[0]
        assert "\nThu 2025-12-11:\n[2] user: The weather is nice.\n" in asked[0]
        clock.advance(16 * DAY_S)
        chat.append("user", "We moved to Leipzig.")
        clock.advance(16 * DAY_S)
        chat.append("user", "The weather is nice again.")
        learn(memory, chat, LEIPZIG | {"replaces": 2})
        part = memory.context(memory.conversation("b", project="acme")).part("memories")
        assert part is not None
        assert part.text.partition("\n\n")[2].splitlines() == [
            "Tue 2025-11-25:",
            "- [FACT] The user sees the dentist on 2025-11-26.",
            "Sat 2025-12-27:",
            "- [FACT] The user lives in Leipzig.",
        ]
        assert_sound(memory)
