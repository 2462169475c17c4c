"""JSON out of files: one value a line, or one value in all; too large, cut off or malformed is said with its line."""

import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import msgspec

from refold.errors import InvalidInput, LimitExceeded
from refold.limits import DOCUMENT_BYTES_MAX

_MARK: Final = b"\xef\xbb\xbf"
_DECODE: Final = msgspec.json.Decoder().decode

ITEM: Final = "[]"
"""What stands in a path for the items of a list."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?(\s*+:)?|[\[\]{}]', re.DOTALL)
_OPENING: Final = frozenset((b"{", b"["))
_CLOSING: Final = frozenset((b"}", b"]"))
_PATH_DEPTH_MAX: Final = 8


def lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Return each line that is not empty with its number; a document spread over lines is read whole."""
    number = 0
    is_first = True
    while line := _read(file, number + 1, is_whole=False):
        number += 1
        text = line.removeprefix(_MARK).strip()
        if not text:
            continue
        # A line that ends so is no JSON by itself: this is one document, written for the eye.
        if is_first and text.endswith((b"[", b"{", b",", b":")):
            text += b"\n" + _read(file, number, is_whole=True)
        is_first = False
        yield number, text


def whole(file: BinaryIO) -> Any:
    """Return the one JSON value that a file holds."""
    text = _read(file, 1, is_whole=True).removeprefix(_MARK).strip()
    if not text:
        message = "the file is empty; give one that holds a session"
        raise InvalidInput(message)
    return decoded(text, "the file is no JSON", "get it again, whole, and import again")


def decoded(text: bytes, problem: str, advice: str) -> Any:
    """Return the value of a JSON text; ``InvalidInput`` says the problem, what the parser found, and the advice."""
    try:
        return _DECODE(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{problem} ({error}); {advice}"
        raise InvalidInput(message) from error


def _read(file: BinaryIO, line: int, *, is_whole: bool) -> bytes:
    text = file.read(DOCUMENT_BYTES_MAX + 1) if is_whole else file.readline(DOCUMENT_BYTES_MAX + 1)
    if len(text) > DOCUMENT_BYTES_MAX:
        message = (
            f"line {line} begins a document over DOCUMENT_BYTES_MAX = {DOCUMENT_BYTES_MAX:,} bytes, all of which "
            f"would be held in RAM; write one conversation a line, or split the file"
        )
        raise LimitExceeded(message)
    return text


def paths(head: bytes) -> Iterator[tuple[str, ...]]:
    """Return the path of every key in the beginning of a JSON text, which may be cut off anywhere."""
    inside: list[tuple[str, bool]] = []
    key = ""
    for token in _TOKEN.finditer(head):
        text = token.group()
        if text in _OPENING:
            is_item = bool(inside) and inside[-1][1]
            inside.append((ITEM if is_item else key, text == b"["))
        elif text in _CLOSING:
            del inside[-1:]
        elif token.group(1) is not None:
            key = text[1 : text.rindex(b'"')].decode(errors="replace")
            if len(inside) <= _PATH_DEPTH_MAX:
                yield (*(label for label, _ in inside[1:]), key)
