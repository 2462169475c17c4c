"""The names that the oracle says of refold, each with the one that it had before: one of the two has to exist."""

from importlib import import_module
from typing import Any, Final

VERBS: Final = {f"scratchpad.{verb}": verb for verb in ("set", "get", "delete", "keys", "note", "notes", "clear")} | {
    "scratchpad.to_json": "scratchpad().to_json",
}
"""What is said of a handle or a result, as a path of attributes, and the path before."""

HOMES: Final = {
    "EVENT_TYPES": ("refold.fold",),
    **dict.fromkeys(("Memory", "RefoldError", "Snapshot", "recover"), ("refold",)),
    **dict.fromkeys(("AgentLoop", "Call", "CallableProvider", "Reply"), ("refold.agent", "refold")),
    **dict.fromkeys(("default_hooks", "extract", "extract_idle", "files_tool", "rerun"), ("refold.agent", "refold")),
    **dict.fromkeys(("export_openai", "import_file", "import_memories"), ("refold.importers", "refold.recorders")),
    "SkillRoots": ("refold.skills", "refold.tools.skills"),
}
"""What is imported, and the modules where it may be, the new one first."""

NEW_EVENTS: Final = frozenset[str]()
"""Events that the wheel does not know."""

_ABSENT: Final = object()


def _walk(found: Any, path: str) -> Any:
    for name in path.split("."):
        found = getattr(found, name.removesuffix("()"), _ABSENT)
        if found is _ABSENT:
            return found
        found = found() if name.endswith("()") else found
    return found


def value(handle: Any, path: str) -> Any:
    """Return what a handle or a result has under a path of names, or under the one before; often a verb."""
    for known in (path, VERBS.get(path)):
        if known is not None and (found := _walk(handle, known)) is not _ABSENT:
            return found
    raise LookupError(f"{type(handle).__name__} has neither {path} nor {VERBS.get(path)}; say both names in VERBS")


def home(name: str) -> Any:
    """Return what refold exports under a name."""
    for module in HOMES[name]:
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
        except AttributeError as error:
            if error.name != name:
                raise
    raise LookupError(f"{name} is in none of {', '.join(HOMES[name])}; say its new place in HOMES")
