"""Messages of lines and lines of messages; what is no message is answered here, since nothing behind could know it.

Requests wait here, too, while what was read and is not answered is as much as one client may leave open, and the end of
the lines waits until what was asked before it is answered.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeAlias, cast

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

from refold.faces.mcp.limits import DRAIN_SECONDS, LINE_BYTES_MAX, OPEN_BYTES_MAX, REQUEST_BYTES_MIN
from refold.faces.mcp.pipes import Lines, Writer

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
