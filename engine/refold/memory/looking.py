"""Looking at a project's rows: taken under the state lock in microseconds, searched without any lock."""

from collections.abc import Sequence

from refold.engine import batch as batches
from refold.engine.similarity import Missing, Sight, Wanted
from refold.event import Event
from refold.fold import State
from refold.limits import FILLS_COUNT_MAX
from refold.memory.door import Door
from refold.memory.remembering import Place
from refold.views.facts import FACTS


def pending_events(door: Door) -> Sequence[Event]:
    """Return the events of this context's open batch."""
    batch = batches.active(door.engine)
    return () if batch is None else batch.pending.events


_PLAIN = Wanted()


def look(place: Place, wanted: Wanted = _PLAIN) -> Sight | None:
    """Return what a search of a project looks at, ``None`` where there are no memories.

    Rows that are not there are filled first; nobody waits for that, unless others write so much meanwhile that what was
    filled is old at once.
    """
    return place.door.engine.kept.whole(lambda: _look(place, wanted))


def _look(place: Place, wanted: Wanted) -> Sight | None:
    engine = place.door.engine
    for _ in range(FILLS_COUNT_MAX):
        found = _glance(place, wanted)
        if not isinstance(found, Missing):
            if found is not None:
                engine.similarity.touch(found.stock)
            return found
        engine.similarity.fill(found)
    with engine.state_lock:
        found = _glance(place, wanted)
        while isinstance(found, Missing):
            engine.similarity.fill(found)
            found = _glance(place, wanted)
        return found


def _glance(place: Place, wanted: Wanted) -> Sight | Missing | None:
    door = place.door

    def query(state: State) -> Sight | Missing | None:
        key, facts = door.key(place.stream), state.part(FACTS)
        return door.engine.similarity.glance(key, facts, place.at, pending_events(door), wanted)

    return door.read(place.stream, query, place.at)
