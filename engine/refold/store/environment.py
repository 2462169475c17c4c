"""LMDB's environment of a store: one for each file and process, its databases open, shared by all handles.

LMDB may open a file only once in a process, so read-only handles of the same process share the writer's environment.
"""

import os
import threading
from typing import Any, Final

import lmdb
import msgspec

from refold.errors import StoreBusy, StoreCorrupt, StoreError, StoreVersion
from refold.limits import DATABASES_MAX, LMDB_KEY_BYTES_MAX, MAP_BYTES, MAP_BYTES_MIN, READERS_MAX
from refold.store.protocol import TABLES
from refold.store.record import FORMAT

DATA_FILE: Final = "data.mdb"
FORMAT_KEY: Final = b"format"
NAMES: Final = ("log", "commits", *TABLES)
"""The databases of a store."""


class Environment:
    """One LMDB environment of this process, its databases by name, and the handles that hold it."""

    def __init__(self, path: str, identity: tuple[int, int]) -> None:
        self.path = path
        self.identity = identity
        self.env: lmdb.Environment = open_lmdb(path)
        self.readers = 0
        self.has_writer = False
        try:
            _check_length(self.env, path)
            self.env.reader_check()
            self.databases = _open_databases(self.env, path)
            _check_format(self.env, self.databases["meta"], path)
        except BaseException:
            self.env.close()
            raise


_open_environments: dict[tuple[int, int], Environment] = {}
_open_lock = threading.Lock()


def share(path: str, *, readonly: bool) -> Environment:
    """Return this process's environment of the file, opened if this handle is the first; one of them may write."""
    with _open_lock:
        status = os.stat(os.path.join(path, DATA_FILE))
        identity = (status.st_dev, status.st_ino)
        environment = _open_environments.get(identity)
        if environment is None:
            environment = _open_environments[identity] = Environment(path, identity)
        if readonly:
            environment.readers += 1
        else:
            _take_writer(environment, path)
        return environment


def _take_writer(environment: Environment, path: str) -> None:
    if environment.has_writer:
        message = (
            f"process {os.getpid()} already writes to the store at {path}; close it there, share its Memory, "
            f"or open this one with readonly=True"
        )
        raise StoreBusy(message)
    environment.has_writer = True


def unshare(environment: Environment, *, readonly: bool) -> None:
    """Give a handle's share back, and close the environment with the last one."""
    with _open_lock:
        if readonly:
            environment.readers -= 1
        else:
            environment.has_writer = False
        if not environment.readers and not environment.has_writer:
            del _open_environments[environment.identity]
            environment.env.close()


def open_lmdb(path: str) -> lmdb.Environment:
    """Return the LMDB environment, with as much address space as the system grants."""
    map_bytes = MAP_BYTES
    while True:
        try:
            env = lmdb.open(path, map_size=map_bytes, max_dbs=DATABASES_MAX, max_readers=READERS_MAX, max_spare_txns=1)
        except lmdb.MemoryError as error:
            if map_bytes <= MAP_BYTES_MIN:
                message = (
                    f"opening {path}: the system grants less than {MAP_BYTES_MIN} bytes of address space ({error})"
                )
                raise StoreError(message) from error
            map_bytes //= 2
        except lmdb.Error as error:
            message = f"{path} cannot be opened as a store ({error}); run `python -m lmdb verify {path}`"
            raise StoreVersion(message) from error
        else:
            assert env.max_key_size() >= LMDB_KEY_BYTES_MAX, env.max_key_size()
            return env


def _check_length(env: lmdb.Environment, path: str) -> None:
    """Refuse a file that was cut off: touching what is mapped behind its end would kill the process.

    LMDB may leave pages at the end unwritten that were freed in the commit that took them. Such a file is only padded.
    """
    file = os.path.join(path, DATA_FILE)
    expected = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    found = os.stat(file).st_size
    if found >= expected:
        return
    import lmdb.verify as offline  # noqa: PLC0415 - only a damaged file needs it

    problems: list[str] = offline.verify(path)  # type: ignore[no-untyped-call]
    if problems:
        message = f"{file} was cut off: {found} of {expected} bytes are there ({problems[0]}); restore a backup"
        raise StoreCorrupt(message)
    os.truncate(file, expected)


def _open_databases(env: lmdb.Environment, path: str) -> dict[str, Any]:
    """Return the handles of all databases, for all who share the environment.

    The transaction is given, because LMDB's binding would else begin one of its own that waits for other writers with
    the GIL held. It has to be one that may write: of one that may not, the binding forgets the handles.
    """
    try:
        with env.begin(write=True) as txn:
            return {name: env.open_db(name.encode(), txn=txn, create=False) for name in NAMES}
    except lmdb.NotFoundError as error:
        message = f"{path} holds an LMDB file that refold did not write; give another path"
        raise StoreVersion(message) from error


def _check_format(env: lmdb.Environment, meta: Any, path: str) -> None:
    with env.begin(db=meta) as txn:
        packed = txn.get(FORMAT_KEY)
    if packed is None:
        message = f"{path} holds an LMDB file that refold did not write; give another path"
        raise StoreVersion(message)
    try:
        found = msgspec.msgpack.decode(packed, type=int)
    except msgspec.DecodeError as error:
        message = f"{path} does not say its format ({error}); restore a backup"
        raise StoreVersion(message) from error
    if found > FORMAT:
        message = f"{path} is of format {found}, and this refold reads up to {FORMAT}; upgrade refold"
        raise StoreVersion(message)
