"""Verifying a store that cannot be opened: its file, and its log event by event, without an engine over it."""

from collections.abc import Callable, Iterator

from refold.engine.inspection import readable
from refold.engine.walking import Walk
from refold.errors import StoreCorrupt, StoreError
from refold.results import Finding, Report
from refold.store.directory import open_directory
from refold.store.log import LmdbLog
from refold.store.structure import problems


def report_of(path: str, reason: StoreCorrupt, progress: Callable[[int, int], None] | None = None) -> Report:
    """Return what is wrong with a store whose opening has raised ``reason``, which comes first; it is never sound.

    Rows beside the log and states are not looked at: those are held against a log that is sound.
    """
    findings = [Finding("opening", 0, str(reason))]
    events = streams = 0
    try:
        log = LmdbLog(open_directory(path, readonly=True, seed={}))
    except StoreError:
        # It is the file itself that LMDB must not be let near.
        findings += readable("file", (Finding("file", 0, problem) for problem in problems(path)))
        return _report(findings, events, streams)
    try:
        walk = Walk(log, 0)
        findings += log.in_stillness(lambda _: readable("chain", _log_findings(log, walk, progress or _silent)))
        events, streams = walk.head, len(walk.seen.heads)
    finally:
        log.close()
    return _report(findings, events, streams)


def _log_findings(log: LmdbLog, walk: Walk, progress: Callable[[int, int], None]) -> Iterator[Finding]:
    structure = log.verify()
    if structure:
        yield from (Finding("file", 0, problem) for problem in structure)
        return
    walk.head = log.head()
    yield from walk.findings(progress)


def _silent(_done: int, _whole: int) -> None:
    """Tell nobody."""


def _report(findings: list[Finding], events: int, streams: int) -> Report:
    bad = min((finding.seq for finding in findings if finding.seq), default=0)
    return Report(ok=False, findings=tuple(findings), events=events, streams=streams, state_hash="", first_bad_seq=bad)
