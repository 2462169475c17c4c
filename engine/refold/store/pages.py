"""Giving mapped pages back: what LMDB has once read through its memory map counts as this process's memory.

The pages are clean copies of the file and the system takes them back when it runs short; but who looks at a process
from outside, a container's limit included, sees them. Where the system has no ``madvise`` nothing happens.
"""

import ctypes
import os
from collections.abc import Iterator
from typing import Final

_MAPS: Final = "/proc/self/maps"
_DONT_NEED: Final = 4
"""``MADV_DONTNEED`` on Linux: for a shared map of a file, forget the mapping, keep the file's cached pages."""


def release(path: str) -> bool:
    """Let go of the pages of a file that are mapped here; return whether the system could be asked to."""
    if not os.path.exists(_MAPS):
        return False
    advise = ctypes.CDLL(None, use_errno=True).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    results = [advise(begin, end - begin, _DONT_NEED) for begin, end in _maps_of(os.path.realpath(path))]
    return bool(results) and not any(results)


def _maps_of(path: str) -> Iterator[tuple[int, int]]:
    """Return where a file is mapped: the first and the last address of each map."""
    with open(_MAPS, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            addresses, permissions, *_, name = [*line.rstrip("\n").split(None, 5), ""][:6]
            if name == path:
                assert permissions.endswith("s"), f"{path} is mapped privately"
                begin, end = addresses.split("-")
                yield int(begin, 16), int(end, 16)
