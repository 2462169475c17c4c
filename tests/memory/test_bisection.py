"""The event that first made something true, found with few looks at what was: the same as by looking at every seq."""

import random
from collections.abc import Callable

import pytest

from refold import Conversation, InvalidInput, Memory
from refold.message import MessageAppended
from refold.views.profile import ProfileSet


def filled(memory: Memory) -> Conversation:
    """A conversation whose window holds three messages, and other streams between its events."""
    chat = memory.conversation("chat", window_tokens=30)
    for number in range(12):
        chat.append("user", f"message {number}", tokens=10)
        memory.profile().set("count", str(number))
    return chat


def by_hand(memory: Memory, predicate: Callable[[Memory], object], after: int = 0) -> int | None:
    """The first seq at which it is true, by looking at all of them."""
    return next((seq for seq in range(after, memory.head + 1) if predicate(memory.at(seq))), None)


class TestBisect:
    def test_it_finds_the_event_of_a_search_by_hand(self, memory: Memory) -> None:
        chat = filled(memory)
        for number in range(9):
            sought = f"message {number}"
            came = chat.search(sought, top_k=1)[0].entry.seq

            def lacks(then: Conversation, sought: str = sought) -> bool:
                return sought not in [message.content for message in then.window()]

            found = chat.bisect(lacks, after=came)
            assert found is not None
            assert found.stamp.seq == by_hand(memory, lambda then: lacks(then.conversation("chat")), came)
            assert isinstance(found.event, MessageAppended)
            assert found.event.content == f"message {number + 3}"
            assert found == memory.bisect(lambda then: lacks(then.conversation("chat")), after=came)

    def test_it_looks_at_as_many_states_as_the_range_has_digits(self, memory: Memory) -> None:
        filled(memory)
        looked_at: list[int] = []

        def is_late(then: Memory) -> bool:
            looked_at.append(then.head)
            return then.head >= 17

        found = memory.bisect(is_late)
        assert found is not None
        assert found.stamp.seq == 17
        assert len(looked_at) <= 2 + memory.head.bit_length()

    def test_a_predicate_that_turns_often_is_true_at_what_it_finds_and_not_before(self, memory: Memory) -> None:
        profile = memory.profile()
        draw = random.Random(7)
        for _ in range(60):
            profile.set("flag", draw.choice("ab"))
        profile.set("flag", "b")
        found = memory.bisect(lambda then: then.profile().get("flag") == "b")
        assert found is not None
        assert memory.at(found.stamp.seq).profile().get("flag") == "b"
        assert memory.at(found.stamp.seq - 1).profile().get("flag") != "b"

    def test_what_is_not_true_at_the_end_is_not_found(self, memory: Memory) -> None:
        filled(memory)
        assert memory.bisect(lambda _: False) is None
        assert memory.bisect(lambda then: then.head > 9, until=9) is None
        assert memory.at(9).bisect(lambda then: then.head > 9) is None

    def test_what_is_true_at_the_start_is_refused_with_what_to_do(self, memory: Memory) -> None:
        chat = filled(memory)
        with pytest.raises(InvalidInput, match="true at seq 0 already; give an `after`"):
            chat.bisect(lambda then: not then.window())
        with pytest.raises(InvalidInput, match="after is seq 5, behind until, which is seq 4"):
            memory.bisect(lambda _: True, after=5, until=4)
        with pytest.raises(InvalidInput, match="predicate must be a function, not str"):
            memory.bisect("window")  # type: ignore[arg-type]

    def test_a_fork_and_a_branch_are_looked_through_with_what_they_go_on_from(self, memory: Memory) -> None:
        chat = filled(memory)
        fork = chat.fork("fork")
        fork.append("user", "its own", tokens=10)
        found = fork.bisect(lambda then: "its own" in [message.content for message in then.window()])
        assert found is not None
        assert found.stamp.stream == "conversation/fork"
        branch = memory.fork("branch")
        branch.profile().set("count", "in the branch")
        memory.profile().set("count", "in the main line")
        changed = branch.bisect(lambda then: then.profile().get("count") == "in the branch")
        assert changed is not None
        assert isinstance(changed.event, ProfileSet)
        assert changed.event.value == "in the branch"

    def test_nothing_is_written(self, memory: Memory) -> None:
        filled(memory)
        head, digest = memory.head, memory.state_hash()
        memory.bisect(lambda then: then.head > 3)
        assert (memory.head, memory.state_hash()) == (head, digest)
