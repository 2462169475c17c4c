"""OpenAI chat messages: JSONL with one conversation a line, or one JSON document that is a single conversation.

A conversation is a list of messages, or an object that holds one under ``messages``, ``traj`` or ``conversation``.
What the log has no field for is kept in metadata, so that ``rendered`` gives every message back as it was.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

from refold import Message
from refold.errors import InvalidInput
from refold.memory.formats import openai
from refold.recorders.dates import occurred_ns
from refold.recorders.documents import ITEM, decoded, lines, paths
from refold.recorders.keeping import EXCEPTIONS_KEY, FIELDS, SOURCE_KEY, Fields, others, source_message
from refold.recorders.protocol import SourceConversation, SourceMessage

_LIST_KEYS: Final = ("messages", "traj", "conversation")
_ID_KEYS: Final = ("id", "conversation_id", "session_id", "thread_id")
_DATE_KEYS: Final = ("created_at", "timestamp", "time")
_MARKS: Final = frozenset({(ITEM, "role"), *((key, ITEM, "role") for key in _LIST_KEYS)})


class OpenAIRecorder:
    """Reads OpenAI chat messages."""

    name = "openai"

    def recognises(self, head: bytes) -> bool:
        """Return whether the bytes begin a list, or an object that holds one, of things with a role."""
        return not _MARKS.isdisjoint(paths(head))

    def conversations(self, file: BinaryIO) -> Iterator[SourceConversation]:
        """Return the conversations of a file."""
        for line, text in lines(file):
            advice = "mend the line or remove it, and import again"
            yield _conversation(line, decoded(text, f"line {line} is no conversation in JSON", advice))


OPENAI: Final = OpenAIRecorder()


def _conversation(line: int, document: object) -> SourceConversation:
    if isinstance(document, list):
        return SourceConversation(line, None, None, _messages(line, cast("list[object]", document), {}))
    fields = cast("Fields", document) if isinstance(document, dict) else {}
    key = next((key for key in _LIST_KEYS if isinstance(fields.get(key), list)), None)
    if key is None:
        keys = ", ".join(_LIST_KEYS)
        message = f"line {line} is no conversation; give a list of messages, or an object with one under {keys}"
        raise InvalidInput(message)
    messages = fields.pop(key)
    own_id = _own_id(fields)
    return SourceConversation(line, own_id, None, _messages(line, messages, fields))


def _own_id(fields: Fields) -> str | None:
    """Take the source's own id out of a conversation's fields."""
    for key in _ID_KEYS:
        value = fields.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
            return str(fields.pop(key))
    return None


def _messages(line: int, messages: list[Any], fields: Fields) -> Iterator[SourceMessage]:
    began_ns = next((ns for key in _DATE_KEYS if (ns := occurred_ns(fields.get(key))) is not None), None)
    for place, message in enumerate(messages, 1):
        if not isinstance(message, dict) or "role" not in message:
            problem = f"line {line}, message {place} has no role; give an object with role and content"
            raise InvalidInput(problem)
        yield _message(cast("Fields", message), fields if place == 1 else {}, began_ns)


def _message(message: Fields, conversation: Fields, began_ns: int | None) -> SourceMessage:
    rest = others(message)
    moment_ns = _take_date(rest)
    occurred = began_ns if moment_ns is None else moment_ns
    return source_message(message, rest, {SOURCE_KEY: conversation or None}, occurred_ns=occurred)


def _take_date(fields: Fields) -> int | None:
    """Take the first field that is a date out of a message's fields; what only has the name of one stays."""
    for key in _DATE_KEYS:
        moment_ns = occurred_ns(fields.get(key))
        if moment_ns is not None:
            del fields[key]
            return moment_ns
    return None


def rendered(message: Message) -> Fields:
    """Return a message as it was imported: what was absent is absent, what was null is null."""
    (fields,) = openai([message])
    exceptions = (message.metadata or {}).get(EXCEPTIONS_KEY)
    if isinstance(exceptions, dict):
        fields |= dict.fromkeys(_names(cast("Fields", exceptions).get("null")))
        for field in _names(cast("Fields", exceptions).get("absent")):
            fields.pop(field, None)
    return fields


def _names(listed: object) -> list[str]:
    """Return the fields that are listed; metadata is anybody's, so it may hold anything."""
    return [field for field in FIELDS if isinstance(listed, list) and field in listed]
