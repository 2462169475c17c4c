"""Three attackers who edit a store's file below refold, for the tamper suite of the package agent-memory-integrity.

``agmi-check --adapter tests.rigs.tamper:Careless`` runs the suite's edits T1 to T9; the classes differ in what the
attacker does behind each edit. None of them can write the witness; those named ``...Alone`` meet a store without one.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import msgspec
from agmi.adapters.base import MemoryAdapter
from agmi.adapters.base import Record as Row

from refold import Memory, RefoldError
from refold.limits import HASH_BYTES
from refold.log import record as records
from refold.log.record import ARRAY_BEGIN, COMMIT, HEADER, HEADER_BYTES, SEQ, Header
from refold.message import MessageAppended
from tests.engine.test_verify import Rows

OWN, OTHER = "conversation/own", "conversation/other"
TEXT: Final = 8
"""Where the text stands in the array of a message."""

HOUR_NS: Final = 3_600_000_000_000
MARK: Final = "agmi_meta_tampered"
"""What the suite puts into the metadata of a record; here the message is dated an hour back."""


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

    def log(self) -> dict[int, bytes]:
        return {int.from_bytes(key): record for key, record in self._rows.all("log")}

    def get(self, seq: int) -> bytes:
        return self._rows.get("log", SEQ.pack(seq))

    def put(self, seq: int, record: bytes | None) -> None:
        self._rows.put("log", SEQ.pack(seq), record)

    def drop_caches(self) -> None:
        for table in ("checkpoints", "digests"):
            for key, _ in self._rows.all(table):
                self._rows.put(table, key, None)

    def commits(self) -> list[tuple[bytes, bytes]]:
        return self._rows.all("commits")

    def put_commit(self, key: bytes, commit: bytes | None) -> None:
        self._rows.put("commits", key, commit)


def header_of(record: bytes) -> Header:
    return records.header_of(record)


def fields_of(record: bytes) -> list[Any]:
    fields: list[Any] = msgspec.msgpack.decode(record[ARRAY_BEGIN:])
    return fields


def with_fields(record: bytes, fields: list[Any]) -> bytes:
    return record[:ARRAY_BEGIN] + msgspec.msgpack.encode(fields)


def with_header(record: bytes, **changes: Any) -> bytes:
    return HEADER.pack(*header_of(record)._replace(**changes)) + record[HEADER_BYTES:]


def committed(record: bytes) -> bytes:
    """The record with the commitment that its salt and body have."""
    salt, body = record[HEADER_BYTES:ARRAY_BEGIN], record[ARRAY_BEGIN + header_of(record).body_begin :]
    return with_header(record, commitment=records.commit_to(salt, body))


class Careless(MemoryAdapter):
    """Edits records and leaves everything else as it is."""

    name = "refold"
    detection_point = "read"
    supports_replay = supports_metadata = supports_snapshot = True
    has_witness: ClassVar[bool] = True

    def setup(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="refold-tampering-"))
        self._store = self._directory / "store"
        self._witness = self._directory / "witness" if self.has_witness else None
        self._is_edited = False
        self._refused: str | None = None

    def teardown(self) -> None:
        shutil.rmtree(self._directory)

    # The tool's own ways.

    def _append(self, stream: str, *texts: str) -> None:
        with Memory(self._store, witness=self._witness) as memory:
            chat = memory.conversation(stream.partition("/")[2])
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
                report = memory.verify()
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
            names = store.streams()
            return [
                Row(seq, {"id": seq, "owner": names[header_of(record).stream], "record": record.hex()})
                for seq, record in store.log().items()
                if header_of(record).tag == MessageAppended.__struct_config__.tag
                and names[header_of(record).stream] == stream
            ]

    def read_all_raw(self) -> list[Row]:
        return self._messages(OWN)

    def read_other_raw(self) -> list[Row]:
        return self._messages(OTHER)

    def _put(self, seq: int, record: bytes | None) -> None:
        self._is_edited = True
        with Store(self._store) as store:
            store.put(seq, record)

    def write_raw(self, record: Row) -> None:
        self._put(record.seq, record_of(record))

    def delete_raw(self, seq: int) -> None:
        self._put(seq, None)

    def mutate_payload(self, record: Row) -> Row:
        fields = fields_of(record_of(record))
        fields[TEXT] += ", or so"
        return Row(record.seq, {**record.fields, "record": with_fields(record_of(record), fields).hex()})

    def forge_record(self, template: Row) -> Row:
        forged = self.mutate_payload(template)
        return Row(template.seq + 1, {**forged.fields, "id": template.seq + 1})

    def replay_onto(self, victim_seq: int, donor: Row) -> None:
        with Store(self._store) as store:
            victim = store.get(victim_seq)
        genuine = record_of(donor)
        salted = with_header(victim, commitment=header_of(genuine).commitment)[:HEADER_BYTES]
        self._put(victim_seq, salted + genuine[HEADER_BYTES:])

    def read_meta(self, seq: int) -> dict[str, Any]:
        with Store(self._store) as store:
            return {"occurred_ns": header_of(store.get(seq)).occurred_ns}

    def write_meta(self, seq: int, meta: dict[str, Any]) -> None:
        with Store(self._store) as store:
            record = store.get(seq)
        moved_ns = HOUR_NS if MARK in meta else 0
        self._put(seq, with_header(record, occurred_ns=meta["occurred_ns"] - moved_ns))

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
        return str(fields_of(record_of(record))[TEXT])

    def owner_of(self, record: Row) -> str:
        return str(record.fields["owner"])


def record_of(row: Row) -> bytes:
    return bytes.fromhex(row.fields["record"])


class Tidy(Careless):
    """Makes the rows beside the log speak of the records that are there, and each commitment fit its body."""

    def cover_up(self, store: Store) -> None:
        store.drop_caches()
        log = store.log()
        for seq, record in log.items():
            store.put(seq, committed(record))
        head, last = max(log), 0
        for key, _ in store.commits():
            if int.from_bytes(key) > head:
                store.put_commit(key, None)
            last = min(int.from_bytes(key), head)
        if last < head:
            _, commit = store.commits()[-1]
            store.put_commit(SEQ.pack(head), COMMIT.pack(last + 1, head + 1, *COMMIT.unpack(commit)[2:]))


class Relinking(Careless):
    """Writes the log anew from the first edit on: seqs, versions, times, commitments, every link, as if always so."""

    def cover_up(self, store: Store) -> None:
        store.drop_caches()
        log = store.log()
        kept, link = _untouched(store, log)
        for seq in log.keys() - range(1, kept + 1):
            store.put(seq, None)
        for key, _ in store.commits():
            if int.from_bytes(key) > kept:
                store.put_commit(key, None)
        heads = {header_of(log[seq]).stream: seq for seq in range(1, kept + 1)}
        before = log[kept] if kept else None
        for seq, was in enumerate([seq for seq in log if seq > kept], kept + 1):
            record = _moved(log, was, seq, heads, before)
            log[seq] = before = record
            store.put(seq, record)
            blank = COMMIT.pack(seq, seq + 1, header_of(record).time_ns, records.NO_LINK)
            link = records.link_after(link, [blank, *records.covered(record)])
            store.put_commit(SEQ.pack(seq), blank[:-HASH_BYTES] + link)


def _untouched(store: Store, log: dict[int, bytes]) -> tuple[int, bytes]:
    """How far the commit rows still fit their records, and the link there."""
    kept, link = 0, records.NO_LINK
    for _, packed in store.commits():
        commit = records.CommitRow._make(COMMIT.unpack(packed))
        covered = [packed[:-HASH_BYTES] + records.NO_LINK]
        for seq in range(commit.first_seq, commit.next_seq):
            if seq not in log or committed(log[seq]) != log[seq]:
                return kept, link
            covered += records.covered(log[seq])
        if records.link_after(link, covered) != commit.link:
            return kept, link
        kept, link = commit.next_seq - 1, commit.link
    return kept, link


def _moved(log: dict[int, bytes], was: int, seq: int, heads: dict[int, int], before: bytes | None) -> bytes:
    """The record at a seq as it would be there, behind the heads of the streams, which move on."""
    header = header_of(log[was])
    prev_seq = heads.get(header.stream, 0)
    heads[header.stream] = seq
    return committed(
        with_header(
            log[was],
            version=header_of(log[prev_seq]).version + 1 if prev_seq else 1,
            prev_seq=prev_seq,
            command=seq,
            time_ns=max(header.time_ns, header_of(before).time_ns) if before else header.time_ns,
        )
    )


class CarelessAlone(Careless):
    """The same against a store without a witness."""

    has_witness = False


class TidyAlone(Tidy):
    """The same against a store without a witness."""

    has_witness = False


class RelinkingAlone(Relinking):
    """The same against a store without a witness."""

    has_witness = False
