"""Sessions of Claude Code and traces of OpenTelemetry: each message once, in its conversation, with its tool calls."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold import InvalidInput, LimitExceeded, Memory
from refold.importers import format_of, import_file
from refold.importers import traces as source
from refold.importers.formats import parse_date_ns
from tests.support.paths import json_lines

SESSION = "0a1b-22"


def line(role: str, content: Any, number: int, **fields: Any) -> dict[str, Any]:
    """A line of a session."""
    about = {"sessionId": SESSION, "uuid": f"u{number}", "cwd": "/home/me/app", "isSidechain": False}
    message = {"role": role, "content": content} | ({"model": "m", "id": "msg"} if role == "assistant" else {})
    when = {"timestamp": f"2026-11-20T10:00:{number:02}.000Z"}
    return about | {"type": role, "message": message} | when | fields


CODE = [
    {"type": "summary", "summary": "Tests fixed", "leafUuid": "u9"},
    line("user", "Fix the tests.", 1),
    line("assistant", [{"type": "text", "text": "I look."}], 2),
    line("assistant", [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a.py"}}], 3),
    line(
        "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "def a(): ..."}], 4, toolUseResult={"lines": 1}
    ),
    line("user", "Search for a().", 5, isSidechain=True, agentId="ag"),
    {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
    line("assistant", [{"type": "text", "text": "Done."}], 6),
    {"type": "system", "content": "compacted"},
]


def test_a_session_of_claude_code_is_a_conversation_and_a_sidechain_another(memory: Memory, tmp_path: Path) -> None:
    file = json_lines(tmp_path / "session.jsonl", *CODE)
    assert format_of(file) == "claude-code"
    imported = import_file(memory, file)
    assert (imported.conversations, imported.messages) == (2, 6)
    name = f"claude-code/session/{SESSION}"
    assert memory.conversations() == [name, f"{name}/ag"]
    chat = memory.conversation(name)
    assert chat.project == "/home/me/app"
    first, *_, call, answer, last = chat.window()
    assert (first.role, first.content) == ("user", "Fix the tests.")
    assert first.occurred_ns == parse_date_ns("2026-11-20T10:00:01Z")
    assert first.metadata is not None
    assert first.metadata["before"] == [CODE[0]]
    assert first.metadata["uuid"] == "u1"
    assert call.content == [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a.py"}}]
    assert answer.metadata is not None
    assert answer.metadata["toolUseResult"] == {"lines": 1}
    assert chat.remove(call)
    assert answer not in chat.window(), "a call and its answer are one group"
    assert last.metadata is not None
    assert last.metadata["api"] == {"model": "m", "id": "msg"}
    assert last.metadata["before"] == [CODE[6]]
    assert import_file(memory, file).repeated
    grown = import_file(memory, json_lines(file, *CODE, line("user", "Thanks.", 7)))
    assert (grown.messages, grown.known) == (1, 6)
    (thanks,) = chat.window(last=1)
    assert thanks.metadata is not None
    assert thanks.metadata["before"] == [CODE[8]]


def test_a_session_that_is_being_written_is_imported_up_to_its_last_whole_line(memory: Memory, tmp_path: Path) -> None:
    file = json_lines(tmp_path / "session.jsonl", *CODE)
    whole = file.read_bytes()
    last = whole.rstrip().rfind(b"\n") + 1
    for end in range(last + 1, len(whole) - 1, 7):
        file.write_bytes(whole[:end])
        import_file(memory, file)
    file.write_bytes(whole[: last - 40] + b"\n" + whole[last:])
    with pytest.raises(InvalidInput, match="line 8 is no line of a session in JSON"):
        import_file(memory, file)
    file.write_bytes(whole)
    assert import_file(memory, file).known == 6


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([{"type": "summary", "summary": "x"}], "has no message"),
        (
            [line("user", "x", 1), {"message": {"role": "user", "content": "y"}}],
            "line 2 has a message and no sessionId",
        ),
    ],
)
def test_what_is_no_session_is_refused(memory: Memory, tmp_path: Path, lines: list[Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        import_file(memory, json_lines(tmp_path / "session.jsonl", *lines), format="claude-code")
    assert memory.head == 0


def test_a_session_over_the_bound_is_refused(memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "DOCUMENT_BYTES_MAX", 300)
    with pytest.raises(LimitExceeded, match="line 3 ends more than DOCUMENT_BYTES_MAX = 300 bytes"):
        import_file(memory, json_lines(tmp_path / "session.jsonl", *CODE))


# OpenTelemetry.


def attributes(**values: Any) -> list[dict[str, Any]]:
    """Attributes as a collector writes them; two underscores are a dot."""
    return [{"key": key.replace("__", "."), "value": _any(value)} for key, value in values.items()]


def _any(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"arrayValue": {"values": [_any(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": key, "value": _any(inner)} for key, inner in value.items()]}}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def document(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "s"}, "spans": list(spans)}]}]}


def span(number: int, events: Any = (), **values: Any) -> dict[str, Any]:
    times = {"startTimeUnixNano": str(number * 10**18), "endTimeUnixNano": str(number * 10**18 + 5)}
    ids = {"traceId": "trace", "spanId": f"span{number}"}
    return ids | {"name": "chat m", **times, "attributes": attributes(**values), "events": list(events)}


ASK = {"role": "user", "parts": [{"type": "text", "content": "Weather in Oslo?"}]}
CALL = {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Oslo"}}
CALLING = {"role": "assistant", "parts": [CALL], "finish_reason": "tool_calls"}
TOLD = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"sky": "blue"}}]}
SAID = {"role": "assistant", "parts": [{"type": "text", "content": "Blue."}], "finish_reason": "stop"}


def calls(form: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two calls of a model, the second of which repeats what was said in the first."""
    shared = {"gen_ai__conversation__id": "talk", "gen_ai__request__model": "m"}
    system = form([{"type": "text", "content": "Be brief."}])
    first = {"gen_ai__input__messages": form([ASK]), "gen_ai__output__messages": form([CALLING])}
    calling = {"role": "assistant", "parts": [CALL]}
    second = {"gen_ai__input__messages": form([ASK, calling, TOLD]), "gen_ai__output__messages": form([SAID])}
    return (
        span(1, gen_ai__system_instructions=system, **shared, **first),
        span(2, gen_ai__system_instructions=system, **shared, **second),
    )


@pytest.mark.parametrize("form", [json.dumps, lambda value: value], ids=["text", "structure"])
def test_a_conversation_of_spans_has_each_message_once(memory: Memory, tmp_path: Path, form: Any) -> None:
    first, second = calls(form)
    file = json_lines(tmp_path / "trace.jsonl", document(second), document(first))
    assert format_of(file) == "otel"
    assert import_file(memory, file).messages == 5
    chat = memory.conversation("otel/trace/talk")
    system, ask, calling, told, said = chat.window()
    assert [message.role for message in chat.window()] == ["system", "user", "assistant", "tool", "assistant"]
    assert (system.content, ask.content, said.content) == ("Be brief.", "Weather in Oslo?", "Blue.")
    assert calling.tool_calls == [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}
    ]
    assert (told.tool_call_id, told.content) == ("c1", '{"sky":"blue"}')
    assert (ask.occurred_ns, said.occurred_ns) == (10**18, 2 * 10**18 + 5)
    assert said.metadata == {"finish_reason": "stop", "span_id": "span2", "trace_id": "trace", "model": "m"}
    assert import_file(memory, file).repeated


def test_numbered_attributes_and_events_are_read_too(memory: Memory, tmp_path: Path) -> None:
    numbered = {
        "gen_ai__prompt__0__role": "user",
        "gen_ai__prompt__0__content": "Hello!",
        "gen_ai__completion__0__role": "assistant",
        "gen_ai__completion__0__tool_calls__0__id": "c1",
        "gen_ai__completion__0__tool_calls__0__name": "look",
        "gen_ai__completion__0__tool_calls__0__arguments": "{}",
    }
    events = [
        {"name": "gen_ai.user.message", "attributes": attributes(content="And then?")},
        {"name": "gen_ai.tool.message", "attributes": attributes(content="nothing", id="c1")},
        {
            "name": "gen_ai.choice",
            "attributes": attributes(message={"role": "assistant", "content": "No more."}, index=0),
        },
        {"name": "exception", "attributes": attributes(message="other")},
    ]
    file = json_lines(tmp_path / "trace.json", document(span(1, **numbered), span(2, events)))
    import_file(memory, file)
    chat = memory.conversation("otel/trace/trace")
    assert [(message.role, message.content) for message in chat.window()] == [
        ("user", "Hello!"),
        ("assistant", None),
        ("user", "And then?"),
        ("tool", "nothing"),
        ("assistant", "No more."),
    ]
    assert chat.window()[1].tool_calls == [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    ]


def test_spans_as_an_sdk_prints_them_are_read(memory: Memory, tmp_path: Path) -> None:
    printed = {
        "name": "chat",
        "context": {"trace_id": "0xabc", "span_id": "0x1"},
        "start_time": "2026-11-20T10:00:01Z",
        "end_time": "2026-11-20T10:00:02Z",
        "attributes": {"gen_ai.input.messages": json.dumps([{"role": "user", "content": "Hi"}])},
        "events": [],
    }
    file = json_lines(tmp_path / "trace.jsonl", printed)
    assert format_of(file) == "otel"
    import_file(memory, file)
    (message,) = memory.conversation("otel/trace/0xabc").window()
    assert (message.content, message.occurred_ns) == ("Hi", parse_date_ns("2026-11-20T10:00:01Z"))


def test_spans_without_messages_are_refused_with_what_to_record(memory: Memory, tmp_path: Path) -> None:
    file = json_lines(tmp_path / "trace.json", document(span(1, gen_ai__request__model="m")))
    with pytest.raises(InvalidInput, match="no span of the file has messages of a model; let the tracer record them"):
        import_file(memory, file)
    assert memory.head == 0


def text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def talk(number: int, system: str | None, given: list[dict[str, Any]], answer: str) -> dict[str, Any]:
    """A call of one conversation: its system prompt, its input, and what the model says."""
    lists = {"gen_ai__input__messages": json.dumps(given)}
    lists["gen_ai__output__messages"] = json.dumps([text("assistant", answer)])
    if system is not None:
        lists["gen_ai__system_instructions"] = json.dumps([{"type": "text", "content": system}])
    return span(number, gen_ai__conversation__id="talk", **lists)


def imported(memory: Memory, tmp_path: Path, *spans: dict[str, Any]) -> list[str]:
    import_file(memory, json_lines(tmp_path / "trace.jsonl", document(*spans)))
    return [str(message.content) for message in memory.conversation("otel/trace/talk").history()]


@pytest.mark.parametrize("changing", ["system", "user"], ids=["prompt", "first message"])
def test_what_changes_in_front_of_a_history_does_not_bring_it_again(
    memory: Memory, tmp_path: Path, changing: str
) -> None:
    history: list[dict[str, Any]] = []
    spans: list[dict[str, Any]] = []
    for number in range(6):
        history.append(text("user", f"question {number}"))
        clock = f"It is 10:0{number // 2}."  # Two calls a minute.
        system, first = (clock, []) if changing == "system" else (None, [text("user", clock)])
        spans.append(talk(number + 1, system, first + history, f"answer {number}"))
        history.append(text("assistant", f"answer {number}"))
    contents = imported(memory, tmp_path, *spans)
    said = [content for content in contents if not content.startswith("It is")]
    assert said == [f"{what} {number}" for number in range(6) for what in ("question", "answer")]
    assert contents.count("It is 10:02.") == (1 if changing == "system" else 2)


def test_a_call_whose_history_was_cut_brings_only_what_is_new(memory: Memory, tmp_path: Path) -> None:
    turns = [text("user", "one"), text("assistant", "two"), text("user", "three"), text("assistant", "four")]
    spans = [
        talk(1, None, turns[:1], "two"),
        talk(2, None, turns[:3], "four"),
        talk(3, None, [text("user", "Summary: one to three."), turns[3], text("user", "five")], "six"),
    ]
    assert imported(memory, tmp_path, *spans) == [
        "one",
        "two",
        "three",
        "four",
        "Summary: one to three.",
        "five",
        "six",
    ]


def test_an_answer_is_new_where_its_question_is(memory: Memory, tmp_path: Path) -> None:
    spans = [talk(1, None, [text("user", "go")], "Done."), talk(2, None, [text("user", "go on")], "Done.")]
    assert imported(memory, tmp_path, *spans) == ["go", "Done.", "go on", "Done."]
    repeated = [talk(3, None, [text("user", "go on")], "Done.")]  # A span around the call has the same messages.
    assert imported(Memory(), tmp_path, *spans, *repeated) == ["go", "Done.", "go on", "Done."]


WORDS = st.sampled_from(["yes", "Done.", "no"])  # Few, so that users and models say the same again and again.


@given(
    rounds=st.lists(st.tuples(st.lists(WORDS, min_size=1, max_size=2), WORDS, st.integers(1, 2)), max_size=7),
    clocks=st.none() | st.lists(st.integers(0, 3), min_size=7, max_size=7),
)
@settings(max_examples=100, deadline=None)
def test_calls_that_repeat_all_before_them_bring_each_message_once(
    rounds: list[tuple[list[str], str, int]], clocks: list[int] | None
) -> None:
    history, spans = list[dict[str, Any]](), list[dict[str, Any]]()
    for place, (asked, answer, times) in enumerate(rounds):
        history += [text("user", word) for word in asked]
        front = [] if clocks is None else [text("user", f"It is 10:0{clocks[place]}.")]
        # A call in another one, such as of a chain, has the same messages.
        spans += [talk(1, None, front + history, answer) for _ in range(times)]
        history.append(text("assistant", answer))
    with TemporaryDirectory() as folder, Memory() as memory:
        if spans:
            import_file(memory, json_lines(Path(folder) / "trace.jsonl", document(*spans)))
        messages = memory.conversation("otel/trace/talk").history()
    said = [(message.role, message.content) for message in messages if "It is" not in str(message.content)]
    assert said == [(each["role"], each["parts"][0]["content"]) for each in history]


def test_a_question_of_the_user_that_comes_again_after_a_cut_history_is_new(memory: Memory, tmp_path: Path) -> None:
    spans = [
        talk(1, None, [text("user", "go")], "Done."),
        talk(2, None, [text("user", "go"), text("assistant", "Done."), text("user", "list")], "One."),
        talk(3, None, [text("assistant", "One."), text("user", "list")], "One."),
    ]
    assert imported(memory, tmp_path, *spans) == ["go", "Done.", "list", "One.", "list", "One."]
