"""The verb that shows a board on the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from refold import Memory
from tests.memory.test_board import message
from tests.support.command import Run, running


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process."""
    return running(monkeypatch, capfd)


@pytest.fixture
def store(tmp_path: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with the board of a session over that of a node; REFOLD_DB names it."""
    assert refold("--version").code == 0
    with Memory(tmp_path / "store") as memory:
        board = memory.board(session="s-1")
        board.initialise(project_id="atlas", active_node_id="n-7")
        board.append_message(message(1, "Where were we?"))
        memory.board(project="atlas", node="n-7").set_node_context({"id": "n-7", "notes": "Mind the tide."})
    monkeypatch.setenv("REFOLD_DB", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.mark.usefixtures("store")
def test_a_board_is_shown_with_what_lies_beneath(refold: Run) -> None:
    shown = refold("board", "s-1")
    assert (shown.code, shown.err) == (0, "")
    for text in (
        "history_length 20",
        "include_context true",
        "session s-1",
        "project atlas",
        "active_node n-7",
        "Mind the tide.",
        "Where were we?",
        "1 of 1",
    ):
        assert text in shown.out
    assert "Where were we?" not in refold("board", "--project", "atlas", "--node", "n-7").out


def test_a_board_as_json_is_what_python_reads(store: Path, refold: Run) -> None:
    with Memory(store, readonly=True) as memory:
        board = memory.board(session="s-1")
        expected = {"seq": memory.head, "board": board.to_dict(), "messages_meta": board.get("messages_meta")}
        then = board.at(1).to_dict()
    assert refold("board", "s-1", "--json").json == expected
    assert refold("board", "s-1", "--json", "--at", 1).json["board"] == then


@pytest.mark.usefixtures("store")
def test_the_boards_of_a_store_are_listed(refold: Run) -> None:
    assert "board of the node n-7 of atlas\nboard of s-1\n" in refold("list").out
    assert {"session": "s-1", "project": None, "node": None} in refold("list", "--json").json["boards"]


@pytest.mark.usefixtures("store")
def test_a_board_that_is_not_there_is_an_error(refold: Run, tmp_path: Path) -> None:
    for arguments in (["none"], ["s-1", "--at", "0"], ["--project", "atlas", "--node", "none"]):
        ended = refold("board", *arguments)
        assert (ended.code, ended.out) == (1, "")
        assert "nothing is on the board of" in ended.err
    for arguments in ([], ["--node", "n"], ["--project", "atlas"]):
        refused = refold("board", *arguments).err
        assert "project and node are required when session is missing; give a SESSION, or --project and" in refused
    assert refold("board", "--nonsense").code == 2
    assert refold("board", "s-1", "--db", tmp_path / "none").code == 1
    assert "--json" in refold("board", "--help").out


def test_odd_texts_are_shown_on_one_line_each(tmp_path: Path, refold: Run) -> None:
    with Memory(tmp_path / "store") as memory:
        board = memory.board(session="s")
        board.set_session({"project_id": "p\x1b[2J\n", "active_node_id": "n\n" * 200, "timestamp": "\x1b]0;now\x07\n"})
        board.append_message(message("a\nb", "one\ntwo \x1b[31m" + "x" * 500, role="us\x1ber\n"))
        board.set_fetched_context({"k\n": {"deep": [1, 2]}})
    shown = refold("board", "s", "--db", tmp_path / "store")
    assert shown.code == 0
    assert "\x1b" not in shown.out
    assert all(len(line) < 200 for line in shown.out.splitlines())
    assert len(shown.out.splitlines()) == 8


def test_the_command_runs_as_a_module(store: Path) -> None:
    command = [sys.executable, "-m", "refold", "board", "s-1", "--json"]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"REFOLD_DB": str(store)}
    )
    assert '"session_id"' in ended.stdout


def test_the_board_of_a_session_without_a_conversation_is_blamed(refold: Run, tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.board(session="worker").append_message({"role": "user", "content": "dig here"})
    store = ("--db", tmp_path / "store")
    assert "dig here" in refold("blame", "messages", "worker", *store).out
    assert "there is no conversation 'nobody'" in refold("blame", "messages", "nobody", *store).err
