"""BEAM: one long conversation a line, with the questions that are asked about it.

A message's metadata keeps its ``id``, which the questions cite, its ``batch`` and its ``time_anchor``. An anchor is the
day on which that message and those up to the next anchor were written. The questions stand in the first message's
metadata, under ``source``.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

from refold.errors import InvalidInput
from refold.recorders.dates import anchor_ns
from refold.recorders.documents import ITEM, decoded, lines, paths
from refold.recorders.keeping import SOURCE_KEY, Fields, others, source_message
from refold.recorders.protocol import SourceConversation, SourceMessage

_MARKS: Final = frozenset({("messages", ITEM, "time_anchor"), ("messages", ITEM, "batch")})


class BeamRecorder:
    """Reads conversations of BEAM."""

    name = "beam"

    def recognises(self, head: bytes) -> bool:
        """Return whether the bytes begin an object whose messages have batches and anchors in time."""
        return _MARKS.issubset(paths(head))

    def conversations(self, file: BinaryIO) -> Iterator[SourceConversation]:
        """Return the conversations of a file; a line is checked whole before its first message is given."""
        for line, text in lines(file):
            advice = "mend the line or get the file again, and import again"
            yield _conversation(line, decoded(text, f"line {line} is no conversation in JSON", advice))


BEAM: Final = BeamRecorder()


def _conversation(line: int, document: object) -> SourceConversation:
    fields = dict(cast("Fields", document)) if isinstance(document, dict) else {}
    messages = fields.pop("messages", None)
    if not isinstance(messages, list) or not messages:
        problem = f"line {line} is no conversation of BEAM; give an object with an id and a list of messages"
        raise InvalidInput(problem)
    own_id = fields.pop("id", None)
    if not isinstance(own_id, str) or not own_id:
        problem = f"line {line} has no id; give the conversation one, as text"
        raise InvalidInput(problem)
    return SourceConversation(line, own_id, None, iter(_messages(line, cast("list[object]", messages), fields)))


def _messages(line: int, messages: list[Any], source: Fields) -> list[SourceMessage]:
    day_ns: int | None = None
    found: list[SourceMessage] = []
    for place, message in enumerate(messages, 1):
        if not isinstance(message, dict) or "role" not in message:
            problem = f"line {line}, message {place} has no role; give an object with role and content"
            raise InvalidInput(problem)
        fields = cast("Fields", message)
        day_ns = anchor_ns(fields.get("time_anchor")) or day_ns
        added = {SOURCE_KEY: None if found else source or None}
        found.append(source_message(fields, others(fields), added, occurred_ns=day_ns))
    return found
