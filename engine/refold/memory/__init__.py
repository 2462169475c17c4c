"""The public handles and their methods: each mutation checks its arguments, builds an event, and commits it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.engine.subscriptions import Subscription as Subscription
    from refold.memory.files import FileEntry as FileEntry
    from refold.memory.files import Files as Files
    from refold.memory.handles import SessionMemory as SessionMemory
    from refold.memory.handles import Settings as Settings
    from refold.memory.reasons import Exposure as Exposure
    from refold.memory.reasons import Influence as Influence
    from refold.memory.reasons import Reason as Reason
    from refold.memory.reasons import Revision as Revision
    from refold.memory.reasons import Why as Why
    from refold.memory.scenario import RecallDifference as RecallDifference
    from refold.memory.scenario import Regret as Regret
    from refold.memory.scenario import Scenario as Scenario
    from refold.memory.scenario import ScenarioDiff as ScenarioDiff
    from refold.memory.scenario import WindowDifference as WindowDifference
    from refold.memory.scratchpad import Scratchpad as Scratchpad
    from refold.memory.table import Table as Table
    from refold.memory.table import TableItem as TableItem
    from refold.memory.watches import Departure as Departure
    from refold.memory.watches import Watch as Watch

_HOMES = {
    "refold.engine.subscriptions": "Subscription",
    "refold.memory.scratchpad": "Scratchpad",
    "refold.memory.files": "FileEntry Files",
    "refold.memory.handles": "SessionMemory Settings",
    "refold.memory.scenario": "RecallDifference Regret Scenario ScenarioDiff WindowDifference",
    "refold.memory.table": "Table TableItem",
    "refold.memory.watches": "Departure Watch",
    "refold.memory.reasons": "Exposure Influence Reason Revision Why",
}
"""The public names of this package, by the module that each is imported from on first use."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = list(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
