"""Counting tokens without a model: the built-in estimate, and what of a message is counted.

Pure: nothing here reads anything but its arguments.
"""

from collections.abc import Iterator
from math import ceil
from typing import Any, Final, Protocol, cast, runtime_checkable

_LETTERS: Final = bytes(range(65, 91)) + bytes(range(97, 123))
_UPPERCASE: Final = bytes(range(65, 91))
_DIGITS: Final = bytes(range(48, 58))
_SPACES: Final = b" \t\n\r\v\f"
_BEYOND_ASCII: Final = bytes(range(128, 256))
_PUNCTUATION: Final = bytes(sorted(set(range(128)) - set(_LETTERS) - set(_DIGITS) - set(_SPACES)))

_WEIGHTS: Final = (
    (_LETTERS, 0.195),
    (_UPPERCASE, 0.151),
    (_DIGITS, 0.503),
    (_PUNCTUATION, 0.599),
    (_SPACES, 0.160),
    (_BEYOND_ASCII, 0.382),
)
"""Tokens per byte of each class, fitted to the o200k vocabulary on chat, JSON tool output and Markdown."""


@runtime_checkable
class TokenCounter(Protocol):
    """What a token counter offers: a name that is recorded with every conversation, and a count."""

    @property
    def id(self) -> str:
        """The name under which the counter is recorded."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        ...


class ByteClassCounter:
    """The built-in counter: a weighted sum over six classes of UTF-8 bytes, rounded up.

    Its mean error is 4-9 % on chat and on JSON, where characters/4 undercounts JSON by 31 %.

    >>> ByteClassCounter().count('{"city": "Oslo", "nights": 3}')
    11
    """

    id = "refold-bytes-1"

    def count(self, text: str) -> int:
        """Return the estimated number of tokens, 0 for an empty text."""
        raw = text.encode()
        size = len(raw)
        return ceil(sum(weight * (size - len(raw.translate(None, kind))) for kind, weight in _WEIGHTS))


def countable(content: str | list[dict[str, Any]] | None, tool_calls: list[dict[str, Any]] | None) -> Iterator[str]:
    """Return the texts of a message that a model is charged for: text parts, names and arguments of tool calls."""
    if isinstance(content, str):
        yield content
    elif content is not None:
        for part in content:
            yield from _texts_of_part(part)
    for call in tool_calls or ():
        yield from _texts_of_call(call)


def _texts_of_part(part: dict[str, Any]) -> Iterator[str]:
    for field in ("text", "name", "thinking"):
        if isinstance(value := part.get(field), str):
            yield value
    if "input" in part:
        yield _rendered(part["input"])
    inner = part.get("content")
    if isinstance(inner, str):
        yield inner
    elif isinstance(inner, list):
        for nested in cast("list[object]", inner):
            if isinstance(nested, dict):
                yield from _texts_of_part(cast("dict[str, Any]", nested))


def _texts_of_call(call: dict[str, Any]) -> Iterator[str]:
    function = call.get("function", call)
    if not isinstance(function, dict):
        return
    for field in ("name", "arguments", "input"):
        if field in function:
            yield _rendered(function[field])


def _rendered(value: Any) -> str:
    """Return a value as the text that stands for it in a prompt: itself if it is text, else compact JSON."""
    if isinstance(value, str):
        return value
    import msgspec  # noqa: PLC0415 - only messages whose arguments are not text pay for it

    return msgspec.json.encode(value).decode()
