"""Looking at what there is: whole messages and values, single events, names that do not exist, and hostile text."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from refold.agent import files_tool
from refold.cli import output
from refold.cli.root import suggest_name
from tests.support.command import Run, running

LONG = "first line of a long message\n" + " ".join(f"word{number}" for number in range(60)) + "\nlast line"
ARGUMENTS = {"path": "a.txt", "depth": 3}
EVIL = "\x1b[2J\x1b[31mred\x1b[0m \x9b1A \u202egnp.exe \x07 \x00"
COMMAND = [sys.executable, "-c", "import sys; from refold.cli import main; sys.exit(main())"]


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process, on lines of 120 characters."""
    monkeypatch.setenv("COLUMNS", "120")
    return running(monkeypatch, capfd)


@pytest.fixture
def store(tmp_path: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: ARG001 - it clears the environment first
    path = tmp_path / "store"
    monkeypatch.setenv("REFOLD_DB", str(path))
    with Memory(path) as memory:
        memory.profile().set("before", "the conversation")
        chat = memory.conversation("chat-42", project="acme")
        chat.append("user", LONG)
        call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": json.dumps(ARGUMENTS)}}
        chat.append("assistant", None, tool_calls=[call])
        chat.append("tool", "the content of a.txt", tool_call_id="c1")
        chat.scratchpad.set("plan", LONG)
        chat.session.record_call("read", ARGUMENTS, {"text": "the content"}, call_id="c1")
        memory.project("acme").add("The port is 8080.", importance=0.4)
        memory.project("acme").add("A guess.", status="pending_review")
        memory.tools.register(files_tool())
        memory.files().create("/memories/notes.txt", "one\ntwo\n")
    return path


def events(refold: Run, *arguments: object) -> list[Any]:
    return refold("log", "--json", *arguments).json_lines


class TestWholeTexts:
    def test_a_line_has_as_much_as_fits_and_full_has_all(self, store: Path, refold: Run) -> None:
        line = next(line for line in refold("show", "chat-42").out.splitlines() if "first line" in line)
        assert 110 <= len(line) <= 120
        assert "word59" not in refold("show", "chat-42").out
        full = refold("show", "chat-42", "--full").out
        assert "          last line\n" in full
        assert full.count("word59") == 2, "in the message and in the scratchpad"
        assert store.is_dir()

    @pytest.mark.usefixtures("store")
    def test_wider_terminals_show_more(self, refold: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        narrow = max(map(len, refold("show", "chat-42").out.splitlines()))
        monkeypatch.setenv("COLUMNS", "300")
        wide = max(map(len, refold("show", "chat-42").out.splitlines()))
        assert narrow <= 120 < wide <= 300

    @pytest.mark.usefixtures("store")
    def test_calls_are_shown_with_their_arguments_and_answers(self, refold: Run) -> None:
        shown = refold("show", "chat-42").out
        assert 'assistant: calls read({"path": "a.txt", "depth": 3})' in shown
        assert "tool: the content of a.txt" in shown

    @pytest.mark.usefixtures("store")
    def test_one_event_is_shown_whole(self, refold: Run) -> None:
        (message,) = [event for event in events(refold) if event["event"].get("role") == "user"]
        shown = refold("show", "--seq", message["seq"])
        assert shown.out.splitlines()[2:] == [f"          {line}" for line in LONG.split("\n")]
        assert refold("show", "--seq", message["seq"], "--json").json["event"]["content"] == LONG
        missing = refold("show", "--seq", 999)
        assert (missing.code, "there is no event 999 here" in missing.err) == (1, True)
        for wrong in ((), ("chat-42", "--seq", "3"), ("--seq", 3, "--context", 3)):
            assert refold("show", *wrong).code == 2

    @pytest.mark.usefixtures("store")
    def test_what_cannot_be_shown_together_is_named(self, refold: Run) -> None:
        given = {
            ("three", "--context", 35): "CONVERSATION and --context were given together; ",
            ("--context", 35, "--seq", 3): "--seq and --context were given together; ",
            ("three", "--seq", 3, "--context", 35): "CONVERSATION and --seq and --context were given together; ",
            (): "",
        }
        advice = (
            "give a CONVERSATION, --seq with the seq of an event, or --context with the seq of a context or an answer"
        )
        for arguments, found in given.items():
            shown = refold("show", *arguments)
            assert (shown.code, shown.err.splitlines()[-1]) == (2, f"Error: {found}{advice}")

    @pytest.mark.usefixtures("store")
    def test_the_log_and_a_replay_can_be_full(self, refold: Run) -> None:
        for verb in (("log",), ("replay", "chat-42")):
            assert "word59" not in refold(*verb).out
            assert "word59" in refold(*verb, "--full").out

    @pytest.mark.usefixtures("store")
    def test_arguments_and_results_are_json_and_vectors_numbers(self, refold: Run) -> None:
        (call,) = events(refold, "--kind", "tool_executed")
        assert (call["event"]["arguments"], call["event"]["result"]) == (ARGUMENTS, {"text": "the content"})
        assert 'arguments = {"path":"a.txt","depth":3}' in refold("log", "--full").out
        added, _ = events(refold, "--kind", "memory_added")
        assert added["event"]["vector"] == {"dim": 512}
        whole = refold("show", "--seq", added["seq"], "--json").json["event"]["vector"]
        assert len(whole) == 512
        assert all(isinstance(number, float) for number in whole)
        (history,) = refold("history", added["event"]["id"], "--project", "acme", "--json").json_lines
        assert history == added

    @pytest.mark.usefixtures("store")
    def test_a_conversation_that_had_not_begun_is_said(self, refold: Run) -> None:
        early = refold("show", "chat-42", "--at", 1)
        assert (early.code, early.out) == (1, "")
        assert "chat-42 began at seq 2, after seq 1" in early.err
        fork = refold("fork", "chat-42", "early", "--at", 1)
        assert (fork.code, fork.out) == (1, "")
        assert "conversation/chat-42 began at seq 2, after seq 1; give a seq from 2 on" in fork.err

    def test_a_context_is_shown_with_the_messages_of_its_window(self, store: Path, refold: Run) -> None:
        with Memory(store) as memory:
            chat = memory.conversation("chat-42")
            seq = memory.show(memory.context(chat))
            first = chat.window()[0].seq
        shown, full = refold("show", "--context", seq).out, refold("show", "--context", seq, "--full").out
        assert "window  3 messages\n" in shown
        assert f"{first:>8}  user: first line of a long message" in shown
        assert "tool: the content of a.txt" in shown
        assert shown.count("word59") + 1 == full.count("word59")

    def test_an_erased_context_says_so(self, store: Path, refold: Run) -> None:
        with Memory(store) as memory:
            seq = memory.show(memory.context(memory.conversation("chat-42")))
            memory.erase([seq])
            head = memory.head
        shown = refold("show", "--context", seq)
        assert (shown.code, shown.out) == (1, "")
        assert f"the context that was shown at seq {seq} was erased at seq {head}" in shown.err


class TestNamesThatDoNotExist:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (("show", "chat-4"), "there is no conversation 'chat-4'; did you mean 'chat-42'?"),
            (("replay", "42"), "there is no conversation '42'; did you mean 'chat-42'?"),
            (("diff", "1", "chat42"), "did you mean 'chat-42'?"),
            (("log", "--stream", "conversation/chat-24"), "no stream 'conversation/chat-24' here; did you mean"),
            (("log", "--kind", "message_append"), "no kind 'message_append' here; did you mean 'message_appended'?"),
            (("memories", "--project", "acne"), "there is no project 'acne'; did you mean 'acme'?"),
            (("search", "port", "--project", "acne"), "did you mean 'acme'?"),
            (("decay", "--project", "acne"), "did you mean 'acme'?"),
            (("history", "x", "--project", "acne"), "did you mean 'acme'?"),
            (("update", "x", "--content", "y", "--project", "acme"), "project acme has no memory 'x'"),
            (("delete", "x", "--project", "acme"), "project acme has no memory 'x'"),
            (("review", "x", "active", "--project", "acme"), "project acme has no memory 'x'"),
            (("restore", "chat-42", "noon"), "chat-42 has no snapshot named 'noon'"),
            (("profile", "delete", "befor"), "profile default has no key 'befor'; did you mean 'before'?"),
            (("files", "show", "/memories/note.txt"), "did you mean '/memories/notes.txt'?"),
            (("settings", "set", "memory_enable", "true"), "did you mean 'memory_enabled'?"),
        ],
    )
    @pytest.mark.usefixtures("store")
    def test_they_are_said_with_the_nearest(self, refold: Run, arguments: tuple[str, ...], says: str) -> None:
        ended = refold(*arguments)
        assert (ended.code, ended.out) == (1, "")
        assert says in ended.err

    def test_what_is_of_the_whole_memory_says_so(self, store: Path, refold: Run) -> None:
        with Memory(store) as memory:
            memory.snapshot("clean")
            memory.fork("trial").profile().set("theme", "light")
        assert (
            "'clean' is a snapshot of the whole memory; memory.restore('clean')"
            in refold("restore", "chat-42", "clean").err
        )
        assert "'trial' is a fork of the memory; memory.fork('trial')" in refold("show", "trial").err

    @pytest.mark.usefixtures("store")
    def test_a_default_project_that_is_empty_says_which_there_are(self, refold: Run) -> None:
        ended = refold("memories")
        assert (ended.code, ended.out) == (0, "")
        assert "project default is empty; --project selects another: acme" in ended.err

    def test_nothing_alike_is_nothing_said(self) -> None:
        assert suggest_name("zzz", ["chat-42", "other"]) == ""
        assert suggest_name("42", ["chat-42"]) == "; did you mean 'chat-42'?"
        assert suggest_name("", ["chat-42"]) == ""


class TestWhatOutlivesConversations:
    @pytest.mark.usefixtures("store")
    def test_a_profile(self, refold: Run) -> None:
        assert refold("profile", "set", "theme", "dark").out == "theme = dark\n"
        assert refold("profile", "set", "theme", "dark", "--json").json["changed"] is False
        assert refold("profile", "list").out == "before = the conversation\ntheme = dark\n"
        assert refold("profile", "list", "--at", 1, "--json").json["facts"] == {"before": "the conversation"}
        assert refold("profile", "delete", "theme").out == "theme deleted\n"
        assert refold("profile", "list", "--name", "other", "--json").json == {"profile": "other", "facts": {}}

    def test_an_empty_profile_or_journal_names_the_others(self, refold: Run, store: Path) -> None:
        assert refold("journal", "list", "--name", "none").err.startswith("journal none is empty; ")
        with Memory(store) as memory:
            memory.profile().delete("before")
            for name in ("ada", "bob"):
                memory.profile(name).set("phone", "1")
                memory.journal(name).append("called")
        ended = refold("profile", "list")
        assert (ended.code, ended.out) == (0, "")
        assert ended.err == "profile default is empty; --name selects another: ada, bob\n"
        assert "--name selects another: ada, bob" in refold("journal", "list", "--name", "none").err
        assert refold("profile", "list", "--name", "ada").err == ""
        blamed = refold("blame", "phone")
        assert (blamed.code, "--name selects another profile" in blamed.err) == (1, True)
        assert refold("blame", "phone", "--name", "ada").code == 0

    def test_the_context_of_an_answer_is_one_step_away(self, refold: Run, store: Path) -> None:
        with Memory(store) as memory:
            chat = memory.conversation("asked")
            chat.append("user", "Which port?")
            seq = memory.show(memory.context(chat))
            answer = chat.append("assistant", "It is 5432.")
        assert f"memory.rebuild({seq}) shows it" in refold("why", answer.seq).out
        shown = refold("show", "--context", answer.seq)
        assert shown.out.splitlines()[-1] == f"context at seq {seq}: identical to what was shown"
        assert refold("show", "--context", answer.seq, "--json").json["seq"] == seq

    def test_a_table(self, refold: Run, store: Path) -> None:
        with Memory(store) as memory:
            table = memory.table("jobs")
            table.put(("mail", "7"), {"state": "sent", "raw": b"\x00\xff"})
            table.put(("mail", "7"), {"state": "seen"})
            table.put("other", LONG)
        assert refold("table", "list").out == "        2  jobs\n"
        listed = refold("table", "list", "jobs")
        assert listed.out.startswith('mail/7 = {"state":"seen"}\n')
        assert "last line" not in listed.out
        assert "last line" in refold("table", "list", "jobs", "--full").out
        assert refold("table", "list", "jobs", "--limit", "1").out.endswith(
            "1 more; see them with --limit or --prefix\n"
        )
        assert [
            item["key"] for item in refold("table", "list", "jobs", "--prefix", "mail/7", "--json").json["items"]
        ] == [["mail", "7"]]
        shown = refold("table", "show", "jobs", "mail", "7")
        assert [line.split(None, 1)[1] for line in shown.out.splitlines()] == [
            '{"state":"sent","raw":{"$bytes":"AP8="}}',
            '{"state":"seen"}',
        ]
        assert refold("table", "show", "jobs", "mail/7").out == shown.out, "as it is listed"
        missing = refold("table", "show", "jobs", "othre")
        assert (missing.code, "other" in missing.err) == (1, True), missing.err
        assert refold("table", "list", "jbos").code == 1

    def test_the_name_of_a_project_is_taken_as_a_terminal_shows_it(self, refold: Run, store: Path) -> None:
        with Memory(store) as memory:
            memory.project("users\x1fann").add("Likes tea.")
        assert "Likes tea." in refold("memories", "--project", "users\\x1fann").out
        assert refold("memories", "--project", "users\\x1fbob").code == 1

    @pytest.mark.usefixtures("store")
    def test_a_journal(self, refold: Run) -> None:
        assert refold("journal", "append", "Chose LMDB.", "--day", "2026-11-21").out == "2026-11-21  Chose LMDB.\n"
        assert refold("journal", "append", LONG).code == 0
        assert "Chose LMDB." in refold("journal", "list", "--day", "2026-11-21").out
        assert "last line" not in refold("journal", "list").out
        assert "last line" in refold("journal", "list", "--full").out
        assert [note["text"] for note in refold("journal", "list", "--json").json["notes"]][-1] == LONG
        assert refold("journal", "list", "--day", "soon").code == 1

    @pytest.mark.usefixtures("store")
    def test_files(self, refold: Run) -> None:
        assert refold("files", "list").out == "        8  /memories/notes.txt\n"
        assert refold("files", "show", "/memories/notes.txt").out == "one\ntwo\n\n"
        assert refold("files", "show", "/memories/notes.txt", "--json").json["text"] == "one\ntwo\n"

    @pytest.mark.usefixtures("store")
    def test_settings(self, refold: Run) -> None:
        assert refold("settings", "list", "--json").json["settings"]["memory_enabled"] is True
        assert refold("settings", "set", "memory_enabled", "false").out == "memory_enabled = false\n"
        assert refold("settings", "set", "memory_max_injected", "5", "--json").json["value"] == 5
        assert "memory_enabled = false\n" in refold("settings", "list").out
        for wrong in ("maybe", "-1"):
            ended = refold("settings", "set", "--", "memory_max_injected", wrong)
            assert (ended.code, ended.out) == (1, "")

    @pytest.mark.usefixtures("store")
    def test_memories_are_changed_reviewed_deleted_and_cleared(self, refold: Run) -> None:
        own = ("--project", "acme")
        port, guess = refold("memories", *own, "--json").json["memories"]
        changed = refold("update", port["id"], "--content", "The port is 9090.", "--importance", 0.9, *own, "--json")
        assert (changed.json["memory"]["content"], changed.json["memory"]["importance"]) == ("The port is 9090.", 0.9)
        assert refold("update", port["id"], *own).code == 2
        assert [entry["id"] for entry in refold("review", *own, "--json").json["memories"]] == [guess["id"]]
        assert refold("review", guess["id"], *own).code == 2
        assert refold("review", guess["id"], "active", *own, "--json").json["memory"]["status"] == "active"
        assert refold("review", *own).out == ""
        assert refold("delete", guess["id"], *own).out == f"{guess['id']} deleted\n"
        assert "          The port is 9090.\n" in refold("memories", *own, "--full").out
        assert refold("clear", "--yes", *own).out == "acme: 1 memory deleted\n"
        assert refold("memories", "--at", 8, *own, "--json").json["count"] == 1


class TestHostileText:
    @pytest.fixture
    def evil(self, tmp_path: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: ARG002 - as above
        path = tmp_path / "evil"
        monkeypatch.setenv("REFOLD_DB", str(path))
        with Memory(path) as memory:
            chat = memory.conversation("chat\x1b[31m", project="p\x1b]0;title\x07")
            chat.append("user", EVIL, name="n\x1b[2J")
            chat.scratchpad.set("k\x1b[2J", EVIL)
            chat.state.set("s\x1b[2J", EVIL)
            memory.profile().set("f\x1b[2J", EVIL)
            memory.journal().append(EVIL)
            memory.files().create("/memories/a", EVIL.replace("\x00", ""))
            memory.project("p\x1b]0;title\x07").add(EVIL)
            memory.show(memory.context(chat))
            chat.snapshot("snap\x1b[2J")
        return path

    VERBS = (
        ("list",),
        ("show", "chat\x1b[31m"),
        ("show", "chat\x1b[31m", "--full"),
        ("show", "chat\x1b[3m"),
        ("show", "--seq", 2),
        ("log",),
        ("log", "--full"),
        ("replay", "chat\x1b[31m", "--full"),
        ("diff", 0, 6),
        ("search", "exe", "--messages", "--full"),
        ("memories", "--project", "p\x1b]0;title\x07", "--full"),
        ("profile", "list", "--full"),
        ("journal", "list", "--full"),
        ("files", "show", "/memories/a"),
        ("verify",),
    )

    @pytest.mark.parametrize("arguments", VERBS, ids=lambda verb: " ".join(map(ascii, verb)))
    @pytest.mark.usefixtures("evil")
    def test_it_reaches_no_terminal(self, refold: Run, arguments: tuple[object, ...]) -> None:
        for form in ((), ("--json",)):
            ended = refold(*arguments, *form)
            assert "Missing option" not in ended.err
            assert not output._UNPRINTABLE.search(ended.out + ended.err)
            assert ended.out or ended.err

    def test_json_stays_what_it_was(self, evil: Path, refold: Run) -> None:
        assert refold("profile", "list", "--json").json["facts"] == {"f\x1b[2J": EVIL}
        assert evil.is_dir()

    def test_a_terminal_gets_no_more_than_its_own_colours(self, evil: Path) -> None:
        command, terminal = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
        ends: dict[str, Any] = {"stdout": terminal, "stderr": terminal}
        ended = subprocess.run([*COMMAND, "show", "chat\x1b[31m"], check=False, env=environment, **ends)
        os.close(terminal)
        shown = os.read(command, 1 << 16).decode()
        assert (ended.returncode, evil.is_dir()) == (0, True)
        assert "[2J" in shown
        assert "\x1b[2J" not in shown
        assert "\x9b" not in shown


class TestWhy:
    def test_a_number_above_the_last_seq_is_words(self, store: Path, refold: Run) -> None:  # noqa: ARG002 - filled
        assert "memory of seq" in refold("why", "8080").out.splitlines()[0]
        assert "memory of seq" in refold("influence", "8080").out
        assert "no event up to" in refold("why", "9" * 5_000).out
        behind = refold("influence", "9999")
        assert (behind.code, behind.out) == (1, "")
        assert "no event is at seq 9999 and none holds it; the last one is" in behind.err

    def test_the_newest_contexts_are_printed_and_with_full_all(self, store: Path, refold: Run) -> None:
        with Memory(store) as memory:
            for _ in range(9):
                memory.show(memory.context(memory.conversation("chat-42"), query="port 8080", project="acme"))
        lines = refold("why", "The port is 8080.").out.splitlines()
        assert lines[0].startswith("memory of seq 8 in project/acme: present since seq 8, ")
        assert sum("  shown" in line for line in lines) == 4
        assert any("6 earlier ones not printed" in line for line in lines)
        assert sum("  shown" in line for line in refold("why", "The port is 8080.", "--full").out.splitlines()) == 9


def test_a_conversation_that_waits_for_an_answer_says_so(store: Path, refold: Run) -> None:
    with Memory(store) as memory:
        seq = memory.conversation("open").append("user", "Is anybody there?").seq
    told = f"message {seq} has no answer; continue with AgentLoop.resume() or the framework that wrote it"
    assert told in refold("show", "open").out
    with Memory(store) as memory:
        memory.conversation("open").append("assistant", "Yes.")
    assert told not in refold("show", "open").out
    assert told not in refold("show", "open", "--at", seq).out


class TestTimesOfTheLog:
    """A time that a command prints is cut; given to an option, it includes the event that it stands beside."""

    @pytest.fixture
    def memory(self, tmp_path: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:  # noqa: ARG002 - it clears the environment first
        path = tmp_path / "timed"
        monkeypatch.setenv("REFOLD_DB", str(path))
        times = iter([second * 1_000_000_000 + 737_654_321 for second in range(1_800_000_000, 1_800_000_100)])
        with Memory(path, clock_ns=lambda: next(times)) as memory:
            chat = memory.conversation("a")
            for text in ("one", "two", "three"):
                chat.append("user", text)
            yield memory

    @staticmethod
    def times(refold: Run, seq: int) -> list[str]:
        """The time of an event as the log prints it, to the second, and to a digit more."""
        printed = next(line.split()[1] for line in refold("log").out.splitlines() if int(line.split()[0]) == seq)
        assert printed.endswith(".737Z")
        return [printed, printed.replace(".737Z", "Z"), printed.replace(".737Z", ",7376+00:00")]

    def test_what_ends_with_a_time_has_its_event(self, memory: Memory, refold: Run) -> None:
        for time in self.times(refold, 3):
            assert [line["seq"] for line in events(refold, "--until", time)] == [1, 2, 3]
            assert refold("show", "a", "--at", time, "--json").json["at"] == 3
            steps = refold("replay", "a", "--to", time, "--json").json_lines
            assert [step["seq"] for step in steps] == [1, 2, 3]
            assert refold("diff", 3, time, "--json").json["changes"] == []
            shown = refold("show", "a", "--at-occurred", time, "--json").json
            assert [message["content"] for message in shown["messages"]] == ["one", "two"]
        assert memory.head == 4

    def test_what_begins_with_a_time_has_its_event(self, memory: Memory, refold: Run, tmp_path: Path) -> None:
        file = tmp_path / "holds-two"
        file.write_text("len(chat.window()) > 1")
        for time in self.times(refold, 3):
            assert [line["seq"] for line in events(refold, "--after", time)] == [3, 4]
            steps = refold("replay", "a", "--from", time, "--json").json_lines
            assert [step["seq"] for step in steps] == [3, 4]
            assert refold("bisect", "a", "--after", time, "--python", file, "--json").json["seq"] == 3
        assert memory.head == 4

    def test_a_time_to_the_microsecond_is_that_microsecond(self, memory: Memory, refold: Run) -> None:
        time = self.times(refold, 3)[0].removesuffix("Z")
        assert [line["seq"] for line in events(refold, "--until", f"{time}654Z")] == [1, 2, 3]
        assert [line["seq"] for line in events(refold, "--until", f"{time}653999Z")] == [1, 2]
        assert [line["seq"] for line in events(refold, "--after", f"{time}654Z")] == [3, 4]
        assert [line["seq"] for line in events(refold, "--after", f"{time}655Z")] == [4]
        assert memory.head == 4

    def test_a_time_that_is_none_is_refused_as_it_was_given(self, memory: Memory, refold: Run) -> None:
        for option in ("--after", "--until"):
            ended = refold("log", option, "2027-01-15T08:00:01")
            assert (ended.code, ended.out) == (1, "")
            assert "the naive datetime 2027-01-15 08:00:01; give it a time zone" in ended.err
            assert "'noon' is neither a seq nor a time" in refold("log", option, "noon").err
        assert len(events(refold, "--after", "0001-01-01T00:00:00Z")) == memory.head
        assert events(refold, "--after", "9999-12-31T23:59:59Z") == []


def test_a_difference_says_what_a_message_holds(tmp_path: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_DB", str(tmp_path / "held"))
    call = {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    with Memory(tmp_path / "held") as memory:
        chat = memory.conversation("a")
        chat.append("user", "SECRET-1")
        chat.append("assistant", "I read it.", tool_calls=[call])
        chat.append("user", "")
        chat.state.set("bot", {"role": "guard", "level": 2})
        memory.erase(text="SECRET-1")
    lines = [line.partition(": ")[2] for line in refold("diff", 1, 5).out.splitlines() if "window.messages" in line]
    assert lines == ["user: erased", "assistant: I read it.; calls read({})", "user:"]
    assert 'bot: {"role":"guard","level":2}' in refold("diff", 1, 5).out


def test_a_number_above_the_last_seq_counts_as_words(
    tmp_path: Path, refold: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_DB", str(tmp_path / "numbers"))
    with Memory(tmp_path / "numbers") as memory:
        memory.conversation("long").append("user", "Order 5512 is for a blue lamp.")
    assert "came" in refold("why", "5512", "long").out
    assert "hit 1 of '5512'" in refold("why", "blue lamp", "long", "--missing-from", "5512").out
    assert refold("why", "blue lamp", "long", "--missing-from", "1").code == 1, "seq 1 is no context"
