"""The context of a conversation: its parts within their budgets, as text, recorded when shown, and rebuilt."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, Literal, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from refold import checks
from refold.agent.excerpts import excerpts
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
from refold.memory.options import Door, day_at, days_before, door_of
from refold.message import Message, plain_message
from refold.text import sha256
from refold.views.session import ContextShown

# The parts of a context as text: the same bytes for the same memory, whenever and wherever they are rendered.
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


def _profile_text(items: Iterable[tuple[str, str]], chars_max: int) -> str:
    return _fill(PROFILE_HEADING, (f"- **{_line(key)}**: {_line(value)}\n" for key, value in items), chars_max)[0]


def _notes_text(pages: Sequence[tuple[str, Sequence[str]]], chars_max: int) -> str:
    days = [f"# {day}\n\n" + "\n".join(texts) for day, texts in pages if texts]
    return NOTES_HEADING + PAGE_BREAK.join(days)[:chars_max] if days and chars_max else ""


def _memories_text(entries: Sequence[Entry], chars_max: int) -> tuple[str, list[Entry]]:
    lines = [f"- {BADGES[entry.category]} {_line(entry.content)}\n" for entry in entries]
    text, indexes = _fill(MEMORIES_HEADING, lines, chars_max)
    return text, [entries[index] for index in indexes]


def skills_text(skills: Sequence[tuple[str, str]], chars_max: int) -> str:
    """Render skills, given as names and bodies, each between marks; all share a number of characters."""
    cut = excerpts([disarm(body) for _, body in skills], chars_max)
    return "\n\n".join(skill_block(name, text) for (name, _), text in zip(skills, cut, strict=False) if text)


def _working_memory_text(scratchpad: Mapping[str, Any]) -> str:
    lines = ["[Working Memory]"]
    if scratchpad["entries"]:
        lines += ["Key-value pairs:", *(f"  {key}: {value}" for key, value in sorted(scratchpad["entries"].items()))]
    if scratchpad["notes"]:
        lines += ["Notes:", *(f"  - {note}" for note in scratchpad["notes"])]
    return "\n".join(lines) if len(lines) > 1 else ""


def _line(text: str) -> str:
    """Join a text in one line, so that nothing remembered can look like a heading or like another entry."""
    return " ".join(text.split())


def _fill(heading: str, lines: Iterable[str], chars_max: int) -> tuple[str, list[int]]:
    """Append the lines that fit to a heading, and return their indexes; empty where none fits."""
    text, indexes = heading, list[int]()
    for index, line in enumerate(lines):
        if len(text) + len(line) <= chars_max:
            text += line
            indexes.append(index)
    return (text if indexes else ""), indexes


# Budgets: the bounds of each part and of all together, and the order in which parts are trimmed.

_TRIMMED_MEMORIES_COUNT: Final = 5
_TRIMMED_SKILL_SCORE_MIN: Final = 1.0


class ContextBudget(Struct, frozen=True, kw_only=True):
    """The bounds of a context: of each part, in characters, and of all parts without the window, in tokens.

    Over `tokens`, skills are reduced to the best one, or to none if its score is under 1; then memories to five; then
    the skill's text is cut. `None` leaves a number to the settings of the store.
    """

    tokens: int = CONTEXT_TOKENS_DEFAULT
    profile_chars: int = PROFILE_CHARS_DEFAULT
    notes_chars: int = NOTES_CHARS_DEFAULT
    memories_chars: int = MEMORIES_CHARS_DEFAULT
    memories_count: int | None = None
    skills_chars: int | None = None
    session_chars: int = SESSION_CHARS_DEFAULT


class _Trim(NamedTuple):
    skills: int
    memories: int
    skills_chars: int


def _budget(budget: object) -> ContextBudget:
    """Check a budget, given as one, as a number of tokens in all, or as `None`."""
    if budget is None:
        return ContextBudget()
    if isinstance(budget, int) and not isinstance(budget, bool):
        return ContextBudget(tokens=checks.integer(budget, "budget", 0, CONTEXT_CHARS_MAX, "CONTEXT_CHARS_MAX"))
    if not isinstance(budget, ContextBudget):
        checks.invalid(f"budget must be a ContextBudget or a number of tokens, not {checks.shown(budget)}")
    for field, value in asdict(budget).items():
        if value is not None:
            checks.integer(value, f"budget.{field}", 0, CONTEXT_CHARS_MAX, "CONTEXT_CHARS_MAX")
    return budget


def _trims(scores: list[float], memories: int, skills_chars: int) -> list[_Trim]:
    """List what to try one after the other; the last one is shown whether it fits or not."""
    best = 1 if scores and scores[0] >= _TRIMMED_SKILL_SCORE_MIN else 0
    fewer = min(memories, _TRIMMED_MEMORIES_COUNT)
    trims = [
        _Trim(len(scores), memories, skills_chars),
        _Trim(best, memories, skills_chars),
        _Trim(best, fewer, skills_chars),
        *(_Trim(best, fewer, skills_chars // divisor) for divisor in (2, 4, 8)),
        _Trim(0, fewer, 0),
    ]
    return list(dict.fromkeys(trims))


# The context: parts from stable to volatile, and the window behind them.
#
# Building one is pure. `show` records that it was shown: digests, counts and ids, so that it can be built again, byte
# for byte, from the log.

STABLE: Final = "stable"
SEMI_STABLE: Final = "semi-stable"
VOLATILE: Final = "volatile"

# Every part in its order, and how often it changes.
_TIERS: Final = {
    "policy": STABLE,
    "profile": STABLE,
    "notes": SEMI_STABLE,
    "memories": SEMI_STABLE,
    "skills": SEMI_STABLE,
    "session": VOLATILE,
    "scratchpad": VOLATILE,
}


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


class Recipe(NamedTuple):
    """The inputs of a context besides the log: with them it can be built again."""

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
    """The input of a model for a conversation: the parts that are not empty, then the window, as of `seq`.

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
    recipe: Recipe

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
        """The ids of the memories in it, in their order."""
        return self.recipe.ids

    def part(self, name: str) -> ContextPart | None:
        """Look up a part by its name, `None` for an empty one."""
        return next((part for part in self.parts if part.name == name), None)

    def system_blocks(self, *, cache: bool = True) -> list[dict[str, Any]]:
        """Render the parts for Anthropic's `system=`; `cache` marks the last part that is not volatile."""
        blocks: list[dict[str, Any]] = [{"type": "text", "text": part.text} for part in self.parts]
        lasting = [index for index, part in enumerate(self.parts) if part.tier != VOLATILE]
        if cache and lasting:
            blocks[lasting[-1]]["cache_control"] = {"type": "ephemeral"}
        return blocks

    def messages(self, format: Literal["openai", "anthropic"] = "openai") -> list[dict[str, Any]]:  # noqa: A002 - the word its users say
        """Render the window as a provider takes it; for OpenAI the parts come first, as one system message."""
        window = rendered(format, self.window)
        if format == "anthropic" or not self.parts:
            return window
        return [{"role": "system", "content": self.text}, *window]


class _Request(NamedTuple):
    query: str | None
    project: str | None
    budget: ContextBudget
    skills: Sequence[Any]
    profile: str
    journal: str


# Without a query memories come in an order that no clock moves.
_BY_IMPORTANCE: Final = Ranking(name="importance", importance=1.0)


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
    """Build the context of a conversation as of now."""
    if not isinstance(cast("object", chat), Conversation):
        checks.invalid(f"context takes a Conversation, not {type(chat).__name__} ({checks.shown(chat)})")
    if query is not None:
        checks.text(query, "query")
    memory, chat = _at_one_seq(memory, door, chat)
    if isinstance(skills, str) or not isinstance(cast("object", skills), Sequence):
        checks.invalid(f"skills must be a list, not {checks.shown(skills)}")
    request = _Request(query, project, _budget(budget), skills, profile, journal)
    for _ in range(REDO_COUNT_MAX):
        seq = memory.head
        built = _build(memory, door, chat, request, seq)
        if memory.head == seq:
            return built
    # Others never pause: what they write meanwhile must not be seen in one part and missed in another.
    seq = memory.head
    return _build(memory.at(seq), door, chat.at(seq), request, seq)


def _at_one_seq(memory: Memory, door: Door, chat: Conversation) -> tuple[Memory, Conversation]:
    """Freeze both at the same seq where one of them is frozen: a context is never of two times."""
    own, at = door_of(chat)
    frozen = (door_of(memory)[1], at)
    if (own.engine, own.branch) != (door.engine, door.branch):
        checks.invalid(f"conversation {chat.id!r} is of another memory; make its context with that one")
    seqs = {seq for seq in frozen if seq is not None}
    if len(seqs) > 1:
        checks.invalid(f"the memory is frozen at seq {frozen[0]}, the conversation at {frozen[1]}; freeze them alike")
    return (memory.at(min(seqs)), chat.at(min(seqs))) if seqs else (memory, chat)


def _build(memory: Memory, door: Door, chat: Conversation, request: _Request, seq: int) -> Context:
    settings = dict(memory.settings.items())
    budget = request.budget
    if budget.memories_count is None:
        budget = replace(budget, memories_count=settings["memory_max_injected"])
    if budget.skills_chars is None:
        budget = replace(budget, skills_chars=settings["skills_max_injected_chars"])
    # The best one is the last to be trimmed, in whichever order they were given.
    skills = sorted(map(_skill, request.skills), key=lambda skill: -skill[2]) if settings["skills_enabled"] else []
    recipe = Recipe(
        seq,
        request.project or chat.project or "default",
        request.query,
        day_at(door.engine.reader.now_ns(), door.timezone),
        request.profile,
        request.journal,
        tuple(skills),
        budget,
        (),
        (chat.project, chat.window_tokens),
    )
    entries = _search(memory, recipe) if settings["memory_enabled"] else []
    fixed = _fixed_parts(memory, door, chat, recipe)
    trims = _trims([score for _, _, score in skills], len(entries), budget.skills_chars or 0)
    trim = trims.pop(0)
    parts, shown = _trim_parts(door, fixed, recipe, entries, trim)
    while trims and sum(part.tokens for part in parts) > budget.tokens:
        trim = trims.pop(0)
        parts, shown = _trim_parts(door, fixed, recipe, entries, trim)
    recipe = recipe._replace(
        ids=tuple(entry.id for entry in shown),
        skills=recipe.skills[: trim.skills],
        budget=replace(budget, skills_chars=trim.skills_chars),
    )
    return Context(chat.id, seq, tuple(parts), tuple(chat.window()), recipe)


def _skill(skill: object) -> tuple[str, str, float]:
    """Return name, text and score of a skill: of a match, or of texts without a score, which rank first."""
    whole = skill
    if isinstance(skill, (tuple, list)):
        items = cast("Sequence[Any]", skill)
        name, body, score = (*items, float("1e9"))[:3] if len(items) in (2, 3) else (None, None, None)
    else:
        owner: object = getattr(skill, "skill", skill)
        name, body, score = (getattr(owner, "name", None), getattr(skill, "body", None), getattr(skill, "score", None))
    if name is None or not isinstance(score, (int, float)) or not isfinite(score):
        shape = "a (name, text), a (name, text, score), or has a name, a body and a score"
        checks.invalid(f"a skill is {shape}, unlike {checks.shown(whole)}")
    return checks.text(name, "a skill's name"), checks.text(body, "a skill's text"), float(score)


def _search(memory: Memory, recipe: Recipe) -> list[Entry]:
    if not recipe.budget.memories_count:
        return []
    query = recipe.query if recipe.query is not None and recipe.query.strip() else None
    ranking: str | Ranking = _BY_IMPORTANCE if query is None else "seed"
    project = memory.project(recipe.project)
    hits = project.search(query or "everything", top_k=recipe.budget.memories_count, ranking=ranking)
    return [hit.entry for hit in hits]


def _fixed_parts(memory: Memory, door: Door, chat: Conversation, recipe: Recipe) -> dict[str, ContextPart]:
    budget, journal = recipe.budget, memory.journal(recipe.journal)
    days = [days_before(recipe.day, count) for count in range(CONTEXT_DAYS)]
    pages = [(day, [note.text for note in journal.day(day)]) for day in days]
    texts = {
        "policy": POLICY,
        "profile": _profile_text(memory.profile(recipe.profile).items(), budget.profile_chars),
        "notes": _notes_text(pages, budget.notes_chars),
        "session": chat.session.to_text()[: budget.session_chars],
        "scratchpad": _working_memory_text(chat.scratchpad.to_dict()),
    }
    return {name: _part(door, name, text) for name, text in texts.items()}


def _trim_parts(
    door: Door, fixed: dict[str, ContextPart], recipe: Recipe, entries: Sequence[Entry], trim: _Trim
) -> tuple[list[ContextPart], list[Entry]]:
    """Render the other parts after a step of trimming; return all that are not empty, and the memories in them."""
    memories, shown = _memories_text(entries[: trim.memories], recipe.budget.memories_chars)
    skills = skills_text([(name, body) for name, body, _ in recipe.skills[: trim.skills]], trim.skills_chars)
    parts = fixed | {"memories": _part(door, "memories", memories), "skills": _part(door, "skills", skills)}
    return [parts[name] for name in _TIERS if parts[name].text], shown


def _part(door: Door, name: str, text: str) -> ContextPart:
    return ContextPart(name, _TIERS[name], text, door.counter.count(text) if text else 0)


def show(memory: Memory, door: Door, context: Context) -> int:
    """Record in its conversation that a context was shown to a model; return the seq of that event."""
    if not isinstance(cast("object", context), Context):
        checks.invalid(f"show takes a Context, not {type(context).__name__}; make one with memory.context(chat)")
    recipe = context.recipe
    rows = [*((part.name, part.digest, part.tokens) for part in context.parts), _window_row(context.window)]
    # The query mostly says the same as the user's last message.
    sources = [message.seq for message in context.window if message.role == "user"][-1:] if recipe.query else ()
    event = ContextShown(
        tuple(sources),
        context.seq,
        RENDERER,
        tuple(tokens for _, _, tokens in rows),
        tuple(name for name, _, _ in rows),
        tuple(bytes.fromhex(digest) for _, digest, _ in rows),
        recipe.ids,
        recipe.project,
        recipe.query,
        recipe.day,
        recipe.profile,
        recipe.journal,
        pack_json([list(skill) for skill in recipe.skills]),
        pack_json(asdict(recipe.budget)),
    )
    batches.refuse(door.engine, "a context that is shown")
    if recipe.seq > door.engine.reader.head:
        checks.invalid(
            f"the context was built at seq {recipe.seq}, which this log does not have; show it where it was made"
        )
    seqs: list[int] = []
    with memory.batch():
        memory.settings.count_usage(
            "memory_injected", len(recipe.ids), conversation=context.conversation, project=recipe.project
        )
        stream = f"conversation/{context.conversation}"
        noted = door.note(stream, event, at=None, asked=(), opening=door.opening(*recipe.opening))
        batch = batches.active(door.engine)
        assert noted is not None, "showing a context always is an event"
        assert batch is not None, "the batch was opened right here"
        # Another thread may show the next one before this one looks, so the state's last seq is no answer.
        batch.transaction.callbacks.append((noted[1].seq, lambda stamp: seqs.append(stamp.seq)))
    return seqs[0]


def _window_row(window: Sequence[Message]) -> tuple[str, str, int]:
    """Return name, digest and tokens of the window as one part; the digest is that of the messages without seqs."""
    packed = pack_json([plain_message(message) | {"seq": 0} for message in window])
    return "window", sha256(packed).hex(), sum(message.tokens for message in window)


class Rebuilt(Struct, frozen=True):
    """A context that was built again, whether it equals the shown one, and the names of the parts that differ."""

    context: Context
    matches: bool
    differing: tuple[str, ...]


def rebuild(memory: Memory, door: Door, seq: int) -> Rebuilt:
    """Build the context that was shown at a seq again from the log, and compare it with its digests.

    Raises `NotFound` where no context was shown at the seq, `InvalidInput` for one of another renderer.
    """
    for event, stamp in memory.events(after=checks.count(seq, "seq") - 1 if seq else 0, until=seq):
        if isinstance(event, ContextShown) and stamp.seq == seq and not stamp.erased:
            break
    else:
        raise NotFound(
            f"no context was shown at seq {seq}; events of kind context_shown have the seqs of those that were"
        )
    if event.renderer != RENDERER:
        raise InvalidInput(f"the context at seq {seq} is of renderer {event.renderer}, and this program has {RENDERER}")
    past = memory.at(event.origin)
    chat = past.conversation(stamp.stream.partition("/")[2])
    recipe = Recipe(
        event.origin,
        event.project,
        event.query,
        event.day,
        event.profile,
        event.journal,
        tuple((name, body, float(score)) for name, body, score in unpack_json(event.skills)),
        ContextBudget(**unpack_json(event.budget)),
        event.ids,
        (chat.project, chat.window_tokens),
    )
    entries = [entry for entry in map(past.project(event.project).get, event.ids) if entry is not None]
    trim = _Trim(len(recipe.skills), len(entries), recipe.budget.skills_chars or 0)
    parts, _ = _trim_parts(door, _fixed_parts(past, door, chat, recipe), recipe, entries, trim)
    context = Context(chat.id, event.origin, tuple(parts), tuple(chat.window()), recipe)
    digests = {part.name: part.digest for part in parts} | dict([_window_row(context.window)[:2]])
    recorded = dict(zip(event.names, (digest.hex() for digest in event.digests), strict=True))
    names = dict.fromkeys([*recorded, *digests])
    differing = tuple(name for name in names if recorded.get(name) != digests.get(name))
    return Rebuilt(context, not differing, differing)
