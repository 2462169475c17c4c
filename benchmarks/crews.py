"""Who else is there: sixteen threads that begin at the same moment, and a neighbour that never waits."""

import sys
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Event, Thread
from types import TracebackType
from typing import Self

from rounds import Job

MEETING_SECONDS_MAX = 60
"""How long threads wait for each other before a benchmark gives up."""

_SPINS = 1_000


class Crew:
    """Threads that stand ready before the clock starts, so that making and waking them is not part of the job."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="crew")
        self._barrier = Barrier(count + 1)
        self._done: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._barrier.abort()
        self._threads.shutdown()

    def _work(self, work: Callable[[int], object], place: int) -> None:
        # Each waits here for all others: so no thread takes the place of two.
        self._barrier.wait(MEETING_SECONDS_MAX)
        work(place)

    def gather(self, work: Callable[[int], object]) -> None:
        """Let every thread stand ready to do the work of its place."""
        self._done = [self._threads.submit(self._work, work, place) for place in range(self.count)]

    def run(self) -> None:
        """Let the threads go, and return when all are done; what one of them raised is raised here."""
        self._barrier.wait(MEETING_SECONDS_MAX)
        for future in self._done:
            future.result()

    def job(self, work: Callable[[int], object], events: int, prepare: Callable[[], object] | None = None) -> Job:
        """Return the job of all threads, each of which writes so many events."""

        def ready() -> None:
            if prepare is not None:
                prepare()
            self.gather(work)

        return Job(self.run, self.count * events, ready)


class Neighbour:
    """A thread that computes in Python and never waits while it is awake: what an agent's own work is to its memory."""

    def __init__(self) -> None:
        self._is_ending = False
        self._wanted = Event()
        self._is_spinning = Event()
        self._is_resting = Event()
        self._is_resting.set()
        self.spins = 0
        """How often the thread went round: proof that it had the processor."""
        self._thread = Thread(target=self._live, name="neighbour", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._is_ending = True
        self._wanted.set()
        self._thread.join()

    def wake(self) -> None:
        """Return once the thread computes."""
        self._is_resting.clear()
        self._wanted.set()
        self._is_spinning.wait()

    def rest(self) -> None:
        """Return once the thread computes no more."""
        self._is_spinning.clear()
        self._wanted.clear()
        self._is_resting.wait()

    def beside(self, job: Job) -> Job:
        """Return the job with the neighbour beside it."""

        def prepare() -> None:
            job.prepare()
            self.wake()

        def settle() -> None:
            self.rest()
            job.settle()

        return job._replace(prepare=prepare, settle=settle)

    def _live(self) -> None:
        while self._wanted.wait() and not self._is_ending:
            self._is_spinning.set()
            while self._wanted.is_set() and not self._is_ending:
                for _ in range(_SPINS):
                    self.spins += 1
            self._is_resting.set()


@contextmanager
def switch_interval(seconds: float) -> Generator[None, None, None]:
    """Let the interpreter take turns at another interval, and at its own again afterwards.

    It belongs to the process: a library that sets it changes what every thread of its host does.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
