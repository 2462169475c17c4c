"""Contexts of what is frozen, of another memory, of odd skills, and shown by many at once."""

import threading
from collections.abc import Callable
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
    assert [part.name for part in built.parts] == ["instructions", "today"]
    assert built.left_out == dict.fromkeys(sorted(names), 1)


class BusyClock:
    """A clock and token counter: each use of either calls ``write``, if it is set, with the text that is counted."""

    id = "busy-1"

    def __init__(self) -> None:
        self.write: Callable[[str], object] | None = None
        self.counts = 0

    def __call__(self) -> int:
        self._interrupt("")
        return 1_764_000_000_000_000_000

    def count(self, text: str) -> int:
        self.counts += 1
        self._interrupt(text)
        return len(text)

    def _interrupt(self, text: str) -> None:
        write, self.write = self.write, None
        if write is not None:
            write(text)
            self.write = write


WRITES: dict[str, Callable[[Memory], object]] = {
    "another user's message": lambda memory: memory.conversation("other", project="p").append("user", "A lamp?"),
    "a message": lambda memory: memory.conversation("c").append("assistant", "The blue lamp is on its way."),
    "a fact": lambda memory: memory.project("p").add(f"The lamp is blue, number {memory.head}"),
    "a fact elsewhere": lambda memory: memory.project("q").add(f"The lamp is red, number {memory.head}"),
    "a key of the profile": lambda memory: memory.profile().set("lamps", str(memory.head)),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_context_is_built_once_of_one_time_while_others_write(name: str) -> None:
    clock = BusyClock()
    with Memory(clock_ns=clock, token_counter=clock) as memory:
        chat = memory.conversation("c", project="p", window_tokens=200)
        for number in range(8):
            chat.append("user", f"The lamp of room {number} is broken.")
            memory.project("p").add(f"Room {number} has a lamp")
        chat.append("user", "Which lamp is it?")
        options: dict[str, Any] = {"query": "Which lamp is it?", "budget": 4_000}
        memory.context(chat, **options)
        clock.counts = 0
        memory.context(chat, **options)
        calm = clock.counts
        head, clock.counts = memory.head, 0
        clock.write = lambda _: WRITES[name](memory)
        built = memory.context(chat, **options)
        clock.write = None
        assert head <= built.seq < memory.head
        assert clock.counts < 3 * calm  # Each event that is written counts, too.
        assert built.text == memory.at(built.seq).context(chat, **options).text
        assert memory.rebuild(memory.show(built)).matches


def test_a_context_has_nothing_that_was_erased_meanwhile() -> None:
    clock = BusyClock()
    with Memory(clock_ns=clock, token_counter=clock) as memory:
        chat = memory.conversation("c", project="p")
        secret = memory.project("p").add("The code of the safe is 4711")
        chat.append("user", "What is the code of the safe?")

        def erase(text: str) -> None:
            if "4711" in text:
                memory.erase([secret])

        clock.write = erase
        built = memory.context(chat, query="What is the code of the safe?")
        assert "4711" not in built.text


def test_a_model_is_told_that_the_beginning_of_its_conversation_is_not_shown(memory: Memory) -> None:
    note = "The beginning of this conversation is no longer shown; `conversation_search` finds what was said in it."
    chat = memory.conversation("c", window_tokens=300)
    chat.append("system", "You are a clerk.", pinned=True)
    chat.append("user", "Do not touch the billing schema.", tokens=50)
    chat.append("assistant", "Understood.", tokens=50)
    assert note not in memory.context(chat).text
    chat.append("user", "Run step 0.", tokens=50)
    assert note not in memory.context(chat).text
    cut = memory.context(chat, budget=ContextBudget(tokens=240, parts_tokens=200))
    assert (note in cut.text, cut.left_out["window"] > 0) == (True, True)
    for number in range(1, 5):
        chat.append("user", f"Run step {number}.", tokens=50)
    context = memory.context(chat)
    assert note in context.system
    assert not any("billing" in str(message.content) for message in context.window)
    assert memory.rebuild(memory.show(context)).matches
    assert note not in memory.context(chat, tools=["memory_set"]).text, "without the tool"
    chat.clear_window()
    chat.append("user", "Something else.")
    assert note not in memory.context(chat).text
