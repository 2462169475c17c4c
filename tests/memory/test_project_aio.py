"""Projects on an event loop, and in many threads at once."""

import asyncio
import threading

import pytest

from refold import InvalidInput, Memory
from refold.memory.aio import AsyncProject
from refold.memory.project import Project
from tests.support.embedder import ONE, Told

OWN = {"door", "plain"}


def test_it_has_the_verbs_of_the_plain_handle() -> None:
    def names(kind: type[object]) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert names(AsyncProject) - OWN == names(Project)


def test_every_verb_writes_and_reads() -> None:
    async def work() -> None:
        async with Memory().aio as memory:
            project = memory.project("acme")
            added = await asyncio.gather(*(project.add(f"memory number {n}", importance=0.5) for n in range(20)))
            assert sorted(entry.seq for entry in added if entry.seq) == list(range(1, 21))
            assert project.count() == len(project.list()) == 20
            merged = await project.upsert("memory number 3, again", threshold=0.3)
            assert merged.outcome == "merged"
            assert len(await project.unmerge(merged)) == 2
            assert (await project.update(added[0], importance=0.9)).importance == 0.9
            assert (await project.reject(added[1])).status == "rejected"
            assert (
                (await project.recall("number 7"))[0].entry.id == added[7].id == project.search("number 7")[0].entry.id
            )
            await project.delete(added[2])
            assert (await project.prune(0.6)).removed == 19
            assert (await project.decay()).changed == (await project.compact()).merged == 0
            await project.record_episode("success", task="tea")
            assert len(project.search_episodes("tea")) == 1
            assert project.at(1).count() == 1
            async with memory.batch():
                await project.add("in a batch")
                with pytest.raises(InvalidInput):
                    await project.compact()
            assert await project.clear() == 2
            assert (await project.erase()).occurrences == 0

    asyncio.run(work())


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


def test_threads_that_upsert_at_once_merge_into_one() -> None:
    memory, errors = Memory(embedder=Told()), list[BaseException]()

    def upsert(number: int) -> None:
        try:
            memory.project().upsert(f"text {number:02}", vector=ONE)
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
    assert sorted(entry.content.split(" | ")) == sorted(f"text {number:02}" for number in range(12))
    assert memory.state_hash() == memory.replay_hash()
