"""The nearest-neighbour graph: a safe interface to hnswlib, and the graph's bytes, which a table of the store holds.

hnswlib trusts its input: one wrong link, and a search reads foreign memory. The bytes therefore have a checksum, and
even if it is right, every number in them is checked before hnswlib sees any of them.
"""

from collections.abc import Callable
from copy import copy
from functools import cache
from importlib import import_module
from typing import Any, Final, NoReturn

import msgspec
import numpy as np

from refold.errors import StoreCorrupt, logger
from refold.index.columns import Array, Rows, product
from refold.text import blake2b

# A graph never changes. It is built over the rows of a view, or over the rows of an older graph and those added since,
# and any number of threads can search it. hnswlib is loaded when the first graph is built; if it is not installed,
# there is no graph, and every search is a pass over all rows.

_LINKS: Final = 16  # Maximum links of a row in each layer above the lowest, which has room for twice as many.
# Candidates compared while a graph is built; twice as many cost 1.6 times the time for 0.001 more recall.
_CONSTRUCTION: Final = 100
BREADTH_MIN: Final = 100  # Minimum number of candidates that a search in a graph keeps.
BREADTH_MAX: Final = 800  # A graph that needs more candidates than this to find the nearest rows is not used.
RECALL_MIN: Final = 0.98  # The share of the nearest rows that a graph must find.
_PROBES: Final = 32  # Queries that test a new graph; each asks for `_PROBE_NEIGHBOURS` rows.
_PROBE_NEIGHBOURS: Final = 10
_BLOCK_ROWS: Final = 512  # Rows added to a graph between two checks that it is still needed.
_COPIED_ROWS: Final = 4_096  # Vectors copied at a time into a graph that is restored.
_LAYERS_MAX: Final = 64  # Maximum layers of a graph; a graph of 2**31 rows has eight.
_PRODUCT_ERROR: Final = 1e-5  # Maximum difference between two products of the same vectors.


def library() -> Any:
    """Import hnswlib; if it cannot be imported, warn once and return `None`."""
    try:
        return import_module("hnswlib")
    except ImportError as error:
        _warn_once(str(error))
        return None


@cache
def _warn_once(error: str) -> None:
    logger().warning(
        "hnswlib cannot be loaded (%s): every search passes over all rows, which is exact and slower; "
        "install refold[hnsw]",
        error,
    )


class Graph:
    """An immutable graph over the rows before `end` that were alive when it was built.

    It contains only one of several rows with the same vector, because many equal vectors would tear the graph apart.
    """

    __slots__ = ("_is_torn", "breadth", "end", "index", "rows", "twins")

    def __init__(self, index: Any, rows: Rows, twins: dict[int, list[int]], end: int, breadth: int) -> None:
        self.index = index
        self.rows = rows  # The row of each label; labels count from 0 in the order of the rows.
        self.twins = twins  # By label, the later rows with the same vector.
        self.end = end
        self.breadth = breadth  # Candidates that a search keeps in order to find nearly all of the nearest rows.
        self._is_torn = False

    @property
    def row_count(self) -> int:
        """The number of rows, twins included."""
        return len(self.rows) + sum(map(len, self.twins.values()))

    @property
    def nbytes(self) -> int:
        """Approximate bytes in RAM; hnswlib copies the vectors."""
        return 2_500_000 + len(self.rows) * (4 * int(self.index.dim) + 20 * _LINKS)

    def search(self, vector: Array, width: int) -> tuple[Rows, Array] | None:
        """Find about `width` nearest rows and their cosines, nearest first, twins last; `None` if the graph is torn.

        hnswlib raises, and leaks, if it reaches fewer rows than requested. A graph that raises is never searched again.
        """
        if self._is_torn:
            return None
        # `k` sets the width of this search; hnswlib's own setting is shared by all threads.
        try:
            labels, distances = self.index.knn_query(vector, k=max(1, min(width, len(self.rows))), num_threads=1)
        except RuntimeError as error:
            self._is_torn = True
            logger().warning("a graph of %d rows is torn (%s) and is not asked again", len(self.rows), error)
            return None
        cosines = np.float32(1.0) - distances[0]
        rows = self.rows[labels[0].view(np.int64)]
        if not self.twins:
            return rows, cosines
        pairs = zip(labels[0].tolist(), cosines, strict=True)
        more = [(row, cosine) for label, cosine in pairs for row in self.twins.get(label, ())]
        if not more:
            return rows, cosines
        others, theirs = zip(*more, strict=True)
        return np.concatenate([rows, np.array(others, np.intp)]), np.concatenate([cosines, np.array(theirs)])


def build(matrix: Array, alive: Array, base: Graph | None, is_needed: Callable[[], bool]) -> Graph | None:
    """Build a graph over the rows that are alive; with a base, over its rows and all live rows behind them.

    Returns `None` as soon as `is_needed` returns false, if hnswlib is missing, if there are no rows, and if the graph
    finds too few of the nearest rows.
    """
    hnswlib = library()
    if hnswlib is None:
        return None
    begin = 0 if base is None else base.end
    fresh = begin + np.flatnonzero(alive[begin:])
    labelled, twins = _split_twins(matrix, fresh, base)
    first = 0 if base is None else len(base.rows)
    if first + len(labelled) == 0:
        return None
    if base is None:
        index = _new_index(hnswlib, matrix.shape[1], len(labelled))
    else:
        index = copy(base.index)
        index.resize_index(first + len(labelled))
    for place in range(0, len(labelled), _BLOCK_ROWS):
        if not is_needed():
            return None
        part = labelled[place : place + _BLOCK_ROWS]
        index.add_items(matrix[part], np.arange(first + place, first + place + len(part)), num_threads=1)
    rows = labelled if base is None else np.concatenate([base.rows, labelled])
    return _probe(Graph(index, rows, twins, len(alive), BREADTH_MIN), matrix)


def _split_twins(matrix: Array, fresh: Rows, base: Graph | None) -> tuple[Rows, dict[int, list[int]]]:
    """Split rows into those that get a label and the twins of labelled rows."""
    known: list[int] = [] if base is None else base.rows.tolist()
    # Two vectors with the same hash are taken for equal; a collision takes about 2**32 rows.
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


def _new_index(hnswlib: Any, dimensions: int, capacity: int) -> Any:
    index = hnswlib.Index(space="ip", dim=dimensions)
    index.init_index(capacity, M=_LINKS, ef_construction=_CONSTRUCTION)
    return index


def _probe(graph: Graph, matrix: Array) -> Graph | None:
    """Widen the graph's breadth until it finds enough of the nearest rows; return `None` if no breadth does."""
    places = np.linspace(0, len(graph.rows) - 1, min(_PROBES, len(graph.rows))).astype(np.intp)
    # Each query lies between two rows, because a stored row is found more easily than a user's query.
    queries = matrix[graph.rows[places]] + np.float32(0.9) * matrix[graph.rows[places[::-1]]]
    depth = min(_PROBE_NEIGHBOURS, len(graph.rows))
    # A nearest row counts as found if the graph returns a row whose product reaches that of the last of the nearest.
    bounds = _kth_products(matrix, graph, queries, depth) - _PRODUCT_ERROR
    while True:
        recalled = 0
        for query, bound in zip(queries, bounds, strict=True):
            distances = graph.index.knn_query(query, k=min(graph.breadth, len(graph.rows)), num_threads=1)[1][0]
            recalled += min(depth, int(np.count_nonzero(1.0 - distances >= bound)))
        if recalled >= RECALL_MIN * depth * len(queries):
            return graph
        graph.breadth *= 2
        if graph.breadth > BREADTH_MAX:
            logger().warning(
                "a graph of %d rows finds %d of %d nearest rows and is not used; every search passes over all rows",
                len(graph.rows),
                recalled,
                depth * len(queries),
            )
            return None


def _kth_products(matrix: Array, graph: Graph, queries: Array, depth: int) -> Array:
    best: list[Array] = []
    for begin in range(0, len(graph.rows), 16 * _BLOCK_ROWS):
        part = product(queries, matrix[graph.rows[begin : begin + 16 * _BLOCK_ROWS]].T)
        count = min(depth, part.shape[1])
        best.append(np.partition(part, part.shape[1] - count, axis=1)[:, part.shape[1] - count :])
    return np.sort(np.concatenate(best, axis=1), axis=1)[:, -depth]


_MAGIC: Final = b"refoldG\x02"
_DIGEST_BYTES: Final = 16


class UnfitGraph(StoreCorrupt):
    """A stored graph that does not belong to these rows; the graph has to be built."""


class _PackedGraph(msgspec.Struct, frozen=True, array_like=True):
    """A graph as it is stored, its rows identified by the seqs of the events that carry their vectors."""

    name: str
    dimensions: int
    breadth: int
    position: int
    entry: int
    layers: int
    seqs: bytes  # int64, one for each label.
    twin_labels: bytes  # uint32, each with an int64 in `twin_seqs`.
    twin_seqs: bytes
    levels: bytes  # uint8, for each label: the number of layers above the lowest that it is in.
    lowest: bytes  # uint32, for each label: the number of its links, then the links, padded with zeros.
    upper: bytes  # The same for each label in each layer above the lowest.


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(_PackedGraph).decode


def pack(graph: Graph, sources: Array, name: str, position: int) -> bytes:
    """Encode a graph; `sources` are the seqs of the events that carry the rows' vectors.

    Rows that share the vector of one event, as after a change of a memory's keywords, are named once. Two graphs with
    the same links encode to the same bytes.
    """
    state = graph.index.__getstate__()[0]
    level0 = np.frombuffer(state["data_level0"], np.uint8).reshape(len(graph.rows), -1)
    above = np.frombuffer(state["link_lists"], np.uint8).reshape(-1, state["size_links_per_element"])
    twins = [
        (label, seq)
        for label, rows in sorted(graph.twins.items())
        for seq in dict.fromkeys(sources[rows].tolist())
        if seq != int(sources[graph.rows[label]])
    ]
    packed = _PackedGraph(
        name,
        int(graph.index.dim),
        graph.breadth,
        position,
        int(state["enterpoint_node"]),
        int(state["max_level"]),
        sources[graph.rows].astype("<i8").tobytes(),
        np.array([label for label, _ in twins], "<u4").tobytes(),
        np.array([seq for _, seq in twins], "<i8").tobytes(),
        state["element_levels"][: len(graph.rows)].astype(np.uint8).tobytes(),
        _clear_stale(level0[:, : state["offset_data"]]),
        _clear_stale(above),
    )
    body = _MAGIC + _ENCODE(packed)
    return body + _digest(body)


def _clear_stale(lists: Array) -> bytes:
    """Zero the stale values that hnswlib leaves behind the links in use."""
    lines = np.ascontiguousarray(lists).view("<u4").copy()
    lines[:, 0] &= 0xFFFF
    lines[:, 1:][np.arange(lines.shape[1] - 1) >= lines[:, :1]] = 0
    return lines.tobytes()


def _digest(body: bytes | memoryview) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()


def is_intact(blob: bytes) -> bool:
    """Check the digest of a packed graph of any version."""
    return len(blob) > _DIGEST_BYTES and _digest(memoryview(blob)[:-_DIGEST_BYTES]) == blob[-_DIGEST_BYTES:]


def seqs_of(blob: bytes) -> Array:
    """Return the seqs of the rows in a packed graph, in the order that a table needs."""
    packed = _unpack(blob)
    return np.concatenate([np.frombuffer(packed.seqs, "<i8"), np.frombuffer(packed.twin_seqs, "<i8")])


def unpack(blob: bytes, name: str, matrix: Array, sources: Array, alive: Array) -> Graph:
    """Decode a graph over the rows of a view.

    Raises `UnfitGraph` unless the bytes are the result of `pack` and all of their rows are present, and if hnswlib is
    missing.
    """
    packed = _unpack(blob)
    hnswlib = library()
    if hnswlib is None:
        _refuse("hnswlib is not installed")
    if (packed.name, packed.dimensions) != (name, matrix.shape[1]):
        expected = f"{name!r} with {matrix.shape[1]}"
        _refuse(f"its vectors are of {packed.name!r} with {packed.dimensions} numbers, not of {expected}")
    levels = np.frombuffer(packed.levels, np.uint8).astype(np.int64)
    lowest = np.frombuffer(packed.lowest, "<u4").reshape(-1, 1 + 2 * _LINKS)
    upper = np.frombuffer(packed.upper, "<u4").reshape(-1, 1 + _LINKS)
    labels = np.frombuffer(packed.twin_labels, "<u4")
    _check_links(packed, levels, lowest, upper, labels)
    places = _places(seqs_of(blob), sources)
    rows, twin_rows = places[: len(levels)], places[len(levels) :]
    if (np.diff(rows) <= 0).any():
        _refuse("its rows are not in order")
    twins: dict[int, list[int]] = {}
    for label, row in zip(labels.tolist(), twin_rows.tolist(), strict=True):
        twins.setdefault(label, []).append(row)
    end = 1 + int(places.max())
    missing = int(np.count_nonzero(alive[:end])) - int(np.count_nonzero(alive[places]))
    if missing:
        _refuse(f"{missing} rows before its last one are not in it")
    return Graph(_index(hnswlib, packed, matrix, rows), rows, twins, end, packed.breadth)


def _unpack(blob: bytes) -> _PackedGraph:
    if not blob.startswith(_MAGIC):
        _refuse(f"it begins with {blob[: len(_MAGIC)]!r}")
    if not is_intact(blob):
        _refuse("its checksum is wrong")
    try:
        packed = _DECODE(blob[len(_MAGIC) : -_DIGEST_BYTES])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _refuse(str(error))
    rows, twins = len(packed.levels), len(packed.twin_labels) // 4
    sizes = (8 * rows, 4 * twins, 8 * twins, 4 * rows * (1 + 2 * _LINKS), 4 * sum(packed.levels) * (1 + _LINKS))
    parts = (packed.seqs, packed.twin_labels, packed.twin_seqs, packed.lowest, packed.upper)
    if sizes != tuple(map(len, parts)):
        _refuse(f"its parts are of {', '.join(str(len(part)) for part in parts)} bytes, for {rows} rows")
    return packed


def _check_links(packed: _PackedGraph, levels: Array, lowest: Array, upper: Array, twin_labels: Array) -> None:
    """Refuse every value that would make hnswlib access memory out of bounds."""
    rows = len(levels)
    is_entry = 0 <= packed.entry < rows
    wrong = {
        "its breadth is out of bounds": not BREADTH_MIN <= packed.breadth <= BREADTH_MAX,
        "it has no rows": rows == 0,
        "it has too many layers": packed.layers > _LAYERS_MAX,
        "its levels are not those of its layers": levels.max(initial=0) != packed.layers,
        "its entry is not in its highest layer": not is_entry or levels[packed.entry] != packed.layers,
        "a row has too many links": lowest[:, 0].max(initial=0) > 2 * _LINKS,
        "a list has too many links": upper[:, 0].max(initial=0) > _LINKS,
        "a link leads to no row": max(lowest[:, 1:].max(initial=0), upper[:, 1:].max(initial=0)) >= max(rows, 1),
        "a twin is of no row": twin_labels.max(initial=0) >= max(rows, 1),
    }
    for reason, is_so in wrong.items():
        if is_so:
            _refuse(reason)
    # The layers of the lists above the lowest, such as 1, 2, 3 for a row with three of them.
    layers = np.arange(len(upper)) - (levels.cumsum() - levels).repeat(levels) + 1
    is_link = np.arange(_LINKS) < upper[:, :1]
    if (is_link & (levels[upper[:, 1:]] < layers[:, None])).any():
        _refuse("a link leads to a row that is not in its layer")


def _places(seqs: Array, sources: Array) -> Rows:
    """Find the rows whose vectors come from the events at `seqs`; rows with the same seq keep their order."""
    order = np.lexsort((np.arange(len(seqs)), seqs))
    ordered = seqs[order]
    by_seq = np.argsort(sources, kind="stable")
    known = sources[by_seq]
    nearest = np.minimum(known.searchsorted(ordered) + np.arange(len(seqs)) - ordered.searchsorted(ordered), len(known))
    is_missing = np.append(known, -1)[nearest] != ordered
    if is_missing.any():
        _refuse(f"it names a row of seq {ordered[is_missing][0]}, which is not in the table")
    places: Rows = np.empty(len(seqs), np.intp)
    places[order] = by_seq[nearest]
    return places


def _index(hnswlib: Any, packed: _PackedGraph, matrix: Array, rows: Rows) -> Any:
    state = _new_index(hnswlib, packed.dimensions, 1).__getstate__()[0]
    count, vectors_begin, labels_begin = len(rows), state["offset_data"], state["label_offset"]
    level0: Array = np.empty((count, state["size_data_per_element"]), np.uint8)
    level0[:, :vectors_begin] = np.frombuffer(packed.lowest, np.uint8).reshape(count, vectors_begin)
    for begin in range(0, count, _COPIED_ROWS):
        part = slice(begin, begin + _COPIED_ROWS)
        level0[part, vectors_begin:labels_begin] = matrix[rows[part]].view(np.uint8)
    labels = np.arange(count, dtype=np.uint64)
    level0[:, labels_begin:] = labels.view(np.uint8).reshape(count, -1)
    state.update(
        max_elements=count,
        cur_element_count=count,
        max_level=packed.layers,
        enterpoint_node=packed.entry,
        ep_added=True,
        label_lookup_external=labels,
        label_lookup_internal=labels.astype(np.uint32),
        element_levels=np.frombuffer(packed.levels, np.uint8).astype(np.int32),
        data_level0=level0.reshape(-1).view(np.int8),
        link_lists=np.frombuffer(packed.upper, np.int8),
    )
    return hnswlib.Index(state)


def _refuse(reason: str) -> NoReturn:
    raise UnfitGraph(f"a stored graph does not fit: {reason}; it is built anew")
