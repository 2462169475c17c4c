"""The exact pass: the totals of all rows in single precision, then the scores of the few that may be the best ones.

Scores are computed from the stored vectors, in double precision and row by row, so that a row has one score whichever
way it was found. The totals only say which rows are worth it.
"""

import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from refold.limits import SCORED_ROWS
from refold.rank.products import product
from refold.store.columns import Array, Rows
from refold.store.moments import Moment, Selection
from refold.store.postings import Codes
from refold.store.scoring import SCORE_DECIMALS, Scoring, add_recency, faded, margin

GATHERED_SHARE: Final = 8
"""Where at most one of so many rows is selected, their vectors are gathered instead of all being multiplied."""


class Match(msgspec.Struct, frozen=True, gc=False):
    """A row that was found: its place, the seq of the event with its vector, its score, and the raw signals."""

    row: int
    seq: int
    score: float
    cosine: float
    keywords: float
    importance: float
    recency: float
    extra: float


class Matches(msgspec.Struct, frozen=True):
    """The best rows, best first; ``exact`` if they are certainly the best ones."""

    hits: tuple[Match, ...]
    exact: bool
    scanned: bool
    """Whether all rows were passed over, and no graph was asked."""


class Ask(NamedTuple):
    """A query, ready to be compared with the rows of a moment."""

    scoring: Scoring
    top_k: int
    now_ns: int
    vector: Array | None
    """Of length 1."""
    codes: Codes | None
    extra: Array | None
    margin: float
    """By how much a total may differ from its score."""


_thread = threading.local()


def scratch(name: str, count: int) -> Array:
    """Return room for so many numbers that this thread has until it asks again: fresh memory would cost page faults."""
    kept: Array | None = getattr(_thread, name, None)
    if kept is None or len(kept) < count or len(kept) > 4 * count + SCORED_ROWS:
        kept = np.empty(count, np.float32)
        setattr(_thread, name, kept)
    return kept[:count]


def asked(
    moment: Moment,
    vector: Array | None,
    keywords: Sequence[str],
    *,
    scoring: Scoring,
    top_k: int,
    now_ns: int,
    extra: Array | None,
) -> Ask:
    """Return the query as the passes take it."""
    codes = moment.codes(keywords) if keywords and scoring.keywords else None
    span_days = max(moment.span_days, abs(moment.days(now_ns))) if scoring.recency else 0.0
    extra_size = 0.0 if extra is None else float(np.abs(extra).max(initial=0.0))
    off = margin(scoring, moment.frame.matrix.shape[1], span_days, extra_size)
    return Ask(scoring, top_k, now_ns, vector if scoring.cosine else None, codes, extra, off)


def scan(moment: Moment, ask: Ask, selection: Selection, products: Array | None = None) -> list[Match]:
    """Return the best rows of a selection, by one pass over all of them; ``products`` may be given, and are used up."""
    totals = products if products is not None else multiplied(moment, ask, selection)
    add_rest(totals, moment, ask, selection)
    places = reachable(totals, ask.top_k, ask.margin)
    return ranked(moment, ask, places if selection.rows is None else selection.rows[places])


def multiplied(moment: Moment, ask: Ask, selection: Selection) -> Array:
    """Return the weighted products of the selected rows with the query."""
    rows = selection.rows
    totals = scratch("totals", moment.count if rows is None else len(rows))
    if ask.vector is None:
        totals[:] = 0.0
        return totals
    # The query is weighted, not the rows.
    query = ask.vector * np.float32(ask.scoring.cosine)
    if rows is None:
        return product(moment.frame.matrix, query, totals)
    if len(rows) * GATHERED_SHARE <= moment.count:
        return product(moment.frame.matrix[rows], query, totals)
    products = product(moment.frame.matrix, query, scratch("products", moment.count))
    return np.take(products, rows, out=totals, mode="clip")


def add_rest(totals: Array, moment: Moment, ask: Ask, selection: Selection) -> None:
    """Add everything but the cosine to the totals of the selected rows."""
    scoring, rows = ask.scoring, selection.rows
    np.add(totals, selection.importance, out=totals)
    spare = scratch("spare", len(totals))
    if ask.codes is not None:
        table = ask.codes.table(scoring.keywords)
        if table is None:
            np.add(totals, ask.codes.weighted(scoring.keywords, rows), out=totals)
        else:
            codes = ask.codes.values if rows is None else ask.codes.values[rows]
            np.add(totals, np.take(table, codes, out=spare, mode="clip"), out=totals)
    if scoring.recency:
        now_days = moment.days(ask.now_ns)
        add_recency(totals, scoring, now_days, selection.days, spare, has_future=moment.latest_days > now_days)
    if ask.extra is not None:
        np.add(totals, ask.extra if rows is None else ask.extra[rows], out=totals)


def reachable(totals: Array, top_k: int, off: float) -> Rows:
    """Return the places whose scores may be among the best: totals within what they may be off by; no infinite ones."""
    bound = -np.inf
    if len(totals) > top_k:
        # A partition of the values is faster than one of their places, and finds ties in any number.
        ordered = scratch("ordered", len(totals))
        np.copyto(ordered, totals)
        ordered.partition(len(totals) - top_k)
        bound = float(ordered[len(totals) - top_k]) - 2 * off
    if bound == -np.inf:
        return np.flatnonzero(totals > bound)
    return np.flatnonzero(totals >= bound)


def cosines(moment: Moment, vector: Array, rows: Rows) -> Array:
    """Return the cosines of rows with the query: in double precision, each the same whatever rows are beside it."""
    wide = vector.astype(np.float64)
    if len(rows) <= SCORED_ROWS:
        products: Array = np.add.reduce(moment.frame.matrix[rows] * wide, axis=1)
        return products
    found: Array = np.empty(len(rows), np.float64)
    for begin in range(0, len(rows), SCORED_ROWS):
        part = rows[begin : begin + SCORED_ROWS]
        np.sum(moment.frame.matrix[part] * wide, axis=1, out=found[begin : begin + SCORED_ROWS])
    return found


def ranked(moment: Moment, ask: Ask, rows: Rows) -> list[Match]:
    """Return the best of some rows: by score, then importance, then their order."""
    scoring, frame = ask.scoring, moment.frame
    nothing = [0.0] * len(rows)
    columns: list[Any] = [
        rows.tolist(),
        frame.born[rows].tolist(),
        nothing
        if ask.vector is None
        else [min(max(one, -1.0), 1.0) for one in cosines(moment, ask.vector, rows).tolist()],
        nothing if ask.codes is None else ask.codes.overlaps(rows),
        frame.importance[rows].tolist(),
        faded(scoring, ask.now_ns, frame.accessed[rows].tolist()) if scoring.recency else nothing,
        nothing if ask.extra is None else ask.extra[rows].tolist(),
        frame.orders[rows].tolist(),
    ]
    found: list[tuple[float, float, int, int, Match]] = []
    # In Python's own numbers: for the ten rows of most searches that takes less than numpy's calls.
    for row, seq, cosine, overlap, importance, recency, extra, order in zip(*columns, strict=True):
        score = scoring.cosine * cosine + scoring.keywords * overlap + scoring.importance * importance
        score = round(score + scoring.recency * recency + extra, SCORE_DECIMALS)
        match = Match(row, seq, score, cosine, overlap, importance, recency, extra)
        found.append((-score, -importance, order, row, match))
    found.sort()
    return [match for *_, match in found[: ask.top_k]]
