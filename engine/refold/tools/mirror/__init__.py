"""A memory's profile and journal as files that people read and edit, kept in step with the log both ways."""

from refold.tools.mirror.handle import Mirror, mirror_of
from refold.tools.mirror.reports import MirrorConflict, MirrorEdit, MirrorProblem, MirrorReport

__all__ = ["Mirror", "MirrorConflict", "MirrorEdit", "MirrorProblem", "MirrorReport", "mirror_of"]
