"""The terms of every row, and the signals that are computed from them."""

import re
from collections.abc import Iterator
from math import log, sqrt
from typing import TYPE_CHECKING, Final

from refold.rank.growing import grown
from refold.rank.postings import Posting, Postings
from refold.rank.ranking import Ranking
from refold.rank.sessions import Sessions
from refold.rank.stemming import terms_of

if TYPE_CHECKING:
    from numpy import float32, intp, uint16
    from numpy.typing import NDArray

_LENGTH_MAX: Final = 2**16 - 1
_MONTHS: Final = tuple(
    re.findall(r"\w+", "January February March April May June July August September October November December")
)
_DAY_NS: Final = 86_400 * 10**9


class Lexicon:
    """An index of terms that is kept row by row, and answers like one that is built anew.

    Terms are those of ``terms_of`` with one stemmer, and the month and year in which a row occurred, if that is known.
    """

    def __init__(self, stemmer: str) -> None:
        import numpy  # noqa: PLC0415 - loads when the first row comes

        self._stemmer = stemmer
        self._postings = Postings()
        self._sessions = Sessions()
        self._lengths: NDArray[uint16] = numpy.empty(0, dtype=numpy.uint16)
        self._length_sum = 0
        self._norms: NDArray[float32] | None = None

    def add(self, row: int, text: str, session: str | int | None, occurred_ns: int | None) -> None:
        """Add a row that is not here."""
        terms, length = terms_of(text, self._stemmer)
        if occurred_ns is not None:
            dated, dated_length = terms_of(month_of(occurred_ns), self._stemmer)
            terms, length = terms + dated, length + dated_length
        self.reach(row + 1)
        self._postings.add(row, terms)
        self._sessions.add(row, session)
        self._lengths[row] = min(length, _LENGTH_MAX)
        self._length_sum += int(self._lengths[row])
        self._norms = None

    def remove(self, row: int, session: str | int | None) -> None:
        """Take a row out."""
        self._postings.remove(row)
        self._sessions.remove(row, session)
        self._length_sum -= int(self._lengths[row])
        self._lengths[row] = 0
        self._norms = None

    def reach(self, size: int) -> None:
        """Make room for so many rows, though the last of them were removed before they came here."""
        self._lengths = grown(self._lengths, size, 0)
        self._sessions.reach(size)

    def lengths(self) -> "NDArray[uint16]":
        """Return how many words each row is long."""
        return self._lengths

    def bm25(self, ranking: Ranking, text: str, size: int) -> "NDArray[float32]":
        """Return Okapi BM25 of each row, as a part of the most that any row could have."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        found = numpy.zeros(size, dtype=numpy.float32)
        k1, b = ranking.bm25_saturation, ranking.bm25_length
        mean = self._length_sum / max(1, len(self._postings)) or 1.0
        most = 0.0
        for posting, idf in self._weighed(text):
            most += idf * (k1 + 1)
            if posting is not None:
                rows, repeats = posting.rows(), posting.repeats()
                spread = k1 * (1 - b + b * (self._lengths[rows] / mean))
                found[rows] += idf * repeats * (k1 + 1) / (repeats + spread)
        return _share(found, most)

    def idf_cosine(self, text: str, size: int) -> "NDArray[float32]":
        """Return the cosine of the sets of terms, each term weighed by its rarity."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        found = numpy.zeros(size, dtype=numpy.float32)
        squares = 0.0
        for posting, idf in self._weighed(text):
            squares += idf * idf
            if posting is not None:
                found[posting.rows()] += idf * idf
        norms = self._row_norms(size)
        found /= numpy.where(norms > 0, norms, 1)
        return _share(found, sqrt(squares))

    def coverage(self, ranking: Ranking, text: str, size: int) -> "NDArray[float32]":
        """Return how much of the query's rarity each row has, itself or through its neighbours."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        found = numpy.zeros(size, dtype=numpy.float32)
        spread = _Spread(ranking, self._lengths, self._sessions, size)
        most = 0.0
        for posting, idf in self._weighed(text):
            most += idf
            if posting is not None:
                spread.add(found, posting.rows(), idf)
        if ranking.damping:
            found *= _damping(ranking, int(self._lengths[:size].max(initial=0)))[self._lengths[:size]]
        return _share(found, most)

    def _weighed(self, text: str) -> "Iterator[tuple[Posting | None, float]]":
        """Yield each term of a query, once: its posting, if a row has it, and its rarity."""
        count = len(self._postings)
        for term in dict.fromkeys(terms_of(text, self._stemmer)[0]):
            posting = self._postings.get(term)
            yield posting, _rarity(count, 0 if posting is None else len(posting))

    def _row_norms(self, size: int) -> "NDArray[float32]":
        """Return the length of each row's terms as a vector of rarities; every write changes them all."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        if self._norms is None or len(self._norms) < size:
            squares = numpy.zeros(size)
            count = len(self._postings)
            for posting in self._postings.all():
                squares[posting.rows()] += _rarity(count, len(posting)) ** 2
            self._norms = numpy.sqrt(squares).astype(numpy.float32)
        return self._norms[:size]


class _Spread:
    """Adds what a term counts: 1 where it stands, and less for the neighbours of where it stands."""

    def __init__(self, ranking: Ranking, lengths: "NDArray[uint16]", sessions: Sessions, size: int) -> None:
        import numpy  # noqa: PLC0415 - loads when the first query comes

        self._shares = ranking.neighbours if len(sessions) else ()
        self._chains = sessions.chains()
        self._marks: NDArray[float32] = numpy.zeros(size, dtype=numpy.float32)
        self._gates = _gates(ranking, int(lengths[:size].max(initial=0)))[lengths[:size]]

    def add(self, found: "NDArray[float32]", rows: "NDArray[intp]", rarity: float) -> None:
        """Add one term to every row that has it, or whose neighbour has it; the highest mark counts, once."""
        marked = [rows, *self._mark_neighbours(rows)]
        self._marks[rows] = 1
        for places in marked:
            found[places] += rarity * self._marks[places]
            self._marks[places] = 0

    def _mark_neighbours(self, rows: "NDArray[intp]") -> "Iterator[NDArray[intp]]":
        import numpy  # noqa: PLC0415 - loads when the first query comes

        for chain in self._chains:
            places = rows
            gates = self._gates[rows]
            for share in self._shares:
                places = chain[places]
                is_there = places >= 0
                places, gates = places[is_there], gates[is_there]
                self._marks[places] = numpy.maximum(self._marks[places], share * gates * self._gates[places])
                yield places


def month_of(time_ns: int) -> str:
    """Return the month and year of a time, in UTC.

    >>> month_of(0)
    'January 1970'
    """
    # Days to a date by eras of 400 years, each of which begins with March, so that a leap day is the last of its year.
    days = time_ns // _DAY_NS + 719_468
    era, day = divmod(days, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    month = (5 * (day - (365 * year + year // 4 - year // 100)) + 2) // 153
    return f"{_MONTHS[(month + 2) % 12]} {year + era * 400 + (month >= 10)}"  # noqa: PLR2004 - January is the tenth


def _rarity(count: int, having: int) -> float:
    """Return the weight of a term that so many of all rows have (idf, never below 0)."""
    return log(1 + (count - having + 0.5) / (having + 0.5))


def _share(found: "NDArray[float32]", most: float) -> "NDArray[float32]":
    if most > 0:
        found /= most
    return found


def _gates(ranking: Ranking, length_max: int) -> "NDArray[float32]":
    """Return what passes between neighbours, by length."""
    import numpy  # noqa: PLC0415 - loads when the first query comes

    lengths = numpy.arange(length_max + 1)
    if not ranking.gate_terms:
        return numpy.ones(length_max + 1, dtype=numpy.float32)
    return (1 / (1 + (lengths / ranking.gate_terms) ** 2)).astype(numpy.float32)


def _damping(ranking: Ranking, length_max: int) -> "NDArray[float32]":
    """Return what is left of the coverage of a text, by its length."""
    import numpy  # noqa: PLC0415 - loads when the first query comes

    lengths = numpy.arange(length_max + 1)
    return (numpy.maximum(1, lengths / ranking.pivot_terms) ** -ranking.damping).astype(numpy.float32)
