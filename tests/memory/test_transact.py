"""Transactions: a function in a batch, run until its commit conflicts with nothing; blocks that join an open one."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from refold import Closed, InvalidInput, LimitExceeded, Memory, ReadOnly, WrongVersion
from tests.support.memories import assert_sound, elsewhere, interrupt, refused, remembering


def count(memory: Memory) -> int:
    """Add one to a count."""
    visits: int = memory.conversation("chat").state.get("visits", 0) + 1
    memory.conversation("chat").state.set("visits", visits)
    return visits


def meddling(memory: Memory, times: int, ran: list[int]) -> Callable[[], int]:
    """A function that counts, and while it runs others do so too: the first times that it runs."""

    def function() -> int:
        ran.append(len(ran))
        before = count(memory)
        if len(ran) <= times:
            elsewhere(lambda: memory.transact(lambda: count(memory)))
        return before

    return function


class TestTransact:
    def test_commits_what_the_function_did_and_returns_its_result(self) -> None:
        with remembering() as memory:
            assert [memory.transact(lambda: count(memory)) for _ in range(3)] == [1, 2, 3]
            assert memory.transact(lambda: None) is None

    def test_runs_again_until_nothing_it_read_was_changed(self) -> None:
        with remembering() as memory:
            ran: list[int] = []
            assert memory.transact(meddling(memory, 3, ran)) == 4
            assert (len(ran), memory.conversation("chat").state["visits"]) == (4, 4)

    def test_raises_the_last_conflict_after_so_many_attempts(self) -> None:
        with remembering() as memory:
            ran: list[int] = []
            with pytest.raises(
                WrongVersion, match=r"key 'visits' of conversation/chat .* attempts=3 were made"
            ) as raised:
                memory.transact(meddling(memory, 9, ran), attempts=3)
            assert isinstance(raised.value.__cause__, WrongVersion)
            assert raised.value.actual == raised.value.__cause__.actual == memory.head
            assert (len(ran), memory.conversation("chat").state["visits"]) == (3, 3)

    @pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
    def test_discards_everything_where_the_function_raises(self, error: type[BaseException]) -> None:
        memory, ran = Memory(), list[int]()

        def function() -> None:
            ran.append(count(memory))
            interrupt(error)

        with pytest.raises(error):
            memory.transact(function)
        assert (ran, memory.head) == ([1], 0)
        assert_sound(memory)

    def test_does_not_take_a_conflict_that_the_function_raises_for_its_own(self) -> None:
        memory, ran = Memory(), list[int]()
        chat = memory.conversation("chat")

        def function() -> None:
            ran.append(1)
            chat.append("user", "x", tokens=1, expected=7)

        with refused(memory, WrongVersion, "at version 0, not at 7"):
            memory.transact(function)
        assert ran == [1]

    def test_inside_of_a_batch_is_part_of_it_and_runs_once(self) -> None:
        with remembering() as memory:
            with memory.batch() as batch:
                assert memory.transact(lambda: memory.transact(lambda: count(memory))) == 1
                assert len(batch) == 2
                assert memory.head == 0
            assert memory.head == 2
            ran: list[int] = []
            with pytest.raises(WrongVersion), memory.batch():
                memory.transact(meddling(memory, 1, ran))
            assert (len(ran), memory.conversation("chat").state["visits"]) == (1, 2)

    def test_is_refused_where_it_makes_no_sense(self) -> None:
        memory = Memory()
        count(memory)

        async def later() -> None: ...

        wrong: Any = "text"
        with refused(memory, InvalidInput, "function must be a function"):
            memory.transact(wrong)
        with refused(memory, InvalidInput, "await memory.aio.transact(function)"):
            memory.transact(later)  # type: ignore[unused-coroutine]
        for attempts, error in ((0, InvalidInput), (1.5, InvalidInput), (True, InvalidInput), (10**7, LimitExceeded)):
            given: Any = attempts
            with refused(memory, error, "attempts"):
                memory.transact(lambda: count(memory), attempts=given)
        with refused(memory, ReadOnly, "frozen"):
            memory.at(1).transact(lambda: None)
        memory.close()
        with pytest.raises(Closed):
            memory.transact(lambda: None)

    def test_of_tasks_runs_again_too(self) -> None:
        with remembering() as memory:
            ran: list[int] = []

            async def function() -> int:
                ran.append(1)
                chat = memory.aio.conversation("chat")
                visits: int = chat.state.get("visits", 0) + 1
                await chat.state.set("visits", visits)
                if len(ran) < 3:
                    elsewhere(lambda: count(memory))
                return visits

            async def work() -> int:
                async with memory.aio.batch():
                    assert await memory.aio.transact(function) == 1
                    raise KeyError

            with suppress(KeyError):
                asyncio.run(work())
            assert memory.conversation("chat").state["visits"] == 1
            assert asyncio.run(memory.aio.transact(function)) == 3
            assert len(ran) == 3
            ran.clear()
            with pytest.raises(WrongVersion, match="attempts=1 were made"):
                asyncio.run(memory.aio.transact(function, attempts=1))

    def test_of_many_tasks_counts_each(self) -> None:
        with remembering() as memory:

            async def function() -> None:
                chat = memory.aio.conversation("chat")
                await chat.state.set("visits", chat.state.get("visits", 0) + 1)
                await asyncio.sleep(0)

            async def work() -> None:
                await asyncio.gather(*(memory.aio.transact(function) for _ in range(10)))

            asyncio.run(work())
            assert memory.conversation("chat").state["visits"] == 10


class TestJoin:
    def test_a_block_of_its_own_commits(self) -> None:
        with remembering() as memory:
            with memory.batch(join=True) as batch:
                count(memory)
                assert (len(batch), memory.head) == (2, 0)
            assert memory.head == 2

    def test_a_block_inside_of_another_is_part_of_it(self) -> None:
        with remembering() as memory:
            with memory.batch() as outer:
                count(memory)
                with memory.batch(join=True) as inner, memory.batch(join=True):
                    count(memory)
                    assert (len(inner), len(outer)) == (3, 3)
                assert (memory.head, outer.is_open, inner.is_open) == (0, True, False)
                assert count(memory) == 3
            assert (memory.head, memory.conversation("chat").state["visits"]) == (4, 3)

    def test_what_a_block_that_raised_has_added_stays(self) -> None:
        with remembering() as memory:
            with memory.batch():
                with pytest.raises(ZeroDivisionError), memory.batch(join=True):
                    memory.transact(lambda: count(memory) / 0)
                count(memory)
            assert (memory.head, memory.conversation("chat").state["visits"]) == (3, 2)
            with pytest.raises(ZeroDivisionError), memory.batch(), memory.batch(join=True):
                memory.transact(lambda: count(memory) / 0)
            assert memory.head == 3

    def test_without_it_a_block_inside_of_another_is_refused(self) -> None:
        memory, text = Memory(), "yes"
        wrong: Any = text
        with refused(memory, InvalidInput, "join must be True or False"):
            memory.batch(join=wrong)
        with memory.batch(join=True), pytest.raises(InvalidInput, match="already open in this context"), memory.batch():
            pass

    def test_a_block_is_used_once(self) -> None:
        memory = Memory()
        with memory.batch():
            block = memory.batch(join=True)
            with block:
                count(memory)
            with pytest.raises(InvalidInput, match="was used before"), block:
                pass
        assert memory.head == 2

    def test_of_a_task_is_part_of_its_batch(self) -> None:
        with remembering() as memory:

            async def work() -> None:
                chat = memory.aio.conversation("chat")
                async with memory.aio.batch():
                    await chat.state.set("a", 1)
                    async with memory.aio.batch(join=True):
                        await chat.state.set("b", 2)
                    assert memory.head == 0
                async with memory.aio.batch(join=True):
                    await chat.state.set("c", 3)

            asyncio.run(work())
            assert (memory.head, dict(memory.conversation("chat").state)) == (4, {"a": 1, "b": 2, "c": 3})
