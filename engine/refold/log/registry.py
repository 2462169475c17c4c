"""The environments open in this process, and the handles that share each: a process may open an LMDB file only once."""

import gc
import os
import time
from contextlib import suppress

from refold.errors import StoreBusy
from refold.limits import MAP_WAIT_SECONDS, OPEN_WAIT_SECONDS_MAX
from refold.log.environment import REPLACED, Environment, file_at, identity_at, open_environments, open_lock
from refold.log.protocol import TurnLost


def share(path: str, handle: object, *, readonly: bool, is_sealed: bool = False) -> Environment:
    """Return this process's environment of the file, opening it for the first handle; only one handle can write.

    The writer then calls `allow_writing`, which waits for a read of the whole log: not here, where every other store
    of this process would have to wait to open, and so would such a read that opens one.
    A sealed environment is for the handles of a process without write permission for the store's files.
    """
    until = time.monotonic() + OPEN_WAIT_SECONDS_MAX
    while True:
        with open_lock:
            identity = identity_at(path)
            # Checked before the lookup by identity, so that an environment that moves to this file is not missed.
            behind = _stale_environment(identity)
            if behind is None:
                with suppress(TurnLost):  # The file was replaced while it was opened.
                    return _share(path, identity, handle, readonly=readonly, is_sealed=is_sealed)
                continue
        # Both data files share LMDB's lock file, which a process may have open only once.
        if not behind.follow() and time.monotonic() > until:
            raise StoreBusy(
                f"this process reads or writes the store at {path} as it was before another one erased something, for "
                f"longer than OPEN_WAIT_SECONDS_MAX = {OPEN_WAIT_SECONDS_MAX} s; call again once that is done"
            )
        time.sleep(MAP_WAIT_SECONDS)


def _stale_environment(identity: tuple[int, int]) -> Environment | None:
    """Return the environment that has not noticed yet that its file was replaced by the one with this identity."""
    for environment in open_environments.values():
        if environment.turnstile.words[REPLACED] != environment.replaced and identity != environment.identity:
            with suppress(OSError):
                if file_at(environment.path) == identity and environment.turnstile.is_at(environment.path):
                    return environment
    return None


def _share(path: str, identity: tuple[int, int], handle: object, *, readonly: bool, is_sealed: bool) -> Environment:
    environment = open_environments.get(identity)
    if environment is not None and not environment.handles:
        # Its last handle was cut off while closing it.
        _close(environment)
        environment = None
    if environment is not None:
        # Added before the check that it is still there: a handle collected meanwhile may have closed it.
        environment.handles.add(handle)
    if environment is None or open_environments.get(identity) is not environment:
        environment = Environment(path, identity, readonly=readonly, is_sealed=is_sealed)
        open_environments[environment.identity] = environment
        environment.handles.add(handle)
    if environment.is_sealed and not is_sealed:
        raise StoreBusy(
            f"this process opened the store at {path} when it might not write to its files; close it and open again"
        )
    if not readonly:
        _take_writer(environment, handle)
    return environment


def writer_at(path: str) -> object | None:
    """Return this process's handle that writes to the store at a path, ``None`` if there is none."""
    with open_lock:
        try:
            identity = file_at(path)
        except OSError:
            return None
        environment = _stale_environment(identity) or open_environments.get(identity)
        return None if environment is None else next(iter(environment.writers), None)


def share_open(path: str, handle: object) -> Environment | None:
    """Return this process's environment of the file as ``share`` does for a reader, or ``None`` if it has none."""
    with open_lock:
        identity = identity_at(path)
        environment = _stale_environment(identity) or open_environments.get(identity)
        if environment is None:
            return None
        environment.handles.add(handle)
        return environment if open_environments.get(environment.identity) is environment else None


def _take_writer(environment: Environment, handle: object) -> None:
    if environment.writers:
        gc.collect()  # A memory dropped without being closed may be left in a reference cycle.
    if environment.writers:
        path = environment.path
        raise StoreBusy(
            f"process {os.getpid()} already writes to the store at {path}; close it there, share its Memory, "
            f"or open this one with readonly=True"
        )
    environment.writers.add(handle)


def unshare(handle: object) -> None:
    """Release a handle's shares, and close each environment that no handle uses any more; idempotent."""
    with open_lock:
        for environment in list(open_environments.values()):
            environment.writers.discard(handle)
            environment.handles.discard(handle)
            if not environment.handles:
                _close(environment)


def _close(environment: Environment) -> None:
    environment.close()
    if open_environments.get(environment.identity) is environment:
        del open_environments[environment.identity]
