"""Many processes take turns at one store: who moved it is told, nobody is hidden, and nobody waits for ever."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold import StoreBusy, StoreCorrupt
from refold.log.directory import directory_at
from refold.log.lmdb_log import LmdbLog
from refold.log.protocol import LogTurn, Row
from tests.log.test_conformance import command, fill, one_write
from tests.support.memories import Child, erase
from tests.support.records import arrays_in, sealed

OTHER = """
import sys
from refold.log.directory import directory_at
from refold.log.lmdb_log import LmdbLog
from tests.support.records import sealed
log = LmdbLog(directory_at(sys.argv[1], readonly=False, seed={}))

def append(turn, word):
    seq = log.head() + 1
    turn.write(sealed(seq, [word.encode()]))

print("open", flush=True)
for line in sys.stdin:
    verb, *words = line.split()
    if verb == "append":
        @log.in_turn
        def _(turn):
            append(turn, words[0])
            print(turn.moved, flush=True)
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
    assert not log.changed()
    with Child(OTHER, str(tmp_path / "store")) as child:
        assert child.read() == "open"
        yield child


def is_moved(turn: LogTurn) -> bool:
    return turn.moved


def append_there(other: Child, word: str = "word") -> bool:
    other.write(f"append {word}")
    moved = other.read()
    assert moved in {"True", "False"}
    return moved == "True"


class TestMoved:
    def test_each_side_is_told_once_of_the_other(self, log: LmdbLog, other: Child) -> None:
        assert not append_there(other)

        @log.in_turn
        def _(turn: LogTurn) -> None:
            assert turn.moved
            turn.write(sealed(log.head() + 1, [b"mine"]))

        assert not log.in_turn(is_moved)
        assert append_there(other)
        assert not append_there(other)
        assert arrays_in(log.read(0, 10)) == [b"word", b"mine", b"word", b"word"]

    def test_a_turn_that_has_caught_up_is_not_told_again(self, log: LmdbLog, other: Child) -> None:
        append_there(other)

        @log.in_turn
        def _(turn: LogTurn) -> None:
            assert turn.moved
            log.saw(log.mark())

        assert not log.changed()
        assert not log.in_turn(is_moved)

    def test_a_turn_that_ended_without_catching_up_is_told_again(self, log: LmdbLog, other: Child) -> None:
        append_there(other)
        assert log.in_turn(is_moved)
        assert log.changed()
        assert log.in_turn(is_moved)

    def test_a_turn_that_failed_before_catching_up_is_told_again(self, log: LmdbLog, other: Child) -> None:
        append_there(other)
        told: list[bool] = []

        def note_and_fail(turn: LogTurn) -> None:
            told.append(turn.moved)
            raise ZeroDivisionError

        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                log.in_turn(note_and_fail)
        assert told == [True, True]
        assert log.changed()
        log.saw(log.mark())
        assert not log.changed()

    def test_a_turn_whose_write_failed_is_told_again(self, log: LmdbLog, other: Child) -> None:
        append_there(other)
        with pytest.raises(StoreCorrupt):
            log.in_turn(one_write(sealed(1, [b"in the way"])))
        assert log.in_turn(is_moved)

    def test_a_look_at_changes_is_told_until_the_reader_says_what_it_knows(self, log: LmdbLog, other: Child) -> None:
        append_there(other)
        mark = log.mark()
        assert log.changed()
        assert log.changed()
        assert log.in_turn(is_moved)
        log.saw(mark)
        assert not log.changed()
        assert not log.in_turn(is_moved)

    def test_what_came_behind_the_mark_is_still_told(self, log: LmdbLog, other: Child) -> None:
        append_there(other)
        mark = log.mark()
        append_there(other)
        log.saw(mark)
        assert log.changed()
        assert log.in_turn(is_moved)

    @pytest.mark.parametrize("way", ["write", "write_rows"])
    def test_writing_without_a_turn_hides_nobody(self, log: LmdbLog, other: Child, way: str) -> None:
        row: Row = ("names", b"n", b"1")
        ways = {
            "write": lambda: log.write(sealed(2, [b"mine"])),
            "write_rows": lambda: log.write_rows([row]),
        }
        append_there(other)
        ways[way]()
        assert log.in_turn(is_moved)
        log.saw(log.mark())
        assert not log.changed()

    @pytest.mark.parametrize("way", ["write", "write_rows", "erase"])
    def test_own_writing_is_no_news(self, log: LmdbLog, way: str) -> None:
        fill(log, [1])
        row: Row = ("names", b"n", b"1")
        if way == "write":
            fill(log, [2])
        elif way == "write_rows":
            log.write_rows([row])
        else:
            erase(log, sealed(1, [b"erased"]), [row])
        assert not log.changed()
        assert not log.in_turn(is_moved)

    def test_a_transaction_that_changed_nothing_hides_nobody(self, log: LmdbLog, other: Child) -> None:
        """LMDB gives its number to the next transaction, which is the other process's."""
        nothing: tuple[list[Row], ...] = ([], [("names", b"absent", None)])
        for rows in nothing:
            log.in_turn(one_write([], rows))
            append_there(other)
            assert log.changed()
            log.saw(log.mark())
            log.write_rows(rows)
            append_there(other)
            assert log.in_turn(is_moved)
            log.saw(log.mark())

    def test_a_reader_in_the_writers_process_is_told(self, log: LmdbLog, tmp_path: Path) -> None:
        reader = opened(tmp_path / "store", readonly=True)

        @log.in_turn
        def _(turn: LogTurn) -> None:
            turn.write(command(1))
            assert reader.changed()

        assert reader.changed()
        reader.saw(reader.mark())
        assert not reader.changed()
        reader.close()


class TestWaiting:
    def test_a_turn_waits_for_that_of_another_process(self, log: LmdbLog, other: Child) -> None:
        other.write("hold theirs")
        assert other.read() == "holding"
        assert (log.head(), log.changed()) == (0, False)
        entered = threading.Event()

        def take(turn: LogTurn) -> None:
            entered.set()
            assert turn.moved
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
        log.write(sealed(1, [bytes(500_000)] * 40))
        is_done = threading.Event()

        def look() -> None:
            while not is_done.is_set():
                log.read(0, 40)

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            assert not log.in_turn(is_moved)
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
