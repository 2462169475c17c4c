"""What is done while calls fail: the same steps can be asked for again."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from refold import Memory, StoreError
from tests.rigs.faults import erasures
from tests.rigs.faults.world import World, append, chat_of, look

Workload: TypeAlias = Callable[[World, Memory], None]


def steps(world: World, memory: Memory) -> None:
    """Write in every way that one caller has."""
    chat = chat_of(memory)
    append(world, memory, "first")
    look(world, memory)
    texts = [world.text(f"batch-{place}") for place in range(4)]
    world.told.groups.append(texts)
    world.tried(texts, lambda: _append_batch(memory, texts))
    look(world, memory)
    world.tried([], lambda: chat.scratchpad.set("key", world.text("value")))
    world.tried([], lambda: memory.profile().set("theme", world.text("theme")))
    append(world, memory, "second")
    world.tried([], memory.flush)
    look(world, memory)
    append(world, memory, "third")
    world.tried([], lambda: chat.scratchpad.delete("key"))
    append(world, memory, "fourth")


def _append_batch(memory: Memory, texts: list[str]) -> None:
    with memory.batch():
        for text in texts:
            chat_of(memory).append("assistant", text, tokens=1)


def threads(world: World, memory: Memory) -> None:
    """Let several threads write at once, each of them again when it was told."""
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        for place in range(4):
            append(world, memory, f"{number}-{place}")
            look(world, memory)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def tasks(world: World, memory: Memory) -> None:
    """Let the tasks of a loop write, which are committed together."""

    async def work(name: str) -> None:
        text = world.text(name)
        failure: StoreError | None = None
        try:
            await memory.aio.conversation("chat").append("user", text, tokens=1, request_id=name)
        except StoreError as error:
            failure = error
        world.tried([text], lambda: _fail(failure))

    async def all_of_them() -> None:
        for turn in range(8):
            await asyncio.gather(*(work(f"{turn}-{number}") for number in range(8)))

    asyncio.run(all_of_them())
    look(world, memory)


def _fail(error: StoreError | None) -> None:
    if error is not None:
        raise error


def flushes(world: World, memory: Memory) -> None:
    """Write what waits for the disk, and let it be written, several times."""
    for turn in range(8):
        for place in range(3):
            append(world, memory, f"{turn}-{place}")
        world.tried([], memory.flush)
        look(world, memory)


@dataclass(frozen=True)
class Row:
    """A workload, how the store is opened, and whether it is there before calls fail."""

    work: Workload
    options: Mapping[str, Any] = field(default_factory=dict)
    is_there: bool = True
    before: Callable[[World, Memory], None] | None = None
    """What is done besides before calls fail."""


WORKLOADS: Final[Mapping[str, Row]] = {
    "steps": Row(steps),
    "threads": Row(threads),
    "tasks": Row(tasks),
    "delayed": Row(flushes, {"durability": "delayed"}),
    "creation": Row(steps, is_there=False),
    "erasing": Row(erasures.erasures, before=erasures.write_before),
    "erasing-delayed": Row(erasures.erasures, {"durability": "delayed"}, before=erasures.write_before),
    "backups": Row(erasures.backups, before=erasures.write_before),
}
