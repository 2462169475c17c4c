"""The verbs of project memories on the command line, on an imported conversation and its facts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from refold.cli import memories
from refold.embedders import HashedEmbedder
from refold.engine.reader import Reader
from refold.entry import CATEGORIES, STATUSES
from refold.errors import EmbedderFailed
from refold.message import ROLES
from tests.support.command import Run, running
from tests.support.paths import SOURCES

TALKS = SOURCES / "locomo.json"
DAY_NS = 24 * 60 * 60 * 10**9
BEGIN_NS = 1_704_067_200 * 10**9 + 7 * DAY_NS


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process."""
    return running(monkeypatch, capfd)


@pytest.fixture
def store(tmp_path: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with two talks and their facts, a week after the second session; REFOLD_DB names it."""
    monkeypatch.setenv("REFOLD_DB", str(tmp_path / "store"))
    monkeypatch.setenv("REFOLD_CLOCK_NS", str(BEGIN_NS))
    assert refold("import", "--facts", TALKS).code == 0
    return tmp_path / "store"


TALK = ("--project", "talk-1")
VERBS = [
    ("add", "Ada has a dog."),
    ("search", "beans"),
    ("memories",),
    ("decay",),
    ("prune", "0.1"),
    ("compact",),
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: str(verb[0]))
def test_every_verb_speaks_json_needs_a_store_and_takes_a_project(
    store: Path, refold: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: tuple[object, ...]
) -> None:
    ended = refold(*verb, *TALK, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert isinstance(ended.json, dict)
    shown = refold(verb[0], "--help")
    assert shown.code == 0
    assert "--json" in shown.out
    assert refold(*verb, "--nonsense").code == 2
    monkeypatch.delenv("REFOLD_DB")
    assert refold(*verb).code == 2
    missing = refold(*verb, "--db", tmp_path / "none")
    assert (missing.code, missing.out) == (1, "")
    assert missing.err.startswith(f"refold: there is no store at {tmp_path / 'none'}")
    assert sorted(tmp_path.iterdir()) == [store]


def test_importing_facts_says_what_it_did(store: Path, refold: Run, tmp_path: Path) -> None:
    assert refold("import", "--facts", TALKS).out == f"{TALKS} (locomo): already imported, nothing changed\n"
    file = tmp_path / "more.jsonl"
    file.write_text('{"content": "Ada has a dog."}\n{"content": "Bob has none."}\n')
    told = refold("import", "--facts", file, "--project", "talk-1")
    assert told.out == f"{file} (memories): 1 project, 2 memories, 0 messages, 2 events\n"
    imported = refold("import", "--facts", file, "--json").json["files"][0]
    assert (imported["projects"], imported["memories"], imported["known"]) == (["default"], 2, 0)
    assert refold("list", "--json", "--db", store).json["projects"] == ["default", "talk-1", "talk-2"]


def test_formats_of_sessions_and_of_memories_are_told_apart(store: Path, refold: Run) -> None:
    wrong = refold("import", TALKS, "--format", "mem0")
    assert wrong.code == 2
    assert "the format mem0 is for memories, with --facts; give one of claude-code" in wrong.err
    wrong = refold("import", "--facts", TALKS, "--format", "beam")
    assert wrong.code == 2
    assert "the format beam is for sessions; give one of locomo, mem0, memories" in wrong.err
    assert refold("import", "--facts", TALKS, "--format", "locomo").code == 0
    wrong = refold("import", TALKS, "--project", "acme")
    assert wrong.code == 2
    assert "give it with --facts" in wrong.err
    assert refold("verify", "--db", store).code == 0


def test_a_memory_is_added_once(store: Path, refold: Run) -> None:
    options = ("--category", "preference", "--importance", 0.9, "--keyword", "Tea", "--source", "session_2", *TALK)
    added = refold("add", "Bob likes tea.", *options, "--json").json
    assert (added["project"], added["added"]) == ("talk-1", True)
    memory = added["memory"]
    assert (memory["content"], memory["category"], memory["importance"]) == ("Bob likes tea.", "preference", 0.9)
    assert (memory["keywords"], memory["source"], memory["status"]) == (["tea"], "session_2", "active")
    again = refold("add", "Bob likes tea.", *TALK)
    assert again.out == f"already there: {memory['id']}  preference 0.90  Bob likes tea.\n"
    assert refold("add", "Bob likes tea.", *TALK, "--json").json["added"] is False
    from_seq = refold("add", "Somebody planted beans.", "--source", 2, *TALK, "--json").json["memory"]
    assert from_seq["source"] == 2
    refused = refold("add", "x", "--importance", 3, *TALK)
    assert (refused.code, refused.err) == (1, "refold: importance is 3.0; give a number from 0 to 1\n")
    assert refold("add", "x", "--source", 9_999, *TALK).code == 1
    assert refold("add", "x", "--category", "rumour").code == 2
    assert refold("memories", *TALK, "--db", store, "--json").json["count"] == 7


def test_a_search_that_finds_nothing_says_why(store: Path, refold: Run) -> None:
    found = refold("search", "quarterly taxes of Liechtenstein", *TALK)
    assert (found.code, found.out) == (0, "")
    assert re.fullmatch(
        r"none of the 5 memories of project talk-1 matched with a score of .* or more; --floor 0 .*\n", found.err
    )
    assert refold("search", "tax", *TALK, "--min-importance", 1).err.startswith(
        "none of the 5 memories of project talk-1 matched"
    )
    empty = refold("search", "beans")
    assert (empty.code, empty.out) == (0, "")
    assert empty.err == "project default is empty; --project selects another: talk-1, talk-2\n"
    with Memory(store.with_name("talk")) as memory:
        memory.conversation("c").append("user", "beans")
    without = refold("search", "beans", "--db", store.with_name("talk")).err
    assert without.splitlines()[1] == "to search conversations, give --messages"
    assert refold("search", "zyzzyva", "--messages").err == "no message contains any of these words\n"
    signs = refold("search", "\N{PARTY POPPER}", "--messages").err.splitlines()
    assert signs[0].endswith("has no letters or digits to search for; `refold why TEXT` finds any text")
    assert refold("search", "\N{PARTY POPPER}", *TALK).err.splitlines()[0] == signs[0]


@pytest.mark.parametrize("query", ["stra\u00dfe", "strasse"])
def test_a_search_finds_a_word_however_it_is_spelled(store: Path, refold: Run, query: str) -> None:
    with Memory(store) as memory:
        for content in ("Die Stra\u00dfe ist lang.", "Eine STRASSE in Bonn."):
            memory.project("roads").add(content)
            memory.conversation("roads").append("user", content)
    assert len(refold("search", query, "--project", "roads", "--json").json["hits"]) == 2
    assert len(refold("search", query, "--messages", "--json").json["hits"]) == 2


def test_a_search_shows_scores_and_explains_them(store: Path, refold: Run) -> None:
    found = refold("search", "who planted the beans?", *TALK, "--explain", "--json").json
    assert (found["query"], found["ranking"], found["exact"]) == ("who planted the beans?", "hybrid", True)
    assert [hit["score"] for hit in found["hits"]] == sorted((hit["score"] for hit in found["hits"]), reverse=True)
    best = found["hits"][0]
    assert best["memory"]["content"] == "Ada planted beans."
    assert {"cosine", "keywords", "importance", "recency"} <= best["parts"].keys()
    told = refold("search", "who planted the beans?", *TALK, "--top-k", 1).out
    assert told == f"{best['score']:7.4f}  {best['memory']['id']}  fact 0.50  Ada planted beans.\n"
    explained = refold("search", "who planted the beans?", *TALK, "--top-k", 1, "--explain").out.splitlines()
    assert len(explained) == 2
    factors = [part.split(" ") for part in explained[1].strip().split("  ")]
    assert sum(float(weight) * float(value) for _, weight, _, value in factors) == pytest.approx(
        best["score"], abs=1e-3
    )
    assert f"cosine 0.5 x {best['parts']['cosine']:.4f}" in explained[1]
    assert f"recency 0 x {best['parts']['recency']:.4f}" in explained[1]
    assert refold("search", "beans", *TALK, "--category", "pattern", "--json").json["hits"] == []
    assert refold("search", "beans", *TALK, "--min-importance", 0.9, "--json").json["hits"] == []
    assert len(refold("search", "", *TALK, "--json").json["hits"]) == 5
    with Memory(store, readonly=True) as memory:
        head = memory.head
    assert refold("search", "beans", "--ranking", "nonsense", *TALK).code == 1
    assert refold("search", "beans", *TALK, "--at", head + 1).code == 1
    with Memory(store, readonly=True) as memory:
        assert memory.head == head


def test_memories_are_listed_as_they_are_and_as_they_were(store: Path, refold: Run) -> None:
    lines = refold("memories", *TALK).out.splitlines()
    assert len(lines) == 5
    assert re.fullmatch(r"[0-9a-f]{20}  fact 0\.50  Ada planted beans\.", lines[0])
    assert refold("memories", *TALK, "--offset", 1, "--limit", 2).out.splitlines() == lines[1:3]
    before = refold("list", "--json", "--db", store).json
    assert before["projects"] == ["talk-1", "talk-2"]
    head = refold("stats", "--json").json["events"]
    refold("add", "Ada has a dog.", *TALK, "--category", "pattern")
    assert refold("memories", *TALK, "--category", "pattern", "--json").json["count"] == 1
    assert refold("memories", *TALK, "--status", "archived", "--json").json["memories"] == []
    assert refold("memories", *TALK, "--at", head).out.splitlines() == lines
    assert refold("memories", *TALK, "--at", 1, "--json").json["count"] == 0
    with Memory(store) as memory:
        entry = memory.project("talk-1").list()[0]
        memory.project("talk-1").archive(entry)
    assert refold("memories", *TALK).out.splitlines()[0] == f"{entry.id}  fact 0.50  archived  Ada planted beans."


def test_what_is_listed_can_be_imported_elsewhere(store: Path, refold: Run, tmp_path: Path) -> None:
    listed = refold("memories", *TALK, "--db", store, "--json").out
    (tmp_path / "listed.json").write_text(listed)
    elsewhere = ("--db", tmp_path / "other")
    assert refold("import", "--facts", tmp_path / "listed.json", *elsewhere, *TALK).code == 0
    again = refold("memories", *TALK, *elsewhere, "--json").json["memories"]
    same = ("content", "category", "keywords", "importance", "status", "occurred_ns", "source")
    wanted = json.loads(listed)["memories"]
    assert [[entry[field] for field in same] for entry in again] == [
        [entry[field] for field in same] for entry in wanted
    ]


def test_importance_decays_once_a_day_and_what_is_left_is_pruned(
    store: Path, refold: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = Reader.now_ns  # What happened earlier decays from its import on: let that be a week ago.
    monkeypatch.setattr(Reader, "now_ns", lambda reader: now_ns(reader) + 7 * DAY_NS)
    dry = refold("decay", *TALK, "--dry-run", "--json").json
    assert (dry["dry_run"], dry["changed"]) == (True, 5)
    assert refold("decay", *TALK, "--dry-run").out == "talk-1: 5 changed (dry run)\n"
    assert refold("decay", *TALK).out == "talk-1: 5 changed\n"
    assert refold("decay", *TALK).out == "talk-1: nothing to do\n"
    importances = {
        entry["content"]: entry["importance"] for entry in refold("memories", *TALK, "--json").json["memories"]
    }
    assert importances["Bob wished a happy new year."] == pytest.approx(0.5 * 0.95)
    refold("add", "Ada has a dog.", "--importance", 0.05, *TALK)
    assert refold("prune", 0.1, *TALK, "--dry-run").out == "talk-1: 1 removed (dry run)\n"
    assert refold("memories", *TALK, "--json").json["count"] == 6
    assert refold("prune", 0.1, *TALK).out == "talk-1: 1 removed\n"
    assert refold("prune", 2, *TALK).code == 1
    assert refold("verify", "--db", store).code == 0


def test_what_says_the_same_is_merged(store: Path, refold: Run) -> None:
    refold("add", "Ada planted beans!", *TALK)
    assert refold("compact", *TALK, "--dry-run").out == "talk-1: 1 merged (dry run)\n"
    assert refold("compact", *TALK, "--threshold", 1.0).out == "talk-1: nothing to do\n"
    merged = refold("compact", *TALK, "--json").json
    assert merged == {"project": "talk-1", "dry_run": False, "changed": 0, "removed": 0, "merged": 1}
    assert refold("memories", *TALK, "--db", store, "--json").json["count"] == 5


def test_the_history_of_a_memory(store: Path, refold: Run) -> None:
    entry = refold("memories", *TALK, "--json").json["memories"][0]
    with Memory(store) as memory:
        memory.project("talk-1").update(entry["id"], importance=0.7)
        memory.project("talk-1").recall("beans", top_k=1)
    events = refold("history", entry["id"], *TALK, "--json").json_lines
    assert [event["kind"] for event in events] == ["memory_added", "memory_updated", "memories_recalled"]
    assert events[0]["event"]["content"] == "Ada planted beans."
    lines = refold("history", entry["id"], *TALK).out.splitlines()
    assert [line.split()[2] for line in lines] == ["memory_added", "memory_updated", "memories_recalled"]
    assert "--json" in refold("history", "--help").out
    unknown = refold("history", "none", *TALK)
    assert unknown.code == 1
    assert "project/talk-1 has no memory 'none'" in unknown.err


def test_the_words_of_the_help_are_those_of_the_entries() -> None:
    assert memories._CATEGORIES == CATEGORIES
    assert memories._STATUSES == STATUSES
    assert memories._ROLES == ROLES


class Failing(HashedEmbedder):
    """The built-in embedder, out of order."""

    def embed(self, texts: list[str]) -> Any:
        raise EmbedderFailed(f"out of order, asked for {len(texts)} texts")


def test_messages_that_wait_for_their_vectors_are_counted(tmp_path: Path, refold: Run) -> None:
    with Memory(tmp_path / "embedded", embedder=Failing()) as memory:
        chat = memory.conversation("chat", embed=True)
        chat.append("user", "The beans are planted.")
        chat.append("assistant", "Then we wait for beans.")
    found = refold("search", "beans", "--messages", "--db", tmp_path / "embedded", "--json")
    assert (found.json["pending"], len(found.json["hits"])) == (2, 2)
    assert found.err == "2 messages without a vector yet, matched by words only\n"


@pytest.mark.usefixtures("store")
def test_messages_are_found_by_their_words_in_one_conversation_or_in_all(refold: Run) -> None:
    every = refold("search", "beans", "--messages", "--json").json
    assert (every["ranking"], every["exact"], every["pending"]) == ("messages", True, 0)
    names = {hit["conversation"] for hit in every["hits"]}
    assert names
    assert all("bean" in hit["message"]["content"].lower() for hit in every["hits"])
    name = min(names)
    own = refold("search", "beans", "--messages", "--conversation", name, "--json").json["hits"]
    assert {hit["conversation"] for hit in own} == {name}
    best = own[0]["message"]
    shown = refold("search", "beans", "--messages", "--conversation", name, "--explain", "--top-k", 1).out
    assert f"{best['seq']:>8}  {name}  {best['role']}" in shown
    assert "bean " in shown.splitlines()[1], "the share of each word"
    before = refold("search", "beans", "--messages", "--at", best["seq"] - 1, "--json").json["hits"]
    assert best["seq"] not in {hit["message"]["seq"] for hit in before}
    assert refold("search", "beans", "--messages", "--role", "tool", "--json").json["hits"] == []
    nowhere = refold("search", "beans", "--messages", "--conversation", "nowhere")
    assert (nowhere.code, "there is no conversation 'nowhere'" in nowhere.err) == (1, True)
    for wrong in (("--messages", "--ranking", "seed"), ("--role", "user"), ("--conversation", name)):
        refused = refold("search", "beans", *wrong)
        assert (refused.code, wrong[-2] in refused.err) == (2, True)


class Letters:
    """An embedder of three numbers."""

    id, dim = "letters", 3

    def embed(self, texts: list[str]) -> list[list[float]]:
        return [[text.count("a"), text.count("b"), 1.0] for text in texts]


def test_everything_is_embedded_anew_and_searched_with_that_embedder(
    store: Path, refold: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from refold import embedders

    monkeypatch.setattr(embedders, "WordLlamaEmbedder", Letters)
    assert refold("reembed").out == "refold-hash-1 (512 dimensions): nothing to do\n"
    told = refold("reembed", "--embedder", "wordllama", "--json").json
    assert told == {"model": "letters", "dim": 3, "projects": 2, "vectors": 6}
    refused = refold("search", "beans", *TALK)
    assert refused.code == 1
    assert "letters" in refused.err
    assert len(refold("search", "beans", *TALK, "--embedder", "wordllama", "--json").json["hits"]) == 5
    monkeypatch.setenv("REFOLD_EMBEDDER", "wordllama")
    assert refold("add", "A bean.", *TALK).code == 0
    assert refold("compact", *TALK, "--dry-run").code == 0
    assert refold("reembed").out == "letters (3 dimensions): nothing to do\n"
    assert (
        refold("reembed", "--embedder", "hashed").out
        == "refold-hash-1 (512 dimensions): 7 vectors, 2 projects switched\n"
    )
    assert refold("verify", "--db", store).code == 0


@pytest.mark.parametrize(
    "name", ["nonsense", "model@http://127.0.0.1", ":3@http://127.0.0.1", "model:x@http://127.0.0.1", "model:3"]
)
@pytest.mark.usefixtures("store")
def test_an_embedder_that_is_none_is_wrong_usage(refold: Run, name: str) -> None:
    refused = refold("search", "beans", "--embedder", name)
    assert refused.code == 2
    assert "MODEL:DIM@URL" in refused.err
