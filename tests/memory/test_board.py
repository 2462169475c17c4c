"""A board: its parts, what each setter makes of what it is given, and what the settings let it show."""

import datetime
import json
from collections.abc import Callable
from typing import Any

import pytest

from refold import Board, InvalidInput, LimitExceeded, Memory, ReadOnly, WrongVersion
from refold.limits import JSON_DEPTH_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX, VALUE_BYTES_MAX
from refold.memory import board_parts
from refold.views.board import MESSAGES_KEPT, PARTS
from tests.support.bounds import Clock
from tests.support.memories import refused

EMPTY_GRAPH: dict[str, Any] = {"nodes": [], "edges": []}
CONTRACT: dict[str, Any] = {
    "session": {"session_id": "", "project_id": "", "active_node_id": "", "timestamp": ""},
    "project_structure": {"project_graph": EMPTY_GRAPH, "elements_graph": EMPTY_GRAPH},
    "node_context": {},
    "fetched_context": {},
    "working_history": "",
    "messages": [],
    "last_user_message": "",
    "config": {
        "history_length": 20,
        "include_project_structure": True,
        "include_context": True,
        "include_working_history": True,
        "auto_refresh_interval": 0,
    },
}
"""The JSON contract of the seed."""


@pytest.fixture
def board(memory: Memory) -> Board:
    """The board of a session."""
    return memory.board(session="s")


def contents(board: Board) -> list[str]:
    return [message["content"] for message in board.get("messages")]


def message(id_: object = "", content: object = "x", created: object = "2025-11-01", **more: Any) -> dict[str, Any]:
    return {"id": id_, "content": content, "created_at": created} | more


# The contract.


def test_an_empty_board_is_the_contract_of_the_seed(memory: Memory, board: Board) -> None:
    assert board.to_dict() == CONTRACT | {"session": CONTRACT["session"] | {"session_id": "s"}}
    shown = json.loads(board.to_json())
    assert shown == board.to_dict()
    assert [*shown, *shown["session"], *shown["config"]] == [
        *CONTRACT,
        *CONTRACT["session"],
        *CONTRACT["config"],
    ]
    assert memory.head == 0


def test_there_are_eleven_parts_not_eight(board: Board) -> None:
    assert len(PARTS) == 11
    for part in PARTS:
        assert board.get(part) == board.get(f"  {part.upper()}\t")


def test_last_message_is_another_name_of_the_last_user_message(board: Board) -> None:
    assert board.set("Last_Message", "hello")
    assert board.get("last_message") == board.get("last_user_message") == "hello"


def test_an_unknown_part_is_refused_with_those_that_are_known(memory: Memory, board: Board) -> None:
    for call in (lambda: board.get("memory"), lambda: board.set("memory", 1), lambda: board.get("")):
        with refused(memory, InvalidInput, "Unknown working memory part", "give one of session, project_graph"):
            call()


def test_project_and_node_are_required_without_a_session(memory: Memory) -> None:
    for given in ({}, {"project": "p"}, {"node": "n"}):
        with refused(memory, InvalidInput, "project and node are required when session is missing"):
            memory.board(**given)
    wrong: tuple[dict[str, Any], ...] = ({"session": ""}, {"session": 5}, {"project": "p", "node": ""})
    for given in (*wrong, {"session": "\ud800"}):
        with refused(memory, InvalidInput):
            memory.board(**given)
    for given in ({"session": "s" * NAME_BYTES_MAX}, {"project": "/" * 200, "node": "n"}):
        with refused(memory, LimitExceeded, "NAME_BYTES_MAX"):
            memory.board(**given)


# Sessions.


def test_a_session_is_changed_field_by_field(memory: Memory, board: Board) -> None:
    assert board.set_session({"project_id": "p"})
    assert board.set_session({"active_node_id": 7, "session_id": "s"})
    assert board.get("session") | {"timestamp": ""} == {
        "session_id": "s",
        "project_id": "p",
        "active_node_id": "7",
        "timestamp": "",
    }
    assert not board.set_session({"project_id": "p", "active_node_id": "7"})
    assert not board.set_session({})
    assert memory.head == 2


def test_the_timestamp_is_that_of_the_last_change_unless_somebody_says_another(clock: Clock, board: Board) -> None:
    board.set_working_history("x")
    assert board.get("session")["timestamp"] == board_parts.iso(clock.time_ns)
    clock.advance(5_000_000)
    board.set_working_history("y")
    assert board.get("session")["timestamp"] == board_parts.iso(clock.time_ns)
    board.set_session({"timestamp": "2025-11-01T00:00:00.000Z"})
    board.set_working_history("z")
    assert board.get("session")["timestamp"] == "2025-11-01T00:00:00.000Z"
    board.set_session({"timestamp": ""})
    assert board.get("session")["timestamp"] == board_parts.iso(clock.time_ns)


def test_initialise_records_what_the_handle_names(memory: Memory) -> None:
    board = memory.board(session="s", project="p", node="n")
    assert board.get("session")["active_node_id"] == "n"
    assert board.initialise()
    assert not board.initialise(project_id="p")
    assert memory.board(session="s").get("session")["project_id"] == "p"
    assert memory.board(session="s").initialise(active_node_id="m")
    assert board.get("session")["active_node_id"] == "n"


def test_a_board_is_of_nobody_else(memory: Memory) -> None:
    session, node = memory.board(session="s", project="p", node="n"), memory.board(project="p", node="n")
    calls: tuple[Callable[[], object], ...] = (
        lambda: session.set_session({"session_id": "t"}),
        lambda: session.set_session({"active_node_id": "m"}),
        lambda: node.set_session({"project_id": "q"}),
        lambda: node.set_session({"session_id": "s"}),
        lambda: node.initialise(active_node_id="m"),
    )
    for call in calls:
        with refused(memory, InvalidInput, "take another one with memory.board(...)"):
            call()
    with refused(memory, InvalidInput, "session has no field 'user'"):
        session.set_session({"user": "x"})
    with refused(memory, LimitExceeded, "NAME_BYTES_MAX"):
        memory.board(session="s").set_session({"project_id": "p" * (NAME_BYTES_MAX + 1)})


# Graphs.


def test_a_graph_keeps_id_label_type_and_builder_of_nodes_that_have_an_id(board: Board) -> None:
    nodes = [
        {"id": 1, "title": "One", "type": "scene", "payload": {"x": 1}},
        {"id": "b", "label": "B", "title": "no", "builder": "main"},
        {"label": "without an id"},
        {"id": None},
        {"id": {"not": "an id"}},
    ]
    assert board.set_project_graph({"nodes": nodes, "edges": None, "zoom": 3})
    assert board.get("project_graph") == {
        "nodes": [
            {"id": "1", "label": "One", "type": "scene", "builder": "scene"},
            {"id": "b", "label": "B", "type": "", "builder": "main"},
        ],
        "edges": [],
    }


def test_an_edge_needs_both_of_its_ends_and_links_by_default(board: Board) -> None:
    edges = [{"from": 1, "to": 2}, {"from": "a", "to": "b", "type": "HAS", "weight": 3}, {"from": "a"}, {"to": "b"}]
    assert board.set_elements_graph({"edges": edges})
    assert board.get("elements_graph")["edges"] == [
        {"from": "1", "to": "2", "type": "LINKS_TO"},
        {"from": "a", "to": "b", "type": "HAS"},
    ]


def test_the_project_structure_is_made_of_the_graphs(memory: Memory, board: Board) -> None:
    one, two = {"nodes": [{"id": "1"}]}, {"nodes": [{"id": "2"}]}
    assert board.set_project_structure({"project_graph": one, "elements_graph": two})
    assert memory.head == 1
    assert board.get("project_structure") == {name: board.get(name) for name in ("project_graph", "elements_graph")}
    assert board.get("elements_graph")["nodes"][0]["id"] == "2"
    assert board.set_project_structure({"elements_graph": one})
    assert board.get("project_graph")["nodes"][0]["id"] == "1"
    assert board.set("project_structure", two)
    assert [board.get(name)["nodes"][0]["id"] for name in ("project_graph", "elements_graph")] == ["2", "1"]
    assert board.set_project_structure(None)
    assert board.get("project_structure") == CONTRACT["project_structure"]
    assert not board.set_project_structure({})


# Contexts and history.


def test_a_node_context_has_id_label_type_and_meta(board: Board) -> None:
    fields = [{"key": " role ", "value": "hero"}, {"key": "", "value": ""}, {"key": "", "value": 3}]
    given = {
        "node_id": 9,
        "title": "Hero",
        "builder": "character",
        "notes": "  outer  ",
        "customFields": fields,
        "linked_elements": [{"id": "v"}, {"id": "", "label": "unused"}, {"id": 2, "label": "Two", "type": "t"}],
        "meta": {"notes": "inner", "stats": {"hp": 10}, "customFields": "replaced"},
        "dropped": True,
    }
    assert board.set_node_context(given)
    assert board.get("node_context") == {
        "id": "9",
        "label": "Hero",
        "type": "character",
        "meta": {
            "notes": "  outer  ",
            "stats": {"hp": 10},
            "customFields": [{"key": "role", "value": "hero"}, {"key": "", "value": "3"}],
            "linked_elements": [
                {"id": "v", "label": "v", "type": ""},
                {"id": "2", "label": "Two", "type": "t"},
            ],
        },
    }
    assert board.set_node_context({"id": "9", "meta": {"notes": "  ", "customFields": []}})
    assert board.get("node_context") == {"id": "9", "label": "", "type": "", "meta": {}}
    assert board.set_node_context(None)
    assert board.get("node_context") == {}


def test_a_fetched_context_is_kept_as_it_is_and_given_out_anew(board: Board) -> None:
    given: dict[str, Any] = {"z": [1, {"a": None}], "a": 1.5}
    assert board.set_fetched_context(given)
    given["z"].append(2)
    shown = board.get("fetched_context")
    assert list(shown) == ["z", "a"]
    shown["z"].append(3)
    assert board.get("fetched_context") == {"z": [1, {"a": None}], "a": 1.5}


@pytest.mark.parametrize(
    ("value", "history"),
    [
        ("text", "text"),
        ({"text": "inner", "more": 1}, "inner"),
        ({"text": 5}, '{"text":5}'),
        (["a", {"b": None}], '["a",{"b":null}]'),
        (5, "5"),
        (True, "true"),
        (None, ""),
    ],
)
def test_a_working_history_is_text_or_has_one_or_is_written_out(value: Any, history: str) -> None:
    assert board_parts.working_history(value) == history


# Messages.


def test_a_message_has_seven_fields(board: Board) -> None:
    assert board.append_message({"id": 3, "content": 5, "node_id": "", "created_at": "2025-11-01", "extra": 1})
    assert board.get("messages") == [
        {
            "id": "3",
            "session_id": "",
            "node_id": None,
            "role": "user",
            "message_type": "",
            "content": "5",
            "created_at": "2025-11-01",
        }
    ]
    full = message("4", "y", "2025-11-02", session_id=1, node_id=2, role="assistant", message_type="inner_process")
    assert board.append_message(full)
    assert board.get("messages")[1] == full | {"session_id": "1", "node_id": "2"}


def test_messages_are_sorted_by_time_then_number_then_text(board: Board) -> None:
    rows = [
        message("10", "ten"),
        message("9", "nine"),
        message("b", "b"),
        message("a", "a"),
        message("1", "later", "2025-11-02T00:00:00+01:00"),
        message("2", "earlier", "2025-11-01T22:00:00Z"),
    ]
    assert board.set_messages(rows)
    assert contents(board) == ["nine", "ten", "a", "b", "earlier", "later"]


def test_a_date_that_is_none_sorts_first(board: Board) -> None:
    board.set_messages(
        [message("1", "known", "1900-01-01"), message("2", "no date", "yesterday"), message("3", "", "")]
    )
    assert [row["id"] for row in board.get("messages")] == ["2", "3", "1"]


def test_messages_are_sorted_before_the_latest_are_kept(board: Board) -> None:
    rows = [message(number, str(number), f"2025-{month:02}-01") for number, month in ((1, 5), (2, 1), (3, 9), (4, 2))]
    board.update_settings({"history_length": 2})
    board.set_messages(rows)
    assert contents(board) == ["1", "3"]
    board.append_message(message(5, "old", "2024-01-01"))
    assert contents(board) == ["1", "3"]
    board.update_settings({"history_length": 5})
    assert contents(board) == ["old", "2", "4", "1", "3"]


def test_a_board_keeps_two_hundred_messages(board: Board) -> None:
    board.update_settings({"history_length": 500})
    rows = [message(number, str(number)) for number in range(MESSAGES_KEPT + 30, 0, -1)]
    assert board.set_messages(rows)
    assert contents(board) == [str(number) for number in range(31, MESSAGES_KEPT + 31)]
    assert board.get("messages_meta")["total_count"] == MESSAGES_KEPT + 30
    board.append_message(message(1_000, "one more"))
    assert contents(board)[0] == "32"


def test_a_message_without_a_time_is_of_now(clock: Clock, board: Board) -> None:
    board.append_message({"content": "one"})
    board.append_message({"content": "two"})
    clock.advance(1)
    board.append_message({"id": "x", "content": "three"})
    assert contents(board) == ["one", "two", "three"]
    assert board.get("messages")[2]["created_at"] == board_parts.iso(clock.time_ns)
    clock.advance(1)
    assert not board.append_message({"id": "x", "content": "three"})
    assert board.append_message({"id": "x", "content": "changed"})
    assert contents(board) == ["one", "two", "changed"]


def test_a_time_may_be_a_datetime(memory: Memory, board: Board) -> None:
    when = datetime.datetime(2025, 11, 1, 12, tzinfo=datetime.UTC)
    board.append_message(message(1, "x", when))
    assert board.get("messages")[0]["created_at"] == "2025-11-01T12:00:00.000000Z"
    with refused(memory, InvalidInput, "naive"):
        board.append_message(message(1, "x", when.replace(tzinfo=None)))
    board.append_message(message(2, "far", "9999-12-31T23:59:59-10:00"))
    board.append_message(message(3, "early", "0001-01-01"))
    assert contents(board) == ["early", "x", "far"]


def test_the_last_user_message_is_what_was_given_else_the_last_one_of_the_user(board: Board) -> None:
    assert board.get("last_user_message") == ""
    board.set_messages(
        [
            message(1, "asked"),
            message(2, "", role="user"),
            message(3, "answered", role="assistant"),
        ]
    )
    assert board.get("last_user_message") == "asked"
    assert board.set_last_user_message(" given ")
    assert board.get("last_user_message") == board.to_dict()["last_user_message"] == " given "
    assert board.set_last_user_message("  \t")
    assert board.get("last_user_message") == "asked"
    assert not board.set_last_user_message(None)


def test_the_meta_of_messages_is_counted_unless_somebody_says_more(board: Board) -> None:
    assert board.get("messages_meta") == {
        "total_count": 0,
        "filtered_count": 0,
        "has_more": False,
        "next_cursor": None,
        "last_user_message": "",
    }
    board.update_settings({"history_length": 2})
    board.set_messages([message(number, str(number)) for number in (1, 2, 3)])
    counted = {"total_count": 3, "filtered_count": 2, "has_more": True, "next_cursor": "2", "last_user_message": "3"}
    assert board.get("messages_meta") == counted
    meta = {"total_count": "50", "filtered_count": -1, "cursor": 17, "last_synced_at": "now", "last_user_message": " "}
    assert board.set_messages([message(1, "x")], meta=meta)
    assert board.get("messages_meta") == {
        "total_count": 50,
        "filtered_count": 1,
        "has_more": False,
        "next_cursor": "17",
        "last_user_message": "x",
        "last_synced_at": "now",
    }
    assert board.set_messages_meta(None)
    assert board.get("messages_meta")["total_count"] == 1


def test_a_message_in_the_place_of_several_is_counted_once(board: Board) -> None:
    board.set_messages([message(1, "a"), message(1, "b")])
    assert board.append_message(message(1, "c"))
    meta = board.get("messages_meta")
    assert (contents(board), meta["total_count"], meta["has_more"], meta["next_cursor"]) == (["c"], 1, False, None)


def test_the_bundle_is_what_a_board_knows_of_a_conversation(board: Board) -> None:
    board.append_message(message(1, "hello"))
    board.set_working_history("history")
    bundle = board.bundle()
    assert list(bundle) == ["messages", "messages_meta", "working_history", "last_user_message"]
    assert bundle == {part: board.get(part) for part in bundle}


# Settings.


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (1, 1),
        (0, 1),
        (-5, 1),
        (200, 200),
        (201, 200),
        (10**30, 200),
        ("50", 50),
        (" 12 rows", 12),
        (7.9, 7),
        ("many", 20),
        ("", 20),
        (True, 20),
        (float("inf"), 20),
        (float("nan"), 20),
        ([], 20),
    ],
)
def test_the_history_length_is_clamped_and_by_default_20(given: Any, kept: int) -> None:
    assert board_parts.settings({"history_length": given}) == {"history_length": kept}


@pytest.mark.parametrize(("given", "kept"), [(0, 0), (-1, 0), (600, 600), (601, 600), ("30s", 30), ("soon", 0)])
def test_the_refresh_interval_is_clamped_and_by_default_0(given: Any, kept: int) -> None:
    assert board_parts.settings({"auto_refresh_interval": given}) == {"auto_refresh_interval": kept}


def test_settings_are_changed_one_by_one(memory: Memory, board: Board) -> None:
    assert not board.update_settings({"history_length": 20, "include_context": None})
    assert not board.update_settings({})
    assert board.update_settings({"history_length": 3})
    assert board.set("config", {"include_context": False, "history_length": 3})
    assert board.get_settings() == CONTRACT["config"] | {"history_length": 3, "include_context": False}
    assert board.get_settings() == board.get("config") == board.to_dict()["config"]
    assert [event.event.fields for event in memory.events()] == [  # type: ignore[attr-defined]
        ("config.history_length",),
        ("config.include_context",),
    ]
    with refused(memory, InvalidInput, "settings has no field 'history'"):
        board.update_settings({"history": 3})
    with refused(memory, InvalidInput, "include_context must be True or False"):
        board.update_settings({"include_context": "false"})


HIDING: dict[str, dict[str, Any]] = {
    "include_project_structure": {"project_graph": {"nodes": [{"id": 1}]}, "elements_graph": {"nodes": [{"id": 2}]}},
    "include_context": {"node_context": {"id": "n"}, "fetched_context": {"a": 1}},
    "include_working_history": {"working_history": "a secret"},
}


@pytest.mark.parametrize("setting", HIDING)
def test_a_toggle_hides_its_sections_at_once_and_loses_nothing(board: Board, setting: str) -> None:
    values = HIDING[setting]
    for part, value in values.items():
        board.set(part, value)
    shown = board.to_dict()
    assert board.update_settings({setting: False})
    hidden = board.to_dict()
    assert hidden | {"config": 0, "session": 0} == CONTRACT | {"config": 0, "session": 0}
    assert all(not board.get(part) or board.get(part) == EMPTY_GRAPH for part in values)
    assert "a secret" not in board.to_json()
    assert board.bundle()["working_history"] == ""
    for part, value in values.items():
        assert not board.set(part, value)
    assert board.update_settings({setting: True})
    assert board.to_dict() | {"session": 0} == shown | {"session": 0}


# What is refused, and what changes nothing.


SETTERS: dict[str, tuple[Any, Any]] = {
    "session": ({"project_id": "p"}, {"timestamp": "then"}),
    "project_graph": ({"nodes": [{"id": "a"}]}, {"nodes": [{"id": "b"}]}),
    "elements_graph": ({"nodes": [{"id": "a"}]}, None),
    "project_structure": ({"nodes": [{"id": "c"}]}, None),
    "node_context": ({"id": "a"}, {"id": "b"}),
    "fetched_context": ({"a": 1, "b": 2}, {"a": 1}),
    "working_history": ("one", "two"),
    "messages": ([message(1)], []),
    "messages_meta": ({"total_count": 5}, {"has_more": True}),
    "last_user_message": ("one", "two"),
    "config": ({"history_length": 5}, {"include_context": False}),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_patch_that_changes_nothing_appends_nothing(memory: Memory, board: Board, part: str) -> None:
    for value in SETTERS[part]:
        version = board.version
        assert board.set(part, value) is True
        assert (board.version, memory.head) == (version + 1, version + 1)
        shown = board.to_dict()
        assert board.set(part, value) is False
        assert (memory.head, board.to_dict()) == (version + 1, shown)


def test_the_order_of_keys_changes_nothing(memory: Memory, board: Board) -> None:
    assert board.set_fetched_context({"a": 1, "b": {"c": 1, "d": 2}})
    assert not board.set_fetched_context({"b": {"d": 2, "c": 1}, "a": 1})
    assert board.set_fetched_context({"a": True, "b": {"c": 1, "d": 2}})
    assert memory.head == 2


def _nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"x": value}
    return value


REFUSED: tuple[tuple[type[Exception], Callable[[Board], Any]], ...] = (
    (InvalidInput, lambda board: board.set_project_graph([])),
    (InvalidInput, lambda board: board.set_project_graph({"nodes": {}})),
    (InvalidInput, lambda board: board.set_project_graph({"node": []})),
    (InvalidInput, lambda board: board.set_project_graph({"nodes": [{"id": "\ud800"}]})),
    (InvalidInput, lambda board: board.set_project_structure("x")),
    (InvalidInput, lambda board: board.set_node_context([])),
    (InvalidInput, lambda board: board.set_node_context({"meta": 5})),
    (InvalidInput, lambda board: board.set_node_context({"id": object()})),
    (InvalidInput, lambda board: board.set_node_context({"id": "a", "customFields": "x"})),
    (InvalidInput, lambda board: board.set_fetched_context("x")),
    (InvalidInput, lambda board: board.set_fetched_context({"x": float("nan")})),
    (InvalidInput, lambda board: board.set_fetched_context({1: 2})),
    (LimitExceeded, lambda board: board.set_fetched_context(_nested(JSON_DEPTH_MAX + 1))),
    (InvalidInput, lambda board: board.set_working_history(object())),
    (LimitExceeded, lambda board: board.set_working_history("x" * (VALUE_BYTES_MAX + 1))),
    (InvalidInput, lambda board: board.set_messages({})),
    (InvalidInput, lambda board: board.set_messages(["x"])),
    (InvalidInput, lambda board: board.set_messages([message()], meta=[])),
    (InvalidInput, lambda board: board.set_messages([message()], meta={"has_more": "yes"})),
    (InvalidInput, lambda board: board.append_message(None)),
    (InvalidInput, lambda board: board.append_message("hello")),
    (InvalidInput, lambda board: board.append_message({"content": b"bytes"})),
    (InvalidInput, lambda board: board.append_message({"id": 2**70, "content": "x"})),
    (LimitExceeded, lambda board: board.append_message(message("x" * (KEY_BYTES_MAX + 1)))),
    (LimitExceeded, lambda board: board.set_messages([message("\u00e9" * (KEY_BYTES_MAX // 2 + 1))])),
    (InvalidInput, lambda board: board.set_last_user_message(5)),  # type: ignore[arg-type]
    (InvalidInput, lambda board: board.set_session([])),  # type: ignore[arg-type]
    (InvalidInput, lambda board: board.update_settings(None)),  # type: ignore[arg-type]
    (InvalidInput, lambda board: board.set("messages", 5)),
    (InvalidInput, lambda board: board.get(5)),  # type: ignore[arg-type]
    (InvalidInput, lambda board: board.set_working_history("x", expected=-1)),
    (WrongVersion, lambda board: board.set_working_history("x", expected=7)),
    (InvalidInput, lambda board: board.set_working_history("x", request_id="")),
    (InvalidInput, lambda board: board.set_working_history("x", sources=[99])),
    (InvalidInput, lambda board: board.events(after=-1)),
    (InvalidInput, lambda board: board.at(99)),
    (InvalidInput, lambda board: board.subscribe("x")),  # type: ignore[arg-type]
    (InvalidInput, lambda board: board.subscribe(lambda _: None, after=-1)),
    (InvalidInput, lambda board: board.subscribe_settings(lambda _: None, after=99)),
    (InvalidInput, lambda board: board.erase(derived="maybe")),
    (ReadOnly, lambda board: board.at(0).set_working_history("x")),
    (ReadOnly, lambda board: board.at(0).append_message(message())),
    (ReadOnly, lambda board: board.at(0).hydrate()),
    (ReadOnly, lambda board: board.at(0).subscribe(print)),
    (ReadOnly, lambda board: board.at(0).erase()),
)


def test_what_is_refused_changes_nothing(memory: Memory, board: Board) -> None:
    for error, call in REFUSED:
        with refused(memory, error):  # type: ignore[arg-type]
            call(board)
    assert board.to_dict() == CONTRACT | {"session": CONTRACT["session"] | {"session_id": "s"}}
