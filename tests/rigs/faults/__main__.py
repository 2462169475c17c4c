"""The rig by hand: ``python -m tests.rigs.faults --cases 500 --seed 1 --workload threads``; ``--cases 0`` is all."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.rigs.breaks import BUILDS
from tests.rigs.faults.cases import FOR_EVER, Case, Way, build, cases_of
from tests.rigs.faults.rig import calls_of, try_case
from tests.rigs.faults.workloads import WORKLOADS
from tests.rigs.power import trace
from tests.rigs.power.recording import scratch


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.faults", description=__doc__)
    parser.add_argument("--cases", type=int, default=100, help="how many cases of each workload, drawn by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workload", choices=WORKLOADS, action="append", help="one or several; without it, all")
    parser.add_argument("--build", choices=BUILDS, default="sound", help="the build of refold: sound, or broken")
    parser.add_argument("--call", type=int, default=0, help="only the case in which this call fails")
    parser.add_argument("--way", choices=[way.name for way in Way], default=Way.REFUSED.name)
    parser.add_argument("--lasts", action="store_true")
    parser.add_argument("--abandons", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run the rig in a process of its own into which the library is loaded, below a directory in RAM."""
    if "FAULTS_ROOT" in os.environ:
        return _inside(parse(arguments), Path(os.environ["FAULTS_ROOT"]))
    missing = trace.missing()
    if missing:
        sys.stdout.write(f"{missing}\n")
        return 2
    with scratch() as place:
        (place / "root").mkdir()
        faults = {"LD_PRELOAD": str(build(place)), "FAULTS_ROOT": str(place / "root")}
        command = [sys.executable, "-m", "tests.rigs.faults", *arguments]
        return subprocess.run(command, env={**os.environ, **faults}, check=False).returncode


def _inside(wanted: argparse.Namespace, place: Path) -> int:
    BUILDS[wanted.build]()
    tried = violations = 0
    for workload in wanted.workload or WORKLOADS:
        found = _try_workload(workload, wanted, place)
        tried, violations = tried + found[0], violations + found[1]
    sys.stdout.write(f"all: cases {tried}, violations {violations}\n")
    return 1 if violations else 0


def _try_workload(workload: str, wanted: argparse.Namespace, place: Path) -> tuple[int, int]:
    tried = violations = 0
    calls = calls_of(workload, wanted.seed, place) if wanted.build == "sound" or not wanted.call else 0
    limit = wanted.cases or FOR_EVER
    one = Case(workload, wanted.seed, wanted.call, Way[wanted.way], wanted.lasts, wanted.abandons)
    for case in [one] if wanted.call else cases_of(workload, wanted.seed, calls, limit):
        findings = try_case(case, place)
        tried, violations = tried + 1, violations + bool(findings)
        if findings:
            sys.stdout.write(f"{case} --build {wanted.build}: {'; '.join(findings)}\n")
    sys.stdout.write(f"{workload} ({wanted.build}), seed {wanted.seed}, {calls} calls: ")
    sys.stdout.write(f"cases {tried}, violations {violations}\n")
    sys.stdout.flush()
    return tried, violations


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
