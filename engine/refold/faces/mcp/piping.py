"""Messages of lines and lines of messages; what is no message is answered here, since nothing behind could know it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, cast

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types.jsonrpc import INVALID_REQUEST, PARSE_ERROR, jsonrpc_message_adapter

from refold.faces.mcp.limits import LINE_BYTES_MAX
from refold.faces.mcp.pipes import Lines, Writer

Read: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
Write: TypeAlias = MemoryObjectSendStream[SessionMessage]

_NO_JSON: Final = f"parse error: a message is one line of JSON, at most LINE_BYTES_MAX = {LINE_BYTES_MAX:,} bytes"
_NO_MESSAGE: Final = "invalid request: this is no message of JSON-RPC 2.0 that the protocol knows"


@asynccontextmanager
async def messages(lines: Lines, writer: Writer) -> AsyncGenerator[tuple[Read, Write]]:
    """Give the streams that the SDK serves: messages read of lines until they end, and written as lines."""
    send_in, receive_in = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    send_out, receive_out = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, lines, writer, send_in)
        tasks.start_soon(_write, receive_out, writer)
        yield receive_in, send_out
        tasks.cancel_scope.cancel()


async def _read(lines: Lines, writer: Writer, into: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    async with into:
        async for line in lines:
            if not line.strip():
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except (ValueError, RecursionError):
                await writer.write(refusal(line))
                continue
            try:
                await into.send(SessionMessage(message))
            except anyio.BrokenResourceError:  # The server has ended.
                return


async def _write(outgoing: MemoryObjectReceiveStream[SessionMessage], writer: Writer) -> None:
    async with outgoing:
        async for each in outgoing:
            await writer.write(each.message.model_dump_json(by_alias=True, exclude_unset=True))


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
