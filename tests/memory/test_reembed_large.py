"""Projects of more memories than one slice of a checkpoint row: embedded anew while threads and processes write."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from refold import EmbeddingMismatch, Memory, NotFound, recover
from refold.limits import PACKED_SLICE_COUNT
from tests.memory.test_reembed import Letters
from tests.support.bounds import Clock
from tests.support.other_process import Elsewhere, LengthCounter, WordsEmbedder

SIZES = (
    PACKED_SLICE_COUNT + 1,
    pytest.param(5_000, marks=pytest.mark.slow),
    pytest.param(50_000, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)]),
)
SEQS_COUNT = 7
OPTIONS: dict[str, Any] = {"token_counter": LengthCounter(), "embedder": WordsEmbedder()}


def filled(path: Path, count: int) -> Path:
    with Memory(path, **OPTIONS) as memory, memory.batch():
        for number in range(count):
            memory.project("p").add(f"fact {number} of tea and port", importance=0.5)
        memory.project("p").record_episode("success", task="tea", outcome="milk")
    return path


def write(memory: Any, draw: random.Random, writer: int, number: int) -> None:
    """One mutation of the project; what another writer took away meanwhile is gone, and that is fine."""
    project, fresh = memory.project("p"), f"{writer}.{number}"
    entry = draw.choice(project.list(limit=50, offset=draw.randrange(400)))
    with contextlib.suppress(NotFound):
        (
            lambda: project.add(f"a red new fact {fresh}"),
            lambda: project.update(entry.id, content=f"a changed fact {fresh}, milk"),
            lambda: project.update(entry.id, importance=draw.random()),
            lambda: project.delete(entry.id),
            lambda: project.upsert(f"{entry.content} and more tea {fresh}", threshold=0.3),
            lambda: project.recall("tea", top_k=2),
            lambda: project.record_episode("failure", task=f"task {fresh}", outcome="port"),
        )[number % 7]()


def patient(is_there: Callable[[], bool]) -> None:
    """Waits until something is so, and fails where that takes a minute."""
    until = time.monotonic() + 60
    while not is_there():
        assert time.monotonic() < until, "nobody wrote for a minute"
        time.sleep(0.001)


@contextmanager
def writing(*memories: Any) -> Iterator[Callable[[], list[int]]]:
    """Writes to the project through each of the memories, on a thread each, until the block ends.

    Gives how often each of them has written. Who embeds with another model than the project does by now has to stop.
    """
    is_over, counts, errors = threading.Event(), [0] * len(memories), list[BaseException]()

    def work(place: int) -> None:
        draw = random.Random(place)
        try:
            while not is_over.wait(0.002):
                write(memories[place], draw, place, counts[place])
                counts[place] += 1
        except EmbeddingMismatch:
            return
        except BaseException as error:  # noqa: BLE001 - it is raised below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(memories))]
    for thread in threads:
        thread.start()
    try:
        yield lambda: list(counts)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert errors == []


def assert_sound(path: Path) -> None:
    """What is reopened verifies, is copied and made anew, and is at each seq what its log says."""
    with Memory(path, **OPTIONS) as memory:
        report = memory.verify()
        assert report.ok, report.findings
        seqs = [memory.head * place // SEQS_COUNT for place in range(SEQS_COUNT + 1)]
        hashes = [memory.state_hash(at=seq) for seq in seqs]
        assert hashes == [memory.replay_hash(at=seq) for seq in seqs]
        assert hashes[-1] == memory.state_hash() == report.state_hash
        assert memory.backup(path.with_name("backup")).state_hash == report.state_hash
        assert recover(path.with_name("backup"), path.with_name("again")).state_hash == report.state_hash


@pytest.mark.parametrize("count", SIZES)
def test_a_large_project_is_sound_once_it_is_embedded_anew(tmp_path: Path, count: int) -> None:
    path = filled(tmp_path / "store", count)
    with Memory(path, **OPTIONS) as memory:
        assert memory.reembed(Letters()).vectors == count + 1
        report = memory.verify()
        assert report.ok, report.findings
    assert_sound(path)


@pytest.mark.parametrize("count", SIZES)
def test_it_is_sound_whoever_writes_meanwhile(tmp_path: Path, count: int) -> None:
    path = filled(tmp_path / "store", count)
    with Elsewhere(Clock()) as elsewhere, Memory(path, **OPTIONS) as memory:
        with writing(memory, elsewhere.opened(path, {}, 1)) as written:
            # Everybody has written by the end of the first page, however busy the machine is.
            done = memory.reembed(Letters(), progress=lambda _made, _whole: patient(lambda: min(written()) > 0))
        assert done.vectors >= count
        while memory.reembed(Letters()).vectors:
            """Somebody may have added with the old embedder behind the switch."""
        elsewhere.shut()
        report = memory.verify()
        assert report.ok, report.findings
    assert_sound(path)


@pytest.mark.parametrize("count", SIZES)
def test_it_is_sound_where_it_was_cut_off(tmp_path: Path, count: int) -> None:
    path = filled(tmp_path / "store", count)
    with Memory(path, **OPTIONS) as memory, writing(memory):
        broken = Letters()
        broken.fails_at = count // 2
        with pytest.raises(ConnectionError):
            memory.reembed(broken)
    assert_sound(path)
