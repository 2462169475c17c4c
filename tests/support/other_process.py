"""Another process that opens stores and does to them what it is told, through handles that look like refold's own.

The worker holds every handle that it gave out and answers one question at a time.
"""

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Self

import refold
from refold import Board, Conversation, Journal, Memory, Profile, Project, RefoldError, Snapshot
from refold.memory import Files, SessionMemory, Settings, Table
from refold.memory.scratchpad import Scratchpad
from refold.skills import SkillLibrary, Skills
from tests.support.bounds import Clock, lowered, seeded_bytes
from tests.support.paths import ROOT

SCOPES = type(Memory().conversation("any").state)
HANDLES: tuple[type[Any], ...] = (Memory, Board, Conversation, Files, Journal, Profile, Project, Scratchpad, Snapshot)
HANDLES += (SCOPES, SessionMemory, Settings, Skills, SkillLibrary, Table)


class Held(NamedTuple):
    """A handle that stays in the worker, by its number."""

    number: int


class Verb(NamedTuple):
    """A public method of a handle that stays in the worker."""

    name: str


class Refused(NamedTuple):
    """An error that a call raised there."""

    error: RefoldError


class LengthCounter:
    """A counter that a model can follow: one token for each character."""

    id = "length"

    def count(self, text: str) -> int:
        """The number of characters."""
        return len(text)


WORDS = ("tea", "milk", "port", "red")


class WordsEmbedder:
    """An embedder that a model can follow: how often each of four words stands in a text."""

    id = "words"
    dim = 5

    def embed(self, texts: list[str]) -> list[list[float]]:
        """Counts, and a little of something else, so that no vector is zero."""
        return [[*(float(text.count(word)) for word in WORDS), 0.125] for text in texts]


class Elsewhere:
    """The other process; ``opened`` gives a memory in it, and ``close`` ends it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._begin()

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        # Not with ``-m``: pickled names have to lead to the module, not to ``__main__``.
        command = [sys.executable, "-c", f"from tests.support.other_process import main; main({theirs.fileno()})"]
        package = Path(refold.__file__).parents[1]  # The one that is tested, which may be a broken copy.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(package), str(ROOT)])}
        with theirs:
            self._process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
        self._pipe = Connection(ours.detach())

    def opened(self, path: Path | str, bounds: dict[str, int], random_seed: int, **options: Any) -> "Remote":
        """Close what is open there and open a memory, with these bounds."""
        remote = self.ask("open", path, bounds, random_seed, options)
        assert isinstance(remote, Remote)
        return remote

    def ask(self, *asked: Any) -> Any:
        """Return what the worker answers, or raise what it raised."""
        self._pipe.send((self.clock.time_ns, asked))
        answer = self._pipe.recv()
        if isinstance(answer, Refused):
            raise answer.error
        return Remote(self, answer) if isinstance(answer, Held) else answer

    def shut(self) -> None:
        """Close what is open there; every handle on it is done with."""
        self.ask("shut")

    def kill(self, handle: "Remote | None" = None, verb: str = "", args: tuple[Any, ...] = (), **options: Any) -> None:
        """Kill the process, at once or in the midst of a call, and begin another one."""
        if handle is not None:
            self._pipe.send((self.clock.time_ns, ("call", handle.held, verb, args, options)))
        self._process.kill()
        self._process.wait()
        self._pipe.close()
        self._begin()

    def close(self) -> None:
        """End the process, which must end well."""
        self._pipe.close()
        assert self._process.wait(60) == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Remote:
    """A handle in the other process: what is asked of it is asked there."""

    def __init__(self, elsewhere: Elsewhere, held: Held) -> None:
        self._elsewhere, self.held = elsewhere, held

    def __getattr__(self, name: str) -> Any:
        found = self._elsewhere.ask("get", self.held, name)
        if not isinstance(found, Verb):
            return found
        return lambda *args, **options: self._elsewhere.ask("call", self.held, name, args, options)


class Worker:
    """What runs in the other process."""

    def __init__(self) -> None:
        self._clock, self._open_things, self._handles = Clock(), ExitStack(), list[Any]()

    def answer(self, time_ns: int, asked: tuple[Any, ...]) -> Any:
        """Do what is asked, at a time; what refold refuses is an answer."""
        self._clock.time_ns = time_ns
        verb, *given = asked
        try:
            found = getattr(self, verb)(*given)
        except RefoldError as error:
            return Refused(error)
        if not isinstance(found, HANDLES):
            return found
        self._handles.append(found)
        return Held(len(self._handles) - 1)

    def open(self, path: Path | str, bounds: dict[str, int], random_seed: int, options: dict[str, Any]) -> Memory:
        """Open the store, and nothing beside it."""
        self.shut()
        self._open_things.enter_context(lowered(**bounds))
        sources: dict[str, Any] = {"clock_ns": self._clock, "random_bytes": seeded_bytes(random_seed)}
        memory = Memory(path, token_counter=LengthCounter(), embedder=WordsEmbedder(), **sources, **options)
        self._open_things.callback(memory.close)
        return memory

    def shut(self) -> None:
        """Close what is open."""
        self._open_things.close()
        self._handles.clear()

    def get(self, held: Held, name: str) -> Any:
        """Return the value of a property, or say that the name is a verb."""
        found = getattr(self._handles[held.number], name)
        return Verb(name) if callable(found) else found

    def call(self, held: Held, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Call a verb."""
        return getattr(self._handles[held.number], name)(*args, **options)


def main(file: int) -> None:
    """Answer until the other side is gone."""
    worker = Worker()
    with Connection(file) as pipe:
        while True:
            try:
                time_ns, asked = pipe.recv()
            except EOFError:
                break
            pipe.send(worker.answer(time_ns, asked))
    worker.shut()
