"""The memory's own hooks: load memories, follow user commands, inject skills, and extract memories at the end."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from refold.agent.commands import ForgetCommand, RecallCommand, RememberCommand, WithholdCommand, detect_memory_command
from refold.agent.extraction import Extracted, extract, unread_messages
from refold.agent.hooks import (
    COMPACTION,
    SESSION_END,
    SESSION_START,
    USER_MESSAGE,
    HookContext,
    Hooks,
    UserMessageResult,
)
from refold.agent.parts import one_line
from refold.agent.providers import JsonProvider
from refold.agent.secrets import secret_in
from refold.entry import ACTIVE, Entry, said_by
from refold.fold import State
from refold.limits import EXTRACTION_CHARS_MAX, SOURCES_COUNT_MAX
from refold.memory.core import core_of
from refold.memory.earlier import EarlierMessages
from refold.memory.memory import Memory
from refold.memory.project import Project
from refold.memory.turns import without_withheld
from refold.message import Message, MessageAppended, current_messages, is_withheld, text_of
from refold.results import Hit, SessionSummary
from refold.text import contradiction, has_inside, is_unspaced, pluralize, short_words
from refold.text import words as words_of
from refold.views.episodes import EPISODES
from refold.views.session import WORK

_FORGET_RANKING: Final = "seed"  # The threshold below is meant for the scores of this ranking.
_FORGET_SCORE_MIN: Final = 0.45  # A request to forget never means a memory with a lower similarity.
_NOTHING_FOUND: Final = (
    "No memory was found to forget; messages that mention it stay in the history, and may be shown again"
)
_FOUND_COUNT_MAX: Final = 50  # The most memories that one command forgets or shows.
_EPISODE_CHARS_MAX: Final = 1_000  # Characters kept of a message that becomes a session's task or outcome.
_ASKED_CHARS_MAX: Final = 120  # Of the message whose answer is the outcome, so that the answer is seen, too.
_REASONS_COUNT_MAX: Final = 3  # The most in a notice of what was not learned or replaced; the events have all of it.
_UNREAD_SHARE: Final = 4  # Evicted messages are read once they come to 1/4 of the window.
# Words that do not help to identify the memory to forget.
_EMPTY_WORDS: Final = frozenset(
    (
        "the",
        "that",
        "this",
        "and",
        "for",
        "are",
        "was",
        "you",
        "your",
        "his",
        "her",
        "our",
        "all",
        "any",
        "about",
        "with",
    )
)

# A value of the profile is a list if its key is in the plural ("allergies") and its items are separated.
_PLURAL: Final = re.compile(r"(?<![sui])s\Z", re.IGNORECASE)
_SEPARATOR: Final = re.compile(r"[,;\u3001\uff0c\uff1b]")

# A function of the context and the user's message that returns text to show to the model beside it, or `None`.
SkillInjector: TypeAlias = Callable[[HookContext, str], str | None]


_GROUP: Final = "memory"


class SkillSource(Protocol):
    """A handle on skills that registers its own hooks."""

    def register_hooks(self, hooks: Hooks, provider: JsonProvider | None = None) -> None:
        """Register hooks that inject skills and restrict tools to theirs; with a provider, also learn new skills."""
        ...


def default_hooks(
    memory: Memory, skills: SkillSource | SkillInjector | None = None, provider: JsonProvider | None = None
) -> Hooks:
    """Register the memory's own hooks on `memory.hooks`, replacing those of an earlier call, and return `memory.hooks`.

    At the start of a session, memories are loaded into `context.shared["memories"]`. A user message that is a
    memory command is carried out, and the model is told so. `skills` are shown beside messages and never become
    part of the user's words: a handle such as `memory.skills` selects skills and records the selection; a function
    returns the text to show. With a handle, tools that the selected skills do not allow are refused until the next
    message. With a `provider`, memories are extracted at the end of a session, and before it from evicted messages
    whenever they come to a quarter of the window or to EXTRACTION_CHARS_MAX; and a handle learns a skill from a
    session that went well if `skills_auto_generate` is set. At the end of a session, an episode records what it
    began and ended with, and memories that have not been used for days lose importance. Notices report what was
    done. The settings of the store can turn each of these off.
    """
    hooks: Hooks = memory.hooks
    hooks.unregister_group(_GROUP)
    hooks.register(SESSION_START, load_memories, group=_GROUP)
    hooks.register(USER_MESSAGE, obey_command, group=_GROUP)
    if callable(skills):
        injector = skills

        def inject_skills(context: HookContext, text: str) -> UserMessageResult | None:
            injected = injector(context, text) if context.memory.settings.get("skills_enabled") else None
            return None if injected is None else UserMessageResult(injected_context=injected)

        hooks.register(USER_MESSAGE, inject_skills, group=_GROUP)
    elif skills is not None:
        skills.register_hooks(hooks, provider)
    if provider is not None:
        _register_extraction(hooks, provider)
    hooks.register(SESSION_END, record_session, group=_GROUP)
    hooks.register(SESSION_END, decay_memories, group=_GROUP)
    return hooks


def _register_extraction(hooks: Hooks, provider: JsonProvider) -> None:
    def run_extraction(context: HookContext, **options: Any) -> None:
        options |= {"memory": context.memory, "project": context.project, "profile": context.profile}
        _notify_result(context, extract(context.conversation, provider, **options))

    def extract_at_end(context: HookContext, summary: SessionSummary) -> None:
        if _may_extract(context):
            run_extraction(context, summary=summary)

    def extract_evicted(context: HookContext, evicted: Sequence[Message]) -> None:
        if _may_extract(context) and evicted:
            # Also read pinned messages and those of a failed extraction: no later extraction returns to them.
            until = max(message.seq for message in evicted)
            messages = [message for message in unread_messages(context.conversation) if message.seq <= until]
            # A single message says little without those around it, and the turn waits for each call of the model.
            tokens = sum(message.tokens for message in messages)
            chars = sum(len(text_of(message)) for message in messages)
            if tokens * _UNREAD_SHARE >= context.conversation.window_tokens or chars >= EXTRACTION_CHARS_MAX:
                run_extraction(context, messages=messages)

    hooks.register(SESSION_END, extract_at_end, group=_GROUP)
    hooks.register(COMPACTION, extract_evicted, group=_GROUP)


def load_memories(context: HookContext) -> None:
    """Load the most important memories of the project for use by later hooks."""
    count = int(context.memory.settings.get("memory_max_injected"))
    if context.memory.settings.get("memory_enabled") and count:
        hits = context.memory.project(context.project).search("", top_k=count)
        context.shared["memories"] = [hit.entry for hit in hits]


def _notify_result(context: HookContext, extracted: Extracted) -> None:
    if extracted.ids:
        context.notify(f"Learned {pluralize(len(extracted.ids), 'new fact')} about this project")
    if extracted.replaced:
        pairs = [f"{one_line(before)!r} by {one_line(now)!r}" for before, now in extracted.replaced]
        context.notify(f"Replaced: {_join_first(pairs)}")
    if extracted.dropped:
        context.notify(f"Not learned: {_join_first(extracted.dropped)}")


def _join_first(reasons: Sequence[str]) -> str:
    rest = len(reasons) - _REASONS_COUNT_MAX
    return "; ".join([*reasons[:_REASONS_COUNT_MAX], *([f"and {rest} more"] if rest > 0 else [])])


def record_session(context: HookContext, summary: SessionSummary) -> None:
    """Record what a session began and ended with, unless nothing was said since its last recorded episode.

    Without a description of its task, it began with the user's first message since then. Its outcome is the newest text
    of the model, after the user's message that it answers if that is another one, or the reason if its last turn was
    stopped.
    """
    chat = context.conversation
    if not context.memory.settings.get("memory_enabled") or not summary.total_turns:
        return
    last = _last_episode_seq(context)
    said = current_messages(chat.events())
    core, at = core_of(context.memory)
    home = chat.place[0]
    kept = core.part(EarlierMessages).past_seqs(core.branch, at, home, home, said)  # Of what no restore took back.
    messages = {message.seq: message.event for message in without_withheld([said[seq] for seq in kept])}
    if not messages or last > max(messages):
        return
    fresh = {seq: event for seq, event in messages.items() if seq > last}
    task = _task_of(context, summary, messages, fresh, is_first=not last)
    if task is None:
        return
    outcome, quoted = _outcome_of(task, fresh, summary.stop_reason)
    rest = [seq for seq in messages if seq != task.seq and seq not in quoted]
    calls = ", ".join(f"{name} x {count}" for name, count in summary.tool_usage.items())
    context.memory.project(context.project).record_episode(
        "success" if summary.success else "failure",
        session=chat.id,
        task=task.text,
        approach=f"Tools: {calls}" if calls else "",
        outcome=outcome,
        tools=tuple(summary.tool_usage),
        # What is quoted goes first, the task before all, because a long session has more sources than can be cited.
        sources=[task.seq, *[*quoted, *rest[::-1]][: SOURCES_COUNT_MAX - 1]],
    )


class _Task(NamedTuple):
    """What a session began with, and the event that says so."""

    seq: int
    text: str
    is_described: bool


def _task_of(
    context: HookContext,
    summary: SessionSummary,
    messages: Mapping[int, MessageAppended],
    fresh: Mapping[int, MessageAppended],
    *,
    is_first: bool,
) -> _Task | None:
    """Return the described task, or else the user's first message since the last episode; `None` if there is none."""
    core, at = core_of(context.memory)
    described = core.read(f"conversation/{context.session_id}", lambda state: state.part(WORK).task_seq, at)
    if described and summary.task_description.strip():
        return _Task(described, summary.task_description, is_described=True)
    inherited = [
        (each.seq, each.event)
        for each in context.conversation.window()
        if is_first and each.seq not in messages and not is_withheld(each)
    ]
    said = ((seq, text_of(event)) for seq, event in [*inherited, *fresh.items()] if _is_asked(event))
    return next((_Task(seq, text[:_EPISODE_CHARS_MAX], is_described=False) for seq, text in said if text.strip()), None)


def _outcome_of(task: _Task, fresh: Mapping[int, MessageAppended], stop_reason: str) -> tuple[str, list[int]]:
    """Return how a session ended, and the seqs of the messages that this quotes.

    A text of the model is the outcome of a described task. Beside a question, only its own answer is. If the last turn
    was stopped, the reason is the outcome, which can quote the output of a tool.
    """
    asked = max((seq for seq, event in fresh.items() if _is_asked(event)), default=task.seq)
    since = 0 if task.is_described else asked
    answers = [seq for seq, event in fresh.items() if event.role == "assistant" and text_of(event).strip()]
    answered = [seq for seq in answers[-1:] if seq > since]
    answer = "".join(text_of(fresh[seq]).strip() for seq in answered)
    if stop_reason:
        answered = [seq for seq, event in fresh.items() if event.role == "tool"][-1:]
        answer = f"stopped: {stop_reason}"
    if task.is_described or asked == task.seq:
        return answer[:_EPISODE_CHARS_MAX], answered
    question = one_line(text_of(fresh[asked]))[:_ASKED_CHARS_MAX]
    return " -> ".join(filter(None, (question, answer)))[:_EPISODE_CHARS_MAX] if question else "", [asked, *answered]


def _is_asked(event: MessageAppended) -> bool:
    return event.role == "user" and event.answers is None


def _last_episode_seq(context: HookContext) -> int:
    """Return the seq of the newest episode of a session, or 0."""

    def query(state: State) -> int:
        episodes = state.part(EPISODES).by_seq
        return max((seq for seq, episode in episodes.items() if episode.session == context.session_id), default=0)

    core, at = core_of(context.memory)
    return core.read(f"project/{context.project}", query, at)


def decay_memories(context: HookContext, summary: SessionSummary) -> None:  # noqa: ARG001 - the signature of a hook
    """Reduce the importance of memories that have not been used for days."""
    if context.memory.settings.get("memory_enabled"):
        context.memory.project(context.project).decay()


def obey_command(context: HookContext, text: str) -> UserMessageResult | None:
    """Remember, forget or look up as a user's message commands, and tell the model; a secret is not remembered."""
    if not context.memory.settings.get("memory_enabled"):
        return None
    command = detect_memory_command(text)
    project = context.memory.project(context.project)
    secret = secret_in(command.content) if isinstance(command, RememberCommand) else None
    if secret is not None:
        context.notify(f"Not remembered: it seems to hold {secret}")
        return UserMessageResult(injected_context=_REFUSED.format(secret=secret))
    if isinstance(command, RememberCommand):
        remember = command
        context.write(
            text,
            lambda sources: project.upsert(
                remember.content,
                category="preference",
                importance=remember.importance,
                metadata=said_by(context.user_name),
                source=context.session_id,
                sources=sources,
            ),
        )
        context.notify(f"Remembered: {command.content}")
        return UserMessageResult(injected_context=_REMEMBERED)
    if isinstance(command, WithholdCommand):
        context.notify("Not remembered: this message, as it asks; it stays in the history of its conversation")
        return UserMessageResult(injected_context=_WITHHELD, is_withheld=True)
    if isinstance(command, ForgetCommand):
        return UserMessageResult(injected_context=_forget(context, text, command))
    if isinstance(command, RecallCommand):
        recalled, total = _find_memories(project, command, context.user_name if _asks_about_own(text) else None)
        if recalled:  # If not, the profile or earlier messages can still answer.
            number = f"{len(recalled)} of {total} memories:"
            return UserMessageResult(
                injected_context=f"The user asks what is remembered of this project; {number}",
                memories=tuple(entry.id for entry in recalled),
            )
    return None


# What the model is told beside a command, without the contents of what is forgotten: the message would keep them.
_REMEMBERED: Final = "The memory has stored what the user asks to remember. Do not store it again."
_REFUSED: Final = (
    "The memory did not store what the user asks to remember, for it seems to hold {secret}. Say that it is not "
    "stored, and do not store it."
)
_WITHHELD: Final = (
    "As the user asks, nothing of this message is remembered. It stays in the history of this conversation. Do not "
    "store it."
)
_FORGOTTEN: Final = "As the user asks, the memory has forgotten {}. Do not store it again."
_NOT_FORGOTTEN: Final = "The memory has forgotten nothing: {}. Say so."
_MESSAGES_STAY: Final = "Other messages that mention it stay in the history, and may be shown again. Say so, too."
_EVERYTHING: Final = "a message cannot make it forget all about the user; it has to name what to forget"


def _forget(context: HookContext, text: str, command: ForgetCommand) -> str:
    """Forget memories of the project and facts of the profile; return what to tell the model."""
    if command.is_subject and _ONESELF.fullmatch(command.query):
        context.notify(f"Nothing was forgotten: {_EVERYTHING}")
        return _NOT_FORGOTTEN.format(_EVERYTHING)
    project, profile = context.memory.project(context.project), context.memory.profile(context.profile)
    entries, notice = _find_targets(project, command, text, context.user_name)
    facts, similar = _find_facts(profile.items(), command)

    def forget(sources: Sequence[Any]) -> None:
        for entry in entries:
            project.delete(entry.id, sources=sources)
        for key, _, rest in facts:
            if rest is None:
                profile.delete(key, sources=sources)
            else:
                profile.set(key, rest, sources=sources)

    context.write(text, forget)
    if entries or not facts:
        context.notify(notice)
    if facts:
        listing = "; ".join(f"{key}: {value}" for key, value, _ in facts)
        context.notify(f"Forgot {pluralize(len(facts), 'fact')} of the profile: {listing}")
    for key, value, _ in similar:
        again = _request_for(_words_of(key), "about", text, command)
        context.notify(f'The profile keeps {key}: {value}. To forget it, say "{again}"')
    counts = [pluralize(len(entries), "memory", "memories")] if entries else []
    counts += [f"{pluralize(len(facts), 'fact')} of the profile"] if facts else []
    why = "nothing like it was found" if notice == _NOTHING_FOUND else "the nearest memory says otherwise"
    told = _FORGOTTEN.format(" and ".join(counts)) if counts else _NOT_FORGOTTEN.format(why)
    told = f"{told} The profile still has a fact like it." if similar else told
    return f"{told} {_MESSAGES_STAY}" if command.is_subject or notice == _NOTHING_FOUND else told


class _Fact(NamedTuple):
    """A fact of a profile; of one that is a list, an item and what is left of the value without it."""

    key: str
    value: str
    rest: str | None = None


def _find_facts(items: Sequence[tuple[str, str]], command: ForgetCommand) -> tuple[list[_Fact], list[_Fact]]:
    """Return the facts of a profile to forget, and others that have the words of the request, or some of them.

    A statement means a fact whose key and value together say exactly that, and a subject one whose key or value is
    exactly that. Of a list, only the item goes that is meant, and nothing if that could be several. A fact that
    contradicts the request is never meant.
    """
    facts, parts, similar = list[_Fact](), list[_Fact](), list[_Fact]()
    for key, value in items:
        fact, listed = _Fact(key, value), _items_of(key, value)
        if contradiction(f"{_words_of(key)}: {value}", command.query, denials=not command.is_subject):
            continue
        if _is_meant(fact, command):
            facts.append(fact)
        elif len(meant := [item for item in listed if _is_meant(item, command)]) == 1:
            parts += meant
        elif _covers(f"{_words_of(key)} {value}", command.query) or (
            not command.is_subject and any(_covers(command.query, each.value) for each in (fact, *listed))
        ):
            similar.append(fact)
    if len(parts) > 1:
        wholes = dict(items)
        similar, parts = [*similar, *(_Fact(part.key, wholes[part.key]) for part in parts)], []
    return [*facts, *parts][:_FOUND_COUNT_MAX], similar


def _items_of(key: str, value: str) -> list[_Fact]:
    """Return the items of a list under a key in the plural."""
    separator = _SEPARATOR.search(value)
    if separator is None or _PLURAL.search(key) is None:
        return []
    items = [item.strip() for item in _SEPARATOR.split(value) if item.strip()]
    rest = value[separator.end() :]
    between = separator.group() + rest[: len(rest) - len(rest.lstrip())]
    rests = (between.join(items[:place] + items[place + 1 :]) for place in range(len(items)))
    return [_Fact(key, item, rest) for item, rest in zip(items, rests, strict=True) if rest]


def _is_meant(fact: _Fact, command: ForgetCommand) -> bool:
    query, key = command.query, " ".join(word for word in words_of(_words_of(fact.key)) if word != "user")
    has_value, has_key = _covers(query, fact.value), _covers(query, key)
    if not _covers(f"{_words_of(fact.key)} {fact.value}", query):
        return False
    if fact.rest is not None and _covers(fact.rest, fact.value):
        return False
    if command.is_subject:
        return has_value or (fact.rest is None and has_key and _covers(_words_of(fact.key), query))
    return has_value and (has_key or not key)


def _covers(text: str, other: str) -> bool:
    """Return whether a text has all words of another, which has some."""
    own = [word for word in short_words(other) or words_of(other) if word not in _EMPTY_WORDS]
    return bool(own) and all(_has_word(text, word) or word in words_of(text) for word in own)


def _words_of(key: str) -> str:
    return key.replace("_", " ").replace("-", " ")


def _find_targets(project: Project, command: ForgetCommand, text: str, asker: str | None) -> tuple[list[Entry], str]:
    """Return the memories to forget and a notice: those that contain every word, or else the most similar memory.

    What another user said is never meant, nor told to the one who asks.
    A subject means all of them, and a statement the one with the fewest other words. A memory that contradicts the
    request, or says something else in the place of one of its words, is never meant. One that is less similar does not
    take its place.
    """
    query = command.query
    hits = _find_own(project, query, asker)
    words = [word for word in short_words(query) if word not in _EMPTY_WORDS]
    matches = [hit.entry for hit in hits if words and all(_has_word(hit.entry.content, word) for word in words)]
    matches = matches or [hit.entry for hit in hits[:1] if hit.score >= _FORGET_SCORE_MIN]
    reasons = {
        entry.id: contradiction(entry.content, query, denials=not command.is_subject)
        or _describe_difference(entry, words)
        for entry in matches
    }
    entries = [entry for entry in matches if reasons[entry.id] is None]
    if entries and not command.is_subject:
        entries = [min(entries, key=lambda entry: len(short_words(entry.content)))]
    if entries:
        contents = "; ".join(entry.content for entry in entries)
        return entries, f"Forgot {pluralize(len(entries), 'memory', 'memories')}: {contents}"
    if not matches:
        return [], _NOTHING_FOUND
    nearest = one_line(matches[0].content)
    is_statement = isinstance(detect_memory_command(f"Forget that {nearest}"), ForgetCommand)
    again = _request_for(nearest, "that" if is_statement else "about", text, command)
    return [], (
        f"Nothing was forgotten: the nearest memory says otherwise ({nearest!r}: {reasons[matches[0].id]}). "
        f'To forget it, say "{again}"'
    )


def _find_own(project: Project, query: str, asker: str | None) -> list[Hit]:
    """Search what a user said and what nobody is named for, the best first."""

    def search(**options: Any) -> list[Hit]:
        hits = project.search(query, top_k=_FOUND_COUNT_MAX, min_importance=0.0, ranking=_FORGET_RANKING, **options)
        return list(hits)

    hits = [hit for hit in search() if hit.entry.speaker is None]
    own = [] if asker is None else search(metadata=said_by(asker))
    return sorted([*hits, *own], key=lambda hit: -hit.score)[:_FOUND_COUNT_MAX]


def _request_for(content: str, link: str, text: str, command: ForgetCommand) -> str:
    """Return a request to forget a content: in English, or as the user's own in Chinese and Japanese."""
    before, query, after = text.partition(command.query)
    is_english = not query or not any(map(is_unspaced, words_of(before + after)))
    return f"Forget {link} {content}" if is_english else f"{before}{content}{after}".strip()


def _has_word(content: str, word: str) -> bool:
    """Return whether a content has a word, in the singular or plural, or within a run without spaces."""
    return any(_is_same(each, word) for each in short_words(content)) or has_inside(content, word)


def _is_same(word: str, other: str) -> bool:
    return word in (other, f"{other}s") or other == f"{word}s"


def _describe_difference(entry: Entry, words: Sequence[str]) -> str | None:
    """Return the words that differ if memory and request each have one that the other lacks: tea is not coffee."""
    lacking = [word for word in words if not _has_word(entry.content, word)]
    own = [word for word in short_words(entry.content) if word not in _EMPTY_WORDS]
    extra = [each for each in own if not any(_is_same(each, word) or has_inside(each, word) for word in words)]
    return f"it has {extra[0]!r} and not {lacking[0]!r}" if extra and lacking else None


_ONESELF: Final = re.compile(r"(?:me|us|myself|ourselves|everything|all)", re.IGNORECASE)
_OWN: Final = re.compile(r"\b(?:my|mine|myself|(?:about|of|on) me)\b", re.IGNORECASE)


def _asks_about_own(text: str) -> bool:
    from refold.index.questions import asked_about  # noqa: PLC0415 - imported on first use

    return bool(asked_about(text)) or _OWN.search(text) is not None


def _find_memories(project: Project, command: RecallCommand, asker: str | None) -> tuple[list[Entry], int]:
    """Return the memories to show (matches of the query, or else the most important first) and their total number.

    To a user who asks about themselves, what others said is not shown.
    """
    if command.query.strip():
        categories = None if command.category is None else [command.category]
        hits = project.search(command.query, top_k=_FOUND_COUNT_MAX, categories=categories, min_importance=0.0)
        entries = [hit.entry for hit in hits]
    else:
        entries = sorted(project.list(category=command.category, status=ACTIVE), key=lambda entry: -entry.importance)
    if asker is not None:
        entries = [entry for entry in entries if entry.speaker in (None, asker)]
    return entries[:_FOUND_COUNT_MAX], len(entries)


def _may_extract(context: HookContext) -> bool:
    settings = context.memory.settings
    return bool(settings.get("memory_enabled") and settings.get("memory_auto_extract"))
