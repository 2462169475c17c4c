"""Clean copies and backups whose last steps fail: the store stays whole, and nobody is told what is not so."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from refold import Memory, StoreError, StoreFull
from refold.log import disk, witness
from refold.log.lmdb_file import DATA_FILE
from tests.support.memories import Child, assert_sound
from tests.support.seams import engine_of, log_of

TOLD: Final = "what was told that day"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("chat")
        for text in ("first", TOLD, "last"):
            chat.append("user", text, tokens=1)
    return tmp_path / "store"


def failing(call: Callable[..., Any], fails: Callable[..., bool], number: int = errno.EIO) -> Callable[..., Any]:
    """Return a call that fails where it is asked for certain things."""

    def called(*arguments: Any, **options: Any) -> Any:
        if fails(*arguments):
            raise OSError(number, os.strerror(number))
        return call(*arguments, **options)

    return called


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def holds_it(store: Path) -> bool:
    return TOLD.encode() in (store / DATA_FILE).read_bytes()


def is_data_of(store: Path) -> Callable[..., bool]:
    return lambda _, target: Path(target) == store / DATA_FILE


COLLECTED = """
import gc, os, sys
from refold import Memory
gc.disable()
dropped = [Memory(sys.argv[2])]
dropped[0].close()
dropped.append(dropped)
del dropped
with Memory(sys.argv[1]) as memory:
    rename = os.rename
    def renamed(source, target):
        if target == os.path.join(sys.argv[1], "data.mdb"):
            gc.collect()
        rename(source, target)
    os.rename = renamed
    memory.erase([3])
    print(memory.head, flush=True)
"""


def test_a_handle_that_is_collected_while_the_file_is_replaced_does_not_wait_for_that(
    store: Path, tmp_path: Path
) -> None:
    with Child(COLLECTED, str(store), str(tmp_path / "dropped")) as child:
        assert child.read() == "5"
    assert not holds_it(store)


REPLACED_AND_WRITTEN = """
import sys
from refold import Memory
from tests.support.seams import log_of
with Memory(sys.argv[1]) as memory:
    log_of(memory).in_turn(lambda turn: turn.write((), is_clean=True))
    print("replaced", flush=True)
    for line in sys.stdin:
        memory.conversation("other").append("user", line.strip(), tokens=1)
        print("written", flush=True)
"""


def test_who_has_the_replaced_file_open_still_reads_its_last_commit(store: Path) -> None:
    with Memory(store) as memory:
        for number in range(40):  # So that the numbers of commits need not be advanced to be continued.
            seq = memory.conversation("chat").append("user", f"message {number}", tokens=1).seq
        log = log_of(memory)
        log.last_commit()
        # From here on this process looks for no other file, as between a look and the reads behind it.
        with Child(REPLACED_AND_WRITTEN, str(store)) as child:
            assert child.read() == "replaced"
            for _ in range(4):
                assert [event.seq for event in log.events_at([seq])] == [seq]
                child.write("more")
                assert child.read() == "written"
            assert log.head() == seq
        log.last_commit()
        assert log.head() > seq


class TestACleanCopyThatFails:
    @pytest.mark.parametrize(("number", "error"), [(errno.EIO, StoreError), (errno.ENOSPC, StoreFull)])
    def test_at_the_rename_changes_nothing(
        self, store: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[StoreError]
    ) -> None:
        with Memory(store) as memory, Memory(store, readonly=True) as reader:
            with monkeypatch.context() as patch:
                patch.setattr(os, "rename", failing(os.rename, is_data_of(store), number))
                with pytest.raises(error, match="making a clean copy"):
                    memory.erase([3])
            for each in (memory, reader):
                assert [message.content for message in each.conversation("chat").window()] == ["first", TOLD, "last"]
            memory.conversation("chat").append("user", "on", tokens=1)
            assert reader.conversation("chat").window()[-1].content == "on"
            assert memory.erase([3]).occurrences == 0
            assert not holds_it(store)
            assert_sound(memory)

    def test_after_the_rename_stops_writing_until_the_store_is_opened_again(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What would be written to a file whose name is not durable, a loss of power could take."""
        with Memory(store) as memory:
            with monkeypatch.context() as patch:
                patch.setattr("refold.log.environment.flush", failing(disk.flush, lambda _: True))
                with pytest.raises(StoreError, match="putting a clean copy of the file in place"):
                    memory.erase([3])
            assert memory.conversation("chat").window()[1].erased
            with pytest.raises(StoreError, match="nothing more is written"):
                memory.conversation("chat").append("user", "on", tokens=1)
        with Memory(store) as memory:
            memory.conversation("chat").append("user", "on", tokens=1)
            assert not holds_it(store)
            assert_sound(memory)

    def test_so_leaves_the_witness_where_it_is(
        self, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What the log shows then is not told to anybody who would miss it after a loss of power."""
        with Memory(store, witness=tmp_path / "witness") as memory:
            keeping = engine_of(memory).witness
            assert keeping is not None
            keeping.advance()
            before = witness.read(str(tmp_path / "witness"))
            with monkeypatch.context() as patch:
                patch.setattr("refold.log.environment.flush", failing(disk.flush, lambda _: True))
                with pytest.raises(StoreError, match="putting a clean copy of the file in place"):
                    memory.erase([3])
            keeping.advance()
            assert witness.read(str(tmp_path / "witness")) == before
        Memory(store, witness=tmp_path / "witness").close()
        after = witness.read(str(tmp_path / "witness"))
        assert before is not None
        assert after is not None
        assert after.seq > before.seq

    def test_to_write_the_erasure_leaves_what_the_log_says(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with Memory(store) as memory:
            with monkeypatch.context() as patch:
                patch.setattr("refold.log.clean_copy.copy", no_room)
                with pytest.raises(StoreFull, match="No space"):
                    memory.erase([3])
            assert memory.conversation("chat").window()[1].content == TOLD
            assert_sound(memory)
            assert memory.erase([3]).occurrences == 0


class TestABackupThatFailsAtItsLastStep:
    def test_is_taken_away_again(self, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with Memory(store) as memory:
            with monkeypatch.context() as patch:
                patch.setattr(disk, "flush", failing(disk.flush, lambda path: Path(path) == tmp_path))
                with pytest.raises(StoreError, match="where nothing was left"):
                    memory.backup(tmp_path / "backup")
            assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
            memory.backup(tmp_path / "backup")

    def test_or_is_said_to_stand_there(self, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        backup = tmp_path / "backup"
        with Memory(store) as memory, monkeypatch.context() as patch:
            patch.setattr(disk, "flush", failing(disk.flush, lambda path: Path(path) == tmp_path))
            patch.setattr(os, "rename", failing(os.rename, lambda source, _: Path(source) == backup))
            with pytest.raises(
                StoreError, match=r"a backup stands at .*, whole, but a loss of power may still take it"
            ):
                memory.backup(backup)
        with Memory(backup) as memory:
            assert_sound(memory)
