"""The recorder: compiling it, running a program under it, and reading what it wrote."""

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("recorder.c")
HEADER: Final = struct.Struct("=IIQQIIQ")


class Kind(IntEnum):
    """What a record says was done; the numbers are those of recorder.c."""

    WRITE = 1
    TRUNCATE = 2
    ALLOCATE = 3
    FLUSH = 4
    CREATE = 5
    MAKE_DIRECTORY = 6
    RENAME = 7
    LINK = 8
    UNLINK = 9
    MAP = 10
    FLUSH_RANGE = 11


@dataclass(frozen=True, slots=True)
class Record:
    """One call that changed or flushed something; ``offset`` is the new length where the call set one."""

    kind: Kind
    durable: bool
    inode: int
    offset: int
    path: str
    other: str
    payload: bytes


def missing() -> str:
    """Return why nothing can be recorded here, empty where it can."""
    if not sys.platform.startswith("linux"):
        return "the recorder is preloaded into a process, which is done so on Linux alone"
    return "" if compiler() else "no C compiler (cc, gcc or clang) is there to build the recorder with"


@cache
def compiler() -> str | None:
    """Return the path of a C compiler, ``None`` where there is none."""
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


def build(directory: Path) -> Path:
    """Compile the recorder into the directory and return its library."""
    found = compiler()
    assert found, missing()
    library = directory / "recorder.so"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command = [found, *flags, "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stderr}"
    return library


def run(library: Path, command: Sequence[str], root: Path, into: Path, environment: Mapping[str, str]) -> None:
    """Run the command and record what it does below ``root``; a command that fails is an error with its output."""
    recording = {"LD_PRELOAD": str(library), "POWER_ROOT": str(root), "POWER_TRACE": str(into)}
    done = subprocess.run(
        command, env={**os.environ, **environment, **recording}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"


def read(path: Path) -> Iterator[Record]:
    """Return the records of a trace in order; a trace that ends inside a record is an error."""
    trace = memoryview(path.read_bytes())
    at = 0
    while at < len(trace):
        kind, durable, inode, offset, path_bytes, other_bytes, payload_bytes = HEADER.unpack_from(trace, at)
        paths = at + HEADER.size
        others, payload = paths + path_bytes, paths + path_bytes + other_bytes
        at = payload + payload_bytes
        assert at <= len(trace), f"the trace {path} ends inside a record"
        yield Record(
            Kind(kind),
            bool(durable),
            inode,
            offset,
            os.fsdecode(bytes(trace[paths:others])),
            os.fsdecode(bytes(trace[others:payload])),
            bytes(trace[payload:at]),
        )
