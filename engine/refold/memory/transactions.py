"""Atomic writes, as verbs of a memory: batches, and functions that run again until their commit succeeds."""

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, TypeVar

from refold import checks
from refold.engine.batch import Batch
from refold.errors import ReadOnly, WrongVersion
from refold.limits import ATTEMPTS_COUNT_MAX, REDO_COUNT_MAX
from refold.memory.core import core_of
from refold.memory.options import check_callables

if TYPE_CHECKING:
    from refold.memory.memory import Memory

R = TypeVar("R")


def batch(self: "Memory", *, join: bool = False) -> Batch:
    """Return a context manager that collects mutations into one commit; an exception discards them all.

    Leaving it raises ``WrongVersion``, and nothing is written, if another writer has changed what the batch read: a key
    that it got, deleted, or set to the value that the key already had; for any other read, the whole stream. What the
    batch only sets or appends conflicts with nothing. ``transact`` runs a function again until its commit succeeds.

    With ``join=True``, a block inside another one becomes part of it: leaving it commits nothing, an exception
    propagates, and what the block added until then stays in the outer batch unless that is discarded. Without it, a
    nested block raises ``InvalidInput``.

    >>> from refold import Memory
    >>> with Memory() as memory, memory.batch():
    ...     memory.profile().set("theme", "dark")
    ...     memory.profile().set("editor", "vi")
    """
    core, at = core_of(self)
    if at is not None:
        raise ReadOnly(f"this memory is frozen at seq {at}; batch the live one")
    return Batch(core.engine, joins=checks.flag(join, "join"))


def transact(self: "Memory", function: Callable[[], R], *, attempts: int = REDO_COUNT_MAX) -> R:
    """Run a function in a batch, again whenever its commit raises ``WrongVersion``, and return its result.

    Side effects of the function outside the memory happen each time that it runs. After ``attempts`` attempts, at most
    ``ATTEMPTS_COUNT_MAX`` = 1,000,000, the last ``WrongVersion`` is raised. An exception of the function itself
    discards the batch and is raised at once. Inside an open batch of this context, the function runs once, as part of
    that batch.

    >>> from refold import Memory
    >>> memory = Memory()
    >>> state = memory.conversation("chat-42").state
    >>> def count():
    ...     state["visits"] = state.get("visits", 0) + 1
    ...     return state["visits"]
    >>> [memory.transact(count) for _ in range(3)]
    [1, 2, 3]
    """
    attempt = Attempt(self, function, attempts)
    if iscoroutinefunction(function):
        checks.invalid("function is a coroutine function; await memory.aio.transact(function)")
    while True:
        block = attempt.batch()
        try:
            with block:
                result = function()
                attempt.has_run = True
        except WrongVersion as error:
            attempt.check(error)
        else:
            return result


class Attempt:
    """The attempts of one transaction: how many are left, and whether the function has run in the last one."""

    def __init__(self, memory: "Memory", function: object, attempts: int) -> None:
        self._memory = memory
        self._attempts = self._left = checks.integer(attempts, "attempts", 1, ATTEMPTS_COUNT_MAX, "ATTEMPTS_COUNT_MAX")
        self.has_run = False
        check_callables(function=function)

    def batch(self) -> Batch:
        """Return the batch of the next attempt."""
        self._left -= 1
        self.has_run = False
        return self._memory.batch(join=True)

    def check(self, error: WrongVersion) -> None:
        """Raise an error that came from the function, or from the last attempt; otherwise the caller can try again."""
        if not self.has_run:
            raise error
        if not self._left:
            raise WrongVersion(
                f"{error}; attempts={self._attempts} were made, and others changed what was read during each of them; "
                f"read less, or give more attempts",
                expected=error.expected,
                actual=error.actual,
            ) from error
