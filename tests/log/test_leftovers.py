"""What a killed process left of a witness or a skill beside it is taken away by the next who writes there."""

import subprocess
import sys
from pathlib import Path

import pytest

from refold.log.disk import unfinished_file
from refold.log.witness import WitnessSlot, create, read

SEEN = WitnessSlot(bytes(16), 7, bytes(32))

WITNESS = """
from refold.log.witness import WitnessSlot, create

os.link = die
create(sys.argv[1] + "/witness", WitnessSlot(bytes(16), 7, bytes(32)))
"""
SKILL = """
from refold.skills.files import write_new

os.link = die
write_new(sys.argv[1], "SKILL.md", b"new")
"""
EDIT = """
from refold.skills.files import replace_file
from refold.text import sha256

with replace_file(sys.argv[1], "SKILL.md", bytes.upper, digest=sha256(b"old").hex()):
    die()
"""
DIES = """
import os, signal, sys

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(program: str, directory: Path) -> None:
    """Let a process die in the midst of a program."""
    assert subprocess.run([sys.executable, "-c", DIES + program, str(directory)], check=False).returncode < 0


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_witness(tmp_path: Path) -> None:
    (tmp_path / ".witness.mine").touch()
    killed(WITNESS, tmp_path)
    assert len(names_in(tmp_path)) == 2
    assert create(str(tmp_path / "witness"), SEEN)
    assert names_in(tmp_path) == {"witness", ".witness.mine"}
    assert read(str(tmp_path / "witness")) == SEEN


def test_a_skill(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    from refold.skills.files import replace_file, write_new
    from refold.text import sha256

    killed(SKILL, tmp_path)
    assert len(names_in(tmp_path)) == 1
    write_new(str(tmp_path), "SKILL.md", b"old")
    assert names_in(tmp_path) == {"SKILL.md"}
    killed(EDIT, tmp_path)
    assert (tmp_path / "SKILL.md").read_bytes() == b"OLD"
    assert len(names_in(tmp_path)) == 2
    with replace_file(str(tmp_path), "SKILL.md", bytes.title, digest=sha256(b"OLD").hex()):
        assert len(names_in(tmp_path)) == 2, "the file of before is there until the edit is recorded"
    assert names_in(tmp_path) == {"SKILL.md"}


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    with unfinished_file(str(tmp_path), ".a.") as (_, first), unfinished_file(str(tmp_path), ".a.") as (_, second):
        assert names_in(tmp_path) == {Path(first).name, Path(second).name}
    assert names_in(tmp_path) == set()
