"""Each kind of damage is found, told with its place, and never a crash."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import lmdb.verify as offline
import msgspec
import pytest

from refold import Memory, Message, ReadOnly, RefoldError, Report, StoreCorrupt, fold
from refold.engine.fold_check import FoldCheck
from refold.limits import VERIFY_PARTS_COUNT
from refold.log import lmdb_file
from refold.log import record as records
from tests.support.memories import Clock, remembering
from tests.support.rows import Rows
from tests.support.seams import reader_of

TABLES = ("log", "checkpoints", "derived", "digests", "meta", "names", "requests", "streams")


def key_of(seq: int) -> bytes:
    return records.SEQ.pack(seq)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "store"
    with remembering(path, clock_ns=Clock()) as memory:
        chat = memory.conversation("chat", project="project")
        with memory.batch():
            for number in range(300):
                chat.append("user", f"hello {number}", tokens=1)
        chat.scratchpad.set("key", "value")
        chat.state["project:key"] = [1, 2]
        snapshot = chat.snapshot("named")
        chat.scratchpad.set("key", "other")
        chat.restore(snapshot)
        chat.fork("fork").scratchpad.note("a note", sources=[3, 5], request_id="once")
        memory.profile().set("key", "value")
        memory.journal().append("a note")
    return path


@pytest.fixture
def store(intact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(intact, tmp_path / "store"))


def report_of(store: Path, jobs: int = 1) -> Report:
    with Memory(store, readonly=True) as memory:
        return memory.verify(jobs=jobs)


def damaged(store: Path, damage: Callable[[Rows], None]) -> Report:
    rows = Rows(store)
    damage(rows)
    rows.close()
    report = report_of(store)
    assert report.ok == (not report.findings)
    return report


def flipped(value: bytes, place: int) -> bytes:
    changed = bytearray(value)
    changed[place] ^= 1
    return bytes(changed)


def record_with(rows: Rows, seq: int) -> tuple[bytes, bytes]:
    """The key and the bytes of the record that holds an event."""
    return next((key, record) for key, record in rows.all("log") if key >= key_of(seq))


def changed(seq: int, change: Callable[[bytes], bytes | None]) -> Callable[[Rows], None]:
    """Changes the bytes of the record that holds an event."""

    def damage(rows: Rows) -> None:
        key, record = record_with(rows, seq)
        rows.put("log", key, change(record))

    return damage


def flip_record(seq: int, place: int) -> Callable[[Rows], None]:
    return changed(seq, lambda record: flipped(record, place))


def relinked(
    seq: int, change: Callable[[records.Head, records.Columns], records.Head | None]
) -> Callable[[Rows], None]:
    """Changes what a record says, and gives it and all behind it the links that fit: only its content is wrong."""

    def damage(rows: Rows) -> None:
        link = records.NO_LINK
        for key, packed in rows.all("log"):
            record = records.Record(packed)
            content, covered = record.content, record.covered_digest()
            if record.first_seq <= seq <= record.last_seq:
                head = records.Head(record.first_seq, record.time_ns, record.command, record.salt, record.origin)
                columns = record.to_columns()
                columns.marks, columns.actors = list(columns.marks), list(columns.actors)
                columns.arrays, columns.streams = list(columns.arrays), list(columns.streams)
                made = change(head, columns)
                content = records.encode(made or head, columns)
                covered = head.origin or records.digest_of(content)
            link = records.link_after(link, covered)
            rows.put("log", key, link + content)

    return damage


def mark(seq: int, bit: int) -> Callable[[Rows], None]:
    def change(head: records.Head, columns: records.Columns) -> None:
        columns.marks[seq - head.first_seq] ^= bit  # type: ignore[index]

    return relinked(seq, change)


def other_actor(_: records.Head, columns: records.Columns) -> None:
    columns.actors[0] = 200  # type: ignore[index]


def garbled_event(head: records.Head, columns: records.Columns) -> None:
    columns.arrays[7 - head.first_seq] = b"\x92\x02\xc1"  # type: ignore[index]


def other_command(head: records.Head, _: records.Columns) -> records.Head:
    return msgspec.structs.replace(head, command=300)


def earlier(head: records.Head, _: records.Columns) -> records.Head:
    return msgspec.structs.replace(head, time_ns=head.time_ns - 10**15)


def proved_by_nothing(head: records.Head, columns: records.Columns) -> records.Head:
    columns.marks[0] |= 1  # type: ignore[index]
    return msgspec.structs.replace(head, origin=bytes(range(32)))


def other_version(_: records.Head, columns: records.Columns) -> None:
    first = columns.streams[0]
    columns.streams[0] = first._replace(version=first.version + 1)  # type: ignore[index]


def other_backlink(_: records.Head, columns: records.Columns) -> None:
    first = columns.streams[0]
    columns.streams[0] = first._replace(seq=first.seq + 1)  # type: ignore[index]


def drop_record(seq: int) -> Callable[[Rows], None]:
    return changed(seq, lambda _: None)


def swap_records(rows: Rows) -> None:
    (one, first), (two, second) = rows.all("log")[1:3]
    rows.put("log", one, second)
    rows.put("log", two, first)


def erase_silently(rows: Rows) -> None:
    key, record = record_with(rows, 5)
    rows.put(
        "log", key, records.erase_bodies(record, [5 - records.Record(record).first_seq], fold.strip_body, bytes(16))
    )


def drop_first(table: str) -> Callable[[Rows], None]:
    return lambda rows: rows.put(table, rows.all(table)[0][0], None)


def add_derived(rows: Rows) -> None:
    rows.put("derived", key_of(1) + key_of(9), b"")


def checkpoints(rows: Rows) -> list[tuple[bytes, bytes]]:
    """Return the checkpoint rows, without the one that says how far they reach."""
    return [(key, packed) for key, packed in rows.all("checkpoints") if any(key)]


def drop_last_checkpoint(rows: Rows) -> None:
    rows.put("checkpoints", checkpoints(rows)[-1][0], None)


def change_checkpoint(rows: Rows) -> None:
    key, packed = checkpoints(rows)[0]
    version, kept, inline, pointed, since = msgspec.msgpack.decode(packed)
    rows.put("checkpoints", key, msgspec.msgpack.encode([version, kept, inline, pointed[1:], since]))


def uncover_events(rows: Rows) -> None:
    """Takes the only row of a stream away, and says that rows reach up to its last event but one."""
    key, _ = next(row for row in checkpoints(rows) if row[0][:4] == bytes([0, 0, 0, 4]))
    rows.put("checkpoints", key, None)
    rows.put("checkpoints", bytes(12), key_of(int.from_bytes(key[4:], "big") - 1))


def forget_an_event(rows: Rows) -> None:
    key, packed = checkpoints(rows)[0]
    version, kept, inline, pointed, since = msgspec.msgpack.decode(packed)
    rows.put("checkpoints", key, msgspec.msgpack.encode([version, kept, inline, pointed, since[1:]]))


def garble_checkpoint(rows: Rows) -> None:
    rows.put("checkpoints", checkpoints(rows)[0][0], b"\x90")


def exchange_names(rows: Rows) -> None:
    (first, one), (second, two), *_ = rows.all("streams")
    rows.put("streams", first, two)
    rows.put("streams", second, one)


def exchange_numbers(rows: Rows) -> None:
    (first, one), (second, two), *_ = rows.all("names")
    rows.put("names", first, two)
    rows.put("names", second, one)


def reuse_number(rows: Rows) -> None:
    rows.put("meta", b"next_stream", bytes([0, 0, 0, 1]))


def answered_by(first: int, last: int) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        ((key, row),) = rows.all("requests")
        rows.put("requests", key, row[:16] + key_of(first) + key_of(last))

    return change


def cut_request(rows: Rows) -> None:
    ((key, row),) = rows.all("requests")
    rows.put("requests", key, row[:-1])


def change_digests(rows: Rows) -> None:
    key, packed = rows.all("digests")[0]
    seq, ((view, digest), *rest) = msgspec.msgpack.decode(packed)
    rows.put("digests", key, msgspec.msgpack.encode([seq, [[view, flipped(digest, 5)], *rest]]))


def move_digests(rows: Rows) -> None:
    key, packed = rows.all("digests")[0]
    rows.put("digests", key, msgspec.msgpack.encode([309, msgspec.msgpack.decode(packed)[1]]))


def add_tag(rows: Rows) -> None:
    rows.put("meta", b"tags", msgspec.msgpack.encode(sorted([*msgspec.msgpack.decode(rows.get("meta", b"tags")), 20])))


def drop_tag(rows: Rows) -> None:
    rows.put("meta", b"tags", msgspec.msgpack.encode(msgspec.msgpack.decode(rows.get("meta", b"tags"))[1:]))


def reach_behind_the_head(rows: Rows) -> None:
    rows.put("checkpoints", bytes(12), key_of(311))


DAMAGES: dict[str, tuple[Callable[[Rows], None], str, int | None]] = {
    "a bit of a body": (flip_record(7, -1), "chain", 1),
    "a bit of a salt": (flip_record(7, records.COLUMNS_BEGIN - 1), "chain", 1),
    "a bit of a time": (flip_record(7, records.HEAD_BEGIN + 16), "chain", 1),
    "a bit of a link": (flip_record(7, 5), "chain", 1),
    "a bit of a stream's number": (flip_record(7, records.COLUMNS_BEGIN), "chain", 1),
    "a bit of where an event ends": (flip_record(307, -60), "chain", 307),
    "another version": (relinked(307, other_version), "order", 307),
    "another backlink": (relinked(307, other_backlink), "order", 307),
    "another format": (flip_record(7, records.HEAD_BEGIN), "record", 1),
    "an unknown column": (flip_record(7, records.HEAD_BEGIN + 1), "record", 1),
    "an unknown mark": (mark(7, 64), "record", 1),
    "an event that cannot be decoded": (relinked(7, garbled_event), "record", 7),
    "an actor that no event named": (relinked(307, other_actor), "actor", 307),
    "a command that began elsewhere": (relinked(200, other_command), "record", None),
    "an earlier time": (relinked(307, earlier), "time", 307),
    "a byte behind the record": (changed(7, lambda record: record + b"\0"), "chain", 1),
    "a cut body": (changed(7, lambda record: record[:-10]), "chain", 1),
    "a cut column": (changed(7, lambda record: record[:130]), "record", 1),
    "a cut head": (changed(7, lambda record: record[:50]), "record", 1),
    "a record of a single byte": (changed(7, lambda record: record[:1]), "record", 1),
    "a missing record": (drop_record(100), "gap", None),
    "a missing first record": (drop_record(1), "gap", 1),
    "two records exchanged": (swap_records, "gap", None),
    "a body blanked without an event": (erase_silently, "erasure", 5),
    "what is left of an erasure without a proof": (relinked(307, proved_by_nothing), "erasure", 307),
    "an event that is said to be erased": (mark(7, 1), "erasure", 7),
    "a missing derived row": (drop_first("derived"), "derived", None),
    "a derived row of nothing": (add_derived, "derived", 9),
    "a checkpoint that forgot a message": (change_checkpoint, "checkpoint", None),
    "a checkpoint that forgot an event": (forget_an_event, "checkpoint", None),
    "a checkpoint that is no checkpoint": (garble_checkpoint, "checkpoint", None),
    "a missing checkpoint": (drop_last_checkpoint, "head", None),
    "events that no checkpoint covers": (uncover_events, "checkpoint", 307),
    "a missing name": (drop_first("names"), "names", None),
    "a missing number": (drop_first("streams"), "names", None),
    "two streams that exchanged their names": (exchange_names, "names", None),
    "two names that exchanged their numbers": (exchange_numbers, "names", None),
    "a number that would be given twice": (reuse_number, "names", None),
    "a request that was answered behind the head": (answered_by(308, 311), "requests", 308),
    "a request that was answered backwards": (answered_by(308, 307), "requests", 308),
    "a request that changed nothing behind the head": (answered_by(0, 311), "requests", None),
    "a request that several commands answered": (answered_by(300, 307), "requests", 300),
    "a cut request": (cut_request, "requests", None),
    "other digests": (change_digests, "digests", None),
    "digests of another seq": (move_digests, "digests", 309),
    "digests that are none": (lambda rows: rows.put("digests", bytes([0, 0, 0, 1]), b"\xc0"), "digests", None),
    "digests of a stream that is not there": (
        lambda rows: rows.put("digests", bytes([0, 0, 0, 99]), rows.all("digests")[0][1]),
        "digests",
        None,
    ),
    "a missing store id": (lambda rows: rows.put("meta", b"store_id", None), "meta", None),
    "a cut key of hashes": (lambda rows: rows.put("meta", b"hash_key", bytes(31)), "meta", None),
    "a tag too many": (add_tag, "meta", None),
    "a tag too few": (drop_tag, "meta", None),
    "checkpoints that reach behind the head": (reach_behind_the_head, "checkpoint", 310),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_found(store: Path, what: str) -> None:
    damage, check, seq = DAMAGES[what]
    report = damaged(store, damage)
    found = {finding.check: finding for finding in report.findings}
    assert check in found, report.findings
    assert found[check].message
    assert seq is None or seq in [finding.seq for finding in report.findings if finding.check == check]
    assert report.state_hash == ""
    assert report.first_bad_seq == min((finding.seq for finding in report.findings if finding.seq), default=0)


def test_an_intact_store_has_no_findings(store: Path) -> None:
    report = report_of(store)
    assert report.ok
    assert report.findings == ()
    assert (report.events, report.streams, report.first_bad_seq) == (310, 6, 0)
    assert len(report.state_hash) == 64


def test_a_live_state_that_is_not_the_replay_is_found() -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    message: Message = chat.append("user", "hello", tokens=1)
    msgspec.structs.force_setattr(message.event, "tokens", 2)
    msgspec.structs.force_setattr(chat.window()[0].event, "tokens", 2)
    report = memory.verify()
    assert [finding.check for finding in report.findings] == ["replay"]


def test_progress_is_told_up_to_the_head(store: Path) -> None:
    with Memory(store) as memory:
        calls: list[tuple[int, int]] = []
        memory.verify(lambda done, whole: calls.append((done, whole)))
        assert calls == sorted(calls)
        assert calls[-1] == (memory.head, memory.head)


def test_an_error_of_progress_is_the_callers(store: Path) -> None:
    def interrupt(done: int, whole: int) -> None:
        raise KeyboardInterrupt(done, whole)

    with Memory(store) as memory:
        with pytest.raises(KeyboardInterrupt):
            memory.verify(interrupt)
        assert memory.verify().ok


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("seed", range(12))
def test_random_damage_is_a_finding_or_a_typed_error_and_never_a_crash(store: Path, table: str, seed: int) -> None:
    draw = random.Random(f"{table} {seed}")
    rows = Rows(store)
    entries = [(key, value) for key, value in rows.all(table) if value]
    for _ in range(3 if entries else 0):
        key, value = draw.choice(entries)
        place = draw.randrange(len(value))
        damages = [flipped(value, place), value[:place], bytes(len(value)), draw.choice(entries)[1], None]
        rows.put(table, key, draw.choice(damages))
    rows.close()
    try:
        memory = Memory(store, readonly=True)
    except RefoldError:
        return
    with memory:
        report = memory.verify()
        assert report.ok == (not report.findings)
        if report.ok:
            assert memory.state_hash() == memory.replay_hash() == report.state_hash
            for conversation_id in memory.conversations():
                assert list(memory.conversation(conversation_id).events())


@pytest.mark.parametrize("share", [0.02, 0.2, 0.4, 0.6])
def test_a_store_that_was_cut_off_is_refused(store: Path, share: float) -> None:
    size = (store / "data.mdb").stat().st_size
    os.truncate(store / "data.mdb", max(8_192, int(size * share) // 4_096 * 4_096))
    with pytest.raises(StoreCorrupt, match=r"was cut off: \d+ of \d+ bytes are there .*restore a backup"):
        Memory(store)


def test_an_event_of_an_unknown_tag_is_carried_and_makes_the_store_read_only(store: Path) -> None:
    rows = Rows(store)
    tags = msgspec.msgpack.decode(rows.get("meta", b"tags"))
    rows.put("meta", b"tags", msgspec.msgpack.encode([*tags, 999]))
    add_unknown_event(rows)
    rows.close()
    with Memory(store) as memory:
        report = memory.verify()
        assert report.findings == ()
        assert (memory.head, memory.state_hash()) == (311, memory.replay_hash())
        assert len(list(memory.conversation("chat").events())) == memory.conversation("chat").version
        with pytest.raises(ReadOnly, match=r"tags \[999\] that this refold does not know; upgrade it"):
            memory.conversation("chat").append("user", "x", tokens=1)


def add_unknown_event(rows: Rows) -> None:
    """Append, as a later refold would, an event of tag 999 to the first stream, in a commit of its own."""
    found = [records.Record(packed) for _, packed in rows.all("log")]
    last = found[-1]
    seqs = [seq for record in found for seq, number, *_ in record.rows() if number == 1]
    head = records.Head(last.last_seq + 1, last.time_ns, last.last_seq + 1, bytes(range(16)))
    stream = records.StreamHead(1, len(seqs), seqs[-1])
    array = msgspec.msgpack.encode([999, [], "structural", "body"])
    content = records.encode(head, records.Columns([stream], [0], [records.MARK_COMMAND], [0], [0], (), [array]))
    rows.put("log", key_of(last.last_seq + 1), records.link_after(last.link, records.digest_of(content)) + content)


def test_states_that_do_not_fit_are_folded_in_passes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(tmp_path / "store", clock_ns=Clock()) as memory:
        chats = [memory.conversation(f"chat-{number}") for number in range(20)]
        with memory.batch():
            for number in range(6_000):
                chats[number % 20].append("user", f"hello {number}", tokens=1)
        memory.flush()
        whole = memory.verify()
        passes: list[set[int]] = []
        again = FoldCheck._refold

        def counted(refolding: FoldCheck, wanted: set[int]) -> None:
            passes.append(wanted)
            again(refolding, wanted)

        monkeypatch.setattr(FoldCheck, "_refold", counted)
        reader_of(memory).memory_bytes = VERIFY_PARTS_COUNT * 2_000_000
        assert memory.verify() == whole
        assert len(passes) >= 2
        assert whole.ok
        assert whole.state_hash == memory.state_hash()


@pytest.mark.parametrize("seed", range(30))
def test_the_quicker_verifier_finds_what_lmdbs_own_does(store: Path, seed: int) -> None:
    draw = random.Random(seed)
    path = store / "data.mdb"
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((0, 1, 1, 1, 5))):
        content[draw.randrange(8_192, len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    found = lmdb_file.problems(str(store))
    stricter = [problem for problem in found if "has flags" in problem or "does not turn" in problem]
    assert [problem for problem in found if problem not in stricter] == offline.verify(str(store))  # type: ignore[no-untyped-call]
