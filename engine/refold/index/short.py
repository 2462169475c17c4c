"""Short rows: what a vector is along the few directions in which most vectors differ, and the length of the rest.

The product of two short rows is at least that of the rows themselves, because the rests are at most parallel: a bound
that holds for any vectors, for a sixth of the numbers of a text's embedding. How tight it is depends on the vectors.
"""

import threading
from typing import Any, Final

import numpy as np

from refold.index.columns import Array, Column, product

NARROW_DIMENSIONS: Final = 64  # Directions; a short row has one number more.
SAMPLED_ROWS: Final = 1_024  # Rows that tell in which directions most of the others differ; fewer are not shortened.
SHORT_ROWS_MIN: Final = 16_384  # With fewer rows a pass over all of them is as fast.
_NARROW_SHARE: Final = 4  # Rows of fewer numbers than so many times those of a short row are not worth shortening.
_SLICE_ROWS: Final = 4_096  # Rows that one search shortens: about the time of a pass over 50,000.
_TURNED_RATIO: Final = 4  # At so many times the rows that the directions were chosen for, others are chosen.
_SKIPPED_MAX: Final = 256  # Searches that pass over all rows before short ones are tried again.
_ROUNDED: Final = 1e-12  # More than double precision loses of a squared length.
_SPARE: Final = 2e-6  # More than single precision loses of a product of two short rows, as a share of their lengths.


def pays(count: int, dimensions: int) -> bool:
    """Decide whether rows are worth being shortened for searches."""
    return count >= max(SHORT_ROWS_MIN, SAMPLED_ROWS) and dimensions >= _NARROW_SHARE * NARROW_DIMENSIONS


class ShortRows:
    """The short rows of a table, the first so many; a few more are made with each search, until there are all.

    Any number of threads use them. Rows that are there never change.
    """

    def __init__(self, matrix: Array) -> None:
        self._basis = _directions(matrix)
        self._chosen_for = len(matrix)
        self._column = Column(np.float32, self._basis.shape[1] + 1)
        self._rows = self._column.view()
        self._lock = threading.Lock()
        self._skipped = self._left = 0
        """How many searches are to pass short rows by since they were last of no use, and how many of them are left."""

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        """The bytes in RAM, once all rows are here that there were at first."""
        return 4 * (NARROW_DIMENSIONS + 1) * max(self._column.count, self._chosen_for)

    def is_old(self, count: int) -> bool:
        """Whether there are so many more rows now that others may tell better in which directions they differ."""
        return count >= _TURNED_RATIO * self._chosen_for

    def reach(self, matrix: Array) -> None:
        """Shorten some more rows of a table; a thread that finds another at it does nothing."""
        if len(self._rows) >= len(matrix) or not self._lock.acquire(blocking=False):
            return
        try:
            begin = self._column.count
            part = matrix[begin : begin + _SLICE_ROWS]
            if len(part):
                self._column.extend(_shortened(part, self._basis), len(part))
                self._rows = self._column.view()
        finally:
            self._lock.release()

    def bounds(self, query: Array, out: Array) -> None:
        """Compute, for each of the first rows, a bound that its product with a query does not exceed."""
        short = _shortened(query[None, :], self._basis)[0]
        length = float(np.sqrt(np.add.reduce(query.astype(np.float64) ** 2)))
        product(self._rows[: len(out)], short, out)
        np.add(out, np.float32(_SPARE * length), out=out)

    def is_tried(self) -> bool:
        """Whether the next search tries them: the less often, the more often they were of no use."""
        self._left -= 1
        return self._left < 0

    def note(self, *, is_of_use: bool) -> None:
        """Take note whether a search was answered by them."""
        self._skipped = 0 if is_of_use else min(2 * self._skipped + 1, _SKIPPED_MAX)
        self._left = self._skipped


def narrowed(matrix: Array) -> Array:
    """Shorten rows, or return them as they are where that is not worth it; products of short ones are no smaller."""
    if matrix.shape[1] < _NARROW_SHARE * NARROW_DIMENSIONS or len(matrix) < SAMPLED_ROWS:
        return matrix
    basis = _directions(matrix)
    short: Array = np.empty((len(matrix), basis.shape[1] + 1), np.float32)
    for begin in range(0, len(matrix), _SLICE_ROWS):
        short[begin : begin + _SLICE_ROWS] = _shortened(matrix[begin : begin + _SLICE_ROWS], basis)
    return short


def _shortened(rows: Array, basis: Array) -> Array:
    """Shorten rows in double precision, the length of the rest rounded up."""
    wide = rows.astype(np.float64)
    along = product(wide, basis)
    squares: Any = np.einsum("ij,ij->i", wide, wide) - np.einsum("ij,ij->i", along, along)
    rest = np.sqrt(np.maximum(squares, 0.0) + _ROUNDED).astype(np.float32)
    short: Array = np.concatenate([along.astype(np.float32), np.nextafter(rest, np.float32(2.0))[:, None]], axis=1)
    return short


def _directions(matrix: Array) -> Array:
    """Find orthonormal directions that hold nearly as much of a sample of rows as so many can.

    Begun with rows of the sample, and turned towards where most of it lies: exact directions cost much more, and worse
    ones only leave more rows to look at.
    """
    sample = matrix[:: max(1, len(matrix) // SAMPLED_ROWS)].astype(np.float64)
    basis: Array = sample[:NARROW_DIMENSIONS].T
    for _ in range(2):
        basis, _ = np.linalg.qr(product(sample.T, product(sample, basis)))
    return basis
