"""Backing a memory up, and recovering one: what callers ask, checked."""

import datetime as dates
import os
import time
from collections.abc import Callable
from functools import partial

from refold import checks
from refold.engine.backup import backup as make_backup
from refold.engine.batch import refuse
from refold.memory.arguments import check_doors, checked_path
from refold.memory.door import Door
from refold.memory.moments import seq_in
from refold.results import Backup, Recovered
from refold.store.protocol import Log


def backup(door: Door, path: object, progress: Callable[[int, int], None] | None) -> Backup:
    """Copy the store that a memory stands on, forks included, to a path where nothing is."""
    door.engine.check_open()
    refuse(door.engine, "a backup")
    checked = checked_path(path)
    if door.path is None:
        checks.invalid("a memory in RAM has no file to back up; export(path) writes its log, load takes it back in")
    return make_backup(door.engine, checked, door.path, progress)


def recover(
    backup: "str | os.PathLike[str]",
    new: "str | os.PathLike[str]",
    *,
    to: "int | dates.datetime | None" = None,
    progress: Callable[[int, int], None] | None = None,
    clock_ns: Callable[[], int] = time.time_ns,  # noqa: TID251 - the one door for time
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> Recovered:
    """Make a new store of a backup, or of any store: all of it, or what it held at a seq or an aware datetime.

    The new one holds exactly the log up to there, and goes on from there; nothing of what came later is in its file.
    What the log gives is made anew from it. Where a faulty writer counted or linked wrongly, every event stands once,
    in the order of the log, and ``repairs`` says what is other than before. It is verified, by ``progress(done, all)``,
    before it appears at ``new``, where nothing may be. Raises ``InvalidInput`` for a seq inside a commit, naming those
    around it, ``NotFound`` where there is no backup, ``StoreCorrupt`` where bytes were changed, ``StoreFull``; then
    nothing is left at ``new``.
    """
    from refold.engine.recovery import recover as make_store  # noqa: PLC0415 - it needs LMDB, which a handle may not

    check_doors(clock_ns=clock_ns, random_bytes=random_bytes)
    return make_store(
        checked_path(backup),
        checked_path(new),
        None if to is None else partial(_seq_of, to),
        clock_ns=clock_ns,
        random_bytes=random_bytes,
        progress=progress,
    )


def _seq_of(to: "int | dates.datetime", log: Log) -> int:
    """Return the seq that a caller means; a time at which there was nothing yet is refused."""
    head = log.head()
    seq = seq_in(log, head, to, head)
    if not seq and isinstance(to, dates.datetime):
        checks.invalid(f"nothing had been written by {to}; give a later time, or a seq from 0 to {head}")
    return seq
