"""Looking for byte strings in every file of a directory: whether what was erased is really gone.

How many strings are looked for at once is in ``sieving.py``, which loads numpy.
"""

import mmap
import os
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Final

from refold.limits import MARKER_BYTES_MIN
from refold.store.ballast import BALLAST_FILE
from refold.store.mapping import LOCK_FILE
from refold.store.protocol import Found
from refold.store.turnstile import TURN_LOCK

_LEFT_OUT: Final = frozenset((LOCK_FILE, TURN_LOCK, BALLAST_FILE))
"""Files that hold numbers of processes and transactions alone, and one to which nothing is ever written. A process that
closes one of the first two gives up all its locks on it: LMDB would take it for dead."""


def search(directory: str, markers: Iterable[bytes]) -> Found:
    """Return how often any of the markers, or what base64 makes of one, stands in a file below the directory."""
    forms = {form for marker in markers for form in (marker, *_encoded(marker))}
    assert all(len(form) >= MARKER_BYTES_MIN for form in forms), "a marker that is too short to look for"
    files = searched_bytes = occurrences = 0
    for place, _, names in os.walk(directory):
        for name in names:
            if name in _LEFT_OUT:
                continue
            with open(os.path.join(place, name), "rb") as file:
                length = os.fstat(file.fileno()).st_size
                files, searched_bytes = files + 1, searched_bytes + length
                occurrences += _count(file.fileno(), length, sorted(forms))
    return Found(files, searched_bytes, occurrences)


def _encoded(marker: bytes) -> Iterable[bytes]:
    """Return what base64 makes of the marker at each of the three places where it may begin in a longer string."""
    for before in range(3):
        encoded = b64encode(bytes(before) + marker)
        # What the neighbours have a share in: characters of the first and of the last group.
        begin, end = -(-before * 8 // 6), len(encoded) - (4 if (before + len(marker)) % 3 else 0)
        yield encoded[begin:end]


def _count(file: int, length: int, forms: Sequence[bytes]) -> int:
    """Return how often a form stands in a file."""
    if length < MARKER_BYTES_MIN or not forms:
        return 0
    from refold.store.sieving import count  # noqa: PLC0415 - numpy loads only for those who erase

    # It is closed when nobody holds it any more: views of it may outlive an error in the traceback.
    return count(mmap.mmap(file, length, prot=mmap.PROT_READ), forms)
