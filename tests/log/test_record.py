"""The bytes of records: golden ones of every event, their layout, erased forms, and what digest and link cover."""

import json
import random
import shutil
import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import golden
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold import fold
from refold.event import FLAG_BASE, FLAG_ERASED, FLAG_OCCURRED, Event
from refold.limits import RECORD_BYTES, RECORD_EVENTS, RECORD_EVENTS_MAX
from refold.log import record as records
from refold.log.record import MARK_COMMAND, NO_LINK, Columns, Head, Record, StreamHead
from refold.message import MessageAppended
from refold.views.scratchpad import NoteAdded, ScratchpadSet

STORED = golden.stored()
RECORDS = [(name, place, version) for name, versions in STORED.items() for place, version in enumerate(versions, 1)]
RECORD_IDS = [f"{name}-{place}" for name, place, _ in RECORDS]


def plain_record(name: str) -> bytes:
    return bytes.fromhex(STORED[name][-1]["plain"])


def erased_record(name: str) -> bytes:
    return bytes.fromhex(STORED[name][-1]["erased"])


def hashed(content: bytes) -> bytes:
    return blake2b(content, digest_size=32).digest()


def flips(packed: bytes) -> Iterator[bytes]:
    """The bytes with one bit flipped, each of them once."""
    for place in range(len(packed)):
        for bit in range(8):
            flipped = bytearray(packed)
            flipped[place] ^= 1 << bit
            yield bytes(flipped)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden.GOLDEN, tmp_path / "golden"))


def altered(directory: Path, name: str, **changes: Any) -> list[str]:
    path = directory / f"{name}.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")
    return list(golden.problems(directory))


class TestGoldenRecords:
    def test_nothing_is_wrong_with_those_of_this_tree(self) -> None:
        assert list(golden.problems()) == []

    def test_every_tag_has_one(self) -> None:
        assert {versions[0]["tag"] for versions in STORED.values()} == set(fold.EVENT_TYPES)

    @pytest.mark.parametrize(("name", "place", "version"), RECORDS, ids=RECORD_IDS)
    def test_the_fold_decodes_both_forms_to_the_described_event(
        self, name: str, place: int, version: dict[str, Any]
    ) -> None:
        assert place >= 1
        for form in ("plain", "erased"):
            record = Record(bytes.fromhex(version[form]))
            event = fold.decode(record.array(0))
            assert type(event) is fold.TYPES_BY_NAME[name]
            wanted = golden.expected(version, form, "fields")
            assert {field: golden.described(event)[field] for field in wanted} == wanted
            assert fold.decode_known(record.events) == [event]
            assert fold.tag_of(record.array(0)) == version["tag"]

    @pytest.mark.parametrize("name", STORED)
    def test_the_engine_writes_the_described_event_as_these_bytes(self, name: str) -> None:
        fields = STORED[name][-1]["expected"]["plain"]["fields"]
        assert golden.record_of(golden.undescribed(fields, fold.TYPES_BY_NAME[name])) == plain_record(name)

    @pytest.mark.parametrize("name", STORED)
    def test_the_erased_form_keeps_the_structural_part_and_nothing_else(self, name: str) -> None:
        event_type = fold.TYPES_BY_NAME[name]
        plain, erased = plain_record(name), erased_record(name)
        structural = fold.STRUCTURAL[event_type]
        before, after = (fold.decode(Record(packed).array(0)) for packed in (plain, erased))
        for each in msgspec.structs.fields(event_type):
            if each.name in structural:
                assert getattr(after, each.name) == getattr(before, each.name)
            else:
                assert getattr(after, each.name) == each.default
        assert erased == records.erase_bodies(plain, [0], fold.strip_body, golden.ERASED_SALT)
        assert Record(plain).salt not in erased
        assert len(msgspec.msgpack.decode(Record(erased).array(0))) == 1 + len(structural)

    @pytest.mark.parametrize("name", STORED)
    def test_the_chain_covers_the_same_of_both_forms(self, name: str) -> None:
        plain, erased = Record(plain_record(name)), Record(erased_record(name))
        assert (
            plain.digest()
            == hashed(plain.content)
            == plain.covered_digest()
            == erased.covered_digest()
            == erased.origin
        )
        assert erased.digest() == hashed(erased.content) != erased.origin
        assert plain.link == erased.link == hashed(NO_LINK + plain.digest())

    @pytest.mark.parametrize("name", STORED)
    def test_every_body_can_be_cut_off(self, name: str) -> None:
        array = Record(plain_record(name)).array(0)
        event = fold.decode(array)
        elements = 1 + len(fold.STRUCTURAL[type(event)])
        structural = array[1 : fold.body_begin(event)]
        assert len(msgspec.msgpack.decode(bytes([0x90 | elements]) + structural)) == elements
        assert (
            fold.strip_body(array) == bytes([0x90 | elements]) + structural == fold.strip_body(fold.strip_body(array))
        )

    @pytest.mark.parametrize("name", STORED)
    def test_every_body_field_has_another_value_than_its_default(self, name: str) -> None:
        event_type = fold.TYPES_BY_NAME[name]
        fields = STORED[name][-1]["expected"]["plain"]["fields"]
        event = golden.undescribed(fields, event_type)
        body = [each for each in msgspec.structs.fields(event_type) if not each.required]
        assert [each.name for each in body if getattr(event, each.name) == each.default] == []


class TestAGoldenRecordCatches:
    def test_a_changed_tag(self, copied: Path) -> None:
        assert any("tag" in problem for problem in altered(copied, "note_added", tag=99))

    def test_a_missing_record(self, copied: Path) -> None:
        (copied / "note_added.json").unlink()
        assert list(golden.problems(copied)) == ["note_added.json is missing; write it with `python tools/golden.py`"]

    def test_a_removed_event(self, copied: Path) -> None:
        kinds = {name: kind for name, kind in fold.TYPES_BY_NAME.items() if name != "note_added"}
        assert any("no event" in problem for problem in golden.problems(copied, kinds))

    @pytest.mark.parametrize("form", ["plain", "erased"])
    def test_one_flipped_bit_anywhere(self, tmp_path: Path, form: str) -> None:
        path = Path(shutil.copy(golden.GOLDEN / "note_added.json", tmp_path))
        note = json.loads(path.read_text(encoding="utf-8"))
        for damaged in flips(bytes.fromhex(note[form])):
            path.write_text(json.dumps({**note, form: damaged.hex()}), encoding="utf-8")
            assert list(golden.problems(tmp_path, {"note_added": fold.TYPES_BY_NAME["note_added"]})), damaged.hex()

    def test_swapped_fields(self, copied: Path) -> None:
        swapped = msgspec.defstruct(
            "ScratchpadSet",
            [("prior", int), ("value", str, ""), ("key", str, "")],
            bases=(Event,),
            tag=5,
            frozen=True,
        )
        problems = list(golden.problems(copied, {**fold.TYPES_BY_NAME, "scratchpad_set": swapped}))
        assert any("scratchpad_set" in problem for problem in problems)

    def test_a_new_tag_on_a_released_event(self, copied: Path) -> None:
        retagged = msgspec.defstruct("NoteAdded", [("text", str, "")], bases=(Event,), tag=77, frozen=True)
        problems = list(golden.problems(copied, {**fold.TYPES_BY_NAME, "note_added": retagged}))
        assert any("released tag never changes" in problem for problem in problems)

    def test_a_body_field_that_lacks_a_second_record_and_reads_the_first_one_still(self, copied: Path) -> None:
        grown = msgspec.defstruct(
            "NoteAdded", [("text", str, ""), ("mood", str, "calm")], bases=(Event,), tag=7, frozen=True
        )
        problems = list(golden.problems(copied, {**fold.TYPES_BY_NAME, "note_added": grown}))
        assert problems[0].startswith("note_added-2.json is missing")
        assert not any("is read as" in problem for problem in problems)


class TestTheTool:
    def test_it_writes_what_is_missing_and_touches_nothing_else(self, copied: Path) -> None:
        written = (copied / "note_added.json").read_bytes()
        (copied / "note_added.json").unlink()
        (copied / "window_cleared.json").write_text('{"expected": {"plain": {"fields": {"sources": []}}}}')
        assert [path.name for path in golden.write(copied)] == ["note_added.json"]
        assert (copied / "note_added.json").read_bytes() == written
        assert (copied / "window_cleared.json").read_text().endswith('{"sources": []}}}}')

    def test_a_second_run_writes_nothing(self, copied: Path) -> None:
        assert golden.write(copied) == []

    def test_its_command_says_what_is_wrong(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert golden.main(["--check"]) == 0
        assert golden.main(["--what"]) == 2
        assert "Golden records" in capsys.readouterr().err


# The layout, by hand: what stands at which offset of a record of three events of two streams.

TIME_NS = 1_764_000_000_123_456_789
EARLIER_NS = 1_763_999_999_000_000_000
SEED = bytes(range(100, 132))
SALT = bytes(range(16))

BY_HAND = (
    (32, "02", "format"),
    (33, "07", "columns: actors, causes, occurred"),
    (34, "0300", "events"),
    (36, "0200", "streams"),
    (38, "0500", "partition"),
    (40, "2900000000000000", "first_seq"),
    (48, "15cd256fa7fc7a18", "time_ns"),
    (56, "2700000000000000", "command"),
    (64, "06000000", "key_id"),
    (68, "00000000", "actor: in a column"),
    (72, "0000000000000000", "cause: in a column"),
    (80, "000102030405060708090a0b0c0d0e0f", "salt"),
    (96, "07000000 05000000 2800000000000000 00000000", "stream 7, at version 5 and seq 40"),
    (116, "09000000 00000000 0000000000000000 02000000", "stream 9, of branch 2, without an event"),
    (136, "00 01 00", "owners"),
    (139, "00 30 08", "marks: the second begins a command, and has a time of its own"),
    (142, "03000000 e8030000 03000000", "actors"),
    (154, "0000000000000000 2800000000000000 0000000000000000", "causes"),
    (178, "15cd256fa7fc7a18 00362f2ca7fc7a18 15cd256fa7fc7a18", "occurred"),
    (202, "06000000 09000000 0d000000", "ends"),
    (214, "93", "an array of three events"),
    (215, "930790a26869", "event 41"),
    (221, "920c90", "event 42"),
    (224, "930790a0", "event 43"),
    (228, "", "the end"),
)

HAND_COLUMNS = Columns(
    [StreamHead(7, 5, 40), StreamHead(9, 0, 0, 2)],
    [0, 1, 0],
    [0, MARK_COMMAND | FLAG_OCCURRED, FLAG_BASE],
    [3, 1_000, 3],
    [0, 40, 0],
    [TIME_NS, EARLIER_NS, TIME_NS],
    [b"\x93\x07\x90\xa2hi", b"\x92\x0c\x90", b"\x93\x07\x90\xa0"],
)
HAND_HEAD = Head(41, TIME_NS, 39, SALT, partition=5, key_id=6)


def of_one_stream(arrays: Sequence[bytes]) -> Columns:
    nothing = [0] * len(arrays)
    return Columns([StreamHead(1, 1, 1)], nothing, nothing, nothing, nothing, (), arrays)


def by_hand() -> bytes:
    content = bytes.fromhex("".join(part for _, part, _ in BY_HAND))
    return hashed(b"\x01" * 32 + hashed(content)) + content


class TestTheLayout:
    OFFSETS: ClassVar[dict[str, tuple[int, int]]] = {
        "format": (0, 1),
        "columns": (1, 1),
        "events": (2, 2),
        "streams": (4, 2),
        "partition": (6, 2),
        "first_seq": (8, 8),
        "time_ns": (16, 8),
        "command": (24, 8),
        "key_id": (32, 4),
        "actor": (36, 4),
        "cause": (40, 8),
        "salt": (48, 16),
    }

    def test_the_sizes(self) -> None:
        assert (records.HEAD_BEGIN, records.HEAD.size, records.COLUMNS_BEGIN, records.STREAM.size) == (32, 64, 96, 20)
        assert records.FORMAT == 2
        assert (records.COLUMN_ACTORS, records.COLUMN_CAUSES, records.COLUMN_OCCURRED) == (1, 2, 4)
        assert (records.COLUMN_ORIGIN, MARK_COMMAND, records.FLAGS) == (8, 32, 25)

    @pytest.mark.parametrize("name", OFFSETS)
    def test_each_field_of_the_head_stands_at_its_offset_in_little_endian(self, name: str) -> None:
        begin, size = self.OFFSETS[name]
        values = dict(zip(self.OFFSETS, (*range(1, 12), bytes(range(16))), strict=True))
        value = values[name]
        expected = value if isinstance(value, bytes) else int(value).to_bytes(size, "little")
        assert records.HEAD.pack(*values.values())[begin : begin + size] == expected

    def test_the_offsets_cover_the_head_without_a_gap(self) -> None:
        end = 0
        for begin, size in self.OFFSETS.values():
            assert begin == end
            end += size
        assert end == records.HEAD.size

    def test_a_record_by_hand_stands_where_it_says(self) -> None:
        packed, content = by_hand(), records.encode(HAND_HEAD, HAND_COLUMNS)
        for (begin, part, what), (end, _, _) in pairwise(BY_HAND):
            assert end - begin == len(bytes.fromhex(part)), what
            assert content[begin - 32 : end - 32] == packed[begin:end], what
        assert content == packed[32:]
        assert records.digest_of(content) == hashed(packed[32:])
        assert records.link_after(b"\x01" * 32, records.digest_of(content)) == packed[:32]

    def test_a_commit_of_it_is_this_record_under_a_salt_of_its_own(self) -> None:
        head = msgspec.structs.replace(HAND_HEAD, salt=records.salt_of(SEED, 0), partition=0, key_id=0)
        content = records.encode(head, HAND_COLUMNS)
        packed = records.pack(HAND_COLUMNS, first_seq=41, time_ns=TIME_NS, command=39, seed=SEED, link=b"\x01" * 32)
        link = hashed(b"\x01" * 32 + hashed(content))
        assert packed == ([(43, link + content)], link)

    def test_a_record_by_hand_is_read(self) -> None:
        record = Record(by_hand())
        assert (record.first_seq, record.last_seq, record.count, record.time_ns) == (41, 43, 3, TIME_NS)
        assert (record.command, record.commands, record.salt, record.origin) == (39, [39, 42, 42], SALT, b"")
        assert (record.partition, record.key_id) == (5, 6)
        assert list(record.rows()) == [
            (41, 7, 6, TIME_NS, TIME_NS, 0, 3, 0),
            (42, 9, 1, TIME_NS, EARLIER_NS, 40, 1_000, FLAG_OCCURRED),
            (43, 7, 7, TIME_NS, TIME_NS, 0, 3, FLAG_BASE),
        ]
        assert record.heads == HAND_COLUMNS.streams
        assert record.arrays == HAND_COLUMNS.arrays
        assert msgspec.msgpack.decode(record.events) == [[7, [], "hi"], [12, []], [7, [], ""]]
        assert list(record.problems()) == []

    def test_one_event_of_one_stream_has_neither_owners_nor_columns(self) -> None:
        columns = Columns([StreamHead(7, 5, 40)], [0], [MARK_COMMAND], [3], [40], (), [b"\x91\x07"])
        content = records.encode(Head(41, TIME_NS, 41, SALT, b"o" * 32), columns)
        assert content[:2] == b"\x02\x08"
        assert content[36:48] == bytes.fromhex("03000000 2800000000000000")
        assert content[84:] == b"\x20" + b"o" * 32 + b"\x02\0\0\0" + b"\x91" + b"\x91\x07"

    @pytest.mark.parametrize("count", [1, 15, 16, 96])
    def test_the_events_are_one_msgpack_array(self, count: int) -> None:
        columns = of_one_stream([b"\x90"] * count)
        record = Record(NO_LINK + records.encode(Head(2, 0, 1, SALT), columns))
        assert msgspec.msgpack.decode(record.events) == [[]] * count
        assert record.arrays == [b"\x90"] * count

    def test_the_body_begins_where_it_says(self) -> None:
        event = ScratchpadSet((), 7, 0, "key", "value")
        array, begin = Record(golden.record_of(event)).array(0), fold.body_begin(event)
        assert array[:begin] == b"\x96\x05\x90\x07\x00"
        assert array[begin:] == b"\xa3key\xa5value"


class TestHashes:
    @pytest.mark.parametrize("size", [0, 1, 2_046, 2_047, 2_048, 4_094, 4_095, 100_000])
    def test_a_content_of_any_size_is_hashed_as_one(self, size: int) -> None:
        content = bytes(place % 251 for place in range(size))
        assert records.digest_of(content) == hashed(content)

    def test_a_link_is_of_the_link_before_and_of_the_digest(self) -> None:
        one, two = hashed(b"one"), hashed(b"two")
        assert records.link_after(one, two) == hashed(one + two)
        assert records.link_after(one, two) != records.link_after(two, one)
        assert records.link_after(NO_LINK, two) != records.link_after(one, two)

    def test_a_salt_is_of_the_seed_and_of_the_place(self) -> None:
        assert records.salt_of(SEED, 0) == SEED[:16]
        for place in (1, 64, 2**40):
            expected = blake2b(place.to_bytes(8, "big"), key=SEED[16:], digest_size=16).digest()
            assert records.salt_of(SEED, place) == expected

    def test_equal_events_under_different_salts_have_different_digests(self) -> None:
        salted = [msgspec.structs.replace(HAND_HEAD, salt=salt) for salt in (SALT, bytes(16))]
        assert len({records.digest_of(records.encode(head, HAND_COLUMNS)) for head in salted}) == 2


# Commits of any shape, packed and read again, next to a list of their events.


class Commit:
    """Events as they are given to ``pack``, and what a reader has to find, event by event."""

    def __init__(self, columns: Columns, *, first_seq: int, time_ns: int, command: int, link: bytes) -> None:
        self.columns, self.first_seq, self.time_ns, self.link = columns, first_seq, time_ns, link
        self.command = command
        self.rows: list[tuple[int, ...]] = []
        self.commands: list[int] = []
        self.before: list[StreamHead] = []
        """Where each event's stream stood in front of it."""
        streams = list(columns.streams)
        for place, (owner, mark) in enumerate(zip(columns.owners, columns.marks, strict=True)):
            seq, head = first_seq + place, streams[owner]
            command = seq if mark & MARK_COMMAND else command
            occurred_ns = columns.occurred[place] if columns.occurred else time_ns
            actor, cause, flags = columns.actors[place], columns.causes[place], mark & ~MARK_COMMAND
            self.before.append(head)
            self.commands.append(command)
            self.rows.append((seq, head.number, head.version + 1, time_ns, occurred_ns, cause, actor, flags))
            streams[owner] = StreamHead(head.number, head.version + 1, seq, head.branch)

    def __repr__(self) -> str:
        columns, sizes = self.columns, list(map(len, self.columns.arrays))
        return f"Commit({columns.streams}, {columns.marks}, sizes {sizes}, from seq {self.first_seq})"

    def packed(self) -> records.RecordChain:
        return records.pack(
            self.columns,
            first_seq=self.first_seq,
            time_ns=self.time_ns,
            command=self.command,
            seed=SEED,
            link=self.link,
        )


U32 = st.integers(0, 2**32 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)


@st.composite
def commits(draw: st.DrawFn) -> Commit:
    chance = random.Random(draw(U32))
    count = draw(st.one_of(st.integers(1, 8), st.integers(1, 300)))
    first_seq = draw(st.one_of(st.integers(2, 500), st.integers(2, 2**63)))
    heads = [
        StreamHead(number, chance.randrange(2**20), chance.randrange(first_seq), chance.choice((0, 1, 2**32 - 1)))
        for number in draw(st.lists(U32, min_size=1, max_size=100, unique=True))
    ]
    drawn = [chance.choice(heads) for _ in range(count)]
    streams = list(dict.fromkeys(drawn))
    actors, causes = (draw(st.lists(kind, min_size=1, max_size=3)) for kind in (U32, st.integers(0, 2**64 - 1)))
    flags = draw(st.sampled_from(((0,), (0, FLAG_BASE), (0, FLAG_BASE, FLAG_OCCURRED, FLAG_ERASED))))
    begins = draw(st.sampled_from((0, 0.1, 1)))
    sizes = draw(st.lists(st.integers(0, 1_500), min_size=1, max_size=4))
    large_bytes = draw(st.sampled_from((0, 0, 5_000, 32_768, 40_000)))
    arrays = [
        msgspec.msgpack.encode(chance.randbytes(large_bytes if chance.random() < 0.03 else chance.choice(sizes)))
        for _ in range(count)
    ]
    times = draw(st.lists(TIMES, max_size=3))
    columns = Columns(
        streams,
        [streams.index(head) for head in drawn],
        [chance.choice(flags) | (MARK_COMMAND if chance.random() < begins else 0) for _ in range(count)],
        [chance.choice(actors) for _ in range(count)],
        [chance.choice(causes) for _ in range(count)],
        [chance.choice(times) for _ in range(count)] if times else (),
        arrays,
    )
    command = draw(st.integers(1, first_seq - 1))
    link = draw(st.binary(min_size=32, max_size=32))
    return Commit(columns, first_seq=first_seq, time_ns=draw(TIMES), command=command, link=link)


class TestRoundTrip:
    @settings(max_examples=150, deadline=None)
    @given(commits())
    def test_a_commit_is_read_as_it_was_given(self, commit: Commit) -> None:
        columns, place, link = commit.columns, 0, commit.link
        packed = commit.packed()
        for last_seq, record_bytes in packed.records:
            record = Record(record_bytes)
            end = place + record.count
            span = slice(place, end)
            assert (record.first_seq, record.last_seq) == (commit.first_seq + place, last_seq)
            assert list(record.rows()) == commit.rows[span]
            assert record.arrays == columns.arrays[span]
            assert record.commands == commit.commands[span]
            assert list(record.problems()) == []
            self.assert_heads(record, commit, place)
            assert record.salt == records.salt_of(SEED, place)
            assert record.digest() == record.covered_digest() == hashed(record_bytes[32:])
            link = hashed(link + record.digest())
            assert record.link == link
            assert msgspec.msgpack.decode(record.events) == list(map(msgspec.msgpack.decode, columns.arrays[span]))
            head = Head(record.first_seq, record.time_ns, record.command, record.salt)
            assert records.encode(head, record.to_columns()) == record.content
            place = end
        assert place == len(columns.arrays)
        assert packed.link == link

    @staticmethod
    def assert_heads(record: Record, commit: Commit, begin: int) -> None:
        """The streams of a record stand where the records before left them."""
        first: dict[int, StreamHead] = {}
        for place in range(begin, begin + record.count):
            first.setdefault(commit.before[place].number, commit.before[place])
        assert sorted(record.heads) == sorted(first.values())
        assert record.numbers == [row[1] for row in commit.rows[begin : begin + record.count]]

    @settings(max_examples=100, deadline=None)
    @given(commits(), st.randoms(use_true_random=False))
    def test_one_event_read_alone_is_the_one_read_with_all(self, commit: Commit, chance: random.Random) -> None:
        packed = commit.packed()
        expected = [
            records.EventBytes._make((*row, array))
            for row, array in zip(commit.rows, commit.columns.arrays, strict=True)
        ]
        begin = 0
        for _, record_bytes in packed.records:
            record = Record(record_bytes)
            whole = expected[begin : begin + record.count]
            places = list(range(record.count))
            assert list(map(record.event, places)) == whole
            assert list(map(record.array, places)) == [event.array for event in whole]
            for count in {1, record.count // 2, record.count, 2 * record.count}:
                wanted = [chance.choice(places) for _ in range(count)]
                assert record.events_at(wanted) == [whole[place] for place in wanted]
                seqs = [record.first_seq + place for place in wanted]
                assert records.find_events(dict.fromkeys(seqs, record_bytes).get, seqs) == record.events_at(wanted)
                view = memoryview(record_bytes)
                assert records.find_events(dict.fromkeys(seqs, view).get, seqs) == record.events_at(wanted)
            begin += record.count

    @pytest.mark.parametrize("size", [1, 32_500, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, 100_000, 5_000_000])
    def test_an_event_of_any_size_stands_among_others(self, size: int) -> None:
        arrays = [b"before", bytes(size), b"behind", bytes(size), bytes(size), b"last"]
        packed = records.pack(of_one_stream(arrays), first_seq=2, time_ns=0, command=1, seed=SEED, link=NO_LINK)
        read = [Record(record_bytes) for _, record_bytes in packed.records]
        assert [array for record in read for array in record.arrays] == arrays
        assert [record.first_seq for record in read] == [2, *(record.last_seq + 1 for record in read[:-1])]
        assert all(list(record.problems()) == [] for record in read)

    @settings(max_examples=60, deadline=None)
    @given(commits())
    def test_records_are_as_long_as_they_should_be(self, commit: Commit) -> None:
        arrays, begin = commit.columns.arrays, 0
        for _, record_bytes in commit.packed().records:
            count = Record(record_bytes).count
            size = sum(map(len, arrays[begin : begin + count]))
            assert 1 <= count <= RECORD_EVENTS_MAX
            assert count == 1 or size <= max(RECORD_BYTES, len(arrays[begin])) + 4_096
            if count < RECORD_EVENTS and begin + count < len(arrays):
                with_next = size + len(arrays[begin + count])
                assert with_next > RECORD_BYTES - 1_024, "it ends early without a need"
            begin += count

    @pytest.mark.parametrize("size", [1, 20, 26, 60, 61, 100, 333, 500, 700])
    def test_a_last_page_is_filled_and_no_other_is_taken(self, size: int) -> None:
        def content_of(count: int) -> bytes:
            return records.encode(Head(2, 0, 1, SALT), of_one_stream([array] * count))

        def pages(count: int) -> int:
            return -(-(32 + len(content_of(count)) + 16) // 4_096)

        array = bytes(size)
        packed = records.pack(of_one_stream([array] * 300), first_seq=2, time_ns=0, command=1, seed=SEED, link=NO_LINK)
        counts = [Record(record_bytes).count for _, record_bytes in packed.records]
        assert sum(counts) == 300
        for count in counts[:-1]:
            least = min(count, RECORD_EVENTS)
            assert pages(count) == pages(least)
            if count < RECORD_EVENTS_MAX and pages(count) > 1:
                assert pages(count + 2) > pages(least), "there was room for more"

    def test_versions_and_seqs_of_a_stream_go_on_across_records(self) -> None:
        owners = [place % 3 == 2 for place in range(200)]
        columns = Columns(
            [StreamHead(7, 10, 5), StreamHead(8, 0, 0, 3)],
            [int(owner) for owner in owners],
            [MARK_COMMAND, *[0] * 199],
            [0] * 200,
            [0] * 200,
            (),
            [bytes(200)] * 200,
        )
        packed = records.pack(columns, first_seq=100, time_ns=1, command=0, seed=SEED, link=NO_LINK)
        heads = [Record(record_bytes).heads for _, record_bytes in packed.records]
        assert len(heads) >= 3
        assert heads[0] == [StreamHead(7, 10, 5), StreamHead(8, 0, 0, 3)]
        for found, (_, record_bytes) in zip(heads[1:], packed.records[1:], strict=True):
            before = Record(record_bytes).first_seq - 100
            last = {owner: 99 + before - owners[:before][::-1].index(owner) for owner in (False, True)}
            counts = {owner: owners[:before].count(owner) for owner in (False, True)}
            assert sorted(found) == [
                StreamHead(7, 10 + counts[False], last[False]),
                StreamHead(8, counts[True], last[True], 3),
            ]
        assert {Record(record_bytes).command for _, record_bytes in packed.records} == {100}


# Records that were erased from.


def noted(texts: Sequence[str]) -> bytes:
    """A record of notes, each of the streams in turn."""
    count = len(texts)
    columns = Columns(
        [StreamHead(7, 5, 40), StreamHead(9, 0, 0, 2)],
        [place % 2 for place in range(count)],
        [MARK_COMMAND | FLAG_OCCURRED, *[0] * (count - 2), MARK_COMMAND],
        [3, *[1_000] * (count - 1)],
        [0, *[40] * (count - 1)],
        [EARLIER_NS, *[TIME_NS] * (count - 1)],
        [fold.encode(NoteAdded((place + 1,), text)) for place, text in enumerate(texts)],
    )
    content = records.encode(Head(41, TIME_NS, 41, SALT, partition=5, key_id=6), columns)
    return hashed(NO_LINK + hashed(content)) + content


SECRETS = ("alpha secret", "beta secret", "gamma secret", "delta secret")


class TestErasedFrom:
    @pytest.mark.parametrize("places", [[1], [1, 0], [1, 0, 3], [3, 3], [0, 1, 2, 3]], ids=str)
    def test_again_and_again(self, places: list[int]) -> None:
        packed = noted(SECRETS)
        plain = Record(packed)
        salts, digests, gone = {plain.salt}, {plain.digest()}, set[int]()
        for number, place in enumerate(places, 1):
            salt = bytes([number]) * 16
            packed = records.erase_bodies(packed, [place], fold.strip_body, salt)
            record = Record(packed)
            gone.add(place)
            assert (record.link, record.origin, record.covered_digest()) == (plain.link, plain.digest(), plain.digest())
            assert hashed(NO_LINK + record.covered_digest()) == record.link
            assert record.has_origin
            assert record.salt == salt
            assert record.salt not in salts
            assert record.digest() == hashed(packed[32:]) not in digests
            assert list(record.problems()) == []
            self.assert_only_gone(plain, record, gone)
            assert not any(salt in packed for salt in salts)
            salts.add(record.salt)
            digests.add(record.digest())

    @staticmethod
    def assert_only_gone(plain: Record, record: Record, gone: set[int]) -> None:
        """Nothing is other than before but the bodies that are gone, and the flags that say so."""
        before, after = plain.to_columns(), record.to_columns()
        for name in ("streams", "owners", "actors", "causes", "occurred"):
            assert getattr(after, name) == getattr(before, name), name
        assert record.commands == plain.commands
        heads = [(each.first_seq, each.time_ns, each.command, each.partition, each.key_id) for each in (plain, record)]
        assert heads[0] == heads[1]
        for place, text in enumerate(SECRETS):
            erased = FLAG_ERASED if place in gone else 0
            assert record.marks[place] == plain.marks[place] | erased
            assert (text.encode() in record.packed) == (place not in gone)
            event = fold.decode(record.array(place))
            assert event == NoteAdded((place + 1,), "" if place in gone else text)

    def test_of_several_at_once_is_that_of_one_after_the_other(self) -> None:
        packed, salt = noted(SECRETS), b"s" * 16
        once = records.erase_bodies(packed, [0, 2], fold.strip_body, salt)
        twice = records.erase_bodies(packed, [0], fold.strip_body, b"t" * 16)
        assert records.erase_bodies(twice, [2], fold.strip_body, salt) == once

    def test_of_an_event_that_is_alone_in_its_record(self) -> None:
        packed = golden.record_of(NoteAdded((1,), "secret"))
        plain, record = Record(packed), Record(records.erase_bodies(packed, [0], fold.strip_body, SALT))
        assert fold.decode(record.array(0)) == NoteAdded((1,))
        assert (record.origin, record.link, record.heads) == (plain.digest(), plain.link, plain.heads)


# Damage.


REFUSED = (ValueError, IndexError, struct.error)


def refused(packed: bytes) -> bool:
    """Whether the columns say by themselves that something is wrong; else all of it can be read."""
    try:
        record = Record(packed)
        if list(record.problems()):
            return True
    except REFUSED:
        return True
    assert len(list(record.rows())) == len(record.arrays) == len(record.commands) == record.count
    assert [record.event(place) for place in range(record.count)] == record.events_at(range(record.count))
    assert records.encode(Head(record.first_seq, 0, record.command, SALT, record.origin), record.to_columns())
    return False


class TestDamage:
    PLAIN = by_hand()
    ERASED = records.erase_bodies(noted(SECRETS), [2], fold.strip_body, b"s" * 16)

    @pytest.mark.parametrize("packed", [PLAIN, ERASED], ids=["plain", "erased"])
    def test_a_flipped_bit_is_refused_or_changes_the_digest_or_the_link(self, packed: bytes) -> None:
        sound = Record(packed)
        assert not refused(packed)
        said = 0
        for flipped in flips(packed):
            if refused(flipped):
                said += 1
                continue
            record = Record(flipped)
            if flipped[32:] == packed[32:]:
                assert record.link != sound.link
                assert record.digest() == sound.digest()
            else:
                assert record.digest() != sound.digest()
        assert said > len(packed) // 4, "few of them are refused for their columns alone"

    @pytest.mark.parametrize("packed", [PLAIN, ERASED], ids=["plain", "erased"])
    def test_the_chain_or_the_proof_of_an_erasure_shows_each_flipped_bit(self, packed: bytes) -> None:
        sound = Record(packed)
        previous = b"\x01" * 32 if packed == self.PLAIN else NO_LINK
        assert hashed(previous + sound.covered_digest()) == sound.link
        for flipped in flips(packed):
            if refused(flipped):
                continue
            record = Record(flipped)
            is_linked = hashed(previous + record.covered_digest()) == record.link
            assert not is_linked or (record.has_origin and record.digest() != sound.digest()), flipped.hex()

    @pytest.mark.parametrize("packed", [PLAIN, ERASED], ids=["plain", "erased"])
    def test_a_record_that_is_cut_off_or_goes_on_is_refused(self, packed: bytes) -> None:
        for end in range(len(packed)):
            assert refused(packed[:end]), end
        assert refused(packed + b"\0")

    @pytest.mark.parametrize(
        ("place", "value"),
        [(32, 0), (32, 1), (32, 3), (33, 0x17), (33, 0x87), (34, 0), (36, 0)],
        ids=["format 0", "format 1", "format 3", "column 16", "column 128", "no event", "no stream"],
    )
    def test_what_this_program_does_not_know_is_refused_at_once(self, place: int, value: int) -> None:
        packed = bytearray(by_hand())
        packed[place] = value
        with pytest.raises(ValueError, match=r"a record of format \d+ with \d events of \d streams and columns 0x"):
            Record(bytes(packed))

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"streams": [*HAND_COLUMNS.streams, StreamHead(10, 0, 0)]}, "not of its 3 streams"),
            ({"streams": [StreamHead(7, 5, 40), StreamHead(7, 0, 0)]}, "not of its 2 streams"),
            ({"owners": [0, 2, 0]}, "not of its 2 streams"),
            ({"owners": [0, 0, 0]}, "not of its 2 streams"),
            ({"marks": [0, 64, 0]}, "a mark holds a bit"),
            ({"marks": [0, 0, 128]}, "a mark holds a bit"),
            ({"marks": [2, 0, 0]}, "a mark holds a bit"),
            ({"marks": [0, 4, 0]}, "a mark holds a bit"),
            ({"marks": [MARK_COMMAND, 0, 0]}, "a command from seq 39"),
            ({"arrays": [b"\x90", b"", b"\x90"]}, "one behind the other"),
        ],
        ids=str,
    )
    def test_columns_that_make_no_sense_are_told(self, changes: dict[str, Any], problem: str) -> None:
        content = records.encode(HAND_HEAD, msgspec.structs.replace(HAND_COLUMNS, **changes))
        assert [problem in each for each in Record(NO_LINK + content).problems()] == [True]

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"command": 0}, "a command from seq 0"),
            ({"command": 41}, "a command from seq 41"),
            ({"command": 42}, "a command from seq 42"),
            ({"origin": b"o" * 32}, "no event without a body"),
        ],
        ids=str,
    )
    def test_a_head_that_makes_no_sense_is_told(self, changes: dict[str, Any], problem: str) -> None:
        content = records.encode(msgspec.structs.replace(HAND_HEAD, **changes), HAND_COLUMNS)
        assert [problem in each for each in Record(NO_LINK + content).problems()] == [True]

    def test_ends_that_go_back_are_told(self) -> None:
        packed = bytearray(by_hand())
        packed[202:210] = bytes.fromhex("09000000 06000000")
        assert any("one behind the other" in problem for problem in Record(bytes(packed)).problems())


def test_an_event_is_the_same_after_encoding_whatever_its_fields_hold() -> None:
    pinned = True
    event = MessageAppended((1,), "id", "user", 3, pinned, (), None, "", None, "n\0", None, b"\x80")
    assert fold.decode(Record(golden.record_of(event)).array(0)) == event
