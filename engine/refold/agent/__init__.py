"""The agent's side of a memory: tools, context, hooks, extraction, and a loop."""

from refold.agent.builtin import files_tool
from refold.agent.commands import ForgetCommand, RecallCommand, RememberCommand, detect_memory_command
from refold.agent.context import ContextBudget, ContextPart, Rebuilt
from refold.agent.defaults import default_hooks
from refold.agent.extraction import Extracted, extract, extract_idle
from refold.agent.hooks import (
    AfterLlmResult,
    AfterToolResult,
    BeforeLlmResult,
    BeforeToolResult,
    Blocked,
    HookContext,
    Hooks,
    UserMessageResult,
)
from refold.agent.loop import AgentLoop, Call, Model, Reply, Turn, rerun
from refold.agent.providers import (
    PROVIDERS,
    CallableProvider,
    HttpProvider,
    JsonProvider,
    JsonResult,
    NoJson,
    ProviderFailed,
    Quirks,
    Usage,
)
from refold.agent.tools import (
    FunctionTool,
    Tool,
    ToolContext,
    ToolDefinition,
    ToolFailed,
    ToolRefused,
    ToolRegistry,
    ToolResult,
)

__all__ = ["PROVIDERS", "AfterLlmResult", "AfterToolResult", "AgentLoop", "BeforeLlmResult", "BeforeToolResult"]
__all__ += ["Blocked"]
__all__ += ["Call", "CallableProvider", "ContextBudget", "ContextPart", "Extracted", "ForgetCommand", "FunctionTool"]
__all__ += ["HookContext", "Hooks", "HttpProvider", "JsonProvider", "JsonResult", "Model", "NoJson", "ProviderFailed"]
__all__ += ["Quirks", "Rebuilt", "RecallCommand", "RememberCommand", "Reply", "Tool", "ToolContext", "ToolDefinition"]
__all__ += ["ToolFailed", "ToolRefused", "ToolRegistry", "ToolResult", "Turn", "Usage", "UserMessageResult"]
__all__ += ["default_hooks", "detect_memory_command", "extract", "extract_idle", "files_tool", "rerun"]
