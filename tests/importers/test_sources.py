"""Sessions of SWE-agent, BEAM and LoCoMo: every field is found again, in made-up files and in the real ones."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from refold import InvalidInput, LimitExceeded, Memory, Message
from refold.importers import format_of, formats, import_file, transcript
from refold.importers.formats import parse_beam_ns, parse_locomo_ns
from tests.importers.documents import differences, rebuilt
from tests.support.memories import assert_sound
from tests.support.paths import DATA, SOURCES

MADE_UP = SOURCES
REAL = DATA
FORMATS = {".traj": "swe-agent", ".jsonl": "beam", ".json": "locomo"}
REAL_FILES = ("swe-agent/*.traj", "beam/*.jsonl", "locomo/locomo7_dev.json")
SLOW_BYTES = 1024 * 1024
MADE_UP_FILES = [path for path in sorted(MADE_UP.iterdir()) if path.suffix in FORMATS]
FILES = [
    *(pytest.param(path, id=path.name) for path in MADE_UP_FILES),
    *(
        pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.stat().st_size > SLOW_BYTES else [])
        for pattern in REAL_FILES
        for path in sorted(REAL.glob(pattern))
    ),
]
if not REAL.is_dir():
    absent = pytest.mark.skip(reason="the data sets are not on this machine")
    FILES += [pytest.param(REAL / pattern, marks=absent, id=pattern) for pattern in REAL_FILES]
DAY_NS = 24 * 60 * 60 * 10**9


def expected(path: Path) -> list[Any]:
    """The documents of a file, read by another parser than ours."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    document = json.loads(text)
    return document if isinstance(document, list) else [document]


@pytest.mark.parametrize("path", FILES)
def test_every_field_of_every_file_is_found_again(memory: Memory, path: Path) -> None:
    assert format_of(path) == FORMATS[path.suffix]
    documents = expected(path)
    imported = import_file(memory, path)
    assert (imported.format, imported.conversations) == (FORMATS[path.suffix], len(documents))
    assert list(differences(documents, rebuilt(memory, imported.format, path.stem, documents))) == []
    head = memory.head
    assert import_file(memory, path).repeated
    assert memory.head == head


@pytest.mark.parametrize("path", MADE_UP_FILES, ids=lambda path: path.name)
def test_a_replay_of_what_was_imported_is_the_same_state(memory: Memory, path: Path) -> None:
    import_file(memory, path)
    assert_sound(memory)


def messages_of(memory: Memory, name: str, own_id: str) -> list[Message]:
    """The messages of a conversation of a made-up file, imported now."""
    path = MADE_UP / name
    imported = import_file(memory, path)
    return list(transcript(memory, f"{imported.format}/{path.stem}/{own_id}"))


def seconds_of(message: Message) -> datetime:
    """When a message happened."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=message.occurred_ns // 1_000)


def test_a_step_is_with_the_message_it_made(memory: Memory) -> None:
    messages = messages_of(memory, "calls.traj", "1")
    assert [message.role for message in messages] == [
        *("system", "user", "assistant", "tool", "assistant", "tool"),
        # The last step's message is missing in the history, so it is said again, with what was seen.
        *("assistant", "user"),
    ]
    assert [(message.metadata or {}).get("step", {}).get("action") for message in messages] == [
        *(None, None, "ls", None, "cat notes.txt; wc notes.txt", None, "submit", None),
    ]
    assert [message.content for message in messages[-2:]] == [
        "That is all there is to do.",
        "diff --git a/notes.txt b/notes.txt\n",
    ]
    assert messages[3].tool_call_id == "call-1"
    assert messages[5].tool_call_id is None
    assert messages[4].tool_calls is not None
    assert [call["id"] for call in messages[4].tool_calls] == ["call-2", "call-3"]
    source = (messages[0].metadata or {})["source"]
    assert source["info"]["model_stats"]["tokens_sent"] == 812
    assert source.keys() == {"environment", "info", "replay_config"}


def test_a_response_that_is_repeated_is_matched_in_order(memory: Memory) -> None:
    messages = messages_of(memory, "thoughts.traj", "1")
    steps = [(message.metadata or {}).get("step", {}).get("thought") for message in messages]
    assert steps == [None, None, "Look.\n", None, "A slip.\n", None, "Look.\n", None, "Read it."]
    assert [(message.metadata or {}).get("in_history") for message in messages[4:6]] == [False, False]


def test_steps_alone_are_a_conversation(memory: Memory) -> None:
    messages = messages_of(memory, "steps.traj", "1")
    assert [(message.role, message.content) for message in messages] == [
        ("assistant", "I look around."),
        ("user", "b.py"),
        ("assistant", "submit"),
    ]


def test_an_anchor_holds_until_the_next(memory: Memory) -> None:
    messages = messages_of(memory, "beam.jsonl", "made-up-1")
    leap_day = datetime(2024, 2, 29, tzinfo=UTC)
    assert [message.occurred_ns == message.time_ns for message in messages] == [True, True, *[False] * 4]
    assert [seconds_of(message) for message in messages[2:]] == [*[leap_day] * 3, leap_day + timedelta(days=1)]
    source = (messages[0].metadata or {})["source"]
    assert [question["type"] for question in source["questions"]] == ["temporal_reasoning", "abstention"]
    assert [(message.metadata or {})["id"] for message in messages] == list(range(6))
    assert messages[4].name == "Ada"


def test_a_talk_of_two_people_is_a_conversation_in_a_project(memory: Memory) -> None:
    messages = messages_of(memory, "locomo.json", "talk-1")
    assert memory.conversation("locomo/locomo/talk-1").project == "talk-1"
    assert [(message.role, message.name, message.content) for message in messages] == [
        ("user", "Ada", "I planted beans. [shares image: a row of small green plants]"),
        ("assistant", "Bob", "They look well."),
        ("user", "Cleo", "May I see?"),
        ("assistant", "Bob", "Happy new year!"),
        ("user", "Ada", " [shares image: an empty plate]"),
    ]
    assert [(message.metadata or {})["dia_id"] for message in messages] == ["D1:1", "D1:2", "D1:3", "D2:1", "D10:1"]
    assert [(message.metadata or {})["session"] for message in messages] == [1, 1, 1, 2, 10]
    old, new = datetime(2023, 12, 31, 12, 30, tzinfo=UTC), datetime(2024, 1, 1, 0, 5, tzinfo=UTC)
    assert [seconds_of(message) for message in messages[:4]] == [old, old, old, new]
    assert messages[4].occurred_ns == messages[4].time_ns


@pytest.mark.parametrize("path", [MADE_UP / "calls.traj", MADE_UP / "locomo.json"], ids=lambda path: path.name)
def test_a_document_that_is_cut_off_brings_nothing_in(memory: Memory, tmp_path: Path, path: Path) -> None:
    text = path.read_bytes().rstrip()
    file = tmp_path / path.name
    for size in range(0, len(text), 37):
        file.write_bytes(text[:size])
        with pytest.raises(InvalidInput, match="the file is"):
            import_file(memory, file, format=FORMATS[path.suffix])
    assert memory.head == 0


def test_a_line_that_is_cut_off_brings_nothing_of_its_conversation(memory: Memory, tmp_path: Path) -> None:
    first, second = (MADE_UP / "beam.jsonl").read_bytes().splitlines(keepends=True)
    file = tmp_path / "beam.jsonl"
    for size in range(1, len(second) - 1, 13):
        file.write_bytes(first + second[:size])
        with pytest.raises(InvalidInput, match="line 2 is no conversation in JSON"):
            import_file(memory, file)
    assert memory.conversations() == ["beam/beam/made-up-1"]
    file.write_bytes(first + second)
    imported = import_file(memory, file)
    assert (imported.messages, imported.known) == (1, 6)


TURN = {"speaker": "Ada", "dia_id": "D1:1", "text": "x"}
MALFORMED: list[tuple[str, Any, str]] = [
    ("swe-agent", 3, "the file has neither a history nor a trajectory"),
    ("swe-agent", {}, "the file has neither a history nor a trajectory"),
    ("swe-agent", {"history": [], "trajectory": None}, "the file has neither a history nor a trajectory"),
    ("swe-agent", {"history": {"role": "user"}}, "history is no list"),
    ("swe-agent", {"history": ["x"]}, "history 1 is no message with a role"),
    ("swe-agent", {"history": [{"role": "user", "content": "x"}, {"content": "x"}]}, "history 2 is no message"),
    ("swe-agent", {"trajectory": [{"action": "ls"}, "x"]}, "trajectory 2 is no step"),
    ("swe-agent", {"history": [{"role": "demo", "content": "x"}]}, "the run, message 1: role is 'demo'"),
    ("swe-agent", {"history": [{"role": "user", "content": 3}]}, "the run, message 1: content must be"),
    ("swe-agent", {"history": [{"role": ["user"], "content": "x"}]}, "the run, message 1: role is"),
    ("beam", [], "line 1 is no conversation of BEAM"),
    ("beam", {"id": "x"}, "line 1 is no conversation of BEAM"),
    ("beam", {"id": "x", "messages": []}, "line 1 is no conversation of BEAM"),
    ("beam", {"messages": [{"role": "user"}]}, "line 1 has no id"),
    ("beam", {"id": 3, "messages": [{"role": "user"}]}, "line 1 has no id"),
    ("beam", {"id": "x", "messages": [{"role": "user", "content": "x"}, 3]}, "line 1, message 2 has no role"),
    ("beam", {"id": "x", "messages": [{"role": "me", "content": "x"}]}, "line 1, message 1: role is 'me'"),
    ("locomo", "x", "sample 1 has no sample_id"),
    ("locomo", [{"sample_id": 3}], "sample 1 has no sample_id"),
    ("locomo", [{"sample_id": "s"}], "sample 1 has no conversation"),
    ("locomo", [{"sample_id": "s", "conversation": []}], "sample 1 has no conversation"),
    ("locomo", [{"sample_id": "s", "conversation": {"session_1": []}}], "sample 1 has no turns"),
    ("locomo", [{"sample_id": "s", "conversation": {"session_1": {}}}], "sample 1, session 1 is no list of turns"),
    ("locomo", [{"sample_id": "s", "conversation": {"session_1": [3]}}], "sample 1, session 1, turn 1 has no speaker"),
    (
        "locomo",
        [
            {"sample_id": "s", "conversation": {"session_1": [TURN]}},
            {"sample_id": "t", "conversation": {"session_1": [TURN, {**TURN, "text": None}]}},
        ],
        "sample 2, session 1, turn 2 has no text that is a text",
    ),
    ("locomo", [{"sample_id": "", "conversation": {"session_1": [TURN]}}], "sample 1: project is empty"),
]


@pytest.mark.parametrize(("name", "document", "problem"), MALFORMED)
def test_what_is_malformed_is_named_and_brings_nothing_in(
    memory: Memory, tmp_path: Path, name: str, document: Any, problem: str
) -> None:
    file = tmp_path / "file"
    file.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(InvalidInput) as caught:
        import_file(memory, file, format=name)
    assert str(caught.value).startswith(f"{file}: {problem}")
    assert memory.head == 0


def test_two_samples_of_one_id_are_named(memory: Memory, tmp_path: Path) -> None:
    sample = {"sample_id": "s", "conversation": {"session_1": [TURN]}}
    file = tmp_path / "twice.json"
    file.write_text(json.dumps([sample, sample]), encoding="utf-8")
    with pytest.raises(InvalidInput, match="sample 2 has the id 's' of sample 1"):
        import_file(memory, file)


@pytest.mark.parametrize("name", ["calls.traj", "beam.jsonl", "locomo.json"])
def test_a_file_too_large_for_ram_is_refused_before_it_is_read(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(formats, "DOCUMENT_BYTES_MAX", 64)
    with pytest.raises(LimitExceeded, match="line 1 begins a document over DOCUMENT_BYTES_MAX = 64 bytes"):
        import_file(memory, MADE_UP / name)
    assert memory.head == 0


# BEAM's lines are chats of OpenAI's as well, so that reading them as such is no mistake.
WRONG = [
    (path.name, name)
    for path in MADE_UP_FILES
    for name in ("swe-agent", "locomo", "beam", "openai", "refold")
    if name != FORMATS[path.suffix] and (path.suffix, name) != (".jsonl", "openai")
]


@pytest.mark.parametrize(("name", "wrong"), WRONG)
def test_a_wrong_format_brings_nothing_in(memory: Memory, name: str, wrong: str) -> None:
    with pytest.raises(InvalidInput):
        import_file(memory, MADE_UP / name, format=wrong)
    assert memory.head == 0


UNKNOWN = [
    '[{"sample_id": "s", "qa": []}]',
    '[{"haystack_sessions": [[{"role": "user", "content": "x"}]]}]',
    '{"history": "one role", "trajectory": 3}',
    '{"messages": [{"batch": 1}]}',
    '["\\"role\\"", {"x": "\\\\"}]',
    '{"conversation": {"session_1": [{"speaker": "Ada"}]}}',
    "\x00\x01{",
]


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_only_resembles_a_format_is_of_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match="of no known format"):
        format_of(file)


@pytest.mark.parametrize("path", MADE_UP_FILES, ids=lambda path: path.name)
def test_the_beginning_of_a_file_is_enough_to_tell_its_format(tmp_path: Path, path: Path) -> None:
    text = path.read_bytes()
    found = {format_of_bytes(tmp_path, text[:size]) for size in range(0, len(text), 53)}
    assert found == {None, FORMATS[path.suffix]} | ({"openai"} & found if path.suffix == ".jsonl" else set())


def format_of_bytes(directory: Path, text: bytes) -> str | None:
    file = directory / "beginning"
    file.write_bytes(text)
    try:
        return format_of(file)
    except InvalidInput:
        return None


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ('{"a": {"b": [1, {"c": 2}]}, "d": 3}', ["a", "a.b", "a.b.[].c", "d"]),
        ('[{"a": "x"}, {"b": ["y", ["z"]]}]', ["[].a", "[].b"]),
        ('{"a": "b: {", "c" : "\\"d\\": 1"}', ["a", "c"]),
        ('{"a": "cut off \\', ["a"]),
        ('{"a": {"b', ["a"]),
        ('{"a": 1}\n{"b": 2}', ["a", "b"]),
        ("]}]}", []),
        ("", []),
    ],
)
def test_the_paths_of_a_beginning(text: str, paths: list[str]) -> None:
    assert [".".join(path) for path in formats.paths(text.encode())] == paths


@pytest.mark.parametrize("filler", ["[", '{"a":', '"', "\\", '"\\', "[{]}", '":'])
def test_no_beginning_takes_long_to_look_at(filler: str) -> None:
    head = (filler * (2**18 // len(filler) + 1)).encode()
    assert len(list(formats.paths(head))) <= len(head)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1:56 pm on 8 May, 2023", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("12:00 am on 1 January, 2024", datetime(2024, 1, 1, tzinfo=UTC)),
        ("12:59 PM on 29 February, 2024", datetime(2024, 2, 29, 12, 59, tzinfo=UTC)),
        (" 9:05 am on 3 Sep 2022 ", datetime(2022, 9, 3, 9, 5, tzinfo=UTC)),
        *((text, None) for text in ("13:00 pm on 8 May, 2023", "0:10 am on 8 May, 2023", "1:60 pm on 8 May, 2023")),
        *((text, None) for text in ("1:00 pm on 29 February, 2023", "1:00 pm on 8 Brumaire, 2023", "", 3, None)),
    ],
)
def test_a_spoken_date(text: object, moment: datetime | None) -> None:
    assert parse_locomo_ns(text) == (None if moment is None else int(moment.timestamp()) * 10**9)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        *(("January-02-1970", 1), ("December-31-1969", -1), ("March-1-1970", 59), ("Foo-01-1970", None)),
        *((text, None) for text in ("February-30-2024", "2024-03-15", "March-15-2024 or so", None)),
    ],
)
def test_an_anchor_is_a_day(text: object, days: int | None) -> None:
    assert parse_beam_ns(text) == (None if days is None else days * DAY_NS)
