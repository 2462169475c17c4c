"""Prints every job with its floor, their ratio and what was to be reached: `python benchmarks/report.py`."""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import lmdb
import msgspec
import workloads
from rounds import MINIMUM_ROUNDS, short_slices
from rows import (
    append,
    budget,
    large,
    many,
    neighbour,
    projects,
    replay,
    search,
    spread,
    startup,
    storage,
    throughput,
    together,
    travel,
    window,
)
from rows.table import Options, Row, Rows, Stores, drawn

import refold

GROUPS: dict[str, Rows] = {
    "append": append.single_rows,
    "batch": append.batch_rows,
    "window": window.rows,
    "replay": replay.rows,
    "verify": replay.verify_rows,
    "at": travel.at_rows,
    "size": storage.size_rows,
    "fork": travel.fork_rows,
    "open": startup.open_rows,
    "import": startup.import_rows,
    "context": startup.context_rows,
    "first-search": startup.search_rows,
    "default-budget": budget.rows,
    "sessions": storage.session_rows,
    "together": together.rows,
    "neighbour": neighbour.rows,
    "throughput": throughput.rows,
    "many": many.rows,
    "large": large.rows,
    "search": search.rows,
    "search-large": search.large_rows,
    "projects": projects.rows,
    "projects-large": projects.large_rows,
    "projects-many": spread.rows,
    "projects-million": projects.million_rows,
    "search-million": search.million_rows,
}
MILLIONS = ("projects-million", "search-million")
"""What takes most of an hour and ten gigabytes of RAM: in no mode of `tools/bench` unless it is named."""

ON_REQUEST = {"large", "search-large", "projects-large", "projects-many", *MILLIONS}
"""What is measured only when it is asked for by name."""

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(description="Measure refold against its floors and peers.")
    parser.add_argument("--rounds", type=int, default=0, help="rotated rounds of the durable jobs (default: 60)")
    parser.add_argument("--only", action="append", choices=list(GROUPS), metavar="NAME", help=" ".join(GROUPS))
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: whether it runs, not how fast")
    parser.add_argument("--directory", type=Path, help="where the stores lie (default: the temporary directory)")
    parser.add_argument("--large", type=Path, metavar="DIRECTORY", help="where the store of --only large is kept")
    parser.add_argument("--data", type=Path, default=DATA, help="where recorded sessions lie")
    return parser.parse_args(given)


def measured(asked: argparse.Namespace, directory: Path) -> Iterator[Row]:
    """Return the rows of every group asked for, one after the other."""
    sizes = workloads.TINY if asked.tiny else workloads.FULL
    stores = Stores(directory, sizes)
    options = Options(
        sizes, max(asked.rounds or sizes.rounds, MINIMUM_ROUNDS), directory, asked.data, stores, asked.large
    )
    try:
        for name in asked.only or [name for name in GROUPS if name not in ON_REQUEST]:
            print(f"measuring {name} ...", file=sys.stderr)
            yield from GROUPS[name](options)
    finally:
        stores.close()


def machine() -> dict[str, object]:
    """Return what the figures depend on."""
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "lmdb": f"{lmdb.__version__} over {'.'.join(map(str, lmdb.version()))}",
        "msgspec": msgspec.__version__,
        "refold": refold.__version__,
    }


def main(given: Sequence[str]) -> int:
    """Measure and print; 0 whether targets were met or missed, because a busy machine decides that too."""
    asked = arguments(given)
    about = {**machine(), "short slices": short_slices()}
    with tempfile.TemporaryDirectory(prefix="refold-benchmarks-", dir=asked.directory) as directory:
        rows = list(measured(asked, Path(directory)))
    if asked.json:
        print(json.dumps({"machine": about, "rows": [row.as_json() for row in rows]}, indent=2))
    else:
        print(", ".join(f"{name} {value}" for name, value in about.items()))
        print()
        print(drawn(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
