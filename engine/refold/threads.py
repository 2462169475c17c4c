"""Threads of our own, which start, wake and wait in ways that no signal can break.

``Thread.start``, ``Event`` and ``Condition`` are written in Python: a signal that arrives while one of them holds its
inner lock leaves that lock held forever. Their replacements here are one C call at each step that matters.
"""

import _thread
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar, cast
from weakref import WeakSet, ref

from refold.errors import InvalidInput, StoreError

NO_THREAD: Final = (
    "no thread could be started; end others, or raise the limits of this process (ulimit -u, -v), and call again"
)
FORKED: Final = "belongs to the process that forked this one; fork before it is opened, or start processes with 'spawn'"
"""Why a child process cannot use what its parent had open, and the next step; follows the name of the thing."""

LOOK_SECONDS: Final = 0.001
"""The time between two checks of something that ends soon."""
_BEGIN_SECONDS_MAX: Final = 2.0
"""How long a thread can take to begin before it is given up: a signal may have arrived before the thread was requested,
or memory may have run out at its first step."""


class Worker:
    """A thread that runs a function once."""

    def __init__(self, run: Callable[[], object], name: str, *, daemon: bool = True) -> None:
        self._run = run
        self._thread = threading.Thread(target=self._main, name=name, daemon=daemon)
        self._claim = threading.Lock()
        """Taken by the thread when it begins, or by a caller that gives up waiting for it, after which it never
        begins."""
        self._running = threading.Lock()
        self._is_refused = False

    def start(self) -> None:
        """Start the thread; it may have begun even if this raises, and ``wait_for_start`` returns whether it runs."""
        try:
            _thread.start_new_thread(self._start, ())
        except RuntimeError:
            self._is_refused = True

    def _start(self) -> None:
        # Not on the main thread: `Thread.start` waits for the new thread in a way that a signal can break.
        try:
            self._thread.start()
        except Exception:  # noqa: BLE001 - there is no caller, and threads that wait see the flag
            self._is_refused = True

    def _main(self) -> None:
        with self._running:
            if self._claim.acquire(blocking=False):
                try:
                    self._run()
                except MemoryError:
                    # Memory may be short for the first frame of the function, before the function could handle that.
                    self._run()

    def wait_for_start(self) -> bool:
        """Wait until the thread runs, and return whether it does or did; a thread that is late never runs."""
        until = time.monotonic() + _BEGIN_SECONDS_MAX
        while not (self._claim.locked() or self._is_refused) and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        return self._claim.locked() or not self._claim.acquire(blocking=False)

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended, or never begins."""
        return self._is_refused or (self._claim.locked() and not self._running.locked())

    @property
    def is_current(self) -> bool:
        """Whether this is the calling thread."""
        return self._thread.ident == threading.get_ident()

    def join(self) -> None:
        """Return once the thread has ended or will never begin; in the thread itself, return at once."""
        if not self.is_current and self.wait_for_start():
            with self._running:
                pass


class Bell:
    """Wakes one thread that waits for it; several rings before a wait count as one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the thread that waits, or the next one that does."""
        try:  # noqa: SIM105 - this is called with every commit
            self._lock.release()
        except RuntimeError:
            pass  # It has rung already.

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a ring; return whether there was one."""
        return self._lock.acquire(timeout=seconds)


def run_uninterrupted(call: Callable[[], object]) -> None:
    """Make a call that no signal can cut off, and return when it has ended; an interrupt is raised then.

    Python runs signal handlers on the main thread only, so the call runs on another one.
    """
    errors: list[BaseException] = []
    done: list[bool] = []

    def run() -> None:
        try:
            done.append(True)
            call()
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            errors.append(error)

    worker = Worker(run, "refold-uninterrupted", daemon=False)
    try:
        worker.start()
    except BaseException:
        worker.join()
        raise
    interrupts: list[BaseException] = []
    while not worker.is_over:
        try:
            worker.wait_for_start()
            time.sleep(LOOK_SECONDS)
        except BaseException as error:  # noqa: BLE001 - as above
            interrupts.append(error)
    if not done:
        errors.append(StoreError(f"nothing was done: {NO_THREAD}"))
    try:
        if interrupts or errors:
            raise (interrupts or errors).pop()  # Kept here, it would form a cycle with its own traceback.
    finally:
        errors.clear()


Method = TypeVar("Method", bound=Callable[..., Any])


class _Exit:
    """The ``__exit__`` of a block, which gives each ``with`` statement its own object to hold and to call."""

    def __init__(self, method: Callable[..., None]) -> None:
        self._method = method

    def __get__(self, block: Any, _owner: type) -> Callable[..., None]:
        if block is None:
            return self._method
        held = partial(self._method, block)
        block.held = ref(held)
        return held


def exit_method(method: Method) -> Method:
    """Make an ``__exit__`` that lets its object tell, by ``held``, whether a ``with`` statement still holds it.

    A signal can end a block and still keep ``__exit__`` from running its first line. The ``with`` statement releases
    the method that it holds in any case: a block whose ``held`` is dead is over, even if nothing recorded that.
    """
    return cast("Method", _Exit(method))


def owns(lock: "threading.RLock") -> bool:
    """Return whether this thread holds a lock."""
    is_owned: Callable[[], bool] = getattr(lock, "_is_owned")  # noqa: B009 - as the standard library does
    return is_owned()


def enter_once(lock: "threading.RLock") -> "threading.RLock":
    """Return a lock to enter by ``with``; raise ``InvalidInput`` if this thread holds it already.

    A signal handler or a ``__del__`` that calls the memory runs in the middle of whatever its thread does: a plain lock
    would let it wait for itself forever, and a reentrant one would show it what is half done.
    """
    if owns(lock):
        raise InvalidInput(
            "a memory was called from inside of another call of this thread (a signal handler, a __del__?); call it "
            "afterwards"
        )
    return lock


_freed_at_fork: Final["WeakSet[threading.RLock]"] = WeakSet()


def forkable_lock() -> "threading.RLock":
    """Make a lock that is free in a forked child, so that a call there is refused instead of waiting for ever."""
    lock = threading.RLock()
    _freed_at_fork.add(lock)
    return lock


def _free_locks() -> None:
    for lock in _freed_at_fork:
        reinit: Callable[[], None] = getattr(lock, "_at_fork_reinit")  # noqa: B009 - as the standard library does
        reinit()


os.register_at_fork(after_in_child=_free_locks)
