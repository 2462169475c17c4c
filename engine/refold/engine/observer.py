"""The interface for measuring an engine: ``Engine.observe`` sets the observer that the engine reports its work to."""

from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

COMMIT: Final = "commit"
READ: Final = "read"
SEARCH: Final = "search"
"""The operations: a commit, for as long as its caller waits; building a state that is not in RAM; and a search."""


class Observer(Protocol):
    """An object that measures. The threads that do the work call it, so it must neither raise nor block."""

    def operation(self, name: str) -> AbstractContextManager[None]:
        """Return a context manager for one operation, which it encloses even if the operation fails."""
        ...

    def record_commit(self, events: int, size_bytes: int) -> None:
        """Record a commit: its number of events and the size of their records in bytes."""
        ...

    def record_fold(self, events: int) -> None:
        """Record how many events were folded to build a state."""
        ...

    def record_search(self, rows: int, *, exact: bool) -> None:
        """Record, within the operation, how many rows a search examined, and whether its hits are provably the best."""
        ...


def measure(observer: Observer | None, name: str) -> AbstractContextManager[None]:
    """Return the context manager of an operation, which does nothing without an observer."""
    return nullcontext() if observer is None else observer.operation(name)
