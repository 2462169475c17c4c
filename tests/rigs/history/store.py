"""A store that a rig writes to, all that was ever said about it, and the comparison of the two."""

import os
import subprocess
import sys
from pathlib import Path

from refold import Memory, StoreCorrupt
from refold.log.commits import is_address
from tests.rigs.history.calls import answered, facts, opened
from tests.rigs.history.checker import Violation, violations
from tests.rigs.history.record import Delivery, Line, Operation, encode, operations
from tests.rigs.history.tally import Tally


class Store:
    """One store, maybe of several loops."""

    def __init__(self, directory: Path, address: str = "") -> None:
        directory.mkdir()
        self.directory = directory
        self.path = address or str(directory / "store")
        self.copies = str(directory / "copies") if address else ""
        """Where the copies of a log on a server lie."""
        self.lines: list[Line] = []
        self.deliveries: list[Delivery] = []
        """What subscribers were given, for the checker; a rig that has some adds them."""
        self._events = 0

    def open(self, *, readonly: bool = False) -> Memory:
        """Open the store in this process."""
        return opened(self.path, self.copies, readonly=readonly)

    @property
    def operations(self) -> list[Operation]:
        """What the lines tell of."""
        return operations(self.lines)

    def check(self) -> list[Violation]:
        """Open the store and return everything that is wrong with it and with what was said about it."""
        try:
            with self.open() as memory:
                report = answered(memory.verify)
                found = facts(memory)
        except StoreCorrupt as error:
            return [Violation("the_log_can_be_read", str(error))]
        self._events = len(found)
        said = self.operations
        unresolved = [operation.name for operation in said if operation.is_unknown and operation.writes]
        return [
            *violations(said, found, self.deliveries),
            *(Violation("verify_finds_nothing", str(finding)) for finding in report.findings),
            *(Violation("unknown_outcomes_are_resolved", name) for name in unresolved),
        ]

    def keep_journal(self) -> None:
        """Leave what was said beside the store, for whoever looks into a violation."""
        (self.directory / "journal").write_bytes(b"\n".join(map(encode, self.lines)))

    def count(self, tally: Tally) -> None:
        """Add what happened to this store to a tally; once, when its loops are over."""
        said = self.operations
        tally.events += self._events
        tally.acknowledged += sum(operation.is_acknowledged and bool(operation.writes) for operation in said)
        tally.refused += sum(operation.refusal is not None for operation in said)
        tally.looks += sum(operation.is_acknowledged and operation.look is not None for operation in said)


LIST_READERS = "import lmdb, sys; print(lmdb.open(sys.argv[1], readonly=True, create=False).readers())"
"""Run by a process of its own, because LMDB may open a file only once in a process."""


def dead_readers(path: str) -> list[int]:
    """Return the processes that are gone and still hold a reader slot of a store that is open."""
    if is_address(path):
        return []  # A copy is of one process.
    command = [sys.executable, "-c", LIST_READERS, path]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = (row.split() for row in table.splitlines())
    return sorted({int(row[0]) for row in rows if row and row[0].isdigit() and not _is_alive(int(row[0]))})


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
