"""A history made ready for questions: facts by mark and by stream, and when each version can have been current."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from tests.rigs.history.record import Delivery, Fact, Look, Operation, Write

NOWHERE = (0, 0)
"""Seq and version of what is not in the log."""


class Timeline:
    """When the versions of one stream came to be, as far as the calls tell."""

    def __init__(self, written: Sequence[tuple[int, Operation]], last_version: int) -> None:
        self._last_version = last_version
        returned = sorted((one.returned_ns, version) for version, one in written if one.returned_ns is not None)
        self._returned_ns = [moment_ns for moment_ns, _ in returned]
        self._highest = list(accumulate((version for _, version in returned), max))
        invoked = sorted(((one.invoked_ns, version) for version, one in written), reverse=True)
        self._invoked_ns = [moment_ns for moment_ns, _ in reversed(invoked)]
        self._lowest = list(accumulate((version for _, version in invoked), min))[::-1]

    def between(self, begin_ns: int, end_ns: int) -> tuple[int, int]:
        """Return the lowest and the highest version that can have been current between two moments.

        What was acknowledged before the beginning had been written; what was invoked after the end had not, nor had
        anything behind it.
        """
        before = bisect_left(self._returned_ns, begin_ns)
        after = bisect_right(self._invoked_ns, end_ns)
        low = self._highest[before - 1] if before else 0
        high = self._lowest[after] - 1 if after < len(self._lowest) else self._last_version
        return low, high


class Index:
    """A history, and what the rules ask of it."""

    def __init__(self, operations: Sequence[Operation], facts: Sequence[Fact], deliveries: Sequence[Delivery]) -> None:
        self.operations = operations
        self.facts = facts
        self.deliveries = deliveries
        self.by_mark: dict[str, list[Fact]] = {}
        self.by_seq = {fact.seq: fact for fact in facts}
        self.streams: defaultdict[str, list[Fact]] = defaultdict(list)
        self._lines: defaultdict[tuple[str, str], list[Fact]] = defaultdict(list)
        for fact in facts:
            self.streams[fact.stream].append(fact)
            if fact.mark:
                self.by_mark.setdefault(fact.mark, []).append(fact)
                self._lines[fact.stream, fact.key].append(fact)
        self.by_written = {write.mark: operation for operation in operations for write in operation.writes}
        self.timelines = self._timelines()

    def _timelines(self) -> defaultdict[str, Timeline]:
        written: defaultdict[str, list[tuple[int, Operation]]] = defaultdict(list)
        for operation in self.operations:
            for write in operation.writes:
                version = self.place(write)[1]
                if version:
                    written[write.stream].append((version, operation))
        timelines: defaultdict[str, Timeline] = defaultdict(lambda: Timeline((), 0))
        for stream, facts in self.streams.items():
            timelines[stream] = Timeline(written[stream], facts[-1].version)
        return timelines

    def line(self, look: Look) -> list[Fact]:
        """Return the facts of which a look shows the newest."""
        return self._lines[look.stream, look.key]

    def place(self, write: Write) -> tuple[int, int]:
        """Return the seq and version that a write got, ``NOWHERE`` if it is not in the log."""
        for fact in self.by_mark.get(write.mark, ()):
            return fact.seq, fact.version
        return NOWHERE

    def seqs(self, operation: Operation) -> list[int]:
        """Return the seqs of those writes of an operation that are in the log."""
        return [seq for write in operation.writes if (seq := self.place(write)[0])]

    def companions(self, mark: str) -> Iterator[Fact]:
        """Yield what came into the log in the same moment as a mark: all of its batch, itself included."""
        operation = self.by_written.get(mark)
        for write in operation.writes if operation else ():
            yield from self.by_mark.get(write.mark, ())
