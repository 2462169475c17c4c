"""Growing columns of numbers that readers may hold while they are written.

Who asks for a view gets the values as they are at that moment, for good: what is appended later lies behind the view,
and a change of a value that somebody may hold is made in a copy.
"""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from refold.limits import LARGE_COLUMN_BYTES

Array: TypeAlias = NDArray[Any]
"""Numbers of some kind; the column they are of says which."""

Rows: TypeAlias = NDArray[np.intp]
"""Places of rows. numpy takes this kind of integer without a copy."""

_CAPACITY_MIN: Final = 64


class Column:
    """One value for each row, or one line of values, with room for more."""

    __slots__ = ("_is_lent", "_values", "count")

    def __init__(self, kind: DTypeLike, width: int | None = None) -> None:
        shape = (_CAPACITY_MIN,) if width is None else (_CAPACITY_MIN, width)
        self._values: Array = np.empty(shape, kind)
        self._is_lent = False
        self.count = 0

    @property
    def nbytes(self) -> int:
        """Return what the rows take in RAM; the room behind them is not touched and takes none."""
        return self.count * self._values[:1].nbytes

    def view(self) -> Array:
        """Return the values as they are now and stay in this view."""
        self._is_lent = True
        return self._values[: self.count]

    def append(self, value: Any) -> None:
        """Add one row."""
        if self.count == len(self._values):
            self._grow(self.count + 1)
        self._values[self.count] = value
        self.count += 1

    def extend(self, values: Any, count: int) -> None:
        """Add several rows: one value for all of them, or one for each."""
        if self.count + count > len(self._values):
            self._grow(self.count + count)
        self._values[self.count : self.count + count] = values
        self.count += count

    def change(self, rows: Any, values: Any) -> None:
        """Give rows other values; views that were handed out keep theirs."""
        if self._is_lent:
            self._move(len(self._values))
        self._values[rows] = values

    def at(self, row: int) -> Any:
        """Return the value of one row."""
        return self._values[row]

    def _grow(self, count: int) -> None:
        """Move to twice the room, so that a row is copied once on average however many come.

        Where many came at once as well: the next one would have to wait until all are copied. The system gives so much
        room without RAM until it is touched.
        """
        is_large = count * self._values[:1].nbytes >= LARGE_COLUMN_BYTES
        self._move(2 * count if is_large else max(count, 2 * len(self._values)))

    def _move(self, room: int) -> None:
        """Go on in other memory; the room behind the rows stays untouched."""
        values: Array = np.empty((room, *self._values.shape[1:]), self._values.dtype)
        values[: self.count] = self._values[: self.count]
        self._values = values
        self._is_lent = False
