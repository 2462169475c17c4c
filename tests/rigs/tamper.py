"""Attackers who edit a store's file below refold, for the tamper suite of the package agent-memory-integrity.

``agmi-check --adapter tests.rigs.tamper:Careless`` runs the suite's edits T1 to T9; the classes differ in what the
attacker does behind each edit. None of them can write the witness; those named ``...Alone`` meet a store without one,
and those named ``...Together`` one whose messages were written at once, so that they share a record.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec
from agmi.adapters.base import MemoryAdapter
from agmi.adapters.base import Record as Row

from refold import Memory, RefoldError, fold
from refold.engine.reader import TAGS_KEY
from refold.engine.streams import NEXT_NUMBER_KEY, STORE_STREAM, name_key, number_key
from refold.event import FLAG_ERASED, Erased
from refold.limits import SALT_BYTES
from refold.log.record import (
    MARK_COMMAND,
    NO_LINK,
    SEQ,
    Columns,
    Head,
    Record,
    StreamHead,
    digest_of,
    encode,
    link_after,
)
from refold.message import MessageAppended
from tests.support.rows import Rows

OWN, OTHER = "conversation/own", "conversation/other"
TEXT: Final = 8
"""Where the text stands in the array of a message."""

HOUR_NS: Final = 3_600_000_000_000
MARK: Final = "agmi_meta_tampered"
"""What the suite puts into the metadata of a record; here the message is dated an hour back."""


class Stamped(NamedTuple):
    """One event with what its columns say of it."""

    mark: int
    actor: int
    cause: int
    occurred_ns: int
    array: bytes


class Block:
    """A record taken apart into its events, to be changed and put together again."""

    def __init__(self, record: bytes) -> None:
        found = Record(record)
        columns = found.to_columns()
        self.link = found.link
        self.head = Head(found.first_seq, found.time_ns, found.command, found.salt, found.origin)
        self.streams: list[StreamHead] = list(columns.streams)
        self.owners: list[int] = list(columns.owners)
        occurred = columns.occurred or [found.time_ns] * found.count
        rows = zip(columns.marks, columns.actors, columns.causes, occurred, columns.arrays, strict=True)
        self.events = list(map(Stamped._make, rows))

    @property
    def first_seq(self) -> int:
        return self.head.first_seq

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.events) - 1

    @property
    def content(self) -> bytes:
        occurred = [each.occurred_ns for each in self.events]
        columns = Columns(
            self.streams,
            self.owners,
            [each.mark for each in self.events],
            [each.actor for each in self.events],
            [each.cause for each in self.events],
            occurred if set(occurred) != {self.head.time_ns} else (),
            [each.array for each in self.events],
        )
        return encode(self.head, columns)

    @property
    def packed(self) -> bytes:
        return self.link + self.content

    @property
    def covered(self) -> bytes:
        return self.head.origin or digest_of(self.content)

    def number(self, place: int) -> int:
        return self.streams[self.owners[place]].number

    def put(self, place: int, **changes: Any) -> None:
        self.events[place] = self.events[place]._replace(**changes)

    def around(self, place: int) -> list["Block"]:
        """What stands in front of an event, and what behind it, each where it was."""
        count, parts = len(self.events), list[Block]()
        for kept in (range(place), range(place + 1, count)):
            if kept:
                part = Block(self.packed)
                for other in sorted(set(range(count)).difference(kept), reverse=True):
                    part.drop(other)
                part.head = msgspec.structs.replace(part.head, first_seq=self.first_seq + kept[0])
                parts.append(part)
        return parts

    def drop(self, place: int) -> None:
        """Takes an event out, and its stream where that has no other event here."""
        del self.events[place]
        owner = self.owners.pop(place)
        if owner not in self.owners:
            del self.streams[owner]
            self.owners = [other - (other > owner) for other in self.owners]


class Store:
    """The rows of a store's log, taken out and put back with nothing of the engine."""

    def __init__(self, path: Path) -> None:
        self._rows = Rows(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def streams(self) -> dict[int, str]:
        found = self._rows.all("streams")
        return {int.from_bytes(number): msgspec.msgpack.decode(packed)[0] for number, packed in found}

    def number_of(self, name: str) -> int:
        """The number of a stream, which it gets here if it had none."""
        found = next((number for number, each in self.streams().items() if each == name), 0)
        if not found:
            found = int.from_bytes(self._rows.get("meta", NEXT_NUMBER_KEY))
            self._rows.put("streams", number_key(found), msgspec.msgpack.encode((name, 0)))
            self._rows.put("names", name_key(0, name), number_key(found))
            self._rows.put("meta", NEXT_NUMBER_KEY, number_key(found + 1))
        return found

    def know_tag(self, tag: int) -> None:
        """Adds a tag to those that the store says it holds."""
        tags = msgspec.msgpack.decode(self._rows.get("meta", TAGS_KEY))
        self._rows.put("meta", TAGS_KEY, msgspec.msgpack.encode(sorted({*tags, tag})))

    def log(self) -> dict[int, bytes]:
        """The records by the seqs under which they stand."""
        return {int.from_bytes(key): record for key, record in self._rows.all("log")}

    def blocks(self) -> list[Block]:
        return list(map(Block, self.log().values()))

    def find(self, seq: int) -> tuple[int, Block, int] | None:
        """The key of the record that holds a seq, the record, and the place there."""
        for key, record in self.log().items():
            block = Block(record)
            if block.first_seq <= seq <= block.last_seq:
                return key, block, seq - block.first_seq
        return None

    def put(self, key: int, record: bytes | None) -> None:
        self._rows.put("log", SEQ.pack(key), record)

    def put_all(self, blocks: Sequence[Block]) -> None:
        """Writes the log anew."""
        for key in self.log():
            self.put(key, None)
        for block in blocks:
            self.put(block.last_seq, block.packed)

    def drop_caches(self) -> None:
        for table in ("checkpoints", "digests"):
            for key, _ in self._rows.all(table):
                self._rows.put(table, key, None)


class Careless(MemoryAdapter):
    """Edits events in their records and leaves everything else as it is."""

    name = "refold"
    detection_point = "read"
    supports_replay = supports_metadata = supports_snapshot = True
    has_witness = True
    is_together = False
    jobs = 1
    """How many processes look at what is left of an edit; as many find what one finds."""

    def setup(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="refold-tampering-"))
        self._store = self._directory / "store"
        self._witness = self._directory / "witness" if self.has_witness else None
        self._is_edited = False
        self._refused: str | None = None
        self._covered: dict[int, bytes] = {}
        """What the chain covers of each record that was edited, by the seq under which it stands."""

    def teardown(self) -> None:
        shutil.rmtree(self._directory)

    # The tool's own ways.

    def _append(self, stream: str, *texts: str) -> None:
        with Memory(self._store, witness=self._witness) as memory:
            chat = memory.conversation(stream.partition("/")[2])
            with memory.batch() if self.is_together else nullcontext():
                for text in texts:
                    chat.append("user", text, tokens=1)

    def seed(self, n: int) -> None:
        self._append(OWN, *(f"own {number}" for number in range(n)))

    def seed_other(self, n: int) -> None:
        self._append(OTHER, *(f"other {number}" for number in range(n)))

    def append_genuine(self) -> None:
        self._append(OWN, "one more")

    def reload(self) -> None:
        """Opens the store as a program does when it starts again: what that writes must not make it sound."""
        if self._is_edited:
            self._is_edited = False
            with Store(self._store) as store:
                self.cover_up(store)
        try:
            Memory(self._store, witness=self._witness).close()
        except RefoldError as error:
            self._refused = f"opening: {error}"

    def verify(self) -> bool:
        """Reads first: what opening or reading refuses is rejected, what verify finds is reported."""
        self.detection_point, self.verify_detail = "read", self._refused
        if self._refused is not None:
            return False
        try:
            with Memory(self._store, witness=self._witness, readonly=True) as memory:
                for conversation_id in memory.conversations():
                    memory.conversation(conversation_id).window()
                self.detection_point = "audit"
                report = memory.verify(jobs=self.jobs)
                assert self.jobs == 1 or report == memory.verify()
        except RefoldError as error:
            self.verify_detail = f"reading: {error}"
            return False
        self.verify_detail = "; ".join(f"{finding.check} at {finding.seq}" for finding in report.findings) or None
        return report.ok

    # The attacker's.

    def cover_up(self, store: Store) -> None:
        """Does what the attacker does to keep an edit from being seen."""

    def _messages(self, stream: str) -> list[Row]:
        with Store(self._store) as store:
            names, found = store.streams(), list[Row]()
            for block in store.blocks():
                for place, (seq, event) in enumerate(enumerate(block.events, block.first_seq)):
                    name = names[block.number(place)]
                    if fold.tag_of(event.array) == fold.TAGS[MessageAppended] and name == stream:
                        fields = {"id": seq, "owner": name, "event": event.array.hex(), "stamp": event[:-1]}
                        found.append(Row(seq, fields))
        return found

    def read_all_raw(self) -> list[Row]:
        return self._messages(OWN)

    def read_other_raw(self) -> list[Row]:
        return self._messages(OTHER)

    def _put(self, seq: int, **changes: Any) -> None:
        """Changes an event where it stands; behind the log, puts it there as the last record has its last one."""
        self._is_edited = True
        with Store(self._store) as store:
            found = store.find(seq)
            if found is not None:
                key, block, place = found
                self._covered.setdefault(key, block.covered)
            else:
                key, block, place = seq, store.blocks()[-1], 0
                while len(block.events) > 1:
                    block.drop(0)
                block.head = msgspec.structs.replace(block.head, first_seq=seq)
            block.put(place, **changes)
            store.put(key, block.packed)

    def write_raw(self, record: Row) -> None:
        self._put(record.seq, array=array_of(record))

    def delete_raw(self, seq: int) -> None:
        self._is_edited = True
        with Store(self._store) as store:
            found = store.find(seq)
            assert found is not None, f"no record holds seq {seq}"
            key, block, place = found
            self._covered.setdefault(key, block.covered)
            store.put(key, None)
            for part in block.around(place):
                store.put(part.last_seq, part.packed)

    def mutate_payload(self, record: Row) -> Row:
        fields = fields_of(record)
        fields[TEXT] += ", or so"
        return Row(record.seq, {**record.fields, "event": msgspec.msgpack.encode(fields).hex()})

    def forge_record(self, template: Row) -> Row:
        forged = self.mutate_payload(template)
        return Row(template.seq + 1, {**forged.fields, "id": template.seq + 1})

    def replay_onto(self, victim_seq: int, donor: Row) -> None:
        self._put(victim_seq, array=array_of(donor))

    def read_meta(self, seq: int) -> dict[str, Any]:
        with Store(self._store) as store:
            found = store.find(seq)
            assert found is not None, f"no record holds seq {seq}"
            _, block, place = found
            return {"occurred_ns": block.events[place].occurred_ns}

    def write_meta(self, seq: int, meta: dict[str, Any]) -> None:
        moved_ns = HOUR_NS if MARK in meta else 0
        self._put(seq, occurred_ns=meta["occurred_ns"] - moved_ns)

    def snapshot_store(self) -> Path:
        return Path(shutil.copytree(self._store, self._directory / "older"))

    def restore_store(self, token: object) -> None:
        assert isinstance(token, Path)
        shutil.rmtree(self._store)
        shutil.copytree(token, self._store)

    # What the suite's own checks of an edit ask.

    def identity_of(self, record: Row) -> str:
        return str(record.seq)

    def payload_of(self, record: Row) -> str:
        return str(fields_of(record)[TEXT])

    def owner_of(self, record: Row) -> str:
        return str(record.fields["owner"])


def array_of(row: Row) -> bytes:
    return bytes.fromhex(row.fields["event"])


def fields_of(row: Row) -> list[Any]:
    fields: list[Any] = msgspec.msgpack.decode(array_of(row))
    return fields


class Tidy(Careless):
    """Makes the rows beside the log fit the records that are there, and lets the chain cover what each edited one was.

    So a record that was edited looks like one that was erased from: it keeps the digest from before as its origin, and
    one of its events is marked, without a body where there are others.
    """

    def cover_up(self, store: Store) -> None:
        store.drop_caches()
        self._disguise(store)

    def _disguise(self, store: Store) -> list[tuple[int, int, bytes]]:
        """Let edited records look erased from; return the seq of each marked event, and their keys and digests."""
        found = []
        for key, record in store.log().items():
            block = Block(record)
            if key in self._covered and block.covered != self._covered[key]:
                block.head = msgspec.structs.replace(block.head, origin=self._covered[key])
                block.put(0, mark=block.events[0].mark | FLAG_ERASED)
                if len(block.events) > 1:
                    block.put(0, array=fold.strip_body(block.events[0].array))
                store.put(key, block.packed)
                found.append((block.first_seq, block.last_seq, digest_of(block.content)))
        return found


class Erasing(Tidy):
    """Says besides that what it edited was erased from, by an event that goes on from the last link."""

    def cover_up(self, store: Store) -> None:
        store.drop_caches()
        told = self._disguise(store)
        if not told:
            return
        seqs, digests = tuple(first for first, _, _ in told), tuple((last, digest) for _, last, digest in told)
        number = store.number_of(STORE_STREAM)
        store.know_tag(fold.TAGS[Erased])
        blocks = store.blocks()
        last, first = blocks[-1], blocks[-1].last_seq + 1
        columns = Columns(
            [StreamHead(number, *behind(blocks).get(number, (0, 0)))],
            *([0], [MARK_COMMAND], [0], [0], ()),
            [fold.encode(Erased((), seqs, digests))],
        )
        content = encode(Head(first, last.head.time_ns, first, bytes(range(SALT_BYTES))), columns)
        store.put(first, link_after(last.link, digest_of(content)) + content)


def behind(blocks: Sequence[Block]) -> Mapping[int, tuple[int, int]]:
    """Version and seq of each stream's last event."""
    heads: dict[int, tuple[int, int]] = {}
    for block in blocks:
        for place in range(len(block.events)):
            number = block.number(place)
            heads[number] = (heads.get(number, (0, 0))[0] + 1, block.first_seq + place)
    return heads


class Relinking(Careless):
    """Writes the log anew from the first edit on: seqs, versions, times, digests, every link, as if always so."""

    def cover_up(self, store: Store) -> None:
        store.drop_caches()
        blocks = store.blocks()
        kept = untouched(blocks)
        store.put_all([*blocks[:kept], *relinked(blocks, kept)])


def untouched(blocks: Sequence[Block]) -> int:
    """How many records still follow one another, each with the link that it should have."""
    link, following = NO_LINK, 1
    for kept, block in enumerate(blocks):
        link = link_after(link, block.covered)
        if (block.first_seq, block.link) != (following, link):
            return kept
        following = block.last_seq + 1
    return len(blocks)


def relinked(blocks: Sequence[Block], kept: int) -> list[Block]:
    """The records behind the first ones, as they would be behind those."""
    heads = dict(behind(blocks[:kept]))
    branches = {stream.number: stream.branch for block in blocks for stream in block.streams}
    before = blocks[kept - 1] if kept else None
    for block in blocks[kept:]:
        if not block.events:
            continue
        first = before.last_seq + 1 if before else 1
        block.streams = [
            StreamHead(number, *heads.get(number, (0, 0)), branches[number]) for number, *_ in block.streams
        ]
        for place in range(len(block.events)):
            number = block.number(place)
            heads[number] = (heads.get(number, (0, 0))[0] + 1, first + place)
        time_ns = max(block.head.time_ns, before.head.time_ns) if before else block.head.time_ns
        command = first if block.events[0].mark & MARK_COMMAND else last_command(before)
        block.head = msgspec.structs.replace(block.head, first_seq=first, command=command, time_ns=time_ns)
        block.link = link_after(before.link if before else NO_LINK, block.covered)
        before = block
    return [block for block in blocks[kept:] if block.events]


def last_command(block: Block | None) -> int:
    """Where the command of a record's last event began."""
    assert block is not None, "the first event of a log begins a command"
    begins = [seq for seq, event in enumerate(block.events, block.first_seq) if event.mark & MARK_COMMAND]
    return begins[-1] if begins else block.head.command
