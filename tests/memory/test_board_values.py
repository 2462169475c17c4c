"""Any JSON value given to any part of a board: refused whole, or in a form that an export may hold, and idempotent."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from refold import Board, Memory, RefoldError
from refold.event import unpack_json
from refold.views.board import MESSAGES_KEPT, PARTS, BoardChanged, BoardMessageAppended

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["2026-11-21", "9" * 40, "-0", "\ud800", "n"]),
)
KEYS = (
    *("id", "label", "title", "type", "builder", "from", "to", "nodes", "edges", "meta", "notes", "customFields"),
    *("linked_elements", "key", "value", "text", "role", "content", "created_at", "node_id", "session_id"),
    *("project_graph", "elements_graph", "history_length", "include_context", "auto_refresh_interval", "project_id"),
    *("active_node_id", "timestamp", "total_count", "cursor", "has_more", "last_user_message", "last_synced_at"),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    ),
    max_leaves=12,
)


def shown(board: Board) -> Any:
    return {part: board.get(part) for part in PARTS}


@pytest.mark.slow
@pytest.mark.parametrize("part", [*PARTS, "append"])
@settings(max_examples=60, deadline=None)
@given(value=values)
@example(value={"nodes": [{"id": "1", "type": {"a": [1]}}], "edges": [{"from": True, "to": 1.5}]})
@example(value=[{"id": 2**63, "created_at": "0001-01-01T00:00:00+14:00"}, {"content": ["x"], "created_at": 7}])
@example(value={"history_length": float("-inf"), "auto_refresh_interval": "-3"})
@example(value={"history_length": 10**400, "auto_refresh_interval": -(10**400)})
def test_any_value_is_refused_whole_or_brought_into_form(part: str, value: Any) -> None:
    with Memory() as memory:
        board = memory.board(session="s")
        try:
            changed = board.append_message(value) if part == "append" else board.set(part, value)
        except RefoldError:
            assert memory.head == 0
            return
        assert memory.head == changed
        for event, _ in memory.events():
            assert isinstance(event, (BoardChanged, BoardMessageAppended))
            event.check(is_erased=False)
        now = shown(board)
        assert msgspec.json.decode(board.to_json()) == board.to_dict()
        if part not in {"append", "messages_meta", "session", "last_user_message"}:
            assert board.set(part, board.get(part)) is False
        assert shown(board) == now
        assert memory.replay_hash() == memory.state_hash()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "id": st.sampled_from(["", "1", "10", "2", "a", "2b"]),
                "created_at": st.sampled_from(["", "x", "2026-11-21", "2026-11-21T00:00:00.5", "1969-01-01"]),
            }
        ),
        max_size=12,
    ),
    begin=st.integers(0, MESSAGES_KEPT),
)
def test_messages_stand_the_same_way_whether_set_or_appended(rows: list[dict[str, str]], begin: int) -> None:
    """Where none has the id of another and each says when it was made."""
    alone = {row["id"] or f"{number + begin}x": row | {"content": str(number)} for number, row in enumerate(rows)}
    given_rows = [row | {"id": id_, "created_at": row["created_at"] or "unknown"} for id_, row in alone.items()]
    with Memory() as memory:
        one, other = memory.board(session="one"), memory.board(session="other")
        one.set_messages(given_rows)
        for row in given_rows:
            other.append_message(row)
        assert one.get("messages") == other.get("messages")
        assert one.get("messages_meta") == other.get("messages_meta")
        stored = [unpack_json(e.packed) for e, _ in memory.events() if isinstance(e, BoardMessageAppended)]
        assert [row["id"] for row in stored] == [row["id"] for row in given_rows]
