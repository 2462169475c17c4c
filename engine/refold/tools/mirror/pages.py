"""The files of a mirror as bytes, and what a hand wrote into them as facts and lines. Pure."""

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from refold import checks
from refold.errors import RefoldError
from refold.hashing import blake2b

DIGEST_BYTES: Final = 8
LINE_BYTES: Final = 6
LINE_CHARS: Final = 8
"""Of the digest of one line, as bytes and as text."""

Part: TypeAlias = str
"""A note without its text: the digests of its lines."""

_BOM: Final = "\ufeff"
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NUMBER: Final = object()
"""Stands for every number and constant of a document: none of them is a string, and none is worth reading."""


class Unreadable(Exception):
    """What a hand wrote is no profile, or no text; the message says why, as it goes on from the file's name."""


def digest(content: bytes) -> str:
    """Return what tells some bytes from others."""
    return blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def file_of(day: str) -> str | None:
    """Return the name of a day's file, ``None`` for what is no day and must name no file."""
    if not _DAY.fullmatch(day):
        return None
    compact = day.replace("-", "")
    return f"{compact[:6]}/{compact}.md"


def day_of(file: str) -> str:
    """Return the day that a file's name tells."""
    compact = file.rpartition("/")[2].removesuffix(".md")
    return f"{compact[:4]}-{compact[4:6]}-{compact[6:]}"


# The profile.


def profile_bytes(facts: Mapping[str, str]) -> bytes:
    """Return a profile as its file: one JSON object of strings, a line for each fact, in the order of the profile."""
    return (json.dumps(facts, ensure_ascii=False, indent=2) + "\n").encode()


def facts_of(content: bytes) -> dict[str, str]:
    """Return the facts that a file holds; raises ``Unreadable`` for anything but one object of different strings."""
    return _checked(pairs_of(content))


def pairs_of(content: bytes) -> "Pairs":
    """Return the members of the object that a file holds; raises ``Unreadable`` for anything else."""
    try:
        document = json.loads(
            text_of(content),
            object_pairs_hook=Pairs,
            parse_int=lambda _: _NUMBER,
            parse_float=lambda _: _NUMBER,
            parse_constant=lambda _: _NUMBER,
        )
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is no JSON ({error}); mend it, and it is taken then") from error
    if not isinstance(document, Pairs):
        raise Unreadable('is no JSON object; give one of strings, such as {"theme": "dark"}')
    return document


class Pairs(list[tuple[str, Any]]):
    """The members of an object as they stand there, also those whose key stands there twice."""


def _checked(pairs: Pairs) -> dict[str, str]:
    facts: dict[str, str] = {}
    for key, value in pairs:
        if key in facts:
            raise Unreadable(f"names the key {checks.shown(key)} twice; keep one of them")
        if not isinstance(value, str):
            raise Unreadable(f"has a value at {checks.shown(key)} that is no string; put it in quotes")
        try:
            facts[checks.key(key)] = checks.text(value, f"the value at {checks.shown(key)}")
        except RefoldError as error:
            raise Unreadable(f"cannot be taken: {error}") from error
    return facts


# Days.


def heading(day: str) -> str:
    """Return the first line of a day's file."""
    return f"# {day}"


def day_bytes(day: str, texts: Iterable[str]) -> bytes:
    """Return the notes of a day as its file, as a context shows them."""
    return f"{heading(day)}\n\n{chr(10).join(texts)}\n".encode()


def text_of(content: bytes) -> str:
    """Return the text of a file, without the mark that some editors put before it; ``Unreadable`` if it is none."""
    try:
        return content.decode().removeprefix(_BOM)
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8 (byte {error.start}); save it as UTF-8") from error


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, whichever way they end."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def compared(lines: Iterable[str]) -> list[str]:
    """Return lines as they are compared: what editors trim, at their ends and around them, does not count."""
    trimmed = [line.rstrip() for line in lines]
    first = next((place for place, line in enumerate(trimmed) if line), len(trimmed))
    last = next((place for place in reversed(range(len(trimmed))) if trimmed[place]), -1)
    return trimmed[first : last + 1]


def part_of(text: str) -> Part:
    """Return what tells a note from others, and each of its lines from others, without its text."""
    return part_of_lines(compared(lines_of(text)))


def part_of_lines(lines: Iterable[str]) -> Part:
    """Return the digests of lines, one behind the other."""
    return "".join(map(_line_told, lines))


def _line_told(line: str) -> str:
    return urlsafe_b64encode(blake2b(line.encode(), digest_size=LINE_BYTES).digest()).decode()


BLANK: Final = _line_told("")
