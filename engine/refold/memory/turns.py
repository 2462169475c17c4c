"""The question of a turn: the user's newest message until the model answers it, even after it has left the window."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Final, NamedTuple

from refold.engine import batch as batches
from refold.engine.scan import Sought, starts_of
from refold.engine.streams import split_key
from refold.event import ForkDropped, Forked, Recorded, Restored, StateImported
from refold.fold import State
from refold.memory.options import Core
from refold.message import Message, MessageAppended, MessageReplaced, messages_of, replaced
from refold.views.window import WINDOW, MessagePinned, MessageRemoved, WindowCleared

_TYPES: Final = (MessageAppended, MessageRemoved, WindowCleared, StateImported, Forked, Restored, ForkDropped)
_BEGINS: Final = (WindowCleared, StateImported, Forked, Restored, ForkDropped)  # No window holds what came before.
_SPAN_EVENTS: Final = 64  # Events of the log to read at first; the next span is twice as long.


def is_question(message: Message) -> bool:
    """Return whether a message is the user's own words, and not the result of a tool."""
    return message.role == "user" and message.event.answers is None


def is_answer(message: Message) -> bool:
    """Return whether a message ends a turn: an assistant message without calls."""
    return message.role == "assistant" and not (message.event.call_ids or message.tool_calls)


class Turn(NamedTuple):
    """The messages in a window, and the question that has no answer yet, which the window may have evicted."""

    live: list[Message]
    question: Message | None
    later: AbstractSet[str] = frozenset()
    """The ids of the messages after the question, if the log had to be read for it."""

    @property
    def evicted(self) -> Message | None:
        """The question if it is not in the window."""
        question = self.question
        return None if question is None or any(message.id == question.id for message in self.live) else question

    @property
    def messages(self) -> list[Message]:
        """The messages in the window, with the question at its place among them."""
        evicted = self.evicted
        if evicted is None:
            return self.live
        place = next((place for place, message in enumerate(self.live) if message.id in self.later), len(self.live))
        return [*self.live[:place], evicted, *self.live[place:]]


def turn_of(core: Core, stream: str, at: int | None) -> Turn:
    """Return the turn that a conversation is in.

    The question is the newest user message, and ``None`` once it has an answer or was erased. Messages that were taken
    out of the window, instead of being evicted, do not count. If the window does not show the question, the log is read
    backwards as far as the turn goes.
    """
    live, contents, is_by_age = core.read_lightly(stream, _live, at)
    last = next((message for message in reversed(live) if is_question(message) or is_answer(message)), None)
    # Such a message leaves after all older ones. If it was pinned at any time, a newer one can have left before it.
    is_by_age = is_by_age and core.engine.reader.types_written.isdisjoint((MessagePinned,))
    if last is not None and is_by_age and not last.pinned:
        return Turn(live, _asked(last))
    later, removed = set[str](), set[str]()
    for recorded in _backwards(core, stream, at):
        if isinstance(recorded.event, MessageRemoved):
            removed.add(recorded.event.id)
        for message in reversed(list(messages_of(recorded))):
            current = _current(core, message, contents.get(message.id, 0))
            if message.id not in removed and (is_question(current) or is_answer(current)):
                return Turn(live, _asked(current), later)
            later.add(message.id)
    return Turn(live, None)


def _asked(message: Message) -> Message | None:
    return message if is_question(message) and not message.erased else None


def _live(state: State) -> tuple[list[Message], dict[str, int], bool]:
    """Return the live messages, the seqs of the events with their current contents, and whether they leave by age."""
    window = state.part(WINDOW)
    return window.live(), window.replaced.copy(), window.ranks is None


def _current(core: Core, message: Message, seq: int) -> Message:
    """Return a message with the content that the event at ``seq`` gave it, if one did after the message came."""
    if seq < 0 or 0 <= message.stamp.seq < seq:
        event, stamp = core.recorded(seq)
        assert isinstance(event, MessageReplaced), f"seq {seq} replaced a message"
        return replaced(message, event, stamp)
    return message


def _backwards(core: Core, stream: str, at: int | None) -> Iterator[Recorded]:
    """Yield the events that made the window, newest first, across the states that the conversation continued from."""
    reader, key = core.engine.reader, core.key(stream)
    batch = batches.active(core.engine) if at is None else None
    keys = () if batch is None else batch.transaction.keys
    pending = [batch.transaction.recorded(place) for place, own in enumerate(keys) if own == key] if batch else []
    events = chain(reversed(pending), _events(core, key, reader.current_head() if at is None else at))
    while True:
        for recorded in events:
            yield recorded
            if isinstance(recorded.event, _BEGINS):
                base = next(starts_of(reader, recorded), None)
                break
        else:
            return
        if base is None:
            return
        events = chain((), _events(core, base.key, base.base_seq))


def _events(core: Core, key: str, until: int) -> Iterator[Recorded]:
    branch, stream = split_key(key)
    there, span = core.to(branch), _SPAN_EVENTS
    while until > 0:
        after = max(until - span, 0)
        yield from there.events(Sought((), _TYPES), stream, after=after, until=until, backwards=True)
        until, span = after, 2 * span
