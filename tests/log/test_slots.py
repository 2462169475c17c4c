"""Slots: the last commit comes back where a loss of power took the page that names it, and nothing else does."""

import errno
import os
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lmdb
import pytest

from refold import Memory, StoreCorrupt, StoreFull
from refold.log import environment, lmdb_log, slots
from tests.support.memories import assert_sound

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def metas(path: Path) -> bytes:
    """The two pages that name commits."""
    return (path / "data.mdb").read_bytes()[: 2 * PAGE_BYTES]


def left(path: Path, into: Path) -> Path:
    """A copy of a store's files as they are at this moment."""
    into.mkdir()
    for file in path.iterdir():
        (into / file.name).write_bytes(file.read_bytes())
    return into


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """A store whose last commit, of the second message, is in its slot alone."""
    path = tmp_path / "store"
    with Memory(path) as memory:
        chat = memory.conversation("c")
        chat.append("user", "one")
        before = metas(path)
        chat.append("user", "two")
        copy = left(path, tmp_path / "lost")
    with (copy / "data.mdb").open("r+b") as file:
        file.write(before)  # What a loss of power may leave of the page that names the last commit.
    start_system_anew(copy)
    return copy


def start_system_anew(path: Path) -> None:
    with (path / "turn.lock").open("r+b") as file:
        file.seek(16)
        file.write(b"of another start")


def places(path: Path) -> tuple[int, int]:
    """Where the slots of a file are."""
    with lmdb.open(str(path), readonly=True, lock=False, max_dbs=16) as env:
        database = env.open_db(b"slots", create=False)
        with (
            env.begin() as txn,
            closing(slots.Slots(str(path / "data.mdb"), txn, database, readonly=True)) as held,
        ):
            return held.places


def said(memory: Memory) -> list[str]:
    return [str(message.content) for message in memory.conversation("c").window()]


@pytest.mark.parametrize("readonly", [False, True])
def test_who_opens_the_store_finds_the_last_commit(lost: Path, *, readonly: bool) -> None:
    for _ in range(2):
        with Memory(lost, readonly=readonly) as memory:
            assert said(memory) == ["one", "two"]
            assert_sound(memory)
    with Memory(lost) as memory:
        memory.conversation("c").append("user", "three")
        assert said(memory) == ["one", "two", "three"]
        assert_sound(memory)


def test_a_reader_waits_for_nobody_who_is_about_to_name_a_commit(lost: Path) -> None:
    """A slot that is one commit ahead may be that of a writer at work, or stopped there."""
    with (lost / "turn.lock").open("r+b") as lock:
        lines = (
            "import fcntl, sys",
            "fcntl.lockf(file := open(sys.argv[1], 'r+b'), fcntl.LOCK_EX)",
            "print(flush=True)",
        )
        program = "; ".join((*lines, "input()"))
        with subprocess.Popen(
            [sys.executable, "-c", program, lock.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline()
            with Memory(lost, readonly=True) as memory:
                assert said(memory) == ["one"]
            other.communicate("\n")
    with Memory(lost, readonly=True) as memory:
        assert said(memory) == ["one", "two"]


def test_what_a_killed_writer_left_is_no_commit(lost: Path) -> None:
    """Others may have seen since that there is none: it stays so, after the next start of the system, too."""
    with Memory(lost) as memory:
        chat = memory.conversation("c")
        chat.append("user", "three")
        before = metas(lost)
        chat.append("user", "four")
        killed = left(lost, lost.parent / "killed")
    with (killed / "data.mdb").open("r+b") as file:
        file.write(before)
    for _ in range(2):
        for readonly in (True, False):
            with Memory(killed, readonly=readonly) as memory:
                assert said(memory) == ["one", "two", "three"]
                assert_sound(memory)
        start_system_anew(killed)


@pytest.mark.parametrize("place", [0, 20, 40])
def test_a_torn_slot_counts_for_nothing(lost: Path, place: int) -> None:
    begins = places(lost)
    with (lost / "data.mdb").open("r+b") as file:
        for begin in begins:
            file.seek(begin + place)
            byte = file.read(1)
            file.seek(begin + place)
            file.write(bytes([byte[0] ^ 1]))
    with Memory(lost) as memory:
        assert said(memory) == ["one"]
        assert_sound(memory)


def test_a_commit_without_room_in_a_slot_is_flushed_twice(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("c")
        with patch.object(environment.Environment, "flush_commit", autospec=True) as flush:
            chat.append("user", "short")
            counts = [flush.call_count]
            chat.append("user", "long " * slots.SLOT_BYTES)
            counts.append(flush.call_count)
        assert counts == [0, 1]
        assert_sound(memory)


class Full(lmdb.DiskError):
    """What LMDB raises where the disk is full."""

    code = errno.ENOSPC  # type: ignore[misc]


def test_a_commit_that_failed_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    with Memory(path) as memory:
        chat = memory.conversation("c")
        chat.append("user", "one")

        def fails(call: Any) -> Any:
            if isinstance(call, partial):
                return call()
            del call  # It holds the transaction, which lives as long as the traceback would.
            raise Full("at the commit")

        with monkeypatch.context() as patched:
            patched.setattr(lmdb_log, "_call", fails)
            with pytest.raises(StoreFull):
                chat.append("user", "two")
        copy = left(path, tmp_path / "copy")
        chat.append("user", "three")
        assert said(memory) == ["one", "three"]
    with Memory(copy) as memory:
        assert said(memory) == ["one"]


def test_an_erased_text_is_in_no_slot(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Memory(path) as memory:
        message = memory.conversation("c").append("user", "a secret that is to be erased")
        assert (path / "data.mdb").read_bytes().count(b"a secret that is to be erased") >= 2
        memory.erase([message])
        assert b"a secret that is to be erased" not in (path / "data.mdb").read_bytes()
        memory.conversation("c").append("user", "another one")
        assert_sound(memory)


def test_a_file_without_its_slots_is_refused(lost: Path) -> None:
    begin = places(lost)[0]
    with (lost / "data.mdb").open("r+b") as file:
        file.seek(begin - 4_096 + 16)
        file.write(bytes(16))
    with pytest.raises(StoreCorrupt, match="slots"):
        Memory(lost)
