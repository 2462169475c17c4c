"""Forks of a whole memory in a store: named, asked twice, killed, written by several, damaged."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from refold import InvalidInput, Memory, NotFound, Recorded, Snapshot, StoreBusy
from refold.log.record import BRANCH, COLUMNS_BEGIN, STREAM, Record
from refold.memory import store
from tests.engine.test_branches import fill, said
from tests.engine.test_threads import together
from tests.support.bounds import lowered
from tests.support.memories import Child, assert_sound, refused
from tests.support.rows import Rows
from tests.support.seams import engine_of

WRITER = """
import sys
from refold import Memory
memory = Memory(sys.argv[1])
print("open", flush=True)
for line in sys.stdin:
    fork, text = line.split()
    handle = memory if fork == "main" else memory.fork(fork)
    handle.conversation("a").append("user", text, tokens=1)
    print(memory.head, [m.content for m in handle.conversation("a").window()], flush=True)
"""


def hashes(memory: Memory) -> dict[str, str]:
    """The hash of each branch, which is that of its replay."""
    handles = {"": memory, **{name: memory.fork(name) for name in memory.forks()}}
    found = {name: handle.state_hash() for name, handle in handles.items()}
    assert found == {name: handle.replay_hash() for name, handle in handles.items()}
    return found


class TestNames:
    def test_of_snapshots_are_those_of_the_branch(self, memory: Memory) -> None:
        fill(memory)
        chat = memory.conversation("a")
        before = chat.snapshot("before")
        fork = memory.fork("b")
        other = fork.conversation("a")
        chat.scratchpad.note("main")
        chat.snapshot("later")
        other.scratchpad.note("fork")
        mine = other.snapshot("later")
        assert [snapshot.name for snapshot in fork.snapshots()] == ["before", "later"]
        assert fork.snapshots()[1] == mine != memory.snapshots()[1]
        assert fork.snapshots()[0].seq == before.seq
        with refused(memory, InvalidInput, "'before'"):
            other.snapshot("before")
        other.restore("before")
        assert (other.scratchpad.notes(), chat.scratchpad.notes()) == ([], ["main"])
        chat.restore(mine)
        assert chat.scratchpad.notes() == ["fork"]
        with pytest.raises(NotFound):
            memory.restore("later")

    def test_of_requests_are_those_of_the_branch(self, memory: Memory) -> None:
        fill(memory)
        chat = memory.conversation("a")
        first = chat.append("user", "asked before", tokens=1, request_id="r")
        fork = memory.fork("b")
        other, head = fork.conversation("a"), memory.head
        assert other.append("user", "asked before", tokens=1, request_id="r") == first
        assert memory.head == head
        with refused(memory, InvalidInput, "request_id"):
            other.append("user", "another", tokens=1, request_id="r")
        chat.append("user", "main", tokens=1, request_id="s")
        other.append("user", "fork", tokens=1, request_id="s")
        assert said(fork)[-1] == "fork"
        assert other.append("user", "fork", tokens=1, request_id="s").seq == memory.head

    def test_of_requests_that_changed_nothing_are_answered_in_later_forks(self, memory: Memory) -> None:
        memory.conversation("a").append("user", "x", tokens=1)
        early = memory.fork("early").conversation("a")
        assert not memory.conversation("a").scratchpad.delete("k", request_id="r")
        late = memory.fork("late").conversation("a")
        for chat in (early, late):
            chat.scratchpad.set("k", "v")
        assert early.scratchpad.delete("k", request_id="r")
        assert not late.scratchpad.delete("k", request_id="r")
        assert late.scratchpad.get("k") == "v"


def test_a_conversation_travels_inside_a_fork(memory: Memory) -> None:
    fill(memory)
    fork = memory.fork("b")
    memory.conversation("a").append("user", "main", tokens=1)
    chat = fork.conversation("a")
    twin = chat.fork("twin", at=2)
    assert [message.content for message in twin.window()] == ["one"]
    chat.append("user", "two", tokens=1)
    pointer = chat.snapshot()
    chat.clear_window()
    chat.restore(pointer)
    chat.restore(Snapshot.from_bytes(pointer.to_bytes()))
    assert said(fork) == ["one", "two"]
    chat.restore(memory.conversation("a").snapshot())
    assert said(fork) == said(memory) == ["one", "main"]
    twin.close(drop=True)
    assert (fork.conversations(), memory.conversations()) == (["a"], ["a"])
    assert (fork.conversations(dropped=True), memory.conversations(dropped=True)) == (["twin"], [])
    assert [step.stamp.version for step in chat.replay()] == list(range(1, chat.version + 1))


def test_an_export_holds_every_branch(tmp_path: Path, memory: Memory) -> None:
    fill(memory)
    b = memory.fork("b", at=4)
    b.conversation("a").append("user", "b", tokens=1)
    c = b.fork("c")
    c.conversation("a").append("user", "c", tokens=1)
    memory.conversation("a").restore(c.conversation("a").snapshot())
    c.restore(b.snapshot())
    path = tmp_path / "export.jsonl"
    assert c.export(path) == memory.head
    with Memory(tmp_path / "other") as other:
        other.load(path)
        assert hashes(other) == hashes(memory)
        assert_sound(other)
        other.fork("c").conversation("a").scratchpad.note("goes on")
    with Memory(tmp_path / "other") as other:
        assert other.fork("c").conversation("a").scratchpad.notes() == ["goes on"]
        assert_sound(other)


def test_a_load_that_was_cut_off_among_forks_goes_on(tmp_path: Path) -> None:
    class Cut(Exception):
        """What cuts a load off."""

    def cut(_: int, __: int) -> None:
        raise Cut

    with Memory() as memory:
        fill(memory)
        for number in range(6):
            memory.fork(f"f{number}").conversation("a").append("user", str(number), tokens=1)
        memory.export(tmp_path / "export.jsonl")
        expected = hashes(memory)
    with Memory(tmp_path / "store") as store, lowered():
        from refold.engine import transfer

        size, transfer._LOAD_EVENTS = transfer._LOAD_EVENTS, 5  # type: ignore[misc]
        try:
            for _ in range(3):
                with pytest.raises(Cut):
                    store.load(tmp_path / "export.jsonl", cut)
            store.load(tmp_path / "export.jsonl")
        finally:
            transfer._LOAD_EVENTS = size  # type: ignore[misc]
        assert hashes(store) == expected
        assert_sound(store)


class TestProcesses:
    def test_see_each_others_forks(self, tmp_path: Path) -> None:
        path = tmp_path / "store"
        with Memory(path) as memory, Child(WRITER, str(path)) as child:
            fill(memory)
            assert child.read() == "open"
            fork = memory.fork("b")
            assert said(fork) == ["one"]
            child.write("b theirs")
            assert child.read() == f"{memory.head} ['one', 'theirs']"
            assert said(fork) == ["one", "theirs"]
            fork.conversation("a").append("user", "ours", tokens=1)
            child.write("new first")
            assert child.read() == f"{memory.head} ['one', 'first']"
            assert memory.forks() == ["b", "new"]
            child.write("b again")
            assert child.read() == f"{memory.head} ['one', 'theirs', 'ours', 'again']"
            child.write("main back")
            child.read()
            assert said(memory.fork("new")) == ["one", "first"]
            assert said(memory) == ["one", "back"]
            assert_sound(memory)
            hashes(memory)

    def test_that_are_killed_leave_their_forks_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "store"
        for number in range(3):
            with Child(WRITER, str(path)) as child:
                assert child.read() == "open"
                for fork in ("main", "b", f"f{number}"):
                    child.write(f"{fork} {fork}-{number}")
                    acknowledged = child.read()
                child.kill()
            with Memory(path) as memory:
                assert str(memory.head) == acknowledged.split()[0]
                assert said(memory.fork("b"))[-1] == f"b-{number}"
                assert f"main-{number}" in said(memory.fork(f"f{number}"))
                hashes(memory)
                assert_sound(memory)


class TestTogether:
    def test_the_events_of_one_commit_begin_one_stream_of_a_branch(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            memory.conversation("a").append("user", "before", tokens=1)
            fork = memory.fork("b")
            writer = engine_of(memory).writer
            texts = ["x", "y"]
            with ThreadPoolExecutor() as pool:
                with writer.exclusive():
                    written = [pool.submit(fork.conversation("a").append, "user", text, tokens=1) for text in texts]
                    while len(writer._queue) < len(texts):
                        time.sleep(0.001)
                assert sorted(future.result().seq for future in written) == [4, 5]
            versions = [stamp.version for _, stamp in fork.conversation("a").events()]
            assert versions == [1, 2, 3, 4]
            hashes(memory)

    def test_branches_are_written_at_the_same_time(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            fill(memory)
            handles = [memory, memory.fork("b"), memory.fork("b").fork("c")]

            def write(handle: Memory) -> None:
                for number in range(30):
                    handle.conversation("a").append("user", str(number), tokens=1)
                    handle.conversation("mine").scratchpad.note(str(number))

            together(*(lambda handle=handle: write(handle) for handle in handles * 2))
            for handle in handles:
                assert len(handle.conversation("mine").scratchpad.notes()) == 60
                versions = [stamp.version for _, stamp in handle.conversation("a").events()]
                assert versions == list(range(1, len(versions) + 1))
            hashes(memory)
            assert_sound(memory)

    def test_a_restore_is_decided_anew_while_others_write(
        self, memory: Memory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(memory)
        target = memory.snapshot()
        memory.profile().set("theme", "light")
        decided, seen = store._restoration, list[int]()

        def disturbed(*arguments: object) -> object:
            pending = decided(*arguments)  # type: ignore[arg-type]
            if len(seen) < 2:
                writer = threading.Thread(target=lambda: memory.journal().append("meanwhile"))
                writer.start()
                writer.join()
            seen.append(memory.head)
            return pending

        monkeypatch.setattr(store, "_restoration", disturbed)
        memory.restore(target)
        assert len(seen) == 3
        assert memory.state_hash() == memory.state_hash(at=target.seq)

    def test_a_restore_gives_up_on_writers_that_never_stop(
        self, memory: Memory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(memory)
        target = memory.snapshot()
        decided = store._restoration

        def disturbed(*arguments: object) -> object:
            pending = decided(*arguments)  # type: ignore[arg-type]
            memory.journal().append("once more")
            return pending

        monkeypatch.setattr(store, "_restoration", disturbed)
        with lowered(REDO_COUNT_MAX=3), pytest.raises(StoreBusy, match="REDO_COUNT_MAX = 3"):
            memory.restore(target)

    def test_a_restore_does_not_mind_what_other_branches_do(
        self, memory: Memory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(memory)
        fork, target = memory.fork("b"), memory.snapshot()
        memory.profile().set("theme", "light")
        decided, seen = store._restoration, list[int]()

        def disturbed(*arguments: object) -> object:
            pending = decided(*arguments)  # type: ignore[arg-type]
            fork.journal().append("elsewhere")
            seen.append(memory.head)
            return pending

        monkeypatch.setattr(store, "_restoration", disturbed)
        memory.restore(target)
        assert len(seen) == 1
        assert memory.profile().get("theme") == "dark"


class TestDamage:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        with Memory(tmp_path / "store") as memory:
            fill(memory)
            memory.fork("b").conversation("a").append("user", "x", tokens=1)
        return tmp_path / "store"

    def findings(self, path: Path) -> list[str]:
        with Memory(path, readonly=True) as memory:
            return [finding.check for finding in memory.verify().findings]

    def test_an_intact_store_has_none(self, path: Path) -> None:
        assert self.findings(path) == []

    def test_a_stream_that_its_row_puts_into_another_branch(self, path: Path) -> None:
        rows = Rows(path)
        key, packed = next(row for row in rows.all("streams") if row[1].endswith(b"\x01"))
        rows.put("streams", key, packed[:-1] + b"\x00")
        rows.close()
        assert "names" in self.findings(path)

    def test_a_name_that_is_gone(self, path: Path) -> None:
        rows = Rows(path)
        rows.put("names", BRANCH.pack(1) + b"conversation/a", None)
        rows.close()
        assert "names" in self.findings(path)

    def test_an_event_that_goes_over_into_another_branch(self, path: Path) -> None:
        rows = Rows(path)
        key, record = rows.all("log")[-1]
        assert [head.branch for head in Record(record).heads] == [1]
        begin = COLUMNS_BEGIN + STREAM.size - BRANCH.size
        rows.put("log", key, record[:begin] + bytes(BRANCH.size) + record[begin + BRANCH.size :])
        rows.close()
        assert {"chain", "names"} <= set(self.findings(path))


class TestBesideOthers:
    @pytest.mark.parametrize("writes", [lambda memory: memory.fork("b"), lambda memory: memory.snapshot("whole")])
    def test_an_export_of_a_whole_is_not_loaded_into_another(
        self, tmp_path: Path, memory: Memory, writes: Callable[[Memory], object]
    ) -> None:
        with Memory() as other:
            other.conversation("x").scratchpad.note("there")
            writes(other)
            other.export(tmp_path / "export.jsonl")
        fill(memory)
        with refused(memory, InvalidInput, "whole memory", "new store"):
            memory.load(tmp_path / "export.jsonl")

    def test_an_export_is_loaded_beside_forks(self, tmp_path: Path, memory: Memory) -> None:
        with Memory() as other:
            other.conversation("x").scratchpad.note("there")
            other.export(tmp_path / "export.jsonl")
        fill(memory)
        fork = memory.fork("b")
        before = fork.state_hash()
        memory.load(tmp_path / "export.jsonl")
        assert memory.conversation("x").scratchpad.notes() == ["there"]
        assert (fork.conversations(), fork.state_hash()) == (["a"], before)


def test_subscribers_hear_their_branch(memory: Memory) -> None:
    fill(memory)
    fork = memory.fork("b", at=3)
    heard: dict[str, list[int]] = {"main": [], "b": []}
    is_there = {name: threading.Event() for name in heard}

    def hear(name: str) -> Callable[[Recorded], None]:
        def remember(recorded: Recorded) -> None:
            heard[name].append(recorded.stamp.seq)
            if recorded.stamp.stream == "conversation/last":
                is_there[name].set()

        return remember

    with memory.subscribe(hear("main"), after=0) as main, fork.subscribe(hear("b"), after=0) as mine:
        for number in range(300):
            fork.journal().append(str(number))
        memory.conversation("last").scratchpad.note("x")
        fork.conversation("last").scratchpad.note("x")
        memory.conversation("last").scratchpad.note("y")
        assert all(event.wait(60) for event in is_there.values())
        assert (main.error, mine.error) == (None, None)
    assert heard["b"] == [stamp.seq for _, stamp in fork.events()][: len(heard["b"])]
    assert heard["main"] == [stamp.seq for _, stamp in memory.events()][: len(heard["main"])]
    assert len(heard["b"]) >= 303
