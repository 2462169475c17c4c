"""Recorders: readers of other programs' sessions and memories, each turning a file into what the log holds."""

from refold.recorders.importing import FORMATS, Imported, format_of, import_file
from refold.recorders.reading import MEMORY_FORMATS, memory_format_of, read_memories
from refold.recorders.remembering import ImportedMemories, import_memories
from refold.recorders.transcript import export_openai, transcript

__all__ = [
    "FORMATS",
    "MEMORY_FORMATS",
    "Imported",
    "ImportedMemories",
    "export_openai",
    "format_of",
    "import_file",
    "import_memories",
    "memory_format_of",
    "read_memories",
    "transcript",
]
