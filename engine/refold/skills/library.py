"""The library of learned skills, with switches, notes, uses and selections, in the log and readable as of any seq."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import isfinite
from numbers import Real
from typing import Any, Final, TypeVar, Unpack, cast

from msgspec.structs import force_setattr, replace

from refold import checks
from refold.engine import batch as batches
from refold.engine.keys import KeyDecision, KeyMap
from refold.engine.transaction import Decide, place_of
from refold.errors import InvalidInput, NotFound
from refold.event import Event, Stamp, clock_of
from refold.fold import State
from refold.limits import NAME_BYTES_MAX, SKILL_NOTE_BYTES_MAX
from refold.memory.core import Core, Handle, core_of
from refold.memory.handles import Settings
from refold.memory.options import MutationOptions, mutation
from refold.skills.format import as_list, render_skill, strip_texts
from refold.skills.selection import SkillMatch, check_phase
from refold.views.base import KeyedValues
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
    SkillNoted,
    SkillRefined,
    SkillReviewed,
    SkillsSelected,
    SkillToggled,
    SkillUsage,
    SkillUsed,
    learned_skill,
    selection_of,
)

T = TypeVar("T")
TOGGLES: Final[KeyMap[str]] = KeyMap(SKILLS, "toggles")
NOTES: Final[KeyMap[str]] = KeyMap(SKILLS, "notes")

# The JSON schema of a skill that a model proposes.
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Lower case words with hyphens between, such as add-api-endpoint."},
        "description": {"type": "string", "description": "What it does and when to use it, in one or two sentences."},
        "tags": {"type": "array", "items": {"type": "string"}},
        "body": {"type": "string", "description": "Markdown: the steps, in order, with what to check after each."},
    },
    "required": ["name", "description", "tags", "body"],
    "additionalProperties": False,
}


class SkillLibrary(Handle):
    """A handle on the skills that a memory has learned, and on the switches, notes and uses of all skills by name.

    >>> from refold import Memory
    >>> library = library_of(Memory())
    >>> library.learn("release-notes", "How to write them.", "One line a change.").status
    'pending_review'
    >>> library.note("release-notes", "Name the people who helped.")
    True
    """

    __slots__ = ("name",)

    def __init__(self, core: Core, at: int | None, name: str = "default") -> None:
        self.name = checks.name(name, "name")
        super().__init__(core, f"skills/{self.name}", at)

    def __repr__(self) -> str:
        return f"SkillLibrary({self.name!r}, {self._core.counts(lambda: f'learned={len(self.list())}')})"

    def _query(self, query: Callable[[Library], T]) -> T:
        return self._read(lambda state: query(state.part(SKILLS)))

    def check_writable(self) -> None:
        """Raise `ReadOnly` if a mutation could not be written."""
        self._core.refuse_frozen(self._stream, self._at)
        self._core.engine.reader.check_writable()

    # Learned skills.

    def list(self, status: str | None = None) -> list[LearnedSkill]:
        """List the learned skills, optionally only those of one status, in the order in which they were learned."""
        if status is not None:
            _check_status(status)
        return self._query(lambda library: [each for each in library.learned.values() if status in {None, each.status}])

    def get(self, skill: str) -> LearnedSkill:
        """Look up a learned skill by its name or id; raises `NotFound`."""
        return self._query(lambda library: _find(library, skill))

    @mutation
    def learn(
        self,
        name: str,
        description: str,
        body: str,
        *,
        tags: Sequence[str] = (),
        sessions: Sequence[str] = (),
        status: str = PENDING,
        **options: Unpack[MutationOptions],
    ) -> LearnedSkill:
        """Add a skill, pending review unless another status is given.

        Raises `InvalidInput` for a skill that does not make a valid SKILL.md, and for a name that a learned skill
        already has.
        """
        content = _content(name, description, body, tags, sessions)
        cited = self._source_seqs(options)
        _check_status(status)
        event = SkillLearned(cited, self._core.engine.reader.new_id(), GENERATED, *content, status)

        def decide(state: State) -> Event:
            if state.part(SKILLS).find(name) is not None:
                raise InvalidInput(f"a skill {name!r} was learned already; refine it, or take another name")
            return event

        return self._write_skill(name, decide, ("learn", *content, status), options)

    @mutation
    def refine(
        self,
        skill: str,
        *,
        description: str | None = None,
        body: str | None = None,
        tags: Sequence[str] | None = None,
        sessions: Sequence[str] = (),
        status: str | None = PENDING,
        **options: Unpack[MutationOptions],
    ) -> LearnedSkill:
        """Change the given fields of a learned skill and add sessions to it; by default it is pending review again.

        A `status` of `None` keeps the current status. Where nothing would change, nothing is appended. The event cites
        the event of the old content as a source. Raises `NotFound` and `InvalidInput`.
        """
        cited = self._source_seqs(options)
        if status is not None:
            _check_status(status)

        def decide(state: State) -> Event | None:
            old = _find(state.part(SKILLS), skill)
            content = _content(
                old.name,
                old.description if description is None else description,
                old.body if body is None else body,
                old.tags if tags is None else tags,
                (*old.sessions, *(session for session in sessions if session not in old.sessions)),
            )
            sources = cited if old.seq in cited else (*cited, old.seq)
            known = (old.name, old.description, old.body, old.tags, old.sessions, old.status)
            new = (*content, old.status if status is None else status)
            return None if new == known else SkillRefined(sources, old.id, REFINED, *new)

        as_list(sessions, "sessions")
        request = ("refine", skill, description, body, None if tags is None else [*tags], [*sessions], status)
        return self._write_skill(skill, decide, request, options)

    def _write_skill(
        self, skill: str, decide: Decide, request: tuple[Any, ...], options: MutationOptions
    ) -> LearnedSkill:
        noted = self._write(decide, request, options)
        if noted is None:
            return self.get(skill)
        event, stamp = noted
        assert isinstance(event, (SkillLearned, SkillRefined)), event
        written = self._read_skill(event.id, stamp)
        created_ns = None if written is None else written.created_ns
        learned = learned_skill(event, stamp, created_ns)
        self._fill_on_commit(learned, stamp.seq, ("updated_ns",) if created_ns else ("created_ns", "updated_ns"))
        return learned

    def _read_skill(self, skill_id: str, stamp: Stamp) -> LearnedSkill | None:
        """Read a learned skill as of an event, which can be the event of an earlier request."""
        return self._core.read_around(self._stream, lambda state: state.part(SKILLS).learned.get(skill_id), stamp)

    def _fill_on_commit(self, result: LearnedSkill | Selection, seq: int, times: tuple[str, ...]) -> None:
        """Have the engine fill in the seq and the times of a result once this context's batch is committed."""
        batch = batches.active_batch(self._core.engine)
        if batch is None or seq > 0:
            return

        def settle(stamp: Stamp) -> None:
            for time in times:
                force_setattr(result, time, stamp.time_ns if time == "time_ns" else clock_of(stamp))

        batch.transaction.callbacks.append((seq, settle))
        if result.seq < 0:
            batch.transaction.callbacks.append((result.seq, lambda stamp: force_setattr(result, "seq", stamp.seq)))

    @mutation
    def approve(self, skill: str, **options: Unpack[MutationOptions]) -> LearnedSkill:
        """Allow a learned skill to be selected; raises `NotFound`."""
        return self.review(skill, ACTIVE, **options)

    @mutation
    def reject(self, skill: str, **options: Unpack[MutationOptions]) -> LearnedSkill:
        """Prevent a learned skill from being selected; raises `NotFound`."""
        return self.review(skill, "rejected", **options)

    @mutation
    def review(self, skill: str, status: str, **options: Unpack[MutationOptions]) -> LearnedSkill:
        """Set the status of a learned skill, and return the skill; raises `NotFound`."""
        _check_status(status)
        cited = self._source_seqs(options)

        def decide(state: State) -> Event | None:
            learned = _find(state.part(SKILLS), skill)
            return None if learned.status == status else SkillReviewed(cited, learned.id, status)

        noted = self._write(decide, ("review", skill, status), options)
        if noted is None:
            return self.get(skill)
        event, stamp = noted
        assert isinstance(event, SkillReviewed), event
        learned = self._read_skill(event.id, stamp)
        if learned is None:
            return self.get(skill)
        learned = replace(learned)
        self._fill_on_commit(learned, stamp.seq, ("updated_ns",))
        return learned

    @mutation
    def delete(self, skill: str, **options: Unpack[MutationOptions]) -> None:
        """Remove a learned skill; the log keeps it. Raises `NotFound`."""
        cited = self._source_seqs(options)
        self._write(lambda state: SkillDeleted(cited, _find(state.part(SKILLS), skill).id), ("delete", skill), options)

    # Switches.

    def is_enabled(self, name: str) -> bool:
        """Return whether a skill, from any source, is switched on."""
        return self._query(lambda library: library.is_enabled(name))

    def disabled_names(self) -> frozenset[str]:
        """Return the names of the skills that are switched off."""
        return self._query(lambda library: frozenset(name for name, at in library.toggles.values.items() if at == OFF))

    @mutation
    def toggle(self, name: str, *, enabled: bool, **options: Unpack[MutationOptions]) -> bool:
        """Switch a skill on or off by its name; return whether that changed anything."""
        key, switch = checks.key(name, "name"), checks.flag(enabled, "enabled")
        cited = self._source_seqs(options)

        def make(toggles: KeyedValues[str]) -> Event | None:
            if toggles.values.get(key, ON) == (ON if switch else OFF):
                return None
            return SkillToggled(cited, toggles.prior(key)[0], key, switch)

        return self._write(KeyDecision(TOGGLES, key, make), ("toggle", key, switch), options) is not None

    # Notes.

    def notes(self) -> dict[str, str]:
        """Return the users' notes on skills, from any source, by the names of the skills."""
        return self._query(lambda library: dict(library.notes.values))

    @mutation
    def note(self, name: str, text: str, **options: Unpack[MutationOptions]) -> bool:
        """Set the user's note on a skill by its name, and return whether that changed anything.

        Models see the note before the text of the skill, wherever they see that text. It replaces the previous note; an
        empty text removes the note. Raises `LimitExceeded` over `SKILL_NOTE_BYTES_MAX`.
        """
        key, cited = checks.key(name, "name"), self._source_seqs(options)
        note = checks.text(text, "text", SKILL_NOTE_BYTES_MAX, "SKILL_NOTE_BYTES_MAX").strip()

        def make(notes: KeyedValues[str]) -> Event | None:
            return None if notes.values.get(key, "") == note else SkillNoted(cited, notes.prior(key)[0], key, note)

        return self._write(KeyDecision(NOTES, key, make), ("note", key, note), options) is not None

    # Uses.

    @mutation
    def use(
        self,
        name: str,
        *,
        succeeded: bool | None = None,
        conversation: str | None = None,
        **options: Unpack[MutationOptions],
    ) -> None:
        """Record the use of a skill, and its success if it is known."""
        key, cited = checks.key(name, "name"), self._source_seqs(options)
        outcome = None if succeeded is None else checks.flag(succeeded, "succeeded")
        where = None if conversation is None else checks.name(conversation, "conversation")
        is_new = self._new_stamp_test()
        noted = self._write(SkillUsed(cited, key, outcome, where), ("use", key, outcome, where), options)
        if noted is not None and is_new(noted.stamp):
            self._count("skill_used", 1, where or "", name=key)

    def _new_stamp_test(self) -> Callable[[Stamp], bool]:
        """Return a function that tells the stamp of an event yet to be written from that of a repeated request."""
        head, batch = self._core.engine.reader.current_head(), batches.active_batch(self._core.engine)
        count = 0 if batch is None else len(batch.transaction.events)
        return lambda stamp: stamp.seq > head or (stamp.seq < 0 and place_of(stamp.seq) >= count)

    def _count(self, kind: str, count: int, conversation: str, **fields: Any) -> None:
        """Count a use for the statistics."""
        Settings(self._core, self._at).count_usage(kind, count, conversation=conversation, **fields)

    def usage(self, name: str) -> SkillUsage:
        """Count the uses of a skill and its successes."""
        return self._query(lambda library: library.uses.get(name) or SkillUsage())

    # Selections.

    @mutation
    def record(
        self,
        matches: Sequence[SkillMatch],
        *,
        query: str,
        conversation: str = "",
        phase: str | None = None,
        ranking: str = "",
        **options: Unpack[MutationOptions],
    ) -> Selection:
        """Record a selection and return it; it replaces the last one of that conversation."""
        cited = self._source_seqs(options)
        where = checks.text(conversation, "conversation", NAME_BYTES_MAX, "NAME_BYTES_MAX")
        fields = (where, checks.text(query, "query"), check_phase(phase), checks.text(ranking, "ranking"))
        for match in cast("list[object]", as_list(matches, "matches")):
            if not isinstance(match, SkillMatch):
                raise InvalidInput(f"matches hold {checks.brief(match)}; give what `select` returned")
        columns = (
            tuple(checks.text(match.skill.name, "a skill's name") for match in matches),
            tuple(checks.text(match.skill.id, "a skill's id") for match in matches),
            tuple(checks.text(match.match_reason, "match_reason") for match in matches),
            tuple(_score(match.score) for match in matches),
        )

        def decide(state: State) -> Event:
            last = state.part(SKILLS).selections.get(where)
            return SkillsSelected(cited, 0 if last is None else last.seq, *fields, *columns)

        is_new = self._new_stamp_test()
        noted = self._write(decide, ("record", *fields, *columns), options)
        assert noted is not None, "a selection is always written"
        event, stamp = noted
        assert isinstance(event, SkillsSelected), event
        if is_new(stamp):
            self._count("skill_matched", len(matches), where)
        selection = selection_of(event, stamp)
        self._fill_on_commit(selection, stamp.seq, ("time_ns",))
        return selection

    def last_selection(self, conversation: str = "") -> Selection | None:
        """Return the last selection of a conversation, or `None` if there is none."""
        return self._query(lambda library: library.selections.get(conversation))


def library_of(memory: Any, name: str = "default") -> SkillLibrary:
    """Make a handle on the library of a memory, frozen if the memory is."""
    return SkillLibrary(*core_of(memory), name)


def _content(
    name: str, description: str, body: str, tags: Sequence[str], sessions: Sequence[str]
) -> tuple[str, str, str, tuple[str, ...], tuple[str, ...]]:
    """Check the content of a skill by rendering it as a file."""
    render_skill(name, description, body, tags=tags)
    names = [checks.text(each, "a session", NAME_BYTES_MAX, "NAME_BYTES_MAX") for each in as_list(sessions, "sessions")]
    return name, description.strip(), body, tuple(strip_texts(tags, "tags")), tuple(names)


def _score(score: object) -> float:
    with suppress(OverflowError):
        if not isinstance(score, bool) and isinstance(score, Real) and isfinite(score):
            return float(score)
    raise InvalidInput(f"a score is {checks.brief(score)}; give a finite number")


def _find(library: Library, skill: str) -> LearnedSkill:
    learned = library.find(checks.text(skill, "skill"))
    if learned is None:
        raise NotFound(f"no skill {checks.brief(skill)} was learned; `list()` has those that were")
    return learned


def _check_status(status: object) -> None:
    if status not in STATUSES:
        raise InvalidInput(f"status is {checks.brief(status)}; give one of {', '.join(STATUSES)}")
