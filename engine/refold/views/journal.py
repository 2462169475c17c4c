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

    def pack(self) -> tuple[Any, list[int]]:
        return None, sorted(seq for notes in self.days.values() for seq, _ in notes)

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Pages":
        pages = cls()
        for event, stamp in events:
            assert isinstance(event, JournalAppended), f"seq {stamp.seq} was packed as a journal note"
            pages.add(stamp.seq, Note(event.day, event.text, stamp.time_ns))
        return pages

    def logical(self) -> Any:
        rows = [[seq, note.day, note.text, note.time_ns] for notes in self.days.values() for seq, note in notes]
        return sorted(rows) or None

    def plain(self) -> dict[str, Any]:
        return {day: [note.text for _, note in self.days[day]] for day in sorted(self.days)}


JOURNAL = View("journal", kinds=("journal",), state=Pages)


@JOURNAL.on(JournalAppended)
def _journal_appended(pages: Pages, stamp: Stamp, event: JournalAppended) -> None:
    if not stamp.erased:
        pages.add(stamp.seq, Note(event.day, event.text, stamp.time_ns))
