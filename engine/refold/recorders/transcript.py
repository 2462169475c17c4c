"""What was said in a conversation from its first message on, in or out of the window, and its export."""

from collections.abc import Iterator
from typing import IO

import msgspec

from refold import Memory, Message
from refold.event import Forked, StateImported
from refold.message import MessageAppended, imported_messages
from refold.recorders.log import stream_name
from refold.recorders.openai import rendered


def transcript(memory: Memory, conversation_id: str) -> Iterator[Message]:
    """Return every message that was appended to a conversation; a fork begins with those it was forked from."""
    for event, stamp in memory.conversation(conversation_id).at(memory.head).events():
        if isinstance(event, MessageAppended):
            yield Message(event, stamp)
        elif isinstance(event, StateImported):
            yield from imported_messages(event, stamp)
        elif isinstance(event, Forked) and event.base_stream:
            _, _, base_id = stream_name(memory, event.base_stream).partition("/")
            yield from transcript(memory.at(event.base_seq), base_id)


def export_openai(memory: Memory, file: IO[bytes]) -> int:
    """Write every conversation as a line of OpenAI chat messages, the oldest first; return how many there were."""
    ids = sorted(memory.conversations(), key=lambda conversation_id: _first_seq(memory, conversation_id))
    for conversation_id in ids:
        messages = [rendered(message) for message in transcript(memory, conversation_id)]
        file.write(msgspec.json.encode({"id": conversation_id, "messages": messages}) + b"\n")
    return len(ids)


def _first_seq(memory: Memory, conversation_id: str) -> int:
    return next(stamp.seq for _, stamp in memory.conversation(conversation_id).events())
