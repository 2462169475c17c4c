"""mem0's ``history.db``: each change that mem0 made to its memories, in SQLite, from which those that live are told.

The file is opened to be read alone. What became of a memory, row by row as mem0 wrote it, is in its metadata under
``mem0``. mem0 keeps its vectors elsewhere; they are made anew.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from refold.errors import InvalidInput
from refold.recorders.dates import occurred_ns
from refold.recorders.keeping import Fields
from refold.recorders.protocol import SourceMemory

if TYPE_CHECKING:
    import sqlite3

MEM0_KEY: Final = "mem0"
"""In a memory's metadata: its id in mem0, and its history."""

_MAGIC: Final = b"SQLite format 3\x00"
# The first releases called the texts and the time otherwise.
_NEW_TEXTS: Final = ("new_memory", "new_value")
_TIMES: Final = ("created_at", "timestamp")
_NEEDED: Final = frozenset(("memory_id", "event"))
_TABLE: Final = "history"


class Mem0Reader:
    """Reads the memories that mem0's history leaves alive."""

    name = "mem0"

    def recognises(self, head: bytes) -> bool:
        """Return whether the bytes begin a database of SQLite."""
        return head.startswith(_MAGIC)

    def memories(self, path: Path) -> Iterator[SourceMemory]:
        """Return the memories that were not deleted, in the order in which they were made."""
        yield from [memory for rows in _histories(path).values() for memory in _alive(rows)]


MEM0: Final = Mem0Reader()


def _histories(path: Path) -> dict[str, list[Fields]]:
    """Return the rows of each memory, in the order in which they were written."""
    import sqlite3  # noqa: PLC0415 - not every Python has it, and only this format needs it

    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)) as database:
            return _grouped(_rows(database))
    except sqlite3.Error as error:
        message = f"the file is no database that SQLite can read ({error}); give mem0's history.db, whole"
        raise InvalidInput(message) from error


def _rows(database: "sqlite3.Connection") -> Iterator[Fields]:
    columns = [str(row[1]) for row in database.execute(f"PRAGMA table_info({_TABLE})")]
    if not _NEEDED.issubset(columns):
        message = f"the database has no table {_TABLE} as mem0 makes it; give mem0's history.db"
        raise InvalidInput(message)
    # The ids of rows are random and the times may be absent: only the order of writing is sure.
    for row in database.execute(f"SELECT * FROM {_TABLE} ORDER BY rowid"):  # noqa: S608 - a constant
        yield {name: value for name, value in zip(columns, row, strict=True) if value is not None}


def _grouped(rows: Iterator[Fields]) -> dict[str, list[Fields]]:
    histories: dict[str, list[Fields]] = {}
    for row in rows:
        if any(isinstance(value, bytes) for value in row.values()) or not isinstance(row.get("memory_id"), str):
            message = f"row {row.get('id')!r} of {_TABLE} is none of mem0's; give mem0's history.db"
            raise InvalidInput(message)
        histories.setdefault(row["memory_id"], []).append(row)
    return histories


def _alive(rows: list[Fields]) -> Iterator[SourceMemory]:
    """Return the memory that a history ends in, none if it was deleted."""
    last = rows[-1]
    content = _first(last, _NEW_TEXTS)
    if last.get("is_deleted") or str(last.get("event")).upper() == "DELETE" or not content:
        return
    memory_id: str = last["memory_id"]
    yield SourceMemory(
        f"memory {memory_id}",
        memory_id,
        content,
        metadata={MEM0_KEY: {"id": memory_id, "history": rows}},
        occurred_ns=occurred_ns(_first(rows[0], _TIMES)),
    )


def _first(row: Fields, names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if name in row), None)
