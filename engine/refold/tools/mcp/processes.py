"""A server that is started as a process and spoken to by its standard streams, one line for each message.

It differs from the SDK's own transport in its bounds: a line has a longest length, what is no message is dropped and
counted, the end of standard error is kept for error messages, and ending it takes three short waits at most.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from refold.tools.mcp.configuring import McpServer
from refold.tools.mcp.limits import MCP_ASKED_COUNT_MAX, MCP_COMPLAINT_CHARS_MAX, MCP_END_SECONDS, MCP_MESSAGE_BYTES_MAX

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

_INHERITED: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TMPDIR", "LANG")
_POLLS: Final = 100


class Watched:
    """What is known of a server's process while it runs and after it ended."""

    def __init__(self) -> None:
        self.complaint = ""
        """The end of its standard error."""
        self.strays = 0
        """Lines on its standard output that were no messages."""
        self.asked = 0
        """Requests of the server whose answers it has not read yet."""
        self.fault = ""
        """Why it can no longer be listened to."""
        self.ended = asyncio.Event()
        """Set when it closed its standard output, or can no longer be listened to."""


@asynccontextmanager
async def process_of(server: McpServer, watched: Watched) -> AsyncGenerator[tuple[Any, Any], None]:
    """Start a server and yield the streams of its messages; it is ended, with all that it started, at the end."""
    import anyio  # noqa: PLC0415 - comes with the extra `mcp`
    from mcp.shared.message import SessionMessage  # noqa: PLC0415 - as above

    process = await asyncio.create_subprocess_exec(
        server.command,
        *server.args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: os.environ[name] for name in _INHERITED if name in os.environ} | server.env,
        cwd=server.cwd,
        limit=MCP_MESSAGE_BYTES_MAX,
        start_new_session=True,
    )
    heard_in, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    told, told_out = anyio.create_memory_object_stream[SessionMessage](0)
    pumps = [
        asyncio.create_task(pump)
        for pump in (_hear(process, heard_in, watched), _tell(process, told_out, watched), _overhear(process, watched))
    ]
    try:
        yield heard, told
    finally:
        for stream in (heard, told, heard_in, told_out):
            stream.close()
        await _shielded(_end(process, pumps))


async def _shielded(work: Any) -> None:
    """Do work to its end, even if the task that waits for it is cancelled; a cancellation counts afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


async def _hear(
    process: asyncio.subprocess.Process,
    stream: "MemoryObjectSendStream[SessionMessage | Exception]",
    watched: Watched,
) -> None:
    """Hand on each line that is a message."""
    import anyio  # noqa: PLC0415 - as above
    from mcp.shared.message import SessionMessage  # noqa: PLC0415 - as above
    from mcp.types import jsonrpc_message_adapter  # noqa: PLC0415 - as above

    assert process.stdout is not None, "a process that is started with pipes has them"
    try:
        async with stream:
            while line := await _line(process.stdout, watched):
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except (ValueError, RecursionError):
                    watched.strays += bool(line.strip())
                    continue
                if _is_too_much(message, watched):
                    break
                await stream.send(SessionMessage(message))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # Nobody listens any more.
    finally:
        watched.ended.set()


def _is_too_much(message: object, watched: Watched) -> bool:
    """Return whether a server asks and asks, and does not read what it is answered."""
    if hasattr(message, "method") and hasattr(message, "id"):
        watched.asked += 1
    if watched.asked > MCP_ASKED_COUNT_MAX:
        watched.fault = f"asked more than MCP_ASKED_COUNT_MAX = {MCP_ASKED_COUNT_MAX:,} times and reads no answer"
    return bool(watched.fault)


async def _line(stream: asyncio.StreamReader, watched: Watched) -> bytes:
    """Return the next line, nothing at the end and for one that is too long."""
    try:
        return await stream.readline()
    except ValueError:
        watched.fault = f"it sent a message over MCP_MESSAGE_BYTES_MAX = {MCP_MESSAGE_BYTES_MAX:,} bytes"
        return b""


async def _tell(
    process: asyncio.subprocess.Process, stream: "MemoryObjectReceiveStream[SessionMessage]", watched: Watched
) -> None:
    """Write each message as a line; a server that no longer reads them is one that has ended."""
    assert process.stdin is not None, "as above"
    try:
        async with stream:
            async for told in stream:
                line = told.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(line.encode() + b"\n")
                await process.stdin.drain()
                watched.asked -= not hasattr(told.message, "method")
    except ConnectionError:
        watched.fault = watched.fault or "closed its standard input"
        watched.ended.set()


async def _overhear(process: asyncio.subprocess.Process, watched: Watched) -> None:
    """Keep the end of what the server says to people."""
    assert process.stderr is not None, "as above"
    while piece := await process.stderr.read(MCP_COMPLAINT_CHARS_MAX):
        watched.complaint = (watched.complaint + piece.decode(errors="replace"))[-MCP_COMPLAINT_CHARS_MAX:]


async def _end(process: asyncio.subprocess.Process, pumps: "list[asyncio.Task[None]]") -> None:
    """Close its input, then ask it to end, then kill it, with all that it started; no wait is longer than its bound."""
    assert process.stdin is not None, "as above"
    process.stdin.close()
    for sign in (None, signal.SIGTERM, signal.SIGKILL):
        if sign is not None:
            _signal(process.pid, sign)
        if await _has_ended(process):
            break
    _signal(process.pid, signal.SIGKILL)  # What it started may have outlived it.
    for pump in pumps:
        pump.cancel()
    await asyncio.gather(*pumps, return_exceptions=True)
    _close(process)


def _signal(pid: int, sign: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, sign)


async def _has_ended(process: asyncio.subprocess.Process) -> bool:
    """Return whether it ended within its time; not by ``wait``, which also waits for pipes that others inherited."""
    for _ in range(_POLLS):
        if process.returncode is not None:
            return True
        await asyncio.sleep(MCP_END_SECONDS / _POLLS)
    return process.returncode is not None


def _close(process: asyncio.subprocess.Process) -> None:
    """Close the pipes, which somebody who inherited them may hold open on the other side."""
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
