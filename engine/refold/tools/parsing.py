"""JSON out of what models write: behind thoughts, inside of fences, among other words, cut off."""

import json
import re
from itertools import islice
from typing import Any, Final

from refold.errors import RefoldError
from refold.tools.limits import JSON_BEGINNINGS_COUNT_MAX, REPLY_CHARS_MAX

_THOUGHT_BEGINS: Final = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THOUGHT_ENDS: Final = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_BEGINNING: Final = re.compile(r"[\[{]")
_NEXT_ITEM: Final = re.compile(r"[\s,]*")
_SHOWN_CHARS: Final = 80
_DECODER: Final = json.JSONDecoder()


class NoJson(RefoldError):
    """A model's answer holds no JSON value; the message shows how it begins."""


def parsed(text: str) -> tuple[Any, bool]:
    """Return the first JSON object or array of a text, and whether it was cut off, so that only its whole items are it.

    Raises ``NoJson`` where there is none.
    """
    for said in _spoken(text[:REPLY_CHARS_MAX]):
        found = _found(said)
        if found is not None:
            return found
    message = f"Failed to parse memory extraction JSON: no JSON value in {text.strip()[:_SHOWN_CHARS]!a}"
    raise NoJson(message)


def _spoken(text: str) -> list[str]:
    """Return what is no thought: what follows the last one, then what stands before the first one."""
    ends = [found.end() for found in _THOUGHT_ENDS.finditer(text)]
    begins = _THOUGHT_BEGINS.search(text)
    before = text if begins is None else text[: begins.start()]
    return [text[ends[-1] :], before] if ends else [before]


def _found(said: str) -> tuple[Any, bool] | None:
    """Return the first JSON object or array of such, and whether it was cut off; another array where there is none."""
    passed: tuple[Any, bool] | None = None
    begins = [found.start() for found in islice(_BEGINNING.finditer(said), JSON_BEGINNINGS_COUNT_MAX)]
    for begin in begins:
        whole = _decoded(said, begin)
        if whole is not None:
            value: Any = whole[0]
            if not value or said[begin] == "{" or isinstance(value[0], dict):
                return value, False
            # A mark of a footnote, perhaps, or a list of numbers that was all there is.
            passed = passed or (value, False)
            continue
        if said[begin] == "[":
            items = _items(said, begin + 1)
            if items:
                return items, True
    return passed


def _decoded(text: str, begin: int) -> tuple[Any, int] | None:
    """Return the JSON value at a place and where it ends, ``None`` where there is none."""
    try:
        return _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None


def _items(text: str, begin: int) -> list[Any]:
    """Return the objects of an array up to the one that is cut off."""
    items: list[Any] = []
    while True:
        found = _NEXT_ITEM.match(text, begin)
        begin = found.end() if found is not None else begin
        item = _decoded(text, begin) if text[begin : begin + 1] == "{" else None
        if item is None:
            return items
        items.append(item[0])
        begin = item[1]
