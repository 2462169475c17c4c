"""What is done while calls fail, and what the callers were told: the same steps can be asked for again."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

from refold import Conversation, Memory, StoreError, StoreFull
from tests.bounds import Clock, seeded_bytes

CHARS: Final = (5, 300, 9_000)
BEFORE_COUNT: Final = 6
"""Messages that are there before anything fails."""


@dataclass
class Told:
    """What callers were told: of what they wrote, in order for each of them, and what was wrong meanwhile."""

    acknowledged: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    groups: list[list[str]] = field(default_factory=list)
    """Messages that stand or fall together."""
    errors: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    is_full: bool = False


@dataclass
class World:
    """A store under faults: how it is opened, what was told, and the chance that draws texts."""

    path: Path
    seed: int
    options: Mapping[str, Any]
    told: Told
    opened: int = 0

    def open(self) -> Memory:
        """Open the store as a process would that starts anew."""
        self.opened += 1
        random_bytes = seeded_bytes(self.seed * 1_000 + self.opened)
        return Memory(self.path, clock_ns=Clock(), random_bytes=random_bytes, **self.options)

    def text(self, name: str) -> str:
        """Return a text that occurs once, the same whenever it is asked for."""
        return f"{name} " + "x" * Random(f"{self.seed}/{name}").choice(CHARS)

    def tried(self, texts: list[str], write: Callable[[], object]) -> None:
        """Write, and note what the caller was told of the texts; only errors of the store are told."""
        try:
            write()
        except StoreError as error:
            self.told.unknown += texts
            self.told.errors.append(f"{type(error).__name__}: {error}")
            self.told.is_full |= isinstance(error, StoreFull)
            self._check_told(error)
        else:
            self.told.acknowledged += texts

    def _check_told(self, error: StoreError) -> None:
        words = ("free ", "check ")
        if not any(word in str(error) for word in words):
            self.told.findings.append(f"an error that says no next step: {error}")


Workload: TypeAlias = Callable[[World, Memory], None]


def chat_of(memory: Memory) -> Conversation:
    """Return the conversation that everybody writes to."""
    return memory.conversation("chat", window_tokens=1_000_000)


def append(world: World, memory: Memory, name: str) -> None:
    """Append a message that can be asked for again."""
    text = world.text(name)
    world.tried([text], lambda: chat_of(memory).append("user", text, tokens=1, request_id=name))


def steps(world: World, memory: Memory) -> None:
    """Write in every way that one caller has."""
    chat = chat_of(memory)
    append(world, memory, "first")
    look(world, memory)
    texts = [world.text(f"batch-{place}") for place in range(4)]
    world.told.groups.append(texts)
    world.tried(texts, lambda: _append_batch(memory, texts))
    look(world, memory)
    world.tried([], lambda: chat.set("key", world.text("value")))
    world.tried([], lambda: memory.profile().set("theme", world.text("theme")))
    append(world, memory, "second")
    world.tried([], memory.flush)
    look(world, memory)
    append(world, memory, "third")
    world.tried([], lambda: chat.delete("key"))
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
        for turn in range(3):
            await asyncio.gather(*(work(f"{turn}-{number}") for number in range(8)))

    asyncio.run(all_of_them())
    look(world, memory)


def _fail(error: StoreError | None) -> None:
    if error is not None:
        raise error


def flushes(world: World, memory: Memory) -> None:
    """Write what waits for the disk, and let it be written, several times."""
    for turn in range(4):
        for place in range(3):
            append(world, memory, f"{turn}-{place}")
        world.tried([], memory.flush)
        look(world, memory)


def look(world: World, memory: Memory) -> None:
    """Read while calls fail: everything acknowledged is there, once, and nothing that nobody wrote."""
    known = list(world.told.acknowledged)
    try:
        found = [str(message.content) for message in chat_of(memory).window()]
    except Exception as error:  # noqa: BLE001 - whatever a read raises is a finding
        world.told.findings.append(f"reading failed: {type(error).__name__}: {error}")
        return
    missing = [text[:12] for text in known if found.count(text) != 1]
    if missing:
        world.told.findings.append(f"read while calls fail, {missing} are not there once")


@dataclass(frozen=True)
class Row:
    """A workload, how the store is opened, and whether it is there before calls fail."""

    work: Workload
    options: Mapping[str, Any] = field(default_factory=dict)
    is_there: bool = True


WORKLOADS: Final[Mapping[str, Row]] = {
    "steps": Row(steps),
    "threads": Row(threads),
    "tasks": Row(tasks),
    "delayed": Row(flushes, {"durability": "delayed"}),
    "creation": Row(steps, is_there=False),
}
