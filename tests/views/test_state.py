"""Given events, the state scopes."""

from typing import Any

import pytest

from refold import fold
from refold.event import ConversationEnded, Event, ForkDropped, pack_json
from refold.views.state import STATE, RoundEnded, StateDeleted, StateSet
from tests.views.fold import Erased, folded


def put(key: str, value: Any, prior: int = 0) -> StateSet:
    return StateSet((), prior, 0, key, pack_json(value))


CASES: dict[str, tuple[list[Event | Erased], dict[str, Any], bool]] = {
    "nothing": ([], {}, False),
    "values of every kind": ([put("a", None), put("b", [1, {"c": 2.5}])], {"a": None, "b": [1, {"c": 2.5}]}, False),
    "a value set again": ([put("a", 1), put("a", 2, 1)], {"a": 2}, False),
    "a deleted value": ([put("a", 1), StateDeleted((), 1, 0, "a")], {}, False),
    "temporary values": ([put("temp:a", 1), put("b", 2)], {"b": 2, "temp:a": 1}, True),
    "a round ends": ([put("temp:a", 1), put("b", 2), RoundEnded(())], {"b": 2}, False),
    "a conversation ends": ([put("temp:a", 1), put("b", 2), ConversationEnded(())], {"b": 2}, False),
    "a fork is dropped": ([put("temp:a", 1), put("b", 2), ForkDropped(())], {}, False),
    "only the prefix with its colon is temporary": ([put("temperature", 1), RoundEnded(())], {"temperature": 1}, False),
    "an erased value takes what it replaced": ([put("a", 1), Erased(put("a", 2, 1))], {}, False),
    "an erased deletion brings nothing back": ([put("a", 1), Erased(StateDeleted((), 1, 0, "a"))], {}, False),
    "a large value": ([put("a", "x" * 1_000)], {"a": "x" * 1_000}, False),
}


@pytest.mark.parametrize("what", CASES)
def test_the_state_after_events(what: str) -> None:
    events, values, has_temp = CASES[what]
    state = folded("conversation", *events)
    assert fold.plain(state).get("state", {}) == values
    assert state.part(STATE).has_temp is has_temp


def test_a_project_holds_values_too() -> None:
    assert fold.plain(folded("project", put("a", 1), put("temp:b", 2))) == {
        "state": {"a": 1, "temp:b": 2},
        "facts": {},
        "episodes": {},
    }


def test_an_empty_one_has_no_digest() -> None:
    assert fold.digests(folded("project", put("a", 1), StateDeleted((), 1, 0, "a"))) == []
