"""Handles and verbs of this room that are loaded only by those who use them: each name, and where it lives."""

from importlib import import_module
from typing import Any, Final

from refold import checks
from refold.memory.door import Door

_HOMES: Final[dict[str, tuple[str, str]]] = {
    "aio": ("refold.memory.aio", "AsyncMemory"),
    "board": ("refold.memory.boards.handle", "Board"),
    "files": ("refold.memory.files", "Files"),
    "journal": ("refold.memory.handles", "Journal"),
    "profile": ("refold.memory.handles", "Profile"),
    "project": ("refold.memory.project", "Project"),
    "reembed": ("refold.memory.reembedding", "reembed"),
    "settings": ("refold.memory.settings", "Settings"),
}


def verb(name: str) -> Any:
    """Return what stands behind a name, importing its module now."""
    module, found = _HOMES[name]
    return getattr(import_module(module), found)


def handle(kind: str, door: Door, name: object, at: int | None) -> Any:
    """Return a handle on what a name stands for; raises ``InvalidInput`` for a name that cannot be."""
    return verb(kind)(door, checks.name(name, "name"), at)
