"""The library: skills that were learned, switches, uses and selections, in the log and as of any seq."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict, TypeVar, Unpack

from msgspec.structs import force_setattr

from refold import checks
from refold.engine import batch as batches
from refold.engine.pending import Decide, Noted
from refold.errors import InvalidInput, NotFound
from refold.event import Event
from refold.fold import State
from refold.limits import NAME_BYTES_MAX
from refold.memory.door import Door, Options
from refold.tools.skills.selecting import SkillMatch, checked_phase
from refold.tools.skills.writing import listed, render_skill
from refold.views.skills import (
    ACTIVE,
    GENERATED,
    OFF,
    ON,
    PENDING,
    REFINED,
    SKILLS,
    STATUSES,
    LearnedSkill,
    Library,
    Selection,
    SkillDeleted,
    SkillLearned,
    SkillRefined,
    SkillReviewed,
    SkillsSelected,
    SkillToggled,
    SkillUsed,
    Usage,
    learned_of,
    selection_of,
)

T = TypeVar("T")


class Writing(TypedDict, total=False):
    """What every mutation takes beside its own arguments."""

    expected: object
    request_id: str | None
    sources: Sequence[Any]


class SkillLibrary:
    """A handle on the skills that a memory learned, and on what it knows of all others by name.

    Every mutation takes ``expected``, ``request_id`` and ``sources`` too, as everywhere.

    >>> from refold import Memory
    >>> library = library_of(Memory())
    >>> library.learn("release-notes", "How to write them.", "One line a change.").status
    'pending_review'
    """

    __slots__ = ("_at", "_door", "_stream", "name")

    def __init__(self, door: Door, at: int | None, name: str = "default") -> None:
        self.name = checks.name(name, "name")
        self._door = door
        self._at = at
        self._stream = f"skills/{self.name}"

    def __repr__(self) -> str:
        """Return the handle with its count."""
        return f"SkillLibrary({self.name!r}, {self._door.counts(lambda: f'learned={len(self.list())}')})"

    def _read(self, query: Callable[[Library], T]) -> T:
        return self._door.read(self._stream, lambda state: query(state.part(SKILLS)), self._at)

    def _note(self, make: "Event | Decide", asked: tuple[Any, ...], options: Options) -> Noted | None:
        return self._door.note(
            self._stream,
            make,
            at=self._at,
            asked=asked,
            expected=options.expected,
            request_id=options.request_id,
        )

    def check_writable(self) -> None:
        """Raise ``ReadOnly`` where no mutation could be written."""
        self._door.refuse_frozen(self._stream, self._at)
        self._door.engine.check_writable()

    # Learned skills.

    def list(self, status: str | None = None) -> list[LearnedSkill]:
        """Return the learned skills, those of one status only if one is given, in the order of their learning."""
        wanted = None if status is None else _status(status)
        return self._read(lambda held: [skill for skill in held.learned.values() if wanted in {None, skill.status}])

    def get(self, skill: str) -> LearnedSkill:
        """Return a learned skill by its name or id; raises ``NotFound``."""
        return self._read(lambda held: _known(held, skill))

    def learn(
        self,
        name: str,
        description: str,
        body: str,
        *,
        tags: Sequence[str] = (),
        sessions: Sequence[str] = (),
        status: str = PENDING,
        **writing: Unpack[Writing],
    ) -> LearnedSkill:
        """Add a skill, pending review unless another status is given.

        Raises ``InvalidInput`` for what could not be written as a valid SKILL.md, and for a name that a learned skill
        has already.
        """
        given = _Content(name, description, body, tags, sessions)
        cited, decided = self._door.sources(writing.get("sources", ())), _status(status)
        event = SkillLearned(cited, self._door.engine.new_id(), GENERATED, *given.fields, decided)

        def decide(state: State) -> Event:
            if state.part(SKILLS).named(name) is not None:
                message = f"a skill {name!r} was learned already; refine it, or take another name"
                raise InvalidInput(message)
            return event

        return self._learned(self._note(decide, ("learn", *given.fields, decided), Options(**writing)))

    def refine(
        self,
        skill: str,
        *,
        description: str | None = None,
        body: str | None = None,
        tags: Sequence[str] | None = None,
        sessions: Sequence[str] = (),
        status: str = PENDING,
        **writing: Unpack[Writing],
    ) -> LearnedSkill:
        """Give a learned skill another content, of more sessions; it is reviewed anew. What is not given stays.

        The event names that of the old content as its source. Raises ``NotFound`` and ``InvalidInput``.
        """
        cited, decided = self._door.sources(writing.get("sources", ())), _status(status)

        def decide(state: State) -> Event:
            held = _known(state.part(SKILLS), skill)
            given = _Content(
                held.name,
                held.description if description is None else description,
                held.body if body is None else body,
                held.tags if tags is None else tags,
                (*held.sessions, *(session for session in sessions if session not in held.sessions)),
            )
            return SkillRefined((*cited, held.seq), held.id, REFINED, *given.fields, decided)

        listed(sessions, "sessions")
        asked = ("refine", skill, description, body, None if tags is None else [*tags], [*sessions], decided)
        return self._learned(self._note(decide, asked, Options(**writing)))

    def _learned(self, noted: Noted | None) -> LearnedSkill:
        assert noted is not None, "a skill is always written"
        event, stamp = noted
        assert isinstance(event, (SkillLearned, SkillRefined)), event
        held = self._read(lambda library: library.learned.get(event.id))
        created_ns = None if held is None else held.created_ns
        found = learned_of(event, stamp, created_ns)
        self._settle_later(found, stamp.seq, ("updated_ns",) if created_ns else ("created_ns", "updated_ns"))
        return found

    def _settle_later(self, result: LearnedSkill | Selection, seq: int, times: tuple[str, ...]) -> None:
        """Let the engine fill in the seq and the times of a result once this context's batch is committed."""
        batch = batches.active(self._door.engine)
        if batch is None or seq > 0:
            return

        def settle(settled: Any) -> None:
            for field, value in (("seq", settled.seq), *((time, settled.time_ns) for time in times)):
                force_setattr(result, field, value)

        batch.pending.later.append((seq, settle))

    def approve(self, skill: str, **writing: Unpack[Writing]) -> LearnedSkill:
        """Let a learned skill be selected; raises ``NotFound``."""
        return self.review(skill, ACTIVE, **writing)

    def reject(self, skill: str, **writing: Unpack[Writing]) -> LearnedSkill:
        """Keep a learned skill from being selected; raises ``NotFound``."""
        return self.review(skill, "rejected", **writing)

    def review(self, skill: str, status: str, **writing: Unpack[Writing]) -> LearnedSkill:
        """Give a learned skill a status and return it; raises ``NotFound``."""
        decided, cited = _status(status), self._door.sources(writing.get("sources", ()))

        def decide(state: State) -> Event | None:
            held = _known(state.part(SKILLS), skill)
            return None if held.status == decided else SkillReviewed(cited, held.id, decided)

        self._note(decide, ("review", skill, decided), Options(**writing))
        return self.get(skill)

    def delete(self, skill: str, **writing: Unpack[Writing]) -> None:
        """Remove a learned skill; the log keeps it. Raises ``NotFound``."""
        cited = self._door.sources(writing.get("sources", ()))
        self._note(
            lambda state: SkillDeleted(cited, _known(state.part(SKILLS), skill).id),
            ("delete", skill),
            Options(**writing),
        )

    # Switches.

    def is_enabled(self, name: str) -> bool:
        """Return whether a skill, of whatever source, is switched on."""
        return self._read(lambda held: held.is_enabled(name))

    def disabled(self) -> frozenset[str]:
        """Return the names of the skills that are switched off."""
        return self._read(lambda held: frozenset(name for name, switch in held.toggles.values.items() if switch == OFF))

    def toggle(self, name: str, *, enabled: bool, **writing: Unpack[Writing]) -> bool:
        """Switch a skill on or off by its name; return whether that changed anything."""
        key, switch = checks.key(name, "name"), checks.flag(enabled, "enabled")
        cited = self._door.sources(writing.get("sources", ()))

        def decide(state: State) -> Event | None:
            held = state.part(SKILLS)
            if held.toggles.values.get(key, ON) == (ON if switch else OFF):
                return None
            return SkillToggled(cited, held.toggles.prior(key)[0], key, switch)

        return self._note(decide, ("toggle", key, switch), Options(**writing)) is not None

    # Uses.

    def use(
        self,
        name: str,
        *,
        succeeded: bool | None = None,
        conversation: str | None = None,
        **writing: Unpack[Writing],
    ) -> None:
        """Record that a skill was used, and how that went if it is known."""
        key, cited = checks.key(name, "name"), self._door.sources(writing.get("sources", ()))
        outcome = None if succeeded is None else checks.flag(succeeded, "succeeded")
        where = None if conversation is None else checks.name(conversation, "conversation")
        self._note(SkillUsed(cited, key, outcome, where), ("use", key, outcome, where), Options(**writing))

    def usage(self, name: str) -> Usage:
        """Return how often a skill was used, and how often it went well."""
        return self._read(lambda held: held.uses.get(name) or Usage())

    # Selections.

    def record(
        self,
        matches: Sequence[SkillMatch],
        *,
        query: str,
        conversation: str = "",
        phase: str | None = None,
        ranking: str = "",
        **writing: Unpack[Writing],
    ) -> Selection:
        """Record what was selected, and return it; it replaces the last selection of that conversation."""
        cited = self._door.sources(writing.get("sources", ()))
        where = checks.text(conversation, "conversation", NAME_BYTES_MAX, "NAME_BYTES_MAX")
        said = (where, checks.text(query, "query"), checked_phase(phase), checks.text(ranking, "ranking"))
        skills = [match.skill for match in matches]
        names, ids = tuple(skill.name for skill in skills), tuple(skill.id for skill in skills)
        reasons, scores = tuple(match.match_reason for match in matches), tuple(match.score for match in matches)

        def decide(state: State) -> Event:
            last = state.part(SKILLS).selections.get(where)
            return SkillsSelected(cited, 0 if last is None else last.seq, *said, names, ids, reasons, scores)

        noted = self._note(decide, ("record", *said, names, ids, reasons, scores), Options(**writing))
        assert noted is not None, "a selection is always written"
        event, stamp = noted
        assert isinstance(event, SkillsSelected), event
        selection = selection_of(event, stamp)
        self._settle_later(selection, stamp.seq, ("time_ns",))
        return selection

    def selected(self, conversation: str = "") -> Selection | None:
        """Return the last selection of a conversation, ``None`` where there was none."""
        return self._read(lambda held: held.selections.get(conversation))


def library_of(memory: Any, name: str = "default") -> SkillLibrary:
    """Return the library of a memory, frozen where the memory is."""
    door: Door = memory._door  # noqa: SLF001 - what the handles of one memory share; rooms above have no other way
    at: int | None = memory._at  # noqa: SLF001 - as above
    return SkillLibrary(door, at, name)


class _Content:
    """What a skill says, checked by writing it as a file."""

    def __init__(self, name: str, description: str, body: str, tags: Sequence[str], sessions: Sequence[str]) -> None:
        render_skill(name, description, body, tags=tags)
        given = listed(sessions, "sessions")
        named = tuple(checks.text(session, "a session", NAME_BYTES_MAX, "NAME_BYTES_MAX") for session in given)
        self.fields = (name, description.strip(), body, tuple(tag.strip() for tag in tags), named)


def _known(library: Library, skill: str) -> LearnedSkill:
    found = library.named(checks.text(skill, "skill"))
    if found is None:
        message = f"no skill {checks.shown(skill)} was learned; `list()` has those that were"
        raise NotFound(message)
    return found


def _status(status: object) -> str:
    if status not in STATUSES:
        message = f"status is {checks.shown(status)}; give one of {', '.join(STATUSES)}"
        raise InvalidInput(message)
    return str(status)
