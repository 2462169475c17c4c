"""Ratios that a change may not make much worse, whatever the machine: beyond a bound that is stored here a test fails.

The bounds are wide of what was published, because sizes are small and the machine is busy: they catch what has become
several times slower, in every commit. No time is looked at, only ratios, the best of some tries.
"""

from pathlib import Path

import pytest
import workloads
from rounds import Ratio, Target
from rows import append, projects, replay, search, startup, together, window
from rows.table import Options, Row, Rows, Stores

SIZES = workloads.TINY._replace(
    batch_events=1_000, log_events=10_000, window_operations=1_000, processes=5, search_rows=10_000
)
ROUNDS = 12
TRIES = 3

AT_MOST, AT_LEAST = "at most", "at least"
GROUPS: dict[str, Rows] = {
    "append": append.single_rows,
    "batch": append.batch_rows,
    "window": window.rows,
    "replay": replay.rows,
    "import": startup.import_rows,
    "together": together.rows,
    "search": search.rows,
    "projects": projects.rows,
}
SLOW = ("together", "search", "projects")

BOUNDS: dict[str, dict[tuple[str, str], Target]] = {
    "append": {("durable append, one writer", append.PUT_ONE): Target(AT_MOST, 2.0)},
    "batch": {
        ("batched append, 1 conversation, per event", append.PUT): Target(AT_LEAST, 0.10),
        ("batched append, 100 conversations, per event", append.PUT): Target(AT_LEAST, 0.10),
    },
    "window": {(window.JOB, window.DEQUE): Target(AT_MOST, 3.5)},
    "replay": {
        ("replay of 10,000 events, 1 conversation", replay.FLOOR): Target(AT_LEAST, 0.20),
        ("replay of 10,000 events, 200 conversations", replay.FLOOR): Target(AT_LEAST, 0.20),
    },
    "import": {
        ("import refold", startup.FLOOR): Target(AT_MOST, 0.9),
        ("from refold import Memory", startup.FLOOR): Target(AT_MOST, 2.6),
    },
    "together": {
        (f"{together.THREADS}, per event", together.ONE): Target(AT_LEAST, 1.5),
        (f"{together.TASKS}, per event", together.TICKS): Target(AT_LEAST, 0.08),
    },
    "search": {
        ("exact hybrid, 10,000 rows", search.PRODUCT): Target(AT_MOST, 3.0),
        ("as of half of the rows, 10,000 rows", search.HALF_PRODUCT): Target(AT_MOST, 4.0),
    },
    "projects": {
        ("project.search, 10,000 memories", projects.PRODUCT): Target(AT_MOST, 4.0),
        ("project.search as of half of the events, 10,000 memories", projects.HALF_PRODUCT): Target(AT_MOST, 6.0),
    },
}
"""What a ratio may at most be, or has to be at least, by its group, its job and its floor."""


def ratios(group: str, rows: list[Row]) -> dict[tuple[str, str], float]:
    """Return the ratios that have a stored bound; every bound of the group has one."""
    found = {(row.job, row.floor): row.ratio.value for row in rows if row.ratio is not None}
    return {key: found[key] for key in BOUNDS[group]}


def beyond(group: str, found: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Return the ratios that are on the wrong side of their stored bounds."""
    return {key: ratio for key, ratio in found.items() if not BOUNDS[group][key].is_met(ratio)}


def tried(group: str, directory: Path) -> list[Row]:
    directory.mkdir()
    stores = Stores(directory, SIZES)
    try:
        return list(GROUPS[group](Options(SIZES, ROUNDS, directory, directory, stores)))
    finally:
        stores.close()


@pytest.mark.parametrize(
    "group", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in GROUPS]
)
def test_no_ratio_is_beyond_its_stored_bound(group: str, tmp_path: Path) -> None:
    """Noise only makes ratios worse, and what has become slow is so in every try."""
    slow = beyond(group, ratios(group, tried(group, tmp_path / "0")))
    for turn in range(1, TRIES):
        if slow:
            again = beyond(group, ratios(group, tried(group, tmp_path / str(turn))))
            slow = {key: ratio for key, ratio in again.items() if key in slow}
    assert not slow


def test_a_ratio_beyond_its_bound_is_seen_and_a_bound_without_a_row_too() -> None:
    key = (window.JOB, window.DEQUE)
    row = Row(*(window.JOB, 5.0, window.DEQUE), 1.0, Ratio(3.6, 3.6, 3.6))
    assert beyond("window", ratios("window", [row])) == {key: 3.6}
    assert beyond("window", {key: 3.4}) == {}
    assert beyond("append", {next(iter(BOUNDS["append"])): 2.1})
    assert beyond("batch", {next(iter(BOUNDS["batch"])): 0.09})
    assert BOUNDS.keys() == GROUPS.keys()
    with pytest.raises(KeyError):
        ratios("window", [row._replace(floor="renamed")])
