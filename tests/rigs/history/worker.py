"""A writing process of a rig: opens the memory, writes with several threads, and tells its parent of every call.

Standard output is the journal. A line shorter than a pipe's buffer is written whole or not at all, and the kernel keeps
it when this process is killed: so a call is known before it is made, and an answer that was written was given. On
standard input come ``go``, ``look STREAM`` and ``stop``; its end means that the parent is gone.
"""

import os
import select
import sys
import threading
import time
import traceback
from random import Random

import msgspec
from msgspec import Struct

from refold import Memory
from tests.rigs.breaks import BUILDS
from tests.rigs.history.calls import opened, perform
from tests.rigs.history.moments import Doom, doom
from tests.rigs.history.plan import Planner
from tests.rigs.history.record import Call, Done, Line, Look, Ready, encode

BARRIER_SECONDS = 60
CALLS_PER_ROUND = 8
"""How many calls a thread makes before it waits for the others: often enough that they stay side by side."""

APART_NS = 600 * 10**9

FAILED = 70
"""The exit status of a process in which a thread met an error that no rig expects."""

JOURNAL = sys.__stdout__.fileno() if sys.__stdout__ is not None else 1


class Setup(Struct, frozen=True):
    """What a writing process is told when it is started."""

    path: str
    name: str
    """The beginning of the names of its calls, different in every process of every loop."""
    process: int
    threads: int
    seed: str
    rounds: int = 0
    """How many rounds its threads make; 0 until it is stopped."""
    broken: str = ""
    doom: Doom | None = None
    copies: str = ""
    """Where the copy of a log on a server lies; ``path`` is its address then."""


def write_line(line: Line) -> None:
    """Write a line of the journal, whole."""
    encoded = encode(line) + b"\n"
    assert len(encoded) <= select.PIPE_BUF, f"a line of {len(encoded)} bytes could be cut"
    os.write(JOURNAL, encoded)


def make(memory: Memory, call: Call) -> None:
    """Make a call, with a line before and one after it."""
    write_line(call)
    write_line(perform(memory, call))


class Worker:
    """The threads of one process."""

    def __init__(self, setup: Setup, memory: Memory) -> None:
        self._setup = setup
        self._memory = memory
        self._barrier = threading.Barrier(setup.threads, self._begin_round)
        self._rounds = 0
        self._is_over = False
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._guarded, args=(number,)) for number in range(setup.threads)]

    def _begin_round(self) -> None:
        """Decide for all threads, while they all wait, whether there is another round."""
        self._is_over = self._stop.is_set() or self._rounds == self._setup.rounds > 0
        self._rounds += 1
        if self._is_over:
            write_line(Done(self._setup.process))

    def _guarded(self, number: int) -> None:
        try:
            self._run(number)
        except BaseException:  # noqa: BLE001 - the other threads would wait at the barrier for ever
            traceback.print_exc()
            os._exit(FAILED)

    def _run(self, number: int) -> None:
        setup = self._setup
        random = Random(f"{setup.seed}/{setup.process}/{number}")
        planner = Planner(f"{setup.name}.{setup.process}-{number}", setup.process, random, self._memory)
        while True:
            self._barrier.wait(BARRIER_SECONDS)
            if self._is_over:
                return
            for _ in range(CALLS_PER_ROUND):
                make(self._memory, planner.next())

    def listen(self) -> None:
        """Do what the parent says, until it says to stop."""
        for number, line in enumerate(sys.stdin):
            verb, _, stream = line.rstrip("\n").partition(" ")
            if verb == "go":
                for thread in self._threads:
                    thread.start()
            elif verb == "look":
                name = f"{self._setup.name}.{self._setup.process}-told.{number}"
                make(self._memory, Call(name, self._setup.process, time.monotonic_ns(), look=Look(stream)))
            else:
                break
        self._stop.set()
        for thread in self._threads:
            thread.join()


def main(told: str) -> None:
    """Write until told otherwise, or killed."""
    setup = msgspec.json.decode(told, type=Setup)
    if setup.broken:
        BUILDS[setup.broken]()
    # Machines that share a log do not agree on the time.
    apart_ns = setup.process * APART_NS if setup.copies else 0
    with opened(setup.path, setup.copies, clock_ns=lambda: time.time_ns() + apart_ns) as memory:
        if setup.doom is not None:  # Not before: a copy of a log on a server is written to where it is opened.
            doom(setup.doom)
        write_line(Ready(setup.process))
        Worker(setup, memory).listen()


if __name__ == "__main__":
    main(sys.argv[1])
