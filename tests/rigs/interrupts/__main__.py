"""The harness by hand: ``python -m tests.rigs.interrupts --verb Conversation.append --store durable --all``."""

import argparse
import sys
from pathlib import Path
from typing import Any

from tests.rigs.interrupts.rig import ERRORS, Case, Injection, Tally, cases_of, run
from tests.rigs.interrupts.signals import run_out, send
from tests.rigs.power.recording import scratch
from tests.support.verbs import VERBS
from tests.support.worlds import STATES


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.interrupts", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every point, with each exception")
    parser.add_argument("--count", type=int, default=6, help="points that are drawn for each verb, store and state")
    parser.add_argument("--store", choices=STATES, action="append")
    parser.add_argument("--state", choices=STATES["durable"], action="append")
    parser.add_argument("--beside", action="store_true", help="as --state beside: another process has written")
    parser.add_argument("--verb", action="append", help="a name of verbs.py, or how several begin")
    parser.add_argument("--error", choices=ERRORS, action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--depth", type=int, default=1, help="verify and open anew behind every so many injections")
    parser.add_argument("--patience", type=int, default=5, help="seconds after which something counts as hanging")
    parser.add_argument("--verbose", action="store_true", help="whole texts and stacks of what is found")
    parser.add_argument("--signals", type=int, default=0, help="send SIGINT instead, until so many landed")
    parser.add_argument("--shortages", type=int, default=0, help="let the first read of 45,000 messages run out of RAM")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run what is asked for and print what was found; 1 if that was anything."""
    wanted = parse(arguments)
    with scratch() as directory:
        if wanted.signals:
            return _signals(wanted, directory)
        if wanted.shortages:
            return _shortages(wanted, directory)
        asked = wanted.verb or [""]
        verbs = [
            name for name in VERBS for want in asked if name == want or (want not in VERBS and name.startswith(want))
        ]
        states = ["beside"] if wanted.beside else wanted.state or STATES["durable"]
        options: dict[str, Any] = {name: getattr(wanted, name) for name in ("seed", "depth", "patience")}
        options |= {"errors": tuple(wanted.error or ERRORS), "drawn": 0 if wanted.all else wanted.count}
        tally = shown(cases_of(verbs, wanted.store or list(STATES), states, **options), directory, wanted.verbose)
    sys.stdout.write(f"{tally}\n")
    return 1 if tally.violations else 0


def shown(cases: list[Case], directory: Path, is_verbose: bool) -> Tally:
    """Run the cases and print what is found."""
    tally = Tally()
    for report in run(cases, directory):
        tally.add(report)
        if report.findings:
            point = f" {report.error} at {report.point}, {report.where}" if isinstance(report, Injection) else ""
            said = "".join(
                f"\n    {kind}: {text if is_verbose else repr(text[:160])}" for kind, text in report.findings
            )
            sys.stdout.write(f"{report.case}{point}{said}\n")
            sys.stdout.flush()
    return tally


def _signals(wanted: argparse.Namespace, directory: Path) -> int:
    found = 0
    for store in wanted.store or ["durable", "delayed"]:
        reports = list(send(directory, store, wanted.seed, wanted.signals, is_beside=wanted.beside))
        landed, verbs = sum(report.landed for report in reports), sum(report.verbs for report in reports)
        findings = [finding for report in reports for finding in report.findings]
        said = "".join(f"\n    {finding if wanted.verbose else repr(finding[:160])}" for finding in findings)
        sys.stdout.write(f"{store}: stores {len(reports)}, verbs {verbs}, landed {landed}, red {len(findings)}{said}\n")
        found += len(findings)
    return 1 if found else 0


def _shortages(wanted: argparse.Namespace, directory: Path) -> int:
    attempts = list(run_out(directory, 45_000, wanted.shortages))
    for failed, wrong in attempts:
        sys.stdout.write(f"raised {failed or 'nothing'}, wrong: {wrong}\n")
    return 1 if any(wrong for _, wrong in attempts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
