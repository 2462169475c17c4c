"""A fold by hand: what became of messages, notes, values and memories, told from the events alone, without the engine.

It holds windows, scratchpads, states, profiles and projects as plain lists and dicts, and notes for each thing the seq
at which it came and the seq at which it was last taken away. It is slow and small, and shares no line with ``why``.
"""

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, NamedTuple, cast

from refold import Conversation, Memory
from refold.importers.values import stream_name
from tests.support import mixed


class Fate(NamedTuple):
    """What became of a thing: its event, the seqs at which it came and left (0: never), and whether it is there."""

    x: int
    conversation: str | None
    came: int
    left: int
    is_there: bool


def fill(memory: Memory, count: int, draw: Random) -> None:
    """Write a store with everything in it, and restores, forks, pins and merges."""
    chats = [memory.conversation(f"chat-{number}") for number in range(10)]
    memory.profile().set("key-0", "the first of all")
    mixed.fill(memory, count // 4, draw)
    for round_ in range(3):
        for _ in range(count // 8):
            chat = draw.choice(chats)
            chat.append("user", f"round {round_}", tokens=draw.randrange(1, 5))
            draw.choice(_OF_WINDOWS if draw.random() < 0.5 else _OF_KEYS)(memory, chat, draw)
        memory.erase(draw.sample(range(1, memory.head), 10))


def _pin(_: Memory, chat: Conversation, draw: Random) -> None:
    if chat.window() and sum(message.tokens for message in chat.window() if message.pinned) < 2:
        chat.pin(draw.choice(chat.window()))


def _resize(_: Memory, chat: Conversation, draw: Random) -> None:
    budget = draw.randrange(8, 30)
    if sum(message.tokens for message in chat.window() if message.pinned) <= budget:
        chat.set_window_tokens(budget)


def _restore(memory: Memory, chat: Conversation, draw: Random) -> None:
    at = draw.randrange(memory.head)
    if chat.at(at).version:
        chat.restore(chat.at(at).snapshot())


def _fork(memory: Memory, chat: Conversation, _: Random) -> None:
    chat.fork(f"fork-{memory.head}").append("assistant", "on a way of its own", tokens=2)


def _forget(memory: Memory, _: Conversation, draw: Random) -> None:
    project = memory.project("p")
    draw.choice((project.compact, lambda: project.prune(0.0), project.clear))()


def _replace(chat: Conversation, draw: Random) -> None:
    for message in [each for each in chat.window() if not each.pinned][-1:]:
        chat.replace(message, "other", tokens=draw.randrange(9))


_Act = Callable[[Memory, Conversation, Random], object]
_OF_WINDOWS: tuple[_Act, ...] = (
    _pin,
    _resize,
    _restore,
    _fork,
    lambda _, chat, draw: [chat.unpin(message) for message in chat.window() if draw.random() < 0.5],
    lambda _, chat, __: [chat.remove(message) for message in chat.window()[:1]],
    lambda _, chat, draw: _replace(chat, draw),
    lambda _, chat, __: chat.pop(),
    lambda _, chat, __: chat.clear_window(),
)
_OF_KEYS: tuple[_Act, ...] = (
    _forget,
    lambda _, chat, draw: chat.scratchpad.set(f"key-{draw.randrange(3)}", str(draw.random())),
    lambda _, chat, draw: chat.scratchpad.delete(f"key-{draw.randrange(3)}"),
    lambda _, chat, draw: chat.state.set(f"{draw.choice(('', 'temp:'))}{draw.randrange(3)}", draw.random()),
    lambda _, chat, draw: draw.choice((chat.end_round, chat.end, chat.scratchpad.clear))(),
)


class _Chat:
    def __init__(self) -> None:
        self.window: list[tuple[str, int, int]] = []  # Id, tokens, seq.
        self.pinned: set[str] = set()
        self.budget = 0
        self.entries: dict[str, int] = {}
        self.state: dict[str, int] = {}
        self.notes: list[int] = []

    def evict(self) -> None:
        place = 0
        while sum(row[1] for row in self.window) > self.budget and place < len(self.window):
            if self.window[place][0] in self.pinned:
                place += 1
            else:
                del self.window[place]

    def holds(self) -> set[tuple[str, int]]:
        return (
            {("message", seq) for _, _, seq in self.window}
            | {("value", seq) for seq in (*self.entries.values(), *self.state.values())}
            | {("note", seq) for seq in self.notes}
        )


def _key(values: dict[str, int], event: Any, stamp: Any, *, is_set: bool) -> None:
    if stamp.erased:
        for key in [key for key, seq in values.items() if seq == event.prior]:
            del values[key]
    elif is_set:
        values[event.key] = stamp.seq
    else:
        values.pop(event.key, None)


def _change(chat: _Chat, name: str, event: Any, stamp: Any) -> None:
    if name == "ConversationOpened":
        chat.budget = event.window_tokens
    elif name == "MessageAppended":
        chat.window.append((event.id, event.tokens, stamp.seq))
        chat.pinned |= {event.id} if event.pinned else set()
        chat.evict()
    elif name == "WindowResized":
        chat.budget = event.window_tokens
        chat.evict()
    elif name == "WindowCleared":
        chat.window = []
    elif name == "MessageReplaced":
        chat.window = [(row[0], event.tokens if row[0] == event.id else row[1], row[2]) for row in chat.window]
        chat.evict()
    elif name == "MessageRemoved":
        chat.window = [row for row in chat.window if row[0] != event.id]
    elif name == "MessagePinned":
        (chat.pinned.add if event.pinned else chat.pinned.discard)(event.id)
    elif name in ("ScratchpadSet", "ScratchpadDeleted"):
        _key(chat.entries, event, stamp, is_set=name == "ScratchpadSet")
    elif name in ("StateSet", "StateDeleted"):
        _key(chat.state, event, stamp, is_set=name == "StateSet")
    elif name == "NoteAdded" and not stamp.erased:
        chat.notes.append(stamp.seq)
    if name in ("ScratchpadCleared", "ConversationEnded"):
        chat.entries, chat.notes = {}, []
    if name in ("RoundEnded", "ConversationEnded"):
        chat.state = {key: seq for key, seq in chat.state.items() if not key.startswith("temp:")}


def fates(memory: Memory) -> list[Fate]:
    """Return what became of every message, note, value and memory of a store."""
    chats: dict[str, _Chat] = {}
    past: dict[str, list[tuple[int, _Chat]]] = {}
    profile: dict[str, int] = {}
    project: dict[str, int] = {}
    gone: dict[str, int] = {}
    left: dict[tuple[str, str, int], int] = {}
    things: dict[tuple[str, str, int], int] = {}
    erased: set[int] = set()
    for recorded in memory.events():
        event, stamp = cast("Any", recorded.event), recorded.stamp
        name, kind, seq = type(event).__name__, stamp.stream.partition("/")[0], stamp.seq
        erased |= {seq} if stamp.erased else set()
        if kind == "conversation":
            chat = chats.setdefault(stamp.stream, _Chat())
            before = chat.holds()
            if name in ("Forked", "Restored"):
                base = stream_name(memory, event.base_stream) if event.base_stream else ""
                known = [state for at, state in past.get(base, []) if at <= event.base_seq]
                chat = chats[stamp.stream] = deepcopy(known[-1]) if known and event.base_seq else _Chat()
            else:
                _change(chat, name, event, stamp)
            for thing in before - chat.holds():
                left[stamp.stream, *thing] = seq
            for thing in chat.holds() - before:
                things.setdefault((stamp.stream, *thing), seq)
            if name == "MessageAppended":
                things.setdefault((stamp.stream, "message", seq), seq)
                if ("message", seq) not in chat.holds():
                    left[stamp.stream, "message", seq] = seq
            past.setdefault(stamp.stream, []).append((seq, deepcopy(chat)))
        elif name in ("ProfileSet", "ProfileDeleted"):
            before_seqs = set(profile.values())
            _key(profile, event, stamp, is_set=name == "ProfileSet")
            for value in before_seqs - set(profile.values()):
                left[stamp.stream, "value", value] = seq
            things |= {(stamp.stream, "value", value): value for value in set(profile.values()) - before_seqs}
        elif kind == "project":
            _memories(project, gone, name, event, stamp)
    found: list[Fate] = []
    for stream, what, seq in things:
        is_there = (what, seq) in chats[stream].holds() if stream in chats else seq in profile.values()
        own = stream.partition("/")[2]
        is_elsewhere = what == "message" and memory.event(seq).stamp.stream != stream
        if what != "message" and (seq in erased or memory.event(seq).stamp.stream != stream):
            continue
        when = 0 if is_there else left.get((stream, what, seq), 0)
        found.append(Fate(seq, own if is_elsewhere else None, seq, when, is_there))
    for entry_id, seq in project.items():
        if seq not in erased:
            found.append(Fate(seq, None, seq, gone.get(entry_id, 0), entry_id not in gone))
    return found


def _memories(project: dict[str, int], gone: dict[str, int], name: str, event: Any, stamp: Any) -> None:
    if name == "MemoryAdded":
        project[event.id] = stamp.seq
    elif name == "MemoryDeleted":
        gone.setdefault(event.id, stamp.seq)
    elif name == "MemoriesPruned":
        for entry_id in event.ids:
            gone.setdefault(entry_id, stamp.seq)
    elif name == "MemoriesCleared":
        for entry_id in project:
            gone.setdefault(entry_id, stamp.seq)
    elif name == "MemoryMerged" and event.other in project:
        gone.setdefault(event.other, stamp.seq)
