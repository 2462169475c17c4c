"""Formats of recorded sessions (SWE-agent, LoCoMo, BEAM, OpenAI chats), and the parts that every importer uses.

A conversation is a list of messages, or an object that holds one under ``messages``, ``traj`` or ``conversation``.
Fields that the log lacks go into metadata, so that ``render_message`` returns every message as it was.
"""

import datetime as dates
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Struct

from refold import Message, checks
from refold.errors import EmbeddingMismatch, InvalidInput, LimitExceeded
from refold.limits import DOCUMENT_BYTES_MAX
from refold.message import HEARD_KEY, INJECTED_KEY, ORIGINAL_KEY, WITHHELD_KEY


@contextmanager
def prefix_errors(place: str, changed: str = "") -> Generator[None]:
    """Prefix errors with their place; ``changed`` replaces the text for a request id that was used otherwise."""
    try:
        yield
    except (InvalidInput, LimitExceeded, EmbeddingMismatch) as error:
        text = changed if changed and "request_id was used" in str(error) else str(error)
        raise type(error)(f"{place}: {text}") from error


class SourceMessage(Struct, frozen=True):
    """A message of a source; its values are checked when it is appended."""

    role: Any
    content: Any
    name: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    occurred_ns: int | None = None
    metadata: dict[str, Any] | None = None


class SourceConversation(Struct, frozen=True):
    """A conversation of a source: the line on which it begins, and the source's own id, if it has one.

    ``place`` is its place in a file that is one document, in which lines mean nothing.
    """

    line: int
    own_id: str | None
    project: str | None
    messages: Iterator[SourceMessage]
    place: str = ""

    @property
    def where(self) -> str:
        """The place in its file where the conversation begins."""
        return self.place or f"line {self.line}"


class SessionFormat(NamedTuple):
    """A format of sessions: its name, whether a file that begins with some bytes is of it, and its reader.

    The reader holds one document in RAM; its ``InvalidInput`` names the place of malformed data.
    """

    name: str
    recognises: Callable[[bytes], bool]
    conversations: Callable[[BinaryIO], Iterator[SourceConversation]]


class SourceMemory(Struct, frozen=True):
    """A memory of a source; its values are checked when it is added."""

    place: str
    """Its place in its file, for error messages."""
    key: str
    """Its key within its file, which does not change as the file grows."""
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
    """The source's own project; ``None`` leaves the choice to the caller."""
    turns: tuple[str, ...] = ()
    """The ids of the turns that state it, in the conversation of the same file whose id is the project's."""


class MemoryFormat(NamedTuple):
    """A format of memories, like ``SessionFormat``; its reader checks a whole document before the first memory."""

    name: str
    recognises: Callable[[bytes], bool]
    memories: Callable[[Path], Iterator[SourceMemory]]


# Dates in the forms that sources use: ISO 8601, seconds or milliseconds since 1970, and the wording of two benchmarks.

_EPOCH: Final = dates.datetime(1970, 1, 1, tzinfo=dates.UTC)

# The size of a number decides. A number below the first bound would be a moment before March 1973, but is far more
# likely a duration or a counter. Other numbers are seconds until the year 5138, and milliseconds above.
_SECONDS_FROM: Final = 10**8
_MILLISECONDS_FROM: Final = 10**11
_MILLISECONDS_BELOW: Final = 10**14

# Months by their English names, regardless of the machine's language.
_MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH: Final = r"(?P<month>[A-Za-z]{3,9})"
_SPOKEN: Final = re.compile(
    rf"(?P<hour>\d{{1,2}}):(?P<minute>\d\d)\s*(?P<half>[ap]m)\s+on\s+(?P<day>\d{{1,2}})\s+{_MONTH},?\s+(?P<year>\d{{4}})",
    re.ASCII | re.IGNORECASE,
)
_ANCHOR: Final = re.compile(rf"{_MONTH}-(?P<day>\d{{1,2}})-(?P<year>\d{{4}})", re.ASCII)
_NOON_HOURS: Final = 12


def parse_date_ns(value: object) -> int | None:
    """Return a date in nanoseconds since 1970, ``None`` if it is not a date; without a time zone it is taken as UTC."""
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


def parse_locomo_ns(value: object) -> int | None:
    """Return a moment such as ``1:56 pm on 8 May, 2023`` in nanoseconds since 1970, as UTC, or ``None``."""
    match = _SPOKEN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    hour = int(match["hour"])
    if not 1 <= hour <= _NOON_HOURS:
        return None
    hours = hour % _NOON_HOURS + (_NOON_HOURS if match["half"].lower() == "pm" else 0)
    return _day_ns(match, hours, int(match["minute"]))


def parse_beam_ns(value: object) -> int | None:
    """Return the beginning of a day such as ``March-15-2024`` in nanoseconds since 1970, as UTC, or ``None``."""
    match = _ANCHOR.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if match is None else _day_ns(match, 0, 0)


def _day_ns(match: re.Match[str], hour: int, minute: int) -> int | None:
    try:
        month = 1 + _MONTHS.index(match["month"][:3].lower())
        moment = dates.datetime(int(match["year"]), month, int(match["day"]), hour, minute, tzinfo=dates.UTC)
    except ValueError:
        return None
    return _since_epoch_ns(moment)


# JSON from files: one value per line, or one value in all.

_MARK: Final = b"\xef\xbb\xbf"
_DECODE: Final = msgspec.json.Decoder().decode

ITEM: Final = "[]"
"""Stands for the items of a list in a path."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?(\s*+:)?|[\[\]{}]', re.DOTALL)
_OPENING: Final = frozenset((b"{", b"["))
_CLOSING: Final = frozenset((b"}", b"]"))
_PATH_DEPTH_MAX: Final = 8


def lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield each line that is not empty with its number; a document spread over lines is read whole."""
    number = 0
    is_first = True
    while line := _read(file, number + 1, is_whole=False):
        number += 1
        text = line.removeprefix(_MARK).strip()
        if not text:
            continue
        # A line with such an ending is not JSON by itself: the file is one document, formatted for people.
        if is_first and text.endswith((b"[", b"{", b",", b":")):
            text += b"\n" + _read(file, number, is_whole=True)
        is_first = False
        yield number, text


def ends_within_line(file: BinaryIO) -> bool:
    """Return whether the line read last is the last one of the file, and not written to its end yet."""
    if file.read(1):
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def read_json(file: BinaryIO) -> Any:
    """Return the only JSON value of a file."""
    text = _read(file, 1, is_whole=True).removeprefix(_MARK).strip()
    if not text:
        raise InvalidInput("the file is empty; give one that holds a session")
    return decode_json(text, "the file is no JSON", "get it again, whole, and import again")


def decode_json(text: bytes, problem: str, advice: str) -> Any:
    """Return the value of a JSON text; ``InvalidInput`` names the problem, the parser's error, and the advice."""
    try:
        return _DECODE(text)
    except checks.UNDECODABLE as error:
        halves = (each.group() for each in _ESCAPE.finditer(text) if each["half"])
        half = next(halves, None)
        # The parser calls half of a pair truncated input.
        reason = (
            error
            if half is None
            else f"{half.decode()} is a lone surrogate, half of a character; \\ufffd can replace it"
        )
        raise InvalidInput(f"{problem} ({reason}); {advice}") from error


_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""An escape in JSON; ``half`` is one half of a pair of surrogates without the other."""


def _remaining_bytes(file: BinaryIO) -> int:
    """Return the number of bytes left to read in a file, or the bound of a document if that is less."""
    begin = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(begin)
    return min(end - begin, DOCUMENT_BYTES_MAX)


def _read(file: BinaryIO, line: int, *, is_whole: bool) -> bytes:
    # Reads only as much as the file has, because reading up to the bound would allocate all of that first.
    text = file.read(_remaining_bytes(file) + 1) if is_whole else file.readline(DOCUMENT_BYTES_MAX + 1)
    if len(text) > DOCUMENT_BYTES_MAX:
        raise LimitExceeded(
            f"line {line} begins a document over DOCUMENT_BYTES_MAX = {DOCUMENT_BYTES_MAX:,} bytes, all of which "
            f"would be held in RAM; write one conversation a line, or split the file"
        )
    return text


def paths(head: bytes) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key in the beginning of a JSON text, which can be cut off anywhere."""
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


# Fields that the log does not have go into a message's metadata, so that every field of a source can be found again.

Fields: TypeAlias = dict[str, Any]

FIELDS: Final = ("role", "content", "name", "tool_calls", "tool_call_id")
"""The fields that a source's message and a message of the log both have."""

SOURCE_KEY: Final = "source"
"""The metadata key, in the first message, of the fields of the conversation itself."""

EXCEPTIONS_KEY: Final = "openai_fields"
"""The metadata key, in an unusual message, of the fields that were ``absent`` and of those that were ``null``."""

COLLISIONS_KEY: Final = "message"
"""The metadata key of the message's fields that have the name of one that an importer, or a hook, adds."""

_RESERVED: Final = frozenset(
    (SOURCE_KEY, EXCEPTIONS_KEY, COLLISIONS_KEY, HEARD_KEY, INJECTED_KEY, ORIGINAL_KEY, WITHHELD_KEY)
)


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
    """Join the fields of a message with those that are added to it, without added fields that are ``None``."""
    reserved = _RESERVED | added.keys()
    collisions = {key: value for key, value in rest.items() if key in reserved}
    ours = added | {COLLISIONS_KEY: collisions or None}
    others = {key: value for key, value in rest.items() if key not in reserved}
    return others | {key: value for key, value in ours.items() if value is not None}


def other_fields(message: Fields) -> Fields:
    """Return the fields of a source's message for which a message of the log has no place."""
    return {key: value for key, value in message.items() if key not in FIELDS}


def _exceptions(message: Fields) -> Fields:
    """Return how a message differs from its rendered form, which always has a content and no other nulls."""
    absent = [] if "content" in message else ["content"]
    null = [field for field in ("name", "tool_calls", "tool_call_id") if message.get(field, "") is None]
    return {key: fields for key, fields in (("absent", absent), ("null", null)) if fields}


# SWE-agent trajectories: a ``.traj`` file is one run, its ``history`` of messages and its ``trajectory`` of steps.
#
# Each entry of the history is a message. A step goes to the message that it made, as ``step`` in that message's
# metadata. A step that left no message in the history is a message of its own, and its observation another one; both
# are marked ``in_history: false``.

STEP_KEY: Final = "step"
"""The metadata key, in an assistant message, of the trajectory's step that it belongs to, unchanged."""

IN_HISTORY_KEY: Final = "in_history"
"""The metadata key whose value is ``False`` if the message was made from a step alone."""

_IDS_KEY: Final = "tool_call_ids"
_LISTS: Final = ("history", "trajectory")
_TEXT_KEYS: Final = ("response", "thought", "action")
_SWE_AGENT_MARKS: Final = frozenset({("history", ITEM, "role"), *(("trajectory", ITEM, field) for field in _TEXT_KEYS)})


def _swe_agent(file: BinaryIO) -> Iterator[SourceConversation]:
    document = read_json(file)
    run = cast("Fields", document) if isinstance(document, dict) else {}
    history, steps = (_entries(run, key) for key in _LISTS)
    if not history and not steps:
        raise InvalidInput("the file has neither a history nor a trajectory; give a .traj file that SWE-agent wrote")
    source = {key: value for key, value in run.items() if key not in _LISTS or not value}
    yield SourceConversation(1, None, None, iter(_swe_agent_messages(history, steps, source)), "the run")


def _entries(run: Fields, key: str) -> list[Fields]:
    entries = run.get(key)
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise InvalidInput(f"{key} is no list; give a .traj file that SWE-agent wrote")
    for place, entry in enumerate(cast("list[object]", entries), 1):
        if not isinstance(entry, dict) or (key == "history" and "role" not in entry):
            raise InvalidInput(
                f"{key} {place} is no {'message with a role' if key == 'history' else 'step'}; mend or remove it"
            )
    return cast("list[Fields]", entries)


def _swe_agent_messages(history: list[Fields], steps: list[Fields], source: Fields) -> list[SourceMessage]:
    messages: list[SourceMessage] = []
    lone, made = _match_steps(history, steps)
    for place, entry in enumerate(history):
        messages += [message for step in lone.get(place, ()) for message in _step_messages(step, len(messages), source)]
        messages.append(_swe_agent_message(entry, made.get(place), {} if messages else source))
    for step in lone.get(len(history), ()):
        messages += _step_messages(step, len(messages), source)
    return messages


def _match_steps(history: list[Fields], steps: list[Fields]) -> tuple[dict[int, list[Fields]], dict[int, Fields]]:
    """Return the steps without a message in the history, by the place they precede, and the other steps by their place.

    A step is matched to the next assistant message with its text; both lists are in order.
    """
    lone: dict[int, list[Fields]] = {}
    made: dict[int, Fields] = {}
    waiting: list[Fields] = []
    begin = 0
    places_of: dict[object, list[int]] = {}
    for place, entry in enumerate(history):
        if entry["role"] == "assistant":
            places_of.setdefault(_text(entry.get("content")), []).append(place)
    for step in steps:
        places = places_of.get(step.get("response"), []) if isinstance(step.get("response"), str) else []
        number = bisect_left(places, begin)
        if number == len(places):
            waiting.append(step)
            continue
        place = places[number]
        if waiting:
            lone[place], waiting = waiting, []
        made[place] = step
        begin = place + 1
    if waiting:
        lone[len(history)] = waiting
    return lone, made


def _text(content: object) -> str:
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    texts = (cast("Fields", block).get("text") for block in blocks if isinstance(block, dict))
    return content if isinstance(content, str) else "".join(text for text in texts if isinstance(text, str))


def _swe_agent_message(entry: Fields, step: Fields | None, source: Fields) -> SourceMessage:
    ids = cast("list[object]", entry[_IDS_KEY]) if isinstance(entry.get(_IDS_KEY), list) else []
    only = ids[0] if len(ids) == 1 else None
    added = {SOURCE_KEY: source or None, STEP_KEY: step, IN_HISTORY_KEY: None}
    return source_message(entry, other_fields(entry), added, tool_call_id=only)


def _step_messages(step: Fields, before: int, source: Fields) -> Iterator[SourceMessage]:
    added = {SOURCE_KEY: None if before else source or None, STEP_KEY: step, IN_HISTORY_KEY: False}
    text = next((step[field] for field in _TEXT_KEYS if isinstance(step.get(field), str) and step[field]), "")
    yield SourceMessage("assistant", text, metadata=metadata({}, added))
    observation = step.get("observation")
    if isinstance(observation, str) and observation:
        yield SourceMessage("user", observation, metadata={IN_HISTORY_KEY: False})


# LoCoMo: a list of samples, each the talk of two people over many sessions.
#
# A sample is one conversation, in the project of its ``sample_id``; its first speaker is the user. The caption of an
# image follows a turn's text, as in the benchmark. A turn's metadata has its ``session``, its ``dia_id`` and its other
# fields; that of the first turn also has the sample's other fields under ``source``: questions, observations, summaries
# and dates.

_SESSION: Final = re.compile(r"session_([0-9]{1,9})\Z")
_OWN_FIELDS: Final = ("speaker", "text")
_ADVICE: Final = "give the benchmark's JSON file, or mend it"


def _locomo(file: BinaryIO) -> Iterator[SourceConversation]:
    """Yield the conversations of a file, after checking all of them."""
    yield from [_locomo_conversation(place, sample) for place, sample in samples(file)]


def samples(file: BinaryIO) -> Iterator[tuple[str, Fields]]:
    """Yield the samples of a file, each with its place."""
    document = read_json(file)
    listed = cast("list[object]", document) if isinstance(document, list) else [document]
    for number, sample in enumerate(listed, 1):
        place = f"sample {number}"
        if not isinstance(sample, dict) or not isinstance(cast("Fields", sample).get("sample_id"), str):
            raise InvalidInput(f"{place} has no sample_id; {_ADVICE}")
        yield place, cast("Fields", sample)


def sessions(sample: Fields) -> list[tuple[int, int | None, Any]]:
    """Return a sample's sessions in order, each with its number, date and turns."""
    talk = cast("Fields", sample.get("conversation")) if isinstance(sample.get("conversation"), dict) else {}
    numbers = sorted(int(match.group(1)) for key in talk if (match := _SESSION.match(key)))
    return [(number, session_ns(talk, number), talk.get(f"session_{number}")) for number in numbers]


def session_ns(talk: Fields, number: int) -> int | None:
    """Return when a session took place, in nanoseconds since 1970, ``None`` if unknown."""
    return parse_locomo_ns(talk.get(f"session_{number}_date_time"))


def _is_locomo(head: bytes) -> bool:
    for path in paths(head):
        match path[1:] if path[0] == ITEM else path:
            case ("conversation", session, "[]", "dia_id") if _SESSION.match(session):
                return True
            case _:
                pass
    return False


def _locomo_conversation(place: str, sample: Fields) -> SourceConversation:
    conversation = sample.get("conversation")
    if not isinstance(conversation, dict):
        raise InvalidInput(f"{place} has no conversation; {_ADVICE}")
    talk = cast("Fields", conversation)
    # The sample without the turns that become messages.
    other = {key: value for key, value in talk.items() if not (_SESSION.match(key) and value)}
    source = sample | {"conversation": other}
    messages: list[SourceMessage] = []
    for number, date_ns, turns in sessions(sample):
        if not isinstance(turns, list):
            raise InvalidInput(f"{place}, session {number} is no list of turns; {_ADVICE}")
        for position, turn in enumerate(cast("list[object]", turns), 1):
            fields = _turn(f"{place}, session {number}, turn {position}", turn)
            role = "assistant" if fields["speaker"] == talk.get("speaker_b") else "user"
            caption = fields.get("blip_caption")
            shown = f" [shares image: {caption}]" if isinstance(caption, str) and caption else ""
            rest = {key: value for key, value in fields.items() if key not in _OWN_FIELDS}
            extra = metadata(rest, {SOURCE_KEY: None if messages else source, "session": number})
            text = fields["text"] + shown
            messages.append(SourceMessage(role, text, name=fields["speaker"], occurred_ns=date_ns, metadata=extra))
    if not messages:
        raise InvalidInput(f"{place} has no turns; {_ADVICE}")
    return SourceConversation(1, sample["sample_id"], sample["sample_id"], iter(messages), place)


def _turn(place: str, turn: object) -> Fields:
    fields = cast("Fields", turn) if isinstance(turn, dict) else {}
    missing = [key for key in (*_OWN_FIELDS, "dia_id") if not isinstance(fields.get(key), str)]
    if missing:
        raise InvalidInput(f"{place} has no {missing[0]} that is a text; {_ADVICE}")
    return fields


# BEAM: one long conversation per line, with questions about it.
#
# A message's metadata has its ``id``, which the questions cite, its ``batch`` and its ``time_anchor``. An anchor is the
# day on which that message and those up to the next anchor were written. The questions are in the first message's
# metadata, under ``source``.

_BEAM_MARKS: Final = frozenset({("messages", ITEM, "time_anchor"), ("messages", ITEM, "batch")})


def _beam(file: BinaryIO) -> Iterator[SourceConversation]:
    """Yield the conversations of a file; a line is checked as a whole before its first message."""
    for line, text in lines(file):
        advice = "mend the line or get the file again, and import again"
        yield _beam_conversation(line, decode_json(text, f"line {line} is no conversation in JSON", advice))


def _beam_conversation(line: int, document: object) -> SourceConversation:
    fields = dict(cast("Fields", document)) if isinstance(document, dict) else {}
    messages = fields.pop("messages", None)
    if not isinstance(messages, list) or not messages:
        raise InvalidInput(f"line {line} is no conversation of BEAM; give an object with an id and a list of messages")
    own_id = fields.pop("id", None)
    if not isinstance(own_id, str) or not own_id:
        raise InvalidInput(f"line {line} has no id; give the conversation one, as text")
    return SourceConversation(line, own_id, None, iter(_beam_messages(line, cast("list[object]", messages), fields)))


def _beam_messages(line: int, messages: list[Any], source: Fields) -> list[SourceMessage]:
    day_ns: int | None = None
    made: list[SourceMessage] = []
    for place, message in enumerate(messages, 1):
        fields = _message(line, place, message)
        day_ns = parse_beam_ns(fields.get("time_anchor")) or day_ns
        added = {SOURCE_KEY: None if made else source or None}
        made.append(source_message(fields, other_fields(fields), added, occurred_ns=day_ns))
    return made


def _message(line: int, place: int, message: object) -> Fields:
    if not isinstance(message, dict) or "role" not in message:
        raise InvalidInput(f"line {line}, message {place} has no role; give an object with role and content")
    return cast("Fields", message)


# OpenAI's chat messages: a list of them, or an object with one. Anthropic's format has the system prompt beside the
# list.

IN_MESSAGES_KEY: Final = "in_messages"
"""The metadata key whose value is ``False`` for a system prompt that was beside the list of messages."""

_LIST_KEYS: Final = ("messages", "traj", "conversation")
_ID_KEYS: Final = ("id", "conversation_id", "session_id", "thread_id")
_DATE_KEYS: Final = ("created_at", "timestamp", "time")
_OPENAI_MARKS: Final = frozenset({(ITEM, "role"), *((key, ITEM, "role") for key in _LIST_KEYS)})


def _openai(file: BinaryIO) -> Iterator[SourceConversation]:
    for line, text in lines(file):
        advice = "mend the line or remove it, and import again"
        yield _openai_conversation(line, decode_json(text, f"line {line} is no conversation in JSON", advice))


def _openai_conversation(line: int, document: object) -> SourceConversation:
    if isinstance(document, list):
        return SourceConversation(line, None, None, _openai_messages(line, cast("list[object]", document), {}, None))
    fields = cast("Fields", document) if isinstance(document, dict) else {}
    key = next((key for key in _LIST_KEYS if isinstance(fields.get(key), list)), None)
    if key is None:
        keys = ", ".join(_LIST_KEYS)
        raise InvalidInput(
            f"line {line} is no conversation; give a list of messages, or an object with one under {keys}"
        )
    messages = fields.pop(key)
    own_id = _own_id(fields)
    system = fields.pop("system") if isinstance(fields.get("system"), (str, list)) and fields["system"] else None
    return SourceConversation(line, own_id, None, _openai_messages(line, messages, fields, system))


def _own_id(fields: Fields) -> str | None:
    for key in _ID_KEYS:
        value = fields.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
            return str(fields.pop(key))
    return None


def _openai_messages(line: int, messages: list[Any], fields: Fields, system: Any) -> Iterator[SourceMessage]:
    began_ns = next((ns for key in _DATE_KEYS if (ns := parse_date_ns(fields.get(key))) is not None), None)
    if system is not None:
        extra = metadata({}, {SOURCE_KEY: fields or None, IN_MESSAGES_KEY: False})
        yield SourceMessage("system", system, occurred_ns=began_ns, metadata=extra)
    for place, message in enumerate(messages, 1):
        own = _message(line, place, message)
        rest = other_fields(own)
        moment_ns = _take_date(rest)
        source = fields or None if place == 1 and system is None else None
        when_ns = began_ns if moment_ns is None else moment_ns
        yield source_message(own, rest, {SOURCE_KEY: source}, occurred_ns=when_ns)


def _take_date(fields: Fields) -> int | None:
    """Remove and return the first field of a message that is a date; a field that only has the name of one stays."""
    for key in _DATE_KEYS:
        moment_ns = parse_date_ns(fields.get(key))
        if moment_ns is not None:
            del fields[key]
            return moment_ns
    return None


def render_message(message: Message) -> Fields:
    """Return a message as it was imported: absent fields are absent, and null fields are null."""
    values = ((field, getattr(message, field)) for field in FIELDS)
    fields = {field: value for field, value in values if value is not None or field == "content"}
    exceptions = (message.metadata or {}).get(EXCEPTIONS_KEY)
    if isinstance(exceptions, dict):
        fields |= dict.fromkeys(_names(cast("Fields", exceptions).get("null")))
        for field in _names(cast("Fields", exceptions).get("absent")):
            fields.pop(field, None)
    call = (message.metadata or {}).get(_OLD_CALL_KEY)
    if message.role == "assistant" and message.tool_calls is None and isinstance(call, dict):
        fields[_OLD_CALL_KEY] = call
    return fields


_OLD_CALL_KEY: Final = "function_call"  # OpenAI's form of a call before there were tools; it stays in the metadata.


def _names(listed: object) -> list[str]:
    """Return the fields that are listed; any program can write metadata, so it can hold anything."""
    return [field for field in FIELDS if isinstance(listed, list) and field in listed]


def _is_swe_agent(head: bytes) -> bool:
    return not _SWE_AGENT_MARKS.isdisjoint(paths(head))


def _is_beam(head: bytes) -> bool:
    return _BEAM_MARKS.issubset(paths(head))


def _is_openai(head: bytes) -> bool:
    return not _OPENAI_MARKS.isdisjoint(paths(head))


SWE_AGENT: Final = SessionFormat("swe-agent", _is_swe_agent, _swe_agent)
LOCOMO: Final = SessionFormat("locomo", _is_locomo, _locomo)
BEAM: Final = SessionFormat("beam", _is_beam, _beam)
OPENAI: Final = SessionFormat("openai", _is_openai, _openai)
