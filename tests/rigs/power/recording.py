"""Running a workload under the recorder, and what is known of it afterwards."""

import json
import os
import shutil
import sys
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from refold import Memory
from tests.rigs.power import trace
from tests.rigs.power.disk import Disk
from tests.rigs.power.judge import Acknowledged, Expected
from tests.rigs.power.trace import Kind, Record
from tests.rigs.power.workloads import WORKLOADS
from tests.support.paths import ROOT

ROOM_BYTES: Final = 2**26


@dataclass(frozen=True, slots=True)
class Run:
    """Which workload is recorded, with which build of refold and which seed."""

    workload: str
    build: str
    seed: int


@dataclass(frozen=True, slots=True)
class Recording:
    """What one run did to the disk; what was acknowledged after each number of calls; the log in the end."""

    run: Run
    start: Callable[[], Disk]
    records: Sequence[Record]
    acknowledged: Sequence[Acknowledged]
    expected: Expected


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a directory for a while, in RAM where the system has room there: the flushes of this disk prove nothing."""
    memory = Path("/dev/shm")  # noqa: S108 - the name of the system's file system in RAM
    has_room = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOM_BYTES
    with tempfile.TemporaryDirectory(prefix="power-", dir=memory if has_room else None) as path:
        yield Path(path).resolve()


def record(library: Path, run: Run) -> Recording:
    """Run the workload under the recorder in an empty directory."""
    with scratch() as world:
        disk, notes, into = world / "disk", world / "notes", world / "trace"
        disk.mkdir()
        notes.touch()
        start = _prepared(disk, is_there=WORKLOADS[run.workload].is_directory_there)
        command = [sys.executable, "-m", "tests.rigs.power.workloads", run.workload, str(run.seed), str(disk / "store")]
        environment = {"PYTHONPATH": os.pathsep.join([str(ROOT / "engine"), str(ROOT)])}
        trace.run(library, [*command, str(notes), run.build], world, into, environment)
        records, acknowledged = _split(trace.read(into), notes.stat().st_ino)
        check_complete(start(), records, disk, world / "replayed")
        expected = _expected(disk / "store", world / "export.jsonl", _originals(notes))
        _check_notes(notes, expected)
        return Recording(run, start, records, acknowledged, expected)


def _prepared(disk: Path, *, is_there: bool) -> Callable[[], Disk]:
    """Make the directory of the store if it has to be there, and return what makes a model of this disk."""
    if is_there:
        (disk / "store").mkdir()
    there = {"store": (disk / "store").stat().st_ino} if is_there else {}
    return partial(Disk, str(disk), disk.stat().st_ino, there)


def check_complete(model: Disk, records: Iterable[Record], disk: Path, replayed: Path) -> None:
    """Check that the recording misses nothing: replayed without a cut, it gives the files that are there."""
    for call in records:
        model.apply(call)
    assert not model.is_mapped("data.mdb"), "data.mdb is mapped for writing, which the recorder cannot see"
    model.flush()
    replayed.mkdir()
    model.build(Random(0), replayed)
    found, wanted = ({path.relative_to(top): path for path in top.rglob("*")} for top in (replayed, disk))
    assert found.keys() == wanted.keys(), f"names differ: {sorted(found.keys() ^ wanted.keys())}"
    for name, path in wanted.items():
        is_compared = path.is_file() and not model.is_mapped(name.name)
        assert not is_compared or found[name].read_bytes() == path.read_bytes(), f"{name} is not what was recorded"


def _split(records: Iterable[Record], notes_inode: int) -> tuple[list[Record], list[Acknowledged]]:
    """Return the calls that concern the disk, and after each number of them what was acknowledged."""
    kept: list[Record] = []
    acknowledged = [Acknowledged()]
    for record in records:
        if record.inode == notes_inode and record.kind is Kind.WRITE:
            notes = [json.loads(line) for line in record.payload.splitlines()]
            seq = max(acknowledged[-1].seq, *(note["seq"] for note in notes))
            beside = acknowledged[-1].beside.union(*(note["beside"] for note in notes))
            erased = acknowledged[-1].erased.union(*(note["erased"] for note in notes))
            acknowledged[-1] = Acknowledged(seq, beside, erased)
        else:
            kept.append(record)
            acknowledged.append(acknowledged[-1])
    return kept, acknowledged


def _originals(notes: Path) -> dict[int, bytes]:
    """Return by seq what the events said that were there before something was erased."""
    told: dict[int, bytes] = {}
    for line in notes.read_text().splitlines():
        for seq, encoded in json.loads(line).get("originals", {}).items():
            told[int(seq)] = b64decode(encoded)
    return told


def _expected(path: Path, export: Path, originals: dict[int, bytes]) -> Expected:
    with Memory(path, readonly=True) as memory:
        events = list(memory.events())
        memory.export(export)
    with export.open(encoding="utf-8") as lines:
        commands = [json.loads(line)["command"] for line in list(lines)[1:-1]]
    assert len(commands) == len(events), (len(commands), len(events))
    pairs = zip(commands, [*commands[1:], 0], strict=True)
    ends = [seq for seq, (command, following) in enumerate(pairs, 1) if command != following]
    return Expected(events, frozenset([0, *ends]), originals)


def _check_notes(path: Path, expected: Expected) -> None:
    """Check that the log in the end holds every message that was acknowledged, at its seq."""
    for line in path.read_text().splitlines():
        note = json.loads(line)
        assert note["seq"] <= len(expected.events), f"seq {note['seq']} was acknowledged and is not in the log"
        for seq, content in note["messages"]:
            event, stamp = expected.events[seq - 1]
            assert stamp.erased or event.content == content, f"seq {seq} is not the acknowledged message"
        for seq in note["erased"]:
            assert expected.events[seq - 1].stamp.erased, f"seq {seq} was erased, as was acknowledged, and is there"
