"""One connection to a server of remote tools, over HTTP or to a child process."""

import asyncio
import logging
import os
import re
import signal
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from refold import checks
from refold.agent.tools import ToolFailed, storable_text
from refold.errors import Closed, InvalidInput, NotFound
from refold.limits import (
    MCP_ASKED_COUNT_MAX,
    MCP_CALL_SECONDS_DEFAULT,
    MCP_CLOSE_SECONDS,
    MCP_COMPLAINT_CHARS_MAX,
    MCP_CONNECT_SECONDS_DEFAULT,
    MCP_END_SECONDS,
    MCP_LIST_BYTES_MAX,
    MCP_MESSAGE_BYTES_MAX,
    MCP_NESTED_COUNT_MAX,
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

TIMEOUT: Final = "timeout"
UNREACHABLE: Final = "unreachable"
BROKEN: Final = "broken"
REMOTE: Final = "remote"
TOO_LARGE: Final = "too_large"

_LOG: Final = logging.getLogger("refold")
assert MCP_MESSAGE_BYTES_MAX > TOOL_RESULT_BYTES_MAX


class McpFailed(ToolFailed):
    """A remote tool gave no result; `reason` is timeout, unreachable, broken, remote or too_large.

    `unreachable`: there is no connection, and none could be made. `broken`: the server died, or violates the protocol
    or its own schema. `remote`: the server or the tool itself reports a failure.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(storable_text(message))
        self.reason = reason


# Servers as data: written in Python, or read from the common `mcpServers` JSON.

_HTTP_TYPES: Final = frozenset({"http", "streamable-http", "streamable_http", "streamableHttp"})
_COMPRESSED: Final = frozenset(("gzip", "x-gzip", "deflate", "compress", "br", "zstd"))
_LINE_CHARS_MIN: Final = 16  # A shorter line of a secret could be any word.
_SECRET_PARTS: Final = re.compile(r"[:/@?&=#]+")


class McpServer(Struct, frozen=True, kw_only=True):
    """A server of tools: a command that communicates over its standard streams, or a URL.

    A command gets `env` in addition to a few variables of this process (its home, user, path, shell and terminal).
    `protocol` is `auto`, or `legacy` for a server that hangs on unknown requests. `repr` shows neither `env` nor
    `headers`, which contain secrets.

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
        where = f"url={_public_url(self.url)!r}" if self.url else f"command={self.command!r}, args={self.args}"
        keys = {"env": sorted(self.env), "headers": sorted(self.headers)}
        return f"McpServer({', '.join([repr(self.name), where, *(f'{key}={of}' for key, of in keys.items() if of)])})"


def _public_url(url: str) -> str:
    """Return a URL without its user, password and query, which can be secret."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return "..."
    host, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _rest_of_secret(text: str, server: McpServer) -> int:
    """Return the number of characters at the start of a truncated text that are the rest of a secret."""
    rests = (secret[begin:] for secret in _secrets_of(server) for begin in range(1, len(secret)))
    return max((len(rest) for rest in rests if text.startswith(rest)), default=0)


def mask_secrets(text: str, server: McpServer) -> str:
    """Mask in a text the values of a server's environment and headers, and the secrets in its URL.

    >>> mask_secrets("no such token: hunter2hunter2", McpServer(name="s", command="x", env={"T": "hunter2hunter2"}))
    'no such token: ***'
    """
    for secret in _secrets_of(server):
        text = text.replace(secret, "***")
    return text


def _secrets_of(server: McpServer) -> list[str]:
    """List the texts to mask, longest first: each secret, its lines, and its other spellings."""
    secrets = {*server.env.values(), *server.headers.values()}
    secrets.update(word for value in server.headers.values() for word in value.split())
    secrets.update(part for part in _SECRET_PARTS.split(server.url) if part not in _public_url(server.url))
    forms = {*secrets, *map(unquote, secrets)}
    lines = (line.strip() for secret in secrets for line in secret.splitlines())
    forms.update(line for line in lines if len(line) >= _LINE_CHARS_MIN)
    forms.update(" ".join(secret.split()) for secret in secrets)
    forms.update(msgspec.json.encode(form).decode()[1:-1] for form in list(forms))
    return sorted((form for form in forms if len(form) >= MCP_SECRET_CHARS_MIN), key=len, reverse=True)


def check_server(server: McpServer) -> McpServer:
    """Return the server if it is valid; raises `InvalidInput` for a server that could never be reached."""
    if not isinstance(cast("object", server), McpServer):
        checks.invalid(f"a server is described by an McpServer, not by {checks.brief(server)}")
    name = checks.text(server.name, "a server's name", NAME_BYTES_MAX, "NAME_BYTES_MAX")
    if not name or ":" in name or not name.isprintable():
        checks.invalid(f"a server's name is {checks.brief(name)}; give printable characters without a colon")
    if bool(server.command) == bool(server.url):
        checks.invalid(f"server {name!r} needs either a command or a url")
    if server.url and not server.url.startswith(("http://", "https://")):
        shown = checks.brief(_public_url(server.url))
        checks.invalid(f"the url of server {name!r} is {shown}; give one of http or https")
    if server.protocol not in {"auto", "legacy"}:
        checks.invalid(f"the protocol of server {name!r} is {checks.brief(server.protocol)}; give auto or legacy")
    if any("\0" in text for text in (server.command, *server.args, *server.env, *server.env.values())):
        checks.invalid(f"the command of server {name!r} holds a zero character; no program can be given one")
    for field in ("connect_seconds", "call_seconds"):
        seconds = getattr(server, field)
        if not 0 < seconds <= MCP_SECONDS_MAX:
            advice = f"give a number over 0 and up to {MCP_SECONDS_MAX = :.0f}"
            checks.invalid(f"{field} of server {name!r} is {checks.brief(seconds)}; {advice}")
    checks.integer(server.result_bytes_max, "result_bytes_max", 1, TOOL_RESULT_BYTES_MAX, "TOOL_RESULT_BYTES_MAX")
    return server


class _ServerEntry(Struct):
    """One server of an `mcpServers` object; fields of other hosts are ignored."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    type: str = ""
    disabled: bool = False


def servers_of(configuration: str | bytes | Mapping[str, Any]) -> list[McpServer]:
    """Parse the JSON configuration that hosts share, `{"mcpServers": {"name": {...}}}`, without disabled servers.

    A server that only speaks SSE, which the protocol abandoned, is left out with a warning in the log, so that the
    others can be connected. Raises `InvalidInput` for other JSON.
    """
    try:
        document = msgspec.json.decode(configuration) if isinstance(configuration, (str, bytes)) else configuration
        entries = msgspec.convert(msgspec.convert(document, dict[str, Any]).get("mcpServers"), dict[str, _ServerEntry])
    except checks.UNDECODABLE as error:
        raise InvalidInput(
            f"this is no mcpServers configuration ({error}); give an object of servers by name under that key"
        ) from error
    servers: list[McpServer] = []
    for name, entry in entries.items():
        fields = msgspec.structs.asdict(entry)
        kind = fields.pop("type")
        if fields.pop("disabled"):
            continue
        if kind == "sse":
            _LOG.warning(
                "MCP server %r speaks SSE alone and is left out; give the url of its streamable HTTP endpoint, of type "
                "http",
                name,
            )
            continue
        if kind not in {"", "stdio", *_HTTP_TYPES}:
            checks.invalid(f"the type of server {name!r} is {checks.brief(kind)}; give stdio or http")
        servers.append(check_server(McpServer(name=name, **fields)))
    return servers


# An event loop on a separate thread, for connections that outlive the calls of programs without an event loop.

T = TypeVar("T")
_ABANDONED: Final[set["asyncio.Future[Any]"]] = set()  # Abandoned tasks that have not ended yet.
_CLOSED: Final = "this toolset is closed; make another one"


async def wait_for(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Await work with a timeout; raises `TimeoutError` on time, even while the cancelled work is still ending."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=seconds)
        if not done:
            raise TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            _ABANDONED.add(task)
            task.add_done_callback(_forget)


def _forget(task: "asyncio.Future[Any]") -> None:
    _ABANDONED.discard(task)
    if not task.cancelled():
        task.exception()  # Retrieved, so that asyncio does not log it as unhandled.


class Runner:
    """An event loop on a separate thread, from the first task to `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def begin(self, task: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a task on the loop; raises `Closed` after `close`."""
        with self._lock:
            if self._is_closed:
                task.close()
                raise Closed(_CLOSED)
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=[self._loop], name="refold-mcp", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(task, self._loop)

    def wait(self, task: Coroutine[Any, Any, T]) -> T:
        """Run a task on the loop and wait for its result; raises `Closed` if the runner is closed meanwhile."""
        future = self.begin(task)
        try:
            return future.result()
        except CancelledError:
            raise Closed(_CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    async def wait_async(self, task: Coroutine[Any, Any, T]) -> T:
        """Run a task on the loop and await its result, like `wait`."""
        future = self.begin(task)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise
            raise Closed(_CLOSED) from None

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            while tasks := asyncio.all_tasks(loop):
                for task in tasks:
                    task.cancel()
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def close(self) -> None:
        """End the loop and its thread once they are idle; a second call is a no-op."""
        with self._lock:
            loop, thread, self._loop, self._is_closed = self._loop, self._thread, None, True
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on the loop's own thread."""
        return threading.current_thread() is self._thread


# A server that is started as a process, with one message per line over its standard streams.
#
# The SDK's own transport is unbounded: a line without an end fills the memory, bytes that are not UTF-8 end the
# transport, every line that is not a message puts a traceback in the program's log, and standard error goes to a file
# or nowhere. Here the length of a line is limited, stray lines are dropped and counted, the tail of standard error goes
# into error messages, and ending the process takes at most three short waits.

_INHERITED: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TMPDIR", "LANG")
_POLLS: Final = 100


class ServerProcess:
    """The process of a server: its streams while it runs, and the reason why it ended."""

    def __init__(self) -> None:
        self.complaint = ""  # The tail of its standard error.
        self.strays = 0  # Lines on its standard output that were not messages.
        self.fault = ""  # Why its output is no longer read.
        self.ended = asyncio.Event()  # Set once its standard output is closed or no longer read.
        self._requests = 0  # Requests from the server whose answers it has not read yet.

    @asynccontextmanager
    async def streams(self, server: McpServer) -> AsyncGenerator[tuple[Any, Any]]:
        """Start a server and yield the streams of its messages; on exit, stop it and every process it started."""
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
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: PT018
        into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](0)
        pumps = [
            asyncio.create_task(self._read(process.stdout, into)),
            asyncio.create_task(self._write(process.stdin, out_of)),
            asyncio.create_task(self._read_complaint(process.stderr)),
        ]
        try:
            yield incoming, outgoing
        finally:
            for stream in (incoming, outgoing, into, out_of):
                stream.close()
            await _shield(_end(process, pumps))

    async def _read(
        self, stdout: asyncio.StreamReader, into: "MemoryObjectSendStream[SessionMessage | Exception]"
    ) -> None:
        import anyio  # noqa: PLC0415 - as above
        from mcp.shared.message import SessionMessage  # noqa: PLC0415 - as above
        from mcp.types import jsonrpc_message_adapter  # noqa: PLC0415 - as above

        # Broken or closed: the consumer is gone.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            try:
                async with into:
                    while line := await stdout.readline():
                        if excess := _excess(len(line), _count_nested(line)):
                            self.fault = excess
                            break
                        try:
                            message: Any = jsonrpc_message_adapter.validate_json(line, by_name=False)
                        except (ValueError, RecursionError):
                            self.strays += bool(line.strip())
                            await asyncio.sleep(0)  # Reading buffered lines never yields to other tasks.
                            continue
                        self._requests += hasattr(message, "method") and hasattr(message, "id")
                        if self._requests > MCP_ASKED_COUNT_MAX:
                            self.fault = f"asked more than {MCP_ASKED_COUNT_MAX = :,} times and reads no answer"
                            break
                        await into.send(SessionMessage(message))
            except ValueError:  # A line over the stream's limit.
                self.fault = _excess(MCP_MESSAGE_BYTES_MAX + 1, 0)
            finally:
                self.ended.set()

    async def _write(self, stdin: asyncio.StreamWriter, out_of: "MemoryObjectReceiveStream[SessionMessage]") -> None:
        try:
            async with out_of:
                async for message in out_of:
                    line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    stdin.write(line.encode() + b"\n")
                    await stdin.drain()
                    self._requests -= not hasattr(message.message, "method")
        except ConnectionError:
            self.fault = self.fault or "closed its standard input"
            self.ended.set()

    async def _read_complaint(self, stderr: asyncio.StreamReader) -> None:
        while piece := await stderr.read(MCP_COMPLAINT_CHARS_MAX):
            self.complaint = (self.complaint + piece.decode(errors="replace"))[-2 * MCP_COMPLAINT_CHARS_MAX :]


async def _shield(work: Any) -> None:
    """Finish `work` even if the waiting task is cancelled, then re-raise the cancellation."""
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


async def _end(process: asyncio.subprocess.Process, pumps: "list[asyncio.Task[None]]") -> None:
    """Close its standard input, then SIGTERM, then SIGKILL its process group, each with a bounded wait."""
    assert process.stdin is not None, "it was started with pipes"
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            _signal(process.pid, number)
        # Polled, because `wait` also waits for pipes that other processes inherited.
        for _ in range(_POLLS):
            if process.returncode is not None:
                break
            await asyncio.sleep(MCP_END_SECONDS / _POLLS)
        if process.returncode is not None:
            break
    _signal(process.pid, signal.SIGKILL)  # Processes that it started could have outlived it.
    for pump in pumps:
        pump.cancel()
    await asyncio.gather(*pumps, return_exceptions=True)
    # A process that inherited the pipes could hold their other ends open.
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


# Connections.

_CONNECTION_CLOSED: Final = -32000
_INVALID_REQUEST: Final = -32600
# SDK errors for a lost connection; matched with the message, because a server can use the same codes for its own.
_GONE: Final = frozenset({(_CONNECTION_CLOSED, "Connection closed"), (_INVALID_REQUEST, "Session terminated")})
# Prefixes of the same messages, and of the SDK's error if no answer can arrive any more.
_LOST: Final = ("Connection closed", "SSE stream")
# The prefix of the last line of a pydantic error, which is useless to a model.
_ADVERTISING: Final = "For further information visit"


class Connection:
    """A live connection and the server's description of itself; after the connection ended, `end` is the reason."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.tools: list[RemoteTool] = []
        self.about = ""
        self.protocol = ""
        self.end: McpFailed | None = None
        self._process = ServerProcess()
        self._client: Client | None = None
        self._unanswered = 0
        self._checkers: dict[str, Callable[[object], str]] = {}
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_live(self) -> bool:
        """Whether it can be used."""
        return self._client is not None and not self._stop.is_set() and not self._process.ended.is_set()

    async def open(self) -> None:
        """Connect and list the tools; raises `McpFailed` if that fails or takes too long."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(ready), name=f"refold-mcp {self.server.name}")
        try:
            async with asyncio.timeout(self.server.connect_seconds):
                await asyncio.shield(ready)
        except TimeoutError:
            self.stop()
            seconds = f"connect_seconds = {self.server.connect_seconds:g}"
            raise self._make_error(TIMEOUT, f"did not answer within {seconds}") from None
        except asyncio.CancelledError:
            self.stop()
            raise

    async def _run(self, ready: "asyncio.Future[None]") -> None:
        """Own the connection for its whole life, because a context must be exited by the task that entered it."""
        try:
            async with self._open_client() as client:
                self._set_tools(await _list_tools(client))
                about = client.server_info
                self.about = "" if about is None else f"{about.name} {about.version}"
                self.protocol = client.protocol_version
                self._client = client
                if not ready.done():
                    ready.set_result(None)
                ends = [asyncio.create_task(event.wait()) for event in (self._stop, self._process.ended)]
                try:
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for end in ends:
                        end.cancel()
                if not self._stop.is_set():
                    self.end = self._make_error(BROKEN, self._process.fault or "ended the connection")
        except asyncio.CancelledError:
            self._fail(ready, self._make_error(UNREACHABLE, "was disconnected"))
        except BaseException as error:  # noqa: BLE001 - callers of the connection get the reason
            self._fail(ready, self._convert_error(error))
        finally:
            self._client = None

    @asynccontextmanager
    async def _open_client(self) -> "AsyncGenerator[Client]":
        try:
            from mcp import Client  # noqa: PLC0415 - comes with the extra `mcp`
        except ModuleNotFoundError as error:
            raise NotFound('remote tools need the package mcp; install the extra: pip install "refold[mcp]"') from error
        transport = self._process.streams(self.server) if self.server.command else _http_streams(self.server)
        async with Client(transport, mode=self.server.protocol, cache=None) as client:
            # Results are checked in this module: the SDK does not limit how long a check takes.
            cast("Any", client.session).validate_tool_result = _accept_result
            yield client

    def _fail(self, ready: "asyncio.Future[None]", error: McpFailed) -> None:
        self.end = error
        if not ready.done():
            ready.set_exception(error)
            ready.exception()  # Retrieved, so that asyncio does not log it as unhandled.

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Call a tool and return its value; raises `McpFailed`. The caller must limit its time."""
        try:
            result = await self._live_client().call_tool(tool, arguments)
        except McpFailed:
            raise
        except Exception as error:
            raise self._request_error(error, REMOTE) from error
        self._unanswered = 0
        value = _value_of(result, tool, self.server)
        self._check(tool, result.structured_content)
        return value

    def _live_client(self) -> "Client":
        if self._client is None:
            raise self.end or self._make_error(UNREACHABLE, "is not connected")
        return self._client

    def give_up(self) -> None:
        """Stop an HTTP connection that no longer answers, because each abandoned call keeps a request open."""
        self._unanswered += self.is_live
        if self.server.url and self._unanswered >= MCP_UNANSWERED_COUNT_MAX:
            self.stop()

    def _set_tools(self, tools: "list[RemoteTool]") -> None:
        self.tools = tools
        self._checkers.clear()

    def _check(self, tool: str, structured: object) -> None:
        schema = next((one.output_schema for one in self.tools if one.name == tool), None)
        if schema is None:
            return
        if structured is None:
            reason = f"lists {tool!r} with an output schema, and it did not return structured content"
            raise self._make_error(BROKEN, reason)
        if tool not in self._checkers:
            self._checkers[tool] = checker_of(schema)
        fault = self._checkers[tool](structured)
        if fault:
            raise self._make_error(BROKEN, f"returned for {tool!r} what its own output schema does not allow: {fault}")

    async def relist(self) -> None:
        """List the tools again; raises `McpFailed`."""
        client = self._live_client()
        try:
            self._set_tools(await wait_for(self.server.connect_seconds, _list_tools(client)))
        except TimeoutError:
            raise self._make_error(
                TIMEOUT, f"did not list its tools within {self.server.connect_seconds:g} s"
            ) from None
        except Exception as error:
            raise self._request_error(error) from error

    def _request_error(self, error: Exception, reason: str = BROKEN) -> McpFailed:
        """Convert the error of a request, and stop the connection if the connection itself failed."""
        code, message = getattr(error, "code", None), getattr(error, "message", "")
        if (code, message) in _GONE or self._process.ended.is_set() or isinstance(error, OSError):
            self.stop()
            return self._make_error(BROKEN, self._process.fault or "ended the connection during a request")
        failed = self._convert_error(error)
        if code is not None and failed.reason == BROKEN:
            failed.reason = reason
        return failed

    def _convert_error(self, raised: BaseException) -> McpFailed:
        error = raised
        while isinstance(error, BaseExceptionGroup):
            error = cast("Sequence[BaseException]", error.exceptions)[0]  # pyright: ignore[reportUnknownMemberType]
        if isinstance(error, McpFailed):
            return error
        if isinstance(error, (FileNotFoundError, PermissionError)) and self.server.command:
            return self._make_error(UNREACHABLE, f"cannot be started: {error}")
        text = " ".join(str(error).partition(_ADVERTISING)[0].split()) or type(error).__name__
        return self._make_error(UNREACHABLE if _is_of_network(error) else BROKEN, f"failed: {text}")

    def _make_error(self, reason: str, what: str) -> McpFailed:
        written = self._process.complaint
        if len(written) >= 2 * MCP_COMPLAINT_CHARS_MAX:
            written = written[_rest_of_secret(written, self.server) :]
        complaint = mask_secrets(written, self.server)
        complaint = complaint[-MCP_COMPLAINT_CHARS_MAX:].strip()
        strays = f"; it wrote {self._process.strays} lines that are no messages" if self._process.strays else ""
        message = f"server {self.server.name!r} {what}{strays}{f'; it said: {complaint}' if complaint else ''}"
        return McpFailed(reason, mask_secrets(message, self.server))

    def stop(self) -> None:
        """Let the connection end by itself; cancel it if it is still being opened."""
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


def _value_of(result: "CallToolResult", name: str, server: McpServer) -> Any:
    """Return the value of a call: its structured content, its texts, or everything as JSON.

    Raises `McpFailed`, with the server's secrets masked, for a call that failed on the server, and for a value over
    `result_bytes_max`.
    """
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    texts = [block["text"] for block in blocks if block.get("type") == "text"]
    joined = "\n".join(texts)
    if result.is_error:
        # Masked before it is truncated: half a secret would not be recognized.
        raise McpFailed(REMOTE, mask_secrets(joined or msgspec.json.encode(blocks).decode(), server))
    structured: Any = result.structured_content
    value = joined if structured is None else structured
    if len(texts) != len(blocks):
        value = {"content": blocks} if structured is None else {"content": blocks, "structuredContent": structured}
    size = len(msgspec.json.encode(value))
    if size > server.result_bytes_max:
        bound = f"result_bytes_max = {server.result_bytes_max:,}"
        raise McpFailed(TOO_LARGE, f"{name} returned {size:,} bytes, over {bound}; ask it for less")
    return value


async def _accept_result(_name: str, _result: object) -> None:
    pass


def _is_of_network(error: BaseException) -> bool:
    from httpx2 import TransportError  # noqa: PLC0415 - comes with the extra `mcp`

    is_closed = getattr(error, "code", None) == _CONNECTION_CLOSED
    is_lost = is_closed and str(getattr(error, "message", "")).startswith(_LOST)
    return isinstance(error, (OSError, TransportError)) or is_lost


async def _list_tools(client: "Client") -> "list[RemoteTool]":
    tools: list[RemoteTool] = []
    cursor: str | None = None
    size_bytes = 0
    for _ in range(MCP_PAGES_COUNT_MAX):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        size_bytes += sum(len(tool.model_dump_json()) for tool in page.tools)
        if size_bytes > MCP_LIST_BYTES_MAX:
            raise McpFailed(BROKEN, f"the server describes its tools in more than {MCP_LIST_BYTES_MAX = :,} bytes")
        if len(tools) > MCP_TOOLS_COUNT_MAX:
            raise McpFailed(BROKEN, f"the server lists more than {MCP_TOOLS_COUNT_MAX = } tools")
        if not cursor:
            return tools
    raise McpFailed(BROKEN, f"the server lists its tools on more than {MCP_PAGES_COUNT_MAX = } pages")


@asynccontextmanager
async def _http_streams(server: McpServer) -> AsyncGenerator[Any]:
    import httpx2  # noqa: PLC0415 - comes with the extra `mcp`
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - as above

    # The caller limits the time of a call; a read timeout would end the whole connection.
    timeout = httpx2.Timeout(server.connect_seconds, read=MCP_SECONDS_MAX)
    async with (
        httpx2.AsyncClient(
            headers={"accept-encoding": "identity"} | server.headers,
            timeout=timeout,
            event_hooks={"response": [_limit_hook()]},
        ) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=MCP_MESSAGE_BYTES_MAX) as streams,
    ):
        yield streams


def _count_nested(piece: bytes) -> int:
    """Count the objects and arrays that a piece of JSON could open; brackets in strings count too, to avoid parsing."""
    return piece.count(b"{") + piece.count(b"[")


def _excess(size_bytes: int, nested: int) -> str:
    """Describe how a message exceeds its limits; empty if it can be parsed."""
    if size_bytes > MCP_MESSAGE_BYTES_MAX:
        return f"it sent a message over {MCP_MESSAGE_BYTES_MAX = :,} bytes"
    if nested > MCP_NESTED_COUNT_MAX:
        return f"it sent a message with more than {MCP_NESTED_COUNT_MAX = :,} objects and arrays"
    return ""


def _limit_hook() -> Callable[[Any], Awaitable[None]]:
    """Return a hook that limits message size in a response, which is one message or a stream with one per event."""
    from httpx2 import AsyncByteStream  # noqa: PLC0415 - comes with the extra `mcp`

    class LimitedStream(AsyncByteStream):
        """The stream of a body that raises once it has yielded more than a message can contain."""

        def __init__(self, stream: Any, *, has_events: bool) -> None:
            self._stream, self._has_events = stream, has_events

        async def __aiter__(self) -> AsyncIterator[bytes]:
            """Yield the pieces."""
            size_bytes = nested = 0
            line_ends = b""  # From the end of the last piece: a blank line can span two pieces.
            async for piece in self._stream:
                text = line_ends + piece
                line_ends = text[len(text.rstrip(b"\r\n")) :][-_BLANK_BYTES_MAX:]
                for number, part in enumerate(_BLANK_LINE.split(text) if self._has_events else [text]):
                    if number:  # After a blank line, another event starts.
                        size_bytes = nested = 0
                    size_bytes, nested = size_bytes + len(part), nested + _count_nested(part)
                    if excess := _excess(size_bytes, nested):
                        raise ConnectionError(excess)
                yield piece

        async def aclose(self) -> None:
            """Close the stream."""
            await self._stream.aclose()

    async def limit_response(response: Any) -> None:
        if not _COMPRESSED.isdisjoint(response.headers.get("content-encoding", "").lower().replace(",", " ").split()):
            raise ConnectionError("it sent a compressed answer, of which nobody knows how large it is")
        has_events = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = LimitedStream(response.stream, has_events=has_events)

    return limit_response


_BLANK_LINE: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")  # The end of an event.
_BLANK_BYTES_MAX: Final = 3
