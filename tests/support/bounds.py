"""Bounds made small for a while, so that a short test crosses them, and sources that are the same in every run."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from types import ModuleType

START_NS = 1_795_000_000_000_000_000
"""A moment in November 2026."""


@contextmanager
def lowered(**bounds: float) -> Iterator[None]:
    """Gives bounds other values in every module that has them by name."""
    places = _places(bounds)
    assert {name for _, name in places} == set(bounds), "a bound that no loaded module uses"
    known = {name: getattr(module, name) for module, name in places}
    for module, name in places:
        setattr(module, name, bounds[name])
    try:
        yield
    finally:
        for module, name in _places(bounds):  # Some modules may have been loaded meanwhile.
            setattr(module, name, known[name])


def _places(bounds: Iterable[str]) -> list[tuple[ModuleType, str]]:
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("refold.")]
    return [(module, name) for module in modules for name in bounds if hasattr(module, name)]


class Clock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, time_ns: int = START_NS) -> None:
        self.time_ns = time_ns

    def __call__(self) -> int:
        """The time that it shows."""
        return self.time_ns

    def advance(self, microseconds: int) -> None:
        """Moves on, or back."""
        self.time_ns += microseconds * 1_000


def seeded_bytes(seed: int) -> Callable[[int], bytes]:
    """A random source that gives the same bytes in every run."""
    return Random(seed).randbytes
