"""A process of the erasing rig: appends, erases and backs up, opening the store again and again, until it is killed.

Standard output is its journal, as in ``worker.py``: a line before each call and one after it. The end of its standard
input means that it is to finish what it is at.
"""

import faulthandler
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final, NoReturn

import msgspec
from msgspec import Struct

from refold import InvalidInput, Memory, StoreError, StoreFull, StoreUnreachable
from refold.log import clean_copy, disk, environment, replica
from refold.log.commits import is_address
from refold.log.environment import Turnstile
from refold.log.lmdb_log import LmdbTurn
from refold.log.replica import ReplicaFiles, ReplicaTurn
from refold.memory import store
from tests.rigs.breaks import BUILDS
from tests.rigs.history.calls import opened

JOURNAL: Final = sys.__stdout__.fileno() if sys.__stdout__ is not None else 1
CALLS_PER_OPENING: Final = 8
PAUSE_SECONDS: Final = 0.05
COPIES: Final = "copies"
KINDS: Final = {"append": 7, "erase": 4, "backup": 1}


class Setup(Struct, frozen=True):
    """What a process of the rig is told when it is started."""

    path: str
    """Of the store, or the address of a log on a server."""
    directory: str
    """Where backups go, and copies of a log on a server."""
    name: str
    seed: str
    moment: str = ""
    """Where it kills itself, empty if somebody else does."""
    times: int = 1
    """How often it has to come there before it does."""
    broken: str = ""


def copies_in(directory: str, path: str) -> str:
    """Return the directory of the copies of a log on a server; empty, of a store."""
    return str(Path(directory, COPIES)) if is_address(path) else ""


class Said(Struct, frozen=True, omit_defaults=True):
    """One line: a call that is about to be made, or what it came back with."""

    name: str
    kind: str
    text: str = ""
    seqs: tuple[int, ...] = ()
    """The seqs to be erased; of an answer, those that a message got or that were erased."""
    beside: str = ""
    is_answer: bool = False
    error: str = ""


# Moments at which it dies.


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError  # A signal that cannot be held back has been sent to this very process.


Method = Callable[..., Any]
Dying = Callable[[Method], Method]


def _doomed(times: int, *, after: bool, when: Callable[..., bool] = lambda *_, **__: True) -> Dying:
    """Return what wraps a function so that the process dies before it runs, or after it did, for the n-th time."""
    numbers = count(1)

    def wrapping(function: Method) -> Method:
        @wraps(function)
        def dying(*arguments: Any, **options: Any) -> Any:
            is_time = when(*arguments, **options) and next(numbers) == times
            if is_time and not after:
                _die()
            returned = function(*arguments, **options)
            if is_time:
                _die()
            return returned

        return dying

    return wrapping


def _is_erasure(_turn: Any, _records: Any, _rows: Any = (), _erased: Any = (), *, is_clean: bool = False) -> bool:
    return is_clean


def _is_backup(_made: str, _target: str, what: str) -> bool:
    return what == "a backup"


def _in_os(module: Any, name: str, dying: Dying) -> None:
    """Let a module see another ``os``."""
    module.os = SimpleNamespace(**{**vars(os), name: dying(getattr(os, name))})


def _in_class(kind: Any, name: str, dying: Dying) -> None:
    setattr(kind, name, dying(getattr(kind, name)))


MOMENTS: Final[dict[str, Callable[[int], None]]] = {
    "before the erasure is written": lambda n: _in_class(LmdbTurn, "write", _doomed(n, after=False, when=_is_erasure)),
    "once the erasure is written": lambda n: _in_class(LmdbTurn, "write", _doomed(n, after=True, when=_is_erasure)),
    "while a copy is written": lambda n: _in_class(clean_copy, "_put_some", _doomed(n, after=True)),
    "before a copy is flushed": lambda n: _in_os(clean_copy, "fsync", _doomed(n, after=False)),
    "once the copy is whole": lambda n: _in_class(clean_copy, "copy", _doomed(n, after=True)),
    "before the copy takes its place": lambda n: _in_os(environment, "rename", _doomed(n, after=False)),
    "once the copy has its place": lambda n: _in_os(environment, "rename", _doomed(n, after=True)),
    "before others are to notice": lambda n: _in_class(Turnstile, "count_replacement", _doomed(n, after=False)),
    "once others are to notice": lambda n: _in_class(Turnstile, "count_replacement", _doomed(n, after=True)),
    "before a backup takes its place": lambda n: _in_class(
        disk, "_put_in_place", _doomed(n, after=False, when=_is_backup)
    ),
    "once a backup has its place": lambda n: _in_class(disk, "_put_in_place", _doomed(n, after=True, when=_is_backup)),
}

SERVER_MOMENTS: Final[dict[str, Callable[[int], None]]] = {
    "before the server has it": lambda n: _in_class(ReplicaTurn, "write", _doomed(n, after=False, when=_is_erasure)),
    "before the server is swept": lambda n: _in_class(ReplicaFiles, "sweep", _doomed(n, after=False)),
    "once its commits are replaced": lambda n: _in_class(replica, "replace_stale", _doomed(n, after=True)),
    "once the server is swept": lambda n: _in_class(ReplicaFiles, "sweep", _doomed(n, after=True)),
}
"""Of a log on a server, besides: the others come in its copy."""


# What it does.


def say(line: Said) -> None:
    """Write a line of the journal, whole."""
    encoded = msgspec.json.encode(line) + b"\n"
    assert len(encoded) <= select.PIPE_BUF, f"a line of {len(encoded)} bytes could be cut"
    os.write(JOURNAL, encoded)


class Eraser:
    """The calls of one process."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._random = Random(setup.seed)
        self._count = 0
        self._own: list[int] = []
        """Seqs that this process appended and has not asked to erase."""

    def run(self, stop: threading.Event) -> None:
        """Open the store, make some calls, close it, and again."""
        while not stop.is_set():
            with opened(self._setup.path, copies_in(self._setup.directory, self._setup.path)) as memory:
                for _ in range(self._random.randint(1, CALLS_PER_OPENING)):
                    self._make(memory)
            stop.wait(self._random.random() * PAUSE_SECONDS)

    def _make(self, memory: Memory) -> None:
        (kind,) = self._random.choices(list(KINDS), weights=list(KINDS.values()))
        if not self._count:
            kind = "append"  # Else it could die in its first call, and of an empty store nothing can be lost.
        self._count += 1
        name = f"{self._setup.name}-{self._count}"
        call = {"append": self._append, "erase": self._erase, "backup": self._back_up}[kind]
        try:
            call(memory, name)
        except InvalidInput as error:
            say(Said(name, kind, is_answer=True, error=type(error).__name__))
        except (StoreFull, StoreUnreachable):
            pass  # Whether it was done is unknown, as of a call that is cut off.

    def _append(self, memory: Memory, name: str) -> None:
        text = f"<{name}>{'x' * self._random.choice((10, 200, 3_000))}"
        say(Said(name, "append", text=text[: len(name) + 2]))
        chat = memory.conversation(f"{self._setup.name}/{self._random.randint(1, 3)}")
        seq = chat.append("user", text, request_id=name).seq
        self._own.append(seq)
        say(Said(name, "append", seqs=(seq,), is_answer=True))

    def _erase(self, memory: Memory, name: str) -> None:
        seqs = self._random.sample(self._own, min(len(self._own), self._random.randint(1, 3)))
        say(Said(name, "erase", seqs=tuple(seqs)))
        erasing_now = store.erase(memory._core, None, seqs, None, "erase", "refuse")
        self._own = [seq for seq in self._own if seq not in seqs]
        say(Said(name, "erase", seqs=erasing_now.seqs, is_answer=True))

    def _back_up(self, memory: Memory, name: str) -> None:
        beside = f"backup-{name}"
        say(Said(name, "backup", beside=beside))
        memory.backup(Path(self._setup.directory, beside))
        say(Said(name, "backup", beside=beside, is_answer=True))


def main(told: str) -> None:
    """Work until told otherwise, or killed."""
    faulthandler.register(signal.SIGUSR1)
    setup = msgspec.json.decode(told, type=Setup)
    if setup.broken:
        BUILDS[setup.broken]()
    if setup.moment:
        (MOMENTS | SERVER_MOMENTS)[setup.moment](setup.times)
    stop = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    Eraser(setup).run(stop)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except StoreError as error:
        sys.exit(f"{type(error).__name__}: {error}")
