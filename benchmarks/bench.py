"""What `tools/bench` runs: groups of measurements one after the other, each stored when it is done.

    python benchmarks/bench.py quick|full|peers [--again] [--only GROUP]
    python benchmarks/bench.py report|publish

A group that is stored is left alone, so that a run that was cut off goes on where it ended.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import workloads
from pages import report
from peers.registry import PEERS, REFOLD
from publication import publish
from report import DATA, GROUPS, MILLIONS, machine
from results import FULL, QUICK, RESULTS, Results
from rounds import in_short_slices, short_slices
from rows import growth, peers, selection, sets
from rows.table import Options, Row, Rows, Stores

ROWS: dict[str, Rows] = {
    **GROUPS,
    "growth": growth.rows,
    "peers-log": peers.log_rows,
    "peers-search": peers.search_rows,
    "peers-search-large": peers.large_search_rows,
    "peers-window": peers.window_rows,
    "selection": selection.rows,
}
"""Groups whose figures are rows: a job, what it takes, a floor or a peer."""

SETS: dict[str, Callable[..., dict[str, Any]]] = {"retrieval": sets.retrieval, "eviction": sets.eviction}
"""Groups whose figures are those of the public sets."""

PEER_GROUPS = ("peers-log", "peers-window", "peers-search")
ALL_PEER_GROUPS = (*PEER_GROUPS, "peers-search-large")
QUICK_GROUPS = (
    *("import", "append", "batch", "window", "replay", "at", "fork", "open", "search"),
    *(*PEER_GROUPS, "growth", "retrieval", "eviction", "selection"),
)
MODES: dict[str, tuple[str, tuple[str, ...]]] = {
    "quick": (QUICK, QUICK_GROUPS),
    "full": (FULL, tuple(group for group in (*ROWS, *SETS) if group not in MILLIONS)),
    "peers": (FULL, ALL_PEER_GROUPS),
}


TINY = "tiny"
STOPPED = 130
REMOVALS_MAX = 1_000

_stopping = threading.Event()
_places: set[Path] = set()
"""Where the stores of groups lie or lay."""


class Amount(NamedTuple):
    """How much a mode does."""

    sizes: workloads.Sizes
    peer_sizes: str
    peer_rounds: int


AMOUNTS = {
    QUICK: Amount(workloads.QUICK, "quick", 6),
    FULL: Amount(workloads.FULL, "full", 30),
    TINY: Amount(workloads.TINY, "tiny", 1),
}


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(description="Measure refold, and report what was measured.")
    parser.add_argument("mode", choices=[*MODES, "report", "publish"])
    parser.add_argument("--again", action="store_true", help="measure what is stored, too")
    parser.add_argument("--only", action="append", choices=[*ROWS, *SETS], metavar="GROUP", help="these groups; repeat")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: whether it runs, not how fast")
    parser.add_argument("--directory", type=Path, help="where the stores lie (default: the temporary directory)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the figures are stored")
    data = Path(os.environ.get("BENCH_DATA") or DATA)
    parser.add_argument("--data", type=Path, default=data, help="the public data sets (default: BENCH_DATA)")
    return parser.parse_args(given)


def run(asked: argparse.Namespace) -> list[str]:
    """Measure the groups of a mode that are not stored yet, and return those that failed: the others go on."""
    mode, groups = MODES[asked.mode]
    # What was measured to see whether it runs is never taken for figures.
    results = Results(f"{mode}-{TINY}" if asked.tiny else mode, asked.results)
    amount = AMOUNTS[TINY if asked.tiny else mode]
    chosen = [group for group in (*groups, *MILLIONS) if group in (asked.only or groups)]
    waiting = [group for group in chosen if asked.again or not results.has(group)]
    if len(waiting) < len(chosen):
        _tell(f"{len(chosen) - len(waiting)} of {len(chosen)} groups are stored; --again measures them anew")
    begin = time.monotonic()
    failed: list[str] = []
    for place, group in enumerate(waiting, 1):
        _tell(f"[{place}/{len(waiting)}] {group} ...")
        try:
            document = measured(group, mode, asked, amount)
        except Exception:  # noqa: BLE001 - whatever it is, what else was asked for is measured
            if _stopping.is_set():
                break  # Its stores were taken away.
            _tell(f"{traceback.format_exc()}[{place}/{len(waiting)}] {group}: failed, and is not stored")
            failed.append(group)
            continue
        results.save(group, document)
        _tell(f"[{place}/{len(waiting)}] {group}: {document['seconds']:.0f} s")
    _tell(f"done in {time.monotonic() - begin:.0f} s; tools/bench report shows it")
    return failed


def measured(group: str, mode: str, asked: argparse.Namespace, amount: Amount) -> dict[str, Any]:
    """Measure one group in a directory of its own and return what is stored of it."""
    about = {**machine(), "short slices": short_slices(), **(versions() if group.startswith("peers") else {})}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="refold-benchmarks-", dir=asked.directory) as directory:
        place = Path(directory)
        _places.add(place)
        if group in SETS:
            found = SETS[group](asked.data, is_quick=amount.peer_sizes != "full")
        else:
            with opened(place, asked.data, amount) as options:
                found = {"rows": list(_seen(ROWS[group](options)))}
    command = f"tools/bench {asked.mode} --again --only {group}{' --tiny' if asked.tiny else ''}"
    seconds = round(time.monotonic() - begin, 1)
    return {"group": group, "mode": mode, "command": command, "machine": about, "seconds": seconds, **found}


def _seen(rows: Iterator[Row]) -> Iterator[dict[str, Any]]:
    """Yield rows as they are stored, and say on a terminal which are there: some groups take minutes."""
    for count, row in enumerate(rows, 1):
        if sys.stderr.isatty():
            print(f"\r\x1b[K    {count}: {row.job}"[:100], end="", file=sys.stderr, flush=True)
        yield row.as_json()
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def opened(directory: Path, data: Path, amount: Amount) -> Iterator[Options]:
    """Return what rows measure with; the filled stores are closed at the end."""
    stores = Stores(directory, amount.sizes)
    options = partial(Options, amount.sizes, amount.sizes.rounds, directory, data, stores, directory / "large-kept")
    try:
        yield options(peer_sizes=amount.peer_sizes, peer_rounds=amount.peer_rounds)
    finally:
        stores.close()


def versions() -> dict[str, str]:
    """Return the versions of the peers that are there."""
    there = {entry.distribution: entry for entry in PEERS.values() if not entry.reason and entry.distribution != REFOLD}
    return {name: entry.version for name, entry in sorted(there.items())}


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(given: Sequence[str]) -> int:
    """Do what was asked for; 0 whether targets were met or missed, because a busy machine decides that too.

    1 where a group failed, 130 where the run was stopped; the next run measures what is not stored.
    """
    asked = arguments(given)
    if asked.mode == "report":
        report(asked.results)
    elif asked.mode == "publish":
        publish(asked.results)
    else:
        return _ran(asked)
    return 0


def _ran(asked: argparse.Namespace) -> int:
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        failed = in_short_slices(run, asked)
    except KeyboardInterrupt:
        _stopping.set()
        for place in list(_places):
            _remove(place)
        _tell("stopped; the same command goes on with what is not stored")
        return STOPPED
    finally:
        signal.signal(signal.SIGTERM, before)
    if failed:
        _tell(f"failed: {', '.join(failed)}; the same command tries again")
    return 1 if failed else 0


def _remove(place: Path) -> None:
    """Remove a directory in which the thread that measures may still be writing."""
    for _ in range(REMOVALS_MAX):
        shutil.rmtree(place, ignore_errors=True)
        if not place.exists():
            return


def _stop(_number: int, _frame: object) -> None:
    """Stop as Ctrl-C does, so that the stores of the group that was cut off are removed at the end."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    status = main(sys.argv[1:])
    if status == STOPPED:
        # The thread that measures is not waited for, and must not begin with anything anew.
        os._exit(status)
    sys.exit(status)
