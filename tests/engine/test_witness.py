"""A memory with a witness: what its opening and verify see of a log that was cut off, rolled back or put elsewhere."""

import os
import shutil
from pathlib import Path
from typing import Any

import lmdb
import pytest

from refold import InvalidInput, Memory, NotFound, StoreCorrupt, StoreFull
from refold.log.record import Columns, Head, Record, encode
from refold.log.witness import WitnessSlot
from tests.engine.test_verify import flipped
from tests.support.blanks import blank
from tests.support.rows import Rows
from tests.support.seams import engine_of, reader_of
from tests.support.witness import Place, full, names, talk


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A store of four events whose witness knows all of them."""
    place = Place(tmp_path)
    with place.open() as memory:
        talk(memory, 3)
    return place


def assert_refused(place: Place, *words: str, seq: int) -> None:
    """Opening is refused in every way and changes nothing; verify tells the same, at a seq."""
    before = place.files()
    for options in ({}, {"readonly": True}, {"durability": "delayed"}):
        with pytest.raises(StoreCorrupt) as raised:
            place.open(**options)
        for word in (*words, str(place.witness)):
            assert word in str(raised.value)
    assert place.files() == before
    with Memory(place.store, readonly=True) as memory:
        report = memory.verify(witness=place.witness)
        assert not report.ok
        assert (report.findings[0].check, report.findings[0].seq) == ("witness", seq)
        assert report.findings[0].message == str(raised.value)
        assert report.state_hash == ""
        assert memory.verify().ok, "without the witness nobody would see it"


class TestWhatIsSeen:
    def test_a_new_store_gets_a_witness_of_nothing_and_closing_tells_it_the_head(self, tmp_path: Path) -> None:
        place = Place(tmp_path)
        memory = place.open()
        assert place.told() == WitnessSlot(reader_of(memory).store_id, 0, bytes(32))
        with memory:
            talk(memory)
        assert (place.told().seq, place.told().link) == (2, place.records()[-1].link)

    def test_a_store_that_is_there_is_taken_as_it_is(self, tmp_path: Path) -> None:
        place = Place(tmp_path)
        place.append(2)
        place.open().close()
        assert (place.told().seq, place.told().link) == (3, place.records()[-1].link)

    def test_flushing_tells_it(self, place: Place) -> None:
        with place.open() as memory:
            talk(memory)
            memory.flush()
            assert (place.told().seq, place.told().link) == (5, reader_of(memory).link)

    def test_what_came_without_the_witness_is_no_damage(self, place: Place) -> None:
        place.append(2)
        with place.open() as memory:
            assert memory.verify().ok
        assert place.told().seq == 6

    def test_a_log_cut_off_with_all_that_speaks_of_it_is_refused(self, place: Place) -> None:
        last = place.records()[-1]
        rows = Rows(place.store)
        rows.put("log", last.last_seq.to_bytes(8), None)
        for table in ("checkpoints", "digests"):
            for key, _ in rows.all(table):
                rows.put(table, key, None)
        rows.close()
        assert_refused(place, "the log ends at seq 3", "saw seq 4", "restore a backup", seq=4)

    def test_an_older_copy_of_the_store_is_refused(self, place: Place) -> None:
        copy = place.keep()
        with place.open() as memory:
            talk(memory, 2)
        place.put_back(copy)
        assert_refused(place, "the log ends at seq 4", "saw seq 6", "an older copy was put in its place", seq=5)

    @pytest.mark.parametrize("count", [2, 3, 9])
    def test_an_older_copy_that_went_on_is_refused(self, place: Place, count: int) -> None:
        copy = place.keep()
        with place.open() as memory:
            talk(memory, 2)
        place.put_back(copy)
        place.append(count)
        assert_refused(place, "seq 6 has not the link", "rolled back and went on", seq=6)

    def test_a_seq_at_which_no_commit_ends_any_more_is_refused(self, place: Place) -> None:
        copy = place.keep()
        with place.open() as memory:
            talk(memory, 2)
        place.put_back(copy)
        with Memory(place.store) as memory, memory.batch():
            talk(memory, 4)
        assert_refused(place, "seq 6 has not the link", seq=6)

    def test_the_link_has_to_stand_where_the_commit_ends(self, place: Place) -> None:
        rows = Rows(place.store)
        key, packed = rows.all("log")[-1]
        record = Record(packed)
        columns = record.to_columns()
        longer = Columns(columns.streams, [0, 0], [*columns.marks] * 2, [0, 0], [0, 0], (), [*columns.arrays] * 2)
        content = encode(Head(record.first_seq, record.time_ns, record.command, record.salt), longer)
        rows.put("log", key, None)
        rows.put("log", (record.last_seq + 1).to_bytes(8), record.link + content)
        rows.close()
        with pytest.raises(StoreCorrupt, match="seq 4 has not the link that the witness"):
            place.open()

    def test_another_store_is_refused(self, place: Place, tmp_path: Path) -> None:
        shutil.rmtree(place.store)
        place.append(3)
        assert_refused(place, "is of store", "give each store a witness of its own", seq=0)
        assert tmp_path.is_dir()

    def test_a_rewritten_chain_is_refused(self, place: Place) -> None:
        rows = Rows(place.store)
        key, record = rows.all("log")[-1]
        rows.put("log", key, flipped(record, 20))
        rows.close()
        with pytest.raises(StoreCorrupt, match=r"seq 4 has not the link that the witness"):
            place.open()

    def test_a_store_that_is_gone_is_not_begun_anew(self, place: Place) -> None:
        shutil.rmtree(place.store)
        for options in ({}, {"readonly": True}):
            with pytest.raises(StoreCorrupt, match=r"there is no store, and the witness .* saw one reach seq 4"):
                place.open(**options)
        assert names(place.directory) == ["witness"]

    def test_a_damaged_last_record_is_refused(self, place: Place) -> None:
        rows = Rows(place.store)
        key, record = rows.all("log")[-1]
        rows.put("log", key, record[:30])
        rows.close()
        with pytest.raises(StoreCorrupt):
            place.open()

    def test_erasing_changes_no_link(self, place: Place) -> None:
        with place.open() as memory:
            blank(memory, [2, 3])
            engine_of(memory).flush()
            assert memory.verify().ok
        with place.open() as memory:
            assert [message.erased for message in memory.conversation("chat").window()] == [True, True, False]
            assert memory.verify().ok

    def test_another_file_in_place_of_the_stores_is_no_other_log(self, place: Place) -> None:
        compacted = place.directory / "compacted"
        compacted.mkdir()
        with lmdb.open(str(place.store), max_dbs=16) as env:
            env.copy(str(compacted), compact=True)
        (compacted / "data.mdb").replace(place.store / "data.mdb")
        (place.store / "lock.mdb").unlink()
        with place.open() as memory:
            talk(memory)
            assert memory.verify().ok
        assert place.told().seq == 5


class TestWhatMayBeGiven:
    def test_a_read_only_memory_compares_and_writes_nothing(self, place: Place) -> None:
        place.append(2)
        before = place.files()
        with place.open(readonly=True) as memory:
            assert memory.verify().ok
            memory.flush()
        assert place.files() == before
        assert place.told().seq == 4

    def test_a_read_only_memory_needs_one_to_compare_with(self, place: Place) -> None:
        place.witness.unlink()
        with pytest.raises(NotFound, match=r"there is no witness at .* and without readonly=True makes one"):
            place.open(readonly=True)
        assert not place.witness.exists()

    def test_verify_takes_another_one(self, place: Place, tmp_path: Path) -> None:
        older = shutil.copy(place.witness, tmp_path / "older")
        with place.open() as memory:
            talk(memory)
            assert memory.verify(witness=older).ok
            with pytest.raises(NotFound, match="there is no witness at"):
                memory.verify(witness=tmp_path / "none")
            os.truncate(older, 5)
            found = memory.verify(witness=older).findings
            assert [(finding.check, finding.seq) for finding in found] == [("witness", 0)]
            assert "neither of its slots is whole" in found[0].message
            assert memory.verify().ok

    def test_one_inside_the_store_is_refused(self, place: Place, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(place.store)
        before = place.files()
        for inside in (place.store, place.store / "witness", tmp_path / "link" / "w", f"{place.store}/../store/w"):
            with pytest.raises(InvalidInput, match=r"lies in the store .* and would be rolled back with it"):
                Memory(place.store, witness=inside)
        assert place.files() == before

    def test_one_beside_a_store_of_a_longer_name_is_outside_of_it(self, place: Place) -> None:
        with Memory(place.store, witness=f"{place.store}-witness") as memory:
            assert memory.verify().ok

    def test_a_memory_in_ram_has_none(self) -> None:
        with pytest.raises(InvalidInput, match="a memory in RAM keeps nothing that a witness could tell of"):
            Memory(witness="witness")
        with pytest.raises(InvalidInput, match="a memory in RAM"):
            Memory().verify(witness="witness")

    @pytest.mark.parametrize("given", [7, b"bytes", "", "a\0b", "\ud800", ["list"]])
    def test_what_is_no_path_is_refused(self, tmp_path: Path, given: Any) -> None:
        with pytest.raises(InvalidInput, match="witness"):
            Memory(tmp_path / "store", witness=given)
        assert names(tmp_path) == []

    def test_a_directory_or_a_missing_parent_is_refused_before_a_store_is_made(self, tmp_path: Path) -> None:
        (tmp_path / "directory").mkdir()
        with pytest.raises(InvalidInput, match="is not a file; give the path of a file"):
            Memory(tmp_path / "store", witness=tmp_path / "directory")
        with pytest.raises(NotFound, match=r"the parent directory .* of the witness does not exist"):
            Memory(tmp_path / "store", witness=tmp_path / "none" / "witness")
        assert names(tmp_path) == ["directory"]

    def test_a_file_that_is_no_witness_is_refused_and_stays(self, place: Place) -> None:
        place.witness.write_text("dear diary")
        before = place.files()
        with pytest.raises(StoreCorrupt, match="is damaged, or no witness"):
            place.open()
        assert place.files() == before

    def test_where_none_can_be_made_the_store_is_closed_again(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place.witness.unlink()
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(StoreFull, match="creating the witness"):
                place.open()
        assert not place.witness.exists()
        place.open().close()
        assert place.told().seq == 4
