"""Snapshots, restores, forks and replays of one conversation: how each is decided and what each returns."""

from collections.abc import Callable
from typing import Any

import msgspec

from refold import checks, fold
from refold.engine import batch as batches
from refold.engine.branches import branches_at
from refold.engine.core import Engine
from refold.engine.slots import Slot
from refold.engine.streams import STORE_STREAM
from refold.errors import InvalidInput, LimitExceeded, NotFound, ReadOnly
from refold.event import ConversationOpened, Event, ForkDropped, Forked, Restored, SnapshotNamed
from refold.fold import State
from refold.limits import BASE_DEPTH_MAX, NAME_BYTES_MAX
from refold.memory import composing
from refold.memory.door import Door, Options
from refold.memory.snapshot import Carried, Snapshot, exported
from refold.views.session import SESSION
from refold.views.settings import SETTINGS, Named


def snapshot(door: Door, stream: str, name: str | None, at: int | None, options: Options) -> Snapshot:
    """Return a pointer to a stream's state; with a name, record it, once and for ever."""
    engine = door.engine
    batches.refuse(engine, "a snapshot")
    if name is None:
        refuse_options(options)
        return Snapshot(stream, engine.last_seq(door.key(stream), at), None, engine, door.branch)
    name = checked_name(name)
    if at is not None:
        message = f"{stream} is frozen at seq {at}; name a snapshot of the live handle, or take an unnamed one here"
        raise ReadOnly(message)
    asked = ("snapshot", stream, name)
    decide = _naming(door, stream, name, options)
    noted = door.note(STORE_STREAM, decide, at=None, asked=asked, request_id=options.request_id)
    if noted is not None and isinstance(noted[0], SnapshotNamed):
        return Snapshot(stream, noted[0].base_seq, name, engine, door.branch)
    return named(door, stream, name)


def refuse_options(options: Options) -> None:
    """Refuse the options of a mutation for a snapshot without a name."""
    if options != Options():
        checks.invalid("an unnamed snapshot writes nothing, so it takes no options; give it a name, or leave them out")


def checked_name(name: object) -> str:
    """Return the name of a snapshot: a text that is not empty."""
    checked = checks.text(name, "name", NAME_BYTES_MAX, "NAME_BYTES_MAX")
    if not checked:
        checks.invalid("the snapshot's name is empty; give it at least one character, or None for an unnamed one")
    return checked


def _naming(door: Door, stream: str, name: str, options: Options) -> Callable[[State], Event | None]:
    """Return the decision to name the state in which a stream is when the decision is made."""
    sources = door.sources(options.sources)

    def decide(state: State) -> Event | None:
        door.check_version(stream, options.expected)
        slot = door.engine.slot(door.key(stream))
        if slot is None:
            message = f"{stream} has no events yet, so there is no state to name; append something first"
            raise NotFound(message)
        known = _kept(door, state, slot, name)
        if known is None:
            return SnapshotNamed(sources, *pointer(door, stream, None), name)
        if known.seq != slot.seq:
            message = f"snapshot {name!r} of {slot.name} already stands at seq {known.seq}; give another name"
            raise InvalidInput(message)
        return None

    return decide


def _kept(door: Door, state: State, slot: Slot | None, name: str) -> Named | None:
    """Return what was named of a stream, in its own branch or before that was forked, ``None`` if nothing was."""
    snapshots = state.part(SETTINGS).snapshots
    numbers = () if slot is None else door.engine.streams.numbers(slot)
    return next((snapshots[number, name] for number in numbers if (number, name) in snapshots), None)


def pointer(door: Door, stream: str, at: int | None) -> tuple[int, int]:
    """Return number and seq of a stream's last event at a seq, which may stand in an elder branch; 0 and 0 for none."""
    engine = door.engine
    with engine.state_lock:
        slot = engine.slot(door.key(stream))
        if slot is None:
            return 0, 0
        place = engine.streams.place(slot, slot.seq if at is None else at)
        return place if place[1] else (0, 0)


def version(door: Door, stream: str, at: int | None) -> int:
    """Return the version of a stream, live or at a seq; 0 where it has no event."""
    if at is None:
        return door.version(stream)
    last = door.engine.last_seq(door.key(stream), at)
    return door.engine.loader.recorded([last])[0].stamp.version if last else 0


def named(door: Door, stream: str, name: str) -> Snapshot:
    """Return the snapshot of a stream that was kept under a name."""
    slot = door.engine.slot(door.key(stream))
    found = door.read(STORE_STREAM, lambda state: _kept(door, state, slot, name), None)
    if found is None:
        message = f"{stream} has no snapshot named {checks.shown(name)}; memory.snapshots() lists those that exist"
        raise NotFound(message)
    return Snapshot(stream, found.seq, name, door.engine, door.branch)


def restoration(
    door: Door, stream: str, opening: ConversationOpened, snapshot: object, sources: tuple[int, ...]
) -> Callable[[State], Event | None]:
    """Return the decision to go on from a snapshot, given as such, as a name, or carried over from another store."""
    if isinstance(snapshot, str):
        snapshot = named(door, stream, snapshot)
    if not isinstance(snapshot, Snapshot):
        checks.invalid(f"restore takes a Snapshot or a name, not {type(snapshot).__name__} ({checks.shown(snapshot)})")
    if not snapshot.stream:
        checks.invalid("the snapshot is of a whole memory; give it to memory.restore, or take chat.at(seq).snapshot()")
    if not snapshot.stream.startswith("conversation/"):
        checks.invalid(f"{snapshot.stream} is no conversation; restore a conversation's snapshot")
    branch = _branch_here(door, snapshot)
    if branch is None:
        return _importing(snapshot, opening, sources)
    base = pointer(door.to(branch), snapshot.stream, snapshot.seq)

    def decide(state: State) -> Event | None:
        project = composing.project_of(state, opening)
        event = Restored(sources, *base, state.part(SESSION).depth, project)
        target = door.engine.look_at_base(event, state.kind.name)
        return None if _same_state(state, target) else event

    return decide


def asked_for(door: Door, snapshot: object) -> list[Any]:
    """Return what tells one restored snapshot from another: its name, its place, or what it carries."""
    if not isinstance(snapshot, Snapshot):
        return [snapshot if isinstance(snapshot, str) else repr(snapshot)]
    place = [snapshot.stream, snapshot.seq, *([snapshot.branch] if snapshot.branch else [])]
    if snapshot.origin is None or snapshot.origin is door.engine or is_of_earlier_handle(door, snapshot):
        return place
    return [*place, door.engine.keyed_hash(snapshot.to_bytes())]


def _same_state(state: State, target: State) -> bool:
    """Return whether two states differ in nothing but the project, which is identity and does not travel."""
    mine, other = dict(fold.digests(state)), dict(fold.digests(target))
    return all(mine.get(view) == other.get(view) for view in (mine.keys() | other.keys()) - {SESSION.name})


def _branch_here(door: Door, snapshot: Snapshot) -> int | None:
    """Return the branch of this store in which a snapshot's state stands, ``None`` if it must be imported."""
    if snapshot.origin is door.engine or is_of_earlier_handle(door, snapshot):
        return snapshot.branch
    carried = _carried(snapshot)
    if carried.store_id != door.engine.store_id or carried.seq > door.engine.head:
        return None
    here = door.read_written(carried.stream, exported, carried.seq)
    # A copied store has the same id and may have gone on differently: only the same state is the same place.
    return door.branch if here == carried.state else None


def is_of_earlier_handle(door: Door, snapshot: Snapshot) -> bool:
    """Return whether a snapshot was taken through a handle on this very store that was closed since."""
    origin = snapshot.origin
    is_same = isinstance(origin, Engine) and origin.is_closed and origin.store_id == door.engine.store_id
    is_here = snapshot.seq <= door.engine.head and snapshot.branch <= len(branches_at(door.engine, None))
    return is_same and is_here


def _carried(snapshot: Snapshot) -> Carried:
    if isinstance(snapshot.origin, Carried):
        return snapshot.origin
    if snapshot.origin is None:
        checks.invalid("this Snapshot was made by hand; take one with chat.snapshot() or Snapshot.from_bytes()")
    return _carried(Snapshot.from_bytes(snapshot.to_bytes()))


def _importing(
    snapshot: Snapshot, opening: ConversationOpened, sources: tuple[int, ...]
) -> Callable[[State], Event | None]:
    carried = _carried(snapshot).state

    def decide(state: State) -> Event | None:
        # The project is identity and stays the conversation's own: it makes no state another one.
        here = msgspec.structs.replace(carried, project=composing.project_of(state, opening))
        unchanged = msgspec.structs.replace(exported(state), project=here.project) == here
        return None if unchanged else msgspec.structs.replace(here, sources=sources)

    return decide


def fork(door: Door, places: tuple[str, str], opening: ConversationOpened, seq: int | None, options: Options) -> None:
    """Begin a conversation, the second of the streams, from a state of the first."""
    parent, stream = places
    event = forking(door, parent, opening, stream, seq, door.sources(options.sources))
    asked = ("fork", parent, seq)
    door.note(stream, event, at=None, asked=asked, expected=options.expected, request_id=options.request_id)


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
        if engine.version(door.key(new_stream)):
            message = f"{new_stream} already exists; fork to an id that is new"
            raise InvalidInput(message)
        base = pointer(door, stream, seq)
        # The project is what the conversation is, not what it was at a seq: even a fork at 0 is in it.
        project = door.read_written(stream, lambda state: composing.project_of(state, opening))
        depth = _depth_at(door, stream, base[1]) if base[1] else 0
        if depth >= BASE_DEPTH_MAX:
            message = f"{stream} is already {depth} forks deep, BASE_DEPTH_MAX = {BASE_DEPTH_MAX}; fork an ancestor"
            raise LimitExceeded(message)
        return Forked(sources, *base, depth + 1, project)

    return decide


def _depth_at(door: Door, stream: str, seq: int) -> int:
    """Return how deep a conversation was forked at a seq, without building its state there if that can be.

    The first event says it once and for all, but for a fork that was dropped: what comes after that is no fork.
    """
    depth: int = door.read_written(stream, lambda state: state.part(SESSION).depth)
    if depth:
        return depth
    first = next(door.engine.events(door.key(stream), 0))
    if not isinstance(first.event, Forked):
        return 0
    return door.read_written(stream, lambda state: state.part(SESSION).depth, seq)


def dropping(stream: str, sources: tuple[int, ...]) -> Callable[[State], Event | None]:
    """Return the decision to end a fork for good."""

    def decide(state: State) -> Event | None:
        session = state.part(SESSION)
        if not session.depth:
            message = f"{stream} is not a fork, so it cannot be dropped; clear it, or erase it"
            raise InvalidInput(message)
        return ForkDropped(sources)

    return decide
