"""Verifying a store that cannot be opened: its file, and its log event by event, without an engine over it."""

from collections.abc import Callable, Iterator
from pathlib import Path

from refold.engine import beside
from refold.engine.backup import MANIFEST_FILE
from refold.engine.inspection import readable
from refold.engine.walking import Walk
from refold.errors import StoreCorrupt, StoreError
from refold.results import CACHE, DAMAGE, Finding, Report
from refold.store.directory import WRITER_LOCK, holds_store, open_directory
from refold.store.log import LmdbLog
from refold.store.mapping import DATA_FILE
from refold.store.structure import problems


def report_of(path: str, reason: StoreError, progress: Callable[[int, int], None] | None = None) -> Report:
    """Return what is wrong with a store whose opening has raised ``reason``, which comes first; it is never sound.

    States are not looked at: those are held against a log that is sound. Raises the reason where that is no damage:
    there never was a store, or it is of a newer format.
    """
    if not (isinstance(reason, StoreCorrupt) or was_store(path)):
        raise reason
    found: list[Finding] = []
    events = streams = 0
    try:
        log = LmdbLog(open_directory(path, readonly=True, seed={}))
    except StoreError:
        # It is the file itself that LMDB must not be let near.
        found += readable("file", _file_findings(path))
        if not found and not isinstance(reason, StoreCorrupt):
            raise reason from None
    else:
        try:
            walk = Walk(log, 0)
            found += log.in_stillness(lambda _: readable("chain", _log_findings(log, walk, progress or _silent)))
            events, streams = walk.head, len(walk.seen.heads)
        finally:
            log.close()
    # Where the log is sound and still cannot be opened, what is kept beside it is at fault.
    concluded = Report.of(found, events=events, streams=streams, state_hash="")
    opening = Finding("opening", 0, str(reason), concluded.fault or (CACHE if streams else DAMAGE))
    return Report.of([opening, *found], events=events, streams=streams, state_hash="")


def was_store(path: str) -> bool:
    """Return whether a store was at a path, whatever its file holds now: somebody wrote to it, or it is a backup."""
    return any(Path(path, name).exists() for name in (WRITER_LOCK, MANIFEST_FILE))


def _file_findings(path: str) -> Iterator[Finding]:
    if not holds_store(path):
        yield Finding("file", 0, f"{DATA_FILE} is gone")
        return
    for problem in problems(path):
        yield Finding("file", 0, problem)


def _log_findings(log: LmdbLog, walk: Walk, progress: Callable[[int, int], None]) -> Iterator[Finding]:
    structure = log.verify()
    if structure:
        yield from (Finding("file", 0, problem) for problem in structure)
        return
    walk.head = log.head()
    yield from walk.findings(progress)
    for check, findings, fault in beside.CHECKS:
        yield from readable(check, findings(log, walk.seen), fault)


def _silent(_done: int, _whole: int) -> None:
    """Tell nobody."""
