"""Real sessions: all 140 tau-bench conversations go in, and come out as they were."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from refold.importers import export_openai, import_file, transcript
from tests.support.paths import DATA

AIRLINE = DATA / "tau-bench" / "gpt4o_airline_dev.jsonl"
FIELDS = {"role", "content", "name", "tool_calls", "tool_call_id"}

if not AIRLINE.is_file():
    pytest.skip("the tau-bench trajectories are not on this machine", allow_module_level=True)


@pytest.fixture(scope="module")
def sources() -> list[dict[str, Any]]:
    return [json.loads(line) for line in AIRLINE.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with Memory(tmp_path_factory.mktemp("tau") / "store") as opened:
        imported = import_file(opened, AIRLINE)
        assert (imported.conversations, imported.messages, imported.known) == (140, 4_326, 0)
        yield opened


def test_every_message_comes_out_as_it_went_in(memory: Memory, sources: list[dict[str, Any]]) -> None:
    file = io.BytesIO()
    assert export_openai(memory, file) == 140
    exported = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [line["id"] for line in exported] == [f"openai/gpt4o_airline_dev/{line}" for line in range(1, 141)]
    # Equal dicts: what was absent is absent, and what was null is null.
    assert [line["messages"] for line in exported] == [source["traj"] for source in sources]
    assert sum(len(line["messages"]) for line in exported) == 4_326


def test_every_other_field_of_the_source_is_found_in_metadata(memory: Memory, sources: list[dict[str, Any]]) -> None:
    for line, source in enumerate(sources, 1):
        first, *others = transcript(memory, f"openai/gpt4o_airline_dev/{line}")
        assert first.metadata == {"source": {key: value for key, value in source.items() if key != "traj"}}
        # The messages themselves have no other fields, so that nothing else needs metadata.
        assert {field for message in source["traj"] for field in message} <= FIELDS
        assert all(other.metadata is None for other in others)


def test_importing_twice_changes_nothing(memory: Memory) -> None:
    head, state_hash = memory.head, memory.state_hash()
    again = import_file(memory, AIRLINE)
    assert (again.messages, again.events, again.known, again.repeated) == (0, 0, 4_326, True)
    assert (memory.head, memory.state_hash()) == (head, state_hash)


def test_an_export_loads_into_an_equal_memory(memory: Memory, tmp_path: Path) -> None:
    assert memory.export(tmp_path / "log.jsonl") == memory.head == 140 + 4_326
    with Memory(tmp_path / "store") as other:
        imported = import_file(other, tmp_path / "log.jsonl")
        assert (imported.conversations, imported.messages) == (140, 4_326)
        assert other.state_hash() == memory.state_hash()
        assert other.verify().ok


def test_live_and_replayed_are_one_state(memory: Memory) -> None:
    assert memory.verify().ok
    assert memory.replay_hash() == memory.state_hash()
