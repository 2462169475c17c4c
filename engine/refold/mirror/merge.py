"""Pages of a mirror, as they were when file and log were last the same, and three-way merges of both sides.

It is digests alone, so that what was erased does not live on in it. Before files are replaced, what they are about to
hold stands beside what they held: whoever comes after a crash finds either.
"""

import json
import re
from base64 import urlsafe_b64encode
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from refold import checks
from refold.errors import InvalidInput, RefoldError
from refold.text import blake2b

# What a mirror says of one round: what was written, what was taken, what was not, and what was in the way.


class MirrorEdit(Struct, frozen=True):
    """An edit by hand that became an event: ``kind`` is ``set``, ``delete`` or ``append``.

    ``name`` is the key, or the day; ``text`` the value or the note, ``None`` for a deletion.
    """

    file: str
    kind: str
    name: str
    text: str | None = None


class MirrorConflict(Struct, frozen=True):
    """An edit by hand that the log does not take: it stays as it is, and the hand's side is kept beside the file.

    ``name`` is the key, or the seqs of the notes that the hand changed or removed; ``hand`` and ``log`` are the two
    sides, ``None`` where there is nothing. ``kept`` is the file with the hand's side, empty where that is nothing.
    """

    file: str
    name: str
    hand: str | None
    log: str | None
    kept: str
    reason: str


class MirrorProblem(Struct, frozen=True):
    """A file that could not be read or written, and why: it was left as it is, and the log too."""

    file: str
    reason: str


class MirrorReport(Struct, frozen=True):
    """What one round came to; the files that it wrote are those of the log's state at ``seq``.

    Of a check it says what a round would do.
    """

    seq: int
    written: tuple[str, ...] = ()
    edits: tuple[MirrorEdit, ...] = ()
    conflicts: tuple[MirrorConflict, ...] = ()
    problems: tuple[MirrorProblem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is left to a person: no conflict and no problem."""
        return not (self.conflicts or self.problems)

    @property
    def has_changed(self) -> bool:
        """Whether a round did anything."""
        return bool(self.written or self.edits or self.conflicts)

    def __bool__(self) -> bool:
        """Return whether there is anything to tell."""
        return bool(self.has_changed or self.problems)


# The files of a mirror as bytes, and what a hand wrote into them as facts and lines. Pure.

DIGEST_BYTES: Final = 8
LINE_BYTES: Final = 6
LINE_CHARS: Final = 8
"""Of the digest of one line, as bytes and as text."""

Part: TypeAlias = str
"""A note without its text: the digests of its lines."""

_BOM: Final = "\ufeff"
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NUMBER: Final = object()
"""Stands for every number and constant of a document: none of them is a string, and none is worth reading."""


class Unreadable(Exception):
    """What a hand wrote is no profile, or no text; the message says why, as it goes on from the file's name."""


def digest(content: bytes) -> str:
    """Return what tells some bytes from others."""
    return blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def file_of(day: str) -> str | None:
    """Return the name of a day's file, ``None`` for what is no day and must name no file."""
    if not _DAY.fullmatch(day):
        return None
    compact = day.replace("-", "")
    return f"{compact[:6]}/{compact}.md"


def day_of(file: str) -> str:
    """Return the day that a file's name tells."""
    compact = file.rpartition("/")[2].removesuffix(".md")
    return f"{compact[:4]}-{compact[4:6]}-{compact[6:]}"


# The profile.


def profile_bytes(facts: Mapping[str, str]) -> bytes:
    """Return a profile as its file: one JSON object of strings, a line for each fact, in the order of the profile."""
    return (json.dumps(facts, ensure_ascii=False, indent=2) + "\n").encode()


def facts_of(content: bytes) -> dict[str, str]:
    """Return the facts that a file holds; raises ``Unreadable`` for anything but one object of different strings."""
    return _checked(pairs_of(content))


def pairs_of(content: bytes) -> "Pairs":
    """Return the members of the object that a file holds; raises ``Unreadable`` for anything else."""
    try:
        document = json.loads(
            text_of(content),
            object_pairs_hook=Pairs,
            parse_int=lambda _: _NUMBER,
            parse_float=lambda _: _NUMBER,
            parse_constant=lambda _: _NUMBER,
        )
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is no JSON ({error}); mend it, and it is taken then") from error
    if not isinstance(document, Pairs):
        raise Unreadable('is no JSON object; give one of strings, such as {"theme": "dark"}')
    return document


class Pairs(list[tuple[str, Any]]):
    """The members of an object as they stand there, also those whose key stands there twice."""


def _checked(pairs: Pairs) -> dict[str, str]:
    facts: dict[str, str] = {}
    for key, value in pairs:
        if key in facts:
            raise Unreadable(f"names the key {checks.shown(key)} twice; keep one of them")
        if not isinstance(value, str):
            raise Unreadable(f"has a value at {checks.shown(key)} that is no string; put it in quotes")
        try:
            facts[checks.key(key)] = checks.text(value, f"the value at {checks.shown(key)}")
        except RefoldError as error:
            raise Unreadable(f"cannot be taken: {error}") from error
    return facts


# Days.


def heading(day: str) -> str:
    """Return the first line of a day's file."""
    return f"# {day}"


def day_bytes(day: str, texts: Iterable[str]) -> bytes:
    """Return the notes of a day as its file, as a context shows them."""
    return f"{heading(day)}\n\n{chr(10).join(texts)}\n".encode()


def text_of(content: bytes) -> str:
    """Return the text of a file, without the mark that some editors put before it; ``Unreadable`` if it is none."""
    try:
        return content.decode().removeprefix(_BOM)
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8 (byte {error.start}); save it as UTF-8") from error


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, whichever way they end."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def compared(lines: Iterable[str]) -> list[str]:
    """Return lines as they are compared: what editors trim, at their ends and around them, does not count."""
    trimmed = [line.rstrip() for line in lines]
    first = next((place for place, line in enumerate(trimmed) if line), len(trimmed))
    last = next((place for place in reversed(range(len(trimmed))) if trimmed[place]), -1)
    return trimmed[first : last + 1]


def part_of(text: str) -> Part:
    """Return what tells a note from others, and each of its lines from others, without its text."""
    return part_of_lines(compared(lines_of(text)))


def part_of_lines(lines: Iterable[str]) -> Part:
    """Return the digests of lines, one behind the other."""
    return "".join(map(_line_told, lines))


def _line_told(line: str) -> str:
    return urlsafe_b64encode(blake2b(line.encode(), digest_size=LINE_BYTES).digest()).decode()


BLANK: Final = _line_told("")


# Three-way merges: what a hand changed since a file was last written, against what the log changed since. Pure.
#
# The base is known by digests, not by its text, so that nothing that was erased lives on in it. What only one side
# changed is taken; what both changed alike is one change; what they changed differently is a conflict, in which the
# log stays as it is.


class FactsMerge(NamedTuple):
    """What a hand changed: edits to be taken, a value or ``None`` for a deletion, and the hand's side of conflicts."""

    edits: dict[str, str | None]
    conflicts: dict[str, str | None]


def digest_or_none(value: str | None) -> str | None:
    """Return the digest of a key or a value, ``None`` for none."""
    return None if value is None else digest(value.encode())


def facts_digests(facts: Mapping[str, str]) -> dict[str, str]:
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
        if ours == theirs or digest_or_none(theirs) in known:
            continue
        if hashed in taken:
            # That is what the file held, whatever it was before.
            known = {taken[hashed] or None}
            if digest_or_none(theirs) in known:
                continue
        # Where there are several bases nobody knows which one the hand saw.
        is_conflict = digest_or_none(ours) not in known or len(known) > 1
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
    told_hand, by_hash = facts_digests(hand), {digest(key.encode()): key for key in edited}
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


FORMAT: Final = 1


class Base(Struct, frozen=True):
    """What a file held: the digest of its bytes, and of its facts, or of its notes in their order."""

    digest: str
    size: int = 0
    facts: dict[str, str] = {}
    notes: tuple[Part, ...] = ()
    own: tuple[str, ...] = ()
    """What of that is a hand's alone, which the log does not take: lines, and keys with their values."""


class Owner(Struct, frozen=True):
    """Whose files these are."""

    store: str
    branch: int
    profile: str
    journal: str


class MirrorState(Struct):
    """What is known of the files: as they are, and as they are about to be."""

    owner: Owner
    seq: int = 0
    files: dict[str, Base] = {}
    taking: dict[str, Base] = {}
    """Of files that were edited, what is about to be taken: facts, ``""`` for a deletion, and notes."""
    taking_edits: tuple[str, ...] = ()
    """The same edits in their order, as digests."""
    taking_after: int = 0
    """The seq that the log had before them."""
    taken: dict[str, Base] = {}
    """What rounds that were cut off took from files; the files held it."""
    coming: dict[str, Base] = {}
    recent: list[Passed] = []
    """How the profile's file changed of late."""
    format: int = FORMAT
    beside: dict[str, tuple[str, ...]] = {}
    """Of copies that were kept beside files, what in them the log had said, by digests."""
    former: dict[str, tuple[Base, ...]] = {}
    """What files held before an erasure, until no copy of it can come from them any more."""
    erased_count: int = 0
    """How many events had been erased when the files and the copies were last rid of them."""


class _Headed(Struct):
    """What a state of any format begins with."""

    format: int = FORMAT


def packed(state: MirrorState) -> bytes:
    """Return the bytes of a state: its checksum, and JSON."""
    content = msgspec.json.encode(state)
    return f"{_checksum(content)}\n".encode() + content


def unpacked(content: bytes, owner: Owner, path: str) -> MirrorState | None:
    """Return the state that some bytes are, ``None`` for none and for damaged ones.

    Raises ``InvalidInput`` where the files are another owner's, or those of a newer refold.
    """
    checksum, _, document = content.partition(b"\n")
    if checksum != _checksum(document).encode():
        return None
    try:
        found = msgspec.json.decode(document, type=_Headed).format
        state = msgspec.json.decode(document, type=MirrorState) if found == FORMAT else None
    except msgspec.ValidationError:
        return None
    if state is None:
        raise InvalidInput(
            f"{path} was written by a newer refold (format {found}, this one knows {FORMAT}); upgrade refold"
        )
    if state.owner != owner:
        raise InvalidInput(
            f"{path} mirrors {_named(state.owner)}, and this is {_named(owner)}; give this one a directory of its own, "
            f"or remove .refold-mirror there to have its files taken as written by hand"
        )
    return state


def _named(owner: Owner) -> str:
    branch = f", fork {owner.branch}" if owner.branch else ""
    return f"profile {owner.profile!r} and journal {owner.journal!r} of store {owner.store}{branch}"


def _checksum(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def base_of_profile(facts: dict[str, str], content: bytes | None = None, own: Iterable[str] = ()) -> Base:
    """Return the base of a profile's file, that of its own bytes or of those that a hand wrote."""
    content = profile_bytes(facts) if content is None else content
    return Base(digest(content), len(content), facts=facts_digests(facts), own=tuple(sorted(own)))


def base_of_edits(edits: Sequence[MirrorEdit], content: bytes) -> Base:
    """Return what is about to be taken from a file."""
    facts = {
        digest_or_none(edit.name) or "": digest_or_none(edit.text) or "" for edit in edits if edit.kind != "append"
    }
    notes = tuple(part_of(edit.text) for edit in edits if edit.kind == "append" and edit.text)
    return Base(digest(content), len(content), facts, notes)


def join_bases(one: Base, other: Base) -> Base:
    """Return what was taken from a file by two rounds."""
    return Base("", facts=one.facts | other.facts, notes=(*one.notes, *other.notes))


def base_of_day(content: bytes, parts: Iterable[Part], own: Iterable[str] = ()) -> Base:
    """Return the base of a day's file that holds these notes."""
    return Base(digest(content), len(content), notes=tuple(parts), own=tuple(sorted(own)))
