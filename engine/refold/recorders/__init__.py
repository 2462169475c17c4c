"""Recorders: readers of other programs' sessions, each turning a file into messages for the log."""

from refold.recorders.importing import FORMATS, Imported, format_of, import_file
from refold.recorders.transcript import export_openai, transcript

__all__ = ["FORMATS", "Imported", "export_openai", "format_of", "import_file", "transcript"]
