"""Tool definitions as each provider takes them: dicts whose bytes are the same whenever the tools are."""

from collections.abc import Sequence
from typing import Any

from refold.tools.protocol import ToolDefinition


def to_openai(definitions: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    """Return what OpenAI's chat completions, and all that speak like them, take as ``tools``."""
    return [{"type": "function", "function": _function(definition)} for definition in definitions]


def to_openai_responses(definitions: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    """Return what OpenAI's responses take as ``tools``."""
    return [{"type": "function", **_function(definition)} for definition in definitions]


def to_anthropic(definitions: Sequence[ToolDefinition], *, cache: bool = False) -> list[dict[str, Any]]:
    """Return what Anthropic's messages take as ``tools``; ``cache`` lets the provider keep all of them."""
    tools = [_anthropic(definition) for definition in definitions]
    if cache and tools:
        tools[-1]["cache_control"] = {"type": "ephemeral"}
    return tools


def _anthropic(definition: ToolDefinition) -> dict[str, Any]:
    """Return one tool; of one that the models know already, its type and name are all that is taken."""
    if definition.anthropic_type:
        return {"type": definition.anthropic_type, "name": definition.name}
    return {"name": definition.name, "description": definition.description, "input_schema": definition.parameters}


def to_ollama(definitions: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    """Return what Ollama's chat takes as ``tools``."""
    return to_openai(definitions)


def to_mcp(definitions: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    """Return what a server of the Model Context Protocol lists, annotations included."""
    return [
        {"name": definition.name, "description": definition.description, "inputSchema": definition.parameters}
        | ({"annotations": definition.annotations} if definition.hints else {})
        for definition in definitions
    ]


def _function(definition: ToolDefinition) -> dict[str, Any]:
    return {"name": definition.name, "description": definition.description, "parameters": definition.parameters}
