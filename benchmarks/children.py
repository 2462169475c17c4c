"""What benchmarks do in processes of their own: `python benchmarks/children.py JOB PATH NUMBER...`."""

import json
import random
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

import workloads

from refold import Memory

VISITS = 2
"""Every conversation comes back once when it has long left RAM."""

VISIT_MESSAGES = 10
CONVERSATIONS_PER_COMMIT = 100


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


JOBS: dict[str, Callable[..., None]] = {"write": write, "fill": fill, "read": read}

if __name__ == "__main__":
    JOBS[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
