"""OpenAI chat messages: JSONL with one conversation a line, or one JSON document that is a single conversation.

A conversation is a list of messages, or an object that holds one under ``messages``, ``traj`` or ``conversation``.
What the log has no field for is kept in metadata, so that ``rendered`` gives every message back as it was.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, TypeAlias, cast

import msgspec

from refold import Message
from refold.errors import InvalidInput
from refold.memory.formats import openai
from refold.recorders.dates import occurred_ns
from refold.recorders.protocol import SourceConversation, SourceMessage

_LIST_KEYS: Final = ("messages", "traj", "conversation")
_ID_KEYS: Final = ("id", "conversation_id", "session_id", "thread_id")
_DATE_KEYS: Final = ("created_at", "timestamp", "time")
_FIELDS: Final = ("role", "content", "name", "tool_calls", "tool_call_id")

SOURCE_KEY: Final = "source"
"""In the first message's metadata: the fields of the conversation itself."""

EXCEPTIONS_KEY: Final = "openai_fields"
"""In a message's metadata, where it was unusual: which fields were ``absent``, and which were there as ``null``."""

COLLISIONS_KEY: Final = "message"
"""In a message's metadata: fields of the message that have one of these three names."""

_RESERVED: Final = frozenset((SOURCE_KEY, EXCEPTIONS_KEY, COLLISIONS_KEY))
_MARK: Final = b"\xef\xbb\xbf"
_Fields: TypeAlias = dict[str, Any]
_DECODE: Final[Callable[[bytes], _Fields | list[Any]]] = msgspec.json.Decoder(dict[str, Any] | list[Any]).decode
_LIST: Final = re.compile(rb'"(?:messages|traj|conversation)"\s*:\s*\[')


class OpenAIRecorder:
    """Reads OpenAI chat messages."""

    name = "openai"

    def recognises(self, head: bytes) -> bool:
        """Return whether the bytes begin a list, or an object that holds one, of things with a role."""
        begin = head.removeprefix(_MARK).lstrip()[:1]
        return b'"role"' in head and (begin == b"[" or (begin == b"{" and _LIST.search(head) is not None))

    def conversations(self, file: BinaryIO) -> Iterator[SourceConversation]:
        """Return the conversations of a file."""
        for line, document in _documents(file):
            yield _conversation(line, document)


OPENAI: Final = OpenAIRecorder()


def _documents(file: BinaryIO) -> Iterator[tuple[int, _Fields | list[Any]]]:
    """Return each line's value with its number; a document spread over lines is read whole."""
    is_first = True
    for number, line in enumerate(file, 1):
        text = line.removeprefix(_MARK).strip()
        if not text:
            continue
        # A line that ends so is no JSON by itself: this is one document, written for the eye.
        if is_first and text.endswith((b"[", b"{", b",", b":")):
            text += b"\n" + file.read()
        is_first = False
        yield number, _decoded(text, number)


def _decoded(text: bytes, line: int) -> _Fields | list[Any]:
    try:
        return _DECODE(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"line {line} is no conversation in JSON ({error}); mend the line or remove it, and import again"
        raise InvalidInput(message) from error


def _conversation(line: int, document: _Fields | list[Any]) -> SourceConversation:
    if isinstance(document, list):
        return SourceConversation(line, None, None, _messages(line, document, {}))
    key = next((key for key in _LIST_KEYS if isinstance(document.get(key), list)), None)
    if key is None:
        keys = ", ".join(_LIST_KEYS)
        message = f"line {line} is no conversation; give a list of messages, or an object with one under {keys}"
        raise InvalidInput(message)
    messages = document.pop(key)
    own_id = _own_id(document)
    return SourceConversation(line, own_id, None, _messages(line, messages, document))


def _own_id(fields: _Fields) -> str | None:
    """Take the source's own id out of a conversation's fields."""
    for key in _ID_KEYS:
        value = fields.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
            return str(fields.pop(key))
    return None


def _messages(line: int, messages: list[Any], fields: _Fields) -> Iterator[SourceMessage]:
    began_ns = next((ns for key in _DATE_KEYS if (ns := occurred_ns(fields.get(key))) is not None), None)
    for place, message in enumerate(messages, 1):
        if not isinstance(message, dict) or "role" not in message:
            problem = f"line {line}, message {place} has no role; give an object with role and content"
            raise InvalidInput(problem)
        yield _message(cast("_Fields", message), fields if place == 1 else {}, began_ns)


def _message(message: _Fields, conversation: _Fields, began_ns: int | None) -> SourceMessage:
    rest = {key: value for key, value in message.items() if key not in _FIELDS}
    moment_ns = _take_date(rest)
    return SourceMessage(
        message["role"],
        message.get("content"),
        name=message.get("name"),
        tool_calls=message.get("tool_calls"),
        tool_call_id=message.get("tool_call_id"),
        occurred_ns=began_ns if moment_ns is None else moment_ns,
        metadata=_metadata(rest, conversation, _exceptions(message)) or None,
    )


def _take_date(fields: _Fields) -> int | None:
    """Take the first field that is a date out of a message's fields; what only has the name of one stays."""
    for key in _DATE_KEYS:
        moment_ns = occurred_ns(fields.get(key))
        if moment_ns is not None:
            del fields[key]
            return moment_ns
    return None


def _metadata(rest: _Fields, conversation: _Fields, exceptions: _Fields) -> _Fields:
    metadata = {key: value for key, value in rest.items() if key not in _RESERVED}
    collisions = {key: value for key, value in rest.items() if key in _RESERVED}
    ours = {SOURCE_KEY: conversation, EXCEPTIONS_KEY: exceptions, COLLISIONS_KEY: collisions}
    return metadata | {key: value for key, value in ours.items() if value}


def _exceptions(message: _Fields) -> _Fields:
    """Return where a message differs from how it would be rendered: content is always there, other nulls never."""
    absent = [] if "content" in message else ["content"]
    null = [field for field in ("name", "tool_calls", "tool_call_id") if message.get(field, "") is None]
    return {key: fields for key, fields in (("absent", absent), ("null", null)) if fields}


def rendered(message: Message) -> _Fields:
    """Return a message as it was imported: what was absent is absent, what was null is null."""
    (fields,) = openai([message])
    exceptions = (message.metadata or {}).get(EXCEPTIONS_KEY)
    if isinstance(exceptions, dict):
        fields |= dict.fromkeys(_names(cast("_Fields", exceptions).get("null")))
        for field in _names(cast("_Fields", exceptions).get("absent")):
            fields.pop(field, None)
    return fields


def _names(listed: object) -> list[str]:
    """Return the fields that are listed; metadata is anybody's, so it may hold anything."""
    return [field for field in _FIELDS if isinstance(listed, list) and field in listed]
