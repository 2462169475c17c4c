"""One connection to a server of tools: configured, opened, asked, closed, over HTTP or with a process."""

import asyncio
import os
import re
import signal
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct

from refold import checks
from refold.agent.tools import ToolFailed, storable
from refold.errors import Closed, InvalidInput, NotFound
from refold.limits import (
    MCP_ASKED_COUNT_MAX,
    MCP_CALL_SECONDS_DEFAULT,
    MCP_CLOSE_SECONDS,
    MCP_COMPLAINT_CHARS_MAX,
    MCP_CONNECT_SECONDS_DEFAULT,
    MCP_END_SECONDS,
    MCP_MESSAGE_BYTES_MAX,
    MCP_PAGES_COUNT_MAX,
    MCP_RESULT_BYTES_DEFAULT,
    MCP_SECONDS_MAX,
    MCP_SECRET_CHARS_MIN,
    MCP_TOOLS_COUNT_MAX,
    MCP_UNANSWERED_COUNT_MAX,
    NAME_BYTES_MAX,
    TOOL_RESULT_BYTES_MAX,
)
from refold.mcp.schemas import checker_of

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp import Client
    from mcp.shared.message import SessionMessage
    from mcp.types import CallToolResult
    from mcp.types import Tool as RemoteTool


# What a remote tool answered, as the value of a call; and how remote tools fail.

TIMEOUT: Final = "timeout"
UNREACHABLE: Final = "unreachable"
BROKEN: Final = "broken"
REMOTE: Final = "remote"
TOO_LARGE: Final = "too_large"


class McpFailed(ToolFailed):
    """A remote tool gave no result; ``reason`` is timeout, unreachable, broken, remote or too_large.

    ``unreachable``: there is no connection, and none could be made. ``broken``: the server died, or does not keep to
    the protocol or to its own schema. ``remote``: the server or the tool itself says that it failed.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(storable(message))
        self.reason = reason


def value_of(result: "CallToolResult", name: str, bytes_max: int) -> Any:
    """Return the value of a call: its structured content, or its texts, or all of it as JSON where some is no text.

    Raises ``McpFailed`` for a call that failed there, and for a value over ``bytes_max``.
    """
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    texts = [block["text"] for block in blocks if block.get("type") == "text"]
    joined = "\n".join(texts)
    if result.is_error:
        raise McpFailed(REMOTE, joined or msgspec.json.encode(blocks).decode())
    structured: Any = result.structured_content
    value = joined if structured is None else structured
    if len(texts) != len(blocks):
        value = {"content": blocks} if structured is None else {"content": blocks, "structuredContent": structured}
    size = len(msgspec.json.encode(value))
    if size > bytes_max:
        bound = f"result_bytes_max = {bytes_max:,}"
        raise McpFailed(TOO_LARGE, f"{name} returned {size:,} bytes, over {bound}; ask it for less")
    return value


# How servers of remote tools are reached, as data: written in Python, or read from the common ``mcpServers`` JSON.

_HTTP: Final = ("http://", "https://")
_OVER_HTTP: Final = frozenset({"http", "streamable-http", "streamable_http", "streamableHttp"})
_SECRET_PARTS: Final = re.compile(r"[:/@?&=#]+")
_PROTOCOLS: Final = ("auto", "legacy")


class McpServer(Struct, frozen=True, kw_only=True):
    """How a server is reached: a command that is started and spoken to by its standard streams, or a URL.

    A command gets ``env`` beside a few variables of this process (its home, user, path, shell and terminal), and
    nothing else of it. ``protocol`` is ``auto``, or ``legacy`` for a server that stops at a question which it does not
    know. Neither ``env`` nor ``headers`` is shown by ``repr``: they hold secrets.

    >>> McpServer(name="files", command="npx", args=("server-files",), env={"TOKEN": "secret"})
    McpServer('files', command='npx', args=('server-files',), env=['TOKEN'])
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    protocol: str = "auto"
    connect_seconds: float = MCP_CONNECT_SECONDS_DEFAULT
    call_seconds: float = MCP_CALL_SECONDS_DEFAULT
    result_bytes_max: int = MCP_RESULT_BYTES_DEFAULT

    def __repr__(self) -> str:
        """Return the server without values that may be secret."""
        where = f"url={_public(self.url)!r}" if self.url else f"command={self.command!r}, args={self.args}"
        hidden = [f"{field}={sorted(held)}" for field in ("env", "headers") if (held := getattr(self, field))]
        return f"McpServer({', '.join([repr(self.name), where, *hidden])})"


def _public(url: str) -> str:
    """Return a URL without what may be secret in it: a user, a password, and what is asked."""
    begin, slashes, rest = url.partition("://")
    if not slashes:
        return "..."
    host, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return f"{begin}://{host.rpartition('@')[2]}{slash}{path}"


def without_secrets(text: str, server: McpServer) -> str:
    """Return a text without the values that a server was given as its environment and headers, and within its url.

    >>> without_secrets("no such token: hunter2hunter2", McpServer(name="s", command="x", env={"T": "hunter2hunter2"}))
    'no such token: ***'
    """
    given = [*server.env.values(), *server.headers.values()]
    given += [word for value in server.headers.values() for word in value.split()]
    given += [part for part in _SECRET_PARTS.split(server.url) if part not in _public(server.url)]
    for secret in sorted({one for one in given if len(one) >= MCP_SECRET_CHARS_MIN}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def checked(server: McpServer) -> McpServer:
    """Return a server that may be tried; raises ``InvalidInput`` for what could never be reached."""
    if not isinstance(cast("object", server), McpServer):
        checks.invalid(f"a server is described by an McpServer, not by {checks.shown(server)}")
    _check_place(server)
    for what in ("connect_seconds", "call_seconds"):
        if not 0 < getattr(server, what) <= MCP_SECONDS_MAX:
            bound = f"over 0 and up to MCP_SECONDS_MAX = {MCP_SECONDS_MAX:.0f}"
            shown = checks.shown(getattr(server, what))
            checks.invalid(f"{what} of server {server.name!r} is {shown}; give a number {bound}")
    checks.integer(server.result_bytes_max, "result_bytes_max", 1, TOOL_RESULT_BYTES_MAX, "TOOL_RESULT_BYTES_MAX")
    return server


def _check_place(server: McpServer) -> None:
    """Refuse what says neither where a server is nor how it is spoken to."""
    name = checks.text(server.name, "a server's name", NAME_BYTES_MAX, "NAME_BYTES_MAX")
    if not name or ":" in name or not name.isprintable():
        checks.invalid(f"a server's name is {checks.shown(name)}; give printable characters without a colon")
    if bool(server.command) == bool(server.url):
        checks.invalid(f"server {name!r} needs either a command or a url")
    if server.url and not server.url.startswith(_HTTP):
        shown = checks.shown(_public(server.url))
        checks.invalid(f"the url of server {name!r} is {shown}; give one of http or https")
    if server.protocol not in _PROTOCOLS:
        checks.invalid(f"the protocol of server {name!r} is {checks.shown(server.protocol)}; give auto or legacy")
    if any("\0" in text for text in (server.command, *server.args, *server.env, *server.env.values())):
        checks.invalid(f"the command of server {name!r} holds a zero character; no program can be given one")


class _Entry(Struct):
    """One server of an ``mcpServers`` object; what other hosts keep there beside it is left alone."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    type: str = ""
    disabled: bool = False


def servers_of(configuration: str | bytes | Mapping[str, Any]) -> list[McpServer]:
    """Return the servers of the JSON that hosts share, ``{"mcpServers": {"name": {...}}}``, without disabled ones.

    Raises ``InvalidInput`` where it is no such JSON, and for servers over SSE alone, which the protocol gave up.
    """
    try:
        held = msgspec.json.decode(configuration) if isinstance(configuration, (str, bytes)) else configuration
        entries = msgspec.convert(held, dict[str, Any]).get("mcpServers")
        found = msgspec.convert(entries, dict[str, _Entry])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInput(
            f"this is no mcpServers configuration ({error}); give an object of servers by name under that key"
        ) from error
    return [_server(name, entry) for name, entry in found.items() if not entry.disabled]


def _server(name: str, entry: _Entry) -> McpServer:
    if entry.type == "sse":
        checks.invalid(f"server {name!r} speaks SSE alone; give the url of its streamable HTTP endpoint, of type http")
    if entry.type and entry.type != "stdio" and entry.type not in _OVER_HTTP:
        checks.invalid(f"the type of server {name!r} is {checks.shown(entry.type)}; give stdio or http")
    fields = {field: getattr(entry, field) for field in ("command", "args", "env", "cwd", "url", "headers")}
    return checked(McpServer(name=name, **fields))


# An event loop on a thread of its own, for connections that outlive the calls of programs without one.

T = TypeVar("T")


_ASIDE: Final[set["asyncio.Future[Any]"]] = set()
"""What was given up and has not ended yet."""


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return what work comes to; raises ``TimeoutError``, and does not wait until work that is given up has ended."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=seconds)
        if not done:
            raise TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            _ASIDE.add(task)
            task.add_done_callback(_forget)


def _forget(task: "asyncio.Future[Any]") -> None:
    _ASIDE.discard(task)
    if not task.cancelled():
        task.exception()  # Nobody waits for it: it is taken as told.


def closed() -> Closed:
    """Return the error of a toolset that is closed, or was while somebody waited."""
    return Closed("this toolset is closed; make another one")


class Runner:
    """The thread, which begins with the first task and ends with ``close``."""

    __slots__ = ("_is_closed", "_lock", "_loop", "_thread")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def begin(self, task: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a task on the loop and return what it will come to; raises ``Closed`` after ``close``."""
        with self._lock:
            if self._is_closed:
                task.close()
                raise closed()
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=[self._loop], name="refold-mcp", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(task, self._loop)

    def wait(self, task: Coroutine[Any, Any, T]) -> T:
        """Run a task on the loop and wait for what it comes to; raises ``Closed`` where it was closed meanwhile."""
        future = self.begin(task)
        try:
            return future.result()
        except CancelledError:
            raise closed() from None
        except BaseException:
            future.cancel()
            raise

    async def awaited(self, task: Coroutine[Any, Any, T]) -> T:
        """Run a task on the loop and await what it comes to; raises ``Closed`` where it was closed meanwhile."""
        future = self.begin(task)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is None or waiting.cancelling():
                raise
            raise closed() from None

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            while left := asyncio.all_tasks(loop):
                for task in left:
                    task.cancel()
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def close(self) -> None:
        """End the loop and its thread, once they are idle; a second call does nothing."""
        with self._lock:
            loop, thread, self._loop, self._is_closed = self._loop, self._thread, None, True
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on the loop's own thread."""
        return threading.current_thread() is self._thread


# A server that is started as a process and spoken to by its standard streams, one line for each message.
#
# It differs from the SDK's own transport in its bounds: a line has a longest length, what is no message is dropped
# and counted, the end of standard error is kept for error messages, and ending it takes three short waits at most.

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
        raise NotFound('remote tools need the package mcp; install the extra: pip install "refold[mcp]"') from error
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
                    raise ConnectionError(
                        f"it sent a message over MCP_MESSAGE_BYTES_MAX = {MCP_MESSAGE_BYTES_MAX:,} bytes"
                    )
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
