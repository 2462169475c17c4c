"""Subscriptions: every event of the log, in order and once, for each subscriber; one thread serves all of them.

The thread reads the log in short pages and queues nothing, so a slow subscriber costs no memory and holds no lock, and
no transaction is open while its function runs. Commits of this process wake the thread; it polls for those of others.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from refold import checks
from refold.engine.reader import Reader
from refold.errors import Closed, InvalidInput, StoreError
from refold.event import Recorded
from refold.limits import POLL_MS
from refold.threads import NO_THREAD, Bell, Worker, forkable_lock

Subscriber: TypeAlias = Callable[[Recorded], Any]

_POLL_SECONDS: Final = POLL_MS / 1_000
_OF_PARENT: Final = "this subscription belongs to the process that forked this one; subscribe in a memory of its own"


class _Delivery:
    """One subscriber: its function, its position, and the error that ended it; its owner holds a ``Subscription``."""

    __slots__ = ("branch", "calling", "error", "function", "is_ended", "position")

    def __init__(self, function: Subscriber, position: int, branch: int) -> None:
        self.function = function
        self.position = position
        self.branch = branch
        self.error: BaseException | None = None
        self.is_ended = False
        self.calling = threading.Lock()
        """Held by the delivering thread while the function runs."""

    def deliver(self, page: Sequence[Recorded], until: int) -> None:
        """Call the function with the events of a page, which reaches up to ``until``, unless the subscription ends."""
        for recorded in page:
            with self.calling:
                if self.is_ended:
                    return
                try:
                    self.function(recorded)
                except BaseException as error:  # noqa: BLE001 - whatever it is, the other subscribers go on
                    self.end(error)
                    _report(f"a subscriber failed at seq {recorded.stamp.seq}; it gets no further events", error)
                    return
                self.position = recorded.stamp.seq
        # After the last event, there are none of this branch up to ``until``.
        self.position = until

    def end(self, error: BaseException | None) -> None:
        """Deliver no more events."""
        self.error = self.error or error
        self.is_ended = True

    def disown(self) -> None:
        """End in a forked child, which does not have the thread that may hold the lock."""
        self.calling = threading.Lock()
        self.end(Closed(_OF_PARENT))


class Subscription:
    """A function that is called with each event of a log, in order and once, until it is closed or raises.

    >>> import threading
    >>> from refold import Memory
    >>> memory = Memory()
    >>> memory.profile().set("theme", "dark")
    >>> seen, is_light = [], threading.Event()
    >>> def remember(recorded):
    ...     seen.append((recorded.stamp.seq, recorded.event.value))
    ...     if recorded.event.value == "light":
    ...         is_light.set()
    >>> with memory.subscribe(remember, after=0) as subscription:
    ...     memory.profile().set("theme", "light")
    ...     is_light.wait(60)
    True
    >>> seen, subscription.position, subscription.is_alive
    ([(1, 'dark'), (2, 'light')], 2, False)
    """

    __slots__ = ("_delivery", "_hub")

    def __init__(self, hub: "Subscriptions", delivery: _Delivery) -> None:
        self._hub = hub
        self._delivery = delivery

    @property
    def position(self) -> int:
        """The seq of the last event whose call returned; pass it as ``after`` to continue in a new subscription."""
        return self._delivery.position

    @property
    def error(self) -> BaseException | None:
        """The error that ended the subscription; ``None`` while it is alive and after ``close``."""
        return self._delivery.error

    @property
    def is_alive(self) -> bool:
        """Whether events are still delivered."""
        self._hub.check_thread()
        return not self._delivery.is_ended

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the subscription has ended, and return whether it has; without a timeout, as long as it takes.

        It ends when it is closed, when its memory is closed, or when it fails.
        """
        seconds = checks.wait_seconds(timeout_seconds, "timeout_seconds")
        until = None if seconds is None else time.monotonic() + seconds
        while self.is_alive and (until is None or time.monotonic() < until):
            time.sleep(_POLL_SECONDS)
        return self._delivery.is_ended

    def close(self) -> None:
        """End the subscription; waits for a running call, except from inside a subscriber's function."""
        self._hub.end(self._delivery)

    def __enter__(self) -> Self:
        """Return the subscription; leaving the block closes it."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close the subscription."""
        self.close()

    def __repr__(self) -> str:
        """Return the subscription with its position."""
        state = "alive" if self.is_alive else "closed" if self.error is None else f"failed: {self.error!r}"
        return f"Subscription(position={self.position}, {state})"


class Subscriptions:
    """All subscriptions of one engine, and the thread that serves them while there are any."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._restart()

    def _restart(self) -> None:
        self._lock = forkable_lock()
        self._bell = Bell()
        """Rung by each commit."""
        self._active: tuple[_Delivery, ...] = ()
        self._thread: Worker | None = None
        self._is_closed = False

    def subscribe(self, function: Subscriber, after: int | None, branch: int) -> Subscription:
        """Return a subscription to a branch's events with ``seq > after``, or only to new ones for ``None``."""
        _check_function(function)
        head = self._reader.current_head()
        if after is not None and checks.count(after, "after") > head:
            raise InvalidInput(
                f"after is {checks.brief(after)}, and the last event has seq {head}; give a seq up to it, or None for "
                f"from now on"
            )
        delivery = _Delivery(function, head if after is None else after, branch)
        with self._lock:
            if self._is_closed:
                raise Closed(
                    "this memory is being closed and takes no subscribers; open the store again with Memory(path)"
                )
            if self._thread is None or self._thread.is_over:
                self._start()
            self._active = (*self._active, delivery)
        self._bell.ring()
        return Subscription(self, delivery)

    def _start(self) -> None:
        """Start the thread, which waits for the lock held here before it looks for subscriptions."""
        # In a context of its own, so that the thread does not inherit a batch that is open where ``subscribe`` is
        # called.
        self._thread = Worker(partial(Context().run, self._run), "refold-subscriptions")
        self._reader.ring = self._bell.ring
        self._thread.start()
        if not self._thread.wait_for_start():
            self._reader.ring = self._thread = None
            raise StoreError(f"subscribers cannot be called: {NO_THREAD}")

    def check_thread(self) -> None:
        """End every subscription if the thread has ended without doing so, for lack of memory."""
        thread = self._thread
        if thread is None or not thread.is_over:
            return
        with self._lock:
            if self._thread is thread:
                self._end_active(StoreError("the thread of the subscribers ended for lack of memory; subscribe again"))

    def end(self, delivery: _Delivery) -> None:
        """End one subscription, and wait for a running call unless this is the thread that makes it."""
        delivery.is_ended = True
        self._bell.ring()
        if self._thread is None or not self._thread.is_current:
            with delivery.calling:
                pass

    def close(self) -> None:
        """End all subscriptions, and wait for their thread unless this is that thread."""
        with self._lock:
            self._is_closed = True
            thread, active = self._thread, self._active
        for delivery in active:
            self.end(delivery)
        if thread is not None:
            thread.join()

    def disown(self) -> None:
        """End all subscriptions in a forked child, which does not have their thread."""
        active = self._active
        self._restart()
        for delivery in active:
            delivery.disown()

    # The thread.

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while active := self._remaining_deliveries():
                if not self._deliver_round(active):
                    self._bell.wait(_POLL_SECONDS)
        except Closed:
            # The memory was closed while a caller subscribed.
            pass
        except BaseException as problem:  # noqa: BLE001 - subscribers get the reason why no events come
            error = problem
            _report("reading for the subscribers failed; they get no further events", problem)
        self._end_all(error)

    def _remaining_deliveries(self) -> tuple[_Delivery, ...]:
        """Return the subscriptions that have not ended; without any, the thread ends."""
        with self._lock:
            self._active = tuple(delivery for delivery in self._active if not delivery.is_ended)
            if not self._active:
                self._forget_thread()
            return self._active

    def _forget_thread(self) -> None:
        if self._thread is not None and self._thread.is_current:
            self._reader.ring = self._thread = None

    def _end_all(self, error: BaseException | None) -> None:
        with self._lock:
            if self._thread is not None and self._thread.is_current:
                self._end_active(error)

    def _end_active(self, error: BaseException | None) -> None:
        for delivery in self._active:
            delivery.end(error)
        self._active = ()
        self._reader.ring = self._thread = None

    def _deliver_round(self, active: Sequence[_Delivery]) -> bool:
        """Deliver at most a page to each subscription, so that one catching up does not delay the others for long."""
        until = self._durable_seq(min(delivery.position for delivery in active))
        pages: dict[tuple[int, int], tuple[list[Recorded], int]] = {}
        is_busy = False
        for delivery in active:
            place = (delivery.position, delivery.branch)
            if delivery.position < until and not delivery.is_ended:
                if place not in pages:
                    pages = {place: self._reader.page(delivery.position, until, delivery.branch)}
                delivery.deliver(*pages[place])
                is_busy = True
        return is_busy

    def _durable_seq(self, position: int) -> int:
        """Return the seq up to which events are folded here, so that readers see them, and are durable."""
        head = self._reader.current_head()
        return self._reader.log.durability.durable_until(head) if head > position else head


def _check_function(function: object) -> None:
    if not callable(function):
        checks.invalid(f"fn must be a function of one event, not {type(function).__name__} ({checks.brief(function)})")
    if iscoroutinefunction(function):
        checks.invalid(
            "fn is a coroutine function, which would never be awaited; give a plain one that hands over to it"
        )


def _report(what: str, error: BaseException) -> None:
    """Log an error; a logger that fails must not end the other subscriptions."""
    import logging  # noqa: PLC0415 - needed only after a failure

    with suppress(Exception):
        logging.getLogger("refold").error(what, exc_info=error)
