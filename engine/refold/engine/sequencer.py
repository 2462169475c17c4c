"""The sequencer: who commits when.

The first caller that finds nobody at work becomes the leader and commits what waits, its own among it, as one
transaction; the others sleep until their part is done. A lone caller commits at once, on its own thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TypeVar

from refold.engine.admission import Verb
from refold.engine.committer import Committer, Ticket
from refold.engine.pending import Pending
from refold.errors import InvalidInput, RefoldError, StoreBusy
from refold.event import Event, Stamp
from refold.limits import (
    BELL_SECONDS,
    COMMIT_WAIT_SECONDS_MAX,
    GROUP_COUNT_MAX,
    LINGER_CALLERS_COUNT_MIN,
    LINGER_NS_MAX,
)

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
            message = "a mutation was called from inside a commit (a clock, a signal handler?); call it afterwards"
            raise InvalidInput(message)

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
