"""Products of vectors, without warnings about numbers that are not among them. Pure."""

from typing import Any

import numpy
from numpy.typing import NDArray


def product(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the matrix product of finite numbers, in ``out`` where that is given.

    OpenBLAS has kernels that compute with what lies on their stack beyond the numbers, and throw that away: with rows
    of five numbers, signalling NaNs there raise the flag for invalid operations, and numpy warns of a right result.
    For vectors that were checked to be finite where they came in: a warning says nothing of them.

    >>> product(numpy.eye(2), numpy.array([3.0, 4.0])).tolist()
    [3.0, 4.0]
    """
    with numpy.errstate(invalid="ignore"):
        found: NDArray[Any] = numpy.dot(left, right, out=out)
        return found
