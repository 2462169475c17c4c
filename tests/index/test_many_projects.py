"""Many projects in one store: what is searched stays within ``memory_bytes``, cold projects leave RAM and come back."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from refold.index.index import Indexes
from tests.index.scan import texts_like
from tests.support.bounds import lowered
from tests.support.seams import engine_of, reader_of

DIMENSIONS = 32
MEMORIES = 40
MIB = 1024**2
BESIDE_BYTES = 48 * MIB
"""What a commit and the free room of the heap may take beside what ``memory_bytes`` bounds.

Pages of the file, which the system maps and takes back as it likes, are not counted: the more it has to spare, the more
of the file stays mapped.
"""

CHILD = """
import json, random, sys, time
from pathlib import Path
from array import array
from refold import Memory

path, durability, (projects, memories, dimensions, memory_bytes) = *sys.argv[1:3], map(int, sys.argv[3:])
draw = random.Random(5)

peak_bytes = 0

def look():
    global peak_bytes
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:"))
    peak_bytes = max(peak_bytes, int(line.split()[1]) * 1024)

def vector():
    return array("f", (draw.gauss(0.0, 1.0) for _ in range(dimensions)))

def search(memory, number):
    begin = time.perf_counter_ns()
    ranking = draw.choice(["seed", "window"])
    hits = memory.project(f"p{number}").search("memory about thing 5", vector=asked, ranking=ranking)
    look()
    assert len(hits) == min(10, memories), number
    return time.perf_counter_ns() - begin

known, asked = [vector() for _ in range(500)], vector()
with Memory() as memory:
    memory.project("p0").add("warm", vector=asked)
    memory.project("p0").search("warm", vector=asked, ranking="window")
look()
base_bytes = peak_bytes
with Memory(path, memory_bytes=memory_bytes, durability=durability) as memory:
    for number in range(projects):
        with memory.batch():
            for place in range(memories):
                text = f"memory {place} of project {number} about thing {place % 97}"
                memory.project(f"p{number}").add(text, vector=draw.choice(known))
            look()
        look()
    filled_bytes = peak_bytes
with Memory(path, memory_bytes=memory_bytes) as memory:
    cold_ns = [search(memory, number) for number in draw.sample(range(projects), min(projects, 1_000))]
    warm_ns = [search(memory, 7) for _ in range(50)]
    similarity = memory._core.engine.reader.indexes
    held_bytes, in_ram = similarity.nbytes + memory._core.engine.reader.streams.bytes, len(similarity._projects)
    count = sum(memory.project(f"p{number}").count() for number in range(0, projects, max(1, projects // 100)))
print(json.dumps({
    "base_bytes": base_bytes, "filled_bytes": filled_bytes, "peak_bytes": peak_bytes, "held_bytes": held_bytes,
    "in_ram": in_ram, "cold_ns": sorted(cold_ns)[len(cold_ns) // 2], "warm_ns": sorted(warm_ns)[25], "count": count,
}))
"""

SLOW_DISK = """
import time
from refold.log import delayed

delayed.TAIL_BYTES_MAX, flush = 4 * 1024**2, delayed.DelayedLog._flush_tail

def late(log):
    time.sleep(1.0)
    flush(log)

delayed.DelayedLog._flush_tail = late
"""

CHILD_RENEWED = """
import json, sys
from pathlib import Path
from refold import Memory

path, projects, memories, text_bytes, memory_bytes = sys.argv[1], *map(int, sys.argv[2:])
if memory_bytes == 0:
    with Memory(path, durability="delayed") as memory:
        for number in range(projects):
            with memory.batch():
                for place in range(memories):
                    text = f"{number} {place} ".ljust(text_bytes, "x")
                    memory.project(f"p{number}").add(text, vector=[1.0, 2.0], keywords=())
    print("{}")
    sys.exit()

held_bytes = []

class Lengths:
    id, dim = "lengths", 2

    def embed(self, texts):
        (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:"))
        held_bytes.append(int(line.split()[1]) * 1024)
        return [[float(len(text)), float(text.count("1")) + 1.0] for text in texts]

with Memory() as memory:
    memory.project("p0").add("warm", vector=[1.0, 2.0])
    memory.reembed(Lengths())
with Memory(path, memory_bytes=memory_bytes) as memory:
    made = memory.reembed(Lengths())
print(json.dumps({
    "taken_bytes": max(held_bytes) - held_bytes[0], "vectors": made.vectors, "projects": made.projects,
}))
"""


def measured(child: str, place: Path, *arguments: object) -> dict[str, int]:
    """What a process of its own tells, that works on the store of this place."""
    command = [sys.executable, "-c", child, str(place / "store"), *map(str, arguments)]
    found: dict[str, int] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def fill(memory: Memory, projects: int) -> None:
    vectors = texts_like(MEMORIES, DIMENSIONS, 1)
    for number in range(projects):
        with memory.batch():
            for place, vector in enumerate(vectors):
                memory.project(f"p{number}").add(f"memory {place} of {number}", vector=vector)


def told(memory: Memory, number: int, ranking: str = "seed") -> list[Any]:
    hits = memory.project(f"p{number}").search("memory 3", vector=[1.0] * DIMENSIONS, now=0, ranking=ranking)
    return [(hit.entry, hit.score, hit.parts) for hit in hits]


def held_bytes(memory: Memory) -> int:
    engine = engine_of(memory)
    return engine.reader.streams.bytes + engine.reader.indexes.nbytes


def similarity_of(memory: Memory) -> Indexes:
    return reader_of(memory).indexes


@pytest.mark.parametrize("ranking", ["seed", "window"])
def test_rows_and_streams_share_one_bound(tmp_path: Path, ranking: str) -> None:
    bound = MIB
    with lowered(EVICTED_COUNT_MIN=2), Memory(tmp_path / "store", memory_bytes=bound, durability="delayed") as memory:
        fill(memory, 40)
        first = {number: told(memory, number, ranking) for number in range(40)}
        assert 1 < len(similarity_of(memory)._projects) < 20
        assert held_bytes(memory) <= bound + bound // 8
        memory.project("p1").add("one more", vector=[1.0] * DIMENSIONS)
        again = {number: told(memory, number, ranking) for number in range(2, 40)}
        assert again == {number: first[number] for number in again}
        assert held_bytes(memory) <= bound + bound // 8


def test_texts_that_are_compared_and_memories_count(tmp_path: Path) -> None:
    with Memory(tmp_path / "store", durability="delayed") as memory:
        fill(memory, 1)
        told(memory, 0)
        alone = similarity_of(memory).nbytes
        assert alone >= MEMORIES * (4 * DIMENSIONS + 1_000)
        told(memory, 0, "window")
        told(memory, 0, "window")
        assert similarity_of(memory).nbytes >= alone + MEMORIES * 500


def test_what_is_searched_again_and_again_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled: list[Any] = []
    fill_one = Indexes.fill

    def noted(similarity: Indexes, missing: Any) -> None:
        filled.append(missing.key)
        fill_one(similarity, missing)

    monkeypatch.setattr(Indexes, "fill", noted)
    with Memory(tmp_path / "store", memory_bytes=2 * MIB, durability="delayed") as memory:
        fill(memory, 40)
        hot = reader_of(memory).find("project/p0")
        assert hot is not None
        for number in range(1, 40):
            told(memory, 0)
            told(memory, number)
        assert len(similarity_of(memory)._projects) < 30, "nothing had to leave"
        assert filled.count(hot.number) == 1
        assert len(filled) == 40


def test_a_project_that_grows_makes_others_leave(tmp_path: Path) -> None:
    with Memory(tmp_path / "store", memory_bytes=3 * MIB, durability="delayed") as memory:
        fill(memory, 12)
        for number in range(12):
            told(memory, number)
        assert len(similarity_of(memory)._projects) == 12
        vectors = texts_like(1_000, DIMENSIONS, 2)
        with memory.batch():
            for place, vector in enumerate(vectors):
                memory.project("p11").add(f"grown {place}", vector=vector)
        told(memory, 11)
        assert len(similarity_of(memory)._projects) < 12
        assert similarity_of(memory).nbytes <= 3 * MIB // 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("projects", "memories", "bound"),
    [
        pytest.param(1_000, 50, 16 * MIB, id="fifty thousand"),
        pytest.param(10_000, 100, 64 * MIB, id="a million", marks=[pytest.mark.soak, pytest.mark.timeout(3_600)]),
    ],
)
def test_a_process_with_many_projects_stays_within_its_bound(
    tmp_path: Path, projects: int, memories: int, bound: int
) -> None:
    """Beside what it took before anything was there; without a bound the first takes 124 MiB."""
    numbers = [projects, memories, 128, bound]
    found = measured(CHILD, tmp_path, "durable", *numbers)
    assert found["held_bytes"] <= bound * 9 // 8, found
    assert found["filled_bytes"] - found["base_bytes"] <= bound + BESIDE_BYTES, found
    assert found["peak_bytes"] - found["base_bytes"] <= bound + BESIDE_BYTES, found
    assert 1 <= found["in_ram"] < projects // 2, found
    assert found["count"] == memories * len(range(0, projects, max(1, projects // 100)))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_waits_for_a_slow_disk_is_bounded(tmp_path: Path) -> None:
    """The tail, and as much again while it is written; where 32 MiB may wait, this takes 58."""
    bound = 16 * MIB
    found = measured(SLOW_DISK + CHILD, tmp_path, "delayed", 1_000, 50, 128, bound)
    assert found["filled_bytes"] - found["base_bytes"] <= bound + BESIDE_BYTES // 2, found
    assert found["count"] == 50 * 100


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_embedding_anew_stays_within_the_bound(tmp_path: Path) -> None:
    """The texts are 98 MiB in all; those of one project at a time are held. Filled elsewhere, for the heap's sake."""
    projects, memories, bound = 500, 50, 16 * MIB
    measured(CHILD_RENEWED, tmp_path, projects, memories, 4_096, 0)
    found = measured(CHILD_RENEWED, tmp_path, projects, memories, 4_096, bound)
    assert (found["vectors"], found["projects"]) == (projects * memories, projects)
    assert found["taken_bytes"] <= bound + BESIDE_BYTES, found


def test_cold_projects_are_found_whatever_order_they_are_asked_in(tmp_path: Path) -> None:
    draw = random.Random(6)
    with Memory(tmp_path / "store", memory_bytes=MIB, durability="delayed") as memory:
        fill(memory, 12)
        first = {number: told(memory, number) for number in range(12)}
        for _ in range(60):
            number = draw.randrange(12)
            assert told(memory, number) == first[number]
