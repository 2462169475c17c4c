"""A batch: the mutations of one context, collected into one commit.

It belongs to a context (a task, a thread of control), not to a thread; while user code runs it holds no lock and no
transaction. Nobody else sees anything of it before it is written.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, Self

from refold.engine.core import Engine
from refold.engine.pending import Pending
from refold.errors import InvalidInput

_ACTIVE: Final[ContextVar[tuple["Batch", ...]]] = ContextVar("refold_batches", default=())


class Batch:
    """An open batch of one engine; leaving the block commits it, an exception discards it."""

    __slots__ = ("_token", "engine", "is_over", "pending")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.pending = Pending()
        self.is_over = False
        """A task that was started inside the block may outlive it; what it does then is its own."""
        self._token: Token[tuple[Batch, ...]] | None = None

    def __enter__(self) -> Self:
        """Collect the mutations of this context from here on."""
        self.enter()
        return self

    def enter(self) -> None:
        """Do what entering the block does."""
        self.engine.check_writable()
        if self._token is not None:
            message = "this batch was used before; take a new one with memory.batch()"
            raise InvalidInput(message)
        if active(self.engine) is not None:
            message = "a batch is already open in this context; commit it before opening another"
            raise InvalidInput(message)
        self._token = _ACTIVE.set((*_ACTIVE.get(), self))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Write everything as one commit, or nothing if the block raised."""
        self.leave()
        if kind is None:
            self.engine.commit_batch(self.pending)

    def leave(self) -> None:
        """Stop collecting; what becomes of the events is the caller's."""
        assert self._token is not None, "a batch is left that was never entered"
        self.is_over = True
        _ACTIVE.reset(self._token)

    def __len__(self) -> int:
        """Return the number of events collected so far."""
        return len(self.pending.events)


def active(engine: Engine) -> Batch | None:
    """Return the batch that this context has open on an engine."""
    for batch in _ACTIVE.get():
        if batch.engine is engine and not batch.is_over:
            return batch
    return None


@contextmanager
def collecting(batch: Batch) -> Generator[None]:
    """Collect what this context does into a batch that somebody else will commit."""
    token = _ACTIVE.set((*_ACTIVE.get(), batch))
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def refuse(engine: Engine, what: str) -> None:
    """Raise ``InvalidInput`` for what cannot be part of a batch."""
    if active(engine) is not None:
        message = f"{what} inside a batch is refused, because its events have no seq yet; do it after the block"
        raise InvalidInput(message)
