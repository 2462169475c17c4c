"""Opening an engine over a directory or over RAM."""

from collections.abc import Callable

from refold.engine.core import Engine
from refold.engine.reading import HASH_KEY, STORE_ID_KEY, UNSWEPT_KEY
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
    witness: str | None = None,
) -> Engine:
    """Return an engine over the store at ``path``, which is created if there is none; over RAM for ``None``.

    With a ``witness``, the log has to be the one that it saw; else nothing is changed, and no store created.
    """
    log = _opened_log(path, readonly=readonly, random_bytes=random_bytes, delayed=delayed, witness=witness)
    try:
        engine = Engine(log, clock_ns=clock_ns, random_bytes=random_bytes, memory_bytes=memory_bytes)
        if witness is not None:
            engine.watch(witness)
        if log.row("meta", UNSWEPT_KEY) is not None:
            from refold.engine.erasure import sweep_again  # noqa: PLC0415 - hardly ever is there something to do

            sweep_again(engine)
    except BaseException:
        log.close()
        raise
    else:
        return engine


def _opened_log(
    path: str | None, *, readonly: bool, random_bytes: Callable[[int], bytes], delayed: bool, witness: str | None
) -> Log:
    seed = {STORE_ID_KEY: random_bytes(STORE_ID_BYTES), HASH_KEY: random_bytes(HASH_KEY_BYTES)}
    if path is None:
        from refold.store.ram import RamLog  # noqa: PLC0415 - and one on disk no log in RAM

        in_ram = RamLog()
        in_ram.write_rows([("meta", key, value) for key, value in seed.items()])
        return in_ram
    from refold.store.directory import holds_store, open_directory  # noqa: PLC0415 - a memory in RAM needs no LMDB
    from refold.store.log import LmdbLog  # noqa: PLC0415

    if witness is not None:
        from refold.engine import witnessing  # noqa: PLC0415 - loaded only by those who ask

        witnessing.prepare(witness, has_store=holds_store(path), readonly=readonly)
    log = LmdbLog(open_directory(path, readonly=readonly, seed=seed, exclusive=delayed))
    if not delayed:
        return log
    from refold.store.delayed import DelayedLog  # noqa: PLC0415 - loaded only by those who ask

    return DelayedLog(log)
