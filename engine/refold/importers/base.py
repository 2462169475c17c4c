"""Parts of every importer: sources and their formats, dates, JSON documents, metadata."""

import datetime as dates
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from refold.errors import EmbeddingMismatch, InvalidInput, LimitExceeded
from refold.limits import DOCUMENT_BYTES_MAX


@contextmanager
def located(place: str, changed: str = "") -> Generator[None]:
    """Raise errors with their place first; ``changed`` is the text for a request id that was used otherwise."""
    try:
        yield
    except (InvalidInput, LimitExceeded, EmbeddingMismatch) as error:
        text = changed if changed and "request_id was used" in str(error) else str(error)
        raise type(error)(f"{place}: {text}") from error


class SourceMessage(Struct, frozen=True):
    """A message of a source; whether its values are sound is decided where it is appended."""

    role: Any
    content: Any
    name: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    occurred_ns: int | None = None
    metadata: dict[str, Any] | None = None


class SourceConversation(Struct, frozen=True):
    """A conversation of a source: the line it begins in, and the source's own id where it has one.

    ``place`` is its place in a file that is one document, whose lines mean nothing.
    """

    line: int
    own_id: str | None
    project: str | None
    messages: Iterator[SourceMessage]
    place: str = ""

    @property
    def where(self) -> str:
        """Where in its file the conversation begins."""
        return self.place or f"line {self.line}"


class SessionFormat(NamedTuple):
    """A format of sessions: its name, whether a file that begins with some bytes is of it, and its reader.

    The reader holds one document in RAM; its ``InvalidInput`` names the place of what is malformed.
    """

    name: str
    recognises: Callable[[bytes], bool]
    conversations: Callable[[BinaryIO], Iterator[SourceConversation]]


class SourceMemory(Struct, frozen=True):
    """A memory of a source; whether its values are sound is decided where it is added."""

    place: str
    """Its place in its file, for messages."""
    key: str
    """Its name within its file, however the file grows."""
    content: Any
    category: Any = "fact"
    keywords: Any = None
    importance: Any = 0.5
    status: Any = "active"
    metadata: dict[str, Any] | None = None
    source: str | None = None
    """The session that it comes from."""
    vector: Any = None
    occurred_ns: int | None = None
    project: str | None = None
    """The source's own project; ``None`` leaves it to the caller."""
    turns: tuple[str, ...] = ()
    """The ids of the turns that say it, in the conversation of the same file whose id is the project's."""


class MemoryFormat(NamedTuple):
    """A format of memories, as ``SessionFormat``; its reader checks a whole document before the first memory."""

    name: str
    recognises: Callable[[bytes], bool]
    memories: Callable[[Path], Iterator[SourceMemory]]


# Dates as sources write them: ISO 8601, seconds or milliseconds since 1970, and the words of two benchmarks.

_EPOCH: Final = dates.datetime(1970, 1, 1, tzinfo=dates.UTC)

# The size of a number decides. What lies below the first bound would be a moment before March 1973; there it is
# far more likely a duration or a counter. The same digits are seconds until the year 5138, and milliseconds above.
_SECONDS_FROM: Final = 10**8
_MILLISECONDS_FROM: Final = 10**11
_MILLISECONDS_BELOW: Final = 10**14

# Months by their English names, whatever the language of the machine is.
_MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH: Final = r"(?P<month>[A-Za-z]{3,9})"
_SPOKEN: Final = re.compile(
    rf"(?P<hour>\d{{1,2}}):(?P<minute>\d\d)\s*(?P<half>[ap]m)\s+on\s+(?P<day>\d{{1,2}})\s+{_MONTH},?\s+(?P<year>\d{{4}})",
    re.ASCII | re.IGNORECASE,
)
_ANCHOR: Final = re.compile(rf"{_MONTH}-(?P<day>\d{{1,2}})-(?P<year>\d{{4}})", re.ASCII)
_NOON_HOURS: Final = 12


def occurred_ns(value: object) -> int | None:
    """Return a date in nanoseconds since 1970, ``None`` if it is none; without a time zone it is taken as UTC."""
    if isinstance(value, str):
        try:
            moment = dates.datetime.fromisoformat(value.strip())
        except ValueError:
            return None
        return _since_epoch_ns(moment if moment.tzinfo is not None else moment.replace(tzinfo=dates.UTC))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if _SECONDS_FROM <= value < _MILLISECONDS_FROM:
        return round(value * 1_000_000) * 1_000
    return round(value * 1_000) * 1_000 if _MILLISECONDS_FROM <= value < _MILLISECONDS_BELOW else None


def _since_epoch_ns(moment: dates.datetime) -> int:
    return (moment - _EPOCH) // dates.timedelta(microseconds=1) * 1_000


def spoken_ns(value: object) -> int | None:
    """Return a moment such as ``1:56 pm on 8 May, 2023`` in nanoseconds since 1970, as UTC; ``None`` for any other."""
    found = _SPOKEN.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return None
    hour = int(found["hour"])
    if not 1 <= hour <= _NOON_HOURS:
        return None
    hours = hour % _NOON_HOURS + (_NOON_HOURS if found["half"].lower() == "pm" else 0)
    return _on_day(found, hours, int(found["minute"]))


def anchor_ns(value: object) -> int | None:
    """Return the beginning of a day such as ``March-15-2024`` in nanoseconds since 1970, as UTC, or ``None``."""
    found = _ANCHOR.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if found is None else _on_day(found, 0, 0)


def _on_day(found: re.Match[str], hour: int, minute: int) -> int | None:
    try:
        month = 1 + _MONTHS.index(found["month"][:3].lower())
        moment = dates.datetime(int(found["year"]), month, int(found["day"]), hour, minute, tzinfo=dates.UTC)
    except ValueError:
        return None
    return _since_epoch_ns(moment)


# JSON out of files: one value a line, or one value in all.

_MARK: Final = b"\xef\xbb\xbf"
_DECODE: Final = msgspec.json.Decoder().decode

ITEM: Final = "[]"
"""In a path, the items of a list."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?(\s*+:)?|[\[\]{}]', re.DOTALL)
_OPENING: Final = frozenset((b"{", b"["))
_CLOSING: Final = frozenset((b"}", b"]"))
_PATH_DEPTH_MAX: Final = 8


def lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Return each line that is not empty with its number; a document spread over lines is read whole."""
    number = 0
    is_first = True
    while line := _read(file, number + 1, is_whole=False):
        number += 1
        text = line.removeprefix(_MARK).strip()
        if not text:
            continue
        # A line that ends so is no JSON by itself: this is one document, written for the eye.
        if is_first and text.endswith((b"[", b"{", b",", b":")):
            text += b"\n" + _read(file, number, is_whole=True)
        is_first = False
        yield number, text


def whole(file: BinaryIO) -> Any:
    """Return the one JSON value that a file holds."""
    text = _read(file, 1, is_whole=True).removeprefix(_MARK).strip()
    if not text:
        raise InvalidInput("the file is empty; give one that holds a session")
    return decoded(text, "the file is no JSON", "get it again, whole, and import again")


def decoded(text: bytes, problem: str, advice: str) -> Any:
    """Return the value of a JSON text; ``InvalidInput`` says the problem, what the parser found, and the advice."""
    try:
        return _DECODE(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"{problem} ({error}); {advice}") from error


def _read(file: BinaryIO, line: int, *, is_whole: bool) -> bytes:
    text = file.read(DOCUMENT_BYTES_MAX + 1) if is_whole else file.readline(DOCUMENT_BYTES_MAX + 1)
    if len(text) > DOCUMENT_BYTES_MAX:
        raise LimitExceeded(
            f"line {line} begins a document over DOCUMENT_BYTES_MAX = {DOCUMENT_BYTES_MAX:,} bytes, all of which "
            f"would be held in RAM; write one conversation a line, or split the file"
        )
    return text


def paths(head: bytes) -> Iterator[tuple[str, ...]]:
    """Return the path of every key in the beginning of a JSON text, which may be cut off anywhere."""
    inside: list[tuple[str, bool]] = []
    key = ""
    for token in _TOKEN.finditer(head):
        text = token.group()
        if text in _OPENING:
            is_item = bool(inside) and inside[-1][1]
            inside.append((ITEM if is_item else key, text == b"["))
        elif text in _CLOSING:
            del inside[-1:]
        elif token.group(1) is not None:
            key = text[1 : text.rindex(b'"')].decode(errors="replace")
            if len(inside) <= _PATH_DEPTH_MAX:
                yield (*(label for label, _ in inside[1:]), key)


# Fields that the log has not: they go into a message's metadata, so that every field of a source is found again.

Fields: TypeAlias = dict[str, Any]

FIELDS: Final = ("role", "content", "name", "tool_calls", "tool_call_id")
"""The fields of a source's message that a message of the log has as well."""

SOURCE_KEY: Final = "source"
"""In the first message's metadata: the fields of the conversation itself."""

EXCEPTIONS_KEY: Final = "openai_fields"
"""In a message's metadata, where it was unusual: which fields were ``absent``, and which were there as ``null``."""

COLLISIONS_KEY: Final = "message"
"""In a message's metadata: fields of the message that have the name of one that an importer adds."""

_RESERVED: Final = frozenset((SOURCE_KEY, EXCEPTIONS_KEY, COLLISIONS_KEY))


def source_message(
    message: Fields, rest: Fields, added: Fields, *, occurred_ns: int | None = None, tool_call_id: Any = None
) -> SourceMessage:
    """Return a message whose metadata has its other fields (``rest``) and those that the importer adds."""
    own_id = message.get("tool_call_id")
    return SourceMessage(
        message["role"],
        message.get("content"),
        name=message.get("name"),
        tool_calls=message.get("tool_calls"),
        tool_call_id=tool_call_id if own_id is None else own_id,
        occurred_ns=occurred_ns,
        metadata=metadata(rest, added | {EXCEPTIONS_KEY: _exceptions(message) or None}) or None,
    )


def metadata(rest: Fields, added: Fields) -> Fields:
    """Join the fields of a message and those that are added to it, without ``None`` among the latter."""
    reserved = _RESERVED | added.keys()
    collisions = {key: value for key, value in rest.items() if key in reserved}
    ours = added | {COLLISIONS_KEY: collisions or None}
    others = {key: value for key, value in rest.items() if key not in reserved}
    return others | {key: value for key, value in ours.items() if value is not None}


def others(message: Fields) -> Fields:
    """Return the fields of a source's message that a message of the log has no place for."""
    return {key: value for key, value in message.items() if key not in FIELDS}


def _exceptions(message: Fields) -> Fields:
    """Return where a message differs from how it would be rendered: content is always there, other nulls never."""
    absent = [] if "content" in message else ["content"]
    null = [field for field in ("name", "tool_calls", "tool_call_id") if message.get(field, "") is None]
    return {key: fields for key, fields in (("absent", absent), ("null", null)) if fields}
