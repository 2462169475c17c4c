"""What a batch is made of before it is written: events with their streams, and what they depend on.

A batch keeps one open while user code runs. Its events have provisional seqs, -1 for the first, so that later ones can
name them.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from refold import fold
from refold.engine.keys import name_of
from refold.entry import Entry
from refold.errors import LimitExceeded
from refold.event import Event, Stamp
from refold.limits import BATCH_EVENTS_MAX
from refold.message import Message, MessageAppended
from refold.views.journal import Note

ANY: Final = "any"
NO_STREAM: Final = "no stream"
EXISTS: Final = "exists"

Decide: TypeAlias = Callable[[fold.State], Event | None]
"""Looks at a stream's state and returns the event to append, or ``None`` where nothing would change."""


Noted: TypeAlias = tuple[Event, Stamp]
"""An event that was noted, with its stamp: provisional while its batch is open."""


class Request(NamedTuple):
    """A caller's request id and what was asked, both as keyed hashes."""

    id_hash: bytes
    content_hash: bytes
    elders: tuple[tuple[bytes, int], ...] = ()
    """In a branch: the id's hashes in the branches that it goes on from, and up to which seq their answers count."""


class Pending:
    """The events of one commit in columns, in order."""

    __slots__ = (
        "entries",
        "erased_count",
        "events",
        "is_torn",
        "later",
        "messages",
        "names",
        "notes",
        "occurred",
        "opened",
        "openings",
        "overlays",
        "places",
        "provisional",
        "reads",
        "requests",
        "stands",
        "starts",
    )

    def __init__(self) -> None:
        self.is_torn = False
        """Whether an interrupt cut off a mutation, so that the columns may not fit each other: it is not written."""
        self.names: list[str] = []
        self.events: list[Event] = []
        self.occurred: list[int | None] = []
        self.places: defaultdict[str, list[int]] = defaultdict(list)
        """Stream -> places of its events."""
        self.messages: list[Message] = []
        """Results that were handed out before their stamp was known; their seq is provisional."""
        self.entries: list[Entry] = []
        """Memories that were handed out before their seqs and times were known."""
        self.later: list[tuple[int, Callable[[Stamp], None]]] = []
        """What wants to know the stamp of an event, by its provisional seq."""
        self.notes: list[tuple[int, Note]] = []
        """Journal notes that were handed out before their time was known, by place."""
        self.openings: dict[str, int] = {}
        """Stream -> place of the event that opens it, left out if somebody else opens the stream first."""
        self.opened: set[str] = set()
        """Streams that need no opening any more, as far as this commit knows."""
        self.provisional: list[int] = []
        """Places of events that name a seq of this very commit."""
        self.overlays: dict[str, fold.State] = {}
        """Stream -> its state as the batch sees it, for streams that were read after the batch wrote to them."""
        self.reads: dict[str, int] = {}
        """Stream -> version at which the batch first read its state."""
        # How many events had been erased when it first read something; none where no erasure matters.
        self.erased_count: int | None = None
        self.requests: dict[bytes, tuple[Request, range]] = {}
        """Requests by the hash of their id, each with the places of its events."""
        self.starts: list[int] = []
        """Places at which a command of its own begins; none where all events are one command."""
        self.stands: Callable[[], bool] | None = None
        """Whether what a whole memory was looked at for still holds, asked just before the commit."""

    @property
    def has_results(self) -> bool:
        """Whether something was handed out that waits for its stamp."""
        return bool(self.messages or self.notes or self.entries or self.later)

    def add(self, name: str, event: Event, occurred_ns: int | None) -> int:
        """Add an event whose fields were all checked, so that encoding it cannot fail; return its place."""
        place = len(self.events)
        if place >= BATCH_EVENTS_MAX:
            message = f"a batch of more than BATCH_EVENTS_MAX = {BATCH_EVENTS_MAX} events; commit in several batches"
            raise LimitExceeded(message)
        self.names.append(name)
        self.places[name].append(place)
        self.events.append(event)
        self.occurred.append(occurred_ns)
        return place

    def take(self, name: str, event: MessageAppended, occurred_ns: int | None) -> Message | None:
        """Add a message whose stream is open and of which nothing needs a look at any state: by far the most are.

        Returns the message as it is handed out, ``None`` where a look is needed.
        """
        if name not in self.opened or event.sources or self.overlays:
            return None
        try:
            place = self.add(name, event, occurred_ns)
            message = Message(event, Stamp(-place - 1, name_of(name), 0, 0, occurred_ns or 0))
            self.messages.append(message)
        except LimitExceeded:
            raise
        except BaseException:
            self.is_torn = True
            raise
        return message

    def stamp(self, place: int) -> Stamp:
        """Return the stamp that an event has while its batch is open."""
        return Stamp(-place - 1, name_of(self.names[place]), 0, 0, self.occurred[place] or 0)

    def noted(self, place: int) -> Noted:
        """Return an event with the stamp that it has while its batch is open."""
        return self.events[place], self.stamp(place)

    def truncate(self, length: int) -> None:
        """Take back what was added from place ``length`` on: the verb that added it failed."""
        for name in set(self.names[length:]):
            self.overlays.pop(name, None)
            self.places[name] = [place for place in self.places[name] if place < length]
            self.opened.discard(name)
        for column in (self.names, self.events, self.occurred):
            del column[length:]
        self.openings = {name: place for name, place in self.openings.items() if place < length}
        self.provisional = [place for place in self.provisional if place < length]


def place_of(provisional_seq: int) -> int:
    """Return the place in the batch that a provisional seq stands for."""
    return -provisional_seq - 1
