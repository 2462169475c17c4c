"""The tools that active skills allow a model to use."""

from collections.abc import Iterable
from typing import Final

from refold.agent.builtin import BUILT_IN_NAMES, files_tool
from refold.agent.tools import FORBIDDEN, Tool, ToolContext, ToolDefinition, ToolRegistry, ToolResult

SKILL_USE: Final = "skill_use"
# The tools of the memory itself, which no skill takes away.
_OWN_TOOLS: Final = BUILT_IN_NAMES | {SKILL_USE, files_tool().name}


class RestrictedRegistry:
    """A registry restricted to the tools that the active skills allow, and those of the memory.

    An entry such as `Bash(git:*)` allows `Bash`; its argument pattern is left to the tool's own host. The registry
    itself is not changed.
    """

    __slots__ = ("_allowed", "_registry")

    def __init__(self, registry: ToolRegistry, allowed: Iterable[str] | None) -> None:
        self._registry = registry
        self._allowed = None if allowed is None else _OWN_TOOLS | {entry.partition("(")[0] for entry in allowed}

    def permits(self, name: str) -> bool:
        """Return whether a tool may be called."""
        return self._allowed is None or name in self._allowed

    def get(self, name: str) -> Tool | None:
        """Return a tool that may be called, or `None` for any other name."""
        return self._registry.get(name) if self.permits(name) else None

    def names(self) -> list[str]:
        """List the names of the tools that may be called, in the order of registration."""
        return [name for name in self._registry.names() if self.permits(name)]

    def definitions(self) -> list[ToolDefinition]:
        """List the definitions of the tools that may be called."""
        return [definition for definition in self._registry.definitions() if self.permits(definition.name)]

    def execute(self, name: str, arguments: object = None, context: ToolContext | None = None) -> ToolResult:
        """Call a tool and return its result; a tool that is not allowed is forbidden."""
        return self._registry.execute(name, arguments, context) if self.permits(name) else self.refuse(name)

    async def execute_async(
        self, name: str, arguments: object = None, context: ToolContext | None = None
    ) -> ToolResult:
        """Call a tool as `execute` does, and await it."""
        if not self.permits(name):
            return self.refuse(name)
        return await self._registry.execute_async(name, arguments, context)

    def refuse(self, name: str) -> ToolResult:
        """Return the result of a call to a tool that is not allowed."""
        allowed = ", ".join(self.names()) or "no tool"
        return ToolResult(name, FORBIDDEN, message=f"forbidden: the active skills allow {allowed}, not {name}")
