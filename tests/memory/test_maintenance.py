"""Project memories: merging, maintenance, reviews, episodes, batches, requests, and what an erasure leaves."""

import math
from pathlib import Path
from typing import Any, cast

import pytest

from refold import Entry, InvalidInput, Memory, NotFound, Project
from refold.embedders import HashedEmbedder
from refold.engine.engine import Engine
from refold.engine.transaction import Transaction
from refold.index.project import ProjectIndex
from refold.index.ranking import Ranking
from tests.support.bounds import Clock
from tests.support.embedder import BETWEEN, ONE, TWO, Told
from tests.support.memories import assert_sound, elsewhere

DAY_NS = 86_400 * 10**9
CAT, LONGER_CAT = "\u732b\u304c\u597d\u304d", "\u79c1\u306f\u732b\u304c\u597d\u304d\u3067\u3059\u3002"
# A text, a similar one, and what a merge of both says.
JOINS = [
    ("green tea.", "Alice likes green  Tea", "Alice likes green  Tea"),
    ("I like tea. | I like cake.", "i like cake!", "I like tea. | I like cake."),
    ("I like tea.", "I like cake. | i like tea", "I like cake. | i like tea"),
    ("likes tea", "likes teapots", "likes tea | likes teapots"),
    ("tea, then cake", "then cake is served", "tea, then cake | then cake is served"),
    ("uses C", "uses C++", "uses C | uses C++"),
    (CAT, LONGER_CAT, LONGER_CAT),
    (LONGER_CAT, CAT, LONGER_CAT),
    ("likes tea", "...", "likes tea | ..."),
]


@pytest.fixture
def memory(clock: Clock) -> Memory:
    return Memory(clock_ns=clock)


@pytest.fixture
def project(memory: Memory) -> Project:
    return memory.project("acme")


class TestMerging:
    def upserted(self, memory: Memory) -> Any:
        return memory.project().upsert("likes milk", importance=0.9, keywords=["milk"], vector=[1.0, 0.1])

    @pytest.fixture
    def told(self) -> Memory:
        memory = Memory(embedder=Told())
        memory.add("likes tea", category="preference", keywords=["tea"], metadata={"a": 1}, vector=ONE)
        return memory

    def test_a_merge_joins_what_is_alike(self, told: Memory) -> None:
        upserted = self.upserted(told)
        (entry,) = told.project().list()
        assert (upserted.outcome, upserted.entry, upserted.reason) == ("merged", entry, None)
        assert upserted.cosine == pytest.approx(1 / math.sqrt(1.01), abs=1e-6)
        assert (entry.content, entry.category, entry.keywords) == (
            "likes tea | likes milk",
            "preference",
            ["tea", "milk"],
        )
        assert (entry.importance, entry.metadata) == (0.9, {"a": 1})
        event = told.project().history(entry.id)[-1].event
        assert (event.text, event.other_text) == ("likes tea", "likes milk")  # type: ignore[attr-defined]
        assert upserted.seq == told.head

    def test_taking_a_merge_apart_keeps_nothing_of_another_one(self, told: Memory) -> None:
        """The importance is that of a later merge: once that is erased, it is what it was before."""
        first, second = self.upserted(told), told.project().upsert("likes jam", importance=0.95, vector=ONE)
        assert (first.outcome, second.outcome) == ("merged", "merged")
        kept, _ = told.project().unmerge(first.seq)
        assert kept.importance == 0.95
        told.erase([second.seq])
        assert told.project().get(kept.id).importance == 0.9  # type: ignore[union-attr]
        assert_sound(told)

    def test_what_is_less_alike_is_inserted_and_the_bound_is_exclusive(self, told: Memory) -> None:
        assert told.project().upsert("x", vector=BETWEEN, threshold=0.6).outcome == "inserted"
        assert told.project().upsert("y", vector=BETWEEN, threshold=0.9999).outcome == "merged"

    def test_a_text_that_contains_the_other_stays(self, told: Memory) -> None:
        upserted = told.project().upsert("tea", keywords=["tea"], importance=0.8, vector=ONE)
        assert (upserted.outcome, upserted.entry) == ("merged", told.project().list()[0])
        assert told.project().list()[0].content == "likes tea"
        again = told.project().upsert("tea", keywords=["tea"], importance=0.8, vector=ONE)
        assert (again.outcome, again.reason) == ("skipped", "nothing would change")

    @pytest.mark.parametrize(
        "restated",
        [
            "Alice likes green tea!",
            "alice likes green tea",
            " Alice  likes\tgreen tea.",
            "Alice likes green tea .",
            "ALICE LIKES GREEN TEA",
            "- Alice likes green tea",
            "\u201cAlice likes green tea\u201d",
            "green tea",
        ],
    )
    def test_a_restatement_of_the_same_words_changes_nothing(self, memory: Memory, restated: str) -> None:
        project = memory.project("p")
        added = project.add("Alice likes green tea.", vector=[1.0, 0.0])
        head = memory.head
        upserted = project.upsert(restated, vector=[1.0, 0.1], keywords=["tea"])
        assert (upserted.outcome, upserted.reason) == ("skipped", "nothing would change")
        assert (upserted.entry, memory.head) == (added, head)

    @pytest.mark.parametrize(("text", "other", "content"), JOINS)
    def test_an_upsert_keeps_the_text_that_contains_the_other_in_whole_words(
        self, project: Project, text: str, other: str, content: str
    ) -> None:
        kept = project.add(text, vector=ONE)
        upserted = project.upsert(other, importance=0.9, vector=[1.0, 0.1])
        assert (upserted.outcome, [entry.content for entry in project.list()]) == ("merged", [content])
        hits = project.search("x", vector=[1.0, 0.1], ranking=Ranking(name="c", cosine=1.0))
        assert (hits[0].score == pytest.approx(1.0, abs=1e-6)) == (content == other)
        back = project.unmerge(upserted)
        assert [(entry.content, entry.importance) for entry in back] == [(text, 0.5), (other, 0.9)]
        assert back[0].vector_seq == kept.vector_seq

    @pytest.mark.parametrize(("text", "other", "content"), JOINS)
    def test_a_compaction_does_so_too(self, project: Project, text: str, other: str, content: str) -> None:
        project.add(text, vector=ONE)
        project.add(other, importance=0.4, vector=[1.0, 0.1])
        assert project.compact().merged == 1
        assert [entry.content for entry in project.list()] == [content]
        hits = project.search("x", vector=[1.0, 0.1], ranking=Ranking(name="c", cosine=1.0))
        assert (hits[0].score == pytest.approx(1.0, abs=1e-6)) == (content == other)
        back = project.unmerge(list(project.events())[-1].stamp.seq)
        assert [(entry.content, entry.importance) for entry in back] == [(text, 0.5), (other, 0.4)]

    def test_an_empty_one_is_skipped_with_the_reason(self, told: Memory) -> None:
        head = told.head
        skipped = told.project().upsert(" \n")
        assert (skipped.outcome, skipped.reason, skipped.entry) == ("skipped", "the content is empty", None)
        assert told.head == head

    def test_what_is_not_active_is_not_merged_with(self, told: Memory) -> None:
        (entry,) = told.project().list()
        told.project().reject(entry)
        assert self.upserted(told).outcome == "inserted"
        again = told.project().upsert("likes tea", vector=ONE)
        assert (again.outcome, again.reason) == ("skipped", "the same memory is rejected")

    def test_a_text_that_is_said_again_is_not_brought_back(self, memory: Memory) -> None:
        project = memory.project("p")
        project.add("tea", vector=[1.0, 0.0])
        merged = project.upsert("milk", vector=[1.0, 0.1], threshold=0.5)
        again = project.add("tea", vector=[0.0, 1.0])
        head = memory.head
        with pytest.raises(InvalidInput, match=again.id):
            project.unmerge(merged)
        assert memory.head == head
        project.delete(again)
        assert [entry.content for entry in project.unmerge(merged)] == ["tea", "milk"]

    def test_taking_it_apart_brings_both_back(self, told: Memory) -> None:
        (before,) = told.project().list()
        seq = self.upserted(told).seq
        kept, other = told.project().unmerge(seq)
        assert told.project().list() == [kept, other]
        assert (kept.content, kept.keywords, kept.importance) == ("likes tea", ["tea"], 0.5)
        assert kept.vector_seq == before.vector_seq
        assert (other.content, other.keywords, other.importance) == ("likes milk", ["milk"], 0.9)
        cosines = [hit.parts["cosine"] for hit in told.search("x", vector=ONE, ranking=Ranking(name="c", cosine=1.0))]
        assert cosines == pytest.approx([1.0, 1 / math.sqrt(1.01)])
        with pytest.raises(InvalidInput, match="taken apart already"):
            told.project().unmerge(seq)

    def test_what_a_kept_reversal_brought_back_is_there_though_the_merge_is_erased(self, told: Memory) -> None:
        seq = self.upserted(told).seq
        _, other = told.project().unmerge(seq)
        told.erase([seq], derived="keep")
        assert told.project().get(other.id) == told.project().list()[1]
        assert told.state_hash() == told.replay_hash()

    def test_what_was_erased_after_a_merge_that_was_kept_does_not_come_back(self, told: Memory) -> None:
        project = told.project()
        added = project.add("likes milk", importance=0.4, vector=[1.0, 0.1])
        project.compact()
        (merged,) = project.list()
        told.erase([added], derived="keep")
        (kept,) = project.unmerge(told.head - 1)
        assert (merged.content, kept.content) == ("likes tea | likes milk", "likes tea")
        assert project.list() == [kept]
        assert told.state_hash() == told.replay_hash()

    def test_only_what_still_holds_the_merged_value_is_reverted(self, told: Memory) -> None:
        seq = self.upserted(told).seq
        (entry,) = told.project().list()
        told.project().update(entry, importance=0.4, keywords=["own"])
        kept, _ = told.project().unmerge(seq)
        assert (kept.content, kept.keywords, kept.importance) == ("likes tea", ["own"], 0.4)

    def test_what_is_no_merge_is_not_found(self, told: Memory) -> None:
        for seq in (1, 99):
            with pytest.raises(NotFound):
                told.project().unmerge(seq)
        with pytest.raises(InvalidInput):
            told.project().unmerge(0)

    def test_the_merged_text_is_embedded_before_the_turn(self) -> None:
        told = Told()
        memory = Memory(embedder=told)
        memory.add("a")
        memory.project().upsert("b")
        assert told.asked == ["a", "b", "a | b"]

    def test_given_vectors_meet_in_the_middle(self, project: Project) -> None:
        project.add("a", vector=ONE)
        project.upsert("b", vector=TWO, threshold=-1)
        (hit,) = project.search("x", vector=ONE, ranking=Ranking(name="c", cosine=1.0))
        assert hit.score == pytest.approx(math.sqrt(0.5), abs=1e-6)

    def test_compaction_merges_until_nothing_is_alike(self, told: Memory) -> None:
        project = told.project()
        project.add("likes milk", importance=0.9, vector=[1.0, 0.1])
        project.add("drives", vector=TWO)
        assert project.compact(dry_run=True).merged == 1
        assert project.count() == 3
        outcome = project.compact()
        assert (outcome.merged, outcome.changed, outcome.removed) == (1, 0, 0)
        assert [entry.content for entry in project.list()] == ["likes milk | likes tea", "drives"]
        assert project.compact().merged == 0
        kept, other = project.unmerge(told.head)
        assert (kept.content, other.content, other.category) == ("likes milk", "likes tea", "preference")


class TestMaintaining:
    def test_decay_counts_each_day_once(self, memory: Memory, clock: Clock) -> None:
        project = memory.project()
        project.add("tea", importance=0.8)
        clock.advance((10 * DAY_NS + DAY_NS // 2) // 1_000)
        assert project.decay(dry_run=True).changed == 1
        assert project.decay().changed == 1
        assert project.list()[0].importance == pytest.approx(0.8 * 0.95 ** (10 / 7))
        head = memory.head
        assert project.decay().changed == 0
        assert memory.head == head
        clock.advance(DAY_NS // 2 // 1_000)
        assert project.decay().changed == 1
        assert project.list()[0].importance == pytest.approx(0.8 * 0.95 ** (11 / 7))

    def test_decay_counts_from_the_last_access(self, memory: Memory, clock: Clock) -> None:
        memory.add("tea", importance=0.8)
        clock.advance(7 * DAY_NS // 1_000)
        memory.recall("tea")
        clock.advance(7 * DAY_NS // 1_000)
        memory.project().decay()
        assert memory.project().list()[0].importance == pytest.approx(0.8 * 0.95)

    def test_what_happened_long_ago_begins_to_decay_when_it_is_added(self, memory: Memory, clock: Clock) -> None:
        memory.add("tea", importance=0.8, occurred=clock() - 700 * DAY_NS)
        assert memory.project().decay().changed == 0
        clock.advance(7 * DAY_NS // 1_000)
        memory.project().decay()
        assert memory.project().list()[0].importance == pytest.approx(0.8 * 0.95)

    def test_pruning_takes_what_is_under_the_bound(self, project: Project) -> None:
        for importance in (0.1, 0.2, 0.3):
            project.add(str(importance), importance=importance)
        assert project.prune(0.2, dry_run=True).removed == project.prune(0.2).removed == 1
        assert [entry.content for entry in project.list()] == ["0.2", "0.3"]

    def test_large_outcomes_go_in_pages_of_one_commit(
        self, memory: Memory, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("refold.memory.maintenance.PAGE_MEMORIES_COUNT", 2)
        for number in range(5):
            project.add(f"memory {number}", importance=0.1, vector=[1.0, number])
        head = memory.head
        assert project.prune(0.5, request_id="r").removed == 5
        pages = list(project.events(after=head))
        assert [len(event.ids) for event, _ in pages] == [2, 2, 1]  # type: ignore[attr-defined]
        assert [event.total for event, _ in pages] == [2, 4, 5]  # type: ignore[attr-defined]
        assert memory.project("acme").prune(0.5, request_id="r").removed == 5
        assert memory.head == head + 3


class TestHandles:
    def test_updates_and_reviews(self, memory: Memory, project: Project) -> None:
        entry = project.add("The port is 80.")
        changed = project.update(entry.id, content="The socket is 90.", importance=0.7)
        assert (changed, changed.keywords) == (project.get(entry.id), ["the", "socket"])
        assert changed.created_ns == entry.created_ns
        head = memory.head
        assert project.update(entry, importance=0.7) == changed
        assert memory.head == head
        project.add("tea")
        with pytest.raises(InvalidInput, match="says exactly this"):
            project.update(entry, content="tea")
        assert project.archive(entry).status == "archived"
        assert project.approve(entry).status == "active"
        with pytest.raises(InvalidInput):
            project.review(entry, "deleted")

    def test_unknown_ids(self, project: Project) -> None:
        assert project.get("nobody") is None
        for call in (
            project.delete,
            project.history,
            project.archive,
            lambda wrong: project.update(wrong, importance=1),
        ):
            with pytest.raises(NotFound, match="nobody"):
                call("nobody")

    def test_lists_counts_and_stats(self, project: Project) -> None:
        for number, category in enumerate(("fact", "fact", "pattern")):
            project.add(f"memory {number}", category=category, importance=0.5)
        assert [entry.content[-1] for entry in project.list(offset=1)] == ["1", "2"]
        assert [entry.content[-1] for entry in project.list(category="fact", limit=1)] == ["0"]
        assert project.count(category="pattern") == project.count(status="active") - 2 == 1
        stats = project.stats()
        assert (stats.memories, stats.categories, stats.importance) == (3, {"fact": 2, "pattern": 1}, 0.5)
        assert repr(project) == "Project('acme', memories=3)"
        with pytest.raises(InvalidInput):
            project.list(offset=-1)

    def test_history_tells_of_what_was_deleted(self, project: Project) -> None:
        entry = project.add("tea")
        project.update(entry, importance=0.9)
        project.delete(entry)
        names = [type(event).__name__ for event, _ in project.history(entry)]
        assert names == ["MemoryAdded", "MemoryUpdated", "MemoryDeleted"]

    def test_episodes(self, memory: Memory, project: Project) -> None:
        said = {"session": "s", "approach": "pnpm deploy", "outcome": "it works", "tools": ["bash"]}
        episode = project.record_episode("success", task="Deploy the API", **cast("Any", said))
        project.record_episode("failure", task="Brew tea")
        assert (episode.kind, episode.session, episode.tools, episode.seq) == ("success", "s", ("bash",), 1)
        assert project.search_episodes("deploying an API")[0].entry == episode
        assert [hit.entry.task for hit in project.search_episodes("API", kinds=["failure"], floor=0)] == ["Brew tea"]
        assert len(project.at(1).search_episodes("")) == 1
        assert memory.project("acme").stats().kinds == {"failure": 1, "success": 1}
        for wrong in ({"kind": "maybe"}, {"task": ""}, {"tools": "bash"}):
            with pytest.raises(InvalidInput):
                project.record_episode(**cast("Any", {"kind": "success", "task": "x"} | wrong))

    def test_a_batch_fills_in_what_it_handed_out(self, memory: Memory, project: Project) -> None:
        with memory.batch():
            entry = project.add("tea")
            again = project.upsert("tea!", importance=0.9)
            assert (entry.seq, entry.created_ns, again.seq) == (None, None, None)
            assert project.search("tea")[0].entry.id == entry.id
            episode = project.record_episode("discovery", task="x")
            derived = project.add("milk", sources=[entry])
        assert (entry.seq, again.seq, episode.seq, derived.seq) == (1, 2, 3, 4)
        assert project.get(entry.id) == again.entry
        assert entry.created_ns == project.get(entry.id).created_ns == episode.time_ns  # type: ignore[union-attr]
        assert [event.sources for event, _ in project.events()] == [(), (1,), (), (1,)]

    def test_a_batch_lays_out_its_memories_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        memory = Memory(embedder=Told())
        project = memory.project()
        project.add("base", vector=ONE)
        made: list[ProjectIndex] = []
        original = ProjectIndex.__init__

        def counted(index: ProjectIndex, *arguments: Any) -> None:
            made.append(index)
            original(index, *arguments)

        monkeypatch.setattr(ProjectIndex, "__init__", counted)
        with memory.batch():
            for number in range(30):
                assert project.upsert(f"text {'x' * number}", vector=[1.0, 0.01 * number]).outcome == "merged"
                assert len(project.search("text", vector=ONE)) == 1
            project.add("other", vector=[-1.0, 0.0])
            assert project.search("x", vector=[-1.0, 0.0])[0].entry.content == "other"
        assert len(made) == 2  # One for the state before the batch, one for the batch.


class TestErasing:
    def test_an_erased_memory_stays_as_an_id_that_is_never_found(self, memory: Memory, project: Project) -> None:
        entry = project.add("a secret that nobody may know")
        memory.erase([entry])
        assert project.get(entry.id) == Entry(entry.id, erased=True)
        assert (project.list(), project.count(), len(project.search("secret"))) == ([], 0, 0)
        with pytest.raises(NotFound):
            project.update(entry, importance=1)
        assert memory.verify().ok

    def test_what_was_made_of_an_erased_message_goes_too(self, memory: Memory, project: Project) -> None:
        chat = memory.conversation("chat")
        said = chat.append("user", "my secret is 42", tokens=3)
        project.add("the secret of the user is 42", source=said)
        kept = project.add("likes tea")
        project.recall("tea", conversation=chat)
        receipt = chat.erase()
        assert project.list() == [project.get(kept.id)]
        assert len(receipt.derived) == 2
        assert receipt.occurrences == 0

    def test_an_erased_merge_leaves_the_memory_as_it_was(self, memory: Memory, project: Project) -> None:
        entry = project.add("likes tea")
        merged = project.upsert("likes tea and a secret thing", threshold=0.1)
        assert merged.outcome == "merged"
        memory.erase([merged.seq])
        assert [held.content for held in project.list()] == ["likes tea"]
        assert project.search("tea")[0].entry.vector_seq == entry.seq
        assert memory.state_hash() == memory.replay_hash()

    def test_an_erased_update_brings_nothing_back(self, memory: Memory, project: Project) -> None:
        entry = project.add("lives in Oslo", metadata={"phone": "11 22 33 44"})
        update = project.update(entry, metadata={"phone": "55 66 77 88"})
        memory.erase([update])
        assert project.get(entry.id).metadata is None  # type: ignore[union-attr]
        project.update(entry, content="lives in Bergen")
        memory.erase([memory.head])
        assert project.get(entry.id) == Entry(entry.id, erased=True)

    def test_a_whole_project_is_erased_from_every_file(self, tmp_path: Path) -> None:
        path = tmp_path / "store"
        with Memory(path) as memory:
            project = memory.project("secret project")
            project.add("the treasure lies below the oak tree", vector=[1.25, 2.5, 7.125, 9.5])
            project.record_episode("discovery", task="looked below the oak tree for it")
            project.search("oak tree", vector=[1.0, 0.0, 0.0, 0.0])
            memory.flush()
            receipt = project.erase()
            assert receipt.occurrences == 0
            assert receipt.markers >= 2
            assert memory.projects() == [receipt.streams[0].partition("/")[2]]
            assert memory.verify().ok
        content = (path / "data.mdb").read_bytes()
        assert b"oak tree" not in content
        assert b"secret project" not in content


def test_the_built_in_embedder_is_named_in_the_event(memory: Memory) -> None:
    memory.add("tea")
    event = next(memory.events()).event
    (vector,) = HashedEmbedder().embed(["tea"])
    assert (event.model, event.vector) == (HashedEmbedder.id, vector.tobytes())  # type: ignore[attr-defined]


def test_what_is_erased_while_a_compaction_joins_it_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, commit_batch = Memory(embedder=Told()), Engine.commit
    memory.add("likes tea", vector=ONE)
    secret = memory.add("a secret word", vector=[1.0, 0.1])

    def erased_first(engine: Engine, pending: Transaction) -> None:
        monkeypatch.setattr(Engine, "commit", commit_batch)
        elsewhere(lambda: memory.erase([secret]))
        commit_batch(engine, pending)

    monkeypatch.setattr(Engine, "commit", erased_first)
    assert memory.project().compact().merged == 0
    assert [entry.content for entry in memory.project().list() if not entry.erased] == ["likes tea"]
    assert all("secret" not in str(event) for event, _ in memory.events())
    assert_sound(memory)
