"""A compaction compares all pairs, though most of them by short rows alone: none that is alike enough is left out."""

from typing import Any

import numpy as np
import pytest

from refold import Memory
from refold.index.columns import Array
from refold.index.search import pairs
from refold.index.short import narrow
from tests.index.scan import texts_like
from tests.support.bounds import lowered

SMALL = {"NARROW_DIMENSIONS": 8, "SAMPLED_ROWS": 20}


def units(rows: Array) -> Array:
    wide = rows.astype(np.float64)
    found: Array = (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32)
    return found


def drawn(kind: str, count: int, dimensions: int, seed: int) -> Array:
    """Rows of which some are alike: of texts, in no direction more than in others, all the same, of few kinds."""
    draw = np.random.default_rng(seed)
    if kind == "texts":
        rows = texts_like(count, dimensions, seed)
    elif kind == "same":
        rows = np.ones((count, dimensions), np.float32)
    elif kind == "few":
        rows = draw.standard_normal((5, dimensions))[draw.integers(0, 5, count)]
    else:
        rows = draw.standard_normal((count, dimensions))
    for _ in range(count // 5):
        one, other = draw.integers(0, count, 2)
        rows[one] = rows[other] + 0.1 * draw.standard_normal(dimensions)
    return units(np.asarray(rows))


def told(matrix: Array, threshold: float, gone: Array, changed: Array) -> dict[int, set[int]]:
    return {row: set(later.tolist()) for row, later in pairs(matrix, threshold, gone, changed)}


def all_pairs(matrix: Array, threshold: float, gone: Array, changed: Array) -> tuple[dict[int, set[int]], int]:
    """Those that are alike enough by any rounding, by looking at each, and how many there are."""
    products = matrix.astype(np.float64) @ matrix.astype(np.float64).T
    alike = np.triu(products > threshold, 1) & ~gone[:, None] & ~gone & (changed[:, None] | changed)
    found = {int(row): set(np.flatnonzero(alike[row]).tolist()) for row in np.flatnonzero(alike.any(axis=1))}
    return found, int(np.count_nonzero(alike))


@pytest.mark.parametrize("kind", ["texts", "any", "same", "few"])
@pytest.mark.parametrize("dimensions", [5, 32, 100])
@pytest.mark.parametrize("threshold", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("held_bytes", [1, 4 * 90, 10**7])
def test_every_pair_that_is_alike_is_found(kind: str, dimensions: int, threshold: float, held_bytes: int) -> None:
    matrix = drawn(kind, 90, dimensions, dimensions)
    draw = np.random.default_rng(1)
    for gone_share, changed_share in ((0.0, 1.0), (0.3, 1.0), (0.0, 0.2), (0.2, 0.1), (0.0, 0.0)):
        gone, changed = draw.random(90) < gone_share, draw.random(90) < changed_share
        expected, _ = all_pairs(matrix, threshold, gone, changed)
        loose, _ = all_pairs(matrix, threshold - 2e-4, gone, changed)
        with lowered(**SMALL, PAIRS_BYTES_MAX=held_bytes):
            found = told(matrix, threshold, gone, changed)
        assert all(found[row] >= later for row, later in expected.items())
        assert all(loose[row] >= later for row, later in found.items())


def test_short_rows_are_never_less_alike_and_spare_most_of_the_work() -> None:
    matrix = drawn("texts", 400, 256, 3)
    with lowered(NARROW_DIMENSIONS=40, SAMPLED_ROWS=100):
        short = narrow(matrix)
    assert short.shape == (400, 41)
    products, bounds = matrix @ matrix.T, short @ short.T
    assert (bounds >= products - 1e-5).all()
    alike, left = np.count_nonzero(products > 0.9), np.count_nonzero(bounds > 0.9)
    assert alike <= left < 2 * alike


def test_rows_that_go_meanwhile_are_passed_over() -> None:
    matrix = drawn("same", 50, 32, 1)
    gone, seen = np.zeros(50, np.bool_), list[tuple[int, int]]()
    for row, later in pairs(matrix, 0.9, gone, np.ones(50, np.bool_)):
        seen.append((row, len(later)))
        gone[later] = True
    assert seen[0][1] > 30
    assert sum(count for _, count in seen) == np.count_nonzero(gone)


def compacted(project: Any, threshold: float) -> list[tuple[str, float, tuple[str, ...]]]:
    project.compact(threshold)
    return [(entry.content, entry.importance, tuple(entry.keywords)) for entry in project.list()]


@pytest.mark.parametrize("seed", range(3))
def test_a_compaction_is_what_comparing_everything_in_every_round_gives(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds after the first look only at pairs of which one has another vector; that leaves nothing out."""
    vectors = drawn("texts", 120, 32, seed)
    changes: list[int] = []

    def counted(matrix: Any, threshold: float, gone: Any, changed: Any) -> Any:
        changes.append(int(np.count_nonzero(changed)))
        return pairs(matrix, threshold, gone, changed)

    def everything(matrix: Any, threshold: float, gone: Any, _: Any) -> Any:
        return pairs(matrix, threshold, gone, np.ones(len(matrix), np.bool_))

    outcomes: list[Any] = []
    for compare in (counted, everything):
        monkeypatch.setattr("refold.index.search.pairs", compare)
        project = Memory().project("p")
        for number, vector in enumerate(vectors):
            project.add(f"text {number % 60} {'x' * (number // 60)}", vector=vector, importance=number % 7 / 7)
        outcomes.append(compacted(project, 0.7))
        assert 0 < len(outcomes[-1]) < 120
        assert project.compact(0.7).merged == 0, "not repeated until stable"
    assert len(changes) > 2
    assert 0 < changes[1] < changes[0]
    assert outcomes[0] == outcomes[1]
