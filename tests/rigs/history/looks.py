"""The rules of the checker that are about reads: each saw what was there, late enough, and never less than before."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from tests.rigs.history.index import Index
from tests.rigs.history.record import LOOK_MESSAGES, Fact, Look, Operation


class Seen(NamedTuple):
    """A look that saw what was there at some versions: from ``low`` on, and until ``high``."""

    operation: Operation
    look: Look
    returned_ns: int
    low: int
    high: float
    """Infinite where nothing has changed since."""
    marks: tuple[str, ...]


def looks_saw_what_was_there(index: Index) -> Iterator[str]:
    """A look sees the newest messages, or the value of a key, as they were at one version of the stream."""
    for operation, look, _, marks in _looks(index):
        line = index.line(look)
        if _shown(line, _last(line, marks), look) != marks:
            yield f"{operation.name} saw {list(marks)} in {look.stream} {look.key!r}, which was there at no version"


def looks_are_current(index: Index) -> Iterator[str]:
    """A look sees everything that was acknowledged before it, by whichever process, and nothing from the future."""
    for seen in _understood(index):
        low, high = index.timelines[seen.look.stream].between(seen.operation.invoked_ns, seen.returned_ns)
        if seen.high < low:
            yield f"{_said(seen)}; version {low} was acknowledged before it was invoked"
        if seen.low > high:
            yield f"{_said(seen)}; versions over {high} were not even invoked when it returned"


def looks_never_go_back(index: Index) -> Iterator[str]:
    """What a process has seen of a stream, it sees ever after; who sees one event of a batch sees all of them."""
    floors: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    understood = list(_understood(index))
    for seen in understood:
        floors[seen.operation.process, seen.look.stream].append((seen.returned_ns, seen.low))
        for fact in (fact for mark in seen.marks for fact in index.companions(mark)):
            floors[seen.operation.process, fact.stream].append((seen.returned_ns, fact.version))
    floor_at = {place: _highest_before(moments) for place, moments in floors.items()}
    for seen in understood:
        floor = floor_at[seen.operation.process, seen.look.stream](seen.operation.invoked_ns)
        if seen.high < floor:
            yield f"{_said(seen)}; its process had seen version {floor} before"


LOOK_RULES = (looks_saw_what_was_there, looks_are_current, looks_never_go_back)


def _said(seen: Seen) -> str:
    until = "now" if seen.high == float("inf") else seen.high
    return f"{seen.operation.name} saw {seen.look.stream} {seen.look.key!r} as it was at versions {seen.low} to {until}"


def _highest_before(moments: list[tuple[int, int]]) -> Callable[[int], int]:
    """Return a function that gives the highest version noted before a moment, 0 if there is none."""
    ordered = sorted(moments)
    highest = list(accumulate((version for _, version in ordered), max))

    def before(moment_ns: int) -> int:
        count = bisect_left(ordered, (moment_ns,))
        return highest[count - 1] if count else 0

    return before


def _looks(index: Index) -> Iterator[tuple[Operation, Look, int, tuple[str, ...]]]:
    for operation in index.operations:
        answer = operation.acknowledgement
        if operation.look is not None and answer is not None:
            yield operation, operation.look, answer.returned_ns, answer.seen


def _understood(index: Index) -> Iterator[Seen]:
    """Yield the looks that saw what was there, each with the versions at which it was."""
    for operation, look, returned_ns, marks in _looks(index):
        line = index.line(look)
        last = _last(line, marks)
        if _shown(line, last, look) == marks:
            low = line[last].version if last >= 0 else 0
            high: Any = line[last + 1].version - 1 if last + 1 < len(line) else float("inf")
            yield Seen(operation, look, returned_ns, low, high, marks)


def _last(line: list[Fact], marks: tuple[str, ...]) -> int:
    """Return the place of the newest fact that was seen, -1 where none was."""
    return next((place for place, fact in enumerate(line) if marks and fact.mark == marks[-1]), -1)


def _shown(line: list[Fact], last: int, look: Look) -> tuple[str, ...]:
    """Return what a look shows when this fact is the newest."""
    count = 1 if look.key else LOOK_MESSAGES
    return tuple(fact.mark for fact in line[max(last + 1 - count, 0) : last + 1])
