"""What a faulty writer left is told from tampering, and recovered: every event once, all caches made anew."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from refold import Memory, Report, StoreCorrupt, fold, recover
from refold.engine.streams import STORE_STREAM, checkpoint_of
from refold.engine.streams import number_of as stream_of
from refold.entry import MemoryAdded
from refold.event import Erased
from refold.log.record import COLUMNS_BEGIN, HEAD_BEGIN, SEQ, STREAM
from refold.message import MessageAppended
from refold.views.scratchpad import NoteAdded
from tests.engine.test_backup import names_in
from tests.engine.test_recover import BOUNDS, lived
from tests.engine.test_verify import flipped
from tests.support.bounds import START_NS, Clock, lowered, seeded_bytes
from tests.support.command import Run, running
from tests.support.faulty_writer import Log, begun_anew, number_of, read, rewritten, shared, twice
from tests.support.memories import assert_sound
from tests.support.rows import Rows
from tests.support.seams import engine_of, reader_of

Fault = Callable[[Path], None]

SMALL = {"CHECKPOINT_EVENTS": 5, "TAIL_EVENTS_MAX": 40, "PACKED_COUNT_MIN": 1, "CUT_ROWS": 7, "CHECKPOINT_ROWS_MAX": 3}


def opened(path: Path, seed: int) -> Memory:
    return Memory(path, clock_ns=Clock(), random_bytes=seeded_bytes(seed), window_tokens=40)


def begin(path: Path) -> Path:
    """A store with several streams, in the main line and in a fork of it, that name one another and their seqs."""
    with opened(path, 1) as memory:
        chat, project = memory.conversation("chat", project="p"), memory.project("p")
        for number in range(12):
            message = chat.append("user", f"message {number}", tokens=5)
            chat.scratchpad.set(f"key {number % 3}", str(number))
            chat.scratchpad.note("the same note")
            project.add(f"fact {number}", source=message)
        chat.state["plan"] = [1]
        memory.conversation("other").append("user", "aside", tokens=1, request_id="aside")
        snapshot = chat.snapshot("named")
        chat.scratchpad.set("key 0", "later")
        chat.fork("fork").scratchpad.note("of the fork", sources=[3, 5])
        chat.restore(snapshot)
        fork = memory.fork("what if")
        fork.conversation("chat").append("user", "in the fork", tokens=5)
        fork.fork("deeper").conversation("chat").scratchpad.note("deep")
        chat.append("user", "behind the fork", tokens=5)
        memory.erase([project.list()[2].seq])
        memory.profile().set("theme", "dark")
    return path


def go_on(path: Path) -> Path:
    """More of the same, which goes on from what was there."""
    with opened(path, 2) as memory:
        chat = memory.conversation("chat", project="p")
        said = chat.append("user", "once more", tokens=5, sources=[9])
        for number in range(6):
            said = chat.append("user", f"more {number}", tokens=5, sources=[said])
            chat.scratchpad.set(f"key {number % 3}", f"again {number}")
            memory.project("p").upsert(f"fact {number}, as {number} knows", source=said, threshold=0.4)
        memory.snapshot("whole")
        chat.fork("late").scratchpad.note("late")
        memory.fork("what if").profile().set("theme", "light", request_id="once")
        chat.restore("named")
        memory.erase([chat.window()[-1]])
        memory.state_hash()  # Whose digests are stored when the memory is closed.
    return path


@pytest.fixture(autouse=True)
def small() -> object:
    with lowered(**SMALL):
        yield


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return go_on(begin(tmp_path / "store"))


def report_of(store: Path) -> Report:
    with Memory(store, readonly=True) as memory:
        return memory.verify()


def hashes(store: Path) -> dict[str, str]:
    """The hashes of the memory and its forks at its head."""
    with Memory(store, readonly=True) as memory:
        assert_sound(memory)
        return {"": memory.state_hash(), **{name: memory.fork(name).state_hash() for name in memory.forks()}}


def truths(store: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    """Everything but caches and the log, row by row."""
    rows = Rows(store)
    found = {table: rows.all(table) for table in ("names", "streams", "requests", "derived", "meta")}
    rows.close()
    return found


def events_in(store: Path) -> list[object]:
    """Every event with all that is said of it, but for what proves that it is this one."""
    return [
        msgspec.structs.replace(
            entry,
            record=0,
            salt=b"",
            origin=b"",
            array=fold.strip_body(entry.array) if entry.tag == ERASED else entry.array,
        )
        for entry in read(store).entries
    ]


def log_in(store: Path) -> list[tuple[bytes, bytes]]:
    rows = Rows(store)
    found = rows.all("log")
    rows.close()
    return found


ERASED = fold.TAGS[Erased]


def check_comes_back(store: Path, sound: Path) -> tuple[str, ...]:
    """Recovers the store, which then is the sound one, and returns what was repaired."""
    new = store.with_name("new")
    made = recover(store, new)
    assert truths(new) == truths(sound)
    assert events_in(new) == events_in(sound)
    assert made.repairs or log_in(new) == log_in(sound)
    assert hashes(new) == hashes(sound)
    with Memory(new) as memory:
        assert (made.state_hash, made.link) == (memory.state_hash(), reader_of(memory).link.hex())
        seqs = range(0, memory.head, 9)
        assert [memory.state_hash(at=seq) for seq in seqs] == [memory.replay_hash(at=seq) for seq in seqs]
        memory.conversation("chat").append("user", "goes on", tokens=1)
        assert_sound(memory)
        assert memory.backup(store.with_name("backup")).head == memory.head
    return made.repairs


# What a writer counted or linked wrongly.


def stale(store: Path) -> None:
    with rewritten(store, stale=(4, 9, 10)):
        pass


def anew(store: Path) -> None:
    begun_anew(store, "conversation/chat", slice(20, None))


def from_a_checkpoint(store: Path) -> None:
    begun_anew(store, "conversation/chat", slice(20, 26), at=15)


def under_a_fork(store: Path) -> None:
    """What the stream of a fork of the memory goes on from is counted wrongly, and so is that stream itself."""
    begun_anew(store, "conversation/chat", slice(3, None))
    number = number_of(store, "conversation/chat", branch=1)
    with rewritten(store) as log:
        for seq in log.seqs(number):
            log.put(seq, version=log.at(seq).version - 3)


def the_store_itself(store: Path) -> None:
    begun_anew(store, STORE_STREAM, slice(1, None))


def all_at_once(store: Path) -> None:
    anew(store)
    begun_anew(store, "project/p", slice(5, 9))
    stale(store)


RECOUNTED: dict[str, tuple[Fault, str]] = {
    "a stream begins anew": (anew, "conversation/chat: version 1 at seq "),
    "a stream goes on from an earlier event": (from_a_checkpoint, "conversation/chat: version 16 at seq "),
    "what a fork goes on from": (under_a_fork, "conversation/chat: version 1 at seq "),
    "the stream of the store": (the_store_itself, "store/main: version 1 at seq "),
    "links go on from earlier commits": (stale, "the links of the chain from seq "),
    "all of it": (all_at_once, "project/p: version "),
}


@pytest.mark.parametrize("what", RECOUNTED)
def test_events_that_were_counted_or_linked_wrongly_come_back_as_they_were(store: Path, what: str) -> None:
    fault, said = RECOUNTED[what]
    sound = Path(shutil.copytree(store, store.with_name("sound")))
    fault(store)
    report = report_of(store)
    assert (report.ok, report.fault) == (False, "writer")
    assert {finding.fault for finding in report.findings} <= {"writer", "cache"}
    assert "every event is as it was written" in report.summary
    assert "`refold recover STORE NEW`" in report.summary
    repairs = check_comes_back(store, sound)
    assert any(repair.startswith(said) for repair in repairs), repairs


@pytest.mark.parametrize("salted", [False, True])
def test_events_that_stand_twice_stand_once(tmp_path: Path, salted: bool) -> None:
    """What was written behind them names the seqs that they should have had."""
    sound = go_on(begin(tmp_path / "sound"))
    store = begin(tmp_path / "store")
    kinds = {fold.TAGS[MessageAppended], fold.TAGS[MemoryAdded], 0 if salted else fold.TAGS[NoteAdded]}

    def pick(log: Log) -> list[int]:
        """Messages, memories and notes; under another salt nothing says of a note that it is the same."""
        return [seq for seq in range(4, 30) if log.at(seq).tag in kinds and not log.at(seq).flags]

    twice(store, pick, salted=salted)
    go_on(store)
    report = report_of(store)
    assert {finding.check for finding in report.findings} == {"twice"}
    assert report.fault == "writer"
    repairs = check_comes_back(store, sound)
    assert {repair.split(":")[0] for repair in repairs[-3:-1]} == {"conversation/chat", "project/p"}
    assert all("events that were there twice are there once; the first was seq " in repair for repair in repairs[-3:-1])


def test_one_note_that_was_written_twice_on_purpose_stands_twice(store: Path) -> None:
    assert report_of(store).ok
    recover(store, store.with_name("new"))
    with Memory(store.with_name("new")) as memory:
        assert [text for text in memory.conversation("chat").at(60).scratchpad.notes() if text == "the same note"][5:]


def test_two_streams_of_one_number_get_one_each(store: Path) -> None:
    before = hashes(store)
    shared(store, "conversation/chat", "conversation/fork")
    report = report_of(store)
    assert (report.fault, {finding.check for finding in report.findings}) == ("writer", {"order", "names"})
    made = recover(store, store.with_name("new"))
    assert made.repairs[0].startswith("conversation/fork had the number of conversation/chat, 1, and has ")
    assert hashes(store.with_name("new")) == before
    with Memory(store.with_name("new")) as memory:
        assert memory.conversation("fork").scratchpad.notes()[-1] == "of the fork"
        memory.conversation("new").scratchpad.note("gets a number of its own")
        assert_sound(memory)


def test_a_time_that_went_back_stands_still(store: Path) -> None:
    with rewritten(store) as log:
        early = len(log.entries) // 2
        place = log.at(early).record
        first_seq = min(seq for seq, entry in enumerate(log.entries, 1) if entry.record == place)
        for seq, entry in enumerate(log.entries, 1):
            if entry.record == place:
                log.put(seq, time_ns=START_NS - 1_000)
    report = report_of(store)
    assert ([finding.check for finding in report.findings], report.fault) == (["time"], "writer")
    made = recover(store, store.with_name("new"))
    assert made.repairs[0] == f"no event from seq {first_seq} on is dated before the one in front of it"
    assert hashes(store.with_name("new"))


def test_what_the_interrupts_of_before_left_is_recovered(tmp_path: Path) -> None:
    """A stream began anew in the same conversation and was opened once more; both texts are there, in their order."""
    path = tmp_path / "store"
    with opened(path, 1) as memory:
        for number in range(9):
            memory.conversation("chat").append("user", f"early {number}", tokens=1)
    other = tmp_path / "other"
    with opened(other, 2) as memory:
        for number in range(4):
            memory.conversation("chat").append("user", f"late {number}", tokens=1)
    late = read(other)
    with rewritten(path) as log:
        shift, time_ns, records_count = len(log.entries), log.entries[-1].time_ns, log.records_count
        for entry in late.entries:
            log.entries.append(
                msgspec.structs.replace(
                    entry,
                    record=entry.record + records_count,
                    prev_seq=entry.prev_seq and entry.prev_seq + shift,
                    command=entry.command + shift,
                    time_ns=time_ns,
                )
            )
    report = report_of(path)
    assert ([finding.check for finding in report.findings], report.fault) == (["order"], "writer")
    made = recover(path, tmp_path / "new")
    assert made.repairs[0] == "conversation/chat: version 1 at seq 11 is version 11, and so on: 5 events"
    with Memory(tmp_path / "new") as memory:
        texts = [message.content for message in memory.conversation("chat").window()]
        assert texts == [f"early {number}" for number in range(9)] + [f"late {number}" for number in range(4)]
        assert memory.conversation("chat").version == 15
        assert_sound(memory)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_counted_wrongly_in_whatever_life(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with lived(tmp_path / "sound", seed, 25, erases=bool(seed % 2)):
        pass
    store = Path(shutil.copytree(tmp_path / "sound", tmp_path / "store"))
    with rewritten(store, stale=tuple(random.sample(range(2, read(store).records_count), 3))) as log:
        for number in {entry.number for entry in log.entries}:
            seqs = log.seqs(number)
            # A record counts its own events from where its head says that the stream stands.
            begins = [
                place for place in range(1, len(seqs)) if log.at(seqs[place]).record > log.at(seqs[place - 1]).record
            ]
            place = random.choice([*begins, len(seqs)])
            for version, (last, seq) in enumerate(zip([0, *seqs[place:]], seqs[place:], strict=False), 1):
                log.put(seq, version=version, prev_seq=last)
    assert report_of(store).fault == "writer"
    with lowered(**BOUNDS):
        recover(store, tmp_path / "new")
        assert truths(tmp_path / "new") == truths(tmp_path / "sound")
        assert events_in(tmp_path / "new") == events_in(tmp_path / "sound")
        assert hashes(tmp_path / "new") == hashes(tmp_path / "sound")


# What stands beside the log and is not what it gives.


def row_of_a_later_state(store: Path) -> None:
    """The row of a stream holds a later state than that of its seq, as packing in slices once made them."""
    with Memory(store, readonly=True) as memory:
        engine = engine_of(memory)
        key, packed = next(
            (key, packed)
            for key, packed in engine.reader.log.rows("checkpoints", b"\0\0\0\1", 1)
            if stream_of(key) == 1
        )
        row = checkpoint_of(key, packed)
        with engine.reader.state_lock:
            slot = engine.reader.streams.at_number(1)
            inline, pointed = fold.pack(engine.reader.loader.state_at(slot, slot.seq))
    change(store, "checkpoints", key, msgspec.msgpack.encode([row.version, row.kept, inline, pointed, row.since]))


def change(store: Path, table: str, key: bytes, value: bytes | None) -> None:
    rows = Rows(store)
    rows.put(table, key, value)
    rows.close()


def first(table: str, value: Callable[[bytes], bytes | None], place: int = 0) -> Fault:
    def fault(store: Path) -> None:
        rows = Rows(store)
        key, found = rows.all(table)[place]
        rows.put(table, key, value(found))
        rows.close()

    return fault


def events_twice_in_a_row(packed: bytes) -> bytes:
    row = msgspec.msgpack.decode(packed)
    row[4] = [*row[4], row[4][-1]]
    return msgspec.msgpack.encode(row)


APPLIED = bytes(12)
CACHES: dict[str, Fault] = {
    "a row that holds a later state": row_of_a_later_state,
    "a row that names an event twice": first("checkpoints", events_twice_in_a_row, 1),
    "a row that cannot be read": first("checkpoints", lambda _: b"\xc1", 1),
    "no row where there is said to be one": first("checkpoints", lambda _: None, 6),
    "rows that are said to reach behind the head": lambda store: change(store, "checkpoints", APPLIED, SEQ.pack(10**6)),
    "rows that are said to reach nowhere": lambda store: change(store, "checkpoints", APPLIED, b"\1\2\3"),
    "digests of another state": first("digests", lambda packed: flipped(packed, -1)),
    "digests that cannot be read": first("digests", lambda _: b"\xc1"),
    "a name that stands for another number": first("names", lambda _: b"\0\0\0\2"),
    "a name that stands for nothing": first("names", lambda _: None),
    "a number without a name": first("streams", lambda _: None),
    "a name that cannot be read": first("streams", lambda _: b"\xc1"),
    "a stream that has no event": lambda store: change(
        store, "streams", b"\0\0\1\0", msgspec.msgpack.encode(("profile/none", 0))
    ),
    "a source that is not in the index": first("derived", lambda _: None),
    "a source that is no source": lambda store: change(store, "derived", SEQ.pack(1) + SEQ.pack(9), b""),
    "another list of tags": lambda store: change(store, "meta", b"tags", msgspec.msgpack.encode([1, 2])),
    "a list of tags that cannot be read": lambda store: change(store, "meta", b"tags", b"\xc1"),
    "a number that would be given again": lambda store: change(store, "meta", b"next_stream", b"\0\0\0\1"),
}


def shown(store: Path, refold: Run) -> dict[str, object]:
    """What the command says, of a store that cannot be opened, too."""
    ended = refold("verify", "--db", store, "--json")
    assert ended.code == 3
    found: dict[str, object] = ended.json
    return found


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return running(monkeypatch, capfd)


@pytest.mark.parametrize("what", CACHES)
def test_what_is_beside_the_log_is_made_anew_from_it(store: Path, what: str, refold: Run) -> None:
    sound = Path(shutil.copytree(store, store.with_name("sound")))
    CACHES[what](store)
    report = shown(store, refold)
    assert (report["ok"], report["fault"]) == (False, "cache")
    assert str(report["summary"]).startswith("the log is sound, ")
    assert check_comes_back(store, sound) == ()


def test_a_sound_store_comes_back_with_rows_for_all_its_streams(store: Path) -> None:
    sound = Path(shutil.copytree(store, store.with_name("sound")))
    assert check_comes_back(store, sound) == ()
    recover(store, store.with_name("again"))
    rows = Rows(store.with_name("again"))
    covered = {stream_of(key) for key, _ in rows.all("checkpoints")}
    assert covered == {0, *(int.from_bytes(key, "big") for key, _ in rows.all("streams"))}
    assert len(rows.all("checkpoints")) > len(covered)
    assert rows.all("digests")
    rows.close()


@pytest.mark.parametrize("memory_bytes", [1, 30_000])
def test_streams_leave_ram_while_their_rows_are_made(
    store: Path, memory_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.engine.backup.MEMORY_BYTES_DEFAULT", memory_bytes)
    sound = Path(shutil.copytree(store, store.with_name("sound")))
    assert check_comes_back(store, sound) == ()


# Bytes that were changed.


def record_with(place: Callable[[bytes], int]) -> Fault:
    def fault(store: Path) -> None:
        rows = Rows(store)
        key, record = next((key, record) for key, record in rows.all("log") if key >= SEQ.pack(14))
        rows.put("log", key, flipped(record, place(record)))
        rows.close()

    return fault


def faulty_and_damaged(store: Path) -> None:
    all_at_once(store)
    record_with(lambda record: len(record) - 1)(store)


DAMAGES: dict[str, Fault] = {
    "a byte of a text": record_with(lambda record: len(record) - 1),
    "a byte of a salt": record_with(lambda _: COLUMNS_BEGIN - 1),
    "a byte of a time": record_with(lambda _: HEAD_BEGIN + 18),
    "a byte of a version": record_with(lambda _: COLUMNS_BEGIN + STREAM.size - 16),
    "a byte of a link": record_with(lambda _: HEAD_BEGIN - 1),
    "a record is gone": first("log", lambda _: None, 10),
    "a faulty writer, and a byte of a text": faulty_and_damaged,
}


@pytest.mark.parametrize("what", DAMAGES)
def test_changed_bytes_are_told_apart_and_refused(store: Path, what: str, refold: Run) -> None:
    DAMAGES[what](store)
    report = shown(store, refold)
    assert (report["ok"], report["fault"]) == (False, "damage")
    assert "bytes have changed since they were written" in str(report["summary"])
    assert "restore a backup" in str(report["summary"])
    before = names_in(store.parent)
    with pytest.raises(StoreCorrupt, match=r"the backup is damaged: .* at seq \d+: .*; run `refold verify` on it"):
        recover(store, store.with_name("new"))
    assert names_in(store.parent) == before


def test_what_stood_before_changed_bytes_can_be_recovered(store: Path) -> None:
    DAMAGES["a byte of a text"](store)
    report = report_of(store)
    assert f"can bring back events before seq {report.first_bad_seq}, if they are intact" in report.summary
    made = recover(store, store.with_name("new"), to=report.first_bad_seq - 1)
    assert made.seq == 13
    assert hashes(store.with_name("new"))


def test_the_command_says_what_to_do_and_does_it(store: Path, refold: Run) -> None:
    anew(store)
    ended = refold("verify", "--db", store)
    assert ended.code == 3
    *findings, counted, summary = ended.out.splitlines()
    assert findings
    assert all(finding.endswith(" (writer)") for finding in findings)
    assert re.search(r": \d+ findings?, the first bad seq is \d+$", counted)
    assert "`refold recover STORE NEW`" in summary
    made = refold("recover", store, store.with_name("new"))
    assert made.code == 0
    assert "conversation/chat: version 1 at seq " in made.out
    assert refold("verify", "--db", store.with_name("new")).code == 0
    again = refold("recover", store, store.with_name("again"), "--json").json
    assert [repair for repair in again["repairs"] if repair in made.out] == again["repairs"] != []
