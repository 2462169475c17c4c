"""Given events, the window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import StoreVersion, fold
from refold.event import ConversationOpened, Event, ForkDropped, ImportedBody, ImportedMessage, StateImported
from refold.message import MessageAppended, Role
from refold.views.scratchpad import NoteAdded, ScratchpadSet
from refold.views.window import EVICTION, WINDOW, MessagesRecalled, Window, WindowCleared, WindowResized
from tests.views.fold import Erased, folded, stamp_of


def opened(window_tokens: int = 100, policy: int = 1) -> ConversationOpened:
    return ConversationOpened((), window_tokens, "counter", policy)


def message(
    name: str, tokens: int, *, calls: tuple[str, ...] = (), answers: str | None = None, pinned: bool = False
) -> MessageAppended:
    role: Role = "assistant" if calls else "tool" if answers else "user"
    return MessageAppended((), name, role, tokens, pinned, calls, answers, f"text of {name}")


def ids(window: Window) -> str:
    return "".join(message.id for message in window.live())


CASES: dict[str, tuple[list[Event | Erased], str, int]] = {
    "opened": ([opened()], "", 0),
    "messages": ([opened(), message("a", 40), message("b", 60)], "ab", 100),
    "one too many": ([opened(), message("a", 40), message("b", 60), message("c", 1)], "bc", 61),
    "a group": (
        [opened(), message("a", 10, calls=("x",)), message("b", 10, answers="x"), message("c", 81)],
        "c",
        81,
    ),
    "a pin": ([opened(), message("a", 10, pinned=True), message("b", 60), message("c", 60)], "ac", 70),
    "cleared": ([opened(), message("a", 10, pinned=True), WindowCleared(())], "", 0),
    "resized": ([opened(), message("a", 40), message("b", 60), WindowResized((), 60)], "b", 60),
    "dropped": ([opened(), message("a", 40), ForkDropped(())], "", 0),
    "an erased message keeps its place and its tokens": (
        [opened(), message("a", 40), Erased(message("b", 40)), message("c", 20), message("d", 20)],
        "bcd",
        80,
    ),
    "an erased call still leads its answers": (
        [opened(), Erased(message("a", 10, calls=("x",))), message("b", 10, answers="x"), message("c", 81)],
        "c",
        81,
    ),
    "an erased pin still holds": (
        [opened(), Erased(message("a", 10, pinned=True)), message("b", 60), message("c", 60)],
        "ac",
        70,
    ),
}


@st.composite
def conversations(draw: st.DrawFn) -> list[MessageAppended]:
    """Messages of which some call, answer or are pinned."""
    found: list[MessageAppended] = []
    for place in range(draw(st.integers(1, 30))):
        tokens, kind = draw(st.integers(0, 60)), draw(st.sampled_from(["plain"] * 8 + ["call", "answer", "pin"]))
        calls, answers = (draw(st.sampled_from("xy")),) if kind == "call" else (), None
        if kind == "answer":
            answers = draw(st.sampled_from("xyz"))
        found.append(message(f"m{place}", tokens, calls=calls, answers=answers, pinned=kind == "pin"))
    return found


@given(
    conversations(),
    st.lists(st.integers(1, 12), min_size=1),
    st.sampled_from(sorted(EVICTION)),
    st.lists(st.integers(0, 29), max_size=8),
)
def test_a_run_of_messages_is_folded_as_each_of_them_is(
    messages: list[MessageAppended], lengths: list[int], policy: int, recalled: list[int]
) -> None:
    alone, together = (folded("conversation", opened(policy=policy)) for _ in range(2))
    stamps = [stamp_of(2 * place, "conversation/x") for place in range(1, 1 + len(messages))]
    lengths, recalled, begin = lengths.copy(), recalled.copy(), 0
    while begin < len(messages):
        end = begin + (lengths.pop() if lengths else len(messages))
        fold.fold_run(together, stamps[begin:end], messages[begin:end])
        for stamp, event in zip(stamps[begin:end], messages[begin:end], strict=True):
            fold.fold(alone, stamp, event)
        if recalled:
            found = MessagesRecalled((), (f"m{recalled.pop()}",))
            for state in (alone, together):
                fold.fold(state, stamp_of(2 * end + 1, "conversation/x"), found)
        first, second = alone.part(WINDOW), together.part(WINDOW)
        assert (second.live(), second.tokens, fold.pack(together)) == (first.live(), first.tokens, fold.pack(alone))
        begin = end


@pytest.mark.parametrize("what", CASES)
def test_the_state_after_events(what: str) -> None:
    events, left, tokens = CASES[what]
    window = folded("conversation", *events).part(WINDOW)
    assert (ids(window), window.tokens) == (left, tokens)


def test_an_erased_message_has_no_text_and_says_so() -> None:
    window = folded("conversation", opened(), Erased(message("a", 5))).part(WINDOW)
    only = window.live()[0]
    assert (only.content, only.tokens, only.role, only.erased) == (None, 5, "user", True)


def imported(*bodies: ImportedBody) -> StateImported:
    messages = (
        ImportedMessage("a", "assistant", 3, False, ("x",), None, 7, 7),  # noqa: FBT003 - a row of a table
        ImportedMessage("b", "tool", 4, True, (), "x", 8, 8),  # noqa: FBT003 - as above
    )
    return StateImported((), 50, "counter", 1, messages, bodies)


class TestImported:
    BODIES = (ImportedBody("text of a"), ImportedBody("text of b"))

    def test_replaces_what_was_there(self) -> None:
        window = folded("conversation", opened(), message("z", 1), imported(*self.BODIES)).part(WINDOW)
        assert (ids(window), window.tokens, window.window_tokens) == ("ab", 7, 50)
        assert [held.content for held in window.live()] == ["text of a", "text of b"]
        assert [held.time_ns for held in window.live()] == [7, 8]

    def test_keeps_groups_and_pins(self) -> None:
        window = folded("conversation", imported(*self.BODIES), message("c", 43), message("d", 1)).part(WINDOW)
        assert ids(window) == "abd"
        assert window.pinned_tokens == 7

    def test_without_bodies_it_was_erased(self) -> None:
        window = folded("conversation", imported()).part(WINDOW)
        assert (ids(window), [held.content for held in window.live()]) == ("ab", [None, None])

    def test_messages_that_leave_one_by_one_still_pack(self) -> None:
        rows = tuple(ImportedMessage(name, "user", 10, False, (), None, 1, 1) for name in "abc")  # noqa: FBT003 - a table
        event = StateImported((), 40, "counter", 1, rows, tuple(ImportedBody(name) for name in "abc"))
        window = folded("conversation", event, message("d", 15), message("e", 10), message("f", 25)).part(WINDOW)
        assert ids(window) == "ef"


def test_a_policy_of_a_later_refold_is_refused_and_not_guessed() -> None:
    state = folded("conversation", opened(policy=9), message("a", 50))
    with pytest.raises(StoreVersion, match="policy 9, which this refold does not know; upgrade it"):
        fold.fold(state, stamp_of(3, "conversation/x"), message("b", 60))


def test_evictions_are_the_same_whatever_was_erased() -> None:
    events = [opened(30), *(message(name, 10) for name in "abcdef")]
    expected = ids(folded("conversation", *events).part(WINDOW))
    for place in range(1, len(events)):
        blanked = [Erased(event) if at == place else event for at, event in enumerate(events)]
        assert ids(folded("conversation", *blanked).part(WINDOW)) == expected


def test_what_a_person_compares_holds_what_was_given() -> None:
    plain = fold.plain(folded("conversation", opened(), message("a", 5)))["window"]
    assert plain == {
        "window_tokens": 100,
        "tokens": 5,
        "messages": {"a": {"seq": 2, "role": "user", "content": "text of a", "tokens": 5}},
    }


def test_its_messages_are_packed_beside_what_other_views_point_to() -> None:
    """A conversation's row points to the events of several views; each takes its own."""
    scratch = [ScratchpadSet((), 0, 0, "k", "v" * 1_000), NoteAdded((), "one"), NoteAdded((), "two")]
    state = folded("conversation", opened(), message("a", 1), message("b", 1), *scratch, message("c", 1))
    assert ids(state.part(WINDOW)) == "abc"
