"""The state that all handlers share: the memory, whether it can be written, its skills, the stream of its notices."""

import asyncio
import threading
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from refold import Memory
from refold.engine.subscriptions import Subscription
from refold.errors import LimitExceeded
from refold.event import Recorded
from refold.memory.core import core_of
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


class _EventLines(NamedTuple):
    """What watchers are sent at once: the seqs of some events, their lines, and the lines as one text."""

    seqs: tuple[int, ...]
    lines: tuple[bytes, ...]
    content: bytes

    def after(self, position: int) -> bytes:
        """Return the lines of the events after a seq."""
        return self.content if self.seqs[0] > position else b"".join(self.lines[bisect_right(self.seqs, position) :])


class _EventStream:
    """One stream: what it has still to send, and whether it must read the log because something is missing there."""

    __slots__ = ("is_behind", "is_over", "queue")

    def __init__(self, *, is_behind: bool) -> None:
        self.queue: asyncio.Queue[_EventLines | None] = asyncio.Queue(_QUEUED_COUNT_MAX)
        self.is_behind = is_behind
        self.is_over = False


class Hub:
    """The events of a memory as lines for any number of watchers: one subscription and one encoding for all of them.

    Events within `_FLUSH_SECONDS` are sent as one piece, so that a busy writer rarely wakes each watcher. A watcher
    that begins in the past, or that is too slow for what happens, reads the log until it has caught up.
    """

    def __init__(self, memory: Memory, encode: Callable[[Recorded], bytes]) -> None:
        self._memory, self._encode = memory, encode
        self._subscription: Subscription | None = None
        self._watchers: set[_EventStream] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._lines: list[tuple[int, bytes]] = []

    def check_room(self) -> None:
        """Raise `LimitExceeded` if the maximum number of streams is open."""
        if len(self._watchers) >= WATCHERS_COUNT_MAX:
            raise LimitExceeded(f"{WATCHERS_COUNT_MAX = } streams are open; close one first")

    async def pieces(self, after: int | None = None) -> AsyncGenerator[bytes]:
        """Yield the lines of events after a seq, or from now on; comments at first and while nothing happens."""
        self._loop = asyncio.get_running_loop()
        watcher = _EventStream(is_behind=after is not None)
        self._watchers.add(watcher)
        try:
            if self._subscription is None or not self._subscription.is_alive:
                self._subscription = self._memory.subscribe(self._receive)
            # What comes after this seq is queued from here on, so nothing is missing between the log and the queue.
            position = self._memory.head if after is None else after
            yield _BEAT
            while True:
                if watcher.is_behind and not watcher.is_over:
                    # Before the log is read: what does not fit the queue meanwhile is read in the next round.
                    watcher.is_behind = False
                    lines, reached = await asyncio.to_thread(self._read, position)
                    watcher.is_behind |= reached > position
                    position = reached
                    if lines:
                        yield lines
                    continue
                try:
                    piece = await asyncio.wait_for(watcher.queue.get(), _BEAT_SECONDS)
                except TimeoutError:
                    yield _BEAT
                    continue
                if piece is None or watcher.is_over:
                    return
                if piece.seqs[-1] > position:
                    lines, position = piece.after(position), piece.seqs[-1]
                    yield lines
        finally:
            self._watchers.discard(watcher)
            if not self._watchers and self._subscription is not None:
                self._subscription.close()
                self._subscription = None

    def _read(self, position: int) -> tuple[bytes, int]:
        """Return the lines of a page of durable events after a seq, and the seq that the page reaches."""
        core, _ = core_of(self._memory)
        reader = core.engine.reader
        until = reader.log.durability.durable_until(reader.current_head())
        if position >= until:
            return b"", position
        page, reached = reader.page(position, until, core.branch)
        return b"".join(map(self._encode, page)), reached

    def _receive(self, recorded: Recorded) -> None:
        """Buffer the line of an event for the event loop; runs on the thread of the subscription."""
        line = recorded.stamp.seq, self._encode(recorded)
        with self._lock:
            self._lines.append(line)
            is_first = len(self._lines) == 1
        if is_first and self._loop is not None:
            with suppress(RuntimeError):  # The loop has ended, and all watchers with it.
                self._loop.call_soon_threadsafe(self._loop.call_later, _FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        with self._lock:
            (seqs, lines), self._lines = zip(*self._lines, strict=True), []
        piece = _EventLines(seqs, lines, b"".join(lines))
        for watcher in list(self._watchers):
            try:
                watcher.queue.put_nowait(piece)
            except asyncio.QueueFull:
                watcher.is_behind = True

    def end(self) -> None:
        """End all streams, so that the server can stop."""
        for watcher in list(self._watchers):
            watcher.is_over = True
            if watcher.queue.full():  # A stream that nothing reads must still end.
                watcher.queue.get_nowait()
            watcher.queue.put_nowait(None)
