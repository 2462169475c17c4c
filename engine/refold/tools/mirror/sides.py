"""The log's side of a mirror: what its files are to hold, rendered once for as long as it stays the same."""

from typing import Any, NamedTuple

from refold.engine.core import Engine
from refold.engine.streams import STORE_STREAM
from refold.fold import State
from refold.memory.door import Door
from refold.store.mirror_files import PROFILE_FILE
from refold.tools.mirror.pages import day_bytes, day_of, file_of, part_of, profile_bytes
from refold.tools.mirror.state import Base, base_of_day, base_of_profile
from refold.views.journal import JOURNAL
from refold.views.profile import PROFILE
from refold.views.settings import SETTINGS

Notes = tuple[tuple[int, str], ...]
"""The notes of a day, each with its seq."""


class Side(NamedTuple):
    """The log's side at a seq: the facts, the notes of each day by the name of its file, and what names no file.

    ``erased_count`` is how many events of the store were erased by then.
    """

    seq: int
    facts: dict[str, str]
    days: dict[str, Notes]
    nameless: tuple[str, ...]
    erased_count: int

    def content(self, name: str) -> bytes | None:
        """Return what a file is to hold, ``None`` where there is to be none."""
        if name == PROFILE_FILE:
            return profile_bytes(self.facts)
        notes = self.days.get(name)
        return day_bytes(day_of(name), [text for _, text in notes]) if notes else None

    @property
    def names(self) -> set[str]:
        """The files that there are to be."""
        return {PROFILE_FILE, *self.days}


class LogSide:
    """Reads the log's side, only what is durable, and knows each file's base without rendering it twice."""

    def __init__(self, door: Door, profile: str, journal: str) -> None:
        self._door = door
        self._streams = (profile, journal)
        self._bases: dict[str, tuple[tuple[int, ...], Base]] = {}

    def read(self) -> Side:
        """Return the log's side as it is now; of a log that delays its writes, as it is on the disk."""
        engine: Engine = self._door.engine
        engine.check_open()
        seq = engine.current_head()
        side = self._read(seq, None)
        durable = engine.log.durable_head()
        return side if durable >= engine.head else self._read(durable, durable)

    def _read(self, seq: int, at: int | None) -> Side:
        profile, journal = self._streams
        erased_count = self._erased_count(at)
        facts = self._door.read_written(profile, _facts, at)
        pages = self._door.read_written(journal, _pages, at)
        days = {file_of(day): tuple((seq, note.text) for seq, note in notes) for day, notes in pages.items()}
        nameless = tuple(day for day in pages if file_of(day) is None)
        named = {name: notes for name, notes in days.items() if name is not None and notes}
        if self._erased_count(at) != erased_count:
            return self._read(seq, at)  # Nobody knows which of them are in what was read.
        return Side(seq, facts, named, nameless, erased_count)

    def _erased_count(self, at: int | None) -> int:
        return self._door.engine.read(STORE_STREAM, lambda state: len(state.part(SETTINGS).erased), at)

    def base(self, side: Side, name: str) -> Base | None:
        """Return what a file is to hold, as a base knows it; ``None`` where there is to be none."""
        if name == PROFILE_FILE:
            return base_of_profile(side.facts)
        notes = side.days.get(name)
        if not notes:
            self._bases.pop(name, None)
            return None
        seqs = tuple(seq for seq, _ in notes)
        known = self._bases.get(name)
        if known is None or known[0] != seqs:
            content = side.content(name)
            assert content is not None, name
            known = self._bases[name] = (seqs, base_of_day(content, (part_of(text) for _, text in notes)))
        return known[1]


def _facts(state: State) -> dict[str, str]:
    return dict(state.part(PROFILE).entries.values)


def _pages(state: State) -> dict[str, list[tuple[int, Any]]]:
    return {day: list(notes) for day, notes in state.part(JOURNAL).days.items()}
