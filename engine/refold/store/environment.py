"""LMDB's environment of a store: one for each file and process, its databases open, shared by all handles.

LMDB may open a file only once in a process, so read-only handles of the same process share the writer's environment.
"""

import errno
import mmap
import os
import threading
from typing import Any, Final

import lmdb
import msgspec

from refold.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreVersion
from refold.limits import (
    DATABASES_MAX,
    LMDB_KEY_BYTES_MAX,
    LOCK_BYTES,
    MAP_BYTES,
    MAP_BYTES_MIN,
    MAP_SPARE_BYTES,
    MAP_STEP_BYTES_MIN,
    MAP_WAIT_SECONDS,
    READERS_MAX,
    RETRIES_COUNT_MAX,
)
from refold.store.building import flush
from refold.store.failures import translated
from refold.store.protocol import TABLES
from refold.store.record import FORMAT
from refold.store.turnstile import Turnstile

DATA_FILE: Final = "data.mdb"
LOCK_FILE: Final = "lock.mdb"
FORMAT_KEY: Final = b"format"
_BLOCK_BYTES: Final = 512
"""What ``st_blocks`` counts in."""

NAMES: Final = ("log", "commits", *TABLES)
"""The databases of a store."""

LATER_NAMES: Final = frozenset(("graphs",))
"""Those that the first stores did not have; they are made empty."""


class Environment:
    """One LMDB environment of this process, its databases by name, and the handles that hold it."""

    def __init__(self, path: str, identity: tuple[int, int]) -> None:
        self.path = path
        self.identity = identity
        self.turnstile = Turnstile(path)
        try:
            self.env: lmdb.Environment = open_lmdb(path)
        except BaseException:
            self.turnstile.close()
            raise
        self.readers = 0
        self.has_writer = False
        self.writing = threading.RLock()
        """Held by a thread for its turn at writing, and to change the map: LMDB may not do both at once."""
        self._map_changes = 0
        self._is_map_changing = False
        self.map_bytes: int = self.env.info()["map_size"]
        try:
            _check_length(self.env, path)
            self.env.reader_check()
            self.databases = self._open_databases()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give everything back."""
        self.env.close()
        self.turnstile.close()

    def begin_write(self, *, always: bool = False) -> "lmdb.Transaction[bytes]":
        """Return a write transaction, once nobody else has one; for this thread alone, which holds ``writing``.

        ``always`` takes the turnstile even where the store's writer may not know of this process.
        """
        self.turnstile.enter(always=always)
        attempts = RETRIES_COUNT_MAX
        while True:
            try:
                return self.env.begin(write=True)
            except lmdb.Error as error:
                attempts -= 1
                if not attempts or not self.recover(error):
                    raise translated(error, "beginning to write", self.path) from error

    def replace(self, file: str) -> None:
        """Put another data file in the place of this one, and open it; the old one stays where that fails.

        The caller holds ``writing`` and the store alone. LMDB's table of readers is of the old file and goes first: a
        power cut between the two leaves a whole store.
        """
        with _open_lock:
            if self.readers + self.has_writer > 1:
                message = f"another handle of this process has the store at {self.path} open; close it and call again"
                raise StoreBusy(message)
            self._is_map_changing = True
            self.env.close()
            try:
                os.unlink(os.path.join(self.path, LOCK_FILE))
                os.rename(file, os.path.join(self.path, DATA_FILE))
                flush(self.path)
            finally:
                self._open_again()
                self._map_changes += 1
                self._is_map_changing = False

    def _open_again(self) -> None:
        del _open_environments[self.identity]
        self.identity = _identity(self.path)
        _open_environments[self.identity] = self
        self.env = open_lmdb(self.path)
        self.map_bytes = self.env.info()["map_size"]
        self.databases = self._open_databases()

    def recover(self, error: lmdb.Error) -> bool:
        """Return whether what failed so may be tried again; here ends what is nobody's fault."""
        if isinstance(error, lmdb.ReadersFullError):
            self.env.reader_check()
            return True
        if isinstance(error, lmdb.MapResizedError):
            return self._adopt()
        # A map that changes takes the transactions of other threads with it.
        while self._is_map_changing:
            if self.writing.acquire(timeout=MAP_WAIT_SECONDS):
                self.writing.release()
        return self._map_changes > 0

    def grow(self) -> bool:
        """Make the map that is full larger, and return whether the system grants it.

        The thread holds ``writing`` and has no transaction open.
        """
        return self._enlarge(self.map_bytes + MAP_STEP_BYTES_MIN)

    def _adopt(self) -> bool:
        """Make the map as large as the store that another process let grow, and return whether the system grants it.

        The thread that has its turn may wait for what the caller holds, so the caller waits for it in small steps: if
        it does not end its turn, it has made the map larger itself.
        """
        while not self.writing.acquire(timeout=MAP_WAIT_SECONDS):
            if self._is_readable():
                return True
        try:
            return self._is_readable() or self._enlarge((self.env.info()["last_pgno"] + 1) * self.env.stat()["psize"])
        finally:
            self.writing.release()

    def _is_readable(self) -> bool:
        try:
            self.env.begin().abort()
        except lmdb.Error:
            return False
        return True

    def _enlarge(self, needed_bytes: int) -> bool:
        least_bytes = needed_bytes - self.map_bytes
        more_bytes = max(self.map_bytes, 2 * least_bytes)
        while not _is_granted(more_bytes + MAP_SPARE_BYTES):
            if more_bytes == least_bytes:
                return False
            more_bytes = max(more_bytes // 2, least_bytes)
        self._map(self.map_bytes + more_bytes)
        return True

    def _map(self, map_bytes: int) -> None:
        self._is_map_changing = True
        try:
            self.env.set_mapsize(map_bytes)
            self.map_bytes = self.env.info()["map_size"]
        finally:
            self._map_changes += 1
            self._is_map_changing = False

    def _open_databases(self) -> dict[str, Any]:
        """Return the handles of all databases, for all who share the environment.

        The transaction is given, because LMDB's binding would else begin one of its own that waits for other writers
        with the GIL held. It has to be one that may write: of one that may not, the binding forgets the handles.
        """
        try:
            with self.begin_write(always=True) as txn:
                databases = {
                    name: self.env.open_db(name.encode(), txn=txn, create=name in LATER_NAMES) for name in NAMES
                }
                _check_format(txn.get(FORMAT_KEY, db=databases["meta"]), self.path)
        except lmdb.NotFoundError as error:
            message = f"{self.path} holds an LMDB file that refold did not write; give another path"
            raise StoreVersion(message) from error
        finally:
            self.turnstile.leave()
        return databases


def _is_granted(more_bytes: int) -> bool:
    """Return whether the system grants this much more address space; LMDB would lose its map in trying."""
    try:
        mmap.mmap(-1, more_bytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ).close()
    except OSError:
        return False
    return True


_open_environments: dict[tuple[int, int], Environment] = {}
_open_lock = threading.Lock()


def share(path: str, *, readonly: bool) -> Environment:
    """Return this process's environment of the file, opened if this handle is the first; one of them may write."""
    with _open_lock:
        identity = _identity(path)
        environment = _open_environments.get(identity)
        if environment is None:
            environment = _open_environments[identity] = Environment(path, identity)
        if readonly:
            environment.readers += 1
        else:
            _take_writer(environment, path)
        return environment


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(os.path.join(path, DATA_FILE))
    return status.st_dev, status.st_ino


def share_open(path: str) -> Environment | None:
    """Return this process's environment of the file as ``share`` does to a reader, ``None`` if it has none."""
    with _open_lock:
        environment = _open_environments.get(_identity(path))
        if environment is not None:
            environment.readers += 1
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
            environment.close()


def open_lmdb(path: str) -> lmdb.Environment:
    """Return the LMDB environment, with as much address space as the system grants."""
    _allocate_lock_file(path)
    return _open(path, max_readers=READERS_MAX, max_spare_txns=1)


def open_to_look(path: str) -> lmdb.Environment:
    """Return the LMDB environment of a file that is there, without changing it; beside others as one more reader."""
    return _open(path, readonly=True, create=False, lock=os.path.exists(os.path.join(path, LOCK_FILE)))


def _open(path: str, **options: Any) -> lmdb.Environment:
    file = os.path.join(path, DATA_FILE)
    file_bytes = os.stat(file).st_size if os.path.exists(file) else 0
    for map_bytes in (MAP_BYTES, 2 * file_bytes + MAP_BYTES_MIN, file_bytes + MAP_BYTES_MIN):
        try:
            env = lmdb.open(path, map_size=map_bytes, max_dbs=DATABASES_MAX, **options)
        except lmdb.MemoryError:
            continue
        except lmdb.Error as error:
            told = translated(error, "opening", path)
            if isinstance(told, (StoreBusy, StoreFull)):
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


def _allocate_lock_file(path: str) -> None:
    """Give LMDB's lock file its blocks before it is mapped: writing to a hole on a full disk kills the process."""
    if not hasattr(os, "posix_fallocate"):
        return
    descriptor = os.open(os.path.join(path, LOCK_FILE), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_blocks * _BLOCK_BYTES < LOCK_BYTES:
            os.posix_fallocate(descriptor, 0, LOCK_BYTES)
    except OSError as error:
        kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
        message = f"opening {path}: {error} for {LOCK_BYTES} bytes of {LOCK_FILE}; free disk space and open it again"
        raise kind(message) from error
    finally:
        os.close(descriptor)


def create_databases(path: str, seed: dict[bytes, bytes]) -> None:
    """Make the file of a new store in an empty directory, with the first rows of its ``meta``."""
    env = open_lmdb(path)
    try:
        with env.begin(write=True) as txn:
            databases = {name: env.open_db(name.encode(), txn=txn) for name in NAMES}
            txn.put(FORMAT_KEY, msgspec.msgpack.encode(FORMAT), db=databases["meta"])
            for key, value in seed.items():
                txn.put(key, value, db=databases["meta"])
    except lmdb.Error as error:
        raise translated(error, "creating a store", path) from error
    finally:
        env.close()


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


def _check_format(packed: bytes | None, path: str) -> None:
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
