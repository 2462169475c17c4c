"""Searching with a graph: the nearest rows, and the best scores with a bound that certifies them.

The nearest rows alone are not the best ones: most of the best have another strength. So the graph's rows and the best
of the rest are scored, and then every row is that might still be better: one that the graph did not give has at most
the cosine of the last that it gave, so it has to be strong enough in the rest, which is known of every row.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from refold.limits import CERTIFIED_ROWS, GRAPH_BREADTH_COUNT_MAX, SPARE_ROWS
from refold.rank.products import product
from refold.store.columns import Array, Rows
from refold.store.graph import Graph
from refold.store.moments import Filters, Moment, Selection
from refold.store.scanning import Ask, Match, add_rest, ranked, reachable, scratch

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
