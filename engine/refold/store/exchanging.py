"""Two files that change names at one instant, which is what Linux offers beyond POSIX.

Who replaces a file by a rename loses what others put there since it was last read. After an exchange the other file is
still there, under our name, and can be looked at.
"""

import errno
import os
from functools import cache
from typing import Any, Final

_EXCHANGE: Final = 2
"""``RENAME_EXCHANGE`` of ``renameat2``."""

_UNKNOWN: Final = frozenset((errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM))
"""What systems and file systems say that cannot do it."""


@cache
def _function() -> Any:
    import ctypes  # noqa: PLC0415 - only mirrors need it, and it takes a while to load

    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
        function.restype = ctypes.c_int
    return function


def exchanged(folder: int, one: str, other: str) -> bool:
    """Let two files of a folder change names; return whether this system can do that. ``OSError`` where it fails."""
    function = _function()
    if function is None:
        return False
    import ctypes  # noqa: PLC0415 - as above

    if function(folder, os.fsencode(one), folder, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), one)
