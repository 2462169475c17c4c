"""Formats of recorded sessions: SWE-agent, LoCoMo, BEAM, OpenAI chats.

A conversation is a list of messages, or an object that holds one under ``messages``, ``traj`` or ``conversation``.
Fields that the log lacks go into metadata, so that ``rendered`` gives every message back as it was.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

from refold import Message
from refold.errors import InvalidInput
from refold.importers.base import (
    EXCEPTIONS_KEY,
    FIELDS,
    ITEM,
    SOURCE_KEY,
    Fields,
    SessionFormat,
    SourceConversation,
    SourceMessage,
    anchor_ns,
    decoded,
    lines,
    metadata,
    occurred_ns,
    others,
    paths,
    source_message,
    spoken_ns,
    whole,
)
from refold.memory.conversation import openai

# SWE-agent trajectories: a ``.traj`` file is one run, its ``history`` of messages and its ``trajectory`` of steps.
#
# Each entry of the history is a message. A step goes to the message that it made, as ``step`` in its metadata; one
# that left none in the history is a message of its own, its observation another, both marked ``in_history: false``.

STEP_KEY: Final = "step"
"""In an assistant message's metadata: the step of the trajectory that it belongs to, as it was."""

IN_HISTORY_KEY: Final = "in_history"
"""In a message's metadata, ``False`` where the message was made of a step alone."""

_IDS_KEY: Final = "tool_call_ids"
_LISTS: Final = ("history", "trajectory")
_TEXT_KEYS: Final = ("response", "thought", "action")
_SWE_AGENT_MARKS: Final = frozenset({("history", ITEM, "role"), *(("trajectory", ITEM, field) for field in _TEXT_KEYS)})


def _swe_agent(file: BinaryIO) -> Iterator[SourceConversation]:
    document = whole(file)
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
    lone, made = _matched(history, steps)
    for place, entry in enumerate(history):
        messages += [message for step in lone.get(place, ()) for message in _lone(step, len(messages), source)]
        messages.append(_swe_agent_message(entry, made.get(place), {} if messages else source))
    for step in lone.get(len(history), ()):
        messages += _lone(step, len(messages), source)
    return messages


def _matched(history: list[Fields], steps: list[Fields]) -> tuple[dict[int, list[Fields]], dict[int, Fields]]:
    """Return the steps without a message in the history, by the place they come before, and the others by theirs.

    A step is matched to the next assistant's message of its words; both lists are in order.
    """
    lone: dict[int, list[Fields]] = {}
    made: dict[int, Fields] = {}
    waiting: list[Fields] = []
    begin = 0
    places_of = _places(history)
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


def _places(history: list[Fields]) -> dict[object, list[int]]:
    places: dict[object, list[int]] = {}
    for place, entry in enumerate(history):
        if entry["role"] == "assistant":
            places.setdefault(_text(entry.get("content")), []).append(place)
    return places


def _text(content: object) -> str:
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    texts = (cast("Fields", block).get("text") for block in blocks if isinstance(block, dict))
    return content if isinstance(content, str) else "".join(text for text in texts if isinstance(text, str))


def _swe_agent_message(entry: Fields, step: Fields | None, source: Fields) -> SourceMessage:
    ids = cast("list[object]", entry[_IDS_KEY]) if isinstance(entry.get(_IDS_KEY), list) else []
    only = ids[0] if len(ids) == 1 else None
    added = {SOURCE_KEY: source or None, STEP_KEY: step, IN_HISTORY_KEY: None}
    return source_message(entry, others(entry), added, tool_call_id=only)


def _lone(step: Fields, before: int, source: Fields) -> Iterator[SourceMessage]:
    added = {SOURCE_KEY: None if before else source or None, STEP_KEY: step, IN_HISTORY_KEY: False}
    text = next((step[field] for field in _TEXT_KEYS if isinstance(step.get(field), str) and step[field]), "")
    yield SourceMessage("assistant", text, metadata=metadata({}, added))
    observation = step.get("observation")
    if isinstance(observation, str) and observation:
        yield SourceMessage("user", observation, metadata={IN_HISTORY_KEY: False})


# LoCoMo: a list of samples, each the talk of two people over many sessions.
#
# A sample is one conversation, in the project of its ``sample_id``; its first speaker is the user. The caption of an
# image comes behind a turn's text, as in the benchmark. A turn's metadata keeps its ``session``, its ``dia_id`` and the
# rest, the first one's the sample's other fields under ``source``: questions, observations, summaries and dates.

_SESSION: Final = re.compile(r"session_([0-9]{1,9})\Z")
_OWN_FIELDS: Final = ("speaker", "text")
_ADVICE: Final = "give the benchmark's JSON file, or mend it"


def _locomo(file: BinaryIO) -> Iterator[SourceConversation]:
    """Yield the conversations of a file, all of which are checked before the first."""
    yield from [_locomo_conversation(place, sample) for place, sample in samples(file)]


def samples(file: BinaryIO) -> Iterator[tuple[str, Fields]]:
    """Return the samples of a file, each with its place."""
    document = whole(file)
    listed = cast("list[object]", document) if isinstance(document, list) else [document]
    for number, sample in enumerate(listed, 1):
        place = f"sample {number}"
        if not isinstance(sample, dict) or not isinstance(cast("Fields", sample).get("sample_id"), str):
            raise InvalidInput(f"{place} has no sample_id; {_ADVICE}")
        yield place, cast("Fields", sample)


def sessions(sample: Fields) -> list[tuple[int, int | None, Any]]:
    """Return a sample's sessions in order: number, date and turns."""
    talk = cast("Fields", sample.get("conversation")) if isinstance(sample.get("conversation"), dict) else {}
    numbers = sorted(int(found.group(1)) for key in talk if (found := _SESSION.match(key)))
    return [(number, session_ns(talk, number), talk.get(f"session_{number}")) for number in numbers]


def session_ns(talk: Fields, number: int) -> int | None:
    """Return when a session took place, in nanoseconds since 1970, ``None`` if that is not known."""
    return spoken_ns(talk.get(f"session_{number}_date_time"))


def _is_locomo(head: bytes) -> bool:
    for path in paths(head):
        match path[1:] if path[0] == ITEM else path:
            case ("conversation", session, "[]", "dia_id") if _SESSION.match(session):
                return True
            case _:
                pass
    return False


def _locomo_conversation(place: str, sample: Fields) -> SourceConversation:
    found = sample.get("conversation")
    if not isinstance(found, dict):
        raise InvalidInput(f"{place} has no conversation; {_ADVICE}")
    talk = cast("Fields", found)
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


# BEAM: one long conversation a line, with questions about it.
#
# A message's metadata keeps its ``id``, which the questions cite, its ``batch`` and its ``time_anchor``. An anchor is
# the day on which that message and those up to the next anchor were written. The questions are in the first
# message's metadata, under ``source``.

_BEAM_MARKS: Final = frozenset({("messages", ITEM, "time_anchor"), ("messages", ITEM, "batch")})


def _beam(file: BinaryIO) -> Iterator[SourceConversation]:
    """Yield the conversations of a file; a line is checked whole before its first message."""
    for line, text in lines(file):
        advice = "mend the line or get the file again, and import again"
        yield _beam_conversation(line, decoded(text, f"line {line} is no conversation in JSON", advice))


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
        day_ns = anchor_ns(fields.get("time_anchor")) or day_ns
        added = {SOURCE_KEY: None if made else source or None}
        made.append(source_message(fields, others(fields), added, occurred_ns=day_ns))
    return made


def _message(line: int, place: int, message: object) -> Fields:
    if not isinstance(message, dict) or "role" not in message:
        raise InvalidInput(f"line {line}, message {place} has no role; give an object with role and content")
    return cast("Fields", message)


# OpenAI's chat messages: a list of them, or an object with one.

_LIST_KEYS: Final = ("messages", "traj", "conversation")
_ID_KEYS: Final = ("id", "conversation_id", "session_id", "thread_id")
_DATE_KEYS: Final = ("created_at", "timestamp", "time")
_OPENAI_MARKS: Final = frozenset({(ITEM, "role"), *((key, ITEM, "role") for key in _LIST_KEYS)})


def _openai(file: BinaryIO) -> Iterator[SourceConversation]:
    for line, text in lines(file):
        advice = "mend the line or remove it, and import again"
        yield _openai_conversation(line, decoded(text, f"line {line} is no conversation in JSON", advice))


def _openai_conversation(line: int, document: object) -> SourceConversation:
    if isinstance(document, list):
        return SourceConversation(line, None, None, _openai_messages(line, cast("list[object]", document), {}))
    fields = cast("Fields", document) if isinstance(document, dict) else {}
    key = next((key for key in _LIST_KEYS if isinstance(fields.get(key), list)), None)
    if key is None:
        keys = ", ".join(_LIST_KEYS)
        raise InvalidInput(
            f"line {line} is no conversation; give a list of messages, or an object with one under {keys}"
        )
    messages = fields.pop(key)
    own_id = _own_id(fields)
    return SourceConversation(line, own_id, None, _openai_messages(line, messages, fields))


def _own_id(fields: Fields) -> str | None:
    for key in _ID_KEYS:
        value = fields.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
            return str(fields.pop(key))
    return None


def _openai_messages(line: int, messages: list[Any], fields: Fields) -> Iterator[SourceMessage]:
    began_ns = next((ns for key in _DATE_KEYS if (ns := occurred_ns(fields.get(key))) is not None), None)
    for place, message in enumerate(messages, 1):
        own = _message(line, place, message)
        rest = others(own)
        moment_ns = _take_date(rest)
        source = fields or None if place == 1 else None
        when_ns = began_ns if moment_ns is None else moment_ns
        yield source_message(own, rest, {SOURCE_KEY: source}, occurred_ns=when_ns)


def _take_date(fields: Fields) -> int | None:
    """Take the first field that is a date out of a message's fields; a field that only has the name of one stays."""
    for key in _DATE_KEYS:
        moment_ns = occurred_ns(fields.get(key))
        if moment_ns is not None:
            del fields[key]
            return moment_ns
    return None


def rendered(message: Message) -> Fields:
    """Return a message as it was imported: absent fields are absent, null ones are null."""
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


SWE_AGENT: Final = SessionFormat("swe-agent", lambda head: not _SWE_AGENT_MARKS.isdisjoint(paths(head)), _swe_agent)
LOCOMO: Final = SessionFormat("locomo", _is_locomo, _locomo)
BEAM: Final = SessionFormat("beam", lambda head: _BEAM_MARKS.issubset(paths(head)), _beam)
OPENAI: Final = SessionFormat("openai", lambda head: not _OPENAI_MARKS.isdisjoint(paths(head)), _openai)
