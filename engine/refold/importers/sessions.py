"""Import of sessions: the format from the content, each conversation in one commit, nothing twice; transcripts.

Each message carries a request id made of its conversation's id and its place, so that a file may be imported again:
after an interruption, or because it has grown. What the log already has is left alone.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO, Final, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from refold import Conversation, Memory, Message
from refold.errors import InvalidInput, LimitExceeded, NotFound
from refold.event import Forked, StateImported
from refold.importers.base import Recorder, SourceConversation, SourceMessage
from refold.importers.formats import BEAM, LOCOMO, OPENAI, SWE_AGENT, rendered
from refold.importers.values import stream_name
from refold.message import MessageAppended, imported_messages

# What was said in a conversation from its first message on, in or out of the window, and its export.


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


# refold's own JSONL: an export, which loads into an empty store with every stamp as it was, and beside others.

_HEAD: Final = re.compile(rb'\s*\{\s*"refold"\s*:\s*\d')


class RefoldRecorder:
    """Recognises an export; ``Memory.load`` reads it, since it holds events, not only messages."""

    name = "refold"

    def recognises(self, head: bytes) -> bool:
        """Return whether the bytes begin with the head of an export."""
        return _HEAD.match(head) is not None

    def counts(self, memory: Memory, after: int) -> tuple[int, int]:
        """Return how many conversations and messages a memory has in its log behind a seq."""
        conversations: set[str] = set()
        messages = 0
        for event, stamp in memory.events(after=after):
            messages += isinstance(event, MessageAppended)
            if stamp.stream.startswith("conversation/"):
                conversations.add(stamp.stream)
        return len(conversations), messages


REFOLD: Final = RefoldRecorder()


# Those that ask for more of a file come first: a line of BEAM is a chat of OpenAI's with some fields more.
RECORDERS: Final[tuple[Recorder, ...]] = (SWE_AGENT, LOCOMO, BEAM, OPENAI)
FORMATS: Final = (*(recorder.name for recorder in RECORDERS), REFOLD.name)
"""The names of the formats that can be imported."""

_ALL: Final[tuple[Recorder | RefoldRecorder, ...]] = (REFOLD, *RECORDERS)

Progress: TypeAlias = Callable[[int, int], None]
"""Called with what is done and what there is in all: bytes of a file, or events of an export."""

_HEAD_BYTES: Final = 1 << 18
_PAGE_MESSAGES: Final = 10_000


class Imported(Struct, frozen=True):
    """What an import did: ``messages`` and ``events`` that it appended, ``known`` messages that were there before."""

    file: str
    format: str
    conversations: int
    messages: int
    events: int
    known: int
    repeated: bool
    """Whether the log already had everything, so that nothing was appended."""


class _Named(Protocol):
    """What the readers of sessions, and those of memories, have in common."""

    @property
    def name(self) -> str: ...

    def recognises(self, head: bytes) -> bool: ...


ReaderType = TypeVar("ReaderType", bound=_Named)


def format_of(path: Path) -> str:
    """Return the name of a file's format, told from its content; ``InvalidInput`` if it is none of ``FORMATS``."""
    return recognised(path, _ALL, FORMATS).name


def recognised(path: Path, readers: Sequence[ReaderType], formats: tuple[str, ...]) -> ReaderType:
    """Return the first reader that recognises a file."""
    with opened(path) as file:
        head = file.read(_HEAD_BYTES)
    for reader in readers:
        if reader.recognises(head):
            return reader
    raise InvalidInput(
        f"{path} is of no known format; the formats are {', '.join(formats)}, and format= (--format) overrides"
    )


def named(path: Path, readers: Sequence[ReaderType], formats: tuple[str, ...], name: str | None) -> ReaderType:
    """Return the reader of a name, or without a name the one that recognises the file."""
    if name is None:
        return recognised(path, readers, formats)
    reader = next((reader for reader in readers if reader.name == name), None)
    if reader is None:
        raise InvalidInput(f"the format {name!r} is unknown; give one of {', '.join(formats)}")
    return reader


def opened(path: Path) -> BinaryIO:
    """Return a file to import, open; what is no file that can be read is refused."""
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
    format: str | None = None,  # noqa: A002 - the word its users say
    progress: Progress | None = None,
) -> Imported:
    """Import a file of sessions into a memory; ``format=None`` tells the format from the content.

    Raises ``InvalidInput`` with file and line for what is malformed; conversations before that line stay.
    """
    recorder = named(path, _ALL, FORMATS, format)
    if isinstance(recorder, RefoldRecorder):
        return _load(memory, path, progress)
    return _Importing(memory, recorder, path).run(progress)


def _load(memory: Memory, path: Path, progress: Progress | None) -> Imported:
    with opened(path):
        loaded = memory.load(path, progress)
    conversations, messages = REFOLD.counts(memory, memory.head - loaded.events)
    return Imported(str(path), REFOLD.name, conversations, messages, loaded.events, 0, loaded.repeated)


class _Importing:
    """One file on its way into a memory."""

    def __init__(self, memory: Memory, recorder: Recorder, path: Path) -> None:
        self._memory = memory
        self._recorder = recorder
        self._path = path
        self._places: dict[str, str] = {}
        """Conversation id -> where it stands in the file."""
        self._messages = 0
        self._known = 0

    def run(self, progress: Progress | None) -> Imported:
        """Import the file's conversations in their order."""
        head = self._memory.head
        with opened(self._path) as file:
            size_bytes = self._path.stat().st_size
            for conversation in self._conversations(file):
                self._import(conversation)
                if progress is not None:
                    progress(file.tell(), size_bytes)
        events = self._memory.head - head
        return Imported(
            str(self._path),
            self._recorder.name,
            len(self._places),
            self._messages,
            events,
            self._known,
            repeated=not events and self._known > 0,
        )

    def _conversations(self, file: BinaryIO) -> Iterator[SourceConversation]:
        try:
            yield from self._recorder.conversations(file)
        except (InvalidInput, LimitExceeded) as error:
            raise type(error)(f"{self._path}: {error}") from error

    def _import(self, conversation: SourceConversation) -> None:
        own_id = str(conversation.line) if conversation.own_id is None else conversation.own_id
        conversation_id = f"{self._recorder.name}/{self._path.stem}/{own_id}"
        place = f"{self._path}: {conversation.where}"
        if conversation_id in self._places:
            raise InvalidInput(
                f"{place} has the id {own_id!r} of {self._places[conversation_id]}; "
                f"give each conversation an id of its own, or none"
            )
        self._places[conversation_id] = conversation.where
        try:
            chat = self._memory.conversation(conversation_id, project=conversation.project)
        except (InvalidInput, LimitExceeded) as error:
            raise type(error)(f"{place}: {error}") from error
        self._append_all(chat, conversation, place)

    def _append_all(self, chat: Conversation, conversation: SourceConversation, place: str) -> None:
        numbered = enumerate(self._messages_of(conversation), 1)
        while page := list(islice(numbered, _PAGE_MESSAGES)):
            new = 0
            with self._memory.batch():
                for number, message in page:
                    new += _append(chat, number, message, f"{place}, message {number}")
            self._messages += new
            self._known += len(page) - new

    def _messages_of(self, conversation: SourceConversation) -> Iterator[SourceMessage]:
        try:
            yield from conversation.messages
        except (InvalidInput, LimitExceeded) as error:
            raise type(error)(f"{self._path}: {error}") from error


def _append(chat: Conversation, number: int, message: SourceMessage, place: str) -> bool:
    """Append one message inside the open batch; return whether it was new."""
    try:
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
    except (InvalidInput, LimitExceeded) as error:
        text = _changed(chat.id) if "request_id was used" in str(error) else str(error)
        problem = f"{place}: {text}"
        raise type(error)(problem) from error
    # Inside a batch a new message has no seq yet; one that answers an earlier request has.
    return not appended.seq


def _changed(conversation_id: str) -> str:
    problem = "was imported before, and this message was another one then"
    return f"{conversation_id} {problem}; give the file another name to import both"
