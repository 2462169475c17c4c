"""Many processes take turns at one store: commits are counted, none is hidden, and nobody waits for ever."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold import StoreBusy, StoreCorrupt
from refold.log.directory import directory_at
from refold.log.lmdb_log import LmdbLog
from refold.log.protocol import LogTurn, Row, write
from tests.log.test_conformance import command, fill, one_write
from tests.support.memories import Child
from tests.support.records import arrays_in, sealed

OTHER = """
import sys
from refold.log.directory import directory_at
from refold.log.lmdb_log import LmdbLog
from tests.support.records import sealed
log = LmdbLog(directory_at(sys.argv[1], readonly=False, seed={}))

def append(turn, word):
    return turn.write(sealed(log.head() + 1, [word.encode()]))

print("open", flush=True)
for line in sys.stdin:
    verb, *words = line.split()
    if verb == "append":
        @log.in_turn
        def _(turn):
            print(append(turn, words[0]), flush=True)
    elif verb == "hold":
        @log.in_turn
        def _(turn):
            print("holding", flush=True)
            sys.stdin.readline()
            append(turn, words[0])
        print("wrote", flush=True)
    elif verb == "many":
        for number in range(int(words[1])):
            log.in_turn(lambda turn: append(turn, f"{words[0]}-{number}"))
        print("done", flush=True)
"""


def opened(path: Path, *, readonly: bool = False) -> LmdbLog:
    return LmdbLog(directory_at(str(path), readonly=readonly, seed={}))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LmdbLog]:
    log = opened(tmp_path / "store")
    yield log
    log.close()


@pytest.fixture
def other(log: LmdbLog, tmp_path: Path) -> Iterator[Child]:
    """Another process that writes to the store of ``log``."""
    assert log.head() == 0
    with Child(OTHER, str(tmp_path / "store")) as child:
        assert child.read() == "open"
        yield child


def before(turn: LogTurn) -> int:
    return turn.last_commit


def append_there(other: Child, word: str = "word") -> int:
    """Let the other process append, and return the number of its commit."""
    other.write(f"append {word}")
    return int(other.read())


class TestLastCommit:
    def test_each_side_sees_the_commits_of_the_other(self, log: LmdbLog, other: Child) -> None:
        known = log.last_commit()
        assert append_there(other) == known + 1

        @log.in_turn
        def mine(turn: LogTurn) -> int:
            assert turn.last_commit == known + 1
            return turn.write(sealed(log.head() + 1, [b"mine"]))

        assert mine == log.in_turn(before) == log.last_commit() == known + 2
        assert [append_there(other), append_there(other)] == [known + 3, known + 4]
        assert log.in_turn(before) == log.last_commit() == known + 4
        assert arrays_in(log.read(0, 10)) == [b"word", b"mine", b"word", b"word"]

    def test_a_turn_that_fails_is_no_commit(self, log: LmdbLog, other: Child) -> None:
        known = append_there(other)

        def fail(turn: LogTurn) -> None:
            assert turn.last_commit == known
            raise ZeroDivisionError

        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                log.in_turn(fail)
            with pytest.raises(StoreCorrupt):
                log.in_turn(one_write(sealed(1, [b"in the way"])))
        assert log.in_turn(before) == log.last_commit() == known
        assert append_there(other) == known + 1

    def test_a_number_taken_before_a_commit_is_never_that_of_the_last(self, log: LmdbLog, other: Child) -> None:
        numbers = [log.last_commit()]
        for number in range(5):
            append_there(other)
            numbers.append(log.last_commit())
            if number % 2:
                numbers.append(write(log, (), [("names", b"n", b"%d" % number)]))
        assert numbers == sorted(set(numbers))

    def test_every_kind_of_write_is_a_commit(self, log: LmdbLog) -> None:
        fill(log, [1])
        row: Row = ("names", b"n", b"1")
        known = log.last_commit()
        assert log.in_turn(one_write(command(2))) == known + 1
        assert log.in_turn(one_write([], [row])) == known + 2
        assert log.in_turn(one_write([], [row], sealed(1, [b"erased"]))) == known + 3
        assert log.in_turn(one_write([], [("names", b"n", None)])) == known + 4

    def test_a_transaction_that_changed_nothing_hides_nobody(self, log: LmdbLog, other: Child) -> None:
        """LMDB gives its number to the next transaction, which is the other process's."""
        nothing: tuple[list[Row], ...] = ([], [("names", b"absent", None)])
        for rows in nothing:
            known = log.in_turn(one_write([], rows))
            assert append_there(other) == log.last_commit() == known + 1

    def test_a_reader_in_the_writers_process_sees_it(self, log: LmdbLog, tmp_path: Path) -> None:
        reader = opened(tmp_path / "store", readonly=True)

        @log.in_turn
        def number(turn: LogTurn) -> int:
            return turn.write(command(1))

        assert reader.last_commit() == number
        reader.close()


class TestWaiting:
    def test_a_turn_waits_for_that_of_another_process(self, log: LmdbLog, other: Child) -> None:
        other.write("hold theirs")
        assert other.read() == "holding"
        known = log.last_commit()
        assert log.head() == 0
        entered = threading.Event()

        def take(turn: LogTurn) -> None:
            entered.set()
            assert turn.last_commit == known + 1
            turn.write(sealed(log.head() + 1, [b"mine"]))

        thread = threading.Thread(target=log.in_turn, args=(take,))
        thread.start()
        assert not entered.is_set()
        other.write("go on")
        assert other.read() == "wrote"
        thread.join()
        assert arrays_in(log.read(0, 10)) == [b"theirs", b"mine"]

    def test_a_killed_process_gives_its_turn_back(self, log: LmdbLog, other: Child) -> None:
        other.write("hold never")
        assert other.read() == "holding"
        other.kill()
        fill(log, [1])
        assert arrays_in(log.read(0, 10)) == [b"event 1"]

    def test_a_stopped_process_does_not_stop_readers(self, log: LmdbLog, other: Child) -> None:
        append_there(other)
        other.write("hold theirs")
        assert other.read() == "holding"
        os.kill(other.pid, signal.SIGSTOP)
        assert arrays_in(log.read(0, 10)) == [b"word"]
        os.kill(other.pid, signal.SIGCONT)

    def test_a_handle_opens_while_another_thread_has_its_turn(self, log: LmdbLog, tmp_path: Path) -> None:
        heads: list[int] = []

        def look() -> None:
            reader = opened(tmp_path / "store", readonly=True)
            heads.append(reader.head())
            reader.close()

        @log.in_turn
        def _(turn: LogTurn) -> None:
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
            turn.write(command(1))

        assert heads == [0]

    def test_a_turn_ends_without_a_write_while_others_read_all_the_time(self, log: LmdbLog) -> None:
        """The binding's own abort waits for a moment without readers, which never comes."""
        write(log, sealed(1, [bytes(500_000)] * 40))
        is_done = threading.Event()

        def look() -> None:
            while not is_done.is_set():
                log.read(0, 40)

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            assert log.in_turn(before) == log.last_commit()
            with pytest.raises(StoreCorrupt):
                log.in_turn(one_write(sealed(7, [b"in the way"])))
        is_done.set()
        for thread in threads:
            thread.join()
        assert log.head() == 40

    def test_a_second_writer_is_refused_while_the_first_has_its_turn(self, log: LmdbLog, tmp_path: Path) -> None:
        @log.in_turn
        def _(turn: LogTurn) -> None:
            with pytest.raises(StoreBusy, match="already writes"):
                opened(tmp_path / "store")
            turn.write(command(1))

        assert log.head() == 1


def test_processes_and_threads_interleave_without_a_gap(log: LmdbLog, tmp_path: Path) -> None:
    each = 60

    def append(name: str) -> None:
        for number in range(each):

            @log.in_turn
            def _(turn: LogTurn, number: int = number) -> None:
                turn.write(sealed(log.head() + 1, [f"{name}-{number}".encode()]))

    with Child(OTHER, str(tmp_path / "store")) as one, Child(OTHER, str(tmp_path / "store")) as two:
        assert (one.read(), two.read()) == ("open", "open")
        one.write(f"many one {each}")
        two.write(f"many two {each}")
        threads = [threading.Thread(target=append, args=(name,)) for name in ("three", "four")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (one.read(), two.read()) == ("done", "done")
    names = ("one", "two", "three", "four")
    assert log.head() == each * len(names)
    events = arrays_in(log.read(0, each * len(names)))
    for name in names:
        own = [event for event in events if event.startswith(f"{name}-".encode())]
        assert own == [f"{name}-{number}".encode() for number in range(each)]
