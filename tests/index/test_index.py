"""Projects on their shelves: told of every event they answer as if they were filled anew, and graphs outlive them."""

import gc
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refold import Hits, Memory, Project
from refold.engine.streams import number_key
from refold.evaluation.retrieval import BASELINES
from refold.index import index
from refold.index.index import Indexes
from refold.index.project import ProjectIndex
from refold.index.ranking import Ranking
from refold.index.table import Crossover, VectorTable
from refold.log.protocol import write
from refold.memory import search as searches
from tests.index.scan import needs_hnswlib, texts_like
from tests.support.bounds import Clock
from tests.support.seams import log_of, reader_of
from tests.support.threads import alive

DAY_NS = 86_400 * 10**9
DIMENSIONS = 16
WORDS = ("tea", "milk", "port", "oak", "rain", "snow")
RANKINGS: tuple[str | Ranking, ...] = (
    *("seed", "browse", "window"),
    *(BASELINES[name] for name in ("seed-exponential", "bm25", "cosine")),
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def vector(draw: random.Random) -> list[float]:
    return [draw.gauss(0, 1) for _ in range(DIMENSIONS)]


def text(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=3)) + f" {draw.randrange(10**6)}"


def told(hits: Hits) -> list[Any]:
    return [(hit.entry, hit.score, hit.parts) for hit in hits]


def answers(project: Project, now_ns: int) -> list[Any]:
    """What all rankings and filters say of a project."""
    options: list[dict[str, Any]] = [{"ranking": ranking} for ranking in RANKINGS]
    options += [{"categories": ["pattern"]}, {"statuses": None}, {"min_importance": 0.5}, {"metadata": {"m": 1}}]
    options += [{"explain": True}]
    query = np.linspace(-1, 1, DIMENSIONS)
    return [told(project.search("tea milk", vector=query, now=now_ns, top_k=30, **given)) for given in options]


VERBS: dict[str, Callable[[Project, str, random.Random], object]] = {
    "importance": lambda project, held, draw: project.update(held, importance=draw.random()),
    "category": lambda project, held, draw: project.update(held, category=draw.choice(["pattern", "fact"])),
    "keywords": lambda project, held, draw: project.update(held, keywords=draw.choices(WORDS, k=2)),
    "metadata": lambda project, held, draw: project.update(held, metadata={"m": draw.randrange(2)}),
    "content": lambda project, held, draw: project.update(held, content=text(draw), vector=vector(draw)),
    "delete": lambda project, held, _: project.delete(held),
    "archive": lambda project, held, _: project.archive(held),
    "recall": lambda project, _, draw: project.recall(draw.choice(WORDS), vector=vector(draw), top_k=3),
    "upsert": lambda project, _, draw: project.upsert(text(draw), vector=vector(draw), threshold=0.2),
    "prune": lambda project, _, __: project.prune(0.1),
    "decay": lambda project, _, __: project.decay(),
    "add": lambda project, _, draw: add(project, draw),
}


def add(project: Project, draw: random.Random) -> object:
    return project.add(
        text(draw), vector=vector(draw), importance=draw.random(), metadata={"m": draw.randrange(2)}, source="s"
    )


def changed(project: Project, draw: random.Random) -> None:
    """Does something to a project."""
    held = [entry.id for entry in project.list()]
    verb = draw.choice([*VERBS, "add", "add"]) if held else "add"
    VERBS[verb](project, draw.choice(held) if held else "", draw)


def stocks(memory: Memory) -> Indexes:
    return reader_of(memory).indexes


@pytest.mark.parametrize("seed", range(2))
def test_rows_that_were_told_of_every_event_answer_like_rows_that_are_filled_anew(seed: int, clock: Clock) -> None:
    draw = random.Random(seed)
    memory = Memory(clock_ns=clock)
    project = memory.project("p")
    for _ in range(12):
        add(project, draw)
    seen: dict[int, list[Any]] = {}
    now_ns = reader_of(memory).now_ns() + 30 * DAY_NS
    for step in range(60):
        changed(project, draw)
        clock.time_ns += DAY_NS // 4
        if step == 30:
            unmerge_one(project)
        seen[memory.head] = answers(project, now_ns)
    assert any(seen.values())
    for seq, found in seen.items():
        assert answers(memory.at(seq).project("p"), now_ns) == found
    reader_of(memory).index.forget()
    for seq, found in seen.items():
        assert answers(memory.at(seq).project("p"), now_ns) == found


def unmerge_one(project: Project) -> None:
    merges = [
        recorded.stamp.seq for recorded in project.events() if recorded.event.__class__.__name__ == "MemoryMerged"
    ]
    held = {entry.id for entry in project.list()}
    for seq in reversed(merges):
        event = next(recorded.event for recorded in project.events() if recorded.stamp.seq == seq)
        if getattr(event, "id") in held:  # noqa: B009 - an event of one kind
            project.unmerge(seq)
            return


def test_an_earlier_moment_comes_from_the_rows_that_are_there(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(clock_ns=clock)
    project = memory.project("p")
    draw = random.Random(1)
    add(project, draw)
    project.search("tea", vector=vector(draw))
    for _ in range(20):
        add(project, draw)
    made: list[ProjectIndex] = []
    monkeypatch.setattr(ProjectIndex, "fill", lambda index, *_: made.append(index))
    assert (
        len(memory.at(9).project("p").search("tea", vector=vector(draw), ranking="seed", min_importance=0, top_k=50))
        == 9
    )
    assert made == []


def test_forks_and_restores_have_the_rows_of_their_own_memories(clock: Clock) -> None:
    memory = Memory(clock_ns=clock)
    project = memory.project("p")
    draw = random.Random(2)
    for _ in range(10):
        add(project, draw)
    now_ns, head = reader_of(memory).now_ns(), memory.head
    before = answers(project, now_ns)
    fork = memory.fork("f")
    assert answers(fork.project("p"), now_ns) == before
    add(fork.project("p"), draw)
    project.delete(project.list()[0])
    assert len(fork.project("p").search("", min_importance=0, top_k=50)) == 11
    assert len(project.search("", min_importance=0, top_k=50)) == 9
    memory.restore(memory.at(head).snapshot())
    assert answers(project, now_ns) == before


def test_a_batch_searches_what_it_has_added(clock: Clock) -> None:
    memory = Memory(clock_ns=clock)
    project = memory.project("p")
    draw = random.Random(3)
    for _ in range(10):
        add(project, draw)
    with memory.batch():
        for number in range(5):
            add(project, draw)
            project.delete(project.list()[0])
            assert len(project.search("", min_importance=0, top_k=50)) == 10, number
    assert len(project.search("", min_importance=0, top_k=50)) == 10


def test_cold_projects_leave_and_come_back(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(clock_ns=clock)
    monkeypatch.setattr(stocks(memory)._projects, "_bytes_max", 1)
    draw = random.Random(4)
    now_ns = reader_of(memory).now_ns() + DAY_NS
    for name in "abc":
        for _ in range(5):
            add(memory.project(name), draw)
    first = {name: answers(memory.project(name), now_ns) for name in "abc"}
    assert len(stocks(memory)._projects) == 1
    for name in "abc":
        add(memory.project(name), draw)
        memory.project(name).delete(memory.project(name).list()[-1])
    assert {name: answers(memory.project(name), now_ns) for name in "abc"} == first


def test_searches_beside_writers_see_one_state(clock: Clock) -> None:
    memory = Memory(clock_ns=clock)
    project = memory.project("p")
    draw = random.Random(5)
    for _ in range(40):
        add(project, draw)
    is_over = threading.Event()

    def write() -> None:
        other = random.Random(6)
        for _ in range(150):
            project.add(text(other), vector=vector(other))
            project.delete(project.list()[0])
            project.recall("tea", vector=vector(other))
        is_over.set()

    def search(place: int) -> None:
        other = random.Random(place)
        while not (is_over.is_set() or writing.done()):
            ranking = other.choice(RANKINGS)
            hits = project.search("tea", vector=vector(other), ranking=ranking, min_importance=0, top_k=100)
            assert len(hits) in {40, 41}
            assert len({hit.entry.id for hit in hits}) == len(hits)

    with ThreadPoolExecutor(4) as pool:
        writing = pool.submit(write)
        searching = [pool.submit(search, place) for place in range(3)]
        assert [done.result() for done in (writing, *searching)] == [None] * 4


@pytest.mark.parametrize("is_past", [False, True])
def test_a_search_that_holds_the_state_lock_does_not_wait_for_one_that_needs_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, *, is_past: bool
) -> None:
    memory = Memory(clock_ns=clock)
    project = memory.project("p")
    draw = random.Random(5)
    for _ in range(20):
        add(project, draw)
    looked = memory.at(memory.head).project("p") if is_past else project
    if is_past:
        add(project, draw)
    vectors = vector(draw)
    filling, locked = threading.Event(), threading.Event()
    fill, state_lock = Indexes._fill_index, reader_of(memory).state_lock  # pyright: ignore[reportPrivateUsage]

    def fill_slowly(indexes: Any, request: Any) -> Any:
        if threading.current_thread().name != "without the lock":
            locked.set()
            return fill(indexes, request)
        filling.set()
        locked.wait(10)
        with state_lock:
            return fill(indexes, request)

    monkeypatch.setattr(Indexes, "_fill_index", fill_slowly)
    results: dict[str, int] = {}

    def search() -> None:
        hits = looked.search("tea", vector=vectors, min_importance=0, top_k=100)
        results[threading.current_thread().name] = len(hits)

    names = ("without the lock", "with the lock")
    searching = [threading.Thread(target=search, name=name, daemon=True) for name in names]
    searching[0].start()
    assert filling.wait(10)
    monkeypatch.setattr(searches, "FILLS_COUNT_MAX", 0)  # As if other writers had outrun the reader three times.
    searching[1].start()
    for thread in searching:
        thread.join(60)
    assert results == dict.fromkeys(names, 20)


# Graphs.


def grown(path: Path, count: int = 300) -> bytes:
    """Fills a store, lets its graph be built and stored, and returns it."""
    with Memory(path) as memory:
        project = memory.project("p")
        vectors = texts_like(count, DIMENSIONS, 8)
        with memory.batch():
            for number in range(count):
                project.add(f"number {number}", vector=vectors[number])
        grow(memory)
    with Memory(path, readonly=True) as memory:
        return graph_of(memory)


def grow(memory: Memory) -> None:
    memory.project("p").search("x", vector=[1.0] * DIMENSIONS, approximate=True)
    shelf_of(memory).builder.wait()


def shelf_of(memory: Memory) -> VectorTable:
    """The shelf of a project that was searched."""
    slot = reader_of(memory).find("project/p")
    assert slot is not None
    assert slot.index is not None
    return slot.index.table


def graph_of(memory: Memory) -> bytes:
    slot = reader_of(memory).find("project/p")
    assert slot is not None
    blob = log_of(memory).row("graphs", number_key(slot.number))
    assert blob is not None
    return blob


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a store may be whose projects have graphs, however small they are."""
    monkeypatch.setattr(index, "_MEASURED", Crossover(1, 1))
    yield tmp_path / "store"
    gc.collect()
    assert alive("refold-graph") == []


def found(memory: Memory) -> list[Any]:
    draw = random.Random(9)
    return [told(memory.project("p").search("number", vector=vector(draw), now=0, approximate=True)) for _ in range(10)]


@needs_hnswlib
def test_a_graph_is_stored_and_used_when_the_store_is_opened_again(store: Path) -> None:
    grown(store)
    with Memory(store) as memory:
        before = found(memory)
        shelf = shelf_of(memory)
        assert shelf.view().graph is not None
        project = memory.project("p")
        for entry in project.list()[:20]:
            project.delete(entry)
        project.update(project.list()[0], keywords=["other"])
        project.add("fresh", vector=[1.0] * DIMENSIONS)
        after = found(memory)
        assert after != before
    with Memory(store) as memory:
        assert found(memory) == after
        assert shelf_of(memory).view().graph is not None
        assert shelf_of(memory).builder.builds_count == 1


@needs_hnswlib
def test_a_graph_that_has_grown_is_stored_with_the_next_commit(store: Path) -> None:
    grown(store)
    with Memory(store) as memory:
        first = graph_of(memory)
        found(memory)
        project = memory.project("p")
        vectors = texts_like(2_700, DIMENSIONS, 11)
        with memory.batch():
            for number, packed in enumerate(vectors):
                project.add(f"later {number}", vector=packed)
        grow(memory)
        found(memory)
        assert graph_of(memory) == first
        project.add("one more", vector=[1.0] * DIMENSIONS)
        assert graph_of(memory) != first


def mangled(blob: bytes, kind: str) -> bytes:
    if kind == "cut":
        return blob[: len(blob) // 2]
    if kind == "empty":
        return b""
    flipped = bytearray(blob)
    flipped[len(blob) // 2] ^= 1
    return bytes(flipped)


@needs_hnswlib
@pytest.mark.parametrize("kind", ["flipped", "cut", "empty", "foreign"])
def test_a_graph_that_does_not_fit_is_built_anew(store: Path, tmp_path: Path, kind: str) -> None:
    blob = grown(store)
    other = grown(tmp_path / "other") if kind == "foreign" else mangled(blob, kind)
    with Memory(store) as memory:
        write(log_of(memory), (), [("graphs", number_key(1), other)])
        told_of = [(finding.check, "number 1" in finding.message) for finding in memory.verify().findings]
        assert told_of == ([] if kind == "foreign" else [("graphs", True)])
        expected = found(memory)
        shelf_of(memory).builder.wait()
        assert shelf_of(memory).builder.builds_count == 1
    with Memory(store) as memory:
        assert graph_of(memory) != other
        assert found(memory) == expected
        assert memory.verify().ok


@needs_hnswlib
def test_a_graph_of_no_stream_is_found(store: Path) -> None:
    blob = grown(store)
    with Memory(store) as memory:
        write(log_of(memory), (), [("graphs", number_key(7), blob)])
        (finding,) = memory.verify().findings
        assert (finding.check, finding.seq) == ("graphs", 0)


CHILD = """
import sys
from refold import Memory
with Memory(sys.argv[1]) as memory:
    project = memory.project("p")
    project.delete(project.list()[0])
    project.add("of the child", vector=[1.0] * 16)
    print(project.search("x", vector=[1.0] * 16, approximate=True)[0].entry.content)
"""


@needs_hnswlib
def test_two_processes_use_one_graph(store: Path) -> None:
    grown(store)
    with Memory(store) as memory:
        found(memory)
        done = subprocess.run([sys.executable, "-c", CHILD, str(store)], capture_output=True, text=True, check=True)
        assert done.stdout == "of the child\n"
        (hit, *_) = memory.project("p").search("x", vector=[1.0] * DIMENSIONS, approximate=True)
        assert hit.entry.content == "of the child"
        expected = found(memory)
    with Memory(store) as memory:
        assert found(memory) == expected


@needs_hnswlib
def test_erasing_leaves_no_vector_in_rows_graphs_or_free_pages(store: Path) -> None:
    grown(store)
    with Memory(store) as memory:
        project = memory.project("p")
        found(memory)
        direction = [0.1234567 * (1 + number) * (-1) ** number for number in range(DIMENSIONS)]
        secret = project.add("a secret thing", vector=direction)
        merged = project.upsert("more of it", vector=direction)
        assert (merged.outcome, merged.entry.id) == ("merged", secret.id)  # type: ignore[union-attr]
        grow(memory)
        memory.flush()
        events = [recorded.event for recorded in project.events()]
        vectors = [getattr(event, "vector", b"") for event in events[-2:]]
        assert all(len(packed) == 4 * DIMENSIONS for packed in vectors)
        receipt = memory.erase([secret.seq])
        assert receipt.occurrences == 0
        assert log_of(memory).row("graphs", number_key(1)) is None
        assert secret.id not in {hit.entry.id for hit in project.search("secret", vector=[0.1] * DIMENSIONS, top_k=400)}
    for file in store.iterdir():
        content = file.read_bytes()
        assert not [packed for packed in vectors if packed in content], file
        assert not [packed for packed in vectors if packed[:16] in content], file
