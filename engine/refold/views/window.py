"""The token-bounded window: the messages of a conversation that fit its budget, by default the newest ones.

Eviction removes whole groups while the sum is over the budget, and nothing more; policy 1 removes them from the front.
An assistant message with tool calls and the messages that answer them are one group, at the place of its first member.
A group with a pinned member is skipped, and leaves only when the window is cleared. The fold recomputes evictions from
structural fields alone, so neither erasure nor a constructor argument can change one.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

import msgspec

from refold import checks
from refold.errors import StoreVersion
from refold.event import ConversationOpened, Event, ForkDropped, Located, Stamp, StateImported, View
from refold.limits import PAGE_EVENTS
from refold.message import (
    Message,
    MessageAppended,
    MessageReplaced,
    imported_messages,
    message_digest,
    plain_message,
    replace_content,
)
from refold.views.base import copy_slots
from refold.views.ranks import IMPORTANCE_UNIT, STALE_PARTS, Ranks

POLICY: Final = 1
"""The eviction policy of conversations that request none. A released policy never changes; a new one gets a new
number."""

POLICIES: Final = {"fifo": POLICY, "least-recalled": 2, "least-important": 3, "fifo-recall": 4, "summary": 5}
"""The numbers of the policies that a conversation can be opened with.

- ``"fifo"``: the oldest group leaves first.
- ``"least-recalled"``: the group that was neither written nor recalled for the longest time leaves first.
- ``"least-important"``: as ``"fifo"``, but a group of importance 1 counts as newer by the whole budget, others by less;
  the newest group leaves last.
- ``"fifo-recall"``: ``"fifo"`` within half of the budget; the rest is left to earlier messages that a context finds.
- ``"summary"``: ``"fifo"`` beside a summary, written by the caller, of the messages that have left.
"""

NAMES: Final = {number: name for name, number in POLICIES.items()}


class WindowCleared(Event, frozen=True, tag=3):
    """All messages left the window."""

    sentence: ClassVar[str] = "the window was cleared"
    ends: ClassVar[tuple[str, ...]] = ("message",)

    def repeat(self, chat: Any) -> None:
        chat.clear_window()


class WindowResized(Event, frozen=True, tag=4):
    """The token budget of the window changed."""

    sentence: ClassVar[str] = "the window's budget became {window_tokens!s} tokens"

    window_tokens: int

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased event keeps its budget
        checks.window_tokens(self.window_tokens)

    def repeat(self, chat: Any) -> None:
        chat.set_window_tokens(self.window_tokens)


class MessageRemoved(Event, frozen=True, tag=48):
    """A message left the window with its group."""

    sentence: ClassVar[str] = "message {id!s} was taken out of the window, with its group"

    id: str


class MessagePinned(Event, frozen=True, tag=49):
    """A message in the window was pinned or unpinned."""

    sentence: ClassVar[str] = "the pin of message {id!s} was set to {pinned!s}"

    id: str
    pinned: bool


class MessagesRecalled(Event, frozen=True, tag=88):
    """Messages of a conversation were searched for, found and shown."""

    sentence: ClassVar[str] = "a recall of {query} found the messages {ids!s}"

    ids: tuple[str, ...]
    query: str = ""
    scores: tuple[float, ...] = ()

    def check(self, *, is_erased: bool) -> None:
        if not is_erased and len(self.scores) != len(self.ids):
            checks.invalid(f"{len(self.ids)} messages have {len(self.scores)} scores")


class MessageRated(Event, frozen=True, tag=89):
    """A message got an importance, in thousandths."""

    sentence: ClassVar[str] = "message {id!s} got an importance of {importance!s} thousandths"

    id: str
    importance: int

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased event keeps its importance
        checks.integer(self.importance, "importance", 0, IMPORTANCE_UNIT, "IMPORTANCE_UNIT")


class WindowSummarized(Event, frozen=True, tag=90):
    """A summary of the messages that had left the window up to the event at ``origin`` replaced any earlier one."""

    sentence: ClassVar[str] = "a summary of what had left came into the window: {text}"
    subject: ClassVar[tuple[str, str]] = ("message", "id")

    id: str
    tokens: int
    origin: int
    text: str = ""

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased event keeps its tokens
        checks.tokens(self.tokens)


class Window:
    """The live messages with their running token sum; group bookkeeping exists only once there are tool calls.

    Eviction takes time only for the messages that it evicts: the pinned groups that it has skipped are in a list of
    their own, and members of an evicted group that are not at the front stay in place, marked, until they get there.
    """

    __slots__ = (
        "calls",
        "counter",
        "gone",
        "limit",
        "members",
        "origin",
        "owners",
        "passed",
        "pinned",
        "pinned_tokens",
        "policy",
        "queue",
        "ranks",
        "ratings",
        "repinned",
        "replaced",
        "summarized",
        "summary",
        "tokens",
        "window_tokens",
    )

    def __init__(self) -> None:
        self.passed: list[Message] = []
        """Messages of pinned groups that eviction has skipped: older than everything in the queue."""
        self.queue: deque[Message] = deque()
        """The other messages, oldest first, including those that are ``gone``."""
        self.gone: set[str] = set()  # Ids of messages in the queue that were evicted with their group.
        self.tokens = 0
        self.window_tokens = 0
        self.limit = 0  # The tokens that the messages can take: the budget, or the part of it that a policy fills.
        self.counter = ""
        self.policy = 0
        self.ranks: Ranks | None = None  # For policies that do not go by age alone.
        self.ratings: dict[str, int] = {}
        """Id of a group's first member -> its importance, if not 0 and the policy does not use it; kept until later."""
        self.summary = ""  # The id of the last summary.
        self.summarized = 0  # The seq up to which messages that have left are in the summary, or need none.
        self.origin = 0  # The seq of the imported state whose messages may still be live; those carry this seq.
        self.calls: dict[str, tuple[str, ...]] = {}
        """Call id -> ids of the live messages that made a call with this id; an answer belongs to the last of them."""
        self.owners: dict[str, str] = {}  # Id of a live answer -> id of the message whose call it answers.
        self.members: dict[str, list[Message]] = {}
        """Id of a live message with calls -> the members of its group, itself first."""
        self.pinned: set[str] = set()  # Ids of the first members of pinned groups.
        self.pinned_tokens = 0
        self.repinned: set[str] = set()
        """Ids of the live messages that are pinned but were not when appended, or the other way round."""
        self.replaced: dict[str, int] = {}
        """Id of a message, live or not -> the seq of the event that gave it its current content."""

    def copy(self) -> "Window":
        other = copy_slots(self)  # This copies the ranks, too, since they have a ``copy``.
        other.members = {leader: members.copy() for leader, members in self.members.items()}
        return other

    def live(self) -> list[Message]:
        """Return the live messages, oldest first, as a new list."""
        queued = [message for message in self.queue if message.event.id not in self.gone] if self.gone else self.queue
        return [*self.passed, *queued] if self.passed else list(queued)

    def __len__(self) -> int:
        return len(self.passed) + len(self.queue) - len(self.gone)

    def enter(self, message: Message) -> bool:
        """Add a message at the end; an answer to a call that is not in the window stays out (return ``False``)."""
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
            self._count_pinned(message)
        if self.ranks is not None:
            self._rank(message, self.ranks)
        return True

    def set_policy(self, policy: int, window_tokens: int) -> None:
        """Set the policy and the budget that eviction follows."""
        self.policy, self.window_tokens = policy, window_tokens
        self.limit = window_tokens // 2 if policy == POLICIES["fifo-recall"] else window_tokens
        if policy not in _RANKED:
            self.ranks = None
        elif self.ranks is None:
            self.ranks = Ranks(window_tokens)
        else:
            self.ranks.scale(window_tokens)

    def _count_pinned(self, message: Message) -> None:
        event = message.event
        leader = self.owners.get(event.id, event.id)
        if leader in self.pinned:
            self.pinned_tokens += event.tokens
        elif event.pinned:
            self.pinned.add(leader)
            self.pinned_tokens += sum(member.event.tokens for member in self.members.get(leader, (message,)))

    def evict(self) -> None:
        """Evict groups from the front while the sum is over the limit."""
        queue = self.queue
        if not (self.members or self.pinned or self.gone):
            # A shortcut for the code below if there are no groups.
            tokens, limit, pop = self.tokens, self.limit, queue.popleft
            while tokens > limit and queue:
                tokens -= pop().event.tokens
            self.tokens = tokens
            return
        while self.tokens > self.limit and queue:
            message = queue.popleft()
            if message.event.call_ids or self.pinned or self.gone:
                self._evict_one(message)
            else:
                self.tokens -= message.event.tokens

    def _evict_one(self, message: Message) -> None:
        """Evict the group of the message that was at the front, unless it is already gone or pinned.

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

    # Eviction by ranks: the lowest key leaves first, wherever it is.

    def _rank(self, message: Message, ranks: Ranks) -> None:
        """Rank the group of a message that has entered."""
        event = message.event
        ranks.arrived += event.tokens
        if event.id not in self.owners:
            known = ranks.bases.get(event.id)
            base = ranks.arrived if self.policy == POLICIES["least-important"] else message.stamp.seq
            ranks.bases[event.id] = (base if known is None else known[0], message)
            if ranks.weights:
                ranks.push(event.id)

    def _leaders(self, ranks: Ranks) -> list[str]:
        """Return the ids of the groups, oldest first."""
        return [message.event.id for message in self.live() if message.event.id in ranks.bases]

    def recall(self, message_ids: Iterable[str], seq: int) -> None:
        """Count the groups of messages as used at a seq, if the policy depends on use."""
        ranks = self.ranks
        if ranks is None or self.policy != POLICIES["least-recalled"]:
            return
        used = {self.owners.get(message_id, message_id) for message_id in message_ids} & ranks.bases.keys()
        for leader_id in [each for each in self._leaders(ranks) if each in used] if len(used) > 1 else used:
            _, leader = ranks.bases.pop(leader_id)
            ranks.bases[leader_id] = (seq, leader)

    def rate(self, message_id: str, importance: int) -> None:
        """Set the importance of a message's group."""
        ranks, leader_id = self.ranks, self.owners.get(message_id, message_id)
        if ranks is None or self.policy != POLICIES["least-important"]:
            if importance:
                self.ratings[leader_id] = importance
            else:
                self.ratings.pop(leader_id, None)
            if len(self.ratings) > STALE_PARTS * len(self) + PAGE_EVENTS:
                self.ratings = self.live_ratings()
            return
        if leader_id not in ranks.bases:
            return
        if importance:
            ranks.weights[leader_id] = importance
        else:
            ranks.weights.pop(leader_id, None)
        if ranks.heap and ranks.weights:
            ranks.push(leader_id)
        else:
            ranks.sort()

    def importance(self, message_id: str) -> int:
        """Return the importance of a message's group."""
        ranks = self.ranks
        weights = self.ratings if ranks is None or self.policy != POLICIES["least-important"] else ranks.weights
        return weights.get(self.owners.get(message_id, message_id), 0)

    def live_ratings(self) -> dict[str, int]:
        """Return the ratings of groups in the window, sorted by id; those of groups that have left are still there."""
        live = {message.event.id for message in self.live()} if self.ratings else ()
        return {leader_id: self.ratings[leader_id] for leader_id in sorted(self.ratings) if leader_id in live}

    def evict_lowest(self) -> None:
        """Evict the groups with the lowest keys while the sum is over the limit, the newest group last."""
        ranks = self.ranks
        assert ranks is not None, f"policy {self.policy} has ranks"
        newest = self.owners.get(self.queue[-1].event.id, self.queue[-1].event.id) if self.queue else ""
        if ranks.weights:
            self._evict_weighted(ranks, newest)
        while self.tokens > self.limit and not ranks.weights:
            lowest = next((each for each in ranks.bases if each != newest and each not in self.pinned), None)
            if lowest is None:
                break
            self._evict_group(lowest, ranks)
        if self.tokens > self.limit and newest in ranks.bases and newest not in self.pinned:
            self._evict_group(newest, ranks)
        self._compact()

    def _evict_weighted(self, ranks: Ranks, newest: str) -> None:
        is_held = False
        while self.tokens > self.limit and ranks.heap:
            key, _, leader_id = heappop(ranks.heap)
            if leader_id in self.pinned or leader_id not in ranks.bases or key != ranks.key(leader_id):
                continue
            if leader_id == newest:
                is_held = True
            else:
                self._evict_group(leader_id, ranks)
        if is_held:
            ranks.push(newest)
        if not ranks.weights:
            ranks.heap = []

    def _evict_group(self, leader_id: str, ranks: Ranks) -> None:
        _, leader = ranks.bases.pop(leader_id)
        if ranks.weights:
            ranks.weights.pop(leader_id, None)
        if self.queue[0].event.id == leader_id:
            self.queue.popleft()
        else:
            self.gone.add(leader_id)
        if leader.event.call_ids:
            self._drop(leader)
        else:
            self.tokens -= leader.event.tokens

    def _compact(self) -> None:
        """Remove messages that have left from the ends of the queue, and from all of it once they are many."""
        queue, gone = self.queue, self.gone
        if not gone:
            return
        while queue and queue[0].event.id in gone:
            gone.remove(queue.popleft().event.id)
        while queue and queue[-1].event.id in gone:
            gone.remove(queue.pop().event.id)
        if STALE_PARTS * len(gone) > len(queue):
            self.queue, self.gone = deque(message for message in queue if message.event.id not in gone), set()

    def clear(self) -> None:
        self.ranks = None if self.ranks is None else Ranks(self.window_tokens)
        self._fill(())
        self.origin, self.repinned, self.ratings = 0, set(), {}
        self.summary, self.summarized = "", 0

    def _fill(self, messages: Iterable[Message]) -> None:
        self.passed, self.queue, self.gone = [], deque(), set()
        self.tokens = self.pinned_tokens = 0
        self.calls, self.owners, self.members, self.pinned = {}, {}, {}, set()
        ranks, arrived = self.ranks, 0 if self.ranks is None else self.ranks.arrived
        for message in messages:
            self.enter(message)
        if ranks is not None:
            ranks.arrived = arrived
            live = {message.event.id for message in self.queue}
            ranks.bases = {leader_id: base for leader_id, base in ranks.bases.items() if leader_id in live}
            ranks.weights = {leader_id: weight for leader_id, weight in ranks.weights.items() if leader_id in live}
            ranks.sort()

    def summarize(self, summary: Message, origin: int) -> None:
        """Put a summary in front of the messages after ``origin``, in place of the last summary."""
        live = [message for message in self.live() if message.id != self.summary]
        place = next((place for place, message in enumerate(live) if message.stamp.seq > origin), len(live))
        self.summary, self.summarized = summary.id, origin
        self._fill([*live[:place], summary, *live[place:]])

    def find(self, key: str | int) -> Message | None:
        """Return the live message with an id or a seq, ``None`` if there is none.

        Messages of an imported state all have its seq, so they can be found only by id.
        """
        if isinstance(key, str):
            return next((message for message in self.live() if message.id == key), None)
        return next((message for message in self.live() if message.seq == key != self.origin), None)

    def newest(self) -> Message | None:
        """Return the newest live message, ``None`` if there is none."""
        queued = (message for message in reversed(self.queue) if message.event.id not in self.gone)
        return next(queued, self.passed[-1] if self.passed else None)

    def remove(self, message_id: str) -> None:
        """Drop the group of a live message, without walking the window if the message is at an end and not pinned."""
        leader_id = self.owners.get(message_id, message_id)
        ends = (self.queue[0], self.newest()) if self.queue else ()
        message = next((end for end in ends if end is not None and end.event.id == message_id), None)
        if message is None or leader_id in self.pinned:
            self._fill([message for message in self.live() if self.owners.get(message.id, message.id) != leader_id])
            return
        leader = self.members[leader_id][0] if leader_id in self.members else message
        self.gone.add(leader_id)
        self._drop(leader)
        if self.ranks is not None:
            self.ranks.forget(leader_id)
        self._compact()

    def pin(self, message_id: str, *, pinned: bool) -> None:
        """Pin or unpin a live message."""
        self.repinned ^= {message_id}
        self._fill([_set_pinned(message, pinned) if message.id == message_id else message for message in self.live()])

    def release_pins(self) -> None:
        """Unpin the newest groups whose pins do not fit the budget.

        A log has none, because what pins them is refused; in a scenario, the budget can be smaller.
        """
        while self.pinned_tokens > self.window_tokens:
            live = self.live()
            leaders = [self.owners.get(message.id, message.id) for message in live]
            newest = next(leader for leader in reversed(leaders) if leader in self.pinned)
            members = {each.id for each, leader in zip(live, leaders, strict=True) if each.pinned and leader == newest}
            self.repinned ^= members
            self._fill([_set_pinned(each, False) if each.id in members else each for each in live])  # noqa: FBT003

    def replace(self, event: MessageReplaced, stamp: Stamp) -> None:
        """Replace the content of a message in place; answers to calls that it no longer makes leave."""
        self.replaced[event.id] = stamp.seq
        live = self.live()
        if any(message.id == event.id for message in live):
            self._fill([replace_content(each, event, stamp) if each.id == event.id else each for each in live])

    def pinned_tokens_after(self, event: MessageAppended) -> int:
        """Return the tokens of the pinned groups as they would be after appending the event."""
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
        """Return the budget and the seqs; messages of an imported state, always the oldest, as its seq and their ids.

        The seqs of the events that replaced contents of live messages come last.
        """
        live = self.live()
        imported = [message.event.id for message in live if message.stamp.seq == self.origin]
        origin = self.origin if imported else 0
        seqs = [message.stamp.seq for message in live if message.stamp.seq != origin]
        inline = [self.window_tokens, self.counter, self.policy, origin, imported]
        repinned = sorted(message.id for message in live if message.id in self.repinned) if self.repinned else []
        more, ratings = self._policy_state(), self.live_ratings()
        if self.replaced or ratings:
            inline += [repinned, *(more or [None]), self.replaced, *([ratings] if ratings else [])]
            contents = ((self.replaced.get(message.id, 0), message.stamp.seq) for message in live)
            seqs += [seq for seq, own in contents if seq > own]
        elif repinned or more:
            inline += [repinned, *more]
        return inline, [origin, *seqs] if origin else seqs

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Window":
        window = cls()
        window_tokens, window.counter, policy, window.origin, imported = msgspec.convert(
            inline[:_INLINE_COUNT], _INLINE
        )
        window.set_policy(policy, window_tokens)
        rest = inline[_INLINE_COUNT:]
        repinned, more, window.replaced, window.ratings = msgspec.convert([*rest, *_REST_DEFAULTS[len(rest) :]], _REST)
        window.repinned = set(repinned)
        contents: dict[str, tuple[MessageReplaced, Stamp]] = {}
        if window.replaced:
            contents = {event.id: (event, stamp) for event, stamp in events if isinstance(event, MessageReplaced)}
            events = [each for each in events if not isinstance(each[0], MessageReplaced)]
        if window.origin:
            event, stamp = events[0]
            assert isinstance(event, StateImported), f"seq {stamp.seq} was packed as an imported state"
            live = set(imported)
            for message in imported_messages(event, stamp):
                if message.event.id in live:
                    window._enter_packed(message, contents)
        queue, tokens = window.queue, 0
        is_plain = window.ranks is None and not window.repinned and not contents
        for event, stamp in events[1:] if window.origin else events:
            if isinstance(event, WindowSummarized):
                window._enter_packed(summary_message(event, stamp), contents)
                continue
            assert isinstance(event, MessageAppended), f"seq {stamp.seq} was packed as a message"
            message = Message(event, stamp)
            if is_plain and event.answers is None and not event.call_ids and not event.pinned:
                queue.append(message)  # A shortcut for ``enter`` if the message belongs to no group.
                tokens += event.tokens
            else:
                window._enter_packed(message, contents)
        window.tokens += tokens
        if window.ranks is not None:
            window.ranks.restore(more, window._leaders(window.ranks))
        elif more is not None:
            window.summary, window.summarized = msgspec.convert(more, tuple[str, int])
        return window

    def _policy_state(self) -> list[Any]:
        """Return the policy's state besides the messages; empty if it has none."""
        if self.ranks is not None:
            return [self.ranks.rows(self._leaders(self.ranks))]
        return [[self.summary, self.summarized]] if self.policy == POLICIES["summary"] else []

    def _enter_packed(self, message: Message, contents: dict[str, tuple[MessageReplaced, Stamp]]) -> None:
        if message.id in self.repinned:
            message = _set_pinned(message, not message.pinned)
        content = contents.get(message.id)
        self.enter(message if content is None else replace_content(message, *content))

    def logical(self, digest_of: Callable[[Message], bytes] = message_digest) -> Any:
        if not self.policy:
            return None
        digests = list(map(digest_of, self.live()))
        ratings = list(map(list, self.live_ratings().items()))
        return [self.window_tokens, self.counter, self.policy, digests, *self._policy_state(), *filter(None, [ratings])]

    def plain(self) -> dict[str, Any]:
        messages = {message.id: plain_message(message) for message in self.live()}
        counts = {"window_tokens": self.window_tokens, "tokens": self.tokens} if self.policy else {}
        more: dict[str, Any] = (
            {"eviction": NAMES[self.policy]} if self.policy in NAMES and self.policy != POLICY else {}
        )
        if self.ranks is not None:
            ranks = self.ranks
            more["ranks"] = {leader: [base, ranks.weights.get(leader, 0)] for leader, (base, _) in ranks.bases.items()}
        elif self.summarized:
            more["summarized"] = self.summarized
        if ratings := self.live_ratings():
            more["ratings"] = ratings
        return {**counts, **more, "messages": messages}

    def content(self) -> Any:
        return [self.window_tokens, self.counter, self.policy, self.live(), self._policy_state(), self.live_ratings()]


class _Policies(dict[int, Callable[[Window], None]]):
    """The eviction functions by policy number; a number from a later refold is refused, not guessed."""

    def __missing__(self, policy: int) -> NoReturn:
        raise StoreVersion(f"a window is to be evicted by policy {policy}, which this refold does not know; upgrade it")


_RANKED: Final = frozenset((POLICIES["least-recalled"], POLICIES["least-important"]))

EVICTION: Final = _Policies(
    {policy: Window.evict_lowest if policy in _RANKED else Window.evict for policy in POLICIES.values()}
)
"""Eviction by the policy number that a conversation recorded when it was opened."""


def _make_room(window: Window) -> None:
    if window.pinned_tokens > window.window_tokens:
        window.release_pins()
    EVICTION[window.policy](window)


def summary_message(event: WindowSummarized, stamp: Stamp) -> Message:
    """Return a summary as the pinned system message that a window shows."""
    text = None if stamp.erased else event.text
    return Message(MessageAppended((), event.id, "system", event.tokens, True, (), None, text), stamp)  # noqa: FBT003


_INLINE: TypeAlias = tuple[int, str, int, int, list[str]]
_INLINE_COUNT: Final = 5
"""The number of packed values that every window has."""

_REST: Final[Any] = tuple[list[str], Any, dict[str, int], dict[str, int]]
"""The other packed values: later pins, the state of the policy, the replaced contents, and ratings not in use."""
_REST_DEFAULTS: Final[tuple[Any, ...]] = ([], None, {}, {})


def _set_pinned(message: Message, pinned: bool) -> Message:  # noqa: FBT001 - the value of the field
    return Message(msgspec.structs.replace(message.event, pinned=pinned), message.stamp)


WINDOW = View("window", kinds=("conversation",), state=Window)


@WINDOW.on(ConversationOpened)
def _conversation_opened(window: Window, stamp: Stamp, event: ConversationOpened) -> None:
    window.counter = event.counter
    window.set_policy(event.policy, event.window_tokens)


@WINDOW.on(MessageAppended)
def _message_appended(window: Window, stamp: Stamp, event: MessageAppended) -> None:
    message = Message(event, stamp)
    if event.answers is None and not event.call_ids and not event.pinned and window.ranks is None:
        window.queue.append(message)  # A shortcut for ``enter`` if the message belongs to no group.
        window.tokens += event.tokens
    else:
        window.enter(message)
    if window.tokens > window.limit:
        _make_room(window)


@WINDOW.on_run(MessageAppended)
def _messages_appended(window: Window, stamps: Sequence[Stamp], events: Sequence[MessageAppended]) -> None:
    # For messages without groups, the same ones are left whether the first ones leave after each append or after the
    # last.
    tokens, ranks = 0, window.ranks
    is_plain = ranks is None or not (ranks.weights or window.pinned)
    for event in events:
        if event.answers is not None or event.call_ids or event.pinned:
            is_plain = False
            break
        tokens += event.tokens
    if not is_plain:
        for stamp, event in zip(stamps, events, strict=True):
            _message_appended(window, stamp, event)
        return
    if ranks is None:
        window.queue.extend(map(Message, events, stamps))
        window.tokens += tokens
    else:  # Without ratings and pins, the order is that of arrival and recalls, and no recall comes in between.
        for message in map(Message, events, stamps):
            window.enter(message)
    if window.tokens > window.limit:
        _make_room(window)


@WINDOW.on(WindowCleared)
def _window_cleared(window: Window, stamp: Stamp, event: WindowCleared) -> None:
    window.clear()
    if window.policy == POLICIES["summary"]:
        window.summarized = stamp.seq


@WINDOW.on(MessageRemoved)
def _message_removed(window: Window, stamp: Stamp, event: MessageRemoved) -> None:
    window.remove(event.id)


@WINDOW.on(MessageReplaced)
def _message_replaced(window: Window, stamp: Stamp, event: MessageReplaced) -> None:
    window.replace(event, stamp)
    if window.tokens > window.limit:
        _make_room(window)


@WINDOW.on(MessagePinned)
def _message_pinned(window: Window, stamp: Stamp, event: MessagePinned) -> None:
    window.pin(event.id, pinned=event.pinned)
    if window.tokens > window.limit:  # What was pinned may exceed the part of the budget that a policy fills.
        _make_room(window)


@WINDOW.on(WindowResized)
def _window_resized(window: Window, stamp: Stamp, event: WindowResized) -> None:
    window.set_policy(window.policy, event.window_tokens)
    _make_room(window)


@WINDOW.on(MessagesRecalled)
def _messages_recalled(window: Window, stamp: Stamp, event: MessagesRecalled) -> None:
    window.recall(event.ids, stamp.seq)


@WINDOW.on(MessageRated)
def _message_rated(window: Window, stamp: Stamp, event: MessageRated) -> None:
    window.rate(event.id, event.importance)


@WINDOW.on(WindowSummarized)
def _window_summarized(window: Window, stamp: Stamp, event: WindowSummarized) -> None:
    if window.policy == POLICIES["summary"]:
        window.summarize(summary_message(event, stamp), event.origin)
        _make_room(window)


@WINDOW.on(StateImported)
def _state_imported(window: Window, stamp: Stamp, event: StateImported) -> None:
    window.clear()
    window.counter = event.counter
    window.set_policy(event.policy, event.window_tokens)
    window.origin = stamp.seq
    window.summarized = stamp.seq if event.policy == POLICIES["summary"] else 0
    for message in imported_messages(event, stamp):
        window.enter(message)
    if window.tokens > window.limit and window.policy:
        _make_room(window)


@WINDOW.on(ForkDropped)
def _fork_dropped(window: Window, stamp: Stamp, event: ForkDropped) -> None:
    window.clear()
    window.counter, window.replaced = "", {}
    window.set_policy(0, 0)
