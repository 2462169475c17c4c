"""What LMDB raises, in refold's errors: what failed, and the next step."""

import errno
import os
import resource
from typing import Final

import lmdb

from refold.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreVersion
from refold.limits import DISK_FULL_BYTES, READERS_MAX

FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Numbers of the system that say that there is no space."""

_NOT_OF_DISK: Final = FULL | {errno.ENOMEM, errno.EINVAL, errno.EAGAIN, errno.EACCES, errno.EPERM}
"""Numbers of the system, which are positive (LMDB's own are not), that say nothing of what reached the disk."""

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
_STOPPED_NEXT: Final = (
    "check the disk, then close the memory and open the store again, which checks the end of the log before anything "
    "is written; a request_id then tells whether a call was written; reads go on"
)


def translated(error: lmdb.Error, doing: str, path: str) -> StoreError:
    """Return refold's error for one of LMDB's."""
    if is_full(error, path):
        return StoreFull(f"{doing} in {path}: {error}; {_FULL_NEXT}")
    for kinds, told, following in _TOLD:
        if isinstance(error, kinds):
            return told(f"{doing} in {path}: {error}; {following}")
    return StoreError(f"{doing} in {path}: {error}; {_OTHER_NEXT}")


def is_of_disk(error: lmdb.Error, path: str) -> bool:
    """Return whether the disk failed, so that nobody knows what of a write has reached it."""
    code = getattr(error, "code", 0)
    return isinstance(error, lmdb.PanicError) or (code > 0 and code not in _NOT_OF_DISK and not is_full(error, path))


def is_full(error: lmdb.Error, path: str) -> bool:
    """Return whether there was no space for a write."""
    return getattr(error, "code", 0) in FULL or _is_cut_short(error, path)


def of_unknown_outcome(error: lmdb.Error, doing: str, path: str) -> StoreError:
    """Return what the caller of a write is told that may or may not have reached the disk."""
    return StoreError(f"{doing} in {path}: {error}; whether it was written is unknown: {_STOPPED_NEXT}")


def of_unknown_place(error: OSError, path: str) -> StoreError:
    """Return what the caller of a sweep is told whose clean copy has its name, though perhaps not on the disk."""
    return StoreError(f"putting a clean copy of the file in place in {path}: {error}; {_STOPPED_NEXT}")


def of_stopped(reason: str, path: str) -> StoreError:
    """Return what those are told who want to write after an I/O error, whose words are the reason."""
    return StoreError(f"nothing more is written to {path} since an I/O error ({reason}): {_STOPPED_NEXT}")


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
