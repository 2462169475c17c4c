"""Scenarios: the same log under other policies, or with events left out, folded by the same fold and never written.

A scenario is a separate reader over the same log. Where it differs, a *lens* replaces an event of the log for the fold:
with an opening that has another policy or budget, with an addition instead of a merge, or with an event that is folded
into nothing. The checkpoint rows of the log tell it where the events of a stream are, but give it no state.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold import fold
from refold.engine.engine import Engine
from refold.engine.loader import Lens, States
from refold.engine.reader import Reader
from refold.engine.streams import STORE_STREAM, records_through
from refold.entry import Entry, MemoriesRecalled, MemoryAdded, MemoryMerged, MemoryUnmerged, unpack_entry
from refold.event import (
    FLAG_BASE,
    ConversationOpened,
    Event,
    ForkDropped,
    Forked,
    Restored,
    Stamp,
    StateImported,
)
from refold.limits import SCENARIO_PARTS_COUNT
from refold.log.protocol import Log, Table
from refold.message import Message, MessageAppended, message_digest
from refold.text import sha256
from refold.views.facts import FACTS
from refold.views.window import WINDOW, MessagesRecalled, Window, WindowResized

LEFT_OUT: Final = fold.Unknown((), 0, b"")
"""Folded in place of an event that is left out: into nothing."""

STARTING: Final = (ConversationOpened, Forked, Restored, StateImported, ForkDropped)
"""The events that begin a conversation, rebase it or drop it; none of them is left out by itself."""

T = TypeVar("T")


class Changes(Struct, frozen=True, kw_only=True):
    """The ways in which a scenario differs from the log; ``None`` leaves a policy as it is."""

    window_tokens: int | None = None
    policy: int | None = None
    dedupe: float | None = None
    without: frozenset[int] = frozenset()
    occurred_ns: int | None = None
    """Leaves out events that occurred after this time."""

    @property
    def selection(self) -> "Changes":
        """The changes that concern more than windows."""
        return replace(self, window_tokens=None, policy=None)


class ScenarioLens:
    """Replaces events of the log in the fold of a scenario."""

    def __init__(self, changes: Changes, begun: Collection[str]) -> None:
        self._changes = changes
        self._begun = begun
        """The streams that keep some event, if events are left out by time."""
        self._undone: set[int] = set()
        """The seqs of merges that do not happen in the scenario."""
        self.maps: dict[type[Event], Callable[[Any, Stamp], Event]] = {}
        if changes.window_tokens is not None or changes.policy is not None:
            self.maps |= {ConversationOpened: self._change_opening, StateImported: self._change_import}
        if changes.window_tokens is not None:
            self.maps[WindowResized] = self._change_resize
        if changes.dedupe is not None:
            self.maps |= {MemoryMerged: self._change_merge, MemoryUnmerged: self._change_unmerge}

    @property
    def leaves_out(self) -> bool:
        """Whether this can leave out a message."""
        return bool(self._changes.without) or self._changes.occurred_ns is not None

    def has(self, stream: str) -> bool:
        """Return whether any event of a stream remains."""
        return self._changes.occurred_ns is None or stream in self._begun

    def transform(self, event: Event, stamp: Stamp) -> Event:
        """Return the event to fold."""
        changes = self._changes
        if stamp.seq in changes.without:
            return LEFT_OUT
        is_later = changes.occurred_ns is not None and stamp.occurred_ns > changes.occurred_ns
        if is_later and not (isinstance(event, STARTING) and stamp.stream in self._begun):
            return LEFT_OUT
        change = self.maps.get(type(event))
        return event if change is None else change(event, stamp)

    def _change_opening(self, event: ConversationOpened, _: Stamp) -> Event:
        budget, policy = self._changes.window_tokens, self._changes.policy
        return replace(event, window_tokens=budget or event.window_tokens, policy=policy or event.policy)

    def _change_import(self, event: StateImported, _: Stamp) -> Event:
        if not event.policy:
            return event
        budget, policy = self._changes.window_tokens, self._changes.policy
        return replace(event, window_tokens=budget or event.window_tokens, policy=policy or event.policy)

    def _change_resize(self, event: WindowResized, _: Stamp) -> Event:
        return replace(event, window_tokens=self._changes.window_tokens or event.window_tokens)

    def _change_merge(self, event: MemoryMerged, stamp: Stamp) -> Event:
        """Return the addition of the merged memory instead, if the cosine was not over the threshold."""
        if self._changes.dedupe is None or event.cosine > self._changes.dedupe or stamp.erased:
            return event
        self._undone.add(stamp.seq)
        if event.incoming is None:
            return LEFT_OUT  # Both memories existed before.
        entry: Entry = unpack_entry(event.other, event.incoming, 0)
        return MemoryAdded(
            event.sources,
            entry.id,
            0,
            entry.content,
            entry.category,
            entry.words,
            entry.importance,
            entry.status,
            entry.extra,
            entry.session,
            entry.source_context,
            event.other_vector,
            event.model,
        )

    def _change_unmerge(self, event: MemoryUnmerged, _: Stamp) -> Event:
        return LEFT_OUT if event.prior in self._undone else event


class ScenarioLog:
    """The log of a scenario: the same log, read-only, without the caches of its states."""

    readonly = True

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader.log, name)

    def last_commit(self) -> int:
        """Return a number that moves with every commit, in RAM too; ``Closed`` once the memory is closed."""
        return self._reader.current_head()

    def row(self, table: Table, key: bytes) -> bytes | None:
        """Return a row, or ``None`` in a table that holds data computed from states."""
        return None if table in _OF_STATES else self._reader.log.row(table, key)

    def read_row(self, table: Table, key: bytes, read: Callable[[Any], T]) -> T | None:
        """Call ``read`` with the value of a row and return its result; ``None`` in one of those tables."""
        return None if table in _OF_STATES else self._reader.log.read_row(table, key, read)


_OF_STATES: Final = frozenset(("digests", "graphs"))


def streams_at_time(reader: Reader, occurred_ns: int, until: int) -> set[str]:
    """Return the streams in which an event had occurred by a time."""
    numbers: set[int] = set()
    for record in records_through(reader.log, 0, until):
        numbers |= {number for seq, number, _, _, when, *_ in record.rows() if when <= occurred_ns and seq <= until}
    return set(map(reader.streams.name_of, numbers))


def scenario_engine(reader: Reader, changes: Changes, until: int) -> Engine:
    """Return an engine that reads a log as it would be with the changes."""
    begun = set[str]() if changes.occurred_ns is None else streams_at_time(reader, changes.occurred_ns, until)
    return Engine(
        cast("Log", ScenarioLog(reader)),
        clock_ns=reader.clock_ns,
        random_bytes=reader.random_bytes,
        memory_bytes=reader.memory_bytes // SCENARIO_PARTS_COUNT,
        lens=ScenarioLens(changes, begun),
    )


# One pass over the log for many scenarios.


class WindowMiss(NamedTuple):
    """A message that was needed after it had left a window: its id or seq, the event that needed it, and why."""

    conversation: str
    target: str | int
    needed_seq: int
    reason: str


class Track:
    """One scenario in a pass: its lens, its reader and its states; the first of a selection folds all views of it."""

    def __init__(self, lens: Lens | None, reader: Callable[[], Reader], until: int) -> None:
        self.lens = lens
        self.reader = reader
        """Returns the reader of the scenario, which only a fork or a restore needs."""
        self.until = until
        self.first: Track = self
        self.states: States = States(str)
        self.needs: list[WindowMiss] = []
        self.since: dict[int, int] = {}
        """Number of a conversation -> the first seq after which its messages differ from the log's."""
        self.digests: dict[tuple[str, str], bytes] = {}
        """The digests of its views, by stream and view."""
        self.windows: list[tuple[str, int, tuple[int, ...], tuple[int, ...]]] = []
        """Conversations whose window differs from the log's: since which seq, the seqs it lacks, and those it adds."""
        self.facts: dict[str, dict[str, Any]] = {}
        """Project -> its memories, if they differ from the log's; for the log's track, if they differ in any track."""

    def state_hash(self) -> str:
        """Return the state hash of the scenario."""
        from refold.engine.history import hash_of  # noqa: PLC0415 - not needed in a pass

        rows = [(stream, [(view, digest)]) for (stream, view), digest in self.digests.items()]
        return hash_of(rows)


class _AnyCall(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> dict[str, Any]: ...


Calls: TypeAlias = Callable[[Message], Iterable[_AnyCall]]
"""Returns the tool calls that a message makes."""


def sweep(reader: Reader, branch: int, tracks: Sequence[Track], calls_of: Calls) -> None:
    """Fold the log once for all tracks, which end at the same seq; the first track is the log as it is.

    Of the tracks that differ in windows only, the first folds every view and the others only windows. To keep RAM
    within its bound, the conversations are split into parts, with a pass over the log for each.
    """
    until = tracks[0].until
    parts = 1 + reader.log.files.size_bytes() // reader.memory_bytes
    for part in range(parts):
        _Pass(reader, tracks, part, parts, calls_of).run(until, reader.bounds(branch, until))
    for track in tracks:  # Each part had its own conversations.
        track.needs.sort(key=lambda need: need.needed_seq)
        track.windows.sort()


_DIGEST_BYTES: Final = 8
_RUN_COUNT: Final = 64
"""Number of messages of a conversation to fold at once; more are no faster, and wait in RAM."""

_WINDOWED: Final = frozenset(WINDOW.handlers)
_CHANGED: Final = frozenset((*STARTING, WindowResized))
"""The window events that a lens can replace, besides those that it leaves out."""

_NEEDING: Final = frozenset((MessageAppended, MessagesRecalled, MemoriesRecalled))


class _Pass:
    """One pass over the log for the conversations of one part."""

    def __init__(self, reader: Reader, tracks: Sequence[Track], part: int, parts: int, calls_of: Calls) -> None:
        self._reader, self._tracks, self._part, self._parts = reader, tracks, part, parts
        self._calls_of = calls_of
        self._name_of = reader.streams.name_of
        self._firsts: list[Track] = []
        self._calls: dict[tuple[int, bytes], str] = {}
        """Conversation and digest of a call -> the id of the last message that made it."""
        self._numbers: dict[str, int] = {}
        self._chats: dict[int, bool] = {}  # Number of a stream -> whether it is a conversation.
        self._others: dict[tuple[int, Track], list[fold.State]] = {}
        self._alike: dict[int, list[tuple[Track, Window]]] = {}
        """Conversation -> the log's track and those whose window was always as large as the log's."""
        self._runs: dict[int, tuple[list[Stamp], list[Event]]] = {}
        """Conversation -> messages that wait to be folded in one run, until its windows are needed."""
        for track in tracks:
            if track.first is track:
                track.states = States(self._name_of)
                self._firsts.append(track)
            else:
                track.states = States(self._name_of, lambda kind: fold.empty_part(WINDOW, kind))
        self._groups = [
            (first, [each for each in tracks if each.first is first and each is not first]) for first in self._firsts
        ]

    def run(self, until: int, bounds: Any) -> None:
        """Fold the events up to a seq, then collect the results from the states."""
        loader = self._reader.loader
        for items in loader.numbered_records(until, bounds):
            for number, event, stamp in items:
                self._take(number, event, stamp)
        for number in list(self._runs):
            self._fold_run(number)
        self._finish()

    def _is_ours(self, number: int) -> bool:
        return number % self._parts == self._part

    def _take(self, number: int, event: Event, stamp: Stamp) -> None:
        kind, chats = type(event), self._chats
        if number not in chats:
            chats[number] = stamp.stream.startswith("conversation/")
        is_chat = chats[number]
        if is_chat and self._parts > 1 and not self._is_ours(number):
            return
        if kind in _NEEDING:
            self._look(number, event, stamp)
        if is_chat and kind is MessageAppended:
            stamps, events = self._runs.setdefault(number, ([], []))
            stamps.append(stamp)
            events.append(event)
            if len(events) >= _RUN_COUNT:
                self._fold_run(number)
            return
        if number in self._runs:
            self._fold_run(number)
        apply, is_windowed = fold.fold, is_chat and kind in _WINDOWED
        for first, others in self._groups:
            found = event if first.lens is None else first.lens.transform(event, stamp)
            if stamp.flags & FLAG_BASE and type(found) in fold.BASE_TYPES:
                for track in (first, *others) if is_chat else (first,):
                    self._rebase(track, number, found)
            apply(first.states[number], stamp, found)
            if is_windowed and kind in _CHANGED:
                for track in others:
                    apply(
                        track.states[number],
                        stamp,
                        track.lens.transform(event, stamp) if track.lens is not None else event,
                    )
            elif is_windowed:
                for state in self._states_of(number, first, others):
                    apply(state, stamp, found)
        if is_windowed:
            self._compare(number, stamp.seq)

    def _fold_run(self, number: int) -> None:
        """Fold the waiting messages: at once, but step by step in windows that are as large as the log's."""
        stamps, events = self._runs.pop(number, ((), ()))
        if not events:
            return
        alike = {track for track, _ in self._alike_tracks(number)}
        rows: dict[Track, tuple[fold.State, Sequence[Event]]] = {}
        for first, others in self._groups:
            shown = events
            if first.lens is not None and first.lens.leaves_out:
                shown = [first.lens.transform(event, stamp) for stamp, event in zip(stamps, events, strict=True)]
            states = [first.states[number], *self._states_of(number, first, others)]
            for track, state in zip((first, *others), states, strict=True):
                if track in alike:
                    rows[track] = (state, shown)
                else:
                    fold.fold_run(state, stamps, shown)
        self._fold_alike(number, stamps, rows)

    def _fold_alike(
        self, number: int, stamps: Sequence[Stamp], rows: dict[Track, tuple[fold.State, Sequence[Event]]]
    ) -> None:
        """Fold at once the messages that fit into all windows, then the one that can make windows differ, and so on."""
        place = 0
        while place < len(stamps):
            alike = self._alike_tracks(number)
            known = {track for track, _ in alike}
            is_alone = len(known) == 1
            for track in [each for each in rows if is_alone or each not in known]:
                state, events = rows.pop(track)
                fold.fold_run(state, stamps[place:], events[place:])
            if is_alone:
                return
            count = max(_count_fitting(alike, rows, place), 1)
            for state, events in rows.values():
                fold.fold_run(state, stamps[place : place + count], events[place : place + count])
            place += count
            self._compare(number, stamps[place - 1].seq)

    def _rebase(self, track: Track, number: int, event: Event) -> None:
        state = track.states[number]
        reader = track.reader()
        with reader.state_lock:
            base = reader.loader.base_state(event, state.kind.name)
        if track.first is not track:
            base = fold.State(state.kind, [base.part(WINDOW)])
        track.states[number] = base
        self._others.pop((number, track.first), None)
        self._alike.pop(number, None)

    def _states_of(self, number: int, first: Track, others: Sequence[Track]) -> list[fold.State]:
        """Return the states of a conversation in the tracks that fold only its window."""
        states = self._others.get((number, first))
        if states is None:
            states = self._others[number, first] = [track.states[number] for track in others]
        return states

    def _compare(self, number: int, seq: int) -> None:
        """Record the seq at which a window first differed from the log's."""
        alike = self._alike_tracks(number)
        marks = [_marks_of(window) for _, window in alike]
        if marks.count(marks[0]) == len(marks):
            return
        for (track, _), own in zip(alike, marks, strict=True):
            if own != marks[0]:
                track.since[number] = seq
        self._alike[number] = [each for each, own in zip(alike, marks, strict=True) if own == marks[0]]

    def _alike_tracks(self, number: int) -> list[tuple[Track, Window]]:
        alike = self._alike.get(number)
        if alike is None:
            tracks = [each for each in self._tracks if each is self._tracks[0] or number not in each.since]
            alike = self._alike[number] = [(each, each.states[number].part(WINDOW)) for each in tracks]
        return alike

    # Messages that were needed after they had left.

    def _look(self, number: int, event: Event, stamp: Stamp) -> None:
        if isinstance(event, MessageAppended):
            if event.role == "assistant" and (event.calls or event.parts) and not stamp.erased:
                self._look_at_calls(number, event, stamp)
        elif isinstance(event, MessagesRecalled):
            self._record_misses(number, event.ids, stamp, "recalled")
        elif isinstance(event, MemoriesRecalled) and event.conversation is not None:
            facts = self._tracks[0].states[number].part(FACTS)
            chat = self._number(f"conversation/{event.conversation}")
            entries = [facts.entries[each] for each in event.ids if each in facts.entries]
            origins = [entry.origin for entry in entries if entry.origin]
            if chat and origins and self._is_ours(chat):
                self._record_misses(chat, origins, stamp, "a memory of it was recalled")

    def _number(self, name: str) -> int:
        """Return the number of a conversation that has an event so far, or 0 if it has none."""
        if name not in self._numbers:
            self._numbers |= {self._name_of(number): number for number in self._tracks[0].states}
        return self._numbers.get(name, 0)

    def _look_at_calls(self, number: int, event: MessageAppended, stamp: Stamp) -> None:
        for call in self._calls_of(Message(event, stamp)):
            given = msgspec.json.encode((call.name, call.arguments), order="deterministic")
            key = (number, sha256(given)[:_DIGEST_BYTES])
            earlier = self._calls.get(key)
            if earlier is not None:
                self._record_misses(number, (earlier,), stamp, "called again")
            self._calls[key] = event.id

    def _record_misses(self, number: int, targets: Sequence[str | int], stamp: Stamp, reason: str) -> None:
        self._fold_run(number)
        for track in self._tracks:
            live = track.states[number].part(WINDOW).live()
            there: set[str | int] = {each.event.id for each in live} | {each.stamp.seq for each in live}
            name = self._name_of(number)
            track.needs += [WindowMiss(name, each, stamp.seq, reason) for each in targets if each not in there]

    def _finish(self) -> None:
        """Collect the digests of all tracks, and the differences of their windows and memories from the log's."""
        for number in list(self._tracks[0].states):
            name = self._name_of(number)
            if name != STORE_STREAM:
                known: dict[int, bytes] = {}

                def digest_of(message: Message, known: dict[int, bytes] = known) -> bytes:
                    event = id(message.event)  # The states keep it alive, and many share the same one.
                    if event not in known:
                        known[event] = message_digest(message)
                    return known[event]

                for track in self._tracks:
                    if number in track.states:
                        self._finish_one(track, number, name, digest_of)
        for track in self._tracks:
            if track.first is not track:
                shared = {each: digest for each, digest in track.first.digests.items() if each[1] != "window"}
                track.digests = shared | track.digests
            track.states = States(self._name_of)

    def _finish_one(self, track: Track, number: int, name: str, digest_of: Callable[[Message], bytes]) -> None:
        own, state = self._tracks[0], track.states[number]
        if track.first is track:
            found = dict(fold.digests(state))
        else:
            logical = state.part(WINDOW).logical(digest_of)
            found = {} if logical is None else {"window": fold.digest_of(logical)}
        track.digests |= {(name, view): digest for view, digest in found.items()}
        if track is own:
            return
        if FACTS in state.kind.views and found.get("facts") != own.digests.get((name, "facts")):
            track.facts[name] = FACTS.plain(state.part(FACTS))
            own.facts.setdefault(name, FACTS.plain(own.states[number].part(FACTS)))
        if WINDOW in state.kind.views and found.get("window") != own.digests.get((name, "window")):
            self._compare_windows(track, number, name)

    def _compare_windows(self, track: Track, number: int, name: str) -> None:
        ours, theirs = (
            [message.stamp.seq for message in each.states[number].part(WINDOW).live()]
            for each in (self._tracks[0], track)
        )
        if ours != theirs:
            missing, added = set(ours) - set(theirs), set(theirs) - set(ours)
            since = track.since.get(number, 0)
            track.windows.append((name.partition("/")[2], since, tuple(sorted(missing)), tuple(sorted(added))))


def _marks_of(window: Window) -> tuple[int, int, int]:
    """Return what tells most windows apart in no time: the numbers of tokens and messages, and the oldest message."""
    messages = chain(window.passed, window.queue)
    oldest = next((each.stamp.seq for each in messages if each.event.id not in window.gone), 0)
    return window.tokens, len(window), oldest


def _count_fitting(
    alike: Sequence[tuple[Track, Window]], rows: Mapping[Track, tuple[fold.State, Sequence[Event]]], place: int
) -> int:
    """Return how many messages fit into all windows, so that they stay alike; 0 if a track leaves some out."""
    own = rows[alike[0][0]][1]
    if any(rows[track][1] is not own for track, _ in alike):
        return 0
    oldest = {window.queue[0].stamp.seq if window.queue else 0 for _, window in alike}
    if len({(window.policy, window.limit, len(window)) for _, window in alike}) == len(oldest) == 1:
        return len(own) - place  # The windows are the same.
    room, count = min(window.limit - window.tokens for _, window in alike), 0
    for event in own[place:]:
        room -= event.tokens if isinstance(event, MessageAppended) else 0
        if room < 0:
            break
        count += 1
    return count
