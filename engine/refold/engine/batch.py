"""Batches: the mutations of one context, collected into one commit.

A batch belongs to a context (a task, a thread of control), not to a thread. It holds no lock and no transaction while
user code runs, and nothing outside the batch sees any of it before it is written.
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
"""The batches that this context has begun."""


class Batch:
    """An open batch of one engine; leaving the block commits it, and an exception discards it.

    With ``joins``, a batch that is entered inside an open batch of its context becomes part of that one, which alone
    commits or discards.

    A signal can end the block without letting ``__exit__`` run its first line. A batch is therefore also over once the
    ``with`` statement has dropped its reference to the exit method, which it does in any case.
    """

    __slots__ = ("engine", "held", "is_over", "is_part", "joins", "transaction", "was_entered")

    def __init__(self, engine: Engine, *, joins: bool = False) -> None:
        self.engine = engine
        self.joins = joins
        self.is_part = False
        self.transaction = Transaction(engine.reader)
        self.was_entered = self.is_over = False
        self.held: ref[Callable[..., None]] | None = None
        """A weak reference to the exit held by the ``with`` statement; ``None`` if the methods are called directly."""

    def __enter__(self) -> Self:
        """Start collecting the mutations of this context."""
        self.engine.reader.check_writable()
        if self.was_entered:
            raise InvalidInput("this batch was used before; take a new one with memory.batch()")
        outer = active_batch(self.engine)
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
        """Whether the block is running; a task that was started inside it can outlive it."""
        return self.was_entered and not self.is_over and (self.held is None or self.held() is not None)

    def __len__(self) -> int:
        """Return the number of events collected so far."""
        return len(self.transaction)


def active_batch(engine: Engine) -> Batch | None:
    """Return the batch that this context has open on an engine, or ``None``."""
    for batch in OPEN.get():
        # As `is_open`, without the call: every write inside a batch comes here.
        is_entered = batch.engine is engine and batch.was_entered and not batch.is_over
        if is_entered and (batch.held is None or batch.held() is not None):
            return batch
    return None


def begin(batch: Batch) -> None:
    """Start collecting the mutations of this context into a batch."""
    OPEN.set((*OPEN.get(), batch))
    batch.was_entered = True  # Last, so that an interrupt before it leaves the batch not open.


def leave(batch: Batch) -> None:
    """Stop collecting; the caller decides what happens to the events."""
    batch.is_over = True
    OPEN.set(tuple(other for other in OPEN.get() if other.is_open))


@contextmanager
def collect_into(batch: Batch) -> Generator[None]:
    """Collect the mutations of this context into a batch that the caller will commit."""
    begin(batch)
    try:
        yield
    finally:
        leave(batch)


def check_no_batch(engine: Engine, what: str) -> None:
    """Raise ``InvalidInput`` if a batch is open, for an operation that cannot be part of one."""
    if active_batch(engine) is not None:
        raise InvalidInput(
            f"{what} inside a batch is refused, because its events have no seq yet; do it after the block"
        )
