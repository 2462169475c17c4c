"""Times and seqs as callers give them."""

import datetime as dates

from refold import checks
from refold.engine import times
from refold.engine.core import Engine
from refold.errors import InvalidInput, NotFound
from refold.limits import TIME_NS_MAX
from refold.store.protocol import Log

_EPOCH = dates.datetime(1970, 1, 1, tzinfo=dates.UTC)
_REST_OF_MICROSECOND_NS = 999
"""A datetime counts microseconds: it means the whole of its last one."""

_MICROSECOND = dates.timedelta(microseconds=1)


def nanoseconds(moment: object, what: str) -> int:
    """Return a moment given as nanoseconds since 1970 or as an aware datetime."""
    if isinstance(moment, dates.datetime):
        moment = _nanoseconds_of(moment, what)
    if not isinstance(moment, int) or isinstance(moment, bool):
        message = (
            f"{what} must be nanoseconds or an aware datetime, not {type(moment).__name__} ({checks.shown(moment)})"
        )
        raise InvalidInput(message)
    if not -TIME_NS_MAX <= moment <= TIME_NS_MAX:
        message = f"{what} is {checks.shown(moment)}, beyond the 64 bits of nanoseconds: the years 1678 to 2261"
        raise InvalidInput(message)
    return int(moment)


def _nanoseconds_of(moment: dates.datetime, what: str) -> int:
    if moment.utcoffset() is None:
        message = f"{what} is the naive datetime {moment}; give it a time zone, such as datetime.UTC"
        raise InvalidInput(message)
    return (moment - _EPOCH) // _MICROSECOND * 1_000


def seq_at(engine: Engine, at: object, head: int | None = None) -> int:
    """Return the seq that ``at`` means: itself, or the last one acknowledged at or before an aware datetime."""
    last = engine.current_head()
    return seq_in(engine.log, last, at, last if head is None else head)


def seq_in(log: Log, head: int, at: object, limit: int) -> int:
    """Return the seq that ``at`` means in a log that ends at ``head``, up to a limit."""
    if isinstance(at, dates.datetime):
        return min(times.seq_at_time(log, head, _nanoseconds_of(at, "at") + _REST_OF_MICROSECOND_NS), limit)
    if not isinstance(at, int) or isinstance(at, bool):
        message = f"at must be a seq or an aware datetime, not {type(at).__name__} ({checks.shown(at)})"
        raise InvalidInput(message)
    if not 0 <= at <= limit:
        message = (
            f"seq {checks.shown(at)} is not in this log, which runs from 0 (empty) to {limit}; "
            f"give a seq that has happened"
        )
        raise InvalidInput(message)
    return int(at)


def day_of(day: object, what: str) -> str:
    """Return a day as ``YYYY-MM-DD``, given as a date or as such a string."""
    if isinstance(day, dates.datetime):
        message = f"{what} is a datetime; give its date, in the time zone you mean"
        raise InvalidInput(message)
    if isinstance(day, dates.date):
        return day.isoformat()
    try:
        return dates.date.fromisoformat(checks.text(day, what)).isoformat()
    except ValueError as error:
        message = f"{what} is {checks.shown(day)}; give a date or a string such as '2026-11-21'"
        raise InvalidInput(message) from error


def day_at(time_ns: int, timezone: str) -> str:
    """Return the day of a moment in a time zone."""
    moment = _EPOCH + dates.timedelta(microseconds=time_ns // 1_000)
    return moment.astimezone(zone(timezone)).date().isoformat()


def days_before(day: str, count: int) -> str:
    """Return the day ``count`` days before a day; the first of all days if there is none so early."""
    date = dates.date.fromisoformat(day)
    return (date - dates.timedelta(days=min(count, date.toordinal() - 1))).isoformat()


def zone(timezone: object) -> dates.tzinfo:
    """Return a time zone by its IANA name."""
    if not isinstance(timezone, str):
        message = f"timezone must be an IANA name such as 'Europe/Oslo', not {checks.shown(timezone)}"
        raise InvalidInput(message)
    if timezone == "UTC":
        return dates.UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - UTC, the default, does without

    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = (
            f"time zone {timezone!r} is not known here; give an IANA name such as 'Europe/Oslo', or install tzdata"
        )
        raise NotFound(message) from error
