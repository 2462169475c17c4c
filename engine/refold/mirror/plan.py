"""Plan of a round: the log's side, what to do with each file, and copies rid of what was erased."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from refold.engine.engine import Engine
from refold.engine.streams import STORE_STREAM
from refold.errors import Closed, RefoldError
from refold.event import Event
from refold.fold import State
from refold.limits import MIRROR_FILE_BYTES_MAX
from refold.memory.options import Door
from refold.memory.options import day_of as checked_day
from refold.mirror.files import KEPT, PROFILE_FILE, Found, Tree, kept_name, too_large
from refold.mirror.merge import (
    BLANK,
    LINE_CHARS,
    Base,
    MirrorConflict,
    MirrorEdit,
    MirrorProblem,
    MirrorState,
    NotesMerge,
    Part,
    Passed,
    Unreadable,
    base_of_day,
    base_of_profile,
    day_bytes,
    day_of,
    digest,
    digest_or_none,
    facts_digests,
    facts_of,
    file_of,
    heading,
    merge_facts,
    merge_notes,
    outdated,
    pairs_of,
    part_of,
    part_of_lines,
    profile_bytes,
    text_of,
)
from refold.views.journal import JOURNAL, JournalAppended
from refold.views.profile import PROFILE, ProfileDeleted, ProfileSet
from refold.views.store import SETTINGS

if TYPE_CHECKING:
    from refold.engine.states import Recorded
    from refold.memory.memory import Memory


# The log's side of a mirror: what its files are to hold, rendered once for as long as it stays the same.

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


# What was erased leaves the copies that were kept beside files, and a hand's own words stay in them. Pure.
#
# A copy holds what a hand saved, and with it lines and values that were the log's. Nobody has those texts any more
# once they were erased, so they are known by digests: of each line of a note, of each key, of each key with its
# value.

_BOM_BYTES: Final = "\ufeff".encode()
# One that is not closed is taken to the end of the text: no quote inside of it begins another.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?')
_EMPTY: Final = b'""'


def said_by_bases(name: str, bases: Iterable[Base], recent: Sequence[Passed]) -> set[str]:
    """Return what of the log's a file is known to have held, of late and before, by digests."""
    if name != PROFILE_FILE:
        return set[str]().union(*(_lines_said(base.notes).difference(base.own) for base in bases))
    known = (*((base.facts, base.own) for base in bases), *((passed.before, passed.own) for passed in recent))
    return set[str]().union(*(_facts_said(facts).difference(own) for facts, own in known))


def said_by_log(name: str, side: Side) -> set[str]:
    """Return what the log says in a file now, by digests."""
    if name == PROFILE_FILE:
        return _facts_said(facts_digests(side.facts))
    return _lines_said(part_of(text) for _, text in side.days.get(name, ()))


def said_by_event(event: Event) -> tuple[str, set[str]]:
    """Return the file that an event says something in, and what, by digests."""
    if isinstance(event, ProfileSet):
        return PROFILE_FILE, _facts_said(facts_digests({event.key: event.value}))
    if isinstance(event, ProfileDeleted):
        return PROFILE_FILE, {digest(event.key.encode())}
    if isinstance(event, JournalAppended):
        return file_of(event.day) or "", _lines_said([part_of(event.text)])
    return "", set()


def _facts_said(facts: Mapping[str, str]) -> set[str]:
    """Return keys, and keys with their values; what has no value was not there."""
    return {*facts, *(key + value for key, value in facts.items() if value)}


def _lines_said(parts: Iterable[Part]) -> set[str]:
    return {part[begin : begin + LINE_CHARS] for part in parts for begin in range(0, len(part), LINE_CHARS)} - {BLANK}


def said_by_file(name: str, content: bytes) -> set[str]:
    """Return what a file says, by digests."""
    if name != PROFILE_FILE:
        return {_line_said(line) for line in _lines_of(content)} - {BLANK, part_of_lines([heading(day_of(name))])}
    facts = _flat(content) or {}
    return {said for key, value in facts.items() for said in (_told(key), _fact_said(key, value))}


def standing(name: str, content: bytes, said: Collection[str]) -> set[str]:
    """Return what of the said stands in a copy of a file."""
    if name != PROFILE_FILE:
        return {_line_said(line) for line in _lines_of(content)}.intersection(said)
    facts = _flat(content)
    if facts is not None:
        return {_fact_said(key, value) for key, value in facts.items()}.intersection(said)
    strings = {_string_said(found[0]) for found in _STRING.finditer(content)}
    return {told for told in said if told[-len(digest(b"")) :] in strings}


def without(name: str, content: bytes, gone: AbstractSet[str]) -> bytes:
    """Return a copy of a file without what is gone, empty where it says nothing else."""
    if not gone:
        return content
    if name == PROFILE_FILE:
        return _without_facts(content, gone)
    return _without_lines(content, gone, heading(day_of(name)).encode())


# Days.


def _lines_of(content: bytes) -> list[bytes]:
    return content.removeprefix(_BOM_BYTES).split(b"\n")


def _line_said(line: bytes) -> str:
    # A line that is no text is nobody's but the hand's.
    return part_of_lines([line.decode(errors="replace").rstrip()])


def _without_lines(content: bytes, gone: AbstractSet[str], head: bytes) -> bytes:
    lines = _lines_of(content)
    left = [line for line in lines if _line_said(line) not in gone]
    begins_so = bool(left) and (left[0].rstrip() == head or left[0].startswith(head + b", in the place of seq "))
    says = any(line.strip() for line in left[begins_so:])
    return content if left == lines else b"\n".join(left) if says else b""


# The profile.


def _flat(content: bytes) -> dict[str, str | None] | None:
    """Return the facts of a copy, ``None`` for what is no object of different strings: saved in parts, perhaps."""
    try:
        pairs = pairs_of(content)
    except Unreadable:
        return None
    facts: dict[str, Any] = dict(pairs)
    is_flat = len(facts) == len(pairs) and all(value is None or isinstance(value, str) for value in facts.values())
    return facts if is_flat else None


def _fact_said(key: str, value: str | None) -> str:
    hashed = _told(key)
    return hashed if value is None else hashed + _told(value)


def _told(text: str) -> str:
    return digest(text.encode(errors="surrogatepass"))


def _without_facts(content: bytes, gone: AbstractSet[str]) -> bytes:
    facts = _flat(content)
    if facts is None:
        # Nobody can tell which value is whose; a string that was said with any key is taken out.
        strings = {told[-len(digest(b"")) :] for told in gone}
        return _STRING.sub(_emptied(strings), content)
    left = {key: value for key, value in facts.items() if _fact_said(key, value) not in gone}
    if left == facts:
        return content
    return msgspec.json.format(msgspec.json.encode(left, order="sorted"), indent=2) + b"\n" if left else b""


def _string_said(string: bytes) -> str:
    try:
        text = json.loads(string, strict=False)
    except ValueError:
        return ""
    return _told(text)


def _emptied(strings: AbstractSet[str]) -> Callable[[re.Match[bytes]], bytes]:
    return lambda found: _EMPTY if _string_said(found[0]) in strings else found[0]


# What one round has to do with one file: decided from the file's bytes, the log's side and the base. Pure.

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


# Whether the log got the edits that a round was about to take when it was cut off. Pure.
#
# A note of them that was erased since, or that a restore took away, is not in the log's state: taken again it would
# come back. Its event is still there, among those of the same commit.


def told_by_edit(edit: MirrorEdit) -> str:
    """Return what tells the event of an edit from others."""
    return f"{edit.kind}{digest_or_none(edit.name)}{digest_or_none(edit.text) or ''}"


def _told_by_event(event: Event) -> str:
    if isinstance(event, ProfileSet):
        return f"set{digest_or_none(event.key)}{digest_or_none(event.value)}"
    if isinstance(event, ProfileDeleted):
        return f"delete{digest_or_none(event.key)}"
    if isinstance(event, JournalAppended):
        return f"append{digest_or_none(event.day)}{digest_or_none(event.text)}"
    return ""


def were_taken(edits: Sequence[str], recorded: Iterable["Recorded"], journal: str) -> bool:
    """Return whether edits stand among events as one commit; of an erased event nobody knows more than its stream."""
    events = [
        (stamp.stream == journal, None if stamp.erased else _told_by_event(event), stamp.time_ns)
        for event, stamp in recorded
    ]
    begins = range(len(events) - len(edits) + 1)
    return bool(edits) and any(_is_commit(edits, events[begin : begin + len(edits)]) for begin in begins)


def _is_commit(edits: Sequence[str], events: Sequence[tuple[bool, str | None, int]]) -> bool:
    return len({time_ns for _, _, time_ns in events}) == 1 and all(
        is_note == edit.startswith("append") and told_event in {None, edit}
        for edit, (is_note, told_event, _) in zip(edits, events, strict=True)
    )


_UNSWEPT: Final = "it may hold what was erased, and it"


class Copies:
    """The copies beside the files of one mirror, and what in them was the log's."""

    def __init__(
        self, memory: "Memory", streams: tuple[str, str], tree: Tree, state: MirrorState, store: Callable[[], None]
    ) -> None:
        self._memory = memory
        self._streams = streams
        self._tree = tree
        self._state = state
        self._store = store
        self._past: dict[str, set[str]] = {}
        """What replaced files had held before an erasure: who has them open may still write to them."""
        self.side: Side | None = None
        """The log's side as it was read last."""

    def keep(self, name: str, content: bytes, said: Collection[str] = ()) -> str:
        """Write what would be lost beside a file; return its name, empty if nothing of it is left to be kept.

        ``said`` is what in it may be the log's, beside what is known of the file; what of that was erased is left out.
        """
        found = standing(name, content, self._known(name).union(said))
        if self.side is not None and self.side.erased_count:
            gone = self._gone({name: found}, self.side)[name]
            content, found = without(name, content, gone), found - gone
            if gone and not content:
                return ""
        return self._kept(name, content, found)

    def _kept(self, name: str, content: bytes, found: Collection[str]) -> str:
        """Note what in a copy is the log's, and write it: nobody may know that any more after a crash."""
        if found:
            known = set(self._tree.kept())
            kept = kept_name(name, content)
            left = {copy: told for copy, told in self._state.beside.items() if copy in known}
            self._state.beside = left | {kept: tuple(sorted({*found, *left.get(kept, ())}))}
            self._store()
        return self._tree.keep(name, content)

    def forget(self, side: Side) -> list[MirrorProblem]:
        """Take what was erased out of all copies; return which of them could not be read."""
        found = {kept: self._tree.read(kept, bytes_max=None) for kept in self._tree.kept()}
        said = {
            kept: standing(name, found[kept].content, self._known(name).union(self._state.beside.get(kept, ())))
            for kept, name in ((kept, kept.partition(KEPT)[0]) for kept in found)
        }
        for kept, gone in self._gone(said, side).items():
            name = kept.partition(KEPT)[0]
            content = found[kept].content
            left = without(name, content, gone)
            if left != content:
                if left:
                    self._kept(name, left, said[kept] - gone)
                self._tree.remove(kept, found[kept])
        left_there = set(self._tree.kept())
        self._state.beside = {kept: told for kept, told in self._state.beside.items() if kept in left_there}
        return [MirrorProblem(kept, f"{_UNSWEPT} {copy.problem}") for kept, copy in found.items() if copy.problem]

    def pass_on(self, *, is_rid: bool) -> None:
        """Forget what was known of erased texts if the files are rid of them, but for what may be written late."""
        state = self._state
        self._past = {name: self._known(name) for name in state.former}
        if is_rid:
            state.former, state.recent = {}, []

    def _known(self, name: str) -> set[str]:
        return said_by_bases(name, bases_of(self._state, name), self._state.recent) | self._past.get(name, set())

    def _gone(self, said: dict[str, set[str]], side: Side) -> dict[str, set[str]]:
        """Return what of the said the log has no more, in no event that is not erased; by names of files or copies."""
        gone = {kept: told - said_by_log(kept.partition(KEPT)[0], side) for kept, told in said.items()}
        if any(gone.values()):
            # Of a memory that is closed nobody knows more than how the log's side was.
            with suppress(Closed):
                self._leave_unerased(gone)
        return gone

    def _leave_unerased(self, gone: dict[str, set[str]]) -> None:
        waiting: dict[str, list[set[str]]] = {}
        for kept, told in gone.items():
            waiting.setdefault(kept.partition(KEPT)[0], []).append(told)
        for event, stamp in self._memory.events():
            if stamp.stream in self._streams and not stamp.erased:
                name, told = said_by_event(event)
                for each in waiting.get(name, ()):
                    each.difference_update(told)


def bases_of(state: MirrorState, name: str) -> list[Base]:
    """Return what a file may hold, what was taken from it, and what it held before an erasure that is not concluded."""
    taken = [state.taken[name]] if name in state.taken else []
    return [*known_of(state, name), *taken, *state.former.get(name, ())]


def known_of(state: MirrorState, name: str) -> list[Base]:
    """Return what a file may hold by now."""
    return [base for base in (state.coming.get(name), state.files.get(name)) if base is not None]
