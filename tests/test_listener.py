"""A server over HTTP in a process that may open few files: it refuses what it cannot take, in silence, and goes on."""

import re
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from refold import Memory
from refold.listener import HOST

SECONDS: Final = 30
CONNECTIONS_COUNT: Final = 200
REQUEST: Final = b"GET /none HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
SERVERS: Final = {"mcp": ["mcp", "--http", "0"], "web": ["web", "--port", "0"]}


@contextmanager
def server(store: Path, arguments: list[str], files_count_max: int, messages: Path) -> Iterator[int]:
    """Run a server that may open so many files; yield its port."""
    limits = files_count_max, files_count_max
    with messages.open("wb") as stderr:
        child = subprocess.Popen(
            [sys.executable, "-m", "refold", *arguments, "--db", str(store)],
            stdout=stderr,
            stderr=stderr,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits),  # noqa: PLW1509 - no thread runs here
        )
    try:
        until = time.monotonic() + SECONDS
        while (port := re.search(rf"{HOST}:(\d+)", messages.read_text())) is None:
            assert child.poll() is None, messages.read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        yield int(port[1])
        child.terminate()
        child.wait(SECONDS)
    finally:
        child.kill()
        child.wait()


def answered(connection: socket.socket) -> bytes:
    """Send a request; return the status of the answer."""
    connection.settimeout(SECONDS)
    connection.sendall(REQUEST)
    return connection.recv(2**16).split(b"\r\n")[0]


def refused(connections: list[socket.socket]) -> list[socket.socket]:
    """Return those that get a 503 without having asked, once no further one does for a second."""
    found: list[socket.socket] = []
    while arrived := select.select([each for each in connections if each not in found], [], [], 1)[0]:
        assert all(each.recv(2**16).startswith(b"HTTP/1.1 503 ") for each in arrived)
        found += arrived
    return found


@pytest.mark.parametrize("files_count_max", [48, 256])
@pytest.mark.parametrize("arguments", SERVERS.values(), ids=SERVERS)
def test_connections_beyond_the_descriptors_are_refused_in_silence(
    tmp_path: Path, arguments: list[str], files_count_max: int
) -> None:
    Memory(tmp_path / "store").close()
    messages = tmp_path / "messages"
    with server(tmp_path / "store", arguments, files_count_max, messages) as port:
        with ExitStack() as stack:
            taken = [
                stack.enter_context(socket.create_connection((HOST, port), SECONDS)) for _ in range(CONNECTIONS_COUNT)
            ]
            assert CONNECTIONS_COUNT - files_count_max <= len(refused(taken)) < CONNECTIONS_COUNT
        until = time.monotonic() + SECONDS
        while True:
            with socket.create_connection((HOST, port), SECONDS) as connection:
                if answered(connection) == b"HTTP/1.1 404 Not Found":
                    break
            assert time.monotonic() < until
    printed = messages.read_text()
    assert "Traceback" not in printed
    assert len(printed.splitlines()) < 10, printed
