"""The tools of a server in a registry: there while it is connected, and untouched while they are as they were."""

from collections.abc import Callable
from typing import Any, Final

from refold.tools.mcp.held import Held
from refold.tools.mcp.limits import MCP_DESCRIPTION_CHARS_MAX
from refold.tools.mcp.naming import wire_name
from refold.tools.mcp.schemas import plain_schema
from refold.tools.protocol import FunctionTool, ToolContext
from refold.tools.registry import ToolRegistry
from refold.tools.storable import storable

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
