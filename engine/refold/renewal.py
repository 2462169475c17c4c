"""Vectors of another embedder: the events that bring them, and where they wait until all of them are there.

A memory is embedded anew in pages, while it is read and written as before; then one event lets all the new vectors
count at once, so that no search ever sees two kinds of them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from refold.event import Event

FLOAT_BYTES = 4

NO_VECTOR = 0
"""For the seq of a vector: it was erased, and what it was of stays; ``reembed`` makes another one."""


class VectorRenewed(Event, frozen=True, tag=34):
    """A memory or an episode got a vector of another embedder, which does not count yet.

    ``prior`` is the seq of the vector that counted when this one was made.
    """

    id: str
    prior: int
    vector: bytes = b""
    model: str = ""


class EmbedderSwitched(Event, frozen=True, tag=35):
    """The renewed vectors of a project count from here on."""

    model: str
    dim: int


class Coming:
    """The vectors that wait: the seqs of those of one embedder, by what they are of."""

    __slots__ = ("dim", "model", "seqs")

    def __init__(self) -> None:
        self.model: str = ""
        self.dim: int = 0
        self.seqs: dict[str, int] = {}

    def __bool__(self) -> bool:
        """Return whether any vector waits."""
        return bool(self.seqs)

    def copy(self) -> "Coming":
        """Return the same, to go on by itself."""
        other = Coming()
        other.model, other.dim, other.seqs = self.model, self.dim, dict(self.seqs)
        return other

    def take(self, seq: int, event: VectorRenewed) -> None:
        """Let a vector wait; those of another embedder wait no longer."""
        kind = event.model, len(event.vector) // FLOAT_BYTES
        if kind != (self.model, self.dim):
            self.seqs.clear()
            self.model, self.dim = kind
        self.seqs[event.id] = seq

    def of(self, model: str, dim: int) -> Mapping[str, int]:
        """Return the vectors of an embedder that wait."""
        return self.seqs if (model, dim) == (self.model, self.dim) else {}

    def forget(self, entry_id: str) -> None:
        """Let the vector go that waits for something which changed meanwhile."""
        self.seqs.pop(entry_id, None)

    def clear(self) -> None:
        """Let everything go."""
        self.model, self.dim, self.seqs = "", 0, {}

    def packed(self) -> list[Any]:
        """Return what a checkpoint row holds of this: nothing where nothing waits."""
        return [[self.model, self.dim, list(self.seqs), list(self.seqs.values())]] if self.seqs else []

    @staticmethod
    def unpacked(packed: Any) -> "Coming":
        """Return what ``packed`` packed."""
        coming = Coming()
        for row in msgspec.convert(packed, list[tuple[str, int, list[str], list[int]]]):
            coming.model, coming.dim, ids, seqs = row
            coming.seqs = dict(zip(ids, seqs, strict=True))
        return coming

    def logical(self) -> list[Any]:
        """Return what two states are compared by."""
        return [self.model, self.dim, sorted(self.seqs.items())] if self.seqs else []
