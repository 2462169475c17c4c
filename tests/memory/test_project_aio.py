"""Projects on an event loop, and in many threads at once."""

import asyncio
import threading
import time
from typing import Any

import pytest

from refold import Memory
from refold.embedders import HashedEmbedder
from refold.memory.aio import AsyncProject
from refold.memory.project import Project
from tests.support.embedder import ONE, Told

OWN = {"core", "plain"}


def test_it_has_the_verbs_of_the_plain_handle() -> None:
    def names(kind: type[object]) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert names(AsyncProject) - OWN == names(Project)


def test_the_embedder_is_called_off_the_loop() -> None:
    told = Told()
    threads: set[int] = set()

    class Watched(Told):
        def embed(self, texts: list[str]) -> list[list[float]]:
            threads.add(threading.get_ident())
            return told.embed(texts)

    async def work() -> int:
        async with Memory(embedder=Watched()).aio as memory:
            await memory.project().add("tea")
            await memory.project().recall("milk")
            return threading.get_ident()

    assert asyncio.run(work()) not in threads
    assert told.asked == ["tea", "milk"]


class Slow(HashedEmbedder):
    """An embedder that takes its time, and notes the threads on which it did."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def embed(self, texts: list[str]) -> Any:
        self.threads.add(threading.get_ident())
        time.sleep(0.01)
        return super().embed(texts)


def test_no_verb_that_embeds_does_it_on_the_loop_in_a_batch_neither() -> None:
    slow = Slow()

    async def every(project: AsyncProject, name: str) -> None:
        entry = await project.add(f"The port of {name} is 5432, on the host of the database.")
        merged = await project.upsert(f"The port of {name} is 5432, on the host of the databases.")
        assert merged.outcome == "merged"
        await project.update(entry.id, content=f"The port of {name} is open.")
        await project.record_episode("success", task=f"open the port of {name}", outcome="it is open")
        assert [hit.entry.id for hit in await project.search(f"which port has {name}?", top_k=1)] == [entry.id]
        assert await project.search_many([f"{name}?", f"port of {name}?"])
        assert await project.search_episodes(f"how was {name} opened?")
        assert await project.recall(f"what is {name}?")

    async def work() -> int:
        async with Memory(embedder=slow).aio as memory:
            await asyncio.gather(*(every(memory.project(name), name) for name in ("postgres", "redis")))
            async with memory.batch():
                await every(memory.project("batch"), "mysql")
            assert memory.plain.project("batch").count() == 1
            assert memory.plain.state_hash() == memory.plain.replay_hash()
            return threading.get_ident()

    assert asyncio.run(work()) not in slow.threads
    assert slow.threads


def test_a_slow_embedder_stops_no_other_writer() -> None:
    told = threading.Event()

    class Waits(HashedEmbedder):
        def embed(self, texts: list[str]) -> Any:
            assert told.wait(10), "the append waited for the embedder"
            return super().embed(texts)

    async def work() -> None:
        async with Memory(embedder=Waits()).aio as memory:
            adding = asyncio.create_task(memory.project().add("tea"))
            await asyncio.sleep(0)
            await memory.conversation("chat").append("user", "Hello!")
            told.set()
            await adding

    asyncio.run(work())


def test_an_embedder_that_fails_is_heard_of() -> None:
    class Fails(HashedEmbedder):
        def embed(self, texts: list[str]) -> Any:
            raise OSError(f"no model for {len(texts)} texts")

    async def work() -> None:
        async with Memory(embedder=Fails()).aio as memory:
            with pytest.raises(OSError, match="no model"):
                await memory.project().add("tea")
            assert memory.plain.head == 0

    asyncio.run(work())


def test_threads_that_upsert_at_once_merge_into_one() -> None:
    memory, errors, letters = Memory(embedder=Told()), list[BaseException](), "abcdefghijkl"

    def upsert(number: int) -> None:
        try:
            memory.project().upsert(f"text {letters[number]}", vector=ONE)
            memory.search("text", vector=ONE)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            errors.append(error)

    threads = [threading.Thread(target=upsert, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    (entry,) = memory.project().list()
    assert sorted(entry.content.split(" | ")) == sorted(f"text {letter}" for letter in letters)
    assert memory.state_hash() == memory.replay_hash()
