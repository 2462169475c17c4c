"""LoCoMo: a list of samples, each the talk of two people over many sessions.

A sample is one conversation, in the project of its ``sample_id``; its first speaker is the user. What a turn shows is
said behind its text, as the benchmark does. A turn's metadata keeps its ``session``, its ``dia_id`` and the rest, the
first one's the sample's other fields under ``source``: questions, observations, summaries and dates.
"""

import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

from refold.errors import InvalidInput
from refold.recorders.dates import spoken_ns
from refold.recorders.documents import ITEM, paths, whole
from refold.recorders.keeping import SOURCE_KEY, Fields, metadata
from refold.recorders.protocol import SourceConversation, SourceMessage

_SESSION: Final = re.compile(r"session_([0-9]{1,9})\Z")
_OWN_FIELDS: Final = ("speaker", "text")
_ADVICE: Final = "give the benchmark's JSON file, or mend it"


class LocomoRecorder:
    """Reads samples of LoCoMo."""

    name = "locomo"

    def recognises(self, head: bytes) -> bool:
        """Return whether the bytes begin samples whose conversations have sessions of turns with a ``dia_id``."""
        return any(_is_turn(path[1:] if path[0] == ITEM else path) for path in paths(head))

    def conversations(self, file: BinaryIO) -> Iterator[SourceConversation]:
        """Return the conversations of a file, all of which are checked before the first is given."""
        yield from [_conversation(place, sample) for place, sample in samples(file)]


LOCOMO: Final = LocomoRecorder()


def samples(file: BinaryIO) -> Iterator[tuple[str, Fields]]:
    """Return the samples of a file, each with the place at which it stands."""
    document = whole(file)
    listed = cast("list[object]", document) if isinstance(document, list) else [document]
    for number, sample in enumerate(listed, 1):
        place = f"sample {number}"
        if not isinstance(sample, dict) or not isinstance(cast("Fields", sample).get("sample_id"), str):
            message = f"{place} has no sample_id; {_ADVICE}"
            raise InvalidInput(message)
        yield place, cast("Fields", sample)


def sessions(sample: Fields) -> list[tuple[int, int | None, Any]]:
    """Return a sample's sessions in order: number, date and turns."""
    talk = cast("Fields", sample.get("conversation")) if isinstance(sample.get("conversation"), dict) else {}
    numbers = sorted(int(found.group(1)) for key in talk if (found := _SESSION.match(key)))
    return [(number, session_ns(talk, number), talk.get(f"session_{number}")) for number in numbers]


def session_ns(talk: Fields, number: int) -> int | None:
    """Return when a session took place, in nanoseconds since 1970, ``None`` if that is not known."""
    return spoken_ns(talk.get(f"session_{number}_date_time"))


def _is_turn(path: tuple[str, ...]) -> bool:
    """Return whether a path leads to the ``dia_id`` of a turn."""
    match path:
        case ("conversation", session, "[]", "dia_id"):
            return _SESSION.match(session) is not None
        case _:
            return False


def _conversation(place: str, sample: Fields) -> SourceConversation:
    talk = sample.get("conversation")
    if not isinstance(talk, dict):
        message = f"{place} has no conversation; {_ADVICE}"
        raise InvalidInput(message)
    sample_id: str = sample["sample_id"]
    messages = _messages(place, sample, cast("Fields", talk))
    return SourceConversation(1, sample_id, sample_id, iter(messages), place)


def _messages(place: str, sample: Fields, talk: Fields) -> list[SourceMessage]:
    messages: list[SourceMessage] = []
    answering = talk.get("speaker_b")
    for number, date_ns, turns in sessions(sample):
        if not isinstance(turns, list):
            message = f"{place}, session {number} is no list of turns; {_ADVICE}"
            raise InvalidInput(message)
        for position, turn in enumerate(cast("list[object]", turns), 1):
            fields = _turn(f"{place}, session {number}, turn {position}", turn)
            role = "assistant" if fields["speaker"] == answering else "user"
            source = None if messages else _source(sample, talk)
            added = {SOURCE_KEY: source, "session": number}
            messages.append(_message(role, fields, date_ns, added))
    if not messages:
        message = f"{place} has no turns; {_ADVICE}"
        raise InvalidInput(message)
    return messages


def _turn(place: str, turn: object) -> Fields:
    fields = cast("Fields", turn) if isinstance(turn, dict) else {}
    missing = [key for key in (*_OWN_FIELDS, "dia_id") if not isinstance(fields.get(key), str)]
    if missing:
        message = f"{place} has no {missing[0]} that is a text; {_ADVICE}"
        raise InvalidInput(message)
    return fields


def _message(role: str, turn: Fields, date_ns: int | None, added: Fields) -> SourceMessage:
    rest = {key: value for key, value in turn.items() if key not in _OWN_FIELDS}
    caption = turn.get("blip_caption")
    shown = f" [shares image: {caption}]" if isinstance(caption, str) and caption else ""
    return SourceMessage(
        role, turn["text"] + shown, name=turn["speaker"], occurred_ns=date_ns, metadata=metadata(rest, added)
    )


def _source(sample: Fields, talk: Fields) -> Fields:
    """Return a sample without the turns that become messages."""
    other = {key: value for key, value in talk.items() if not (_SESSION.match(key) and value)}
    return sample | {"conversation": other}
