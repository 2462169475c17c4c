"""A profile and a journal as files: they follow the log, and what a hand writes into them becomes events."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from refold import Closed, InvalidInput, Memory, NotFound, ReadOnly, StoreBusy
from refold.mirror import Mirror, MirrorReport, mirror
from refold.views.profile import JournalAppended, ProfileDeleted, ProfileSet
from tests.mirror.files import (
    assert_private,
    day_path,
    everything,
    facts_in,
    held,
    kept,
    put,
    put_facts,
    rendered,
    texts_of,
)
from tests.support.memories import Child, Clock, refused, remembering

DAY = "2026-11-21"
WAIT_SECONDS = 60


@pytest.fixture
def memory() -> Iterator[Memory]:
    """A memory in RAM: files and log meet in the same way wherever the log is."""
    with remembering() as memory:
        yield memory


@pytest.fixture(autouse=True)
def _looking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mirrors look often in tests that wait for it; in others all rounds are those of the test."""
    monkeypatch.setattr(mirror, "_POLL_SECONDS", 0.02)
    if not request.node.get_closest_marker("usefixtures"):
        monkeypatch.setattr(mirror.Mirror, "_poll", lambda _: None)


@pytest.fixture
def looks() -> None:
    """The mark of a test whose mirrors look by themselves."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


def filled(memory: Memory) -> None:
    memory.profile().set("theme", "dark")
    memory.profile().set("user", "Mike")
    memory.journal().append("Chose LMDB.", day=DAY)
    memory.journal().append("It is fast.\nAnd safe.", day=DAY)


def assert_in_step(memory: Memory, directory: Path) -> None:
    assert held(directory) == rendered(memory, [DAY, "2026-11-22", "2026-12-01"])


# Out.


def test_the_files_hold_what_the_log_holds(memory: Memory, directory: Path) -> None:
    filled(memory)
    with memory.mirror(directory) as mirror:
        assert mirror.report == MirrorReport(memory.head, written=("202611/20261121.md", "profile.json"))
    assert held(directory) == {
        "profile.json": '{\n  "theme": "dark",\n  "user": "Mike"\n}\n',
        "202611/20261121.md": "# 2026-11-21\n\nChose LMDB.\nIt is fast.\nAnd safe.\n",
    }
    assert_private(directory)


@pytest.mark.usefixtures("looks")
def test_the_files_follow_the_log(memory: Memory, directory: Path) -> None:
    with memory.mirror(directory) as mirror:
        assert facts_in(directory) == {}
        filled(memory)
        assert mirror.wait(timeout_seconds=WAIT_SECONDS)
        assert_in_step(memory, directory)
        memory.profile().delete("theme")
        with memory.batch():
            memory.profile().set("theme", "light")
            memory.journal().append("Another day.", day="2026-12-01")
        assert mirror.wait(timeout_seconds=WAIT_SECONDS)
        assert_in_step(memory, directory)
        assert list(facts_in(directory)) == ["user", "theme"]
        assert_private(directory)


def test_closing_writes_what_is_left(memory: Memory, directory: Path) -> None:
    mirror = memory.mirror(directory)
    filled(memory)
    mirror.close()
    mirror.close()
    assert_in_step(memory, directory)
    assert not mirror.is_alive
    assert mirror.join(0)
    with pytest.raises(Closed, match="open another one"):
        mirror.sync()


@pytest.mark.parametrize("durability", ["durable", "delayed"])
def test_a_mirror_catches_up_when_it_is_opened(tmp_path: Path, directory: Path, durability: str) -> None:
    with remembering(tmp_path / "store", durability=durability) as memory:
        memory.mirror(directory).close()
        filled(memory)
        memory.flush()
    with remembering(tmp_path / "store", durability=durability) as memory, memory.mirror(directory):
        assert_in_step(memory, directory)


@pytest.mark.usefixtures("looks")
def test_what_another_process_writes_is_mirrored(tmp_path: Path, directory: Path) -> None:
    program = (
        "import sys; from refold import Memory; memory = Memory(sys.argv[1]); input(); "
        "memory.profile().set('theme', 'theirs'); print(memory.head, flush=True); input()"
    )
    with remembering(tmp_path / "store") as memory, memory.mirror(directory) as mirror:
        with Child(program, str(tmp_path / "store")) as child:
            child.write("go")
            assert mirror.wait(int(child.read()), WAIT_SECONDS)
        assert facts_in(directory) == {"theme": "theirs"}


def test_a_day_is_that_of_the_event_whatever_the_zone(directory: Path) -> None:
    late_ns = 1_795_305_600_000_000_000 - 60_000_000_000  # A minute before midnight in UTC.
    with remembering(clock_ns=Clock(late_ns), timezone="Asia/Kathmandu") as memory:
        note = memory.journal().append("Tomorrow there.")
        with memory.mirror(directory):
            assert [name for name in held(directory) if name != "profile.json"] == [
                day_path(directory, note.day).relative_to(directory).as_posix()
            ]
    assert note.day == "2026-11-22"


@pytest.mark.usefixtures("looks")
def test_a_restored_memory_takes_its_files_back(memory: Memory, directory: Path) -> None:
    filled(memory)
    with memory.mirror(directory) as mirror:
        before = held(directory)
        memory.snapshot("then")
        memory.profile().set("theme", "light")
        memory.journal().append("Later.", day="2026-11-22")
        mirror.sync()
        assert held(directory) != before
        memory.restore("then")
        assert mirror.wait(timeout_seconds=WAIT_SECONDS)
        assert held(directory) == before


@pytest.mark.usefixtures("looks")
def test_a_fork_has_files_of_its_own(memory: Memory, tmp_path: Path, directory: Path) -> None:
    filled(memory)
    fork = memory.fork("what if")
    with memory.mirror(directory), fork.mirror(tmp_path / "fork") as other:
        put_facts(tmp_path / "fork", {"theme": "light", "user": "Mike"})
        other.sync()
        assert (memory.profile().get("theme"), fork.profile().get("theme")) == ("dark", "light")
        memory.erase([event for event in memory.events() if isinstance(event.event, ProfileSet)])
        assert other.wait(timeout_seconds=WAIT_SECONDS)
        assert b"Mike" not in everything(tmp_path / "fork")


def test_other_names_have_other_directories(memory: Memory, tmp_path: Path) -> None:
    memory.profile("work").set("theme", "grey")
    memory.journal("work").append("At work.", day=DAY)
    with memory.mirror(tmp_path / "work", profile="work", journal="work"):
        assert facts_in(tmp_path / "work") == {"theme": "grey"}
    assert "At work." in day_path(tmp_path / "work", DAY).read_text(encoding="utf-8")
    with refused(memory, InvalidInput, "profile 'work'", "a directory of its own"):
        memory.mirror(tmp_path / "work")


# In.


def events_after(memory: Memory, head: int) -> list[object]:
    return [recorded.event for recorded in memory.events(after=head)]


def test_edits_by_hand_become_the_events_of_profile_and_journal(memory: Memory, directory: Path) -> None:
    filled(memory)
    with memory.mirror(directory) as mirror:
        head = memory.head
        put_facts(directory, {"pet": "cat", "theme": "light"})
        path = day_path(directory, DAY)
        put(path, path.read_text(encoding="utf-8") + "\nWritten by hand.\n\nWith a second paragraph.\n")
        put(day_path(directory, "2026-11-22"), "A new day.\n")
        report = mirror.sync()
    events = events_after(memory, head)
    assert [type(event) for event in events] == [
        JournalAppended,
        JournalAppended,
        ProfileSet,
        ProfileSet,
        ProfileDeleted,
    ]
    assert [(edit.kind, edit.name, edit.text) for edit in report.edits] == [
        ("append", DAY, "Written by hand.\n\nWith a second paragraph."),
        ("append", "2026-11-22", "A new day."),
        ("set", "pet", "cat"),
        ("set", "theme", "light"),
        ("delete", "user", None),
    ]
    assert report.ok
    assert memory.profile().items() == [("theme", "light"), ("pet", "cat")]
    assert_in_step(memory, directory)


def test_edits_of_one_round_are_one_commit(memory: Memory, directory: Path) -> None:
    with memory.mirror(directory) as mirror:
        put_facts(directory, {"theme": "light", "user": "Mike"})
        put(day_path(directory, DAY), "By hand.\n")
        mirror.sync()
    assert len({recorded.stamp.time_ns for recorded in memory.events()}) == 1
    assert memory.head == 3


@pytest.mark.usefixtures("looks")
def test_an_open_mirror_takes_edits_by_itself(memory: Memory, directory: Path) -> None:
    taken = threading.Event()
    reports: list[MirrorReport] = []

    def note(report: MirrorReport) -> None:
        reports.append(report)
        if report.edits:
            taken.set()

    with memory.mirror(directory, on_report=note):
        put_facts(directory, {"theme": "light"})
        assert taken.wait(WAIT_SECONDS)
        assert memory.profile().items() == [("theme", "light")]
    assert [edit.name for report in reports for edit in report.edits] == ["theme"]


SAME: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "with a byte order mark": lambda text: "\ufeff" + text,
    "with other line ends": lambda text: text.replace("\n", "\r\n"),
    "without its last line end": lambda text: text.rstrip("\n"),
    "with spaces behind": lambda text: text.replace("\n", "  \n").replace('"dark"  ', '"dark"'),
    "with empty lines around": lambda text: f"\n\n{text}\n\n",
}


@pytest.mark.parametrize("change", SAME)
def test_what_an_editor_changes_by_itself_is_no_edit(memory: Memory, directory: Path, change: str) -> None:
    filled(memory)
    with memory.mirror(directory) as mirror:
        head = memory.head
        for path in (directory / "profile.json", day_path(directory, DAY)):
            path.write_bytes(SAME[change](path.read_text(encoding="utf-8")).encode())
        report = mirror.sync()
        assert (report.edits, report.ok, memory.head) == ((), True, head)
        assert_in_step(memory, directory)


def test_another_order_of_the_keys_is_no_edit(memory: Memory, directory: Path) -> None:
    filled(memory)
    with memory.mirror(directory) as mirror:
        put_facts(directory, {"user": "Mike", "theme": "dark"})
        assert mirror.sync().edits == ()
        assert list(facts_in(directory)) == ["theme", "user"]


def test_a_day_without_its_heading_is_no_edit(memory: Memory, directory: Path) -> None:
    filled(memory)
    with memory.mirror(directory) as mirror:
        put(day_path(directory, DAY), "Chose LMDB.\nIt is fast.\nAnd safe.\n")
        report = mirror.sync()
        assert (report.edits, report.conflicts) == ((), ())
        assert_in_step(memory, directory)


def test_a_file_that_a_hand_removed_is_written_again(memory: Memory, directory: Path) -> None:
    filled(memory)
    with memory.mirror(directory) as mirror:
        (directory / "profile.json").unlink()
        day_path(directory, DAY).unlink()
        day_path(directory, DAY).parent.rmdir()
        report = mirror.sync()
        assert (report.edits, len(report.written)) == ((), 2)
        assert_in_step(memory, directory)


def test_a_file_that_a_hand_has_just_begun_stays(memory: Memory, directory: Path) -> None:
    with memory.mirror(directory) as mirror:
        put(day_path(directory, DAY), "")
        assert not mirror.sync()
        assert day_path(directory, DAY).read_bytes() == b""


ODD_TEXTS = (
    "# 2026-11-21",
    "",
    "\n\nspace around\n\n",
    "a\r\nb",
    "tail \t",
    "---\n\n---",
    "\x00\x1b[31m",
    "\u2028x\x0b",
)


def test_odd_notes_survive_edits_around_them(memory: Memory, directory: Path) -> None:
    for text in ODD_TEXTS:
        memory.journal().append(text, day=DAY)
    with memory.mirror(directory) as mirror:
        path = day_path(directory, DAY)
        path.write_bytes(path.read_bytes() + b"By hand.\n")
        report = mirror.sync()
    assert report.ok
    assert texts_of(memory, DAY) == [*ODD_TEXTS, "By hand."]


def test_a_directory_that_was_there_before_is_taken_as_written_by_hand(memory: Memory, directory: Path) -> None:
    filled(memory)
    directory.mkdir()
    put_facts(directory, {"theme": "light", "editor": "vi"})
    put(day_path(directory, DAY), f"# {DAY}\n\nChose LMDB.\nFrom another program.\n")
    (directory / "MEMORY.md").write_text("not ours", encoding="utf-8")
    with memory.mirror(directory) as mirror:
        report = mirror.report
    assert [conflict.name for conflict in report.conflicts] == ["theme"]
    assert memory.profile().items() == [("theme", "dark"), ("user", "Mike"), ("editor", "vi")]
    assert texts_of(memory, DAY)[2:] == ["From another program."]
    assert (directory / "MEMORY.md").read_text(encoding="utf-8") == "not ours"


@pytest.mark.parametrize("damage", [b"", b"\x00\xff", b"half"])
def test_without_its_state_a_mirror_deletes_nothing(memory: Memory, directory: Path, damage: bytes) -> None:
    filled(memory)
    memory.mirror(directory).close()
    state = directory / ".refold-mirror"
    state.write_bytes(state.read_bytes()[:40] if damage == b"half" else damage)
    put_facts(directory, {"theme": "dark", "pet": "cat"})
    with memory.mirror(directory) as mirror:
        assert [edit.name for edit in mirror.report.edits] == ["pet"]
    assert memory.profile().items() == [("theme", "dark"), ("user", "Mike"), ("pet", "cat")]


# Conflicts.


@contextmanager
def untouched(memory: Memory) -> Iterator[None]:
    """What happens inside leaves the log as it is."""
    before = (memory.head, memory.state_hash())
    yield
    assert (memory.head, memory.state_hash()) == before


def test_a_key_that_both_changed_stays_as_the_log_has_it(memory: Memory, directory: Path) -> None:
    filled(memory)
    memory.mirror(directory).close()
    memory.profile().set("theme", "light")
    memory.profile().delete("user")
    put_facts(directory, {"theme": "blue", "user": "Michael", "pet": "cat"})
    with memory.mirror(directory) as mirror:
        theme, user = mirror.report.conflicts
        assert (theme.name, theme.hand, theme.log) == ("theme", "blue", "light")
        assert (user.name, user.hand, user.log) == ("user", "Michael", None)
        assert memory.profile().items() == [("theme", "light"), ("pet", "cat")]
        assert facts_in(directory) == {"theme": "light", "pet": "cat"}
        assert not mirror.sync()
    assert kept(directory) == {theme.kept: '{\n  "theme": "blue",\n  "user": "Michael"\n}\n'}
    assert theme.kept == user.kept
    assert_private(directory)


def test_an_older_copy_that_is_edited_and_saved_reverts_nothing(memory: Memory, directory: Path) -> None:
    filled(memory)
    with memory.mirror(directory) as mirror:
        older = facts_in(directory)
        for key, value in (("city", "Oslo"), ("theme", "light")):
            memory.profile().set(key, value)
            mirror.sync()
        put_facts(directory, older | {"pet": "cat"})
        report = mirror.sync()
        assert [edit.name for edit in report.edits] == ["pet"]
        assert {(conflict.name, conflict.hand, conflict.log) for conflict in report.conflicts} == {
            ("city", None, "Oslo"),
            ("theme", "dark", "light"),
        }
        assert memory.profile().items() == [("theme", "light"), ("user", "Mike"), ("city", "Oslo"), ("pet", "cat")]
        assert_in_step(memory, directory)
    assert kept(directory) == {report.conflicts[0].kept: '{\n  "city": null,\n  "theme": "dark"\n}\n'}


def test_a_key_that_the_log_has_just_added_may_be_removed(memory: Memory, directory: Path) -> None:
    filled(memory)
    with memory.mirror(directory) as mirror:
        memory.profile().set("city", "Oslo")
        mirror.sync()
        put_facts(directory, {"theme": "dark", "user": "Mike"})
        assert [(edit.kind, edit.name) for edit in mirror.sync().edits] == [("delete", "city")]


def test_a_note_that_a_hand_changed_stays_as_the_log_has_it(memory: Memory, directory: Path) -> None:
    filled(memory)
    with memory.mirror(directory) as mirror:
        path = day_path(directory, DAY)
        put(path, path.read_text(encoding="utf-8").replace("LMDB", "SQLite") + "And more.\n")
        report = mirror.sync()
        (conflict,) = report.conflicts
        assert (conflict.hand, conflict.log, conflict.name) == ("Chose SQLite.", "Chose LMDB.", "3")
        assert [edit.text for edit in report.edits] == ["And more."]
        assert texts_of(memory, DAY) == ["Chose LMDB.", "It is fast.\nAnd safe.", "And more."]
        assert_in_step(memory, directory)
    assert kept(directory) == {conflict.kept: f"# {DAY}, in the place of seq 3\n\nChose SQLite.\n"}


@pytest.mark.parametrize(
    ("lines", "added", "hand"),
    [
        pytest.param("a b1 b2 b3 d new", ["new"], None, id="behind all, one removed"),
        pytest.param("new a B b2 b3 c d", ["new"], "B\nb2\nb3", id="before all, one changed"),
        pytest.param("a new b1 B b3 newer c d", ["new", "newer"], "b1\nB\nb3", id="around the lines that are left"),
        pytest.param("a b1 b2 B c D new", [], "b1\nb2\nB\n\nD\nnew", id="where the last line is another one"),
        pytest.param("a b1 b2 b3 new C d", [], "new\nC", id="before a line that is another one"),
        pytest.param("a b1 B b3 new C d", [], "b1\nB\nb3\n\nnew\nC", id="between two that were changed"),
        pytest.param("d a b1 b2 b3 c", [], "d", id="a note that moved is no new one"),
        pytest.param("c a b1 b2 b3 d new", ["new"], "c", id="a note that moved, and a new one"),
        pytest.param("new", [], "new", id="nothing is left"),
        pytest.param("new a", ["new"], None, id="only the first is left"),
    ],
)
def test_text_apart_from_a_changed_note_is_taken(
    memory: Memory, directory: Path, lines: str, added: list[str], hand: str | None
) -> None:
    base = ["a", "b1\nb2\nb3", "c", "d"]
    for text in base:
        memory.journal().append(text, day=DAY)
    with memory.mirror(directory) as mirror:
        mirror.sync()
        put(day_path(directory, DAY), f"# {DAY}\n\n" + lines.replace(" ", "\n") + "\n")
        report = mirror.sync()
        assert [edit.text for edit in report.edits] == added
        assert [conflict.hand for conflict in report.conflicts] == [hand]
        assert texts_of(memory, DAY) == [*base, *added]
        assert_in_step(memory, directory)
        assert not mirror.sync()


def test_a_note_that_a_hand_removed_comes_back(memory: Memory, directory: Path) -> None:
    filled(memory)
    with memory.mirror(directory) as mirror, untouched(memory):
        put(day_path(directory, DAY), f"# {DAY}\n\nIt is fast.\nAnd safe.\n")
        (conflict,) = mirror.sync().conflicts
        assert (conflict.hand, conflict.log, conflict.kept) == (None, "Chose LMDB.", "")
        assert "only grows" in conflict.reason
        assert_in_step(memory, directory)


def test_checking_changes_nothing(memory: Memory, directory: Path) -> None:
    filled(memory)
    memory.mirror(directory).close()
    memory.profile().set("theme", "light")
    memory.profile().set("city", "Oslo")
    put_facts(directory, {"theme": "blue", "user": "Mike", "pet": "cat"})
    before = everything(directory)
    with untouched(memory), memory.mirror(directory, writes=False) as mirror:
        report = mirror.check()
        assert [edit.name for edit in report.edits] == ["pet"]
        assert [conflict.name for conflict in report.conflicts] == ["theme"]
        assert report.written == ("profile.json",)
        with pytest.raises(ReadOnly, match="writes=False"):
            mirror.sync()
    assert everything(directory) == before
    with memory.mirror(directory) as mirror, memory.mirror(directory, writes=False) as beside:
        assert not beside.report
        assert not mirror.check()


# Who may, and where.


def test_a_mirror_without_edits_leaves_what_a_hand_wrote(memory: Memory, directory: Path) -> None:
    filled(memory)
    with memory.mirror(directory, edits="leave") as mirror, untouched(memory):
        put_facts(directory, {"theme": "blue"})
        (problem,) = mirror.sync().problems
        assert "takes no edits" in problem.reason
        assert facts_in(directory) == {"theme": "blue"}


@pytest.mark.usefixtures("looks")
def test_a_read_only_memory_only_follows(tmp_path: Path, directory: Path) -> None:
    with remembering(tmp_path / "store") as memory:
        filled(memory)
        with Memory(tmp_path / "store", readonly=True) as reader, reader.mirror(directory) as mirror:
            assert_in_step(memory, directory)
            put_facts(directory, {"theme": "blue"})
            assert not mirror.sync().ok
            memory.journal().append("Later.", day=DAY)
            assert mirror.wait(memory.head, WAIT_SECONDS)
            assert "Later." in day_path(directory, DAY).read_text(encoding="utf-8")
            assert facts_in(directory) == {"theme": "blue"}


def opened(memory: Memory, path: object) -> Mirror:
    mirror: Mirror = memory.mirror(path)  # type: ignore[arg-type]
    return mirror


REFUSED: dict[str, tuple[Callable[[Memory, Path], object], type[Exception], str]] = {
    "no parent": (lambda memory, path: opened(memory, path / "a" / "b"), NotFound, "create it first"),
    "a file": (lambda memory, path: opened(memory, path / "file"), InvalidInput, "is a file"),
    "no path": (lambda memory, _: opened(memory, 7), InvalidInput, "directory must be"),
    "a NUL": (lambda memory, _: opened(memory, "a\0b"), InvalidInput, "NUL"),
    "a frozen memory": (lambda memory, path: opened(memory.at(memory.head), path / "m"), ReadOnly, "frozen"),
    "another word": (lambda memory, path: memory.mirror(path / "m", edits="ask"), InvalidInput, "'take'"),
    "no name": (lambda memory, path: memory.mirror(path / "m", profile=""), InvalidInput, "empty"),
    "nothing to check": (lambda memory, path: memory.mirror(path / "m", writes=False), NotFound, "no directory"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_place_for_a_mirror_is_refused(memory: Memory, tmp_path: Path, case: str) -> None:
    filled(memory)
    (tmp_path / "file").touch()
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        call(memory, tmp_path)
    assert not (tmp_path / "m").exists()


def test_a_directory_has_one_mirror_at_a_time(memory: Memory, directory: Path) -> None:
    with memory.mirror(directory), refused(memory, StoreBusy, "another mirror"):
        memory.mirror(directory)
    memory.mirror(directory).close()


def test_a_store_is_no_directory_for_a_mirror(memory: Memory, tmp_path: Path) -> None:
    Memory(tmp_path / "store").close()
    files = sorted((tmp_path / "store").iterdir())
    with refused(memory, InvalidInput, "is a store", "a directory of its own"):
        memory.mirror(tmp_path / "store")
    assert sorted((tmp_path / "store").iterdir()) == files


def test_a_directory_belongs_to_one_store(memory: Memory, directory: Path) -> None:
    filled(memory)
    memory.mirror(directory).close()
    with Memory() as other, refused(other, InvalidInput, "a directory of its own", ".refold-mirror"):
        other.mirror(directory)
    assert_in_step(memory, directory)


def test_a_round_inside_a_batch_is_refused(memory: Memory, directory: Path) -> None:
    filled(memory)
    with memory.mirror(directory) as mirror:
        for call in (mirror.sync, mirror.check):
            with pytest.raises(InvalidInput, match="inside a batch"), memory.batch():
                call()
        with pytest.raises(InvalidInput, match="inside a batch"), memory.batch():
            memory.mirror(directory.with_name("other"))


@pytest.mark.usefixtures("looks")
def test_a_memory_may_be_closed_before_its_mirror(tmp_path: Path, directory: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        mirror = memory.mirror(directory)
    assert mirror.join(WAIT_SECONDS)
    assert (mirror.is_alive, mirror.error) == (False, None)
    mirror.close()
    with remembering(tmp_path / "store") as memory, memory.mirror(directory) as mirror:
        assert not mirror.report


# Erasing.


@pytest.mark.usefixtures("looks")
def test_what_was_erased_is_in_no_file(memory: Memory, directory: Path) -> None:
    with memory.mirror(directory) as mirror:
        filled(memory)
        memory.profile().set("secret", "hunter2hunter2")
        note = memory.journal().append("The secret is swordfish.", day=DAY)
        alone = memory.journal().append("Only swordfish.", day="2026-12-01")
        mirror.sync()
        assert b"hunter2" in everything(directory)
        secret = max(recorded.stamp.seq for recorded in memory.events() if isinstance(recorded.event, ProfileSet))
        seqs = [
            recorded.stamp.seq for recorded in memory.events() if "swordfish" in getattr(recorded.event, "text", "")
        ]
        assert {note.day, alone.day} == {DAY, "2026-12-01"}
        memory.erase([secret, *seqs])
        assert mirror.wait(timeout_seconds=WAIT_SECONDS)
        assert not any(word in everything(directory) for word in (b"hunter2", b"swordfish", b"secret"))
        assert not day_path(directory, "2026-12-01").exists()
        assert b'"recent":[]' in everything(directory)
        assert_in_step(memory, directory)


def test_what_was_erased_while_a_hand_edited_does_not_come_back(memory: Memory, directory: Path) -> None:
    filled(memory)
    memory.profile().set("secret", "hunter2hunter2")
    memory.journal().append("The secret\nis swordfish\nfor sure.", day=DAY)
    memory.mirror(directory).close()
    put_facts(directory, facts_in(directory) | {"pet": "cat"})
    path = day_path(directory, DAY)
    put(path, path.read_text(encoding="utf-8").replace("for sure.", "for now.") + "By hand.\n")
    memory.erase([memory.head, memory.head - 1])
    with memory.mirror(directory):
        assert not any(word in everything(directory) for word in (b"hunter2", b"swordfish", b"secret"))
        assert memory.profile().items() == [("theme", "dark"), ("user", "Mike"), ("pet", "cat")]
        assert texts_of(memory, DAY)[2:] == ["for now.\nBy hand."]
    assert not any("swordfish" in str(recorded.event) for recorded in memory.events())


def test_what_was_erased_leaves_what_was_kept_beside(memory: Memory, directory: Path) -> None:
    filled(memory)
    memory.profile().set("secret", "hunter2hunter2")
    told = [memory.head]
    with memory.mirror(directory) as mirror:
        older = facts_in(directory)
        memory.profile().set("secret", "hidden")
        told.append(memory.head)
        memory.journal().append("The door\nopens to swordfish\nand to nothing else.", day=DAY)
        told.append(memory.head)
        mirror.sync()
        put_facts(directory, older | {"pet": "cat"})
        path = day_path(directory, DAY)
        put(path, path.read_text(encoding="utf-8").replace("and to nothing", "By hand.\nand to nothing"))
        assert len(mirror.sync().conflicts) == 2
        before = kept(directory)
        assert all(word in str(before) for word in ("hunter2", "swordfish", "By hand."))
        memory.erase(told)
        report = mirror.sync()
        assert sorted(report.deleted) == sorted(before)
        after = everything(directory)
        assert not any(word in after for word in (b"hunter2", b"swordfish", b"secret", b"hidden"))
        assert kept(directory) == {}
        assert not mirror.sync()
        assert_in_step(memory, directory)


def test_an_erasure_in_the_profile_leaves_what_was_kept_of_the_journal(memory: Memory, directory: Path) -> None:
    filled(memory)
    with memory.mirror(directory) as mirror:
        memory.profile().set("theme", "blue")
        put_facts(directory, {"theme": "light", "user": "Mike"})
        path = day_path(directory, DAY)
        put(path, path.read_text(encoding="utf-8").replace("LMDB", "SQLite"))
        assert len(mirror.sync().conflicts) == 2
        before = kept(directory)
        memory.erase([2])
        report = mirror.sync()
        assert report.written == ("profile.json",)
        assert [name.partition(".conflict-")[0] for name in report.deleted] == ["profile.json"]
        assert [name for name in before if name not in report.deleted] == list(kept(directory))


def test_a_day_with_the_marks_of_a_merge_is_left_alone_until_they_are_gone(memory: Memory, tmp_path: Path) -> None:
    with memory.mirror(tmp_path / "notes") as mirror:
        memory.journal().append("Chose LMDB.", day="2026-11-20")
        mirror.sync()
        day = tmp_path / "notes" / "202611" / "20261120.md"
        ours, theirs = "Ada: the port is 5432.", "Bob: the port is 6543."
        written = day.read_text()
        day.write_text(f"{written}\n<<<<<<< HEAD\n{ours}\n=======\n{theirs}\n>>>>>>> origin/main\n")
        report = mirror.sync()
        assert (["merge conflict" in each.reason for each in report.problems], report.edits) == ([True], ())
        day.write_text(f"{written}\n{ours}\n{theirs}\n")
        report = mirror.sync()
        assert (report.problems, report.conflicts) == ((), ())
        notes = [note.text for note in memory.journal().day("2026-11-20")]
        assert notes == ["Chose LMDB.", f"{ours}\n{theirs}"]
        memory.journal().append("<<<<<<< a\n=======\n>>>>>>> b", day="2026-11-20")
        mirror.sync()
        day.write_text(f"{day.read_text()}\nOne more.\n")
        assert [edit.text for edit in mirror.sync().edits] == ["One more."], "a note of the log may be about marks"
