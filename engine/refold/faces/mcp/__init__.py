"""A memory as a server of the Model Context Protocol: tools, resources and prompts, over stdio and loopback HTTP.

``serve`` runs one; ``memory_server`` makes one that is connected in the same process. Both need the extra ``mcp``,
which is loaded when it is first asked for.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from refold.errors import InvalidInput

if TYPE_CHECKING:
    from refold.faces.mcp.binding import Binding
    from refold.faces.mcp.server import MemoryServer


def memory_server(binding: "Binding") -> "MemoryServer":
    """Return a server of a memory; its ``low_level`` is one of the SDK, and ``mcp.Client`` takes it as it is.

    Raises ``InvalidInput`` where the extra ``mcp`` is not installed.
    """
    _check_installed()
    from refold.faces.mcp.server import MemoryServer

    return MemoryServer(binding)


def serve(binding: "Binding", *, http_port: int | None = None) -> None:
    """Serve a memory until the client leaves or the process is told to end: over stdio, or over HTTP on a port.

    Port 0 takes one that is free. Raises ``InvalidInput`` where the extra ``mcp`` is not installed, ``OSError`` for a
    port that is taken.
    """
    server = memory_server(binding)
    from refold.faces.mcp import running

    if http_port is None:
        running.over_stdio(server)
    else:
        running.over_http(server, http_port)


def _check_installed() -> None:
    if find_spec("mcp") is None:
        message = "a server of the Model Context Protocol needs the package 'mcp'; run: pip install 'refold[mcp]'"
        raise InvalidInput(message)
