"""Ids that callers chose: they go with the last event that has them, and calls still find their answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from refold import Conversation, Memory, Message, Recorded, Snapshot
from tests.engine.test_erasure import occurrences
from tests.support.memories import assert_sound

ADA = "ada@example.com"
CALL = f"lookup:{ADA}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def memory(path: Path) -> Iterator[Memory]:
    with Memory(path) as memory:
        yield memory


def call(chat: Conversation, call_id: str, arguments: str = "{}") -> Message:
    calls = [{"id": call_id, "type": "function", "function": {"name": "crm", "arguments": arguments}}]
    return chat.append("assistant", None, tool_calls=calls)


def ids(chat: Conversation) -> list[tuple[tuple[str, ...], str | None]]:
    return [(message.event.call_ids, message.tool_call_id) for message in chat.window()]


def assert_gone(memory: Memory, path: Path) -> None:
    memory.flush()
    assert occurrences(path, ADA) == 0
    assert memory.replay_hash() == memory.state_hash()
    assert_sound(memory)


def test_the_id_of_a_call_goes_with_a_text(memory: Memory, path: Path) -> None:
    chat = memory.conversation("c")
    call(chat, CALL)
    chat.append("tool", "Ada, Graz", tool_call_id=CALL)
    call(chat, "another", ADA)
    assert memory.erase(text=ADA).occurrences == 0
    assert ids(chat) == [(("erased-2",), None), ((), "erased-2"), (("another",), None)]
    assert_gone(memory, path)


def test_an_id_of_two_in_one_event_gets_one_of_its_own(memory: Memory, path: Path) -> None:
    chat = memory.conversation("c")
    calls = [{"id": f"{name}:{ADA}", "type": "function", "function": {"name": "f"}} for name in ("a", "b")]
    chat.append("assistant", None, tool_calls=calls)
    for name in ("b", "a"):
        chat.append("tool", "none", tool_call_id=f"{name}:{ADA}")
    memory.erase(text=ADA)
    assert ids(chat) == [(("erased-2", "erased-2-1"), None), ((), "erased-2-1"), ((), "erased-2")]
    assert_gone(memory, path)


def test_the_id_stays_while_an_event_has_it(memory: Memory, path: Path) -> None:
    chat = memory.conversation("c")
    made, answer = call(chat, CALL), chat.append("tool", "Ada, Graz", tool_call_id=CALL)
    memory.erase([made])
    assert ids(chat) == [((CALL,), None), ((), CALL)], "the answer stays and needs it"
    receipt = memory.erase([answer])
    assert (receipt.seqs, receipt.occurrences) == ((answer.seq,), 0), "the event that was erased before is no news"
    assert ids(chat) == [(("erased-2",), None), ((), "erased-2")]
    assert_gone(memory, path)


def test_forks_share_an_id(memory: Memory, path: Path) -> None:
    chat = memory.conversation("c")
    made = call(chat, CALL)
    twin = chat.fork("twin")
    answer = twin.append("tool", "Ada, Graz", tool_call_id=CALL)
    memory.erase([made])
    assert ids(twin) == [((CALL,), None), ((), CALL)]
    memory.erase([answer])
    assert ids(twin) == [(("erased-2",), None), ((), "erased-2")]
    assert ids(chat) == [(("erased-2",), None)]
    assert_gone(memory, path)


def test_a_conversation_of_an_imported_state_takes_its_ids_with_it(memory: Memory, path: Path) -> None:
    with Memory() as elsewhere:
        chat = elsewhere.conversation("c")
        call(chat, CALL)
        chat.append("tool", "Ada, Graz", tool_call_id=CALL)
        state = chat.snapshot().to_bytes()
    memory.conversation("c").restore(Snapshot.from_bytes(state))
    memory.conversation("other").append("tool", "none", tool_call_id="call-1")
    memory.conversation("c").session.record_call("crm", {}, "Ada", call_id=CALL)
    assert memory.conversation("c").erase().occurrences == 0
    assert_gone(memory, path)


def test_an_id_that_another_conversation_has_too_is_no_trace(memory: Memory, path: Path) -> None:
    for name in ("c", "d"):
        call(memory.conversation(name), "call-of-the-day", f"the arguments of {name}")
    assert memory.conversation("c").erase().occurrences == 0
    assert occurrences(path, "call-of-the-day") > 0
    assert memory.conversation("d").erase().occurrences == 0
    assert occurrences(path, "call-of-the-day") == 0


def test_the_id_of_a_message_on_a_board_goes(memory: Memory, path: Path) -> None:
    board = memory.board(session="s")
    for place in (1, 2):
        board.append_message({"role": "user", "id": f"{ADA}/{place}", "content": "hello"})
    board.append_message({"role": "user", "id": f"{ADA}/1", "content": "hello again"})
    board.append_message({"role": "user", "id": "3", "content": f"I am {ADA}"})
    board.append_message({"role": "user", "id": "4", "content": "a message that stays"})
    assert memory.erase(text=ADA).occurrences == 0
    assert [each["id"] for each in board.get("messages")] == ["4"]
    assert board.get("messages_meta")["total_count"] == 4
    assert _ids_on_boards(memory) == ["erased-1", "erased-2", "erased-1", "3", "4"]
    assert_gone(memory, path)
    board.append_message({"role": "user", "id": f"{ADA}/5", "content": "hello"})
    assert board.erase().occurrences == 0
    assert_gone(memory, path)


def test_an_erased_message_lets_no_earlier_one_of_its_id_come_back(memory: Memory) -> None:
    board = memory.board(session="s")
    board.append_message({"role": "user", "id": "1", "content": "what it said first"})
    board.append_message({"role": "user", "id": "1", "content": "what it says now"})
    memory.erase(text="says now")
    assert board.get("messages") == []
    memory.erase([2])
    assert _ids_on_boards(memory) == ["1", "1"]


def _ids_on_boards(memory: Memory) -> list[str]:
    found: list[Recorded] = [each for each in memory.events() if type(each.event).__name__ == "BoardMessageAppended"]
    return [getattr(each.event, "id") for each in found]  # noqa: B009 - events of boards have it


def test_a_conversation_that_began_anew_by_a_restore_of_the_memory_can_be_erased(memory: Memory, path: Path) -> None:
    memory.profile().set("name", "x")
    nothing, chat = memory.snapshot(), memory.conversation("c")
    message = call(chat, CALL)
    memory.restore(nothing)
    call(chat, "another")
    assert memory.erase([message]).occurrences == 0
    assert_gone(memory, path)
