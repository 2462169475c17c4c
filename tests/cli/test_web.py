"""`refold web` as a command: it serves a store on loopback, only reads unless told, and ends on a signal."""

import json
import os
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from refold import Memory
from tests.support.command import running


@pytest.mark.slow
@pytest.mark.parametrize("writes", [False, True])
def test_a_store_is_served_until_a_signal(tmp_path: Path, *, writes: bool) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.conversation("chat-42").append("user", "Hello!")
    command = [sys.executable, "-m", "refold", "web", "--db", str(tmp_path / "store"), "--port", "0"]
    command += ["--write"] if writes else []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as serving:
        assert serving.stderr is not None
        address = serving.stderr.readline().strip().removeprefix("refold: serving ")
        assert address.startswith("http://127.0.0.1:")
        connection = HTTPConnection(address.removeprefix("http://").rstrip("/"))
        connection.request("GET", "/api/sessions")
        assert json.load(connection.getresponse())["sessions"][0]["id"] == "chat-42"
        body = json.dumps({"session_id": "chat-42", "value": "so far"})
        kind = {"content-type": "application/json"}
        connection.request("PATCH", "/api/working-memory/working_history", body, kind)
        assert connection.getresponse().status == (200 if writes else 403)
        connection.close()
        serving.send_signal(signal.SIGTERM)
        serving.wait(30)
    with Memory(tmp_path / "store") as memory:
        assert memory.board(session="chat-42").get("working_history") == ("so far" if writes else "")


def test_a_store_that_is_not_there_is_created_to_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    refold, path = running(monkeypatch, capfd), tmp_path / "new"
    monkeypatch.setattr("refold.web.serve", lambda *_: None)
    refused = refold("web", "--db", path)
    said = f"refold: there is no store at {path}; `refold web --write --db {path}` creates one\n"
    assert (refused.code, refused.err, path.exists()) == (1, said, False)
    assert refold("web", "--db", path, "--write").code == 0
    with Memory(path, readonly=True) as memory:
        assert memory.head == 0
    assert refold("web", "--db", path).code == 0


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    refold = running(monkeypatch, capfd)
    monkeypatch.setattr("refold.web.find_spec", lambda _: None)
    ended = refold("web", "--db", tmp_path / "store")
    assert (ended.code, ended.out) == (1, "")
    assert "pip install 'refold[web]'" in ended.err
    assert not (tmp_path / "store").exists()
