"""Decisions on one key of a stream: they look at that key only, so they do not conflict with writers of other keys."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from refold.event import Event, View
from refold.fold import State
from refold.views.base import KeyedValues, V

E = TypeVar("E", bound=Event)


class KeyMap(Struct, Generic[V], frozen=True):
    """A map from key to value in the state of a stream: the view that holds it, and its name there."""

    view: View[Any]
    name: str = "entries"

    def __call__(self, state: State) -> KeyedValues[V]:
        """Return the map of a state."""
        keyed: KeyedValues[V] = getattr(state.part(self.view), self.name)
        return keyed


class KeyDecision(Struct, frozen=True):
    """A decision that looks at one key only; a blind one promises its caller nothing about the previous value."""

    keys: KeyMap[Any]
    key: str
    make: Callable[[KeyedValues[Any]], Event | None]
    is_blind: bool = False

    def __call__(self, state: State) -> Event | None:
        """Return the event to append, or ``None`` if nothing would change."""
        return self.make(self.keys(state))


def decide_set(keys: KeyMap[V], key: str, value: V, event: Callable[[int, int], Event]) -> KeyDecision:
    """Return the decision to set a key; it calls ``event(prior, place)`` only if the value changes."""

    def make(keyed: KeyedValues[V]) -> Event | None:
        return None if keyed.values.get(key) == value else event(*keyed.prior(key))

    return KeyDecision(keys, key, make, is_blind=True)


def decide_delete(keys: KeyMap[V], key: str, event: Callable[[int, int], Event]) -> KeyDecision:
    """Return the decision to delete a key; it calls ``event(prior, place)`` only if the key exists."""

    def make(keyed: KeyedValues[V]) -> Event | None:
        prior, place = keyed.prior(key)
        return event(prior, place) if prior else None

    return KeyDecision(keys, key, make)


def with_prior(event: E, prior: int, place: int) -> E:
    """Return a copy of an event that points at another value as the one that it replaces."""
    fields = {"prior": prior, "place": place}
    return msgspec.structs.replace(event, **{name: fields[name] for name in fields if hasattr(event, name)})
