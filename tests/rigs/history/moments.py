"""The moments of a write at which a rig kills a process: before it, inside of its transaction, and after it."""

import os
import signal
from collections.abc import Iterator
from itertools import count
from typing import Any, Final, NoReturn

from msgspec import Struct

from tests.rigs.breaks import Verb, replace_in_log


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


def _before(_write: Verb, *_arguments: Any, **_options: Any) -> None:
    _die()


def _within(write: Verb, log: Any, records: Any, rows: Any = (), *more: Any, **options: Any) -> None:
    write(log, records, _Deadly(rows), *more, **options)
    _die()  # A build that writes nothing looks at nothing either.


def _after(write: Verb, *arguments: Any, **options: Any) -> None:
    write(*arguments, **options)
    _die()


MOMENTS: Final[dict[str, Verb]] = {"before": _before, "within": _within, "after": _after}
"""Before a write; in its transaction, the records put and the lock held; after it, before anybody is told."""


def doom(what: Doom) -> None:
    """Kill this process at that moment."""
    numbers = count(1)

    def dying(write: Verb) -> Verb:
        def written(*arguments: Any, **options: Any) -> Any:
            if next(numbers) < what.writes:
                return write(*arguments, **options)
            return MOMENTS[what.moment](write, *arguments, **options)

        return written

    replace_in_log("write", dying)
