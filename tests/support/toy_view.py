"""A view that refold does not have, with its events and its verb: all that has to be written for a new one.

It has to be there before the fold is loaded, so that a test of it runs in a process of its own: `python -m
tests.support.toy_view PATH` drives it through everything that a store does with an event.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import refold.views
from refold.event import Event, Located, Stamp, View
from refold.views.base import KeyedValues
from refold.views.scratchpad import SCRATCH, NoteAdded, Scratch

assert "refold.fold" not in sys.modules, "the fold knows the views that there are when it is loaded"


# The view: its events, its state, its handlers.


class MoodSet(Event, frozen=True, tag=120):
    """Somebody of a conversation got a mood."""

    prior: int
    name: str = ""
    mood: str = ""
    seen_in: str | None = None

    def mentions(self) -> tuple[str | None, ...]:
        """Return the conversation in which it was seen."""
        return (self.seen_in,)

    def check(self, *, is_erased: bool) -> None:
        """Raise for a mood that the verb refuses."""
        if not is_erased and not self.mood:
            raise msgspec.ValidationError("its mood is empty")

    def repeat(self, chat: Any) -> None:
        """Set the mood there."""
        set_mood(chat, self.name, self.mood)


class Moods:
    """The moods by name."""

    def __init__(self) -> None:
        self.entries: KeyedValues[str] = KeyedValues()

    def pack(self) -> tuple[Any, list[int]]:
        return self.entries.pack()

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Moods":
        moods, located = cls(), iter(events)
        moods.entries.unpack(inline, str, lambda _: getattr(next(located)[0], "mood"))  # noqa: B009 - of MoodSet alone
        return moods

    def logical(self) -> Any:
        return self.entries.rows(sorted(self.entries.values)) or None

    def plain(self) -> dict[str, Any]:
        return dict(self.entries.values)


MOODS = View("moods", kinds=("conversation",), state=Moods)
refold.views.VIEWS = (*refold.views.VIEWS, MOODS)  # type: ignore[misc]


@MOODS.on(MoodSet)
def mood_set(moods: Moods, stamp: Stamp, event: MoodSet) -> None:
    """Hold the mood; of an erased event, drop what it had replaced."""
    if stamp.erased:
        moods.entries.drop_at(event.prior, 0)
    else:
        moods.entries.put(stamp.seq, event.name, event.mood)


# A new event of a view that is there.


class NotesReversed(Event, frozen=True, tag=121):
    """The notes of a scratchpad stand the other way round."""


@SCRATCH.on(NotesReversed)
def notes_reversed(scratch: Scratch, _: Stamp, __: NotesReversed) -> None:
    """Turn the notes round."""
    scratch.notes.reverse()


# The verbs.


def set_mood(chat: Any, name: str, mood: str, *, seen_in: str | None = None, **options: Any) -> None:
    """Set a mood; the same one appends nothing."""
    sources = chat._core.sources(options.pop("sources", ()))

    def decide(state: Any) -> Event | None:
        entries = state.part(MOODS).entries
        if entries.values.get(name) == mood:
            return None
        return MoodSet(sources, entries.prior(name)[0], name, mood, seen_in)

    chat._write(decide, ("set_mood", name, mood), options)


def moods_of(chat: Any) -> dict[str, str]:
    moods: dict[str, str] = chat._read(lambda state: dict(state.part(MOODS).entries.values))
    return moods


def reverse_notes(chat: Any) -> None:
    chat._write(NotesReversed(()), ("reverse_notes",), {})


# What a store does with an event.


def write(path: Path) -> str:
    """Write the events, in a batch and alone, and read them at other seqs; return the hash of the state."""
    from refold import Memory, fold
    from refold.mcp.resources import SCRATCHPAD, Address, Binding, event_addresses
    from tests.support.memories import assert_sound

    assert (fold.NAMES[MoodSet], fold.NAMES[NotesReversed]) == ("mood_set", "notes_reversed")
    with Memory(path) as memory:
        chat, other = memory.conversation("chat"), memory.conversation("other")
        source = chat.append("user", "I am tired")
        set_mood(chat, "ada", "tired", sources=(source,), request_id="first")
        early = memory.head
        set_mood(chat, "ada", "tired")
        set_mood(chat, "ada", "tired", sources=(source,), request_id="first")
        assert memory.head == early, "nothing changed, and the request was answered before"
        with memory.batch():
            set_mood(chat, "ada", "awake" * 200)
            set_mood(chat, "bob", "bored")
            assert moods_of(chat)["bob"] == "bored"
        set_mood(other, "ada", "shy", seen_in="chat")
        assert moods_of(chat.at(early)) == moods_of(chat.fork("fork", at=early)) == {"ada": "tired"}
        late = chat.snapshot()
        chat.restore(chat.at(early).snapshot())
        assert moods_of(chat) == {"ada": "tired"}
        chat.restore(late)
        assert [step.event for step in chat.replay(after=early, until=early + 1)] == [
            MoodSet((), early, "ada", "awake" * 200)
        ]
        changes = memory.diff(memory.at(early), memory)
        assert ("moods", ("bob",)) in [(change.view, change.path) for change in changes]
        for text in ("one", "two"):
            chat._write(NoteAdded((), text), ("note", text), {})
        reverse_notes(chat)
        assert [text for _, text in chat._read(lambda state: list(state.part(SCRATCH).notes))] == ["two", "one"]
        assert Address(SCRATCHPAD, "chat") in event_addresses(Binding(memory), list(chat.events())[-1])
        return assert_sound(memory)


def carry(path: Path, live: str) -> None:
    """Open the store again, export and load it, and repeat a session; a line that was changed is refused."""
    from refold import InvalidInput, Memory
    from refold.agent.rerun import rerun
    from tests.support.memories import assert_sound

    export = path.with_suffix(".jsonl")
    with Memory(path) as memory:
        assert assert_sound(memory) == live
        memory.export(export)
        with Memory() as copy:
            copy.load(export)
            assert assert_sound(copy) == live
        export.write_text(export.read_text().replace('"bored"', '""'))
        with Memory() as copy, pytest.raises(InvalidInput, match="its mood is empty"):
            copy.load(export)
        chat = memory.conversation("short")
        set_mood(chat, "eve", "glad")
        with Memory() as copy:
            assert moods_of(rerun(chat, copy)) == {"eve": "glad"}


def erase(path: Path) -> None:
    """Erase one event, then a conversation that another one names."""
    from refold import Memory
    from tests.support.memories import assert_sound

    with Memory(path) as memory:
        chat = memory.conversation("chat")
        early = next(stamp.seq for event, stamp in chat.events() if isinstance(event, MoodSet))
        memory.erase([early])
        assert moods_of(chat.at(early)) == {}
        assert moods_of(chat)["ada"] == "awake" * 200
        assert_sound(memory)
        chat.erase(forks="erase")
        assert moods_of(memory.conversation("other")) == {}, "an erasure reaches what names the conversation"
        assert_sound(memory)


if __name__ == "__main__":
    store = Path(sys.argv[1]) / "store"
    carry(store, write(store))
    erase(store)
