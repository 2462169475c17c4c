"""What a score is made of: four signals, their weights, and how recency fades. Numbers in, numbers out."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

import msgspec
import numpy as np

from refold.errors import InvalidInput
from refold.store.columns import Array

DAY_NS: Final = 86_400_000_000_000

_RATE_MIN: Final = 1e-3
"""Below that, one over the rate is so many days that a single would lose too much of the others."""

SCORE_DECIMALS: Final = 9
"""Scores are rounded to so many digits, so that equal ones are equal however they were summed up."""


class Scoring(msgspec.Struct, frozen=True, kw_only=True):
    """The weights of a score that is linear in its signals. A weight of 0 leaves its signal out."""

    cosine: float = 0.40
    keywords: float = 0.25
    importance: float = 0.20
    recency: float = 0.15
    fading: Literal["hyperbolic", "exponential"] = "hyperbolic"
    """``1 / (1 + rate * days)``, or ``exp(-rate * days)``."""
    rate: float = 0.1
    """How fast recency fades, per day."""

    def check(self) -> None:
        """Raise ``InvalidInput`` for weights that are not finite and for a rate below 0."""
        for name in ("cosine", "keywords", "importance", "recency", "rate"):
            value = getattr(self, name)
            if not math.isfinite(value):
                message = f"the weight {name} of a score is {value}; give a finite number"
                raise InvalidInput(message)
        if self.rate < 0:
            message = f"the rate of a score's recency is {self.rate} per day; give 0 or more"
            raise InvalidInput(message)


SEED: Final = Scoring()

NEAREST: Final = Scoring(cosine=1.0, keywords=0.0, importance=0.0, recency=0.0)
"""The cosine alone."""


def faded(scoring: Scoring, now_ns: int, accessed_ns: Sequence[int]) -> list[float]:
    """Return the recency of what was accessed at some times; what lies in the future counts as now."""
    days = [max(now_ns - time_ns, 0) / DAY_NS for time_ns in accessed_ns]
    if scoring.fading == "hyperbolic":
        return [1.0 / (1.0 + scoring.rate * day) for day in days]
    return [math.exp(-scoring.rate * day) for day in days]


def add_recency(
    totals: Array,
    scoring: Scoring,
    now_days: float,
    days: Array,
    scratch: Array,
    *,
    has_future: bool,
) -> None:
    """Add the weighted recency of rows to their totals, in single precision: as few passes as there can be."""
    if not has_future and scoring.fading == "hyperbolic" and scoring.rate >= _RATE_MIN:
        # weight / (1 + rate * (now - days)), with two passes less.
        np.subtract(np.float32(now_days + 1.0 / scoring.rate), days, out=scratch)
        np.divide(np.float32(scoring.recency / scoring.rate), scratch, out=scratch)
        np.add(totals, scratch, out=totals)
        return
    np.subtract(np.float32(now_days), days, out=scratch)
    if has_future:
        np.maximum(scratch, np.float32(0.0), out=scratch)
    if scoring.fading == "exponential":
        np.multiply(scratch, np.float32(-scoring.rate), out=scratch)
        np.exp(scratch, out=scratch)
        np.multiply(scratch, np.float32(scoring.recency), out=scratch)
    else:
        np.multiply(scratch, np.float32(scoring.rate), out=scratch)
        np.add(scratch, np.float32(1.0), out=scratch)
        np.divide(np.float32(scoring.recency), scratch, out=scratch)
    np.add(totals, scratch, out=totals)


@lru_cache(maxsize=64)
def _errors(scoring: Scoring, dimensions: int) -> tuple[float, float]:
    epsilon = float(np.finfo(np.float32).eps)
    product = abs(scoring.cosine) * (16 + dimensions / 16)
    others = 8 * (abs(scoring.keywords) + abs(scoring.importance) + abs(scoring.recency))
    fixed = epsilon * (product + others) + 10.0**-SCORE_DECIMALS
    return fixed, epsilon * abs(scoring.recency) * (2 * scoring.rate + 2 * _RATE_MIN)


def margin(scoring: Scoring, dimensions: int, span_days: float, extra: float) -> float:
    """Return by how much a total in single precision may differ from the score, at most.

    A product of unit vectors is off by what its partial sums lose; a day by what a single holds of the largest one.
    """
    fixed, daily = _errors(scoring, dimensions)
    return fixed + daily * span_days + 1e-6 * extra
