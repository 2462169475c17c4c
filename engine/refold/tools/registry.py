"""The tool registry: what a model may call, in the order of registration, and one way to call it."""

import inspect
import logging
import re
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from refold import checks
from refold.errors import InvalidInput, LimitExceeded, NotFound, ReadOnly
from refold.memory.conversation import Conversation
from refold.memory.memory import Memory
from refold.tools import arguments as given
from refold.tools import exports, protocol
from refold.tools.limits import TOOL_NAME_CHARS_MAX, TOOL_RESULT_BYTES_MAX, TOOL_SCHEMA_BYTES_MAX, TOOLS_COUNT_MAX
from refold.tools.protocol import Tool, ToolContext, ToolDefinition, ToolFailed, ToolRefused, ToolResult

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
        found = self._tools.pop(name, None)
        return None if found is None else found[1]

    def get(self, name: str) -> Tool | None:
        """Return a tool, ``None`` where there is none."""
        found = self._tools.get(name)
        return None if found is None else found[1]

    def names(self) -> list[str]:
        """Return the names in the order of registration."""
        return list(self._tools)

    def definitions(self) -> list[ToolDefinition]:
        """Return how every tool is described, in the order of registration."""
        return [definition for definition, _, _ in self._tools.values()]

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
        chat = _recording(context) if record else None
        result = self._executed(name, arguments, context)
        if chat is not None:
            _record(chat, result, arguments, call_id)
        return result

    def _executed(self, name: str, arguments: object, context: ToolContext | None) -> ToolResult:
        found = self._tools.get(name)
        if found is None:
            return _unknown(name)
        try:
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
        chat = _recording(context) if record else None
        result = await self._executed_async(name, arguments, context)
        if chat is not None:
            from asyncio import to_thread  # noqa: PLC0415 - asyncio is loaded only by those who use it

            await to_thread(_record, chat, result, arguments, call_id)
        return result

    async def _executed_async(self, name: str, arguments: object, context: ToolContext | None) -> ToolResult:
        found = self._tools.get(name)
        if found is None:
            return _unknown(name)
        try:
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
    schema = dict(tool.parameters)
    checks.json_object(schema, f"the parameters of {name}")
    if schema.get("type", "object") != "object":
        checks.invalid(f"the parameters of {name} are of type {checks.shown(schema['type'])}; make them an object")
    encoded = msgspec.json.encode({"type": "object", "properties": {}} | schema)
    if len(encoded) > TOOL_SCHEMA_BYTES_MAX:
        message = (
            f"the parameters of {name} are {len(encoded)} bytes, over TOOL_SCHEMA_BYTES_MAX = {TOOL_SCHEMA_BYTES_MAX}"
        )
        raise LimitExceeded(message)
    hints = tuple((hint, bool(tool.annotations[hint])) for hint in _HINTS if hint in tool.annotations)
    known = checks.text(getattr(tool, "anthropic_type", ""), f"the type of {name}")
    return ToolDefinition(name, description, encoded, tool.long_running, hints, known)


def _recording(context: ToolContext | None) -> Conversation:
    """Return the conversation in which a call is recorded."""
    if context is None or context.conversation is None:
        checks.invalid("record=True needs a conversation to record in; give context=memory.tools.context(chat)")
    return context.conversation


def _record(chat: Conversation, result: ToolResult, arguments: object, call_id: str) -> None:
    """Record a call: arguments that no registry would take are recorded as none."""
    try:
        said = given.decoded(arguments)
    except InvalidInput:
        said = {}
    told = result.message if result.is_error else result.value
    chat.session.record_call(result.name, said, told, outcome=result.outcome, call_id=call_id)


def _unknown(name: str) -> ToolResult:
    return ToolResult(name, protocol.UNKNOWN_TOOL, message=f"unknown tool '{name}'")


def _refused(name: str, error: Exception) -> ToolResult:
    """Return the result of a call that raised; what no tool raises on purpose is logged with its trace."""
    for kind, outcome, prefix in _REFUSALS:
        if isinstance(error, kind):
            return ToolResult(name, outcome, message=f"{prefix}{error}")
    if not isinstance(error, ToolFailed):
        _LOG.warning("tool %s raised", name, exc_info=error)
    return ToolResult(name, protocol.FAILED, message=f"execution failed: {error}")


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
    value.close()
    message = "the tool is asynchronous and an event loop runs here; await execute_async instead"
    raise ToolFailed(message)
