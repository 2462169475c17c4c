"""Checked input of callers: times and seqs, constructor arguments, and the options of mutations."""

import datetime as dates
import inspect
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypedDict, TypeVar, cast

from refold import checks
from refold.engine import reader
from refold.engine.conflicts import ANY
from refold.engine.engine import Engine
from refold.errors import InvalidInput, NotFound
from refold.limits import NAME_BYTES_MAX, TIME_NS_MAX, VECTOR_DIMENSIONS_MAX
from refold.log.commits import is_address
from refold.log.protocol import Log

if TYPE_CHECKING:
    from refold.embedders import Embedder


# Times and seqs as callers give them.

_EPOCH = dates.datetime(1970, 1, 1, tzinfo=dates.UTC)
_REST_OF_MICROSECOND_NS = 999  # A datetime has microsecond resolution, so it includes all of its last microsecond.

_MICROSECOND = dates.timedelta(microseconds=1)


def nanoseconds(moment: object, what: str) -> int:
    """Return a moment, given as nanoseconds since 1970 or as an aware datetime, in nanoseconds."""
    if isinstance(moment, dates.datetime):
        moment = _nanoseconds_of(moment, what)
    if not isinstance(moment, int) or isinstance(moment, bool):
        raise InvalidInput(
            f"{what} must be nanoseconds or an aware datetime, not {type(moment).__name__} ({checks.brief(moment)})"
        )
    if not -TIME_NS_MAX <= moment <= TIME_NS_MAX:
        raise InvalidInput(
            f"{what} is {checks.brief(moment)}, beyond the 64 bits of nanoseconds: the years 1678 to 2261"
        )
    return int(moment)


def _nanoseconds_of(moment: dates.datetime, what: str) -> int:
    if moment.utcoffset() is None:
        raise InvalidInput(f"{what} is the naive datetime {moment}; give it a time zone, such as datetime.UTC")
    return (moment - _EPOCH) // _MICROSECOND * 1_000


def seq_at(engine: Engine, at: object, head: int | None = None, what: str = "at") -> int:
    """Resolve ``at`` to a seq: the seq itself, or the last one acknowledged at or before an aware datetime."""
    last = engine.reader.current_head()
    return seq_in(engine.reader.log, last, at, last if head is None else head, what)


def seq_in(log: Log, head: int, at: object, limit: int, what: str = "at") -> int:
    """Resolve ``at`` to a seq of at most ``limit``, in a log that ends at ``head``."""
    if isinstance(at, dates.datetime):
        return min(reader.seq_at_time(log, head, _nanoseconds_of(at, what) + _REST_OF_MICROSECOND_NS), limit)
    if not isinstance(at, int) or isinstance(at, bool):
        raise InvalidInput(f"{what} must be a seq or an aware datetime, not {type(at).__name__} ({checks.brief(at)})")
    if not 0 <= at <= limit:
        raise InvalidInput(
            f"seq {checks.brief(at)} is not in this log, which runs from 0 (empty) to {limit}; "
            f"give a seq that has happened"
        )
    return int(at)


def day_of(day: object, what: str) -> str:
    """Return a day, given as a date or as a ``YYYY-MM-DD`` string, as ``YYYY-MM-DD``."""
    if isinstance(day, dates.datetime):
        raise InvalidInput(f"{what} is a datetime; give its date, in the time zone you mean")
    if isinstance(day, dates.date):
        return day.isoformat()
    try:
        return dates.date.fromisoformat(checks.text(day, what)).isoformat()
    except ValueError as error:
        raise InvalidInput(f"{what} is {checks.brief(day)}; give a date or a string such as '2026-11-21'") from error


def day_at(time_ns: int, timezone: str) -> str:
    """Return the day of a moment in a time zone."""
    moment = _EPOCH + dates.timedelta(microseconds=time_ns // 1_000)
    return moment.astimezone(zone(timezone)).date().isoformat()


def days_before(day: str, count: int) -> str:
    """Return the day ``count`` days before a day, but no earlier than the first day that a date can represent."""
    date = dates.date.fromisoformat(day)
    return (date - dates.timedelta(days=min(count, date.toordinal() - 1))).isoformat()


def zone(timezone: object) -> dates.tzinfo:
    """Return a time zone by its IANA name."""
    if not isinstance(timezone, str):
        raise InvalidInput(f"timezone must be an IANA name such as 'Europe/Oslo', not {checks.brief(timezone)}")
    if timezone == "UTC":
        return dates.UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - not needed for UTC, the default

    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise NotFound(
            f"time zone {timezone!r} is not known here; give an IANA name such as 'Europe/Oslo', or install tzdata"
        ) from error


# Arguments of the memory itself: constructor arguments, paths, pages of names.


def check_page(after: str | None, limit: int | None) -> tuple[str | None, int | None]:
    """Check and return the bounds of a page of names: the name that it starts after, and its limit."""
    known = None if after is None else checks.text(after, "after", NAME_BYTES_MAX, "NAME_BYTES_MAX")
    return known, None if limit is None else checks.count(limit, "limit")


def conversation_id(conversation: object) -> str | None:
    """Return the id of a conversation, given as an id or as a handle; ``None`` for none."""
    return None if conversation is None else checks.name(getattr(conversation, "id", conversation), "conversation")


def check_embedder(embedder: object) -> "Embedder | None":
    """Check that an embedder has the required attributes, and return it."""
    if embedder is None:
        return None
    from refold.embedders import Embedder  # noqa: PLC0415 - loaded only if the caller chose one

    if not isinstance(embedder, Embedder):
        checks.invalid(f"embedder needs an id, a dim and embed(texts), which {checks.brief(embedder)} lacks")
    checks.name(embedder.id, "embedder.id")
    checks.integer(embedder.dim, "embedder.dim", 1, VECTOR_DIMENSIONS_MAX, "VECTOR_DIMENSIONS_MAX")
    return embedder


def check_callables(**functions: object) -> None:
    """Check the clock and the source of random bytes."""
    for option, function in functions.items():
        if not callable(function):
            checks.invalid(f"{option} must be a function, not {type(function).__name__} ({checks.brief(function)})")


def check_witness(witness: object, store: str | None) -> str | None:
    """Check and return the path of a witness, which must lie outside the store, or it would be rolled back with it."""
    if witness is None:
        return None
    path = check_path(witness, "witness")
    if store is not None and is_address(store):
        return path
    if store is None:
        checks.invalid("a memory in RAM keeps nothing that a witness could tell of; give a path, or drop witness")
    inside = os.path.realpath(store)
    if os.path.commonpath([inside, os.path.realpath(path)]) == inside:
        shown = checks.brief(witness)
        checks.invalid(f"witness {shown} lies in the store {store} and would be rolled back with it; put it elsewhere")
    return path


def check_cache(cache: object, store: str | None) -> str | None:
    """Check and return the path for the local copy of a log on a server."""
    if cache is None:
        return None
    if store is None or not is_address(store):
        checks.invalid(f"cache {checks.brief(cache)} is for the copy of a log on a server; drop it")
    return check_path(cache, "cache")


def check_path(path: object, name: str = "path") -> str:
    """Return a path as a string that a file system accepts."""
    if isinstance(path, os.PathLike):
        path = os.fspath(cast("os.PathLike[str]", path))
    if not isinstance(path, str):
        checks.invalid(f"{name} must be a str or a path, not {type(path).__name__} ({checks.brief(path)})")
    if not path:
        checks.invalid(f"{name} is empty; give a path")
    try:
        storable = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        storable = False
    if not storable:
        checks.invalid(f"{name} {checks.brief(path)} holds a NUL or a lone surrogate, which no file system takes")
    return path


T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])

Sources: TypeAlias = Sequence[Any]
"""The sources of a mutation: seqs, or results that have one."""

Progress: TypeAlias = Callable[[int, int], None] | None
"""A callback that takes the amount done and the total amount."""


class Options(NamedTuple):
    """The three options of every mutation."""

    expected: object = ANY
    request_id: str | None = None
    sources: Sources = ()


class MutationOptions(TypedDict, total=False):
    """The fields of ``Options`` as keyword arguments of a verb, for type checkers and editors."""

    expected: object
    request_id: str | None
    sources: Sources


def parse_options(options: MutationOptions) -> Options:
    """Return the options of a mutation with their defaults; raise ``TypeError`` for an unknown option."""
    unknown = options.keys() - Options._field_defaults.keys()
    if unknown:
        raise TypeError(f"unexpected keyword arguments: {', '.join(sorted(unknown))}; see the verb's signature")
    return Options(**options)


_KEYWORDS: Final = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
    for name, default in Options._field_defaults.items()
]


def mutation(verb: Function) -> Function:
    """Show the three options of a mutation, which the verb takes as ``**options``, in its signature."""
    signature = inspect.signature(verb)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    verb.__signature__ = signature.replace(parameters=[*own, *_KEYWORDS])  # type: ignore[attr-defined]
    return verb
