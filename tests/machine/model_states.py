"""The states of the plain model, and its fold: one function for each kind of entry."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Opening:
    """What the first mutation of a conversation records."""

    budget: int
    project: str | None = None


@dataclass(frozen=True)
class Entry:
    """One event with its stamp."""

    seq: int
    stream: str
    version: int
    kind: str
    data: Any
    sources: tuple[int, ...]
    time_ns: int
    occurred_ns: int
    erased: bool = False
    branch: int = 0
    cause: int = 0
    actor: str | int | None = None
    """The name, or the seq of the entry that named the actor; None where the machine says nothing of it."""


@dataclass(frozen=True)
class Line:
    """One message; ``leader`` is the id of the first member of its group."""

    id: str
    role: str
    content: Any
    tokens: int
    pinned: bool | None = False
    name: str | None = None
    tool_calls: Any = None
    tool_call_id: str | None = None
    metadata: Any = None
    calls: tuple[str, ...] = ()
    answers: str | None = None
    leader: str = ""
    seq: int = 0
    time_ns: int = 0
    occurred_ns: int = 0
    erased: bool = False

    def blanked(self) -> "Line":
        """The same message without its text."""
        return replace(self, content=None, name=None, tool_calls=None, metadata=None, erased=True)


Held = tuple[Any, int]
"""A value and the seq that set it."""


@dataclass
class Chat:
    """The state of one conversation."""

    opened: bool = False
    project: str | None = None
    depth: int = 0
    budget: int = 0
    lines: list[Line] = field(default_factory=list)
    entries: dict[str, Held] = field(default_factory=dict)
    notes: list[tuple[int, str]] = field(default_factory=list)
    values: dict[str, Held] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """The tokens of the live messages."""
        return sum(line.tokens for line in self.lines)

    def carried(self) -> Any:
        """What travels to another store: everything but seqs, identity and what cannot be told from outside."""
        lines = [replace(line, seq=0) for line in self.lines]
        entries = [(key, value) for key, (value, _) in self.entries.items()]
        values = [(key, value) for key, (value, _) in self.values.items()]
        return self.opened, self.budget, lines, entries, [text for _, text in self.notes], values

    def hashed(self) -> Any:
        """What a hash tells apart: nothing of how deep it is forked, and of what is not open nothing at all."""
        return replace(self, depth=0) if self.opened else replace(self, depth=0, project=None, budget=0)

    def plain(self) -> Any:
        """What a person compares: no times, and of the seqs only those of messages."""
        lines = [replace(line, time_ns=0, occurred_ns=0) for line in self.lines]
        identity = (self.project, self.budget) if self.opened else None
        return identity, lines, _shown(self.entries), [text for _, text in self.notes], _shown(self.values)


def _shown(held: dict[str, Held]) -> dict[str, str]:
    """Values by key, as text that tells 1 from True."""
    return {key: repr(value) for key, (value, _) in held.items()}


@dataclass
class Keys:
    """The state of a project or a profile: values by key, in the order in which they were first set."""

    values: dict[str, Held] = field(default_factory=dict)

    def hashed(self) -> Any:
        """What a hash tells apart."""
        return list(self.values.items())

    def plain(self) -> Any:
        """What a person compares."""
        return _shown(self.values)


@dataclass
class Book:
    """The state of a journal: (seq, day, text, time) in order."""

    notes: list[tuple[int, str, str, int]] = field(default_factory=list)

    def hashed(self) -> Any:
        """What a hash tells apart."""
        return self.notes

    def plain(self) -> Any:
        """What a person compares."""
        return {day: [text for _, other, text, _ in self.notes if other == day] for _, day, _, _ in self.notes}


@dataclass
class Names:
    """The named snapshots: (stream, name) -> seq."""

    names: dict[tuple[str, str], int] = field(default_factory=dict)


State = Chat | Keys | Book | Names
EMPTY: dict[str, Callable[[], State]] = {
    "conversation": Chat,
    "project": Keys,
    "profile": Keys,
    "journal": Book,
    "store": Names,
}


def empty(stream: str) -> Any:
    """The empty state of a stream."""
    return EMPTY[stream.partition("/")[0]]()


def duplicate(state: Any) -> Any:
    """A copy that can be changed; what it holds is never changed in place."""
    twin = copy(state)
    for name, value in vars(state).items():
        setattr(twin, name, copy(value))
    return twin


# The window.


def entering(chat: Chat, line: Line) -> Line | None:
    """The message with its group, ``None`` if it answers a call that is not in the window."""
    if line.answers is None:
        return replace(line, leader=line.id)
    makers = [live.id for live in chat.lines if line.answers in live.calls]
    return replace(line, leader=makers[-1]) if makers else None


def pinned_tokens(lines: list[Line]) -> int:
    """What the groups with a pinned member hold."""
    leaders = {line.leader for line in lines if line.pinned}
    return sum(line.tokens for line in lines if line.leader in leaders)


def evict(chat: Chat) -> None:
    """Takes groups from the front while the sum exceeds the budget; pinned groups stay."""
    while chat.tokens > chat.budget:
        pinned = {line.leader for line in chat.lines if line.pinned}
        loose = [line.leader for line in chat.lines if line.leader not in pinned]
        if not loose:
            return
        chat.lines = [line for line in chat.lines if line.leader != loose[0]]


# The fold: one function for each kind of entry.


def _opened(chat: Chat, entry: Entry) -> None:
    chat.opened = True
    chat.budget = entry.data.budget
    chat.project = (None if entry.erased else entry.data.project) or chat.project


def _message(chat: Chat, entry: Entry) -> None:
    line = replace(entry.data, seq=entry.seq, time_ns=entry.time_ns, occurred_ns=entry.occurred_ns)
    entered = entering(chat, line.blanked() if entry.erased else line)
    if entered is not None:
        chat.lines.append(entered)
        evict(chat)


def _resized(chat: Chat, entry: Entry) -> None:
    chat.budget = entry.data
    evict(chat)


def _cleared_window(chat: Chat, _: Entry) -> None:
    chat.lines = []


def _removed(chat: Chat, entry: Entry) -> None:
    leader = next(line.leader for line in chat.lines if line.id == entry.data)
    chat.lines = [line for line in chat.lines if line.leader != leader]


def _pinned(chat: Chat, entry: Entry) -> None:
    message_id, pinned = entry.data
    chat.lines = [replace(line, pinned=pinned) if line.id == message_id else line for line in chat.lines]


def _put(held: dict[str, Held], entry: Entry) -> None:
    """Sets a key; an erased entry removes what it had replaced instead."""
    key, value, prior = entry.data
    if not entry.erased:
        held[key] = (value, entry.seq)
    elif held.get(key, (None, 0))[1] == prior:
        held.pop(key, None)


def _drop(held: dict[str, Held], entry: Entry) -> None:
    key, _, prior = entry.data
    if not entry.erased or held.get(key, (None, 0))[1] == prior:
        held.pop(key, None)


def _noted(chat: Chat, entry: Entry) -> None:
    if not entry.erased:
        chat.notes.append((entry.seq, entry.data))


def _cleared(chat: Chat, _: Entry) -> None:
    chat.entries, chat.notes = {}, []


def _round_ended(chat: Chat, _: Entry) -> None:
    chat.values = {key: held for key, held in chat.values.items() if not key.startswith("temp:")}


def _ended(chat: Chat, entry: Entry) -> None:
    _cleared(chat, entry)
    _round_ended(chat, entry)


def _forked(chat: Chat, entry: Entry) -> None:
    chat.project = None if entry.erased else entry.data[3]
    chat.depth = entry.data[2]


def _restored(state: Any, entry: Entry) -> None:
    if isinstance(state, Chat):
        _forked(state, entry)


def _imported(chat: Chat, entry: Entry) -> None:
    opened, budget, lines, entries, notes, values = entry.data[0]
    chat.opened, chat.budget = opened, budget
    chat.project = None if entry.erased else entry.data[1]
    chat.lines = [replace(line, seq=entry.seq) for line in lines]
    chat.entries = {key: (value, entry.seq) for key, value in entries}
    chat.values = {key: (value, entry.seq) for key, value in values}
    chat.notes = [(entry.seq, text) for text in notes]
    if entry.erased:
        chat.lines = [line.blanked() for line in chat.lines]
        chat.entries, chat.values, chat.notes = {}, {}, []


def _dropped(chat: Chat, _: Entry) -> None:
    vars(chat).update(vars(Chat()))


def _written(book: Book, entry: Entry) -> None:
    if not entry.erased:
        book.notes.append((entry.seq, *entry.data, entry.time_ns))


def _named(names: Names, entry: Entry) -> None:
    stream, name, seq = entry.data
    if not entry.erased:
        names.names[stream, name] = seq


def _nothing(_: State, __: Entry) -> None:
    return


FOLD: dict[str, Callable[[Any, Entry], None]] = {
    "opened": _opened,
    "message": _message,
    "resized": _resized,
    "cleared_window": _cleared_window,
    "removed": _removed,
    "pinned": _pinned,
    "set": lambda chat, entry: _put(chat.entries, entry),
    "deleted": lambda chat, entry: _drop(chat.entries, entry),
    "noted": _noted,
    "cleared": _cleared,
    "value_set": lambda state, entry: _put(state.values, entry),
    "value_deleted": lambda state, entry: _drop(state.values, entry),
    "round_ended": _round_ended,
    "ended": _ended,
    "forked": _forked,
    "restored": _restored,
    "imported": _imported,
    "dropped": _dropped,
    "written": _written,
    "named": _named,
    "erased": _nothing,
    "branched": _nothing,
    "actor": _nothing,
}
