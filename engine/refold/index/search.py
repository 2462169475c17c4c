"""Search over the rows of one moment: an exact pass, or a graph with a bound that certifies the answer."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from refold.errors import InvalidInput
from refold.index.columns import (
    NEAREST,
    SCORE_DECIMALS,
    SEED,
    Array,
    Codes,
    Rows,
    Scoring,
    add_recency,
    faded,
    margin,
    normalised,
    product,
)
from refold.index.hnsw import Graph
from refold.index.rows import EVERYTHING, Filters, Moment, Selection
from refold.limits import (
    CERTIFIED_ROWS,
    GRAPH_BREADTH_COUNT_MAX,
    NARROW_DIMENSIONS,
    PAIRS_BYTES_MAX,
    QUERIES_BYTES_MAX,
    SAMPLED_ROWS,
    SCORED_ROWS,
    SPARE_ROWS,
)

# The exact pass: the totals of all rows in single precision, then the scores of the few that may be the best ones.
#
# Scores are computed from the stored vectors, in double precision and row by row, so that a row has one score
# whichever way it was found. The totals only say which rows are worth it.

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


# Rows that are more alike than a threshold, pair by pair: all of them, which no graph promises.
#
# The products of all pairs are most of the work, so they are computed of shorter rows: what a row is along a few
# directions in which the rows differ most, and the length of the rest. The product of two of those is at least that
# of the rows themselves, because the rests are at most parallel. Whatever that leaves is looked at whole.

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


# Searching with a graph: the nearest rows, and the best scores with a bound that certifies them.
#
# The nearest rows alone are not the best ones: most of the best have another strength. So the graph's rows and the
# best of the rest are scored, and then every row is that might still be better: one that the graph did not give has
# at most the cosine of the last that it gave, so it has to be strong enough in the rest, which is known of every row.

_WIDENINGS: Final = 2
"""How often a search asks a graph for twice as many rows before all are passed over."""

_SELECTED_SHARE: Final = 2
"""Where fewer than one of so many rows may be found, the graph would mostly give others."""

_TRUSTED_SHARE: Final = 2

_SCORED_SHARE: Final = 16
"""At most one of so many rows is looked at by itself; a pass over all is faster then."""


def nearest(moment: Moment, ask: Ask, filters: Filters) -> list[Match] | None:
    """Return the nearest rows that filters allow, ``None`` if the graph does not give enough of them."""
    graph, vector = moment.graph, ask.vector
    if graph is None or vector is None:
        return None
    width = max(graph.breadth, 2 * ask.top_k)
    for _ in range(1 + _WIDENINGS):
        near = graph.near(vector, width)
        if near is None:
            return None
        rows, products = near
        allowed = moment.mask(filters, rows)
        if np.count_nonzero(allowed) >= ask.top_k:
            return _best(moment, ask, filters, rows[allowed], products[allowed])
        width *= 2
    return None


def _best(moment: Moment, ask: Ask, filters: Filters, rows: Rows, products: Array) -> list[Match]:
    """Return the best of the rows that the graph gave and of those behind it."""
    assert moment.graph is not None
    assert ask.vector is not None
    end = moment.graph.end
    if end < moment.count:
        fresh = end + np.flatnonzero(moment.mask(filters, slice(end, None)))
        behind = product(moment.frame.matrix[end:], ask.vector)
        rows = np.concatenate([rows, fresh])
        products = np.concatenate([products, behind[fresh - end]])
    elif not moment.graph.twins:
        # Nearest first, as the graph gave them: those behind the last of the best are only looked at if they may tie.
        bound = products[ask.top_k - 1] - 2 * ask.margin
        return ranked(moment, ask, rows[: int(np.count_nonzero(products >= bound))])
    return ranked(moment, ask, rows[reachable(products, ask.top_k, ask.margin)])


def certified(moment: Moment, ask: Ask, selection: Selection) -> list[Match] | None:
    """Return the best rows, certified as far as the graph gives all of the nearest; ``None`` if that fails."""
    graph, vector = moment.graph, ask.vector
    if graph is None or vector is None or ask.scoring.cosine <= 0.0:
        return None
    rows = selection.rows
    if rows is not None and len(rows) * _SELECTED_SHARE < moment.alive_count:
        return None
    rest = _rest(moment, ask, selection)
    for width in _widths(ask.top_k, graph):
        near = graph.near(vector, width)
        if near is None:
            return None
        scored = _Scored(moment, ask, rest, graph.end)
        scored.take(near[0], near[1] * np.float32(ask.scoring.cosine))
        scored.take_fresh()
        strongest = min(moment.count, ask.top_k + SPARE_ROWS)
        scored.look_at(np.argpartition(rest, moment.count - strongest)[moment.count - strongest :])
        if width >= len(graph.rows):
            return scored.ranked()
        floor = ask.scoring.cosine * _trusted_cosine(near[1])
        rivals = np.flatnonzero(rest[: graph.end] >= scored.bound() - floor - 2 * ask.margin)
        if len(rivals) * _SCORED_SHARE <= moment.count:
            scored.look_at(rivals)
            return scored.ranked()
    return None


def _rest(moment: Moment, ask: Ask, selection: Selection) -> Array:
    """Return what every row has beside its cosine: minus infinity for those that may not be found."""
    rest = scratch("rest", moment.count)
    rows = selection.rows
    part = rest if rows is None else scratch("selected", len(rows))
    part[:] = 0.0
    add_rest(part, moment, ask, selection)
    if rows is not None:
        rest[:] = -np.inf
        rest[rows] = part
    return rest


def _trusted_cosine(cosines: Array) -> float:
    """Return the cosine above which the graph is taken to have given every row.

    What a graph misses is mostly far down in its list, so only the nearer half of it is taken to be complete.
    """
    place = len(cosines) - 1 - len(cosines) // _TRUSTED_SHARE
    return float(np.partition(cosines, place)[place])


def _widths(top_k: int, graph: Graph) -> Iterator[int]:
    """Return how many rows the graph is asked for: first, and again where that certifies nothing."""
    width = max(CERTIFIED_ROWS, graph.breadth, 4 * top_k)
    yield width
    if 2 * width <= max(GRAPH_BREADTH_COUNT_MAX, 8 * top_k):
        yield 2 * width


class _Scored:
    """Rows with their totals, each once."""

    def __init__(self, moment: Moment, ask: Ask, rest: Array, end: int) -> None:
        self._moment = moment
        self._ask = ask
        self._rest = rest
        self._end = end
        assert ask.vector is not None
        self._query: Array = ask.vector * np.float32(ask.scoring.cosine)
        self._is_seen: Array = np.zeros(moment.count, np.bool_)
        self._is_seen[end:] = True
        self._rows: list[Rows] = []
        self._totals: list[Array] = []

    def take(self, rows: Rows, products: Array) -> None:
        """Add rows whose products are known."""
        self._is_seen[rows] = True
        self._rows.append(rows)
        self._totals.append(products + self._rest[rows])

    def take_fresh(self) -> None:
        """Add the rows behind the graph."""
        if self._end < self._moment.count:
            self._rows.append(np.arange(self._end, self._moment.count))
            self._totals.append(product(self._moment.frame.matrix[self._end :], self._query) + self._rest[self._end :])

    def look_at(self, rows: Rows) -> None:
        """Add those of some rows that are not there yet."""
        fresh = rows[~self._is_seen[rows]]
        if len(fresh):
            self.take(fresh, product(self._moment.frame.matrix[fresh], self._query))

    def bound(self) -> float:
        """Return the total of the last of the best rows so far."""
        totals = np.concatenate(self._totals)
        top_k = self._ask.top_k
        return float(np.partition(totals, -top_k)[-top_k]) if len(totals) >= top_k else -np.inf

    def ranked(self) -> list[Match]:
        """Return the best of all rows that were looked at."""
        rows, totals = np.concatenate(self._rows), np.concatenate(self._totals)
        return ranked(self._moment, self._ask, rows[reachable(totals, self._ask.top_k, self._ask.margin)])


_NOTHING: Final = Matches((), exact=True, scanned=True)


class Query(NamedTuple):
    """What is looked for: without a vector the cosine counts as 0; ``extra`` is added to the score of each row."""

    vector: Any
    keywords: Sequence[str] = ()
    extra: Any = None


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """How the answers of a search are chosen."""

    now_ns: int
    top_k: int = 10
    scoring: Scoring = SEED
    filters: Filters = EVERYTHING

    def clamped(self, moment: Moment) -> int:
        """Return how many rows may be found at most; raises ``InvalidInput`` for a number below 0."""
        if self.top_k < 0:
            raise InvalidInput(f"top_k is {self.top_k}; give 0 or more")
        return min(self.top_k, moment.count)


def answer(moment: Moment, query: Query, wish: Wish, *, asks_graph: bool) -> Matches:
    """Return the best rows for a query; with the moment's graph, if that is asked, as long as they are certain."""
    wish.scoring.check()
    top_k = wish.clamped(moment)
    ask = _asked(moment, query, _unit(moment, query), wish, top_k)
    if not top_k:
        return _NOTHING
    selection = moment.selection(wish.filters, wish.scoring.importance)
    found = certified(moment, ask, selection) if asks_graph else None
    if found is not None:
        return Matches(tuple(found), exact=True, scanned=False)
    return _scanned(scan(moment, ask, selection))


def answers(moment: Moment, queries: Sequence[Query], wish: Wish) -> list[Matches]:
    """Return what ``answer`` returns for each query; their products with all rows are computed together."""
    wish.scoring.check()
    top_k = wish.clamped(moment)
    units = [_unit(moment, query) for query in queries]
    if not top_k:
        return [_NOTHING] * len(queries)
    selection = moment.selection(wish.filters, wish.scoring.importance)
    found: list[Matches] = []
    for query, unit, products in zip(queries, units, _products(moment, units, wish, selection.rows), strict=True):
        found.append(_scanned(scan(moment, _asked(moment, query, unit, wish, top_k), selection, products)))
    return found


def near(moment: Moment, vector: Any, wish: Wish, *, asks_graph: bool) -> Matches:
    """Return the rows with the highest cosines; exact where all rows were passed over."""
    top_k = wish.clamped(moment)
    unit = _unit(moment, Query(vector))
    if not top_k or unit is None:
        return _NOTHING
    ask = asked(moment, unit, (), scoring=NEAREST, top_k=top_k, now_ns=wish.now_ns, extra=None)
    found = nearest(moment, ask, wish.filters) if asks_graph else None
    if found is not None:
        return Matches(tuple(found), exact=False, scanned=False)
    return _scanned(scan(moment, ask, moment.selection(wish.filters, 0.0)))


def _scanned(hits: list[Match]) -> Matches:
    return Matches(tuple(hits), exact=True, scanned=True)


def _unit(moment: Moment, query: Query) -> Array | None:
    if query.vector is None:
        return None
    unit: Array = normalised(query.vector, moment.frame.matrix.shape[1], count=1)[0]
    return unit


def _asked(moment: Moment, query: Query, unit: Array | None, wish: Wish, top_k: int) -> Ask:
    extra = None if query.extra is None else np.asarray(query.extra, np.float32)
    if extra is not None and (extra.shape != (moment.count,) or not np.isfinite(extra).all()):
        raise InvalidInput(
            f"extra scores of shape {extra.shape}; give a finite number for each of the {moment.count} rows"
        )
    return asked(moment, unit, query.keywords, scoring=wish.scoring, top_k=top_k, now_ns=wish.now_ns, extra=extra)


def _products(moment: Moment, units: Sequence[Array | None], wish: Wish, rows: Any) -> Iterator[Array | None]:
    """Return the weighted products of the selected rows with each query, as many at once as there is room for."""
    matrix = moment.frame.matrix if rows is None else moment.frame.matrix[rows]
    block = max(1, QUERIES_BYTES_MAX // (4 * max(len(matrix), 1)))
    weight = np.float32(wish.scoring.cosine)
    nothing: Array = np.zeros(int(matrix.shape[1]), np.float32)
    for begin in range(0, len(units), block):
        part = [nothing if unit is None else unit * weight for unit in units[begin : begin + block]]
        yield from product(np.array(part), matrix.T)
