"""The tool `memory`: what a model is told of it and by it, whatever it writes, and that its sessions run again."""

import asyncio
import json
from typing import Any

import pytest

from refold import Memory
from refold.agent import AgentLoop, Call, Reply, ToolResult, files_tool, rerun
from refold.agent.builtin import BUILT_IN_NAMES
from tests.support.memories import assert_sound, remembering

PLAN = "/memories/plan.md"


def called(memory: Memory, **arguments: Any) -> ToolResult:
    if memory.tools.get("memory") is None:
        memory.tools.register(files_tool())
    result: ToolResult = memory.tools.execute("memory", arguments)
    return result


def test_every_wire_takes_it_in_its_own_form(memory: Memory) -> None:
    built_in = memory.tools.names()
    assert "memory" not in built_in
    memory.tools.register(files_tool())
    assert memory.tools.to_anthropic()[-1] == {"type": "memory_20250818", "name": "memory"}
    cached = memory.tools.to_anthropic(cache=True)[-1]
    assert cached == {"type": "memory_20250818", "name": "memory", "cache_control": {"type": "ephemeral"}}
    for described in (memory.tools.to_openai()[-1]["function"], memory.tools.to_mcp()[-1]):
        schema = described.get("parameters") or described["inputSchema"]
        assert described["name"] == "memory"
        assert schema["required"] == ["command"]
        assert schema["properties"]["command"]["enum"] == [
            *("view", "create", "str_replace", "insert", "delete", "rename")
        ]
    assert {"type": "memory_20250818"}.items() <= memory.tools.to_anthropic()[-1].items()
    assert [tool["name"] for tool in memory.tools.to_anthropic()] == [*built_in, "memory"]


def test_a_model_is_told_in_the_words_of_the_contract(memory: Memory) -> None:
    edited = {"old_str": "a", "new_str": ""}
    moved = {"old_path": PLAN, "new_path": "/memories/p"}
    for command, fields, text in (
        ("create", {"path": PLAN, "file_text": "a\nb"}, f"File created successfully at: {PLAN}"),
        ("insert", {"path": PLAN, "insert_line": 0, "insert_text": "0"}, f"The file {PLAN} has been edited."),
        ("view", {"path": PLAN, "view_range": [2, 2]}, f"Here's the content of {PLAN} with line numbers:\n     2\ta"),
        ("rename", moved, f"Successfully renamed {PLAN} to /memories/p"),
        ("str_replace", {"path": "/memories/p", **edited}, "The memory file has been edited."),
        ("delete", {"path": "/memories/p"}, "Successfully deleted /memories/p"),
    ):
        result = called(memory, command=command, **fields)
        assert (result.outcome, result.value.partition(" Here is the snippet")[0]) == ("ok", text)
    refused = called(memory, command="view", path=PLAN)
    assert (refused.outcome, refused.message) == (
        "invalid_input",
        f"The path {PLAN} does not exist. Please provide a valid path.",
    )
    assert refused.text == f"Error: {refused.message}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "missing required field: command"),
        ({"command": "burn"}, "'command' must be one of"),
        ({"command": "view"}, "view requires 'path'"),
        ({"command": "create", "path": PLAN}, "create requires 'file_text'"),
        ({"command": "rename", "path": PLAN}, "rename requires 'old_path'"),
        ({"command": "view", "path": 5}, "'path' must be of type string"),
        ({"command": "insert", "path": PLAN, "insert_line": 1.5, "insert_text": ""}, "'insert_line' must be of type"),
        ({"command": "view", "path": PLAN, "view_range": ["a"]}, "'view_range[0]' must be of type integer"),
        ({"command": "view", "path": "/memories/../etc"}, "would escape /memories directory"),
        ({"command": "create", "path": PLAN, "file_text": "\ud800"}, "JSON cannot"),
    ],
)
def test_nonsense_is_a_result_that_says_so(memory: Memory, arguments: dict[str, Any], words: str) -> None:
    result = called(memory, **arguments)
    assert (result.outcome, memory.head) == ("invalid_input", 0)
    assert words in result.message


def test_a_frozen_memory_is_only_looked_at(memory: Memory) -> None:
    called(memory, command="create", path=PLAN, file_text="x")
    then = memory.at(1)
    assert called(then, command="view", path="/memories").outcome == "ok"
    assert called(then, command="delete", path=PLAN).outcome == "forbidden"


def test_the_host_says_whose_files_they_are(memory: Memory) -> None:
    memory.tools.register(files_tool())
    context = memory.tools.context(files="alice")
    given = {"command": "create", "path": PLAN, "file_text": "x"}
    result = asyncio.run(memory.tools.execute_async("memory", given, context))
    assert result.outcome == "ok"
    assert memory.files("alice").read(PLAN) == "x"
    assert memory.files().list() == []


class Writer:
    """A model that keeps a file."""

    def __init__(self) -> None:
        self.calls = [
            {"command": "create", "path": PLAN, "file_text": "one"},
            {"command": "create", "path": PLAN, "file_text": "one"},
            {"command": "str_replace", "path": PLAN, "old_str": "one", "new_str": "two"},
        ]

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:
        assert messages
        assert "memory" in [tool["function"]["name"] for tool in tools]
        if not self.calls:
            return Reply("Kept.")
        return Reply(None, (Call(f"c{len(self.calls)}", "memory", json.dumps(self.calls.pop(0))),))


def test_a_session_that_kept_files_runs_again() -> None:
    with remembering() as memory, remembering() as other:
        for one in (memory, other):
            one.tools.register(files_tool())
        AgentLoop(memory, memory.conversation("c"), Writer()).run("Keep it.")
        rerun(memory.conversation("c"), other)
        assert other.files().read(PLAN) == memory.files().read(PLAN) == "two"
        assert assert_sound(other)
        assert "memory" not in BUILT_IN_NAMES
