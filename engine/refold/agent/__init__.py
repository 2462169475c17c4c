"""The agent side of a memory: tools, context, hooks, extraction, and a loop.

Each module is loaded when one of its names is first used: a context needs neither providers nor hooks.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.agent.builtin import files_tool as files_tool
    from refold.agent.commands import ForgetCommand as ForgetCommand
    from refold.agent.commands import RecallCommand as RecallCommand
    from refold.agent.commands import RememberCommand as RememberCommand
    from refold.agent.commands import WithholdCommand as WithholdCommand
    from refold.agent.commands import detect_memory_command as detect_memory_command
    from refold.agent.context import ContextPart as ContextPart
    from refold.agent.defaults import default_hooks as default_hooks
    from refold.agent.extraction import Extracted as Extracted
    from refold.agent.extraction import extract as extract
    from refold.agent.extraction import extract_idle as extract_idle
    from refold.agent.hooks import AfterLlmResult as AfterLlmResult
    from refold.agent.hooks import AfterToolResult as AfterToolResult
    from refold.agent.hooks import BeforeLlmResult as BeforeLlmResult
    from refold.agent.hooks import BeforeToolResult as BeforeToolResult
    from refold.agent.hooks import Blocked as Blocked
    from refold.agent.hooks import HookContext as HookContext
    from refold.agent.hooks import Hooks as Hooks
    from refold.agent.hooks import UserMessageResult as UserMessageResult
    from refold.agent.loop import AgentLoop as AgentLoop
    from refold.agent.loop import Model as Model
    from refold.agent.loop import Turn as Turn
    from refold.agent.providers import PROVIDERS as PROVIDERS
    from refold.agent.providers import CallableProvider as CallableProvider
    from refold.agent.providers import HttpProvider as HttpProvider
    from refold.agent.providers import JsonProvider as JsonProvider
    from refold.agent.providers import JsonResult as JsonResult
    from refold.agent.providers import NoJson as NoJson
    from refold.agent.providers import ProviderFailed as ProviderFailed
    from refold.agent.providers import Quirks as Quirks
    from refold.agent.providers import Usage as Usage
    from refold.agent.rebuild import Rebuilt as Rebuilt
    from refold.agent.recipe import ContextBudget as ContextBudget
    from refold.agent.reply import Call as Call
    from refold.agent.reply import Reply as Reply
    from refold.agent.rerun import rerun as rerun
    from refold.agent.tools import FunctionTool as FunctionTool
    from refold.agent.tools import Tool as Tool
    from refold.agent.tools import ToolContext as ToolContext
    from refold.agent.tools import ToolDefinition as ToolDefinition
    from refold.agent.tools import ToolFailed as ToolFailed
    from refold.agent.tools import ToolRefused as ToolRefused
    from refold.agent.tools import ToolRegistry as ToolRegistry
    from refold.agent.tools import ToolResult as ToolResult

_HOMES = {
    "refold.agent.builtin": "files_tool",
    "refold.agent.commands": "ForgetCommand RecallCommand RememberCommand WithholdCommand detect_memory_command",
    "refold.agent.context": "ContextPart",
    "refold.agent.defaults": "default_hooks",
    "refold.agent.extraction": "Extracted extract extract_idle",
    "refold.agent.hooks": (
        "AfterLlmResult AfterToolResult BeforeLlmResult BeforeToolResult Blocked HookContext Hooks UserMessageResult"
    ),
    "refold.agent.loop": "AgentLoop Model Turn",
    "refold.agent.providers": (
        "PROVIDERS CallableProvider HttpProvider JsonProvider JsonResult NoJson ProviderFailed Quirks Usage"
    ),
    "refold.agent.rebuild": "Rebuilt",
    "refold.agent.recipe": "ContextBudget",
    "refold.agent.reply": "Call Reply",
    "refold.agent.rerun": "rerun",
    "refold.agent.tools": "FunctionTool Tool ToolContext ToolDefinition ToolFailed ToolRefused ToolRegistry ToolResult",
}
"""The names of this package, keyed by the module that defines them."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = list(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'refold.agent' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only on first use

    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
