"""Who is told when a board shows something else, and boards that other processes write to."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import Board, Memory
from refold.memory.board import BoardStream
from refold.memory.board_parts import Layers
from tests.memory.test_board import contents, message
from tests.support.memories import Child, remembering
from tests.support.seams import counted_reads


@pytest.fixture
def boards(memory: Memory) -> tuple[Board, Board]:
    """The board of a session that works on a node, and that of the node."""
    board = memory.board(session="s")
    board.initialise(project_id="p", active_node_id="n")
    return board, memory.board(project="p", node="n")


WRITER = """
import sys
from refold import Memory
with Memory(sys.argv[1]) as memory:
    board = memory.board(session="s", project="p", node="n")
    for line in sys.stdin:
        board.set_working_history(line.strip())
        print("done", flush=True)
"""


class Listener:
    """Remembers what it is told, and tells when there is something to look at."""

    def __init__(self, seen: Callable[[Any], Any]) -> None:
        self._seen, self._grew = seen, threading.Condition()
        self.told: list[Any] = []

    def __call__(self, told: Any) -> None:
        with self._grew:
            self.told.append(self._seen(told))
            self._grew.notify_all()

    def until(self, value: Any) -> list[Any]:
        with self._grew:
            assert self._grew.wait_for(lambda: value in self.told, 20), (value, self.told)
            return list(self.told)


def test_listeners_hear_of_what_a_board_shows_and_of_nothing_else(memory: Memory, boards: tuple[Board, Board]) -> None:
    board, node = boards
    heard, settings = (
        Listener(lambda board: board.get("working_history")),
        Listener(lambda given: given["history_length"]),
    )
    with board.subscribe(heard) as subscription, board.subscribe_settings(settings):
        node.set_working_history("beneath")
        memory.board(session="other").set_working_history("of another")
        memory.profile().set("k", "v")
        with memory.batch():
            board.set_working_history("half")
            board.set_working_history("own")
        node.set_working_history("hidden")
        board.update_settings({"history_length": 3})
        board.update_settings({"include_working_history": False})
        board.set_working_history("not shown")
        board.update_settings({"history_length": 4, "include_working_history": True})
        last = board.append_message({"content": "last"})
        board.set_working_history("end")
        assert heard.until("end")[-1] == "end"
        assert settings.until(4) == [3, 3, 4]
        assert last
        assert subscription.error is None
    told = [text for text, before in zip(heard.told, [None, *heard.told], strict=False) if text != before]
    assert told == ["beneath", "own", "", "not shown", "end"]
    assert not subscription.is_alive
    board.set_working_history("nobody hears")
    assert "nobody hears" not in heard.told


def test_a_listener_hears_from_any_seq_on_of_commits_not_of_their_halves(
    memory: Memory, boards: tuple[Board, Board]
) -> None:
    board, node = boards
    for number in range(3):
        node.append_message(message(number, str(number)))
    board.append_message(message(9, "9"))
    heard = Listener(lambda board: (board.place[1], contents(board)))
    with board.subscribe(heard, after=0):
        heard.until((memory.head, ["0", "1", "2", "9"]))
    assert [rows for _, rows in heard.told] == [[], ["0"], ["0", "1"], ["0", "1", "2"], ["0", "1", "2", "9"]]


def test_a_listener_hears_of_an_erasure_and_of_a_restore(memory: Memory) -> None:
    board = memory.board(session="s")
    memory.profile().set("k", "v")
    snapshot = memory.snapshot("empty")
    board.set_working_history("secret")
    heard = Listener(lambda board: board.get("working_history"))
    with board.subscribe(heard):
        memory.erase([memory.head])
        heard.until("")
        board.set_working_history("again")
        heard.until("again")
        memory.restore(snapshot)
        board.set_working_history("end")
        assert heard.until("end") == ["", "again", "", "end"]


def test_boards_of_others_cost_a_listener_nothing(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int | None] = []
    layers = BoardStream.layers

    def looked(stream: BoardStream) -> Layers:
        if stream.at is not None:
            looks.append(stream.at)
        return layers(stream)

    monkeypatch.setattr(BoardStream, "layers", looked)
    board, node = memory.board(session="s"), memory.board(project="p", node="m")
    heard = Listener(lambda board: board.get("working_history"))
    with board.subscribe(heard, after=0):
        for number in range(50):
            memory.board(session=f"of another {number}").set_working_history("x")
        node.set_working_history("not beneath yet")
        board.initialise(project_id="p", active_node_id="n")
        board.set_session({"active_node_id": "m"})
        node.set_working_history("beneath")
        board.set_session({"active_node_id": "n"})
        node.set_working_history("no longer")
        board.set_working_history("end")
        assert heard.until("end") == ["", "not beneath yet", "beneath", "", "end"]
    assert len(looks) <= 16


def test_a_listener_that_raises_ends_itself_alone(memory: Memory) -> None:
    board, heard = memory.board(session="s"), Listener(lambda board: board.get("working_history"))

    def fail(_: Any) -> None:
        raise ZeroDivisionError

    with board.subscribe(heard), board.subscribe(fail) as failing:
        board.set_working_history("one")
        assert failing.wait(60)
        board.set_working_history("two")
        assert heard.until("two") == ["one", "two"]
    assert isinstance(failing.error, ZeroDivisionError)


def test_listeners_of_a_fork_hear_of_the_fork(memory: Memory) -> None:
    memory.board(session="s").set_working_history("before")
    fork = memory.fork("other")
    heard = Listener(lambda board: board.get("working_history"))
    with fork.board(session="s").subscribe(heard):
        memory.board(session="s").set_working_history("in the main line")
        fork.board(session="s").set_working_history("in the fork")
        assert heard.until("in the fork") == ["in the fork"]


def test_a_listener_hears_of_what_another_process_sets(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory:
        memory.board(project="p", node="n").set_working_history("beneath")
        heard = Listener(lambda board: board.get("working_history"))
        board = memory.board(session="s", project="p", node="n")
        with Child(WRITER, str(tmp_path / "store")) as child, board.subscribe(heard):
            for text in ("one", "two"):
                child.write(text)
                assert child.read() == "done"
            assert heard.until("two") == ["one", "two"]
        assert memory.board(project="p", node="n").get("working_history") == "beneath"


def test_a_killed_writer_leaves_the_board_of_the_node_alone(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.board(project="p", node="n").set_working_history("beneath")
    for number in range(4):
        with Child(WRITER, str(tmp_path / "store")) as child:
            child.write(f"text {number}")
            if number % 2:
                assert child.read() == "done"
            child.kill()
        with remembering(tmp_path / "store") as memory:
            node, board = memory.board(project="p", node="n"), memory.board(session="s", project="p", node="n")
            texts = [f"text {k}" for k in range(number + 1)] if board.version else ["beneath"]
            assert board.get("working_history") in texts
            assert node.get("working_history") == "beneath"


def test_following_a_board_reads_each_event_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much came before: a listener that lags must not fall behind for good."""
    read = list[int]()
    for count in (60, 240):
        with Memory() as memory, monkeypatch.context() as patch:
            board = memory.board(session="s")
            for number in range(count):
                board.append_message(message(str(number), f"message {number}"))
            reads = counted_reads(memory, patch)
            listener = Listener(lambda now: now.version)
            with board.subscribe(listener, after=0):
                listener.until(count)
            read.append(sum(reads) // count)
    assert read[1] <= read[0] + 1
