"""The Model Context Protocol, both ways: tools of other programs' servers, and a memory as a server.

The server is loaded when it is first used: it needs the extra `mcp`.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from refold.errors import InvalidInput
from refold.mcp.client import McpStatus as McpStatus
from refold.mcp.client import McpToolset as McpToolset
from refold.mcp.connection import McpFailed as McpFailed
from refold.mcp.connection import McpServer as McpServer
from refold.mcp.connection import servers_of as servers_of
from refold.mcp.schemas import plain_schema as plain_schema

if TYPE_CHECKING:
    from refold.mcp.resources import Binding
    from refold.mcp.server import MemoryServer


def memory_server(binding: "Binding") -> "MemoryServer":
    """Make a server of a memory; its `low_level` is one of the SDK, which `mcp.Client` takes directly.

    Raises `InvalidInput` where the extra `mcp` is not installed.
    """
    check_installed()
    from refold.mcp.server import MemoryServer

    return MemoryServer(binding)


def serve(binding: "Binding", *, http_port: int | None = None) -> None:
    """Serve a memory over stdio, or over HTTP on a port, until the client leaves or a signal comes.

    Port 0 takes a free one. Raises `InvalidInput` where the extra `mcp` is not installed, `OSError` for a port that is
    taken.
    """
    server = memory_server(binding)
    from refold.mcp.server import over_http, over_stdio

    if http_port is None:
        over_stdio(server)
    else:
        over_http(server, http_port)


def check_installed() -> None:
    """Raise `InvalidInput` where the extra `mcp` is not installed."""
    if find_spec("mcp") is None:
        raise InvalidInput(
            "a server of the Model Context Protocol needs the package 'mcp'; run: pip install 'refold[mcp]'"
        )
