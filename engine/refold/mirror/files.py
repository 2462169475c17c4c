"""Files of a mirror: found, read, replaced and removed below one directory, never outside of it. Bytes only.

Every file is reached through a descriptor of its folder, and no link is followed. A file is replaced only if it is
still the one that was read: two files change names at one instant, and what comes out is looked at; where it is
another one, the names change back. So whoever puts a file there meanwhile, or writes to it, loses nothing.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final, NamedTuple

from refold.errors import InvalidInput, LimitExceeded, NotFound, StoreBusy, StoreError, StoreFull
from refold.limits import MIRROR_FILE_BYTES_MAX, MIRROR_FILES_COUNT_MAX, MIRROR_STATE_BYTES_MAX, RETRIES_COUNT_MAX
from refold.text import blake2b

# Two files that change names at one instant, which is what Linux offers beyond POSIX.
#
# Who replaces a file by a rename loses what others put there since it was last read. After an exchange the other file
# is still there, under our name, and can be looked at.

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


# How a mirror opens and reads what is below its directory: no link is followed, and what is refused is told.

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
        raise NotFound(f"the parent directory {os.path.dirname(path)} of the mirror does not exist; create it first")
    with suppress(FileExistsError):
        if makes:
            os.mkdir(path, 0o700)
    try:
        return os.open(path, FOLDER)
    except FileNotFoundError as error:
        raise NotFound(f"there is no directory {path} to be looked at; a mirror that writes makes it") from error
    except NotADirectoryError as error:
        raise InvalidInput(f"{path} is a file; give the mirror a directory") from error


@contextmanager
def telling(path: str) -> Generator[None]:
    """Tell what the system refuses in refold's words."""
    try:
        yield
    except OSError as error:
        kind = StoreFull if error.errno in _FULL else StoreError
        raise kind(
            f"the mirror's {path}: {error.strerror}; check who owns it and that its disk has space. The log has all"
        ) from error


PROFILE_FILE: Final = "profile.json"
STATE_FILE: Final = ".refold-mirror"
LOCK_FILE: Final = ".refold-mirror.lock"
NEW: Final = ".refold-new-"
"""How files begin that are being written: what a crash leaves of one is worth nothing."""

SWAP: Final = ".refold-swap-"
"""How files begin that are about to get their name, or have just lost it: a crash may leave somebody's work there."""

KEPT: Final = ".conflict-"
"""What stands between a file's name and the rest of the name of what was kept beside it."""

_MONTH: Final = re.compile(r"\d{6}")
_DAY_FILE: Final = re.compile(r"(\d{6})\d\d\.md")
_COPY: Final = re.compile(rf"(?:{re.escape(PROFILE_FILE)}|\d{{8}}\.md){re.escape(KEPT)}[0-9a-f]{{12}}")
_MAKING: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LINK: Final = "is a link, which is not followed; put the file itself there"


class Seen(NamedTuple):
    """A file as it was seen; one that is written to, or another one of its name, is seen otherwise."""

    inode: int
    size: int
    modified_ns: int


class Found(NamedTuple):
    """What is at a name: a file and its bytes, nothing (``seen`` is ``None``), or what cannot be read and why."""

    seen: Seen | None
    content: bytes = b""
    problem: str = ""


def _seen(found: os.stat_result) -> Seen:
    return Seen(found.st_ino, found.st_size, found.st_mtime_ns)


class Tree:
    """The directory of a mirror, held by one of them at a time; who only looks holds nothing and makes nothing."""

    def __init__(self, path: str, *, holds: bool = True) -> None:
        self.path = os.path.realpath(path)
        self._held: list[tuple[str, int, bytes]] = []
        """Files that were replaced, by their name then: descriptors, and what was read of them."""
        with telling(self.path):
            self._root = opened_directory(self.path, makes=holds)
            try:
                self._lock = _locked(self._root, self.path) if holds else None
            except BaseException:
                os.close(self._root)
                raise
        self._is_closed = False

    def close(self) -> None:
        """Let go of the directory; once."""
        if not self._is_closed:
            self._is_closed = True
            for _, file, _ in self._held:
                os.close(file)
            if self._lock is not None:
                os.close(self._lock)
            os.close(self._root)

    # Looking.

    def walk(self) -> dict[str, Seen]:
        """Return the files of the profile and of days as they are now, by name; ``LimitExceeded`` for too many.

        Raises ``StoreError`` where the directory is gone, or another one has its name.
        """
        self._check_there()
        found: dict[str, Seen] = {}
        with telling(self.path), os.scandir(self._root) as entries:
            for entry in list(entries):
                if entry.name == PROFILE_FILE:
                    found[entry.name] = _seen(entry.stat(follow_symlinks=False))
                elif _MONTH.fullmatch(entry.name):
                    found |= self._month(entry.name)
                if len(found) > MIRROR_FILES_COUNT_MAX:
                    bound = f"MIRROR_FILES_COUNT_MAX = {MIRROR_FILES_COUNT_MAX:,}"
                    raise LimitExceeded(
                        f"{self.path} holds more than {bound} files of days; move the older ones elsewhere"
                    )
        return found

    def _check_there(self) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            if os.path.samestat(os.stat(self.path, follow_symlinks=False), os.fstat(self._root)):
                return
        raise StoreError(
            f"the mirror's directory {self.path} was removed, or another one has its name by now; "
            f"open the mirror again, and it is written anew. The log has all"
        )

    def _month(self, month: str) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        try:
            with self._folder(f"{month}/") as (folder, _), os.scandir(folder) as entries:
                for entry in entries:
                    named = _DAY_FILE.fullmatch(entry.name)
                    if named is not None and named[1] == month:
                        found[f"{month}/{entry.name}"] = _seen(entry.stat(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            pass  # Gone, or a link or a file: none of its days is ours.
        return found

    @contextmanager
    def _folder(self, name: str, *, makes: bool = False) -> Generator[tuple[int, str]]:
        """Open the folder of a name, made if asked for; gives it with the last part of the name."""
        month, _, base = name.rpartition("/")
        if not month:
            yield self._root, base
            return
        if makes:
            with suppress(FileExistsError):
                os.mkdir(month, 0o700, dir_fd=self._root)
                os.fsync(self._root)
        folder = os.open(month, FOLDER, dir_fd=self._root)
        try:
            yield folder, base
        finally:
            os.close(folder)

    def read(self, name: str, bytes_max: int | None = MIRROR_FILE_BYTES_MAX) -> Found:
        """Return what is at a name; it is read again while somebody writes to it, and no longer than a few times.

        With ``None`` it is read however large it is.
        """
        try:
            for _ in range(RETRIES_COUNT_MAX):
                found = self._read_once(name, bytes_max)
                if found is not None:
                    return found
        except FileNotFoundError:
            return Found(None)
        except OSError as error:
            is_link = error.errno in {errno.ELOOP, errno.ENOTDIR}
            return Found(None, problem=_LINK if is_link else f"cannot be read ({error.strerror})")
        return Found(None, problem="is being written to; it is looked at again later")

    def _read_once(self, name: str, bytes_max: int | None) -> Found | None:
        with self._folder(name) as (folder, base):
            file = os.open(base, READING, dir_fd=folder)
        try:
            before = os.fstat(file)
            if not stat.S_ISREG(before.st_mode):
                return Found(None, problem="is no file; put a file there, or nothing")
            if bytes_max is not None and before.st_size > bytes_max:
                return Found(_seen(before), problem=too_large(before.st_size))
            content = all_of(file, before.st_size)
            is_whole = _seen(os.fstat(file)) == _seen(before) and len(content) == before.st_size
            return Found(_seen(before), content) if is_whole else None
        finally:
            os.close(file)

    # Writing.

    def replace(self, name: str, content: bytes, found: Found) -> Seen | None:
        """Put a file in the place of what was found there; return it, ``None`` where something else is there by now.

        It is on the disk then. Raises ``StoreFull`` and ``StoreError``; what is there stays whole.
        """
        with telling(f"{self.path}/{name}"), self._folder(name, makes=True) as (folder, base):
            self._write(folder, base, content)
            swap = SWAP + base
            # What stands there is what an earlier call could not put back.
            self._let_go(folder, name, swap, b"")
            os.rename(NEW + base, swap, src_dir_fd=folder, dst_dir_fd=folder)
            ours = _seen(os.stat(swap, dir_fd=folder, follow_symlinks=False))
            if found.seen is None:
                placed = self._place(folder, swap, base)
                os.unlink(swap, dir_fd=folder)
            else:
                placed = self._swap(folder, name, content, found)
            os.fsync(folder)
            return ours if placed else None

    def _write(self, folder: int, base: str, content: bytes) -> None:
        with suppress(FileNotFoundError):
            os.unlink(NEW + base, dir_fd=folder)
        file = os.open(NEW + base, _MAKING, 0o600, dir_fd=folder)
        try:
            _write_all(file, content)
            os.fsync(file)
        except BaseException:
            os.unlink(NEW + base, dir_fd=folder)
            raise
        finally:
            os.close(file)

    def _place(self, folder: int, swap: str, base: str) -> bool:
        """Give a file a name that nobody has; return whether it got it."""
        try:
            os.link(swap, base, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return False
        return True

    def _swap(self, folder: int, name: str, content: bytes, found: Found) -> bool:
        base = name.rpartition("/")[2]
        swap = SWAP + base
        try:
            if not exchanged(folder, swap, base):
                return self._rename(folder, swap, base, found)
        except FileNotFoundError:
            os.unlink(swap, dir_fd=folder)
            return False
        if self._holds(folder, name, swap, found):
            os.unlink(swap, dir_fd=folder)
            return True
        # Somebody was faster: what came out is put back, and it is ours that goes. Whatever else comes out then has
        # lost its name to us, and so has what somebody wrote into ours while it stood there.
        with suppress(FileNotFoundError):
            exchanged(folder, swap, base)
        self._let_go(folder, name, swap, content)
        return False

    def _let_go(self, folder: int, name: str, swap: str, known: bytes) -> None:
        """Remove a file that has lost its name, and see later whether it holds something else than what is known."""
        file = opened_file(folder, swap)
        if file is None:
            _set_aside(folder, swap)
        else:
            self._held.append((name, file, known))
            os.unlink(swap, dir_fd=folder)

    def _rename(self, folder: int, swap: str, base: str, found: Found) -> bool:
        """Replace a file where names cannot be exchanged: it is looked at just before."""
        if _seen(os.stat(base, dir_fd=folder, follow_symlinks=False)) != found.seen:
            os.unlink(swap, dir_fd=folder)
            return False
        os.rename(swap, base, src_dir_fd=folder, dst_dir_fd=folder)
        return True

    def _holds(self, folder: int, name: str, base: str, found: Found) -> bool:
        """Return whether a replaced file is what was found, to the byte; if so, it is kept open for a while.

        A program that has it open may go on writing to it.
        """
        file = opened_file(folder, base)
        if file is None or all_of(file, len(found.content)) != found.content:
            if file is not None:
                os.close(file)
            return False
        self._held.append((name, file, found.content))
        return True

    def late(self) -> Iterator[tuple[str, bytes, bytes]]:
        """Return the replaced files that were written to after they had been read: names, contents, what was read.

        Each is let go of once the caller asks for the next; who cannot keep one gets it again.
        """
        while self._held:
            name, file, known = self._held[-1]
            with telling(f"{self.path}/{name}"):
                os.lseek(file, 0, os.SEEK_SET)
                content = all_of(file, len(known) + MIRROR_FILE_BYTES_MAX)
            if content != known:
                yield name, content, known
            self._held.pop()
            os.close(file)

    def remove(self, name: str, found: Found) -> bool:
        """Remove a file that was found; return whether it is gone: where another one is there by now, that stays."""
        with telling(f"{self.path}/{name}"), self._folder(name) as (folder, base):
            swap = SWAP + base
            try:
                os.rename(base, swap, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:
                return True
            is_ours = self._holds(folder, name, swap, found)
            if is_ours or self._place(folder, swap, base):
                os.unlink(swap, dir_fd=folder)
            else:
                self._let_go(folder, name, swap, found.content)
            os.fsync(folder)
            return is_ours

    def keep(self, name: str, content: bytes) -> str:
        """Write what would be lost beside a file, under a name that tells its content; return that name."""
        kept = kept_name(name, content)
        with telling(f"{self.path}/{kept}"), self._folder(kept, makes=True) as (folder, base):
            self._write(folder, base, content)
            os.rename(NEW + base, base, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        return kept

    def kept(self) -> list[str]:
        """Return the names of what was kept beside files, with their folders, sorted."""
        found: list[str] = []
        for month in self._months():
            with suppress(FileNotFoundError, NotADirectoryError), self._folder(month) as (folder, _):
                found += [month + base for base in os.listdir(folder) if _COPY.fullmatch(base)]
        return sorted(found)

    def _months(self) -> list[str]:
        with telling(self.path):
            return ["", *(f"{name}/" for name in os.listdir(self._root) if _MONTH.fullmatch(name))]

    # What is known of the last time.

    def read_state(self) -> bytes:
        """Return what was last known of the files, empty where nothing is."""
        return self.read(STATE_FILE, MIRROR_STATE_BYTES_MAX).content

    def write_state(self, content: bytes) -> None:
        """Write what is known of the files, atomically and durably."""
        with telling(f"{self.path}/{STATE_FILE}"):
            self._write(self._root, STATE_FILE, content)
            os.rename(NEW + STATE_FILE, STATE_FILE, src_dir_fd=self._root, dst_dir_fd=self._root)
            os.fsync(self._root)

    def leftovers(self) -> Iterator[tuple[str, bytes]]:
        """Return what a crash has left of replaced files, by name; each is removed once the caller asks for the next.

        What was being written then is removed without a word.
        """
        with telling(self.path):
            for month in self._months():
                with suppress(FileNotFoundError, NotADirectoryError), self._folder(month) as (folder, _):
                    for base in os.listdir(folder):
                        if base.startswith(NEW):
                            os.unlink(base, dir_fd=folder)
                        elif base.startswith(SWAP):
                            found = self.read(month + base, None)
                            if found.seen is None or found.problem:
                                _set_aside(folder, base)
                                continue
                            yield month + base.removeprefix(SWAP), found.content
                            os.unlink(base, dir_fd=folder)


def kept_name(name: str, content: bytes) -> str:
    """Return the name of what is kept beside a file; it tells the content."""
    return f"{name}{KEPT}{_digest(content).hex()[:12]}"


def _set_aside(folder: int, swap: str) -> None:
    """Give what is no file a name beside that which it had, so that it stays and is in nobody's way."""
    with suppress(FileNotFoundError):
        inode = os.stat(swap, dir_fd=folder, follow_symlinks=False).st_ino
        os.rename(swap, f"{swap.removeprefix(SWAP)}{KEPT}inode-{inode}", src_dir_fd=folder, dst_dir_fd=folder)


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def too_large(size: int) -> str:
    """Return what to say of a file that is over the bound."""
    return f"is {size:,} bytes, over MIRROR_FILE_BYTES_MAX = {MIRROR_FILE_BYTES_MAX:,}; shorten it"


def _write_all(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


def _locked(root: int, path: str) -> int:
    lock = os.open(LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=root)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise StoreBusy(f"another mirror holds {path}; close it, or give this one a directory of its own") from error
    return lock
