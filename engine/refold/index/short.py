"""Short rows: a vector's components along the few directions in which most vectors differ, and the length of the rest.

The product of two short rows is at least the product of the full rows, because the rests are at most parallel. This
bound holds for any vectors, and takes a sixth of the numbers of a text embedding. How tight it is depends on the
vectors.
"""

import threading
from typing import Any, Final

import numpy as np

from refold.index.columns import Array, Column, product

NARROW_DIMENSIONS: Final = 64  # The number of directions; a short row has one number more.
SAMPLED_ROWS: Final = 1_024  # Rows that are sampled to choose the directions; fewer rows than this are not shortened.
SHORT_ROWS_MIN: Final = 16_384  # With fewer rows a pass over all of them is as fast.
_NARROW_SHARE: Final = 4  # Rows must have at least this many times `NARROW_DIMENSIONS` numbers to be worth shortening.
_SLICE_ROWS: Final = 4_096  # Rows that one search shortens, in about the time of a pass over 50,000 rows.
_TURNED_RATIO: Final = 4  # At this many times the rows that the directions were chosen for, new directions are chosen.
_SKIPPED_MAX: Final = 256  # Maximum searches that pass over all rows before short rows are tried again.
_ROUNDED: Final = 1e-12  # More than the error of a squared length in double precision.
_SPARE: Final = 2e-6  # More than the single-precision error of a product of two short rows, relative to their lengths.


def should_shorten(count: int, dimensions: int) -> bool:
    """Decide whether rows are worth shortening for searches."""
    return count >= max(SHORT_ROWS_MIN, SAMPLED_ROWS) and dimensions >= _NARROW_SHARE * NARROW_DIMENSIONS


class ShortRows:
    """The short rows of a table's first rows; each search adds a few more, until all rows are shortened.

    Any number of threads can use them. Short rows that exist never change.
    """

    def __init__(self, matrix: Array) -> None:
        self._basis = _directions(matrix)
        self._chosen_for = len(matrix)
        self._column = Column(np.float32, self._basis.shape[1] + 1)
        self._rows = self._column.view()
        self._lock = threading.Lock()
        self._skipped = self._left = 0
        """How many searches skip the short rows since these last failed, and how many of those searches are left."""

    @property
    def count(self) -> int:
        """The number of short rows."""
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        """The bytes in RAM once all rows that there were at first are shortened."""
        return 4 * (NARROW_DIMENSIONS + 1) * max(self._column.count, self._chosen_for)

    def is_old(self, count: int) -> bool:
        """Return whether the table has grown so much that other directions might fit it better."""
        return count >= _TURNED_RATIO * self._chosen_for

    def extend(self, matrix: Array) -> None:
        """Shorten some more rows of a table; do nothing if another thread is doing so."""
        if len(self._rows) >= len(matrix) or not self._lock.acquire(blocking=False):
            return
        try:
            begin = self._column.count
            part = matrix[begin : begin + _SLICE_ROWS]
            if len(part):
                self._column.extend(_shorten(part, self._basis), len(part))
                self._rows = self._column.view()
        finally:
            self._lock.release()

    def bounds(self, query: Array, out: Array) -> None:
        """Compute an upper bound of the product of a query with each of the first rows, into `out`."""
        short = _shorten(query[None, :], self._basis)[0]
        length = float(np.sqrt(np.add.reduce(query.astype(np.float64) ** 2)))
        product(self._rows[: len(out)], short, out)
        np.add(out, np.float32(_SPARE * length), out=out)

    def should_try(self) -> bool:
        """Return whether the next search tries the short rows; after repeated failures, more searches skip them."""
        self._left -= 1
        return self._left < 0

    def note(self, *, is_of_use: bool) -> None:
        """Record whether the short rows answered a search."""
        self._skipped = 0 if is_of_use else min(2 * self._skipped + 1, _SKIPPED_MAX)
        self._left = self._skipped


def narrow(matrix: Array) -> Array:
    """Shorten rows, or return them unchanged if that is not worth it; products of short rows are never smaller."""
    if matrix.shape[1] < _NARROW_SHARE * NARROW_DIMENSIONS or len(matrix) < SAMPLED_ROWS:
        return matrix
    basis = _directions(matrix)
    short: Array = np.empty((len(matrix), basis.shape[1] + 1), np.float32)
    for begin in range(0, len(matrix), _SLICE_ROWS):
        short[begin : begin + _SLICE_ROWS] = _shorten(matrix[begin : begin + _SLICE_ROWS], basis)
    return short


def _shorten(rows: Array, basis: Array) -> Array:
    """Shorten rows in double precision, with the length of the rest rounded up."""
    wide = rows.astype(np.float64)
    along = product(wide, basis)
    squares: Any = np.einsum("ij,ij->i", wide, wide) - np.einsum("ij,ij->i", along, along)
    rest = np.sqrt(np.maximum(squares, 0.0) + _ROUNDED).astype(np.float32)
    short: Array = np.concatenate([along.astype(np.float32), np.nextafter(rest, np.float32(2.0))[:, None]], axis=1)
    return short


def _directions(matrix: Array) -> Array:
    """Find orthonormal directions that capture nearly as much of a sample of rows as this many directions can.

    Starts from rows of the sample, and turns them towards its main directions in two iterations. Exact directions cost
    much more, and worse directions only leave more rows to examine.
    """
    sample = matrix[:: max(1, len(matrix) // SAMPLED_ROWS)].astype(np.float64)
    basis: Array = sample[:NARROW_DIMENSIONS].T
    for _ in range(2):
        basis, _ = np.linalg.qr(product(sample.T, product(sample, basis)))
    return basis
