"""What a peer is: somebody who does the jobs of a kind, and says what survives a loss of power when they are done."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import workloads

POWER = "power loss"
"""What was acknowledged survives a loss of power: flushed to the disk at each commit."""

CRASH = "process crash"
"""What was acknowledged survives the end of the process, not that of the machine."""

NOTHING = "nothing"
"""It lies in RAM."""

_FULL = 2
_LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class Settings(NamedTuple):
    """What survives, and by which settings; only peers whose writes survive the same are compared for writing."""

    durability: str
    said: str


class PeerSizes(NamedTuple):
    """How much of everything a round of a peer has."""

    appends: int
    batch_events: int
    reads: int
    steps: int
    vectors: int
    searches: int
    inserts: int


FULL = PeerSizes(appends=20, batch_events=1_000, reads=20, steps=20, vectors=10_000, searches=20, inserts=4)
LARGE = FULL._replace(vectors=100_000, searches=10)
QUICK = FULL._replace(vectors=1_000)
TINY = PeerSizes(appends=2, batch_events=10, reads=2, steps=2, vectors=60, searches=3, inserts=1)


class LogPeer(Protocol):
    """Keeps the messages of a conversation."""

    @property
    def settings(self) -> Settings:
        """What survives."""
        ...

    def append(self, text: workloads.Text) -> None:
        """Append one message, and return when it is kept."""
        ...

    def append_many(self, texts: Sequence[workloads.Text]) -> None:
        """Append many messages in as few commits as the peer allows, and return when they are kept."""
        ...

    def last(self, count: int) -> Sequence[Any]:
        """Return the last messages."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


class SearchPeer(Protocol):
    """Finds the nearest of some vectors by their cosine; ids are their places."""

    @property
    def settings(self) -> Settings:
        """What survives, and how it searches."""
        ...

    def load(self, vectors: Any) -> None:
        """Add all vectors at once."""
        ...

    def insert(self, place: int, vector: Any) -> None:
        """Add one vector, and return when it is kept and found."""
        ...

    def search(self, vector: Any, count: int) -> list[int]:
        """Return the places of the nearest, the nearest first."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


class WindowPeer(Protocol):
    """Keeps the newest messages that fit a budget, and hands them out."""

    @property
    def settings(self) -> Settings:
        """What survives."""
        ...

    def step(self) -> int:
        """Append a message, let go what does not fit, and return how many messages the whole window has."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


def sqlite_settings(connection: Any) -> Settings:
    """Return what SQLite itself says about a connection: only FULL flushes each commit in every journal mode."""
    journal = str(next(iter(connection.execute("PRAGMA journal_mode")))[0]).upper()
    level = int(next(iter(connection.execute("PRAGMA synchronous")))[0])
    return Settings(POWER if level >= _FULL else CRASH, f"SQLite {journal}, synchronous={_LEVELS[level]}")
