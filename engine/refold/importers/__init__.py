"""Importers: readers of other programs' sessions and memories, each of which turns a file into events."""

from refold.importers.memories import MEMORY_FORMATS, ImportedMemories, import_memories, memory_format_of, read_memories
from refold.importers.sessions import FORMATS, ImportResult, export_openai, format_of, import_file, transcript

__all__ = [
    "FORMATS",
    "MEMORY_FORMATS",
    "ImportResult",
    "ImportedMemories",
    "export_openai",
    "format_of",
    "import_file",
    "import_memories",
    "memory_format_of",
    "read_memories",
    "transcript",
]
