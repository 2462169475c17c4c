"""The verbs of the command line; importing them is cheap: a verb loads its needs when it is called."""

from refold.cli import bench, memories, sessions, skills, state, store
from refold.cli.root import run

__all__ = ["bench", "memories", "run", "sessions", "skills", "state", "store"]
