"""Hooks of the memory itself: load memories, obey commands of users, inject skills, extract at the end."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from refold import checks
from refold.agent import context as agent_context
from refold.agent import hooks as agent_hooks
from refold.agent.extraction import extract, secret_in, unread
from refold.agent.hooks import BeforeToolResult, HookContext, Hooks, UserMessageResult
from refold.agent.providers import JsonProvider
from refold.limits import SOURCES_COUNT_MAX
from refold.memory.memory import Memory
from refold.message import Message
from refold.results import SessionSummary
from refold.skills import RestrictedRegistry, Skills
from refold.views.work import WORK_EVENTS, ToolExecuted

# Explicit memory commands: what a user's message asks to remember, to forget or to look up.
#
# Pure, and without a model: a message is a command only if it begins with one of the phrases below. Forgetting is
# looked for before asking, and asking before remembering, so that "stop remembering" is never taken for "remember".

COMMAND_IMPORTANCE: Final = 0.95
"""What a user says to remember matters more than what was found out."""


class RememberCommand(Struct, frozen=True, tag="remember"):
    """The user asks to remember something; it is stored with this importance."""

    content: str
    importance: float = COMMAND_IMPORTANCE


class ForgetCommand(Struct, frozen=True, tag="forget"):
    """The user asks to forget what this query finds."""

    query: str


class RecallCommand(Struct, frozen=True, tag="query"):
    """The user asks what is remembered; where nothing is named, the query is the question's own words."""

    query: str


MemoryCommand: TypeAlias = RememberCommand | ForgetCommand | RecallCommand

_FORGET: Final = (
    "forget that",
    "forget about",
    "stop remembering",
    "delete memory about",
    "delete the memory about",
    "delete memories about",
    "delete the memories about",
    "remove memory about",
    "remove the memory about",
    "remove memories about",
    "remove the memories about",
)
# "What do you know about" is not here: it asks the model about the world more often than about the user.
_QUERY: Final = (
    "what do you remember",
    "what do you remember about",
    "what are my preferences",
    "do you remember",
    "show me what you remember",
    "list my memories",
    "what memories do you have",
)
_REMEMBER: Final = (
    "remember that",
    "remember:",
    "remember this:",
    "note that",
    "note:",
    "keep in mind that",
    "keep in mind:",
    "don't forget that",
    "don't forget:",
)
# A rule is kept with its verb: "always use pnpm" is no rule without "always use".
_RULES: Final = ("always", "always use", "never", "never do", "never use")

_STOPS: Final = ".?!\u3002\uff1f\uff01\uff0e\uff61"
_COLONS: Final = ":\uff1a"
_SEPARATORS: Final = f"{_COLONS},\uff0c"
_GAP: Final = re.compile(rf"\A[\s{_SEPARATORS}]+")
_DISMISSAL: Final = re.compile(r"never\s*mind\b", re.IGNORECASE)


def _longest(phrases: tuple[str, ...]) -> str:
    """Return what matches the longest of the phrases at the beginning of a text, however its words are spaced."""
    return "|".join(map(_phrase, sorted(phrases, key=len, reverse=True)))


def _phrase(phrase: str) -> str:
    words = r"\s+".join(re.escape(word) for word in phrase.removesuffix(":").split())
    ends = rf"\s*[{_COLONS}]" if phrase.endswith(":") else rf"(?=[\s{_SEPARATORS}{_STOPS}]|$)"
    return words.replace("'", "['\u2019]") + ends


def _remembered(_: str, payload: str, __: str) -> RememberCommand | None:
    return RememberCommand(payload) if payload else None


def _ruled(_: str, payload: str, whole: str) -> RememberCommand | None:
    return RememberCommand(whole) if payload and not _DISMISSAL.match(whole) else None


def _forgotten(_: str, payload: str, __: str) -> ForgetCommand | None:
    return ForgetCommand(payload) if payload else None


def _asked(phrase: str, payload: str, _: str) -> RecallCommand:
    return RecallCommand(payload or " ".join(phrase.lower().split()))


_KINDS: Final[tuple[tuple[re.Pattern[str], Callable[[str, str, str], MemoryCommand | None]], ...]] = (
    (re.compile(_longest(_FORGET), re.IGNORECASE), _forgotten),
    (re.compile(_longest(_QUERY), re.IGNORECASE), _asked),
    (re.compile(_longest(_REMEMBER), re.IGNORECASE), _remembered),
    (re.compile(_longest(_RULES), re.IGNORECASE), _ruled),
)


def detect_memory_command(text: str) -> MemoryCommand | None:
    """Return what a message asks of the memory, ``None`` if it is no command.

    The message has to begin with the phrase, in any case and after any spaces; a polite word or a quotation mark before
    it makes it something that is said, not asked. What follows is returned without the spaces and full stops at its
    end. Raises ``InvalidInput`` if the message is no text, ``LimitExceeded`` over
    ``VALUE_BYTES_MAX``.

    >>> detect_memory_command("Remember that the tests need Docker.")
    RememberCommand(content='the tests need Docker', importance=0.95)
    >>> detect_memory_command("always use pnpm")
    RememberCommand(content='always use pnpm', importance=0.95)
    >>> detect_memory_command("What are my preferences?")
    RecallCommand(query='what are my preferences')
    """
    whole = _ended(checks.text(text, "text").lstrip())
    for pattern, command in _KINDS:
        found = pattern.match(whole)
        if found is not None:
            payload = _GAP.sub("", whole[found.end() :], count=1)
            return command(found.group(), payload, whole)
    return None


def _ended(text: str) -> str:
    """Return a text without the spaces and full stops at its end."""
    end = len(text)
    while end and (text[end - 1].isspace() or text[end - 1] in _STOPS):
        end -= 1
    return text[:end]


_FORGOTTEN_SCORE_MIN: Final = 0.45
"""What a user asks to forget has to be found at least so well; the rest is not what was meant."""

_TOOLS: Final = "tools of the active skills"
"""Where the hooks of a session leave the registry that its skills restrict."""

_ARGUMENTS_CHARS: Final = 200
"""How much of a call's arguments a model is shown that makes a skill of them."""

SkillInjector = Callable[[HookContext, str], str | None]
"""What puts skills before a user's message: the new message, or ``None`` where no skill fits."""


def default_hooks(
    memory: Memory, skills: Skills | SkillInjector | None = None, provider: JsonProvider | None = None
) -> Hooks:
    """Register the hooks of the memory on ``memory.hooks`` and return that.

    At the start of a session memories are loaded into ``context.shared["memories"]``. A user's message that is a memory
    command is obeyed. ``skills`` puts skills before any message: a handle those that it selects, which is recorded, a
    function of your own what it makes of the message. Behind a handle, tools that those skills do not allow are
    refused until the next message. With a ``provider``, memories are extracted at the end of a session and from what
    compaction pushed out, and a handle learns a skill of a session that went well, if ``skills_auto_generate`` is set.
    The settings of the store turn each of them off.
    """
    hooks = memory.hooks
    hooks.register(agent_hooks.SESSION_START, load_memories)
    hooks.register(agent_hooks.USER_MESSAGE, obey_command)
    if skills is not None:
        injector = _selecting(skills) if isinstance(skills, Skills) else skills
        hooks.register(agent_hooks.USER_MESSAGE, _injecting(injector))
    if isinstance(skills, Skills):
        hooks.register(agent_hooks.BEFORE_TOOL, refuse_tool)
        if provider is not None:
            hooks.register(agent_hooks.SESSION_END, _generating(skills, provider))
    if provider is not None:
        hooks.register(agent_hooks.SESSION_END, _extracting_at_end(provider))
        hooks.register(agent_hooks.COMPACTION, _extracting_evicted(provider))
    return hooks


def load_memories(context: HookContext) -> None:
    """Leave the most important memories of the project for later hooks."""
    count = int(context.memory.settings.get("memory_max_injected"))
    if context.memory.settings.get("memory_enabled") and count:
        hits = context.memory.project(context.project).search("", top_k=count)
        context.shared["memories"] = [hit.entry for hit in hits]


def obey_command(context: HookContext, text: str) -> None:
    """Remember or forget what a user's message asks for in so many words; a secret is not remembered."""
    if not context.memory.settings.get("memory_enabled"):
        return
    command = detect_memory_command(text)
    project = context.memory.project(context.project)
    if isinstance(command, RememberCommand) and secret_in(command.content) is None:
        content, weight, session = command.content, command.importance, context.session_id

        def remember(sources: Sequence[Any]) -> None:
            project.upsert(content, category="preference", importance=weight, source=session, sources=sources)

        context.write(text, remember)
    elif isinstance(command, ForgetCommand):
        hits = project.search(command.query, top_k=1, min_importance=0.0)
        found = [hit.entry.id for hit in hits if hit.score >= _FORGOTTEN_SCORE_MIN]

        def forget(sources: Sequence[Any]) -> None:
            for memory_id in found:
                project.delete(memory_id, sources=sources)

        context.write(text, forget)


def _selecting(skills: Skills) -> SkillInjector:
    def select(context: HookContext, text: str) -> str | None:
        chars = int(context.memory.settings.get("skills_max_injected_chars"))
        context.shared.pop(_TOOLS, None)
        chosen = skills.select(text) if chars else ()
        if not chosen:
            return None
        context.write(text, lambda sources: skills.choose(text, conversation=context.session_id, sources=sources))
        allowed = skills.allowed_tools(match.skill.name for match in chosen)
        context.shared[_TOOLS] = RestrictedRegistry(context.memory.tools, allowed)
        shown = agent_context.skills_text([(match.skill.name, match.body) for match in chosen], chars)
        return f"{shown}\n\n{text}"

    return select


def _injecting(skills: SkillInjector) -> Callable[[HookContext, str], UserMessageResult | None]:
    def inject_skills(context: HookContext, text: str) -> UserMessageResult | None:
        if not context.memory.settings.get("skills_enabled"):
            context.shared.pop(_TOOLS, None)
            return None
        changed = skills(context, text)
        return None if changed is None else UserMessageResult(changed)

    return inject_skills


def refuse_tool(context: HookContext, name: str, arguments: dict[str, Any]) -> BeforeToolResult | None:  # noqa: ARG001
    """Refuse a tool that the skills before the last message do not allow."""
    tools: RestrictedRegistry | None = context.shared.get(_TOOLS)
    if tools is None or tools.permits(name):
        return None
    return BeforeToolResult(skip=True, skip_reason=tools.refused(name).message)


def _generating(skills: Skills, provider: JsonProvider) -> Callable[[HookContext, SessionSummary], None]:
    def generate_at_end(context: HookContext, summary: SessionSummary) -> None:
        settings, session = context.memory.settings, context.conversation.session
        if not (settings.get("skills_enabled") and settings.get("skills_auto_generate")):
            return
        done = [(event, stamp.seq) for event, stamp in context.conversation.events() if isinstance(event, WORK_EVENTS)]
        made = [event for event, _ in done if isinstance(event, ToolExecuted)]
        skills.maybe_generate(
            provider,
            summary=session.to_text(),
            tool_calls=[(event.name, event.arguments.decode()[:_ARGUMENTS_CHARS]) for event in made],
            session=context.session_id,
            succeeded=summary.success,
            sources=[seq for _, seq in done][-SOURCES_COUNT_MAX:],
        )

    return generate_at_end


def _may_extract(context: HookContext) -> bool:
    settings = context.memory.settings
    return bool(settings.get("memory_enabled") and settings.get("memory_auto_extract"))


def _extracting_at_end(provider: JsonProvider) -> Callable[[HookContext, SessionSummary], None]:
    def extract_at_end(context: HookContext, summary: SessionSummary) -> None:
        if _may_extract(context):
            extract(context.conversation, provider, memory=context.memory, summary=summary, project=context.project)

    return extract_at_end


def _extracting_evicted(provider: JsonProvider) -> Callable[[HookContext, Sequence[Message]], None]:
    def extract_evicted(context: HookContext, evicted: Sequence[Message]) -> None:
        if _may_extract(context) and evicted:
            # What an earlier extraction failed at, and what is pinned, is read too: nobody comes back to it.
            until = max(message.seq for message in evicted)
            messages = [message for message in unread(context.conversation) if message.seq <= until]
            extract(context.conversation, provider, memory=context.memory, messages=messages, project=context.project)

    return extract_evicted
