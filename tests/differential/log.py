"""The log of the model: rows in order, the state of every stream after each, requests, batches, branches, erasures.

The state of a stream is whatever the functions in its rows make of an empty one. Nothing here is quick: an erasure runs
every row again, and every query looks through the whole log. Nothing is shared with the engine but its errors.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from refold import InvalidInput, LimitExceeded, NotFound, WrongVersion

STORE = "store/main"
DEPTH_MAX = 3
"""How deep forks of a conversation and of a memory may be; the machine lowers the engine's bound to it."""

Effect = Callable[[Any, "Row"], None]
Request = tuple[int, str | None]
"""A branch and a request id."""


@dataclass(frozen=True)
class Row:
    """One event."""

    seq: int
    branch: int
    stream: str
    version: int
    change: "Change"
    sources: tuple[int, ...]
    time_ns: int
    occurred_ns: int
    erased: bool = False
    cause: int = 0
    actor: str | int | None = None
    """The name, or the seq of the row that holds it; ``None`` where the machine does not compare it."""

    new_ids: Mapping[str, str] = field(default_factory=dict)
    """What an erasure put in the place of ids that callers chose."""

    is_dated: bool = False
    """Whether the caller said when it happened."""

    @property
    def clock_ns(self) -> int:
        """What the clock showed at the writing; for a row with a given time only the log's own time is known."""
        return self.time_ns if self.is_dated else self.occurred_ns

    def id_of(self, given: Any) -> Any:
        """What is in the place of an id that a caller chose."""
        return self.new_ids.get(given, given)

    @property
    def about(self) -> Any:
        """What a verb has to know of the row later."""
        return self.change.about


@dataclass(frozen=True)
class Change:
    """What a verb decided to append; ``effect`` changes the state of the stream, and looks at ``erased`` itself."""

    effect: Effect
    about: Any = None
    sources: tuple[int, ...] | None = None
    """What it is derived from, beside what the caller names; only where these are given are all of them set once."""

    base: tuple[int, str, int] | None = None
    """Branch, stream and seq of the state that it starts from, instead of the stream's own."""

    ids: tuple[str, ...] = ()
    """The memories that it may have changed."""


@dataclass(frozen=True)
class Options:
    """What every mutation takes."""

    expected: Any = "any"
    request_id: str | None = None
    sources: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What was asked under a request id, the last row of the answer, and the first seq that it may have."""

    asked: Any
    row: Row | None
    first: int


def duplicate(state: Any) -> Any:
    """Return a copy of a state; what its lists and dicts hold is never changed in place."""
    twin = copy(state)
    for name, value in vars(state).items():
        setattr(twin, name, copy(value))
    return twin


def nothing(_: Any, __: Row) -> None:
    """Change nothing."""


def put(values: dict[str, tuple[Any, int]], row: Row, key: str, value: Any, prior: int) -> None:
    """Set a key; an erased row removes what it had replaced, so that nothing old comes back."""
    if not row.erased:
        values[key] = (value, row.seq)
    elif values.get(key, (None, 0))[1] == prior:
        values.pop(key, None)


def drop(values: dict[str, tuple[Any, int]], row: Row, key: str, prior: int) -> None:
    """Delete a key."""
    if not row.erased or values.get(key, (None, 0))[1] == prior:
        values.pop(key, None)


class Log:
    """Rows, and the state of each stream of each branch after each of its rows."""

    EMPTY: ClassVar[dict[str, Callable[[], Any]]] = {}
    """The empty state of each kind of stream; the parts of the model add theirs."""

    def __init__(self, clock_ns: Callable[[], int], budget: int) -> None:
        self.clock_ns, self.budget = clock_ns, budget
        self.empty = {kind: make() for kind, make in self.EMPTY.items()}
        self.rows: list[Row] = []
        self.states: dict[tuple[int, str], list[tuple[int, Any]]] = {}
        self.requests: dict[Request, Answer] = {}
        self.batch: tuple[int, dict[Request, Answer]] | None = None
        self.branch = 0
        """The branch whose handle is asked; 0 is the main line."""

        self.new_ids: list[str] = []
        """The random ids that the engine made in the call that is compared."""

        self.written: list[Row] = []
        """The rows of the last call, those of the first one where a request is repeated."""

        self.is_repeated = False
        self.decided_at = 0  # Where the last request was decided, for one that changed nothing.

    # Reading.

    @property
    def head(self) -> int:
        """The seq of the last row, those of an open batch included."""
        return len(self.rows)

    @property
    def committed(self) -> int:
        """The seq of the last row that is no part of an open batch."""
        return self.head if self.batch is None else self.batch[0]

    def branches(self, at: int | None = None) -> list[tuple[int, int, str]]:
        """The branches from 1 on: parent, seq and name."""
        rows = [row for row in self.rows[:at] if row.about and row.about[0] == "branch"]
        return [(*r.about[1:3], f"erased-{n}" if r.erased else r.about[3]) for n, r in enumerate(rows, 1)]

    def lineage(self, branch: int, at: int | None = None) -> Iterator[tuple[int, int]]:
        """A branch and those that it was forked from, each with the last seq that counts."""
        until, branches = self.head if at is None else at, self.branches()
        while branch:
            yield branch, until
            parent, seq, _ = branches[branch - 1]
            branch, until = parent, min(until, seq)
        yield 0, until

    def forks(self, at: int | None = None) -> list[str]:
        """The sorted names of all that was forked from the branch that is asked."""
        rows = self.branches(at)
        elders = [[elder for elder, _ in self.lineage(number)][1:] for number in range(1, len(rows) + 1)]
        return sorted(row[2] for row, above in zip(rows, elders, strict=True) if self.branch in above)

    def state_in(self, branch: int, stream: str, at: int | None = None) -> Any:
        """The state of a stream of a branch, to be read only."""
        for elder, until in self.lineage(branch, at):
            for seq, state in reversed(self.states.get((elder, stream), [])):
                if seq <= until:
                    return state
        return self.empty[stream.partition("/")[0]]

    def state(self, stream: str, at: int | None = None) -> Any:
        """The state of a stream of the branch that is asked."""
        return self.state_in(self.branch, stream, at)

    def seen(self, at: int | None = None, branch: int | None = None) -> list[Row]:
        """The rows that a branch has, up to a seq."""
        until = dict(self.lineage(self.branch if branch is None else branch, at))
        return [row for row in self.rows[:at] if row.seq <= until.get(row.branch, 0)]

    def stream_rows(self, stream: str, at: int | None = None, branch: int | None = None) -> list[Row]:
        """The rows of a stream up to a seq."""
        return [row for row in self.seen(at, branch) if row.stream == stream]

    def last_seq(self, stream: str, at: int | None = None) -> int:
        """The seq of the last row of a stream, 0 without any."""
        return max((row.seq for row in self.stream_rows(stream, at)), default=0)

    def names(self, kind: str, at: int | None = None) -> list[str]:
        """The sorted names of the streams of a kind."""
        return sorted({row.stream.partition("/")[2] for row in self.seen(at) if row.stream.startswith(f"{kind}/")})

    def time_ns(self) -> int:
        """The time that the next row gets: the log does not go back."""
        before = self.rows[: self.committed]
        return max(self.clock_ns(), before[-1].time_ns if before else 0)

    def now_ns(self) -> int:
        """When the next row happens: a clock that is over an hour behind the log counts, one that is less does not."""
        return self.clock_ns() if self.time_ns() - self.clock_ns() > 3_600 * 10**9 else self.time_ns()

    # Writing.

    def note(
        self,
        stream: str,
        asked: Any,
        decide: Callable[[Any], Change | list[Change] | None],
        options: Options,
        *,
        opening: Any = None,
        occurred: int | None = None,
    ) -> Row | None:
        """Append what ``decide`` makes of the state, behind what opens the stream; return its last row."""

        def write() -> list[Row]:
            self.compare(stream, len(self.stream_rows(stream)), options.expected)
            decided = decide(self.state(stream))
            changes = decided if isinstance(decided, list) else [decided] if decided else []
            opened = self.open(stream, opening, occurred) if changes and opening is not None else []
            return opened + [self.append(stream, change, options.sources, occurred) for change in changes]

        return self.answer(stream, asked, options, write)

    def open(self, stream: str, opening: Any, occurred: int | None) -> list[Row]:
        """Append what opens a stream; only conversations are opened."""
        raise NotImplementedError

    def answer(self, stream: str, asked: Any, options: Options, write: Callable[[], list[Row]]) -> Row | None:
        """Do what is asked once for each request id, and return the last row of it."""
        asked = (stream, asked)
        known = self._known(options.request_id)
        self.is_repeated = known is not None
        self.decided_at = self.head if known is None else known.first - 1
        if known is not None:
            if known.asked not in (asked, _forgotten(asked)):
                raise InvalidInput(options.request_id)
            return known.row
        first = self.head + 1
        self.written = write()
        row = self.written[-1] if self.written else None
        if options.request_id is not None:
            self.requests[self.branch, options.request_id] = Answer(asked, row, first)
        return row

    def _known(self, request_id: str | None) -> Answer | None:
        """The answer that was given in this branch, or in an elder before this one was forked."""
        for branch, until in self.lineage(self.branch):
            found = self.requests.get((branch, request_id))
            if found is not None:
                seq = found.first - 1 if found.row is None else found.row.seq
                if branch == self.branch or seq <= until:
                    return found
        return None

    def compare(self, what: str, actual: int, expected: Any) -> None:
        """Refuse another version than the expected one."""
        if not {"any": True, "no stream": actual == 0, "exists": actual > 0}.get(expected, expected == actual):
            raise WrongVersion(what, expected=expected, actual=actual)

    def append(self, stream: str, change: Change, given: tuple[int, ...] = (), occurred: int | None = None) -> Row:
        """Append a row and apply it; ``given`` are the sources that the caller named."""
        now_ns = self.now_ns()
        row = Row(
            seq=self.head + 1,
            branch=self.branch,
            stream=stream,
            version=len(self.stream_rows(stream)) + 1,
            change=change,
            sources=given if change.sources is None else tuple(dict.fromkeys((*given, *change.sources))),
            time_ns=self.time_ns(),
            occurred_ns=now_ns if occurred is None else occurred,
            is_dated=occurred is not None,
        )
        self.rows.append(row)
        self._apply(row)
        return row

    def append_to_main(self, about: Any, given: tuple[int, ...] = ()) -> Row:
        """Append a row to the main line's own stream, whichever branch asks."""
        asking, self.branch = self.branch, 0
        try:
            return self.append(STORE, Change(nothing, about), given)
        finally:
            self.branch = asking

    def _apply(self, row: Row) -> None:
        state = duplicate(self.state_in(*row.change.base) if row.change.base else self.state_in(row.branch, row.stream))
        row.change.effect(state, row)
        self.states.setdefault((row.branch, row.stream), []).append((row.seq, state))

    def _apply_all(self) -> None:
        self.states = {}
        for row in self.rows:
            self._apply(row)

    # Who did it, and why.

    def naming(self, actor: str) -> int:
        """The seq of the row that named an actor first, which is appended if there is none."""
        known = (r.seq for r in self.rows if r.about == ("actor", actor) and not r.erased)
        return next(known, 0) or self.append_to_main(("actor", actor)).seq

    def origin(self, row: Row) -> tuple[int, str]:
        """Cause and actor of a row, the actor as it is called now."""
        if not isinstance(row.actor, int):
            return row.cause, row.actor or ""
        named = self.rows[row.actor - 1]
        return row.cause, f"erased-{named.seq}" if named.erased else named.about[1]

    # Batches.

    def begin(self) -> None:
        """Open a batch."""
        self.batch = (self.head, dict(self.requests))

    def discard(self) -> None:
        """Undo what the batch appended."""
        assert self.batch is not None
        begin, self.requests = self.batch
        self.rows, self.batch = self.rows[:begin], None
        self._apply_all()

    def commit(self) -> None:
        """Keep what the batch appended, all of it with the time of the commit."""
        assert self.batch is not None
        begin, _ = self.batch
        time_ns, now_ns, pending = self.time_ns(), self.now_ns(), self.rows[begin:]
        self.rows, self.batch = self.rows[:begin], None
        for row in pending:
            occurred_ns = row.occurred_ns if row.is_dated else now_ns
            self.rows.append(replace(row, time_ns=time_ns, occurred_ns=occurred_ns))
        for request, known in self.requests.items():
            self.requests[request] = replace(known, row=known.row and self.rows[known.row.seq - 1])
        self._apply_all()

    def refuse_in_batch(self) -> None:
        """Refuse what cannot be part of a batch."""
        if self.batch is not None:
            raise InvalidInput("a batch is open")

    def outside(self) -> Any:
        """The model as those see it who are not in the open batch."""
        other = copy(self)
        other.rows, other.states, other.batch = self.rows[: self.committed], {}, None
        other._apply_all()
        return other

    # Erasure.

    def take_new_ids(self, new_ids: Mapping[int, Mapping[str, str]]) -> None:
        """Give rows the ids that an erasure put in the place of others."""
        if new_ids:
            with_ids = [replace(row, new_ids={**row.new_ids, **new_ids.get(row.seq, {})}) for row in self.rows]
            self.rows = with_ids
            self._apply_all()

    def erase(self, seqs: Iterable[int], *, derived: bool = False) -> list[int]:
        """Blank rows and, if asked, what was derived from them; return the seqs that were not blank before."""
        wanted = set(seqs)
        for row in self.rows if derived else ():
            if wanted.intersection(row.sources):
                wanted.add(row.seq)
        blank = [r.seq for r in self.rows if r.seq in wanted and not r.erased and r.about != "erasure"]
        if blank:
            self.rows = [replace(row, erased=True) if row.seq in blank else row for row in self.rows]
            self.append_to_main("erasure")
            for request, known in self.requests.items():
                if known.row is None or any(known.first <= seq <= known.row.seq for seq in blank):
                    self.requests[request] = replace(known, asked=_forgotten(known.asked))
                now = known.row and self.rows[known.row.seq - 1]
                self.requests[request] = replace(self.requests[request], row=now)
            self._apply_all()
        return blank

    def erase_stream(self, stream: str, renamed: str) -> None:
        """Blank all that a stream of this branch holds, and give it another name."""
        own = [row.seq for row in self.rows if (row.stream, row.branch) == (stream, self.branch)]
        is_based = any(row.change.base is not None and row.change.base[2] for row in self.rows if row.seq in own)
        self.rows = [replace(row, stream=renamed) if row.seq in own else row for row in self.rows]
        self.erase(own)
        if is_based:  # What it holds of others is not erased; it is shown no more.
            self.append(renamed, Change(nothing, base=(self.branch, renamed, 0)))

    # The whole memory.

    def _whole(self, asked: Any, options: Options, write: Callable[[], list[Row]]) -> None:
        def checked() -> list[Row]:
            self.compare("the memory", self.head, options.expected)
            return write()

        self.answer(STORE, asked, options, checked)

    def named(self, stream: str, name: str) -> int:
        """The seq that a named snapshot points at; those of the whole memory have no stream."""
        seq = self.state(STORE).names.get((stream, name))
        if seq is None:
            raise NotFound(name)
        return int(seq)

    def memory_snapshot(self, name: str, **options: Any) -> None:
        self.refuse_in_batch()
        given = Options(**options)

        def write() -> list[Row]:
            seq, now = self.state(STORE).names.get(("", name)), self.head
            if seq is None:
                return [self.append(STORE, Change(naming_snapshot("", name, now)), given.sources)]
            if any(row.seq > seq and row.stream != STORE for row in self.seen()):
                raise InvalidInput(name)
            return []

        self._whole(("snapshot", name), given, write)
        self.named("", name)

    def memory_restore(self, target: Any, **options: Any) -> None:
        """Bring back every stream that is not what it was; ``target`` is a name, or a branch and a seq."""
        self.refuse_in_batch()
        given, asked = Options(**options), ("restore", target)
        branch, seq = (self.branch, self.named("", target)) if isinstance(target, str) else target

        def write() -> list[Row]:
            streams = sorted({r.stream for r in self.seen()} | {r.stream for r in self.seen(seq, branch)})
            pairs = [(s, self.state(s), self.state_in(branch, s, seq)) for s in streams if s != STORE]
            return [
                self.append(stream, Change(then.returned(mine), base=(branch, stream, seq)), given.sources)
                for stream, mine, then in pairs
                if mine.hashed() != then.hashed()
            ]

        self._whole(asked, given, write)

    def memory_fork(self, name: str, at: int | None = None, **options: Any) -> int:
        """Begin a branch, or find it; return its number."""
        given = Options(**options)
        if at is None and given == Options() and name in [row[2] for row in self.branches()]:
            return self.opened(name)
        self.refuse_in_batch()

        def write() -> list[Row]:
            if name in [row[2] for row in self.branches()]:
                if at is not None:
                    raise InvalidInput(name)
                return []
            if len(list(self.lineage(self.branch))) > DEPTH_MAX:
                raise LimitExceeded(name)
            about = ("branch", self.branch, self.head if at is None else at, name)
            return [self.append_to_main(about, given.sources)]

        self._whole(("fork", self.branch, name, at), given, write)
        return self.opened(name)

    def opened(self, name: str) -> int:
        """The number of a branch below the one that is asked."""
        names = [row[2] for row in self.branches()]
        if name not in names:
            raise NotFound(name)
        if name not in self.forks():
            raise InvalidInput(name)
        return names.index(name) + 1


def naming_snapshot(stream: str, name: str, seq: int) -> Effect:
    """The effect of a snapshot that gets a name."""

    def effect(state: Any, row: Row) -> None:
        if not row.erased:
            state.names[stream, name] = seq
            state.cuts[stream, name] = row.seq

    return effect


_FORGOTTEN = object()


def _forgotten(asked: Any) -> tuple[Any, ...]:
    """What is still known of a request once its answer is erased in part: its verb, and the kind of its stream."""
    stream, request = asked
    return asked if stream is _FORGOTTEN else (_FORGOTTEN, (stream.partition("/")[0], request[0]))
