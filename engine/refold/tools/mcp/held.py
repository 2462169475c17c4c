"""A server that a toolset holds: its connection, its tools, and how its last attempts went."""

import asyncio
from typing import Any

from msgspec import Struct

from refold.tools.mcp.answers import McpFailed
from refold.tools.mcp.configuring import McpServer
from refold.tools.mcp.connection import Connection
from refold.tools.protocol import FunctionTool


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
