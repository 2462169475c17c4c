"""The tool registry and the built-in tools: what a model is told, what its calls do, what its nonsense does not do."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import make_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct

from refold import InvalidInput, LimitExceeded, Memory
from refold.agent import FunctionTool, ToolContext, ToolFailed, ToolRegistry
from refold.limits import NOTES_CHARS_DEFAULT, TOOL_ARGUMENTS_BYTES_MAX, TOOLS_COUNT_MAX
from refold.views.session import ToolExecuted

NAMES = [
    *("memory_write", "memory_read", "memory_set", "memory_delete", "memory_add", "memory_search"),
    *("conversation_search", "memory_update", "memory_forget", "working_memory_read", "journal_append", "journal_read"),
]


def caller(memory: Memory, name: str = "A") -> Callable[..., Any]:
    """Calls a tool in a conversation and returns its value or, of an error, its text."""
    context = memory.tools.context(memory.conversation(name))

    def call(tool: str, /, **arguments: Any) -> Any:
        head = memory.head
        result = memory.tools.execute(tool, arguments, context)
        if result.is_error:
            assert memory.head == head
            return result.text
        return result.value

    return call


def test_a_memory_that_can_only_be_read_is_searched_by_a_model(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.conversation("A").append("user", "Which port?")
        memory.project().add("The port is 5432.")
        past = memory.at(memory.head)
        (row,) = caller(past)("memory_search", query="port")["memories"]
        assert row["content"] == "The port is 5432."
    with Memory(tmp_path / "store", readonly=True) as memory:
        assert caller(memory)("memory_search", query="port")["memories"] == [row]


def echo(**options: Any) -> FunctionTool:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return FunctionTool("echo", "Say it again.", schema, lambda given, _: given["text"], **options)


# Seed 000: its test cases, by name.


def test_set_then_read_contains_alice(memory: Memory) -> None:
    call = caller(memory)
    said = {"status": "ok", "action": "set", "key": "name", "value": "Alice"}
    assert call("memory_write", action="set", key="name", value="Alice") == said
    assert call("memory_read", key="name") == {"key": "name", "value": "Alice"}


def test_note_then_read_contains_the_text(memory: Memory) -> None:
    call = caller(memory)
    assert call("memory_write", action="note", value="User prefers dark mode") == {"status": "ok", "action": "note"}
    assert call("memory_read") == {"entries": {}, "notes": ["User prefers dark mode"]}


def test_delete_then_read_is_not_found(memory: Memory) -> None:
    call = caller(memory)
    call("memory_write", action="set", key="name", value="Alice")
    deleted = {"status": "ok", "action": "delete", "key": "name", "existed": True}
    assert call("memory_write", action="delete", key="name") == deleted
    assert call("memory_read", key="name") == {"key": "name", "value": None, "message": "not found"}
    assert call("memory_write", action="delete", key="name") == deleted | {"existed": False}


def test_clear_then_read_is_empty(memory: Memory) -> None:
    call = caller(memory)
    call("memory_write", action="set", key="a", value="1")
    call("memory_write", action="note", value="n")
    assert call("memory_write", action="clear") == {"status": "ok", "action": "clear"}
    assert call("memory_read") == {"entries": {}, "notes": []}


def test_conversations_have_scratchpads_of_their_own(memory: Memory) -> None:
    caller(memory, "A")("memory_write", action="set", key="name", value="Alice")
    assert caller(memory, "B")("memory_read") == {"entries": {}, "notes": []}


def test_an_invalid_action_is_invalid_input(memory: Memory) -> None:
    result = memory.tools.execute("memory_write", {"action": "foo"}, memory.tools.context(memory.conversation("A")))
    assert result.outcome == "invalid_input"
    assert result.message == "invalid input: unknown action: 'foo'. Valid actions: set, note, delete, clear"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Error: invalid input: missing required field: action"),
        ({"action": 7}, "Error: invalid input: missing required field: action"),
        ({"action": "set", "value": "v"}, "Error: invalid input: set requires 'key'"),
        ({"action": "set", "key": "k"}, "Error: invalid input: set requires 'value'"),
        ({"action": "set", "key": "k", "value": 5}, "Error: invalid input: set requires 'value' as a string, not 5"),
        ({"action": "note"}, "Error: invalid input: note requires 'value'"),
        ({"action": "delete"}, "Error: invalid input: delete requires 'key'"),
    ],
)
def test_what_memory_write_refuses_appends_nothing(memory: Memory, arguments: dict[str, Any], text: str) -> None:
    assert caller(memory)("memory_write", **arguments) == text
    assert memory.head == 0


def test_the_checks_come_in_their_order(memory: Memory) -> None:
    """The action's presence, then the conversation, then the rest."""
    execute = memory.tools.execute
    assert execute("memory_write", {}).message == "invalid input: missing required field: action"
    lost = "execution failed: missing conversation context"
    assert execute("memory_write", {"action": "set"}).message == lost
    assert execute("memory_write", {"action": "foo"}).message == lost
    assert execute("memory_read", {"key": "k"}).message == lost


def test_a_conversation_id_in_the_arguments_counts_for_nothing(memory: Memory) -> None:
    caller(memory, "B")("memory_write", action="set", key="secret", value="b")
    call = caller(memory, "A")
    assert call("memory_read", key="secret", conversation_id="B", conversation="B")["value"] is None
    call("memory_write", action="clear", conversation_id="B")
    assert memory.conversation("B").scratchpad.get("secret") == "b"


def test_both_tools_are_defined_with_their_schemas(memory: Memory) -> None:
    written, read = (definition.parameters for definition in memory.tools.definitions()[:2])
    assert json.dumps(written) == (
        '{"type": "object", "properties": {"action": {"type": "string", "enum": ["set", "note", "delete", "clear"], '
        '"description": "The action to perform"}, "key": {"type": "string", "description": "Key name (required for set '
        'and delete)"}, "value": {"type": "string", "description": "Value to store (required for set and note)"}}, '
        '"required": ["action"]}'
    )
    assert read["properties"]["key"]["description"] == "Key to look up (omit to return all stored data)"


# The other built-in tools.


def test_permanent_facts_are_set_and_deleted(memory: Memory) -> None:
    call = caller(memory)
    assert call("memory_set", key="theme", value="dark") == {"status": "ok", "key": "theme", "value": "dark"}
    assert memory.profile().items() == [("theme", "dark")]
    assert call("memory_delete", key="theme") == {"status": "ok", "key": "theme", "existed": True}
    assert call("memory_delete", key="theme")["existed"] is False
    assert call("memory_set", key="theme") == "Error: invalid input: missing required field: value"
    assert call("memory_set", key="theme", value=5) == "Error: invalid input: 'value' must be of type string"


@pytest.mark.parametrize("alike", ["NAMe", " name ", "NAME", "name\n"])
def test_a_key_that_differs_only_in_case_or_spaces_is_the_same_fact(memory: Memory, alike: str) -> None:
    call = caller(memory)
    call("memory_set", key=" name ", value="Kim")
    assert call("memory_set", key=alike, value="Kat") == {"status": "ok", "key": "name", "value": "Kat"}
    assert memory.profile().items() == [("name", "Kat")]
    memory.profile().set("Name", "Kit")
    call("memory_set", key="Name", value="Kay")
    assert memory.profile().items() == [("name", "Kat"), ("Name", "Kay")]
    memory.profile().delete("Name")
    assert call("memory_delete", key=alike) == {"status": "ok", "key": "name", "existed": True}
    assert call("memory_set", key=" ", value="x") == "Error: invalid input: key must not be empty"


def test_memories_are_added_found_changed_and_forgotten(memory: Memory) -> None:
    chat = memory.conversation("A", project="acme")
    chat.append("user", "Use pnpm.")
    call = caller(memory)
    added = call("memory_add", content="Use pnpm, not npm.", category="preference", importance=0.9)
    assert (added["status"], added["message"]) == ("ok", "Memory saved successfully")
    found = call("memory_search", query="pnpm")["memories"]
    assert [(memory["id"], memory["content"]) for memory in found] == [(added["id"], "Use pnpm, not npm.")]
    assert found[0]["learned"] == "2026-11-18"
    assert call("memory_update", id=added["id"], importance=1)["status"] == "ok"
    entry = memory.project("acme").get(added["id"])
    assert entry is not None
    assert (entry.importance, entry.session, entry.access_count) == (1.0, "A", 1)
    assert call("memory_forget", id=added["id"]) == {"status": "ok", "id": added["id"]}
    assert call("memory_forget", id=added["id"]) == f"Error: invalid input: Memory not found: {added['id']}"
    assert memory.project("acme").count() == 0


def test_what_was_said_is_found_in_the_conversation_of_the_host(memory: Memory) -> None:
    chat = memory.conversation("A", window_tokens=30)
    chat.append("user", "The code is raven.", name="Ada", tokens=10)
    chat.append("tool", 3_000 * "raven ", tokens=10)
    for number in range(3):
        chat.append("user", f"A raven of day {number}.", tokens=10)
    memory.conversation("B").append("user", "The code of somebody else is raven.")
    call, head = caller(memory), memory.head
    found = call("conversation_search", query="which code?")["messages"]
    said = {"seq": 2, "role": "user", "content": "The code is raven.", "in_window": False, "name": "Ada"}
    assert found == [said]
    every = call("conversation_search", query="raven", top_k=50)["messages"]
    assert [row["in_window"] for row in sorted(every, key=lambda row: row["seq"])] == [False, False, True, True, True]
    assert max(len(row["content"]) for row in every) == 2_000
    assert len(call("conversation_search", query="raven", top_k=2)["messages"]) == 2
    assert call("conversation_search", query=" ").startswith("Error: invalid input: query is empty")
    # No argument is dropped that seems to choose something.
    assert "unknown field: conversation; there are query, top_k" in call(
        "conversation_search", query="x", conversation="B"
    )
    assert "unknown field: project" in call("memory_add", content="Ada likes tea.", project="other")
    assert memory.head == head


def test_a_long_memory_does_not_flood_a_search(memory: Memory) -> None:
    call, project = caller(memory), memory.project()
    refusal = call("memory_add", content="ERROR in module foo; " * 20_000)
    assert "content is 420,000 characters, over 2,000; give what matters of it" in refusal
    assert call("journal_append", text="x" * 8_001).startswith("Error: invalid input: text is 8,001 characters")
    added = call("memory_add", content="Deploys happen on Tuesdays. " * 70)["id"]
    assert "over 2,000" in call("memory_update", id=added, content="long " * 500)
    # A host may add what it likes.
    for number in range(40):
        project.add(f"The build log {number:02} says: " + "ERROR in module foo; " * 2_000)
    found = call("memory_search", query="When do deploys happen?", top_k=50)
    assert found["memories"][0]["content"] == "Deploys happen on Tuesdays. " * 70
    assert found["memories"][1]["content"].endswith("... (40,023 more characters)")
    assert len(found["memories"]) + found["left_out"] == 41
    assert sum(len(row["content"]) for row in found["memories"]) <= 32_000


def test_a_long_value_is_refused_and_what_is_kept_is_cut_where_it_is_read(memory: Memory) -> None:
    call, head = caller(memory), memory.head
    for name, fields in (("memory_write", {"action": "set"}), ("memory_set", {})):
        refusal = call(name, **fields, key="log", value="x" * 310_000)
        assert refusal.startswith("Error: invalid input: value is 310,000 characters, over 8,000; give what matters")
        assert "key is 201 characters, over 200" in call(name, **fields, key="k" * 201, value="x")
    assert "value is 8,001 characters" in call("memory_write", action="note", value="x" * 8_001)
    assert memory.head == head
    long = "INFO request served\n" * 400
    for name, fields in (("memory_write", {"action": "set"}), ("memory_set", {})):
        assert call(name, **fields, key="log", value=long)["value"] == f"{long[:200]}... (7,800 more characters)"
    call("memory_write", action="note", value=long)
    scratchpad = memory.conversation("A").scratchpad
    assert scratchpad.get("log") == scratchpad.notes()[0] == long == memory.profile().get("log")
    cut = f"{long[:2_000]}... (6,000 more characters)"
    assert call("memory_read") == {"entries": {"log": cut}, "notes": [cut]}
    assert call("memory_read", key="log") == {"key": "log", "value": long}
    scratchpad.set("dump", "y" * 10_000)  # By the host, which has no such bound.
    assert call("memory_read", key="dump")["value"].endswith("y... (2,000 more characters)")
    assert call("memory_write", action="delete", key="k" * 201)["existed"] is False


def test_a_search_of_the_conversation_does_not_find_searches(memory: Memory) -> None:
    chat = memory.conversation("A")
    chat.append("user", "The code of the garage gate is the year of the birth of grandpa.")
    for number in range(30):
        arguments = '{"query": "gate code garage"}'
        function = {"name": "conversation_search" if number % 2 else "memory_search", "arguments": arguments}
        chat.append("assistant", None, tool_calls=[{"id": f"c{number}", "type": "function", "function": function}])
        if number % 2:
            chat.append("tool", "code garage gate", tool_call_id=f"c{number}", name="conversation_search")
    function = {"name": "memory_add", "arguments": '{"content": "The gate of the garage is green."}'}
    chat.append("assistant", None, tool_calls=[{"id": "added", "type": "function", "function": function}])
    found = caller(memory)("conversation_search", query="gate code garage")["messages"]
    assert [row["role"] for row in found] == ["user", "assistant"]
    assert "is green" in found[1]["content"]
    assert len(caller(memory)("conversation_search", query="gate code garage", top_k=1)["messages"]) == 1


@pytest.mark.parametrize(
    "call",
    [
        {"id": "k1", "name": "grepper", "args": {"q": "zebras"}},
        {"id": "k1", "function": "grepper of zebras"},
        {"type": "custom", "custom": {"name": "grepper", "input": "zebras"}},
        {"type": "tool_use", "input": {"q": "zebras"}},
    ],
)
def test_a_search_of_the_conversation_takes_calls_of_any_shape(memory: Memory, call: dict[str, Any]) -> None:
    chat = memory.conversation("A")
    chat.append("user", "Something about zebras.")
    chat.append("assistant", None, tool_calls=[call])
    searched = {"type": "tool_use", "id": "k2", "name": "conversation_search", "input": {"query": "zebras grepper"}}
    chat.append("assistant", [searched])
    found = caller(memory)("conversation_search", query="zebras grepper")["messages"]
    assert "Something about zebras." in [row["content"] for row in found]
    assert "conversation_search" not in str(found)


def test_a_search_is_a_recall_and_a_read_leaves_no_trace(memory: Memory) -> None:
    call = caller(memory)
    call("memory_add", content="Tests live in tests/.")
    head = memory.head
    call("memory_search", query="tests")
    call("memory_read")
    (recorded,) = memory.events(after=head)
    assert type(recorded.event).__name__ == "MemoriesRecalled"


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("memory_add", {}, "missing required field: content"),
        ("memory_add", {"content": " "}, "content must not be empty"),
        ("memory_add", {"content": "x", "importance": 7}, "'importance' must be from 0 to 1"),
        ("memory_add", {"content": "x", "importance": "high"}, "'importance' must be of type number"),
        ("memory_add", {"content": "x", "keywords": [1]}, "'keywords[0]' must be of type string"),
        ("memory_add", {"content": "x", "category": "mood"}, "'category' must be one of: preference, convention, "),
        ("memory_search", {"query": "x", "top_k": 0}, "'top_k' must be from 1 to 50"),
        ("memory_search", {"query": "x", "top_k": True}, "'top_k' must be of type integer"),
        ("memory_update", {"id": "no", "content": "x"}, "Memory not found: no"),
        ("memory_update", {"id": "no"}, "nothing to change; give one of content, category, importance, keywords"),
        ("memory_forget", {"id": ""}, "Memory not found: "),
        ("journal_append", {"text": "\n"}, "text must not be empty"),
    ],
)
def test_what_the_other_tools_refuse_appends_nothing(
    memory: Memory, tool: str, arguments: dict[str, Any], text: str
) -> None:
    assert caller(memory)(tool, **arguments).startswith(f"Error: invalid input: {text}")
    assert memory.head == 0


def test_notes_of_the_day_are_appended(memory: Memory) -> None:
    assert caller(memory)("journal_append", text="Chose LMDB.") == {"status": "ok", "day": "2026-11-18"}
    assert [note.text for note in memory.journal().recent()] == ["Chose LMDB."]


def test_notes_of_earlier_days_are_read(memory: Memory) -> None:
    call = caller(memory)
    assert call("journal_read") == {"first": "2026-11-11", "last": "2026-11-18", "notes": []}
    for day in ("2026-11-12", "2026-11-10", "2026-11-18", "2026-11-12"):
        memory.journal().append(f"Ran on {day}.", day=day)
    memory.journal("theirs").append("Swam.")

    def days(**arguments: str) -> list[str]:
        shown = call("journal_read", **arguments)
        assert all(note["text"] == f"Ran on {note['day']}." for note in shown["notes"])
        return [note["day"][-2:] for note in shown["notes"]]

    assert days() == ["12", "12", "18"]
    assert days(last="2026-11-17") == ["10", "12", "12"]
    assert days(first="2026-11-01") == ["10", "12", "12", "18"]
    assert days(first="2026-11-10", last="2026-11-10") == ["10"]
    assert call("journal_read", first="2026-11-19") == (
        "Error: invalid input: first is 2026-11-19, after last, 2026-11-18; give the earlier day as first"
    )
    assert call("journal_read", last="last week").startswith("Error: invalid input: last is 'last week'; give a day")


def test_of_too_many_notes_the_newest_are_read_and_the_others_counted(memory: Memory) -> None:
    for number in range(10):
        memory.journal().append(f"{number}" * (NOTES_CHARS_DEFAULT // 3), day=f"2026-11-1{number % 5}")
    shown = caller(memory)("journal_read")
    assert [(note["day"], note["text"][0]) for note in shown["notes"]] == [
        ("2026-11-13", "8"),
        ("2026-11-14", "4"),
        ("2026-11-14", "9"),
    ]
    assert shown["left_out"] == 5
    memory.journal().append("x" * (NOTES_CHARS_DEFAULT + 1), day="2026-11-18")
    assert [note["text"][0] for note in caller(memory)("journal_read")["notes"]] == ["x"]


# Arguments as models write them.


@pytest.mark.parametrize("empty", ["", " \n", "null", b"", None])
def test_empty_arguments_count_as_none(memory: Memory, empty: object) -> None:
    assert memory.tools.execute("memory_write", empty).message == "invalid input: missing required field: action"


@pytest.mark.parametrize(
    ("wrong", "flaw"),
    [
        ("{", "are no JSON: Expecting property name enclosed in double quotes at line 1, column 2, where it ends"),
        ('{"action": "no', "are no JSON: Unterminated string starting at line 1, column 12 (before '\"no')"),
        ("nonsense", "are no JSON: Expecting value at line 1, column 1 (before 'nonsense')"),
        (
            '{"key": 1,\n "k\u00e9y" "port"}',
            "are no JSON: Expecting ':' delimiter at line 2, column 8 (before '\"port\"}')",
        ),
        ('{"action": "read"} I hope so!', "are no JSON: Extra data at line 1, column 20 (before 'I hope so!')"),
        ('{"action": "a\nb"}', "are no JSON: Invalid control character at line 1, column 14"),
        ('{"action": NaN}', "are no JSON: JSON is malformed: invalid character (byte 11)"),
        ('{"action": 1e999}', "are no JSON: Number out of range"),
        ('{"action": "\ud800"}', "are no JSON: 'utf-8' codec can't encode character"),
        ("[" * 100_000, "are no JSON: maximum recursion depth exceeded"),
        (b'{"action": "\xff"}', "are no JSON: 'utf-8' codec can't decode byte"),
        ("[1]", "must be a JSON object, not list"),
        ('"x"', "must be a JSON object, not str"),
    ],
)
@pytest.mark.parametrize("record", [False, True])
def test_broken_arguments_are_refused_with_the_place_and_what_to_send(
    memory: Memory, wrong: object, flaw: str, *, record: bool
) -> None:
    context = memory.tools.context(memory.conversation("A"))
    result = memory.tools.execute("memory_write", wrong, context, record=record)
    assert result.outcome == "invalid_input"
    assert result.message.startswith(f"invalid input: arguments {flaw}")
    assert result.message.endswith("; send one JSON object with action")


def test_broken_arguments_of_a_tool_that_requires_none(memory: Memory) -> None:
    message = memory.tools.execute("memory_read", "{,}").message
    assert message.endswith("column 2 (before ',}'); send one JSON object and nothing else")


def test_arguments_in_json_are_decoded(memory: Memory) -> None:
    context = memory.tools.context(memory.conversation("A"))
    memory.tools.execute("memory_write", '{"action": "set", "key": "k", "value": "\\u00e9"}', context)
    assert memory.conversation("A").scratchpad.get("k") == "\u00e9"


@pytest.mark.parametrize("as_json", [True, False])
def test_ten_megabytes_of_arguments_are_refused(memory: Memory, as_json: bool) -> None:
    given: Any = {"action": "note", "value": "x" * 10_000_000}
    context = memory.tools.context(memory.conversation("A"))
    result = memory.tools.execute("memory_write", json.dumps(given) if as_json else given, context)
    assert result.outcome == "invalid_input"
    assert f"TOOL_ARGUMENTS_BYTES_MAX = {TOOL_ARGUMENTS_BYTES_MAX:,}" in result.message
    assert memory.head == 0


@pytest.mark.parametrize("wrong", [7, ["a"], {"value": object()}, {1: {2}}])
def test_arguments_that_json_cannot_hold_are_refused(memory: Memory, wrong: object) -> None:
    assert memory.tools.execute("memory_set", wrong).outcome == "invalid_input"


# The registry.


def test_register_unregister_get_names_definitions_execute(memory: Memory) -> None:
    tools, tool = memory.tools, echo()
    assert isinstance(tools, ToolRegistry)
    assert tools.names() == NAMES
    definition = tools.register(tool)
    assert tools.get("echo") is tool
    assert tools.names() == [*NAMES, "echo"]
    assert tools.definitions()[-1] == definition
    assert tools.execute("echo", {"text": "hello"}).text == "hello"
    assert memory.tools.names() == [*NAMES, "echo"]
    assert tools.unregister("echo") is tool
    assert tools.unregister("echo") is None
    assert tools.get("echo") is None


def test_an_unknown_tool_is_a_result(memory: Memory) -> None:
    result = memory.tools.execute("launch", {})
    assert (result.outcome, result.text, result.value) == ("unknown_tool", "Error: unknown tool 'launch'", None)


def test_a_definition_stays_whatever_becomes_of_the_schema(memory: Memory) -> None:
    tool = echo()
    definition = memory.tools.register(tool)
    before = definition.schema
    assert isinstance(tool.parameters, dict)
    tool.parameters["properties"]["other"] = {}
    memory.tools.definitions()[-1].parameters["properties"].clear()
    assert memory.tools.definitions()[-1].schema == before
    assert memory.tools.execute("echo", {}).message == "invalid input: missing required field: text"


@pytest.mark.parametrize("name", ["", "mcp:server:tool", "two words", "x" * 65, "\u00e9"])
def test_a_name_that_some_wire_refuses_is_refused(memory: Memory, name: str) -> None:
    tool = FunctionTool(name, "d", {}, lambda _, __: None)
    with pytest.raises(InvalidInput, match="no provider takes"):
        memory.tools.register(tool)


def test_a_name_twice_a_schema_of_no_object_and_no_tool_at_all_are_refused(memory: Memory) -> None:
    memory.tools.register(echo())
    with pytest.raises(InvalidInput, match="a tool named 'echo' is registered"):
        memory.tools.register(echo())
    with pytest.raises(InvalidInput, match="make them an object"):
        memory.tools.register(FunctionTool("list", "d", {"type": "array"}, lambda _, __: None))
    no_tool: Any = object()
    with pytest.raises(InvalidInput, match="a tool has a name"):
        memory.tools.register(no_tool)


def test_too_many_tools_and_too_long_schemas_are_refused(memory: Memory) -> None:
    with pytest.raises(LimitExceeded, match="TOOL_SCHEMA_BYTES_MAX"):
        memory.tools.register(FunctionTool("long", "d", {"description": "x" * 70_000}, lambda _, __: None))
    for number in range(TOOLS_COUNT_MAX - len(NAMES)):
        memory.tools.register(FunctionTool(f"tool{number}", "d", {}, lambda _, __: None))
    with pytest.raises(LimitExceeded, match="TOOLS_COUNT_MAX"):
        memory.tools.register(echo())


def test_whatever_a_tool_raises_or_returns_is_a_result(memory: Memory) -> None:
    def fail(_: dict[str, Any], __: ToolContext) -> None:
        raise ToolFailed("no such host")

    def crash(_: dict[str, Any], __: ToolContext) -> None:
        raise ZeroDivisionError("oops")

    memory.tools.register(FunctionTool("fail", "d", {}, fail))
    memory.tools.register(FunctionTool("crash", "d", {}, crash))
    memory.tools.register(FunctionTool("odd", "d", {}, lambda _, __: object()))
    assert memory.tools.execute("fail").text == "Error: execution failed: no such host"
    assert memory.tools.execute("crash").text == "Error: execution failed: oops"
    assert memory.tools.execute("odd").text == "Error: execution failed: odd returned a object, which is no JSON value"


Reading = make_dataclass("Reading", ["degrees"])


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (float("nan"), " is nan"),
        ({"a": [1.5, None, float("inf")]}, "['a'][2] is inf"),
        ((None, {"null": (float("-inf"),)}), "[1]['null'][0] is -inf"),
        (Reading(degrees=float("nan")), "['degrees'] is nan"),
    ],
)
@pytest.mark.parametrize("record", [False, True])
def test_a_number_that_json_cannot_hold_is_a_failure_and_not_null(
    memory: Memory, value: object, place: str, *, record: bool
) -> None:
    memory.tools.register(FunctionTool("measure", "d", {}, lambda _, __: value))
    context = memory.tools.context(memory.conversation("A"))
    result = memory.tools.execute("measure", {}, context, record=record)
    problem = f"the result of measure{place}, which JSON cannot hold; store None or a str"
    assert (result.outcome, result.message) == ("failed", f"execution failed: {problem}")
    memory.tools.register(FunctionTool("look", "d", {}, lambda _, __: {"null": [None, "null", 1.5]}))
    assert memory.tools.execute("look", {}, context, record=record).value == {"null": [None, "null", 1.5]}


def test_null_for_a_parameter_with_a_default_means_the_default_unless_its_type_takes_none(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    tools: ToolRegistry = memory.tools

    @tools.tool
    def find(query: str, limit: int = 10, order: str | None = "newest", rest: Any = "rest") -> list[Any]:
        "Find files."
        return [query, limit, order, rest]

    everything = dict.fromkeys(["limit", "order", "rest"])
    assert memory.tools.execute("find", {"query": "x"} | everything).value == ["x", 10, None, None]
    assert memory.tools.execute("find", {"query": "x"}).value == ["x", 10, "newest", "rest"]
    assert memory.tools.execute("find", {"query": None}).outcome == "invalid_input"
    assert not caplog.records


def test_what_a_type_does_not_take_is_invalid_input_and_no_failure(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    tools: ToolRegistry = memory.tools

    @tools.tool
    def plan(days: Annotated[list[int], Meta(max_length=2)]) -> int:
        "Plan days."
        return len(days)

    result = memory.tools.execute("plan", {"days": [1, 2, 3]})
    assert (result.outcome, "length <= 2" in result.message) == ("invalid_input", True)
    assert not caplog.records


@pytest.mark.parametrize("value", ["caf\udce9", {"a": ["caf\udce9"]}, {"caf\udce9": 1}])
def test_a_text_that_is_no_unicode_fails_and_says_what_to_do(memory: Memory, value: object) -> None:
    memory.tools.register(FunctionTool("read", "d", {}, lambda _, __: value))
    result = memory.tools.execute("read", {})
    problem = r"read returned a text with '\udce9', which is no Unicode; decode bytes with errors='replace'"
    assert (result.outcome, result.message) == ("failed", f"execution failed: {problem}")


def test_what_is_no_longer_wanted_does_not_run(memory: Memory) -> None:
    context = memory.tools.context(memory.conversation("A"), is_cancelled=lambda: True)
    assert memory.tools.execute("memory_write", {"action": "note", "value": "n"}, context).outcome == "cancelled"
    assert memory.head == 0


def test_a_frozen_memory_forbids_writing(memory: Memory) -> None:
    memory.profile().set("theme", "dark")
    frozen = memory.at(1)
    result = frozen.tools.execute("memory_set", {"key": "theme", "value": "light"})
    assert result.outcome == "forbidden"
    assert memory.profile().get("theme") == "dark"


def test_asynchronous_tools_run_in_both_ways(memory: Memory) -> None:
    async def wait(arguments: dict[str, Any], _: ToolContext) -> str:
        await asyncio.sleep(0)
        return str(arguments["text"]) * 2

    memory.tools.register(FunctionTool("wait", "d", echo().parameters, wait))
    memory.tools.register(echo())
    assert memory.tools.execute("wait", {"text": "a"}).value == "aa"

    async def both() -> list[Any]:
        head = memory.head
        context = memory.tools.context(memory.conversation("c"))
        with pytest.raises(InvalidInput, match=r"the tool 'wait' is asynchronous, .* await tools.execute_async"):
            memory.tools.execute("wait", {"text": "a"}, context, record=True)
        assert memory.head == head
        execute = memory.tools.execute_async
        results = [await execute("wait", {"text": "b"}), await execute("echo", {"text": "c"}), await execute("no")]
        return [result.text for result in results]

    assert asyncio.run(both()) == ["bb", "c", "Error: unknown tool 'no'"]


class Place(Struct):
    """A place, as a model names it."""

    city: str
    country: str = "Norway"


class Sized(Struct):
    """A place with its size."""

    rooms: int


class Odd:
    """What JSON does not have."""


def test_a_typed_function_is_a_tool(memory: Memory) -> None:
    tools: ToolRegistry = memory.tools

    @tools.tool
    def weather(
        place: Place, days: Annotated[int, Meta(ge=1, description="How many")] = 1, *, context: ToolContext
    ) -> dict[str, Any]:
        """Tell the weather
        of a place.

        Not for models.
        """
        return {"said": f"{place.city}, {place.country}: rain for {days}", "project": context.project.name}

    assert weather.__name__ == "weather"
    definition = memory.tools.definitions()[-1]
    assert (definition.name, definition.description) == ("weather", "Tell the weather of a place.")
    assert definition.parameters["required"] == ["place"]
    assert definition.parameters["properties"]["days"]["description"] == "How many"
    assert definition.parameters["$defs"]["Place"]["required"] == ["city"]
    told = memory.tools.execute("weather", {"place": {"city": "Oslo"}, "days": 2})
    assert told.value == {"said": "Oslo, Norway: rain for 2", "project": "default"}
    for wrong in ({"place": {"town": "Oslo"}}, {"place": {"city": "Oslo"}, "days": 0}, {}, {"place": 1, "x": 2}):
        assert memory.tools.execute("weather", wrong).is_error


WHOLE: list[tuple[dict[str, Any], Any, Any]] = [
    ({"type": "integer"}, 3.0, 3),
    ({"type": "integer"}, -0.0, 0),
    ({"type": ["integer", "null"]}, 3.0, 3),
    ({"type": "integer", "maximum": 3}, 3.0, 3),
    ({"enum": [1, 2]}, 2.0, 2),
    ({"type": "number"}, 3.0, 3.0),
    ({"type": ["integer", "number"]}, 3.0, 3.0),
    ({}, 3.0, 3.0),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 3.0, 3),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 3.0, 3.0),
    ({"allOf": [{"$ref": "#/$defs/count"}]}, 3.0, 3),
    ({"$ref": "#/$defs/loop"}, {"next": {"next": {"count": 3.0}}}, {"next": {"next": {"count": 3}}}),
    ({"type": "array", "items": {"type": "integer"}}, [1.0, 2, 3.0], [1, 2, 3]),
    ({"prefixItems": [{"type": "number"}, {"type": "integer"}], "items": {}}, [1.0, 2.0, 3.0], [1.0, 2, 3.0]),
    (
        {"properties": {"a": {"properties": {"b": {"type": "integer"}}}}},
        {"a": {"b": 1.0}, "c": 1.0},
        {"a": {"b": 1}, "c": 1.0},
    ),
    ({"additionalProperties": {"type": "integer"}}, {"a": 1.0, "b": [2.0]}, {"a": 1, "b": [2.0]}),
    ({"anyOf": 5, "prefixItems": {}, "$ref": 3}, [3.0], [3.0]),
]


@pytest.mark.parametrize(("schema", "given", "got"), WHOLE)
def test_a_whole_number_with_a_point_is_an_integer_where_the_schema_takes_no_other(
    memory: Memory, schema: dict[str, Any], given: Any, got: Any
) -> None:
    seen: list[Any] = []
    count, loop = {"type": "integer"}, {"properties": {"next": {"$ref": "#/$defs/loop"}, "count": {"type": "integer"}}}
    parameters = {"type": "object", "properties": {"x": schema}, "$defs": {"count": count, "loop": loop}}
    memory.tools.register(FunctionTool("see", "d", parameters, lambda arguments, _: seen.append(arguments["x"])))
    arguments, chat = {"x": given}, memory.conversation("c")
    result = memory.tools.execute("see", json.dumps(arguments), memory.tools.context(chat), record=True)
    assert not result.is_error, result.message
    assert repr(seen) == repr([got])
    (event,) = [event for event, _ in chat.events() if isinstance(event, ToolExecuted)]
    assert repr(json.loads(event.arguments)) == repr(arguments), "the record has what the model wrote"


def test_typed_functions_take_whole_numbers_with_a_point(memory: Memory) -> None:
    tools: ToolRegistry = memory.tools

    @tools.tool
    def add(
        a: int,
        others: list[int | None],
        by_name: dict[str, int],
        pair: tuple[str, int],
        place: Sized,
        share: float = 0.5,
    ) -> str:
        """Add."""
        return repr((a, others, by_name, pair, place.rooms, share))

    given = {"a": 3.0, "others": [1.0, None], "by_name": {"x": 2.0}, "pair": ["y", 4.0], "place": {"rooms": 5.0}}
    told = memory.tools.execute("add", json.dumps(given | {"share": 1.0}))
    assert told.value == "(3, [1, None], {'x': 2}, ('y', 4), 5, 1.0)"
    for wrong in (3.5, "3.0", True, float("1e400")):
        assert memory.tools.execute("add", given | {"a": wrong}).is_error
    assert given["a"] == 3.0
    assert type(given["a"]) is float, "the caller's own arguments stay as they are"


def test_a_typed_function_may_be_asynchronous(memory: Memory) -> None:
    tools: ToolRegistry = memory.tools

    async def double(number: int) -> int:
        return 2 * number

    tools.tool(double)
    assert memory.tools.execute("double", {"number": 4}).text == "8"


def test_a_function_that_no_json_can_call_is_refused(memory: Memory) -> None:
    def untyped(city):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return city

    def many(*cities: str) -> str:
        return " ".join(cities)

    def odd(city: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
        return str(city)

    def made(city: Odd) -> str:
        return str(city)

    def either(city: str | complex) -> str:
        return str(city)

    names = memory.tools.names()
    for function, says in (
        (untyped, "the parameter city of untyped lacks a type; write it like untyped(city: str)"),
        (many, "the parameter *cities: str of many lacks a name for models; write it like many(cities: str)"),
        (odd, "no schema can be made for odd: name 'Nowhere' is not defined; give its parameters other types"),
        (made, f"no schema can be made for made: type {Odd!r} is not supported; give its parameters other types"),
        (either, "no schema can be made for either: Type unions containing a custom type may not contain any"),
        (lambda city: city, "the parameter city of <lambda> lacks a type; write it like <lambda>(city: str)"),
        (1, "a tool is made of a function, not int; define one, with def"),
        (partial(odd, "Oslo"), "a tool is made of a function, not partial; define one, with def"),
    ):
        with pytest.raises(InvalidInput) as refused:
            memory.tools.tool(function)
        assert str(refused.value).startswith(says)
        assert "\n" not in str(refused.value)
        assert "0x" not in str(refused.value)
    assert memory.tools.names() == names
