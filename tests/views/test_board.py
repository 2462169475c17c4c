"""Given events, the board."""

from typing import Any

import msgspec
import pytest

from refold import fold
from refold.event import Event, ForkDropped, pack_json
from refold.limits import KEY_BYTES_MAX
from refold.views.board import (
    BOARD,
    MESSAGES_KEPT,
    MOVES_KEPT,
    BoardChanged,
    BoardMessageAppended,
    BoardRow,
    BoardState,
    board_change,
    field_at,
    order_of,
)
from tests.views.fold import Erased, folded

Row = tuple[str, int | None]


def said(id_: str, content: str = "x") -> dict[str, Any]:
    fields = {"session_id": "", "node_id": None, "role": "user", "message_type": "", "created_at": ""}
    return {"id": id_, "content": content} | fields


def posted(id_: str, created_ns: int | None = None, content: str = "x") -> BoardMessageAppended:
    return BoardMessageAppended((), id_, created_ns, "", 0, pack_json(said(id_, content)))


def listed(*rows: Row, total: int | None = None) -> BoardChanged:
    given = [[created_ns, said(id_)] for id_, created_ns in rows]
    return board_change((), {"messages": {"total": len(rows) if total is None else total, "rows": given}})


def changed(**values: Any) -> BoardChanged:
    return board_change((), values)


VALUES: dict[str, tuple[list[Event | Erased], dict[str, Any]]] = {
    "nothing": ([], {}),
    "a value": ([changed(working_history="one")], {"working_history": "one"}),
    "a value set again": ([changed(working_history="one"), changed(working_history="two")], {"working_history": "two"}),
    "fields of one part by themselves": (
        [board_change((), {"session.project_id": "p"}), board_change((), {"session.active_node_id": "n"})],
        {"session.project_id": "p", "session.active_node_id": "n"},
    ),
    "a removed value": ([changed(working_history="one"), BoardChanged((), ("working_history",))], {}),
    "an erased value takes what it replaced": (
        [changed(working_history="old", last_user_message="kept"), Erased(changed(working_history="new"))],
        {"last_user_message": "kept"},
    ),
    "an erased removal brings nothing back": (
        [changed(working_history="old"), Erased(BoardChanged((), ("working_history",)))],
        {},
    ),
    "a large value": (
        [changed(working_history="x" * 1_000), changed(last_user_message="y")],
        {
            "working_history": "x" * 1_000,
            "last_user_message": "y",
        },
    ),
}


@pytest.mark.parametrize("what", VALUES)
def test_the_values_after_events(what: str) -> None:
    events, values = VALUES[what]
    board = folded("board", *events).part(BOARD)
    assert {field: msgspec.msgpack.decode(packed) for field, packed in board.entries.values.items()} == values


ORDERS: dict[str, tuple[list[Event | Erased], list[str], int | None]] = {
    "none": ([], [], None),
    "in the order of their times": ([posted("c", 3), posted("a", 1), posted("b", 2)], ["a", "b", "c"], 3),
    "an unknown time first": ([posted("a", -5), posted("b")], ["b", "a"], 2),
    "equal times by number": (
        [posted("10", 1), posted("9", 1), posted("x", 1), posted("8b", 1)],
        [
            *("8b", "9", "10", "x"),
        ],
        4,
    ),
    "messages without an id as they came": ([posted("", 1, "one"), posted("", 1, "two")], ["", ""], 2),
    "one in the place of another with its id": ([posted("a", 1), posted("b", 2), posted("a", 3)], ["b", "a"], 2),
    "one in the place of several": ([listed(("a", 1), ("b", 2), ("a", 3)), posted("a", 4)], ["b", "a"], 2),
    "one in the place of several of many": ([listed(("a", 1), ("a", 3), total=9), posted("a", 4)], ["a"], 8),
    "a list in the place of all": ([posted("a", 1), listed(("c", 2), ("b", 1), total=9)], ["b", "c"], 9),
    "an empty list": ([posted("a", 1), listed()], [], 0),
    "a list and more": ([listed(("b", 2)), posted("a", 1)], ["a", "b"], 2),
    "an erased one keeps its place": ([posted("a", 1), Erased(posted("b", 2)), posted("c", 3)], ["a", "b", "c"], 3),
    "an erased list leaves nothing that it replaced": ([posted("a", 1), Erased(listed(("b", 2)))], [], None),
    "a removed list": ([posted("a", 1), BoardChanged((), ("messages",))], [], None),
}


@pytest.mark.parametrize("what", ORDERS)
def test_the_messages_after_events(what: str) -> None:
    events, ids, total = ORDERS[what]
    board = folded("board", *events).part(BOARD)
    assert [row.id for row in board.listing().rows] == ids
    assert (board.listing().total if board.listings else None) == total


def test_the_board_holds_the_latest_messages_and_counts_all() -> None:
    state = fold.empty("board")
    board = state.part(BOARD)
    for number in range(MESSAGES_KEPT + 5):
        board.post(BoardRow(number + 1, 0, "", -number, b"\x80"))
    assert [row.created_ns for row in board.listing().rows] == [-number for number in range(MESSAGES_KEPT)][::-1]
    assert board.listing().total == MESSAGES_KEPT + 5


def test_an_erased_message_lets_none_come_back_that_was_pushed_out() -> None:
    events: list[Event | Erased] = [posted(f"m{number}", number) for number in range(MESSAGES_KEPT)]
    events += [Erased(posted("last", 10_000))]
    board = BoardState()
    for seq, given in enumerate(events, 1):
        event = given.event if isinstance(given, Erased) else given
        assert isinstance(event, BoardMessageAppended)
        board.post(BoardRow(seq, 0, event.id, event.created_ns, event.packed))
    assert "m0" not in {row.id for row in board.listing().rows}
    assert [row.id for row in board.listing().rows if not row.packed] == ["last"]


def test_a_long_number_is_no_number() -> None:
    rows = [BoardRow(1, 0, id_, 1, b"") for id_ in ("9" * 5_000, "-3", "+2", "1" * 18, "1" * 19, "2 of 3")]
    assert [row.id[:6] for row in sorted(rows, key=order_of)][:4] == ["-3", "+2", "2 of 3", "111111"]


def test_the_copy_goes_on_by_itself() -> None:
    state = folded("board", posted("a", 1), changed(working_history="one"))
    copy = fold.copy_state(state)
    assert copy is not None
    copy.part(BOARD).post(BoardRow(9, 0, "b", 2, b"\x80"))
    copy.part(BOARD).drop("working_history")
    assert [row.id for row in state.part(BOARD).listing().rows] == ["a"]
    assert "working_history" in state.part(BOARD).entries.values


def test_an_empty_one_has_no_digest_and_shows_nothing() -> None:
    state = folded("board", posted("a", 1), BoardChanged((), ("messages",)))
    assert (fold.digests(state), fold.plain(state)) == ([], {"board": {}})


def test_what_a_person_compares() -> None:
    state = folded("board", posted("a", 1), Erased(posted("b", 2)), board_change((), {"config.history_length": 3}))
    assert fold.plain(state)["board"] == {
        "config": {"history_length": 3},
        "messages": [said("a"), None],
        "messages_total": 2,
    }


WRONG: dict[str, BoardChanged | BoardMessageAppended] = {
    "no field": board_change((), {"robot": 1}),
    "a setting of a node": board_change((), {"config.include_context@0123456789abcdef": True}),
    "a place that is none": board_change((), {"working_history@": "x"}),
    "a message at a place that is none": BoardMessageAppended((), "a", None, "the kitchen", 0, pack_json(said("a"))),
    "a value without its field": BoardChanged((), (), pack_json({"working_history": "x"})),
    "a history that is a number": changed(working_history=5),
    "a history length of 0": board_change((), {"config.history_length": 0}),
    "a history length over its bound": board_change((), {"config.history_length": 201}),
    "a toggle that is a number": board_change((), {"config.include_context": 1}),
    "a graph without edges": changed(project_graph={"nodes": []}),
    "a node that says too much": changed(
        project_graph={"nodes": [{"id": "a", "label": "", "type": "", "builder": "", "data": 1}], "edges": []}
    ),
    "a message that lacks fields": board_change((), {"messages": {"total": 1, "rows": [[None, {"id": "a"}]]}}),
    "too many messages": listed(*[(str(number), number) for number in range(MESSAGES_KEPT + 1)]),
    "no map": BoardChanged((), (), pack_json([1])),
    "a message of another id": BoardMessageAppended((), "a", None, "", 0, pack_json(said("b"))),
    "a message with an id over its bound": posted("x" * (KEY_BYTES_MAX + 1)),
    "an erased message with an id over its bound": BoardMessageAppended((), "x" * (KEY_BYTES_MAX + 1), None, "", 0),
    "messages with an id over its bound": listed(("x" * (KEY_BYTES_MAX + 1), 1)),
    "no message": BoardMessageAppended((), "a", None, "", 0, pack_json({"id": "a"})),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_no_verb_could_have_written_is_told(what: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        WRONG[what].check(is_erased=False)


def test_what_verbs_write_passes() -> None:
    for event in (
        posted("a"),
        listed(("a", None)),
        BoardChanged((), ("messages",)),
        board_change((), {"working_history@0123456789abcdef": "of a node"}),
    ):
        event.check(is_erased=False)


def test_each_place_has_fields_and_messages_of_its_own() -> None:
    here, there = field_at("working_history", ("a" * 16, "b" * 16)), field_at("project_graph", ("a" * 16, "b" * 16))
    assert (here, there) == (f"working_history@{'b' * 16}", f"project_graph@{'a' * 16}")
    said_there = BoardMessageAppended((), "x", 1, "b" * 16, 7, pack_json(said("x")))
    board = folded("board", posted("a", 1), said_there, board_change((), {here: "there"})).part(BOARD)
    assert [(row.id, listing.total) for listing in board.listings.values() for row in listing.rows] == [
        ("a", 1),
        ("x", 7),
    ]
    assert board.text("working_history") == ""
    assert (board.text(here), field_at("config.history_length", ("a", "b"))) == ("there", "config.history_length")


def test_a_board_remembers_its_last_moves() -> None:
    moves: list[Event | Erased] = [
        board_change((), {"session.active_node_id": f"n{number}"}) for number in range(MOVES_KEPT + 3)
    ]
    board = folded("board", *moves, changed(working_history="x"), moves[-1]).part(BOARD)
    assert [seq for seq, _ in board.moves] == list(range(4, MOVES_KEPT + 4))
    assert len({place for _, place in board.moves}) == MOVES_KEPT


def test_a_fork_that_was_dropped_leaves_nothing_on_its_board() -> None:
    state = folded("board", posted("a", 1), board_change((), {"session.project_id": "p"}), ForkDropped(()))
    assert (fold.digests(state), fold.is_open(state)) == ([], False)
