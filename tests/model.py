"""The plain model of a memory: lists and dicts, written from the promises and not from the engine.

It keeps every event as an ``Entry`` and, for each stream, the state after each of its entries. An erasure folds every
stream again. Nothing here is quick, and nothing here is shared with the engine but the names of its errors.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from refold import InvalidInput, LimitExceeded, NotFound, WrongVersion
from tests.states import FOLD, Chat, Entry, Line, Opening, State, duplicate, empty, entering, pinned_tokens

ANY, NO_STREAM, EXISTS = "any", "no stream", "exists"
STORE = "store/main"
BASES = ("forked", "restored")


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
        self.states: dict[str, list[tuple[int, State]]] = {}
        self.requests: dict[str, tuple[Any, Entry | None]] = {}
        self.clock_ns: Callable[[], int] = lambda: 0
        self.batch: tuple[int, dict[str, tuple[Any, Entry | None]]] | None = None

    # Reading.

    @property
    def head(self) -> int:
        """The seq of the last entry, those of an open batch included."""
        return len(self.log)

    @property
    def committed(self) -> int:
        """The seq of the last entry that is no part of an open batch."""
        return self.head if self.batch is None else self.batch[0]

    def state(self, stream: str, at: int | None = None) -> Any:
        """The state of a stream, to be read only."""
        states = self.states.get(stream, [])
        return next((state for seq, state in reversed(states) if at is None or seq <= at), empty(stream))

    def entries(self, stream: str, at: int | None = None) -> list[Entry]:
        """The entries of a stream up to a seq."""
        return [entry for entry in self.log[:at] if entry.stream == stream]

    def last_seq(self, stream: str, at: int | None = None) -> int:
        """The seq of the last entry of a stream up to a seq, 0 where there is none."""
        return next((entry.seq for entry in reversed(self.log[:at]) if entry.stream == stream), 0)

    def names(self, kind: str, at: int | None = None) -> list[str]:
        """The sorted names of the streams of a kind."""
        return sorted({e.stream.partition("/")[2] for e in self.log[:at] if e.stream.startswith(f"{kind}/")})

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
        streams = {entry.stream for entry in self.log[:at]} - {STORE}
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
        other.clock_ns, other.log = self.clock_ns, self.log[: self.committed]
        other.fold_again()
        return other

    # Writing.

    def note(
        self,
        stream: str,
        asked: Any,
        decide: Callable[[Any], tuple[str, Any] | None],
        options: Options,
        *,
        opening: Opening | None = None,
        occurred_ns: int | None = None,
    ) -> Entry | None:
        """Appends what ``decide`` makes of the state, after what opens the stream; the last entry is the answer."""
        asked = (stream, asked)
        if options.request_id in self.requests:
            return self._answer(options.request_id, asked)
        self._check_version(stream, options.expected)
        decided = decide(self.state(stream))
        entry = None
        if decided is not None:
            if opening is not None and not self.state(stream).opened:
                self.append(stream, "opened", opening, (), occurred_ns)
            entry = self.append(stream, *decided, options.sources, occurred_ns)
        if options.request_id is not None:
            self.requests[options.request_id] = (asked, entry)
        return entry

    def _answer(self, request_id: str, asked: Any) -> Entry | None:
        known, entry = self.requests[request_id]
        if known != asked or (self.batch is not None and request_id not in self.batch[1]):
            raise InvalidInput(request_id)
        return entry

    def _check_version(self, stream: str, expected: Any) -> None:
        actual = len(self.entries(stream))
        if not {ANY: True, NO_STREAM: actual == 0, EXISTS: actual > 0}.get(expected, expected == actual):
            raise WrongVersion(stream, expected=expected, actual=actual)

    def append(
        self, stream: str, kind: str, data: Any, sources: tuple[int, ...] = (), occurred_ns: int | None = None
    ) -> Entry:
        """Appends an entry and folds it."""
        version = len(self.entries(stream)) + 1
        now_ns = self.now_ns()
        happened_ns = now_ns if occurred_ns is None else occurred_ns
        entry = Entry(self.head + 1, stream, version, kind, data, sources, now_ns, happened_ns)
        self.log.append(entry)
        self._fold(entry)
        return entry

    def _fold(self, entry: Entry) -> None:
        base = entry.data[:2] if entry.kind in BASES else (entry.stream, None)
        state = duplicate(self.state(*base))
        FOLD[entry.kind](state, entry)
        self.states.setdefault(entry.stream, []).append((entry.seq, state))

    def fold_again(self) -> None:
        """Folds the whole log anew."""
        self.states = {}
        for entry in self.log:
            self._fold(entry)

    def erase(self, seqs: list[int]) -> None:
        """Blanks entries and says so."""
        self.log = [replace(entry, erased=True) if entry.seq in seqs else entry for entry in self.log]
        self.append(STORE, "erased", tuple(seqs))
        self.fold_again()

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
            name: (asked, entry and self.log[entry.seq - 1]) for name, (asked, entry) in self.requests.items()
        }
        self.fold_again()

    # Verbs of which there is more to say than one entry.

    def add_message(self, stream: str, line: Line, asked: Any, options: Options, **where: Any) -> Entry | None:
        """Appends a message; pinned groups must fit the budget."""

        def decide(chat: Chat) -> tuple[str, Any]:
            budget = chat.budget if chat.opened else where["opening"].budget
            entered = entering(chat, line)
            if entered is not None and (line.pinned or line.answers is not None):
                held = pinned_tokens([*chat.lines, entered])
                if held > budget:
                    raise LimitExceeded(held)
            return "message", line

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

    def restore(self, stream: str, base: tuple[str, int], asked: Any, options: Options, opening: Opening) -> None:
        """Goes on from a state of this store, unless it is the state already."""
        target = self.state(*base) if base[1] else Chat()

        def decide(chat: Chat) -> tuple[str, Any] | None:
            same = duplicate(target)
            same.project, same.depth = chat.project, chat.depth
            if same == chat:
                return None
            project = chat.project if chat.opened else chat.project or opening.project
            return "restored", (stream if not base[1] else base[0], base[1], chat.depth, project)

        self.note(stream, asked, decide, options, opening=opening)

    def take_over(self, stream: str, carried: Any, asked: Any, options: Options, opening: Opening) -> None:
        """Goes on from the state that bytes from elsewhere hold."""

        def decide(chat: Chat) -> tuple[str, Any] | None:
            project = chat.project if chat.opened else chat.project or opening.project
            return None if chat.carried() == carried else ("imported", (carried, project))

        self.note(stream, asked, decide, options, opening=opening)

    def fork(  # noqa: PLR0917 - what a fork is made of
        self, stream: str, twin: str, at: int | None, depth_max: int, options: Options, opening: Opening
    ) -> None:
        """Begins a stream from the state of another one."""

        def decide(_: Chat) -> tuple[str, Any]:
            base = self.state(stream, at)
            if self.entries(twin):
                raise InvalidInput(twin)
            if base.depth >= depth_max:
                raise LimitExceeded(twin)
            live = self.state(stream)
            project = live.project if live.opened else live.project or opening.project
            return "forked", (stream, self.last_seq(stream, at), base.depth + 1, project)

        self.note(twin, ("fork", stream, at), decide, options)

    def drop(self, stream: str, options: Options, opening: Opening) -> None:
        """Ends a fork."""

        def decide(chat: Chat) -> tuple[str, Any]:
            if not chat.depth:
                raise InvalidInput(stream)
            return "dropped", None

        self.note(stream, ("drop",), decide, options, opening=opening)


def day_of(time_ns: int) -> str:
    """The day of a moment in UTC."""
    return datetime.fromtimestamp(time_ns // 10**9, UTC).date().isoformat()
