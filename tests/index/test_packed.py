"""Packed rows: a process that reads them answers as one that fills its rows from the log, and believes nothing else."""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refold import Memory, Project, StoreCorrupt
from refold.engine.packed import packed_rows_key
from refold.engine.streams import (
    number_key,
)
from refold.index.packed import UnfitRows, pack, unpack
from refold.index.project import ProjectIndex
from refold.log.protocol import write
from refold.log.record import EventBytes
from tests.index.test_index import DIMENSIONS, add, answers, changed, told
from tests.support.bounds import lowered
from tests.support.seams import log_of, reader_of

NOW_NS = 2 * 10**18
KEY = packed_rows_key(1)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Where a store may be whose projects have packed rows, however small they are."""
    with lowered(PACKED_ROWS_MIN=1):
        yield tmp_path / "store"


def filled(path: Path, count: int = 40, seed: int = 1) -> bytes:
    """Fills a store and searches it; returns the packed rows that it keeps."""
    draw = random.Random(seed)
    with Memory(path) as memory:
        for _ in range(count):
            add(memory.project("p"), draw)
        asked(memory.project("p"))
    return block_of(path)


def asked(project: Project) -> list[Any]:
    query = np.linspace(-1, 1, DIMENSIONS)
    return told(project.search("tea milk", vector=query, now=NOW_NS, top_k=30))


def block_of(path: Path) -> bytes:
    with Memory(path, readonly=True) as memory:
        block = log_of(memory).row("graphs", KEY)
    assert block is not None
    return block


def put(path: Path, block: bytes | None, key: bytes = KEY) -> None:
    with Memory(path) as memory:
        write(log_of(memory), (), [("graphs", key, block)])


def strip(path: Path) -> None:
    """Takes all packed rows out of a store."""
    with Memory(path) as memory:
        keys = [key for key, _ in log_of(memory).rows("graphs", b"", 100) if key.endswith(KEY[4:])]
        write(log_of(memory), (), [("graphs", key, None) for key in keys])


def rows_of(memory: Memory, name: str = "project/p") -> ProjectIndex:
    """The rows of a project that was searched."""
    slot = reader_of(memory).find(name)
    assert slot is not None
    assert slot.index is not None
    return slot.index


def everything(path: Path, seqs: list[int]) -> list[Any]:
    """What a project says in a process that begins with a search, of the present, of the past and in a branch."""
    seen: list[Any] = []
    with Memory(path, readonly=True) as memory:
        seen.append(asked(memory.project("p")))
        seen.append(answers(memory.project("p"), NOW_NS))
        seen += [asked(memory.at(seq).project("p")) for seq in seqs]
        seen += [asked(memory.fork(name).project("p")) for name in memory.forks()]
    return seen


def is_unpacked(path: Path) -> bool:
    with Memory(path, readonly=True) as memory:
        asked(memory.project("p"))
        return rows_of(memory).packed_seq > 0


@pytest.mark.parametrize("seed", range(6))
def test_a_search_says_what_it_says_without_packed_rows(seed: int, path: Path, tmp_path: Path) -> None:
    draw = random.Random(1_000 + seed)
    filled(path, 20, seed)
    used, seqs = 0, list[int]()
    for session in range(8):
        with Memory(path) as memory:
            project = memory.project("p")
            if draw.random() < 0.5:
                asked(project)
            for _ in range(draw.randrange(12)):
                changed(project, draw)
                if draw.random() < 0.2:
                    answers(project, NOW_NS)
            seqs.append(memory.head)
            if session > 1:
                changed(memory.fork("branch").project("p"), draw)
                asked(memory.fork("branch").project("p"))
            if session == 3 and project.list():
                memory.erase([draw.choice(project.list())])
        plain = tmp_path / f"plain {session}"
        shutil.copytree(path, plain)
        strip(plain)
        is_used = is_unpacked(path)
        used += is_used
        assert not is_unpacked(plain)
        assert everything(path, seqs) == everything(plain, seqs)
        with Memory(path) as memory:  # And when it goes on from there.
            changed(memory.project("p"), random.Random(1_000 * seed + 100 + session))
            seen = answers(memory.project("p"), NOW_NS)
        with Memory(plain) as memory:
            changed(memory.project("p"), random.Random(1_000 * seed + 100 + session))
            assert len(answers(memory.project("p"), NOW_NS)) == len(seen)
        with Memory(path) as memory:
            assert answers(memory.project("p"), NOW_NS) == seen
            assert memory.verify().ok
    assert used > 4


def test_rows_that_were_read_packed_follow_every_event(path: Path) -> None:
    filled(path)
    draw = random.Random(5)
    with Memory(path) as memory:
        project = memory.project("p")
        asked(project)
        index = rows_of(memory)
        for _ in range(60):
            changed(project, draw)
            told_here = answers(project, NOW_NS)
            assert rows_of(memory) is index or index.is_worn
            reader_of(memory).index.forget()
            assert answers(project, NOW_NS) == told_here
            index = rows_of(memory)


@pytest.mark.parametrize("kind", ["flipped", "cut", "empty", "of another store", "of another project", "later"])
def test_rows_that_do_not_fit_are_filled_from_the_log(kind: str, path: Path, tmp_path: Path) -> None:
    block = filled(path)
    with Memory(path) as memory:
        expected = asked(memory.project("p"))
    others: dict[str, Callable[[], bytes]] = {
        "flipped": lambda: (
            block[: len(block) // 2] + bytes([block[len(block) // 2] ^ 1]) + block[len(block) // 2 + 1 :]
        ),
        "cut": lambda: block[: len(block) // 2],
        "empty": lambda: b"",
        "of another store": lambda: filled(tmp_path / "other"),
        "of another project": lambda: relabelled(block, name="other"),
        "later": lambda: relabelled(block, seq=10_000),
    }
    put(path, others[kind]())
    is_damaged = kind in {"flipped", "cut", "empty", "later"}
    with Memory(path) as memory:
        findings = memory.verify().findings
        assert [(each.check, each.fault) for each in findings] == ([("graphs", "cache")] if is_damaged else [])
        assert asked(memory.project("p")) == expected
        assert not rows_of(memory).packed_seq
    assert is_unpacked(path), "they are stored anew"
    with Memory(path) as memory:
        assert memory.verify().ok
        assert asked(memory.project("p")) == expected


def relabelled(block: bytes, **changes: Any) -> bytes:
    packed = unpack(block)
    return pack(packed.values | changes, packed.arrays)


def test_rows_of_no_stream_are_found(path: Path) -> None:
    block = filled(path)
    put(path, block, packed_rows_key(77))
    with Memory(path) as memory:
        (finding,) = memory.verify().findings
    assert (finding.check, finding.seq, finding.fault) == ("graphs", 0, "cache")


def test_any_byte_that_changed_is_noticed() -> None:
    block = pack({"seq": 7}, {"ids": np.arange(9, dtype=np.uint8), "matrix": np.eye(3, dtype=np.float32)})
    packed = unpack(block)
    assert packed.values == {"seq": 7}
    assert [array.tolist() for array in packed.arrays.values()] == [list(range(9)), np.eye(3).tolist()]
    for place in range(len(block)):
        with pytest.raises(UnfitRows):
            unpack(block[:place] + bytes([block[place] ^ 255]) + block[place + 1 :])
        with pytest.raises(UnfitRows):
            unpack(block[:place])


def test_they_are_stored_once_much_changed_and_by_nobody_who_only_reads(path: Path) -> None:
    first = filled(path)
    with Memory(path) as memory:
        project = memory.project("p")
        asked(project)
        add(project, random.Random(3))
    assert block_of(path) == first, "one change in forty is no eighth"
    with Memory(path, readonly=True) as memory:
        asked(memory.project("p"))
    assert block_of(path) == first
    with Memory(path) as memory:
        project = memory.project("p")
        asked(project)
        for number in range(6):
            add(project, random.Random(number))
    assert block_of(path) != first
    assert is_unpacked(path)


def test_a_large_project_has_none(path: Path) -> None:
    with lowered(PACKED_ROWS_BYTES_MAX=1_000), Memory(path) as memory:
        for number in range(40):
            add(memory.project("p"), random.Random(number))
        asked(memory.project("p"))
    with Memory(path) as memory:
        assert log_of(memory).row("graphs", KEY) is None
        assert log_of(memory).row("graphs", number_key(1)) is None


def test_a_first_search_reads_the_memories_that_it_finds_and_no_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path, 200)
    with Memory(path) as memory:
        read = list[int]()
        reader = reader_of(memory)
        events_at = reader.log.events_at

        def counted(seqs: Sequence[int]) -> list[EventBytes]:
            read.extend(seqs)
            return events_at(seqs)

        monkeypatch.setattr(reader.log, "events_at", counted)
        assert len(memory.project("p").search("tea milk", vector=np.linspace(-1, 1, DIMENSIONS))) == 10
    assert len(read) < 20


def test_nothing_erased_stands_in_them(path: Path) -> None:
    with Memory(path) as memory:
        project = memory.project("p")
        for number in range(30):
            add(project, random.Random(number))
        secret = project.add("xylophonic zanzibar", vector=[0.123456789] * DIMENSIONS, keywords=["quixotry"])
        fork = memory.fork("branch").project("p")
        add(fork, random.Random(31))
        asked(project)
        asked(fork)
    words = [b"xylophon", b"zanzibar", np.full(4, 0.25, np.float32).tobytes()]
    with Memory(path, readonly=True) as memory:
        blocks = [block for key, block in log_of(memory).rows("graphs", b"", 100) if key.endswith(KEY[4:])]
    assert [[word in block for word in words] for block in blocks] == [[True] * 3] * 2, "they have it before"
    with Memory(path) as memory:
        memory.erase([memory.project("p").get(secret.id)])
        asked(memory.project("p"))
        asked(memory.fork("branch").project("p"))
    content = b"".join(file.read_bytes() for file in path.iterdir() if file.is_file())
    assert not any(word in content for word in [*words, b"quixotry"])
    with Memory(path) as memory:
        assert memory.verify().ok


def test_damage_of_a_state_that_is_read_later_is_reported(path: Path) -> None:
    filled(path)
    with Memory(path) as memory:
        ((key, row),) = log_of(memory).rows("checkpoints", number_key(1), 1)
        place = row.index(b"fact")
        write(log_of(memory), (), [("checkpoints", key, row[:place] + b"\xff" + row[place + 1 :])])
    with Memory(path, readonly=True) as memory, pytest.raises(StoreCorrupt):
        memory.project("p").list()
