"""What was erased is nowhere in a mirror's directory, in whatever order it came there; what a hand wrote stays."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from refold import Memory, StoreError
from refold.mirror import Mirror, files, mirror
from refold.mirror.merge import digest
from refold.mirror.mirror import Rounds
from tests.mirror.files import STATE, day_path, everything, facts_in, kept, put, put_facts, texts_of
from tests.support.memories import remembering

DAY = "2026-11-21"


class Killed(BaseException):
    """Stands for the end of a process."""


@pytest.fixture
def memory() -> Iterator[Memory]:
    with remembering() as memory:
        yield memory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


@pytest.fixture(autouse=True)
def _rounds_are_the_test_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror.Mirror, "_poll", lambda _: None)


def said(memory: Memory, text: str, day: str = DAY) -> int:
    memory.journal().append(text, day=day)
    return memory.head


def set_to(memory: Memory, key: str, value: str) -> int:
    memory.profile().set(key, value)
    return memory.head


def assert_forgotten(directory: Path, *words: str) -> None:
    found = everything(directory)
    assert [word for word in words if word.encode() in found] == []
    assert {path.name for path in directory.rglob(".refold-*")} == STATE


def killed(monkeypatch: pytest.MonkeyPatch, mirror: Mirror, step: str) -> None:
    """Let a round end at a step, and with it the mirror."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Rounds, step, die)
        with pytest.raises(Killed):
            mirror.sync()
    mirror._is_ended = True
    mirror._rounds.close()


def save_older(directory: Path, older: dict[str, str]) -> None:
    """Save a copy that was read before, with another edit in it."""
    put_facts(directory, older | {f"edit {len(list(directory.iterdir()))}": "by hand"})


def test_an_older_copy_that_is_saved_as_its_value_is_erased(memory: Memory, directory: Path) -> None:
    secret = set_to(memory, "secret", "hunter2")
    set_to(memory, "city", "Rome")
    with memory.mirror(directory) as mirror:
        older = facts_in(directory)
        set_to(memory, "secret", "hidden")
        set_to(memory, "city", "Oslo")
        mirror.sync()
        save_older(directory, older)
        memory.erase([secret])
        mirror.sync()
        assert_forgotten(directory, "hunter2")
        assert kept(directory) == {}


def test_a_value_that_both_changed_and_that_the_log_had_before(memory: Memory, directory: Path) -> None:
    secret = set_to(memory, "theme", "swordfish")
    with memory.mirror(directory) as mirror:
        older = facts_in(directory)
        set_to(memory, "theme", "light")
        mirror.sync()
        put_facts(directory, older)
        set_to(memory, "theme", "blue")
        assert "swordfish" in str(mirror.sync().conflicts)
        memory.erase([secret])
        mirror.sync()
        assert_forgotten(directory, "swordfish")


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_is_written_late_into_a_file_that_an_erasure_replaced(
    memory: Memory, directory: Path, *, is_closed: bool
) -> None:
    secret = said(memory, "swordfish")
    said(memory, "other")
    with memory.mirror(directory) as mirror:
        with day_path(directory, DAY).open("a", encoding="utf-8") as editor:
            memory.erase([secret])
            mirror.sync()
            editor.write("late words\n")
        if not is_closed:
            mirror.sync()
    (beside,) = kept(directory).values()
    assert beside == "late words\n"
    assert_forgotten(directory, "swordfish")


def assert_late_words_alone_are_kept(mirror: Mirror, editor: TextIO, directory: Path) -> None:
    for _ in range(3):
        mirror.sync()
    editor.write("late words\n")
    editor.flush()
    mirror.sync()
    assert list(kept(directory).values()) == ["late words\n"]
    assert_forgotten(directory, "swordfish")


def test_what_is_written_long_after_an_erasure_holds_nothing_of_it(memory: Memory, directory: Path) -> None:
    secret = said(memory, "swordfish")
    with memory.mirror(directory) as mirror, day_path(directory, DAY).open("a", encoding="utf-8") as editor:
        said(memory, "other")
        mirror.sync()
        memory.erase([secret])
        assert_late_words_alone_are_kept(mirror, editor, directory)


def test_what_is_written_to_the_file_of_a_day_that_is_no_more_holds_nothing_that_was_erased(
    memory: Memory, directory: Path
) -> None:
    memory.snapshot("empty")
    secret = said(memory, "swordfish")
    with memory.mirror(directory) as mirror, day_path(directory, DAY).open("a", encoding="utf-8") as editor:
        memory.restore("empty")
        for _ in range(3):
            mirror.sync()
        memory.erase([secret])
        assert_late_words_alone_are_kept(mirror, editor, directory)


def test_an_empty_value_of_a_hand_is_kept_beside_what_was_erased(memory: Memory, directory: Path) -> None:
    secret = set_to(memory, "secret", "hunter2")
    with memory.mirror(directory) as mirror:
        memory.erase([secret])
        put_facts(directory, {"secret": "hunter2", "city": ""})
        set_to(memory, "city", "Oslo")
        (conflict,) = (each for each in mirror.sync().conflicts if each.name == "city")
        assert json.loads(kept(directory)[conflict.kept]) == {"city": ""}


LATE: dict[str, Callable[[str], str]] = {
    "whole": lambda text: json.dumps(json.loads(text) | {"pet": "cat"}),
    "in parts": lambda text: f'{text}"pet": "cat"',
    "a key twice": lambda text: text.replace("{", '{"pet": "cat", "secret": "mine",', 1),
    "deep": lambda text: f'{{"pet": "cat", "all": {text}}}',
}


@pytest.mark.parametrize("way", LATE)
def test_a_profile_that_is_written_late_and_whose_values_are_erased_later(
    memory: Memory, directory: Path, way: str
) -> None:
    secrets = [set_to(memory, "secret", "hunter2")]
    set_to(memory, "city", "Oslo")
    with memory.mirror(directory) as mirror:
        with (directory / "profile.json").open("r+", encoding="utf-8") as editor:
            text = editor.read()
            secrets.append(set_to(memory, "secret", "hidden"))
            mirror.sync()
            editor.seek(0)
            editor.write(LATE[way](text))
        mirror.sync()
        assert "hunter2" in str(kept(directory))
        copies = tuple(kept(directory))
        memory.erase(secrets)
        assert mirror.sync().deleted == copies
        assert_forgotten(directory, "hunter2", "hidden")
        assert kept(directory) == {}


def test_a_note_that_is_erased_after_a_restore_took_it_away(memory: Memory, directory: Path) -> None:
    memory.snapshot("then")
    secret = said(memory, "one line\nswordfish")
    with memory.mirror(directory) as mirror:
        path = day_path(directory, DAY)
        put(path, path.read_text(encoding="utf-8").replace("swordfish", "mine\nswordfish"))
        assert len(mirror.sync().conflicts) == 1
        memory.restore("then")
        mirror.sync()
        memory.erase([secret])
        mirror.sync()
        assert_forgotten(directory, "swordfish", "one line")
        assert kept(directory) == {}


def test_what_one_erasure_leaves_another_one_takes(memory: Memory, directory: Path) -> None:
    secrets = [set_to(memory, "theme", "swordfish")]
    with memory.mirror(directory) as mirror:
        older = facts_in(directory)
        set_to(memory, "theme", "light")
        mirror.sync()
        save_older(directory, older)
        mirror.sync()
        before = kept(directory)
        secrets.append(set_to(memory, "theme", "swordfish"))
        mirror.sync()
        memory.erase([said(memory, "something else")])
        mirror.sync()
        assert kept(directory) == before != {}
        set_to(memory, "theme", "blue")
        mirror.sync()
        memory.erase(secrets)
        mirror.sync()
        assert_forgotten(directory, "swordfish")


def test_another_erasure_takes_nothing_that_the_log_still_says_somewhere(memory: Memory, directory: Path) -> None:
    set_to(memory, "theme", "dark")
    with memory.mirror(directory) as mirror:
        older = facts_in(directory)
        set_to(memory, "theme", "light")
        mirror.sync()
        save_older(directory, older)
        mirror.sync()
        before = kept(directory)
        memory.erase([said(memory, "something else")])
        mirror.sync()
        assert kept(directory) == before
        assert "dark" in str(before)


@pytest.mark.parametrize("step", ["_take", "_write", "_place", "_conclude"])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_erased_around_a_crash(
    memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch, step: str, *, is_first: bool
) -> None:
    secrets = [set_to(memory, "secret", "hunter2"), said(memory, "swordfish\nplain")]
    said(memory, "other")
    mirror = memory.mirror(directory)
    older = facts_in(directory)
    set_to(memory, "secret", "hidden")
    mirror.sync()
    save_older(directory, older)
    path = day_path(directory, DAY)
    put(path, path.read_text(encoding="utf-8").replace("plain", "mine"))
    if is_first:
        memory.erase(secrets)
    killed(monkeypatch, mirror, step)
    if not is_first:
        memory.erase(secrets)
    put(path, path.read_text(encoding="utf-8") + "again\n")
    with memory.mirror(directory):
        assert_forgotten(directory, "hunter2", "swordfish", "plain")
    assert memory.profile().get("secret") == "hidden"
    texts = "\n".join(texts_of(memory, DAY))
    # A copy that was there before the erasure is deleted with all that is in it.
    words = ("other", "again") if step in {"_place", "_conclude"} and not is_first else ("other", "mine", "again")
    assert all(word in texts + str(kept(directory)) for word in words)
    assert not any("swordfish" in str(recorded.event) for recorded in memory.events())


def test_a_conflict_s_words_survive_a_crash_and_an_erasure_elsewhere(
    memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to(memory, "theme", "dark")
    said(memory, "Chose LMDB.")
    mirror = memory.mirror(directory)
    set_to(memory, "theme", "blue")
    put_facts(directory, {"theme": "light"})
    put(day_path(directory, DAY), "Chose SQLite.\n")
    killed(monkeypatch, mirror, "_place")
    before = kept(directory)
    memory.erase([memory.conversation("chat").append("user", "something else")])
    with memory.mirror(directory) as mirror:
        assert kept(directory) == before
        assert len(before) == 2
        memory.erase([said(memory, "another thing", "2026-11-22")])
        assert list(mirror.sync().deleted) == [name for name in before if name.startswith("2026")]
        assert list(kept(directory)) == [name for name in before if name.startswith("profile")]


def test_what_a_round_copies_after_an_erasure_survives_its_crash(
    memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = said(memory, "swordfish")
    said(memory, "Chose LMDB.")
    mirror = memory.mirror(directory)
    path = day_path(directory, DAY)
    put(path, path.read_text(encoding="utf-8").replace("LMDB", "SQLite"))
    memory.erase([secret])
    killed(monkeypatch, mirror, "_conclude")
    with memory.mirror(directory):
        (beside,) = kept(directory).values()
        assert "Chose SQLite." in beside
        assert_forgotten(directory, "swordfish")


def test_an_older_copy_whose_round_was_cut_off_reverts_nothing(
    memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has beside of new edits was taken before; what is left of it looks like a hand's change."""
    set_to(memory, "theme", "dark")
    mirror = memory.mirror(directory)
    older = facts_in(directory)
    set_to(memory, "theme", "light")
    mirror.sync()
    put_facts(directory, older | {"pet": "cat"})
    killed(monkeypatch, mirror, "_write")
    with memory.mirror(directory):
        assert memory.profile().items() == [("theme", "light"), ("pet", "cat")]
        assert "dark" in str(kept(directory))


@pytest.mark.parametrize("text", ["swordfish\n", "swordfish\nplain\n"])
@pytest.mark.parametrize("times", [1, 2])
def test_what_is_erased_after_it_was_taken_by_a_round_that_was_cut_off(
    memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch, text: str, times: int
) -> None:
    """The file still has it, and nobody takes it for new."""
    path = day_path(directory, DAY)
    mirror = memory.mirror(directory)
    put(path, text)
    put_facts(directory, {"secret": "hunter2"})
    killed(monkeypatch, mirror, "_write")
    secrets = [recorded.stamp.seq for recorded in memory.events()]
    assert len(secrets) == 2
    if times == 2:
        put(path, path.read_text(encoding="utf-8").replace("\n", "\nmine\n", 1))
        rounds = Rounds(memory, memory._core, str(directory), ("default", "default"), takes=True, writes=True)
        with monkeypatch.context() as patch:
            patch.setattr(Rounds, "_write", lambda *_: (_ for _ in ()).throw(Killed))
            with pytest.raises(Killed):
                rounds.run()
        rounds.close()
    memory.erase(secrets)
    with memory.mirror(directory) as mirror:
        mirror.sync()
        assert_forgotten(directory, "swordfish", "plain", "hunter2", "secret")
    assert "mine" in str(texts_of(memory, DAY)) + str(kept(directory)) or times == 1
    assert not any("swordfish" in str(recorded.event) for recorded in memory.events())


def test_an_erasure_while_edits_are_taken(memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = set_to(memory, "secret", "hunter2")
    with memory.mirror(directory) as mirror:
        older = facts_in(directory)
        set_to(memory, "secret", "hidden")
        mirror.sync()
        save_older(directory, older)
        mirror.sync()
        put_facts(directory, facts_in(directory) | {"pet": "cat"})
        take, waiting = Rounds._take, [secret]

        def taking(*arguments: object) -> bool:
            has_taken = take(*arguments)  # type: ignore[arg-type]
            if waiting and has_taken:
                memory.erase([waiting.pop()])
            return has_taken

        monkeypatch.setattr(Rounds, "_take", taking)
        mirror.sync()
        assert not waiting
        assert_forgotten(directory, "hunter2")


def test_a_file_that_is_saved_again_while_what_was_erased_leaves_it(
    memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its editor has the erased note still, and nobody takes that for a new one."""
    said(memory, "other")
    secret = said(memory, "swordfish\nplain")
    with memory.mirror(directory) as mirror:
        path = day_path(directory, DAY)
        text = path.read_text(encoding="utf-8").replace("plain", "mine")
        put(path, text)
        memory.erase([secret])
        exchanged, waiting = files.exchange, [f"{text}again\n"]

        def meanwhile(folder: int, one: str, other: str) -> bool:
            if waiting:
                put(path, waiting.pop())
            return exchanged(folder, one, other)

        monkeypatch.setattr(files, "exchange", meanwhile)
        mirror.sync()
        assert not waiting
        assert texts_of(memory, DAY) == ["other", "mine", "again"]
        assert_forgotten(directory, "swordfish")


def test_nothing_tells_of_an_erased_value_by_its_digest(memory: Memory, directory: Path) -> None:
    """Also where the files hold nothing of it any more."""
    secret = set_to(memory, "secret", "hunter2")
    with memory.mirror(directory) as mirror:
        set_to(memory, "secret", "hidden")
        mirror.sync()
        hashed = digest(b"hunter2").encode()
        assert hashed in everything(directory)
        memory.erase([secret])
        mirror._rounds.run(trusted=["profile.json"])
        assert hashed not in everything(directory)


def test_a_copy_that_cannot_be_deleted_is_told_until_it_can(memory: Memory, directory: Path) -> None:
    secret = said(memory, "swordfish\nplain")
    with memory.mirror(directory) as mirror:
        put(day_path(directory, DAY), "swordfish\nmine\n")
        (conflict,) = mirror.sync().conflicts
        copy = directory / conflict.kept
        copy.unlink()
        copy.mkdir()
        memory.erase([secret])
        for _ in range(2):
            (problem,) = mirror.sync().problems
            assert problem.file == conflict.kept
        copy.rmdir()
        copy.symlink_to(directory / "profile.json")
        report = mirror.sync()
        assert (report.ok, report.deleted) == (True, (conflict.kept,))
        assert kept(directory) == {}
        assert (directory / "profile.json").exists()


def test_what_was_written_late_waits_for_room(memory: Memory, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said(memory, "other")
    with memory.mirror(directory) as mirror:
        with day_path(directory, DAY).open("a", encoding="utf-8") as editor:
            said(memory, "more")
            mirror.sync()
            editor.write("late words\n")

        def full(*_: object) -> str:
            raise StoreError("no room")

        with monkeypatch.context() as patch:
            patch.setattr(files.MirrorDirectory, "copy", full)
            with pytest.raises(StoreError, match="no room"):
                mirror.sync()
        (conflict,) = mirror.sync().conflicts
        assert "late words" in kept(directory)[conflict.kept]
