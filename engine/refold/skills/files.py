"""Finds, reads, writes and removes the files of skills, never outside the given directory.

Links are followed if they stay inside. A directory is entered once, however many links lead to it. Depth and counts are
bounded, and each omission is reported.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from refold.agent.tools import is_storable
from refold.errors import InvalidInput, LimitExceeded, NotFound, StoreError
from refold.limits import (
    SKILL_DEPTH_COUNT_MAX,
    SKILL_DIRECTORIES_COUNT_MAX,
    SKILL_FILE_BYTES_MAX,
    SKILL_FILES_COUNT_MAX,
)
from refold.log.disk import second_name, unfinished_file
from refold.text import sha256

# Directories that are skipped: those of version control, builds, packages, and other tools' own state.
IGNORED: Final = frozenset(
    (
        *(".git", ".hg", ".svn", "target", "node_modules", ".next", "dist", "build", "coverage", "__pycache__"),
        *(".plan-cascade", ".venv"),
    )
)

# Ignored names that a skill can have too; such directories are entered if they contain a skill file.
_BUILT: Final = frozenset(("target", "dist", "build", "coverage"))
_SKILL_FILES: Final = ("SKILL.md", "skill.md")
OUTSIDE: Final = "the link leads outside of the directory that is searched; it is not followed"


class FileStat(NamedTuple):
    """A file at the time of a walk; its path is relative to the root, with slashes."""

    path: str
    size: int
    modified_ns: int
    version: tuple[int, int]
    """The change time of the file, which unlike the modification time is never set back, and its inode."""


class Omission(NamedTuple):
    """A path that a walk left out, and why."""

    path: str
    reason: str


class FileListing(NamedTuple):
    """The files below a root, sorted by path, and the omissions."""

    files: tuple[FileStat, ...]
    omissions: tuple[Omission, ...]


def is_markdown(name: str) -> bool:
    """Return whether a file name is that of a Markdown file."""
    return name.lower().endswith(".md")


def walk(root: str, *, matches: Callable[[str], bool] = is_markdown) -> FileListing:
    """Find the files below a directory whose names match; a path that is not a directory has none.

    Higher files come before deeper ones, so that over a bound the deepest ones are left out.
    """
    return _Walker(root, matches).walk()


class _Walker:
    """One walk: its files, the directories it entered, and its omissions."""

    def __init__(self, root: str, matches: Callable[[str], bool]) -> None:
        self._root = os.path.realpath(root)
        self._matches = matches
        self._files: list[FileStat] = []
        self._omissions: list[Omission] = []
        self._entered: set[tuple[int, int]] = set()
        self._waiting: deque[tuple[str, str, int]] = deque(((self._root, "", 0),))
        """Directories to enter: their path, their path below the root, and their depth."""
        self._linked: deque[tuple[str, str, int]] = deque()
        """The same for directories behind links, entered last, so that their targets appear under their own names."""

    def walk(self) -> FileListing:
        for count in range(SKILL_DIRECTORIES_COUNT_MAX + 1):
            waiting = self._waiting or self._linked
            if not waiting or self._is_full():
                break
            if count == SKILL_DIRECTORIES_COUNT_MAX:
                self._omit("", f"more directories than {SKILL_DIRECTORIES_COUNT_MAX = }; the rest is left out")
                break
            self._enter(*waiting.popleft())
        if self._is_full():
            self._omit("", f"more Markdown files than {SKILL_FILES_COUNT_MAX = }; the rest is left out")
        return FileListing(tuple(sorted(self._files[:SKILL_FILES_COUNT_MAX])), tuple(sorted(self._omissions)))

    def _is_full(self) -> bool:
        return len(self._files) > SKILL_FILES_COUNT_MAX

    def _omit(self, path: str, reason: str) -> None:
        self._omissions.append(Omission(path, reason))

    def _enter(self, directory: str, below: str, depth: int) -> None:
        try:
            with os.scandir(directory) as scan:
                status = os.stat(directory)
                inode = (status.st_dev, status.st_ino)
                entries = [] if inode in self._entered else sorted(scan, key=lambda entry: entry.name)
            self._entered.add(inode)
            for entry in entries:
                if self._is_full():
                    return
                with suppress(FileNotFoundError):  # It was removed since the scan; the other entries are still there.
                    self._visit(entry, f"{below}/{entry.name}" if below else entry.name, depth)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self._omit(below, f"the directory cannot be read ({error.strerror})")

    def _visit(self, entry: "os.DirEntry[str]", below: str, depth: int) -> None:
        if entry.is_symlink():
            self._follow(entry, below, depth)
        elif entry.is_dir(follow_symlinks=False):
            self._queue_directory(self._waiting, entry.path, below, depth)
        elif self._matches(entry.name):
            self._add_file(entry.stat(follow_symlinks=False), below)

    def _follow(self, entry: "os.DirEntry[str]", below: str, depth: int) -> None:
        target = os.path.realpath(entry.path)
        try:
            status = os.stat(target)
        except OSError:
            return
        is_directory = stat.S_ISDIR(status.st_mode)
        if not is_directory and not self._matches(entry.name):
            return
        if not _is_inside(self._root, target):
            self._omit(below, OUTSIDE)
        elif is_directory:
            self._queue_directory(self._linked, target, below, depth)
        else:
            self._add_file(status, below)

    def _queue_directory(self, waiting: deque[tuple[str, str, int]], path: str, below: str, depth: int) -> None:
        name = below.rpartition("/")[2]
        is_skill = name in _BUILT and any(os.path.isfile(os.path.join(path, file)) for file in _SKILL_FILES)
        if name in IGNORED and not is_skill:
            return
        if depth >= SKILL_DEPTH_COUNT_MAX:
            self._omit(below, f"deeper than {SKILL_DEPTH_COUNT_MAX = }; the directory is left out")
            return
        waiting.append((path, below, depth + 1))

    def _add_file(self, status: os.stat_result, below: str) -> None:
        if not stat.S_ISREG(status.st_mode):
            return
        if not is_storable(below):
            self._omit(printable(below), "the path is not UTF-8; rename it")
            return
        self._files.append(_file_stat(below, status))


def _file_stat(path: str, status: os.stat_result) -> FileStat:
    return FileStat(path, status.st_size, status.st_mtime_ns, (status.st_ctime_ns, status.st_ino))


def printable(path: str) -> str:
    """Render a path as text that can be printed and stored, whatever bytes it has."""
    return os.fsencode(path).decode(errors="replace")


def _is_inside(root: str, path: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def relative_path(path: str, root: str | None) -> str:
    """Render a path with slashes, relative to `root` if it lies below that, else in full."""
    if root is not None:
        path, above = os.path.abspath(path), os.path.abspath(root)
        path = os.path.relpath(path, above) if path.startswith(os.path.join(above, "")) else path
    return printable(path).replace(os.sep, "/")


def stat_file(path: str) -> FileStat | None:
    """Return the present state of a file, or `None` if there is no file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return _file_stat(path, status) if stat.S_ISREG(status.st_mode) else None


def read(path: str, bytes_max: int = SKILL_FILE_BYTES_MAX) -> bytes:
    """Read a file up to one byte over the bound, so that the caller notices a larger file; raises `OSError`.

    Never waits for a pipe, which might have replaced the file since the caller looked at it.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file", path)
        return file.read(bytes_max + 1)


# The files of a skill's directory.


def resolve_path(root: str, name: str) -> str:
    """Resolve the name of a file below a directory to its real path.

    Raises `InvalidInput` for a name that is empty, absolute or leads outside, by itself or through links.
    """
    parts = name.split("/")
    is_plain = name and "\0" not in name and "\\" not in name and not name.startswith("/")
    if not is_plain or ".." in parts or os.path.isabs(name):
        raise InvalidInput(
            f"{name[:100]!r} is no name below a skill's directory; give one such as 'references/guide.md'"
        )
    if "\0" in root:
        raise InvalidInput(f"{root[:100]!r} holds a NUL, which no path may; give another directory")
    real_root = os.path.realpath(root)
    path = os.path.realpath(os.path.join(real_root, name))
    if not _is_inside(real_root, path):
        raise InvalidInput(f"{name[:100]!r} is a link that leads outside of the skill's directory; it is not followed")
    return path


def resources(directory: str, *, without: str) -> tuple[str, ...]:
    """List the names of the files below a skill's directory, sorted, except `without` and links that lead outside."""
    root, paths = os.path.realpath(directory), list[str]()
    for parent, names, files in islice(os.walk(root), SKILL_DIRECTORIES_COUNT_MAX):
        names[:] = sorted(name for name in names if name not in IGNORED and is_storable(name))
        for name in sorted(filter(is_storable, files)):
            path = os.path.join(parent, name)
            if _is_inside(root, os.path.realpath(path)) and os.path.isfile(path):
                paths.append(os.path.relpath(path, root).replace(os.sep, "/"))
        if len(paths) > SKILL_FILES_COUNT_MAX:
            break
    return tuple(sorted([name for name in paths if name != without][:SKILL_FILES_COUNT_MAX]))


def read_resource(directory: str, name: str) -> bytes:
    """Read a file in a skill's directory.

    Raises `InvalidInput` for a name that leads outside, `NotFound` for an unknown one, `LimitExceeded` over
    `SKILL_FILE_BYTES_MAX`.
    """
    path = resolve_path(directory, name)
    if stat_file(path) is None:
        raise NotFound(f"the skill has no file {name[:100]!r}; its resources name those that there are")
    content = read(path)
    if len(content) > SKILL_FILE_BYTES_MAX:
        raise LimitExceeded(f"{name} is over {SKILL_FILE_BYTES_MAX = :,}; let the agent read it in parts")
    return content


# Writing and removing.


def write_new(root: str, name: str, content: bytes) -> str:
    """Create a file below a directory, atomically and for its owner alone, and return its path.

    Raises `InvalidInput` if the path exists, or if the name leads out of the directory.
    """
    path = resolve_path(root, name)
    try:
        for parent in reversed(Path(path).parents):
            if not parent.is_dir():
                parent.mkdir(0o700, exist_ok=True)
        if resolve_path(root, name) != path:
            raise InvalidInput(f"{name[:100]!r} changed while it was written; try again")
        with _write_temporary(path, content) as new:
            os.link(new, path)
    except FileExistsError as error:
        raise InvalidInput(
            f"{path} is there already, and nothing is replaced; delete it first, or take another name"
        ) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be written ({error.strerror}); nothing was changed") from error
    return path


@contextmanager
def _write_temporary(path: str, content: bytes, mode: int = 0o600) -> Generator[str]:
    """Write a file next to another one, under a name that no search finds, and yield its path."""
    with unfinished_file(os.path.dirname(path), ".") as (descriptor, unfinished):
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        yield unfinished


@contextmanager
def replace_file(root: str, name: str, edit: Callable[[bytes], bytes], *, digest: str) -> Generator[bytes]:
    """Replace a file below a directory atomically, keeping its mode, and restore the old file if the block fails.

    Yields the new content. Raises `InvalidInput` if the SHA-256 of the file is not `digest`, and for a name that leads
    out of the directory.
    """
    path = resolve_path(root, name)
    with ExitStack() as leftovers:
        try:
            content = edit(_read_unchanged(path, path, digest))
            new = leftovers.enter_context(_write_temporary(path, content, stat.S_IMODE(os.stat(path).st_mode)))
            old = leftovers.enter_context(second_name(path, new))
            _read_unchanged(path, old, digest)
            os.replace(new, path)
        except OSError as error:
            raise StoreError(f"{path} cannot be written ({error.strerror}); nothing was changed") from error
        try:
            yield content
        except BaseException:
            os.replace(old, path)
            raise


def _read_unchanged(path: str, place: str, digest: str) -> bytes:
    """Read a file, perhaps under another name, and check that it still has the digest."""
    content = read(place)
    if sha256(content).hex() != digest:
        raise InvalidInput(f"{path} changed since it was read, and is left as it is; `refresh`, then edit again")
    return content


def remove(root: str, name: str) -> str:
    """Remove a file below a directory, and its parent directory if that is then empty; return the path of the file.

    Raises `InvalidInput` for a name that leads outside, `NotFound` if there is no file.
    """
    resolve_path(root, name)
    path = os.path.join(os.path.realpath(root), name)
    try:
        os.unlink(path)
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path}; `refold skills list` shows those that there are") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be removed ({error.strerror})") from error
    parent = os.path.dirname(path)
    if parent != os.path.realpath(root):
        with suppress(OSError):
            os.rmdir(parent)
    return path
