"""Readers of memories: LoCoMo's observations, JSON of many shapes, and what mem0's history leaves alive."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import InvalidInput, LimitExceeded, NotFound
from refold.importers import MEMORY_FORMATS, formats, memory_format_of, read_memories
from refold.importers.formats import SourceMemory
from refold.importers.memories import JSON_MEMORIES, MEM0, OBSERVATIONS
from tests.support.paths import DATA, SOURCES

MADE_UP = SOURCES / "locomo.json"
REAL = DATA / "locomo" / "locomo7_dev.json"
READERS = (OBSERVATIONS, JSON_MEMORIES, MEM0)
NEW_YEAR_NS = 1_704_067_200 * 10**9


def observations_of(sample_id: str, memories: list[SourceMemory]) -> dict[str, Any]:
    """The observations of a sample, from nothing but its memories."""
    observed: dict[str, Any] = {}
    for memory in memories:
        if memory.project != sample_id:
            continue
        said = memory.metadata or {}
        by_speaker = observed.setdefault(f"session_{said['session']}_observation", {})
        by_speaker.setdefault(said["speaker"], []).append([memory.content, said["dia_ids"]])
    return observed


def assert_every_fact_is_found(path: Path) -> list[SourceMemory]:
    memories = list(OBSERVATIONS.memories(path))
    for sample in json.loads(path.read_text(encoding="utf-8")):
        wanted = {
            session: {speaker: facts for speaker, facts in by_speaker.items() if facts}
            for session, by_speaker in sample["observation"].items()
        }
        assert observations_of(sample["sample_id"], memories) == {key: facts for key, facts in wanted.items() if facts}
    assert len({memory.key for memory in memories}) == len(memories)
    return memories


def test_every_observation_is_a_memory_with_its_turns() -> None:
    memories = assert_every_fact_is_found(MADE_UP)
    # A list, two in one text, and one that no turn has.
    assert [memory.turns for memory in memories] == [
        *(("D1:1",), ("D1:1", "D1:3"), ("D1:2", "D1:1"), ("D2:1",), (), ("D1:1",)),
    ]
    assert [memory.source for memory in memories] == [*["session_1"] * 3, *["session_2"] * 2, "session_1"]
    assert memories[3].occurred_ns == NEW_YEAR_NS + 5 * 60 * 10**9
    assert memories[0].key == "talk-1/1/Ada/1"
    assert memories[0].place == "sample 1, session_1_observation of Ada, fact 1"


@pytest.mark.skipif(not REAL.is_file(), reason="the LoCoMo conversations are not on this machine")
def test_every_real_observation_is_a_memory_with_its_turns() -> None:
    memories = assert_every_fact_is_found(REAL)
    assert len(memories) == 1_850
    assert all(memory.turns and memory.occurred_ns for memory in memories)


ENTRY = {
    "id": "0a1b",
    "content": "The tests need Docker.",
    "category": "convention",
    "keywords": ["tests", "docker"],
    "importance": 0.9,
    "access_count": 3,
    "status": "pending_review",
    "metadata": {"file": "README.md"},
    "source": "session-7",
    "created_ns": NEW_YEAR_NS,
    "updated_ns": NEW_YEAR_NS + 1,
    "accessed_ns": NEW_YEAR_NS + 2,
    "occurred_ns": NEW_YEAR_NS - 1,
    "erased": False,
}
FROM_MEM0 = {
    "id": "77",
    "memory": "Likes tea",
    "hash": "f00",
    "metadata": None,
    "created_at": "2024-01-01T01:00:00+01:00",
    "user_id": "ada",
}


def written(path: Path, text: str) -> list[SourceMemory]:
    path.write_text(text, encoding="utf-8")
    assert JSON_MEMORIES.recognises(path.read_bytes()) or text.startswith(('"', '["'))
    return list(JSON_MEMORIES.memories(path))


def test_an_entry_comes_with_all_of_its_fields(tmp_path: Path) -> None:
    (memory,) = written(tmp_path / "entries.jsonl", json.dumps(ENTRY) + "\n")
    assert memory == SourceMemory(
        place="line 1",
        key="id/0a1b",
        content="The tests need Docker.",
        category="convention",
        keywords=["tests", "docker"],
        importance=0.9,
        status="pending_review",
        metadata={
            "file": "README.md",
            "source": {
                "id": "0a1b",
                "access_count": 3,
                "created_ns": NEW_YEAR_NS,
                "updated_ns": NEW_YEAR_NS + 1,
                "accessed_ns": NEW_YEAR_NS + 2,
                "erased": False,
            },
        },
        source="session-7",
        occurred_ns=NEW_YEAR_NS - 1,
    )


def test_what_others_call_a_memory_is_one(tmp_path: Path) -> None:
    (memory,) = written(tmp_path / "mem0.json", json.dumps({"results": [FROM_MEM0]}, indent=1))
    assert (memory.content, memory.key, memory.occurred_ns) == ("Likes tea", "id/77", NEW_YEAR_NS)
    rest = {"id": "77", "hash": "f00", "created_at": "2024-01-01T01:00:00+01:00", "user_id": "ada"}
    assert memory.metadata == {"source": rest}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('{"content": "a"}\n\n{"text": "b", "id": 5}\n', ["1", "id/5"]),
        ('[{"fact": "a"}, {"memory": "b"}]', ["1/1", "1/2"]),
        ('{"memories": [{"content": "a"}, {"content": "b"}]}', ["1/1", "1/2"]),
        ('{"facts": ["a", "b"]}', ["1/1", "1/2"]),
        ('"a"\n"b"\n', ["1", "2"]),
        ('["a", "b"]', ["1/1", "1/2"]),
        ('{"content": "a", "id": true}\n{"content": "b", "id": null}', ["1", "2"]),
        ('{"content": "gone", "erased": true}\n{"content": "a"}\n{"content": "b"}', ["2", "3"]),
    ],
)
def test_the_shapes_of_json(tmp_path: Path, text: str, keys: list[str]) -> None:
    file = tmp_path / "file"
    file.write_text(text, encoding="utf-8")
    memories = list(JSON_MEMORIES.memories(file))
    assert [memory.key for memory in memories] == keys
    assert [memory.content for memory in memories] == ["a", "b"]


def test_a_vector_a_project_and_a_name_that_we_use_ourselves(tmp_path: Path) -> None:
    item = {"content": "a", "embedding": [0.5, 1.0], "project": "acme", "metadata": {"source": "own"}, "n": 1}
    (memory,) = written(tmp_path / "a.json", json.dumps(item))
    assert (memory.vector, memory.project) == ([0.5, 1.0], "acme")
    assert memory.metadata == {"source": {"n": 1}, "message": {"source": "own"}}


MALFORMED: list[tuple[Any, bytes, str]] = [
    (JSON_MEMORIES, b'{"content": "a"}\n{"content"', "line 2 is no memory in JSON"),
    (JSON_MEMORIES, b'{"content": "a"}\n3\n', "line 2 is no memory; give a text"),
    (JSON_MEMORIES, b'[{"content": "a"}, {"content": ""}]', "line 1, memory 2 is no memory"),
    (JSON_MEMORIES, b'[{"content": "a"}, {"content": ["x"]}]', "line 1, memory 2 is no memory"),
    (JSON_MEMORIES, b'"a"\n[null]\n', "line 2, memory 1 is no memory"),
    (JSON_MEMORIES, b'{"content": "a", "id": 7}\n{"content": "b", "id": "7"}', "line 2 has the id of line 1"),
    (JSON_MEMORIES, b'{"content": "\xff"}', "line 1 is no memory in JSON"),
    (OBSERVATIONS, b"", "the file is empty"),
    (OBSERVATIONS, b'[{"sample_id": "s"}', "the file is no JSON"),
    (OBSERVATIONS, b'[{"sample_id": "s"}]', "the samples have no observations"),
    (OBSERVATIONS, b"[{}]", "sample 1 has no sample_id"),
    (OBSERVATIONS, b'[{"sample_id": "s", "observation": []}]', "sample 1 has an observation that is no object"),
    (
        OBSERVATIONS,
        b'[{"sample_id": "s", "observation": {"session_1_observation": 3}}]',
        "sample 1, session_1_observation is no object of speakers",
    ),
    (
        OBSERVATIONS,
        b'[{"sample_id": "s", "observation": {"session_1_observation": {"Ada": "x"}}}]',
        "sample 1, session_1_observation of Ada is no list of facts",
    ),
    (
        OBSERVATIONS,
        b'[{"sample_id": "s", "observation": {"session_1_observation": {"Ada": [["x", "D1:1"], ["y"]]}}}]',
        "sample 1, session_1_observation of Ada, fact 2 is no pair",
    ),
    (MEM0, b"hello, this is no database at all", "the file is no database that SQLite can read"),
    (MEM0, b"SQLite format 3\x00 and then nothing", "the file is no database that SQLite can read"),
    (MEM0, b"", "the database has no table history"),
]


@pytest.mark.parametrize(("reader", "text", "problem"), MALFORMED)
def test_what_is_malformed_is_named_before_the_first_memory(
    tmp_path: Path, reader: Any, text: bytes, problem: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(text)
    with pytest.raises(InvalidInput) as caught:
        next(reader.memories(file))
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("reader", [OBSERVATIONS, JSON_MEMORIES])
def test_a_file_too_large_for_ram_is_refused(monkeypatch: pytest.MonkeyPatch, reader: Any) -> None:
    monkeypatch.setattr(formats, "DOCUMENT_BYTES_MAX", 64)
    with pytest.raises(LimitExceeded, match="over DOCUMENT_BYTES_MAX = 64 bytes"):
        next(reader.memories(MADE_UP))


COLUMNS = ("id", "memory_id", "old_memory", "new_memory", "event", "created_at", "updated_at", "is_deleted", "actor_id")
FIRST_COLUMNS = ("id", "memory_id", "prev_value", "new_value", "event", "timestamp", "is_deleted")


def history(path: Path, columns: tuple[str, ...], *rows: tuple[Any, ...]) -> Path:
    """A database as mem0 makes it."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE history ({', '.join(columns)}, PRIMARY KEY (id))")
        places = ", ".join("?" * len(columns))
        for row in rows:
            database.execute(f"INSERT INTO history VALUES ({places})", row)  # noqa: S608 - names of our own
    return path


THEN, LATER = "2024-01-01T00:00:00+00:00", "2024-02-01T00:00:00+00:00"


def test_what_mem0_remembers_is_told_with_its_history(tmp_path: Path) -> None:
    path = history(
        tmp_path / "history.db",
        COLUMNS,
        # The ids of rows are random, so that only the order of writing is that of the changes.
        ("z", "m1", None, "Likes tea", "ADD", THEN, None, 0, "ada"),
        ("y", "m2", None, "Lives in Oslo", "ADD", THEN, None, 0, None),
        ("x", "m1", "Likes tea", "Likes green tea", "UPDATE", THEN, LATER, 0, "ada"),
        ("w", "m2", "Lives in Oslo", None, "DELETE", THEN, LATER, 1, None),
        ("v", "m3", None, "Has a cat", "ADD", None, None, 0, None),
    )
    first, second = MEM0.memories(path)
    assert (first.content, first.key, first.occurred_ns) == ("Likes green tea", "m1", NEW_YEAR_NS)
    assert (second.content, second.key, second.occurred_ns) == ("Has a cat", "m3", None)
    told = (first.metadata or {})["mem0"]
    assert told["id"] == "m1"
    assert [(row["id"], row["event"], row.get("old_memory"), row["new_memory"]) for row in told["history"]] == [
        ("z", "ADD", None, "Likes tea"),
        ("x", "UPDATE", "Likes tea", "Likes green tea"),
    ]
    assert told["history"][1] == {
        "id": "x",
        "memory_id": "m1",
        "old_memory": "Likes tea",
        "new_memory": "Likes green tea",
        "event": "UPDATE",
        "created_at": THEN,
        "updated_at": LATER,
        "is_deleted": 0,
        "actor_id": "ada",
    }
    msgspec.json.encode(first)


def test_a_memory_that_was_deleted_and_added_again_is_alive(tmp_path: Path) -> None:
    path = history(
        tmp_path / "history.db",
        COLUMNS,
        ("a", "m1", None, "x", "ADD", THEN, None, 0, None),
        ("b", "m1", "x", None, "DELETE", THEN, LATER, 1, None),
        ("c", "m1", None, "y", "ADD", LATER, None, 0, None),
        ("d", "m2", None, None, None, None, None, 0, None),
    )
    assert [memory.content for memory in MEM0.memories(path)] == ["y"]


def test_the_first_layout_of_mem0_is_read_as_well(tmp_path: Path) -> None:
    path = history(
        tmp_path / "history.db",
        FIRST_COLUMNS,
        ("a", "m1", None, "Likes tea", "add", THEN, 0),
        ("b", "m2", None, "x", "add", THEN, 0),
        ("c", "m2", "x", None, "delete", LATER, 1),
    )
    (memory,) = MEM0.memories(path)
    assert (memory.content, memory.occurred_ns) == ("Likes tea", NEW_YEAR_NS)


@pytest.mark.parametrize(
    ("columns", "rows", "problem"),
    [
        (("id", "title"), (), "the database has no table history as mem0 makes it"),
        (COLUMNS, (("a", None, None, "x", "ADD", THEN, None, 0, None),), "row 'a' of history is none of mem0's"),
        (COLUMNS, (("a", "m1", None, b"x", "ADD", THEN, None, 0, None),), "row 'a' of history is none of mem0's"),
    ],
)
def test_a_database_of_another_program_is_refused(
    tmp_path: Path, columns: tuple[str, ...], rows: tuple[tuple[Any, ...], ...], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        next(MEM0.memories(history(tmp_path / "other.db", columns, *rows)))


def test_reading_a_database_changes_nothing_and_a_cut_one_is_refused(tmp_path: Path) -> None:
    rows = ((f"{number}", f"m{number}", None, "x" * 500, "ADD", THEN, None, 0, None) for number in range(50))
    path = history(tmp_path / "a name with % and ?.db", COLUMNS, *rows)
    before = path.read_bytes()
    assert len(list(MEM0.memories(path))) == 50
    assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [path]
    path.write_bytes(before[: len(before) // 2])
    with pytest.raises(InvalidInput, match="no database that SQLite can read"):
        next(MEM0.memories(path))


def test_a_database_whose_schema_is_no_utf8_is_refused(tmp_path: Path) -> None:
    path = mem0_file(tmp_path)
    content = path.read_bytes()
    assert b"tablehistory" in content
    path.write_bytes(content.replace(b"tablehistory", b"table\x80istory", 1))
    with pytest.raises(InvalidInput, match="no database that SQLite can read"):
        next(MEM0.memories(path))


def mem0_file(directory: Path) -> Path:
    return history(directory / "history.db", COLUMNS)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda _: MADE_UP, "locomo"),
        (mem0_file, "mem0"),
        (lambda directory: text_file(directory, json.dumps(ENTRY)), "memories"),
        (lambda directory: text_file(directory, '[{"memory": "x", "role": "user"}]'), "memories"),
        (lambda directory: text_file(directory, '[{"content": "x", "role": "user"}]'), None),
        (lambda directory: text_file(directory, '{"messages": [{"role": "user", "content": "x"}]}'), None),
        (lambda directory: text_file(directory, '{"note": "x"}'), None),
    ],
)
def test_a_file_of_memories_is_told_by_its_beginning(
    tmp_path: Path, make: Callable[[Path], Path], name: str | None
) -> None:
    head = make(tmp_path).read_bytes()
    assert [reader.name for reader in READERS if reader.recognises(head)] == ([] if name is None else [name])


def test_memories_are_read_by_the_content_or_by_a_given_format(tmp_path: Path) -> None:
    file = text_file(tmp_path, json.dumps(ENTRY))
    assert memory_format_of(file) == "memories"
    (memory,) = read_memories(file)
    assert (memory.category, memory.keywords, memory.importance) == ("convention", ["tests", "docker"], 0.9)
    assert (memory.status, memory.source) == ("pending_review", "session-7")
    assert read_memories(file, format="memories") == [memory]
    assert len(read_memories(MADE_UP)) == 6
    with pytest.raises(InvalidInput, match="the format 'openai' is unknown; give one of locomo, mem0, memories"):
        read_memories(file, format="openai")
    with pytest.raises(InvalidInput, match=f"{file}: the file is no database"):
        read_memories(file, format="mem0")
    with pytest.raises(InvalidInput, match="of no known format; the formats are locomo, mem0, memories"):
        read_memories(text_file(tmp_path, "hello"))
    with pytest.raises(InvalidInput, match="not a regular file"):
        read_memories(tmp_path, format="mem0")
    with pytest.raises(NotFound, match="there is no file"):
        read_memories(tmp_path / "none", format="memories")
    assert MEMORY_FORMATS == ("locomo", "mem0", "memories")


def text_file(directory: Path, text: str) -> Path:
    path = directory / "file"
    path.write_text(text, encoding="utf-8")
    return path
