"""Who stands before and after whom: the rows of each session as a chain."""

from bisect import bisect_left
from typing import TYPE_CHECKING

from refold.rank.growing import grown

if TYPE_CHECKING:
    from numpy import intp
    from numpy.typing import NDArray

_NONE = -1


class Sessions:
    """For each row, the rows before and after it in its session; -1 where there is none."""

    def __init__(self) -> None:
        import numpy  # noqa: PLC0415 - loads when the first row comes

        self._before: NDArray[intp] = numpy.empty(0, dtype=numpy.intp)
        self._after: NDArray[intp] = numpy.empty(0, dtype=numpy.intp)
        self._rows: dict[str | int, list[int]] = {}

    def __len__(self) -> int:
        """How many sessions there are."""
        return len(self._rows)

    def reach(self, size: int) -> None:
        """Make room for so many rows."""
        self._before = grown(self._before, size, _NONE)
        self._after = grown(self._after, size, _NONE)

    def add(self, row: int, session: str | int | None) -> None:
        """Place a row in its session, by its number."""
        self._before[row] = self._after[row] = _NONE
        if session is not None:
            rows = self._rows.setdefault(session, [])
            place = bisect_left(rows, row)
            rows.insert(place, row)
            self._link(*rows[max(0, place - 1) : place + 1])
            self._link(*rows[place : place + 2])

    def remove(self, row: int, session: str | int | None) -> None:
        """Take a row out; its neighbours become neighbours of each other."""
        if session is not None:
            rows = self._rows[session]
            del rows[bisect_left(rows, row)]
            if not rows:
                del self._rows[session]
            before, after = int(self._before[row]), int(self._after[row])
            if before != _NONE:
                self._after[before] = after
            if after != _NONE:
                self._before[after] = before
        self._before[row] = self._after[row] = _NONE

    def chains(self) -> "tuple[NDArray[intp], NDArray[intp]]":
        """Return, for each row, the row before it and the row after it."""
        return self._before, self._after

    def _link(self, left: int, right: int | None = None) -> None:
        if right is not None:
            self._after[left] = right
            self._before[right] = left
