"""The power-loss rig finds nothing in refold, finds the builds that are broken, and models what it says it models."""

import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.rigs.power import trace
from tests.rigs.power.disk import SECTOR_BYTES, Disk, File, remains, tear
from tests.rigs.power.recording import check_complete
from tests.rigs.power.trace import Kind, Record
from tests.rigs.power.workloads import WORKLOADS
from tests.support.paths import ROOT
from tests.support.sizes import sizes

TOP, STORE, DATA = 1, 2, 3
SEED = 1
ERASING = {"erasing", "erasing_delayed"}
"""Workloads whose states take longer to judge: the file is swept anew, and searched."""

needs_recorder = pytest.mark.skipif(bool(trace.missing()), reason=trace.missing() or "the recorder can be built")


class Summary(NamedTuple):
    states: int
    violations: int
    output: str


def run_rig(states: int, seed: int, *options: str) -> Summary:
    """Runs the rig in a process of its own, because it forks, and a process with threads must not."""
    command = [sys.executable, "-m", "tests.rigs.power", "--states", str(states), "--seed", str(seed), "--jobs", "2"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout)
    last = re.search(r"^all: states (\d+), violations (\d+)$", done.stdout, re.MULTILINE)
    assert last, done.stdout + done.stderr
    assert done.returncode == (1 if int(last[2]) else 0), done.stdout + done.stderr
    return Summary(int(last[1]), int(last[2]), done.stdout)


@needs_recorder
@sizes("states", quick=10, slow=100, soak=5_000)
@pytest.mark.parametrize("workloads", [sorted(WORKLOADS.keys() - ERASING), sorted(ERASING)], ids=["plain", "erasing"])
def test_cuts_lose_nothing(states: int, workloads: list[str]) -> None:
    if states < 100:
        workloads = workloads[:2]
    states = states // 3 if ERASING.issuperset(workloads) else states
    summary = run_rig(states, SEED + states, *(option for workload in workloads for option in ("--workload", workload)))
    assert (summary.states, summary.violations) == (states * len(workloads), 0), summary.output


SEEN_IN = [
    *product(["no_sync", "no_meta_sync", "early_acknowledgement"], ["durable", "creation", "threads"]),
    ("no_directory_flush", "creation"),
    ("no_copy_flush", "backup"),
]
ERASURES_SEEN_AS = {
    "no_swap_flush": "were acknowledged and are missing",
    "forgotten_sweep": "before it was erased stands in data.mdb",
    "late_erasure": "was acknowledged, and the event is there",
}
WITNESSES_SEEN_AS = {"witness_ahead": "the log ends at seq", "unflushed_witness": "neither of its slots is whole"}


@needs_recorder
@pytest.mark.slow
@pytest.mark.parametrize(("build", "workload"), SEEN_IN)
def test_a_broken_build_is_found(build: str, workload: str) -> None:
    summary = run_rig(120, SEED, "--workload", workload, "--build", build)
    assert summary.states == 120
    assert summary.violations >= 8, summary.output
    assert "acknowledged" in summary.output


@needs_recorder
@pytest.mark.slow
@pytest.mark.parametrize(("build", "words"), ERASURES_SEEN_AS.items())
def test_an_erasure_that_is_broken_is_found(build: str, words: str) -> None:
    summary = run_rig(60, SEED, "--workload", "erasing", "--build", build)
    assert summary.violations >= 3, summary.output
    assert words in summary.output


@needs_recorder
@pytest.mark.slow
@pytest.mark.parametrize(("build", "words"), WITNESSES_SEEN_AS.items())
def test_a_witness_that_is_broken_is_found(build: str, words: str) -> None:
    """A witness has a thread of its own: whether it gets its turn in between differs from recording to recording."""
    for seed in range(SEED, SEED + 10):
        summary = run_rig(250, seed, "--workload", "witness", "--build", build)
        if summary.violations >= 2 and words in summary.output:
            return
    pytest.fail(f"ten recordings of {build} held nothing that says {words!r}")


@needs_recorder
@pytest.mark.slow
def test_a_state_can_be_built_again() -> None:
    broken = ["--workload", "creation", "--build", "no_meta_sync"]
    first = next(line for line in run_rig(80, SEED, *broken).output.splitlines() if line.startswith("python -m"))
    number = re.search(r"--first (\d+) ", first)
    assert number
    assert first in run_rig(1, SEED, *broken, "--first", number[1]).output.splitlines()


EVERY_CALL = """
import os, sys
os.chdir(sys.argv[1])
os.mkdir("a"), os.mkdir("gone")
file = os.open("a/x", os.O_CREAT | os.O_RDWR)
os.write(file, b"one"), os.writev(file, [b"two", b"three"])
os.pwrite(file, b"ONE", 700), os.pwritev(file, [b"4" * 600, b"5" * 5], 900)
os.fsync(file), os.ftruncate(file, 1400), os.posix_fallocate(file, 0, 1600)
os.close(file), os.truncate("a/x", 1500)
with open("a/log", "ab") as log: log.write(b"appended")
with open("a/log", "ab") as log: log.write(b"more")
with open("short", "wb") as file: file.write(b"long")
with open("short", "wb") as file: file.write(b"s")
synced = os.open("synced", os.O_CREAT | os.O_WRONLY | os.O_DSYNC)
os.write(synced, b"synced")
os.link("synced", "a/linked"), os.unlink("synced"), os.rmdir("gone"), os.rename("a", "b")
directory = os.open("b", os.O_RDONLY)
os.rename("log", "moved", src_dir_fd=directory, dst_dir_fd=directory), os.mkdir("in", dir_fd=directory)
os.unlink("../short", dir_fd=directory) if len(sys.argv) > 2 else os.fdatasync(directory)
"""


@needs_recorder
def test_the_recorder_misses_no_call(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    library = trace.build(tmp_path)
    trace.run(library, [sys.executable, "-c", EVERY_CALL, str(disk)], disk, tmp_path / "trace", {})
    records = list(trace.read(tmp_path / "trace"))
    kinds = set(Kind) - {Kind.MAP, Kind.FLUSH_RANGE}
    assert {record.kind for record in records} == kinds
    assert [record.payload for record in records if record.durable] == [b"synced"]
    assert [bool(record.inode) for record in records if record.kind is Kind.FLUSH] == [True, True]
    check_complete(Disk(str(disk), disk.stat().st_ino), records, disk, tmp_path / "replayed")


@needs_recorder
def test_a_recording_with_a_hole_is_refused(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    library = trace.build(tmp_path)
    trace.run(library, [sys.executable, "-c", EVERY_CALL, str(disk)], disk, tmp_path / "trace", {})
    records = [record for record in trace.read(tmp_path / "trace") if record.payload != b"more"]
    with pytest.raises(AssertionError, match="moved is not what was recorded"):
        check_complete(Disk(str(disk), disk.stat().st_ino), records, disk, tmp_path / "replayed")


def call(kind: Kind, inode: int = 0, path: str = "", **more: object) -> Record:
    fields: dict[str, object] = {"durable": False, "offset": 0, "other": "", "payload": b"", **more}
    return Record(kind=kind, inode=inode, path=path, **fields)  # type: ignore[arg-type]


def outcomes(disk: Disk, tmp_path: Path) -> set[str]:
    """What of a disk many cuts leave: its files, with their contents."""
    found = set()
    for chance in range(200):
        into = tmp_path / str(chance)
        into.mkdir(parents=True)
        disk.build(Random(chance), into)
        files = sorted(path for path in into.rglob("*") if path.is_file())
        found.add(" ".join(f"{path.relative_to(into)}={path.read_text()}" for path in files))
    return found


def disk_with_file() -> Disk:
    disk = Disk("/disk", TOP)
    disk.apply(call(Kind.CREATE, DATA, "/disk/data"))
    return disk


def test_a_name_is_durable_once_its_directory_is_flushed(tmp_path: Path) -> None:
    disk = disk_with_file()
    disk.apply(call(Kind.FLUSH, DATA))
    assert outcomes(disk, tmp_path / "before") == {"", "data="}
    disk.apply(call(Kind.FLUSH, TOP))
    assert outcomes(disk, tmp_path / "after") == {"data="}


def test_a_rename_happens_whole_or_not_at_all(tmp_path: Path) -> None:
    disk = Disk("/disk", TOP)
    disk.apply(call(Kind.MAKE_DIRECTORY, STORE, "/disk/new"))
    disk.apply(call(Kind.CREATE, DATA, "/disk/new/data"))
    disk.apply(call(Kind.FLUSH, STORE))
    disk.apply(call(Kind.FLUSH, TOP))
    disk.apply(call(Kind.RENAME, 0, "/disk/new", other="/disk/store"))
    assert outcomes(disk, tmp_path / "before") == {"new/data=", "store/data="}
    disk.apply(call(Kind.FLUSH, TOP))
    assert outcomes(disk, tmp_path / "after") == {"store/data="}


def test_what_was_written_before_a_flush_is_there_and_what_came_after_may_be(tmp_path: Path) -> None:
    disk = disk_with_file()
    disk.apply(call(Kind.WRITE, DATA, payload=b"aa"))
    disk.apply(call(Kind.FLUSH, TOP))
    disk.apply(call(Kind.FLUSH, DATA))
    disk.apply(call(Kind.WRITE, DATA, offset=1, payload=b"b"))
    assert outcomes(disk, tmp_path) == {"data=aa", "data=ab"}


def test_a_durable_write_is_durable_alone(tmp_path: Path) -> None:
    disk = disk_with_file()
    disk.apply(call(Kind.FLUSH, TOP))
    disk.apply(call(Kind.WRITE, DATA, offset=SECTOR_BYTES, payload=b"first"))
    durable = call(Kind.WRITE, DATA, payload=b"x" * SECTOR_BYTES, durable=True)
    with disk.interrupted(durable):
        under_way = outcomes(disk, tmp_path / "before")
    assert {"data=", "data=" + "x" * SECTOR_BYTES + "first"} < under_way
    disk.apply(durable)
    left = outcomes(disk, tmp_path / "after")
    assert {text.rstrip("\0") for text in left} == {"data=" + "x" * SECTOR_BYTES + rest for rest in ("", "first")}


def test_each_sector_holds_the_last_write_that_reached_it() -> None:
    image = bytearray(b"." * 3 * SECTOR_BYTES)
    writes = [(0, b"a" * 2 * SECTOR_BYTES), (SECTOR_BYTES - 1, b"b" * (SECTOR_BYTES + 2))]
    tear(image, writes, lambda write, sector: (write, sector) in {(0, 0), (1, 1)})
    first, second, third = (bytes(image[at : at + SECTOR_BYTES]) for at in range(0, 3 * SECTOR_BYTES, SECTOR_BYTES))
    assert (first, second, third) == (b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES, b"." * SECTOR_BYTES)
    tear(image, writes, lambda write, _sector: write == 1)
    assert image[:SECTOR_BYTES] == b"a" * (SECTOR_BYTES - 1) + b"b"


def test_lengths_come_in_order() -> None:
    file = File(bytearray(b"durable"), [0, (0, b"new"), 5])
    left = {remains(Random(chance), file) for chance in range(200)}
    assert {b"durable", b"", b"new", b"new\0\0"} <= left
    assert b"durable\0" not in left
    file.flush()
    assert remains(Random(0), file) == b"new\0\0"


def test_a_mapped_file_is_left_with_zeros_or_noise() -> None:
    file = File(bytearray(b"hint"), [], is_mapped=True)
    left = {remains(Random(chance), file) for chance in range(50)}
    assert {b"", bytes(4)} < left
    assert b"hint" not in left
