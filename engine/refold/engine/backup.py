"""Backups: a whole store copied while others write to it, verified, and put in place with a manifest beside its file.

A backup is a store. Its manifest says what it was when it was made, so that ``recover`` sees whether it still is.
"""

import hashlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from refold.engine import history
from refold.engine.core import Engine
from refold.engine.opening import open_engine
from refold.engine.reading import STORE_ID_KEY
from refold.errors import StoreCorrupt, StoreVersion
from refold.limits import MEMORY_BYTES_DEFAULT
from refold.results import Backup, Report
from refold.store.protocol import Log
from refold.store.record import COMMIT, CommitRow

Progress = Callable[[int, int], None]

MANIFEST_FILE: Final = "backup.json"
_FORMAT: Final = 1


class Manifest(msgspec.Struct, frozen=True):
    """What a backup was when it was made; the hash is that of the main line, the forks are in the data."""

    format: int
    store: str
    head: int
    streams: int
    time_ns: int
    state_hash: str
    link: str
    data_bytes: int
    sha256: str


def backup(engine: Engine, path: str, store_path: str, progress: Progress | None) -> Backup:
    """Copy the store, verify the copy, and put it at a path where nothing is; what was acknowledged is in it.

    Raises ``StoreCorrupt`` where the copy is damaged; then, as after any error, nothing is left at the path.
    """
    from refold.store.building import building  # noqa: PLC0415 - a memory in RAM needs no disk

    engine.check_open()
    time_ns = engine.now_ns()
    with building(path, "a backup", outside=store_path, may_be_empty=True) as made:
        engine.log.copy(made)
        manifest = _vetted(engine, made, time_ns, progress)
        Path(made, MANIFEST_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    return Backup(path, **{field: getattr(manifest, field) for field in Backup.__struct_fields__[1:]})


def _vetted(engine: Engine, made: str, time_ns: int, progress: Progress | None) -> Manifest:
    """Return the manifest of a copy that was verified, and leave nothing but its data beside it."""
    from refold.store.mapping import DATA_FILE  # noqa: PLC0415 - as above

    try:
        with opened(made, clock_ns=engine.clock_ns, random_bytes=engine.random_bytes, readonly=True) as copy:
            report = checked(copy, progress)
            store, link = copy.store_id.hex(), copy.link.hex()
    except StoreVersion as error:
        message = f"the copy cannot be opened ({error}); run `refold verify` on the store that was to be backed up"
        raise StoreCorrupt(message) from error
    for beside in set(Path(made).iterdir()) - {Path(made, DATA_FILE)}:
        beside.unlink()
    with Path(made, DATA_FILE).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        data_bytes = file.tell()
    return Manifest(_FORMAT, store, report.events, report.streams, time_ns, report.state_hash, link, data_bytes, digest)


@contextmanager
def opened(
    path: str, *, clock_ns: Callable[[], int], random_bytes: Callable[[int], bytes], readonly: bool
) -> Generator[Engine]:
    """Open the store at a path for the block."""
    engine = open_engine(
        path,
        readonly=readonly,
        clock_ns=clock_ns,
        random_bytes=random_bytes,
        memory_bytes=MEMORY_BYTES_DEFAULT,
        delayed=False,
    )
    try:
        yield engine
    finally:
        engine.close()


def checked(copy: Engine, progress: Progress | None) -> Report:
    """Return what ``verify`` says of a copy; ``StoreCorrupt`` if that is not that all is well."""
    report = history.verify(copy, 0, progress)
    if not report.ok:
        first = report.findings[0]
        more = f" and {len(report.findings) - 1} findings more" if len(report.findings) > 1 else ""
        message = (
            f"the copy is damaged: {first.check} at seq {first.seq}: {first.message}{more}; it was removed, "
            f"run `refold verify` on the store that it was made of, and recover an earlier backup"
        )
        raise StoreCorrupt(message)
    return report


def check_manifest(path: str, log: Log) -> None:
    """Raise ``StoreCorrupt`` if there is a manifest at a path, and what the store there holds is not what it says.

    A backup may have been written to since: then its log goes on from the one that was backed up.
    """
    try:
        manifest = msgspec.json.decode(Path(path, MANIFEST_FILE).read_bytes(), type=Manifest)
    except FileNotFoundError:
        return
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"{MANIFEST_FILE} in {path} cannot be read ({error}); take another backup"
        raise StoreCorrupt(message) from error
    row = log.commit_at(manifest.head) if manifest.head else None
    commit = CommitRow._make(COMMIT.unpack(row)) if row else None
    is_there = commit.next_seq == manifest.head + 1 and commit.link.hex() == manifest.link if commit else False
    if (log.row("meta", STORE_ID_KEY) or b"").hex() != manifest.store or not (is_there or not manifest.head):
        message = (
            f"{path} does not hold the log that its {MANIFEST_FILE} speaks of, that of store {manifest.store} up to "
            f"seq {manifest.head} with the link {manifest.link}; take another backup"
        )
        raise StoreCorrupt(message)
