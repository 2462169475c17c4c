"""The fold that ``verify`` makes beside the log: what it holds checkpoint rows against, and what it keeps in RAM."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import msgspec
import pytest

from refold import Memory, Report, StoreCorrupt, fold
from refold.engine.fold_check import FoldCheck
from refold.engine.walk import Page
from refold.limits import CHECKPOINT_EVENTS
from tests.support.memories import Clock

EVENTS = 2 * CHECKPOINT_EVENTS + 20
"""Messages that leave a stream two kept checkpoint rows and one behind them."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Memory(tmp_path / "store", window_tokens=50, clock_ns=Clock()) as memory, memory.batch():
        for number in range(EVENTS):
            memory.conversation("chat").append("user", f"hello {number}", tokens=1)
            memory.conversation("chat").scratchpad.set("key", str(number)) if number % 100 == 0 else None
    return tmp_path / "store"


def report_of(store: Path) -> Report:
    with Memory(store, readonly=True) as memory:
        return memory.verify()


def rewrite(store: Path, place: int, change: Any) -> None:
    """Changes what a checkpoint row of the conversation holds inline."""
    with lmdb.open(str(store), max_dbs=16) as env:
        database = env.open_db(b"checkpoints")
        with env.begin(write=True, db=database) as txn:
            key, packed = [row for row in txn.cursor() if any(row[0])][place]
            row = msgspec.msgpack.decode(packed)
            row[2] = change(row[2])
            txn.put(key, msgspec.msgpack.encode(row))


def widened(inline: bytes) -> bytes:
    """Returns the same array with a longer head: other bytes, the same state."""
    assert inline[0] & 0xF0 == 0x90
    return b"\xdd" + (inline[0] & 0x0F).to_bytes(4, "big") + inline[1:]


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_row_that_holds_the_state_in_other_bytes_is_sound(store: Path, place: int) -> None:
    before = report_of(store)
    rewrite(store, place, widened)
    assert report_of(store) == before
    assert before.ok


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_row_that_holds_another_state_is_found(store: Path, place: int) -> None:
    rewrite(store, place, lambda inline: inline.replace(b"\x32", b"\x33", 1))
    assert [finding.check for finding in report_of(store).findings] == ["checkpoint"]


def test_rows_are_read_as_an_opening_reads_them(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that writes the right rows and reads them wrongly is found, too."""
    unpack = fold.unpack
    monkeypatch.setattr(fold, "unpack", lambda kind, inline, events: unpack(kind, inline, events[:0]))
    assert {finding.check for finding in report_of(store).findings} == {"checkpoint"}


def test_streams_that_came_to_their_end_leave_ram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(tmp_path / "store", clock_ns=Clock()) as memory, memory.batch():
        for number in range(300):
            for turn in range(10):
                memory.conversation(f"chat-{number:03d}").append("user", f"hello {turn}", tokens=1)
    held: list[int] = []
    take = FoldCheck.take

    def counted(refolding: FoldCheck, page: Page) -> None:
        take(refolding, page)
        held.append(len(refolding._streams))

    monkeypatch.setattr(FoldCheck, "take", counted)
    with Memory(tmp_path / "store", readonly=True) as memory:
        report = memory.verify()
        assert report.ok
        assert report.streams == 300
        assert report.state_hash == memory.state_hash() == memory.replay_hash()
    assert len(held) > 10
    assert max(held) <= 1


def test_a_stream_that_goes_on_behind_its_last_row_is_told_of_once(store: Path) -> None:
    with lmdb.open(str(store), max_dbs=16) as env:
        database = env.open_db(b"checkpoints")
        with env.begin(write=True, db=database) as txn:
            key = next(key for key in reversed([row[0] for row in txn.cursor()]) if any(key))
            txn.delete(key)
    findings = report_of(store).findings
    assert [finding.check for finding in findings] == ["head"]
    assert "chat" in findings[0].message


def leaves(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Returns the paths to all that is no list in a value."""
    if not isinstance(value, list):
        yield path
        return
    for place, item in enumerate(value):
        yield from leaves(item, (*path, place))


def with_a_float(value: Any, path: tuple[int, ...]) -> Any:
    """Returns a value with a number that no view packs at the end of the path."""
    if not path:
        return 0.5
    return [with_a_float(item, path[1:]) if place == path[0] else item for place, item in enumerate(value)]


def test_values_of_a_kind_that_no_view_packs_are_damage_wherever_they_stand(tmp_path: Path) -> None:
    with Memory(tmp_path / "store", clock_ns=Clock()) as memory:
        chat = memory.conversation("chat")
        chat.append("user", "hello", tokens=1)
        chat.scratchpad.set("key", "value")
        chat.scratchpad.note("a note")
        chat.state["key"] = [1, 2]
    inlines: list[Any] = []

    def unchanged(inline: bytes) -> bytes:
        inlines.append(msgspec.msgpack.decode(inline))
        return inline

    rewrite(tmp_path / "store", -1, unchanged)
    paths = list(leaves(inlines[0]))
    assert len(paths) > 15
    for path in paths:
        rewrite(tmp_path / "store", -1, lambda _, path=path: msgspec.msgpack.encode(with_a_float(inlines[0], path)))
        with Memory(tmp_path / "store", readonly=True) as memory:
            with pytest.raises(StoreCorrupt, match="holds no state"):
                memory.conversation("chat").window()
            assert [finding.check for finding in memory.verify().findings] == ["checkpoint"]
