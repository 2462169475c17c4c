"""What is kept of the vectors of memories: made when somebody first searches, let go when all begins anew."""

import threading
from typing import TYPE_CHECKING

from refold.store.protocol import Row

if TYPE_CHECKING:
    from refold.engine.reading import Reading
    from refold.engine.similarity import Similarity


class Kept:
    """Holds an engine's ``Similarity``, so that who never searches loads nothing of it."""

    def __init__(self, reading: "Reading") -> None:
        self._reading = reading
        self._lock = threading.Lock()
        self._similarity: Similarity | None = None

    @property
    def similarity(self) -> "Similarity":
        """What is kept now, made if there is nothing."""
        found = self._similarity
        if found is None:
            from refold.engine.similarity import Similarity  # noqa: PLC0415 - loaded only by those who search

            with self._lock:
                found = self._similarity = self._similarity or Similarity(self._reading)
        return found

    @property
    def nbytes(self) -> int:
        """What is kept takes in RAM."""
        return 0 if self._similarity is None else self._similarity.nbytes

    def forget(self) -> None:
        """Let go of everything, and end the threads that work on it."""
        if self._similarity is not None:
            self._similarity.close()
        self._similarity = None

    def disown(self) -> None:
        """Let go of everything in a process that forked: the threads are in the other one."""
        self._similarity = None

    def graph_rows(self) -> list[Row]:
        """Return the rows of graphs that the store does not have yet; the state lock is held."""
        return [] if self._similarity is None else self._similarity.graph_rows()
