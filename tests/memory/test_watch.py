"""Watches: told of a message before it leaves a window, or after, with no lock held."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from refold import InvalidInput, Memory, ReadOnly
from refold.memory.watches import Departure


def is_code(message: Any) -> bool:
    return "code" in str(message.content)


def test_it_is_told_before_anything_is_written_and_may_save_it() -> None:
    memory = Memory()
    chat = memory.conversation("chat", window_tokens=20)
    code = chat.append("user", "the code is 5", tokens=10)
    chat.append("user", "other", tokens=10)
    heads: list[int] = []

    def keep(departure: Departure) -> None:
        heads.append(memory.head)
        assert (departure.conversation, departure.message, departure.seq) == ("chat", code, None)
        chat.pin(departure.message)

    with memory.watch(is_code, keep):
        chat.append("user", "third", tokens=10)
        assert [message.content for message in chat.window()] == ["the code is 5", "third"]
        chat.append("user", "fourth", tokens=10)
    assert heads == [3]
    chat.unpin(code)
    chat.append("user", "fifth", tokens=10)
    assert heads == [3]


@pytest.mark.parametrize("how", ["clear", "remove", "resize", "restore", "append"])
def test_whatever_lets_it_go(how: str) -> None:
    memory = Memory()
    chat = memory.conversation("chat", window_tokens=20)
    before = chat.snapshot()
    code = chat.append("user", "the code is 5", tokens=10)
    told: list[Departure] = []
    memory.watch(is_code, told.append)
    ways: dict[str, Callable[[], Any]] = {
        "clear": chat.clear_window,
        "remove": lambda: chat.remove(code),
        "resize": lambda: chat.set_window_tokens(5),
        "restore": lambda: chat.restore(before),
        "append": lambda: chat.append("user", "long", tokens=15),
    }
    ways[how]()
    assert [each.message.id for each in told] == [code.id]


def test_what_raises_keeps_it() -> None:
    memory = Memory()
    chat = memory.conversation("chat", window_tokens=10)
    chat.append("user", "the code is 5", tokens=10)
    head = memory.head
    with memory.watch(is_code, lambda _: 1 / 0), pytest.raises(ZeroDivisionError):
        chat.append("user", "other", tokens=10)
    assert memory.head == head


def test_another_thread_may_write_meanwhile() -> None:
    """No lock is held: a thread that writes and is waited for ends."""
    memory = Memory()
    chat = memory.conversation("chat", window_tokens=10)
    chat.append("user", "the code is 5", tokens=10)

    def elsewhere(_: Departure) -> None:
        thread = threading.Thread(target=lambda: memory.profile().set("code", "5"))
        thread.start()
        thread.join(30)
        assert not thread.is_alive()

    with memory.watch(is_code, elsewhere):
        chat.append("user", "other", tokens=10)
    assert memory.profile().get("code") == "5"


def test_it_is_told_afterwards_by_whatever_wrote_it() -> None:
    memory = Memory()
    chat = memory.conversation("chat", window_tokens=10)
    code = chat.append("user", "the code is 5", tokens=10)
    told: list[Departure] = []
    is_told = threading.Event()

    def tell(departure: Departure) -> None:
        told.append(departure)
        is_told.set()

    with memory.watch(is_code, tell, after=True):
        last = chat.append("user", "other", tokens=10)
        assert is_told.wait(60)
    assert told == [Departure("chat", code, last.seq)]


def test_a_batch_and_wrong_values() -> None:
    memory = Memory()
    chat = memory.conversation("chat", window_tokens=10)
    chat.append("user", "the code is 5", tokens=10)
    told: list[Departure] = []
    with memory.watch(is_code, told.append), memory.batch():
        chat.append("user", "other", tokens=10)
    assert len(told) == 1
    for predicate, function in ((1, print), (print, None)):
        with pytest.raises(InvalidInput):
            memory.watch(predicate, function)  # type: ignore[arg-type]
    with pytest.raises(ReadOnly):
        memory.at(1).watch(is_code, print)
