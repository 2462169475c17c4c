"""The tools of a memory as the protocol lists and calls them."""

import threading
from typing import Any, Final

from mcp import types

from refold import checks
from refold.errors import InvalidInput, RefoldError
from refold.faces.mcp.binding import Binding
from refold.tools import knowing
from refold.tools.builtin import BUILT_IN_NAMES, READS
from refold.tools.protocol import FAILED, INVALID_INPUT, FunctionTool, ToolDefinition, ToolResult
from refold.tools.registry import ToolRegistry

_SEARCH: Final = "memory_search"
_ID: Final = "conversation"
_ID_SCHEMA: Final = {"type": "string", "description": "Id of the conversation; omit for the one of this session"}
_AT_ONCE: Final = "memory_read"
"""It reads what is in RAM, so that a hop to a thread would cost more than the call."""


def registry_of(binding: Binding) -> ToolRegistry:
    """Return the registry whose tools are served: the memory's own, or of a server that only reads, what reads of it.

    There a search leaves no trace.
    """
    tools = binding.memory.tools
    if not binding.readonly:
        return tools
    reading = ToolRegistry(binding.memory)
    for definition in tools.definitions():
        tool = tools.get(definition.name)
        if definition.name == _SEARCH:
            tool = FunctionTool(
                definition.name, definition.description, definition.parameters, knowing.look, annotations=READS
            )
        if tool is not None and tool.annotations.get("readOnlyHint"):
            reading.register(tool, checked=definition.name != _AT_ONCE)
    return reading


def listed(binding: Binding, registry: ToolRegistry) -> list[types.Tool]:
    """Return the tools as the protocol describes them, each with all four hints."""
    return [_described(binding, definition) for definition in registry.definitions()]


def _described(binding: Binding, definition: ToolDefinition) -> types.Tool:
    schema: dict[str, Any] = {"type": "object", **definition.parameters}
    if binding.asks_model and definition.name in BUILT_IN_NAMES:
        known: dict[str, Any] = schema.get("properties", {})
        schema["properties"] = {_ID: _ID_SCHEMA} | known
    hints = definition.annotations
    # What a tool does not say, the protocol takes for the worst; said aloud, so that every client shows it.
    annotations = types.ToolAnnotations(
        read_only_hint=hints.get("readOnlyHint", False),
        destructive_hint=hints.get("destructiveHint", True),
        idempotent_hint=hints.get("idempotentHint", False),
        open_world_hint=hints.get("openWorldHint", True),
    )
    return types.Tool(
        name=definition.name, description=definition.description, input_schema=schema, annotations=annotations
    )


def chosen(binding: Binding, tool: str, arguments: dict[str, Any], default: str) -> tuple[str, dict[str, Any]]:
    """Return the conversation of a call, which a model names only where that was configured, and the other arguments.

    Only the built-in tools take it. Raises ``InvalidInput`` for what is no id.
    """
    if not binding.asks_model or tool not in BUILT_IN_NAMES or _ID not in arguments:
        return default, arguments
    rest = {name: value for name, value in arguments.items() if name != _ID}
    return checks.name(arguments[_ID], _ID), rest


async def called(
    binding: Binding, registry: ToolRegistry, name: str, arguments: dict[str, Any], default: str
) -> types.CallToolResult:
    """Call a tool in a conversation and return what came of it; one that is cancelled before it began does nothing."""
    gone = threading.Event()
    try:
        conversation, rest = chosen(binding, name, arguments, default)
        context = registry.context(
            binding.chat(conversation),
            project=binding.project,
            profile=binding.profile,
            journal=binding.journal,
            is_cancelled=gone.is_set,
        )
    except RefoldError as error:
        return refused(name, error)
    if name == _AT_ONCE and name in BUILT_IN_NAMES:
        return told(registry.execute(name, rest, context))
    try:
        return told(await registry.execute_async(name, rest, context))
    finally:
        gone.set()


def told(result: ToolResult) -> types.CallToolResult:
    """Return a result as the protocol has it: text for the model, and the value for programs."""
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=result.text)]
    if result.is_error:
        return types.CallToolResult(content=content, is_error=True)
    value = result.value
    if isinstance(value, str):
        return types.CallToolResult(content=content)
    # Before 2026 the protocol had only objects there.
    return types.CallToolResult(
        content=content, structured_content=value if isinstance(value, dict) else {"result": value}
    )


def refused(name: str, error: RefoldError) -> types.CallToolResult:
    """Return the result of a call that came to no tool."""
    is_invalid = isinstance(error, InvalidInput)
    outcome, prefix = (INVALID_INPUT, "invalid input") if is_invalid else (FAILED, "execution failed")
    return told(ToolResult(name, outcome, message=f"{prefix}: {error}"))
