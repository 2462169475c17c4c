"""A writer that dies when its commit is in the file, before LMDB's table of readers tells of it."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from refold import Memory
from refold.event import Recorded
from tests.rigs.faults import cases
from tests.rigs.power import trace
from tests.support.memories import Child, assert_sound
from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(bool(trace.missing()), reason=trace.missing() or "the library can be built")

WRITER = """
import sys
from refold import Memory
from tests.rigs.faults.cases import Faults, Way
memory = Memory(sys.argv[1])
chat = memory.conversation("c")
chat.append("user", "told", tokens=1)
print("ready", flush=True)
sys.stdin.readline()
Faults().kill()
chat.append("user", "untold", tokens=1)
"""

READER = """
import sys
from refold import Memory
with Memory(sys.argv[1], readonly=True) as memory:
    print([message.content for message in memory.conversation("c").window()], flush=True)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cases.build(tmp_path_factory.mktemp("library"))


@pytest.fixture
def kill(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Kills a writer of the store that has been told of by all but its last commit, which nobody was told of."""
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("FAULTS_ROOT", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), *sys.path)))
    with Child(WRITER, str(tmp_path / "store")) as child:
        monkeypatch.undo()
        assert child.read() == "ready"

        def die() -> None:
            child.write("die")
            assert child.read() == ""
            child.kill()

        yield die


def contents(memory: Memory) -> list[object]:
    return [message.content for message in memory.conversation("c").window()]


@pytest.mark.parametrize("readonly", [False, True])
def test_a_survivor_sees_its_last_commit(tmp_path: Path, kill: Callable[[], None], readonly: bool) -> None:
    with Memory(tmp_path / "store", readonly=readonly) as survivor:
        assert contents(survivor) == ["told"]
        kill()
        assert contents(survivor) == ["told", "untold"]
        assert survivor.head == survivor.conversation("c").version == 3
        assert_sound(survivor)


def test_a_past_moment_does_not_change(tmp_path: Path, kill: Callable[[], None]) -> None:
    with Memory(tmp_path / "store", readonly=True) as survivor:
        kill()
        moment = datetime.now(UTC)
        before = survivor.at(moment).state_hash()
        with Memory(tmp_path / "store") as writer:
            writer.conversation("c").append("user", "later", tokens=1)
        assert survivor.at(moment).state_hash() == before
        assert survivor.at(moment).conversation("c").version == 3


def test_a_subscriber_is_given_it(tmp_path: Path, kill: Callable[[], None]) -> None:
    seqs: list[int] = []
    is_there = threading.Event()

    def hear(recorded: Recorded) -> None:
        seqs.append(recorded.stamp.seq)
        is_there.set()

    with Memory(tmp_path / "store", readonly=True) as survivor, survivor.subscribe(hear):
        kill()
        assert is_there.wait(60)
    assert seqs == [3]


def test_a_reader_that_opens_sees_it(tmp_path: Path, kill: Callable[[], None]) -> None:
    with Memory(tmp_path / "store") as survivor:
        kill()
        with Child(READER, str(tmp_path / "store")) as reader:
            assert reader.read() == "['told', 'untold']"
        assert contents(survivor) == ["told", "untold"]


def test_the_next_writer_writes_behind_it(tmp_path: Path, kill: Callable[[], None]) -> None:
    with Memory(tmp_path / "store") as survivor:
        kill()
        survivor.conversation("c").append("user", "next", tokens=1)
        assert contents(survivor) == ["told", "untold", "next"]
        assert_sound(survivor)
    with Memory(tmp_path / "store") as again:
        assert contents(again) == ["told", "untold", "next"]
        assert_sound(again)
