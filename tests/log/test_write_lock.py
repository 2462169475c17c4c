"""The lock before LMDB's own: taken for each turn at writing, and given back by the dead."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from refold import Memory, StoreError
from refold.log.environment import TURN_LOCK, Turnstile
from refold.log.lmdb_log import LmdbLog
from tests.support.seams import log_of

HOLD = """
import sys
from refold.log.environment import Turnstile
turnstile = Turnstile(sys.argv[1])
turnstile.enter()
print("in", flush=True)
sys.stdin.readline()
"""

WRITE = """
import sys
import pytest

from refold import Memory, StoreError
memory = Memory(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
memory.conversation("child").append("user", "Hello!", tokens=1)
memory.close()
"""


def child(program: str, path: Path) -> "subprocess.Popen[str]":
    """A child process that has said its first line."""
    arguments = [sys.executable, "-c", program, str(path)]
    started = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline()
    return started


def is_free(path: Path) -> bool:
    """Whether another process could have its turn: asked from a child, as record locks are a process's own."""
    program = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'rb+')\n"
        "try:\n    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError:\n    sys.exit(1)\n"
    )
    return subprocess.run([sys.executable, "-c", program, str(path / TURN_LOCK)], check=False).returncode == 0


def lmdb_of(memory: Memory) -> LmdbLog:
    log = log_of(memory)
    assert isinstance(log, LmdbLog)
    return log


def test_who_writes_takes_it_for_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Memory(path) as memory:
        assert not lmdb_of(memory).in_turn(lambda _: is_free(path))
        assert is_free(path)
        other = child(WRITE, path)
        assert not lmdb_of(memory).in_turn(lambda _: is_free(path))
        assert is_free(path)
        other.communicate("go\n")
        assert other.returncode == 0
        assert [message.content for message in memory.conversation("child").window()] == ["Hello!"]


def test_a_reader_of_a_snapshot_leaves_it_to_others(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Memory(path) as memory, Memory(path, readonly=True) as reader:
        for handle in (memory, reader):
            assert lmdb_of(handle).in_snapshot(lambda: is_free(path))


def test_the_dead_give_it_back(tmp_path: Path) -> None:
    holder = child(HOLD, tmp_path)
    assert not is_free(tmp_path)
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    turnstile = Turnstile(str(tmp_path))
    turnstile.enter()
    assert turnstile.is_held
    assert not is_free(tmp_path)
    turnstile.unlock()
    assert is_free(tmp_path)
    turnstile.close()
    assert is_free(tmp_path)


def test_a_lock_file_that_cannot_be_had_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "store"
    Memory(path).close()
    (path / TURN_LOCK).unlink()
    (path / TURN_LOCK).mkdir()
    with pytest.raises(StoreError, match=TURN_LOCK):
        Memory(path)
    (path / TURN_LOCK).rmdir()
    with Memory(path) as memory:
        assert memory.head == 0
