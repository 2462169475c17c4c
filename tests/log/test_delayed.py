"""A log that delays its writes: read with its tail, durable in order and in whole commands, and soon."""

import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import refold.log.delayed as delayed_module
from refold import Closed, Memory, StoreBusy, StoreError, StoreFull
from refold.log.delayed import DelayedLog
from refold.log.directory import directory_at
from refold.log.lmdb_log import LmdbLog
from refold.log.memory_log import RamLog
from refold.log.protocol import Log, Row, write
from refold.log.record import SEQ
from tests.log.test_conformance import Conformance, command, events, fill, one_write
from tests.support.memories import Child, erase
from tests.support.records import arrays_at, arrays_in, sealed
from tests.support.seams import log_of

SOON_SECONDS = 30


def opened(path: Path) -> DelayedLog:
    return DelayedLog(LmdbLog(directory_at(str(path), readonly=False, seed={}, exclusive=True)))


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that another thread brings about."""
    give_up = time.monotonic() + SOON_SECONDS
    while not holds():
        assert time.monotonic() < give_up
        os.sched_yield()


def durable_head(log: DelayedLog) -> int:
    return log.durable_until(2**63 - 1)


def may_open(path: Path) -> bool:
    try:
        opened(path).close()
    except StoreBusy:
        return False
    return True


class TestDelayedLog(Conformance):
    def open(self, directory: Path, *, readonly: bool = False) -> Log:
        assert not readonly
        return opened(directory)


class TestDelayedLogBetweenFlushes(Conformance):
    """The same with everything still in the tail."""

    @pytest.fixture(autouse=True)
    def _never_by_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(delayed_module, "FLUSH_SECONDS", 3_600)

    def open(self, directory: Path, *, readonly: bool = False) -> Log:
        assert not readonly
        return opened(directory)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DelayedLog]:
    """A log that flushes only when told."""
    monkeypatch.setattr(delayed_module, "FLUSH_SECONDS", 3_600)
    log = opened(tmp_path / "store")
    yield log
    log.close()


class TestDurability:
    def test_comes_by_itself_and_soon(self, tmp_path: Path) -> None:
        log = opened(tmp_path / "store")
        fill(log, [2, 1])
        assert log.head() == 3
        until(lambda: durable_head(log) == 3)
        assert arrays_in(log._inner.read(0, 5)) == events(1, 4)
        fill(log, [1])
        until(lambda: durable_head(log) == 4)
        log.close()

    def test_waits_until_then(self, log: DelayedLog) -> None:
        written = fill(log, [2, 1])
        assert (log.head(), durable_head(log), log._inner.head()) == (3, 0, 0)
        log.flush()
        assert (log.head(), durable_head(log), log._inner.head()) == (3, 3, 3)
        assert log._inner.read(0, 5) == written
        log.flush()
        assert durable_head(log) == 3

    def test_comes_with_closing(self, tmp_path: Path, log: DelayedLog) -> None:
        fill(log, [3])
        log.close()
        log.close()
        again = LmdbLog(directory_at(str(tmp_path / "store"), readonly=True, seed={}))
        assert again.head() == 3
        again.close()
        take_turn = partial(log.in_turn, lambda _: None)
        for call in (log.head, log.flush, take_turn, log.last_commit, partial(durable_head, log)):
            with pytest.raises(Closed):
                call()

    def test_comes_before_erasures(self, log: DelayedLog) -> None:
        fill(log, [1, 1])
        erase(log, sealed(2, [b"erased"]), [])
        assert (durable_head(log), arrays_in(log._inner.read(0, 5))) == (2, [b"event 1", b"erased"])

    def test_comes_at_the_end_of_the_program(self, tmp_path: Path) -> None:
        program = PREAMBLE + "append(log, 3)\nprint('written', flush=True)"
        with Child(program, str(tmp_path / "store")) as child:
            assert child.read() == "written"
            assert child.read() == ""
        log = opened(tmp_path / "store")
        assert log.head() == 3
        log.close()

    def test_comes_in_one_transaction_for_many_writes(self, log: DelayedLog) -> None:
        before = log._inner.durability.env.info()["last_txnid"]
        fill(log, [1] * 50)
        log.flush()
        assert log._inner.durability.env.info()["last_txnid"] == before + 1

    def test_of_rows_takes_the_last_of_each(self, log: DelayedLog) -> None:
        fill(log, [1])
        write(log, (), [("names", b"gone", b"1"), ("names", b"kept", b"1")])
        log.flush()
        rows: list[Row] = [("names", b"gone", None), ("names", b"kept", b"2"), ("names", b"new", b"3")]
        for row in rows:
            log.in_turn(one_write([], [row]))
        assert log.rows("names", b"", 5) == [(b"kept", b"2"), (b"new", b"3")]
        assert log._inner.row("names", b"gone") == b"1"
        log.flush()
        assert log._inner.rows("names", b"", 5) == [(b"kept", b"2"), (b"new", b"3")]

    def test_thread_ends_and_comes_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(delayed_module, "FLUSH_SECONDS", 0.001)
        log = opened(tmp_path / "store")
        assert log._flusher is None
        for seq in (1, 2):
            fill(log, [1])
            until(lambda: log._flusher is None)
            assert durable_head(log) == seq
        log.close()

    def test_of_a_log_that_nobody_holds_is_given_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(delayed_module, "FLUSH_SECONDS", 0.001)
        log = opened(tmp_path / "store")
        fill(log, [1])
        gone = weakref.ref(log)
        del log
        until(lambda: gone() is None)
        until(lambda: may_open(tmp_path / "store"))
        again = opened(tmp_path / "store")
        assert again.head() == 1
        again.close()


class TestReading:
    """Every read is that of a log in RAM to which the same was written, wherever the border of the tail lies."""

    @pytest.mark.parametrize("seed", range(6))
    def test_is_that_of_one_log(self, log: DelayedLog, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        chance = random.Random(seed)
        model = RamLog()
        stuck = False
        for _ in range(120):
            self.write(chance, log, model)
            drawn = 1 if stuck else chance.random()
            if drawn < 0.1:
                log.flush()
            elif drawn < 0.13:
                stuck = True
                with monkeypatch.context() as patch:
                    patch.setattr(log._inner, "in_turn", refuse)
                    with pytest.raises(StoreFull):
                        log.flush()
                log._failure = None
            self.compare(chance, log, model)
        log.flush()
        self.compare(chance, log._inner, model)

    def write(self, chance: random.Random, log: DelayedLog, model: RamLog) -> None:
        keys = [bytes([place]) for place in range(12)] + [b"\x03\0", b"\x03\xff"]
        rows: list[Row] = [
            (chance.choice(("names", "derived")), chance.choice(keys), chance.choice((None, b"", b"v%d" % place)))
            for place in range(chance.randrange(4))
        ]
        count, first = chance.choice((0, 1, 2, 3, 150)), model.head() + 1
        records = [*command(first, count), *command(first + count)] if count else []
        for each in (log, model):
            each.in_turn(one_write(records, rows))

    def compare(self, chance: random.Random, log: Log, model: RamLog) -> None:
        head = model.head()
        seq, limit = chance.randrange(head + 3), chance.randrange(8)
        until = seq + chance.choice((0, 1, limit, 200))
        assert log.head() == head
        assert log.read(seq, until) == model.read(seq, until)
        assert log.read(0, head + 5) == model.read(0, head + 5)
        if head:
            seqs = [chance.randrange(1, head + 1) for _ in range(limit)]
            assert log.events_at(seqs) == model.events_at(seqs)
        key = bytes([chance.randrange(13)]) + chance.choice((b"", b"\0", b"x"))
        for table in ("names", "derived"):
            assert log.row(table, key) == model.row(table, key)
            assert log.rows(table, key, limit) == model.rows(table, key, limit)
            assert log.rows(table, b"", 100) == model.rows(table, b"", 100)
            assert log.rows(table, key, limit, backwards=True) == model.rows(table, key, limit, backwards=True)

    def test_is_that_of_one_log_while_it_is_flushed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(delayed_module, "FLUSH_SECONDS", 0)
        log = opened(tmp_path / "store")
        is_done = threading.Event()
        wrong: list[object] = []
        threads = [threading.Thread(target=self.look_until, args=(is_done, log, wrong)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for seq in range(1, 600):
            row: Row = ("names", b"head", SEQ.pack(seq))
            log.in_turn(one_write(command(seq), [row]))
        is_done.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        log.close()

    @staticmethod
    def look_until(is_done: threading.Event, log: DelayedLog, wrong: list[object]) -> None:
        while not is_done.is_set():
            durable, head = durable_head(log), log.head()
            first = max(head - 10, 1)
            found = arrays_in(log.read(first - 1, head))
            if found != events(first, head + 1) or arrays_at(log, range(first, head + 1)) != found:
                wrong.append((head, found))
            row = log.row("names", b"head")
            if SEQ.unpack(row or SEQ.pack(0))[0] < head or durable > head:
                wrong.append((head, durable, row))


def refuse(*_: object) -> None:
    raise StoreFull("no space is left")


class TestFailedFlush:
    def test_keeps_the_tail_and_is_told_to_writers_until_it_is_done(
        self, log: DelayedLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(log, [2])
        with monkeypatch.context() as patch:
            patch.setattr(log._inner, "in_turn", refuse)
            for _ in range(2):
                with pytest.raises(StoreFull):
                    log.flush()
                with pytest.raises(StoreFull):
                    fill(log, [1])
            with pytest.raises(StoreFull):
                log.close()
            assert (log.head(), durable_head(log)) == (2, 0)
            assert arrays_in(log.read(0, 5)) == events(1, 3)
        fill(log, [1])
        assert (log.head(), durable_head(log)) == (3, 2)
        log.flush()
        assert arrays_in(log._inner.read(0, 5)) == events(1, 4)

    def test_in_the_thread_is_told_and_tried_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(delayed_module, "FLUSH_SECONDS", 0.001)
        log = opened(tmp_path / "store")
        with monkeypatch.context() as patch:
            patch.setattr(log._inner, "in_turn", refuse)
            fill(log, [1])
            until(lambda: log._failure is not None)
            with pytest.raises(StoreFull):
                fill(log, [1])
        until(lambda: durable_head(log) == 1)
        fill(log, [1])
        log.close()

    def test_that_was_interrupted_after_its_end_is_not_repeated(
        self, log: DelayedLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        in_turn = log._inner.in_turn

        def write_and_break(use: Callable[[Any], Any]) -> None:
            in_turn(use)
            raise KeyboardInterrupt

        fill(log, [2])
        with monkeypatch.context() as patch:
            patch.setattr(log._inner, "in_turn", write_and_break)
            with pytest.raises(KeyboardInterrupt):
                log.flush()
        assert arrays_in(log.read(0, 5)) == events(1, 3)
        fill(log, [1])
        log.flush()
        assert arrays_in(log._inner.read(0, 5)) == events(1, 4)

    def test_cannot_be_brought_about_by_a_key(self, log: DelayedLog) -> None:
        for key in (b"", b"k" * 512):
            with pytest.raises(StoreError, match="LMDB_KEY_BYTES_MAX"):
                write(log, command(1), [("names", key, b"1")])
        assert log.head() == 0


def test_a_tail_that_is_too_long_makes_its_writer_wait(log: DelayedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_module, "TAIL_BYTES_MAX", 1_000)
    write(log, sealed(1, [bytes(2_000)]))
    assert (log.head(), durable_head(log)) == (1, 0)
    write(log, sealed(2, [bytes(900)]))
    assert (log.head(), durable_head(log)) == (2, 1)
    write(log, sealed(3, [bytes(900)]))
    write(log, sealed(4, [bytes(900)]))
    assert durable_head(log) == 3


PREAMBLE = """
import os, sys
from refold.log.delayed import DelayedLog
from refold.log.directory import directory_at
from refold.log.lmdb_log import LmdbLog
from tests.support.records import sealed
log = DelayedLog(LmdbLog(directory_at(sys.argv[1], readonly=False, seed={}, exclusive=True)))

def append(log, size):
    seq = log.head() + 1
    records = sealed(seq, [b"%d" % place for place in range(seq, seq + size)])
    rows = [("names", b"head", b"%d" % (seq + size - 1))]
    log.in_turn(lambda turn: turn.write(records, rows))
"""


class TestProcesses:
    def test_it_wants_the_store_alone(self, tmp_path: Path) -> None:
        shared = LmdbLog(directory_at(str(tmp_path / "store"), readonly=False, seed={}))
        with pytest.raises(AssertionError, match="alone"):
            DelayedLog(shared)
        shared.close()
        log = opened(tmp_path / "store")
        program = PREAMBLE.replace("log = ", "try:\n    log = ") + "except Exception as error:\n    print(error)"
        program = program[: program.index("def append")] + program[program.index("except Exception") :]
        with Child(program, str(tmp_path / "store")) as child:
            assert f"process {os.getpid()} holds the store" in child.read()
        with pytest.raises(StoreBusy):
            opened(tmp_path / "store")
        log.close()

    def test_killed_loses_the_tail_at_most_and_tears_no_command(self, tmp_path: Path) -> None:
        program = PREAMBLE + (
            "number = 0\nwhile True:\n    number += 1\n    append(log, number % 7 + 1)\n"
            "    number % 50 or print(log.durable_until(log.head()), log.head(), flush=True)\n"
        )
        for round_number in range(5):
            path = tmp_path / f"store-{round_number}"
            with Child(program, str(path)) as child:
                durable = 0
                for _ in range(8 * (round_number + 1)):
                    durable = int(child.read().split()[0])
                child.kill()
            log = opened(path)
            head = log.head()
            assert head >= durable
            assert arrays_in(log.read(0, head)) == [b"%d" % seq for seq in range(1, head + 1)]
            assert log.row("names", b"head") == (b"%d" % head if head else None)
            ends, number = [0], 0
            while ends[-1] < head:
                number += 1
                ends.append(ends[-1] + number % 7 + 1)
            assert ends[-1] == head, "half a command is there"
            log.close()

    def test_a_fork_writes_nothing(self, tmp_path: Path) -> None:
        program = PREAMBLE + (
            "import refold.log.delayed as delayed\ndelayed.FLUSH_SECONDS = 3600\nappend(log, 2)\n"
            "pid = os.fork()\n"
            "if not pid:\n"
            "    for call in (log.flush, log.head, lambda: append(log, 1)):\n"
            "        try:\n            call()\n            print('did it', flush=True)\n"
            "        except Exception as error:\n            print(type(error).__name__, flush=True)\n"
            "    sys.exit(0)\n"
            "os.waitpid(pid, 0)\nprint(log._inner.head(), log.head(), flush=True)\nlog.close()\n"
        )
        with Child(program, str(tmp_path / "store")) as child:
            assert [child.read() for _ in range(4)] == ["Closed", "Closed", "Closed", "0 2"]
            assert child.read() == ""
        log = opened(tmp_path / "store")
        assert arrays_in(log.read(0, 5)) == [b"1", b"2"]
        log.close()


def test_an_erasure_cut_off_while_it_looks_for_the_end_leaves_a_log_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(tmp_path / "store", durability="delayed")
    chat = memory.conversation("chat")
    seq = chat.append("user", "erased").seq
    log, head, cuts = log_of(memory), LmdbLog.head, list[bool]()
    before = log.head()

    def cut_off(inner: LmdbLog) -> int:
        found = head(inner)
        if getattr(log, "_is_stale") and found > before and not cuts:  # noqa: B009 - a private name
            cuts.append(True)
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(LmdbLog, "head", cut_off)
    with pytest.raises(KeyboardInterrupt):
        memory.erase([seq])
    chat.append("user", "after")
    memory.close()
    with Memory(tmp_path / "store") as again:
        assert [message.content for message in again.conversation("chat").window()] == [None, "after"]
        assert again.verify().ok
