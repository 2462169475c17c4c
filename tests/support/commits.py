"""A shared log in this process, for tests of what is above it, and logs on servers that run for the tests."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import count

from refold.cli.cluster import NatsServers
from refold.log.commits import (
    AppendConflict,
    Check,
    CommitBytes,
    CommitLog,
    CommitsLost,
    ConnectionLost,
    Replacement,
    link_of,
)
from refold.log.jetstream import JetStreamCommits
from refold.log.postgres import PostgresCommits
from tests.support.nats_servers import NetworkedServers, nats_servers
from tests.support.network import Network
from tests.support.postgres_server import PostgresServer, postgres_server


class RamCommits:
    """Commits in a list. ``lost`` says what becomes of the next appends: the connection is lost before or after."""

    def __init__(self, commits: list[bytes] | None = None, name: str = "ram://commits") -> None:
        self.name = name
        self.commits: list[bytes] = [] if commits is None else commits
        self.lost: list[str] = []
        self.queued = 0
        self.connections = 0
        self._bell = threading.Condition()

    def head(self) -> int:
        return len(self.commits)

    def read(self, after: int) -> list[CommitBytes]:
        if after > len(self.commits):
            raise CommitsLost
        return [CommitBytes(number, packed) for number, packed in enumerate(self.commits[after : after + 3], after + 1)]

    def append(self, expected: int, packed: bytes, before: bytes | None = None) -> int:
        how = self.lost.pop(0) if self.lost else ""
        if how == "before":
            raise ConnectionLost("lost before")
        if expected != len(self.commits) or (before and link_of(self.commits[-1]) != before):
            raise AppendConflict
        with self._bell:
            self.commits.append(packed)
            self._bell.notify_all()
        if how == "after":
            raise ConnectionLost("lost after")
        return len(self.commits)

    def replace(self, commits: Sequence[Replacement]) -> bool:
        is_whole = True
        for number, before, after in commits:
            if self.commits[number - 1] == before:
                self.commits[number - 1] = after
            else:
                is_whole = False
        return is_whole

    def sweep(self) -> None:
        pass

    def queue(self) -> None:
        self.queued += 1

    def leave(self) -> None:
        pass

    def wait(self, seconds: float) -> int | None:
        with self._bell:
            self._bell.wait(seconds)
        return None

    def size_bytes(self) -> int:
        return sum(map(len, self.commits))

    def checks(self) -> list[Check]:
        return []

    def close(self) -> None:
        pass


class Logs:
    """New logs on running servers: each call of ``address`` names another one."""

    def __init__(self, prefix: str, servers: PostgresServer | NatsServers) -> None:
        self.servers = servers
        self._prefix = prefix
        self._numbers = count(1)

    def address(self) -> str:
        """Return the address of a log that nobody has used yet."""
        return f"{self._prefix}log{next(self._numbers)}"

    def copied(self, address: str) -> str:
        """Return the address of a new log with the commits of another one."""
        new = self.address()
        with closing(opened(address)) as source, closing(opened(new)) as target:
            for _, packed in everything(source):
                target.append(target.head(), packed)
        return new


def opened(address: str) -> CommitLog:
    """Return the commits at an address."""
    kind = JetStreamCommits if address.startswith("nats://") else PostgresCommits
    return kind(address, readonly=False)


def everything(commits: CommitLog) -> list[CommitBytes]:
    """Return all commits."""
    found, after = list[CommitBytes](), 0
    while page := commits.read(after):
        found += page
        after = page[-1].number
    return found


@contextmanager
def running(kind: str, disk_bytes: int = 0) -> Iterator[Logs]:
    """Run servers of a kind, ``postgres``, ``nats`` or ``nats-cluster``; skip where there are none.

    Those of ``postgres-network`` and ``nats-network`` are at hosts of their own.
    """
    if kind.startswith("postgres"):
        with ExitStack() as after:
            network = Network(1) if kind == "postgres-network" else None
            if network is not None:
                after.callback(network.end)
            server = after.enter_context(postgres_server(disk_bytes, network))
            yield Logs(f"{server.address}&log=", server)
    else:
        servers_kind = NetworkedServers if kind == "nats-network" else NatsServers
        with nats_servers(1 if kind == "nats" else 3, disk_bytes, servers_kind) as servers:
            yield Logs(servers.address(""), servers)
