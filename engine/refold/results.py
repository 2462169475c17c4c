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
    """The health of an open memory: ``ok``, or the name of its first problem and a message with the next step.

    The problem is ``"unreadable"``, ``"unwritable"`` or ``"behind"``. The first is also that of a copy of a log whose
    server was set back and lacks commits that the copy has. The last means that the copy of a log on a server
    lacks commits of other writers, or that the server does not answer. For such a copy, ``lag_commits`` is the number
    of commits that it knows of and lacks, and ``lag_seconds`` the time since it last had all of them. ``warning`` says
    so if the newest event is far ahead of the clock, which is no problem of the memory.
    """

    ok: bool
    problem: str = ""
    message: str = ""
    lag_commits: int | None = None
    lag_seconds: float | None = None
    warning: str = ""


CACHE: Final = "cache"
WRITER: Final = "writer"
DAMAGE: Final = "damage"
_SUMMARIES: Final = {
    CACHE: "the log is sound, but data derived from it and kept beside it is wrong; nothing is lost: "
    "`refold recover STORE NEW` makes a store in which all of it is rebuilt from the log",
    WRITER: "every event is as it was written, but a faulty writer counted or linked some of them wrongly; nothing is "
    "lost: `refold recover STORE NEW` makes a store that has every event once, in streams that are counted again",
    DAMAGE: "bytes have changed since they were written, through tampering or a damaged disk; restore a backup with "
    "`refold recover BACKUP NEW`",
}
"""The diagnosis and the next step for each kind of fault, the worst kind last."""


class Finding(Struct, frozen=True):
    """A fault that was found: the check, the seq (0 for none), and a message.

    ``fault`` says where it lies: ``"cache"`` is data that can be rebuilt from the log, ``"writer"`` the order or the
    links of events whose bytes are intact, ``"damage"`` the bytes.
    """

    check: str
    seq: int
    message: str
    fault: str = DAMAGE


class Report(Struct, frozen=True):
    """The result of ``verify``; ``ok`` if there are no findings."""

    ok: bool
    findings: tuple[Finding, ...]
    events: int
    streams: int
    state_hash: str
    first_bad_seq: int = 0
    """The lowest seq that a finding names, 0 if no finding names one."""
    fault: str = ""
    """The worst fault of the findings."""
    summary: str = ""
    """The diagnosis and the next step."""

    @classmethod
    def of(cls, findings: Sequence[Finding], *, events: int, streams: int, state_hash: str) -> "Report":
        """Build the report from findings."""
        bad = min((finding.seq for finding in findings if finding.seq), default=0)
        fault = max((finding.fault for finding in findings), key=list(_SUMMARIES).index, default="")
        summary = _SUMMARIES.get(fault, "sound")
        if fault == DAMAGE and bad:
            summary += (
                f"; `refold recover STORE NEW --to SEQ` can bring back events before seq {bad}, if they are intact"
            )
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
    """The numbers of memories extracted and injected, and of skills matched and used."""
    boards: int = 0
    reserved_bytes: int = 0
    """Disk space that the store reserves besides its data, so that erasing has room when the disk is full."""


class SessionSummary(Struct, frozen=True):
    """A finished session: its task, files read as (path, lines, bytes), findings, calls by tool, and user turns.

    The task is the one described, else the user's first message; ``outcome`` is the model's last text. ``stop_reason``
    says why the user's last message has no answer, and is empty if it has one.
    """

    session_id: str
    task_description: str
    files_read: tuple[tuple[str, int, int], ...]
    key_findings: tuple[str, ...]
    tool_usage: dict[str, int]
    total_turns: int
    success: bool
    outcome: str = ""
    stop_reason: str = ""


class Receipt(Struct, frozen=True):
    """The reach of an erasure: the given seqs and those derived from them, new names of streams, removed cached rows.

    ``naming`` are the seqs of the events that ``derived="keep"`` kept and that name the erased conversation, including
    those of its board, or are on the boards of the erased project's nodes. Afterwards the ``files`` of the store were
    searched for erased names and for ``markers`` texts and values of the erased bodies, both as they are and in base64.
    ``markers_too_short`` of them were not searched for, and neither was the data that refold records beside them, such
    as the hashes of a context. ``occurrences`` is how often one was found: 0, unless an event that was not erased, or
    the name of a stream, says the same. After an erasure by text, what other events say too, alone or within a longer
    text, is not searched for: it is not the text, but a key, the name of a tool, or the like. ``unexplained`` of the
    occurrences are of what no event and no name says any more: 0, unless another file lies in the store's directory or
    the erasure missed a copy.
    ``named`` are the streams whose names contain the given text; erase these themselves, for example with
    ``chat.erase()``. ``rewritten`` are the streams and paths of the files that had held it, and were written once more
    without that past. ``beyond_reach`` names places that no store can reach and where copies may be: a model was shown
    the erased content in ``turns`` turns of ``conversations`` conversations, or what a context did not mask of it.
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
    rewritten: tuple[tuple[str, str], ...] = ()
    unexplained: int = 0


class Upserted(Struct, frozen=True):
    """The result of an upsert: ``outcome`` is inserted, merged or skipped.

    ``reason`` says why it was skipped, or why it was inserted although a similar memory exists: the two contradict each
    other. ``entry`` is the memory as it is now, or after a skip the existing one; ``cosine`` is the similarity of the
    two.
    """

    outcome: str
    entry: Entry | None = None
    reason: str | None = None
    cosine: float | None = None

    @property
    def seq(self) -> int | None:
        """The seq of the write, which ``unmerge`` takes; ``None`` without a write, and while a batch is open."""
        return None if self.entry is None or self.outcome == "skipped" else self.entry.seq


class Outcome(Struct, frozen=True):
    """The result of maintenance: the numbers of memories that were changed, removed, and merged into others."""

    changed: int = 0
    removed: int = 0
    merged: int = 0


class Reembedded(Struct, frozen=True):
    """The result of ``reembed``: the embedder, its dimension, and the numbers of switched projects and new vectors."""

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

    ``exact`` says that they are proven to be the best: by a pass over all memories, or by bounds that hold for any
    vectors. It is false only if an ``approximate`` search was answered by a graph. ``floor`` is the score that the best
    hit had to reach for anything to be found, 0 for no floor. The event of a recall carries both.

    ``pending`` is the number of messages to be embedded that a search of messages compared by their words alone,
    because they have no vector yet or the query could not get one.
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
    """The result of ``load``: the number of events that it appended, 0 if the file had been loaded before."""

    events: int
    streams: int
    repeated: bool = False


class Moved(Struct, frozen=True):
    """The contents of both sides of a move: events, streams, the main memory's state hash, and those of its forks."""

    events: int
    streams: int
    state_hash: str
    forks: tuple[str, ...] = ()


class Backup(Struct, frozen=True):
    """A backup that was made: its path, its store (the id in hex), its last event, and the hashes that it must have.

    ``head`` is the seq of its last event and ``link`` the hash chain's value there; ``state_hash`` is that of the main
    memory at ``head``, ``sha256`` that of the data file, which has ``data_bytes`` bytes.
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
    """A recovered store: its path, the store that it came from, and its contents.

    Its log equals the old one up to ``seq``, except for the ``repairs``. ``head`` is greater if one more event had to
    record which bodies were erased later; ``state_hash`` is that of the old memory at ``seq``.
    """

    path: str
    store: str
    seq: int
    head: int
    streams: int
    state_hash: str
    link: str
    repairs: tuple[str, ...] = ()
    """The repairs after a faulty writer; from there on, the links differ from the old log's."""
