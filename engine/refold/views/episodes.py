"""Episodes: records of a project's tasks, with their approach and outcome."""

from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct

from refold import checks
from refold.entry import NO_VECTOR, EmbedderSwitched, PendingVectors, VectorRenewed
from refold.event import Event, Located, Stamp, View
from refold.limits import FLOAT_BYTES, NAME_BYTES_MAX
from refold.views.base import copy_slots

KINDS: Final = ("success", "failure", "discovery")


class EpisodeRecorded(Event, frozen=True, tag=33):
    """Something was tried, and had an outcome."""

    sentence: ClassVar[str] = "an episode was recorded, a {kind!s}: {task}"
    subject: ClassVar[tuple[str, str]] = ("episode", "id")

    has_own_id: ClassVar[bool] = True

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

    def check(self, *, is_erased: bool) -> None:
        if is_erased:
            return
        checks.one_of(self.kind, "kind", KINDS)
        checks.keywords(self.keywords)
        checks.vector(self.vector, "vector")
        if self.session is not None:
            checks.text(self.session, "session", NAME_BYTES_MAX, "NAME_BYTES_MAX")

    def mentions(self) -> tuple[str | None, ...]:
        return (self.session,)


class Episode(Struct, frozen=True, gc=False):
    """A task, its approach and its outcome; seqs and times are ``None`` while its batch is open."""

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
    """The episodes by seq, in the order in which they were recorded."""

    __slots__ = ("by_seq", "coming", "dim", "ids", "model", "renewed")

    def __init__(self) -> None:
        self.by_seq: dict[int, Episode] = {}
        self.ids: dict[str, None] = {}
        self.renewed: dict[int, int] = {}
        """The seqs of the vectors that are not in the event of their episode, by the episode's seq."""
        self.coming = PendingVectors()  # The vectors of another embedder, by id.
        self.model = ""  # The embedder of the newest vector.
        self.dim = 0

    copy = copy_slots

    def vector_seqs(self) -> list[int]:
        """Return the seqs of the events that hold the vectors, in the order of the episodes."""
        return [self.renewed.get(seq, seq) for seq in self.by_seq]

    def add(self, stamp: Stamp, event: EpisodeRecorded) -> None:
        self.by_seq[stamp.seq] = episode_of(event, stamp)
        self.ids[event.id] = None
        self.model, self.dim = event.model, len(event.vector) // FLOAT_BYTES

    def pack(self) -> tuple[Any, list[int]]:
        plain: list[Any] = [self.model, self.dim]
        if self.renewed or self.coming:
            plain.append([list(self.renewed), list(self.renewed.values()), self.coming.pack()])
        return plain, list(self.by_seq)

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Episodes":
        episodes = cls()
        for event, stamp in events:
            assert isinstance(event, EpisodeRecorded), f"seq {stamp.seq} was packed as an episode"
            episodes.add(stamp, event)
        episodes.model, episodes.dim = msgspec.convert(inline[:_INLINE_COUNT], tuple[str, int])
        for renewed in inline[_INLINE_COUNT:]:
            seqs, vector_seqs, coming = msgspec.convert(renewed, tuple[list[int], list[int], Any])
            episodes.renewed = dict(zip(seqs, vector_seqs, strict=True))
            episodes.coming = PendingVectors.unpack(coming)
        return episodes

    def logical(self) -> Any:
        rows = [
            [seq, episode.id, *_plain_of(episode).values(), episode.occurred_ns, episode.time_ns]
            for seq, episode in self.by_seq.items()
        ]
        if not rows:
            return None
        renewed = [sorted(self.renewed.items()), *self.coming.logical()]
        return [rows, *renewed] if self.renewed or self.coming else rows

    def plain(self) -> dict[str, Any]:
        return {episode.id: _plain_of(episode) for episode in self.by_seq.values()}


_FIELDS: Final = ("kind", "session", "task", "approach", "outcome", "tools", "keywords")


def episode_of(event: EpisodeRecorded, stamp: Stamp) -> Episode:
    """Return the episode that an event records."""
    seq, time_ns, occurred_ns = (stamp.seq, stamp.time_ns, stamp.occurred_ns) if stamp.seq > 0 else (None, None, None)
    fields = {name: getattr(event, name) for name in _FIELDS}
    return Episode(event.id, **fields, seq=seq, time_ns=time_ns, occurred_ns=occurred_ns)


_INLINE_COUNT: Final = 2
"""After these come the seqs of renewed vectors, and the pending vectors of another embedder, if there are any."""


def text_of(episode: Episode | EpisodeRecorded) -> str:
    """Return the text that is embedded for an episode."""
    return f"{episode.task}\n{episode.approach}\n{episode.outcome}"


def _plain_of(episode: Episode) -> dict[str, Any]:
    return {name: getattr(episode, name) for name in _FIELDS}


EPISODES = View("episodes", kinds=("project",), state=Episodes)


@EPISODES.on(EpisodeRecorded)
def _episode_recorded(episodes: Episodes, stamp: Stamp, event: EpisodeRecorded) -> None:
    if not stamp.erased:
        episodes.add(stamp, event)


@EPISODES.on(VectorRenewed)
def _vector_renewed(episodes: Episodes, stamp: Stamp, event: VectorRenewed) -> None:
    if not stamp.erased and event.id in episodes.ids:
        episodes.coming.take(stamp.seq, event)


@EPISODES.on(EmbedderSwitched)
def _embedder_switched(episodes: Episodes, _: Stamp, event: EmbedderSwitched) -> None:
    """Switch to the new vectors; an episode whose new vector was erased is left without one."""
    waiting = episodes.coming.of(event.model, event.dim)
    is_other = (episodes.model, episodes.dim) != (event.model, event.dim)
    for seq, episode in episodes.by_seq.items():
        vector_seq = waiting.get(episode.id, NO_VECTOR if is_other else episodes.renewed.get(seq, seq))
        episodes.renewed[seq] = vector_seq
    episodes.model, episodes.dim = event.model, event.dim
    episodes.coming.clear()
