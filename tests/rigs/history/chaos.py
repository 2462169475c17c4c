"""Faults of the servers of a log, one after the other, while processes write.

Each ends before the next one begins, and mostly the servers are waited for as well: else a cluster that has to choose a
leader after each fault would come to serve nobody, and that nobody gets through would say nothing of who tries.
"""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import closing
from random import Random
from typing import Final, Self

from refold import StoreFull, StoreUnreachable
from refold.cli.cluster import NatsServers
from refold.log.commits import AppendConflict, ConnectionLost
from tests.support.commits import Logs, opened
from tests.support.nats_servers import NetworkedServers
from tests.support.network import CLIENTS, Network
from tests.support.postgres_server import PostgresServer
from tests.support.small_disk import fill, make_room

PAUSE_SECONDS: Final = (0.5, 3.0)
"""Between two faults."""
FAULT_SECONDS: Final = (0.0, 6.0)
"""How long one lasts: over the time in which a leader is missed."""
LONG_SECONDS: Final = 30.0
LONG_PROBABILITY: Final = 0.1
"""How often a pause is a long one, after which connections are given up on either side."""
AT_ONCE_PROBABILITY: Final = 0.25
"""How often the next fault comes though the servers do not serve again yet."""
SERVING_SECONDS: Final = 60.0
DISK_BYTES: Final = 1 << 30
"""The disk of servers that it is to fill; the files of PostgreSQL alone take a twentieth."""


class Chaos:
    """A thread that kills servers, stops them in their tracks, lets them end, fills their disk and cuts them off."""

    def __init__(self, logs: Logs, seed: str, only: Collection[str] = ()) -> None:
        self.faults: Counter[str] = Counter()
        self._servers = servers = logs.servers
        self._probe = logs.address()
        self._random = Random(seed)
        # A disk of their own: never the one that all else is on.
        cannot = {"full": not servers.directory.is_mount(), "cut": network_of(servers) is None}
        self._names = sorted(name for name in only or FAULTS if not cannot.get(name))
        self._is_over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let the fault that is there come to its end; raise what went wrong with one."""
        self._is_over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._make_faults()
        except BaseException as error:  # noqa: BLE001 - it is raised where the faults end
            self._error = error

    def _make_faults(self) -> None:
        pause = 0.0
        while not self._is_over.wait(pause):
            pause = self._random.uniform(*PAUSE_SECONDS)
            name = self._random.choice(self._names)
            FAULTS[name](self._servers, self._random)
            self.faults[name] += 1
            if self._random.random() > AT_ONCE_PROBABILITY:
                self._await_service()

    def _await_service(self) -> None:
        """Return once a log can be written to again; ``AssertionError`` where the servers do not come back."""
        until = time.monotonic() + SERVING_SECONDS
        while time.monotonic() < until:
            try:
                with closing(opened(self._probe)) as commits:
                    commits.append(commits.head(), b"probe")
            except (ConnectionLost, AppendConflict, StoreFull, StoreUnreachable):
                time.sleep(0.1)
            else:
                return
        raise AssertionError(f"the servers serve nobody {SERVING_SECONDS} s after a fault has ended")


def network_of(servers: PostgresServer | NatsServers) -> Network | None:
    """Return what joins servers, where each is at a host of its own."""
    return servers.network if isinstance(servers, (PostgresServer, NetworkedServers)) else None


def _kill(servers: PostgresServer | NatsServers, random: Random) -> None:
    _restart(servers, random, signal.SIGKILL)


def _end(servers: PostgresServer | NatsServers, random: Random) -> None:
    _restart(servers, random, signal.SIGTERM)


def _restart(servers: PostgresServer | NatsServers, random: Random, how: signal.Signals) -> None:
    if isinstance(servers, PostgresServer):
        servers.kill() if how == signal.SIGKILL else servers.stop()
        time.sleep(random.uniform(*FAULT_SECONDS))
        servers.start()
    else:
        place = random.randrange(servers.count)
        servers.signal(place, how)
        time.sleep(random.uniform(*FAULT_SECONDS))
        servers.start(place)


def _pause(servers: PostgresServer | NatsServers, random: Random) -> None:
    place = random.randrange(servers.count)
    servers.signal(place, signal.SIGSTOP)
    _last(random)
    servers.signal(place, signal.SIGCONT)


def _last(random: Random) -> None:
    time.sleep(LONG_SECONDS if random.random() < LONG_PROBABILITY else random.uniform(*FAULT_SECONDS))


def _cut(servers: PostgresServer | NatsServers, random: Random) -> None:
    """Cut a server off: from all, from the other servers, or so that it hears of them and they hear nothing of it."""
    network = network_of(servers)
    assert network is not None
    place, way = random.randrange(servers.count), random.choice(("all", "servers", "one way"))
    for other in set(range(servers.count)) - {place}:
        network.cut(place, network.hosts[other])
        if way != "one way":
            network.cut(other, network.hosts[place])
    if way == "all" or servers.count == 1:
        network.cut(place, CLIENTS)
        network.cut_from_clients(place)
    _last(random)
    network.join()


def _fill(servers: PostgresServer | NatsServers, random: Random) -> None:
    """Leave no room, for all servers at once; NATS does not go on by itself when there is some again."""
    fill(servers.directory)
    time.sleep(random.uniform(*FAULT_SECONDS))
    make_room(servers.directory)
    if isinstance(servers, PostgresServer):
        servers.start()  # Where it found no room for its log of changes, it has ended.
    else:
        for place in range(servers.count):
            servers.signal(place, signal.SIGKILL)  # One that found no room may not end when it is asked to.
            servers.start(place)


FAULTS: Final[dict[str, Callable[[PostgresServer | NatsServers, Random], None]]] = {
    "cut": _cut,
    "end": _end,
    "full": _fill,
    "kill": _kill,
    "pause": _pause,
}
