"""Hooks: functions at eight points of a session, called in the order of their registration.

A hook that raises or hangs is logged and named in a notice, and changes nothing else: the next hook runs, and the
session continues. If a provider or a store is out of reach, one line is logged; for any other exception, its traceback.
The hooks of `before_llm` and `before_tool` are guards: if one of them fails or times out, nothing goes to the model or
the tool.
"""

import contextvars
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from copy import deepcopy
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from refold import checks
from refold.agent.attachments import NamedSkill
from refold.agent.parts import one_line
from refold.agent.providers import NoJson, ProviderFailed, Usage
from refold.agent.tools import ToolResult, actor_of, storable_text
from refold.engine.origin import origin_in
from refold.engine.subscriptions import Subscription
from refold.errors import EmbedderFailed, RefoldError, StoreBusy, StoreUnreachable
from refold.event import Recorded
from refold.limits import HOOK_SECONDS_DEFAULT, HOOK_SECONDS_MAX, INJECTED_MEMORIES_COUNT_MAX
from refold.memory.conversation import Conversation
from refold.memory.core import core_of
from refold.memory.memory import Memory
from refold.message import INJECTED_KEY, WITHHELD_KEY, Message, MessageAppended, MessageReplaced
from refold.results import SessionSummary
from refold.views.window import WindowResized

_LOG: Final = logging.getLogger("refold")
SESSION_START: Final = "session_start"
USER_MESSAGE: Final = "user_message"
BEFORE_LLM: Final = "before_llm"
AFTER_LLM: Final = "after_llm"
BEFORE_TOOL: Final = "before_tool"
AFTER_TOOL: Final = "after_tool"
SESSION_END: Final = "session_end"
COMPACTION: Final = "compaction"
_MESSAGE_CHARS: Final = 500  # More of an unexpected error's message is not shown to the user.
# Transient errors whose message says everything: a traceback adds nothing.
_EXPECTED: Final = (ProviderFailed, NoJson, EmbedderFailed, StoreBusy, StoreUnreachable)
POINTS: Final = (SESSION_START, USER_MESSAGE, BEFORE_LLM, AFTER_LLM, BEFORE_TOOL, AFTER_TOOL, SESSION_END, COMPACTION)


# The arguments of hooks and their possible answers.

Write: TypeAlias = Callable[[Sequence[Any]], object]  # A write by a hook, called with the sources to cite.


class HookContext(Struct, frozen=True):
    """The session that a hook is called in: its memory, conversation, project, provider and model."""

    memory: Memory
    conversation: Conversation
    project: str = "default"
    provider_name: str = ""
    model_name: str = ""
    shared: dict[str, Any] = {}  # Data that hooks leave for later hooks of the session; not part of the memory.
    notices: list[str] = []  # What hooks did, and which of them failed, in words for the user.
    calls: tuple[Any, ...] = ()
    """The tool calls that the model requests, at `after_llm`; empty elsewhere."""
    usage: Usage | None = None
    """The token usage of the model's answer, at `after_llm`, if the model reports it."""
    deferred: list[Write] | None = None
    """Writes that wait until the loop has appended the user's message; `None` outside a loop."""
    profile: str = "default"
    """The name of the profile that the session shows and writes to."""
    user_name: str | None = None
    """The name of the user's messages, if they have one."""

    def notify(self, text: str) -> None:
        """Add a notice for the user about what a hook did."""
        self.notices.append(checks.text(text, "text"))

    @property
    def session_id(self) -> str:
        """The id of the conversation."""
        return self.conversation.id

    def write(self, text: str, write: Write) -> None:
        """Perform a write that is derived from a user's message, with that message as its source.

        If the loop is about to append the message, the write waits for it. Otherwise the write happens at once and
        cites the newest message, provided that this is a user message with the given text. If it is not, the write is
        erased along with the conversation only if its event names the conversation.
        """
        memory, (core, _) = self.memory, core_of(self.memory)
        actor = origin_in(core.engine.reader).actor

        @wraps(write)
        def act(sources: Sequence[Any]) -> None:
            with memory.acting(actor, cause=next((message.seq for message in sources), None)):
                write(sources)

        if self.deferred is not None:
            self.deferred.append(act)
            return
        newest = self.conversation.window(last=1)
        act([message for message in newest if message.role == "user" and message.content == text])


class UserMessageResult(Struct, frozen=True):
    """A user's message in another form, or a reason to stop before the model sees it.

    `injected_context` and `skills` (name, text, score) are shown to the model beside the message, and never become the
    user's words: `metadata` is stored with the message, and `memory.context` shows the injected data of the newest one.
    `memories` are ids of memories of the project: they are listed after `injected_context`, and erasing a memory
    removes it there. With `is_withheld`, the message and its answer stay in the history of their conversation, but
    nothing is learnt from them, and no later context shows them once they have left the window.
    """

    modified_message: str | None = None
    stop_reason: str | None = None
    injected_context: str | None = None
    skills: tuple[NamedSkill, ...] = ()
    memories: tuple[str, ...] = ()
    is_withheld: bool = False

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The metadata to append the message with, or `None` if nothing is injected or withheld."""
        withheld = {WITHHELD_KEY: True} if self.is_withheld else {}
        if self.injected_context is None and not self.skills and not self.memories:
            return withheld or None
        injected = {"text": self.injected_context or "", "skills": list(map(list, self.skills))}
        return withheld | {INJECTED_KEY: injected | ({"memories": list(self.memories)} if self.memories else {})}


class BeforeLlmResult(Struct, frozen=True):
    """The messages to send to the model instead, in the provider's format, or a reason not to call it."""

    modified_messages: list[dict[str, Any]] | None = None
    block_reason: str | None = None


class Blocked(RefoldError):
    """A guard blocked the messages to the model, or failed."""


class AfterLlmResult(Struct, frozen=True):
    """A text to replace the model's, or a reason to stop."""

    replacement_text: str | None = None
    block_reason: str | None = None


class BeforeToolResult(Struct, frozen=True):
    """Other arguments for a tool, or a reason to skip it, with `output` as its output for the model."""

    skip: bool = False
    skip_reason: str | None = None
    modified_arguments: dict[str, Any] | None = None
    output: str | None = None


class AfterToolResult(Struct, frozen=True):
    """Text to append to a tool's output, another output, or a reason to stop."""

    injected_context: str | None = None
    replacement_output: str | None = None
    block_reason: str | None = None


_RESULTS: Final = (UserMessageResult, BeforeLlmResult, AfterLlmResult, BeforeToolResult, AfterToolResult)

_SHORT_FORMS: Final[dict[type[object], tuple[type[object], ...]]] = {
    UserMessageResult: (str,),
    BeforeToolResult: (ToolResult,),
}
"""What a hook may return instead of a result: another text for the message, or the tool's result."""

Hook: TypeAlias = Callable[..., Any]
R = TypeVar("R")
S = TypeVar("S", bound=Struct)


class Hooks:
    """The hooks of one memory.

    >>> from refold import Memory
    >>> memory = Memory()
    >>> shout = memory.hooks.register("user_message", lambda context, text: text.upper())
    >>> memory.hooks.fire_user_message(memory.hooks.context(memory.conversation("c")), "hello").modified_message
    'HELLO'
    """

    __slots__ = ("_groups", "_hooks", "_memory", "timeout_seconds")

    def __init__(self, memory: Memory, *, timeout_seconds: float = HOOK_SECONDS_DEFAULT) -> None:
        self._memory = memory
        self._hooks: dict[str, list[Hook]] = {point: [] for point in POINTS}
        self._groups: dict[str, list[tuple[str, Hook]]] = {}
        self.timeout_seconds = timeout_seconds  # Time limit for one hook; the session then goes on without it.

    def __repr__(self) -> str:
        return f"Hooks({', '.join(f'{point}={len(hooks)}' for point, hooks in self._hooks.items() if hooks)})"

    def register(self, point: str, hook: Hook, *, group: str = "") -> Hook:
        """Add a hook, sync or async, after the existing ones of its point, and return it.

        A hook gets a `HookContext` and the subject of its point, and returns a result of `refold.agent` or `None`:

        - `session_start`: `hook(context)`, before the first message of a session
        - `user_message`: `hook(context, text)`; `UserMessageResult`, or a text that replaces the message
        - `before_llm`: `hook(context, messages)`, a guard; `BeforeLlmResult`
        - `after_llm`: `hook(context, text)`, with `context.calls` and `context.usage`; `AfterLlmResult`
        - `before_tool`: `hook(context, name, arguments)`, a guard; `BeforeToolResult`, or a `ToolResult` that replaces
          the call
        - `after_tool`: `hook(context, name, result)`; `AfterToolResult`
        - `session_end`: `hook(context, summary)`
        - `compaction`: `hook(context, evicted)`, after messages have left the window

        `group` names hooks that `unregister_group` removes together. Raises `InvalidInput` for an unknown point, or for
        an object that is not callable.
        """
        if point not in POINTS:
            checks.invalid(f"point is {checks.brief(point)}; give one of {', '.join(POINTS)}")
        if not callable(hook):
            checks.invalid(f"a hook must be a function, not {type(hook).__name__} ({checks.brief(hook)})")
        self._hooks[point].append(hook)
        if group:
            self._groups.setdefault(group, []).append((point, hook))
        return hook

    def unregister(self, point: str, hook: Hook) -> bool:
        """Remove a hook, and return whether it was registered."""
        hooks = self._hooks[point] if point in POINTS else []
        if hook in hooks:
            hooks.remove(hook)
            return True
        return False

    def unregister_group(self, group: str) -> int:
        """Remove the hooks of a group, and return how many were registered."""
        return sum(self.unregister(point, hook) for point, hook in self._groups.pop(group, []))

    def is_registered(self, point: str) -> bool:
        """Return whether a point has any hook."""
        return bool(self._hooks.get(point))

    def context(
        self,
        chat: Conversation,
        *,
        project: str | None = None,
        provider_name: str = "",
        model_name: str = "",
        profile: str = "default",
        user_name: str | None = None,
    ) -> HookContext:
        """Return the context to pass to the hooks of a session."""
        if not isinstance(cast("object", chat), Conversation):
            checks.invalid(f"context takes a Conversation, not {type(chat).__name__} ({checks.brief(chat)})")
        name = project or chat.project or "default"
        profile = checks.name(profile, "profile")
        if user_name is not None and not checks.name(user_name, "user_name").strip():
            checks.invalid(f"user_name is {checks.brief(user_name)}, which is blank; give a name that can be seen")
        return HookContext(
            self._memory, chat, name, provider_name, model_name, {}, [], profile=profile, user_name=user_name
        )

    # The points, in the order of a session.

    def fire_session_start(self, context: HookContext) -> None:
        """Announce the start of a session."""
        self._call_all(SESSION_START, context)

    def fire_user_message(self, context: HookContext, text: str) -> UserMessageResult:
        """Pass a user's message through the hooks, each getting the previous result, until one stops it."""
        return self._chain(
            USER_MESSAGE,
            UserMessageResult(),
            "stop_reason",
            lambda result: (context, text if result.modified_message is None else result.modified_message),
        )

    def fire_deferred(self, context: HookContext, sources: Sequence[Any]) -> None:
        """Perform the hooks' writes that waited for the user's message."""
        while context.deferred:
            self._ask(_with_sources(context.deferred.pop(0), sources), context)

    def fire_before_llm(self, context: HookContext, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages for the model; each hook gets a copy, so changing its argument in place has no effect.

        Raises `Blocked` if a hook gives a reason not to call the model, fails, or times out.
        """
        for hook in tuple(self._hooks[BEFORE_LLM]):
            answer, problem = self._ask(hook, context, deepcopy(messages), takes=(BeforeLlmResult,))
            if problem is not None:
                raise Blocked(f"{problem}, so the model was not asked; mend or unregister it")
            if isinstance(answer, BeforeLlmResult):
                if answer.block_reason is not None:
                    raise Blocked(answer.block_reason)
                if answer.modified_messages is not None:
                    messages = answer.modified_messages
        return messages

    def fire_after_llm(self, context: HookContext, text: str) -> AfterLlmResult:
        """Pass a model's text through the hooks until one blocks it."""
        return self._chain(
            AFTER_LLM,
            AfterLlmResult(),
            "block_reason",
            lambda result: (context, text if result.replacement_text is None else result.replacement_text),
        )

    def fire_before_tool(self, context: HookContext, name: str, arguments: dict[str, Any]) -> BeforeToolResult:
        """Pass a tool call through the hooks until one skips it; a `ToolResult` from a hook replaces the tool's result.

        A hook that fails or times out also skips it.
        """
        return self._chain(
            BEFORE_TOOL,
            BeforeToolResult(),
            "skip",
            lambda result: (
                context,
                name,
                deepcopy(arguments if result.modified_arguments is None else result.modified_arguments),
            ),
            lambda problem: BeforeToolResult(skip=True, skip_reason=f"{problem}, so the call was not made"),
        )

    def fire_after_tool(self, context: HookContext, name: str, result: ToolResult) -> AfterToolResult:
        """Pass a tool's result through the hooks and join the texts that they inject, until one blocks."""
        return self._chain(AFTER_TOOL, AfterToolResult(), "block_reason", lambda _: (context, name, result))

    def fire_session_end(self, context: HookContext, summary: SessionSummary) -> None:
        """Announce the end of a session, with its summary."""
        self._call_all(SESSION_END, context, summary)

    def fire_compaction(self, context: HookContext, evicted: Sequence[Message], *, cause: int | None = None) -> None:
        """Announce the messages that have left the window; without any, no hook is called.

        `cause` is the seq of the event that evicted them.
        """
        if evicted:
            for hook in tuple(self._hooks[COMPACTION]):
                self._ask(hook, context, list(evicted), cause=cause)

    def compacted(self, context: HookContext, seq: int) -> list[Message]:
        """Fire `compaction` with the messages that the durable event at `seq` evicted from the window, and return them.

        If no hook is registered for the point, the event is not read.
        """
        if not self._hooks[COMPACTION]:
            return []
        seq = checks.count(seq, "seq")
        steps = context.conversation.replay(after=seq - 1, until=seq)
        evicted = [message for step in steps for message in step.evicted]
        self.fire_compaction(context, evicted, cause=seq)
        return evicted

    def watch(self, context: HookContext) -> Subscription:
        """Fire `compaction` for every writer of the conversation, after each durable event that evicts messages.

        Returns the subscription, which the caller must close; the hooks are called on its thread.
        """
        stream = context.conversation.place[0]

        def notify(recorded: Recorded) -> None:
            if recorded.stamp.stream == stream and isinstance(
                recorded.event, (MessageAppended, MessageReplaced, WindowResized)
            ):
                self.compacted(context, recorded.stamp.seq)

        return self._memory.subscribe(notify)

    # Calling hooks.

    def _call_all(self, point: str, context: HookContext, *arguments: Any) -> None:
        for hook in tuple(self._hooks[point]):
            self._ask(hook, context, *arguments)

    def _chain(
        self,
        point: str,
        result: S,
        stop: str,
        arguments: Callable[[S], tuple[Any, ...]],
        on_failure: Callable[[str], S] | None = None,
    ) -> S:
        """Merge the answers of a point's hooks into a result, until one of them sets the field `stop`.

        For a guard, `on_failure` makes the answer of a hook that gave none.
        """
        takes = (type(result), *_SHORT_FORMS.get(type(result), ()))
        for hook in tuple(self._hooks[point]):
            answer, problem = self._ask(hook, *arguments(result), takes=takes)
            if problem is not None and on_failure is not None:
                answer = on_failure(problem)
            result = _merge(result, answer)
            if getattr(result, stop) not in (None, False):
                break
        return result

    def _ask(
        self,
        hook: Hook,
        context: HookContext,
        *arguments: Any,
        cause: int | None = None,
        takes: tuple[type[object], ...] = (),
    ) -> tuple[Any, str | None]:
        """Call a hook; return its answer, or the problem if it raised, timed out, or gave an answer no log can hold.

        With `takes`, an answer of any other type also counts as a problem: a guard that returns `False` means to
        refuse. A problem is logged, and named in a notice.
        """
        try:
            return self._answer(hook, context, arguments, cause, takes), None
        except _HookFailed as failure:
            context.notify(storable_text(f"{failure.problem}{failure.details}"))
            return None, failure.problem

    def _answer(
        self,
        hook: Hook,
        context: HookContext,
        arguments: tuple[Any, ...],
        cause: int | None,
        takes: tuple[type[object], ...],
    ) -> Any:
        seconds = cast("object", self.timeout_seconds)
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 < seconds <= HOOK_SECONDS_MAX:
            checks.invalid(f"timeout_seconds is {checks.brief(seconds)}; give a number up to {HOOK_SECONDS_MAX}")
        name, chat_id = _name_of(hook), context.session_id
        with self._memory.acting(actor_of("hook", getattr(hook, "__name__", type(hook).__name__)), cause=cause):
            future = _start(hook, (context, *arguments))
        try:
            error = future.exception(seconds)
        except TimeoutError:
            _LOG.warning("hook %s took longer than %s s in conversation %r; it is left behind", name, seconds, chat_id)
            raise _HookFailed(f"the hook {name} took longer than {seconds} s", "; it was left behind") from None
        if error is not None:
            problem = f"the hook {name} raised {type(error).__name__}"
            if isinstance(error, _EXPECTED):
                reason = one_line("; ".join((str(error), *getattr(error, "__notes__", ()))))
                _LOG.warning("hook %s failed in conversation %r: %s", name, chat_id, reason)
                raise _HookFailed(problem, f": {reason}")
            _LOG.warning("hook %s raised in conversation %r", name, chat_id, exc_info=error)
            raise _HookFailed(problem, f"{_message_of(error)}; the log has its traceback")
        answer = future.result()
        try:
            if takes and answer is not None and not isinstance(answer, takes):
                checks.invalid(f"it is {checks.brief(answer)}; return None, or a {takes[0].__name__}")
            _check_answer(answer)
        except (RefoldError, msgspec.MsgspecError, UnicodeError) as unusable:
            _LOG.warning(
                "hook %s returned what cannot be used in conversation %r and counts for nothing: %s",
                *(name, chat_id, unusable),
            )
            raise _HookFailed(f"the hook {name} returned what cannot be used", f": {unusable}") from None
        return answer


def _message_of(error: BaseException) -> str:
    """Return the message of an error after a colon, in one line and without secrets; empty if it has none."""
    from refold.agent.secrets import mask_secrets  # noqa: PLC0415 - loaded only for errors

    message = one_line(mask_secrets(str(error)[:_MESSAGE_CHARS]))
    return f": {message}" if message else ""


class _HookFailed(Exception):
    """A hook gave no answer; `details` are what the user should read besides the problem."""

    def __init__(self, problem: str, details: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.details = details


def _name_of(hook: Hook) -> str:
    """Return a hook's name where it was defined, or its whole qualified name if it is a lambda."""
    path: str = getattr(hook, "__qualname__", type(hook).__name__)
    name = path.rpartition("<locals>.")[2]
    return path if name == "<lambda>" else name


def _with_sources(write: Write, sources: Sequence[Any]) -> Hook:
    """Wrap a deferred write as a hook that calls it with its sources."""

    @wraps(write)
    def call(_: HookContext) -> None:
        write(sources)

    return call


def _check_answer(answer: object) -> None:
    if isinstance(answer, str):
        checks.text(answer, "the text")
    elif isinstance(answer, ToolResult):
        checks.text(answer.text, "the output")
    elif isinstance(answer, _RESULTS):
        fields = asdict(answer)
        msgspec.convert(fields, type(answer))
        for field, value in fields.items():
            if isinstance(value, str):
                checks.text(value, field)
        if len(fields.get("memories", ())) > INJECTED_MEMORIES_COUNT_MAX:
            checks.invalid(f"it has {len(fields['memories']):,} memories, over {INJECTED_MEMORIES_COUNT_MAX = :,}")
        for memory_id in fields.get("memories", ()):
            checks.text(memory_id, "the id of a memory")
        for name, body, _ in fields.get("skills", ()):
            checks.text(name, "a skill's name")
            checks.text(body, "a skill's text")


def _merge(result: S, answer: object) -> S:
    if isinstance(result, UserMessageResult) and isinstance(answer, str):
        answer = UserMessageResult(answer)
    if isinstance(result, BeforeToolResult) and isinstance(answer, ToolResult):
        answer = BeforeToolResult(skip=True, output=answer.text)
    if not isinstance(answer, type(result)):
        return result
    fields = {field: value for field, value in asdict(answer).items() if value not in (None, False)}
    injected = getattr(result, "injected_context", None)
    if injected and fields.get("injected_context"):
        fields["injected_context"] = f"{injected}\n{fields['injected_context']}"
    for field in fields.keys() & {"skills", "memories"}:
        fields[field] = (*getattr(result, field), *fields[field])
    return replace(result, **fields)


def _start(hook: Hook, arguments: tuple[Any, ...]) -> Future[Any]:
    """Run a hook on a daemon thread."""
    future = Future[Any]()
    inherited = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(inherited.run(_finish, hook, arguments))
        except BaseException as error:  # noqa: BLE001 - the future carries it
            future.set_exception(error)

    threading.Thread(target=run, name="refold-hook", daemon=True).start()
    return future


def _finish(hook: Hook, arguments: tuple[Any, ...]) -> Any:
    value = hook(*arguments)
    if not inspect.isawaitable(value):
        return value
    import asyncio  # noqa: PLC0415 - loaded only for async hooks

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


# Hooks for asyncio: each point is awaited, and hooks do not block other tasks.

P = ParamSpec("P")


def _make_async(
    verb: Callable[Concatenate[Hooks, P], R],
) -> Callable[Concatenate["AsyncHooks", P], Coroutine[Any, Any, R]]:
    @wraps(verb)
    async def fire(self: "AsyncHooks", /, *arguments: P.args, **options: P.kwargs) -> R:
        # On its own thread, not on the one that writes for event loops: a hook might wait for its own writes.
        import asyncio  # noqa: PLC0415 - loaded only if used

        return await asyncio.to_thread(verb, self.plain, *arguments, **options)

    return fire


class AsyncHooks:
    """The hooks of one memory, for asyncio; hooks registered with the plain handle apply here, too.

    >>> import asyncio
    >>> from refold import Memory
    >>> memory = Memory()
    >>> shout = memory.hooks.register("user_message", lambda context, text: text.upper())
    >>> context = memory.hooks.context(memory.conversation("c"))
    >>> asyncio.run(memory.aio.hooks.fire_user_message(context, "hello")).modified_message
    'HELLO'
    """

    __slots__ = ("plain",)

    def __init__(self, plain: Hooks) -> None:
        self.plain = plain  # The plain handle, for registering hooks and making contexts.

    fire_session_start = _make_async(Hooks.fire_session_start)
    fire_user_message = _make_async(Hooks.fire_user_message)
    fire_deferred = _make_async(Hooks.fire_deferred)
    fire_before_llm = _make_async(Hooks.fire_before_llm)
    fire_after_llm = _make_async(Hooks.fire_after_llm)
    fire_before_tool = _make_async(Hooks.fire_before_tool)
    fire_after_tool = _make_async(Hooks.fire_after_tool)
    fire_session_end = _make_async(Hooks.fire_session_end)
    fire_compaction = _make_async(Hooks.fire_compaction)
    compacted = _make_async(Hooks.compacted)

    def __repr__(self) -> str:
        return f"Async{self.plain!r}"


def async_hooks_of(memory: Memory) -> AsyncHooks:
    """Return the hooks of a memory for asyncio."""
    return AsyncHooks(memory.hooks)
