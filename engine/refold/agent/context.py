"""The context of a conversation: its parts within their budgets, as text, recorded when shown, and rebuilt."""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any, Final, Literal, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.agent.tools import disarm, skill_block
from refold.engine import batch as batches
from refold.entry import Entry
from refold.errors import InvalidInput, NotFound
from refold.event import pack_json, unpack_json
from refold.index.ranking import Ranking
from refold.limits import (
    CONTEXT_CHARS_MAX,
    CONTEXT_DAYS,
    CONTEXT_TOKENS_DEFAULT,
    MEMORIES_CHARS_DEFAULT,
    NOTES_CHARS_DEFAULT,
    PROFILE_CHARS_DEFAULT,
    REDO_COUNT_MAX,
    SESSION_CHARS_DEFAULT,
)
from refold.memory.conversation import Conversation, rendered
from refold.memory.memory import Memory
from refold.memory.options import Door, day_at, days_before
from refold.message import Message, plain_message
from refold.results import Scratchpad
from refold.text import sha256
from refold.views.contexts import ContextShown

# Budgets of a context: what each part may take, what all of them may, and what gives way first.

_SKILLS_KEPT: Final = 1
_MEMORIES_KEPT: Final = 5
_SCORE_MIN: Final = 1.0


class ContextBudget(Struct, frozen=True, kw_only=True):
    """What the parts of a context may take, in characters, and all but the window together, in tokens.

    Over ``tokens``, skills are reduced to the best one, or to none if its score is under 1; then memories to five; then
    the skill's text is cut. ``None`` leaves a number to the settings of the store.
    """

    tokens: int = CONTEXT_TOKENS_DEFAULT
    profile_chars: int = PROFILE_CHARS_DEFAULT
    notes_chars: int = NOTES_CHARS_DEFAULT
    memories_chars: int = MEMORIES_CHARS_DEFAULT
    memories_count: int | None = None
    skills_chars: int | None = None
    session_chars: int = SESSION_CHARS_DEFAULT


class Trim(Struct, frozen=True):
    """How much of skills and memories is left: how many of each, and how many characters of skills."""

    skills: int
    memories: int
    skills_chars: int


def checked(budget: object) -> ContextBudget:
    """Return a budget, given as one, as a number of tokens in all, or not at all."""
    if budget is None:
        return ContextBudget()
    if isinstance(budget, int) and not isinstance(budget, bool):
        return ContextBudget(tokens=_bounded(budget, "budget"))
    if not isinstance(budget, ContextBudget):
        checks.invalid(f"budget must be a ContextBudget or a number of tokens, not {checks.shown(budget)}")
    for field in budget.__struct_fields__:
        if getattr(budget, field) is not None:
            _bounded(getattr(budget, field), f"budget.{field}")
    return budget


def _bounded(value: object, what: str) -> int:
    return checks.integer(value, what, 0, CONTEXT_CHARS_MAX, "CONTEXT_CHARS_MAX")


def steps(scores: list[float], memories: int, skills_chars: int) -> list[Trim]:
    """Return what to try one after the other, the last of which is shown whether it fits or not."""
    best = _SKILLS_KEPT if scores and scores[0] >= _SCORE_MIN else 0
    fewer = min(memories, _MEMORIES_KEPT)
    tried = [
        Trim(len(scores), memories, skills_chars),
        Trim(best, memories, skills_chars),
        Trim(best, fewer, skills_chars),
        *(Trim(best, fewer, skills_chars // divisor) for divisor in (2, 4, 8)),
        Trim(0, fewer, 0),
    ]
    return list(dict.fromkeys(tried))


# The parts of a context as text: the same bytes for the same memory, whenever and wherever they are made.
#
# This is renderer 1. A change of one byte is another number: contexts that were shown are built again by theirs.

RENDERER: Final = 1

POLICY: Final = (
    "To remember permanent facts or preferences, you MUST use the `memory_set` tool. "
    "Do NOT attempt to edit profile.json directly using file editing tools."
)
PROFILE_HEADING: Final = "## Core Profile (Facts & Preferences)\n"
NOTES_HEADING: Final = "## Recent Daily Notes\n"
MEMORIES_HEADING: Final = "## Project Memory\nThe following facts were learned from previous sessions:\n\n"
PAGE_BREAK: Final = "\n\n---\n\n"

BADGES: Final = {
    "preference": "[PREF]",
    "convention": "[CONV]",
    "pattern": "[PATN]",
    "correction": "[WARN]",
    "fact": "[FACT]",
}


def profile_text(items: Iterable[tuple[str, str]], chars_max: int) -> str:
    """Return a profile as a Markdown list, in the order of its keys' first setting; empty for none."""
    return _filled(PROFILE_HEADING, (f"- **{_line(key)}**: {_line(value)}\n" for key, value in items), chars_max)[0]


def notes_text(pages: Sequence[tuple[str, Sequence[str]]], chars_max: int) -> str:
    """Return days and their notes, the newest day first; what is over the bound is cut off at the end."""
    shown = [f"# {day}\n\n" + "\n".join(texts) for day, texts in pages if texts]
    return NOTES_HEADING + PAGE_BREAK.join(shown)[:chars_max] if shown and chars_max else ""


def memories_text(entries: Sequence[Entry], chars_max: int) -> tuple[str, list[Entry]]:
    """Return memories as a list with badges, and those that fit; one that does not fit gives way to the next."""
    lines = [f"- {BADGES[entry.category]} {_line(entry.content)}\n" for entry in entries]
    text, places = _filled(MEMORIES_HEADING, lines, chars_max)
    return text, [entries[place] for place in places]


def skills_text(given: Sequence[tuple[str, str]], chars_max: int) -> str:
    """Return skills one after the other, each between marks, cut to a number of characters in all; none for none."""
    text, left = "", chars_max
    for name, body in given:
        kept = disarm(body)[: max(left, 0)]
        left -= len(kept)
        if kept:
            text += f"{skill_block(name, kept)}\n\n"
    return text.rstrip("\n")


def working_memory_text(pad: Scratchpad) -> str:
    """Return a scratchpad: keys sorted, notes in their order; empty where there is nothing in it."""
    lines = ["[Working Memory]"]
    if pad.entries:
        lines += ["Key-value pairs:", *(f"  {key}: {value}" for key, value in sorted(pad.entries.items()))]
    if pad.notes:
        lines += ["Notes:", *(f"  - {note}" for note in pad.notes)]
    return "\n".join(lines) if len(lines) > 1 else ""


def _line(text: str) -> str:
    """Return a text in one line, so that nothing remembered can look like a heading or like another entry."""
    return " ".join(text.split())


def _filled(heading: str, lines: Iterable[str], chars_max: int) -> tuple[str, list[int]]:
    """Return a heading with the lines that fit below it, and their places; nothing where none does."""
    text, places = heading, list[int]()
    for place, line in enumerate(lines):
        if len(text) + len(line) <= chars_max:
            text += line
            places.append(place)
    return (text if places else ""), places


# The context of a conversation: what a model is shown before the window, in parts from stable to volatile.
#
# Building one is pure. ``show`` records that it was shown: digests, counts and ids, so that it can be built again,
# byte for byte, from the log.

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
    # Whether they are of one log, and frozen where, is nothing that their users ask.
    own = chat._door  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    stands = (memory._at, chat._at)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
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


def _skill(skill: object) -> tuple[str, str, float]:
    """Return name, text and score of a skill: a match of one, or texts without one, which were surely wanted."""
    whole = skill
    if isinstance(skill, (tuple, list)):
        given = cast("Sequence[Any]", skill)
        name, body, score = (*given, float("1e9"))[:3] if len(given) in _LENGTHS else (None, None, None)
    else:
        of: object = getattr(skill, "skill", skill)
        name, body, score = (getattr(of, "name", None), getattr(skill, "body", None), getattr(skill, "score", None))
    if name is None or not isinstance(score, (int, float)) or not isfinite(score):
        shape = "a (name, text), a (name, text, score), or has a name, a body and a score"
        checks.invalid(f"a skill is {shape}, unlike {checks.shown(whole)}")
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
        "policy": POLICY,
        "profile": profile_text(memory.profile(made.profile).items(), budget.profile_chars),
        "notes": notes_text(pages, budget.notes_chars),
        "session": chat.session.to_text()[: budget.session_chars],
        "scratchpad": working_memory_text(chat.scratchpad()),
    }
    return {name: _part(door, name, text) for name, text in texts.items()}


def trimmed(
    door: Door, fixed: dict[str, ContextPart], made: Made, found: Sequence[Entry], trim: Trim
) -> tuple[list[ContextPart], list[Entry]]:
    """Return the parts that are left after a step of trimming, without empty ones, and the memories in them."""
    text, shown = memories_text(found[: trim.memories], made.budget.memories_chars)
    pairs = [(name, body) for name, body, _ in made.skills[: trim.skills]]
    cut = {"memories": text, "skills": skills_text(pairs, trim.skills_chars)}
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


def show(memory: Memory, door: Door, shown: Context) -> int:
    """Record that a context was shown to a model, in its conversation; return the seq of that."""
    if not isinstance(cast("object", shown), Context):
        checks.invalid(f"show takes a Context, not {type(shown).__name__}; make one with memory.context(chat)")
    made = shown.made
    parts = [*((part.name, part.digest, part.tokens) for part in shown.parts), _window_row(shown.window)]
    event = ContextShown(
        _asked_in(shown),
        shown.seq,
        RENDERER,
        tuple(tokens for _, _, tokens in parts),
        tuple(name for name, _, _ in parts),
        tuple(bytes.fromhex(digest) for _, digest, _ in parts),
        made.ids,
        made.project,
        made.query,
        made.day,
        made.profile,
        made.journal,
        pack_json([list(skill) for skill in made.skills]),
        pack_json({field: getattr(made.budget, field) for field in made.budget.__struct_fields__}),
    )
    batches.refuse(door.engine, "a context that is shown")
    if made.seq > door.engine.head:
        checks.invalid(
            f"the context was built at seq {made.seq}, which this log does not have; show it where it was made"
        )
    seqs: list[int] = []
    with memory.batch():
        memory.settings.count_usage(
            "memory_injected", len(made.ids), conversation=shown.conversation, project=made.project
        )
        opening = door.opening(*made.opening)
        stream = f"conversation/{shown.conversation}"
        noted = door.note(stream, event, at=None, asked=(), opening=opening)
        batch = batches.active(door.engine)
        assert noted is not None, "showing a context always is an event"
        assert batch is not None, "the batch was opened right here"
        # Another thread may show the next one before this one looks, so the state's last seq is no answer.
        batch.pending.later.append((noted[1].seq, lambda stamp: seqs.append(stamp.seq)))
    return seqs[0]


def _asked_in(shown: Context) -> tuple[int, ...]:
    """Return the user's last message as the source of the query, which mostly says the same."""
    said = [message.seq for message in shown.window if message.role == "user"]
    return tuple(said[-1:]) if shown.made.query else ()


def _window_row(window: Sequence[Message]) -> tuple[str, str, int]:
    """Return the row of the window: one part, whose digest covers all that its messages say, wherever they stand."""
    said = pack_json([plain_message(message) | {"seq": 0} for message in window])
    return "window", sha256(said).hex(), sum(message.tokens for message in window)


class Rebuilt(Struct, frozen=True):
    """A context that was built again: whether it is what was shown, and by name which parts are not."""

    context: Context
    matches: bool
    differing: tuple[str, ...]


def rebuild(memory: Memory, door: Door, seq: int) -> Rebuilt:
    """Return the context that was shown at a seq, built again from the log and held against its digests.

    Raises ``NotFound`` where no context was shown at the seq, ``InvalidInput`` for one of another renderer.
    """
    event, stream = _shown_at(memory, seq)
    if event.renderer != RENDERER:
        raise InvalidInput(f"the context at seq {seq} is of renderer {event.renderer}, and this program has {RENDERER}")
    past = memory.at(event.origin)
    chat = past.conversation(stream.partition("/")[2])
    skills = tuple((name, body, float(score)) for name, body, score in unpack_json(event.skills))
    budget = ContextBudget(**unpack_json(event.budget))
    opening = (chat.project, chat.window_tokens)
    said = (event.origin, event.project, event.query, event.day, event.profile, event.journal)
    made = Made(*said, skills, budget, event.ids, opening)
    found = [entry for entry in map(past.project(event.project).get, event.ids) if entry is not None]
    trim = Trim(len(skills), len(found), budget.skills_chars or 0)
    parts, _ = trimmed(door, fixed_parts(past, door, chat, made), made, found, trim)
    again = Context(chat.id, event.origin, tuple(parts), tuple(chat.window()), made)
    rows = [*((part.name, part.digest) for part in again.parts), _window_row(again.window)[:2]]
    known = dict(zip(event.names, (digest.hex() for digest in event.digests), strict=True))
    names = dict.fromkeys([*known, *(name for name, _ in rows)])
    differing = tuple(name for name in names if known.get(name) != dict(rows).get(name))
    return Rebuilt(again, not differing, differing)


def _shown_at(memory: Memory, seq: int) -> tuple[ContextShown, str]:
    for event, stamp in memory.events(after=checks.count(seq, "seq") - 1 if seq else 0, until=seq):
        if isinstance(event, ContextShown) and stamp.seq == seq and not stamp.erased:
            return event, stamp.stream
    raise NotFound(f"no context was shown at seq {seq}; events of kind context_shown have the seqs of those that were")
