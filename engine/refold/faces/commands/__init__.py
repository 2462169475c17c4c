"""The verbs of the command line; importing them is cheap, what a verb needs is loaded when it is called."""

from refold.faces.commands import (
    benching,
    carrying,
    erasing,
    inspecting,
    remembering,
    serving,
    showing,
    skilling,
    travelling,
    trying,
    writing,
)
from refold.faces.commands.root import run

__all__ = [
    "benching",
    "carrying",
    "erasing",
    "inspecting",
    "remembering",
    "run",
    "serving",
    "showing",
    "skilling",
    "travelling",
    "trying",
    "writing",
]
