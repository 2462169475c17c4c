"""The walk over a log: every record checked against its digest, the chain, and the records before it."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import field

from refold import fold
from refold.engine.loader import events_of
from refold.engine.streams import UNREADABLE, records_through
from refold.errors import StoreCorrupt, StoreError
from refold.event import ACTORS, FLAG_ERASED, NAMED_ACTORS_FROM, Erased, Event
from refold.limits import HASH_BYTES, PAGE_EVENTS, RECENT_EVENTS_COUNT, STALE_LINKS_COUNT
from refold.log.protocol import Log
from refold.log.record import HEAD_BEGIN, MARK_COMMAND, NO_LINK, SEQ, Record, StreamHead, link_after
from refold.results import WRITER, Finding
from refold.views.actors import ActorNamed

# The observations of one walk over the log, for comparison with the rows beside it.


if TYPE_CHECKING:
    Seqs: TypeAlias = "array[int]"
else:
    Seqs = array


class WalkState(msgspec.Struct):
    """The heads of streams, the missing bodies, and the rows that must exist; all from records alone."""

    heads: dict[int, StreamHead] = {}
    """Number of a stream -> version and seq of its last event, and its branch."""
    begins: dict[int, tuple[int, int, int]] = {}
    """Number of a stream -> seq of its first event, and the version and seq that it says it continues from.

    Only for streams of branches; in a walk over a part of the log, for all streams.
    """
    marked: set[int] = set()
    """Seqs of the events whose marks say that the body was erased."""
    erased: set[int] = set()
    """Seqs that ``Erased`` events name."""
    left: dict[int, bytes] = {}
    """Seq of the last event of a record with erased bodies -> digest of the record."""
    proved: dict[int, bytes] = {}
    """Seq of the last event of such a record -> digest in the last ``Erased`` event that names it."""
    derived: set[bytes] = set()
    """The keys that the index of sources must hold."""
    tags: set[int] = set()
    commands: Seqs = field(default_factory=partial(array, "Q"))
    """For each event, the first seq of its command."""
    actors: set[int] = field(default_factory=lambda: set(range(len(ACTORS))))
    """Numbers of the actors that have a name so far."""
    strangers: set[int] = set()
    """Numbers of actors that a walk over a part of the log met before it met their names."""

    def note(self, record: Record, events: Sequence[Event]) -> None:
        """Take in a record's events."""
        first, marks = record.first_seq, record.marks
        if any(mark & FLAG_ERASED for mark in set(marks)):
            seqs = range(first, first + record.count)
            self.marked.update(compress(seqs, [mark & FLAG_ERASED for mark in marks]))
        if record.has_origin:
            self.left[record.last_seq] = record.digest()
        for seq, event in enumerate(events, first) if any(map(_SOURCES, events)) else ():
            if event.sources:
                self.derived.update(SEQ.pack(source) + SEQ.pack(seq) for source in event.sources)
        kinds = set(map(type, events))
        self.tags |= {fold.TAGS[kind] for kind in kinds if kind is not fold.Unknown}
        if not kinds.isdisjoint(_NOTED):
            for seq, event in enumerate(events, first):
                if isinstance(event, Erased):
                    self.erased.update(event.seqs)
                    self.proved.update(event.digests)
                elif isinstance(event, ActorNamed):
                    self.actors.add(NAMED_ACTORS_FROM + seq)
                elif isinstance(event, fold.Unknown):
                    self.tags.add(event.tag)
        self.commands.extend(record.commands)

    def unproved_seqs(self) -> Iterator[int]:
        """Yield the last seqs of records with erased bodies that are not as the erasure left them."""
        return (last for last, digest in self.left.items() if self.proved.get(last) != digest)

    def connects_to(self, later: "WalkState") -> bool:
        """Return whether the next part of the log continues from this one."""
        for number, (_, version, seq) in later.begins.items():
            branch = later.heads[number].branch
            if number not in self.heads:
                if not branch and (version or seq):
                    return False
            elif self.heads[number][1:] != (version, seq, branch):
                return False
        return later.strangers <= self.actors

    def merge(self, later: "WalkState") -> None:
        """Merge what was seen of the next part of the log."""
        fresh = {n: begin for n, begin in later.begins.items() if n not in self.heads and later.heads[n].branch}
        self.begins |= fresh
        self.heads |= later.heads
        self.left |= later.left
        self.proved |= later.proved
        self.commands += later.commands
        self.marked |= later.marked
        self.erased |= later.erased
        self.derived |= later.derived
        self.tags |= later.tags
        self.actors |= later.actors


_NOTED: Final = frozenset((Erased, ActorNamed, fold.Unknown))
_SOURCES: Final = attrgetter("sources")
_ID: Final[Callable[[Event], str]] = attrgetter("id")
"""The id of an event that has one of its own."""


Mark: TypeAlias = bytes | tuple[int, str]
"""The identity of an event: a salt, or a stream with an id drawn for one event."""


class Marks:
    """The marks of recent events, with their seqs."""

    def __init__(self) -> None:
        self._marks: dict[Mark, int] = {}
        self._elder_marks: dict[Mark, int] = {}
        """The marks of the events before; both together reach back at least ``RECENT_EVENTS_COUNT`` events."""

    def repeats(self, log: Log, record: Record, events: Sequence[Event]) -> dict[int, int]:
        """Record the marks of a record's first events; return those that repeat a recent one, as seq -> earlier seq."""
        first, taken = record.first_seq, len(events)
        numbers: Sequence[int] = record.numbers[:taken]
        seqs: Sequence[int] = range(first, first + taken)
        has_id = [event.has_own_id for event in events]
        if not all(has_id):
            numbers, seqs = list(compress(numbers, has_id)), list(compress(seqs, has_id))
            events = list(compress(events, has_id))
        marks: list[Mark] = [record.salt, *zip(numbers, map(_ID, events), strict=True)]
        places = [first, *seqs]
        fresh = dict(zip(marks, places, strict=True))
        found: dict[int, int] = {}
        # Key views, so that the shorter one is iterated; a dict would be iterated as a whole.
        is_new = fresh.keys().isdisjoint(self._marks.keys()) and fresh.keys().isdisjoint(self._elder_marks.keys())
        if len(fresh) < len(marks) or not is_new:
            known = (self._marks, self._elder_marks)
            reach = first - RECENT_EVENTS_COUNT
            firsts = {m: each[m] for each in known for m in fresh.keys() & each.keys() if each[m] >= reach}
            for mark, seq in zip(marks, places, strict=True):
                elder = firsts.setdefault(mark, seq)
                if elder != seq:
                    count = taken if isinstance(mark, bytes) else 1
                    found |= _equal_events(log, elder, seq, count)
        self._marks |= fresh
        if len(self._marks) > 2 * RECENT_EVENTS_COUNT:
            self._marks, self._elder_marks = {}, self._marks
        return found


def _equal_events(log: Log, elder: int, seq: int, count: int) -> dict[int, int]:
    """Return the events in a run that equal earlier ones of the same stream byte for byte, as seq -> earlier seq."""
    pairs = [(elder + place, seq + place) for place in range(count) if elder + place < seq]
    events = log.events_at([each for pair in pairs for each in pair])
    both = zip(events[::2], events[1::2], strict=True)
    return {
        late.seq: early.seq
        for early, late in both
        if (early.number, early.array) == (late.number, late.array) and not (early.flags | late.flags) & FLAG_ERASED
    }


class Page(NamedTuple):
    """A sound record, and its events."""

    record: Record
    events: Sequence[Event]


_READ_EVENTS: Final = 4 * PAGE_EVENTS
"""Number of events to read at a time: a read has a fixed cost, and one page is only a few of the large records."""


class Walk:
    """One walk over the records after a seq up to a head; ``seen`` collects what it meets.

    Every sound record is passed to ``take``, up to the first that is not sound. A walk over a part of the log, the one
    after ``after``, leaves to its caller the check that needs other parts: ``Seen.connects_to``.
    """

    def __init__(self, log: Log, head: int, take: Callable[[Page], None] | None, after: int | None = None) -> None:
        self._log = log
        self.head = head
        self.seen = WalkState()
        self._take = take
        self._is_part = after is not None
        self._after = after or 0
        self._marks = Marks()
        self._command = 0
        """The seq at which the command of the last event began."""
        self._links = bytearray(NO_LINK)
        """The links of the records so far, starting with the one before the first."""
        self._stale_links = STALE_LINKS_COUNT
        self._time_ns: int | None = None
        self._is_sound = True

    def findings(self, progress: Callable[[int, int], None]) -> Iterator[Finding]:
        """Walk the records and yield findings: each must follow the last, fit its link, and be sound."""
        after = self._after
        if after:
            self._begin(after)
        while after < self.head:
            page = self._log.read(after, min(after + _READ_EVENTS, self.head))
            if not page:
                yield Finding("gap", after + 1, f"no record holds seq {after + 1}")
                return
            for last, packed in page:
                for finding in self._record(after, last, packed):
                    self._is_sound = False
                    yield finding
                if last <= after:
                    return
                after = last
            progress(min(after, self.head), self.head)
        for last in () if self._is_part else self.seen.unproved_seqs():
            problem = f"the record that ends at seq {last} was erased from, and is not what the erasure left"
            yield Finding("erasure", last, problem)

    def _begin(self, after: int) -> None:
        """Read the records that the first one continues from."""
        for record in records_through(self._log, max(after - RECENT_EVENTS_COUNT, 0), after):
            self._marks.repeats(self._log, record, events_of(record))
            self._links = bytearray(record.link)
            self._time_ns = record.time_ns
            self._command = record.commands[-1]

    def _record(self, after: int, last: int, packed: bytes) -> Iterator[Finding]:
        previous = bytes(self._links[-HASH_BYTES:])
        self._links += packed[:HEAD_BEGIN].ljust(HEAD_BEGIN, b"\0")
        where = f"the record that ends at seq {last}"
        try:
            record = Record(packed)
            columns = list(record.problems())
        except UNREADABLE as error:
            yield Finding("record", after + 1, f"{where} cannot be read: {error}")
            return
        if record.first_seq != after + 1 or record.last_seq != last:
            problem = f"{where} holds seqs {record.first_seq} to {record.last_seq}, and seq {after + 1} comes next"
            yield Finding("gap", after + 1, problem)
            return
        yield from self._link(previous, record, where)
        yield from (Finding("record", record.first_seq, f"{where} makes no sense: {problem}") for problem in columns)
        if columns:
            return
        if self._time_ns is not None and record.time_ns < self._time_ns:
            yield Finding("time", record.first_seq, f"the time {record.time_ns} is before that of seq {after}", WRITER)
        self._time_ns = record.time_ns
        yield from self._order(record)
        yield from self._events(record)

    def _link(self, previous: bytes, record: Record, where: str) -> Iterator[Finding]:
        covered = record.covered_digest()
        if link_after(previous, covered) == record.link:
            return
        problem = f"the link of {where}"
        if self._is_stale(covered, record.link):
            problem += (
                " goes on from an earlier record than the one before it: whoever wrote it had not read the others"
            )
            yield Finding("chain", record.first_seq, problem, WRITER)
        else:
            yield Finding("chain", record.first_seq, f"{problem} does not fit what is in it")

    def _is_stale(self, covered: bytes, link: bytes) -> bool:
        """Return whether a link continues from an earlier record, trying the latest ones first."""
        for begin in range(len(self._links) - 2 * HASH_BYTES, -1, -HASH_BYTES):
            self._stale_links -= 1
            if self._stale_links < 0:
                return False
            if link_after(bytes(self._links[begin : begin + HASH_BYTES]), covered) == link:
                return True
        return False

    def _order(self, record: Record) -> Iterator[Finding]:
        """Check that streams and commands continue from the records before."""
        seen, first, heads = self.seen, record.first_seq, record.heads
        owners, known_heads = record.owners, self.seen.heads
        is_single = len(heads) == record.count
        for place, head in enumerate(heads):
            number, version, seq, branch = head
            begin = end = first + owners.index(place)
            known = known_heads.get(number)
            if known is None and (branch or self._is_part):
                seen.begins[number] = (begin, version, seq)
                known = head
            elif known is None:
                known = StreamHead(number, 0, 0, 0)
            if branch != known.branch:
                yield Finding("order", begin, f"stream {number} goes over into branch {branch}", WRITER)
            if version != known.version or seq != known.seq:
                yield Finding(
                    "order",
                    begin,
                    f"stream {number} goes from version {known.version} at seq {known.seq} "
                    f"to version {version + 1} after seq {seq}",
                    WRITER,
                )
            count = 1
            if not is_single:
                count, end = owners.count(place), first + owners.rindex(place)
            known_heads[number] = StreamHead._make((number, version + count, end, branch))
        if not record.marks[0] & MARK_COMMAND and record.command != self._command:
            problem = f"its command began at seq {record.command}, that of the event before at seq {self._command}"
            yield Finding("order", first, problem, WRITER)

    def _events(self, record: Record) -> Iterator[Finding]:
        seen = self.seen
        try:
            events = events_of(record)
        except StoreError:
            yield from _decode_findings(record)
            seen.commands.extend(record.commands)
            self._command = seen.commands[-1]
            return
        for place in compress(range(record.count), [mark & FLAG_ERASED for mark in record.marks]):
            array = record.array(place)
            if not isinstance(events[place], fold.Unknown) and fold.strip_body(array) != array:
                problem = "the event is marked as one without a body, and its body is there"
                yield Finding("erasure", record.first_seq + place, problem)
        for seq, first in self._marks.repeats(self._log, record, events).items():
            yield Finding("twice", seq, f"the event is that of seq {first} once more", WRITER)
        seen.note(record, events)
        self._command = seen.commands[-1]
        numbers = set(record.actors)
        if self._is_part:
            seen.strangers |= numbers - seen.actors
        elif not numbers <= seen.actors:
            for seq, actor in enumerate(record.actors, record.first_seq):
                if actor not in seen.actors:
                    yield Finding("actor", seq, f"its actor has the number {actor}, to which no event gave a name")
        if self._is_sound and self._take is not None:
            self._take(Page(record, events))


def _decode_findings(record: Record) -> Iterator[Finding]:
    for seq, packed in enumerate(record.arrays, record.first_seq):
        try:
            fold.decode(packed)
        except StoreCorrupt as error:
            yield Finding("record", seq, str(error))
