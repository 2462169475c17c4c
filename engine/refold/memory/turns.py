"""The question of a turn: the user's newest message until the model answers it, even after it has left the window."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain, takewhile
from typing import Final, NamedTuple

from refold.engine import batch as batches
from refold.engine.reader import Request
from refold.engine.scan import EventFilter, starts_of
from refold.engine.streams import split_key
from refold.engine.transaction import erased_count
from refold.event import Event, ForkDropped, Forked, Recorded, Restored, Stamp, StateImported
from refold.fold import State
from refold.memory.core import Core
from refold.message import (
    PROMPT_ROLES,
    Message,
    MessageAppended,
    MessageReplaced,
    is_withheld,
    messages_of,
    replace_content,
)
from refold.views.session import ContextShown
from refold.views.window import WINDOW, MessagePinned, MessageRemoved, WindowCleared

_TYPES: Final = (MessageAppended, MessageRemoved, WindowCleared, StateImported, Forked, Restored, ForkDropped)
_PASSAGES_COUNT_MAX: Final = 64  # Conversations in a turn longer than their window whose passages are kept.
_BEGINS: Final = (WindowCleared, StateImported, Forked, Restored, ForkDropped)  # No window holds what came before.
_UNDOING: Final = (*_BEGINS, MessageRemoved, MessageReplaced)
_SPAN_EVENTS: Final = 64  # Events of the log to read at first; the next span is twice as long.


def is_question(message: Message) -> bool:
    """Return whether a message is the user's own words, and not the result of a tool."""
    return message.role == "user" and message.event.answers is None


def is_answer(message: Message) -> bool:
    """Return whether a message ends a turn: an assistant message without calls."""
    return message.role == "assistant" and not (message.event.call_ids or message.tool_calls)


def without_withheld(messages: Iterable[Message]) -> list[Message]:
    """Leave out the messages of a conversation that are not to be remembered, and what follows until a question."""
    kept: list[Message] = []
    is_kept = True
    for message in messages:
        is_kept = not is_withheld(message) if is_question(message) else is_kept
        if is_kept and not is_withheld(message):
            kept.append(message)
    return kept


def groups_of(messages: Sequence[Message]) -> list[list[Message]]:
    """Group the messages that must stay together for any provider: calls of tools, and their outputs."""
    callers: dict[str, list[Message]] = {}
    groups: list[list[Message]] = []
    for message in messages:
        answers = message.event.answers
        group = [] if answers is None else callers.get(answers, [])
        if not group:
            groups.append(group)
        group.append(message)
        callers.update(dict.fromkeys(message.event.call_ids, group))
    return groups


def required_groups(groups: Sequence[list[Message]]) -> list[list[Message]]:
    """Return the groups that are never left out: those with a pin, the user's last message, and the newest."""
    question = next((group for group in reversed(groups) if is_question(group[0])), None)
    return [
        group
        for group in groups
        if group is groups[-1] or group is question or any(message.pinned for message in group)
    ]


def open_questions(messages: Sequence[Message]) -> list[Message]:
    """Return the user's messages after the last answer, of messages by turns."""
    return [*filter(is_question, takewhile(lambda message: not is_answer(message), reversed(messages)))][::-1]


def fit_messages(messages: Sequence[Message], tokens: int) -> list[Message]:
    """Choose the newest messages that fit, in addition to those that are never left out.

    What the newest calls led to and what the user said since the last answer come before the rest.
    """
    if _tokens_of(messages) <= tokens:
        return list(messages)
    groups = groups_of(messages)
    shown = set(chain.from_iterable(required_groups(groups)))
    tokens -= _tokens_of(shown)
    turn = [*takewhile(lambda group: not is_answer(group[0]), reversed(groups))]
    calls = [group for group in turn if group[0].event.call_ids][:1]  # A model that lacks these makes them again.
    questions = [group for group in turn if is_question(group[0])]
    for wanted in (calls, questions, groups[::-1]):
        for group in wanted:
            needs = 0 if group[0] in shown else _tokens_of(group)
            if needs > tokens:
                break
            tokens -= needs
            shown.update(group)
    return [message for message in messages if message in shown]


def shown_seqs(messages: Sequence[Message], kept_tokens: int | None) -> set[int]:
    """Return the seqs of those of a window's messages that a context keeps; `None` keeps all.

    The others are searched like those that have left the window.
    """
    if kept_tokens is None:
        return {message.seq for message in messages}
    history = [message for message in messages if message.role not in PROMPT_ROLES]
    cut = {message.id for message in history} - {message.id for message in fit_messages(history, kept_tokens)}
    return {message.seq for message in messages if message.id not in cut}


def _tokens_of(messages: Iterable[Message]) -> int:
    return sum(message.tokens for message in messages)


class OpenTurn(NamedTuple):
    """The messages in a window by turns, and the question that has no answer yet, which the window may have evicted.

    By turns, an answer comes before the questions that its model had not seen.
    """

    live: list[Message]
    question: Message | None
    later: AbstractSet[str] = frozenset()
    """The ids of the messages after the question, if the log had to be read for it."""

    @property
    def evicted_question(self) -> Message | None:
        """The question if it is not in the window."""
        question = self.question
        return None if question is None or any(message.id == question.id for message in self.live) else question

    @property
    def messages(self) -> list[Message]:
        """The messages in the window, with the question at its place among them."""
        evicted = self.evicted_question
        if evicted is None:
            return self.live
        place = next((place for place, message in enumerate(self.live) if message.id in self.later), len(self.live))
        return [*self.live[:place], evicted, *self.live[place:]]


def open_turn_of(core: Core, stream: str, at: int | None) -> OpenTurn:
    """Return the turn that a conversation is in.

    The question is the newest user message, and ``None`` once it has an answer or was erased. The answer of a loop,
    whose cause is the context that its model was shown, does not answer what came after that; any other answers all
    before it.
    Messages that were taken out of the window, instead of being evicted, do not count. If the window does not show the
    question, the log is read backwards as far as the turn goes.
    """
    live, contents, is_by_age = core.read_lightly(stream, _read_window, at)
    live = _by_turns(core, live)
    last = next((message for message in reversed(live) if is_question(message) or is_answer(message)), None)
    # Such a message leaves after all older ones. If it was pinned at any time, a newer one can have left before it.
    is_by_age = is_by_age and core.engine.reader.types_written.isdisjoint((MessagePinned,))
    if last is not None and is_by_age and not last.pinned and (is_question(last) or _reaches(live, last.stamp.cause)):
        return OpenTurn(live, _open_question(last))
    found, later = _find_newest(core, stream, at, contents)
    return OpenTurn(live, found, later)


def _by_turns(core: Core, messages: list[Message]) -> list[Message]:
    """Put each answer in front of the questions that came after its context: others write while a model thinks."""
    if core.engine.reader.types_written.isdisjoint((ContextShown,)):
        return messages
    ordered, newest = list[Message](), 0
    for message in messages:
        role, place = message.event.role, len(ordered)
        if role == "user" and is_question(message):
            newest = message.stamp.seq
        elif role == "assistant" and 0 < message.stamp.cause < newest and is_answer(message):
            place = _first_unseen(ordered, _seen_seq(core, message))
        ordered.insert(place, message)
    return ordered


def _first_unseen(messages: Sequence[Message], seen: int) -> int:
    """Return the place of the first question after a seq, or the end; an answer without a context has seen all."""
    place = len(messages)
    for number in range(place - 1, -1, -1) if seen else ():
        if is_question(messages[number]):
            if messages[number].stamp.seq <= seen:
                break
            place = number
    return place


def _reaches(live: Sequence[Message], cause: int) -> bool:
    """Return whether a window that messages leave by age holds all those that came after a seq."""
    return not cause or any(
        message.stamp.seq <= cause and not message.pinned and message.role not in PROMPT_ROLES for message in live
    )


def context_of(core: Core, reply: Stamp) -> Recorded | None:
    """Return the context that the model was shown for a reply; ``None`` if no loop recorded the reply."""
    recorded = core.event(reply.cause) if reply.cause > 0 else None
    return recorded if recorded is not None and isinstance(recorded.event, ContextShown) else None


def question_seq(core: Core, reply: Stamp) -> int:
    """Return the seq of the question in whose turn a loop recorded a reply, 0 if there is none."""
    context = context_of(core, reply)
    return reply.cause if context is None else context.stamp.cause


def _seen_seq(core: Core, answer: Message) -> int:
    """Return the seq of the context that a model was shown for an answer; 0 if no loop recorded the answer."""
    return 0 if context_of(core, answer.stamp) is None else answer.stamp.cause


def is_there(core: Core, stream: str, message: Message) -> bool:
    """Return whether a message was neither erased nor dropped with its conversation."""
    if core.event(message.seq).stamp.erased:
        return False
    if ForkDropped not in core.engine.reader.types_written:
        return True
    from refold.memory.drops import drop_seqs  # noqa: PLC0415 - loaded only if something was dropped

    return drop_seqs(core).get(stream, 0) < message.seq


def find_question(core: Core, request: Request) -> Message | None:
    """Return the message that a request to run a turn appended, or ``None``; ``InvalidInput`` for another request."""
    core.engine.refresh()
    try:
        recorded = core.answer(request)
    except LookupError:
        return None
    assert recorded is not None, "such a request appends a message"
    (message,) = messages_of(recorded)
    return message


def record_request(core: Core, request: Request) -> None:
    """Record that the open batch of this context, which ends with a message, is what a request led to."""
    batch = batches.active_batch(core.engine)
    assert batch is not None, "a request is recorded with its message"
    batch.transaction.requests[request.id_hash] = (request, range(len(batch)))


def is_cut(core: Core, stream: str, at: int | None, live: Sequence[Message]) -> bool:
    """Return whether older messages than those that a window shows were evicted from it; pinned ones stay behind."""
    ids = {message.id for message in live}
    rest = (message.seq for message in live if not message.pinned and message.role not in PROMPT_ROLES)
    head = core.engine.reader.current_head() if at is None else at
    for event, stamp in _events_backwards(core, stream, next(rest, head + 1) - 1):
        if isinstance(event, WindowCleared):
            break
        if isinstance(event, MessageAppended) and event.id not in ids and not stamp.erased:
            return True
    return False


def newest_group(
    events: Iterable[Recorded],
    is_caller: Callable[[MessageAppended, Stamp], bool],
    ends: tuple[type[Event], ...] = (WindowCleared,),
) -> set[str]:
    """Return the ids of the newest message with calls that ``is_caller`` accepts, and of the answers to its calls.

    Empty if there is none, or if the host took one of them out of the window, by ``ends`` or alone.
    """
    group, calls = set[str](), tuple[str, ...]()
    for event, stamp in events:
        if isinstance(event, MessageAppended):
            if event.call_ids and is_caller(event, stamp):
                group, calls = {event.id}, event.call_ids
            elif event.answers in calls:
                group.add(event.id)
        elif isinstance(event, ends) or (isinstance(event, MessageRemoved) and event.id in group):
            group, calls = set[str](), ()
    return group


class Passage(NamedTuple):
    """The newest question in the log of a conversation up to a head, or an answer after it, and what came later."""

    head: int
    erased: int
    """The number of erased events when the log was read."""
    found: Message | None
    """The question; or the answer after it, if it answers everything before it."""
    seen: int
    """The seq up to which models had seen the log that gave answers after it."""
    later: set[str]
    """The ids of the other messages after it; those of events after the head may be among them."""

    def extend(self, found: Message | None, seen: int, later: set[str]) -> "Passage":
        """Return the passage with what was found after its head."""
        if found is not None:
            return self._replace(found=found, seen=seen, later=later)
        return self._replace(seen=max(seen, self.seen), later=self.later | later if later else self.later)

    @property
    def question(self) -> Message | None:
        """The question, if it has no answer."""
        found = self.found
        is_seen = found is not None and 0 < found.stamp.seq <= self.seen
        return None if found is None or is_seen else _open_question(found)


def _passages_by_key(_: Core) -> dict[str, Passage]:
    return {}


def _find_newest(
    core: Core, stream: str, at: int | None, contents: Mapping[str, int]
) -> tuple[Message | None, AbstractSet[str]]:
    """Return the question that has no answer, if any, and the ids of the messages after it.

    The log is read back to where the last call began, so that a long turn reads each of its events once.
    """
    search = partial(_search, core, contents)
    key, erased = core.key(stream), erased_count(core.engine.reader)
    head = core.engine.reader.current_head() if at is None else at
    passages = core.part(_passages_by_key)
    known = passages.get(key)
    if known is not None and known.head > head:
        passage = Passage(head, erased, *search(_events_backwards(core, stream, head)))
        return passage.question, passage.later
    if known is None or known.erased != erased or not _only_appends(core, key, known, head):
        known = Passage(head, erased, *search(_events_backwards(core, stream, head)))
    else:
        known = known.extend(*search(_events(core, key, head, known.head)))._replace(head=head)
    if len(passages) >= _PASSAGES_COUNT_MAX:
        passages.clear()
    passages[key] = known
    batch = batches.active_batch(core.engine) if at is None else None
    keys = () if batch is None else batch.transaction.keys
    pending = [batch.transaction.recorded_event(place) for place, own in enumerate(keys) if own == key] if batch else []
    if any(isinstance(event, _UNDOING) for event, _ in pending):
        passage = Passage(head, erased, *search(chain(reversed(pending), _events_backwards(core, stream, head))))
    else:
        passage = known.extend(*search(reversed(pending)))
    return passage.question, passage.later


def _only_appends(core: Core, key: str, known: Passage, head: int) -> bool:
    """Return whether the events after a passage only add to it."""
    branch, stream = split_key(key)
    return not any(core.with_branch(branch).events(EventFilter((), _UNDOING), stream, after=known.head, until=head))


def _search(
    core: Core, contents: Mapping[str, int], events: Iterable[Recorded]
) -> tuple[Message | None, int, set[str]]:
    """Return what a passage has of events that come newest first: what is found, what was seen, and what is later."""
    later, removed, seen = set[str](), set[str](), 0
    for recorded in events:
        if isinstance(recorded.event, MessageRemoved):
            removed.add(recorded.event.id)
        for message in reversed(list(messages_of(recorded))):
            current = _current_message(core, message, contents.get(message.id, 0))
            if message.id not in removed and (is_question(current) or is_answer(current)):
                own = 0 if is_question(current) else _seen_seq(core, current)
                if not own:
                    return current, seen, later
                seen = max(seen, own)
            else:
                later.add(message.id)
    return None, seen, later


def _open_question(message: Message) -> Message | None:
    return message if is_question(message) and not message.erased else None


def _read_window(state: State) -> tuple[list[Message], dict[str, int], bool]:
    """Return the live messages, the seqs of the events with their current contents, and whether they leave by age."""
    window = state.part(WINDOW)
    return window.live(), window.replaced.copy(), window.ranks is None


def _current_message(core: Core, message: Message, seq: int) -> Message:
    """Return a message with the content that the event at ``seq`` gave it, if one did after the message came."""
    if seq < 0 or 0 <= message.stamp.seq < seq:
        event, stamp = core.event(seq)
        assert isinstance(event, MessageReplaced), f"seq {seq} replaced a message"
        return replace_content(message, event, stamp)
    return message


def _events_backwards(core: Core, stream: str, at: int) -> Iterator[Recorded]:
    """Yield the events that made the window, newest first, across the states that the conversation continued from."""
    reader, events = core.engine.reader, _events(core, core.key(stream), at)
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
        events = _events(core, base.key, base.base_seq)


def _events(core: Core, key: str, until: int, begin: int = 0) -> Iterator[Recorded]:
    """Yield the events of a stream after ``begin`` up to ``until``, newest first."""
    branch, stream = split_key(key)
    there, span = core.with_branch(branch), _SPAN_EVENTS
    while until > begin:
        after = max(until - span, begin)
        yield from there.events(EventFilter((), _TYPES), stream, after=after, until=until, backwards=True)
        until, span = after, 2 * span
