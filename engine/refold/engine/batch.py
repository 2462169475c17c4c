"""Batches: the mutations of one context, collected into one commit.

It belongs to a context (a task, a thread of control), not to a thread; while user code runs it holds no lock and no
transaction. Nobody else sees anything of it before it is written.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast
from weakref import ref

from refold import fold
from refold.engine.engine import Engine
from refold.engine.streams import Slot, kind_of
from refold.engine.transaction import ANY, Pending, Verb, check_version, erased_count
from refold.errors import InvalidInput
from refold.event import Event, Restored

_ACTIVE: Final[ContextVar[tuple["Batch", ...]]] = ContextVar("refold_batches", default=())
_Method = TypeVar("_Method", bound=Callable[..., Any])


class _Exit:
    """The ``__exit__`` of a batch, which gives each ``with`` statement an object of its own to hold and to call."""

    def __init__(self, method: Callable[..., None]) -> None:
        self._method = method

    def __get__(self, batch: "Batch | None", _owner: type) -> Callable[..., None]:
        if batch is None:
            return self._method
        held = partial(self._method, batch)
        batch.held = ref(held)
        return held


def _noted(method: _Method) -> _Method:
    return cast("_Method", _Exit(method))


class Batch:
    """An open batch of one engine; leaving the block commits it, an exception discards it.

    A signal may end the block and yet keep ``__exit__`` from running its first line. So a batch does not only wait to
    be left: it is open as long as the ``with`` statement holds its exit, which it lets go of in any case.
    """

    __slots__ = ("_is_over", "_was_entered", "engine", "held", "pending")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.pending = Pending()
        self._was_entered = self._is_over = False
        self.held: ref[Callable[..., None]] | None = None
        """What the ``with`` statement holds, which is held by nothing else; ``None`` for who calls the methods."""

    def __enter__(self) -> Self:
        """Collect the mutations of this context from here on."""
        self.engine.reader.check_writable()
        if self._was_entered:
            raise InvalidInput("this batch was used before; take a new one with memory.batch()")
        if active(self.engine) is not None:
            raise InvalidInput("a batch is already open in this context; commit it before opening another")
        self.begin()
        return self

    @_noted
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Write everything as one commit, or nothing if the block raised."""
        self.leave()
        if kind is None:
            self.engine.commit_batch(self.pending)

    def begin(self) -> None:
        """Begin to collect."""
        _ACTIVE.set((*_ACTIVE.get(), self))
        self._was_entered = True  # Last: where this is cut off, the batch is not open.

    def leave(self) -> None:
        """Stop collecting; what becomes of the events is the caller's."""
        self._is_over = True
        _ACTIVE.set(tuple(batch for batch in _ACTIVE.get() if batch.is_open))

    @property
    def is_open(self) -> bool:
        """Whether the block is running; a task that was started inside it may outlive it."""
        return self._was_entered and not self._is_over and (self.held is None or self.held() is not None)

    def __len__(self) -> int:
        """Return the number of events collected so far."""
        return len(self.pending.events)


def active(engine: Engine) -> Batch | None:
    """Return the batch that this context has open on an engine."""
    for batch in _ACTIVE.get():
        if batch.engine is engine and batch.is_open:
            return batch
    return None


@contextmanager
def collecting(batch: Batch) -> Generator[None]:
    """Collect what this context does into a batch that somebody else will commit."""
    batch.begin()
    try:
        yield
    finally:
        batch.leave()


def refuse(engine: Engine, what: str) -> None:
    """Raise ``InvalidInput`` for what cannot be part of a batch."""
    if active(engine) is not None:
        raise InvalidInput(
            f"{what} inside a batch is refused, because its events have no seq yet; do it after the block"
        )


# Noting: one verb's event added to an open batch, decided on the state that the batch itself sees.


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
        slot = engine.reader.find(name)
        if slot is None or not fold.is_open(engine.reader.live(slot)):
            pending.openings[name] = _add(engine, pending, name, opening, occurred_ns)
    pending.opened.add(name)


def _check_version(engine: Engine, pending: Pending, name: str, expected: object) -> None:
    """Raise ``WrongVersion`` unless a stream, with what the batch has added to it, is at the expected version."""
    slot = _looked_at(engine, pending, name)
    check_version(name, slot, len(pending.places[name]), expected)


def _looked_at(engine: Engine, pending: Pending, name: str) -> Slot | None:
    """Return the slot of a stream, and remember that the batch has read it as it is now."""
    engine.reader.notice()
    slot = engine.reader.find(name)
    pending.reads.setdefault(name, 0 if slot is None else slot.version)
    if pending.erased_count is None:
        pending.erased_count = erased_count(engine.reader)
    return slot


def version_in_batch(engine: Engine, pending: Pending, name: str) -> int:
    """Return a stream's version as an open batch sees it, and remember that the batch has read it."""
    _looked_at(engine, pending, name)
    return pending.reads[name] + len(pending.places[name])


def state_in_batch(engine: Engine, pending: Pending, name: str) -> fold.State:
    """Return a stream's state as an open batch sees it, and remember that the batch has read it."""
    with engine.reader.state_lock:
        slot = _looked_at(engine, pending, name)
        if name in pending.overlays:
            return pending.overlays[name]
        if not pending.places[name]:
            return fold.empty(kind_of(name)) if slot is None else engine.reader.live(slot)
        # A copy where there can be one: a large project is built from its rows in seconds, and copied in milliseconds.
        state = fold.empty(kind_of(name)) if slot is None else _built(engine, slot)
    for place in pending.places[name]:
        state = _folded(engine, pending, name, place, state)
    pending.overlays[name] = state
    return state


def _built(engine: Engine, slot: Slot) -> fold.State:
    return fold.copied(engine.reader.live(slot)) or engine.reader.loader.state_at(slot, slot.seq)


def _folded(engine: Engine, pending: Pending, name: str, place: int, state: fold.State) -> fold.State:
    """Return a state after one more event of a batch."""
    event = pending.events[place]
    if isinstance(event, Restored):
        state = engine.reader.base_state(event, kind_of(name))
    fold.fold(state, pending.stamp(place), event)
    return state
