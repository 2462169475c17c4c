"""The handles for asyncio: durable when awaited, one flush for many tasks, no event lost or doubled."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from refold import NO_STREAM, Closed, InvalidInput, Memory, ReadOnly, WrongVersion
from refold.embedders import HashedEmbedder
from refold.memory.aio import AsyncConversation, AsyncMemory, AsyncState
from refold.memory.handles import ScopedState
from tests.support.seams import records_in

TASKS = 64
OWN = {"core", "plain"}


def commits_of(memory: Memory) -> int:
    """How many commits the log holds, as far as their times tell them apart."""
    return len({record.time_ns for record in records_in(memory)})


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_tasks_that_write_together_share_a_commit(memory: Memory) -> None:
    async def work() -> None:
        chats = [memory.aio.conversation(f"chat-{number}") for number in range(TASKS)]
        await asyncio.gather(*(chat.append("user", "Hello!", tokens=1) for chat in chats))

    before = commits_of(memory)
    run(work())
    assert memory.head == 2 * TASKS
    assert commits_of(memory) - before <= 2


def test_every_call_is_a_command_of_its_own(memory: Memory) -> None:
    async def work() -> None:
        chat = memory.aio.conversation("chat")
        await asyncio.gather(*(chat.append("user", f"{number}", tokens=1) for number in range(3)))

    run(work())
    commands = [command for record in records_in(memory) for command in record.commands]
    assert commands == [1, 1, 3, 4], "the opening belongs to the first message, each other message stands alone"


def test_tasks_decide_on_what_those_before_them_did(memory: Memory) -> None:
    async def work() -> list[Any]:
        chat = memory.aio.conversation("chat")
        outcomes = await asyncio.gather(
            chat.append("user", "first", tokens=1, expected=NO_STREAM),
            chat.append("user", "second", tokens=1, expected=NO_STREAM),
            chat.scratchpad.set("key", "value"),
            chat.scratchpad.set("key", "value"),
            chat.scratchpad.delete("key"),
            chat.scratchpad.delete("key"),
            return_exceptions=True,
        )
        return list(outcomes)

    first, second, *_, dropped, missing = run(work())
    assert first.content == "first"
    assert isinstance(second, WrongVersion)
    assert second.actual == 2
    assert (dropped, missing) == (True, False)
    assert memory.head == 4, "opened, appended, set, deleted"


def test_a_failed_call_fails_alone(memory: Memory) -> None:
    async def work() -> list[Any]:
        chat = memory.aio.conversation("chat")
        calls = [chat.append("user", "good", tokens=1), chat.append("nobody", "bad"), chat.append("user", "too")]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    good, bad, too = run(work())
    assert good.content == "good"
    assert isinstance(bad, InvalidInput)
    assert too.content == "too"
    assert [message.content for message in memory.conversation("chat").window()] == ["good", "too"]


def test_a_request_id_answers_once_however_many_tasks_ask(memory: Memory) -> None:
    async def work() -> list[Any]:
        chat = memory.aio.conversation("chat")
        calls = (chat.append("user", "once", tokens=1, request_id="request-1") for _ in range(5))
        return list(await asyncio.gather(*calls))

    messages = run(work())
    assert {message.seq for message in messages} == {2}
    assert memory.head == 2


def test_another_thread_that_moves_a_stream_costs_a_second_look_and_loses_nothing(memory: Memory) -> None:
    plain = memory.conversation("chat")
    plain.scratchpad.set("counter", "0")
    barrier = threading.Barrier(2)

    def interfere() -> None:
        barrier.wait()
        for number in range(50):
            plain.scratchpad.set("other", str(number))

    async def work() -> None:
        chat = memory.aio.conversation("chat")
        barrier.wait()
        for number in range(50):
            await asyncio.gather(
                chat.scratchpad.set("counter", str(number)), chat.append("user", f"{number}", tokens=1)
            )

    thread = threading.Thread(target=interfere)
    thread.start()
    run(work())
    thread.join()
    assert plain.scratchpad.get("counter") == "49"
    assert plain.scratchpad.get("other") == "49"
    assert [message.content for message in plain.window()] == [str(number) for number in range(50)]


def test_a_cancelled_writer_neither_loses_nor_doubles_its_event(memory: Memory) -> None:
    async def work() -> list[str]:
        chat = memory.aio.conversation("chat")
        await chat.append("user", "open", tokens=1)
        acknowledged: list[str] = []

        async def say(text: str) -> None:
            await chat.append("user", text, tokens=1, request_id=text)
            acknowledged.append(text)

        for number in range(40):
            tasks = [asyncio.create_task(say(f"{number}/{place}")) for place in range(4)]
            for _ in range(number % 4):
                await asyncio.sleep(0)
            tasks[number % 4].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        before = {str(message.content) for message in chat.window()}
        assert set(acknowledged) <= before
        # Whatever became of those that were cut off, asking again with the same id makes it exactly one.
        every = [f"{number}/{place}" for number in range(40) for place in range(4)]
        await asyncio.gather(*(chat.append("user", text, tokens=1, request_id=text) for text in every))
        return every

    every = run(work())
    said = [str(message.content) for message in memory.conversation("chat").window()]
    assert sorted(said) == sorted(["open", *every])


def test_a_batch_of_one_task_is_seen_by_nobody_else(memory: Memory) -> None:
    async def work() -> None:
        chat = memory.aio.conversation("chat")
        entered, seen = asyncio.Event(), asyncio.Event()

        async def other() -> None:
            await entered.wait()
            assert chat.window() == []
            await memory.aio.conversation("other").append("user", "meanwhile", tokens=1)
            seen.set()

        watcher = asyncio.create_task(other())
        async with memory.aio.batch():
            message = await chat.append("user", "Hello!", tokens=1)
            provisional: int | None = message.seq
            assert provisional is None
            await chat.scratchpad.set("key", "value")
            entered.set()
            await seen.wait()
        await watcher
        assert message.seq == 4
        assert chat.scratchpad.get("key") == "value"

        async def fail() -> None:
            async with memory.aio.batch():
                await chat.append("user", "never", tokens=1)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert len(chat.window()) == 1

    run(work())


def test_time_travel_and_forks(memory: Memory) -> None:
    async def work() -> None:
        chat = memory.aio.conversation("chat")
        await chat.append("user", "one", tokens=1)
        before = await chat.snapshot("before")
        await chat.append("user", "two", tokens=1)
        fork = await chat.fork("fork", at=2)
        assert isinstance(fork, AsyncConversation)
        assert [message.content for message in fork.window()] == ["one"]
        assert [message.content for message in chat.at(2).window()] == ["one"]
        with pytest.raises(ReadOnly):
            await chat.at(2).append("user", "never")
        await chat.restore(before)
        assert [message.content for message in chat.window()] == ["one"]
        await fork.close(drop=True)
        assert fork.window() == []

    run(work())


def test_a_loop_after_another_and_two_at_once(memory: Memory) -> None:
    async def work(name: str) -> None:
        chat = memory.aio.conversation(name)
        for number in range(20):
            await chat.append("user", f"{number}", tokens=1)

    run(work("first"))
    threads = [threading.Thread(target=run, args=(work(name),)) for name in ("second", "third")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("first", "second", "third"):
        assert len(memory.conversation(name).window()) == 20


def test_a_closed_memory_says_so(tmp_path: Path) -> None:
    async def work() -> None:
        async with Memory(tmp_path / "store").aio as memory:
            chat = memory.conversation("chat")
            await chat.append("user", "Hello!", tokens=1)
            assert memory.head == 2
        with pytest.raises(Closed):
            await chat.append("user", "too late")

    run(work())
    with Memory(tmp_path / "store") as memory:
        assert memory.head == 2


def test_a_whole_memory_is_forked_and_restored(memory: Memory) -> None:
    async def work() -> None:
        whole = await memory.aio.snapshot("before")
        fork = await memory.aio.fork("b", expected=memory.head)
        chat = fork.conversation("chat")
        await asyncio.gather(*(chat.append("user", str(number), tokens=1) for number in range(TASKS)))
        assert (len(chat.window()), memory.conversations()) == (TASKS, [])
        assert (memory.aio.forks(), memory.forks()) == (["b"], ["b"])
        await fork.restore(whole)
        assert chat.window() == []
        async with memory.aio.batch():
            for call in (memory.aio.snapshot("x"), memory.aio.restore("before"), memory.aio.fork("c")):
                with pytest.raises(InvalidInput, match="batch"):
                    await call
        await fork.close()
        with pytest.raises(Closed):
            await chat.append("user", "x")
        await memory.aio.profile().set("still", "open")

    run(work())
    assert memory.profile().items() == [("still", "open")]


def test_what_no_batch_can_hold_is_refused_in_one(memory: Memory) -> None:
    async def work() -> None:
        chat = memory.aio.conversation("chat")
        await chat.append("user", "Hello!", tokens=1)
        async with memory.aio.batch():
            with pytest.raises(InvalidInput, match="batch"):
                await chat.snapshot("name")
            with pytest.raises(InvalidInput, match="batch"):
                await chat.fork("fork")

    run(work())
    assert memory.head == 2


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_nobody_waits_for_a_loop_that_is_taken_down(memory: Memory, steps: int) -> None:
    """Whoever cancels the task that writes lets those who wait for it go, and the next one writes again."""

    async def work() -> None:
        chat = memory.aio.conversation("chat")
        await chat.append("user", "open", tokens=1)
        waiting = asyncio.create_task(chat.append("user", "cut off", tokens=1, request_id="one"))
        before = asyncio.all_tasks()
        for _ in range(steps):
            await asyncio.sleep(0)
        (writing,) = asyncio.all_tasks() - before
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await chat.append("user", "cut off", tokens=1, request_id="one")
        assert [message.content for message in chat.window()] == ["open", "cut off"]

    run(work())


@pytest.mark.parametrize("name", ["summarize", "bisect", "reembed"])
def test_a_function_of_the_caller_can_wait_for_what_it_writes(memory: Memory, name: str) -> None:
    """A model or embedder with an asyncio client is called from a thread, and its coroutine uses the memory, too."""
    chat = memory.conversation("chat", window_tokens=60, eviction="summary")
    for number in range(12):
        chat.append("user", f"Parcel {number} is in locker {number + 100}.", tokens=10)
    memory.project().add("tea", vector=[1.0, 0.0])
    costs = memory.aio.journal("costs")

    async def work() -> None:
        loop = asyncio.get_running_loop()

        async def note() -> None:
            await costs.append("one call")
            await memory.aio.snapshot()

        def ask() -> None:
            asyncio.run_coroutine_threadsafe(note(), loop).result(10)

        def summarizer(_: str, __: Any) -> str:
            ask()
            return "They talked about parcels."

        def predicate(then: Memory) -> bool:
            ask()
            return then.head > 3

        class Asking(HashedEmbedder):
            def embed(self, texts: list[str]) -> Any:
                ask()
                return super().embed(texts)

        calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "summarize": lambda: memory.aio.conversation("chat").summarize(summarizer),
            "bisect": lambda: memory.aio.bisect(predicate),
            "reembed": lambda: memory.aio.reembed(Asking()),
        }
        await asyncio.wait_for(calls[name](), 30)

    run(work())
    assert memory.journal("costs").recent()


def test_no_task_waits_for_the_slow_verb_of_another(memory: Memory) -> None:
    memory.profile().set("theme", "dark")

    async def work() -> None:
        written = threading.Event()

        def predicate(then: Memory) -> bool:
            assert written.wait(10), "the append waited for the search"
            return then.head > 0

        slow = asyncio.create_task(memory.aio.bisect(predicate))
        await asyncio.sleep(0)
        await memory.aio.conversation("chat").append("user", "Hello!")
        written.set()
        await slow

    run(work())


def test_many_slow_verbs_at_once_all_end(memory: Memory) -> None:
    async def work() -> list[Any]:
        return list(await asyncio.gather(*(memory.aio.snapshot(f"snapshot {number}") for number in range(TASKS))))

    assert len({snapshot.seq for snapshot in run(work())}) == TASKS
    assert len(memory.snapshots()) == TASKS


def test_loops_that_are_closed_do_not_stay_in_ram(memory: Memory) -> None:
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def work() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await memory.aio.journal().append("one request")
        await memory.aio.snapshot()

    for _ in range(5):
        run(work())
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 1, "only the last one may stay, until the next comes"


def test_a_transaction_takes_an_async_function_only(memory: Memory) -> None:
    def count() -> int:
        memory.profile().set("theme", "dark")
        return 1

    async def work() -> None:
        with pytest.raises(InvalidInput, match=r"async function.*to_thread\(memory\.transact"):
            await memory.aio.transact(count)  # type: ignore[arg-type]

    run(work())
    assert memory.head == 0


def test_the_memory_has_the_verbs_of_the_plain_one(memory: Memory, tmp_path: Path) -> None:
    def names(kind: type[object]) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    async def work() -> None:
        tea = await memory.aio.add("Mike drinks tea")
        assert (await memory.aio.upsert("Mike drinks tea")).entry == memory.project().get(tea.id)
        assert [hit.entry for hit in await memory.aio.search("tea")] == [
            hit.entry for hit in await memory.aio.recall("tea")
        ]
        state = memory.aio.conversation("chat").state
        await state.update({"a": 1}, b=2)
        assert state.items() == [("a", 1), ("b", 2)]
        assert await memory.aio.conversations() == ["chat"]
        assert await memory.aio.projects() == ["default"]
        assert await memory.aio.stats() == memory.stats()
        assert [event.stamp.seq for event in memory.aio.events()] == list(range(1, memory.head + 1))
        assert await memory.aio.state_hash() == await memory.aio.replay_hash() == memory.state_hash()
        assert (await memory.aio.health()).ok
        assert (await memory.aio.verify()).ok
        assert await memory.aio.export(tmp_path / "export.jsonl") == memory.head
        async with Memory().aio as other:
            await other.load(tmp_path / "export.jsonl")
            assert await other.state_hash() == memory.state_hash()

    # The guide says how a task reaches the others.
    assert names(Memory) - names(AsyncMemory) == {"aio", "mirror", "skills", "tools"}
    assert names(AsyncMemory) - names(Memory) == OWN
    assert names(ScopedState) == names(AsyncState) - OWN
    run(work())
