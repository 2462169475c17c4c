"""What the tests of the shelf share: rows from a seed, and a brute-force scan of them that was written from the words.

The scan knows no column, no prefix and no single precision but that of the stored vectors.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest

from refold.index.columns import DAY_NS, Array
from refold.index.hnsw import library
from refold.index.ranking import Filter, Query, Ranking
from refold.index.search import Match, Matches, nearest, search, search_many
from refold.index.table import TableView, VectorTable

BEGIN_NS = 1_764_000_000_000_000_000
MODEL = "test-model"
CATEGORIES = ("fact", "preference", "pattern")
WORDS = tuple(f"word{place}" for place in range(24))

needs_hnswlib = pytest.mark.skipif(library() is None, reason="hnswlib is not installed; refold[hnsw] installs it")


@dataclass(frozen=True)
class Plain:
    """A row as the test knows it."""

    place: int
    seq: int
    vector: Any
    category: str
    keywords: tuple[str, ...]
    importance: float
    accessed_ns: int
    status: str = "active"
    died: int | None = None


def unit(vector: Sequence[float] | Array) -> Array:
    """The vector of length 1 that is stored: computed in double precision, kept in single."""
    wide = np.asarray(vector, np.float32).astype(np.float64)
    stored: Array = (wide / math.sqrt(float(np.sum(wide * wide)))).astype(np.float32)
    return stored


def ask(vector: Any = None, words: Iterable[str] = ()) -> Query:
    """What is looked for; how, is another query's business."""
    return Query(vector=vector, words=tuple(words))


def joined(query: Query, wish: Query) -> Query:
    return msgspec.structs.replace(wish, vector=query.vector, words=query.words)


def searched(
    table: VectorTable,
    query: Query,
    wish: Query,
    *,
    view: TableView | None = None,
    extra: Any = None,
    exact: bool = False,
) -> Matches:
    return search(table, joined(query, wish), view=view, extra=extra, exact=exact)


def searched_many(table: VectorTable, queries: Sequence[Query], wish: Query) -> list[Matches]:
    return search_many(table.view(), [joined(query, wish) for query in queries], [None] * len(queries))


def near(table: VectorTable, vector: Any, wish: Query, *, exact: bool = False) -> Matches:
    return nearest(table, joined(ask(vector), wish), exact=exact)


def score_of(row: Plain, query: Query, ranking: Ranking, now_ns: int, extra: Any = None) -> float:
    """The score of one row, in Python's numbers."""
    cosine = 0.0
    if query.vector is not None:
        cosine = float(np.sum(unit(row.vector).astype(np.float64) * unit(query.vector).astype(np.float64)))
    asked, own = set(query.keywords), set(row.keywords)
    overlap = len(asked & own) / len(asked | own) if asked | own else 0.0
    days = max(now_ns - row.accessed_ns, 0) / DAY_NS
    is_exponential = ranking.recency_curve == "exponential"
    recency = ranking.recency_weekly ** (days / 7) if is_exponential else 1 / (1 + ranking.recency_rate * days)
    score = ranking.cosine * max(min(cosine, 1.0), -1.0) + ranking.keywords * overlap
    score += ranking.importance * row.importance
    added = 0.0 if extra is None else float(np.float32(extra[row.place]))
    return round(score + ranking.recency * recency + added, 9)


def is_found(row: Plain, chosen: Filter) -> bool:
    """Whether a filter allows a row."""
    return (
        (chosen.categories is None or row.category in chosen.categories)
        and (chosen.statuses is None or row.status in chosen.statuses)
        and (chosen.min_importance is None or row.importance >= chosen.min_importance)
        and (chosen.rows is None or row.place in chosen.rows)
    )


def scanned(rows: Iterable[Plain], query: Query, wish: Query, extra: Any = None) -> list[tuple[int, float]]:
    """Places and scores of the best rows, by looking at every one of them."""
    allowed = [row for row in rows if is_found(row, wish.filter)]
    scored = [(score_of(row, query, wish.ranking, wish.now_ns or 0, extra), row) for row in allowed]
    scored.sort(key=lambda pair: (-pair[0], -pair[1].importance, pair[1].seq, pair[1].place))
    return [(row.place, score) for score, row in scored[: wish.top_k]]


def told(hits: Iterable[Match]) -> list[tuple[int, float]]:
    return [(hit.row, hit.score) for hit in hits]


def assert_same(found: Iterable[Match], expected: list[tuple[int, float]]) -> None:
    """The same rows in the same order; scores may differ in the last digit that they are rounded to."""
    pairs = told(found)
    assert [place for place, _ in pairs] == [place for place, _ in expected]
    assert [score for _, score in pairs] == pytest.approx([score for _, score in expected], abs=2e-9)


def alive_at(rows: Iterable[Plain], at: int) -> list[Plain]:
    return [row for row in rows if row.seq <= at and (row.died is None or row.died > at)]


def texts_like(count: int, dimensions: int, seed: int) -> Array:
    """Vectors spread as those of texts are: about some topics, most of the difference in few directions."""
    generator = np.random.default_rng(seed)
    shape = np.random.default_rng(2_026)
    wide = max(4, dimensions // 8)
    topics = shape.standard_normal((40, wide))
    mixing = shape.standard_normal((wide, dimensions))
    latent = topics[generator.integers(0, len(topics), count)] + 0.7 * generator.standard_normal((count, wide))
    found: Array = (latent @ mixing + 0.3 * generator.standard_normal((count, dimensions)) + 1.0).astype(np.float32)
    return found


def filled(shelf: VectorTable, count: int, seed: int, *, first_seq: int = 1) -> list[Plain]:
    """Adds rows from a seed to a shelf, one seq each, and returns them."""
    generator = np.random.default_rng(seed)
    vectors = texts_like(count, shelf.dimensions, seed)
    begin = len(shelf)
    rows = [
        Plain(
            begin + place,
            first_seq + place,
            vectors[place],
            CATEGORIES[int(generator.integers(len(CATEGORIES)))],
            tuple(WORDS[int(word)] for word in generator.choice(len(WORDS), 4, replace=False)),
            float(generator.random()),
            BEGIN_NS - int(generator.integers(90 * DAY_NS)),
        )
        for place in range(count)
    ]
    put(shelf, rows)
    return rows


def put(shelf: VectorTable, rows: Sequence[Plain]) -> None:
    """Adds rows to a shelf, all with one call."""
    shelf.extend(
        [row.seq for row in rows],
        np.array([row.vector for row in rows]),
        categories=[row.category for row in rows],
        keywords=[row.keywords for row in rows],
        importance=[row.importance for row in rows],
        accessed_ns=[row.accessed_ns for row in rows],
        statuses=[row.status for row in rows],
    )


def gone(rows: list[Plain], places: Iterable[int], seq: int) -> None:
    """Lets rows of a list go."""
    for place in places:
        rows[place] = replace(rows[place], died=seq)
