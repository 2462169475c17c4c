"""Argument checks: each returns the value in the form stored in events, or raises.

Pure. Every message names the argument, the value or its size, the bound, and the remedy.
"""

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final, NoReturn, cast

import msgspec

from refold.errors import InvalidInput, LimitExceeded
from refold.event import pack_json
from refold.limits import (
    ACTOR_BYTES_MAX,
    FLOAT_BYTES,
    JSON_DEPTH_MAX,
    KEY_BYTES_MAX,
    KEYWORDS_COUNT_MAX,
    MESSAGE_TOKENS_MAX,
    NAME_BYTES_MAX,
    REQUEST_BYTES_MAX,
    SOURCES_COUNT_MAX,
    VALUE_BYTES_MAX,
    VECTOR_DIMENSIONS_MAX,
    WINDOW_TOKENS_MAX,
)

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Errors raised by decoding bytes that are malformed, not UTF-8, or nested too deeply."""

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**64 - 1
_SHOWN_CHARS: Final = 60
_WAIT_SECONDS_MAX: Final = 1e9  # Effectively forever; some larger numbers cannot be added to a time.
_DAY: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_FEBRUARY: Final = 2
_MONTH_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ERASED_ACTOR: Final = re.compile(r"(erased|unknown)-\d+")


def brief(value: object) -> str:
    """Return a short form of a value for use in a message."""
    if isinstance(value, (str, bytes)):
        value = value[: _SHOWN_CHARS + 1]
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a caller's repr can fail in any way, such as on deep nesting or a huge integer
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def invalid(message: str) -> NoReturn:
    """Raise ``InvalidInput``."""
    raise InvalidInput(message)


def _too_large(what: str, size: int, bound: str, limit: int, advice: str) -> NoReturn:
    raise LimitExceeded(f"{what} is {size:,} bytes, over {bound} = {limit:,}; {advice}")


def text(value: object, what: str, limit: int = VALUE_BYTES_MAX, bound: str = "VALUE_BYTES_MAX") -> str:
    """Return a plain ``str`` that can be stored: UTF-8 without lone surrogates, and within the bound."""
    if type(value) is str and value.isascii() and len(value) <= limit:
        return value
    if not isinstance(value, str):
        invalid(f"{what} must be a str, not {type(value).__name__} ({brief(value)}); convert it first")
    if len(value) > limit:
        _too_large(what, len(value), bound, limit, "shorten it, or keep it in a file and store the file's name")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError as error:
        invalid(f"{what} holds a lone surrogate at character {error.start}; decode the text as UTF-8 before storing it")
    if size > limit:
        _too_large(what, size, bound, limit, "shorten it, or keep it in a file and store the file's name")
    return value if type(value) is str else str.__str__(value)


def name(value: object, what: str) -> str:
    """Return a stream name: a non-empty text that fits in an LMDB key."""
    checked = text(value, what, NAME_BYTES_MAX, "NAME_BYTES_MAX")
    if not checked:
        invalid(f"{what} is empty; give it at least one character")
    return checked


def actor(value: object) -> str:
    """Return an actor's name: printable, not empty, and not a marker of an erased name."""
    checked = text(value, "actor", ACTOR_BYTES_MAX, "ACTOR_BYTES_MAX")
    if not checked or not checked.isprintable():
        invalid(f"actor is {brief(checked)}; give a printable name such as 'tool:search'")
    if _ERASED_ACTOR.fullmatch(checked):
        invalid(f"actor is {brief(checked)}, which marks an actor whose name was erased; give another name")
    return checked


def cause(value: object, head: int) -> int:
    """Return the seq of a cause, given as a seq (0 for none) or as a result that has one."""
    seq = _seq_of(value, "cause")
    if seq < 0 and getattr(value, "stamp", None) is not None:
        invalid("cause is a result of a batch that was not committed; give one that has a seq, or leave it out")
    if not 0 <= seq <= head:
        invalid(f"cause {brief(seq)} is not a seq of this log, which runs from 1 to {head}; give 0 for none")
    return seq


def _seq_of(value: object, what: str) -> int:
    """Return a seq that was given as a number or as a result that has one."""
    stamp = getattr(value, "stamp", None)
    seq = value if stamp is None else stamp.seq
    if not isinstance(seq, int) or isinstance(seq, bool):
        invalid(f"{what} must be a seq or a result that has one, not {type(value).__name__} ({brief(value)})")
    return int(seq)


def key(value: object, what: str = "key") -> str:
    """Return a key: a non-empty text."""
    checked = text(value, what, KEY_BYTES_MAX, "KEY_BYTES_MAX")
    if not checked:
        invalid(f"{what} is empty; give it at least one character")
    return checked


def integer(value: object, what: str, least: int, most: int, bound: str) -> int:
    """Return an integer within its bounds."""
    if not isinstance(value, int) or isinstance(value, bool):
        invalid(f"{what} must be an int, not {type(value).__name__} ({brief(value)})")
    if value < least:
        invalid(f"{what} is {brief(value)}, below {least}; give a number from {least} to {bound} = {most}")
    if value > most:
        raise LimitExceeded(f"{what} is {brief(value)}, over {bound} = {most}; give a smaller number")
    return int(value)


def tokens(value: object) -> int:
    """Return the token count of a message."""
    if type(value) is int and 0 <= value <= MESSAGE_TOKENS_MAX:
        return value
    return integer(value, "tokens", 0, MESSAGE_TOKENS_MAX, "MESSAGE_TOKENS_MAX")


def window_tokens(value: object) -> int:
    """Return a token budget."""
    return integer(value, "window_tokens", 1, WINDOW_TOKENS_MAX, "WINDOW_TOKENS_MAX")


def flag(value: object, what: str) -> bool:
    """Return a bool."""
    if not isinstance(value, bool):
        invalid(f"{what} must be True or False, not {type(value).__name__} ({brief(value)})")
    return value


def packed_json(value: object, what: str) -> bytes:
    """Return a JSON value as msgpack bytes; dicts keep their order."""
    return _pack(value, what, is_binary=False)


def packed_value(value: object, what: str) -> bytes:
    """Return a JSON value that can contain bytes as msgpack bytes; dicts keep their order."""
    return _pack(value, what, is_binary=True)


def _pack(value: object, what: str, *, is_binary: bool) -> bytes:
    _check_json(value, what, 0, is_binary=is_binary)
    packed = pack_json(value)
    if len(packed) > VALUE_BYTES_MAX:
        _too_large(what, len(packed), "VALUE_BYTES_MAX", VALUE_BYTES_MAX, "keep it in a file and store the file's name")
    return packed


def _check_json(value: object, where: str, depth: int, *, is_binary: bool = False) -> None:
    if depth > JSON_DEPTH_MAX:
        raise LimitExceeded(f"{where} is nested deeper than JSON_DEPTH_MAX = {JSON_DEPTH_MAX}; flatten it")
    if isinstance(value, str):
        text(value, where)
    elif isinstance(value, dict):
        for name_, inner in cast("dict[object, object]", value).items():
            if not isinstance(name_, str):
                invalid(f"{where} has a key of type {type(name_).__name__} ({brief(name_)}); JSON keys are str")
            if not name_.isascii() or len(name_) > VALUE_BYTES_MAX:
                text(name_, f"a key of {where}")
            if depth == JSON_DEPTH_MAX or not _is_plain(inner, is_binary=is_binary):
                _check_json(inner, f"{where}[{brief(name_)}]", depth + 1, is_binary=is_binary)
    elif isinstance(value, list):
        for place, inner in enumerate(cast("list[object]", value)):
            if depth == JSON_DEPTH_MAX or not _is_plain(inner, is_binary=is_binary):
                _check_json(inner, f"{where}[{place}]", depth + 1, is_binary=is_binary)
    elif not (is_binary and isinstance(value, bytes)):
        _check_scalar(value, where)


def _is_plain(value: object, *, is_binary: bool) -> bool:
    """Return whether a value is certain to be valid, so that it needs no further check."""
    kind = type(value)
    if kind is str:
        return cast("str", value).isascii() and len(cast("str", value)) <= VALUE_BYTES_MAX
    return value is None or kind is bool or (kind is bytes and is_binary)


def _check_scalar(value: object, where: str) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, int):
        if not _INT_MIN <= value <= _INT_MAX:
            invalid(f"{where} is an integer beyond 64 bits ({brief(value)}); store it as a str")
    elif isinstance(value, float):
        if not isfinite(value):
            invalid(f"{where} is {value}, which JSON cannot hold; store None or a str")
    else:
        invalid(f"{where} is a {type(value).__name__} ({brief(value)}), not a JSON value; convert it first")


def json_text(value: object, what: str) -> bytes:
    """Return a value as JSON text; ``InvalidInput`` for a number that the text would show as null, such as NaN."""
    packed = msgspec.json.encode(value)
    if b"null" in packed:
        _check_finite(msgspec.to_builtins(value, str_keys=True), what)
    return packed


def _check_finite(value: object, where: str) -> None:
    if isinstance(value, dict):
        for name_, inner in cast("dict[object, object]", value).items():
            _check_finite(inner, f"{where}[{brief(name_)}]")
    elif isinstance(value, (list, tuple)):
        for place, inner in enumerate(cast("Sequence[object]", value)):
            _check_finite(inner, f"{where}[{place}]")
    elif isinstance(value, float):
        _check_scalar(value, where)


def json_object(value: object, what: str) -> bytes:
    """Return a dict of JSON values as msgpack bytes."""
    if not isinstance(value, dict):
        invalid(f"{what} must be a dict, not {type(value).__name__} ({brief(value)})")
    return packed_json(cast("object", value), what)


def json_objects(value: object, what: str, kinds: str = "a list of dicts") -> list[dict[str, Any]]:
    """Return a list of dicts; ``kinds`` are all the types that the caller takes, for the message."""
    if not isinstance(value, list):
        invalid(f"{what} must be {kinds}, not {type(value).__name__} ({brief(value)})")
    items = cast("list[object]", value)
    for place, item in enumerate(items):
        if not isinstance(item, dict):
            invalid(f"{what}[{place}] must be a dict, not {type(item).__name__} ({brief(item)})")
    return cast("list[dict[str, Any]]", items)


def one_of(value: object, what: str, known: tuple[str, ...]) -> str:
    """Return one of the known words."""
    if not isinstance(value, str) or value not in known:
        invalid(f"{what} is {brief(value)}; give one of {', '.join(known)}")
    return value


def fraction(value: object, what: str) -> float:
    """Return a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        invalid(f"{what} must be a number, not {type(value).__name__} ({brief(value)})")
    if not 0 <= value <= 1:
        invalid(f"{what} is {brief(value)}; give a number from 0 to 1")
    return float(value)


def wait_seconds(value: object, what: str) -> float | None:
    """Return the number of seconds to wait, or ``None`` to wait indefinitely."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        invalid(f"{what} must be a number, not {type(value).__name__} ({brief(value)})")
    if not value >= 0:
        invalid(f"{what} is {brief(value)}; give 0 or more, or None to wait for as long as it takes")
    return min(value, _WAIT_SECONDS_MAX)


def day(value: object, what: str) -> str:
    """Return a calendar day as ``YYYY-MM-DD``."""
    match = _DAY.fullmatch(text(value, what))
    if match is not None:
        year, month, number = map(int, match.groups())
        has_leap = month == _FEBRUARY and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        if year and 1 <= month <= len(_MONTH_DAYS) and 1 <= number <= _MONTH_DAYS[month - 1] + has_leap:
            return match.group()
    invalid(f"{what} is {brief(value)}; give a day such as '2026-11-21'")


def vector(packed: bytes, what: str) -> bytes:
    """Return a packed vector whose numbers are finite, not all zero, and not too many."""
    if len(packed) % FLOAT_BYTES:
        invalid(f"{what} has {len(packed):,} bytes, which are no numbers of {FLOAT_BYTES} bytes each")
    integer(len(packed) // FLOAT_BYTES, f"the numbers of {what}", 1, VECTOR_DIMENSIONS_MAX, "VECTOR_DIMENSIONS_MAX")
    numbers = memoryview(packed).cast("f")
    if not isfinite(sum(numbers)) or not any(numbers):
        invalid(f"{what} holds a number that is infinite or NaN, or nothing but zeros")
    return packed


def keywords(words: Sequence[str]) -> tuple[str, ...]:
    """Return keywords as a tuple, unless there are too many."""
    if len(words) > KEYWORDS_COUNT_MAX:
        raise LimitExceeded(
            f"{len(words)} keywords are over KEYWORDS_COUNT_MAX = {KEYWORDS_COUNT_MAX}; give the telling ones"
        )
    return tuple(words)


def count(value: object, what: str) -> int:
    """Return a non-negative count."""
    if not isinstance(value, int) or isinstance(value, bool):
        invalid(f"{what} must be an int, not {type(value).__name__} ({brief(value)})")
    if value < 0:
        invalid(f"{what} is {brief(value)}; give 0 or more")
    return int(value)


def texts(value: object, what: str, item: str) -> list[str]:
    """Return a list of strings that can be stored."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        invalid(f"{what} must be a list of str, not {type(value).__name__} ({brief(value)})")
    return [text(each, item) for each in cast("Sequence[object]", value)]


def request_id(value: object) -> bytes:
    """Return a request id as bytes."""
    checked = text(value, "request_id", REQUEST_BYTES_MAX, "REQUEST_BYTES_MAX")
    if not checked:
        invalid("request_id is empty; give it at least one character, or None")
    return checked.encode()


def sources(value: object, head: int) -> tuple[int, ...]:
    """Return the seqs of sources, given as seqs or as results that have one; provisional seqs are negative."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        invalid(f"sources must be a list or tuple of seqs or results, not {type(value).__name__} ({brief(value)})")
    items = cast("Sequence[object]", value)
    if len(items) > SOURCES_COUNT_MAX:
        raise LimitExceeded(
            f"{len(items)} sources are over SOURCES_COUNT_MAX = {SOURCES_COUNT_MAX}; name the most important ones"
        )
    seqs: list[int] = []
    for item in items:
        seq = _seq_of(item, "a source")
        if seq > head or (seq < 1 and getattr(item, "stamp", None) is None):
            invalid(f"source {brief(seq)} is not a seq of this log, which runs from 1 to {head}")
        seqs.append(seq)
    return tuple(seqs)
