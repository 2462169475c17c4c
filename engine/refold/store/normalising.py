"""Vectors at the door: refused if no cosine can be computed with them, else made of length 1."""

import math
from typing import Any

import numpy as np

from refold.errors import EmbeddingMismatch, InvalidInput
from refold.store.columns import Array


def normalised(vectors: Any, dimensions: int, *, count: int | None = None) -> Array:
    """Return vectors of length 1, one in each line; each the same whatever vectors are beside it.

    ``vectors`` are raw float32 bytes, an array, or sequences of numbers. Raises ``InvalidInput`` for what is no vector,
    not finite or zero, and for another ``count`` of them; ``EmbeddingMismatch`` for another dimension.
    """
    lines = _lines(vectors, dimensions)
    if len(lines) == 1:
        return _one(lines)
    if count is not None and len(lines) != count:
        message = f"{len(lines)} vectors where {count} is asked for; give {count} of {dimensions} numbers"
        raise InvalidInput(message)
    lengths = np.sqrt(np.sum(lines * lines, axis=1))
    # In double precision no square of a single overflows, so only what is not finite itself gives such a length.
    if not (lengths.min(initial=1.0) > 0.0 and lengths.max(initial=1.0) < np.inf):
        wrong = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0.0)))
        length = lengths[wrong[0]]
        what = "is zero" if length == 0.0 else "holds a number that is not finite"
        message = f"vector {wrong[0]} {what}; every vector needs a direction"
        raise InvalidInput(message)
    units: Array = (lines / lengths[:, None]).astype(np.float32)
    return units


def _one(line: Array) -> Array:
    """Return one vector of length 1: as below, in fewer calls, because every search begins with it."""
    length = math.sqrt(np.add.reduce(line[0] * line[0]))
    if not 0.0 < length < math.inf:
        what = "is zero" if length == 0.0 else "holds a number that is not finite"
        message = f"vector 0 {what}; every vector needs a direction"
        raise InvalidInput(message)
    unit: Array = (line / length).astype(np.float32)
    return unit


def _lines(vectors: Any, dimensions: int) -> Array:
    """Return the vectors as lines of doubles."""
    if isinstance(vectors, bytes):
        if len(vectors) % (4 * dimensions) or not vectors:
            message = (
                f"{len(vectors)} bytes are no vectors of {dimensions} numbers ({4 * dimensions} bytes each); "
                f"use the embedder that this project was written with"
            )
            raise EmbeddingMismatch(message)
        return np.frombuffer(vectors, "<f4").reshape(-1, dimensions).astype(np.float64)
    try:
        lines = np.asarray(vectors, np.float32).astype(np.float64)
    except (TypeError, ValueError) as error:
        message = f"a vector cannot be read ({error}); give {dimensions} numbers"
        raise InvalidInput(message) from error
    if lines.ndim == 1:
        lines = lines[None, :]
    if lines.ndim != 2 or lines.shape[1] != dimensions:  # noqa: PLR2004 - lines of numbers
        message = (
            f"a vector of {lines.shape[-1] if lines.ndim else 1} numbers where rows have {dimensions}; "
            f"use the embedder that this project was written with"
        )
        raise EmbeddingMismatch(message)
    return lines
