"""A row of the report: our figure, the floor's of the same rounds, their ratio, and what was to be reached."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import workloads
from rounds import Ratio, Sense, Spent, Target, median, quantile, ratio_of

from refold import Memory

_UNITS = ((1_000_000_000.0, "s"), (1_000_000.0, "ms"), (1_000.0, "us"), (1.0, "ns"))
WITH_RECALL = " with a recall of at least "
SKIPPED = "skipped: "
_EQUAL = 0.005
"""Recalls that differ by no more count as equal."""

_COLUMNS = ("job", "refold", "floor", "floor takes", "ratio", "quartiles", "target", "")


class Row(NamedTuple):
    """One comparison, or, where there is no floor, one figure against a limit."""

    job: str
    ours_ns: float | None
    floor: str
    floor_ns: float | None = None
    ratio: Ratio | None = None
    target: str = ""
    is_met: bool | None = None
    note: str = ""
    points: Sequence[tuple[int, float, float]] = ()
    """For what grows: a size, the processor's time and the clock's, in nanoseconds."""

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {**self._asdict(), "ratio": self.ratio and self.ratio._asdict()}

    def cells(self) -> tuple[str, ...]:
        """Return the row as text."""
        figure = "" if self.ratio is None else f"{self.ratio.value:.2f}"
        quartiles = "" if self.ratio is None else f"{self.ratio.low:.2f}-{self.ratio.high:.2f}"
        verdict = {None: "", True: "met", False: "MISSED"}[self.is_met]
        said = " ".join(word for word in (verdict, self.note) if word)
        return (
            self.job,
            time_text(self.ours_ns),
            self.floor,
            time_text(self.floor_ns),
            figure,
            quartiles,
            self.target,
            said,
        )


class Options(NamedTuple):
    """What a run of the report measures with."""

    sizes: workloads.Sizes
    rounds: int
    directory: Path
    data: Path
    stores: "Stores"
    large: Path | None = None
    """Where the large store is kept from one run to the next."""

    peer_sizes: str = "full"
    """How much the peers in processes of their own get to do: full, quick or tiny."""

    peer_rounds: int = 20


class Stores:
    """The filled stores of a run, each built once and closed at its end."""

    def __init__(self, directory: Path, sizes: workloads.Sizes) -> None:
        self._directory = directory
        self._sizes = sizes
        self._open: dict[int, Memory] = {}
        self._closing = ExitStack()

    def filled(self, conversations: int) -> Memory:
        """Return the store of ``log_events`` messages in so many conversations."""
        memory = self._open.get(conversations)
        if memory is None:
            path = self._directory / f"filled-{conversations}"
            memory = workloads.fill(path, self._sizes.log_events, conversations)
            self._open[conversations] = self._closing.enter_context(memory)
        return memory

    def close(self) -> None:
        """Close every store."""
        self._closing.close()


Rows = Callable[[Options], Iterator[Row]]


def compared(
    job: str,
    ours: Sequence[float],
    floor: str,
    floor_samples: Sequence[float],
    target: Target | None,
    *,
    pick: Callable[[Sequence[float]], float] = median,
    sense: Sense = "at least",
    note: str = "",
) -> Row:
    """Return a row that holds our samples against a floor's; without a target ``sense`` says what is compared."""
    ratio = ratio_of(ours, floor_samples, target.sense if target else sense, pick=pick)
    said = "" if target is None else f"{target.sense} {target.bound:g} x its {_measure(target)}"
    met = None if target is None else target.is_met(ratio.value)
    return Row(job, pick(ours), floor, pick(floor_samples), ratio, said, met, note)


def recalled(row: Row, least: float, *recalls: float) -> Row:
    """Return the row with a verdict that also asks for recall: the first is ours, and no other may be above it.

    What finds less is faster; a ratio of times says nothing where the answers are not the same.
    """
    ours = recalls[0]
    is_there = ours >= least and all(ours >= other - _EQUAL for other in recalls[1:])
    target = row.target and f"{row.target}{WITH_RECALL}{least:g}"
    return row._replace(target=target, is_met=None if row.is_met is None else row.is_met and is_there)


def _measure(target: Target) -> str:
    return "time" if target.sense == "at most" else "rate"


def bounded(
    job: str,
    ours: Sequence[float],
    floor: str,
    floor_samples: Sequence[float],
    limit_ns: float | None,
    *,
    pick: Callable[[Sequence[float]], float] = median,
    note: str = "",
) -> Row:
    """Return a row that holds a time against a limit of its own, and says what the floor took beside it."""
    ratio = ratio_of(ours, floor_samples, "at most", pick=pick)
    limit = limited(job, pick(ours), limit_ns, note)
    return limit._replace(floor=floor, floor_ns=pick(floor_samples), ratio=ratio)


def limited(job: str, nanoseconds: float, limit_ns: float | None, note: str) -> Row:
    """Return a row that holds a time against a limit of its own."""
    said = "" if limit_ns is None else f"at most {time_text(limit_ns)}"
    return Row(job, nanoseconds, "-", None, None, said, None if limit_ns is None else nanoseconds <= limit_ns, note)


def found(job: str, part: float, least: float, note: str) -> Row:
    """Return a row that holds a part of what was to be found against the least that was to be."""
    return Row(job, None, "-", None, None, f"at least {100 * least:g} %", part >= least, f"{100 * part:.1f} %, {note}")


def skipped(job: str, floor: str, reason: str) -> Row:
    """Return a row for what could not be measured, with the reason."""
    return Row(job, None, floor, note=f"{SKIPPED}{reason}")


def processor(samples: Spent, ours: str, floor: str) -> str:
    """Return the processor's time per operation of ours and of the floor, as text: the fastest tenth of the rounds."""
    mine, other = (time_text(quantile(samples.processor[name], 1)) for name in (ours, floor))
    return f"CPU {mine} against {other}"


def rate(nanoseconds: float) -> str:
    """Return how many operations a second that is, as text."""
    return f"{1_000_000_000 / nanoseconds:,.0f} events/s"


def spread(samples: Sequence[float]) -> str:
    """Return the fastest tenth, the median and the slowest of some samples, as text."""
    return f"p10 {time_text(quantile(samples, 1))}, p50 {time_text(median(samples))}, max {time_text(max(samples))}"


def time_text(nanoseconds: float | None) -> str:
    """Return a time in the largest unit that it has one of, empty where there is none."""
    if nanoseconds is None:
        return ""
    size, unit = next((pair for pair in _UNITS if nanoseconds >= pair[0]), _UNITS[-1])
    figure = nanoseconds / size
    return f"{figure:.0f} {unit}" if figure >= 100 else f"{figure:.3g} {unit}"


def drawn(rows: Iterable[Row]) -> str:
    """Return the rows as a table in Markdown, aligned for a terminal."""
    cells = [_COLUMNS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    lines = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
