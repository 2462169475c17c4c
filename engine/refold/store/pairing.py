"""Rows that are more alike than a threshold, pair by pair: all of them, which no graph promises.

The products of all pairs are most of the work, so they are computed of shorter rows: what a row is along a few
directions in which the rows differ most, and the length of the rest. The product of two of those is at least that of
the rows themselves, because the rests are at most parallel. Whatever that leaves is looked at whole.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from refold.limits import NARROW_DIMENSIONS, PAIRS_BYTES_MAX, SAMPLED_ROWS
from refold.rank.products import product
from refold.store.columns import Array, Rows

_NEAR: Final = 1e-4
"""Products of single precision are nearer than this to what they are without rounding."""

_NARROW_SHARE: Final = 4
"""Rows of fewer numbers than so many times those of a short row are not worth shortening."""


def pairs(matrix: Array, threshold: float, is_gone: Array, is_changed: Array) -> Iterator[tuple[int, Rows]]:
    """Yield rows of length 1, in order, each with the later rows whose product with it may be over a threshold.

    Pairs of which neither ``is_changed`` are left out, and rows that are ``is_gone`` by then: the caller may let some
    go between two steps.
    """
    short = narrowed(matrix)
    everything = np.arange(len(matrix))
    changed = np.flatnonzero(is_changed)
    height = max(1, PAIRS_BYTES_MAX // (4 * max(len(matrix), 1)))
    for begin in range(0, len(matrix), height):
        block = everything[begin : begin + height]
        block = block[~is_gone[block]]
        found = _near(short, block[is_changed[block]], everything[begin:], threshold)
        found |= _near(short, block[~is_changed[block]], changed[changed > begin], threshold)
        for row in sorted(found):
            if is_gone[row]:
                continue
            later = found[row]
            later = later[(later > row) & ~is_gone[later]]
            later = later[product(matrix[later], matrix[row]) > threshold - _NEAR]
            if len(later):
                yield row, later


def _near(short: Array, rows: Rows, columns: Rows, threshold: float) -> dict[int, Rows]:
    """Return the rows that may be alike enough to some of the columns, with those columns."""
    if not len(rows) or not len(columns):
        return {}
    near = product(short[rows], short[columns].T) > threshold - _NEAR
    return {int(rows[place]): columns[near[place]] for place in np.flatnonzero(near.any(axis=1))}


def narrowed(matrix: Array) -> Array:
    """Return shorter rows, whose products are at least those of the rows, but for rounding."""
    if matrix.shape[1] < _NARROW_SHARE * NARROW_DIMENSIONS or len(matrix) < SAMPLED_ROWS:
        return matrix
    basis = _directions(matrix[:: len(matrix) // SAMPLED_ROWS].astype(np.float64)).astype(np.float32)
    along = product(matrix, basis)
    rest = np.sqrt(np.maximum(1.0 - np.einsum("ij,ij->i", along, along), 0.0))
    return np.concatenate([along, rest[:, None]], axis=1)


def _directions(sample: Array) -> Array:
    """Return directions, orthogonal and of length 1, that hold nearly as much of a sample as so many can.

    Begun with rows of the sample, and turned towards where most of it lies: exact directions cost much more, and any
    will do, only that worse ones leave more pairs to look at.
    """
    found: Array = sample[:NARROW_DIMENSIONS].T
    for _ in range(2):
        found, _ = np.linalg.qr(sample.T @ (sample @ found))
    return found
