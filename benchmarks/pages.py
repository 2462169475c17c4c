"""The report of what is stored: a page of HTML that needs nothing else, the same in Markdown, and on the terminal."""

import html
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import plots
from results import FULL, QUICK, Document, Results
from rounds import Ratio
from rows.table import SKIPPED, Row

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; font-size: 13px; margin: 1rem 0 } th { text-align: left }
td, th { border: 1px solid #ccc; padding: .25rem .5rem; vertical-align: top } tr.missed td { background: #fdeaea }
tr.met td { background: #eef8ee } code { background: #f4f4f4 } svg { max-width: 100%; height: auto }
"""
HEAD = ("job", "refold", "floor or peer", "it takes", "ratio", "quartiles", "to reach", "")
EVICTION_HEAD = (
    "policy",
    "budget",
    "survival, %",
    "95 %",
    "all of it, %",
    "regret, %",
    "tokens",
    "evicted",
    "broken",
    "append",
)
RETRIEVAL_HEAD = ("ranking", "questions", "category", "recall, %", "95 %", "all of it, %", "MRR")

Line = tuple[str, ...]


class Table(NamedTuple):
    """A heading, what is said below it, the head and the lines of a table, and a plot."""

    title: str
    said: str
    head: Line
    lines: list[Line]
    plot: str = ""


def report(directory: Path) -> None:
    """Write ``report.html`` and ``report.md`` of what is stored, and print the latter."""
    stored = collected(directory)
    if not stored:
        print("nothing is stored; run tools/bench quick or tools/bench full first", file=sys.stderr)
        return
    tables = list(tables_of(stored))
    text = markdown(tables)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.html").write_text(page(tables), encoding="utf-8")
    (directory / "report.md").write_text(text, encoding="utf-8")
    print(text)
    if not plots.is_there():
        print(plots.ABSENT, file=sys.stderr)
    print(f"written: report.html and report.md in {directory.name}", file=sys.stderr)


def collected(directory: Path) -> dict[str, Document]:
    """Return every group that is stored: the full run's, and the quick run's where that has none."""
    return {**Results(QUICK, directory).load(), **Results(FULL, directory).load()}


def row_of(document: Document) -> Row:
    """Return a stored row."""
    ratio = document["ratio"] and Ratio(**document["ratio"])
    return Row(**{**document, "ratio": ratio})


def tables_of(stored: dict[str, Document]) -> Iterator[Table]:
    """Yield what is shown: the machine, what was missed, and every group."""
    yield Table("Machines and commands", "", *_machines(stored))
    missed = [row_of(row) for group in stored.values() for row in group.get("rows", ()) if row["is_met"] is False]
    yield Table("Missed", "Everything that was to be reached and was not.", HEAD, [row.cells() for row in missed])
    yield Table("Slower than a peer", "Where a peer's rate is higher than ours.", HEAD, _lost(stored))
    yield Table("Left out", "What was not measured, and why.", ("group", "reason"), list(_left_out(stored)))
    for name, group in stored.items():
        if group.get("rows"):
            yield _rows_table(name, group)
        for each in group.get("retrieval", ()):
            yield _retrieval_table(each)
        for each in group.get("eviction", ()):
            yield _eviction_table(each)


def _machines(stored: dict[str, Document]) -> tuple[Line, list[Line]]:
    lines = [
        (
            name,
            group["mode"],
            f"{group['seconds']:.0f} s",
            group["command"],
            ", ".join(f"{key} {value}" for key, value in group["machine"].items()),
        )
        for name, group in stored.items()
    ]
    return ("group", "run", "took", "command", "machine and versions"), lines


def _left_out(stored: dict[str, Document]) -> Iterator[Line]:
    for name, group in stored.items():
        yield from ((name, reason) for reason in group.get("absent", ()))
        rows = (row for row in group.get("rows", ()) if row["note"].startswith(SKIPPED))
        yield from ((name, f"{row['job']}, {row['floor']}: {row['note'].removeprefix(SKIPPED)}") for row in rows)


def _lost(stored: dict[str, Document]) -> list[Line]:
    rows = [row_of(row) for name, group in stored.items() if name.startswith("peers") for row in group["rows"]]
    return [row.cells() for row in rows if row.ratio is not None and row.ratio.value < 1]


def _rows_table(name: str, group: Document) -> Table:
    rows = [row_of(row) for row in group["rows"]]
    plot = ""
    if plots.is_there() and name == "growth":
        plot = plots.growth([row for row in group["rows"] if row["points"]])
    if plots.is_there() and name.startswith("peers-search"):
        plot = plots.recall(name, _searches(rows))
    return Table(name, f"Run: {group['mode']}.", HEAD, [row.cells() for row in rows], plot)


def _searches(rows: Sequence[Row]) -> list[tuple[str, float, float]]:
    """Return what a search takes and how much of the ten nearest it finds, ours first; both stand in the notes."""
    points: list[tuple[str, float, float]] = []
    for row in rows:
        said = re.search(r"recall ([0-9.]+) \(ours ([0-9.]+)\)", row.note)
        if said and row.job == "search: search" and row.ours_ns and row.floor_ns:
            ours = [] if points else [("refold", row.ours_ns / 1_000, float(said[2]))]
            points += [*ours, (row.floor, row.floor_ns / 1_000, float(said[1]))]
    return points


def _percent(part: float | None) -> str:
    return "" if part is None else f"{100 * part:.1f}"


def _interval(interval: Document | None) -> str:
    return "" if interval is None else f"{100 * interval['low']:.1f}-{100 * interval['high']:.1f}"


def _retrieval_table(each: Document) -> Table:
    depth = each["depth"]
    lines = [
        (
            one["system"],
            str(one["questions"]),
            one["category"],
            _percent(one["recall"][str(depth)]),
            _interval(one["recall_interval"]),
            _percent(one["full"][str(depth)]),
            _percent(one["reciprocal_rank"]),
        )
        for one in each["figures"]
    ]
    title = f"Retrieval: {each['set']}, vectors of {each['vectors']}"
    plot = plots.found(f"{each['set']}, {each['vectors']}", each["figures"], depth) if plots.is_there() else ""
    return Table(title, f"Evidence recall at {depth}.", RETRIEVAL_HEAD, lines, plot)


def _eviction_table(each: Document) -> Table:
    lines = [
        (
            plots.policy_of(one),
            f"{one['budget']:,}",
            _percent(one["survival"]),
            _interval(one["survival_interval"]),
            _percent(one["full"]),
            _percent(one["regret"]),
            "" if one["tokens"] is None else f"{one['tokens']:,.0f}",
            "" if one["evicted"] is None else f"{one['evicted']:,}",
            "" if one["broken"] is None else f"{one['broken']:,}",
            "" if one["append_ns"] is None else f"{one['append_ns'] / 1_000:.1f} us",
        )
        for one in each["evictions"]
    ]
    said = f"Search by vectors of {each['vectors']}. Broken: appends behind which an answer stood without its call."
    plot = plots.survival(each["set"], each["evictions"]) if plots.is_there() else ""
    return Table(f"Eviction: {each['set']}", said, EVICTION_HEAD, lines, plot)


def markdown(tables: Sequence[Table]) -> str:
    """Return the tables as Markdown, aligned for a terminal."""
    return "# refold, measured\n" + "".join(_section(table) for table in tables)


def _section(table: Table) -> str:
    said = f"\n{table.said}\n" if table.said else ""
    return f"\n## {table.title}\n{said}\n{_aligned(table.head, table.lines) if table.lines else 'Nothing.'}\n"


def _aligned(head: Line, lines: Sequence[Line]) -> str:
    cells = [tuple(cell.replace("|", "\\|") for cell in line) for line in (head, *lines)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    drawn = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in cells]
    drawn.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(drawn)


def page(tables: Sequence[Table]) -> str:
    """Return the tables and plots as one page of HTML that loads nothing."""
    body = "".join(_article(table) for table in tables)
    head = f'<meta charset="utf-8"><title>refold, measured</title><style>{STYLE}</style>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><h1>refold, measured</h1>{body}</body></html>\n'
    )


def _article(table: Table) -> str:
    said = f"<p>{html.escape(table.said)}</p>" if table.said else ""
    heads = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.head)
    lines = "".join(_html_line(line) for line in table.lines)
    shown = f"<table><tr>{heads}</tr>{lines}</table>" if table.lines else "<p>Nothing.</p>"
    return f"<h2>{html.escape(table.title)}</h2>{said}{table.plot}{shown}\n"


def _html_line(line: Line) -> str:
    kind = next((word for word in ("missed", "met") if line[-1].lower().startswith(word)), "")
    cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in line)
    return f'<tr class="{kind}">{cells}</tr>' if kind else f"<tr>{cells}</tr>"
