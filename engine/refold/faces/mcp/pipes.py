"""The standard streams as the transport takes them: lines in, lines out, and threads that nobody has to wait for.

A thread that waits for the next line cannot be told to stop, so it is a daemon, and Ctrl-C ends the process although
the client is silent. While a client is served, what else this process prints goes to stderr.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from queue import SimpleQueue
from typing import IO, Final, Self, TypeAlias

from refold.faces.mcp.limits import LINE_BYTES_MAX, LINES_COUNT_MAX

_TOO_LONG: Final = b"a line over LINE_BYTES_MAX"
"""What is handed on in its place: no JSON, so that it is answered as such."""


@asynccontextmanager
async def standard_streams() -> AsyncGenerator[tuple["Lines", "Writer"]]:
    """Give what reads the client's lines and what writes ours; inside, fd 0 is empty and fd 1 is stderr."""
    kept_in, kept_out = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    sys.stdout.flush()
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    loop = asyncio.get_running_loop()
    lines = Lines(os.fdopen(kept_in, "rb", closefd=False), loop)
    try:
        yield lines, Writer(os.fdopen(kept_out, "wb", buffering=0, closefd=False), loop, lines.end)
    finally:
        sys.stdout.flush()
        os.dup2(kept_in, 0)
        os.dup2(kept_out, 1)


class Lines:
    """The lines of a stream, read by a thread of their own; as many wait as ``LINES_COUNT_MAX``."""

    def __init__(self, stream: IO[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._stream = stream
        self._loop = loop
        self._room = threading.Semaphore(LINES_COUNT_MAX)
        self._read: asyncio.Queue[bytes | None] = asyncio.Queue()
        threading.Thread(target=self._run, name="refold-mcp-stdin", daemon=True).start()

    def _run(self) -> None:
        with suppress(RuntimeError):  # The loop has ended.
            for line in self._found():
                self._room.acquire()
                self._loop.call_soon_threadsafe(self._read.put_nowait, line)
            self._loop.call_soon_threadsafe(self._read.put_nowait, None)

    def _found(self) -> Iterator[bytes]:
        with suppress(OSError, ValueError):  # The other end is gone, which is the end.
            while line := self._stream.readline(LINE_BYTES_MAX + 1):
                if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
                    self._skip()
                    yield _TOO_LONG
                    continue
                yield line

    def _skip(self) -> None:
        """Read on to the end of a line that is too long."""
        while (rest := self._stream.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
            pass

    def end(self) -> None:
        """Let there be no more lines."""
        self._read.put_nowait(None)

    def __aiter__(self) -> Self:
        """Return the lines, oldest first."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next line, once it is there."""
        line = await self._read.get()
        self._room.release()
        if line is None:
            raise StopAsyncIteration
        return line


_Job: TypeAlias = "tuple[bytes, asyncio.Future[None]]"


class Writer:
    """Writes messages by a thread of its own, in order; when nobody reads any more it calls ``on_broken`` once."""

    def __init__(self, stream: IO[bytes], loop: asyncio.AbstractEventLoop, on_broken: Callable[[], None]) -> None:
        self._stream = stream
        self._loop = loop
        self._on_broken = on_broken
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        threading.Thread(target=self._run, name="refold-mcp-stdout", daemon=True).start()

    async def write(self, text: str) -> None:
        """Return once a text is written, as one line, or nobody reads any more."""
        written = self._loop.create_future()
        self._jobs.put((text.encode() + b"\n", written))
        await written

    def _run(self) -> None:
        is_broken = False
        with suppress(RuntimeError):  # The loop has ended.
            while True:
                data, written = self._jobs.get()
                try:
                    if not is_broken:
                        self._put(data)
                except OSError:
                    is_broken = True
                    self._loop.call_soon_threadsafe(self._on_broken)
                # Also when nobody reads it, so that nobody waits for it.
                self._loop.call_soon_threadsafe(_settle, written)

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._stream.write(view) :]


def _settle(written: "asyncio.Future[None]") -> None:
    if not written.done():
        written.set_result(None)
