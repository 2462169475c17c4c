"""Who is told when a board shows something else: on top of the log's subscriptions, durable events alone."""

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from refold import checks
from refold.engine import times
from refold.engine.loader import Recorded
from refold.engine.subscriptions import Subscription
from refold.errors import ReadOnly
from refold.event import Erased
from refold.memory.boards.overlaying import SECTIONS, Layers
from refold.memory.boards.writing import Place


def everything(layers: Layers) -> Any:
    """Return all that a board shows."""
    return {part: layers.shown(part) for part in (*SECTIONS, "messages_meta")}


def subscribed(
    place: Place, after: int | None, seen: Callable[[Layers], Any], tell: Callable[[Place, Any], Any]
) -> Subscription:
    """Return a subscription that tells of each state of a board in which what is ``seen`` of it is another.

    ``tell`` gets the place of the board, frozen at the event that changed it, and what is seen of it there.
    """
    if place.at is not None:
        message = f"{place.scope.stream} is frozen at seq {place.at}; subscribe to the live one"
        raise ReadOnly(message)
    engine = place.door.engine
    begin = engine.current_head() if after is None else checks.count(after, "after")
    listener = _Listener(place, begin, seen, tell)
    return engine.subscribe(listener.hear, begin, place.door.branch)


def check_listener(listener: object) -> None:
    """Raise ``InvalidInput`` for what cannot be called with a board."""
    if not callable(listener) or iscoroutinefunction(listener):
        checks.invalid(f"listener must be a plain function, not {type(listener).__name__} ({checks.shown(listener)})")


class _Listener:
    """One who listens to a board, and what was last seen of it."""

    def __init__(
        self, place: Place, begin: int, seen: Callable[[Layers], Any], tell: Callable[[Place, Any], Any]
    ) -> None:
        self._place = place
        self._seen = seen
        self._tell = tell
        self._streams: tuple[str | None, ...] = ()
        """The board and the one beneath it: no other one changes what is seen, nor which one lies beneath."""
        self._last = self._at(begin)[1]
        self._looked_at = 0
        """The seq up to which the board was looked at: the end of a commit, none of which is seen by half."""

    def hear(self, recorded: Recorded) -> None:
        """Look at the board as it is behind an event that may have changed it, and tell what is new."""
        is_of_ours = recorded.stamp.stream in self._streams or isinstance(recorded.event, Erased)
        if not is_of_ours or recorded.stamp.seq <= self._looked_at:
            return
        self._looked_at = times.end_of_commit(self._place.door.engine.log, recorded.stamp.seq)
        place, seen = self._at(self._looked_at)
        if seen != self._last:
            self._last = seen
            self._tell(place, seen)

    def _at(self, seq: int) -> tuple[Place, Any]:
        place = self._place._replace(at=seq)
        layers = place.layers()
        self._streams = place.scope.stream, place.scope.beneath(layers.own)
        return place, self._seen(layers)
