"""The verbs of the command line; importing them is cheap, because a verb loads its dependencies when it is called."""

from refold.cli import bench, bisection, memories, reasons, scenarios, sessions, skills, state, store, web
from refold.cli.root import run

__all__ = [
    "bench",
    "bisection",
    "memories",
    "reasons",
    "run",
    "scenarios",
    "sessions",
    "skills",
    "state",
    "store",
    "web",
]
