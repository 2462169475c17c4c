"""Running a server: over the standard streams of this process, or over HTTP that only this machine reaches.

The first signal lets calls end that have begun, for they may be writing. One that waits for what never comes, such as
the lock of a process that was stopped, would keep the server for ever: at the next signal the process is gone.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Generator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Final, NoReturn

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from refold import checks
from refold.faces.console import tell
from refold.faces.exits import EXIT_INTERRUPTED
from refold.faces.mcp import piping
from refold.faces.mcp.limits import BODY_BYTES_MAX, SESSIONS_COUNT_MAX, SHUTDOWN_SECONDS
from refold.faces.mcp.pipes import standard_streams
from refold.faces.mcp.server import MemoryServer

HOST: Final = "127.0.0.1"
PATH: Final = "/mcp"
_NAMES: Final = (HOST, "localhost")
_BACKLOG_COUNT: Final = 128


def over_stdio(server: MemoryServer) -> None:
    """Serve the client at the other end of stdin and stdout until it closes stdin; nothing else reaches stdout.

    Raises ``KeyboardInterrupt`` if a signal ended it: SIGTERM as Ctrl-C does, so that the memory is closed. Raises
    ``InvalidInput`` where stdin or stdout is closed: nobody is there.
    """
    if sys.stdin is None or sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        checks.invalid("a server over stdio needs stdin and stdout, and one of them is closed; or serve with --http 0")
    if asyncio.run(_told_to_end(_over_stdio(server))):
        raise KeyboardInterrupt


async def _over_stdio(server: MemoryServer) -> None:
    async with standard_streams() as (lines, writer), piping.messages(lines, writer) as (read, write):
        await server.low_level.run(read, write, server.low_level.create_initialization_options())


async def _told_to_end(serving: Coroutine[Any, Any, None]) -> bool:
    """Return whether a signal ended it; the task groups inside may turn a cancellation into anything."""
    loop, task, told = asyncio.get_running_loop(), asyncio.ensure_future(serving), asyncio.Event()

    def end() -> None:
        if told.is_set():
            _leave()
        told.set()
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    await asyncio.wait([task])
    with suppress(BaseException) if told.is_set() else nullcontext():
        task.result()
    return told.is_set()


def over_http(server: MemoryServer, port: int) -> None:
    """Serve any number of clients on this machine until a signal ends it, as above; 0 takes a port that is free."""
    with listening_on(port) as listening, _ended_by_signals():
        tell(f"refold: serving http://{HOST}:{listening.getsockname()[1]}{PATH}")
        # It lets open streams end, and then raises the signal that it heard once more.
        asyncio.run(web_server(server).serve([listening]))


def _leave() -> NoReturn:
    """End the process where it stands; what was answered is in the log."""
    os._exit(EXIT_INTERRUPTED)


@contextmanager
def _ended_by_signals() -> Generator[None]:
    told: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        if told:
            _leave()
        told.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def listening_on(port: int) -> socket.socket:
    """Return a socket that listens on a port of this machine, 0 for one that is free."""
    # With the protocol named: asyncio sends small answers at once on such sockets only, else each waits for 40 ms.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(_BACKLOG_COUNT)
    except BaseException:
        listening.close()
        raise
    return listening


def web_server(server: MemoryServer, **options: Any) -> uvicorn.Server:
    """Return a web server of a memory that only answers requests made to this machine's own names.

    A page of a browser cannot reach it under a name of its own, nor from its own origin. ``options`` go to the SDK.
    """
    app = server.low_level.streamable_http_app(
        streamable_http_path=PATH,
        host=HOST,
        max_request_body_size=BODY_BYTES_MAX,
        max_sessions=SESSIONS_COUNT_MAX,
        transport_security=TransportSecuritySettings(
            allowed_hosts=[f"{name}{port}" for name in _NAMES for port in ("", ":*")],
            allowed_origins=[f"http://{name}{port}" for name in _NAMES for port in ("", ":*")],
        ),
        **options,
    )
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=SHUTDOWN_SECONDS
    )
    return uvicorn.Server(config)
