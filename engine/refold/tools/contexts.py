"""The context of a conversation: what a model is shown before the window, in parts from stable to volatile.

Building one is pure. ``show`` records that it was shown: digests, counts and ids, so that it can be built again, byte
for byte, from the log.
"""

from collections.abc import Sequence
from math import isfinite
from typing import Any, Final, Literal, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.entry import Entry
from refold.hashing import sha256
from refold.limits import REDO_COUNT_MAX
from refold.memory.conversation import Conversation
from refold.memory.door import Door
from refold.memory.formats import rendered
from refold.memory.memory import Memory
from refold.memory.moments import day_at, days_before
from refold.message import Message
from refold.rank.ranking import Ranking
from refold.tools import rendering
from refold.tools.budgets import ContextBudget, Trim, checked, steps
from refold.tools.limits import CONTEXT_DAYS

STABLE: Final = "stable"
SEMI_STABLE: Final = "semi-stable"
VOLATILE: Final = "volatile"
_LENGTHS: Final = (2, 3)
"""Of a skill given as (name, text), or with its score."""
_BY_IMPORTANCE: Final = Ranking(name="importance", importance=1.0)
"""Without a query memories come in an order that no clock moves."""


class ContextPart(Struct, frozen=True):
    """A part of a context: its name, how often it changes (stable, semi-stable, volatile), its text and its tokens."""

    name: str
    tier: str
    text: str
    tokens: int

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, in hex."""
        return sha256(self.text.encode()).hex()


class Made(NamedTuple):
    """What a context was made of, beside the log: what it takes to make it again."""

    seq: int
    project: str
    query: str | None
    day: str
    profile: str
    journal: str
    skills: tuple[tuple[str, str, float], ...]
    budget: ContextBudget
    ids: tuple[str, ...]
    opening: tuple[str | None, int]


class Context(Struct, frozen=True):
    """What a model is shown of a conversation: parts that are not empty, then the window; ``seq`` is when.

    >>> from refold import Memory
    >>> memory = Memory()
    >>> memory.profile().set("user_name", "Mike")
    >>> "- **user_name**: Mike" in memory.context(memory.conversation("chat-42")).text
    True
    """

    conversation: str
    seq: int
    parts: tuple[ContextPart, ...]
    window: tuple[Message, ...]
    made: Made

    @property
    def text(self) -> str:
        """The parts as one text."""
        return "\n\n".join(part.text for part in self.parts)

    @property
    def tokens(self) -> int:
        """The tokens of the parts, without the window."""
        return sum(part.tokens for part in self.parts)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the memories that are shown, in their order."""
        return self.made.ids

    def part(self, name: str) -> ContextPart | None:
        """Return a part by its name, ``None`` where it is empty."""
        return next((part for part in self.parts if part.name == name), None)

    def system_blocks(self, *, cache: bool = True) -> list[dict[str, Any]]:
        """Return the parts as Anthropic takes them in ``system=``; ``cache`` marks the last that is not volatile."""
        blocks: list[dict[str, Any]] = [{"type": "text", "text": part.text} for part in self.parts]
        kept = [place for place, part in enumerate(self.parts) if part.tier != VOLATILE]
        if cache and kept:
            blocks[kept[-1]]["cache_control"] = {"type": "ephemeral"}
        return blocks

    def messages(self, format: Literal["openai", "anthropic"] = "openai") -> list[dict[str, Any]]:  # noqa: A002 - the word its users say
        """Return the window as a provider takes it; for OpenAI the parts come first, as one system message."""
        window = rendered(format, self.window)
        if format == "anthropic" or not self.parts:
            return window
        return [{"role": "system", "content": self.text}, *window]


def context(
    memory: Memory,
    door: Door,
    chat: Conversation,
    *,
    query: str | None = None,
    project: str | None = None,
    budget: object = None,
    skills: Sequence[Any] = (),
    profile: str = "default",
    journal: str = "default",
) -> Context:
    """Return the context of a conversation as it is now."""
    if not isinstance(cast("object", chat), Conversation):
        checks.invalid(f"context takes a Conversation, not {type(chat).__name__} ({checks.shown(chat)})")
    if query is not None:
        checks.text(query, "query")
    memory, chat = _at_one_time(memory, door, chat)
    given = cast("object", skills)
    if isinstance(given, str) or not isinstance(given, Sequence):
        checks.invalid(f"skills must be a list, not {checks.shown(skills)}")
    said = (query, project, checked(budget), skills, profile, journal)
    for _ in range(REDO_COUNT_MAX):
        seq = memory.head
        made = _context(memory, door, chat, said, seq)
        if memory.head == seq:
            return made
    # Others never pause: what they write meanwhile must not be seen in one part and missed in another.
    seq = memory.head
    return _context(memory.at(seq), door, chat.at(seq), said, seq)


def _at_one_time(memory: Memory, door: Door, chat: Conversation) -> tuple[Memory, Conversation]:
    """Return both frozen at the same seq where one of them is frozen: a context is never of two times."""
    own, stands = chat._door, (memory._at, chat._at)  # noqa: SLF001 - whether they are of one log, and frozen where
    if (own.engine, own.branch) != (door.engine, door.branch):
        checks.invalid(f"conversation {chat.id!r} is of another memory; make its context with that one")
    seqs = {seq for seq in stands if seq is not None}
    if len(seqs) > 1:
        checks.invalid(f"the memory is frozen at seq {stands[0]}, the conversation at {stands[1]}; freeze them alike")
    return (memory.at(min(seqs)), chat.at(min(seqs))) if seqs else (memory, chat)


def _context(memory: Memory, door: Door, chat: Conversation, said: tuple[Any, ...], seq: int) -> Context:
    query, project, budget, skills, profile, journal = said
    settings = dict(memory.settings.items())
    allowed = _allowed(budget, settings)
    # The best one is the last to be trimmed, in whichever order they were given.
    chosen = (
        sorted((_skill(skill) for skill in skills), key=lambda skill: -skill[2]) if settings["skills_enabled"] else []
    )
    name = project or chat.project or "default"
    found = _memories(memory, name, query, allowed) if settings["memory_enabled"] else []
    day = day_at(door.engine.now_ns(), door.timezone)
    opening = (chat.project, chat.window_tokens)
    made = Made(seq, name, query, day, profile, journal, tuple(chosen), allowed, (), opening)
    return _built(memory, door, chat, made, found)


def _allowed(budget: ContextBudget, settings: dict[str, bool | int]) -> ContextBudget:
    """Return the budget with the settings of the store in the place of what it leaves open."""
    fields = {field: getattr(budget, field) for field in budget.__struct_fields__}
    if budget.memories_count is None:
        fields["memories_count"] = settings["memory_max_injected"]
    if budget.skills_chars is None:
        fields["skills_chars"] = settings["skills_max_injected_chars"]
    return ContextBudget(**fields)


def _skill(skill: Any) -> tuple[str, str, float]:
    """Return name, text and score of a skill: a match of one, or texts without one, which were surely wanted."""
    if isinstance(skill, (tuple, list)):
        given = cast("Sequence[Any]", skill)
        name, body, score = (*given, float("1e9"))[:3] if len(given) in _LENGTHS else (None, None, None)
    else:
        of = getattr(skill, "skill", skill)
        name, body, score = (getattr(of, "name", None), getattr(skill, "body", None), getattr(skill, "score", None))
    if name is None or not isinstance(score, (int, float)) or not isfinite(score):
        shape = "a (name, text), a (name, text, score), or has a name, a body and a score"
        checks.invalid(f"a skill is {shape}, unlike {checks.shown(skill)}")
    return checks.text(name, "a skill's name"), checks.text(body, "a skill's text"), float(score)


def _memories(memory: Memory, project: str, query: str | None, budget: ContextBudget) -> list[Entry]:
    if not budget.memories_count:
        return []
    asked = query if query is not None and query.strip() else None
    ranking: str | Ranking = _BY_IMPORTANCE if asked is None else "seed"
    hits = memory.project(project).search(asked or "everything", top_k=budget.memories_count, ranking=ranking)
    return [hit.entry for hit in hits]


def _built(memory: Memory, door: Door, chat: Conversation, made: Made, found: Sequence[Entry]) -> Context:
    """Return the fullest context that is within the budget."""
    budget, scores = made.budget, [score for _, _, score in made.skills]
    fixed = fixed_parts(memory, door, chat, made)
    first, *others = steps(scores, len(found), budget.skills_chars or 0)
    trim, (parts, shown) = first, trimmed(door, fixed, made, found, first)
    for smaller in others:
        if sum(part.tokens for part in parts) <= budget.tokens:
            break
        trim, (parts, shown) = smaller, trimmed(door, fixed, made, found, smaller)
    made = made._replace(
        ids=tuple(entry.id for entry in shown),
        skills=made.skills[: trim.skills],
        budget=replace(budget, skills_chars=trim.skills_chars),
    )
    return Context(chat.id, made.seq, tuple(parts), tuple(chat.window()), made)


def fixed_parts(memory: Memory, door: Door, chat: Conversation, made: Made) -> dict[str, ContextPart]:
    """Return the parts that no trimming touches, by name."""
    budget, journal = made.budget, memory.journal(made.journal)
    days = [days_before(made.day, back) for back in range(CONTEXT_DAYS)]
    pages = [(day, [note.text for note in journal.day(day)]) for day in days]
    texts = {
        "policy": rendering.POLICY,
        "profile": rendering.profile(memory.profile(made.profile).items(), budget.profile_chars),
        "notes": rendering.notes(pages, budget.notes_chars),
        "session": chat.session.to_text()[: budget.session_chars],
        "scratchpad": rendering.working_memory(chat.scratchpad()),
    }
    return {name: _part(door, name, text) for name, text in texts.items()}


def trimmed(
    door: Door, fixed: dict[str, ContextPart], made: Made, found: Sequence[Entry], trim: Trim
) -> tuple[list[ContextPart], list[Entry]]:
    """Return the parts that are left after a step of trimming, without empty ones, and the memories in them."""
    text, shown = rendering.memories(found[: trim.memories], made.budget.memories_chars)
    pairs = [(name, body) for name, body, _ in made.skills[: trim.skills]]
    cut = {"memories": text, "skills": rendering.skills(pairs, trim.skills_chars)}
    parts = fixed | {name: _part(door, name, text) for name, text in cut.items()}
    return [parts[name] for name in _TIERS if parts[name].text], shown


def _part(door: Door, name: str, text: str) -> ContextPart:
    return ContextPart(name, _TIERS[name], text, door.counter.count(text) if text else 0)


_TIERS: Final = {
    "policy": STABLE,
    "profile": STABLE,
    "notes": SEMI_STABLE,
    "memories": SEMI_STABLE,
    "skills": SEMI_STABLE,
    "session": VOLATILE,
    "scratchpad": VOLATILE,
}
"""Every part in its order, and how often it changes."""
