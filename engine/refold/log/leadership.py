"""Which answers of a NATS stream's leader to believe: one that was replaced while it stood still answers as of before.

A replica begins an election 4 s after it last heard of its leader (``minElectionTimeout`` of nats-server). So who leads
with a majority in touch leads on for a while, as long as it is asked that often. One that has not been asked for longer
may have been replaced: it learns so within milliseconds of going on, and is asked twice with a pause in between.
"""

from typing import Final

import msgspec

LEASE_SECONDS: Final = 1.5
"""How long ago replicas may have been in touch with the leader, and how long ago it may have been asked; both together
stay below the time in which an election begins."""
PAUSE_SECONDS: Final = 0.2
"""Between the two answers. The last answer of a leader that was replaced came 75 ms after it went on, of 24 on two
busy cores."""
AGAIN_SECONDS: Final = 0.02
"""Until the next question where there is no leader."""


class Peer(msgspec.Struct, frozen=True):
    """A replica beside the one that answers, and how many nanoseconds ago that heard of it, 0 for never."""

    name: str = ""
    active: int = 0


class Cluster(msgspec.Struct, frozen=True):
    """What a server says of those that hold a stream; one that does not lead may answer while there is no leader."""

    leader: str = ""
    leader_since: str = ""
    replicas: tuple[Peer, ...] = ()

    def is_led(self) -> bool:
        """Return whether the one that answers is the leader, and with itself a majority is in touch."""
        near = sum(0 < peer.active < LEASE_SECONDS * 1e9 for peer in self.replicas)
        is_own = all(peer.name != self.leader for peer in self.replicas)
        return bool(self.leader and self.replicas) and is_own and near >= (len(self.replicas) + 1) // 2


class Leadership:
    """What one connection knows of who leads a stream with several replicas. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._leader: tuple[str, str] | None = None
        self._answered_at = 0.0
        """When the leader answered first, since it has been asked often enough."""
        self._asked_at = 0.0

    def doubt(self, cluster: Cluster, asked_at: float, answered_at: float) -> float:
        """Take in an answer, and return the seconds after which to ask again; 0 where it can be believed."""
        if not cluster.is_led():
            self._leader = None
            return AGAIN_SECONDS
        leader = (cluster.leader, cluster.leader_since)
        if leader != self._leader or asked_at - self._asked_at > LEASE_SECONDS:
            self._leader, self._answered_at = leader, answered_at
        self._asked_at = asked_at
        return max(self._answered_at + PAUSE_SECONDS - asked_at, 0.0)
