"""``refold mirror``: once, as a check, and until it is interrupted."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from refold import Memory
from tests.mirror.files import facts_in, put_facts
from tests.support.memories import assert_sound
from tests.support.paths import ROOT

pytest.importorskip("click", reason="the command line needs the extra refold[cli]")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Memory(tmp_path / "store") as memory:
        memory.profile().set("theme", "dark")
        memory.journal().append("Chose LMDB.", day="2026-11-21")
    return tmp_path / "store"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "refold", "mirror", *arguments]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "engine")}


def ran(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*map(str, arguments)), env=environment(), capture_output=True, text=True, check=False)


def test_it_writes_the_files_and_takes_edits_back(tmp_path: Path, store: Path) -> None:
    directory = tmp_path / "mirror"
    first = ran(directory, "--db", store)
    assert (first.returncode, first.stdout) == (0, "202611/20261121.md: written\nprofile.json: written\n")
    assert facts_in(directory) == {"theme": "dark"}
    again = ran(directory, "--db", store)
    assert (again.returncode, again.stdout) == (0, "in sync at seq 2\n")
    put_facts(directory, {"pet": "cat"})
    check = ran(directory, "--check", "--db", store)
    assert (check.returncode, check.stdout.splitlines()[:2]) == (
        0,
        ["profile.json: pet = cat", "profile.json: theme deleted"],
    )
    taken = ran(directory, "--db", store, "--json")
    assert [edit["kind"] for edit in json.loads(taken.stdout)["edits"]] == ["set", "delete"]
    with Memory(store) as memory:
        assert memory.profile().items() == [("pet", "cat")]
        assert_sound(memory)


def test_conflicts_and_problems_are_an_error(tmp_path: Path, store: Path) -> None:
    directory = tmp_path / "mirror"
    ran(directory, "--db", store)
    with Memory(store) as memory:
        memory.profile().set("theme", "light")
    put_facts(directory, {"theme": "blue"})
    conflict = ran(directory, "--db", store)
    assert (conflict.returncode, "the edited version is in profile.json.conflict-" in conflict.stdout) == (1, True)
    (directory / "profile.json").write_text("{", encoding="utf-8")
    problem = ran(directory, "--db", store)
    assert (problem.returncode, "profile.json: is no JSON" in problem.stdout) == (1, True)
    assert ran(directory, "--check", "--watch", "--db", store).returncode == 2
    assert ran(directory, "--db", tmp_path / "absent").returncode == 1
    with Memory(store) as memory:
        assert memory.profile().items() == [("theme", "light")]
        assert_sound(memory)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_watches_until_it_is_interrupted(tmp_path: Path, store: Path, number: signal.Signals) -> None:
    directory = tmp_path / "mirror"
    with subprocess.Popen(
        command(str(directory), "--watch", "--db", str(store)),
        env=environment() | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "202611/20261121.md: written\n"
        assert process.stdout.readline() == "profile.json: written\n"
        put_facts(directory, {"theme": "blue"})
        assert process.stdout.readline() == "profile.json: theme = blue\n"
        with Memory(store) as memory:
            memory.profile().set("pet", "cat")
            while process.stdout.readline() != "profile.json: written\n" or "pet" not in facts_in(directory):
                pass
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, "Traceback" in errors) == (0, False)
    with Memory(store) as memory:
        assert memory.profile().items() == [("theme", "blue"), ("pet", "cat")]
        assert_sound(memory)
