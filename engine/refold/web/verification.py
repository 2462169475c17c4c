"""The verification of a store, one at a time, with its progress as a stream of server-sent events."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from refold import Memory
from refold.errors import RefoldError, StoreBusy
from refold.results import Report

_LOG: Final = logging.getLogger("refold")
_STEPS_COUNT: Final = 200  # The resolution of a progress bar; sending more steps would be useless.
_BEAT_SECONDS: Final = 15.0


class Verdict(NamedTuple):
    """A report, and the head of the log when its verification began."""

    report: Report
    head: int


class _NoReader(Exception):
    """The client has disconnected; the verification ends at its next step."""


class Verification:
    """Verifies a memory on request, and keeps the last report."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._lock = memory, threading.Lock()
        self.last: Verdict | None = None

    def run(self, progress: Callable[[int, int], None] | None = None) -> Report:
        """Verify the memory; raises `StoreBusy` while another verification of this server runs."""
        if not self._lock.acquire(blocking=False):
            raise StoreBusy("a verification is running; wait until it is done")
        try:
            head = self._memory.head
            report = self._memory.verify(progress)
            self.last = Verdict(report, head)
            return report
        finally:
            self._lock.release()

    @property
    def is_running(self) -> bool:
        """Whether a verification is running."""
        return self._lock.locked()

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the progress as events, then the report or the error; stops the verification if the reader leaves."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[str, Any]]()
        is_left, sent = threading.Event(), [-1]  # noqa: TID251 - checking it takes no lock

        def tell(kind: str, value: Any) -> None:
            with suppress(RuntimeError):  # The loop has ended, and all readers with it.
                loop.call_soon_threadsafe(queue.put_nowait, (kind, value))

        def progress(done: int, whole: int) -> None:
            if is_left.is_set():
                raise _NoReader
            step = _STEPS_COUNT * done // max(whole, 1)
            if step != sent[0]:
                sent[0] = step
                tell("progress", {"done": done, "all": whole})

        def verify() -> None:
            try:
                tell("report", msgspec.to_builtins(self.run(progress)))
            except _NoReader:
                pass
            except RefoldError as error:
                tell("failed", {"error": str(error)})
            except Exception as error:  # noqa: BLE001 - otherwise the page would wait forever
                _LOG.exception("a verification failed")
                tell("failed", {"error": f"{type(error).__name__}: {error}"})

        thread = threading.Thread(target=verify, name="refold-web-verify", daemon=True)
        thread.start()
        try:
            kind = ""
            while kind not in {"report", "failed"}:
                try:
                    kind, value = await asyncio.wait_for(queue.get(), _BEAT_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                yield f"event: {kind}\ndata: {msgspec.json.encode(value).decode()}\n\n".encode()
        finally:
            is_left.set()
