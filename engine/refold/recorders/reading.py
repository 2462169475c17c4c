"""Files of memories: the format from the content, and every memory read and checked before the first is used."""

from pathlib import Path
from typing import Final

from refold.errors import InvalidInput, LimitExceeded
from refold.recorders.importing import named, opened, recognised
from refold.recorders.mem0 import MEM0
from refold.recorders.memories import JSON_MEMORIES
from refold.recorders.observations import OBSERVATIONS
from refold.recorders.protocol import MemoryReader, SourceMemory

_READERS: Final[tuple[MemoryReader, ...]] = (OBSERVATIONS, MEM0, JSON_MEMORIES)
MEMORY_FORMATS: Final = tuple(reader.name for reader in _READERS)
"""The names of the formats of memories that can be imported."""


def memory_format_of(path: Path) -> str:
    """Return the name of the format of a file of memories; ``InvalidInput`` if it is none of ``MEMORY_FORMATS``."""
    return recognised(path, _READERS, MEMORY_FORMATS).name


def read_memories(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002 - the word its users say
) -> list[SourceMemory]:
    """Return the memories of a file; ``format=None`` tells the format from the content.

    Raises ``InvalidInput`` with file and place for what is malformed, ``LimitExceeded`` for what is too large.
    """
    reader = named(path, _READERS, MEMORY_FORMATS, format)
    with opened(path):
        # What is no file that can be read is said in our words before the reader opens it.
        pass
    try:
        return list(reader.memories(path))
    except (InvalidInput, LimitExceeded) as error:
        message = f"{path}: {error}"
        raise type(error)(message) from error
