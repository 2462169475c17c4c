"""The streams of a store: their numbers and names, and for each that was touched, where it stands.

A name is interned once: the log's headers carry numbers. What is known of a stream without reading its events is its
last checkpoint row plus the tail, the events after ``applied_seq`` whose headers were scanned at opening.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from refold import fold
from refold.engine.checkpoints import Checkpoints
from refold.engine.damage import guarded
from refold.engine.keys import key_of, kind_of, parted
from refold.engine.slots import Slot, told
from refold.errors import StoreCorrupt
from refold.event import Event, Stamp
from refold.limits import EVENT_OVERHEAD_BYTES, PAGE_EVENTS, PLACES_COUNT_MAX, STREAM_OVERHEAD_BYTES
from refold.store.protocol import Log, Row, scan
from refold.store.record import BRANCH, STAMP
from refold.views.settings import Branch

STORE_STREAM: Final = "store/main"
NUMBER_BYTES: Final = 4
NEXT_NUMBER_KEY: Final = b"next_stream"


def number_key(number: int) -> bytes:
    """Return the key of a stream's row."""
    return number.to_bytes(NUMBER_BYTES, "big")


def name_key(branch: int, name: str) -> bytes:
    """Return the key of the row that gives a name its number in a branch."""
    return BRANCH.pack(branch) + name.encode()


def place_in(packed: bytes) -> tuple[str, int]:
    """Return the name and the branch that a stream's row holds."""
    try:
        name, branch = msgspec.msgpack.decode(packed, type=tuple[str, int])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"the row of a stream cannot be read ({error}); run `refold verify` and restore a backup"
        raise StoreCorrupt(message) from error
    if kind_of(name) not in fold.KINDS:
        message = f"the stream {name!r} is of no known kind; upgrade refold, or restore a backup"
        raise StoreCorrupt(message)
    return name, branch


class Uncovered(NamedTuple):
    """Events that no checkpoint row covers although they are at or before ``applied_seq``: what an erasure leaves."""

    applied_seq: int
    tails: Mapping[int, tuple[int, list[int]]]
    """Number of a stream -> version at its last uncovered event, and the seqs of all of them; by the first seq."""


@guarded
def _name_in(key: bytes) -> str:
    """Return the name that a row of names is of."""
    name = key[BRANCH.size :].decode()
    if kind_of(name) not in fold.KINDS:
        message = f"a stream is named {name!r}, which is of no known kind; run `refold verify`"
        raise StoreCorrupt(message)
    return name


def _stay(_seq: int) -> None:
    """Know what is known: nobody else writes."""


class Streams:
    """All streams of a log, loaded as they are touched."""

    def __init__(self, log: Log, checkpoints: Checkpoints) -> None:
        self._log = log
        self._checkpoints = checkpoints
        self._by_key: dict[str, Slot] = {}
        self._by_number: dict[int, Slot] = {}
        self._names: dict[int, str] = {}
        self._branch_of: dict[int, int] = {}
        self.reach: Callable[[int], None] = _stay
        """Makes the events up to a seq known, where other processes may have written them."""
        self.branches: Callable[[], Sequence[Branch]] = tuple
        """The branches that there are; the loader, which can fold, says which."""
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
        self._places: dict[tuple[str, int], tuple[int, int]] = {}
        """Where streams stood at earlier seqs, those that were asked last."""
        self.next_number = 1
        self.is_torn = False
        """Whether a change of what is in RAM was cut off: then none of it is a state, and the log is read again."""
        self.renumber()

    def renumber(self) -> None:
        """Read which number the next new stream gets: never one that has been given out, whatever is stored.

        What is stored is read last, since others may write between the two.
        """
        last = self._log.row_before("streams", b"\xff" * NUMBER_BYTES)
        stored = self._log.row("meta", NEXT_NUMBER_KEY)
        given = int.from_bytes(last[0], "big") if last is not None else 0
        self.next_number = max(int.from_bytes(stored, "big") if stored else 1, given + 1)

    @guarded
    def scan_tail(self, applied_seq: int, head: int) -> None:
        """Read the headers of the tail: which streams have events that no checkpoint row covers."""
        seq = applied_seq
        while seq < head:
            for record in self._log.read_at(range(seq + 1, min(seq + PAGE_EVENTS, head) + 1)):
                seq += 1
                number, version, *_ = STAMP.unpack_from(record)
                self._note_tail(number, version, seq)

    def expect(self, uncovered: Uncovered) -> None:
        """Know of events in front of the tail that no row covers."""
        for number, (version, seqs) in uncovered.tails.items():
            self._tail[number] = (version, seqs)
            self.dirty[number] = seqs[0]

    def _note_tail(self, number: int, version: int, seq: int) -> None:
        known = self._tail.get(number)
        if known is None:
            self._tail[number] = (version, [seq])
            self.dirty[number] = seq
        else:
            known[1].append(seq)
            self._tail[number] = (version, known[1])

    def known(self, key: str) -> Slot | None:
        """Return the slot of a stream that was touched before; needs no lock."""
        return self._by_key.get(key)

    def find(self, key: str) -> Slot | None:
        """Return the slot of a stream, ``None`` where no event was ever written under the name."""
        slot = self._by_key.get(key)
        if slot is None:
            branch, name = parted(key)
            packed = self._log.row("names", name_key(branch, name))
            number = 0 if packed is None else int.from_bytes(packed, "big")
            # A number that is not given out yet, as far as is known here: its commit is durable, and not folded yet.
            if 0 < number < self.next_number:
                self._check_named(number, name, branch)
                slot = self._load(number, name, branch)
            elif branch:
                slot = self._inherit(name, branch)
        return slot

    def loaded(self, number: int) -> Slot | None:
        """Return the slot of a stream whose state is in RAM, ``None`` otherwise."""
        slot = self._by_number.get(number)
        return slot if slot is not None and slot.state is not None else None

    def at_number(self, number: int) -> Slot:
        """Return the slot of a stream that a header or a base pointer names."""
        return self._by_number.get(number) or self._load(number, self.name_of(number), self.branch_of(number))

    def name_of(self, number: int) -> str:
        """Return the name of a stream."""
        return self._names.get(number) or self._meet(number)[0]

    def branch_of(self, number: int) -> int:
        """Return the branch of a stream."""
        branch = self._branch_of.get(number)
        return self._meet(number)[1] if branch is None else branch

    def _check_named(self, number: int, name: str, branch: int) -> None:
        """Raise ``StoreCorrupt`` unless a name and a number stand for each other."""
        if (self.name_of(number), self.branch_of(number)) != (name, branch):
            message = f"{name!r} stands for stream number {number}, which has another name; run `refold verify`"
            raise StoreCorrupt(message)

    @guarded
    def _meet(self, number: int) -> tuple[str, int]:
        packed = self._log.row("streams", number_key(number))
        if packed is None:
            message = f"stream number {number} has no name; run `refold verify` and restore a backup"
            raise StoreCorrupt(message)
        self._names[number], self._branch_of[number] = place_in(packed)
        return self._names[number], self._branch_of[number]

    # What a branch inherits.

    def branch(self, number: int) -> Branch:
        """Return where a branch was forked from."""
        branches = self.branches()
        if not 0 < number <= len(branches) or not 0 <= branches[number - 1].parent < number:
            message = f"branch {number} was never forked; run `refold verify` and restore a backup"
            raise StoreCorrupt(message)
        return branches[number - 1]

    def bounds(self, branch: int, until: int) -> dict[int, int]:
        """Return up to which seq the events of each branch count in one of them at a seq: its own and its elders'."""
        bounds: dict[int, int] = {}
        while branch:
            bounds[branch] = until
            fork = self.branch(branch)
            branch, until = fork.parent, min(until, fork.seq)
        bounds[0] = until
        return bounds

    @guarded
    def _inherit(self, name: str, branch: int) -> Slot | None:
        """Return a slot that stands where the stream stood when the branch was forked, ``None`` if it was not there."""
        base = self._base_of(name, branch)
        if base is None:
            return None
        slot = Slot(0, name, branch)
        slot.base = base
        slot.stand(STAMP.unpack_from(self._log.read_at([base[1]])[0])[1], base[1])
        try:
            self._enter(slot)
        except BaseException:
            self.is_torn = True
            raise
        return slot

    def _base_of(self, name: str, branch: int) -> tuple[int, int] | None:
        fork = self.branch(branch)
        elder = self.find(key_of(fork.parent, name))
        base = (0, 0) if elder is None else self.place(elder, fork.seq)
        return base if base[1] else None

    def holder(self, slot: Slot, seq: int) -> Slot:
        """Return the stream, of the branch or of an elder one, among whose own events a seq would be."""
        while slot.base is not None and seq <= slot.base[1]:
            slot = self.at_number(slot.base[0])
        return slot

    def place(self, slot: Slot, seq: int) -> tuple[int, int]:
        """Return a stream's last event at or before a seq: the number of the stream that holds it, and its seq or 0."""
        if seq >= slot.seq:
            return self._place(slot, seq)
        # What was before the stream's last event never changes; looking for it reads rows that name thousands of seqs.
        found = self._places.get((slot.key, seq))
        if found is None:
            found = self._places[slot.key, seq] = self._place(slot, seq)
            if len(self._places) > PLACES_COUNT_MAX:
                del self._places[next(iter(self._places))]
        return found

    def _place(self, slot: Slot, seq: int) -> tuple[int, int]:
        slot = self.holder(slot, seq)
        last = self._last_own(slot, seq)
        return slot.base if not last and slot.base is not None else (slot.number, last)

    def numbers(self, slot: Slot) -> Iterator[int]:
        """Return the numbers under which a stream's events stand: its own, then those that its branch inherited."""
        while True:
            if slot.number:
                yield slot.number
            if slot.base is None:
                return
            slot = self.at_number(slot.base[0])

    def _last_own(self, slot: Slot, seq: int) -> int:
        if seq >= slot.seq:
            return slot.seq if slot.base is None or slot.seq > slot.base[1] else 0
        before = self._checkpoints.before(slot.number, seq)
        last = before.seq if before is not None else 0
        for found in self.own_seqs(slot, last, seq):
            last = found
        return last

    def own_seqs(self, slot: Slot, after: int, until: int) -> Iterator[int]:
        """Return the seqs of a stream's own events with ``after < seq <= until``, in order."""
        while after < until and slot.number:
            row = self._checkpoints.after(slot.number, after)
            held = slot.seqs if row is None else row.since
            yield from (seq for seq in held if after < seq <= until)
            if row is None:
                return
            after = row.seq

    @guarded
    def _load(self, number: int, name: str, branch: int) -> Slot:
        slot = Slot(number, name, branch)
        if branch:
            slot.base = self._base_of(name, branch)
        row = self._checkpoints.last(number)
        if row is not None:
            self.reach(row.seq)
            slot.seq, slot.version = row.seq, row.version
            if row.kept:
                slot.due = row.due
            else:
                slot.floating = row.seq
                slot.seqs = list(row.since)
        tail = self._tail.get(number)
        if tail is not None:
            slot.version = tail[0]
            slot.seqs.extend(seq for seq in tail[1] if seq > slot.seq)
            slot.seq = tail[1][-1]
        slot.stand(slot.version, slot.seq)
        try:
            self._tail.pop(number, None)
            self.add(slot)
        except BaseException:
            self.is_torn = True
            raise
        return slot

    def add(self, slot: Slot) -> None:
        """Make a slot known."""
        self._by_number[slot.number] = slot
        self._names[slot.number], self._branch_of[slot.number] = slot.name, slot.branch
        self._enter(slot)

    def _enter(self, slot: Slot) -> None:
        """Make a slot known by its key, in the place of one that was only inherited."""
        self._supersede(slot.key)
        self._by_key[slot.key] = slot
        self.bytes += slot.weight
        self.queue.append(slot)

    def _supersede(self, key: str) -> None:
        """Drop a slot that was only inherited; what is left of it in the queue weighs nothing."""
        slot = self._by_key.pop(key, None)
        if slot is not None:
            assert not slot.number, f"{slot.key} is in RAM twice"
            self.bytes -= slot.weight
            slot.weight, slot.state = 0, None

    def forget(self, slot: Slot) -> None:
        """Drop a stream from RAM: its rows and the tail bring it back."""
        assert slot.number not in self.dirty, f"{slot.name} leaves with events that no row covers"
        if self._by_key.get(slot.key) is slot:
            del self._by_key[slot.key]
        if slot.number:
            assert self._by_number[slot.number] is slot, f"{slot.name} is in RAM twice"
            del self._by_number[slot.number], self._names[slot.number], self._branch_of[slot.number]
        self.bytes -= slot.weight
        self.traffic += 1
        slot.state = None
        if slot.stock is not None:
            slot.stock.detach()

    def loaded_from(self, slot: Slot, record_bytes: int, events: int) -> None:
        """Take note of what a stream's state was loaded from."""
        self.traffic += 1
        if self._by_key.get(slot.key) is not slot:
            return  # It was asked to leave while somebody held it: the state goes with whoever asked for it.
        before, slot.held = slot.weight, events
        slot.weight = STREAM_OVERHEAD_BYTES + record_bytes + events * EVENT_OVERHEAD_BYTES
        self.bytes += slot.weight - before

    def rows_of(self, born: list[Slot]) -> Iterator[Row]:
        """Return the rows that give new streams their numbers."""
        for slot in born:
            yield "names", name_key(slot.branch, slot.name), number_key(slot.number)
            yield "streams", number_key(slot.number), msgspec.msgpack.encode((slot.name, slot.branch))
        if born:
            yield "meta", NEXT_NUMBER_KEY, number_key(born[-1].number + 1)

    def names(self, branch: int, kind: str = "", after: str = "") -> Iterator[str]:
        """Return the names of all streams of a kind (``""``: of all) in a branch behind ``after``, sorted."""
        if not branch:
            yield from self._names_in(0, kind, after)
            return
        last = ""
        from heapq import merge  # noqa: PLC0415 - loaded only by those who list names

        for name in merge(*(self._names_in(elder, kind, after) for elder in self.bounds(branch, 0))):
            if name != last and self.find(key_of(branch, name)) is not None:
                yield name
            last = name

    def _names_in(self, branch: int, kind: str, after: str) -> Iterator[str]:
        prefix = name_key(branch, f"{kind}/" if kind else "")
        first = name_key(branch, after) + b"\0" if after else prefix
        for key, _ in scan(self._log, "names", prefix, PAGE_EVENTS, first):
            yield _name_in(key)

    def applied_seq(self, head: int) -> int:
        """Return the seq up to which every event is covered by a checkpoint row."""
        return next(iter(self.dirty.values())) - 1 if self.dirty else head

    def fold_foreign(self, number: int, event: Event, stamp: Stamp, record_bytes: int) -> None:
        """Take note of an event that another process wrote, and fold it if its stream is loaded here."""
        slot = self._by_number.get(number)
        if slot is None:
            # What a branch had only inherited is the branch's own from now on.
            self._supersede(key_of(self.branch_of(number), stamp.stream))
            self._note_tail(number, stamp.version, stamp.seq)
            return
        self.dirty.setdefault(slot.number, stamp.seq)
        slot.stand(stamp.version, stamp.seq)
        slot.seqs.append(stamp.seq)
        if type(event) in fold.BASE_TYPES:
            slot.state = None
            if slot.stock is not None:
                slot.stock.detach()
        elif slot.state is not None:
            fold.fold(slot.state, stamp, event)
            told(slot, stamp, event)
            slot.held += 1
            slot.weight += record_bytes + EVENT_OVERHEAD_BYTES
            self.bytes += record_bytes + EVENT_OVERHEAD_BYTES
