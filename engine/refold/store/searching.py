"""Looking for byte strings in every file of a directory: whether what was erased is really gone.

A string of at least ``MARKER_BYTES_MIN`` bytes covers aligned words of eight bytes wherever it stands. So a file is
read once as words, and a string is itself looked for only if all words are there that it would cover at one of the
eight places where it may begin.
"""

import mmap
import os
import sys
from base64 import b64encode
from collections.abc import Iterable
from typing import Final

from refold.limits import MARKER_BYTES_MIN
from refold.store.ballast import BALLAST_FILE
from refold.store.mapping import LOCK_FILE
from refold.store.protocol import Found
from refold.store.turnstile import TURN_LOCK

_WORD_BYTES: Final = 8
_WORDS_MAX: Final = 64
_LEFT_OUT: Final = frozenset((LOCK_FILE, TURN_LOCK, BALLAST_FILE))
"""Files that hold numbers of processes and transactions alone, and one to which nothing is ever written. A process that
closes one of the first two gives up all its locks on it: LMDB would take it for dead."""


def search(directory: str, markers: Iterable[bytes]) -> Found:
    """Return how often any of the markers, or what base64 makes of one, stands in a file below the directory."""
    forms = {form for marker in markers for form in (marker, *_encoded(marker))}
    assert all(len(form) >= MARKER_BYTES_MIN for form in forms), "a marker that is too short to look for"
    words = {form: [_words(form, begin) for begin in range(_WORD_BYTES)] for form in forms}
    files = searched_bytes = occurrences = 0
    for place, _, names in os.walk(directory):
        for name in names:
            if name in _LEFT_OUT:
                continue
            with open(os.path.join(place, name), "rb") as file:
                length = os.fstat(file.fileno()).st_size
                files, searched_bytes = files + 1, searched_bytes + length
                occurrences += _count(file.fileno(), length, words)
    return Found(files, searched_bytes, occurrences)


def _words(form: bytes, begin: int) -> set[int]:
    """Return the first words from ``begin`` on: enough of them that hardly anything else has them all."""
    places = range(begin, len(form) - _WORD_BYTES + 1, _WORD_BYTES)[:_WORDS_MAX]
    return {int.from_bytes(form[place : place + _WORD_BYTES], sys.byteorder) for place in places}


def _encoded(marker: bytes) -> Iterable[bytes]:
    """Return what base64 makes of the marker at each of the three places where it may begin in a longer string."""
    for before in range(3):
        encoded = b64encode(bytes(before) + marker)
        # What the neighbours have a share in: characters of the first and of the last group.
        begin, end = -(-before * 8 // 6), len(encoded) - (4 if (before + len(marker)) % 3 else 0)
        yield encoded[begin:end]


def _count(file: int, length: int, words: dict[bytes, list[set[int]]]) -> int:
    """Return how often a form stands in a file."""
    if length < MARKER_BYTES_MIN:
        return 0
    with mmap.mmap(file, length, prot=mmap.PROT_READ) as content:
        whole = length - length % _WORD_BYTES
        wanted = {word for ways in words.values() for way in ways for word in way}
        with memoryview(content) as view, view[:whole] as aligned, aligned.cast("Q") as found:
            there = wanted.intersection(found)
        forms = (form for form, ways in words.items() if any(way <= there for way in ways))
        return sum(_occurrences(content, form) for form in forms)


def _occurrences(content: mmap.mmap, form: bytes) -> int:
    count, at = 0, content.find(form)
    while at >= 0:
        count, at = count + 1, content.find(form, at + 1)
    return count
