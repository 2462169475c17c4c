"""Opening a store: what may stand at its path, who may write, who may read, and what each refusal says."""

import errno
import gc
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import lmdb
import msgspec
import pytest

from refold import InvalidInput, Memory, NotFound, ReadOnly, StoreBusy, StoreCorrupt, StoreError, StoreVersion, recover
from refold.engine.verify import report_of
from refold.log import directory, registry
from refold.log.record import FORMAT
from tests.support.memories import Child, assert_sound, remembering
from tests.support.seams import log_of

HOLDER = """
import sys
from refold import Memory
memory = Memory(sys.argv[1], readonly=sys.argv[2] == "read")
print("open", flush=True)
for line in sys.stdin:
    if line.startswith("append "):
        memory.conversation("c").append("user", line.split()[1], tokens=1)
    elif line.startswith("close"):
        memory.close()
    print(memory.head if not line.startswith("close") else "closed", memory.conversation("c").token_count()
          if not line.startswith("close") else "", flush=True)
"""

OPENER = """
import sys
from refold import Memory
sys.stdin.readline()
try:
    Memory(sys.argv[1]).close()
    print("opened", flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""

OPENED_ALONE = """
import sys
from refold import Memory
memory = Memory(sys.argv[1], durability="delayed")
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Memory(tmp_path / "store") as memory:
        memory.conversation("c").append("user", "hello", tokens=1)
    return tmp_path / "store"


def patch_meta(store: Path, key: bytes, value: bytes | None) -> None:
    """Change a row of a closed store below refold."""
    with lmdb.open(str(store), max_dbs=16) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True, db=meta) as transaction:
            if value is None:
                transaction.delete(key)
            else:
                transaction.put(key, value)


class TestWhereAStoreMayBe:
    @pytest.mark.parametrize(
        "name", ["store", "a store", "speicher-\u00fc\u4e16", "dot.refold", "-dash", "%41", "x" * 200]
    )
    def test_any_name_works(self, tmp_path: Path, name: str) -> None:
        with remembering(tmp_path / name) as memory:
            memory.conversation("c").append("user", "hello", tokens=1)
        assert sorted(entry.name for entry in tmp_path.iterdir()) == [name]

    def test_a_trailing_slash_is_the_same_store(self, store: Path) -> None:
        with Memory(f"{store}/") as memory:
            assert memory.head == 2
        with Memory(f"{store.parent}/other/") as memory:
            assert memory.head == 0
        assert (store.parent / "other" / "data.mdb").is_file()

    def test_a_relative_path_is_one_from_here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with Memory("here") as memory:
            memory.profile().set("key", "value")
            monkeypatch.chdir("/")
            memory.profile().set("key", "other")
            assert memory.verify().ok
        with Memory(tmp_path / "here") as memory:
            assert memory.profile().get("key") == "other"

    def test_an_empty_directory_becomes_a_store(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        with remembering(tmp_path / "empty") as memory:
            memory.profile().set("key", "value")

    def test_a_link_to_a_store_is_that_store(self, store: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(store)
        with Memory(tmp_path / "link") as memory:
            assert memory.head == 2
            with Memory(store) as other:
                other.profile().set("theme", "dark")
            assert memory.head == 3

    def test_creating_leaves_nothing_else_behind(self, store: Path) -> None:
        assert sorted(entry.name for entry in store.parent.iterdir()) == ["store"]
        files = ["ballast", "data.mdb", "lock.mdb", "turn.lock", "writer.lock"]
        assert sorted(entry.name for entry in store.iterdir()) == files

    def test_a_moved_store_opens_where_it_is(self, store: Path) -> None:
        with Memory(store) as memory:
            hashed = memory.state_hash()
        moved = store.rename(store.parent / "moved")
        with Memory(moved) as memory:
            assert memory.state_hash() == hashed

    def test_a_copied_store_is_a_store_of_its_own(self, store: Path) -> None:
        copy = shutil.copytree(store, store.parent / "copy")
        with Memory(store) as memory, Memory(copy) as other:
            other.conversation("c").append("user", "only here", tokens=1)
            assert (memory.head, other.head) == (2, 3)


class TestWhereAStoreCannotBe:
    def test_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("hello")
        with pytest.raises(StoreVersion, match="is a file, and a store is a directory; give another path"):
            Memory(tmp_path / "file")
        assert (tmp_path / "file").read_text() == "hello"

    @pytest.mark.parametrize("readonly", [False, True])
    def test_a_directory_that_is_not_a_store(self, tmp_path: Path, readonly: bool) -> None:
        (tmp_path / "notes.txt").write_text("hello")
        with pytest.raises(StoreVersion, match=r"other files and no data\.mdb; give an empty or a new directory"):
            Memory(tmp_path, readonly=readonly)
        assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]

    @pytest.mark.parametrize("readonly", [False, True])
    def test_a_store_whose_file_is_gone(self, store: Path, readonly: bool) -> None:
        Memory(store).close()
        (store / "data.mdb").unlink()
        with pytest.raises(StoreCorrupt, match=r"the data\.mdb of the store at .* is gone; restore a backup"):
            Memory(store, readonly=readonly)
        assert not (store / "data.mdb").exists()

    def test_a_missing_parent(self, tmp_path: Path) -> None:
        with pytest.raises(NotFound, match=r"the parent directory .*absent of the store does not exist; create it"):
            Memory(tmp_path / "absent" / "store")
        assert list(tmp_path.iterdir()) == []

    def test_a_parent_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("hello")
        with pytest.raises(NotFound, match="parent directory"):
            Memory(tmp_path / "file" / "store")

    def test_a_missing_store_read_only(self, tmp_path: Path) -> None:
        with pytest.raises(NotFound, match="open it once without readonly=True to create it"):
            Memory(tmp_path / "absent", readonly=True)
        (tmp_path / "empty").mkdir()
        with pytest.raises(NotFound, match="no store at"):
            Memory(tmp_path / "empty", readonly=True)
        assert [entry.name for entry in tmp_path.iterdir()] == ["empty"]

    @pytest.mark.parametrize("path", ["a\0b", "\0", "\ud800"])
    def test_a_path_that_no_file_system_takes(self, path: str) -> None:
        with pytest.raises(InvalidInput, match="NUL or a lone surrogate"):
            Memory(path)

    def test_a_name_that_is_too_long(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="check that its parent is writable"):
            Memory(tmp_path / ("x" * 300))

    def test_an_lmdb_file_that_refold_did_not_write(self, tmp_path: Path) -> None:
        with lmdb.open(str(tmp_path / "foreign")) as environment, environment.begin(write=True) as transaction:
            transaction.put(b"key", b"value")
        with pytest.raises(StoreVersion, match="an LMDB file that refold did not write; give another path"):
            Memory(tmp_path / "foreign")
        with lmdb.open(str(tmp_path / "foreign")) as environment, environment.begin() as transaction:
            assert transaction.get(b"key") == b"value"

    def test_a_file_that_only_has_the_name_of_one(self, tmp_path: Path) -> None:
        (tmp_path / "data.mdb").write_bytes(b"not a database" * 1_000)
        with pytest.raises(StoreVersion, match="cannot be opened as a store"):
            Memory(tmp_path)
        assert (tmp_path / "data.mdb").read_bytes() == b"not a database" * 1_000

    def test_an_empty_file_with_the_name_of_one(self, tmp_path: Path) -> None:
        (tmp_path / "data.mdb").write_bytes(b"")
        with pytest.raises(StoreVersion):
            Memory(tmp_path)

    @pytest.mark.parametrize("readonly", [False, True])
    def test_a_newer_format(self, store: Path, readonly: bool) -> None:
        patch_meta(store, b"format", msgspec.msgpack.encode(FORMAT + 1))
        said = f"is of format {FORMAT + 1}, and this refold reads format {FORMAT}; upgrade refold"
        with pytest.raises(StoreVersion, match=said):
            Memory(store, readonly=readonly)

    @pytest.mark.parametrize("readonly", [False, True])
    @pytest.mark.parametrize("older", range(FORMAT))
    def test_an_older_format(self, store: Path, older: int, readonly: bool) -> None:
        patch_meta(store, b"format", msgspec.msgpack.encode(older))
        before = (store / "data.mdb").read_bytes()
        said = f"is of format {older}, and this refold reads format {FORMAT}; export it with the refold that wrote"
        with pytest.raises(StoreVersion, match=said):
            Memory(store, readonly=readonly)
        assert (store / "data.mdb").read_bytes() == before

    @pytest.mark.parametrize("value", [None, b"", b"\xc1", msgspec.msgpack.encode("one")], ids=repr)
    def test_a_format_that_makes_no_sense(self, store: Path, value: bytes | None) -> None:
        patch_meta(store, b"format", value)
        with pytest.raises(StoreError):
            Memory(store)

    @pytest.mark.parametrize("name", ["turn.lock", "writer.lock"])
    def test_a_lock_file_that_is_a_directory(self, store: Path, name: str) -> None:
        (store / name).unlink()
        (store / name).mkdir()
        with pytest.raises(StoreError, match=name):
            Memory(store)

    @pytest.mark.parametrize("name", ["turn.lock", "writer.lock", "lock.mdb"])
    def test_a_missing_lock_file_is_made_again(self, store: Path, name: str) -> None:
        (store / name).unlink()
        with remembering(store) as memory:
            assert memory.head == 2

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_directory_that_is_not_writable(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(StoreError, match="check that the directory is writable"):
            Memory(tmp_path / "store")
        tmp_path.chmod(0o700)


class TestAFailedOpening:
    """It gives everything back: the next opening of the same path works."""

    @pytest.mark.parametrize(
        "options",
        [
            {"clear_scratchpads_on_open": 1},
            {"window_tokens": 0},
            {"timezone": "Nowhere/Land"},
            {"readonly": "yes"},
            {"clock_ns": 5},
            {"random_bytes": None},
            {"token_counter": 5},
        ],
        ids=str,
    )
    def test_after_a_wrong_option(self, store: Path, options: dict[str, object]) -> None:
        for _ in range(2):
            with pytest.raises((InvalidInput, NotFound)):
                Memory(store, **options)  # type: ignore[arg-type]
        with Memory(store) as memory:
            assert memory.head == 2

    @pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1])
    def test_after_another_format(self, store: Path, other: int) -> None:
        patch_meta(store, b"format", msgspec.msgpack.encode(other))
        for _ in range(2):
            with pytest.raises(StoreVersion):
                Memory(store)
        patch_meta(store, b"format", msgspec.msgpack.encode(FORMAT))
        with Memory(store) as memory:
            assert memory.head == 2

    def test_after_clearing_scratchpads_failed(self, store: Path) -> None:
        def broken_clock() -> int:
            raise RuntimeError

        with Memory(store) as memory:
            memory.conversation("c").scratchpad.set("key", "value")
        for _ in range(2):
            with pytest.raises(RuntimeError):
                Memory(store, clear_scratchpads_on_open=True, clock_ns=broken_clock)
        with Memory(store) as memory:
            assert memory.conversation("c").scratchpad.get("key") == "value"

    @pytest.mark.parametrize("readonly", [False, True])
    def test_where_the_store_is_removed_meanwhile(
        self, store: Path, monkeypatch: pytest.MonkeyPatch, *, readonly: bool
    ) -> None:
        share = registry.share

        def late(path: str, *arguments: Any, **options: Any) -> Any:
            shutil.rmtree(path)
            return share(path, *arguments, **options)

        monkeypatch.setattr(directory, "share", late)
        with pytest.raises(StoreError, match="was moved or removed while it was opened"):
            Memory(store, readonly=readonly)

    def test_no_descriptor_is_left_open(self, store: Path, tmp_path: Path) -> None:
        descriptors = Path("/proc/self/fd")
        if not descriptors.exists():
            pytest.skip("this system does not list a process's open files")
        (tmp_path / "file").write_text("")
        before = len(list(descriptors.iterdir()))
        for path, options in (
            (store, {"readonly": True}),
            (store, {}),
            (tmp_path / "file", {}),
            (store, {"readonly": 5}),
        ):
            try:
                Memory(path, **options).close()
            except (StoreError, InvalidInput):
                continue
        assert len(list(descriptors.iterdir())) == before


class TestASecondWriter:
    def test_in_another_process_may_open(self, store: Path) -> None:
        with Child(HOLDER, str(store), "write") as child:
            assert child.read() == "open"
            with Memory(store) as memory:
                memory.conversation("c").append("user", "beside it", tokens=1)
                assert memory.head == 3

    def test_may_open_once_the_holder_was_killed(self, store: Path) -> None:
        with Child(HOLDER, str(store), "write") as child:
            assert child.read() == "open"
            child.write("append acknowledged")
            assert child.read() == "3 2"
            child.kill()
            with remembering(store) as memory:
                assert [message.content for message in memory.conversation("c").window()] == ["hello", "acknowledged"]

    def test_may_open_after_one_that_was_dropped_in_a_cycle(self, store: Path) -> None:
        gc.disable()
        try:
            dropped: list[object] = [Memory(store)]
            dropped.append(dropped)
            del dropped
            with Memory(store) as memory:
                memory.conversation("c").append("user", "again", tokens=1)
                assert [message.content for message in memory.conversation("c").window()] == ["hello", "again"]
        finally:
            gc.enable()

    def test_may_open_after_a_close(self, store: Path) -> None:
        first = Memory(store)
        first.close()
        first.close()
        with Memory(store) as second:
            assert second.head == 2


class TestReaders:
    def test_in_the_same_process_are_free_and_follow(self, store: Path) -> None:
        with Memory(store) as writer, Memory(store, readonly=True) as reader, Memory(store, readonly=True) as other:
            chat = reader.conversation("c")
            assert [message.content for message in chat.window()] == ["hello"]
            writer.conversation("c").append("user", "again", tokens=1)
            writer.conversation("new").scratchpad.set("key", "value")
            assert [message.content for message in chat.window()] == ["hello", "again"]
            assert reader.conversation("new").scratchpad.get("key") == "value"
            assert reader.conversations() == ["c", "new"]
            assert reader.head == other.head == writer.head
            assert reader.state_hash() == writer.state_hash() == other.replay_hash()
            assert reader.verify().ok

    def test_follow_across_checkpoints(self, store: Path) -> None:
        with Memory(store) as writer, Memory(store, readonly=True) as reader:
            chat = writer.conversation("c")
            for begin in range(0, 900, 300):
                with writer.batch():
                    for place in range(300):
                        chat.append("user", f"{begin + place}", tokens=1)
                        chat.scratchpad.set(f"key {place % 7}", f"{begin}")
                assert reader.state_hash() == writer.state_hash()
                assert reader.conversation("c").token_count() == chat.token_count()
                assert len(list(reader.conversation("c").events())) == chat.version
                assert (
                    reader.conversation("c").at(writer.head - 5).token_count() == chat.at(writer.head - 5).token_count()
                )
            assert_sound(reader)

    def test_outlive_the_writer(self, store: Path) -> None:
        writer = Memory(store)
        reader = Memory(store, readonly=True)
        writer.conversation("c").append("user", "again", tokens=1)
        writer.close()
        assert reader.conversation("c").token_count() == 2
        with Memory(store) as next_writer:
            next_writer.conversation("c").append("user", "more", tokens=1)
            assert reader.conversation("c").token_count() == 3
        reader.close()

    def test_follow_a_writer_in_another_process(self, store: Path) -> None:
        with Child(HOLDER, str(store), "write") as child, Memory(store, readonly=True) as reader:
            assert child.read() == "open"
            for count in range(2, 6):
                child.write("append word")
                assert child.read() == f"{count + 1} {count}"
                assert (reader.head, reader.conversation("c").token_count()) == (count + 1, count)
            assert_sound(reader)

    def test_in_another_process_follow_this_one(self, store: Path) -> None:
        with Child(HOLDER, str(store), "read") as child, Memory(store) as memory:
            assert child.read() == "open"
            for count in range(2, 6):
                memory.conversation("c").append("user", "word", tokens=1)
                child.write("look")
                assert child.read() == f"{count + 1} {count}"

    MUTATIONS: tuple[Callable[[Memory], object], ...] = (
        lambda memory: memory.conversation("c").append("user", "x"),
        lambda memory: memory.conversation("c").scratchpad.set("k", "v"),
        lambda memory: memory.conversation("c").clear_window(),
        lambda memory: memory.conversation("c").snapshot("name"),
        lambda memory: memory.conversation("c").fork("d"),
        lambda memory: memory.profile().set("k", "v"),
        lambda memory: memory.journal().append("x"),
        lambda memory: memory.batch().__enter__(),
        lambda memory: memory.load("absent"),
    )

    @pytest.mark.parametrize("mutate", MUTATIONS)
    def test_change_nothing(self, store: Path, mutate: Callable[[Memory], object]) -> None:
        with Memory(store, readonly=True) as reader:
            with pytest.raises(ReadOnly, match="without readonly=True"):
                mutate(reader)
            assert reader.head == 2

    def test_leave_the_file_as_it_is(self, store: Path) -> None:
        before = (store / "data.mdb").read_bytes()
        with Memory(store, readonly=True) as reader:
            reader.conversation("c").window()
            reader.state_hash()
            reader.verify()
            reader.flush()
        assert (store / "data.mdb").read_bytes() == before


class TestAloneOrTogether:
    """Writers share a store, except with one that took it for itself alone."""

    @pytest.mark.parametrize("mine", ["durable", "delayed"])
    def test_beside_one_that_is_alone_is_told_by_whom(self, store: Path, mine: Literal["durable", "delayed"]) -> None:
        with Child(OPENED_ALONE, str(store)) as child:
            assert child.read() == "open"
            with pytest.raises(
                StoreBusy, match=rf"process {child.pid} holds the store .* for itself alone .* or open this one with "
            ):
                Memory(store, durability=mine)
            with Memory(store, readonly=True) as reader:
                assert reader.head == 2
            child.kill()
        Memory(store, durability=mine).close()

    def test_alone_beside_others_is_told_what_to_do(self, store: Path) -> None:
        Memory(store, durability="delayed").close()
        with Child(HOLDER, str(store), "write") as child:
            assert child.read() == "open"
            with pytest.raises(StoreBusy, match=r"other processes write .* wants it for itself alone; close it there"):
                Memory(store, durability="delayed")
            with Memory(store) as memory:
                assert memory.head == 2
        Memory(store, durability="delayed").close()

    def test_alone_may_open_beside_readers(self, store: Path) -> None:
        with Child(HOLDER, str(store), "read") as child, Memory(store, readonly=True):
            assert child.read() == "open"
            Memory(store, durability="delayed").close()

    def test_in_one_process_there_is_one_writer_alone_or_not(self, store: Path) -> None:
        durabilities: tuple[Literal["durable", "delayed"], ...] = ("durable", "delayed")
        for one in durabilities:
            with Memory(store, durability=one):
                other = next(each for each in durabilities if each != one)
                with pytest.raises(StoreBusy, match=f"with another durability: {one!r}, not {other!r}; give the same"):
                    Memory(store, durability=other)
                Memory(store, durability=one).close()

    @pytest.mark.parametrize("round_number", range(3))
    def test_two_create_at_once_and_neither_breaks_the_other(self, tmp_path: Path, round_number: int) -> None:
        path = tmp_path / f"store-{round_number}"
        with Child(OPENER, str(path)) as one, Child(OPENER, str(path)) as two:
            one.write("go")
            two.write("go")
            assert (one.read(), two.read()) == ("opened", "opened")
        with remembering(path) as memory:
            memory.conversation("c").append("user", "first", tokens=1)
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_child_killed_in_mid_append_leaves_what_was_acknowledged(tmp_path: Path) -> None:
    program = """
import sys
from refold import Memory
memory = Memory(sys.argv[1])
chat = memory.conversation("c")
for number in range(100_000):
    chat.append("user", str(number), tokens=1)
    print(number, flush=True)
"""
    with Child(program, str(tmp_path / "store")) as child:
        acknowledged = [child.read() for _ in range(20)]
        os.kill(child.pid, signal.SIGKILL)
        acknowledged += iter(child.read, "")
    with remembering(tmp_path / "store") as memory:
        contents = [message.content for message in memory.conversation("c").window()]
        assert contents[: len(acknowledged)] == acknowledged
        assert len(contents) - len(acknowledged) in {0, 1}


def test_a_store_that_appears_between_two_looks_is_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes create at once: the second looks for the file, then at the directory that the first renamed."""
    Memory(tmp_path / "store").close()
    looks = iter([False])
    isfile = os.path.isfile
    monkeypatch.setattr(os.path, "isfile", lambda path: next(looks, None) is None and isfile(path))
    with Memory(tmp_path / "store") as memory:
        assert memory.head == 0


class TestAStoreOfAnotherUser:
    """It is neither damaged nor of another version."""

    def test_its_file_may_not_be_opened(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class DeniedError(lmdb.Error):
            code = errno.EACCES  # type: ignore[misc]

        def refused(path: str, **_: Any) -> lmdb.Environment:
            raise DeniedError(f"{path}: Permission denied")

        monkeypatch.setattr(lmdb, "open", refused)
        with pytest.raises(StoreError, match="this user may not do that; check who owns its files") as raised:
            Memory(store)
        assert type(raised.value) is StoreError
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(StoreError, match="this user may not do that"):
            report_of(str(store), raised.value)

    def test_its_directory_may_not_be_listed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(path: Any) -> list[str]:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

        monkeypatch.setattr(os, "listdir", refused)
        for readonly in (False, True):
            with pytest.raises(StoreError, match=r"opening .*Permission denied.*check who owns it"):
                Memory(tmp_path, readonly=readonly)


_QUIET_SECONDS = 2.1
"""Behind which a directory that was not changed is believed by its times."""


def _moved_and_copied(store: Path, other: Path) -> None:
    store.rename(store.with_name("elsewhere"))
    shutil.copytree(other, store)


def _made_anew(store: Path, other: Path) -> None:
    """In the same directory, whose number is thus the same."""
    for path in store.iterdir():
        path.unlink()
    shutil.copytree(other, store, dirs_exist_ok=True)


def _file_replaced(store: Path, other: Path) -> None:
    shutil.copy(other / "data.mdb", store / "copy")
    (store / "copy").replace(store / "data.mdb")


_TAKEN: dict[str, Callable[[Path, Path], object]] = {
    "moved": lambda store, _: store.rename(store.with_name("moved-away")),
    "removed": lambda store, _: shutil.rmtree(store),
    "moved and copied": _moved_and_copied,
    "made anew": _made_anew,
    "file removed": lambda store, _: (store / "data.mdb").unlink(),
    "file renamed": lambda store, _: (store / "data.mdb").rename(store / "data.bak"),
    "file replaced": _file_replaced,
}


class TestAStoreThatIsNotWhereItWas:
    """It was moved, removed or replaced while it is open: what is at its path now is not touched."""

    @pytest.fixture(params=["moved", "removed", "replaced"])
    def displace(self, request: pytest.FixtureRequest, tmp_path: Path, store: Path) -> Callable[[], dict[str, bytes]]:
        def displaced() -> dict[str, bytes]:
            if request.param == "removed":
                shutil.rmtree(store)
            else:
                store.rename(tmp_path / "elsewhere")
            if request.param == "replaced":
                with Memory(store) as other:
                    other.conversation("c").append("user", "of another", tokens=1)
            return {path.name: path.read_bytes() for path in store.glob("*.mdb")}

        return displaced

    @pytest.mark.parametrize("durability", ["durable", "delayed"])
    def test_nothing_is_written(
        self, store: Path, displace: Callable[[], dict[str, bytes]], durability: Literal["durable", "delayed"]
    ) -> None:
        with Memory(store, durability=durability) as memory:
            memory.flush()
            left = displace()
            chat = memory.conversation("c")
            with pytest.raises(StoreError, match=rf"{store} was moved, removed or replaced, .* open it where it is"):
                memory.erase([memory.head])
            if durability == "durable":
                with pytest.raises(StoreError, match="was moved, removed or replaced"):
                    chat.append("user", "lost", tokens=1)
            assert [message.content for message in chat.window()] == ["hello"]
        assert {path.name: path.read_bytes() for path in store.glob("*.mdb")} == left

    def test_what_waits_to_be_written_is_kept_until_the_store_is_back(self, store: Path, tmp_path: Path) -> None:
        """A delayed append is acknowledged from memory: who flushes or closes learns what became of it."""
        memory = Memory(store, durability="delayed")
        memory.flush()
        store.rename(tmp_path / "elsewhere")
        memory.conversation("c").append("user", "waits", tokens=1)
        for write in (memory.flush, memory.close):
            with pytest.raises(StoreError, match=r"was moved, removed or replaced, .* kept in RAM"):
                write()
        (tmp_path / "elsewhere").rename(store)
        memory.close()
        with Memory(store) as memory:
            assert [message.content for message in memory.conversation("c").window()] == ["hello", "waits"]
            assert_sound(memory)

    def test_another_device_with_the_same_number_is_another_file(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Something was mounted over the directory."""
        stat = os.stat

        def mounted(path: Any, **options: Any) -> Any:
            found = stat(path, **options)
            fields = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
            fields["st_dev"] += str(path).startswith(str(store))
            return SimpleNamespace(**fields)

        with Memory(store) as memory:
            time.sleep(_QUIET_SECONDS)
            with monkeypatch.context() as patched:
                patched.setattr(os, "stat", mounted)
                for _ in range(2):
                    with pytest.raises(StoreError, match="was moved, removed or replaced"):
                        memory.conversation("c").append("user", "lost", tokens=1)
            assert_sound(memory)

    def test_a_file_at_its_place_is_not_asked_for_its_times(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The system would write them anew with the next commit."""
        stat, asked = os.stat, list[str]()

        def counted(path: Any, **options: Any) -> os.stat_result:
            asked.append(str(path))
            return stat(path, **options)

        with Memory(store) as memory, monkeypatch.context() as patched:
            patched.setattr(os, "stat", counted)
            memory.conversation("c").append("user", "kept", tokens=1)
        assert str(store / "data.mdb") not in asked

    def test_a_directory_in_which_nothing_changes_is_looked_through_once(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each look would let other threads have the interpreter, several times."""
        scandir, looked = os.scandir, list[str]()

        def counted(path: Any) -> Any:
            looked.append(str(path))
            return scandir(path)

        with Memory(store) as memory, monkeypatch.context() as patched:
            chat = memory.conversation("c")
            time.sleep(_QUIET_SECONDS)
            chat.append("user", "looks", tokens=1)
            patched.setattr(os, "scandir", counted)
            chat.append("user", "need not look", tokens=1)
            assert looked == []
            (store / "new").touch()
            chat.append("user", "looks again", tokens=1)
            assert looked == [str(store)]

    def test_whatever_takes_the_file_away_is_seen_after_a_quiet_time_too(self, tmp_path: Path) -> None:
        """Also where the directory is given the times back that it had, as ``rsync`` and ``cp -a`` do."""
        stores = {name: tmp_path / name for name in _TAKEN}
        with ExitStack() as stack:
            chats = {name: stack.enter_context(Memory(path)).conversation("c") for name, path in stores.items()}
            Memory(tmp_path / "other").close()
            time.sleep(_QUIET_SECONDS)
            for name, take in _TAKEN.items():
                for content in ("looks", "need not look"):
                    chats[name].append("user", content, tokens=1)
                times = stores[name].stat()
                take(stores[name], tmp_path / "other")
                if stores[name].exists():
                    os.utime(stores[name], ns=(times.st_atime_ns, times.st_mtime_ns))
                with pytest.raises(StoreError, match="was moved, removed or replaced"):
                    chats[name].append("user", "lost", tokens=1)

    @pytest.mark.parametrize("options", [{}, {"readonly": True}, {"durability": "delayed"}], ids=str)
    @pytest.mark.parametrize("name", ["data.mdb", "lock.mdb", "turn.lock", "writer.lock", "ballast"])
    def test_a_link_in_a_store_is_not_followed(
        self, tmp_path: Path, store: Path, name: str, options: dict[str, Any]
    ) -> None:
        """A store that came from elsewhere may name any file of its user."""
        (tmp_path / "precious").write_bytes((store / "data.mdb").read_bytes() if name == "data.mdb" else b"precious")
        before = (tmp_path / "precious").read_bytes()
        (store / name).unlink(missing_ok=True)
        (store / name).symlink_to(tmp_path / "precious")
        is_opened = name == "ballast" or (options.get("readonly") and name == "writer.lock")
        with nullcontext() if is_opened else pytest.raises((StoreError, StoreVersion)):
            Memory(store, **options).close()
        with suppress(StoreError):
            recover(store, tmp_path / "new")
        assert (tmp_path / "precious").read_bytes() == before


def test_a_writer_that_waits_for_a_read_of_the_whole_log_keeps_no_other_store_from_opening(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Memory(path) as memory:
        memory.conversation("c").append("user", "one", tokens=1)
    began, goes_on, is_over = threading.Event(), threading.Event(), threading.Event()
    opened: list[str] = []

    def read() -> None:
        began.set()
        goes_on.wait(30)
        with Memory(tmp_path / "made by the reader"):  # As `recover` does.
            opened.append("reader")

    def write() -> None:
        with Memory(path) as memory:
            memory.conversation("c").append("user", "two", tokens=1)
            opened.append("writer")

    def open_another() -> None:
        with Memory(tmp_path / "another"):
            opened.append("another")
        is_over.set()

    with Memory(path, readonly=True) as reader:
        log = log_of(reader)
        environment: Any = log.durability
        threads = [threading.Thread(target=lambda: log.in_snapshot(read), daemon=True)]
        threads[0].start()
        assert began.wait(30)
        threads += [threading.Thread(target=work, daemon=True) for work in (write, open_another)]
        threads[1].start()
        while not environment.writers:  # From then on it waits for the read.
            time.sleep(0.001)
        threads[2].start()
        assert is_over.wait(30)
        goes_on.set()
        for thread in threads:
            thread.join(30)
        assert opened == ["another", "reader", "writer"]
        assert reader.conversation("c").token_count() == 2
