"""Servers in this process and beside it: over HTTP on a thread of their own, and the command line in a child."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp import StdioServerParameters

from refold.listener import HOST, listening_on
from refold.mcp import server as mcp_server
from refold.mcp.server import MemoryServer

START_SECONDS = 60


@contextmanager
def http(server: MemoryServer, **options: Any) -> Iterator[str]:
    """Serves HTTP on a free port from a thread of its own, and gives the address; the end waits for the server's."""
    listening = listening_on(0)
    web = mcp_server.web_server(server, **options)
    thread = threading.Thread(target=asyncio.run, args=(web.serve([listening]),), daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{listening.getsockname()[1]}{mcp_server.PATH}"
    finally:
        web.should_exit = True
        thread.join(START_SECONDS)
        listening.close()
        assert not thread.is_alive(), "the server did not end"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "refold", "mcp", *arguments]


def stdio(*arguments: str) -> StdioServerParameters:
    """What the SDK's client starts for a server over stdio."""
    program, *rest = command(*arguments)
    return StdioServerParameters(command=program, args=rest, env=dict(os.environ))


@contextmanager
def http_child(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Starts the command with ``--http 0``, and gives the process and the address that it serves."""
    process = subprocess.Popen(command(*arguments, "--http", "0"), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stderr.read()
        yield process, found.group()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(START_SECONDS)
        assert process.stderr is not None
        process.stderr.close()
