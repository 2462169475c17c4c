"""The engine: stamp, log, fold. The only place where log and fold meet.

One thread commits at a time (the write lock); states change only in ``_fold_batch`` under the state lock, after the
log said that the events are durable. Reads take the state lock alone, so they never wait for a disk.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from refold import fold
from refold.engine import times, writer
from refold.engine.checkpoints import Checkpoints
from refold.engine.digests import Digests
from refold.engine.forked import watch
from refold.engine.ids import Ids
from refold.engine.keeper import Keeper
from refold.engine.loader import Loader, Recorded
from refold.engine.pending import Pending, Request
from refold.engine.streams import APPLIED_KEY, Slot, Streams
from refold.errors import Closed, InvalidInput, ReadOnly, WrongVersion
from refold.event import Forked, Restored
from refold.limits import (
    FROZEN_STATES_MAX,
    PAGE_EVENTS,
)
from refold.store.protocol import Log, Row
from refold.store.record import COMMIT, NO_LINK, SEQ, CommitRow, keyed_hash

T = TypeVar("T")


ANY: Final = "any"
NO_STREAM: Final = "no stream"
EXISTS: Final = "exists"
STORE_ID_KEY: Final = b"store_id"
HASH_KEY: Final = b"hash_key"
TAGS_KEY: Final = b"tags"


class Engine:
    """The shell around one log: it stamps, writes, folds, and builds any state at any seq."""

    def __init__(
        self,
        log: Log,
        *,
        clock_ns: Callable[[], int],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.log = log
        self.clock_ns = clock_ns
        self.random_bytes = random_bytes
        self.write_lock = threading.RLock()
        self.state_lock = threading.RLock()
        self._closed = ""
        """Why this engine cannot be used any more, empty while it can."""
        self.new_id = Ids(random_bytes).new
        self._frozen: OrderedDict[tuple[int, int], fold.State] = OrderedDict()
        self._restart()
        watch(self)

    def _restart(self) -> None:
        """Read where the log stands: last commit, tail, keys."""
        self.head = self.log.head()
        last = self.log.commit_at(self.head) if self.head else None
        commit = CommitRow._make(COMMIT.unpack(last)) if last else CommitRow(0, 1, 0, NO_LINK)
        self._link, self._time_ns = commit.link, commit.time_ns
        self.checkpoints = Checkpoints(self.log)
        self.streams = Streams(self.log, self.checkpoints)
        self.loader = Loader(self.log, self.streams, self.checkpoints)
        self.keeper = Keeper(self.log, self.streams, self.checkpoints, self.loader)
        applied = self.log.row("checkpoints", APPLIED_KEY)
        self.streams.scan_tail(SEQ.unpack(applied)[0] if applied else 0, self.head)
        self.store_id = self.log.row("meta", STORE_ID_KEY) or b""
        self._hash_key = self.log.row("meta", HASH_KEY) or b""
        self.tags: set[int] = set(msgspec.msgpack.decode(self.log.row("meta", TAGS_KEY) or b"\x90", type=list[int]))
        self.unknown_tags = sorted(tag for tag in self.tags if not fold.is_known(tag))
        self._frozen.clear()
        self._looked_at: dict[tuple[int, int, int], fold.State] = {}
        """The base that a thread looked at last, by thread, stream and seq: folded on by nobody else."""
        self._digests = Digests(self.log, self.loader)
        self.is_writable = not self._closed and not self.log.readonly and not self.unknown_tags
        """Whether events can be appended; ``check_writable`` says why not."""

    # Doors of what is not deterministic.

    def now_ns(self) -> int:
        """Return the time that an event appended now would get."""
        return times.checked(max(self.clock_ns(), self._time_ns))

    def keyed_hash(self, content: bytes) -> bytes:
        """Return a hash that says nothing outside this store."""
        return keyed_hash(self._hash_key, content)

    # Reading.

    @property
    def is_closed(self) -> bool:
        """Whether this engine can no longer be used."""
        return bool(self._closed)

    def check_open(self) -> None:
        """Raise ``Closed`` after ``close``."""
        if self._closed:
            message = f"this memory {self._closed}; open the store again with Memory(path)"
            raise Closed(message)

    def check_writable(self) -> None:
        """Raise unless events can be appended."""
        self.check_open()
        if self.log.readonly:
            message = "this memory is read-only; open the store without readonly=True to change it"
            raise ReadOnly(message)
        if self.unknown_tags:
            message = f"the store holds events of tags {self.unknown_tags} that this refold does not know; upgrade it"
            raise ReadOnly(message)

    def read(self, name: str, query: Callable[[fold.State], T], at: int | None = None) -> T:
        """Return what ``query`` makes of a stream's state, live or at a seq; it must copy what it hands out."""
        with self.state_lock:
            self.check_open()
            self._notice_foreign()
            slot = self.streams.find(name)
            if slot is None:
                return query(fold.empty(name.partition("/")[0]))
            return query(self.live(slot) if at is None or at >= slot.seq else self._frozen_state(slot, at))

    def find(self, name: str) -> Slot | None:
        """Return the slot of a stream, ``None`` where there is none."""
        slot = self.streams.known(name)
        if slot is None:
            with self.state_lock:
                slot = self.streams.find(name)
        return slot

    def live(self, slot: Slot) -> fold.State:
        """Return the live state of a stream, loaded if it is not."""
        state = slot.state
        if state is None:
            with self.state_lock:
                state = self.loader.live(slot)
        return state

    def _frozen_state(self, slot: Slot, at: int) -> fold.State:
        key = (slot.number, self.loader.last_seq(slot, at))
        if not key[1]:
            return fold.empty(slot.kind)
        state = self._frozen.get(key)
        if state is None:
            state = self._frozen[key] = self.loader.state_at(slot, key[1])
            if len(self._frozen) > FROZEN_STATES_MAX:
                self._frozen.popitem(last=False)
        else:
            self._frozen.move_to_end(key)
        return state

    def _notice_foreign(self) -> None:
        """A reader follows the process that writes: fold nothing, only forget what is no longer the head."""
        if self.log.readonly and self.log.changed():
            head = self.log.head()
            if head > self.head:
                self.streams.refresh(self.head, head)
                self.head = head

    def slot(self, name: str) -> Slot | None:
        """Return where a stream stands, ``None`` where there is none."""
        with self.state_lock:
            self.check_open()
            self._notice_foreign()
            return self.streams.find(name)

    def version(self, name: str) -> int:
        """Return the version of a stream, 0 where there is none."""
        slot = self.slot(name)
        return 0 if slot is None else slot.version

    def last_seq(self, name: str, at: int | None) -> int:
        """Return the seq of a stream's last event at or before ``at``, 0 where there is none."""
        with self.state_lock:
            slot = self.slot(name)
            if slot is None:
                return 0
            return slot.seq if at is None else self.loader.last_seq(slot, at)

    def events(self, name: str, after: int, until: int | None = None) -> Iterator[Recorded]:
        """Return the events of a stream with ``after < seq <= until``, at most those that there are now."""
        return self._events(name, after, self.current_head() if until is None else until)

    def _events(self, name: str, after: int, until: int) -> Iterator[Recorded]:
        while True:
            with self.state_lock:
                slot = self.slot(name)
                if slot is None:
                    return
                between = self.loader.seqs_between(slot, after, min(until, slot.seq))
                page = self.loader.recorded(list(islice(between, PAGE_EVENTS)))
            if not page:
                return
            yield from page
            after = page[-1].stamp.seq

    def all_events(self, after: int, until: int | None) -> Iterator[Recorded]:
        """Return the events of the whole log with ``after < seq <= until``, at most those that there are now."""
        return self._all_events(after, self.current_head() if until is None else until)

    def _all_events(self, after: int, until: int) -> Iterator[Recorded]:
        while after < until:
            with self.state_lock:
                self.check_open()
                page = self.loader.page(after + 1, min(PAGE_EVENTS, until - after))
            yield from page
            after += len(page)

    def digests(self, slot: Slot, at: int | None) -> list[tuple[str, bytes]]:
        """Return the digests of a stream's views, live or at a seq; those of the head are kept until it moves."""
        if at is not None and at < slot.seq:
            last = self.loader.last_seq(slot, at)
            return fold.digests(self._frozen_state(slot, last)) if last else []
        return self._digests.of(slot)

    def current_head(self) -> int:
        """Return the seq of the last event, those of another process included."""
        with self.state_lock:
            self.check_open()
            self._notice_foreign()
            return self.head

    # Writing.

    def answered(self, request: Request) -> Recorded | None:
        """Return the last event of a request that was answered before; ``LookupError`` if it was not."""
        row = self.log.row("requests", request.id_hash)
        if row is None:
            raise LookupError
        if row[: len(request.content_hash)] != request.content_hash:
            message = "this request_id was used for another request; give each request an id of its own"
            raise InvalidInput(message)
        (last,) = SEQ.unpack(row[-SEQ.size :])
        return self.loader.recorded([last])[0] if last else None

    def base_state(self, event: Forked | Restored) -> fold.State:
        """Return the state that a fork or a restore starts from: the one looked at last, or else built anew."""
        wanted = (threading.get_ident(), event.base_stream, event.base_seq)
        with self.state_lock:
            state = self._looked_at.pop(wanted, None)
            return state or self.loader.base_state(event, "conversation")

    def look_at_base(self, event: Forked | Restored) -> fold.State:
        """Return the state that a fork or a restore would start from, and keep it for the commit that follows."""
        with self.state_lock:
            state = self.base_state(event)
            self._looked_at = {(threading.get_ident(), event.base_stream, event.base_seq): state}
            return state

    def commit(self, pending: Pending) -> writer.Batch:
        """Write the pending events as one atomic, durable commit, fold them, and return them with their stamps."""
        with self.write_lock:
            self.check_writable()
            slots, born = self._slots_of(pending)
            self._check_unmoved(pending, slots)
            places = self._places(pending, slots)
            if not places:
                if pending.requests:
                    self.log.write_rows(writer.request_rows(pending, _NOTHING))
                return _NOTHING
            writer.resolve(pending, places, self.head + 1)
            for slot in slots.values():
                if slot.state is None:
                    self.live(slot)
            batch = writer.build(
                pending,
                places,
                slots,
                first_seq=self.head + 1,
                time_ns=self.now_ns(),
                link=self._link,
                random_bytes=self.random_bytes,
            )
            bases = {seq: self.base_state(event) for seq, event in writer.bases(batch)}
            try:
                self._write(batch, born, [*writer.derived_rows(batch), *writer.request_rows(pending, batch)])
                self._fold_batch(batch, slots, bases)
            except BaseException:
                # Whatever cut this off, an interrupt included: what is durable is what the log says.
                self.reload()
                raise
            if pending.messages or pending.notes:
                writer.hand_out(pending, batch)
        return batch

    def _write(self, batch: writer.Batch, born: list[Slot], rows: list[Row]) -> None:
        """Write a commit with its rows and those that wait."""
        fresh_tags = writer.tags(batch) - self.tags
        if fresh_tags:
            rows.append(("meta", TAGS_KEY, msgspec.msgpack.encode(sorted(self.tags | fresh_tags))))
        if born:
            rows += self.streams.rows_of(born)
        waiting = self.checkpoints.waiting()
        if waiting:
            rows += waiting
            rows.append(self.keeper.applied(self.head))
        self.log.write(batch.first_seq, batch.records, [batch.commit], rows)
        with self.state_lock:
            self.tags |= fresh_tags
            if waiting:
                self.checkpoints.written()
            for slot in born:
                self.streams.add(slot)
            self.streams.next_number += len(born)
            self._link, self._time_ns = batch.link, batch.stamps[-1].time_ns

    def _slots_of(self, pending: Pending) -> tuple[dict[str, Slot], list[Slot]]:
        slots: dict[str, Slot] = {}
        born: list[Slot] = []
        with self.state_lock:
            for name in dict.fromkeys(pending.names):
                slot = self.streams.find(name)
                if slot is None:
                    slot = self.streams.born(name, len(born))
                    slot.state = fold.empty(slot.kind)
                    born.append(slot)
                slots[name] = slot
        return slots, born

    def _check_unmoved(self, pending: Pending, slots: dict[str, Slot]) -> None:
        """Raise ``WrongVersion`` if a stream moved that the batch read, or was closed that the batch found open."""
        for name in pending.opened - pending.openings.keys():
            if not fold.is_open(self.live(slots[name])):
                message = f"{name} was dropped or emptied while a batch was open; run the batch again"
                raise WrongVersion(message, expected=EXISTS, actual=slots[name].version)
        for name, version in pending.reads.items():
            slot = slots.get(name) or self.streams.find(name)
            actual = 0 if slot is None else slot.version
            if actual != version:
                message = f"{name} moved from version {version} to {actual} while a batch was open; run the batch again"
                raise WrongVersion(message, expected=version, actual=actual)

    def _places(self, pending: Pending, slots: dict[str, Slot]) -> Sequence[int]:
        """Return the places to write: all but openings of streams that somebody else has opened meanwhile."""
        moot = {
            place
            for name, place in pending.openings.items()
            if slots[name].version and fold.is_open(self.live(slots[name]))
        }
        everything = range(len(pending.events))
        return [place for place in everything if place not in moot] if moot else everything

    def _fold_batch(self, batch: writer.Batch, slots: dict[str, Slot], bases: dict[int, fold.State]) -> None:
        apply, note_folded = fold.fold, self.keeper.folded
        with self.state_lock:
            for event, stamp in zip(batch.events, batch.stamps, strict=True):
                slot = slots[stamp.stream]
                seq = stamp.seq
                if bases and seq in bases:
                    slot.state = bases[seq]
                assert slot.state is not None, f"{slot.name} was not loaded before its commit"
                apply(slot.state, stamp, event)
                slot.version, slot.seq = stamp.version, seq
                slot.seqs.append(seq)
                note_folded(slot)
                if bases and seq in bases:
                    self.keeper.rebased(slot)
            self.head = batch.stamps[-1].seq
            self.keeper.shorten_tail(self.head)

    def flush(self) -> None:
        """Store the checkpoint rows of every stream that was touched, so that the next opening has no tail."""
        with self.write_lock, self.state_lock:
            self.check_open()
            if not self.log.readonly and not self.unknown_tags:
                self.keeper.flush(self.head, self._digests.take())

    def close(self) -> None:
        """Store what is worth storing and release the log; a second call does nothing."""
        with self.write_lock, self.state_lock:
            if self._closed:
                return
            try:
                self.flush()
            finally:
                self._closed = "is closed"
                self.is_writable = False
                self.log.close()

    def disown(self) -> None:
        """Refuse every further use: LMDB and the locks belong to the process that forked this one."""
        self._closed, self.is_writable = "belongs to the process that forked this one", False

    def reload(self) -> None:
        """Forget everything that is in RAM and read it again; for those who changed rows below the engine."""
        with self.write_lock, self.state_lock:
            self._restart()


_NOTHING: Final = writer.Batch(0, [], b"", b"", (), [], [])
