"""Recorded calls: whatever a model or a tool does is a result and a record; only a host's own mistake raises."""

import logging
import threading
from typing import Any

import pytest

from refold import InvalidInput, LimitExceeded, Memory, ReadOnly
from refold.agent import FunctionTool, ToolContext
from refold.limits import TOOL_MESSAGE_CHARS_MAX, TOOL_NAME_CHARS_MAX
from tests.support.memories import assert_sound, nested


def given(memory: Memory, function: Any, schema: Any = None) -> ToolContext:
    """A context, with a tool ``t`` of a function."""
    memory.tools.register(FunctionTool("t", "d", schema or {}, function))
    context: ToolContext = memory.tools.context(memory.conversation("c"))
    return context


def records(memory: Memory) -> list[Any]:
    return [found.event for found in memory.conversation("c").events() if type(found.event).__name__ == "ToolExecuted"]


@pytest.mark.parametrize("name", ["", "x" * 5_000, "x\ud800", None, ["x"], 7])
def test_a_name_that_is_none_is_an_unknown_tool_and_recorded(memory: Memory, name: Any) -> None:
    result = memory.tools.execute(name, {}, given(memory, lambda *_: 1), record=True)
    assert result.outcome == "unknown_tool"
    assert len(result.message) < 2 * TOOL_NAME_CHARS_MAX + 40
    (record,) = records(memory)
    assert record.outcome == "unknown_tool"
    assert_sound(memory)
    assert memory.tools.get(name) is None
    assert memory.tools.unregister(name) is None


@pytest.mark.parametrize("arguments", [{"n": 10**30}, '{"n": 123456789012345678901234567890}', {"a": nested(200)}])
def test_arguments_that_no_log_holds_are_refused_before_the_tool_runs(memory: Memory, arguments: Any) -> None:
    ran: list[Any] = []
    result = memory.tools.execute("t", arguments, given(memory, lambda *_: ran.append(1)), record=True)
    assert (result.outcome, ran) == ("invalid_input", [])
    assert [(record.outcome, record.arguments) for record in records(memory)] == [("invalid_input", b"{}")]


@pytest.mark.parametrize("arguments", [{1: 2}, {"a": (1, 2)}, {"a": float("nan")}, {"a": b"x"}])
def test_arguments_that_become_json_are_recorded_as_that(memory: Memory, arguments: Any) -> None:
    assert not memory.tools.execute("t", arguments, given(memory, lambda *_: 1), record=True).is_error
    assert len(records(memory)) == 1


@pytest.mark.parametrize("value", [nested(200), 10**30])
def test_a_result_that_no_log_holds_is_an_error_and_recorded(memory: Memory, value: Any) -> None:
    result = memory.tools.execute("t", {}, given(memory, lambda *_: value), record=True)
    assert result.outcome == "failed"
    assert [record.outcome for record in records(memory)] == ["failed"]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError("caf\udce9"), "execution failed: caf?"),
        (TimeoutError(), "execution failed: TimeoutError"),
        (Unspeakable(), "execution failed: Unspeakable()"),
        (ValueError("x" * 10_000_000), "execution failed: xxx"),
    ],
)
def test_whatever_a_tools_error_says_can_be_told_and_stored(
    memory: Memory, error: Exception, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    # The log holds the error as it is, and what runs tests side by side cannot pass that on.
    caplog.set_level(logging.CRITICAL, logger="refold")

    def fail(*_: Any) -> None:
        raise error

    result = memory.tools.execute("t", {}, given(memory, fail), record=True)
    assert result.message.startswith(message)
    assert len(result.message) < TOOL_MESSAGE_CHARS_MAX + 100
    memory.conversation("c").append("tool", result.text)
    assert len(records(memory)) == 1


def test_what_a_tool_does_to_its_arguments_is_not_in_the_record(memory: Memory) -> None:
    context = given(memory, lambda given, _: given.pop("a"))
    assert memory.tools.execute("t", {"a": 1}, context, record=True).value == 1
    assert [record.arguments for record in records(memory)] == [b'{"a":1}']


def test_a_host_that_cannot_record_is_told_before_the_tool_runs(memory: Memory) -> None:
    ran: list[Any] = []
    context = given(memory, lambda *_: ran.append(1))
    chat = memory.conversation("c")
    chat.append("user", "x")
    frozen = memory.tools.context(chat.at(1))
    with pytest.raises(ReadOnly):
        memory.tools.execute("t", {}, frozen, record=True)
    with pytest.raises(LimitExceeded, match="call_id"):
        memory.tools.execute("t", {}, context, record=True, call_id="x" * 1_000)
    no_context: Any = "c"
    with pytest.raises(InvalidInput, match="record=True needs"):
        memory.tools.execute("t", {}, no_context, record=True)
    with pytest.raises(InvalidInput, match="must be a Conversation"):
        memory.tools.context(no_context)
    assert (ran, records(memory)) == ([], [])


# Schemas.


@pytest.mark.parametrize("nullable", [{"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}])
def test_a_required_field_may_be_null_where_its_schema_says_so(memory: Memory, nullable: Any) -> None:
    schema = {"properties": {"a": nullable}, "required": ["a"]}
    context = given(memory, lambda given, _: given, schema)
    assert memory.tools.execute("t", {"a": None}, context).value == {"a": None}
    assert memory.tools.execute("t", {}, context).message == "invalid input: missing required field: a"


def test_a_schema_may_be_true_or_false(memory: Memory) -> None:
    schema = {"properties": {"any": True, "none": False}, "additionalProperties": False}
    context = given(memory, lambda given, _: given, schema)
    assert memory.tools.execute("t", {"any": [1]}, context).value == {"any": [1]}
    refusal = memory.tools.execute("t", {"none": 1}, context).message
    assert refusal == "invalid input: unknown field: none; there are any"


@pytest.mark.parametrize(
    "wrong",
    [
        {"parameters": 5},
        {"parameters": [1]},
        {"annotations": None},
        {"parameters": {"properties": 5}},
        {"parameters": {"properties": {"a": 5}}},
        {"parameters": {"required": "a"}},
    ],
)
def test_a_tool_that_is_described_badly_is_refused(memory: Memory, wrong: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"name": "t", "description": "d", "parameters": {}, "function": print, **wrong}
    with pytest.raises(InvalidInput):
        memory.tools.register(FunctionTool(**fields))


def test_tools_come_and_go_while_others_list_them(memory: Memory) -> None:
    tools, failures, done = memory.tools, list[BaseException](), threading.Event()

    def watch() -> None:
        try:
            while not done.is_set():
                tools.definitions()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    threads = [threading.Thread(target=watch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(6_000):
        name = f"t{number % 50}"
        tools.unregister(name)
        tools.register(FunctionTool(name, "d", {}, print))
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
