"""Files that are written whole or not at all, and taken over where a crash left a part of one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from refold import Memory, StoreBusy, StoreError
from refold.log.disk import build_file

KILLED = """
import os, signal, sys
from refold.log.disk import build_file

with build_file(sys.argv[1], "a report", overwrite=True) as file:
    file.write(b"half of it")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(path: Path) -> None:
    """Dies while it makes a file."""
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode < 0


def test_what_a_killed_process_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_bytes(b"the old one")
    killed(path)
    assert {file.name for file in tmp_path.iterdir()} == {"report", ".report.refold-part"}
    assert path.read_bytes() == b"the old one"
    with build_file(str(path), "a report", overwrite=True) as file:
        file.write(b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("report", b"new")]
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_export_of_either_form_takes_over_what_a_kill_left(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    for name in ("export", "messages"):
        killed(made / name)
    with Memory(tmp_path / "store") as memory:
        memory.conversation("a").append("user", "hello")
        memory.export(made / "export")
    command = [sys.executable, "-m", "refold", "export", str(made / "messages"), "--format", "openai"]
    subprocess.run([*command, "--db", str(tmp_path / "store")], check=True)
    assert {file.name for file in made.iterdir()} == {"export", "messages"}


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="closed"),
        build_file(str(tmp_path / "report"), "a report", overwrite=True) as file,
    ):
        file.close()
    assert list(tmp_path.iterdir()) == []


def test_two_do_not_make_the_same_file_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "report")
    with build_file(path, "a report", overwrite=True) as file:
        with (
            pytest.raises(StoreBusy, match="somebody is making a report there"),
            build_file(path, "a report", overwrite=True),
        ):
            pass
        file.write(b"the first")
    assert Path(path).read_bytes() == b"the first"


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "report")
    with build_file(str(tmp_path / "link"), "a report", overwrite=True) as file:
        file.write(b"new")
    assert (tmp_path / "report").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


def test_nothing_but_a_file_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    with Memory() as memory:
        for name in ("pipe", "directory"):
            with pytest.raises(StoreError, match=r"exporting to .*is there that is not replaced.*; give a path"):
                memory.export(tmp_path / name)
    assert {file.name for file in tmp_path.iterdir()} == {"pipe", "directory"}
