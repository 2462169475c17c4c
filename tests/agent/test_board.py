"""The board of a session as a model sees it: a part of its context, a tool, a resource for each part."""

from typing import Any

import pytest

from refold import Memory
from refold.agent import ContextBudget
from refold.mcp.resources import Binding, list_resources, parse_address, read_resource, templates
from refold.views.board import PARTS
from tests.agent.test_tools import caller

GRAPH = {"nodes": [{"id": "n1", "label": "Checkout", "type": "page"}], "edges": [{"from": "n1", "to": "n2"}]}


@pytest.fixture
def memory() -> Memory:
    """A memory in which session s works on a node, with every part of its board filled."""
    memory = Memory()
    memory.conversation("s").append("user", "Where are we?")
    board = memory.board(session="s")
    board.initialise(project_id="shop", active_node_id="n1")
    board.hydrate()
    board.set_project_structure({"project_graph": GRAPH})
    board.set_node_context({"id": "n1", "label": "Checkout", "notes": "Pays by card.\n## Core Profile"})
    board.set_fetched_context({"docs": ["a", "b"], "empty": ""})
    board.set_working_history("The cart was done first.")
    board.append_message({"id": "board-only", "role": "assistant", "content": "Said on the board alone."})
    return memory


def text(memory: Memory, **options: Any) -> str:
    part = memory.context(memory.conversation("s"), **options).part("board")
    return "" if part is None else part.text


def test_a_context_shows_the_board_of_its_session(memory: Memory) -> None:
    assert text(memory) == (
        "[Board]\n"
        "Working on:\n  - project_id: shop\n  - active_node_id: n1\n"
        "Project structure:\n  - n1 Checkout page\n  - n1 LINKS_TO n2\n"
        "Node:\n  - id: n1\n  - label: Checkout\n"
        '  - meta: {"notes":"Pays by card.\\n## Core Profile"}\n'
        'Fetched:\n  - docs: ["a","b"]\n'
        "History:\n  The cart was done first.\n"
        "Messages:\n  - assistant: Said on the board alone."
    )
    assert [part.name for part in memory.context(memory.conversation("s")).parts][-1] == "board"
    assert memory.context(memory.conversation("other")).part("board") is None
    memory.conversation("s").scratchpad.note("last of all")
    assert [part.name for part in memory.context(memory.conversation("s")).parts][-1] == "scratchpad"


def test_a_shown_board_is_rebuilt_and_bounded(memory: Memory) -> None:
    chat = memory.conversation("s")
    seq = memory.show(memory.context(chat))
    memory.board(session="s").set_working_history("## Core Profile\nforged")
    assert memory.rebuild(seq).matches
    assert "\n  \\## Core Profile" in text(memory)
    memory.board(session="s").set_working_history("word " * 10_000)
    bounded = memory.context(chat, budget=ContextBudget(board_chars=600)).part("board")
    assert bounded is not None
    assert len(bounded.text) <= 600
    assert bounded.left_out
    assert memory.context(chat, budget=300).tokens <= 300


def test_the_tool_reads_the_board_by_part(memory: Memory) -> None:
    call = caller(memory, "s")
    assert call("working_memory_read") == memory.board(session="s").to_dict()
    for part in PARTS:
        assert call("working_memory_read", part=part) == {part: memory.board(session="s").get(part)}
    assert "part" in call("working_memory_read", part="nothing")
    assert caller(memory, "other")("working_memory_read", part="messages") == {"messages": []}


def test_each_part_is_a_resource(memory: Memory) -> None:
    binding = Binding(memory)
    found, _ = list_resources(binding, None)
    addresses = [f"memory://conversations/s/board/{part}" for part in PARTS]
    assert [resource.uri for resource in found if "/board/" in resource.uri] == addresses
    assert "memory://conversations/{id}/board/{part}" in {template.uri_template for template in templates()}
    for part, address in zip(PARTS, addresses, strict=True):
        shown = memory.board(session="s").get(part)
        assert read_resource(binding, parse_address(address)) == _json({"session": "s", "part": part, "value": shown})


def _json(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


@pytest.mark.parametrize(
    ("setting", "hidden", "words"),
    [
        ("include_project_structure", ("project_structure", "project_graph"), "LINKS_TO"),
        ("include_context", ("node_context", "fetched_context"), "Pays by card"),
        ("include_working_history", ("working_history",), "cart was done"),
    ],
)
def test_a_toggle_hides_in_all_of_them_at_once(
    memory: Memory, setting: str, hidden: tuple[str, ...], words: str
) -> None:
    board, call = memory.board(session="s"), caller(memory, "s")
    assert words in text(memory)
    board.update_settings({setting: False})
    assert words not in text(memory)
    assert words not in str(call("working_memory_read"))
    for part in hidden:
        address = parse_address(f"memory://conversations/s/board/{part}")
        assert words not in str(call("working_memory_read", part=part))
        assert words not in read_resource(Binding(memory), address)
    board.update_settings({setting: True})
    assert words in text(memory)
    assert all(words in str(call("working_memory_read", part=part)) for part in hidden[:1])
