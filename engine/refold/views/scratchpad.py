"""The scratchpad: key/value pairs and free-form notes of one conversation."""

from typing import Any, ClassVar

import msgspec

from refold import checks
from refold.event import ConversationEnded, Event, ForkDropped, Located, Stamp, StateImported, View
from refold.views.base import KeyedValues, copy_slots


class ScratchpadSet(Event, frozen=True, tag=5):
    """A key of the scratchpad got a value."""

    sentence: ClassVar[str] = "key {key} of the scratchpad got the value {value}"
    subject: ClassVar[tuple[str, str]] = ("scratchpad", "key")

    prior: int
    place: int
    key: str = ""
    value: str = ""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            checks.key(self.key)

    def repeat(self, chat: Any) -> None:
        chat.scratchpad.set(self.key, self.value)


class ScratchpadDeleted(Event, frozen=True, tag=6):
    """A key of the scratchpad was removed."""

    sentence: ClassVar[str] = "key {key} of the scratchpad was deleted"
    subject: ClassVar[tuple[str, str]] = ("scratchpad", "key")

    prior: int
    place: int
    key: str = ""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            checks.key(self.key)

    def repeat(self, chat: Any) -> None:
        chat.scratchpad.delete(self.key)

    def removes(self, key: str) -> bool:  # noqa: ARG002 - it names only one
        return True


class NoteAdded(Event, frozen=True, tag=7):
    """A free-form note was added to the scratchpad."""

    sentence: ClassVar[str] = "the scratchpad got the note {text}"
    subject: ClassVar[tuple[str, str]] = ("note", "")

    text: str = ""

    def repeat(self, chat: Any) -> None:
        chat.scratchpad.note(self.text)


class ScratchpadCleared(Event, frozen=True, tag=8):
    """All keys and notes were removed from the scratchpad."""

    sentence: ClassVar[str] = "the scratchpad was cleared"
    ends: ClassVar[tuple[str, ...]] = ("scratchpad", "note")

    def repeat(self, chat: Any) -> None:
        chat.scratchpad.clear()


class Scratch:
    """The entries by key, and the notes in order with the seq of the event that added each."""

    __slots__ = ("entries", "notes")

    def __init__(self) -> None:
        self.entries: KeyedValues[str] = KeyedValues()
        self.notes: list[tuple[int, str]] = []

    copy = copy_slots

    def clear(self) -> None:
        self.entries.clear()
        self.notes.clear()

    @property
    def is_empty(self) -> bool:
        return not self.entries.values and not self.notes

    def pack(self) -> tuple[Any, list[int]]:
        """Return the entries, and for each note its index in its event: 0 except in an imported state."""
        rows, pointed = self.entries.pack()
        indices: list[int] = []
        last = 0
        for seq, _ in self.notes:
            indices.append(indices[-1] + 1 if seq == last else 0)
            last = seq
        return [rows, indices], [*pointed, *(seq for seq, _ in self.notes)]

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Scratch":
        scratch = cls()
        rows, indices = msgspec.convert(inline, tuple[Any, list[int]])
        located = iter(events)
        scratch.entries.unpack(rows, str, lambda key: _value_of(next(located)[0], key))
        scratch.notes = [
            (stamp.seq, _note_of(event, index)) for (event, stamp), index in zip(located, indices, strict=True)
        ]
        return scratch

    def logical(self) -> Any:
        if self.is_empty:
            return None
        entries = self.entries
        return [entries.rows(sorted(entries.values)), self.notes]

    def plain(self) -> dict[str, Any]:
        return {
            "entries": {key: self.entries.values[key] for key in sorted(self.entries.values)},
            "notes": [text for _, text in self.notes],
        }


def _value_of(event: Event, key: str) -> str:
    if isinstance(event, StateImported):
        return dict(event.entries)[key]
    assert isinstance(event, ScratchpadSet), f"{event!r} was packed as a scratchpad value"
    return event.value


def _note_of(event: Event, index: int) -> str:
    if isinstance(event, StateImported):
        return event.notes[index]
    assert isinstance(event, NoteAdded), f"{event!r} was packed as a note"
    return event.text


SCRATCH = View("scratch", kinds=("conversation",), state=Scratch)


@SCRATCH.on(ScratchpadSet)
def _scratchpad_set(scratch: Scratch, stamp: Stamp, event: ScratchpadSet) -> None:
    scratch.entries.on_set(stamp, event, event.value)


@SCRATCH.on(ScratchpadDeleted)
def _scratchpad_deleted(scratch: Scratch, stamp: Stamp, event: ScratchpadDeleted) -> None:
    scratch.entries.on_delete(stamp, event)


@SCRATCH.on(NoteAdded)
def _note_added(scratch: Scratch, stamp: Stamp, event: NoteAdded) -> None:
    if not stamp.erased:
        scratch.notes.append((stamp.seq, event.text))


@SCRATCH.on(ScratchpadCleared, ConversationEnded, ForkDropped)
def _clear(scratch: Scratch, stamp: Stamp, event: Event) -> None:
    scratch.clear()


@SCRATCH.on(StateImported)
def _state_imported(scratch: Scratch, stamp: Stamp, event: StateImported) -> None:
    scratch.entries.replace(stamp.seq, event.entries)
    scratch.notes = [(stamp.seq, text) for text in event.notes]
