"""Servers of remote tools, connected at run time; a memory's registry lists their tools next to its own."""

import asyncio
import logging
import re
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator
from hashlib import sha256
from typing import Any, Final, Self, TypeVar

from msgspec import Struct

from refold import checks
from refold.agent.tools import FunctionTool, ToolContext, ToolRegistry, storable_text
from refold.errors import InvalidInput, NotFound
from refold.limits import (
    MCP_ATTEMPTS_COUNT_MAX,
    MCP_DESCRIPTION_CHARS_MAX,
    MCP_FIRST_WAIT_SECONDS,
    MCP_WAIT_SECONDS_MAX,
    TOOL_NAME_CHARS_MAX,
)
from refold.mcp.connection import TIMEOUT, UNREACHABLE, Connection, McpFailed, McpServer, Runner, check_server, wait_for
from refold.mcp.schemas import plain_schema
from refold.memory.memory import Memory

_DIGEST_CHARS: Final = 10
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


def qualified_name(server: str, tool: str) -> str:
    """Return the full name of a server's tool for people: `mcp:server:tool`."""
    return f"mcp:{server}:{tool}"


def wire_name(server: str, tool: str) -> str:
    """Return the name of a server's tool for models: `mcp__server__tool`, of letters, digits, `_` and `-`.

    A name that is too long, or that two tools could share, ends with a digest of the qualified name. The digest is
    always the same, so that prompts and records stay stable.

    >>> wire_name("files", "read"), wire_name("my files", "read")
    ('mcp__files__read', 'mcp__my_files__read_12d4bf92f1')
    """
    plain = f"mcp__{server}__{tool}"
    is_clear = "__" not in server and not server.endswith("_")
    if is_clear and len(plain) <= TOOL_NAME_CHARS_MAX and not _OTHER.search(plain):
        return plain
    digest = sha256(qualified_name(server, tool).encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{_OTHER.sub('_', plain)[: TOOL_NAME_CHARS_MAX - _DIGEST_CHARS - 1]}_{digest}"


_LOG: Final = logging.getLogger("refold")


class McpStatus(Struct, frozen=True):
    """The status of a server: its tools by their names for models, and those left out.

    `error` says why the server is not connected. `skipped` lists tools that cannot be offered, each with the reason.
    """

    name: str
    is_live: bool
    about: str
    protocol: str
    tools: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    error: str = ""


class RemoteServer:
    """A server, its connection, its tools in a registry, and the outcome of its last attempts to connect."""

    def __init__(self, server: McpServer, registry: ToolRegistry) -> None:
        self.server = server
        self.connection: Connection | None = None
        self.lock = asyncio.Lock()
        self.failures = 0
        self.not_before = 0.0
        self.error: McpFailed | None = None
        self.is_gone = False  # Whether it was disconnected: its tools must not come back.
        self.tools: dict[str, str] = {}  # The name for models -> the server's own name.
        self._registry = registry
        self._offered: dict[str, tuple[Any, FunctionTool]] = {}
        """The name for models -> the server's description of the tool, and the tool made from it."""
        self._skipped: list[tuple[str, str]] = []

    @property
    def status(self) -> McpStatus:
        """The current status."""
        connection = self.connection
        is_live = connection is not None and connection.is_live
        error = None if is_live else self.error or (connection.end if connection is not None else None)
        about, protocol = ("", "") if connection is None else (connection.about, connection.protocol)
        text = "" if error is None else str(error)
        return McpStatus(self.server.name, is_live, about, protocol, tuple(self.tools), tuple(self._skipped), text)

    def leave(self) -> None:
        """Unregister all tools permanently."""
        self.is_gone = True
        self.withdraw()

    def withdraw(self) -> None:
        """Unregister all tools."""
        for name in list(self._offered):
            self._withdraw_tool(name)
        self.tools = {}

    def _withdraw_tool(self, name: str) -> None:
        offered = self._offered.pop(name, None)
        if offered is not None and self._registry.get(name) is offered[1]:
            self._registry.unregister(name)

    def offer(self, listed: list[Any], execute: Callable[[str], Callable[[dict[str, Any], ToolContext], Any]]) -> None:
        """Register the tools that the server lists now; `execute` makes the function of a tool.

        An unchanged tool stays registered: it can be called at any time and keeps its place in prompts.
        """
        offered = dict(self._offered)
        names = [wire_name(self.server.name, remote.name) for remote in listed]
        for name in [name for name in self._offered if name not in names]:
            self._withdraw_tool(name)
        tools, skipped = dict[str, str](), list[tuple[str, str]]()
        for name, remote in zip(names, listed, strict=True):
            fault = "a tool of that name is registered; the server lists it twice" if name in tools else ""
            before = self._offered.get(name)
            is_same = before is not None and before[0] == remote and self._registry.get(name) is before[1]
            if not fault and not is_same:
                try:
                    tool = _tool(name, remote, execute(str(remote.name)))
                    self._withdraw_tool(name)
                    self._registry.register(tool, checked=False)
                except Exception as error:  # noqa: BLE001 - a server's description can be anything
                    self._withdraw_tool(name)
                    fault = storable_text(error)
                else:
                    self._offered[name] = remote, tool
            if fault:
                skipped.append((storable_text(remote.name, MCP_DESCRIPTION_CHARS_MAX), fault))
            else:
                tools[name] = remote.name
        self.tools, self._skipped = tools, skipped
        changed = [name for name in self._offered if name not in offered or offered[name][0] != self._offered[name][0]]
        if offered and changed:  # A host might have shown the old ones to a user for approval.
            _LOG.warning("server %r changed its tools: %s", self.server.name, ", ".join(changed))


_HINTS: Final = {
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
}


def _tool(name: str, remote: Any, execute: Callable[[dict[str, Any], ToolContext], Any]) -> FunctionTool:
    hints = {public: getattr(remote.annotations, field, None) for field, public in _HINTS.items()}
    return FunctionTool(
        name,
        (remote.description or remote.title or remote.name)[:MCP_DESCRIPTION_CHARS_MAX],
        plain_schema(remote.input_schema),
        execute,
        long_running=True,
        annotations={hint: value for hint, value in hints.items() if value is not None},
    )


T = TypeVar("T")


class McpToolset:
    """The servers of one memory: `connect` adds their tools to `memory.tools`, `close` removes them.

    Each method exists for programs without an event loop and, as `..._async`, for those with one; the connections live
    on a separate thread. A call without a live connection first makes a new one, waiting longer after each failure; a
    call that breaks midway is not repeated. `clock` and `sleep` are for tests.

    >>> from refold import Memory
    >>> with McpToolset(Memory()) as remote:
    ...     remote.servers()
    []
    """

    def __init__(
        self,
        memory: Memory,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._registry: ToolRegistry = memory.tools
        self._clock = clock
        self._sleep = sleep
        self._remotes: dict[str, RemoteServer] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._runner = Runner()
        self._finalizer = weakref.finalize(self, _finalize, self._runner, self._remotes, self._leaving)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_async()

    def __repr__(self) -> str:
        return f"McpToolset({', '.join(list(self._remotes))})"

    def connect(self, server: McpServer) -> McpStatus:
        """Connect a server and register its tools; the returned status names tools that were left out.

        Raises `InvalidInput` for a server that could never be reached or a name that is already connected, and
        `McpFailed` if the server cannot be reached now.
        """
        return self._wait(self._connect(server))

    async def connect_async(self, server: McpServer) -> McpStatus:
        """Connect a server, like `connect`."""
        return await self._runner.wait_async(self._connect(server))

    def disconnect(self, name: str) -> None:
        """Unregister a server's tools, and end its connection and its process, if any; raises `NotFound`."""
        self._wait(self._disconnect(name))

    async def disconnect_async(self, name: str) -> None:
        """Disconnect a server, like `disconnect`."""
        await self._runner.wait_async(self._disconnect(name))

    def reconnect(self, name: str) -> McpStatus:
        """End a connection and make a new one, in a few attempts with increasing waits between them.

        The server's tools are listed again. Raises `NotFound`, and `McpFailed` after the last attempt.
        """
        return self._wait(self._reconnect(name))

    async def reconnect_async(self, name: str) -> McpStatus:
        """Reconnect a server, like `reconnect`."""
        return await self._runner.wait_async(self._reconnect(name))

    def refresh(self, name: str) -> McpStatus:
        """List a server's tools again and register them; raises `NotFound` and `McpFailed`."""
        return self._wait(self._refresh(name))

    async def refresh_async(self, name: str) -> McpStatus:
        """List a server's tools again, like `refresh`."""
        return await self._runner.wait_async(self._refresh(name))

    def call(self, server: str, tool: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool directly, bypassing the registry, and return its value; raises `NotFound` and `McpFailed`."""
        return self._wait(self._call(server, tool, arguments or {}))

    async def call_async(self, server: str, tool: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool, like `call`."""
        return await self._runner.wait_async(self._call(server, tool, arguments or {}))

    def close(self) -> None:
        """Disconnect all servers and end the thread; a second call is a no-op."""
        if not self._finalizer.alive:
            return
        for remote in list(self._remotes.values()):
            remote.leave()
        for remote in self._finalizer() or ():  # Including servers that were still connecting.
            remote.withdraw()

    async def close_async(self) -> None:
        """Disconnect all servers, like `close`."""
        await asyncio.to_thread(self.close)

    def servers(self) -> list[McpStatus]:
        """Return the status of every server of the toolset, without contacting any of them."""
        return [remote.status for remote in list(self._remotes.values())]

    def qualified_name(self, name: str) -> str:
        """Return `mcp:server:tool` for the name of a tool known to models; raises `NotFound` for an unknown name."""
        for remote in list(self._remotes.values()):
            tool = remote.tools.get(name)
            if tool is not None:
                return qualified_name(remote.server.name, tool)
        raise NotFound(f"no connected server has a tool that models know as {checks.brief(name)}")

    def wire_name(self, name: str) -> str:
        """Return the name for models of the tool `mcp:server:tool`; raises `NotFound` if it is not connected."""
        for remote in list(self._remotes.values()):
            for wire, tool in list(remote.tools.items()):
                if qualified_name(remote.server.name, tool) == name:
                    return wire
        raise NotFound(f"no tool {checks.brief(name)} is connected; `servers()` has those that are")

    # These run on the loop's thread.

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._runner.is_here:
            work.close()
            raise InvalidInput("a toolset cannot wait for itself on its own thread; await the verb for event loops")
        return self._runner.wait(work)

    def _find(self, name: str) -> RemoteServer:
        remote = self._remotes.get(name)
        if remote is None:
            raise NotFound(f"no server {checks.brief(name)} is connected; connect it first")
        return remote

    async def _connect(self, server: McpServer) -> McpStatus:
        name = check_server(server).name
        if name in self._remotes:
            checks.invalid(f"a server named {name!r} is connected; disconnect it first, or give another name")
        remote = self._remotes[name] = RemoteServer(server, self._registry)
        try:
            async with remote.lock:
                await self._open(remote)
        except BaseException:
            if self._remotes.get(name) is remote:
                del self._remotes[name]
            remote.leave()
            self._close_later(remote.connection)
            raise
        return remote.status

    async def _disconnect(self, name: str) -> None:
        remote = self._find(name)
        del self._remotes[name]
        remote.leave()
        if remote.connection is not None:
            await remote.connection.close()

    async def _reconnect(self, name: str) -> McpStatus:
        remote = self._find(name)
        async with remote.lock:
            if remote.connection is not None:
                await remote.connection.close()
            await self._reopen(remote)
        return remote.status

    async def _refresh(self, name: str) -> McpStatus:
        remote = self._find(name)
        connection = await self._live_connection(remote)
        await connection.relist()
        self._offer(remote, connection)
        return remote.status

    async def _call(self, name: str, tool: str, arguments: dict[str, Any]) -> Any:
        remote = self._find(name)
        seconds = remote.server.call_seconds

        async def answer() -> Any:
            connection = await self._live_connection(remote)
            return await connection.call(tool, arguments)

        try:
            return await wait_for(seconds, answer())
        except (TimeoutError, asyncio.CancelledError) as error:
            if remote.connection is not None:
                remote.connection.give_up()
            if not isinstance(error, TimeoutError):
                raise
            why = "" if remote.error is None else f"; it is not connected: {remote.error}"
            raise McpFailed(
                TIMEOUT, f"{qualified_name(name, tool)} did not answer within call_seconds = {seconds:g}{why}"
            ) from None

    async def _live_connection(self, remote: RemoteServer) -> Connection:
        """Return a live connection; one caller makes it while the others wait."""
        async with remote.lock:
            connection = remote.connection
            if connection is None or not connection.is_live:
                connection = await self._reopen(remote)
        return connection

    async def _reopen(self, remote: RemoteServer) -> Connection:
        for attempt in range(1, MCP_ATTEMPTS_COUNT_MAX + 1):
            wait_seconds = remote.not_before - self._clock()
            if wait_seconds > 0:
                await self._sleep(wait_seconds)
            try:
                return await self._open(remote)
            except McpFailed:
                if attempt == MCP_ATTEMPTS_COUNT_MAX or remote.is_gone:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _open(self, remote: RemoteServer) -> Connection:
        self._check_connected(remote)
        self._close_later(remote.connection)
        connection = remote.connection = Connection(remote.server)
        try:
            await connection.open()
        except McpFailed as error:
            remote.failures, remote.error = remote.failures + 1, error
            doubled = MCP_FIRST_WAIT_SECONDS * 2.0 ** (remote.failures - 1)
            remote.not_before = self._clock() + min(doubled, MCP_WAIT_SECONDS_MAX)
            self._close_later(connection)
            raise
        except asyncio.CancelledError:
            self._close_later(connection)
            raise
        self._check_connected(remote)
        remote.failures, remote.error, remote.not_before = 0, None, 0.0
        self._offer(remote, connection)
        return connection

    def _offer(self, remote: RemoteServer, connection: Connection) -> None:
        self._check_connected(remote)
        remote.offer(connection.tools, lambda tool: self._executor(remote.server.name, tool))

    def _check_connected(self, remote: RemoteServer) -> None:
        if remote.is_gone:
            self._close_later(remote.connection)
            raise McpFailed(UNREACHABLE, f"server {remote.server.name!r} was disconnected")

    def _close_later(self, connection: Connection | None) -> None:
        """Close a connection in the background; `close` waits for it."""
        if connection is not None:
            task = asyncio.create_task(connection.close())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    def _executor(self, server: str, tool: str) -> Callable[[dict[str, Any], ToolContext], Any]:
        """Return the function of a registered tool, which keeps only a weak reference to its toolset."""
        reference = weakref.ref(self)

        def execute(arguments: dict[str, Any], _: ToolContext) -> Any:
            toolset = reference()
            if toolset is None:
                raise NotFound(f"the toolset of server {server!r} is gone; keep it as long as its tools are used")
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return _LazyCall(toolset, server, tool, arguments)
            return toolset.call(server, tool, arguments)

        return execute


class _LazyCall:
    """A call that starts when it is awaited."""

    def __init__(self, toolset: McpToolset, *call: Any) -> None:
        self._toolset = toolset
        self._call = call

    def __await__(self) -> Generator[Any, None, Any]:
        return self._toolset.call_async(*self._call).__await__()


def _finalize(
    runner: Runner, remotes: dict[str, RemoteServer], leaving: "set[asyncio.Task[None]]"
) -> list[RemoteServer]:
    """End every connection and the thread of a closed or unreachable toolset, and return the servers."""
    ended: list[RemoteServer] = []

    async def end() -> None:
        ended.extend(remotes.values())
        remotes.clear()
        for remote in ended:
            remote.is_gone = True
        connections = [remote.connection for remote in ended if remote.connection is not None]
        await asyncio.gather(*(connection.close() for connection in connections), *leaving, return_exceptions=True)

    if runner.is_here:  # The last reference was dropped on the loop's own thread, which cannot wait for itself.
        threading.Thread(target=_finalize, args=[runner, remotes, leaving], name="refold-mcp-end").start()
        return []
    if remotes or leaving:
        runner.begin(end()).result()
    runner.close()
    return [*ended, *remotes.values()]
