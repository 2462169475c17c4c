"""How a witness follows its log: by itself, in nobody's way, never back, and not silently when it cannot."""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from refold import Memory, NotFound, RefoldError, StoreCorrupt, StoreError, StoreFull
from refold.log import witness
from tests.support.bounds import lowered
from tests.support.memories import Child, refused
from tests.support.seams import log_of, reader_of
from tests.support.witness import Place, full, talk, watching

SECONDS_MAX = 60
"""How long something may take on a machine that does other things; a bound, not a wait."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A store of four events whose witness knows all of them."""
    place = Place(tmp_path)
    with place.open() as memory:
        talk(memory, 3)
    return place


@contextmanager
def closing_raises(place: Place, error: type[RefoldError], words: str) -> Iterator[Memory]:
    """A memory whose close raises, and closes it all the same."""
    memory = place.open()
    yield memory
    with pytest.raises(error, match=words):
        memory.close()
    memory.close()
    assert reader_of(memory).is_closed


class Gate:
    """Stands in for the write of a witness: says that it was reached, and waits until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened, self.passed = threading.Event(), threading.Event(), threading.Event()
        self._replace: Callable[..., bool] = witness.replace
        monkeypatch.setattr(witness, "replace", self)

    def __call__(self, *arguments: Any) -> bool:
        self.reached.set()
        assert self.opened.wait(SECONDS_MAX)
        done = self._replace(*arguments)
        self.passed.set()
        return done


class TestTheRhythm:
    def test_the_witness_follows_by_itself(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        gate = Gate(monkeypatch)
        gate.opened.set()
        with lowered(WITNESS_MS=1), place.open() as memory:
            for seq in (5, 6):
                talk(memory)
                assert gate.passed.wait(SECONDS_MAX)
                assert place.told().seq == seq
                gate.passed.clear()

    def test_nobody_waits_for_it(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        """While it is written, this process and another one read and write, and it holds no transaction."""
        gate = Gate(monkeypatch)
        with lowered(WITNESS_MS=1), place.open() as memory:
            talk(memory)
            assert gate.reached.wait(SECONDS_MAX)
            talk(memory)
            assert len(memory.conversation("chat").window()) == 5
            log: Any = log_of(memory)
            assert log.durability.env.readers().count("\n") <= 2, "one line for this thread, under a head"
            program = "import sys; from refold import Memory\nwith Memory(sys.argv[1]) as memory: "
            program += "print(memory.conversation('chat').append('user', 'x', tokens=1).seq)"
            with Child(program, str(place.store)) as child:
                assert child.read() == "7"
            assert place.told().seq == 4
            gate.opened.set()
        assert place.told().seq == 7

    def test_it_follows_what_another_process_writes(self, place: Place) -> None:
        with place.open() as memory:
            program = "import sys; from refold import Memory\nwith Memory(sys.argv[1]) as memory: "
            program += "memory.conversation('chat').append('user', 'x', tokens=1); print('done')"
            with Child(program, str(place.store)) as child:
                assert child.read() == "done"
            watching(memory).keep_up()
            assert place.told().seq == 5

    def test_what_a_crash_could_still_take_is_not_told(self, place: Place) -> None:
        with place.open(durability="delayed") as memory:
            log: Any = log_of(memory)
            with log._flushing:
                talk(memory, 2)
                watching(memory).advance()
                assert (log.head(), place.told().seq) == (6, 4)
            memory.flush()
            assert place.told().seq == 6
            talk(memory)
        assert place.told().seq == 7

    def test_two_processes_share_one(self, place: Place) -> None:
        program = (
            "import sys; from refold import Memory\n"
            "from refold import limits; from tests.support.bounds import lowered\n"
            "with Memory(sys.argv[1], witness=sys.argv[2]) as memory:\n"
            "    for line in sys.stdin:\n"
            "        print(memory.conversation('chat').append('user', 'x', tokens=1).seq, flush=True)\n"
            "        memory._core.engine.witness.keep_up()\n"
        )
        with Child(program, str(place.store), str(place.witness)) as child, place.open() as memory:
            last = 4
            for number in range(40):
                child.write("go")
                if number % 2:
                    talk(memory)
                assert int(child.read()) > last
                watching(memory).advance()
                assert place.told().seq >= last
                last = place.told().seq
            child.kill()
            assert memory.verify().ok
        assert place.told().seq == 4 + 60

    def test_who_is_behind_does_not_write_over_who_is_ahead(self, place: Place) -> None:
        told = place.told()
        with place.open() as memory:
            talk(memory, 3)
            memory.flush()
            ahead = place.witness.read_bytes()
            log: Any = log_of(memory)
            log.durability.durable_until = lambda _seq: 4
            watching(memory).advance()
            assert not witness.replace(str(place.witness), told, told)
            del log.durability.durable_until
            assert place.witness.read_bytes() == ahead

    def test_the_thread_ends_with_the_memory(self, place: Place) -> None:
        memory = place.open()
        thread = watching(memory)._thread
        assert thread is not None
        assert not thread.is_over
        memory.close()
        assert thread.is_over

    def test_the_thread_ends_with_a_memory_that_nobody_closed(self, place: Place) -> None:
        program = (
            "import gc, sys; from refold import Memory; from tests.support.bounds import lowered\n"
            "import refold.engine.witness\n"
            "with lowered(WITNESS_MS=1):\n"
            "    memory = Memory(sys.argv[1], witness=sys.argv[2]); thread = memory._core.engine.witness._thread\n"
            "    del memory\n"
            "    while not thread.is_over: gc.collect()\n"  # The thread may be holding it just now.
            "    print(not thread.is_over)\n"
            "    Memory(sys.argv[1], witness=sys.argv[2]).close(); print('again')\n"
        )
        with Child(program, str(place.store), str(place.witness)) as child:
            assert (child.read(), child.read()) == ("False", "again")

    def test_a_killed_process_leaves_a_witness_that_the_log_agrees_with(self, place: Place) -> None:
        program = (
            "import sys; from refold import Memory; from tests.support.bounds import lowered\n"
            "import refold.engine.witness\n"
            "with lowered(WITNESS_MS=1):\n"
            "    memory = Memory(sys.argv[1], witness=sys.argv[2])\n"
            "    while True: print(memory.conversation('chat').append('user', 'x', tokens=1).seq, flush=True)\n"
        )
        for _ in range(3):
            with Child(program, str(place.store), str(place.witness)) as child:
                first = int(child.read())
                while int(child.read()) < first + 30:
                    continue
                child.kill()
            with place.open() as memory:
                assert memory.head >= place.told().seq
                assert memory.verify().ok
                memory.flush()
                assert place.told().seq == memory.head


class TestWhatFails:
    def test_writes_go_on_and_flush_and_close_say_so(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        memory = place.open()
        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "refold"):
            patch.setattr(os, "pwrite", full)
            for _ in range(3):
                talk(memory)
                watching(memory).keep_up()
            assert [record.name for record in caplog.records] == ["refold"], "it is said once"
            assert "flush and close raise this" in caplog.text
            with pytest.raises(StoreFull, match=r"using the witness .* what was acknowledged is in the store"):
                memory.flush()
            talk(memory)
            assert memory.verify().ok
            with pytest.raises(StoreFull, match="using the witness"):
                memory.close()
            memory.close()
        assert place.told().seq == 4
        with place.open() as memory:
            assert len(memory.conversation("chat").window()) == 7
            assert memory.head == 8
        assert place.told().seq == 8

    def test_once_there_is_room_it_catches_up(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        with place.open() as memory:
            with monkeypatch.context() as patch:
                patch.setattr(os, "pwrite", full)
                talk(memory)
                watching(memory).keep_up()
            watching(memory).keep_up()
            assert place.told().seq == 5

    def test_one_that_is_gone_is_not_made_anew_while_the_store_is_open(self, place: Place) -> None:
        with closing_raises(place, StoreError, "is gone; put it back, or open the store again") as memory:
            place.witness.unlink()
            with refused(memory, StoreError, "is gone"):
                memory.flush()
            with pytest.raises(NotFound):
                memory.verify()
        assert not place.witness.exists()
        place.open().close()
        assert place.told().seq == 4

    def test_one_of_another_store_is_not_written_over(self, place: Place, tmp_path: Path) -> None:
        Memory(tmp_path / "other", witness=tmp_path / "others").close()
        with closing_raises(place, StoreCorrupt, "is of store") as memory:
            shutil.copy(tmp_path / "others", place.witness)
            talk(memory)
            assert [finding.check for finding in memory.verify().findings] == ["witness"]
            with pytest.raises(StoreCorrupt, match="is of store"):
                memory.flush()
        assert place.witness.read_bytes() == (tmp_path / "others").read_bytes()

    def test_a_witness_that_knows_more_than_the_open_log_is_not_written_over(self, place: Place) -> None:
        with closing_raises(place, StoreCorrupt, "the log ends at seq 5") as memory:
            assert witness.replace(str(place.witness), place.told(), place.told()._replace(seq=99))
            talk(memory)
        assert place.told().seq == 99

    def test_an_error_inside_the_block_is_not_lost(self, place: Place) -> None:
        def fail_inside() -> None:
            with place.open():
                place.witness.unlink()
                raise ZeroDivisionError

        with pytest.raises(StoreError, match="is gone") as raised:
            fail_inside()
        assert isinstance(raised.value.__context__, ZeroDivisionError)

    def test_a_child_that_forked_leaves_it_alone(self, place: Place) -> None:
        program = (
            "import os, sys; from refold import Closed, Memory\n"
            "memory = Memory(sys.argv[1], witness=sys.argv[2])\n"
            "memory.conversation('chat').append('user', 'x', tokens=1)\n"
            "child = os.fork()\n"
            "if not child:\n"
            "    memory.close()\n"
            "    try: memory.flush()\n"
            "    except Closed: os._exit(7)\n"
            "    os._exit(1)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])); memory.close(); print('closed')\n"
        )
        with Child(program, str(place.store), str(place.witness)) as child:
            assert (child.read(), child.read()) == ("7", "closed")
        assert place.told().seq == 5
