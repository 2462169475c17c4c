"""How far a mean is to be trusted: the bootstrap, with a seed that is fixed."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

SEED: Final = 20_240_501
RESAMPLES: Final = 2_000


_DRAWN_AT_ONCE: Final = 2_000_000
"""So many values are drawn at once, so that a long list takes no more room than a short one."""


class Interval(Struct, frozen=True):
    """The bounds between which 95 of 100 means lie."""

    low: float
    high: float


def interval(values: Sequence[float], seed: int = SEED) -> Interval:
    """Return the middle 95 % of the means of values drawn with repetition; of no value, the whole range.

    The same values and seed give the same interval.

    >>> interval([1.0, 1.0, 1.0])
    Interval(low=1.0, high=1.0)
    """
    import numpy  # noqa: PLC0415 - loads when first asked for

    if not values:
        return Interval(0.0, 1.0)
    given = numpy.asarray(values, dtype=numpy.float64)
    random = numpy.random.default_rng(seed)
    drawn = (random.integers(0, len(given), (rows, len(given))) for rows in _parts(len(given)))
    means = numpy.concatenate([given[part].mean(axis=1) for part in drawn])
    low, high = numpy.percentile(means, [2.5, 97.5])
    return Interval(float(low), float(high))


def _parts(count: int) -> Iterator[int]:
    """Yield how many resamples of so many values are drawn at once, until all are."""
    step = max(1, _DRAWN_AT_ONCE // count)
    for begin in range(0, RESAMPLES, step):
        yield min(step, RESAMPLES - begin)
