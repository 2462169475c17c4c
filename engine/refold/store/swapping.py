"""Putting a clean copy of the data file in its place, so that nothing of what was deleted is left in its pages.

A file is replaced only by a handle that holds the store alone: whoever had the old one open would go on writing to a
file that is not there any more.
"""

import os
import shutil
from typing import Final

from refold.errors import StoreError, StoreFull
from refold.store.ballast import Ballast
from refold.store.building import flush
from refold.store.copying import copy
from refold.store.environment import Environment
from refold.store.failures import FULL

COPY: Final = "sweep"
"""The directory inside the store in which the copy is made; what a crash leaves of it is unused."""


def sweep(environment: Environment, ballast: Ballast) -> None:
    """Replace the data file by a clean copy; the caller holds the store alone and lets nobody read meanwhile.

    Where that fails the old file stays, whole: ``StoreFull`` where there is no room for the copy, with the ballast's.
    """
    environment.check_writing()
    while True:
        try:
            _sweep(environment)
        except StoreFull:
            if not ballast.give():
                raise
        else:
            return


def _sweep(environment: Environment) -> None:
    made = os.path.join(environment.path, COPY)
    shutil.rmtree(made, ignore_errors=True)
    try:
        os.mkdir(made, 0o700)
        copy(environment, made)
        environment.replace(made)
        shutil.rmtree(made)
        flush(environment.path)  # Before anybody says that nothing is left to be done.
    except OSError as error:
        kind = StoreFull if error.errno in FULL else StoreError
        message = f"sweeping {environment.path}: {error}; check that the directory is writable and has space"
        raise kind(message) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
