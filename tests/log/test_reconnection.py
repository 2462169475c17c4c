"""A client of NATS that finds no server at the other end leaves no connection open."""

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

from refold import StoreUnreachable
from refold.log.jetstream import JetStreamCommits
from tests.support.commits import running

SLOW_SECONDS = 30


class Relay(BaseRequestHandler):
    """What is between a client and its server: it passes everything on, or talks nonsense and waits for the end."""

    server: Any

    def handle(self) -> None:
        if self.server.upstream is None:
            self.request.sendall(b"220 mail.example.com ESMTP\r\n")
            self.server.met += 1
            with suppress(ConnectionError):
                while self.request.recv(65_536):
                    pass
            self.server.ended += 1
            return
        with closing(socket.create_connection(self.server.upstream)) as other:
            self.server.passing += [self.request, other]
            thread = threading.Thread(target=self.copy, args=(other, self.request))
            thread.start()
            self.copy(self.request, other)
            thread.join()

    def copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65_536):
                target.sendall(piece)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def relaying(upstream: tuple[str, int] | None) -> Iterator[Any]:
    server: Any = ThreadingTCPServer(("127.0.0.1", 0), Relay)
    server.upstream, server.met, server.ended, server.passing = upstream, 0, 0, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that another thread brings about; a client waits for seconds between attempts."""
    give_up = time.monotonic() + SLOW_SECONDS
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_who_is_no_server_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold.log.jetstream._SECONDS", 2.0)
    with relaying(None) as relay:
        with pytest.raises(StoreUnreachable, match="no connection within 2 s"):
            JetStreamCommits(f"nats://127.0.0.1:{relay.server_address[1]}/log", readonly=False)
        assert relay.met
        until(lambda: relay.ended == relay.met)
        gc.collect()


@pytest.mark.slow
def test_who_comes_back_as_somebody_else_is_hung_up_on() -> None:
    with running("nats") as logs:
        host, _, log = logs.address().removeprefix("nats://").partition("/")
        name, _, port = host.partition(":")
        with relaying((name, int(port))) as relay:
            address = f"nats://127.0.0.1:{relay.server_address[1]}/{log}"
            with closing(JetStreamCommits(address, readonly=False)) as commits:
                number = commits.append(0, b"commit")
                upstream, relay.upstream = relay.upstream, None
                for each in relay.passing:
                    with suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
                with pytest.raises(StoreUnreachable):
                    commits.head()
                until(lambda: relay.met > 2)
                relay.upstream = upstream
                until(lambda: _head(commits) == number)
                until(lambda: relay.ended == relay.met)
        gc.collect()


def _head(commits: JetStreamCommits) -> int | None:
    with suppress(StoreUnreachable):
        return commits.head()
    return None
