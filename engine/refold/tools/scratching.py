"""``memory_write`` and ``memory_read``: a conversation's scratchpad in the hands of a model.

The order of checks, the texts and the shapes of results are those that models and their prompts know already.
"""

from collections.abc import Callable
from typing import Any, Final

from refold import checks
from refold.memory.conversation import Conversation
from refold.tools.protocol import ToolContext, ToolFailed


def write(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Do what ``action`` says; a call that is refused appends nothing."""
    action = _text(arguments, "action")
    if action is None:
        checks.invalid("missing required field: action")
    chat = _conversation(context)
    if action not in _ACTIONS:
        checks.invalid(f"unknown action: '{checks.shown(action)[1:-1]}'. Valid actions: {', '.join(_ACTIONS)}")
    return {"status": "ok", "action": action} | _ACTIONS[action](arguments, chat)


def read(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Return a key's value, or the whole scratchpad; nothing is written."""
    chat = _conversation(context)
    key = _text(arguments, "key")
    if key is None:
        pad = chat.scratchpad()
        return {"entries": pad.entries, "notes": pad.notes}
    value = chat.get(key) if key else None
    return {"key": key, "value": value} | ({"message": "not found"} if value is None else {})


def _conversation(context: ToolContext) -> Conversation:
    if context.conversation is None:
        message = "missing conversation context"
        raise ToolFailed(message)
    return context.conversation


def _text(arguments: dict[str, Any], field: str) -> str | None:
    """Return a field that is a text; any other value counts as missing."""
    value = arguments.get(field)
    return value if isinstance(value, str) else None


def _required(arguments: dict[str, Any], action: str, field: str) -> str:
    value = _text(arguments, field)
    if value is None:
        checks.invalid(f"{action} requires '{field}'")
    return value


def _set(arguments: dict[str, Any], chat: Conversation) -> dict[str, Any]:
    key, value = _required(arguments, "set", "key"), _required(arguments, "set", "value")
    chat.set(key, value, sources=chat.session.provenance(opens=False))
    return {"key": key, "value": value}


def _note(arguments: dict[str, Any], chat: Conversation) -> dict[str, Any]:
    chat.note(_required(arguments, "note", "value"), sources=chat.session.provenance(opens=False))
    return {}


def _delete(arguments: dict[str, Any], chat: Conversation) -> dict[str, Any]:
    key = _required(arguments, "delete", "key")
    return {"key": key, "existed": chat.delete(key, sources=chat.session.provenance(opens=False))}


def _clear(_: dict[str, Any], chat: Conversation) -> dict[str, Any]:
    chat.clear(sources=chat.session.provenance(opens=False))
    return {}


_ACTIONS: Final[dict[str, Callable[[dict[str, Any], Conversation], dict[str, Any]]]] = {
    "set": _set,
    "note": _note,
    "delete": _delete,
    "clear": _clear,
}
