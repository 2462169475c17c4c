"""The page for probes: it answers whoever asks, at once, with a status and the name of a problem."""

from pathlib import Path

import pytest

from refold import Memory
from refold.results import Health
from tests.web.site import client_of, filled

ACCESS = "0123456789abcdef-access"


def test_a_memory_that_works_is_ok(memory: Memory) -> None:
    response = client_of(memory, writes=False).get("/health")
    assert (response.status_code, response.json()) == (200, {"ok": True, "problem": ""})
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize("problem", ["unreadable", "unwritable", "behind"])
def test_a_problem_is_named_and_nothing_is_told(memory: Memory, monkeypatch: pytest.MonkeyPatch, problem: str) -> None:
    monkeypatch.setattr(Memory, "health", lambda _: Health(ok=False, problem=problem, message="at /home/me"))
    response = client_of(memory).get("/health")
    assert (response.status_code, response.json()) == (503, {"ok": False, "problem": problem})


def test_a_closed_memory_is_unreadable(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "store")
    client = client_of(memory)
    memory.close()
    response = client.get("/health")
    assert (response.status_code, response.json()["problem"]) == (503, "unreadable")


def test_a_probe_needs_no_token_and_learns_nothing(memory: Memory) -> None:
    client = client_of(filled(memory), access_token=ACCESS)
    response = client.get("/health", headers={"host": "10.0.0.7:8717"})
    assert (response.status_code, response.json()) == (200, {"ok": True, "problem": ""})
    assert client.head("/health").status_code == 200


@pytest.mark.parametrize("path", ["/health/", "/healthy", "/health%2f..", "/login/", "/loginx"])
def test_what_is_near_it_needs_the_token(memory: Memory, path: str) -> None:
    client = client_of(memory, access_token=ACCESS, follow_redirects=False)
    assert client.get(path).headers["location"] == "/login"


def test_it_takes_no_write_and_no_other_name_on_loopback(memory: Memory) -> None:
    client = client_of(memory)
    assert client.post("/health", json={}).status_code == 405
    assert client.get("/health", headers={"host": "evil.example"}).status_code == 421


def test_it_walks_nowhere(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    client, reads = client_of(filled(memory)), list[str]()
    log = memory._core.engine.reader.log
    for name in ("read", "events_at", "rows", "row"):
        monkeypatch.setattr(log, name, lambda *_, name=name, **__: reads.append(name))
    assert client.get("/health").status_code == 200
    assert not reads
