"""`refold log --follow`: what was written, then what is written, in order and once, until it is told to end."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from refold import Memory
from refold.cli import main

Listed = Callable[..., tuple[int, list[int], str]]
# Begun in the background, a test run may ignore Ctrl-C, and so would its children.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from refold.cli import main
sys.exit(main())
"""
COMMAND = [sys.executable, "-c", PROGRAM, "log", "--follow"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with four events: a conversation of three messages."""
    with Memory(tmp_path / "store") as memory:
        append(memory, 3)
    return tmp_path / "store"


def append(memory: Memory, count: int) -> None:
    for number in range(count):
        memory.conversation("chat").append("user", str(number), tokens=1)


def seqs(lines: list[str]) -> list[int]:
    return [json.loads(line)["seq"] for line in lines]


def following(store: Path, *options: str) -> "subprocess.Popen[str]":
    """The command, begun."""
    command = [*COMMAND, "--json", "--db", str(store), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def next_lines(stream: IO[str] | None, count: int) -> list[str]:
    assert stream is not None
    return [stream.readline() for _ in range(count)]


def test_the_past_is_followed_by_the_present(store: Path) -> None:
    with Memory(store) as memory, following(store, "--until", "104") as process:
        assert seqs(next_lines(process.stdout, 4)) == [1, 2, 3, 4]
        append(memory, 1)
        assert seqs(next_lines(process.stdout, 1)) == [5]
        append(memory, 120)
        rest, said = process.communicate()
        assert (seqs(rest.splitlines()), said, process.returncode) == (list(range(6, 105)), "", 0)


def test_only_what_is_asked_for_is_shown(store: Path) -> None:
    with Memory(store) as memory, following(store, "--tail", "1", "--kind", "note_added", "--until", "9") as process:
        memory.conversation("chat").scratchpad.note("a note")
        assert seqs(next_lines(process.stdout, 1)) == [5]
        append(memory, 2)
        memory.conversation("chat").scratchpad.note("another")
        memory.profile().set("k", "v")
        rest, _ = process.communicate()
        assert (seqs(rest.splitlines()), process.returncode) == ([8], 0)


def test_ctrl_c_ends_it_quietly(store: Path) -> None:
    with following(store, "--tail", "1") as process:
        assert seqs(next_lines(process.stdout, 1)) == [4]
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate()
        assert (rest, said.strip(), process.returncode) == ("", "", 130)


def test_a_reader_that_leaves_ends_it_quietly(store: Path) -> None:
    with Memory(store) as memory, following(store) as process:
        next_lines(process.stdout, 4)
        assert process.stdout is not None
        process.stdout.close()
        append(memory, 1)
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait() == 0


@pytest.fixture
def listed(store: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Listed:
    """Runs `refold log` in this process: its code, the seqs that it lists, and what it says."""

    def run(*options: str) -> tuple[int, list[int], str]:
        monkeypatch.setattr(sys, "argv", ["refold", "log", "--json", "--db", str(store), *options])
        code = main()
        shown, said = capfd.readouterr()
        return code, seqs(shown.splitlines()), said

    return run


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--until", "3"], [1, 2, 3]),
        (["--until", "3", "--tail", "1"], [3]),
        (["--until", "3", "--tail", "1", "--stream", "conversation/chat"], [3]),
        (["--until", "3", "--after", "2", "--stream", "conversation/chat"], [3]),
        (["--until", "2100-01-01T00:00:00Z"], [1, 2, 3, 4]),
        (["--until", "3", "--follow"], [1, 2, 3]),
        (["--until", "4", "--follow", "--stream", "conversation/none"], []),
    ],
)
def test_until_is_the_last_event(listed: Listed, options: list[str], found: list[int]) -> None:
    assert listed(*options) == (0, found, "")


def test_a_seq_to_come_and_a_time_to_follow_to_are_refused(listed: Listed) -> None:
    code, found, said = listed("--until", "5")
    assert (code, found, "seq 5" in said) == (1, [], True)
    code, found, said = listed("--follow", "--until", "2100-01-01T00:00:00Z")
    assert (code, found, "--follow ends at a seq, not at a time" in said) == (2, [], True)
