"""The texts of a project's memories, laid out for the rankings that compare them."""

import threading
from collections.abc import Callable, Mapping

from refold.entry import Entry
from refold.rank import Columns


class Texts:
    """The columns of a stock that compare texts, built when a ranking first asks; ``lock`` is held by who scores.

    A memory's row there is its order. Whoever holds the lock may take the state lock, never the other way round.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.columns = Columns()
        self._held: dict[int, Entry] = {}
        self._fresh: dict[int, Entry | None] | None = None
        """What changed and is not in the columns yet; the state lock is held by who looks at it."""

    @property
    def is_built(self) -> bool:
        """Whether a ranking has asked for them."""
        return self._fresh is not None

    def note(self, order: int, entry: Entry | None) -> None:
        """Remember that a memory changed, if anybody wants to know."""
        if self._fresh is not None:
            self._fresh[order] = entry

    def take(self, everything: Callable[[], dict[int, Entry | None]]) -> dict[int, Entry | None]:
        """Return what changed since the last call, at first everything."""
        fresh = everything() if self._fresh is None else self._fresh
        self._fresh = {}
        return fresh

    def update(self, changes: Mapping[int, Entry | None]) -> None:
        """Bring the columns up to date."""
        for order in sorted(changes):
            entry, held = changes[order], self._held.get(order)
            if entry is not None and held is not None and _reads_the_same(held, entry):
                continue
            if held is not None:
                del self._held[order]
                self.columns.remove(order)
            if entry is not None:
                self._add(order, entry)

    def _add(self, order: int, entry: Entry) -> None:
        while self.columns.size < order:
            # One that was gone before anybody looked; rows leave no gaps.
            place = self.columns.size
            self.columns.add(place, "", keywords=(), importance=0.0, accessed_ns=0)
            self.columns.remove(place)
        self._held[order] = entry
        self.columns.add(
            order,
            entry.content,
            keywords=(),
            importance=0.0,
            accessed_ns=0,
            session=entry.session,
            occurred_ns=entry.occurred_ns if entry.dated else None,
        )


def _reads_the_same(one: Entry, other: Entry) -> bool:
    return (one.content, one.session, one.dated, one.occurred_ns) == (
        other.content,
        other.session,
        other.dated,
        other.occurred_ns,
    )
