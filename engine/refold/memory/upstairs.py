"""What a memory offers from the rooms above this one: each name, and the function that makes it.

A room imports only rooms below it, and tools, hooks and contexts are built of the public verbs. So the memory knows
them by name alone and finds them when they are first asked for; without that room every other verb works as before.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from refold.errors import NotFound

if TYPE_CHECKING:
    from refold.memory.memory import Memory

_HOMES: Final[dict[str, tuple[str, str]]] = {
    "async_hooks": ("refold.tools.hooks_async", "async_hooks_of"),
    "context": ("refold.tools.contexts", "context"),
    "hooks": ("refold.tools.hooks", "hooks_of"),
    "rebuild": ("refold.tools.showing", "rebuild"),
    "show": ("refold.tools.showing", "show"),
    "skills": ("refold.tools.skills", "skills_of"),
    "tools": ("refold.tools.builtin", "tools_of"),
}
"""The module and the function behind each name; its first argument is the memory."""


def call(name: str, memory: "Memory", *arguments: Any, **options: Any) -> Any:
    """Return what the function behind a name makes of a memory and of what its caller gave.

    Raises ``NotFound`` where this installation lacks the room that the function lives in.
    """
    module, function = _HOMES[name]
    try:
        home = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        message = f"memory.{name} lives in {module}, which this installation lacks; install refold whole"
        raise NotFound(message) from error
    return getattr(home, function)(memory, *arguments, **options)


def kept(name: str, made: dict[str, Any], handle: Callable[[], "Memory"]) -> Any:
    """Return what is made once for a memory and then kept, as ``tools`` is: what was registered stays.

    It gets a handle of its own, so that the memory that keeps it is in no circle of references.
    """
    found = made.get(name)
    return made.setdefault(name, call(name, handle())) if found is None else found
