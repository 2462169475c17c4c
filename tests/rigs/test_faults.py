"""Disks that are full or broken: nothing acknowledged is lost, reads go on, and nobody is told what is not so."""

import gc
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal

import lmdb
import pytest

from refold import Memory, StoreCorrupt, StoreError, StoreFull, fold
from refold.cli.doctor import examine
from refold.engine.transaction import Mutation
from refold.engine.writer import Ticket
from refold.limits import BALLAST_BYTES_MAX, BALLAST_BYTES_MIN, SALT_BYTES
from refold.log import environment, lmdb_file
from refold.log.ballast import BALLAST_FILE, Ballast, bytes_to_reserve, reserved_bytes
from refold.log.directory import directory_at
from refold.log.environment import Environment
from refold.log.lmdb_file import DATA_FILE
from refold.log.lmdb_log import LmdbLog, LmdbTurn
from refold.log.protocol import Row
from refold.log.record import Record, Sealed, erase_bodies
from tests.rigs.faults.workloads import WORKLOADS
from tests.rigs.power import trace
from tests.support.memories import Child, assert_sound
from tests.support.paths import ROOT
from tests.support.records import arrays_in, sealed
from tests.support.seams import engine_of

KIB: Final = 1024
WAYS_COUNT: Final = 8
"""In how many ways each call fails: four, once or from then on."""

DISK_BYTES: Final = 6 * KIB * KIB
SEED: Final = 1
SEEN_IN: Final = {
    "go_on": "steps",
    "acknowledge_failures": "steps",
    "stay_panicked": "steps",
    "drop_tails": "delayed",
    "create_in_place": "creation",
    "backup_in_place": "backups",
}
"""In which workload a broken build shows."""

needs_compiler = pytest.mark.skipif(bool(trace.missing()), reason=trace.missing() or "the library can be built")


def run_rig(cases: int, seed: int, *options: str) -> tuple[int, int, str]:
    """Runs the rig in a process of its own; returns how many cases there were, and how many violations."""
    command = [sys.executable, "-m", "tests.rigs.faults", "--cases", str(cases), "--seed", str(seed), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout)
    last = re.search(r"^all: cases (\d+), violations (\d+)$", done.stdout, re.MULTILINE)
    assert last, done.stdout + done.stderr
    return int(last[1]), int(last[2]), done.stdout


class TestTheRig:
    @needs_compiler
    def test_finds_nothing_in_a_few_cases(self) -> None:
        cases, violations, output = run_rig(4, SEED, "--workload", "steps", "--workload", "creation")
        assert (cases, violations) == (8, 0), output

    @needs_compiler
    @pytest.mark.slow
    def test_finds_nothing_in_any_workload(self) -> None:
        cases, violations, output = run_rig(6, SEED + 1)
        assert (cases, violations) == (48, 0), output

    @needs_compiler
    @pytest.mark.soak
    @pytest.mark.timeout(3_000)
    def test_finds_nothing_at_any_call(self) -> None:
        cases, violations, output = run_rig(0, SEED + 100)
        assert violations == 0, output
        workloads = [(int(calls), int(own)) for calls, own in re.findall(r", (\d+) calls: cases (\d+),", output)]
        assert len(workloads) == len(WORKLOADS)
        assert all(calls > 20 and own == WAYS_COUNT * calls for calls, own in workloads), output
        assert cases == sum(own for _, own in workloads)

    @needs_compiler
    @pytest.mark.slow
    @pytest.mark.parametrize("build", SEEN_IN)
    def test_finds_a_broken_build(self, build: str) -> None:
        workload = SEEN_IN[build]
        wanted = 24
        cases, violations, output = run_rig(wanted, SEED, "--workload", workload, "--build", build)
        assert cases == wanted
        assert violations >= 2, output


FULL = """
import asyncio, os, resource, sys, threading
from pathlib import Path
from refold import Memory, StoreFull
from tests.support.memories import assert_sound

path, way, durability = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if way == "disk":
    (path / "filler").write_bytes(bytes(4_900_000))
memory = Memory(path / "store", durability=durability)
chat = memory.conversation("chat", window_tokens=1_000_000)
acknowledged, refused = [], []
chat.append("user", "first", tokens=1)
memory.flush()
if way == "disk":
    space = os.statvfs(path)
    (path / "rest").write_bytes(bytes(max(space.f_bavail * space.f_frsize - 400_000, 0)))
if way == "limit":
    size = (path / "store" / "data.mdb").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 400_000, resource.RLIM_INFINITY))

def told(name, write):
    try:
        write()
    except StoreFull as error:
        assert "free disk space" in str(error), error
        refused.append(name)
    else:
        acknowledged.append(name)

def text(name):
    return name + " " + "x" * 9_000

def one(name):
    told(name, lambda: chat.append("user", text(name), tokens=1, request_id=name))

def batch(name):
    with memory.batch():
        for place in range(3):
            chat.append("user", text(f"{name}.{place}"), tokens=1)

def work(number):
    for place in range(20):
        one(f"{number}-{place}")

async def task(name):
    try:
        await memory.aio.conversation("chat").append("user", text(name), tokens=1, request_id=name)
    except StoreFull:
        refused.append(name)
    else:
        acknowledged.append(name)

async def tasks():
    for turn in range(5):
        await asyncio.gather(*(task(f"task-{turn}-{place}") for place in range(8)))

threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
asyncio.run(tasks())
batches = [f"batch-{place}" for place in range(6)]
for name in batches:
    told(name, lambda: batch(name))
for place in range(100 if durability == "delayed" else 0):
    one(f"more-{place}")
told("flush", memory.flush)
assert refused, "the disk was never full"
print("refused", flush=True)

def check():
    found = [str(message.content).split()[0] for message in chat.window()]
    whole = [name for name in acknowledged if name.startswith("batch")]
    singles = [name for name in acknowledged if name not in whole and name != "flush"]
    for name in singles + [f"{name}.{place}" for name in whole for place in range(3)]:
        assert found.count(name) == 1, (name, found.count(name))
    known = set(singles) | {f"{name}.{place}" for name in whole for place in range(3)}
    assert set(found) == known | {"first"}, set(found) ^ known

check()
if way == "disk":
    (path / "filler").unlink()
else:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
again = [name for name in refused if name != "flush" and not name.startswith("batch")][:5] + ["space"]
for name in again:
    one(name)
assert acknowledged[-len(again):] == again, "there is space again, and writing does not go on"
memory.flush()
check()
memory.close()
memory = Memory(path / "store")
chat = memory.conversation("chat")
check()
assert_sound(memory)
memory.close()
print("whole", flush=True)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can only be mounted by root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def write_on_a_full_disk(path: Path, way: str, durability: str) -> None:
    with Child(FULL, str(path), way, durability) as child:
        lines = [child.read(), child.read()]
        assert lines == ["refused", "whole"], lines + [child.read() for _ in range(30)]


@pytest.mark.parametrize("durability", ["durable", "delayed"])
class TestAFullDisk:
    def test_loses_nothing_and_takes_writes_again(self, disk: Path, durability: str) -> None:
        write_on_a_full_disk(disk, "disk", durability)

    def test_or_a_full_file_loses_nothing_and_takes_writes_again(self, tmp_path: Path, durability: str) -> None:
        write_on_a_full_disk(tmp_path, "limit", durability)


def opened(path: Path) -> LmdbLog:
    return LmdbLog(directory_at(str(path), readonly=False, seed={}))


def append(log: LmdbLog, size: int) -> None:
    log.in_turn(lambda turn: turn.write(sealed(log.head() + 1, [bytes(size)])))


def append_all(log: LmdbLog, size: int, count: int) -> None:
    for _ in range(count):
        append(log, size)


def sizes_of(log: LmdbLog, until: int) -> list[int]:
    return list(map(len, arrays_in(log.read(0, until))))


def erase(log: LmdbLog, erased: Sequence[Sealed], rows: Sequence[Row] = ()) -> None:
    log.files.alone(lambda: log.in_turn(lambda turn: turn.write((), rows, erased)))


def erase_some(log: LmdbLog) -> None:
    """Rewrite every other record of some hundred, so that each of their pages has to be written anew."""
    shorter = [record for seq in range(1, 400, 2) for record in sealed(seq, [bytes(900)])]
    erase(log, shorter, [("derived", b"key", b"")])


def fill(log: LmdbLog) -> None:
    with pytest.raises(StoreFull):
        append_all(log, 1_000, 20_000)


class TestBallast:
    def test_is_there_once_a_store_was_opened_to_write(self, tmp_path: Path) -> None:
        Memory(tmp_path / "store").close()
        (tmp_path / "store" / BALLAST_FILE).unlink()
        Memory(tmp_path / "store", readonly=True).close()
        assert not (tmp_path / "store" / BALLAST_FILE).exists()
        Memory(tmp_path / "store").close()
        assert reserved_bytes(str(tmp_path / "store")) == BALLAST_BYTES_MIN

    def test_follows_a_store_that_nobody_flushes(self, tmp_path: Path) -> None:
        log = opened(tmp_path / "store")
        append_all(log, 300 * KIB, 5)
        assert reserved_bytes(str(tmp_path / "store")) > 2 * 900 * KIB
        log.close()

    def test_grows_with_the_store_within_bounds(self, tmp_path: Path) -> None:
        log = opened(tmp_path / "store")
        append(log, 900 * KIB)
        log.durability.flush()
        assert reserved_bytes(str(tmp_path / "store")) == 2 * log.files.size_bytes() > 2 * 900 * KIB
        log.close()
        assert (bytes_to_reserve(0), bytes_to_reserve(10**12)) == (BALLAST_BYTES_MIN, BALLAST_BYTES_MAX)

    def test_lets_a_full_disk_be_erased_on_and_nothing_else(self, disk: Path) -> None:
        log = opened(disk / "store")
        fill(log)
        log.durability.flush()
        assert reserved_bytes(str(disk / "store")) >= BALLAST_BYTES_MIN
        erase_some(log)
        assert sizes_of(log, 3) == [900, 1_000, 900]
        with pytest.raises(StoreFull):
            append_all(log, 50_000, 40)
        log.close()

    def test_is_what_lets_it(self, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Ballast, "fill", lambda _: False)
        log = opened(disk / "store")
        fill(log)
        with pytest.raises(StoreFull):
            erase_some(log)
        assert sizes_of(log, 3) == [1_000] * 3
        log.close()

    def test_comes_back_when_there_is_space(self, disk: Path) -> None:
        filler = disk / "filler"
        filler.write_bytes(bytes(3_500 * KIB))
        log = opened(disk / "store")
        fill(log)
        assert not log.durability.ballast.give()

        @log.durability.ballast.lend
        def _() -> None:
            assert log.durability.ballast.give()
            assert not log.durability.ballast.give()
            assert reserved_bytes(str(disk / "store")) == 0
            (disk / "copy").write_bytes(bytes(600 * KIB))

        assert reserved_bytes(str(disk / "store")) < BALLAST_BYTES_MIN
        (check,) = [check for check in examine(str(disk / "store")).checks if check.name == "ballast"]
        assert (check.state, "open the store once for writing" in check.next_step) == ("warn", True)
        filler.unlink()
        log.durability.flush()
        assert reserved_bytes(str(disk / "store")) >= BALLAST_BYTES_MIN
        log.close()

    def test_is_not_given_back_where_there_is_space(self, tmp_path: Path) -> None:
        log = opened(tmp_path / "store")
        assert log.durability.ballast.lend(lambda: reserved_bytes(str(tmp_path / "store"))) == BALLAST_BYTES_MIN
        log.close()

    def test_keeps_no_store_from_being_opened(self, disk: Path) -> None:
        opened(disk / "store").close()
        (disk / "store" / BALLAST_FILE).unlink()
        (disk / "filler").write_bytes(bytes(DISK_BYTES - 1_000 * KIB))
        log = opened(disk / "store")
        assert reserved_bytes(str(disk / "store")) == 0
        append(log, 10)
        assert log.head() == 1
        log.close()


def written_until_full(memory: Memory) -> None:
    """Fill the disk with a conversation, up to its last page."""
    for size in (20_000, 300):
        with pytest.raises(StoreFull):
            written_for_ever(memory, size)


def written_for_ever(memory: Memory, size: int) -> None:
    for place in count():
        memory.conversation("gone").append("user", f"secret {place} " + "x" * size, tokens=1)
        memory.flush()


class TestErasingOnAFullDisk:
    @pytest.mark.parametrize("durability", ["durable", "delayed"])
    def test_takes_the_bytes_away_and_makes_room(self, disk: Path, durability: Literal["durable", "delayed"]) -> None:
        with Memory(disk / "store", durability=durability) as memory:
            memory.conversation("kept").append("user", "stays", tokens=1)
            written_until_full(memory)
            receipt = memory.conversation("gone").erase()
            assert receipt.markers > 100
            assert (receipt.occurrences, receipt.streams) == (0, (receipt.streams[0],))
            assert (disk / "store" / DATA_FILE).stat().st_size < DISK_BYTES / 2
            assert not any(b"secret" in file.read_bytes() for file in (disk / "store").iterdir())
            assert reserved_bytes(str(disk / "store")) >= BALLAST_BYTES_MIN
            memory.conversation("kept").append("user", "goes on " * 10_000, tokens=1)
            assert memory.conversation("kept").window()[0].content == "stays"
            assert_sound(memory)

    def test_needs_the_ballast(self, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Ballast, "fill", lambda _: False)
        with Memory(disk / "store") as memory:
            written_until_full(memory)
            with pytest.raises(StoreFull):
                memory.conversation("gone").erase()
            assert "gone" in memory.conversations()

    def test_that_finds_no_room_for_the_copy_changes_nothing(self, disk: Path) -> None:
        with Memory(disk / "store") as memory:
            kept, filler = memory.conversation("kept"), disk / "filler"
            filler.write_bytes(bytes(2_500 * KIB))
            kept.append("user", "x" * 1_500 * KIB, tokens=1)
            seq = kept.append("user", "the secret of that day", tokens=1).seq
            written_until_full(memory)
            with pytest.raises(StoreFull, match="copying the store"):
                memory.erase([seq])
            assert kept.window()[-1].content == "the secret of that day"
            filler.unlink()
            assert memory.erase([seq]).occurrences == 0
            assert not any(b"the secret of" in file.read_bytes() for file in (disk / "store").iterdir())
            assert_sound(memory)


def break_the_head(path: Path, *, erases: bool) -> None:
    """Leave a store as an I/O error leaves it, with a last record that is not what was written."""
    log = opened(path)
    log.durability.turnstile.suspect()
    ((last, record),) = log.read(log.head() - 1, log.head())
    if erases:
        places = range(Record(record).count)
        erase(log, [(last, erase_bodies(record, places, fold.strip_body, bytes(SALT_BYTES)))])
    else:
        erase(log, [(last, record[:-1] + bytes([record[-1] ^ 1]))])
    log.close()


def broken_fsync(_: int) -> None:
    raise OSError(5, "Input/output error")


class TestOpeningAfterAnError:
    @pytest.fixture
    def store(self, tmp_path: Path) -> Path:
        with Memory(tmp_path / "store") as memory:
            for place in range(5):
                memory.conversation("chat").append("user", f"{place}", tokens=1)
        return tmp_path / "store"

    def test_checks_the_head_before_it_writes(self, store: Path) -> None:
        break_the_head(store, erases=False)
        for _ in range(2):
            with pytest.raises(StoreCorrupt, match=r"after an I/O error, and seq 6 is damaged.*readonly=True"):
                Memory(store)
        with Memory(store, readonly=True) as memory:
            assert memory.head == 6

    def test_takes_an_erased_head(self, store: Path) -> None:
        break_the_head(store, erases=True)
        with Memory(store) as memory:
            assert memory.head == 6

    def test_trusts_a_head_that_is_whole_and_checks_once(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = opened(store)
        log.durability.turnstile.suspect()
        log.close()
        resumed: list[Environment] = []
        resume = Environment.resume

        def noted(environment: Environment) -> None:
            resumed.append(environment)
            resume(environment)

        monkeypatch.setattr(Environment, "resume", noted)
        for _ in range(2):
            with Memory(store) as memory:
                memory.conversation("chat").append("user", "on", tokens=1)
                assert_sound(memory)
        assert len(resumed) == 1

    def test_is_refused_where_the_disk_still_fails(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = opened(store)
        log.durability.turnstile.suspect()
        log.close()
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", broken_fsync)
            with pytest.raises(StoreError, match="cannot be flushed"):
                Memory(store)
        with Memory(store) as memory:
            memory.conversation("chat").append("user", "on", tokens=1)

    def test_that_is_refused_holds_no_lock(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = opened(store)
        log.durability.turnstile.suspect()
        log.close()
        gc.disable()  # The locks are given back at once, not when something is collected.
        try:
            with monkeypatch.context() as patch:
                patch.setattr("os.fsync", broken_fsync)
                with pytest.raises(StoreError, match="cannot be flushed"):
                    Memory(store)
            with Child(ALONE, str(store)) as child:
                assert child.read() == "6"
        finally:
            gc.enable()

    def test_finds_a_map_that_another_process_let_grow_meanwhile(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        open_lmdb = lmdb_file.open_lmdb

        class Outgrown:
            """An environment whose map is too small until it is told of a size."""

            def __init__(self, env: lmdb.Environment) -> None:
                self.env, self.is_small = env, True

            def __getattr__(self, name: str) -> Any:
                return getattr(self.env, name)

            def set_mapsize(self, size: int) -> None:
                self.is_small = False
                self.env.set_mapsize(size)

            def begin(self, *given: Any, **options: Any) -> Any:
                if self.is_small:
                    raise lmdb.MapResizedError("another process has made it larger")
                return self.env.begin(*given, **options)

        log = opened(store)
        monkeypatch.setattr(environment, "open_lmdb", lambda path: Outgrown(open_lmdb(path)))
        log.durability.resume()
        assert log.head() == 6
        log.close()


ALONE = """
import sys
from refold import Memory
with Memory(sys.argv[1], durability="delayed") as memory:
    print(memory.head, flush=True)
"""


OTHER = """
import sys
from refold import Memory
with Memory(sys.argv[1]) as memory:
    memory.profile().set("theme", "dark")
    print(memory.head, flush=True)
"""


def test_seqs_that_another_process_took_are_no_acknowledgement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit is cut off before it wrote, and another process writes events of the same seqs."""
    with Memory(tmp_path / "store") as memory:
        engine = engine_of(memory)
        chat = memory.conversation("chat")
        chat.append("user", "first", tokens=1)
        mutations: list[Mutation] = []
        with monkeypatch.context() as patch:
            patch.setattr(engine.writer, "submit", mutations.append)
            chat.scratchpad.note("cut off")

        def cut_off(turn: LmdbTurn, *_: Any) -> None:
            turn._environment.turnstile.unlock()
            turn.txn = None  # Without lock and transaction: another process may write.
            with Child(OTHER, str(tmp_path / "store")) as child:
                assert child.read() == "3"
            raise ZeroDivisionError

        writer, ticket = engine.writer, Ticket(mutations[0])
        with monkeypatch.context() as patch:
            patch.setattr(LmdbTurn, "write", cut_off)
            with pytest.raises(ZeroDivisionError):
                writer.write([ticket])
        assert ticket.claim is not None
        assert not writer._settle(ticket)
        assert (ticket.is_done, ticket.recorded) == (False, None)
        assert (memory.head, len(chat.window())) == (3, 1)
