"""The rig by hand: ``python -m tests.rigs.power --states 1500 --seed 1 --workload durable``."""

import argparse
import os
import sys
import time
from pathlib import Path

from tests.rigs.breaks import BUILDS
from tests.rigs.power import trace
from tests.rigs.power.recording import Run, scratch
from tests.rigs.power.rig import Outcome, try_states
from tests.rigs.power.workloads import WORKLOADS


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.power", description=__doc__)
    parser.add_argument("--states", type=int, default=500, help="how many states to try in each workload")
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first, to go on where a run was cut off"
    )
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first recording")
    parser.add_argument("--workload", choices=WORKLOADS, action="append", help="one or several; without it, all")
    parser.add_argument("--build", choices=BUILDS, default="sound", help="the build of refold: sound, or broken")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many processes judge at a time")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Try the states and print a line for each workload and for all; the exit code says whether all was well."""
    wanted = parse(arguments)
    missing = trace.missing()
    if missing:
        sys.stdout.write(f"{missing}\n")
        return 2
    total = Outcome()
    with scratch() as place:
        library = trace.build(place)
        for workload in wanted.workload or WORKLOADS:
            total.add(_try_workload(library, Run(workload, wanted.build, wanted.seed), wanted))
    sys.stdout.write(f"all: states {total.states}, violations {len(total.violations)}\n")
    return 1 if total.violations else 0


def _try_workload(library: Path, run: Run, wanted: argparse.Namespace) -> Outcome:
    began = time.monotonic()
    outcome = try_states(library, run, range(wanted.first, wanted.first + wanted.states), wanted.jobs)
    for violation in outcome.violations[:20]:
        sys.stdout.write(f"{violation}\n")
    seconds = time.monotonic() - began
    counts = f"states {outcome.states}, violations {len(outcome.violations)}"
    sys.stdout.write(f"{run.workload} ({run.build}), seed {run.seed}: {counts}, {seconds:.1f} s\n")
    sys.stdout.flush()
    return outcome


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
