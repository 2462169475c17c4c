"""Backups: copying a whole store while it is written to, verifying the copy, and recovering it, whole or up to a seq.

A backup is a store. Its manifest describes the store as it was when the backup was made, so that ``recover`` and
``verify`` can check that it still holds that log.
"""

import hashlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from struct import error as StructError  # noqa: N812 - struct names its exception in lower case

import msgspec

from refold.engine import history, verify
from refold.engine.engine import Engine, open_engine
from refold.engine.manifest import MANIFEST_FILE, MANIFEST_FORMAT, Manifest, check_manifest
from refold.engine.repair import Rebuild, Repair, check_end, seeds
from refold.engine.streams import STORE_STREAM
from refold.engine.transaction import Mutation
from refold.engine.walk import Walk
from refold.errors import NotFound, RefoldError, StoreCorrupt, StoreVersion
from refold.event import Erased
from refold.limits import MEMORY_BYTES_DEFAULT
from refold.log.directory import directory_at
from refold.log.disk import build_directory
from refold.log.lmdb_log import LmdbLog
from refold.log.protocol import Log
from refold.results import DAMAGE, Backup, Recovered, Report

Progress = Callable[[int, int], None]


def backup(engine: Engine, path: str, store_path: str, progress: Progress | None) -> Backup:
    """Copy the store to an unused path, with everything that was acknowledged, and verify the copy.

    Raises ``StoreCorrupt`` if the copy is damaged. After that or any other error, nothing is left at the path.
    """
    engine.reader.check_open()
    time_ns = engine.reader.now_ns()
    with build_directory(path, "a backup", outside=store_path, may_be_empty=True) as made:
        log = engine.reader.log
        head = log.head()
        if log.durability.durable_until(head) < head:
            log.durability.flush()  # Into the file that is about to be copied.
        log.files.copy(made)
        manifest = _make_manifest(engine, made, time_ns, progress)
        written = Path(made, MANIFEST_FILE)
        written.touch(0o600)
        written.write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    return Backup(path, **{field: getattr(manifest, field) for field in Backup.__struct_fields__[1:]})


def _make_manifest(engine: Engine, made: str, time_ns: int, progress: Progress | None) -> Manifest:
    """Verify a copy, delete everything except its data file, and return its manifest."""
    from refold.log.lmdb_file import DATA_FILE  # noqa: PLC0415 - used only here

    try:
        with open_store(
            made, clock_ns=engine.reader.clock_ns, random_bytes=engine.reader.random_bytes, readonly=True
        ) as copy:
            report = check_copy(copy, progress)
            store, link = copy.reader.store_id.hex(), copy.reader.link.hex()
    except StoreVersion as error:
        raise StoreCorrupt(
            f"the copy cannot be opened ({error}); run `refold verify` on the store that was to be backed up"
        ) from error
    for beside in set(Path(made).iterdir()) - {Path(made, DATA_FILE)}:
        beside.unlink()
    with Path(made, DATA_FILE).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        data_bytes = file.tell()
    return Manifest(
        MANIFEST_FORMAT, store, report.events, report.streams, time_ns, report.state_hash, link, data_bytes, digest
    )


@contextmanager
def open_store(
    path: str,
    *,
    clock_ns: Callable[[], int],
    random_bytes: Callable[[int], bytes],
    readonly: bool,
    cache: str | None = None,
) -> Generator[Engine]:
    """Open the store at a path for the block, or the log at an address with its local copy in ``cache``."""
    engine = open_engine(
        path,
        readonly=readonly,
        clock_ns=clock_ns,
        random_bytes=random_bytes,
        memory_bytes=MEMORY_BYTES_DEFAULT,
        delayed=False,
        cache=cache,
    )
    try:
        yield engine
    finally:
        engine.close()


def check_copy(copy: Engine, progress: Progress | None) -> Report:
    """Verify a copy and return the report; raise ``StoreCorrupt`` if there are findings."""
    report = verify.verify(copy, 0, progress)
    if not report.ok:
        first = report.findings[0]
        more = f" and {len(report.findings) - 1} findings more" if len(report.findings) > 1 else ""
        raise StoreCorrupt(
            f"the copy is damaged: {first.check} at seq {first.seq}: {first.message}{more}; it was removed, "
            f"run `refold verify` on the store that it was made of, and recover an earlier backup"
        )
    return report


# Recovery: a new store built from a backup, or from any store, whole or as it was at an earlier seq.
#
# The new log is the old one, repaired where a faulty writer left it out of order; everything else in the store is
# rebuilt from it. If an event after the end erased a body, the records before the end no longer hold that body. The new
# log then ends with one more event, an ``Erased`` for such bodies; without it, nothing in the log would say that they
# were removed on purpose.


def recover(
    path: str,
    new_path: str,
    seq_of: Callable[[Log], int] | None,
    *,
    clock_ns: Callable[[], int],
    random_bytes: Callable[[int], bytes],
    progress: Progress | None,
) -> Recovered:
    """Build a new store from a backup, whole or with the events up to the seq that ``seq_of`` returns.

    The source can be any store, and its writers can go on. Raises ``InvalidInput`` if there is something at
    ``new_path`` or the seq is inside a command, and ``StoreCorrupt`` if bytes of the log were changed; nothing is then
    left at ``new_path``.
    """
    try:
        log = LmdbLog(directory_at(path, readonly=True, seed={}))
    except NotFound as error:
        raise NotFound(f"there is no backup at {path} to recover; give the path of a backup, or of a store") from error
    try:
        check_manifest(path, log)
        with build_directory(new_path, "a recovered store", outside=path, may_be_empty=False) as made:
            seq, repair, erased = log.in_snapshot(lambda: _copy_log(log, made, seq_of))
            with open_store(made, clock_ns=clock_ns, random_bytes=random_bytes, readonly=False) as new:
                Rebuild(new).run()
                if erased is not None:
                    new.writer.submit(Mutation(STORE_STREAM, erased))
                report = check_copy(new, progress)
                hashed = history.state_hash(new, 0, None)
                if hashed != report.state_hash:
                    raise StoreCorrupt(
                        f"the caches give the state hash {hashed}, and the log {report.state_hash}; report this"
                    )
                new.flush()
                link, store = new.reader.link.hex(), new.reader.store_id.hex()
    finally:
        log.close()
    return Recovered(
        new_path, store, seq, report.events, report.streams, report.state_hash, link, repairs=repair.repairs()
    )


def _copy_log(log: LmdbLog, made: str, seq_of: Callable[[Log], int] | None) -> tuple[int, Repair, Erased | None]:
    seq = log.head() if seq_of is None else seq_of(log)
    return (seq, *_repair_log(log, made, seq))


def _repair_log(log: LmdbLog, made: str, seq: int) -> tuple[Repair, Erased | None]:
    """Write the repaired log; raise ``StoreCorrupt`` for every error that reading damaged bytes can raise."""
    check_end(log, seq)
    try:
        _check_intact(log, seq)
        into = LmdbLog(directory_at(made, readonly=False, seed=seeds(log)))
        try:
            repair = Repair(log, into, seq)
            return repair, repair.run()
        finally:
            into.close()
    except RefoldError:
        raise
    except (AssertionError, LookupError, StructError, TypeError, ValueError) as error:
        raise StoreCorrupt(
            f"the backup cannot be read ({type(error).__name__}: {error}); run `refold verify` on it"
        ) from error


def _check_intact(log: Log, seq: int) -> None:
    """Raise ``StoreCorrupt`` unless the bytes of the log up to a seq are those that were written."""
    for finding in Walk(log, seq, None).findings(lambda _done, _whole: None):
        # The proof of a record with erased bodies may come after the seq; the repair checks that.
        if finding.fault == DAMAGE and finding.check != "erasure":
            raise StoreCorrupt(
                f"the backup is damaged: {finding.check} at seq {finding.seq}: {finding.message}; run `refold verify` "
                f"on it, and recover another one, or what this one held at an earlier seq"
            )
