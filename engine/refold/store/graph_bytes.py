"""A graph without its vectors as bytes, and back: what may lie beside the log, in one transaction with its position.

hnswlib trusts what it is given: one wrong link, and a search reads foreign memory. So these bytes have a checksum, and
whatever the checksum says, every number in them is checked before hnswlib sees one.
"""

import struct
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from refold.errors import StoreCorrupt
from refold.hashing import blake2b
from refold.limits import (
    GRAPH_BREADTH_COUNT,
    GRAPH_BREADTH_COUNT_MAX,
    GRAPH_CONSTRUCTION_COUNT,
    GRAPH_LAYERS_COUNT_MAX,
    GRAPH_LINKS_COUNT,
    SCORED_ROWS,
)
from refold.store.columns import Array, Rows
from refold.store.graph import SEED, Graph, continues_exactly, empty, library, seed_after
from refold.store.moments import Frame

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
    message = f"a stored graph does not fit: {reason}; it is built anew"
    raise UnfitGraph(message)
