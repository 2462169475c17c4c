"""The state that all handlers share: the memory, whether it can be written, its skills, the stream of its notices."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from refold import Memory
from refold.engine.subscriptions import Subscription
from refold.errors import LimitExceeded
from refold.event import Recorded
from refold.skills import Skills
from refold.web.access import Access
from refold.web.branches import Branches
from refold.web.verification import Verification

WATCHERS_COUNT_MAX: Final = 256
_QUEUED_COUNT_MAX: Final = 1_000
_BEAT_SECONDS: Final = 15.0
_FLUSH_SECONDS: Final = 0.05
_BEAT: Final = b": still here\n\n"
ACTOR: Final = "web"


class Site:
    """One memory on the web.

    `skills` is a handle with the roots to search for files, `encode` turns events into lines for watchers, `examine`
    reports on the store, `reports` is a directory of benchmark reports, and `access` checks the token of clients.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        writes: bool,
        token: str,
        skills: Skills,
        encode: Callable[[Recorded], bytes],
        examine: Callable[[], Any] | None = None,
        reports: Path | None = None,
        access: Access | None = None,
    ) -> None:
        self.access = access
        self.memory, self.writes, self.token, self.examine, self.reports = memory, writes, token, examine, reports
        self.hub = Hub(memory, encode)
        self.branches, self.verification = Branches(memory), Verification(memory)
        self._skills, self._lock = skills, threading.Lock()

    @contextmanager
    def skills(self) -> "Generator[Skills]":
        """Yield the handle on the skills under a lock, because it is not thread-safe."""
        with self._lock:
            yield self._skills


class Hub:
    """The events of a memory as lines for any number of watchers: one subscription and one encoding for all of them.

    Events within `_FLUSH_SECONDS` are sent as one piece, so that a busy writer rarely wakes each watcher.
    """

    def __init__(self, memory: Memory, encode: Callable[[Recorded], bytes]) -> None:
        self._memory, self._encode = memory, encode
        self._subscription: Subscription | None = None
        self._watchers: set[asyncio.Queue[bytes | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._lines: list[bytes] = []

    def check_room(self) -> None:
        """Raise `LimitExceeded` if the maximum number of streams is open."""
        if len(self._watchers) >= WATCHERS_COUNT_MAX:
            raise LimitExceeded(f"{WATCHERS_COUNT_MAX = } streams are open; close one first")

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the lines of events from now on, and a comment at first and whenever nothing happens for a while."""
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUED_COUNT_MAX)
        self._watchers.add(queue)
        try:
            if self._subscription is None or not self._subscription.is_alive:
                self._subscription = self._memory.subscribe(self._receive)
            yield _BEAT
            while True:
                try:
                    piece = await asyncio.wait_for(queue.get(), _BEAT_SECONDS)
                except TimeoutError:
                    piece = _BEAT
                if piece is None:
                    return
                yield piece
        finally:
            self._watchers.discard(queue)
            if not self._watchers and self._subscription is not None:
                self._subscription.close()
                self._subscription = None

    def _receive(self, recorded: Recorded) -> None:
        """Buffer the line of an event for the event loop; runs on the thread of the subscription."""
        line = self._encode(recorded)
        with self._lock:
            self._lines.append(line)
            is_first = len(self._lines) == 1
        if is_first and self._loop is not None:
            with suppress(RuntimeError):  # The loop has ended, and all watchers with it.
                self._loop.call_soon_threadsafe(self._loop.call_later, _FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        with self._lock:
            piece, self._lines = b"".join(self._lines), []
        for queue in list(self._watchers):
            with suppress(asyncio.QueueFull):  # A watcher so far behind sees a gap in the ids, and looks again.
                queue.put_nowait(piece)

    def end(self) -> None:
        """End all streams, so that the server can stop."""
        for queue in list(self._watchers):
            if queue.full():  # A stream that nothing reads must still end.
                queue.get_nowait()
            queue.put_nowait(None)
