"""How a mirror opens and reads what is below its directory: no link is followed, and what is refused is told."""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from refold.errors import InvalidInput, NotFound, StoreError, StoreFull

_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
READING: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def opened_file(folder: int, base: str) -> int | None:
    """Open a file to be read; ``None`` for a link, a folder, and what else is none or cannot be read."""
    try:
        file = os.open(base, READING, dir_fd=folder)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None


def all_of(file: int, bytes_max: int) -> bytes:
    """Return what a descriptor gives, at most one byte more than the bound."""
    parts: list[bytes] = []
    left = bytes_max + 1
    while left and (part := os.read(file, min(left, 1024**2))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def opened_directory(path: str, *, makes: bool) -> int:
    """Open a directory, made if asked for; ``NotFound`` without it or its parent, ``InvalidInput`` for a file."""
    if not os.path.isdir(os.path.dirname(path)):
        message = f"the parent directory {os.path.dirname(path)} of the mirror does not exist; create it first"
        raise NotFound(message)
    with suppress(FileExistsError):
        if makes:
            os.mkdir(path, 0o700)
    try:
        return os.open(path, FOLDER)
    except FileNotFoundError as error:
        message = f"there is no directory {path} to be looked at; a mirror that writes makes it"
        raise NotFound(message) from error
    except NotADirectoryError as error:
        message = f"{path} is a file; give the mirror a directory"
        raise InvalidInput(message) from error


@contextmanager
def telling(path: str) -> Generator[None]:
    """Tell what the system refuses in refold's words."""
    try:
        yield
    except OSError as error:
        kind = StoreFull if error.errno in _FULL else StoreError
        message = (
            f"the mirror's {path}: {error.strerror}; check who owns it and that its disk has space. The log has all"
        )
        raise kind(message) from error
