"""What several tests share: a clock that stands still, a memory that proves its replay, and child processes."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from refold import Memory, RefoldError
from refold.log.protocol import Log, Row

BEGIN_NS = 1_764_000_000_000_000_000


class Clock:
    """A clock that moves only when told."""

    def __init__(self, now_ns: int = BEGIN_NS) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1_000_000_000)


def assert_sound(memory: Memory) -> str:
    """Assert that the live state is the replayed one and that nothing is wrong; return the hash."""
    live = memory.state_hash()
    assert live == memory.replay_hash()
    report = memory.verify()
    assert report.findings == ()
    assert report.ok
    assert report.state_hash == live
    return live


@contextmanager
def remembering(path: Path | None = None, **options: Any) -> Iterator[Memory]:
    """A memory whose replay, and reopening if it has a path, give the live state at the end."""
    memory = Memory(path, **options)
    try:
        yield memory
        live = assert_sound(memory)
    finally:
        memory.close()
    if path is not None:
        with Memory(path) as again:
            assert assert_sound(again) == live


@contextmanager
def refused(memory: Memory, error: type[RefoldError], *words: str) -> Iterator[None]:
    """What happens inside raises the error, its message holds the words, and nothing was appended."""
    head, hashed = memory.head, memory.state_hash()
    with pytest.raises(error) as raised:
        yield
    for word in words:
        assert word in str(raised.value)
    assert (memory.head, memory.state_hash()) == (head, hashed)


def nested(depth: int) -> list[Any]:
    outer: list[Any] = []
    inner = outer
    for _ in range(depth):
        inner.append([])
        inner = inner[0]
    return outer


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def elsewhere(call: Callable[[], object]) -> object:
    """Return what the call returns on another thread, outside this context's batch."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def in_batch(memory: Memory, *calls: Callable[[], object]) -> None:
    """Call everything inside one batch."""
    with memory.batch():
        for call in calls:
            call()


def interrupt(error: type[BaseException] = ZeroDivisionError) -> None:
    raise error


class Child:
    """A Python process of our own that is told, line by line, what to do, and answers in lines."""

    def __init__(self, program: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def erase(log: Log, erased: Sequence[tuple[int, bytes]], rows: Sequence[Row], *, is_clean: bool = False) -> None:
    """Replace records in a turn of its own."""
    log.in_turn(lambda turn: turn.write((), rows, erased, is_clean=is_clean))


def is_stored(path: Path, text: str) -> bool:
    """Return whether a file of a store holds a text."""
    return any(text.encode() in file.read_bytes() for file in path.iterdir())
