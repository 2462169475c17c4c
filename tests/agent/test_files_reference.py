"""The file-like memory tool against the reference class of the `anthropic` package: the same commands, the same words.

Where they differ on purpose, the commands are not drawn here, and `test_files.py` says what ours does: paths that only
begin like the root, suspicious names, and failed calls that leave directories behind.
"""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from refold import InvalidInput, LimitExceeded, Memory, NotFound
from tests.support.memories import assert_sound

reference = pytest.importorskip("anthropic.tools", reason="the reference comes with the package `anthropic`")

REFUSED = (InvalidInput, LimitExceeded, NotFound)
DIRECTORY_SIZE = re.compile(r"^\S+\t(?=.*/$)", re.MULTILINE)
NAMES = ("a", "b", "a.txt", "notes.md", ".hidden", "\u00e9 1", "A")

plain = st.lists(st.sampled_from(NAMES), max_size=3).map(lambda names: "/".join(("/memories", *names)))
ODD = """
/memories/ /memories//a /memories/a/ /memories/a/.. /memories/b/../a /memories/./b /memories/.. /memories/../x
/memories/a/../../memories/b /memories/../../memories/a / memories/a /etc/x
"""
odd = st.sampled_from(["", *ODD.split()])
paths = st.one_of(plain, plain, plain, plain, odd)
LINES = ("one", "two", "tw", "o", "", "\u00e9t\u00e9", "cr\r", " ", "one")
texts = st.lists(st.sampled_from(LINES), max_size=6).map("\n".join)
pieces = st.one_of(st.sampled_from(["one", "two", "tw", "o", "\n", "", "t\u00e9", "ne\nt"]), texts)
numbers = st.integers(-2, 8)


class ReferenceMachine(RuleBasedStateMachine):
    """One tree in the log and one in a directory; each command goes to both."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="refold-"))
        self.tool = reference.BetaLocalFilesystemMemoryTool(str(self.directory))
        self.root = self.directory / "memories"
        self.memory = Memory()
        self.files = self.memory.files()

    def teardown(self) -> None:
        assert_sound(self.memory)
        self.memory.close()
        shutil.rmtree(self.directory)

    def both(self, command: str, **given: Any) -> None:
        before, head = set(self.root.rglob("*")), self.memory.head
        expected, is_told = self.asked(command, given)
        try:
            answer = getattr(self.files, command)(**given)
        except REFUSED as error:
            answer = f"refused: {error}"
        if is_told:
            assert shown(answer, given) == shown(expected, given)
            return
        # The reference failed in a way that it has no words for: so do we, and neither has changed anything.
        assert answer.startswith("refused: ")
        assert self.memory.head == head
        self.undo(before)

    def asked(self, command: str, given: dict[str, Any]) -> tuple[str, bool]:
        """What the reference answers, and whether it has words for it."""
        before = set(self.root.rglob("*"))
        try:
            return str(self.tool.call({"command": command, **given})), True
        except reference.ToolError as error:
            self.undo(before)
            return f"refused: {error}", True
        except (OSError, ValueError) as error:
            return repr(error), False

    def undo(self, before: set[Path]) -> None:
        """Takes the directories away that a failed command has made."""
        for made in sorted(set(self.root.rglob("*")) - before, reverse=True):
            made.rmdir()

    @rule(path=paths, view_range=st.one_of(st.none(), st.lists(numbers, max_size=3)))
    def view(self, path: str, view_range: list[int] | None) -> None:
        self.both("view", path=path, view_range=view_range)

    @rule(path=paths, text=texts)
    def create(self, path: str, text: str) -> None:
        self.both("create", path=path, file_text=text)

    @rule(path=paths, old=pieces, new=pieces)
    def str_replace(self, path: str, old: str, new: str) -> None:
        self.both("str_replace", path=path, old_str=old, new_str=new)

    @rule(place=st.integers(0, 20), old=pieces, new=pieces, number=numbers)
    def edit_one_that_is_there(self, place: int, old: str, new: str, number: int) -> None:
        held = self.files.list()
        if held:
            path = held[place % len(held)].path
            self.both("str_replace", path=path, old_str=old, new_str=new)
            self.both("insert", path=path, insert_line=number, insert_text=new)
            self.both("view", path=path, view_range=[number, place - 2])

    @rule(path=paths, number=numbers, text=pieces)
    def insert(self, path: str, number: int, text: str) -> None:
        self.both("insert", path=path, insert_line=number, insert_text=text)

    @rule(path=paths)
    def delete(self, path: str) -> None:
        self.both("delete", path=path)

    @rule(old=paths, new=paths)
    def rename(self, old: str, new: str) -> None:
        self.both("rename", old_path=old, new_path=new)

    @invariant()
    def both_hold_the_same(self) -> None:
        held = {path for path in self.root.rglob("*") if path.is_file()}
        told = {f"/memories/{path.relative_to(self.root).as_posix()}": path.read_bytes().decode() for path in held}
        assert {entry.path: self.files.read(entry.path) for entry in self.files.list()} == told
        assert {entry.path: entry.size_bytes for entry in self.files.list()} == {
            path: len(text.encode()) for path, text in told.items()
        }
        self.both("view", path="/memories")


def shown(answer: str, given: dict[str, Any]) -> str:
    """An answer without the sizes of directories, which a file system has its own idea of."""
    if not answer.startswith("Here're the files"):
        return answer
    header, first, *rest = answer.split("\n")
    assert first.endswith(f"\t{given['path']}")
    return "\n".join((header, *(DIRECTORY_SIZE.sub("", line) for line in rest)))


def run(examples: int, steps: int) -> None:
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(ReferenceMachine, settings=profile)


def test_the_same_commands_get_the_same_answers_as_from_the_reference() -> None:
    run(25, 30)


@pytest.mark.slow
def test_the_same_commands_get_the_same_answers_in_a_long_run() -> None:
    run(60, 40)
