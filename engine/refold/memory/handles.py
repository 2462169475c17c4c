"""The profile and the journal: facts that outlive conversations, and notes by day."""

import datetime
from collections.abc import Sequence
from typing import Any

from refold import checks
from refold.engine import times
from refold.engine.pending import ANY
from refold.fold import State
from refold.keyed import Keyed
from refold.memory.deciding import deleting, setting
from refold.memory.door import Door
from refold.memory.moments import day_at, day_of, days_before, nanoseconds
from refold.views.journal import JOURNAL, JournalAppended, Note
from refold.views.profile import PROFILE, ProfileDeleted, ProfileSet


def _facts(state: State) -> Keyed[str]:
    return state.part(PROFILE).entries


class Profile:
    """A handle on one profile: flat key/value facts, in the order in which they were first set.

    >>> from refold import Memory
    >>> profile = Memory().profile()
    >>> profile.set("theme", "dark mode")
    >>> profile.items()
    [('theme', 'dark mode')]
    """

    __slots__ = ("_at", "_door", "_stream", "name")

    def __init__(self, door: Door, name: str, at: int | None) -> None:
        self.name = name
        self._door = door
        self._stream = f"profile/{name}"
        self._at = at

    def __repr__(self) -> str:
        """Return the handle with its count."""
        if self._door.engine.is_closed:
            return f"Profile({self.name!r}, closed)"
        counts = self._door.counts(lambda: f"keys={len(self.items())}")
        return f"Profile({self.name!r}, {counts})"

    def set(
        self,
        key: str,
        value: str,
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sequence[Any] = (),
    ) -> None:
        """Set a fact; a key that exists keeps its place. Setting the value it has appends nothing."""
        key, value = checks.key(key), checks.text(value, "value")
        cited = self._door.sources(sources)

        decide = setting(_facts, key, value, lambda prior, _: ProfileSet(cited, prior, key, value))
        asked = ("set", key, value)
        self._door.note(self._stream, decide, at=self._at, asked=asked, expected=expected, request_id=request_id)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a fact, or ``default``."""
        key = checks.key(key)
        return self._door.read(
            self._stream, lambda state: state.part(PROFILE).entries.values.get(key, default), self._at
        )

    def delete(
        self,
        key: str,
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sequence[Any] = (),
    ) -> bool:
        """Remove a fact; return whether it was there."""
        key = checks.key(key)
        cited = self._door.sources(sources)

        decide = deleting(_facts, key, lambda prior, _: ProfileDeleted(cited, prior, key))
        asked = ("delete", key)
        noted = self._door.note(
            self._stream, decide, at=self._at, asked=asked, expected=expected, request_id=request_id
        )
        return noted is not None

    def items(self) -> list[tuple[str, str]]:
        """Return the facts as (key, value), in the order in which the keys were first set."""
        return self._door.read(self._stream, lambda state: list(state.part(PROFILE).entries.values.items()), self._at)


class Journal:
    """A handle on one journal: append-only notes by day.

    >>> from refold import Memory
    >>> journal = Memory().journal()
    >>> journal.append("Chose LMDB.", day="2026-11-21").text
    'Chose LMDB.'
    >>> [note.text for note in journal.day("2026-11-21")]
    ['Chose LMDB.']
    """

    __slots__ = ("_at", "_door", "_stream", "name")

    def __init__(self, door: Door, name: str, at: int | None) -> None:
        self.name = name
        self._door = door
        self._stream = f"journal/{name}"
        self._at = at

    def __repr__(self) -> str:
        """Return the handle with its counts."""
        counts = self._door.counts(self._counts)
        return f"Journal({self.name!r}, {counts})"

    def _counts(self) -> str:
        days = self._door.read(self._stream, lambda state: list(map(len, state.part(JOURNAL).days.values())), self._at)
        return f"notes={sum(days)}, days={len(days)}"

    def append(
        self,
        text: str,
        *,
        day: "str | datetime.date | None" = None,
        occurred: "int | datetime.datetime | None" = None,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sequence[Any] = (),
    ) -> Note:
        """Append a note to a day, by default the day on which it happened in the memory's time zone; return it."""
        text = checks.text(text, "text")
        door = self._door
        occurred_ns = None if occurred is None else nanoseconds(occurred, "occurred")
        when_ns = door.engine.now_ns() if occurred_ns is None else occurred_ns
        written = day_at(when_ns, door.timezone) if day is None else day_of(day, "day")
        event = JournalAppended(door.sources(sources), written, text)
        asked = ("append", None if day is None else written, text, occurred_ns)
        noted = door.note(
            self._stream,
            event,
            at=self._at,
            asked=asked,
            occurred_ns=occurred_ns,
            expected=expected,
            request_id=request_id,
        )
        assert noted is not None, "a journal note always appends"
        written_event, stamp = noted
        assert isinstance(written_event, JournalAppended), written_event
        return door.dated(Note(written_event.day, written_event.text, stamp.time_ns), stamp)

    def day(self, day: "str | datetime.date") -> list[Note]:
        """Return the notes of a day, in the order in which they were written."""
        wanted = day_of(day, "day")
        return self._door.read(
            self._stream, lambda state: [note for _, note in state.part(JOURNAL).days.get(wanted, [])], self._at
        )

    def recent(self, days: int = 3) -> list[Note]:
        """Return the notes of the last ``days`` calendar days, today included, oldest first.

        Today is the day of the clock in the memory's time zone; on a frozen handle, the day of its seq.
        """
        checks.count(days, "days")
        if not days:
            return []
        engine = self._door.engine
        now_ns = engine.now_ns() if self._at is None else times.time_at_seq(engine.log, self._at)
        first = days_before(day_at(now_ns, self._door.timezone), days - 1)
        return self._door.read(self._stream, lambda state: state.part(JOURNAL).since(first), self._at)
