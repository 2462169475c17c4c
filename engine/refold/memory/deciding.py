"""The two decisions that every keyed memory shares: to set a value that is not there yet, to delete one that is."""

from collections.abc import Callable

from refold.engine.pending import Decide
from refold.event import Event
from refold.fold import State
from refold.keyed import Keyed, V


def setting(entries: Callable[[State], Keyed[V]], key: str, value: V, event: Callable[[int, int], Event]) -> Decide:
    """Return the decision to set a key; ``event(prior, place)`` is made only if the value is another one."""

    def decide(state: State) -> Event | None:
        held = entries(state)
        return None if held.values.get(key) == value else event(*held.prior(key))

    return decide


def deleting(entries: Callable[[State], Keyed[V]], key: str, event: Callable[[int, int], Event]) -> Decide:
    """Return the decision to delete a key; ``event(prior, place)`` is made only if the key is there."""

    def decide(state: State) -> Event | None:
        prior, place = entries(state).prior(key)
        return event(prior, place) if prior else None

    return decide
