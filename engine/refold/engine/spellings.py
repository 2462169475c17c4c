"""The strings inside events, and a text in every spelling in which they can hold it: as it is, and escaped in JSON."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from refold.errors import StoreCorrupt
from refold.event import unpack_json


def strings_of(value: object) -> Iterator[bytes]:
    """Yield every string in a value: texts, byte strings, and strings in byte strings that are msgpack themselves."""
    if isinstance(value, str):
        yield value.encode()
    elif isinstance(value, bytes):
        yield value
        yield from strings_of(_try_unpack(value))
    elif isinstance(value, msgspec.Struct):
        yield from strings_of(msgspec.structs.astuple(value))
    elif isinstance(value, Mapping):
        for pair in cast("Mapping[object, object]", value).items():
            yield from strings_of(pair)
    elif isinstance(value, (tuple, list)):
        for item in cast("Iterable[object]", value):
            yield from strings_of(item)


def _try_unpack(packed: bytes) -> Any:
    """Return the value that bytes hold as msgpack, or ``None`` if they hold something else, such as a vector."""
    try:
        return unpack_json(packed)
    except (StoreCorrupt, TypeError, RecursionError):
        return None


_JSON_DEPTH: Final = 2  # The arguments of a call are a JSON text, which can contain another one.
_SHORT: Final = dict(zip(b'"\\/bfnrt', (each.encode() for each in '"\\/\b\f\n\r\t'), strict=True))

_ESCAPE: Final = re.compile(
    rb'\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(["\\/bfnrt]))'
)
"""A pair of surrogates, the code of another character, or a short escape."""

_PART: Final = re.compile(r"[A-Za-z0-9]+|[^\x00-\x7f]")
"""What an encoder does not give a short escape: letters and digits of ASCII, and each other character beyond it."""

_PARTS_COUNT: Final = 8
_ASCII_CODE: Final = b"u00"  # Part of every ASCII character that is written as its code.


class Spelling:
    """A text in every spelling that JSON allows, also in a JSON text inside another one.

    Encoders differ: each character can be as it is, its code in upper or lower hex digits, or its short escape.
    """

    def __init__(self, text: str) -> None:
        self._text = text.encode()
        parts = sorted(dict.fromkeys(_PART.findall(text)), key=len, reverse=True)
        self._parts = [_forms(part) for part in parts[:_PARTS_COUNT]]

    def may_be_in(self, packed: bytes) -> bool:
        """Return whether bytes contain the text as it is, or a backslash and all that is left of it in any spelling."""
        if self._text in packed:
            return True
        return b"\\" in packed and all(any(form in packed for form in forms) for forms in self._parts)

    def is_in(self, array: bytes) -> bool:
        """Return whether an event, given as its array, has a string that contains the text."""
        if self._text in array:
            return True
        if not self.may_be_in(array):
            return False
        strings = strings_of(msgspec.msgpack.decode(array))
        return any(self._text in unescaped for string in strings for unescaped in _unescape(string))


def _forms(part: str) -> tuple[bytes, ...]:
    """Return byte strings of which any spelling of a part of a text contains at least one."""
    if part.isascii():
        return part.encode(), _ASCII_CODE
    code = part.encode("utf-16-be")[:2].hex()
    return part.encode(), f"u{code}".encode(), f"u{code.upper()}".encode()


def _unescape(string: bytes) -> Iterator[bytes]:
    """Yield a string with its escapes decoded, and that with its own decoded, while there are any."""
    for _ in range(_JSON_DEPTH):
        if b"\\" not in string:
            return
        string = _ESCAPE.sub(_decode_escape, string)
        yield string


def _decode_escape(escape: re.Match[bytes]) -> bytes:
    high, low, code, short = escape.groups()
    if short is not None:
        return _SHORT[ord(short)]
    units = bytes.fromhex((code or high + low).decode())
    return units.decode("utf-16-be", "surrogatepass").encode("utf-8", "surrogatepass")
