"""Putting a clean copy of the data file in its place, so that nothing of what was deleted is left in its pages.

A file is replaced only by a handle that holds the store alone: whoever had the old one open would go on writing to a
file that is not there any more.
"""

import errno
import os
import shutil
from typing import Final

from refold.errors import StoreError, StoreFull
from refold.store.building import flush
from refold.store.copying import copy
from refold.store.environment import DATA_FILE, Environment

COPY: Final = "sweep"
"""The directory inside the store in which the copy is made; what a crash leaves of it is unused."""


def sweep(environment: Environment) -> None:
    """Replace the data file by a clean copy; the caller holds the store alone and lets nobody read meanwhile.

    Where that fails the old file stays, whole: ``StoreFull`` where there is no room for the copy.
    """
    made = os.path.join(environment.path, COPY)
    shutil.rmtree(made, ignore_errors=True)
    try:
        os.mkdir(made, 0o700)
        copy(environment, made)
        environment.replace(os.path.join(made, DATA_FILE))
        shutil.rmtree(made)
        flush(environment.path)  # Before anybody says that nothing is left to be done.
    except OSError as error:
        kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
        message = f"sweeping {environment.path}: {error}; check that the directory is writable and has space"
        raise kind(message) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
