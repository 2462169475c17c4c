"""What one round of a mirror takes, leaves and reports: against a model, and when it is killed anywhere."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.mirror.erasure_machine import ForgettingMachine
from tests.mirror.machine import MirrorMachine
from tests.support.paths import ROOT
from tests.support.sizes import sizes

STEPS = 20


def run_machine(examples: int, machine: type[MirrorMachine] = MirrorMachine) -> None:
    checks = list(HealthCheck)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=STEPS, deadline=None, suppress_health_check=checks, database=None
        ),
    )


@sizes("examples", quick=8, slow=40, soak=2_000)
@pytest.mark.parametrize("machine", [MirrorMachine, ForgettingMachine])
def test_the_machine_finds_nothing(examples: int, machine: type[MirrorMachine]) -> None:
    run_machine(examples, machine)


def run_points(place: Path, again: str, step: int) -> None:
    """Let rounds die at every ``step``-th point, beginning anywhere; a process of its own does it, which forks."""
    begin = SystemRandom().randint(1, step)
    command = [sys.executable, "-m", "tests.mirror.crashes", str(place), again, str(begin), str(step)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "engine"), str(ROOT)])}
    shown = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    results: list[dict[str, Any]] = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [result for result in results if result["wrong"]] == []
    assert results[0]["points"] > 100
    assert len(results) == 2 + (results[0]["points"] - begin) // step


@sizes("step", quick=60, slow=10, soak=1)
@pytest.mark.parametrize("again", ["once", "again"])
def test_a_round_that_is_killed_is_done_by_the_next(tmp_path: Path, step: int, again: str) -> None:
    run_points(tmp_path, again, step)
