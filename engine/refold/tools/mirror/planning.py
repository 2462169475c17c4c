"""What one round has to do with one file: decided from the file's bytes, the log's side and the base. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from refold.errors import RefoldError
from refold.memory.moments import day_of as checked_day
from refold.store.limits import MIRROR_FILE_BYTES_MAX
from refold.store.mirror_files import PROFILE_FILE, Found, too_large
from refold.tools.mirror.forgetting import said_by_bases, said_by_file, said_by_log
from refold.tools.mirror.merging import NotesMerge, Passed, merge_facts, merge_notes, outdated
from refold.tools.mirror.pages import Part, Unreadable, day_of, digest, facts_of, heading, text_of
from refold.tools.mirror.reports import MirrorConflict, MirrorEdit
from refold.tools.mirror.sides import Notes, Side
from refold.tools.mirror.state import Base, base_of_day, base_of_profile

_BOTH: Final = "the file and the log changed it differently"
_OLD: Final = "the file has what was there before the log's last writes, as if an older copy had been edited and saved"
_GROWS: Final = "a journal only grows: add a correction at the end of the day, or erase a note by its seq"


class Trail(NamedTuple):
    """What was taken from a file by rounds that were cut off, and how it changed of late."""

    taken: Base
    recent: Sequence[Passed]


class Plan(Struct):
    """What is to be done with a file; ``base`` is what it holds now, ``None`` where there is no file."""

    name: str
    found: Found
    base: Base | None
    edits: list[MirrorEdit] = []
    conflicts: list[MirrorConflict] = []
    beside: bytes = b""
    """The hand's side of the conflicts, to be kept beside the file."""
    problem: str = ""

    @property
    def is_edited(self) -> bool:
        """Whether a hand changed something."""
        return bool(self.edits or self.conflicts)

    def leave(self, problem: str) -> None:
        """Leave the file and what a hand changed in it as they are, until a round can take them."""
        self.problem, self.edits, self.conflicts, self.base = problem, [], [], None


def planned(name: str, found: Found, side: Side, wanted: Base | None, bases: Sequence[Base], *, trail: Trail) -> Plan:
    """Return what is to be done with a file that holds what was found, whose base is one of ``bases``, if any.

    ``trail`` is what else is known of the rounds before.
    """
    if found.problem or found.seen is None:
        return Plan(name, found, None, problem=found.problem)
    held = digest(found.content)
    for known in (wanted, *bases):
        if known is not None and known.digest == held:
            return Plan(name, found, known)
    if len(found.content) > MIRROR_FILE_BYTES_MAX:
        return Plan(name, found, None, problem=too_large(len(found.content)))
    merge = _profile if name == PROFILE_FILE else _day
    try:
        return merge(name, found, side, bases, trail)
    except Unreadable as error:
        return Plan(name, found, None, problem=str(error))


def _profile(name: str, found: Found, side: Side, bases: Sequence[Base], trail: Trail) -> Plan:
    hand = facts_of(found.content)
    taken = trail.taken.facts
    merge = merge_facts(hand, side.facts, [base.facts for base in bases], taken)
    old = outdated(hand, merge.edits, trail.recent, taken.keys())
    reasons = dict.fromkeys(old, _OLD) | dict.fromkeys(merge.conflicts, _BOTH)
    edits = [
        MirrorEdit(name, "delete" if value is None else "set", key, value)
        for key, value in merge.edits.items()
        if key not in reasons
    ]
    sides = {key: hand.get(key) for key in reasons}
    conflicts = [MirrorConflict(name, key, sides[key], side.facts.get(key), "", why) for key, why in reasons.items()]
    beside = msgspec.json.format(msgspec.json.encode(sides, order="sorted"), indent=2) + b"\n" if conflicts else b""
    own = _own(name, found.content, bases, said_by_file(name, beside) - said_by_bases(name, bases, trail.recent))
    return Plan(name, found, base_of_profile(hand, found.content, own), edits, conflicts, beside)


def _day(name: str, found: Found, side: Side, bases: Sequence[Base], trail: Trail) -> Plan:
    day = day_of(name)
    try:
        checked_day(day, "day")
    except RefoldError as error:
        raise Unreadable("names no day; rename it") from error
    text = text_of(found.content)
    merge = _merged(day, text, side.days.get(name, ()), bases, trail.taken.notes)
    if not merge.missing:
        base = base_of_day(found.content, merge.held, _own(name, found.content, bases, ()))
        return Plan(name, found, base, [MirrorEdit(name, "append", day, added) for added in merge.added])
    hand = "\n\n".join(merge.added)
    texts = dict(side.days.get(name, ()))
    log = "\n".join(texts[seq] for seq in merge.missing)
    seqs = ", ".join(map(str, merge.missing))
    beside = f"{heading(day)}, in the place of seq {seqs}\n\n{hand}\n".encode() if hand else b""
    own = said_by_file(name, hand.encode()) - said_by_bases(name, bases, ()) - said_by_log(name, side)
    base = base_of_day(found.content, merge.held, _own(name, found.content, bases, own))
    return Plan(name, found, base, [], [MirrorConflict(name, seqs, hand or None, log, "", _GROWS)], beside)


def _own(name: str, content: bytes, bases: Sequence[Base], own: Iterable[str]) -> set[str]:
    """Return what of a file is a hand's alone: what was, and what a conflict makes so."""
    known = {told for base in bases for told in base.own}
    return {*own, *(known & said_by_file(name, content) if known else ())}


def _merged(day: str, text: str, notes: Notes, bases: Sequence[Base], taken: Sequence[Part]) -> NotesMerge:
    """Return the merge with the base that the file goes on from: that of which it has all notes, if there is one."""
    known = [part for base in bases for part in base.notes]
    merges = [merge_notes(day, text, notes, base.notes, taken=taken, known=known) for base in bases]
    whole = next((merge for merge in merges if not merge.missing), None)
    return whole or (merges[-1] if merges else merge_notes(day, text, notes, None, taken=taken))
