"""Standard streams as the protocol's transport takes them: lines in, messages out, bounded.

Requests wait here, too, while what was read and is not answered is as much as one client may leave open, and the end of
the lines waits until what was asked before it is answered.
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

from refold.limits import DRAIN_SECONDS, LINE_BYTES_MAX, LINES_COUNT_MAX, OPEN_BYTES_MAX, REQUEST_BYTES_MIN

# The standard streams as the transport takes them: lines in, lines out, and threads that nobody has to wait for.
#
# A thread that waits for the next line cannot be told to stop, so it is a daemon, and Ctrl-C ends the process
# although the client is silent. While a client is served, what else this process prints goes to stderr.

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


Read: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
Write: TypeAlias = MemoryObjectSendStream[SessionMessage]

_NO_JSON: Final = f"parse error: a message is one line of JSON, at most LINE_BYTES_MAX = {LINE_BYTES_MAX:,} bytes"
_STREAM: Final = "subscriptions/listen"
"""A request whose answer comes when its client is tired of it; nobody waits for that at the end."""
_NO_MESSAGE: Final = "invalid request: this is no message of JSON-RPC 2.0 that the protocol knows"


@asynccontextmanager
async def messages(lines: Lines, writer: Writer) -> AsyncGenerator[tuple[Read, Write]]:
    """Give the streams that the SDK serves: messages read of lines until they end, and written as lines."""
    send_in, receive_in = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    send_out, receive_out = anyio.create_memory_object_stream[SessionMessage](0)
    unsettled = Unsettled()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, lines, writer, send_in, unsettled)
        tasks.start_soon(_write, receive_out, writer, unsettled)
        yield receive_in, send_out
        tasks.cancel_scope.cancel()


class Unsettled:
    """The requests that were read, and neither answered nor dropped because their client cancelled them."""

    def __init__(self) -> None:
        self._sizes: dict[RequestId, list[int]] = {}
        self._streams: set[RequestId] = set()
        self._size = 0
        self._is_less = asyncio.Event()

    async def add(self, request: JSONRPCRequest, size: int) -> None:
        """Take a request in, once there is room for it; one alone has room whatever its size."""
        size = max(size, REQUEST_BYTES_MIN)
        while self._sizes and self._size + size > OPEN_BYTES_MAX:
            await self._less()
        # Two requests with one id are a mistake of the client, and yet each takes its room.
        self._sizes.setdefault(request.id, []).append(size)
        self._size += size
        if request.method == _STREAM:
            self._streams.add(request.id)

    async def settle(self, number: RequestId | None) -> None:
        """Give the room of a request back; what is no request that was taken in has none."""
        sizes = self._sizes.get(number, []) if number is not None else []
        if number is None or not sizes:
            return
        self._size -= sizes.pop()
        if not sizes:
            del self._sizes[number]
            self._streams.discard(number)
        self._is_less.set()

    async def all_settled(self) -> None:
        """Return once there are no more of them but streams."""
        while len(self._sizes) > len(self._streams):
            await self._less()

    async def _less(self) -> None:
        self._is_less.clear()
        await self._is_less.wait()


async def _read(
    lines: Lines, writer: Writer, into: MemoryObjectSendStream[SessionMessage | Exception], unsettled: Unsettled
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
                await unsettled.add(message, len(line))
                metadata = ServerMessageMetadata(on_request_unanswered=partial(unsettled.settle, message.id))
            try:
                await into.send(SessionMessage(message, metadata))
            except anyio.BrokenResourceError:  # The server has ended.
                return
        # The end of this stream ends every request; a client that asks, closes its end and reads gets its answers.
        with anyio.move_on_after(DRAIN_SECONDS):
            await unsettled.all_settled()


async def _write(outgoing: MemoryObjectReceiveStream[SessionMessage], writer: Writer, unsettled: Unsettled) -> None:
    async with outgoing:
        async for each in outgoing:
            await writer.write(each.message.model_dump_json(by_alias=True, exclude_unset=True))
            if isinstance(each.message, JSONRPCResponse | JSONRPCError):
                await unsettled.settle(each.message.id)


def refusal(line: bytes) -> str:
    """Return the answer to a line that is no message: to its id, where one can be made out."""
    try:
        found: object = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return _error(None, PARSE_ERROR, _NO_JSON)
    number = cast("dict[str, Any]", found).get("id") if isinstance(found, dict) else None
    is_id = isinstance(number, (str, int)) and not isinstance(number, bool)
    return _error(number if is_id else None, INVALID_REQUEST, _NO_MESSAGE)


def _error(number: str | int | None, code: int, message: str) -> str:
    document = {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}
    return msgspec.json.encode(document).decode()
