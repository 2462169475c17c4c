"""What is kept of the vectors of memories: made when somebody first searches, let go when all begins anew."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from refold.errors import RefoldError
from refold.store.protocol import Row

if TYPE_CHECKING:
    from refold.engine.reading import Reading
    from refold.engine.similarity import Similarity


T = TypeVar("T")


class Kept:
    """Holds an engine's ``Similarity``, so that who never searches loads nothing of it."""

    def __init__(self, reading: "Reading") -> None:
        self._reading = reading
        self._lock = threading.Lock()
        self._similarity: Similarity | None = None
        self.is_torn = False
        """Whether something was cut off that changes rows: they are let go before they are used again."""

    @property
    def similarity(self) -> "Similarity":
        """What is kept now, made if there is nothing."""
        if self.is_torn:
            self.forget()
        found = self._similarity
        if found is None:
            from refold.engine.similarity import Similarity  # noqa: PLC0415 - loaded only by those who search

            with self._lock:
                found = self._similarity = self._similarity or Similarity(self._reading)
        return found

    def whole(self, use: Callable[[], T]) -> T:
        """Call ``use``, which looks at rows or changes them, and return its result; what cuts it off tears the rows."""
        try:
            return use()
        except RefoldError:
            raise
        except BaseException:
            self.is_torn = True
            raise

    @property
    def nbytes(self) -> int:
        """What is kept takes in RAM."""
        return 0 if self._similarity is None else self._similarity.nbytes

    def forget(self) -> None:
        """Let go of everything, and end the threads that work on it."""
        found, self._similarity = self._similarity, None
        self.is_torn = False
        if found is not None:
            found.close()

    def disown(self) -> None:
        """Let go of everything in a process that forked: the threads are in the other one."""
        self._similarity = None

    def graph_rows(self) -> list[Row]:
        """Return the rows of graphs that the store does not have yet; the state lock is held."""
        return [] if self._similarity is None else self._similarity.graph_rows()
