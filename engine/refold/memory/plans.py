"""Plans: several events, decided from earlier reads, and written together or not at all."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from refold.engine import batch as batches
from refold.engine.conflicts import ANY
from refold.engine.transaction import Transaction, erased_count
from refold.errors import WrongVersion
from refold.event import Event
from refold.memory.core import Core
from refold.memory.options import Options


class EventPlan(NamedTuple):
    """Events with their streams, in order, and the stream versions that the decision was based on."""

    events: Sequence[tuple[str, Event]]
    reads: Mapping[str, int]


class PlannedWrite(NamedTuple):
    """A write of a plan; ``stream`` is the stream that ``expected`` and the request apply to."""

    core: Core
    stream: str
    plan: Callable[[], EventPlan]
    request: tuple[Any, ...]
    options: Options

    def run(self) -> list[Event] | None:
        """Write the events as one commit, or add them to the open batch; ``None`` if a stream that was read changed."""
        core, options = self.core, self.options
        if options.request_id is not None:
            answered = core.find_answer(options.request_id, self.stream, self.request)
            if answered is not None:
                return answered
        batch = batches.active_batch(core.engine)
        if batch is not None:
            return self._add(batch.transaction)
        core.engine.refresh()  # The local copy of a log on a server can be slightly out of date.
        pending = Transaction(core.engine.reader)
        pending.erased_count = erased_count(core.engine.reader)
        plan = self.plan()
        core.check_version(self.stream, options.expected)
        pending.reads.update({core.key(name): version for name, version in plan.reads.items()})
        for name, event in plan.events:
            pending.insert(core.key(name), event)
        self._remember(pending, 0)
        if not plan.events and options.request_id is None:
            return []
        try:
            core.engine.commit(pending)
        except WrongVersion:
            return None
        return pending.events

    def _add(self, pending: Transaction) -> list[Event]:
        begin, expected = len(pending.events), self.options.expected
        events = self.plan().events
        try:
            for number, (name, event) in enumerate(events):
                self.core.write(name, event, at=None, call=self.request, expected=ANY if number else expected)
            if not events:
                self.core.write(self.stream, lambda _: None, at=None, call=self.request, expected=expected)
        except BaseException:
            pending.truncate(begin)
            raise
        self._remember(pending, begin)
        return [event for _, event in events]

    def _remember(self, pending: Transaction, begin: int) -> None:
        if self.options.request_id is not None:
            request = self.core.request(self.options.request_id, self.stream, self.request)
            pending.requests[request.id_hash] = (request, range(begin, len(pending.events)))
