"""Hooks of the memory itself: load memories, follow the commands of users, inject skills, extract at the end."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from refold import checks
from refold.agent.extraction import extract, secret_in, unread
from refold.agent.hooks import (
    COMPACTION,
    SESSION_END,
    SESSION_START,
    USER_MESSAGE,
    HookContext,
    Hooks,
    UserMessageResult,
)
from refold.agent.providers import JsonProvider
from refold.memory.memory import Memory
from refold.message import Message
from refold.results import SessionSummary

# Memory commands: a user's message that asks to remember, to forget or to look up, found without a model.
#
# A message is a command only if it begins with one of the phrases below. Forgetting comes before recalling, and
# recalling before remembering, so that "stop remembering" is never taken for "remember".

COMMAND_IMPORTANCE: Final = 0.95  # What a user asks to remember matters more than what a model finds out.


class RememberCommand(Struct, frozen=True, tag="remember"):
    """The user asks to remember something, with this importance."""

    content: str
    importance: float = COMMAND_IMPORTANCE


class ForgetCommand(Struct, frozen=True, tag="forget"):
    """The user asks to forget the memory that this query finds."""

    query: str


class RecallCommand(Struct, frozen=True, tag="query"):
    """The user asks what is remembered; where nothing is named, the query is the question's own words."""

    query: str


MemoryCommand: TypeAlias = RememberCommand | ForgetCommand | RecallCommand

_FORGET: Final = (
    *("forget that", "forget about", "stop remembering", "delete memory about", "delete the memory about"),
    *("delete memories about", "delete the memories about", "remove memory about", "remove the memory about"),
    *("remove memories about", "remove the memories about"),
)
# "What do you know about" is not here: it asks the model about the world more often than about the user.
_QUERY: Final = (
    *("what do you remember", "what do you remember about", "what are my preferences", "do you remember"),
    *("show me what you remember", "list my memories", "what memories do you have"),
)
_REMEMBER: Final = (
    *("remember that", "remember:", "remember this:", "note that", "note:", "keep in mind that", "keep in mind:"),
    *("don't forget that", "don't forget:"),
)
# A rule is stored with its verb: "always use pnpm" is no rule without "always use".
_RULES: Final = ("always", "always use", "never", "never do", "never use")
_STOPS: Final = ".?!\u3002\uff1f\uff01\uff0e\uff61"
_COLONS: Final = ":\uff1a"
_SEPARATORS: Final = f"{_COLONS},\uff0c"
_GAP: Final = re.compile(rf"\A[\s{_SEPARATORS}]+")
_DISMISSAL: Final = re.compile(r"never\s*mind\b", re.IGNORECASE)


def _pattern(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """Compile a match of the longest of the phrases at the beginning of a text, whatever spaces are in it."""
    shapes: list[str] = []
    for phrase in sorted(phrases, key=len, reverse=True):
        words = r"\s+".join(re.escape(word) for word in phrase.removesuffix(":").split())
        end = rf"\s*[{_COLONS}]" if phrase.endswith(":") else rf"(?=[\s{_SEPARATORS}{_STOPS}]|$)"
        shapes.append(words.replace("'", "['\u2019]") + end)
    return re.compile("|".join(shapes), re.IGNORECASE)


# The phrases of each command, and the function of the phrase, the text behind it and the whole text that makes it.
_COMMANDS: Final[tuple[tuple[re.Pattern[str], Callable[[str, str, str], MemoryCommand | None]], ...]] = (
    (_pattern(_FORGET), lambda _, payload, __: ForgetCommand(payload) if payload else None),
    (_pattern(_QUERY), lambda phrase, payload, _: RecallCommand(payload or " ".join(phrase.lower().split()))),
    (_pattern(_REMEMBER), lambda _, payload, __: RememberCommand(payload) if payload else None),
    (
        _pattern(_RULES),
        lambda _, payload, text: RememberCommand(text) if payload and not _DISMISSAL.match(text) else None,
    ),
)


def detect_memory_command(text: str) -> MemoryCommand | None:
    """Parse a message as a memory command, `None` if it is none.

    The message has to begin with the phrase, in any case and after any spaces; behind a polite word or a quotation mark
    it is no command. The text behind the phrase loses the spaces and full stops at its end. Raises `InvalidInput` if
    the message is no text, `LimitExceeded` over `VALUE_BYTES_MAX`.

    >>> detect_memory_command("Remember that the tests need Docker.")
    RememberCommand(content='the tests need Docker', importance=0.95)
    >>> detect_memory_command("always use pnpm")
    RememberCommand(content='always use pnpm', importance=0.95)
    >>> detect_memory_command("What are my preferences?")
    RecallCommand(query='what are my preferences')
    """
    whole = checks.text(text, "text").lstrip()
    end = len(whole)
    while end and (whole[end - 1].isspace() or whole[end - 1] in _STOPS):
        end -= 1
    whole = whole[:end]
    for pattern, command in _COMMANDS:
        match = pattern.match(whole)
        if match is not None:
            return command(match.group(), _GAP.sub("", whole[match.end() :], count=1), whole)
    return None


_FORGET_SCORE_MIN: Final = 0.45  # A user who asks to forget means no memory that is less similar.

# A function that puts skills before a user's message: the new message, or `None` where no skill fits.
SkillInjector: TypeAlias = Callable[[HookContext, str], str | None]


class SkillSource(Protocol):
    """A handle on skills that registers hooks of its own."""

    def register_hooks(self, hooks: Hooks, provider: JsonProvider | None = None) -> None:
        """Register hooks that inject skills and restrict tools to theirs; learn new ones with a provider."""
        ...


def default_hooks(
    memory: Memory, skills: SkillSource | SkillInjector | None = None, provider: JsonProvider | None = None
) -> Hooks:
    """Register the hooks of the memory on `memory.hooks` and return that.

    At the start of a session memories are loaded into `context.shared["memories"]`. A user's message that is a memory
    command is followed. `skills` puts skills before any message: a handle such as `memory.skills` those that it
    selects, which is recorded; a function returns the new message. With a handle, tools that those skills do not allow
    are refused until the next message. With a `provider`, memories are extracted at the end of a session and from
    evicted messages, and a handle learns a skill of a session that went well, if `skills_auto_generate` is set. The
    settings of the store turn each of them off.
    """

    def extract_at_end(context: HookContext, summary: SessionSummary) -> None:
        if provider is not None and _may_extract(context):
            extract(context.conversation, provider, memory=context.memory, summary=summary, project=context.project)

    def extract_evicted(context: HookContext, evicted: Sequence[Message]) -> None:
        if provider is not None and _may_extract(context) and evicted:
            # Messages of a failed extraction and pinned ones are read too: no later extraction comes back to them.
            until = max(message.seq for message in evicted)
            messages = [message for message in unread(context.conversation) if message.seq <= until]
            extract(context.conversation, provider, memory=context.memory, messages=messages, project=context.project)

    hooks: Hooks = memory.hooks
    hooks.register(SESSION_START, load_memories)
    hooks.register(USER_MESSAGE, obey_command)
    if callable(skills):
        injector = skills

        def inject_skills(context: HookContext, text: str) -> UserMessageResult | None:
            message = injector(context, text) if context.memory.settings.get("skills_enabled") else None
            return None if message is None else UserMessageResult(message)

        hooks.register(USER_MESSAGE, inject_skills)
    elif skills is not None:
        skills.register_hooks(hooks, provider)
    if provider is not None:
        hooks.register(SESSION_END, extract_at_end)
        hooks.register(COMPACTION, extract_evicted)
    return hooks


def load_memories(context: HookContext) -> None:
    """Load the most important memories of the project for later hooks."""
    count = int(context.memory.settings.get("memory_max_injected"))
    if context.memory.settings.get("memory_enabled") and count:
        hits = context.memory.project(context.project).search("", top_k=count)
        context.shared["memories"] = [hit.entry for hit in hits]


def obey_command(context: HookContext, text: str) -> None:
    """Remember or forget what a user's message commands; a secret is not remembered."""
    if not context.memory.settings.get("memory_enabled"):
        return
    command = detect_memory_command(text)
    project = context.memory.project(context.project)
    if isinstance(command, RememberCommand) and secret_in(command.content) is None:
        content, importance, session = command.content, command.importance, context.session_id
        context.write(
            text,
            lambda sources: project.upsert(
                content, category="preference", importance=importance, source=session, sources=sources
            ),
        )
    elif isinstance(command, ForgetCommand):
        hits = project.search(command.query, top_k=1, min_importance=0.0)
        ids = [hit.entry.id for hit in hits if hit.score >= _FORGET_SCORE_MIN]

        def forget(sources: Sequence[Any]) -> None:
            for memory_id in ids:
                project.delete(memory_id, sources=sources)

        context.write(text, forget)


def _may_extract(context: HookContext) -> bool:
    settings = context.memory.settings
    return bool(settings.get("memory_enabled") and settings.get("memory_auto_extract"))
