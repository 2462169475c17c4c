"""A store grows by itself, in all processes; where it cannot, that is a typed error, and reads go on."""

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import lmdb
import pytest

from refold import StoreFull
from refold.log import lmdb_file
from refold.log.directory import directory_at
from refold.log.lmdb_log import LmdbLog
from refold.log.protocol import LogTurn, TurnLost, write
from tests.log.test_conformance import command, fill, one_write
from tests.support.memories import Child, erase
from tests.support.records import arrays_at, arrays_in, sealed

MIB: Final = 1024**2
SMALL_BYTES: Final = 8 * MIB

COMMON = """
import os, resource, sys
import refold.log.lmdb_file as mapping
from refold import RefoldError
from refold.log.directory import directory_at
from refold.log.lmdb_log import LmdbLog
from refold.log.record import Record
from tests.support.records import sealed

def opened(path):
    return LmdbLog(directory_at(path, readonly=False, seed={}))

def append(log, size):
    def write(turn):
        seq = log.head() + 1
        turn.write(sealed(seq, [bytes(size)]))
        return seq
    return log.in_turn(write)

def limit(kind, soft):
    resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))

def leave(more_bytes):
    pages = int(open("/proc/self/statm").read().split()[0])
    limit(resource.RLIMIT_AS, pages * resource.getpagesize() + more_bytes)

def answer(call):
    try:
        print(call(), flush=True)
    except RefoldError as error:
        print(type(error).__name__, error, flush=True)
"""

OBEDIENT = (
    COMMON
    + """
mapping.MAP_BYTES = int(sys.argv[2]) or mapping.MAP_BYTES
log = None
def start():
    global log
    log = opened(sys.argv[1])
    return "open"
answer(start)
VERBS = {
    "append": lambda size: append(log, int(size)),
    "read": lambda: (log.head(), log.last_commit()),
    "free": lambda: limit(resource.RLIMIT_AS, resource.RLIM_INFINITY),
    "leave": lambda size: leave(int(size)),
}
for line in sys.stdin:
    verb, *words = line.split()
    answer(lambda: VERBS[verb](*words))
"""
)

FILLING = (
    COMMON
    + """
kind = getattr(resource, sys.argv[2])
leave(200 << 20) if kind == resource.RLIMIT_AS else limit(kind, 2 << 20)
log = opened(sys.argv[1])
append(log, 10)
def fill():
    for _ in range(300):
        append(log, int(sys.argv[3]))
answer(fill)
written = log.head()
for _ in range(3):
    answer(lambda: append(log, int(sys.argv[3])))
found = sum(Record(record).count for seq in range(1, written + 1) for _, record in log.read(seq - 1, seq))
print(log.head() == written, found == written, len(log.events_at([written])[0].array))
limit(kind, resource.RLIM_INFINITY)
answer(lambda: append(log, int(sys.argv[3])) == written + 1)
log.close()
"""
)

needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc tells what is mapped")


def opened(path: Path, *, readonly: bool = False) -> LmdbLog:
    return LmdbLog(directory_at(str(path), readonly=readonly, seed={}))


def append(log: LmdbLog, size: int) -> None:
    @log.in_turn
    def _(turn: LogTurn) -> None:
        seq = log.head() + 1
        turn.write(sealed(seq, [bytes([seq % 256]) * size]))


def append_all(log: LmdbLog, size: int, count: int) -> None:
    for _ in range(count):
        append(log, size)


def sizes(log: LmdbLog) -> list[int]:
    """The sizes of all events."""
    return [len(array) for array in arrays_in(log.read(0, log.head()))]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LmdbLog]:
    """A log whose map is full after a few megabytes."""
    monkeypatch.setattr(lmdb_file, "MAP_BYTES", SMALL_BYTES)
    log = opened(tmp_path / "store")
    assert log.durability.map_bytes == SMALL_BYTES
    yield log
    log.close()


class TestTheMap:
    @pytest.mark.slow
    def test_grows_while_others_read(self, small: LmdbLog, tmp_path: Path) -> None:
        size = 256 * 1024
        reader = opened(tmp_path / "store", readonly=True)
        fill(small, [1])
        is_done = threading.Event()
        wrong: list[object] = []
        rounds = [0, 0]

        def look(place: int, log: LmdbLog) -> None:
            try:
                while not is_done.is_set():
                    head = log.head()
                    events = arrays_in(log.read(max(head - 21, 1), head + 80))
                    if any(event != event[:1] * size for event in events) or len(events) < min(head - 1, 20):
                        wrong.append((head, len(events)))
                    log.last_commit()
                    rounds[place] += 1
            except BaseException as error:
                wrong.append(error)
                raise

        threads = [threading.Thread(target=look, args=(place, log)) for place, log in enumerate((small, reader))]
        for thread in threads:
            thread.start()
        for _ in range(300):
            append(small, size)
        is_done.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert min(rounds) > 0
        assert small.durability.map_bytes > 75 * MIB
        assert (small.head(), len(small.read(0, 1_000)), reader.head()) == (301, 301, 301)
        reader.close()

    def test_grows_for_one_write_that_is_larger_than_it(self, small: LmdbLog) -> None:
        number = write(small, sealed(1, [bytes(50 * MIB), b"after"]), [("names", b"n", bytes(30 * MIB))])
        assert sizes(small) == [50 * MIB, 5]
        assert small.last_commit() == number

    @pytest.mark.parametrize("way", ["write", "erase"])
    def test_grows_for_every_kind_of_write(self, small: LmdbLog, way: str) -> None:
        fill(small, [1])
        if way == "erase":
            erase(small, sealed(1, [bytes(20 * MIB)]), [])
            assert arrays_at(small, [1]) == [bytes(20 * MIB)]
        else:
            write(small, (), [("names", b"n", bytes(20 * MIB))])
            assert small.row("names", b"n") == bytes(20 * MIB)

    def test_grows_for_threads_that_all_write(self, small: LmdbLog) -> None:
        threads = [threading.Thread(target=append_all, args=(small, MIB, 8)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert small.head() == len(small.read(0, 100)) == 32

    def test_of_another_process_is_followed(self, small: LmdbLog, tmp_path: Path) -> None:
        with Child(OBEDIENT, str(tmp_path / "store"), str(SMALL_BYTES)) as child:
            assert child.read() == "open"
            child.write(f"append {20 * MIB}")
            assert child.read() == "1"
            known = small.last_commit()
            child.write(f"append {40 * MIB}")
            assert child.read() == "2"
            assert sizes(small) == [20 * MIB, 40 * MIB]
            child.write(f"append {80 * MIB}")
            assert child.read() == "3"

            @small.in_turn
            def _(turn: LogTurn) -> None:
                assert turn.last_commit == known + 2
                turn.write(sealed(4, [bytes(160 * MIB)]))

            child.write("read")
            assert child.read() == f"(4, {known + 3})"
            child.write("append 5")
            assert child.read() == "5"
            reader = opened(tmp_path / "store", readonly=True)
            assert reader.head() == small.head() == 5
            reader.close()

    def test_that_grows_while_another_process_writes_gives_the_turn_back(
        self, small: LmdbLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Child(OBEDIENT, str(tmp_path / "store"), "0") as child:
            assert child.read() == "open"
            grow = small.durability.grow

            def grow_slowly() -> bool:
                small.durability.turnstile.unlock()  # As if the two did not know of each other.
                small.durability.turnstile.is_held = False
                child.write("append 7")
                assert child.read() == "1"
                return grow()

            with monkeypatch.context() as patch:
                patch.setattr(small.durability, "grow", grow_slowly)
                with pytest.raises(TurnLost, match="nothing was written, call again"):
                    small.in_turn(one_write(sealed(1, [bytes(20 * MIB)])))
            assert arrays_in(small.read(0, 5)) == [bytes(7)]
            known = small.last_commit()

            @small.in_turn
            def _(turn: LogTurn) -> None:
                assert turn.last_commit == known
                turn.write(sealed(2, [bytes(20 * MIB)]))

            assert small.head() == 2

    def test_is_waited_for_by_readers_only_until_they_can_read(self, small: LmdbLog) -> None:
        """Who has his turn may wait for what a reader holds, so the reader may not wait for the turn's end."""
        recovered: list[bool] = []
        error = lmdb.MapResizedError("met before the thread that has its turn made the map larger")

        @small.in_turn
        def _(turn: LogTurn) -> None:
            thread = threading.Thread(target=lambda: recovered.append(small.durability.recover(error)))
            thread.start()
            thread.join()
            turn.write(command(1))

        assert recovered == [True]

    @needs_proc
    def test_that_the_system_does_not_grant_to_follow_is_an_error_until_it_does(self, tmp_path: Path) -> None:
        log = opened(tmp_path / "store")
        with Child(OBEDIENT, str(tmp_path / "store"), str(SMALL_BYTES)) as child:
            assert child.read() == "open"
            child.write(f"leave {8 * MIB}")
            assert child.read() == "None"
            append(log, 64 * MIB)
            for verb in ("read", "append 5"):
                child.write(verb)
                assert child.read().startswith("StoreError"), verb
            child.write("free")
            assert child.read() == "None"
            child.write("read")
            assert child.read() == f"(1, {log.last_commit()})"
            child.write("append 5")
            assert child.read() == "2"
        log.close()

    @needs_proc
    def test_that_the_system_does_not_grant_at_all_is_an_error(self, tmp_path: Path) -> None:
        log = opened(tmp_path / "store")
        append(log, 64 * MIB)
        log.close()
        program = COMMON + "leave(32 << 20)\nanswer(lambda: opened(sys.argv[1]))"
        with Child(program, str(tmp_path / "store")) as child:
            answer = child.read()
        assert answer.startswith("StoreError"), answer
        assert "bytes of address space" in answer
        assert "ulimit -v" in answer


class TestFull:
    @needs_proc
    @pytest.mark.parametrize(
        ("kind", "size", "following"),
        [
            ("RLIMIT_AS", 5 * MIB, "granted no more address space"),
            ("RLIMIT_FSIZE", 10_000, "no space is left"),
            ("RLIMIT_FSIZE", 300_000, "no space is left"),
        ],
    )
    def test_is_an_error_that_loses_nothing_and_passes(
        self, tmp_path: Path, kind: str, size: int, following: str
    ) -> None:
        with Child(FILLING, str(tmp_path / "store"), kind, str(size)) as child:
            for _ in range(4):
                answer = child.read()
                assert answer.startswith("StoreFull"), answer
                assert following in answer
            assert child.read() == f"True True {size}"
            assert child.read() == "True"
        log = opened(tmp_path / "store")
        assert len(log.read(1, 1_000)) == log.head() - 1 > 1
        log.close()

    def test_disk_is_an_error_that_loses_nothing_and_passes(self, tmp_path: Path) -> None:
        disk = tmp_path / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(disk)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("a small disk can only be mounted by root")
        try:
            (disk / "ballast").write_bytes(bytes(MIB))
            log = opened(disk / "store")
            with pytest.raises(StoreFull, match="no space is left; free disk space"):
                append_all(log, 50_000, 100)
            written = log.head()
            assert written > 5
            with pytest.raises(StoreFull):
                opened(disk / "another")
            assert sizes(log) == [50_000] * written
            (disk / "ballast").unlink()
            append(log, 50_000)
            log.close()
            log = opened(disk / "store")
            assert log.head() == len(log.read(0, 100)) == written + 1
            log.close()
        finally:
            subprocess.run(["umount", str(disk)], check=True)


READING = """
import sys, lmdb
env = lmdb.open(sys.argv[1], max_readers=2, max_dbs=16)
held = [env.begin() for _ in range(int(sys.argv[2]))]
print("reading", flush=True)
sys.stdin.readline()
"""


class TestReaders:
    @pytest.fixture
    def few(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LmdbLog]:
        """A log whose table of readers has few places; one of them is its own."""
        monkeypatch.setattr(lmdb_file, "READERS_MAX", 2)
        opened(tmp_path / "store").close()
        (tmp_path / "store" / "lock.mdb").unlink()
        log = opened(tmp_path / "store")
        yield log
        log.close()

    @staticmethod
    def places(log: LmdbLog) -> int:
        return int(log.durability.env.info()["max_readers"])

    def test_full_is_an_error_that_passes(self, few: LmdbLog, tmp_path: Path) -> None:
        write(few, command(1))
        with Child(READING, str(tmp_path / "store"), str(self.places(few) - 1)) as child:
            assert child.read() == "reading"
            assert few.read(0, 1) == command(1), "its own place is kept"
            with Child(OBEDIENT, str(tmp_path / "store"), "0") as third:
                answer = third.read()
            assert answer.startswith("StoreBusy"), answer
            assert "close the store in one and call again" in answer
            write(few, command(2))
        assert few.head() == 2

    def test_killed_give_their_places_back(self, few: LmdbLog, tmp_path: Path) -> None:
        with Child(OBEDIENT, str(tmp_path / "store"), "0") as third:
            assert third.read() == "open"
            with Child(READING, str(tmp_path / "store"), str(self.places(few) - 2)) as child:
                assert child.read() == "reading"
                child.kill()
            held = [few.durability.env.begin()]
            assert few.head() == 0
            del held
