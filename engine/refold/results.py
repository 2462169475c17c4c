"""Results of the public verbs besides messages and notes: frozen Structs of plain values."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, overload

from msgspec import Struct

from refold.entry import Entry


class Change(Struct, frozen=True):
    """One difference between two states: its path, and the values before and after."""

    stream: str
    view: str
    path: tuple[str | int, ...]
    before: Any
    after: Any

    def __str__(self) -> str:
        where = ".".join(map(str, (self.view, *self.path)))
        return f"{self.stream} {where}: {self.before!r} -> {self.after!r}"


class Health(Struct, frozen=True):
    """The health of an open memory: ``ok``, or its first problem by name, and in a message with the next step.

    The problem is ``"unreadable"``, ``"unwritable"`` or ``"behind"``: the copy of a log on a server lacks what others
    wrote, or the server does not answer. Of such a copy, ``lag_commits`` says how many commits it is told of and lacks,
    and ``lag_seconds`` how long ago it last had all.
    """

    ok: bool
    problem: str = ""
    message: str = ""
    lag_commits: int | None = None
    lag_seconds: float | None = None


CACHE: Final = "cache"
WRITER: Final = "writer"
DAMAGE: Final = "damage"
_SUMMARIES: Final = {
    CACHE: "the log is sound, and what is kept beside it is not what it gives; nothing is lost: "
    "`refold recover STORE NEW` makes a store in which all of that is made anew from the log",
    WRITER: "every event is as it was written, and whoever wrote them has counted or linked wrongly; nothing is lost: "
    "`refold recover STORE NEW` makes a store with every event once, its streams counted anew",
    DAMAGE: "bytes are not those that were written, by tampering or by a damaged disk; restore a backup, with "
    "`refold recover BACKUP NEW`",
}
"""The diagnosis for each kind of fault, the worst kind last, and the next step."""


class Finding(Struct, frozen=True):
    """A fault that was found: the check, the seq (0: none), and a message.

    ``fault`` says where: ``"cache"`` is what the log gives and can be made anew from it, ``"writer"`` the order or the
    links of events whose bytes are intact, ``"damage"`` the bytes.
    """

    check: str
    seq: int
    message: str
    fault: str = DAMAGE


class Report(Struct, frozen=True):
    """The result of ``verify``; ``ok`` without findings."""

    ok: bool
    findings: tuple[Finding, ...]
    events: int
    streams: int
    state_hash: str
    first_bad_seq: int = 0
    """The lowest seq that a finding names, 0 where none does."""
    fault: str = ""
    """The worst fault of the findings."""
    summary: str = ""
    """The diagnosis and the next step."""

    @classmethod
    def of(cls, findings: Sequence[Finding], *, events: int, streams: int, state_hash: str) -> "Report":
        """Conclude from findings."""
        bad = min((finding.seq for finding in findings if finding.seq), default=0)
        fault = max((finding.fault for finding in findings), key=list(_SUMMARIES).index, default="")
        summary = _SUMMARIES.get(fault, "sound")
        if fault == DAMAGE and bad:
            summary += f"; what stood before seq {bad} may come back with `refold recover STORE NEW --to SEQ`"
        return cls(not findings, tuple(findings), events, streams, state_hash, bad, fault, summary)


class Stats(Struct, frozen=True):
    """Counts of a store: events, streams by kind, bytes on disk (in RAM for ``Memory()``), and usage."""

    events: int
    conversations: int
    projects: int
    profiles: int
    journals: int
    snapshots: int
    store_bytes: int
    path: str | None
    usage: dict[str, int] = {}
    """How many memories were extracted and injected, and skills matched and used."""
    boards: int = 0
    reserved_bytes: int = 0
    """Bytes of the disk beside the data that the store reserves, so that erasing has room when the disk is full."""


class SessionSummary(Struct, frozen=True):
    """A session that is over: its task, files read as (path, lines, bytes), findings, calls by tool, user's turns.

    The task is the described one, else the user's first message; ``outcome`` is the model's last text.
    """

    session_id: str
    task_description: str
    files_read: tuple[tuple[str, int, int], ...]
    key_findings: tuple[str, ...]
    tool_usage: dict[str, int]
    total_turns: int
    success: bool
    outcome: str = ""


class Receipt(Struct, frozen=True):
    """The reach of an erasure: the given seqs and those derived from them, new names of streams, removed cached rows.

    ``naming`` are the seqs of the events that ``derived="keep"`` kept and that name the erased conversation, those of
    its board included. Afterwards the ``files`` of the store were searched, as they are and in base64, for erased names
    and for ``markers`` texts and values of the erased bodies; ``markers_too_short`` were not looked for, nor what
    refold notes beside them, such as the hashes of a context.
    ``occurrences`` is how often one was found: 0, unless something that was not erased says the same, such as the name
    of a tool. ``named`` are the streams whose names hold the text that was given; erase these themselves, for example
    with ``chat.erase()``. ``beyond_reach`` names where copies may be that no store can reach: a model was shown it in
    ``turns`` turns of ``conversations`` conversations.
    """

    seqs: tuple[int, ...]
    derived: tuple[int, ...]
    naming: tuple[int, ...]
    streams: tuple[str, ...]
    cached_rows: int
    markers: int
    markers_too_short: int
    files: int
    searched_bytes: int
    occurrences: int
    beyond_reach: tuple[str, ...]
    turns: int = 0
    conversations: int = 0
    named: tuple[str, ...] = ()


class Upserted(Struct, frozen=True):
    """The result of an upsert: ``outcome`` is inserted, merged or skipped.

    ``reason`` says why it was skipped, or why it was inserted although another memory is alike: they contradict each
    other. ``entry`` is the memory as it is now, after a skip the one that is there already; ``cosine`` is how alike the
    two were.
    """

    outcome: str
    entry: Entry | None = None
    reason: str | None = None
    cosine: float | None = None

    @property
    def seq(self) -> int | None:
        """The seq of the write, which ``unmerge`` takes; ``None`` for no write, and while a batch is open."""
        return None if self.entry is None or self.outcome == "skipped" else self.entry.seq


class Outcome(Struct, frozen=True):
    """The result of maintenance: how many memories changed, were removed, were merged into others."""

    changed: int = 0
    removed: int = 0
    merged: int = 0


class Reembedded(Struct, frozen=True):
    """The result of ``reembed``: the embedder and its dimension, the projects that switched, the new vectors."""

    model: str
    dim: int
    projects: int = 0
    vectors: int = 0


class Hit(Struct, frozen=True):
    """A result of a search: the memory or the episode, its score, and the signals of the score by name."""

    entry: Any
    score: float
    parts: dict[str, float]


class Hits(Struct, frozen=True):
    """The hits of a search, best first: a sequence.

    ``exact`` says that they are proved to be the best: by a pass over all memories, or by bounds that hold for any
    vectors. It is false only where an ``approximate`` search was answered by a graph. ``floor`` is the score that the
    best hit had to reach for anything to be found, 0 for no floor. An event of a recall carries both.

    ``pending`` is how many of the messages that are to be embedded a search of messages compared by their words alone:
    they have no vector yet, or the query could not get one.
    """

    hits: tuple[Hit, ...]
    exact: bool
    query: str
    ranking: str
    floor: float = 0.0
    pending: int = 0

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[place]

    def __contains__(self, hit: object) -> bool:
        return hit in self.hits


Sequence.register(Hits)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


class ProjectStats(Struct, frozen=True):
    """Counts of a project: memories in all, by category and by status, their mean importance, episodes by kind."""

    memories: int
    categories: dict[str, int]
    statuses: dict[str, int]
    importance: float
    episodes: int
    kinds: dict[str, int]


class Loaded(Struct, frozen=True):
    """The result of ``load``: the events it appended, none where the file had been loaded before."""

    events: int
    streams: int
    repeated: bool = False


class Moved(Struct, frozen=True):
    """What both sides of a move hold: events, streams, the hash of the main memory's state, and those of its forks."""

    events: int
    streams: int
    state_hash: str
    forks: tuple[str, ...] = ()


class Backup(Struct, frozen=True):
    """A backup that was made: where, of which store (its id in hex), up to which event, and what it must hash to.

    ``head`` is the seq of its last event and ``link`` the hash chain's there; ``state_hash`` is that of the main memory
    at ``head``, ``sha256`` that of the data file, of ``data_bytes`` bytes.
    """

    path: str
    store: str
    head: int
    streams: int
    time_ns: int
    state_hash: str
    link: str
    data_bytes: int
    sha256: str


class Recovered(Struct, frozen=True):
    """A store that was recovered: where, of which store, and what it holds.

    Its log is the old one's up to ``seq``, but for the ``repairs``. ``head`` is greater where one more event had to say
    which bodies were erased later on; ``state_hash`` is the old memory's at ``seq``.
    """

    path: str
    store: str
    seq: int
    head: int
    streams: int
    state_hash: str
    link: str
    repairs: tuple[str, ...] = ()
    """The repairs after a faulty writer; the links from there on differ from the old log's."""
