"""The context of a conversation: its parts, and the newest messages, within one budget."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, Literal, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.agent import parts
from refold.agent.attachments import attachment_in, merge_skills
from refold.agent.candidates import (
    EPISODES_CHARS,
    OTHER_FACTS_COUNT,
    Choice,
    DayMark,
    MemoryCandidates,
    Trim,
    bound_others,
    dated_episodes,
    dated_memories,
    dated_messages,
    day_marks,
    earlier_messages,
    fit_window,
    marks_of,
    new_episodes,
    other_speakers,
    similar_episodes,
    state_in,
    tokens_of,
    trims,
    without_repeats,
)
from refold.agent.parts import Room
from refold.agent.recipe import ContextBudget, ContextPlan, Recipe, check_budget, complete_budget
from refold.agent.tools import ToolRegistry
from refold.engine import batch as batches
from refold.engine.streams import session_board
from refold.engine.transaction import erased_count
from refold.entry import ACTIVE, Entry, said_by
from refold.errors import LimitExceeded, StoreBusy
from refold.index.ranking import Ranking
from refold.limits import (
    CONTEXT_CHARS_MAX,
    CONTEXT_DAYS,
    INJECTED_MEMORIES_COUNT_MAX,
    REDO_COUNT_MAX,
)
from refold.memory import turns, wires
from refold.memory.conversation import Conversation, check_own
from refold.memory.core import Core, core_of
from refold.memory.criteria import criteria_of
from refold.memory.earlier import Earlier
from refold.memory.facts import Stale
from refold.memory.handles import today_of
from refold.memory.memory import Memory
from refold.memory.options import days_before
from refold.memory.project import Project
from refold.memory.questioner import asker_of
from refold.message import PROMPT_ROLES, Message, text_of, with_preface
from refold.text import sha256
from refold.views.episodes import EPISODES, Episode
from refold.views.facts import FACTS
from refold.views.scratchpad import SCRATCH
from refold.views.session import CONTEXTS, ContextShown
from refold.views.window import WINDOW

# The context: parts from stable to volatile, followed by the window.
#
# Building a context has no side effects; `refold.agent.rebuild` records one that was shown.

STABLE: Final = "stable"
SEMI_STABLE: Final = "semi-stable"
VOLATILE: Final = "volatile"

# All parts in order, and how often each changes.
_TIERS: Final = {
    parts.SYSTEM: STABLE,
    parts.INSTRUCTIONS: STABLE,
    parts.PROFILE: STABLE,
    parts.TODAY: SEMI_STABLE,
    parts.NOTES: SEMI_STABLE,
    parts.MEMORIES: SEMI_STABLE,
    parts.EPISODES: SEMI_STABLE,
    parts.SKILLS: SEMI_STABLE,
    parts.SUMMARY: SEMI_STABLE,
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


class Context(Struct, frozen=True):
    """The input of a model for a conversation: the non-empty parts and the messages, as of `seq`.

    Volatile parts stand in the message that is being answered, in front of the user's words, and the others before all
    messages. So whatever changes from one request to the next comes late, and a provider's prompt cache keeps the
    conversation before it. If a message of the user in the window is of another day than today, `days` say in front of
    the user's first message of each day which day it was.

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
    days: tuple[DayMark, ...] = ()
    """The days in front of messages of the user, by the ids of the messages; `window` has the messages without them."""

    @property
    def text(self) -> str:
        """All parts as one text."""
        return _join(self.parts)

    @property
    def system(self) -> str:
        """The parts before the messages as one text: all of them if no question is being answered."""
        return _join(self._split()[0])

    @property
    def tokens(self) -> int:
        """The tokens of the parts, messages and days together. The definitions of tools come on top."""
        return sum(part.tokens for part in self.parts) + tokens_of([*self.window, *self.days])

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the memories in the context, in order."""
        return self.recipe.ids

    @property
    def seqs(self) -> tuple[int, ...]:
        """The seqs of the earlier messages in the context, in the order in which they are shown."""
        return self.recipe.seqs

    def part(self, name: str) -> ContextPart | None:
        """Return a part by its name, or `None` if it is empty."""
        return next((part for part in self.parts if part.name == name), None)

    def system_blocks(self, *, cache: bool = True) -> list[dict[str, Any]]:
        """Render `system` for Anthropic's `system=`; `cache` marks the last stable and the last semi-stable part."""
        leading = self._split()[0]
        blocks: list[dict[str, Any]] = [{"type": "text", "text": part.text} for part in leading]
        for tier in (STABLE, SEMI_STABLE) if cache else ():
            places = [place for place, part in enumerate(leading) if part.tier == tier]
            if places:
                blocks[places[-1]]["cache_control"] = {"type": "ephemeral"}
        return blocks

    def messages(
        self,
        format: Literal["openai", "openai-responses", "anthropic", "gemini", "ollama"] = "openai",  # noqa: A002 - the usual word
    ) -> list[dict[str, Any]]:
        """Render the messages in a provider's format, after `system` as one system message.

        Anthropic and Gemini take that separately: `system_blocks()` as `system=`, `system` as `system_instruction`.
        Otherwise as `Conversation.messages`.
        """
        leading, volatile, place = self._split()
        days = {mark.message: mark.text for mark in self.days}
        window = [with_preface(each, days[each.id]) if each.id in days else each for each in self.window]
        if volatile:
            window[place] = with_preface(window[place], f"{_join(volatile)}\n\n{parts.MESSAGE_HEADING}")
        messages = wires.render(format, window)
        if format in wires.APART or not leading:
            return messages
        return [{"role": "system", "content": _join(leading)}, *messages]

    def _split(self) -> tuple[Sequence[ContextPart], Sequence[ContextPart], int]:
        """Return the parts before all messages, those in the message that is open, and its place in the window."""
        places = (place for place, each in enumerate(self.window) if turns.is_question(each) or turns.is_answer(each))
        place = max(places, default=-1)
        if place < 0 or turns.is_answer(self.window[place]):
            return self.parts, (), place
        leading = [part for part in self.parts if part.tier != VOLATILE]
        return leading, [part for part in self.parts if part.tier == VOLATILE], place


def _join(shown: Iterable[ContextPart]) -> str:
    return "\n\n".join(part.text for part in shown)


class _ContextRequest(NamedTuple):
    query: str | None
    project: str | None
    budget: ContextBudget
    skills: Sequence[Any]
    profile: str
    journal: str
    topics: tuple[str, ...]
    day: str


# Others may write while a context is built. All of it is as of one seq, which costs nothing where the streams that are
# read have not moved. But a search of a project that has moved indexes the memories of that seq anew, so that the live
# ones are searched first, at most so many times, until they have not moved meanwhile.
_LIVE_SEARCHES_COUNT: Final = 4

# Without a query, memories come in an order that does not depend on the time.
_BY_IMPORTANCE: Final = Ranking(name="importance", importance=1.0)
_BY_WORDS: Final = Ranking(name="words", coverage=1.0)


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
    day = today_of(core, core_of(memory)[1])
    request = _ContextRequest(query, project, check_budget(budget), skills, profile, journal, topics, day)
    for attempt in range(REDO_COUNT_MAX):
        seq, count = memory.head, erased_count(core.engine.reader)
        frozen = memory.at(seq)
        try:
            searched = memory if attempt < _LIVE_SEARCHES_COUNT else frozen
            built = _build(frozen, core, chat.at(seq), request, seq, searched)
        except Stale:
            continue
        if erased_count(core.engine.reader) == count:
            return built
    raise StoreBusy("the log was erased from faster than a context could be built; let that end and call again")


def _topics(tools: ToolRegistry | Sequence[str], *, is_mirrored: bool) -> tuple[str, ...]:
    names = tools.names() if isinstance(tools, ToolRegistry) else tools
    available = {*names, parts.MIRROR} if is_mirrored else set(names)
    return tuple(topic for topic in parts.TOPICS if topic in available)


def _freeze_both(memory: Memory, core: Core, chat: Conversation) -> tuple[Memory, Conversation]:
    """If either is frozen, freeze both at the same seq: a context never mixes two points in time."""
    check_own(core, chat)
    frozen = core_of(memory)[1], core_of(chat)[1]
    seqs = {seq for seq in frozen if seq is not None}
    if len(seqs) > 1:
        checks.invalid(f"the memory is frozen at seq {frozen[0]}, the conversation at {frozen[1]}; freeze them alike")
    return (memory.at(min(seqs)), chat.at(min(seqs))) if seqs else (memory, chat)


def _build(
    memory: Memory, core: Core, chat: Conversation, request: _ContextRequest, seq: int, searched: Memory
) -> Context:
    """Build a context from what is frozen at a seq, and from memories found in ``searched``, unless it moved on."""
    settings = dict(memory.settings.items())
    budget = complete_budget(request.budget, chat, settings)
    turn = turns.open_turn_of(core, chat.place[0], core_of(chat)[1])
    skills = merge_skills(request.skills, attachment_in(turn.messages)) if settings["skills_enabled"] else ()
    question = turn.evicted_question
    recipe = Recipe(
        seq=seq,
        project=request.project or chat.project or "default",
        query=request.query,
        day=request.day,
        timezone=core.timezone,
        profile=request.profile,
        journal=request.journal,
        skills=tuple(skills),
        budget=budget,
        opening=(chat.project, chat.window_tokens, chat.embed),
        plan=ContextPlan(request.topics, question="" if question is None else question.id),
    )
    candidates = MemoryCandidates((), ())
    if settings["memory_enabled"]:
        asker = asker_of(turn.messages, recipe.query, recipe.profile)
        candidates = _find_memories(memory, core, chat, recipe, asker, searched)
        bounds = budget.episodes_count, budget.tokens or 0, asker
        episodes = similar_episodes(core, chat, turn.messages, recipe.project, recipe.query or "", *bounds)
        recipe = recipe._replace(plan=replace(recipe.plan, episodes=tuple(episodes)))
    source = ContextSource(memory, core, chat, turn.messages, recipe, summary_id_of(chat))
    listed = tuple(listed_parts(source))
    source, plan, choice = _fit(source, candidates, listed, is_enabled=bool(settings["memory_enabled"]))
    chosen = choice.choose(plan.tokens[parts.MEMORIES])
    entries, messages = chosen.memories, without_repeats(chosen.messages, chosen.memories, candidates.previous_ids)
    final = replace(
        plan,
        episodes=new_episodes(source.episodes(), entries, messages),
        memories_left_out=chosen.memories_left_out,
        messages_left_out=chosen.messages_left_out,
        pieces=chosen.pieces,
        places=tuple(each.place for each in messages),
        marks=tuple(map(int, marks_of(messages, recipe.timezone))),
    )
    ids, seqs = tuple(entry.id for entry in entries), tuple(each.message.seq for each in messages)
    source = source._replace(recipe=recipe._replace(ids=ids, seqs=seqs, plan=final))
    if final.episodes != plan.episodes:
        listed = tuple(listed_parts(source))
    return assemble(source, entries, messages, listed)


# Memories that answer the query, and memories that keep their place.


def _find_memories(
    memory: Memory, core: Core, chat: Conversation, recipe: Recipe, asker: str | None, searched: Memory
) -> MemoryCandidates:
    """Search memories, followed by previously shown ones, which can keep their place while there is room.

    Of a user who asks about themselves, what others said comes last. Of facts that share no word with the query, only
    the best few are taken: they cost tokens in each request. Rules for the model hold whatever is asked. Raises
    ``Stale`` if the memories of ``searched`` have changed since the recipe's seq.
    """
    is_empty = not core.read(f"project/{recipe.project}", lambda state: state.part(FACTS).count, core_of(chat)[1])
    if is_empty or not recipe.budget.memories_count:
        return MemoryCandidates((), ())  # A search would load numpy.
    query = recipe.query if recipe.query is not None and recipe.query.strip() else None
    ranking: str | Ranking = _BY_IMPORTANCE if query is None else "hybrid"
    project = memory.project(recipe.project)
    # No score floor: the budget bounds what is shown, and a query such as "go on" says little about what a turn needs.
    options: dict[str, Any] = {"top_k": recipe.budget.memories_count, "ranking": ranking, "floor": 0}
    search = searched.project(recipe.project).search
    hits = list(search(query or "everything", **options))
    is_about_user = query is not None and bool(criteria_of(query).about)
    is_personal = asker is not None and is_about_user
    is_bounded = query is not None and not is_about_user and len(hits) > OTHER_FACTS_COUNT
    count = recipe.budget.memories_count
    by_words = search(query or "", top_k=count, ranking=_BY_WORDS, floor=0) if is_bounded else ()
    if is_personal:
        hits = [*search(query or "", metadata=said_by(asker), **options), *hits]
    is_live = core_of(searched)[1] is None
    if is_live and core.engine.reader.last_seq(core.key(f"project/{recipe.project}"), None) > recipe.seq:
        raise Stale
    last = last_context(core, chat.place[0], core_of(chat)[1])
    previous_ids = last.ids if last is not None and last.project == recipe.project else ()
    entries = {hit.entry.id: hit.entry for hit in hits}
    for entry_id in previous_ids:
        entry = None if entry_id in entries else project.get(entry_id)
        if entry is not None and not entry.erased and entry.status == ACTIVE:
            entries[entry_id] = entry
    found = list(entries.values())
    if is_personal:
        found.sort(key=lambda entry: entry.speaker not in (None, asker))
    if is_bounded:
        related = {hit.entry.id for hit in by_words if hit.score}
        found = bound_others(found, {*previous_ids, *related}, OTHER_FACTS_COUNT - len(previous_ids))
    kept = found[: recipe.budget.memories_count]
    return MemoryCandidates(kept, previous_ids, len(entries) - len(kept))


def last_context(core: Core, stream: str, at: int | None = None) -> ContextShown | None:
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


class ContextSource(NamedTuple):
    """Everything that the parts of a context are made from, except its memories."""

    memory: Memory
    core: Core
    chat: Conversation
    messages: Sequence[Message]
    recipe: Recipe
    summary_id: str
    """The id of the message among them that tells of those before, empty if there is none."""

    @property
    def system(self) -> list[Message]:
        """The messages that form the host's system prompt."""
        prompts = (message for message in self.messages if message.role in PROMPT_ROLES and message.content)
        return [message for message in prompts if message.id != self.summary_id]

    @property
    def summary(self) -> str:
        """The part that shows the summary, empty if there is none."""
        return "".join(parts.summary_text(text_of(each)) for each in self.messages if each.id == self.summary_id)

    @property
    def history(self) -> list[Message]:
        """The other messages."""
        return [message for message in self.messages if message.role not in PROMPT_ROLES]

    @property
    def fixed_tokens(self) -> int:
        """The tokens of the host's system prompt and of the summary, which are never cut."""
        return tokens_of(self.system) + self.core.counter.count(self.summary)

    @property
    def asker(self) -> str | None:
        """The name of the user who asks, if it is known."""
        return asker_of(self.messages, self.recipe.query, self.recipe.profile)

    def days(self, messages: Sequence[Message]) -> tuple[DayMark, ...]:
        """Return the days to show in front of messages of the user."""
        return day_marks(messages, self.recipe.day, self.recipe.timezone, self.core.counter.count)

    def window_tokens(self, messages: Sequence[Message]) -> int:
        """The tokens of messages with the days in front of them."""
        return tokens_of([*messages, *self.days(messages)])

    def episodes(self) -> dict[int, Episode]:
        """Return the planned episodes, by seq."""
        seqs, at = self.recipe.plan.episodes, core_of(self.chat)[1]

        def query(state: Any) -> dict[int, Episode]:
            by_seq = state.part(EPISODES).by_seq
            return {seq: by_seq[seq] for seq in seqs if seq in by_seq}

        return self.core.read(f"project/{self.recipe.project}", query, at) if seqs else {}


def summary_id_of(chat: Conversation) -> str:
    """Return the id of the message in a window that tells of those before, empty if there is none."""
    core, at = core_of(chat)
    return core.read_lightly(chat.place[0], lambda state: str(state.part(WINDOW).summary), at)


_UNBOUNDED: Final = CONTEXT_CHARS_MAX * 8


class _ListedPart(NamedTuple):
    """A part that is a list, with its limit in characters."""

    name: str
    listing: parts.PartListing
    chars: int

    def render(self, tokens: int, count: parts.Count) -> parts.PartText:
        """Render the entries that fit the part's limit and some tokens."""
        return parts.render_listing(self.listing, Room(self.chars, tokens), count)


def listed_parts(source: ContextSource) -> Iterator[_ListedPart]:
    """Yield the parts that are lists."""
    memory, recipe, chat = source.memory, source.recipe, source.chat
    budget, journal, session = recipe.budget, memory.journal(recipe.journal), chat.session
    days = [days_before(recipe.day, count) for count in range(CONTEXT_DAYS)]
    pages = [(day, [note.text for note in journal.day(day)]) for day in days]
    profile = parts.profile_listing(memory.profile(recipe.profile).items())
    yield _ListedPart(parts.PROFILE, profile, budget.profile_chars)
    yield _ListedPart(parts.NOTES, parts.notes_listing(pages), budget.notes_chars)
    episodes = source.episodes()
    speakers = other_speakers(source.core, episodes, source.asker)
    sessions = parts.episodes_listing(dated_episodes(episodes.values(), recipe.timezone), speakers)
    yield _ListedPart(parts.EPISODES, sessions, EPISODES_CHARS)
    files = [(file.path, file.lines) for file in session.files()]
    scopes = [state_in(chat, stream) for stream in (chat.place[0], f"project/{recipe.project}")]
    work = parts.session_listing(session.task(), files, session.findings(), session.calls(), *scopes)
    yield _ListedPart(parts.SESSION, work, budget.session_chars)
    yield _ListedPart(parts.BOARD, _board(source), budget.board_chars)
    yield _ListedPart(parts.SCRATCHPAD, _scratchpad(source), budget.scratchpad_chars)


def _board(source: ContextSource) -> parts.PartListing:
    """List the contents of the session's board, with only those of its messages that are not in the window."""
    chat, core = source.chat, source.core
    if not core.version(session_board(chat.id)):
        return parts.PartListing(parts.BOARD_HEADING, "entries", ())
    board = source.memory.board(session=chat.id).to_dict()
    live = {message.id for message in source.messages}
    return parts.board_listing(board, [row for row in board["messages"] if row["id"] not in live])


def _scratchpad(source: ContextSource) -> parts.PartListing:
    """List the scratchpad, its values in the order in which they were set."""

    def query(state: Any) -> tuple[dict[str, str], list[str]]:
        scratch = state.part(SCRATCH)
        seqs, values = scratch.entries.seqs, scratch.entries.values
        return {key: values[key] for key in sorted(values, key=seqs.__getitem__)}, [text for _, text in scratch.notes]

    return parts.scratchpad_listing(*source.core.read(source.chat.place[0], query, core_of(source.chat)[1]))


def _room_for_parts(source: ContextSource, kept: Sequence[Message]) -> int:
    """Return the tokens of all parts besides the system prompt, so that they and the newest messages fit the budget.

    The messages that are kept fit, too.
    """
    budget, history, system = source.recipe.budget, source.history, source.fixed_tokens
    whole, rest = source.window_tokens(history), (budget.tokens or 0) - system
    # If everything fits, it does not matter which messages could be left out.
    is_plenty = rest - whole >= budget.parts_tokens
    messages = history if is_plenty else list(chain.from_iterable(turns.required_groups(turns.groups_of(history))))
    required = tokens_of(messages)
    if rest < required:
        fixed = "the system prompt and the summary take" if source.summary else "the system prompt takes"
        raise LimitExceeded(
            f"{fixed} {system} tokens and the newest messages {required}, over the "
            f"budget of {budget.tokens}; give a larger budget, a shorter prompt, or shorter messages"
        )
    required = min(source.window_tokens(messages), rest)  # Without days rather than not at all.
    room = min(budget.parts_tokens, max((rest + 1) // 2, rest - whole), rest - required)
    return max(min(room, rest - source.window_tokens(kept)), 0) if kept else room


def _plan_topics(
    source: ContextSource, choice: Choice, listed: Sequence[_ListedPart], kept: Sequence[Message]
) -> tuple[ContextSource, ContextPlan]:
    """Plan the tokens; the search of the conversation is a topic only if some of its messages are not shown."""
    recipe, (core, at) = source.recipe, core_of(source.chat)
    topics = tuple(topic for topic in recipe.plan.topics if topic != parts.SEARCH)
    if topics != recipe.plan.topics and not turns.is_cut(core, source.chat.place[0], at, source.messages):
        whole = source._replace(recipe=recipe._replace(plan=replace(recipe.plan, topics=topics)))
        plan = _plan_tokens(whole, choice, listed, kept)
        if len(fit_window(source.history, plan.tokens[parts.WINDOW], source.days)[0]) == len(source.history):
            return whole, plan
    return source, _plan_tokens(source, choice, listed, kept)


def _plan_tokens(
    source: ContextSource, choice: Choice, listed: Sequence[_ListedPart], kept: Sequence[Message]
) -> ContextPlan:
    """Decide how many tokens each part can take."""
    recipe, count = source.recipe, source.core.counter.count
    budget, plan, room = recipe.budget, recipe.plan, _room_for_parts(source, kept)
    texts = {part.name: part.render(_UNBOUNDED, count).text for part in listed}
    texts[parts.INSTRUCTIONS] = parts.instructions_text(plan.topics)
    texts[parts.INJECTED] = _render_attachment(source, _UNBOUNDED).text
    texts[parts.TODAY] = parts.today_text(recipe.day)
    fixed = {name: count(text) for name, text in texts.items() if text}
    all_entries = sum(choice.count_tokens(part, number) for part, number in choice.counts.items())
    trim, needs, spare = Trim(0, 0), dict[str, int](), 0
    for trim in trims([score for _, _, score in recipe.skills], choice.counts[parts.MEMORIES]):
        skills = parts.skills_text(recipe.skills[: trim.skills], budget.skills_chars or 0)
        needs = fixed | {
            parts.MEMORIES: choice.count_tokens(parts.MEMORIES, trim.memories),
            parts.SKILLS: count(skills) if skills else 0,
        }
        spare = room - sum(needs.values())
        if spare >= 0:
            # If memories had to go, keep as many as there is room for; earlier messages share this room.
            needs[parts.MEMORIES] = min(needs[parts.MEMORIES] + spare, all_entries)
            break
    else:
        # The text of the skill is cut before anything else.
        needs[parts.SKILLS] = max(0, needs[parts.SKILLS] + spare)
    tokens = dict.fromkeys(_TIERS, 0) | parts.shares(needs, room)
    taken = source.fixed_tokens + sum(min(needs[name], tokens[name]) for name in needs)
    tokens[parts.WINDOW] = (budget.tokens or 0) - taken
    skills_chars = budget.skills_chars or 0
    while skills_chars and count(parts.skills_text(recipe.skills[: trim.skills], skills_chars)) > tokens[parts.SKILLS]:
        skills_chars = skills_chars * 3 // 4
    return replace(plan, tokens=tokens, skills=trim.skills, skills_chars=skills_chars)


_SEARCHES_COUNT: Final = 3


def _fit(
    source: ContextSource, candidates: MemoryCandidates, listed: Sequence[_ListedPart], *, is_enabled: bool
) -> tuple[ContextSource, ContextPlan, Choice]:
    """Search earlier messages, and plan the tokens so that every message of the window is either shown or searched.

    What is found takes room from the window, so that more of its messages have to be searched. The last search is of
    those that the plan before it left out, and its own plan leaves out no others.
    """
    core, history, budget = source.core, source.history, source.recipe.budget
    chars = {parts.MEMORIES: budget.memories_chars, parts.MESSAGES: budget.messages_chars}

    def choose_from(found: Sequence[Earlier], left_out: int) -> Choice:
        timezone, asker = source.recipe.timezone, source.asker
        return Choice(core, candidates, found, chars, timezone, asker, left_out=left_out)

    window, kept_tokens, count = history, None, 0
    while True:
        count += 1
        found, left_out = _find_messages(source, kept_tokens) if is_enabled else ([], 0)
        choice = choose_from(found, left_out)
        is_last = count == _SEARCHES_COUNT
        kept = window if is_last else ()
        planned, plan = _plan_topics(source, choice, listed, kept)
        shown, _ = fit_window(history, plan.tokens[parts.WINDOW], source.days)
        if is_last or not is_enabled or tokens_of(shown) >= tokens_of(window):
            break
        window, kept_tokens = shown, tokens_of(shown)
    ids = {message.id for message in shown}
    if any(each.message.id in ids for each in found):
        choice = choose_from([each for each in found if each.message.id not in ids], left_out)
    return planned, replace(plan, kept_tokens=kept_tokens), choice


def _find_messages(source: ContextSource, kept_tokens: int | None) -> tuple[list[Earlier], int]:
    recipe = source.recipe
    return earlier_messages(
        source.core,
        source.chat,
        source.messages,
        recipe.project,
        recipe.query,
        recipe.budget.messages_count,
        source.asker,
        kept_tokens,
    )


def _render_attachment(source: ContextSource, tokens: int) -> parts.PartText:
    recipe, attachment = source.recipe, attachment_in(source.messages)
    ids = dict.fromkeys(attachment.memories[:INJECTED_MEMORIES_COUNT_MAX])
    entries = read_memories(source.memory.project(recipe.project), ids)
    lines = parts.dated_lines(dated_memories(source.core, entries, recipe.timezone, source.asker))
    text = "\n".join(filter(None, [attachment.text, *lines]))
    return parts.injected_text(text, Room(recipe.budget.injected_chars, tokens), source.core.counter.count)


def read_memories(project: Project, ids: Iterable[str]) -> list[Entry]:
    """Read the memories with some ids that still exist."""
    return [entry for entry in map(project.get, ids) if entry and not entry.erased]


def assemble(
    source: ContextSource, memories: Sequence[Entry], earlier: Sequence[Earlier], listed: Sequence[_ListedPart]
) -> Context:
    """Render all parts according to the plan."""
    recipe, count = source.recipe, source.core.counter.count
    plan, tokens = recipe.plan, recipe.plan.tokens
    texts = {part.name: part.render(tokens[part.name], count) for part in listed}
    instructions = parts.instructions_text(plan.topics)
    fits = count(instructions) <= tokens[parts.INSTRUCTIONS]
    texts[parts.SYSTEM] = parts.PartText("\n\n".join(map(text_of, source.system)))
    texts[parts.SUMMARY] = parts.PartText(source.summary)
    texts[parts.INSTRUCTIONS] = parts.PartText(instructions) if fits else parts.PartText("", len(plan.topics))
    facts = dated_memories(source.core, memories, recipe.timezone, source.asker)
    marks = {
        (seq, place): parts.LineMark(mark)
        for seq, place, mark in zip(recipe.seqs, plan.places, plan.marks, strict=True)
    }
    answers = dated_messages(
        earlier, [marks[each.message.seq, each.place] for each in earlier], recipe.timezone, source.asker
    )
    texts[parts.MEMORIES] = parts.ranked_part(parts.MEMORIES, facts, plan.memories_left_out)
    texts[parts.MESSAGES] = parts.ranked_part(parts.MESSAGES, answers, plan.messages_left_out)
    today = parts.today_text(recipe.day)
    texts[parts.TODAY] = parts.PartText(today if count(today) <= tokens[parts.TODAY] else "")
    skills = parts.skills_text(recipe.skills[: plan.skills], plan.skills_chars)
    texts[parts.SKILLS] = parts.PartText(skills, len(recipe.skills) - skills.count("\n[/skill]"))
    texts[parts.INJECTED] = _render_attachment(source, tokens[parts.INJECTED])
    counts = {name: count(text) for name, (text, _) in texts.items() if text}
    counts[parts.SYSTEM] = tokens_of(source.system)
    rendered = [
        ContextPart(name, tier, texts[name].text, counts[name], texts[name].left_out)
        for name, tier in _TIERS.items()
        if texts[name].text
    ]
    history = source.history
    window, days = fit_window(history, tokens[parts.WINDOW], source.days)
    left_out = {name: texts[name].left_out for name in _TIERS if texts[name].left_out}
    if len(window) < len(history):
        left_out[parts.WINDOW] = len(history) - len(window)
    return Context(source.chat.id, recipe.seq, tuple(rendered), tuple(window), recipe, left_out, days)
