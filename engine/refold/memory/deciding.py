"""Decisions on a state: to set a value that is not there yet, to delete one that is, to drop what there is."""

from collections.abc import Callable

from refold.engine.pending import Decide
from refold.event import ConversationEnded, Event
from refold.fold import State
from refold.keyed import Keyed, V
from refold.views.scratch import SCRATCH, ScratchpadCleared
from refold.views.state import STATE, RoundEnded


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


def clearing(cited: tuple[int, ...]) -> Decide:
    """Return the decision to empty the scratchpad."""
    return lambda state: None if state.part(SCRATCH).is_empty else ScratchpadCleared(cited)


def ending_round(cited: tuple[int, ...]) -> Decide:
    """Return the decision to drop the temporary state."""
    return lambda state: RoundEnded(cited) if state.part(STATE).has_temp else None


def ending(cited: tuple[int, ...]) -> Decide:
    """Return the decision to end a conversation: nothing where there is nothing to drop."""

    def decide(state: State) -> Event | None:
        idle = state.part(SCRATCH).is_empty and not state.part(STATE).has_temp
        return None if idle else ConversationEnded(cited)

    return decide
