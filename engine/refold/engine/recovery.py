"""Recovering: a new store out of a backup, whole or as it was at an earlier seq.

A body that was erased behind the cut is gone from the records before it. So the new log ends with one more event, an
``Erased`` of those bodies, without which nothing in it would say that they were meant to go.
"""

from collections.abc import Callable
from functools import partial
from struct import error as StructError  # noqa: N812 - struct names its exception in lower case
from typing import NamedTuple

from refold.engine import history
from refold.engine.admission import Verb
from refold.engine.backup import Progress, check_manifest, checked, opened
from refold.engine.core import Engine
from refold.engine.cutting import Cutting, check_end, seeds
from refold.engine.opening import open_engine
from refold.engine.pending import ANY
from refold.engine.streams import STORE_STREAM
from refold.errors import NotFound, RefoldError, StoreCorrupt
from refold.event import Erased
from refold.limits import MEMORY_BYTES_DEFAULT
from refold.results import Recovered
from refold.store.building import building
from refold.store.directory import open_directory
from refold.store.log import LmdbLog
from refold.store.protocol import Turn


def recover(
    path: str,
    new_path: str,
    seq_of: Callable[[Engine], int] | None,
    *,
    clock_ns: Callable[[], int],
    random_bytes: Callable[[int], bytes],
    progress: Progress | None,
) -> Recovered:
    """Make a new store of a backup: all of it, or what its log holds up to the seq that ``seq_of`` says.

    Any store will do; its writers wait while it is read. Raises ``InvalidInput`` where something is at ``new_path`` or
    the seq is inside a commit, ``StoreCorrupt`` where the backup is damaged; then nothing is left at ``new_path``.
    """
    try:
        old = open_engine(
            path,
            readonly=True,
            clock_ns=clock_ns,
            random_bytes=random_bytes,
            memory_bytes=MEMORY_BYTES_DEFAULT,
            delayed=False,
        )
    except NotFound as error:
        message = f"there is no backup at {path} to recover; give the path of a backup, or of a store"
        raise NotFound(message) from error
    try:
        check_manifest(path, old)
        with building(new_path, "a recovered store", outside=path, may_be_empty=False) as made:
            if seq_of is None:
                old.log.copy(made)
                return _finished(old, made, new_path, None, progress)
            return _finished(old, made, new_path, _cut(old, made, seq_of(old)), progress)
    finally:
        old.close()


class _Cut(NamedTuple):
    """What is known of a cut: its seq, the old state hash there, and the bodies that were erased behind it."""

    seq: int
    state_hash: str
    bare: list[int]


def _cut(old: Engine, made: str, seq: int) -> _Cut:
    """Copy what the log holds up to a seq; damaged bytes fail to be read in many ways, and each is damage."""
    check_end(old.log, seq)
    try:
        return _copied(old, made, seq)
    except RefoldError:
        raise
    except (AssertionError, LookupError, StructError, TypeError, ValueError) as error:
        message = f"the backup cannot be read ({type(error).__name__}: {error}); run `refold verify` on it"
        raise StoreCorrupt(message) from error


def _copied(old: Engine, made: str, seq: int) -> _Cut:
    into = LmdbLog(open_directory(made, readonly=False, seed=seeds(old)))
    try:
        with old.exclusive():
            return old.log.in_stillness(partial(_cut_still, old, into, seq))
    finally:
        into.close()


def _cut_still(old: Engine, into: LmdbLog, seq: int, turn: Turn) -> _Cut:
    with old.state_lock:
        if turn.moved:
            old.catch_up()
        bare = Cutting(old, into, seq).cut()
        return _Cut(seq, history.state_hash(old, 0, seq), bare)


def _finished(old: Engine, made: str, path: str, cut: _Cut | None, progress: Progress | None) -> Recovered:
    """Complete a copy, verify it, and return what it is."""
    with opened(made, like=old, readonly=False) as new:
        if cut is not None and cut.bare:
            new.commit(Verb(STORE_STREAM, Erased((), tuple(cut.bare)), None, None, ANY, None))
        new.flush()
        report = checked(new, progress)
        if cut is not None and cut.state_hash != report.state_hash:
            message = (
                f"recovered to seq {cut.seq} the state hash is {report.state_hash}, and the backup's was "
                f"{cut.state_hash}; nothing was kept, run `refold verify` on the backup"
            )
            raise StoreCorrupt(message)
        seq = new.head if cut is None else cut.seq
        link, store = new.link.hex(), new.store_id.hex()
    return Recovered(path, store, seq, report.events, report.streams, report.state_hash, link)
