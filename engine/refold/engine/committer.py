"""The committer: group to records, records to the log, and once they are durable, events to states.

The only place where log and fold meet. One thread at a time is in here: ``Sequencer`` sees to that.
"""

from collections.abc import Sequence

import msgspec

from refold import fold
from refold.engine import admission, times, writer
from refold.engine.group import Group
from refold.engine.loader import Recorded
from refold.engine.pending import Noted, Pending
from refold.engine.reading import TAGS_KEY, Reading
from refold.engine.slots import Slot, told
from refold.errors import StoreError
from refold.event import Event, Forked, Stamp
from refold.limits import (
    EVENT_OVERHEAD_BYTES,
    EVICTED_COUNT_MIN,
    PACKED_COUNT_MIN,
    RETRIES_COUNT_MAX,
    SALT_BYTES,
    SALTS_COUNT,
)
from refold.store.protocol import Overtaken, Row, Turn


class Ticket:
    """One caller's place in the queue: what it wants, and what became of it."""

    __slots__ = ("error", "is_done", "noted", "place", "places", "wanted")

    def __init__(self, wanted: admission.Verb | Pending) -> None:
        self.wanted = wanted
        self.is_done = False
        self.error: Exception | None = None
        self.place: int | None = None
        """The place in the group of a verb's event, ``None`` where it changes nothing."""
        self.places: Sequence[int] = ()
        """The places in a batch of the events that are written."""
        self.noted: Noted | Recorded | None = None
        """A verb's event with its stamp."""


class Committer:
    """Writes groups: what it acknowledges is durable, and folded from what was written."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._under_way: writer.Batch | None = None
        """The last group that was handed to the log."""
        self._salts = b""
        """Random bytes that no commit has used yet."""
        self._is_crowded = False
        """Whether another process wrote between this one's last two commits."""

    def commit(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Write what the tickets want as one durable commit; return those that have to wait for the next one.

        What is wrong with one ticket is noted on it and keeps no other from being written.
        """
        reading = self._reading
        reading.check_writable()
        if self._is_crowded:
            reading.notice()
        doors = self._doors(sum(map(_events_max, tickets)))
        tries = RETRIES_COUNT_MAX
        while True:
            try:
                # Who was refused in a turn that was overtaken stays refused: it is told so, and must not be written.
                return self._take_turn([ticket for ticket in tickets if not ticket.is_done], doors)
            except Overtaken:
                tries -= 1
                if not tries:
                    raise

    def _take_turn(self, tickets: Sequence[Ticket], doors: tuple[int, bytes]) -> list[Ticket]:
        """Commit in one turn at the log; ``Overtaken`` leaves what was admitted to another turn."""
        reading = self._reading
        with reading.log.turn() as turn:
            self._begin(turn)
            try:
                return self._commit(turn, tickets, doors)
            finally:
                reading.is_writing = False

    def commit_alone(self, name: str, event: Event, occurred_ns: int | None) -> Stamp | None:
        """Write one event whose stream is open and that needs no look at any state; ``None`` leaves it to ``commit``.

        Nearly every append is one of these, and between two flushes every line that runs is cold: here are few.
        """
        reading = self._reading
        if not reading.is_writable or self._is_crowded or self._open_slot(name) is None:
            return None
        doors = self._doors(1)
        with reading.log.turn() as turn:
            self._begin(turn)
            try:
                slot = self._open_slot(name)
                if slot is None:
                    return None
                group = Group()
                group.add(slot, event, occurred_ns, 0)
                return self._seal(turn, group, doors)[0]
            except Overtaken:
                return None
            finally:
                reading.is_writing = False

    def _open_slot(self, name: str) -> Slot | None:
        slot = self._reading.streams.known(name)
        if slot is None or not slot.number or slot.state is None:
            return None
        return slot if fold.is_open(slot.state) else None

    def _doors(self, events: int) -> tuple[int, bytes]:
        """Return the time and the salts of a commit; drawn before the turn, so that no caller's code runs inside."""
        reading = self._reading
        wanted = SALT_BYTES * events
        if len(self._salts) < wanted:
            # Drawn ahead: each draw lets go of the interpreter, and beside a busy thread that costs a switch interval.
            self._salts += reading.random_bytes(max(wanted, SALT_BYTES * SALTS_COUNT))
        salts, self._salts = self._salts[:wanted], self._salts[wanted:]
        return times.checked(reading.clock_ns()), salts

    def _begin(self, turn: Turn) -> None:
        """Fold what other processes wrote; until the turn ends they write nothing, and no read need look for it."""
        reading = self._reading
        self._is_crowded = turn.moved
        with reading.state_lock:
            if turn.moved:
                reading.catch_up()
            reading.is_writing = True

    def _commit(self, turn: Turn, tickets: Sequence[Ticket], doors: tuple[int, bytes]) -> list[Ticket]:
        reading = self._reading
        reading.check_writable()
        group = Group()
        deferred: list[Ticket] = []
        admitted: list[tuple[Ticket, int, int]] = []
        for ticket in tickets:
            begin = len(group.events)
            try:
                self._admit(group, ticket)
            except admission.Deferred:
                group.truncate(begin)
                deferred.append(ticket)
            except Exception as error:  # noqa: BLE001 - it is raised to the one caller that it concerns
                group.truncate(begin)
                ticket.error, ticket.is_done = error, True
            else:
                admitted.append((ticket, begin, len(group.events)))
        stamps: Sequence[Stamp] = ()
        try:
            stamps = self._seal(turn, group, doors) if group.events or group.requests else ()
        except BaseException as error:
            # An interrupt may come when everything is durable already: then it must not be written once more. What the
            # store itself could not write is durable to nobody, whatever the log shows.
            answered, admitted = admitted, []
            stamps = () if isinstance(error, StoreError) else self._durable()
            if stamps:
                admitted = answered
            raise
        finally:
            for ticket, begin, end in admitted:
                _answer(ticket, group, stamps, begin, end)
        return deferred

    def _admit(self, group: Group, ticket: Ticket) -> None:
        reading, wanted = self._reading, ticket.wanted
        if isinstance(wanted, Pending):
            ticket.places = admission.admit_batch(reading, group, wanted, reading.head + 1)
            return
        if wanted.request is not None:
            try:
                ticket.noted = reading.answered(wanted.request)
            except LookupError:
                pass
            else:
                return
        ticket.place = admission.admit_verb(reading, group, wanted)

    def _seal(self, turn: Turn, group: Group, doors: tuple[int, bytes]) -> list[Stamp]:
        """Write a group and fold it; return the stamps of its events."""
        reading = self._reading
        self._under_way = None
        time_ns = max(doors[0], reading.time_ns)
        try:
            batch = writer.build(group, first_seq=reading.head + 1, time_ns=time_ns, link=reading.link, salts=doors[1])
            self._under_way = batch
            kinds = set(map(type, group.events))
            bases = {} if kinds.isdisjoint(fold.BASE_TYPES) else self._bases(group, batch)
            fresh = self._write(turn, group, batch, kinds)
            with reading.state_lock:
                if group.events and reading.head >= batch.first_seq:
                    # Somebody else wrote behind this commit, and a read that had to know of that found ours as well.
                    reading.restart()
                else:
                    self._written(group, fresh)
                    if group.events:
                        self._fold(group, batch, bases)
        except BaseException:
            # Whatever cut this off, an interrupt included: what is durable is what the log says.
            with reading.state_lock:
                reading.restart()
            raise
        return batch.stamps

    def _durable(self) -> Sequence[Stamp]:
        """Return the stamps of the group that was cut off, if the log says that it was written."""
        batch = self._under_way
        if batch is None or not batch.stamps:
            return ()
        # Its seqs may be those of another process, which wrote when this one could not.
        return batch.stamps if self._reading.log.commit_at(batch.stamps[-1].seq) == batch.commit else ()

    def _bases(self, group: Group, batch: writer.Batch) -> dict[int, fold.State | None]:
        """Return the states that events start from, by seq; a fork's is built when somebody asks for it."""
        return {
            seq: None if isinstance(event, Forked) else self._reading.base_state(event, kind)
            for seq, event, kind in writer.bases(group, batch)
        }

    def _write(self, turn: Turn, group: Group, batch: writer.Batch, kinds: set[type[Event]]) -> set[type[Event]] | None:
        """Write a commit with its rows and those that wait; return its new kinds, ``None`` if there were no rows."""
        reading = self._reading
        rows: list[Row] = writer.derived_rows(group, batch) if group.is_citing else []
        if group.requests:
            rows += writer.request_rows(group, batch.first_seq)
        fresh = kinds - reading.kinds_written
        if fresh:
            tags = reading.tags | {fold.TAGS[kind] for kind in fresh}
            rows.append(("meta", TAGS_KEY, msgspec.msgpack.encode(sorted(tags))))
        if group.born:
            rows += reading.streams.rows_of(list(group.born.values()))
        waiting = reading.checkpoints.waiting()
        if waiting:
            rows += reading.checkpoints.allowed(waiting)
            rows.append(reading.keeper.applied(reading.head))
        turn.write(batch.first_seq, batch.records, [batch.commit] if batch.records else (), rows)
        return fresh if fresh or group.born or waiting else None

    def _written(self, group: Group, fresh: set[type[Event]] | None) -> None:
        """Take note of what was stored beside the events; the state lock is held."""
        reading = self._reading
        if fresh is None:
            return
        reading.kinds_written |= fresh
        reading.tags |= {fold.TAGS[kind] for kind in fresh}
        reading.checkpoints.written()
        for slot in group.born.values():
            reading.streams.add(slot)
        reading.streams.next_number += len(group.born)

    def _fold(self, group: Group, batch: writer.Batch, bases: dict[int, fold.State | None]) -> None:
        """Fold what is durable now into the states; only here do live states change."""
        reading = self._reading
        apply, note_folded = fold.fold, reading.keeper.folded
        seq, time_ns = reading.head, reading.time_ns
        with reading.state_lock:
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
                    reading.keeper.rebased(slot)
            reading.head = seq
            reading.link, reading.time_ns = batch.link, time_ns
            self._tidy_up(batch)
            reading.is_writing = False
        ring = reading.ring
        if ring is not None:
            ring()

    def _tidy_up(self, batch: writer.Batch) -> None:
        """Keep RAM and the tail of the log within their bounds, now that a commit has made both longer."""
        reading, count = self._reading, len(batch.records)
        reading.streams.bytes += sum(map(len, batch.records)) + EVENT_OVERHEAD_BYTES * count
        if reading.residents.is_over:
            reading.residents.trim(max(EVICTED_COUNT_MIN, 2 * count))
            reading.residents.relieve()
        reading.keeper.proceed(count)
        if reading.head > reading.keeper.tail_due:
            reading.keeper.shorten_tail(reading.head, max(PACKED_COUNT_MIN, 2 * count))


def _events_max(ticket: Ticket) -> int:
    """Return how many events a ticket may come to: a batch's, or a verb's with what opens its stream."""
    return len(ticket.wanted.events) if isinstance(ticket.wanted, Pending) else 2


def _answer(ticket: Ticket, group: Group, stamps: Sequence[Stamp], begin: int, end: int) -> None:
    """Give a ticket what became of its events."""
    ticket.is_done = True
    if isinstance(ticket.wanted, Pending):
        if ticket.wanted.has_results:
            writer.hand_out(ticket.wanted, ticket.places, group.events[begin:end], stamps[begin:end])
    elif ticket.place is not None:
        ticket.noted = (group.events[ticket.place], stamps[ticket.place])
