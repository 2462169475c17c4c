"""How far a mean is to be trusted: the bootstrap, with a seed that is fixed."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

SEED: Final = 20_240_501
RESAMPLES: Final = 2_000


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
    drawn = numpy.random.default_rng(seed).integers(0, len(given), (RESAMPLES, len(given)))
    low, high = numpy.percentile(given[drawn].mean(axis=1), [2.5, 97.5])
    return Interval(float(low), float(high))
