"""What stands between a memory and a model: a call of a tool, a context, an extraction, each beside its floor.

Every round takes every job in turn, so that whatever else the machine does meets all of them alike. Of each job its
floor is taken off: of a tool the verb of the engine that it calls, of a context the bare read of the window, of an
extraction the memories that it writes, added in one batch. Run it::

    python benchmarks/tools.py [ROUNDS]
"""

import itertools
import json
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

from refold import Conversation, Memory
from refold.agent import CallableProvider, extract

MEMORIES_COUNT = 1_000
MESSAGES_COUNT = 115
REACH_US = {"tool": 30.0, "context": 2_000.0, "extraction": 5_000.0}
"""What a job may take above its floor, in microseconds."""


class Job(NamedTuple):
    """A job with the one that is its floor, and how often both are done at a time."""

    name: str
    reach: str
    run: Callable[[], object]
    floor: Callable[[], object]
    times: int


def filled() -> tuple[Memory, Any]:
    """A memory with a full window and a thousand memories, and its conversation."""
    memory = Memory(window_tokens=MESSAGES_COUNT * 100)
    chat = memory.conversation("c", project="acme")
    with memory.batch():
        for _ in range(MESSAGES_COUNT + 5):
            chat.append("user", "hello world " * 40, tokens=100)
    project = memory.project("acme")
    with memory.batch():
        for number in range(MEMORIES_COUNT):
            project.add(f"Fact {number} is about thing {number % 97}.", importance=number % 10 / 10)
    for number in range(20):
        memory.profile().set(f"key{number}", "v" * 40)
        memory.journal().append("note " * 10)
        chat.scratchpad.set(f"key{number}", "v")
    assert len(chat.window()) == MESSAGES_COUNT
    return memory, chat


def jobs() -> list[Job]:
    memory, chat = filled()
    told, counter = memory.tools.context(chat), itertools.count()
    execute, project = memory.tools.execute, memory.project("acme")
    extracting, added = extracting_from(memory)

    def write() -> None:
        result = execute("memory_write", {"action": "set", "key": "k", "value": str(next(counter))}, told)
        assert not result.is_error

    def recalled() -> list[str]:
        """Read what is found, as whoever calls the verb does: entries are made when they are first looked at."""
        return [hit.entry.content for hit in project.recall("thing 5", conversation=chat)]

    return [
        Job("memory_write", "tool", write, lambda: chat.scratchpad.set("k", str(next(counter))), 20),
        Job(
            "memory_read",
            "tool",
            lambda: execute("memory_read", {"key": "k"}, told),
            lambda: chat.scratchpad.get("k"),
            20,
        ),
        Job(
            "memory_search",
            "tool",
            lambda: execute("memory_search", {"query": "thing 5"}, told),
            recalled,
            5,
        ),
        Job("context", "context", lambda: memory.context(chat), chat.window, 3),
        Job("context for a query", "context", lambda: memory.context(chat, query="thing 5"), chat.window, 3),
        Job("extraction", "extraction", extracting, added, 1),
    ]


def extracting_from(memory: Memory) -> tuple[Callable[[], object], Callable[[], object]]:
    """An extraction of a page of a session whose model answers at once, and the same memories written without it."""
    counter = itertools.count()
    chat, unread = (memory.conversation(name, project="learnt") for name in ("session", "unread"))

    def proposed() -> list[dict[str, Any]]:
        begin = next(counter) * 10
        words = [sha256(b"%d" % number).hexdigest() for number in range(begin, begin + 10)]
        return [{"category": "fact", "content": f"{word[:9]} {word[9:40]}", "keywords": [word[:9]]} for word in words]

    provider = CallableProvider(lambda *_: json.dumps({"memories": proposed()}))

    def hear(listening: Conversation) -> None:
        with memory.batch():
            for _ in range(20):
                listening.append("user", "hello world " * 40, tokens=100)

    def run() -> None:
        hear(chat)
        found = extract(chat, provider, memory=memory)
        assert len(found.ids) == 10, found

    def floor() -> None:
        hear(unread)
        with memory.batch():
            for item in proposed():
                memory.project("learnt").upsert(item["content"], keywords=item["keywords"])

    return run, floor


def microseconds(run: Callable[[], object], times: int) -> float:
    begin = time.perf_counter_ns()
    for _ in range(times):
        run()
    return (time.perf_counter_ns() - begin) / times / 1_000


def main(rounds: int) -> None:
    """Take every job and its floor in turn, round after round, and print the middle of their times and differences."""
    found = jobs()
    taken: dict[str, list[tuple[float, float]]] = {job.name: [] for job in found}
    for number in range(rounds):
        for job in found:
            pair = (job.run, job.floor) if number % 2 else (job.floor, job.run)
            times = [microseconds(run, job.times) for run in pair]
            taken[job.name].append((times[0], times[1]) if number % 2 else (times[1], times[0]))
    print(f"{'job':22} {'us':>9} {'floor':>9} {'above':>9} {'p10 above':>10} {'reach':>7}")
    for job in found:
        rows = taken[job.name]
        above = sorted(run - floor for run, floor in rows)
        whole, floors = sorted(run for run, _ in rows), sorted(floor for _, floor in rows)
        middle, low = len(rows) // 2, len(rows) // 10
        figures = f"{whole[middle]:9.1f} {floors[middle]:9.1f} {above[middle]:9.1f} {above[low]:10.1f}"
        print(f"{job.name:22} {figures} {REACH_US[job.reach]:7.0f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
