"""A process that is stopped in its turn at writing: readers go on, writers wait in bounds and learn for whom."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refold import Memory, StoreBusy
from tests.support.bounds import lowered
from tests.support.memories import Child, assert_sound

WRITER = """
import sys
from refold import Memory
memory = Memory(sys.argv[1])
chat = memory.conversation("c")
chat.append("user", "one", tokens=1)
print("open", flush=True)

def hold(turn):
    print("holding", flush=True)
    sys.stdin.readline()

sys.stdin.readline()
memory._door.engine.reader.log.in_turn(hold)
print("over", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[tuple[Child, Memory]]:
    """A writer that was stopped in its turn, and a memory that was open before."""
    with Child(WRITER, str(tmp_path / "store")) as child:
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


def test_reads_and_closing_go_on(tmp_path: Path, stopped: tuple[Child, Memory]) -> None:
    child, memory = stopped
    assert [message.content for message in memory.conversation("c").window()] == ["one"]
    with Memory(tmp_path / "store", readonly=True) as reader:
        assert reader.conversation("c").token_count() == 1
    assert memory.backup(tmp_path / "backup").head == 2
    with lowered(COMMIT_WAIT_SECONDS_MAX=0):
        memory.close()
    os.kill(child.pid, signal.SIGCONT)
    child.write("go on")
    assert child.read() == "over"
