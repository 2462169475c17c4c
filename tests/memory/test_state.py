"""The state of a conversation as a mapping: what looks at a value and changes it does both at once."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from refold import Memory, ReadOnly, WrongVersion
from refold.errors import InvalidInput
from tests.support.memories import assert_sound, elsewhere, refused

KEYS = ["plan", "temp:plan", "project:plan"]
THREADS = 8


def at_once(call: Callable[[int], Any]) -> list[Any]:
    """Make a call in threads that all begin together; return what they returned."""
    barrier, results = threading.Barrier(THREADS), list[Any]()

    def run(number: int) -> None:
        barrier.wait()
        results.append(call(number))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("key", KEYS)
def test_a_value_is_popped_once(memory: Memory, key: str) -> None:
    state = memory.conversation("chat", project="p").state
    for turn in range(10):
        state[key] = turn
        assert sorted(at_once(lambda _: state.pop(key, -1))) == [-1] * (THREADS - 1) + [turn]
    assert list(state) == []
    assert_sound(memory)


@pytest.mark.parametrize("key", KEYS)
def test_a_default_is_set_once(memory: Memory, key: str) -> None:
    state = memory.conversation("chat", project="p").state
    for turn in range(10):
        state.pop(key, None)
        told = at_once(lambda number: state.setdefault(key, [number]))
        assert told == [state[key]] * THREADS, turn
    assert_sound(memory)


def test_tasks_pop_a_value_once(memory: Memory) -> None:
    async def work() -> None:
        state = memory.aio.conversation("chat").state
        await state.set("k", "value")
        assert sorted(await asyncio.gather(*(state.pop("k", "") for _ in range(4)))) == ["", "", "", "value"]
        assert await asyncio.gather(*(state.setdefault("k", number) for number in range(4))) == [0] * 4

    asyncio.run(work())


@pytest.mark.parametrize("key", KEYS)
def test_they_do_what_those_of_a_dict_do(memory: Memory, key: str) -> None:
    state, known = memory.conversation("chat", project="p").state, dict[str, Any]()
    mapping: Any
    for mapping in (state, known):
        with pytest.raises(KeyError, match=key):
            mapping.pop(key)
        with pytest.raises(TypeError, match="at most"):
            mapping.pop(key, 1, 2)
    before = memory.head
    assert (state.pop(key, None), state.pop(key, 3)) == (known.pop(key, None), known.pop(key, 3)) == (None, 3)
    assert memory.head == before
    for default in (None, {"a": [1]}, 2):
        assert state.setdefault(key, default) == known.setdefault(key, default)
        assert state.setdefault(key, "another") == known.setdefault(key, "another")
        head = memory.head
        state.setdefault(key)
        assert memory.head == head
        assert state.pop(key) == known.pop(key) == default
    assert dict(state) == known == {}


def test_a_batch_that_popped_what_another_changed_is_not_written(memory: Memory) -> None:
    state = memory.conversation("chat").state
    state["k"] = 1
    changes: list[Callable[[], Any]] = [lambda: state.pop("k", None), lambda: state.setdefault("k", 3)]
    for change in changes:
        with pytest.raises(WrongVersion, match="key 'k'"), memory.batch():  # noqa: PT012 - the batch is what ends so
            change()
            elsewhere(lambda: state.pop("k", None) if "k" in state else state.set("k", 2))
    assert_sound(memory)


def test_what_cannot_be_is_refused(memory: Memory) -> None:
    chat = memory.conversation("chat")
    for key in ("", "project:x"):
        for call in (chat.state.pop, chat.state.setdefault):
            with refused(memory, InvalidInput):
                call(key)
    with refused(memory, InvalidInput, "default"):
        chat.state.setdefault("k", object())
    with refused(memory, InvalidInput, "only a prefix"):
        chat.state.setdefault("session:", 1)
    with refused(memory, ReadOnly):
        chat.at(0).state.pop("k", None)
