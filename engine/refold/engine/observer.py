"""The interface of those who measure an engine: whoever is given to ``Engine.observe`` is told of its work."""

from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

COMMIT: Final = "commit"
READ: Final = "read"
SEARCH: Final = "search"
"""The operations: a commit, as its caller waits for it; the building of a state that is not in RAM; a search."""


class Observer(Protocol):
    """Who measures. Calls come from the threads that do the work, and must neither raise nor wait."""

    def operation(self, name: str) -> AbstractContextManager[None]:
        """Make the context of one operation, which begins and ends with it, in an error too."""
        ...

    def committed(self, events: int, size_bytes: int) -> None:
        """Note what a commit wrote: events, and the bytes of their records."""
        ...

    def folded(self, events: int) -> None:
        """Note how many events were folded to build a state."""
        ...

    def searched(self, rows: int, *, exact: bool) -> None:
        """Note, within the operation, how many rows a search looked at, and whether its hits are proved to be best."""
        ...


def within(observer: Observer | None, name: str) -> AbstractContextManager[None]:
    """Return the context of an operation, which is none where nobody measures."""
    return nullcontext() if observer is None else observer.operation(name)
