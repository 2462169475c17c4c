"""The files of a mirror: read, replaced and removed below one directory, as bytes.

Every file is reached through a descriptor of its folder, and no link is followed. A file is replaced only if it is
still the one that was read: two files exchange names at one instant, and the one that comes out is compared; if it is
another file, the names are exchanged back. So a file that another program puts there meanwhile, or writes to, is never
lost.
"""

import errno
import fcntl
import os
import re
import signal
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final, NamedTuple

from refold.errors import InvalidInput, LimitExceeded, NotFound, StoreBusy, StoreError, StoreFull
from refold.limits import MIRROR_FILE_BYTES_MAX, MIRROR_FILES_COUNT_MAX, MIRROR_STATE_BYTES_MAX, RETRIES_COUNT_MAX
from refold.log.directory import holds_store
from refold.text import blake2b

PROFILE_FILE: Final = "profile.json"
STATE_FILE: Final = ".refold-mirror"
LOCK_FILE: Final = ".refold-mirror.lock"
NEW: Final = ".refold-new-"
"""Prefix of files that are being written, which are worthless after a crash."""

SWAP: Final = ".refold-swap-"
"""Prefix of files that are about to get their name, or have just lost it: a crash may leave a user's work there."""

CONFLICT: Final = ".conflict-"
"""Separates a file's name from the digest of a copy that holds the user's side of a conflict."""

_MONTH: Final = re.compile(r"\d{6}")
_DAY_FILE: Final = re.compile(r"(\d{6})\d\d\.md")
_STRAY: Final = re.compile(r"\d{8}[^/]*\.md", re.IGNORECASE)
"""Names that a user may have meant for a day's file."""
_LEFTOVER_BYTES_MAX: Final = 16 * MIRROR_FILE_BYTES_MAX
"""A larger leftover is set aside as it is: no user wrote that many notes."""
_COPY: Final = re.compile(rf"(?:{re.escape(PROFILE_FILE)}|\d{{8}}\.md){re.escape(CONFLICT)}[0-9a-f]{{12}}")
_LINK: Final = "is a link, which is not followed; put the file itself there"

_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_REPLACED_COUNT_MAX: Final = 64
_RENAME_EXCHANGE: Final = 2
_UNSUPPORTED: Final = frozenset((errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM))
"""Errors of systems and file systems that cannot exchange names."""


class FileVersion(NamedTuple):
    """A file as it was seen; a file that was written to, or another file of its name, has another version."""

    inode: int
    size: int
    modified_ns: int


class FileContent(NamedTuple):
    """The content of a name: a file and its bytes, nothing (``version`` is ``None``), or why it cannot be read."""

    version: FileVersion | None
    content: bytes = b""
    problem: str = ""


class ReplacedFile:
    """A file that has lost its name, open as long as a program may continue to write to it."""

    __slots__ = ("content", "copy", "erased", "file", "name", "version")

    def __init__(self, name: str, file: int, content: bytes, version: FileVersion | None = None) -> None:
        self.name = name
        self.file = file
        self.content = content
        """The bytes of it that are in the log, or in a copy."""
        self.version = version
        """The version of the file when it was last compared with them."""
        self.copy = ""
        """The name of that copy, empty if there is none."""
        self.erased: list[Any] | None = None
        """The bases of everything in it that erasures may have reached, ``None`` if there was no erasure since."""

    def has_changed(self) -> bool:
        """Return whether it was written to since it was last compared."""
        return _version(os.fstat(self.file)) != self.version

    def is_written(self) -> bool:
        """Return whether a program has it open for writing, or may have.

        A lease is granted only for a file that no program has open for writing. It is returned at once; if it is broken
        in between, its signal is one that processes ignore by default.
        """
        try:
            fcntl.fcntl(self.file, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(self.file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(self.file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except (AttributeError, OSError):  # An unsupported system, a file of another user, or a file open for writing.
            return True
        return False


class MirrorDirectory:
    """The directory of a mirror, locked for one mirror at a time; ``locks=False`` creates and changes nothing."""

    def __init__(self, path: str, *, locks: bool = True) -> None:
        self.path = os.path.realpath(path)
        self.replaced: list[ReplacedFile] = []
        """Files that were replaced and that programs may still write to, the oldest first."""
        self.strays: list[str] = []
        """The files that looked like days in the last walk, but are not by their names or places; sorted."""
        with storage_errors(self.path):
            self._root = _open_directory(self.path, makes=locks)
            try:
                self._lock = _lock(self._root, self.path) if locks else None
            except BaseException:
                os.close(self._root)
                raise
        self._is_closed = False

    def close(self) -> None:
        """Release the directory; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            for replaced in self.replaced:
                os.close(replaced.file)
            if self._lock is not None:
                os.close(self._lock)
            os.close(self._root)

    # Reading.

    def walk(self) -> dict[str, FileVersion]:
        """Return the files of the profile and of days by name; raises ``LimitExceeded`` for too many.

        Raises ``StoreError`` if the directory is gone, or another one has its name.
        """
        self._check_exists()
        versions: dict[str, FileVersion] = {}
        strays: list[str] = []
        with storage_errors(self.path), os.scandir(self._root) as entries:
            for entry in list(entries):
                if entry.name == PROFILE_FILE:
                    versions[entry.name] = _version(entry.stat(follow_symlinks=False))
                elif _MONTH.fullmatch(entry.name):
                    versions |= self._month(entry.name, strays)
                elif _STRAY.fullmatch(entry.name):
                    strays.append(entry.name)
                if len(versions) > MIRROR_FILES_COUNT_MAX:
                    raise LimitExceeded(
                        f"{self.path} holds more than MIRROR_FILES_COUNT_MAX = {MIRROR_FILES_COUNT_MAX:,} files of "
                        "days; move the older ones elsewhere"
                    )
        self.strays = sorted(strays)
        return versions

    def _check_exists(self) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            if os.path.samestat(os.stat(self.path, follow_symlinks=False), os.fstat(self._root)):
                return
        raise StoreError(
            f"the mirror's directory {self.path} was removed, or another one has its name by now; "
            f"open the mirror again, and it is written anew. The log has all"
        )

    def _month(self, month: str, strays: list[str]) -> dict[str, FileVersion]:
        """Return the files of a month's days, and add to ``strays`` the names of files that only look like one."""
        versions: dict[str, FileVersion] = {}
        # The folder is gone, or it is a link or a file: none of its days is ours.
        errors = suppress(FileNotFoundError, NotADirectoryError)
        with errors, self._folder(f"{month}/") as (folder, _), os.scandir(folder) as entries:
            for entry in entries:
                match = _DAY_FILE.fullmatch(entry.name)
                if match is not None and match[1] == month:
                    versions[f"{month}/{entry.name}"] = _version(entry.stat(follow_symlinks=False))
                elif _STRAY.fullmatch(entry.name):
                    strays.append(f"{month}/{entry.name}")
        return versions

    @contextmanager
    def _folder(self, name: str, *, makes: bool = False) -> Generator[tuple[int, str]]:
        """Open the folder of a name; yield it with the last part of the name."""
        month, _, base = name.rpartition("/")
        if not month:
            yield self._root, base
            return
        if makes:
            with suppress(FileExistsError):
                os.mkdir(month, 0o700, dir_fd=self._root)
                os.fsync(self._root)
        folder = os.open(month, _FOLDER, dir_fd=self._root)
        try:
            yield folder, base
        finally:
            os.close(folder)

    def read(self, name: str, bytes_max: int | None = MIRROR_FILE_BYTES_MAX) -> FileContent:
        """Read a file, with a few retries while a program writes to it; ``bytes_max=None`` sets no bound."""
        try:
            for _ in range(RETRIES_COUNT_MAX):
                read = self._read_once(name, bytes_max)
                if read is not None:
                    return read
        except FileNotFoundError:
            return FileContent(None)
        except OSError as error:
            is_link = error.errno in {errno.ELOOP, errno.ENOTDIR}
            return FileContent(None, problem=_LINK if is_link else f"cannot be read ({error.strerror})")
        return FileContent(None, problem="is being written to; it is looked at again later")

    def _read_once(self, name: str, bytes_max: int | None) -> FileContent | None:
        with self._folder(name) as (folder, base):
            file = os.open(base, _READ, dir_fd=folder)
        try:
            before = os.fstat(file)
            if not stat.S_ISREG(before.st_mode):
                return FileContent(None, problem="is no file; put a file there, or nothing")
            if bytes_max is not None and before.st_size > bytes_max:
                return FileContent(_version(before), problem=size_problem(before.st_size))
            content = _content(file, before.st_size)
            is_whole = _version(os.fstat(file)) == _version(before) and len(content) == before.st_size
            return FileContent(_version(before), content) if is_whole else None
        finally:
            os.close(file)

    # Writing.

    def replace(self, name: str, content: bytes, read: FileContent) -> FileVersion | None:
        """Replace a file that was read, durably; return the new version, ``None`` if something else is there by now.

        Raises ``StoreFull`` and ``StoreError``; the present file stays whole.
        """
        with storage_errors(f"{self.path}/{name}"), self._folder(name, makes=True) as (folder, base):
            self._write(folder, base, content)
            swap = SWAP + base
            # An earlier call may have left a file there that it could not put back.
            self._let_go(folder, name, swap, b"")
            os.rename(NEW + base, swap, src_dir_fd=folder, dst_dir_fd=folder)
            version = _version(os.stat(swap, dir_fd=folder, follow_symlinks=False))
            if read.version is None:
                is_replaced = self._place(folder, swap, base)
                os.unlink(swap, dir_fd=folder)
            else:
                is_replaced = self._swap(folder, name, content, read)
            os.fsync(folder)
            return version if is_replaced else None

    def _write(self, folder: int, base: str, content: bytes) -> None:
        with suppress(FileNotFoundError):
            os.unlink(NEW + base, dir_fd=folder)
        file = os.open(NEW + base, _CREATE, 0o600, dir_fd=folder)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(file, view) :]
            os.fsync(file)
        except BaseException:
            os.unlink(NEW + base, dir_fd=folder)
            raise
        finally:
            os.close(file)

    def _place(self, folder: int, swap: str, base: str) -> bool:
        """Give a file a name, if that is free; return whether it was."""
        try:
            os.link(swap, base, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return False
        return True

    def _swap(self, folder: int, name: str, content: bytes, read: FileContent) -> bool:
        base = name.rpartition("/")[2]
        swap = SWAP + base
        try:
            if not exchange(folder, swap, base):
                # Names cannot be exchanged here, so the file is checked right before it is replaced.
                if _version(os.stat(base, dir_fd=folder, follow_symlinks=False)) != read.version:
                    os.unlink(swap, dir_fd=folder)
                    return False
                os.rename(swap, base, src_dir_fd=folder, dst_dir_fd=folder)
                return True
        except FileNotFoundError:
            os.unlink(swap, dir_fd=folder)
            return False
        if self._holds(folder, name, swap, read):
            os.unlink(swap, dir_fd=folder)
            return True
        # Another program was faster: its file is put back, and ours goes. If yet another file comes out then, it has
        # lost its name to us, and so has anything that a program wrote into ours while it was there.
        with suppress(FileNotFoundError):
            exchange(folder, swap, base)
        self._let_go(folder, name, swap, content)
        return False

    def _let_go(self, folder: int, name: str, swap: str, content: bytes) -> None:
        """Remove a file that has lost its name; ``late_changes`` checks that it holds only ``content``."""
        file = _open_file(folder, swap)
        if file is None:
            _set_aside(folder, swap)
        else:
            self.replaced.append(ReplacedFile(name, file, content))
            os.unlink(swap, dir_fd=folder)

    def _holds(self, folder: int, name: str, base: str, read: FileContent) -> bool:
        """Return whether a replaced file has the bytes that were read; if so, it stays open for later changes."""
        file = _open_file(folder, base)
        if file is None:
            return False
        version = _version(os.fstat(file))
        if _content(file, len(read.content)) != read.content:
            os.close(file)
            return False
        self.replaced.append(ReplacedFile(name, file, read.content, version))
        return True

    def has_late_changes(self) -> bool:
        """Return whether ``late_changes`` has anything to check."""
        return any(replaced.has_changed() for replaced in self.replaced)

    def late_changes(self) -> Iterator[tuple[ReplacedFile, bytes]]:
        """Yield the replaced files that hold more than is known of them, with their contents.

        Each stays open until no program has it open for writing; if there are too many, the oldest are closed. A file
        that a caller cannot save is yielded again.
        """
        for replaced in self.replaced[:]:
            is_over = not replaced.is_written() or len(self.replaced) > _REPLACED_COUNT_MAX
            if is_over or replaced.has_changed():
                with storage_errors(f"{self.path}/{replaced.name}"):
                    version = _version(os.fstat(replaced.file))
                    os.lseek(replaced.file, 0, os.SEEK_SET)
                    content = _content(replaced.file, len(replaced.content) + MIRROR_FILE_BYTES_MAX)
                if content != replaced.content:
                    yield replaced, content
                replaced.content, replaced.version = content, version
            if is_over:
                self.replaced.remove(replaced)
                os.close(replaced.file)

    def remove(self, name: str, read: FileContent) -> bool:
        """Remove a file that was read, unless another one is there by now; return whether it is gone."""
        with storage_errors(f"{self.path}/{name}"), self._folder(name) as (folder, base):
            swap = SWAP + base
            try:
                os.rename(base, swap, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:
                return True
            is_ours = self._holds(folder, name, swap, read)
            if is_ours or self._place(folder, swap, base):
                os.unlink(swap, dir_fd=folder)
            else:
                self._let_go(folder, name, swap, read.content)
            os.fsync(folder)
            return is_ours

    # Copies of edits that the log does not take.

    def copy(self, name: str, content: bytes) -> str:
        """Write a copy next to a file, under a name that identifies its content; return that name."""
        copy = name + _copy_suffix(content)
        with storage_errors(f"{self.path}/{copy}"), self._folder(copy, makes=True) as (folder, base):
            self._write(folder, base, content)
            os.rename(NEW + base, base, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        return copy

    def copies(self) -> list[str]:
        """Return the names of the copies, with their folders, sorted."""
        names: list[str] = []
        for month in self._months():
            with suppress(FileNotFoundError, NotADirectoryError), self._folder(month) as (folder, _):
                names += [month + base for base in os.listdir(folder) if _COPY.fullmatch(base)]
        return sorted(names)

    def supersede_copy(self, copy: str) -> None:
        """Delete a copy whose content another copy also has, unless a user has changed it."""
        if copy.endswith(_copy_suffix(self.read(copy, None).content)):
            self.delete_copy(copy)

    def delete_copy(self, copy: str) -> None:
        """Delete a copy, durably, whatever it holds by now."""
        with storage_errors(f"{self.path}/{copy}"), self._folder(copy) as (folder, base):
            with suppress(FileNotFoundError):
                os.unlink(base, dir_fd=folder)
            os.fsync(folder)

    def _months(self) -> list[str]:
        with storage_errors(self.path):
            return ["", *(f"{name}/" for name in os.listdir(self._root) if _MONTH.fullmatch(name))]

    # The state after the last round.

    def read_state(self) -> bytes:
        """Return the mirror's own record of its files, empty if there is none."""
        return self.read(STATE_FILE, MIRROR_STATE_BYTES_MAX).content

    def write_state(self, content: bytes) -> None:
        """Write the mirror's own record of its files, atomically and durably."""
        with storage_errors(f"{self.path}/{STATE_FILE}"):
            self._write(self._root, STATE_FILE, content)
            os.rename(NEW + STATE_FILE, STATE_FILE, src_dir_fd=self._root, dst_dir_fd=self._root)
            os.fsync(self._root)

    def leftovers(self) -> Iterator[tuple[str, bytes]]:
        """Yield the replaced files that a crash has left, by name; each is removed when the next one is requested.

        Files that were half written at the crash are removed without a report.
        """
        with storage_errors(self.path):
            for month in self._months():
                with suppress(FileNotFoundError, NotADirectoryError), self._folder(month) as (folder, _):
                    for base in os.listdir(folder):
                        if base.startswith(NEW):
                            os.unlink(base, dir_fd=folder)
                        elif base.startswith(SWAP):
                            read = self.read(month + base, _LEFTOVER_BYTES_MAX)
                            if read.version is None or read.problem:
                                _set_aside(folder, base)
                                continue
                            yield month + base.removeprefix(SWAP), read.content
                            os.unlink(base, dir_fd=folder)


def _copy_suffix(content: bytes) -> str:
    """Return the end of a copy's name."""
    return f"{CONFLICT}{blake2b(content, digest_size=16).hexdigest()[:12]}"


def size_problem(size: int) -> str:
    """Return the problem of a file that is over the bound."""
    return f"is {size:,} bytes, over MIRROR_FILE_BYTES_MAX = {MIRROR_FILE_BYTES_MAX:,}; shorten it"


@contextmanager
def storage_errors(path: str) -> Generator[None]:
    """Raise the system's errors as ``StoreFull`` and ``StoreError``."""
    try:
        yield
    except OSError as error:
        kind = StoreFull if error.errno in _FULL else StoreError
        raise kind(
            f"the mirror's {path}: {error.strerror}; check who owns it and that its disk has space. The log has all"
        ) from error


def exchange(folder: int, one: str, other: str) -> bool:
    """Exchange the names of two files of a folder; return whether this system can, and raise ``OSError`` on failure.

    Replacing a file with a rename loses anything that another program put there since it was read. After an exchange
    the other file still exists, under our name, and can be compared. Linux offers this beyond POSIX.
    """
    function = _renameat2()
    if function is None:
        return False
    import ctypes  # noqa: PLC0415 - only mirrors need it, and it takes a while to load

    if function(folder, os.fsencode(one), folder, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), one)


@cache
def _renameat2() -> Any:
    import ctypes  # noqa: PLC0415 - as above

    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
        function.restype = ctypes.c_int
    return function


def _version(status: os.stat_result) -> FileVersion:
    return FileVersion(status.st_ino, status.st_size, status.st_mtime_ns)


def _open_file(folder: int, base: str) -> int | None:
    """Open a file for reading; ``None`` for a link, a folder, and anything that cannot be read."""
    try:
        file = os.open(base, _READ, dir_fd=folder)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None


def _content(file: int, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    left = bytes_max + 1
    while left and (part := os.read(file, min(left, 1024**2))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _open_directory(path: str, *, makes: bool) -> int:
    if not os.path.isdir(os.path.dirname(path)):
        raise NotFound(f"the parent directory {os.path.dirname(path)} of the mirror does not exist; create it first")
    if holds_store(path):
        raise InvalidInput(f"{path} is a store; give the mirror a directory of its own, such as {path}-files")
    with suppress(FileExistsError):
        if makes:
            os.mkdir(path, 0o700)
    try:
        return os.open(path, _FOLDER)
    except FileNotFoundError as error:
        raise NotFound(f"there is no directory {path} to be looked at; a mirror that writes makes it") from error
    except NotADirectoryError as error:
        raise InvalidInput(f"{path} is a file; give the mirror a directory") from error


def _lock(root: int, path: str) -> int:
    lock = os.open(LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=root)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise StoreBusy(f"another mirror holds {path}; close it, or give this one a directory of its own") from error
    return lock


def _set_aside(folder: int, swap: str) -> None:
    """Rename something that cannot be handled as a file, so that it stays next to its old name."""
    with suppress(FileNotFoundError):
        inode = os.stat(swap, dir_fd=folder, follow_symlinks=False).st_ino
        os.rename(swap, f"{swap.removeprefix(SWAP)}{CONFLICT}inode-{inode}", src_dir_fd=folder, dst_dir_fd=folder)
