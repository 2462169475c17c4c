"""Files of skills: found, read, written and removed, and never one outside of the directory that was named. Bytes only.

A link is followed where it stays inside; a directory is entered once, however many links lead to it; depth and counts
are bounded; what is left out is said.
"""

import errno
import os
import stat
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from refold.errors import InvalidInput, LimitExceeded, NotFound, StoreError
from refold.limits import (
    SKILL_DEPTH_COUNT_MAX,
    SKILL_DIRECTORIES_COUNT_MAX,
    SKILL_FILE_BYTES_MAX,
    SKILL_FILES_COUNT_MAX,
)

IGNORED: Final = frozenset(
    (
        *(".git", ".hg", ".svn", "target", "node_modules", ".next", "dist", "build", "coverage", "__pycache__"),
        *(".plan-cascade", ".venv"),
    )
)
"""Directories that are never entered: of version control, of builds, of packages, of other tools' own state."""

_BUILT: Final = frozenset(("target", "dist", "build", "coverage"))
"""Those of them that a skill may be called, too: entered where a skill file is in them."""

_SUFFIX: Final = ".md"
_SKILL_FILES: Final = ("SKILL.md", "skill.md")
OUTSIDE: Final = "the link leads outside of the directory that is searched; it is not followed"


class Seen(NamedTuple):
    """A file as a walk saw it; the path is that below the root, with slashes."""

    path: str
    size: int
    modified_ns: int
    version: tuple[int, int]
    """When anything of the file last changed, and its inode: unlike the time of its content, nobody sets them back."""


class Problem(NamedTuple):
    """What a walk left out, and why."""

    path: str
    reason: str


class Walk(NamedTuple):
    """The Markdown files below a root, sorted by path, and what was left out."""

    files: tuple[Seen, ...]
    problems: tuple[Problem, ...]


def is_markdown(name: str) -> bool:
    """Return whether a file of that name is Markdown."""
    return name.lower().endswith(_SUFFIX)


def walk(root: str, *, ignored: frozenset[str] = IGNORED, is_wanted: Callable[[str], bool] = is_markdown) -> Walk:
    """Return the files below a directory whose names are wanted; of one that is not there, or is a file, nothing.

    What lies higher comes before what lies deeper, so that it is the depths that are left out over a bound.
    """
    return _Walker(root, ignored, is_wanted).walk()


class _Walker:
    """One walk: what was seen, where it has been, and what it left out."""

    def __init__(self, root: str, ignored: frozenset[str], is_wanted: Callable[[str], bool]) -> None:
        self._root = os.path.realpath(root)
        self._ignored = ignored
        self._is_wanted = is_wanted
        self._files: list[Seen] = []
        self._problems: list[Problem] = []
        self._entered: set[tuple[int, int]] = set()
        self._waiting: deque[tuple[str, str, int]] = deque(((self._root, "", 0),))
        """Directories to enter: their path, that below the root, and their depth."""
        self._linked: deque[tuple[str, str, int]] = deque()
        """The same behind links: entered last, so that what they lead to has its own name."""

    def walk(self) -> Walk:
        """Return what is there."""
        for count in range(SKILL_DIRECTORIES_COUNT_MAX + 1):
            waiting = self._waiting or self._linked
            if not waiting or self._is_full():
                break
            if count == SKILL_DIRECTORIES_COUNT_MAX:
                bound = f"SKILL_DIRECTORIES_COUNT_MAX = {SKILL_DIRECTORIES_COUNT_MAX}"
                self._leave_out("", f"more directories than {bound}; the rest is left out")
                break
            self._enter(*waiting.popleft())
        if self._is_full():
            bound = f"SKILL_FILES_COUNT_MAX = {SKILL_FILES_COUNT_MAX}"
            self._leave_out("", f"more Markdown files than {bound}; the rest is left out")
        return Walk(tuple(sorted(self._files[:SKILL_FILES_COUNT_MAX])), tuple(sorted(self._problems)))

    def _is_full(self) -> bool:
        return len(self._files) > SKILL_FILES_COUNT_MAX

    def _leave_out(self, path: str, reason: str) -> None:
        self._problems.append(Problem(path, reason))

    def _enter(self, directory: str, below: str, depth: int) -> None:
        try:
            with os.scandir(directory) as entries:
                found = sorted(entries, key=lambda entry: entry.name) if self._is_new(directory) else []
            for entry in found:
                if self._is_full():
                    return
                with suppress(FileNotFoundError):  # It went since the directory was read; the others are still there.
                    self._look(entry, f"{below}/{entry.name}" if below else entry.name, depth)
        except NotADirectoryError:
            return
        except FileNotFoundError:
            return
        except OSError as error:
            self._leave_out(below, f"the directory cannot be read ({error.strerror})")

    def _is_new(self, directory: str) -> bool:
        found = os.stat(directory)
        place = (found.st_dev, found.st_ino)
        is_new = place not in self._entered
        self._entered.add(place)
        return is_new

    def _look(self, entry: "os.DirEntry[str]", below: str, depth: int) -> None:
        if entry.is_symlink():
            self._follow(entry, below, depth)
        elif entry.is_dir(follow_symlinks=False):
            self._wait(self._waiting, entry.path, below, depth)
        elif self._is_wanted(entry.name):
            self._see(entry.stat(follow_symlinks=False), below)

    def _follow(self, entry: "os.DirEntry[str]", below: str, depth: int) -> None:
        target = os.path.realpath(entry.path)
        try:
            found = os.stat(target)
        except OSError:
            return
        is_directory = stat.S_ISDIR(found.st_mode)
        if not is_directory and not self._is_wanted(entry.name):
            return
        if not _is_inside(self._root, target):
            self._leave_out(below, OUTSIDE)
        elif is_directory:
            self._wait(self._linked, target, below, depth)
        else:
            self._see(found, below)

    def _wait(self, waiting: deque[tuple[str, str, int]], path: str, below: str, depth: int) -> None:
        name = below.rpartition("/")[2]
        if name in self._ignored and not (name in _BUILT and _is_skill(path)):
            return
        if depth >= SKILL_DEPTH_COUNT_MAX:
            bound = f"SKILL_DEPTH_COUNT_MAX = {SKILL_DEPTH_COUNT_MAX}"
            self._leave_out(below, f"deeper than {bound}; the directory is left out")
            return
        waiting.append((path, below, depth + 1))

    def _see(self, found: os.stat_result, below: str) -> None:
        if not stat.S_ISREG(found.st_mode):
            return
        if not _is_text(below):
            self._leave_out(shown(below), "the path is not UTF-8; rename it")
            return
        self._files.append(_seen(below, found))


def _seen(path: str, found: os.stat_result) -> Seen:
    return Seen(path, found.st_size, found.st_mtime_ns, (found.st_ctime_ns, found.st_ino))


def _is_skill(directory: str) -> bool:
    return any(os.path.isfile(os.path.join(directory, name)) for name in _SKILL_FILES)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(path: str) -> str:
    """Return a path as text that can be printed and stored, whatever bytes it has."""
    return os.fsencode(path).decode(errors="replace")


def _is_inside(root: str, path: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def joined(root: str, *names: str) -> str:
    """Return the path of what lies below a directory."""
    return os.path.join(root, *names)


def from_home(root: str, path: str) -> str:
    """Return a path that a user wrote: from a directory on, or from the user's home where it begins with ``~``."""
    return os.path.join(root, os.path.expanduser(path))


def parent_of(path: str) -> str:
    """Return the directory in which a path lies."""
    return os.path.dirname(path)


def is_there(path: str) -> bool:
    """Return whether there is anything at a path."""
    return os.path.exists(path)


def below(path: str, root: str | None) -> str:
    """Return a path as people read it: that below a directory where it lies there, else the whole one, with slashes."""
    if root is not None:
        path, above = os.path.abspath(path), os.path.abspath(root)
        path = os.path.relpath(path, above) if path.startswith(os.path.join(above, "")) else path
    return shown(path).replace(os.sep, "/")


def looked_at(path: str) -> Seen | None:
    """Return a file as it is now, ``None`` where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return _seen(path, found) if stat.S_ISREG(found.st_mode) else None


def read(path: str, bytes_max: int = SKILL_FILE_BYTES_MAX) -> bytes:
    """Return the bytes of a file, at most one more than the bound, so that a larger one shows; ``OSError`` as it is.

    What is no file is not waited for: a pipe may have come in its place since it was looked at.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file", path)
        return file.read(bytes_max + 1)


# Files beside a skill.


def inside(root: str, name: str) -> str:
    """Return the real path of a file below a directory, by its name there.

    Raises ``InvalidInput`` for a name that is empty, absolute or leads out, as it stands or through links.
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
    """Return the names of the files below a skill's directory, sorted.

    Links that lead out, and names that are no text, are not among them.
    """
    names = (name for name in _files_below(directory) if name != without)
    return tuple(sorted(islice(names, SKILL_FILES_COUNT_MAX)))


def _files_below(directory: str) -> Iterator[str]:
    root = os.path.realpath(directory)
    for count, (parent, names, files) in enumerate(os.walk(root)):
        if count >= SKILL_DIRECTORIES_COUNT_MAX:
            return
        names[:] = sorted(name for name in names if name not in IGNORED and _is_text(name))
        for name in sorted(filter(_is_text, files)):
            path = os.path.join(parent, name)
            if _is_inside(root, os.path.realpath(path)) and os.path.isfile(path):
                yield os.path.relpath(path, root).replace(os.sep, "/")


def read_resource(directory: str, name: str) -> bytes:
    """Return the bytes of a file beside a skill.

    Raises ``InvalidInput`` for a name that leads out, ``NotFound`` where there is none, ``LimitExceeded`` over
    ``SKILL_FILE_BYTES_MAX``.
    """
    path = inside(directory, name)
    if looked_at(path) is None:
        raise NotFound(f"the skill has no file {name[:100]!r}; its resources name those that there are")
    content = read(path)
    if len(content) > SKILL_FILE_BYTES_MAX:
        raise LimitExceeded(
            f"{name} is over SKILL_FILE_BYTES_MAX = {SKILL_FILE_BYTES_MAX:,}; let the agent read it in parts"
        )
    return content


# Writing and removing.


def write_new(root: str, name: str, content: bytes) -> str:
    """Write a file below a directory where none is, whole or not at all; return its path.

    Raises ``InvalidInput`` where something is already there, or where the name leads out of the directory.
    """
    path = inside(root, name)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if inside(root, name) != path:
            raise InvalidInput(f"{name[:100]!r} changed while it was written; try again")
        _place(path, content)
    except FileExistsError as error:
        raise InvalidInput(
            f"{path} is there already, and nothing is replaced; delete it first, or take another name"
        ) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be written ({error.strerror}); nothing was changed") from error
    return path


def _place(path: str, content: bytes) -> None:
    """Write beside the place under a name of its own, then give it the name that nobody has."""
    descriptor, beside = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".", suffix=".unfinished")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o644)
        os.link(beside, path)
    finally:
        os.unlink(beside)


def remove(root: str, name: str) -> str:
    """Remove a file below a directory, and its own directory where that is empty then; return its path.

    Raises ``InvalidInput`` for a name that leads out, ``NotFound`` where there is no file.
    """
    inside(root, name)
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
