"""The messages that a mutation lets leave a window, or has let leave it, for the watches."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final

from refold import fold
from refold.engine.transaction import Decide
from refold.errors import RefoldError
from refold.event import Event, Forked, Recorded, Restored, Stamp
from refold.fold import State
from refold.memory.core import Core
from refold.memory.watches import Watch
from refold.message import Message
from refold.views.window import WINDOW

_LEAVING: Final = frozenset((*WINDOW.handlers, *fold.BASE_TYPES))
"""The types of the events by which messages can leave."""

_WATCHING: Final[ContextVar[bool]] = ContextVar("refold_watching", default=False)


def warn(core: Core, stream: str, make: Event | Decide, opening: Event) -> None:
    """Call the watches with the messages that would leave a window if a mutation were written now.

    Mutations made by a watch do not call any watch. The mutation is decided again afterwards.
    """
    if _WATCHING.get():
        return
    leaving = _find_departures(core, stream, make, opening)
    if leaving:
        with _guard_reentry():
            for watch in tuple(core.watches):
                watch.tell(stream, leaving, None)


@contextmanager
def _guard_reentry() -> Generator[None]:
    token = _WATCHING.set(True)
    try:
        yield
    finally:
        _WATCHING.reset(token)


def _find_departures(core: Core, stream: str, make: Event | Decide, opening: Event) -> list[Message]:
    state = core.read(stream, fold.copy_state, None)
    assert state is not None, "a conversation's state can be copied"
    before = _live(state)
    try:
        event = make if isinstance(make, Event) else make(state)
    except RefoldError:
        return []  # The mutation raises it.
    if not before or event is None or type(event) not in _LEAVING:
        return []
    if isinstance(event, (Forked, Restored)):
        after = core.engine.reader.look_at_base(event, state.kind.name)
    else:
        stamp, after = Stamp(core.engine.reader.head + 1, stream, 0, 0, 0), state
        if not fold.is_open(state):
            fold.fold(after, stamp, opening)
        fold.fold(after, stamp, event)
    return _without(before, _live(after))


def report(core: Core, watch: Watch) -> None:
    """Call a watch with the messages that have left, for the events of all writers, on the subscription thread."""
    subscription = core.subscribe(partial(_report_event, core, watch), None)
    watch.on_close(subscription.close)


def _report_event(core: Core, watch: Watch, recorded: Recorded) -> None:
    stream, seq = recorded.stamp.stream, recorded.stamp.seq
    if type(recorded.event) in _LEAVING and stream.startswith("conversation/"):
        before, after = (core.read_written(stream, _live, at) for at in (seq - 1, seq))
        watch.tell(stream, _without(before, after), seq)


def _live(state: State) -> list[Message]:
    return state.part(WINDOW).live()


def _without(messages: list[Message], others: list[Message]) -> list[Message]:
    ids = {message.id for message in others}
    return [message for message in messages if message.id not in ids]
