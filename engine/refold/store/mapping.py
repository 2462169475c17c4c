"""LMDB's file opened, with as much address space as the system grants.

The map is far larger than any file, and a system may refuse it; a smaller one grows, but not beyond what is granted.
"""

import mmap
import os
from typing import Any, Final

import lmdb

from refold.errors import StoreBusy, StoreError, StoreFull, StoreVersion
from refold.limits import DATABASES_MAX, LMDB_KEY_BYTES_MAX, LOCK_BYTES, MAP_BYTES, MAP_BYTES_MIN, READERS_MAX
from refold.store.failures import FULL, is_of_disk, translated

DATA_FILE: Final = "data.mdb"
LOCK_FILE: Final = "lock.mdb"
_BLOCK_BYTES: Final = 512
"""What ``st_blocks`` counts in."""


def open_lmdb(path: str) -> lmdb.Environment:
    """Return the LMDB environment, with as much address space as the system grants."""
    allocate_lock_file(path)
    return _open(path, max_readers=READERS_MAX, max_spare_txns=1)


def open_to_look(path: str) -> lmdb.Environment:
    """Return the LMDB environment of a file that is there, without changing it; beside others as one more reader."""
    return _open(path, readonly=True, create=False, lock=os.path.exists(os.path.join(path, LOCK_FILE)))


def _open(path: str, **options: Any) -> lmdb.Environment:
    file = os.path.join(path, DATA_FILE)
    file_bytes = os.stat(file).st_size if os.path.exists(file) else None
    if file_bytes == 0:
        # LMDB would make an empty database of it, and nobody would see any more that there was a store.
        message = f"{path} cannot be opened as a store (its {DATA_FILE} is empty); restore a backup, or remove the file"
        raise StoreVersion(message)
    file_bytes = file_bytes or 0
    for map_bytes in (MAP_BYTES, 2 * file_bytes + MAP_BYTES_MIN, file_bytes + MAP_BYTES_MIN):
        try:
            env = lmdb.open(path, map_size=map_bytes, max_dbs=DATABASES_MAX, **options)
        except lmdb.MemoryError:
            continue
        except OSError as error:
            message = f"opening {path}: {error}; check the disk and who owns it, and open it again"
            raise StoreError(message) from error
        except lmdb.Error as error:
            told = translated(error, "opening", path)
            if isinstance(told, (StoreBusy, StoreFull)) or is_of_disk(error, path):
                raise told from error
            message = f"{path} cannot be opened as a store ({error}); run `python -m lmdb verify {path}`"
            raise StoreVersion(message) from error
        else:
            assert env.max_key_size() >= LMDB_KEY_BYTES_MAX, env.max_key_size()
            return env
    message = (
        f"opening {path}: the system does not grant {file_bytes + MAP_BYTES_MIN} bytes of address space, its size and "
        f"MAP_BYTES_MIN; raise the limit of this process (ulimit -v) and open it again"
    )
    raise StoreError(message)


def allocate_lock_file(path: str) -> None:
    """Give LMDB's lock file its blocks before it is mapped: writing to a hole on a full disk kills the process.

    It is made if it is not there. Nobody may have it open here: closing it gives up what LMDB has locked in it.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    descriptor = -1
    try:
        descriptor = os.open(os.path.join(path, LOCK_FILE), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if os.fstat(descriptor).st_blocks * _BLOCK_BYTES < LOCK_BYTES:
            os.posix_fallocate(descriptor, 0, LOCK_BYTES)
    except OSError as error:
        kind = StoreFull if error.errno in FULL else StoreError
        step = "free disk space" if kind is StoreFull else "check the disk and who owns it"
        message = f"opening {path}: {error} for {LOCK_BYTES} bytes of {LOCK_FILE}; {step} and open it again"
        raise kind(message) from error
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def is_granted(more_bytes: int) -> bool:
    """Return whether the system grants this much more address space; LMDB would lose its map in trying."""
    try:
        mmap.mmap(-1, more_bytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ).close()
    except OSError:
        return False
    return True
