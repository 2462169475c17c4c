"""Servers of remote tools, connected at run time; their tools stand in the registry of a memory beside its own."""

import asyncio
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from refold import checks
from refold.errors import InvalidInput, NotFound
from refold.memory.memory import Memory
from refold.tools.mcp.answers import TIMEOUT, UNREACHABLE, McpFailed
from refold.tools.mcp.configuring import McpServer, checked
from refold.tools.mcp.connection import Connection
from refold.tools.mcp.held import Held, McpStatus
from refold.tools.mcp.limits import (
    MCP_ATTEMPTS_COUNT_MAX,
    MCP_FIRST_WAIT_SECONDS,
    MCP_WAIT_SECONDS_MAX,
)
from refold.tools.mcp.naming import qualified_name
from refold.tools.mcp.offering import offer_all, withdraw_all
from refold.tools.mcp.runner import Runner, within
from refold.tools.protocol import ToolContext
from refold.tools.registry import ToolRegistry

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
        message = f"no connected server has a tool that models know as {checks.shown(name)}"
        raise NotFound(message)

    def wire_name(self, name: str) -> str:
        """Return the name by which models know the tool ``mcp:server:tool``; ``NotFound`` where it is not connected."""
        for held in list(self._held.values()):
            for wire, tool in list(held.tools.items()):
                if qualified_name(held.server.name, tool) == name:
                    return wire
        message = f"no tool {checks.shown(name)} is connected; `servers()` has those that are"
        raise NotFound(message)

    # On the loop's thread.

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._runner.is_here:
            work.close()
            message = "a toolset cannot wait for itself on its own thread; await the verb for event loops"
            raise InvalidInput(message)
        return self._runner.wait(work)

    async def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return await self._runner.awaited(work)

    def _find(self, name: str) -> Held:
        held = self._held.get(name)
        if held is None:
            message = f"no server {checks.shown(name)} is connected; connect it first"
            raise NotFound(message)
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
            message = f"{qualified_name(name, tool)} did not answer within call_seconds = {seconds:g}{why}"
            raise McpFailed(TIMEOUT, message) from None

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
            message = f"server {held.server.name!r} was disconnected"
            raise McpFailed(UNREACHABLE, message)

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
                message = f"the toolset of server {server!r} is gone; keep it as long as its tools are used"
                raise NotFound(message)
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
