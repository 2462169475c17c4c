"""How a change of a board is decided: on what the board and the one beneath it say at that moment.

What a session's board saves goes from the board of the node beneath: a part is saved in one place. Where only some
fields of a part change, the others come along, each with the event that it came from among its sources, so that an
erasure of that one reaches them. One that comes between the look and the commit lets it be decided anew: what was
copied may be what it erased.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from refold.engine import batch as batches
from refold.engine.admission import erased_count
from refold.engine.pending import ANY, Pending
from refold.errors import StoreBusy, WrongVersion
from refold.event import Event, pack_json
from refold.fold import State
from refold.limits import REDO_COUNT_MAX
from refold.memory.boards.overlaying import Layers, Scope
from refold.memory.door import Door, Options
from refold.views.board import BOARD, FIELDS, MESSAGES, Board, BoardChanged, BoardMessageAppended, changing

Plan: TypeAlias = Callable[[Layers], Sequence[Event]]
"""What a verb makes of a board as it is: the events to come, none where nothing would change."""

_NOTHING: Final = Board()
_FIELDED: Final = ("session", "config")
"""Parts of which a verb changes some fields and leaves the rest."""


class Place(NamedTuple):
    """Where a handle stands: its door, whose board it is on, and the seq that it is frozen at."""

    door: Door
    scope: Scope
    at: int | None

    def layers(self) -> Layers:
        """Return the board and the one beneath it, both of one moment."""
        stream, door = self.scope.stream, self.door
        with door.engine.state_lock:
            own = door.read(stream, _copied, self.at)
            beneath = self.scope.beneath(own)
            return Layers(self.scope, own, _NOTHING if beneath is None else door.read(beneath, _copied, self.at))


class Change(NamedTuple):
    """A verb on its way: what it plans, which parts it saves, and what its caller asked."""

    plan: Plan
    parts: tuple[str, ...]
    asked: tuple[Any, ...]
    options: Options


def _copied(state: State) -> Board:
    return state.part(BOARD).copy()


def commit(place: Place, change: Change, *, is_single: bool = True) -> list[Event]:
    """Write what a change plans, as one commit; return its events. ``is_single``: it plans at most one."""
    door = place.door
    if place.at is not None:
        door.refuse_frozen(place.scope.stream, place.at)
    door.engine.check_writable()
    if batches.active(door.engine) is not None:
        return _in_batch(place, change)
    if is_single and not _moves(place.layers(), change.parts):
        return _alone(place, change)
    for _ in range(REDO_COUNT_MAX):
        written = _attempt(place, change)
        if written is not None:
            return written
    message = (
        f"{place.scope.stream} was written to in each of REDO_COUNT_MAX = {REDO_COUNT_MAX} attempts; let its writers "
        f"pause and call again"
    )
    raise StoreBusy(message)


def _moves(layers: Layers, parts: Sequence[str]) -> bool:
    """Return whether a board beneath has what is about to be saved."""
    return any(layers.beneath.has(part) for part in parts)


def _alone(place: Place, change: Change) -> list[Event]:
    """Let the engine decide a change of this board alone, in its turn."""

    def decide(state: State) -> Event | None:
        planned = change.plan(Layers(place.scope, state.part(BOARD), _NOTHING))
        assert len(planned) <= 1, planned
        return planned[0] if planned else None

    expected, request_id, _ = change.options
    noted = place.door.note(
        place.scope.stream, decide, at=place.at, asked=change.asked, expected=expected, request_id=request_id
    )
    return [] if noted is None else [noted[0]]


def _events(place: Place, change: Change) -> list[tuple[str, Event]]:
    """Return what a change comes to, each event with its stream."""
    layers, stream = place.layers(), place.scope.stream
    planned = change.plan(layers)
    if not planned:
        return []
    events = [(stream, event) for event in (*_brought(layers, change.parts, planned), *planned)]
    leaving = [field for part in change.parts for field in FIELDS[part] if layers.beneath.sets(field)]
    beneath = place.scope.beneath(layers.own)
    return [*events, (beneath, changing((), {}, leaving))] if leaving and beneath is not None else events


def _brought(layers: Layers, parts: Sequence[str], planned: Sequence[Event]) -> list[Event]:
    """Return what comes along from the board beneath: the rest of the parts of which something changes."""
    replaced = {field for event in planned if isinstance(event, BoardChanged) for field in event.fields}
    beneath, events = layers.beneath, list[Event]()
    for part in parts:
        if part in _FIELDED and not layers.own.has(part):
            values, seqs = beneath.entries.values, beneath.entries.seqs
            left = [field for field in FIELDS[part] if field in values and field not in replaced]
            events += [BoardChanged((seqs[field],), (field,), _map_of(field, values[field])) for field in left]
        elif part == MESSAGES and part not in replaced:
            events += _messages(layers, planned)
    return events


def _messages(layers: Layers, planned: Sequence[Event]) -> list[Event]:
    """Return the messages beneath: a board gets more of them, and none is lost because another one is added above."""
    own = {posted.id for posted in layers.own.messages}
    known = own | {event.id for event in planned if isinstance(event, BoardMessageAppended)}
    left = [posted for posted in layers.beneath.messages if posted.packed and (not posted.id or posted.id not in known)]
    return [BoardMessageAppended((posted.seq,), posted.id, posted.created_ns, posted.packed) for posted in left]


def _map_of(field: str, packed: bytes) -> bytes:
    """Return msgpack of a map of one field, whose value is packed already."""
    return b"\x81" + pack_json(field) + packed


def _attempt(place: Place, change: Change) -> list[Event] | None:
    """Decide on both boards as they are, and commit what was decided; ``None`` if one moved meanwhile."""
    door, stream = place.door, place.scope.stream
    expected, request_id, _ = change.options
    answered = None if request_id is None else door.answered(request_id, stream, change.asked)
    if answered is not None:
        return answered
    pending = Pending()
    with door.engine.state_lock:
        pending.erased_count = erased_count(door.engine)
        beneath = place.scope.beneath(door.read(stream, _copied, None))
        for name in (stream, *([] if beneath is None else [beneath])):
            pending.reads[door.key(name)] = door.version(name)
        events = _events(place, change)
    door.check_version(stream, expected)
    for name, event in events:
        pending.add(door.key(name), event, None)
    if request_id is not None:
        request = door.request(request_id, stream, change.asked)
        pending.requests[request.id_hash] = (request, range(len(pending.events)))
    elif not events:
        return []
    try:
        door.engine.commit_batch(pending)
    except WrongVersion:
        return None
    return pending.events


def _in_batch(place: Place, change: Change) -> list[Event]:
    """Add what a change comes to to the open batch."""
    door, stream = place.door, place.scope.stream
    expected, request_id, _ = change.options
    answered = None if request_id is None else door.answered(request_id, stream, change.asked)
    if answered is not None:
        return answered
    pending = _pending(door)
    begin = len(pending.events)
    events = _events(place, change)
    try:
        for number, (name, event) in enumerate(events):
            door.note(name, event, at=None, asked=change.asked, expected=ANY if number else expected)
        if not events:
            door.note(stream, _decline, at=None, asked=change.asked, expected=expected)
    except BaseException:
        pending.truncate(begin)
        raise
    if request_id is not None:
        request = door.request(request_id, stream, change.asked)
        pending.requests[request.id_hash] = (request, range(begin, len(pending.events)))
    return [event for _, event in events]


def _pending(door: Door) -> Pending:
    batch = batches.active(door.engine)
    assert batch is not None, "a change in a batch outside of one"
    return batch.pending


def _decline(_: State) -> Event | None:
    return None
