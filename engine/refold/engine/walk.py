"""The walk over a log: every record checked against its digest, the chain, and the records before it."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Final, NamedTuple, TypeAlias

from refold import fold
from refold.engine.loader import events_of
from refold.engine.streams import UNREADABLE
from refold.errors import StoreCorrupt, StoreError
from refold.event import ACTORS, FLAG_ERASED, NAMED_ACTORS_FROM, Erased, Event
from refold.limits import HASH_BYTES, PAGE_EVENTS, RECENT_EVENTS_COUNT, STALE_LINKS_COUNT
from refold.log.protocol import Log
from refold.log.record import HEAD_BEGIN, MARK_COMMAND, NO_LINK, SEQ, Record, StreamHead, link_after
from refold.results import WRITER, Finding
from refold.views.actors import ActorNamed

# What one walk over the log has seen: what the rows beside the log are held against.

Mark: TypeAlias = bytes | tuple[int, str]
"""The identity of an event: a salt, or a stream with an id drawn for one event."""


class Seen:
    """The heads of streams, the bodies that are gone, the rows that have to be there; all from records alone."""

    def __init__(self) -> None:
        self.heads: dict[int, StreamHead] = {}
        """Number of a stream -> version and seq of its last event, and its branch."""
        self.begins: dict[int, tuple[int, int, int]] = {}
        """Number of a branch's stream -> seq of its first event, and version and seq that it says it goes on from."""
        self.marked: set[int] = set()
        """Seqs of the events whose marks say that the body was erased."""
        self.erased: set[int] = set()
        """Seqs that ``Erased`` events name."""
        self.left: dict[int, bytes] = {}
        """The records that were erased from, by the seqs of their last events, and their digests."""
        self.proved: dict[int, bytes] = {}
        """The digests of such records, as the last ``Erased`` event that names one has it."""
        self.derived: set[bytes] = set()
        """The keys that the index of sources has to hold."""
        self.tags: set[int] = set()
        self.commands = array("Q")
        """For each event the first seq of the command that it belongs to."""
        self.actors: set[int] = set(range(len(ACTORS)))
        """The numbers of the actors that have a name so far."""
        self._marks: dict[Mark, int] = {}
        """The marks of the last events, with their seqs."""
        self._elder_marks: dict[Mark, int] = {}
        """Those of the events before; both together reach back at least ``RECENT_EVENTS_COUNT`` events."""

    def note(self, record: Record, events: Sequence[Event]) -> None:
        """Take note of a record's events."""
        first, marks = record.first_seq, record.marks
        if any(mark & FLAG_ERASED for mark in set(marks)):
            seqs = range(first, first + record.count)
            self.marked.update(compress(seqs, [mark & FLAG_ERASED for mark in marks]))
        if record.was_erased_from:
            self.left[record.last_seq] = record.digest()
        for seq, event in enumerate(events, first):
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

    def repeats(self, log: Log, record: Record, events: Sequence[Event]) -> dict[int, int]:
        """Take note of a record's events; return those that are one of the last before them once more, seq -> seq."""
        first = record.first_seq
        marks: list[Mark] = [record.salt]
        places = [first]
        for seq, number, event in zip(range(first, first + len(events)), record.numbers, events, strict=False):
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
                elder = firsts.setdefault(mark, seq)
                if elder != seq:
                    count = record.count if isinstance(mark, bytes) else 1
                    found |= _same(log, elder, seq, count)
        self._marks |= fresh
        if len(self._marks) > 2 * RECENT_EVENTS_COUNT:
            self._marks, self._elder_marks = {}, self._marks
        return found


_NOTED: Final = frozenset((Erased, ActorNamed, fold.Unknown))


def _same(log: Log, elder: int, seq: int, count: int) -> dict[int, int]:
    """Return those of some events in a row that hold what the elder ones hold, byte for byte, in the same stream."""
    pairs = [(elder + place, seq + place) for place in range(count) if elder + place < seq]
    events = log.events_at([each for pair in pairs for each in pair])
    both = zip(events[::2], events[1::2], strict=True)
    return {
        late.seq: early.seq
        for early, late in both
        if (early.number, early.array) == (late.number, late.array) and not (early.flags | late.flags) & FLAG_ERASED
    }


class Page(NamedTuple):
    """The events of a sound record with what their stamps say: the row that ``Record.rows`` gives of each."""

    rows: Sequence[tuple[int, int, int, int, int, int, int, int]]
    events: Sequence[Event]
    nbytes: int


_READ_EVENTS: Final = 4 * PAGE_EVENTS
"""Events that are read at a time: their records are large, and a read costs more than what one page takes of it."""


class Walk:
    """One walk over the records up to a head; ``seen`` is what it met on the way.

    Every sound record is handed to ``take``, up to the first that is not.
    """

    def __init__(self, log: Log, head: int, take: Callable[[Page], None] | None = None) -> None:
        self._log = log
        self.head = head
        self.seen = Seen()
        self._take = take
        self._links = bytearray(NO_LINK)
        """The links of the records so far, from the one before the first on."""
        self._stale_links = STALE_LINKS_COUNT
        self._time_ns: int | None = None
        self._is_sound = True

    def findings(self, progress: Callable[[int, int], None]) -> Iterator[Finding]:
        """Walk the records: they must follow one another, each link be that of what it covers, and each be sound."""
        after = 0
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
        for last, digest in self.seen.left.items():
            if self.seen.proved.get(last) != digest:
                problem = f"the record that ends at seq {last} was erased from, and is not what the erasure left"
                yield Finding("erasure", last, problem)

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
        covered = record.covered()
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
        """Return whether a link goes on from an earlier record, the latest ones first."""
        for begin in range(len(self._links) - 2 * HASH_BYTES, -1, -HASH_BYTES):
            self._stale_links -= 1
            if self._stale_links < 0:
                return False
            if link_after(bytes(self._links[begin : begin + HASH_BYTES]), covered) == link:
                return True
        return False

    def _order(self, record: Record) -> Iterator[Finding]:
        """Check that streams, commands and causes go on from what came before."""
        seen, first = self.seen, record.first_seq
        owners = record.owners
        for place, head in enumerate(record.heads):
            number, version, seq, branch = head
            begin = first + owners.index(place)
            known = seen.heads.get(number)
            if known is None and branch:
                seen.begins[number] = (begin, version, seq)
                known = head
            elif known is None:
                known = StreamHead(number, 0, 0, 0)
            if branch != known.branch:
                yield Finding("order", begin, f"stream {number} goes over into branch {branch}", WRITER)
            if (version, seq) != known[1:3]:
                yield Finding(
                    "order",
                    begin,
                    f"stream {number} goes from version {known.version} at seq {known.seq} "
                    f"to version {version + 1} after seq {seq}",
                    WRITER,
                )
            seen.heads[number] = StreamHead(number, version + owners.count(place), first + owners.rindex(place), branch)
        going_on = seen.commands[-1] if seen.commands else 0
        if not record.marks[0] & MARK_COMMAND and record.command != going_on:
            problem = f"its command began at seq {record.command}, that of the event before at seq {going_on}"
            yield Finding("order", first, problem, WRITER)

    def _events(self, record: Record) -> Iterator[Finding]:
        seen = self.seen
        try:
            events = events_of(record)
        except StoreError:
            yield from _undecodable(record)
            seen.commands.extend(record.commands)
            return
        for place in compress(range(record.count), [mark & FLAG_ERASED for mark in record.marks]):
            array = record.array(place)
            if not isinstance(events[place], fold.Unknown) and fold.blanked(array) != array:
                problem = "the event is marked as one without a body, and its body is there"
                yield Finding("erasure", record.first_seq + place, problem)
        for seq, first in seen.repeats(self._log, record, events).items():
            yield Finding("twice", seq, f"the event is that of seq {first} once more", WRITER)
        seen.note(record, events)
        numbers = set(record.actors)
        if not numbers <= seen.actors:
            for seq, actor in enumerate(record.actors, record.first_seq):
                if actor not in seen.actors:
                    yield Finding("actor", seq, f"its actor has the number {actor}, to which no event gave a name")
        if self._is_sound and self._take is not None:
            self._take(Page(list(record.rows()), events, len(record.packed)))


def _undecodable(record: Record) -> Iterator[Finding]:
    for seq, packed in enumerate(record.arrays, record.first_seq):
        try:
            fold.decode(packed)
        except StoreCorrupt as error:
            yield Finding("record", seq, str(error))
