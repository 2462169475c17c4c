"""The validated parameters of a request: names and seqs in paths and queries, bodies, and the conditions of writes."""

from typing import Any, Final, cast
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from refold import ANY, EXISTS, NO_STREAM, Memory, checks
from refold.errors import NotFound, WrongVersion
from refold.web.guard import FORM, SLASH

PAGE_COUNT_DEFAULT: Final = 50
PAGE_COUNT_MAX: Final = 1_000
_FIELDS_COUNT_MAX: Final = 200
_NUMBER_CHARS_MAX: Final = 19
NUMBER_MAX: Final = 2**63 - 1


def name_in(request: Request, key: str) -> str:
    """Return a name in the path; a slash in the name was written as %2F."""
    return str(request.path_params[key]).replace(SLASH, "/")


def name_of(request: Request, key: str) -> str | None:
    """Return a query parameter that is a name, with the spaces that belong to it; `None` if it is missing or empty."""
    return request.query_params.get(key) or None


def text(request: Request, key: str, default: str | None = None) -> str | None:
    """Return a query parameter without the spaces around it; `default` if it is missing or blank."""
    return request.query_params.get(key, "").strip() or default


def check_parameters(request: Request, *known: str) -> None:
    """Raise `InvalidInput` for a query parameter that is not one of `known`."""
    unknown = next((each for each in request.query_params if each not in known), None)
    if unknown is not None:
        there_are = f"there are {', '.join(known)}" if known else "there are none here"
        checks.invalid(f"there is no parameter {checks.brief(unknown)}; {there_are}")


def is_number(text: str) -> bool:
    """Return whether a text is a whole number with at most as many digits as `NUMBER_MAX`."""
    return text.isascii() and text.isdecimal() and len(text) <= _NUMBER_CHARS_MAX


def number(request: Request, key: str, default: int, most: int | None = None) -> int:
    """Return a query parameter that is a whole number, at most `most`; raises `InvalidInput` for any other text."""
    value = request.query_params.get(key, "").strip()
    if key not in request.query_params or (not value and not request.url.path.startswith("/api/")):
        return default  # The forms of pages also send blank fields.
    if not is_number(value) or int(value) > NUMBER_MAX:
        checks.invalid(f"{key} is {checks.brief(value)}; give a whole number from 0 to {NUMBER_MAX = }")
    return int(value) if most is None else min(int(value), most)


def seq_or_text(request: Request, key: str, head: int) -> int | str | None:
    """Return a query parameter as a seq if it is a number up to the head, else as text; `None` if it is missing."""
    value = text(request, key)
    return int(value) if value is not None and is_number(value) and int(value) <= head else value


def limit(request: Request) -> int:
    """Return the requested length of a page."""
    return max(number(request, "limit", PAGE_COUNT_DEFAULT, PAGE_COUNT_MAX), 1)


def flag(request: Request, key: str) -> bool:
    """Return whether a query parameter is true, by default false; raises `InvalidInput` if it is neither."""
    value = request.query_params.get(key, "false").strip()
    if value not in {"true", "false"}:
        checks.invalid(f"{key} is {checks.brief(value)}; give true or false")
    return value == "true"


def moment(request: Request, memory: Memory, key: str = "at") -> int | None:
    """Return the seq in a parameter, or `None`; raises `NotFound` for a seq beyond the head, which might still come."""
    value = request.query_params.get(key, "").strip()
    if not value and not (key in request.query_params and request.url.path.startswith("/api/")):
        return None
    return check_seq(memory, number(request, key, 0))


def check_seq(memory: Memory, seq: int) -> int:
    """Return a seq; raises `NotFound` if it is beyond the head."""
    head = memory.head
    if seq > head:
        raise NotFound(f"seq {seq} is not in this log, which runs from 0 (empty) to {head}; give one that has happened")
    return seq


def memory_at(memory: Memory, at: int | None) -> Memory:
    """Return the memory as of a seq, or the live memory for `None`."""
    return memory if at is None else memory.at(at)


def memory_of(request: Request, memory: Memory) -> Memory:
    """Return the memory as of the seq in a request, or the live memory."""
    return memory_at(memory, moment(request, memory))


async def json_body(request: Request) -> dict[str, Any]:
    """Return the object in a JSON body, or an empty object if there is no body."""
    body = await request.body()
    if not body.strip():
        return {}
    try:
        value = msgspec.json.decode(body)
    except checks.UNDECODABLE as error:
        checks.invalid(f"the body is no JSON ({error}); send an object")
    if not isinstance(value, dict):
        checks.invalid(f"the body is {checks.brief(value)}; send an object")
    return cast("dict[str, Any]", value)


async def form_body(request: Request) -> dict[str, str]:
    """Return the fields of a form; if a field is given twice, the last one counts."""
    body = await request.body()
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        return {}
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_COUNT_MAX, errors="strict")
    except ValueError as error:
        checks.invalid(f"the form cannot be read ({error}); send UTF-8")
    return {name: value.replace("\r\n", "\n") for name, value in pairs}  # Forms send every line end as CRLF.


def fields(body: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the named fields that were given; raises `InvalidInput` for any other field."""
    unknown = next((name for name in body if name not in names), None)
    if unknown is not None:
        known = f"there are {', '.join(names)}" if names else "this request takes none"
        checks.invalid(f"there is no field {checks.brief(unknown)}; {known}")
    return {name: body[name] for name in names if name in body}


def options(request: Request) -> dict[str, Any]:
    """Return the options of a mutation from `If-Match`, `If-None-Match: *` and `Idempotency-Key`."""
    expected: Any = ANY
    tag = request.headers.get("if-match")
    if tag is not None:
        version = tag.strip().removeprefix("W/").strip('"').partition("-")[0]
        if version != "*" and not is_number(version):
            checks.invalid(f"If-Match is {checks.brief(tag)}; give the ETag of an answer, or *")
        expected = EXISTS if version == "*" else int(version)
    elif request.headers.get("if-none-match", "").strip() == "*":
        expected = NO_STREAM
    key = request.headers.get("idempotency-key")
    if key is not None and not key.strip():
        checks.invalid("Idempotency-Key is empty; give each request a key of its own, or leave it out")
    return {"expected": expected, "request_id": key}


def check_mark(request: Request, mark: str, what: str, version: int) -> None:
    """Raise `WrongVersion` if `If-Match` is the ETag of another content, which no version counts."""
    parts = request.headers.get("if-match", "").strip().removeprefix("W/").strip('"').split("-")
    if parts[2:] not in ([], [mark]):
        expected = options(request)["expected"]
        text = f"{what} has another content now; read it again and decide anew"
        raise WrongVersion(text, expected=expected, actual=version)


def answer(
    request: Request, value: Any, *, version: int = 0, seq: int = 0, mark: str = "", status: int = 200
) -> Response:
    """Answer with JSON and an ETag: the version of its stream, the seq at which all of it was read, and a mark.

    The mark tells contents apart that are in no stream, such as those of files.
    """
    tag = f'"{version}-{seq}{mark and f"-{mark}"}"'
    headers = {"etag": tag} if seq or version else {}
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if headers and request.method in {"GET", "HEAD"} and tag in known:
        return Response(status_code=304, headers=headers)
    return Response(msgspec.json.encode(value), status, headers, "application/json")
