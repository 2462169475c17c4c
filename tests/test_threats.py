"""What the table of threats in ARCHITECTURE.md promises: its tests exist, and only their owner reads refold's files."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold import Memory, recover
from refold.skills import SkillRoots
from tests.support.command import running
from tests.support.paths import ROOT

TESTS = ROOT / "tests"


def functions_of(path: str) -> set[str]:
    """The names of the functions of a file of tests."""
    nodes = ast.walk(ast.parse((TESTS / path).read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_every_threat_names_tests_that_exist() -> None:
    text = (ROOT / "engine" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|.*\|$", text.partition("\n## Threats\n")[2].partition("\n## ")[0], re.MULTILINE)[2:]
    named = [re.findall(r"`([\w/]+\.py)::(\w+)`", row) for row in rows]
    assert len(rows) > 8
    assert all(named)
    assert [(path, name) for tests in named for path, name in tests if name not in functions_of(path)] == []


@pytest.fixture(params=[0o000, 0o022], ids=oct)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, str]:
    """The modes of everything below a directory that others may read, write or enter, by path."""
    found = {path: path.lstat().st_mode & 0o777 for path in directory.rglob("*")}
    return {
        path.relative_to(directory).as_posix(): oct(mode)
        for path, mode in found.items()
        if mode != (0o700 if path.is_dir() else 0o600)
    }


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize("durability", ["durable", "delayed"])
def test_only_their_owner_reads_the_files_of_a_memory(tmp_path: Path, durability: str) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    with Memory(tmp_path / "store", witness=tmp_path / "witness", durability=durability) as memory:
        assert modes(tmp_path) == {}
        chat = memory.conversation("chat")
        chat.append("user", "My passport number is 4711.")
        memory.journal().append("Chose LMDB.")
        memory.profile().set("theme", "dark")
        with memory.mirror(tmp_path / "mirror") as mirror:
            mirror.sync()
            assert modes(tmp_path / "mirror") == {}
        skills = memory.skills.with_roots(SkillRoots(project=str(tmp_path)))
        skills.create("deploy", "How to deploy.", "Push the tag.\n")
        skills.edit("deploy", body="Push the tag, then wait.\n")
        skills.export("deploy", str(tmp_path / "new" / "skills"))
        memory.backup(tmp_path / "backup")
        memory.export(tmp_path / "export.jsonl")
        memory.erase([1])
        assert modes(tmp_path) == {}
    recover(tmp_path / "backup", tmp_path / "recovered")
    with Memory(tmp_path / "loaded") as memory:
        memory.load(tmp_path / "export.jsonl")
    assert modes(tmp_path) == {}


@pytest.mark.usefixtures("_umask")
def test_only_their_owner_reads_what_the_command_line_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("click", reason="the command line needs the extra refold[cli]")
    run, store = running(monkeypatch, capfd), tmp_path / "store"
    source = Path(__file__).parent / "samples" / "airline.jsonl"
    for arguments in (
        ("import", source, "--db", store),
        ("export", tmp_path / "export.jsonl", "--db", store),
        ("export", tmp_path / "messages.jsonl", "--format", "openai", "--db", store),
        ("backup", tmp_path / "backup", "--db", store),
        ("recover", tmp_path / "backup", tmp_path / "recovered"),
        ("mirror", tmp_path / "mirror", "--db", store),
        ("demo", "--db", tmp_path / "demo"),
    ):
        ended = run(*arguments)
        assert ended.code == 0, (arguments, ended.err)
    assert modes(tmp_path) == {}
