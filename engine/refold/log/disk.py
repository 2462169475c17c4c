"""Files and directories made durable: flushed, named once they are whole, and the errors of the disk translated.

A directory is built next to its place, under a name that says so, and renamed. A crash leaves the building site, never
a part of the directory; the next builder for the same place clears it. Builders lock the site.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from typing import BinaryIO, Final

from refold.errors import InvalidInput, NotFound, StoreBusy, StoreError, StoreFull

SITE_SUFFIX: Final = ".refold-unfinished"
PART_SUFFIX: Final = ".refold-part"
UNFINISHED_SUFFIX: Final = ".unfinished"
REPLACED_SUFFIX: Final = ".replaced"
FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Numbers of the system that say that there is no space."""

_TAKEN: Final = frozenset((errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR))


NO_FILES: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""Numbers of the system that say that no more files may be open."""

NO_FILES_NEXT: Final = "close files of this process, or raise its limit (ulimit -n), and call again"
_NEXT: Final = {
    **dict.fromkeys(FULL, "free disk space or raise the quota, and call again"),
    **dict.fromkeys(NO_FILES, NO_FILES_NEXT),
    errno.ENOMEM: "free memory, or raise the limit of this process (ulimit -v), and call again",
}
"""What to do about an error of the system, whatever it has kept from being done."""


FILE_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC
"""How files of a store are opened: one that came from elsewhere may hold a link to any file of its user."""


def disk_error(error: OSError, what: str, step: str) -> StoreError:
    """Return ``StoreFull`` if the error says that there is no space, else ``StoreError``.

    It says what failed and the next step, which is ``step`` unless the error itself says more.
    """
    kind = StoreFull if error.errno in FULL else StoreError
    return kind(f"{what}: {error}; {_NEXT.get(error.errno or 0, step)}")


def remove(path: str, *, strict: bool = True) -> None:
    """Remove a directory with all that is in it; ``strict=False`` leaves what cannot be removed.

    An interrupt comes out as it is. That of ``shutil.rmtree`` may get lost: its clean-up closes a descriptor a second
    time, and the error of that takes the interrupt's place.
    """
    with nullcontext() if strict else suppress(OSError):
        for directory, directories, files in os.walk(path, topdown=False):
            for name in (*directories, *files):
                found = os.path.join(directory, name)
                if name in files or os.path.islink(found):
                    os.unlink(found)
                else:
                    os.rmdir(found)
        os.rmdir(path)


@contextmanager
def building(path: str, what: str, *, outside: str | None = None, may_be_empty: bool) -> Generator[str]:
    """Give a directory to fill, which is at the path, flushed, once the block ends well; else nothing is left.

    ``outside`` is a directory that the path may not lie in; ``may_be_empty`` allows an empty directory at the path.
    Raises ``InvalidInput`` where something else is there, ``NotFound`` without a parent, ``StoreBusy`` if another
    builds for the same path, ``StoreFull`` and ``StoreError`` where the disk refuses.
    """
    target = os.path.realpath(path)
    try:
        _check_free(target, what, outside=outside, may_be_empty=may_be_empty)
        _check_descriptors(os.path.dirname(target))
        site, lock = _take_site(target, what)
        try:
            made = os.path.join(site, "store")
            os.mkdir(made, 0o700)
            yield made
            _flush_all(made)
            _put_in_place(made, target, what)
        finally:
            remove(site, strict=False)
            os.close(lock)
    except OSError as error:
        step = "check that its parent is writable and call again"
        raise disk_error(error, f"making {what} at {path}, where nothing was left", step) from error


def _check_descriptors(parent: str) -> None:
    """Raise ``OSError`` where more descriptors are in use than would let a site be locked and cleared away again."""
    first = os.open(parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(os.dup(first))
    finally:
        os.close(first)


def _check_free(target: str, what: str, *, outside: str | None, may_be_empty: bool) -> None:
    parent = os.path.dirname(target)
    if not os.path.isdir(parent):
        raise NotFound(f"the parent directory {parent} of {what} does not exist; create it first")
    outside = outside and os.path.realpath(outside)
    if outside and os.path.commonpath((outside, target)) == outside:
        raise InvalidInput(f"{target} lies in the store at {outside}; give a path outside of it")
    if os.path.lexists(target) and not (may_be_empty and os.path.isdir(target) and not os.listdir(target)):
        raise InvalidInput(_taken(target, what, may_be_empty=may_be_empty))


def _taken(target: str, what: str, *, may_be_empty: bool = False) -> str:
    place = "a path where nothing is, or an empty directory" if may_be_empty else "a path where nothing is"
    return f"{target} is there already, and {what} never replaces anything; give {place}"


def _take_site(target: str, what: str) -> tuple[str, int]:
    """Return the building site for a path, empty, and the descriptor that locks it."""
    site = _beside(target, SITE_SUFFIX)

    def opened() -> int:
        while True:
            with suppress(FileExistsError):
                os.mkdir(site, 0o700)
            with suppress(FileNotFoundError):  # Whoever had it has just finished.
                return os.open(site, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    lock = _take(site, opened, what)
    try:
        _clear(site)
    except BaseException:
        os.close(lock)
        raise
    return site, lock


@contextmanager
def building_file(path: str, what: str) -> Generator[BinaryIO]:
    """Give a file to fill, which is at the path, flushed, once the block ends well; else nothing is left.

    A crash leaves a file beside it, which the next builder of the same one takes over. Raises ``StoreBusy`` if another
    builds for the same path, and ``OSError``: ``FileExistsError`` where something is there that is no file.
    """
    target = os.path.realpath(path)
    if os.path.lexists(target) and not os.path.isfile(target):
        raise FileExistsError(errno.EEXIST, "something is there that is not replaced", target)
    site = _beside(target, PART_SUFFIX)
    flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(_take(site, lambda: os.open(site, flags, 0o600), what), "wb") as file:
        try:
            file.truncate()
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(site, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(site)
            raise
    flush(os.path.dirname(target))


@contextmanager
def unfinished_file(directory: str, prefix: str) -> Generator[tuple[int, str]]:
    """Give the descriptor and the path of a new file under a name that no other has; it is gone after the block.

    What a crash left of such files is taken away; one that is in use is locked, and stays.
    """
    import tempfile  # noqa: PLC0415 - few need it, and it is slow to import

    with suppress(PermissionError):  # Who may write to a directory may not be let to list it.
        for name in os.listdir(directory):
            if name.startswith(prefix) and name.endswith((UNFINISHED_SUFFIX, REPLACED_SUFFIX)):
                _take_away(os.path.join(directory, name))
    while True:
        file, path = tempfile.mkstemp(prefix=prefix, suffix=UNFINISHED_SUFFIX, dir=directory)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(file, path):  # Not taken away before it was locked.
                yield file, path
                return
        finally:
            os.close(file)
            with suppress(FileNotFoundError):
                os.unlink(path)


@contextmanager
def second_name(path: str, beside: str) -> Generator[str]:
    """Give a second name to the file at a path, while another file takes its first one; it is gone after the block.

    ``StoreBusy`` where somebody else does so.
    """
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _lock_site(file, path, "another version")
        second = beside.removesuffix(UNFINISHED_SUFFIX) + REPLACED_SUFFIX
        os.link(path, second)
        try:
            yield second
        finally:
            with suppress(FileNotFoundError):
                os.unlink(second)
    finally:
        os.close(file)


def _take_away(path: str) -> None:
    """Remove a file that nobody has locked."""
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):
                os.unlink(path)
        finally:
            os.close(file)


def _beside(target: str, suffix: str) -> str:
    """Return where what is to be at a path is built."""
    parent, name = os.path.split(target)
    return os.path.join(parent, f".{name}{suffix}")


def _take(site: str, opened: Callable[[], int], what: str) -> int:
    """Return the descriptor of a building site, locked."""
    while True:
        lock = opened()
        try:
            _lock_site(lock, site, what)
            if _is_at(lock, site):
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _lock_site(lock: int, site: str, what: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreBusy(
            f"somebody is making {what} there at this moment ({site}); wait for it, or give another path"
        ) from error


def _is_at(descriptor: int, path: str) -> bool:
    """Return whether an open directory is still the one at the path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _clear(site: str) -> None:
    """Take away what a crash has left."""
    with os.scandir(site) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                remove(entry.path)
            else:
                os.unlink(entry.path)


def _flush_all(directory: str) -> None:
    """Flush every file of a directory, and the directory."""
    with os.scandir(directory) as entries:
        for entry in entries:
            flush(entry.path)
    flush(directory)


def _put_in_place(made: str, target: str, what: str) -> None:
    """Give a directory its name, durably; taken away again where that is not sure."""
    try:
        os.rename(made, target)
        flush(os.path.dirname(target))
    except OSError as error:
        if os.path.lexists(made):
            if error.errno not in _TAKEN:
                raise
            raise InvalidInput(_taken(target, what)) from error
        _take_back(target, made, what)
        raise


def _take_back(target: str, made: str, what: str) -> None:
    try:
        os.rename(target, made)
    except OSError as error:
        if os.path.lexists(made):
            return
        raise StoreError(
            f"{what} stands at {target}, whole, but a loss of power may still take it ({error}); check the disk, "
            f"remove it and call again"
        ) from error


def flush(path: str) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
