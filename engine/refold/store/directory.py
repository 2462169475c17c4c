"""The directory of a store: creating it atomically, opening it, sharing it inside a process, locking it for a writer.

A store is made in a temporary directory beside its path, committed once, and renamed; its parent is flushed. LMDB may
open a file only once in a process, so read-only handles of the same process share the writer's environment.
"""

import errno
import fcntl
import os
import threading
from typing import Final

import lmdb
import msgspec

from refold.errors import InvalidInput, NotFound, StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreVersion
from refold.limits import DATABASES_MAX, LMDB_KEY_BYTES_MAX, MAP_BYTES, MAP_BYTES_MIN, READERS_MAX
from refold.store.protocol import TABLES
from refold.store.record import FORMAT

DATA_FILE: Final = "data.mdb"
OWNER_LOCK: Final = "owner.lock"
WRITER_LOCK: Final = "writer.lock"
FORMAT_KEY: Final = b"format"


class _Shared:
    """One LMDB environment of this process and how many handles hold it."""

    def __init__(self, env: lmdb.Environment) -> None:
        self.env = env
        self.holders = 0


_open_stores: dict[tuple[int, int], _Shared] = {}
_open_lock = threading.Lock()


class Directory:
    """An opened store directory: its environment and the locks that this handle holds."""

    def __init__(
        self, path: str, env: lmdb.Environment, identity: tuple[int, int], locks: list[int], *, readonly: bool
    ) -> None:
        self.path = path
        self.env = env
        self.readonly = readonly
        self._identity = identity
        self._locks = locks
        self._is_released = False

    def size_bytes(self) -> int:
        """Return the size of the data file."""
        return os.stat(os.path.join(self.path, DATA_FILE)).st_size

    def __del__(self) -> None:
        """Release what was never closed: a handle that is gone must not keep the store from being opened again."""
        self.release()

    def release(self) -> None:
        """Close the environment if nobody else in this process holds it, and give the locks back; once."""
        if self._is_released:
            return
        self._is_released = True
        with _open_lock:
            shared = _open_stores[self._identity]
            shared.holders -= 1
            if not shared.holders:
                del _open_stores[self._identity]
                shared.env.close()
        for lock in self._locks:
            os.close(lock)
        self._locks = []


def open_directory(path: str, *, readonly: bool, seed: dict[bytes, bytes]) -> Directory:
    """Return the opened directory; one that does not exist is created with ``seed`` as its first ``meta`` rows.

    Raises ``NotFound`` for a missing parent or a missing store opened read-only, ``StoreVersion`` for what is not a
    store or is a newer one, ``StoreBusy`` when another writer holds it.
    """
    path = os.path.abspath(path)
    if not _exists(path, readonly=readonly):
        _create(path, seed)
    locks = [_lock(path, OWNER_LOCK, fcntl.LOCK_SH)]
    try:
        if not readonly:
            locks.append(_lock_writer(path))
        env, identity = _share(path)
        try:
            _check_format(env, path)
        except BaseException:
            Directory(path, env, identity, [], readonly=readonly).release()
            raise
    except BaseException:
        for lock in locks:
            os.close(lock)
        raise
    return Directory(path, env, identity, locks, readonly=readonly)


def _exists(path: str, *, readonly: bool) -> bool:
    """Return whether there is a store at the path, refusing everything that is neither a store nor room for one."""
    if "\0" in path:
        message = f"a path holds a NUL character: {path!r}; give a directory's path"
        raise InvalidInput(message)
    if os.path.isfile(os.path.join(path, DATA_FILE)):
        return True
    if os.path.exists(path) and not os.path.isdir(path):
        message = f"{path} is a file, and a store is a directory; give another path, or load an export with Memory.load"
        raise StoreVersion(message)
    if os.path.isdir(path) and os.listdir(path):
        message = f"{path} is a directory with other files and no {DATA_FILE}; give an empty or a new directory"
        raise StoreVersion(message)
    if readonly:
        message = f"there is no store at {path} to open read-only; open it once without readonly=True to create it"
        raise NotFound(message)
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        message = f"the parent directory {parent} of the store does not exist; create it first"
        raise NotFound(message)
    return False


def _create(path: str, seed: dict[bytes, bytes]) -> None:
    import tempfile  # noqa: PLC0415 - only creation needs it, and it is slow to import

    path = os.path.abspath(path)
    parent = os.path.dirname(path)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{os.path.basename(path)}.", dir=parent) as building:
            made = os.path.join(building, "store")
            os.mkdir(made)
            _create_inside(made, seed)
            _rename(made, path)
        _flush_directory(parent)
    except OSError as error:
        kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
        message = f"creating a store at {path}: {error}; check that the directory is writable and has space"
        raise kind(message) from error


def _create_inside(made: str, seed: dict[bytes, bytes]) -> None:
    env = _open_environment(made)
    try:
        with env.begin(write=True) as txn:
            env.open_db(b"log", txn=txn)
            env.open_db(b"commits", txn=txn)
            tables = {name: env.open_db(name.encode(), txn=txn) for name in TABLES}
            txn.put(FORMAT_KEY, msgspec.msgpack.encode(FORMAT), db=tables["meta"])
            for key, value in seed.items():
                txn.put(key, value, db=tables["meta"])
    finally:
        env.close()
    for name in (OWNER_LOCK, WRITER_LOCK):
        os.close(os.open(os.path.join(made, name), os.O_CREAT | os.O_RDWR, 0o600))
    _flush_directory(made)


def _rename(made: str, path: str) -> None:
    """Put the new store in place; where another process was quicker, its store is the one."""
    try:
        os.rename(made, path)
    except OSError as error:
        if not os.path.isfile(os.path.join(path, DATA_FILE)):
            raise
        assert error.errno in (errno.EEXIST, errno.ENOTEMPTY), error


def _flush_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(path: str, name: str, how: int) -> int:
    """Return the descriptor of a lock file on which ``flock(how)`` was taken; closing it gives the lock back."""
    try:
        descriptor = os.open(os.path.join(path, name), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"the store at {path} cannot be locked: {error}; check who owns {name} and that it is a file"
        raise StoreError(message) from error
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        message = f"the store at {path} is held by another process ({name}); close it there and open again"
        raise StoreBusy(message) from error
    return descriptor


def _lock_writer(path: str) -> int:
    try:
        descriptor = _lock(path, WRITER_LOCK, fcntl.LOCK_EX)
    except StoreBusy as error:
        with open(os.path.join(path, WRITER_LOCK), encoding="utf-8") as file:
            holder = file.read().strip() or "unknown"
        message = (
            f"process {holder} already writes to the store at {path}; close it there, share its Memory, "
            f"or open this one with readonly=True"
        )
        raise StoreBusy(message) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _share(path: str) -> tuple[lmdb.Environment, tuple[int, int]]:
    """Return this process's environment of the file, opened if this handle is the first."""
    with _open_lock:
        status = os.stat(os.path.join(path, DATA_FILE))
        identity = (status.st_dev, status.st_ino)
        shared = _open_stores.get(identity)
        if shared is None:
            env = _open_environment(path)
            try:
                _check_length(env, path)
                env.reader_check()
            except BaseException:
                env.close()
                raise
            shared = _open_stores[identity] = _Shared(env)
        shared.holders += 1
        return shared.env, identity


def _open_environment(path: str) -> lmdb.Environment:
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


def _check_format(env: lmdb.Environment, path: str) -> None:
    try:
        meta = env.open_db(b"meta", create=False)
        with env.begin(db=meta) as txn:
            packed = txn.get(FORMAT_KEY)
    except lmdb.NotFoundError:
        packed = None
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
