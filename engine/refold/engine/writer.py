"""The writer: the queue of callers, groups to records, records to the log, and, once durable, events to states.

The first caller that finds nobody at work becomes the leader and commits what waits, its own among it, as one
transaction; the others sleep until their part is done. A lone caller commits at once, on its own thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from refold import fold
from refold.engine import transaction
from refold.engine.reader import TAGS_KEY, Reader, checked_time
from refold.engine.streams import Slot, told
from refold.engine.transaction import Group, Noted, Pending, Verb
from refold.errors import InvalidInput, RefoldError, StoreBusy, StoreError
from refold.event import Event, Forked, Recorded, Stamp
from refold.limits import (
    BELL_SECONDS,
    COMMIT_WAIT_SECONDS_MAX,
    EVENT_OVERHEAD_BYTES,
    EVICTED_COUNT_MIN,
    GROUP_COUNT_MAX,
    LINGER_CALLERS_COUNT_MIN,
    LINGER_NS_MAX,
    PACKED_COUNT_MIN,
    RETRIES_COUNT_MAX,
    SALT_BYTES,
    SALTS_COUNT,
)
from refold.log.protocol import Overtaken, Row, Turn

# The committer: group to records, records to the log, and once they are durable, events to states.
#
# The only place where log and fold meet. One thread at a time is in here: ``Sequencer`` sees to that.


class Claim(NamedTuple):
    """A ticket's events in a group that is being written."""

    group: Group
    batch: transaction.Batch
    begin: int
    end: int


class Ticket:
    """One caller's place in the queue: what it wants, and what became of it."""

    __slots__ = ("claim", "error", "is_done", "noted", "place", "places", "wanted")

    def __init__(self, wanted: transaction.Verb | Pending) -> None:
        self.wanted = wanted
        self.is_done = False
        self.claim: Claim | None = None
        """What the log shows if the ticket was written; set before it is."""
        self.error: Exception | None = None
        self.place: int | None = None
        """The place in the group of a verb's event, ``None`` where it changes nothing."""
        self.places: Sequence[int] = ()
        """The places in a batch of the events that are written."""
        self.noted: Noted | Recorded | None = None
        """A verb's event with its stamp."""


class Committer:
    """Writes groups: what it acknowledges is durable, and folded from what was written."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._streams = reader.streams
        """The streams that the turn under way began with: where they were read again since, it may not go on."""
        self._salts = b""
        """Random bytes that no commit has used yet."""
        self._is_crowded = False
        """Whether another process wrote between this one's last two commits."""

    def commit(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Write what the tickets want as one durable commit; return those that have to wait for the next one.

        What is wrong with one ticket is noted on it and keeps no other from being written.
        """
        reader = self._reader
        reader.check_writable()
        if self._is_crowded:
            reader.notice()
        doors = self._doors(sum(map(_events_max, tickets)))
        tries = RETRIES_COUNT_MAX
        while True:
            # Who was refused in a turn that was overtaken stays refused: it is told so, and must not be written.
            left = [ticket for ticket in tickets if not ticket.is_done]
            try:
                return reader.log.in_turn(partial(self._take_turn, left, doors))
            except Overtaken:
                tries -= 1
                if not tries:
                    raise

    def _take_turn(self, tickets: Sequence[Ticket], doors: tuple[int, bytes], turn: Turn) -> list[Ticket]:
        """Commit in one turn at the log; ``Overtaken`` leaves what was admitted to another turn."""
        try:
            self._begin(turn)
            return self._commit(turn, tickets, doors)
        finally:
            self._reader.is_writing = False

    def commit_alone(self, name: str, event: Event, occurred_ns: int | None) -> Stamp | None:
        """Write one event whose stream is open and that needs no look at any state; ``None`` leaves it to ``commit``.

        Nearly every append is one of these, and between two flushes every line that runs is cold: here are few.
        """
        reader = self._reader
        if not reader.is_writable or self._is_crowded or self._open_slot(name) is None:
            return None
        doors = self._doors(1)
        try:
            return reader.log.in_turn(partial(self._write_alone, name, event, occurred_ns, doors))
        except Overtaken:
            return None

    def _write_alone(
        self, name: str, event: Event, occurred_ns: int | None, doors: tuple[int, bytes], turn: Turn
    ) -> Stamp | None:
        try:
            self._begin(turn)
            slot = self._open_slot(name)
            if slot is None:
                return None
            group = Group()
            group.add(slot, event, occurred_ns, 0)
            return self._seal(turn, group, doors, ())[0]
        finally:
            self._reader.is_writing = False

    def _open_slot(self, name: str) -> Slot | None:
        slot = self._reader.streams.known(name)
        if slot is None or not slot.number or slot.state is None:
            return None
        return slot if fold.is_open(slot.state) else None

    def _doors(self, events: int) -> tuple[int, bytes]:
        """Return the time and the salts of a commit; drawn before the turn, so that no caller's code runs inside."""
        reader = self._reader
        wanted = SALT_BYTES * events
        if len(self._salts) < wanted:
            # Drawn ahead: each draw lets go of the interpreter, and beside a busy thread that costs a switch interval.
            self._salts += reader.random_bytes(max(wanted, SALT_BYTES * SALTS_COUNT))
        salts, self._salts = self._salts[:wanted], self._salts[wanted:]
        return checked_time(reader.clock_ns()), salts

    def _begin(self, turn: Turn) -> None:
        """Fold what other processes wrote; until the turn ends they write nothing, and no read need look for it."""
        reader = self._reader
        self._is_crowded = turn.moved
        with reader.state_lock:
            reader.check_open()
            if turn.moved:
                reader.catch_up()
            self._streams = reader.streams
            reader.is_writing = True

    def _commit(self, turn: Turn, tickets: Sequence[Ticket], doors: tuple[int, bytes]) -> list[Ticket]:
        reader = self._reader
        reader.check_writable()
        group = Group()
        deferred: list[Ticket] = []
        admitted: list[tuple[Ticket, int, int]] = []
        for ticket in tickets:
            begin = len(group.events)
            try:
                self._admit(group, ticket)
            except transaction.Deferred:
                group.truncate(begin)
                deferred.append(ticket)
            except Exception as error:  # noqa: BLE001 - it is raised to the one caller that it concerns
                group.truncate(begin)
                ticket.error, ticket.is_done = error, True
            else:
                admitted.append((ticket, begin, len(group.events)))
        if group.events or group.requests:
            self._seal(turn, group, doors, admitted)
        for ticket, _, _ in admitted:
            self._answer(ticket)
        return deferred

    def settle(self, ticket: Ticket) -> bool:
        """Answer a ticket whose commit was cut off, if the log says that it was written; else it may be written again.

        The caller leads, so no commit is under way.
        """
        claim = ticket.claim
        if claim is None:
            return False
        # Its seqs may be those of another process, which wrote when this one could not.
        stamps = claim.batch.stamps
        if claim.begin == claim.end or self._reader.log.commit_at(stamps[-1].seq) != claim.batch.commit:
            ticket.claim = None
            return False
        self._answer(ticket)
        return True

    def _answer(self, ticket: Ticket) -> None:
        """Give a ticket what became of its events."""
        claim = ticket.claim
        if isinstance(ticket.wanted, Pending):
            if claim is not None and ticket.wanted.has_results:
                written = slice(claim.begin, claim.end)
                transaction.hand_out(
                    ticket.wanted, ticket.places, claim.group.events[written], claim.batch.stamps[written]
                )
        elif claim is not None and ticket.place is not None:
            ticket.noted = (claim.group.events[ticket.place], claim.batch.stamps[ticket.place])
        ticket.is_done = True

    def _admit(self, group: Group, ticket: Ticket) -> None:
        reader, wanted = self._reader, ticket.wanted
        if isinstance(wanted, Pending):
            ticket.places = transaction.admit_batch(reader, group, wanted, reader.head + 1)
            return
        if wanted.request is not None:
            try:
                ticket.noted = reader.answered(wanted.request)
            except LookupError:
                pass
            else:
                return
        ticket.place = transaction.admit_verb(reader, group, wanted)

    def _seal(
        self, turn: Turn, group: Group, doors: tuple[int, bytes], admitted: Sequence[tuple[Ticket, int, int]]
    ) -> list[Stamp]:
        """Write a group and fold it; return the stamps of its events."""
        reader = self._reader
        time_ns = max(doors[0], reader.time_ns)
        try:
            batch = transaction.build_records(
                group, first_seq=reader.head + 1, time_ns=time_ns, link=reader.link, salts=doors[1]
            )
            kinds = set(map(type, group.events))
            bases = {} if kinds.isdisjoint(fold.BASE_TYPES) else self._bases(group, batch)
            if self._is_read_again():
                raise Overtaken("what is in RAM was read again during a commit; nothing was written, call again")  # noqa: TRY301
            for ticket, begin, end in admitted:
                ticket.claim = Claim(group, batch, begin, end)
            try:
                fresh = self._write(turn, group, batch, kinds)
            except StoreError:
                # What the store could not write is durable to nobody, whatever the log shows.
                for ticket, _, _ in admitted:
                    ticket.claim = None
                raise
            with reader.state_lock:
                if self._is_read_again() or (group.events and reader.head >= batch.first_seq):
                    # Somebody else wrote behind this commit, and a read that had to know of that found ours as well.
                    reader.restart()
                else:
                    self._written(group, fresh)
                    if group.events:
                        self._fold(group, batch, bases)
        except BaseException:
            # Whatever cut this off, an interrupt included: what is durable is what the log says.
            reader.is_torn = True
            raise
        return batch.stamps

    def _is_read_again(self) -> bool:
        """Return whether what is in RAM is not what this turn began with: a read of another thread was cut off."""
        return self._reader.streams is not self._streams or self._streams.is_torn

    def _bases(self, group: Group, batch: transaction.Batch) -> dict[int, fold.State | None]:
        """Return the states that events start from, by seq; a fork's is built when somebody asks for it."""
        return {
            seq: None if isinstance(event, Forked) else self._reader.base_state(event, kind)
            for seq, event, kind in transaction.bases_of(group, batch)
        }

    def _write(
        self, turn: Turn, group: Group, batch: transaction.Batch, kinds: set[type[Event]]
    ) -> set[type[Event]] | None:
        """Write a commit with its rows and those that wait; return its new kinds, ``None`` if there were no rows."""
        reader = self._reader
        rows: list[Row] = transaction.derived_rows(group, batch) if group.is_citing else []
        if group.requests:
            rows += transaction.request_rows(group, batch.first_seq)
        fresh = kinds - reader.kinds_written
        if fresh:
            tags = reader.tags | {fold.TAGS[kind] for kind in fresh}
            rows.append(("meta", TAGS_KEY, msgspec.msgpack.encode(sorted(tags))))
        if group.born:
            rows += reader.streams.rows_of(list(group.born.values()))
        waiting = reader.checkpoints.waiting()
        if waiting:
            rows += reader.checkpoints.allowed(waiting)
            rows.append(reader.keeper.applied(reader.head))
        turn.write(batch.first_seq, batch.records, [batch.commit] if batch.records else (), rows)
        return fresh if fresh or group.born or waiting else None

    def _written(self, group: Group, fresh: set[type[Event]] | None) -> None:
        """Take note of what was stored beside the events; the state lock is held."""
        reader = self._reader
        if fresh is None:
            return
        reader.kinds_written |= fresh
        reader.tags |= {fold.TAGS[kind] for kind in fresh}
        reader.checkpoints.written()
        for slot in group.born.values():
            reader.streams.add(slot)
        reader.streams.next_number += len(group.born)

    def _fold(self, group: Group, batch: transaction.Batch, bases: dict[int, fold.State | None]) -> None:
        """Fold what is durable now into the states; only here do live states change."""
        reader = self._reader
        apply, note_folded = fold.fold, reader.keeper.folded
        seq, time_ns = reader.head, reader.time_ns
        with reader.state_lock:
            for slot, event, stamp, record in zip(group.slots, group.events, batch.stamps, batch.records, strict=True):
                seq, time_ns = stamp.seq, stamp.time_ns
                if bases and seq in bases:
                    slot.state = bases[seq]
                assert slot.state is not None or seq in bases, f"{slot.name} was not loaded before its commit"
                if slot.state is not None:
                    apply(slot.state, stamp, event)
                slot.version, slot.seq = stamp.version, seq
                slot.seqs.append(seq)
                slot.weight += len(record) + EVENT_OVERHEAD_BYTES
                slot.held += 1
                slot.is_used = True
                if slot.stock is not None:
                    told(slot, stamp, event)
                note_folded(slot)
                if bases and seq in bases:
                    reader.keeper.rebased(slot)
            reader.head = seq
            reader.link, reader.time_ns = batch.link, time_ns
            self._tidy_up(batch)
            reader.is_writing = False
        ring = reader.ring
        if ring is not None:
            ring()

    def _tidy_up(self, batch: transaction.Batch) -> None:
        """Keep RAM and the tail of the log within their bounds, now that a commit has made both longer."""
        reader, count = self._reader, len(batch.records)
        reader.streams.bytes += sum(map(len, batch.records)) + EVENT_OVERHEAD_BYTES * count
        if reader.residents.is_over:
            reader.residents.trim(max(EVICTED_COUNT_MIN, 2 * count))
            reader.residents.relieve()
        reader.keeper.proceed(count)
        if reader.head > reader.keeper.tail_due:
            reader.keeper.shorten_tail(reader.head, max(PACKED_COUNT_MIN, 2 * count))


def _events_max(ticket: Ticket) -> int:
    """Return how many events a ticket may come to: a batch's, or a verb's with what opens its stream."""
    return len(ticket.wanted.events) if isinstance(ticket.wanted, Pending) else 2


T = TypeVar("T")


class _Waiting(Ticket):
    """A ticket whose caller sleeps until it is done, or until it is its turn to lead."""

    __slots__ = ("bell",)

    def __init__(self, wanted: Verb | Pending) -> None:
        super().__init__(wanted)
        self.bell = threading.Lock()
        self.bell.acquire()

    def ring(self) -> None:
        """Wake the caller; a second ring before it woke changes nothing."""
        with suppress(RuntimeError):
            self.bell.release()


class Sequencer:
    """The order of all commits of one engine.

    A thread leads while it holds ``_lead``, a lock that knows its owner: who gives it back needs no note of having
    taken it, which a signal might have kept from being written.
    """

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._queue: deque[_Waiting] = deque()
        self._lead = threading.RLock()
        self._leads: Callable[[], bool] = self._lead._is_owned  # type: ignore[attr-defined]  # noqa: SLF001
        """Whether this thread leads: it must not wait for itself."""
        self._gathered = 0
        """How many callers the last group had."""

    def submit(self, wanted: Verb | Pending) -> Ticket:
        """Return the ticket of what was wanted once it is durable and folded; raises what went wrong with it."""
        self._refuse_within()
        ticket = Ticket(wanted)
        if self._queue or self._as_leader(partial(self._committer.commit, (ticket,))) is None:
            ticket = self._wait(_Waiting(wanted))
        if ticket.error is not None:
            raise ticket.error
        return ticket

    def submit_alone(self, name: str, event: Event, occurred_ns: int | None) -> Stamp | None:
        """Return the stamp of an event that needs no look at any state; ``None`` leaves it to ``submit``."""
        if self._queue or self._leads():
            return None
        return self._as_leader(partial(self._committer.commit_alone, name, event, occurred_ns))

    def submit_held(self, wanted: Verb | Pending) -> Ticket:
        """Do what ``submit`` does, for the thread that keeps every other commit out."""
        assert self._leads(), "another thread leads"
        ticket = Ticket(wanted)
        self._committer.commit((ticket,))
        if ticket.error is not None:
            raise ticket.error
        return ticket

    def exclusive(self) -> AbstractContextManager[object]:
        """Keep every commit out while something else writes; the same thread may enter again."""
        return self._lead

    def _refuse_within(self) -> None:
        if self._leads():
            raise InvalidInput(
                "a mutation was called from inside a commit (a clock, a signal handler?); call it afterwards"
            )

    def _as_leader(self, use: Callable[[], T]) -> T | None:
        """Call ``use`` and return its result if no other thread leads, else ``None``."""
        lead = self._lead
        try:
            return use() if lead.acquire(blocking=False) else None
        finally:
            try:  # noqa: SIM105 - a signal may end a Python function before its first line, and this is none
                lead.release()
            except RuntimeError:
                pass  # Another thread leads.
            # After the release: whoever queued up before it sleeps, whoever comes after it takes the lead himself.
            if self._queue:
                self._ring_next()

    def _ring_next(self) -> None:
        with suppress(IndexError):
            self._queue[0].ring()

    def _wait(self, ticket: _Waiting) -> _Waiting:
        until = time.monotonic() + COMMIT_WAIT_SECONDS_MAX
        try:
            self._queue.append(ticket)
            while not ticket.is_done:
                if self._as_leader(partial(self._lead_group, ticket)) is not None:
                    until = time.monotonic() + COMMIT_WAIT_SECONDS_MAX
                # A leader that was cut off rings nobody's bell, so nobody sleeps for long.
                elif not ticket.bell.acquire(timeout=BELL_SECONDS) and time.monotonic() > until:
                    self._give_up(ticket)
        except BaseException:
            with suppress(ValueError):
                self._queue.remove(ticket)
            raise
        return ticket

    def _give_up(self, ticket: _Waiting) -> None:
        """Raise ``StoreBusy`` if nobody has taken the ticket up; one that is being written is waited for."""
        with suppress(ValueError):
            self._queue.remove(ticket)
            raise StoreBusy(
                f"nothing was committed for COMMIT_WAIT_SECONDS_MAX = {COMMIT_WAIT_SECONDS_MAX} s, so this is not "
                f"written; see which process holds the store, and call again"
            )

    def _linger(self) -> None:
        """Give the callers of the last group a moment to come back: without it, threads commit in halves."""
        if self._gathered < LINGER_CALLERS_COUNT_MIN:
            return
        end_ns = time.perf_counter_ns() + LINGER_NS_MAX
        while len(self._queue) < self._gathered and time.perf_counter_ns() < end_ns:
            time.sleep(0)

    def _lead_group(self, own: _Waiting) -> int:
        """Commit what waits as one group; return how many callers that are."""
        if own not in self._queue:
            # A leader that was cut off had taken it.
            if own.is_done or self._committer.settle(own):
                return 1
            self._queue.appendleft(own)
        self._linger()
        taken = [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_COUNT_MAX))]
        self._gathered = len(taken)
        deferred: list[Ticket] = []
        try:
            deferred = self._committer.commit(taken)
        except Exception as error:  # noqa: BLE001 - every caller of the group is told
            for ticket in taken:
                if not ticket.is_done and not self._committer.settle(ticket):
                    _refuse(ticket, error)
        finally:
            self._queue.extendleft(ticket for ticket in reversed(taken) if ticket in deferred)
            for ticket in taken:
                if ticket.is_done:
                    ticket.ring()
        return len(taken)


def _refuse(ticket: Ticket, error: Exception) -> None:
    """Tell a caller what went wrong, in an exception of its own: tracebacks are not shared between threads."""
    ticket.error = type(error)(*error.args) if isinstance(error, RefoldError) else error
    ticket.is_done = True
