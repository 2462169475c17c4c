"""The token-bounded FIFO window: the newest messages of a conversation that fit its budget.

Eviction (policy 1) takes whole groups from the front while the sum is over the budget, and nothing more. An assistant
message with tool calls and the messages that answer them are one group, at the place of its first member; a group with
a pinned member is passed over and leaves only when the window is cleared. The fold recomputes evictions
from structural fields alone, so neither erasure nor a constructor argument can move one.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from refold import checks
from refold.errors import StoreVersion
from refold.event import ConversationOpened, Event, ForkDropped, Located, Stamp, StateImported, View
from refold.message import Message, MessageAppended, imported_messages, message_digest, plain_message
from refold.views.base import copy_slots

POLICY: Final = 1
"""The eviction policy of conversations opened today. A released policy is never changed; another one gets a number."""


class WindowCleared(Event, frozen=True, tag=3):
    """All messages left the window."""

    def repeat(self, chat: Any) -> None:
        chat.clear_window()


class WindowResized(Event, frozen=True, tag=4):
    """The token budget of the window changed."""

    window_tokens: int

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased one has its budget
        checks.window_tokens(self.window_tokens)

    def repeat(self, chat: Any) -> None:
        chat.set_window_tokens(self.window_tokens)


class MessageRemoved(Event, frozen=True, tag=48):
    """A message left the window with its group."""

    id: str


class MessagePinned(Event, frozen=True, tag=49):
    """A message in the window was pinned, or its pin was taken off."""

    id: str
    pinned: bool


class Window:
    """The live messages with their running token sum; group bookkeeping exists only once there are tool calls.

    Eviction costs time only for what it evicts: pinned groups that it has passed over are in a list of their own, and
    members of an evicted group that are not at the front stay in place, marked, until they get there.
    """

    __slots__ = (
        "calls",
        "counter",
        "gone",
        "members",
        "origin",
        "owners",
        "passed",
        "pinned",
        "pinned_tokens",
        "policy",
        "queue",
        "repinned",
        "tokens",
        "window_tokens",
    )

    def __init__(self) -> None:
        self.passed: list[Message] = []
        """Messages of pinned groups that eviction has passed over: older than all that is in the queue."""
        self.queue: deque[Message] = deque()
        """The other messages, oldest first, with those among them that are ``gone``."""
        self.gone: set[str] = set()  # Ids of messages in the queue that were evicted with their group.
        self.tokens = 0
        self.window_tokens = 0
        self.counter = ""
        self.policy = 0
        self.origin = 0  # The seq of the imported state whose messages may still be live; those carry this seq.
        self.calls: dict[str, tuple[str, ...]] = {}
        """Call id -> ids of the live messages that made a call with this id; an answer belongs to the last of them."""
        self.owners: dict[str, str] = {}  # Id of a live answer -> id of the message whose call it answers.
        self.members: dict[str, list[Message]] = {}
        """Id of a live message with calls -> the members of its group, itself first."""
        self.pinned: set[str] = set()  # Ids of the first members of pinned groups.
        self.pinned_tokens = 0
        self.repinned: set[str] = set()
        """Ids of the live messages that are pinned and were not when they were appended, or the other way round."""

    def copy(self) -> "Window":
        other = copy_slots(self)
        other.members = {leader: members.copy() for leader, members in self.members.items()}
        return other

    def live(self) -> list[Message]:
        """Return the live messages, oldest first, as a new list."""
        queued = [message for message in self.queue if message.event.id not in self.gone] if self.gone else self.queue
        return [*self.passed, *queued] if self.passed else list(queued)

    def __len__(self) -> int:
        return len(self.passed) + len(self.queue) - len(self.gone)

    def enter(self, message: Message) -> bool:
        """Add a message at the end; an answer to a call that is not in the window stays out (``False``)."""
        event = message.event
        if event.answers is not None:
            makers = self.calls.get(event.answers)
            if makers is None:
                return False
            self.owners[event.id] = makers[-1]
            self.members[makers[-1]].append(message)
        if event.call_ids:
            self.members[event.id] = [message]
            for call_id in event.call_ids:
                self.calls[call_id] = (*self.calls.get(call_id, ()), event.id)
        self.queue.append(message)
        self.tokens += event.tokens
        if event.pinned or self.pinned:
            self._account_pinned(message)
        return True

    def _account_pinned(self, message: Message) -> None:
        event = message.event
        leader = self.owners.get(event.id, event.id)
        if leader in self.pinned:
            self.pinned_tokens += event.tokens
        elif event.pinned:
            self.pinned.add(leader)
            self.pinned_tokens += sum(member.event.tokens for member in self.members.get(leader, (message,)))

    def evict(self) -> None:
        """Take groups from the front while the sum is over the budget."""
        queue = self.queue
        while self.tokens > self.window_tokens and queue:
            message = queue.popleft()
            event = message.event
            if event.call_ids or self.pinned or self.gone:
                self._evict_one(message)
            else:
                self.tokens -= event.tokens

    def _evict_one(self, message: Message) -> None:
        """Evict the group of the message that was at the front, unless it is gone already or pinned.

        An answer is never at the front of an unpinned group: the message that it answers comes before it.
        """
        message_id = message.event.id
        if message_id in self.gone:
            self.gone.remove(message_id)
        elif self.owners.get(message_id, message_id) in self.pinned:
            self.passed.append(message)
        else:
            self._drop(message)

    def _drop(self, leader: Message) -> None:
        for member in self.members.pop(leader.event.id, (leader,)):
            self.tokens -= member.event.tokens
            if member is not leader:
                self.gone.add(member.event.id)
                del self.owners[member.event.id]
        for call_id in leader.event.call_ids:
            makers = tuple(maker for maker in self.calls[call_id] if maker != leader.event.id)
            if makers:
                self.calls[call_id] = makers
            else:
                del self.calls[call_id]

    def clear(self) -> None:
        self._fill(())
        self.origin, self.repinned = 0, set()

    def _fill(self, messages: Iterable[Message]) -> None:
        self.passed, self.queue, self.gone = [], deque(), set()
        self.tokens = self.pinned_tokens = 0
        self.calls, self.owners, self.members, self.pinned = {}, {}, {}, set()
        for message in messages:
            self.enter(message)

    def find(self, key: str | int) -> Message | None:
        """Return the live message with an id or a seq, ``None`` where there is none.

        Messages of an imported state all have its seq, so only their ids name them.
        """
        if isinstance(key, str):
            return next((message for message in self.live() if message.id == key), None)
        return next((message for message in self.live() if message.seq == key != self.origin), None)

    def remove(self, message_id: str) -> None:
        """Drop the group of a live message."""
        leader = self.owners.get(message_id, message_id)
        self._fill([message for message in self.live() if self.owners.get(message.id, message.id) != leader])

    def pin(self, message_id: str, *, pinned: bool) -> None:
        """Pin a live message, or take its pin off."""
        self.repinned ^= {message_id}
        self._fill([_repinned(message, pinned) if message.id == message_id else message for message in self.live()])

    def pinned_with(self, event: MessageAppended) -> int:
        """Return the tokens of the pinned groups after an append of the event."""
        leader = event.id
        if event.answers is not None:
            makers = self.calls.get(event.answers)
            if makers is None:
                return self.pinned_tokens
            leader = makers[-1]
        if leader in self.pinned:
            return self.pinned_tokens + event.tokens
        if not event.pinned:
            return self.pinned_tokens
        return self.pinned_tokens + event.tokens + sum(member.event.tokens for member in self.members.get(leader, ()))

    def pack(self) -> tuple[Any, list[int]]:
        """Return budget and seqs; messages of an imported state, always the oldest, by its seq and their ids."""
        live = self.live()
        imported = [message.event.id for message in live if message.stamp.seq == self.origin]
        origin = self.origin if imported else 0
        seqs = [message.stamp.seq for message in live if message.stamp.seq != origin]
        inline = [self.window_tokens, self.counter, self.policy, origin, imported]
        repinned = sorted(message.id for message in live if message.id in self.repinned) if self.repinned else ()
        if repinned:
            inline.append(repinned)
        return inline, [origin, *seqs] if origin else seqs

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Window":
        window = cls()
        window.window_tokens, window.counter, window.policy, window.origin, imported = msgspec.convert(
            inline[:_INLINE_COUNT], _INLINE
        )
        window.repinned = set(msgspec.convert(inline[_INLINE_COUNT], list[str])) if inline[_INLINE_COUNT:] else set()
        if window.origin:
            event, stamp = events[0]
            assert isinstance(event, StateImported), f"seq {stamp.seq} was packed as an imported state"
            live = set(imported)
            for message in imported_messages(event, stamp):
                if message.event.id in live:
                    window._enter_packed(message)
        for event, stamp in events[1:] if window.origin else events:
            assert isinstance(event, MessageAppended), f"seq {stamp.seq} was packed as a message"
            window._enter_packed(Message(event, stamp))
        return window

    def _enter_packed(self, message: Message) -> None:
        self.enter(_repinned(message, not message.pinned) if message.id in self.repinned else message)

    def logical(self) -> Any:
        if not self.policy:
            return None
        digests = [message_digest(message) for message in self.live()]
        return [self.window_tokens, self.counter, self.policy, digests]

    def plain(self) -> dict[str, Any]:
        messages = {message.id: plain_message(message) for message in self.live()}
        counts = {"window_tokens": self.window_tokens, "tokens": self.tokens} if self.policy else {}
        return {**counts, "messages": messages}

    def content(self) -> Any:
        return [self.window_tokens, self.counter, self.policy, self.live()]


class _Policies(dict[int, Callable[[Window], None]]):
    """The evictions by policy number; a number of a later refold is refused, not guessed."""

    def __missing__(self, policy: int) -> NoReturn:
        raise StoreVersion(f"a window is to be evicted by policy {policy}, which this refold does not know; upgrade it")


EVICTION: Final = _Policies({POLICY: Window.evict})
"""Eviction by the policy number that a conversation recorded when it was opened."""


_INLINE: TypeAlias = tuple[int, str, int, int, list[str]]
_INLINE_COUNT: Final = 5
"""How many of the packed values every window has; a sixth lists what was pinned or unpinned later."""


def _repinned(message: Message, pinned: bool) -> Message:  # noqa: FBT001 - the value of the field
    return Message(msgspec.structs.replace(message.event, pinned=pinned), message.stamp)


WINDOW = View("window", kinds=("conversation",), state=Window)


@WINDOW.on(ConversationOpened)
def _conversation_opened(window: Window, stamp: Stamp, event: ConversationOpened) -> None:
    window.window_tokens = event.window_tokens
    window.counter = event.counter
    window.policy = event.policy


@WINDOW.on(MessageAppended)
def _message_appended(window: Window, stamp: Stamp, event: MessageAppended) -> None:
    message = Message(event, stamp)
    if event.answers is None and not event.call_ids and not event.pinned:
        window.queue.append(message)  # What enter comes down to for a message that belongs to no group.
        window.tokens += event.tokens
    else:
        window.enter(message)
    if window.tokens > window.window_tokens:
        EVICTION[window.policy](window)


@WINDOW.on(WindowCleared)
def _window_cleared(window: Window, stamp: Stamp, event: WindowCleared) -> None:
    window.clear()


@WINDOW.on(MessageRemoved)
def _message_removed(window: Window, stamp: Stamp, event: MessageRemoved) -> None:
    window.remove(event.id)


@WINDOW.on(MessagePinned)
def _message_pinned(window: Window, stamp: Stamp, event: MessagePinned) -> None:
    window.pin(event.id, pinned=event.pinned)


@WINDOW.on(WindowResized)
def _window_resized(window: Window, stamp: Stamp, event: WindowResized) -> None:
    window.window_tokens = event.window_tokens
    EVICTION[window.policy](window)


@WINDOW.on(StateImported)
def _state_imported(window: Window, stamp: Stamp, event: StateImported) -> None:
    window.clear()
    window.window_tokens, window.counter, window.policy = event.window_tokens, event.counter, event.policy
    window.origin = stamp.seq
    for message in imported_messages(event, stamp):
        window.enter(message)


@WINDOW.on(ForkDropped)
def _fork_dropped(window: Window, stamp: Stamp, event: ForkDropped) -> None:
    window.clear()
    window.window_tokens, window.counter, window.policy = 0, "", 0
