"""Hooks: functions at eight points of a session, called in the order of their registration.

An error in a hook, or one that hangs, is logged and changes nothing: the next hook runs, and the session goes on.
"""

import contextvars
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from copy import deepcopy
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.agent.tools import ToolResult
from refold.errors import RefoldError
from refold.limits import HOOK_SECONDS_DEFAULT, HOOK_SECONDS_MAX
from refold.memory.conversation import Conversation
from refold.memory.memory import Memory
from refold.message import Message, MessageAppended
from refold.results import SessionSummary
from refold.views.window import WindowResized

if TYPE_CHECKING:
    from refold.engine.states import Recorded
    from refold.engine.subscriptions import Subscription


# What hooks are told and what they may answer: the eight points of a session, and the results of each.

SESSION_START: Final = "session_start"
USER_MESSAGE: Final = "user_message"
BEFORE_LLM: Final = "before_llm"
AFTER_LLM: Final = "after_llm"
BEFORE_TOOL: Final = "before_tool"
AFTER_TOOL: Final = "after_tool"
SESSION_END: Final = "session_end"
COMPACTION: Final = "compaction"

POINTS: Final = (
    SESSION_START,
    USER_MESSAGE,
    BEFORE_LLM,
    AFTER_LLM,
    BEFORE_TOOL,
    AFTER_TOOL,
    SESSION_END,
    COMPACTION,
)


Write: TypeAlias = Callable[[Sequence[Any]], object]
"""A write of a hook, called with the sources to cite."""


class HookContext(Struct, frozen=True):
    """What every hook is told: the memory and the conversation, the project, and who the model is."""

    memory: Memory
    conversation: Conversation
    project: str = "default"
    provider_name: str = ""
    model_name: str = ""
    shared: dict[str, Any] = {}
    """What hooks leave for later hooks of the same session; no part of the memory."""
    deferred: list[Write] | None = None
    """Writes that wait until the loop has appended the user's message; ``None`` where no loop does."""

    @property
    def session_id(self) -> str:
        """The conversation's id."""
        return self.conversation.id

    def write(self, text: str, write: Write) -> None:
        """Do a write that is derived from a user's message, with it as the source.

        It waits for the message where the loop is about to append that. Elsewhere it is done at once, and cites the
        newest message if that is the user's and says so; otherwise only an event that names the conversation itself
        goes with it.
        """
        if self.deferred is not None:
            self.deferred.append(write)
            return
        newest = self.conversation.window(last=1)
        write([message for message in newest if message.role == "user" and message.content == text])


class UserMessageResult(Struct, frozen=True):
    """A user's message in another form, or a reason to stop before the model sees it."""

    modified_message: str | None = None
    stop_reason: str | None = None


class BeforeLlmResult(Struct, frozen=True):
    """The messages that the model gets instead, in the form that the provider takes."""

    modified_messages: list[dict[str, Any]] | None = None


class AfterLlmResult(Struct, frozen=True):
    """Another text in the place of the model's, or a reason to stop."""

    replacement_text: str | None = None
    block_reason: str | None = None


class BeforeToolResult(Struct, frozen=True):
    """Other arguments for a tool, or a reason to skip it; ``output`` is then what the model gets."""

    skip: bool = False
    skip_reason: str | None = None
    modified_arguments: dict[str, Any] | None = None
    output: str | None = None


class AfterToolResult(Struct, frozen=True):
    """More for the model to read behind a tool's output, another output, or a reason to stop."""

    injected_context: str | None = None
    replacement_output: str | None = None
    block_reason: str | None = None


_LOG: Final = logging.getLogger("refold")

_RESULTS: Final = (UserMessageResult, BeforeLlmResult, AfterLlmResult, BeforeToolResult, AfterToolResult)

Hook = Callable[..., Any]
R = TypeVar("R")


class Hooks:
    """The hooks of one memory.

    >>> from refold import Memory
    >>> memory = Memory()
    >>> shout = memory.hooks.register("user_message", lambda context, text: text.upper())
    >>> memory.hooks.fire_user_message(memory.hooks.context(memory.conversation("c")), "hello").modified_message
    'HELLO'
    """

    __slots__ = ("_hooks", "_memory", "timeout_seconds")

    def __init__(self, memory: Memory, *, timeout_seconds: float = HOOK_SECONDS_DEFAULT) -> None:
        self._memory = memory
        self._hooks: dict[str, list[Hook]] = {point: [] for point in POINTS}
        self.timeout_seconds = timeout_seconds
        """How long one hook may take before the session goes on without it."""

    def __repr__(self) -> str:
        """Return the hooks with their counts."""
        return f"Hooks({', '.join(f'{point}={len(hooks)}' for point, hooks in self._hooks.items() if hooks)})"

    def register(self, point: str, hook: Hook) -> Hook:
        """Add a hook, sync or async, behind those of its point; return it.

        ``point`` is session_start, user_message, before_llm, after_llm, before_tool, after_tool, session_end or
        compaction. A hook gets a ``HookContext`` and what the point is about; what it returns is one of the results of
        ``refold.agent.hooks``, or ``None``. Raises ``InvalidInput`` for another point, or for what cannot be called.
        """
        if point not in POINTS:
            checks.invalid(f"point is {checks.shown(point)}; give one of {', '.join(POINTS)}")
        if not callable(hook):
            checks.invalid(f"a hook must be a function, not {type(hook).__name__} ({checks.shown(hook)})")
        self._hooks[point].append(hook)
        return hook

    def unregister(self, point: str, hook: Hook) -> bool:
        """Remove a hook; return whether it was there."""
        hooks = self._hooks[point] if point in POINTS else []
        if hook in hooks:
            hooks.remove(hook)
            return True
        return False

    def context(
        self, chat: Conversation, *, project: str | None = None, provider_name: str = "", model_name: str = ""
    ) -> HookContext:
        """Return what the hooks of a session are told."""
        if not isinstance(cast("object", chat), Conversation):
            checks.invalid(f"context takes a Conversation, not {type(chat).__name__} ({checks.shown(chat)})")
        name = project or chat.project or "default"
        return HookContext(self._memory, chat, name, provider_name, model_name, {})

    # The points, in the order of a session.

    def fire_session_start(self, context: HookContext) -> None:
        """Say that a session begins."""
        for _ in self._results(SESSION_START, context):
            pass

    def fire_user_message(self, context: HookContext, text: str) -> UserMessageResult:
        """Return what becomes of a user's message; each hook gets it as the one before left it, until one stops it."""
        found = UserMessageResult()
        for hook in tuple(self._hooks[USER_MESSAGE]):
            answer = self._called(hook, context, text if found.modified_message is None else found.modified_message)
            if isinstance(answer, str):
                answer = UserMessageResult(answer)
            found = _taken(found, answer, UserMessageResult)
            if found.stop_reason is not None:
                break
        return found

    def fire_deferred(self, context: HookContext, sources: Sequence[Any]) -> None:
        """Do what hooks left to be written until the user's message was in the log."""
        while context.deferred:
            self._called(context.deferred.pop(0), sources)

    def fire_before_llm(self, context: HookContext, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages that go to the model; what a hook does to the list it is given counts for nothing."""
        for hook in tuple(self._hooks[BEFORE_LLM]):
            answer = self._called(hook, context, deepcopy(messages))
            if isinstance(answer, BeforeLlmResult) and answer.modified_messages is not None:
                messages = answer.modified_messages
        return messages

    def fire_after_llm(self, context: HookContext, text: str) -> AfterLlmResult:
        """Return what becomes of a model's text, until one hook blocks it."""
        found = AfterLlmResult()
        for hook in tuple(self._hooks[AFTER_LLM]):
            answer = self._called(hook, context, text if found.replacement_text is None else found.replacement_text)
            found = _taken(found, answer, AfterLlmResult)
            if found.block_reason is not None:
                break
        return found

    def fire_before_tool(self, context: HookContext, name: str, arguments: dict[str, Any]) -> BeforeToolResult:
        """Return what becomes of a tool's call, until one hook skips it; a ``ToolResult`` is what is used instead."""
        found = BeforeToolResult()
        for hook in tuple(self._hooks[BEFORE_TOOL]):
            said = arguments if found.modified_arguments is None else found.modified_arguments
            answer = self._called(hook, context, name, deepcopy(said))
            if isinstance(answer, ToolResult):
                answer = BeforeToolResult(skip=True, output=answer.text)
            found = _taken(found, answer, BeforeToolResult)
            if found.skip:
                break
        return found

    def fire_after_tool(self, context: HookContext, name: str, result: ToolResult) -> AfterToolResult:
        """Return what becomes of a tool's output; what hooks inject is joined, until one blocks."""
        found = AfterToolResult()
        for hook in tuple(self._hooks[AFTER_TOOL]):
            answer = self._called(hook, context, name, result)
            if isinstance(answer, AfterToolResult) and answer.injected_context and found.injected_context:
                answer = replace(answer, injected_context=f"{found.injected_context}\n{answer.injected_context}")
            found = _taken(found, answer, AfterToolResult)
            if found.block_reason is not None:
                break
        return found

    def fire_session_end(self, context: HookContext, summary: SessionSummary) -> None:
        """Say that a session is over, and what it was."""
        for _ in self._results(SESSION_END, context, summary):
            pass

    def fire_compaction(self, context: HookContext, evicted: Sequence[Message]) -> None:
        """Say which messages have left the window; without any nothing is called."""
        if evicted:
            for hook in tuple(self._hooks[COMPACTION]):
                self._called(hook, context, list(evicted))

    # What evicts.

    def compacted(self, context: HookContext, seq: int) -> list[Message]:
        """Fire ``compaction`` with what the durable event at a seq pushed out of the window; return that.

        Without a hook for it nothing is looked at.
        """
        if not self._hooks[COMPACTION]:
            return []
        seq = checks.count(seq, "seq")
        steps = context.conversation.replay(after=seq - 1, until=seq)
        evicted = [message for step in steps for message in step.evicted]
        self.fire_compaction(context, evicted)
        return evicted

    def watch(self, context: HookContext) -> "Subscription":
        """Fire ``compaction`` for whoever writes to the conversation, after each durable event that evicted.

        Returns the subscription, to be closed; hooks are called on its thread.
        """
        stream = context.conversation.place[0]

        def see(recorded: "Recorded") -> None:
            if recorded.stamp.stream == stream and isinstance(recorded.event, (MessageAppended, WindowResized)):
                self.compacted(context, recorded.stamp.seq)

        return self._memory.subscribe(see)

    # Calling.

    def _results(self, point: str, *arguments: Any) -> Iterator[Any]:
        for hook in tuple(self._hooks[point]):
            yield self._called(hook, *arguments)

    def _called(self, hook: Hook, *arguments: Any) -> Any:
        """Return what a hook returns, ``None`` where it raises, takes too long, or returns what no log holds."""
        seconds = checked_seconds(self.timeout_seconds)
        future = _begun(hook, arguments)
        try:
            error = future.exception(seconds)
        except TimeoutError:
            _LOG.warning("hook %s took longer than %s s; it is left behind", _name(hook), self.timeout_seconds)
            return None
        if error is not None:
            _LOG.warning("hook %s raised", _name(hook), exc_info=error)
            return None
        answer = future.result()
        try:
            _check_answer(answer)
        except (RefoldError, msgspec.MsgspecError, UnicodeError) as problem:
            _LOG.warning("hook %s returned what cannot be used and counts for nothing: %s", _name(hook), problem)
            return None
        return answer


def hooks_of(memory: Memory) -> Hooks:
    """Return the hooks of a memory: none, until somebody registers one."""
    return Hooks(memory)


def checked_seconds(seconds: object) -> float:
    """Return a time-out."""
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 < seconds <= HOOK_SECONDS_MAX:
        checks.invalid(f"timeout_seconds is {checks.shown(seconds)}; give a number up to {HOOK_SECONDS_MAX}")
    return float(seconds)


def _check_answer(answer: object) -> None:
    """Raise unless the fields of a result are of their types, and its texts can be stored."""
    if isinstance(answer, str):
        checks.text(answer, "the text")
    elif isinstance(answer, ToolResult):
        checks.text(answer.text, "the output")
    elif isinstance(answer, _RESULTS):
        fields = {field: getattr(answer, field) for field in answer.__struct_fields__}
        msgspec.convert(fields, type(answer))
        for field, value in fields.items():
            if isinstance(value, str):
                checks.text(value, field)


def _taken(found: R, answer: object, kind: type[R]) -> R:
    """Return a result with what a hook said of it; what it did not say stays."""
    if not isinstance(answer, kind):
        return found
    fields = {field: getattr(answer, field) for field in kind.__struct_fields__}  # type: ignore[attr-defined]
    return replace(found, **{field: value for field, value in fields.items() if value is not None})  # type: ignore[type-var]


def _begun(hook: Hook, arguments: tuple[Any, ...]) -> Future[Any]:
    """Return the future of a hook that runs on a thread of its own, which nobody waits for at the end."""
    future = Future[Any]()
    inherited = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(inherited.run(_awaited, hook, arguments))
        except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
            future.set_exception(error)

    threading.Thread(target=run, name="refold-hook", daemon=True).start()
    return future


def _awaited(hook: Hook, arguments: tuple[Any, ...]) -> Any:
    value = hook(*arguments)
    if not inspect.isawaitable(value):
        return value
    import asyncio  # noqa: PLC0415 - asyncio is loaded only by those who use it

    async def waited() -> Any:
        return await value

    return asyncio.run(waited())


def _name(hook: Hook) -> str:
    return getattr(hook, "__qualname__", type(hook).__name__)


# The hooks for asyncio: each point is awaited, and the hooks run where they hold up no other task.

P = ParamSpec("P")


def _firing(
    verb: Callable[Concatenate[Hooks, P], R],
) -> Callable[Concatenate["AsyncHooks", P], Coroutine[Any, Any, R]]:
    """Return a point of the plain handle as a coroutine, under the same name."""

    @wraps(verb)
    async def fire(self: "AsyncHooks", /, *arguments: P.args, **options: P.kwargs) -> R:
        # A thread of its own, and not the one that writes for event loops: a hook may wait for what it writes.
        import asyncio  # noqa: PLC0415 - asyncio is loaded only by those who use it

        return await asyncio.to_thread(verb, self.plain, *arguments, **options)

    return fire


class AsyncHooks:
    """The hooks of one memory, for asyncio; what was registered with the plain handle counts here, too.

    >>> import asyncio
    >>> from refold import Memory
    >>> memory = Memory()
    >>> shout = memory.hooks.register("user_message", lambda context, text: text.upper())
    >>> told = memory.hooks.context(memory.conversation("c"))
    >>> asyncio.run(memory.aio.hooks.fire_user_message(told, "hello")).modified_message
    'HELLO'
    """

    __slots__ = ("plain",)

    def __init__(self, plain: Hooks) -> None:
        self.plain = plain
        """The plain handle: hooks are registered with it, and contexts are made by it."""

    fire_session_start = _firing(Hooks.fire_session_start)
    fire_user_message = _firing(Hooks.fire_user_message)
    fire_deferred = _firing(Hooks.fire_deferred)
    fire_before_llm = _firing(Hooks.fire_before_llm)
    fire_after_llm = _firing(Hooks.fire_after_llm)
    fire_before_tool = _firing(Hooks.fire_before_tool)
    fire_after_tool = _firing(Hooks.fire_after_tool)
    fire_session_end = _firing(Hooks.fire_session_end)
    fire_compaction = _firing(Hooks.fire_compaction)
    compacted = _firing(Hooks.compacted)

    def __repr__(self) -> str:
        """Return the hooks with their counts."""
        return f"Async{self.plain!r}"


def async_hooks_of(memory: Memory) -> AsyncHooks:
    """Return the hooks of a memory for asyncio."""
    return AsyncHooks(memory.hooks)
