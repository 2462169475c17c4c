"""Importing memories: into their projects, with the turns they came from, all or nothing, and nothing twice."""

import json
from pathlib import Path
from typing import Any

import pytest

from refold import EmbeddingMismatch, InvalidInput, LimitExceeded, Memory, NotFound
from refold.entry import MemoryAdded
from refold.importers import MEMORY_FORMATS, import_file, import_memories, memory_format_of, transcript
from tests.importers.test_memories import COLUMNS, ENTRY, THEN, history
from tests.support.memories import refused
from tests.support.paths import DATA, SOURCES, json_lines

TALKS = SOURCES / "locomo.json"
REAL = DATA / "locomo" / "locomo7_dev.json"


def sources_of(memory: Memory, project: str, content: str) -> tuple[int, ...]:
    """The seqs that a memory was derived from."""
    (entry,) = (entry for entry in memory.project(project).list() if entry.content == content)
    return memory.project(project).history(entry)[0].event.sources


def test_observations_are_memories_that_name_their_turns(memory: Memory) -> None:
    imported = import_memories(memory, TALKS)
    assert (imported.format, imported.projects) == ("locomo", ("talk-1", "talk-2"))
    assert (imported.memories, imported.messages, imported.known) == (6, 6, 0)
    turns = {message.content: message.seq for message in transcript(memory, "locomo/locomo/talk-1")}
    look, beans = turns["They look well."], turns["I planted beans. [shares image: a row of small green plants]"]
    assert sources_of(memory, "talk-1", "Ada planted beans.") == (beans,)
    assert sources_of(memory, "talk-1", "Bob likes the look of the beans.") == (look, beans)
    assert sources_of(memory, "talk-1", "Bob was up late.") == ()
    first = memory.project("talk-1").list()[0]
    assert first.metadata == {"speaker": "Ada", "session": 1, "dia_ids": "D1:1"}
    assert (first.source, first.category, first.importance) == ("session_1", "fact", 0.5)
    assert memory.project("talk-1").search("what was planted?")[0].entry.content == "Ada planted beans."


def test_erasing_a_turn_reaches_the_memories_that_it_was_said_in(memory: Memory) -> None:
    import_memories(memory, TALKS)
    memory.conversation("locomo/locomo/talk-2").erase()
    assert memory.project("talk-2").count() == 0
    assert memory.project("talk-1").count() == 5


def test_importing_again_changes_nothing_whatever_became_of_the_memories(memory: Memory) -> None:
    import_file(memory, TALKS)
    first = import_memories(memory, TALKS)
    assert (first.memories, first.messages) == (6, 0)
    project = memory.project("talk-1")
    project.delete(project.list()[0])
    project.update(project.list()[0], content="Ada showed something.")
    head = memory.head
    again = import_memories(memory, TALKS)
    assert (again.memories, again.known, again.repeated, memory.head) == (0, 6, True, head)
    assert project.count() == 4


def test_a_file_that_has_grown_adds_what_is_new(memory: Memory, tmp_path: Path) -> None:
    import_memories(memory, json_lines(tmp_path / "a.jsonl", {"content": "x"}))
    grown = import_memories(memory, json_lines(tmp_path / "a.jsonl", {"content": "x"}, {"content": "y"}))
    assert (grown.memories, grown.known, grown.repeated) == (1, 1, False)
    with refused(memory, InvalidInput, "line 2: was imported into default before", "another name"):
        import_memories(memory, json_lines(tmp_path / "a.jsonl", {"content": "x"}, {"content": "z"}))


def test_entries_go_out_and_in_again(memory: Memory, tmp_path: Path) -> None:
    import_memories(memory, json_lines(tmp_path / "entries.jsonl", ENTRY))
    (entry,) = memory.project().list()
    assert (entry.content, entry.category, entry.importance) == ("The tests need Docker.", "convention", 0.9)
    assert (entry.keywords, entry.status, entry.source) == (["tests", "docker"], "pending_review", "session-7")
    assert entry.occurred_ns == ENTRY["occurred_ns"]
    assert entry.metadata is not None
    assert entry.metadata["source"]["access_count"] == 3


def test_a_project_is_the_files_or_the_one_that_is_given(memory: Memory, tmp_path: Path) -> None:
    file = json_lines(tmp_path / "a.jsonl", {"content": "x", "project": "acme"}, {"content": "y"})
    assert import_memories(memory, file).projects == ("acme", "default")
    assert import_memories(memory, file, project="all").projects == ("all",)
    counts = {name: memory.project(name).count() for name in memory.projects()}
    assert counts == {"acme": 1, "all": 2, "default": 1}


def test_what_is_there_already_is_known(memory: Memory, tmp_path: Path) -> None:
    memory.add("Likes tea", importance=0.9)
    file = history(tmp_path / "history.db", COLUMNS, ("a", "m1", None, "Likes tea", "ADD", THEN, None, 0, None))
    imported = import_memories(memory, file)
    assert (imported.format, imported.memories, imported.known) == ("mem0", 0, 1)
    assert [entry.importance for entry in memory.project().list()] == [0.9]


GOOD = {"content": "good"}


@pytest.mark.parametrize(
    ("bad", "error", "problem"),
    [
        ({"content": "x", "importance": 3}, InvalidInput, "line 2: importance is 3"),
        ({"content": "x", "category": "rumour"}, InvalidInput, "line 2: category is 'rumour'"),
        ({"content": "x", "status": "gone"}, InvalidInput, "line 2: status is 'gone'"),
        ({"content": "x", "keywords": "one"}, InvalidInput, "line 2: keywords must be a list"),
        ({"content": "  "}, InvalidInput, "line 2: content is empty"),
        ({"content": "x", "source": "s" * 500}, LimitExceeded, "line 2: source is 500 bytes"),
        ({"content": "x", "vector": [1.0, 2.0]}, EmbeddingMismatch, "line 2: "),
        ({"content": "x", "project": "p" * 500}, LimitExceeded, "line 2: name is 500 bytes"),
        ({"content": 3}, InvalidInput, "line 2 is no memory"),
    ],
)
def test_one_bad_memory_keeps_all_of_the_file_out(
    memory: Memory, tmp_path: Path, bad: Any, error: Any, problem: str
) -> None:
    file = json_lines(tmp_path / "a.jsonl", GOOD, bad, GOOD)
    with refused(memory, error, f"{file}: {problem}"):
        import_memories(memory, file)
    assert memory.head == 0


def test_a_file_of_sessions_is_refused(memory: Memory, tmp_path: Path) -> None:
    file = json_lines(tmp_path / "a.jsonl", [{"role": "user", "content": "x"}])
    with refused(memory, InvalidInput, "of no known format; the formats are locomo, mem0, memories"):
        import_memories(memory, file)
    with refused(memory, InvalidInput, "the format 'openai' is unknown; give one of locomo, mem0, memories"):
        import_memories(memory, file, format="openai")
    with refused(memory, InvalidInput, "the file is no database"):
        import_memories(memory, file, format="mem0")
    with refused(memory, NotFound, "there is no file"):
        import_memories(memory, tmp_path / "none")
    assert memory_format_of(TALKS) == "locomo"
    assert MEMORY_FORMATS == ("locomo", "mem0", "memories")


def test_progress_is_told_in_memories(memory: Memory) -> None:
    told: list[tuple[int, int]] = []
    import_memories(memory, TALKS, progress=lambda done, whole: told.append((done, whole)))
    assert told == [(done, 6) for done in range(1, 7)]


def test_an_import_that_is_interrupted_adds_no_memory(memory: Memory) -> None:
    def interrupted(done: int, whole: int) -> None:
        raise KeyboardInterrupt(done, whole)

    with pytest.raises(KeyboardInterrupt):
        import_memories(memory, TALKS, progress=interrupted)
    assert [memory.project(name).count() for name in ("talk-1", "talk-2")] == [0, 0]
    assert import_memories(memory, TALKS).memories == 6


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_file(), reason="the LoCoMo conversations are not on this machine")
def test_every_real_observation_is_found_with_its_turns(memory: Memory) -> None:
    imported = import_memories(memory, REAL)
    assert (imported.memories, imported.messages, len(imported.projects)) == (1_850, 4_265, 7)
    for sample in json.loads(REAL.read_text(encoding="utf-8")):
        name = sample["sample_id"]
        said = {
            (message.metadata or {})["dia_id"]: message.seq
            for message in transcript(memory, f"locomo/{REAL.stem}/{name}")
        }
        by_content = {entry.content: entry for entry in memory.project(name).list()}
        events = (recorded.event for recorded in memory.project(name).events())
        added = {event.id: event for event in events if isinstance(event, MemoryAdded)}
        for by_speaker in sample["observation"].values():
            for content, cited in (fact for facts in by_speaker.values() for fact in facts):
                ids = cited if isinstance(cited, list) else cited.split(", ")
                assert added[by_content[content].id].sources == tuple(said[turn] for turn in ids)
