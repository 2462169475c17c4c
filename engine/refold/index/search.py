"""Search over the rows of a view: exact by a pass over all rows or by bounds of short rows, approximate by a graph."""

import math
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from refold.errors import InvalidInput
from refold.index.columns import DAY_NS, Array, Rows, normalise, product
from refold.index.hnsw import BREADTH_MAX, Graph
from refold.index.ranking import Query, Ranking
from refold.index.short import ShortRows, narrow
from refold.index.table import RowSelection, TableView, VectorTable
from refold.limits import QUERIES_BYTES_MAX

# The exact pass: the totals of all rows in single precision, then the scores of the few rows that might be the best.
#
# Scores are computed from the stored vectors, in double precision and row by row, so that the score of a row does not
# depend on how the row was found. The totals only select the rows to score.

# If at most one row in this many is selected, only the selected vectors are gathered and multiplied.
_GATHERED_SHARE: Final = 8
_SCORED_ROWS: Final = 4_096  # Rows scored in double precision at a time.
# Below this rate, its reciprocal is so many days that single precision would lose too much of the other days.
_RATE_MIN: Final = 1e-3
_DECIMALS: Final = 9  # Scores are rounded to this many digits, so that ties do not depend on the order of summation.
_NEAREST: Final = Ranking(name="nearest", cosine=1.0)


class Match(msgspec.Struct, frozen=True, gc=False):
    """A row: its number, the seq at which it was added, its score, and the raw signals."""

    row: int
    seq: int
    score: float
    cosine: float
    keywords: float
    importance: float
    recency: float
    extra: float


class Matches(msgspec.Struct, frozen=True):
    """The best rows, best first; `exact` if they are certainly the best ones."""

    hits: tuple[Match, ...]
    exact: bool
    scanned: bool  # Whether all rows were compared in full, without a graph or short rows.
    rows: int = 0  # The number of rows compared, in full or by a bound.


_thread = threading.local()


def _scratch(name: str, count: int) -> Array:
    """Return a reused array of this thread; fresh memory would cost page faults."""
    room: Array | None = getattr(_thread, name, None)
    if room is None or len(room) < count or len(room) > 4 * count + _SCORED_ROWS:
        room = np.empty(count, np.float32)
        setattr(_thread, name, room)
    return room[:count]


def recency_of(ranking: Ranking, now_ns: int, accessed_ns: Sequence[int]) -> list[float]:
    """Compute the recency of access times; a time in the future counts as now."""
    rate = ranking.daily_rate
    days = [max(now_ns - time_ns, 0) / DAY_NS for time_ns in accessed_ns]
    if ranking.recency_curve == "hyperbolic":
        return [1.0 / (1.0 + rate * day) for day in days]
    return [math.exp(-rate * day) for day in days]


def _add_recency(
    totals: Array, ranking: Ranking, now_days: float, days: Array, scratch: Array, *, has_future: bool
) -> None:
    """Add weighted recency to totals, in single precision and in as few passes as possible."""
    if not has_future and ranking.recency_curve == "hyperbolic" and ranking.daily_rate >= _RATE_MIN:
        # weight / (1 + rate * (now - days)), in two passes fewer.
        np.subtract(np.float32(now_days + 1.0 / ranking.daily_rate), days, out=scratch)
        np.divide(np.float32(ranking.recency / ranking.daily_rate), scratch, out=scratch)
        np.add(totals, scratch, out=totals)
        return
    np.subtract(np.float32(now_days), days, out=scratch)
    if has_future:
        np.maximum(scratch, np.float32(0.0), out=scratch)
    if ranking.recency_curve == "exponential":
        np.multiply(scratch, np.float32(-ranking.daily_rate), out=scratch)
        np.exp(scratch, out=scratch)
        np.multiply(scratch, np.float32(ranking.recency), out=scratch)
    else:
        np.multiply(scratch, np.float32(ranking.daily_rate), out=scratch)
        np.add(scratch, np.float32(1.0), out=scratch)
        np.divide(np.float32(ranking.recency), scratch, out=scratch)
    np.add(totals, scratch, out=totals)


@lru_cache(maxsize=64)
def _errors(ranking: Ranking, dimensions: int) -> tuple[float, float]:
    epsilon = float(np.finfo(np.float32).eps)
    product = abs(ranking.cosine) * (16 + dimensions / 16)
    others = 8 * (abs(ranking.keywords) + abs(ranking.importance) + abs(ranking.recency))
    fixed = epsilon * (product + others) + 10.0**-_DECIMALS
    return fixed, epsilon * abs(ranking.recency) * (2 * ranking.daily_rate + 2 * _RATE_MIN)


def _margin(ranking: Ranking, dimensions: int, span_days: float, extra: float) -> float:
    """Bound the difference between a total in single precision and its score.

    The error of a product of unit vectors comes from its partial sums; the error of a day from the resolution of single
    precision at the largest day.
    """
    fixed, daily = _errors(ranking, dimensions)
    return fixed + daily * span_days + 1e-6 * extra


# Searching with short rows: a sixth of the vectors is read, and few rows are read in full. The result is proved for any
# vectors; if the bounds leave too many rows, a search passes over all of them.

_LIKELY_ROWS: Final = 400  # Rows, beyond `top_k`, with the highest bounds; the best of them set the floor for others.

# Searching with a graph: the nearest rows, and the best scores as far as a graph finds them.
#
# The nearest rows alone are not the best: most of the best rows are strong in another signal. So the graph's rows and
# the rows that are best without their cosine are scored, and then every row that could still be better. A row that the
# graph did not return has at most about the cosine of the last row that it returned, so it must be strong enough in its
# other signals, which are known for every row. A graph misses near rows now and then, and no bound on that holds for
# any vectors, because near rows might not be linked at all. Best scores are therefore found by a graph only for a
# caller that asks for an approximate answer.

_WIDENINGS: Final = 2  # How often a search doubles the rows that it asks of a graph before it passes over all rows.
_SELECTED_SHARE: Final = 2  # If fewer than one row in this many passes the filter, a graph mostly returns other rows.
_TRUSTED_SHARE: Final = 2
_LOOKED_AT_SHARE: Final = 16  # At most one row in this many is examined by itself; a pass over all is faster then.
NEAR_ROWS: Final = 400  # Near rows with which an approximate search for the best scores begins.
_SPARE_ROWS: Final = 16  # Rows, beyond `top_k`, that are the best without their cosine and raise the bound of a search.

assert NEAR_ROWS <= BREADTH_MAX


class Scan:
    """A query prepared for comparison with the rows of a view; `extra` is added to the score of each row.

    Raises the errors of `normalise` for the vector, and `InvalidInput` for a negative `top_k`, and for extra scores
    that are not finite or not one per row.
    """

    def __init__(self, view: TableView, query: Query, extra: Any = None) -> None:
        ranking, columns = query.ranking, view.columns
        unit = None if query.vector is None else normalise(query.vector, columns.matrix.shape[1], count=1)[0]
        if query.top_k < 0:
            raise InvalidInput(f"top_k is {query.top_k}; give 0 or more")
        self.view = view
        self.ranking = ranking
        self.filter = query.filter
        self.top_k = min(query.top_k, view.count)
        self.now_ns = query.now_ns or 0
        self.vector: Array | None = unit if ranking.cosine else None  # Of length 1.
        self.extra: Array | None = None if extra is None else np.asarray(extra, np.float32)
        if self.extra is not None and (self.extra.shape != (view.count,) or not np.isfinite(self.extra).all()):
            raise InvalidInput(
                f"extra scores of shape {self.extra.shape}; give a finite number for each of the {view.count} rows"
            )
        words = query.keywords if ranking.keywords else ()
        self.codes = view.codes(words) if words else None
        span_days = max(view.span_days, abs(view.days(self.now_ns))) if ranking.recency else 0.0
        extra_size = 0.0 if self.extra is None else float(np.abs(self.extra).max(initial=0.0))
        self.margin = _margin(ranking, columns.matrix.shape[1], span_days, extra_size)
        """The maximum difference between a total and its score."""

    def select(self) -> RowSelection:
        """Return the rows that pass the filter."""
        return self.view.select(self.filter, self.ranking.importance)

    def all(self, selection: RowSelection, products: Array | None = None) -> list[Match]:
        """Find the best rows of a selection by a pass over all of them; `products`, if given, are overwritten."""
        totals = self._products(selection) if products is None else products
        self._add_rest(totals, selection)
        places = self._reachable_places(totals)
        return self._rank(places if selection.rows is None else selection.rows[places])

    def _products(self, selection: RowSelection) -> Array:
        rows, matrix = selection.rows, self.view.columns.matrix
        totals = _scratch("totals", len(matrix) if rows is None else len(rows))
        if self.vector is None:
            totals[:] = 0.0
            return totals
        query = self.vector * np.float32(self.ranking.cosine)  # The query is weighted, not the rows.
        if rows is None:
            return product(matrix, query, totals)
        if len(rows) * _GATHERED_SHARE <= len(matrix):
            return product(matrix[rows], query, totals)
        return np.take(product(matrix, query, _scratch("products", len(matrix))), rows, out=totals, mode="clip")

    def _add_rest(self, totals: Array, selection: RowSelection) -> None:
        ranking, rows = self.ranking, selection.rows
        np.add(totals, selection.importance, out=totals)
        spare = _scratch("spare", len(totals))
        if self.codes is not None:
            self.codes.add_to(totals, ranking.keywords, rows, spare)
        if ranking.recency:
            now_days = self.view.days(self.now_ns)
            has_future = self.view.latest_days > now_days
            _add_recency(totals, ranking, now_days, selection.days, spare, has_future=has_future)
        if self.extra is not None:
            np.add(totals, self.extra if rows is None else self.extra[rows], out=totals)

    def _reachable_places(self, totals: Array) -> Rows:
        """Return the places whose scores might be among the best: totals within the margin, and no infinite ones."""
        bound, top_k = -np.inf, self.top_k
        if len(totals) > top_k:
            # Partitioning the values is faster than partitioning their places, and finds any number of ties.
            ordered = _scratch("ordered", len(totals))
            np.copyto(ordered, totals)
            ordered.partition(len(totals) - top_k)
            bound = float(ordered[len(totals) - top_k]) - 2 * self.margin
        return np.flatnonzero(totals > bound) if bound == -np.inf else np.flatnonzero(totals >= bound)

    def _cosines(self, vector: Array, rows: Rows) -> list[float]:
        """Compute cosines in double precision, each independent of the rows that are computed with it."""
        wide, matrix = vector.astype(np.float64), self.view.columns.matrix
        cosines: list[float] = []
        for begin in range(0, len(rows), _SCORED_ROWS):
            cosines += np.add.reduce(matrix[rows[begin : begin + _SCORED_ROWS]] * wide, axis=1).tolist()
        return [min(max(cosine, -1.0), 1.0) for cosine in cosines]

    def _rank(self, rows: Rows) -> list[Match]:
        ranking, columns = self.ranking, self.view.columns
        nothing = [0.0] * len(rows)
        values: list[list[Any]] = [
            rows.tolist(),
            columns.born[rows].tolist(),
            nothing if self.vector is None else self._cosines(self.vector, rows),
            nothing if self.codes is None else self.codes.overlaps(rows),
            columns.importance[rows].tolist(),
            recency_of(ranking, self.now_ns, columns.accessed[rows].tolist()) if ranking.recency else nothing,
            nothing if self.extra is None else self.extra[rows].tolist(),
            columns.orders[rows].tolist(),
        ]
        ranked: list[tuple[float, float, int, int, Match]] = []
        # With Python numbers: for the ten rows of most searches they are faster than numpy calls.
        for row, seq, cosine, overlap, importance, recency, extra, order in zip(*values, strict=True):
            score = ranking.cosine * cosine + ranking.keywords * overlap + ranking.importance * importance
            score = round(score + ranking.recency * recency + extra, _DECIMALS)
            match = Match(row, seq, score, cosine, overlap, importance, recency, extra)
            ranked.append((-score, -importance, order, row, match))
        ranked.sort()
        return [match for *_, match in ranked[: self.top_k]]

    def nearest(self) -> list[Match] | None:
        """Find the nearest rows by the graph; return `None` if it does not return enough of them."""
        graph, vector = self.view.graph, self.vector
        if graph is None or vector is None:
            return None
        width = max(graph.breadth, 2 * self.top_k)
        for _ in range(1 + _WIDENINGS):
            near = graph.search(vector, width)
            if near is None:
                return None
            rows, products = near
            allowed = self.view.mask(self.filter, rows)
            if np.count_nonzero(allowed) >= self.top_k:
                return self._best_near(graph, vector, rows[allowed], products[allowed])
            width *= 2
        return None

    def _best_near(self, graph: Graph, vector: Array, rows: Rows, products: Array) -> list[Match]:
        end = graph.end
        if end < self.view.count:
            fresh = end + np.flatnonzero(self.view.mask(self.filter, slice(end, None)))
            behind = product(self.view.columns.matrix[end:], vector)
            rows = np.concatenate([rows, fresh])
            products = np.concatenate([products, behind[fresh - end]])
        elif not graph.twins:
            # The graph returned them nearest first, so rows after the last of the best are examined only if they tie.
            bound = products[self.top_k - 1] - 2 * self.margin
            return self._rank(rows[: int(np.count_nonzero(products >= bound))])
        return self._rank(rows[self._reachable_places(products)])

    def search_bounds(self, selection: RowSelection, short: ShortRows) -> list[Match] | None:
        """Find the best rows by the bounds of short rows; return `None` if too many rows could be among the best.

        The bound of a row is never below its total, whatever the vectors are, so no best row is left out.
        """
        rows, count = selection.rows, min(self.view.count, short.count)
        if self.vector is None or (rows is not None and len(rows) * _GATHERED_SHARE <= self.view.count):
            return None
        matrix, query = self.view.columns.matrix, self.vector * np.float32(self.ranking.cosine)
        bounds = _scratch("products", self.view.count)
        short.bounds(query, bounds[:count])
        if count < self.view.count:
            product(matrix[count:], query, bounds[count:])
        if rows is not None:
            bounds = np.take(bounds, rows, out=_scratch("totals", len(rows)), mode="clip")
        self._add_rest(bounds, selection)
        likely = min(len(bounds), self.top_k + _LIKELY_ROWS)
        if likely == len(bounds):
            return None
        highest = np.argpartition(bounds, len(bounds) - likely)[len(bounds) - likely :]
        floor = np.partition(self._totals(highest, selection, query), likely - self.top_k)[likely - self.top_k]
        reachable = np.flatnonzero(bounds >= floor - 2 * self.margin)
        if len(reachable) * _LOOKED_AT_SHARE > len(bounds):
            return None
        places = reachable[self._reachable_places(self._totals(reachable, selection, query))]
        return self._rank(places if rows is None else rows[places])

    def _totals(self, places: Rows, selection: RowSelection, query: Array) -> Array:
        """Compute the totals of some rows of a selection."""
        rows = places if selection.rows is None else selection.rows[places]
        totals = product(self.view.columns.matrix[rows], query)
        self._add_rest(totals, RowSelection(rows, selection.importance[places], selection.days[places]))
        return totals

    def approximate(self, selection: RowSelection) -> Matches | None:
        """Find nearly all of the best rows by the graph; return `None` if it cannot determine them.

        The nearer half of the graph's result is assumed to be complete, which no graph guarantees. The answer is exact
        only if every live row was scored.
        """
        view, graph, vector, weight = self.view, self.view.graph, self.vector, self.ranking.cosine
        if graph is None or vector is None or weight <= 0.0:
            return None
        if selection.rows is not None and len(selection.rows) * _SELECTED_SHARE < view.alive_count:
            return None
        rest = self._rest(selection)
        query = vector * np.float32(weight)
        width = max(NEAR_ROWS, graph.breadth, 4 * self.top_k)
        for rows_count in (width, 2 * width) if 2 * width <= max(BREADTH_MAX, 8 * self.top_k) else (width,):
            near = graph.search(vector, rows_count)
            if near is None:
                return None
            candidates = _Candidates(view.columns.matrix, query, rest, graph.end)
            candidates.add(near[0], near[1] * np.float32(weight))
            candidates.add_fresh()
            strongest = min(view.count, self.top_k + _SPARE_ROWS)
            candidates.add_unseen(np.argpartition(rest, view.count - strongest)[view.count - strongest :])
            is_whole = candidates.has_all(view.columns.alive)
            if not is_whole:
                floor = weight * _trusted_cosine(near[1])
                rivals = np.flatnonzero(rest[: graph.end] >= candidates.bound(self.top_k) - floor - 2 * self.margin)
                if len(rivals) * _LOOKED_AT_SHARE > view.count:
                    continue
                candidates.add_unseen(rivals)
            rows, totals = np.concatenate(candidates.rows), np.concatenate(candidates.totals)
            hits = tuple(self._rank(rows[self._reachable_places(totals)]))
            return Matches(hits, exact=is_whole, scanned=False, rows=len(rows))
        return None

    def _rest(self, selection: RowSelection) -> Array:
        """Compute every row's score without its cosine; it is minus infinity for rows that are filtered out."""
        rest = _scratch("rest", self.view.count)
        rows = selection.rows
        part = rest if rows is None else _scratch("selected", len(rows))
        part[:] = 0.0
        self._add_rest(part, selection)
        if rows is not None:
            rest[:] = -np.inf
            rest[rows] = part
        return rest


def _trusted_cosine(cosines: Array) -> float:
    """Return the cosine above which the graph is assumed to have returned every row.

    Most rows that a graph misses would be far down in its result, so only the nearer half of it is assumed to be
    complete.
    """
    place = len(cosines) - 1 - len(cosines) // _TRUSTED_SHARE
    return float(np.partition(cosines, place)[place])


class _Candidates:
    def __init__(self, matrix: Array, query: Array, rest: Array, end: int) -> None:
        self._matrix = matrix
        self._query = query
        self._rest = rest
        self._end = end
        self._is_seen: Array = np.zeros(len(matrix), np.bool_)
        self._is_seen[end:] = True
        self.rows: list[Rows] = []
        self.totals: list[Array] = []

    def add(self, rows: Rows, products: Array) -> None:
        self._is_seen[rows] = True
        self.rows.append(rows)
        self.totals.append(products + self._rest[rows])

    def add_fresh(self) -> None:
        if self._end < len(self._matrix):
            self.rows.append(np.arange(self._end, len(self._matrix)))
            self.totals.append(product(self._matrix[self._end :], self._query) + self._rest[self._end :])

    def add_unseen(self, rows: Rows) -> None:
        fresh = rows[~self._is_seen[rows]]
        if len(fresh):
            self.add(fresh, product(self._matrix[fresh], self._query))

    def has_all(self, alive: Array) -> bool:
        return not (alive & ~self._is_seen).any()

    def bound(self, top_k: int) -> float:
        totals = np.concatenate(self.totals)
        return float(np.partition(totals, -top_k)[-top_k]) if len(totals) >= top_k else -np.inf


_NO_MATCHES: Final = Matches((), exact=True, scanned=True)


def search(
    table: VectorTable, query: Query, *, view: TableView | None = None, extra: Any = None, exact: bool = False
) -> Matches:
    """Find the rows with the best scores; ties go to the higher importance, then to the lower order.

    `extra` is added to the score of each row. A graph is used only for an `approximate` query, if that pays; with
    `exact`, neither a graph nor short rows are used. Raises the errors of `Scan`.
    """
    view = view or table.view()
    scan = Scan(view, query, extra)
    if not scan.top_k:
        return _NO_MATCHES
    selection = scan.select()
    if scan.vector is not None and not exact:
        if query.approximate and table.builder.should_use_graph(view, is_hybrid=True):
            matches = scan.approximate(selection)
            if matches is not None:
                return matches
        short = table.short_rows(view)
        if short is not None and short.should_try():
            hits = scan.search_bounds(selection, short)
            short.note(is_of_use=hits is not None)
            if hits is not None:
                return Matches(tuple(hits), exact=True, scanned=False, rows=len(selection.importance))
    return Matches(tuple(scan.all(selection)), exact=True, scanned=True, rows=len(selection.importance))


def search_many(view: TableView, queries: Sequence[Query], extras: Sequence[Any]) -> list[Matches]:
    """Answer several queries that share a filter and a ranking, each as an exact `search` does.

    Their products with all rows are computed together, for as many queries at a time as fit in `QUERIES_BYTES_MAX`.
    """
    scans = [Scan(view, query, extra) for query, extra in zip(queries, extras, strict=True)]
    if not scans or not scans[0].top_k:
        return [_NO_MATCHES] * len(scans)
    selection = scans[0].select()
    matrix = view.columns.matrix if selection.rows is None else view.columns.matrix[selection.rows]
    block = max(1, QUERIES_BYTES_MAX // (4 * max(len(matrix), 1)))
    weight = np.float32(scans[0].ranking.cosine)
    nothing: Array = np.zeros(matrix.shape[1], np.float32)  # pyright: ignore[reportUnknownVariableType]
    answers: list[Matches] = []
    for begin in range(0, len(scans), block):
        part = scans[begin : begin + block]
        weighted: list[Array] = [nothing if scan.vector is None else scan.vector * weight for scan in part]
        vectors = np.array(weighted)
        for scan, products in zip(part, product(vectors, matrix.T), strict=True):
            answers.append(
                Matches(tuple(scan.all(selection, products)), exact=True, scanned=True, rows=len(selection.importance))
            )
    return answers


def nearest(table: VectorTable, query: Query, *, view: TableView | None = None, exact: bool = False) -> Matches:
    """Find the rows with the highest cosines, whatever the query's ranking; exact unless a graph is used."""
    view = view or table.view()
    scan = Scan(view, replace(query, ranking=_NEAREST))
    if not scan.top_k or scan.vector is None:
        return _NO_MATCHES
    hits = scan.nearest() if not exact and table.builder.should_use_graph(view, is_hybrid=False) else None
    if hits is not None:
        return Matches(tuple(hits), exact=False, scanned=False)
    return Matches(tuple(scan.all(scan.select())), exact=True, scanned=True)


# All pairs of rows that are more alike than a threshold, which no graph guarantees to find.
#
# The products of all pairs are most of the work, so they are computed from short rows. The pairs that remain are
# compared in full.

PAIRS_BYTES_MAX: Final = 8 * 1024**2  # Bytes of the products of pairs that are in RAM at a time.
_NEAR: Final = 1e-4  # More than the rounding error of a product in single precision.


def pairs(matrix: Array, threshold: float, is_gone: Array, is_changed: Array) -> Iterator[tuple[int, Rows]]:
    """Yield rows, in order, each with the later rows whose product with it might exceed a threshold.

    The rows of `matrix` have length 1. Skips pairs in which neither row `is_changed`, and rows that are `is_gone` by
    then: the caller can mark more rows between two steps.
    """
    short = narrow(matrix)
    everything = np.arange(len(matrix))
    changed = np.flatnonzero(is_changed)
    height = max(1, PAIRS_BYTES_MAX // (4 * max(len(matrix), 1)))
    for begin in range(0, len(matrix), height):
        block = everything[begin : begin + height]
        block = block[~is_gone[block]]
        near = _near_pairs(short, block[is_changed[block]], everything[begin:], threshold)
        near |= _near_pairs(short, block[~is_changed[block]], changed[changed > begin], threshold)
        for row in sorted(near):
            if is_gone[row]:
                continue
            later = near[row]
            later = later[(later > row) & ~is_gone[later]]
            later = later[product(matrix[later], matrix[row]) > threshold - _NEAR]
            if len(later):
                yield row, later


def _near_pairs(short: Array, rows: Rows, columns: Rows, threshold: float) -> dict[int, Rows]:
    if not len(rows) or not len(columns):
        return {}
    near = product(short[rows], short[columns].T) > threshold - _NEAR
    return {int(rows[place]): columns[near[place]] for place in np.flatnonzero(near.any(axis=1))}
