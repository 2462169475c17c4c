"""Threads of our own, and how they are started, woken and waited for, so that no signal can split it.

``Thread.start``, ``Event`` and ``Condition`` are Python: a signal that arrives while one of them holds its inner lock
leaves that lock held for good. Their replacements here are one call of C at each step that matters.
"""

import _thread
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar, cast
from weakref import ref

from refold.errors import StoreError

NO_THREAD: Final = (
    "no thread could be started; end others, or raise the limits of this process (ulimit -u, -v), and call again"
)
LOOK_SECONDS: Final = 0.001
"""Between two looks at something that ends soon."""
_BEGIN_SECONDS_MAX: Final = 2.0
"""How long a thread may take to begin before it is given up: a signal may have come before it was asked for, or memory
may have run out at its first step."""


class Worker:
    """A thread that runs a function once."""

    def __init__(self, run: Callable[[], object], name: str, *, daemon: bool = True) -> None:
        self._run = run
        self._thread = threading.Thread(target=self._main, name=name, daemon=daemon)
        self._claim = threading.Lock()
        """Taken by the thread when it begins, or by who gives up to wait for that: then it never will."""
        self._running = threading.Lock()
        self._is_refused = False

    def start(self) -> None:
        """Start the thread; it may have begun even where this raises, and ``begins`` says where it never will."""
        try:
            _thread.start_new_thread(self._start, ())
        except RuntimeError:
            self._is_refused = True

    def _start(self) -> None:
        # Not on the main thread: `Thread.start` waits for the new thread in a way that a signal may split.
        try:
            self._thread.start()
        except Exception:  # noqa: BLE001 - there is no caller, and who waits is told
            self._is_refused = True

    def _main(self) -> None:
        with self._running:
            if self._claim.acquire(blocking=False):
                try:
                    self._run()
                except MemoryError:
                    # Memory may lack for the first frame of the function, before it could do anything about that.
                    self._run()

    def begins(self) -> bool:
        """Wait until the thread runs and return whether it does or did; one that is not there in time never will."""
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
        """Whether this is the thread that asks."""
        return self._thread.ident == threading.get_ident()

    def join(self) -> None:
        """Return once the thread has ended, or will never begin; at once in the thread itself."""
        if not self.is_current and self.begins():
            with self._running:
                pass


class Bell:
    """Wakes one thread that waits for it; rings before anybody waits count as one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake who waits, or who waits next."""
        try:  # noqa: SIM105 - this is called with every commit
            self._lock.release()
        except RuntimeError:
            pass  # It has rung already.

    def wait(self, seconds: float) -> bool:
        """Wait for a ring, so long at most; return whether there was one."""
        return self._lock.acquire(timeout=seconds)


def uninterrupted(call: Callable[[], object]) -> None:
    """Make a call that no signal cuts off, and return when it has ended; an interrupt is raised then.

    Python runs the handlers of signals on the main thread alone, so the call runs on another one.
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
            worker.begins()
            time.sleep(LOOK_SECONDS)
        except BaseException as error:  # noqa: BLE001 - as above
            interrupts.append(error)
    if not done:
        errors.append(StoreError(f"nothing was done: {NO_THREAD}"))
    try:
        if interrupts or errors:
            raise (interrupts or errors).pop()  # Kept here, it would be in a cycle with its own traceback.
    finally:
        errors.clear()


Method = TypeVar("Method", bound=Callable[..., Any])


class _Exit:
    """The ``__exit__`` of a block, which gives each ``with`` statement an object of its own to hold and to call."""

    def __init__(self, method: Callable[..., None]) -> None:
        self._method = method

    def __get__(self, block: Any, _owner: type) -> Callable[..., None]:
        if block is None:
            return self._method
        held = partial(self._method, block)
        block.held = ref(held)
        return held


def exit_method(method: Method) -> Method:
    """Make an ``__exit__`` that its object can tell to be held, by ``held``.

    A signal may end a block and yet keep ``__exit__`` from running its first line. The ``with`` statement lets go of
    what it holds in any case: a block whose ``held`` is gone is over, though nothing has said so.
    """
    return cast("Method", _Exit(method))


def free_lock(lock: object) -> None:
    """Free a lock in a child that forked: the thread that holds it may not be there."""
    reinit: Callable[[], None] = getattr(lock, "_at_fork_reinit")  # noqa: B009 - as the standard library does
    reinit()
