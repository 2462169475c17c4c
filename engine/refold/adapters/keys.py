"""Keys of frameworks as parts of table keys: theirs can be empty and contain any character, ours cannot."""

from typing import Final

_ESCAPE: Final = "\x01"
_NUL: Final = "\0"


def part(text: str) -> str:
    """Return a text as a key part: with NUL and the escape character escaped, and never empty."""
    return text.replace(_ESCAPE, _ESCAPE * 2).replace(_NUL, f"{_ESCAPE}0") or _ESCAPE


def text(part: str) -> str:
    """Return the text of a key part."""
    if part == _ESCAPE:
        return ""
    return _ESCAPE.join(piece.replace(f"{_ESCAPE}0", _NUL) for piece in part.split(_ESCAPE * 2))
