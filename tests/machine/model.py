"""The plain model of a memory: lists and dicts, written from the promises and not from the engine.

It keeps every event as an ``Entry`` and, for each stream, the state after each of its entries. An erasure folds every
stream again. Nothing here is quick, and nothing here is shared with the engine but the names of its errors.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from refold import InvalidInput, LimitExceeded, NotFound, WrongVersion
from tests.machine.model_states import (
    FOLD,
    Chat,
    Entry,
    Line,
    Opening,
    State,
    duplicate,
    empty,
    entering,
    pinned_tokens,
)

ANY, NO_STREAM, EXISTS = "any", "no stream", "exists"
STORE = "store/main"
BASES = ("forked", "restored")
Asked = tuple[int, str | None]
"""A branch and the id of a request."""
FORGOTTEN = object()
"""Stands for the stream of a request whose answer was erased: whoever repeats it may ask for anything of its verb."""


def forgotten(asked: Any) -> tuple[Any, ...]:
    """What is still known of a request once its answer is erased in part: the verb, and the kind of its stream."""
    stream, request = asked
    return asked if stream is FORGOTTEN else (FORGOTTEN, (stream.partition("/")[0], request[0]))


@dataclass(frozen=True)
class Options:
    """What every mutation takes."""

    expected: Any = ANY
    request_id: str | None = None
    sources: tuple[int, ...] = ()


class Model:
    """The log, the states after each entry, the answered requests, and an open batch."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.states: dict[tuple[int, str], list[tuple[int, State]]] = {}
        self.requests: dict[Asked, tuple[Any, Entry | None, int]] = {}
        """What was asked, the last entry of the answer, and the seq from which on there may be others of it."""
        self.clock_ns: Callable[[], int] = lambda: 0
        self.batch: tuple[int, dict[Asked, tuple[Any, Entry | None, int]]] | None = None
        self.branch = 0
        """The branch whose handle is asked."""

    # Reading.

    @property
    def head(self) -> int:
        """The seq of the last entry, those of an open batch included."""
        return len(self.log)

    @property
    def committed(self) -> int:
        """The seq of the last entry that is no part of an open batch."""
        return self.head if self.batch is None else self.batch[0]

    def forks(self, at: int | None = None) -> list[tuple[int, int, str]]:
        """The branches from 1 on: parent, seq and name."""
        rows = [entry for entry in self.log[:at] if entry.kind == "branched"]
        return [(*e.data[:2], f"erased-{n}" if e.erased else e.data[2]) for n, e in enumerate(rows, 1)]

    def lineage(self, branch: int, at: int | None) -> Iterator[tuple[int, int]]:
        """A branch and those that it was forked from, each with the last seq that counts."""
        until, forks = self.head if at is None else at, self.forks()
        while branch:
            yield branch, until
            parent, seq, _ = forks[branch - 1]
            branch, until = parent, min(until, seq)
        yield 0, until

    def fork_names(self, at: int | None = None) -> list[str]:
        """The sorted names of what was forked from the branch that is asked."""
        rows = self.forks(at)
        elders = [[elder for elder, _ in self.lineage(number, None)][1:] for number in range(1, len(rows) + 1)]
        return sorted(row[2] for row, above in zip(rows, elders, strict=True) if self.branch in above)

    def state_in(self, branch: int, stream: str, at: int | None) -> Any:
        """The state of a stream of any branch."""
        for elder, until in self.lineage(branch, at):
            for seq, state in reversed(self.states.get((elder, stream), [])):
                if seq <= until:
                    return state
        return empty(stream)

    def state(self, stream: str, at: int | None = None) -> Any:
        """The state of a stream, to be read only."""
        return self.state_in(self.branch, stream, at)

    def seen(self, at: int | None = None) -> list[Entry]:
        """The entries that the branch has, up to a seq."""
        until = dict(self.lineage(self.branch, at))
        return [entry for entry in self.log[:at] if entry.seq <= until.get(entry.branch, 0)]

    def entries(self, stream: str, at: int | None = None) -> list[Entry]:
        """The entries of a stream up to a seq."""
        return [entry for entry in self.seen(at) if entry.stream == stream]

    def last_seq(self, stream: str, at: int | None = None) -> int:
        """The seq of the last entry of a stream up to a seq, 0 where there is none."""
        return next((entry.seq for entry in reversed(self.entries(stream, at))), 0)

    def names(self, kind: str, at: int | None = None) -> list[str]:
        """The sorted names of the streams of a kind."""
        return sorted({e.stream.partition("/")[2] for e in self.seen(at) if e.stream.startswith(f"{kind}/")})

    def now_ns(self) -> int:
        """The time that an entry would get."""
        before = self.log[: self.committed]
        return max(self.clock_ns(), before[-1].time_ns if before else 0)

    def seq_at_time(self, time_ns: int) -> int:
        """The last seq at or before a time."""
        return sum(entry.time_ns <= time_ns for entry in self.log[: self.committed])

    def named(self, stream: str, name: str) -> int:
        """The seq that a named snapshot of a stream points at."""
        seq = self.state(STORE).names.get((stream, name))
        if seq is None:
            raise NotFound(name)
        return int(seq)

    def plain(self, at: int) -> Any:
        """Everything a person could compare, at a seq."""
        streams = {entry.stream for entry in self.seen(at)} - {STORE}
        shown = {stream: self.state(stream, at).plain() for stream in streams}
        return {stream: content for stream, content in shown.items() if content != empty(stream).plain()}

    def evicted(self, entry: Entry) -> list[str]:
        """The ids of the messages that a budget pushed out at an entry."""
        if entry.kind not in {"message", "resized"}:
            return []
        before, after = (self.state(entry.stream, seq).lines for seq in (entry.seq - 1, entry.seq))
        entered = entering(self.state(entry.stream, entry.seq - 1), entry.data) if entry.kind == "message" else None
        live = {line.id for line in after}
        return [line.id for line in [*before, *([entered] if entered else [])] if line.id not in live]

    def outside(self) -> "Model":
        """The model as those see it who are not in the open batch."""
        other = Model()
        other.clock_ns, other.log, other.branch = self.clock_ns, self.log[: self.committed], self.branch
        other.fold_again()
        return other

    def held(self, stream: str, at: int | None = None, branch: int | None = None) -> dict[str, Line]:
        """The messages that a conversation ever held by a seq, those of what it went on from too, by id."""
        asking, found = self.branch, dict[str, Line]()
        self.branch = asking if branch is None else branch
        entries = self.entries(stream, at)
        self.branch = asking
        for entry in entries:
            if entry.kind in BASES:
                found |= self.held(entry.data[0], entry.data[1], entry.data[4])
            found |= {line.id: line for line in self.said(entry)}
        return found

    def said(self, entry: Entry) -> list[Line]:
        """The messages that an entry holds and that are not erased."""
        lines = [entry.data] if entry.kind == "message" else entry.data[0][2] if entry.kind == "imported" else []
        return [line for line in lines if not (line.erased or entry.erased)]

    # Writing.

    def note(
        self,
        stream: str,
        asked: Any,
        decide: Callable[[Any], Any],
        options: Options,
        *,
        opening: Opening | None = None,
        occurred_ns: int | None = None,
    ) -> Entry | None:
        """Appends what ``decide`` makes of the state, after what opens the stream; the last entry is the answer."""
        asked = (stream, asked)
        answer = self._known(options.request_id)
        if answer is not None:
            return self._answer(answer, asked)
        self._check_version(stream, options.expected)
        decided, first = decide(self.state(stream)), self.head + 1
        entry = None
        if decided is not None:
            if opening is not None and not self.state(stream).opened:
                self.append(stream, "opened", opening, (), occurred_ns)
            kind, data, *derived = decided
            sources = tuple(dict.fromkeys((*options.sources, *(derived[0] if derived else ()))))
            entry = self.append(stream, kind, data, sources if derived else options.sources, occurred_ns)
        if options.request_id is not None:
            self.requests[self.branch, options.request_id] = (asked, entry, first)
        return entry

    def note_all(self, stream: str, asked: Any, decide: Callable[[Any], list[Any]], options: Options) -> list[Entry]:
        """Appends all that ``decide`` makes of the state; the last entry is the answer of a request."""
        asked = (stream, asked)
        answer = self._known(options.request_id)
        if answer is not None:
            last = self._answer(answer, asked)
            return [] if last is None else [last]
        self._check_version(stream, options.expected)
        first = self.head + 1
        entries = [
            self.append(stream, kind, data, tuple(dict.fromkeys((*options.sources, *derived))))
            for kind, data, derived in decide(self.state(stream))
        ]
        if options.request_id is not None:
            self.requests[self.branch, options.request_id] = (asked, entries[-1] if entries else None, first)
        return entries

    def _known(self, request_id: str | None) -> Asked | None:
        """Where a request was answered: in the branch, or before that was forked."""
        for branch, until in self.lineage(self.branch, None):
            if (branch, request_id) in self.requests:
                _, entry, first = self.requests[branch, request_id]
                if branch == self.branch or (first - 1 if entry is None else entry.seq) <= until:
                    return branch, request_id
        return None

    def _answer(self, request: Asked, asked: Any) -> Entry | None:
        known, entry, _ = self.requests[request]
        if known not in (asked, forgotten(asked)):
            raise InvalidInput(request)
        return entry

    def _check_version(self, stream: str, expected: Any) -> None:
        self._compare(stream, len(self.entries(stream)), expected)

    def _compare(self, what: str, actual: int, expected: Any) -> None:
        if not {ANY: True, NO_STREAM: actual == 0, EXISTS: actual > 0}.get(expected, expected == actual):
            raise WrongVersion(what, expected=expected, actual=actual)

    def append(
        self, stream: str, kind: str, data: Any, sources: tuple[int, ...] = (), occurred_ns: int | None = None
    ) -> Entry:
        """Appends an entry and folds it."""
        version = len(self.entries(stream)) + 1
        now_ns = self.now_ns()
        happened_ns = now_ns if occurred_ns is None else occurred_ns
        entry = Entry(self.head + 1, stream, version, kind, data, sources, now_ns, happened_ns, branch=self.branch)
        self.log.append(entry)
        self._fold(entry)
        return entry

    def append_in_main(self, kind: str, data: Any, sources: tuple[int, ...] = ()) -> Entry:
        """Appends an entry to the main line's own stream, whichever branch asks."""
        asking, self.branch = self.branch, 0
        try:
            return self.append(STORE, kind, data, sources)
        finally:
            self.branch = asking

    def naming(self, actor: str) -> int:
        """The seq of the entry that named an actor, which is appended if there is none."""
        known = (e.seq for e in self.log if e.kind == "actor" and e.data == actor and not e.erased)
        return next(known, 0) or self.append_in_main("actor", actor).seq

    def sign(self, cause: int, actor: str | int) -> None:
        """Says of the last entry who wrote it and why."""
        self.log[-1] = replace(self.log[-1], cause=cause, actor=actor)

    def origin(self, entry: Entry) -> tuple[int, str]:
        """Cause and actor of an entry, the actor as it is called now."""
        if not isinstance(entry.actor, int):
            return entry.cause, entry.actor or ""
        name = self.log[entry.actor - 1]
        return entry.cause, f"erased-{name.seq}" if name.erased else name.data

    def _fold(self, entry: Entry) -> None:
        branch, base = entry.branch, (entry.stream, None)
        if entry.kind in BASES:
            base, branch = entry.data[:2], entry.data[4]
        state = duplicate(self.state_in(branch, *base))
        FOLD[entry.kind](state, entry)
        self.states.setdefault((entry.branch, entry.stream), []).append((entry.seq, state))

    def fold_again(self) -> None:
        """Folds the whole log anew."""
        self.states = {}
        for entry in self.log:
            self._fold(entry)

    def erase(self, seqs: Iterable[int], *, derived: bool = False) -> list[int]:
        """Blanks entries, and what was derived from them, and says so; returns the seqs that were not blank before."""
        wanted = set(seqs)
        for entry in self.log if derived else ():
            if wanted.intersection(entry.sources):
                wanted.add(entry.seq)
        blanked = [e.seq for e in self.log if e.seq in wanted and not e.erased and e.kind != "erased"]
        self.log = [replace(entry, erased=True) if entry.seq in blanked else entry for entry in self.log]
        if blanked:
            self.append_in_main("erased", tuple(blanked))
            self._forget_requests(blanked)
            self.fold_again()
        return blanked

    def _forget_requests(self, blanked: Iterable[int]) -> None:
        """What was asked for by whoever changed nothing, or got an answer that is erased in part, is known no more."""
        for name, (asked, entry, first) in self.requests.items():
            if entry is None or any(first <= seq <= entry.seq for seq in blanked):
                self.requests[name] = (forgotten(asked), entry, first)

    def erase_stream(self, stream: str, renamed: str) -> None:
        """Blanks all that a stream of this branch holds, and gives it another name."""
        own = [entry.seq for entry in self.log if (entry.stream, entry.branch) == (stream, self.branch)]
        self.log = [replace(entry, stream=renamed) if entry.seq in own else entry for entry in self.log]
        self.erase(own)

    # Batches.

    def begin(self) -> None:
        """Opens a batch."""
        self.batch = (self.head, dict(self.requests))

    def discard(self) -> None:
        """Forgets what the batch appended."""
        assert self.batch is not None
        begin, self.requests = self.batch
        self.log, self.batch = self.log[:begin], None
        self.fold_again()

    def commit(self) -> None:
        """Keeps what the batch appended; all of it gets the time of the commit."""
        assert self.batch is not None
        begin, _ = self.batch
        now_ns = self.now_ns()
        pending = self.log[begin:]
        self.log, self.batch = self.log[:begin], None
        for entry in pending:
            happened_ns = now_ns if entry.occurred_ns == entry.time_ns else entry.occurred_ns
            self.log.append(replace(entry, time_ns=now_ns, occurred_ns=happened_ns))
        self.requests = {
            name: (asked, entry and self.log[entry.seq - 1], first)
            for name, (asked, entry, first) in self.requests.items()
        }
        self.fold_again()

    # Verbs of which there is more to say than one entry.

    def add_message(self, stream: str, line: Line, asked: Any, options: Options, **where: Any) -> Entry | None:
        """Appends a message; pinned groups must fit the budget."""

        def decide(chat: Chat) -> tuple[str, Any]:
            budget = chat.budget if chat.opened else where["opening"].budget
            said = replace(line, pinned=bool(line.pinned))
            entered = entering(chat, said)
            if line.pinned is None and {each.role for each in (*chat.lines, line)} <= {"system", "developer"}:
                kept = replace(said, pinned=True)
                held = pinned_tokens([*chat.lines, entering(chat, kept) or kept])
                return "message", kept if held <= budget else said
            if entered is not None and (said.pinned or said.answers is not None):
                held = pinned_tokens([*chat.lines, entered])
                if held > budget:
                    raise LimitExceeded(held)
            return "message", said

        return self.note(stream, asked, decide, options, **where)

    def resize(self, stream: str, budget: int, options: Options, opening: Opening) -> Entry | None:
        """Changes a budget that pinned groups fit into."""

        def decide(chat: Chat) -> tuple[str, Any] | None:
            if chat.opened and chat.budget == budget:
                return None
            if pinned_tokens(chat.lines) > budget:
                raise LimitExceeded(budget)
            return "resized", budget

        return self.note(stream, ("resize", budget), decide, options, opening=opening)

    def name_snapshot(self, stream: str, name: str) -> None:
        """Names the present state once and for ever."""
        if not self.entries(stream):
            raise NotFound(stream)
        seq = self.last_seq(stream)
        known = self.state(STORE).names.get((stream, name))
        if known is None:
            self.append(STORE, "named", (stream, name, seq))
        elif known != seq:
            raise InvalidInput(name)

    def restore(self, stream: str, base: tuple[str, int, int], asked: Any, options: Options, opening: Opening) -> None:
        """Goes on from a state of this store, given as stream, seq and branch, unless it is the state already."""
        target = self.state_in(base[2], *base[:2]) if base[1] else Chat()

        def decide(chat: Chat) -> tuple[str, Any] | None:
            same = duplicate(target)
            same.project, same.depth = chat.project, chat.depth
            if same == chat:
                return None
            project = chat.project if chat.opened else chat.project or opening.project
            return "restored", (stream if not base[1] else base[0], base[1], chat.depth, project, base[2])

        self.note(stream, asked, decide, options, opening=opening)

    def take_over(self, stream: str, carried: Any, asked: Any, options: Options, opening: Opening) -> None:
        """Goes on from the state that bytes from elsewhere hold."""

        def decide(chat: Chat) -> tuple[str, Any] | None:
            project = chat.project if chat.opened else chat.project or opening.project
            return None if chat.carried() == carried else ("imported", (carried, project))

        self.note(stream, asked, decide, options, opening=opening)

    def fork(self, stream: str, twin: str, at: int | None, depth_max: int, options: Options, opening: Opening) -> None:
        """Begins a stream from the state of another one."""

        def decide(_: Chat) -> tuple[str, Any]:
            base = self.state(stream, at)
            if self.entries(twin):
                raise InvalidInput(twin)
            if base.depth >= depth_max:
                raise LimitExceeded(twin)
            live = self.state(stream)
            project = live.project if live.opened else live.project or opening.project
            return "forked", (stream, self.last_seq(stream, at), base.depth + 1, project, self.branch)

        self.note(twin, ("fork", stream, at), decide, options)

    def drop(self, stream: str, options: Options, opening: Opening) -> None:
        """Ends a fork."""

        def decide(chat: Chat) -> tuple[str, Any]:
            if not chat.depth:
                raise InvalidInput(stream)
            return "dropped", None

        self.note(stream, ("drop",), decide, options, opening=opening)

    # A whole memory.

    def _whole(self, asked: Any, decide: Callable[[], list[Entry]], options: Options) -> None:
        """Does what takes in the whole memory, whose version is its head."""
        asked = (STORE, asked)
        answer = self._known(options.request_id)
        if answer is not None:
            self._answer(answer, asked)
            return
        self._compare("the memory", self.head, options.expected)
        first, written = self.head + 1, decide()
        if options.request_id is not None:
            self.requests[self.branch, options.request_id] = (asked, written[-1] if written else None, first)

    def keep_whole(self, name: str, options: Options) -> None:
        """Names the present state of everything once and for ever."""

        def decide() -> list[Entry]:
            seq = self.state(STORE).names.get(("", name))
            if seq is None:
                return [self.append(STORE, "named", ("", name, self.head), options.sources)]
            if any(entry.seq > seq and entry.stream != STORE for entry in self.seen()):
                raise InvalidInput(name)
            return []

        self._whole(("snapshot", name), decide, options)

    def restore_whole(self, branch: int, seq: int, asked: Any, options: Options) -> None:
        """Brings every stream back that is not what it was in a branch at a seq."""

        def decide() -> list[Entry]:
            there = {e.stream for e in self.log if e.seq <= dict(self.lineage(branch, seq)).get(e.branch, 0)}
            streams = sorted({e.stream for e in self.seen()} | there)
            changed = [
                (stream, mine, target)
                for stream in streams
                if stream != STORE
                and (mine := self.state(stream)).hashed() != (target := self.state_in(branch, stream, seq)).hashed()
            ]
            return [
                self.append(stream, "restored", (stream, seq, *identity(mine, target), branch), options.sources)
                for stream, mine, target in changed
            ]

        self._whole(asked, decide, options)

    def fork_whole(self, name: str, at: int | None, depth_max: int, options: Options) -> int:
        """Begins a branch, or finds it; returns its number."""

        def decide() -> list[Entry]:
            if name in [row[2] for row in self.forks()]:
                if at is not None:
                    raise InvalidInput(name)
                return []
            if len(list(self.lineage(self.branch, None))) > depth_max:
                raise LimitExceeded(name)
            data = (self.branch, self.head if at is None else at, name)
            return [self.append_in_main("branched", data, options.sources)]

        self._whole(("fork", self.branch, name, at), decide, options)
        return self.opened(name)

    def opened(self, name: str) -> int:
        """The number of a branch that was forked from the one that is asked."""
        names = [row[2] for row in self.forks()]
        if name not in names:
            raise NotFound(name)
        if name not in self.fork_names():
            raise InvalidInput(name)
        return names.index(name) + 1


def identity(mine: Any, target: Any) -> tuple[int, str | None]:
    """What a conversation is after the whole was restored: as deep a fork as before, and of the project of then."""
    return (mine.depth, target.project) if isinstance(mine, Chat) else (0, None)


def day_of(time_ns: int) -> str:
    """The day of a moment in UTC."""
    return datetime.fromtimestamp(time_ns // 10**9, UTC).date().isoformat()
