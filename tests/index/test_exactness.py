"""``Hits.exact`` is a proof: whatever the vectors are, an answer that says so has the best rows and no others.

Each answer is compared with a formula in double precision that shares nothing with the search. The vectors are those
that mislead a graph, or leave short rows without use: nearly equal ones, clusters with noise, few dimensions, hubs.
"""

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from refold import InvalidInput, Memory
from refold.index import index, search
from refold.index import short as shorts
from refold.index.columns import DAY_NS, Array
from refold.index.ranking import Filter, Query, Ranking
from refold.index.search import Matches
from refold.index.table import Crossover, VectorTable
from tests.index.scan import BEGIN_NS, MODEL, needs_hnswlib, texts_like
from tests.support.seams import reader_of

ALWAYS = Crossover(1, 1)
TOP = 10
RANKINGS = (
    Ranking(cosine=1.0),
    Ranking(cosine=0.4, importance=0.2, recency=0.15),
    Ranking(cosine=0.1, importance=0.9),
    Ranking(cosine=-0.7, importance=0.1),
)


def noisy(count: int, dimensions: int, seed: int) -> Array:
    """Clusters, each of which a few directions of noise spread: what a graph is least complete in."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(7).standard_normal((max(2, count // 40), dimensions))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    found: Array = centres[draw.integers(0, len(centres), count)] + 0.03 * draw.standard_normal((count, dimensions))
    return found


def twins(count: int, dimensions: int, seed: int) -> Array:
    """A few rows, and others that differ from them in the last digits alone."""
    draw = np.random.default_rng(seed)
    rows = np.random.default_rng(8).standard_normal((5, dimensions))[draw.integers(0, 5, count)]
    found: Array = rows * (1 + 1e-6 * draw.standard_normal((count, dimensions)))
    return found


def hubs(count: int, dimensions: int, seed: int) -> Array:
    """Rows around one direction, which is near to all of them, and some far away from each other."""
    draw = np.random.default_rng(seed)
    found: Array = draw.standard_normal((count, dimensions))
    found[: count * 3 // 4] *= 0.1
    found[: count * 3 // 4] += np.random.default_rng(9).standard_normal(dimensions)
    return found


def anything(count: int, dimensions: int, seed: int) -> Array:
    """Rows in no direction more than in others."""
    found: Array = np.random.default_rng(seed).standard_normal((count, dimensions))
    return found


def same(count: int, dimensions: int, seed: int) -> Array:
    """Equal rows."""
    return np.full((count, dimensions), 1.0 + seed)


def sparse(count: int, dimensions: int, seed: int) -> Array:
    """Rows of one number each: those that share no direction are all as far apart as can be."""
    found: Array = np.zeros((count, dimensions))
    found[np.arange(count), np.random.default_rng(seed).integers(0, dimensions, count)] = 1.0
    return found


KINDS = {
    "noisy": noisy,
    "twins": twins,
    "hubs": hubs,
    "any": anything,
    "same": same,
    "sparse": sparse,
    "texts": texts_like,
}


class Rows(NamedTuple):
    """A shelf, and what its rows were made of."""

    shelf: VectorTable
    vectors: Array
    directions: Array
    """The vectors of length 1, rounded once, in double precision."""
    importance: Array
    days: Array
    alive: Array


def filled(kind: str, count: int, dimensions: int) -> Rows:
    draw = np.random.default_rng(count + dimensions)
    shelf = VectorTable(dimensions, MODEL, crossover=ALWAYS)
    vectors = np.asarray(KINDS[kind](count, dimensions, 1), np.float32)
    importance, days = draw.random(count), draw.integers(0, 90, count)
    shelf.extend(
        np.arange(1, count + 1),
        vectors,
        categories=["fact"],
        importance=importance,
        accessed_ns=BEGIN_NS - days * DAY_NS,
    )
    gone = draw.choice(count, count // 10, replace=False)
    shelf.remove(count + 1, gone)
    alive = np.ones(count, np.bool_)
    alive[gone] = False
    return Rows(shelf, vectors, directions_of(vectors), importance, days, alive)


def directions_of(vectors: Array) -> Array:
    """Vectors of length 1, as a shelf rounds them, in double precision."""
    wide = vectors.astype(np.float64)
    rounded: Array = (wide / np.linalg.norm(wide, axis=-1, keepdims=True)).astype(np.float32).astype(np.float64)
    return rounded


def best(rows: Rows, vector: Array, ranking: Ranking, allowed: Array) -> Array:
    """The highest scores there are, in double precision."""
    asked = directions_of(vector.astype(np.float32))
    scores = ranking.cosine * np.clip(rows.directions @ asked, -1.0, 1.0) + ranking.importance * rows.importance
    scores += ranking.recency / (1.0 + ranking.recency_rate * rows.days)
    return np.sort(scores[allowed])[::-1][:TOP]


def wrong(rows: Rows, kind: str, searches: int, *, seed: int = 0) -> tuple[int, int, int]:
    """Searches in every way; how many answers claim to be exact and are not, how many claim it, how many say no."""
    draw = np.random.default_rng(seed)
    false = exact = honest = 0
    asked = KINDS[kind](searches, rows.vectors.shape[1], 100 + seed)
    for number in range(searches):
        vector = asked[number] if number % 3 else rows.vectors[draw.integers(0, len(rows.vectors))]
        if number % 5 == 4:
            vector = vector + draw.standard_normal(len(vector)) * np.linalg.norm(vector) * 0.05
        ranking = RANKINGS[number % len(RANKINGS)]
        least = 0.3 if number % 7 == 6 else None
        query = Query(
            vector=np.asarray(vector, np.float32),
            ranking=ranking,
            now_ns=BEGIN_NS,
            top_k=TOP,
            filter=Filter(min_importance=least),
            approximate=number % 2 == 1,
        )
        matches = search.search(rows.shelf, query)
        allowed = rows.alive & (rows.importance >= (least or 0.0))
        found = np.array([match.score for match in matches.hits])
        expected = best(rows, np.asarray(vector), ranking, allowed)
        is_right = len(found) == len(expected) and bool(np.abs(found - expected).max() < 1e-8)
        exact += matches.exact
        honest += not matches.exact
        false += matches.exact and not is_right
    return false, exact, honest


def prepared(rows: Rows) -> Rows:
    """Lets the graph be built, and the short rows be made."""
    search.nearest(rows.shelf, Query(vector=np.ones(rows.shelf.dimensions), now_ns=0))
    rows.shelf.builder.wait()
    view = rows.shelf.view()
    while (short := rows.shelf.short_rows(view)) is not None and short.count < view.count:
        pass
    return rows


@pytest.mark.parametrize("dimensions", [2, 8, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_what_says_that_it_is_exact_is(kind: str, dimensions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shorts, "SHORT_ROWS_MIN", 1_024)
    rows = prepared(filled(kind, 1_500, dimensions))
    false, exact, _ = wrong(rows, kind, 24)
    assert not false
    assert exact >= 12, "only approximate searches may be anything but exact"
    rows.shelf.close()


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("count", "dimensions", "searches"),
    [
        (20_000, 2, 200),
        (20_000, 32, 300),
        (30_000, 384, 300),
        (30_000, 768, 150),
        (150_000, 32, 200),
        (60_000, 384, 300),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_searches_claim_nothing_that_is_wrong(
    kind: str, count: int, dimensions: int, searches: int
) -> None:
    rows = prepared(filled(kind, count, dimensions))
    false, exact, honest = wrong(rows, kind, searches, seed=count)
    assert not false, f"{false} of {exact} certificates are wrong ({honest} answers made no claim)"
    rows.shelf.close()


@needs_hnswlib
def test_a_graph_answers_only_who_asks_for_an_approximate_answer() -> None:
    rows = prepared(filled("noisy", 1_500, 32))
    assert rows.shelf.view().graph is not None
    query = Query(vector=rows.vectors[3], now_ns=BEGIN_NS)
    assert (search.search(rows.shelf, query).exact, search.search(rows.shelf, query).scanned) == (True, True)
    approximate = search.search(rows.shelf, Query(vector=rows.vectors[3], now_ns=BEGIN_NS, approximate=True))
    assert (approximate.exact, approximate.scanned) == (False, False)
    rows.shelf.close()


def counted(rows: Rows, kind: str, searches: int) -> int:
    """How many of some searches short rows answer."""
    asked = KINDS[kind](searches, rows.shelf.dimensions, 5)
    ranking = Ranking(cosine=0.4, importance=0.2, recency=0.15)
    answers = [search.search(rows.shelf, Query(vector=one, now_ns=BEGIN_NS, ranking=ranking)) for one in asked]
    assert all(matches.exact for matches in answers)
    return sum(not matches.scanned for matches in answers)


def test_short_rows_answer_where_few_directions_tell_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shorts, "SHORT_ROWS_MIN", 1_024)
    rows = prepared(filled("texts", 12_000, 256))
    assert counted(rows, "texts", 20) == 20
    assert rows.shelf.nbytes > 12_000 * 65 * 4
    rows.shelf.close()


def test_short_rows_of_no_use_are_tried_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shorts, "SHORT_ROWS_MIN", 1_024)
    rows = prepared(filled("any", 3_000, 256))
    tried: list[int] = []
    bounded = search.Scan.search_bounds

    def noted(scan: Any, *given: Any) -> Any:
        tried.append(1)
        return bounded(scan, *given)

    monkeypatch.setattr(search.Scan, "search_bounds", noted)
    assert counted(rows, "any", 100) == 0
    assert len(tried) <= 8
    rows.shelf.close()


def test_rows_that_came_since_are_found_and_states_of_before_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shorts, "SHORT_ROWS_MIN", 1_024)
    rows = prepared(filled("texts", 6_000, 256))
    short = rows.shelf.short_rows(rows.shelf.view())
    assert short is not None
    early = rows.shelf.view_at(4_000)
    found = rows.shelf.extend(
        [9_000], rows.vectors[:1] * 2, categories=["fact"], importance=1.0, accessed_ns=BEGIN_NS, keywords=[()]
    )
    query = Query(vector=rows.vectors[0], ranking=Ranking(cosine=0.5, importance=0.5), now_ns=BEGIN_NS)
    later = search.search(rows.shelf, query)
    assert (later.scanned, later.hits[0].row) == (False, int(found[0]))
    before = search.search(rows.shelf, query, view=early)
    assert not before.scanned
    assert before.hits == search.search(rows.shelf, query, view=early, exact=True).hits
    rows.shelf.close()


def test_threads_shorten_rows_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shorts, "SHORT_ROWS_MIN", 1_024)
    monkeypatch.setattr(shorts, "_SLICE_ROWS", 50)
    rows = filled("texts", 3_000, 256)
    query = Query(vector=rows.vectors[0], now_ns=BEGIN_NS)
    expected = search.search(rows.shelf, query, exact=True).hits
    answers: list[Matches] = []

    def ask() -> None:
        answers.extend(search.search(rows.shelf, query) for _ in range(40))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 160
    assert {matches.hits for matches in answers} == {expected}
    assert search.search(prepared(rows).shelf, query).hits == expected
    rows.shelf.close()


# By the public verbs.


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """A memory whose projects may be searched with a graph, however small they are."""
    monkeypatch.setattr(index, "_MEASURED", ALWAYS)
    memory = Memory()
    with memory.batch():
        for number, vector in enumerate(noisy(1_200, 32, 3)):
            memory.project("p").add(f"memory {number}", vector=vector)
    yield memory
    memory.close()


@needs_hnswlib
def test_hits_say_whether_they_are_proved(memory: Memory) -> None:
    project, asked = memory.project("p"), noisy(1, 32, 4)[0]
    project.search("memory", vector=asked, approximate=True)
    slot = reader_of(memory).find("project/p")
    assert slot is not None
    assert slot.index is not None
    slot.index.table.builder.wait()
    assert not project.search("memory", vector=asked, approximate=True).exact
    assert project.search("memory", vector=asked).exact
    assert project.search_many(["memory"], vectors=[asked])[0].exact
    assert project.recall("memory", vector=asked).exact
    with pytest.raises(InvalidInput, match="approximate"):
        project.search("memory", approximate="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
