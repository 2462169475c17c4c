"""A long mixed load, and what of it may not grow: ``python -m tests.rigs.soak --seconds 1200``.

In each round three threads and a second process write and read at once, fork, restore and subscribe. Then the second
process closes the store, the round before is erased, and a backup is taken and removed. After each round both processes
collect their garbage and say what they take: memory of their own, objects, open files, places in LMDB's table of
readers, bytes of the file. The second half of the rounds is held against the first, in which nothing may have grown but
by what each event of the log is allowed.

By hand, ``MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=131072`` lets memory tell what is held, and not what was.
"""

import argparse
import contextlib
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count, product
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from refold import Conversation, Memory, Recorded, WrongVersion
from refold.limits import MEMORY_BYTES_MIN
from refold.log.lmdb_log import LmdbLog
from tests.support.paths import ROOT
from tests.support.seams import log_of

THREADS: Final = 3
CALLS: Final = 30
"""Calls of each thread in a round."""
CHATS: Final = 6
WARM_ROUNDS: Final = 3
"""Rounds at the beginning that count for nothing: modules are loaded and buffers filled."""
ROUNDS_MIN: Final = 6

ALLOCATING: Final = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072", "OPENBLAS_NUM_THREADS": "1"}
"""What lets the C library give back at once what is freed, so that memory tells what is held, and not what was."""

MEMORY_SPARE_BYTES: Final = 12 * 1024**2
MEMORY_EVENT_BYTES: Final = 256
"""Memory that may be added for each event of the log."""
OBJECTS_SPARE: Final = 20_000
OBJECTS_EACH: Final = 3
"""Objects that may be added for each event of the log: a stream that was forked keeps its number and its name."""
FILES_SPARE: Final = 3
READERS_MAX: Final = 2 * (THREADS + 3)
"""Threads of both processes, the subscriber's and the witness's among them, each of which may read at one moment."""
EVENT_BYTES_MAX: Final = 500
"""By how much the file may grow for each event that is erased later: its head, and what checkpoint rows say of it."""
FILE_SPARE_BYTES: Final = 64 * 4096


class Own(Struct, frozen=True):
    """What a process takes."""

    memory_bytes: int
    objects: int
    files: int


class Sample(Struct, frozen=True):
    """What a round has left: in both processes, and in the store."""

    round: int
    head: int
    file_bytes: int
    readers: int
    first: Own
    second: Own


def own() -> Own:
    """Return what this process takes: memory that is no file's, blocks of it that Python has in use, open files.

    Garbage is collected first: what waits for the collector grows for a while, and is no leak.
    """
    gc.collect()
    return Own(own_bytes(), sys.getallocatedblocks(), len(list(Path("/proc/self/fd").iterdir())))


def own_bytes() -> int:
    """Return the memory of this process that is no file's."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def environment_of(memory: Memory) -> Any:
    """Return LMDB's environment of a memory."""
    log = log_of(memory)
    assert isinstance(log, LmdbLog)
    return log.durability.env


# What is done in a round.


def append(_memory: Memory, chat: Conversation, random: Random) -> None:
    """Append a message."""
    chat.append("user", f"{random.randbytes(8).hex()} {'x' * random.choice((20, 300, 5_000))}", tokens=50)


def append_batch(memory: Memory, chat: Conversation, random: Random) -> None:
    """Append several messages in one commit."""
    with memory.batch():
        for _ in range(5):
            append(memory, chat, random)


def keep(memory: Memory, chat: Conversation, random: Random) -> None:
    """Set a key, a value of the state, and one of the profile."""
    chat.scratchpad.set(random.choice("abc"), random.randbytes(40).hex())
    chat.state.set(random.choice("abc"), {"value": random.randbytes(40).hex()})
    memory.profile().set(random.choice("abc"), random.randbytes(40).hex())


def travel(memory: Memory, chat: Conversation, random: Random) -> None:
    """Go back in a conversation."""
    snapshot = chat.snapshot()
    append(memory, chat, random)
    chat.restore(snapshot)


def fork(memory: Memory, chat: Conversation, random: Random) -> None:
    """Fork a conversation, say something in the fork, and drop it."""
    other = chat.fork(f"fork-{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}")
    append(memory, other, random)
    other.close(drop=True)


def look(memory: Memory, chat: Conversation, random: Random) -> None:
    """Read what is, and what was."""
    # Others append meanwhile, so that two looks at what is would be at two states.
    then = chat.at(memory.head)
    assert then.token_count() == sum(message.tokens for message in then.window())
    chat.messages()
    memory.at(random.randint(0, memory.head)).conversation(chat.id).window()
    assert all(stamp.seq > 0 for _, stamp in memory.events(after=max(memory.head - 50, 0)))


CALLS_BY_WEIGHT: Final[dict[Callable[[Memory, Conversation, Random], None], float]] = {
    append: 8,
    append_batch: 2,
    keep: 3,
    travel: 1,
    fork: 0.3,
    look: 5,
}


def work(memory: Memory, random: Random) -> None:
    """Do one thread's calls of a round."""
    for call in random.choices(list(CALLS_BY_WEIGHT), list(CALLS_BY_WEIGHT.values()), k=CALLS):
        chat = memory.conversation(f"chat-{random.randrange(CHATS)}", window_tokens=2_000)
        with contextlib.suppress(WrongVersion):
            call(memory, chat, random)


# The second process.


class Second:
    """A process that opens the store, works and closes it, when it is told to."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-m", "tests.rigs.soak", "--second", str(path)]
        self._child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, seed: str) -> None:
        """Let it begin a round."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{seed}\n")
        self._child.stdin.flush()

    def end(self) -> Own:
        """Wait until it has closed the store; return what it takes."""
        assert self._child.stdout is not None
        return msgspec.json.decode(self._child.stdout.readline(), type=Own)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()


def be_second(path: Path) -> None:
    """Work in rounds, as long as somebody says so."""
    for seed in sys.stdin:
        with Memory(path, memory_bytes=MEMORY_BYTES_MIN) as memory:
            work(memory, Random(seed.strip()))
        sys.stdout.write(msgspec.json.encode(own()).decode() + "\n")
        sys.stdout.flush()


# Builds that leak.


def leak_memory(_memory: Memory, held: list[Any]) -> None:
    """Keep what is not used any more."""
    held.append(os.urandom(6 * 1024**2))


def leak_objects(_memory: Memory, held: list[Any]) -> None:
    """Keep many small things."""
    held.extend(str(number) for number in range(10_000))


def leak_files(_memory: Memory, held: list[Any]) -> None:
    """Leave a file open."""
    held.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(2))


def leak_readers(memory: Memory, held: list[Any]) -> None:
    """Leave transactions open that read."""
    held.extend(environment_of(memory).begin() for _ in range(2 * READERS_MAX))


def leak_events(memory: Memory, held: list[Any]) -> None:
    """Write ever more, for each event that is wanted."""
    held.append(None)
    memory.profile(f"leak-{len(held)}").set("key", os.urandom(100_000 * len(held)).hex())


LEAKS: Final[dict[str, Callable[[Memory, list[Any]], None]]] = {
    "memory": leak_memory,
    "objects": leak_objects,
    "files": leak_files,
    "readers": leak_readers,
    "file size": leak_events,
}


# The rounds.


class Soak:
    """The first process: its memory, its threads, and what it does after each round."""

    def __init__(self, path: Path, memory: Memory, second: Second, seed: int, leak: str) -> None:
        self._path, self._memory, self._second, self._seed = path, memory, second, seed
        self._leak = LEAKS[leak] if leak else None
        self.held: list[Any] = []
        """What a build that leaks does not let go."""
        self._erased_until = 0
        self._heard = 0

    def hear(self, recorded: Recorded) -> None:
        """Take note of an event: subscribers hear of each, once and in order."""
        assert recorded.stamp.seq > self._heard, recorded.stamp
        self._heard = recorded.stamp.seq

    def round(self, number: int) -> Sample:
        """Do a round and return what it has left."""
        memory, begin = self._memory, self._memory.head
        self._second.begin(f"{self._seed}/{number}/second")
        self._work_together(number)
        if self._leak is not None:
            self._leak(memory, self.held)
        readers = max(len(environment_of(memory).readers().splitlines()) - 1, 0)
        second = self._second.end()
        self._erase(begin)
        backup = self._path.with_name(f"backup-{number}")
        memory.backup(backup)
        shutil.rmtree(backup)
        file_bytes = (self._path / "data.mdb").stat().st_size
        return Sample(number, memory.head, file_bytes, readers, own(), second)

    def _work_together(self, number: int) -> None:
        failures: list[BaseException] = []

        def begin(thread: int) -> None:
            try:
                work(self._memory, Random(f"{self._seed}/{number}/{thread}"))
            except BaseException as error:  # noqa: BLE001 - carried over to the thread that waits
                failures.append(error)

        threads = [threading.Thread(target=begin, args=(thread,)) for thread in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _erase(self, until: int) -> None:
        """Erase everything up to a seq that was not erased before."""
        wanted = [item for item in self._memory.events(after=self._erased_until) if item.stamp.seq <= until]
        receipt = self._memory.erase(wanted)
        assert receipt.seqs or not wanted
        self._erased_until = until


def run(path: Path, *, seconds: float, seed: int, leak: str = "") -> tuple[list[Sample], list[str]]:
    """Run rounds for so long, on a new store; return the samples, and what ``verify`` found at the end."""
    until = time.monotonic() + seconds
    with Second(path) as second, Memory(path, memory_bytes=MEMORY_BYTES_MIN) as memory:
        soak = Soak(path, memory, second, seed, leak)
        samples: list[Sample] = []
        with memory.subscribe(soak.hear):
            for number in count():
                if number >= WARM_ROUNDS + ROUNDS_MIN and time.monotonic() > until:
                    break
                samples.append(soak.round(number))
        soak.held.clear()
        findings = [str(finding) for finding in memory.verify().findings]
        if memory.state_hash() != memory.replay_hash():
            findings.append("the state is not the replay of the log")
    return samples, findings


def drift(samples: Sequence[Sample]) -> list[str]:
    """Return what has grown from the first half of the rounds to the second, but for the first few."""
    kept = samples[WARM_ROUNDS:]
    first, second = kept[: len(kept) // 2], kept[len(kept) // 2 :]
    return [*_grown(first, second), *_grown_file(kept)]


def _grown(first: Sequence[Sample], second: Sequence[Sample]) -> list[str]:
    found: list[str] = []
    events = median(sample.head for sample in second) - median(sample.head for sample in first)
    spares: dict[str, tuple[Callable[[Own], int], float]] = {
        "memory_bytes": (lambda own: own.memory_bytes, MEMORY_SPARE_BYTES + MEMORY_EVENT_BYTES * events),
        "objects": (lambda own: own.objects, OBJECTS_SPARE + OBJECTS_EACH * events),
        "files": (lambda own: own.files, FILES_SPARE),
    }
    for process, (name, (taken, spare)) in product(("first", "second"), spares.items()):
        before, after = (median(taken(getattr(sample, process)) for sample in half) for half in (first, second))
        if after > before + spare:
            found.append(f"{name} of the {process} process grew from {before:,.0f} to {after:,.0f}")
    most = max(sample.readers for sample in second)
    if most > READERS_MAX:
        found.append(f"{most} places in the table of readers are taken, and {READERS_MAX} may be")
    return found


def _grown_file(samples: Sequence[Sample]) -> list[str]:
    """An erased event keeps its place, so the file grows with the log, by a bounded number of bytes for each event."""
    begin, end = samples[0], samples[-1]
    events, grown_bytes = end.head - begin.head, end.file_bytes - begin.file_bytes
    if grown_bytes > EVENT_BYTES_MAX * events + FILE_SPARE_BYTES:
        return [f"the file grew by {grown_bytes / events:,.0f} bytes for each event, erased as they are"]
    return []


def started(*arguments: str) -> tuple[int, list[Sample], list[str]]:
    """Run it in a process of its own; return its status, the samples, and what it found."""
    command = [sys.executable, "-m", "tests.rigs.soak", "--json", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **ALLOCATING}, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    *samples, found = done.stdout.splitlines()
    return done.returncode, [msgspec.json.decode(line, type=Sample) for line in samples], json.loads(found)


def main() -> int:
    """Run it by hand, or be the second process; 1 if something grew or was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--leak", choices=sorted(LEAKS), default="")
    parser.add_argument("--second", type=Path)
    parser.add_argument("--json", action="store_true", help="one line for each round, then one of what was found")
    given = parser.parse_args()
    if given.second:
        be_second(given.second)
        return 0
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        samples, findings = run(Path(place) / "store", seconds=given.seconds, seed=given.seed, leak=given.leak)
    found = [*findings, *drift(samples)]
    for sample in samples if given.json else samples[:: max(len(samples) // 20, 1)]:
        sys.stdout.write(msgspec.json.encode(sample).decode() + "\n")
    sys.stdout.write(json.dumps(found) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
