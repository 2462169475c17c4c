"""A disk under a power cut: what was flushed is there, and of all else whatever chance decides.

A file is a durable image and the writes since its last flush. After a cut each of its sectors holds what the last flush
left there, or what any later write left there: sectors are 512 bytes and are written whole, in any order. A write
through a descriptor that was opened with O_DSYNC is durable when it returns, alone.

A directory is a durable table of names and the changes since. Flushing a directory makes all changes that touch it
durable; a rename is one change of two tables. Other changes happened or not, each by itself. That is less than any
journal keeps.

Files that were mapped for writing are changed without a call, so the cut leaves zeros or noise in them. What
``sync_file_range`` and ``msync`` promise counts for nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

from tests.rigs.power.trace import Kind, Record

SECTOR_BYTES: Final = 512

Write: TypeAlias = tuple[int, bytes]
Chosen: TypeAlias = Callable[[int, int], bool]
"""Whether a pending write, by its number, reached a sector."""


@dataclass(slots=True)
class File:
    """An inode with content: its durable image, and since then writes and lengths (a length is an ``int``)."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write | int] = field(default_factory=list)
    is_mapped: bool = False

    def flush(self) -> None:
        """Make everything durable."""
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()


@dataclass(frozen=True, slots=True)
class Change:
    """One change of names, atomic: for each table a name and the number of what it stands for now, 0 for none."""

    entries: tuple[tuple[int, str, int], ...]


class Disk:
    """The files below one directory, as the calls so far have left them: what is durable, and what is pending."""

    def __init__(self, root: str, inode: int, there: Mapping[str, int] | None = None) -> None:
        """``there`` names the empty directories that were below the root, durably, before the first call."""
        self._root = root
        self._numbers: dict[int, int] = {}
        self._files: dict[int, File] = {}
        self._durable: dict[int, dict[str, int]] = {}
        self._live: dict[int, dict[str, int]] = {}
        self._changes: list[Change] = []
        self._top = self._add_table(inode)
        for name, each in (there or {}).items():
            self._durable[self._top][name] = self._live[self._top][name] = self._add_table(each)

    def _number(self, inode: int) -> int:
        """Return a number for an inode that was made now; a file system gives the inodes of what is gone again."""
        self._numbers[inode] = len(self._files) + len(self._live) + 1
        return self._numbers[inode]

    def _add_table(self, inode: int) -> int:
        number = self._number(inode)
        self._durable[number], self._live[number] = {}, {}
        return number

    def _file(self, record: Record) -> File:
        return self._files[self._numbers[record.inode]]

    # What the calls do.

    def apply(self, record: Record) -> None:
        """Do what a record says."""
        _VERBS[record.kind](self, record)

    def _write(self, record: Record) -> None:
        file = self._file(record)
        if record.durable:
            self._write_through(file, (record.offset, record.payload))
        else:
            file.pending.append((record.offset, record.payload))

    def _write_through(self, file: File, write: Write) -> None:
        """Make one write durable; pending writes below it in the same sectors are on the disk with it."""
        offset, payload = write
        begin = offset // SECTOR_BYTES * SECTOR_BYTES
        end = -(-(offset + len(payload)) // SECTOR_BYTES) * SECTOR_BYTES
        assert not any(isinstance(change, int) for change in file.pending), "a length is pending below a durable write"
        for change in file.pending:
            if isinstance(change, tuple):
                _apply(file.durable, _cut(change, begin, end))
        _apply(file.durable, write)

    def _resize(self, record: Record) -> None:
        self._file(record).pending.append(record.offset)

    def _allocate(self, record: Record) -> None:
        file = self._file(record)
        live = bytearray(file.durable)
        for change in file.pending:
            _apply(live, change)
        if record.offset > len(live):
            file.pending.append(record.offset)

    def _flush(self, record: Record) -> None:
        number = self._numbers[record.inode]
        if number in self._files:
            self._files[number].flush()
            return
        kept = []
        for change in self._changes:
            if any(table == number for table, _, _ in change.entries):
                self._name(self._durable, change)
            else:
                kept.append(change)
        self._changes = kept

    def flush(self) -> None:
        """Make everything durable, as a shutdown does."""
        for file in self._files.values():
            file.flush()
        for change in self._changes:
            self._name(self._durable, change)
        self._changes = []

    def _create(self, record: Record) -> None:
        number = self._number(record.inode)
        self._files[number] = File()
        self._change((*self._place(record.path), number))

    def _make_directory(self, record: Record) -> None:
        self._change((*self._place(record.path), self._add_table(record.inode)))

    def _rename(self, record: Record) -> None:
        target = self._target(record.path)
        self._change((*self._place(record.path), 0), (*self._place(record.other), target))

    def _link(self, record: Record) -> None:
        self._change((*self._place(record.other), self._target(record.path)))

    def _unlink(self, record: Record) -> None:
        self._change((*self._place(record.path), 0))

    def _map(self, record: Record) -> None:
        self._file(record).is_mapped = True

    def _ignore(self, record: Record) -> None:
        """Give no credit."""

    def _change(self, *entries: tuple[int, str, int]) -> None:
        change = Change(entries)
        self._name(self._live, change)
        self._changes.append(change)

    @staticmethod
    def _name(tables: dict[int, dict[str, int]], change: Change) -> None:
        for table, name, number in change.entries:
            tables[table].pop(name, None)
            if number:
                tables[table][name] = number

    def _place(self, path: str) -> tuple[int, str]:
        """Return the table and the name that a path means."""
        *parents, name = path.removeprefix(self._root).strip("/").split("/")
        table = self._top
        for parent in parents:
            table = self._live[table][parent]
        return table, name

    def _target(self, path: str) -> int:
        table, name = self._place(path)
        return self._live[table][name]

    # What a cut leaves.

    @contextmanager
    def interrupted(self, record: Record) -> Iterator[None]:
        """Let a durable write be under way inside the block: begun, and not done."""
        pending = self._file(record).pending
        pending.append((record.offset, record.payload))
        try:
            yield
        finally:
            pending.pop()

    def is_mapped(self, name: str) -> bool:
        """Return whether a file of that name was ever mapped for writing, in any directory."""
        numbers = [table.get(name, 0) for table in self._live.values()]
        return any(self._files[number].is_mapped for number in numbers if number in self._files)

    def build(self, random: Random, into: Path) -> None:
        """Write into an existing directory what a power cut now could leave, as chance decides."""
        tables = {table: dict(names) for table, names in self._durable.items()}
        for change in _survivors(random, self._changes):
            self._name(tables, change)
        self._build(random, tables, self._top, into)

    def _build(self, random: Random, tables: dict[int, dict[str, int]], table: int, into: Path) -> None:
        for name, number in sorted(tables[table].items()):
            if number in self._files:
                (into / name).write_bytes(remains(random, self._files[number]))
            else:
                (into / name).mkdir()
                self._build(random, tables, number, into / name)


_VERBS: Final[dict[Kind, Callable[[Disk, Record], None]]] = {
    Kind.WRITE: Disk._write,
    Kind.TRUNCATE: Disk._resize,
    Kind.ALLOCATE: Disk._allocate,
    Kind.FLUSH: Disk._flush,
    Kind.CREATE: Disk._create,
    Kind.MAKE_DIRECTORY: Disk._make_directory,
    Kind.RENAME: Disk._rename,
    Kind.LINK: Disk._link,
    Kind.UNLINK: Disk._unlink,
    Kind.MAP: Disk._map,
    Kind.FLUSH_RANGE: Disk._ignore,
}


def _survivors(random: Random, changes: list[Change]) -> list[Change]:
    """Return none, all, the first few, or any of the pending changes of names."""
    first = random.randint(0, len(changes))
    how = random.choice(("none", "all", "first", "any"))
    return {
        "none": [],
        "all": changes,
        "first": changes[:first],
        "any": [change for change in changes if random.getrandbits(1)],
    }[how]


def remains(random: Random, file: File) -> bytes:
    """Return what is left of a file."""
    if file.is_mapped:
        return _noise(random, file)
    lengths = [number for number, change in enumerate(file.pending) if isinstance(change, int)]
    reached = random.choice([0, *(number + 1 for number in lengths)])
    image = bytearray(file.durable)
    for change in file.pending[:reached]:
        _apply(image, change)
    writes = [change for change in file.pending[reached:] if isinstance(change, tuple)]
    tear(image, writes, _style(random, len(writes)))
    if random.getrandbits(1):  # The length may be on the disk and what was written there not.
        _apply(image, max([len(image), *(offset + len(payload) for offset, payload in writes)]))
    return bytes(image)


def _noise(random: Random, file: File) -> bytes:
    length = max([len(file.durable), *(change for change in file.pending if isinstance(change, int))])
    return random.choice((bytes(0), bytes(length), random.randbytes(length)))


def _style(random: Random, count: int) -> Chosen:
    """Return one way in which pending writes reach the disk."""
    some = random.randint(0, max(count - 1, 0))
    wholes = {number for number in range(count) if random.getrandbits(1)}
    share = random.random()
    styles: tuple[Chosen, ...] = (
        lambda _write, _sector: False,
        lambda _write, _sector: True,
        lambda write, _sector: write < some,
        lambda write, _sector: write in wholes,
        lambda _write, _sector: random.random() < share,
        lambda write, _sector: write < some or (write == some and random.random() < share),
        lambda write, _sector: write > some or (write == some and random.random() < share),
    )
    return random.choice(styles)


def tear(image: bytearray, writes: list[Write], chosen: Chosen) -> None:
    """Bring each sector of the image to the last chosen write that touched it, those before included."""
    touching: dict[int, list[int]] = {}
    for number, (offset, payload) in enumerate(writes):
        for sector in range(offset // SECTOR_BYTES, -(-(offset + len(payload)) // SECTOR_BYTES)):
            touching.setdefault(sector, []).append(number)
    for sector, numbers in touching.items():
        last = max((number for number in numbers if chosen(number, sector)), default=-1)
        begin = sector * SECTOR_BYTES
        for number in numbers:
            if number <= last:
                _apply(image, _cut(writes[number], begin, begin + SECTOR_BYTES))


def _cut(write: Write, begin: int, end: int) -> Write:
    """Return the part of a write between two bytes of its file."""
    offset, payload = write
    start, stop = max(offset, begin), min(offset + len(payload), end)
    return start, payload[start - offset : max(stop - offset, start - offset)]


def _apply(image: bytearray, change: Write | int) -> None:
    """Write into an image, or give it a length; a gap is zeros."""
    if isinstance(change, int):
        del image[change:]
        image.extend(bytes(change - len(image)))
        return
    offset, payload = change
    if not payload:
        return
    image.extend(bytes(max(0, offset - len(image))))
    image[offset : offset + len(payload)] = payload
