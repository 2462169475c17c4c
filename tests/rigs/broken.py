"""Builds that are broken on purpose, by name: a rig that stays green on one of them proves nothing.

Each is a function that breaks this process, until it ends, at a door that every design of the engine has: the log's
``write`` and ``row``, and the fold.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

from refold import fold
from refold.message import MessageAppended
from refold.store.log import LmdbLog

EVERY = 7
"""One of how many goes wrong."""


def lose_acknowledgements() -> None:
    """Skip a write of the log now and then, and return as if it were durable."""
    write, numbers = LmdbLog.write, count(1)

    def skipping(self: LmdbLog, *arguments: Any, **options: Any) -> Any:
        if next(numbers) % EVERY:
            return write(self, *arguments, **options)
        return None

    LmdbLog.write = skipping  # type: ignore[method-assign]


def skip_folds() -> None:
    """Leave a message out of the state now and then."""
    apply, numbers = fold.fold, count(1)

    def skipping(state: Any, stamp: Any, event: Any) -> None:
        if not isinstance(event, MessageAppended) or next(numbers) % EVERY:
            apply(state, stamp, event)

    fold.fold = skipping


def forget_requests() -> None:
    """Find no request that was answered before."""
    row = LmdbLog.row

    def forgetting(self: LmdbLog, table: Any, key: bytes) -> bytes | None:
        return None if table == "requests" else row(self, table, key)

    LmdbLog.row = forgetting  # type: ignore[method-assign]


BUILDS: dict[str, Callable[[], None]] = {
    "lost-acknowledgement": lose_acknowledgements,
    "skipped-fold": skip_folds,
    "forgotten-request": forget_requests,
}
