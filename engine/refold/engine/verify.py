"""Verification: every guarantee of the log checked against its bytes, and every cache against the fold."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import msgspec

from refold import fold
from refold.engine import history, vectors
from refold.engine.engine import Engine
from refold.engine.fold_check import UNREADABLE, FoldCheck
from refold.engine.loader import Loader
from refold.engine.manifest import MANIFEST_FILE, check_manifest
from refold.engine.packed import KNOWN_PREFIX, packed_rows_key
from refold.engine.reader import HASH_KEY, STORE_ID_KEY, TAGS_KEY, answer_of
from refold.engine.streams import (
    NEXT_NUMBER_KEY,
    Streams,
    covered_seq,
    key_of,
    number_key,
    number_of,
    parse_name_key,
    parse_stream_row,
)
from refold.engine.walk import Page, Walk, WalkState
from refold.errors import StoreCorrupt, StoreError
from refold.limits import (
    GRAPHS_READ_COUNT,
    HASH_KEY_BYTES,
    KEYED_HASH_BYTES,
    KNOWN_EVENTS_COUNT,
    PAGE_EVENTS,
    STORE_ID_BYTES,
)
from refold.log.directory import WRITER_LOCK, directory_at, holds_store
from refold.log.lmdb_file import DATA_FILE, problems
from refold.log.lmdb_log import LmdbLog
from refold.log.protocol import Log, scan
from refold.log.record import SEQ
from refold.results import CACHE, DAMAGE, WRITER, Finding, Report

# The rows beside the log, compared with what a walk over it has seen: names, erasures, sources, requests, meta.

_REQUEST_BYTES: Final = KEYED_HASH_BYTES + 2 * SEQ.size
_SIZES: Final = ((STORE_ID_KEY, STORE_ID_BYTES), (HASH_KEY, HASH_KEY_BYTES))
_TAGS: Final = msgspec.msgpack.Decoder(list[int])


def check_names(log: Log, seen: WalkState) -> Iterator[Finding]:
    """Check that every stream has one number and every number one name."""
    numbers = {
        parse_name_key(key): int.from_bytes(number, "big") for key, number in scan(log, "names", b"", PAGE_EVENTS)
    }
    given = Counter(numbers.values())
    named: dict[int, str] = {}
    for key, packed in scan(log, "streams", b"", PAGE_EVENTS):
        number = int.from_bytes(key, "big")
        try:
            name, branch = parse_stream_row(packed)
        except StoreCorrupt as error:
            yield Finding("names", 0, str(error), CACHE if number in given else DAMAGE)
            continue
        named[number] = key_of(branch, name)
        if number in seen.heads and seen.heads[number].branch != branch:
            problem = f"stream number {number} is of branch {branch}, its events are of another"
            yield Finding("names", 0, problem, WRITER if given[number] > 1 else DAMAGE)
    for number in sorted(seen.heads.keys() - named.keys()):
        problem = f"stream number {number} has events and no name"
        yield Finding("names", seen.heads[number].seq, problem, CACHE if number in given else DAMAGE)
    for number in sorted(named.keys() - seen.heads.keys()):
        yield Finding("names", 0, f"stream number {number} is named {named[number]!r}, and has no event", CACHE)
    for number, name in sorted(named.items()):
        if numbers.pop(name, None) != number:
            problem = f"stream number {number} is named {name!r}, which is that of another number"
            yield Finding("names", 0, problem, CACHE)
    for name, number in sorted(numbers.items()):
        yield Finding("names", 0, f"{name!r} has stream number {number}, which has another name", CACHE)
    following = int.from_bytes(log.row("meta", NEXT_NUMBER_KEY) or b"", "big")
    if named and following <= max(named):
        yield Finding("names", 0, f"the next stream would get the number {following} again", CACHE)


def check_erasures(_: Log, seen: WalkState) -> Iterator[Finding]:
    """Check that the missing bodies are exactly those that events name as erased."""
    for seq in sorted(seen.marked - seen.erased):
        yield Finding("erasure", seq, "the body is gone, and no event says that it was erased")
    for seq in sorted(seen.erased - seen.marked):
        yield Finding("erasure", seq, "an event says that the body was erased, and it is still there")


def check_derived(log: Log, seen: WalkState) -> Iterator[Finding]:
    """Check that the index of sources matches the events."""
    stored = {key for key, _ in scan(log, "derived", b"", PAGE_EVENTS)}
    for key in sorted(stored ^ seen.derived):
        source, seq = SEQ.unpack(key[:8])[0], SEQ.unpack(key[8:])[0]
        problem = f"the index row from source {source} is missing or of no event"
        yield Finding("derived", seq, problem, CACHE)


def check_requests(log: Log, seen: WalkState) -> Iterator[Finding]:
    """Check that each answered request names events of one command, or none."""
    head = len(seen.commands)
    for key, row in scan(log, "requests", b"", PAGE_EVENTS):
        if len(row) != _REQUEST_BYTES or len(key) != KEYED_HASH_BYTES:
            yield Finding("requests", 0, f"the request row {key.hex()} has {len(key)} and {len(row)} bytes")
            continue
        first, last = answer_of(row)
        problem = f"the request row {key.hex()} is answered by seqs {first} to {last}"
        if not first:
            if last > head:
                problem = f"the request row {key.hex()} says that nothing changed at seq {last}"
                yield Finding("requests", head, f"{problem}, and the log goes from 1 to {head}")
        elif not 0 < first <= last <= head:
            yield Finding("requests", min(first, head), f"{problem}, and the log goes from 1 to {head}")
        elif seen.commands[first - 1] != seen.commands[last - 1]:
            yield Finding("requests", first, f"{problem}, which are of several commands")


def check_meta(log: Log, seen: WalkState) -> Iterator[Finding]:
    """Check the store's own data: its id, the key of its hashes, and the tags that an older program must know."""
    for key, size in _SIZES:
        found = log.row("meta", key)
        if found is None or len(found) != size:
            held = "nothing" if found is None else f"{len(found)} bytes"
            yield Finding("meta", 0, f"the row {key.decode()} holds {held}, and should hold {size} bytes")
    tags = set(_TAGS.decode(log.row("meta", TAGS_KEY) or b"\x90"))
    for tag in sorted(seen.tags ^ tags):
        here, there = ("log", "list of tags") if tag in seen.tags else ("list of tags", "log")
        yield Finding("meta", 0, f"tag {tag} is in the {here}, and not in the {there}", CACHE)


def check_graphs(log: Log, seen: WalkState) -> Iterator[Finding]:
    """Check that each stored graph or block of packed rows is intact and belongs to a stream that has events."""
    for key, blob in scan(log, "graphs", b"", GRAPHS_READ_COUNT):
        from refold.index import hnsw, packed  # noqa: PLC0415 - they load numpy, needed only with a graph

        if key.startswith(KNOWN_PREFIX):
            yield from _check_terms(key, blob, seen)
            continue
        number = number_of(key)
        is_graph = key == number_key(number)
        what, is_intact = ("graph", hnsw.is_intact) if is_graph else ("block of packed rows", packed.is_intact)
        if number not in seen.heads or (not is_graph and key != packed_rows_key(number)):
            yield Finding("graphs", 0, f"a {what} is stored for stream number {number}, which has no event", CACHE)
        elif not is_intact(blob):
            yield Finding("graphs", seen.heads[number].seq, f"the {what} of stream number {number} is damaged", CACHE)
        elif not is_graph and packed.unpack(blob).values.get("seq", 0) > seen.heads[number].seq:
            yield Finding("graphs", seen.heads[number].seq, f"the {what} of stream number {number} is beyond it", CACHE)


def _check_terms(key: bytes, blob: bytes, seen: WalkState) -> Iterator[Finding]:
    """Check that a row with the terms of messages is intact, and covers only events that exist and are not erased."""
    from refold.index import packed  # noqa: PLC0415 - as above

    head, first = len(seen.commands), int.from_bytes(key[len(KNOWN_PREFIX) :], "big") * KNOWN_EVENTS_COUNT + 1
    last, problem = min(first + KNOWN_EVENTS_COUNT - 1, head), ""
    if not packed.is_intact(blob):
        problem = "are damaged"
    else:
        for seq in packed.unpack(blob).arrays["seqs"].tolist():
            if seq in seen.marked:
                problem = f"have those of seq {seq}, which is erased"
            elif not first <= seq <= last:
                problem = f"have those of seq {seq}"
    if problem:
        yield Finding("graphs", min(first, head), f"the terms of messages of seqs {first} to {last} {problem}", CACHE)


def check_vectors(log: Log, seen: WalkState) -> Iterator[Finding]:
    """Check that each stored vector is intact and belongs to an event that has a body."""
    head = len(seen.commands)
    for key, value in scan(log, "vectors", b"", PAGE_EVENTS):
        seq = int.from_bytes(key[: SEQ.size], "big")
        if not 0 < seq <= head or seq in seen.marked:
            problem = "erased" if seq in seen.marked else f"not there: the log goes from 1 to {head}"
            yield Finding("vectors", min(seq, head), f"a vector is stored for seq {seq}, which is {problem}", CACHE)
        elif vectors.unpack_row(key, value) is None:
            yield Finding("vectors", seq, "the vector of the message is damaged", CACHE)


ROW_CHECKS: Final = (
    ("names", check_names, DAMAGE),
    ("erasure", check_erasures, DAMAGE),
    ("derived", check_derived, CACHE),
    ("meta", check_meta, CACHE),
    ("graphs", check_graphs, CACHE),
    ("vectors", check_vectors, CACHE),
)
"""The checks for any log, each with the name and the fault of the finding for a row that cannot be read."""


# Verification: every guarantee of the log checked against its bytes, and every cache against the fold.


class Inspection:
    """One walk over a log and its rows; ``findings`` yields the problems.

    With several ``jobs``, that many processes first check a part each; only a single process reports problems.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._fold_check: FoldCheck | None = None
        self._failure: Finding | None = None
        """The error that kept the log from being folded anew."""
        self._seen = WalkState()
        self.digests: dict[int, list[tuple[str, bytes]]] = {}
        """Number of a stream -> the digests of its views at its last event, as folded anew."""

    @cached_property
    def _zero(self) -> tuple[Streams, Loader]:
        """Streams and loader that read the log without checkpoint rows."""
        return history.from_zero(self._engine, self._engine.reader.head)

    @property
    def streams(self) -> int:
        """Number of streams that have events, over all branches."""
        return len(self._seen.heads)

    def findings(self, progress: Callable[[int, int], None], jobs: int) -> Iterator[Finding]:
        """Yield the flaws of the file, the records and most rows; if there are none, those of requests and states."""
        if jobs > 1 and self._is_sound_in_parts(progress, jobs):
            return
        broken = False
        for finding in self._file_and_log(progress):
            broken = True
            yield finding
        if not broken:
            yield from guard_findings("replay", self._states())

    def _is_sound_in_parts(self, progress: Callable[[int, int], None], jobs: int) -> bool:
        reader = self._engine.reader
        if not isinstance(reader.log, LmdbLog) or reader.log.files.verify():
            return False  # No other process can open it, or should.
        from refold.engine import workers  # noqa: PLC0415 - loaded only for several jobs

        found = workers.run_workers(self._engine, reader.log.files.path, jobs, progress)
        if found is None:
            return False
        self._seen = found.seen
        self.digests = {number: folded.digests for number, folded in found.folded.items()}
        for number, head in self._seen.heads.items():
            live, folded = reader.streams.at_number(number), found.folded.get(number)
            if folded is None or not folded.head == head[1:3] == (live.version, live.seq):
                return False
            if live.state is not None and fold.digests(live.state) != folded.digests:
                return False
        return not any(self._check_rows()) and not any(self._cross_checks())

    def _file_and_log(self, progress: Callable[[int, int], None]) -> Iterator[Finding]:
        log, head = self._engine.reader.log, self._engine.reader.head
        problems = log.files.verify()
        if problems:
            # LMDB would follow the pointers of a damaged file and crash the process.
            yield from (Finding("file", 0, problem) for problem in problems)
            return
        try:
            self._fold_check = FoldCheck(self._engine, lambda: self._zero)
            self.digests = self._fold_check.hashed
        except UNREADABLE as error:
            self._failure = unreadable_finding("checkpoint", error, CACHE)
        walk = Walk(log, head, self._take)
        self._seen = walk.seen
        yield from guard_findings("chain", walk.findings(progress))
        yield from self._check_rows()

    def _check_rows(self) -> Iterator[Finding]:
        log = self._engine.reader.log
        for check, findings, fault in ROW_CHECKS:
            yield from guard_findings(check, findings(log, self._seen), fault)
        yield from guard_findings("backup", _manifest_findings(log))

    def _take(self, page: Page) -> None:
        if self._failure is not None or self._fold_check is None:
            return
        try:
            self._fold_check.take(page)
        except UNREADABLE as error:
            self._failure = unreadable_finding("replay", error)

    def _states(self) -> Iterator[Finding]:
        """Yield the flaws of the caches; the log itself is sound."""
        if self._failure is not None:
            yield self._failure
            return
        assert self._fold_check is not None, "nothing was folded, and nothing says why"
        yield from self._cross_checks()
        yield from self._fold_check.finish({number: head[1:3] for number, head in self._seen.heads.items()})

    def _cross_checks(self) -> Iterator[Finding]:
        """Yield the flaws in the links between a sound log and its rows, and between its streams."""
        yield from guard_findings("requests", check_requests(self._engine.reader.log, self._seen))
        yield from guard_findings("order", self._check_inheritance())
        yield from guard_findings("checkpoint", self._check_reach(), CACHE)

    def _check_inheritance(self) -> Iterator[Finding]:
        """Check that each stream of a branch continues from the last event that it inherited."""
        for number, (seq, version, last) in self._seen.begins.items():
            streams, loader = self._zero
            base = streams.at_number(number).base
            inherited = (loader.recorded_events([base[1]])[0].stamp.version, base[1]) if base else (0, 0)
            if (version, last) != inherited:
                found = f"goes on from version {version} at seq {last}, and inherited version {inherited[0]}"
                yield Finding("order", seq, f"stream {number} {found} at seq {inherited[1]}", WRITER)

    def _check_reach(self) -> Iterator[Finding]:
        """Check that the recorded reach of the checkpoint rows does not exceed the head."""
        applied = covered_seq(self._engine.reader.log)
        if applied > self._engine.reader.head:
            problem = (
                f"checkpoint rows are said to reach up to seq {applied}, and the log ends at {self._engine.reader.head}"
            )
            yield Finding("checkpoint", self._engine.reader.head, problem, CACHE)


def guard_findings(check: str, findings: Iterator[Finding], fault: str = DAMAGE) -> Iterator[Finding]:
    """Yield the findings, and turn any error of reading damaged bytes into a finding too."""
    try:
        yield from findings
    except UNREADABLE as error:
        yield unreadable_finding(check, error, fault)


def unreadable_finding(check: str, error: Exception, fault: str = DAMAGE) -> Finding:
    """Return a finding for an error that reading damaged bytes has raised."""
    return Finding(check, 0, f"what is stored cannot be read: {type(error).__name__}: {error}", fault)


def _manifest_findings(log: Log) -> Iterator[Finding]:
    """Check that a backup holds the log that it was made of."""
    if log.files.directory is not None:
        try:
            check_manifest(log.files.directory, log)
        except StoreCorrupt as error:
            yield Finding("backup", 0, str(error))


def verify(
    engine: Engine,
    branch: int,
    progress: Callable[[int, int], None] | None = None,
    witness: str | None = None,
    jobs: int = 1,
) -> Report:
    """Check the log, its rows and the live states, and return the report; writers of this process wait meanwhile.

    All branches are checked, whichever branch's hash is in the report. The log is compared with the ``witness``, or
    else with the engine's own. ``jobs`` is the number of processes that check it; the report does not depend on it.
    """
    with engine.exclusive(), engine.reader.state_lock:
        engine.reader.check_open()
        return engine.reader.log.in_snapshot(
            partial(_verify_snapshot, engine, branch, progress or _ignore_progress, witness, jobs)
        )


def _verify_snapshot(
    engine: Engine, branch: int, progress: Callable[[int, int], None], witness: str | None, jobs: int
) -> Report:
    engine.reader.notice()
    inspection = Inspection(engine)
    findings = (*_compare_witness(engine, witness), *inspection.findings(_monotonic_progress(progress), jobs))
    hashed = "" if findings else _state_hash(engine, branch, inspection.digests)
    return Report.of(findings, events=engine.reader.head, streams=inspection.streams, state_hash=hashed)


def _state_hash(engine: Engine, branch: int, digests: Mapping[int, list[tuple[str, bytes]]]) -> str:
    """Return a branch's state hash from the folded streams, or for a fork, which inherits some, from its states."""
    if branch:
        return history.state_hash(engine, branch, None)
    streams = engine.reader.streams
    return history.hash_of(
        (streams.name_of(number), digests[number]) for number in digests if not streams.branch_of(number)
    )


def _compare_witness(engine: Engine, path: str | None) -> Sequence[Finding]:
    """Compare the log with a witness, the given one or the engine's own, and return the findings."""
    if path is None and engine.witness is not None:
        path = engine.witness.path
    if path is None:
        return ()
    from refold.engine import witness  # noqa: PLC0415 - loaded only with a witness

    return witness.findings(engine.reader, path)


def report_of(path: str, reason: StoreError, progress: Callable[[int, int], None] | None = None) -> Report:
    """Return the report on a store whose opening raised ``reason``, the first finding; it is never sound.

    States are not checked, because only a sound log can vouch for them. Raises ``reason`` if it is not damage: there
    never was a store, it has a newer format, or its file is not readable.
    """
    is_forbidden = holds_store(path) and not os.access(Path(path, DATA_FILE), os.R_OK)
    if is_forbidden or not (isinstance(reason, StoreCorrupt) or has_store_traces(path)):
        raise reason
    found: list[Finding] = []
    events = streams = 0
    try:
        log = LmdbLog(directory_at(path, readonly=True, seed={}))
    except StoreError:
        # The file itself is damaged, and LMDB must not open it.
        found += guard_findings("file", _file_findings(path))
        if not found and not isinstance(reason, StoreCorrupt):
            raise reason from None
    else:
        try:
            walk = Walk(log, 0, None)
            found += log.in_snapshot(
                lambda: list(guard_findings("chain", _log_findings(log, walk, progress or _ignore_progress)))
            )
            events, streams = walk.head, len(walk.seen.heads)
        finally:
            log.close()
    # If the log is sound but cannot be opened, the rows beside it are at fault.
    concluded = Report.of(found, events=events, streams=streams, state_hash="")
    opening = Finding("opening", 0, str(reason), concluded.fault or (CACHE if streams else DAMAGE))
    return Report.of([opening, *found], events=events, streams=streams, state_hash="")


def has_store_traces(path: str) -> bool:
    """Return whether there was a store at a path, whatever its file holds now: it was written to, or is a backup."""
    with suppress(PermissionError):
        return any(Path(path, name).exists() for name in (WRITER_LOCK, MANIFEST_FILE))
    return False


def _file_findings(path: str) -> Iterator[Finding]:
    if not holds_store(path):
        yield Finding("file", 0, f"{DATA_FILE} is gone")
        return
    for problem in problems(path):
        yield Finding("file", 0, problem)


def _log_findings(log: LmdbLog, walk: Walk, progress: Callable[[int, int], None]) -> Iterator[Finding]:
    structure = log.files.verify()
    if structure:
        yield from (Finding("file", 0, problem) for problem in structure)
        return
    walk.head = log.head()
    yield from walk.findings(progress)
    for check, findings, fault in ROW_CHECKS:
        yield from guard_findings(check, findings(log, walk.seen), fault)


def _monotonic_progress(progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Return a progress callback that stays silent while a second pass repeats what the first has covered."""
    furthest = 0

    def forward(done: int, whole: int) -> None:
        nonlocal furthest
        if done >= furthest:
            furthest = done
            progress(done, whole)

    return forward


def _ignore_progress(_done: int, _whole: int) -> None:
    """Report no progress."""
