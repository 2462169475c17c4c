"""What follows a write that failed: who is told what, and when nothing more may be written.

After an I/O error nobody knows what has reached the disk: the system may have forgotten pages that it could not write,
and LMDB's last page may be there or not. So writing stops in this process until the store is opened again, which reads
its end from the disk and checks it.
"""

import os
from typing import Final

import lmdb

from refold.errors import StoreError
from refold.store.building import flush
from refold.store.environment import Environment
from refold.store.failures import is_of_disk, of_unknown_outcome, translated
from refold.store.mapping import DATA_FILE

_KEEPS_CACHE: Final = not hasattr(os, "posix_fadvise")


def failed(shared: Environment, error: lmdb.Error, doing: str, txnid: int) -> StoreError:
    """Return what the caller of a commit is told that failed; the thread has its turn.

    A full disk is an end that is known, and writing goes on when there is space: unless LMDB failed at its last page
    and others see the commit all the same, which is unknown again.
    """
    is_visible = False
    if shared.is_panicked():
        try:
            shared.renew()
            is_visible = shared.env.info()["last_txnid"] >= txnid
        except (StoreError, lmdb.Error, OSError):
            is_visible = True  # Nobody can look; who reads next tries again.
    if is_visible or is_of_disk(error, shared.path):
        shared.stop(str(error))
        return of_unknown_outcome(error, doing, shared.path)
    return translated(error, doing, shared.path)


def settle(path: str) -> None:
    """Write what is not on the disk yet and forget what is, so that the file is read from the disk; it is not open.

    Raises ``StoreError`` where the disk still fails.
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
        message = f"{file} cannot be flushed ({error}), so nothing is written to it; check the disk and open it again"
        raise StoreError(message) from error
