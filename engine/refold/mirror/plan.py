"""Plan of a round: the log's side of the files, and what to do with each of them."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct

from refold.engine.streams import STORE_STREAM
from refold.errors import RefoldError
from refold.event import Event, Recorded
from refold.limits import MIRROR_FILE_BYTES_MAX
from refold.memory.options import Door
from refold.memory.options import day_of as checked_day
from refold.mirror.files import PROFILE_FILE, FileContent, too_large
from refold.mirror.merge import (
    MirrorConflict,
    MirrorEdit,
    NotesMerge,
    PageBase,
    ProfileChange,
    Unreadable,
    base_of_day,
    base_of_profile,
    day_bytes,
    day_of,
    digest,
    facts_bytes,
    facts_digests,
    facts_of,
    file_of,
    heading,
    merge_facts,
    merge_notes,
    note_digest,
    outdated,
    profile_bytes,
    text_digest,
    text_of,
)
from refold.views.profile import JOURNAL, PROFILE, JournalAppended, ProfileDeleted, ProfileSet
from refold.views.store import SETTINGS

Notes = tuple[tuple[int, str], ...]
"""The notes of a day, each with its seq."""


class LogState(NamedTuple):
    """The log's side at a seq: the facts, the notes of each day by the name of its file, and days that name no file.

    ``erased_count`` is how many events of the store were erased by then.
    """

    seq: int
    facts: dict[str, str]
    days: dict[str, Notes]
    nameless: tuple[str, ...]
    erased_count: int

    def content(self, name: str) -> bytes | None:
        """Return the bytes of a file, ``None`` where there is to be none."""
        if name == PROFILE_FILE:
            return profile_bytes(self.facts)
        notes = self.days.get(name)
        return day_bytes(day_of(name), [text for _, text in notes]) if notes else None

    @property
    def names(self) -> set[str]:
        """The files that there are to be."""
        return {PROFILE_FILE, *self.days}


class LogReader:
    """Reads the durable state of the log, and caches the base of each file while its notes stay the same."""

    def __init__(self, door: Door, profile: str, journal: str) -> None:
        self._door = door
        self._streams = (profile, journal)
        self._bases: dict[str, tuple[tuple[int, ...], PageBase]] = {}

    def read(self) -> LogState:
        """Return the log's side as it is now; of a log that delays its writes, as it is on the disk."""
        engine = self._door.engine
        engine.reader.check_open()
        seq = engine.reader.current_head()
        state = self._read(seq, None)
        durable = engine.reader.log.durable_head()
        return state if durable >= engine.reader.head else self._read(durable, durable)

    def _read(self, seq: int, at: int | None) -> LogState:
        profile, journal = self._streams
        erased_count = len(self.erased(at))
        facts = self._door.read_written(profile, lambda state: dict(state.part(PROFILE).entries.values), at)
        pages: dict[str, list[tuple[int, Any]]] = self._door.read_written(
            journal, lambda state: {day: list(notes) for day, notes in state.part(JOURNAL).days.items()}, at
        )
        names = {day: file_of(day) for day in pages}
        days = {
            name: tuple((seq, note.text) for seq, note in pages[day]) for day, name in names.items() if name is not None
        }
        if len(self.erased(at)) != erased_count:
            return self._read(seq, at)  # It is not known which of them are in what was read.
        nameless = tuple(day for day, name in names.items() if name is None)
        return LogState(seq, facts, {name: notes for name, notes in days.items() if notes}, nameless, erased_count)

    def erased(self, at: int | None = None) -> list[int]:
        """Return the seqs of all events of the store that were erased, in the order of their erasure."""
        return self._door.engine.reader.read(STORE_STREAM, lambda state: list(state.part(SETTINGS).erased), at)

    def base(self, state: LogState, name: str) -> PageBase | None:
        """Return the base of a file as the log would write it; ``None`` where there is to be none."""
        if name == PROFILE_FILE:
            return base_of_profile(state.facts)
        notes = state.days.get(name)
        if not notes:
            self._bases.pop(name, None)
            return None
        seqs = tuple(seq for seq, _ in notes)
        known = self._bases.get(name)
        if known is None or known[0] != seqs:
            content = state.content(name)
            assert content is not None, name
            known = self._bases[name] = (seqs, base_of_day(content, (note_digest(text) for _, text in notes)))
        return known[1]


# What to do with one file: decided from its bytes, the log's side and the base. Pure.

_BOTH: Final = "the file and the log changed it differently"
_OLD: Final = "the file has what was there before the log's last writes, as if an older copy had been edited and saved"
_GROWS: Final = "a journal only grows: add a correction at the end of the day, or erase a note by its seq"


class FileHistory(NamedTuple):
    """The past of a file: its possible bases, the edits that rounds took before they were cut off, recent changes.

    ``is_erased`` says that an erasure reached it, so that of a profile nothing but a hand's own values may be copied.
    """

    bases: Sequence[PageBase]
    taken: PageBase
    recent: Sequence[ProfileChange]
    is_erased: bool


class FilePlan(Struct):
    """The plan for a file; ``base`` is that of its present content, ``None`` where there is no file."""

    name: str
    read: FileContent
    base: PageBase | None
    edits: list[MirrorEdit] = []
    conflicts: list[MirrorConflict] = []
    copy: bytes = b""
    """The hand's side of the conflicts, to be copied next to the file."""
    problem: str = ""

    @property
    def is_edited(self) -> bool:
        """Whether a hand changed something."""
        return bool(self.edits or self.conflicts)

    def leave(self, problem: str) -> None:
        """Leave the file, and a hand's changes in it, until a round can take them."""
        self.problem, self.edits, self.conflicts, self.base = problem, [], [], None


def plan_file(name: str, read: FileContent, log: LogState, log_base: PageBase | None, past: FileHistory) -> FilePlan:
    """Return the plan for a file; ``log_base`` is its base as the log would write it now."""
    if read.problem or read.version is None:
        return FilePlan(name, read, None, problem=read.problem)
    hashed = digest(read.content)
    for base in (log_base, *past.bases):
        if base is not None and base.digest == hashed:
            return FilePlan(name, read, base)
    if len(read.content) > MIRROR_FILE_BYTES_MAX:
        return FilePlan(name, read, None, problem=too_large(len(read.content)))
    try:
        return (_plan_profile if name == PROFILE_FILE else _plan_day)(name, read, log, past)
    except Unreadable as error:
        return FilePlan(name, read, None, problem=str(error))


def _plan_profile(name: str, read: FileContent, log: LogState, past: FileHistory) -> FilePlan:
    hand = facts_of(read.content)
    taken = past.taken.facts
    merge = merge_facts(hand, log.facts, [base.facts for base in past.bases], taken)
    old = outdated(hand, merge.edits, past.recent, taken.keys())
    reasons = dict.fromkeys(old, _OLD) | dict.fromkeys(merge.conflicts, _BOTH)
    edits = [
        MirrorEdit(name, "delete" if value is None else "set", key, value)
        for key, value in merge.edits.items()
        if key not in reasons
    ]
    conflicts = [MirrorConflict(name, key, hand.get(key), log.facts.get(key), "", why) for key, why in reasons.items()]
    sides = {key: hand.get(key) for key in reasons}
    if past.is_erased:
        known = {fact for base in past.bases for fact in base.facts.items()}
        known |= {fact for change in past.recent for fact in change.before.items()}
        sides = {key: text for key, text in sides.items() if text and not known & facts_digests({key: text}).items()}
    return FilePlan(name, read, base_of_profile(hand, read.content), edits, conflicts, facts_bytes(sides))


def _plan_day(name: str, read: FileContent, log: LogState, past: FileHistory) -> FilePlan:
    day, notes = day_of(name), log.days.get(name, ())
    try:
        checked_day(day, "day")
    except RefoldError as error:
        raise Unreadable("names no day; rename it") from error
    merge = _merge_day(day, text_of(read.content), notes, past)
    base = base_of_day(read.content, merge.notes)
    if not merge.missing:
        return FilePlan(name, read, base, [MirrorEdit(name, "append", day, text) for text in merge.added])
    hand = "\n\n".join(merge.added)
    texts = dict(notes)
    seqs = ", ".join(map(str, merge.missing))
    conflict = MirrorConflict(name, seqs, hand or None, "\n".join(texts[seq] for seq in merge.missing), "", _GROWS)
    copy = f"{heading(day)}, in the place of seq {seqs}\n\n{hand}\n".encode() if hand else b""
    return FilePlan(name, read, base, [], [conflict], copy)


def _merge_day(day: str, text: str, notes: Notes, past: FileHistory) -> NotesMerge:
    """Return the merge with the base that the file goes on from: that of which it has all notes, if there is one."""
    known = [note for base in past.bases for note in base.notes]
    taken = past.taken.notes
    merges = [merge_notes(day, text, notes, base.notes, taken=taken, known=known) for base in past.bases]
    whole = next((merge for merge in merges if not merge.missing), None)
    return whole or (merges[-1] if merges else merge_notes(day, text, notes, None, taken=taken))


# Whether the log got the edits that a round was about to take when it was cut off.
#
# A note of them that was erased since, or that a restore took away, is not in the log's state: taken again it would
# come back. Its event is still there, among those of the same commit.


def edit_digest(edit: MirrorEdit) -> str:
    """Return the digest of an edit, which its event has too."""
    return f"{edit.kind}{text_digest(edit.name)}{text_digest(edit.text) or ''}"


def _event_digest(event: Event) -> str:
    match event:
        case ProfileSet():
            return edit_digest(MirrorEdit("", "set", event.key, event.value))
        case ProfileDeleted():
            return edit_digest(MirrorEdit("", "delete", event.key))
        case JournalAppended():
            return edit_digest(MirrorEdit("", "append", event.day, event.text))
        case _:
            return ""


def were_taken(edits: Sequence[str], recorded: Iterable[Recorded], journal: str) -> bool:
    """Return whether edits are among events as one commit; of an erased event no more is known than its stream."""
    events = [
        (stamp.stream == journal, None if stamp.erased else _event_digest(event), stamp.time_ns)
        for event, stamp in recorded
    ]
    begins = range(len(events) - len(edits) + 1)
    return bool(edits) and any(_is_commit(edits, events[begin : begin + len(edits)]) for begin in begins)


def _is_commit(edits: Sequence[str], events: Sequence[tuple[bool, str | None, int]]) -> bool:
    return len({time_ns for _, _, time_ns in events}) == 1 and all(
        is_note == edit.startswith("append") and hashed in {None, edit}
        for edit, (is_note, hashed, _) in zip(edits, events, strict=True)
    )
