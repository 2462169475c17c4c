"""The window alone: fold an append, evict, and read every live message, with no log beneath."""

from collections import deque
from collections.abc import Iterator
from itertools import cycle, islice

import workloads
from floors import Weighed, slide
from peers.loader import load
from rounds import Job, Target, alternate
from rows.table import Options, Row, compared, skipped

from refold import Message, fold
from refold.event import ConversationOpened, Stamp
from refold.message import MessageAppended
from refold.views.window import POLICY, WINDOW

REFOLD = "refold"
DEQUE = "bare deque of the objects returned"
PEER = "langchain trim_messages"
BUDGET = workloads.WINDOW_MESSAGES * workloads.MESSAGE_TOKENS
PEER_STEPS = 20
JOB = "window of 115: append, evict, read all"


class Windows:
    """The same messages through refold's fold and through a deque, both full before the first round."""

    def __init__(self, operations: int) -> None:
        self.state = fold.empty("conversation")
        opened = ConversationOpened((), BUDGET, "given", POLICY)
        fold.fold(self.state, Stamp(1, "conversation/chat", 1, 0, 0), opened)
        self._prepared = cycle(_recorded())
        self.arriving: list[tuple[MessageAppended, Stamp]] = []
        self._operations = operations
        self._returned = cycle([Weighed(Message(*pair), pair[0].tokens) for pair in _recorded()])
        self._returning: list[Weighed] = []
        self.messages: deque[Message] = deque()
        self._weights: deque[int] = deque()
        self.read: list[Message] = []
        self._operations = 2 * workloads.WINDOW_MESSAGES
        self.prepare()
        self.fold()
        self.prepare_floor()
        self.slide()
        self._operations = operations

    def prepare(self) -> None:
        """Take the next events and stamps, so that making them is not on the clock."""
        self.arriving = list(islice(self._prepared, self._operations))

    def fold(self) -> None:
        """Fold each event and read the whole window after it."""
        apply, state = fold.fold, self.state
        read: list[Message] = []
        for event, stamp in self.arriving:
            apply(state, stamp, event)
            read = state.part(WINDOW).live()
        self.read = read

    def prepare_floor(self) -> None:
        """Take the next objects for the deque."""
        self._returning = list(islice(self._returned, self._operations))

    def slide(self) -> int:
        """Pass the objects through the deque; return how many the last read gave."""
        return slide(self.messages, self._weights, self._returning, BUDGET)

    def jobs(self) -> dict[str, Job]:
        """Return our job and the floor's."""
        return {
            REFOLD: Job(self.fold, self._operations, self.prepare),
            DEQUE: Job(self.slide, self._operations, self.prepare_floor),
        }


def _recorded() -> list[tuple[MessageAppended, Stamp]]:
    """Return messages as the log holds them, with their stamps."""
    pinned = False
    return [
        (
            MessageAppended((), f"{place:020x}", "user", workloads.MESSAGE_TOKENS, pinned, (), None, text.content),
            Stamp(place + 2, "conversation/chat", place + 2, place, place),
        )
        for place, text in enumerate(workloads.texts())
    ]


def rows(options: Options) -> Iterator[Row]:
    """Measure the window."""
    jobs = Windows(options.sizes.window_operations).jobs()
    peer, reason = load("langchain_window", "langchain_core")
    if peer is not None:
        trimmed = peer.Trimmed(BUDGET, workloads.MESSAGE_TOKENS)
        for _ in range(2 * workloads.WINDOW_MESSAGES):
            trimmed.step()
        jobs[PEER] = Job(lambda: [trimmed.step() for _ in range(PEER_STEPS)], PEER_STEPS)
    samples = alternate(jobs, options.rounds)
    yield compared(JOB, samples[REFOLD], DEQUE, samples[DEQUE], Target("at most", 1.5))
    if reason:
        yield skipped(JOB, PEER, reason)
    else:
        yield compared(JOB, samples[REFOLD], PEER, samples[PEER], Target("at least", 30))
