"""One connection to a server: opened, asked, closed, each within its time, by one task that owns it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from refold.errors import NotFound
from refold.tools.limits import TOOL_RESULT_BYTES_MAX
from refold.tools.mcp.answers import BROKEN, REMOTE, TIMEOUT, UNREACHABLE, McpFailed, value_of
from refold.tools.mcp.configuring import McpServer, without_secrets
from refold.tools.mcp.limits import (
    MCP_CLOSE_SECONDS,
    MCP_MESSAGE_BYTES_MAX,
    MCP_PAGES_COUNT_MAX,
    MCP_SECONDS_MAX,
    MCP_TOOLS_COUNT_MAX,
    MCP_UNANSWERED_COUNT_MAX,
)
from refold.tools.mcp.outputs import checker_of
from refold.tools.mcp.processes import Watched, process_of
from refold.tools.mcp.runner import within

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import Tool as RemoteTool

_CONNECTION_CLOSED: Final = -32000
_INVALID_REQUEST: Final = -32600
_GONE: Final = frozenset({(_CONNECTION_CLOSED, "Connection closed"), (_INVALID_REQUEST, "Session terminated")})
"""What the SDK says of a connection that is no more; of the numbers alone a server may make errors of its own."""

_ABANDONED: Final = ("Connection closed", "SSE stream")
"""What begins that, and what the SDK says where no answer can come any more."""

_ADVERTISING: Final = "For further information visit"
"""What begins the last line of an error of pydantic, which is of no use to a model."""


class Connection:
    """A live connection, and what the server said of itself; once it ended, ``end`` has the reason."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.tools: list[RemoteTool] = []
        self.about = ""
        self.protocol = ""
        self.end: McpFailed | None = None
        self._watched = Watched()
        self._client: Client | None = None
        self._unanswered = 0
        self._checkers: dict[str, Callable[[object], str]] = {}
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_live(self) -> bool:
        """Whether it may be asked."""
        return self._client is not None and not self._stop.is_set() and not self._watched.ended.is_set()

    async def open(self) -> None:
        """Connect and list the tools; raises ``McpFailed`` where that fails or takes longer than it may."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(ready), name=f"refold-mcp {self.server.name}")
        try:
            async with asyncio.timeout(self.server.connect_seconds):
                await asyncio.shield(ready)
        except TimeoutError:
            self.stop()
            seconds = f"connect_seconds = {self.server.connect_seconds:g}"
            raise self._failed(TIMEOUT, f"did not answer within {seconds}") from None
        except asyncio.CancelledError:
            self.stop()
            raise

    async def _live(self, ready: "asyncio.Future[None]") -> None:
        """Own the connection from its beginning to its end: what is entered in a task has to be left in it."""
        try:
            async with _client_of(self.server, self._watched) as client:
                cast("Any", client.session).validate_tool_result = _taken
                self._listed(await _tools_of(client))
                about = client.server_info
                self.about = "" if about is None else f"{about.name} {about.version}"
                self.protocol = client.protocol_version
                self._client = client
                _settle(ready, None)
                await self._until_its_end()
        except asyncio.CancelledError:
            self.end = self._failed(UNREACHABLE, "was disconnected")
            _settle(ready, self.end)
        except BaseException as error:  # noqa: BLE001 - whatever a connection ends with is told to who asks
            self.end = self._explained(error)
            _settle(ready, self.end)
        finally:
            self._client = None

    async def _until_its_end(self) -> None:
        ends = [asyncio.create_task(event.wait()) for event in (self._stop, self._watched.ended)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        if not self._stop.is_set():
            self.end = self._failed(BROKEN, self._watched.fault or "ended the connection")

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Return what a tool returns; raises ``McpFailed``. Its time is that of the caller."""
        client = self._client
        if client is None:
            raise self.end or self._failed(UNREACHABLE, "is not connected")
        try:
            result = await client.call_tool(tool, arguments)
        except Exception as error:
            raise self._broken(error, REMOTE) from error
        self._unanswered = 0
        try:
            value = value_of(result, tool, self.server.result_bytes_max)
        except McpFailed as error:
            raise McpFailed(error.reason, without_secrets(str(error), self.server)) from None
        self._check(tool, result.structured_content)
        return value

    def give_up(self) -> None:
        """End a connection over HTTP that no longer answers: each call that was given up keeps a request open."""
        self._unanswered += self.is_live
        if self.server.url and self._unanswered >= MCP_UNANSWERED_COUNT_MAX:
            self.stop()

    def _listed(self, tools: "list[RemoteTool]") -> None:
        self.tools = tools
        self._checkers.clear()

    def _check(self, tool: str, structured: object) -> None:
        """Refuse a result that is not what the tool said that it returns."""
        said = next((one.output_schema for one in self.tools if one.name == tool), None)
        if said is None:
            return
        if structured is None:
            raise self._failed(
                BROKEN, f"lists {tool!r} with an output schema, and it did not return structured content"
            )
        if tool not in self._checkers:
            self._checkers[tool] = checker_of(said)
        fault = self._checkers[tool](structured)
        if fault:
            raise self._failed(BROKEN, f"returned for {tool!r} what its own output schema does not allow: {fault}")

    async def relist(self) -> None:
        """List the tools again; raises ``McpFailed``."""
        client = self._client
        if client is None:
            raise self.end or self._failed(UNREACHABLE, "is not connected")
        try:
            self._listed(await within(self.server.connect_seconds, _tools_of(client)))
        except TimeoutError:
            raise self._failed(TIMEOUT, f"did not list its tools within {self.server.connect_seconds:g} s") from None
        except Exception as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception, answered: str = BROKEN) -> McpFailed:
        """Return the failure of a request, and end the connection where it is the connection that failed."""
        code, said = getattr(error, "code", None), getattr(error, "message", "")
        is_gone = (code, said) in _GONE or self._watched.ended.is_set()
        if is_gone or isinstance(error, OSError):
            self.stop()
            return self._failed(BROKEN, self._watched.fault or "ended the connection during a request")
        failed = self._explained(error)
        if code is not None and failed.reason == BROKEN:
            failed.reason = answered
        return failed

    def _explained(self, raised: BaseException) -> McpFailed:
        """Return what went wrong as one failure: the innermost reason of a group of tasks."""
        error = _innermost(raised)
        if isinstance(error, McpFailed):
            return error
        if isinstance(error, (FileNotFoundError, PermissionError)) and self.server.command:
            return self._failed(UNREACHABLE, f"cannot be started: {error}")
        said = " ".join(str(error).partition(_ADVERTISING)[0].split()) or type(error).__name__
        return self._failed(UNREACHABLE if _is_of_network(error) else BROKEN, f"failed: {said}")

    def _failed(self, reason: str, what: str) -> McpFailed:
        complaint = self._watched.complaint.strip()
        strays = f"; it wrote {self._watched.strays} lines that are no messages" if self._watched.strays else ""
        said = f"; it said: {complaint}" if complaint else ""
        message = f"server {self.server.name!r} {what}{strays}{said}"
        return McpFailed(reason, without_secrets(message, self.server))

    def stop(self) -> None:
        """Let the connection end by itself; a connection that still begins is given up."""
        if self._client is None and self._task is not None:
            self._task.cancel()
        self._stop.set()

    async def close(self) -> None:
        """End the connection, and wait until nothing of it is left."""
        self.stop()
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=MCP_CLOSE_SECONDS)
            if late:
                self._task.cancel()
                await asyncio.wait([self._task])


async def _taken(_name: str, _result: object) -> None:
    """Let a result be checked here, not by the SDK, which has no bound on what that takes."""


def _innermost(error: BaseException) -> BaseException:
    """Return the first error of a group, of a group in it, and so on."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    inner = cast("Sequence[BaseException]", error.exceptions)  # pyright: ignore[reportUnknownMemberType]
    return _innermost(inner[0])


def _is_of_network(error: BaseException) -> bool:
    """Return whether nobody answered, rather than something that makes no sense."""
    from httpx2 import TransportError  # noqa: PLC0415 - comes with the extra `mcp`

    is_closed = getattr(error, "code", None) == _CONNECTION_CLOSED
    is_abandoned = is_closed and str(getattr(error, "message", "")).startswith(_ABANDONED)
    return isinstance(error, (OSError, TransportError)) or is_abandoned


def _settle(ready: "asyncio.Future[None]", error: McpFailed | None) -> None:
    if ready.done():
        return
    if error is None:
        ready.set_result(None)
        return
    ready.set_exception(error)
    ready.exception()  # Whoever waited may have gone: nobody has to be told that nobody asked.


@asynccontextmanager
async def _client_of(server: McpServer, watched: Watched) -> "AsyncGenerator[Client, None]":
    """Yield the SDK's client of a server."""
    try:
        from mcp import Client  # noqa: PLC0415 - comes with the extra `mcp`
    except ModuleNotFoundError as error:
        message = 'remote tools need the package mcp; install the extra: pip install "refold[mcp]"'
        raise NotFound(message) from error
    transport = process_of(server, watched) if server.command else _http_of(server)
    async with Client(transport, mode=server.protocol, cache=None) as client:
        yield client


@asynccontextmanager
async def _http_of(server: McpServer) -> AsyncGenerator[Any, None]:
    """Yield the streams of a server that is reached over HTTP, whose bodies have a greatest length."""
    import httpx2  # noqa: PLC0415 - comes with the extra `mcp`
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - as above

    # A call is given up by whoever waits for it; a read that is would end the whole connection.
    timeout = httpx2.Timeout(server.connect_seconds, read=MCP_SECONDS_MAX)
    hooks = {"response": [_bounding()]}
    async with (
        httpx2.AsyncClient(headers=server.headers, timeout=timeout, event_hooks=hooks) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=MCP_MESSAGE_BYTES_MAX) as streams,
    ):
        yield streams


def _bounding() -> Callable[[Any], Awaitable[None]]:
    """Return a hook that lets a body which is one message end where a message may be no longer."""
    from httpx2 import AsyncByteStream  # noqa: PLC0415 - comes with the extra `mcp`

    class Bounded(AsyncByteStream):
        """The stream of a body that raises once it has given more than a message may have."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            """Yield the pieces."""
            size_bytes = 0
            async for piece in self._stream:
                size_bytes += len(piece)
                if size_bytes > MCP_MESSAGE_BYTES_MAX:
                    message = f"it sent a message over MCP_MESSAGE_BYTES_MAX = {MCP_MESSAGE_BYTES_MAX:,} bytes"
                    raise ConnectionError(message)
                yield piece

        async def aclose(self) -> None:
            """Close the stream."""
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = Bounded(response.stream)

    return bound


async def _tools_of(client: "Client") -> "list[RemoteTool]":
    """Return all tools of a server, however many pages it lists them on, up to their bounds."""
    tools: list[RemoteTool] = []
    cursor: str | None = None
    for _ in range(MCP_PAGES_COUNT_MAX):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if len(tools) > MCP_TOOLS_COUNT_MAX:
            bound = f"MCP_TOOLS_COUNT_MAX = {MCP_TOOLS_COUNT_MAX}"
            raise McpFailed(BROKEN, f"the server lists more than {bound} tools")
        if not cursor:
            return tools
    bound = f"MCP_PAGES_COUNT_MAX = {MCP_PAGES_COUNT_MAX}"
    raise McpFailed(BROKEN, f"the server lists its tools on more than {bound} pages")


assert MCP_MESSAGE_BYTES_MAX > TOOL_RESULT_BYTES_MAX
