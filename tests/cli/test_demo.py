"""The demonstration: what it shows holds, and where its clock is fixed it prints the same bytes again."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from refold import Memory
from refold.cli import demo, main
from refold.cli.output import Console
from refold.cli.root import FixedSource, opened

CLOCK = {"REFOLD_CLOCK_NS": "1700000000000000000"}


def run_demo(*arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", "import sys; from refold.cli import main; sys.exit(main())", "demo"]
    environment = {**os.environ, **variables}
    return subprocess.run([*command, *arguments], env=environment, capture_output=True, check=False, timeout=60)


def test_two_runs_on_a_fixed_clock_print_the_same_bytes(tmp_path: Path) -> None:
    first = run_demo(PYTHONHASHSEED="1", TZ="Asia/Tokyo", **CLOCK)
    second = run_demo("--db", str(tmp_path / "kept"), PYTHONHASHSEED="2", TZ="America/Lima", **CLOCK)
    assert (first.returncode, first.stderr) == (0, b"")
    assert first.stdout == second.stdout
    assert second.returncode == 0


def test_it_shows_what_it_promises_in_few_lines() -> None:
    shown = run_demo(**CLOCK)
    lines = shown.stdout.decode("ascii").splitlines()
    assert len(lines) <= 70
    hashes = [line.split()[1] for line in lines if line.strip().startswith(("live", "replayed"))]
    assert len(hashes) == 2
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 64
    assert [line for line in lines if line.startswith(("1.", "2.", "3.", "4.", "5.", "6.", "7."))][6].startswith("7.")
    assert any("out: " in line for line in lines)


def test_without_a_fixed_clock_everything_holds_too(tmp_path: Path) -> None:
    shown = run_demo("--json", "--db", str(tmp_path / "kept"), REFOLD_CLOCK_NS="")
    assert (shown.returncode, shown.stderr) == (0, b"")
    facts = json.loads(shown.stdout)
    assert facts["ok"]
    assert facts["imported"] == {"conversations": 3, "messages": 54, "events": 57}
    assert facts["window"]["evicted"] > 0
    assert facts["crash"]["found"] == facts["crash"]["acknowledged"]
    assert len(facts["crash"]["found"]) == 20
    with Memory(tmp_path / "kept", readonly=True) as memory:
        assert memory.verify().ok
        assert memory.state_hash() == facts["replay"]["live"] == facts["replay"]["replayed"]
        assert memory.conversation("crash").window(last=1)[0].content == "message 20"


def run_inside(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["refold", "demo", *arguments])
    return main()


def test_it_fails_where_a_replay_differs(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Memory, "replay_hash", lambda _: "0" * 64)
    assert run_inside(monkeypatch) == 1
    assert "NOT EQUAL" in capfd.readouterr().out


def test_it_fails_where_an_acknowledged_message_is_missing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    crash = demo._crash

    def told_more(path: str, console: Console) -> dict[str, list[int]]:
        facts = crash(path, console)
        return {"acknowledged": [*facts["acknowledged"], facts["acknowledged"][-1] + 1]}

    monkeypatch.setattr(demo, "_crash", told_more)
    assert run_inside(monkeypatch) == 1
    assert "exactly those that were acknowledged: NO" in capfd.readouterr().out


def test_it_says_so_where_the_child_cannot_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_CRASH", "")
    assert run_inside(monkeypatch) == 1
    assert "refold: the demo's child ended by itself with 1 after 0 messages" in capfd.readouterr().err


def test_it_touches_no_store_that_has_something_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Memory(tmp_path / "mine") as memory:
        memory.profile().set("theme", "dark")
    monkeypatch.setenv("REFOLD_DB", str(tmp_path / "mine"))
    assert run_inside(monkeypatch) == 0
    assert run_inside(monkeypatch, "--db", str(tmp_path / "mine")) == 1
    assert "already has 1 events; give the demo a path that is new" in capfd.readouterr().err
    with Memory(tmp_path / "mine") as memory:
        assert memory.head == 1


def test_the_fixed_clock_advances_and_the_fixed_bytes_differ_by_head() -> None:
    doors = FixedSource(1_000)
    assert [doors.clock_ns(), doors.clock_ns()] == [1_001_000, 2_001_000]
    drawn = [doors.random_bytes(40), doors.random_bytes(40)]
    assert [len(part) for part in drawn] == [40, 40]
    assert drawn[0] != drawn[1]
    again = FixedSource(1_000)
    assert [again.random_bytes(40), again.random_bytes(40)] == drawn
    again.reseed(7)
    assert again.random_bytes(40) not in drawn


def test_commands_on_a_fixed_clock_never_draw_an_id_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_CLOCK_NS", CLOCK["REFOLD_CLOCK_NS"])
    ids = []
    for _ in range(3):
        with opened(str(tmp_path / "store")) as memory:
            ids.append(memory.conversation("chat").append("user", "Hello!").id)
    assert len(set(ids)) == 3
