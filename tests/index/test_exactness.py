"""``Hits.exact`` is true of every search: what no bound of a graph certifies is found by a pass over all memories."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from refold import Hits, Memory, Project
from refold.index import index, search
from refold.index.ranking import Ranking
from refold.index.search import Matches
from refold.index.table import Crossover
from tests.index.scan import needs_hnswlib, texts_like
from tests.support.seams import reader_of

COUNT = 1_200
DIMENSIONS = 32
WORDS = ("tea", "milk", "port", "oak", "rain", "snow", "rye", "lamp")
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"top_k": 1},
    {"top_k": 2 * COUNT},
    {"categories": ["pattern"]},
    {"statuses": None, "min_importance": 0.0},
    {"min_importance": 0.95},
    {"metadata": {"even": True}},
    {"ranking": "seed-exponential"},
    {"ranking": "window"},
    {"ranking": "browse"},
    {"ranking": Ranking(name="near", cosine=1.0)},
    {"ranking": Ranking(name="far", cosine=-1.0, importance=0.1)},
    {"ranking": Ranking(name="words", keywords=1.0, importance=0.01)},
    {"explain": True},
)


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project whose searches ask a graph where one helps, however small it is."""
    monkeypatch.setattr(index, "_MEASURED", Crossover(1, 1))
    memory = Memory()
    project = memory.project("p")
    draw = random.Random(3)
    with memory.batch():
        for number, vector in enumerate(texts_like(COUNT, DIMENSIONS, 3)):
            project.add(
                " ".join(draw.choices(WORDS, k=3)) + f" {number}",
                category="pattern" if number % 10 == 0 else "fact",
                importance=draw.random(),
                metadata={"even": number % 2 == 0},
                vector=vector,
            )
    yield project
    memory.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Matches]:
    """What the shelf answered, search by search."""
    found: list[Matches] = []
    find = search.search

    def noted(*given: Any, **named: Any) -> Matches:
        found.append(find(*given, **named))
        return found[-1]

    monkeypatch.setattr(index, "search", noted)
    return found


def searched(project: Project) -> list[Hits]:
    return [
        project.search("tea and rye", vector=vector, now=0, **options)
        for options in OPTIONS
        for vector in texts_like(5, DIMENSIONS, 4)
    ]


def told(hits: Hits) -> list[tuple[str, float]]:
    return [(hit.entry.id, hit.score) for hit in hits]


def grow(project: Project) -> None:
    """Lets the first search begin a graph, and waits for it."""
    project.search("tea", vector=np.ones(DIMENSIONS))
    slot = reader_of(project).find("project/p")
    assert slot is not None
    assert slot.index is not None
    slot.index.table.builder.settle()
    assert slot.index.table.view().graph is not None


@pytest.fixture
def passed_over(project: Project, made: list[Matches], monkeypatch: pytest.MonkeyPatch) -> list[Hits]:
    """What is found without a graph."""
    with monkeypatch.context() as patch:
        patch.setattr(search.Scan, "certified", lambda *_: None)
        found = searched(project)
    assert all(matches.scanned for matches in made)
    grow(project)
    made.clear()
    return found


@needs_hnswlib
def test_every_search_is_exact_with_a_graph_and_without(
    project: Project, made: list[Matches], passed_over: list[Hits]
) -> None:
    after = searched(project)
    assert all(hits.exact for hits in (*passed_over, *after))
    certified = [matches for matches in made if not matches.scanned]
    assert len(certified) >= 10, "the graph certified next to nothing"
    assert len(made) - len(certified) >= 10, "nothing was left to a pass over all memories"
    assert [told(hits) for hits in after] == [told(hits) for hits in passed_over]
    assert project.recall("tea", vector=np.ones(DIMENSIONS)).exact


@needs_hnswlib
def test_what_no_bound_certifies_is_passed_over_whole(
    project: Project, made: list[Matches], passed_over: list[Hits], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if every row could be better than what the graph gave, however many it gives."""
    asked: list[int] = []

    def doubtful(cosines: Any) -> float:
        asked.append(len(cosines))
        return 1.0

    monkeypatch.setattr(search, "_trusted_cosine", doubtful)
    assert [told(hits) for hits in searched(project)] == [told(hits) for hits in passed_over]
    assert asked, "no graph was asked"
    assert all(matches.exact for matches in made)
    assert all(matches.scanned for matches in made[:5])
