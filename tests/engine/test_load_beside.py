"""Loading beside what is there: the same events under new seqs, whole commands, and no stream is written into."""

import json
import threading
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import Conversation, InvalidInput, Memory, Recorded
from refold.engine import transfer
from refold.engine.jsonl import event_to_json
from refold.importers import import_file
from refold.views.store import DEFAULTS, SettingChanged
from tests.engine.test_transfer import fill, lines_of, rewrite
from tests.support.memories import BEGIN_NS, Child, Clock, assert_sound, refused, remembering
from tests.support.seams import reader_of, records_in

RENAME = {
    "conversation/chat": "conversation/chat-2",
    "conversation/fork": "conversation/fork-2",
    "project/project": "project/project-2",
    "profile/default": "profile/default-2",
}
OFFSET = 7

WRITER = """
import sys
from refold import Memory
with Memory(sys.argv[1]) as memory:
    print("open", flush=True)
    for line in sys.stdin:
        memory.conversation("theirs").append("user", line, tokens=1)
        memory.conversation("theirs").snapshot(line.strip())
        print("done", flush=True)
"""


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    with Memory(clock_ns=Clock()) as memory:
        fill(memory)
        memory.export(tmp_path / "export.jsonl")
    return tmp_path / "export.jsonl"


def occupy(memory: Memory) -> None:
    """Write ``OFFSET`` events into streams that the export has too."""
    chat = memory.conversation("chat", project="project")
    chat.append("user", "mine", tokens=1)
    chat.scratchpad.set("key", "mine")
    chat.state["project:language"] = "Mine"
    chat.snapshot("named")
    memory.conversation("fork").scratchpad.set("key", "mine")
    assert memory.head == OFFSET


def shown(chat: Conversation) -> list[Any]:
    """What a conversation shows, without seqs and times of writing."""
    window = [
        (m.id, m.role, m.content, m.tokens, m.pinned, m.tool_calls, m.metadata, m.occurred_ns) for m in chat.window()
    ]
    return [window, chat.scratchpad.to_dict(), dict(chat.state.items()), chat.window_tokens, chat.version]


SESSIONS = (
    *(("conversation", "conversation/"), ("session", "conversation/")),
    *(("profile", "profile/"), ("journal", "journal/")),
)


def moved(value: Any, field: str, offset: int) -> Any:
    if field in {"prior", "base_seq", "origin", "kept_vector"}:
        return value + offset if value else value
    return [seq + offset for seq in value] if field in {"sources", "seqs"} else value


class TestBesideOthers:
    @pytest.mark.parametrize("page", [1, 5, 10_000])
    @pytest.mark.parametrize("kept", ["", "durable", "delayed"])
    def test_every_event_is_there_under_its_new_stamp(
        self, tmp_path: Path, exported: Path, monkeypatch: pytest.MonkeyPatch, kept: str, page: int
    ) -> None:
        monkeypatch.setattr(transfer, "_LOAD_EVENTS", page)
        lines = lines_of(exported)[1:]
        clock = Clock(BEGIN_NS + 10**15)
        options: dict[str, Any] = {"durability": kept} if kept else {}
        with remembering(tmp_path / "store" if kept else None, clock_ns=clock, **options) as memory:
            occupy(memory)
            loaded = memory.load(exported, rename=RENAME)
            assert (loaded.events, loaded.repeated) == (len(lines), False)
            found = list(memory.events(after=OFFSET))
            assert len(found) == len(lines)
            for recorded, line in zip(found, lines, strict=True):
                self.compare(memory, recorded, line)
            commands = [command for record in records_in(memory, OFFSET) for command in record.commands]
            assert commands == [line["command"] + OFFSET for line in lines]

    def compare(self, memory: Memory, recorded: Recorded, line: dict[str, Any]) -> None:
        event, stamp = recorded
        assert stamp.seq == line["seq"] + OFFSET
        assert stamp.stream == RENAME.get(line["stream"], line["stream"])
        assert stamp.version == line["version"] + (stamp.stream == "store/main")
        assert stamp.occurred_ns == line.get("occurred_ns", line["time_ns"])
        assert stamp.time_ns == BEGIN_NS + 10**15
        names = reader_of(memory).names()
        wanted = {field: moved(value, field, OFFSET) for field, value in line["event"].items()}
        for field, kind in (("base_stream", ""), ("project", "project/"), *SESSIONS):
            if wanted.get(field):
                old = kind + wanted[field]
                wanted[field] = RENAME.get(old, old).removeprefix(kind)
        if isinstance(event, SettingChanged):  # To the value that it has here.
            wanted["value"] = DEFAULTS[event.key]
        assert json.loads(msgspec.json.encode(event_to_json(event, names, erased=stamp.erased))) == wanted

    def test_what_was_there_stays_and_what_came_reads_as_it_did(self, exported: Path) -> None:
        with remembering() as memory, Memory() as source:
            source.load(exported)
            occupy(memory)
            before = shown(memory.conversation("chat")), shown(memory.conversation("fork"))
            memory.load(exported, rename=RENAME)
            assert (shown(memory.conversation("chat")), shown(memory.conversation("fork"))) == before
            assert shown(memory.conversation("chat-2")) == shown(source.conversation("chat"))
            assert shown(memory.conversation("fork-2")) == shown(source.conversation("fork"))
            assert memory.conversation("chat-2").project == "project-2"
            assert memory.projects() == ["acme", "default", "project", "project-2"]
            assert memory.journal().day("2026-01-01")[0].text == "note"
            places = {(snapshot.stream, snapshot.name): snapshot.seq for snapshot in memory.snapshots()}
            (theirs,) = source.snapshots()
            assert places["conversation/chat-2", "named"] == theirs.seq + OFFSET
            assert len(places) == 2

    def test_every_past_moment_reads_as_it_did(self, exported: Path) -> None:
        with remembering() as memory, Memory() as source:
            source.load(exported)
            occupy(memory)
            memory.load(exported, rename=RENAME)
            for seq in range(1, source.head + 1):
                then, there = memory.at(seq + OFFSET), source.at(seq)
                for name in ("chat", "fork", "dropped"):
                    assert shown(then.conversation(f"{name}-2" if name != "dropped" else name)) == shown(
                        there.conversation(name)
                    )

    def test_it_goes_on_from_there(self, tmp_path: Path, exported: Path) -> None:
        with remembering(tmp_path / "store") as memory:
            occupy(memory)
            memory.load(exported, rename=RENAME)
            chat = memory.conversation("chat-2")
            version = chat.version
            chat.append("user", "more", tokens=1)
            chat.restore("named")
            assert (chat.version, chat.state["plan"]) == (version + 2, {"steps": [1, 2]})
            assert memory.conversation("new").append("user", "hello", tokens=1).seq == memory.head

    def test_subscribers_hear_of_it(self, exported: Path) -> None:
        heard: list[int] = []
        done = threading.Event()

        def hear(recorded: Recorded) -> None:
            heard.append(recorded.stamp.seq)
            if recorded.stamp.seq == OFFSET + len(lines_of(exported)) - 1:
                done.set()

        with remembering() as memory, memory.subscribe(hear):
            occupy(memory)
            memory.load(exported, rename=RENAME)
            assert done.wait(60)
            assert heard == list(range(1, memory.head + 1))

    def test_commands_are_never_cut(self, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(transfer, "_LOAD_EVENTS", 1)
        done: list[int] = []
        with remembering() as memory:
            occupy(memory)
            memory.load(exported, lambda count, _: done.append(count), rename=RENAME)
            lines = lines_of(exported)[1:]
            sizes = [len(list(group)) for _, group in groupby(line["command"] for line in lines)]
            assert max(sizes) > 1
            assert [after - before for before, after in zip([0, *done], done, strict=False)] == sizes

    def test_an_erased_event_stays_erased(self, tmp_path: Path, exported: Path) -> None:
        lines = lines_of(exported)
        del lines[2]["event"]["content"], lines[2]["event"]["metadata"]
        lines[2]["erased"] = True
        version = 1 + sum(line["stream"] == "store/main" for line in lines[1:])
        stamp = {"seq": len(lines), "version": version, "time_ns": lines[-1]["time_ns"], "command": len(lines)}
        lines.append({**stamp, "stream": "store/main", "kind": "erased", "event": {"seqs": [2]}})
        lines[0]["head"] += 1
        rewrite(exported, lines)
        with remembering(tmp_path / "store") as memory:
            occupy(memory)
            memory.load(exported, rename=RENAME)
            first = memory.conversation("chat-2").at(OFFSET + 2).window()[0]
            assert (first.erased, first.content, first.tokens) == (True, None, 3)

    def test_other_processes_write_meanwhile(
        self, tmp_path: Path, exported: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transfer, "_LOAD_EVENTS", 4)
        with remembering(tmp_path / "store") as memory, Child(WRITER, str(tmp_path / "store")) as writer:
            assert writer.read() == "open"
            occupy(memory)

            def let_write(done: int, _: int) -> None:
                writer.write(str(done))
                assert writer.read() == "done"

            memory.load(exported, let_write, rename=RENAME)
            with Memory() as source:
                source.load(exported)
                for name in ("chat", "fork"):
                    assert shown(memory.conversation(f"{name}-2")) == shown(source.conversation(name))
            assert len(memory.conversation("theirs").window()) == len(memory.snapshots()) - 2


class TestItRefuses:
    def test_streams_that_are_there_and_names_them(self, exported: Path) -> None:
        memory = Memory()
        occupy(memory)
        words = ("conversation/chat, project/project, conversation/fork", "rename={'conversation/chat'", "a new store")
        with refused(memory, InvalidInput, *words):
            memory.load(exported)
        with refused(memory, InvalidInput, "already: project/project, conversation/fork;"):
            memory.load(exported, rename={"conversation/chat": "conversation/other"})

    def test_more_streams_than_can_be_read(self, tmp_path: Path) -> None:
        memory = Memory()
        with memory.batch():
            for number in range(30):
                memory.profile(f"p{number:02}").set("k", "v")
        memory.export(tmp_path / "export")
        with refused(memory, InvalidInput, "profile/p09 and 20 more"):
            Memory.load(memory, tmp_path / "export", rename={"profile/p00": "profile/p00"})

    @pytest.mark.parametrize(
        ("rename", "words"),
        [
            ({"conversation/chat": "conversation/fork"}, "would both be conversation/fork"),
            ({"conversation/chat": "journal/chat"}, "both of one kind"),
            ({"chat": "other"}, "both of one kind"),
            ({"store/main": "store/other"}, "which every store has"),
            ({"conversation/chat": "conversation/"}, "a new name in rename"),
            ({"conversation/chat": 5}, "must be names of streams"),
            ({5: "conversation/chat"}, "must be names of streams"),
            (["conversation/chat"], "rename must map"),
            ("conversation/chat", "rename must map"),
        ],
        ids=range(9),
    )
    def test_names_that_are_none(self, exported: Path, rename: Any, words: str) -> None:
        memory = Memory()
        occupy(memory)
        with refused(memory, InvalidInput, words):
            memory.load(exported, rename=rename)

    def test_a_file_that_was_changed_before_anything_is_written(self, exported: Path) -> None:
        lines = lines_of(exported)
        lines[-1]["version"] = 99
        rewrite(exported, lines)
        memory = Memory()
        occupy(memory)
        with refused(memory, InvalidInput, "seq "):
            memory.load(exported, rename=RENAME)


class TestSettings:
    def test_they_stay_as_they_are(self, tmp_path: Path) -> None:
        with Memory() as other:
            for value in (False, True):
                other.settings.set("memory_enabled", value)
            other.settings.set("memory_max_injected", 3)
            other.profile("bob").set("city", "Oslo")
            other.export(tmp_path / "other.jsonl")
        with remembering() as mine:
            mine.settings.set("memory_enabled", value=False)
            mine.load(tmp_path / "other.jsonl")
            assert (mine.settings.get("memory_enabled"), mine.settings.get("memory_max_injected")) == (False, 200)
            assert mine.profile("bob").get("city") == "Oslo"
        with remembering() as untouched:  # No setting was ever set here: the defaults stay.
            untouched.project("home").add("Nuts are dangerous for Alice.")
            untouched.load(tmp_path / "other.jsonl")
            assert untouched.settings.items() == Memory().settings.items()
        with remembering() as empty:  # There is nothing that could stay.
            empty.load(tmp_path / "other.jsonl", rename={"profile/bob": "profile/robert"})
            assert (empty.profiles(), empty.settings.get("memory_max_injected")) == (["robert"], 3)

    def test_a_stream_that_the_file_does_not_have(self, exported: Path) -> None:
        memory = Memory()
        occupy(memory)
        with refused(memory, InvalidInput, "rename has 'conversation/chatt', which the export has not; it has"):
            memory.load(exported, rename={**RENAME, "conversation/chatt": "conversation/other"})

    def test_a_project_with_boards_keeps_its_name(self, tmp_path: Path) -> None:
        source, memory = Memory(), Memory()
        source.project("a/b").add("a fact")
        source.board(project="a/b", node="n").set_working_history("so far")
        source.project("other").add("a fact")
        source.export(tmp_path / "boards.jsonl")
        with refused(memory, InvalidInput, "the project of board/node/a/b/n another name", "into a new store"):
            memory.load(tmp_path / "boards.jsonl", rename={"project/a/b": "project/c"})
        memory.load(tmp_path / "boards.jsonl", rename={"project/other": "project/c"})
        assert memory.board(project="a/b", node="n").get("working_history") == "so far"


class TestTwice:
    def test_the_same_way_changes_nothing(self, tmp_path: Path, exported: Path) -> None:
        with remembering(tmp_path / "store") as memory:
            occupy(memory)
            first = memory.load(exported, rename=RENAME)
            head = memory.head
            again = memory.load(exported, rename=RENAME)
            assert (again.events, again.streams, again.repeated, memory.head) == (0, first.streams, True, head)

    def test_another_way_is_another_copy(self, exported: Path) -> None:
        with remembering() as memory:
            first = memory.load(exported)
            rename = {line["stream"]: f"{line['stream']}-2" for line in lines_of(exported)[1:]}
            del rename["store/main"]
            second = memory.load(exported, rename=rename)
            assert (second.events, second.repeated) == (first.events, False)
            assert shown(memory.conversation("fork")) == shown(memory.conversation("fork-2"))

    def test_under_other_names_into_an_empty_store(self, exported: Path) -> None:
        with remembering() as memory:
            memory.load(exported, rename={"conversation/chat": "conversation/other"})
            assert memory.conversations() == ["brief", "fork", "other"]
            assert memory.conversations(dropped=True) == ["dropped"]
            assert memory.load(exported, rename={"conversation/chat": "conversation/other"}).repeated

    @pytest.mark.parametrize("reopened", [False, True])
    @pytest.mark.parametrize("between", [False, True])
    def test_after_it_was_cut_off_it_goes_on(
        self, tmp_path: Path, exported: Path, monkeypatch: pytest.MonkeyPatch, reopened: bool, between: bool
    ) -> None:
        monkeypatch.setattr(transfer, "_LOAD_EVENTS", 4)
        memory = Memory(tmp_path / "store")
        occupy(memory)
        with pytest.raises(KeyboardInterrupt):
            memory.load(exported, interrupt_at(12), rename=RENAME)
        assert_sound(memory)
        left = memory.head - OFFSET
        if between:
            memory.profile("between").set("k", "v")
        if reopened:
            memory.close()
            memory = Memory(tmp_path / "store")
        loaded = memory.load(exported, rename=RENAME)
        assert loaded.events == len(lines_of(exported)) - 1 - left
        with Memory() as source:
            source.load(exported)
            for name in ("chat", "fork"):
                assert shown(memory.conversation(f"{name}-2")) == shown(source.conversation(name))
        assert memory.load(exported, rename=RENAME).repeated
        assert_sound(memory)
        memory.close()

    def test_an_import_counts_what_it_added(self, exported: Path) -> None:
        with Memory() as source, remembering() as memory:
            whole = import_file(source, exported)
            memory.conversation("mine").append("user", "hello", tokens=1)
            imported = import_file(memory, exported)
            assert (imported.conversations, imported.messages, imported.events) == (
                *(whole.conversations, whole.messages),
                source.head,
            )
            again = import_file(memory, exported)
            assert (again.messages, again.events, again.repeated) == (0, 0, True)


def interrupt_at(count: int) -> Callable[[int, int], None]:
    def interrupt(done: int, whole: int) -> None:
        if done >= count:
            raise KeyboardInterrupt(whole)

    return interrupt
