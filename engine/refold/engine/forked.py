"""What becomes of an engine when its process forks: a child must not use it; LMDB and locks are the parent's."""

import os
from typing import Final, Protocol
from weakref import WeakSet


class Owned(Protocol):
    """Something that belongs to one process."""

    def disown(self) -> None:
        """Refuse every further use."""
        ...


_owned: Final[WeakSet[Owned]] = WeakSet()


def watch(owned: Owned) -> None:
    """Disown this in every child that forks off from now on."""
    _owned.add(owned)


def _disown_all() -> None:
    for owned in _owned:
        owned.disown()


os.register_at_fork(after_in_child=_disown_all)
