"""Calls from signal handlers and ``__del__``: they run between two lines of a call of their own thread.

A trace function stands for them, which is called at each line: no call may wait for its own thread.
"""

import os
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import refold
from refold import Conversation, InvalidInput, Memory
from tests.support.memories import assert_sound

ROOT = str(Path(refold.__file__).parent)
WAIT_SECONDS = 20
numbers = count()

Act = Callable[[Memory, Conversation], object]


def write(_: Memory, chat: Conversation) -> None:
    chat.append("user", "Bye", tokens=1)


def write_fact(memory: Memory, _: Conversation) -> None:
    memory.project("p").add("Ada likes tea")


def search(memory: Memory, chat: Conversation) -> None:
    chat.search("Hello")
    memory.project("p").search("tea")


def show(memory: Memory, chat: Conversation) -> None:
    memory.context(chat, query="Hello")


def drop(memory: Memory, chat: Conversation) -> None:
    chat.fork(f"other-{next(numbers)}").drop()
    write(memory, chat)


def flush(memory: Memory, chat: Conversation) -> None:
    write(memory, chat)
    memory.flush()


def interrupted(memory: Memory, work: Act, line: int, handler: Act) -> tuple[bool, str]:
    """Do the work, and call a handler before one of its lines; return whether it was reached, and its error."""
    chat = memory.conversation("chat")
    left = line
    outcome: list[str] = []

    def call() -> None:
        try:
            handler(memory, chat)
        except InvalidInput as error:
            outcome.append(str(error))
        else:
            outcome.append("")

    def trace(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(ROOT):
            return None
        left -= what == "line"
        if not left:
            sys.settrace(None)
            call()
        return trace

    def run() -> None:
        sys.settrace(trace)
        try:
            work(memory, chat)
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive(), f"line {line}: the thread waits for itself"
    return bool(outcome), "".join(outcome)


@pytest.mark.parametrize(
    ("work", "handler", "stride"),
    [
        (write, write, 5),
        (write, search, 11),
        (write_fact, search, 29),
        (drop, drop, 61),
        (search, write, 37),
        (search, search, 29),
        (show, show, 61),
    ],
)
def test_a_call_from_a_handler_is_done_or_refused_and_never_waits_for_its_own_thread(
    work: Act, handler: Act, stride: int
) -> None:
    errors: set[str] = set()
    for line in count(1, stride):
        with Memory() as memory:
            chat = memory.conversation("chat", project="p")
            chat.append("user", "Hello", tokens=1)
            is_reached, error = interrupted(memory, work, line, handler)
            assert_sound(memory)
        if not is_reached:
            break
        errors.add(error.partition(" (")[0])
    assert errors <= {
        "",
        "a mutation was called from inside a commit",
        "a memory was called from inside of another call of this thread",
    }
    assert "" in errors


@pytest.mark.parametrize(("work", "handler"), [(flush, write), (flush, search), (write, flush)])
def test_a_handler_during_a_delayed_write_never_waits_for_its_own_thread(
    tmp_path: Path, work: Act, handler: Act
) -> None:
    with Memory(tmp_path / "store", durability="delayed") as memory:
        for line in count(1, 23):
            if not interrupted(memory, work, line, handler)[0]:
                break
        assert_sound(memory)


def test_a_write_while_new_ids_are_drawn_is_done() -> None:
    answers: list[int] = []

    def draw(length: int) -> bytes:
        if calls:
            answers.append(calls.pop()().seq)
        return os.urandom(length)

    calls: list[Callable[[], Any]] = []
    with Memory(random_bytes=draw) as memory:
        chat = memory.conversation("chat")
        calls.append(lambda: chat.append("user", "from a handler", tokens=1))
        chat.append("user", "Hello", tokens=1)
        assert answers == [2]
        assert [message.content for message in chat.window()] == ["from a handler", "Hello"]
        assert len({message.id for message in chat.window()}) == 2
