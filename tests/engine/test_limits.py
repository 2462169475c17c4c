"""A process without descriptors, address space, threads or room gets an error that says so, and loses nothing.

A child lowers one of its limits to each of several values, makes a call, raises the limit again and repeats the call.
"""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.memories import Child

PROGRAM: Final = """
import asyncio, os, resource, sys, threading
from pathlib import Path
import _thread
from refold import Memory, RefoldError, recover
from tests.support.memories import assert_sound

path, kind, durability, amounts = Path(sys.argv[1]), sys.argv[2], sys.argv[3], list(map(int, sys.argv[4:]))
store = path / "store"
memory = Memory(store, durability=durability)
kept = [f"message {number} " + "x" * 500 for number in range(200)]
with memory.batch():
    for number, text in enumerate(kept):
        memory.conversation("c").append("user", text, tokens=1)
        memory.project("p").add(f"fact {number} of {number * 7}")
numbers, written = iter(range(10**6)), set()

def fresh(name):
    return f"{name}-{next(numbers)}"

def append():
    text = fresh("append") + " " + "y" * 3_000
    memory.conversation("c").append("user", text, tokens=1)
    written.add(text)
    memory.flush()

def append_on_a_loop():
    text = fresh("aio")

    async def task():
        await memory.aio.conversation("c").append("user", text, tokens=1)

    loop = asyncio.new_event_loop()
    give_back = lower()
    try:
        loop.run_until_complete(task())
    finally:
        give_back()
        loop.close()
    written.add(text)

def opened(**options):
    with Memory(store, **options) as another:
        assert another.conversation("c").token_count() >= len(kept)

def create():
    with Memory(path / fresh("new")) as new:
        new.conversation("c").append("user", "first", tokens=1)

def erase():
    chat = memory.conversation("gone")
    if memory.conversation("gone").version == 0:
        chat.append("user", "a secret of some length", tokens=1)
    chat.erase()


def subscribe():
    seen = threading.Event()
    with memory.subscribe(lambda _: seen.set(), after=0):
        assert seen.wait(30)

OPENING = [lambda: opened(durability=durability), lambda: opened(readonly=True)]
CALLS = {
    "open": OPENING[0],
    "open to read": OPENING[1],
    "create": create,
    "append": append,
    "append on a loop": append_on_a_loop,
    "read": lambda: memory.at(memory.head - 1).conversation("c").window(),
    "search": lambda: memory.project("p").search("fact 3"),
    "search messages": lambda: memory.search("message"),
    "erase": erase,
    "back up": lambda: memory.backup(path / fresh("backup")),
    "recover": lambda: recover(store, path / fresh("recovered")),
    "verify": lambda: memory.verify().ok or 1 / 0,
    "subscribe": subscribe,
    "export": lambda: memory.export(path / fresh("export")),
    "fork": lambda: memory.fork(fresh("fork")),
}
if kind == "space":
    del CALLS["append on a loop"]  # Python itself waits without end for a thread that has no memory to begin.
LIMITS = {"files": resource.RLIMIT_NOFILE, "space": resource.RLIMIT_AS, "disk": resource.RLIMIT_FSIZE}
amount = 0

def refuse(*_):
    raise RuntimeError("can't start new thread")

def lower():
    if kind == "threads":
        starts = threading._start_new_thread, _thread.start_new_thread
        threading._start_new_thread = _thread.start_new_thread = refuse

        def give_back():
            threading._start_new_thread, _thread.start_new_thread = starts

        return give_back
    held, bound = [], amount
    if kind == "files":
        last = max(map(int, os.listdir("/proc/self/fd")))
        while not held or held[-1] < last:
            held.append(os.open(os.devnull, os.O_RDONLY))
        bound += held[-1] + 1
    elif kind == "space":
        bound += int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(LIMITS[kind])[1]
    resource.setrlimit(LIMITS[kind], (bound, hard))

    def give_back():
        resource.setrlimit(LIMITS[kind], (hard, hard))
        for descriptor in held:
            os.close(descriptor)

    return give_back

def limited(call):
    if call is append_on_a_loop:
        return call()  # It lowers the limit itself, for the loop needs descriptors of its own.
    if call in OPENING:
        memory.close()
    give_back = lower()
    try:
        call()
    finally:
        give_back()

def reopen():
    global memory
    memory.close()
    memory = Memory(store, durability=durability)

def check():
    found = [str(message.content) for message in memory.conversation("c").window()]
    assert found[:len(kept)] == kept
    assert sorted(found[len(kept):]) == sorted(written), set(found[len(kept):]) ^ written
    assert_sound(memory)

free = lower
lower = lambda: lambda: None
for call in CALLS.values():  # Python's own modules are loaded here, and what it raises for them is its own.
    reopen()
    limited(call)
lower = free
for name, call in CALLS.items():
    for amount in amounts:
        reopen()
        try:
            limited(call)
        except (RefoldError, MemoryError) as error:
            print(f"{name} | {amount} | {type(error).__name__} | {error}", flush=True)
        else:
            print(f"{name} | {amount} | done | ", flush=True)
        try:
            lower = lambda: lambda: None
            limited(call)
        finally:
            lower = free
        reopen()
        check()
        left = [name for name in os.listdir(path) if name.startswith(".")]
        assert not left, left
print("whole", flush=True)
"""

STEPS: Final = {
    "files": r"close files of this process, or raise its limit \(ulimit -n\)",
    "space": r"raise the limits? of this process \(ulimit (?:-u, )?-v\)",
    "threads": r"end others, or raise the limits of this process \(ulimit -u, -v\)",
    "disk": r"free disk space",
}
AMOUNTS: Final = {
    "files": (0, 1, 2, 3, 4, 5, 6, 8),
    "space": (0, 400_000, 4_000_000),
    "threads": (0,),
    "disk": (0, 4_096, 100_000),
}

UNRAISABLE: Final = ("Exception ignored in thread started by", "MemoryError")
"""What Python itself says of a thread that had no memory to begin."""

needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc tells what a process has")


@needs_proc
@pytest.mark.timeout(300)
@pytest.mark.parametrize("durability", ["durable", "delayed"])
@pytest.mark.parametrize("kind", STEPS)
def test_a_limit_is_named_and_costs_nothing(tmp_path: Path, kind: str, durability: str) -> None:
    refused = set[str]()
    with Child(PROGRAM, str(tmp_path), kind, durability, *map(str, AMOUNTS[kind])) as child:
        while (line := child.read()) != "whole":
            if line.startswith(UNRAISABLE):
                continue
            name, _, error, message = (*line.split(" | ", 3), "", "", "")[:4]
            assert error, [line] + [child.read() for _ in range(60)]
            if error not in {"done", "MemoryError"}:
                refused.add(name)
                assert error == ("StoreFull" if kind == "disk" else "StoreError"), line
                assert re.search(STEPS[kind], message), line
    assert refused, "the limit was never met"
