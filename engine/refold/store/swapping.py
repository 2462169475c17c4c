"""Putting a clean copy of the data file in its place, so that nothing of what was deleted is left in its pages.

The copy is written row by row into fresh pages. LMDB's own compact copy takes pages over as they are, and the gap in a
page from which a row went may still hold that row. A file is replaced only by a handle that holds the store alone:
whoever had the old one open would go on writing to a file that is not there any more.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from itertools import islice
from typing import Final

import lmdb

from refold.errors import StoreError, StoreFull
from refold.limits import COPIED_ROWS_COUNT
from refold.store.environment import DATA_FILE, LOCK_FILE, NAMES, Environment, open_lmdb
from refold.store.failures import translated

COPY: Final = "sweep"
"""The directory inside the store in which the copy is made; what a crash leaves of it is clean and unused."""


def sweep(environment: Environment) -> None:
    """Replace the data file by a clean copy; the caller holds the store alone and lets nobody read meanwhile.

    Where that fails the old file stays, whole: ``StoreFull`` where there is no room for the copy.
    """
    made = os.path.join(environment.path, COPY)
    shutil.rmtree(made, ignore_errors=True)
    try:
        os.mkdir(made, 0o700)
        _copy(environment, made)
        environment.replace(os.path.join(made, DATA_FILE))
    except lmdb.Error as error:
        raise translated(error, "sweeping", environment.path) from error
    except OSError as error:
        kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
        message = f"sweeping {environment.path}: {error}; check that the directory is writable and has space"
        raise kind(message) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _copy(environment: Environment, made: str) -> None:
    """Copy every row of every database, in transactions of ``COPIED_ROWS_COUNT`` rows."""
    env = open_lmdb(made)
    try:
        with env.begin(write=True) as txn:
            databases = {name: env.open_db(name.encode(), txn=txn) for name in NAMES}
        for name in NAMES:
            # One transaction at a time on either side: nobody writes to the old file, so its pages stay.
            after = b""
            while rows := list(_rows(environment, name, after)):
                with env.begin(write=True) as txn:
                    put = txn.cursor(db=databases[name]).putmulti(rows, append=True)
                if put != (len(rows), len(rows)):
                    message = f"the rows of {name} behind {after.hex()} are not in order"
                    raise AssertionError(message)
                after = rows[-1][0]
    finally:
        env.close()
    os.unlink(os.path.join(made, LOCK_FILE))


def _rows(environment: Environment, name: str, after: bytes) -> Iterator[tuple[bytes, bytes]]:
    with environment.env.begin(db=environment.databases[name]) as txn:
        cursor = txn.cursor()
        if cursor.set_range(after + b"\0") if after else cursor.first():
            yield from islice(cursor.iternext(), COPIED_ROWS_COUNT)
