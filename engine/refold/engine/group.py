"""A group: the events of one commit in columns, those of several callers, each caller's a command of its own."""

from refold.engine.pending import Request
from refold.engine.slots import Slot
from refold.event import Event


class Group:
    """What is about to be written, in order; events were checked before, so that encoding them cannot fail."""

    __slots__ = ("born", "commands", "events", "is_citing", "occurred", "opened", "requests", "slots", "touched")

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.events: list[Event] = []
        self.occurred: list[int | None] = []
        self.commands: list[int] = []
        """For each event, the place of the first event of its command: what is written whole or not at all."""
        self.touched: dict[str, int] = {}
        """Stream -> how many events the group holds of it."""
        self.opened: set[str] = set()
        """Streams that need no opening any more."""
        self.born: dict[str, Slot] = {}
        """Streams by name that have no number yet in the store."""
        self.is_citing = False
        """Whether an event may name sources."""
        self.requests: list[tuple[Request, int, int]] = []
        """Requests with the places of their events: from the first to behind the last."""

    def add(self, slot: Slot, event: Event, occurred_ns: int | None, command: int) -> int:
        """Add an event to the command that begins at place ``command``; return its place."""
        place = len(self.events)
        self.slots.append(slot)
        self.events.append(event)
        self.occurred.append(occurred_ns)
        self.commands.append(command)
        self.touched[slot.key] = self.touched.get(slot.key, 0) + 1
        return place

    def truncate(self, length: int) -> None:
        """Take back what was added from place ``length`` on: the command that it belongs to was refused."""
        for slot in self.slots[length:]:
            left = self.touched[slot.key] - 1
            self.touched[slot.key] = left
            if not left:
                del self.touched[slot.key]
            self.opened.discard(slot.key)
        for column in (self.slots, self.events, self.occurred, self.commands):
            del column[length:]
        self.born = {key: slot for key, slot in self.born.items() if key in self.touched}
