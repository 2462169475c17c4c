"""Episodes: records of what was tried in a project and how it ended."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from refold.event import Event, Located, Stamp, View

KINDS: Final = ("success", "failure", "discovery")


class EpisodeRecorded(Event, frozen=True, tag=33):
    """Something was tried, and it ended in some way."""

    id: str
    kind: str = "discovery"
    session: str | None = None
    task: str = ""
    approach: str = ""
    outcome: str = ""
    tools: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    vector: bytes = b""
    model: str = ""


class Episode(Struct, frozen=True, gc=False):
    """What was tried, how, and how it ended; seqs and times are ``None`` while its batch is open."""

    id: str
    kind: str
    session: str | None
    task: str
    approach: str
    outcome: str
    tools: tuple[str, ...]
    keywords: tuple[str, ...]
    seq: int | None
    time_ns: int | None
    occurred_ns: int | None


class Episodes:
    """The episodes by seq, in the order of their recording."""

    __slots__ = ("by_seq", "dim", "model")

    def __init__(self) -> None:
        self.by_seq: dict[int, Episode] = {}
        self.model = ""
        """The embedder of the newest vector."""
        self.dim = 0

    def copy(self) -> "Episodes":
        """Return the same episodes, to be folded on by themselves."""
        other = Episodes()
        other.by_seq, other.model, other.dim = dict(self.by_seq), self.model, self.dim
        return other

    def add(self, stamp: Stamp, event: EpisodeRecorded) -> None:
        """Hold an episode."""
        self.by_seq[stamp.seq] = episode_of(event, stamp)
        self.model, self.dim = event.model, len(event.vector) // 4


def episode_of(event: EpisodeRecorded, stamp: Stamp) -> Episode:
    """Return the episode that an event records."""
    times = (stamp.seq, stamp.time_ns, stamp.occurred_ns) if stamp.seq > 0 else (None, None, None)
    said = (event.kind, event.session, event.task, event.approach, event.outcome)
    return Episode(event.id, *said, event.tools, event.keywords, *times)


def _pack(episodes: Episodes) -> tuple[Any, list[int]]:
    return [episodes.model, episodes.dim], list(episodes.by_seq)


def _unpack(inline: Any, events: Located) -> Episodes:
    episodes = Episodes()
    for event, stamp in events:
        assert isinstance(event, EpisodeRecorded), f"seq {stamp.seq} was packed as an episode"
        episodes.add(stamp, event)
    episodes.model, episodes.dim = msgspec.convert(inline, tuple[str, int])
    return episodes


def _logical(episodes: Episodes) -> Any:
    rows = [[seq, *_said(episode), episode.time_ns] for seq, episode in episodes.by_seq.items()]
    return rows or None


def _said(episode: Episode) -> list[Any]:
    return [episode.id, *_plain_of(episode).values(), episode.occurred_ns]


def _plain_of(episode: Episode) -> dict[str, Any]:
    shown = ("kind", "session", "task", "approach", "outcome", "tools", "keywords")
    return {name: getattr(episode, name) for name in shown}


def _plain(episodes: Episodes) -> dict[str, Any]:
    return {episode.id: _plain_of(episode) for episode in episodes.by_seq.values()}


EPISODES = View(
    "episodes",
    kinds=("project",),
    empty=Episodes,
    pack=_pack,
    unpack=_unpack,
    logical=_logical,
    plain=_plain,
    copy=Episodes.copy,
)


@EPISODES.on(EpisodeRecorded)
def episode_recorded(episodes: Episodes, stamp: Stamp, event: EpisodeRecorded) -> None:
    """Add the episode; an erased one leaves no trace."""
    if not stamp.erased:
        episodes.add(stamp, event)
