"""Notes in the file of a day: digests of their lines, and the three-way merge of a user's edits with the log.

A journal only grows, so that text a user adds is taken, and a change of a note is not. Pure.
"""

import re
from base64 import urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Final, NamedTuple

from refold.text import blake2b

LINE_BYTES: Final = 6
LINE_CHARS: Final = 8
"""The size of the digest of one line, in bytes and as text."""


def heading(day: str) -> str:
    """Return the first line of a day's file."""
    return f"# {day}"


def note_digest(text: str) -> str:
    """Return the digests of a note's lines, one after the other, in the form in which lines are compared."""
    return lines_digest(_trim_lines(_lines(text)))


def lines_digest(lines: Iterable[str]) -> str:
    """Return the digests of lines, one after the other."""
    return "".join(
        urlsafe_b64encode(blake2b(line.encode(), digest_size=LINE_BYTES).digest()).decode() for line in lines
    )


_BLANK: Final = lines_digest([""])


def _lines(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.split("\n")]


def _trim_lines(lines: Iterable[str]) -> list[str]:
    """Return lines as they are compared: without the spaces and empty lines that editors trim."""
    trimmed = [line.rstrip() for line in lines]
    places = [place for place, line in enumerate(trimmed) if line]
    return trimmed[places[0] : places[-1] + 1] if places else []


class NotesMerge(NamedTuple):
    """The user's changes in a day: texts that were added, and the seqs of notes that were changed or removed.

    ``changed`` are the texts in the place of the latter. ``notes`` are the digests of the notes in the file, in its
    order. An erased note is among them until the file is replaced, so that it is recognized if the user saves the file
    again before that.
    """

    added: list[str]
    missing: list[int]
    changed: list[str]
    notes: list[str]


_CONFLICT: Final = re.compile(r"[<>]{7} |={7}$")
_CONFLICT_MARKS: Final = {"<<<<<<<", "=======", ">>>>>>>"}


def has_conflict(text: str) -> bool:
    """Return whether a text has the marks that git leaves around two versions that it could not merge."""
    return {line[:7] for line in text.splitlines() if _CONFLICT.match(line)} >= _CONFLICT_MARKS


def merge_notes(
    day: str,
    text: str,
    log: Sequence[tuple[int, str]],
    base: Sequence[str] | None,
    *,
    taken: Sequence[str] = (),
    known: Sequence[str] = (),
) -> NotesMerge:
    """Return the user's changes in the file of a day; notes of the log are pairs of seq and text.

    Notes of the base must be there, in order; any text between them was added, unless the log has it too by now, or it
    was erased. Where a note of the base is missing, text is a change of that note, except before its first line and
    behind its last one, where the user left those. Without a base, any note of the log may be there or not. ``taken``
    are notes that a round took from the file before it was interrupted; ``known`` are others that the file may have
    held before: if the log no longer has one, it was erased, or has been copied.
    """
    lines = _lines(text)
    first = next((place for place, line in enumerate(lines) if line.strip()), None)
    page = _DayPage(lines[first + 1 :] if first is not None and lines[first].rstrip() == heading(day) else lines)
    notes = _Notes(log)
    missing: list[_MissingNote] = []
    gone: list[str] = []
    for note in notes.digests if base is None else base:
        match = notes.take(note)
        if match is None:
            gone.append(note)
        elif page.find(match[1]):
            continue
        elif base is None:
            notes.put_back(note, match)
        else:
            missing.append(_MissingNote(*match, page.region))
    gone += [note for note in known if note not in {*notes.digests, *(base or ())}]
    matches = [(note, notes.take(note)) for note in taken]
    gone += [note for note, match in matches if match is None]
    missing += [_MissingNote(*match, None) for note, match in matches if match is not None and not page.cut(note)]
    for note in gone:
        page.forget(note)
    texts = [each for each in page.rest(missing) if notes.take(note_digest(each[0]), each[0]) is None]
    added, changed = ([text for text, is_change in texts if is_change is wanted] for wanted in (False, True))
    return NotesMerge(added, [note.seq for note in missing], changed, page.notes())


class _MissingNote(NamedTuple):
    """A note that the user changed or removed, and the region of the page where it was; ``None`` if that is unknown."""

    seq: int
    lines: list[str]
    region: int | None


class _Notes:
    """The notes of the log that were not found in the file yet: the seq and the lines of each."""

    def __init__(self, log: Sequence[tuple[int, str]]) -> None:
        self.digests = [note_digest(text) for _, text in log]
        self._notes: dict[str, list[tuple[int, list[str]]]] = {}
        for note, (seq, text) in zip(self.digests, log, strict=True):
            self._notes.setdefault(note, []).append((seq, _trim_lines(_lines(text))))

    def take(self, note: str, text: str | None = None) -> tuple[int, list[str]] | None:
        """Return and remove the first note with a digest; if a text is given, only if the note has that text."""
        notes = self._notes.get(note)
        if not notes or (text is not None and notes[0][1] != _trim_lines(_lines(text))):
            return None
        return notes.pop(0)

    def put_back(self, note: str, match: tuple[int, list[str]]) -> None:
        self._notes[note].insert(0, match)


class _DayPage:
    """The lines of a day's file, in which notes are found one after the other."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        trimmed = [line.rstrip() for line in lines]
        self._trimmed = trimmed
        self._text = "\n".join(("", *trimmed, ""))
        self._begins = list(accumulate((len(line) + 1 for line in trimmed), initial=0))
        """The positions in the text of the line breaks before each line."""
        self._digest = lines_digest(trimmed)
        self._at = 0
        self._blocks: list[tuple[int, int]] = []  # The first line of each note that was found, and the line after it.
        self._ends: list[int] = []  # The line after each note that was found in order: there a region begins.

    @property
    def region(self) -> int:
        """The number of the region behind the last note that was found in order."""
        return len(self._ends)

    def find(self, lines: Sequence[str]) -> bool:
        """Return whether a note follows the last one that was found; a note without words is found anywhere."""
        if not lines:
            return True
        block = "\n".join(("", *lines, ""))
        place = self._text.find(block, self._at)
        if place < 0:
            return False
        self._at = place + len(block) - 1
        first = bisect_left(self._begins, place)
        self._blocks.append((first, first + len(lines)))
        self._ends.append(first + len(lines))
        return True

    def cut(self, note: str) -> bool:
        """Return whether a note with a digest is in the rest of the page; if so, it counts as found."""
        for begin, end in self._gaps() if note else ():
            first = self._digest.find(note, begin * LINE_CHARS, end * LINE_CHARS)
            while first % LINE_CHARS and first >= 0:
                first = self._digest.find(note, first + 1, end * LINE_CHARS)
            if first >= 0:
                line = first // LINE_CHARS
                self._blocks = sorted([*self._blocks, (line, line + len(note) // LINE_CHARS)])
                return True
        return False

    def forget(self, note: str) -> None:
        """Leave out a note that was erased: the whole note, or the lines of it that the user has left."""
        if not self.cut(note):
            for line in split_digest(note):
                self.cut(line)

    def _gaps(self) -> list[tuple[int, int]]:
        """Return the lines outside of notes: the first line of each gap, and the line after it."""
        ends = [0, *(end for _, end in self._blocks)]
        begins = [*(begin for begin, _ in self._blocks), len(self._lines)]
        return list(zip(ends, begins, strict=True))

    def rest(self, missing: Sequence[_MissingNote]) -> Iterator[tuple[str, bool]]:
        """Yield the texts outside of notes, each with whether it is a change of missing notes, or has lines of them."""
        lost = {line for note in missing for line in note.lines if line}
        is_unknown = any(note.region is None for note in missing)
        gaps = self._gaps()
        begins = [begin for begin, _ in gaps]
        for region, own in groupby(gaps, key=lambda gap: bisect_right(self._ends, gap[0])):
            places = [place for gap in own for place in range(*gap) if self._trimmed[place]]
            notes = [note.lines for note in missing if note.region == region]
            for begin, end, is_change in _split_region([self._trimmed[place] for place in places], notes):
                for _, lines in groupby(places[begin:end], key=lambda place: bisect_right(begins, place)):
                    piece = list(lines)
                    has_lost = is_unknown or any(self._trimmed[place] in lost for place in piece)
                    yield self._note((piece[0], piece[-1] + 1)), is_change or has_lost

    def notes(self) -> list[str]:
        return [note_digest(text) for text in map(self._note, sorted([*self._blocks, *self._gaps()])) if text]

    def _note(self, lines: tuple[int, int]) -> str:
        block = self._lines[slice(*lines)]
        places = [place for place, line in enumerate(block) if line.strip()]
        return "\n".join(block[places[0] : places[-1] + 1]) if places else ""


def _split_region(lines: Sequence[str], notes: Iterable[Sequence[str]]) -> Iterator[tuple[int, int, bool]]:
    """Yield the spans of lines at the place of missing notes: begin, end, and whether the span is a change of them."""
    places: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        places.setdefault(line, []).append(place)

    def find(line: str, after: int) -> int | None:
        known = places.get(line, ())
        at = bisect_left(known, after)
        return known[at] if at < len(known) else None

    at, is_open = 0, False  # Open: the end of the last note is not known, so that what follows may belong to it.
    for note in notes:
        first = find(note[0], at)
        if first is not None:
            yield at, first, is_open
            at = first
        last = find(note[-1], at + (first is not None and len(note) > 1))
        is_open = last is None
        if last is not None:
            yield at, last + 1, True
            at = last + 1
    yield at, len(lines), is_open


def split_digest(note: str) -> list[str]:
    """Return the digests of the lines of a note that are not empty."""
    lines = [note[begin : begin + LINE_CHARS] for begin in range(0, len(note), LINE_CHARS)]
    return [line for line in lines if line != _BLANK]
