"""Snapshots, restores, forks and replays of one conversation: how each is decided and what each returns."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from refold import checks, fold
from refold.engine import batch as batches
from refold.engine.core import Engine
from refold.engine.pending import ANY
from refold.engine.streams import STORE_STREAM
from refold.errors import InvalidInput, LimitExceeded, NotFound, ReadOnly
from refold.event import ConversationOpened, Event, ForkDropped, Forked, Restored, SnapshotNamed
from refold.fold import State
from refold.limits import BASE_DEPTH_MAX, NAME_BYTES_MAX
from refold.memory import composing
from refold.memory.door import Door
from refold.memory.snapshot import Carried, Snapshot, exported
from refold.views.session import SESSION
from refold.views.settings import SETTINGS, Named
from refold.views.window import WINDOW


class Options(NamedTuple):
    """What every mutation takes beside its own arguments."""

    expected: object = ANY
    request_id: str | None = None
    sources: Sequence[Any] = ()


def snapshot(door: Door, stream: str, name: str | None, at: int | None, options: Options) -> Snapshot:
    """Return a pointer to a stream's state; with a name, record it, once and for ever."""
    engine = door.engine
    batches.refuse(engine, "a snapshot")
    if name is None:
        if options != Options():
            checks.invalid(
                "an unnamed snapshot writes nothing, so it takes no options; give it a name, or leave them out"
            )
        return Snapshot(stream, engine.last_seq(stream, at), None, engine)
    name = checks.text(name, "name", NAME_BYTES_MAX, "NAME_BYTES_MAX")
    if not name:
        checks.invalid("the snapshot's name is empty; give it at least one character, or None for an unnamed one")
    if at is not None:
        message = f"{stream} is frozen at seq {at}; name a snapshot of the live handle, or take an unnamed one here"
        raise ReadOnly(message)
    asked = ("snapshot", stream, name)
    decide = _naming(door, stream, name, options)
    noted = door.note(STORE_STREAM, decide, at=None, asked=asked, request_id=options.request_id)
    if noted is not None and isinstance(noted[0], SnapshotNamed):
        return Snapshot(stream, noted[0].base_seq, name, engine)
    return named(door, stream, name)


def _naming(door: Door, stream: str, name: str, options: Options) -> Callable[[State], Event | None]:
    """Return the decision to name the state in which a stream is when the decision is made."""
    sources = door.sources(options.sources)

    def decide(state: State) -> Event | None:
        door.check_version(stream, options.expected)
        slot = door.engine.slot(stream)
        if slot is None:
            message = f"{stream} has no events yet, so there is no state to name; append something first"
            raise NotFound(message)
        known = state.part(SETTINGS).snapshots.get((slot.number, name))
        if known is None:
            return SnapshotNamed(sources, slot.number, slot.seq, name)
        if known.seq != slot.seq:
            message = f"snapshot {name!r} of {slot.name} already stands at seq {known.seq}; give another name"
            raise InvalidInput(message)
        return None

    return decide


def version(door: Door, stream: str, at: int | None) -> int:
    """Return the version of a stream, live or at a seq; 0 where it has no event."""
    if at is None:
        return door.version(stream)
    last = door.engine.last_seq(stream, at)
    return door.engine.loader.recorded([last])[0].stamp.version if last else 0


def named(door: Door, stream: str, name: str) -> Snapshot:
    """Return the snapshot of a stream that was kept under a name."""
    slot = door.engine.slot(stream)
    number = 0 if slot is None else slot.number
    found: Named | None = door.read(
        STORE_STREAM, lambda state: state.part(SETTINGS).snapshots.get((number, name)), None
    )
    if found is None:
        message = f"{stream} has no snapshot named {checks.shown(name)}; memory.snapshots() lists those that exist"
        raise NotFound(message)
    return Snapshot(stream, found.seq, name, door.engine)


def restoration(
    door: Door, stream: str, opening: ConversationOpened, snapshot: object, sources: tuple[int, ...]
) -> Callable[[State], Event | None]:
    """Return the decision to go on from a snapshot, given as such, as a name, or carried over from another store."""
    if isinstance(snapshot, str):
        snapshot = named(door, stream, snapshot)
    if not isinstance(snapshot, Snapshot):
        checks.invalid(f"restore takes a Snapshot or a name, not {type(snapshot).__name__} ({checks.shown(snapshot)})")
    pointer = _local(door, snapshot)
    if pointer is None:
        return _importing(snapshot, opening, sources)
    if not pointer.stream.startswith("conversation/"):
        checks.invalid(f"{pointer.stream} is no conversation; restore a conversation's snapshot")
    number = 0
    if pointer.seq:
        slot = door.engine.slot(pointer.stream)
        assert slot is not None, f"{pointer.stream} has a state at seq {pointer.seq} and no number"
        number = slot.number

    def decide(state: State) -> Event | None:
        project = composing.project_of(state, opening)
        event = Restored(sources, number, pointer.seq, state.part(SESSION).depth, project)
        target = door.engine.look_at_base(event)
        return None if _same_state(state, target) else event

    return decide


def asked_for(door: Door, snapshot: object) -> list[Any]:
    """Return what tells one restored snapshot from another: its name, its place, or what it carries."""
    if not isinstance(snapshot, Snapshot):
        return [snapshot if isinstance(snapshot, str) else repr(snapshot)]
    place = [snapshot.stream, snapshot.seq]
    if snapshot.origin is None or snapshot.origin is door.engine or _is_of_earlier_handle(door, snapshot):
        return place
    return [*place, door.engine.keyed_hash(snapshot.to_bytes())]


def _same_state(state: State, target: State) -> bool:
    """Return whether two states differ in nothing but the project, which is identity and does not travel."""
    views = [WINDOW.name, "scratch", "state"]
    mine, other = dict(fold.digests(state)), dict(fold.digests(target))
    return all(mine.get(view) == other.get(view) for view in views)


def _local(door: Door, snapshot: Snapshot) -> Snapshot | None:
    """Return the snapshot as a pointer into this store, ``None`` if its state must be imported."""
    if snapshot.origin is door.engine or _is_of_earlier_handle(door, snapshot):
        return snapshot
    carried = _carried(snapshot)
    if carried.store_id != door.engine.store_id or carried.seq > door.engine.head:
        return None
    here = door.engine.read(carried.stream, exported, carried.seq)
    # A copied store has the same id and may have gone on differently: only the same state is the same place.
    return snapshot if here == carried.state else None


def _is_of_earlier_handle(door: Door, snapshot: Snapshot) -> bool:
    """Return whether a snapshot was taken through a handle on this very store that was closed since."""
    origin = snapshot.origin
    is_same = isinstance(origin, Engine) and origin.is_closed and origin.store_id == door.engine.store_id
    return is_same and snapshot.seq <= door.engine.head


def _carried(snapshot: Snapshot) -> Carried:
    if isinstance(snapshot.origin, Carried):
        return snapshot.origin
    if snapshot.origin is None:
        checks.invalid("this Snapshot was made by hand; take one with chat.snapshot() or Snapshot.from_bytes()")
    return _carried(Snapshot.from_bytes(snapshot.to_bytes()))


def _importing(
    snapshot: Snapshot, opening: ConversationOpened, sources: tuple[int, ...]
) -> Callable[[State], Event | None]:
    state_bytes = _carried(snapshot).state

    def decide(state: State) -> Event | None:
        project = composing.project_of(state, opening)
        unchanged = exported(state) == msgspec.structs.replace(state_bytes, project=project)
        return None if unchanged else msgspec.structs.replace(state_bytes, project=project, sources=sources)

    return decide


def forking(  # noqa: PLR0917 - what a fork is made of, each once
    door: Door,
    stream: str,
    opening: ConversationOpened,
    new_stream: str,
    seq: int | None,
    sources: tuple[int, ...],
) -> Callable[[State], Event | None]:
    """Return the decision to begin a stream from another one's state."""
    engine = door.engine
    batches.refuse(engine, "a fork")

    def decide(_: State) -> Event | None:
        if engine.version(new_stream):
            message = f"{new_stream} already exists; fork to an id that is new"
            raise InvalidInput(message)
        base_seq = engine.last_seq(stream, seq)
        slot = engine.slot(stream)
        number = slot.number if slot and base_seq else 0
        # The project is what the conversation is, not what it was at a seq: even a fork at 0 is in it.
        project = engine.read(stream, lambda state: composing.project_of(state, opening))
        depth = _depth_at(engine, stream, base_seq) if base_seq else 0
        if depth >= BASE_DEPTH_MAX:
            message = f"{stream} is already {depth} forks deep, BASE_DEPTH_MAX = {BASE_DEPTH_MAX}; fork an ancestor"
            raise LimitExceeded(message)
        return Forked(sources, number, base_seq, depth + 1, project)

    return decide


def _depth_at(engine: Engine, stream: str, seq: int) -> int:
    """Return how deep a conversation was forked at a seq, without building its state there if that can be.

    The first event says it once and for all, but for a fork that was dropped: what comes after that is no fork.
    """
    depth: int = engine.read(stream, lambda state: state.part(SESSION).depth)
    if depth:
        return depth
    first = next(engine.events(stream, 0))
    if not isinstance(first.event, Forked):
        return 0
    return engine.read(stream, lambda state: state.part(SESSION).depth, seq)


def dropping(stream: str, sources: tuple[int, ...]) -> Callable[[State], Event | None]:
    """Return the decision to end a fork for good."""

    def decide(state: State) -> Event | None:
        session = state.part(SESSION)
        if not session.depth:
            message = f"{stream} is not a fork, so it cannot be dropped; clear it, or erase it"
            raise InvalidInput(message)
        return ForkDropped(sources)

    return decide
