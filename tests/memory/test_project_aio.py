"""Projects on an event loop, and in many threads at once."""

import asyncio
import threading

from refold import Memory
from refold.memory.aio import AsyncProject
from refold.memory.project import Project
from tests.support.embedder import ONE, Told

OWN = {"door", "plain"}


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
