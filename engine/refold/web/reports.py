"""Benchmark reports: the JSON files of `refold bench` and `tools/bench` in a directory, as tables."""

from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from refold import checks

_FILES_COUNT_MAX: Final = 50
_ROWS_COUNT_MAX: Final = 500
_FILE_BYTES_MAX: Final = 4 * 1024 * 1024
_NUMBERS: Final = (int, float, type(None))


class ReportTable(NamedTuple):
    """One list of a report: its name, its columns, its rows of texts, and which columns hold only numbers."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    are_numbers: tuple[bool, ...]


class BenchmarkReport(NamedTuple):
    """A report file: its name, the time it was written, its data about the run, its tables; or the problem with it."""

    name: str
    time_ns: int
    about: dict[str, str]
    tables: tuple[ReportTable, ...]
    problem: str = ""


def reports_in(directory: Path | None) -> list[BenchmarkReport]:
    """Read the reports in a directory, the newest first; without a directory there are none."""
    if directory is None:
        return []
    files = [(path.stat().st_mtime_ns, path) for path in directory.glob("*.json") if path.is_file()]
    return [_report(path, time_ns) for time_ns, path in sorted(files, reverse=True)[:_FILES_COUNT_MAX]]


def _report(path: Path, time_ns: int) -> BenchmarkReport:
    if path.stat().st_size > _FILE_BYTES_MAX:
        return BenchmarkReport(path.name, time_ns, {}, (), f"it has more than {_FILE_BYTES_MAX = } bytes")
    try:
        value: Any = msgspec.json.decode(path.read_bytes())
    except (OSError, *checks.UNDECODABLE) as error:
        return BenchmarkReport(path.name, time_ns, {}, (), f"it cannot be read: {error}")
    document = cast("dict[str, Any]", value) if isinstance(value, dict) else {"rows": value}
    tables = [_table(name, rows) for name, rows in document.items() if _is_table(rows)]
    about = {name: _text(each) for name, each in _flatten(document).items() if not isinstance(each, list)}
    return BenchmarkReport(path.name, time_ns, about, tuple(tables))


def _is_table(value: Any) -> bool:
    try:
        return bool(msgspec.convert(value, list[dict[str, Any]]))
    except msgspec.ValidationError:
        return False


def _table(name: str, rows: list[dict[str, Any]]) -> ReportTable:
    flat = [_flatten(row) for row in rows[:_ROWS_COUNT_MAX]]
    columns = tuple(dict.fromkeys(key for row in flat for key in row if not isinstance(row[key], list)))
    are_numbers = tuple(all(type(row.get(key)) in _NUMBERS for row in flat) for key in columns)
    return ReportTable(name, columns, tuple(tuple(_text(row.get(key)) for key in columns) for row in flat), are_numbers)


def _flatten(row: dict[str, Any]) -> dict[str, Any]:
    """Flatten a row: the values of inner objects move up, under the names of both joined."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            inner = cast("dict[str, Any]", value)
            flat |= {f"{key} {name}": each for name, each in inner.items() if not isinstance(each, dict)}
        else:
            flat[key] = value
    return flat


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "✓" if value else "✗"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
