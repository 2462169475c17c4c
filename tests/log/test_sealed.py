"""Reading a store without the permission to write to any of its files: everything is found, and no writer is near."""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from refold import Memory, StoreBusy, StoreError

# Root reads and writes whatever the permissions say, until it drops two capabilities and begins another program.
_OBEY = """
import ctypes, os, sys
if os.getuid() == 0:
    for capability in (1, 2):
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

_LOOK = """
import sys
from refold import Memory, RefoldError
try:
    open(sys.argv[1] + "/data.mdb", "r+")
    sys.exit("this process may write")
except PermissionError:
    pass
try:
    with Memory(sys.argv[1], readonly=True) as memory:
        print(memory.conversation("a").window()[-1].content, flush=True)
        print(memory.project().search("which port?")[0].entry.content, memory.verify().ok, memory.head, flush=True)
        print([message.content for message in memory.at(2).conversation("a").window()], flush=True)
        memory.backup(sys.argv[2]) if sys.argv[2:] else None
        sys.stdin.read()
except RefoldError as error:
    print(type(error).__name__, error)
"""
_SEEN = "the last one\nThe port is 5432. True 4\n['the first one']\n"


def look(path: Path, *arguments: Path, code: str = _LOOK) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", _OBEY, "-c", code, str(path), *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)


@contextmanager
def sealed(path: Path, mode: int = 0o444) -> Iterator[None]:
    """Take the permission to write from a directory and its files."""
    for file in path.iterdir():
        file.chmod(mode)
    path.chmod(0o555)
    try:
        yield
    finally:
        path.chmod(0o755)
        for file in path.iterdir():
            file.chmod(0o644)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    if not hasattr(ctypes.CDLL(None), "prctl") and os.getuid() == 0:
        pytest.skip("root cannot give up its rights here")
    path = tmp_path / "agent.refold"
    with Memory(path) as memory:
        chat = memory.conversation("a")
        chat.append("user", "the first one")
        chat.append("user", "the last one")
        memory.project().add("The port is 5432.")
    return path


def test_everything_is_read_without_permission_to_write(store: Path, tmp_path: Path) -> None:
    files = {file.name: file.read_bytes() for file in store.iterdir()}
    with sealed(store):
        assert look(store, tmp_path / "copy").communicate()[0] == _SEEN
    assert {file.name: file.read_bytes() for file in store.iterdir()} == files
    with Memory(tmp_path / "copy") as copy:
        assert copy.head == 4


def test_a_store_on_a_disk_that_is_mounted_to_be_read_only_is_read(store: Path, tmp_path: Path) -> None:
    """Root too gets a refusal there, and of another kind than for the lack of a permission."""
    (disk := tmp_path / "disk").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", str(disk)], capture_output=True, check=False).returncode:
        pytest.skip("a disk can only be mounted by root")
    try:
        shutil.copytree(store, disk / "store")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        code = _LOOK.replace("PermissionError", "OSError")
        assert look(disk / "store", tmp_path / "copy", code=code).communicate()[0] == _SEEN
        with pytest.raises(StoreError, match="readonly=True"):
            Memory(disk / "store")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    with Memory(tmp_path / "copy") as copy:
        assert copy.head == 4


def test_a_store_of_the_data_file_alone_is_read(store: Path) -> None:
    for file in store.iterdir():
        if file.name != "data.mdb":
            file.unlink()
    with sealed(store):
        assert look(store).communicate()[0] == _SEEN
    assert [file.name for file in store.iterdir()] == ["data.mdb"]


@pytest.mark.parametrize("durability", ["durable", "delayed"])
def test_a_reader_that_may_not_write_and_a_writer_keep_each_other_out(store: Path, durability: str) -> None:
    with Memory(store, durability=durability) as memory:
        with sealed(store):
            said = look(store).communicate()[0]
        assert said.startswith(f"StoreBusy a process writes to the store at {store}, and this one may write to none of")
        memory.conversation("b").append("user", "on it goes")
    with sealed(store):
        first, second = look(store), look(store)
        assert first.stdout is not None
        assert second.stdout is not None
        assert first.stdout.readline() == second.stdout.readline() == "the last one\n"
    with pytest.raises(StoreBusy, match="keeps writers out; close it there, or give it permission"):
        Memory(store, durability=durability)
    first.communicate()
    with pytest.raises(StoreBusy, match="keeps writers out"):
        Memory(store, durability=durability)
    second.communicate()
    with Memory(store, durability=durability) as memory:
        memory.conversation("b").append("user", "and on")


def test_readers_of_a_process_share_what_is_open(store: Path) -> None:
    with sealed(store):
        code = _LOOK.replace("    with Memory", "    other = Memory(sys.argv[1], readonly=True)\n    with Memory", 1)
        assert look(store, code=code).communicate()[0] == _SEEN


def test_a_store_that_may_not_be_read_says_so(store: Path) -> None:
    with sealed(store, 0o000):
        said = look(store).communicate()[0]
    assert said.startswith("StoreError ")
    assert "Permission denied" in said
