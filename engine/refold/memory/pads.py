"""The keys, notes and values that a conversation holds besides its window, and the events that change them."""

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any, NamedTuple

from refold import checks
from refold.engine.keys import decide_delete, decide_set
from refold.engine.transaction import Decide
from refold.event import Event, Restored
from refold.fold import State
from refold.memory.core import Core
from refold.memory.handles import VALUES
from refold.memory.scratchpad import ENTRIES
from refold.memory.snapshot import RESTORED, Snapshot, branch_here, content_of, pointer
from refold.views.base import KeyedValues
from refold.views.scratchpad import SCRATCH, NoteAdded, ScratchpadCleared, ScratchpadDeleted, ScratchpadSet
from refold.views.state import STATE, StateDeleted, StateSet


class Pads(NamedTuple):
    """The keys, notes and values of a conversation, each with the seq of its event, or 0 if this store has none."""

    entries: KeyedValues[str]
    notes: list[tuple[int, str]]
    values: KeyedValues[bytes]

    @classmethod
    def of(cls, state: State) -> "Pads":
        """Copy the keys, notes and values of a state, which can change later."""
        scratch = state.part(SCRATCH)
        return cls(scratch.entries.copy(), [*scratch.notes], state.part(STATE).entries.copy())

    @classmethod
    def of_snapshot(cls, core: Core, snapshot: Snapshot) -> "Pads":
        """Return the content of a snapshot of this store or of another one."""
        branch = branch_here(core, snapshot)
        if branch is not None:
            base = Restored((), *pointer(core.with_branch(branch), snapshot.stream, snapshot.seq), 0)
            return cls.of(core.engine.reader.look_at_base(base, "conversation"))
        carried = content_of(snapshot).state
        pads = cls(KeyedValues(), [(0, text) for text in carried.notes], KeyedValues())
        pads.entries.replace(0, carried.entries)
        pads.values.replace(0, carried.state)
        return pads

    def changes(self, view: str, now: "Pads", sources: tuple[int, ...]) -> Iterator[Event | Decide]:
        """Yield the events that give a view this content; one that repeats an event cites it as a source."""
        return self._scratchpad_changes(now, sources) if view == "scratchpad" else self._state_changes(now, sources)

    def _scratchpad_changes(self, now: "Pads", sources: tuple[int, ...]) -> Iterator[Event | Decide]:
        count = len(now.notes)
        if [text for _, text in now.notes] != [text for _, text in self.notes[:count]]:
            count = 0
            yield ScratchpadCleared(sources)
        for key in sorted(now.entries.values.keys() - self.entries.values.keys()):
            yield decide_delete(ENTRIES, key, partial(ScratchpadDeleted, sources, key=key))
        for key, value in sorted(self.entries.values.items()):
            cited = _with_source(sources, self.entries.seqs[key])
            yield decide_set(ENTRIES, key, value, partial(ScratchpadSet, cited, key=key, value=value))
        for seq, text in self.notes[count:]:
            yield NoteAdded(_with_source(sources, seq), text)

    def _state_changes(self, now: "Pads", sources: tuple[int, ...]) -> Iterator[Event | Decide]:
        for key in sorted(now.values.values.keys() - self.values.values.keys()):
            yield decide_delete(VALUES, key, partial(StateDeleted, sources, key=key))
        for key, packed in sorted(self.values.values.items()):
            cited = _with_source(sources, self.values.seqs[key])
            yield decide_set(VALUES, key, packed, partial(StateSet, cited, key=key, packed=packed))


def _with_source(sources: tuple[int, ...], seq: int) -> tuple[int, ...]:
    return (*sources, seq) if seq and seq not in sources else sources


def views_of(views: Any) -> tuple[str, ...]:
    """Return the views to restore, in a fixed order; raise ``InvalidInput`` for an unknown view or none at all."""
    if isinstance(views, str) or not isinstance(views, Collection):
        checks.invalid(f"views must be a collection of names, not {type(views).__name__} ({checks.brief(views)})")
    names: list[Any] = [*views]
    unknown = [view for view in names if not isinstance(view, str) or view not in RESTORED]
    if unknown or not names:
        problem = f"has {checks.brief(unknown[0])}" if unknown else "is empty"
        checks.invalid(f"views {problem}; give some of {', '.join(RESTORED)}, or leave it out for all")
    return tuple(view for view in RESTORED if view in names)
