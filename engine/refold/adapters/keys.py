"""Keys of frameworks as parts of a table's key: theirs may be empty and hold any character, ours may not."""

from typing import Final

_ESCAPE: Final = "\x01"
_NUL: Final = "\0"


def part(text: str) -> str:
    """Return the part for a text: with NUL and the escape escaped, and never empty."""
    return text.replace(_ESCAPE, _ESCAPE * 2).replace(_NUL, f"{_ESCAPE}0") or _ESCAPE


def text(part: str) -> str:
    """Return the text of a part."""
    if part == _ESCAPE:
        return ""
    return _ESCAPE.join(piece.replace(f"{_ESCAPE}0", _NUL) for piece in part.split(_ESCAPE * 2))
