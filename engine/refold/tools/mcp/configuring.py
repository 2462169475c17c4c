"""How servers of remote tools are reached, as data: written in Python, or read from the common ``mcpServers`` JSON."""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from refold import checks
from refold.errors import InvalidInput
from refold.limits import NAME_BYTES_MAX
from refold.tools.limits import TOOL_RESULT_BYTES_MAX
from refold.tools.mcp.limits import (
    MCP_CALL_SECONDS_DEFAULT,
    MCP_CONNECT_SECONDS_DEFAULT,
    MCP_RESULT_BYTES_DEFAULT,
    MCP_SECONDS_MAX,
    MCP_SECRET_CHARS_MIN,
)

_HTTP: Final = ("http://", "https://")
_OVER_HTTP: Final = frozenset({"http", "streamable-http", "streamable_http", "streamableHttp"})
_SECRET_PARTS: Final = re.compile(r"[:/@?&=#]+")
_PROTOCOLS: Final = ("auto", "legacy")


class McpServer(Struct, frozen=True, kw_only=True):
    """How a server is reached: a command that is started and spoken to by its standard streams, or a URL.

    A command gets ``env`` beside a few variables of this process (its home, user, path, shell and terminal), and
    nothing else of it. ``protocol`` is ``auto``, or ``legacy`` for a server that stops at a question which it does not
    know. Neither ``env`` nor ``headers`` is shown by ``repr``: they hold secrets.

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
        """Return the server without values that may be secret."""
        where = f"url={_public(self.url)!r}" if self.url else f"command={self.command!r}, args={self.args}"
        hidden = [f"{field}={sorted(held)}" for field in ("env", "headers") if (held := getattr(self, field))]
        return f"McpServer({', '.join([repr(self.name), where, *hidden])})"


def _public(url: str) -> str:
    """Return a URL without what may be secret in it: a user, a password, and what is asked."""
    begin, slashes, rest = url.partition("://")
    if not slashes:
        return "..."
    host, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return f"{begin}://{host.rpartition('@')[2]}{slash}{path}"


def without_secrets(text: str, server: McpServer) -> str:
    """Return a text without the values that a server was given as its environment and headers, and within its url.

    >>> without_secrets("no such token: hunter2hunter2", McpServer(name="s", command="x", env={"T": "hunter2hunter2"}))
    'no such token: ***'
    """
    given = [*server.env.values(), *server.headers.values()]
    given += [word for value in server.headers.values() for word in value.split()]
    given += [part for part in _SECRET_PARTS.split(server.url) if part not in _public(server.url)]
    for secret in sorted({one for one in given if len(one) >= MCP_SECRET_CHARS_MIN}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def checked(server: McpServer) -> McpServer:
    """Return a server that may be tried; raises ``InvalidInput`` for what could never be reached."""
    if not isinstance(cast("object", server), McpServer):
        checks.invalid(f"a server is described by an McpServer, not by {checks.shown(server)}")
    _check_place(server)
    for what in ("connect_seconds", "call_seconds"):
        if not 0 < getattr(server, what) <= MCP_SECONDS_MAX:
            bound = f"over 0 and up to MCP_SECONDS_MAX = {MCP_SECONDS_MAX:.0f}"
            shown = checks.shown(getattr(server, what))
            checks.invalid(f"{what} of server {server.name!r} is {shown}; give a number {bound}")
    checks.integer(server.result_bytes_max, "result_bytes_max", 1, TOOL_RESULT_BYTES_MAX, "TOOL_RESULT_BYTES_MAX")
    return server


def _check_place(server: McpServer) -> None:
    """Refuse what says neither where a server is nor how it is spoken to."""
    name = checks.text(server.name, "a server's name", NAME_BYTES_MAX, "NAME_BYTES_MAX")
    if not name or ":" in name or not name.isprintable():
        checks.invalid(f"a server's name is {checks.shown(name)}; give printable characters without a colon")
    if bool(server.command) == bool(server.url):
        checks.invalid(f"server {name!r} needs either a command or a url")
    if server.url and not server.url.startswith(_HTTP):
        shown = checks.shown(_public(server.url))
        checks.invalid(f"the url of server {name!r} is {shown}; give one of http or https")
    if server.protocol not in _PROTOCOLS:
        checks.invalid(f"the protocol of server {name!r} is {checks.shown(server.protocol)}; give auto or legacy")
    if any("\0" in text for text in (server.command, *server.args, *server.env, *server.env.values())):
        checks.invalid(f"the command of server {name!r} holds a zero character; no program can be given one")


class _Entry(Struct):
    """One server of an ``mcpServers`` object; what other hosts keep there beside it is left alone."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    type: str = ""
    disabled: bool = False


def servers_of(configuration: str | bytes | Mapping[str, Any]) -> list[McpServer]:
    """Return the servers of the JSON that hosts share, ``{"mcpServers": {"name": {...}}}``, without disabled ones.

    Raises ``InvalidInput`` where it is no such JSON, and for servers over SSE alone, which the protocol gave up.
    """
    try:
        held = msgspec.json.decode(configuration) if isinstance(configuration, (str, bytes)) else configuration
        entries = msgspec.convert(held, dict[str, Any]).get("mcpServers")
        found = msgspec.convert(entries, dict[str, _Entry])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        message = f"this is no mcpServers configuration ({error}); give an object of servers by name under that key"
        raise InvalidInput(message) from error
    return [_server(name, entry) for name, entry in found.items() if not entry.disabled]


def _server(name: str, entry: _Entry) -> McpServer:
    if entry.type == "sse":
        checks.invalid(f"server {name!r} speaks SSE alone; give the url of its streamable HTTP endpoint, of type http")
    if entry.type and entry.type != "stdio" and entry.type not in _OVER_HTTP:
        checks.invalid(f"the type of server {name!r} is {checks.shown(entry.type)}; give stdio or http")
    fields = {field: getattr(entry, field) for field in ("command", "args", "env", "cwd", "url", "headers")}
    return checked(McpServer(name=name, **fields))
