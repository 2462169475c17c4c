"""The tables of figures: made from what is published as JSON, which is taken from a full run.

What is published is every job that has something to reach, reached or missed, and every comparison with a peer, won or
lost, each with the figure of the run that was published before. FIGURES.md shows all of it, README five of the
comparisons.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results import FULL, Document, Results
from rows.table import WITH_RECALL, time_text

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
FIGURES = Path(__file__).resolve().parent / "FIGURES.md"
PUBLISHED = Path(__file__).resolve().parent / "published.json"
BEGIN = "<!-- These figures are made by tools/bench publish, from benchmarks/published.json. -->"
END = "<!-- End of the figures. -->"

GROUPS = (
    *("append", "together", "batch", "size", "window", "replay", "verify", "large", "default-budget"),
    *("import", "context", "open", "projects", "projects-large", "projects-million", "first-search"),
    *("search", "search-large", "search-million", "retrieval", "selection"),
)
"""The groups whose targets are published, in this order."""

PEER_GROUPS = ("peers-log", "peers-search", "peers-search-large", "peers-window")
OF_A_FLOOR = " x its "
"""What targets say that are in times of a floor's time or rate; others are limits of their own."""

FRONT = (
    ("log: append", "SQLite WAL", "", "append one message, safe from power loss", "a table in SQLite"),
    ("log: batch", "SQLite WAL", "", "append 1,000 messages at once", "a table in SQLite"),
    ("log: read last 50", "SQLite WAL", "", "read the last 50 messages", "a table in SQLite"),
    ("window", "langchain trim_messages", "", "append, drop the oldest, read the rest", "LangChain's `trim_messages`"),
    ("search: search", "sqlite-vec", "10,000 vectors", "search 10,000 vectors, exactly", "sqlite-vec"),
)
"""The comparisons of README: how job, peer and note begin or what they hold, and what job and peer are called there."""

FIELDS = ("job", "floor", "target", "is_met", "note")
NEW = "-"
"""Where the run that was published before had no such figure."""


def publish(directory: Path, *, published: Path = PUBLISHED, figures: Path = FIGURES, readme: Path = README) -> None:
    """Take the figures of the full run into ``published.json`` and the two pages; without any, change nothing."""
    before = json.loads(published.read_text(encoding="utf-8")) if published.is_file() else {}
    document = beside_last(chosen(Results(FULL, directory).load()), before)
    if not document["floors"]:
        print("no full run is stored, so nothing is published; run tools/bench full first", file=sys.stderr)
        return
    published.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for page, tables in ((figures, shown(document)), (readme, front(document))):
        page.write_text(replaced(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
    count = sum(len(document[kind]) for kind in KINDS)
    print(f"{count} figures are published in benchmarks/{FIGURES.name}, some in README.md", file=sys.stderr)


def chosen(stored: dict[str, Document]) -> Document:
    """Return what is published of the stored groups: ratios, and what is held against a limit of its own."""
    rows = [row for row in _rows(stored, GROUPS) if row["target"]]
    machines = [stored[group]["machine"] for group in (*GROUPS, *PEER_GROUPS) if group in stored]
    machine = {key: value for key, value in machines[0].items() if key != "load"} if machines else {}
    loads = sorted(each["load"] for each in machines)
    return {
        "command": "tools/bench full",
        "machine": machine | ({"load at most": loads[-1]} if loads else {}),
        "floors": [_told(row) | _ratio(row) for row in rows if OF_A_FLOOR in row["target"]],
        "limits": [_told(row) | {"figure": _own_figure(row)} for row in rows if OF_A_FLOOR not in row["target"]],
        "peers": [_told(row) | _ratio(row) for row in _rows(stored, PEER_GROUPS) if row["ratio"] is not None],
    }


KINDS = {"floors": "ratio", "limits": "figure", "peers": "ratio"}
"""The tables, and what each of them calls its figure."""


def beside_last(document: Document, before: Document) -> Document:
    """Return what is published with the figure of the run before in each row; what is published again keeps it."""
    figures: dict[tuple[str, str], dict[str, Any]] = {
        _key(kind, row): row for kind in KINDS for row in before.get(kind, ())
    }
    for kind, field in KINDS.items():
        for row in document[kind]:
            last = figures.get(_key(kind, row), {})
            row["before"] = last.get("before" if last.get(field) == row[field] else field)
    return document


def _key(kind: str, row: dict[str, Any]) -> tuple[str, ...]:
    """Return what a figure is known by; peers are known without their versions, and searches by how many vectors."""
    name = row["floor"].rpartition(" ")[0] if kind == "peers" else row["floor"]
    vectors = row["note"].partition(" vectors, ")[0].rpartition(" ")[2] if " vectors, " in row["note"] else ""
    return kind, row["job"], name, vectors


def _rows(stored: dict[str, Document], groups: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for group in groups:
        yield from stored.get(group, {"rows": ()})["rows"]


def _told(row: dict[str, Any]) -> dict[str, Any]:
    return {field: row[field] for field in FIELDS}


def _ratio(row: dict[str, Any]) -> dict[str, Any]:
    return {"ratio": row["ratio"]["value"]}


def _own_figure(row: dict[str, Any]) -> str:
    """Return a time as text, or what else a note begins with."""
    return time_text(row["ours_ns"]) or str(row["note"]).strip("(").partition(",")[0].partition(";")[0]


def shown(document: Document) -> str:
    """Return the tables of FIGURES.md."""
    lines = ["| job | floor | ratio | before | to reach |", "|---|---|---|---|---|"]
    lines += map(_floor_line, document["floors"])
    if document["limits"]:
        lines += ["", "| job | figure | before | to reach |", "|---|---|---|---|"]
        lines += map(_limit_line, document["limits"])
    if document["peers"]:
        lines += ["", "| job | peer | our rate is | before | settings of the peer, and what survives |"]
        lines += ["|---|---|---|---|---|"]
        lines += map(_peer_line, document["peers"])
    return "\n".join(lines)


def front(document: Document) -> str:
    """Return the table of README; what was not measured is not in it."""
    lines = ["| job | compared with | refold's rate is |", "|---|---|---|"]
    for job, peer, note, told, name in FRONT:
        rows = (row for row in document["peers"] if row["job"].startswith(job) and row["floor"].startswith(peer))
        found = next((row for row in rows if note in row["note"]), None)
        if found is not None:
            lines.append(f"| {told} | {name} | {_figure(found['ratio'])} x its rate |")
    return "\n".join(lines)


def _floor_line(row: dict[str, Any]) -> str:
    measure, wanted = _wanted(row)
    ratio = f"{_figure(row['ratio'])}{OF_A_FLOOR}{measure}"
    return f"| {row['job']} | {row['floor']} | {ratio} | {_before(row)} | {wanted} |"


def _limit_line(row: dict[str, Any]) -> str:
    verdict = "met" if row["is_met"] else "missed"
    return f"| {row['job']} | {row['figure']} | {row['before'] or NEW} | {row['target']}: {verdict} |"


def _before(row: dict[str, Any]) -> str:
    return NEW if row["before"] is None else _figure(row["before"])


def _wanted(row: dict[str, Any]) -> tuple[str, str]:
    """Return what a ratio is one of, and what was to be reached with the verdict."""
    bound, _, rest = row["target"].partition(OF_A_FLOOR)
    measure, _, recall = rest.partition(WITH_RECALL)
    verdict = "met" if row["is_met"] else "missed"
    return measure, f"{bound}{WITH_RECALL}{recall}: {verdict}" if recall else f"{bound}: {verdict}"


def _peer_line(row: dict[str, Any]) -> str:
    wanted = f"; {_wanted(row)[1]}" if row["target"] else ""
    ratio = f"{_figure(row['ratio'])} x its rate{wanted}"
    return f"| {row['job']} | {row['floor']} | {ratio} | {_before(row)} | {row['note']} |"


def _figure(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def replaced(text: str, tables: str) -> str:
    """Return a page with other tables between the marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"the page has no line {BEGIN}"
    assert end, f"the page has no line {END}"
    return f"{before}{BEGIN}\n{tables}\n{END}{after}"


def published_part(text: str) -> str:
    """Return what stands between the marks of a page."""
    return text.partition(BEGIN)[2].partition(END)[0].strip()
