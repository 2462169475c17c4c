"""Verification: every promise of the log checked against its bytes, and every cache against the fold."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from struct import error as StructError  # noqa: N812 - struct names its exception in lower case
from typing import Final

from refold import fold
from refold.engine.checkpoints import APPLIED_KEY, checkpoint_of, number_of
from refold.engine.core import Engine
from refold.engine.keys import key_of
from refold.engine.loader import Loader
from refold.engine.slots import Slot
from refold.engine.streams import NEXT_NUMBER_KEY, Streams, place_in
from refold.errors import StoreCorrupt, StoreError
from refold.event import FLAG_BASE, FLAG_ERASED, FLAG_OCCURRED, Erased
from refold.limits import PAGE_EVENTS
from refold.results import Finding
from refold.store.protocol import scan
from refold.store.record import (
    ARRAY_BEGIN,
    BRANCH,
    COMMIT,
    FORMAT,
    NO_LINK,
    SEQ,
    CommitRow,
    Header,
    covered,
    header_of,
    is_intact,
    link_after,
)

_FLAGS: Final = FLAG_ERASED | FLAG_BASE | FLAG_OCCURRED

_DAMAGE: Final = (
    AssertionError,
    LookupError,
    OverflowError,
    StoreError,
    StructError,
    TypeError,
    ValueError,
)
"""What reading damaged bytes raises; msgspec's errors and those of UTF-8 are a ``ValueError``."""


class Inspection:
    """One pass over a log and its rows; ``findings`` says what is wrong."""

    def __init__(self, engine: Engine, replayed: Callable[[], tuple[Streams, Loader]]) -> None:
        self._engine = engine
        self._log = engine.log
        self._replayed = replayed
        self._heads: dict[int, tuple[int, int]] = {}
        self._begins: dict[int, tuple[int, int, int]] = {}
        """Number of a branch's stream -> seq of its first event, and version and seq that it says it goes on from."""
        self._branches: dict[int, int] = {}
        self.streams = 0
        """How many streams there are, those of all branches together."""
        self._marked: set[int] = set()
        self._erased: set[int] = set()
        self._derived: set[bytes] = set()

    def findings(self, progress: Callable[[int, int], None]) -> Iterator[Finding]:
        """Return what is wrong: the file, the chain, the records, and only if those hold, rows and states."""
        broken = False
        for finding in self._file_and_log(progress):
            broken = True
            yield finding
        if not broken:
            yield from _readable("replay", self._states())

    def _states(self) -> Iterator[Finding]:
        streams, loader = self._replayed()
        yield from _readable("order", self._inherited(streams, loader))
        yield from _readable("checkpoint", self._checkpoints(streams, loader))
        yield from self._live_states(streams, loader)

    def _file_and_log(self, progress: Callable[[int, int], None]) -> Iterator[Finding]:
        yield from (Finding("file", 0, problem) for problem in self._log.verify())
        yield from _readable("chain", self._commits(progress))
        yield from _readable("names", self._names())
        yield from self._erasures()
        yield from _readable("derived", self._derived_rows())

    def _commits(self, progress: Callable[[int, int], None]) -> Iterator[Finding]:
        """Walk the commit rows: they must follow one another, and each link must be that of its records."""
        previous = CommitRow(0, 1, 0, NO_LINK)
        head = self._engine.head
        while previous.next_seq <= head:
            page = self._log.commits(previous.next_seq - 1, PAGE_EVENTS)
            if not page:
                yield Finding("chain", previous.next_seq, f"no commit row covers seq {previous.next_seq}")
                return
            for row in page:
                commit = CommitRow._make(COMMIT.unpack(row))
                yield from self._commit(previous, commit)
                if commit.next_seq <= previous.next_seq:
                    return
                previous = commit
                progress(commit.next_seq - 1, head)
        if self._log.read(previous.next_seq, 1):
            yield Finding("chain", previous.next_seq, "there are records behind the last commit row")

    def _commit(self, previous: CommitRow, commit: CommitRow) -> Iterator[Finding]:
        first = commit.first_seq
        if first != previous.next_seq or not first < commit.next_seq <= self._engine.head + 1:
            span = f"from seq {first} to {commit.next_seq - 1}"
            yield Finding("gap", first, f"a commit goes {span}, the one before ended at {previous.next_seq - 1}")
            return
        if commit.time_ns < previous.time_ns:
            yield Finding("time", first, f"the commit's time {commit.time_ns} is before its predecessor's")
        try:
            records = self._log.read_at(range(first, commit.next_seq))
        except StoreCorrupt as error:
            yield Finding("gap", first, str(error))
            return
        parts = [COMMIT.pack(first, commit.next_seq, commit.time_ns, NO_LINK)]
        for seq, record in enumerate(records, first):
            if len(record) < ARRAY_BEGIN:
                yield Finding("record", seq, f"the record has {len(record)} bytes, fewer than a header")
                return
            header = header_of(record)
            yield from self._record(seq, record, header)
            parts += covered(record, header)
        if link_after(previous.link, parts) != commit.link:
            yield Finding(
                "chain", first, f"the link over seqs {first} to {commit.next_seq - 1} does not fit its records"
            )

    def _record(self, seq: int, record: bytes, header: Header) -> Iterator[Finding]:
        if header.format > FORMAT:
            yield Finding("record", seq, f"format {header.format} is newer than {FORMAT}")
        if header.flags & ~_FLAGS:
            yield Finding("record", seq, f"flags {header.flags:#06x} hold a bit that nothing of this format sets")
        if not is_intact(record, header):
            yield Finding("commitment", seq, "the body is not what the header commits to")
        yield from self._order(seq, header)
        try:
            event = fold.decode(record[ARRAY_BEGIN:], header.tag)
        except StoreCorrupt as error:
            yield Finding("record", seq, str(error))
            return
        if header.flags & FLAG_ERASED:
            self._marked.add(seq)
        if isinstance(event, Erased):
            self._erased.update(event.seqs)
        self._derived.update(SEQ.pack(source) + SEQ.pack(seq) for source in event.sources)

    def _order(self, seq: int, header: Header) -> Iterator[Finding]:
        if header.branch != self._branches.setdefault(header.stream, header.branch):
            yield Finding("order", seq, f"stream {header.stream} goes over into branch {header.branch}")
        version, last = self._heads.get(header.stream, (0, 0))
        if header.branch and header.stream not in self._heads:
            version, last = max(header.version, 1) - 1, header.prev_seq
            self._begins[header.stream] = (seq, version, last)
        if header.version != version + 1 or header.prev_seq != last:
            yield Finding(
                "order",
                seq,
                f"stream {header.stream} goes from version {version} at seq {last} "
                f"to version {header.version} after seq {header.prev_seq}",
            )
        self._heads[header.stream] = (header.version, seq)

    def _names(self) -> Iterator[Finding]:
        """Check that every stream has one number and every number one name."""
        numbers = {
            key_of(BRANCH.unpack_from(key)[0], key[BRANCH.size :].decode()): int.from_bytes(number, "big")
            for key, number in scan(self._log, "names", b"", PAGE_EVENTS)
        }
        names: dict[int, str] = {}
        for key, packed in scan(self._log, "streams", b"", PAGE_EVENTS):
            number = int.from_bytes(key, "big")
            name, branch = place_in(packed)
            names[number] = key_of(branch, name)
            if self._branches.get(number, branch) != branch:
                yield Finding("names", 0, f"stream number {number} is of branch {branch}, its events are of another")
        self.streams = len(names)
        for number in sorted(self._heads.keys() - names.keys()):
            yield Finding("names", self._heads[number][1], f"stream number {number} has events and no name")
        for number, name in sorted(names.items()):
            if numbers.pop(name, None) != number:
                yield Finding("names", 0, f"stream number {number} is named {name!r}, which stands for another number")
        for name, number in sorted(numbers.items()):
            yield Finding("names", 0, f"{name!r} stands for stream number {number}, which has another name")
        following = int.from_bytes(self._log.row("meta", NEXT_NUMBER_KEY) or b"", "big")
        if names and following <= max(names):
            yield Finding("names", 0, f"the next stream would get the number {following} again")

    def _inherited(self, streams: Streams, loader: Loader) -> Iterator[Finding]:
        """Check that each stream of a branch goes on from the last event that it inherited."""
        for number, (seq, version, last) in self._begins.items():
            base = streams.at_number(number).base
            inherited = (loader.recorded([base[1]])[0].stamp.version, base[1]) if base else (0, 0)
            if (version, last) != inherited:
                found = f"goes on from version {version} at seq {last}, and inherited version {inherited[0]}"
                yield Finding("order", seq, f"stream {number} {found} at seq {inherited[1]}")

    def _erasures(self) -> Iterator[Finding]:
        for seq in sorted(self._marked - self._erased):
            yield Finding("erasure", seq, "the body is gone, and no event says that it was erased")
        for seq in sorted(self._erased - self._marked):
            yield Finding("erasure", seq, "an event says that the body was erased, and it is still there")

    def _derived_rows(self) -> Iterator[Finding]:
        stored = {key for key, _ in scan(self._log, "derived", b"", PAGE_EVENTS)}
        for key in sorted(stored ^ self._derived):
            source, seq = SEQ.unpack(key[:8])[0], SEQ.unpack(key[8:])[0]
            yield Finding("derived", seq, f"the index row from source {source} is missing or stands for nothing")

    def _checkpoints(self, streams: Streams, loader: Loader) -> Iterator[Finding]:
        """Fold every stream from its first event and compare at each checkpoint row."""
        waiting: dict[int, list[tuple[bytes, bytes]]] = {}
        for key, packed in scan(self._log, "checkpoints", b"", PAGE_EVENTS):
            if key == APPLIED_KEY:
                continue
            waiting.setdefault(number_of(key), []).append((key, packed))
        for number, rows in waiting.items():
            yield from _readable("checkpoint", _stream_rows(loader, streams.at_number(number), rows))

    def _live_states(self, streams: Streams, loader: Loader) -> Iterator[Finding]:
        for number in self._heads:
            replayed, live = streams.at_number(number), self._engine.streams.at_number(number)
            name = live.name
            if (live.version, live.seq) != (replayed.version, replayed.seq):
                yield Finding("head", live.seq, f"{name} is at version {live.version}, its log at {replayed.version}")
            elif live.state is not None:
                again = fold.digests(loader.state_at(replayed, replayed.seq))
                if fold.digests(live.state) != again:
                    yield Finding("replay", live.seq, f"the live state of {name} is not the replay of its events")


def _readable(check: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Return the findings; damaged bytes fail to be read in many ways, and each of them is a finding too."""
    try:
        yield from findings
    except _DAMAGE as error:
        yield Finding(check, 0, f"what is stored cannot be read: {type(error).__name__}: {error}")


def _stream_rows(loader: Loader, slot: Slot, rows: list[tuple[bytes, bytes]]) -> Iterator[Finding]:
    checkpoints = [checkpoint_of(key, packed) for key, packed in rows]
    assert all(a.seq < b.seq for a, b in pairwise(checkpoints)), f"checkpoints of {slot.name} out of order"
    state, at = fold.empty(slot.kind), 0
    kept = slot.base[1] if slot.base is not None else 0
    for checkpoint in checkpoints:
        state = _advance(loader, slot, state, at, checkpoint.seq)
        at = checkpoint.seq
        cached = fold.unpack(slot.kind, checkpoint.inline, loader.recorded(checkpoint.pointed))
        if fold.digests(cached) != fold.digests(state):
            yield Finding("checkpoint", at, f"the checkpoint of {slot.name} is not the fold of its events")
        # A row of a process that did not know of another's may reach back further; it must leave no gap.
        begin = min(kept, checkpoint.since[0] - 1) if checkpoint.since else kept
        since = list(loader.seqs_between(slot, begin, at))
        version = loader.recorded([at])[0].stamp.version
        if (checkpoint.version, checkpoint.since) != (version, since):
            yield Finding("checkpoint", at, f"the checkpoint of {slot.name} names other events than those before it")
        kept = at if checkpoint.kept else kept


def _advance(loader: Loader, slot: Slot, state: fold.State, after: int, until: int) -> fold.State:
    seqs = list(loader.seqs_between(slot, after, until))
    for begin in range(0, len(seqs), PAGE_EVENTS):
        for event, stamp in loader.recorded(seqs[begin : begin + PAGE_EVENTS]):
            if type(event) in fold.BASE_TYPES:
                state = loader.base_state(event, slot.kind)
            fold.fold(state, stamp, event)
    return state
