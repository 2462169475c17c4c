"""The context of a conversation: its parts within one budget, recorded when shown, and rebuilt later."""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from refold import checks
from refold.agent import parts
from refold.agent.candidates import (
    EPISODES_CHARS,
    Choice,
    MemoryCandidates,
    dated_memories,
    earlier_messages,
    fit_messages,
    groups_of,
    memories_part,
    messages_part,
    new_episodes,
    required_messages,
    similar_episodes,
    state_in,
    without_repeats,
)
from refold.agent.parts import Room
from refold.agent.tools import ToolRegistry
from refold.engine import batch as batches
from refold.engine.streams import STORE_STREAM, session_board
from refold.entry import ACTIVE, Entry, MemoriesRecalled
from refold.errors import InvalidInput, LimitExceeded, NotFound
from refold.event import Recorded, pack_json, unpack_json
from refold.index.ranking import Ranking
from refold.limits import (
    BOARD_CHARS_DEFAULT,
    CONTEXT_CHARS_MAX,
    CONTEXT_DAYS,
    CONTEXT_TOKENS_DEFAULT,
    EPISODES_COUNT_DEFAULT,
    INJECTED_CHARS_DEFAULT,
    INJECTED_MEMORIES_COUNT_MAX,
    MEMORIES_CHARS_DEFAULT,
    MESSAGES_CHARS_DEFAULT,
    NOTES_CHARS_DEFAULT,
    PROFILE_CHARS_DEFAULT,
    REDO_COUNT_MAX,
    SCRATCHPAD_CHARS_DEFAULT,
    SESSION_CHARS_DEFAULT,
)
from refold.memory import earlier, turns, wires
from refold.memory.conversation import Conversation, check_own
from refold.memory.earlier import Earlier
from refold.memory.memory import Memory
from refold.memory.options import Core, core_of, day_at, days_before
from refold.message import INJECTED_KEY, PROMPT_ROLES, Message, text_of
from refold.text import sha256
from refold.views.episodes import EPISODES, Episode
from refold.views.facts import FACTS
from refold.views.scratchpad import SCRATCH
from refold.views.session import CONTEXTS, ContextShown
from refold.views.store import ContextHashed

RENDERER: Final = 8  # Increase for any changed byte: a shown context can only be rebuilt by its own renderer.

# Budgets.

_KEPT_MEMORIES_COUNT: Final = 10  # Memories beyond this number are dropped before any skill.
_TRIMMED_MEMORIES_COUNT: Final = 5
_TRIMMED_SKILL_SCORE_MIN: Final = 1.0


class ContextBudget(Struct, frozen=True, kw_only=True):
    """The bounds of a context: `tokens` for everything, and characters for each part.

    `tokens=None` means the budget of the window plus `parts_tokens`. `parts_tokens` bounds everything besides the
    host's system prompt and the window. If the budget is too small for both, the window gets the newest messages and,
    if it needs them, at least half of the tokens that the system prompt leaves. Memories and earlier messages
    (`messages_count`, `messages_chars`) share the room left by the other parts, and those with the best rank for their
    tokens are shown. Over the budget, memories are dropped as needed, down to ten; then skills are reduced to the best
    one, or to none if its score is under 1; then memories, down to five; then the text of the skill is cut; then each
    part is cut to its share. Earlier sessions take at most 1/24. Any other number that is `None` is taken from the
    settings of the store.
    """

    tokens: int | None = None
    parts_tokens: int = CONTEXT_TOKENS_DEFAULT
    profile_chars: int = PROFILE_CHARS_DEFAULT
    notes_chars: int = NOTES_CHARS_DEFAULT
    memories_chars: int = MEMORIES_CHARS_DEFAULT
    memories_count: int | None = None
    messages_chars: int = MESSAGES_CHARS_DEFAULT
    messages_count: int | None = None
    episodes_count: int = EPISODES_COUNT_DEFAULT
    skills_chars: int | None = None
    session_chars: int = SESSION_CHARS_DEFAULT
    injected_chars: int = INJECTED_CHARS_DEFAULT
    scratchpad_chars: int = SCRATCHPAD_CHARS_DEFAULT
    board_chars: int = BOARD_CHARS_DEFAULT


def _check_budget(budget: object) -> ContextBudget:
    """Validate a budget, given as a `ContextBudget`, a total number of tokens, or `None`."""
    if budget is None:
        return ContextBudget()
    if isinstance(budget, int) and not isinstance(budget, bool):
        return ContextBudget(tokens=checks.integer(budget, "budget", 0, CONTEXT_CHARS_MAX, "CONTEXT_CHARS_MAX"))
    if not isinstance(budget, ContextBudget):
        checks.invalid(f"budget must be a ContextBudget or a number of tokens, not {checks.brief(budget)}")
    for field, value in asdict(budget).items():
        if value is not None:
            checks.integer(value, f"budget.{field}", 0, CONTEXT_CHARS_MAX, "CONTEXT_CHARS_MAX")
    return budget


# Data that hooks attach to a user's message: metadata of the message, never its words.

NamedSkill: TypeAlias = tuple[str, str, float]


class Attachment(Struct, frozen=True, omit_defaults=True):
    """Text, skills and memories for the answer to one message; skills are name, text and score, memories are ids."""

    text: str = ""
    skills: tuple[NamedSkill, ...] = ()
    memories: tuple[str, ...] = ()


def attachment_in(messages: Sequence[Message]) -> Attachment:
    """Return the data attached to the newest user message; empty if there is none or another program wrote it."""
    newest = next((message for message in reversed(messages) if message.role == "user"), None)
    metadata = None if newest is None else newest.metadata
    try:
        return msgspec.convert((metadata or {}).get(INJECTED_KEY, {}), Attachment)
    except msgspec.ValidationError:
        return Attachment()


# The context: parts from stable to volatile, followed by the window.
#
# Building a context has no side effects. `show` records that it was shown, with hashes, counts and ids, so that it can
# be rebuilt from the log byte for byte.

STABLE: Final = "stable"
SEMI_STABLE: Final = "semi-stable"
VOLATILE: Final = "volatile"

# All parts in order, and how often each changes.
_TIERS: Final = {
    parts.SYSTEM: STABLE,
    parts.INSTRUCTIONS: STABLE,
    parts.PROFILE: STABLE,
    parts.NOTES: SEMI_STABLE,
    parts.MEMORIES: SEMI_STABLE,
    parts.EPISODES: SEMI_STABLE,
    parts.SKILLS: SEMI_STABLE,
    parts.SESSION: VOLATILE,
    parts.MESSAGES: VOLATILE,
    parts.INJECTED: VOLATILE,
    parts.BOARD: VOLATILE,
    parts.SCRATCHPAD: VOLATILE,
}


class ContextPart(Struct, frozen=True):
    """A part of a context: its name, how often it changes (stable, semi-stable, volatile), its text and its tokens.

    `left_out` is the number of its entries that did not fit.
    """

    name: str
    tier: str
    text: str
    tokens: int
    left_out: int = 0

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, in hex."""
        return sha256(self.text.encode()).hex()


class ContextPlan(Struct, frozen=True):
    """How a context was made to fit: the topics of its instructions, and the tokens that each part can take.

    `episodes` are the seqs of the episodes in it. The first `skills` of its skills are shown, within `skills_chars`
    characters. `places` are the places of the earlier messages within their events, whose seqs are the last sources of
    the event that records the context. `question` is the id of a question that is shown although the window evicted it.
    """

    topics: tuple[str, ...] = ()
    episodes: tuple[int, ...] = ()
    tokens: dict[str, int] = {}
    skills: int = 0
    skills_chars: int = 0
    memories_left_out: int = 0
    messages_left_out: int = 0
    places: tuple[int, ...] = ()
    question: str = ""


class Recipe(NamedTuple):
    """The inputs of a context besides the log, which make it possible to rebuild it."""

    seq: int
    project: str
    query: str | None
    day: str
    timezone: str
    profile: str
    journal: str
    skills: tuple[NamedSkill, ...]
    budget: ContextBudget
    ids: tuple[str, ...]
    seqs: tuple[int, ...]
    opening: tuple[str | None, int, bool]
    plan: ContextPlan


class Context(Struct, frozen=True):
    """The input of a model for a conversation: the non-empty parts, then the messages, as of `seq`.

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
    left_out: dict[str, int] = {}
    """Number of entries of each part, and of window messages, that did not fit; parts that fit whole are omitted."""

    @property
    def text(self) -> str:
        """The parts as one text."""
        return "\n\n".join(part.text for part in self.parts)

    @property
    def tokens(self) -> int:
        """The tokens of the parts and messages together. The definitions of tools come on top."""
        return sum(part.tokens for part in self.parts) + sum(message.tokens for message in self.window)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the memories in the context, in order."""
        return self.recipe.ids

    @property
    def seqs(self) -> tuple[int, ...]:
        """The seqs of the earlier messages in the context, oldest first."""
        return self.recipe.seqs

    def part(self, name: str) -> ContextPart | None:
        """Return a part by its name, or `None` if it is empty."""
        return next((part for part in self.parts if part.name == name), None)

    def system_blocks(self, *, cache: bool = True) -> list[dict[str, Any]]:
        """Render the parts for Anthropic's `system=`; `cache` marks the last stable and the last semi-stable part."""
        blocks: list[dict[str, Any]] = [{"type": "text", "text": part.text} for part in self.parts]
        for tier in (STABLE, SEMI_STABLE) if cache else ():
            lasting = [index for index, part in enumerate(self.parts) if part.tier == tier]
            if lasting:
                blocks[lasting[-1]]["cache_control"] = {"type": "ephemeral"}
        return blocks

    def messages(
        self,
        format: Literal["openai", "openai-responses", "anthropic", "gemini", "ollama"] = "openai",  # noqa: A002 - the usual word
    ) -> list[dict[str, Any]]:
        """Render the messages in a provider's format, after the parts as one system message.

        Anthropic and Gemini take the parts separately: `system_blocks()` as `system=`, `text` as `system_instruction`.
        Otherwise as `Conversation.messages`.
        """
        window = wires.render(format, self.window)
        if format in wires.APART or not self.parts:
            return window
        return [{"role": "system", "content": self.text}, *window]


class _ContextRequest(NamedTuple):
    query: str | None
    project: str | None
    budget: ContextBudget
    skills: Sequence[Any]
    profile: str
    journal: str
    topics: tuple[str, ...]


# Without a query, memories come in an order that does not depend on the time.
_BY_IMPORTANCE: Final = Ranking(name="importance", importance=1.0)


def context(
    memory: Memory,
    core: Core,
    chat: Conversation,
    *,
    query: str | None = None,
    project: str | None = None,
    budget: object = None,
    skills: Sequence[Any] = (),
    profile: str = "default",
    journal: str = "default",
    tools: ToolRegistry | Sequence[str] | None = None,
    is_mirrored: bool = False,
) -> Context:
    """Build the context of a conversation as of now.

    `tools` names the tools available to the model, by default those of `memory.tools`; the instructions mention no
    others.
    """
    if not isinstance(cast("object", chat), Conversation):
        checks.invalid(f"context takes a Conversation, not {type(chat).__name__} ({checks.brief(chat)})")
    batches.check_no_batch(core.engine, "a context")  # It could not be rebuilt: events in the batch have no seq yet.
    if query is not None:
        checks.text(query, "query")
    if isinstance(skills, str) or not isinstance(cast("object", skills), Sequence):
        checks.invalid(f"skills must be a list, not {checks.brief(skills)}")
    names = tools if tools is None or isinstance(tools, ToolRegistry) else checks.texts(tools, "tools", "a tool")
    topics = _topics(memory.tools if names is None else names, is_mirrored=is_mirrored)
    memory, chat = _freeze_both(memory, core, chat)
    request = _ContextRequest(query, project, _check_budget(budget), skills, profile, journal, topics)
    for _ in range(REDO_COUNT_MAX):
        seq = memory.head
        built = _build(memory, core, chat, request, seq)
        if memory.head == seq:
            return built
    # Other writers never pause: read at one seq, so that no write shows up in one part and is missing in another.
    seq = memory.head
    return _build(memory.at(seq), core, chat.at(seq), request, seq)


def _topics(tools: ToolRegistry | Sequence[str], *, is_mirrored: bool) -> tuple[str, ...]:
    names = tools.names() if isinstance(tools, ToolRegistry) else tools
    there = {*names, parts.MIRROR} if is_mirrored or parts.MIRROR in names else set(names)
    return tuple(topic for topic in parts.TOPICS if topic in there)


def _freeze_both(memory: Memory, core: Core, chat: Conversation) -> tuple[Memory, Conversation]:
    """If either is frozen, freeze both at the same seq: a context never mixes two points in time."""
    check_own(core, chat)
    frozen = core_of(memory)[1], core_of(chat)[1]
    seqs = {seq for seq in frozen if seq is not None}
    if len(seqs) > 1:
        checks.invalid(f"the memory is frozen at seq {frozen[0]}, the conversation at {frozen[1]}; freeze them alike")
    return (memory.at(min(seqs)), chat.at(min(seqs))) if seqs else (memory, chat)


def _build(memory: Memory, core: Core, chat: Conversation, request: _ContextRequest, seq: int) -> Context:
    settings = dict(memory.settings.items())
    budget = request.budget
    if budget.tokens is None:
        budget = replace(budget, tokens=chat.window_tokens + budget.parts_tokens)
    if budget.memories_count is None:
        budget = replace(budget, memories_count=settings["memory_max_injected"])
    if budget.messages_count is None:
        budget = replace(budget, messages_count=settings["messages_max_injected"])
    if budget.skills_chars is None:
        budget = replace(budget, skills_chars=settings["skills_max_injected_chars"])
    turn = turns.open_turn_of(core, chat.place[0], core_of(chat)[1])
    recipe = Recipe(
        seq,
        request.project or chat.project or "default",
        request.query,
        day_at(core.engine.reader.now_ns(), core.timezone),
        core.timezone,
        request.profile,
        request.journal,
        tuple(_merge_skills(request.skills, attachment_in(turn.messages))) if settings["skills_enabled"] else (),
        budget,
        (),
        (),
        (chat.project, chat.window_tokens, chat.embed),
        ContextPlan(request.topics, question="" if turn.evicted_question is None else turn.evicted_question.id),
    )
    entries, found = MemoryCandidates((), ()), list[Earlier]()
    if settings["memory_enabled"]:
        entries = _find_memories(memory, core, chat, recipe)
        bounds = budget.episodes_count, budget.tokens or 0
        episodes = similar_episodes(core, chat, recipe.project, recipe.query or "", *bounds)
        recipe = recipe._replace(plan=replace(recipe.plan, episodes=tuple(episodes)))
        found = earlier_messages(core, chat, turn.messages, recipe.project, recipe.query, budget.messages_count)
    source = _ContextSource(memory, core, chat, turn.messages, recipe)
    listed = tuple(_listings(source))
    chars = {parts.MEMORIES: budget.memories_chars, parts.MESSAGES: budget.messages_chars}
    choice = Choice(core, entries, found, chars, recipe.timezone)
    plan = _plan_tokens(source, choice, listed)
    (placed, left_out), (answers, messages_left_out) = choice.choose(plan.tokens[parts.MEMORIES])
    answers = without_repeats(answers, placed, entries.before)
    counts = {"memories_left_out": left_out, "messages_left_out": messages_left_out}
    kept = new_episodes(source.episodes(), placed, answers)
    final = replace(plan, places=tuple(each.place for each in answers), episodes=kept, **counts)
    seqs = tuple(each.message.seq for each in answers)
    source = source._replace(recipe=recipe._replace(ids=tuple(entry.id for entry in placed), seqs=seqs, plan=final))
    return _assemble(source, placed, answers, listed if kept == plan.episodes else tuple(_listings(source)))


def _merge_skills(given: Sequence[object], injected: Attachment) -> list[NamedSkill]:
    """List the skills to show, best first, each name once: the caller's take precedence over the message's."""
    named: dict[str, NamedSkill] = {}
    for skill in (*map(_parse_skill, given), *injected.skills):
        named.setdefault(skill[0], skill)
    # Whatever the order given, the best skill is the last to be trimmed.
    return sorted(named.values(), key=lambda skill: -skill[2])


def _parse_skill(skill: object) -> NamedSkill:
    """Return the name, text and score of a skill: a match, or texts without a score, which rank first."""
    whole = skill
    if isinstance(skill, (tuple, list)):
        items = cast("Sequence[Any]", skill)
        name, body, score = (*items, float("1e9"))[:3] if len(items) in (2, 3) else (None, None, None)
    else:
        owner: object = getattr(skill, "skill", skill)
        name, body, score = (getattr(owner, "name", None), getattr(skill, "body", None), getattr(skill, "score", None))
    if name is None or not isinstance(score, (int, float)) or not isfinite(score):
        shape = "a (name, text), a (name, text, score), or has a name, a body and a score"
        checks.invalid(f"a skill is {shape}, unlike {checks.brief(whole)}")
    return checks.text(name, "a skill's name"), checks.text(body, "a skill's text"), float(score)


# Memories that answer the query, and memories that keep their place.


def _find_memories(memory: Memory, core: Core, chat: Conversation, recipe: Recipe) -> MemoryCandidates:
    """Search memories, followed by previously shown ones, which can keep their place while there is room."""
    is_empty = not core.read(f"project/{recipe.project}", lambda state: state.part(FACTS).count, core_of(chat)[1])
    if is_empty or not recipe.budget.memories_count:
        return MemoryCandidates((), ())  # A search would load numpy.
    query = recipe.query if recipe.query is not None and recipe.query.strip() else None
    ranking: str | Ranking = _BY_IMPORTANCE if query is None else "hybrid"
    project = memory.project(recipe.project)
    # No score floor: the budget bounds what is shown, and a query such as "go on" says little about what a turn needs.
    hits = project.search(query or "everything", top_k=recipe.budget.memories_count, ranking=ranking, floor=0)
    last = _last_context(core, chat.place[0], core_of(chat)[1])
    before = last.ids if last is not None and last.project == recipe.project else ()
    found = {hit.entry.id: hit.entry for hit in hits}
    for entry_id in before:
        entry = None if entry_id in found else project.get(entry_id)
        if entry is not None and not entry.erased and entry.status == ACTIVE:
            found[entry_id] = entry
    return MemoryCandidates(list(found.values())[: recipe.budget.memories_count], before)


def _last_context(core: Core, stream: str, at: int | None = None) -> ContextShown | None:
    """Return the event of the context last shown in a conversation, or `None` if there is none or it was erased."""
    seq = core.read_written(stream, lambda state: state.part(CONTEXTS).last_seq, at)
    if not seq:
        return None
    event, stamp = core.engine.reader.loader.recorded_events([seq])[0]
    return event if isinstance(event, ContextShown) and not stamp.erased else None


def is_shown(chat: Conversation) -> bool:
    """Return whether a context of a conversation was ever shown to a model."""
    core, at = core_of(chat)
    return core.read(chat.place[0], lambda state: bool(state.part(CONTEXTS).count), at)


# From the sources to the parts.


class _ContextSource(NamedTuple):
    """Everything that the parts of a context are made from, except its memories."""

    memory: Memory
    core: Core
    chat: Conversation
    messages: Sequence[Message]
    recipe: Recipe

    @property
    def system(self) -> list[Message]:
        """The messages that form the host's system prompt."""
        return [message for message in self.messages if message.role in PROMPT_ROLES and message.content]

    @property
    def history(self) -> list[Message]:
        """The other messages."""
        return [message for message in self.messages if message.role not in PROMPT_ROLES]

    def episodes(self) -> list[Episode]:
        """Return the planned episodes."""
        seqs, at = self.recipe.plan.episodes, core_of(self.chat)[1]

        def query(state: Any) -> list[Episode]:
            known = state.part(EPISODES).by_seq
            return [known[seq] for seq in seqs if seq in known]

        return self.core.read(f"project/{self.recipe.project}", query, at) if seqs else []


_UNBOUNDED: Final = CONTEXT_CHARS_MAX * 8
_Listed: TypeAlias = tuple[str, parts.PartListing, int]


def _listings(source: _ContextSource) -> Iterator[_Listed]:
    """Yield the parts that are lists, each with its limit in characters."""
    memory, recipe, chat = source.memory, source.recipe, source.chat
    budget, journal, session = recipe.budget, memory.journal(recipe.journal), chat.session
    days = [days_before(recipe.day, count) for count in range(CONTEXT_DAYS)]
    pages = [(day, [note.text for note in journal.day(day)]) for day in days]
    yield parts.PROFILE, parts.profile_listing(memory.profile(recipe.profile).items()), budget.profile_chars
    yield parts.NOTES, parts.notes_listing(pages), budget.notes_chars
    yield parts.EPISODES, parts.episodes_listing(source.episodes()), EPISODES_CHARS
    files = [(file.path, file.lines) for file in session.files()]
    scopes = [state_in(chat, stream) for stream in (chat.place[0], f"project/{recipe.project}")]
    work = parts.session_listing(session.task(), files, session.findings(), session.calls(), *scopes)
    yield parts.SESSION, work, budget.session_chars
    yield parts.BOARD, _board(source), budget.board_chars
    entries, notes = source.core.read(*_scratchpad(chat))
    yield parts.SCRATCHPAD, parts.scratchpad_listing(entries, notes), budget.scratchpad_chars


def _board(source: _ContextSource) -> parts.PartListing:
    """List the contents of the session's board, with only those of its messages that are not in the window."""
    chat, core = source.chat, source.core
    if not core.version(session_board(chat.id)):
        return parts.PartListing(parts.BOARD_HEADING, "entries", ())
    shown = source.memory.board(session=chat.id).to_dict()
    live = {message.id for message in source.messages}
    return parts.board_listing(shown, [row for row in shown["messages"] if row["id"] not in live])


def _scratchpad(chat: Conversation) -> tuple[str, Any, int | None]:
    """Return the arguments of a read of a scratchpad's values, those set first at the start, and of its notes."""

    def query(state: Any) -> tuple[dict[str, str], list[str]]:
        scratch = state.part(SCRATCH)
        seqs, values = scratch.entries.seqs, scratch.entries.values
        return {key: values[key] for key in sorted(values, key=seqs.__getitem__)}, [text for _, text in scratch.notes]

    return chat.place[0], query, core_of(chat)[1]


def _plan_tokens(source: _ContextSource, choice: Choice, listed: Sequence[_Listed]) -> ContextPlan:
    """Decide how many tokens each part can take, so that all parts and the newest messages fit the budget."""
    recipe, count = source.recipe, source.core.counter.count
    budget, plan = recipe.budget, recipe.plan
    assert budget.tokens is not None, "a budget is resolved before a plan is made"
    window = source.history
    whole = sum(message.tokens for message in window)
    system = sum(message.tokens for message in source.system)
    rest = budget.tokens - system
    # If everything fits, it does not matter which messages could be left out.
    is_plenty = rest - whole >= budget.parts_tokens
    needed = whole if is_plenty else sum(message.tokens for message, _ in required_messages(list(groups_of(window))))
    if rest < needed:
        raise LimitExceeded(
            f"the system prompt takes {system} tokens and the newest messages {needed}, over the budget of "
            f"{budget.tokens}; give a larger budget, a shorter prompt, or shorter messages"
        )
    room = min(budget.parts_tokens, max((rest + 1) // 2, rest - whole), rest - needed)
    texts = {
        name: parts.render_listing(listing, Room(chars, _UNBOUNDED), count).text for name, listing, chars in listed
    }
    texts[parts.INSTRUCTIONS] = parts.instructions_text(plan.topics)
    texts[parts.INJECTED] = _render_attachment(source, _UNBOUNDED).text
    fixed = {name: count(text) for name, text in texts.items() if text}
    both = sum(choice.count_tokens(*each) for each in choice.counts.items())
    trim, needs = _Trim(0, 0), dict[str, int]()
    for trim in _trims([score for _, _, score in recipe.skills], choice.counts[parts.MEMORIES]):
        skills = parts.skills_text(recipe.skills[: trim.skills], budget.skills_chars or 0)
        needs = fixed | {
            parts.MEMORIES: choice.count_tokens(parts.MEMORIES, trim.memories),
            parts.SKILLS: count(skills) if skills else 0,
        }
        spare = room - sum(needs.values())
        if spare >= 0:
            # If memories had to go, keep as many as there is room for; earlier messages share this room.
            needs[parts.MEMORIES] = min(needs[parts.MEMORIES] + spare, both)
            break
    else:
        # The text of the skill is cut before anything else.
        needs[parts.SKILLS] = max(0, needs[parts.SKILLS] + min(0, room - sum(needs.values())))
    tokens = dict.fromkeys(_TIERS, 0) | parts.shares(needs, room)
    tokens[parts.WINDOW] = budget.tokens - system - sum(min(needs[name], tokens[name]) for name in needs)
    skills_chars = budget.skills_chars or 0
    while skills_chars and count(parts.skills_text(recipe.skills[: trim.skills], skills_chars)) > tokens[parts.SKILLS]:
        skills_chars = skills_chars * 3 // 4
    return replace(plan, tokens=tokens, skills=trim.skills, skills_chars=skills_chars)


class _Trim(NamedTuple):
    skills: int
    memories: int


def _trims(scores: list[float], memories: int) -> list[_Trim]:
    """List the reductions to try in turn, until everything fits."""
    best = 1 if scores and scores[0] >= _TRIMMED_SKILL_SCORE_MIN else 0
    kept, least = min(memories, _KEPT_MEMORIES_COUNT), min(memories, _TRIMMED_MEMORIES_COUNT)
    steps = [(len(scores), memories), (len(scores), kept), (best, kept), (best, least)]
    return [_Trim(*step) for step in dict.fromkeys(steps)]


def _render_attachment(source: _ContextSource, tokens: int) -> parts.PartText:
    injected = attachment_in(source.messages)
    ids = dict.fromkeys(injected.memories[:INJECTED_MEMORIES_COUNT_MAX])
    known = [
        entry for entry in map(source.memory.project(source.recipe.project).get, ids) if entry and not entry.erased
    ]
    lines = parts.dated_lines(dated_memories(source.core, known, source.recipe.timezone))
    text, room = "\n".join(filter(None, [injected.text, *lines])), Room(source.recipe.budget.injected_chars, tokens)
    return parts.injected_text(text, room, source.core.counter.count)


def _assemble(
    source: _ContextSource, memories: Sequence[Entry], before: Sequence[Earlier], listed: Sequence[_Listed]
) -> Context:
    """Render all parts according to the plan."""
    recipe, chat, count = source.recipe, source.chat, source.core.counter.count
    plan = recipe.plan
    tokens = plan.tokens
    texts = {name: parts.render_listing(listing, Room(chars, tokens[name]), count) for name, listing, chars in listed}
    instructions = parts.instructions_text(plan.topics)
    is_shown = count(instructions) <= tokens[parts.INSTRUCTIONS]
    texts[parts.SYSTEM] = parts.PartText("\n\n".join(map(text_of, source.system)))
    texts[parts.INSTRUCTIONS] = parts.PartText(instructions) if is_shown else parts.PartText("", len(plan.topics))
    texts[parts.MEMORIES] = memories_part(source.core, memories, recipe.timezone, plan.memories_left_out)
    texts[parts.MESSAGES] = messages_part(before, recipe.timezone, plan.messages_left_out)
    skills = parts.skills_text(recipe.skills[: plan.skills], plan.skills_chars)
    texts[parts.SKILLS] = parts.PartText(skills, len(recipe.skills) - skills.count("\n[/skill]"))
    texts[parts.INJECTED] = _render_attachment(source, tokens[parts.INJECTED])
    counted = {name: count(text) for name, (text, _) in texts.items() if text}
    counted[parts.SYSTEM] = sum(message.tokens for message in source.system)
    shown = [
        ContextPart(name, tier, texts[name].text, counted[name], texts[name].left_out)
        for name, tier in _TIERS.items()
        if texts[name].text
    ]
    history = source.history
    window = fit_messages(history, tokens[parts.WINDOW])
    left_out = {name: texts[name].left_out for name in _TIERS if texts[name].left_out}
    if len(window) < len(history):
        left_out[parts.WINDOW] = len(history) - len(window)
    return Context(chat.id, recipe.seq, tuple(shown), tuple(window), recipe, left_out)


def show(memory: Memory, core: Core, context: Context) -> int:
    """Record in its conversation that a context was shown to a model, and return the seq of that event."""
    if not isinstance(cast("object", context), Context):
        checks.invalid(f"show takes a Context, not {type(context).__name__}; make one with memory.context(chat)")
    recipe = context.recipe
    rows = [*((part.name, part.digest, part.tokens) for part in context.parts), _window_row(context.window)]
    # The query usually repeats the user's last message, and the skills were attached to it by hooks.
    cites_user = recipe.query or recipe.skills or recipe.plan.question
    sources = [message.seq for message in context.window if turns.is_question(message)][-1:] if cites_user else ()
    event = ContextShown(
        (*sources, *recipe.seqs),
        context.seq,
        RENDERER,
        tuple(tokens for _, _, tokens in rows),
        tuple(name for name, _, _ in rows),
        recipe.ids,
        recipe.project,
        recipe.query,
        recipe.day,
        recipe.profile,
        recipe.journal,
        pack_json([list(skill) for skill in recipe.skills]),
        pack_json([asdict(recipe.budget), asdict(recipe.plan)]),
        recipe.timezone,
    )
    batches.check_no_batch(core.engine, "a context that is shown")
    if recipe.seq > core.engine.reader.head:
        core.engine.refresh()  # Another process may have built it.
    if recipe.seq > core.engine.reader.head:
        checks.invalid(f"this log has no seq {recipe.seq}, at which the context was built; show it where it was made")
    seqs: list[int] = []
    stream = f"conversation/{context.conversation}"
    used = _new_ids(core, stream, recipe)
    with memory.batch():
        if used:
            memory.settings.count_usage(
                "memory_injected", len(used), conversation=context.conversation, project=recipe.project
            )
        noted = core.write(stream, event, at=None, call=(), opening=core.opening(*recipe.opening))
        batch = batches.active_batch(core.engine)
        assert noted is not None, "showing a context always is an event"
        assert batch is not None, "the batch was opened right here"
        hashes = tuple(bytes.fromhex(digest) for _, digest, _ in rows)
        core.write(STORE_STREAM, ContextHashed(core.sources([Recorded(*noted)]), hashes), at=None, call=())
        if used:
            recalled = MemoriesRecalled((), used, exact=True, ranking="shown", conversation=context.conversation)
            core.write(f"project/{recipe.project}", recalled, at=None, call=())
        # Not the state's last seq: another thread could show the next context before this one reads it.
        batch.transaction.callbacks.append((noted[1].seq, lambda stamp: seqs.append(stamp.seq)))
    return seqs[0]


def _new_ids(core: Core, stream: str, recipe: Recipe) -> tuple[str, ...]:
    """Return the memories that count as used now: those not in the last context shown here on this day and project."""
    last = _last_context(core, stream)
    if last is None or (last.day, last.project) != (recipe.day, recipe.project):
        return recipe.ids
    return tuple(entry_id for entry_id in recipe.ids if entry_id not in last.ids)


def _window_row(window: Sequence[Message]) -> tuple[str, str, int]:
    """Return the name, digest and tokens of the window as one part; the digest does not depend on seqs."""
    fields = [(*astuple(message.event)[_WORDS:], message.erased) for message in window]
    return "window", sha256(_ENCODE(fields)).hex(), sum(message.tokens for message in window)


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_WORDS: Final = 2  # Skips the sources and the id of a message, which differ between logs.


class Rebuilt(Struct, frozen=True):
    """A rebuilt context, whether it equals the shown one, and the names of the parts that differ.

    `matches` is `None` if the hashes were erased together with data that the context might have shown.
    """

    context: Context
    matches: bool | None
    differing: tuple[str, ...]


def rebuild(memory: Memory, core: Core, seq: int) -> Rebuilt:
    """Rebuild the context that was shown at a seq from the log, and compare it with its hashes.

    Raises `NotFound` if no context was shown at the seq or it was erased, `InvalidInput` if another renderer made it.
    """
    for event, stamp in memory.events(after=checks.count(seq, "seq") - 1 if seq else 0, until=seq):
        if isinstance(event, ContextShown) and stamp.seq == seq:
            break
    else:
        raise NotFound(
            f"no context was shown at seq {seq}; events of kind context_shown have the seqs of those that were"
        )
    if stamp.erased:
        by = "".join(f" at seq {step.seq}" for step in memory.why(seq).of("erased")[-1:])
        raise NotFound(f"the context that was shown at seq {seq} was erased{by}; only that there was one is known")
    if event.renderer != RENDERER:
        raise InvalidInput(
            f"the context at seq {seq} is of renderer {event.renderer}, and this program has {RENDERER}; to see what "
            f"was known then, build one with memory.context(memory.at({event.origin}).conversation(...))"
        )
    past = memory.at(event.origin)
    chat = past.conversation(stamp.stream.partition("/")[2])
    budget, plan = recorded_budget(event)
    recipe = Recipe(
        event.origin,
        event.project,
        event.query,
        event.day,
        event.timezone,
        event.profile,
        event.journal,
        recorded_skills(event),
        budget,
        event.ids,
        event.sources[len(event.sources) - len(plan.places) :],
        (chat.project, chat.window_tokens, chat.embed),
        plan,
    )
    entries = [entry for entry in map(past.project(event.project).get, event.ids) if entry and not entry.erased]
    turn = turns.open_turn_of(core, chat.place[0], core_of(chat)[1])
    source = _ContextSource(past, core, chat, turn.messages, recipe)
    before = earlier.read(core.engine.reader, list(zip(recipe.seqs, plan.places, strict=True)))
    context = _assemble(source, entries, before, tuple(_listings(source)))
    hashed = _read_hashes(core, seq)
    if hashed is None:
        return Rebuilt(context, None, ())
    digests = {part.name: part.digest for part in context.parts} | dict([_window_row(context.window)[:2]])
    recorded = dict(zip(event.names, (digest.hex() for digest in hashed.digests), strict=True))
    names = dict.fromkeys([*recorded, *digests])
    differing = tuple(name for name in names if recorded.get(name) != digests.get(name))
    return Rebuilt(context, not differing, differing)


def _read_hashes(core: Core, seq: int) -> ContextHashed | None:
    """Return the hashes of a context, recorded in the event after it, or `None` if they were erased."""
    if seq == core.engine.reader.current_head():  # The log was cut off right after it.
        return None
    event, stamp = core.event(seq + 1)
    return event if isinstance(event, ContextHashed) and event.sources == (seq,) and not stamp.erased else None


def recorded_budget(event: ContextShown) -> tuple[ContextBudget, ContextPlan]:
    """Return the budget and the plan of a shown context."""
    budget, plan = unpack_json(event.budget)
    return msgspec.convert(budget, ContextBudget), msgspec.convert(plan, ContextPlan)


def recorded_skills(event: ContextShown) -> tuple[NamedSkill, ...]:
    """Return the skills that were offered to a shown context."""
    return tuple((name, body, float(score)) for name, body, score in unpack_json(event.skills))
