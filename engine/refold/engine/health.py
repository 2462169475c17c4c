"""The health of an engine, as known at once: without a walk over the log, a request to a server or a lock."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from refold.engine.reader import warning_of_clock
from refold.errors import RefoldError, StoreError, StoreUnreachable
from refold.results import Health

if TYPE_CHECKING:
    from refold.engine.engine import Engine


def _check_readable(engine: "Engine", _: float) -> None:
    engine.reader.check_open()
    engine.reader.log.head()
    engine.reader.log.durability.check_place()
    if engine.shared is not None:
        engine.shared.check_lost()


def _check_writable(engine: "Engine", _: float) -> None:
    log = engine.reader.log
    if log.readonly:
        return
    engine.reader.check_writable()
    if log.durability.is_stopped:
        raise StoreError("an I/O error has stopped writing; check the disk, close this memory and open it again")


def _check_lag(engine: "Engine", max_lag_seconds: float) -> None:
    if (lag := engine.lag) is not None and lag.seconds > max_lag_seconds:
        raise StoreUnreachable(
            f"the copy last had all commits of its server {lag.seconds:.1f} s ago, over {max_lag_seconds:g} s; see "
            f"whether the server answers with `refold doctor`"
        )


_CHECKS: Final[dict[str, Callable[["Engine", float], None]]] = {
    "unreadable": _check_readable,
    "unwritable": _check_writable,
    "behind": _check_lag,
}
"""Checks by the problem that each finds, worst first: a problem hides those after it."""


def health(engine: "Engine", max_lag_seconds: float) -> Health:
    """Return the health of an engine, whose copy of a log on a server can lag by up to ``max_lag_seconds``."""
    problem = message = ""
    for name, check in _CHECKS.items():
        try:
            check(engine, max_lag_seconds)
        except RefoldError as error:
            problem, message = name, str(error)
            break
    if problem == "unreadable":
        return Health(ok=False, problem=problem, message=message)
    commits, seconds = engine.lag or (None, None)
    warning = warning_of_clock(engine.reader.time_ns, engine.reader.clock_ns())
    return Health(not problem, problem, message, commits, seconds, warning)
