"""The profile, flat key/value facts in the order in which they were first set, and the journal, notes by day."""

from typing import Any, ClassVar

from msgspec import Struct

from refold import checks
from refold.event import Event, Located, Stamp, View
from refold.views.base import KeyedValues, copy_slots


class ProfileSet(Event, frozen=True, tag=16):
    """A fact of the profile got a value."""

    sentence: ClassVar[str] = "key {key} of the profile got the value {value}"
    subject: ClassVar[tuple[str, str]] = ("profile", "key")

    prior: int
    key: str = ""
    value: str = ""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            checks.key(self.key)


class ProfileDeleted(Event, frozen=True, tag=17):
    """A fact was removed from the profile."""

    sentence: ClassVar[str] = "key {key} of the profile was deleted"
    subject: ClassVar[tuple[str, str]] = ("profile", "key")

    prior: int
    key: str = ""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            checks.key(self.key)

    def removes(self, key: str) -> bool:  # noqa: ARG002 - it names only one
        return True


class ProfileFacts:
    """The facts by key."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: KeyedValues[str] = KeyedValues()

    copy = copy_slots

    def pack(self) -> tuple[Any, list[int]]:
        return self.entries.pack()

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "ProfileFacts":
        facts = cls()
        located = iter(events)
        facts.entries.unpack(inline, str, lambda _: _value_of(next(located)[0]))
        return facts

    def logical(self) -> Any:
        entries = self.entries
        return entries.rows(entries.values) or None

    def plain(self) -> dict[str, Any]:
        return dict(self.entries.values)


def _value_of(event: Event) -> str:
    assert isinstance(event, ProfileSet), f"{event!r} was packed as a profile value"
    return event.value


PROFILE = View("profile", kinds=("profile",), state=ProfileFacts)


@PROFILE.on(ProfileSet)
def _profile_set(facts: ProfileFacts, stamp: Stamp, event: ProfileSet) -> None:
    facts.entries.on_set(stamp, event, event.value)


@PROFILE.on(ProfileDeleted)
def _profile_deleted(facts: ProfileFacts, stamp: Stamp, event: ProfileDeleted) -> None:
    facts.entries.on_delete(stamp, event)


# The journal only grows. The day of a note was decided when it was written, and is in its event.


class JournalAppended(Event, frozen=True, tag=18):
    """A note was written into the journal of a day."""

    sentence: ClassVar[str] = "the journal of {day!s} got the note {text}"
    subject: ClassVar[tuple[str, str]] = ("journal", "")

    day: str = ""
    text: str = ""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            checks.day(self.day, "day")


class Note(Struct, frozen=True, gc=False):
    """A note of the journal: its day (``YYYY-MM-DD``), its text, and when it was acknowledged (``None`` in a batch)."""

    day: str
    text: str
    time_ns: int


class Pages:
    """The notes by day, each day in the order of writing, with the seq of each note."""

    __slots__ = ("days",)

    def __init__(self) -> None:
        self.days: dict[str, list[tuple[int, Note]]] = {}

    def copy(self) -> "Pages":
        other = Pages()
        other.days = {day: notes.copy() for day, notes in self.days.items()}
        return other

    def add(self, seq: int, note: Note) -> None:
        self.days.setdefault(note.day, []).append((seq, note))

    def between(self, first_day: str, last_day: str) -> list[Note]:
        """Return the notes from ``first_day`` to ``last_day``, oldest day first."""
        return [note for day in sorted(self.days) if first_day <= day <= last_day for _, note in self.days[day]]

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
