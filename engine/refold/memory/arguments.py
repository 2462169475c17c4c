"""Arguments of the memory itself: what its constructor was given, paths, pages of names."""

import os
from typing import TYPE_CHECKING, cast

from refold import checks
from refold.limits import MEMORY_BYTES_MIN, NAME_BYTES_MAX, VECTOR_DIMENSIONS_MAX
from refold.text import TokenCounter

if TYPE_CHECKING:
    from refold.embedders import Embedder


def paged(after: str | None, limit: int | None) -> tuple[str | None, int | None]:
    """Return the two ends of a page of names, checked."""
    known = None if after is None else checks.text(after, "after", NAME_BYTES_MAX, "NAME_BYTES_MAX")
    return known, None if limit is None else checks.count(limit, "limit")


def is_delayed(durability: object, *, readonly: bool) -> bool:
    """Return whether writes are acknowledged before they are on the disk."""
    if durability not in ("durable", "delayed"):
        checks.invalid(f"durability is {checks.shown(durability)}; give 'durable' or 'delayed'")
    if durability == "delayed" and readonly:
        checks.invalid("durability='delayed' says how to write, and readonly=True forbids it; drop one")
    return durability == "delayed"


def checked_place(path: object, *, readonly: bool, clears: bool) -> str | None:
    """Return the path of a store, ``None`` for one in RAM, that can be opened in this way."""
    if path is None and readonly:
        checks.invalid("a memory in RAM is empty, so readonly=True makes no sense; give a path")
    checked = None if path is None else checked_path(path)
    if checks.flag(clears, "clear_scratchpads_on_open") and readonly:
        checks.invalid("clear_scratchpads_on_open=True changes the store, and readonly=True forbids it; drop one")
    return checked


def checked_embedder(embedder: object) -> "Embedder | None":
    """Return an embedder that has all that one needs."""
    if embedder is None:
        return None
    from refold.embedders import Embedder  # noqa: PLC0415 - loaded only by those who chose one

    if not isinstance(embedder, Embedder):
        checks.invalid(f"embedder needs an id, a dim and embed(texts), which {checks.shown(embedder)} lacks")
    checks.name(embedder.id, "embedder.id")
    checks.integer(embedder.dim, "embedder.dim", 1, VECTOR_DIMENSIONS_MAX, "VECTOR_DIMENSIONS_MAX")
    return embedder


def checked_bytes(memory_bytes: object) -> int:
    """Return the bound of what stays in RAM."""
    if not isinstance(memory_bytes, int) or isinstance(memory_bytes, bool) or memory_bytes < MEMORY_BYTES_MIN:
        shown = checks.shown(memory_bytes)
        checks.invalid(f"memory_bytes is {shown}; give an int of at least MEMORY_BYTES_MIN = {MEMORY_BYTES_MIN}")
    return memory_bytes


def check_doors(**doors: object) -> None:
    """Check the functions that are the doors of what is not deterministic."""
    for option, door in doors.items():
        if not callable(door):
            checks.invalid(f"{option} must be a function, not {type(door).__name__} ({checks.shown(door)})")


def checked_counter(counter: object) -> TokenCounter:
    """Return a token counter that has all that one needs."""
    if not isinstance(counter, TokenCounter):
        checks.invalid(f"token_counter needs an id and count(text), which {checks.shown(counter)} lacks")
    checks.name(counter.id, "token_counter.id")
    return counter


def checked_witness(witness: object, store: str | None) -> str | None:
    """Return the path of a witness: elsewhere than the store, with which it would be rolled back."""
    if witness is None:
        return None
    path = checked_path(witness, "witness")
    if store is None:
        checks.invalid("a memory in RAM keeps nothing that a witness could tell of; give a path, or drop witness")
    inside = os.path.realpath(store)
    if os.path.commonpath([inside, os.path.realpath(path)]) == inside:
        shown = checks.shown(witness)
        checks.invalid(f"witness {shown} lies in the store {store} and would be rolled back with it; put it elsewhere")
    return path


def checked_path(path: object, name: str = "path") -> str:
    """Return a path as a string that a file system takes."""
    if isinstance(path, os.PathLike):
        path = os.fspath(cast("os.PathLike[str]", path))
    if not isinstance(path, str):
        checks.invalid(f"{name} must be a str or a path, not {type(path).__name__} ({checks.shown(path)})")
    if not path:
        checks.invalid(f"{name} is empty; give a path")
    try:
        storable = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        storable = False
    if not storable:
        checks.invalid(f"{name} {checks.shown(path)} holds a NUL or a lone surrogate, which no file system takes")
    return path
