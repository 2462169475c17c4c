"""``python -m tests.rigs.history kill --loops 1000 --seed 7 --processes 1 --threads 4``: one rig, as long as needed.

Prints a line every hundred loops and a summary at the end; 1 if there were violations. The store in which something was
found is left where the last line says, with the journal of all calls beside it.
"""

# ruff: noqa: T201 - a command prints.

import argparse
import faulthandler
import secrets
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.rigs.breaks import BUILDS
from tests.rigs.history import contention, erasures, kill
from tests.rigs.history.chaos import DISK_BYTES, FAULTS, Chaos
from tests.rigs.history.tally import Tally
from tests.support import network
from tests.support.commits import running

RIGS: dict[str, Callable[..., Tally]] = {"kill": kill.run, "history": contention.run, "erase": erasures.run}
LOGS = ("postgres", "nats", "nats-cluster", "postgres-network", "nats-network")
"""The last ones are at hosts that can be cut off: network namespaces of their own, which only root may make."""
LOOP_SECONDS_MAX = 300
REPORT_LOOPS = 100


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.history", description=__doc__)
    parser.add_argument("rig", choices=sorted(RIGS))
    parser.add_argument("--loops", type=int, default=25)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32), help="drawn and printed if not given")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--broken", choices=sorted(BUILDS), default="", help="run a build that is broken on purpose")
    parser.add_argument("--log", choices=LOGS, default="", help="servers of the log")
    parser.add_argument("--chaos", action="store_true", help="have those servers fail meanwhile")
    parser.add_argument("--fault", choices=sorted(FAULTS), action="append", default=[], help="in this way alone")
    return parser.parse_args()


def report(tally: Tally) -> None:
    """Watch over the loop that begins now, and say now and then how far it is."""
    faulthandler.dump_traceback_later(LOOP_SECONDS_MAX, exit=True)
    if tally.loops and tally.loops % REPORT_LOOPS == 0:
        print(tally, flush=True)


def main() -> int:
    """Run a rig; 1 if it found something."""
    given = arguments()
    if given.log.endswith("-network"):
        network.enter()
    tally = Tally(given.rig, given.seed, given.processes, given.threads)
    print(tally, flush=True)
    directory = Path(tempfile.mkdtemp(prefix="rig-"))
    options: dict[str, Any] = {"loops": given.loops, "broken": given.broken, "on_loop": report}
    with ExitStack() as servers:
        if given.log:
            options["logs"] = servers.enter_context(running(given.log, DISK_BYTES if given.chaos else 0))
        chaos = servers.enter_context(Chaos(options["logs"], f"{given.seed}", given.fault)) if given.chaos else None
        RIGS[given.rig](directory, tally, **options)
        print(tally)
        if chaos is not None:
            print(f"faults: {dict(chaos.faults)}")
    if tally.violations:
        print(f"the store and its journal are in {directory}")
        return 1
    directory.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
