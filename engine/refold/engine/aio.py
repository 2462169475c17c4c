"""Mutations of many asyncio tasks, collected on the event loop and written with one hop to a thread.

A tick is everything that the tasks of one loop request before all of them wait. Its verbs run on the loop one after
another, each deciding on the effects of those before it. One thread then writes them all as one commit, in which each
verb is a command of its own.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any, NamedTuple

from refold.engine.batch import Batch, collect_into
from refold.engine.engine import Engine, disown_at_fork
from refold.engine.origin import ACTING
from refold.engine.transaction import GroupConflict
from refold.errors import StoreBusy, StoreError, WrongVersion
from refold.limits import AIO_QUEUE_COUNT_MAX, GROUP_COUNT_MAX
from refold.threads import NO_THREAD


class _PendingCall(NamedTuple):
    verb: Callable[[], Any]
    future: "asyncio.Future[Any]"
    context: Context
    """The context of the calling task; the verb runs in a different one."""

    def run(self) -> Any:
        """Run the verb with the origin that the calling task has set."""
        ACTING.set(self.context.get(ACTING, ()))
        return self.verb()


class AsyncWriter:
    """A writer for the tasks of event loops, with one queue per running loop and a single thread that commits."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread = _Thread()
        self._last: _Loop | None = None
        """The queue of the loop that submitted last; nearly always there is only one."""
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}

    def submit(self, verb: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Queue a verb and return a future that resolves to its result once its events are durable."""
        running, loop = asyncio.get_running_loop(), self._last  # Another thread may replace the last one meanwhile.
        if loop is None or loop.running is not running:
            loop = self._loops.get(running)
            if loop is None:
                self._forget_closed_loops()
                loop = self._loops[running] = _Loop(running, self._engine, self._thread)
            self._last = loop
        return loop.submit(verb)

    def _forget_closed_loops(self) -> None:
        """Forget loops that have ended: a process may run one for each request."""
        for loop in list(self._loops):  # A copy, because other threads have loops, too.
            if loop.is_closed():
                self._loops.pop(loop, None)

    async def run(self, call: Callable[[], Any]) -> Any:
        """Run a call on the thread that commits, after what it was given before, and return its result."""
        return await self._thread.run(asyncio.get_running_loop(), copy_context().run, call)

    async def run_apart(self, call: Callable[[], Any]) -> Any:
        """Run a call on a thread of its own and return its result; for work that cannot be part of a tick.

        It can take long, and functions of the caller in it can wait for what other tasks write or read.
        """
        thread = _Thread()
        future = thread.run(asyncio.get_running_loop(), copy_context().run, call)
        thread.close()
        return await future

    def close(self) -> None:
        """Stop the writer thread once it is idle."""
        self._thread.close()


class _Thread:
    """A thread that calls into the engine, such as the one that commits for all loops; the first call starts it."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = self._new_executor()
        """``None`` once the thread is closed."""
        disown_at_fork(self)

    def _new_executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="refold-aio")

    def run(self, loop: asyncio.AbstractEventLoop, call: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        """Run a call on the thread and return a future of the loop for its result."""
        executor = self._executor
        if executor is None:
            return self._run_closed(loop, call, *arguments)
        try:
            return loop.run_in_executor(executor, call, *arguments)
        except RuntimeError as error:
            if self._executor is None:  # Closed by another thread meanwhile.
                return self._run_closed(loop, call, *arguments)
            # The call is already in the queue of an executor that has no thread and may never get one.
            if self._executor is executor:
                self._executor = self._new_executor()
            raise StoreError(f"nothing was written: {NO_THREAD}") from error

    def _run_closed(
        self, loop: asyncio.AbstractEventLoop, call: Callable[..., Any], *arguments: Any
    ) -> "asyncio.Future[Any]":
        """Run a call on the loop's own thread: the engine is closed, so it raises ``Closed`` or has nothing to do."""
        future: asyncio.Future[Any] = loop.create_future()
        try:
            future.set_result(call(*arguments))
        except Exception as error:  # noqa: BLE001 - raised in the task that awaits the future
            future.set_exception(error)
        return future

    def disown(self) -> None:
        """Start no thread in a forked child, where every call raises ``Closed``, and the executor has no thread."""
        self._executor = None

    def close(self) -> None:
        """Stop the thread once it is idle."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)


class _Loop:
    """The queue of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: Engine, thread: _Thread) -> None:
        self.running = loop
        self._engine = engine
        self._thread = thread
        self._calls: deque[_PendingCall] = deque()
        self._taken: list[_PendingCall] = []
        """The calls of the last tick."""
        self._task: asyncio.Task[None] | None = None

    def submit(self, verb: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Queue a call and return its future."""
        future: asyncio.Future[Any] = self.running.create_future()
        if len(self._calls) >= AIO_QUEUE_COUNT_MAX:
            raise StoreBusy(
                f"AIO_QUEUE_COUNT_MAX = {AIO_QUEUE_COUNT_MAX} mutations wait already; await some before more"
            )
        self._calls.append(_PendingCall(verb, future, copy_context()))
        if self._task is None or self._task.done():
            self._task = self.running.create_task(self._drain())
            self._task.add_done_callback(self._cancel_waiting)
        return future

    async def _drain(self) -> None:
        """Write queued calls, tick after tick, until the queue is empty."""
        while self._calls:
            await asyncio.sleep(0)  # Let every ready task submit first, so that one flush covers all of them.
            self._taken = [self._calls.popleft() for _ in range(min(len(self._calls), GROUP_COUNT_MAX))]
            await self._write(self._taken)

    def _cancel_waiting(self, task: "asyncio.Task[None]") -> None:
        """Cancel the futures of waiting callers if the drain task was cancelled or has failed.

        Calls that the thread has already received are still written. This is a callback, not part of the task, because
        a task that is cancelled before it begins never runs.
        """
        if task is self._task and (task.cancelled() or task.exception() is not None):
            for call in (*self._taken, *self._calls):
                call.future.cancel()
            self._calls.clear()

    async def _write(self, calls: list[_PendingCall]) -> None:
        batch = Batch(self._engine)
        results = self._collect(batch, calls)
        if len(batch):
            try:
                # Run in the context of the first task, so that a tracer sees what surrounds the commit.
                await self._thread.run(self.running, calls[0].context.run, self._engine.commit, batch.transaction)
            except WrongVersion:
                await self._write_alone([call for call, _ in results])
            except Exception as error:  # noqa: BLE001 - every task of the tick gets the error
                for call, _ in results:
                    _fail(call, error)
        for call, result in results:
            if not call.future.done():
                call.future.set_result(result)

    def _collect(self, batch: Batch, calls: list[_PendingCall]) -> list[tuple[_PendingCall, Any]]:
        """Run the verbs into the batch and return the calls that succeeded, with their results."""
        results: list[tuple[_PendingCall, Any]] = []
        repeated: list[_PendingCall] = []
        starts = batch.transaction.starts
        with collect_into(batch):
            for call in calls:
                if call.future.done():
                    continue  # Cancelled before it ran, so it is not written.
                starts.append(len(batch))
                try:
                    results.append((call, call.run()))
                except GroupConflict:
                    repeated.append(call)
                except Exception as error:  # noqa: BLE001 - raised in the one task that it concerns
                    _fail(call, error)
        self._calls.extendleft(reversed(repeated))
        return results

    async def _write_alone(self, calls: list[_PendingCall]) -> None:
        """Write calls one by one, after another thread or process moved a stream that the tick had decided on."""
        for call in calls:
            if not call.future.done():
                try:
                    result = await self._thread.run(self.running, call.context.run, call.verb)
                except Exception as error:  # noqa: BLE001 - as above
                    _fail(call, error)
                else:
                    if not call.future.done():
                        call.future.set_result(result)


def _fail(call: _PendingCall, error: Exception) -> None:
    if not call.future.done():
        call.future.set_exception(error)
