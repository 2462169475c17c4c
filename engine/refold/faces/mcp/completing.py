"""Completion: the ids and days that begin with what a person has written so far."""

from collections.abc import Callable
from typing import Final

from mcp import types

from refold.faces.mcp import addresses, contents
from refold.faces.mcp.binding import Binding
from refold.faces.mcp.limits import LISTED_COUNT_MAX
from refold.limits import NAME_BYTES_MAX


def completed(binding: Binding, params: types.CompleteRequestParams) -> types.Completion:
    """Return what may stand for an argument of a template; of any other argument there is nothing to say."""
    reference, argument = params.ref, params.argument
    find = None
    if isinstance(reference, types.ResourceTemplateReference):
        find = _FINDERS.get((reference.uri, argument.name))
    found = [] if find is None else find(binding, argument.value)
    return types.Completion(values=found[:LISTED_COUNT_MAX], has_more=len(found) > LISTED_COUNT_MAX)


def _conversations(binding: Binding, text: str) -> list[str]:
    if binding.conversation is not None:
        return [name for name in [binding.conversation] if name.startswith(text)]
    memory = binding.memory
    return _beginning(memory.conversations, text, is_one=lambda: memory.conversation(text).version > 0)


def _projects(binding: Binding, text: str) -> list[str]:
    if binding.project is not None:
        return [name for name in [binding.project] if name.startswith(text)]
    memory = binding.memory
    return _beginning(memory.projects, text, is_one=lambda: contents.is_project(memory, text))


def _beginning(ids: Callable[..., list[str]], text: str, *, is_one: Callable[[], bool]) -> list[str]:
    """Return the ids that begin with a text: itself if it is one, and behind it, sorted as they are, the others."""
    if not text:
        return ids(limit=LISTED_COUNT_MAX + 1)
    if len(text.encode()) > NAME_BYTES_MAX:
        return []
    found = [text] if is_one() else []
    return found + [name for name in ids(after=text, limit=LISTED_COUNT_MAX + 1) if name.startswith(text)]


def _days(binding: Binding, text: str) -> list[str]:
    return [day for day in contents.days(binding) if day.startswith(text)]


_FINDERS: Final[dict[tuple[str, str], Callable[[Binding, str], list[str]]]] = {
    **{(addresses.TEMPLATES[kind], "id"): _conversations for kind in addresses.CONVERSATION_KINDS},
    (addresses.TEMPLATES[addresses.MEMORIES], "id"): _projects,
    (addresses.TEMPLATES[addresses.NOTES], "date"): _days,
}
"""By the template and the name of its argument."""
