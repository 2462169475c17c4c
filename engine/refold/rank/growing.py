"""Columns that grow by doubling."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


def grown(column: "NDArray[Any]", size: int, filler: float) -> "NDArray[Any]":
    """Return a column of at least ``size`` places with what it held; new places hold the filler."""
    if size <= len(column):
        return column
    import numpy  # noqa: PLC0415 - loads when the first row comes

    wider = numpy.full(max(size, 2 * len(column), 16), filler, dtype=column.dtype)
    wider[: len(column)] = column
    return wider
