"""What a case is: which call of which workload fails in which way, and how the preloaded library is told."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.rigs.power import trace

SOURCE: Final = Path(__file__).with_name("failing.c")
FOR_EVER: Final = 2**60


class Way(IntEnum):
    """How a call fails; the numbers are those of failing.c."""

    NEVER = 0
    REFUSED = 1
    DONE = 2
    FULL = 3
    SHORT = 4
    DEADLY = 5


@dataclass(frozen=True, slots=True)
class Case:
    """One fault: the call with this number and, if it ``lasts``, all that follow; how the process ends after it."""

    workload: str
    seed: int
    call: int
    way: Way
    lasts: bool
    abandons: bool

    def __str__(self) -> str:
        lasts, abandons = " --lasts" * self.lasts, " --abandons" * self.abandons
        words = f"--workload {self.workload} --seed {self.seed} --call {self.call} --way {self.way.name}"
        return f"python -m tests.rigs.faults {words}{lasts}{abandons}"


def cases_of(workload: str, seed: int, calls: int, limit: int) -> Iterator[Case]:
    """Return all cases of a workload that makes so many calls, or so many of them, drawn by the seed."""
    ways = (Way.REFUSED, Way.DONE, Way.FULL, Way.SHORT)
    rows = [
        Case(workload, seed, call, way, lasts, bool(number % 2))
        for number, (call, way, lasts) in enumerate(product(range(1, calls + 1), ways, (False, True)))
    ]
    if len(rows) > limit:
        rows = Random(f"{workload}/{seed}").sample(rows, limit)
    yield from rows


def build(directory: Path) -> Path:
    """Compile the library into a directory and return it."""
    compiler = trace.compiler()
    assert compiler, trace.missing()
    library = directory / "failing.so"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command = [compiler, *flags, "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stderr}"
    return library


class Faults:
    """The preloaded library, told from inside the process."""

    def __init__(self) -> None:
        assert "FAULTS_ROOT" in os.environ, "the library that fails calls is not loaded"
        library: Any = ctypes.CDLL(None)
        library.faults_arm.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_int)
        for told in (library.faults_seen, library.faults_met, library.faults_removals):
            told.restype = ctypes.c_long
        self._library = library

    def arm(self, case: Case) -> None:
        """Let the case's calls fail, counted from here."""
        self._library.faults_arm(case.call, FOR_EVER if case.lasts else case.call, case.way)

    def watch(self) -> None:
        """Count calls and let none fail."""
        self._library.faults_arm(FOR_EVER, FOR_EVER, Way.REFUSED)

    def kill(self) -> None:
        """Let the next commit of LMDB kill this process, once its last page is written."""
        self._library.faults_arm(0, 0, Way.DEADLY)

    def disarm(self) -> None:
        """Let no call fail any more."""
        self._library.faults_arm(0, 0, Way.NEVER)

    @property
    def seen(self) -> int:
        """How many calls came since the last arming."""
        return int(self._library.faults_seen())

    @property
    def met(self) -> int:
        """How many of them failed."""
        return int(self._library.faults_met())

    @property
    def removals(self) -> int:
        """How many of those would have removed a name."""
        return int(self._library.faults_removals())
