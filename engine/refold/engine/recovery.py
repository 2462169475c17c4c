"""Recovering: a new store out of a backup, or of any store, whole or as it was at an earlier seq.

Its log is the old one's, put in order where a faulty writer left it out of order, and whatever else it holds is made
anew from that. A body that was erased behind the end is gone from the records before it. So the new log ends with one
more event, an ``Erased`` of those bodies, without which nothing in it would say that they were meant to go.
"""

from collections.abc import Callable
from struct import error as StructError  # noqa: N812 - struct names its exception in lower case

from refold.engine import history
from refold.engine.admission import Verb
from refold.engine.backup import Progress, check_manifest, checked, opened
from refold.engine.pending import ANY
from refold.engine.rebuild import Rebuild
from refold.engine.repair import Repair, check_end, seeds
from refold.engine.streams import STORE_STREAM
from refold.engine.sweeping import swept
from refold.engine.walking import Walk
from refold.errors import NotFound, RefoldError, StoreCorrupt
from refold.event import Erased
from refold.results import DAMAGE, Recovered
from refold.store.building import building
from refold.store.directory import open_directory
from refold.store.log import LmdbLog
from refold.store.protocol import Log


def recover(
    path: str,
    new_path: str,
    seq_of: Callable[[Log], int] | None,
    *,
    clock_ns: Callable[[], int],
    random_bytes: Callable[[int], bytes],
    progress: Progress | None,
) -> Recovered:
    """Make a new store of a backup: all of it, or what its log holds up to the seq that ``seq_of`` says.

    Any store will do; its writers wait while it is read. Raises ``InvalidInput`` where something is at ``new_path`` or
    the seq is inside a commit, ``StoreCorrupt`` where bytes of the log were changed; then nothing is left at
    ``new_path``.
    """
    try:
        log = LmdbLog(open_directory(path, readonly=True, seed={}))
    except NotFound as error:
        message = f"there is no backup at {path} to recover; give the path of a backup, or of a store"
        raise NotFound(message) from error
    try:
        check_manifest(path, log)
        with building(new_path, "a recovered store", outside=path, may_be_empty=False) as made:
            seq, repair, bare = log.in_stillness(lambda _: _copied(log, made, seq_of))
            with opened(made, clock_ns=clock_ns, random_bytes=random_bytes, readonly=False) as new:
                Rebuild(new).run()
                if bare:
                    new.commit(Verb(STORE_STREAM, Erased((), tuple(bare)), None, None, ANY, None))
                report = checked(new, progress)
                hashed = history.state_hash(new, 0, None)
                if hashed != report.state_hash:
                    message = f"the caches give the state hash {hashed}, and the log {report.state_hash}; report this"
                    raise StoreCorrupt(message)
                new.flush()
                link, store = new.link.hex(), new.store_id.hex()
    finally:
        log.close()
    return Recovered(
        new_path, store, seq, report.events, report.streams, report.state_hash, link, repairs=repair.repairs()
    )


def _copied(log: LmdbLog, made: str, seq_of: Callable[[Log], int] | None) -> tuple[int, Repair, list[int]]:
    seq = log.head() if seq_of is None else seq_of(log)
    return (seq, *_repaired(log, made, seq))


def _repaired(log: LmdbLog, made: str, seq: int) -> tuple[Repair, list[int]]:
    """Write the log anew; damaged bytes fail to be read in many ways, and each is damage."""
    check_end(log, seq)
    try:
        _check_intact(log, seq)
        into = LmdbLog(open_directory(made, readonly=False, seed=seeds(log)))
        try:
            repair = Repair(log, into, seq)
            return repair, repair.run()
        finally:
            into.close()
    except RefoldError:
        raise
    except (AssertionError, LookupError, StructError, TypeError, ValueError) as error:
        message = f"the backup cannot be read ({type(error).__name__}: {error}); run `refold verify` on it"
        raise StoreCorrupt(message) from error


def _check_intact(log: Log, seq: int) -> None:
    """Raise ``StoreCorrupt`` where the bytes of the log up to a seq are not those that were written."""
    if swept(log, seq, lambda _page: None, lambda _done, _whole: None) is not None:
        return
    for finding in Walk(log, seq).findings(lambda _done, _whole: None):
        if finding.fault == DAMAGE:
            message = (
                f"the backup is damaged: {finding.check} at seq {finding.seq}: {finding.message}; run `refold verify` "
                f"on it, and recover another one, or what this one held at an earlier seq"
            )
            raise StoreCorrupt(message)
