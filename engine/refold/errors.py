"""Every exception that refold raises on purpose.

::

    RefoldError
    +-- InvalidInput        (also ValueError)   an argument has the wrong type or shape, or comes at the wrong time
    +-- NotFound            (also KeyError)     a name or id that does not exist
    +-- LimitExceeded       (also ValueError)   a value is over a bound of ``refold.limits``
    +-- WrongVersion                            the stream is not at the version that the caller expected
    +-- Closed                                  the memory was closed
    +-- ReadOnly                                a mutation through a read-only or frozen handle
    +-- EmbeddingMismatch                       vectors of another model or dimension
    +-- EmbedderFailed                          an endpoint returned no vectors
    +-- StoreError
        +-- StoreFull                           no space left on the disk or in the map
        +-- StoreCorrupt                        bytes that differ from those that were written
        +-- StoreVersion                        a format newer than this program, or not a store at all
        +-- StoreBusy                           another process or handle holds what is needed
        +-- StoreUnreachable                    the server of a shared log does not answer

Every message says what failed, the value, the bound's name, and the next step.
"""

from functools import partial
from typing import Any

__all__ = [
    "Closed",
    "EmbedderFailed",
    "EmbeddingMismatch",
    "InvalidInput",
    "LimitExceeded",
    "NotFound",
    "ReadOnly",
    "RefoldError",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreUnreachable",
    "StoreVersion",
    "WrongVersion",
]


class RefoldError(Exception):
    """Anything that refold raises on purpose."""


class InvalidInput(RefoldError, ValueError):
    """An argument has the wrong type or shape, or comes at the wrong time; nothing was appended."""


class NotFound(RefoldError, KeyError):
    """The named thing does not exist; nothing was appended."""

    def __str__(self) -> str:
        """Return the message itself, which ``KeyError`` would show in quotes."""
        return str(self.args[0]) if self.args else ""


class LimitExceeded(RefoldError, ValueError):
    """A value is over a bound of ``refold.limits``; nothing was appended."""


class WrongVersion(RefoldError):
    """The stream was not at the version that the caller expected; nothing was appended."""

    def __init__(self, message: str, *, expected: object, actual: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual

    def __reduce__(self) -> tuple[object, ...]:
        """Return the form for pickle, so that the error keeps its fields when a worker process raises it."""
        return partial(WrongVersion, expected=self.expected, actual=self.actual), self.args, self.__dict__


class Closed(RefoldError):
    """The memory was closed, or belongs to a process that forked."""


class ReadOnly(RefoldError):
    """A mutation through a read-only memory or a handle frozen at a seq."""


class EmbeddingMismatch(RefoldError):
    """Vectors of another model or dimension than the store holds."""


class EmbedderFailed(RefoldError):
    """The endpoint of an embedder could not be reached, or returned no vectors; nothing was appended."""


class StoreError(RefoldError):
    """The store could not perform the operation; acknowledged writes are still there."""


class StoreFull(StoreError):
    """No space is left on the disk or in the map; reads still work."""


class StoreCorrupt(StoreError):
    """Bytes were read that differ from those that were written."""


class StoreVersion(StoreError):
    """The format is newer than this program, or not refold's at all."""


class StoreBusy(StoreError):
    """Another process or handle holds what this call needs."""


class StoreUnreachable(StoreError):
    """The server of a shared log does not answer; reads continue from the local copy."""


def logger() -> Any:
    """Return refold's logger; ``logging`` loads with the first message, since that takes a tenth of a first search."""
    from logging import getLogger  # noqa: PLC0415 - see above

    return getLogger("refold")
