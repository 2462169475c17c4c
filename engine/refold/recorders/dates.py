"""Dates as sources write them: ISO 8601, or seconds or milliseconds since 1970."""

import datetime as dates
from typing import Final

_EPOCH: Final = dates.datetime(1970, 1, 1, tzinfo=dates.UTC)
_MICROSECOND: Final = dates.timedelta(microseconds=1)

# Numbers are told apart by their size. What lies below the first bound would be a moment before March 1973; there it is
# far more likely a duration or a counter. The same digits are seconds until the year 5138, and milliseconds above.
_SECONDS_FROM: Final = 10**8
_MILLISECONDS_FROM: Final = 10**11
_MILLISECONDS_BELOW: Final = 10**14


def occurred_ns(value: object) -> int | None:
    """Return a date in nanoseconds since 1970, ``None`` for what is none; without a time zone it is taken as UTC."""
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _from_number(value)
    return None


def _from_text(text: str) -> int | None:
    try:
        moment = dates.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dates.UTC)
    return (moment - _EPOCH) // _MICROSECOND * 1_000


def _from_number(number: float) -> int | None:
    if _SECONDS_FROM <= number < _MILLISECONDS_FROM:
        return round(number * 1_000_000) * 1_000
    if _MILLISECONDS_FROM <= number < _MILLISECONDS_BELOW:
        return round(number * 1_000) * 1_000
    return None
