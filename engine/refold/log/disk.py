"""Creates files and directories durably, giving them their names once complete, and translates errors of the disk.

A directory is built next to its place, under a name that marks it as unfinished, and then renamed. A crash leaves the
building site, never a partial directory; the next builder for the same place clears it. Builders lock the site.
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
"""Error numbers that mean no space is left."""

_TAKEN: Final = frozenset((errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR))


NO_FILES: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""Error numbers that mean no more files can be opened."""

NO_FILES_NEXT: Final = "close files of this process, or raise its limit (ulimit -n), and call again"
_NEXT: Final = {
    **dict.fromkeys(FULL, "free disk space or raise the quota, and call again"),
    **dict.fromkeys(NO_FILES, NO_FILES_NEXT),
    errno.ENOMEM: "free memory, or raise the limit of this process (ulimit -v), and call again",
}
"""The next step for an error number, whichever operation failed."""


FILE_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open a store's files with: a store from elsewhere may contain a link to any file of its user."""


def disk_error(error: OSError, what: str, step: str) -> StoreError:
    """Return ``StoreFull`` if the error means that no space is left, else ``StoreError``.

    The message names the failed operation and the next step, which is ``step`` unless the error number has its own.
    """
    kind = StoreFull if error.errno in FULL else StoreError
    return kind(f"{what}: {error}; {_NEXT.get(error.errno or 0, step)}")


def remove(path: str, *, strict: bool = True) -> None:
    """Remove a directory and its contents; with ``strict=False``, stop at an ``OSError`` without raising it.

    An interrupt propagates as it is. ``shutil.rmtree`` can lose it: its cleanup closes a descriptor a second time, and
    the resulting error replaces the interrupt.
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
def build_directory(path: str, what: str, *, outside: str | None = None, may_be_empty: bool) -> Generator[str]:
    """Yield a directory to fill; flush it and move it to the path if the block succeeds, else leave nothing behind.

    ``outside`` is a directory that must not contain the path; ``may_be_empty`` allows an empty directory at the path.
    Raises ``InvalidInput`` if anything else is there, ``NotFound`` if the parent is missing, ``StoreBusy`` if another
    builder uses the same path, ``StoreFull`` and ``StoreError`` if the disk fails.
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
    """Raise ``OSError`` if too few descriptors are free to lock a site and clear it again."""
    first = os.open(parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(os.dup(first))
    finally:
        os.close(first)


def _check_free(target: str, what: str, *, outside: str | None, may_be_empty: bool) -> None:
    parent = os.path.dirname(target)
    if not os.path.isdir(parent):
        raise NotFound(f"the parent directory {parent} of {what} does not exist; create it first")
    _check_outside(target, outside)
    if os.path.lexists(target) and not (may_be_empty and os.path.isdir(target) and not os.listdir(target)):
        raise InvalidInput(_taken_message(target, what, may_be_empty=may_be_empty))


def _check_outside(target: str, outside: str | None) -> None:
    outside = outside and os.path.realpath(outside)
    if outside and os.path.commonpath((outside, target)) == outside:
        raise InvalidInput(f"{target} lies in the store at {outside}; give a path outside of it")


def _taken_message(target: str, what: str, *, may_be_empty: bool = False) -> str:
    place = "a path where nothing is, or an empty directory" if may_be_empty else "a path where nothing is"
    return f"{target} is there already, and {what} never replaces anything; give {place}"


def _take_site(target: str, what: str) -> tuple[str, int]:
    """Return the building site for a path, emptied, and the descriptor that locks it."""
    site = _site_path(target, SITE_SUFFIX)

    def open_site() -> int:
        while True:
            with suppress(FileExistsError):
                os.mkdir(site, 0o700)
            with suppress(FileNotFoundError):  # Its previous builder has just finished.
                return os.open(site, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    lock = _take(site, open_site, what)
    try:
        _clear(site)
    except BaseException:
        os.close(lock)
        raise
    return site, lock


@contextmanager
def build_file(path: str, what: str, *, outside: str | None = None, overwrite: bool) -> Generator[BinaryIO]:
    """Yield a file to fill; flush it and move it to the path if the block succeeds, else leave nothing behind.

    ``outside`` is a directory that must not contain the path. A crash leaves a file next to the path, which the next
    builder for the same path takes over. Raises ``InvalidInput`` if there is a file at the path, unless ``overwrite``
    allows its replacement, ``StoreBusy`` if another builder uses the same path, and ``OSError``: ``FileExistsError`` if
    the path holds anything but a file.
    """
    target = os.path.realpath(path)
    _check_outside(target, outside)
    _check_replaceable(target, overwrite=overwrite)
    site = _site_path(target, PART_SUFFIX)
    flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(_take(site, lambda: os.open(site, flags, 0o600), what), "wb") as file:
        try:
            file.truncate()
            yield file
            file.flush()
            os.fsync(file.fileno())
            _check_replaceable(target, overwrite=overwrite)  # Filling the file can take minutes.
            os.replace(site, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(site)
            raise
    flush(os.path.dirname(target))


def _check_replaceable(target: str, *, overwrite: bool) -> None:
    if not os.path.lexists(target):
        return
    if not os.path.isfile(target):
        raise FileExistsError(errno.EEXIST, "something is there that is not replaced", target)
    if not overwrite:
        raise InvalidInput(f"{target} is there already; give a path where nothing is, or overwrite=True to replace it")


@contextmanager
def unfinished_file(directory: str, prefix: str) -> Generator[tuple[int, str]]:
    """Yield the descriptor and the path of a new file with a unique name; it is removed after the block.

    Also removes such files that a crash has left; a file in use is locked, and stays.
    """
    import tempfile  # noqa: PLC0415 - rarely needed, and slow to import

    with suppress(PermissionError):  # A process that can write to a directory may lack permission to list it.
        for name in os.listdir(directory):
            if name.startswith(prefix) and name.endswith((UNFINISHED_SUFFIX, REPLACED_SUFFIX)):
                _remove_if_free(os.path.join(directory, name))
    while True:
        file, path = tempfile.mkstemp(prefix=prefix, suffix=UNFINISHED_SUFFIX, dir=directory)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if is_at(file, path):  # It was not removed before it was locked.
                yield file, path
                return
        finally:
            os.close(file)
            with suppress(FileNotFoundError):
                os.unlink(path)


@contextmanager
def second_name(path: str, beside: str) -> Generator[str]:
    """Give the file at a path a second name, removed after the block, while another file takes its first.

    Raises ``StoreBusy`` if another process is doing the same.
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


def _remove_if_free(path: str) -> None:
    """Remove a file unless it is locked."""
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(file, path):
                os.unlink(path)
        finally:
            os.close(file)


def _site_path(target: str, suffix: str) -> str:
    """Return the path at which the target is built."""
    parent, name = os.path.split(target)
    return os.path.join(parent, f".{name}{suffix}")


def _take(site: str, opened: Callable[[], int], what: str) -> int:
    """Open and lock a building site, and return its descriptor."""
    while True:
        lock = opened()
        try:
            _lock_site(lock, site, what)
            if is_at(lock, site):
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


def is_at(descriptor: int, path: str) -> bool:
    """Return whether an open file or directory is still the one at the path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _clear(site: str) -> None:
    """Remove the remains of a crash."""
    with os.scandir(site) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                remove(entry.path)
            else:
                os.unlink(entry.path)


def _flush_all(directory: str) -> None:
    """Flush every file in a directory, and the directory itself."""
    with os.scandir(directory) as entries:
        for entry in entries:
            flush(entry.path)
    flush(directory)


def _put_in_place(made: str, target: str, what: str) -> None:
    """Durably move a directory to its place; move it back if it is not certain to be durable."""
    try:
        os.rename(made, target)
        flush(os.path.dirname(target))
    except OSError as error:
        if os.path.lexists(made):
            if error.errno not in _TAKEN:
                raise
            raise InvalidInput(_taken_message(target, what)) from error
        _move_back(target, made, what)
        raise


def _move_back(target: str, made: str, what: str) -> None:
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
