"""The sequencer: who commits when.

The first caller that finds nobody at work becomes the leader and commits what waits, its own among it, as one
transaction; the others sleep until their part is done. A lone caller commits at once, on its own thread.
"""

import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress

from refold.engine.admission import Verb
from refold.engine.committer import Committer, Ticket
from refold.engine.pending import Pending
from refold.errors import InvalidInput, RefoldError, StoreBusy
from refold.event import Event, Stamp
from refold.limits import COMMIT_WAIT_SECONDS_MAX, GROUP_COUNT_MAX, LINGER_CALLERS_COUNT_MIN, LINGER_NS_MAX


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
    """The order of all commits of one engine."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._queue: deque[_Waiting] = deque()
        self._lead = threading.Lock()
        self._leader = 0
        """The thread that leads, 0 for none: a thread must not wait for itself."""
        self._gathered = 0
        """How many callers the last group had."""

    def submit(self, wanted: Verb | Pending) -> Ticket:
        """Return the ticket of what was wanted once it is durable and folded; raises what went wrong with it."""
        if not self._queue and self._lead.acquire(blocking=False):
            ticket = Ticket(wanted)
            try:
                self._leader = threading.get_ident()
                self._committer.commit((ticket,))
            finally:
                self._step_down()
        else:
            ticket = self._wait(_Waiting(wanted))
        if ticket.error is not None:
            raise ticket.error
        return ticket

    def submit_alone(self, name: str, event: Event, occurred_ns: int | None) -> Stamp | None:
        """Return the stamp of an event that needs no look at any state; ``None`` leaves it to ``submit``."""
        if self._queue or not self._lead.acquire(blocking=False):
            return None
        try:
            self._leader = threading.get_ident()
            return self._committer.commit_alone(name, event, occurred_ns)
        finally:
            self._step_down()

    def submit_held(self, wanted: Verb | Pending) -> Ticket:
        """Do what ``submit`` does, for the thread that keeps every other commit out."""
        assert self._leader == threading.get_ident(), "somebody else leads"
        ticket = Ticket(wanted)
        self._committer.commit((ticket,))
        if ticket.error is not None:
            raise ticket.error
        return ticket

    @contextmanager
    def exclusive(self) -> Generator[None]:
        """Keep every commit out while something else writes; the same thread may enter again."""
        if self._leader == threading.get_ident():
            yield
            return
        self._lead.acquire()
        with self._leading():
            yield

    @contextmanager
    def _leading(self) -> Generator[None]:
        """Hold the lead, which was just taken, until the block ends."""
        self._leader = threading.get_ident()
        try:
            yield
        finally:
            self._step_down()

    def _step_down(self) -> None:
        self._leader = 0
        self._lead.release()
        # After the release: whoever queued up before it sleeps, whoever comes after it takes the lead himself.
        with suppress(IndexError):
            self._queue[0].ring()

    def _wait(self, ticket: _Waiting) -> _Waiting:
        if self._leader == threading.get_ident():
            message = "a mutation was called from inside a commit (a clock, a signal handler?); call it afterwards"
            raise InvalidInput(message)
        self._queue.append(ticket)
        try:
            while not ticket.is_done:
                if self._lead.acquire(blocking=False):
                    with self._leading():
                        self._lead_group(ticket)
                elif not ticket.bell.acquire(timeout=COMMIT_WAIT_SECONDS_MAX):
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
            message = (
                f"nothing was committed for COMMIT_WAIT_SECONDS_MAX = {COMMIT_WAIT_SECONDS_MAX} s, so this is not "
                f"written; see which process holds the store, and call again"
            )
            raise StoreBusy(message)

    def _linger(self) -> None:
        """Give the callers of the last group a moment to come back: without it, threads commit in halves."""
        if self._gathered < LINGER_CALLERS_COUNT_MIN:
            return
        end_ns = time.perf_counter_ns() + LINGER_NS_MAX
        while len(self._queue) < self._gathered and time.perf_counter_ns() < end_ns:
            time.sleep(0)

    def _lead_group(self, own: _Waiting) -> None:
        """Commit what waits as one group; whatever cuts it off, nobody sleeps on."""
        self._linger()
        taken = [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_COUNT_MAX))]
        self._gathered = len(taken)
        deferred: list[Ticket] = []
        try:
            deferred = self._committer.commit(taken)
        except Exception as error:  # noqa: BLE001 - every caller of the group is told
            for ticket in taken:
                _refuse(ticket, error)
        except BaseException:
            # An interrupt of the leader is no reason for the others to fail: what was not written is tried again.
            deferred = [ticket for ticket in taken if not ticket.is_done and ticket is not own]
            raise
        finally:
            self._queue.extendleft(ticket for ticket in reversed(taken) if ticket in deferred)
            for ticket in taken:
                if ticket.is_done:
                    ticket.ring()


def _refuse(ticket: Ticket, error: Exception) -> None:
    """Tell a caller what went wrong, in an exception of its own: tracebacks are not shared between threads."""
    if not ticket.is_done:
        ticket.error = type(error)(*error.args) if isinstance(error, RefoldError) else error
        ticket.is_done = True
