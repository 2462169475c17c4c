"""The command line: every verb, its JSON, its exit codes, and how it ends."""

import io
import json
import re
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import click
import pytest

from refold import Memory, StoreCorrupt
from refold.cli import root, sessions
from refold.importers import FORMATS, MEMORY_FORMATS
from refold.log.disk import build_directory
from refold.results import Finding, Report
from tests.support.command import COMMAND, Ended, Run, running, terminal_output
from tests.support.memories import assert_sound
from tests.support.paths import SAMPLE

CHAT = "openai/airline/1"


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process."""
    return running(monkeypatch, capfd)


@pytest.fixture
def store(tmp_path: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with the samples in small windows; REFOLD_DB names it."""
    path = tmp_path / "store"
    monkeypatch.setenv("REFOLD_DB", str(path))
    assert refold("import", SAMPLE, "--window-tokens", 600).code == 0
    return path


VERBS = [
    ("import", SAMPLE),
    ("export",),
    ("list",),
    ("show", CHAT),
    ("log",),
    ("replay", CHAT),
    ("diff", 3, 5),
    ("snapshot", CHAT, "now"),
    ("fork", CHAT, "other"),
    ("stats",),
    ("erase", CHAT, "--yes"),
    ("verify",),
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: str(verb[0]))
def test_every_verb_speaks_json_on_stdout(store: Path, refold: Run, verb: tuple[object, ...]) -> None:
    ended = refold(*verb, "--json")
    assert ended.code == 0
    assert ended.json_lines
    assert ended.err == "" or verb[0] == "export"
    if verb[0] not in {"export", "log", "replay"}:
        assert isinstance(ended.json, dict)
    assert store.is_dir()


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: str(verb[0]))
def test_every_verb_needs_a_store_and_only_import_creates_one(
    tmp_path: Path, refold: Run, verb: tuple[object, ...]
) -> None:
    unnamed = refold(*verb)
    assert unnamed.code == 2
    assert "Missing option '--db' (env var: 'REFOLD_DB')" in unnamed.err
    missing = refold(*verb, "--db", tmp_path / "none")
    if verb[0] == "import":
        assert missing.code == 0
    else:
        assert (missing.code, missing.out) == (1, "")
        assert missing.err.startswith(f"refold: there is no store at {tmp_path / 'none'}; `refold import FILE")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "verb", ["demo", "doctor", *dict.fromkeys(str(verb[0]) for verb in VERBS), "restore", "backup", "recover"]
)
def test_every_verb_has_help_and_refuses_unknown_options(refold: Run, verb: str) -> None:
    shown = refold(verb, "--help")
    assert shown.code == 0
    assert "--json" in shown.out
    assert f"refold {verb}" in shown.out
    assert refold(verb, "--nonsense").code == 2


import_module("refold.cli.commands")  # Every module adds its own.
GROUPS = {name: verb for name, verb in root.cli.commands.items() if isinstance(verb, click.Group)}


@pytest.mark.parametrize("group", [(), *((name,) for name in GROUPS)])
def test_no_line_of_a_list_of_commands_is_cut_short(
    refold: Run, group: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = refold(*group, "--help").out.partition("\nCommands:\n")[2].splitlines()
    assert listed
    assert [line for line in listed if line.endswith("...")] == []


@pytest.mark.parametrize("group", [root.cli, *GROUPS.values()], ids=lambda group: group.name)
def test_every_option_has_help(group: click.Group) -> None:
    options = [
        (name, option)
        for name, verb in group.commands.items()
        for option in verb.params
        if isinstance(option, click.Option)
    ]
    assert options
    assert [(name, option.name) for name, option in options if not option.help] == []


def test_a_backup_is_made_and_recovered(store: Path, refold: Run, tmp_path: Path) -> None:
    made = refold("backup", tmp_path / "backup", "--db", store, "--json").json
    assert (made["path"], made["head"]) == (str(tmp_path / "backup"), 57)
    assert made["state_hash"] == refold("verify", "--db", tmp_path / "backup", "--json").json["state_hash"]
    told = refold("backup", tmp_path / "told").out
    assert told.startswith(f"{tmp_path / 'told'}  57 events in 3 streams, ")
    assert f"state hash {made['state_hash']}\n" in told
    whole = refold("recover", tmp_path / "backup", tmp_path / "whole", "--json").json
    assert (whole["seq"], whole["head"], whole["state_hash"]) == (57, 57, made["state_hash"])
    shown = refold("recover", tmp_path / "backup", tmp_path / "later", "--to", "2999-01-01T00:00:00Z").out
    assert shown.startswith(f"{tmp_path / 'later'}  the log up to seq 57: 57 events in 3 streams\n")
    inside = refold("recover", tmp_path / "backup", tmp_path / "new", "--to", 5)
    assert (inside.code, inside.out) == (1, "")
    first, last = re.findall(r"recover to (\d+) or to (\d+)", inside.err)[0]
    assert int(first) < 5 < int(last)
    assert refold("recover", tmp_path / "backup", tmp_path / "new", "--to", last, "--json").json["head"] == int(last)
    assert refold("verify", "--db", tmp_path / "new").code == 0


def test_a_backup_that_cannot_be_says_why(store: Path, refold: Run, tmp_path: Path) -> None:
    inside = refold("backup", store / "backup")
    assert (inside.code, inside.out) == (1, "")
    assert "lies in the store at" in inside.err
    missing = refold("recover", tmp_path / "none", tmp_path / "new")
    assert missing.err.startswith(f"refold: there is no backup at {tmp_path / 'none'} to recover")
    assert refold("recover", store, tmp_path / "new", "--to", "soon").code == 2
    assert refold("recover", store, tmp_path / "new", "--to", "2026-01-01T00:00:00").code == 1
    (store / "backup.json").write_text("{", encoding="utf-8")
    assert refold("recover", store, tmp_path / "new").code == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [store.name]


def test_an_option_before_its_command_is_told_where_it_belongs(refold: Run) -> None:
    ended = refold("--db", "store", "list")
    assert ended.code == 2
    assert "Options go after the command, as in `refold list --db PATH`" in ended.err


def test_an_unknown_verb_is_wrong_usage(refold: Run) -> None:
    ended = refold("frobnicate")
    assert ended.code == 2
    assert "No such command 'frobnicate'" in ended.err


def test_import_says_what_it_did(store: Path, refold: Run, tmp_path: Path) -> None:
    again = refold("import", SAMPLE)
    assert again.out == f"{SAMPLE} (openai): already imported, nothing changed\n"
    grown = tmp_path / "airline.jsonl"
    grown.write_bytes(SAMPLE.read_bytes() + b'[{"role": "user", "content": "More?"}]\n')
    more = refold("import", grown, "--json").json["files"][0]
    assert (more["conversations"], more["messages"], more["known"], more["repeated"]) == (4, 1, 54, False)
    assert refold("stats", "--db", store, "--json").json["events"] == 59


def test_import_reports_a_bad_line_and_creates_no_store_for_unknown_content(refold: Run, tmp_path: Path) -> None:
    unknown = tmp_path / "notes.txt"
    unknown.write_text("hello\n")
    ended = refold("import", SAMPLE, unknown, "--db", tmp_path / "store")
    assert ended.code == 1
    assert "no known format; the formats are claude-code, otel, swe-agent, locomo, beam, openai, refold" in ended.err
    assert not (tmp_path / "store").exists()
    unknown.write_text('[{"role": "user", "content": "Hi"}]\n[{"role": "user"}, 3]\n')
    ended = refold("import", unknown, "--db", tmp_path / "store")
    assert ended.code == 1
    assert f"refold: {unknown}: line 2, message 2 has no role" in ended.err
    assert "Traceback" not in ended.err
    assert refold("import", tmp_path / "none", "--db", tmp_path / "store").code == 2
    assert refold("import", "--db", tmp_path / "store").code == 2
    assert refold("import", SAMPLE, "--format", "csv", "--db", tmp_path / "store").code == 2


def test_a_failed_import_leaves_nothing_or_says_what_it_took(refold: Run, tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text('[{"role": "robot", "content": "Hi"}]\n')
    ended = refold("import", file, "--db", tmp_path / "store")
    assert (ended.code, ended.out) == (1, "")
    assert f"{file}: nothing was imported" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == [file.name], "no store, and nothing half made"
    good = "".join(f'[{{"role": "user", "content": "Hi {number}"}}]\n' for number in range(3))
    file.write_text(good + "{broken\n")
    ended = refold("import", file, "--db", tmp_path / "store")
    assert (ended.code, "line 4 is no conversation in JSON" in ended.err) == (1, True)
    assert "everything before the error was imported: 6 events with 3 messages, in 3 streams" in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, "store"]
    file.write_text(good + '[{"role": "user", "content": "Hi 3"}]\n')
    assert (
        "4 conversations, 1 message, 2 events, 3 messages already known"
        in refold("import", file, "--db", tmp_path / "store").out
    )
    assert refold("verify", "--db", tmp_path / "store").code == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_import_that_is_cut_off_leaves_nothing_that_the_next_one_does_not_take_over(
    refold: Run, tmp_path: Path, number: int
) -> None:
    (file := tmp_path / "chats.jsonl").write_text('[{"role": "user", "content": "Hi"}]\n' * 100_000)
    command = [sys.executable, "-m", "refold", "import", str(file), "--db", str(tmp_path / "store")]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        while not any(path.name.startswith(".store.") for path in tmp_path.iterdir()):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        process.communicate()
    assert process.returncode
    assert refold("import", SAMPLE, "--db", tmp_path / "store").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, "store"]


def test_an_import_reads_stdin(refold: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def piped(text: str, *arguments: object) -> Ended:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return refold("import", "-", *arguments, "--db", tmp_path / "store", "--json")

    line = '[{"role": "user", "content": "Hi"}]\n'
    assert piped(line).json["files"][0]["messages"] == 1
    assert piped(line).json["files"][0]["repeated"] is True
    assert piped(line, "--name", "other").json["files"][0]["messages"] == 1
    names = [row["conversation"] for row in refold("list", "--db", tmp_path / "store", "--json").json["conversations"]]
    assert names == ["openai/other/1", "openai/stdin/1"]
    assert piped(line).json["files"][0]["file"] == "-"
    assert piped(line, "--name", "other").json["files"][0]["file"] == "other"
    assert piped(line, "--name", "a/b").code == 2
    another = piped('[{"role": "user", "content": "Ho"}]\n')
    assert another.code == 1
    assert "refold: -: line 1, message 1: openai/stdin/1 was imported before" in another.err
    assert "give the file another name (--name for stdin) to import both" in another.err
    assert "-: nothing was imported" in another.err
    assert "refold: what: line 1" in piped('[{"role": 5}]\n', "--name", "what").err
    assert refold("import", SAMPLE, "--name", "x", "--db", tmp_path / "store").code == 2


def test_the_formats_of_the_help_are_those_of_the_recorders() -> None:
    assert sessions._FORMATS == FORMATS
    assert sessions._MEMORY_FORMATS == MEMORY_FORMATS
    assert set(sessions._EXPORT_FORMATS) <= set(FORMATS)


def test_an_export_goes_to_stdout_or_to_a_file(store: Path, refold: Run, tmp_path: Path) -> None:
    piped = refold("export")
    assert piped.err == "57 events\n"
    named = refold("export", tmp_path / "log.jsonl", "--json")
    assert named.json == {"file": str(tmp_path / "log.jsonl"), "format": "refold", "events": 57}
    assert piped.out == (tmp_path / "log.jsonl").read_text(encoding="utf-8")
    assert refold("import", tmp_path / "log.jsonl", "--db", tmp_path / "other").code == 0
    hashes = [refold("verify", "--db", path, "--json").json["state_hash"] for path in (store, tmp_path / "other")]
    assert hashes[0] == hashes[1]


def test_messages_are_exported_in_the_form_of_openai(store: Path, refold: Run, tmp_path: Path) -> None:
    piped = refold("export", "--format", "openai")
    assert piped.err == "3 conversations\n"
    sources = [json.loads(line)["traj"] for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
    assert [line["messages"] for line in piped.json_lines] == sources
    named = refold("export", "--format", "openai", tmp_path / "chats.jsonl")
    assert named.out == f"{tmp_path / 'chats.jsonl'} (openai): 3 conversations\n"
    assert (tmp_path / "chats.jsonl").read_text(encoding="utf-8") == piped.out
    refused = refold("export", "--format", "openai", tmp_path / "none" / "chats.jsonl")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(f"refold: exporting to {tmp_path / 'none' / 'chats.jsonl'}: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chats.jsonl", store.name]


def test_an_export_for_a_provider_has_no_holes(tmp_path: Path, refold: Run) -> None:
    """What an erasure reached is left out, with the answers to calls; a call keeps an answer."""
    old = [{"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}]
    (tmp_path / "old.json").write_text(json.dumps({"id": "old", "messages": old}))
    assert refold("import", tmp_path / "old.json", "--db", tmp_path / "held").code == 0

    def call(name: str) -> list[dict[str, object]]:
        return [{"id": name, "type": "function", "function": {"name": "read", "arguments": "{}"}}]

    with Memory(tmp_path / "held") as memory:
        chat = memory.conversation("a")
        chat.append("user", "SECRET-1")
        chat.append("assistant", "It is SECRET-1.", tool_calls=call("gone"))
        chat.append("tool", "an answer to nothing", tool_call_id="gone")
        chat.append("assistant", None, tool_calls=call("kept"))
        chat.append("tool", "SECRET-1 again", tool_call_id="kept")
        chat.append("user", "Good.")
        memory.erase(text="SECRET-1")
    imported, said = refold("export", "--format", "openai", "--db", tmp_path / "held").json_lines
    assert imported["messages"] == old
    assert said["messages"] == [
        {"role": "assistant", "content": None, "tool_calls": call("kept")},
        {"role": "tool", "content": "Error: there is no result of this call", "tool_call_id": "kept"},
        {"role": "user", "content": "Good."},
    ]


def test_an_export_is_loaded_beside_a_stream_of_the_same_name(tmp_path: Path, refold: Run) -> None:
    for name, words in (("one", "Ada likes tea."), ("two", "Bob likes milk.")):
        with Memory(tmp_path / name) as memory:
            memory.project().add(words)
            memory.conversation("a='b").append("user", words)
    file, db = tmp_path / "one.jsonl", tmp_path / "two"
    assert refold("export", file, "--db", tmp_path / "one").code == 0
    load = ("import", file, "--db", db)
    refused = refold(*load)
    assert (refused.code, "with --rename project/default=project/default-loaded, or load" in refused.err) == (1, True)
    project, chat = "project/default=project/laptop", "conversation/a='b=conversation/a"
    refused = refold(*load, "--rename", project)
    assert (refused.code, "with --rename 'conversation/a='\"'\"'b=conversation/a='" in refused.err) == (1, True)
    assert refold(*load, "--rename", project, "--rename", chat).code == 0
    with Memory(db) as memory:
        assert [entry.content for entry in memory.project("laptop").list()] == ["Ada likes tea."]
        assert [entry.content for entry in memory.project().list()] == ["Bob likes milk."]
        assert memory.conversation("a").window()[0].content == "Ada likes tea."
        head = memory.head
    assert "already imported" in refold(*load, "--rename", project, "--rename", chat).out
    for wrong, said in (
        (("project/default",), "give OLD=NEW"),
        (("project/default=laptop",), "give OLD=NEW"),
        (("project/default=profile/laptop",), "give OLD=NEW"),
        (("project/default=project/",), "give OLD=NEW"),
        ((project, "project/default=project/x"), "each OLD once"),
        (("project/none=project/x",), "--rename has 'project/none', which the export has not"),
        (("planet/earth=planet/mars",), "--rename maps 'planet/earth'"),
        ((project, "conversation/a='b=conversation/a='b"), "are in this store already"),
    ):
        ended = refold(*load, *(part for each in wrong for part in ("--rename", each)))
        assert (ended.code != 0, said in ended.err) == (True, True), (wrong, ended)
    (tmp_path / "chats.jsonl").write_text('{"messages":[{"role":"user","content":"Hi"}]}')
    ended = refold("import", tmp_path / "chats.jsonl", "--db", db, "--rename", project)
    assert (ended.code, "--rename is for exports of refold" in ended.err) == (1, True)
    assert "give its file alone" in refold(*load, tmp_path / "chats.jsonl", "--rename", project).err
    with Memory(db) as memory:
        assert memory.head == head


def test_an_export_names_content_that_has_no_form_there(tmp_path: Path, refold: Run) -> None:
    with Memory(tmp_path / "held") as memory:
        memory.conversation("a").append("user", "Hello!")
        memory.conversation("widget").append("user", [{"type": "my_widget", "x": 1}])
    file = tmp_path / "chats.jsonl"
    export = ("export", "--format", "openai", "--db", tmp_path / "held")
    piped = refold(*export)
    assert (piped.code, piped.err) == (0, "2 conversations\n")
    notice = {"type": "text", "text": "(a block of type 'my_widget', which no provider takes here)"}
    assert piped.json_lines[1] == {"id": "widget", "messages": [{"role": "user", "content": [notice]}]}
    named = refold(*export, file)
    assert (named.code, named.out, named.err) == (0, f"{file} (openai): 2 conversations\n", "")
    assert file.read_text(encoding="utf-8") == piped.out
    document = refold(*export, file, "--overwrite", "--json").json
    assert (document["conversations"], "left_out" in document) == (2, False)


def test_half_a_character_is_named_as_what_it_is(tmp_path: Path, refold: Run) -> None:
    for text in (r"a\ud83db", r"a\uDE00", r"\\\ud83d\ud83d\ude00"):
        (tmp_path / "half.jsonl").write_text(f'{{"messages":[{{"role":"user","content":"{text}"}}]}}')
        ended = refold("import", tmp_path / "half.jsonl", "--db", tmp_path / "none")
        assert (ended.code, "is a lone surrogate, half of a character" in ended.err) == (1, True), ended.err
    (tmp_path / "whole.jsonl").write_text(r'{"messages":[{"role":"user","content":"\ud83d\ude00 \\ud83d"}]}')
    assert refold("import", tmp_path / "whole.jsonl", "--db", tmp_path / "some").code == 0


@pytest.mark.parametrize("left", [b"", b"no LMDB file", bytes(70_000)])
def test_a_store_whose_file_is_none_any_more_ends_with_3(store: Path, refold: Run, tmp_path: Path, left: bytes) -> None:
    (store / "data.mdb").write_bytes(left)
    for verb in (("list",), ("show", CHAT), ("log",), ("verify",), ("doctor",), ("fork", CHAT, "new")):
        ended = refold(*verb, "--db", store)
        assert ended.code == 3, verb
        assert "restore a backup" in ended.out + ended.err
    assert refold("recover", store, tmp_path / "new").code == 3
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "data.mdb").write_bytes(left)
    assert refold("list", "--db", tmp_path / "foreign").code == 1, "there never was a store"


@pytest.mark.parametrize("form", ["refold", "openai"])
def test_an_export_replaces_a_file_only_if_that_is_given(store: Path, refold: Run, tmp_path: Path, form: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("before", encoding="utf-8")
    refused = refold("export", "--format", form, path)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        f"refold: {path} is there already; give a path where nothing is, or --overwrite to replace it\n"
    )
    assert path.read_text(encoding="utf-8") == "before"
    inside = refold("export", "--format", form, "--overwrite", store / "data.mdb")
    assert (inside.code, inside.out) == (1, "")
    assert "lies in the store" in inside.err
    assert refold("export", "--format", form, "--overwrite", path).code == 0
    assert path.read_text(encoding="utf-8") == refold("export", "--format", form).out


def test_list_names_conversations_and_snapshots(store: Path, refold: Run) -> None:
    refold("snapshot", CHAT, "noon", "--db", store)
    with Memory(store) as memory:
        chat = memory.conversation("chat", project="acme")
        chat.state["project:language"] = "Python"
        chat.append("user", "Hello!")
    listed = refold("list", "--json").json
    assert [row["conversation"] for row in listed["conversations"]][:2] == ["chat", CHAT]
    assert listed["conversations"][1]["window_tokens"] == 600
    assert listed["projects"] == ["acme"]
    assert listed["snapshots"] == [{"name": "noon", "conversation": CHAT, "seq": 25}]
    shown = refold("list").out
    assert f"snapshot noon of {CHAT} at seq 25" in shown
    assert "project acme" in shown


def test_show_shows_now_and_then(store: Path, refold: Run) -> None:
    with Memory(store) as memory:
        chat = memory.conversation(CHAT)
        chat.scratchpad.set("flight", "HAT266")
        chat.scratchpad.note("a note\x1b[31m")
        chat.state["step"] = {"role": None, "count": 3}
        chat.append("user", "One more thing.", pinned=True)
    now = refold("show", CHAT)
    for part in ("scratchpad flight = HAT266", "note a note?[31m", "state step = ", "user: One more thing.  "):
        assert part in now.out
    document = refold("show", CHAT, "--json").json
    assert document["scratchpad"]["entries"] == {"flight": "HAT266"}
    assert document["state"] == {"step": {"role": None, "count": 3}}
    assert document["messages"][-1]["pinned"] is True
    refused = refold("show", CHAT, "--at", "9" * 5_000)
    assert (refused.code, "neither a seq nor a time" in refused.err) == (2, True)
    then = refold("show", CHAT, "--at", 4, "--json").json
    assert (then["at"], [message["seq"] for message in then["messages"]]) == (4, [2, 3, 4])
    assert then["scratchpad"] == {"entries": {}, "notes": []}
    assert refold("show", CHAT, "--at", "2100-01-01T00:00:00Z", "--json").json == document


@pytest.mark.parametrize(
    "verb", [("show", "none"), ("replay", "none"), ("fork", "none", "x"), ("snapshot", "none", "x")]
)
def test_an_unknown_conversation_is_an_error(store: Path, refold: Run, verb: tuple[str, ...]) -> None:
    ended = refold(*verb, "--db", store)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "refold: there is no conversation 'none'; `refold list` shows the existing ones\n"


@pytest.mark.parametrize(("at", "code"), [("99999", 1), ("-1", 1), ("noon", 2), ("2024-05-20", 1)])
def test_a_moment_that_is_none_is_an_error(store: Path, refold: Run, at: str, code: int) -> None:
    ended = refold("show", CHAT, f"--at={at}", "--db", store)
    assert (ended.code, ended.out) == (code, "")
    assert at in ended.err


@pytest.mark.parametrize(
    ("verb", "says"),
    [
        (("erase", CHAT, "--yes"), "drop forks of the conversation in Python with close(drop=True)"),
        (("erase", CHAT, "--yes"), "or erase them too with --forks erase"),
        (("fork", CHAT, "child"), "already exists; fork to an id that is new\n"),
        (("show", CHAT, "--at", "2026-11-28T18:42:27"), "give it a time zone, such as a Z at its end"),
        (("web", "--host", "0.0.0.0"), "give a token, by REFOLD_WEB_TOKEN or --token, that"),  # noqa: S104 - refused
    ],
)
def test_advice_is_in_words_of_the_command_line(
    store: Path, refold: Run, verb: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REFOLD_WEB_TOKEN", raising=False)
    assert refold("fork", CHAT, "child").code == 0
    ended = refold(*verb, "--db", store)
    assert (ended.code, ended.out) == (1, "")
    assert says in ended.err


def test_log_lists_what_is_asked_for(store: Path, refold: Run) -> None:
    assert len(refold("log").out.splitlines()) == 57
    assert [line["seq"] for line in refold("log", "--tail", 2, "--json").json_lines] == [56, 57]
    assert [line["seq"] for line in refold("log", "--after", 55, "--json").json_lines] == [56, 57]
    opened = refold("log", "--kind", "conversation_opened", "--tail", 2, "--json").json_lines
    assert [line["seq"] for line in opened] == [26, 41]
    stream = refold("log", "--stream", f"conversation/{CHAT}", "--after", 20, "--json").json_lines
    assert [line["seq"] for line in stream] == [21, 22, 23, 24, 25]
    assert refold("log", "--tail", 0, "--db", store).out == ""
    exported = [line for line in refold("export").json_lines if "seq" in line]
    for line in exported:
        del line["command"]
    assert refold("log", "--json").json_lines == exported


def test_replay_steps_through_events_and_evictions(store: Path, refold: Run) -> None:
    steps = refold("replay", CHAT, "--from", 12, "--to", 14, "--db", store, "--json").json_lines
    assert [step["seq"] for step in steps] == [12, 13, 14]
    assert [message["seq"] for message in steps[1]["evicted"]] == [3, 4, 5, 6, 7, 8, 9]
    assert {change["view"] for change in steps[1]["changes"]} == {"window"}
    shown = refold("replay", CHAT, "--from", 13, "--to", 13).out.splitlines()
    assert shown[0].split()[0] == "13"
    assert len(shown) == 1 + 7
    assert "evicted 9  tool get_reservation_details" in shown[-1]
    assert len(refold("replay", CHAT, "--to", 1).out.splitlines()) > 1
    assert refold("replay", CHAT).err == "", "between its events there are no others"


def test_replay_says_at_its_end_how_many_events_between_its_own_are_of_others(tmp_path: Path, refold: Run) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.add("Seq 1 is before it.")
        chat = memory.conversation("c")
        for others in (0, 2, 1, 0):
            chat.append("user", "x")
            for _ in range(others):
                memory.add(f"The seq is {memory.head + 1}.")
        chat.append("user", "x")
        memory.add("The last one is behind it.")
        assert [stamp.seq for _, stamp in chat.events()] == [2, 3, 4, 7, 9, 10]
    of_others = " of other streams or forks in between; see `refold log`\n"
    own = ("replay", "c", "--db", tmp_path / "store")
    assert refold(*own).err == f"not shown: 3 events{of_others}"
    assert refold(*own, "--from", 7).err == f"not shown: 1 event{of_others}"
    assert [refold(*own, *rest).err for rest in (["--from", 9], ["--json"], ["--from", 11])] == ["", "", ""]


def test_a_list_counts_one_message_as_one(tmp_path: Path, refold: Run) -> None:
    with Memory(tmp_path / "store") as memory:
        for number, name in enumerate("abc"):
            for _ in range(number):
                memory.conversation(name).append("user", "x")
            memory.conversation(name).scratchpad.set("k", "v")
    lines = refold("list", "--db", tmp_path / "store").out.splitlines()
    assert [line.partition("tokens  ")[2] for line in lines[:3]] == [
        "0 messages in the window",
        "1 message in the window",
        "2 messages in the window",
    ]


def test_diff_compares_seqs_times_and_conversations(store: Path, refold: Run) -> None:
    refold("fork", CHAT, "other", "--at", 3)
    with Memory(store) as memory:
        memory.conversation("other").scratchpad.set("flight", "HAT175")
    changes = refold("diff", "other", CHAT, "--json").json["changes"]
    tokens = [(change["before"], change["after"]) for change in changes if change["path"] == ["tokens"]]
    assert tokens == [(19, 596)]
    text = refold("diff", 57, "other").out
    assert "+ scratch.entries" in text
    assert refold("diff", 59, "2100-01-01T00:00:00Z", "--json").json["changes"] == []
    unknown = refold("diff", "none", CHAT)
    assert (unknown.code, "'none' is not a seq, a time or a conversation" in unknown.err) == (1, True)
    assert refold("diff", 1).code == 2


def test_times_between_which_nothing_was_recorded_are_explained(store: Path, refold: Run) -> None:
    """Imported sessions happened long before they were recorded."""
    begin, end, step = "2023-05-01T00:00:00Z", "2023-06-01T00:00:00Z", "--at-occurred TIME"
    ended = refold("diff", begin, end)
    assert (ended.code, ended.out, step in ended.err) == (0, "", True)
    assert ended.err.startswith(
        f"no changes from {begin} (seq 0) to {end} (seq 0); a time is when something was recorded"
    )
    assert step in refold("diff", begin, end, "--json").err
    assert refold("diff", "57", CHAT).err == f"no changes from 57 to {CHAT}\n"
    for verb in (("log", "--after", begin, "--until", end), ("replay", CHAT, "--from", begin, "--to", end)):
        ended = refold(*verb)
        assert (ended.code, ended.out, step in ended.err) == (0, "", True)
        assert ended.err.startswith("no event was recorded in this time")
    assert refold("log", "--after", "57").err == ""
    assert store.is_dir()


def test_a_conversation_named_by_a_number_is_not_taken_for_a_seq(store: Path, refold: Run) -> None:
    with Memory(store) as memory:
        memory.conversation("31").append("user", "from Telegram")
        memory.conversation("32").append("user", "from WhatsApp")
    refused = refold("diff", "31", "32")
    assert (refused.code, "give seq/31 or conversation/31" in refused.err) == (2, True)
    changes = refold("diff", "conversation/31", "conversation/32", "--json").json["changes"]
    assert any("from WhatsApp" in str(change) for change in changes)
    assert refold("diff", "seq/31", "30").out == refold("diff", "0031", "30").out != ""


def test_a_moment_before_a_conversation_is_named_as_the_reason(store: Path, refold: Run) -> None:
    early = refold("show", CHAT, "--at-occurred", "1999-01-01T00:00:00Z", "--db", store)
    assert (early.code, "had begun by the time of --at-occurred" in early.err) == (1, True)
    event = refold("show", "--seq", 3, "--at", 2)
    assert (event.code, "--at is for a CONVERSATION" in event.err) == (2, True)


def test_a_directory_of_other_files_is_no_place_to_read(tmp_path: Path, refold: Run) -> None:
    (tmp_path / "notes.txt").write_text("no store")
    listed = refold("list", "--db", tmp_path)
    assert (listed.code, "only other files; give the directory of a store" in listed.err) == (1, True)


def test_a_question_that_nobody_answers_is_not_an_interruption(
    store: Path, refold: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    asked = refold("erase", CHAT, "--db", store)
    assert (asked.code, "give --yes" in asked.err) == (1, True)


def test_a_first_import_waits_for_another_one(tmp_path: Path) -> None:
    place = tmp_path / "new"
    command = [sys.executable, "-m", "refold", "import", str(SAMPLE), "--db", str(place)]
    with build_directory(str(place), "a store", may_be_empty=True) as made:
        with Memory(made) as memory:
            memory.conversation("first").append("user", "hello")
        other = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert other.stderr is not None
        assert "waiting for another process" in other.stderr.readline()
    assert other.communicate()[1] == ""
    assert other.returncode == 0
    with Memory(place, readonly=True) as memory:
        assert len(memory.conversations()) == 4


def test_a_snapshot_is_forked_from_and_restored(store: Path, refold: Run) -> None:
    assert refold("snapshot", CHAT, "noon", "--json").json == {"conversation": CHAT, "name": "noon", "seq": 25}
    before = refold("show", CHAT, "--json").json
    with Memory(store) as memory:
        memory.conversation(CHAT).clear_window()
    restored = refold("restore", CHAT, "noon", "--json").json
    assert restored["messages"] == before["messages"]
    assert refold("restore", CHAT, "noon").out.startswith(f"restored {CHAT} to noon: Conversation(")
    forked = refold("fork", CHAT, "other", "--at", 4, "--json").json
    assert [message["seq"] for message in forked["messages"]] == [2, 3, 4]
    taken = refold("fork", CHAT, "other")
    assert (taken.code, "already exists; fork to an id that is new" in taken.err) == (1, True)
    missing = refold("restore", CHAT, "midnight")
    assert (missing.code, "no snapshot named 'midnight'" in missing.err) == (1, True)


def test_stats_and_verify_speak_plainly(store: Path, refold: Run) -> None:
    counted = refold("stats").out
    assert "events          57" in counted
    sizes = [(store / name).stat().st_size for name in ("data.mdb", "ballast")]
    assert [f"store_bytes     {sizes[0]:,}" in counted, f"reserved_bytes  {sizes[1]:,}" in counted] == [True, True]
    shown = refold("verify", "--db", store).out
    assert shown.startswith("57 events in 3 streams: sound, state hash ")
    assert refold("verify", "--db", store, "--jobs", "2").out == shown


def test_verify_holds_a_store_against_a_witness(
    store: Path, tmp_path: Path, refold: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = tmp_path / "witness"
    missing = refold("verify", "--witness", witness)
    assert (missing.code, "there is no witness at" in missing.err) == (1, True)
    Memory(store, witness=witness).close()
    assert refold("verify", "--witness", witness).code == 0
    Memory(tmp_path / "other").close()
    monkeypatch.setenv("REFOLD_WITNESS", str(witness))
    ended = refold("verify", "--db", tmp_path / "other")
    assert (ended.code, "witness at seq 0: the witness" in ended.out) == (3, True)
    assert refold("verify", "--db", tmp_path / "other", "--json").json["findings"][0]["check"] == "witness"


def test_a_damaged_store_ends_with_3(store: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("link", 7, "the link does not fit its records")
    broken = Report(ok=False, findings=(finding,), events=57, streams=3, state_hash="")
    with monkeypatch.context() as patched:
        patched.setattr(Memory, "verify", lambda *_, **__: broken)
        shown = refold("verify", "--db", store)
        assert shown.code == 3
        assert "link at seq 7: the link does not fit its records" in shown.out
        assert refold("verify", "--json").json["findings"][0]["seq"] == 7

    def corrupt(_: Memory) -> None:
        raise StoreCorrupt("seq 7 cannot be decoded")

    monkeypatch.setattr(Memory, "stats", corrupt)
    ended = refold("stats")
    assert (ended.code, ended.err) == (3, "refold: seq 7 cannot be decoded\n")


def test_a_store_that_is_not_one_is_an_error(refold: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    ended = refold("stats", "--db", tmp_path / "file")
    assert (ended.code, "is a file, and a store is a directory" in ended.err) == (1, True)


def test_ctrl_c_ends_with_130(store: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(root, "open_for_reading", interrupted)
    ended = refold("stats", "--db", store)
    assert (ended.code, ended.out, ended.err.strip()) == (130, "", "")


def test_a_clock_that_is_no_number_is_refused(store: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_CLOCK_NS", "noon")
    ended = refold("stats", "--db", store)
    assert (ended.code, "REFOLD_CLOCK_NS is 'noon'" in ended.err) == (1, True)


def test_a_fixed_clock_makes_equal_stores(refold: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_CLOCK_NS", "1700000000000000000")
    for name in ("a", "b"):
        refold("import", SAMPLE, "--db", tmp_path / name)
        refold("fork", CHAT, "other", "--db", tmp_path / name)
    exports = [refold("export", "--db", tmp_path / name).out for name in ("a", "b")]
    assert exports[0] == exports[1]
    assert exports[0].splitlines()[1].count('"time_ns":1700000000') == 1


def test_without_its_libraries_it_says_what_to_install(refold: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "click", None)
    monkeypatch.setitem(sys.modules, "rich", None)
    ended = refold("--help")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "refold: the command line needs click and rich; pip install 'refold[cli]'\n"


def test_help_loads_nothing_heavy() -> None:
    heavy = "{'msgspec', 'lmdb', 'rich', 'numpy', 'refold.memory', 'refold.importers', 'tempfile', 'subprocess'}"
    script = f"import sys; sys.argv[1:] = ['--help']; from refold.cli import main; main(); {heavy}"
    listing = f"{script}; print(sorted({heavy} & set(sys.modules)), file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    assert ended.stderr == "[]\n"


@pytest.mark.parametrize("verb", [("log",), ("log", "--json"), ("export",), ("replay", CHAT)])
def test_a_reader_that_leaves_ends_it_quietly(store: Path, verb: tuple[str, ...]) -> None:
    command = [*COMMAND, *verb, "--db", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_stdout_is_one_line(store: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run([*COMMAND, "stats", "--db", store], stdout=full, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count(b"\n") == 1
    assert ended.stderr.startswith(b"refold: ")


def test_a_signal_ends_a_running_command_without_a_traceback(store: Path) -> None:
    script = f"import os, signal; os.kill(os.getpid(), signal.SIGINT)  # {store}"
    hooked = COMMAND[2].replace(
        "sys.exit", f"from refold import Memory; Memory.stats = lambda _: exec({script!r}); sys.exit"
    )
    ended = subprocess.run([sys.executable, "-c", hooked, "stats", "--db", store], capture_output=True, check=False)
    assert ended.returncode == 128 + signal.SIGINT
    assert ended.stderr.strip() == b""


def test_colour_is_for_terminals_and_yields_to_no_color(store: Path, refold: Run) -> None:
    log = ["log", "--tail", "1", "--db", str(store)]
    assert "\x1b[36m" in terminal_output(log)
    assert "\x1b[36m" not in terminal_output(log, NO_COLOR="1")
    assert "\x1b" not in refold(*log).out


def test_a_terminal_gets_a_progress_bar_and_a_pipe_gets_none(tmp_path: Path, refold: Run) -> None:
    assert "100%" in terminal_output(["import", str(SAMPLE), "--db", str(tmp_path / "a")])
    assert refold("import", SAMPLE, "--db", tmp_path / "b").err == ""


def test_what_holds_a_text_is_erased_wherever_it_is(store: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(store) as memory:
        for name in ("first", "second"):
            memory.conversation(name).append("user", "The code of the gate is XK-4711-Q, for now.", tokens=5)
        memory.fork("elsewhere").profile().set("gate", "XK-4711-Q")
        seqs = [stamp.seq for event, stamp in memory.events() if "XK-4711-Q" in str(event)]
    told = refold("erase", "--seq", seqs[0], "--yes")
    assert "still found" in told.out
    assert "refold erase --text TEXT" in told.out
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    refused = refold("erase", "--text", "XK-4711-Q")
    assert (refused.code, "nothing was changed" in refused.err) == (1, True)
    assert "Erase the 2 events that contain 'XK-4711-Q', and what was derived" in refused.err
    assert refold("erase", "--text", "abc", "--yes").code == 1
    erased = refold("erase", "--text", "XK-4711-Q", "--yes")
    assert (erased.code, "2 events erased" in erased.out) == (0, True), erased
    unheld = refold("erase", "--text", "XK-4711-Q", "--yes")
    assert (unheld.code, unheld.out, "no event contains 'XK-4711-Q'" in unheld.err) == (1, "", True)
    assert not any(b"XK-4711-Q" in path.read_bytes() for path in store.iterdir())
    with Memory(store) as memory:
        assert_sound(memory)


def test_the_question_says_where_only_metadata_holds_a_text(
    store: Path, refold: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(store) as memory:
        memory.conversation("trip").append("system", "You are an agent.", metadata={"user": "ann-4711"})
        memory.conversation("trip").append("user", "I am ann-4711.")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = refold("erase", "--text", "ann-4711").err
    assert "system wrote 'You are an agent.' (in its metadata)\n" in asked
    assert "user wrote 'I am ann-4711.'\n" in asked


def test_erase_says_which_names_and_tables_stay(store: Path, refold: Run) -> None:
    with Memory(store) as memory:
        memory.conversation("graph/ann-4711").append("user", "Hello from ann-4711!", tokens=5)
        memory.table("graph/ann-4711").put("key", "value")
        memory.project("users/ann-4711").add("Likes tea.")
        memory.files().create("/memories/users.md", "ann-4711 came.")
        memory.files().str_replace("/memories/users.md", "ann-4711", "Somebody")
    told = refold("erase", "--text", "ann-4711", "--yes").out
    assert "2 events erased" in told
    assert "written once more without it: /memories/users.md in files/default" in told
    assert "still in the name of conversation/graph/ann-4711; `refold erase graph/ann-4711` erases it" in told
    assert "project/users/ann-4711; memory.project('users/ann-4711').erase() in Python erases it" in told
    told = refold("erase", "graph/ann-4711", "--yes").out
    assert "the table graph/ann-4711 stays; memory.table('graph/ann-4711').erase() in Python erases it" in told
    told = refold("erase", "--text", "ann-4711", "--yes").out
    assert ("conversation/" in told, "table/graph/ann-4711" in told) == (False, True)


def test_the_question_lists_what_an_erasure_takes_along(
    store: Path, refold: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(store) as memory:
        told = memory.conversation("told").append("user", "I am Ada, and my port is 6543.", tokens=5)
        memory.show(memory.context(memory.conversation("told"), query="port", project="p"))
        memory.project("p").add("The port is 6543.", source=told)
        memory.profile().set("name", "Ada", sources=[told])
        many = memory.conversation("many").append("user", "Many things.", tokens=5)
        for number in range(20):
            memory.profile().set(f"thing {number}", "yes", sources=[many])
        brief = memory.conversation("brief", window_tokens=10, eviction="summary")
        said = [brief.append("user", text, tokens=5) for text in ("Hi!", "I am Bob.", "Bye!")]
        brief.summarize(lambda *_: "It was said hi.")
        head = memory.head
    for arguments in (("--seq", told.seq), ("told",), ("--text", "I am Ada, and")):
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        asked = refold("erase", *arguments)
        assert "in project/p: the memory 'The port is 6543.' was added" in asked.err
        assert "in profile/default: key 'name' of the profile got the value 'Ada'" in asked.err
        assert re.search(r"and what was derived from them \(\d+ events\), for ever", asked.err)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = refold("erase", "--seq", many.seq)
    assert asked.err.count("got the value 'yes'") == 12
    assert "and 8 more" in asked.err
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert "got the value" not in refold("erase", "--seq", many.seq, "--keep-derived").err
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = refold("erase", "--seq", said[0].seq)
    assert "in conversation/brief: a summary of what had left came into the window: 'It was said hi.'" in asked.err
    assert "derived from them (1 event)" in asked.err
    with Memory(store) as memory:
        assert memory.head == head


@pytest.mark.parametrize("more", [(), ("--keep-derived",)])
def test_the_question_says_how_many_events_hold_a_text(
    store: Path, refold: Run, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    with Memory(store) as memory:
        chat = memory.conversation("plans")
        rest = "\x1b[2J\n" + 90 * "x"
        said = [chat.append("user", f"We talked about the pl\u00e4n {n}.{rest}", tokens=5) for n in range(50)]
        memory.profile().set("pl\u00e4n", "talked about", sources=[said[49]])
        memory.erase([said[0]])
        head = memory.head

    def ask(*arguments: object) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        asked = refold("erase", *arguments, *more)
        assert asked.code == 1, asked
        assert "nothing was changed" in asked.err
        return asked.err

    many = ask("--text", "the pl\u00e4n")
    assert "Erase the 49 events that contain 'the pl\u00e4n'" in many
    assert many.count(" in conversation/plans: user wrote") == 12
    assert f"seq {said[1].seq} in conversation/plans: user wrote 'We talked about the pl\u00e4n 1." in many
    assert "and 37 more" in many
    assert ("\x1b" in many, "x" * 90 in many) == (False, False)
    assert ("key 'pl\u00e4n' of the profile" in many, "(1 event)" in many) == (not more, not more)
    one = ask("--text", "the pl\u00e4n 42")
    assert "Erase the 1 event that contains 'the pl\u00e4n 42'" in one
    assert "more" not in one
    assert "Erase the 3 events given or found to contain 'the pl\u00e4n 42'" in ask(
        "--seq", said[7].seq, "--seq", said[8].seq, "--text", "the pl\u00e4n 42"
    )
    with Memory(store) as memory:
        assert memory.head == head
    nothing = refold("erase", "--text", "of which there is nothing", *more)
    assert (nothing.code, "Erase" in nothing.err, "no event contains" in nothing.err) == (1, False, True)


def test_erase_says_what_it_reached(store: Path, refold: Run) -> None:
    assert refold("erase").code == refold("erase", CHAT, "--seq", 3).code == 2
    one = refold("erase", "--seq", 3, "--seq", 3, "--yes", "--json").json
    assert (one["seqs"], one["occurrences"], one["streams"]) == ([3], 0, [])
    unknown = refold("erase", f"{CHAT}s", "--yes")
    assert unknown.code == 1
    assert f"there is no conversation '{CHAT}s'; did you mean '{CHAT}'?" in unknown.err
    with Memory(store) as memory:
        memory.conversation(CHAT).append("user", "Nobody else says this.")
    (store / "copy").write_text("Nobody else says this.")
    whole = refold("erase", CHAT, "--yes")
    assert "  1 of these in no event; look for other files in the store's directory\n" in whole.out
    assert "events erased, 0 derived from them, renamed to conversation/erased-" in whole.out
    assert re.search(r"searched [\d,]+ bytes of \d files for \d+ of their texts and values: still found", whole.out)
    assert "beyond reach: exports and backups" in whole.out
    assert CHAT not in refold("list", "--json").out
    assert refold("verify").code == 0
    assert store.is_dir()


def test_files_of_one_name_are_not_taken_for_one_session(refold: Run, tmp_path: Path) -> None:
    files = [tmp_path / folder / "chat.json" for folder in "ab"]
    for file in files:
        file.parent.mkdir()
        file.write_text('[{"role": "user", "content": "Hi"}]')
    ended = refold("import", *files, "--db", tmp_path / "store")
    assert (ended.code, (tmp_path / "store").exists()) == (2, False)
    assert "have the same name, which identifies conversations without an id; rename one" in ended.err
    assert refold("import", files[0], files[0], "--db", tmp_path / "store").code == 0


def test_files_behind_one_that_fails_are_named(refold: Run, tmp_path: Path) -> None:
    for name in ("good", "bad", "later", "last"):
        text = "{broken" if name == "bad" else '[{"role": "user", "content": "Hi"}]'
        (tmp_path / f"{name}.json").write_text(text)
    files = [tmp_path / f"{name}.json" for name in ("good", "bad", "later", "last")]
    ended = refold("import", *files, "--format", "openai", "--db", tmp_path / "store")
    assert ended.code == 1
    assert f"not imported: {files[2]}, {files[3]}" in ended.err
    assert "1 message" in ended.out
