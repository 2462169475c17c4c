"""Replaying one conversation step by step: one state, folded forward, and what each event changed in it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from msgspec import Struct

from refold import fold
from refold.engine.changes import changes_between
from refold.engine.core import Engine
from refold.engine.damage import guarded
from refold.engine.keys import name_of
from refold.engine.loader import Recorded
from refold.event import Event, Forked, Restored, Stamp
from refold.fold import State
from refold.message import Message, MessageAppended, plain_message
from refold.results import Change
from refold.views.window import WINDOW, WindowResized


class Step(Struct, frozen=True):
    """One step of a replay: the event, what it changed, what it pushed out, and the states around it."""

    event: Event
    stamp: Stamp
    before: Any
    """The conversation just before, a frozen ``Conversation``."""
    after: Any
    """The conversation just after, a frozen ``Conversation``."""
    changes: tuple[Change, ...]
    evicted: tuple[Message, ...]


class _Shown(NamedTuple):
    """A state as a step compares it: messages by id as they are, everything else as plain values."""

    live: dict[str, Message]
    counts: dict[str, Any]
    rest: dict[str, dict[str, Any]]


def steps(engine: Engine, key: str, frozen: Callable[[int], Any], after: int, until: int | None) -> Iterator[Step]:
    """Return the steps of a stream's events with ``after < seq <= until``, at most those that there are now."""
    last = engine.last_seq(key, after)
    slot = engine.slot(key)
    events = engine.events(key, last, until)
    if slot is None:
        return iter(())
    with engine.state_lock:
        state = engine.loader.state_at(slot, last) if last else fold.empty(slot.kind)
    return _steps(engine, key, frozen, state, events)


def _steps(
    engine: Engine, key: str, frozen: Callable[[int], Any], state: State, events: Iterator[Recorded]
) -> Iterator[Step]:
    shown = _shown(state)
    for event, stamp in events:
        state = _folded(engine, state, event, stamp)
        before, shown = shown, _shown(state)
        changes = tuple(_changes(name_of(key), before, shown))
        evicted = tuple(_evicted(event, stamp, before.live, shown.live))
        yield Step(event, stamp, frozen(stamp.seq - 1), frozen(stamp.seq), changes, evicted)


@guarded
def _folded(engine: Engine, state: State, event: Event, stamp: Stamp) -> State:
    """Return the state after an event."""
    if isinstance(event, (Forked, Restored)):
        state = engine.base_state(event, state.kind.name)
    fold.fold(state, stamp, event)
    return state


def _shown(state: State) -> _Shown:
    window = state.part(WINDOW)
    live = {message.event.id: message for message in window.live()}
    counts = {"window_tokens": window.window_tokens, "tokens": window.tokens} if window.policy else {}
    return _Shown(live, counts, fold.plain(state, without=WINDOW.name))


def _changes(stream: str, before: _Shown, after: _Shown) -> Iterator[Change]:
    """Return the changes of a step: what came into the window and what left it, not what stayed."""
    yield from changes_between(stream, before.rest, after.rest)
    yield from changes_between(
        stream,
        {WINDOW.name: {**before.counts, "messages": _moved(before.live, after.live)}},
        {WINDOW.name: {**after.counts, "messages": _moved(after.live, before.live)}},
    )


def _moved(here: dict[str, Message], there: dict[str, Message]) -> dict[str, Any]:
    """Return the messages that are not the same on the other side, as plain values."""
    return {
        message_id: plain_message(message)
        for message_id, message in here.items()
        if (other := there.get(message_id)) is not message and other != message
    }


def _is_orphan(event: MessageAppended, before: dict[str, Message]) -> bool:
    """Return whether a message never entered the window: an answer does only while its call is there."""
    answered = event.answers
    return answered is not None and not any(answered in message.event.call_ids for message in before.values())


def _evicted(event: Event, stamp: Stamp, before: dict[str, Message], after: dict[str, Message]) -> Iterator[Message]:
    """Return the messages that a budget pushed out; a cleared window evicts nothing."""
    if isinstance(event, (MessageAppended, WindowResized)):
        yield from (message for message_id, message in before.items() if message_id not in after)
    if isinstance(event, MessageAppended) and event.id not in after and not _is_orphan(event, before):
        yield Message(event, stamp)
