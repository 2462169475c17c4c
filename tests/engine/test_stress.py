"""Reads by the public verbs never fail, whatever is written, rebuilt, swapped, erased or put out of RAM meanwhile."""

import contextlib
import gc
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import Memory, Project, WrongVersion
from refold.index import index, table
from refold.index.table import Crossover
from tests.index.scan import needs_hnswlib, texts_like
from tests.support.bounds import lowered
from tests.support.threads import alive

DIMENSIONS = 16
BEGIN_COUNT = 150
ROUNDS = 15
VECTORS = texts_like(2_000, DIMENSIONS, 31)
ANY: dict[str, Any] = {"top_k": 40, "min_importance": 0.0}


class Worker(threading.Thread):
    """Does one thing again and again until all have done theirs so often, and keeps what went wrong."""

    def __init__(self, seed: int, work: Callable[[random.Random], None], crew: "list[Worker]") -> None:
        super().__init__(name=work.__name__)
        self.work, self.crew, self.draw = work, crew, random.Random(seed)
        self.error: BaseException | None = None
        self.rounds = 0

    @property
    def is_over(self) -> bool:
        """Whether everybody may stop: who finishes first goes on, so that nobody is ever alone."""
        return all(worker.rounds >= ROUNDS for worker in self.crew) or any(worker.error for worker in self.crew)

    def run(self) -> None:
        try:
            while not self.is_over:
                self.work(self.draw)
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 - the test raises it on its own thread
            self.error = error


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """A store in which graphs are built all the time, rows are packed in many slices, and projects leave RAM."""
    monkeypatch.setattr(index, "_MEASURED", Crossover(1, 1))
    monkeypatch.setattr(table, "GRAPH_FRESH_ROWS_MIN", 20)
    with (
        lowered(CHECKPOINT_EVENTS=16, PACKED_SLICE_COUNT=8, TAIL_EVENTS_MAX=200, PACKED_COUNT_MIN=1),
        Memory(tmp_path / "store", durability="delayed", memory_bytes=2**20) as memory,
    ):
        yield memory
    gc.collect()
    assert alive("refold-graph") == []


def fill(project: Project, draw: random.Random, count: int) -> None:
    for _ in range(count):
        number = draw.randrange(10**9)
        vector = VECTORS[number % len(VECTORS)]
        project.add(f"text {number}", vector=vector, importance=draw.random(), metadata={"m": number % 2})


def some(project: Project, draw: random.Random) -> str:
    """The id of one of the project's memories that may be gone a moment later."""
    return draw.choice(project.list(limit=100)).id


def erased_in(project: Project, entry_id: str) -> bool:
    """Whether nothing is left of a memory but its id."""
    held = project.get(entry_id)
    return held is not None and held.erased


class Work:
    """What the threads do to one memory with three projects; one thread alone takes memories away."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.projects = [memory.project(name) for name in "abc"]

    def project(self, draw: random.Random) -> Project:
        return draw.choice(self.projects)

    def search(self, draw: random.Random) -> None:
        options: dict[str, Any] = dict(ANY)
        options |= draw.choice([{}, {"ranking": "window"}, {"metadata": {"m": 1}}, {"explain": True}])
        hits = self.project(draw).search("text", vector=draw.choice(VECTORS), **options)
        assert hits.exact
        assert len(hits) == 40 or "metadata" in options
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert len({hit.entry.id for hit in hits}) == len(hits)
        assert all(hit.entry.content for hit in hits)

    def search_many(self, draw: random.Random) -> None:
        vector = draw.choice(VECTORS)
        one, other = self.project(draw).search_many(["text", "text"], vectors=[vector, vector], now=0, **ANY)
        assert one == other

    def search_the_past(self, draw: random.Random) -> None:
        at = self.memory.head - draw.randrange(30)
        project = self.memory.at(at).project(draw.choice("abc"))
        vector = draw.choice(VECTORS)
        before, after = (list(project.search("text", vector=vector, **ANY)) for _ in range(2))
        found = [hit.entry.id for hit in after]
        # The past stands still, but for what is erased from it between two looks.
        kept = [hit for hit in before if hit.entry.id in found or not erased_in(project, hit.entry.id)]
        assert [hit.entry.id for hit in kept] == found[: len(kept)]
        assert [hit.score for hit in kept] == pytest.approx([hit.score for hit in after[: len(kept)]], abs=1e-6)

    def search_a_fork(self, draw: random.Random) -> None:
        fork = self.memory.fork("kept")
        assert len(fork.project(draw.choice("abc")).search("text", vector=draw.choice(VECTORS), **ANY)) == 40

    def add(self, draw: random.Random) -> None:
        fill(self.project(draw), draw, 3)
        self.project(draw).upsert("text of an upsert", vector=draw.choice(VECTORS), threshold=0.99)
        self.project(draw).recall("text", vector=draw.choice(VECTORS), top_k=3)

    def add_many(self, draw: random.Random) -> None:
        # Others write to the same projects; a batch that they overtake says so, and writes nothing.
        with contextlib.suppress(WrongVersion), self.memory.batch():
            fill(self.project(draw), draw, 10)

    def tend(self, draw: random.Random) -> None:
        """Takes memories away where there are enough, one way or the other."""
        project = self.project(draw)
        if project.count() > 2 * BEGIN_COUNT:
            for _ in range(60):
                project.delete(some(project, draw))
        project.update(some(project, draw), importance=draw.random(), keywords=[f"word{draw.randrange(5)}"])
        project.decay()
        if project.count() > BEGIN_COUNT and draw.random() < 0.2:
            erased = project.list(limit=5)[draw.randrange(5)]
            assert erased.seq is not None
            assert erased.seq in self.memory.erase([erased.seq]).seqs
        if draw.random() < 0.3:
            self.memory.flush()


@needs_hnswlib
@pytest.mark.slow
def test_reads_never_fail_while_all_else_happens(memory: Memory) -> None:
    work = Work(memory)
    for seed, project in enumerate(work.projects):
        fill(project, random.Random(seed), BEGIN_COUNT)
    memory.fork("kept")
    readers = [work.search, work.search, work.search_many, work.search_the_past, work.search_a_fork]
    crew: list[Worker] = []
    crew += [Worker(seed, verb, crew) for seed, verb in enumerate([*readers, work.add, work.add_many, work.tend])]
    for worker in crew:
        worker.start()
    for worker in crew:
        worker.join()
    errors = [(worker.name, worker.error) for worker in crew if worker.error is not None]
    assert errors == [], errors
    report = memory.verify()
    assert report.ok, report.findings
    for project in work.projects:
        held = {entry.id for entry in project.list()}
        found = project.search("text", vector=VECTORS[0], top_k=10_000, min_importance=0.0)
        assert {hit.entry.id for hit in found} == held
