"""The journal: append-only notes by day. The day was decided when the note was written and is in the event."""

from typing import Any

from msgspec import Struct

from refold.event import Event, Located, Stamp, View


class JournalAppended(Event, frozen=True, tag=18):
    """A note was written into the journal of a day."""

    day: str = ""
    text: str = ""


class Note(Struct, frozen=True, gc=False):
    """A note of the journal: its day (``YYYY-MM-DD``), its text, and when it was acknowledged (``None`` in a batch)."""

    day: str
    text: str
    time_ns: int


class Pages:
    """The notes by day, each day in the order of writing, with the seq of each."""

    __slots__ = ("days",)

    def __init__(self) -> None:
        self.days: dict[str, list[tuple[int, Note]]] = {}

    def add(self, seq: int, note: Note) -> None:
        """Add a note at the end of its day."""
        self.days.setdefault(note.day, []).append((seq, note))

    def since(self, first_day: str) -> list[Note]:
        """Return the notes of ``first_day`` and later, oldest day first."""
        return [note for day in sorted(self.days) if day >= first_day for _, note in self.days[day]]


def _pack(pages: Pages) -> tuple[Any, list[int]]:
    return None, sorted(seq for notes in pages.days.values() for seq, _ in notes)


def _unpack(inline: Any, events: Located) -> Pages:
    pages = Pages()
    for event, stamp in events:
        assert isinstance(event, JournalAppended), f"seq {stamp.seq} was packed as a journal note"
        pages.add(stamp.seq, Note(event.day, event.text, stamp.time_ns))
    return pages


def _logical(pages: Pages) -> Any:
    rows = [[seq, note.day, note.text, note.time_ns] for notes in pages.days.values() for seq, note in notes]
    return sorted(rows) or None


def _plain(pages: Pages) -> dict[str, Any]:
    return {day: [note.text for _, note in pages.days[day]] for day in sorted(pages.days)}


JOURNAL = View(
    "journal",
    kinds=("journal",),
    empty=Pages,
    pack=_pack,
    unpack=_unpack,
    logical=_logical,
    plain=_plain,
)


@JOURNAL.on(JournalAppended)
def journal_appended(pages: Pages, stamp: Stamp, event: JournalAppended) -> None:
    """Add the note to its day; an erased one leaves no trace."""
    if not stamp.erased:
        pages.add(stamp.seq, Note(event.day, event.text, stamp.time_ns))
