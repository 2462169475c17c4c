"""The writer: the queue of callers, groups to records, records to the log, and, once durable, events to states.

The first caller that finds no other thread at work becomes the leader and commits everything that waits, including its
own request, as one transaction; the followers sleep until their part is done. A lone caller commits at once, on its own
thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from refold import fold
from refold.engine.commit import bases_of
from refold.engine.observer import COMMIT
from refold.engine.reader import TAGS_KEY, Reader, Request, check_time
from refold.engine.streams import Stream, Streams, rows_of, update_index
from refold.engine.transaction import CommitSeed, Group, GroupCommit, GroupConflict, Mutation, Transaction, build_commit
from refold.errors import InvalidInput, RefoldError, StoreBusy, StoreError, StoreUnreachable
from refold.event import Event, Forked, Recorded, Stamp
from refold.limits import (
    BELL_SECONDS,
    CHECKPOINT_EVENTS,
    CLOCK_BEHIND_NS,
    COMMIT_WAIT_SECONDS_MAX,
    EVICTED_COUNT_MIN,
    GROUP_COUNT_MAX,
    LINGER_CALLERS_COUNT_MIN,
    LINGER_LATE_COUNT_MAX,
    LINGER_LOOKS_COUNT,
    LINGER_NS_MAX,
    PACKED_COUNT_MIN,
    SEED_BYTES,
    SEEDS_COUNT,
    TIME_NS_MAX,
    TURN_SECONDS_MAX,
    TURNS_COUNT_MIN,
)
from refold.log.protocol import LogTurn, Row, TurnLost
from refold.threads import forkable_lock

T = TypeVar("T")

_YIELD_SECONDS: Final = 0.001


class Claim(Struct, frozen=True):
    """A ticket's events in a commit that is being written."""

    commit: GroupCommit
    begin: int
    end: int


class Ticket(Struct, eq=False):
    """One caller's place in the queue, with its request and the outcome."""

    request: Mutation | Transaction
    is_done: bool = False
    claim: Claim | None = None
    """The events that the log holds if the ticket was written; set before the write."""
    error: Exception | None = None
    places: Sequence[int] = ()
    """The places of the written events in the transaction."""
    recorded: Recorded | None = None
    """A mutation's event with its stamp, which is complete once it is durable; ``None`` if nothing changes."""
    bell: Any = None
    """A lock that the caller of a queued ticket sleeps on until the ticket is done, or until it must lead."""

    def ring(self) -> None:
        """Wake the caller; a second ring before it wakes has no effect."""
        with suppress(RuntimeError):
            self.bell.release()


class Writer:
    """Writes the requests of callers; acknowledged events are durable, and folded in their written form.

    One thread at a time is the leader: the one that holds ``_lead``. The lock records its owner, so releasing it does
    not depend on a flag that a signal could have prevented from being set.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.server = ""
        """The address of the log, if it is on a server."""
        self._streams: Streams = reader.streams
        """The streams with which the current turn began; if they were read again since, the turn must not go on."""
        self._seeds = b""
        """Random bytes that no commit has used yet."""
        self._is_crowded = False
        """Whether another process wrote between this one's last two commits."""
        self._queue: deque[Ticket] = deque()
        self._lead = forkable_lock()
        self._leads: Callable[[], bool] = self._lead._is_owned  # type: ignore[attr-defined]  # noqa: SLF001
        """Returns whether this thread is the leader, which must not wait for itself."""
        self._callers = 0
        """Number of callers about to write: those that wait, and those that were just answered."""
        self._commit_ns = 0
        """Duration of the last group commit, in nanoseconds."""
        self._late_count = 0
        """Number of groups left to commit without lingering, because callers last returned too late."""
        self._late_count_next = 1

    def submit(self, request: Mutation | Transaction, *, is_exclusive: bool = False) -> Recorded | None:
        """Write a request durably and fold it; return a mutation's event with its stamp, ``None`` if nothing changes.

        ``is_exclusive`` is for the thread that keeps every other commit out. Raises the error of the request, if it
        failed.
        """
        ticket = Ticket(request)
        if self._leads():
            if not is_exclusive:
                raise InvalidInput(
                    "a mutation was called from inside a commit (a clock, a signal handler?); call it afterwards"
                )
            self.write([ticket])
        # Lead alone and write alone, unless others are about to write too or turns at the log have to be waited for.
        elif (
            self._queue
            or self._is_crowded
            or (self._callers >= LINGER_CALLERS_COUNT_MIN and not self._late_count)
            or self._as_leader(partial(self.write, [ticket])) is None
        ):
            self._wait(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.recorded

    def observe(self) -> None:
        """Let the reader's observer measure each ``submit`` from now on."""
        submit, reader = self.submit, self._reader

        def measure_submit(request: Mutation | Transaction, *, is_exclusive: bool = False) -> Recorded | None:
            assert reader.observer is not None
            with reader.observer.operation(COMMIT):
                return submit(request, is_exclusive=is_exclusive)

        self.submit = measure_submit  # type: ignore[method-assign]

    def exclusive(self) -> AbstractContextManager[object]:
        """Return a context manager that keeps every commit out while something else writes; it is reentrant."""
        return self._lead

    def store(self, rows: Sequence[Row], is_current: Callable[[], bool] = lambda: True) -> bool:
        """Write rows of a cache in a turn of their own, if they still hold then; return whether they do.

        Waits for the current leader; other threads can still queue.
        """
        if not rows:
            return is_current()
        while True:
            with suppress(TurnLost):
                put = partial(self.put, rows, is_current=is_current)
                stored = self._as_leader(partial(self._reader.log.in_turn, put))
                if stored is not None:
                    return stored
            time.sleep(_YIELD_SECONDS)
            self._reader.notice()

    def put(self, rows: Sequence[Row], turn: LogTurn, is_current: Callable[[], bool] = lambda: True) -> bool:
        """Write rows of a cache in a turn, if they still hold then; return whether they do. The caller leads."""
        reader = self._reader
        reader.check_writable()
        try:
            with reader.state_lock:
                if turn.last_commit != reader.last_commit:
                    reader.catch_up()
                if not is_current():
                    return False
                reader.is_writing = True
            reader.last_commit = turn.write((), reader.checkpoints.allowed_rows(rows))
            return True
        finally:
            reader.is_writing = False

    def disown(self) -> None:
        """Forget the commits of the parent's threads in a forked child, which has none of them."""
        self._queue.clear()
        self._is_crowded = self._reader.is_writing = False

    # The queue.

    def _as_leader(self, use: Callable[[], T]) -> T | None:
        """Call ``use`` and return its result if no other thread leads, else ``None``."""
        lead = self._lead
        try:
            return use() if lead.acquire(blocking=False) else None
        finally:
            try:  # Not a function: a signal can end a Python function before its first line.
                lead.release()
            except RuntimeError:
                # Another thread leads. If this one is next in the queue, ringing would wake itself, and it would poll
                # again and again instead of sleeping: 16 threads wrote at a quarter of the rate of one.
                pass
            else:
                # After the release: a caller that queued before it is asleep, and one that comes after it takes the
                # lead itself.
                if self._queue:
                    with suppress(IndexError):
                        self._queue[0].ring()

    def _wait(self, ticket: Ticket) -> None:
        """Queue a ticket and sleep until it is done, by this thread if it is its turn to lead."""
        ticket.bell = threading.Lock()
        ticket.bell.acquire()
        until = time.monotonic() + COMMIT_WAIT_SECONDS_MAX
        try:
            self._queue.append(ticket)
            while not ticket.is_done:
                if self._as_leader(partial(self._write_queue, ticket)) is not None:
                    until = time.monotonic() + COMMIT_WAIT_SECONDS_MAX
                # A leader that was interrupted wakes no follower, so followers sleep only briefly.
                elif not ticket.bell.acquire(timeout=BELL_SECONDS) and time.monotonic() > until:
                    self._give_up(ticket)
        except BaseException:
            with suppress(ValueError):
                self._queue.remove(ticket)
            raise

    def _give_up(self, ticket: Ticket) -> None:
        """Raise if no leader has taken the ticket; if one is writing it, keep waiting."""
        with suppress(ValueError):
            self._queue.remove(ticket)
            since = f"nothing was committed for COMMIT_WAIT_SECONDS_MAX = {COMMIT_WAIT_SECONDS_MAX} s, so this is not"
            if self.server:
                raise StoreUnreachable(f"{self.server} does not answer: {since} written; see that it runs, call again")
            raise StoreBusy(f"{since} written; see which process holds the store, and call again")

    def _linger(self) -> None:
        """Wait a moment for the callers that were just answered: otherwise each commit takes only half of the threads.

        This pays off if they come back sooner than a commit takes. If they do not, it is skipped for some groups, twice
        as many each time.
        """
        callers = min(self._callers, GROUP_COUNT_MAX)
        if callers < LINGER_CALLERS_COUNT_MIN or len(self._queue) >= callers:
            return
        if self._late_count:
            self._late_count -= 1
            return
        linger_ns = min(self._commit_ns // 2, LINGER_NS_MAX)
        end_ns = time.perf_counter_ns() + linger_ns
        while len(self._queue) < callers:
            if time.perf_counter_ns() > end_ns:
                self._late_count = self._late_count_next
                self._late_count_next = min(2 * self._late_count_next, LINGER_LATE_COUNT_MAX)
                return
            time.sleep(linger_ns / LINGER_LOOKS_COUNT / 1e9)
        self._late_count_next = 1

    def _write_queue(self, own: Ticket) -> int:
        """Write the waiting tickets as one group, and return how many there were."""
        if own not in self._queue:
            # A leader that was interrupted had taken it.
            if own.is_done or self._settle(own):
                return 1
            self._queue.appendleft(own)
        self._linger()
        tickets = [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_COUNT_MAX))]
        deferred: list[Ticket] = []
        begin_ns = time.perf_counter_ns()
        try:
            deferred = self.write(tickets, self._queue)
        except Exception as error:  # noqa: BLE001 - every caller of the group gets it
            for ticket in tickets:
                if not ticket.is_done and not self._settle(ticket):
                    # A separate exception for each, because threads must not share tracebacks.
                    ticket.error = type(error)(*error.args) if isinstance(error, RefoldError) else error
                    ticket.is_done = True
        finally:
            self._queue.extendleft(ticket for ticket in reversed(tickets) if ticket in deferred)
            for ticket in tickets:
                if ticket.is_done:
                    ticket.ring()
        self._commit_ns = time.perf_counter_ns() - begin_ns
        self._callers = len(self._queue) + len(tickets)
        return len(tickets)

    # A group.

    def write(self, tickets: list[Ticket], queue: deque[Ticket] | None = None) -> list[Ticket]:
        """Write the requests of the tickets as one durable commit; return those that have to wait for the next one.

        The caller is the leader. An error of one ticket is recorded on it and does not keep others from being written.
        If the turn at the log had to be waited for, tickets that were queued meanwhile are added to ``tickets``.
        """
        reader = self._reader
        if not reader.is_writable:
            reader.check_writable()
        if self._is_crowded:
            reader.check_open()
            reader.notice()
        until, lost_count = 0.0, 0
        while True:
            if not self._seeds:
                # Drawn ahead: each draw releases the GIL, which costs 5 ms when another thread is busy.
                self._seeds = reader.random_bytes(SEED_BYTES * SEEDS_COUNT)
            # An interrupt between two of these steps loses a seed; none is ever used twice.
            drawn, self._seeds = self._seeds[:SEED_BYTES], self._seeds[SEED_BYTES:]
            time_ns = reader.clock_ns()
            seed = CommitSeed(time_ns if -TIME_NS_MAX <= time_ns <= TIME_NS_MAX else check_time(time_ns), drawn)
            if reader.time_ns - time_ns > CLOCK_BEHIND_NS:
                reader.warn_of_clock(time_ns)
            try:
                return reader.log.in_turn(partial(self._take_turn, tickets, queue, seed))
            except TurnLost:
                now = time.monotonic()
                until = until or now + TURN_SECONDS_MAX
                lost_count += 1
                if now > until and lost_count >= TURNS_COUNT_MIN:
                    raise
                reader.notice()

    def _take_turn(
        self, tickets: list[Ticket], queue: deque[Ticket] | None, seed: CommitSeed, turn: LogTurn
    ) -> list[Ticket]:
        """Admit the tickets and commit them in one turn at the log; ``TurnLost`` leaves them to another turn."""
        reader = self._reader
        try:
            self._is_crowded = turn.last_commit != reader.last_commit
            with reader.state_lock:
                if reader.is_torn or reader.streams.is_torn or not reader.is_writable:
                    reader.check_open()
                # No other process writes until the turn ends, so reads need not look for new commits.
                if self._is_crowded:
                    reader.catch_up()
                    _join(tickets, queue)
                self._streams = reader.streams
                reader.is_writing = True
            if not reader.is_writable:
                reader.check_writable()
            group = Group(reader)
            deferred: list[Ticket] = []
            admitted: list[tuple[Ticket, int, int]] = []
            refused: list[Ticket] = []
            for ticket in tickets:
                begin = len(group.events)
                try:
                    ticket.error, request = None, ticket.request
                    if isinstance(request, Transaction):
                        ticket.places = group.adopt(request)
                    elif request.request is None or not self._is_answered(ticket, request.request):
                        if request.request is not None and request.request.id_hash in group.requests:
                            raise GroupConflict  # noqa: TRY301 - as when a decision waits for the next group
                        ticket.recorded = group.apply(request)
                        group.starts.append(group.command)
                except GroupConflict:
                    group.truncate(begin)
                    deferred.append(ticket)
                except Exception as error:  # noqa: BLE001 - raised to the one caller that it concerns
                    group.truncate(begin)
                    ticket.error = error
                    refused.append(ticket)
                else:
                    first = max(begin, group.command)  # An event that names an actor is not part of the command.
                    admitted.append((ticket, first, len(group.events)))
            if group.events or group.requests:
                self._commit(turn, group, seed, admitted)
            elif not turn.is_current():
                raise TurnLost("another machine wrote meanwhile; nothing was written, call again")
            for ticket, _, _ in admitted:
                self._answer(ticket)
            # Only now: the refusal may depend on events of this group, which might never have been written.
            for ticket in refused:
                ticket.is_done = True
            return deferred
        finally:
            reader.is_writing = False

    def _is_answered(self, ticket: Ticket, request: Request) -> bool:
        """Return whether a request was answered before; if so, give the ticket that answer."""
        try:
            ticket.recorded = self._reader.find_answer(request)
        except LookupError:
            return False
        return True

    def _settle(self, ticket: Ticket) -> bool:
        """Answer a ticket whose commit was interrupted, if the log has it; otherwise it can be written again.

        The caller is the leader, so no commit is underway.
        """
        claim = ticket.claim
        if claim is None:
            return False
        # Its seqs may be those of another process that wrote when this one could not.
        last = claim.commit.records[-1:]
        if claim.begin == claim.end or self._reader.log.read(last[0][0] - 1, last[0][0]) != last:
            ticket.claim = ticket.recorded = None
            return False
        claim.commit.settle()
        self._answer(ticket)
        return True

    def _answer(self, ticket: Ticket) -> None:
        """Give a ticket the outcome of its events."""
        claim, request = ticket.claim, ticket.request
        if claim is not None and isinstance(request, Transaction):
            request.settle(ticket.places, claim.commit.group.events[claim.begin : claim.end], claim.commit.clock_ns)
        ticket.is_done = True

    # A commit.

    def _commit(
        self, turn: LogTurn, group: Group, seed: CommitSeed, admitted: Sequence[tuple[Ticket, int, int]]
    ) -> None:
        """Write a group and fold it."""
        reader = self._reader
        try:
            commit = build_commit(group, seed, first_seq=reader.head + 1, after_ns=reader.time_ns, link=reader.link)
            types = set(map(type, group.events))
            # The state of a fork is built on demand.
            bases = (
                {}
                if types.isdisjoint(fold.BASE_TYPES)
                else {
                    seq: None if isinstance(event, Forked) else reader.base_state(event, kind)
                    for seq, event, kind in bases_of(group.keys, group.events, commit.first_seq)
                }
            )
            new_tags: set[int] = (
                set() if types <= reader.types_written else {fold.TAGS[kind] for kind in types - reader.types_written}
            )
            rows = commit.rows
            if new_tags:
                rows.append(("meta", TAGS_KEY, msgspec.msgpack.encode(sorted(reader.tags | new_tags))))
            if group.new_streams:
                rows += rows_of(list(group.new_streams.values()))
            waiting = reader.checkpoints.waiting
            if waiting:
                rows += reader.checkpoints.allowed_rows(waiting)
                rows.append(reader.packer.applied_seq_row(reader.head))
            if reader.streams is not self._streams or self._streams.is_torn:
                raise TurnLost("what is in RAM was read again during a commit; nothing was written, call again")  # noqa: TRY301
            for ticket, begin, end in admitted:
                ticket.claim = Claim(commit, begin, end)
            try:
                reader.last_commit = turn.write(commit.records, rows)
            except StoreError:
                # Events that the store failed to write are durable for no caller, whatever the log shows.
                for ticket, _, _ in admitted:
                    ticket.claim = None
                raise
            if reader.observer is not None:
                reader.observer.record_commit(len(group.events), sum(len(packed) for _, packed in commit.records))
            with reader.state_lock:
                is_read_again = reader.streams is not self._streams or self._streams.is_torn
                if is_read_again or (group.events and reader.head >= commit.first_seq):
                    # Another process wrote after this commit, and a read that had to catch up with it folded ours as
                    # well.
                    reader.restart()
                    return
                if new_tags or waiting or group.new_streams:
                    reader.tags |= new_tags
                    reader.types_written |= types
                    reader.checkpoints.clear_waiting()
                    for stream in group.new_streams.values():
                        reader.streams.add(stream)
                    reader.streams.next_number += len(group.new_streams)
                if group.events:
                    self._fold(commit, bases)
        except TurnLost:
            raise  # Nothing was written, and nothing folded.
        except BaseException:
            # Whatever ended this, an interrupt included, the log alone tells which events are durable.
            reader.is_torn = True
            raise

    def _fold(self, commit: GroupCommit, bases: dict[int, fold.State | None]) -> None:
        """Fold the events of a commit, now durable, into the live states; the caller holds the state lock."""
        reader, group = self._reader, commit.group
        commit.settle()
        is_cut = False
        for key, places in group.places.items():
            first, end = places[0], places[-1] + 1
            if end - first == len(places):
                stamps, events, sizes = group.stamps[first:end], group.events[first:end], commit.sizes[first:end]
            else:
                stamps, events = [group.stamps[place] for place in places], [group.events[place] for place in places]
                sizes = [commit.sizes[place] for place in places]
            is_cut |= self._fold_run(group.streams[key], stamps, events, sizes, bases)
        if is_cut and len(group.places) > 1:
            # Uncovered events behind a row of one stream were recorded before the first events of the next stream.
            reader.packer.sort_dirty()
        count = len(commit.sizes)
        reader.head, reader.link, reader.time_ns = commit.first_seq + count - 1, commit.link, commit.time_ns
        # RAM and the tail of the log have both grown; keep them within their bounds.
        eviction, packer = reader.eviction, reader.packer
        if reader.streams.bytes > eviction.share_bytes and eviction.is_over:
            eviction.trim(max(EVICTED_COUNT_MIN, 2 * count))
            eviction.release_pages()
        if packer.underway:
            packer.proceed(count)
        if reader.head > packer.tail_due:
            packer.shorten_tail(reader.head, max(PACKED_COUNT_MIN, 2 * count))
        reader.is_writing = False
        if reader.ring is not None:
            reader.ring()
        if reader.follow is not None:
            reader.follow(group.streams.values(), commit.first_seq)

    def _fold_run(
        self,
        stream: Stream,
        stamps: Sequence[Stamp],
        events: Sequence[Event],
        sizes: Sequence[int],
        bases: dict[int, fold.State | None],
    ) -> bool:
        """Fold the events of one stream in runs, each of events between which nothing else has to be done.

        Returns whether a row of its state was started in between.
        """
        packer, begin, count, is_cut = self._reader.packer, 0, len(events), False
        while begin < count:
            run, run_events, run_sizes = stamps, events, sizes
            if count > 1:
                end = begin + 1
                if not bases and stream.index is None:
                    # A run ends at the event for which the next row is due, unless a row is being packed.
                    is_packing = stream.number in packer.underway
                    room = count if is_packing else (stream.due or CHECKPOINT_EVENTS) - len(stream.seqs)
                    end = begin + max(min(room, count - begin), 1)
                run, run_events, run_sizes = stamps[begin:end], events[begin:end], sizes[begin:end]
            begin += len(run)
            is_base = bool(bases) and run[0].seq in bases
            if is_base:
                stream.state = bases[run[0].seq]
            if stream.state is not None:
                fold.fold_run(stream.state, run, run_events)
            else:
                assert is_base, f"{stream.name} was not loaded before its commit"
            self._reader.streams.advance(stream, run, sum(run_sizes))
            if stream.index is not None:
                update_index(stream, run[0], run_events[0])
            if len(stream.seqs) >= (stream.due or CHECKPOINT_EVENTS):
                packer.keep(stream)
                is_cut = True
            if is_base:
                packer.keep_base(stream)
                is_cut = True
        return is_cut


def _join(tickets: list[Ticket], queue: deque[Ticket] | None) -> None:
    """Add tickets from a queue, as many as there is room for."""
    while queue and len(tickets) < GROUP_COUNT_MAX:
        tickets.append(queue.popleft())
