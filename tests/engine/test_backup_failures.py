"""What goes wrong in a backup or a recovery: damage, a full disk, a crash at any step. Nothing half is ever there."""

import subprocess
import sys
from pathlib import Path

import pytest

from refold import InvalidInput, Memory, RefoldError, StoreBusy, StoreCorrupt
from refold.engine import verify as engine_verify
from refold.log.disk import SITE_SUFFIX
from tests.engine.test_backup import names_in
from tests.engine.test_transfer import branch, fill
from tests.support.memories import Clock


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with Memory(tmp_path / "store", clock_ns=Clock()) as memory:
        fill(memory)
        branch(memory)
    return tmp_path / "store"


def test_a_damaged_store_gives_no_backup(source: Path, tmp_path: Path) -> None:
    with Memory(source) as memory:
        memory.conversation("chat").scratchpad.note("a body that is about to be damaged")
        seq = memory.head
    data = source / "data.mdb"
    data.write_bytes(data.read_bytes().replace(b"about to be damaged", b"about to be DAMAGED"))
    with Memory(source) as memory, pytest.raises(StoreCorrupt, match=f"chain at seq {seq}: .* it was removed"):
        memory.backup(tmp_path / "backup")
    assert names_in(tmp_path) == {"store"}


def site_of(target: Path) -> Path:
    return target.with_name(f".{target.name}{SITE_SUFFIX}")


def test_what_a_crash_left_is_cleared_away(source: Path, tmp_path: Path) -> None:
    site = site_of(tmp_path / "backup")
    (site / "store").mkdir(parents=True)
    (site / "store" / "data.mdb").write_bytes(b"half")
    (site / "stray").write_bytes(b"stray")
    with Memory(source) as memory:
        assert memory.backup(tmp_path / "backup").head == memory.head
    assert names_in(tmp_path) == {"store", "backup"}


def test_two_backups_to_one_place_do_not_meet(source: Path, tmp_path: Path) -> None:
    met: list[str] = []
    with Memory(source) as memory:

        def meet(done: int, whole: int) -> None:
            assert done <= whole
            with pytest.raises(StoreBusy) as raised:
                memory.backup(tmp_path / "backup")
            met.append(str(raised.value))

        memory.backup(tmp_path / "backup", meet)
    assert met
    assert all("somebody is making a backup there at this moment" in text for text in met)
    assert names_in(tmp_path) == {"store", "backup"}


def test_a_site_that_is_no_directory_is_left_alone(source: Path, tmp_path: Path) -> None:
    site = site_of(tmp_path / "backup")
    site.write_text("mine", encoding="utf-8")
    with Memory(source) as memory, pytest.raises(RefoldError, match="Not a directory"):
        memory.backup(tmp_path / "backup")
    assert site.read_text(encoding="utf-8") == "mine"


def test_what_progress_raises_leaves_nothing(source: Path, tmp_path: Path) -> None:
    def interrupt(done: int, whole: int) -> None:
        raise KeyboardInterrupt(done, whole)

    with Memory(source) as memory:
        with pytest.raises(KeyboardInterrupt):
            memory.backup(tmp_path / "backup", interrupt)
        memory.profile().set("still", "writable")
    assert names_in(tmp_path) == {"store"}


def test_a_place_that_is_taken_meanwhile_is_not_replaced(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = engine_verify.verify

    def take(*arguments: object) -> object:
        (tmp_path / "backup" / "mine").mkdir(parents=True)
        return verify(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(engine_verify, "verify", take)
    with Memory(source) as memory, pytest.raises(InvalidInput, match="is there already"):
        memory.backup(tmp_path / "backup")
    assert names_in(tmp_path / "backup") == {"mine"}
    assert names_in(tmp_path) == {"store", "backup"}


FULL = """
import os, resource, sys
from pathlib import Path
from refold import Memory, StoreFull, recover
top, room_bytes = Path(sys.argv[1]), int(sys.argv[2])
with Memory(top / "store") as memory:
    head, hashed = memory.head, memory.state_hash()
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, resource.RLIM_INFINITY))
    calls = {
        "backup": lambda: memory.backup(top / "made"),
        "whole": lambda: recover(top / "store", top / "made"),
        "cut": lambda: recover(top / "store", top / "made", to=head),
    }
    for name, call in calls.items():
        try:
            call()
        except StoreFull as error:
            assert "free disk space" in str(error), error
            print(name, "full")
        assert sorted(os.listdir(top)) == ["store"], os.listdir(top)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    memory.profile().set("still", "writable")
    assert memory.state_hash(at=head) == hashed and memory.verify().ok
    assert memory.backup(top / "made").head == memory.head
"""


@pytest.mark.parametrize("room_bytes", [80_000, 200_000])
def test_a_full_disk_leaves_nothing(tmp_path: Path, room_bytes: int) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.conversation("chat").append("user", "x" * 400_000, tokens=1)
    command = [sys.executable, "-c", FULL, str(tmp_path), str(room_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["backup full", "whole full", "cut full"]


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from refold import Memory, recover

top, what, hashed, number, step = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])


def make():
    if what == "recover":
        return recover(top / "store", top / "made", to=9)
    with Memory(top / "store") as memory:
        return memory.backup(top / "made")


def make_until(calls):
    # Kills this process before its call of this number.
    left = [calls]

    def counting(call):
        def counted(*arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return counted

    for name in ("mkdir", "open", "rename", "fsync", "unlink", "rmdir", "pwrite"):
        setattr(os, name, counting(getattr(os, name)))
    make()


def is_killed(call):
    child = os.fork()
    if not child:
        try:
            call()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or not os.WEXITSTATUS(status), status
    return os.WIFSIGNALED(status)


def judge():
    with Memory(top / "made", readonly=True) as memory:
        assert memory.verify().ok and memory.state_hash() == hashed, memory


there = 0
while is_killed(lambda: make_until(number)):
    left = set(os.listdir(top)) - {"store"}
    assert left <= {"made", ".made.refold-unfinished"}, left
    if "made" in left:
        there += 1
        assert not is_killed(judge)
        shutil.rmtree(top / "made")
    assert not is_killed(make)
    assert set(os.listdir(top)) == {"store", "made"}, os.listdir(top)
    assert not is_killed(judge)
    shutil.rmtree(top / "made")
    number += step
print(number, there)
"""


def killed(top: Path, source: Path, what: str, *, first: int, step: int) -> tuple[int, int]:
    """Kill at one call after the other; return how many calls there were, and after how many the target was there."""
    with Memory(source) as memory:
        hashed = memory.state_hash(at=9) if what == "recover" else memory.state_hash()
    command = [sys.executable, "-c", KILLED, str(top), what, hashed, str(first), str(step)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    calls, there = map(int, done.stdout.split())
    return calls, there


@pytest.mark.soak
@pytest.mark.parametrize("what", ["backup", "recover"])
def test_killed_at_any_call_it_is_whole_or_not_there(tmp_path: Path, source: Path, what: str) -> None:
    calls, there = killed(tmp_path, source, what, first=0, step=1)
    assert calls > 15
    assert there > 0


@pytest.mark.slow
@pytest.mark.parametrize(("what", "step"), [("backup", 2), ("recover", 3)])
def test_killed_at_many_calls_it_is_whole_or_not_there(tmp_path: Path, source: Path, what: str, step: int) -> None:
    calls, there = killed(tmp_path, source, what, first=0, step=step)
    assert calls > 15
    assert there > 0


@pytest.mark.parametrize("what", ["backup", "recover"])
def test_killed_at_some_calls_it_is_whole_or_not_there(tmp_path: Path, source: Path, what: str) -> None:
    calls, _ = killed(tmp_path, source, what, first=7, step=16)
    assert calls > 9
