"""Given events, the profile."""

import pytest

from refold import fold
from refold.event import Event
from refold.views.profile import PROFILE, ProfileDeleted, ProfileSet
from tests.views.fold import Erased, folded


def put(key: str, value: str, prior: int = 0) -> ProfileSet:
    return ProfileSet((), prior, key, value)


CASES: dict[str, tuple[list[Event | Erased], list[tuple[str, str]]]] = {
    "nothing": ([], []),
    "in the order in which keys were first set": ([put("b", "1"), put("a", "2")], [("b", "1"), ("a", "2")]),
    "a key set again keeps its place": ([put("b", "1"), put("a", "2"), put("b", "3", 1)], [("b", "3"), ("a", "2")]),
    "a deleted key loses its place": (
        [put("b", "1"), put("a", "2"), ProfileDeleted((), 1, "b"), put("b", "3")],
        [("a", "2"), ("b", "3")],
    ),
    "an erased value takes what it replaced": ([put("k", "old"), Erased(put("k", "new", 1))], []),
    "an erased deletion brings nothing back": ([put("k", "v"), Erased(ProfileDeleted((), 1, "k"))], []),
    "a large value": ([put("k", "v" * 1_000), put("l", "w")], [("k", "v" * 1_000), ("l", "w")]),
}


@pytest.mark.parametrize("what", CASES)
def test_the_state_after_events(what: str) -> None:
    events, items = CASES[what]
    facts = folded("profile", *events).part(PROFILE)
    assert list(facts.entries.values.items()) == items


def test_the_digest_depends_on_the_order() -> None:
    one = folded("profile", put("a", "1"), put("b", "2"), ProfileDeleted((), 1, "a"), put("a", "1"))
    other = folded("profile", put("b", "2"), put("b", "2"), put("x", "y"), put("a", "1"))
    assert fold.digests(one) != fold.digests(other)
    assert fold.plain(one) == {"profile": {"b": "2", "a": "1"}}


def test_an_empty_one_has_no_digest() -> None:
    assert fold.digests(folded("profile", put("a", "1"), ProfileDeleted((), 1, "a"))) == []
