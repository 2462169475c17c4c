"""A small store with everything in it, the same one for the same seed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from refold import Conversation, Memory, Snapshot
from refold.index import index
from refold.index.table import Crossover
from tests.support.blanks import blank
from tests.support.bounds import seeded_bytes
from tests.support.memories import Clock
from tests.support.seams import engine_of

MESSAGES = 270
"""More than a kept checkpoint row takes, in one conversation."""


@contextmanager
def graphs_of_few() -> Iterator[None]:
    """Lets projects have a graph however few their memories are, where there is a library that makes one."""
    before = index._MEASURED
    setattr(index, "_MEASURED", Crossover(1, 1))  # noqa: B010 - a constant everywhere else
    try:
        yield
    finally:
        setattr(index, "_MEASURED", before)  # noqa: B010


def fill(path: Path, seed: int) -> int:
    """Makes a store at the path, closed twice, so that pages of older commits lie about in it; returns its head."""
    chance = Random(seed)
    clock = Clock()
    with graphs_of_few(), Memory(path, clock_ns=clock, random_bytes=seeded_bytes(seed)) as memory:
        _talk(memory, chance, clock)
        _remember(memory)
        _learn(memory)
        _settle(memory)
        memory.state_hash()
        memory.flush()
        _travel(memory)
    with Memory(path, clock_ns=clock, random_bytes=seeded_bytes(seed + 1)) as memory:
        _branch(memory)
        _erase(memory)
        memory.state_hash()
        assert memory.verify().ok
        return memory.head


def _talk(memory: Memory, chance: Random, clock: Clock) -> None:
    chat = memory.conversation("long", project="project", window_tokens=400)
    with memory.batch():
        for number in range(MESSAGES):
            chat.append("user", f"message {number} " + "x" * chance.randrange(60), tokens=chance.randrange(1, 20))
    clock.advance(90_000)
    tools = memory.conversation("tools", window_tokens=10_000)
    tools.append("system", "Be brief.", tokens=3, pinned=True)
    tools.append("assistant", None, tokens=2, tool_calls=[{"id": "one", "function": {"name": "look"}}])
    tools.append("tool", [{"type": "text", "text": "seen"}], tokens=2, tool_call_id="one", name="look")
    tools.append("user", "y" * 5_000, tokens=900, metadata={"a": [1, {"b": None}]})
    for number in range(12):
        tools.append("user", f"asked {number}", tokens=5, request_id=f"request-{number}")


def _remember(memory: Memory) -> None:
    chat = memory.conversation("long")
    for number in range(8):
        chat.scratchpad.set(f"key-{number % 5}", f"value {number} " * (60 if number == 3 else 1))
    chat.scratchpad.delete("key-2")
    chat.scratchpad.note("a note", sources=[3, 5], request_id="note")
    chat.scratchpad.note("another note")
    chat.state["plain"] = {"deep": [1, 2, "three"]}
    chat.state["project:shared"] = ["of the project"] * 40
    chat.state["temp:round"] = True
    for key, value in (("theme", "dark"), ("editor", "vi"), ("long", "z" * 700)):
        memory.profile().set(key, value)
    memory.profile().delete("editor")
    memory.journal().append("a first note")
    memory.journal().append("a note of a day", day="2026-11-20")


def _learn(memory: Memory) -> None:
    project = memory.project("project")
    for number in range(12):
        vector = [float(place == number) + 0.1 for place in range(16)]
        project.add(f"fact number {number}", vector=vector, importance=number / 12, metadata={"number": number})
    entries = project.list()
    project.update(entries[1].id, importance=0.9)
    project.delete(entries[2].id)
    project.approve(entries[3].id)
    project.recall("", vector=[1.0] * 16, top_k=3)
    project.record_episode(
        "success", session="long", task="a task", approach="a way", outcome="done", tools=["look"], vector=[1.0] * 16
    )


def _settle(memory: Memory) -> None:
    """Wait for the graph of the project: what a build has when the store is closed would be a matter of luck."""
    engine = engine_of(memory)
    memory.project("project").search("fact", vector=[1.0] * 16)
    slot = engine.reader.find("project/project")
    assert slot is not None
    assert slot.index is not None
    slot.index.table.builder.wait()


def _travel(memory: Memory) -> None:
    chat = memory.conversation("long")
    named = chat.snapshot("named")
    chat.scratchpad.set("key-9", "after the snapshot")
    chat.fork("fork").append("user", "in the fork", tokens=2)
    memory.conversation("fork").fork("deeper", at=memory.head).scratchpad.note("in the fork of the fork")
    chat.restore(named)
    chat.append("user", "after the restore", tokens=4)
    handed = Snapshot.from_bytes(_elsewhere())
    memory.conversation("imported").restore(handed)
    memory.conversation("imported").append("user", "behind what was imported", tokens=3)
    memory.conversation("ended").append("user", "soon over", tokens=2)
    memory.conversation("ended").end()
    memory.snapshot("whole")


def _elsewhere() -> bytes:
    with Memory(clock_ns=Clock(), random_bytes=seeded_bytes(9)) as other:
        chat: Conversation = other.conversation("handed over", window_tokens=50)
        chat.append("user", "from elsewhere", tokens=3)
        chat.scratchpad.note("noted elsewhere")
        chat.scratchpad.set("from", "elsewhere")
        return chat.snapshot().to_bytes()


def _branch(memory: Memory) -> None:
    other = memory.fork("other")
    other.conversation("long").append("user", "in another branch", tokens=2)
    other.conversation("new there").append("user", "only there", tokens=2)
    other.profile().set("theme", "light")
    deeper = other.fork("deeper branch")
    deeper.profile().set("theme", "green")
    memory.profile().set("theme", "blue")


def _erase(memory: Memory) -> None:
    chat = memory.conversation("tools")
    erased = chat.append("user", "this is to be erased", tokens=4)
    chat.scratchpad.note("and this")
    chat.scratchpad.set("gone", "and that")
    chat.append("user", "and life goes on", tokens=4)
    blank(memory, [erased.seq, erased.seq + 1, erased.seq + 2])
