"""State scopes: JSON values under ``temp:``, ``session:`` and ``project:`` keys.

The first two live in the conversation's stream. The third lives in the project's stream, so that it outlives every
conversation. Keys lack the prefix of their own stream's default scope: ``session:`` in a conversation, ``project:`` in
a project.
"""

from typing import Any, ClassVar, Final

from refold import checks
from refold.event import (
    ConversationEnded,
    Event,
    ForkDropped,
    Located,
    Stamp,
    StateImported,
    View,
    decode_json,
    unpack_json,
)
from refold.views.base import KeyedValues, copy_slots

TEMP: Final = "temp:"
SESSION: Final = "session:"
PROJECT: Final = "project:"


class StateSet(Event, frozen=True, tag=9):
    """A key of the state got a JSON value."""

    sentence: ClassVar[str] = "key {key} of the state got the value {packed!s}"
    subject: ClassVar[tuple[str, str]] = ("state", "key")

    prior: int
    place: int
    key: str = ""
    packed: bytes = b"\xc0"

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            checks.key(self.key)
            checks.packed_json(decode_json(self.packed), "value")

    @property
    def value(self) -> Any:
        """The JSON value, a new object at each access."""
        return unpack_json(self.packed)

    def repeat(self, chat: Any) -> None:
        chat.state.set(self.key, self.value)


class StateDeleted(Event, frozen=True, tag=10):
    """A key of the state was removed."""

    sentence: ClassVar[str] = "key {key} of the state was deleted"
    subject: ClassVar[tuple[str, str]] = ("state", "key")

    prior: int
    place: int
    key: str = ""

    def check(self, *, is_erased: bool) -> None:
        if not is_erased:
            checks.key(self.key)

    def repeat(self, chat: Any) -> None:
        chat.state.delete(self.key)

    def removes(self, key: str) -> bool:  # noqa: ARG002 - it names only one
        return True


class RoundEnded(Event, frozen=True, tag=11):
    """A tool round ended: the temporary state is gone."""

    sentence: ClassVar[str] = "a round of tools ended: the temporary state was cleared"
    ends: ClassVar[tuple[str, ...]] = ("temp",)

    def repeat(self, chat: Any) -> None:
        chat.end_round()


class Scopes:
    """The values of one stream by key, each as msgpack bytes."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: KeyedValues[bytes] = KeyedValues()

    copy = copy_slots

    @property
    def has_temp(self) -> bool:
        """Whether there is temporary state that the end of a round would clear."""
        return any(map(_is_temp, self.entries.values))

    def pack(self) -> tuple[Any, list[int]]:
        return self.entries.pack()

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Scopes":
        scopes = cls()
        located = iter(events)
        scopes.entries.unpack(inline, bytes, lambda key: _value_of(next(located)[0], key))
        return scopes

    def logical(self) -> Any:
        entries = self.entries
        return entries.rows(sorted(entries.values)) or None

    def plain(self) -> dict[str, Any]:
        return {key: unpack_json(self.entries.values[key]) for key in sorted(self.entries.values)}


def _is_temp(key: str) -> bool:
    return key.startswith(TEMP)


def _value_of(event: Event, key: str) -> bytes:
    if isinstance(event, StateImported):
        return dict(event.state)[key]
    assert isinstance(event, StateSet), f"{event!r} was packed as a state value"
    return event.packed


STATE = View("state", kinds=("conversation", "project"), state=Scopes)


@STATE.on(StateSet)
def _state_set(scopes: Scopes, stamp: Stamp, event: StateSet) -> None:
    scopes.entries.on_set(stamp, event, event.packed)


@STATE.on(StateDeleted)
def _state_deleted(scopes: Scopes, stamp: Stamp, event: StateDeleted) -> None:
    scopes.entries.on_delete(stamp, event)


@STATE.on(RoundEnded, ConversationEnded)
def _drop_temp(scopes: Scopes, stamp: Stamp, event: Event) -> None:
    scopes.entries.drop_where(_is_temp)


@STATE.on(StateImported)
def _state_imported(scopes: Scopes, stamp: Stamp, event: StateImported) -> None:
    scopes.entries.replace(stamp.seq, event.state)


@STATE.on(ForkDropped)
def _fork_dropped(scopes: Scopes, stamp: Stamp, event: ForkDropped) -> None:
    scopes.entries.clear()
