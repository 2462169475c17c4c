"""The file-like memory tool: ``memory`` with the commands and the words of Anthropic's ``memory_20250818``."""

from collections.abc import Callable
from typing import Any, Final

from refold import checks
from refold.errors import InvalidInput, LimitExceeded, NotFound
from refold.memory.files import Files
from refold.tools.protocol import FunctionTool, ToolContext, ToolRefused

_COMMANDS: Final[dict[str, tuple[Callable[..., str], tuple[str, ...], tuple[str, ...]]]] = {
    "view": (Files.view, ("path",), ("view_range",)),
    "create": (Files.create, ("path", "file_text"), ()),
    "str_replace": (Files.str_replace, ("path", "old_str", "new_str"), ()),
    "insert": (Files.insert, ("path", "insert_line", "insert_text"), ()),
    "delete": (Files.delete, ("path",), ()),
    "rename": (Files.rename, ("old_path", "new_path"), ()),
}
"""Each command with its verb, what it needs, and what it takes beside that."""

_DESCRIPTION: Final = (
    "Keep files that outlive this conversation, in the directory /memories. View /memories before you begin, to see "
    "what you have noted earlier; write down what you will want to know next time."
)


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "command": {
            "type": "string",
            "enum": list(_COMMANDS),
            "description": "What to do: each command takes the fields that name it",
        },
        "path": _text("view, create, str_replace, insert, delete: the path, beginning with /memories"),
        "view_range": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "view: the first and the last line of a file to show, -1 for its end",
        },
        "file_text": _text("create: the whole text of the new file"),
        "old_str": _text("str_replace: the text to replace, which must stand in the file exactly once"),
        "new_str": _text("str_replace: what comes in its place"),
        "insert_line": {
            "type": "integer",
            "description": "insert: the line behind which to insert, 0 for the beginning",
        },
        "insert_text": _text("insert: the text to insert"),
        "old_path": _text("rename: the path to move"),
        "new_path": _text("rename: where to, a path where nothing is yet"),
    },
    "required": ["command"],
}


def _run(arguments: dict[str, Any], context: ToolContext) -> str:
    """Do what a command says; what it refuses, the model is told in the words of the contract."""
    verb, required, optional = _COMMANDS[arguments["command"]]
    given = {field: arguments[field] for field in (*required, *optional) if arguments.get(field) is not None}
    for field in required:
        if field not in given:
            checks.invalid(f"{arguments['command']} requires '{field}'")
    if verb is not Files.view:
        given["sources"] = context.sources()
    try:
        return verb(context.memory.files(context.files_name), **given)
    except (InvalidInput, LimitExceeded, NotFound) as error:
        raise ToolRefused(str(error)) from error


_HINTS: Final = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": False}
_TOOL: Final = FunctionTool("memory", _DESCRIPTION, _SCHEMA, _run, annotations=_HINTS, anthropic_type="memory_20250818")


def files_tool() -> FunctionTool:
    """Return the tool ``memory``, to be registered beside the built-in ones: ``memory.tools.register(files_tool())``.

    It keeps files under ``/memories`` in the log, those of ``memory.files()`` unless the context names others. Models
    of Anthropic know it by its type; others get a schema. What it refuses comes back with the outcome
    ``invalid_input`` and a message in the words that those models were trained on.
    """
    return _TOOL
