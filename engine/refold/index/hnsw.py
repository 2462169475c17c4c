"""The graph of near rows: hnswlib behind a safe interface, and its bytes, which lie beside the log.

hnswlib trusts what it is given: one wrong link, and a search reads foreign memory. So these bytes have a checksum, and
whatever the checksum says, every number in them is checked before hnswlib sees one.
"""

import logging
import struct
import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from refold.errors import StoreCorrupt
from refold.index.columns import Array, Frame, Rows, product
from refold.limits import (
    GRAPH_BLOCK_ROWS,
    GRAPH_BREADTH_COUNT,
    GRAPH_BREADTH_COUNT_MAX,
    GRAPH_CONSTRUCTION_COUNT,
    GRAPH_LAYERS_COUNT_MAX,
    GRAPH_LINKS_COUNT,
    GRAPH_PROBES_COUNT,
    GRAPH_RECALL_RATIO_MIN,
    SCORED_ROWS,
)
from refold.text import blake2b

# The graph of near rows: hnswlib behind a door that lets through only what it is safe with.
#
# A graph is never changed. It is built over the rows of a moment, or over those of an older graph and what came
# since, and asked by any number of threads. hnswlib is loaded when the first graph is wanted; where it is not
# installed there is none, and every search is a pass over all rows.

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


_MAGIC: Final = b"refoldG\0"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sHBBIIIIQqIIIIQIQ")
"""Magic, version, exact, length of the model, dimensions, links, construction, breadth, seed, position, rows, entry,
layers above the lowest, twins; links in the lowest layer; lists above it; links above it."""

_DIGEST_BYTES: Final = 16
_LABEL_BYTES: Final = 8


class UnfitGraph(StoreCorrupt):
    """Bytes that are not a graph of these rows; the message says why. The graph has to be built."""


class _Head(NamedTuple):
    magic: bytes
    version: int
    is_exact: int
    model_bytes: int
    dimensions: int
    links: int
    construction: int
    breadth: int
    seed: int
    position: int
    rows: int
    entry: int
    layers: int
    twins: int
    lowest: int
    lists: int
    upper: int


class _Parts(NamedTuple):
    """The columns behind the head, in this order."""

    seqs: Array
    twin_seqs: Array
    lowest: Array
    upper: Array
    twin_labels: Array
    counts: Array
    list_counts: Array
    levels: Array


def _kinds(head: _Head) -> list[tuple[str, int]]:
    """Return the kind and the length of each column."""
    return [
        ("<i8", head.rows),
        ("<i8", head.twins),
        ("<u4", head.lowest),
        ("<u4", head.upper),
        ("<u4", head.twins),
        ("u1", head.rows),
        ("u1", head.lists),
        ("u1", head.rows),
    ]


# To bytes.


def packed(graph: Graph, sources: Array, model: str, position: int) -> bytes:
    """Return a graph as bytes that name its rows by the seqs of their vectors; links that are not in use are left out.

    Rows with the vector of one event, as a memory has whose keywords were changed, are named once.

    Two graphs with the same links give the same bytes.
    """
    state = graph.index.__getstate__()[0]
    levels = state["element_levels"][: len(graph.rows)]
    level0 = np.frombuffer(state["data_level0"], np.uint8).reshape(len(graph.rows), -1)
    counts, lowest = _unpadded(level0[:, : state["offset_data"]])
    above = np.frombuffer(state["link_lists"], np.uint8).reshape(-1, state["size_links_per_element"])
    list_counts, upper = _unpadded(above)
    twins = _named_twins(graph, sources)
    labels, names = (np.array([pair[place] for pair in twins], np.int64) for place in (0, 1))
    parts = _Parts(sources[graph.rows], names, lowest, upper, labels, counts, list_counts, levels)
    name = model.encode()
    head = _Head(
        magic=_MAGIC,
        version=_VERSION,
        is_exact=continues_exactly(),
        model_bytes=len(name),
        dimensions=int(graph.index.dim),
        links=GRAPH_LINKS_COUNT,
        construction=GRAPH_CONSTRUCTION_COUNT,
        breadth=graph.breadth,
        seed=SEED,
        position=position,
        rows=len(graph.rows),
        entry=int(state["enterpoint_node"]),
        layers=int(state["max_level"]),
        twins=len(twins),
        lowest=len(lowest),
        lists=len(list_counts),
        upper=len(upper),
    )
    columns = [part.astype(kind).tobytes() for part, (kind, _) in zip(parts, _kinds(head), strict=True)]
    body = b"".join([_HEAD.pack(*head), name, *columns])
    return body + _digest(body)


def _named_twins(graph: Graph, sources: Array) -> list[tuple[int, int]]:
    """Return label and seq of each twin whose seq is not that of its label, nor of a twin before it."""
    twins: list[tuple[int, int]] = []
    for label, rows in sorted(graph.twins.items()):
        own = int(sources[graph.rows[label]])
        twins += [(label, seq) for seq in dict.fromkeys(sources[rows].tolist()) if seq != own]
    return twins


def _unpadded(lines: Array) -> tuple[Array, Array]:
    """Return how many links each list has, and all in use; what hnswlib leaves behind them is of the past."""
    words = np.ascontiguousarray(lines).view("<u4")
    counts = words[:, 0] & 0xFFFF
    links = words[:, 1:]
    return counts, links[np.arange(links.shape[1]) < counts[:, None]]


def _digest(body: bytes | memoryview) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()


# From bytes.


def is_intact(blob: bytes) -> bool:
    """Return whether bytes are those that were packed, by this program or by another version of it."""
    return len(blob) > _DIGEST_BYTES and _digest(memoryview(blob)[:-_DIGEST_BYTES]) == blob[-_DIGEST_BYTES:]


def seqs_of(blob: bytes) -> Array:
    """Return the seqs of the rows that a packed graph names, sorted; raises ``UnfitGraph`` for other bytes."""
    _, _, parts = _split(blob)
    return np.sort(np.concatenate([parts.seqs, parts.twin_seqs]))


def names_of(blob: bytes) -> Array:
    """Return the seqs of the rows that a packed graph names, as they have to stand on a shelf that takes it."""
    _, _, parts = _split(blob)
    return np.concatenate([parts.seqs, parts.twin_seqs])


def unpacked(blob: bytes, frame: Frame, model: str) -> tuple[Graph, int]:
    """Return a graph over rows of a moment, and the seq at which it was packed.

    Raises ``UnfitGraph`` for anything but what ``packed`` gave for rows that are all there.
    """
    head, name, parts = _split(blob)
    hnswlib = library()
    if hnswlib is None:
        _refuse("hnswlib is not installed")
    if name != model.encode() or head.dimensions != frame.matrix.shape[1]:
        wanted = f"{model!r} with {frame.matrix.shape[1]}"
        _refuse(f"its vectors are of {name!r} with {head.dimensions} numbers, not of {wanted}")
    _check_links(head, parts)
    rows, twins = _places(parts, frame)
    graph = Graph(_index(hnswlib, head, parts, frame.matrix, rows), rows, twins, _end(rows, twins), head.breadth)
    missing = int(np.count_nonzero(frame.alive[: graph.end])) - _alive_count(frame, rows, twins)
    if missing:
        _refuse(f"{missing} rows before its last one are not in it")
    return graph, head.position


def _split(blob: bytes) -> tuple[_Head, bytes, _Parts]:
    """Return the head, the name of the model and the columns of a graph whose sizes and checksum are right."""
    if len(blob) < _HEAD.size + _DIGEST_BYTES:
        _refuse(f"{len(blob)} bytes are too few")
    head = _Head(*_HEAD.unpack_from(blob))
    if (head.magic, head.version) != (_MAGIC, _VERSION):
        _refuse(f"it begins with {head.magic!r}, version {head.version}")
    begin = _HEAD.size + head.model_bytes
    sizes = [np.dtype(kind).itemsize * count for kind, count in _kinds(head)]
    if begin + sum(sizes) + _DIGEST_BYTES != len(blob):
        _refuse(f"it has {len(blob)} bytes where its head tells of {begin + sum(sizes) + _DIGEST_BYTES}")
    if not is_intact(blob):
        _refuse("its checksum is wrong")
    name = blob[_HEAD.size : begin]
    columns: list[Array] = []
    for kind, count in _kinds(head):
        columns.append(np.frombuffer(blob, kind, count, begin))
        begin += columns[-1].nbytes
    return head, name, _Parts(*columns)


def _check_links(head: _Head, parts: _Parts) -> None:
    """Refuse whatever hnswlib would follow out of its memory."""
    counts, list_counts, levels = (
        column.astype(np.int64) for column in (parts.counts, parts.list_counts, parts.levels)
    )
    settings = (head.links, head.construction, head.seed) == (GRAPH_LINKS_COUNT, GRAPH_CONSTRUCTION_COUNT, SEED)
    wrong = {
        "its settings are not those of this program": not settings or head.is_exact > 1,
        "its breadth is out of bounds": not GRAPH_BREADTH_COUNT <= head.breadth <= GRAPH_BREADTH_COUNT_MAX,
        "it has no rows": head.rows == 0,
        "it has too many layers": head.layers > GRAPH_LAYERS_COUNT_MAX,
        "its levels are not those of its lists": levels.sum() != head.lists or levels.max(initial=0) != head.layers,
        "its entry is not in its highest layer": head.entry >= head.rows or levels[head.entry] != head.layers,
        "a row has too many links": counts.max(initial=0) > 2 * head.links,
        "a list has too many links": list_counts.max(initial=0) > head.links,
        "its links are not as many as are counted": counts.sum() != head.lowest or list_counts.sum() != head.upper,
        "a link leads to no row": max(parts.lowest.max(initial=0), parts.upper.max(initial=0)) >= head.rows,
        "a twin is of no row": parts.twin_labels.max(initial=0) >= max(head.rows, 1),
    }
    for reason, is_so in wrong.items():
        if is_so:
            _refuse(reason)
    if (levels[parts.upper] < _layers_of(levels).repeat(list_counts)).any():
        _refuse("a link leads to a row that is not in its layer")


def _layers_of(levels: Array) -> Array:
    """Return the layer of each list above the lowest: of a row with three of them 1, 2, 3."""
    begins = levels.cumsum() - levels
    layers: Array = np.arange(int(levels.sum())) - begins.repeat(levels) + 1
    return layers


def _places(parts: _Parts, frame: Frame) -> tuple[Rows, dict[int, list[int]]]:
    """Return the rows of the labels and of the twins; several rows of one seq are taken in their order."""
    seqs = np.concatenate([parts.seqs, parts.twin_seqs])
    order = np.lexsort((np.arange(len(seqs)), seqs))
    ordered = seqs[order]
    standing = np.argsort(frame.sources, kind="stable")
    known = frame.sources[standing]
    first = known.searchsorted(ordered)
    wanted = np.minimum(first + np.arange(len(ordered)) - ordered.searchsorted(ordered), len(known))
    found = np.append(known, -1)[wanted]
    if (found != ordered).any():
        _refuse(f"it names a row of seq {ordered[found != ordered][0]}, which is not on the shelf")
    places: Rows = np.empty(len(seqs), np.intp)
    places[order] = standing[wanted]
    rows = places[: len(parts.seqs)]
    if (np.diff(rows) <= 0).any():
        _refuse("its rows are not in order")
    twins: dict[int, list[int]] = {}
    for label, row in zip(parts.twin_labels.tolist(), places[len(rows) :].tolist(), strict=True):
        twins.setdefault(label, []).append(row)
    return rows, twins


def _twin_rows(twins: dict[int, list[int]]) -> Rows:
    return np.array([row for rows in twins.values() for row in rows], np.intp)


def _end(rows: Rows, twins: dict[int, list[int]]) -> int:
    return 1 + int(max(rows.max(), _twin_rows(twins).max(initial=0)))


def _alive_count(frame: Frame, rows: Rows, twins: dict[int, list[int]]) -> int:
    return int(np.count_nonzero(frame.alive[rows]) + np.count_nonzero(frame.alive[_twin_rows(twins)]))


def _index(hnswlib: Any, head: _Head, parts: _Parts, matrix: Array, rows: Rows) -> Any:
    """Return hnswlib's index of links that were checked."""
    state = empty(hnswlib, head.dimensions, 1).__getstate__()[0]
    lowest = _padded(parts.counts, parts.lowest, 2 * head.links)
    level0: Array = np.empty((head.rows, state["size_data_per_element"]), np.uint8)
    level0[:, : state["offset_data"]] = lowest.view(np.uint8)
    for begin in range(0, head.rows, SCORED_ROWS):
        part = slice(begin, begin + SCORED_ROWS)
        level0[part, state["offset_data"] : state["label_offset"]] = matrix[rows[part]].view(np.uint8)
    labels = np.arange(head.rows, dtype=np.uint64)
    level0[:, state["label_offset"] :] = labels.view(np.uint8).reshape(-1, _LABEL_BYTES)
    state.update(
        max_elements=head.rows,
        cur_element_count=head.rows,
        max_level=head.layers,
        enterpoint_node=head.entry,
        ep_added=True,
        seed=seed_after(head.rows),
        label_lookup_external=labels,
        label_lookup_internal=labels.astype(np.uint32),
        element_levels=parts.levels.astype(np.int32),
        data_level0=level0.reshape(-1).view(np.int8),
        link_lists=_padded(parts.list_counts, parts.upper, head.links).reshape(-1).view(np.int8),
    )
    return hnswlib.Index(state)


def _padded(counts: Array, links: Array, width: int) -> Array:
    """Return lists of links of equal length, each with its count before it."""
    lines: Array = np.zeros((len(counts), 1 + width), np.uint32)
    lines[:, 0] = counts
    lines[:, 1:][np.arange(width) < counts[:, None]] = links
    return lines


def _refuse(reason: str) -> NoReturn:
    raise UnfitGraph(f"a stored graph does not fit: {reason}; it is built anew")
