"""Packages that only some embedders need: loaded when such an embedder is made."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from refold.errors import InvalidInput

EMPTY_STANDS_FOR: Final = "."
"""What is embedded in place of a text without any character to see: models and endpoints have no vector for nothing."""


def loaded(module: str, extra: str) -> Any:
    """Return a module of an extra; raises ``InvalidInput`` with what to install if it is absent."""
    try:
        return import_module(module)
    except ImportError as error:
        message = f"this embedder needs the package {module!r}, which cannot be loaded ({error}); " + _advice(extra)
        raise InvalidInput(message) from error


def file_of(module: str, path: str, advice: str) -> Path:
    """Return a file that ships in a package, without loading it; raises ``InvalidInput`` if it is absent."""
    spec = find_spec(module)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        file = Path(folder, path)
        if file.is_file():
            return file
    message = f"this embedder needs the file {path} of the package {module!r}, which is not there; {advice}"
    raise InvalidInput(message)


def visible(texts: list[str]) -> list[str]:
    """Return the texts, with ``EMPTY_STANDS_FOR`` in place of those without any character to see."""
    return [text if text.strip() else EMPTY_STANDS_FOR for text in texts]


def _advice(extra: str) -> str:
    return f"run: pip install 'refold[{extra}]'"
