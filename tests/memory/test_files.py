"""The files of a model: what the verbs promise beside their words, which `test_files_reference.py` compares."""

import asyncio
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import InvalidInput, LimitExceeded, Memory, NotFound, ReadOnly, RefoldError, fold
from refold.memory import Files
from refold.memory import files as files_module
from refold.memory import files as memory_files
from refold.memory.files import EDITS_COUNT_MAX, FILE_CHARS_MAX, FILES_COUNT_MAX
from refold.views.files import PATH_DEPTH_MAX
from tests.support.memories import Child, assert_sound, in_batch, interrupt, refused, remembering

PLAN = "/memories/plan.md"
LONG = "".join(f"line {number}\n" for number in range(10_000))


def planned(memory: Memory, text: str = "one\ntwo\nthree\n") -> Files:
    files = memory.files()
    files.create(PLAN, text)
    return files


# What is refused.


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/memoriesX/a", "Path must start with /memories, got: /memoriesX/a"),
        ("memories/a", "Path must start with /memories, got: memories/a"),
        ("/etc/passwd", "Path must start with /memories, got: /etc/passwd"),
        ("", "Path must start with /memories, got: "),
        ("/memories/../secret", "Path /memories/../secret would escape /memories directory"),
        ("/memories/a/../../..", "would escape /memories directory"),
        ("/memories/../../memories/a", "would escape /memories directory"),
        ("/memories/%2e%2e/secret", "%2e"),
        ("/memories/%2E%2E%2Fsecret", "%2E"),
        ("/memories/..%5Csecret", "%5C"),
        ("/memories/..\\secret", "\\"),
        ("/memories/a\0b", "\\x00"),
        ("/memories/a%00b", "%00"),
        ("/memories/a\nb", "\\n"),
        ("/memories/\ud800", "surrogate"),
    ],
)
def test_no_path_leads_out(memory: Memory, path: str, words: str) -> None:
    files = planned(memory)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: files.view(path),
        lambda: files.read(path),
        lambda: files.create(path, "x"),
        lambda: files.str_replace(path, "a", "b"),
        lambda: files.insert(path, 0, "a"),
        lambda: files.delete(path),
        lambda: files.rename(path, "/memories/new"),
        lambda: files.rename(PLAN, path),
    )
    for call in calls:
        with refused(memory, InvalidInput, words):
            call()


def test_every_bound_is_said_and_nothing_is_written(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    files = planned(memory)
    deep = "/memories/" + "/".join("d" for _ in range(PATH_DEPTH_MAX + 1))
    monkeypatch.setattr(files_module, "FILES_CHARS_MAX", 100)
    monkeypatch.setattr(files_module, "FILES_COUNT_MAX", 4)
    calls: dict[str, Callable[[], Any]] = {
        "PATH_BYTES_MAX": lambda: files.create("/memories/" + "x/" * 600, "x"),
        "PATH_NAME_BYTES_MAX": lambda: files.create("/memories/" + "x" * 256, "x"),
        "PATH_DEPTH_MAX": lambda: files.create(deep, "x"),
        "FILE_CHARS_MAX": lambda: files.create("/memories/x", "x" * (FILE_CHARS_MAX + 1)),
        "FILES_COUNT_MAX": lambda: files.create("/memories/a/b/c/d", "x"),
        "FILES_CHARS_MAX": lambda: files.create("/memories/x", "x" * 90),
        "the files would have": lambda: files.insert(PLAN, 0, "x" * 90),
    }
    for words, call in calls.items():
        with refused(memory, LimitExceeded, words):
            call()
    files.create("/memories/a/b/c", "x")
    with refused(memory, LimitExceeded, "FILES_COUNT_MAX"):
        files.rename(PLAN, "/memories/e/f")
    files.rename(PLAN, "/memories/f")
    monkeypatch.setattr(files_module, "PATH_BYTES_MAX", 19)
    with refused(memory, LimitExceeded, "a path that is moved along"):
        files.rename("/memories/a", "/memories/longer")


def test_what_an_edit_takes_away_makes_room_for_what_it_brings(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "FILES_CHARS_MAX", 20)
    files = planned(memory, "x" * 20)
    files.str_replace(PLAN, "x" * 20, "y" * 20)
    with refused(memory, LimitExceeded, "the files would have 21 characters"):
        files.str_replace(PLAN, "y" * 20, "z" * 21)
    assert files.read(PLAN) == "y" * 20


def test_no_move_puts_a_file_where_nobody_could_name_it(memory: Memory) -> None:
    files = memory.files()
    deep = "/memories/d/" + "/".join("d" * (PATH_DEPTH_MAX - 2))
    files.create(f"{deep}/x", "x")
    with refused(memory, LimitExceeded, "a path that is moved along", f"PATH_DEPTH_MAX = {PATH_DEPTH_MAX}"):
        files.rename("/memories/d", "/memories/e/f")
    files.rename("/memories/d", "/memories/e")
    assert files.read(files.list()[0].path) == "x"


def test_a_file_of_more_lines_than_have_numbers_is_not_shown(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    files = planned(memory)
    monkeypatch.setattr(memory_files, "LINES_COUNT_MAX", 3)
    with refused(memory, LimitExceeded, f"File {PLAN} exceeds maximum line limit of 3 lines."):
        files.view(PLAN)


def test_a_text_that_stands_everywhere_names_the_first_lines_only(memory: Memory) -> None:
    files = planned(memory, "x\n" * 50_000)
    with refused(memory, InvalidInput, "lines: 1, 2, 3,", " 1000. Please ensure it is unique"):
        files.str_replace(PLAN, "x", "y")


def test_a_move_into_itself_and_a_way_through_a_file_are_refused(memory: Memory) -> None:
    files = planned(memory)
    files.create("/memories/d/x", "x")
    with refused(memory, InvalidInput, "inside of it"):
        files.rename("/memories/d", "/memories/d/e/f")
    for path in (f"{PLAN}/x", f"{PLAN}/x/y"):
        with refused(memory, InvalidInput, f"The path {PLAN} is a file"):
            files.create(path, "x")
        with refused(memory, InvalidInput, f"The path {PLAN} is a file"):
            files.rename("/memories/d", path)


# What a model is told, letter by letter; `test_files_reference.py` compares it with the reference.


def numbered(*lines: int) -> str:
    return "\n".join(f"{line:>6}\t{line}" for line in lines)


def told_by(memory: Memory, error: type[RefoldError], call: Callable[[], object]) -> str:
    with refused(memory, error):
        try:
            call()
        except error as raised:
            words = str(raised)
            raise
    return words


def test_the_words_are_those_of_the_contract(memory: Memory) -> None:
    files, header = memory.files(), "The memory file has been edited. Here is the snippet showing the change"
    nine = "\n".join(map(str, range(1, 10)))
    assert files.create("/memories/n", nine) == "File created successfully at: /memories/n"
    assert files.view("/memories/n", [2, 3]) == (
        f"Here's the content of /memories/n with line numbers:\n{numbered(2, 3)}"
    )
    for changed, lines in (("1", (1, 2, 3)), ("5", (3, 4, 5, 6, 7)), ("8", (6, 7, 8, 9)), ("9", (7, 8, 9))):
        assert files.str_replace("/memories/n", changed, changed) == (
            f"{header} (with line numbers):\n{numbered(*lines)}"
        )
    assert files.insert("/memories/n", 9, "10") == "The file /memories/n has been edited."
    files.create("/memories/d/e/f", "x" * 1_536)
    files.create("/memories/.hidden", "")
    assert files.view("/memories") == (
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items:\n"
        "1.5K\t/memories\n1.5K\t/memories/d/\n1.5K\t/memories/d/e/\n21B\t/memories/n"
    )
    assert files.view("/memories/.hidden").endswith("     1\t")
    assert files.rename("/memories/n", "/memories/m") == "Successfully renamed /memories/n to /memories/m"
    assert files.delete("/memories/m") == "Successfully deleted /memories/m"


def test_the_refusals_are_those_of_the_contract(memory: Memory) -> None:
    files = planned(memory, "two\none\ntwo\n")
    gone, none = "/memories/gone", "No replacement was performed"
    missing = f"The path {gone} does not exist. Please provide a valid path."
    calls: dict[str, Callable[[], Any]] = {
        f"File {PLAN} already exists": lambda: files.create(PLAN, ""),
        f"{none}, old_str `x` did not appear verbatim in {PLAN}.": lambda: files.str_replace(PLAN, "x", "y"),
        f"{none}. Multiple occurrences of old_str `two` in lines: 1, 3. Please ensure it is unique": lambda: (
            files.str_replace(PLAN, "two", "y")
        ),
        "Invalid `insert_line` parameter: 4. It should be within the range [0, 3].": lambda: files.insert(PLAN, 4, ""),
        "Invalid `insert_line` parameter: -1. It should be within the range [0, 3].": lambda: files.insert(
            PLAN, -1, ""
        ),
        "Cannot delete the /memories directory itself": lambda: files.delete("/memories/"),
        "Cannot rename the /memories directory itself": lambda: files.rename("/memories", gone),
        f"The destination {PLAN} already exists": lambda: files.rename(PLAN, PLAN),
        "The path /memories is not a file.": lambda: files.insert("/memories", 0, ""),
    }
    for words, call in calls.items():
        assert told_by(memory, InvalidInput, call) == words
    for lacking in (files.view, files.read, lambda path: files.insert(path, 0, "")):
        assert told_by(memory, NotFound, lambda call=lacking: call(gone)) == missing  # type: ignore[misc]
    for vanished in (files.delete, lambda path: files.rename(path, "/memories/new")):
        words = f"The path {gone} does not exist"
        assert told_by(memory, NotFound, lambda call=vanished: call(gone)) == words  # type: ignore[misc]


# What is written.


def test_an_edit_of_a_long_file_is_a_short_event(memory: Memory) -> None:
    files = planned(memory, LONG)
    files.str_replace(PLAN, "line 5000\n", "line 5000, changed\n")
    files.insert(PLAN, 7_000, "inserted")
    files.create("/memories/ragged", LONG + "no newline")
    files.insert("/memories/ragged", 10_001, "last")
    sizes = [len(fold.encode(event)) for event, _ in memory.events()]
    assert sizes[0] > len(LONG)
    assert max(sizes[1], sizes[2], sizes[4]) < 120


def test_reading_a_file_never_takes_more_than_so_many_events(memory: Memory, reopen: Callable[[], Memory]) -> None:
    files = planned(memory, LONG)
    for number in range(2 * EDITS_COUNT_MAX + 10):
        files.str_replace(PLAN, f"line {5_000 + number}\n", f"{number}\n")
    events = [recorded.event for recorded in memory.events()]
    wholes = [place for place, event in enumerate(events) if len(fold.encode(event)) > len(LONG) // 2]
    assert wholes == [0, EDITS_COUNT_MAX + 1, 2 * (EDITS_COUNT_MAX + 1)]
    text = files.read(PLAN)
    memory.flush()
    assert reopen().files().read(PLAN) == text


def test_what_changes_nothing_appends_nothing(memory: Memory) -> None:
    files = planned(memory)
    assert "     2\ttwo" in files.str_replace(PLAN, "two", "two")
    assert memory.head == 1


def test_a_difference_is_the_least_one_piece() -> None:
    texts = [
        f"{first}{middle}{last}" for first in ("", "a", "ab\n") for middle in ("", "a", "ba") for last in ("", "a\n")
    ]
    for before, after in product(texts, repeat=2):
        start, removed, text = memory_files.difference(before, after)
        assert before[:start] + text + before[start + removed :] == after
        assert start + removed <= len(before)
        if before != after and removed and text:
            assert before[start] != text[0]
            assert before[start + removed - 1] != text[-1]


# What every mutation takes.


def test_a_request_is_answered_once_with_the_words_of_then(tmp_path: Path) -> None:
    calls: dict[str, Callable[[Files], str]] = {
        "1": lambda files: files.create(PLAN, "one\ntwo\nthree\n", request_id="1"),
        "2": lambda files: files.str_replace(PLAN, "two", "2", request_id="2"),
        "3": lambda files: files.insert(PLAN, 0, "zero", request_id="3"),
        "4": lambda files: files.rename(PLAN, "/memories/a/b", request_id="4"),
        "5": lambda files: files.delete("/memories/a", request_id="5"),
        "6": lambda files: files.str_replace("/memories/gone", "x", "x", request_id="6"),
    }
    with remembering(tmp_path / "store") as memory:
        told = [calls[name](memory.files()) for name in "12345"]
    with remembering(tmp_path / "store") as memory:
        files = memory.files()
        assert [calls[name](files) for name in "12345"] == told
        with refused(memory, InvalidInput):
            files.create(PLAN, "another", request_id="1")
        with refused(memory, NotFound):
            calls["6"](files)
        assert memory.head == 5


def test_a_request_that_wrote_the_whole_file_is_answered_with_the_same_lines(memory: Memory) -> None:
    files = planned(memory, "x\n" * 50 + LONG)
    told: list[tuple[str, str]] = []
    for number in range(EDITS_COUNT_MAX + 2):
        asked = (PLAN, f"line {number}\n", "x\n")
        first = files.str_replace(*asked, request_id=f"r{number}")
        told.append((first, files.str_replace(*asked, request_id=f"r{number}")))
    assert len({first for first, _ in told}) == len(told)
    assert all(first == again for first, again in told)


def test_the_words_of_a_request_that_was_erased_are_gone(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory:
        files = planned(memory)
        files.str_replace(PLAN, "two", "2", request_id="r")
        memory.erase([2])
        assert files.str_replace(PLAN, "two", "2", request_id="r") == memory_files.EDITED
        files.create(PLAN, "x")
        assert files.str_replace(PLAN, "x", "x", request_id="nothing").endswith("     1\tx")
        assert files.str_replace(PLAN, "x", "x", request_id="nothing") == memory_files.EDITED


def test_a_batch_writes_files_as_one(memory: Memory) -> None:
    files = memory.files()
    with memory.batch():
        files.create(PLAN, "one\n")
        assert files.str_replace(PLAN, "one", "two").endswith("     1\ttwo\n     2\t")
        files.rename(PLAN, "/memories/a/b")
        assert files.read("/memories/a/b") == "two\n"
        assert [entry.seq < 0 for entry in files.list()] == [True]
        assert memory.head == 0
    assert [recorded.event.sources for recorded in memory.events()] == [(), (1,), ()]
    assert [(entry.path, entry.seq) for entry in files.list()] == [("/memories/a/b", 2)]
    with pytest.raises(ZeroDivisionError):
        in_batch(memory, lambda: files.delete("/memories/a"), interrupt)
    assert files.read("/memories/a/b") == "two\n"


# Through time.


def test_files_travel_with_everything_else(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory:
        files = planned(memory)
        files.insert(PLAN, 3, "four")
        snapshot = memory.snapshot("before")
        fork = memory.fork("other")
        fork.files().delete(PLAN)
        files.rename(PLAN, "/memories/done.md")
        then = memory.at(1).files()
        assert then.read(PLAN) == "one\ntwo\nthree\n"
        with refused(memory, ReadOnly, "frozen at seq 1"):
            then.delete(PLAN)
        assert memory.files("other").list() == fork.files().list() == []
        assert [change.path for change in memory.diff(snapshot.seq, memory)] == [(PLAN,), ("/memories/done.md",)]
        memory.restore(snapshot)
        assert files.read(PLAN) == "one\ntwo\nthree\nfour\n"
        assert memory.state_hash() == memory.state_hash(at=snapshot.seq)


def test_export_and_load_keep_the_files(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory, Memory() as other, Memory() as beside:
        planned(memory, LONG).str_replace(PLAN, "line 7\n", "seven\n")
        memory.files().create("/memories/a/b", "")
        memory.files().rename("/memories/a", "/memories/c")
        memory.files().delete("/memories/c")
        memory.export(tmp_path / "events.jsonl")
        other.load(tmp_path / "events.jsonl")
        assert other.state_hash() == assert_sound(memory)
        beside.profile().set("theme", "dark")
        beside.load(tmp_path / "events.jsonl", rename={"files/default": "files/theirs"})
        assert beside.files("theirs").read(PLAN) == memory.files().read(PLAN)
        assert_sound(beside)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"path":"/memories/a/b"', '"path":"/memories/../b"'),
        ('"path":"/memories/a/b"', '"path":"/etc/b"'),
        ('"path":"/memories/a/b"', '"path":"b"'),
        ('"path":"/memories/a/b"', '"path":""'),
        ('"path":"/memories/a/b"', '"path":"/memories"'),
        ('"path":"/memories/a/b"', '"path":"/memories/a/b/"'),
        ('"path":"/memories/a/b"', '"path":"/memories//b"'),
        ('"path":"/memories/a/b"', '"path":"/memories/a\\\\b"'),
        ('"path":"/memories/a/b"', '"path":"/memories/a\\u0000b"'),
        ('"path":"/memories/a/b"', f'"path":"/memories/{"x" * 256}"'),
        ('"path":"/memories/a/b"', f'"path":"/memories{"/x" * 33}"'),
        ('"path":"/memories/a/b"', f'"path":"/memories{("/" + "x" * 200) * 6}"'),
        ('"path":"/memories/c"', '"path":"/memories/%2e%2e/c"'),
        ('"new_path":"/memories/c"', '"new_path":"../c"'),
        ('"new_path":"/memories/c"', '"new_path":"/memories/a/c"'),
    ],
)
def test_an_export_with_a_file_where_none_can_be_is_refused(tmp_path: Path, old: str, new: str) -> None:
    with Memory() as memory:
        memory.files().create("/memories/a/b", "x")
        memory.files().rename("/memories/a", "/memories/c")
        memory.files().delete("/memories/c")
        memory.export(tmp_path / "export")
    text = (tmp_path / "export").read_text(encoding="utf-8")
    changed = text.replace(old, new)
    assert changed != text
    (tmp_path / "export").write_text(changed, encoding="utf-8")
    with remembering() as other, refused(other, InvalidInput, "seq "):
        other.load(tmp_path / "export")


def test_an_export_of_erased_files_is_read(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory, remembering() as other:
        memory.files().create("/memories/a/b", "x")
        memory.files().rename("/memories/a", "/memories/c")
        memory.files().delete("/memories/c")
        memory.erase([1, 2, 3])
        memory.export(tmp_path / "export")
        other.load(tmp_path / "export")
        assert other.state_hash() == assert_sound(memory)


@pytest.mark.parametrize("derived", ["erase", "keep"])
def test_what_is_erased_is_gone_from_the_disk(tmp_path: Path, derived: str) -> None:
    with remembering(tmp_path / "store") as memory:
        files = planned(memory, "the secret of the first line\n" * 30)
        files.insert(PLAN, 30, "the line that came after it")
        files.create("/memories/a-name-that-is-not-to-stay/x", "kept")
        files.create("/memories/kept", "kept")
        files.rename("/memories/kept", "/memories/a-place-that-is-not-to-stay")
        memory.flush()
        memory.erase([1, 3, 5], derived=derived)
        assert files.list() == []
        assert files.view("/memories").count("\n") == 1
    held = (tmp_path / "store/data.mdb").read_bytes()
    for gone in (b"secret of the first", b"a-name-that", b"a-place-that"):
        assert gone not in held
    assert (b"the line that came" in held) is (derived == "keep")


def test_tasks_write_files_too() -> None:
    async def write(memory: Memory) -> str:
        files = memory.aio.files()
        await asyncio.gather(*(files.create(f"/memories/{number}", "x") for number in range(20)))
        await files.insert("/memories/3", 1, "y")
        await files.str_replace("/memories/3", "x", "z")
        await files.rename("/memories/3", "/memories/three")
        await files.delete("/memories/4")
        assert files.name == "default"
        assert repr(files) == "AsyncFiles('default', files=19)"
        return files.read("/memories/three") + files.view("/memories/three") + files.list()[0].path

    with remembering() as memory:
        assert asyncio.run(write(memory)).startswith("z\ny\n")


WRITER = """
import sys
from refold import Memory
with Memory(sys.argv[1]) as memory:
    files = memory.files()
    for line in sys.stdin:
        files.insert("/memories/plan.md", 0, line.strip())
        files.create(f"/memories/child/{line.strip()}", "x")
        print("done", flush=True)
"""


def test_threads_and_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory:
        files = planned(memory, "")
        failed: list[BaseException] = []

        def write(name: str) -> None:
            try:
                for number in range(12):
                    files.insert(PLAN, 0, f"{name}{number}")
                    files.create(f"/memories/{name}/{number}", "x")
                    files.rename(f"/memories/{name}/{number}", f"/memories/moved/{name}{number}")
            except BaseException as error:  # noqa: BLE001 - told below
                failed.append(error)

        threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
        with Child(WRITER, str(tmp_path / "store")) as child:
            for thread in threads:
                thread.start()
            for number in range(12):
                child.write(f"c{number}")
                assert child.read() == "done"
            for thread in threads:
                thread.join()
        assert failed == []
        expected = {f"{name}{number}" for name in "abc" for number in range(12)}
        assert sorted(files.read(PLAN).split()) == sorted(expected)
        made = {entry.path.rpartition("/")[2] for entry in files.list() if entry.path != PLAN}
        assert made == expected


def test_a_tree_may_be_full() -> None:
    with remembering() as memory:
        files = memory.files()
        with memory.batch():
            for number in range(FILES_COUNT_MAX - 32):
                files.create(f"/memories/{number % 32}/{number}", "x" * 100)
        assert files.view("/memories").count("\n") == FILES_COUNT_MAX + 1
        with refused(memory, LimitExceeded, "FILES_COUNT_MAX"):
            files.create("/memories/one-more", "")


def test_a_row_of_the_checkpoints_says_which_kind_each_value_is() -> None:
    row = msgspec.msgpack.encode([([["/memories/a", 5, "x", [1]]], 0)])
    with pytest.raises(msgspec.ValidationError):
        fold.unpack("files", row, [])
    assert repr(planned(Memory())) == "Files('default', files=1)"
