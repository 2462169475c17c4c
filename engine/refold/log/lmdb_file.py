"""The LMDB file: opened with as much address space as granted, its structure verified, its errors translated.

Verification reads the file as bytes, so nothing in the file can crash the process. The findings and their wording are
those of LMDB's own verifier, which checks each page that is not plain, or in which anything is wrong. In addition,
flags must be those that refold sets, and a search must turn to the page that holds its key.
"""

import ctypes
import errno
import mmap
import os
import resource
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - struct names its exception in lower case
from typing import Any, Final, TypeAlias

import lmdb
import msgspec

from refold.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreVersion
from refold.limits import (
    LOCK_BYTES,
    MAP_BYTES,
    MAP_BYTES_MIN,
    READERS_MAX,
)
from refold.log.disk import FILE_FLAGS, FULL, NO_FILES, NO_FILES_NEXT, disk_error, flush
from refold.log.protocol import TABLES
from refold.log.record import FORMAT, NO_LINK, SEQ, Record, link_after

FORMAT_KEY: Final = b"format"
NAMES: Final = ("log", *TABLES)
"""The databases of a store."""

_HEADER_BYTES: Final = 16
"""The size of the page header of LMDB 0.9 on a 64-bit machine."""

_DATABASES_MAX: Final = 16

_DISK_FULL_BYTES: Final = 1024**2
"""With less free space than this, an output error is taken for a full disk: LMDB does not tell them apart."""

# Translation of LMDB's errors into refold's, which name the failed operation and the next step.

_NOT_OF_DISK: Final = FULL | NO_FILES | {errno.ENOMEM, errno.EINVAL, errno.EAGAIN, errno.EACCES, errno.EPERM}
"""Error numbers of the system (positive, unlike LMDB's own) that do not mean that the disk failed."""

_FORBIDDEN: Final = frozenset((errno.EACCES, errno.EPERM))
_STEPS: Final = (
    (NO_FILES, NO_FILES_NEXT),
    (_FORBIDDEN, "this user may not do that; check who owns its files, and their modes"),
)
"""Error numbers of the system, and the next step for each."""

_KINDS: Final[tuple[tuple[tuple[type[lmdb.Error], ...], type[StoreError], str], ...]] = (
    (
        (lmdb.MapFullError,),
        StoreFull,
        "this process is granted no more address space; raise the limit (ulimit -v) and call again, reads go on",
    ),
    (
        (lmdb.MapResizedError,),
        StoreError,
        "the store has grown, and this process is granted no address space for it; raise the limit (ulimit -v)",
    ),
    (
        (lmdb.ReadersFullError,),
        StoreBusy,
        f"READERS_MAX = {READERS_MAX} processes and threads read already; close the store in one and call again",
    ),
    ((lmdb.MemoryError,), StoreError, "free memory, or raise the limit of this process (ulimit -v), and call again"),
    ((lmdb.LockError,), StoreBusy, "close other processes that hold the store open and call again"),
    (
        (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError),
        StoreCorrupt,
        "run `refold verify` and restore a backup",
    ),
    ((lmdb.VersionMismatchError,), StoreVersion, "open it with the refold version that wrote it"),
    ((lmdb.PanicError,), StoreError, "check the disk, close the store in this process, and open it again"),
)
_FULL_NEXT: Final = "no space is left; free disk space or raise the quota and call again, reads go on"
_OPEN_NEXT: Final = "check the disk and who owns it, and open it again"
_OTHER_NEXT: Final = "check the disk, then open the store again"
STOPPED_NEXT: Final = (
    "check the disk, then close the memory and open the store again, which checks the end of the log before anything "
    "is written; a request_id then tells whether a call was written; reads go on"
)


def lmdb_error(error: lmdb.Error, doing: str, path: str, *, was_full: bool = False) -> StoreError:
    """Return the refold error for an LMDB error; ``was_full`` as in ``is_full``."""
    if is_full(error, path, was_full=was_full):
        return StoreFull(f"{doing} in {path}: {error}; {_FULL_NEXT}")
    following = next((step for codes, step in _STEPS if getattr(error, "code", 0) in codes), "")
    if following:
        return StoreError(f"{doing} in {path}: {error}; {following}")
    for kinds, kind, following in _KINDS:
        if isinstance(error, kinds):
            return kind(f"{doing} in {path}: {error}; {following}")
    return StoreError(f"{doing} in {path}: {error}; {_OTHER_NEXT}")


def is_of_disk(error: lmdb.Error, path: str, *, was_full: bool = False) -> bool:
    """Return whether the disk failed, so that it is unknown how much of a write has reached it."""
    code = getattr(error, "code", 0)
    is_known = code in _NOT_OF_DISK or is_full(error, path, was_full=was_full)
    return isinstance(error, lmdb.PanicError) or (code > 0 and not is_known)


def is_full(error: lmdb.Error, path: str, *, was_full: bool = False) -> bool:
    """Return whether a write failed for lack of space.

    LMDB reports a write that was cut short as an output error, so the free space decides. If the disk ``was_full`` at
    the write before, it counts as full at this one too: another process may have freed space since the failure.
    """
    code = getattr(error, "code", 0)
    return code in FULL or (code == errno.EIO and (was_full or _has_no_room(path)))


def _has_no_room(path: str) -> bool:
    """Return whether the disk has almost no space, or the file is at this process's size limit."""
    disk = os.statvfs(path)
    file = os.path.join(path, "data.mdb")
    size = os.stat(file).st_size if os.path.exists(file) else 0
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    is_at_limit = limit != resource.RLIM_INFINITY and size + _DISK_FULL_BYTES > limit
    return is_at_limit or disk.f_bavail * disk.f_frsize < _DISK_FULL_BYTES


# Opening LMDB's file, with as much address space as the system grants.
#
# The map is far larger than any file, and a system may refuse it. A smaller map grows, but not beyond the address space
# that is granted.

DATA_FILE: Final = "data.mdb"
LOCK_FILE: Final = "lock.mdb"
CLEAN: Final = "clean"
"""The directory inside a store in which a clean copy of its file is made; remains of a crash in it are never used."""
_BLOCK_BYTES: Final = 512
"""The unit of ``st_blocks``."""


def open_lmdb(path: str) -> lmdb.Environment:
    """Open the LMDB environment with as much address space as the system grants."""
    allocate_lock_file(path)
    return _open(path, max_readers=READERS_MAX, max_spare_txns=1)


def open_to_read(path: str) -> lmdb.Environment:
    """Open the LMDB environment of an existing file read-only, so that no call waits for a writer."""
    allocate_lock_file(path)
    return _open(path, readonly=True, create=False, max_readers=READERS_MAX, max_spare_txns=1)


def open_to_look(path: str) -> lmdb.Environment:
    """Open the LMDB environment of an existing file as one more reader, without changing the file."""
    return _open(path, readonly=True, create=False, lock=os.path.exists(os.path.join(path, LOCK_FILE)))


def open_sealed(path: str) -> lmdb.Environment:
    """Open the LMDB environment of a file that no process writes to, without registering as a reader."""
    return _open(path, readonly=True, create=False, lock=False)


def open_alone(path: str) -> lmdb.Environment:
    """Open the LMDB environment of a new file that no other process opens; the caller flushes it once complete."""
    return _open(path, lock=False, sync=False)


def delete_rows(path: str, table: str, keys: Iterable[bytes]) -> None:
    """Delete rows of a table in a new file that no other process opens."""
    with open_alone(path) as store, store.begin(write=True) as txn:
        database = store.open_db(table.encode(), txn=txn)
        for key in keys:
            txn.delete(key, db=database)


def _open(path: str, **options: Any) -> lmdb.Environment:
    file = os.path.join(path, DATA_FILE)
    for name in (DATA_FILE, LOCK_FILE):
        if os.path.islink(os.path.join(path, name)):  # A store from elsewhere would write to the link's target.
            raise StoreVersion(
                f"{path} cannot be opened as a store ({name} in it is a link, which is not followed); put the file "
                f"itself there, or let the directory be the link"
            )
    file_bytes = os.stat(file).st_size if os.path.exists(file) else None
    if file_bytes == 0:
        # LMDB would turn it into an empty database, and hide that there was a store.
        raise StoreVersion(
            f"{path} cannot be opened as a store (its {DATA_FILE} is empty); restore a backup, or remove the file "
            f"if there never was a store"
        )
    file_bytes = file_bytes or 0
    for map_bytes in (MAP_BYTES, 2 * file_bytes + MAP_BYTES_MIN, file_bytes + MAP_BYTES_MIN):
        try:
            return lmdb.open(path, map_size=map_bytes, max_dbs=_DATABASES_MAX, mode=0o600, **options)
        except lmdb.MemoryError:
            continue
        except OSError as error:
            raise disk_error(error, f"opening {path}", _OPEN_NEXT) from error
        except lmdb.Error as error:
            known = lmdb_error(error, "opening", path)
            code = getattr(error, "code", 0)
            is_of_limit = isinstance(known, (StoreBusy, StoreFull)) or code in NO_FILES | _FORBIDDEN
            if is_of_limit or is_of_disk(error, path):
                raise known from error
            raise StoreVersion(
                f"{path} cannot be opened as a store ({error}); run `python -m lmdb verify {path}`"
            ) from error
    raise StoreError(
        f"opening {path}: the system does not grant {file_bytes + MAP_BYTES_MIN} bytes of address space, its size and "
        f"MAP_BYTES_MIN; raise the limit of this process (ulimit -v) and open it again"
    )


def allocate_lock_file(path: str) -> None:
    """Allocate the blocks of LMDB's lock file before it is mapped: writing to a hole on a full disk kills the process.

    A missing file is created. This process must not have it open: closing it would release LMDB's locks in it.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    descriptor = -1
    try:
        descriptor = os.open(os.path.join(path, LOCK_FILE), os.O_CREAT | os.O_RDWR | FILE_FLAGS, 0o600)
        if os.fstat(descriptor).st_blocks * _BLOCK_BYTES < LOCK_BYTES:
            os.posix_fallocate(descriptor, 0, LOCK_BYTES)
    except OSError as error:
        what = f"opening {path}, which takes {LOCK_BYTES} bytes of {LOCK_FILE}"
        raise disk_error(error, what, _OPEN_NEXT) from error
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def is_granted(more_bytes: int) -> bool:
    """Return whether the system grants this much more address space; in a failed attempt LMDB would lose its map."""
    try:
        mmap.mmap(-1, more_bytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ).close()
    except OSError:
        return False
    return True


# The numbers of the last two commits, as stored in the file.
#
# A writer puts the number of its commit into the file, and then into LMDB's table of readers, where readers look for
# it. A writer that dies in between leaves a commit that is durable, but that no reader sees until the next turn: LMDB
# updates its table when it finds that the owner of its mutex is dead.

_META_PAGES: Final = 2
_TXNID_BEGIN: Final = 144
"""The offset of the commit number in its page, in LMDB 0.9 on a 64-bit machine."""
_Txnids: TypeAlias = tuple[Sequence[int], Sequence[int]]
NO_TXNIDS: Final[_Txnids] = ((0,), (0,))


def txnids_of(path: str, page_bytes: int) -> _Txnids:
    """Map the file's first two pages, and return a view of each page's commit number that is always up to date."""
    try:
        with open(os.path.join(path, DATA_FILE), "rb") as file:
            pages = mmap.mmap(file.fileno(), _META_PAGES * page_bytes, access=mmap.ACCESS_READ)
    except OSError as error:
        raise disk_error(error, f"mapping {DATA_FILE} in {path}", "check who owns it and open it again") from error
    words = memoryview(pages).cast("Q")
    first, second = (begin // words.itemsize for begin in (_TXNID_BEGIN, page_bytes + _TXNID_BEGIN))
    return words[first : first + 1], words[second : second + 1]


# Releasing mapped pages: everything that LMDB has read through its memory map counts as this process's memory.
#
# The pages are clean copies of the file, and the system reclaims them when memory runs short. But they count when the
# process is measured from outside, also against a container's limit. Without ``madvise``, nothing is released.

_MAPS: Final = "/proc/self/maps"
_DONT_NEED: Final = 4
"""``MADV_DONTNEED`` on Linux: for a shared map of a file, drop the mapping but keep the file's cached pages."""


def unmap(path: str) -> bool:
    """Unmap the pages of a file that are in RAM, and return whether that succeeded."""
    if not os.path.exists(_MAPS):
        return False
    advise = ctypes.CDLL(None, use_errno=True).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    results = [advise(begin, end - begin, _DONT_NEED) for begin, end in _maps_of(os.path.realpath(path))]
    return bool(results) and not any(results)


def _maps_of(path: str) -> Iterator[tuple[int, int]]:
    """Yield the address range of each map of a file."""
    with open(_MAPS, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            addresses, permissions, *_, name = [*line.rstrip("\n").split(None, 5), ""][:6]
            if name == path:
                assert permissions.endswith("s"), f"{path} is mapped privately"
                begin, end = addresses.split("-")
                yield int(begin, 16), int(end, 16)


# Checking the end of a file after an I/O error: its last records are read from disk and checked against their links.
#
# Everything before these records was durable before they were begun, and LMDB never writes to a page that a commit
# still needs. So they are all that an I/O error leaves in doubt, and all that must be read before writing resumes.

_KEEPS_CACHE: Final = not hasattr(os, "posix_fadvise")


def drop_page_cache(path: str) -> None:
    """Flush the file and drop it from the page cache, so that it is then read from disk; it must not be open.

    Raises ``StoreError`` if the disk still fails.
    """
    file = os.path.join(path, DATA_FILE)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
            if not _KEEPS_CACHE:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        flush(path)  # The file may have got its name from a sweep whose last flush failed.
    except OSError as error:
        raise StoreError(
            f"{file} cannot be flushed ({error}), so nothing is written to it; check the disk and open it again"
        ) from error


_CHECKED_RECORDS: Final = 256


def check_end(records: Iterator[tuple[bytes, bytes]], path: str) -> None:
    """Raise ``StoreCorrupt`` unless the last 256 records match their links; ``records`` yields the last one first."""
    item = next(records, None)
    for _ in range(_CHECKED_RECORDS):
        if item is None:
            return
        before = next(records, None)
        try:
            problem = _record_problem(item, before)
        except (ArithmeticError, LookupError, TypeError, ValueError, StructError) as error:
            problem = str(error)
        if problem:
            raise StoreCorrupt(
                f"the end of the log in {path} was checked after an I/O error, and seq "
                f"{int.from_bytes(item[0], 'big')} is damaged: {problem}; open it with readonly=True to read what is "
                f"there, run `refold verify`, restore a backup"
            )
        item = before


def _record_problem(item: tuple[bytes, bytes], before: tuple[bytes, bytes] | None) -> str:
    """Check a record against its predecessor and return the problem, or an empty string."""
    record, (last,) = Record(item[1]), SEQ.unpack(item[0])
    if record.last_seq != last:
        return f"its record says that it ends at seq {record.last_seq}"
    if (SEQ.unpack(before[0])[0] if before else 0) != record.first_seq - 1:
        return f"no record ends at seq {record.first_seq - 1}, in front of its own"
    if link_after(Record(before[1]).link if before else NO_LINK, record.covered_digest()) != record.link:
        return "the link of its record does not fit what is in it"
    return ""


_NODE: Final = Struct("=HHHH")
"""The header of a row: size of its value (low and high half), flags, size of its key."""

_FREE_FLAGS: Final = 0x08
"""The flags of LMDB's list of free pages, whose keys are numbers; all other databases here have no flags."""

_BOUNDS: Final = Struct("=HH")


def problems(path: str) -> list[str]:
    """Verify the structure of a store's data file, as it is on disk, and return the problems.

    Raises ``StoreCorrupt`` if it is not an LMDB file of this machine at all.
    """
    offline = _offline()
    try:
        with open(os.path.join(path, "data.mdb"), "rb") as file:
            found: Sequence[str] = _verifier()(file, os.fstat(file.fileno()).st_size).verify()
    except offline.VerifyError as error:
        raise StoreCorrupt(f"{path} holds no readable LMDB file ({error}); restore a backup") from error
    except OSError as error:
        raise disk_error(error, f"reading {path}", _OPEN_NEXT) from error
    return list(found)


def check_structure(path: str, bytes_max: int) -> None:
    """Raise ``StoreCorrupt`` if a data file of up to ``bytes_max`` is damaged; no process may write meanwhile.

    LMDB trusts its file: a page of the wrong kind or a pointer out of bounds would crash the process.
    """
    if os.stat(os.path.join(path, "data.mdb")).st_size > bytes_max:
        return
    found = problems(path)
    if found:
        raise StoreCorrupt(f"the data file of {path} is damaged ({found[0]}); restore a backup")


def is_cut_off(env: lmdb.Environment, path: str) -> bool:
    """Return whether the file lacks unused pages at its end; ``StoreCorrupt`` if it lacks pages that are in use.

    Touching the map beyond the end of the file would kill the process. LMDB may leave pages at the end unwritten that
    were freed in the commit that allocated them.
    """
    file = os.path.join(path, DATA_FILE)
    expected = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    found = os.stat(file).st_size
    if found >= expected:
        return False
    found_problems = problems(path)
    if found_problems:
        raise StoreCorrupt(
            f"{file} was cut off: {found} of {expected} bytes are there ({found_problems[0]}); restore a backup"
        )
    return True


@cache
def _places(count: int) -> Struct:
    return Struct(f"={count}H")


def _offline() -> Any:
    """Return the module of LMDB's verifier, which has no types."""
    import lmdb.verify as offline  # noqa: PLC0415 - loaded only when needed

    return offline


@cache
def _verifier() -> Any:
    """Return a subclass of LMDB's verifier, faster on plain pages, and stricter about separators and flags."""
    offline = _offline()
    # The verifier has no public API for this; a test compares the results of both.
    verifier: Any = offline._Verifier  # noqa: SLF001
    walk_leaf, walk_branch, walk_page = verifier._walk_leaf, verifier._walk_branch, verifier._walk_page  # noqa: SLF001
    check_named = verifier._validate_named_subdb  # noqa: SLF001
    lexical = offline._cmp_lexical  # noqa: SLF001

    class PageVerifier(verifier):  # type: ignore[misc]
        def load_metas(self) -> None:
            verifier.load_metas(self)
            self.filesize = os.fstat(self.f.fileno()).st_size  # A writer may have committed since it was opened.
            for page, size in ((0, 1), (1, self.psize)):
                meta = self._read_meta(page, size)
                if (meta.free.flags, meta.main.flags) != (_FREE_FLAGS, 0):
                    self.err(f"meta page {page} has flags {meta.free.flags:#x} and {meta.main.flags:#x}")

        def _validate_named_subdb(self, name: str, pgno: int, place: int, found: Any) -> None:
            check_named(self, name, pgno, place, found)
            if found.flags:
                self.err(f"{name} DB: page {pgno} node {place} named sub-DB has flags {found.flags:#x}")

        def _walk_branch(self, ctx: dict[str, Any], pgno: int, buf: bytes, depth: int) -> None:
            """Walk a branch page, whose keys determine where a search turns."""
            ctx.setdefault("turns", []).append(iter(_separators(buf)))
            walk_branch(self, ctx, pgno, buf, depth)
            ctx["turns"].pop()

        def _walk_page(self, ctx: dict[str, Any], pgno: int, depth: int) -> None:
            turns = ctx.get("turns")
            floor = next(turns[-1], b"") if turns and ctx["key_cmp"] is lexical else b""
            if floor:
                ctx["floor"] = floor
                if ctx["last_key"] is not None and ctx["last_key"] >= floor:
                    self.err(f"{ctx['name']} DB: a search does not turn to page {pgno} where it should")
            walk_page(self, ctx, pgno, depth)

        def _walk_leaf(self, ctx: dict[str, Any], pgno: int, buf: bytes) -> None:
            keys, floor = None, ctx.get("floor", b"")
            if ctx["key_cmp"] is lexical and not ctx["is_free"] and self.hdrsz == _HEADER_BYTES:
                keys = plain_keys(buf, ctx["last_key"])
            if keys is not None and keys[0] >= floor:
                ctx["last_key"] = keys[-1]
                ctx["entries"] += len(keys)
                return
            if _first_key(buf) < floor:
                self.err(f"{ctx['name']} DB: a search does not turn to page {pgno} where it should")
            walk_leaf(self, ctx, pgno, buf)

    return PageVerifier


def _separators(page: bytes) -> list[bytes]:
    """Return the keys of a branch page as far as they lie within it; the first one is empty."""
    (lower,) = _BOUNDS.unpack_from(page, _HEADER_BYTES - _BOUNDS.size)[:1]
    count = (min(lower, len(page)) - _HEADER_BYTES) // 2
    places = _places(max(count, 0)).unpack_from(page, _HEADER_BYTES)
    return [_key_at(page, place) for place in places]


def _key_at(page: bytes, place: int) -> bytes:
    if place + _NODE.size > len(page):
        return b""
    begin = place + _NODE.size
    return page[begin : begin + _NODE.unpack_from(page, place)[3]]


def _first_key(page: bytes) -> bytes:
    return _key_at(page, _places(1).unpack_from(page, _HEADER_BYTES)[0])


def plain_keys(page: bytes, before: bytes | None) -> list[bytes] | None:
    """Return the keys of a leaf page of plain rows after the key ``before``; ``None`` if it needs a closer look."""
    lower, upper = _BOUNDS.unpack_from(page, _HEADER_BYTES - _BOUNDS.size)
    size, unpack = len(page), _NODE.unpack_from
    count = (lower - _HEADER_BYTES) // 2
    if count < 1 or not lower <= upper <= size:
        return None
    places = _places(count).unpack_from(page, _HEADER_BYTES)
    if min(places) < upper or max(places) + _NODE.size > size:
        return None
    keys: list[bytes] = []
    last = b"" if before is None else before
    for place in places:
        low, high, flags, key_bytes = unpack(page, place)
        begin = place + _NODE.size
        end = begin + key_bytes
        key = page[begin:end]
        if flags or high or end + low > size or key <= last:
            return None
        keys.append(key)
        last = key
    return keys


def create_databases(path: str, seed: dict[bytes, bytes]) -> None:
    """Create the file of a new store in an empty directory, with the first rows of its ``meta``."""
    env = open_lmdb(path)
    try:
        with env.begin(write=True) as txn:
            databases = {name: env.open_db(name.encode(), txn=txn) for name in NAMES}
            txn.put(FORMAT_KEY, msgspec.msgpack.encode(FORMAT), db=databases["meta"])
            for key, value in seed.items():
                txn.put(key, value, db=databases["meta"])
    except lmdb.Error as error:
        raise lmdb_error(error, "creating a store", path) from error
    finally:
        env.close()


def check_format(packed: bytes | None, path: str) -> None:
    """Raise ``StoreVersion`` unless the row of a file's ``meta`` names a format that this refold reads."""
    if packed is None:
        raise StoreVersion(f"{path} holds an LMDB file that refold did not write; give another path")
    try:
        found = msgspec.msgpack.decode(packed, type=int)
    except msgspec.DecodeError as error:
        raise StoreVersion(f"{path} does not say its format ({error}); restore a backup") from error
    if found > FORMAT:
        raise StoreVersion(f"{path} is of format {found}, and this refold reads format {FORMAT}; upgrade refold")
    if found < FORMAT:
        raise StoreVersion(
            f"{path} is of format {found}, and this refold reads format {FORMAT}; export it with the refold that wrote "
            f"it, and load the export into a new store"
        )
