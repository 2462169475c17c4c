"""Noting: one verb's event added to a commit, decided on the state that the commit itself sees."""

from refold import checks, fold
from refold.engine.core import ANY, EXISTS, NO_STREAM, Engine
from refold.engine.pending import Decide, Pending, Request
from refold.errors import WrongVersion
from refold.event import Event, Restored


def note(
    engine: Engine,
    pending: Pending,
    name: str,
    make: Event | Decide,
    *,
    opening: Event | None = None,
    occurred_ns: int | None = None,
    expected: object = ANY,
    request: Request | None = None,
    is_batch: bool = False,
) -> int | None:
    """Add an event to a commit, after what opens its stream; return its place, ``None`` where nothing changes."""
    begin = len(pending.events)
    place: int | None = None
    try:
        if expected != ANY:
            check_version(engine, pending, name, expected, is_batch=is_batch)
        event = make if isinstance(make, Event) else make(_state_in(engine, pending, name, is_batch=is_batch))
        if event is not None:
            if opening is not None and name not in pending.opened:
                _open(engine, pending, name, opening, occurred_ns, is_batch=is_batch)
            place = _add(engine, pending, name, event, occurred_ns, is_batch=is_batch)
            if type(event) in fold.CLOSING:
                pending.opened.discard(name)
    except BaseException:
        pending.truncate(begin)
        raise
    if request is not None:
        pending.requests[request.id_hash] = (request, range(begin, len(pending.events)))
    return place


def _add(engine: Engine, pending: Pending, name: str, event: Event, occurred_ns: int | None, *, is_batch: bool) -> int:
    place = pending.add(name, event, occurred_ns)
    if is_batch:
        if fold.is_provisional(event):
            pending.provisional.append(place)
        if name in pending.overlays:
            _fold_overlay(engine, pending, name, place)
    return place


def _open(
    engine: Engine, pending: Pending, name: str, opening: Event, occurred_ns: int | None, *, is_batch: bool
) -> None:
    """Add the event that opens a stream, unless it is open; a fork that was dropped is opened anew."""
    if pending.places[name]:
        # This commit restored or dropped it: what is open now is what the commit itself sees.
        if not fold.is_open(state_in_batch(engine, pending, name)):
            _add(engine, pending, name, opening, occurred_ns, is_batch=is_batch)
    else:
        slot = engine.find(name)
        if slot is None or not fold.is_open(engine.live(slot)):
            pending.openings[name] = _add(engine, pending, name, opening, occurred_ns, is_batch=is_batch)
    pending.opened.add(name)


def check_version(engine: Engine, pending: Pending, name: str, expected: object, *, is_batch: bool) -> None:
    """Raise ``WrongVersion`` unless a stream, with what the commit has added to it, is at the expected version."""
    slot = engine.find(name)
    version = 0 if slot is None else slot.version
    if is_batch:
        pending.reads.setdefault(name, version)
    actual = version + len(pending.places[name])
    fits = {NO_STREAM: actual == 0, EXISTS: actual > 0}.get(expected, expected == actual)  # type: ignore[call-overload]
    if not fits:
        message = f"{name} is at version {actual}, not at {checks.shown(expected)}; read it again and decide anew"
        raise WrongVersion(message, expected=expected, actual=actual)


def version_in_batch(engine: Engine, pending: Pending, name: str) -> int:
    """Return a stream's version as an open batch sees it, and remember that the batch has read it."""
    slot = engine.find(name)
    version = pending.reads.setdefault(name, 0 if slot is None else slot.version)
    return version + len(pending.places[name])


def _state_in(engine: Engine, pending: Pending, name: str, *, is_batch: bool) -> fold.State:
    """Return a stream's state as this commit sees it: the live one, plus what the commit itself has added."""
    slot = engine.find(name)
    if not is_batch:
        return fold.empty(name.partition("/")[0]) if slot is None else engine.live(slot)
    return state_in_batch(engine, pending, name)


def state_in_batch(engine: Engine, pending: Pending, name: str) -> fold.State:
    """Return a stream's state as an open batch sees it, and remember that the batch has read it."""
    with engine.state_lock:
        slot = engine.find(name)
        pending.reads.setdefault(name, 0 if slot is None else slot.version)
        if name in pending.overlays:
            return pending.overlays[name]
        if not pending.places[name]:
            return fold.empty(name.partition("/")[0]) if slot is None else engine.live(slot)
        state = fold.empty(name.partition("/")[0]) if slot is None else engine.loader.state_at(slot, slot.seq)
    pending.overlays[name] = state
    for place in pending.places[name]:
        _fold_overlay(engine, pending, name, place)
    return pending.overlays[name]


def _fold_overlay(engine: Engine, pending: Pending, name: str, place: int) -> None:
    event = pending.events[place]
    if isinstance(event, Restored):
        pending.overlays[name] = engine.base_state(event)
    fold.fold(pending.overlays[name], pending.stamp(place), event)
