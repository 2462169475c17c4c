"""Searches and their floors; with tiny sizes, whether each of them finds what it has to."""

from pathlib import Path

import numpy as np
import pytest
import workloads
from rounds import Job, Measure
from rows import projects, search
from rows.table import Options, Stores

from refold.index.hnsw import library

SMALL = 1_200


@pytest.fixture
def searches(sizes: workloads.Sizes) -> search.Searches:
    return search.Searches(max(sizes.search_rows, SMALL))


@pytest.mark.parametrize("name", [search.EXACT, search.CATEGORY, search.HALF, search.END, search.MANY, search.PRODUCT])
def test_an_exact_search(name: str, searches: search.Searches, measure: Measure) -> None:
    result = measure(searches.exact_jobs()[name])
    if name == search.PRODUCT:
        columns = searches.shelf.view().columns
        assert np.allclose(searches.product.out, columns.matrix @ searches.product.query)
        return
    found = result if isinstance(result, list) else [result]
    assert len(found) == (32 if name == search.MANY else 1)
    for one in found:
        assert one.scanned
        assert len(one.hits) == search.TOP


def test_adding_a_row(searches: search.Searches, measure: Measure) -> None:
    before = len(searches.shelf)
    last = measure(Job(searches.add))
    assert last == len(searches.shelf) - 1 >= before


@pytest.mark.skipif(library() is None, reason="hnswlib is not installed; refold[hnsw] installs it")
def test_searches_with_a_graph_find_what_exact_ones_find(searches: search.Searches, measure: Measure) -> None:
    searches.grow()
    measure(Job(lambda: (searches.search(), searches.nearest())))
    hybrid, near, scans = searches.recalls()
    assert hybrid >= 0.99
    assert near >= 0.95
    assert scans < search.QUERIES
    labels, _ = searches.bare_graph().nearest(searches.product.query, search.TOP)
    assert labels.shape == (1, search.TOP)
    searches.shelf.close()


def test_the_rows_of_the_report(sizes: workloads.Sizes, tmp_path: Path) -> None:
    """Real vectors are not there; what is drawn is searched."""
    rows = list(search.rerank_rows(tmp_path, sizes.search_queries))
    assert [row.note.partition(":")[0] for row in rows] == ["skipped", "skipped"]
    if library() is not None:
        real = search.Real("drawn", search.vectors(900, 4), search.vectors(9, 5), [], [["word1"]] * 9)
        _, recalls, ours = search.reranked(real)
        assert ours >= 0.99
        assert 0 <= recalls[10] <= recalls[50] <= recalls[100] <= recalls[500] <= 1
    assert search.projects_row(3).ours_ns


@pytest.fixture
def recalls(sizes: workloads.Sizes) -> projects.Recalls:
    return projects.Recalls(max(sizes.search_rows, SMALL))


@pytest.mark.parametrize("name", [projects.SEARCH, projects.CATEGORY, projects.HALF, projects.LAST, projects.WINDOW])
def test_a_search_by_the_public_verb(name: str, recalls: projects.Recalls, measure: Measure) -> None:
    hits = measure(recalls.jobs()[name])
    assert len(hits) == search.TOP
    assert hits.exact
    assert all(hit.parts for hit in hits)
    if name == projects.CATEGORY:
        assert {hit.entry.category for hit in hits} == {search.CATEGORIES[1]}


def test_the_rows_of_projects(sizes: workloads.Sizes, tmp_path: Path) -> None:
    options = Options(sizes, 2, tmp_path, tmp_path, Stores(tmp_path, sizes))
    assert [row.ours_ns is not None for row in projects.rows(options)] == [True] * 12


def test_a_state_of_earlier_is_held_against_a_product_of_its_own_rows(sizes: workloads.Sizes, tmp_path: Path) -> None:
    options = Options(sizes, 2, tmp_path, tmp_path, Stores(tmp_path, sizes))
    floors = {row.job: row.floor for module in (search, projects) for row in module.rows(options)}
    halves = [floor for job, floor in floors.items() if "as of half" in job]
    assert halves == [search.HALF_PRODUCT] * 2
    for searches in (search.Searches(SMALL), projects.Recalls(SMALL)):
        assert len(searches.half_product.matrix) == SMALL // 2
        assert len(searches.product.matrix) == SMALL
