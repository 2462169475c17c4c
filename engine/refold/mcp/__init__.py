"""The Model Context Protocol in both directions: tools of other servers, and a memory as a server.

The server module is loaded on first use, because it needs the extra `mcp`.
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
    """Return a server of a memory; its `low_level` is a server of the SDK, which `mcp.Client` accepts directly.

    Raises `InvalidInput` if the extra `mcp` is not installed.
    """
    check_installed()
    from refold.mcp.server import MemoryServer

    return MemoryServer(binding)


def serve(binding: "Binding", *, http_port: int | None = None) -> None:
    """Serve a memory over stdio, or over HTTP on a port, until the client leaves or a signal arrives.

    Port 0 takes a free port. Raises `InvalidInput` if the extra `mcp` is not installed, and `OSError` if the port is
    taken.
    """
    server = memory_server(binding)
    from refold.mcp.server import over_http, over_stdio

    if http_port is None:
        over_stdio(server)
    else:
        over_http(server, http_port)


def check_installed() -> None:
    """Raise `InvalidInput` if the extra `mcp` is not installed."""
    if find_spec("mcp") is None:
        raise InvalidInput(
            "a server of the Model Context Protocol needs the package 'mcp'; run: pip install 'refold[mcp]'"
        )
