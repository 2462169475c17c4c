"""Session memory, settings and usage: what is recorded, what it comes to, and what it does not touch."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import InvalidInput, LimitExceeded, Memory, fold
from refold.engine.streams import STORE_STREAM
from refold.results import SessionSummary
from tests.support.memories import assert_sound


def test_a_session_remembers_task_files_findings_and_calls(memory: Memory) -> None:
    chat = memory.conversation("s1")
    session = chat.session
    session.describe_task("Fix the login.")
    session.note_file("src/login.py", lines=40, size_bytes=900)
    session.note_finding("Tokens expire after a day.")
    session.record_call("Read", {"file_path": "src/login.py"}, "text", call_id="c1")
    session.record_call("Bash", {}, "no such host", outcome="failed")
    session.record_call("Read", {}, None)
    chat.append("user", "Fix the login.")
    expected = SessionSummary(
        session_id="s1",
        task_description="Fix the login.",
        files_read=(("src/login.py", 40, 900),),
        key_findings=("Tokens expire after a day.",),
        tool_usage={"Bash": 1, "Read": 2},
        total_turns=1,
        success=True,
    )
    assert session.summary() == expected
    assert session.summary(success=False) == msgspec.structs.replace(expected, success=False)
    assert session.to_text() == (
        "[SESSION_MEMORY_V1]\nTask: Fix the login.\nFiles read:\n  - src/login.py (40 lines)\nKey findings:\n"
        "  - Tokens expire after a day.\nTool usage:\n  - Bash: 1\n  - Read: 2"
    )
    assert [session.task(), session.findings(), session.calls()] == [
        "Fix the login.",
        ["Tokens expire after a day."],
        {"Bash": 1, "Read": 2},
    ]
    assert [file.path for file in session.files()] == ["src/login.py"]


def test_what_is_known_already_appends_nothing(memory: Memory) -> None:
    session = memory.conversation("s1").session
    for _ in range(2):
        session.describe_task("t")
        session.note_file("f", lines=1)
        session.note_finding("x")
    assert memory.head == 4
    session.note_file("g")
    session.note_file("f", lines=2)
    assert [(file.path, file.lines) for file in session.files()] == [("g", 0), ("f", 2)]


def test_an_empty_session_shows_nothing(memory: Memory) -> None:
    session = memory.conversation("s1").session
    assert session.to_text() == ""
    assert session.summary() == SessionSummary("s1", "", (), (), {}, 0, success=True)
    assert memory.head == 0


def test_erased_work_leaves_no_trace(memory: Memory) -> None:
    chat = memory.conversation("s1")
    chat.session.describe_task("secret task")
    chat.session.note_finding("secret finding")
    chat.session.record_call("secret_tool", {}, None)
    chat.session.note_file("secret.py")
    memory.erase([2, 3, 4, 5])
    assert chat.session.to_text() == ""


def test_many_events_of_work_come_back_from_checkpoints(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        session = memory.conversation("s1").session
        session.describe_task("long")
        for number in range(400):
            session.note_finding(f"finding {number}")
            session.record_call(f"tool{number % 3}", {"n": number}, number)
        live, text = memory.state_hash(), session.to_text()
        assert_sound(memory)
    with Memory(tmp_path / "store") as memory:
        assert memory.state_hash() == live
        assert memory.conversation("s1").session.to_text() == text
        assert memory.conversation("s1").at(300).session.calls() == {"tool0": 50, "tool1": 50, "tool2": 49}


@pytest.mark.parametrize("kind", sorted(fold.KINDS))
def test_a_row_of_before_a_view_was_there_is_read(kind: str) -> None:
    state = fold.empty(kind)
    inline, seqs = fold.pack(state)
    rows = msgspec.msgpack.decode(inline)
    assert len(rows) <= len(state.kind.views)
    again = fold.unpack(kind, inline, [])
    assert seqs == []
    assert fold.digests(again) == fold.digests(state) == []
    with pytest.raises(ValueError, match="views of a"):
        fold.unpack(kind, msgspec.msgpack.encode([[None, 0]] * 99), [])


# Settings.


def test_settings_have_their_defaults(memory: Memory) -> None:
    assert dict(memory.settings.items()) == {
        "memory_enabled": True,
        "memory_auto_extract": True,
        "memory_max_injected": 200,
        "messages_max_injected": 50,
        "memory_review_extracted": False,
        "skills_enabled": True,
        "skills_auto_generate": False,
        "skills_max_injected_chars": 4_000,
    }
    assert memory.head == 0


def test_a_changed_setting_is_an_event(memory: Memory) -> None:
    settings = memory.settings
    settings.set("memory_enabled", value=True)
    assert memory.head == 0
    settings.set("memory_enabled", value=False)
    settings.set("memory_enabled", value=False)
    settings.set("memory_max_injected", 3)
    assert memory.head == 2
    assert (settings.get("memory_enabled"), settings.get("memory_max_injected")) == (False, 3)
    assert memory.at(1).settings.get("memory_max_injected") == 200
    assert repr(settings) == "Settings({'memory_enabled': False, 'memory_max_injected': 3})"
    settings.set("memory_enabled", value=True)
    assert settings.get("memory_enabled") is True


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("mood", True, InvalidInput),
        ("memory_enabled", 1, InvalidInput),
        ("memory_max_injected", True, InvalidInput),
        ("memory_max_injected", -1, InvalidInput),
        ("memory_max_injected", 10**9, LimitExceeded),
    ],
)
def test_a_wrong_setting_is_refused(memory: Memory, name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        memory.settings.set(name, value)
    assert memory.head == 0


def test_usage_has_totals_in_stats_and_is_no_part_of_the_state(memory: Memory) -> None:
    memory.profile().set("k", "v")
    hashed = memory.state_hash()
    memory.settings.count_usage("memory_extracted", 3, conversation="s1", project="acme")
    memory.settings.count_usage("skill_matched", name="rust", score=4.5)
    memory.settings.count_usage("memory_extracted", 2)
    memory.settings.count_usage("memory_injected", 0)
    assert memory.stats().usage == {"memory_extracted": 5, "skill_matched": 1}
    assert memory.state_hash() == hashed
    assert memory.head == 4
    assert {recorded.stamp.stream for recorded in memory.events(after=1)} == {STORE_STREAM}
    with pytest.raises(InvalidInput, match="give one of memory_extracted"):
        memory.settings.count_usage("coffee")


# Executions, recorded.


def test_an_execution_is_recorded_if_asked(memory: Memory) -> None:
    chat = memory.conversation("s1")
    context = memory.tools.context(chat)
    memory.tools.execute("memory_set", {"key": "a", "value": "b"}, context)
    assert chat.session.calls() == {}
    memory.tools.execute("memory_set", '{"key": "a", "value": "c"}', context, record=True, call_id="c7")
    memory.tools.execute("memory_set", {"key": 5}, context, record=True)
    memory.tools.execute("nonsense", "{", context, record=True)
    events: list[Any] = [
        recorded.event for recorded in chat.events() if fold.NAMES[type(recorded.event)] == "tool_executed"
    ]
    assert [(event.name, event.outcome, event.call_id) for event in events] == [
        ("memory_set", "ok", "c7"),
        ("memory_set", "invalid_input", ""),
        ("nonsense", "unknown_tool", ""),
    ]
    assert events[0].arguments == b'{"key":"a","value":"c"}'
    assert events[0].result == b'{"status":"ok","key":"a","value":"c"}'
    assert chat.session.calls() == {"memory_set": 2, "nonsense": 1}
    with pytest.raises(InvalidInput, match="needs a conversation"):
        memory.tools.execute("memory_set", {}, record=True)


# Exports.


def test_each_provider_gets_its_own_form(memory: Memory) -> None:
    tools = memory.tools
    for name in tools.names()[1:]:
        tools.unregister(name)
    (written,) = tools.definitions()
    function = {"name": "memory_write", "description": written.description, "parameters": written.parameters}
    assert tools.to_gemini() == [
        {
            "functionDeclarations": [
                {key: function[key] for key in ("name", "description")}
                | {"parametersJsonSchema": function["parameters"]}
            ]
        }
    ]
    assert tools.to_openai() == tools.to_ollama() == [{"type": "function", "function": function}]
    assert tools.to_openai_responses() == [{"type": "function", **function}]
    described = {"name": "memory_write", "description": written.description, "input_schema": written.parameters}
    assert tools.to_anthropic() == [described]
    assert tools.to_anthropic(cache=True) == [described | {"cache_control": {"type": "ephemeral"}}]
    (listed,) = tools.to_mcp()
    assert listed["inputSchema"] == written.parameters
    assert listed["annotations"] == {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": False,
    }


def test_exports_are_the_same_bytes_in_every_memory(memory: Memory) -> None:
    with Memory() as other:
        for form in ("to_openai", "to_openai_responses", "to_anthropic", "to_gemini", "to_ollama", "to_mcp"):
            first, second = (msgspec.json.encode(getattr(one.tools, form)()) for one in (memory, other))
            assert first == second


def test_a_session_says_what_it_holds(memory: Memory) -> None:
    session = memory.conversation("chat-42").session
    session.note_finding("The tests need a clock.")
    session.record_call("read_file", {}, "ok")
    session.record_call("read_file", {}, "ok")
    assert repr(session) == "SessionMemory('chat-42', files=0, findings=1, calls=2)"
