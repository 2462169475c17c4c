"""Searching with a graph: what it finds is what the scan finds, while rows come and go and graphs are swapped."""

import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from refold.index import hnsw as graph_module
from refold.index import table as tables
from refold.index.hnsw import build
from refold.index.ranking import Filter, Query, Ranking
from refold.index.table import Crossover, VectorTable, measure
from tests.index.scan import (
    BEGIN_NS,
    MODEL,
    WORDS,
    Plain,
    ask,
    assert_same,
    filled,
    gone,
    near,
    needs_hnswlib,
    put,
    scanned,
    searched,
    texts_like,
)
from tests.support.threads import alive

DIMENSIONS = 32
ROWS = 1_500
ALWAYS = Crossover(1, 1)
WISH = Query(now_ns=BEGIN_NS, approximate=True)
TEN = Query(now_ns=0, top_k=10)


@pytest.fixture
def shelf() -> Iterator[VectorTable]:
    shelf = VectorTable(DIMENSIONS, MODEL, crossover=ALWAYS)
    yield shelf
    shelf.close()


@pytest.fixture
def rows(shelf: VectorTable) -> list[Plain]:
    """Rows with a graph over them."""
    rows = filled(shelf, ROWS, 1)
    grow(shelf)
    return rows


def grow(shelf: VectorTable) -> None:
    """Builds a graph, as the first search that would gain by one lets it be done."""
    before = shelf.builder.builds_count
    near(shelf, np.ones(shelf.dimensions), TEN)
    shelf.builder.wait()
    assert shelf.builder.builds_count == before + 1


def asked(count: int = 40) -> list[Query]:
    vectors = texts_like(count, DIMENSIONS, 77)
    return [ask(vector, WORDS[place % 20 : place % 20 + 3]) for place, vector in enumerate(vectors)]


def recall(shelf: VectorTable, queries: list[Query], wish: Query = WISH) -> float:
    """The share of the scan's rows that are found with the graph; each search has to have asked it."""
    found = 0
    for query in queries:
        hybrid = searched(shelf, query, wish)
        assert not hybrid.exact
        assert not hybrid.scanned
        found += len(
            {hit.row for hit in hybrid.hits} & {hit.row for hit in searched(shelf, query, wish, exact=True).hits}
        )
    return found / (len(queries) * wish.top_k)


def nearest_recall(shelf: VectorTable, queries: list[Query]) -> float:
    found = 0
    for query in queries:
        approximate = near(shelf, query.vector, TEN)
        assert not approximate.exact
        assert not approximate.scanned
        exact = near(shelf, query.vector, TEN, exact=True)
        assert exact.exact
        scores = {hit.row: hit for hit in exact.hits}
        # A row has one score, whichever way it was found.
        assert all(scores[hit.row] == hit for hit in approximate.hits if hit.row in scores)
        found += len({hit.row for hit in approximate.hits} & scores.keys())
    return found / (10 * len(queries))


@needs_hnswlib
@pytest.mark.usefixtures("rows")
def test_the_graph_finds_what_the_scan_finds(shelf: VectorTable) -> None:
    assert nearest_recall(shelf, asked()) >= 0.98
    assert recall(shelf, asked()) >= 0.995


@needs_hnswlib
def test_rows_that_came_and_went_since_are_found_and_not_found(shelf: VectorTable, rows: list[Plain]) -> None:
    vector = rows[10].vector
    assert near(shelf, vector, TEN).hits[0].row == 10
    shelf.remove(ROWS + 1, [10])
    assert 10 not in [hit.row for hit in near(shelf, vector, TEN).hits]
    place = shelf.add(ROWS + 2, vector, category="fact", importance=1.0, accessed_ns=BEGIN_NS)
    found = near(shelf, vector, TEN)
    assert not found.scanned
    assert found.hits[0].row == place
    best = searched(shelf, ask(vector), WISH)
    assert not best.scanned
    assert best.hits[0].row == place
    shelf.change(ROWS + 3, [place], status="archived")
    assert place not in [hit.row for hit in near(shelf, vector, TEN).hits]
    assert place not in [hit.row for hit in searched(shelf, ask(vector), WISH).hits]


@needs_hnswlib
def test_a_narrow_filter_is_scanned_for(shelf: VectorTable, rows: list[Plain]) -> None:
    wish = Query(now_ns=BEGIN_NS, approximate=True, filter=Filter(categories=("pattern",)))
    found = searched(shelf, ask(rows[0].vector, WORDS[:3]), wish)
    assert found.scanned
    assert_same(found.hits, scanned(rows, ask(rows[0].vector, WORDS[:3]), wish))
    rare = Filter(rows=np.array([5, 900]))
    nearest = near(shelf, rows[0].vector, Query(now_ns=0, top_k=2, filter=rare))
    assert nearest.scanned
    assert sorted(hit.row for hit in nearest.hits) == [5, 900]


@needs_hnswlib
@pytest.mark.parametrize(
    "ranking",
    [
        Ranking(cosine=0.9),
        Ranking(cosine=0.1, keywords=1.0, importance=0.5, recency=0.5, recency_curve="exponential"),
        Ranking(keywords=1.0, importance=0.2, recency=0.15),
        Ranking(cosine=-0.5, keywords=0.25, importance=0.2, recency=0.15),
    ],
)
@pytest.mark.usefixtures("rows")
def test_any_weights_give_what_the_scan_gives(shelf: VectorTable, ranking: Ranking) -> None:
    """With a graph where its bound helps, by a scan where it does not."""
    wish = Query(now_ns=BEGIN_NS, approximate=True, ranking=ranking)
    extra = np.linspace(0.0, 0.2, ROWS)
    for query in asked(10):
        for added in (None, extra):
            exact = searched(shelf, query, wish, extra=added, exact=True)
            found = searched(shelf, query, wish, extra=added)
            assert_same(found.hits, [(hit.row, hit.score) for hit in exact.hits])


@needs_hnswlib
@pytest.mark.usefixtures("rows")
def test_more_rows_than_there_are_may_be_asked_for(shelf: VectorTable) -> None:
    everything = Query(now_ns=BEGIN_NS, approximate=True, top_k=10 * ROWS)
    assert len(near(shelf, np.ones(DIMENSIONS), everything).hits) == ROWS
    assert len(searched(shelf, ask(np.ones(DIMENSIONS)), everything).hits) == ROWS
    shelf.remove(ROWS + 1, range(3, ROWS))
    assert [hit.row for hit in near(shelf, np.ones(DIMENSIONS), TEN).hits]
    assert len(searched(shelf, ask(np.ones(DIMENSIONS)), everything).hits) == 3


@needs_hnswlib
def test_equal_vectors_do_not_tear_the_graph(shelf: VectorTable) -> None:
    """Put in as they are, two thousand of them cut a sixth of the other rows off."""
    rows = filled(shelf, 1_000, 2)
    same = [replace(rows[0], place=1_000 + place, seq=2_000 + place) for place in range(1_000)]
    put(shelf, same)
    grow(shelf)
    for row in rows[1:200]:
        assert near(shelf, row.vector, TEN).hits[0].row == row.place
    found = near(shelf, rows[0].vector, Query(now_ns=0, top_k=1_001)).hits
    assert {hit.row for hit in found} == {0, *range(1_000, 2_000)}
    shelf.remove(9_000, [0])
    assert near(shelf, rows[0].vector, Query(now_ns=0)).hits[0].row == 1_000


@needs_hnswlib
def test_an_earlier_seq_is_scanned_and_a_held_moment_keeps_its_graph(shelf: VectorTable, rows: list[Plain]) -> None:
    moment = shelf.view()
    for place in range(300):
        shelf.add(ROWS + 1 + place, rows[place].vector, category="fact", importance=1.0, accessed_ns=BEGIN_NS)
    query = ask(rows[5].vector, WORDS[:3])
    then = searched(shelf, query, WISH, view=shelf.view_at(ROWS))
    assert then.scanned
    assert_same(then.hits, scanned(rows, query, WISH))
    shelf.remove(9_000, range(800))
    grow(shelf)
    held = searched(shelf, query, WISH, view=moment)
    assert not held.scanned
    assert held.hits == then.hits


@needs_hnswlib
def test_many_new_rows_are_built_in_and_many_gone_ones_out(
    shelf: VectorTable, rows: list[Plain], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "GRAPH_FRESH_ROWS_MIN", 200)
    filled(shelf, 200, 3, first_seq=ROWS + 1)
    near(shelf, rows[0].vector, TEN)
    shelf.builder.wait()
    assert shelf.builder.builds_count == 1
    filled(shelf, 1, 4, first_seq=ROWS + 201)
    grow(shelf)
    graph = shelf.view().graph
    assert graph is not None
    assert graph.end == len(graph.rows) == ROWS + 201
    quarter = (ROWS + 201) // 4
    shelf.remove(3_000, range(quarter))
    near(shelf, rows[0].vector, TEN)
    shelf.builder.wait()
    assert shelf.builder.builds_count == 2
    shelf.remove(3_001, [quarter])
    grow(shelf)
    graph = shelf.view().graph
    assert graph is not None
    assert graph.rows.tolist() == list(range(quarter + 1, ROWS + 201))


@needs_hnswlib
@pytest.mark.slow
@pytest.mark.parametrize("overwrites", [True, False])
def test_recall_holds_after_ten_rounds_of_losing_half_of_all_rows(shelf: VectorTable, overwrites: bool) -> None:
    rows = filled(shelf, 2_000, 8)
    grow(shelf)
    draw = np.random.default_rng(8)
    for turn in range(10):
        seq = 10_000 * (turn + 1)
        alive = [row.place for row in rows if row.died is None]
        lost = draw.choice(alive, len(alive) // 2, replace=False).tolist()
        shelf.remove(seq, lost)
        gone(rows, lost, seq)
        count = len(lost) if overwrites else len(lost) * 9 // 10
        rows.extend(filled(shelf, count, 100 + turn, first_seq=seq + 1))
        before = shelf.builder.builds_count
        searched(shelf, asked(1)[0], WISH)
        shelf.builder.wait()
        assert shelf.builder.builds_count == before + 1
        assert nearest_recall(shelf, asked(20)) >= 0.98
        assert recall(shelf, asked(20)) >= 0.98
    query = asked(1)[0]
    alive_rows = [row for row in rows if row.died is None]
    assert_same(searched(shelf, query, WISH, exact=True).hits, scanned(alive_rows, query, WISH))


class Reader(threading.Thread):
    """Searches in every way until it is told to stop."""

    def __init__(self, shelf: VectorTable, query: Query) -> None:
        super().__init__()
        self.shelf, self.query = shelf, query
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self.reads = 0

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self._read()
                self.reads += 1
        except BaseException as error:  # noqa: BLE001 - the test tells it on its own thread
            self.error = error

    def _read(self) -> None:
        hits = searched(self.shelf, self.query, WISH).hits
        assert len(hits) == 10
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert len(near(self.shelf, self.query.vector, TEN).hits) == 10
        moment = self.shelf.view()
        held = [searched(self.shelf, self.query, WISH, view=moment, exact=True) for _ in range(2)]
        assert held[0] == held[1]
        assert self.shelf.graph_to_bytes(1) is not None


@needs_hnswlib
@pytest.mark.slow
def test_reads_never_fail_while_rows_come_and_go_and_graphs_are_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "GRAPH_FRESH_ROWS_MIN", 100)
    shelf = VectorTable(DIMENSIONS, MODEL, crossover=ALWAYS)
    rows = filled(shelf, 600, 9)
    grow(shelf)
    readers = [Reader(shelf, query) for query in asked(3)]
    for reader in readers:
        reader.start()
    seq = 10_000
    while shelf.builder.builds_count < 12 and all(reader.is_alive() for reader in readers):
        seq += 1_000
        begin = len(shelf)
        rows.extend(filled(shelf, 120, seq, first_seq=seq))
        shelf.change(seq + 500, range(begin, begin + 20), importance=1.0, accessed_ns=BEGIN_NS)
        shelf.remove(seq + 501, range(begin - 110, begin - 10))
    for reader in readers:
        reader.stopping.set()
        reader.join()
        assert reader.error is None
        assert reader.reads > 0
    shelf.close()
    assert alive("refold-graph") == []


def test_without_hnswlib_every_search_is_a_scan_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "hnswlib", None)
    graph_module._warn_once.cache_clear()  # pyright: ignore[reportPrivateUsage]
    with caplog.at_level(logging.WARNING, "refold"):
        for _ in range(2):
            shelf = VectorTable(DIMENSIONS, MODEL, crossover=ALWAYS)
            rows = filled(shelf, 300, 4)
            for _ in range(2):
                found = searched(shelf, ask(rows[7].vector), WISH)
                assert found.scanned
                assert_same(found.hits, scanned(rows, ask(rows[7].vector), WISH))
                assert near(shelf, rows[7].vector, TEN).scanned
            shelf.builder.wait()
            assert shelf.builder.builds_count == 0
            shelf.close()
    assert [record.message.partition(" (")[0] for record in caplog.records] == ["hnswlib cannot be loaded"]
    assert "refold[hnsw]" in caplog.text


class Torn:
    """An index that reaches fewer rows than it has."""

    dim = DIMENSIONS

    def __init__(self) -> None:
        self.calls = 0

    def knn_query(self, *_: Any, **__: Any) -> None:
        self.calls += 1
        raise RuntimeError("Cannot return the results in a contiguous 2D array. Probably ef or M is too small")


@needs_hnswlib
@pytest.mark.usefixtures("rows")
def test_a_torn_graph_is_not_asked_again(shelf: VectorTable, caplog: pytest.LogCaptureFixture) -> None:
    """Each such error leaks memory in hnswlib."""
    graph = shelf.view().graph
    assert graph is not None
    torn = Torn()
    graph.index = torn
    for query in asked(5):
        assert near(shelf, query.vector, TEN).scanned
        assert searched(shelf, query, WISH).scanned
    assert torn.calls == 1
    assert "is torn" in caplog.text


@needs_hnswlib
def test_a_graph_that_finds_too_little_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(graph_module, "RECALL_MIN", 1.1)
    starts: list[int] = []

    def counted(matrix: Any, alive: Any, *others: Any) -> Any:
        starts.append(len(alive))
        return build(matrix, alive, *others)

    monkeypatch.setattr(tables, "build", counted)
    shelf = VectorTable(DIMENSIONS, MODEL, crossover=ALWAYS)
    filled(shelf, 900, 6)
    for _ in range(3):
        assert near(shelf, np.ones(DIMENSIONS), TEN).scanned
        shelf.builder.wait()
    assert starts == [900]
    assert "is not used" in caplog.text
    filled(shelf, 900, 7, first_seq=5_000)
    near(shelf, np.ones(DIMENSIONS), TEN)
    shelf.builder.wait()
    assert starts == [900, 1_800]
    shelf.close()


@needs_hnswlib
def test_closing_ends_a_build(shelf: VectorTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread looks between two blocks of rows; here it waits there until the shelf is being closed."""
    reached, closing = threading.Event(), threading.Event()
    library = graph_module.library()

    class Held:
        def __init__(self, **given: Any) -> None:
            self.index = library.Index(**given)

        def init_index(self, *given: Any, **named: Any) -> None:
            self.index.init_index(*given, **named)

        def add_items(self, *given: Any, **named: Any) -> None:
            reached.set()
            assert closing.wait(60)
            self.index.add_items(*given, **named)

    monkeypatch.setattr(graph_module, "library", lambda: type("Library", (), {"Index": Held}))
    filled(shelf, 2_000, 6)
    near(shelf, np.ones(DIMENSIONS), TEN)
    assert reached.wait(60)
    closer = threading.Thread(target=shelf.close)
    closer.start()
    while not shelf.builder._is_closed:
        threading.Event().wait(0.001)
    closing.set()
    closer.join()
    assert shelf.builder.builds_count == 0
    assert alive("refold-graph") == []
    assert near(shelf, np.ones(DIMENSIONS), TEN).scanned


@needs_hnswlib
def test_a_graph_is_kept_until_half_of_the_rows_that_it_takes_are_gone() -> None:
    shelf = VectorTable(DIMENSIONS, MODEL, crossover=Crossover(400, 800))
    filled(shelf, 399, 6)
    near(shelf, np.ones(DIMENSIONS), TEN)
    shelf.builder.wait()
    assert shelf.builder.builds_count == 0
    filled(shelf, 1, 7, first_seq=500)
    grow(shelf)
    assert not near(shelf, np.ones(DIMENSIONS), TEN).scanned
    assert searched(shelf, ask(np.ones(DIMENSIONS)), WISH).scanned  # A hybrid search gains by it at 800 rows only.
    shelf.remove(600, range(200))
    near(shelf, np.ones(DIMENSIONS), TEN)
    shelf.builder.wait()
    assert not near(shelf, np.ones(DIMENSIONS), TEN).scanned
    shelf.remove(601, [200])
    assert near(shelf, np.ones(DIMENSIONS), TEN).scanned
    shelf.close()


def test_the_crossover_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = VectorTable(DIMENSIONS, MODEL)
    filled(shelf, 500, 6)
    times = iter([0, 9_000, 0, 5_000, 0, 7_000])
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(times))
    # The fastest of three products of 500 rows took 5,000 ns: 10 for each row.
    assert measure(shelf.view()) == Crossover(10_000, 150_000)
    few = VectorTable(DIMENSIONS, MODEL)
    filled(few, 100, 6)
    assert near(few, np.ones(DIMENSIONS), TEN).scanned
    assert next(times, None) is None
