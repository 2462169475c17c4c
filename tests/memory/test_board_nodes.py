"""Boards that follow their session from node to node, and their conversation back in time and into forks."""

from pathlib import Path
from typing import Any

import pytest

from refold import Board, InvalidInput, Memory
from tests.memory.test_board import contents, message
from tests.support.memories import assert_sound, refused, remembering


@pytest.fixture
def board(memory: Memory) -> Board:
    """The board of a session."""
    return memory.board(session="s")


def test_a_node_shows_nothing_of_the_node_before(board: Board) -> None:
    board.initialise(project_id="P", active_node_id="A")
    board.set_node_context({"id": "A"})
    board.set_working_history("of A")
    board.append_message(message(1, "of A", role="user"))
    board.set_project_graph({"nodes": [{"id": "A"}]})
    board.update_settings({"history_length": 5})
    board.set_session({"active_node_id": "B"})
    parts = ("node_context", "working_history", "messages", "last_user_message")
    assert [board.get(part) for part in parts] == [{}, "", [], ""]
    assert board.get("messages_meta")["total_count"] == 0
    assert (board.get("project_graph")["nodes"][0]["id"], board.get_settings()["history_length"]) == ("A", 5)
    board.set_session({"project_id": "Q"})
    assert board.get("project_graph") == {"nodes": [], "edges": []}
    board.set_session({"project_id": "P", "active_node_id": "A"})
    assert [board.get(part) for part in parts[1:]] == ["of A", [board.get("messages")[0]], "of A"]
    assert board.get("node_context")["id"] == "A"


def test_a_session_takes_nothing_of_its_node_from_others(memory: Memory) -> None:
    node = memory.board(project="P", node="N")
    node.set_working_history("shared")
    node.append_message(message(1, "shared"))
    sessions = [memory.board(session=name, project="P", node="N") for name in ("x1", "x2")]
    sessions[0].set_working_history("mine")
    sessions[0].append_message(message(2, "mine"))
    assert [handle.get("working_history") for handle in (*sessions, node)] == ["mine", "shared", "shared"]
    assert [contents(handle) for handle in (*sessions, node)] == [["shared", "mine"], ["shared"], ["shared"]]
    assert sessions[0].get("messages_meta")["total_count"] == 2
    node.append_message(message(3, "later"))
    assert contents(sessions[0]) == ["shared", "mine", "later"]
    sessions[0].set_messages([message(4, "these alone")])
    assert (contents(sessions[0]), len(contents(sessions[1]))) == (["these alone"], 2)


def test_changing_the_node_brings_the_messages_that_were_written_at_it(memory: Memory, board: Board) -> None:
    chat = memory.conversation("s")
    chat.append("user", "before any node")
    assert board.initialise(project_id="P", active_node_id="A")
    assert contents(board) == ["before any node"]
    chat.append("assistant", "at A")
    assert board.set_session({"active_node_id": "B"})
    assert contents(board) == []
    chat.append("user", "at B")
    chat.append("user", "about A", metadata={"node_id": "A"})
    assert (board.hydrate(), contents(board)) == (1, ["at B"])
    assert board.set_session({"active_node_id": "A"})
    assert contents(board) == ["before any node", "at A", "about A"]
    head = memory.head
    assert not board.set_session({"active_node_id": "A"})
    assert (memory.head, board.hydrate()) == (head, 0)


def test_a_bundle_is_of_its_node_alone(memory: Memory) -> None:
    board = memory.board(session="s", project="P", node="A")
    rows = [message(1, "of A", node_id="A"), message(2, "of B", node_id="B"), message(3, "of any")]
    board.set_messages(rows)
    bundle = board.bundle()
    assert [row["content"] for row in bundle["messages"]] == ["of A", "of any"]
    meta = bundle["messages_meta"]
    assert (meta["total_count"], meta["filtered_count"], meta["has_more"]) == (3, 2, False)


def test_the_newest_word_of_the_user_counts(memory: Memory, board: Board) -> None:
    chat = memory.conversation("s")
    chat.append("user", "the question")
    with memory.batch():
        for number in range(25):
            chat.append("assistant", f"step {number}")
    board.hydrate()
    assert board.get("last_user_message") == board.bundle()["messages_meta"]["last_user_message"] == "the question"
    board.set_last_user_message("given")
    board.set_messages_meta({"last_user_message": "given with the counts"})
    assert board.get("last_user_message") == "given"
    assert board.get("messages_meta")["last_user_message"] == "given with the counts"
    board.append_message({"role": "user", "content": "newer"})
    assert board.get("last_user_message") == board.get("messages_meta")["last_user_message"] == "newer"
    with memory.batch():
        board.set_last_user_message("given again")
        assert board.get("last_user_message") == "given again"
        board.append_message({"role": "user", "content": "newest"})
        assert board.get("last_user_message") == "newest"


def test_the_counts_of_a_board_cover_what_it_does_not_hold(memory: Memory, board: Board) -> None:
    chat = memory.conversation("s")
    board.append_message(message("own", "own", "1999-01-01"))
    with memory.batch():
        for number in range(250):
            chat.append("user", f"m{number}", tokens=1)
    assert board.hydrate() == 200
    board.update_settings({"history_length": 200})
    meta = board.get("messages_meta")
    assert (meta["total_count"], meta["filtered_count"], meta["has_more"]) == (251, 200, True)
    chat.append("user", "one more", tokens=1)
    assert (board.hydrate(), board.hydrate()) == (1, 0)
    assert board.get("messages_meta")["total_count"] == 252


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"id": "1", "builder": {"steps": [1, 2]}}, {"label": "", "type": "", "builder": ""}),
        ({"id": "1", "label": ["x"], "type": {"y": 1}}, {"label": "", "type": "", "builder": ""}),
        ({"id": "1", "label": 5, "type": True}, {"label": "5", "type": "true", "builder": "true"}),
    ],
)
def test_the_payload_of_a_builder_is_stripped(board: Board, given: Any, shown: Any) -> None:
    board.set_project_graph({"nodes": [given]})
    assert board.get("project_graph")["nodes"] == [{"id": "1"} | shown]


def test_malformed_members_are_dropped_and_unknown_keys_refused_by_name(memory: Memory, board: Board) -> None:
    board.set_project_graph({"nodes": [None, 5, "x", {"id": "a"}], "edges": [None, {"from": "a", "to": "b"}]})
    assert [len(board.get("project_graph")[name]) for name in ("nodes", "edges")] == [1, 1]
    board.set_node_context({"id": "a", "customFields": [None, {"key": "k"}], "linked_elements": ["x", {"id": "y"}]})
    assert [len(board.get("node_context")["meta"][name]) for name in ("customFields", "linked_elements")] == [1, 1]
    head = memory.head
    wrong: list[dict[str, Any]] = [{"projectGraph": {}}, {"project_graph": {}, "graph": {}}, {"links": []}]
    for given in wrong:
        with refused(memory, InvalidInput, "has no field"):
            board.set_project_structure(given)
    assert memory.head == head


# With its conversation.


def filled(memory: Memory) -> int:
    """Return the seq at which a conversation and its board say one thing; both say another now."""
    chat, board = memory.conversation("s"), memory.board(session="s")
    chat.append("user", "first")
    board.hydrate()
    board.set_working_history("early")
    seq = memory.head
    chat.append("user", "second")
    board.hydrate()
    board.set_working_history("late")
    return seq


def test_a_restored_conversation_brings_its_board(memory: Memory) -> None:
    seq = filled(memory)
    chat, board = memory.conversation("s"), memory.board(session="s")
    shown = board.at(seq).to_dict()
    head = memory.head
    chat.restore(chat.at(seq).snapshot(), request_id="once")
    assert [stamp.stream for _, stamp in memory.events(after=head)] == ["conversation/s", "board/session/s"]
    assert board.to_dict() == shown
    assert contents(board) == [row.content for row in chat.window()] == ["first"]
    board.set_working_history("after")
    chat.restore(chat.at(seq).snapshot(), request_id="once")
    assert board.get("working_history") == "after"
    board.set_working_history("early")
    head = memory.head
    chat.restore(chat.at(0).snapshot(), keep_budget=True)
    assert (contents(board), chat.window()) == ([], [])
    chat.restore(chat.at(head).snapshot())
    assert board.get("working_history") == "early"
    assert_sound(memory)


def test_a_fork_begins_with_the_board_of_its_parent(memory: Memory) -> None:
    seq = filled(memory)
    chat, board = memory.conversation("s"), memory.board(session="s")
    fork = chat.fork("early", at=seq)
    other = memory.board(session="early")
    assert other.get("session")["session_id"] == "early"
    assert (other.get("working_history"), contents(other)) == ("early", ["first"])
    other.set_working_history("of the fork")
    assert board.get("working_history") == "late"
    fork.close(drop=True)
    assert (other.get("working_history"), contents(other)) == ("", [])
    memory.conversation("nothing").fork("empty")
    assert memory.board(session="empty").version == 0
    assert_sound(memory)


def test_a_restore_and_a_fork_survive_the_store(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory:
        seq = filled(memory)
        chat = memory.conversation("s")
        chat.snapshot("now")
        chat.fork("fork")
        chat.restore(chat.at(seq).snapshot())
    with remembering(tmp_path / "store") as memory:
        assert [memory.board(session=name).get("working_history") for name in ("s", "fork")] == ["early", "late"]
        memory.conversation("s").restore("now")
        assert memory.board(session="s").get("working_history") == "late"
        memory.export(tmp_path / "export")
        with Memory() as other:
            other.load(tmp_path / "export")
            assert other.state_hash() == memory.state_hash()
        memory.conversation("s").erase(forks="erase")
        assert [memory.board(session=name).get("working_history") for name in ("s", "fork")] == ["", ""]
        assert_sound(memory)


def test_what_another_conversation_brings_is_its_board(memory: Memory) -> None:
    filled(memory)
    other = memory.conversation("other")
    other.restore(memory.conversation("s").snapshot())
    assert memory.board(session="other").get("working_history") == "late"


def test_the_boards_of_a_memory_are_listed(memory: Memory) -> None:
    memory.board(session="b").set_working_history("x")
    memory.board(session="a").set_working_history("x")
    memory.board(project="p/q%", node="n/m").set_working_history("x")
    boards = memory.boards()
    assert [(board.session, board.project, board.node) for board in boards] == [
        (None, "p/q%", "n/m"),
        ("a", None, None),
        ("b", None, None),
    ]
    assert [board.get("working_history") for board in boards] == ["x"] * 3
    assert [board.session for board in memory.boards(limit=1, after=boards[0])] == ["a"]
    assert [board.session for board in memory.at(1).boards()] == ["b"]
    assert memory.at(1).boards()[0].get("working_history") == "x"
