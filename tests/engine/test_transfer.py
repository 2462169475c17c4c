"""Export and load: everything comes out and goes in as it was, and what was changed or cut off is refused whole."""

import copy
import errno
import json
import os
import tempfile
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from refold import (
    Conversation,
    InvalidInput,
    Memory,
    Message,
    NotFound,
    Project,
    ReadOnly,
    RefoldError,
    Snapshot,
    StoreCorrupt,
    StoreError,
    StoreFull,
)
from refold.engine import transfer
from refold.engine.reader import Reader
from refold.engine.scan import events_with
from refold.index.columns import DAY_NS
from refold.memory import Files
from refold.skills import SkillLibrary, SkillRoots
from tests.support.embedder import Told
from tests.support.memories import Clock, assert_sound, erase, nested, refused, remembering
from tests.support.seams import log_of

Change = Callable[[list[dict[str, Any]]], object]


def fill(memory: Memory) -> None:
    """Write at least one event of every kind."""
    chat = memory.conversation("chat", project="project")
    chat.append("user", "hello", tokens=3, metadata={"a": [1, {"b": None}]}, occurred=5)
    call = {"id": "x", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    with memory.batch():
        chat.append("assistant", None, tokens=1, tool_calls=[call])
        chat.append("tool", "found", tokens=1, tool_call_id="x", name="look")
    chat.append("user", [{"type": "text", "text": "\u4e16\0"}], tokens=1, pinned=True)
    chat.scratchpad.set("key", "value")
    chat.state["plan"] = {"steps": [1, 2]}
    chat.state["temp:x"] = True
    chat.state["project:language"] = "Python"
    snapshot = chat.snapshot("named")
    chat.scratchpad.set("key", "other")
    chat.scratchpad.delete("key")
    chat.scratchpad.note("a note", sources=[2, 3])
    travel(memory, chat, snapshot)
    table = memory.table("table")
    table.put("one", {"text": "1", "bytes": b"\x00\xff"})
    table.put(("two", "a"), 2)
    table.set_expires("one", timedelta(days=30_000))
    table.delete("one")
    table.delete_prefix(("two",))


def travel(memory: Memory, chat: Conversation, snapshot: Snapshot) -> None:
    chat.end_round()
    chat.clear_window()
    chat.restore(snapshot)
    chat.set_window_tokens(500)
    chat.set_embed(embed=True)
    fork = chat.fork("fork", at=5)
    fork.scratchpad.clear()
    fork.state["x"] = 1
    fork.state.delete("x")
    fork.append("user", "later", request_id="once")
    fork.scratchpad.set("x", "y")
    fork.scratchpad.clear()
    chat.fork("dropped").close(drop=True)
    chat.end()
    memory.profile().set("theme", "dark")
    memory.profile().delete("theme")
    memory.profile("other").set("k", "v")
    memory.journal().append("note", day="2026-01-01")
    other = Memory()
    other.conversation("o").append("user", "from elsewhere", tokens=2)
    other.conversation("o").scratchpad.set("a", "b")
    chat.restore(Snapshot.from_bytes(other.conversation("o").snapshot().to_bytes()))
    chat.pin(chat.append("user", "kept", tokens=1))
    chat.replace(chat.append("user", "said", tokens=1), "meant", tokens=1)
    brief = memory.conversation("brief", window_tokens=6, eviction="summary")
    said = [brief.append("user", f"said {number}", tokens=3) for number in range(3)]
    brief.rate(said[-1], 0.5)
    brief.recall("said")
    brief.summarize(lambda _, messages: f"{len(messages)} said")
    chat.remove(chat.append("user", "dropped", tokens=1))
    work(memory, chat)
    learn(memory.project("acme"), chat.append("user", "Use pnpm.", tokens=2))
    memory.add("Use pnpm in every project.")
    memory.show(memory.context(chat, query="Should we use pnpm?", project="default"))
    pin_up(memory)
    memory.reembed(Told())
    memory.add("y")
    memory.project().clear()


def work(memory: Memory, chat: Conversation) -> None:
    chat.session.describe_task("task")
    chat.session.note_file("path", lines=1)
    chat.session.note_finding("found")
    memory.tools.execute("memory_read", {}, memory.tools.context(chat), record=True)
    memory.settings.set("memory_enabled", value=False)
    memory.settings.count_usage("skill_used")
    memory.show(memory.context(chat))
    chat.session.record_extraction("scripted", ["id"], ["item 1: dull"], seq=2)
    know_skills(SkillLibrary(memory._core, None))
    edit_a_skill(memory)
    keep_files(memory.files())


def keep_files(files: Files) -> None:
    files.create("/memories/a/plan.md", "one\ntwo\n")
    files.insert("/memories/a/plan.md", 1, "and a half")
    files.create("/memories/b", "")
    files.rename("/memories/a", "/memories/c/d")
    files.delete("/memories/b")


def know_skills(library: SkillLibrary) -> None:
    library.learn("tag-a-release", "Tag a release.", "Run the tests, then tag.", tags=["git"], sessions=["chat"])
    library.refine("tag-a-release", body="Test, then tag.")
    library.approve("tag-a-release")
    library.toggle("deploy", enabled=False)
    library.note("deploy", "Ask first.")
    library.use("tag-a-release", succeeded=True, conversation="chat")
    library.record((), query="release", conversation="chat")
    library.record((), query="again", conversation="chat")
    library.delete("tag-a-release")


def edit_a_skill(memory: Memory) -> None:
    with tempfile.TemporaryDirectory() as project:
        skills = memory.skills.with_roots(SkillRoots(project=project))
        skills.create("deploy", "Deploy the service.", "Run it.\n")
        skills.edit("deploy", body="Run it twice.\n")


def pin_up(memory: Memory) -> None:
    board, node = memory.board(session="s"), memory.board(project="a/b", node="n")
    node.update_settings({"history_length": 3})
    node.append_message({"id": "old", "content": "beneath", "created_at": "1899-01-01"})
    board.initialise(project_id="a/b", active_node_id="n")
    board.append_message({"content": "hello", "created_at": "yesterday"})
    board.set_messages([{"id": 7, "content": "\u4e16"}], meta={"total_count": 9})
    board.set_project_graph({"nodes": [{"id": 1, "title": "One"}], "edges": [{"from": 1, "to": 2}]})


def learn(project: Project, said: Message) -> None:
    entry = project.add("Use pnpm.", source=said, metadata={"世": [1.5, None]}, importance=0.9)
    merged = project.upsert("Use pnpm, always.", threshold=0.1, source="a session", occurred=-5)
    project.upsert("Use pnpm.", threshold=0.1, importance=1)
    project.unmerge(merged)
    project.update(entry, keywords=["pnpm"], category="preference")
    project.reject(project.add("dull", importance=0.01, occurred=1, source_context="because"))
    project.recall("pnpm", conversation="chat", explain=True)
    now_ns = Reader.now_ns
    with patch.object(Reader, "now_ns", lambda reader: now_ns(reader) + 7 * DAY_NS):  # The clock of the caller stands.
        project.decay()
    project.prune(0.1)
    project.record_episode("success", session="s", task="install", tools=["bash"])
    project.delete(project.add("x"))


def branch(memory: Memory) -> None:
    fork = memory.fork("what if", at=12)
    fork.conversation("chat").append("user", "in the fork", tokens=1)
    whole = fork.snapshot("whole")
    fork.conversation("chat").fork("of the fork").scratchpad.note("x")
    fork.conversation("chat").snapshot("in the fork")
    fork.fork("deeper").profile().set("k", "deep")
    fork.restore(whole)
    memory.profile().set("k", "main")


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    with Memory(clock_ns=Clock()) as memory:
        fill(memory)
        branch(memory)
        with memory.acting("tool:search", cause=2):
            memory.journal("acting").append("found")
        memory.export(tmp_path / "export.jsonl")
    return tmp_path / "export.jsonl"


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The head and the events of an export, without the digest, which fits no other lines."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert lines.pop().keys() == {"sha256"}
    return lines


def rewrite(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def last_of(lines: list[dict[str, Any]], kind: str) -> int:
    return max(place for place, line in enumerate(lines) if line.get("kind") == kind)


def event_of(lines: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    event: dict[str, Any] = lines[place_of(lines, kind)]["event"]
    return event


def read_all(memory: Memory) -> None:
    """Read what a store holds, in every way that a damaged value might spoil."""
    for chat in map(memory.conversation, list(memory.conversations())):
        memory.context(chat)
        chat.messages()
        chat.scratchpad.to_json()
        dict(chat.state)
        chat.session.to_text()
        list(chat.events())
    for project in map(memory.project, list(memory.projects())):
        project.list()
        project.stats()
        project.search("")
        project.search_episodes("")
    memory.journal().recent(9_999)
    memory.settings.items()
    memory.snapshots()
    SkillLibrary(memory._core, None).list()
    memory.files().view("/memories")
    assert memory.verify().ok


def place_of(lines: list[dict[str, Any]], kind: str) -> int:
    return next(place for place, line in enumerate(lines) if line.get("kind") == kind)


class TestARoundTrip:
    def test_gives_an_equal_hash_at_every_seq(self, tmp_path: Path) -> None:
        with remembering(clock_ns=Clock()) as memory:
            fill(memory)
            assert memory.export(tmp_path / "export") == memory.head
            for path in (None, tmp_path / "store"):
                with remembering(path, window_tokens=7) as loaded:
                    result = loaded.load(tmp_path / "export")
                    assert (result.events, result.repeated) == (memory.head, False)
                    for seq in range(memory.head + 1):
                        assert loaded.state_hash(seq) == memory.state_hash(seq)

    def test_keeps_events_stamps_and_snapshots(self, tmp_path: Path, exported: Path) -> None:
        with Memory(clock_ns=Clock()) as memory:
            fill(memory)
            with Memory(tmp_path / "store") as loaded:
                loaded.load(exported)
                assert loaded.conversations() == memory.conversations()
                assert loaded.projects() == memory.projects()
                assert [(s.name, s.seq) for s in loaded.snapshots()] == [(s.name, s.seq) for s in memory.snapshots()]
                for conversation_id in memory.conversations():
                    mine = [(type(event), stamp) for event, stamp in memory.conversation(conversation_id).events()]
                    theirs = [(type(event), stamp) for event, stamp in loaded.conversation(conversation_id).events()]
                    assert mine == theirs

    def test_a_second_export_is_the_first_one_but_for_its_store(self, tmp_path: Path, exported: Path) -> None:
        with Memory() as loaded:
            loaded.load(exported)
            loaded.export(tmp_path / "again")
        assert lines_of(tmp_path / "again")[1:] == lines_of(exported)[1:]

    def test_every_kind_of_event_takes_part(self, exported: Path) -> None:
        from refold.fold import NAMES

        kinds = {line["kind"] for line in lines_of(exported)[1:]}
        assert set(NAMES.values()) - kinds == {"erased"}

    def test_the_loaded_store_goes_on(self, tmp_path: Path, exported: Path) -> None:
        with remembering(tmp_path / "store") as loaded:
            loaded.load(exported)
            head = loaded.head
            chat = loaded.conversation("chat")
            chat.append("user", "more", tokens=1)
            chat.restore("named")
            loaded.conversation("new").scratchpad.set("k", "v")
            assert loaded.head == head + 4
            assert chat.state["plan"] == {"steps": [1, 2]}

    def test_what_was_one_commit_stays_one(self, exported: Path) -> None:
        with Memory() as loaded:
            loaded.load(exported)
            commands = [line["command"] for line in lines_of(exported)[1:]]
            assert commands[2] == commands[3]
            assert loaded.verify().ok

    def test_of_nothing_is_nothing(self, tmp_path: Path) -> None:
        with Memory() as memory:
            assert memory.export(tmp_path / "empty") == 0
        with remembering(tmp_path / "store") as loaded:
            assert loaded.load(tmp_path / "empty").events == 0
            assert loaded.head == 0

    def test_of_an_earlier_state_is_that_state(self, tmp_path: Path) -> None:
        with Memory(clock_ns=Clock()) as memory:
            fill(memory)
            assert memory.at(7).export(tmp_path / "export") == 7
            with remembering() as loaded:
                loaded.load(tmp_path / "export")
                assert loaded.state_hash() == memory.state_hash(7)

    def test_of_ten_thousand_events_tells_its_progress(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(transfer, "_LOAD_EVENTS", 300)
        with Memory() as memory:
            chat = memory.conversation("chat")
            with memory.batch():
                for number in range(1_000):
                    chat.append("user", str(number), tokens=1)
            memory.export(tmp_path / "export")
            calls: list[tuple[int, int]] = []
            with remembering(tmp_path / "store") as loaded:
                loaded.load(tmp_path / "export", lambda done, whole: calls.append((done, whole)))
                assert calls == [(300, 1001), (600, 1001), (900, 1001), (1001, 1001)]
                assert loaded.state_hash() == memory.state_hash()


class TestExport:
    def test_is_one_json_object_a_line_with_plain_values(self, exported: Path) -> None:
        head, opened, message, *_ = lines_of(exported)
        assert (head["refold"], head["head"]) == (1, len(lines_of(exported)) - 1)
        assert (opened["kind"], opened["stream"]) == ("conversation_opened", "conversation/chat")
        assert message["event"]["content"] == "hello"
        assert message["event"]["metadata"] == {"a": [1, {"b": None}]}
        assert (message["seq"], message["version"], message["occurred_ns"]) == (2, 2, 5)

    def test_replaces_a_file_only_when_it_is_whole(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "export").write_text("before")
        with Memory() as memory:
            memory.conversation("chat").append("user", "hello")
            monkeypatch.setattr(transfer, "_page_of_lines", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                memory.export(tmp_path / "export", overwrite=True)
        assert [entry.name for entry in tmp_path.iterdir()] == ["export"]
        assert (tmp_path / "export").read_text() == "before"

    @pytest.mark.parametrize("path", ["absent/export", ".", "file/export", "x" * 300])
    def test_to_where_no_file_can_be_says_so(self, tmp_path: Path, path: str) -> None:
        (tmp_path / "file").write_text("")
        with Memory() as memory, pytest.raises(StoreError, match="give a path in a directory that is writable"):
            memory.export(tmp_path / path)
        assert [entry.name for entry in tmp_path.iterdir()] == ["file"]

    @pytest.mark.parametrize("path", ["", "a\0b", "\ud800", 5, None, b"bytes"], ids=repr)
    def test_to_what_is_no_path_is_refused(self, path: Any) -> None:
        with Memory() as memory, pytest.raises(InvalidInput, match="path"):
            memory.export(path)


class TestLoadRefuses:
    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        memory = Memory()
        with refused(memory, NotFound, "no file", "give the path of an export"):
            memory.load(tmp_path / "absent")
        with refused(memory, InvalidInput, "reading", "give the path of an export"):
            memory.load(tmp_path)

    def test_a_frozen_memory_and_a_batch(self, exported: Path) -> None:
        memory = Memory()
        with refused(memory, ReadOnly, "frozen at seq 0"):
            memory.at(0).load(exported)
        with memory.batch(), refused(memory, InvalidInput, "a load inside a batch"):
            memory.load(exported)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "line 1 is not the head of a refold export"),
            (b"\n", "line 1 is not the head"),
            (b"not json\n", "line 1 is not the head"),
            (b"[]\n", "line 1 is not the head"),
            (b"{}\n", "line 1 is not the head"),
            (b"\xff\xfe\n", "line 1 is not the head"),
            (b'{"refold":2,"store":"","head":0}\n', "of format 2, and this refold reads up to 1; upgrade refold"),
            (b'{"refold":1,"store":"","head":1}\n', "says 1 events and has 0"),
            (b'{"refold":1,"store":"","head":1}\nnot json\n', "line 2 is not an event"),
            (b'{"refold":1,"store":"","head":1}\n\xff\xfe\n', "line 2 is not an event"),
            (b'{"refold":1,"store":"","head":1}\n{"seq":1}\n', "line 2 is not an event"),
            (b'{"refold":1,"store":"","head":1}\n"\xff"\n', "line 2 is not an event"),
            (b"\x00" * 100, "line 1 is not the head"),
        ],
        ids=range(13),
    )
    def test_what_is_no_export(self, tmp_path: Path, content: bytes, words: str) -> None:
        (tmp_path / "file").write_bytes(content)
        memory = Memory()
        with refused(memory, InvalidInput, words):
            memory.load(tmp_path / "file")

    @pytest.mark.parametrize("place", [1, 2, 7, -1])
    def test_a_file_that_was_cut_off_between_lines(self, exported: Path, place: int) -> None:
        rewrite(exported, lines_of(exported)[:place])
        memory = Memory()
        with refused(memory, InvalidInput, "says", "export again, the file was cut off"):
            memory.load(exported)

    @pytest.mark.parametrize("size", [10, 100, 1_000, -1, -2, -50])
    def test_a_file_that_was_cut_off_anywhere(self, exported: Path, size: int) -> None:
        whole = exported.read_bytes()
        exported.write_bytes(whole[:size])
        memory = Memory()
        if size == -1:
            memory.load(exported)
            assert_sound(memory)
        else:
            with refused(memory, InvalidInput):
                memory.load(exported)

    CHANGES: dict[str, tuple[Change, str]] = {  # noqa: RUF012 - never changed
        "a line that is missing": (lambda lines: lines.pop(5), "it should be seq 5"),
        "a line twice": (lambda lines: lines.insert(5, lines[5]), "it should be seq 6"),
        "two lines exchanged": (lambda lines: lines.insert(5, lines.pop(6)), "it should be seq 5"),
        "another version": (lambda lines: lines[3].update(version=9), "from version 2 to 9"),
        "an earlier time": (lambda lines: lines[3].update(time_ns=1), "its time is out of order"),
        "a time beyond 64 bits": (lambda lines: lines[-1].update(time_ns=2**63), "beyond 64 bits"),
        "a moment beyond 64 bits": (lambda lines: lines[3].update(occurred_ns=-(2**63) - 1), "beyond 64 bits"),
        "a command of the future": (lambda lines: lines[3].update(command=9), "its command"),
        "a cause of the future": (lambda lines: lines[3].update(cause=9), "cause"),
        "an actor that nobody named": (lambda lines: lines[3].update(actor="tool:never"), "'tool:never' was not named"),
        "an unknown kind of event": (lambda lines: lines[3].update(kind="dreamt"), "unknown kind 'dreamt'; upgrade"),
        "an unknown kind of stream": (lambda lines: lines[3].update(stream="dream/x"), "of no known kind"),
        "a stream without a name": (lambda lines: lines[3].update(stream="profile/"), "of no known kind"),
        "an unknown field": (lambda lines: lines[2]["event"].update(mood="calm"), "unknown fields mood"),
        "a missing field": (lambda lines: lines[2]["event"].pop("tokens"), "is not a message_appended event"),
        "another type": (lambda lines: lines[2]["event"].update(tokens="3"), "is not a message_appended event"),
        "another role": (lambda lines: lines[2]["event"].update(role="robot"), "is not a message_appended event"),
        "negative tokens": (lambda lines: lines[2]["event"].update(tokens=-3), "tokens is -3"),
        "tokens beyond 64 bits": (lambda lines: lines[2]["event"].update(tokens=2**80), "tokens is"),
        "a content of numbers": (lambda lines: lines[2]["event"].update(content=[5]), "content[0] must be a dict"),
        "metadata in a list": (lambda lines: lines[2]["event"].update(metadata=[]), "metadata must be a dict"),
        "a source of the future": (
            lambda lines: lines[place_of(lines, "note_added")]["event"].update(sources=[99]),
            "a seq that does not come before it",
        ),
        "a negative source": (
            lambda lines: lines[place_of(lines, "note_added")]["event"].update(sources=[-1]),
            "a seq that does not come before it",
        ),
        "a prior of the future": (
            lambda lines: lines[place_of(lines, "scratchpad_deleted")]["event"].update(prior=99),
            "points at a seq",
        ),
        "a base of itself": (
            lambda lines: lines[place_of(lines, "restored")]["event"].update(
                base_seq=lines[place_of(lines, "restored")]["seq"]
            ),
            "points at a seq",
        ),
        "a base that is not": (
            lambda lines: lines[place_of(lines, "forked")]["event"].update(base_stream="conversation/x"),
            "no stream that comes before it",
        ),
        "a base without a name": (
            lambda lines: lines[place_of(lines, "forked")]["event"].update(base_stream=""),
            "no stream that comes before it",
        ),
        "a base in no fork": (
            lambda lines: lines[place_of(lines, "forked")]["event"].update(base_branch="never"),
            "is not a forked event",
        ),
        "a base of another kind": (
            lambda lines: lines[place_of(lines, "restored")]["event"].update(base_stream="project/project"),
            "is of another kind",
        ),
        "a fork of the memory that is not": (
            lambda lines: lines[place_of(lines, "branch_forked") + 1].update(branch="never"),
            "'never' was not forked before it",
        ),
        "a fork of the memory twice": (
            lambda lines: lines[last_of(lines, "branch_forked")]["event"].update(name="what if"),
            "'what if' is taken",
        ),
        "a fork of the memory with an erased one's name": (
            lambda lines: lines[place_of(lines, "branch_forked")]["event"].update(name="erased-1"),
            "'erased-1' is taken",
        ),
        "a fork of the memory from none": (
            lambda lines: lines[place_of(lines, "branch_forked")]["event"].update(base_branch="never"),
            "is not a branch_forked event",
        ),
        "a fork of the memory elsewhere": (
            lambda lines: lines[place_of(lines, "branch_forked")].update(stream="profile/x", version=1),
            "of the main line alone",
        ),
        "a fork of the memory from the future": (
            lambda lines: lines[place_of(lines, "branch_forked")]["event"].update(base_seq=999),
            "points at a seq",
        ),
        "a version that the fork did not inherit": (
            lambda lines: lines[place_of(lines, "branch_forked") + 1].update(version=1),
            "goes from version",
        ),
        "a policy of the future": (lambda lines: lines[1]["event"].update(policy=99), "policy 99 is unknown; upgrade"),
        "an imported policy of the future": (
            lambda lines: lines[place_of(lines, "state_imported")]["event"].update(policy=99),
            "policy 99 is unknown; upgrade",
        ),
        "fewer bodies than messages": (
            lambda lines: lines[place_of(lines, "state_imported")]["event"]["messages"].clear(),
            "0 messages have 1 bodies",
        ),
        "a category that there is not": (lambda lines: event_of(lines, "memory_added").update(category="zzz"), "'zzz'"),
        "an importance over 1": (lambda lines: event_of(lines, "memory_added").update(importance=1e308), "from 0 to 1"),
        "an importance below 0": (
            lambda lines: event_of(lines, "memories_decayed")["importances"].__setitem__(0, -1e308),
            "from 0 to 1",
        ),
        "a status that there is not": (lambda lines: event_of(lines, "memory_reviewed").update(status=""), "status is"),
        "a memory without content": (lambda lines: event_of(lines, "memory_added").update(content=" "), "is empty"),
        "a vector that is no numbers": (
            lambda lines: event_of(lines, "memory_added").update(vector="AAAA"),
            "no numbers of 4 bytes",
        ),
        "a vector without a direction": (
            lambda lines: event_of(lines, "memory_added").update(vector="AAAAAA=="),
            "nothing but zeros",
        ),
        "a dimension that no vector has": (
            lambda lines: event_of(lines, "embedder_switched").update(dim=0),
            "dim is 0",
        ),
        "a time that is none": (
            lambda lines: event_of(lines, "memory_unmerged")["incoming"].update(accessed_ns=2**63),
            "accessed_ns is 9223372036854775808",
        ),
        "a count below 0": (
            lambda lines: event_of(lines, "memory_unmerged")["incoming"].update(access_count=-1),
            "access_count is -1",
        ),
        "a memory that came from nothing": (
            lambda lines: event_of(lines, "memory_unmerged").update(incoming={"content": "x"}),
            "incoming is no memory",
        ),
        "a budget of nothing": (lambda lines: lines[1]["event"].update(window_tokens=0), "window_tokens is 0"),
        "a budget that is too large": (
            lambda lines: event_of(lines, "window_resized").update(window_tokens=2**41),
            "WINDOW_TOKENS_MAX",
        ),
        "too many tokens": (lambda lines: lines[2]["event"].update(tokens=2**41), "MESSAGE_TOKENS_MAX"),
        "an empty key": (lambda lines: event_of(lines, "scratchpad_set").update(key=""), "key is empty"),
        "a long key": (lambda lines: event_of(lines, "profile_set").update(key="k" * 4_097), "KEY_BYTES_MAX"),
        "a day of no calendar": (
            lambda lines: event_of(lines, "journal_appended").update(day="2026-02-29"),
            "2026-02-29",
        ),
        "a value that is nested deeply": (
            lambda lines: event_of(lines, "state_set").update(value=nested(100)),
            "JSON_DEPTH_MAX",
        ),
        "metadata nested deeply": (
            lambda lines: lines[2]["event"].update(metadata={"a": nested(100)}),
            "JSON_DEPTH_MAX",
        ),
        "a setting that there is not": (
            lambda lines: event_of(lines, "setting_changed").update(key="zzz"),
            "no setting 'zzz'",
        ),
        "a setting of another type": (
            lambda lines: event_of(lines, "setting_changed").update(value=5),
            "True or False",
        ),
        "a use that there is not": (lambda lines: event_of(lines, "usage_counted").update(kind="zzz"), "kind is 'zzz'"),
        "an outcome that there is not": (
            lambda lines: event_of(lines, "episode_recorded").update(kind="zzz"),
            "give one of success",
        ),
        "fewer scores than memories": (
            lambda lines: event_of(lines, "memories_recalled").update(scores=[0.5] * 9),
            "have 9 scores",
        ),
        "a conversation restored to nothing": (
            lambda lines: event_of(lines, "restored").update(base_seq=0),
            "conversation/chat is not open",
        ),
        "a conversation that was not opened": (
            lambda lines: lines[1].update(kind="window_resized", event={"window_tokens": 5}),
            "is not open",
        ),
    }

    @pytest.mark.parametrize("what", CHANGES)
    def test_a_file_that_was_changed(self, exported: Path, what: str) -> None:
        change, words = self.CHANGES[what]
        lines = lines_of(exported)
        change(lines)
        lines[0]["head"] = len(lines) - 1
        rewrite(exported, lines)
        memory = Memory()
        with refused(memory, InvalidInput, "line ", "seq ", words):
            memory.load(exported)
        assert memory.head == 0

    ODD: tuple[Any, ...] = (-1, 0, 2**62, 1e308, -1e308, "", "zzz", "../x", "x" * 5_000, [], {}, None, [5], nested(100))

    @pytest.mark.slow
    def test_no_value_of_a_field_gets_past_a_load_and_spoils_a_read(self, exported: Path, tmp_path: Path) -> None:
        lines = lines_of(exported)
        kinds = {line["kind"]: place for place, line in reversed(list(enumerate(lines))) if place}
        for place in kinds.values():
            for field in lines[place]["event"]:
                for value in self.ODD:
                    changed = copy.deepcopy(lines)
                    changed[place]["event"][field] = value
                    rewrite(tmp_path / "changed", changed)
                    with Memory() as memory:
                        refusal = ""
                        try:
                            memory.load(tmp_path / "changed")
                        except InvalidInput as error:
                            refusal = str(error)
                        if refusal:
                            assert refusal.startswith("line ")
                        else:
                            read_all(memory)

    def test_a_line_nested_deeper_than_a_parser_goes(self, exported: Path) -> None:
        head, first, *_ = exported.read_text(encoding="utf-8").splitlines()
        deep = first[:-1] + ',"x":' + "[" * 100_000 + "]" * 100_000 + "}"
        exported.write_text(f"{head}\n{deep}\n", encoding="utf-8")
        memory = Memory()
        with refused(memory, InvalidInput, "line 2 is not an event"):
            memory.load(exported)

    @pytest.mark.parametrize("place", [0, 1, 3])
    def test_bytes_that_are_no_text(self, exported: Path, place: int) -> None:
        lines = exported.read_bytes().splitlines(keepends=True)
        lines[place] = lines[place][:10] + b"\xff" + lines[place][10:]
        exported.write_bytes(b"".join(lines))
        memory = Memory()
        with refused(memory, InvalidInput, f"line {place + 1} is not"):
            memory.load(exported)

    def test_text_that_is_no_utf_8(self, exported: Path) -> None:
        lines = exported.read_bytes().splitlines(keepends=True)
        assert b"hello" in lines[2]
        lines[2] = lines[2].replace(b"hello", b"hel\xfflo", 1)
        exported.write_bytes(b"".join(lines))
        memory = Memory()
        with refused(memory, InvalidInput, "line 3 is not an event"):
            memory.load(exported)

    @pytest.mark.parametrize("place", [0, 2])
    def test_a_line_that_never_ends_is_not_read_to_its_end(
        self, exported: Path, monkeypatch: pytest.MonkeyPatch, place: int
    ) -> None:
        monkeypatch.setattr(transfer, "DOCUMENT_BYTES_MAX", 4_096)
        lines = exported.read_bytes().splitlines(keepends=True)[:place]
        with exported.open("wb") as file:
            file.writelines(lines)
            file.truncate(1_000_000_000)  # Sparse: a gigabyte of NULs that takes no disk.
        memory = Memory()
        tracemalloc.start()
        try:
            with refused(memory, RefoldError, f"line {place + 1} is"):
                memory.load(exported)
            assert tracemalloc.get_traced_memory()[1] < 10_000_000
        finally:
            tracemalloc.stop()


class TestLoadingTwice:
    def test_changes_nothing_and_says_so(self, tmp_path: Path, exported: Path) -> None:
        with remembering(tmp_path / "store") as memory:
            first = memory.load(exported)
            head, hashed = memory.head, memory.state_hash()
            second = memory.load(exported)
            assert (second.events, second.streams, second.repeated) == (0, first.streams, True)
            assert (memory.head, memory.state_hash()) == (head, hashed)


class TestAnInterruptedLoad:
    @pytest.fixture(autouse=True)
    def in_small_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(transfer, "_LOAD_EVENTS", 7)

    @staticmethod
    def interrupt(done: int, whole: int) -> None:
        if done >= 14:
            raise KeyboardInterrupt(whole)

    @pytest.mark.parametrize("reopened", [False, True])
    def test_goes_on_where_it_stopped(self, tmp_path: Path, exported: Path, reopened: bool) -> None:
        memory = Memory(tmp_path / "store")
        with pytest.raises(KeyboardInterrupt):
            memory.load(exported, self.interrupt)
        assert memory.head == 14
        assert_sound(memory)
        if reopened:
            memory.close()
            memory = Memory(tmp_path / "store")
        memory.load(exported)
        with Memory() as whole:
            whole.load(exported)
            assert (memory.head, memory.state_hash()) == (whole.head, whole.state_hash())
        assert_sound(memory)
        assert memory.load(exported).repeated
        memory.close()

    def test_of_another_file_is_refused(self, tmp_path: Path, exported: Path) -> None:
        memory = Memory()
        with pytest.raises(KeyboardInterrupt):
            memory.load(exported, self.interrupt)
        lines = lines_of(exported)
        lines[2]["event"]["content"] = "changed"
        rewrite(tmp_path / "changed", lines)
        with refused(memory, InvalidInput, "new store"):
            memory.load(tmp_path / "changed")

    def test_that_was_written_into_since_does_not_go_on(self, exported: Path) -> None:
        memory = Memory()
        with pytest.raises(KeyboardInterrupt):
            memory.load(exported, self.interrupt)
        memory.profile().set("written", "since")
        with refused(memory, InvalidInput, "new store"):
            memory.load(exported)
        assert_sound(memory)


def test_a_body_that_is_not_what_was_written_is_not_exported(tmp_path: Path) -> None:
    """An export has no digests: whoever loaded it would take the damage for what was said."""
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("chat")
        for text in ("first", "second", "third"):
            chat.append("user", text)
        memory.export(tmp_path / "before.jsonl")
        log = log_of(memory)
        ((_, record),) = log.read(2, 3)
        erase(log, [(3, record.replace(b"second", b"SECOND"))], [])
        with pytest.raises(StoreCorrupt, match="seq 3"):
            memory.export(tmp_path / "after.jsonl")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["before.jsonl", "store"]
        found = memory.verify().findings
        assert [(finding.check, finding.seq) for finding in found] == [("chain", 3)]
        assert chat.erase().occurrences == 0
        # The erasure takes the text, and not the evidence that it was another one.
        assert [(finding.check, finding.seq) for finding in memory.verify().findings] == [("chain", 3)]


@pytest.mark.parametrize("has_events", [False, True], ids=["empty", "joined"])
def test_an_export_of_a_moment_before_an_erasure_is_loaded_with_what_was_erased(
    tmp_path: Path, *, has_events: bool
) -> None:
    with Memory() as memory:
        chat = memory.conversation("chat")
        messages = [chat.append("user", text) for text in ("first", "second", "third")]
        moment = memory.at(memory.head)
        memory.erase(messages[:2])
        moment.export(tmp_path / "export.jsonl")
    with Memory(tmp_path / "store") as memory:
        if has_events:
            memory.profile().set("k", "v")
        for _ in range(2):
            memory.load(tmp_path / "export.jsonl")
            erasures = [event for event, _ in memory.events() if type(event).__name__ == "Erased"]
            assert [len(getattr(event, "seqs")) for event in erasures] == [2]  # noqa: B009 - of one kind
            assert [message.content for message in memory.conversation("chat").window()] == [None, None, "third"]
            assert_sound(memory)


def test_an_export_that_finds_no_space_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Memory() as memory:
        memory.profile().set("k", "v")
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StoreFull, match=r"exporting to .* No space left"):
            memory.export(tmp_path / "export.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_an_export_looks_up_the_digests_of_erasures_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The stream that has them grows with every context that is shown."""
    looks: list[object] = []

    def look(*given: Any, **named: Any) -> Any:
        looks.append(given)
        return events_with(*given, **named)

    monkeypatch.setattr(transfer, "events_with", look)
    with Memory(clock_ns=Clock()) as memory:
        chat = memory.conversation("c")
        messages = [chat.append("user", f"message {number}") for number in range(40)]
        for message in messages[::4]:
            memory.erase([message])
        memory.export(tmp_path / "log.jsonl")
        with Memory(clock_ns=Clock()) as copy:
            copy.load(tmp_path / "log.jsonl")
            assert copy.state_hash() == memory.state_hash()
    assert len(looks) == 1
