"""Which peers are here: they are compared with where they are installed, and left out, with the reason, elsewhere."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def load(module: str, package: str) -> tuple[Any, str]:
    """Return the module that drives a peer and no reason, or no module and the reason."""
    if find_spec(package) is None:
        return None, f"{package.replace('_', '-')} is not installed; tools/lock/peers.txt installs it"
    return import_module(f"peers.{module}"), ""
