"""Three-way merges: what a hand changed since a file was last written, against what the log changed since. Pure.

The base is known by digests, not by its text, so that nothing that was erased lives on in it. What only one side
changed is taken; what both changed alike is one change; what they changed differently is a conflict, in which the log
stays as it is.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from refold.tools.mirror.limits import MIRROR_SEARCHED_BYTES_MAX
from refold.tools.mirror.pages import Unreadable, compared, digest, heading, lines_of, part_of

Part = tuple[int, str]
"""A note of the base: how many lines it had, and their digest."""

_UNTOLD: Final = (
    "was edited by hand, and so much of the day was erased meanwhile that nobody can tell whose lines are whose"
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


def merge_facts(hand: Mapping[str, str], log: Mapping[str, str], bases: Sequence[Mapping[str, str]]) -> FactsMerge:
    """Return what a hand changed in a profile; of several bases, a value of any one is no change.

    Without a base nothing was there before, so that nothing is taken for deleted.
    """
    bases = bases or ({},)
    merge = FactsMerge({}, {})
    for key in dict.fromkeys((*hand, *log)):
        ours, theirs = log.get(key), hand.get(key)
        known = {base.get(digest(key.encode())) for base in bases}
        if ours == theirs or told(theirs) in known:
            continue
        # Both sides' bases are in doubt where there are several: then it has to be one that both may have seen.
        is_conflict = told(ours) not in known or len(known) > 1
        (merge.conflicts if is_conflict else merge.edits)[key] = theirs
    return merge


class NotesMerge(NamedTuple):
    """What a hand changed in a day: texts that it added, and the seqs of notes that it changed or removed.

    ``held`` is what the file holds, as a base knows it.
    """

    added: list[str]
    missing: list[int]
    held: list[Part]


def merge_notes(day: str, text: str, log: Sequence[tuple[int, str]], base: Sequence[Part] | None) -> NotesMerge:
    """Return what a hand changed in the file of a day; ``Unreadable`` where that cannot be told.

    Notes of the base have to be there, in their order; what stands between them was added, unless the log has it too
    by now, or it was erased. Without a base every note of the log may be there or not.
    """
    body = _Body(_without_heading(day, lines_of(text)))
    waiting, others = Counter(base or ()), Counter[Part]()
    missing: list[int] = []
    held: list[Part] = []
    for seq, note in log:
        part = part_of(note)
        is_based = waiting[part] > 0
        waiting[part] -= is_based
        if (base is None or is_based) and body.find(compared(lines_of(note))):
            held.append(part)
        elif is_based:
            missing.append(seq)
        else:
            others[part] += 1
    pieces = _without(body.pieces(), (+waiting).elements())
    texts = [text for text in map(_text, pieces) if text]
    added = [text for text in texts if not _is_other(text, others)]
    return NotesMerge(added, missing, [*held, *map(part_of, texts)])


def _without_heading(day: str, lines: list[str]) -> list[str]:
    first = next((place for place, line in enumerate(lines) if line.strip()), None)
    return lines[first + 1 :] if first is not None and lines[first].rstrip() == heading(day) else lines


def _is_other(text: str, others: Counter[Part]) -> bool:
    """Return whether a text is one that the log has got meanwhile, each of which counts once."""
    part = part_of(text)
    is_known = others[part] > 0
    others[part] -= is_known
    return is_known


def _text(lines: Sequence[str]) -> str:
    """Return lines as a note: without the empty ones around them."""
    told_lines = [place for place, line in enumerate(lines) if line.strip()]
    return "\n".join(lines[told_lines[0] : told_lines[-1] + 1]) if told_lines else ""


class _Body:
    """The lines of a day's file, in which notes are found one behind the other."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        trimmed = [line.rstrip() for line in lines]
        self._text = "\n".join(("", *trimmed, ""))
        self._begins = list(accumulate((len(line) + 1 for line in trimmed), initial=0))
        """Where the break before each line stands in the text."""
        self._at = 0
        self._found: list[tuple[int, int]] = []
        """The first line of each note that was found, and the one behind it."""

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
        self._found.append((first, first + len(block)))
        return True

    def pieces(self) -> list[list[str]]:
        """Return the lines between the notes that were found."""
        ends = [0, *(end for _, end in self._found)]
        begins = [*(begin for begin, _ in self._found), len(self._lines)]
        return [self._lines[end:begin] for end, begin in zip(ends, begins, strict=True)]


def _without(pieces: list[list[str]], gone: Iterable[Part]) -> list[list[str]]:
    """Return pieces without the notes that were erased, each of which goes once."""
    left = MIRROR_SEARCHED_BYTES_MAX
    for count, wanted in gone:
        for place, piece in enumerate(pieces):
            left -= count * sum(map(len, piece))
            if left < 0:
                raise Unreadable(_UNTOLD)
            begin = _place_of(piece, count, wanted)
            if begin is not None:
                pieces = [*pieces[:place], piece[:begin], piece[begin + count :], *pieces[place + 1 :]]
                break
    return pieces


def _place_of(lines: Sequence[str], count: int, wanted: str) -> int | None:
    """Return where a note stands whose text is known by its digest alone."""
    trimmed = [line.rstrip() for line in lines]
    for begin in range(len(lines) - count + 1 if count else 0):
        if digest("\n".join(trimmed[begin : begin + count]).encode()) == wanted:
            return begin
    return None
