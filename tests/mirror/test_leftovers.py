"""What stands where a mirror puts files for a moment: nothing of it is lost, and no mirror is stopped by it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refold import InvalidInput, Memory, StoreError
from refold.mirror import files, mirror
from refold.text import blake2b
from tests.mirror.files import STATE, day_path, everything, facts_in, kept, put_facts
from tests.support.memories import refused, remembering

DAY = "2026-11-21"
SWAP = ".refold-swap-profile.json"


@pytest.fixture
def memory() -> Iterator[Memory]:
    with remembering() as memory:
        memory.profile().set("theme", "dark")
        yield memory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


@pytest.fixture(autouse=True)
def _rounds_are_the_test_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror.Mirror, "_poll", lambda _: None)


def make_folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("by hand", encoding="utf-8")


def make_link(path: Path) -> None:
    (path.parent / "target").write_text("by hand", encoding="utf-8")
    path.symlink_to("target")


@pytest.mark.parametrize("make", [make_folder, make_link])
def test_what_is_no_file_may_come_while_a_file_is_replaced(
    memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    exchanged, waiting = files.exchange, [make]

    def meanwhile(folder: int, one: str, other: str) -> bool:
        if waiting:
            (directory / "profile.json").unlink()
            waiting.pop()(directory / "profile.json")
        return exchanged(folder, one, other)

    with memory.mirror(directory) as mirror:
        monkeypatch.setattr(files, "exchange", meanwhile)
        for theme in ("light", "blue"):
            memory.profile().set("theme", theme)
            (problem,) = mirror.sync().problems
            assert problem.file == "profile.json"
        assert not waiting
        assert b"by hand" in everything(directory)
        assert {path.name for path in directory.rglob(".refold-*")} == STATE
        path = directory / "profile.json"
        path.rename(directory / "mine")
        assert mirror.sync().ok
        assert facts_in(directory) == {"theme": "blue"}


@pytest.mark.parametrize("make", [make_folder, make_link])
def test_what_is_no_file_may_stand_in_the_way_of_one(
    memory: Memory, directory: Path, make: Callable[[Path], None]
) -> None:
    memory.mirror(directory).close()
    make(directory / SWAP)
    with memory.mirror(directory) as mirror:
        (directory / "target").unlink(missing_ok=True)
        make(directory / SWAP)
        memory.profile().set("theme", "light")
        assert mirror.sync().ok
        assert facts_in(directory) == {"theme": "light"}
    assert b"by hand" in everything(directory)
    assert {path.name for path in directory.rglob(".refold-*")} == STATE


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_directory_that_is_removed_under_its_mirror_is_told(
    memory: Memory, directory: Path, *, is_made_again: bool
) -> None:
    mirror = memory.mirror(directory)
    shutil.rmtree(directory)
    if is_made_again:
        directory.mkdir()
        put_facts(directory, {"theme": "dark", "pet": "cat"})
    for call in (mirror.sync, mirror.check, mirror.close):
        with pytest.raises(StoreError, match="open the mirror again"):
            call()
    with memory.mirror(directory):
        assert facts_in(directory) == {"theme": "dark"} | ({"pet": "cat"} if is_made_again else {})


def test_a_file_that_could_not_be_put_back_is_kept_by_the_next_round(memory: Memory, directory: Path) -> None:
    with memory.mirror(directory) as mirror:
        (directory / SWAP).write_text('{"theme": "by hand"}', encoding="utf-8")
        memory.profile().set("theme", "light")
        mirror.sync()
        (conflict,) = mirror.sync().conflicts
        assert kept(directory) == {conflict.kept: '{"theme": "by hand"}'}


def test_a_crash_may_leave_a_file_over_the_bound(
    memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.mirror(directory).close()
    monkeypatch.setattr(files, "MIRROR_FILE_BYTES_MAX", 100)
    (directory / SWAP).write_bytes(b"x" * 1_000)
    with memory.mirror(directory) as mirror:
        (conflict,) = mirror.report.conflicts
        assert kept(directory) == {conflict.kept: "x" * 1_000}


def test_what_is_written_late_into_a_file_over_the_bound_is_whole(
    memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.journal().append("x" * 1_000, day=DAY)
    with memory.mirror(directory) as mirror:
        monkeypatch.setattr(files, "MIRROR_FILE_BYTES_MAX", 100)
        with day_path(directory, DAY).open("a", encoding="utf-8") as editor:
            memory.journal().append("more", day=DAY)
            mirror.sync()
            editor.write("late words\n")
        (conflict,) = mirror.sync().conflicts
        assert kept(directory)[conflict.kept].endswith("late words\n")


def store_state(directory: Path, document: bytes) -> None:
    checksum = blake2b(document, digest_size=16).hexdigest()
    (directory / ".refold-mirror").write_bytes(f"{checksum}\n".encode() + document)


def test_the_state_of_a_newer_refold_is_refused_whatever_is_in_it(memory: Memory, directory: Path) -> None:
    memory.mirror(directory).close()
    store_state(directory, b'{"format": 2, "files": ["another way"]}')
    with refused(memory, InvalidInput, "newer refold", "format 2"):
        memory.mirror(directory)
    for document in (b"[]", b"{}", b'{"format": 1, "owner": 7}'):
        store_state(directory, document)
        with memory.mirror(directory) as mirror:
            assert mirror.report.ok


def test_a_leftover_that_nobody_wrote_is_set_aside_as_it_is(memory: Memory, directory: Path) -> None:
    memory.mirror(directory).close()
    with (directory / SWAP).open("wb") as file:
        file.truncate(60_000_000_000)  # Of holes: it takes no room of the disk.
    memory.mirror(directory).close()
    assert not (directory / SWAP).exists()
    assert max(path.stat().st_size for path in directory.iterdir()) == 60_000_000_000
