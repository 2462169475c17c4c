"""All logs, in RAM, on LMDB, and copies of one on a server, keep the promises of the protocol alike."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from refold import Closed, ReadOnly, StoreCorrupt
from refold.log.copies import CopyLog, open_copy
from refold.log.directory import directory_at
from refold.log.lmdb_log import LmdbLog
from refold.log.memory_log import RamLog
from refold.log.protocol import TABLES, Durability, Log, LogFiles, LogTurn, Row, scan, write
from refold.log.record import Record, Sealed
from refold.log.replica import ReplicaLog
from tests.conftest import Servers
from tests.support.commits import RamCommits, opened
from tests.support.memories import erase
from tests.support.records import arrays_at, arrays_in, sealed


def fill(log: Log, sizes: Sequence[int]) -> list[Sealed]:
    """Write commands of the given numbers of events; event n is ``b"event n"``. Return their records."""
    written: list[Sealed] = []
    for size in sizes:
        records = command(log.head() + 1, size)
        write(log, records)
        written += records
    return written


def command(first_seq: int, size: int = 1) -> list[Sealed]:
    """Return the records of such a command."""
    return sealed(first_seq, events(first_seq, first_seq + size))


def events(first_seq: int, end: int) -> list[bytes]:
    return [b"event %d" % seq for seq in range(first_seq, end)]


def one_write(
    records: Sequence[Sealed], rows: Sequence[Row] = (), erased: Sequence[Sealed] = ()
) -> Callable[[LogTurn], int]:
    """A use of a turn that writes and does nothing else."""
    return lambda turn: turn.write(records, rows, erased)


class Conformance:
    """What every log promises; a subclass says how to open one."""

    def open(self, directory: Path, *, readonly: bool = False) -> Log:
        raise NotImplementedError

    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Log]:
        log = self.open(tmp_path / "store")
        yield log
        log.close()

    def test_an_empty_log_answers_with_nothing(self, log: Log) -> None:
        assert log.head() == 0
        assert log.read(0, 10) == []
        assert log.events_at([]) == []
        assert log.files.verify() == []
        assert not log.readonly
        for table in TABLES:
            if table != "meta":
                assert log.rows(table, b"", 10) == []
                assert log.rows(table, b"\xff", 10, backwards=True) == []
            assert log.row(table, b"absent") is None
            assert log.read_row(table, b"absent", bytes) is None
        with pytest.raises(StoreCorrupt, match="missing"):
            log.events_at([1])

    def test_records_come_back_in_order(self, log: Log) -> None:
        written = fill(log, [1, 3, 2])
        assert [last for last, _ in written] == [1, 4, 6]
        assert log.head() == 6
        assert log.read(0, 100) == written
        assert arrays_in(log.read(0, 100)) == events(1, 7)
        assert log.read(2**64 - 2, 2**64 - 1) == []

    def test_a_span_is_read_in_whole_records(self, log: Log) -> None:
        written = fill(log, [1, 3, 1, 200])
        spans = [(Record(record).first_seq, last, record) for last, record in written]
        seqs = [*range(8), 68, 69, 70, 204, 205, 206]
        for after in seqs:
            for until in seqs:
                held = [(last, record) for first, last, record in spans if after < last and first <= until]
                assert log.read(after, until) == (held if after < until else []), (after, until)

    @pytest.mark.parametrize(
        "seqs",
        [[1], [6], [1, 2, 3], [1, 3, 5], [6, 1], [3, 2, 1], [2, 2, 2], [5, 6, 1, 2, 4], [1, 2, 4, 5, 1, 2]],
        ids=str,
    )
    @pytest.mark.parametrize("sizes", [[6], [1] * 6, [2, 3, 1]], ids=str)
    def test_events_are_read_at_seqs_in_the_order_asked_for(self, log: Log, sizes: list[int], seqs: list[int]) -> None:
        fill(log, sizes)
        assert arrays_at(log, seqs) == [b"event %d" % seq for seq in seqs]

    def test_an_event_is_read_with_what_its_record_says_of_it(self, log: Log) -> None:
        ((_, one), (_, two)) = fill(log, [1, 3])
        assert log.events_at([4, 1, 2]) == [Record(two).event(2), Record(one).event(0), Record(two).event(0)]

    def test_many_runs_of_seqs(self, log: Log) -> None:
        fill(log, [1_000])
        seqs = [seq for seq in range(1, 1_001) if seq % 3]
        assert arrays_at(log, seqs) == [b"event %d" % seq for seq in seqs]

    @pytest.mark.parametrize("seqs", [[0], [7], [1, 7], [6, 7], [7, 1], [2**63]], ids=str)
    def test_a_missing_seq_is_corruption(self, log: Log, seqs: list[int]) -> None:
        fill(log, [2, 4])
        with pytest.raises(StoreCorrupt, match="missing"):
            log.events_at(seqs)

    def test_a_record_is_found_by_any_seq_that_it_holds(self, log: Log) -> None:
        one, two, three = fill(log, [1, 3, 2])
        assert [log.read(seq - 1, seq) for seq in range(1, 8)] == [[one], [two], [two], [two], [three], [three], []]

    def test_one_write_may_carry_several_records(self, log: Log) -> None:
        write(log, [*command(1), *command(2, 2)])
        assert log.head() == 3
        assert log.read(2, 3) == command(2, 2)

    def test_rows_are_put_replaced_deleted_and_listed_in_order(self, log: Log) -> None:
        write(log, (), [("names", b"b", b"2"), ("names", b"a", b"1"), ("names", b"c", b""), ("derived", b"b", b"x")])
        assert log.rows("names", b"", 10) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"")]
        assert log.rows("names", b"aa", 1) == [(b"b", b"2")]
        assert log.rows("names", b"d", 10) == []
        assert log.row("names", b"c") == b""
        write(log, (), [("names", b"b", b"3"), ("names", b"a", None), ("names", b"absent", None)])
        assert log.rows("names", b"", 10) == [(b"b", b"3"), (b"c", b"")]
        assert log.row("derived", b"b") == b"x"

    def test_within_one_write_the_last_row_wins(self, log: Log) -> None:
        write(log, (), [("names", b"a", b"1"), ("names", b"a", None), ("names", b"a", b"2")])
        assert log.row("names", b"a") == b"2"
        write(log, (), [("names", b"a", b"3"), ("names", b"a", None)])
        assert log.row("names", b"a") is None

    @pytest.mark.parametrize(
        ("key", "found"),
        [(b"a", b""), (b"b", b"b"), (b"c", b"b"), (b"d", b"db"), (b"dd", b"db"), (b"f", b"fdb"), (b"\xff", b"fdb")],
    )
    def test_rows_are_listed_backwards_from_a_key(self, log: Log, key: bytes, found: bytes) -> None:
        rows = [(bytes([name]), b"value " + bytes([name])) for name in found]
        write(log, (), [("checkpoints", name, b"value " + name) for name in (b"b", b"d", b"f")])
        for limit in range(5):
            assert log.rows("checkpoints", key, limit, backwards=True) == rows[:limit]

    def test_scanning_reads_one_prefix_in_pages(self, log: Log) -> None:
        rows: list[Row] = [("derived", b"p" + bytes([place]), b"") for place in range(10)]
        write(log, (), [*rows, ("derived", b"o", b""), ("derived", b"q", b"")])
        for page in (1, 3, 10, 11, 100):
            assert [key for key, _ in scan(log, "derived", b"p", page)] == [row[1] for row in rows]
        assert [key for key, _ in scan(log, "derived", b"p", 4, b"p\x07")] == [b"p\x07", b"p\x08", b"p\x09"]

    def test_records_and_rows_are_written_together(self, log: Log) -> None:
        write(log, command(1), [("names", b"n", b"1"), ("meta", b"m", b"2")])
        assert (log.head(), log.row("names", b"n"), log.row("meta", b"m")) == (1, b"1", b"2")

    @pytest.mark.parametrize("size", [0, 1, 4_095, 4_096, 3_000_000])
    def test_values_of_any_size(self, log: Log, size: int) -> None:
        records = sealed(1, [b"r" * size, b"after"])
        write(log, records, [("checkpoints", b"k", b"v" * size)])
        assert log.read(0, 2) == records
        assert arrays_at(log, [1, 2]) == [b"r" * size, b"after"]
        assert log.row("checkpoints", b"k") == b"v" * size
        assert log.read_row("checkpoints", b"k", lambda value: (len(value), bytes(value[:2]))) == (size, b"vv"[:size])

    def test_keys_up_to_the_bound(self, log: Log) -> None:
        write(log, (), [("names", b"k" * 511, b"v")])
        assert log.row("names", b"k" * 511) == b"v"

    def test_erasing_replaces_records_and_puts_rows_at_once(self, log: Log) -> None:
        one, _, _ = fill(log, [1, 1, 2])
        shorter, longer = sealed(2, [b"short"]), sealed(3, [b"a longer event than before", b"event 4"])
        erase(log, [*shorter, *longer], [("meta", b"e", b"1")])
        assert log.read(0, 4) == [one, *shorter, *longer]
        assert arrays_at(log, [4, 3, 2]) == [b"event 4", b"a longer event than before", b"short"]
        assert (log.head(), log.row("meta", b"e")) == (4, b"1")

    def test_erasing_appends_in_the_same_write(self, log: Log) -> None:
        fill(log, [2])
        erased = sealed(1, [b"gone", b"event 2"])
        log.in_turn(one_write(command(3), [("meta", b"e", b"1")], erased))
        assert log.read(0, 3) == [*erased, *command(3)]
        assert (log.head(), log.row("meta", b"e")) == (3, b"1")

    def test_what_was_read_does_not_change_with_the_log(self, log: Log) -> None:
        written = fill(log, [2])
        read, rows = log.read(0, 10), log.rows("names", b"", 10)
        fill(log, [2])
        write(log, (), [("names", b"a", b"1")])
        erase(log, sealed(1, [b"gone", b"gone"]), [])
        assert (read, rows) == (written, [])

    def test_it_grows_in_size(self, log: Log) -> None:
        write(log, sealed(1, [bytes(1_000_000)]))
        log.durability.flush()
        assert log.files.size_bytes() >= 1_000_000

    @pytest.mark.parametrize(("first_seq", "size"), [(1, 1), (3, 1), (3, 2), (2, 9), (5, 1)])
    def test_a_write_at_a_wrong_seq_changes_nothing(self, log: Log, first_seq: int, size: int) -> None:
        written = fill(log, [3])
        with pytest.raises((AssertionError, StoreCorrupt)):
            write(log, command(first_seq, size), [("names", b"n", b"1")])
        assert log.head() == 3
        assert log.read(0, 10) == written
        assert log.row("names", b"n") is None

    def test_a_turn_writes_records_and_rows(self, log: Log) -> None:
        fill(log, [2])

        @log.in_turn
        def _(turn: LogTurn) -> None:
            assert turn.last_commit == log.last_commit()
            assert log.head() == 2
            commit = turn.write(command(3), [("names", b"n", b"1"), ("names", b"absent", None)])
            assert (log.head(), log.last_commit()) == (3, commit)

        @log.in_turn
        def _(turn: LogTurn) -> None:
            assert turn.last_commit == log.last_commit()
            turn.write([*command(4), *command(5)])

        assert arrays_in(log.read(0, 10)) == events(1, 6)
        assert (log.row("names", b"n"), log.read(4, 5)) == (b"1", command(5))

    def test_a_turn_may_write_rows_alone(self, log: Log) -> None:
        log.in_turn(one_write([], [("names", b"n", b"1")]))
        assert (log.head(), log.row("names", b"n")) == (0, b"1")

    def test_a_turn_reads_the_log_as_it_is(self, log: Log) -> None:
        written = fill(log, [3])
        write(log, (), [("names", b"n", b"1")])

        @log.in_turn
        def _(turn: LogTurn) -> None:
            assert (log.head(), log.read(1, 5)) == (3, written)
            assert arrays_at(log, [3, 1]) == [b"event 3", b"event 1"]
            assert (log.row("names", b"n"), log.rows("names", b"", 5)) == (b"1", [(b"n", b"1")])
            turn.write(command(4))

        assert log.head() == 4

    def test_a_turn_gives_back_what_its_call_returns(self, log: Log) -> None:
        fill(log, [2])
        assert log.in_turn(lambda _: log.head()) == 2
        assert log.in_snapshot(lambda: (log.last_commit(), log.head())) == (log.last_commit(), 2)
        assert log.files.alone(log.head) == 2

    def test_a_turn_that_is_left_changes_nothing(self, log: Log) -> None:
        fill(log, [1])
        log.in_turn(lambda _: None)
        with pytest.raises(ZeroDivisionError):
            log.in_turn(lambda _: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            log.in_snapshot(lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            log.files.alone(lambda: 1 // 0)
        fill(log, [1])
        assert arrays_in(log.read(0, 10)) == events(1, 3)

    def test_a_turn_at_a_wrong_seq_changes_nothing_and_ends(self, log: Log) -> None:
        fill(log, [3])
        for records in (command(3), command(3, 2), [*command(3), *command(4)]):
            with pytest.raises((AssertionError, StoreCorrupt)):
                log.in_turn(one_write(records, [("names", b"n", b"1")]))
        assert (log.head(), log.row("names", b"n")) == (3, None)
        fill(log, [1])
        assert log.head() == 4

    def test_a_turn_writes_once(self, log: Log) -> None:
        @log.in_turn
        def _(turn: LogTurn) -> None:
            turn.write(command(1))
            with pytest.raises(AssertionError, match="take another turn"):
                turn.write(command(2))

        assert log.head() == 1

    def test_a_commit_has_the_number_that_its_turn_returned(self, log: Log) -> None:
        numbers = [log.last_commit()]
        for use in (one_write(command(1)), one_write([], [("names", b"n", b"1")])):
            numbers.append(log.in_turn(use))
            assert log.last_commit() == numbers[-1]
            assert log.in_turn(lambda turn: turn.last_commit) == numbers[-1]
        assert numbers == sorted(numbers)

    def test_a_turn_that_changes_nothing_is_no_commit(self, log: Log) -> None:
        fill(log, [1])
        known = log.last_commit()
        nothing: tuple[list[Row], ...] = ([], [("names", b"absent", None)])
        for rows in nothing:
            assert log.in_turn(one_write([], rows)) == known
            assert write(log, (), rows) == known
            assert log.in_turn(lambda turn: turn.last_commit) == known
            assert log.last_commit() == known

    def test_what_was_flushed_is_durable(self, log: Log) -> None:
        fill(log, [2, 1])
        assert 0 <= log.durability.durable_until(3) <= 3
        log.durability.flush()
        assert [log.durability.durable_until(seq) for seq in (0, 2, 3)] == [0, 2, 3]
        assert not log.durability.is_stopped
        assert not log.durability.is_suspect

    def test_it_is_searched_swept_and_reads_on(self, log: Log) -> None:
        marker = b"a string that is long enough to be looked for"
        write(log, sealed(1, [marker]), [("names", b"n", marker)])
        log.durability.flush()
        assert log.files.search([marker]).occurrences >= 2
        erase(log, sealed(1, [b"gone"]), [("names", b"n", None)], is_clean=True)
        log.files.release_memory()
        log.files.alone(log.files.sweep)
        assert log.files.search([marker]).occurrences == 0
        assert (log.read(0, 5), log.rows("names", b"", 5)) == (sealed(1, [b"gone"]), [])
        fill(log, [1])
        assert (log.head(), log.files.verify()) == (2, [])

    def test_closing_twice_is_closing_once(self, log: Log) -> None:
        log.close()
        log.close()


def methods_of(protocol: type) -> list[str]:
    return [name for name, value in vars(protocol).items() if not name.startswith("_") and callable(value)]


def test_a_log_is_written_by_implementing_a_handful_of_methods() -> None:
    """What a log on a server has to do: more than these belong into a protocol that it may take a trivial one for."""
    assert len(methods_of(Log)) <= 10, methods_of(Log)
    assert all(len(methods_of(protocol)) <= 7 for protocol in (LogTurn, Durability, LogFiles))


class TestRamLog(Conformance):
    def open(self, directory: Path, *, readonly: bool = False) -> Log:
        assert not directory.exists()
        return RamLog(readonly=readonly)

    def test_read_only_refuses_to_write(self) -> None:
        log = RamLog(readonly=True)
        assert log.readonly
        assert_refuses(log)


class TestLmdbLog(Conformance):
    def open(self, directory: Path, *, readonly: bool = False) -> Log:
        return LmdbLog(directory_at(str(directory), readonly=readonly, seed={}))

    def test_read_only_refuses_to_write_and_reads_everything(self, tmp_path: Path) -> None:
        writer = self.open(tmp_path / "store")
        written = fill(writer, [2])
        reader = self.open(tmp_path / "store", readonly=True)
        assert reader.readonly
        assert_refuses(reader)
        assert reader.read(0, 10) == written
        assert arrays_at(reader, [2, 1]) == [b"event 2", b"event 1"]
        writer.close()
        assert reader.head() == 2
        reader.close()

    def test_a_reader_notices_what_the_writer_writes(self, tmp_path: Path) -> None:
        writer = self.open(tmp_path / "store")
        reader = self.open(tmp_path / "store", readonly=True)
        known = reader.last_commit()
        assert known == writer.last_commit()
        fill(writer, [1])
        assert reader.last_commit() == writer.last_commit() > known
        assert reader.head() == 1
        writer.close()
        reader.close()

    def test_it_comes_back_whole(self, tmp_path: Path) -> None:
        log = self.open(tmp_path / "store")
        written = fill(log, [2, 3])
        write(log, (), [("names", b"a", b"1")])
        log.close()
        again = self.open(tmp_path / "store")
        assert again.read(0, 10) == written
        assert again.row("names", b"a") == b"1"
        again.close()

    def test_after_closing_everything_is_closed(self, tmp_path: Path) -> None:
        log = self.open(tmp_path / "store")
        log.close()
        calls: list[Callable[[], object]] = [
            log.head,
            log.last_commit,
            lambda: log.read(0, 1),
            lambda: log.events_at([1]),
            lambda: write(log, command(1)),
        ]
        for call in calls:
            with pytest.raises(Closed, match="open it again"):
                call()

    def test_a_failure_in_the_middle_of_a_write_leaves_nothing_of_it(self, tmp_path: Path) -> None:
        log = self.open(tmp_path / "store")
        fill(log, [1])
        too_long = b"k" * 600
        with pytest.raises(Exception, match="writing seqs 2 to 2") as raised:
            write(log, command(2), [("names", b"ok", b"1"), ("names", too_long, b"2")])
        assert type(raised.value).__module__ == "refold.errors"
        assert (log.head(), log.row("names", b"ok")) == (1, None)
        fill(log, [1])
        assert arrays_in(log.read(0, 10)) == events(1, 3)
        log.close()


class TestReplicaInRam(Conformance):
    def open(self, directory: Path, *, readonly: bool = False) -> Log:
        assert not directory.exists()
        return ReplicaLog(RamCommits(), RamLog(), readonly=readonly)

    def test_read_only_refuses_to_write(self, tmp_path: Path) -> None:
        assert_refuses(self.open(tmp_path / "store", readonly=True))


def copy_in(directory: Path) -> CopyLog:
    return open_copy(str(directory), "a log", [("meta", b"store_id", bytes(16))])


class TestReplicaOnDisk(Conformance):
    def open(self, directory: Path, *, readonly: bool = False) -> Log:
        return ReplicaLog(RamCommits(), copy_in(directory), readonly=readonly)


class TestReplicaOfPostgres(Conformance):
    def open(self, directory: Path, *, readonly: bool = False) -> Log:
        return ReplicaLog(opened(self.logs.address()), copy_in(directory), readonly=readonly)

    @pytest.fixture(autouse=True)
    def _logs(self, servers: Servers) -> None:
        self.logs = servers.logs("postgres")


class TestReplicaOfJetStream(TestReplicaOfPostgres):
    @pytest.fixture(autouse=True)
    def _logs(self, servers: Servers) -> None:
        self.logs = servers.logs("nats")


def assert_refuses(log: Log) -> None:
    calls: list[Callable[[], object]] = [
        lambda: write(log, command(1)),
        lambda: write(log, (), [("meta", b"a", b"1")]),
        lambda: log.in_turn(lambda _: None),
        lambda: erase(log, [], []),
    ]
    for call in calls:
        with pytest.raises(ReadOnly, match="without readonly=True"):
            call()
