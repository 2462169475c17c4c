"""The graph of near rows: hnswlib behind a door that lets through only what it is safe with.

A graph is never changed. It is built over the rows of a moment, or over those of an older graph and what came since,
and asked by any number of threads. hnswlib is loaded when the first graph is wanted; where it is not installed there
is none, and every search is a pass over all rows.
"""

import logging
import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from refold.limits import (
    GRAPH_BLOCK_ROWS,
    GRAPH_BREADTH_COUNT,
    GRAPH_BREADTH_COUNT_MAX,
    GRAPH_CONSTRUCTION_COUNT,
    GRAPH_LINKS_COUNT,
    GRAPH_PROBES_COUNT,
    GRAPH_RECALL_RATIO_MIN,
)
from refold.rank.products import product
from refold.store.columns import Array, Rows

SEED: Final = 100
"""Where hnswlib's generator of levels begins."""

_MODULUS: Final = 2**31 - 1
_MULTIPLIER: Final = 16_807
_DRAWS: Final = 2
"""libstdc++'s default generator, and how often a new row asks it."""

_PROBED_NEIGHBOURS: Final = 10

_PRODUCT_ERROR: Final = 1e-5
"""By how much two products of the same vectors may differ."""

_logger = logging.getLogger("refold")
_told = threading.Event()


def library() -> Any:
    """Return hnswlib, or ``None`` where it is not installed, which is said once."""
    try:
        return import_module("hnswlib")
    except ImportError as error:
        if not _told.is_set():
            _told.set()
            _logger.warning(
                "hnswlib cannot be loaded (%s): every search passes over all rows, which is exact and slower; "
                "install refold[hnsw]",
                error,
            )
        return None


class Graph:
    """An immutable graph over the rows before ``end``; those that were gone when it was built are not in it.

    Of rows with the same vector one stands for all: many equal vectors would tear the graph apart.
    """

    __slots__ = ("_is_broken", "breadth", "end", "index", "rows", "twins")

    def __init__(self, index: Any, rows: Rows, twins: dict[int, list[int]], end: int, breadth: int) -> None:
        self.index = index
        self.rows = rows
        """The row of each label; labels count from 0 in the order of the rows."""
        self.twins = twins
        """By label, the later rows with the same vector."""
        self.end = end
        self.breadth = breadth
        """How many candidates a search keeps, so that it finds nearly all of the nearest ones."""
        self._is_broken = False

    @property
    def covered(self) -> int:
        """Return how many rows it holds."""
        return len(self.rows) + sum(map(len, self.twins.values()))

    @property
    def nbytes(self) -> int:
        """Return about what it takes in RAM: hnswlib holds the vectors again."""
        return 2_500_000 + len(self.rows) * (4 * int(self.index.dim) + 20 * GRAPH_LINKS_COUNT)

    def near(self, vector: Array, width: int) -> tuple[Rows, Array] | None:
        """Return about so many nearest rows with their cosines, nearest first; ``None`` if the graph does not hold.

        hnswlib raises, and leaks, where it reaches fewer rows than are asked for. No more are asked for than there are;
        a graph that is torn nevertheless is never asked again.
        """
        if self._is_broken:
            return None
        # The width of the search is its k: hnswlib's own setting is one for all threads.
        try:
            labels, distances = self.index.knn_query(vector, k=max(1, min(width, len(self.rows))), num_threads=1)
        except RuntimeError as error:
            self._is_broken = True
            _logger.warning("a graph of %d rows is torn (%s) and is not asked again", len(self.rows), error)
            return None
        return self._with_twins(labels[0], np.float32(1.0) - distances[0])

    def _with_twins(self, labels: Array, cosines: Array) -> tuple[Rows, Array]:
        rows = self.rows[labels.view(np.int64)]
        if not self.twins:
            return rows, cosines
        pairs = [
            (self.twins[label], cosine)
            for label, cosine in zip(labels.tolist(), cosines, strict=True)
            if label in self.twins
        ]
        more = [(row, cosine) for twins, cosine in pairs for row in twins]
        if not more:
            return rows, cosines
        others, theirs = zip(*more, strict=True)
        return np.concatenate([rows, np.array(others, np.intp)]), np.concatenate([cosines, np.array(theirs)])


def built(matrix: Array, alive: Array, base: Graph | None, is_wanted: Callable[[], bool]) -> Graph | None:
    """Return a graph over the rows that are alive; with a base, over its rows and all that came behind them.

    ``None`` if it is no longer wanted while it is built, if hnswlib is not there, or if the graph would find too few
    of the nearest rows: then there is none that is worth asking.
    """
    hnswlib = library()
    if hnswlib is None:
        return None
    begin = 0 if base is None else base.end
    fresh = begin + np.flatnonzero(alive[begin:])
    labelled, twins = _sorted_out(matrix, fresh, base)
    first = 0 if base is None else len(base.rows)
    if first + len(labelled) == 0:
        return None
    index = _started(hnswlib, matrix.shape[1], first + len(labelled), base)
    for place in range(0, len(labelled), GRAPH_BLOCK_ROWS):
        if not is_wanted():
            return None
        part = labelled[place : place + GRAPH_BLOCK_ROWS]
        labels = np.arange(first + place, first + place + len(part))
        index.add_items(matrix[part], labels, num_threads=1)
    rows = labelled if base is None else np.concatenate([base.rows, labelled])
    return _probed(Graph(index, rows, twins, len(alive), GRAPH_BREADTH_COUNT), matrix)


def _sorted_out(matrix: Array, fresh: Rows, base: Graph | None) -> tuple[Rows, dict[int, list[int]]]:
    """Return those of the rows that get a label, and the twins of all labels."""
    known: list[int] = [] if base is None else base.rows.tolist()
    # Two vectors with one hash would be taken for equal: it takes 2**32 rows to meet such a pair.
    labels = {hash(matrix[row].tobytes()): label for label, row in enumerate(known)}
    twins = {} if base is None else {label: list(rows) for label, rows in base.twins.items()}
    labelled: list[int] = []
    for row in fresh.tolist():
        label = labels.setdefault(hash(matrix[row].tobytes()), len(labels))
        if label == len(known) + len(labelled):
            labelled.append(row)
        else:
            twins.setdefault(label, []).append(row)
    return np.array(labelled, np.intp), twins


def _started(hnswlib: Any, dimensions: int, capacity: int, base: Graph | None) -> Any:
    """Return an index with room for so many rows: empty, or with a copy of the base."""
    if base is None:
        return empty(hnswlib, dimensions, capacity)
    state = base.index.__getstate__()[0]
    state["max_elements"] = capacity
    state["seed"] = seed_after(len(base.rows))
    return hnswlib.Index(state)


def empty(hnswlib: Any, dimensions: int, capacity: int) -> Any:
    """Return an empty index."""
    index = hnswlib.Index(space="ip", dim=dimensions)
    index.init_index(capacity, M=GRAPH_LINKS_COUNT, ef_construction=GRAPH_CONSTRUCTION_COUNT, random_seed=SEED)
    return index


def seed_after(count: int) -> int:
    """Return the seed with which a generator goes on where that of an index of so many rows stands.

    hnswlib does not keep the generator's state. libstdc++'s multiplies by a constant, so its state after any number of
    draws is known, and a seed sets the state.
    """
    return SEED * pow(_MULTIPLIER, _DRAWS * count, _MODULUS) % _MODULUS


@cache
def continues_exactly() -> bool:
    """Return whether a graph that goes on from a copy is, on this platform, the one that was built at once."""
    hnswlib = library()
    if hnswlib is None:
        return False
    vectors = np.random.default_rng(SEED).standard_normal((64, 8), np.float32)
    alive: Array = np.ones(len(vectors), np.bool_)
    whole = empty(hnswlib, 8, 64)
    whole.add_items(vectors, num_threads=1)
    half = empty(hnswlib, 8, 32)
    half.add_items(vectors[:32], num_threads=1)
    resumed = _started(hnswlib, 8, len(alive), Graph(half, np.arange(32), {}, 32, GRAPH_BREADTH_COUNT))
    resumed.add_items(vectors[32:], np.arange(32, 64), num_threads=1)
    one, other = (index.__getstate__()[0]["element_levels"] for index in (whole, resumed))
    return bool(np.array_equal(one, other))


def _probed(graph: Graph, matrix: Array) -> Graph | None:
    """Return the graph with the breadth that finds enough of the nearest rows; ``None`` if none does."""
    places = np.linspace(0, len(graph.rows) - 1, min(GRAPH_PROBES_COUNT, len(graph.rows))).astype(np.intp)
    # Between two rows each: a stored row is found more easily than what users ask for.
    queries = matrix[graph.rows[places]] + np.float32(0.9) * matrix[graph.rows[places[::-1]]]
    wanted = min(_PROBED_NEIGHBOURS, len(graph.rows))
    bounds = _kth_products(matrix, graph, queries, wanted)
    while True:
        found = [_reaching(graph, query, bound, wanted) for query, bound in zip(queries, bounds, strict=True)]
        if sum(found) >= GRAPH_RECALL_RATIO_MIN * wanted * len(queries):
            return graph
        graph.breadth *= 2
        if graph.breadth > GRAPH_BREADTH_COUNT_MAX:
            _logger.warning(
                "a graph of %d rows finds %d of %d nearest rows and is not used; every search passes over all rows",
                len(graph.rows),
                sum(found),
                wanted * len(queries),
            )
            return None


def _kth_products(matrix: Array, graph: Graph, queries: Array, wanted: int) -> Array:
    """Return for each query the product of the last of its nearest labelled rows."""
    kept: list[Array] = []
    for begin in range(0, len(graph.rows), 16 * GRAPH_BLOCK_ROWS):
        part = product(queries, matrix[graph.rows[begin : begin + 16 * GRAPH_BLOCK_ROWS]].T)
        count = min(wanted, part.shape[1])
        kept.append(np.partition(part, part.shape[1] - count, axis=1)[:, part.shape[1] - count :])
    return np.sort(np.concatenate(kept, axis=1), axis=1)[:, -wanted]


def _reaching(graph: Graph, query: Array, bound: np.float32, wanted: int) -> int:
    """Return how many of the nearest rows the graph finds: those whose product reaches the last one's."""
    found = graph.index.knn_query(query, k=min(graph.breadth, len(graph.rows)), num_threads=1)[1][0]
    return min(wanted, int(np.count_nonzero(1.0 - found >= bound - _PRODUCT_ERROR)))
