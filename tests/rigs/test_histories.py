"""The rigs at their quick, slow and soak sizes, and red on builds that are broken on purpose."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

import lmdb
import pytest

from refold.log.environment import Environment
from tests.conftest import Servers
from tests.rigs.history import contention, kill
from tests.rigs.history.chaos import DISK_BYTES, Chaos
from tests.rigs.history.moments import MOMENTS, Doom
from tests.rigs.history.processes import Crew, CrewError
from tests.rigs.history.record import Answer, Call
from tests.rigs.history.shapes import SHAPES
from tests.rigs.history.store import Store, dead_readers
from tests.rigs.history.tally import Tally
from tests.rigs.history.worker import Setup
from tests.support import network
from tests.support.commits import Logs, running
from tests.support.memories import Child
from tests.support.paths import ROOT
from tests.support.sizes import sizes

RIGS: dict[str, Callable[..., Tally]] = {"kill": kill.run, "history": contention.run}

shapes = pytest.mark.parametrize(("processes", "threads"), SHAPES)
rigs = pytest.mark.parametrize("rig", RIGS)


def run(
    rig: str,
    directory: Path,
    processes: int,
    threads: int,
    *,
    loops: int,
    broken: str = "",
    logs: Logs | None = None,
) -> Tally:
    """Runs a rig with a seed of its own; the tally, which is printed when a test fails, has the seed."""
    tally = Tally(rig, SystemRandom().randrange(2**32), processes, threads)
    print(tally)  # noqa: T201 - the seed, if the run never ends
    RIGS[rig](directory, tally, loops=loops, broken=broken, logs=logs)
    print(tally)  # noqa: T201
    return tally


def assert_good(tally: Tally, loops: int) -> None:
    assert tally.violations == []
    assert tally.loops == loops
    assert tally.acknowledged > 0
    assert tally.looks > 0
    assert tally.kills >= (loops if tally.rig == "kill" else 0)


@sizes("loops", quick=1, slow=4, soak=300)
@rigs
@shapes
def test_a_rig_finds_nothing(tmp_path: Path, rig: str, processes: int, threads: int, loops: int) -> None:
    loops = 2 * loops if rig == "kill" else loops
    assert_good(run(rig, tmp_path, processes, threads, loops=loops), loops)


@sizes("loops", quick=1, slow=2, soak=300)
@rigs
@pytest.mark.parametrize("kind", ["postgres", "nats"])
def test_a_rig_finds_nothing_over_a_log_on_a_server(
    tmp_path: Path, servers: Servers, rig: str, kind: str, loops: int
) -> None:
    loops = 2 * loops if rig == "kill" else loops
    assert_good(run(rig, tmp_path, 2, 2, loops=loops, logs=servers.logs(kind)), loops)


@sizes("loops", slow=3, soak=300)
@rigs
@pytest.mark.parametrize("kind", ["postgres", "nats-cluster"])
def test_a_rig_finds_nothing_while_the_servers_fail(tmp_path: Path, rig: str, kind: str, loops: int) -> None:
    with running(kind, DISK_BYTES) as logs, Chaos(logs, "chaos") as chaos:
        assert_good(run(rig, tmp_path, 2, 2, loops=loops, logs=logs), loops)
    assert chaos.faults.total()


@pytest.mark.skipif(not network.is_possible(), reason="only root can make network namespaces, with unshare and ip")
@sizes("loops", slow=4, soak=300)
@pytest.mark.parametrize("rig", RIGS)
@pytest.mark.parametrize("kind", ["postgres-network", "nats-network"])
def test_a_rig_finds_nothing_while_servers_are_cut_off(rig: str, kind: str, loops: int) -> None:
    """In a process of its own: it is taken into a network namespace, which this one would not get out of."""
    options = ["--log", kind, "--chaos", "--fault", "cut", "--loops", str(loops), "--processes", "2", "--threads", "2"]
    command = [sys.executable, "-m", "tests.rigs.history", rig, *options]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "'cut'" in done.stdout


SEEN_BY = {
    "lost_acknowledgement": {"the_log_can_be_read", "acknowledged_is_there_once", "verify_finds_nothing"},
    "lost_end": {"acknowledged_is_there_once"},
    "skipped_fold": {"looks_are_current", "looks_saw_what_was_there"},
    "forgotten_request": {"acknowledged_is_there_once", "looks_saw_what_was_there"},
}


# A write that is lost within the log leaves a gap, which is found when the store is opened, if no checkpoint covers it.
@pytest.mark.slow
@rigs
@pytest.mark.parametrize("broken", SEEN_BY)
def test_a_rig_goes_red_on_a_broken_build(tmp_path: Path, rig: str, broken: str) -> None:
    tally = run(rig, tmp_path, 1, 4, loops=50, broken=broken)
    assert tally.rules & SEEN_BY[broken], tally


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_the_kill_rig_sees_a_reader_that_waits_to_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed while its last page is flushed has told nobody of a commit that is there."""
    monkeypatch.setattr(Environment, "is_behind", lambda _self, _txnid: False)
    seen = {"a_reader_sees_what_is_durable", "a_past_moment_stays_as_it_was"}
    assert run("kill", tmp_path, 1, 4, loops=200).rules & seen


@pytest.mark.parametrize(("moment", "is_written"), [("before", False), ("within", False), ("after", True)])
def test_a_doomed_process_dies_in_the_write_that_was_said(tmp_path: Path, moment: str, is_written: bool) -> None:
    """It never says so: what it was doing is in the log if it died after the write, and only then."""
    store = Store(tmp_path / "directory")
    setup = Setup(store.path, "L0", 0, 1, "seed", doom=Doom(moment, 5))
    with Crew([setup], store.directory, store.lines) as crew:
        crew.wait(0)
    (unknown,) = [operation for operation in store.operations if operation.is_unknown]
    assert isinstance(store.lines[-1], Call)
    with store.open() as memory:
        tally = Tally("kill", 0, 1, 1)
        kill.resolve(memory, store, [0], tally)
        assert (tally.unknown_written, tally.unknown_lost) == (is_written, not is_written)
        assert memory.verify().ok
    assert store.check() == []
    assert isinstance(store.lines[-1], Answer)
    assert store.lines[-1].name == unknown.name


def test_every_moment_is_tried() -> None:
    assert MOMENTS.keys() == {"before", "within", "after"}


def test_a_reader_slot_of_the_dead_is_noticed(tmp_path: Path) -> None:
    """It is left by a process that is killed in a read, while another one has the store open."""
    holds = "import lmdb, sys; txn = lmdb.open(sys.argv[1]).begin(); print(flush=True); sys.stdin.read()"
    lmdb.open(str(tmp_path)).close()
    with Child(holds, str(tmp_path)) as living, Child(holds, str(tmp_path)) as dead:
        for child in (living, dead):
            assert child.read() == ""
        assert dead_readers(str(tmp_path)) == []
        dead.kill()
        assert dead_readers(str(tmp_path)) == [dead.pid]


def test_an_unresolved_outcome_is_a_violation(tmp_path: Path) -> None:
    store = Store(tmp_path / "directory")
    setup = Setup(store.path, "L0", 0, 1, "seed", doom=Doom("before", 5))
    with Crew([setup], store.directory, store.lines) as crew:
        crew.wait(0)
    assert [violation.rule for violation in store.check()] == ["unknown_outcomes_are_resolved"]


def test_a_process_that_ends_by_itself_is_no_silent_matter(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no store", encoding="utf-8")
    setup = Setup(str(tmp_path / "file"), "L0", 0, 1, "seed")
    with pytest.raises(CrewError, match=r"process 0 ended by itself with status 1(?s:.)*StoreVersion"):
        Crew([setup], tmp_path, []).__enter__()


def test_a_doomed_process_that_ends_before_its_time_is_no_silent_matter(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no store", encoding="utf-8")
    setup = Setup(str(tmp_path / "file"), "L0", 0, 1, "seed", doom=Doom("before", 5))
    with pytest.raises(CrewError, match=r"process 0 ended by itself with status 1(?s:.)*StoreVersion"):
        Crew([setup], tmp_path, []).__enter__()


def test_a_loop_that_fails_is_a_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "check", lambda _: 1 // 0)
    for rig in RIGS:
        (tmp_path / rig).mkdir()
        tally = run(rig, tmp_path / rig, 1, 1, loops=2)
        assert tally.loops == len(tally.violations) == 1
        assert "ZeroDivisionError" in str(tally)
        assert len(list((tmp_path / rig).glob("*/journal"))) == 1
