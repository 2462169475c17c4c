"""The library of skills: the learned ones, and the switches, notes, uses and selections of all.

The text of skills in files is not in the log, only the names of those that were switched, noted, edited, selected or
used.
"""

from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.event import Event, Located, Stamp, View, clock_of
from refold.views.base import KeyedValues, copy_slots

GENERATED: Final = "generated"
REFINED: Final = "refined"
PENDING: Final = "pending_review"
ACTIVE: Final = "active"
STATUSES: Final = (ACTIVE, PENDING, "rejected", "archived")

ON: Final = "on"
OFF: Final = "off"

SELECTIONS_KEPT: Final = 1_024
"""The number of conversations whose last selection the state holds, the latest ones; part of the fold, so it never
changes."""


class _SkillContent(Event, frozen=True):
    id: str
    kind: str = GENERATED
    name: str = ""
    description: str = ""
    text: str = ""
    tags: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    status: str = PENDING

    def check(self, *, is_erased: bool) -> None:
        if is_erased:
            return
        checks.name(self.name, "name")
        checks.one_of(self.kind, "kind", (GENERATED, REFINED))
        checks.one_of(self.status, "status", STATUSES)

    def mentions(self) -> tuple[str, ...]:
        return self.sessions


class SkillLearned(_SkillContent, frozen=True, tag=56):
    """A skill was learned from sessions."""

    sentence: ClassVar[str] = "the skill {name} was learned"
    subject: ClassVar[tuple[str, str]] = ("skill", "id")

    has_own_id: ClassVar[bool] = True


class SkillRefined(_SkillContent, frozen=True, tag=57):
    """The whole content of a learned skill was replaced."""

    sentence: ClassVar[str] = "the skill {name} got another content"
    subject: ClassVar[tuple[str, str]] = ("skill", "id")

    kind: str = REFINED


class SkillReviewed(Event, frozen=True, tag=58):
    """A learned skill got another status."""

    sentence: ClassVar[str] = "its status became {status!s}"
    subject: ClassVar[tuple[str, str]] = ("skill", "id")

    id: str
    status: str

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased event keeps its status
        checks.one_of(self.status, "status", STATUSES)


class SkillToggled(Event, frozen=True, tag=59):
    """A skill, whatever its source, was switched on or off."""

    sentence: ClassVar[str] = "the switch of the skill {name} was set to {enabled!s}"
    subject: ClassVar[tuple[str, str]] = ("switch", "name")

    prior: int
    name: str = ""
    enabled: bool = False

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            checks.key(self.name, "name")


class SkillUsed(Event, frozen=True, tag=60):
    """A skill was used; ``succeeded`` is ``None`` if unknown."""

    sentence: ClassVar[str] = "the skill {name} was used"

    name: str = ""
    succeeded: bool | None = None
    conversation: str | None = None

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            checks.key(self.name, "name")

    def mentions(self) -> tuple[str | None, ...]:
        return (self.conversation,)


class SkillsSelected(Event, frozen=True, tag=61):
    """Skills were selected for a query, in the order in which they were shown to a model."""

    sentence: ClassVar[str] = "the skills {names!s} were selected for {query}"

    prior: int
    conversation: str = ""
    query: str = ""
    phase: str | None = None
    ranking: str = ""
    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased event has none of them
        counts = {len(self.names), len(self.ids), len(self.reasons), len(self.scores)}
        if len(counts) != 1:
            checks.invalid(f"{len(self.names)} skills have {len(self.scores)} scores")

    def mentions(self) -> tuple[str, ...]:
        return (self.conversation,)


class SkillDeleted(Event, frozen=True, tag=62):
    """A learned skill was removed."""

    sentence: ClassVar[str] = "the learned skill was removed"
    subject: ClassVar[tuple[str, str]] = ("skill", "id")

    id: str

    def removes(self, key: str) -> bool:  # noqa: ARG002 - it names only one
        return True


class SkillNoted(Event, frozen=True, tag=63):
    """A skill, whatever its source, got a note from its user; an empty note removes the earlier one."""

    sentence: ClassVar[str] = "the skill {name} got the note {text}"
    subject: ClassVar[tuple[str, str]] = ("skill note", "name")

    prior: int
    name: str = ""
    text: str = ""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            checks.key(self.name, "name")

    def removes(self, key: str) -> bool:  # noqa: ARG002 - it names only one
        return not self.text


class SkillEdited(Event, frozen=True, tag=64):
    """The file of a skill was edited; ``before`` and ``after`` are its ids, which differ if contents do."""

    sentence: ClassVar[str] = "the file of the skill {name} was edited"

    name: str = ""
    before: str = ""
    after: str = ""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            checks.key(self.name, "name")


class LearnedSkill(Struct, frozen=True, gc=False):
    """A skill of the library: its content, the sessions that it was made from, and its status.

    ``kind`` is ``generated`` or ``refined``, ``status`` one of ``active``, ``pending_review``, ``rejected`` and
    ``archived``. ``seq`` is that of the event with its content, and negative while its batch is open.
    """

    id: str
    name: str
    description: str
    body: str
    tags: tuple[str, ...]
    kind: str
    sessions: tuple[str, ...]
    status: str
    seq: int
    created_ns: int
    updated_ns: int


class SkillUsage(Struct, frozen=True, gc=False):
    """The uses of a skill: their number, the rated ones, and the successful ones."""

    count: int = 0
    rated: int = 0
    succeeded: int = 0
    last_ns: int = 0

    @property
    def success_rate(self) -> float:
        """The share of the rated uses that succeeded, 1.0 if none was rated."""
        return self.succeeded / self.rated if self.rated else 1.0


class Selection(Struct, frozen=True, gc=False):
    """The skills selected for a conversation: for which query and phase, by which ranking, and when.

    ``seq`` is negative while its batch is open.
    """

    conversation: str
    query: str
    phase: str | None
    ranking: str
    names: tuple[str, ...]
    ids: tuple[str, ...]
    reasons: tuple[str, ...]
    scores: tuple[float, ...]
    seq: int
    time_ns: int


class Library:
    """Learned skills by id; switches, notes and uses by name; and the last selections by conversation."""

    __slots__ = ("_ids", "learned", "notes", "selections", "toggles", "uses")

    def __init__(self) -> None:
        self.learned: dict[str, LearnedSkill] = {}
        self._ids: dict[str, str] | None = {}
        """The first id of each name; ``None`` if it has to be looked up again."""
        self.toggles: KeyedValues[str] = KeyedValues()
        self.notes: KeyedValues[str] = KeyedValues()
        self.uses: dict[str, SkillUsage] = {}
        self.selections: dict[str, Selection] = {}

    copy = copy_slots

    def is_enabled(self, name: str) -> bool:
        """Return whether a skill is switched on, which is the default."""
        return self.toggles.values.get(name, ON) == ON

    def find(self, name: str) -> LearnedSkill | None:
        """Return the learned skill with a name or an id."""
        if self._ids is None:
            self._ids = {skill.name: skill.id for skill in reversed(self.learned.values())}
        return self.learned.get(name) or self.learned.get(self._ids.get(name, ""))

    def put(self, skill: LearnedSkill) -> None:
        """Add a skill, or replace the one with its id."""
        before = self.learned.get(skill.id)
        self.learned[skill.id] = skill
        if before is not None and before.name != skill.name:
            self._ids = None
        elif self._ids is not None:
            self._ids.setdefault(skill.name, skill.id)

    def drop(self, skill_id: str) -> None:
        """Remove a skill."""
        if self.learned.pop(skill_id, None) is not None:
            self._ids = None

    def select(self, selection: Selection) -> None:
        """Store a selection as the latest one of all."""
        self.selections.pop(selection.conversation, None)
        self.selections[selection.conversation] = selection
        if len(self.selections) > SELECTIONS_KEPT:
            del self.selections[next(iter(self.selections))]

    def pack(self) -> tuple[Any, list[int]]:
        toggles, pointed = self.toggles.pack()
        notes, noted = self.notes.pack()
        uses = [[name, *msgspec.structs.astuple(usage)] for name, usage in self.uses.items()]
        learned = [[skill.id, skill.status, skill.created_ns, skill.updated_ns] for skill in self.learned.values()]
        seqs = [skill.seq for skill in self.learned.values()] + [
            selection.seq for selection in self.selections.values()
        ]
        return [toggles, uses, learned, notes], pointed + noted + seqs

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Library":
        library = cls()
        toggles, uses, learned, notes = msgspec.convert(inline, _INLINE)
        located = iter(events)
        library.toggles.unpack(toggles, str, lambda _: _switch(next(located)[0]))
        library.notes.unpack(notes, str, lambda _: _note(next(located)[0]))
        library.uses = {name: SkillUsage(*counts) for name, *counts in uses}
        for id_, status, created_ns, updated_ns in learned:
            event, stamp = next(located)
            assert isinstance(event, _SkillContent), f"seq {stamp.seq} was packed as a skill"
            assert event.id == id_, f"seq {stamp.seq} was packed as skill {id_}"
            library.put(replace(learned_skill(event, stamp, created_ns), status=status, updated_ns=updated_ns))
        for event, stamp in located:
            assert isinstance(event, SkillsSelected), f"seq {stamp.seq} was packed as a selection"
            library.select(selection_of(event, stamp))
        return library

    def logical(self) -> Any:
        parts = [
            [msgspec.structs.astuple(skill) for skill in self.learned.values()],
            self.toggles.rows(sorted(self.toggles.values)),
            [[name, *msgspec.structs.astuple(self.uses[name])] for name in sorted(self.uses)],
            [msgspec.structs.astuple(selection) for selection in self.selections.values()],
            self.notes.rows(sorted(self.notes.values)),
        ]
        return parts if any(parts) else None

    def plain(self) -> dict[str, Any]:
        fields = ("name", "description", "body", "tags", "kind", "sessions", "status")
        return {
            "learned": {id_: {name: getattr(skill, name) for name in fields} for id_, skill in self.learned.items()},
            "switched": dict(self.toggles.values),
            "noted": dict(self.notes.values),
            "used": {name: [usage.count, usage.rated, usage.succeeded] for name, usage in self.uses.items()},
            "selected": {name: list(selection.names) for name, selection in self.selections.items()},
        }


def learned_skill(event: _SkillContent, stamp: Stamp, created_ns: int | None = None) -> LearnedSkill:
    """Return the skill that an event describes."""
    fields = {
        name: getattr(event, name) for name in ("id", "name", "description", "tags", "kind", "sessions", "status")
    }
    now_ns = clock_of(stamp)
    created_ns = now_ns if created_ns is None else created_ns
    return LearnedSkill(**fields, body=event.text, seq=stamp.seq, created_ns=created_ns, updated_ns=now_ns)


def selection_of(event: SkillsSelected, stamp: Stamp) -> Selection:
    """Return the selection that an event describes."""
    fields = {name: getattr(event, name) for name in Selection.__struct_fields__[:-2]}
    return Selection(**fields, seq=stamp.seq, time_ns=stamp.time_ns)


_INLINE: Final = tuple[list[Any], list[tuple[str, int, int, int, int]], list[tuple[str, str, int, int]], list[Any]]


def _switch(event: Event) -> str:
    assert isinstance(event, SkillToggled), f"{event!r} was packed as a switch"
    return ON if event.enabled else OFF


def _note(event: Event) -> str:
    assert isinstance(event, SkillNoted), f"{event!r} was packed as a note"
    return event.text


SKILLS = View("skills", kinds=("skills",), state=Library)


@SKILLS.on(SkillLearned)
def _skill_learned(library: Library, stamp: Stamp, event: SkillLearned) -> None:
    if not stamp.erased:
        library.put(learned_skill(event, stamp))


@SKILLS.on(SkillRefined)
def _skill_refined(library: Library, stamp: Stamp, event: SkillRefined) -> None:
    """Replace the content; an erased event removes the skill, so that no old content comes back."""
    skill = library.learned.get(event.id)
    if stamp.erased:
        library.drop(event.id)
    else:
        library.put(learned_skill(event, stamp, None if skill is None else skill.created_ns))


@SKILLS.on(SkillReviewed)
def _skill_reviewed(library: Library, stamp: Stamp, event: SkillReviewed) -> None:
    skill = library.learned.get(event.id)
    if skill is not None:
        library.put(replace(skill, status=event.status, updated_ns=clock_of(stamp)))


@SKILLS.on(SkillToggled)
def _skill_toggled(library: Library, stamp: Stamp, event: SkillToggled) -> None:
    if stamp.erased:
        library.toggles.drop_at(event.prior, 0)
    else:
        library.toggles.put(stamp.seq, event.name, ON if event.enabled else OFF)


@SKILLS.on(SkillNoted)
def _skill_noted(library: Library, stamp: Stamp, event: SkillNoted) -> None:
    if stamp.erased:
        library.notes.drop_at(event.prior, 0)
    elif event.text:
        library.notes.put(stamp.seq, event.name, event.text)
    else:
        library.notes.drop(event.name)


@SKILLS.on(SkillEdited)
def _skill_edited(library: Library, stamp: Stamp, event: SkillEdited) -> None:
    """Change nothing: the text is in its file."""


@SKILLS.on(SkillUsed)
def _skill_used(library: Library, stamp: Stamp, event: SkillUsed) -> None:
    if stamp.erased:
        return  # Its skill is unknown.
    usage = library.uses.get(event.name) or SkillUsage()
    is_rated, is_good = event.succeeded is not None, event.succeeded is True
    counts = (usage.count + 1, usage.rated + is_rated, usage.succeeded + is_good)
    library.uses[event.name] = SkillUsage(*counts, clock_of(stamp))


@SKILLS.on(SkillsSelected)
def _skills_selected(library: Library, stamp: Stamp, event: SkillsSelected) -> None:
    """Replace the last selection of the conversation; an erased event removes the one before it."""
    if not stamp.erased:
        library.select(selection_of(event, stamp))
        return
    for conversation, selection in library.selections.items():
        if selection.seq == event.prior:
            del library.selections[conversation]
            return


@SKILLS.on(SkillDeleted)
def _skill_deleted(library: Library, stamp: Stamp, event: SkillDeleted) -> None:
    library.drop(event.id)
