"""A store with its witness, for the tests of both."""

import shutil
from pathlib import Path
from typing import Any

from refold import Memory
from refold.engine.witness import Witness
from refold.log import witness
from refold.log.record import Record
from refold.log.witness import WitnessSlot
from tests.support.rows import Rows
from tests.support.seams import engine_of


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


class Place:
    """A store and its witness, side by side."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = directory / "store"
        self.witness = directory / "witness"

    def open(self, **options: Any) -> Memory:
        return Memory(self.store, witness=self.witness, **options)

    def told(self) -> WitnessSlot:
        told = witness.read(str(self.witness))
        assert told is not None
        return told

    def append(self, count: int = 1, **options: Any) -> None:
        with Memory(self.store, **options) as memory:
            talk(memory, count)

    def records(self) -> list[Record]:
        rows = Rows(self.store)
        records = [Record(packed) for _, packed in rows.all("log")]
        rows.close()
        return records

    def keep(self) -> Path:
        """Copies the store as it is."""
        return Path(shutil.copytree(self.store, self.directory / "copy"))

    def put_back(self, copy: Path) -> None:
        shutil.rmtree(self.store)
        shutil.copytree(copy, self.store)

    def files(self) -> dict[str, bytes]:
        """The content of every file but those that say who has the store open."""
        found = [path for path in sorted(self.directory.rglob("*")) if path.is_file() and "lock" not in path.name]
        return {str(path.relative_to(self.directory)): path.read_bytes() for path in found}


def watching(memory: Memory) -> Witness:
    found = engine_of(memory).witness
    assert found is not None
    return found


def talk(memory: Memory, count: int = 1) -> None:
    for number in range(count):
        memory.conversation("chat").append("user", f"hello {number}", tokens=1)


def full(*_: object) -> int:
    """Writes as a full disk does: nothing."""
    return 0
