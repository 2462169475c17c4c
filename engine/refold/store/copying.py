"""Copying a store's file while others write: compactly, scrubbed, and flushed before it gets its name."""

import os
from typing import Final

import lmdb

from refold.limits import RETRIES_COUNT_MAX
from refold.store.environment import Environment
from refold.store.failures import translated
from refold.store.mapping import DATA_FILE
from refold.store.scrubbing import Scrubbing

_COPYING: Final = "copying"
"""What the file is called until it is whole, so that nobody takes a part of it for a store."""


def copy(environment: Environment, into: str) -> None:
    """Write everything that is committed to a new data file in a directory.

    One read transaction is open as long as LMDB copies, and nothing else runs inside of it; LMDB's binding lets nobody
    close or map the environment anew meanwhile. Raises ``StoreFull`` and ``StoreError``, and ``OSError`` of the file.
    """
    source = os.stat(os.path.join(environment.path, DATA_FILE))
    unnamed = os.path.join(into, _COPYING)
    file = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, source.st_mode & 0o777)
    try:
        _copy(environment, file, into)
        Scrubbing(file, environment.env.stat()["psize"]).scrub()
        os.fsync(file)
    finally:
        os.close(file)
    os.rename(unnamed, os.path.join(into, DATA_FILE))


def _copy(environment: Environment, file: int, into: str) -> None:
    attempts = RETRIES_COUNT_MAX
    while True:
        try:
            environment.env.copyfd(file, compact=True)
        except lmdb.Error as error:
            attempts -= 1
            if not attempts or not environment.recover(error):
                raise translated(error, "copying the store", into) from error
            os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)
        else:
            return
