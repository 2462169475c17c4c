"""Backups: stores with a manifest, taken beside every kind of writer, and without a byte of what is gone."""

import asyncio
import hashlib
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from refold import Closed, InvalidInput, Memory, NotFound, ReadOnly, RefoldError, recover
from refold.log import clean_copy
from refold.log.environment import Environment
from refold.results import Backup
from tests.engine.test_transfer import branch, fill
from tests.support.blanks import blank
from tests.support.memories import Child, Clock, assert_sound

SEED = 1


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with Memory(tmp_path / "store", clock_ns=Clock()) as memory:
        fill(memory)
        branch(memory)
    return tmp_path / "store"


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


class TestABackup:
    def test_is_a_store_with_all_that_the_memory_holds(self, source: Path, tmp_path: Path) -> None:
        with Memory(source) as memory:
            backup = memory.backup(tmp_path / "backup")
            hashes = {name: memory.fork(name).state_hash() for name in memory.forks()}
            assert (backup.head, backup.state_hash) == (memory.head, memory.state_hash())
            events = list(memory.events())
        with Memory(tmp_path / "backup", readonly=True) as copy:
            assert assert_sound(copy) == backup.state_hash
            assert {name: copy.fork(name).state_hash() for name in copy.forks()} == hashes
            assert list(copy.events()) == events
        with Memory(tmp_path / "backup") as copy:
            copy.profile().set("goes", "on")
            assert copy.head == backup.head + 1
            assert_sound(copy)

    def test_has_a_manifest_and_nothing_else_beside_its_data(self, source: Path, tmp_path: Path) -> None:
        with Memory(source, clock_ns=Clock()) as memory:
            backup = memory.backup(str(tmp_path / "backup"))
        assert names_in(tmp_path / "backup") == {"data.mdb", "backup.json"}
        data = (tmp_path / "backup" / "data.mdb").read_bytes()
        manifest = json.loads((tmp_path / "backup" / "backup.json").read_text(encoding="utf-8"))
        told = {field: getattr(backup, field) for field in Backup.__struct_fields__}
        assert told.pop("path") == str(tmp_path / "backup")
        assert manifest == {"format": 1, **told}
        assert (backup.data_bytes, backup.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert (backup.time_ns, len(bytes.fromhex(backup.link))) == (Clock()(), 32)
        assert names_in(tmp_path) == {"store", "backup"}

    def test_of_a_backup_says_the_same(self, source: Path, tmp_path: Path) -> None:
        with Memory(source, clock_ns=Clock()) as memory:
            first = memory.backup(tmp_path / "first")
        with Memory(tmp_path / "first", clock_ns=Clock(), readonly=True) as memory:
            second = memory.backup(tmp_path / "second")
        same = ("store", "head", "streams", "time_ns", "state_hash", "link")
        assert [getattr(first, field) for field in same] == [getattr(second, field) for field in same]

    def test_of_a_fork_is_of_the_whole_store(self, source: Path, tmp_path: Path) -> None:
        with Memory(source, clock_ns=Clock()) as memory:
            fork = memory.fork("what if")
            backup = fork.backup(tmp_path / "backup")
            assert backup.state_hash == memory.state_hash() != fork.state_hash()
        with Memory(tmp_path / "backup") as copy:
            assert copy.forks() == ["deeper", "what if"]

    def test_of_an_empty_store_is_empty(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            backup = memory.backup(tmp_path / "backup")
        assert (backup.head, backup.streams, backup.link) == (0, 0, "00" * 32)
        assert recover(tmp_path / "backup", tmp_path / "new").head == 0

    def test_keeps_who_may_read_the_file(self, source: Path, tmp_path: Path) -> None:
        (source / "data.mdb").chmod(0o600)
        with Memory(source) as memory:
            memory.backup(tmp_path / "backup")
        assert (tmp_path / "backup" / "data.mdb").stat().st_mode & 0o777 == 0o600

    def test_takes_the_place_of_an_empty_directory(self, source: Path, tmp_path: Path) -> None:
        (tmp_path / "backup").mkdir()
        with Memory(source) as memory:
            assert memory.backup(tmp_path / "backup").head == memory.head

    def test_tells_of_its_progress(self, source: Path, tmp_path: Path) -> None:
        told: list[tuple[int, int]] = []
        with Memory(source) as memory:
            memory.backup(tmp_path / "backup", lambda done, whole: told.append((done, whole)))
            assert told[-1] == (memory.head, memory.head)

    def test_from_a_loop_is_awaited(self, source: Path, tmp_path: Path) -> None:
        async def back_up() -> Backup:
            async with Memory(source).aio as memory:
                async with memory.batch():
                    with pytest.raises(InvalidInput, match="a backup inside a batch is refused"):
                        await memory.backup(tmp_path / "none")
                return await memory.backup(tmp_path / "backup")

        assert asyncio.run(back_up()).path == str(tmp_path / "backup")
        assert names_in(tmp_path) == {"store", "backup"}

    def test_holds_what_was_acknowledged_before_the_disk_had_it(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store", durability="delayed") as memory:
            for number in range(50):
                memory.conversation("chat").append("user", str(number), tokens=1)
            backup = memory.backup(tmp_path / "backup")
            assert (backup.head, backup.state_hash) == (51, memory.state_hash())

    def test_leaves_its_source_as_it_was(self, source: Path, tmp_path: Path) -> None:
        known = (source / "data.mdb").read_bytes()
        with Memory(source, readonly=True) as memory:
            assert memory.backup(tmp_path / "backup").head == memory.head
        recover(source, tmp_path / "new", to=9)
        assert (source / "data.mdb").read_bytes() == known


# Where it may not be.

TAKEN: dict[str, tuple[Callable[[Path], object], type[RefoldError], str]] = {
    "a file": (lambda top: (top / "target").write_text("x"), InvalidInput, "is there already"),
    "a full directory": (lambda top: (top / "target" / "x").mkdir(parents=True), InvalidInput, "an empty directory"),
    "a link to nowhere": (lambda top: (top / "target").symlink_to(top / "gone" / "x"), NotFound, "create it first"),
    "a store": (lambda top: Memory(top / "target").close(), InvalidInput, "never replaces anything"),
}


@pytest.mark.parametrize("what", TAKEN)
def test_nothing_is_ever_replaced(source: Path, tmp_path: Path, what: str) -> None:
    make, error, words = TAKEN[what]
    make(tmp_path)
    before = names_in(tmp_path)
    with Memory(source) as memory:
        with pytest.raises(error, match=words):
            memory.backup(tmp_path / "target")
        memory.profile().set("still", "writable")
    assert names_in(tmp_path) == before


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        ("store/backup", InvalidInput, "lies in the store at"),
        ("store/../store", InvalidInput, "lies in the store at"),
        ("alias/backup", InvalidInput, "lies in the store at"),
        ("missing/backup", NotFound, "the parent directory .*missing of a backup does not exist; create it first"),
        ("a\0b", InvalidInput, "NUL"),
    ],
)
def test_a_place_that_will_not_do_is_refused(
    source: Path, tmp_path: Path, target: str, error: type[RefoldError], words: str
) -> None:
    (tmp_path / "alias").symlink_to(source)
    with Memory(source) as memory:
        before, inside = names_in(tmp_path), names_in(source)
        with pytest.raises(error, match=words):
            memory.backup(f"{tmp_path}/{target}")
        assert (names_in(tmp_path), names_in(source)) == (before, inside)


def test_a_memory_that_cannot_be_backed_up_says_so(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    with pytest.raises(InvalidInput, match="a memory in RAM has no file to back up; export"):
        Memory().backup(target)
    memory = Memory(source)
    with pytest.raises(ReadOnly, match="frozen at seq 3; back up the live one"):
        memory.at(3).backup(target)
    with memory.batch(), pytest.raises(InvalidInput, match="a backup inside a batch is refused"):
        memory.backup(target)
    with pytest.raises(InvalidInput, match="path is empty"):
        memory.backup("")
    memory.close()
    with pytest.raises(Closed):
        memory.backup(target)
    assert names_in(tmp_path) == {"store"}


# Beside others.

WRITER = """
import sys
from refold import Memory
with Memory(sys.argv[1]) as memory:
    print("ready", flush=True)
    number = 0
    while True:
        with memory.batch():
            memory.conversation("other").append("user", f"{number} " + "x" * (number * 37 % 5000), tokens=1)
            memory.profile("other").set("number", str(number))
        number += 1
"""


@pytest.mark.slow
def test_sixteen_threads_and_another_process_write_on(tmp_path: Path) -> None:
    """Each backup holds what was acknowledged before it, and ends where a commit ends."""
    store, stop = tmp_path / "store", threading.Event()
    with Memory(store) as memory, Child(WRITER, str(store)) as other:
        assert other.read() == "ready"

        def write(number: int) -> None:
            chat = memory.conversation(f"chat-{number}")
            while not stop.is_set():
                chat.append("user", f"from {number}", tokens=1)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        heads = []
        try:
            for number in range(3):
                # On a busy machine the threads may not come to write between two backups.
                memory.profile().set("backups", str(number))
                heads.append(memory.head)
                backup = memory.backup(tmp_path / f"backup-{number}")
                assert backup.head >= heads[-1]
                assert backup.state_hash == memory.state_hash(at=backup.head)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        other.kill()
        # A writer that is killed in its commit may leave it unseen, and durable, until somebody else writes.
        memory.profile().set("the other", "is gone")
        assert heads == sorted(set(heads))
        assert_sound(memory)
    with Memory(tmp_path / "backup-2") as copy:
        assert_sound(copy)
        said = [str(message.content).partition(" ")[0] for message in copy.conversation("other").window(last=1)]
        assert said == [number for _, number in copy.profile("other").items()]


def test_a_batch_that_is_open_elsewhere_is_not_in_it(source: Path, tmp_path: Path) -> None:
    inside, done = threading.Event(), threading.Event()
    with Memory(source) as memory:

        def collect() -> None:
            with memory.batch():
                memory.profile().set("in", "the batch")
                inside.set()
                assert done.wait(60)

        thread = threading.Thread(target=collect)
        thread.start()
        assert inside.wait(60)
        head = memory.head
        assert memory.backup(tmp_path / "backup").head == head
        done.set()
        thread.join()
        assert memory.head == head + 1


def test_a_memory_that_is_closed_meanwhile_says_so(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, copy = Memory(source), clean_copy._copy

    def close_first(environment: Environment, place: str, changes: clean_copy.Changes) -> None:
        memory.close()
        copy(environment, place, changes)

    monkeypatch.setattr(clean_copy, "_copy", close_first)
    with pytest.raises(Closed):
        memory.backup(tmp_path / "backup")
    assert names_in(tmp_path) == {"store"}


# What is gone stays behind.


def write_and_erase(path: Path, seed: int) -> list[bytes]:
    """Fill a store, erase a part of it, and return marks that stood in what was erased."""
    random = Random(seed)
    marks: dict[int, str] = {}
    with Memory(path, clock_ns=Clock(), random_bytes=random.randbytes) as memory:
        for _ in range(250):
            mark = f"gone-{random.randbytes(6).hex()}"
            chat = memory.conversation(f"chat-{random.randrange(20)}", window_tokens=10**9)
            chat.scratchpad.note(mark + "x" * random.choice([0, 50, 300, 1_500, 2_500, 3_900, 5_000, 9_000]))
            marks[memory.head] = mark
        seqs = random.sample(sorted(marks), 60)
        for begin in range(0, len(seqs), 10):
            blank(memory, seqs[begin : begin + 10])
    return [marks[seq].encode() for seq in seqs]


def found_in(path: Path, marks: list[bytes]) -> int:
    contents = b"".join(file.read_bytes() for file in path.iterdir())
    return sum(contents.count(mark) for mark in marks)


def test_no_byte_of_what_was_erased_travels(tmp_path: Path) -> None:
    """LMDB's own compact copy takes some along, behind long values and between the nodes of its pages."""
    marks = write_and_erase(tmp_path / "store", SEED)
    with Memory(tmp_path / "store") as memory:
        memory.backup(tmp_path / "backup")
        recover(tmp_path / "store", tmp_path / "whole")
        recover(tmp_path / "store", tmp_path / "cut", to=memory.head - 6)
        assert [found_in(tmp_path / name, marks) for name in ("backup", "whole", "cut")] == [0, 0, 0]
        (tmp_path / "compact").mkdir()
        memory._core.engine.reader.log.durability.env.copy(str(tmp_path / "compact"), compact=True)  # type: ignore[attr-defined]
        assert found_in(tmp_path / "compact", marks) > 0
        shutil.rmtree(tmp_path / "compact")
