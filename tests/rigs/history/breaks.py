"""What a rig does to a process it starts: builds that are broken on purpose, and kills at a chosen moment of a write.

A rig that stays green on a broken build proves nothing. All of it happens at doors that every design of the engine has:
the ``write`` and ``row`` of the store, and the fold. It lasts until the process ends.
"""

import os
import signal
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import count
from typing import Any, Final, NoReturn, TypeAlias

from msgspec import Struct

from refold import fold
from refold.log.lmdb_log import LmdbLog, LmdbTurn
from refold.message import MessageAppended

EVERY: Final = 7
"""One of how many goes wrong."""

ENOUGH: Final = 20
"""How many writes go well in a process that then loses all: enough for the streams that threads share to be opened."""

Method: TypeAlias = Callable[..., Any]


def _replace(name: str, replacement: Callable[[Method], Method]) -> None:
    """Replace a method in every class of the log on disk that has it."""
    having = [kind for kind in (LmdbLog, LmdbTurn) if name in vars(kind)]
    assert having, f"neither the log on disk nor its turns have a method {name}"
    for kind in having:
        original = getattr(kind, name)
        setattr(kind, name, wraps(original)(replacement(original)))


def lose_acknowledgements() -> None:
    """Skip a write of the log now and then, and return as if it were durable; not one that opens a stream.

    The events of a stream without its name could not be read at all, and a rig has to find what is hard to find.
    """
    numbers = count(1)

    def skipping(write: Method) -> Method:
        def written(log: Any, first_seq: int, records: Any, commits: Any, rows: Any = ()) -> Any:
            if any(table != "requests" for table, _, _ in rows) or next(numbers) % EVERY:
                return write(log, first_seq, records, commits, rows)
            return None

        return written

    _replace("write", skipping)


def lose_the_end() -> None:
    """Write nothing any more after some writes, and return as if it were durable: no gap in the log tells of it."""
    numbers = count(1)

    def skipping(write: Method) -> Method:
        def written(*arguments: Any) -> Any:
            return write(*arguments) if next(numbers) < ENOUGH else None

        return written

    _replace("write", skipping)


def skip_folds() -> None:
    """Leave a message out of the state now and then."""
    apply, numbers = fold.fold, count(1)

    def skipping(state: Any, stamp: Any, event: Any) -> None:
        if not isinstance(event, MessageAppended) or next(numbers) % EVERY:
            apply(state, stamp, event)

    fold.fold = skipping


def forget_requests() -> None:
    """Find no request that was answered before."""

    def forgetting(row: Method) -> Method:
        return lambda self, table, key: None if table == "requests" else row(self, table, key)

    _replace("row", forgetting)


BUILDS: Final[dict[str, Callable[[], None]]] = {
    "lost-acknowledgement": lose_acknowledgements,
    "lost-end": lose_the_end,
    "skipped-fold": skip_folds,
    "forgotten-request": forget_requests,
}


class Doom(Struct, frozen=True):
    """The moment of which write of its log a process is killed at."""

    moment: str
    writes: int


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError  # A signal that cannot be held back has been sent to this very process.


class _Deadly(list[Any]):
    """A list that kills who iterates over it: the log does so inside of its transaction."""

    def __iter__(self) -> Iterator[Any]:
        _die()


def _before(_write: Method, *_arguments: Any) -> None:
    _die()


def _within(write: Method, log: Any, first_seq: int, records: Any, commits: Any, *rows: Any) -> None:
    write(log, first_seq, records, _Deadly(commits), *rows)
    _die()  # A build that writes nothing looks at nothing either.


def _after(write: Method, *arguments: Any) -> None:
    write(*arguments)
    _die()


MOMENTS: Final[dict[str, Callable[..., None]]] = {"before": _before, "within": _within, "after": _after}
"""Before a write; in its transaction, the records put and the lock held; after it, before anybody is told."""


def doom(what: Doom) -> None:
    """Kill this process at that moment."""
    numbers = count(1)

    def dying(write: Method) -> Method:
        def written(*arguments: Any) -> Any:
            if next(numbers) < what.writes:
                return write(*arguments)
            return MOMENTS[what.moment](write, *arguments)

        return written

    _replace("write", dying)
