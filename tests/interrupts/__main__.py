"""The harness by hand: ``python -m tests.interrupts --verb Conversation.append --store durable --all``."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.interrupts.rig import ERRORS, Case, Injection, Tally, cases_of, run
from tests.interrupts.verbs import VERBS
from tests.interrupts.worlds import STATES


def main(arguments: list[str]) -> int:
    """Run what is asked for and print what was found; 1 if that was anything."""
    parser = argparse.ArgumentParser(prog="python -m tests.interrupts", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every point, with each exception")
    parser.add_argument("--count", type=int, default=6, help="points that are drawn for each verb, store and state")
    parser.add_argument("--store", choices=STATES, action="append")
    parser.add_argument("--state", choices=STATES["durable"], action="append")
    parser.add_argument("--beside", action="store_true", help="beside another process only, as --state beside")
    parser.add_argument("--verb", action="append", help="a name, or its begin, of those in verbs.py")
    parser.add_argument("--error", choices=ERRORS, action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=int, default=5, help="seconds after which something counts as hanging")
    parser.add_argument("--verbose", action="store_true", help="whole texts and stacks of what is found")
    wanted = parser.parse_args(arguments)
    begins = tuple(wanted.verb or [""])
    verbs = [verb for verb in VERBS if verb.startswith(begins)]
    states = ["beside"] if wanted.beside else wanted.state or STATES["durable"]
    options = {"count": 0 if wanted.all else wanted.count, "seed": wanted.seed, "patience": wanted.patience}
    options["errors"] = tuple(wanted.error or ERRORS)
    place = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108 - a directory of its own in it
    cases = cases_of(verbs, wanted.store or list(STATES), states, **options)
    with tempfile.TemporaryDirectory(dir=place) as directory:
        tally = shown(cases, Path(directory), verbose=wanted.verbose)
    sys.stdout.write(f"{tally}\n")
    return 1 if tally.violations else 0


def shown(cases: list[Case], directory: Path, *, verbose: bool) -> Tally:
    """Run the cases and print what is found."""
    tally = Tally()
    for report in run(cases, directory):
        tally.add(report)
        if report.findings:
            point = f" {report.error} at {report.point}, {report.where}" if isinstance(report, Injection) else ""
            said = "".join(f"\n    {kind}: {text if verbose else text[:160]!r}" for kind, text in report.findings)
            sys.stdout.write(f"{report.case}{point}{said}\n")
            sys.stdout.flush()
    return tally


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
