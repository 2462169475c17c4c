"""The tools of what outlives a conversation: the profile, a project's memories, the journal."""

from typing import Any, Final

from refold import checks
from refold.errors import NotFound
from refold.results import Hits
from refold.tools.protocol import ToolContext

_TOP_COUNT: Final = 10
_SCORE_DIGITS: Final = 4


def set_fact(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Set a fact of the profile."""
    key, value = arguments["key"], arguments["value"]
    context.memory.profile(context.profile_name).set(key, value, sources=context.sources())
    return {"status": "ok", "key": key, "value": value}


def delete_fact(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Remove a fact of the profile; say whether it was there."""
    key, profile = arguments["key"], context.memory.profile(context.profile_name)
    return {"status": "ok", "key": key, "existed": profile.delete(key, sources=context.sources())}


def add(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Add a memory to the project, made in the conversation that the host named."""
    content = _filled(arguments, "content")
    source = None if context.conversation is None else context.conversation.id
    entry = context.project.add(
        content,
        category=arguments.get("category") or "fact",
        keywords=arguments.get("keywords"),
        importance=_given(arguments, "importance", 0.5),
        source=source,
        sources=context.sources(opens=False),
    )
    return {"status": "ok", "id": entry.id, "message": "Memory saved successfully"}


def search(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Recall memories of the project: what a model was shown is recorded."""
    return _shown(context.project.recall(**_asked(arguments), conversation=context.conversation))


def look(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Find memories of the project as ``search`` does, without a trace: for a memory that is only read."""
    return _shown(context.project.search(**_asked(arguments)))


def _asked(arguments: dict[str, Any]) -> dict[str, Any]:
    category = arguments.get("category")
    return {
        "query": arguments["query"],
        "top_k": _given(arguments, "top_k", _TOP_COUNT),
        "categories": None if category is None else [category],
    }


def _shown(hits: Hits) -> dict[str, Any]:
    found = [
        {
            "id": hit.entry.id,
            "category": hit.entry.category,
            "content": hit.entry.content,
            "importance": round(hit.entry.importance, _SCORE_DIGITS),
            "score": round(hit.score, _SCORE_DIGITS),
        }
        for hit in hits
    ]
    return {"memories": found}


def update(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Change what is given of a memory of the project."""
    wanted = {field: arguments[field] for field in _CHANGEABLE if arguments.get(field) is not None}
    if not wanted:
        checks.invalid(f"nothing to change; give one of {', '.join(_CHANGEABLE)}")
    if "content" in wanted:
        _filled(arguments, "content")
    memory_id = _known(arguments, context)
    context.project.update(memory_id, **wanted, sources=context.sources())
    return {"status": "ok", "id": memory_id}


def forget(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Remove a memory of the project; the log keeps it until it is erased."""
    memory_id = _known(arguments, context)
    context.project.delete(memory_id, sources=context.sources(opens=False))
    return {"status": "ok", "id": memory_id}


def append_note(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Append a note to today's page of the journal."""
    text = _filled(arguments, "text")
    note = context.memory.journal(context.journal_name).append(text, sources=context.sources())
    return {"status": "ok", "day": note.day}


_CHANGEABLE: Final = ("content", "category", "importance", "keywords")


def _given(arguments: dict[str, Any], field: str, default: Any) -> Any:
    value = arguments.get(field)
    return default if value is None else value


def _filled(arguments: dict[str, Any], field: str) -> str:
    """Return a text that says something."""
    value: str = arguments[field]
    if not value.strip():
        checks.invalid(f"{field} must not be empty")
    return value


def _known(arguments: dict[str, Any], context: ToolContext) -> str:
    memory_id: str = arguments["id"]
    if not memory_id or context.project.get(memory_id) is None:
        message = f"Memory not found: {checks.shown(memory_id)[1:-1]}"
        raise NotFound(message)
    return memory_id
