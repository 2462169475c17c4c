"""The witness's file: its bytes, its damage, crashes between any two bytes of a write, and several who write it."""

import errno
import fcntl
import os
import stat
import struct
import threading
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import pytest

from refold import InvalidInput, NotFound, RefoldError, StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreVersion
from refold.log import witness
from refold.log.witness import SLOT, SLOT_BYTES, WitnessSlot
from tests.support.bounds import lowered
from tests.support.memories import Child

ID = bytes(range(16))


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def seen(seq: int) -> WitnessSlot:
    return WitnessSlot(ID, seq, bytes([seq % 256]) * 32)


@pytest.fixture
def path(tmp_path: Path) -> str:
    place = str(tmp_path / "witness")
    assert witness.create(place, seen(1))
    return place


def content_of(path: str) -> bytes:
    return Path(path).read_bytes()


def put(path: str, place: int, content: bytes) -> None:
    with Path(path).open("r+b") as file:
        file.seek(place)
        file.write(content)


def advance(path: str, *seqs: int) -> None:
    for seq in seqs:
        known = witness.read(path)
        assert known is not None
        assert witness.replace(path, known, seen(seq))


class TestBytes:
    def test_a_slot_is_what_the_format_says(self, path: str) -> None:
        front = struct.pack(">8sB7x16sQ32s", b"REFOLDWT", 1, ID, 1, b"\1" * 32)
        slot = (front + blake2b(front, digest_size=32).digest()).ljust(4_096, b"\0")
        assert content_of(path) == slot * 2

    def test_the_slots_take_turns_and_the_file_keeps_its_size_and_place(self, path: str) -> None:
        inode = Path(path).stat().st_ino
        for seq in (2, 3, 4, 5):
            advance(path, seq)
            content = content_of(path)
            slots = [SLOT.unpack_from(content, place)[3] for place in (0, SLOT_BYTES)]
            assert sorted(slots) == [seq - 1, seq]
            assert slots[seq % 2 == 0] == seq
            assert (len(content), Path(path).stat().st_ino) == (2 * SLOT_BYTES, inode)

    def test_only_its_owner_may_read_it(self, path: str) -> None:
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600

    def test_making_it_leaves_nothing_beside_it(self, path: str) -> None:
        assert names(Path(path).parent) == ["witness"]

    def test_one_that_is_there_is_kept(self, path: str) -> None:
        assert not witness.create(path, seen(9))
        assert witness.read(path) == seen(1)
        assert names(Path(path).parent) == ["witness"]

    def test_where_there_is_none_there_is_none(self, tmp_path: Path) -> None:
        assert witness.read(str(tmp_path / "none")) is None
        assert witness.read(str(tmp_path / "none" / "deeper")) is None


class TestDamage:
    def test_a_crash_at_any_byte_of_a_write_leaves_what_was_or_what_is_to_be(self, path: str) -> None:
        advance(path, 2, 3)
        before = content_of(path)
        new = witness.pack_slot(seen(4))
        older = 0 if SLOT.unpack_from(before)[3] == 2 else SLOT_BYTES
        for cut in range(len(new) + 1):
            put(path, 0, before)
            put(path, older, new[:cut])
            expected = seen(4 if cut == len(new) else 3)
            assert witness.read(path) == expected, cut
            assert witness.replace(path, expected, seen(5))
            assert witness.read(path) == seen(5)

    @pytest.mark.parametrize("newer", [False, True])
    def test_every_bit_of_a_slot_counts(self, path: str, newer: bool) -> None:
        advance(path, 2)
        whole = content_of(path)
        begin = SLOT_BYTES if (SLOT.unpack_from(whole)[3] == 1) == newer else 0
        for place in range(SLOT.size):  # The padding too: the checksum covers it.
            put(path, begin + place, bytes([whole[begin + place] ^ 1 << place % 8]))
            assert witness.read(path) == seen(1 if newer else 2), place
            put(path, 0, whole)

    def test_the_next_write_goes_over_the_damaged_slot(self, path: str) -> None:
        advance(path, 2, 3)
        put(path, 0, bytes(SLOT.size))
        known = witness.read(path)
        assert known is not None
        assert witness.replace(path, known, seen(7))
        assert SLOT.unpack_from(content_of(path))[3] == 7

    @pytest.mark.parametrize("size", [0, 1, 50, SLOT.size - 1])
    def test_a_truncated_file_is_damaged_and_stays_as_it_is(self, path: str, size: int) -> None:
        os.truncate(path, size)
        before = content_of(path)
        for call in (lambda: witness.read(path), lambda: witness.replace(path, seen(1), seen(2))):
            with pytest.raises(
                StoreCorrupt, match=r"neither of its slots is whole. Put a copy of it back; if you trust"
            ):
                call()
        assert content_of(path) == before

    def test_of_a_file_that_lost_its_second_slot_the_first_is_read_and_the_next_write_mends_it(self, path: str) -> None:
        os.truncate(path, SLOT_BYTES + 7)
        assert witness.read(path) == seen(1)
        advance(path, 2)
        assert len(content_of(path)) >= SLOT_BYTES + SLOT.size
        assert witness.read(path) == seen(2)

    def test_a_file_that_is_something_else_is_never_written_to(self, tmp_path: Path) -> None:
        notes = tmp_path / "notes.txt"
        notes.write_bytes(b"dear diary " * 1_000)
        with pytest.raises(StoreCorrupt, match="is damaged, or no witness"):
            witness.replace(str(notes), seen(1), seen(2))
        assert notes.read_bytes() == b"dear diary " * 1_000

    def test_a_newer_format_is_refused_with_the_way_out(self, path: str) -> None:
        front = struct.pack(">8sB7x16sQ32s", b"REFOLDWT", 2, ID, 9, b"\1" * 32)
        put(path, SLOT_BYTES, front + blake2b(front, digest_size=32).digest())
        with pytest.raises(StoreVersion, match="is of format 2, and this refold reads up to 1; upgrade refold"):
            witness.read(path)


class TestTheSystem:
    def test_a_directory_and_a_pipe_are_refused(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for name in ("", "pipe"):
            for call in (witness.read, lambda place: witness.replace(place, seen(1), seen(2))):
                with pytest.raises(InvalidInput, match=r"is (not a file|a directory); give the path of a file"):
                    call(str(tmp_path / name))

    def test_a_place_below_a_file_is_told(self, path: str) -> None:
        with pytest.raises(StoreError, match=r"opening the witness .*Not a directory"):
            witness.read(f"{path}/deeper")

    def test_one_that_went_away_is_told_and_not_made_anew(self, path: str) -> None:
        Path(path).unlink()
        with pytest.raises(StoreError, match="is gone; put it back"):
            witness.replace(path, seen(1), seen(2))
        assert not Path(path).exists()

    def test_room_is_a_directory(self, path: str) -> None:
        witness.check_room(path)
        for place in (f"{path}/deeper", f"{path}s/deeper"):
            with pytest.raises(NotFound, match=r"the parent directory .* of the witness does not exist"):
                witness.check_room(place)

    @pytest.mark.parametrize(
        ("number", "kind"),
        [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EFBIG, StoreFull), (errno.EIO, StoreError)],
    )
    @pytest.mark.parametrize("where", ["replace pwrite", "replace _flush", "create pwrite"])
    def test_a_write_that_fails_is_told_and_the_file_says_what_it_said(
        self, path: str, number: int, kind: type[RefoldError], where: str
    ) -> None:
        verb, call = where.split()

        def fail(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        advance(path, 2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(witness if call == "_flush" else os, call, fail)
            with pytest.raises(kind, match=r"the witness .* what was acknowledged is in the store") as raised:
                witness.replace(path, seen(2), seen(3)) if verb == "replace" else witness.create(path + "s", seen(3))
        assert type(raised.value) is kind
        assert names(Path(path).parent) == ["witness"]
        # What was written and not flushed may stand, or not.
        assert witness.read(path) in ((seen(2), seen(3)) if call == "_flush" else (seen(2),))

    def test_a_write_that_is_cut_short_is_a_full_disk(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "pwrite", lambda *_: 7)
        with pytest.raises(StoreFull):
            witness.replace(path, seen(1), seen(2))

    def test_a_limit_on_the_size_of_files_is_told_and_the_process_lives(self, tmp_path: Path) -> None:
        program = (
            "import resource, sys; from refold.log import witness; from refold import StoreFull\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, resource.RLIM_INFINITY))\n"
            "try: witness.create(sys.argv[1], witness.WitnessSlot(bytes(16), 0, bytes(32)))\n"
            "except StoreFull as error: print('full')"
        )
        with Child(program, str(tmp_path / "witness")) as child:
            assert child.read() == "full"
        assert names(tmp_path) == []

    @pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not keep root out; see the next test for a stranger")
    def test_permission_denied_is_told(self, path: str) -> None:
        Path(path).chmod(0o400)
        assert witness.read(path) == seen(1)
        with pytest.raises(StoreError, match="Permission denied"):
            witness.replace(path, seen(1), seen(2))

    def test_permission_denied_is_told_to_a_stranger(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr(os, "open", refuse)
        for call in (lambda: witness.read(path), lambda: witness.replace(path, seen(1), seen(2))):
            with pytest.raises(StoreError, match=r"opening the witness .*Permission denied.*check who owns the file"):
                call()


HOLDER = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""

WRITER = """
import sys
from refold.log import witness
path, step = sys.argv[1], int(sys.argv[2])
print("begun", flush=True)
while True:
    known = witness.read(path)
    new = witness.WitnessSlot(known.store_id, known.seq + step, bytes([(known.seq + step) % 256]) * 32)
    witness.replace(path, known, new)
"""


class Calls:
    """What was asked of the system, in order; each call is made all the same."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        for name in ("pwrite", "fsync", "link"):
            monkeypatch.setattr(os, name, self._noting(name, getattr(os, name)))
        monkeypatch.setattr(witness, "_flush", self._noting("flush", witness._flush))
        monkeypatch.setattr("fcntl.flock", self._noting("flock", fcntl.flock))

    def _noting(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def noting(*arguments: object) -> object:
            self.made.append(name)
            return call(*arguments)

        return noting


def test_one_that_is_made_is_flushed_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    witness.create(str(tmp_path / "witness"), seen(1))
    assert calls.made == ["flock", "pwrite", "fsync", "link", "fsync"]


def test_a_change_is_flushed_before_others_may_write(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    witness.replace(path, seen(1), seen(2))
    assert calls.made == ["flock", "pwrite", "flush", "flock"]


class TestSeveral:
    def test_who_does_not_let_go_is_waited_for_a_while(self, path: str) -> None:
        with Child(HOLDER, path) as child:
            assert child.read() == "held"
            with lowered(WITNESS_WAIT_SECONDS_MAX=0), pytest.raises(StoreBusy, match=r"another process holds the wit"):
                witness.replace(path, seen(1), seen(2))
            assert witness.read(path) == seen(1)
            child.kill()
        advance(path, 2)

    def test_who_lets_go_is_waited_for(self, path: str) -> None:
        with Child(HOLDER, path) as child:
            assert child.read() == "held"
            thread = threading.Thread(target=child.write, args=("go",))
            thread.start()
            advance(path, 2)
            thread.join()

    def test_a_lock_is_given_back_although_a_child_forked_with_the_file_open(
        self, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        copies: list[int] = []
        flush: Callable[[int], None] = witness._flush

        def fork_meanwhile(file: int) -> None:
            copies.append(os.dup(file))
            flush(file)

        monkeypatch.setattr(witness, "_flush", fork_meanwhile)
        advance(path, 2)
        with lowered(WITNESS_WAIT_SECONDS_MAX=0):
            advance(path, 3)
        for copy in copies:
            os.close(copy)

    def test_who_does_not_know_what_it_says_does_not_write(self, path: str) -> None:
        advance(path, 5)
        assert not witness.replace(path, seen(1), seen(3))
        assert witness.read(path) == seen(5)

    def test_of_two_who_make_it_one_does(self, tmp_path: Path) -> None:
        place = str(tmp_path / "witness")
        made: list[bool] = []
        barrier = threading.Barrier(4)

        def make(seq: int) -> None:
            barrier.wait()
            made.append(witness.create(place, seen(seq)))

        threads = [threading.Thread(target=make, args=(seq,)) for seq in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(made) == [False, False, False, True]
        assert witness.read(place) in [seen(seq) for seq in range(4)]

    def test_it_never_goes_back_while_several_write_and_are_killed(self, path: str) -> None:
        last = 0
        for round_ in range(4):
            with Child(WRITER, path, "1") as one, Child(WRITER, path, "3") as other:
                assert one.read() == other.read() == "begun"
                until = last + 12
                while last < until:
                    known = witness.read(path)
                    assert known == seen(known.seq if known else -1)
                    assert known.seq >= last
                    last = known.seq
                (one if round_ % 2 else other).kill()
            known = witness.read(path)
            assert known is not None
            assert known.seq >= last


def test_nothing_of_lmdb_is_loaded() -> None:
    program = "import sys, refold.log.witness; print('lmdb' in sys.modules)"
    with Child(program) as child:
        assert child.read() == "False"
