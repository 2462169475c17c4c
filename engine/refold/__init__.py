"""refold: an in-process, event-sourced memory engine for LLM agents.

Every change to an agent's memory is appended to one log and folded into views; any state at any moment can be read,
snapshotted, replayed, compared, forked or restored. Names load when first used, so that ``import refold`` stays light.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.agent.builtin import files_tool as files_tool
    from refold.agent.context import Context as Context
    from refold.agent.context import ContextBudget as ContextBudget
    from refold.agent.context import ContextPart as ContextPart
    from refold.agent.context import Rebuilt as Rebuilt
    from refold.agent.defaults import ForgetCommand as ForgetCommand
    from refold.agent.defaults import RecallCommand as RecallCommand
    from refold.agent.defaults import RememberCommand as RememberCommand
    from refold.agent.defaults import default_hooks as default_hooks
    from refold.agent.defaults import detect_memory_command as detect_memory_command
    from refold.agent.extraction import Extracted as Extracted
    from refold.agent.extraction import extract as extract
    from refold.agent.extraction import extract_idle as extract_idle
    from refold.agent.hooks import AfterLlmResult as AfterLlmResult
    from refold.agent.hooks import AfterToolResult as AfterToolResult
    from refold.agent.hooks import BeforeLlmResult as BeforeLlmResult
    from refold.agent.hooks import BeforeToolResult as BeforeToolResult
    from refold.agent.hooks import HookContext as HookContext
    from refold.agent.hooks import Hooks as Hooks
    from refold.agent.hooks import UserMessageResult as UserMessageResult
    from refold.agent.loop import AgentLoop as AgentLoop
    from refold.agent.loop import Call as Call
    from refold.agent.loop import Model as Model
    from refold.agent.loop import Reply as Reply
    from refold.agent.loop import Turn as Turn
    from refold.agent.loop import rerun as rerun
    from refold.agent.providers import PROVIDERS as PROVIDERS
    from refold.agent.providers import CallableProvider as CallableProvider
    from refold.agent.providers import HttpProvider as HttpProvider
    from refold.agent.providers import JsonProvider as JsonProvider
    from refold.agent.providers import JsonResult as JsonResult
    from refold.agent.providers import NoJson as NoJson
    from refold.agent.providers import ProviderFailed as ProviderFailed
    from refold.agent.providers import Quirks as Quirks
    from refold.agent.providers import Usage as Usage
    from refold.agent.tools import FunctionTool as FunctionTool
    from refold.agent.tools import Tool as Tool
    from refold.agent.tools import ToolContext as ToolContext
    from refold.agent.tools import ToolDefinition as ToolDefinition
    from refold.agent.tools import ToolFailed as ToolFailed
    from refold.agent.tools import ToolRefused as ToolRefused
    from refold.agent.tools import ToolRegistry as ToolRegistry
    from refold.agent.tools import ToolResult as ToolResult
    from refold.embedders import Embedder as Embedder
    from refold.embedders import HashedEmbedder as HashedEmbedder
    from refold.embedders import MiniLmEmbedder as MiniLmEmbedder
    from refold.embedders import OpenAIEmbedder as OpenAIEmbedder
    from refold.embedders import WordLlamaEmbedder as WordLlamaEmbedder
    from refold.engine.states import Recorded as Recorded
    from refold.engine.subscriptions import Subscription as Subscription
    from refold.engine.transaction import ANY as ANY
    from refold.engine.transaction import EXISTS as EXISTS
    from refold.engine.transaction import NO_STREAM as NO_STREAM
    from refold.entry import Entry as Entry
    from refold.errors import Closed as Closed
    from refold.errors import EmbedderFailed as EmbedderFailed
    from refold.errors import EmbeddingMismatch as EmbeddingMismatch
    from refold.errors import HistoryTruncated as HistoryTruncated
    from refold.errors import InvalidInput as InvalidInput
    from refold.errors import LimitExceeded as LimitExceeded
    from refold.errors import NotFound as NotFound
    from refold.errors import ReadOnly as ReadOnly
    from refold.errors import RefoldError as RefoldError
    from refold.errors import StoreBusy as StoreBusy
    from refold.errors import StoreCorrupt as StoreCorrupt
    from refold.errors import StoreError as StoreError
    from refold.errors import StoreFull as StoreFull
    from refold.errors import StoreVersion as StoreVersion
    from refold.errors import WrongVersion as WrongVersion
    from refold.event import Event as Event
    from refold.event import Stamp as Stamp
    from refold.index.ranking import RANKINGS as RANKINGS
    from refold.index.ranking import Ranking as Ranking
    from refold.memory.board import Board as Board
    from refold.memory.conversation import Conversation as Conversation
    from refold.memory.files import FileEntry as FileEntry
    from refold.memory.files import Files as Files
    from refold.memory.handles import Journal as Journal
    from refold.memory.handles import Profile as Profile
    from refold.memory.handles import SessionMemory as SessionMemory
    from refold.memory.handles import Settings as Settings
    from refold.memory.memory import Memory as Memory
    from refold.memory.project import Project as Project
    from refold.memory.snapshot import Snapshot as Snapshot
    from refold.memory.snapshot import Step as Step
    from refold.memory.store import recover as recover
    from refold.message import Message as Message
    from refold.mirror.merge import MirrorConflict as MirrorConflict
    from refold.mirror.merge import MirrorEdit as MirrorEdit
    from refold.mirror.merge import MirrorProblem as MirrorProblem
    from refold.mirror.merge import MirrorReport as MirrorReport
    from refold.mirror.mirror import Mirror as Mirror
    from refold.results import Backup as Backup
    from refold.results import Change as Change
    from refold.results import Finding as Finding
    from refold.results import Hit as Hit
    from refold.results import Hits as Hits
    from refold.results import Loaded as Loaded
    from refold.results import Outcome as Outcome
    from refold.results import ProjectStats as ProjectStats
    from refold.results import Receipt as Receipt
    from refold.results import Recovered as Recovered
    from refold.results import Reembedded as Reembedded
    from refold.results import Report as Report
    from refold.results import Scratchpad as Scratchpad
    from refold.results import SessionSummary as SessionSummary
    from refold.results import Stats as Stats
    from refold.results import Upserted as Upserted
    from refold.text import ByteClassCounter as ByteClassCounter
    from refold.text import TokenCounter as TokenCounter
    from refold.views.episodes import Episode as Episode
    from refold.views.journal import Note as Note

__version__ = "0.1.0"

_HOMES = {
    "refold.agent.builtin": ("files_tool",),
    "refold.agent.context": ("Context", "ContextBudget", "ContextPart", "Rebuilt"),
    "refold.agent.defaults": (
        "ForgetCommand",
        "RecallCommand",
        "RememberCommand",
        "default_hooks",
        "detect_memory_command",
    ),
    "refold.agent.extraction": ("Extracted", "extract", "extract_idle"),
    "refold.agent.hooks": (
        "AfterLlmResult",
        "AfterToolResult",
        "BeforeLlmResult",
        "BeforeToolResult",
        "HookContext",
        "Hooks",
        "UserMessageResult",
    ),
    "refold.agent.loop": ("AgentLoop", "Call", "Model", "Reply", "Turn", "rerun"),
    "refold.agent.providers": (
        "PROVIDERS",
        "CallableProvider",
        "HttpProvider",
        "JsonProvider",
        "JsonResult",
        "NoJson",
        "ProviderFailed",
        "Quirks",
        "Usage",
    ),
    "refold.agent.tools": (
        "FunctionTool",
        "Tool",
        "ToolContext",
        "ToolDefinition",
        "ToolFailed",
        "ToolRefused",
        "ToolRegistry",
        "ToolResult",
    ),
    "refold.embedders": ("Embedder", "HashedEmbedder", "MiniLmEmbedder", "OpenAIEmbedder", "WordLlamaEmbedder"),
    "refold.engine.states": ("Recorded",),
    "refold.engine.subscriptions": ("Subscription",),
    "refold.engine.transaction": ("ANY", "EXISTS", "NO_STREAM"),
    "refold.entry": ("Entry",),
    "refold.errors": (
        "Closed",
        "EmbedderFailed",
        "EmbeddingMismatch",
        "HistoryTruncated",
        "InvalidInput",
        "LimitExceeded",
        "NotFound",
        "ReadOnly",
        "RefoldError",
        "StoreBusy",
        "StoreCorrupt",
        "StoreError",
        "StoreFull",
        "StoreVersion",
        "WrongVersion",
    ),
    "refold.event": ("Event", "Stamp"),
    "refold.index.ranking": ("RANKINGS", "Ranking"),
    "refold.memory.board": ("Board",),
    "refold.memory.conversation": ("Conversation",),
    "refold.memory.files": ("FileEntry", "Files"),
    "refold.memory.handles": ("Journal", "Profile", "SessionMemory", "Settings"),
    "refold.memory.memory": ("Memory",),
    "refold.memory.project": ("Project",),
    "refold.memory.snapshot": ("Snapshot", "Step"),
    "refold.memory.store": ("recover",),
    "refold.message": ("Message",),
    "refold.mirror.merge": ("MirrorConflict", "MirrorEdit", "MirrorProblem", "MirrorReport"),
    "refold.mirror.mirror": ("Mirror",),
    "refold.results": (
        "Backup",
        "Change",
        "Finding",
        "Hit",
        "Hits",
        "Loaded",
        "Outcome",
        "ProjectStats",
        "Receipt",
        "Recovered",
        "Reembedded",
        "Report",
        "Scratchpad",
        "SessionSummary",
        "Stats",
        "Upserted",
    ),
    "refold.text": ("ByteClassCounter", "TokenCounter"),
    "refold.views.episodes": ("Episode",),
    "refold.views.journal": ("Note",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ANY",
    "EXISTS",
    "NO_STREAM",
    "PROVIDERS",
    "RANKINGS",
    "AfterLlmResult",
    "AfterToolResult",
    "AgentLoop",
    "Backup",
    "BeforeLlmResult",
    "BeforeToolResult",
    "Board",
    "ByteClassCounter",
    "Call",
    "CallableProvider",
    "Change",
    "Closed",
    "Context",
    "ContextBudget",
    "ContextPart",
    "Conversation",
    "Embedder",
    "EmbedderFailed",
    "EmbeddingMismatch",
    "Entry",
    "Episode",
    "Event",
    "Extracted",
    "FileEntry",
    "Files",
    "Finding",
    "ForgetCommand",
    "FunctionTool",
    "HashedEmbedder",
    "HistoryTruncated",
    "Hit",
    "Hits",
    "HookContext",
    "Hooks",
    "HttpProvider",
    "InvalidInput",
    "Journal",
    "JsonProvider",
    "JsonResult",
    "LimitExceeded",
    "Loaded",
    "Memory",
    "Message",
    "MiniLmEmbedder",
    "Mirror",
    "MirrorConflict",
    "MirrorEdit",
    "MirrorProblem",
    "MirrorReport",
    "Model",
    "NoJson",
    "NotFound",
    "Note",
    "OpenAIEmbedder",
    "Outcome",
    "Profile",
    "Project",
    "ProjectStats",
    "ProviderFailed",
    "Quirks",
    "Ranking",
    "ReadOnly",
    "Rebuilt",
    "RecallCommand",
    "Receipt",
    "Recorded",
    "Recovered",
    "Reembedded",
    "RefoldError",
    "RememberCommand",
    "Reply",
    "Report",
    "Scratchpad",
    "SessionMemory",
    "SessionSummary",
    "Settings",
    "Snapshot",
    "Stamp",
    "Stats",
    "Step",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreVersion",
    "Subscription",
    "TokenCounter",
    "Tool",
    "ToolContext",
    "ToolDefinition",
    "ToolFailed",
    "ToolRefused",
    "ToolRegistry",
    "ToolResult",
    "Turn",
    "Upserted",
    "Usage",
    "UserMessageResult",
    "WordLlamaEmbedder",
    "WrongVersion",
    "__version__",
    "default_hooks",
    "detect_memory_command",
    "extract",
    "extract_idle",
    "files_tool",
    "recover",
    "rerun",
]


def __getattr__(name: str) -> Any:
    """Return a public name, importing its module now."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'refold' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only on first use

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
