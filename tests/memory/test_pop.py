"""``chat.pop``: the newest message leaves the window and is returned, whoever else pops."""

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from refold import Conversation, InvalidInput, Memory
from refold.views.window import POLICIES

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def contents(chat: Conversation) -> list[Any]:
    return [message.content for message in chat.window()]


@pytest.mark.parametrize("eviction", POLICIES)
def test_the_newest_message_leaves_and_is_returned(memory: Memory, eviction: str) -> None:
    chat = memory.conversation("chat", window_tokens=100, eviction=eviction)
    said = [chat.append("user", text, tokens=10) for text in ("one", "two", "three")]
    assert chat.pop() == said[2]
    assert contents(chat) == ["one", "two"]
    assert chat.token_count() == 20
    assert chat.at(said[2].seq).window() == said
    assert chat.history() == said
    chat.append("user", "four", tokens=10)
    assert [chat.pop() for _ in range(2)] == [chat.message(memory.head - 2), said[1]]
    assert contents(chat) == ["one"]


def test_an_empty_window_gives_none_and_no_event(memory: Memory) -> None:
    chat = memory.conversation("chat")
    assert chat.pop() is None
    assert memory.head == 0
    chat.append("user", "one")
    chat.clear_window()
    assert chat.pop() is None
    assert memory.head == 3


def test_a_call_leaves_with_its_answers(memory: Memory) -> None:
    chat = memory.conversation("chat")
    chat.append("user", "look")
    chat.append("assistant", None, tool_calls=[CALL])
    chat.append("user", "well?")
    answer = chat.append("tool", "found", tool_call_id="c1")
    assert chat.pop() == answer
    assert contents(chat) == ["look", "well?"]
    chat.append("tool", "found again", tool_call_id="c1")
    assert contents(chat) == ["look", "well?"]
    assert chat.token_count() == sum(message.tokens for message in chat.window())


def test_pinned_messages_are_popped_too(memory: Memory) -> None:
    chat = memory.conversation("chat", window_tokens=30)
    chat.append("user", "one", tokens=20, pinned=True)
    for text in ("two", "three"):
        chat.append("user", text, tokens=10)
    assert [chat.pop(), chat.pop(), chat.pop()] == [*reversed(chat.at(4).window()[-1:]), chat.at(2).window()[0], None]
    chat.append("user", "four", tokens=30, pinned=True)
    assert contents(chat) == ["four"]


@pytest.mark.parametrize("end", ["newest", "oldest"])
@pytest.mark.parametrize("eviction", POLICIES)
def test_what_leaves_and_comes_in_turns_is_read_again_from_disk(tmp_path: Path, eviction: str, end: str) -> None:
    with Memory(tmp_path) as memory:
        chat = memory.conversation("chat", window_tokens=60, eviction=eviction)
        for step in range(700):
            message = chat.append("user", f"{step}", tokens=step % 7 * 4)
            if step % 5 == 1:
                chat.rate(message, 0.5) if chat.message(message.id) in chat.window() else None
            if step % 3 == 2 and (window := chat.window()):
                chat.remove(window[0]) if end == "oldest" else chat.pop()
                assert chat.token_count() == sum(message.tokens for message in chat.window())
            if step % 11 == 3:
                chat.append("assistant", None, tool_calls=[CALL], tokens=3)
                chat.append("tool", "found", tool_call_id="c1", tokens=2)
        kept, hashed = chat.window(), memory.state_hash()
    with Memory(tmp_path) as memory:
        assert memory.conversation("chat").window() == kept
        assert memory.state_hash() == memory.replay_hash() == hashed
        assert memory.verify().ok


def test_a_repeated_request_answers_the_same_message(memory: Memory) -> None:
    chat = memory.conversation("chat")
    said = [chat.append("user", text) for text in ("one", "two")]
    assert [chat.pop(request_id="r") for _ in range(3)] == [said[1]] * 3
    assert chat.window() == said[:1]
    with pytest.raises(InvalidInput, match="request"):
        chat.clear_window(request_id="r")
    assert chat.pop() == said[0]
    assert chat.pop(request_id="none") is None
    chat.append("user", "three")
    assert chat.pop(request_id="none") is None


def test_a_batch_pops_what_it_appended(memory: Memory) -> None:
    chat = memory.conversation("chat")
    first = chat.append("user", "one")
    with memory.batch():
        second = chat.append("user", "two", sources=[first])
        popped = [chat.pop(request_id="r"), chat.pop(request_id="r")]
        assert chat.window() == [first]
    assert popped == [second, second]
    assert popped[0] is not None
    assert popped[0].seq == 3
    assert chat.pop(request_id="r") == second


def test_two_callers_never_pop_the_same(memory: Memory) -> None:
    chat = memory.conversation("chat")
    said = [chat.append("user", f"{number}") for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        popped = list(threads.map(lambda _: chat.pop(), range(200)))
    assert sorted(message.seq for message in popped if message) == [message.seq for message in said]
    assert chat.pop() is None


def test_the_size_of_the_window_costs_nothing(memory: Memory) -> None:
    def lines_of_pop(count: int) -> int:
        chat = memory.conversation(f"chat-{count}")
        for number in range(count):
            chat.append("user", "x", tokens=1 + number % 2)
        chat.pop()
        counted = 0

        def trace(frame: Any, *_: Any) -> Any:
            nonlocal counted
            # How far a commit looks for its file depends on when it did so last.
            above = frame
            while above is not None and above.f_code.co_name != "_is_at_place":
                above = above.f_back
            counted += above is None
            return trace

        sys.settrace(trace)
        try:
            chat.pop()
        finally:
            sys.settrace(None)
        return counted

    assert len({lines_of_pop(count) for count in (50, 500, 2_000)}) == 1


async def _pop_all(memory: Memory) -> list[Any]:
    chat = memory.aio.conversation("chat")
    for text in ("one", "two"):
        await chat.append("user", text)
    return [message and message.content for message in [await chat.pop() for _ in range(3)]]


def test_tasks_pop_too(memory: Memory) -> None:
    import asyncio

    assert list(islice(asyncio.run(_pop_all(memory)), 3)) == ["two", "one", None]
