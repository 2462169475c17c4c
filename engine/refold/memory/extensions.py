"""Public methods implemented by the layers above, which this layer must not import, and works without."""

from importlib import import_module
from typing import Any, Final

from refold.errors import NotFound

_EXTENSIONS: Final[dict[str, tuple[str, str]]] = {
    "async_hooks": ("refold.agent.hooks", "async_hooks_of"),
    "context": ("refold.agent.context", "context"),
    "hooks": ("refold.agent.hooks", "Hooks"),
    "mask_secrets": ("refold.agent.secrets", "mask_secrets"),
    "mirror": ("refold.mirror", "mirror_of"),
    "rebuild": ("refold.agent.rebuild", "rebuild"),
    "show": ("refold.agent.rebuild", "show"),
    "skills": ("refold.skills", "Skills"),
    "tools": ("refold.agent.builtin", "tools_of"),
}
"""The module and the function behind each name."""


def call_extension(name: str, *arguments: Any, **options: Any) -> Any:
    """Call the function behind a name; raise ``NotFound`` if this installation lacks its module."""
    module, function = _EXTENSIONS[name]
    try:
        home = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise NotFound(
            f"memory.{name} lives in {module}, which this installation lacks; install refold whole"
        ) from error
    return getattr(home, function)(*arguments, **options)
