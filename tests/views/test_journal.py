"""Given events, the journal."""

import pytest

from refold import Note, fold
from refold.event import Event
from refold.views.profile import JOURNAL, JournalAppended
from tests.views.fold import BEGIN_NS, Erased, folded

EVENTS: list[Event | Erased] = [
    JournalAppended((), "2026-01-02", "second day"),
    JournalAppended((), "2026-01-01", "first day, written later"),
    JournalAppended((), "2026-01-02", "again"),
    Erased(JournalAppended((), "2026-01-01", "gone")),
    JournalAppended((), "2027-01-01", "next year"),
]


def test_notes_stand_by_day_in_the_order_of_writing() -> None:
    pages = folded("journal", *EVENTS).part(JOURNAL)
    assert [(seq, note.text) for seq, note in pages.days["2026-01-02"]] == [(1, "second day"), (3, "again")]
    assert [(seq, note.text) for seq, note in pages.days["2026-01-01"]] == [(2, "first day, written later")]


@pytest.mark.parametrize(
    ("first_day", "last_day", "texts"),
    [
        ("0001-01-01", "9999-12-31", ["first day, written later", "second day", "again", "next year"]),
        ("2026-01-02", "9999-12-31", ["second day", "again", "next year"]),
        ("2026-01-03", "2027-01-01", ["next year"]),
        ("2026-01-01", "2026-01-02", ["first day, written later", "second day", "again"]),
        ("2027-01-02", "9999-12-31", []),
    ],
)
def test_notes_from_day_to_day_come_oldest_day_first(first_day: str, last_day: str, texts: list[str]) -> None:
    pages = folded("journal", *EVENTS).part(JOURNAL)
    assert [note.text for note in pages.between(first_day, last_day)] == texts


def test_a_note_says_when_it_was_acknowledged() -> None:
    pages = folded("journal", *EVENTS).part(JOURNAL)
    assert pages.days["2026-01-02"][1][1] == Note("2026-01-02", "again", BEGIN_NS + 3)


def test_nothing_is_nothing() -> None:
    assert fold.digests(folded("journal")) == []
    assert fold.digests(folded("journal", Erased(JournalAppended((), "2026-01-01", "gone")))) == []
    assert fold.plain(folded("journal", *EVENTS[:1])) == {"journal": {"2026-01-02": ["second day"]}}
