"""Queries answered from a moment: all rows passed over, or a graph asked first."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from refold.errors import InvalidInput
from refold.limits import QUERIES_BYTES_MAX
from refold.rank.products import product
from refold.store import certifying
from refold.store.columns import Array
from refold.store.moments import EVERYTHING, Filters, Moment
from refold.store.normalising import normalised
from refold.store.scanning import Ask, Match, Matches, asked, scan
from refold.store.scoring import NEAREST, SEED, Scoring

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
            message = f"top_k is {self.top_k}; give 0 or more"
            raise InvalidInput(message)
        return min(self.top_k, moment.count)


def answer(moment: Moment, query: Query, wish: Wish, *, asks_graph: bool) -> Matches:
    """Return the best rows for a query; with the moment's graph, if that is asked, as long as they are certain."""
    wish.scoring.check()
    top_k = wish.clamped(moment)
    ask = _asked(moment, query, _unit(moment, query), wish, top_k)
    if not top_k:
        return _NOTHING
    selection = moment.selection(wish.filters, wish.scoring.importance)
    found = certifying.certified(moment, ask, selection) if asks_graph else None
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
    found = certifying.nearest(moment, ask, wish.filters) if asks_graph else None
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
        message = f"extra scores of shape {extra.shape}; give a finite number for each of the {moment.count} rows"
        raise InvalidInput(message)
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
