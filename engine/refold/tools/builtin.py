"""The tools that come with every memory, in the order in which a model sees them."""

from typing import Any, Final

from refold.memory.memory import Memory
from refold.tools import knowing, scratching
from refold.tools.protocol import FunctionTool
from refold.tools.registry import ToolRegistry

READS: Final = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_ADDS: Final = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False}
_CHANGES: Final = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False}


def _object(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_CATEGORY: Final = {
    "type": "string",
    "enum": ["preference", "convention", "pattern", "correction", "fact"],
    "description": "What kind of memory it is",
}
_IMPORTANCE: Final = {"type": "number", "minimum": 0, "maximum": 1, "description": "How much it matters, from 0 to 1"}
_KEYWORDS: Final = {"type": "array", "items": {"type": "string"}, "description": "Words to find it by"}

SCRATCHPAD_TOOLS: Final = (
    FunctionTool(
        "memory_write",
        "Write to your working memory for this conversation: set a key, add a note, delete a key, or clear everything.",
        _object(
            ["action"],
            action={
                "type": "string",
                "enum": ["set", "note", "delete", "clear"],
                "description": "The action to perform",
            },
            key=_text("Key name (required for set and delete)"),
            value=_text("Value to store (required for set and note)"),
        ),
        scratching.write,
        annotations=_CHANGES | {"idempotentHint": False},  # The same note twice is two notes.
    ),
    FunctionTool(
        "memory_read",
        "Read your working memory for this conversation: one key, or everything that is stored.",
        {
            "type": "object",
            "properties": {"key": _text("Key to look up (omit to return all stored data)")},
        },
        scratching.read,
        annotations=READS,
    ),
)
"""They check their arguments themselves: the order of their checks and their texts are a contract."""

TOOLS: Final = (
    FunctionTool(
        "memory_set",
        "Remember a permanent fact or preference under a key, in every conversation from now on.",
        _object(["key", "value"], key=_text("Key name, such as user_name"), value=_text("Value to remember")),
        knowing.set_fact,
        annotations=_CHANGES,
    ),
    FunctionTool(
        "memory_delete",
        "Remove a permanent fact or preference.",
        _object(["key"], key=_text("Key name")),
        knowing.delete_fact,
        annotations=_CHANGES,
    ),
    FunctionTool(
        "memory_add",
        "Remember something about this project for future sessions.",
        _object(
            ["content"],
            content=_text("One concise statement"),
            category=_CATEGORY,
            importance=_IMPORTANCE,
            keywords=_KEYWORDS,
        ),
        knowing.add,
        annotations=_ADDS | {"idempotentHint": True},
    ),
    FunctionTool(
        "memory_search",
        "Search what is remembered about this project.",
        _object(
            ["query"],
            query=_text("What to look for"),
            top_k={"type": "integer", "minimum": 1, "maximum": 50, "description": "How many results (default 10)"},
            category=_CATEGORY,
        ),
        knowing.search,
        annotations=_ADDS,
    ),
    FunctionTool(
        "memory_update",
        "Change a memory of this project that memory_search or memory_add returned.",
        _object(
            ["id"],
            id=_text("Id of the memory"),
            content=_text("New statement"),
            category=_CATEGORY,
            importance=_IMPORTANCE,
            keywords=_KEYWORDS,
        ),
        knowing.update,
        annotations=_CHANGES,
    ),
    FunctionTool(
        "memory_forget",
        "Forget a memory of this project.",
        _object(["id"], id=_text("Id of the memory")),
        knowing.forget,
        annotations=_CHANGES,
    ),
    FunctionTool(
        "journal_append",
        "Append a line to today's notes: what happened, what was decided.",
        _object(["text"], text=_text("The note")),
        knowing.append_note,
        annotations=_ADDS,
    ),
)


BUILT_IN_NAMES: Final = frozenset(tool.name for tool in (*SCRATCHPAD_TOOLS, *TOOLS))
"""They change nothing but the memory, so that a session that is run again may call them."""


def tools_of(memory: Memory) -> ToolRegistry:
    """Return a new registry for a memory, with the built-in tools."""
    registry = ToolRegistry(memory)
    for tool in SCRATCHPAD_TOOLS:
        registry.register(tool, checked=False)
    for tool in TOOLS:
        registry.register(tool)
    return registry
