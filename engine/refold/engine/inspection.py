"""Verification: every promise of the log checked against its bytes, and every cache against the fold."""

from collections.abc import Callable, Iterator
from functools import partial

from refold.engine import beside
from refold.engine.checkpoints import APPLIED_KEY
from refold.engine.core import Engine
from refold.engine.loader import Loader
from refold.engine.refolding import UNREADABLE, Refolding
from refold.engine.seen import Seen
from refold.engine.streams import Streams
from refold.engine.sweeping import Page, swept
from refold.engine.walking import Walk
from refold.errors import StoreError
from refold.results import CACHE, DAMAGE, WRITER, Finding
from refold.store.record import SEQ


class Inspection:
    """One pass over a log and its rows; ``findings`` says what is wrong."""

    def __init__(self, engine: Engine, replayed: Callable[[], tuple[Streams, Loader]]) -> None:
        self._engine = engine
        self._refold = partial(Refolding, engine, replayed)
        self._refolding: Refolding | None = None
        self._failure: Finding | None = None
        """What kept the log from being folded anew."""
        self._seen = Seen()

    @property
    def streams(self) -> int:
        """How many streams have events, those of all branches together."""
        return len(self._seen.heads)

    @property
    def digests(self) -> dict[int, list[tuple[str, bytes]]]:
        """Number of a stream -> the digests of its views at its last event, as folded anew."""
        return {} if self._refolding is None else self._refolding.hashed

    def findings(self, progress: Callable[[int, int], None]) -> Iterator[Finding]:
        """Return what is wrong: the file, the chain, the records, and only if those hold, rows and states."""
        broken = False
        for finding in self._file_and_log(progress):
            broken = True
            yield finding
        if not broken:
            yield from readable("replay", self._states())

    def _file_and_log(self, progress: Callable[[int, int], None]) -> Iterator[Finding]:
        log, head = self._engine.log, self._engine.head
        problems = log.verify()
        if problems:
            # LMDB would follow the pointers of a damaged file, and take the process with it.
            yield from (Finding("file", 0, problem) for problem in problems)
            return
        seen = self._swept(progress)
        if seen is None:
            walk = Walk(log, head)
            seen = walk.seen
            found = list(readable("chain", walk.findings(progress)))
            yield from found or [Finding("chain", 0, "the log is not sound, and looks sound event by event")]
        self._seen = seen
        for check, findings, fault in beside.CHECKS:
            yield from readable(check, findings(log, seen), fault)

    def _swept(self, progress: Callable[[int, int], None]) -> Seen | None:
        """Sweep the log and fold it anew on the way; ``None`` if it is not sound."""
        try:
            self._refolding = self._refold()
        except UNREADABLE as error:
            self._failure = unreadable("checkpoint", error, CACHE)
        try:
            return swept(self._engine.log, self._engine.head, self._take, progress)
        except StoreError:
            return None

    def _take(self, page: Page) -> None:
        if self._failure is not None or self._refolding is None:
            return
        try:
            self._refolding.take(page)
        except UNREADABLE as error:
            self._failure = unreadable("replay", error)

    def _states(self) -> Iterator[Finding]:
        """Return what is wrong with the caches; the log itself is sound."""
        if self._failure is not None:
            yield self._failure
            return
        assert self._refolding is not None, "nothing was folded, and nothing says why"
        yield from readable("requests", beside.requests(self._engine.log, self._seen))
        yield from readable("order", self._inherited(self._refolding))
        yield from readable("checkpoint", self._applied(), CACHE)
        yield from self._refolding.finish(self._seen.heads)

    def _inherited(self, refolding: Refolding) -> Iterator[Finding]:
        """Check that each stream of a branch goes on from the last event that it inherited."""
        for number, (seq, version, last) in self._seen.begins.items():
            streams, loader = refolding.zero
            base = streams.at_number(number).base
            inherited = (loader.recorded([base[1]])[0].stamp.version, base[1]) if base else (0, 0)
            if (version, last) != inherited:
                found = f"goes on from version {version} at seq {last}, and inherited version {inherited[0]}"
                yield Finding("order", seq, f"stream {number} {found} at seq {inherited[1]}", WRITER)

    def _applied(self) -> Iterator[Finding]:
        """Check that what says how far the checkpoint rows reach does not reach behind the head."""
        row = self._engine.log.row("checkpoints", APPLIED_KEY)
        applied = SEQ.unpack(row)[0] if row is not None else 0
        if applied > self._engine.head:
            said = f"checkpoint rows are said to reach up to seq {applied}, and the log ends at {self._engine.head}"
            yield Finding("checkpoint", self._engine.head, said, CACHE)


def readable(check: str, findings: Iterator[Finding], fault: str = DAMAGE) -> Iterator[Finding]:
    """Return the findings; damaged bytes fail to be read in many ways, and each of them is a finding too."""
    try:
        yield from findings
    except UNREADABLE as error:
        yield unreadable(check, error, fault)


def unreadable(check: str, error: Exception, fault: str = DAMAGE) -> Finding:
    """Return what reading damaged bytes has raised as a finding."""
    return Finding(check, 0, f"what is stored cannot be read: {type(error).__name__}: {error}", fault)
