"""A copy of a store's file that holds nothing of what was deleted, and its way into the file's place.

LMDB's own compact copy takes pages as they are, and with them what is left of deleted rows between nodes and behind
long values. So rows are written in the order of their keys into a new file. A file is replaced only by a handle that
holds the store alone: whoever had the old one open would go on writing to a file that is not there any more.
"""

import os
from collections.abc import Iterator
from typing import Final

import lmdb

from refold.errors import StoreFull
from refold.limits import RETRIES_COUNT_MAX
from refold.log.disk import disk_error, flush, remove
from refold.log.environment import Environment
from refold.log.lmdb_file import DATA_FILE, open_alone, translated

_COPYING: Final = "copying"
"""Where the file is until it is whole, so that no part of it is taken for a store."""

_COMMIT_BYTES: Final = 16 * 1024**2
"""Bytes of rows that are held in RAM before they are written."""


def copy(environment: Environment, into: str) -> None:
    """Write everything that is committed to a new data file in a directory, and flush it before it gets its name.

    One read transaction is open meanwhile. Raises ``StoreFull`` and ``StoreError``, and ``OSError`` of the file.
    """
    mode = os.stat(os.path.join(environment.path, DATA_FILE)).st_mode & 0o777 | 0o600  # A copy is its owner's.
    place = os.path.join(into, _COPYING)
    attempts = RETRIES_COUNT_MAX
    while True:
        os.mkdir(place, 0o700)
        try:
            _copy(environment, place)
            file = os.open(os.path.join(place, DATA_FILE), os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fchmod(file, mode)
                os.fsync(file)
            finally:
                os.close(file)
            os.rename(os.path.join(place, DATA_FILE), os.path.join(into, DATA_FILE))
        except lmdb.Error as error:
            attempts -= 1
            if not attempts or not environment.recover(error):
                raise translated(error, "copying the store", into) from error
        else:
            return
        finally:
            remove(place, strict=False)


def _copy(environment: Environment, place: str) -> None:
    with environment.env.begin() as source:
        rows = (
            (name, row)
            for name, database in environment.databases.items()
            for row in source.cursor(database).iternext()
        )
        while _put_some(rows, list(environment.databases), place):
            pass


def _put_some(rows: Iterator[tuple[str, tuple[bytes, bytes]]], names: list[str], place: str) -> bool:
    """Put the next rows into the new file in one transaction, and return whether there may be more.

    The file is opened for each transaction: LMDB would write the next one's pages into buffers of this one, and what
    is left in a buffer would be in the file twice.
    """
    target = open_alone(place)
    bytes_left = _COMMIT_BYTES
    try:
        with target.begin(write=True) as txn:
            databases = {name: target.open_db(name.encode(), txn=txn) for name in names}
            for name, (key, value) in rows:
                assert txn.put(key, value, db=databases[name], append=True), f"{name}: {key!r} is out of order"
                bytes_left -= len(key) + len(value)
                if bytes_left <= 0:
                    return True
    finally:
        target.close()
    return False


COPY: Final = "sweep"
"""The directory inside the store in which the copy is made; what a crash leaves of it is unused."""


def sweep(environment: Environment) -> None:
    """Replace the data file by a clean copy; the caller holds the store alone and allows no reads meanwhile.

    Where that fails the old file stays, whole: ``StoreFull`` where there is no room for the copy, with the ballast's.
    """
    environment.check_writing()
    while True:
        try:
            _sweep(environment)
        except StoreFull:
            if not environment.ballast.give():
                raise
        else:
            return


def _sweep(environment: Environment) -> None:
    directory = os.path.join(environment.path, COPY)
    remove(directory, strict=False)
    try:
        os.mkdir(directory, 0o700)
        copy(environment, directory)
        environment.replace(directory)
        remove(directory)
        flush(environment.path)  # Before anybody says that nothing is left to be done.
    except OSError as error:
        raise disk_error(error, f"sweeping {environment.path}", "check that the directory is writable") from error
    finally:
        remove(directory, strict=False)
