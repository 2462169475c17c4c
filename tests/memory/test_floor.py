"""The relevance floor: an unrelated question finds nothing, and a replay knows which floor that was."""

from math import log1p
from typing import Any

import pytest

from refold import InvalidInput, Memory, Project
from refold.embedders import HashedEmbedder
from refold.index.ranking import Ranking

KNOWN = (
    "The team installs packages with pnpm.",
    "Ada planted beans behind the house.",
    "Postgres listens on port 5433.",
)
UNRELATED = "Who composed the ninth symphony?"
FACTS = (
    "Alice is allergic to nuts.",
    "The API listens on port 8080.",
    "Deploys happen on Fridays at noon.",
    "The database is PostgreSQL 16 on db1.",
    "The customer prefers emails in French.",
    "Invoices are sent on the first of the month.",
)
STRANGE = (
    "zebra quantum mechanic",
    "Who won the world cup in 1998?",
    "Tell me a joke about dinosaurs",
    "Recommend a science fiction novel",
    "How do I bake sourdough bread?",
    "photosynthesis in desert plants",
    "thanks, that helps a lot!",
    "history of the Roman empire",
)


@pytest.fixture
def project() -> Project:
    project = Memory().project("p")
    for content in KNOWN:
        project.add(content)
    return project


def test_an_unrelated_question_finds_nothing(project: Project) -> None:
    hits = project.search(UNRELATED)
    assert (len(hits), hits.ranking, hits.exact) == (0, "hybrid", True)
    assert hits.floor == round(HashedEmbedder.floor_rate * log1p(7), 6)
    assert [hit.entry.content for hit in project.search("which port does Postgres use?")][:1] == [KNOWN[2]]


def test_a_floor_passes_all_hits_or_none(project: Project) -> None:
    everything = project.search("which port does Postgres use?", floor=0)
    assert (len(everything), everything.floor) == (3, 0.0)
    best = everything[0].score
    assert project.search("which port does Postgres use?", floor=best).hits == everything.hits
    assert len(project.search("which port does Postgres use?", floor=best + 1e-6)) == 0
    assert len(project.search(UNRELATED, floor=0)) == 3


def test_what_has_nothing_to_do_with_the_query_is_no_hit_unless_the_floor_is_0(project: Project) -> None:
    everything = project.search("which port?", floor=0)
    assert any(hit.score <= 0 for hit in everything)
    assert project.search("which port?").hits == tuple(hit for hit in everything if hit.score > 0)


def test_why_says_of_what_it_has_nothing_to_do_with() -> None:
    memory = Memory()
    for content in KNOWN:
        memory.project("p").add(content)
    last = memory.project("p").search("which port?", floor=0)[-1]
    (hidden,) = memory.why(last, missing_from="which port?").of("hidden")
    assert hidden.text == f"it has nothing to do with 'which port?': its score is {last.score:.3g}"


@pytest.mark.parametrize(
    "options",
    [
        {"ranking": "seed"},
        {"ranking": Ranking(name="hybrid", cosine=1.0)},
        {"vector": [1.0] + [0.0] * (HashedEmbedder.dim - 1)},
    ],
)
def test_only_scores_that_were_calibrated_have_a_floor(project: Project, options: dict[str, Any]) -> None:
    if "vector" in options:
        project = Memory().project("own")
        project.add("tea", **options)
    hits = project.search(UNRELATED, **options)
    assert (len(hits) > 0, hits.floor) == (True, 0.0)


def test_an_empty_query_browses_whatever_the_floor_of_the_embedder(project: Project) -> None:
    hits = project.search("")
    assert (len(hits), hits.ranking, hits.floor) == (3, "browse", 0.0)


def test_queries_together_have_the_floor_that_each_has_alone(project: Project) -> None:
    queries = [UNRELATED, "beans", "", "port of Postgres"]
    together = project.search_many(queries, now=0)
    assert together == [project.search(query, now=0) for query in queries]
    assert [len(hits) for hits in project.search_many(queries, floor=5.0)] == [0, 0, 0, 0]


def test_a_floor_is_that_of_the_memories_of_its_time(project: Project) -> None:
    then = project.at(1).search("packages")
    project.add("tea")
    assert project.at(1).search("packages", now=0) == project.at(1).search("packages", now=0)
    assert (then.floor, project.search("packages").floor) == (
        round(HashedEmbedder.floor_rate * log1p(1), 6),
        round(HashedEmbedder.floor_rate * log1p(4), 6),
    )


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_in_a_small_project_no_cosine_of_other_words_is_an_answer(count: int) -> None:
    for start in range(len(FACTS)):
        project = Memory().project("p")
        facts = [FACTS[(start + place) % len(FACTS)] for place in range(count)]
        for fact in facts:
            project.add(fact)
        assert [query for query in STRANGE if project.search(query)] == []
        assert all(project.search(f"What about {max(fact.split(), key=len)}?") for fact in facts)


def test_a_recall_records_its_floor(project: Project) -> None:
    found = project.recall("port of Postgres", floor=0.125, request_id="r")
    empty = project.recall(UNRELATED)
    events: list[Any] = [recorded.event for recorded in project.events()][-2:]
    assert [(event.ids, event.floor) for event in events] == [
        (tuple(hit.entry.id for hit in found), 0.125),
        ((), empty.floor),
    ]
    assert empty.floor > 0
    assert project.recall("port of Postgres", floor=0.125, request_id="r") == found
    with pytest.raises(InvalidInput):
        project.recall("port of Postgres", floor=0.25, request_id="r")


def test_episodes_have_a_floor(project: Project) -> None:
    project.record_episode("success", task="Deploy the API")
    assert len(project.search_episodes("deploy the API")) == 1
    assert len(project.search_episodes("Beethoven symphony")) == 0
    assert len(project.search_episodes("Beethoven symphony", floor=0)) == 1
    assert len(project.search_episodes("")) == 1


@pytest.mark.parametrize("floor", [-0.1, float("nan"), float("inf"), "0.1", True])
def test_a_floor_that_is_no_score_is_refused(project: Project, floor: Any) -> None:
    with pytest.raises(InvalidInput, match="floor is"):
        project.search("beans", floor=floor)
