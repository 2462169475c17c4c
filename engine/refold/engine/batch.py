"""Batches: the mutations of one context, collected into one commit.

It belongs to a context (a task, a thread of control), not to a thread; while user code runs it holds no lock and no
transaction. Nobody else sees anything of it before it is written.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Self
from weakref import ref

from refold.engine.engine import Engine
from refold.engine.transaction import Transaction
from refold.errors import InvalidInput
from refold.threads import exit_method

OPEN: Final[ContextVar[tuple["Batch", ...]]] = ContextVar("refold_batches", default=())
"""The batches that were begun in this context."""


class Batch:
    """An open batch of one engine; leaving the block commits it, an exception discards it.

    One that joins is, where a batch is open in its context, a part of that one, which alone commits or discards.

    A signal may end the block and yet keep ``__exit__`` from running its first line. So a batch does not only wait to
    be left: it is open as long as the ``with`` statement holds its exit, which it lets go of in any case.
    """

    __slots__ = ("engine", "held", "is_over", "is_part", "joins", "transaction", "was_entered")

    def __init__(self, engine: Engine, *, joins: bool = False) -> None:
        self.engine = engine
        self.joins = joins
        self.is_part = False
        self.transaction = Transaction(engine.reader)
        self.was_entered = self.is_over = False
        self.held: ref[Callable[..., None]] | None = None
        """A reference that only the ``with`` statement holds; ``None`` where the methods are called."""

    def __enter__(self) -> Self:
        """Collect the mutations of this context from here on."""
        self.engine.reader.check_writable()
        if self.was_entered:
            raise InvalidInput("this batch was used before; take a new one with memory.batch()")
        outer = active(self.engine)
        if outer is None:
            begin(self)
            return self
        if not self.joins:
            raise InvalidInput(
                "a batch is already open in this context; commit it before opening another, or take join=True"
            )
        self.transaction = outer.transaction
        self.is_part = self.was_entered = True
        return self

    @exit_method
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Write everything as one commit, or nothing if the block raised."""
        leave(self)
        if kind is None and not self.is_part:
            self.engine.commit(self.transaction)

    @property
    def is_open(self) -> bool:
        """Whether the block is running; a task that was started inside it may outlive it."""
        return self.was_entered and not self.is_over and (self.held is None or self.held() is not None)

    def __len__(self) -> int:
        """Return the number of events collected so far."""
        return len(self.transaction)


def active(engine: Engine) -> Batch | None:
    """Return the batch that this context has open on an engine."""
    for batch in OPEN.get():
        if batch.engine is engine and not batch.is_over and (batch.held is None or batch.held() is not None):
            return batch
    return None


def begin(batch: Batch) -> None:
    """Begin to collect what this context does."""
    OPEN.set((*OPEN.get(), batch))
    batch.was_entered = True  # Last: where this is cut off, the batch is not open.


def leave(batch: Batch) -> None:
    """Stop collecting; what becomes of the events is the caller's."""
    batch.is_over = True
    OPEN.set(tuple(other for other in OPEN.get() if other.is_open))


@contextmanager
def collecting(batch: Batch) -> Generator[None]:
    """Collect what this context does into a batch that somebody else will commit."""
    begin(batch)
    try:
        yield
    finally:
        leave(batch)


def refuse(engine: Engine, what: str) -> None:
    """Raise ``InvalidInput`` for what cannot be part of a batch."""
    if active(engine) is not None:
        raise InvalidInput(
            f"{what} inside a batch is refused, because its events have no seq yet; do it after the block"
        )
