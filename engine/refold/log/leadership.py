"""Decides which answers of a NATS stream's leader to trust: one replaced while it was paused still gives old answers.

A replica begins an election 4 s after it last heard from its leader (``minElectionTimeout`` of nats-server). So a
leader that is in touch with a majority stays the leader for a while, and can be trusted if it is asked often enough. A
leader that has not been asked for longer may have been replaced. It learns that within milliseconds of resuming, so it
is asked twice, with a pause in between.

A follower can apply a message before its leader does. So a leader that lacks a message that was seen is asked again,
and believed only if it still lacks it some time later: then the stream was set back.
"""

from typing import Final

import msgspec

LEASE_SECONDS: Final = 1.5
"""The longest time allowed since a replica was in touch with the leader, and since the leader was last asked; the sum
of both stays below the time after which an election begins."""
PAUSE_SECONDS: Final = 0.2
"""The pause between the first answer and the second question. Among 24 leaders that were replaced, on two busy cores,
the latest old answer came 75 ms after its leader had resumed."""
AGAIN_SECONDS: Final = 0.02
"""The pause before the next question if there is no leader, or it lacks a message."""
UNKNOWN_SECONDS: Final = 2.0
"""How long each server must not know a stream before it is believed that there is none."""
SET_BACK_SECONDS: Final = 2.0
"""How long a leader must lack a message that was seen before it is believed that the stream was set back."""


class Peer(msgspec.Struct, frozen=True):
    """A replica other than the answering server, and the nanoseconds since that server heard from it, 0 for never."""

    name: str = ""
    active: int = 0


class Cluster(msgspec.Struct, frozen=True):
    """A server's report on the replicas of a stream; a follower can be the one to answer while there is no leader."""

    leader: str = ""
    leader_since: str = ""
    replicas: tuple[Peer, ...] = ()

    def is_led(self) -> bool:
        """Return whether the answering server is the leader and, counting itself, in touch with a majority."""
        near = sum(0 < peer.active < LEASE_SECONDS * 1e9 for peer in self.replicas)
        is_own = all(peer.name != self.leader for peer in self.replicas)
        return bool(self.leader and self.replicas) and is_own and near >= (len(self.replicas) + 1) // 2


class Leadership:
    """One connection's knowledge of the leader of a stream with several replicas; all times use one monotonic clock."""

    def __init__(self) -> None:
        self._leader: tuple[str, str] | None = None
        self._answered_at = 0.0
        """The time of the leader's first answer in the current series of sufficiently frequent questions."""
        self._asked_at = 0.0
        self._last_seq = 0
        """The sequence of the last message seen in the stream."""
        self._lacking_since: float | None = None
        """The time of the first answer in that series without that message; ``None`` if the last one had it."""

    def note(self, last_seq: int) -> None:
        """Note the sequence of a message that was seen."""
        self._last_seq = max(self._last_seq, last_seq)

    def retry_seconds(self, cluster: Cluster, last_seq: int, asked_at: float, answered_at: float) -> float:
        """Process an answer and return the seconds to wait before asking again; 0 if the answer can be trusted."""
        if not cluster.is_led():
            self._leader = None
            return AGAIN_SECONDS
        leader = (cluster.leader, cluster.leader_since)
        if leader != self._leader or asked_at - self._asked_at > LEASE_SECONDS:
            self._leader, self._answered_at, self._lacking_since = leader, answered_at, None
        self._asked_at = asked_at
        seconds = max(self._answered_at + PAUSE_SECONDS - asked_at, 0.0)
        if last_seq < self._last_seq:
            if self._lacking_since is None:
                self._lacking_since = answered_at
            if answered_at < self._lacking_since + SET_BACK_SECONDS:
                return max(seconds, AGAIN_SECONDS)
        if not seconds:
            self._last_seq, self._lacking_since = last_seq, None
        return seconds
