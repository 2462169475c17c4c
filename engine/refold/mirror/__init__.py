"""A memory's profile and journal as files that people read and edit, kept in step with the log both ways."""

from refold.mirror.merge import MirrorConflict, MirrorEdit, MirrorProblem, MirrorReport
from refold.mirror.mirror import Mirror, mirror_of

__all__ = ["Mirror", "MirrorConflict", "MirrorEdit", "MirrorProblem", "MirrorReport", "mirror_of"]
