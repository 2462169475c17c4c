"""`refold doctor`: it names what is wrong and the next step, and leaves the store as it was."""

import json
import os
import re
import resource
import shutil
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from refold import Memory, StoreCorrupt
from refold.cli import doctor, main
from refold.cli.doctor import Diagnosis, examine
from refold.limits import TAIL_EVENTS_MAX
from refold.log import inspect
from refold.log.disk import SITE_SUFFIX, build_directory
from refold.log.inspect import ReaderSlot, StoreFacts
from refold.log.lmdb_file import open_lmdb
from refold.log.record import FORMAT, SEQ
from tests.support.memories import BEGIN_NS, Child
from tests.support.records import sealed

CHECKS = [
    "directory",
    *("file system", "disk space", "ballast", "writers", "open files", "search", "unfinished"),
    *("file", "format"),
    *("map", "readers", "log", "tail", "pages", "event kinds"),
]

HOLDER = """
import sys
from refold import Memory, StoreFull
memory = Memory(sys.argv[1], readonly=sys.argv[2] == "reader")
memory.head
print("open", flush=True)
sys.stdin.readline()
"""

needs_proc = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system has no /proc/locks")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Memory(tmp_path / "store") as memory:
        memory.conversation("chat").append("user", "hello", tokens=1)
    return tmp_path / "store"


def found(store: Path, name: str) -> Diagnosis:
    (check,) = [check for check in examine(str(store)).checks if check.name == name]
    return check


def rows(store: Path, table: str, **values: Any) -> None:
    """Put rows into a store, ``None`` to delete one."""
    env = open_lmdb(str(store))
    with env.begin(write=True) as txn:
        database = env.open_db(table.encode(), txn=txn)
        for key, value in values.items():
            if value is None:
                txn.delete(key.encode(), db=database)
            else:
                txn.put(key.encode(), value, db=database)
    env.close()


class TestAStoreThatIsWell:
    def test_passes_every_check(self, store: Path) -> None:
        examination = examine(str(store))
        assert [check.name for check in examination.checks] == CHECKS
        assert (examination.ok, examination.exit_code) == (True, 0)
        assert {check.state for check in examination.checks if check.name not in {"disk space", "search"}} == {"ok"}
        assert found(store, "log").message == "the head is seq 2"
        assert found(store, "tail").message == "opening scans 0 events"
        assert found(store, "event kinds").message == "all 2 kinds of events are known"

    @pytest.mark.parametrize("missing", [(), ("lock.mdb",), ("lock.mdb", "turn.lock", "writer.lock")])
    def test_is_left_as_it_was(self, store: Path, missing: tuple[str, ...]) -> None:
        for name in missing:
            (store / name).unlink()
        before = {
            path.name: (path.read_bytes(), path.stat().st_mtime_ns)
            for path in store.iterdir()
            if path.name != "lock.mdb"
        }
        assert examine(str(store)).ok
        after = {
            path.name: (path.read_bytes(), path.stat().st_mtime_ns)
            for path in store.iterdir()
            if path.name != "lock.mdb"
        }
        assert before == after
        assert (store / "lock.mdb").exists() == (not missing)

    @needs_proc
    def test_may_be_looked_at_by_one_who_may_not_write_to_it(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Archived sessions, or a mount that is read-only; permissions do not keep root out, so the system is asked."""

        def may(path: Any, mode: int) -> bool:
            return not mode & os.W_OK or not str(path).startswith(str(store))

        def refuse(path: str) -> None:
            raise PermissionError(13, "Permission denied", path)

        monkeypatch.setattr(os, "access", may)
        monkeypatch.setattr(inspect, "open_to_look", refuse)
        examination = examine(str(store))
        assert (examination.ok, [check.name for check in examination.checks]) == (True, CHECKS)
        assert found(store, "directory").message.endswith("which this user may only read")
        with Child(HOLDER, str(store), "writer") as child:
            assert child.read() == "open"
            check = found(store, "file")
            assert (check.state, "open for writing" in check.message) == ("bad", True)

    def test_may_be_open_here_and_elsewhere(self, store: Path) -> None:
        with Child(HOLDER, str(store), "reader") as child, Memory(store) as memory:
            assert child.read() == "open"
            memory.profile().set("theme", "dark")
            assert examine(str(store)).ok
            assert found(store, "log").message == "the head is seq 3"
            assert found(store, "readers").state == "ok"
            memory.profile().set("theme", "light")
            assert memory.verify().ok
        with Memory(store) as memory:
            assert memory.verify().ok

    def test_may_be_empty(self, tmp_path: Path) -> None:
        Memory(tmp_path / "store").close()
        assert examine(str(tmp_path / "store")).ok
        assert found(tmp_path / "store", "log").message == "no events yet"

    def test_may_lack_pages_that_hold_nothing(self, store: Path) -> None:
        env = open_lmdb(str(store))
        with env.begin(write=True) as txn:
            # Freed in the commit that took them, these pages never reach the file.
            txn.put(b"large", bytes(100_000), db=env.open_db(b"meta", txn=txn))
            txn.delete(b"large", db=env.open_db(b"meta", txn=txn))
        env.close()
        size = (store / "data.mdb").stat().st_size
        looked = inspect.look(str(store), ())
        assert looked.file_bytes == size < looked.whole_bytes
        assert examine(str(store)).ok
        assert (store / "data.mdb").stat().st_size == size
        assert f"{size:,}" in found(store, "file").message


class TestWhatIsNoStore:
    @pytest.mark.parametrize("make", ["nothing", "file", "empty", "other"])
    def test_is_told_at_once(self, tmp_path: Path, make: str) -> None:
        place = tmp_path / "place"
        if make == "file":
            place.write_text("hello")
        elif make != "nothing":
            place.mkdir()
            if make == "other":
                (place / "notes.txt").write_text("hello")
        (check,) = examine(str(place)).checks
        assert (check.name, check.state) == ("directory", "bad")
        assert check.next_step
        assert examine(str(place)).exit_code == 1

    @pytest.mark.parametrize("content", [b"", b"hello", bytes(100_000), b"\xff" * 100_000], ids=range(4))
    def test_is_told_of_other_files(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "data.mdb").write_bytes(content)
        examination = examine(str(tmp_path))
        last = examination.checks[-1]
        assert (last.name, last.state, examination.exit_code) == ("file", "bad", 1)
        assert last.next_step
        assert [path.name for path in tmp_path.iterdir()] == ["data.mdb"]
        assert (tmp_path / "data.mdb").read_bytes() == content

    def test_is_told_of_another_lmdb_file(self, tmp_path: Path) -> None:
        open_lmdb(str(tmp_path)).close()
        last = examine(str(tmp_path)).checks[-1]
        assert (last.name, last.state) == ("file", "bad")


class TestDamage:
    def test_of_a_file_that_was_cut_off(self, store: Path) -> None:
        whole = (store / "data.mdb").read_bytes()
        (store / "data.mdb").write_bytes(whole[: len(whole) // 4])
        examination = examine(str(store))
        last = examination.checks[-1]
        assert (last.name, last.state, examination.exit_code) == ("file", "bad", 3)
        assert f"{len(whole) // 4:,} of {len(whole):,} bytes" in last.message
        assert last.next_step == doctor.RESTORE

    def test_of_the_pages_of_a_file_that_opening_checks(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory, memory.batch():
            for number in range(600):
                memory.conversation("chat").append("user", f"thing {number} " + "x" * 60)
        content = bytearray((tmp_path / "store" / "data.mdb").read_bytes())
        assert examine(str(tmp_path / "store")).ok
        damaged_count = 0
        for page in range(2, len(content) // 4096, 5):
            damaged = content.copy()
            damaged[page * 4096 : (page + 1) * 4096] = bytes(4096)
            (tmp_path / "store" / "data.mdb").write_bytes(damaged)
            examination = examine(str(tmp_path / "store"))
            if examination.ok:  # The page is free.
                Memory(tmp_path / "store", readonly=True).close()
                continue
            damaged_count += 1
            last = examination.checks[-1]
            assert (last.name, last.state, last.next_step, examination.exit_code) == ("file", "bad", doctor.RESTORE, 3)
            problem = last.message.removeprefix("the file is damaged ")
            with pytest.raises(StoreCorrupt, match=re.escape(problem)):
                Memory(tmp_path / "store", readonly=True)
        assert damaged_count > 1

    def test_of_a_backup_whose_data_was_exchanged(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            for name in ("older", "newer"):
                memory.profile().set("backup", name)
                memory.backup(tmp_path / name)
        for name in ("older", "newer"):
            examination = examine(str(tmp_path / name))
            assert (examination.ok, [check.name for check in examination.checks]) == (True, [*CHECKS, "manifest"])
            assert [path.name for path in sorted((tmp_path / name).iterdir())] == ["backup.json", "data.mdb"]
        shutil.copyfile(tmp_path / "older" / "data.mdb", tmp_path / "newer" / "data.mdb")
        examination = examine(str(tmp_path / "newer"))
        last = examination.checks[-1]
        assert (last.name, last.state, examination.exit_code) == ("manifest", "bad", 3)
        assert ("does not hold the log" in last.message, last.next_step) == (True, "use another backup")
        (tmp_path / "older" / "backup.json").write_text("{")
        last = examine(str(tmp_path / "older")).checks[-1]
        assert ("cannot be read" in last.message, last.next_step) == (True, "use another backup")

    @pytest.mark.parametrize(
        ("table", "values", "name", "wanted"),
        [
            ("meta", {"format": msgspec.msgpack.encode(FORMAT + 1)}, "format", (f"format {FORMAT + 1}", 1)),
            ("meta", {"format": msgspec.msgpack.encode(FORMAT - 1)}, "format", (f"format {FORMAT - 1}", 1)),
            ("meta", {"format": None}, "format", ("names no format", 1)),
            ("meta", {"format": b"\xc1"}, "format", ("cannot be read", 1)),
            ("meta", {"tags": b"\xc1"}, "event kinds", ("cannot be read", 3)),
            ("log", {"\x7f" * 8: b"x"}, "log", ("the last record is damaged", 3)),
            ("log", {"\0" * 7 + "\x02": b"x" * 200}, "log", ("the last record is damaged", 3)),
            ("log", {"\x7f" * 8: sealed(1, [b"one", b"two"])[0][1]}, "log", ("ends at seq 2, but its key", 3)),
            ("checkpoints", {"\0" * 12: b"x"}, "tail", ("is damaged", 3)),
            ("checkpoints", {"\0" * 12: SEQ.pack(5)}, "tail", ("reaching 3 events past the head", 3)),
        ],
    )
    def test_of_a_row(
        self, store: Path, table: str, values: dict[str, Any], name: str, wanted: tuple[str, int]
    ) -> None:
        words, code = wanted
        rows(store, table, **values)
        check = found(store, name)
        assert check.state == "bad"
        assert words in check.message
        assert check.next_step
        assert ("`refold recover STORE NEW`" in check.next_step) == (name in {"event kinds", "tail"})
        assert examine(str(store)).exit_code == code

    def test_of_a_log_whose_end_is_gone(self, store: Path) -> None:
        rows(store, "log", **{SEQ.pack(2).decode(): None})
        assert found(store, "log").message == "no events yet"
        assert "reaching 2 events past the head" in found(store, "tail").message
        assert examine(str(store)).exit_code == 3


@needs_proc
class TestWhoHoldsIt:
    def test_writers_are_named(self, store: Path) -> None:
        assert found(store, "writers").message == "no process holds writer.lock: there is no writer"
        with Child(HOLDER, str(store), "writer") as child:
            assert child.read() == "open"
            check = found(store, "writers")
            assert (check.state, f"process {child.pid}" in check.message) == ("ok", True)

    def test_a_lone_writer_is_named(self, store: Path) -> None:
        with Memory(store, durability="delayed"):
            check = found(store, "writers")
        assert check.message == f"process {os.getpid()} holds writer.lock alone"
        assert str(os.getpid()) in check.next_step

    def test_readers_that_were_killed_are_told_of(self, store: Path) -> None:
        with Child(HOLDER, str(store), "reader") as living, Child(HOLDER, str(store), "reader") as killed:
            assert (living.read(), killed.read()) == ("open", "open")
            assert found(store, "readers").state == "ok"
            killed.kill()
            check = found(store, "readers")
            assert (check.state, check.message.endswith(f"that have ended: {killed.pid}")) == ("warn", True)
            assert check.next_step == "open the store once to clear them"
            assert found(store, "readers") == check
            Memory(store, readonly=True).close()
            assert found(store, "readers").state == "ok"


class Usage(NamedTuple):
    free: int


class TestSurroundings:
    @pytest.mark.parametrize(
        ("free_bytes", "state", "code"), [(10**10, "ok", 0), (10**9, "warn", 0), (10**7, "bad", 1), (0, "bad", 1)]
    )
    def test_disk_space(
        self, store: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int, state: str, code: int
    ) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free_bytes))
        check = found(store, "disk space")
        assert (check.state, bool(check.next_step)) == (state, state != "ok")
        assert examine(str(store)).exit_code == code

    @pytest.mark.parametrize(("kind", "state"), [("ext4", "ok"), ("nfs4", "warn"), ("fuse.sshfs", "warn")])
    def test_file_system(
        self, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, state: str
    ) -> None:
        mounts = tmp_path / "mounts"
        place = str(tmp_path).replace(" ", "\\040")
        mounts.write_text(f"a / xfs rw 0 0\nb {place} tmpfs rw 0 0\nc {place} {kind} rw 0 0\nd {place}/st nfs rw 0 0\n")
        monkeypatch.setattr(inspect, "_MOUNTS", str(mounts))
        assert (found(store, "file system").state, kind in found(store, "file system").message) == (state, True)

    def test_what_the_system_does_not_say(self, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("_MOUNTS", "_LOCKS"):
            monkeypatch.setattr(inspect, name, str(tmp_path / "none"))
        for name in ("file system", "writers"):
            assert (found(store, name).state, "does not report" in found(store, name).message) == ("ok", True)

    def test_what_may_not_be_seen(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_: str) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(inspect, "holders", refuse)
        check = found(store, "writers")
        assert (check.state, "Permission denied" in check.message, bool(check.next_step)) == ("warn", True, True)

    @pytest.mark.parametrize(("limit", "state"), [(64, "warn"), (1024, "ok"), (resource.RLIM_INFINITY, "ok")])
    def test_open_files(self, store: Path, monkeypatch: pytest.MonkeyPatch, limit: int, state: str) -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
        assert found(store, "open files").state == state

    @pytest.mark.parametrize(
        ("is_there", "compiler", "state"), [(True, "", "ok"), (False, "/bin/g++", "ok"), (False, "", "warn")]
    )
    def test_search(
        self, store: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool, compiler: str, state: str
    ) -> None:
        monkeypatch.setattr(doctor, "find_spec", lambda name: ModuleSpec(name, None) if is_there else None)
        monkeypatch.setattr(shutil, "which", lambda name: compiler if compiler.endswith(name) else None)
        assert found(store, "search").state == state


ERASER = """
import os, sys
from refold import Memory
from refold.log import environment
environment.Environment.replace = lambda *_: os._exit(9)
with Memory(sys.argv[1]) as memory:
    memory.erase([2])
"""


def test_an_erasure_that_was_cut_off(store: Path) -> None:
    """It is told until somebody opens the store to write, which clears away what is left."""
    with Child(ERASER, str(store)) as child:
        assert child.read() == ""  # It has ended.
    check = found(store, "unfinished")
    assert (check.state, examine(str(store)).exit_code) == ("warn", 0)
    assert "was interrupted and has left" in check.message
    Memory(store, readonly=True).close()
    assert found(store, "unfinished").state == "warn"
    Memory(store).close()
    assert found(store, "unfinished").state == "ok"


@needs_proc
def test_a_backup_that_was_cut_off(store: Path) -> None:
    """What a crash leaves beside the store is told, with its path; what is being made is no fault."""
    target = store.with_name("backup")
    with build_directory(str(target), "a backup", outside=str(store), may_be_empty=False) as made:
        check = found(store, "unfinished")
        assert (check.state, str(Path(made).parent) in check.message) == ("ok", True)
    assert found(store, "unfinished").message == "nothing unfinished beside the store"
    site = store.with_name(f".other{SITE_SUFFIX}")
    (site / "store").mkdir(parents=True)
    check = found(store, "unfinished")
    assert (check.state, str(site) in check.message) == ("warn", True)
    assert "remove it" in check.next_step


def facts(**changed: Any) -> StoreFacts:
    """What the files of a store say that is well: ten events, fifty of a hundred pages in use."""
    (last,) = sealed(1, [b"event"] * 10)
    well = StoreFacts(
        *(100 * 4096, 100 * 4096, 2**40, 4096, 100, 50, 5_000, (ReaderSlot(os.getpid(), None),), ""),
        *(msgspec.msgpack.encode(FORMAT), keyed(*last), (SEQ.pack(10), None)),
    )
    return well._replace(**changed)


def keyed(last: int, record: bytes) -> tuple[bytes, bytes]:
    return SEQ.pack(last), record


HUGE = TAIL_EVENTS_MAX + 11


@pytest.mark.parametrize(
    ("name", "changed", "state", "words"),
    [
        ("map", {"file_bytes": 2**39 + 1}, "warn", "start a new store"),
        ("map", {"file_bytes": 2**29 + 1, "map_bytes": 2**30}, "warn", "ulimit -v"),
        ("readers", {"readers": (ReaderSlot(os.getpid(), None),) * 600}, "warn", "600 of 1024"),
        ("tail", {"rows": (None, None)}, "ok", "scans 10 events"),
        (
            "tail",
            {"last_record": keyed(*sealed(HUGE, [b"event"])[0])},
            "warn",
            "TAIL_EVENTS_MAX = 50,000",
        ),
        ("pages", {"readers": (ReaderSlot(7, 4_900), ReaderSlot(8, None))}, "ok", "50 of 100"),
        (
            "pages",
            {"readers": (ReaderSlot(7, 3_999), ReaderSlot(8, 4_500))},
            "warn",
            "process 7 started reading 1,001 commits",
        ),
        ("pages", {"pages": 200_000, "used_pages": 90_000}, "warn", "110,000 of 200,000 pages"),
        ("pages", {"pages": 200_000, "used_pages": 110_000}, "ok", "90,000 of 200,000 pages"),
        ("event kinds", {"rows": (None, msgspec.msgpack.encode([1, 2, 126]))}, "warn", "tags [126]"),
    ],
)
def test_what_the_files_say(name: str, changed: dict[str, Any], state: str, words: str) -> None:
    check = doctor._INSIDE[name]
    assert check(facts()).state == "ok"
    said = check(facts(**changed))
    assert said.state == state
    assert words in f"{said.message} {said.next_step}"
    assert bool(said.next_step) == (state != "ok")


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs the command in this process: its code, and what it prints."""
    monkeypatch.delenv("REFOLD_DB", raising=False)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["refold", *map(str, arguments)])
        return (main(), *capfd.readouterr())

    return run


def test_a_newest_event_ahead_of_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(tmp_path / "store", clock_ns=lambda: BEGIN_NS + 3_650 * 86_400 * 10**9) as memory:
        memory.journal().append("x")
    monkeypatch.setenv("REFOLD_CLOCK_NS", str(BEGIN_NS))
    check, examined = found(tmp_path / "store", "log"), examine(str(tmp_path / "store"))
    assert (examined.ok, examined.exit_code, check.state) == (True, 0, "warn")
    assert check.message.startswith("the head is seq 1; the newest event is 3,649 days ahead of this machine's clock")
    assert check.next_step == "if this clock is wrong, set it"


def test_the_command_prints_a_line_for_each_check(store: Path, refold: Callable[..., Any]) -> None:
    code, out, err = refold("doctor", "--db", store)
    assert (code, err) == (0, "")
    assert f"ok    format       format {FORMAT}" in out.splitlines()
    code, out, err = refold("doctor", "--db", store, "--json")
    assert [check["name"] for check in json.loads(out)["checks"]] == CHECKS


def test_the_command_ends_with_the_code_of_what_it_found(store: Path, refold: Callable[..., Any]) -> None:
    code, out, err = refold("doctor", "--db", store.parent / "none")
    assert (code, err) == (1, "")
    assert out.splitlines()[1].strip().startswith("give the path of a store")
    (store / "data.mdb").write_bytes((store / "data.mdb").read_bytes()[:20_000])
    assert refold("doctor", "--db", store, "--json")[0] == 3


def test_a_backup_has_no_ballast_and_needs_none(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.profile().set("a", "b")
        memory.backup(tmp_path / "backup")
    (ballast,) = [check for check in examine(str(tmp_path / "backup")).checks if check.name == "ballast"]
    assert ballast.state == "ok", ballast
