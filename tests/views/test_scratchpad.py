"""Given events, the scratchpad."""

import pytest

from refold import fold
from refold.event import ConversationEnded, Event, ForkDropped, StateImported
from refold.views.scratchpad import SCRATCH, NoteAdded, ScratchpadCleared, ScratchpadDeleted, ScratchpadSet
from tests.views.fold import Erased, folded


def put(key: str, value: str, prior: int = 0) -> ScratchpadSet:
    return ScratchpadSet((), prior, 0, key, value)


CASES: dict[str, tuple[list[Event | Erased], dict[str, str], list[str]]] = {
    "nothing": ([], {}, []),
    "a value": ([put("k", "v")], {"k": "v"}, []),
    "a value set again": ([put("k", "v"), put("k", "w", 1)], {"k": "w"}, []),
    "a large value": ([put("k", "v" * 1_000)], {"k": "v" * 1_000}, []),
    "two values": ([put("b", "1"), put("a", "2")], {"a": "2", "b": "1"}, []),
    "a deleted value": ([put("k", "v"), ScratchpadDeleted((), 1, 0, "k")], {}, []),
    "a missing value deleted": ([ScratchpadDeleted((), 0, 0, "k")], {}, []),
    "notes in order": ([NoteAdded((), "b"), NoteAdded((), "a"), NoteAdded((), "b")], {}, ["b", "a", "b"]),
    "cleared": ([put("k", "v"), NoteAdded((), "n"), ScratchpadCleared(())], {}, []),
    "ended": ([put("k", "v"), NoteAdded((), "n"), ConversationEnded(())], {}, []),
    "dropped": ([put("k", "v"), NoteAdded((), "n"), ForkDropped(())], {}, []),
    "after a clear": ([put("k", "v"), ScratchpadCleared(()), put("k", "w")], {"k": "w"}, []),
    "an erased note": ([NoteAdded((), "a"), Erased(NoteAdded((), "b")), NoteAdded((), "c")], {}, ["a", "c"]),
    "an erased value": ([put("a", "1"), Erased(put("b", "2"))], {"a": "1"}, []),
    "an erased value takes what it replaced": ([put("k", "old"), Erased(put("k", "new", 1))], {}, []),
    "an erased deletion brings nothing back": ([put("k", "v"), Erased(ScratchpadDeleted((), 1, 0, "k"))], {}, []),
    "an erased value in the middle": ([put("k", "a"), Erased(put("k", "b", 1)), put("k", "c", 2)], {"k": "c"}, []),
    "an erased value leaves other keys": ([put("a", "1"), put("b", "2"), Erased(put("a", "3", 1))], {"b": "2"}, []),
}


@pytest.mark.parametrize("what", CASES)
def test_the_state_after_events(what: str) -> None:
    events, entries, notes = CASES[what]
    scratch = folded("conversation", *events).part(SCRATCH)
    assert scratch.entries.values == entries
    assert [text for _, text in scratch.notes] == notes
    assert scratch.is_empty == (not entries and not notes)


LEFT = [{"b": "2", "c": "3"}, {"a": "1", "c": "3"}, {"a": "1", "b": "2"}]


@pytest.mark.parametrize("place", range(3))
def test_an_erased_value_takes_the_one_of_an_imported_state_that_it_replaced(place: int) -> None:
    imported = StateImported((), 5, "c", 1, (), (), (("a", "1"), ("b", "2"), ("c", "3")))
    replacing = ScratchpadSet((), 1, place, "abc"[place], "new")
    assert folded("conversation", imported, Erased(replacing)).part(SCRATCH).entries.values == LEFT[place]


def test_an_empty_one_has_no_digest() -> None:
    emptied = folded("conversation", put("k", "v"), ScratchpadCleared(()))
    assert fold.digests(emptied) == []


def test_the_digest_depends_on_where_a_value_was_set() -> None:
    here = folded("conversation", put("k", "v"))
    there = folded("conversation", NoteAdded((), "n"), put("k", "v"))
    assert fold.digests(here) != fold.digests(there)


def test_the_digest_does_not_depend_on_which_key_came_first() -> None:
    replaced = folded("conversation", put("b", "1"), put("a", "2"), put("b", "3"), ScratchpadDeleted((), 0, 0, "c"))
    dropped = folded("conversation", put("c", "1"), put("a", "2"), put("b", "3"), ScratchpadDeleted((), 1, 0, "c"))
    assert fold.digests(replaced) == fold.digests(dropped)


def test_what_a_person_compares_is_sorted_by_key() -> None:
    plain = fold.plain(folded("conversation", put("b", "1"), put("a", "2")))
    assert plain["scratch"] == {"entries": {"a": "2", "b": "1"}, "notes": []}
