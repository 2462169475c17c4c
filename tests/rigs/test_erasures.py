"""The erasing rig at its quick, slow and soak sizes, and red on builds that are broken on purpose."""

from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

import pytest

from tests.conftest import Servers
from tests.rigs.history import erasures
from tests.rigs.history.chaos import DISK_BYTES, Chaos
from tests.rigs.history.tally import Tally
from tests.support.commits import Logs, running
from tests.support.sizes import sizes


def run(
    directory: Path,
    processes: int,
    loops: int,
    broken: str = "",
    moments: Sequence[str] = (),
    logs: Logs | None = None,
) -> Tally:
    """Runs the rig with a seed of its own; the tally, which is printed when a test fails, has the seed."""
    tally = Tally("erase", SystemRandom().randrange(2**32), processes, 1)
    print(tally)  # noqa: T201 - the seed, if the run never ends
    erasures.run(directory, tally, loops=loops, broken=broken, moments=moments, logs=logs)
    print(tally)  # noqa: T201
    return tally


def assert_good(tally: Tally, loops: int) -> None:
    assert tally.violations == []
    assert tally.loops == tally.kills == loops
    assert tally.acknowledged > 0


@sizes("loops", quick=1, slow=3, soak=300)
@pytest.mark.parametrize("processes", [1, 2])
def test_the_rig_finds_nothing(tmp_path: Path, processes: int, loops: int) -> None:
    assert_good(run(tmp_path, processes, loops), loops)


@sizes("loops", quick=1, slow=3, soak=300)
@pytest.mark.parametrize("kind", ["postgres", "nats"])
def test_the_rig_finds_nothing_over_a_log_on_a_server(tmp_path: Path, servers: Servers, kind: str, loops: int) -> None:
    assert_good(run(tmp_path, 2, loops, logs=servers.logs(kind)), loops)


@sizes("loops", slow=3, soak=300)
@pytest.mark.parametrize("kind", ["postgres", "nats-cluster"])
def test_the_rig_finds_nothing_while_the_servers_fail(tmp_path: Path, kind: str, loops: int) -> None:
    with running(kind, DISK_BYTES) as logs, Chaos(logs, "chaos") as chaos:
        assert_good(run(tmp_path, 2, loops, logs=logs), loops)
    assert chaos.faults.total()


SEEN_AS = {
    "forgotten_sweep": (1, "once the erasure is written", "stands in data.mdb"),
    "late_erasure": (1, "", "was acknowledged, and not all of them are erased"),
    "silent_replacement": (2, "", ""),
    "backup_in_place": (1, "while a copy is written", "it is not whole"),
}
"""With how many processes, at which moment and in which words each broken build is seen, any if it loses a store."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("broken", SEEN_AS)
def test_the_rig_goes_red_on_a_broken_build(tmp_path: Path, broken: str) -> None:
    processes, moment, words = SEEN_AS[broken]
    tally = run(tmp_path, processes, 100, broken, [moment])
    assert tally.violations
    assert words in str(tally)
