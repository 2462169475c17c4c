"""Boards over boards, from conversations, through time, in batches, in forks, and between writers that meet."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from refold import Board, InvalidInput, Memory, NotFound, ReadOnly, WrongVersion
from refold.engine.engine import Engine
from refold.engine.transaction import Transaction
from refold.views.board import MESSAGES_KEPT
from tests.memory.test_board import contents, message
from tests.support.bounds import Clock, lowered
from tests.support.memories import assert_sound, elsewhere, in_batch, interrupt, refused, remembering


@pytest.fixture
def boards(memory: Memory) -> tuple[Board, Board]:
    """The board of a session that works on a node, and that of the node."""
    board = memory.board(session="s")
    board.initialise(project_id="a/b", active_node_id="n")
    return board, memory.board(project="a/b", node="n")


def streams(memory: Memory, after: int = 0) -> list[str]:
    return [stamp.stream for _, stamp in memory.events(after=after)]


# What lies beneath.


def test_a_session_reads_the_parts_of_its_node_that_it_has_not_set(boards: tuple[Board, Board]) -> None:
    board, node = boards
    node.set_working_history("of the node")
    node.append_message(message(1, "of the node"))
    assert (board.get("working_history"), contents(board)) == ("of the node", ["of the node"])
    assert board.get("session")["timestamp"] == node.get("session")["timestamp"] != ""
    board.set_node_context({"id": "n"})
    assert node.get("node_context") == {}
    assert node.get("session") | {"timestamp": ""} == {
        "session_id": "",
        "project_id": "a/b",
        "active_node_id": "n",
        "timestamp": "",
    }


def test_the_parts_of_a_session_lie_over_those_of_its_node(memory: Memory, boards: tuple[Board, Board]) -> None:
    board, node = boards
    board.set_messages([message(1, "own")])
    node.set_messages([message(1, "of the node"), message(2, "lost by nobody")])
    node.set_messages_meta({"total_count": 7})
    assert (contents(board), contents(node)) == (["own"], ["of the node", "lost by nobody"])
    assert board.get("messages_meta")["total_count"] == 7
    assert memory.board(session="s", project="a", node="b/n").get("messages_meta")["total_count"] == 0
    board.append_message(message(3, "new"))
    assert (contents(board), contents(node)) == (["own", "new"], ["of the node", "lost by nobody"])


def test_saving_a_part_of_a_session_leaves_that_of_the_node(memory: Memory, boards: tuple[Board, Board]) -> None:
    board, node = boards
    node.set_working_history("old")
    node.set_fetched_context({"a": 1})
    head = memory.head
    assert board.set_working_history("new")
    assert streams(memory, head) == ["board/session/s"]
    assert [node.get(part) for part in ("working_history", "fetched_context")] == ["old", {"a": 1}]
    assert node.at(head).get("working_history") == board.at(head).get("working_history") == "old"
    assert board.get("working_history") == "new"
    assert memory.board(session="other", project="a/b", node="n").get("working_history") == "old"


def test_saving_what_the_node_says_already_appends_nothing(memory: Memory, boards: tuple[Board, Board]) -> None:
    board, node = boards
    node.set_working_history("same")
    node.append_message(message(1, "same"))
    node.update_settings({"history_length": 5})
    head = memory.head
    assert not board.set_working_history("same")
    assert not board.append_message(message(1, "same"))
    assert not board.set_messages([message(1, "same")])
    assert not board.update_settings({"history_length": 5})
    assert memory.head == head


def test_what_a_session_does_not_change_of_a_part_is_that_of_the_node(boards: tuple[Board, Board]) -> None:
    board, node = boards
    node.update_settings({"history_length": 5, "include_context": False})
    node.append_message(message(1, "one"))
    node.append_message(message(2, "two"))
    assert board.update_settings({"auto_refresh_interval": 30, "history_length": 9})
    assert board.append_message(message(3, "three"))
    assert (board.get_settings()["history_length"], board.get_settings()["include_context"]) == (9, False)
    assert (contents(board), contents(node)) == (["one", "two", "three"], ["one", "two"])
    assert node.get_settings()["history_length"] == 5
    assert board.get("messages_meta")["total_count"] == 3


def test_an_empty_part_of_a_session_hides_that_of_its_node(boards: tuple[Board, Board]) -> None:
    board, node = boards
    node.set_node_context({"id": "n"})
    node.set_messages([message(1)])
    assert board.set_node_context(None)
    assert board.set_messages([])
    node.set_node_context({"id": "again"})
    node.append_message(message(2))
    assert (board.get("node_context"), board.get("messages")) == ({}, [])


def test_another_node_brings_another_board(boards: tuple[Board, Board], memory: Memory) -> None:
    board, node = boards
    node.set_working_history("n")
    memory.board(project="a/b", node="m").set_working_history("m")
    board.set_session({"active_node_id": "m"})
    assert board.get("working_history") == "m"
    board.set_session({"active_node_id": ""})
    assert board.get("working_history") == ""
    board.set_session({"active_node_id": "n", "project_id": "x" * 399})
    assert board.get("working_history") == ""


# Conversations.


def test_hydrate_takes_the_messages_that_the_board_lacks(memory: Memory, boards: tuple[Board, Board]) -> None:
    board, _ = boards
    chat = memory.conversation("s")
    assert board.hydrate() == 0
    with memory.batch():
        rows = [chat.append("user", f"m{number}", tokens=1) for number in range(12)]
    call = {"id": "x", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    chat.append("assistant", None, tokens=1, tool_calls=[call])
    chat.append("tool", [{"type": "text", "text": "found"}, {"type": "image"}], tokens=1, tool_call_id="x")
    head = memory.head
    assert board.hydrate() == 13
    assert streams(memory, head) == ["board/session/s"] * 13
    assert contents(board) == [*(f"m{number}" for number in range(12)), "found"]
    assert [recorded.event.sources for recorded in memory.events(after=head)][:2] == [(rows[0].seq,), (rows[1].seq,)]
    shown = board.get("messages")[0]
    assert (shown["id"], shown["session_id"], shown["node_id"], shown["role"]) == (rows[0].id, "s", "n", "user")
    chat.append("assistant", "more", tokens=1)
    assert (board.hydrate("s"), board.hydrate(chat), contents(board)[-1]) == (1, 0, "more")


def test_messages_of_one_commit_keep_their_order_when_they_are_read_and_set_again(memory: Memory) -> None:
    chat, board = memory.conversation("s"), memory.board(session="s")
    board.update_settings({"history_length": 200})
    with memory.batch():
        for number in range(30):
            chat.append("user", f"m{number}", tokens=1)
    board.hydrate()
    told = board.get("messages")
    assert not board.set_messages(told)
    board.set_messages([])
    assert board.set_messages(told[::-1])
    assert board.get("messages") == told
    assert contents(board) == [f"m{number}" for number in range(30)]


def test_hydrate_takes_no_more_than_a_board_holds(memory: Memory) -> None:
    chat, board = memory.conversation("c"), memory.board(project="p", node="n")
    with memory.batch():
        for number in range(MESSAGES_KEPT + 20):
            chat.append("user", f"m{number}", tokens=1, occurred=number + 1)
    board.append_message(message(1, "old", "1969-01-01"))
    board.append_message(message(2, "new"))
    assert board.hydrate(chat) == MESSAGES_KEPT - 1
    assert board.hydrate(chat) == 0
    board.update_settings({"history_length": 200})
    assert (contents(board)[0], contents(board)[-1], len(contents(board))) == ("m21", "new", MESSAGES_KEPT)


def test_hydrate_needs_a_conversation_that_is_there(memory: Memory) -> None:
    with refused(memory, NotFound, "there is no conversation 'none'"):
        memory.board(session="s").hydrate("none")
    with refused(memory, InvalidInput, "name the conversation to read"):
        memory.board(project="p", node="n").hydrate()
    other = Memory()
    other.conversation("c").append("user", "x")
    with refused(memory, InvalidInput, "belongs to another memory"):
        memory.board(session="s").hydrate(other.conversation("c"))
    other.close()


def test_hydrate_in_the_batch_of_its_messages(memory: Memory) -> None:
    board = memory.board(session="s")
    with memory.batch():
        memory.conversation("s").append("user", "one")
        memory.conversation("s").append("assistant", "two")
        assert board.hydrate() == 2
        assert board.hydrate() == 0
        assert contents(board) == ["one", "two"]
        assert board.get("session")["timestamp"] == ""
    assert [event.sources for event, stamp in memory.events() if stamp.stream == "board/session/s"] == [(2,), (3,)]
    assert contents(board) == ["one", "two"]


# Through time.


def test_a_board_is_read_as_of_any_seq(memory: Memory, clock: Clock) -> None:
    board = memory.board(session="s")
    seen = [board.to_dict()]
    for number in range(20):
        clock.advance(1_000)
        board.append_message({"id": number, "content": str(number)})
        board.set("working_history" if number % 2 else "fetched_context", {"text": str(number)})
        seen += [memory.at(memory.head - 1).board(session="s").to_dict(), board.to_dict()]
    memory.flush()
    assert [board.at(seq).to_dict() for seq in range(memory.head + 1)] == seen
    assert board.at(5).version == 5
    assert [stamp.seq for _, stamp in board.at(5).events(after=2)] == [3, 4, 5]
    assert board.at(5).place == ("board/session/s", 5)
    assert repr(board.at(1)) == "Board(session='s', messages=1)"
    with refused(memory, ReadOnly, "frozen at seq 5"):
        memory.at(5).board(session="s").set_working_history("x")


def test_few_checkpoint_bytes_give_every_state_back(tmp_path: Path) -> None:
    with lowered(CHECKPOINT_EVENTS=2, INLINE_BYTES_MAX=0, PAGE_EVENTS=2, TAIL_EVENTS_MAX=6):
        with remembering(tmp_path / "store") as memory:
            board = memory.board(session="s")
            for number in range(12):
                board.append_message(message(number % 5, f"text {number}"))
                board.set_messages([message(number), message("x")]) if number == 6 else None
                board.set_working_history(f"history {number // 2}")
            board.set_project_structure({"nodes": [{"id": "a"}]})
            seen = [board.at(seq).to_dict() for seq in range(memory.head + 1)]
        with Memory(tmp_path / "store") as memory:
            assert [memory.board(session="s").at(seq).to_dict() for seq in range(memory.head + 1)] == seen
            assert memory.board(session="s").to_dict() == seen[-1]


def test_an_export_carries_boards(memory: Memory, boards: tuple[Board, Board], tmp_path: Path) -> None:
    board, node = boards
    node.append_message(message(1, "one"))
    board.append_message(message(2, "two", "no date"))
    board.set_project_graph({"nodes": [{"id": "\u4e16"}]})
    memory.export(tmp_path / "export")
    assert memory.stats().boards == 2
    with Memory() as other:
        other.load(tmp_path / "export")
        assert other.board(session="s").to_dict() == board.to_dict()
        assert other.state_hash() == memory.state_hash()
        assert_sound(other)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"history_length":', '"length":'),
        ('"config.history_length":5', '"config.history_length":5000'),
        ('"role":"user"', '"rank":"user"'),
        ('"id":"1","created_ns"', '"id":"2","created_ns"'),
    ],
)
def test_an_export_with_a_board_of_nobody_is_refused(tmp_path: Path, old: str, new: str) -> None:
    with Memory() as memory:
        memory.board(session="s").update_settings({"history_length": 5})
        memory.board(session="s").append_message(message(1))
        memory.export(tmp_path / "export")
    text = (tmp_path / "export").read_text(encoding="utf-8")
    (tmp_path / "export").write_text(
        text.replace(
            old.replace("history_length", "config.history_length") if old.startswith('"history') else old, new
        ),
        encoding="utf-8",
    )
    assert (tmp_path / "export").read_text(encoding="utf-8") != text
    with remembering() as other, refused(other, InvalidInput, "seq "):
        other.load(tmp_path / "export")


# Erasing.


def test_erasing_a_conversation_reaches_the_boards_that_it_filled(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory:
        chat, board = memory.conversation("s"), memory.board(session="another")
        node = memory.board(project="p", node="n")
        chat.append("user", "a secret word", tokens=1)
        node.hydrate("s")
        board.initialise(project_id="p", active_node_id="n")
        board.append_message(message(7, "a harmless word"))
        assert contents(board) == ["a harmless word", "a secret word"]
        receipt = chat.erase()
        assert receipt.occurrences == 0
        assert len(receipt.derived) == 1
        assert (contents(board), contents(node)) == (["a harmless word"], [])
        assert b"a secret word" not in (tmp_path / "store" / "data.mdb").read_bytes()


def test_the_board_of_a_session_goes_with_its_conversation(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory:
        chat, board = memory.conversation("s"), memory.board(session="s")
        chat.append("user", "a secret word", tokens=1)
        board.hydrate()
        board.set_working_history("a word that the host made of it")
        kept = chat.erase(derived="keep")
        assert kept.streams == ("conversation/erased-1",)
        assert board.get("working_history") == "a word that the host made of it"
        memory.conversation("s").append("user", "a secret word", tokens=1)
        receipt = memory.conversation("s").erase()
        assert receipt.streams == ("board/erased-2", "conversation/erased-4")
        assert (board.get("working_history"), contents(board), board.version) == ("", [], 0)
        assert b"a word that the host" not in (tmp_path / "store" / "data.mdb").read_bytes()


def test_the_boards_of_its_nodes_go_with_a_project(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory:
        for name in ("shop/ada", "shop/ada2", "100%"):
            memory.project(name).add(f"A fact of {name}.")
            for node in ("case-1", "case/2"):
                memory.board(project=name, node=node).set_working_history(f"a word of {name} that is its own")
        session = memory.board(session="s")
        session.initialise(project_id="shop/ada", active_node_id="case-1")
        project = memory.project("shop/ada")
        kept = project.erase(derived="keep")
        assert (len(kept.seqs), [memory.event(seq).stamp.stream for seq in kept.naming]) == (
            1,
            ["board/node/shop%2Fada/case-1", "board/node/shop%2Fada/case/2"],
        )
        receipt = project.erase()
        assert (receipt.seqs, receipt.derived, receipt.unexplained) == ((), kept.naming, 0)
        assert (session.get("working_history"), memory.board(project="shop/ada", node="case/2").version) == ("", 0)
        assert memory.board(project="shop/ada2", node="case/2").get("working_history").startswith("a word of")
        assert b"a word of shop/ada that" not in (tmp_path / "store" / "data.mdb").read_bytes()
        assert memory.erase(text="shop/ada2").named == (
            *("board/node/shop%2Fada2/case-1", "board/node/shop%2Fada2/case/2", "project/shop/ada2"),
        )
        memory.project("100%").erase()
        assert [board.project for board in memory.boards()] == ["shop/ada2", "shop/ada2", None]
        assert memory.verify().ok


def _erasing_before_a_commit(monkeypatch: pytest.MonkeyPatch, erase: Callable[[], object]) -> None:
    """Lets another thread erase between the look of a verb and its commit, once."""
    commit_batch = Engine.commit

    def erased_first(engine: Engine, pending: Transaction) -> None:
        monkeypatch.setattr(Engine, "commit", commit_batch)
        elsewhere(erase)
        commit_batch(engine, pending)

    monkeypatch.setattr(Engine, "commit", erased_first)


def test_what_is_erased_while_a_board_takes_it_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with remembering(tmp_path / "store") as memory:
        chat, board, node = memory.conversation("s"), memory.board(session="s"), memory.board(project="p", node="n")
        chat.append("user", "a secret word", tokens=1)
        chat.append("user", "a harmless word", tokens=1)
        _erasing_before_a_commit(monkeypatch, lambda: memory.erase([2]))
        assert (board.hydrate(), contents(board)) == (1, ["a harmless word"])
        board.initialise(project_id="p", active_node_id="n")
        board.set_messages([])
        board.set_session({"project_id": "q"})
        node.append_message(message(1, "a secret word"))
        over = memory.board(session="other", project="p", node="n")
        memory.erase([memory.head])
        assert over.append_message(message(2, "mine"))
        assert (contents(over), contents(node)) == (["mine"], [])
        assert b"a secret word" not in (tmp_path / "store" / "data.mdb").read_bytes()


def test_a_batch_that_took_what_was_erased_meanwhile_is_refused(memory: Memory, boards: tuple[Board, Board]) -> None:
    board, _ = boards
    said = memory.conversation("s").append("user", "a secret word", tokens=1)
    with pytest.raises(WrongVersion):
        in_batch(memory, board.hydrate, lambda: elsewhere(lambda: memory.erase([said.seq])))
    assert (contents(board), board.hydrate()) == ([], 0)


def test_erasing_a_project_reaches_what_was_fetched_of_it(memory: Memory) -> None:
    board, project = memory.board(session="s"), memory.project("p")
    entry = project.add("the code is 1234")
    board.set_fetched_context({"memories": [entry.content]}, sources=[entry])
    board.set_working_history("untouched")
    assert project.erase().occurrences == 0
    assert (board.get("fetched_context"), board.get("working_history")) == ({}, "untouched")


def test_an_erased_value_brings_nothing_back(memory: Memory, boards: tuple[Board, Board]) -> None:
    board, node = boards
    node.set_working_history("first version")
    board.set_working_history("second version")
    last = memory.head
    assert memory.erase([last]).occurrences == 0
    assert [handle.get("working_history") for handle in (board, board.at(last))] == ["first version"] * 2
    board.set_working_history("third version")
    board.set_working_history("fourth version")
    memory.erase([memory.head])
    assert board.get("working_history") == "first version"
    memory.erase([last - 1])
    assert [handle.get("working_history") for handle in (board, node)] == ["", ""]


def test_erasing_a_board_takes_its_name_too(memory: Memory, boards: tuple[Board, Board]) -> None:
    board, node = boards
    node.set_working_history("a history that goes")
    board.set_working_history("a history that stays")
    receipt = node.erase()
    assert (receipt.occurrences, len(receipt.streams)) == (0, 1)
    assert receipt.streams[0].startswith("board/erased-")
    assert (node.version, board.get("working_history")) == (0, "a history that stays")
    with refused(memory, ReadOnly):
        node.at(1).erase()


# Options and batches.


def test_a_request_is_answered_once(memory: Memory, boards: tuple[Board, Board]) -> None:
    board, node = boards
    node.append_message(message(1, "beneath"))
    for _ in range(2):
        assert board.append_message({"content": "once"}, request_id="r")
        assert board.set_working_history("x", request_id="s")
    assert contents(board) == ["beneath", "once"]
    node.append_message(message(2, "later"))
    assert board.append_message({"content": "once"}, request_id="r")
    assert contents(node) == ["beneath", "later"]
    assert not board.set_working_history("x", request_id="nothing")
    board.set_working_history("y")
    assert not board.set_working_history("x", request_id="nothing")
    with refused(memory, InvalidInput, "request_id"):
        board.append_message({"content": "another"}, request_id="r")
    memory.conversation("s").append("user", "hello")
    assert [board.hydrate(request_id="h") for _ in range(2)] == [1, 1]
    with memory.batch():
        memory.conversation("s").append("user", "again")
        memory.conversation("s").append("user", "and again")
        assert board.hydrate(request_id="b") == 2
        assert board.hydrate(request_id="b") == 2
    assert board.hydrate(request_id="b") == 2


def test_sources_are_recorded(memory: Memory, boards: tuple[Board, Board]) -> None:
    board, node = boards
    node.append_message(message(1, "beneath"))
    board.append_message(message(2, "own"), sources=[1])
    assert [event.sources for event, _ in memory.events(after=1)] == [(), (1,)]


def test_a_batch_sees_its_own_boards_and_nobody_else_does(memory: Memory, boards: tuple[Board, Board]) -> None:
    board, node = boards
    node.append_message(message(1, "beneath"))
    with pytest.raises(ZeroDivisionError):
        in_batch(memory, lambda: board.append_message(message(2, "never")), interrupt)
    assert (contents(board), memory.head) == (["beneath"], 2)
    with memory.batch():
        board.append_message(message(2, "own"))
        node.append_message(message(3, "new"))
        board.update_settings({"history_length": 1})
        assert (contents(board), contents(node)) == (["new"], ["beneath", "new"])
        assert elsewhere(lambda: contents(board)) == ["beneath"]
        with pytest.raises(InvalidInput):
            board.append_message("x")
        with pytest.raises(InvalidInput):
            board.erase()
    board.update_settings({"history_length": 9})
    assert (contents(board), contents(node)) == (["beneath", "own", "new"], ["beneath", "new"])


# Many writers.


def test_threads_that_write_to_a_session_and_its_node_lose_nothing(boards: tuple[Board, Board]) -> None:
    board, node = boards
    failed: list[BaseException] = []

    def write(handle: Board, begin: int) -> None:
        try:
            for number in range(begin, begin + 12):
                handle.append_message(message(number, str(number)))
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=write, args=(handle, 100 * k)) for k, handle in enumerate((board, node, board))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    board.update_settings({"history_length": 200})
    node.update_settings({"history_length": 200})
    assert {*contents(board), *contents(node)} == {str(k * 100 + number) for k in range(3) for number in range(12)}


def test_the_same_board_for_asyncio(memory: Memory) -> None:
    async def work() -> tuple[list[str], int]:
        board, node = memory.aio.board(session="s", project="p", node="n"), memory.aio.board(project="p", node="n")
        await node.append_message(message(0, "0"))
        done = await asyncio.gather(*(board.append_message(message(number, str(number))) for number in range(1, 9)))
        assert done == [True] * 8
        await memory.aio.conversation("s").append("user", "hello")
        assert await board.hydrate(memory.aio.conversation("s")) == 1
        twice = await asyncio.gather(*(board.set_working_history("x", request_id="r") for _ in range(3)))
        assert (twice, board.get("working_history")) == ([True] * 3, "x")
        async with memory.aio.batch():
            assert await board.set("config", {"history_length": 3})
            assert board.get_settings()["history_length"] == 3
        assert board.at(0).to_json() != board.to_json()
        assert (board.version, board.place) == (board.plain.version, board.plain.place)
        assert (board.session, board.project, board.node) == ("s", "p", "n")
        assert repr(board) == "AsyncBoard(session='s', project='p', node='n', messages=3)"
        assert (await board.erase()).streams == ("board/erased-2",)
        return [row["content"] for row in board.at(memory.head - 1).get("messages")], board.version

    assert asyncio.run(work())[1] == 0
