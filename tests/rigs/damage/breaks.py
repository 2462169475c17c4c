"""Builds of refold in which the rig has to find something, and the sound one."""

from collections.abc import Callable, Mapping
from typing import Final

from refold.engine import verify, walk
from refold.log import environment


class _Anything:
    """Equal to whatever it is compared with."""

    def __ne__(self, _: object) -> bool:
        return False


def sound() -> None:
    """Change nothing."""


def skip_commitments() -> None:
    """Believe every body."""
    setattr(walk, "commitments", lambda *_: _Anything())  # noqa: B010 - a name that the module does not export
    setattr(walk, "is_intact", lambda *_: True)  # noqa: B010
    setattr(walk, "is_intact", lambda *_: True)  # noqa: B010


def skip_checkpoints() -> None:
    """Believe every checkpoint row and digest."""
    setattr(verify.Refolding, "_schedule", lambda _: None)  # noqa: B010


def skip_structure() -> None:
    """Let LMDB follow whatever stands in the file, as it does in one that is too large to be walked at opening."""
    setattr(environment, "check_structure", lambda *_: None)  # noqa: B010


BUILDS: Final[Mapping[str, Callable[[], None]]] = {
    "sound": sound,
    "skip_commitments": skip_commitments,
    "skip_checkpoints": skip_checkpoints,
    "skip_structure": skip_structure,
}
