"""The server of the pages: connections on which nothing comes, addresses that others reach, and who they must be."""

import socket
import threading
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from refold import InvalidInput, Memory, listener
from refold.listener import HOST, is_loopback
from refold.web import app_of
from refold.web.access import COOKIE
from refold.web.server import check_address
from tests.support.command import running
from tests.web.site import SECONDS, TOKEN, client_of, filled, served

ACCESS = "0123456789abcdef-access"


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n",),
        (b"POST /api/sessions/x/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{",),
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_request_that_does_not_arrive_whole_is_given_up(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, parts: tuple[bytes, ...]
) -> None:
    monkeypatch.setattr(listener, "REQUEST_SECONDS", 0.2)
    with served(memory) as port, socket.create_connection((HOST, port), SECONDS) as connection:
        for part in parts:
            connection.sendall(part)
        received = b""
        while piece := connection.recv(2**16):  # It ends; a refusal may come before.
            received += piece
        assert b" 200 " not in received


def test_a_stream_stays_open_however_long_nothing_is_asked(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REQUEST_SECONDS", 0.1)
    with served(memory) as port, socket.create_connection((HOST, port), SECONDS) as connection:
        connection.sendall(b"GET /api/notices HTTP/1.1\r\nhost: localhost\r\n\r\n")
        received = b""
        while b"still here" not in received:
            received += connection.recv(2**16)
        threading.Event().wait(0.5)
        memory.profile().set("key", "value")
        while b"profile_set" not in received:
            received += connection.recv(2**16)


def test_connections_beyond_the_bound_are_refused(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "CONNECTIONS_COUNT_MAX", 2)
    monkeypatch.setattr(listener, "REQUEST_SECONDS", 5)
    with served(memory) as port:
        silent = [socket.create_connection((HOST, port), SECONDS) for _ in range(2)]
        with socket.create_connection((HOST, port), SECONDS) as third:
            assert third.recv(2**16).startswith(b"HTTP/1.1 503 ")
        for connection in silent:
            connection.close()


# Addresses that others reach.


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - nothing listens there
        ("::", False),
        ("192.168.1.4", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_an_address_that_others_reach_needs_a_token(memory: Memory, host: str, alone: bool) -> None:
    assert is_loopback(host) is alone
    check_address(app_of(memory, access_token=ACCESS), host)
    if alone:
        check_address(app_of(memory), host)
    else:
        with pytest.raises(InvalidInput, match="others than this machine reach"):
            check_address(app_of(memory), host)


def test_the_command_refuses_to_listen_for_others_without_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run, store = running(monkeypatch, capfd), tmp_path / "store"
    monkeypatch.delenv("REFOLD_WEB_TOKEN", raising=False)
    Memory(store).close()
    ended = run("web", "--db", store, "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - refused
    assert ended.code
    assert "give a token" in ended.err
    short = run("web", "--db", store, "--token", "short", "--port", "0")
    assert short.code
    assert "TOKEN_CHARS_MIN = 16" in short.err


@pytest.fixture
def locked(memory: Memory) -> TestClient:
    return client_of(filled(memory), access_token=ACCESS, follow_redirects=False)


def test_who_does_not_know_the_token_sees_nothing(locked: TestClient, memory: Memory) -> None:
    head = memory.head
    for path in ("/", "/sessions/trip", "/store?verify=1", "/why?x=3", "/nothing", "/login/../store"):
        answer = locked.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login"), path
        assert "trip" not in answer.text
    for headers in (
        {},
        {"authorization": "Bearer"},
        {"authorization": f"Bearer {ACCESS[:-1]}"},
        {"authorization": f"Basic {ACCESS}"},
        {"cookie": f"{COOKIE}={ACCESS}"},
        {"cookie": f"{COOKIE}=; ]["},
        {"x-csrf-token": TOKEN},
    ):
        answer = locked.get("/api/sessions", headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert locked.post("/api/sessions/x/messages", json={"role": "user"}, headers=headers).status_code == 401
        assert locked.post("/board/settings?session_id=trip", data={"csrf": TOKEN}, headers=headers).status_code == 303
    assert memory.head == head
    assert locked.get("/static/refold.css").status_code == 200
    assert locked.get("/login").headers["content-security-policy"]


def test_a_program_shows_the_token_and_a_person_gets_a_cookie_for_it(locked: TestClient) -> None:
    bearer = {"authorization": f"Bearer {ACCESS}"}
    assert locked.get("/api/sessions", headers=bearer).status_code == 200
    assert locked.get("/api/sessions", headers=bearer | {"host": "machine.example:8717"}).status_code == 200
    assert locked.post("/login", data={"token": "wrong"}).status_code == 401
    assert "refold_access" not in locked.cookies
    foreign = {"origin": "http://evil.example"}
    assert locked.post("/login", data={"token": ACCESS}, headers=foreign).status_code == 403
    answer = locked.post("/login", data={"token": f" {ACCESS} "})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert ACCESS not in cookie
    assert locked.get("/sessions/trip").status_code == 200
    assert locked.get("/sessions/trip", headers=foreign).status_code == 403


def test_without_a_token_there_is_nobody_to_be(memory: Memory) -> None:
    assert client_of(memory).get("/login").status_code == 404
    assert client_of(memory).get("/", headers={"host": "machine.example"}).status_code == 421


def test_a_reading_server_takes_the_token_and_still_only_reads(memory: Memory) -> None:
    client = client_of(filled(memory), writes=False, access_token=ACCESS, follow_redirects=False)
    assert client.post("/login", data={"token": ACCESS}).status_code == 303
    assert client.post("/board/settings?session_id=trip", data={"csrf": TOKEN}).status_code == 403
