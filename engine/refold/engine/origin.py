"""The origin of an event: who wrote it, and which event led to it, as the context of the writer says.

It belongs to a context (a task, a thread of control): a task or a thread that is started with a copy of the context
goes on with it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from msgspec import Struct

from refold.event import ACTOR_NUMBERS, HOST


class Origin(Struct, frozen=True, gc=False):
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
ACTING: Final[ContextVar[tuple[tuple[object, Origin], ...]]] = ContextVar("refold_acting", default=())
"""The origins that surround this context, the inner ones last, each with the reader of the log that it is of."""


def origin_in(reader: object, given: Origin = BY_HOST) -> Origin:
    """Look up the innermost origin that this context has for a log, with the time of the given one; else that one."""
    for owner, origin in reversed(ACTING.get()):
        if owner is reader:
            return origin.at(given.occurred_ns)
    return given


@contextmanager
def acting(reader: object, actor: str, cause: int | None) -> Generator[None]:
    """Give what this context writes into a log an actor and a cause; without a cause the surrounding one stays."""
    before = ACTING.get()
    cause = origin_in(reader).cause if cause is None else cause
    ACTING.set((*before, (reader, Origin.of(actor, cause))))
    try:
        yield
    finally:
        ACTING.set(before)
