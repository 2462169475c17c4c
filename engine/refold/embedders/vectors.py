"""Checks of vectors at the door: what comes in is refused, or becomes rows of float32."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from refold.errors import EmbeddingMismatch, InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from refold.embedders.protocol import Vectors


def check_vectors(
    vectors: "Sequence[Sequence[float]] | NDArray[Any]", *, dim: int, count: int, what: str = "vectors"
) -> "Vectors":
    """Return vectors as an array of ``count`` rows of ``dim`` numbers in float32, in C order.

    The lengths stay as they are. ``what`` names the vectors in a message. Raises
    ``EmbeddingMismatch`` for another dimension, and ``InvalidInput`` for another count, for what is no table of
    numbers, and for a vector that is zero or holds a number that is infinite or not a number, in float32 too.

    >>> check_vectors([[3, 4]], dim=2, count=1)
    array([[3., 4.]], dtype=float32)
    """
    rows = _table(vectors, what)
    if len(rows) != count:
        message = f"{what}: {len(rows)} came for {count} texts; an embedder returns one vector for each text, in order"
        raise InvalidInput(message)
    if count and rows.shape[1] != dim:
        message = (
            f"{what}: a vector has {rows.shape[1]} numbers where {dim} are expected; use the embedder whose vectors "
            "this store holds"
        )
        raise EmbeddingMismatch(message)
    return _finite(rows.reshape(count, dim), what)


def _table(vectors: object, what: str) -> "NDArray[Any]":
    """Return what came as a table of numbers; a list of nothing is a table without rows."""
    import numpy  # noqa: PLC0415 - loads when the first vector comes

    try:
        rows = numpy.asarray(vectors)
    except (TypeError, ValueError) as error:
        message = f"{what}: vectors must be lists of equally many numbers, or the rows of an array: {error}"
        raise InvalidInput(message) from error
    if rows.size == 0 and rows.ndim == 1:
        return rows.reshape(0, 0)
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":  # noqa: PLR2004 - rows and columns
        message = (
            f"{what}: vectors must be lists of numbers or the rows of an array, not {rows.ndim} dimensions of "
            f"{rows.dtype}; give one list of floats for each text"
        )
        raise InvalidInput(message)
    return rows


def _finite(rows: "NDArray[Any]", what: str) -> "Vectors":
    import numpy  # noqa: PLC0415 - loads when the first vector comes

    with numpy.errstate(over="ignore", under="ignore"):
        narrow = numpy.ascontiguousarray(rows, dtype=numpy.float32)
    for wrong, reason in (
        (~numpy.isfinite(narrow).all(axis=1), "a number that is infinite or NaN"),
        (~narrow.any(axis=1), "nothing but zeros, so it has no direction"),
    ):
        if wrong.any():
            message = (
                f"{what}: vector {int(wrong.argmax())} holds {reason}; check what the embedder returns for its text"
            )
            raise InvalidInput(message)
    return narrow
