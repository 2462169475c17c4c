"""Many queries at once find what each finds alone: ties, filters, earlier seqs, forks and batches included."""

import asyncio
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from refold import EmbeddingMismatch, Hits, InvalidInput, Memory, Project
from refold.evaluation.retrieval import BASELINES
from refold.index import index
from refold.index.project import ProjectIndex
from refold.index.ranking import Ranking
from refold.index.table import Crossover
from refold.memory.search import DEFAULTS
from tests.index.scan import texts_like
from tests.support.bounds import lowered
from tests.support.other_process import WordsEmbedder
from tests.support.seams import reader_of

DIMENSIONS = 16
COUNT = 300
WORDS = ("tea", "milk", "port", "oak", "rain", "snow")
QUERIES = ("tea", "", "oak and rain", "tea", "  ", "port " * 30, "nothing of it", "snow")
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"top_k": 1},
    {"top_k": 1_000, "min_importance": 0.0},
    {"categories": ["pattern"]},
    {"statuses": None},
    {"min_importance": 0.6},
    {"metadata": {"m": 1}},
    {"ranking": "window"},
    {"ranking": BASELINES["bm25"]},
    {"ranking": "browse"},
    {"ranking": Ranking(name="near", cosine=1.0)},
    {"ranking": Ranking(name="words", keywords=1.0)},
    {"explain": True},
    {"explain": True, "ranking": "window", "metadata": {"m": 0}},
)


@pytest.fixture(params=["given", "embedded"])
def memory(request: pytest.FixtureRequest) -> Iterator[Memory]:
    """A project of many memories, of which some tie with each other."""
    is_embedded = request.param == "embedded"
    with Memory(embedder=WordsEmbedder() if is_embedded else None) as memory:
        draw = random.Random(1)
        vectors = texts_like(COUNT, DIMENSIONS, 1)
        with memory.batch():
            for number in range(COUNT):
                memory.project("p").add(
                    " ".join(draw.choices(WORDS, k=2)) + " " * number,
                    category=draw.choice(["pattern", "fact"]),
                    importance=draw.choice([0.25, 0.5, 0.75]),
                    metadata={"m": number % 2},
                    vector=None if is_embedded else vectors[number % 40],
                )
        yield memory


def asked(memory: Memory) -> dict[str, Any]:
    """The vectors of the queries, where they are not to be embedded."""
    if memory.project("p")._core.embedding.chosen is not None:
        return {}
    return {"vectors": [None if not query.strip() else vector for query, vector in zip(QUERIES, GIVEN, strict=True)]}


GIVEN = list(texts_like(len(QUERIES), DIMENSIONS, 2))


def alone(project: Project, given: dict[str, Any], **options: Any) -> list[Hits]:
    vectors = given.get("vectors", [None] * len(QUERIES))
    return [project.search(query, vector=one, now=0, **options) for query, one in zip(QUERIES, vectors, strict=True)]


def assert_same(project: Project, given: dict[str, Any], **options: Any) -> None:
    assert project.search_many(QUERIES, **given, now=0, **options) == alone(project, given, **options)


@pytest.mark.parametrize("options", OPTIONS)
def test_each_query_finds_what_it_finds_alone(memory: Memory, options: dict[str, Any]) -> None:
    assert_same(memory.project("p"), asked(memory), **options)
    found = memory.project("p").search_many(QUERIES, **asked(memory), now=0, **options)
    assert max(map(len, found)) > 0
    assert all(hits.exact for hits in found)


def test_however_many_are_multiplied_at_once(memory: Memory) -> None:
    for size in (1, 8 * COUNT, 3 * 8 * COUNT):
        with lowered(QUERIES_BYTES_MAX=size):
            for options in ({}, {"ranking": "window"}, {"explain": True}):
                assert_same(memory.project("p"), asked(memory), **options)


def test_with_a_graph_as_well(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_MEASURED", Crossover(1, 1))
    project, given = memory.project("p"), asked(memory)
    alone(project, given)
    slot = reader_of(memory).find("project/p")
    assert slot is not None
    assert slot.index is not None
    slot.index.table.builder.wait()
    assert_same(project, given)


def test_earlier_seqs_forks_and_batches_are_searched_as_they_are(memory: Memory) -> None:
    project, given = memory.project("p"), asked(memory)
    half = memory.at(COUNT // 2).project("p")
    before = half.search_many(QUERIES, **given, now=0, top_k=1_000)
    assert 0 < max(map(len, before)) <= COUNT // 2
    fork = memory.fork("f").project("p")
    fork.delete(fork.list()[0])
    for one in (half, fork, project):
        assert_same(one, given, top_k=1_000)
    with memory.batch():
        project.delete(project.list()[0])
        assert_same(project, given, top_k=1_000)
        assert project.search_many([""], min_importance=0.0, top_k=1_000, statuses=None)[0].query == ""
    assert half.search_many(QUERIES, **given, now=0, top_k=1_000) == before


def test_nothing_is_found_where_there_is_nothing() -> None:
    project = Memory().project("empty")
    assert project.search_many([]) == []
    found = project.search_many(["a", ""])
    assert [(len(hits), hits.query, hits.ranking, hits.exact) for hits in found] == [
        (0, "a", "hybrid", True),
        (0, "", "browse", True),
    ]


def test_it_takes_what_a_search_takes() -> None:
    assert Project.search.__kwdefaults__ == {**DEFAULTS, "vector": None, "approximate": False}


def test_earlier_seqs_are_asked_with_the_embedder_of_then() -> None:
    memory = Memory()
    project = memory.project("p")
    for number in range(20):
        project.add(f"{WORDS[number % 6]} number {number}")
    head, given = memory.head, dict[str, Any]()
    before = alone(project, given)
    memory.reembed(WordsEmbedder())
    assert_same(project, given)
    assert alone(project, given) != before
    assert memory.at(head).project("p").search_many(QUERIES, now=0) == before


class Counting(WordsEmbedder):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def embed(self, texts: list[str]) -> Any:
        self.asked.append(list(texts))
        return super().embed(texts)


def test_all_texts_are_embedded_at_once() -> None:
    embedder = Counting()
    project = Memory(embedder=embedder).project()
    project.search_many(["tea", "milk"])
    assert embedder.asked == []
    project.add("tea")
    project.search_many(["oak", "", "rain"], vectors=None)
    assert embedder.asked[1:] == [["oak", "rain"]]
    project.search_many(["snow", "port"], vectors=[[1.0] * embedder.dim, None])
    assert embedder.asked[2:] == [["port"]]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda project: project.search_many("tea"), InvalidInput, "queries must be a list of str"),
        (lambda project: project.search_many(7), InvalidInput, "queries must be a list of str"),
        (lambda project: project.search_many(["a", 7]), InvalidInput, "a query must be a str"),
        (lambda project: project.search_many(["a"], vectors=[]), InvalidInput, "0 vectors for 1 queries"),
        (lambda project: project.search_many(["a"], vectors=7), InvalidInput, "vectors must be a list"),
        (lambda project: project.search_many(["a"], vectors=[[0.0] * DIMENSIONS]), InvalidInput, "zero"),
        (lambda project: project.search_many(["a"], vectors=[[1.0]]), EmbeddingMismatch, "with 1 numbers"),
        (lambda project: project.search_many(["a"], top_k=0), InvalidInput, "top_k"),
        (lambda project: project.search_many(["a"], ranking="none"), InvalidInput, "ranking"),
        (lambda project: project.search_many(["a"], vector=[1.0]), TypeError, "unexpected options"),
        (lambda project: project.search_many(["a"] * 5_000), InvalidInput, "QUERIES_COUNT_MAX"),
    ],
)
def test_what_cannot_be_asked_is_refused(call: Callable[[Project], Any], error: type[Exception], words: str) -> None:
    project = Memory().project("p")
    project.add("tea", vector=[1.0] * DIMENSIONS)
    with pytest.raises(error, match=words):
        call(project)


def test_asyncio_hands_them_to_a_thread(memory: Memory) -> None:
    given = asked(memory)

    async def ask() -> tuple[list[Hits], list[Hits]]:
        project = memory.aio.project("p")
        found = await project.search_many(QUERIES, **given, now=0)
        async with memory.aio.batch():
            await project.add("one more of tea", vector=np.ones(DIMENSIONS) if given else None)
            inside = await project.search_many(["tea"], vectors=[GIVEN[0]] if given else None, now=0, top_k=1_000)
        return found, inside

    found, inside = asyncio.run(ask())
    assert "one more of tea" in {hit.entry.content for hit in inside[0]}
    memory.project("p").delete(memory.project("p").list()[-1])
    assert found == alone(memory.project("p"), given)


@pytest.mark.parametrize("ranking", ["seed", "window"])
def test_all_are_of_one_state_whatever_is_written_meanwhile(ranking: str) -> None:
    memory = Memory()
    project = memory.project("p")
    vectors = texts_like(400, DIMENSIONS, 4)
    for number in range(50):
        project.add(f"tea {number}", vector=vectors[number])

    def write() -> None:
        for number in range(50, 200):
            project.add(f"tea {number}", vector=vectors[number])

    with ThreadPoolExecutor(1) as pool, lowered(QUERIES_BYTES_MAX=1):
        writing = pool.submit(write)
        while True:
            is_over = writing.done()
            queries, given = ["tea"] * 6, list(vectors[:6])
            found = project.search_many(queries, vectors=given, top_k=1_000, min_importance=0.0, ranking=ranking)
            assert len({frozenset(hit.entry.id for hit in hits) for hits in found}) == 1
            if is_over:
                break
        writing.result()
    assert len(found[0]) == 200


def test_memories_that_changed_too_much_meanwhile_are_searched_again(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[int] = []
    entries_at = ProjectIndex.entries_at

    def forgetful(project: ProjectIndex, seq: int, rows: Any) -> Any:
        lost.append(seq)
        return None if len(lost) == 2 else entries_at(project, seq, rows)

    project, given = memory.project("p"), asked(memory)
    expected = alone(project, given)
    monkeypatch.setattr(ProjectIndex, "entries_at", forgetful)
    assert project.search_many(QUERIES, **given, now=0) == expected
    assert len(lost) == 2 + len(QUERIES)
