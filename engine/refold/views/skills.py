"""The library of skills: those that were learned, what is switched off, what was used and how that went.

Skills in files are not here: of those the log knows by name what was switched, selected and used.
"""

from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.event import Event, Located, Stamp, View
from refold.views.base import Keyed

GENERATED: Final = "generated"
REFINED: Final = "refined"
PENDING: Final = "pending_review"
ACTIVE: Final = "active"
STATUSES: Final = (ACTIVE, PENDING, "rejected", "archived")

ON: Final = "on"
OFF: Final = "off"

SELECTIONS_KEPT: Final = 1_024
"""Conversations whose last selection the state holds, the latest ones; part of the fold, so it never changes."""


class SkillLearned(Event, frozen=True, tag=56):
    """A skill was learned from sessions."""

    has_own_id: ClassVar[bool] = True

    id: str
    kind: str = GENERATED
    name: str = ""
    description: str = ""
    text: str = ""
    tags: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    status: str = PENDING

    def mentions(self) -> tuple[str, ...]:
        """Return the sessions that it was learned from."""
        return self.sessions


class SkillRefined(Event, frozen=True, tag=57):
    """A learned skill got another content, whole."""

    id: str
    kind: str = REFINED
    name: str = ""
    description: str = ""
    text: str = ""
    tags: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    status: str = PENDING

    def mentions(self) -> tuple[str, ...]:
        """Return the sessions that it was learned from."""
        return self.sessions


class SkillReviewed(Event, frozen=True, tag=58):
    """Somebody decided about a learned skill."""

    id: str
    status: str


class SkillToggled(Event, frozen=True, tag=59):
    """A skill, wherever it comes from, was switched on or off."""

    prior: int
    name: str = ""
    enabled: bool = False


class SkillUsed(Event, frozen=True, tag=60):
    """A skill was used; ``succeeded`` is ``None`` where nobody said how it went."""

    name: str = ""
    succeeded: bool | None = None
    conversation: str | None = None

    def mentions(self) -> tuple[str | None, ...]:
        """Return the conversation in which it was used."""
        return (self.conversation,)


class SkillsSelected(Event, frozen=True, tag=61):
    """Skills were selected for a query, in the order in which they were put before a model."""

    prior: int
    conversation: str = ""
    query: str = ""
    phase: str | None = None
    ranking: str = ""
    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()

    def mentions(self) -> tuple[str, ...]:
        """Return the conversation that it was selected for."""
        return (self.conversation,)


class SkillDeleted(Event, frozen=True, tag=62):
    """A learned skill was removed."""

    id: str


class LearnedSkill(Struct, frozen=True, gc=False):
    """A skill of the library: its content, what it was made of, and whether it was reviewed.

    ``kind`` is ``generated`` or ``refined``, ``status`` one of ``active``, ``pending_review``, ``rejected`` and
    ``archived``. ``seq`` is that of the event with its content, below 0 while its batch is open.
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


class Usage(Struct, frozen=True, gc=False):
    """How often a skill was used, how often somebody said how that went, and how often it went well."""

    count: int = 0
    rated: int = 0
    succeeded: int = 0
    last_ns: int = 0

    @property
    def success_rate(self) -> float:
        """The share of the rated uses that went well, 1.0 without any."""
        return self.succeeded / self.rated if self.rated else 1.0


class Selection(Struct, frozen=True, gc=False):
    """What was selected for a conversation: for which query and phase, by which ranking, and when.

    ``seq`` is below 0 while its batch is open.
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
    """Learned skills by id, switches and uses by name, the last selections by conversation."""

    __slots__ = ("learned", "selections", "toggles", "uses")

    def __init__(self) -> None:
        self.learned: dict[str, LearnedSkill] = {}
        self.toggles: Keyed[str] = Keyed()
        self.uses: dict[str, Usage] = {}
        self.selections: dict[str, Selection] = {}

    def copy(self) -> "Library":
        """Return the same library, to be folded on by itself."""
        other = Library()
        other.learned, other.uses = dict(self.learned), dict(self.uses)
        other.toggles, other.selections = self.toggles.copy(), dict(self.selections)
        return other

    def is_enabled(self, name: str) -> bool:
        """Return whether a skill is switched on, as it is unless somebody switched it off."""
        return self.toggles.values.get(name, ON) == ON

    def named(self, name: str) -> LearnedSkill | None:
        """Return the learned skill of a name, or of an id."""
        found = self.learned.get(name)
        return found or next((skill for skill in self.learned.values() if skill.name == name), None)

    def select(self, selection: Selection) -> None:
        """Hold a selection as the latest one of all."""
        self.selections.pop(selection.conversation, None)
        self.selections[selection.conversation] = selection
        if len(self.selections) > SELECTIONS_KEPT:
            del self.selections[next(iter(self.selections))]

    def pack(self) -> tuple[Any, list[int]]:
        toggles, pointed = self.toggles.pack()
        uses = [[name, *msgspec.structs.astuple(usage)] for name, usage in self.uses.items()]
        learned = [[skill.id, skill.status, skill.created_ns, skill.updated_ns] for skill in self.learned.values()]
        seqs = [skill.seq for skill in self.learned.values()] + [held.seq for held in self.selections.values()]
        return [toggles, uses, learned], pointed + seqs

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Library":
        library = cls()
        toggles, uses, learned = msgspec.convert(inline, _INLINE)
        located = iter(events)
        library.toggles.unpack(toggles, str, lambda _: _switch(next(located)[0]))
        library.uses = {name: Usage(*counts) for name, *counts in uses}
        for id_, status, created_ns, updated_ns in learned:
            event, stamp = next(located)
            assert isinstance(event, (SkillLearned, SkillRefined)), f"seq {stamp.seq} was packed as a skill"
            held = learned_of(event, stamp, created_ns)
            library.learned[id_] = replace(held, status=status, updated_ns=updated_ns)
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
        ]
        return parts if any(parts) else None

    def plain(self) -> dict[str, Any]:
        shown = ("name", "description", "body", "tags", "kind", "sessions", "status")
        return {
            "learned": {id_: {field: getattr(skill, field) for field in shown} for id_, skill in self.learned.items()},
            "switched": dict(self.toggles.values),
            "used": {name: [usage.count, usage.rated, usage.succeeded] for name, usage in self.uses.items()},
            "selected": {name: list(selection.names) for name, selection in self.selections.items()},
        }


def learned_of(event: SkillLearned | SkillRefined, stamp: Stamp, created_ns: int | None = None) -> LearnedSkill:
    """Return the skill that an event describes."""
    said = (event.id, event.name, event.description, event.text, event.tags, event.kind, event.sessions, event.status)
    return LearnedSkill(*said, stamp.seq, stamp.time_ns if created_ns is None else created_ns, stamp.time_ns)


def selection_of(event: SkillsSelected, stamp: Stamp) -> Selection:
    """Return the selection that an event describes."""
    said = (event.conversation, event.query, event.phase, event.ranking, event.names, event.ids, event.reasons)
    return Selection(*said, event.scores, stamp.seq, stamp.time_ns)


_INLINE: Final = tuple[list[Any], list[tuple[str, int, int, int, int]], list[tuple[str, str, int, int]]]


def _switch(event: Event) -> str:
    assert isinstance(event, SkillToggled), f"{event!r} was packed as a switch"
    return ON if event.enabled else OFF


SKILLS = View("skills", kinds=("skills",), state=Library)


@SKILLS.on(SkillLearned)
def _skill_learned(library: Library, stamp: Stamp, event: SkillLearned) -> None:
    if not stamp.erased:
        library.learned[event.id] = learned_of(event, stamp)


@SKILLS.on(SkillRefined)
def _skill_refined(library: Library, stamp: Stamp, event: SkillRefined) -> None:
    """Hold the new content under the same id; erased, it takes the skill with it, so that nothing old comes back."""
    held = library.learned.get(event.id)
    if stamp.erased:
        library.learned.pop(event.id, None)
    else:
        library.learned[event.id] = learned_of(event, stamp, None if held is None else held.created_ns)


@SKILLS.on(SkillReviewed)
def _skill_reviewed(library: Library, stamp: Stamp, event: SkillReviewed) -> None:
    held = library.learned.get(event.id)
    if held is not None:
        library.learned[event.id] = replace(held, status=event.status, updated_ns=stamp.time_ns)


@SKILLS.on(SkillToggled)
def _skill_toggled(library: Library, stamp: Stamp, event: SkillToggled) -> None:
    if stamp.erased:
        library.toggles.drop_at(event.prior, 0)
    else:
        library.toggles.put(stamp.seq, event.name, ON if event.enabled else OFF)


@SKILLS.on(SkillUsed)
def _skill_used(library: Library, stamp: Stamp, event: SkillUsed) -> None:
    """Count the use; an erased one is not counted, since nobody knows of what."""
    if stamp.erased:
        return
    held = library.uses.get(event.name) or Usage()
    is_rated, is_good = event.succeeded is not None, event.succeeded is True
    counts = (held.count + 1, held.rated + is_rated, held.succeeded + is_good)
    library.uses[event.name] = Usage(*counts, stamp.time_ns)


@SKILLS.on(SkillsSelected)
def _skills_selected(library: Library, stamp: Stamp, event: SkillsSelected) -> None:
    """Hold the selection as the last one of its conversation; erased, it takes the one before it along."""
    if not stamp.erased:
        library.select(selection_of(event, stamp))
        return
    for conversation, selection in library.selections.items():
        if selection.seq == event.prior:
            del library.selections[conversation]
            return


@SKILLS.on(SkillDeleted)
def _skill_deleted(library: Library, stamp: Stamp, event: SkillDeleted) -> None:
    library.learned.pop(event.id, None)
