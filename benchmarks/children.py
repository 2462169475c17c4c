"""What benchmarks do in processes of their own: `python benchmarks/children.py JOB PATH NUMBER...`."""

import json
import random
import resource
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

import workloads

from refold import Memory

VISITS = 2
"""Every conversation comes back once when it has long left RAM."""

VISIT_MESSAGES = 10
CONVERSATIONS_PER_COMMIT = 100
SPREAD_DIMENSIONS = 128


def write(path: str, place: int, events: int) -> None:
    """Append so many messages whenever a line arrives, and answer it; end with the last line."""
    with Memory(path, window_tokens=workloads.WINDOW_TOKENS) as memory:
        chat = memory.conversation(f"chat-{place:04d}")
        said = workloads.share(place, events)
        workloads.say(chat, said[:1])
        print("ready", flush=True)
        for _ in sys.stdin:
            workloads.say(chat, said)
            print("written", flush=True)


def fill(path: str, conversations: int, memory_bytes: int) -> None:
    """Write twenty messages to each of so many conversations, in two visits; print the peak of this process."""
    begin = perf_counter_ns()
    with Memory(path, memory_bytes=memory_bytes, window_tokens=workloads.WINDOW_TOKENS) as memory:
        chats = [f"chat-{number:04d}" for number in range(conversations)]
        for visit in range(VISITS):
            said = workloads.share(visit, VISIT_MESSAGES)
            for first in range(0, conversations, CONVERSATIONS_PER_COMMIT):
                with memory.batch():
                    for chat in chats[first : first + CONVERSATIONS_PER_COMMIT]:
                        workloads.say(memory.conversation(chat), said)
        events = memory.head
    tell(peak_bytes=peak_bytes(), events=events, fill_ns=perf_counter_ns() - begin)


def read(path: str, conversations: int, memory_bytes: int, targets: int, seed: int) -> None:
    """Open the store and read random conversations, none of them twice; print how long each took."""
    begin = perf_counter_ns()
    memory = Memory(path, memory_bytes=memory_bytes)
    open_ns = perf_counter_ns() - begin
    read_ns: list[int] = []
    messages = 0
    for number in random.Random(seed).sample(range(conversations), targets):
        begin = perf_counter_ns()
        window = memory.conversation(f"chat-{number:04d}").window()
        read_ns.append(perf_counter_ns() - begin)
        messages += len(window)
    memory.close()
    tell(peak_bytes=peak_bytes(), open_ns=open_ns, read_ns=read_ns, messages=messages)


def remember(path: str, projects: int, memories: int, memory_bytes: int) -> None:
    """Add so many memories to each of so many projects, a commit for each; print the peak of this process."""
    known = _warm_vectors()
    base_bytes = peak_bytes()
    begin = perf_counter_ns()
    with Memory(path, memory_bytes=memory_bytes) as memory:
        for number in range(projects):
            project = memory.project(f"project-{number:05d}")
            with memory.batch():
                for place in range(memories):
                    text = f"memory {place} of project {number} about thing {place % 97}"
                    project.add(text, vector=known[(number * memories + 7 * place) % len(known)])
    tell(base_bytes=base_bytes, peak_bytes=peak_bytes(), fill_ns=perf_counter_ns() - begin)


def search(path: str, projects: int, targets: int, memory_bytes: int) -> None:
    """Open the store and search random projects, none of them twice, and one again and again; print the times."""
    known = _warm_vectors()
    base_bytes = peak_bytes()
    cold_ns: list[int] = []
    warm_ns: list[int] = []
    found = 0
    with Memory(path, memory_bytes=memory_bytes) as memory:
        chosen = random.Random(workloads.SEED).sample(range(projects), targets)
        for times_ns, numbers in ((cold_ns, chosen), (warm_ns, [chosen[-1]] * 100)):
            for number in numbers:
                begin = perf_counter_ns()
                hits = memory.project(f"project-{number:05d}").search(
                    "memory about thing 5", ranking="seed", vector=known[0]
                )
                times_ns.append(perf_counter_ns() - begin)
                found += len(hits)
    tell(base_bytes=base_bytes, peak_bytes=peak_bytes(), cold_ns=cold_ns, warm_ns=warm_ns, found=found)


def _warm_vectors() -> "list[array[float]]":
    """Return vectors, once everything that a search loads is there: that is no part of what memories take."""
    draw = random.Random(workloads.SEED)
    known = [array("f", (draw.gauss(0.0, 1.0) for _ in range(SPREAD_DIMENSIONS))) for _ in range(200)]
    with Memory() as memory:
        memory.project().add("warm", vector=known[0])
        memory.project().search("warm", ranking="seed", vector=known[0])
    return known


def peak_bytes() -> int:
    """Return the most that this process had in RAM.

    Linux hands ``ru_maxrss`` on from the process that starts another one, so that a child of a large process seems
    large from the beginning; ``VmHWM`` is the same measure of this process alone.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def tell(**facts: object) -> None:
    """Print what was found, for the process that asked."""
    print(json.dumps(facts), flush=True)


JOBS: dict[str, Callable[..., None]] = {
    "write": write,
    "fill": fill,
    "read": read,
    "remember": remember,
    "search": search,
}

if __name__ == "__main__":
    JOBS[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
