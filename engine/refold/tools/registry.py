"""The tool registry: what a model may call, in the order of registration, and one way to call it."""

import inspect
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from refold import checks
from refold.errors import InvalidInput, LimitExceeded, NotFound, ReadOnly, RefoldError
from refold.limits import NAME_BYTES_MAX
from refold.memory.conversation import Conversation
from refold.memory.memory import Memory
from refold.tools import arguments as given
from refold.tools import exports, protocol
from refold.tools.limits import TOOL_NAME_CHARS_MAX, TOOL_RESULT_BYTES_MAX, TOOL_SCHEMA_BYTES_MAX, TOOLS_COUNT_MAX
from refold.tools.protocol import Tool, ToolContext, ToolDefinition, ToolFailed, ToolRefused, ToolResult
from refold.tools.storable import storable

_LOG: Final = logging.getLogger("refold")
_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{TOOL_NAME_CHARS_MAX}}}")
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


class _CancelledError(ToolFailed):
    """The host no longer wants the call."""


_REFUSALS: Final[tuple[tuple[type[Exception], str, str], ...]] = (
    (_CancelledError, protocol.CANCELLED, "cancelled"),
    (ToolRefused, protocol.INVALID_INPUT, ""),
    (InvalidInput, protocol.INVALID_INPUT, "invalid input: "),
    (LimitExceeded, protocol.INVALID_INPUT, "invalid input: "),
    (NotFound, protocol.INVALID_INPUT, "invalid input: "),
    (ReadOnly, protocol.FORBIDDEN, "forbidden: "),
)
"""What an exception of a tool comes to; any other one is a failed execution."""


class ToolRegistry:
    """The tools of one memory: registered, described to a model, executed.

    >>> from refold import Memory
    >>> memory = Memory()
    >>> memory.tools.execute("memory_set", {"key": "theme", "value": "dark"}).value["status"]
    'ok'
    """

    __slots__ = ("_memory", "_tools")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._tools: dict[str, tuple[ToolDefinition, Tool, dict[str, Any] | None]] = {}

    def __repr__(self) -> str:
        """Return the registry with its names."""
        return f"ToolRegistry({', '.join(self._tools)})"

    def register(self, tool: Tool, *, checked: bool = True) -> ToolDefinition:
        """Register a tool and return its definition, which no later change of the tool moves.

        ``checked=False`` leaves it to the tool to check its arguments. Raises ``InvalidInput`` for what is no tool, for
        a name that some provider refuses or that is registered, ``LimitExceeded`` over ``TOOLS_COUNT_MAX``.
        """
        if not isinstance(cast("object", tool), Tool):
            checks.invalid(
                f"a tool has a name, a description, parameters and execute, which {checks.shown(tool)} lacks"
            )
        definition = _definition(tool)
        if definition.name in self._tools:
            checks.invalid(f"a tool named {definition.name!r} is registered; unregister it first, or give another name")
        if len(self._tools) >= TOOLS_COUNT_MAX:
            message = f"TOOLS_COUNT_MAX = {TOOLS_COUNT_MAX} tools are registered; unregister one first"
            raise LimitExceeded(message)
        self._tools[definition.name] = (definition, tool, definition.parameters if checked else None)
        return definition

    def unregister(self, name: str) -> Tool | None:
        """Remove a tool and return it, ``None`` where there was none."""
        found = self._tools.pop(_text(name), None)
        return None if found is None else found[1]

    def get(self, name: str) -> Tool | None:
        """Return a tool, ``None`` where there is none."""
        found = self._tools.get(_text(name))
        return None if found is None else found[1]

    def names(self) -> list[str]:
        """Return the names in the order of registration."""
        return list(self._tools)

    def definitions(self) -> list[ToolDefinition]:
        """Return how every tool is described, in the order of registration."""
        return [definition for definition, _, _ in tuple(self._tools.values())]

    def context(
        self,
        conversation: Conversation | None = None,
        *,
        project: str | None = None,
        profile: str = "default",
        journal: str = "default",
        files: str = "default",
        is_cancelled: Callable[[], bool] | None = None,
    ) -> ToolContext:
        """Return what a call is told by its host; without a project it is the conversation's, else ``"default"``."""
        if conversation is not None and not isinstance(cast("object", conversation), Conversation):
            checks.invalid(f"conversation must be a Conversation, not {checks.shown(conversation)}")
        name = project
        if name is None and conversation is not None:
            name = conversation.project
        return ToolContext(self._memory, conversation, name or "default", profile, journal, is_cancelled, files)

    def to_openai(self) -> list[dict[str, Any]]:
        """Return what OpenAI's chat completions, and all that speak like them, take as ``tools``."""
        return exports.to_openai(self.definitions())

    def to_openai_responses(self) -> list[dict[str, Any]]:
        """Return what OpenAI's responses take as ``tools``."""
        return exports.to_openai_responses(self.definitions())

    def to_anthropic(self, *, cache: bool = False) -> list[dict[str, Any]]:
        """Return what Anthropic's messages take as ``tools``; ``cache`` marks the last, so that all are kept."""
        return exports.to_anthropic(self.definitions(), cache=cache)

    def to_ollama(self) -> list[dict[str, Any]]:
        """Return what Ollama's chat takes as ``tools``."""
        return exports.to_ollama(self.definitions())

    def to_mcp(self) -> list[dict[str, Any]]:
        """Return what a server of the Model Context Protocol lists, with its hints."""
        return exports.to_mcp(self.definitions())

    def execute(
        self,
        name: str,
        arguments: object = None,
        context: ToolContext | None = None,
        *,
        record: bool = False,
        call_id: str = "",
    ) -> ToolResult:
        """Call a tool and return what came of it; no failure of a model or of a tool raises.

        ``arguments`` are a dict, or JSON as a model wrote it. ``context`` comes from ``context(...)``. With ``record``
        the call, its result and ``call_id`` become an event of the context's conversation, which has to be there. An
        asynchronous tool is run to its end, unless an event loop runs on this thread.
        """
        recording = _Recording(context, arguments, call_id) if record else None
        result = self._executed(name, arguments, context, recording)
        return result if recording is None else recording.kept(result)

    def _executed(
        self, name: str, arguments: object, context: ToolContext | None, recording: "_Recording | None"
    ) -> ToolResult:
        found = self._tools.get(_text(name))
        if found is None:
            return _unknown(name)
        try:
            if recording is not None:
                recording.check()
            value = self._begun(found, arguments, context)
            if inspect.isawaitable(value):
                value = _run(value)
        except Exception as error:  # noqa: BLE001 - a tool may fail in any way, and the model is told
            return _refused(name, error)
        return _returned(name, value)

    async def execute_async(
        self,
        name: str,
        arguments: object = None,
        context: ToolContext | None = None,
        *,
        record: bool = False,
        call_id: str = "",
    ) -> ToolResult:
        """Call a tool as ``execute`` does, and await it; what is no coroutine runs on another thread."""
        recording = _Recording(context, arguments, call_id) if record else None
        result = await self._executed_async(name, arguments, context, recording)
        if recording is None:
            return result
        from asyncio import to_thread  # noqa: PLC0415 - asyncio is loaded only by those who use it

        return await to_thread(recording.kept, result)

    async def _executed_async(
        self, name: str, arguments: object, context: ToolContext | None, recording: "_Recording | None"
    ) -> ToolResult:
        found = self._tools.get(_text(name))
        if found is None:
            return _unknown(name)
        try:
            if recording is not None:
                recording.check()
            from asyncio import to_thread  # noqa: PLC0415 - asyncio is loaded only by those who use it

            value = await to_thread(self._begun, found, arguments, context)
            if inspect.isawaitable(value):
                value = await value
        except Exception as error:  # noqa: BLE001 - as above
            return _refused(name, error)
        return _returned(name, value)

    def _begun(self, found: tuple[ToolDefinition, Tool, Any], arguments: object, context: ToolContext | None) -> Any:
        """Return what a tool returns: a value or an awaitable."""
        _, tool, schema = found
        told = ToolContext(self._memory) if context is None else context
        if told.is_cancelled is not None and told.is_cancelled():
            raise _CancelledError
        decoded = given.decoded(arguments)
        if schema is not None:
            given.check(decoded, schema)
        return tool.execute(decoded, told)


def _definition(tool: Tool) -> ToolDefinition:
    name = checks.text(tool.name, "a tool's name")
    if _NAME.fullmatch(name) is None:
        rule = f"letters, digits, _ and -, at most TOOL_NAME_CHARS_MAX = {TOOL_NAME_CHARS_MAX}"
        checks.invalid(f"no provider takes {checks.shown(name)} as a tool's name; use {rule}")
    description = checks.text(tool.description, f"the description of {name}")
    for held, what in ((tool.parameters, "parameters"), (tool.annotations, "annotations")):
        if not isinstance(cast("object", held), Mapping):
            checks.invalid(f"the {what} of {name} must be a mapping, not {checks.shown(held)}")
    schema = dict(tool.parameters)
    checks.json_object(schema, f"the parameters of {name}")
    if schema.get("type", "object") != "object":
        checks.invalid(f"the parameters of {name} are of type {checks.shown(schema['type'])}; make them an object")
    given.check_schema(schema, f"the parameters of {name}")
    encoded = msgspec.json.encode({"type": "object", "properties": {}} | schema)
    if len(encoded) > TOOL_SCHEMA_BYTES_MAX:
        message = (
            f"the parameters of {name} are {len(encoded)} bytes, over TOOL_SCHEMA_BYTES_MAX = {TOOL_SCHEMA_BYTES_MAX}"
        )
        raise LimitExceeded(message)
    hints = tuple((hint, bool(tool.annotations[hint])) for hint in _HINTS if hint in tool.annotations)
    known = checks.text(getattr(tool, "anthropic_type", ""), f"the type of {name}")
    return ToolDefinition(name, description, encoded, tool.long_running, hints, known)


class _Recording:
    """A call that is recorded: what a host did wrong raises before the tool runs, what a tool did never does."""

    __slots__ = ("_call_id", "_chat", "_error", "_said", "_sources")

    def __init__(self, context: ToolContext | None, arguments: object, call_id: object) -> None:
        if not isinstance(context, ToolContext) or context.conversation is None:
            checks.invalid("record=True needs a conversation to record in; give context=memory.tools.context(chat)")
        self._chat = context.conversation
        self._chat.session.check_writable()
        self._sources = self._chat.session.provenance(opens=False)
        self._call_id = checks.text(call_id, "call_id", NAME_BYTES_MAX, "NAME_BYTES_MAX")
        self._said: Any = {}
        self._error: RefoldError | None = None
        try:
            # A copy, for the tool may change what it is given.
            said = msgspec.json.decode(msgspec.json.encode(given.decoded(arguments)))
            checks.packed_json(said, "arguments")
            self._said = said
        except RefoldError as error:
            self._error = error

    def check(self) -> None:
        """Refuse arguments that no log holds; they are recorded as none."""
        if self._error is not None:
            raise self._error

    def kept(self, result: ToolResult) -> ToolResult:
        """Record the call and return its result, an error where the log cannot hold it."""
        if not result.is_error:
            try:
                checks.packed_json(result.value, "the result")
            except RefoldError as error:
                result = _failed(result.name, error)
        told = result.message if result.is_error else result.value
        name = result.name or "(none)"
        self._chat.session.record_call(
            name, self._said, told, outcome=result.outcome, call_id=self._call_id, sources=self._sources
        )
        return result


def _text(name: object) -> str:
    """Return a name under which a tool may be found; what is no text is none."""
    return name if isinstance(name, str) else ""


def _unknown(name: str) -> ToolResult:
    told = storable(name, TOOL_NAME_CHARS_MAX)
    return ToolResult(told, protocol.UNKNOWN_TOOL, message=f"unknown tool '{told}'")


def _refused(name: str, error: Exception) -> ToolResult:
    """Return the result of a call that raised; what no tool raises on purpose is logged with its trace."""
    for kind, outcome, prefix in _REFUSALS:
        if isinstance(error, kind):
            return ToolResult(name, outcome, message=f"{prefix}{storable(error)}")
    if not isinstance(error, ToolFailed):
        _LOG.warning("tool %s raised", name, exc_info=error)
    return _failed(name, error)


def _failed(name: str, error: Exception) -> ToolResult:
    return ToolResult(name, protocol.FAILED, message=f"execution failed: {storable(error) or type(error).__name__}")


def _returned(name: str, value: object) -> ToolResult:
    try:
        packed = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        problem = f"execution failed: {name} returned a {type(value).__name__}, which is no JSON value"
        return ToolResult(name, protocol.FAILED, message=problem)
    if len(packed) > TOOL_RESULT_BYTES_MAX:
        bound = f"TOOL_RESULT_BYTES_MAX = {TOOL_RESULT_BYTES_MAX:,}"
        return ToolResult(
            name, protocol.FAILED, message=f"execution failed: the result is {len(packed):,} bytes, over {bound}"
        )
    return ToolResult(name, protocol.OK, packed)


def _run(value: Any) -> Any:
    """Return what an asynchronous tool returns in the end."""
    import asyncio  # noqa: PLC0415 - as above

    async def awaited() -> Any:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(awaited())
    if inspect.iscoroutine(value):
        value.close()
    message = "the tool is asynchronous and an event loop runs here; await execute_async instead"
    raise ToolFailed(message)
