"""Watches: functions called for messages that are about to leave a window, or have left it."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from msgspec import Struct

from refold import checks, fold
from refold.engine.transaction import Decide
from refold.errors import RefoldError
from refold.event import Event, Forked, Recorded, Restored, Stamp
from refold.memory.options import Core
from refold.message import Message
from refold.views.window import WINDOW

if TYPE_CHECKING:
    from refold.engine.subscriptions import Subscription
    from refold.memory.memory import Memory


class Departure(Struct, frozen=True):
    """A message that leaves a conversation's window; ``seq`` is that of the event, or ``None`` before it is written."""

    conversation: str
    message: Message
    seq: int | None


Predicate: TypeAlias = Callable[[Message], object]
_WATCHING: Final[ContextVar[bool]] = ContextVar("refold_watching", default=False)


class Watch:
    """A function that is called with the departures of messages, until the watch is closed.

    >>> from refold import Memory
    >>> memory = Memory()
    >>> chat = memory.conversation("chat-42", window_tokens=8)
    >>> message = chat.append("user", "I am allergic to nuts.", tokens=5)
    >>> def keep(departure):
    ...     memory.profile().set("allergy", departure.message.content)
    >>> with memory.watch(lambda message: "allergic" in message.content, keep):
    ...     _ = chat.append("user", "What can I eat?", tokens=5)
    >>> memory.profile().get("allergy")
    'I am allergic to nuts.'
    """

    __slots__ = ("_close", "function", "predicate")

    def __init__(self, predicate: Predicate, function: Callable[[Departure], Any]) -> None:
        self.predicate = predicate
        self.function = function
        self._close: Callable[[], None] = lambda: None

    def on_close(self, close: Callable[[], None]) -> None:
        """Set the function that ends the watch."""
        self._close = close

    def close(self) -> None:
        """End the watch."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, stream: str, messages: Sequence[Message], seq: int | None) -> None:
        """Call the function with the departure of each message that matches the predicate."""
        conversation = stream.partition("/")[2]
        for message in messages:
            if self.predicate(message):
                self.function(Departure(conversation, message, seq))


def watch_before(core: Core, watch: Watch) -> Watch:
    """Register a watch that is called with the messages about to leave, before the event is written."""
    of_all, own = core.watches, core.own_watches
    of_all.append(watch)
    own.append(watch)

    def close() -> None:
        for watches in (of_all, own):
            if watch in watches:
                watches.remove(watch)

    watch.on_close(close)
    return watch


def watch_after(memory: "Memory", watch: Watch) -> Watch:
    """Register a watch that is called with the messages that have left, on the subscription thread.

    It is called for the events of all writers.
    """

    def notify(recorded: Recorded) -> None:
        stream, seq = recorded.stamp.stream, recorded.stamp.seq
        if type(recorded.event) not in _LEAVING or not stream.startswith("conversation/"):
            return
        name = stream.partition("/")[2]
        kept = {message.id for message in memory.at(seq).conversation(name).window()}
        before = memory.at(seq - 1).conversation(name).window()
        watch.tell(stream, [message for message in before if message.id not in kept], seq)

    subscription: Subscription = memory.subscribe(notify)
    watch.on_close(subscription.close)
    return watch


_LEAVING: Final = frozenset((*WINDOW.handlers, *fold.BASE_TYPES))


def check_functions(predicate: object, function: object) -> None:
    """Raise ``InvalidInput`` if either argument is not callable."""
    for name, given in (("predicate", predicate), ("fn", function)):
        if not callable(given):
            checks.invalid(f"{name} must be a function, not {type(given).__name__} ({checks.brief(given)})")


def warn(core: Core, stream: str, make: Event | Decide, opening: Event) -> None:
    """Call the watches with the messages that would leave a window if a mutation were written now.

    Mutations made by a watch do not call any watch. The mutation is decided again afterwards.
    """
    if _WATCHING.get():
        return
    leaving = list(_find_departures(core, stream, make, opening))
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


def _find_departures(core: Core, stream: str, make: Event | Decide, opening: Event) -> Iterator[Message]:
    state = core.read(stream, fold.copy_state, None)
    assert state is not None, "a conversation's state can be copied"
    before = state.part(WINDOW).live()
    try:
        event = make if isinstance(make, Event) else make(state)
    except RefoldError:
        return  # The mutation raises it.
    if not before or event is None or type(event) not in _LEAVING:
        return
    if isinstance(event, (Forked, Restored)):
        after = core.engine.reader.look_at_base(event, state.kind.name)
    else:
        stamp, after = Stamp(core.engine.reader.head + 1, stream, 0, 0, 0), state
        if not fold.is_open(state):
            fold.fold(after, stamp, opening)
        fold.fold(after, stamp, event)
    kept = {message.id for message in after.part(WINDOW).live()}
    yield from (message for message in before if message.id not in kept)
