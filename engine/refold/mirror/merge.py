"""Pages of a mirror as bytes and digests, merges of a user's edits with the log, and the plan and record of a round.

Merges are three-way. The base of a merge is known by digests alone, so that erased text does not live on in it. Before
files are replaced, the record holds both their present and their next contents, because after a crash each file has one
of them.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from refold import checks
from refold.errors import InvalidInput, RefoldError
from refold.event import Event, Recorded
from refold.limits import MIRROR_FILE_BYTES_MAX
from refold.memory import options
from refold.mirror.files import PROFILE_FILE, FileContent, size_problem
from refold.mirror.notes import has_conflict, heading, lines_digest, merge_notes, note_digest, split_digest
from refold.text import blake2b
from refold.views.profile import JournalAppended, ProfileDeleted, ProfileSet


class MirrorEdit(Struct, frozen=True):
    """An edit by hand that became an event: ``kind`` is ``set``, ``delete`` or ``append``.

    ``name`` is the key, or the day; ``text`` is the value or the note, ``None`` for a deletion.
    """

    file: str
    kind: str
    name: str
    text: str | None = None


class MirrorConflict(Struct, frozen=True):
    """An edit by hand that the log does not take: the log stays, and the user's side is copied next to the file.

    ``name`` is the key, or the seqs of the notes that the user changed or removed; ``hand`` and ``log`` are the two
    sides, ``None`` if there is nothing. ``kept`` is the copy of the user's side, empty if there is none.
    """

    file: str
    name: str
    hand: str | None
    log: str | None
    kept: str
    reason: str


class MirrorProblem(Struct, frozen=True):
    """A file that could not be read or written, and the reason: the file was left as it is, and so was the log."""

    file: str
    reason: str


class MirrorReport(Struct, frozen=True):
    """The result of one round; the files that it wrote match the log's state at ``seq``.

    ``deleted`` are copies of conflicts that were deleted because an erasure reached their file. The report of a check
    says what a round would do.
    """

    seq: int
    written: tuple[str, ...] = ()
    edits: tuple[MirrorEdit, ...] = ()
    conflicts: tuple[MirrorConflict, ...] = ()
    problems: tuple[MirrorProblem, ...] = ()
    deleted: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is left for a person to do: no conflict and no problem."""
        return not (self.conflicts or self.problems)

    @property
    def has_changed(self) -> bool:
        """Whether a round did anything."""
        return bool(self.written or self.edits or self.conflicts or self.deleted)

    def __bool__(self) -> bool:
        return bool(self.has_changed or self.problems)


class Unreadable(Exception):
    """A file that a user wrote is not a profile, or not text; the message continues after the file's name."""


# Digests.

DIGEST_BYTES: Final = 8


def digest(content: bytes) -> str:
    """Return the digest of some bytes."""
    return blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def text_digest(text: str | None) -> str | None:
    """Return the digest of a key or a value, ``None`` for none."""
    return None if text is None else digest(text.encode())


def facts_digests(facts: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of a profile's keys, each with that of its value."""
    return {digest(key.encode()): digest(value.encode()) for key, value in facts.items()}


# Files as bytes.

_BOM: Final = "\ufeff"
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NUMBER: Final = object()
"""Replaces every number and constant of a document: none of them is a string, and none needs to be parsed."""


def file_of(day: str) -> str | None:
    """Return the name of a day's file, ``None`` for a text that is not a day."""
    if not _DAY.fullmatch(day):
        return None
    compact = day.replace("-", "")
    return f"{compact[:6]}/{compact}.md"


def day_of(file: str) -> str:
    """Return the day in a file's name."""
    compact = file.rpartition("/")[2].removesuffix(".md")
    return f"{compact[:4]}-{compact[4:6]}-{compact[6:]}"


def profile_bytes(facts: Mapping[str, str]) -> bytes:
    """Return the file of a profile: one JSON object of strings, a line for each fact, in the order of the profile."""
    return (json.dumps(facts, ensure_ascii=False, indent=2) + "\n").encode()


def day_bytes(day: str, texts: Iterable[str]) -> bytes:
    """Return the file of a day's notes, in the form in which a context shows them."""
    return f"{heading(day)}\n\n{chr(10).join(texts)}\n".encode()


def facts_bytes(facts: Mapping[str, str | None]) -> bytes:
    """Return a user's facts as a copy, sorted; empty if there are none."""
    return msgspec.json.format(msgspec.json.encode(facts, order="sorted"), indent=2) + b"\n" if facts else b""


def text_of(content: bytes) -> str:
    """Return the text of a file, without the BOM that some editors write; raises ``Unreadable`` if it is not text."""
    try:
        return content.decode().removeprefix(_BOM)
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8 (byte {error.start}); save it as UTF-8") from error


class _Pairs(list[tuple[str, Any]]):
    """The members of an object in order, with repeated keys."""


def facts_of(content: bytes) -> dict[str, str]:
    """Return the facts of a file; raises ``Unreadable`` for anything but one object of strings with distinct keys."""
    try:
        pairs = json.loads(
            text_of(content),
            object_pairs_hook=_Pairs,
            parse_int=lambda _: _NUMBER,
            parse_float=lambda _: _NUMBER,
            parse_constant=lambda _: _NUMBER,
        )
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is no JSON ({error}); mend it, and it is taken then") from error
    if not isinstance(pairs, _Pairs):
        raise Unreadable('is no JSON object; give one of strings, such as {"theme": "dark"}')
    facts: dict[str, str] = {}
    for key, value in pairs:
        if key in facts:
            raise Unreadable(f"names the key {checks.brief(key)} twice; keep one of them")
        if not isinstance(value, str):
            raise Unreadable(f"has a value at {checks.brief(key)} that is no string; put it in quotes")
        try:
            facts[checks.key(key)] = checks.text(value, f"the value at {checks.brief(key)}")
        except RefoldError as error:
            raise Unreadable(f"cannot be taken: {error}") from error
    return facts


# Merges: the user's changes since a file was last written, against the log's changes since then.
#
# A change on one side is taken; the same change on both sides is one change; different changes are a conflict, in which
# the log stays as it is.


class FactsMerge(NamedTuple):
    """The user's changes in a profile: edits, a value or ``None`` for a deletion, and the user's side of conflicts."""

    edits: dict[str, str | None]
    conflicts: dict[str, str | None]


def merge_facts(
    hand: Mapping[str, str],
    log: Mapping[str, str],
    bases: Sequence[Mapping[str, str]],
    taken: Mapping[str, str] = MappingProxyType({}),
) -> FactsMerge:
    """Return the user's changes in a profile; with several bases, a value of any of them is no change.

    Without a base nothing was there before, so that nothing counts as deleted. ``taken`` are values, ``""`` for none,
    that a round took from the file before it was interrupted.
    """
    bases = bases or ({},)
    merge = FactsMerge({}, {})
    for key in dict.fromkeys((*hand, *log)):
        ours, theirs, hashed = log.get(key), hand.get(key), digest(key.encode())
        known = {base.get(hashed) for base in bases}
        if ours == theirs or text_digest(theirs) in known:
            continue
        if hashed in taken:
            # The file had this value, whatever it was before.
            known = {taken[hashed] or None}
            if text_digest(theirs) in known:
                continue
        # With several bases, it is unknown which one the user saw.
        is_conflict = text_digest(ours) not in known or len(known) > 1
        (merge.conflicts if is_conflict else merge.edits)[key] = theirs
    return merge


class ProfileChange(Struct, frozen=True, array_like=True):
    """One change of the profile's file, by the log's write or by the user, and the digests that it replaced.

    The digest of a missing value is ``""``.
    """

    is_written: bool
    before: dict[str, str]


def profile_change(before: Mapping[str, str], after: Mapping[str, str], *, is_written: bool) -> ProfileChange:
    """Return the change from one profile to another, both as digests."""
    keys = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    return ProfileChange(is_written, {key: before.get(key, "") for key in sorted(keys)})


def stale_keys(
    hand: Mapping[str, str],
    edited: Collection[str],
    recent: Sequence[ProfileChange],
    taken: AbstractSet[str] = frozenset(),
) -> set[str]:
    """Return the edited keys in which a profile lacks all log writes since some moment, if it has other, new edits.

    An editor that read its copy at that moment saves such a profile, because it has not seen the log's later writes.
    ``taken`` are the digests of keys that were new as well, and that a round took before it was interrupted.
    """
    hashed_hand, keys = facts_digests(hand), {digest(key.encode()): key for key in edited}
    past, written, old = dict[str, str](), set[str](), set[str]()
    for change in reversed(recent):
        past |= change.before
        written |= set(change.before) if change.is_written else set()
        if all(hashed_hand.get(hashed, "") == past[hashed] for hashed in written):
            old = set(written)
    return {keys[hashed] for hashed in keys.keys() & old} if (keys.keys() | taken) - old else set()


# The record of the last round, and the content that erasures leave in files.


class PageBase(Struct, frozen=True):
    """The content of a file: the digest of its bytes, and the digests of its facts or, in order, of its notes."""

    digest: str
    size: int = 0
    facts: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def base_of_profile(facts: Mapping[str, str], content: bytes | None = None) -> PageBase:
    """Return the base of a profile's file, written by the mirror or, with ``content``, by the user."""
    content = profile_bytes(facts) if content is None else content
    return PageBase(digest(content), len(content), facts=facts_digests(facts))


def base_of_day(content: bytes, notes: Iterable[str]) -> PageBase:
    """Return the base of a day's file whose notes have these digests."""
    return PageBase(digest(content), len(content), notes=tuple(notes))


def base_of_edits(edits: Sequence[MirrorEdit], content: bytes) -> PageBase:
    """Return the base of the edits that a round is about to take from a file."""
    facts = {text_digest(edit.name) or "": text_digest(edit.text) or "" for edit in edits if edit.kind != "append"}
    notes = tuple(note_digest(edit.text) for edit in edits if edit.kind == "append" and edit.text)
    return PageBase(digest(content), len(content), facts, notes)


def base_of_content(name: str, content: bytes) -> PageBase:
    """Return the base of everything that a file held, regardless of its author."""
    if name != PROFILE_FILE:
        return base_of_day(content, [note_digest(content.decode(errors="replace"))])
    facts: dict[str, str] = {}
    with suppress(Unreadable):
        facts = facts_of(content)
    return base_of_profile(facts, content)


def hand_side(name: str, content: bytes, bases: Iterable[PageBase]) -> bytes:
    """Return the facts or lines of a file that none of its bases has; empty if there are no others.

    If an erasure reached a file, nothing else of it may be copied, because it is no longer known which of its texts was
    erased.
    """
    if name == PROFILE_FILE:
        known = {fact for base in bases for fact in base.facts.items()}
        try:
            facts = facts_of(content)
        except Unreadable:
            return b""
        return facts_bytes(
            {key: value for key, value in facts.items() if not known & facts_digests({key: value}).items()}
        )
    known_lines = {line for base in bases for note in base.notes for line in split_digest(note)}
    known_lines.add(lines_digest([heading(day_of(name))]))
    lines = content.decode(errors="replace").removeprefix(_BOM).split("\n")
    left = [line for line in lines if line.strip() and lines_digest([line.rstrip()]) not in known_lines]
    return ("\n".join(left) + "\n").encode() if left else b""


class Owner(Struct, frozen=True):
    """The store, the branch and the two streams that a mirror's files belong to."""

    store: str
    branch: int
    profile: str
    journal: str

    def __str__(self) -> str:
        branch = f", fork {self.branch}" if self.branch else ""
        return f"profile {self.profile!r} and journal {self.journal!r} of store {self.store}{branch}"


FORMAT: Final = 1


class MirrorState(Struct):
    """The mirror's record of its files: their present and their next contents."""

    owner: Owner
    seq: int = 0
    files: dict[str, PageBase] = {}
    taking: dict[str, PageBase] = {}
    """By file, the edits that a round is about to take: facts, ``""`` for a deletion, and notes."""
    taking_edits: tuple[str, ...] = ()
    """The same edits in order, as digests."""
    taking_after: int = 0
    """The seq of the log before them."""
    taken: dict[str, PageBase] = {}
    """By file, the edits that interrupted rounds took, and that the files had."""
    coming: dict[str, PageBase] = {}
    recent: list[ProfileChange] = []
    format: int = FORMAT
    erased_count: int = 0
    """The number of erased events when the files were last rid of them."""
    copies_erased_count: int = 0
    """The same for the copies next to them."""

    def bases_of(self, name: str) -> list[PageBase]:
        """Return the possible bases of a file."""
        return [base for base in (self.coming.get(name), self.files.get(name)) if base is not None]

    def to_bytes(self) -> bytes:
        """Return the record as a file: its checksum, and JSON."""
        content = msgspec.json.encode(self)
        return f"{_checksum(content)}\n".encode() + content


class _Header(Struct):
    """The beginning of a record of any format."""

    format: int = FORMAT


def state_of(content: bytes, owner: Owner, path: str) -> MirrorState | None:
    """Return the record in some bytes, ``None`` if there is none or it is damaged.

    Raises ``InvalidInput`` if the files belong to another owner, or to a newer refold.
    """
    checksum, _, document = content.partition(b"\n")
    if checksum != _checksum(document).encode():
        return None
    try:
        number = msgspec.json.decode(document, type=_Header).format
        state = msgspec.json.decode(document, type=MirrorState) if number == FORMAT else None
    except checks.UNDECODABLE:
        return None
    if state is None:
        raise InvalidInput(
            f"{path} was written by a newer refold (format {number}, this one knows {FORMAT}); upgrade refold"
        )
    if state.owner != owner:
        raise InvalidInput(
            f"{path} mirrors {state.owner}, and this is {owner}; give this one a directory of its own, "
            f"or remove .refold-mirror there to have its files taken as written by hand"
        )
    return state


def _checksum(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


# The plan of a round: the log's side of the files, and the action for each of them.

Notes = tuple[tuple[int, str], ...]
"""The notes of a day, each with its seq."""


class LogState(NamedTuple):
    """The log's side at a seq: the facts, the notes of each day by the name of its file, and days that name no file.

    ``erased_count`` is the number of events of the store that were erased by then.
    """

    seq: int
    facts: dict[str, str]
    days: dict[str, Notes]
    nameless: tuple[str, ...]
    erased_count: int

    def content(self, name: str) -> bytes | None:
        """Return the bytes of a file, ``None`` if it should not exist."""
        if name == PROFILE_FILE:
            return profile_bytes(self.facts)
        notes = self.days.get(name)
        return day_bytes(day_of(name), [text for _, text in notes]) if notes else None

    @property
    def names(self) -> set[str]:
        """The names of the files that should exist."""
        return {PROFILE_FILE, *self.days}


# The action for one file, decided from its bytes, the log's side and the base. Pure.

_BOTH: Final = "the file and the log changed it differently"
_OLD: Final = "the file has what was there before the log's last writes, as if an older copy had been edited and saved"
_GROWS: Final = "a journal only grows: add a correction at the end of the day, or erase a note by its seq"


class FileHistory(NamedTuple):
    """The past of a file: its possible bases, the edits that interrupted rounds took, and recent changes.

    ``is_erased`` says that an erasure reached it, so that only the user's own values of a profile may be copied.
    """

    bases: Sequence[PageBase]
    taken: PageBase
    recent: Sequence[ProfileChange]
    is_erased: bool


class FilePlan(Struct):
    """The plan for a file; ``base`` is that of its present content, ``None`` if there is no file."""

    name: str
    read: FileContent
    base: PageBase | None
    edits: list[MirrorEdit] = []
    conflicts: list[MirrorConflict] = []
    copy: bytes = b""
    """The user's side of the conflicts, to be copied next to the file."""
    problem: str = ""

    @property
    def is_edited(self) -> bool:
        """Whether the user changed something."""
        return bool(self.edits or self.conflicts)

    def leave(self, problem: str) -> None:
        """Leave the file, and the user's changes in it, until a round can take them."""
        self.problem, self.edits, self.conflicts, self.base = problem, [], [], None


def plan_file(name: str, read: FileContent, log: LogState, log_base: PageBase | None, past: FileHistory) -> FilePlan:
    """Return the plan for a file; ``log_base`` is the base that it would have if the log wrote it now."""
    if read.problem or read.version is None:
        return FilePlan(name, read, None, problem=read.problem)
    hashed = digest(read.content)
    for base in (log_base, *past.bases):
        if base is not None and base.digest == hashed:
            return FilePlan(name, read, base)
    if len(read.content) > MIRROR_FILE_BYTES_MAX:
        return FilePlan(name, read, None, problem=size_problem(len(read.content)))
    try:
        return (_plan_profile if name == PROFILE_FILE else _plan_day)(name, read, log, past)
    except Unreadable as error:
        return FilePlan(name, read, None, problem=str(error))


def _plan_profile(name: str, read: FileContent, log: LogState, past: FileHistory) -> FilePlan:
    hand = facts_of(read.content)
    taken = past.taken.facts
    merge = merge_facts(hand, log.facts, [base.facts for base in past.bases], taken)
    old = stale_keys(hand, merge.edits, past.recent, taken.keys())
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
        sides = {
            key: text
            for key, text in sides.items()
            if text is not None and not known & facts_digests({key: text}).items()
        }
    return FilePlan(name, read, base_of_profile(hand, read.content), edits, conflicts, facts_bytes(sides))


def _plan_day(name: str, read: FileContent, log: LogState, past: FileHistory) -> FilePlan:
    day, notes = day_of(name), log.days.get(name, ())
    try:
        options.day_of(day, "day")
    except RefoldError as error:
        raise Unreadable("names no day; rename it") from error
    text, taken = text_of(read.content), past.taken.notes
    if has_conflict(text) and not any(has_conflict(note) for _, note in notes):
        raise Unreadable("has the marks of a merge conflict; keep what is right, and remove the marks")
    known = [note for base in past.bases for note in base.notes]
    merges = [merge_notes(day, text, notes, base.notes, taken=taken, known=known) for base in past.bases]
    # The file continues from the base of which it has all notes, if there is one.
    merge = next((merge for merge in merges if not merge.missing), merges[-1] if merges else None)
    if merge is None:
        merge = merge_notes(day, text, notes, None, taken=taken)
    base = base_of_day(read.content, merge.notes)
    edits = [MirrorEdit(name, "append", day, text) for text in merge.added]
    if not merge.missing:
        return FilePlan(name, read, base, edits)
    hand = "\n\n".join(merge.changed)
    texts = dict(notes)
    seqs = ", ".join(map(str, merge.missing))
    conflict = MirrorConflict(name, seqs, hand or None, "\n".join(texts[seq] for seq in merge.missing), "", _GROWS)
    copy = f"{heading(day)}, in the place of seq {seqs}\n\n{hand}\n".encode() if hand else b""
    return FilePlan(name, read, base, edits, [conflict], copy)


# Whether the log got the edits that a round was about to take when it was interrupted.
#
# A note among them that was erased since, or that a restore removed, is not in the log's state: taken again, it would
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


def has_commit(edits: Sequence[str], recorded: Iterable[Recorded], journal: str) -> bool:
    """Return whether edits are among events as one commit; of an erased event only the stream is known."""
    events = [
        (stamp.stream == journal, None if stamp.erased else _event_digest(event), stamp.time_ns)
        for event, stamp in recorded
    ]
    for begin in range(len(events) - len(edits) + 1) if edits else ():
        commit = events[begin : begin + len(edits)]
        if len({time_ns for _, _, time_ns in commit}) == 1 and all(
            is_note == edit.startswith("append") and hashed in {None, edit}
            for edit, (is_note, hashed, _) in zip(edits, commit, strict=True)
        ):
            return True
    return False
