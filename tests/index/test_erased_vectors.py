"""Erasing reaches vectors: raw or of length 1, in graphs, checkpoint rows, free pages, and where forks share them."""

import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refold import Memory
from refold.index import index
from refold.index.table import Crossover
from tests.index.scan import needs_hnswlib, texts_like, unit
from tests.support.bounds import lowered
from tests.support.seams import engine_of, log_of, reader_of

DIMENSIONS = 16
COUNT = 60
SECRETS = 6
PIECE_BYTES = 16
LINKS_BYTES = 48
CONTEXT = "the excerpt that says where it came from"
SMALL = {"CHECKPOINT_EVENTS": 8, "PACKED_SLICE_COUNT": 4}
ALL = np.concatenate([texts_like(COUNT, DIMENSIONS, 21), texts_like(SECRETS, DIMENSIONS, 22)])


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a store may be whose projects have graphs, and rows under way, however small they are."""
    monkeypatch.setattr(index, "_MEASURED", Crossover(1, 1))
    with lowered(**SMALL):
        yield tmp_path / "store"


def pieces(packed: bytes) -> set[bytes]:
    """Parts that are long enough to stand nowhere by chance; one that survives alone is found as well."""
    found = {packed[begin : begin + PIECE_BYTES] for begin in range(0, len(packed) - PIECE_BYTES + 1, PIECE_BYTES)}
    return {piece for piece in found if len(set(piece)) > PIECE_BYTES // 2}


def content_of(directory: Path) -> bytes:
    """All bytes of a store's files; in another process: one that closes LMDB's lock file gives up its locks on it."""
    files = [str(file) for file in directory.rglob("*") if file.is_file()]
    return subprocess.run(["cat", *files], capture_output=True, check=True).stdout


def standing(directory: Path, wanted: Iterable[bytes]) -> list[bytes]:
    content = content_of(directory)
    return [piece for piece in wanted if piece in content]


def grow(memory: Memory) -> None:
    """Lets a graph be built over what is there, and stored."""
    memory.project("p").search("x", vector=ALL[0], approximate=True)
    indexes = reader_of(memory).indexes._projects.all()
    for held in indexes:
        held.table.builder.wait()
    memory.flush()


def fill(memory: Memory) -> list[int]:
    """Adds memories, and secret ones in every way in which an event can hold a vector; returns the seqs of those."""
    project = memory.project("p")
    for number, vector in enumerate(ALL[:COUNT]):
        project.add(f"harmless {number}", vector=vector)
    secrets = ALL[COUNT:]
    first = project.add("secret one", vector=secrets[0], source_context=CONTEXT, metadata={"about": CONTEXT})
    changed = project.add("harmless until it changed", vector=ALL[0])
    changed = project.update(changed, content="secret two", vector=secrets[1])
    taken = project.add("secret three", vector=secrets[2])
    merged = project.upsert("secret four", vector=secrets[2] * np.float32(1.5))
    assert merged.outcome == "merged"
    assert merged.seq is not None
    project.unmerge(merged.seq)
    unmerged_seq = memory.head
    episode = project.record_episode("success", task="secret task", vector=secrets[4])
    memory.flush()
    grow(memory)
    for number in range(20):
        project.update(project.list()[number], importance=0.9)
    seqs = [first.seq, changed.seq, taken.seq, merged.seq, unmerged_seq, episode.seq]
    return [seq for seq in seqs if seq is not None]


def vectors_in(memory: Memory, seqs: Iterable[int]) -> list[bytes]:
    wanted = set(seqs)
    events = [recorded.event for recorded in memory.events() if recorded.stamp.seq in wanted]
    return [packed for event in events if (packed := getattr(event, "vector", b""))]


def forms(vectors: Iterable[bytes]) -> set[bytes]:
    """Pieces of vectors as events hold them and as shelves do."""
    found: set[bytes] = set()
    for packed in vectors:
        found |= pieces(packed) | pieces(unit(np.frombuffer(packed, np.float32)).tobytes())
    return found


def blobs(memory: Memory) -> list[bytes]:
    return [blob for _, blob in log_of(memory).rows("graphs", b"", 100)]


def links_in(blob: bytes) -> set[bytes]:
    """Parts of a graph's links, which stand behind what names it and before its checksum."""
    middle = blob[len(blob) // 4 : -LINKS_BYTES]
    found = {middle[begin : begin + LINKS_BYTES] for begin in range(0, len(middle) - LINKS_BYTES, LINKS_BYTES)}
    return {part for part in found if len(set(part)) > LINKS_BYTES // 8}


def contexts(memory: Memory) -> bytes:
    return b"".join(row for _, row in log_of(memory).rows("checkpoints", b"", 10_000))


def in_fork_too(memory: Memory) -> Memory:
    """A fork with events, rows and a graph of its own behind what it inherited."""
    fork = memory.fork("f")
    for number in range(30):
        fork.project("p").add(f"of the fork {number}", vector=ALL[number] * np.float32(-1.0))
    grow(fork)
    return fork


def restored(memory: Memory) -> None:
    """What is erased comes back from an earlier moment."""
    head = memory.head
    memory.project("p").clear()
    grow_nothing(memory)
    memory.restore(memory.at(head).snapshot())
    grow(memory)


def grow_nothing(memory: Memory) -> None:
    assert len(memory.project("p").search("x", vector=ALL[0])) == 0
    memory.flush()


SHAPES: dict[str, Callable[[Memory], Any]] = {
    "alone": lambda _: None,
    "a fork that only reads": lambda memory: memory.fork("f").project("p").search("x", vector=ALL[0]),
    "a fork with its own": in_fork_too,
    "restored": restored,
}
WAYS: dict[str, Callable[[Memory, list[int]], Any]] = {
    "seqs": lambda memory, seqs: memory.erase(seqs),
    "project": lambda memory, _: memory.project("p").erase(forks="erase"),
}


@needs_hnswlib
@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", WAYS)
def test_no_byte_of_an_erased_vector_is_left_in_any_file(path: Path, shape: str, way: str) -> None:
    with Memory(path, durability="delayed") as memory:
        seqs = fill(memory)
        SHAPES[shape](memory)
        memory.flush()
        secret = forms(vectors_in(memory, seqs))
        graphs = {part for blob in blobs(memory) for part in links_in(blob)}
        assert CONTEXT.encode() in contexts(memory)
        raw = [piece for packed in vectors_in(memory, seqs) for piece in pieces(packed)]
        assert len(standing(path, raw)) == len(raw) >= 3 * SECRETS
        assert len(standing(path, graphs)) == len(graphs) >= COUNT // 4
        receipt = WAYS[way](memory, seqs)
        assert receipt.occurrences == 0
        assert set(seqs) <= {*receipt.seqs, *receipt.derived}
        for wanted in (secret, graphs, {CONTEXT.encode(), b"secret one", b"secret task"}):
            assert standing(path, wanted) == []
        assert blobs(memory) == []
        assert_nothing_comes_back(memory, way)
    assert standing(path, secret | {CONTEXT.encode()}) == []
    with Memory(path) as memory:
        assert_nothing_comes_back(memory, way)
        assert memory.verify().ok
    assert standing(path, secret | {CONTEXT.encode()}) == []


def assert_nothing_comes_back(memory: Memory, way: str) -> None:
    """Searches find what is left, by rows and graphs made anew, in the memory and in its fork."""
    everything: dict[str, Any] = {"top_k": 1_000, "min_importance": 0.0, "floor": 0.0}
    for one in (memory, *(memory.fork(name) for name in memory.forks())):
        project = one.project("p")
        for _ in range(2):
            found = {hit.entry.content for hit in project.search("secret", vector=ALL[COUNT], **everything)}
            assert not [content for content in found if content.startswith("secret")]
            assert len({content for content in found if content.startswith("harmless ")}) >= (way == "seqs") * COUNT
            grow(one)
        assert len(project.search_episodes("secret", vector=ALL[COUNT])) == 0


@needs_hnswlib
def test_erasing_while_a_graph_is_built_and_a_row_is_under_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is of what is left, so neither may reach the store later."""
    with Memory(path, durability="delayed") as memory:
        seqs = fill(memory)
        project = memory.project("p")
        engine = engine_of(memory)
        slot = engine.reader.find("project/p")
        assert slot is not None
        monkeypatch.setattr("refold.index.table.GRAPH_FRESH_ROWS_MIN", 1)
        while not engine.reader.packer.is_packing(slot):
            project.update(project.list()[0], importance=0.5 + memory.head / 10_000)
            assert memory.head < 5_000
        project.search("x", vector=ALL[1])
        secret = forms(vectors_in(memory, seqs)) | {CONTEXT.encode()}
        assert memory.erase(seqs).occurrences == 0
        for number in range(40):
            project.add(f"later {number}", vector=ALL[number] * np.float32(-1.0))
        grow(memory)
        assert standing(path, secret) == []
        assert memory.verify().ok
    assert standing(path, secret) == []
