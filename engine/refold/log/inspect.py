"""Facts about a store's files, read without changing them: no lock is taken, nothing is padded, cleared or created.

LMDB registers the reader in its own table, if there is one. Problems that opening a store would refuse or repair are
reported here instead.
"""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import lmdb

from refold.errors import StoreBusy, StoreCorrupt, StoreVersion
from refold.limits import STRUCTURE_BYTES_MAX
from refold.log.directory import WRITER_LOCK
from refold.log.disk import SITE_SUFFIX
from refold.log.lmdb_file import (
    DATA_FILE,
    FORMAT_KEY,
    LOCK_FILE,
    NAMES,
    lmdb_error,
    open_sealed,
    open_to_look,
    problems,
)
from refold.log.protocol import Table
from refold.log.registry import share_open, unshare

_META_PAGES: Final = 2
_LOCKS: Final = "/proc/locks"
_MOUNTS: Final = "/proc/mounts"
_Databases: TypeAlias = Mapping[str, Any]
LogTable: TypeAlias = Table | Literal["log"]


class ReaderSlot(NamedTuple):
    """An entry of LMDB's table of readers: the process, and the transaction it reads, ``None`` if it is idle."""

    process: int
    transaction: int | None


class Holder(NamedTuple):
    """A process that holds the writers' lock."""

    process: int
    is_alone: bool


class StoreFacts(NamedTuple):
    """Facts about a store's files; ``format`` and ``rows`` hold the stored bytes, ``None`` for a missing row."""

    file_bytes: int
    whole_bytes: int
    """The size implied by the last page number; LMDB may leave pages at the end unwritten if it freed them at once."""
    map_bytes: int
    page_bytes: int
    pages: int
    used_pages: int
    transaction: int
    readers: tuple[ReaderSlot, ...]
    problem: str
    """The first problem of the pages, if opening checks them or some are missing; else empty."""
    format: bytes | None
    last_record: tuple[bytes, bytes] | None
    """The last record of the log with its key."""
    rows: tuple[bytes | None, ...]


def look(path: str, wanted: Sequence[tuple[LogTable, bytes]]) -> StoreFacts:
    """Read a store's files and the wanted rows, and return the facts; ``StoreError`` if LMDB cannot read them."""
    try:
        with _environment(path) as (env, databases):
            return _look(env, databases, path, wanted)
    except lmdb.NotFoundError as error:
        raise StoreVersion(f"{path} holds an LMDB file that refold did not write") from error
    except lmdb.Error as error:
        raise lmdb_error(error, "looking", path) from error


class _Borrower:
    """A handle to borrow an environment that this process has open already."""


@contextmanager
def _environment(path: str) -> Generator[tuple[lmdb.Environment, _Databases]]:
    """Open the file for reading, or borrow this process's environment: LMDB can open a file only once per process."""
    handle = _Borrower()
    shared = share_open(path, handle)
    if shared is not None:
        try:
            yield shared.env, shared.databases
        finally:
            unshare(handle)
        return
    env = _open(path)
    try:
        yield env, {}
    finally:
        env.close()


def _open(path: str) -> lmdb.Environment:
    """Open the file for reading; ``StoreBusy`` if this process may not say that it reads, and another one may write."""
    lock = os.path.join(path, LOCK_FILE)
    if not os.path.exists(lock) or os.access(lock, os.W_OK):
        return open_to_look(path)
    if holders(path):
        raise StoreBusy(
            f"a process has the store at {path} open for writing, and this one may not write to {LOCK_FILE}, so it "
            f"cannot read beside it; close it there, or run this as the user who owns the store"
        )
    return open_sealed(path)


def _look(
    env: lmdb.Environment, databases: _Databases, path: str, wanted: Sequence[tuple[LogTable, bytes]]
) -> StoreFacts:
    info, main = env.info(), env.stat()
    pages = info["last_pgno"] + 1
    facts = StoreFacts(
        os.stat(os.path.join(path, DATA_FILE)).st_size,
        *(pages * main["psize"], info["map_size"], main["psize"], pages, 0, info["last_txnid"], _readers(env)),
        *("", None, None, ()),
    )
    with env.begin() as txn:  # It keeps in place every page that the check walks.
        if facts.file_bytes < max(facts.whole_bytes, STRUCTURE_BYTES_MAX + 1):
            facts = facts._replace(problem=problem(path))
        if facts.problem:
            # Following a wrong pointer, or touching the map beyond the end of the file, would kill the process.
            return facts
        if not databases:
            databases = {name: env.open_db(name.encode(), txn=txn, create=False) for name in NAMES}
        in_use = [main, *(txn.stat(database) for database in databases.values())]
        return facts._replace(
            used_pages=sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in in_use)
            + _META_PAGES,
            format=txn.get(FORMAT_KEY, db=databases["meta"]),
            last_record=_last(txn, databases["log"]),
            rows=tuple(txn.get(key, db=databases[table]) for table, key in wanted),
        )


def problem(path: str) -> str:
    """Verify the pages of a store's file, and return the first problem or an empty string."""
    try:
        return next(iter(problems(path)), "")
    except StoreCorrupt as error:
        return str(error.__cause__)  # Without the next step.


def _last(txn: "lmdb.Transaction[bytes]", database: Any) -> tuple[bytes, bytes] | None:
    cursor = txn.cursor(database)
    return cursor.item() if cursor.last() else None


def _readers(env: lmdb.Environment) -> tuple[ReaderSlot, ...]:
    """Parse LMDB's table of readers, a text with the columns process, thread, and transaction or a dash."""
    rows = [line.split() for line in env.readers().splitlines()]
    entries = [row for row in rows if len(row) == 3 and row[0].isdecimal()]  # noqa: PLR2004 - its three columns
    return tuple(ReaderSlot(int(row[0]), int(row[2]) if row[2].isdecimal() else None) for row in entries)


class BuildSite(NamedTuple):
    """A directory in which a store or a backup is or was being built, and its builders, ``None`` if unknown."""

    path: str
    builders: tuple[Holder, ...] | None


def sites(path: str) -> tuple[BuildSite, ...]:
    """Return the directories that are being built next to a store, or were left there by a crash."""
    parent = os.path.dirname(os.path.realpath(path))
    names = sorted(name for name in os.listdir(parent) if name.startswith(".") and name.endswith(SITE_SUFFIX))
    found = [os.path.join(parent, name) for name in names]
    return tuple(BuildSite(site, _holders_of(site)) for site in found if os.path.isdir(site))


def holders(path: str) -> tuple[Holder, ...] | None:
    """Return the processes that hold the writers' lock, ``None`` if the system does not say."""
    return _holders_of(os.path.join(path, WRITER_LOCK))


def _holders_of(path: str) -> tuple[Holder, ...] | None:
    if not os.path.exists(_LOCKS):
        return None
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return ()
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with open(_LOCKS, encoding="ascii") as file:
        rows = [line.split() for line in file]
    held = [row for row in rows if row[1] == "FLOCK" and row[5] == place]
    return tuple(Holder(int(row[4]), row[3] == "WRITE") for row in held)


def file_system(path: str) -> str | None:
    """Return the type of a path's file system, ``None`` if the system does not say."""
    if not os.path.exists(_MOUNTS):
        return None
    with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
        mounts = [line.split(" ")[1:3] for line in file]
    here = os.path.join(os.path.realpath(path), "")
    # A later mount hides an earlier one at the same place; blanks in names are written as \040.
    best = ("", "")
    for written, kind in mounts:
        place = written.replace("\\040", " ")
        if here.startswith(os.path.join(place, "")) and len(place) >= len(best[0]):
            best = (place, kind)
    return best[1] or None


def is_running(process: int) -> bool:
    """Return whether a process is running on this machine (or in this container), also if it is another user's."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
