"""Graphs as bytes: what was packed comes back; nothing else reaches hnswlib, which follows any link."""

import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from refold import StoreCorrupt
from refold.index import hnsw
from refold.index.hnsw import Graph, UnfitGraph, seqs_of
from refold.index.ranking import Query
from refold.index.table import Crossover, VectorTable
from tests.index.scan import BEGIN_NS, MODEL, WORDS, ask, filled, near, needs_hnswlib, put, searched, texts_like

DIMENSIONS = 16
ALWAYS = Crossover(1, 1)
TEN = Query(now_ns=0, top_k=10)
POSITION = 4_711


def opened(dimensions: int = DIMENSIONS, model: str = MODEL) -> VectorTable:
    return VectorTable(dimensions, model, crossover=ALWAYS)


def grow(shelf: VectorTable) -> None:
    near(shelf, np.ones(shelf.dimensions), TEN)
    shelf.builder.wait()


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


def fill(shelf: VectorTable) -> None:
    rows = filled(shelf, 430, 21)
    put(shelf, [replace(rows[place], place=430 + place, seq=500) for place in range(10)])


@pytest.fixture
def shelf() -> Iterator[VectorTable]:
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
def test_what_was_packed_comes_back(shelf: VectorTable, packed: bytes) -> None:
    shelf.graph_from_bytes(packed)
    assert shelf.graph_to_bytes(POSITION) == packed
    built = opened()
    fill(built)
    built.remove(1_000, range(100, 140))
    grow(built)
    for vector in texts_like(20, DIMENSIONS, 5):
        found = near(shelf, vector, TEN)
        assert not found.scanned
        assert found == near(built, vector, TEN)
    built.close()


@needs_hnswlib
def test_the_rows_that_a_graph_needs_are_told(packed: bytes) -> None:
    assert sorted(seqs_of(packed).tolist()) == [*range(1, 101), *range(141, 431), *[500] * 10]
    assert len(packed) / len(seqs_of(packed)) <= 200


@needs_hnswlib
def test_any_flipped_byte_is_refused(shelf: VectorTable, packed: bytes) -> None:
    places = sorted({*range(120), *range(0, len(packed), 11), *range(len(packed) - 40, len(packed))})
    for place in places:
        with pytest.raises(UnfitGraph, match=r"does not fit: .*; it is built anew"):
            shelf.graph_from_bytes(flipped(packed, place, 1 << place % 8))
    assert shelf.view().graph is None
    shelf.graph_from_bytes(packed)


@needs_hnswlib
def test_any_truncation_is_refused(shelf: VectorTable, packed: bytes) -> None:
    for size in [*range(140), *range(140, len(packed), 97), len(packed) - 1]:
        for blob in (packed[:size], resealed(packed[: size + 16])[:size]):
            with pytest.raises(UnfitGraph):
                shelf.graph_from_bytes(blob)
    with pytest.raises(UnfitGraph):
        shelf.graph_from_bytes(packed + b"\0")


@needs_hnswlib
@pytest.mark.parametrize("seed", range(4))
def test_with_a_right_checksum_damage_is_refused_or_harmless(shelf: VectorTable, packed: bytes, seed: int) -> None:
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
            near(shelf, vector, TEN)
            searched(shelf, ask(vector, WORDS[:2]), Query(now_ns=BEGIN_NS))
    assert 0 < taken < 250


def changed(blob: bytes, **fields: Any) -> bytes:
    """The bytes with other fields, and a checksum that is right."""
    packed = msgspec.structs.replace(hnsw._unpack(blob), **fields)
    return resealed(hnsw._MAGIC + hnsw._ENCODE(packed) + bytes(16))


@needs_hnswlib
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"levels": bytes(2**20)}, "its parts are of"),
        ({"seqs": b""}, "its parts are of"),
        ({"levels": b"", "seqs": b"", "lowest": b"", "upper": b""}, "no rows"),
        ({"entry": 2**32 - 1}, "its entry"),
        ({"entry": -1}, "its entry"),
        ({"entry": 390}, "its entry"),
        ({"layers": 70}, "too many layers"),
        ({"layers": 9}, "its levels"),
        ({"breadth": 10}, "its breadth"),
        ({"breadth": 10**6}, "its breadth"),
        ({"dimensions": 384}, "of 'test-model' with 384 numbers"),
        ({"name": "other"}, "of 'other' with 16 numbers"),
    ],
)
def test_fields_that_do_not_fit_are_refused(
    shelf: VectorTable, packed: bytes, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnfitGraph, match=reason):
        shelf.graph_from_bytes(changed(packed, **fields))


@needs_hnswlib
@pytest.mark.parametrize("version", [b"refoldX\0", b"refoldG\0"])
def test_bytes_of_another_kind_or_version_are_refused(shelf: VectorTable, packed: bytes, version: bytes) -> None:
    with pytest.raises(UnfitGraph, match="it begins with b'refold"):
        shelf.graph_from_bytes(resealed(version + packed[len(version) :]))


@needs_hnswlib
def test_a_link_out_of_its_layer_is_refused(shelf: VectorTable, packed: bytes) -> None:
    """hnswlib would look for a list that the row does not have: behind its memory."""
    parts = hnsw._unpack(packed)
    ground = parts.levels.index(0)
    upper = np.frombuffer(parts.upper, "<u4").copy()
    assert upper[0] > 0, "the first list has links"
    upper[1] = ground
    with pytest.raises(UnfitGraph, match="not in its layer"):
        shelf.graph_from_bytes(changed(packed, upper=upper.tobytes()))


@needs_hnswlib
def test_a_graph_of_other_rows_is_refused(packed: bytes) -> None:
    for dimensions, model, reason in ((8, MODEL, "with 16 numbers"), (DIMENSIONS, "other", "not of 'other'")):
        with pytest.raises(UnfitGraph, match=reason):
            opened(dimensions, model).graph_from_bytes(packed)
    fewer = opened()
    filled(fewer, 430, 21)
    with pytest.raises(UnfitGraph, match="row of seq 500, which is not in the table"):
        fewer.graph_from_bytes(packed)
    unaware = opened()
    fill(unaware)
    with pytest.raises(UnfitGraph, match="40 rows before its last one are not in it"):
        unaware.graph_from_bytes(packed)
    assert issubclass(UnfitGraph, StoreCorrupt)


@needs_hnswlib
def test_without_hnswlib_no_graph_comes_back(
    shelf: VectorTable, packed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hnswlib", None)
    with pytest.raises(UnfitGraph, match="hnswlib is not installed"):
        shelf.graph_from_bytes(packed)


@needs_hnswlib
def test_a_graph_that_came_back_is_built_on(shelf: VectorTable, packed: bytes) -> None:
    shelf.graph_from_bytes(packed)
    filled(shelf, 2_500, 31, first_seq=2_000)
    grow(shelf)
    graph = shelf.view().graph
    assert isinstance(graph, Graph)
    assert graph.row_count == 400 + 2_500
    exact = [near(shelf, vector, TEN, exact=True) for vector in texts_like(20, DIMENSIONS, 6)]
    found = [near(shelf, vector, TEN) for vector in texts_like(20, DIMENSIONS, 6)]
    pairs = zip(found, exact, strict=True)
    common = [len({hit.row for hit in one.hits} & {hit.row for hit in other.hits}) for one, other in pairs]
    assert sum(common) >= 0.98 * 200
