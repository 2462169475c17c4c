"""What LMDB raises, in refold's errors: what failed, and the next step."""

import errno
import os
import resource
from typing import Final

import lmdb

from refold.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreVersion
from refold.limits import DISK_FULL_BYTES, READERS_MAX

_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))

_TOLD: Final[tuple[tuple[tuple[type[lmdb.Error], ...], type[StoreError], str], ...]] = (
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
_OTHER_NEXT: Final = "check the disk, then open the store again"


def translated(error: lmdb.Error, doing: str, path: str) -> StoreError:
    """Return refold's error for one of LMDB's."""
    if getattr(error, "code", 0) in _FULL or _is_cut_short(error, path):
        return StoreFull(f"{doing} in {path}: {error}; {_FULL_NEXT}")
    for kinds, told, following in _TOLD:
        if isinstance(error, kinds):
            return told(f"{doing} in {path}: {error}; {following}")
    return StoreError(f"{doing} in {path}: {error}; {_OTHER_NEXT}")


def _is_cut_short(error: lmdb.Error, path: str) -> bool:
    """Return whether an error of input or output is one of space: LMDB calls a write so that was cut short."""
    if getattr(error, "code", 0) != errno.EIO:
        return False
    disk = os.statvfs(path)
    file = os.path.join(path, "data.mdb")
    size = os.stat(file).st_size if os.path.exists(file) else 0
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    is_at_limit = limit != resource.RLIM_INFINITY and size + DISK_FULL_BYTES > limit
    return is_at_limit or disk.f_bavail * disk.f_frsize < DISK_FULL_BYTES
