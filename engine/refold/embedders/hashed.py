"""The built-in embedder: words and pieces of words, hashed into a table of 512 numbers.

It knows no language and loads no model: texts are alike as far as they share words, their beginnings and endings. On
chat it finds as much by cosine as a small neural model, on meaning that is put in other words it finds nothing.
"""

import re
from collections import Counter
from functools import lru_cache
from itertools import chain
from math import isqrt, sqrt
from typing import TYPE_CHECKING, Final

from refold.embedders.protocol import COMPACT_COSINE, MERGE_COSINE
from refold.hashing import blake2b
from refold.limits import HASHED_DIMENSIONS, HASHED_WORDS_COUNT_MAX
from refold.text import is_unspaced, words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy import float64, int64, intp
    from numpy.typing import NDArray

    from refold.embedders.protocol import Vectors

_WORD_WEIGHT: Final = 10
_COMMON_WEIGHT: Final = 3
_PIECE_WEIGHT: Final = 4
_PIECE_CHARS: Final = (3, 5)
_SLOTS_PER_FEATURE: Final = 2
_REPEATS_MAX: Final = 4_096

# Words that nearly every text has; "no", "not" and "never" stay, because they turn a text's meaning round.
_COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        "a about also am an and any are as at be because been but by can could d did do does don for from get got had "
        "has have he her him his how i if in into is it its just like ll m me my of on or our out re really s she "
        "should so some t than that the their them then there these they this those to too up us ve was we were what "
        "when where which who whom why will with would you your",
    )
)


class HashedEmbedder:
    """The embedder that needs nothing: hashed words and pieces of words, the same on every machine.

    A word weighs more than its pieces, a common English word little, and a repeated word the root of its count. A text
    without any letter or digit is embedded by what stands between its spaces, and an empty one as if it were one word,
    so that every text has a vector. All sums are of whole numbers: no rounding depends on the machine.

    >>> one, many = HashedEmbedder().embed(["a red bicycle", "Red bicycles!"])
    >>> bool(one @ many > 0.6)
    True
    """

    id = "refold-hash-1"
    dim = HASHED_DIMENSIONS
    merge_threshold = MERGE_COSINE
    compact_threshold = COMPACT_COSINE

    def embed(self, texts: list[str]) -> "Vectors":
        """Return one vector of length 1 for each text, in order, as rows of float32."""
        import numpy  # noqa: PLC0415 - loads when the first vector comes

        rows = numpy.empty((len(texts), HASHED_DIMENSIONS), dtype=numpy.float32)
        for row, text in zip(rows, texts, strict=True):
            row[:] = _unit(Counter(words(text) or text.split() or [""]))
        return rows


def _unit(counts: "Counter[str]") -> "NDArray[float64]":
    """Return the vector of a text's words, of length 1."""
    import numpy  # noqa: PLC0415 - loads when the first vector comes

    parts = [_features(word) for word in counts]
    table = numpy.zeros(HASHED_DIMENSIONS, dtype=numpy.int64)
    repeats = [isqrt(256 * min(count, _REPEATS_MAX)) for count in counts.values()]
    weights = numpy.concatenate([part[1] * repeat for part, repeat in zip(parts, repeats, strict=True)])
    slots = numpy.concatenate([part[0] for part in parts])
    numpy.add.at(table, slots, weights)
    if not table.any():
        # Every feature met its opposite. Without their signs they cannot.
        numpy.add.at(table, slots, numpy.abs(weights))
    return table / sqrt(int(table @ table))


@lru_cache(HASHED_WORDS_COUNT_MAX)
def _features(word: str) -> "tuple[NDArray[intp], NDArray[int64]]":
    """Return the slots of a word and its pieces in the table, and what to add there."""
    import numpy  # noqa: PLC0415 - loads when the first vector comes

    weighted = chain(
        _slots(("w" + word,), _COMMON_WEIGHT if word in _COMMON else _WORD_WEIGHT),
        () if word in _COMMON else _slots(("p" + piece for piece in _pieces(word)), _PIECE_WEIGHT),
    )
    slots, weights = zip(*weighted, strict=True)
    return numpy.array(slots, dtype=numpy.intp), numpy.array(weights, dtype=numpy.int64)


def _pieces(word: str) -> "Iterable[str]":
    """Return the pieces of a word between its marked ends; of a pair of characters, each of them."""
    if is_unspaced(word):
        return list(word)
    whole = f"<{word}>"
    return [whole[start : start + size] for size in _PIECE_CHARS for start in range(len(whole) - size + 1)]


def _slots(features: "Iterable[str]", weight: int) -> "Iterable[tuple[int, int]]":
    for feature in features:
        digest = blake2b(feature.encode(errors="surrogatepass"), digest_size=8 * _SLOTS_PER_FEATURE).digest()
        for start in range(0, len(digest), 8):
            number = int.from_bytes(digest[start : start + 8], "little")
            yield number % HASHED_DIMENSIONS, weight if number >> 63 else -weight
