"""Dates as sources write them: ISO 8601, seconds or milliseconds since 1970, and the words of two benchmarks."""

import datetime as dates
import re
from typing import Final

_EPOCH: Final = dates.datetime(1970, 1, 1, tzinfo=dates.UTC)
_MICROSECOND: Final = dates.timedelta(microseconds=1)

# Numbers are told apart by their size. What lies below the first bound would be a moment before March 1973; there it is
# far more likely a duration or a counter. The same digits are seconds until the year 5138, and milliseconds above.
_SECONDS_FROM: Final = 10**8
_MILLISECONDS_FROM: Final = 10**11
_MILLISECONDS_BELOW: Final = 10**14

# Months by their English names, whatever the language of the machine is.
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
        1,
    )
}
_MONTH: Final = r"(?P<month>[A-Za-z]{3,9})"
_SPOKEN: Final = re.compile(
    rf"(?P<hour>\d{{1,2}}):(?P<minute>\d\d)\s*(?P<half>[ap]m)\s+on\s+(?P<day>\d{{1,2}})\s+{_MONTH},?\s+(?P<year>\d{{4}})",
    re.ASCII | re.IGNORECASE,
)
_ANCHOR: Final = re.compile(rf"{_MONTH}-(?P<day>\d{{1,2}})-(?P<year>\d{{4}})", re.ASCII)
_NOON_HOURS: Final = 12


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
    return _since_epoch_ns(moment)


def _since_epoch_ns(moment: dates.datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND * 1_000


def _from_number(number: float) -> int | None:
    if _SECONDS_FROM <= number < _MILLISECONDS_FROM:
        return round(number * 1_000_000) * 1_000
    if _MILLISECONDS_FROM <= number < _MILLISECONDS_BELOW:
        return round(number * 1_000) * 1_000
    return None


def spoken_ns(value: object) -> int | None:
    """Return a moment such as ``1:56 pm on 8 May, 2023`` in nanoseconds since 1970, as UTC; ``None`` for any other."""
    found = _SPOKEN.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return None
    hour = int(found["hour"])
    if not 1 <= hour <= _NOON_HOURS:
        return None
    hours = hour % _NOON_HOURS + (_NOON_HOURS if found["half"].lower() == "pm" else 0)
    return _on_day(found, hours, int(found["minute"]))


def anchor_ns(value: object) -> int | None:
    """Return the beginning of a day such as ``March-15-2024`` in nanoseconds since 1970, as UTC, or ``None``."""
    found = _ANCHOR.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if found is None else _on_day(found, 0, 0)


def _on_day(found: re.Match[str], hour: int, minute: int) -> int | None:
    month = _MONTHS.get(found["month"][:3].lower())
    if month is None:
        return None
    try:
        moment = dates.datetime(int(found["year"]), month, int(found["day"]), hour, minute, tzinfo=dates.UTC)
    except ValueError:
        return None
    return _since_epoch_ns(moment)
