"""Three-way merges: what a hand changed since a file was last written, against what the log changed since. Pure.

The base is known by digests, not by its text, so that nothing that was erased lives on in it. What only one side
changed is taken; what both changed alike is one change; what they changed differently is a conflict, in which the log
stays as it is.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

from refold.tools.mirror.pages import (
    BLANK,
    LINE_CHARS,
    Part,
    compared,
    digest,
    heading,
    lines_of,
    part_of,
    part_of_lines,
)


class FactsMerge(NamedTuple):
    """What a hand changed: edits to be taken, a value or ``None`` for a deletion, and the hand's side of conflicts."""

    edits: dict[str, str | None]
    conflicts: dict[str, str | None]


def told(value: str | None) -> str | None:
    """Return the digest of a key or a value, ``None`` for none."""
    return None if value is None else digest(value.encode())


def facts_told(facts: Mapping[str, str]) -> dict[str, str]:
    """Return a profile as a base knows it: digests of keys and values."""
    return {digest(key.encode()): digest(value.encode()) for key, value in facts.items()}


def merge_facts(
    hand: Mapping[str, str],
    log: Mapping[str, str],
    bases: Sequence[Mapping[str, str]],
    taken: Mapping[str, str] = MappingProxyType({}),
) -> FactsMerge:
    """Return what a hand changed in a profile; of several bases, a value of any one is no change.

    Without a base nothing was there before, so that nothing is taken for deleted. ``taken`` are values, ``""`` for
    none, that a round took from the file before it was cut off.
    """
    bases = bases or ({},)
    merge = FactsMerge({}, {})
    for key in dict.fromkeys((*hand, *log)):
        ours, theirs, hashed = log.get(key), hand.get(key), digest(key.encode())
        known = {base.get(hashed) for base in bases}
        if ours == theirs or told(theirs) in known:
            continue
        if hashed in taken:
            # That is what the file held, whatever it was before.
            known = {taken[hashed] or None}
            if told(theirs) in known:
                continue
        # Where there are several bases nobody knows which one the hand saw.
        is_conflict = told(ours) not in known or len(known) > 1
        (merge.conflicts if is_conflict else merge.edits)[key] = theirs
    return merge


class Passed(NamedTuple):
    """How the profile's file changed once: by the log's write or by a hand, and what was there before, by digests.

    What was not there is ``""``.
    """

    is_written: bool
    before: dict[str, str]
    own: tuple[str, ...] = ()
    """What of that was a hand's alone, as bases know it."""


def outdated(
    hand: Mapping[str, str], edited: Collection[str], recent: Sequence[Passed], taken: AbstractSet[str] = frozenset()
) -> set[str]:
    """Return the edited keys in which a profile lacks all that the log wrote since some moment, though others are new.

    That is what an editor saves that read its copy at that moment: it has not seen what the log wrote since. ``taken``
    are the digests of keys that were new as well, and that a round took before it was cut off.
    """
    told_hand, by_hash = facts_told(hand), {digest(key.encode()): key for key in edited}
    past, written, old = dict[str, str](), set[str](), set[str]()
    for passed in reversed(recent):
        past |= passed.before
        written |= set(passed.before) if passed.is_written else set()
        if all(told_hand.get(hashed, "") == past[hashed] for hashed in written):
            old = set(written)
    return {by_hash[hashed] for hashed in by_hash.keys() & old} if (by_hash.keys() | taken) - old else set()


def replaced(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return what a change of the profile's file replaces, by digests."""
    changed = {hashed for hashed in {*before, *after} if before.get(hashed) != after.get(hashed)}
    return {hashed: before.get(hashed, "") for hashed in sorted(changed)}


class NotesMerge(NamedTuple):
    """What a hand changed in a day: texts that it added, and the seqs of notes that it changed or removed.

    ``held`` is what the file holds, as a base knows it: in the order in which it stands there. What was erased is in it
    until the file is replaced, so that it is known for that when a hand saves the file again before.
    """

    added: list[str]
    missing: list[int]
    held: list[Part]


def merge_notes(
    day: str,
    text: str,
    log: Sequence[tuple[int, str]],
    base: Sequence[Part] | None,
    *,
    taken: Sequence[Part] = (),
    known: Sequence[Part] = (),
) -> NotesMerge:
    """Return what a hand changed in the file of a day.

    Notes of the base have to be there, in their order; what stands between them was added, unless the log has it too
    by now, or it was erased. Without a base every note of the log may be there or not. ``taken`` are notes that a
    round took from the file before it was cut off; ``known`` is what else the file may have held before:
    what of it the log has no more was erased, or is kept beside.
    """
    body = _Body(_without_heading(day, lines_of(text)))
    waiting = _Waiting(log)
    missing: list[int] = []
    gone: list[Part] = []
    for part in waiting.parts if base is None else base:
        found = waiting.take(part)
        if found is None:
            gone.append(part)
        elif body.find(found[1]):
            continue
        elif base is None:
            waiting.put_back(part, found)
        else:
            missing.append(found[0])
    gone += _unknown(known, waiting, base)
    held = [(part, waiting.take(part)) for part in taken]
    gone += [part for part, found in held if found is None]
    missing += [found[0] for part, found in held if found is not None and not body.cut(part)]
    for part in gone:
        body.forget(part)
    added = [text for text in body.rest() if waiting.take(part_of(text), text) is None]
    return NotesMerge(added, missing, body.held())


def _unknown(known: Sequence[Part], waiting: "_Waiting", base: Sequence[Part] | None) -> list[Part]:
    """Return what neither the log nor the base has of what a file may have held."""
    noted = {*waiting.parts, *(base or ())}
    return [part for part in known if part not in noted]


class _Waiting:
    """The notes of the log that nothing in the file was held for yet."""

    def __init__(self, log: Sequence[tuple[int, str]]) -> None:
        self.parts = [part_of(note) for _, note in log]
        self._notes: dict[Part, list[tuple[int, list[str]]]] = {}
        for part, (seq, note) in zip(self.parts, log, strict=True):
            self._notes.setdefault(part, []).append((seq, compared(lines_of(note))))

    def has(self, part: Part) -> bool:
        return bool(self._notes.get(part))

    def take(self, part: Part, text: str | None = None) -> tuple[int, list[str]] | None:
        """Return the first note that is told so, its seq and its lines, and forget it; that of a text, if it is it."""
        if not self.has(part) or (text is not None and self._notes[part][0][1] != compared(lines_of(text))):
            return None
        return self._notes[part].pop(0)

    def put_back(self, part: Part, note: tuple[int, list[str]]) -> None:
        self._notes[part].insert(0, note)


def _without_heading(day: str, lines: list[str]) -> list[str]:
    first = next((place for place, line in enumerate(lines) if line.strip()), None)
    return lines[first + 1 :] if first is not None and lines[first].rstrip() == heading(day) else lines


def _text(lines: Sequence[str]) -> str:
    """Return lines as a note: without the empty ones around them."""
    told_lines = [place for place, line in enumerate(lines) if line.strip()]
    return "\n".join(lines[told_lines[0] : told_lines[-1] + 1]) if told_lines else ""


class _Body:
    """The lines of a day's file, in which notes are found one behind the other."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._trimmed = [line.rstrip() for line in lines]
        self._text = "\n".join(("", *self._trimmed, ""))
        self._begins = list(accumulate((len(line) + 1 for line in self._trimmed), initial=0))
        """Where the break before each line stands in the text."""
        self._at = 0
        self._taken: list[tuple[int, int]] = []
        """The first line of what was found, and the one behind it."""
        self._told = part_of_lines(self._trimmed)

    def find(self, block: Sequence[str]) -> bool:
        """Return whether a note stands behind the last one that was found; one without words stands anywhere."""
        if not block:
            return True
        wanted = "\n".join(("", *block, ""))
        place = self._text.find(wanted, self._at)
        if place < 0:
            return False
        self._at = place + len(wanted) - 1
        first = bisect_left(self._begins, place)
        self._taken.append((first, first + len(block)))
        return True

    def cut(self, part: Part) -> bool:
        """Return whether a note that is known by its digest stands among the rest, and is none of it any more."""
        for begin, end in self._gaps() if part else ():
            first = self._told.find(part, begin * LINE_CHARS, end * LINE_CHARS)
            while first % LINE_CHARS and first >= 0:
                first = self._told.find(part, first + 1, end * LINE_CHARS)
            if first >= 0:
                line = first // LINE_CHARS
                self._taken = sorted([*self._taken, (line, line + len(part) // LINE_CHARS)])
                return True
        return False

    def forget(self, part: Part) -> None:
        """Leave out a note that was erased: whole, or those of its lines that a hand has left of it."""
        if not self.cut(part):
            for begin in range(0, len(part), LINE_CHARS):
                line = part[begin : begin + LINE_CHARS]
                if line != BLANK:
                    self.cut(line)

    def _gaps(self) -> list[tuple[int, int]]:
        """Return the lines that nothing was found for: the first of each gap, and the one behind it."""
        ends = [0, *(end for _, end in self._taken)]
        begins = [*(begin for begin, _ in self._taken), len(self._lines)]
        return list(zip(ends, begins, strict=True))

    def rest(self) -> list[str]:
        """Return what stands between the notes, as notes."""
        return [text for text in (_text(self._lines[begin:end]) for begin, end in self._gaps()) if text]

    def held(self) -> list[Part]:
        """Return what stands there, found or not, as a base knows it."""
        texts = [_text(self._lines[begin:end]) for begin, end in sorted([*self._taken, *self._gaps()])]
        return [part_of(text) for text in texts if text]
