"""The rig by hand: ``python -m tests.rigs.damage --count 500 --seed 1 --kind bit``."""

import argparse
import sys
import time

from tests.rigs.breaks import BUILDS
from tests.rigs.damage.damages import CLASSES
from tests.rigs.damage.rig import run

SHOWN = 40


def main() -> int:
    """Damage, print the table and what may not be; 1 if there was any."""
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.damage", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many of each class")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=CLASSES, action="append", help="one or several; without it, all")
    parser.add_argument("--build", choices=BUILDS, default="sound")
    parser.add_argument("--all", action="store_true", help="print every case")
    wanted = parser.parse_args()
    began = time.monotonic()
    kinds = wanted.kind or list(CLASSES)
    outcome = run(kinds, range(wanted.first, wanted.first + wanted.count), wanted.seed, wanted.build)
    sys.stdout.write(f"seed {wanted.seed}, build {wanted.build}, {time.monotonic() - began:.0f} s\n{outcome.table()}\n")
    for line in list(outcome.lines())[:SHOWN]:
        sys.stdout.write(f"{line}\n")
    for case in outcome.cases if wanted.all else ():
        sys.stdout.write(f"{case}\n")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
