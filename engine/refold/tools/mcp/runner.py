"""An event loop on a thread of its own, for connections that outlive the calls of programs without one."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from refold.errors import Closed

T = TypeVar("T")


_ASIDE: Final[set["asyncio.Future[Any]"]] = set()
"""What was given up and has not ended yet."""


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return what work comes to; raises ``TimeoutError``, and does not wait until work that is given up has ended."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=seconds)
        if not done:
            raise TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            _ASIDE.add(task)
            task.add_done_callback(_forget)


def _forget(task: "asyncio.Future[Any]") -> None:
    _ASIDE.discard(task)
    if not task.cancelled():
        task.exception()  # Nobody waits for it: it is taken as told.


def closed() -> Closed:
    """Return the error of a toolset that is closed, or was while somebody waited."""
    return Closed("this toolset is closed; make another one")


class Runner:
    """The thread, which begins with the first task and ends with ``close``."""

    __slots__ = ("_is_closed", "_lock", "_loop", "_thread")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def begin(self, task: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a task on the loop and return what it will come to; raises ``Closed`` after ``close``."""
        with self._lock:
            if self._is_closed:
                task.close()
                raise closed()
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=[self._loop], name="refold-mcp", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(task, self._loop)

    def wait(self, task: Coroutine[Any, Any, T]) -> T:
        """Run a task on the loop and wait for what it comes to; raises ``Closed`` where it was closed meanwhile."""
        future = self.begin(task)
        try:
            return future.result()
        except CancelledError:
            raise closed() from None
        except BaseException:
            future.cancel()
            raise

    async def awaited(self, task: Coroutine[Any, Any, T]) -> T:
        """Run a task on the loop and await what it comes to; raises ``Closed`` where it was closed meanwhile."""
        future = self.begin(task)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is None or waiting.cancelling():
                raise
            raise closed() from None

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            while left := asyncio.all_tasks(loop):
                for task in left:
                    task.cancel()
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def close(self) -> None:
        """End the loop and its thread, once they are idle; a second call does nothing."""
        with self._lock:
            loop, thread, self._loop, self._is_closed = self._loop, self._thread, None, True
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on the loop's own thread."""
        return threading.current_thread() is self._thread
