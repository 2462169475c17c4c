"""refold: an in-process, event-sourced memory engine for LLM agents.

Every change to an agent's memory is appended to one log and folded into views; any state at any moment can be read,
snapshotted, replayed, compared, forked or restored. Names load when first used, so that ``import refold`` stays light.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.commands import Forget as Forget
    from refold.commands import Query as Query
    from refold.commands import Remember as Remember
    from refold.commands import detect_memory_command as detect_memory_command
    from refold.embedders.hashed import HashedEmbedder as HashedEmbedder
    from refold.embedders.minilm import MiniLmEmbedder as MiniLmEmbedder
    from refold.embedders.openai import OpenAIEmbedder as OpenAIEmbedder
    from refold.embedders.protocol import Embedder as Embedder
    from refold.embedders.wordllama import WordLlamaEmbedder as WordLlamaEmbedder
    from refold.engine.loader import Recorded as Recorded
    from refold.engine.pending import ANY as ANY
    from refold.engine.pending import EXISTS as EXISTS
    from refold.engine.pending import NO_STREAM as NO_STREAM
    from refold.engine.subscriptions import Subscription as Subscription
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
    from refold.memory.backups import recover as recover
    from refold.memory.boards.handle import Board as Board
    from refold.memory.conversation import Conversation as Conversation
    from refold.memory.files import FileEntry as FileEntry
    from refold.memory.files import Files as Files
    from refold.memory.handles import Journal as Journal
    from refold.memory.handles import Profile as Profile
    from refold.memory.memory import Memory as Memory
    from refold.memory.project import Project as Project
    from refold.memory.sessions import SessionMemory as SessionMemory
    from refold.memory.settings import Settings as Settings
    from refold.memory.snapshot import Snapshot as Snapshot
    from refold.memory.stepping import Step as Step
    from refold.message import Message as Message
    from refold.rank.ranking import RANKINGS as RANKINGS
    from refold.rank.ranking import Ranking as Ranking
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
    from refold.tools.again import rerun as rerun
    from refold.tools.budgets import ContextBudget as ContextBudget
    from refold.tools.contexts import Context as Context
    from refold.tools.contexts import ContextPart as ContextPart
    from refold.tools.defaults import default_hooks as default_hooks
    from refold.tools.extraction import Extracted as Extracted
    from refold.tools.extraction import extract as extract
    from refold.tools.extraction import extract_idle as extract_idle
    from refold.tools.filing import files_tool as files_tool
    from refold.tools.hooks import Hooks as Hooks
    from refold.tools.loop import AgentLoop as AgentLoop
    from refold.tools.loop import Call as Call
    from refold.tools.loop import Model as Model
    from refold.tools.loop import Reply as Reply
    from refold.tools.loop import Turn as Turn
    from refold.tools.mirror.handle import Mirror as Mirror
    from refold.tools.mirror.reports import MirrorConflict as MirrorConflict
    from refold.tools.mirror.reports import MirrorEdit as MirrorEdit
    from refold.tools.mirror.reports import MirrorProblem as MirrorProblem
    from refold.tools.mirror.reports import MirrorReport as MirrorReport
    from refold.tools.parsing import NoJson as NoJson
    from refold.tools.points import AfterLlmResult as AfterLlmResult
    from refold.tools.points import AfterToolResult as AfterToolResult
    from refold.tools.points import BeforeLlmResult as BeforeLlmResult
    from refold.tools.points import BeforeToolResult as BeforeToolResult
    from refold.tools.points import HookContext as HookContext
    from refold.tools.points import UserMessageResult as UserMessageResult
    from refold.tools.protocol import FunctionTool as FunctionTool
    from refold.tools.protocol import Tool as Tool
    from refold.tools.protocol import ToolContext as ToolContext
    from refold.tools.protocol import ToolDefinition as ToolDefinition
    from refold.tools.protocol import ToolFailed as ToolFailed
    from refold.tools.protocol import ToolRefused as ToolRefused
    from refold.tools.protocol import ToolResult as ToolResult
    from refold.tools.providers import CallableProvider as CallableProvider
    from refold.tools.providers import HttpProvider as HttpProvider
    from refold.tools.providers import JsonProvider as JsonProvider
    from refold.tools.providers import JsonResult as JsonResult
    from refold.tools.providers import ProviderFailed as ProviderFailed
    from refold.tools.registry import ToolRegistry as ToolRegistry
    from refold.tools.showing import Rebuilt as Rebuilt
    from refold.tools.wires import PROVIDERS as PROVIDERS
    from refold.tools.wires import Quirks as Quirks
    from refold.tools.wires import Usage as Usage
    from refold.views.episodes import Episode as Episode
    from refold.views.journal import Note as Note

__version__ = "0.1.0"

_HOMES = {
    "refold.commands": ("Forget", "Query", "Remember", "detect_memory_command"),
    "refold.engine.pending": ("ANY", "EXISTS", "NO_STREAM"),
    "refold.engine.loader": ("Recorded",),
    "refold.engine.subscriptions": ("Subscription",),
    "refold.embedders.hashed": ("HashedEmbedder",),
    "refold.embedders.minilm": ("MiniLmEmbedder",),
    "refold.embedders.openai": ("OpenAIEmbedder",),
    "refold.embedders.protocol": ("Embedder",),
    "refold.embedders.wordllama": ("WordLlamaEmbedder",),
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
    "refold.entry": ("Entry",),
    "refold.event": ("Event", "Stamp"),
    "refold.memory.backups": ("recover",),
    "refold.memory.boards.handle": ("Board",),
    "refold.memory.conversation": ("Conversation",),
    "refold.memory.files": ("FileEntry", "Files"),
    "refold.memory.handles": ("Journal", "Profile"),
    "refold.memory.memory": ("Memory",),
    "refold.memory.project": ("Project",),
    "refold.memory.snapshot": ("Snapshot",),
    "refold.memory.stepping": ("Step",),
    "refold.message": ("Message",),
    "refold.rank.ranking": ("RANKINGS", "Ranking"),
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
    "refold.tools.protocol": (
        "FunctionTool",
        "Tool",
        "ToolContext",
        "ToolDefinition",
        "ToolFailed",
        "ToolRefused",
        "ToolResult",
    ),
    "refold.tools.registry": ("ToolRegistry",),
    "refold.memory.sessions": ("SessionMemory",),
    "refold.memory.settings": ("Settings",),
    "refold.tools.contexts": ("Context", "ContextPart"),
    "refold.tools.budgets": ("ContextBudget",),
    "refold.tools.showing": ("Rebuilt",),
    "refold.tools.hooks": ("Hooks",),
    "refold.tools.points": (
        "AfterLlmResult",
        "AfterToolResult",
        "BeforeLlmResult",
        "BeforeToolResult",
        "HookContext",
        "UserMessageResult",
    ),
    "refold.tools.extraction": ("Extracted", "extract", "extract_idle"),
    "refold.tools.filing": ("files_tool",),
    "refold.tools.providers": ("CallableProvider", "HttpProvider", "JsonProvider", "JsonResult", "ProviderFailed"),
    "refold.tools.wires": ("PROVIDERS", "Quirks", "Usage"),
    "refold.tools.parsing": ("NoJson",),
    "refold.tools.mirror.handle": ("Mirror",),
    "refold.tools.mirror.reports": ("MirrorConflict", "MirrorEdit", "MirrorProblem", "MirrorReport"),
    "refold.tools.defaults": ("default_hooks",),
    "refold.tools.loop": ("AgentLoop", "Call", "Model", "Reply", "Turn"),
    "refold.tools.again": ("rerun",),
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
    "Forget",
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
    "Query",
    "Quirks",
    "Ranking",
    "ReadOnly",
    "Rebuilt",
    "Receipt",
    "Recorded",
    "Recovered",
    "Reembedded",
    "RefoldError",
    "Remember",
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
        message = f"module 'refold' has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module  # noqa: PLC0415 - only on first use

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
