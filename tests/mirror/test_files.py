"""Files that a mirror cannot read or write, and programs that write them at the same moment: nothing is lost."""

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from refold import InvalidInput, Memory, StoreError, StoreFull
from refold.mirror import Mirror, MirrorReport, files
from refold.mirror import mirror as mirror_mirror
from tests.mirror.files import STATE, day_path, everything, facts_in, held, kept, put, put_facts, rendered, texts_of
from tests.support.memories import remembering

DAY = "2026-11-21"
WAIT_SECONDS = 60


@pytest.fixture
def memory() -> Iterator[Memory]:
    with remembering() as memory:
        memory.profile().set("theme", "dark")
        memory.journal().append("Chose LMDB.", day=DAY)
        yield memory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


@pytest.fixture
def mirror(memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """A mirror whose rounds are all done by the test."""
    monkeypatch.setattr(mirror_mirror.Mirror, "_poll", lambda _: None)
    with memory.mirror(directory) as mirror:
        yield mirror


def assert_in_step(memory: Memory, directory: Path) -> None:
    assert held(directory) == rendered(memory, [DAY])
    hidden = {path.name for path in directory.rglob(".refold-*")}
    assert hidden == STATE


# What cannot be read.

UNREADABLE = {
    "nothing": (b"", "is no JSON"),
    "half of it": (b'{\n  "theme": "li', "is no JSON"),
    "no JSON": (b"theme: light", "is no JSON"),
    "a list": (b'["theme"]', "no JSON object"),
    "a text": (b'"theme"', "no JSON object"),
    "a number": (b'{"theme": 1}', "no string"),
    "a huge number": (b'{"theme": ' + b"9" * 10_000 + b"}", "no string"),
    "a constant": (b'{"theme": NaN}', "no string"),
    "nothing as a value": (b'{"theme": null}', "no string"),
    "an object as a value": (b'{"theme": {"a": "b"}}', "no string"),
    "a key twice": (b'{"theme": "light", "pet": "cat", "theme": "blue"}', "twice"),
    "an empty key": (b'{"": "light"}', "empty"),
    "a long key": (b'{"' + b"k" * 5_000 + b'": "light"}', "KEY_BYTES_MAX"),
    "a lone surrogate": (b'{"theme": "\\ud800"}', "surrogate"),
    "no UTF-8": (b'{"theme": "\xff"}', "not UTF-8"),
    "UTF-16": ('{"theme": "light"}'.encode("utf-16"), "not UTF-8"),
    "a deep one": (b'{"theme": ' + b"[" * 200_000, "is no JSON"),
    "two": (b'{"theme": "light"}{"theme": "blue"}', "is no JSON"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_profile_that_cannot_be_read_is_left_as_it_is(
    memory: Memory, mirror: Mirror, directory: Path, case: str
) -> None:
    content, words = UNREADABLE[case]
    head = memory.head
    (directory / "profile.json").write_bytes(content)
    memory.journal().append("The day goes on.", day=DAY)
    report = mirror.sync()
    (problem,) = report.problems
    assert problem.file == "profile.json"
    assert words in problem.reason
    assert (directory / "profile.json").read_bytes() == content
    assert (memory.head, report.written) == (head + 1, ("202611/20261121.md",))
    put_facts(directory, {"theme": "light"})
    assert mirror.sync().ok
    assert memory.profile().items() == [("theme", "light")]


def test_a_note_that_is_no_text_is_left_as_it_is(memory: Memory, mirror: Mirror, directory: Path) -> None:
    day_path(directory, DAY).write_bytes(b"Chose LMDB.\n\xff\n")
    memory.profile().set("theme", "light")
    (problem,) = mirror.sync().problems
    assert "not UTF-8" in problem.reason
    assert facts_in(directory) == {"theme": "light"}
    day_path(directory, DAY).write_bytes(b"Chose LMDB.\nmended\n")
    assert mirror.sync().ok
    assert texts_of(memory, DAY) == ["Chose LMDB.", "mended"]


def test_a_file_of_no_day_is_left_as_it_is(memory: Memory, mirror: Mirror, directory: Path) -> None:
    put(directory / "202613" / "20261341.md", "never\n")
    put(directory / "202611" / "20261201.md", "in another month's folder\n")
    put(directory / "202611" / "notes.md", "not ours\n")
    no_day, elsewhere = mirror.sync().problems
    assert (no_day.file, "names no day" in no_day.reason) == ("202613/20261341.md", True)
    assert (elsewhere.file, "is no day's file by its name or its place" in elsewhere.reason) == (
        "202611/20261201.md",
        True,
    )
    assert texts_of(memory, DAY) == ["Chose LMDB."]


def test_a_file_over_the_bound_is_left_as_it_is(
    memory: Memory, mirror: Mirror, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (files, __import__("refold.mirror.merge", fromlist=[""]), _rounds()):
        monkeypatch.setattr(module, "MIRROR_FILE_BYTES_MAX", 100)
    put_facts(directory, {"theme": "x" * 100})
    (problem,) = mirror.sync().problems
    assert "MIRROR_FILE_BYTES_MAX" in problem.reason
    memory.profile().set("theme", "y" * 100)
    put(directory / "profile.json", rendered(memory, [])["profile.json"])
    assert mirror.sync().ok
    # What the log makes large is written and followed all the same; only a hand's edits of it are not taken.
    memory.profile().set("user", "Mike")
    assert mirror.sync().written == ("profile.json",)
    put_facts(directory, {"theme": "z" * 100})
    assert not mirror.sync().ok
    assert memory.profile().get("theme") == "y" * 100


def _rounds() -> Any:
    from refold.mirror import mirror

    return mirror


def link(path: Path, target: Path) -> None:
    path.unlink()
    path.symlink_to(target)


def test_links_are_not_followed(memory: Memory, mirror: Mirror, tmp_path: Path, directory: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "facts").write_text('{"theme": "stolen"}', encoding="utf-8")
    (outside / "20261122.md").write_text("stolen", encoding="utf-8")
    link(directory / "profile.json", outside / "facts")
    link(day_path(directory, DAY), outside / "20261122.md")
    (directory / "202612").symlink_to(outside, target_is_directory=True)
    memory.profile().set("theme", "light")
    memory.journal().append("In December.", day="2026-12-01")
    report = mirror.sync()
    assert [problem.file for problem in report.problems] == [
        "202611/20261121.md",
        "202612/20261201.md",
        "profile.json",
    ]
    assert all("link" in problem.reason for problem in report.problems)
    assert sorted(path.name for path in outside.iterdir()) == ["20261122.md", "facts"]
    assert (outside / "facts").read_text(encoding="utf-8") == '{"theme": "stolen"}'
    assert memory.profile().items() == [("theme", "light")]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_left_as_it_is(
    memory: Memory, mirror: Mirror, directory: Path, make: Callable[[Path], None]
) -> None:
    path = directory / "profile.json"
    path.unlink()
    make(path)
    (problem,) = mirror.sync().problems
    assert problem.file == "profile.json"
    assert memory.profile().items() == [("theme", "dark")]


# What cannot be written.


def failing(number: int, *, when: Callable[..., bool] = lambda *_: True) -> Callable[..., Any]:
    def fail(*arguments: Any, **_: Any) -> Any:
        if when(*arguments):
            raise OSError(number, os.strerror(number))
        return os.write(*arguments)

    return fail


class System:
    """The module ``os`` as the files of a mirror see it, one of its calls replaced."""

    def __init__(self, **calls: Any) -> None:
        vars(self).update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def test_a_full_disk_is_reported_and_the_files_stay_whole(
    memory: Memory, mirror: Mirror, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = held(directory)
    with monkeypatch.context() as patch:
        patch.setattr(files, "os", System(write=failing(errno.ENOSPC)))
        memory.profile().set("theme", "light")
        (problem,) = mirror.sync().problems
        assert "has space" in problem.reason
    assert held(directory) == before
    assert mirror.sync().ok
    assert_in_step(memory, directory)


def test_edits_wait_for_room_to_say_what_is_taken(
    memory: Memory, mirror: Mirror, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = memory.head
    put_facts(directory, {"theme": "light"})
    with monkeypatch.context() as patch:
        patch.setattr(files, "os", System(write=failing(errno.ENOSPC)))
        with pytest.raises(StoreFull, match="has space"):
            mirror.sync()
    assert (memory.head, facts_in(directory)) == (head, {"theme": "light"})
    assert mirror.sync().ok
    assert memory.profile().items() == [("theme", "light")]


def test_a_conflict_waits_for_room_to_be_kept(
    memory: Memory, mirror: Mirror, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.profile().set("theme", "light")
    put_facts(directory, {"theme": "blue"})
    with monkeypatch.context() as patch:
        patch.setattr(files, "os", System(write=failing(errno.EDQUOT)))
        assert not mirror.sync().ok
    assert facts_in(directory) == {"theme": "blue"}
    (conflict,) = mirror.sync().conflicts
    assert json.loads(kept(directory)[conflict.kept]) == {"theme": "blue"}
    assert_in_step(memory, directory)


def test_a_directory_that_cannot_be_written_is_refused(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> int:
        if arguments[1] & os.O_CREAT:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return os.open(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(files, "os", System(open=refuse))
        with pytest.raises(StoreError, match="check who owns it"):
            memory.mirror(tmp_path / "other")
    memory.mirror(tmp_path / "other").close()


def test_a_thread_goes_on_when_the_disk_does(memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_mirror, "_POLL_SECONDS", 0.02)
    told: list[str] = []
    is_told = threading.Event()

    def note(report: MirrorReport) -> None:
        told.extend(problem.reason for problem in report.problems)
        if told:
            is_told.set()

    with memory.mirror(directory, on_report=note) as mirror:
        with monkeypatch.context() as patch:
            patch.setattr(files, "os", System(write=failing(errno.ENOSPC)))
            memory.profile().set("theme", "light")
            assert is_told.wait(WAIT_SECONDS)
            assert facts_in(directory) == {"theme": "dark"}
        assert mirror.wait(timeout_seconds=WAIT_SECONDS)
        assert_in_step(memory, directory)
    assert len(told) == 1
    assert "has space" in told[0]


# Somebody else writes at the same moment.


def meanwhile(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object], can_exchange: bool = True) -> None:
    """Let something happen between the reading of a file and its replacement, and before each further exchange."""
    waiting, exchange = list(acts), files.exchange

    def exchanged(folder: int, one: str, other: str) -> bool:
        if waiting:
            waiting.pop(0)()
        return can_exchange and exchange(folder, one, other)

    monkeypatch.setattr(files, "exchange", exchanged)


def remove_and_write(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text, encoding="utf-8")


WAYS: dict[str, Callable[[Path, str], object]] = {
    "renamed over": put,
    "written in place": lambda path, text: path.write_text(text, encoding="utf-8"),
    "removed and written": remove_and_write,
}


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_changes_before_it_is_replaced_stays(
    memory: Memory, mirror: Mirror, directory: Path, monkeypatch: pytest.MonkeyPatch, way: str, *, can_exchange: bool
) -> None:
    def write() -> None:
        WAYS[way](directory / "profile.json", '{"theme": "dark", "pet": "cat"}')

    memory.profile().set("city", "Oslo")
    meanwhile(monkeypatch, write, can_exchange=can_exchange)
    report = mirror.sync()
    assert [(edit.name, edit.text) for edit in report.edits] == [("pet", "cat")]
    assert report.ok
    assert memory.profile().items() == [("theme", "dark"), ("city", "Oslo"), ("pet", "cat")]
    assert_in_step(memory, directory)


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def assert_both_kept(memory: Memory, directory: Path) -> None:
    everywhere = str(kept(directory)) + str(texts_of(memory, DAY))
    assert "first by hand" in everywhere
    assert "second by hand" in everywhere
    assert_in_step(memory, directory)


@pytest.mark.parametrize("way", [*WAYS, "appended"])
def test_a_file_that_changes_again_before_it_is_put_back_loses_nothing(
    memory: Memory, mirror: Mirror, directory: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The second hand may write into the mirror's own file, which stands there for an instant."""
    path = day_path(directory, DAY)
    write = (WAYS | {"appended": append})[way]
    memory.journal().append("more of the log", day=DAY)
    meanwhile(monkeypatch, lambda: put(path, "first by hand\n"), lambda: write(path, "second by hand\n"))
    for _ in range(2):
        mirror.sync()
        memory.journal().append("and more", day=DAY)
    mirror.sync()
    assert_both_kept(memory, directory)


def test_a_file_that_comes_anew_while_another_is_removed_takes_nothing_along(
    memory: Memory, mirror: Mirror, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = day_path(directory, DAY)
    holds, place = files.MirrorDirectory._holds, files.MirrorDirectory._place
    waiting = ["second by hand\n", "first by hand\n"]

    def held_by(tree: files.MirrorDirectory, folder: int, name: str, *rest: Any) -> bool:
        if len(waiting) == 2:
            put(path.with_name(f"{files.SWAP}{path.name}"), waiting.pop())
        return holds(tree, folder, name, *rest)

    def placed(tree: files.MirrorDirectory, folder: int, swap: str, base: str) -> bool:
        if len(waiting) == 1:
            append(path, waiting.pop())
        return place(tree, folder, swap, base)

    monkeypatch.setattr(files.MirrorDirectory, "_holds", held_by)
    monkeypatch.setattr(files.MirrorDirectory, "_place", placed)
    memory.erase([recorded.stamp.seq for recorded in memory.events() if hasattr(recorded.event, "day")])
    mirror.sync()
    assert not waiting
    assert_both_kept(memory, directory)


def test_an_edit_that_was_taken_may_be_taken_back_at_once(
    memory: Memory, mirror: Mirror, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two the log has it already, and the file has it no more."""
    before = (directory / "profile.json").read_text(encoding="utf-8")
    memory.profile().set("city", "Oslo")
    put_facts(directory, {"theme": "light"})
    meanwhile(monkeypatch, lambda: put(directory / "profile.json", before))
    report = mirror.sync()
    assert [(edit.name, edit.text) for edit in report.edits] == [("theme", "light"), ("theme", "dark")]
    assert memory.profile().items() == [("theme", "dark"), ("city", "Oslo")]
    assert_in_step(memory, directory)


def test_a_file_that_is_removed_before_it_is_replaced_is_written(
    memory: Memory, mirror: Mirror, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.profile().set("theme", "light")
    meanwhile(monkeypatch, (directory / "profile.json").unlink)
    assert mirror.sync().ok
    assert_in_step(memory, directory)


def test_a_program_that_has_a_replaced_file_open_loses_nothing(memory: Memory, mirror: Mirror, directory: Path) -> None:
    path = day_path(directory, DAY)
    with path.open("a", encoding="utf-8") as editor:
        memory.journal().append("From the log.", day=DAY)
        mirror.sync()
        editor.write("Written too late.\n")
    (conflict,) = mirror.sync().conflicts
    assert "Written too late." in kept(directory)[conflict.kept]
    assert_in_step(memory, directory)


def test_a_program_may_write_to_a_replaced_file_for_as_long_as_it_has_it_open(
    memory: Memory, mirror: Mirror, directory: Path
) -> None:
    """However many rounds that lasts: each copy has all of the one before, which goes, unless a hand has changed it."""
    path = day_path(directory, DAY)
    with path.open("a", encoding="utf-8") as editor:
        memory.journal().append("From the log.", day=DAY)
        mirror.sync()
        assert mirror.sync().conflicts == ()
        for text in ("one\n", "two\n"):
            editor.write(text)
            editor.flush()
            (conflict,) = mirror.sync().conflicts
            (content,) = kept(directory).values()
        assert content.endswith("one\ntwo\n")
        (directory / conflict.kept).write_text("mine now", encoding="utf-8")
        editor.write("three\n")
        memory.journal().append("Again from the log.", day=DAY)
        mirror.sync()
        assert mirror.sync().conflicts == ()
    (conflict,) = mirror.sync().conflicts
    assert kept(directory).pop(conflict.kept).endswith("one\ntwo\nthree\n")
    assert "mine now" in kept(directory).values()
    assert mirror._rounds.directory.replaced == []
    assert_in_step(memory, directory)


def test_what_is_written_late_is_seen_without_any_other_change(
    memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_mirror, "_POLL_SECONDS", 3_600)
    with memory.mirror(directory) as mirror:
        with day_path(directory, DAY).open("a", encoding="utf-8") as editor:
            memory.journal().append("From the log.", day=DAY)
            mirror.sync()
            for _ in range(3):
                mirror._poll()
            editor.write("Written too late.\n")
        mirror._poll()
        (content,) = kept(directory).values()
    assert content.endswith("Written too late.\n")


def test_what_is_written_in_parts_is_taken_when_it_is_whole(
    memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open mirror leaves a file alone that changed since its last look."""
    monkeypatch.setattr(mirror_mirror, "_POLL_SECONDS", 3_600)
    path = day_path(directory, DAY)
    with memory.mirror(directory) as mirror:
        mirror._poll()
        for text in ("One half of a sent", "ence, and the other.\n"):
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
            mirror._poll()
        assert texts_of(memory, DAY) == ["Chose LMDB."]
        mirror._poll()
        assert texts_of(memory, DAY) == ["Chose LMDB.", "One half of a sentence, and the other."]


def test_a_log_that_moves_while_edits_are_taken_is_looked_at_again(
    memory: Memory, mirror: Mirror, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = ["blue"]
    batch = Memory.batch

    def moved(self: Memory) -> Any:
        if waiting:
            self.profile().set("theme", waiting.pop())
        return batch(self)

    monkeypatch.setattr(Memory, "batch", moved)
    put_facts(directory, {"theme": "light", "pet": "cat"})
    report = mirror.sync()
    assert [(conflict.hand, conflict.log) for conflict in report.conflicts] == [("light", "blue")]
    assert memory.profile().items() == [("theme", "blue"), ("pet", "cat")]
    assert_in_step(memory, directory)


def test_a_crash_leaves_a_file_that_nobody_knows_beside(memory: Memory, directory: Path) -> None:
    memory.mirror(directory).close()
    put(directory / "202611" / ".refold-swap-20261121.md", "somebody's work\n")
    put(directory / ".refold-new-profile.json", "half a fi")
    with memory.mirror(directory) as mirror:
        (conflict,) = mirror.report.conflicts
    assert kept(directory) == {conflict.kept: "somebody's work\n"}
    assert b"half a fi" not in everything(directory)
    assert_in_step(memory, directory)


@pytest.mark.parametrize("timeout", ["x", float("nan"), -1])
def test_a_time_to_wait_that_is_none_is_refused(mirror: Mirror, timeout: Any) -> None:
    for wait in (mirror.join, partial(mirror.wait, 10**6)):
        with pytest.raises(InvalidInput, match="timeout_seconds"):
            wait(timeout)
    assert not mirror.join(0)


STRAYS = ("202602/20260103.md", "202601/20260104.MD", "202601/20260105 copy.md", "20260110.md")


def test_a_file_that_only_looks_like_a_day_is_named_and_left_alone(
    memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_mirror, "_POLL_SECONDS", 3_600)
    reports: list[MirrorReport] = []
    with memory.mirror(directory, on_report=reports.append) as mirror:
        assert mirror.check().problems == ()
        reports.clear()
        for name in STRAYS:
            put(directory / name, "not a day\n")
        for _ in range(3):
            mirror._poll()
        (report,) = reports
        assert [problem.file for problem in report.problems] == sorted(STRAYS)
        assert "is not read; one of a day is YYYYMM/YYYYMMDD.md" in report.problems[0].reason
        put(day_path(directory, DAY), "# 2026-11-21\n\nChose LMDB.\n\nBy hand.\n")
        report = mirror.sync()
        assert len(report.edits) == 1
        assert (
            [problem.file for problem in report.problems]
            == sorted(STRAYS)
            == [problem.file for problem in mirror.check().problems]
        )
        for name in STRAYS:
            (directory / name).unlink()
        assert mirror.sync().problems == ()
    assert_in_step(memory, directory)
