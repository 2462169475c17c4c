"""A process that is stopped in its turn at writing: readers go on, writers wait in bounds and learn for whom."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from refold import Memory, StoreBusy, recover
from refold.cli.doctor import examine
from refold.log.protocol import Log
from tests.support.bounds import lowered
from tests.support.memories import Child, assert_sound
from tests.support.seams import log_of

WRITER = """
import fcntl, sys
from refold import Memory
memory = Memory(sys.argv[1])
chat = memory.conversation("c")
chat.append("user", "one", tokens=1)
print("open", flush=True)

def hold(*turn):
    print("holding", flush=True)
    sys.stdin.readline()

sys.stdin.readline()
log = memory._core.engine.reader.log
if sys.argv[2] == "turn":
    log.in_turn(hold)
else:
    file = log.durability.turnstile._file
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 1)
    hold()
    fcntl.lockf(file, fcntl.LOCK_UN, 1, 1)
print("over", flush=True)
sys.stdin.readline()
"""

BUSY_WRITER = """
import sys
from refold import Memory
with Memory(sys.argv[1]) as memory:
    chat = memory.conversation("c")
    for number in range(10**9):
        chat.append("user", f"{number} " + "x" * 3_000, tokens=1)
        if number == 0:
            print("open", flush=True)
"""


@pytest.fixture(params=["turn", "queue"])
def stopped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Child, Memory]]:
    """A writer that was stopped in its turn, or while it waited for it, and a memory that was open before."""
    with Child(WRITER, str(tmp_path / "store"), str(request.param)) as child:
        assert child.read() == "open"
        memory = Memory(tmp_path / "store")
        child.write("hold")
        assert child.read() == "holding"
        os.kill(child.pid, signal.SIGSTOP)
        yield child, memory
        os.kill(child.pid, signal.SIGCONT)
        memory.close()


@pytest.mark.parametrize("what", ["append", "erase", "open"])
def test_a_writer_learns_whom_it_waits_for(tmp_path: Path, stopped: tuple[Child, Memory], what: str) -> None:
    child, memory = stopped
    calls: dict[str, Callable[[], object]] = {
        "append": lambda: memory.conversation("c").append("user", "two", tokens=1),
        "erase": lambda: memory.erase([2]),
        "open": lambda: Memory(tmp_path / "store"),
    }
    if what == "open":
        memory.close()
    with lowered(COMMIT_WAIT_SECONDS_MAX=0), pytest.raises(StoreBusy, match=rf"process {child.pid} has .* is stopped"):
        calls[what]()
    os.kill(child.pid, signal.SIGCONT)
    child.write("go on")
    assert child.read() == "over"
    with Memory(tmp_path / "store") if what == "open" else memory as again:
        again.conversation("c").append("user", "two", tokens=1)
        assert [message.content for message in again.conversation("c").window()] == ["one", "two"]
        assert_sound(again)


def read_all(memory: Memory, backup: Path) -> None:
    """Read, verify and back up what the writer wrote before it was stopped."""
    assert [message.content for message in memory.conversation("c").window()] == ["one"]
    assert memory.verify().ok
    assert memory.backup(backup).head == 2


@pytest.mark.parametrize("is_first", [True, False])
def test_nobody_who_reads_or_closes_waits(tmp_path: Path, stopped: tuple[Child, Memory], *, is_first: bool) -> None:
    child, memory = stopped
    with lowered(COMMIT_WAIT_SECONDS_MAX=0):
        if is_first:
            memory.close()
        else:
            read_all(memory, tmp_path / "backup")
        with Memory(tmp_path / "store", readonly=True) as reader:
            read_all(reader, tmp_path / "another backup")
        assert recover(tmp_path / "store", tmp_path / "recovered").head == 2
        assert examine(str(tmp_path / "store")).ok
        memory.close()
    os.kill(child.pid, signal.SIGCONT)
    child.write("go on")
    assert child.read() == "over"


def test_a_reader_stays_open_where_a_writer_of_its_process_does_not_get_in(
    tmp_path: Path, stopped: tuple[Child, Memory]
) -> None:
    child, memory = stopped
    memory.close()
    with Memory(tmp_path / "store", readonly=True) as reader:
        with lowered(COMMIT_WAIT_SECONDS_MAX=0), pytest.raises(StoreBusy, match=f"process {child.pid} "):
            Memory(tmp_path / "store")
        read_all(reader, tmp_path / "backup")
        os.kill(child.pid, signal.SIGCONT)
        child.write("go on")
        assert child.read() == "over"
        with Memory(tmp_path / "store") as writer:
            writer.conversation("c").append("user", "two", tokens=1)
        assert [message.content for message in reader.conversation("c").window()] == ["one", "two"]


def test_a_writer_opens_beside_threads_that_read(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("c")
        written = [chat.append("user", f"{number} " + "x" * 3_000, tokens=1).seq for number in range(64)]
    is_over = threading.Event()
    errors: list[Exception] = []

    def read(log: Log) -> None:
        while not is_over.is_set():
            try:
                assert len(log.events_at(written)) == len(written)
            except Exception as error:  # noqa: BLE001 - shown by the main thread
                errors.append(error)
                return

    for _ in range(5):
        is_over.clear()
        with Memory(tmp_path / "store", readonly=True) as reader:
            threads = [threading.Thread(target=read, args=(log_of(reader),)) for _ in range(2)]
            for thread in threads:
                thread.start()
            with Memory(tmp_path / "store") as writer:
                writer.conversation("c").append("user", "on", tokens=1)
                is_over.set()
            for thread in threads:
                thread.join()
            assert reader.conversation("c").window()[-1].content == "on"
    assert errors == []


def test_a_writer_is_stopped_at_any_moment(tmp_path: Path) -> None:
    store, random = tmp_path / "store", Random(1)
    with Child(BUSY_WRITER, str(store)) as child:
        assert child.read() == "open"
        for turn in range(12):
            time.sleep(random.random() / 50)
            os.kill(child.pid, signal.SIGSTOP)
            with lowered(COMMIT_WAIT_SECONDS_MAX=0), Memory(store, readonly=True) as reader:
                window = reader.conversation("c").window()
                assert str(window[-1].content).split()[0] == str(len(window) - 1)
                assert reader.verify().ok
                assert reader.backup(tmp_path / f"{turn}").head == reader.head
            os.kill(child.pid, signal.SIGCONT)


def test_a_store_is_verified_while_another_process_writes(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Child(BUSY_WRITER, str(store)) as child:
        assert child.read() == "open"
        with Memory(store, readonly=True) as reader:
            for _ in range(5):
                report = reader.verify()
                assert report.findings == ()
                last = reader.head
                while reader.head == last:
                    reader.conversation("c").token_count()
