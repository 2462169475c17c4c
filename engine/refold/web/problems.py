"""Errors as answers: `application/problem+json`, by the type of the error that refold raised."""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from refold.engine.reader import RequestTaken
from refold.errors import (
    Closed,
    InvalidInput,
    LimitExceeded,
    NotFound,
    ReadOnly,
    RefoldError,
    StoreBusy,
    StoreFull,
    StoreUnreachable,
    WrongVersion,
)

PROBLEM_JSON: Final = "application/problem+json"

_STATUSES: Final[tuple[tuple[type[RefoldError], int, str], ...]] = (
    (NotFound, 404, "Not found"),
    (WrongVersion, 412, "It has changed meanwhile"),
    (LimitExceeded, 422, "Over a bound"),
    (RequestTaken, 409, "The key of the request is taken"),
    (InvalidInput, 400, "Invalid input"),
    (ReadOnly, 403, "Only to be read"),
    (StoreBusy, 503, "The store is busy"),
    (StoreUnreachable, 503, "The server of the log does not answer"),
    (StoreFull, 507, "The store is full"),
    (Closed, 503, "The memory was closed"),
)


def problem(status: int, title: str, detail: str, **members: Any) -> Response:
    """Make a problem answer; `error` repeats the detail, because older clients look for it there."""
    document = {"type": "about:blank", "title": title, "status": status, "detail": detail, "error": detail, **members}
    return Response(msgspec.json.encode(document), status, media_type=PROBLEM_JSON)


def status_of(error: Exception) -> tuple[int, str]:
    """Return the status and the title of an error."""
    return next(
        ((status, title) for kind, status, title in _STATUSES if isinstance(error, kind)), (500, "The store failed")
    )


def refold_problem(error: Exception) -> Response:
    """Make the problem answer for an error of refold."""
    status, title = status_of(error)
    members = {"actual": error.actual} if isinstance(error, WrongVersion) else {}
    return problem(status, title, str(error), **members)
