"""The token-bounded FIFO window: the newest messages of a conversation that fit its budget.

Eviction (policy 1) takes whole groups from the front while the sum is over the budget, and nothing more. An assistant
message with tool calls and the messages that answer them are one group, standing where its first member stands; a
group with a pinned member is passed over and leaves only when the window is cleared. The fold recomputes evictions
from structural fields alone, so neither erasure nor a constructor argument can move one.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NoReturn

from refold.errors import StoreVersion
from refold.event import ConversationOpened, Event, ForkDropped, Located, Stamp, StateImported, View
from refold.message import Message, MessageAppended, imported_messages, message_digest, plain_message

POLICY: Final = 1
"""The eviction policy of conversations opened today. A released policy is never changed; another one gets a number."""


class WindowCleared(Event, frozen=True, tag=3):
    """All messages left the window."""


class WindowResized(Event, frozen=True, tag=4):
    """The token budget of the window changed."""

    window_tokens: int


class Window:
    """The live messages with their running token sum; group bookkeeping exists only once there are tool calls."""

    __slots__ = (
        "calls",
        "counter",
        "messages",
        "origin",
        "owners",
        "pinned",
        "pinned_tokens",
        "policy",
        "sizes",
        "tokens",
        "window_tokens",
    )

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.tokens = 0
        self.window_tokens = 0
        self.counter = ""
        self.policy = 0
        self.origin = 0
        """The seq of the imported state whose messages may still be live; those carry this seq."""
        self.calls: dict[str, tuple[str, ...]] = {}
        """Call id -> ids of the live messages that made a call with this id; an answer belongs to the last of them."""
        self.owners: dict[str, str] = {}
        """Id of a live answer -> id of the message whose call it answers."""
        self.sizes: dict[str, int] = {}
        """Id of a live message with calls -> members of its group."""
        self.pinned: set[str] = set()
        """Ids of the first members of pinned groups."""
        self.pinned_tokens = 0

    def leader(self, message: Message) -> str:
        """Return the id of the first member of the message's group."""
        return self.owners.get(message.event.id, message.event.id)

    def enter(self, message: Message) -> bool:
        """Add a message at the end; an answer to a call that is not in the window stays out (``False``)."""
        event = message.event
        if event.answers is not None and not self._join(event.id, event.answers):
            return False
        if event.call_ids:
            self.sizes[event.id] = 1
            for call_id in event.call_ids:
                self.calls[call_id] = (*self.calls.get(call_id, ()), event.id)
        self.messages.append(message)
        self.tokens += event.tokens
        if event.pinned or self.pinned:
            self._account_pinned(message)
        return True

    def _join(self, message_id: str, call_id: str) -> bool:
        makers = self.calls.get(call_id)
        if makers is None:
            return False
        self.owners[message_id] = makers[-1]
        self.sizes[makers[-1]] += 1
        return True

    def _account_pinned(self, message: Message) -> None:
        """Keep the sum of pinned groups when a message has joined one, or has pinned its group."""
        leader = self.leader(message)
        if leader in self.pinned:
            self.pinned_tokens += message.event.tokens
        elif message.event.pinned:
            self.pinned.add(leader)
            self.pinned_tokens += sum(member.event.tokens for member in self.group(leader))

    def group(self, leader: str) -> list[Message]:
        """Return the live members of a group, oldest first."""
        return [message for message in self.messages if self.leader(message) == leader]

    def evict(self) -> None:
        """Take groups from the front while the sum is over the budget."""
        messages = self.messages
        while self.tokens > self.window_tokens and messages:
            front = messages[0].event
            if not front.call_ids and not self.pinned:
                messages.popleft()
                self.tokens -= front.tokens
            elif self._evict_group():
                messages = self.messages
            else:
                return

    def _evict_group(self) -> bool:
        """Take the first group without a pinned member; ``False`` if there is none."""
        for message in self.messages:
            leader = self.leader(message)
            if leader not in self.pinned:
                self._remove(leader)
                return True
        return False

    def _remove(self, leader: str) -> None:
        gone = self._take_front(leader)
        if len(gone) < self.sizes.pop(leader, 1):
            gone += self.group(leader)
            self.messages = deque(message for message in self.messages if self.leader(message) != leader)
        for message in gone:
            self.tokens -= message.event.tokens
            self.owners.pop(message.event.id, None)
        for call_id in set(gone[0].event.call_ids):
            self._forget_call(call_id, leader)

    def _take_front(self, leader: str) -> list[Message]:
        """Pop the members of a group that stand together at the front, the common case by far."""
        gone: list[Message] = []
        while self.messages and self.leader(self.messages[0]) == leader:
            gone.append(self.messages.popleft())
        return gone

    def _forget_call(self, call_id: str, leader: str) -> None:
        makers = tuple(maker for maker in self.calls[call_id] if maker != leader)
        if makers:
            self.calls[call_id] = makers
        else:
            del self.calls[call_id]

    def clear(self) -> None:
        """Drop every message."""
        self.messages = deque()
        self.tokens = self.pinned_tokens = self.origin = 0
        self.calls, self.owners, self.sizes, self.pinned = {}, {}, {}, set()

    def pinned_with(self, event: MessageAppended) -> int:
        """Return what the pinned groups would hold if the event were appended."""
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
        return self.pinned_tokens + event.tokens + sum(member.event.tokens for member in self.group(leader))


class _Policies(dict[int, Callable[[Window], None]]):
    """What evicts by policy number; a number of a later refold is refused, not guessed."""

    def __missing__(self, policy: int) -> NoReturn:
        message = f"a window is to be evicted by policy {policy}, which this refold does not know; upgrade it"
        raise StoreVersion(message)


EVICTION: Final = _Policies({POLICY: Window.evict})
"""Eviction by the policy number that a conversation recorded when it was opened."""


def _pack(window: Window) -> tuple[Any, list[int]]:
    """Return budget and places: messages by seq, those of an imported state (always the oldest) by its seq and ids."""
    imported = [message.event.id for message in window.messages if message.stamp.seq == window.origin]
    origin = window.origin if imported else 0
    seqs = [message.stamp.seq for message in window.messages if message.stamp.seq != origin]
    inline = [window.window_tokens, window.counter, window.policy, origin, imported]
    return inline, [origin, *seqs] if origin else seqs


def _unpack(inline: Any, events: Located) -> Window:
    window = Window()
    window.window_tokens, window.counter, window.policy, window.origin, imported = inline
    if window.origin:
        event, stamp = events[0]
        assert isinstance(event, StateImported), f"seq {stamp.seq} was packed as an imported state"
        wanted = set(imported)
        for message in imported_messages(event, stamp):
            if message.event.id in wanted:
                window.enter(message)
    for event, stamp in events[1:] if window.origin else events:
        assert isinstance(event, MessageAppended), f"seq {stamp.seq} was packed as a message"
        window.enter(Message(event, stamp))
    return window


def _logical(window: Window) -> Any:
    if not window.policy:
        return None
    digests = [message_digest(message) for message in window.messages]
    return [window.window_tokens, window.counter, window.policy, digests]


def _plain(window: Window) -> dict[str, Any]:
    messages = {message.id: plain_message(message) for message in window.messages}
    counts = {"window_tokens": window.window_tokens, "tokens": window.tokens} if window.policy else {}
    return {**counts, "messages": messages}


WINDOW = View(
    "window",
    kinds=("conversation",),
    empty=Window,
    pack=_pack,
    unpack=_unpack,
    logical=_logical,
    plain=_plain,
)


@WINDOW.on(ConversationOpened)
def conversation_opened(window: Window, stamp: Stamp, event: ConversationOpened) -> None:
    """Take the budget and the policy under which the conversation runs."""
    window.window_tokens = event.window_tokens
    window.counter = event.counter
    window.policy = event.policy


@WINDOW.on(MessageAppended)
def message_appended(window: Window, stamp: Stamp, event: MessageAppended) -> None:
    """Add the message, then evict what no longer fits."""
    message = Message(event, stamp)
    if event.answers is None and not event.call_ids and not event.pinned:
        window.messages.append(message)  # What enter comes down to for a message that belongs to no group.
        window.tokens += event.tokens
    else:
        window.enter(message)
    if window.tokens > window.window_tokens:
        EVICTION[window.policy](window)


@WINDOW.on(WindowCleared)
def window_cleared(window: Window, stamp: Stamp, event: WindowCleared) -> None:
    """Drop every message, pinned ones too."""
    window.clear()


@WINDOW.on(WindowResized)
def window_resized(window: Window, stamp: Stamp, event: WindowResized) -> None:
    """Take the new budget and evict what no longer fits it."""
    window.window_tokens = event.window_tokens
    EVICTION[window.policy](window)


@WINDOW.on(StateImported)
def state_imported(window: Window, stamp: Stamp, event: StateImported) -> None:
    """Hold exactly the imported messages under the imported budget."""
    window.clear()
    window.window_tokens, window.counter, window.policy = event.window_tokens, event.counter, event.policy
    window.origin = stamp.seq
    for message in imported_messages(event, stamp):
        window.enter(message)


@WINDOW.on(ForkDropped)
def fork_dropped(window: Window, stamp: Stamp, event: ForkDropped) -> None:
    """Become as if the conversation had never been."""
    window.clear()
    window.window_tokens, window.counter, window.policy = 0, "", 0
