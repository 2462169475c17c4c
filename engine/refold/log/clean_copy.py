"""Makes a copy of a store's file without any remains of deleted rows, and puts it in the file's place.

LMDB's own compact copy takes pages as they are, including remains of deleted rows between nodes and after long values.
So the rows are written in key order into a new file. Both files share LMDB's table of readers, so the new file
continues the commit numbers of the old one: processes that have the old file open continue in the new one.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from heapq import merge
from struct import Struct
from types import MappingProxyType
from typing import Final, TypeAlias

import lmdb

from refold.errors import StoreFull
from refold.limits import RETRIES_COUNT_MAX
from refold.log.disk import disk_error, remove
from refold.log.environment import Environment
from refold.log.lmdb_file import CLEAN, DATA_FILE, FORMAT_KEY, lmdb_error, open_alone

_COPYING: Final = "copying"
"""The directory of the file until it is complete, so that a partial file is never mistaken for a store."""

_COMMIT_BYTES: Final = 16 * 1024**2
"""Bytes of rows collected in RAM before they are written."""


Changes: TypeAlias = Mapping[str, Mapping[bytes, bytes | None]]
"""New values of rows, by database and key; ``None`` for a row to leave out."""


def copy(environment: Environment, into: str, changes: Changes = MappingProxyType({})) -> None:
    """Write all committed rows, with ``changes`` applied, to a new data file in a directory, and flush it.

    The file gets its name once it is complete. One read transaction is open meanwhile. Raises ``StoreFull`` and
    ``StoreError``, and ``OSError`` from the file.
    """
    mode = os.stat(os.path.join(environment.path, DATA_FILE)).st_mode & 0o777 | 0o600  # Its owner keeps access.
    place = os.path.join(into, _COPYING)
    attempts = RETRIES_COUNT_MAX
    while True:
        os.mkdir(place, 0o700)
        try:
            _copy(environment, place, changes)
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
                raise lmdb_error(error, "copying the store", into) from error
        else:
            return
        finally:
            remove(place, strict=False)


def _copy(environment: Environment, place: str, changes: Changes) -> None:
    with environment.env.begin() as source:
        rows = (
            (name, row)
            for name, database in environment.databases.items()
            for row in _apply_changes(source.cursor(database).iternext(), changes.get(name, {}))
        )
        while _put_some(rows, list(environment.databases), place):
            pass


def _apply_changes(
    rows: Iterator[tuple[bytes, bytes]], changes: Mapping[bytes, bytes | None]
) -> Iterator[tuple[bytes, bytes]]:
    put = sorted((key, value) for key, value in changes.items() if value is not None)
    return merge((row for row in rows if row[0] not in changes), put)


def _put_some(rows: Iterator[tuple[str, tuple[bytes, bytes]]], names: list[str], place: str) -> bool:
    """Put the next rows into the new file in one transaction, and return whether there may be more.

    The file is reopened for each transaction. LMDB would otherwise reuse this transaction's buffers for the pages of
    the next one, and leftovers in a buffer would be in the file twice.
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


def rewrite(environment: Environment, changes: Changes) -> None:
    """Replace the data file with a clean copy, with ``changes`` applied; the caller holds its turn and prevents reads.

    On failure the old file stays intact. Raises ``StoreFull`` if the copy does not fit even with the ballast's space.
    """
    environment.check_writing()
    while True:
        try:
            _rewrite(environment, changes)
        except StoreFull:
            if not environment.ballast.give():
                raise
        else:
            return


def _rewrite(environment: Environment, changes: Changes) -> None:
    directory = os.path.join(environment.path, CLEAN)
    remove(directory, strict=False)
    try:
        os.mkdir(directory, 0o700)
        copy(environment, directory, changes)
        _continue_commits(os.path.join(directory, DATA_FILE), environment)
        environment.replace(directory)
    except lmdb.Error as error:
        raise lmdb_error(error, "making a clean copy", environment.path) from error
    except OSError as error:
        raise disk_error(
            error, f"making a clean copy of {environment.path}", "check that the directory is writable"
        ) from error
    finally:
        remove(directory, strict=False)


# A data file begins with two pages that each describe a commit: one with an even number, and one with an odd number.

_META_BEGIN: Final = 16
"""The offset of the description in its page, after the page header, in LMDB 0.9 on a 64-bit machine."""
_META_BYTES: Final = 136
_NUMBER: Final = Struct("@Q")
"""The last word of a description, the number of its commit."""


def _continue_commits(file: str, environment: Environment) -> None:
    """Give the last commit of the new file the number of the old file's last commit.

    That number must not be smaller than those of the transactions that made the new file, because the new file's list
    of free pages contains them. A process that has the old file open reads the page whose number is as even or odd as
    that of the last commit to either file. So the old file's number is advanced at least once, by a commit that changes
    nothing: then both pages of either file describe the same state.
    """
    page_bytes, meta = environment.env.stat()["psize"], environment.databases["meta"]
    with open(file, "r+b", buffering=0) as new:
        descriptions = [os.pread(new.fileno(), _META_BYTES, page * page_bytes + _META_BEGIN) for page in (0, 1)]
        whole = max(descriptions, key=_number)
        last = 0
        while last < _number(whole):
            with environment.begin(write=True) as txn:  # Puts the same value.
                txn.put(FORMAT_KEY, txn.get(FORMAT_KEY, db=meta) or b"", db=meta)
            last = environment.env.info()["last_txnid"]
        for number in (last - 1, last):
            description = whole[: -_NUMBER.size] + _NUMBER.pack(number)
            written = os.pwrite(new.fileno(), description, number % 2 * page_bytes + _META_BEGIN)
            if written != _META_BYTES:
                raise OSError(errno.EIO, f"{written} of {_META_BYTES} bytes were written", file)
        os.fsync(new.fileno())


def _number(description: bytes) -> int:
    return int(_NUMBER.unpack_from(description, _META_BYTES - _NUMBER.size)[0])
