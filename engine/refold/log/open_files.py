"""The data files that are open in this process, by their identity, and those that its parent had open."""

import ctypes
import os
import threading
from typing import TYPE_CHECKING, Final

from refold.errors import StoreBusy
from refold.log.lmdb_file import DATA_FILE
from refold.threads import free_lock

if TYPE_CHECKING:
    from refold.log.environment import Environment

open_environments: Final["dict[tuple[int, int], Environment]"] = {}
"""Those of this process, by the identity of their files."""
open_lock = threading.RLock()
"""Held to open and to close; a thread may take it again: a handle that is collected then gives its share back."""


_of_parent: Final[set[tuple[int, int]]] = set()
"""The files that were open where this process forked off."""


def _leave_to_parent() -> None:
    """Keep what this process has of the parent's environments for ever.

    Who lets go of one gives up the place of its reader in LMDB's table, which is the parent's.
    """
    free_lock(open_lock)
    for identity, environment in open_environments.items():
        _of_parent.add(identity)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(environment.env))
    open_environments.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def identity_at(path: str) -> tuple[int, int]:
    """Return the identity of the file; ``StoreBusy`` if the process that forked this one has it open."""
    identity = file_at(path)
    if identity in _of_parent:
        raise StoreBusy(
            f"the process that forked this one had the store at {path} open; fork before it is opened, or start "
            f"processes with 'spawn'"
        )
    return identity


def file_at(path: str) -> tuple[int, int]:
    """Return the identity of the data file at a path."""
    status = os.stat(os.path.join(path, DATA_FILE))
    return status.st_dev, status.st_ino
