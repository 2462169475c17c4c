"""The bytes of records: golden records of every event, the header's layout, erased forms, and what a link covers."""

import json
import shutil
from pathlib import Path
from typing import Any, ClassVar

import golden
import msgspec
import pytest

from refold import fold
from refold.event import Event
from refold.log import record as records
from refold.message import MessageAppended
from refold.views.scratchpad import ScratchpadSet

STORED = golden.stored()
RECORDS = [(name, place, version) for name, versions in STORED.items() for place, version in enumerate(versions, 1)]
RECORD_IDS = [f"{name}-{place}" for name, place, _ in RECORDS]


def plain_record(name: str) -> bytes:
    return bytes.fromhex(STORED[name][-1]["plain"])


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
            array = records.array_of(bytes.fromhex(version[form]))
            event = fold.decode(array, version["tag"])
            assert type(event) is fold.TYPES_BY_NAME[name]
            described = version["expected"][form]["fields"]
            assert {field: golden.described(event)[field] for field in described} == described

    @pytest.mark.parametrize("name", STORED)
    def test_the_engine_writes_the_described_event_as_these_bytes(self, name: str) -> None:
        fields = STORED[name][-1]["expected"]["plain"]["fields"]
        assert golden.record_of(golden.undescribed(fields, fold.TYPES_BY_NAME[name])) == plain_record(name)

    @pytest.mark.parametrize("name", STORED)
    def test_the_erased_form_keeps_the_structural_part_and_nothing_else(self, name: str) -> None:
        event_type = fold.TYPES_BY_NAME[name]
        plain, erased = plain_record(name), bytes.fromhex(STORED[name][-1]["erased"])
        structural = fold.STRUCTURAL[event_type]
        before, after = (fold.decode(records.array_of(record), fold.TAGS[event_type]) for record in (plain, erased))
        for field in msgspec.structs.fields(event_type):
            if field.name in structural:
                assert getattr(after, field.name) == getattr(before, field.name)
            else:
                assert getattr(after, field.name) == field.default
        assert erased == records.blanked(plain, 1 + len(structural))
        assert records.is_intact(erased)
        assert erased[records.HEADER_BYTES : records.ARRAY_BEGIN] == bytes(16)

    @pytest.mark.parametrize("name", STORED)
    def test_every_body_field_has_another_value_than_its_default(self, name: str) -> None:
        event_type = fold.TYPES_BY_NAME[name]
        fields = STORED[name][-1]["expected"]["plain"]["fields"]
        event = golden.undescribed(fields, event_type)
        body = [field for field in msgspec.structs.fields(event_type) if not field.required]
        assert [field.name for field in body if getattr(event, field.name) == field.default] == []


class TestAGoldenRecordCatches:
    def test_a_changed_tag(self, copied: Path) -> None:
        assert any("tag" in problem for problem in altered(copied, "note_added", tag=99))

    def test_a_missing_record(self, copied: Path) -> None:
        (copied / "note_added.json").unlink()
        assert list(golden.problems(copied)) == ["note_added.json is missing; write it with `python tools/golden.py`"]

    def test_a_removed_event(self, copied: Path) -> None:
        kinds = {name: kind for name, kind in fold.TYPES_BY_NAME.items() if name != "note_added"}
        assert any("no event" in problem for problem in golden.problems(copied, kinds))

    def test_one_flipped_bit_anywhere(self, copied: Path) -> None:
        plain = plain_record("note_added")
        for place in range(len(plain)):
            flipped = bytearray(plain)
            flipped[place] ^= 1
            assert altered(copied, "note_added", plain=bytes(flipped).hex()), f"byte {place}"

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


class TestTheHeader:
    OFFSETS: ClassVar[dict[str, tuple[int, int]]] = {
        "stream": (0, 4),
        "version": (4, 4),
        "time_ns": (8, 8),
        "occurred_ns": (16, 8),
        "cause": (24, 8),
        "actor": (32, 4),
        "flags": (36, 2),
        "tag": (38, 2),
        "prev_seq": (40, 8),
        "command": (48, 8),
        "branch": (56, 4),
        "key_id": (60, 4),
        "body_begin": (64, 4),
        "partition": (68, 2),
        "events": (70, 2),
        "schema": (72, 1),
        "format": (73, 1),
        "commitment": (74, 32),
    }

    def test_its_size_and_that_of_what_follows(self) -> None:
        assert records.HEADER_BYTES == 106
        assert records.ARRAY_BEGIN == 122
        assert records.STAMP.size == 40
        assert records.FLAGS_BEGIN == 36
        assert records.COMMIT.size == 56
        assert (records.FORMAT, records.SCHEMA) == (1, 1)

    @pytest.mark.parametrize("field", OFFSETS)
    def test_each_field_stands_at_its_offset_in_big_endian(self, field: str) -> None:
        begin, size = self.OFFSETS[field]
        packed = records.HEADER.pack(*range(1, 18), bytes(range(32)))
        value: int | bytes = getattr(records.header_of(packed), field)
        expected = value if isinstance(value, bytes) else value.to_bytes(size, "big")
        assert packed[begin : begin + size] == expected

    def test_the_offsets_cover_it_without_a_gap(self) -> None:
        end = 0
        for begin, size in self.OFFSETS.values():
            assert begin == end
            end += size
        assert end == records.HEADER_BYTES
        assert tuple(self.OFFSETS) == records.Header._fields

    def test_the_stamp_is_the_front_of_it(self) -> None:
        packed = records.HEADER.pack(*range(1, 18), bytes(32))
        assert records.STAMP.unpack_from(packed) == tuple(records.header_of(packed))[:8]

    def test_the_body_begins_where_it_says(self) -> None:
        record = golden.record_of(ScratchpadSet((), 7, 0, "key", "value"))
        array, begin = records.array_of(record), records.header_of(record).body_begin
        assert array[:begin] == b"\x96\x05\x90\x07\x00"
        assert array[begin:] == b"\xa3key\xa5value"

    @pytest.mark.parametrize("name", STORED)
    def test_every_body_can_be_cut_off(self, name: str) -> None:
        record = plain_record(name)
        header = records.header_of(record)
        event_type = fold.EVENT_TYPES[header.tag]
        structural = records.array_of(record)[: header.body_begin]
        elements = 1 + len(fold.STRUCTURAL[event_type])
        assert len(msgspec.msgpack.decode(bytes([0x90 | elements]) + structural[1:])) == elements


class TestTheLink:
    @pytest.mark.parametrize("name", STORED)
    def test_it_covers_the_same_of_a_record_and_of_its_erased_form(self, name: str) -> None:
        assert records.covered(plain_record(name)) == records.covered(bytes.fromhex(STORED[name][-1]["erased"]))

    def test_it_covers_every_byte_of_the_header_but_two_flags(self) -> None:
        record = plain_record("note_added")
        uncovered: list[tuple[int, int]] = []
        for place in range(records.HEADER_BYTES - 32):
            if 64 <= place < 68:
                continue  # Another body_begin moves the structural part itself.
            for bit in range(8):
                flipped = bytearray(record)
                flipped[place] ^= 1 << bit
                if records.covered(bytes(flipped)) == records.covered(record):
                    uncovered.append((place, bit))
        assert uncovered == [(37, 0), (37, 1)]

    def test_it_covers_the_commitment_and_the_structural_part(self) -> None:
        record = plain_record("message_appended")
        begin = records.header_of(record).body_begin
        for place in (records.HEADER_BYTES - 1, records.ARRAY_BEGIN + 1, records.ARRAY_BEGIN + begin - 1):
            flipped = bytearray(record)
            flipped[place] ^= 1
            assert records.covered(bytes(flipped)) != records.covered(record)

    def test_it_covers_neither_salt_nor_body(self) -> None:
        record = plain_record("message_appended")
        for place in (records.HEADER_BYTES, len(record) - 1):
            flipped = bytearray(record)
            flipped[place] ^= 1
            assert records.covered(bytes(flipped)) == records.covered(record)
            assert not records.is_intact(bytes(flipped))

    def test_it_depends_on_the_link_before_and_on_the_order(self) -> None:
        assert records.link_after(bytes(32), [b"a", b"b"]) != records.link_after(b"\1" * 32, [b"a", b"b"])
        assert records.link_after(bytes(32), [b"a", b"b"]) != records.link_after(bytes(32), [b"b", b"a"])


class TestCommitment:
    @pytest.mark.parametrize("size", [0, 1, 2_030, 2_031, 2_032, 2_047, 2_048, 100_000])
    def test_a_body_of_any_size_is_hashed_as_one(self, size: int) -> None:
        from hashlib import blake2b

        salt, body = bytes(range(16)), bytes(size)
        assert records.commit_to(salt, body) == blake2b(salt + body, digest_size=32).digest()

    def test_equal_bodies_under_different_salts_differ(self) -> None:
        assert records.commit_to(bytes(16), b"x") != records.commit_to(bytes(15) + b"\1", b"x")


def test_an_event_is_the_same_after_encoding_whatever_its_fields_hold() -> None:
    pinned = True
    event = MessageAppended((1,), "id", "user", 3, pinned, (), None, "", None, "n\0", None, b"\x80")
    assert fold.decode(records.array_of(golden.record_of(event)), 2) == event
