"""Contexts of what is frozen, of another memory, of odd skills, and shown by many at once."""

import threading
from typing import Any

import msgspec
import pytest

from refold import InvalidInput, Memory
from refold.agent import ContextBudget
from tests.support.memories import assert_sound


class Match(msgspec.Struct):
    name: str
    body: str
    score: float


def test_a_context_of_a_frozen_conversation_is_of_one_time(memory: Memory) -> None:
    chat = memory.conversation("c")
    chat.append("user", "one")
    memory.profile().set("k", "then")
    head = memory.head
    memory.profile().set("k", "now")
    chat.append("user", "two")
    expected = memory.at(head).context(memory.at(head).conversation("c"))
    for built in (memory.context(chat.at(head)), memory.at(head).context(chat)):
        assert built.seq == head
        assert built.text == expected.text
        assert [message.content for message in built.window] == ["one"]
        assert memory.rebuild(memory.show(built)).matches
    with pytest.raises(InvalidInput, match="freeze them alike"):
        memory.at(1).context(chat.at(head))


def test_a_context_of_another_memorys_conversation_is_refused(memory: Memory) -> None:
    with Memory() as other:
        other.add("a")
        other.add("b")
        chat = other.conversation("c")
        with pytest.raises(InvalidInput, match="belongs to another memory"):
            memory.context(chat)
        built = other.context(chat)
        with pytest.raises(InvalidInput, match="this log has no seq 2, at which the context was built"):
            memory.show(built)
    assert memory.head == 0
    fork = memory.fork("b")
    with pytest.raises(InvalidInput, match="belongs to another memory"):
        fork.context(memory.conversation("c"))
    assert memory.fork("b").context(fork.conversation("c")).parts


def test_whoever_shows_a_context_gets_the_seq_of_that_one(memory: Memory) -> None:
    seqs: list[tuple[str, int]] = []
    chat = memory.conversation("c")
    chat.append("user", "x")

    def show(name: str) -> None:
        for number in range(20):
            query = f"{name} {number}"
            seqs.append((query, memory.show(memory.context(chat, query=query))))

    threads = [threading.Thread(target=show, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shown: dict[int, Any] = {found.stamp.seq: found.event for found in chat.events()}
    assert len({seq for _, seq in seqs}) == 80
    assert all(shown[seq].query == query for query, seq in seqs)
    assert_sound(memory)


@pytest.mark.parametrize(
    "skills",
    ["abc", 5, None, ["x"], [5], [None], [("a",)], [("a", "b", "c")], [("a", 5)], [Match("a", "b", float("nan"))]],
)
def test_skills_that_are_none_are_refused(memory: Memory, skills: Any) -> None:
    with pytest.raises(InvalidInput, match="skill"):
        memory.context(memory.conversation("c"), skills=skills)


def test_the_best_skill_stays_in_whichever_order_they_come(memory: Memory) -> None:
    skills = [Match("weak", "w " * 300, 0.5), Match("strong", "s " * 20, 9.0)]
    part = memory.context(memory.conversation("c"), skills=skills, budget=100, tools=()).part("skills")
    assert part is not None
    assert part.text.startswith("[skill:strong]")
    assert part.text.count("[/skill]") == 1


def test_a_part_without_a_budget_is_no_part(memory: Memory) -> None:
    memory.journal().append("note")
    memory.profile().set("k", "v")
    memory.add("fact")
    names = ("notes", "profile", "memories", "skills", "session", "scratchpad")
    budget = ContextBudget(**{f"{name}_chars": 0 for name in names})
    chat = memory.conversation("c")
    chat.session.describe_task("t")
    chat.scratchpad.note("n")
    built = memory.context(chat, skills=[("a", "b")], budget=budget)
    assert [part.name for part in built.parts] == ["instructions"]
    assert built.left_out == dict.fromkeys(sorted(names), 1)
