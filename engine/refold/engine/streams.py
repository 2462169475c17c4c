"""The streams of a store: their numbers and names, and for each that was touched, where it stands.

A name is interned once: the log's headers carry numbers. What is known of a stream without reading its events is its
last checkpoint row plus the tail, the events after ``applied_seq`` whose headers were scanned at opening.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

from refold import fold
from refold.engine.checkpoints import Checkpoints
from refold.errors import StoreCorrupt
from refold.event import Event, Stamp
from refold.limits import BRANCH_BYTES, EVENT_OVERHEAD_BYTES, PAGE_EVENTS, STREAM_OVERHEAD_BYTES
from refold.store.protocol import Log, Row, scan
from refold.store.record import STAMP

STORE_STREAM: Final = "store/main"
NUMBER_BYTES: Final = 4
MAIN_BRANCH: Final = bytes(BRANCH_BYTES)
NEXT_NUMBER_KEY: Final = b"next_stream"
APPLIED_KEY: Final = bytes(12)
"""The key of no stream: the row stands among the checkpoint rows that it speaks of, and goes when they go."""


class Slot:
    """Where one stream stands: its head, its folded state if loaded, and what its next checkpoint covers."""

    __slots__ = (
        "digest",
        "due",
        "floating",
        "held",
        "is_used",
        "kind",
        "name",
        "number",
        "seq",
        "seq_written",
        "seqs",
        "state",
        "version",
        "version_written",
        "weight",
    )

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.kind = name.partition("/")[0]
        self.version = self.version_written = 0
        self.seq = self.seq_written = 0
        """Where the stream stands; ``_written`` runs ahead while a commit is under way."""
        self.state: fold.State | None = None
        self.seqs: list[int] = []
        """The seqs of the stream's events since its last kept checkpoint row."""
        self.due = 0
        """How many events may come before the next kept row; 0 is the default of ``Checkpoints``."""
        self.floating = 0
        """The seq of the row that the next one replaces, 0 where there is none."""
        self.digest: tuple[int, list[tuple[str, bytes]]] | None = None
        """The digests of the views at a seq, if they were computed."""
        self.is_used = True
        """Whether the stream was touched since it was last asked to leave."""
        self.held = 0
        """How many events the weight stands for."""
        self.weight = STREAM_OVERHEAD_BYTES
        """What the stream takes in RAM, roughly, in bytes."""

    def weigh(self, inline_bytes: int, events: int) -> int:
        """Count only so many of the events from now on; return by how much the weight changed."""
        each = (self.weight - STREAM_OVERHEAD_BYTES) // self.held if self.held else EVENT_OVERHEAD_BYTES
        before, self.held = self.weight, events
        self.weight = STREAM_OVERHEAD_BYTES + inline_bytes + each * events
        return self.weight - before


def number_key(number: int) -> bytes:
    """Return the key of a stream's row."""
    return number.to_bytes(NUMBER_BYTES, "big")


def name_in(packed: bytes) -> str:
    """Return the name that a stream's row holds."""
    try:
        name = msgspec.msgpack.decode(packed, type=tuple[str, int])[0]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"the row of a stream cannot be read ({error}); run `refold verify` and restore a backup"
        raise StoreCorrupt(message) from error
    if name.partition("/")[0] not in fold.KINDS:
        message = f"the stream {name!r} is of no known kind; upgrade refold, or restore a backup"
        raise StoreCorrupt(message)
    return name


class Streams:
    """All streams of a log, loaded as they are touched."""

    def __init__(self, log: Log, checkpoints: Checkpoints) -> None:
        self._log = log
        self._checkpoints = checkpoints
        self._by_name: dict[str, Slot] = {}
        self._by_number: dict[int, Slot] = {}
        self._names: dict[int, str] = {}
        self._tail: dict[int, tuple[int, list[int]]] = {}
        """Number -> (version, seqs) of the events in the tail, for streams that are not loaded yet."""
        self.dirty: dict[int, int] = {}
        """Number -> seq of the first event that no checkpoint row covers, in the order of that seq."""
        self.bytes = 0
        """What all streams in RAM weigh together."""
        self.traffic = 0
        """How often a stream came into RAM or left it."""
        self.queue: deque[Slot] = deque()
        """The streams in RAM, in the order in which they are asked to leave."""
        self.next_number = 1
        self.renumber()

    def renumber(self) -> None:
        """Read which number the next new stream gets."""
        stored = self._log.row("meta", NEXT_NUMBER_KEY)
        self.next_number = int.from_bytes(stored, "big") if stored else 1

    def scan_tail(self, applied_seq: int, head: int) -> None:
        """Read the headers of the tail: which streams have events that no checkpoint row covers."""
        seq = applied_seq
        while seq < head:
            for record in self._log.read(seq + 1, min(PAGE_EVENTS, head - seq)):
                seq += 1
                number, version, *_ = STAMP.unpack_from(record)
                self._note_tail(number, version, seq)

    def _note_tail(self, number: int, version: int, seq: int) -> None:
        known = self._tail.get(number)
        if known is None:
            self._tail[number] = (version, [seq])
            self.dirty[number] = seq
        else:
            known[1].append(seq)
            self._tail[number] = (version, known[1])

    def known(self, name: str) -> Slot | None:
        """Return the slot of a stream that was touched before; needs no lock."""
        return self._by_name.get(name)

    def find(self, name: str) -> Slot | None:
        """Return the slot of a stream, ``None`` where no event was ever written under the name."""
        slot = self._by_name.get(name)
        if slot is None:
            packed = self._log.row("names", MAIN_BRANCH + name.encode())
            number = 0 if packed is None else int.from_bytes(packed, "big")
            # A number that is not given out yet, as far as is known here: its commit is durable, and not folded yet.
            if 0 < number < self.next_number:
                slot = self._load(number, name)
        return slot

    def loaded(self, number: int) -> Slot | None:
        """Return the slot of a stream whose state is in RAM, ``None`` otherwise."""
        slot = self._by_number.get(number)
        return slot if slot is not None and slot.state is not None else None

    def at_number(self, number: int) -> Slot:
        """Return the slot of a stream that a header or a base pointer names."""
        return self._by_number.get(number) or self._load(number, self.name_of(number))

    def name_of(self, number: int) -> str:
        """Return the name of a stream."""
        name = self._names.get(number)
        if name is None:
            packed = self._log.row("streams", number_key(number))
            if packed is None:
                message = f"stream number {number} has no name; run `refold verify` and restore a backup"
                raise StoreCorrupt(message)
            name = self._names[number] = name_in(packed)
        return name

    def _load(self, number: int, name: str) -> Slot:
        slot = Slot(number, name)
        row = self._checkpoints.last(number)
        if row is not None:
            slot.seq, slot.version = row.seq, row.version
            if row.kept:
                slot.due = row.due
            else:
                slot.floating = row.seq
                slot.seqs = list(row.since)
        tail = self._tail.pop(number, None)
        if tail is not None:
            slot.version = tail[0]
            slot.seqs.extend(seq for seq in tail[1] if seq > slot.seq)
            slot.seq = tail[1][-1]
        slot.version_written, slot.seq_written = slot.version, slot.seq
        self.add(slot)
        return slot

    def add(self, slot: Slot) -> None:
        """Make a slot known."""
        self._by_name[slot.name] = slot
        self._by_number[slot.number] = slot
        self._names[slot.number] = slot.name
        self.bytes += slot.weight
        self.queue.append(slot)

    def forget(self, slot: Slot) -> None:
        """Drop a stream from RAM: its rows and the tail bring it back."""
        assert slot.number not in self.dirty, f"{slot.name} leaves with events that no row covers"
        assert self._by_number[slot.number] is slot, f"{slot.name} is in RAM twice"
        del self._by_name[slot.name], self._by_number[slot.number], self._names[slot.number]
        self.bytes -= slot.weight
        self.traffic += 1
        slot.state = None

    def loaded_from(self, slot: Slot, record_bytes: int, events: int) -> None:
        """Take note of what a stream's state was loaded from."""
        self.traffic += 1
        if self._by_number.get(slot.number) is not slot:
            return  # It was asked to leave while somebody held it: the state goes with whoever asked for it.
        before, slot.held = slot.weight, events
        slot.weight = STREAM_OVERHEAD_BYTES + record_bytes + events * EVENT_OVERHEAD_BYTES
        self.bytes += slot.weight - before

    def rows_of(self, born: list[Slot]) -> Iterator[Row]:
        """Return the rows that give new streams their numbers."""
        for slot in born:
            yield "names", MAIN_BRANCH + slot.name.encode(), number_key(slot.number)
            yield "streams", number_key(slot.number), msgspec.msgpack.encode((slot.name, 0))
        if born:
            yield "meta", NEXT_NUMBER_KEY, number_key(born[-1].number + 1)

    def names(self, kind: str, after: str = "") -> Iterator[str]:
        """Return the names of all streams of a kind (``""``: of all) behind ``after``, sorted."""
        prefix = MAIN_BRANCH + f"{kind}/".encode() if kind else MAIN_BRANCH
        first = MAIN_BRANCH + after.encode() + b"\0" if after else prefix
        for key, _ in scan(self._log, "names", prefix, PAGE_EVENTS, first):
            yield key[len(MAIN_BRANCH) :].decode()

    def applied_seq(self, head: int) -> int:
        """Return the seq up to which every event is covered by a checkpoint row."""
        return next(iter(self.dirty.values())) - 1 if self.dirty else head

    def fold_foreign(self, event: Event, stamp: Stamp, record_bytes: int) -> None:
        """Take note of an event that another process wrote, and fold it if its stream is loaded here."""
        slot = self._by_name.get(stamp.stream)
        if slot is None:
            self._note_tail(self.number_of(stamp.stream), stamp.version, stamp.seq)
            return
        self.dirty.setdefault(slot.number, stamp.seq)
        slot.version = slot.version_written = stamp.version
        slot.seq = slot.seq_written = stamp.seq
        slot.seqs.append(stamp.seq)
        # Its own floating row stays from now on: the other's rows may reach back no further than to it.
        slot.floating = 0
        if type(event) in fold.BASE_TYPES:
            slot.state = None
        elif slot.state is not None:
            fold.fold(slot.state, stamp, event)
            slot.held += 1
            slot.weight += record_bytes + EVENT_OVERHEAD_BYTES
            self.bytes += record_bytes + EVENT_OVERHEAD_BYTES

    def number_of(self, name: str) -> int:
        """Return the number of a stream that exists."""
        packed = self._log.row("names", MAIN_BRANCH + name.encode())
        assert packed is not None, f"{name} has events and no number"
        return int.from_bytes(packed, "big")
