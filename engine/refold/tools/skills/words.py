"""The words of a text as the seed's formula sees them. Pure."""

import re
from typing import Final

_TOKEN: Final = re.compile(r"[a-z0-9]+|[^\W_]")
_SPACED: Final = bytes(byte if chr(byte).isascii() and chr(byte).isalnum() else 32 for byte in range(256))


def tokens(text: str) -> list[str]:
    """Return the words of a text as the seed's formula sees them: runs of ASCII, and every other letter by itself.

    >>> tokens("Use React-18, bitte: \u00fc")
    ['use', 'react', '18', 'bitte', '\u00fc']
    """
    return _TOKEN.findall(text.lower())


def token_set(text: str) -> frozenset[bytes]:
    r"""Return the different words of a text, as ``tokens`` cuts it, in UTF-8: an order of magnitude quicker.

    >>> sorted(token_set("Use React, use \u00fc"))
    [b'react', b'use', b'\xc3\xbc']
    """
    lowered = text.lower()
    found = frozenset(lowered.encode("ascii", "replace").translate(_SPACED).split())
    if lowered.isascii():
        return found
    return found | {character.encode() for character in set(lowered) if character > "\x7f" and _TOKEN.match(character)}
