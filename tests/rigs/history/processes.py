"""The parent's side: writing processes started together, listened to, told, killed and stopped."""

import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from tests.rigs.history.record import Answer, Done, Line, Ready, decode
from tests.rigs.history.worker import Setup
from tests.support.paths import ROOT

SILENCE_SECONDS: Final = 60.0
"""How long all processes together may say nothing before the rig calls them stuck."""
ERROR_CHARS: Final = 2_000


class CrewError(Exception):
    """A process did what no rig expects: it ended by itself, or says nothing any more."""


class Crew:
    """The writing processes of one loop; every line that they write is added to a list."""

    def __init__(self, setups: Sequence[Setup], directory: Path, lines: list[Line]) -> None:
        self._lines = lines
        self.acknowledged: Counter[int] = Counter()
        """How many calls of each process were acknowledged, as far as its lines were read."""
        self.done: set[int] = set()
        self._ready: set[int] = set()
        self._ended: set[int] = set()
        self._killed = {setup.process for setup in setups if setup.doom is not None}
        self._stopped: set[int] = set()
        self._arriving: queue.Queue[tuple[int, bytes]] = queue.Queue()
        self._errors = {setup.process: directory / f"errors-{setup.process}" for setup in setups}
        self._children = {setup.process: self._start(setup) for setup in setups}
        self._readers = [threading.Thread(target=self._read, args=(process,)) for process in self._children]

    def __enter__(self) -> Self:
        """Wait until every process has opened the memory, then let all begin."""
        for reader in self._readers:
            reader.start()
        try:
            self.listen(lambda: self._ready == self._children.keys())
        except BaseException:
            self.__exit__()
            raise
        self.tell("go")
        return self

    def __exit__(self, *_: object) -> None:
        """Leave no process behind."""
        for child in self._children.values():
            child.kill()
            child.wait()
        for reader in self._readers:
            reader.join()
        for child in self._children.values():
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()

    @property
    def running(self) -> list[int]:
        """The processes that have not ended."""
        return [process for process in self._children if process not in self._ended]

    def _start(self, setup: Setup) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.rigs.history.worker", msgspec.json.encode(setup).decode()]
        with self._errors[setup.process].open("wb") as errors:
            return subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
            )

    def _read(self, process: int) -> None:
        """Pass on the lines of a process, and an empty one when there are no more."""
        pipe = self._children[process].stdout
        assert pipe is not None
        with open(pipe.fileno(), "rb", closefd=False) as lines:
            for line in lines:
                self._arriving.put((process, line))
        self._arriving.put((process, b""))

    def listen(self, enough: Callable[[], bool], heard: Callable[[int, Line], None] | None = None) -> None:
        """Take lines as they come, and pass them on, until there was enough."""
        while not enough():
            process, line = self._take()
            if line is not None and heard is not None:
                heard(process, line)

    def _take(self) -> tuple[int, Line | None]:
        try:
            process, encoded = self._arriving.get(timeout=SILENCE_SECONDS)
        except queue.Empty as error:
            raise CrewError(f"processes {self.running} have said nothing for {SILENCE_SECONDS} seconds") from error
        if not encoded:
            self._note_end(process)
            return process, None
        line = decode(encoded)
        self._lines.append(line)
        self._note(process, line)
        return process, line

    def _note(self, process: int, line: Line) -> None:
        if isinstance(line, Ready):
            self._ready.add(process)
        elif isinstance(line, Done):
            self.done.add(process)
        elif isinstance(line, Answer) and not line.error:
            self.acknowledged[process] += 1

    def _note_end(self, process: int) -> None:
        self._ended.add(process)
        status = self._children[process].wait()
        is_killed = process in self._killed and status == -signal.SIGKILL
        if not is_killed and (status or process not in self._stopped):
            errors = self._errors[process].read_text(encoding="utf-8", errors="replace")[-ERROR_CHARS:]
            raise CrewError(f"process {process} ended by itself with status {status}: {errors}")

    def tell(self, line: str, processes: Collection[int] | None = None) -> None:
        """Tell processes something; one that has just died does not hear it, and its end is noted elsewhere."""
        for process in self.running if processes is None else processes:
            pipe = self._children[process].stdin
            assert pipe is not None
            try:
                pipe.write(line.encode() + b"\n")
            except BrokenPipeError:
                continue

    def wait(self, process: int) -> None:
        """Wait for a process that is doomed, and read what it had written before."""
        self.listen(lambda: process in self._ended)

    def kill(self, processes: Collection[int]) -> None:
        """Kill processes with no warning, and read what they had written before."""
        self._killed.update(processes)
        for process in processes:
            self._children[process].kill()
        self.listen(lambda: self._ended.issuperset(processes))

    def stop(self) -> None:
        """Let the processes finish what they are at, close the memory and end."""
        self._stopped.update(self.running)
        self.tell("stop")
        self.listen(lambda: not self.running)
