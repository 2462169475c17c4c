"""Skills as a model meets them: the tool ``skill_use``, and the registry that an active skill restricts."""

from collections.abc import Iterable
from typing import Any, Final

from refold import checks
from refold.tools.protocol import FORBIDDEN, FunctionTool, Tool, ToolContext, ToolDefinition, ToolResult
from refold.tools.registry import ToolRegistry
from refold.tools.skills.handle import Skills

SKILL_USE: Final = "skill_use"
_DESCRIPTION: Final = (
    "Load a skill: written instructions for a kind of task. Call it before you begin a task that a skill of the "
    "catalog is for. With `resource`, read one of the files beside a skill that its instructions name."
)
_HINTS: Final = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False}


def skill_tool(skills: Skills) -> FunctionTool | None:
    """Return the tool that lets a model call for a skill, ``None`` while no skill is open to models.

    Its schema lists the names as they are now: make it anew when the skills change. A skill that was called for is
    recorded as used; a file beside it is not.
    """
    names = [skill.name for skill in skills.list(include_disabled=False) if skill.model_invocable]
    if not names:
        return None
    properties = {
        "name": {"type": "string", "enum": names, "description": "The name of the skill"},
        "resource": {"type": "string", "description": "A file beside the skill, as its resources name it"},
    }
    parameters = {"type": "object", "properties": properties, "required": ["name"]}

    def use(arguments: dict[str, Any], context: ToolContext) -> str:
        name, resource = checks.text(arguments.get("name"), "name"), arguments.get("resource")
        text = skills.activate(name)
        if resource is not None:
            return skills.read_resource(name, checks.text(resource, "resource")).decode(errors="replace")
        conversation = None if context.conversation is None else context.conversation.id
        skills.library.use(name, conversation=conversation, sources=context.sources(opens=False))
        return text

    return FunctionTool(SKILL_USE, _DESCRIPTION, parameters, use, annotations=_HINTS)


class RestrictedRegistry:
    """A registry of which only some tools may be called: those that the active skills allow, and ``skill_use``.

    An entry such as ``Bash(git:*)`` allows ``Bash``: what it says of arguments is for the tool's own host. Nothing of
    the registry itself is changed.
    """

    __slots__ = ("_allowed", "_registry")

    def __init__(self, registry: ToolRegistry, allowed: Iterable[str] | None) -> None:
        self._registry = registry
        self._allowed = None if allowed is None else {SKILL_USE, *(entry.partition("(")[0] for entry in allowed)}

    def permits(self, name: str) -> bool:
        """Return whether a tool of that name may be called."""
        return self._allowed is None or name in self._allowed

    def get(self, name: str) -> Tool | None:
        """Return a tool that may be called, ``None`` where there is none."""
        return self._registry.get(name) if self.permits(name) else None

    def names(self) -> list[str]:
        """Return the names of the tools that may be called, in the order of registration."""
        return [name for name in self._registry.names() if self.permits(name)]

    def definitions(self) -> list[ToolDefinition]:
        """Return how those tools are described."""
        return [definition for definition in self._registry.definitions() if self.permits(definition.name)]

    def execute(self, name: str, arguments: object = None, context: ToolContext | None = None) -> ToolResult:
        """Call a tool and return what came of it; a tool that is not allowed is a forbidden one."""
        return self._registry.execute(name, arguments, context) if self.permits(name) else self.refused(name)

    async def execute_async(
        self, name: str, arguments: object = None, context: ToolContext | None = None
    ) -> ToolResult:
        """Call a tool and return what came of it, as ``execute``."""
        if not self.permits(name):
            return self.refused(name)
        return await self._registry.execute_async(name, arguments, context)

    def refused(self, name: str) -> ToolResult:
        """Return what a call of a tool that is not allowed comes to."""
        allowed = ", ".join(self.names()) or "no tool"
        return ToolResult(name, FORBIDDEN, message=f"forbidden: the active skills allow {allowed}, not {name}")
