"""refold: an in-process, event-sourced memory engine for LLM agents.

Every change to an agent's memory is appended to one log and folded into views; any state at any moment can be read,
snapshotted, replayed, compared, forked or restored. Names load when first used, so that ``import refold`` stays light.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.agent.context import Context as Context
    from refold.engine.conflicts import ANY as ANY
    from refold.engine.conflicts import EXISTS as EXISTS
    from refold.engine.conflicts import NO_STREAM as NO_STREAM
    from refold.entry import Entry as Entry
    from refold.errors import Closed as Closed
    from refold.errors import EmbedderFailed as EmbedderFailed
    from refold.errors import EmbeddingMismatch as EmbeddingMismatch
    from refold.errors import InvalidInput as InvalidInput
    from refold.errors import LimitExceeded as LimitExceeded
    from refold.errors import NotFound as NotFound
    from refold.errors import ReadOnly as ReadOnly
    from refold.errors import RefoldError as RefoldError
    from refold.errors import StoreBusy as StoreBusy
    from refold.errors import StoreCorrupt as StoreCorrupt
    from refold.errors import StoreError as StoreError
    from refold.errors import StoreFull as StoreFull
    from refold.errors import StoreUnreachable as StoreUnreachable
    from refold.errors import StoreVersion as StoreVersion
    from refold.errors import WrongVersion as WrongVersion
    from refold.event import Recorded as Recorded
    from refold.index.ranking import RANKINGS as RANKINGS
    from refold.memory.board import Board as Board
    from refold.memory.conversation import Conversation as Conversation
    from refold.memory.handles import Journal as Journal
    from refold.memory.handles import Profile as Profile
    from refold.memory.memory import Memory as Memory
    from refold.memory.project import Project as Project
    from refold.memory.snapshot import Snapshot as Snapshot
    from refold.memory.snapshot import Step as Step
    from refold.memory.store import move as move
    from refold.memory.store import recover as recover
    from refold.message import Message as Message
    from refold.results import Change as Change
    from refold.results import Hit as Hit
    from refold.results import Hits as Hits
    from refold.results import Outcome as Outcome
    from refold.results import Receipt as Receipt
    from refold.results import Report as Report
    from refold.results import Upserted as Upserted
    from refold.views.episodes import Episode as Episode
    from refold.views.profile import Note as Note

__version__ = "0.1.0"

_PUBLIC = {
    "refold.agent.context": "Context",
    "refold.engine.conflicts": "ANY EXISTS NO_STREAM",
    "refold.entry": "Entry",
    "refold.errors": (
        "Closed EmbedderFailed EmbeddingMismatch InvalidInput LimitExceeded NotFound ReadOnly RefoldError "
        "StoreBusy StoreCorrupt StoreError StoreFull StoreUnreachable StoreVersion WrongVersion"
    ),
    "refold.event": "Recorded",
    "refold.index.ranking": "RANKINGS",
    "refold.memory.board": "Board",
    "refold.memory.conversation": "Conversation",
    "refold.memory.handles": "Journal Profile",
    "refold.memory.memory": "Memory",
    "refold.memory.project": "Project",
    "refold.memory.snapshot": "Snapshot Step",
    "refold.memory.store": "move recover",
    "refold.message": "Message",
    "refold.results": "Change Hit Hits Outcome Receipt Report Upserted",
    "refold.views.episodes": "Episode",
    "refold.views.profile": "Note",
}
"""The public names, by the module that each is loaded from."""

_ELSEWHERE = {
    "refold.agent": (
        "PROVIDERS AfterLlmResult AfterToolResult AgentLoop BeforeLlmResult BeforeToolResult Call CallableProvider "
        "ContextBudget ContextPart Extracted ForgetCommand FunctionTool HookContext Hooks HttpProvider JsonProvider "
        "JsonResult Model NoJson ProviderFailed Quirks Rebuilt RecallCommand RememberCommand Reply Tool ToolContext "
        "ToolDefinition ToolFailed ToolRefused ToolRegistry ToolResult Turn Usage UserMessageResult default_hooks "
        "detect_memory_command extract extract_idle files_tool rerun"
    ),
    "refold.embedders": "Embedder HashedEmbedder MiniLmEmbedder OpenAIEmbedder WordLlamaEmbedder",
    "refold.event": "Event Stamp",
    "refold.index.ranking": "Ranking",
    "refold.memory": (
        "Departure Exposure FileEntry Files Influence Reason RecallDifference Regret Revision Scenario ScenarioDiff "
        "Scratchpad SessionMemory Settings Subscription Table TableItem Watch Why WindowDifference"
    ),
    "refold.opentelemetry": "instrument",
    "refold.mirror": "Mirror MirrorConflict MirrorEdit MirrorProblem MirrorReport",
    "refold.results": "Backup Finding Health Loaded ProjectStats Recovered Reembedded SessionSummary Stats",
    "refold.text": "ByteClassCounter TokenCounter",
}
"""Names that users might look for here, by the package or module that provides them."""


def _by_name(homes: dict[str, str]) -> dict[str, str]:
    return {name: home for home, names in homes.items() for name in names.split()}


_HOME_OF = _by_name(_PUBLIC)
__all__ = list(_HOME_OF | {"__version__": "refold"})  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        from importlib import import_module  # noqa: PLC0415 - only on first use

        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value
    home = _by_name(_ELSEWHERE).get(name)
    advice = "" if home is None else f"; import it from {home}"
    raise AttributeError(f"module 'refold' has no attribute {name!r}{advice}")


def __dir__() -> list[str]:
    return sorted(__all__)
