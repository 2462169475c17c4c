"""Project memories: each verb, its refusals, and answers that were computed by hand."""

import math
from pathlib import Path
from typing import Any, cast

import pytest

from refold import RANKINGS, EmbeddingMismatch, InvalidInput, Memory, Project, ReadOnly
from refold.index.ranking import Ranking
from tests.support.bounds import Clock
from tests.support.embedder import BETWEEN, ONE, TWO, Told
from tests.support.memories import assert_sound

DAY_NS = 86_400 * 10**9


@pytest.fixture
def memory(clock: Clock) -> Memory:
    return Memory(clock_ns=clock)


@pytest.fixture
def project(memory: Memory) -> Project:
    return memory.project("acme")


class TestAdding:
    def test_everything_that_was_said_is_there(self, memory: Memory, project: Project) -> None:
        said = memory.conversation("chat").append("user", "Use pnpm.", tokens=3)
        entry = project.add(
            "Use pnpm.",
            category="preference",
            keywords=["PNPM ", "npm", "pnpm"],
            importance=1,
            metadata={"a": [1]},
            source=said,
            source_context="the user said so",
            occurred=5,
        )
        assert entry == project.get(entry.id) == project.list()[0]
        assert (entry.category, entry.keywords, entry.importance) == ("preference", ["pnpm", "npm"], 1.0)
        assert (entry.metadata, entry.source, entry.session) == ({"a": [1]}, said.seq, "chat")
        assert (entry.source_context, entry.occurred_ns, entry.accessed_ns) == ("the user said so", 5, 5)
        assert entry.created_ns == entry.updated_ns == memory.project("acme").list()[0].created_ns
        assert [event.sources for event, _ in project.events()] == [(said.seq,)]
        cast("dict[str, Any]", entry.metadata)["a"].append(2)
        assert entry.metadata == {"a": [1]}

    def test_an_exact_duplicate_is_the_live_entry_and_appends_nothing(self, memory: Memory, project: Project) -> None:
        entry = project.add("tea", importance=0.9)
        head = memory.head
        assert project.add("tea", category="pattern") == entry
        assert memory.head == head
        project.delete(entry.id)
        assert project.add("tea").id != entry.id

    def test_a_duplicate_is_not_embedded(self) -> None:
        told = Told()
        project = Memory(embedder=told).project()
        project.add("tea")
        project.add("tea")
        assert told.asked == ["tea"]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"content": " "},
            {"content": 5},
            {"category": "opinion"},
            {"importance": 1.1},
            {"importance": float("nan")},
            {"importance": True},
            {"keywords": "tea"},
            {"keywords": [5]},
            {"metadata": []},
            {"status": "deleted"},
            {"source": 99},
            {"vector": [float("inf"), 0.0]},
            {"vector": [0.0, 0.0]},
            {"vector": "ab"},
            {"vector": [[1.0]]},
            {"occurred": "now"},
        ],
    )
    def test_what_is_no_memory_is_refused_and_nothing_is_written(
        self, memory: Memory, project: Project, wrong: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidInput):
            project.add(**{"content": "tea"} | wrong)
        assert memory.head == 0

    def test_vectors_of_another_model_or_dimension_are_refused(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            project = memory.project()
            project.add("tea", vector=ONE)
            for wrong in (None, [1.0]):
                with pytest.raises(EmbeddingMismatch):
                    project.add("milk", vector=wrong)
            with pytest.raises(EmbeddingMismatch):
                project.search("tea")
            assert memory.head == 1
            memory.project("other").add("tea")
        with Memory(tmp_path / "store", embedder=Told()) as memory:
            for name in ("default", "other"):
                with pytest.raises(EmbeddingMismatch):
                    memory.project(name).add("milk")
                with pytest.raises(EmbeddingMismatch):
                    memory.project(name).search("milk")
            assert memory.project().search("").hits != ()
            assert memory.head == 2

    def test_a_project_that_was_cleared_takes_any_model(self, project: Project) -> None:
        project.add("tea", vector=ONE)
        assert project.clear() == 1
        assert project.clear() == 0
        assert project.add("tea").id == project.search("tea")[0].entry.id

    @pytest.mark.parametrize("vectors", [[], [[1.0]], [[0.0, 0.0]], [[math.nan, 1.0]], [ONE, TWO], None])
    def test_an_embedder_that_errs_writes_nothing(self, vectors: Any) -> None:
        class Wrong(Told):
            def embed(self, texts: list[str]) -> Any:
                assert texts == ["tea"]
                return vectors

        memory = Memory(embedder=Wrong())
        with pytest.raises((InvalidInput, EmbeddingMismatch)):
            memory.add("tea")
        assert memory.head == 0

    def test_who_is_no_embedder_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="embedder needs an id"):
            Memory(embedder=cast("Any", object()))


class TestSeedRanking:
    """0.40 cosine + 0.25 Jaccard + 0.20 importance + 0.15 / (1 + 0.1 days)."""

    def test_the_formula_by_hand(self, memory: Memory, clock: Clock) -> None:
        project = memory.project()
        project.add("one", keywords=["tea", "milk"], importance=0.5, vector=ONE)
        project.add("two", keywords=["tea", "red", "hot"], importance=1.0, vector=BETWEEN)
        clock.advance(10 * DAY_NS // 1_000)
        first, second = project.search("Tea and milk", vector=ONE, ranking="seed")
        # Keywords of the query: tea, and, milk. Ten days: 1 / (1 + 1) = 0.5.
        assert first.entry.content == "one"
        assert first.parts == pytest.approx({"cosine": 1.0, "keywords": 2 / 3, "importance": 0.5, "recency": 0.5})
        assert first.score == pytest.approx(0.40 + 0.25 * 2 / 3 + 0.20 * 0.5 + 0.15 * 0.5, abs=1e-6)
        assert second.parts == pytest.approx({"cosine": 0.6, "keywords": 1 / 5, "importance": 1.0, "recency": 0.5})
        assert second.score == pytest.approx(0.40 * 0.6 + 0.25 / 5 + 0.20 + 0.15 * 0.5, abs=1e-6)

    def test_a_cosine_is_raw_and_two_empty_sets_of_keywords_share_nothing(self, project: Project) -> None:
        project.add("!", keywords=[], importance=0.1, vector=[-1.0, 0.0])
        (hit,) = project.search("?", vector=ONE, ranking="seed")
        assert hit.parts == pytest.approx({"cosine": -1.0, "keywords": 0.0, "importance": 0.1, "recency": 1.0})
        assert hit.score == pytest.approx(-0.40 + 0.02 + 0.15, abs=1e-6)

    def test_recency_counts_from_what_happened_until_a_recall(
        self, memory: Memory, project: Project, clock: Clock
    ) -> None:
        now_ns = clock()
        project.add("tea", vector=ONE, occurred=now_ns - 30 * DAY_NS)
        assert project.search("tea", vector=ONE, ranking="seed")[0].parts["recency"] == pytest.approx(1 / 4)
        assert project.search("tea", vector=ONE, ranking="seed", now=now_ns - 40 * DAY_NS)[0].parts["recency"] == 1.0
        seq = memory.head
        project.recall("tea", vector=ONE, ranking="seed")
        assert project.search("tea", vector=ONE, ranking="seed")[0].parts["recency"] == 1.0
        assert memory.at(seq).project("acme").search("tea", vector=ONE, ranking="seed")[0].parts[
            "recency"
        ] == pytest.approx(1 / 4)

    def test_ties_go_to_the_more_important_then_the_older(self, project: Project) -> None:
        for content, importance in (("a", 0.5), ("b", 0.5), ("c", 0.5), ("d", 0.9)):
            project.add(content, keywords=[], importance=importance, vector=ONE)
        flat = Ranking(name="flat", cosine=1.0)
        assert [hit.entry.content for hit in project.search("x", vector=TWO, ranking=flat)] == ["d", "a", "b", "c"]

    def test_an_empty_query_browses(self, project: Project) -> None:
        project.add("dull", importance=0.2)
        project.add("dear", importance=0.9)
        hits = project.search(" ")
        assert ([hit.entry.content for hit in hits], hits.ranking) == (["dear", "dull"], "browse")
        assert hits[0].score == pytest.approx(0.80 * 0.9 + 0.20, abs=1e-6)

    @pytest.mark.parametrize("ranking", RANKINGS)
    def test_every_preset_answers_and_explains(self, project: Project, ranking: str) -> None:
        project.add("The port of the API is 8080.", source="s")
        project.add("Tea is red.", source="s")
        hits = project.search("What port has the API?", ranking=ranking, explain=True)
        assert len(hits[0].parts) == (8 if RANKINGS[ranking].cosine else 7)
        if ranking != "browse":
            assert hits[0].entry.content.startswith("The port")


class TestSearching:
    def test_filters(self, project: Project) -> None:
        project.add("a", category="preference", importance=0.05, metadata={"file": "x"})
        project.add("b", category="pattern", importance=0.5, metadata={"file": "x", "line": 3})
        project.add("c", importance=0.9, status="pending_review")

        def found(**options: Any) -> str:
            return "".join(sorted(hit.entry.content for hit in project.search("a b c", **options)))

        assert found() == "b"
        assert found(min_importance=0) == "ab"
        assert found(statuses=None) == found(statuses=["active", "pending_review"]) == "bc"
        assert found(categories=["preference"], min_importance=0) == "a"
        assert found(metadata={"file": "x"}, min_importance=0) == "ab"
        assert found(metadata={"file": "x", "line": 3}) == "b"
        assert found(metadata={"absent": None}) == ""
        assert found(top_k=1, statuses=None) in {"b", "c"}

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            (True, "true"),
            (1, "one"),
            (1.0, "one"),
            ([{"is": True}], "nested true"),
            ([{"is": 1}], "nested one"),
            ([{"is": 1}, 0], ""),
            ({"is": 1}, ""),
        ],
    )
    def test_metadata_are_compared_as_in_json(self, project: Project, wanted: Any, expected: str) -> None:
        held = {"true": True, "one": 1, "nested true": [{"is": True}], "nested one": [{"is": 1}]}
        for content, value in held.items():
            project.add(content, metadata={"admin": value})
        hits = project.search("", metadata={"admin": wanted})
        assert [hit.entry.content for hit in hits] == [expected] * bool(expected)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"top_k": 0},
            {"categories": ["opinion"]},
            {"statuses": ["gone"]},
            {"min_importance": 2},
            {"ranking": "best"},
            {"metadata": 5},
            {"now": "today"},
            {"explain": 1},
            {"vector": [math.nan]},
        ],
    )
    def test_what_is_no_search_is_refused(self, project: Project, wrong: dict[str, Any]) -> None:
        project.add("tea", vector=ONE)
        with pytest.raises((InvalidInput, EmbeddingMismatch)):
            project.search("tea", **{"vector": ONE} | wrong)

    def test_a_search_is_a_sequence_and_writes_nothing(self, memory: Memory, project: Project) -> None:
        project.add("tea")
        head, hashed = memory.head, memory.state_hash()
        hits = project.search("tea")
        assert (len(hits), hits[0] in hits, list(hits) == list(hits[:]), hits.exact) == (1, True, True, True)
        assert (memory.head, memory.state_hash()) == (head, hashed)
        assert not project.search("nothing", ranking=Ranking(name="k", keywords=1.0)).hits[1:]
        assert len(memory.project("empty").search("tea")) == 0

    def test_as_of_a_seq_everything_is_as_it_was(self, memory: Memory, project: Project) -> None:
        entry = project.add("tea", importance=0.3)
        seq = memory.head
        project.update(entry, importance=0.8, content="milk")
        project.review(entry, "archived")
        then = memory.at(seq).project("acme")
        assert [(hit.entry.content, hit.parts["importance"]) for hit in then.search("tea", ranking="seed")] == [
            ("tea", 0.3)
        ]
        assert project.at(seq).list() == then.list()
        assert len(project.search("tea")) == 0
        assert len(memory.at(0).project("acme").search("tea")) == 0
        with pytest.raises(ReadOnly):
            then.add("x")

    def test_of_two_memories_that_an_erasure_made_equal_the_other_is_still_known(self, memory: Memory) -> None:
        project = memory.project("p")
        first = project.add("red lamp")
        assert project.upsert("red lamp shade", threshold=0.1).outcome == "merged"
        merge = memory.head
        second = project.add("red lamp")
        memory.erase([merge], derived="keep")
        assert [entry.content for entry in project.list()] == ["red lamp", "red lamp"]
        assert project.add("red lamp").id == first.id
        project.update(first, content="blue lamp")
        assert project.add("red lamp").id == second.id
        assert [entry.content for entry in project.list()] == ["blue lamp", "red lamp"]
        project.delete(second)
        assert project.add("red lamp").id not in {first.id, second.id}
        assert_sound(memory)

    def test_a_correction_that_was_given_whole_outlives_the_text_it_replaced(self, memory: Memory) -> None:
        project = memory.project("p")
        wrong = project.add("The password of the store is swordfish.", category="convention", importance=0.7)
        project.archive(wrong)
        right = project.update(wrong, content="Ask Carol for the access to the store.")
        project.approve(wrong)
        receipt = memory.erase(text="swordfish")
        assert (receipt.seqs, receipt.derived) == ((wrong.seq,), ())
        (kept,) = project.list()
        assert (kept.id, kept.content, kept.seq) == (wrong.id, right.content, right.seq)
        assert (kept.category, kept.importance, kept.status, kept.erased) == ("convention", 0.7, "active", False)
        assert [hit.entry.id for hit in project.search("Carol's access")] == [wrong.id]
        assert memory.at(wrong.seq).project("p").list() == []
        last = project.update(kept, content="Ask Dave for the access to the store.")
        memory.erase([right])
        assert [entry.content for entry in project.list()] == [last.content]
        assert memory.verify().ok

    def test_new_content_happened_when_the_caller_says(self, memory: Memory) -> None:
        project = memory.project("p")
        first = project.add("User lives in Graz", occurred=5)
        changed = project.update(first, content="User lives in Wien", occurred=9)
        assert (changed.occurred_ns, changed.accessed_ns, changed.dated) == (9, 9, True)
        (hit,) = project.search("Wien")
        assert changed == project.get(first.id) == hit.entry
        before = memory.at(first.seq).project("p").get(first.id)
        assert before is not None
        assert (before.occurred_ns, before.dated) == (5, True)
        assert project.update(changed, importance=0.9).occurred_ns == 9
        assert project.update(changed, content="User lives in Linz").occurred_ns == 9
        (recalled,) = (hit.entry for hit in project.recall("Linz", conversation=None))
        accessed_ns = cast("Any", project.get(first.id)).accessed_ns
        with memory.batch():
            entry = project.update(recalled, content="User lives in Wels", occurred=0)
            assert entry.occurred_ns == 0
        assert (entry.occurred_ns, entry.accessed_ns) == (0, accessed_ns)
        assert entry == project.get(first.id)
        assert memory.verify().ok
        head = memory.head
        with pytest.raises(InvalidInput, match="occurred is when new content was said; give content too"):
            project.update(entry, importance=0.1, occurred=7)
        assert memory.head == head
        memory.erase([entry])
        assert project.list() == []

    @pytest.mark.parametrize(
        ("given", "changes", "is_kept"),
        [
            ({"metadata": {"by": "swordfish"}}, {"content": "Ask Carol."}, False),
            ({"metadata": {"by": "swordfish"}}, {"content": "Ask Carol.", "metadata": {}}, True),
            ({"keywords": ["swordfish"]}, {"content": "Ask Carol."}, False),
            ({"keywords": ["swordfish"]}, {"content": "Ask Carol.", "keywords": ["carol"]}, True),
            ({"source": "chat"}, {"content": "Ask Carol."}, False),
            ({"source_context": "It is swordfish."}, {"content": "Ask Carol."}, False),
            ({}, {"keywords": ["door"]}, False),
            ({}, {"metadata": {"by": "Carol"}}, False),
        ],
    )
    def test_a_change_that_carries_something_over_goes_with_what_it_comes_from(
        self, memory: Memory, given: dict[str, Any], changes: dict[str, Any], is_kept: bool
    ) -> None:
        project = memory.project("p")
        first = project.add("The password is swordfish.", **given)
        changed = project.update(first, **changes)
        receipt = memory.erase([first.seq])
        assert receipt.derived == (() if is_kept else (changed.seq,))
        assert len(project.list()) == is_kept

    def test_a_request_whose_memory_was_erased_is_answered_with_an_erased_one(self, memory: Memory) -> None:
        project = memory.project("p")
        entry = project.add("a secret", request_id="r")
        memory.erase([entry])
        repeated = project.add("a secret", request_id="r")
        assert (repeated.id, repeated.content, repeated.erased) == (entry.id, "", True)
        assert project.list() == []

    def test_a_recall_is_recorded_even_without_hits(self, memory: Memory, project: Project) -> None:
        chat = memory.conversation("chat")
        last = chat.append("user", "What do I drink?", tokens=3)
        assert len(project.recall("tea", conversation=chat)) == 0
        project.add("tea")
        hits = project.recall("tea", conversation="chat", request_id="r")
        event = list(project.events())[-1].event
        assert event.sources == (last.seq,)
        assert (event.ids, event.conversation, event.ranking) == ((hits[0].entry.id,), "chat", "hybrid")  # type: ignore[attr-defined]
        assert project.list()[0].access_count == 1
        assert project.recall("tea", conversation="chat", request_id="r") == hits
        assert project.list()[0].access_count == 1
        with pytest.raises(InvalidInput):
            project.recall("milk", conversation="chat", request_id="r")
