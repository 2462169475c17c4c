"""Import of sessions, which detects the format from the content and imports nothing twice; transcripts.

Each commit takes up to 10,000 messages of one conversation. Each message carries a request id made from its
conversation's id and its place, so that a file can be imported again: after an interruption, or because it has grown.
Known messages are left alone.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, BinaryIO, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from refold import Conversation, Memory, Message
from refold.errors import InvalidInput, NotFound
from refold.event import Forked, StateImported
from refold.importers.formats import (
    BEAM,
    LOCOMO,
    OPENAI,
    SWE_AGENT,
    Fields,
    MemoryFormat,
    SessionFormat,
    SourceConversation,
    SourceMessage,
    prefix_errors,
    render_message,
)
from refold.importers.traces import CLAUDE_CODE, OTEL
from refold.importers.values import stream_name
from refold.memory import blocks
from refold.memory.wires import NO_RESULT, openai
from refold.message import MessageAppended, imported_messages


def transcript(memory: Memory, conversation_id: str) -> Iterator[Message]:
    """Yield every message that was appended to a conversation; a fork begins with those that it was forked from."""
    known = {(message.seq, message.id): message for message in memory.conversation(conversation_id).history()}
    for message in _appended_messages(memory, conversation_id):
        yield known.get((message.seq, message.id), message)  # With its current content, if it was replaced.


def _appended_messages(memory: Memory, conversation_id: str) -> Iterator[Message]:
    frozen = [memory.conversation(conversation_id).at(memory.head)]
    while True:  # Down to the first conversation that it was forked from, through any number of forks.
        first = next((event for event, _ in frozen[-1].events()), None)
        if not isinstance(first, Forked) or not first.base_stream:
            break
        _, _, base_id = stream_name(memory, first.base_stream).partition("/")
        frozen.append(memory.at(first.base_seq).conversation(base_id))
    for event, stamp in chain.from_iterable(each.events() for each in reversed(frozen)):
        if isinstance(event, MessageAppended):
            yield Message(event, stamp)
        elif isinstance(event, StateImported):
            yield from imported_messages(event, stamp)


def export_openai(memory: Memory, file: IO[bytes]) -> int:
    """Write every conversation as a line of OpenAI chat messages, the oldest first; return how many were written.

    Messages in OpenAI's form come out as they were imported. A conversation with other blocks is rewritten as
    ``chat.messages()`` does it. Erased messages are left out, with the answers to their calls; an erased answer says
    that it has no result. So a provider takes what is left.
    """
    ids = sorted(memory.conversations(), key=lambda each: next(memory.conversation(each).events()).stamp.seq)
    for conversation_id in ids:
        messages = _openai_messages(list(transcript(memory, conversation_id)))
        file.write(msgspec.json.encode({"id": conversation_id, "messages": messages}) + b"\n")
    return len(ids)


def _openai_messages(given: list[Message]) -> list[Fields]:
    if all(map(_is_openai, given)):
        return list(_export_messages(given))
    return openai([message for message in given if not message.erased])


def _is_openai(message: Message) -> bool:
    """Return whether a message has blocks of OpenAI's form alone."""
    return all(
        not part.block or part.own == blocks.OPENAI or part.block.get("type") == "text"
        for part in blocks.parts_of(message)
    )


def _export_messages(messages: Iterable[Message]) -> Iterator[Fields]:
    gone = set[str]()
    for message in messages:
        if not message.erased:
            if message.tool_call_id is None or message.tool_call_id not in gone:
                yield render_message(message)
        elif message.tool_call_id is None:
            gone.update(message.event.call_ids)
        elif message.tool_call_id not in gone:
            yield {"role": message.role, "content": NO_RESULT, "tool_call_id": message.tool_call_id}


# refold's own JSONL: an export, which loads into an empty store with every stamp as it was, or next to other events.

_HEAD: Final = re.compile(rb'\s*\{\s*"refold"\s*:\s*\d')


def _is_export(head: bytes) -> bool:
    return _HEAD.match(head) is not None


def _no_conversations(_: BinaryIO) -> Iterator[SourceConversation]:
    raise AssertionError("an export holds events, which `Memory.load` reads")


REFOLD: Final = SessionFormat("refold", _is_export, _no_conversations)


# Formats that require more of a file come first: a line of BEAM is an OpenAI chat with some more fields.
_READERS: Final = (REFOLD, CLAUDE_CODE, OTEL, SWE_AGENT, LOCOMO, BEAM, OPENAI)
FORMATS: Final = (*(reader.name for reader in _READERS[1:]), REFOLD.name)
"""The names of the formats that can be imported."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (done, total), in bytes of a file or events of an export."""

_HEAD_BYTES: Final = 1 << 18
_PAGE_MESSAGES: Final = 10_000


class ImportResult(Struct, frozen=True):
    """The result of an import: the ``messages`` and ``events`` that it appended, and the ``known`` messages."""

    file: str
    format: str
    conversations: int
    messages: int
    events: int
    known: int
    repeated: bool
    """Whether the log already had everything, so that nothing was appended."""


FormatType = TypeVar("FormatType", SessionFormat, MemoryFormat)
ItemType = TypeVar("ItemType")


def format_of(path: Path) -> str:
    """Return the name of the format that a file's content has; raises ``InvalidInput`` if it is none of ``FORMATS``."""
    return detect(path, _READERS, FORMATS).name


def detect(path: Path, readers: Sequence[FormatType], formats: tuple[str, ...]) -> FormatType:
    """Return the first reader that recognises a file."""
    with open_source(path) as file:
        head = file.read(_HEAD_BYTES)
    for reader in readers:
        if reader.recognises(head):
            return reader
    raise InvalidInput(
        f"{path} is of no known format; the formats are {', '.join(formats)}, and format= (--format) overrides"
    )


def reader_of(path: Path, readers: Sequence[FormatType], formats: tuple[str, ...], name: str | None) -> FormatType:
    """Return the reader with a name, or without a name the one that recognises the file."""
    if name is None:
        return detect(path, readers, formats)
    reader = next((reader for reader in readers if reader.name == name), None)
    if reader is None:
        raise InvalidInput(f"the format {name!r} is unknown; give one of {', '.join(formats)}")
    return reader


def open_source(path: Path) -> BinaryIO:
    """Open a file to import; raises ``NotFound`` and ``InvalidInput`` for a path that cannot be read as a file."""
    if not path.exists():
        raise NotFound(f"there is no file {path} to import; give the path of a session file")
    if not path.is_file():
        raise InvalidInput(f"{path} is not a regular file; write the sessions into a file first")
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidInput(f"reading {path}: {error}; give a file that can be read") from error


def import_file(
    memory: Memory,
    path: Path,
    *,
    format: str | None = None,
    progress: Progress | None = None,
    rename: Mapping[str, str] | None = None,
) -> ImportResult:
    """Import a file of sessions into a memory; ``format=None`` detects the format from the content.

    ``rename`` gives streams of an export of refold other names, as ``memory.load`` does. Raises ``InvalidInput`` with
    file and line for malformed data; conversations before that line stay.
    """
    reader = reader_of(path, _READERS, FORMATS, format)
    if reader is REFOLD:
        return _load(memory, path, progress, rename)
    if rename:
        raise InvalidInput(f"rename is for exports of refold, and {path} is of format {reader.name}; leave it out")
    return _SessionImport(memory, reader, path).run(progress)


def _load(memory: Memory, path: Path, progress: Progress | None, rename: Mapping[str, str] | None) -> ImportResult:
    open_source(path).close()  # Raises errors of its own for a path that cannot be read.
    loaded = memory.load(path, progress, rename=rename)
    conversations: set[str] = set()
    messages = 0
    for event, stamp in memory.events(after=memory.head - loaded.events):
        messages += isinstance(event, MessageAppended)
        if stamp.stream.startswith("conversation/"):
            conversations.add(stamp.stream)
    return ImportResult(str(path), REFOLD.name, len(conversations), messages, loaded.events, 0, loaded.repeated)


class _SessionImport:
    """The import of one file of sessions."""

    def __init__(self, memory: Memory, reader: SessionFormat, path: Path) -> None:
        self._memory = memory
        self._reader = reader
        self._path = path
        self._places: dict[str, str] = {}  # Conversation id -> its place in the file.
        self._messages = 0
        self._known = 0

    def run(self, progress: Progress | None) -> ImportResult:
        head = self._memory.head
        with open_source(self._path) as file:
            size_bytes = self._path.stat().st_size
            for conversation in self._prefix_errors(self._reader.conversations(file)):
                self._import(conversation)
                if progress is not None:
                    progress(file.tell(), size_bytes)
        events = self._memory.head - head
        return ImportResult(
            str(self._path),
            self._reader.name,
            len(self._places),
            self._messages,
            events,
            self._known,
            repeated=not events and self._known > 0,
        )

    def _prefix_errors(self, items: Iterator[ItemType]) -> Iterator[ItemType]:
        with prefix_errors(str(self._path)):
            yield from items

    def _import(self, conversation: SourceConversation) -> None:
        own_id = str(conversation.line) if conversation.own_id is None else conversation.own_id
        conversation_id = f"{self._reader.name}/{self._path.stem}/{own_id}"
        place = f"{self._path}: {conversation.where}"
        if conversation_id in self._places:
            raise InvalidInput(
                f"{place} has the id {own_id!r} of {self._places[conversation_id]}; "
                f"give each conversation an id of its own, or none"
            )
        self._places[conversation_id] = conversation.where
        with prefix_errors(place):
            chat = self._memory.conversation(conversation_id, project=conversation.project)
        numbered = enumerate(self._prefix_errors(conversation.messages), 1)
        while page := list(islice(numbered, _PAGE_MESSAGES)):
            new = 0
            with self._memory.acting(f"import:{self._reader.name}"), self._memory.batch():
                for number, message in page:
                    new += _append(chat, number, message, f"{place}, message {number}")
            self._messages += new
            self._known += len(page) - new


def _append(chat: Conversation, number: int, message: SourceMessage, place: str) -> bool:
    changed = (
        f"{chat.id} was imported before, and this message was another one then; "
        "give the file another name (--name for stdin) to import both"
    )
    with prefix_errors(place, changed):
        appended = chat.append(
            message.role,
            message.content,
            name=message.name,
            tool_calls=message.tool_calls,
            tool_call_id=message.tool_call_id,
            metadata=message.metadata,
            occurred=message.occurred_ns,
            request_id=f"import/{chat.id}/{number}",
        )
    # Inside a batch, a new message has no seq yet, but one that repeats an earlier request has one.
    return not appended.seq
