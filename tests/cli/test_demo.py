"""The demonstration: what it shows holds, and where its clock is fixed it prints the same bytes again."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from refold import Memory
from refold.cli import demo, main
from refold.cli.output import Console
from refold.cli.root import FixedSource, open_memory
from tests.support.command import COMMAND, running, terminal_output

CLOCK = {"REFOLD_CLOCK_NS": "1700000000000000000"}


def run_demo(*arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, **variables}
    return subprocess.run([*COMMAND, "demo", *arguments], env=environment, capture_output=True, check=False, timeout=60)


def test_two_runs_on_a_fixed_clock_print_the_same_bytes(tmp_path: Path) -> None:
    first = run_demo(PYTHONHASHSEED="1", TZ="Asia/Tokyo", **CLOCK)
    second = run_demo("--db", str(tmp_path / "kept"), PYTHONHASHSEED="2", TZ="America/Lima", **CLOCK)
    assert (first.returncode, first.stderr) == (0, b"")
    assert first.stdout == second.stdout
    assert second.returncode == 0


def test_it_tells_the_story_of_an_agent_that_forgot() -> None:
    shown = run_demo(**CLOCK)
    lines = shown.stdout.decode("ascii").splitlines()
    assert len(lines) <= 70
    assert max(map(len, lines)) <= 100
    assert [line[:2] for line in lines if line[:1].isdigit()] == ["1.", "2.", "3.", "4.", "5.", "6."]
    parts = dict(re.findall(r"^(\d)\. (.*?)(?=^\d\. |\Z)", shown.stdout.decode(), re.MULTILINE | re.DOTALL))
    told, nuts = "Hi, I am Alice, and I am allergic to nuts.", "A bag of roasted nuts. Enjoy!"
    assert re.search(rf"Alice  {told}\n(.*\n)+ +left the window:  {told}\n", parts["1"])
    assert f"agent  {nuts}\n" in parts["2"]
    assert f"event  2  Alice said: {told}\n" in parts["3"]
    assert "event 17  The agent forgot it, because 69 tokens did not fit into 60:\n" in parts["3"]
    assert (
        "event 23  The model was shown a window of 6 messages and asked for a snack; none mentioned nuts.\n"
        in parts["3"]
    )
    assert "kept:  Alice is allergic to nuts.\n" in parts["4"]
    assert "agent  An apple. Nothing with nuts, as you are allergic.\n" in parts["4"]
    assert f"The first attempt is still in the log, unchanged: {nuts}\n" in parts["4"]
    assert "reopened: 20 messages, exactly the acknowledged ones: yes\n" in parts["5"]
    hashes = re.findall(r"hash of the \w+ +([0-9a-f]{64})\n", parts["6"])
    assert len(hashes) == 2
    assert hashes[0] == hashes[1]
    assert "equal, to the last byte\n" in parts["6"]


def test_it_has_colour_on_terminals_alone_unless_it_is_plain() -> None:
    assert "\x1b[1;36m1. An agent is told something" in terminal_output(["demo"])
    plain = terminal_output(["demo", "--plain"], **CLOCK).replace("\r\n", "\n")
    assert "\x1b" not in plain
    assert plain == run_demo(**CLOCK).stdout.decode()


def test_without_a_fixed_clock_everything_holds_too(tmp_path: Path) -> None:
    shown = run_demo("--json", "--db", str(tmp_path / "kept"), REFOLD_CLOCK_NS="")
    assert (shown.returncode, shown.stderr) == (0, b"")
    facts = json.loads(shown.stdout)
    assert facts["ok"]
    assert facts["reason"]["was_shown"] is False
    assert facts["crash"]["found"] == facts["crash"]["acknowledged"]
    assert len(facts["crash"]["found"]) == 20
    with Memory(tmp_path / "kept", readonly=True) as memory:
        assert memory.verify().ok
        assert memory.state_hash() == facts["replay"]["live"] == facts["replay"]["replayed"]
        assert memory.conversation("crash").window(last=1)[0].content == "message 20"
        # What it says of the window is what the window was.
        trip, left = memory.conversation("trip"), facts["reason"]["left_seq"]
        assert facts["reason"]["said_seq"] in [message.seq for message in trip.at(left - 1).window()]
        assert facts["reason"]["said_seq"] not in [message.seq for message in trip.at(left).window()]
        assert memory.forks() == ["second-try"]


def test_it_counts_as_the_command_line_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = run_demo("--db", str(tmp_path / "kept"), **CLOCK).stdout.decode()
    refold = running(monkeypatch, capfd)
    monkeypatch.setenv("REFOLD_DB", str(tmp_path / "kept"))
    log = refold("log")
    own, forked = re.findall(
        r"(\d+) of them belong to this memory, as `refold log` lists them, and (\d+) to the fork", shown
    )[0]
    assert len(log.out.splitlines()) == int(own)
    assert (
        log.err == f"{forked} of the {int(own) + int(forked)} events belong to forks (second-try) and are not listed\n"
    )
    assert f"all {int(own) + int(forked)} events are replayed" in shown
    assert re.search(rf"events +{int(own) + int(forked)}  including 1 fork;", refold("stats").out)
    (size,) = re.findall(r"shown a window of (\d+) messages", shown)
    assert f"window  {size} messages" in refold("show", "--context", 23).out


def test_it_fails_where_the_agent_does_not_remember(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_FACT", "Alice likes trains.")
    assert run_inside(monkeypatch, "--plain") == 1
    assert "An apple" not in capfd.readouterr().out


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
    assert "exactly the acknowledged ones: NO" in capfd.readouterr().out


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
    source = FixedSource(1_000)
    assert [source.clock_ns(), source.clock_ns()] == [1_001_000, 2_001_000]
    drawn = [source.random_bytes(40), source.random_bytes(40)]
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
        with open_memory(str(tmp_path / "store")) as memory:
            ids.append(memory.conversation("chat").append("user", "Hello!").id)
    assert len(set(ids)) == 3
