"""The two walks over a log: a fast one, which says whether anything is wrong, and a slow one, which says what."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple, TypeAlias

from refold import fold
from refold.engine.loader import decoded
from refold.errors import StoreCorrupt
from refold.event import FLAG_BASE, FLAG_BODY_ELSEWHERE, FLAG_ERASED, FLAG_OCCURRED, Erased, Event
from refold.fold import TAGS
from refold.limits import HASH_BYTES, PAGE_EVENTS, RECENT_EVENTS_COUNT, STALE_LINK_BYTES_MAX
from refold.log.protocol import Log
from refold.log.record import (
    ARRAY_BEGIN,
    COMMIT,
    FORMAT,
    HEADER,
    HEADER_BYTES,
    NO_LINK,
    NO_SALT,
    PREFIX_BYTES,
    SEQ,
    CommitRow,
    Header,
    commitments,
    covered,
    header_of,
    is_intact,
    last_seq_of,
    link_after,
)
from refold.results import WRITER, Finding

# What one walk over the log has seen: what the rows beside the log are held against.

Mark: TypeAlias = bytes | tuple[int, str]
"""What two events have in common only where they are one: a commitment, or a stream with an id drawn for one event."""


class Seen:
    """Where streams stand, which bodies are gone, which rows have to be there; all of it from records alone."""

    def __init__(self) -> None:
        self.heads: dict[int, tuple[int, int]] = {}
        """Number of a stream -> version and seq of its last event."""
        self.begins: dict[int, tuple[int, int, int]] = {}
        """Number of a branch's stream -> seq of its first event, and version and seq that it says it goes on from."""
        self.branches: dict[int, int] = {}
        """Number of a stream -> branch of its events."""
        self.marked: set[int] = set()
        """Seqs of the events whose headers say that the body was erased."""
        self.erased: set[int] = set()
        """Seqs that ``Erased`` events name."""
        self.derived: set[bytes] = set()
        """The keys that the index of sources has to hold."""
        self.tags: set[int] = set()
        self.commands = array("Q")
        """For each event the first seq of the command that it belongs to."""
        self._marks: dict[Mark, int] = {}
        """The marks of the last events, with their seqs."""
        self._elder_marks: dict[Mark, int] = {}
        """Those of the events before; both together reach back at least ``RECENT_EVENTS_COUNT`` events."""

    def derive(self, seq: int, sources: tuple[int, ...]) -> None:
        """Take note of what an event was derived from."""
        self.derived.update(SEQ.pack(source) + SEQ.pack(seq) for source in sources)

    def repeats(
        self,
        log: Log,
        seqs: Sequence[int],
        numbers: Sequence[int],
        commitments: Sequence[bytes],
        events: Sequence[Event],
    ) -> dict[int, int]:
        """Take note of events; return those that are one of the last before them once more: seq -> seq of that one."""
        marks: list[Mark] = list(commitments)
        places = list(seqs)
        for seq, number, event in zip(seqs, numbers, events, strict=True):
            if event.has_own_id:
                marks.append((number, getattr(event, "id")))  # noqa: B009 - those that have one
                places.append(seq)
        fresh = dict(zip(marks, places, strict=True))
        found: dict[int, int] = {}
        # Views, of which the shorter one is gone through; a dict would be gone through whole.
        is_new = fresh.keys().isdisjoint(self._marks.keys()) and fresh.keys().isdisjoint(self._elder_marks.keys())
        if len(fresh) < len(marks) or not is_new:
            known = (self._marks, self._elder_marks)
            firsts = {mark: each[mark] for each in known for mark in fresh.keys() & each.keys()}
            for mark, seq in zip(marks, places, strict=True):
                first = firsts.setdefault(mark, seq)
                if first != seq and _is_same(log, first, seq):
                    found[seq] = first
        self._marks |= fresh
        if len(self._marks) > 2 * RECENT_EVENTS_COUNT:
            self._marks, self._elder_marks = {}, self._marks
        return found


def _is_same(log: Log, first: int, seq: int) -> bool:
    """Return whether two records of a stream hold one event, byte for byte; salts of zeros tell nothing."""
    elder, record = log.read_at([first, seq])
    if header_of(elder).stream != header_of(record).stream or elder[ARRAY_BEGIN:] != record[ARRAY_BEGIN:]:
        return False
    return NO_SALT not in (elder[HEADER_BYTES:ARRAY_BEGIN], record[HEADER_BYTES:ARRAY_BEGIN])


FLAGS: Final = FLAG_ERASED | FLAG_BASE | FLAG_OCCURRED
"""Every flag that something of this format sets."""


class SlowWalk:
    """One walk over commit rows and records up to the head; ``seen`` is what it met on the way."""

    def __init__(self, log: Log, head: int) -> None:
        self._log = log
        self.head = head
        self.seen = Seen()
        self._links = bytearray(NO_LINK)
        """The links of the commits so far, from the one before the first on."""
        self._stale_bytes = STALE_LINK_BYTES_MAX

    def findings(self, progress: Callable[[int, int], None]) -> Iterator[Finding]:
        """Walk the commit rows: they must follow one another, and each link must be that of its records."""
        previous = CommitRow(0, 1, 0, NO_LINK)
        while previous.next_seq <= self.head:
            page = self._log.commits(previous.next_seq - 1, PAGE_EVENTS)
            if not page:
                yield Finding("chain", previous.next_seq, f"no commit row covers seq {previous.next_seq}")
                return
            for row in page:
                commit = CommitRow._make(COMMIT.unpack(row))
                yield from self._commit(previous, commit)
                if commit.next_seq <= previous.next_seq:
                    return
                self._links += commit.link
                previous = commit
                progress(commit.next_seq - 1, self.head)
        if self.head >= self._log.head() and self._log.read(previous.next_seq, 1):
            yield Finding("chain", previous.next_seq, "there are records behind the last commit row")

    def _commit(self, previous: CommitRow, commit: CommitRow) -> Iterator[Finding]:
        first = commit.first_seq
        if first != previous.next_seq or not first < commit.next_seq <= self.head + 1:
            span = f"from seq {first} to {commit.next_seq - 1}"
            yield Finding("gap", first, f"a commit goes {span}, the one before ended at {previous.next_seq - 1}")
            return
        if commit.time_ns < previous.time_ns:
            yield Finding("time", first, f"the commit's time {commit.time_ns} is before its predecessor's", WRITER)
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
            said = f"the link over seqs {first} to {commit.next_seq - 1}"
            if self._is_stale(parts, commit.link):
                said += " goes on from an earlier commit than the one before it"
                yield Finding("chain", first, f"{said}: whoever wrote it had not read what others wrote", WRITER)
            else:
                yield Finding("chain", first, f"{said} does not fit its records")

    def _is_stale(self, parts: list[bytes], link: bytes) -> bool:
        """Return whether a link is that of its records behind an earlier commit, the latest ones first."""
        content = b"".join(parts)
        for begin in range(len(self._links) - HASH_BYTES, -1, -HASH_BYTES):
            self._stale_bytes -= len(content)
            if self._stale_bytes < 0:
                return False
            if link_after(bytes(self._links[begin : begin + HASH_BYTES]), (content,)) == link:
                return True
        return False

    def _record(self, seq: int, record: bytes, header: Header) -> Iterator[Finding]:
        if header.format > FORMAT:
            yield Finding("record", seq, f"format {header.format} is newer than {FORMAT}")
        if header.flags & ~FLAGS:
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
            self.seen.marked.add(seq)
        if isinstance(event, Erased):
            self.seen.erased.update(event.seqs)
        self.seen.tags.add(header.tag)
        self.seen.derive(seq, event.sources)
        for first in self.seen.repeats(self._log, [seq], [header.stream], [header.commitment], [event]).values():
            yield Finding("twice", seq, f"the event is that of seq {first} once more", WRITER)

    def _order(self, seq: int, header: Header) -> Iterator[Finding]:
        seen = self.seen
        if header.branch != seen.branches.setdefault(header.stream, header.branch):
            yield Finding("order", seq, f"stream {header.stream} goes over into branch {header.branch}", WRITER)
        version, last = seen.heads.get(header.stream, (0, 0))
        if header.branch and header.stream not in seen.heads:
            version, last = max(header.version, 1) - 1, header.prev_seq
            seen.begins[header.stream] = (seq, version, last)
        if header.version != version + 1 or header.prev_seq != last:
            yield Finding(
                "order",
                seq,
                f"stream {header.stream} goes from version {version} at seq {last} "
                f"to version {header.version} after seq {header.prev_seq}",
                WRITER,
            )
        seen.heads[header.stream] = (header.version, seq)


# The fast walk over a log: pages checked as a whole, which says no more than whether anything is wrong.
#
# A page is taken apart into columns by code in C, and each check is one over a column. Where one of them fails the
# sweep ends, and ``walking`` looks at every event to say what it is. So what is found, and how it is told, is the
# slow walk's.

_ERASED_TAG: Final = TAGS[Erased]
_STRUCTURAL_BEGIN: Final = ARRAY_BEGIN + PREFIX_BYTES
_MASKED: Final = FLAG_ERASED | FLAG_BODY_ELSEWHERE


class DamageFound(Exception):
    """Something is wrong in the log; the slow walk says what."""


class Page(NamedTuple):
    """A page that holds what it should: seqs, records, their events, and the headers, column by column."""

    seqs: Sequence[int]
    records: Sequence[bytes]
    events: Sequence[Event]
    columns: Sequence[Sequence[Any]]


class FastWalk:
    """One sweep over a log up to its head; ``seen`` is what it met on the way."""

    def __init__(self, log: Log, head: int) -> None:
        self._log = log
        self._head = head
        self._commits = self._commit_rows()
        self._previous = CommitRow(0, 1, 0, NO_LINK)
        self._current: CommitRow | None = None
        self._parts: list[bytes] = []
        """What the link of the current commit covers, as far as it was read."""
        self._expected: dict[int, tuple[int, int, int]] = {}
        """Number of a stream -> version and ``prev_seq`` that its next event has to have, and its branch."""
        self.seen = Seen()

    def pages(self) -> Iterator[Page]:
        """Return the pages of the log, each found sound but for the link of a commit that goes on behind it.

        Raises ``DamageFound`` where anything is wrong.
        """
        for begin in range(1, self._head + 1, PAGE_EVENTS):
            yield self._page(range(begin, min(begin + PAGE_EVENTS, self._head + 1)))
        if self._current is not None or (self._head >= self._log.head() and self._log.read(self._head + 1, 1)):
            raise DamageFound
        self.seen.heads = {number: (place[0] - 1, place[1]) for number, place in self._expected.items()}
        self.seen.branches = {number: place[2] for number, place in self._expected.items()}

    def _page(self, seqs: range) -> Page:
        try:
            records = self._log.read_at(seqs)
        except StoreCorrupt as error:
            raise DamageFound from error
        if min(map(len, records)) < ARRAY_BEGIN:
            raise DamageFound
        columns = list(zip(*map(HEADER.unpack_from, records), strict=True))
        flags, tags, begins, commands, formats = columns[6], columns[7], columns[12], columns[9], columns[16]
        if max(formats) > FORMAT or any(flag & ~FLAGS for flag in set(flags)):
            raise DamageFound
        is_plain = not any(flag & _MASKED for flag in set(flags))
        self._check_bodies(seqs, records, columns, is_plain=is_plain)
        self._check_order(seqs, columns)
        self._check_links(seqs, _parts(records, begins, is_plain=is_plain))
        try:
            events = decoded(records, zip(tags, strict=True))
        except StoreCorrupt as error:
            raise DamageFound from error
        if self.seen.repeats(self._log, seqs, columns[0], columns[17], events):
            raise DamageFound
        self.seen.tags.update(tags)
        self.seen.commands.extend(commands)
        self._note(seqs, tags, events)
        return Page(seqs, records, events, columns)

    def _check_bodies(
        self, seqs: range, records: Sequence[bytes], columns: Sequence[Sequence[Any]], *, is_plain: bool
    ) -> None:
        if is_plain:
            if commitments(records, columns[12]) != columns[17]:
                raise DamageFound
            return
        if not all(map(is_intact, records)):
            raise DamageFound
        self.seen.marked.update(compress(seqs, [flag & FLAG_ERASED for flag in columns[6]]))

    def _check_order(self, seqs: range, columns: Sequence[Sequence[int]]) -> None:
        """Check that each event goes on from the last one of its stream, in the stream's branch."""
        expected = self._expected
        get = expected.get
        # version, prev_seq and branch, as one tuple for each event.
        for seq, number, place in zip(
            seqs, columns[0], zip(columns[1], columns[8], columns[10], strict=True), strict=True
        ):
            if get(number) != place:
                self._check_first(seq, number, place)
            expected[number] = (place[0] + 1, seq, place[2])

    def _check_first(self, seq: int, number: int, place: tuple[int, int, int]) -> None:
        """Check the first event of a stream; in a branch it goes on from what ``begins`` is to be held against."""
        version, prev_seq, branch = place
        if number in self._expected or not version or (not branch and (version, prev_seq) != (1, 0)):
            raise DamageFound
        if branch:
            self.seen.begins[number] = (seq, version - 1, prev_seq)

    def _commit_rows(self) -> Iterator[CommitRow]:
        after = 0
        while rows := self._log.commits(after, PAGE_EVENTS):
            for row in rows:
                if len(row) != COMMIT.size:
                    raise DamageFound
                yield CommitRow._make(COMMIT.unpack(row))
            after = max(last_seq_of(rows[-1]), after + 1)

    def _check_links(self, seqs: range, parts: Sequence[bytes]) -> None:
        at = seqs.start
        while at < seqs.stop:
            if self._current is None:
                self._current = self._next_commit(at)
            commit = self._current
            end = min(commit.next_seq, seqs.stop)
            self._parts += parts[at - seqs.start : end - seqs.start]
            at = end
            if at == commit.next_seq:
                if link_after(self._previous.link, self._parts) != commit.link:
                    raise DamageFound
                self._previous, self._current = commit, None

    def _next_commit(self, at: int) -> CommitRow:
        commit = next(self._commits, None)
        if (
            commit is None
            or commit.first_seq != at
            or not at < commit.next_seq <= self._head + 1
            or commit.time_ns < self._previous.time_ns
        ):
            raise DamageFound
        self._parts = [COMMIT.pack(commit.first_seq, commit.next_seq, commit.time_ns, NO_LINK)]
        return commit

    def _note(self, seqs: range, tags: Sequence[int], events: Sequence[Event]) -> None:
        for seq, event in zip(seqs, events, strict=True):
            if event.sources:
                self.seen.derive(seq, event.sources)
        if _ERASED_TAG in tags:
            for event in events:
                if isinstance(event, Erased):
                    self.seen.erased.update(event.seqs)


def _parts(records: Sequence[bytes], begins: Sequence[int], *, is_plain: bool) -> list[bytes]:
    """Return what the link covers of each record."""
    if is_plain:
        return [
            record[:HEADER_BYTES] + record[_STRUCTURAL_BEGIN : ARRAY_BEGIN + begin]
            for record, begin in zip(records, begins, strict=True)
        ]
    return [b"".join(covered(record)) for record in records]


def swept(log: Log, head: int, take: Callable[[Page], None], progress: Callable[[int, int], None]) -> Seen | None:
    """Walk the log page by page and hand every page on; return what was seen, ``None`` where anything is wrong."""
    sweep = FastWalk(log, head)
    try:
        for page in sweep.pages():
            take(page)
            progress(page.seqs[-1], head)
    except DamageFound:
        return None
    return sweep.seen
