"""Opening an engine over a directory or over RAM."""

from collections.abc import Callable

from refold.engine.core import Engine
from refold.engine.reading import HASH_KEY, STORE_ID_KEY
from refold.limits import HASH_KEY_BYTES, STORE_ID_BYTES
from refold.store.protocol import Log


def open_engine(
    path: str | None,
    *,
    readonly: bool,
    clock_ns: Callable[[], int],
    random_bytes: Callable[[int], bytes],
    memory_bytes: int,
    delayed: bool,
) -> Engine:
    """Return an engine over the store at ``path``, which is created if there is none; over RAM for ``None``."""
    seed = {STORE_ID_KEY: random_bytes(STORE_ID_BYTES), HASH_KEY: random_bytes(HASH_KEY_BYTES)}
    if path is None:
        from refold.store.ram import RamLog  # noqa: PLC0415 - and one on disk no log in RAM

        log: Log = RamLog()
        log.write_rows([("meta", key, value) for key, value in seed.items()])
    else:
        from refold.store.directory import open_directory  # noqa: PLC0415 - a memory in RAM needs no LMDB
        from refold.store.log import LmdbLog  # noqa: PLC0415

        log = LmdbLog(open_directory(path, readonly=readonly, seed=seed, exclusive=delayed))
        if delayed:
            from refold.store.delayed import DelayedLog  # noqa: PLC0415 - loaded only by those who ask

            log = DelayedLog(log)
    try:
        return Engine(log, clock_ns=clock_ns, random_bytes=random_bytes, memory_bytes=memory_bytes)
    except BaseException:
        log.close()
        raise
