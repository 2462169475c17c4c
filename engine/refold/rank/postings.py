"""Which rows have which term: lists that grow and shrink row by row, and equal those built anew."""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from numpy import intp, uint16
    from numpy.typing import NDArray

_REPEATS_MAX: Final = 2**16 - 1


class Posting:
    """The rows that have one term, in order, and how often each of them has it."""

    __slots__ = ("_repeats", "_rows", "term")

    def __init__(self, term: str) -> None:
        self.term = term
        self._rows = array("q")
        self._repeats = array("H")

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> "NDArray[intp]":
        """Return the rows, as a copy."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        return numpy.array(self._rows, dtype=numpy.intp)

    def repeats(self) -> "NDArray[uint16]":
        """Return how often each row has the term, as a copy."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        return numpy.array(self._repeats, dtype=numpy.uint16)

    def add(self, row: int, repeats: int) -> None:
        """Note that a row has the term; rows come in order, as a rule."""
        repeats = min(repeats, _REPEATS_MAX)
        if not self._rows or self._rows[-1] < row:
            self._rows.append(row)
            self._repeats.append(repeats)
        else:
            place = bisect_left(self._rows, row)
            self._rows.insert(place, row)
            self._repeats.insert(place, repeats)

    def remove(self, row: int) -> None:
        """Forget a row that has the term."""
        place = bisect_left(self._rows, row)
        del self._rows[place]
        del self._repeats[place]


class Postings:
    """The postings of every term, and the terms of every row."""

    def __init__(self) -> None:
        self._postings: dict[str, Posting] = {}
        self._of_row: dict[int, tuple[Posting, ...]] = {}

    def __len__(self) -> int:
        """How many rows have terms here, or were added without any."""
        return len(self._of_row)

    def add(self, row: int, terms: Iterable[str]) -> None:
        """Add a row that is not here, with its terms and their repetitions."""
        assert row not in self._of_row, "a row is removed before it is added again"
        held: list[Posting] = []
        for term, repeats in Counter(terms).items():
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = Posting(term)
            posting.add(row, repeats)
            held.append(posting)
        self._of_row[row] = tuple(held)

    def remove(self, row: int) -> None:
        """Take a row out, and every term that no other row has."""
        for posting in self._of_row.pop(row):
            posting.remove(row)
            if not len(posting):
                del self._postings[posting.term]

    def get(self, term: str) -> Posting | None:
        """Return the posting of a term, or None if no row has it."""
        return self._postings.get(term)

    def all(self) -> Iterable[Posting]:
        """Return every posting, in the order in which their terms came."""
        return self._postings.values()
