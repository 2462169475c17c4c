"""The origin of an event: its actor and the event that caused it, both taken from the context of the writer.

It belongs to a context (a task, a thread of control): a task or a thread that starts with a copy of the context
inherits it.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple
from weakref import ref

from refold.event import ACTOR_NUMBERS, HOST
from refold.threads import exit_method


class Origin(NamedTuple):
    """When an event happened, which event caused it, and its actor."""

    occurred_ns: int | None = None
    """``None`` means the time of its commit."""
    cause: int = 0
    actor: str = HOST
    number: int | None = 0
    """The fixed number of the actor, ``None`` if an event has to name it."""

    @classmethod
    def of(cls, actor: str, cause: int = 0) -> "Origin":
        """Return the origin for an actor and a cause."""
        return cls(None, cause, actor, ACTOR_NUMBERS.get(actor))

    def at(self, occurred_ns: int | None) -> "Origin":
        """Return this origin with another time; ``None`` leaves it as it is."""
        return self if occurred_ns is None else Origin(occurred_ns, self.cause, self.actor, self.number)


BY_HOST: Final = Origin()


class ActorBlock:
    """A block of a context that gives events written to a log an actor and a cause.

    It counts in every context that was copied inside the block, even after the block has ended. A block whose exit was
    cut off by a signal counts nowhere; see ``exit_method``.
    """

    __slots__ = ("_actor", "_cause", "_is_left", "held", "origin", "reader")

    def __init__(self, reader: object, actor: str, cause: int | None) -> None:
        self.reader = reader
        self._actor, self._cause = actor, cause
        self.origin = BY_HOST
        self._is_left = False
        self.held: ref[Callable[..., None]] | None = None

    def __enter__(self) -> None:
        """Begin the block; without a cause, the surrounding one stays."""
        cause = origin_in(self.reader).cause if self._cause is None else self._cause
        self.origin = Origin.of(self._actor, cause)
        ACTING.set((*(block for block in ACTING.get() if block.counts), self))

    @exit_method
    def __exit__(self, *_: object) -> None:
        """Leave the block."""
        ACTING.set(tuple(block for block in ACTING.get() if block is not self))
        self._is_left = True  # Last, so that a block whose exit is cut off no longer counts.

    @property
    def counts(self) -> bool:
        """Whether the block is running, or has ended properly."""
        return self._is_left or self.held is None or self.held() is not None


ACTING: Final[ContextVar[tuple[ActorBlock, ...]]] = ContextVar("refold_acting", default=())
"""The blocks around this context, innermost last."""


def origin_in(reader: object, given: Origin = BY_HOST) -> Origin:
    """Return the innermost origin that this context has for a log, with the time of ``given``, or else ``given``."""
    for block in reversed(ACTING.get()):
        if block.reader is reader and block.counts:
            return block.origin.at(given.occurred_ns)
    return given
