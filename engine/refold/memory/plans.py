"""Plans: several events that are decided on what was read before, and written together or not at all."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from refold.engine import batch as batches
from refold.engine.transaction import ANY, Transaction, erased_count
from refold.errors import WrongVersion
from refold.event import Event
from refold.memory.options import Door, Options


class EventPlan(NamedTuple):
    """Events with their streams, in order, and the versions of the streams that they were decided on."""

    events: Sequence[tuple[str, Event]]
    reads: Mapping[str, int]


class PlannedWrite(NamedTuple):
    """A write of a plan; ``stream`` is the one that ``expected`` and the request are of."""

    door: Door
    stream: str
    plan: Callable[[], EventPlan]
    request: tuple[Any, ...]
    options: Options

    def run(self) -> list[Event] | None:
        """Write the events as one commit, or add them to the open batch; ``None`` if others changed what was read."""
        door, options = self.door, self.options
        if options.request_id is not None:
            answered = door.answered(options.request_id, self.stream, self.request)
            if answered is not None:
                return answered
        batch = batches.active(door.engine)
        if batch is not None:
            return self._add(batch.transaction)
        pending = Transaction(door.engine.reader)
        pending.erased_count = erased_count(door.engine.reader)
        plan = self.plan()
        door.check_version(self.stream, options.expected)
        pending.reads.update({door.key(name): version for name, version in plan.reads.items()})
        for name, event in plan.events:
            pending.add(door.key(name), event, None)
        self._remember(pending, 0)
        if not plan.events and options.request_id is None:
            return []
        try:
            door.engine.commit(pending)
        except WrongVersion:
            return None
        return pending.events

    def _add(self, pending: Transaction) -> list[Event]:
        begin, expected = len(pending.events), self.options.expected
        events = self.plan().events
        try:
            for number, (name, event) in enumerate(events):
                self.door.note(name, event, at=None, asked=self.request, expected=ANY if number else expected)
            if not events:
                self.door.note(self.stream, lambda _: None, at=None, asked=self.request, expected=expected)
        except BaseException:
            pending.truncate(begin)
            raise
        self._remember(pending, begin)
        return [event for _, event in events]

    def _remember(self, pending: Transaction, begin: int) -> None:
        if self.options.request_id is not None:
            request = self.door.request(self.options.request_id, self.stream, self.request)
            pending.requests[request.id_hash] = (request, range(begin, len(pending.events)))
