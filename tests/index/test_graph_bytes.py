"""Graphs as bytes: what was packed comes back; nothing else reaches hnswlib, which follows any link."""

import random
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from refold import StoreCorrupt
from refold.index import hnsw
from refold.index.hnsw import Graph, UnfitGraph, continues_exactly, seqs_of
from refold.index.search import Query, Wish
from refold.index.vectors import Crossover, Shelf
from tests.index.scan import BEGIN_NS, MODEL, WORDS, filled, needs_hnswlib, put, texts_like

DIMENSIONS = 16
ALWAYS = Crossover(1, 1)
TEN = Wish(now_ns=0, top_k=10)
POSITION = 4_711


def opened(dimensions: int = DIMENSIONS, model: str = MODEL) -> Shelf:
    return Shelf(dimensions, model, crossover=ALWAYS)


def grow(shelf: Shelf) -> None:
    shelf.nearest(np.ones(shelf.dimensions), TEN)
    shelf.settle()


@pytest.fixture(scope="module")
def packed() -> bytes:
    """A graph of 400 rows, of which ten are twins and forty were gone when it was built."""
    shelf = opened()
    fill(shelf)
    shelf.remove(1_000, range(100, 140))
    grow(shelf)
    blob = shelf.graph_to_bytes(POSITION)
    shelf.close()
    assert blob is not None
    return blob


def fill(shelf: Shelf) -> None:
    rows = filled(shelf, 430, 21)
    put(shelf, [replace(rows[place], place=430 + place, seq=500) for place in range(10)])


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    """A shelf with the same rows and no graph."""
    shelf = opened()
    fill(shelf)
    shelf.remove(1_000, range(100, 140))
    yield shelf
    shelf.close()


def resealed(blob: bytes) -> bytes:
    """The bytes with a checksum that is right."""
    body = blob[: -hnsw._DIGEST_BYTES]
    return body + hnsw._digest(body)


def flipped(blob: bytes, place: int, bits: int) -> bytes:
    return blob[:place] + bytes([blob[place] ^ bits]) + blob[place + 1 :]


@needs_hnswlib
def test_what_was_packed_comes_back(shelf: Shelf, packed: bytes) -> None:
    assert shelf.graph_from_bytes(packed) == POSITION
    assert shelf.graph_to_bytes(POSITION) == packed
    built = opened()
    fill(built)
    built.remove(1_000, range(100, 140))
    grow(built)
    for vector in texts_like(20, DIMENSIONS, 5):
        found = shelf.nearest(vector, TEN)
        assert not found.scanned
        assert found == built.nearest(vector, TEN)
    built.close()


@needs_hnswlib
def test_the_rows_that_a_graph_needs_are_told(shelf: Shelf, packed: bytes) -> None:
    assert seqs_of(packed).tolist() == [*range(1, 101), *range(141, 431), *[500] * 10]
    assert len(packed) / len(seqs_of(packed)) <= 200
    assert shelf.rows_of(seqs_of(packed)[:3]).tolist() == [0, 1, 2]


@needs_hnswlib
def test_a_graph_that_goes_on_is_the_one_that_is_built_at_once(shelf: Shelf, packed: bytes) -> None:
    """Checkpoint and tail give the bytes of a full rebuild; where the platform does not allow it, the bytes say so."""
    shelf.graph_from_bytes(packed)
    whole = opened()
    fill(whole)
    whole.remove(1_000, range(100, 140))
    for one in (shelf, whole):
        filled(one, 2_001, 22, first_seq=2_000)
        grow(one)
    resumed, rebuilt = shelf.graph_to_bytes(9_000), whole.graph_to_bytes(9_000)
    assert resumed is not None
    assert rebuilt is not None
    assert (resumed == rebuilt) == continues_exactly()
    assert hnsw._split(resumed)[0].is_exact == continues_exactly()
    assert len(seqs_of(resumed)) == 2_401
    whole.close()


@needs_hnswlib
def test_the_continuation_is_exact_on_linux() -> None:
    """libstdc++'s generator can be set to where it was; others have not been looked at."""
    if not sys.platform.startswith("linux"):
        pytest.skip("only libstdc++'s generator of levels is known")
    assert continues_exactly()


@needs_hnswlib
def test_any_flipped_byte_is_refused(shelf: Shelf, packed: bytes) -> None:
    places = sorted({*range(120), *range(0, len(packed), 11), *range(len(packed) - 40, len(packed))})
    for place in places:
        with pytest.raises(UnfitGraph, match=r"does not fit: .*; it is built anew"):
            shelf.graph_from_bytes(flipped(packed, place, 1 << place % 8))
    assert shelf.now().graph is None
    assert shelf.graph_from_bytes(packed) == POSITION


@needs_hnswlib
def test_any_truncation_is_refused(shelf: Shelf, packed: bytes) -> None:
    for size in [*range(140), *range(140, len(packed), 97), len(packed) - 1]:
        for blob in (packed[:size], resealed(packed[: size + 16])[:size]):
            with pytest.raises(UnfitGraph):
                shelf.graph_from_bytes(blob)
    with pytest.raises(UnfitGraph):
        shelf.graph_from_bytes(packed + b"\0")


@needs_hnswlib
@pytest.mark.parametrize("seed", range(4))
def test_with_a_right_checksum_damage_is_refused_or_harmless(shelf: Shelf, packed: bytes, seed: int) -> None:
    """What gets through is only another graph: it may find less, and it never reads what is not its own."""
    draw = random.Random(seed)
    taken = 0
    for _ in range(250):
        blob = packed
        for _ in range(draw.choice([1, 1, 4])):
            place = draw.choice(
                [draw.randrange(len(packed)), draw.randrange(110), len(packed) - 1 - draw.randrange(900)]
            )
            blob = flipped(blob, place, draw.randrange(1, 256))
        try:
            shelf.graph_from_bytes(resealed(blob))
        except UnfitGraph:
            continue
        taken += 1
        for vector in texts_like(3, DIMENSIONS, taken):
            shelf.nearest(vector, TEN)
            shelf.search(Query(vector, WORDS[:2]), Wish(now_ns=BEGIN_NS))
    assert 0 < taken < 250


def changed(blob: bytes, **fields: int | bytes) -> bytes:
    """The bytes with other fields in their head, and a checksum that is right."""
    head = hnsw._Head(*hnsw._HEAD.unpack_from(blob))._replace(**fields)  # type: ignore[arg-type]
    return resealed(hnsw._HEAD.pack(*head) + blob[hnsw._HEAD.size :])


@needs_hnswlib
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"magic": b"refoldX\0"}, "it begins with b'refoldX"),
        ({"version": 2}, "version 2"),
        ({"rows": 2**32 - 1}, "where its head tells of"),
        ({"entry": 2**32 - 1}, "its entry"),
        ({"entry": 390}, "its entry"),
        ({"layers": 70}, "too many layers"),
        ({"layers": 9}, "its levels"),
        ({"links": 128}, "its settings"),
        ({"seed": 7}, "its settings"),
        ({"breadth": 10}, "its breadth"),
        ({"breadth": 10**6}, "its breadth"),
        ({"dimensions": 384}, "of b'test-model' with 384 numbers"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(
    shelf: Shelf, packed: bytes, fields: dict[str, int | bytes], reason: str
) -> None:
    with pytest.raises(UnfitGraph, match=reason):
        shelf.graph_from_bytes(changed(packed, **fields))


@needs_hnswlib
def test_a_link_out_of_its_layer_is_refused(shelf: Shelf, packed: bytes) -> None:
    """hnswlib would look for a list that the row does not have: behind its memory."""
    head, name, parts = hnsw._split(packed)
    ground = int(np.flatnonzero(parts.levels == 0)[0])
    upper = parts.upper.copy()
    upper[0] = ground
    columns = [part.tobytes() for part in parts._replace(upper=upper)]
    with pytest.raises(UnfitGraph, match="not in its layer"):
        shelf.graph_from_bytes(resealed(b"".join([hnsw._HEAD.pack(*head), name, *columns, bytes(16)])))


@needs_hnswlib
def test_a_graph_of_other_rows_is_refused(packed: bytes) -> None:
    for dimensions, model, reason in ((8, MODEL, "with 16 numbers"), (DIMENSIONS, "other", "not of 'other'")):
        with pytest.raises(UnfitGraph, match=reason):
            opened(dimensions, model).graph_from_bytes(packed)
    fewer = opened()
    filled(fewer, 430, 21)
    with pytest.raises(UnfitGraph, match="row of seq 500, which is not on the shelf"):
        fewer.graph_from_bytes(packed)
    unaware = opened()
    fill(unaware)
    with pytest.raises(UnfitGraph, match="40 rows before its last one are not in it"):
        unaware.graph_from_bytes(packed)
    assert issubclass(UnfitGraph, StoreCorrupt)


@needs_hnswlib
def test_without_hnswlib_no_graph_comes_back(shelf: Shelf, packed: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hnswlib", None)
    with pytest.raises(UnfitGraph, match="hnswlib is not installed"):
        shelf.graph_from_bytes(packed)


@needs_hnswlib
def test_a_graph_that_came_back_is_built_on(shelf: Shelf, packed: bytes) -> None:
    shelf.graph_from_bytes(packed)
    filled(shelf, 2_500, 31, first_seq=2_000)
    grow(shelf)
    graph = shelf.now().graph
    assert isinstance(graph, Graph)
    assert graph.covered == 400 + 2_500
    exact = [shelf.nearest(vector, TEN, exact=True) for vector in texts_like(20, DIMENSIONS, 6)]
    found = [shelf.nearest(vector, TEN) for vector in texts_like(20, DIMENSIONS, 6)]
    pairs = zip(found, exact, strict=True)
    common = [len({hit.row for hit in one.hits} & {hit.row for hit in other.hits}) for one, other in pairs]
    assert sum(common) >= 0.98 * 200
