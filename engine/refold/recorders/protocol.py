"""What a recorder is: it recognises a format by its first bytes and reads conversations, or memories, from a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from msgspec import Struct


class SourceMessage(Struct, frozen=True):
    """A message as a source tells it; whether its values are sound is decided where it is appended."""

    role: Any
    content: Any
    name: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    occurred_ns: int | None = None
    metadata: dict[str, Any] | None = None


class SourceConversation(Struct, frozen=True):
    """A conversation as a source tells it: the line it begins in, and the source's own id where it has one.

    ``place`` says where it stands in a file that is one document, whose lines mean nothing.
    """

    line: int
    own_id: str | None
    project: str | None
    messages: Iterator[SourceMessage]
    place: str = ""

    @property
    def where(self) -> str:
        """Return where in its file the conversation begins."""
        return self.place or f"line {self.line}"


class Recorder(Protocol):
    """Reads one format. ``conversations`` holds one document in RAM; its errors begin with the place."""

    @property
    def name(self) -> str:
        """The name of the format, which conversation ids begin with."""
        ...

    def recognises(self, head: bytes) -> bool:
        """Return whether a file that begins with these bytes is of the format."""
        ...

    def conversations(self, file: BinaryIO) -> Iterator[SourceConversation]:
        """Return the conversations of a file in its order; ``InvalidInput`` names the place of what is malformed."""
        ...


class SourceMemory(Struct, frozen=True):
    """A memory as a source tells it; whether its values are sound is decided where it is added."""

    place: str
    """Where it stands in its file, for messages."""
    key: str
    """What names it within its file, however the file grows."""
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


class MemoryReader(Protocol):
    """Reads one format of memories. It holds one document in RAM, and checks all of it before the first memory."""

    @property
    def name(self) -> str:
        """The name of the format."""
        ...

    def recognises(self, head: bytes) -> bool:
        """Return whether a file that begins with these bytes is of the format."""
        ...

    def memories(self, path: Path) -> Iterator[SourceMemory]:
        """Return the memories of a file in its order; ``InvalidInput`` names the place of what is malformed."""
        ...
