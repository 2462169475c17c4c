"""The eviction policies that a conversation can be opened with: pure, kept for ever, and blind to what was erased."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from refold import fold
from refold.event import ConversationOpened, Event, Stamp
from refold.message import MessageAppended
from refold.text import sha256
from refold.views.window import (
    POLICIES,
    WINDOW,
    MessagePinned,
    MessageRated,
    MessageRemoved,
    MessagesRecalled,
    WindowCleared,
    WindowResized,
    WindowSummarized,
)
from tests.views.fold import Erased, assert_packs, folded, stamp_of

NAMES = "abcdefghijklmnop"


def message(name: str, tokens: int, *, call: str = "", answers: str | None = None, pinned: bool = False) -> Event:
    role = "tool" if answers else "assistant" if call else "user"
    calls = (call,) if call else ()
    return MessageAppended((), name, role, tokens, pinned, calls, answers, f"text of {name}")  # type: ignore[arg-type]


def opened(policy: int, budget: int = 40) -> Event:
    return ConversationOpened((), budget, "counter", policy)


@some.composite
def histories(draw: some.DrawFn) -> list[Event]:
    """Return events of one conversation, each message once."""
    events: list[Event] = [opened(draw(some.sampled_from(sorted(POLICIES.values()))), draw(some.integers(10, 60)))]
    said: list[str] = []
    for name in NAMES[: draw(some.integers(1, len(NAMES)))]:
        known = some.sampled_from(said or [name])
        kind = draw(some.integers(0, 9))
        call, answers = draw(some.sampled_from([("", None), ("", None), ("x", None), ("y", None), ("", "x")]))
        more: dict[int, Event] = {
            0: MessagesRecalled((), (draw(known), draw(known)), "what?", (1.0, 0.5)),
            1: MessageRated((), draw(known), draw(some.integers(0, 1_000))),
            2: WindowResized((), draw(some.integers(10, 60))),
            3: MessageRemoved((), draw(known)),
            4: WindowSummarized((), f"summary {name}", 5, max(len(events) - 3, 1), "so far"),
            5: MessagePinned((), draw(known), draw(some.booleans())),
            6: WindowCleared(()),
        }
        pinned = kind == 7
        events.append(message(name, draw(some.integers(0, 20)), call=call, answers=answers, pinned=pinned))
        said.append(name)
        if kind in more and (kind != 5 or said):
            events.append(more[kind])
    return _possible(events)


def _possible(events: list[Event]) -> list[Event]:
    """Leave out what a verb would have refused: a pin, a removal or a rating of what is not in the window."""
    state, kept = fold.empty("conversation"), list[Event]()
    for event in events:
        live = {each.id: each for each in state.part(WINDOW).live()}
        if isinstance(event, (MessagePinned, MessageRemoved, MessageRated)) and event.id not in live:
            continue
        if isinstance(event, MessagePinned) and live[event.id].pinned is event.pinned:
            continue
        kept.append(event)
        fold.fold(state, stamp_of(len(kept), "conversation/x"), event)
    return kept


@given(histories(), some.integers(0, 40))
@settings(deadline=None, max_examples=100)
def test_a_state_that_was_packed_goes_on_as_the_one_that_was_not(events: list[Event], place: int) -> None:
    state, log = fold.empty("conversation"), list[tuple[Event, Stamp]]()
    for seq, event in enumerate(events, 1):
        log.append((event, stamp_of(seq, "conversation/x")))
        fold.fold(state, log[-1][1], event)
        assert_packs(state, log)
        if seq == place:
            inline, seqs = fold.pack(state)
            state = fold.unpack("conversation", inline, [log[each - 1] for each in seqs])
    assert fold.digests(state) == fold.digests(folded("conversation", *events))


@given(histories(), some.sets(some.integers(1, 40)))
@example([opened(1, 10), message("a", 11, pinned=True), MessagePinned((), "a", pinned=False)], set())
@settings(deadline=None, max_examples=60)
def test_erasure_moves_no_eviction(events: list[Event], erased: set[int]) -> None:
    blanked = [Erased(event) if place in erased else event for place, event in enumerate(events)]
    whole, bare = folded("conversation", *events).part(WINDOW), folded("conversation", *blanked).part(WINDOW)
    assert [each.id for each in bare.live()] == [each.id for each in whole.live()]
    assert bare.tokens == whole.tokens <= max(whole.limit, whole.pinned_tokens)


@given(histories())
@settings(deadline=None, max_examples=60)
def test_a_copy_goes_on_by_itself(events: list[Event]) -> None:
    state = fold.empty("conversation")
    for seq, event in enumerate(events[:-1], 1):
        fold.fold(state, stamp_of(seq, "conversation/x"), event)
    before, twin = fold.digests(state), fold.copy_state(state)
    assert twin is not None
    fold.fold(twin, stamp_of(len(events), "conversation/x"), events[-1])
    assert fold.digests(state) == before


RECORDED = [
    *(message(name, 10) for name in "abc"),
    message("d", 6, call="x"),
    message("e", 4, answers="x"),
    MessagesRecalled((), ("a",), "what?", (1.0,)),
    MessageRated((), "b", 1_000),
    message("f", 10),
    WindowSummarized((), "s", 3, 3, "a and b were said"),
    message("g", 9, pinned=True),
    message("h", 11),
]
"""What every policy makes another window of."""

GOLDEN = {
    "fifo": ("defgh", "d87e3228563333b4"),
    "least-recalled": ("afgh", "4c5a322223d50975"),
    "least-important": ("bfgh", "76ac7da0e355ebc6"),
    "fifo-recall": ("gh", "0e5091c58051e621"),
    "summary": ("sfgh", "59e885caf34060fd"),
}
"""The window of each policy, and the digest of its state. A released policy is never changed."""


def test_the_golden_states_are_of_all_policies() -> None:
    assert GOLDEN.keys() == POLICIES.keys()


@pytest.mark.parametrize("name", POLICIES)
def test_a_released_policy_is_kept_for_ever(name: str) -> None:
    state = folded("conversation", opened(POLICIES[name]), *RECORDED)
    digest = sha256(b"".join(digest for _, digest in fold.digests(state))).hex()[:16]
    assert ("".join(each.id for each in state.part(WINDOW).live()), digest) == GOLDEN[name]
