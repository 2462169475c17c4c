"""Noting: one verb's event added to an open batch, decided on the state that the batch itself sees."""

from refold import fold
from refold.engine.admission import Verb, check_version, erased_count
from refold.engine.core import Engine
from refold.engine.keys import kind_of
from refold.engine.pending import ANY, Pending
from refold.engine.slots import Slot
from refold.event import Event, Restored


def note(engine: Engine, pending: Pending, verb: Verb) -> int | None:
    """Add an event to a batch, after what opens its stream; return its place, ``None`` where nothing changes."""
    begin = len(pending.events)
    name = verb.name
    place: int | None = None
    try:
        if verb.expected != ANY:
            _check_version(engine, pending, name, verb.expected)
        event = verb.make if isinstance(verb.make, Event) else verb.make(state_in_batch(engine, pending, name))
        if event is not None:
            if verb.opening is not None and name not in pending.opened:
                _open(engine, pending, name, verb.opening, verb.occurred_ns)
            place = _add(engine, pending, name, event, verb.occurred_ns)
            if type(event) in fold.CLOSING:
                pending.opened.discard(name)
    except Exception:
        pending.truncate(begin)
        raise
    except BaseException:
        pending.is_torn = True
        raise
    if verb.request is not None:
        pending.requests[verb.request.id_hash] = (verb.request, range(begin, len(pending.events)))
    return place


def _add(engine: Engine, pending: Pending, name: str, event: Event, occurred_ns: int | None) -> int:
    place = pending.add(name, event, occurred_ns)
    if fold.is_provisional(event):
        pending.provisional.append(place)
    if name in pending.overlays:
        pending.overlays[name] = _folded(engine, pending, name, place, pending.overlays[name])
    return place


def _open(engine: Engine, pending: Pending, name: str, opening: Event, occurred_ns: int | None) -> None:
    """Add the event that opens a stream, unless it is open; a fork that was dropped is opened anew."""
    if pending.places[name]:
        # This batch restored or dropped it: what is open now is what the batch itself sees.
        if not fold.is_open(state_in_batch(engine, pending, name)):
            _add(engine, pending, name, opening, occurred_ns)
    else:
        slot = engine.find(name)
        if slot is None or not fold.is_open(engine.live(slot)):
            pending.openings[name] = _add(engine, pending, name, opening, occurred_ns)
    pending.opened.add(name)


def _check_version(engine: Engine, pending: Pending, name: str, expected: object) -> None:
    """Raise ``WrongVersion`` unless a stream, with what the batch has added to it, is at the expected version."""
    slot = _looked_at(engine, pending, name)
    check_version(name, slot, len(pending.places[name]), expected)


def _looked_at(engine: Engine, pending: Pending, name: str) -> Slot | None:
    """Return the slot of a stream, and remember that the batch has read it as it is now."""
    engine.notice()
    slot = engine.find(name)
    pending.reads.setdefault(name, 0 if slot is None else slot.version)
    if pending.erased_count is None:
        pending.erased_count = erased_count(engine)
    return slot


def version_in_batch(engine: Engine, pending: Pending, name: str) -> int:
    """Return a stream's version as an open batch sees it, and remember that the batch has read it."""
    _looked_at(engine, pending, name)
    return pending.reads[name] + len(pending.places[name])


def state_in_batch(engine: Engine, pending: Pending, name: str) -> fold.State:
    """Return a stream's state as an open batch sees it, and remember that the batch has read it."""
    with engine.state_lock:
        slot = _looked_at(engine, pending, name)
        if name in pending.overlays:
            return pending.overlays[name]
        if not pending.places[name]:
            return fold.empty(kind_of(name)) if slot is None else engine.live(slot)
        # A copy where there can be one: a large project is built from its rows in seconds, and copied in milliseconds.
        state = fold.empty(kind_of(name)) if slot is None else _built(engine, slot)
    for place in pending.places[name]:
        state = _folded(engine, pending, name, place, state)
    pending.overlays[name] = state
    return state


def _built(engine: Engine, slot: Slot) -> fold.State:
    return fold.copied(engine.live(slot)) or engine.loader.state_at(slot, slot.seq)


def _folded(engine: Engine, pending: Pending, name: str, place: int, state: fold.State) -> fold.State:
    """Return a state after one more event of a batch."""
    event = pending.events[place]
    if isinstance(event, Restored):
        state = engine.base_state(event, kind_of(name))
    fold.fold(state, pending.stamp(place), event)
    return state
