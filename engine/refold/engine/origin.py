"""The origin of an event: who wrote it, and which event led to it, as the context of the writer says.

It belongs to a context (a task, a thread of control): a task or a thread that is started with a copy of the context
goes on with it.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple
from weakref import ref

from refold.event import ACTOR_NUMBERS, HOST
from refold.threads import exit_method


class Origin(NamedTuple):
    """When an event happened, what led to it, and who wrote it."""

    occurred_ns: int | None = None
    """``None`` for the time of its commit."""
    cause: int = 0
    actor: str = HOST
    number: int | None = 0
    """The fixed number of the actor, ``None`` for one that an event has to name."""

    @classmethod
    def of(cls, actor: str, cause: int = 0) -> "Origin":
        """Make the origin of an actor."""
        return cls(None, cause, actor, ACTOR_NUMBERS.get(actor))

    def at(self, occurred_ns: int | None) -> "Origin":
        """Return the origin of what happened at another time; ``None`` leaves it as it is."""
        return self if occurred_ns is None else Origin(occurred_ns, self.cause, self.actor, self.number)


BY_HOST: Final = Origin()


class Acting:
    """A block of a context that gives what it writes into a log an actor and a cause.

    It counts in every context that was copied inside of it, also once it was left. One whose exit was cut off by a
    signal counts nowhere; see ``exit_method``.
    """

    __slots__ = ("_actor", "_cause", "_is_left", "held", "origin", "reader")

    def __init__(self, reader: object, actor: str, cause: int | None) -> None:
        self.reader = reader
        self._actor, self._cause = actor, cause
        self.origin = BY_HOST
        self._is_left = False
        self.held: ref[Callable[..., None]] | None = None

    def __enter__(self) -> None:
        """Begin; without a cause the surrounding one stays."""
        cause = origin_in(self.reader).cause if self._cause is None else self._cause
        self.origin = Origin.of(self._actor, cause)
        ACTING.set((*(block for block in ACTING.get() if block.counts), self))

    @exit_method
    def __exit__(self, *_: object) -> None:
        """Leave the block."""
        ACTING.set(tuple(block for block in ACTING.get() if block is not self))
        self._is_left = True  # Last: where this is cut off, the block counts no more.

    @property
    def counts(self) -> bool:
        """Whether the block is running, or was left as it should be."""
        return self._is_left or self.held is None or self.held() is not None


ACTING: Final[ContextVar[tuple[Acting, ...]]] = ContextVar("refold_acting", default=())
"""The blocks that surround this context, the inner ones last."""


def origin_in(reader: object, given: Origin = BY_HOST) -> Origin:
    """Look up the innermost origin that this context has for a log, with the time of the given one; else that one."""
    for block in reversed(ACTING.get()):
        if block.reader is reader and block.counts:
            return block.origin.at(given.occurred_ns)
    return given
