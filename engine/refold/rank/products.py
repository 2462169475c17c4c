"""Products of vectors, without warnings about numbers that are not among them. Pure."""

from typing import Any

import numpy
from numpy.typing import NDArray


def product(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the matrix product of finite numbers, in ``out`` where that is given.

    The kernels of a BLAS work on whole blocks, and what lies in their scratch memory beyond the numbers may raise the
    processor's flag for invalid operations, which numpy tells as a warning, seldom and not in the same place again.
    Vectors are checked to be finite where they come in; a warning here says nothing of them.

    >>> product(numpy.eye(2), numpy.array([3.0, 4.0])).tolist()
    [3.0, 4.0]
    """
    with numpy.errstate(invalid="ignore"):
        found: NDArray[Any] = numpy.dot(left, right, out=out)
        return found
