"""Given events, the identity of a conversation."""

import pytest

from refold import fold
from refold.event import ConversationOpened, Event, ForkDropped, Forked, Restored, StateImported
from refold.views.session import SESSION
from tests.views.fold import folded


def opened(project: str | None = None) -> ConversationOpened:
    return ConversationOpened((), 100, "counter", 1, project)


CASES: dict[str, tuple[list[Event], tuple[bool, str | None, int]]] = {
    "nothing": ([], (False, None, 0)),
    "opened": ([opened()], (True, None, 0)),
    "opened in a project": ([opened("p")], (True, "p", 0)),
    "forked": ([opened("p"), Forked((), 1, 1, 1, "q")], (True, "q", 1)),
    "forked of a fork": ([opened(), Forked((), 1, 1, 1), Forked((), 1, 2, 2)], (True, None, 2)),
    "restored keeps its project": ([opened("p"), Restored((), 1, 1, 0, "own")], (True, "own", 0)),
    "dropped": ([opened("p"), Forked((), 1, 1, 1, "p"), ForkDropped(())], (False, None, 0)),
    "opened again": ([opened("p"), ForkDropped(()), opened("q")], (True, "q", 0)),
    "imported": ([StateImported((), 5, "c", 1, (), project="p")], (True, "p", 0)),
    "imported of what was never opened": ([StateImported((), 0, "", 0, ())], (False, None, 0)),
}


@pytest.mark.parametrize("what", CASES)
def test_the_state_after_events(what: str) -> None:
    events, expected = CASES[what]
    state = folded("conversation", *events)
    session = state.part(SESSION)
    assert (session.opened, session.project, session.depth) == expected
    assert fold.is_open(state) is expected[0]


def test_a_fork_is_as_deep_as_it_likes_without_another_digest() -> None:
    one = dict(fold.digests(folded("conversation", opened("p"))))["session"]
    other = dict(fold.digests(folded("conversation", opened("p"), Forked((), 1, 1, 1, "p"))))["session"]
    assert one == other
