"""Scenarios: a memory as it would be under other policies, or without some events; never written to."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.engine.history import changes_between
from refold.engine.scan import EventFilter
from refold.engine.scenario import STARTING, Changes, ScenarioLens, Track, WindowMiss, scenario_engine, sweep
from refold.entry import MemoriesRecalled, MemoryMerged
from refold.errors import EmbeddingMismatch, InvalidInput
from refold.index.ranking import RANKINGS, Ranking, ranking_of
from refold.limits import WINDOW_TOKENS_MAX
from refold.memory.blame import origins
from refold.memory.blocks import calls_of
from refold.memory.conversation import Conversation
from refold.memory.core import Core, core_of
from refold.memory.options import nanoseconds
from refold.results import Change
from refold.views.window import POLICIES, POLICY, WINDOW, MessageRemoved, WindowCleared

if TYPE_CHECKING:
    from refold.memory.memory import Memory
    from refold.memory.project import Project


class WindowDifference(Struct, frozen=True):
    """A conversation whose window would have held other messages: the seqs that would be ``missing`` or ``added``.

    ``since`` is the first seq after which its number of tokens or of messages, or its oldest message, differed from
    those in the log, 0 if they never did.
    """

    conversation: str
    since: int
    missing: tuple[int, ...]
    added: tuple[int, ...]


class RecallDifference(Struct, frozen=True):
    """A recall that would have found other memories or another order: the ids found then, and in the scenario."""

    project: str
    seq: int
    query: str
    before: tuple[str, ...]
    after: tuple[str, ...]


class ScenarioDiff(Struct, frozen=True):
    """The differences between a scenario and the log: windows and memories at its end, and recalls along the way."""

    windows: tuple[WindowDifference, ...]
    memories: tuple[Change, ...]
    recalls: tuple[RecallDifference, ...]

    def __bool__(self) -> bool:
        return bool(self.windows or self.memories or self.recalls)


class Regret(Struct, frozen=True):
    """A message that was needed after it had been evicted from the window, with the event that needed it, and why.

    Messages that were removed or cleared on purpose do not count. The reasons are ``"recalled"``, ``"a memory of it was
    recalled"`` and ``"called again"``, for a tool call that the message had already made with the same arguments,
    however their JSON was written.
    """

    conversation: str
    seq: int
    needed_seq: int
    reason: str


class Scenario:
    """A memory as it would be under other policies; its handles read as usual, and nothing is written.

    >>> from refold import Memory
    >>> memory = Memory()
    >>> chat = memory.conversation("chat-42", window_tokens=8)
    >>> _ = [chat.append("user", text, tokens=4) for text in ("Hi!", "I like tea.", "Bye!")]
    >>> scenario = memory.what_if(window_tokens=12)
    >>> [message.content for message in scenario.conversation("chat-42").window()]
    ['Hi!', 'I like tea.', 'Bye!']
    >>> len(chat.window()), [difference.added for difference in scenario.diff().windows]
    (2, [(2,)])
    """

    __slots__ = ("_behind", "_changes", "_core", "_endless", "_memory", "_ranking", "_removals", "_swept", "_until")

    def __init__(
        self,
        core: Core,
        changes: Changes,
        behind: "Callable[[Core, int], Memory]",
        until: int,
        ranking: Ranking | None = None,
    ) -> None:
        self._core = core
        self._changes = changes
        self._behind = behind
        self._until = until
        self._ranking = ranking
        self._memory: Memory | None = None
        self._swept: tuple[Track, Track] | None = None
        self._endless: Core | None = None
        self._removals: dict[str, list[int]] = {}
        """By conversation, the seqs at which it, or one that it was forked from, lost messages on purpose."""

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in self.settings().items()]
        return f"Scenario({', '.join([*shown, f'until={self._until}'])})"

    @property
    def memory(self) -> "Memory":
        """The frozen memory of the scenario."""
        if self._memory is None:
            core = _scenario_core(self._core, self._changes, self._until)
            core.ranking = self._ranking
            self._memory = self._behind(core, self._until)
        return self._memory

    def settings(self) -> dict[str, Any]:
        """Return the settings that differ from the log."""
        changes = self._changes
        names = {number: name for name, number in POLICIES.items()}
        given = {
            "window_tokens": changes.window_tokens,
            "eviction": None if changes.policy is None else names[changes.policy],
            "ranking": None if self._ranking is None else self._ranking.name,
            "dedupe": changes.dedupe,
            "without": sorted(changes.without) or None,
        }
        return {name: value for name, value in given.items() if value is not None}

    # The most used handles; ``memory`` has the others.

    def conversation(self, conversation_id: str) -> Conversation:
        """Return a frozen handle on a conversation."""
        return self.memory.conversation(conversation_id)

    def project(self, name: str = "default") -> "Project":
        """Return a frozen handle on a project; its searches use the scenario's ranking."""
        return self.memory.project(name)

    def state_hash(self) -> str:
        """Return the SHA-256 of all states; it equals the log's if nothing differs."""
        return self.track().state_hash()

    # The comparisons, made in one pass over the log.

    def track(self) -> Track:
        """Return the result of a pass over the log."""
        return self._pair()[1]

    def _pair(self) -> tuple[Track, Track]:
        if self._swept is None:
            sweep_all(self._core, [self])
        assert self._swept is not None, "a sweep sets it"
        return self._swept

    def diff(self) -> ScenarioDiff:
        """Return the windows and memories that would differ, and the recalls that would have found other memories.

        Each recall is repeated as of its seq, without filters, for as many hits as it found. A recall is skipped if its
        query came with a vector that this memory's embedder cannot reproduce.
        """
        own, track = self._pair()
        windows = tuple(WindowDifference(*difference) for difference in track.windows)
        memories = [
            change
            for stream in sorted(track.facts)
            for change in changes_between(
                stream, {"facts": own.facts.get(stream, {})}, {"facts": track.facts.get(stream, {})}
            )
        ]
        return ScenarioDiff(windows, tuple(memories), tuple(self._recalls()))

    def _recalls(self) -> Iterator[RecallDifference]:
        if self._ranking is None and self._changes.selection == Changes():
            return
        for event, stamp in self._core.engine.reader.all_events(0, self._until, self._core.branch):
            if not isinstance(event, MemoriesRecalled) or not event.query.strip() or stamp.erased:
                continue
            if self._ranking is None and event.ranking not in RANKINGS:
                continue
            project = stamp.stream.partition("/")[2]
            past, ranking = self.memory.at(stamp.seq - 1).project(project), self._ranking or event.ranking
            try:
                hits = past.search(event.query, top_k=max(len(event.ids), 1), ranking=ranking, floor=event.floor)
            except EmbeddingMismatch:
                continue
            found = tuple(hit.entry.id for hit in hits)
            if found != event.ids:
                yield RecallDifference(project, stamp.seq, event.query, event.ids, found)

    def regret(self) -> tuple[Regret, ...]:
        """Return the messages that were needed after they had been evicted, in the order in which they were needed."""
        return tuple(found for need in self.track().needs if (found := self._regret(need)) is not None)

    def _regret(self, need: WindowMiss) -> Regret | None:
        conversation = need.conversation.partition("/")[2]
        seq = need.target
        if isinstance(seq, str):
            message = self.conversation(conversation).message(seq)
            if message is None:
                return None
            seq = message.seq
        is_withdrawn = self._is_withdrawn(need, seq)
        return None if is_withdrawn else Regret(conversation, seq, need.needed_seq, need.reason)

    def _is_withdrawn(self, need: WindowMiss, seq: int) -> bool:
        """Return whether a message would have left even an unbounded window: by a removal, a clear or a restore."""
        removals = self._removals.get(need.conversation)
        if removals is None:
            sought, until = EventFilter((), (MessageRemoved, WindowCleared)), self._until
            streams = origins(self._core, need.conversation, until)
            removals = self._removals[need.conversation] = sorted(
                found.stamp.seq for stream, end in streams for found in self._core.events(sought, stream, until=end)
            )
        if not any(seq < each < need.needed_seq for each in removals):
            return False
        if self._endless is None:
            changes = replace(self._changes, window_tokens=WINDOW_TOKENS_MAX, policy=POLICY)
            self._endless = _scenario_core(self._core, changes, self._until)
        window = self._endless.read_written(
            need.conversation, lambda state: state.part(WINDOW).live(), need.needed_seq - 1
        )
        return not any(need.target in (message.id, message.seq) for message in window)

    def take(self, swept: tuple[Track, Track]) -> None:
        """Take the tracks of a sweep: the log's, and this scenario's."""
        self._swept = swept

    def begin(self) -> tuple[Core, Changes, int, Track]:
        """Return the inputs of a sweep: the memory's core, the changes, the last seq, and the scenario's track."""
        track = Track(ScenarioLens(self._changes, ()), lambda: core_of(self.memory)[0].engine.reader, self._until)
        return self._core, self._changes, self._until, track


def sweep_all(core: Core, scenarios: Sequence[object]) -> list[Scenario]:
    """Compare scenarios of a memory with its log; those that end at the same seq share a pass over the log."""
    given: list[Scenario] = []
    for scenario in scenarios:
        if not isinstance(scenario, Scenario):
            checks.invalid(
                f"scenarios must be those of what_if, not {type(scenario).__name__} ({checks.brief(scenario)})"
            )
        given.append(scenario)
    begun = [scenario.begin() for scenario in given]
    if any(other.engine is not core.engine or other.branch != core.branch for other, *_ in begun):
        raise InvalidInput("a scenario is of another memory; sweep it with the memory whose what_if made it")
    for until in sorted({until for _, _, until, _ in begun}):
        own = Track(None, lambda: core.engine.reader, until)
        firsts = {Changes(): own}
        tracks = [own]
        for scenario, (_, changes, end, track) in zip(given, begun, strict=True):
            if end != until:
                continue
            track.first = firsts.setdefault(changes.selection, track)
            tracks.append(track)
            scenario.take((own, track))
        sweep(core.engine.reader, core.branch, tracks, calls_of)
    return given


def what_if(
    core: Core,
    behind: "Callable[[Core, int], Memory]",
    until: int,
    *,
    window_tokens: object,
    eviction: object,
    ranking: object,
    dedupe: object,
    without: object,
) -> Scenario:
    """Return the scenario of a memory with some policies changed or some events left out."""
    changes = Changes(
        window_tokens=None if window_tokens is None else checks.window_tokens(window_tokens),
        policy=None if eviction is None else POLICIES[checks.one_of(eviction, "eviction", tuple(POLICIES))],
        dedupe=None if dedupe is None else _check_dedupe(core, dedupe, until),
        without=_check_without(core, without),
    )
    return Scenario(core, changes, behind, until, None if ranking is None else ranking_of(ranking))


def _check_dedupe(core: Core, dedupe: object, until: int) -> float:
    """Return a merge threshold, checked: not below both the usual one and the cosine of every merge in the log."""
    asked, usual = checks.fraction(dedupe, "dedupe"), core.embedding.merge_cosine
    if asked < usual:
        cosines = [
            event.cosine
            for event, _ in core.events(EventFilter((), (MemoryMerged,)), until=until)
            if isinstance(event, MemoryMerged)
        ]
        if min(cosines, default=1.0) > asked:
            raise InvalidInput(
                f"dedupe is {asked}, under the threshold of {usual} and under the cosine of each of the {len(cosines)} "
                f"merges up to seq {until}; a scenario can only take merges apart, as the log does not say which "
                f"additions were asked to merge, nor what an embedder makes of a joined text: give a higher dedupe"
            )
    return asked


def core_at_time(core: Core, occurred: object, until: int) -> Core:
    """Return the core of a memory that contains only what had occurred by a time."""
    moment_ns = nanoseconds(occurred, "occurred")
    then = _scenario_core(core, Changes(occurred_ns=moment_ns), until)
    then.moment_ns = moment_ns
    return then


def _scenario_core(core: Core, changes: Changes, until: int) -> Core:
    return core.with_engine(scenario_engine(core.engine.reader, changes, until))


def _check_without(core: Core, without: object) -> frozenset[int]:
    if not isinstance(without, Sequence) or isinstance(without, (str, bytes)):
        checks.invalid(f"without must be a list of seqs or results, not {type(without).__name__}")
    head = core.engine.reader.current_head()
    for seq in cast("Sequence[object]", without):
        if isinstance(seq, int) and not 0 < seq <= head:
            raise InvalidInput(f"without names seq {seq}, which is not in this log: it runs from 1 to {head}")
    seqs = sorted(core.sources(tuple(cast("Sequence[object]", without))))
    if seqs and seqs[0] < 1:
        checks.invalid("without names an event of an open batch; leave out what is written")
    for event, stamp in core.engine.reader.loader.recorded_events(seqs):
        if isinstance(event, STARTING):
            raise InvalidInput(f"seq {stamp.seq} is what {stamp.stream} stands on; leave out events behind it")
    return frozenset(seqs)
