"""Faults of the servers of a log, one after the other, while processes write: each ends before the next one begins."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final, Self

from refold.cli.cluster import NatsServers
from tests.support.postgres_server import PostgresServer

PAUSE_SECONDS: Final = (0.5, 3.0)
"""Between two faults."""
FAULT_SECONDS: Final = (0.0, 6.0)
"""How long one lasts: over the time in which a leader is missed."""


class Chaos:
    """A thread that kills servers, stops them in their tracks and lets them end in order, and starts them again."""

    def __init__(self, servers: PostgresServer | NatsServers, seed: str) -> None:
        self.faults: Counter[str] = Counter()
        self._servers = servers
        self._random = Random(seed)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let the fault that is there come to its end."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        pause = 0.0
        while not self._is_over.wait(pause):
            pause = self._random.uniform(*PAUSE_SECONDS)
            name = self._random.choice(sorted(FAULTS))
            FAULTS[name](self._servers, self._random)
            self.faults[name] += 1


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
    time.sleep(random.uniform(*FAULT_SECONDS))
    servers.signal(place, signal.SIGCONT)


FAULTS: Final[dict[str, Callable[[PostgresServer | NatsServers, Random], None]]] = {
    "end": _end,
    "kill": _kill,
    "pause": _pause,
}
