"""Standard streams as the transport of a server: lines in, messages out, bounded.

The SDK's own server transport does not limit the length of a line, waits for the thread that reads stdin, and drops
requests that are unanswered when stdin ends. Here a daemon thread reads the lines, so that Ctrl-C ends the process even
if the client is silent; new requests wait while unanswered ones fill their limit; and the end of the input waits until
earlier requests are answered.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import IO, Any, Final, Self, TypeAlias, cast

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.types import RequestId
from mcp.types.jsonrpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from refold import checks
from refold.limits import DRAIN_SECONDS, LINE_BYTES_MAX, LINES_COUNT_MAX, OPEN_BYTES_MAX, REQUEST_BYTES_MIN

# Replaces an overlong line; it is not JSON, so it is answered as a parse error.
_TOO_LONG: Final = b"a line over LINE_BYTES_MAX"
_NO_JSON: Final = f"parse error: a message is one line of JSON, at most {LINE_BYTES_MAX = :,} bytes"
_NO_MESSAGE: Final = "invalid request: this is no message of JSON-RPC 2.0 that the protocol knows"
# This request is answered only when its client ends it, so shutdown does not wait for it.
_STREAM: Final = "subscriptions/listen"

Read: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
Write: TypeAlias = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def standard_streams() -> AsyncGenerator[tuple["Lines", "LineWriter"]]:
    """Yield the reader of the client's lines and the writer of our own; inside, fd 0 is empty and fd 1 is stderr."""
    stdin, stdout = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    sys.stdout.flush()
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    loop = asyncio.get_running_loop()
    lines = Lines(os.fdopen(stdin, "rb", closefd=False), loop)
    writer = LineWriter(os.fdopen(stdout, "wb", buffering=0, closefd=False), loop, lines.end)
    try:
        yield lines, writer
    finally:
        writer.close()
        sys.stdout.flush()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)


class Lines:
    """The lines of a stream, read by a separate thread up to `LINES_COUNT_MAX` ahead."""

    def __init__(self, stream: IO[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._stream = stream
        self._loop = loop
        self._free = threading.Semaphore(LINES_COUNT_MAX)
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        threading.Thread(target=self._run, name="refold-mcp-stdin", daemon=True).start()

    def _run(self) -> None:
        with suppress(RuntimeError):  # The loop has ended.
            for line in self._read():
                self._free.acquire()
                self._loop.call_soon_threadsafe(self._queue.put_nowait, line)
            self._loop.call_soon_threadsafe(self._queue.put_nowait, None)

    def _read(self) -> Iterator[bytes]:
        with suppress(OSError, ValueError):  # The other end is gone, which also ends the lines.
            while line := self._stream.readline(LINE_BYTES_MAX + 1):
                if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
                    while (rest := self._stream.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                        pass
                    line = _TOO_LONG
                yield line

    def end(self) -> None:
        """End the lines."""
        self._queue.put_nowait(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        line = await self._queue.get()
        self._free.release()
        if line is None:
            raise StopAsyncIteration
        return line


class LineWriter:
    """Writes lines in order on a separate thread; calls `on_broken` once if the other end is gone."""

    def __init__(self, stream: IO[bytes], loop: asyncio.AbstractEventLoop, on_broken: Callable[[], None]) -> None:
        self._stream = stream
        self._loop = loop
        self._on_broken = on_broken
        self._queue: SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="refold-mcp-stdout", daemon=True).start()

    async def write(self, text: str) -> None:
        """Write a text as one line; also returns if the other end is gone."""
        written = self._loop.create_future()
        self._queue.put((text.encode() + b"\n", written))
        await written

    def close(self) -> None:
        """End the thread once it has written the queued lines."""
        self._queue.put(None)

    def _run(self) -> None:
        is_broken = False
        with suppress(RuntimeError):  # The loop has ended.
            while (item := self._queue.get()) is not None:
                data, written = item
                try:
                    view = memoryview(b"" if is_broken else data)
                    while view:
                        view = view[self._stream.write(view) :]
                except OSError:
                    is_broken = True
                    self._loop.call_soon_threadsafe(self._on_broken)
                # Also if the other end is gone, so that no task keeps waiting.
                self._loop.call_soon_threadsafe(_settle, written)


def _settle(written: "asyncio.Future[None]") -> None:
    if not written.done():
        written.set_result(None)


@asynccontextmanager
async def messages(lines: Lines, writer: LineWriter) -> AsyncGenerator[tuple[Read, Write]]:
    """Yield the streams that the SDK serves: messages parsed from lines, and messages to write as lines."""
    into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](0)
    requests = OpenRequests()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, lines, writer, into, requests)
        tasks.start_soon(_write, out_of, writer, requests)
        yield incoming, outgoing
        tasks.cancel_scope.cancel()


class OpenRequests:
    """The requests that are neither answered nor cancelled."""

    def __init__(self) -> None:
        self._sizes: dict[RequestId, list[int]] = {}
        self._streams: set[RequestId] = set()
        self._size = 0
        self._has_less = asyncio.Event()

    async def add(self, request: JSONRPCRequest, size: int) -> None:
        """Add a request once there is room for it; a single request always has room."""
        size = max(size, REQUEST_BYTES_MIN)
        while self._sizes and self._size + size > OPEN_BYTES_MAX:
            await self._wait_for_less()
        # Two requests with the same id are a client error, but each takes up room.
        self._sizes.setdefault(request.id, []).append(size)
        self._size += size
        if request.method == _STREAM:
            self._streams.add(request.id)

    async def remove(self, number: RequestId | None) -> None:
        """Remove a request, if present."""
        sizes = self._sizes.get(number, []) if number is not None else []
        if number is None or not sizes:
            return
        self._size -= sizes.pop()
        if not sizes:
            del self._sizes[number]
            self._streams.discard(number)
        self._has_less.set()

    async def wait(self) -> None:
        """Wait until only streams are left."""
        while len(self._sizes) > len(self._streams):
            await self._wait_for_less()

    async def _wait_for_less(self) -> None:
        self._has_less.clear()
        await self._has_less.wait()


async def _read(
    lines: Lines, writer: LineWriter, into: MemoryObjectSendStream[SessionMessage | Exception], requests: OpenRequests
) -> None:
    async with into:
        async for line in lines:
            if not line.strip():
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except (ValueError, RecursionError):
                await writer.write(refusal(line))
                continue
            metadata = None
            if isinstance(message, JSONRPCRequest):
                await requests.add(message, len(line))
                metadata = ServerMessageMetadata(on_request_unanswered=partial(requests.remove, message.id))
            try:
                await into.send(SessionMessage(message, metadata))
            except anyio.BrokenResourceError:  # The server has ended.
                return
        # The end of this stream ends every request, but a client can send requests, close its end and then read the
        # answers.
        with anyio.move_on_after(DRAIN_SECONDS):
            await requests.wait()


async def _write(out_of: MemoryObjectReceiveStream[SessionMessage], writer: LineWriter, requests: OpenRequests) -> None:
    async with out_of:
        async for each in out_of:
            await writer.write(each.message.model_dump_json(by_alias=True, exclude_unset=True))
            if isinstance(each.message, JSONRPCResponse | JSONRPCError):
                await requests.remove(each.message.id)


def refusal(line: bytes) -> str:
    """Return the error response to a line that is not a message, with its id if one can be found."""
    number, code, message = None, INVALID_REQUEST, _NO_MESSAGE
    try:
        document: object = msgspec.json.decode(line)
    except checks.UNDECODABLE:
        code, message = PARSE_ERROR, _NO_JSON
    else:
        number = cast("dict[str, Any]", document).get("id") if isinstance(document, dict) else None
    is_id = isinstance(number, (str, int)) and not isinstance(number, bool)
    error = {"jsonrpc": "2.0", "id": number if is_id else None, "error": {"code": code, "message": message}}
    return msgspec.json.encode(error).decode()
