"""Durable and delayed: what a crash leaves, who may write beside whom, and what becomes of a disk that is full."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmdb
import pytest

from refold import InvalidInput, Memory, StoreBusy, StoreError, StoreFull
from refold.log.lmdb_log import LmdbTurn
from tests.support.memories import assert_sound, remembering

CHILD = """
import os, sys
from refold import Memory
memory = Memory(sys.argv[1], durability=sys.argv[2])
chat = memory.conversation("chat")
for place in range(int(sys.argv[3])):
    chat.append("user", f"{place}", tokens=1)
    with memory.batch():
        memory.profile().set("place", str(place))
        memory.journal().append(f"{place}", day="2026-11-21")
if sys.argv[4] == "flush":
    memory.flush()
    chat.append("user", "after the flush", tokens=1)
print(memory.head, flush=True)
sys.stdin.readline()
"""


def killed(path: Path, durability: str, places: int, ending: str = "") -> int:
    """Write in a child that is killed with SIGKILL once it has said how far it is; return that seq."""
    arguments = [sys.executable, "-c", CHILD, str(path), durability, str(places), ending]
    child = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    head = int(child.stdout.readline())
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    return head


def test_a_killed_process_leaves_everything_that_was_acknowledged(tmp_path: Path) -> None:
    head = killed(tmp_path / "store", "durable", 20)
    with Memory(tmp_path / "store") as memory:
        assert memory.head == head
        assert_sound(memory)


def test_a_killed_process_that_delays_leaves_a_beginning_of_whole_commands(tmp_path: Path) -> None:
    head = killed(tmp_path / "store", "delayed", 20)
    with Memory(tmp_path / "store") as memory:
        assert memory.head <= head
        said = memory.profile().get("place")
        notes = memory.journal().day("2026-11-21")
        assert len(notes) == (0 if said is None else int(said) + 1), "half of a batch is there"
        assert_sound(memory)


def test_what_was_flushed_survives(tmp_path: Path) -> None:
    head = killed(tmp_path / "store", "delayed", 20, "flush")
    with Memory(tmp_path / "store") as memory:
        assert memory.head >= head - 1
        assert memory.profile().get("place") == "19"
        assert_sound(memory)


def test_delayed_reads_its_own_writes_and_closes_durably(tmp_path: Path) -> None:
    with remembering(tmp_path / "store", durability="delayed") as memory:
        chat = memory.conversation("chat")
        for place in range(700):
            message = chat.append("user", f"{place}", tokens=1)
            assert memory.head == message.seq
            if place % 100 == 0:
                assert len(chat.at(message.seq).window()) == place + 1
                assert [step.stamp.seq for step in chat.replay(after=message.seq - 1)] == [message.seq]
        fork = chat.fork("fork", at=200)
        assert len(fork.window()) == 199
        assert memory.state_hash(at=300) != memory.state_hash()


def test_delayed_wants_the_store_for_itself(tmp_path: Path) -> None:
    with Memory(tmp_path / "store", durability="delayed"):
        program = "import sys; from refold import Memory; Memory(sys.argv[1])"
        child = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "store")], capture_output=True, text=True, check=False
        )
        assert child.returncode == 1
        assert "StoreBusy" in child.stderr
        assert str(os.getpid()) in child.stderr
    with Memory(tmp_path / "store"):
        pass
    with Memory(tmp_path / "store"), pytest.raises(StoreBusy):
        Memory(tmp_path / "store", durability="delayed")


def test_delayed_in_ram_is_ram() -> None:
    with remembering(None, durability="delayed") as memory:
        memory.conversation("chat").append("user", "Hello!", tokens=1)


def test_a_reader_cannot_delay(tmp_path: Path) -> None:
    Memory(tmp_path / "store").close()
    with pytest.raises(InvalidInput, match="readonly"):
        Memory(tmp_path / "store", durability="delayed", readonly=True)


def test_a_disk_that_is_full_loses_nothing_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delayed tail that cannot be written is kept: the next caller is told, and closing works once there is room."""
    memory = Memory(tmp_path / "store", durability="delayed")
    chat = memory.conversation("chat")
    chat.append("user", "before", tokens=1)
    memory.flush()
    write = LmdbTurn.write

    def refuse(*_: object) -> None:
        raise StoreFull("no space left; free disk space and call again")

    monkeypatch.setattr(LmdbTurn, "write", refuse)
    chat.append("user", "acknowledged", tokens=1)
    with pytest.raises(StoreFull):
        memory.flush()
    with pytest.raises(StoreFull):
        chat.append("user", "refused", tokens=1)
    assert [message.content for message in chat.window()] == ["before", "acknowledged"]
    with pytest.raises(StoreFull):
        memory.close()
    assert [message.content for message in chat.window()] == ["before", "acknowledged"], "it is still open"
    monkeypatch.setattr(LmdbTurn, "write", write)
    chat.append("user", "again", tokens=1)
    memory.close()
    with Memory(tmp_path / "store") as again:
        assert [message.content for message in again.conversation("chat").window()] == [
            "before",
            "acknowledged",
            "again",
        ]
        assert_sound(again)


def test_a_write_that_is_cut_short_while_somebody_makes_room_is_one_of_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB says of it what it says of a broken disk, and by the time somebody looks, there is space."""
    put, fails = LmdbTurn._put, [errno.ENOSPC, errno.EIO, 0, errno.EIO]

    def failing(turn: LmdbTurn, *args: Any, is_clean: bool) -> int:
        if not (code := fails.pop(0)):
            return put(turn, *args, is_clean=is_clean)
        error = lmdb.Error(os.strerror(code))
        vars(error)["code"] = code
        raise error

    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("chat")
        chat.append("user", "before", tokens=1)
        with monkeypatch.context() as patch:
            patch.setattr(LmdbTurn, "_put", failing)
            for kind in (StoreFull, StoreFull, None, StoreError):
                if kind is None:
                    chat.append("user", "again", tokens=1)
                    continue
                with pytest.raises(kind) as raised:
                    chat.append("user", "refused", tokens=1)
                assert type(raised.value) is kind
        with pytest.raises(StoreError, match="nothing more is written"):
            chat.append("user", "refused", tokens=1)
    with Memory(tmp_path / "store") as memory:
        assert [message.content for message in memory.conversation("chat").window()] == ["before", "again"]


WRITER = """
import sys
from refold import Memory
with Memory(sys.argv[1]) as memory:
    shared, own = memory.conversation("shared"), memory.conversation(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    for place in range(60):
        shared.append("user", f"{sys.argv[2]} {place}", tokens=1)
        own.append("user", f"{place}", tokens=1)
        shared.scratchpad.set(sys.argv[2], str(place))
"""


def test_processes_write_together_and_see_each_other(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory:
        children = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(tmp_path / "store"), name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("one", "two")
        ]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        shared = memory.conversation("shared")
        for place in range(60):
            shared.append("user", f"mine {place}", tokens=1)
        for child in children:
            child.communicate()
            assert child.returncode == 0
        texts = [str(message.content) for message in shared.window()]
        for name in ("one", "two", "mine"):
            assert [text for text in texts if text.startswith(name)] == [f"{name} {place}" for place in range(60)]
        assert (shared.scratchpad.get("one"), shared.scratchpad.get("two")) == ("59", "59")
        versions = [stamp.version for _, stamp in shared.events()]
        assert versions == list(range(1, len(versions) + 1))
        assert len(memory.conversation("two").window()) == 60


def test_verifying_while_another_process_writes_finds_nothing(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory, Memory(tmp_path / "store", readonly=True) as reader:
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "store"), "one"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        child.stdin.write("go\n")
        child.stdin.flush()
        looks = 0
        while child.poll() is None:
            for handle in (memory, reader):
                report = handle.verify()
                assert report.findings == ()
                looks += 1
        child.communicate()
        assert looks > 1
