"""Memories in JSON: one a line, a list, or an object that holds a list; refold's own entries, and what others write.

What an entry of refold has no field for is kept in its metadata under ``source``. Erased entries, which have nothing to
say, are left out.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from refold.errors import InvalidInput
from refold.limits import TIME_NS_MAX
from refold.recorders.dates import occurred_ns
from refold.recorders.documents import ITEM, decoded, lines, paths
from refold.recorders.keeping import SOURCE_KEY, Fields, metadata
from refold.recorders.openai import OPENAI
from refold.recorders.protocol import SourceMemory

_LIST_KEYS: Final = ("memories", "entries", "results", "facts")
_CONTENT_KEYS: Final = ("content", "memory", "text", "fact")
_SESSION_KEYS: Final = ("source", "session", "session_id", "source_session_id")
_VECTOR_KEYS: Final = ("vector", "embedding")
_NS_KEYS: Final = ("occurred_ns", "created_ns")
_DATE_KEYS: Final = ("occurred", "created_at", "timestamp", "time")
_PLAIN_KEYS: Final = ("category", "keywords", "importance", "status")
_MARKS: Final = frozenset(
    (*prefix, key) for prefix in ((), (ITEM,), *((name, ITEM) for name in _LIST_KEYS)) for key in _CONTENT_KEYS
)


class JsonMemoryReader:
    """Reads memories in JSON."""

    name = "memories"

    def recognises(self, head: bytes) -> bool:
        """Return whether the bytes begin things that have a content, and are no messages."""
        found = _MARKS.intersection(paths(head))
        # A message has a content as well; it has none of the other names, whatever role mem0 notes of a memory.
        return any(path[-1] != "content" for path in found) or (bool(found) and not OPENAI.recognises(head))

    def memories(self, path: Path) -> Iterator[SourceMemory]:
        """Return the memories of a file, all of which are checked before the first is given."""
        with path.open("rb") as file:
            found = [memory for line, text in lines(file) for memory in _of_line(line, text)]
        keys: dict[str, str] = {}
        for memory in found:
            if keys.setdefault(memory.key, memory.place) != memory.place:
                message = f"{memory.place} has the id of {keys[memory.key]}; give each memory an id of its own, or none"
                raise InvalidInput(message)
        yield from found


JSON_MEMORIES: Final = JsonMemoryReader()


def _of_line(line: int, text: bytes) -> Iterator[SourceMemory]:
    advice = "mend the line or remove it, and import again"
    document = decoded(text, f"line {line} is no memory in JSON", advice)
    listed = _listed(document)
    if listed is None:
        yield from _memory(f"line {line}", str(line), document)
        return
    for number, item in enumerate(listed, 1):
        yield from _memory(f"line {line}, memory {number}", f"{line}/{number}", item)


def _listed(document: object) -> list[object] | None:
    """Return the list of memories that a document is or holds, ``None`` if it is one memory."""
    if isinstance(document, list):
        return cast("list[object]", document)
    fields = cast("Fields", document) if isinstance(document, dict) else {}
    key = next((key for key in _LIST_KEYS if isinstance(fields.get(key), list)), None)
    return None if key is None else cast("list[object]", fields[key])


def _memory(place: str, key: str, item: object) -> Iterator[SourceMemory]:
    fields = {"content": item} if isinstance(item, str) else item
    rest = dict(cast("Fields", fields)) if isinstance(fields, dict) else {}
    if rest.get("erased") is True:
        return
    content = _take(rest, _CONTENT_KEYS, str)
    if content is None:
        keys = ", ".join(_CONTENT_KEYS)
        message = f"{place} is no memory; give a text, or an object with one under {keys}"
        raise InvalidInput(message)
    own_id = rest.get("id")
    plain = {name: rest.pop(name) for name in _PLAIN_KEYS if rest.get(name) is not None}
    source = _take(rest, _SESSION_KEYS, str)
    vector = _take(rest, _VECTOR_KEYS, list)
    moment_ns = _take_moment(rest)
    project = _take(rest, ("project",), str)
    own: Fields = _take(rest, ("metadata",), dict) or {}
    yield SourceMemory(
        place,
        f"id/{own_id}" if isinstance(own_id, (str, int)) and not isinstance(own_id, bool) else key,
        content,
        metadata=metadata(own, {SOURCE_KEY: _said(rest) or None}) or None,
        source=source,
        vector=vector,
        occurred_ns=moment_ns,
        project=project,
        **plain,
    )


def _take(fields: Fields, keys: tuple[str, ...], kind: type) -> Any:
    """Take the first field that is of a kind, and not empty, out of a memory's fields."""
    key = next((key for key in keys if isinstance(fields.get(key), kind) and fields[key]), None)
    return None if key is None else fields.pop(key)


def _take_moment(fields: Fields) -> int | None:
    """Take the first field that says when it happened, or else when it was made."""
    for key in _NS_KEYS:
        value = fields.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= TIME_NS_MAX:
            del fields[key]
            return value
    for key in _DATE_KEYS:
        moment_ns = occurred_ns(fields.get(key))
        if moment_ns is not None:
            # The text of a date says more than its moment: its zone, and how precise it is.
            return moment_ns
    return None


def _said(fields: Fields) -> Fields:
    """Return the fields that say something."""
    return {key: value for key, value in fields.items() if value is not None}
