"""Servers of remote tools, connected at run time; their tools stand in the registry of a memory beside its own."""

import asyncio
import re
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from hashlib import sha256
from typing import Any, Final, Self, TypeVar

from msgspec import Struct

from refold import checks
from refold.agent.tools import FunctionTool, ToolContext, ToolRegistry, storable
from refold.errors import InvalidInput, NotFound
from refold.limits import (
    MCP_ATTEMPTS_COUNT_MAX,
    MCP_DESCRIPTION_CHARS_MAX,
    MCP_FIRST_WAIT_SECONDS,
    MCP_WAIT_SECONDS_MAX,
    TOOL_NAME_CHARS_MAX,
)
from refold.mcp.connection import TIMEOUT, UNREACHABLE, Connection, McpFailed, McpServer, Runner, checked, within
from refold.mcp.schemas import plain_schema
from refold.memory.memory import Memory

# Names of remote tools: qualified ones, which say whose they are, and those that every provider takes; pure.

_DIGEST_CHARS: Final = 10
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


def qualified_name(server: str, tool: str) -> str:
    """Return the name of a server's tool as people read it: ``mcp:server:tool``."""
    return f"mcp:{server}:{tool}"


def wire_name(server: str, tool: str) -> str:
    """Return the name of a server's tool for models: ``mcp__server__tool``, as letters, digits, ``_`` and ``-``.

    A name that does not fit, or that two tools could share, ends with a digest of the qualified one: always the same,
    so that prompts and records stay as they are.

    >>> wire_name("files", "read"), wire_name("my files", "read")
    ('mcp__files__read', 'mcp__my_files__read_12d4bf92f1')
    """
    plain = f"mcp__{server}__{tool}"
    is_clear = "__" not in server and not server.endswith("_")
    if is_clear and len(plain) <= TOOL_NAME_CHARS_MAX and not _OTHER.search(plain):
        return plain
    digest = sha256(qualified_name(server, tool).encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{_OTHER.sub('_', plain)[: TOOL_NAME_CHARS_MAX - _DIGEST_CHARS - 1]}_{digest}"


# A server that a toolset holds: its connection, its tools, and how its last attempts went.


class McpStatus(Struct, frozen=True):
    """A server as it stands: what it calls itself, its tools by the names that models use, and what was left out.

    ``error`` says why it is not connected. ``skipped`` are tools that cannot be offered, each with the reason.
    """

    name: str
    is_live: bool
    about: str
    protocol: str
    tools: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    error: str = ""


class Held:
    """A server, its present connection, and how its last attempts went."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.connection: Connection | None = None
        self.lock = asyncio.Lock()
        self.failures = 0
        self.not_before = 0.0
        self.error: McpFailed | None = None
        self.is_gone = False
        """Whether it was disconnected: nothing of it may come back."""
        self.tools: dict[str, str] = {}
        """The name for models -> the server's own."""
        self.offered: dict[str, tuple[Any, FunctionTool]] = {}
        """The name for models -> what the server lists, and the tool that was made of it."""
        self.skipped: list[tuple[str, str]] = []

    @property
    def status(self) -> McpStatus:
        """How it stands."""
        connection = self.connection
        is_live = connection is not None and connection.is_live
        error = None if is_live else self.error or (connection.end if connection is not None else None)
        about, protocol = ("", "") if connection is None else (connection.about, connection.protocol)
        said = "" if error is None else str(error)
        return McpStatus(self.server.name, is_live, about, protocol, tuple(self.tools), tuple(self.skipped), said)


# The tools of a server in a registry: there while it is connected, and untouched while they are as they were.

_HINTS: Final = {
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
}
_TWICE: Final = "a tool of that name is registered; the server lists it twice"
_Executing = Callable[[str, str], Callable[[dict[str, Any], ToolContext], Any]]
"""What is done for a tool of a server."""


def withdraw_all(held: Held, registry: ToolRegistry) -> None:
    """Take all tools of a server out of a registry."""
    for name in list(held.offered):
        _withdraw(held, registry, name)
    held.tools = {}


def _withdraw(held: Held, registry: ToolRegistry, name: str) -> None:
    """Take a tool out, if it is still the one that was registered."""
    offered = held.offered.pop(name, None)
    if offered is not None and registry.get(name) is offered[1]:
        registry.unregister(name)


def offer_all(held: Held, registry: ToolRegistry, listed: list[Any], executing: _Executing) -> None:
    """Let a registry have what a server lists now; what cannot be offered is said.

    A tool that is as it was stays where it is: it is there at any time, and what models are told does not change.
    """
    names = [wire_name(held.server.name, remote.name) for remote in listed]
    for name in [name for name in held.offered if name not in set(names)]:
        _withdraw(held, registry, name)
    tools, skipped = dict[str, str](), list[tuple[str, str]]()
    for name, remote in zip(names, listed, strict=True):
        fault = _TWICE if name in tools else _offer(held, registry, name, remote, executing)
        if fault:
            skipped.append((storable(remote.name, MCP_DESCRIPTION_CHARS_MAX), fault))
        else:
            tools[name] = remote.name
    held.tools, held.skipped = tools, skipped


def _offer(held: Held, registry: ToolRegistry, name: str, remote: Any, executing: _Executing) -> str:
    """Register a tool, unless it is as it was; return why it cannot be."""
    before = held.offered.get(name)
    if before is not None and before[0] == remote and registry.get(name) is before[1]:
        return ""
    try:
        tool = _tool(name, remote, executing(held.server.name, str(remote.name)))
        _withdraw(held, registry, name)
        registry.register(tool, checked=False)
    except Exception as error:  # noqa: BLE001 - what a server says may be anything
        _withdraw(held, registry, name)
        return storable(error)
    held.offered[name] = remote, tool
    return ""


def _tool(name: str, remote: Any, execute: Callable[[dict[str, Any], ToolContext], Any]) -> FunctionTool:
    hints = remote.annotations
    given = {public: getattr(hints, field, None) for field, public in _HINTS.items()} if hints is not None else {}
    return FunctionTool(
        name,
        (remote.description or remote.title or remote.name)[:MCP_DESCRIPTION_CHARS_MAX],
        plain_schema(remote.input_schema),
        execute,
        long_running=True,
        annotations={hint: value for hint, value in given.items() if value is not None},
    )


T = TypeVar("T")


class McpToolset:
    """The servers of one memory: connect, and their tools are in ``memory.tools``; close, and nothing of them is left.

    Every verb is there for programs without an event loop and, as ``..._async``, for those with one; the connections
    live on a thread of their own. A call that finds its connection gone makes another one first, waiting longer after
    each failure; a call that was under way when it broke is not repeated. ``clock`` and ``sleep`` are for tests.

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
        self._held: dict[str, Held] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._runner = Runner()
        self._finalizer = weakref.finalize(self, _left, self._runner, self._held, self._leaving)

    def __enter__(self) -> Self:
        """Return the toolset; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnect all servers."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return the toolset; leaving the block closes it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect all servers."""
        await self.close_async()

    def __repr__(self) -> str:
        """Return the toolset with its servers."""
        return f"McpToolset({', '.join(list(self._held))})"

    # Both kinds of every verb.

    def connect(self, server: McpServer) -> McpStatus:
        """Connect a server and register its tools; return which they are, and which had to be left out.

        Raises ``InvalidInput`` for a server that could never be reached or a name that is connected, ``McpFailed``
        where it cannot be reached now.
        """
        return self._wait(self._connect(server))

    async def connect_async(self, server: McpServer) -> McpStatus:
        """Connect a server, as ``connect``."""
        return await self._await(self._connect(server))

    def disconnect(self, name: str) -> None:
        """Unregister a server's tools and end the connection, and the process if there is one; ``NotFound``."""
        self._wait(self._disconnect(name))

    async def disconnect_async(self, name: str) -> None:
        """Disconnect a server, as ``disconnect``."""
        await self._await(self._disconnect(name))

    def reconnect(self, name: str) -> McpStatus:
        """End a connection and make another one, in a few attempts with longer and longer waits between them.

        Its tools are listed again. Raises ``NotFound``, and ``McpFailed`` after the last attempt.
        """
        return self._wait(self._reconnect(name))

    async def reconnect_async(self, name: str) -> McpStatus:
        """Reconnect a server, as ``reconnect``."""
        return await self._await(self._reconnect(name))

    def refresh(self, name: str) -> McpStatus:
        """List a server's tools again, and register those that it has now; raises ``NotFound`` and ``McpFailed``."""
        return self._wait(self._refresh(name))

    async def refresh_async(self, name: str) -> McpStatus:
        """List a server's tools again, as ``refresh``."""
        return await self._await(self._refresh(name))

    def call(self, server: str, tool: str, arguments: dict[str, Any] | None = None) -> Any:
        """Return what a tool returns, past the registry; raises ``NotFound`` and ``McpFailed``."""
        return self._wait(self._call(server, tool, arguments or {}))

    async def call_async(self, server: str, tool: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool, as ``call``."""
        return await self._await(self._call(server, tool, arguments or {}))

    def close(self) -> None:
        """Disconnect all servers and end the thread; a second call does nothing."""
        if not self._finalizer.alive:
            return
        for held in list(self._held.values()):
            held.is_gone = True
            withdraw_all(held, self._registry)
        for held in self._finalizer() or ():  # Those that were being connected meanwhile, too.
            withdraw_all(held, self._registry)

    async def close_async(self) -> None:
        """Disconnect all servers, as ``close``."""
        await asyncio.to_thread(self.close)

    # What is known without asking anybody.

    def servers(self) -> list[McpStatus]:
        """Return every server that was connected, as it stands."""
        return [held.status for held in list(self._held.values())]

    def qualified_name(self, name: str) -> str:
        """Return ``mcp:server:tool`` for the name by which models know a tool; ``NotFound`` for another one."""
        for held in list(self._held.values()):
            tool = held.tools.get(name)
            if tool is not None:
                return qualified_name(held.server.name, tool)
        raise NotFound(f"no connected server has a tool that models know as {checks.shown(name)}")

    def wire_name(self, name: str) -> str:
        """Return the name by which models know the tool ``mcp:server:tool``; ``NotFound`` where it is not connected."""
        for held in list(self._held.values()):
            for wire, tool in list(held.tools.items()):
                if qualified_name(held.server.name, tool) == name:
                    return wire
        raise NotFound(f"no tool {checks.shown(name)} is connected; `servers()` has those that are")

    # On the loop's thread.

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._runner.is_here:
            work.close()
            raise InvalidInput("a toolset cannot wait for itself on its own thread; await the verb for event loops")
        return self._runner.wait(work)

    async def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return await self._runner.awaited(work)

    def _find(self, name: str) -> Held:
        held = self._held.get(name)
        if held is None:
            raise NotFound(f"no server {checks.shown(name)} is connected; connect it first")
        return held

    async def _connect(self, server: McpServer) -> McpStatus:
        name = checked(server).name
        if name in self._held:
            checks.invalid(f"a server named {name!r} is connected; disconnect it first, or give another name")
        held = self._held[name] = Held(server)
        try:
            async with held.lock:
                await self._open(held)
        except BaseException:
            if self._held.get(name) is held:
                del self._held[name]
            held.is_gone = True
            withdraw_all(held, self._registry)
            if held.connection is not None:
                self._leave(held.connection)
            raise
        return held.status

    async def _disconnect(self, name: str) -> None:
        held = self._find(name)
        del self._held[name]
        held.is_gone = True
        withdraw_all(held, self._registry)
        if held.connection is not None:
            await held.connection.close()

    async def _reconnect(self, name: str) -> McpStatus:
        held = self._find(name)
        async with held.lock:
            if held.connection is not None:
                await held.connection.close()
            await self._reopen(held)
        return held.status

    async def _refresh(self, name: str) -> McpStatus:
        held = self._find(name)
        connection = await self._live(held)
        await connection.relist()
        self._check_held(held)
        offer_all(held, self._registry, connection.tools, self._executing)
        return held.status

    async def _call(self, name: str, tool: str, arguments: dict[str, Any]) -> Any:
        held = self._find(name)
        seconds = held.server.call_seconds
        try:
            return await within(seconds, self._answer(held, tool, arguments))
        except (TimeoutError, asyncio.CancelledError) as error:
            if held.connection is not None:
                held.connection.give_up()
            if not isinstance(error, TimeoutError):
                raise
            why = "" if held.error is None else f"; it is not connected: {held.error}"
            raise McpFailed(
                TIMEOUT, f"{qualified_name(name, tool)} did not answer within call_seconds = {seconds:g}{why}"
            ) from None

    async def _answer(self, held: Held, tool: str, arguments: dict[str, Any]) -> Any:
        connection = await self._live(held)
        return await connection.call(tool, arguments)

    async def _live(self, held: Held) -> Connection:
        """Return a connection that may be asked, made anew if need be; one caller makes it, the others wait."""
        async with held.lock:
            connection = held.connection
            if connection is None or not connection.is_live:
                connection = await self._reopen(held)
        return connection

    async def _reopen(self, held: Held) -> Connection:
        """Try until it succeeds, at most so often, each wait twice as long as the one before."""
        for attempt in range(1, MCP_ATTEMPTS_COUNT_MAX + 1):
            wait_seconds = held.not_before - self._clock()
            if wait_seconds > 0:
                await self._sleep(wait_seconds)
            try:
                return await self._open(held)
            except McpFailed:
                if attempt == MCP_ATTEMPTS_COUNT_MAX or held.is_gone:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _open(self, held: Held) -> Connection:
        """Make one connection and register what it offers; remember how that went."""
        self._check_held(held)
        if held.connection is not None:
            self._leave(held.connection)
        connection = held.connection = Connection(held.server)
        try:
            await connection.open()
        except McpFailed as error:
            held.failures, held.error = held.failures + 1, error
            doubled = MCP_FIRST_WAIT_SECONDS * 2.0 ** (held.failures - 1)
            held.not_before = self._clock() + min(doubled, MCP_WAIT_SECONDS_MAX)
            self._leave(connection)
            raise
        except asyncio.CancelledError:
            self._leave(connection)
            raise
        self._check_held(held)
        held.failures, held.error, held.not_before = 0, None, 0.0
        offer_all(held, self._registry, connection.tools, self._executing)
        return connection

    def _check_held(self, held: Held) -> None:
        """Let nothing come back of a server that was disconnected meanwhile."""
        if held.is_gone:
            if held.connection is not None:
                self._leave(held.connection)
            raise McpFailed(UNREACHABLE, f"server {held.server.name!r} was disconnected")

    def _leave(self, connection: Connection) -> None:
        """Let a connection end beside what goes on; closing waits for it."""
        task = asyncio.create_task(connection.close())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _executing(self, server: str, tool: str) -> Callable[[dict[str, Any], ToolContext], Any]:
        """Return what a registered tool does, which does not keep its toolset alive."""
        toolset = weakref.ref(self)

        def execute(arguments: dict[str, Any], _: ToolContext) -> Any:
            found = toolset()
            if found is None:
                raise NotFound(f"the toolset of server {server!r} is gone; keep it as long as its tools are used")
            return found._executed(server, tool, arguments)  # noqa: SLF001 - its own kind

        return execute

    def _executed(self, server: str, tool: str, arguments: dict[str, Any]) -> Any:
        """Return what a call comes to: at once where an event loop runs on this thread, else to be awaited."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return _Answer(self, server, tool, arguments)
        return self.call(server, tool, arguments)


class _Answer:
    """A call that is made when it is awaited; one that nobody comes to await is none."""

    def __init__(self, toolset: McpToolset, server: str, tool: str, arguments: dict[str, Any]) -> None:
        self._asked = (toolset, server, tool, arguments)

    def __await__(self) -> Generator[Any, None, Any]:
        """Make the call and return what it comes to."""
        toolset, server, tool, arguments = self._asked
        return toolset.call_async(server, tool, arguments).__await__()


def _left(runner: Runner, held: dict[str, Held], leaving: "set[asyncio.Task[None]]") -> list[Held]:
    """End every connection and the thread: of a toolset that is closed, or that nobody holds; return what was held."""
    ended: list[Held] = []

    async def end() -> None:
        ended.extend(held.values())
        held.clear()
        for one in ended:
            one.is_gone = True
        connections = [one.connection for one in ended if one.connection is not None]
        await asyncio.gather(*(connection.close() for connection in connections), *leaving, return_exceptions=True)

    if runner.is_here:  # The last reference fell on the loop's own thread, which cannot wait for itself.
        threading.Thread(target=_left, args=[runner, held, leaving], name="refold-mcp-end").start()
        return []
    if held or leaving:
        future: Future[None] = runner.begin(end())
        future.result()
    runner.close()
    return [*ended, *held.values()]
